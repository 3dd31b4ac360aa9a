"""The largest balls around single inputs in which the class is proved to stay, in either norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stability.certificate import Claim
from stability.local import ellipsoids, gates, linear_balls, planes
from stability.local.classifier import Classifier
from stability.local.exact import pays, settled
from stability.local.request import Request, further, request
from stability.local.single import covers, found_alone
from stability.systems.checks import as_choice
from stability.threads import threads_for

ENGINES: dict[str, Callable[[Request], list[Claim | None]]] = {"l2": ellipsoids.proved, "linf": planes.proved}
"""The search of each norm; what it gives was accepted by the checker's rules."""
NORMS = tuple(ENGINES)


def largest_balls(
    classifier: Classifier,
    x: Any,
    y: Any,
    *,
    norm: str = "l2",
    upper: Any = None,
    epsilon: float | None = None,
    mask: Any = None,
    bounds: Sequence[Any] | None = None,
    budget: str = "total",
    time_limit: float | None = None,
) -> list[Claim | None]:
    """For each input the claim that no perturbation within the largest radius that was proved changes its class.

    Args:
        classifier: the network with its head.
        x: ``(B, T, p)`` inputs.
        y: ``(B,)`` their classes; where the network says otherwise, there is no claim.
        norm: ``l2`` or ``linf``, over the whole sequence.
        upper: ``(B,)`` radii at which an attack succeeds, infinite where none is known: no ball is looked for beyond.
        epsilon: only decide whether a ball of this radius is safe; ``None``: find the largest.
        mask: ``(T, p)`` true where an input may change; ``None``: everywhere.
        bounds: ``(low, high)`` between which perturbed inputs stay. In l2 only pieces of balls make use of
            them; what holds without clipping holds with it.
        budget: in l2, ``total``: the perturbation of the whole sequence has norm ``epsilon`` at most; ``step``: that
            of every step has. In l_inf both are the same.
        time_limit: seconds a sample for the search, proofs not counted; ``None``: no limit.

    Returns:
        Claims of ``local_robustness``, each accepted by its rule; ``None``: misclassified, or nothing was proved.

    Raises:
        UnsupportedError: a network for which no local certificate is known in this norm.
        ConfigurationError: an unknown option, labels that are no classes, a radius that is not positive, bounds that an
            input breaks.
        DimensionError: sizes that do not fit.

    Example:
        >>> import numpy as np
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> line = DrivenSystem(LureSystem.linear([[0.5]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        >>> made, x = Classifier(line, [[1.0], [-1.0]]), np.ones((1, 2, 1))
        >>> [round(largest_balls(made, x, [0], norm=norm)[0].value, 6) for norm in NORMS]
        [1.341641, 1.0]
        >>> round(1.5 / 1.25**0.5, 6), 1.5 / 1.5
        (1.341641, 1.0)
    """
    as_choice("norm", norm, NORMS)
    told: dict[str, Any] = {"upper": upper, "epsilon": epsilon, "mask": mask, "bounds": bounds, "budget": budget}
    with threads_for(max(layer.states for layer in classifier.layers)):
        return _proved(request(classifier, x, y, **told, time_limit=time_limit), norm)


def _proved(asked: Request, norm: str) -> list[Claim | None]:
    """The better ones of the claims about networks of one state, of a few units, and of those that there are of all."""
    claims: list[Claim | None] = [None] * len(asked.y)
    cells, boxes = (gates.covers(asked, norm), gates.all_gates), (pays(asked, norm), settled)
    known = [(covers(asked), found_alone), *((cells, boxes) if gates.first(asked, norm) else (boxes, cells))]
    affine = [linear_balls.all_linear] if linear_balls.covers(asked) else []
    searches = affine + [search for fits, search in known if fits]
    for search in searches:
        if len(asked.right):
            found, done, left = search(asked, norm)
            claims = _better(claims, found)
            asked = replace(asked, right=asked.right[~done[asked.right]], time_limit=left)
    if searches and not len(asked.right):
        return claims
    return _better(claims, ENGINES[norm](asked))  # it refuses networks that it has no proofs for, asked or not


def _better(claims: list[Claim | None], others: list[Claim | None]) -> list[Claim | None]:
    return [further(a, b) for a, b in zip(claims, others)]
