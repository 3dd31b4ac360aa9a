"""Stacks of bounded-gain layers: gains multiply, the proof verifies, nothing exceeds it; radii lie below attacks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import certify
from stability.analysis import certified_radius, deepfool, make_task
from stability.conversion.subjects import as_subject
from stability.models import BoundedGainRNN, SequenceModel, load
from stability.models.stack import Stack, stack_configs
from stability.proposals import propose
from stability.reports.cli import run
from stability.search.gains.stack import stack_gain
from stability.verification import verify_claim


def drawn(seed: int, layers: int = 2, **options) -> Stack:
    torch.manual_seed(seed)
    stack = Stack([BoundedGainRNN(**c) for c in stack_configs(BoundedGainRNN, 2, 6, layers, **options)]).double()
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return stack


def climbed(stack: Stack, measure: str, rounds: int = 12) -> float:
    """The largest ratio of an output's difference to that of the inputs that gradient ascent finds, over 8 runs."""
    generator = torch.Generator().manual_seed(0)
    x, u = (torch.randn(8, 8, 2, generator=generator, dtype=torch.float64) for _ in range(2))
    best = 0.0
    for _ in range(rounds):
        u = (1e-3 * u / u.flatten(1).norm(dim=1)[:, None, None]).detach().requires_grad_()
        moved = stack(x + u)[0] - stack(x)[0]
        moved = moved[:, -1:] if measure == "final" else moved
        sizes = moved.flatten(1).norm(dim=1)
        best = max(best, float(sizes.max().detach()) / 1e-3)
        (u,) = torch.autograd.grad(sizes.sum(), u)
    return best


@pytest.mark.parametrize(("measure", "options"), [("final", {"gain": 0.7}), ("l2", {"rate": 0.5, "gain": 2.0})])
def test_gains_multiply_and_nothing_exceeds_them(measure, options):
    reached = 0.0
    for seed in range(2):
        stack = drawn(seed, 2 + seed % 2, **options)
        said = stack.prescribed_gain if measure == "final" else stack.prescribed_sequence_gain
        claim = stack_gain(stack, measure=measure)
        assert verify_claim(as_subject(stack), claim).valid
        assert claim.value == pytest.approx(said, rel=1e-4)
        assert claim.value <= said
        found = climbed(stack, measure)
        assert found <= claim.value
        reached = max(reached, found / claim.value)
    assert reached > 0.45


def test_the_certificate_of_a_stack_has_its_rate_and_its_gain():
    stack = drawn(0, 2, rate=0.6)
    certificate = certify(stack)
    gain = next(claim for claim in certificate.claims if claim.name == "gain")
    assert gain.value <= stack.prescribed_gain <= gain.value * 1.001
    assert verify_claim(as_subject(stack), gain).valid
    assert certificate.rate == pytest.approx(0.6, abs=1e-3)
    rng = np.random.default_rng(0)
    system, u = stack.driven(), rng.normal(size=(40, 2))
    first, second = (rng.normal(size=(50, system.states)) for _ in range(2))
    start = np.linalg.norm(first - second, axis=1)
    for k in range(40):
        first, second = system.advance(first, u[k]), system.advance(second, u[k])
        gap = np.linalg.norm(first - second, axis=1)
        assert (gap <= certificate.overshoot * certificate.rate ** (k + 1) * start * (1 + 1e-9)).all()


def test_a_layer_below_needs_a_gain_to_its_whole_output():
    """A gain to the last state says too little of what a layer above reads, and one of few steps of many."""
    stack = drawn(1, 2, rate=0.6).driven()
    claim = stack_gain(stack, measure="final")
    data = dict(claim.proof.data)
    lower, upper = data["layers"]
    value = data["gain"]
    assert verify_claim(stack, claim).valid
    bent = {
        "one step below": {**data, "layers": [{**lower, "data": {**lower["data"], "measure": "final"}}, upper]},
        "few steps below": {**data, "layers": [{**lower, "data": {**lower["data"], "horizon": 5}}, upper]},
        "whole output": {name: item for name, item in data.items() if name != "measure"},
        "smaller": {**data, "gain": value * (1 - 1e-6)},
        "no measure": {**data, "measure": "sum"},
        "half a step": {**data, "horizon": 2.5},
    }
    for name, changed in bent.items():
        assert not verify_claim(stack, propose(stack, "stack_gain", changed)).valid, name
    five = stack_gain(stack, measure="final", horizon=5)
    assert five.value < claim.value
    over_all = {name: item for name, item in five.proof.data.items() if name != "horizon"}
    assert not verify_claim(stack, propose(stack, "stack_gain", over_all)).valid


def test_radii_of_a_stack_lie_below_attacks_and_steps_equal_the_pass(tmp_path):
    asked = ["train", "--model", "bounded_gain", "--set", "layers=2", "--hidden", "8", "--epochs", "1", "--lr", "0.05"]
    small = [part for size in ("limit=60", "size=14", "test_limit=20") for part in ("--task-set", size)]
    small += ["--batch-size", "10", "--track-every", "0"]
    assert run([*asked, *small, "--out", str(tmp_path / "run"), "--quiet"]) == 0
    model, task = load(tmp_path / "run"), make_task("digits", limit=60, test_limit=20, size=14)
    assert isinstance(model.layer, Stack)
    assert model.layer.prescribed_gain == pytest.approx(1.0)
    x = task.test[0][:8]
    mean = SequenceModel(model.layer, 10, "mean")
    mean.load_state_dict(model.state_dict())
    for network in (model, mean):
        y = network(x).argmax(dim=1)
        radii, attack = certified_radius(network, x, y), deepfool(network, x, y, norm="l2")
        hit = np.asarray(attack.success) & ~np.asarray(attack.already_wrong)
        assert (radii.radius[hit] <= np.asarray(attack.norms)[hit]).all()
        assert (radii.radius > 0).all()
        assert "multiplied" in radii.method
    state, outputs = None, model.layer(x)[0]
    for t in range(x.shape[1]):
        output, state = model.layer.step(x[:, t], state)
        torch.testing.assert_close(output, outputs[:, t], rtol=0, atol=1e-6)
