r"""Theorem ``as_it_runs_gated``: distance between a gated linear layer and its run in finite precision.

Let ``y`` be the computed state that enters a step, ``x`` the exact one, ``|x| <= R``, and let the computed step from
any ``|y| <= R + E`` be off by at most :math:`(1 - a) \kappa + \rho`, the rounding of the state included. If the result

.. math:: |y - x| \le \kappa + \rho / (1 - \sup a)

is at most ``E``, it holds at every step by induction. With a residual ``f`` of the stored state, ``|f| <= F``:

* ``feedback``: the residual is added before the step, so that the stored state is off by ``F`` more.
* ``noise_shaping``: :math:`y^+ = M y + b + f - f^+`, so that :math:`g = y + f - x` obeys
  :math:`g^+ = M g + (I - M) f`. For a diagonal ``M`` with entries in [0, 1], ``|g| <= F`` and ``|y - x| <= 2 F``.

Delta rule, column by column, :math:`M = \alpha (I - \beta k k^T)`, :math:`|k| \le 1`, where the state is at most
``|v|`` times the gain of ``delta_bound``; decays, rates, keys and values are given. Let :math:`\beta \le 1`. Then

.. math:: |M g + (I - M) f|^2 \le \max((\alpha |g| + (1 - \alpha) F)^2, F^2 + |g|^2 \alpha / (2 - \alpha)),

since the left side is convex in the eigenvalue of ``k``, which lies in [0, alpha]. So ``|g|`` is at most ``F`` times
the root of :math:`(2 - \alpha) / (2 (1 - \alpha))`. With a decay for every key channel, :math:`M = P D`,
:math:`P = I - \beta k k^T`, and :math:`w = D g + (I - D) f`,
:math:`|P w + (I - P) f|^2 \le |w|^2 + F^2 \le \alpha |g|^2 + 2 F^2`. For :math:`\beta \le c`, ``c > 1``,
:math:`|I - M| \le c`, or 2 with a decay for every key channel, and :math:`|g| \le c F / (1 - \alpha)`. Errors ``rho``
of a step add ``rho / (1 - alpha)``.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from stability.kernel.arithmetic.directed_functions import norm_above, upper
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Inner, Number, ProofData, require
from stability.kernel.format.sentences import at_most, theorem
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.execution import FORMATS, ExecutionModel
from stability.kernel.systems.gated_linear import DeltaInjection, GatedLinearLayer
from stability.kernel.theorems.as_it_runs import model_of
from stability.kernel.theorems.gated_linear_bounds import delta_gains, largest_rates, quotient, rooms
from stability.kernel.theorems.gated_step_errors import OPERATIONS, drive_error, gate_error, own_operations

Array = np.ndarray
RANGE = "the distance is not bounded, or numbers may exceed the largest one of a format"


Distances = tuple[Array, float]
"""Distances of a run to the exact layer: bounds ``(units,)`` of every state entry of a unit, or of every column of the
state of a head with a delta rule; and a bound of the Euclidean norm of the whole state."""


def _distances(entries: Array) -> Distances:
    return entries.max(axis=1), float(norm_above(entries.ravel()))


def _stored(model: ExecutionModel, sizes: Array, count: int, length: int = 1) -> tuple[Array, Array]:
    """Bound the errors of storing parts of ``length`` entries with norms up to ``sizes (units, k)``.

    Args:
        model: the arithmetic.
        sizes: bounds of the norms.
        count: number of state entries of a unit. An integer state has one bound of its entries for each unit, so that
            the order of the entries in a unit does not matter.
        length: entries of a part.

    Returns:
        Error that enters the next step, and distance of the stored state to it, ``(units, k)`` or ``(units, 1)``.
    """
    if model.rounding == "noise_shaping":
        model = replace(model, rounding="feedback")
    whole, root = model.state not in FORMATS, float(upper(np.sqrt(float(length))))
    parts = np.repeat(sizes.max(axis=1, keepdims=True), count, axis=1) if whole else upper(sizes / math.sqrt(length))
    found = (upper(root * x.reshape(parts.shape)) for x in model.state_errors(parts.ravel()))
    acting, stored = (x.max(axis=1, keepdims=True) if whole else x for x in found)
    return acting, stored


class DiagonalRun:
    """Run of a layer with a diagonal transition, or one number a head.

    Args:
        layer: the layer.
        model: the arithmetic.
    """

    def __init__(self, layer: GatedLinearLayer, model: ExecutionModel) -> None:
        gate = gate_error(layer.gate, model)
        parts = (*drive_error(layer, model, gate), gate.share, gate.fixed)
        self.states, self.drive, self.added, self.share, self.fixed = (x.reshape(layer.units, -1) for x in parts)
        self.model, self.count, self.room, self.unit = model, layer.unit_states, rooms(layer), own_operations(model)

    def errors(self, units: Array) -> Distances:
        """Return the distances of a run whose entries are within ``units`` of the exact ones."""
        sizes, unit = upper(self.states + units[:, None]), self.unit
        require(2.0 * sizes.max() < self.model.largest, RANGE)
        share = self.share * sizes + self.drive + unit * (self.states + self.drive + self.added)
        rest = (self.fixed + unit * (1.0 + self.fixed)) * sizes + (1.0 + unit) * self.added + 4.0 * self.model.lost
        acting, residual = _stored(self.model, sizes, self.count)
        times = 2.0 if self.model.rounding == "noise_shaping" else 1.0
        return _distances(upper(upper(share) + quotient(upper(rest + acting), self.room) + times * residual))


class DeltaRun:
    """Run of a delta rule with given decays, rates, keys and values.

    Args:
        layer: the layer.
        model: the arithmetic.
    """

    def __init__(self, layer: GatedLinearLayer, model: ExecutionModel) -> None:
        injection: Any = layer.injection
        heads: int = injection.rate.size
        self.model, self.keys, self.single = model, injection.key_size, layer.units == heads
        self.values, self.beta = injection.values.magnitude.reshape(heads, -1), largest_rates(injection)[:, None]
        self.states = upper(delta_gains(layer)[:, None] * self.values)
        self.room = rooms(layer).reshape(heads, -1).min(axis=1, keepdims=True)

    def errors(self, units: Array) -> Distances:
        """Return the distances of a run whose columns are within ``units`` of the exact ones."""
        model, n, sizes = self.model, self.keys, upper(self.states + units[:, None])
        require(2.0 * (sizes.max() + self.values.max()) < model.largest, RANGE)
        added = float(model.relative_error(n, OPERATIONS)) * upper(sizes + self.beta * upper(self.values + sizes))
        lost = 8.0 * model.lost * (n + OPERATIONS) * math.sqrt(n) * (1.0 + self.values + sizes)
        acting, residual = _stored(model, sizes, n * self.values.shape[1], n)
        error = quotient(upper(added + lost + acting), self.room)
        return _distances(upper(error + (self._shaped(residual) if model.rounding == "noise_shaping" else residual)))

    def _shaped(self, residual: Array) -> Array:
        """Bound ``|g| + |f|`` of noise shaping."""
        room, largest = self.room, self.beta if self.single else np.array(2.0)  # largest: of |I - M|
        squares = quotient(upper(1.0 + room), 2.0 * room) if self.single else quotient(np.array(2.0), room)
        growth = np.where(self.beta <= 1.0, upper(np.sqrt(squares)), quotient(largest, room))
        return upper(residual * upper(1.0 + growth))


def run_of(layer: GatedLinearLayer, model: ExecutionModel) -> DiagonalRun | DeltaRun:
    """Return the errors of runs of a layer.

    Raises:
        Refused: an arithmetic or a part of the layer without an analysis.
    """
    require(not model.factor_errors(np.ones(1)).any(), "factors in integers are not covered for gated linear layers")
    return DeltaRun(layer, model) if isinstance(layer.injection, DeltaInjection) else DiagonalRun(layer, model)


@certifies("as_it_runs_gated", subject=GatedLinearLayer, claim="as_it_runs", value="bound")
class AsItRunsGated(ProofData):
    """Arithmetic, and the distances of a run to the exact layer.

    Attributes:
        arithmetic: settings of the execution model.
        units: ``(units,)`` bound of the distance of every state entry of a channel or head, or of every column of the
            state of a head with a delta rule.
        bound: bound of the Euclidean distance of the whole state.
    """

    arithmetic: Inner
    units: AnyArray
    bound: Number

    def sentence(self, subject: GatedLinearLayer, claim: Claim) -> str:
        """Return the sentence, which says what the run computes and what is given."""
        model, inputs, part = model_of(self.arithmetic), subject.inputs_phrase, "state entry"
        given = f"For {inputs}, representable in {model.format},"
        more = "log1p and expm1 have the errors of exp, and softplus, logsigmoid and SiLU are composed of them."
        if isinstance(subject.injection, DeltaInjection):
            part, terms = "column of the state", f"decays, rates, keys and values that are numbers in {model.format}"
            given = f"For every sequence of {terms}, within their bounds for {inputs},"
            more = "The errors with which a run computes decays, rates, keys and values are not covered."
        return theorem(
            subject,
            f"{given} let x be the states in exact arithmetic and y those of any step-by-step run in {model.phrase}, "
            f"both from zero. Then |y(k) - x(k)|_2 <= {at_most(self.bound)} for all k >= 0, and every {part} is off by "
            f"at most {at_most(float(self.units.max(initial=0.0)))}.",
            more,
        )

    def check(self, subject: GatedLinearLayer, claim: Claim) -> str:
        """Compute the errors of runs within the stated distances and compare."""
        run = run_of(subject, model_of(self.arithmetic))
        fits = self.units.shape == (len(run.states),) and bool((self.units >= 0.0).all())
        require(fits, "units must hold one number >= 0 for every channel or head")
        units, least = run.errors(self.units)
        require((units <= self.units).all(), "a unit is stated to be closer than proved")
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"a run is within {at_most(self.bound)} of the exact states at every length"
