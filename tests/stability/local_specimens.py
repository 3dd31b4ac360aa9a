"""Small classifiers of every kind, the radius that brute force finds, and exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray


def gated(rng: np.random.Generator, kind: str, inputs: int = 2, hidden: int = 3, **options: Any) -> GatedCell:
    rows = (4 if kind == "lstm" else 3) * hidden
    weights = rng.normal(size=(rows, inputs)), rng.normal(size=(rows, hidden)), rng.normal(size=rows)
    return GatedCell(kind, *weights, rng.normal(size=rows), **options)


def plain(rng: np.random.Generator, activation: str = "tanh", inputs: int = 2, hidden: int = 3) -> DrivenSystem:
    W, E = rng.normal(size=(hidden, hidden)), rng.normal(size=(hidden, inputs))
    own = LureSystem(0.3 * rng.normal(size=(hidden, hidden)), rng.normal(size=(hidden, hidden)), W, dt=1.0)
    F = rng.normal(size=(hidden, inputs))
    return DrivenSystem(own, activation, E, rng.normal(size=hidden), F)


def flow(rng: np.random.Generator, method: str, inputs: int = 2, hidden: int = 3) -> DrivenSystem:
    base = LureSystem.recurrent(rng.normal(size=(hidden, hidden)), rng.normal(size=(hidden, hidden)))
    E, b = rng.normal(size=(hidden, inputs)), rng.normal(size=hidden)
    system = base.discretise(method, 0.3)
    return DrivenSystem(
        system, "tanh", np.tile(E, (system.channels // hidden, 1)), np.tile(b, system.channels // hidden)
    )


def classifiers(seed: int = 0) -> dict[str, Classifier]:
    """One of every kind of network; both reductions."""
    rng = np.random.default_rng(seed)
    kinds: dict[str, Any] = {
        "tanh": plain(rng),
        "sigmoid": plain(rng, "sigmoid"),
        "relu": plain(rng, "relu"),
        "leaky": plain(rng, "leaky_relu"),
        "euler": flow(rng, "euler"),
        "midpoint": flow(rng, "midpoint"),
        "lstm": gated(rng, "lstm"),
        "gru": gated(rng, "gru"),
        "gru, reset before": gated(rng, "gru", reset_after=False),
        "stack": LayerStack([flow(rng, "midpoint"), gated(rng, "lstm", 3), gated(rng, "gru", 3), plain(rng, inputs=3)]),
    }
    made = {}
    for k, (name, network) in enumerate(kinds.items()):
        width = network.layers[-1].outputs if name == "stack" else network.outputs
        head = rng.normal(size=(3, width)), rng.normal(size=3)
        made[name] = Classifier(network, *head, ("last", "mean")[k % 2])
    return made


def slopes(classifier: Classifier, x: Array, label: int) -> tuple[Array, Array]:
    """Margins ``(B, k)`` and their gradients ``(B, k, T, p)`` by central differences."""

    def margins(x: Array) -> Array:
        logits = classifier.logits(x)
        return logits[..., [label]] - logits

    step = 1e-6
    moves = step * np.eye(x[0].size).reshape(-1, *x.shape[1:])
    ends = [margins(x[:, None] + sign * moves[None]) for sign in (1.0, -1.0)]
    gradient = (ends[0] - ends[1]) / (2 * step)
    return margins(x), np.moveaxis(gradient, 1, 2).reshape(len(x), -1, *x.shape[1:])


def attacked(
    classifier: Classifier, x: Array, label: int, radius: float, mask: Array | None = None, *, step: bool = False
) -> bool:
    """Return True if ascent from many starts finds another class within the ball."""
    rng = np.random.default_rng(1)
    free = np.ones(x.shape) if mask is None else mask * 1.0

    def into(d: Array) -> Array:
        d = d * free
        size = np.sqrt((d * d).sum(axis=2, keepdims=True) if step else (d * d).sum(axis=(1, 2), keepdims=True))
        return d * np.minimum(1.0, radius / np.maximum(size, 1e-300))

    rivals = np.array([k for k in range(classifier.classes) if k != label])
    rival = np.tile(rivals, 6)
    d = into(rng.normal(size=(len(rival), *x.shape)))
    for k in range(25):
        margin, gradient = slopes(classifier, x + d, label)
        if (margin[:, rivals] <= 0).any():
            return True
        g = gradient[np.arange(len(rival)), rival] * free
        size = np.sqrt((g * g).sum(axis=(1, 2), keepdims=True))
        d = into(d - 2.0 * 0.85**k * radius * g / np.maximum(size, 1e-300))
    return bool((slopes(classifier, x + d, label)[0][:, rivals] <= 0).any())
