r"""Search for periodic inputs of RWKV-7 under which states grow.

Projected gradient ascent on :math:`\ln |\lambda| / T`, where ``lambda`` is the largest eigenvalue of the product
:math:`\Phi = M_1 \cdots M_T` of the transitions of a period. With :math:`l^T \Phi = \lambda l^T`,
:math:`\Phi r = \lambda r` and :math:`l^T r = 1`, the derivative of :math:`\ln \lambda` along :math:`\mathrm{d} M_t` is
:math:`l^T M_1 \cdots \mathrm{d} M_t \cdots M_T r / \lambda`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.systems.derived_signals import Affine, Convolution, Tanh
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.systems.input_sets import InputBox, NormBall
from stability.kernel.systems.rwkv import LARGEST_RATE
from stability.kernel.theorems.gated_linear_bounds import weighted_decays

Array = np.ndarray
PERIODS = (2, 3)
STARTS, STEPS, HEADS = 4, 80, 4
"""Random starts of each period, gradient steps of each start, and heads that are tried; half as many refute less."""
ENOUGH = 0.02
"""Logarithm of the growth per step at which the ascent stops: far above the width of the enclosure."""


def growing_periods(layer: GatedLinearLayer) -> Iterator[dict[str, Any]]:
    """Yield data of proofs of ``periodic_growth``: head, inputs and eigenvalue.

    Args:
        layer: an RWKV-7 layer whose input set is that of a norm or a box; for others nothing is found.
    """
    if not isinstance(layer.input_set, (NormBall, InputBox)):
        return
    rng = np.random.default_rng(0)
    for head in np.argsort(-weighted_decays(layer))[:HEADS].tolist():
        for period in PERIODS * STARTS:
            growth, value, inputs = _ascend(layer, head, rng.normal(size=(period, layer.inputs)))
            if growth > 0.0:
                yield {"head": head, "inputs": inputs, "eigenvalue": [float(value.real), float(value.imag)]}


def _ascend(layer: GatedLinearLayer, head: int, inputs: Array) -> tuple[float, complex, Array]:
    inputs = _projected(layer.input_set, 3.0 * inputs)
    growth, value, slope = _growth(layer, head, inputs)
    step = 0.3 * float(np.linalg.norm(inputs))
    for _ in range(STEPS):
        trial = _projected(layer.input_set, inputs + step * slope / max(float(np.linalg.norm(slope)), 1e-300))
        found, *rest = _growth(layer, head, trial)
        step *= 1.3 if found > growth else 0.5
        if found > growth:
            growth, inputs, (value, slope) = found, trial, rest
        if growth > ENOUGH:
            break
    return growth, value, inputs


def _projected(inputs: Any, stored: Array) -> Array:
    """Return the nearest inputs that a proof may store: ``z`` in the ball of a norm, or a point of a box."""
    if isinstance(inputs, InputBox):
        return np.clip(stored, inputs.low, inputs.high)
    stored = stored - stored.mean(axis=1, keepdims=True) if inputs.centered else stored
    radius = np.sqrt(inputs.size) * (1.0 - 1e-9)
    return stored * np.minimum(1.0, radius / np.linalg.norm(stored, axis=1, keepdims=True))


def _growth(layer: Any, head: int, stored: Array) -> tuple[float, complex, Array]:
    """Return ``ln |lambda| / T``, ``lambda`` and the gradient by the stored inputs."""
    injection, gate, entries = layer.injection, layer.gate, layer.injection.entries(head)
    inputs = Ball.exact(layer.input_set.points(stored).mid)
    w, a, factor, key = (part.mid for part in injection.transitions(gate, inputs, head))
    k = key * factor
    transitions = [np.diag(w[t]) - np.outer(k[t], a[t] * k[t]) for t in range(len(k))]
    product = np.linalg.multi_dot(transitions)
    if not np.isfinite(product).all():
        return -np.inf, 0j, np.zeros_like(stored)
    values, vectors = np.linalg.eig(product)
    i = int(np.abs(values).argmax())
    left, right = [np.linalg.pinv(vectors)[i]], [vectors[:, i]]
    for before, after in zip(transitions[:-1], transitions[:0:-1]):
        left.append(left[-1] @ before)
        right.insert(0, after @ right[0])
    slopes = [np.real(np.outer(x, y) / values[i]) / len(k) for x, y in zip(left, right)]  # by the entries of M_t
    by_w = np.array([np.diag(G) for G in slopes])
    pulled = np.array([G.T @ k[t] for t, G in enumerate(slopes)])
    by_k = -np.array([G @ (a[t] * k[t]) for t, G in enumerate(slopes)]) - a * pulled
    by_key = (by_k - k * (k * by_k).sum(axis=1, keepdims=True)) * factor
    log_w = np.log(w)
    slope = sum(
        _pulled(signal, by_entry, inputs, entries)
        for signal, by_entry in (
            (injection.keys, by_key * injection.removal[entries]),
            (injection.rate, -k * pulled * a * (1.0 - a)),
            (gate.signal, by_w * w * log_w * (1.0 + log_w / LARGEST_RATE)),
        )
    )
    return float(np.log(np.abs(values[i]))) / len(k), complex(values[i]), slope


def _pulled(signal: Any, slope: Array, inputs: Ball, entries: slice = slice(None)) -> Array:
    """Return the gradient by the stored inputs of ``sum slope * x`` over entries ``x`` of a signal."""
    if isinstance(signal, Affine):
        return _pulled(signal.source, slope @ signal.weight[entries], inputs)
    if isinstance(signal, Convolution):
        taps = sum(np.roll(slope * tap, -j, axis=0) for j, tap in enumerate(signal.kernel))
        return _pulled(signal.source, taps, inputs)
    if isinstance(signal, Tanh):
        return _pulled(signal.source, slope * (1.0 - signal.at(inputs).mid ** 2), inputs)
    if isinstance(signal, NormBall):
        slope = slope * signal.factor
        return slope - slope.mean(axis=1, keepdims=True) if signal.centered else slope
    return slope
