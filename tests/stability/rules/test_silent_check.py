"""A check that returns without a word has proved nothing."""

from __future__ import annotations

from stability.kernel.format import theorem_table as registry
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import Number, ProofData
from stability.kernel.format.theorem_table import RULES
from stability.systems import LureSystem


def test_a_check_that_says_nothing_proves_nothing(monkeypatch):
    monkeypatch.setattr(registry, "RULES", dict(RULES))

    class Silent(ProofData):
        x: Number

        def sentence(self, subject, claim):
            return "words"

        def check(self, subject, claim):
            return None

    registry.rule("silent", subject=LureSystem, claim="contraction", verdict=Verdict.REFUTED)(Silent)
    system = LureSystem.recurrent([[-2.0]], [[1.0]])
    claim = Claim("contraction", "words", Verdict.REFUTED, Proof("silent", {"x": 1.0}))
    assert registry.RULES["silent"](system, claim) == (False, "the check does not say what it proved")
