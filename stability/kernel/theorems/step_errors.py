r"""Forward error analysis of one step of a network in a given arithmetic.

Bounds hold for every state and input in a set, entry by entry, and for the *computed* arguments: they compare the
computed step with the exact step from the same state. Each is an upper bound with all its own rounding errors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import norm_above, upper
from stability.kernel.arithmetic.discretization import step_matrices
from stability.kernel.arithmetic.floating_point import EPS, LOST
from stability.kernel.arithmetic.intervals import Interval, upper_product
from stability.kernel.format.fields import Refused, require
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.systems.gated_bounds import gate_bounds
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_equations import GATES
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.multiplier_lmi import majorant

Array = np.ndarray
PLAIN, OPERATIONS = 4, 8
"""Operations outside of the matrix products of one stage: rounding of each product, their sum, two biases; in a step of
Euler or midpoint also the product with the step, the step itself and the sum with the state."""


class StepError(NamedTuple):
    """Errors of one step.

    Attributes:
        step: ``(n,)`` bound of ``|computed step - exact step|``, storing the state included.
        stored: ``(n,)`` distance of the stored state to the one that enters the next step (error feedback).
    """

    step: Array
    stored: Array


class StateSet(NamedTuple):
    """States with ``|x_i| <= entries_i`` and ``|x - center|_2 <= radius``."""

    entries: Array
    center: Array
    radius: float

    def products(self, matrix: Array) -> Array:
        """Bound ``sum_j |M_ij| |x_j|`` for non-negative ``M``: by entries, or by Cauchy-Schwarz around the center."""
        rows = np.sqrt((matrix * matrix).sum(axis=1)) * (1.0 + gamma(matrix.shape[1] + 4)) + LOST
        around = upper_product(matrix, np.abs(self.center)) + upper(rows * self.radius)
        return np.minimum(upper_product(matrix, self.entries), upper(around))


def stages_of(system: DrivenSystem) -> int | None:
    """Return the number of channel evaluations of a step: 1, 2 for the midpoint rule, ``None`` for an implicit one."""
    D, origin = system.system.D, system.system.origin
    if not D.any():
        return 1 if origin is None or origin.method == "euler" else 2
    first = ~D.any(axis=1)
    return 2 if not D[:, ~first].any() else None


def driven_step_error(subject: DrivenSystem, model: ExecutionModel, states: StateSet, inputs: Array) -> StepError:
    r"""Bound the errors of a step ``x+ = A x + B phi(z) + F u``, ``z = C x + D phi(z) + E u + b``.

    With :math:`\gamma` of all sums on the way and ``|.|`` entrywise (for Euler and midpoint steps the absolute values
    of the factors, ``|I| + dt |A|`` and its relatives),

    .. math:: |\delta z| \le \gamma (|C| |x| + |D| |w| + |E| |u| + |b|) + |D| |\delta w|, \quad
              |\delta w| \le \beta |\delta z| + \epsilon |w|, \quad
              |\delta x| \le \gamma (|A| |x| + |B| |w| + |F| |u|) + |B| |\delta w| + \text{rounding of the state} .

    Args:
        subject: the network, a map.
        model: the arithmetic.
        states: set of the computed states.
        inputs: ``(p,)`` bounds of the absolute values of the inputs, which are numbers of the format.

    Raises:
        Refused: an implicit step, or numbers beyond the range of the formats.
    """
    system, phi = subject.system, activation(subject.activation)
    stages = stages_of(subject)
    require(stages is not None, "the channels of this step are an implicit equation")
    big, m = majorant(system), system.channels
    count = (stages or 1) * (PLAIN if system.origin is None else OPERATIONS)
    inner = subject.states + m if stages == 2 else 0  # the second stage computes the state of the first
    matrices = {"A": big.A, "B": big.B, "C": big.C, "D": big.D, "E": np.abs(subject.E), "F": np.abs(subject.F)}
    counts = {name: np.count_nonzero(matrix, axis=1) + inner for name, matrix in matrices.items()}
    if model.summation == "any":
        z_terms, x_terms = (counts[a] + counts[b] + counts[c] for a, b, c in ("CDE", "ABF"))
        counts = dict(zip("CDEABF", (z_terms,) * 3 + (x_terms,) * 3))
    terms = max(int(sum((counts[k] for k in keys), np.zeros(1)).max(initial=0)) for keys in ("CDE", "ABF"))
    # rounding and change of each weight; a product with zero, and adding it, is exact
    gammas = {name: model.relative_error(n_terms, count, stages or 1) for name, n_terms in counts.items()}
    changed = changed_weights(system, matrices, model.weight_error)
    weights = {
        name: upper(gammas[name][:, None] * upper(matrix + changed[name]) + changed[name])
        for name, matrix in matrices.items()
    }
    bias = np.maximum(np.abs(subject.b), 2.0 * model.biases)  # sum of the absolute values of two
    bias_change = model.weight_error * bias.max(initial=0.0)
    largest = max(float(x.max(initial=0.0)) for x in (*matrices.values(), states.entries, inputs, bias))
    lost = model.lost * passes(system)
    relative = model.function_error
    slope, at_zero = max(map(abs, phi.slope)), abs(float(phi.function(np.zeros(1))[0]))
    w, w_error, z_size = np.zeros(m), np.zeros(m), np.zeros(m)

    def underflow(keys: str, w: Array) -> Array:
        """Bound the errors of subnormal products, factors and weights in each row."""
        sums = np.sum([matrices[key].sum(axis=1) for key in keys], axis=0)
        values = max(float(x.max(initial=0.0)) for x in (states.entries, inputs, w))
        return upper(lost * (terms + count + sums + (terms + 1.0) * values))

    fixed = upper(states.products(big.C) + upper_product(matrices["E"], inputs) + bias)
    changes = upper(states.products(weights["C"]) + upper_product(weights["E"], inputs))
    changes = upper(changes + (bias + bias_change) * gammas["C"] + bias_change)
    whole = model.factor_errors(states.entries)
    require(
        not whole.any() or _is_plain(subject), "factors in integers are for x+ = phi(C x + E u + b) and gated cells"
    )
    for name, error in (("C", whole), ("E", model.factor_errors(inputs))):
        changes = upper(changes + upper_product(matrices[name] + weights[name], error))
    for _ in range(stages or 1):
        z_size = upper(fixed + upper_product(big.D, w))
        z_error = upper(changes + upper_product(weights["D"], w) + upper_product(big.D, w_error))
        z_error = upper(z_error + underflow("CDE", w))
        w = np.minimum(upper(at_zero + slope * upper(z_size + z_error)), phi.bound)
        w_error = upper(slope * z_error + relative * w + model.function_lost)
        w = upper(w + w_error)
    x_size = upper(states.products(big.A) + upper_product(big.B, w) + upper_product(matrices["F"], inputs))
    step = upper(states.products(weights["A"]) + upper_product(weights["B"], w))
    step = upper(step + upper_product(weights["F"], inputs) + underflow("ABF", w) + upper_product(big.B, w_error))
    in_range = max(z_size.max(initial=0.0), x_size.max(initial=0.0), largest * passes(system))
    require(2.0 * in_range < model.largest, f"numbers may exceed the largest one of {model.format}")
    acting, stored = model.state_errors(upper(np.minimum(states.entries, x_size) + step))
    return StepError(upper(step + acting), stored)


def _is_plain(subject: DrivenSystem) -> bool:
    system = subject.system
    still = not (system.A.any() or system.D.any() or subject.F.any())
    return still and np.array_equal(system.B, np.eye(system.states))


def passes(system: LureSystem) -> float:
    """Bound the factor by which an integrator's step amplifies an error inside it; one for a plain map."""
    if system.origin is None:
        return 1.0
    base, dt = system.origin.base, system.origin.dt
    rows = max(float(np.abs(matrix).sum(axis=1).max(initial=0.0)) for matrix in (base.A, base.B, base.C, base.D))
    return float((1.0 + dt) * (1.0 + rows) * (1.0 + dt * (1.0 + rows)) * (1.0 + gamma(len(base.A) + 8)))


