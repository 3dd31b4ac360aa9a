"""The deep network: its blocks written out, norms by layer, files, and what certificates say about it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from stability import Verdict, certify, verify
from stability.analysis import norm_drift
from stability.errors import ConfigurationError, DimensionError, FileFormatError, UnsupportedError
from stability.models import LAYERS, DeepNetwork, RotRNN, Stack, build, certify_all, describe, load, save

SMALL = {"hidden_size": 8, "width": 6, "depth": 2}


def make(seed=0, **options):
    torch.manual_seed(seed)
    return DeepNetwork(3, 4, **{**SMALL, **options})


def noise(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def own(name):
    return {"heads": 2} if name == "rotrnn" else {}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_every_layer_of_the_toolkit_fits(name):
    network = make(layer=name, options=own(name))
    x = noise(5, 7, 3)
    logits = network(x)
    assert logits.shape == (5, 4)
    logits.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.requires_grad)
    assert network.hidden_norms(x).shape == (2,)


@pytest.mark.parametrize("norm", ["batch", "layer", "none"])
@pytest.mark.parametrize("mixing", ["glu", "gelu", "linear"])
@pytest.mark.parametrize("reduction", ["mean", "last", "all"])
def test_the_blocks_written_out(norm, mixing, reduction):
    network = make(layer="lru", norm=norm, mixing=mixing, reduction=reduction, dropout=0.4).train()
    x = noise(4, 9, 3)
    for _ in range(3):
        network(noise(8, 9, 3, seed=5))  # moves the running statistics
    network.eval()
    h = x @ network.encoder.weight.T + network.encoder.bias
    norms = []
    for block in network.blocks:
        u = h
        if norm == "batch":
            n = block.norm
            u = (h - n.running_mean) / torch.sqrt(n.running_var + n.eps) * n.weight + n.bias
        elif norm == "layer":
            u = functional.layer_norm(h, (6,), block.norm.weight, block.norm.bias)
        y, _ = block.layer(u)
        norms.append(block.layer.states(u).square().sum(-1).mean())
        if mixing != "linear":
            y = functional.gelu(y)
        z = y @ block.mix.weight.T + block.mix.bias
        h = h + (z[..., :6] * torch.sigmoid(z[..., 6:]) if mixing == "glu" else z)
    h = {"mean": h.mean(1), "last": h[:, -1], "all": h}[reduction]
    want = h @ network.decoder.weight.T + network.decoder.bias
    torch.testing.assert_close(network(x), want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(network.hidden_norms(x), torch.stack(norms), rtol=1e-4, atol=1e-5)


def test_norms_as_in_training_leave_the_network_alone():
    network = make(dropout=0.5).train()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    x = noise(16, 9, 3) * 5
    norms = network.hidden_norms(x, batch_statistics=True)
    assert network.training
    assert all(torch.equal(before[k], v) for k, v in network.state_dict().items())
    network.drop = None
    for block in network.blocks:
        block.drop.p = 0.0
    seen = []
    for block in network.blocks:
        block.layer.register_forward_hook(
            lambda layer, args, out: seen.append(layer.states(args[0]).square().sum(-1).mean().detach())
        )
    network(x)
    torch.testing.assert_close(norms, torch.stack(seen))


def test_bad_descriptions_give_typed_errors(tmp_path):
    good = describe(make())
    for change in (
        {"layer": "nothing"},
        {"options": {"wheels": 3}},
        {"options": 4},
        {"depth": 0},
        {"unknown": 1},
        {"norm": "group"},
    ):
        with pytest.raises(ConfigurationError):
            build({"layer": "deep", "config": {**good["config"], **change}})
    with pytest.raises(ConfigurationError):
        build({**good, "output_size": 3})
    path = save(make(), tmp_path / "m.safetensors")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(FileFormatError):
        load(path)


def test_each_recurrent_part_is_certified_and_no_more_than_the_parts_is_claimed():
    network = make(depth=3, options={"heads": 2})
    certificates = certify_all(network)
    assert len(certificates) == 3
    for layer, certificate in zip(network.layers, certificates.values()):
        assert isinstance(layer, RotRNN)
        assert certificate.verdict is Verdict.CERTIFIED
        assert certificate.rate == pytest.approx(float(torch.exp(-torch.exp(layer.gamma_log.detach())).max()), rel=1e-6)
        assert verify(certificate).valid
    beside = certify(network)
    assert beside.subject.part == "recurrent-layers-side-by-side of DeepNetwork"
    assert beside.rate == pytest.approx(max(c.rate for c in certificates.values()), rel=1e-6)
    with pytest.raises(UnsupportedError):
        certify(make(layer="gru", options={}))


def test_norms_over_time_and_depth():
    """Ten times the training length, layer by layer; in evaluation mode, as the network runs."""
    network = make(layer="lru", depth=3)
    network(noise(8, 9, 3, seed=4))
    x = noise(5, 9, 3)
    result = norm_drift(network, x, factor=10)
    assert result.mean.shape == (3, 90)
    network.eval()
    inputs = network.layer_inputs(x.repeat(1, 10, 1))
    for k, (layer, u) in enumerate(zip(network.layers, inputs)):
        want = layer.states(u).norm(dim=-1).mean(0).detach()
        torch.testing.assert_close(torch.as_tensor(result.mean[k]).float(), want, rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigurationError):
        norm_drift(network, x, torch.zeros(5).long(), loss=lambda a, b: a.sum())


def test_norms_of_a_stack_come_layer_by_layer():
    torch.manual_seed(0)
    stack = Stack([LAYERS["lru"](3, 8), LAYERS["elman"](3, 4)])
    x = noise(5, 7, 3)
    result = norm_drift(stack, x)
    assert result.mean.shape == (2, 7)
    middle, _ = stack.layers[0](x)
    for k, states in enumerate((stack.layers[0].states(x), stack.layers[1](middle)[0])):
        want = states.norm(dim=-1).mean(0).detach()
        torch.testing.assert_close(torch.as_tensor(result.mean[k]).float(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lru", "gru", "elman"])
def test_the_laws_of_layers_hold_for_the_network(name):
    network = make(layer=name, norm="layer", reduction="all").double().eval()
    x = noise(4, 6, 3).double()
    outputs = network(x)
    for k in range(4):
        torch.testing.assert_close(network(x[k : k + 1])[0], outputs[k])
    later = x.clone()
    later[:, 4:] += 1.0
    torch.testing.assert_close(network(later)[:, :4], outputs[:, :4])
    assert (network(later)[:, 4:] - outputs[:, 4:]).abs().max() > 1e-6
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    torch.testing.assert_close(network(strided), outputs)
    for bad, error in ((x[..., :2], DimensionError), (x[0], DimensionError), (x[:0], DimensionError)):
        with pytest.raises(error):
            network(bad)
    for bad in (x.long(), x.float(), x.numpy(), None):
        with pytest.raises(ConfigurationError):
            network(bad)
