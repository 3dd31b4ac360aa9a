"""RotRNN: the size of its states, its three forms, its exact rate, and its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from stability import Verdict, certify, verify
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.models import RotRNN, Stack
from stability.models.parametrizations.rotation import (
    damping,
)


def make(*sizes, seed=0, dtype=torch.float64, **options):
    torch.manual_seed(seed)
    return RotRNN(*sizes, **options).to(dtype)


def noise(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def written_out(layer, u):
    """The formulas of the paper in x, head by head and step by step, with P Theta P^T as matrices."""
    gamma = torch.exp(-torch.exp(layer.gamma_log))
    width = layer.hidden_size // layer.heads
    ys, states, heads = [], [], []
    for h in range(layer.heads):
        S = layer.M[h] - layer.M[h].T
        P, B = torch.matrix_exp(S), layer.B[h]
        theta = torch.eye(width, dtype=u.dtype)
        for i in range(width // 2):
            a = layer.theta[h, i]
            theta[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.stack(
                [torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])]
            )
        xi = torch.sqrt(layer.norm * (1 - gamma[h] ** 2) / torch.trace(B.T @ B))
        heads.append((gamma[h] * P @ theta @ P.T, xi * B))
    x = [torch.zeros(len(u), width, dtype=u.dtype) for _ in heads]
    for t in range(u.shape[1]):
        for h, (A, B) in enumerate(heads):
            drive = u[:, t] @ B.T
            if t == 0 and layer.stationary_start:
                drive = drive / torch.sqrt(1 - gamma[h] ** 2)
            x[h] = x[h] @ A.T + drive
        whole = torch.cat(x, 1)
        states.append(whole)
        skip = layer.D * u[:, t] if layer.D.dim() == 1 else u[:, t] @ layer.D.T
        ys.append(whole @ layer.C.T + skip)
    return torch.stack(ys, 1), torch.stack(states, 1)


@pytest.mark.parametrize(("hidden", "heads"), [(8, 2), (6, 2), (5, 1), (4, 4), (12, 3)])
@pytest.mark.parametrize("stationary", [False, True])
@pytest.mark.parametrize("output_size", [None, 5])
def test_scan_step_and_convolution_are_the_formulas(hidden, heads, stationary, output_size):
    """Even and odd widths, down to heads of one entry."""
    layer = make(3, hidden, heads=heads, stationary_start=stationary, output_size=output_size, norm=2.0)
    u = noise(4, 23, 3)
    with torch.no_grad():
        want, states = written_out(layer, u)
        got, last = layer(u)
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(layer.convolve(u), want, rtol=1e-10, atol=1e-11)
        state = None
        for t in range(23):
            y, state = layer.step(u[:, t], state)
            torch.testing.assert_close(y, want[:, t], rtol=1e-10, atol=1e-11)
        torch.testing.assert_close(state, last)
        norms = layer.states(u).unflatten(-1, (heads, -1)).norm(dim=-1)
        torch.testing.assert_close(norms, states.unflatten(-1, (heads, -1)).norm(dim=-1))


def test_both_directions():
    """P, Theta and B shared, C separate: the other direction is the same layer on the reversed sequence."""
    layer = make(3, 8, heads=2, bidirectional=True, stationary_start=True)
    u = noise(2, 11, 3)
    one = make(3, 8, heads=2, stationary_start=True)
    shared = {k: v for k, v in layer.state_dict().items() if k != "C_back"}
    one.load_state_dict(shared)
    forward = one(u)[0]
    one.C.data.copy_(layer.C_back)
    backward = one(u.flip(1))[0].flip(1) - one.D * u
    torch.testing.assert_close(layer(u)[0], forward + backward)
    torch.testing.assert_close(layer.convolve(u), forward + backward)
    with pytest.raises(UnsupportedError):
        layer.step(u[:, 0])
    with pytest.raises(ConfigurationError):
        layer(u, layer(u)[1])
    assert verify(certify(layer)).valid


@pytest.mark.parametrize("c", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("stationary", [False, True])
def test_expected_norms_follow_the_law(c, stationary):
    """E|x_t|^2 = c (1 - gamma^2t), or c at once; over 4,000 sequences, within 5 standard errors at every step."""
    layer = make(5, 12, heads=3, norm=c, stationary_start=stationary, gamma_min=0.6, gamma_max=0.98, theta_max=3.0)
    with torch.no_grad():
        squares = layer.states(noise(4000, 40, 5)).unflatten(-1, (3, 4)).square().sum(-1)
    gamma = torch.exp(-torch.exp(layer.gamma_log))
    for t in range(1, 41):
        law = torch.full((3,), c).double() if stationary else c * (1 - gamma.detach() ** (2 * t))
        torch.testing.assert_close(layer.expected_squared_norm(t), law)
        assert layer.expected_norm(t) == pytest.approx(math.sqrt(float(law.sum())))
        error = squares[:, t - 1].std(0) / math.sqrt(4000)
        assert ((squares[:, t - 1].mean(0) - law).abs() < 5 * error).all(), t


@pytest.mark.parametrize("options", [{"heads": 4}, {"heads": 8}, {"heads": 1}])
def test_the_certified_rate_is_the_largest_gamma(options):
    layer = make(3, 8, **options)
    certificate = certify(layer)
    largest = torch.exp(-torch.exp(layer.gamma_log)).max().item()
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.criterion == "linear"
    assert largest <= certificate.rate <= largest * (1 + 1e-8)
    assert certificate.overshoot == pytest.approx(1.0, abs=1e-8)
    assert verify(certificate).valid


def test_a_stack_of_linear_layers_is_one_linear_system():
    torch.manual_seed(0)
    stack = Stack([RotRNN(3, 8, heads=2, output_size=4), RotRNN(4, 6, heads=3)]).double()
    u = noise(2, 9, 3)
    _, states = stack(u)
    subject, x = stack.driven(), np.zeros((2, 14))
    for t in range(9):
        x = subject.advance(x, u[:, t].numpy())
    np.testing.assert_allclose(x, torch.cat(states, 1).detach().numpy(), rtol=1e-12, atol=1e-13)
    certificate = certify(stack)
    largest = max(torch.exp(-torch.exp(layer.gamma_log)).max().item() for layer in stack.layers)
    assert certificate.rate == pytest.approx(largest, rel=1e-6)
    assert verify(certificate).valid


def test_gamma_at_its_limits():
    """gamma that rounds to 0 or to 1, and B of zeros: finite states, and the law still holds."""
    for value, gamma in ((10.0, 0.0), (-60.0, 1.0), (-300.0, 1.0)):
        for stationary in (False, True):
            layer = make(2, 4, heads=2, dtype=torch.float32, stationary_start=stationary)
            with torch.no_grad():
                layer.gamma_log.fill_(value)
                assert damping(layer.gamma_log)[0][0] == gamma
                x = layer.states(torch.randn(500, 3, 2))
            assert torch.isfinite(x).all(), (value, stationary)
            if stationary or gamma == 0.0:
                assert float(x.unflatten(-1, (2, 2)).square().sum(-1).mean()) == pytest.approx(1.0, rel=0.2)
    layer = make(2, 4, heads=2)
    torch.nn.init.zeros_(layer.B)
    outputs, state = layer(noise(1, 3, 2))
    assert torch.isfinite(outputs).all()
    assert (state == 0).all()


def test_gradients_stay_finite_near_the_limits():
    layer = make(2, 4, heads=2, stationary_start=True)
    with torch.no_grad():
        layer.gamma_log.copy_(torch.tensor([6.0, -25.0]))
    layer(noise(1, 5, 2))[0].sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


def test_bad_options_give_typed_errors():
    for options in (
        {"heads": 3},
        {"heads": 0},
        {"heads": 16},
        {"heads": True},
        {"norm": 0.0},
        {"norm": math.nan},
        {"norm": -1.0},
        {"gamma_min": 0.0},
        {"gamma_max": 1.0},
        {"gamma_min": 0.9, "gamma_max": 0.5},
        {"theta_max": -1.0},
        {"theta_max": math.inf},
        {"output_size": 0},
        {"bidirectional": 1},
        {"stationary_start": None},
    ):
        with pytest.raises(ConfigurationError):
            RotRNN(2, 8, **options)
    with pytest.raises(DimensionError):
        RotRNN(2, 8)(torch.zeros(1, 0, 2))
    with pytest.raises(DimensionError):
        RotRNN(2, 8).convolve(torch.zeros(1, 4, 3))


def stream(steps):
    """The largest distance of the streamed state from the scan's, at every 10,000th step, and its bound.

    Each step rounds by at most 8 eps |x|, and what it left behind is damped by gamma a step; twice, for both ways.
    """
    layer = make(1, 4, heads=2, gamma_min=0.9999, gamma_max=0.999999, theta_max=3.0)  # a long memory of every error
    u = noise(1, steps, 1, seed=3)
    drift, state, end = 0.0, None, 0
    with torch.no_grad():
        states = layer.states(u)
        for piece in u.split(10_000, dim=1):  # a million tensors of one step at a time would fill the memory
            prepared, state = layer.begin(piece, state)
            for drive in layer.drive(piece, prepared).unbind(1):
                state = layer.transition(drive, state, prepared)
            end += piece.shape[1]
            drift = max(drift, float((state - states[:, end - 1]).norm()))
    gamma = float(damping(layer.gamma_log.detach())[0].max())
    return drift, 2 * 8 * torch.finfo(torch.float64).eps * float(states.norm(dim=-1).max()) / (1 - gamma)


def test_streaming_does_not_drift_from_the_scan():
    drift, bound = stream(10_000)
    assert drift <= bound
