r"""Forward error analysis of one step of a gated linear layer with a diagonal transition.

The layer computes :math:`h^+ = a h + (1 - a) \tau` entry by entry, where ``tau`` and ``h`` have one bound. Errors are
split into a part with the factor ``1 - a`` of the same step and a part without: the first one adds up to itself over
any number of steps, the second one to itself over ``1 - sup a``. Here ``e`` bounds the error of a pre-activation.

* :math:`a = e^{-x}`, ``x`` off by a relative error :math:`\epsilon \le 1/2`: ``a`` is off by at most
  :math:`\epsilon (1 - a)`, since :math:`x e^{\epsilon x} / (e^x - 1) \le (x / 2) / \sinh(x / 2) \le 1`. Softplus and
  the logistic function change by a relative error of :math:`e^{\pm e}`, since their logarithms have slopes in [0, 1].
* :math:`a = \sigma(-p)`: ``1 - a`` changes by a relative error of at most :math:`e^e - 1`.
* :math:`\sqrt{1 - a^2}` changes by at most the error of its argument over its own size.

``log1p`` and ``expm1`` have the errors of ``exp``; softplus, logsigmoid and SiLU are composed of these functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import SILU_SLOPE, add_up, logistic, norm_above, softplus, upper
from stability.kernel.arithmetic.intervals import upper_product
from stability.kernel.format.fields import Refused, require, required
from stability.kernel.systems.decay_gates import RatioGate, RGLRUGate, SigmoidGate, SoftplusGate
from stability.kernel.systems.derived_signals import Affine, Convolution, SiLU
from stability.kernel.systems.execution import FORMATS, ExecutionModel
from stability.kernel.systems.gated_linear import ConvexInjection, GatedLinearLayer, RootInjection, StepInjection
from stability.kernel.systems.input_sets import InputSet
from stability.kernel.theorems.gated_linear_bounds import convex_range, quotient, rooms, step_parts

Array = np.ndarray
OPERATIONS = 8
"""Roundings beside those of sums: of a product, a bias, factors in front, and the result."""
SOFTPLUS_CUT = 1.1e-10
"""Relative error of libraries that return ``p`` for ``softplus(p)``, ``p > 20``: ``exp(-20) / 20``."""


def own_operations(model: ExecutionModel) -> float:
    """Bound the relative error of ``OPERATIONS`` roundings."""
    return float(model.relative_error(0, OPERATIONS, 0.0))


def signal_error(signal: Any, model: ExecutionModel) -> Array:
    """Bound the error of every entry of a computed signal, ``(size,)``; inputs of the layer are numbers of the format.

    Raises:
        Refused: a signal without an analysis, or numbers beyond the range of the formats.
    """
    if isinstance(signal, InputSet):
        return np.zeros(signal.size)
    if not isinstance(signal, (Affine, Convolution, SiLU)):
        raise Refused(f"rounding errors of a {type(signal).__name__} signal are not covered")
    source = signal.source
    error, size = signal_error(source, model), source.magnitude
    most = upper(size + error)
    if isinstance(signal, SiLU):
        relative = model.function_error + own_operations(model)
        return upper(SILU_SLOPE * error + relative * most + (1.0 + most) * model.function_lost)
    bias = np.maximum(np.abs(signal.bias), 2.0 * model.biases)
    if isinstance(signal, Convolution):
        terms = np.full(signal.size, signal.taps)
        rows = upper(np.abs(signal.kernel).sum(axis=0), gamma(signal.taps))
        sums, moved = upper(rows * size), upper(rows * error)
    else:
        weight = np.abs(signal.weight)
        rows, terms = weight.sum(axis=1), np.count_nonzero(weight, axis=1)
        sums = np.minimum(upper_product(weight, size), upper(norm_above(weight) * source.group_norms(1)[0]))
        moved = upper_product(weight, error)
    lost = model.lost * (terms + OPERATIONS + rows + (terms + 1.0) * most.max())
    total = upper(sums + moved + bias + rows)
    require(2.0 * total.max() < model.largest, f"numbers may exceed the largest one of {model.format}")
    return upper(moved + model.relative_error(terms + 2, OPERATIONS) * upper(sums + moved + bias) + lost)


class GateError(NamedTuple):
    """Errors of a computed decay: at most ``share (1 - a) + fixed``.

    Attributes:
        share: relative error of ``1 - a``, or of ``-ln a``, which is at least that.
        fixed: error of the function that gives ``a``.
        step: relative error of the step of a ``SoftplusGate``.
    """

    share: Array
    fixed: Array
    step: Array


def gate_error(gate: Any, model: ExecutionModel) -> GateError:
    """Bound the errors of the decays of every channel or head, ``(units,)`` or ``(units, k)``.

    Raises:
        Refused: a gate without an analysis, or errors that are too large for one.
    """
    e = [signal_error(signal, model) for signal in gate.signals]
    own, lost = model.function_error, model.function_lost
    unit = own_operations(model)
    stored = 0.0 if model.weights == "stored" else FORMATS[model.weights].unit
    step, fixed = np.zeros(gate.units), np.full(gate.units, own + 2.0 * lost + unit)
    if isinstance(gate, SoftplusGate) and not gate.growing:
        step = e[0] + 3.0 * own + SOFTPLUS_CUT + unit + stored
        shape = (gate.units, *(1,) * (gate.log_rate.ndim - 1))
        log = step.reshape(shape) + own + stored * np.abs(gate.log_rate) + unit
        fixed = own + 4.0 * lost * (1.0 + gate.rate[1]) * (1.0 + gate.step[1].reshape(shape))
    elif isinstance(gate, RGLRUGate):
        log = e[0] + 4.0 * own + SOFTPLUS_CUT + stored * np.abs(gate.parameter) + unit
        fixed = own + 64.0 * lost * (1.0 + softplus(gate.parameter, gate.parameter)[1])
    elif isinstance(gate, SigmoidGate) and not gate.floor.any() and gate.root == 1.0 and gate.cap is None:
        log = e[0]
    elif isinstance(gate, RatioGate):
        ends = [logistic(*signal.bounds)[0] for signal in gate.signals]
        logs = sum(-np.log(end) for end in ends)
        log = add_up(e[0], e[1], 4.0 * own * (1.0 + logs), *(4.0 * lost / end for end in ends))
    else:
        raise Refused("rounding errors of this gate are not covered")
    require((log <= 0.4).all(), "rounding errors of pre-activations are too large: up to 0.4 are covered")
    return GateError(upper(np.expm1(log)), upper(fixed), upper(np.expm1(step)))


Drive = tuple[Array, Array, Array]
"""Bounds ``(units, k)`` of ``tau`` and of exact states from zero, and of the error of the computed addend ``b``: a part
over ``1 - a`` of the step, and a part without."""


def _step_drive(layer: Any, model: ExecutionModel, made: GateError, unit: float) -> Drive:
    gate, injection, units = layer.gate, layer.injection, layer.units
    values, keys = ((x.magnitude, signal_error(x, model)) for x in injection.signals)
    x, dx = (v.reshape(units, -1, 1) for v in values)
    y, dy = (np.repeat(k.reshape(injection.groups, 1, -1), units // injection.groups, axis=0) for k in keys)
    phi, most, step = (v.reshape(units, 1, -1) for v in (step_parts(layer)[0], 1.0 + gate.step[1], made.step))
    product = upper((x + dx) * (y + dy))
    changed = upper((step + 2.0 * unit) * product + upper(dx * (y + dy) + x * dy))
    lost = 8.0 * model.function_lost * most * (1.0 + x + dx) * (1.0 + y + dy)
    return upper(phi * upper(x * y)), upper(phi * changed), upper(lost)


def _convex_drive(layer: Any, model: ExecutionModel, made: GateError, unit: float) -> Drive:
    injection, (low, high) = layer.injection, convex_range(layer.injection)
    require(made.share.ndim == 1, "one decay a channel is needed")
    size, error = np.maximum(np.abs(low), np.abs(high)), signal_error(injection.values, model)
    if injection.activation != "identity":
        most = upper(injection.values.magnitude + error + 1.0)
        error = upper(SILU_SLOPE * error + (model.function_error + unit + model.function_lost) * most)
    run, fixed = upper(size + error), upper(made.fixed + 2.0 * unit)
    return size, upper(error + (made.share + 2.0 * unit) * run), upper((1.0 + unit) * fixed * run + 4.0 * model.lost)


def _root_drive(layer: Any, model: ExecutionModel, made: GateError, unit: float) -> Drive:
    values, insert = layer.injection.signals
    size, error, gate = values.magnitude, signal_error(values, model), logistic(*insert.bounds)[1]
    room = rooms(layer)[:, 0]
    root = upper(np.sqrt(quotient(np.array(2.0), room)))  # of (1 + a) / (1 - a), at least one
    changed = upper(made.share + quotient(3.0 * (made.fixed + unit), room))  # of the square root
    require((changed <= 0.5).all(), "the decay may be too close to one: sqrt(1 - a^2) has no proved digit")
    moved = upper(0.25 * signal_error(insert, model) + 2.0 * model.function_error + model.function_lost)
    share = (changed + 2.0 * unit) * (gate + moved) * (size + error) + moved * (size + error) + gate * error
    return upper(root * upper(gate * size)), upper(root * upper(share)), upper(8.0 * model.lost * (2.0 + size + error))


def drive_error(layer: GatedLinearLayer, model: ExecutionModel, gate: GateError) -> Drive:
    """Bound the addend of a step and its error.

    Raises:
        Refused: an injection without an analysis, or computed weights.
    """
    drives = {StepInjection: _step_drive, ConvexInjection: _convex_drive, RootInjection: _root_drive}
    drive = required(drives.get(type(layer.injection)), "rounding errors of this injection are not covered")
    require(model.weight_error == 0.0, "computed weights are not covered for gated linear layers")
    return drive(layer, model, gate, own_operations(model))
