"""Deep networks of bounded-gain layers: trained for radii, certified end to end, and attacked."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from stability import certify, verify
from stability.analysis import certified_radius, deepfool, make_task, train
from stability.analysis.training.objectives import reach
from stability.errors import UnsupportedError
from stability.kernel.systems.residual_stack import ResidualStack
from stability.models import DeepNetwork, load
from stability.reports.cli import run
from stability.search.gains.stack import stack_gain


def network(seed: int = 0, **options) -> DeepNetwork:
    torch.manual_seed(seed)
    given = {"layer": "bounded_gain", "hidden_size": 6, "width": 5, "norm": "none", "mixing": "linear", **options}
    return DeepNetwork(4, 3, **given).eval()


VARIANTS = {
    "linear": {},
    "gelu, batch norm": {"mixing": "gelu", "norm": "batch"},
    "last step": {"reduction": "last", "depth": 3},
    "tanh": {"options": {"activation": "tanh", "rate": 0.8}},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_certified_is_what_runs_and_no_input_moves_two_logits_further(variant):
    model = network(**VARIANTS[variant]).double()
    generator = torch.Generator().manual_seed(0)
    for block in model.blocks:
        if isinstance(block.norm, torch.nn.BatchNorm1d):
            block.norm.running_var.copy_(0.2 + torch.rand(5, generator=generator))
            block.norm.running_mean.copy_(torch.rand(5, generator=generator))
    x = torch.randn(6, 7, 4, dtype=torch.float64, generator=generator)
    subject = model.residual()
    reduced = (lambda s: s[-1]) if model.reduction == "last" else (lambda s: s.mean(0))
    with torch.no_grad():
        signal = torch.as_tensor(np.array([reduced(subject.run(one)) for one in x.numpy()]))
        torch.testing.assert_close(model.decoder(signal), model(x), rtol=1e-12, atol=1e-12)
    certificate = certify(model)
    assert isinstance(certificate.subject, ResidualStack)
    assert certificate.verdict == "certified"
    assert verify(certificate).valid
    assert [claim.name for claim in certificate.claims] == ["gain"]
    y = model(x).argmax(1)
    radii = certified_radius(model, x, y)
    assert (radii.radius > 0).all()
    jacobian = torch.autograd.functional.jacobian(lambda v: model(v[None])[0], x[0]).flatten(1)
    moved = (jacobian[:, None] - jacobian[None]).norm(dim=2)
    prescribed = reach(model).detach()
    assert (moved <= prescribed + 1e-12).all()
    if variant != "tanh":  # of which a search, not the prescribed number, gives the proof
        gaps = model(x).detach().gather(1, y[:, None]) - model(x).detach()
        expected = (gaps / prescribed[y]).masked_fill(gaps == 0, torch.inf).amin(1).numpy()
        assert (radii.radius >= expected * (1 - 2e-3)).all()
        assert model.reduction == "last" or (radii.radius <= expected * (1 + 2e-3)).all()  # 7 steps alone prove more
    claim = stack_gain(model, head=model.decoder.weight.detach().numpy(), measure="final")
    assert float(torch.linalg.matrix_norm(jacobian, 2)) <= claim.value
    attack = deepfool(model, x, y, norm="l2", bounds=None)
    hit = np.asarray(attack.success)
    assert (radii.radius[hit] <= np.asarray(attack.norms)[hit]).all()


def test_training_aims_at_radii_and_the_command_line_certifies_the_whole(tmp_path, capsys):
    sizes = ["limit=60", "size=14", "test_limit=20"]
    words = ["layer=bounded_gain", "norm=none", "mixing=linear", "width=8"]
    asked = ["train", "--model", "deep", "--hidden", "8", "--epochs", "1", "--batch-size", "20", "--quiet"]
    asked += [text for word in words for text in ("--set", word)]
    asked += [text for word in sizes for text in ("--task-set", word)]
    assert run([*asked, "--objective", "certified", "--track-every", "0", "--out", str(tmp_path / "run")]) == 0
    assert run(["certify", str(tmp_path / "run"), "-o", str(tmp_path / "c.json"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert "2 residual blocks" in said["statement"]
    assert run(["verify", str(tmp_path / "c.json"), "--quiet"]) == 0
    model, task = load(tmp_path / "run").eval(), make_task("digits", limit=60, test_limit=20, size=14)
    before = copy.deepcopy(model)
    x, y = task.train
    train(model, task, epochs=15, lr=0.02, batch_size=20, objective="certified", temperature=20.0, target_radius=0.1)
    assert certified_radius(model, x, y).accuracy_at(0.02) > certified_radius(before, x, y).accuracy_at(0.02) + 0.1


def test_what_has_no_gain_says_why():
    x, y = torch.zeros(2, 3, 4), torch.zeros(2, dtype=torch.long)
    for options in ({"mixing": "glu"}, {"norm": "layer"}, {"layer": "rotrnn", "options": {"heads": 1}}):
        with pytest.raises(UnsupportedError):
            certified_radius(network(**options), x, y)
    for options in ({"layer": "elman"}, {"reduction": "all"}):
        with pytest.raises(UnsupportedError):
            reach(network(**options))
    ordinary = network(layer="elman", seed=1)
    assert certified_radius(ordinary, x, ordinary(x).argmax(1)).gain > 0.0
