"""Result of ``fixed_points``: equilibria with their linearization, slow points, and their picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.display import Displayed, Fact

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = np.ndarray
MARKS = {"stable": ("o", "C0"), "saddle": ("X", "C1"), "unstable": ("^", "C3"), "undecided": ("s", "0.5")}


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """Equilibrium that is proved to exist, with the eigenvalues of the Jacobian there.

    Attributes:
        state: ``(n,)``.
        radius: the equilibrium lies within this distance of ``state``, in every coordinate.
        eigenvalues: ``(n,)`` complex, per step or per unit of time.
        eigenvalue_radius: all eigenvalues lie in disks of this radius around ``eigenvalues``; infinite if unproved.
        unstable: number of eigenvalues outside the stability region, proved; ``None`` if it is not decided.
        is_discrete: True if time advances in steps.
    """

    state: Array
    radius: float
    eigenvalues: Array
    eigenvalue_radius: float
    unstable: int | None
    is_discrete: bool

    @property
    def type(self) -> str:
        """Return ``stable``, ``saddle``, ``unstable`` (in all directions) or ``undecided``."""
        if self.unstable is None:
            return "undecided"
        return "saddle" if 0 < self.unstable < len(self.state) else "unstable" if self.unstable else "stable"

    @property
    def time_constants(self) -> Array:
        r"""Return the times ``(n,)`` in which modes change by the factor ``e``, steps for a map.

        .. math:: \tau = -1 / \log |\lambda| \quad (\text{or } -1 / \Re \lambda) .

        Positive: the mode decays; negative: it grows; infinite: neither.
        """
        with np.errstate(divide="ignore"):
            return -1.0 / (np.log(np.abs(self.eigenvalues)) if self.is_discrete else np.real(self.eigenvalues) + 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class FixedPoints(Displayed):
    """Equilibria of a network under one constant input.

    Attributes:
        equilibria: all that were found, stable ones first.
        complete: True if there is proved to be no other equilibrium in ``box``.
        reason: reason why the list is not proved complete; empty if it is.
        box: ``(2, n)`` lower and upper corner of the examined states. If none was given, it is proved to contain every
            equilibrium of the network; ``None`` if no such box is known.
        undecided: ``(k, 2, n)`` boxes of states that may hold further equilibria.
        boxes: number of examined boxes.
        starts: number of starts of Newton's method, besides those from boxes.
        slow_points: ``(k, n)`` local minima of the speed that are no equilibria, if asked for.
        speeds: ``(k,)`` Euclidean norm of the change of the state per step (per unit of time) there.
    """

    equilibria: tuple[FixedPoint, ...]
    complete: bool
    reason: str
    box: Array | None
    undecided: Array = field(repr=False)
    boxes: int
    starts: int
    slow_points: Array = field(repr=False)
    speeds: Array = field(repr=False)

    TABLE = "equilibria"

    @property
    def points(self) -> Array:
        """Return the states ``(k, n)`` of the equilibria."""
        return np.array([p.state for p in self.equilibria]).reshape(len(self.equilibria), self.slow_points.shape[1])

    @property
    def eigenvalues(self) -> Array:
        """Return the eigenvalues ``(k, n)`` of the Jacobians, complex, the least stable first."""
        return np.array([p.eigenvalues for p in self.equilibria], dtype=complex).reshape(self.points.shape)

    @property
    def radii(self) -> Array:
        """Return the radii ``(k,)`` of the boxes around ``points`` that contain the equilibria."""
        return np.array([p.radius for p in self.equilibria])

    @property
    def types(self) -> list[str]:
        """Return the type of each equilibrium."""
        return [p.type for p in self.equilibria]

    def facts(self) -> list[Fact]:
        """Return the number of equilibria of each type, and whether the list is proved complete."""
        counts = [f"{self.types.count(kind)} {kind}" for kind in MARKS if kind in self.types]
        status = "proved complete in the box" if self.complete else f"may be incomplete: {self.reason}"
        facts = [("", f"{len(self.equilibria)} found ({', '.join(counts) or 'none'})"), ("", status)]
        return [*facts, ("boxes", str(self.boxes)), ("undecided boxes", str(len(self.undecided)))]

    def plot(self, ax: Axes | None = None, trajectories: Any = None) -> Axes:
        """Draw the equilibria, slow points and trajectories in their first two principal components.

        Args:
            ax: axes to draw on; ``None``: a new figure.
            trajectories: states ``(steps, n)`` or ``(runs, steps, n)``; if given, their principal components are used.

        Returns:
            The axes.
        """
        from matplotlib import pyplot

        axes: Any = pyplot.subplots()[1] if ax is None else ax
        n = self.slow_points.shape[1]
        runs = np.asarray([] if trajectories is None else trajectories, dtype=np.float64)
        runs = runs.reshape(-1, runs.shape[-2], n) if runs.size else np.zeros((0, 0, n))
        points = np.concatenate([self.points, self.slow_points])
        cloud = runs.reshape(-1, n) if runs.size else points
        centre = cloud.mean(axis=0) if len(cloud) else np.zeros(n)
        directions = np.linalg.svd(np.vstack([cloud - centre, np.zeros((2, n))]), full_matrices=False)[2][:2].T
        directions = np.pad(directions, ((0, 0), (0, 2 - directions.shape[1])))
        for run in runs:
            axes.plot(*((run - centre) @ directions).T, color="0.8", linewidth=0.7, zorder=0)
        for kind, (mark, color) in MARKS.items():
            chosen = self.points[[t == kind for t in self.types]]
            if len(chosen):
                axes.scatter(*((chosen - centre) @ directions).T, marker=mark, color=color, label=kind)
        if len(self.slow_points):
            axes.scatter(*((self.slow_points - centre) @ directions).T, marker=".", color="k", label="slow point")
        axes.set_xlabel("first principal component of the state")
        axes.set_ylabel("second principal component")
        axes.set_title(
            f"{len(self.equilibria)} equilibria, {'proved to be all' if self.complete else 'there may be others'}"
        )
        axes.margins(y=0.2)
        axes.legend(loc="upper center", ncol=5, frameon=False)
        return axes
