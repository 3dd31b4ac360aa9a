"""Sentences about verdicts: never more than what was proved."""

from __future__ import annotations

import math
import re

import pytest

from stability.reports import vocabulary as words
from stability.reports.formatting import bound_at, time_to
from stability.reports.stored import reasons

FINDINGS = [
    {"criterion": "small_gain", "holds": False, "margin": -3.0},
    {"criterion": "multiplier", "holds": False, "margin": -0.5},
    {"criterion": "theorem1b_published", "holds": True, "margin": 0.1},
    {"criterion": "interval", "holds": False, "margin": None},
]


def summary(verdict: str, rate: float | None = None, **more: object) -> dict:
    return {
        "verdict": verdict,
        "evidence": "none" if verdict == "inconclusive" else "proved",
        "statement": "the statement",
        "criterion": "multiplier",
        "proof": None,
        "rate": rate,
        "overshoot": 2.0,
        "pairs": [] if rate is None else [(rate, 2.0)],
        "findings": FINDINGS,
        "claims": [],
        "meta": {},
        **more,
    }


def test_only_a_certificate_speaks_of_trajectories_that_meet() -> None:
    assert "approach each other" in words.sentence(summary("certified", 0.5), True)
    for other in (summary("refuted"), summary("inconclusive")):
        assert "approach" not in words.sentence(other, True)


def test_times_are_in_steps_or_units_of_time_with_the_overshoot_inside() -> None:
    """Overshoot 2, rate 1/2: 2 * 2^-k is below 1/2 from k = 3 on; 2 exp(-t/2) is 1/2 at t = 2 log 4."""
    assert "after 3 steps" in words.sentence(summary("certified", 0.5), True)
    assert f"after {2 * math.log(4):.3f} units of time" in words.sentence(summary("certified", 0.5), False)


@pytest.mark.parametrize(("rate", "overshoot"), [(0.5, 2.0), (0.9732, 2.902), (0.99, 1.0), (1e-3, 50.0)])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_first_step_below_a_share_is_the_first_by_counting(rate: float, overshoot: float, share: float) -> None:
    k = next(k for k in range(10_000) if overshoot * rate**k < share)
    assert time_to(share, [(rate, overshoot)], True) == max(k, 1)
    assert bound_at(k, [(rate, overshoot), (1.0, 1e9)], True) == overshoot * rate**k


def test_an_overshoot_of_one_has_no_time_below_the_start() -> None:
    facts = dict(words.meaning(summary("certified", 1.0, pairs=[(1.0, 1.0 + 1e-12)]), False))
    assert "below the initial distance" not in facts
    assert "below half the initial distance" in facts


def test_what_never_shrinks_has_no_time() -> None:
    assert time_to(0.5, [(1.0, 3.0)], True) is None
    assert time_to(0.5, [(0.0, 3.0)], False) is None
    assert time_to(0.5, [(0.0, 3.0)], True) == 1


def test_facts_belong_to_proofs_only() -> None:
    assert words.meaning(summary("refuted"), True) == ()
    assert words.meaning(summary("refuted", modulus=1.0364), True)[0][1].startswith("1.036 ")
    assert [k for k, _ in words.meaning(summary("certified", 0.5), True, 28)] == [
        "rate",
        "overshoot",
        "bound after 28 steps (trained length)",
        "below the initial distance",
        "below half the initial distance",
    ]


def test_margins_of_different_units_are_never_ranked() -> None:
    """The circle criterion's margin of -0.1 is no closer than the multiplier's of -0.5: only one is named, with its
    unit, because it contains the others.
    """
    findings = [{"criterion": "small_gain", "holds": False, "margin": -0.1}, FINDINGS[1]]
    said = words.reason(summary("inconclusive", findings=findings))
    assert "−0.5" in said
    assert "gain" in said
    assert "0.1" not in said
    assert "losest" not in said


