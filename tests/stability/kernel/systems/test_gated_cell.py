"""The gated cells agree with torch, and their Jacobians with finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.format.serialization import decode, encode
from stability.kernel.systems.gated_cell import GatedCell

KINDS = [("lstm", True), ("gru", True), ("gru", False)]


def random_cell(kind: str, reset_after: bool, rng: np.random.Generator, m: int = 5, p: int = 3) -> GatedCell:
    g = 4 if kind == "lstm" else 3
    return GatedCell(
        kind,
        rng.normal(size=(g * m, p)),
        rng.normal(size=(g * m, m)),
        rng.normal(size=g * m),
        rng.normal(size=g * m),
        -1.0,
        1.0,
        reset_after=reset_after,
    )


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_step_is_that_of_torch(kind, rng):
    cell = random_cell(kind, True, rng)
    module = (torch.nn.LSTMCell if kind == "lstm" else torch.nn.GRUCell)(3, 5).double()
    with torch.no_grad():
        for name, value in (
            ("weight_ih", cell.w_ih),
            ("weight_hh", cell.w_hh),
            ("bias_ih", cell.b_ih),
            ("bias_hh", cell.b_hh),
        ):
            getattr(module, name).copy_(torch.tensor(value.copy()))
    state, u = rng.normal(size=(7, cell.states)), rng.normal(size=(7, 3))
    h = torch.tensor(state[:, :5].copy())
    if kind == "lstm":
        expected = torch.cat(module(torch.tensor(u), (h, torch.tensor(state[:, 5:].copy()))), dim=-1)
    else:
        expected = module(torch.tensor(u), h)
    np.testing.assert_allclose(cell.advance(state, u), expected.detach().numpy(), atol=1e-14)


def test_reset_before_the_product_by_hand(rng):
    cell = random_cell("gru", False, rng)
    h, u = rng.normal(size=5), rng.normal(size=3)

    def s(x):
        return 1 / (1 + np.exp(-x))

    (wr, rr, br, cr), (wz, rz, bz, cz), (wn, rn, bn, cn) = (cell.gate(k) for k in "rzn")
    r, z = s(wr @ u + br + rr @ h + cr), s(wz @ u + bz + rz @ h + cz)
    n = np.tanh(wn @ u + bn + rn @ (r * h) + cn)
    np.testing.assert_allclose(cell.advance(h, u), (1 - z) * n + z * h, atol=1e-14)


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_jacobian_is_the_derivative(kind, reset_after, rng):
    cell = random_cell(kind, reset_after, rng)
    state, u = rng.normal(size=cell.states), rng.normal(size=3)
    step = 1e-6
    columns = [
        (cell.advance(state + step * e, u) - cell.advance(state - step * e, u)) / (2 * step)
        for e in np.eye(cell.states)
    ]
    np.testing.assert_allclose(cell.jacobian(state, u), np.stack(columns, axis=1), atol=1e-8)


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_a_file_keeps_every_bit(kind, reset_after, rng):
    cell = random_cell(kind, reset_after, rng)
    again = decode(encode(cell))
    assert (again.kind, again.reset_after, again.name) == (cell.kind, cell.reset_after, cell.name)
    for name in ("w_ih", "w_hh", "b_ih", "b_hh", "input_low", "input_high"):
        assert np.array_equal(getattr(again, name), getattr(cell, name))
    free = decode(encode(cell.with_inputs(None, None)))
    assert free.input_low is None
    assert free.input_high is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"kind": "mgu"}, ConfigurationError),
        ({"w_hh": np.zeros((4, 2))}, DimensionError),
        ({"w_hh": np.zeros((0, 0))}, DimensionError),
        ({"w_ih": np.zeros((3, 1))}, DimensionError),
        ({"b_ih": np.zeros(3)}, DimensionError),
        ({"b_hh": [[0.0] * 6]}, DimensionError),
        ({"b_ih": [np.nan] * 6}, NonFiniteError),
        ({"w_hh": np.full((6, 2), np.inf)}, NonFiniteError),
        ({"input_low": 0.0}, ConfigurationError),
        ({"input_low": 1.0, "input_high": -1.0}, ConfigurationError),
        ({"input_low": [0.0, 0.0], "input_high": 1.0}, DimensionError),
        ({"w_ih": "weights"}, ConfigurationError),
        ({"w_ih": None}, ConfigurationError),
    ],
)
def test_bad_arguments_are_refused(changes, error):
    arguments = {"kind": "gru", "w_ih": np.zeros((6, 1)), "w_hh": np.zeros((6, 2)), **changes}
    with pytest.raises(error):
        GatedCell(**arguments)


@pytest.mark.parametrize("state", [np.zeros(3), np.full(2, np.nan), "x", None])
def test_a_bad_state_is_refused(state):
    cell = GatedCell("gru", np.zeros((6, 1)), np.zeros((6, 2)))
    with pytest.raises((DimensionError, NonFiniteError, ConfigurationError)):
        cell.advance(state, np.zeros(1))
