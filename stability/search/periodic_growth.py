r"""Search for periodic inputs of RWKV-7 under which states grow.

Projected gradient ascent on the largest eigenvalue ``lambda`` of :math:`\Phi = M_1 \cdots M_T` on the span of the keys.
Other directions never grow, but their eigenvalues close to 1 would hide it. For ``w = 1`` these
are :math:`M_t = I - k_t y_t^T` with :math:`y_t = a_t * k_t`, and :math:`\Phi K c = K R_1 \cdots R_T c` with
:math:`R_t = I - e_t (Y^T K)_t`, so a ``(T, T)`` matrix decides. With :math:`l^T \Phi = \lambda l^T`,
:math:`\Phi r = \lambda r` and :math:`l^T r = 1`, the derivative of :math:`\ln \lambda` along :math:`\mathrm{d} M_t` is
:math:`l^T M_1 \cdots \mathrm{d} M_t \cdots M_T r / \lambda`. The means of ``w`` along the keys stand for ``w < 1``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.systems.derived_signals import Affine, Convolution, Tanh
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.input_sets import InputBox, NormBall
from stability.kernel.systems.rwkv import LARGEST_RATE, period
from stability.kernel.theorems.gated_linear_bounds import weighted_decays

Array = np.ndarray
PERIODS = (2, 3)
STARTS, STEPS, HEADS = 2, 60, 4
"""Random starts per period, gradient steps per start, and heads that are tried. On random layers of width 64 and 768
either every start or none found growth, also with half the steps."""
ENOUGH = 0.01
"""Logarithm of the growth per step at which the ascent stops; it is far above the enclosure's rounding error."""


def growing_periods(layer: GatedLinearLayer) -> Iterator[dict[str, Any]]:
    """Yield data of proofs of ``periodic_growth``: head, inputs and eigenvalue.

    Args:
        layer: an RWKV-7 layer, behind a norm or with inputs in a box; other input sets give nothing.
    """
    if not isinstance(layer.input_set, (NormBall, InputBox)):
        return
    rng = np.random.default_rng(0)
    for head in np.argsort(-weighted_decays(layer))[:HEADS].tolist():
        for length in PERIODS * STARTS:
            inputs = _ascend(layer, head, rng.normal(size=(length, layer.inputs)))
            value = _eigenvalue(_gates(layer, head, inputs)[0])
            if abs(value) > 1.0:
                yield {"head": head, "inputs": inputs, "eigenvalue": [value.real, value.imag]}


def _ascend(layer: GatedLinearLayer, head: int, inputs: Array) -> Array:
    """Return inputs of one period after gradient ascent from the given ones."""
    inputs = _projected(layer.input_set, 3.0 * inputs)
    growth, slope = _growth(layer, head, inputs)
    step = 0.3 * float(np.linalg.norm(inputs))
    for _ in range(STEPS):
        trial = _projected(layer.input_set, inputs + step * slope / max(float(np.linalg.norm(slope)), 1e-300))
        found, new = _growth(layer, head, trial)
        step *= 1.3 if found > growth else 0.5
        if found > growth:
            growth, inputs, slope = found, trial, new
            if growth > ENOUGH and np.log(abs(_eigenvalue(_gates(layer, head, inputs)[0]))) > ENOUGH * len(inputs):
                break
    return inputs


def _projected(inputs: Any, stored: Array) -> Array:
    """Return the nearest inputs that a proof may store: ``z`` in the ball of a norm, or a point of a box."""
    if isinstance(inputs, InputBox):
        return np.clip(stored, inputs.low, inputs.high)
    stored = stored - stored.mean(axis=1, keepdims=True) if inputs.centered else stored
    radius = np.sqrt(inputs.size) * (1.0 - 1e-9)
    return stored * np.minimum(1.0, radius / np.linalg.norm(stored, axis=1, keepdims=True))


def _gates(layer: Any, head: int, stored: Array) -> tuple[tuple[Ball, ...], Ball]:
    inputs = Ball.exact(layer.input_set.points(stored).mid)
    return layer.injection.gates(layer.gate, inputs, head), inputs


def _eigenvalue(gates: tuple[Ball, ...]) -> complex:
    """Return the largest eigenvalue of the product of a period, 0 where it is not finite."""
    product = period(gates).mid  # type: ignore[arg-type]
    return complex(max(np.linalg.eigvals(product).tolist(), key=abs)) if np.isfinite(product).all() else 0j


def _growth(layer: Any, head: int, stored: Array) -> tuple[float, Array]:
    """Return ``ln |lambda prod_t w_t . k_t^2| / T`` and its gradient by the stored inputs."""
    injection, gate, entries = layer.injection, layer.gate, layer.injection.entries(head)
    gates, inputs = _gates(layer, head, stored)
    w, a, factor, key = (part.mid for part in gates)
    k, length = key * factor, len(key)
    y = a * k
    overlaps = y @ k.T
    if not np.isfinite(overlaps).all():
        return -np.inf, np.zeros_like(stored)
    steps = [np.eye(length) - np.outer(np.eye(length)[t], overlaps[t]) for t in range(length)]
    values, vectors = np.linalg.eig(reduce(np.matmul, steps))
    i = int(np.abs(values).argmax())
    left = [np.linalg.pinv(overlaps.T) @ np.linalg.pinv(vectors)[i] @ y]
    right = [vectors[:, i] @ k]
    for t in range(length - 1):
        left.append(left[-1] - (left[-1] @ k[t]) * y[t])
        right.insert(0, right[0] - k[length - 1 - t] * (y[length - 1 - t] @ right[0]))
    x, z = np.array(left) / values[i] / length, np.array(right)  # the slope by M_t is the real part of x_t z_t^T
    pulled = np.real((x * k).sum(axis=1, keepdims=True) * z)
    share = (w * k * k).sum(axis=1, keepdims=True)
    by_k = -np.real(x * (y * z).sum(axis=1, keepdims=True)) - a * pulled + 2.0 * w * k / share / length
    by_key = (by_k - k * (k * by_k).sum(axis=1, keepdims=True)) * factor
    log_w = np.log(w)
    slope = sum(
        _pulled(signal, by_entry, inputs, entries)
        for signal, by_entry in (
            (injection.keys, by_key * injection.removal[entries]),
            (injection.rate, -k * pulled * a * (1.0 - a)),
            (gate.signal, k * k / share / length * w * log_w * (1.0 + log_w / LARGEST_RATE)),
        )
    )
    return float(np.log(np.abs(values[i])) + np.log(share).sum()) / length, np.asarray(slope)


def _pulled(signal: Any, slope: Array, inputs: Ball, entries: slice = slice(None)) -> Array:
    """Return the gradient by the stored inputs of ``sum slope * x`` over entries ``x`` of a signal."""
    if isinstance(signal, Affine):
        return _pulled(signal.source, slope @ signal.weight[entries], inputs)
    if isinstance(signal, Convolution):
        taps = sum(np.roll(slope * tap, -j, axis=0) for j, tap in enumerate(signal.kernel))
        return _pulled(signal.source, np.asarray(taps), inputs)
    if isinstance(signal, Tanh):
        return _pulled(signal.source, slope * (1.0 - signal.at(inputs).mid ** 2), inputs)
    if isinstance(signal, NormBall):
        slope = slope * signal.factor
        return slope - slope.mean(axis=1, keepdims=True) if signal.centered else slope
    return slope
