r"""Conversion of echo state networks, given by matrices or by reservoirpy, to networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stability.arguments import as_vector
from stability.errors import ConfigurationError, DimensionError, DisagreementError, UnsupportedError
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.checks import as_choice, as_matrix
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem

EQUATIONS = ("internal", "external")
LIBRARY = "reservoirpy"
LOOP = "loop-with-read-out of reservoir"
"""Part that claims name if the read-out is fed back."""


def reservoir_system(
    W: Any,
    Win: Any,
    bias: Any = None,
    *,
    leak: Any = 1.0,
    activation: str = "tanh",
    equation: str = "internal",
    Wout: Any = None,
    bout: Any = 0.0,
    name: str = "reservoir",
) -> DrivenSystem:
    r"""Return an echo state network as a network to certify.

    ``internal``: :math:`h^+ = (1 - a) h + a\,\phi(W h + W_{in} u + b)`. ``external``: the state is the pre-activation,
    :math:`r^+ = (1 - a) r + a (W \phi(r) + W_{in} u + b)`; the subject's state is then ``r - b``.

    Args:
        W: ``(n, n)`` recurrent weights, dense or sparse.
        Win: ``(n, p)`` input weights, dense or sparse.
        bias: ``(n,)``, one number, or ``None`` for none.
        leak: ``a`` in (0, 1], one number or one for each unit.
        activation: a name of ``stability.kernel.arithmetic.activations``.
        equation: ``internal`` or ``external``.
        Wout: ``(p, n)`` read-out whose output is the next input: the network is the free-running loop with the
            recurrent weights ``W + Win Wout``, whose input has no effect. ``None``: the reservoir with its inputs.
        bout: ``(p,)`` bias of the read-out, or one number.
        name: name in reports.

    Returns:
        The network.

    Raises:
        ConfigurationError: an unknown name, or a leak out of its range.
        DimensionError: shapes that do not fit.

    Source:
        H. Jaeger, M. Lukosevicius, D. Popovici, U. Siewert, "Optimization and applications of echo state networks with
        leaky-integrator neurons" (2007).

    Example:
        >>> network = reservoir_system([[0.0, 0.5], [-0.5, 0.0]], [[1.0], [0.0]], leak=0.5)
        >>> network.states, network.inputs, network.advance(np.zeros(2), np.zeros(1)).tolist()
        (2, 1, [0.0, 0.0])
    """
    n = np.shape(_dense(W))[0] if np.ndim(_dense(W)) == 2 else None
    weights, entering = as_matrix("W", _dense(W), (n, n)), as_matrix("Win", _dense(Win), (n, None))
    n = len(weights)
    as_choice("activation", activation, tuple(ACTIVATIONS))
    as_choice("equation", equation, EQUATIONS)
    b = _per_unit("bias", 0.0 if bias is None else bias, n)
    a = _per_unit("leak", leak, n)
    if not ((a > 0.0) & (a <= 1.0)).all():
        raise ConfigurationError(f"leak must lie in (0, 1], got values from {a.min():g} to {a.max():g}")
    if Wout is not None:
        p, read = entering.shape[1], _dense(Wout)
        if np.shape(read) != (p, n):
            raise DimensionError("Wout", (p, n), np.shape(read), "leave it out for the reservoir with its inputs")
        weights, b = weights + entering @ as_matrix("Wout", read), b + entering @ _per_unit("bout", bout, p)
        entering = np.zeros_like(entering)
    decay, slope, part = np.diag(1.0 - a), ACTIVATIONS[activation].slope, "" if Wout is None else LOOP
    if equation == "internal":
        system = LureSystem(decay, np.diag(a), weights, None, slope, 1.0)
        return DrivenSystem(system, activation, entering, b, name=name, part=part)
    system = LureSystem(decay, a[:, None] * weights, np.eye(n), None, slope, 1.0)
    return DrivenSystem(system, activation, np.zeros_like(entering), b, a[:, None] * entering, name=name, part=part)


def _dense(value: Any) -> Any:
    return value.toarray() if callable(getattr(value, "toarray", None)) else value


def _per_unit(what: str, value: Any, n: int) -> np.ndarray:
    flat = np.asarray(_dense(value)).reshape(-1)
    return as_vector(
        what, np.full(n, flat[0]) if flat.size == 1 else flat, n, f"{what} must be one number, or one number per unit"
    )


def is_reservoirpy_node(value: Any) -> bool:
    """Return True if the class of an object, or one of its bases, is defined in ``reservoirpy``."""
    return any(kind.__module__.partition(".")[0] == LIBRARY for kind in type(value).__mro__)


def system_from_reservoirpy(node: Any) -> DrivenSystem:
    """Return the network of a ``reservoirpy`` reservoir, without importing that library.

    Args:
        node: an initialized ``Reservoir``, or a model of one with a trained linear read-out, which stands for their
            loop: ``W + Wfb Wout`` with inputs if the reservoir has feedback, else the free-running ``W + Win Wout``.

    Returns:
        The map of the node; noise, which differs at each step, is not part of it.

    Raises:
        DisagreementError: the node's own step gives other numbers than its matrices.
        UnsupportedError: another node or model, or a ``Reservoir`` that is not initialized or has feedback without
            read-out, noise in its state or an unknown activation.
    """
    node, readout = loop_nodes(node) if hasattr(node, "nodes") else (node, None)
    kind = type(node).__name__
    if kind != "Reservoir" or not all(hasattr(node, part) for part in ("W", "Win", "lr")):
        raise UnsupportedError(
            f"expected a reservoirpy Reservoir, got a reservoirpy {kind}: pass the Reservoir node of the model, with "
            "the map h+ = (1 - lr) h + lr f(W h + Win u + bias)"
        )
    if not getattr(node, "initialized", True) or any(callable(getattr(node, k, None)) for k in ("W", "Win")):
        raise UnsupportedError(f"this {kind} has no weights yet: run it on data or call its method initialize first")
    has_feedback = np.prod(getattr(getattr(node, "Wfb", None), "shape", (0,))) > 0
    if has_feedback and (readout is None or _name(getattr(node, "fb_activation", "identity")) != "identity"):
        raise UnsupportedError(
            f"the feedback (Wfb) of this {kind} needs its model, with a read-out and without activation: pass the model"
        )
    if any(np.any(np.asarray(getattr(node, k, 0.0)) != 0) for k in ("noise_rc", "noise_in")):
        raise UnsupportedError(f"this {kind} adds noise to its state: certify it with noise_rc = noise_in = 0")
    name = _name(getattr(node, "activation", "tanh"))
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"this {kind} has the activation {name!r}; supported are {', '.join(ACTIVATIONS)}")
    options = {"leak": node.lr, "activation": name, "equation": getattr(node, "equation", "internal")}
    matrices = node.W, node.Win, getattr(node, "bias", None)
    network = reservoir_system(*matrices, **options, name=f"reservoirpy {kind}")
    if readout is None or not has_feedback:
        _compare(node, network)
    if readout is None:
        return network
    loop = {"Wout": np.transpose(readout.Wout), "bout": getattr(readout, "bias", 0.0), "name": network.name}
    closed = reservoir_system(node.W, node.Wfb if has_feedback else node.Win, matrices[2], **options, **loop)
    return replace(closed, E=network.E, F=network.F) if has_feedback else closed


def loop_nodes(model: Any) -> tuple[Any, Any]:
    """Return reservoir and read-out of a model.

    Raises:
        UnsupportedError: a model with other nodes.
    """
    nodes = [node for node in model.nodes if type(node).__name__ not in ("Input", "Output")]
    readouts = [node for node in nodes if getattr(node, "Wout", None) is not None]
    if len(nodes) != 2 or len(readouts) != 1:
        names = ", ".join(type(node).__name__ for node in nodes)
        raise UnsupportedError(f"expected a model of one Reservoir and one trained linear read-out, got {names}")
    return next(node for node in nodes if node is not readouts[0]), readouts[0]


def _name(function: Any) -> str:
    return function if isinstance(function, str) else getattr(function, "__name__", repr(function))


def _compare(node: Any, network: DrivenSystem) -> None:
    """Compare one step of the node and of the network, from a random state under a random input.

    Raises:
        DisagreementError: they differ by more than rounding.
    """
    step: Any = getattr(node, "_step", None)
    if not callable(step) or getattr(node, "equation", None) == "external":  # whose state is another one
        return
    rng = np.random.default_rng(0)
    state, inputs = rng.uniform(-1, 1, network.states), rng.normal(size=network.inputs)
    result: Any = step({"out": state}, inputs)
    computed = np.asarray(result["out"], dtype=np.float64).reshape(-1)
    expected = network.advance(state, inputs)
    error = float(np.abs(computed - expected).max()) if computed.shape == expected.shape else np.inf
    if not error <= 1e-5 * (1.0 + float(np.abs(expected).max())):
        raise DisagreementError(
            f"this {type(node).__name__} computes another step than its matrices: the largest difference is "
            f"{error:.3g}, the largest entry {float(np.abs(expected).max()):.3g}"
        )
