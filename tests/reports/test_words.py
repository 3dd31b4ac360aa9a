"""Sentences about verdicts: never more than what was proved."""

from __future__ import annotations

import pytest

from stability.reports import words

FINDINGS = [
    {"criterion": "circle", "holds": False, "margin": -3.0},
    {"criterion": "multiplier", "holds": False, "margin": -0.5},
    {"criterion": "theorem1b_published", "holds": True, "margin": 0.1},
    {"criterion": "interval", "holds": False, "margin": None},
]


def summary(verdict: str, rate: float | None = None) -> dict:
    return {
        "verdict": verdict,
        "statement": "the statement",
        "criterion": "multiplier",
        "rate": rate,
        "overshoot": 2.0,
        "findings": FINDINGS,
        "claims": [],
    }


def test_only_a_certificate_speaks_of_trajectories_that_meet() -> None:
    assert "approach each other" in words.sentence(summary("certified", 0.5), True)
    for verdict in ("refuted", "inconclusive"):
        assert "approach" not in words.sentence(summary(verdict), True)


def test_rates_are_per_step_or_per_time() -> None:
    assert "1 steps" in words.sentence(summary("certified", 0.5), True)
    assert "1.39 units of time" in words.sentence(summary("certified", 0.5), False)


def test_facts_belong_to_certificates_only() -> None:
    assert words.meaning(summary("refuted"), True) == ()
    assert [k for k, _ in words.meaning(summary("certified", 0.5), True)] == [
        "rate",
        "half-life",
        "overshoot",
    ]


def test_the_closest_failing_criterion_is_named() -> None:
    assert "multiplier, margin −0.5" in words.reason(summary("inconclusive"))


def test_a_refutation_gives_its_statement() -> None:
    assert words.reason(summary("refuted")) == "the statement"


@pytest.mark.parametrize("verdict", ["certified", "refuted", "inconclusive"])
def test_every_verdict_stands_in_the_glossary(verdict: str) -> None:
    assert any(verdict in word.lower() for word, _ in words.GLOSSARY)
