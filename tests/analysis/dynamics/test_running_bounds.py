"""Running bounds: no error of a run exceeds them, whatever the network, and they are close where they can be."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import ExecutionModel
from stability.analysis import run_in, running_bounds
from stability.errors import DimensionError
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.opaque import OpaqueMap
from stability.kernel.systems.pair_activations import modrelu
from stability.models import LAYERS, ElmanRNN
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem
from tests.models.every_layer import MADE, make, own_layers  # noqa: F401

KINDS = (
    "tanh",
    "relu",
    "saturation",
    "midpoint",
    "linear",
    "lstm",
    "gru",
    "gru with reset before",
    "stack",
    "oplu",
    "modrelu",
)


def cell(kind, rng, n, gain, inputs):
    rows = (4 if kind == "lstm" else 3) * n
    weights = [gain * rng.normal(size=(rows, inputs)), gain * rng.normal(size=(rows, n)), *rng.normal(size=(2, rows))]
    return GatedCell(kind.split()[0], *weights, reset_after="before" not in kind)


def network(kind, rng, n, gain):
    """A network with two inputs that need not contract."""
    W, E, b = gain * rng.normal(size=(n, n)) / n**0.5, rng.normal(size=(n, 2)), rng.normal(size=n)
    if kind == "midpoint":
        system = LureSystem.recurrent(-np.eye(n) + 0.2 * rng.normal(size=(n, n)), W).midpoint(0.3)
        return DrivenSystem(system, "tanh", np.tile(E, (2, 1)), np.tile(b, 2))
    if kind == "linear":
        return DrivenSystem(LureSystem.linear(W, dt=1.0), "identity", np.zeros((0, 2)), None, E)
    if kind == "stack":
        return LayerStack([network("tanh", rng, n, gain), *(cell(name, rng, n, gain, n) for name in ("lstm", "gru"))])
    if kind in ("oplu", "modrelu"):
        biases = -np.abs(b) if kind == "modrelu" else np.repeat(b, 2)
        return PairwiseSystem(np.kron(W, np.eye(2)), np.repeat(E, 2, axis=0), biases, kind)
    if kind.startswith(("lstm", "gru")):
        return cell(kind, rng, n, gain, 2)
    A = 0.3 * rng.integers(2) * rng.normal(size=(n, n))
    return DrivenSystem(LureSystem(A, np.eye(n), W, dt=1.0), kind, E, b)


def advanced(subject, x, u):
    """The next state of a network or a stack."""
    if not isinstance(subject, LayerStack):
        return subject.advance(x, u)
    parts, at = [], 0
    for layer in subject.layers:
        parts.append(layer.advance(x[..., at : at + layer.states], u))
        u, at = parts[-1][..., : layer.hidden if isinstance(layer, GatedCell) else layer.states], at + layer.states
    return np.concatenate(parts, axis=-1)


@pytest.mark.parametrize("kind", KINDS)
def test_disturbed_states_stay_within_their_bounds(kind):
    """Disturbances of any size, at random or along the error, which is where a step is furthest from its Jacobian."""
    largest, closest = 0.0, np.inf
    for seed in range(12):
        rng = np.random.default_rng(seed)
        subject = network(kind, rng, 1 + seed % 3, (0.4, 1.0, 2.5)[seed // 3 % 3])
        size, n, u = 10.0 ** rng.uniform(-7, 0), subject.states, rng.normal(size=(10, 2, 2))
        states, exact = np.zeros((11, 2, n)), np.zeros((11, 2, n))
        states[0] = exact[0] = 0.5 * rng.normal(size=(2, n))
        for t in range(10):
            after, exact[t + 1] = advanced(subject, states[t], u[t]), advanced(subject, exact[t], u[t])
            way = after - exact[t + 1] if seed % 2 and t else rng.normal(size=(2, n))
            states[t + 1] = after + size * way / np.maximum(np.linalg.norm(way, axis=1, keepdims=True), 1e-300)
        error, bounds = np.linalg.norm(states - exact, axis=2)[1:], running_bounds(subject, states, u)
        largest = max(largest, float((error / (bounds + 1e-12)).max()))
        closest = min(closest, float((bounds / (error + 1e-12)).max()))
    assert 0.7 < largest <= 1.0 + 1e-6
    assert closest < 10.0


@pytest.mark.parametrize("gain", [0.9, 3.0])  # contracting, chaotic
@pytest.mark.parametrize("state", ["float64", "float32", "bfloat16", "int8"])
def test_a_rounded_run_stays_within_its_bound_of_a_more_precise_one(gain, state):
    torch.manual_seed(1)
    layer, x = ElmanRNN(2, 8).double(), torch.randn(2, 400, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.weight_hh.copy_(gain * torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0])
        for weight in (*layer.parameters(), x):
            weight.copy_(weight.float())
    base = "float64" if state == "float64" else "float32"
    run = run_in(layer, x, ExecutionModel(base, state))
    W, U, b = (p.detach().numpy().astype(np.longdouble) for p in (layer.weight_hh, layer.weight_ih, layer.bias))
    exact, inputs = np.zeros((2, 8), np.longdouble), x.numpy().astype(np.longdouble)
    errors = np.empty(400)
    for t in range(400):
        exact = np.tanh(exact @ W.T + inputs[:, t] @ U.T + b)
        errors[t] = np.linalg.norm((run.outputs[:, t].numpy() - exact).astype(float), axis=1).max()
    assert run.bound.shape == (400,)
    assert (errors[:60] > 0.0).all()
    assert (errors <= run.bound).all()
    assert (run.bound[:60] - run.distance[:60] < 1e-6).all()
    assert np.isinf(run.proved) if gain > 1.0 else run.proved < errors.max() + 1e-12


@pytest.mark.parametrize("name", [*sorted(LAYERS), *MADE])
def test_every_layer_with_a_known_step_has_a_bound(name):
    layer = make(name, torch.float32).requires_grad_(False)
    if layer.bidirectional or name == "s4d":
        pytest.skip("no step, or matrices whose error in float32 has no bound")
    x = torch.randn(2, 12, layer.input_size, generator=torch.Generator().manual_seed(0))
    run = run_in(layer, x, "float32")
    if isinstance(layer.driven(), (GatedLinearLayer, OpaqueMap)):
        assert run.proved is None
    else:
        assert 0.0 < run.largest <= run.proved <= 1.001 * run.largest + 1e-9 < 1e-2


@pytest.mark.parametrize(
    ("name", "gain", "stored"),
    [("tanh", 0.9, 0.9), ("tanh", 1.5, 1.5), ("abs", 0.9, 0.9), ("modrelu", 0.9, 0.9), ("abs", 1.0, 1.0 + 1e-8)],
)
def test_rounding_errors_in_float64_count(name, gain, stored):
    """The run in numpy agrees with the step that the bound computes to the last bit, and has errors all the same.

    The last network is the one with the orthogonal matrix nearest to the stored one.
    """
    W, V, bias = stored * np.eye(2), [[0.7], [0.3]], -0.1 * np.ones(1 if name == "modrelu" else 2)
    if name == "tanh":
        subject = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), W, dt=1.0), name, V, bias)
    else:
        subject = PairwiseSystem(W, V, bias, name, orthogonal=stored != gain)
    inputs = np.random.default_rng(0).normal(size=(60, 1, 1))
    states, exact = np.zeros((61, 1, 2)), np.zeros((61, 1, 2), np.longdouble)
    for t, u in enumerate(inputs):
        states[t + 1] = subject.advance(states[t], u)
        z = np.longdouble(gain) * exact[t] + np.longdouble(V)[:, 0] * u
        exact[t + 1] = modrelu(z, bias) if name == "modrelu" else getattr(np, name)(z + bias)
    errors = np.linalg.norm((states - exact).astype(float), axis=2)[1:, 0]
    bounds = running_bounds(subject, states, inputs)[:, 0]
    assert (errors <= bounds).all()
    assert 0.0 < errors.max() <= bounds.max() < (1e-12 if stored == gain else 1e-4)


def test_a_network_that_jumps_has_no_bound_and_other_shapes_are_refused():
    jumping, falling = (PairwiseSystem(np.eye(2), np.eye(2), [bias], "modrelu") for bias in (0.1, -0.1))
    assert running_bounds(jumping, np.zeros((2, 1, 2)), np.zeros((1, 1, 2))) is None
    with pytest.raises(DimensionError):
        running_bounds(falling, np.zeros((1, 1, 2)), np.zeros((1, 1, 2)))
