"""The continuous-time layers against loops written from the formulas, entry by entry, in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.errors import ConfigurationError, DimensionError
from stability.models import AntisymmetricRNN, LipschitzRNN, NeuralODERNN


def S(M, beta, gamma):
    M = M.detach().numpy()
    return (1 - beta) * (M + M.T) + beta * (M - M.T) - gamma * np.eye(len(M))


def weights(layer):
    """``(A, W)`` from the free parameters and the formulas alone."""
    n = layer.hidden_size
    if isinstance(layer, LipschitzRNN):
        A = layer.alpha * S(layer.M_A, layer.beta[0], layer.gamma[0])
        return A, S(layer.M_W, layer.beta[1], layer.gamma[1])
    if isinstance(layer, AntisymmetricRNN):
        M = layer.M_W.detach().numpy()
        return np.zeros((n, n)), M - M.T - layer.gamma * np.eye(n)
    return np.zeros((n, n)), layer.weight_hh.detach().numpy()


def by_loops(layer, x, phi=np.tanh):
    """Every sequence by itself, columns, straight from the formulas."""
    A, W = weights(layer)
    U, b = layer.weight_ih.detach().numpy(), layer.bias.detach().numpy()
    out = np.zeros((*x.shape[:2], layer.hidden_size))
    for k in range(x.shape[0]):
        h = np.zeros(layer.hidden_size)
        for t in range(x.shape[1]):

            def f(g, t=t, k=k):
                return A @ g + phi(W @ g + U @ x[k, t] + b)

            if layer.integrator == "euler":
                h = h + layer.dt * f(h)
            else:
                h = h + layer.dt * f(h + layer.dt / 2 * f(h))
            out[k, t] = h
    return out


CASES = {
    "euler": lambda: LipschitzRNN(3, 7, beta=0.7, gamma=0.2, dt=0.3, init_std=0.8),
    "midpoint": lambda: LipschitzRNN(3, 7, beta=0.7, gamma=0.2, dt=0.3, integrator="midpoint", init_std=0.8),
    "pairs": lambda: LipschitzRNN(3, 7, beta=(0.6, 0.9), gamma=(0.3, 0.01), dt=0.2, init_std=0.8),
    "ablated": lambda: LipschitzRNN(3, 7, alpha=0.25, dt=0.2, integrator="midpoint", init_std=0.8),
    "no linear term": lambda: LipschitzRNN(3, 7, alpha=0.0, dt=0.2, init_std=0.8),
    "neural ode": lambda: NeuralODERNN(3, 7, dt=0.3),
    "neural ode midpoint": lambda: NeuralODERNN(3, 7, dt=0.3, integrator="midpoint"),
    "antisymmetric": lambda: AntisymmetricRNN(3, 7, dt=0.3, gamma=0.1),
    "antisymmetric midpoint": lambda: AntisymmetricRNN(3, 7, dt=0.3, integrator="midpoint"),
}


@pytest.mark.parametrize("case", CASES)
def test_forward_follows_the_formulas(case, rng):
    layer = CASES[case]().double()
    x = rng.normal(size=(4, 9, 3))
    outputs, h = layer(torch.from_numpy(x))
    expected = by_loops(layer, x)
    np.testing.assert_allclose(outputs.detach().numpy(), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(h.detach().numpy(), expected[:, -1], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("case", CASES)
def test_system_advances_as_the_formulas_do(case, rng):
    layer = CASES[case]().double()
    x = rng.normal(size=(4, 6, 3))
    system, h = layer.driven(), np.zeros((4, 7))
    for t in range(6):
        h = system.advance(h, x[:, t])
    np.testing.assert_allclose(h, by_loops(layer, x)[:, -1], rtol=1e-12, atol=1e-13)
    assert system.system.channels == (14 if "midpoint" in case or case == "ablated" else 7)


@pytest.mark.parametrize("case", CASES)
def test_differential_equation_is_the_limit_of_small_steps(case, rng):
    layer = CASES[case]().double()
    field = layer.driven(continuous=True)
    h, u = rng.normal(size=(4, 7)), rng.normal(size=(4, 3))
    layer.dt = 1e-7
    _, after = layer.step(torch.from_numpy(u), torch.from_numpy(h))
    np.testing.assert_allclose((after.detach().numpy() - h) / 1e-7, field.advance(h, u), atol=1e-5)


@pytest.mark.parametrize(("integrator", "order"), [("euler", 1), ("midpoint", 2)])
def test_integrators_have_their_order(integrator, order):
    """Halving the step divides the error after one unit of time by 2 to the order."""
    base = LipschitzRNN(3, 7, beta=0.7, gamma=0.5, init_std=0.5).double()
    u = torch.ones(1, 3, dtype=torch.float64)

    def end(method, steps):
        layer = LipschitzRNN(3, 7, beta=0.7, gamma=0.5, dt=1.0 / steps, integrator=method).double()
        layer.load_state_dict(base.state_dict())
        return layer(u.expand(1, steps, 3))[1].detach()

    exact = end("midpoint", 4096)
    errors = [float((end(integrator, k) - exact).norm()) for k in (32, 64)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


def test_matrices_act_on_columns():
    A = torch.tensor([[-1.0, 2.0], [0.0, -1.0]], dtype=torch.float64)
    layer = LipschitzRNN.from_matrices(A, torch.zeros(2, 2, dtype=torch.float64), torch.eye(2), dt=1.0)
    _, h = layer.step(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([[0.0, 1.0]], dtype=torch.float64))
    torch.testing.assert_close(h[0], torch.tensor([2.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_from_matrices_realises_them(dtype, rng):
    A, W, U = (torch.from_numpy(rng.normal(size=s)).to(dtype) for s in ((5, 5), (5, 5), (5, 2)))
    layer = LipschitzRNN.from_matrices(A, W, U, torch.ones(5), beta=(0.6, 0.8), gamma=0.3, dt=0.1)
    tolerance = 50 * torch.finfo(dtype).eps
    torch.testing.assert_close(layer.matrices()["A"], A, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(layer.matrices()["W"], W, rtol=tolerance, atol=tolerance)
    assert torch.equal(layer.weight_ih, U)
    assert torch.equal(layer.bias, torch.ones(5, dtype=dtype))


def test_from_matrices_refuses_what_does_not_fit():
    eye = torch.eye(3)
    with pytest.raises(DimensionError):
        LipschitzRNN.from_matrices(eye, torch.eye(2), eye)
    with pytest.raises(DimensionError):
        LipschitzRNN.from_matrices(eye, eye, torch.ones(2, 3))
    with pytest.raises(DimensionError):
        LipschitzRNN.from_matrices(eye, eye, eye, torch.ones(4))
    with pytest.raises(ConfigurationError):
        LipschitzRNN.from_matrices(eye, eye, eye, beta=1.0)


def test_float32_keeps_a_tiny_damping():
    """``1 - dt gamma`` is 1 in float32 for dt gamma = 1e-9; the step itself still sees the damping."""
    layer = LipschitzRNN(1, 1, beta=1.0, gamma=1e-4, dt=1e-5, init_std=0.0)
    torch.nn.init.zeros_(layer.weight_ih)
    torch.nn.init.zeros_(layer.bias)
    system = layer.driven(continuous=True).system
    assert system.A[0, 0] == -1e-4
    assert layer.lure().A[0, 0] == 1.0 + 1e-5 * -1e-4


def test_system_holds_the_matrices_computed_in_float64():
    layer = LipschitzRNN(2, 6, init_std=0.7)
    system, matrices = layer.lure(continuous=True), layer.double().matrices()
    assert np.array_equal(system.A, matrices["A"].detach().numpy())
    assert np.array_equal(system.C, matrices["W"].detach().numpy())


@pytest.mark.parametrize(
    "options",
    [
        {"beta": 1.5},
        {"beta": (0.5,)},
        {"beta": (0.5, -1)},
        {"gamma": -1},
        {"dt": 0},
        {"dt": -0.1},
        {"dt": float("nan")},
        {"integrator": "rk4"},
        {"integrator": None},
        {"alpha": -1},
        {"activation": "sin"},
        {"activation": "identity"},
        {"init_std": -1.0},
        {"init_std": float("inf")},
        {"gamma": "x"},
        {"dt": True},
    ],
)
def test_bad_options(options):
    with pytest.raises(ConfigurationError):
        LipschitzRNN(2, 4, **options)
