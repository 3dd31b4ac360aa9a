r"""Feedback loops of a plant and a controller as one system: sampling, delay, actuator, interconnection.

Each component of the ring (plant, layers of the controller, delay, actuator) has the form

.. math:: x^+ = A x + B w + F u + f, \quad z = C x + D w + E u + b, \quad y = G x + H w + J u + g, \quad w = \phi(z) .

The inputs are eliminated by ``u = S y + N r``, where ``S`` says which component reads which, and ``r`` is the external
input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag, expm

from stability.arguments import as_positive, as_vector
from stability.conversion.subjects import CONTROLLERS, as_subject
from stability.errors import ConfigurationError, DimensionError, IllPosedError, UnsupportedError
from stability.gated_loop import GatedLoop
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.arithmetic.discretization import as_step
from stability.kernel.checks import as_choice, as_matrix, as_slope
from stability.kernel.systems.driven import NONLINEARITIES, ControlLoop, DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.parts import COMPUTED
from stability.kernel.systems.plants import as_plant, is_linear_system, slopes_of

Array = np.ndarray
ANY_STEP, STATIC, CONTINUOUS = "discrete time", "static", "continuous time"
"""Time of a component: one step per sample, whatever its duration; no memory at all; the word for ``None``."""


@dataclass(frozen=True, eq=False)
class Component:
    """Component of a ring; matrices that are not given are zero.

    Attributes:
        parts: coefficient matrices by row (x, z, y) and column (x, w, u, 1), such as ``xu`` for ``F``.
        kind: activation of the channels, a ``GatedCell``, or ``None`` for any function with the slopes.
        slope: ``(alpha, beta)`` of the channels; empty for a cell.
        step: step, ``None`` for continuous time, ``ANY_STEP`` or ``STATIC``.
        name: name in error messages.
    """

    parts: dict[str, Any]
    kind: Any = None
    slope: tuple[Array, Array] = (np.zeros(0), np.zeros(0))
    step: Any = STATIC
    name: str = "controller"

    def __post_init__(self) -> None:
        size = {"1": 1}
        for (row, column), matrix in self.parts.items():
            size[row], size[column] = matrix.shape
        zeros = {r + c: np.zeros((size.get(r, 0), size.get(c, 0))) for r in "xzy" for c in "xwu1"}
        object.__setattr__(self, "parts", zeros | self.parts)


def feedback(
    plant: Any,
    controller: Any,
    *,
    sign: int = -1,
    dt: float | None = None,
    delay: int = 0,
    saturation: Any = None,
    slope: Any = None,
    external: str | None = "reference",
    name: str = "loop",
) -> Any:
    r"""Return the closed loop of a plant and a controller as one subject, for ``certify``, gains and margins.

    .. math:: u = \mathrm{sign} \cdot \mathrm{controller}(y + r), \qquad y = \mathrm{plant}(u + d) .

    At each sample, a recurrent controller reads ``y`` and makes its step, and the plant gets the new output. The
    state of the loop consists of the states of plant, controller and delay, in this order.

    Args:
        plant: a state space or transfer function of ``python-control`` or ``scipy.signal``; matrices ``(A, B, C, D)``
            or ``(A, B, C, D, dt)``; a ``LureSystem`` or ``DrivenSystem``, whose outputs are its states; or
            ``(LureSystem, F, G)``, where the input enters the state by ``F (n, p)`` and the output is ``G x``.
        controller: the same, a number or matrix of static gains, or a list of these in series, such as ``[layer, K]``.
            With ``stability.models`` imported also a layer, a module of ``torch.nn`` with or without linear layers,
            and the path of a file, such as an ONNX file.
        sign: -1 for negative feedback (the default of textbooks), +1 for positive feedback.
        dt: sampling period of a continuous linear plant with a discrete controller. The plant is discretized exactly
            for inputs that are constant between samples (zero-order hold).
        delay: number of samples between the controller's output and the plant's input.
        saturation: limits of the actuator in front of the plant: a number ``u_max``, or ``(low, high)``, each a number
            or a vector ``(p,)``.
        slope: slopes of an unknown nonlinearity in front of the plant, as in ``LureSystem.from_state_space``.
        external: ``"reference"``: the input of the subject is ``r``, added to what the controller reads;
            ``"disturbance"``: it is ``d``, added to the plant's input; ``None``: the loop has no input, and its
            region of attraction is of interest (``stability.regional``).
        name: name in reports.

    Returns:
        A ``DrivenSystem`` with external input if all channels have one known activation, or if there are none. A
        ``ControlLoop`` without input and without constant terms for several known ones, for ``sin``, and for
        ``external=None``; a ``LureSystem`` for other channels; a ``stability.gated_loop.GatedLoop`` for an LSTM or GRU.
        A constant term of the next state, such as the bias of a linear read-out, becomes one channel with a constant
        argument.

    Raises:
        DimensionError: numbers of inputs and outputs that do not fit.
        ConfigurationError: different time steps, or an invalid option.
        IllPosedError: a loop of direct feed-through without a proved unique solution.
        UnsupportedError: a component that is no system with inputs and outputs.

    Source:
        K. J. Astrom, B. Wittenmark, *Computer-Controlled Systems*, 3rd ed., section 2.3 (sampling, delays).

    Example:
        >>> from stability import certify
        >>> double_integrator = ([[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], np.eye(2), np.zeros((2, 1)))
        >>> loop = feedback(double_integrator, np.array([[1.0, 2.0]]), dt=0.1)
        >>> str(certify(loop).verdict), loop.system.dt
        ('certified', 0.1)
    """
    if external is not None:
        as_choice("external input", external, ("reference", "disturbance"))
    if isinstance(sign, bool) or sign not in (-1, 1):
        raise ConfigurationError(f"sign must be -1 (negative feedback) or +1 (positive feedback), got {sign!r}")
    if isinstance(delay, bool) or not isinstance(delay, (int, np.integer)) or delay < 0:
        raise ConfigurationError(f"delay must be a number of samples >= 0, got {delay!r}")
    (first,) = _components(plant, "plant", 0)
    step: Any = first.step if dt is None else as_step(dt)
    first = _sampled(first, step) if first.step is None and step is not None else first
    controller = np.array([[controller]]) if isinstance(controller, (int, float)) else controller
    ring = [first, *_components(controller, "controller", len(first.parts["yu"]))]
    signs, p = [1.0] * (len(ring) - 1) + [float(sign)], first.parts["yu"].shape[1]
    if delay:
        n = delay * p
        shift = {"xx": np.eye(n, k=-p), "xu": np.eye(n, p), "yx": np.eye(p, n, k=n - p)}
        ring.append(Component(shift, step=ANY_STEP, name="delay"))
    for component in ring:
        _refuse_other_step(component.step, step)
    if saturation is not None or slope is not None:
        ring.append(_actuator(saturation, slope, p))
    parts = _close(ring, signs + [1.0] * (len(ring) - len(signs)), int(external == "reference"))
    if not any(isinstance(component.kind, GatedCell) for component in ring):
        return _system(parts, ring, step, name, external is not None)
    maps = [(c.kind, len(c.parts["zu"])) for c in ring if len(c.parts["zu"])]
    return GatedLoop(parts, maps, step, name)


def _system(parts: dict[str, Any], ring: Sequence[Component], step: float | None, name: str, driven: bool) -> Any:
    """Return a loop without gated cells: a network, or a Lur'e system if its channels have not one known activation."""
    kinds = {component.kind for component in ring if len(component.slope[0])}
    alpha, beta = (np.concatenate([component.slope[k] for component in ring]) for k in (0, 1))
    A, B, C, D = (parts[key] for key in ("xx", "xw", "zx", "zw"))
    one = len(kinds) <= 1 and kinds <= ACTIVATIONS.keys()
    if (not one or not driven) and kinds <= NONLINEARITIES.keys() and not (parts["z1"].any() or parts["x1"].any()):
        return ControlLoop(A, B, C, D, [c.kind for c in ring for _ in c.slope[0]], step)
    if not one:
        return LureSystem(A, B, C, D, (alpha, beta), step)
    activation, E, b = next(iter(kinds), "identity"), parts["zr"], parts["z1"][:, 0]
    if parts["x1"].any():
        phi, row, point = ACTIVATIONS[activation], ((0, 1), (0, 0)), 2.0  # where no activation is zero or has a kink
        B = np.hstack([B, parts["x1"] / phi.function(np.array(point))])
        C, D, E, b = np.pad(C, row), np.pad(D, (0, 1)), np.pad(E, row), np.append(b, point)
        alpha, beta = np.append(alpha, phi.slope[0]), np.append(beta, phi.slope[1])
    system = LureSystem(A, B, C, D, (alpha, beta), step)
    return DrivenSystem(system, activation, E, b, parts["xr"], name, part=COMPUTED)


def _close(ring: list[Component], signs: Sequence[float], entry: int) -> dict[str, Any]:
    """Connect each output to the next component's input; return the matrices of the loop, with columns x, w, r, 1.

    Raises:
        DimensionError: an output of another size than the next input.
        IllPosedError: the outputs are not determined by states and channels.
    """
    outputs, inputs = zip(*(c.parts["yu"].shape for c in ring))
    for k, component in enumerate(ring):
        if inputs[k] != outputs[k - 1]:
            source = f"it is the output of the {ring[k - 1].name}, whose size a linear read-out or a matrix changes"
            raise DimensionError(f"the input of the {component.name}", (inputs[k],), (outputs[k - 1],), source)
    whole: dict[str, Any] = {key: block_diag(*(c.parts[key] for c in ring)) for key in ring[0].parts if key[1] != "1"}
    whole |= {f"{row}1": np.vstack([c.parts[f"{row}1"] for c in ring]) for row in "xzy"}
    S = np.roll(np.diag(np.repeat(signs, outputs)), outputs[-1], axis=0)
    N = np.eye(len(S), inputs[entry], k=-entry * inputs[0])
    whole |= {f"{row}r": whole[f"{row}u"] @ N for row in "xzy"}
    direct = np.eye(len(S)) - whole["yu"] @ S
    if np.linalg.cond(direct) > 1e12:  # the solution would keep less than four digits
        raise IllPosedError(
            "the loop of direct feed-through has no unique solution (I - D_plant D_controller is singular): add a "
            "delay, or make plant or controller strictly proper (D = 0)"
        )
    return {
        row + column: whole[row + column] + whole[f"{row}u"] @ S @ np.linalg.solve(direct, whole[f"y{column}"])
        for row in "xz"
        for column in "xwr1"
    }


def _sampled(plant: Component, dt: float) -> Component:
    """Discretize a continuous linear plant for inputs that are constant over each step.

    Raises:
        UnsupportedError: a plant with a nonlinearity.
    """
    if len(plant.slope[0]):
        raise UnsupportedError(
            "only linear plants are sampled exactly: discretize this one first, by system.discretise('euler', dt)"
        )
    n, p = plant.parts["xu"].shape
    moved = expm(dt * np.block([[plant.parts["xx"], plant.parts["xu"]], [np.zeros((p, n + p))]]))[:n]
    return replace(plant, parts={**plant.parts, "xx": moved[:, :n], "xu": moved[:, n:]}, step=dt)


def _refuse_other_step(step: Any, loop: float | None) -> None:
    """Raise an error for a component that does not run at the step of the loop."""
    times: Any = step, loop
    fits = step in (STATIC, loop) or (step == ANY_STEP and loop is not None)
    if not fits and (None in times or not math.isclose(*times, rel_tol=1e-9)):
        raise ConfigurationError(
            f"plant and controller need the same step, got {loop or CONTINUOUS} and {step or CONTINUOUS}: give dt to "
            "sample a continuous plant; discretize a continuous controller, for example by scipy's to_discrete"
        )


def _components(value: Any, name: str, width: int) -> list[Component]:
    """Return a plant or controller as components in series.

    Args:
        value: see ``feedback``.
        name: ``plant`` or ``controller``.
        width: number of signals that the first component reads, for activations.

    Raises:
        UnsupportedError: something else.
    """
    recurrent = name == "controller"
    if isinstance(value, Component):
        return [value]
    if recurrent and isinstance(value, str) and value in ACTIVATIONS:
        return [_channels(value, ACTIVATIONS[value].slope, -np.ones(width), np.ones(width))]
    reader = next((read for test, read in CONTROLLERS if recurrent and test(value)), None)
    if recurrent and (reader is not None or isinstance(value, list)):
        out: list[Component] = []
        for layer in value if reader is None else reader(value):
            out += _components(layer, name, len(out[-1].parts["yu"]) if out else width)
        return out
    if recurrent and isinstance(value, np.ndarray):
        return [Component({"yu": as_matrix("controller", value)})]
    if is_linear_system(value) or (isinstance(value, tuple) and not isinstance(value[0], LureSystem)):
        plant = as_plant(value)
        return [Component(dict(zip(("xx", "xu", "yx", "yu"), vars(plant).values())), step=plant.dt, name=name)]
    system, F, G = value if isinstance(value, tuple) else (as_subject(value), None, None)
    if isinstance(system, LayerStack) and recurrent and system.directions == 1:
        return [component for layer in system.layers for component in _components(layer, name, width)]
    if isinstance(system, GatedCell) and recurrent:  # its map is one function of state and input
        n, p, output = system.states, system.inputs, system.output(np.eye(system.states)).T
        parts = {"xw": np.eye(n), "zx": np.eye(n + p, n), "zu": np.eye(n + p, p, k=-n), "yw": output}
        return [Component(parts, system, step=ANY_STEP)]
    if isinstance(system, (LureSystem, DrivenSystem)):
        return [_lure(system, F, G, name)]
    raise UnsupportedError(f"a {name} must be a system with inputs and outputs, got a {type(system).__name__}")


def _lure(subject: LureSystem | DrivenSystem, F: Any, G: Any, name: str) -> Component:
    """Return a Lur'e system or network; a discrete network that is a controller gives its next state."""
    system, n = subject.system, subject.states
    parts = {"xx": system.A, "xw": system.B, "zx": system.C, "zw": system.D}
    parts["xu"] = np.eye(n) if F is None else as_matrix("F", F, (n, None))
    names = set(getattr(subject, "activations", ())) if name == "plant" else set[str]()
    kind = names.pop() if len(names) == 1 else None
    output = np.eye(n) if G is None else as_matrix("G", G, (None, n))
    if isinstance(subject, DrivenSystem):
        kind = subject.activation
        parts |= {"xu": subject.F, "zu": subject.E, "z1": subject.b[:, None]}
    if kind is None or name == "plant" or not system.is_discrete:
        return Component(parts | {"yx": output}, kind, (system.alpha, system.beta), system.dt, name)
    following = {f"y{column}": parts[f"x{column}"] for column in "xwu"}
    return Component(parts | following, kind, (system.alpha, system.beta), ANY_STEP, name)


def _channels(kind: Any, slope: Any, low: Array, high: Array) -> Component:
    """Return ``y = middle + scale phi((u - middle) / scale)``, which takes -1 and 1 to ``low`` and ``high``."""
    scale, middle = 0.5 * (high - low), 0.5 * (high + low)
    parts = {"zu": np.diag(1.0 / scale), "z1": -middle / scale, "yw": np.diag(scale), "y1": middle}
    parts = {key: value.reshape(len(low), -1) for key, value in parts.items()}
    return Component(parts, kind, as_slope(slope, len(low)), name="actuator")


def _actuator(saturation: Any, slope: Any, size: int) -> Component:
    """Return the nonlinearity in front of the plant.

    Raises:
        ConfigurationError: both limits and slopes, limits that are not finite, or a lower limit above the upper one.
    """
    if saturation is None:
        return _channels(None, slopes_of(slope), -np.ones(size), np.ones(size))
    words = f"saturation must be a limit > 0 or (low, high), without slope, got {saturation!r} and slope={slope!r}"
    ends = saturation if isinstance(saturation, (tuple, list)) else (-as_positive("saturation", saturation), saturation)
    low, high = (as_vector("saturation", np.zeros(size) + end, size, words) for end in ends)
    if slope is not None or not (low < high).all():
        raise ConfigurationError(words)
    return _channels("saturation", (0.0, 1.0), low, high)
