"""Absorbing boxes of gated cells, and one equilibrium for each constant input."""

from __future__ import annotations

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.gated_bounds import invariant_box
from stability.kernel.systems.gated_cell import GatedCell
from stability.proposals import accepted_claim
from stability.search.input_sets.bounded import diagonal_of
from stability.search.solvers.deadline import Deadline, TimeLimit

_WHOLE = 0.999
"""Share of the diagonal of ``|h| <= 1`` from which on a box says no more than that."""
_KINDS = ("interval_jacobian", "interval_lmi")


def gated_bounds(
    subject: GatedCell, main: Claim, *, time_limit: TimeLimit = None, always: bool = False
) -> Claim | None:
    """The box of states that every trajectory enters, where its inputs have a box.

    Args:
        subject: the cell.
        main: its claim of contraction: where that is certified, the box is that of its proof.
        time_limit: seconds for the search of another.
        always: also where it says no more than ``|h| <= 1``.

    Returns:
        The claim ``bounded_in_box``, its value the diagonal, or ``None`` where there is none, or for a GRU none that
        says more than ``|h| <= 1``.

    Example:
        >>> from stability.kernel.format.sentences import undecided
        >>> cell = GatedCell("gru", 0.1 * np.ones((3, 1)), 0.9 * np.ones((3, 1)), input_low=-1.0, input_high=1.0)
        >>> claim = gated_bounds(cell, Claim("contraction", undecided(cell), Verdict.INCONCLUSIVE))
        >>> round(claim.value, 3)
        0.399
    """
    if subject.input_low is None:
        return None
    proof = main.proof if main.verdict is Verdict.CERTIFIED else None
    if proof is not None and proof.kind in _KINDS:
        low, high = proof.data["low"], proof.data["high"]
    else:
        box = invariant_box(subject, affords=Deadline.after(time_limit).named("bounds in the box").affords)
        if box is None:
            return None
        low, high = box.low, box.high
    diagonal = diagonal_of(low, high)
    if subject.kind == "gru" and not always and diagonal > _WHOLE * 2.0 * subject.hidden**0.5:
        return None
    return accepted_claim(subject, "gated_bounds", {"low": low, "high": high, "diagonal": diagonal})
