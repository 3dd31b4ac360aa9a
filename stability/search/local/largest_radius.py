"""Search for the largest certified radius of single inputs, in l2 or l_inf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stability.kernel.checks import as_choice
from stability.kernel.format.claims import Claim
from stability.kernel.systems.classifier import Classifier
from stability.search.local import affine_search, ellipsoid_search, linf_search
from stability.search.local.request import Request, checked_request, larger_claim
from stability.threads import threads_for

ENGINES: dict[str, Callable[[Request], list[Claim | None]]] = {
    "l2": ellipsoid_search.l2_claims,
    "linf": linf_search.proved,
}
"""Search for each norm; it returns only claims that the checker accepts."""
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
    """Certify for each input the largest radius within which no perturbation changes its class.

    Args:
        classifier: the network with its head.
        x: ``(B, T, p)`` inputs.
        y: ``(B,)`` their classes; a misclassified input has no claim.
        norm: ``l2`` or ``linf``, over the whole sequence.
        upper: ``(B,)`` radii at which an attack succeeds, infinite where none is known; only smaller radii are tried.
        epsilon: radius to decide; ``None``: search for the largest.
        mask: ``(T, p)``, True where an input may change; ``None``: everywhere.
        bounds: ``(low, high)`` of the perturbed inputs. In l2 only proofs for affine networks use them; claims without
            bounds also hold with them.
        budget: in l2, ``total`` bounds the norm of the whole perturbation, ``step`` the norm of the perturbation at
            every step. In l_inf both are the same.
        time_limit: seconds per input for the search, without the final check of proofs; ``None``: no limit.

    Returns:
        Claims of ``local_robustness``, each accepted by the checker; ``None`` if misclassified or not proved.

    Raises:
        UnsupportedError: a network without a known local certificate in this norm.
        ConfigurationError: an unknown option, invalid labels, a radius that is not positive, or inputs out of bounds.
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
    options: dict[str, Any] = {"upper": upper, "epsilon": epsilon, "mask": mask, "bounds": bounds, "budget": budget}
    with threads_for(max(layer.states for layer in classifier.layers)):
        return _proved(checked_request(classifier, x, y, **options, time_limit=time_limit), norm)


def _proved(request: Request, norm: str) -> list[Claim | None]:
    """Return claims of the rule for affine networks if it applies, else of the norm's search."""
    if not affine_search.applies(request):
        return ENGINES[norm](request)
    exact, settled, time_left = affine_search.affine_claims(request, norm)
    request = replace(request, right=request.right[~settled[request.right]], time_limit=time_left)
    if not len(request.right):
        return exact
    return [larger_claim(a, b) for a, b in zip(exact, ENGINES[norm](request))]
