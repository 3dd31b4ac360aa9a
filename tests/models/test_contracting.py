"""Networks that contract by construction: the LMI is formed here from the formulas and from nothing else."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from stability.errors import ConfigurationError, NonFiniteError, UnsupportedError
from stability.models import ContractingRNN

CASES = {
    "discrete": {"time": "discrete"},
    "discrete .9": {"time": "discrete", "rate": 0.9},
    "discrete .2": {"time": "discrete", "rate": 0.2},
    "continuous": {"time": "continuous"},
    "continuous .5": {"time": "continuous", "rate": 0.5},
}


def largest_eigenvalue(system, P, L, rate):
    """Return the largest eigenvalue of the multiplier LMI for slopes [0, 1], entry by entry as printed."""
    n, m = system.states, system.channels
    A, B, C, D = system.A, system.B, system.C, system.D
    lower = np.block([[C, D], [np.zeros((m, n)), np.eye(m)]])
    multiplier = np.block([[np.zeros((m, m)), np.diag(L)], [np.diag(L), -2 * np.diag(L)]])
    if system.is_discrete:
        AB = np.hstack([A, B])
        top = AB.T @ P @ AB
        top[:n, :n] -= rate**2 * P
    else:
        top = np.block([[A.T @ P + P @ A + 2 * rate * P, P @ B], [B.T @ P, np.zeros((m, m))]])
    return np.linalg.eigvalsh(top + lower.T @ multiplier @ lower)[-1]


def is_better(layer, rate):
    return rate <= layer.rate if layer.time == "discrete" else rate >= layer.rate


def check(layer):
    continuous = layer.time == "continuous"
    system, witness = layer.lure(continuous), layer.witness(continuous)
    assert is_better(layer, witness["rate"])
    assert np.linalg.eigvalsh(witness["P"])[0] > 0
    assert np.array_equal(witness["P"], witness["P"].T)
    assert (witness["L"] > 0).all()
    assert largest_eigenvalue(system, witness["P"], witness["L"], layer.rate) < 0
    assert largest_eigenvalue(system, witness["P"], witness["L"], witness["rate"]) < 0
    return system, witness


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", CASES)
def test_lmi_holds_at_the_start_and_after_every_step_of_training(case, dtype):
    layer = ContractingRNN(3, 12, **CASES[case]).to(dtype)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
    first = layer.lure(layer.time == "continuous")
    check(layer)
    for _ in range(20):
        x = torch.randn(8, 10, 3, dtype=dtype)
        optimizer.zero_grad()
        (layer(x)[0].sum(-1) - x.sum(-1).cumsum(1)).square().mean().backward()
        optimizer.step()
        system, _ = check(layer)
    assert np.abs(system.A - first.A).max() > 0.05  # training did move it


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("case", CASES)
def test_lmi_holds_for_any_parameters(case, seed):
    """Far from the initial values, in float32."""
    layer = ContractingRNN(2, 8, **CASES[case])
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in layer.parameters():
            value.copy_(torch.randn(value.shape, generator=generator) * 10 ** (seed / 12 - 0.5))
    check(layer)


@pytest.mark.parametrize("case", ["discrete", "discrete .9", "discrete .2"])
@pytest.mark.parametrize("activation", ["tanh", "relu", "leaky_relu", "sigmoid", "saturation", "deadzone"])
def test_trajectories_of_the_layer_approach_each_other_at_the_rate(case, activation):
    layer = ContractingRNN(3, 10, activation=activation, **CASES[case]).double()
    with torch.no_grad():
        for value in layer.parameters():
            value.add_(0.2 * torch.randn_like(value))
        witness = layer.witness()
        P = torch.from_numpy(witness["P"])
        x, one, two = (torch.randn(s, dtype=torch.float64) for s in ((6, 30, 3), (6, 10), (6, 10)))
        distance = [torch.einsum("bi,ij,bj->b", one - two, P, one - two).sqrt()]
        for t in range(30):
            one, two = layer.step(x[:, t], one)[1], layer.step(x[:, t], two)[1]
            distance.append(torch.einsum("bi,ij,bj->b", one - two, P, one - two).sqrt())
    for before, after in itertools.pairwise(distance):
        assert (after <= witness["rate"] * before * (1 + 1e-9) + 1e-13).all()


def test_differential_equation_contracts_at_the_rate(rng):
    layer = ContractingRNN(3, 10, time="continuous", rate=0.5).double()
    witness, field = layer.witness(continuous=True), layer.driven(continuous=True)
    one, two, u = rng.normal(size=(6, 10)), rng.normal(size=(6, 10)), rng.normal(size=(6, 3))
    d, change = one - two, field.advance(one, u) - field.advance(two, u)
    V, dV = (
        np.einsum("bi,ij,bj->b", d, witness["P"], d),
        2 * np.einsum("bi,ij,bj->b", d, witness["P"], change),
    )
    assert (dV <= -2 * witness["rate"] * V).all()


@pytest.mark.parametrize("integrator", ["euler", "midpoint"])
def test_continuous_form_proves_its_map_for_small_steps_only(integrator):
    options = {"time": "continuous", "rate": 0.5, "integrator": integrator}
    layer = ContractingRNN(3, 6, dt=0.02, **options)
    witness = layer.witness()
    assert witness["rate"] < 1
    assert largest_eigenvalue(layer.lure(), witness["P"], witness["L"], witness["rate"]) < 0
    assert ContractingRNN(3, 6, dt=30.0, **options).witness() is None


@pytest.mark.parametrize("case", ["discrete .9", "continuous .5"])
def test_gradient_through_the_construction(case):
    layer = ContractingRNN(1, 3, **CASES[case]).double()
    names = [n for n, _ in layer.named_parameters()]
    x = torch.randn(2, 3, 1, dtype=torch.float64)

    def loss(*values):
        return torch.func.functional_call(layer, dict(zip(names, values)), (x,))[0].square().sum()

    values = tuple(p.detach().clone().requires_grad_() for p in layer.parameters())
    assert torch.autograd.gradcheck(loss, values, atol=1e-6)
    assert torch.autograd.gradgradcheck(loss, values, atol=1e-5)


BAD = [
    {"rate": 1.1},
    {"rate": 0.0},
    {"rate": -1},
    {"rate": float("nan")},
    {"time": "weekly"},
    {"margin": 0.0},
    {"time": "continuous", "rate": -0.1},
    {"time": "continuous", "dt": 0.0},
    {"activation": "identity"},
]


@pytest.mark.parametrize("options", BAD, ids=str)
def test_bad_options(options):
    with pytest.raises(ConfigurationError):
        ContractingRNN(2, 4, **options)


def test_questions_without_an_answer():
    with pytest.raises(UnsupportedError):
        ContractingRNN(2, 4).driven(continuous=True)
    layer = ContractingRNN(2, 4)
    with torch.no_grad():
        layer.X[0, 0] = float("inf")
    with pytest.raises(NonFiniteError):
        layer.witness()