def test_a_rate_that_was_not_reached_is_still_a_proof() -> None:
    missed = summary("certified", 0.9731, meta={"asked_rate": 0.9, "asked_rate_reached": False})
    assert words.sentence(missed, True).startswith("Certified stable, but not at the rate 0.9: best proved ρ = 0.9731 ")
    reached = summary("certified", 0.9, meta={"asked_rate": 0.9, "asked_rate_reached": True})
    assert "not at the rate" not in words.sentence(reached, True)


@pytest.mark.parametrize(("inside", "reach"), [(True, True), (False, False), (False, None)])
def test_where_a_counter_example_lies_is_said(inside: bool, reach: bool | None) -> None:
    witness = {"input_in_data_range": inside, "states_reachable": reach}
    said = " ".join(words.notes(summary("refuted", meta={"witness": witness})))
    boxed = " ".join(words.notes(summary("refuted", meta={"witness": witness}), range_words="the stated box"))
    assert boxed == said.replace("the range of the data", "the stated box")
    assert ("lies in the range" in said) == inside
    assert ("lies outside" in said) == (not inside)
    assert ("cannot be reached" in said) == (reach is False)
    assert ("not known" in said) == (reach is None)
    assert words.notes(summary("certified", 0.5, meta={"witness": witness})) == []


def test_a_refutation_names_the_inputs_that_no_range_can_hold() -> None:
    (said,) = words.notes(summary("refuted", witness_input=[-1.0, 2.5]))
    assert said.startswith("No range")
    assert "−1" in said
    assert "2.5" in said
    boxes = [
        reasons.advice(summary("refuted", needs_box=True, witness_input=w), "m.pt") for w in ([0.0, 0.0], [0, 2.0])
    ]
    assert [len(hints) for hints in boxes] == [0, 1]
    context = reasons.CommandContext(data="--data d.npz")
    for inside, box in ((True, "LOW HIGH"), (None, "LOW HIGH"), (False, "data --data d.npz")):
        meta = {"witness": {"input_in_data_range": inside}}
        found = summary("refuted", needs_box=True, witness_input=[0, 2.0], meta=meta)
        assert reasons.advice(found, "m.pt", context=context)[0][1].endswith(f"--input-box {box}")


def test_rates_of_sampled_systems_are_told_in_time_as_well() -> None:
    facts = dict(words.meaning(summary("certified", 0.98044, dt=0.1), True))
    assert float(re.findall(r"decay ([\d.]+) per", facts["rate"])[0]) == pytest.approx(
        -math.log(0.98044) / 0.1, rel=1e-3
    )
    assert "(7.1 units of time)" in facts["below half the initial distance"]
    assert "decay" not in dict(words.meaning(summary("certified", 0.98044), True))["rate"]


def test_no_criterion_is_said_to_fail_above_one_that_holds() -> None:
    holds = {"criterion": "linear", "holds": True, "margin": 1e-7, "detail": ""}
    assert "No criterion holds" not in words.reason(summary("inconclusive", findings=[holds]))


def test_a_search_that_was_cut_says_so() -> None:
    cut = summary("certified", 0.5, meta={"cut": ["multiplier", "two_equilibria"]})
    assert reasons.advice(cut, "net.npz", 3.0) == [
        (
            "The time limit stopped these searches: multiplier LMI, two equilibria. More time may give a better answer",
            "stability certify net.npz --time-limit 30",
        )
    ]
    assert reasons.advice(cut, "net.npz")[0][1].endswith(" SECONDS")
    assert reasons.advice(summary("certified", 0.5), "net.npz") == []


@pytest.mark.parametrize("found", ["certified", "refuted", "inconclusive"])
def test_gated_cells_under_every_input_are_pointed_to_the_box(found: str) -> None:
    hints = reasons.advice(summary(found, 0.5, needs_box=True), "'my lstm.pt'")
    assert [h for _, h in hints] == ["stability certify 'my lstm.pt' --input-box LOW HIGH"] * (found != "certified")
    assert reasons.advice(summary(found, 0.5, needs_box=False), "lstm.pt") == []
