"""What a verification and a summary say, word for word; refusals too name the verdict and the subject."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from specimens import flow, network_map, small_cell, specimens

from stability import certificate as certificates
from stability.certificate import Certificate, Finding
from stability.errors import FileFormatError
from stability.kernel.format.claims import Claim, Evidence, Proof, Verdict, finite_or_none
from stability.kernel.format.sentences import phrase_of, undecided
from stability.kernel.format.serialization import digest_of, seal
from stability.kernel.systems.layer_stack import LayerStack
from stability.storage.limits import CLAIMS
from stability.systems import LureSystem
from stability.verification import Check, Verification, describe_subject, verify, verify_claim


def made() -> Certificate:
    """A certified network with one further claim, one finding and a note."""
    equilibrium = specimens()["equilibrium"]
    main = specimens()["contraction of network"].certificate()
    findings = (Finding("circle", True, 1.5, "fits", 0.25), Finding("gain", False, -math.inf, "", math.nan))
    box = specimens()["ball"].claim
    return replace(main, subject=equilibrium.subject, findings=findings, claims=(box,), meta={"seed": 3})


def test_a_check_repeats_its_claim():
    for name in ("contraction of flow", "two equilibria"):
        specimen = specimens()[name]
        check = verify_claim(specimen.subject, specimen.claim)
        claim = specimen.claim
        assert check == Check(
            "contraction", str(claim.verdict), True, check.reason, str(claim.evidence), claim.statement
        )
        bent = verify_claim(specimen.subject, replace(claim, statement="All is stable."))
        reason = "the sentence of the claim is not the one that this proof supports"
        assert bent == Check("contraction", str(claim.verdict), False, reason, str(claim.evidence), "All is stable.")
    bare = Claim("gain", "", Verdict.CERTIFIED)
    assert verify_claim(flow(), bare) == Check("gain", "certified", False, "certified, but without a proof", "none", "")
    odd = verify_claim(flow(), Claim("gain", "", Verdict.CERTIFIED, Proof("magic")))
    assert odd.reason.startswith("unknown kind of proof 'magic'; known: attracting_equilibrium, ball, box, ")
    broken = verify_claim(flow(), Claim("contraction", "", Verdict.CERTIFIED, Proof("cascade", 5)))
    assert not broken.valid
    hostile = Claim("contraction", "", Verdict.CERTIFIED, Proof(["a"], {}))
    assert verify_claim(flow(), hostile).reason.startswith("the proof is malformed (TypeError: unhashable")


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


def test_a_refusal_names_verdict_and_subject():
    certificate = made()
    title = describe_subject(certificate.subject)
    for bent, reason in (
        (replace(certificate, rate=9.0), f"the cover says rate 9.0, the claim {certificate.rate}"),
        (replace(certificate, overshoot=9.0), "the cover's overshoot is not the proof's"),
        (
            replace(certificate, claim=replace(certificate.claim, name="gain")),
            "the main claim must be contraction, not 'gain'",
        ),
        (
            replace(certificate, claims=(Claim("contraction", undecided(certificate.subject), Verdict.INCONCLUSIVE),)),
            "the further claim 'contraction' is not proved; only the main claim may be open",
        ),
    ):
        answer = verify(bent)
        assert answer == Verification(False, reason, (), "certified", subject=title)
        assert bool(answer) is False
    box = certificate.claims[0]
    bent = replace(certificate, claims=(replace(box, statement="It is bounded."),))
    answer = verify(bent)
    words = "bounded: the sentence of the claim is not the one that this proof supports"
    assert answer == Verification(False, words, answer.checks, "certified", subject=title)
    assert [check.valid for check in answer.checks] == [True, False]
    empty = Certificate(flow(), Claim("contraction", undecided(flow()), Verdict.INCONCLUSIVE))
    answer = verify(empty)
    nothing = "the certificate is inconclusive: it claims nothing that could be proved"
    assert answer == Verification(False, nothing, answer.checks, "inconclusive", subject=describe_subject(flow()))
    odd = verify(Certificate(object(), empty.claim))
    assert not odd.valid
    assert odd.reason.startswith("the certificate is malformed (")
    assert (odd.subject, odd.verdict, odd.checks) == ("", "inconclusive", ())
    gone = verify("missing.json")
    assert gone == Verification(False, gone.reason)
    assert "cannot read missing.json" in gone.reason


def test_an_open_main_claim_with_proved_ones_beside_it_is_valid():
    equilibrium, box = specimens()["equilibrium"], specimens()["ball"]
    main = Claim("contraction", undecided(equilibrium.subject), Verdict.INCONCLUSIVE)
    answer = verify(Certificate(equilibrium.subject, main, claims=(equilibrium.claim, box.claim)))
    assert answer.valid
    assert answer.reason == "the main claim is inconclusive; proved: equilibrium, bounded"
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
    assert phrase_of(object()) == "this object"


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
            {"criterion": "circle", "holds": True, "margin": 1.5, "rate": 0.25, "detail": "fits"},
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


BENT = [
    (("meta",), [1], "meta must be a mapping, not a tuple"),
    (("findings",), {}, "findings must be a list, not a dict"),
    (("claims",), {}, "claims must be a list, not a dict"),
    (("claim",), [], "a claim must be a mapping, not a list"),
    (("claim", "proof"), [], "a proof must be a mapping, not a list"),
    (("claim", "proof", "data"), [1], "a proof's data must be a mapping, not a tuple"),
    (("claim", "proof", "kind"), 1, "a string was expected, got '1'"),
    (("claim", "name"), None, "a string was expected, got 'None'"),
    (("claim", "verdict"), "sure", "'sure' is not a valid Verdict"),
    (("claim", "evidence"), "none", "the claim 'contraction' calls itself 'none'; it is proved"),
    (("claim", "value"), "1", "a number was expected, got '1'"),
    (("claim", "value"), True, "a number was expected, got 'True'"),
    (("criterion",), 1, "a string was expected, got '1'"),
    (("rate",), 2**53 + 1, "the integer 9007199254740993 is no float64: integers are read up to 2\\^53"),
    (("findings", 0), [], "a finding must be a mapping, not a list"),
    (("findings", 0, "holds"), 1, "holds must be true or false, got '1'"),
    (("findings", 0, "criterion"), None, "a string was expected"),
    (("findings", 0, "detail"), 5, "a string was expected"),
    (("findings", 0, "margin"), [], "a number was expected"),
    (("findings", 0, "rate"), {}, "a number was expected"),
    (("note",), 1, "a file with unknown keys: note"),
    (("claim", "note"), 1, "a claim with unknown keys: note"),
    (("claim", "proof", "note"), 1, "a proof with unknown keys: note"),
    (("findings", 0, "note"), 1, "a finding with unknown keys: note"),
]


@pytest.mark.parametrize(("place", "value", "words"), BENT)
def test_a_damaged_file_is_told_where(place, value, words, tmp_path):
    path = made().save(tmp_path / "c.json")
    document = json.loads(path.read_text())
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    document.pop("digest")
    path.write_text(seal(document))
    with pytest.raises(FileFormatError, match=f"c.json is damaged: .*{words}"):
        Certificate.load(path)
    if value == 1 and place[-1] == "note":
        del inner["note"]
        missing = next(key for key in inner if key not in ("format", "version"))
        del inner[missing]
        path.write_text(seal(document))
        with pytest.raises(FileFormatError, match=f"with missing keys: {missing}"):
            Certificate.load(path)


def test_a_file_of_another_format_is_none_of_ours(tmp_path):
    path = tmp_path / "c.json"
    for text in ("[]", '"stability-certificate"', "{}", '{"format": "other"}', '{"format": ["stability-certificate"]}'):
        path.write_text(text)
        with pytest.raises(FileFormatError, match="c.json is not a stability certificate"):
            Certificate.load(path)
    made().save(path)
    path.write_text(path.read_text().replace('"seed": 3', '"seed": 4'))
    with pytest.raises(FileFormatError, match="was changed after it was written: its digest does not match"):
        Certificate.load(path)
    assert (certificates.FORMAT, certificates.VERSION) == ("stability-certificate", 2)


def test_a_file_holds_as_many_claims_as_are_proved_again(tmp_path):
    certificate = made()
    box = certificate.claims[0]
    path = replace(certificate, claims=(box,) * CLAIMS).save(tmp_path / "c.json")
    assert len(Certificate.load(path).claims) == CLAIMS
    path = replace(certificate, claims=(box,) * (CLAIMS + 1)).save(tmp_path / "c.json")
    with pytest.raises(FileFormatError, match=f"c.json is damaged: {CLAIMS + 1} further claims; at most {CLAIMS}"):
        Certificate.load(path)