def changed_weights(system: LureSystem, matrices: dict[str, Array], error: float) -> dict[str, Array]:
    """Bound the change of each matrix whose nonzero weights change by ``error`` times the largest one."""

    def change(matrix: Array) -> Array:
        return error * float(matrix.max(initial=0.0)) * (matrix != 0.0)

    out = {name: change(matrix) for name, matrix in matrices.items()}
    if error and system.origin is not None:
        base, dt = system.origin.base, system.origin.dt
        sizes = [np.abs(matrix) for matrix in (base.A, base.B, base.C, base.D)]
        wider = step_matrices(system.origin.method, tuple(x + change(x) for x in sizes), dt, 0.5 * dt)  # type: ignore[arg-type]
        rounding = 2.0 * gamma(2 * len(base.A) + 16)
        out |= {name: np.maximum(new - matrices[name], 0.0) + rounding * new for name, new in zip("ABCD", wider)}
    return out


PAIR_OPERATIONS = 32
"""Roundings of modReLU and of the Householder activation, the functions of its angles included."""


def pair_step_error(subject: PairwiseSystem, model: ExecutionModel, size: float, inputs: Array) -> StepError:
    r"""Bound the errors of a step ``x+ = sigma(W x + V u + b)``, for ``|x|_2 <= size``.

    The activation never stretches a difference, so an error of its argument passes unchanged in every norm that weighs
    the pairs. Sorting and absolute values are exact; modReLU and reflections add ``PAIR_OPERATIONS`` roundings.

    Raises:
        Refused: numbers beyond the range of the formats.
    """
    require(not model.factor_errors(np.ones(1)).any(), "factors in integers are not covered for networks on pairs")
    W, V, b = np.abs(subject.W), np.abs(subject.V), np.abs(subject.b)
    bias = b if len(b) == subject.states else np.concatenate([b, b])  # inside of modReLU
    bias = np.maximum(bias, 2.0 * model.biases)
    terms = int((np.count_nonzero(W, axis=1) + np.count_nonzero(V, axis=1)).max())
    states = StateSet(np.full(subject.states, size), np.zeros(subject.states), size)
    z_size = upper(states.products(W) + upper_product(V, inputs) + bias)
    values = max(size, float(inputs.max(initial=0.0)))
    sums = W.sum(axis=1) + V.sum(axis=1) + (terms + 1.0) * values
    lost = model.lost * (terms + PLAIN + PAIR_OPERATIONS + sums)
    largest = max(float(x.max(initial=0.0)) for x in (W, V, b))
    changed = model.weight_error * largest * (math.sqrt(subject.states) * size + float(inputs.sum()) + 1.0)
    relative = model.relative_error(terms, PLAIN)
    error = upper(relative * z_size + lost + changed * (1.0 + relative) * (1.0 + gamma(terms)))
    in_range = 2.0 * max(float(z_size.max()), values, largest)
    require(in_range < model.largest, f"numbers may exceed the largest one of {model.format}")
    reach = upper(z_size + error)
    if subject.activation != "abs":
        angle = 0.0 if subject.angles is None else float(np.abs(subject.angles).max())
        activated = float(model.relative_error(0, PAIR_OPERATIONS, 2.0 + 2.0 * angle))  # a reflection doubles an angle
        pair = upper(np.sqrt((reach[subject.pairs] ** 2).sum(axis=1)))
        if subject.activation == "oplu":
            activated, pair = 0.0, reach[subject.pairs].max(axis=1)
        rounded = np.empty(subject.states)
        rounded[subject.pairs] = (activated * pair)[:, None]
        error = upper(error + rounded)
        if subject.activation != "modrelu":
            reach[subject.pairs] = pair[:, None]  # an entry may become as large as its pair
        reach = upper(reach + rounded)
    acting, stored = model.state_errors(np.minimum(reach, upper(size + norm_above(error))))
    return StepError(upper(error + acting), stored)


