"""A check that returns without a word has proved nothing."""

from __future__ import annotations

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import Number, ProofData
from stability.kernel.format.theorem_table import Rule
from stability.systems import LureSystem


def test_a_check_that_says_nothing_proves_nothing():
    class Silent(ProofData):
        x: Number

        def sentence(self, subject, claim):
            return "words"

        def check(self, subject, claim):
            return None

    silent = Rule("silent", (LureSystem,), ("contraction",), Verdict.REFUTED, Silent)
    system = LureSystem.recurrent([[-2.0]], [[1.0]])
    claim = Claim("contraction", "words", Verdict.REFUTED, Proof("silent", {"x": 1.0}))
    assert silent(system, claim) == (False, "the check does not say what it proved")
