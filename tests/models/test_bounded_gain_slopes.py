"""Bounded gain with tanh and its kin: the proof holds for any parameters and after every step; nothing exceeds it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from stability import certify
from stability.analysis import certified_radius, make_task, pgd, train
from stability.errors import ConfigurationError
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.models import BoundedGainRNN, SequenceModel, load, save
from stability.search.gains.stored_gain import carried_gain
from stability.verification import verify_claim


def drawn(seed: int, activation: str = "tanh", size: float = 1.0, **options) -> BoundedGainRNN:
    generator = torch.Generator().manual_seed(seed)
    n, p = (int(torch.randint(1, 7, (), generator=generator)) for _ in range(2))
    layer = BoundedGainRNN(p, n, activation=activation, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return layer


def climbed(layer: BoundedGainRNN, rounds: int = 25) -> float:
    """The largest ratio of the last state's difference to that of the inputs that gradient ascent finds."""
    generator = torch.Generator().manual_seed(0)
    x, u = (0.3 * torch.randn(16, 6, layer.input_size, generator=generator, dtype=torch.float64) for _ in range(2))
    best = 0.0
    for _ in range(rounds):
        u = (1e-3 * u / u.flatten(1).norm(dim=1)[:, None, None]).detach().requires_grad_()
        moved = (layer(x + u)[1] - layer(x)[1]).norm(dim=1)
        best = max(best, float(moved.max().detach()) / 1e-3)
        (u,) = torch.autograd.grad(moved.sum(), u)
    return best


@pytest.mark.parametrize(
    "activation", ["tanh", "sigmoid", *(pytest.param(name, marks=pytest.mark.slow) for name in ("relu", "leaky_relu"))]
)
def test_the_gain_is_proved_for_any_parameters_and_nothing_exceeds_it(activation):
    norms = []
    for seed in range(6):
        layer = drawn(seed, activation, 1.0 + seed % 3, gain=0.7, rate=None if seed % 2 else 0.8)
        found = layer.carried_gain()
        assert found.value <= 0.7
        assert found.value > 0.699
        assert verify_claim(found.subject, found.claim).valid
        assert climbed(layer, 8) <= 0.7
        own = layer.witness()
        assert own["rate"] <= (0.8 if seed % 2 == 0 else 1.0)
        assert check_lmi(found.subject.system, own["P"], own["L"], own["rate"])[0]
        norms.append(float(torch.linalg.matrix_norm(layer.matrices()["W"], 2).detach()))
    assert max(norms) > 1.5  # more than a norm of W below one would prove


def test_a_fresh_layer_reaches_its_gain():
    torch.manual_seed(0)
    layer = BoundedGainRNN(3, 4, gain=2.0, activation="relu").double()
    with torch.no_grad():
        layer.bias.fill_(10.0)  # all units on: the linear map, whose rows are orthonormal
    assert 0.95 * 2.0 < climbed(layer) <= 2.0


def test_weights_of_diagonal_storage_are_those_of_the_orthonormal_form():
    torch.manual_seed(0)
    K = torch.linalg.qr(torch.randn(7, 4, dtype=torch.float64))[0].mT
    layer = BoundedGainRNN.from_matrices(0.9 * K[:, :4], 2.0 * K[:, 4:], gain=2.0, rate=0.9, activation="tanh")
    W, V = layer.weights()
    torch.testing.assert_close(W, 0.9 * K[:, :4], rtol=0, atol=1e-4)
    torch.testing.assert_close(V, 2.0 * K[:, 4:], rtol=0, atol=1e-4)


def test_every_training_step_keeps_the_proof_and_it_is_saved(tmp_path):
    torch.manual_seed(0)
    task = make_task("digits", limit=60, test_limit=20, size=14)
    model = SequenceModel(BoundedGainRNN(14, 5, activation="tanh"), 10)
    seen = []
    handle = register_optimizer_step_post_hook(lambda *_: seen.append(model.layer.carried_gain().value))
    try:
        train(model, task, epochs=2, lr=0.05, batch_size=15, objective="certified")
    finally:
        handle.remove()
    assert len(seen) == 8
    assert max(seen) <= 1.0
    with torch.no_grad():
        model.head.bias.zero_()  # so few steps have made one class of all
    x = task.test[0][:6]
    y = model(x).argmax(1)
    radii = certified_radius(model, x, y).radius
    assert (radii > 0).all()
    asked = {"norm": "l2", "steps": 10, "bounds": None}
    within, far = (pgd(model, x, y, epsilon=size * float(radii.min()), **asked) for size in (0.999, 1e3))
    assert not within.success.any()
    assert far.success.any()
    again = load(save(model, tmp_path / "net.safetensors"))
    assert torch.equal(again(x), model(x))
    assert copy.deepcopy(model).layer.carried_gain().value == model.layer.carried_gain().value
    certificate = certify(model, rate="any")
    assert str(certificate.verdict) == "certified"


def test_what_a_storage_does_not_prove_is_not_proved():
    layer = drawn(3, gain=0.7)
    subject, own = layer.driven(), layer.witness()
    gain = float(layer.sloped(double=True).gain.detach())
    assert carried_gain(subject, own["P"], own["L"], 0.99 * gain).proof is None
    assert carried_gain(subject, own["P"], 0.4 * own["L"], gain).proof is None
    assert carried_gain(subject, -own["P"], own["L"], gain).proof is None
    assert BoundedGainRNN(2, 4).carried_gain() is None
    assert BoundedGainRNN(2, 4).witness() is None
    with pytest.raises(ConfigurationError):
        BoundedGainRNN(2, 3)
