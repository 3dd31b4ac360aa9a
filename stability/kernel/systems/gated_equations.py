"""One step of an LSTM or GRU cell with its derivative, over any arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stability.kernel.arithmetic.activations import activation

GATES: dict[str, tuple[str, ...]] = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n")}


class Arithmetic(NamedTuple):
    """Operations of the equations other than ``+``, ``*`` and ``@``.

    Attributes:
        exact: converts a stored array to this arithmetic.
        squash: maps the name of an activation and pre-activations to values and slopes.
        diagonal: maps a vector to its diagonal matrix.
        join: concatenates vectors.
        stack: maps rows of blocks to their block matrix.
    """

    exact: Callable[[Any], Any]
    squash: Callable[[str, Any], tuple[Any, Any]]
    diagonal: Callable[[Any], Any]
    join: Callable[..., Any]
    stack: Callable[[list[list[Any]]], Any]


FLOATS = Arithmetic(
    np.asarray,
    lambda name, z: (activation(name).function(z), activation(name).derivative(z)),
    np.diag,
    lambda *parts: np.concatenate(parts),
    np.block,
)


def step_and_derivative(
    cell: Any, state: Any, u: Any, arithmetic: Arithmetic, *, by_input: bool = False
) -> tuple[Any, Any]:
    r"""Return the next state and its derivative, by the state or by the input.

    With ``W`` the recurrent weights (the input weights) and slopes written with a dash, an LSTM has

    .. math:: \partial c^+ = c f' W_f + g i' W_i + i g' W_g \;(+ f\,\partial c), \quad
              \partial h^+ = o \tanh'(c^+)\,\partial c^+ + \tanh(c^+) o' W_o ,

    a GRU :math:`\partial h^+ = (1 - z) n' \partial(\cdot) + (h - n) z' W_z \;(+ z\,\partial h)`.

    Args:
        cell: a ``GatedCell``.
        state: ``(n,)``.
        u: ``(p,)``.
        arithmetic: arithmetic of ``state`` and ``u``.
        by_input: return the derivative by ``u`` instead of the state.

    Returns:
        Next state ``(n,)`` and derivative, ``(n, n)`` or ``(n, p)``.
    """
    m = cell.hidden
    rows = {name: slice(k * m, (k + 1) * m) for k, name in enumerate(GATES[cell.kind])}
    drive = arithmetic.exact(cell.w_ih) @ u + cell.b_ih
    recurrent = arithmetic.exact(cell.w_hh) @ state[:m] + cell.b_hh
    weights = arithmetic.exact(cell.w_ih if by_input else cell.w_hh)
    W = {name: weights[part] for name, part in rows.items()}
    gates = {
        name: arithmetic.squash("tanh" if name == "g" else "sigmoid", recurrent[part] + drive[part])
        for name, part in rows.items()
        if name != "n"
    }
    if cell.kind == "lstm":
        return _lstm(state[m:], gates, W, arithmetic, by_input)
    return _gru(cell, state, gates, W, drive[rows["n"]], recurrent[rows["n"]], arithmetic, by_input)


def _lstm(c: Any, gates: dict[str, Any], W: dict[str, Any], to: Arithmetic, by_input: bool) -> tuple[Any, Any]:
    (i, di), (f, df), (g, dg), (o, do) = (gates[k] for k in GATES["lstm"])
    after = f * c + i * g
    t, dt = to.squash("tanh", after)
    dc = (c * df)[:, None] * W["f"] + (g * di)[:, None] * W["i"] + (i * dg)[:, None] * W["g"]
    slope = o * dt
    dh = slope[:, None] * dc + (t * do)[:, None] * W["o"]
    direct = ([], []) if by_input else ([to.diagonal(slope * f)], [to.diagonal(f)])
    return to.join(o * t, after), to.stack([[dh, *direct[0]], [dc, *direct[1]]])


def _gru(
    cell: Any, h: Any, gates: dict[str, Any], W: dict[str, Any], drive: Any, v: Any, to: Arithmetic, by_input: bool
) -> tuple[Any, Any]:
    (r, dr), (z, dz) = gates["r"], gates["z"]
    recurrent, bias = to.exact(cell.gate("n")[1]), cell.gate("n")[3]
    if cell.reset_after:
        n, dn = to.squash("tanh", drive + r * v)
        direct, through = r[:, None] * recurrent, (v * dr)[:, None] * W["r"]
    else:
        n, dn = to.squash("tanh", drive + (recurrent @ (r * h) + bias))
        direct, through = recurrent * r[None, :], recurrent @ ((h * dr)[:, None] * W["r"])
    keep = 1.0 - z
    inner = (W["n"] if by_input else direct) + through
    derivative = (keep * dn)[:, None] * inner + ((h - n) * dz)[:, None] * W["z"]
    return keep * n + z * h, derivative if by_input else derivative + to.diagonal(z)
