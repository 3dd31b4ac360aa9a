"""Two verdicts about one network: for every input, and for inputs like those of the data."""

from __future__ import annotations

import numpy as np
import pytest

from stability import DrivenSystem, GatedCell, LureSystem, certify, verify
from stability.analysis.campaign.certificate import in_box
from stability.kernel.format.claims import Verdict
from stability.reports import vocabulary
from stability.reports.stored.certificates import view

LATCH = DrivenSystem(LureSystem([[0.3]], [[0.7]], [[2.0]], dt=1.0), "tanh", [[1.0]], [2.0])


def told(network: DrivenSystem, seen: tuple[float, float]) -> tuple[str, str, object]:
    both = in_box(certify(network, rate="any", input_range=seen), seen)
    assert verify(both).valid
    found = view(both)
    (label, text), *_ = vocabulary.like_data(found, True)
    assert label == "for inputs like the data"
    return found["like_data"]["answer"], text, both


def test_a_latch_that_its_data_never_switch() -> None:
    answer, text, both = told(LATCH, (-0.2, 0.2))
    assert both.verdict is Verdict.REFUTED
    assert answer == "certified"
    claim = next(c for c in both.claims if c.name == "driven_contraction")
    assert claim.proof.data["low"] == pytest.approx([-0.22])
    assert claim.proof.data["high"] == pytest.approx([0.22])
    assert "[−0.22, 0.22]" in text
    assert "proved" in text
    assert "counterexample" in vocabulary.sentence(view(both), True)
    assert "contraction under inputs in a box" in [name for name, *_ in vocabulary.weaker(view(both))]
    boxed = view(certify(LATCH, input_box=(-0.2, 0.2)))
    assert "contraction under every input" in [name for name, *_ in vocabulary.weaker(boxed)]


def test_a_refuted_network_forgets_what_it_is_certified_to_forget() -> None:
    """The numbers are those of a certificate about the same inputs alone."""
    _, _, both = told(LATCH, (-0.2, 0.2))
    claim = next(c for c in both.claims if c.name == "driven_contraction")
    found, alone = view(both), both.recovery_time(claim=claim)
    assert found["recovery"] is None
    assert found["memory"] is None
    times = {name: found["like_data"][name]["time"] for name in ("recovery", "memory")}
    least = np.log(claim.proof.data["overshoot"] * 1e3) / -np.log(claim.value)
    assert alone is not None
    assert least < times["recovery"] == alone.time <= least + 1
    assert times["memory"] > times["recovery"]  # states differ by more than 1 there
    facts = dict(vocabulary.like_data(found, True))
    assert facts["recovery time, for inputs like the data"].startswith(f"{times['recovery']} steps")
    assert facts["memory horizon, for inputs like the data"].startswith(f"{times['memory']} steps")


def test_data_that_switch_it() -> None:
    answer, text, both = told(LATCH, (-4.0, 4.0))
    assert both.verdict is Verdict.REFUTED
    assert both.meta["witness"]["input_in_data_range"] is True
    assert answer == "refuted"
    assert "lies in the range of the data" in text


def test_what_holds_for_every_input_holds_for_the_data() -> None:
    calm = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
    answer, text, both = told(calm, (-1.0, 1.0))
    assert both.verdict is Verdict.CERTIFIED
    assert answer == "implied"
    assert "proved" in text


def test_what_stays_open_says_why() -> None:
    relu = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[1.5]], dt=1.0), "relu", [[1.0]], [-9.0])
    answer, text, _ = told(relu, (-1.0, 1.0))
    assert answer in ("open", "refuted")
    assert answer == "refuted" or "bounded smooth activation" in text


def test_gated_cells_have_a_box_already() -> None:
    cell = GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)), input_low=-1.0, input_high=1.0)
    plain = certify(cell, rate="any")
    assert in_box(plain, (-1.0, 1.0)) is plain
    assert vocabulary.like_data(view(plain), True) == ()


def stated(box: tuple[float, float], seen: tuple[float, float] | None) -> tuple[dict, tuple[str, str]]:
    range_ = {} if seen is None else {"input_range": seen}
    both = in_box(certify(LATCH, rate="any", **range_), seen, box)
    assert verify(both).valid
    found = view(both)
    return found["like_data"], vocabulary.like_data(found, True)[0]


def test_a_stated_box_takes_the_place_of_the_range_without_a_margin() -> None:
    for seen in (None, (-0.2, 0.2), (-4.0, 4.0)):
        found, (label, text) = stated((-0.3, 0.1), seen)
        assert (found["low"], found["high"], found["margin"], found["stated"]) == ([-0.3], [0.1], 0.0, True)
        assert found["answer"] == "certified"  # the data of the last switch the latch; nothing is said of these
        assert label == "for inputs in the stated box"
        assert "inputs in [−0.3, 0.1], as stated with --input-box" in text


def test_a_counter_example_counts_against_a_box_that_holds_all_data() -> None:
    assert stated((-4.5, 4.0), (-4.0, 4.0))[0]["answer"] == "refuted"
    assert "all of which is in the box" in stated((-4.5, 4.0), (-4.0, 4.0))[1][1]
    found, (_, text) = stated((-4.5, 3.9), (-4.0, 4.0))  # not all of them: it may lie outside
    assert found["answer"] == "open"
    assert text.startswith("open: no proof was found for inputs in [−4.5, 3.9], as stated")
