"""Evaluation of a classifier step by step, with affine forms or numbers.

``Numbers`` evaluates one input and records the arguments of all units, in their order. At these points the parabolas of
a proof touch the units (``stability.kernel.reachability.quadratic_relaxation``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import Interval, hull, tanh
from stability.kernel.reachability.affine_forms import AffineArithmetic, Form, Term, UnboundedError
from stability.kernel.reachability.gate_units import Unit
from stability.kernel.reachability.network_stages import Stages, stages_of
from stability.kernel.reachability.stages import TERMS, Activated, GruOut, Stage
from stability.kernel.systems.classifier import Classifier

Array = np.ndarray
SYMBOLS = 6000
"""Number of symbols above which the symbols of earlier steps are merged."""


@dataclass(frozen=True)
class Value:
    """Numbers ``(m,)`` with the interface of an affine form."""

    c: Array

    def rows(self, keep: Any) -> Value:
        """Return the selected values."""
        return Value(self.c[keep])

    def __neg__(self) -> Value:
        return Value(-self.c)


@dataclass
class Numbers:
    """Arithmetic for a single input; ``met`` records the arguments ``(a, b)`` of the terms of each group of units."""

    met: list[list[tuple[Array, Array]]] = field(default_factory=list)
    merged = True
    symbols = 0

    def point(self, c: Array) -> Value:
        """Return constants."""
        return Value(c)

    def enter(self, low: Array, high: Array) -> Value:
        """Return the input of a step; both ends are equal."""
        return Value(low)

    def affine(self, M: Array, radius: Any, y: Value, *offsets: Array) -> Value:
        """Return ``M y`` plus the offsets, see ``AffineArithmetic.affine``."""
        return Value(M @ y.c + sum(offsets))

    def join(self, *values: Value) -> Value:
        """Join vectors, see ``AffineArithmetic.join``."""
        return Value(np.concatenate([value.c for value in values]))

    def units(self, *terms: Any, within: Any = None) -> Value:
        """Return the sum of units."""
        if len(terms) == 1 and terms[0].unit == Unit("identity"):
            return terms[0].b
        self.met.append([((t.a or t.b).c, t.b.c) for t in terms])
        return Value(np.asarray(sum(t.unit.value((t.a or t.b).c, t.b.c) for t in terms)))


def apply_stage(tube: Any, stage: Stage, y: Any) -> Any:
    """Return the vector after a stage, with units as in ``TERMS``.

    The next state of a GRU lies between the candidate and the old state, so that the hull of both bounds its form.
    """
    dA, dB, dC = stage.slack or (None, None, None)
    rows, within = tube.affine(stage.C, dC, y, stage.bias), None
    if isinstance(stage, Activated):
        terms = [Term(Unit(stage.name), None, rows)]
    else:
        count, products = TERMS[type(stage)]
        m = len(stage.bias) // count
        blocks = [rows.rows(slice(k * m, (k + 1) * m)) for k in range(count)]
        terms = [
            Term(Unit(name, gated=True), blocks[a] if s > 0 else -blocks[a], blocks[b]) for s, a, b, name in products
        ]
        if isinstance(stage, GruOut) and isinstance(tube, AffineArithmetic):
            _, a, h = (Interval(block.low, block.high) for block in blocks)
            within = hull(tanh(a), h)
    w = tube.units(*terms, within=within)
    m = len(w.c)
    slack = None if dA is None or dB is None else np.hstack([dA, dB[:, :m]])
    return tube.affine(np.hstack([stage.A, stage.B[:, :m]]), slack, tube.join(y, w), np.zeros(len(stage.A)))


def final_vector(net: Stages, tube: Any, low: Array, high: Array) -> Any:
    """Return the vector after the last stage, for all inputs ``low <= x <= high``, both ``(T, p)``."""
    y = tube.point(net.start)
    for t in range(len(low)):
        for stage in net.stages:
            y = apply_stage(tube, stage, tube.join(y, tube.enter(low[t], high[t])) if stage.fresh else y)
        if tube.symbols > SYMBOLS:
            y = tube.merge(y)
    return y


def margins(classifier: Classifier, tube: Any, low: Array, high: Array, label: int) -> Any:
    """Return the logit of ``label`` minus the logit of each other class, times ``T`` for a head on the mean.

    Args:
        classifier: the network.
        tube: an ``AffineArithmetic``; or ``Numbers`` if ``low`` equals ``high``.
        low: ``(T, p)`` lower bounds of the input.
        high: ``(T, p)`` upper bounds of the input.
        label: the class.

    Returns:
        An affine form, or a value, ``(classes - 1,)``; without bounds if a unit overflows.

    Example:
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> network, x = Classifier(cell, [[1.0], [-1.0]]), np.ones((1, 1))
        >>> margins(network, Numbers(), x, x, 0).c.round(3)
        array([1.523])
        >>> bool(margins(network, AffineArithmetic(), x - 0.1, x + 0.1, 0).low[0] < 2 * np.tanh(0.9))
        True
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # overflow gives infinite or NaN bounds, which prove nothing
            return _margins(classifier, tube, low, high, label)
    except UnboundedError:
        tube.merged, count = True, classifier.classes - 1
        none = np.zeros(count)
        return Form(none, np.zeros((count, tube.symbols)), none + np.inf, none - np.inf, none + np.inf)


def _margins(classifier: Classifier, tube: Any, low: Array, high: Array, label: int) -> Any:
    net = stages_of(classifier)
    others = np.delete(np.arange(classifier.classes), label)
    weight = net.head[label] - net.head[others]
    scale = float(len(low)) if classifier.reduction == "mean" else 1.0
    offsets = np.full(len(others), scale * classifier.bias[label]), -scale * classifier.bias[others]
    return tube.affine(weight, EPS * np.abs(weight), final_vector(net, tube, low, high), *offsets)