def cell_step_error(cell: GatedCell, model: ExecutionModel, box: Interval) -> StepError:
    r"""Bound the errors of a step of an LSTM or GRU cell, for states in a box and inputs in the cell's box.

    Gates inherit :math:`\sigma' \le 1/4`, :math:`\tanh' \le 1`; products add
    :math:`|x| |\delta y| + |y| |\delta x| + |\delta x| |\delta y|`.

    Raises:
        Refused: numbers beyond the range of the formats, or a cell without a box of its inputs.
    """
    low, high = cell.input_low, cell.input_high
    if low is None or high is None:
        raise Refused("the cell has no box of its inputs")
    gates, m = gate_bounds(cell, box), int(cell.hidden)
    inputs: Array = np.maximum(np.abs(low), np.abs(high))
    h_size = box.magnitude[:m]
    error = model.relative_error(m + cell.inputs, OPERATIONS)
    unit, relative = model.relative_error(0, 1), model.function_error
    lost, terms = model.lost, m + cell.inputs
    W, R = np.abs(cell.w_ih), np.abs(cell.w_hh)
    biases = np.abs(cell.b_ih) + np.abs(cell.b_hh)
    values = max(float(inputs.max(initial=0.0)), float(h_size.max()))
    weight = lost * (terms + OPERATIONS + W.sum(axis=1) + R.sum(axis=1) + (terms + 1.0) * values)
    z_size = upper(upper_product(W, inputs) + upper_product(R, h_size) + upper(biases))
    of_inputs, of_states = model.factor_errors(inputs), model.factor_errors(h_size)
    whole = upper(upper_product(W, of_inputs) + upper_product(R, of_states))
    changed = max(W.max(initial=0.0), R.max(initial=0.0), biases.max(initial=0.0))
    values = float((inputs + of_inputs).sum() + (h_size + of_states).sum() + 1.0)
    changed = upper(model.weight_error * changed * values * (1.0 + gamma(m + cell.inputs)) + whole)
    z_error = upper(error * (z_size + changed) + weight + changed)
    in_range = max(float(x.max(initial=0.0)) for x in (z_size, W, R, biases, inputs, box.magnitude))
    require(2.0 * in_range < model.largest, f"numbers may exceed the largest one of {model.format}")

    def gate(name: str, z: Array) -> tuple[Array, Array]:
        """Return size and error of a gate with an error of its pre-activation."""
        size = gates[name].magnitude
        share = 1.0 if name in ("g", "n") else 0.25
        return size, upper(share * z + relative * upper(size + share * z) + model.function_lost)

    def product(x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return size and error of a product of two values with sizes and errors."""
        size = upper((x[0] + x[1]) * (y[0] + y[1]))
        return size, upper(x[0] * y[1] + y[0] * x[1] + x[1] * y[1] + unit * size + lost)

    def total(x: tuple[Array, Array], y: tuple[Array, Array]) -> tuple[Array, Array]:
        size = upper(x[0] + y[0])
        return size, upper(x[1] + y[1] + unit * upper(size + x[1] + y[1]) + lost)

    nothing = np.zeros(m)
    names: tuple[str, ...] = GATES[cell.kind]
    rows = {name: slice(k * m, (k + 1) * m) for k, name in enumerate(names)}
    if cell.kind == "lstm":
        i, f, g, o = (gate(name, z_error[rows[name]]) for name in names)
        c = total(product(f, (box.magnitude[m:], nothing)), product(i, g))
        t_size = gates["t"].magnitude
        t = t_size, upper(c[1] + relative * upper(t_size + c[1]) + model.function_lost)
        h = product(o, t)
        step = np.concatenate([h[1], c[1]])
    else:
        r, z = (gate(name, z_error[rows[name]]) for name in ("r", "z"))
        v_error, v_size, rest = z_error[rows["n"]], z_size[rows["n"]], nothing
        if cell.reset_after:
            rest = product(r, (gates["v"].magnitude, v_error))[1]
        else:  # the error of the gated state passes through the weights
            gated = product(r, (h_size, nothing))[1]
            rest = upper_product(R[rows["n"]], gated + model.factor_errors(h_size + gated)) * (1.0 + error)
            rest = upper(rest + model.weight_error * R.max(initial=0.0) * rest.sum())
        n = gate("n", upper(v_error + rest + 2.0 * unit * (v_size + v_error + rest)))
        keep = total((np.ones(m), nothing), z)
        step = total(product((np.ones(m), keep[1]), n), product(z, (h_size, nothing)))[1]
        step = upper(step + 2.0 * unit * upper(h_size + n[0]))  # also as n + z (h - n)
    acting, stored = model.state_errors(upper(box.magnitude + step))
    return StepError(upper(step + acting), stored)


def stays_in_box(cell: GatedCell, box: Interval, step: Array) -> bool:
    """Prove that no step from a box with errors up to ``step`` leaves it, under every input of the cell's box.

    ``h+ = (1 - z) n + z h`` of a GRU and ``c+ = (1 - f) q + f c`` of an LSTM move towards ``n`` and ``q`` by a share of
    at least ``1 - sup z`` and ``1 - sup f``, so at the end of the box there is room of this share of the distance.
    """
    gates, m = gate_bounds(cell, box), int(cell.hidden)
    lstm = cell.kind == "lstm"
    towards, gate = (gates["q"], gates["f"]) if lstm else (gates["n"], gates["z"])
    kept = slice(m, None) if lstm else slice(None)
    low, high, room = box.low[kept], box.high[kept], np.maximum(1.0 - gate.high, 0.0) * (1.0 - 4.0 * EPS)
    share = 1.0 - 8.0 * EPS
    fits = (step[kept] <= room * (high - towards.high) * share) & (step[kept] <= room * (towards.low - low) * share)
    if lstm:
        out = gates["next"]
        fits &= upper(out.high[:m] + step[:m]) <= box.high[:m]
        fits &= upper(step[:m] - out.low[:m]) <= -box.low[:m]
    return bool(fits.all() and (box.low <= 0.0).all() and (box.high >= 0.0).all())
