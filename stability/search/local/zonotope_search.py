"""Search for the largest certified l_inf radius with the zonotope tube.

The remaining margin decreases linearly in the radius at first, then quadratically. One trial determines both terms, so
few trials suffice. A result becomes a claim only if the rule ``local_zonotopes`` accepts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.reachability.input_box import input_box
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.reachability.zonotope_tube import zonotope_tube
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.local_zonotopes import margin_bounds
from stability.search.local.branch_and_bound import About
from stability.search.local.request import is_affine

Array = np.ndarray
KIND = "local_zonotopes"
_WINDOWS, _GATE_WINDOWS = (0, 16), (16, 64)
"""Numbers of steps whose linearization errors keep their symbols, tried in this order; gates have larger errors."""
_INPUT_SYMBOLS = 1024
"""Most symbols of inputs that are kept, those of the last steps."""
# trials, relative tolerance, and share of the upper bound above which a longer window gains little
_TRIALS, _TOLERANCE, _ENOUGH = 12, 4e-3, 0.5
_AFFINE_TOLERANCE = 1e-7
"""Relative tolerance for affine networks, whose radius one trial determines."""
_BACK = (0.0, 1e-6)  # relative reductions of a radius that are tried until the rule accepts it


@dataclass(frozen=True)
class _Trial:
    """Outcome of one radius.

    Attributes:
        radius: the radius.
        share: smallest proved margin relative to its value at radius 0; minus infinity without a tube.
        slope: relative decrease of that margin by the inputs alone, per unit of the radius.
    """

    radius: float
    share: float
    slope: float

    def root(self) -> float:
        """Return the zero of the parabola through the known shares; NaN without a slope."""
        bend = max((1.0 - self.slope * self.radius - self.share) / (self.radius * self.radius), 0.0)
        return 2.0 / (self.slope + float(np.sqrt(self.slope**2 + 4.0 * bend)) + 1e-300)


class ZonotopeSearch:
    """Search for a certified l_inf radius around a long sequence."""

    def __init__(self, about: About) -> None:
        self.about, self.net = about, stages_of(about.classifier)
        moves = about.x.shape[1] if about.mask is None else int((about.mask != 0).sum(axis=1).max(initial=1))
        self.kept = min(len(about.x), max(_INPUT_SYMBOLS // max(moves, 1), 1))
        logits = about.classifier.logits(about.x)
        steps = len(about.x) if about.classifier.reduction == "mean" else 1
        self.margins = steps * (logits[about.label] - logits)
        self.margins[about.label] = np.inf
        self.tolerance = _AFFINE_TOLERANCE if is_affine(self.net) else _TOLERANCE
        windows = _GATE_WINDOWS if any(isinstance(layer, GatedCell) for layer in about.classifier.layers) else _WINDOWS
        self.windows = tuple(dict.fromkeys(min(window, len(about.x)) for window in windows))

    def tried(self, radius: float, window: int) -> _Trial:
        """Compute the margins in the tube of one radius."""
        about, net = self.about, self.net
        box = input_box(about.x, radius, about.mask, about.bounds)
        tube = zonotope_tube(net, box, window, self.kept, lambda: about.deadline.over)
        if tube is None:
            return _Trial(radius, -np.inf, np.nan)
        margins, direct = margin_bounds(about.classifier, net.head, tube, about.label, len(about.x))
        margins[about.label] = direct[about.label] = 0.0
        share = margins / self.margins
        share[about.label] = np.inf
        worst = int(share.argmin())
        if not np.isfinite(share[worst]):
            return _Trial(radius, -np.inf, np.nan)
        return _Trial(radius, float(share[worst]), float(-direct[worst] / self.margins[worst] / radius))

    def claim(self, radius: float, window: int) -> Claim | None:
        """Return the claim, if the rule accepts it."""
        return self.about.claimed(KIND, radius, window=window, kept=self.kept)

    def decided(self, radius: float) -> Claim | None:
        """Return the claim of the given radius, or ``None``."""
        for window in self.windows:
            if self.about.deadline.over:
                break
            if self.tried(radius, window).share > 0.0:
                return self.claim(radius, window)
        return None

    def largest(self, upper: float) -> Claim | None:
        """Return the claim of the largest radius found below ``upper``, or ``None``."""
        radius, window = self.searched(upper)
        for back in _BACK if radius > 0.0 else ():
            claim = self.claim(radius * (1.0 - back), window)
            if claim is not None:
                return claim
        return None

    def searched(self, upper: float) -> tuple[float, int]:
        """Return the largest radius with positive margins, and its window."""
        scale = float(np.abs(self.about.x).max(initial=0.0)) + 1.0
        best, window, high = 0.0, 0, upper
        trial = 0.6 * upper if upper < scale else 1e-2 * scale
        for width in self.windows:
            if width and best > _ENOUGH * high:  # a longer window gains little there
                break
            low, top = best, high
            for _ in range(_TRIALS):
                if self.about.deadline.over or top <= low * (1.0 + self.tolerance) or trial < 1e-12 * scale:
                    break
                proof = self.tried(trial, width)
                if proof.slope > 0.0:  # the linear decrease bounds the radius, up to a tolerance
                    high = min(high, max(1.1 / proof.slope, low))
                top = min(top, high)
                if proof.share > 0.0:
                    low, best, window = trial, trial, width
                else:
                    top = min(top, trial)
                root = proof.root()
                if low == trial and root <= trial * (1.0 + self.tolerance):
                    break
                trial = _following(root, low, top, self.tolerance)
            trial = max(1.3 * best, 0.3 * high)
        return best, window


def _following(root: float, low: float, high: float, tolerance: float) -> float:
    """Return the next radius, slightly below the predicted root, between the two bounds."""
    nearer = root * (1.0 - 0.5 * tolerance)
    if low * (1.0 + 0.5 * tolerance) < nearer < high:  # False for NaN
        return nearer
    return 0.25 * high if not low > 0.0 else 0.5 * (low + high) if low > 0.25 * high else min(2.0 * low, high)


def symbols_of(about: About) -> int:
    """Return the number of symbols of a tube of affine forms around a sequence with all entries moving."""
    layers = about.classifier.layers
    count = sum(len(layer.system.C) if isinstance(layer, DrivenSystem) else 2 * layer.hidden for layer in layers)
    return len(about.x) * (count + about.x.shape[1])
