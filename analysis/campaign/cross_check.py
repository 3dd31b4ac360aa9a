"""Step ``cross_check``: circle criterion and KYP as semidefinite programs, beside the frequency-domain test."""

from __future__ import annotations

from stability.search.criteria.cross_check import cross_check

from .work import Work


def cross_check_step(work: Work) -> None:
    """Run the step ``cross_check`` of an analysis and write its files."""
    budget = work.budget
    result = cross_check(work.subject, time_limit=None, steps=budget.program_steps, largest=budget.program_states)
    work.write_json("cross_check.json", result.to_dict())
