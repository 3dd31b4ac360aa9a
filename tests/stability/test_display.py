"""Representations of results: short, escaped, as frames with their numbers, as figures of the bound."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability import Certificate, DrivenSystem, LureSystem, PairwiseSystem, certify, refute, verify

FLOW = LureSystem.recurrent([[-2.0, 3.0], [0.0, -2.0]], [[0.5, 0.0], [0.0, 0.5]])


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    return certify(FLOW)


def test_a_line_at_a_prompt_has_the_verdict_and_all_digits_of_the_rate(certificate):
    line = repr(certificate)
    assert line.startswith("<Certificate: certified, evidence proved, rate ")
    assert repr(certificate.rate) in line
    assert repr(certificate.overshoot) in line
    assert len(line) < 400
    assert repr(verify(certificate)).startswith("<Verification: valid (certified), rate ")
    broken = dataclasses.replace(certificate, rate=certificate.rate * 2, claims=())
    assert repr(verify(broken)).startswith("<Verification: INVALID")
    assert repr(refute(LureSystem.recurrent([[-1.0]], [[2.0]]))).startswith(
        "<Refutation: refuted, by destabilising_slopes"
    )
    assert repr(refute(FLOW)).startswith("<Refutation: no witness")
    assert repr(certificate.proof).startswith("<Proof: multiplier_lmi, L, P, ")


def test_subjects_say_their_sizes_not_their_matrices():
    big = LureSystem(-np.eye(50), np.ones((50, 3)), np.ones((3, 50)), slope=(0.0, 0.5), dt=0.25)
    assert repr(big) == "LureSystem(50 states, 3 channels, slope=(0.0, 0.5), dt=0.25)"
    varied = LureSystem(-np.eye(2), np.eye(2), np.eye(2), slope=([0.0, 0.0], [1.0, 0.5]))
    assert "slope=(varied)" in repr(varied)
    assert repr(DrivenSystem(FLOW, "tanh", np.ones((2, 4)), name="mine")).endswith("'tanh', inputs=4, name='mine')")
    turn = PairwiseSystem([[0.0, -1.0], [1.0, 0.0]], [[1.0], [0.0]], [-0.5], "modrelu", orthogonal=True)
    assert repr(turn) == "PairwiseSystem(2 states, 'modrelu', inputs=1, name='network')"


def test_frames_hold_the_findings_and_the_checks(certificate):
    frame = certificate.frame()
    assert list(frame["criterion"]) == [finding.criterion for finding in certificate.findings]
    assert list(frame["margin"]) == [finding.margin for finding in certificate.findings]
    checks = verify(certificate).frame()
    assert list(checks["claim"]) == [certificate.claim.name, *(claim.name for claim in certificate.claims)]
    assert checks["valid"].all()


def test_the_figure_draws_the_least_proved_bound(certificate):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    axes = certificate.plot(until=3.0)
    (line,) = [line for line in axes.get_lines() if line.get_label() == "proved bound"]
    times, bound = line.get_xdata(), line.get_ydata()
    assert times[-1] == 3.0
    pairs = [(c.value, c.proof.data["overshoot"]) for c in (certificate.claim, *certificate.claims)
             if c.name == "contraction"]  # fmt: skip
    np.testing.assert_allclose(bound, np.min([over * np.exp(-rate * times) for rate, over in pairs], axis=0))
    assert axes.get_yscale() == "log"
    _, own = pyplot.subplots()
    assert certify(LureSystem.linear([[0.5]], dt=1.0)).plot(ax=own) is own
    assert own.get_xlabel() == "step"
    open_question = certify(LureSystem.recurrent([[-1.0]], [[2.0]]), refute=False).plot()
    assert "no bound on distances is proved" in open_question.texts[0].get_text()
    pyplot.close("all")


def test_what_is_verified_is_drawn_as_the_certificate(certificate):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    again, first = verify(certificate).plot(until=3.0), certificate.plot(until=3.0)
    bounds = [{str(line.get_label()): line.get_ydata() for line in axes.get_lines()} for axes in (again, first)]
    np.testing.assert_array_equal(bounds[0]["proved bound"], bounds[1]["proved bound"])
    broken = dataclasses.replace(certificate, rate=certificate.rate * 2, claims=())
    assert verify(broken).pairs == ()
    assert verify(broken).plot().texts[0].get_text().startswith("INVALID")
    step = certify(LureSystem.linear([[0.5]], dt=1.0))
    assert verify(step).plot().get_xlabel() == "step"
    pyplot.close("all")
