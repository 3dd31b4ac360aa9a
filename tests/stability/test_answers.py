"""Texts of verifications and summaries, word for word; refusals too name the verdict and the subject."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from specimens import flow, network_map, small_cell, specimens

from stability.certificate import Certificate, Finding
from stability.errors import FileFormatError
from stability.kernel.format.claims import Claim, Evidence, Verdict, finite_or_none
from stability.kernel.format.sentences import phrase_of, undecided
from stability.kernel.format.serialization import digest_of
from stability.kernel.systems.layer_stack import LayerStack
from stability.storage.limits import CLAIMS
from stability.systems import LureSystem
from stability.verification import Verification, describe_subject, verify


def made() -> Certificate:
    """A certified network with one further claim, one finding and a note."""
    equilibrium = specimens()["equilibrium"]
    main = specimens()["contraction of network"].certificate()
    findings = (Finding("small_gain", True, 1.5, "fits", 0.25), Finding("gain", False, -math.inf, "", math.nan))
    box = specimens()["ball"].claim
    return replace(main, subject=equilibrium.subject, findings=findings, claims=(box,), meta={"seed": 3})


def test_a_verification_says_what_was_proved_of_whom():
    certificate = made()
    title = describe_subject(certificate.subject)
    answer = verify(certificate)
    assert answer == Verification(
        True,
        answer.checks[0].reason,
        answer.checks,
        "certified",
        "proved",
        certificate.statement,
        certificate.rate,
        certificate.overshoot,
        title,
        ((certificate.rate, certificate.overshoot),),
    )
    assert bool(answer) is True
    assert [check.claim for check in answer.checks] == ["contraction", "bounded"]
    exact = verify(certificate, method="exact")
    assert exact.valid
    assert [(c.claim, c.verdict, c.valid, c.evidence) for c in exact.checks] == [
        ("contraction", "certified", True, "proved"),
        ("bounded", "certified", True, "proved"),
        ("contraction", "certified", True, "proved"),
    ]
    assert exact.checks[2].statement == certificate.statement


def test_an_open_main_claim_is_nothing_to_check_and_what_is_proved_beside_it_is_named():
    equilibrium, box = specimens()["equilibrium"], specimens()["ball"]
    main = Claim("contraction", undecided(equilibrium.subject), Verdict.INCONCLUSIVE)
    answer = verify(Certificate(equilibrium.subject, main, claims=(equilibrium.claim, box.claim)))
    assert not answer.valid
    assert "equilibrium, bounded" in answer.reason
    assert all(check.valid for check in answer.checks)
    assert (answer.verdict, answer.evidence, answer.rate, answer.overshoot) == ("inconclusive", "none", None, None)


def test_only_a_multiplier_has_an_exact_method():
    cell = specimens()["contraction of gru box"]
    answer = verify(cell.certificate(), method="exact")
    assert not answer.valid
    assert answer.reason == "contraction: there is no exact method for this kind of proof"
    assert (answer.checks[-1].verdict, answer.checks[-1].evidence) == ("certified", "proved")
    bent = replace(cell.certificate(), claim=replace(cell.claim, statement="."))
    assert "sentence" in verify(bent, method="exact").checks[-1].reason


def test_a_subject_is_identified_by_kind_name_size_and_digest():
    named = LureSystem.recurrent([[-2.0]], [[1.0]])
    mark = digest_of(named)[:16]
    assert describe_subject(named).endswith(f", 1 states, 1 channels, sha256 {mark}")
    cell = small_cell("gru")
    assert " 'cell', 2 states, sha256 " in describe_subject(cell)
    net = network_map()
    assert ", 2 states, 2 channels, sha256 " in describe_subject(net)
    stack = LayerStack([net], name="it's")
    assert '"it\'s"' in describe_subject(stack)
    assert phrase_of(object()) == "object"


def test_a_summary_holds_every_number_and_no_matrix():
    certificate = made()
    main, box = certificate.claim, certificate.claims[0]
    assert certificate.summary() == {
        "verdict": "certified",
        "evidence": "proved",
        "statement": main.statement,
        "criterion": certificate.criterion,
        "rate": main.value,
        "overshoot": certificate.overshoot,
        "proof": "multiplier_lmi",
        "findings": [
            {"criterion": "small_gain", "holds": True, "margin": 1.5, "rate": 0.25, "detail": "fits"},
            {"criterion": "gain", "holds": False, "margin": None, "rate": None, "detail": ""},
        ],
        "claims": [
            {
                "name": "bounded",
                "statement": box.statement,
                "verdict": "certified",
                "evidence": "proved",
                "value": box.value,
                "proof": box.proof.kind,
            }
        ],
        "meta": {"seed": 3},
    }
    json.dumps(certificate.summary(), allow_nan=False)
    empty = Certificate(flow(), Claim("contraction", undecided(flow()), Verdict.INCONCLUSIVE))
    assert empty.summary()["proof"] is None
    assert replace(empty, claims=(empty.claim,)).summary()["claims"][0]["proof"] is None
    assert [finite_or_none(x) for x in (None, math.nan, math.inf, -math.inf, 2)] == [None, None, None, None, 2.0]


def test_what_is_saved_comes_back(tmp_path):
    certificate = made()
    again = Certificate.load(certificate.save(tmp_path / "c.json"))
    assert again.summary() == certificate.summary()
    assert again.findings[0] == certificate.findings[0]
    assert bool(again.findings[0]) is True
    assert bool(again.findings[1]) is False
    assert (again.verdict, again.evidence) == (Verdict.CERTIFIED, Evidence.PROVED)
    assert again.proof.kind == "multiplier_lmi"
    assert again.criterion == certificate.criterion
    assert again.meta == {"seed": 3}
    assert np.array_equal(again.proof.data["P"], certificate.proof.data["P"])


def test_a_file_holds_as_many_claims_as_are_proved_again(tmp_path):
    certificate = made()
    box = certificate.claims[0]
    path = replace(certificate, claims=(box,) * CLAIMS).save(tmp_path / "c.json")
    assert len(Certificate.load(path).claims) == CLAIMS
    path = replace(certificate, claims=(box,) * (CLAIMS + 1)).save(tmp_path / "c.json")
    with pytest.raises(FileFormatError, match=f"c.json is damaged: {CLAIMS + 1} further claims; at most {CLAIMS}"):
        Certificate.load(path)
