"""The sentence of every kind of proof, word by word; its numbers are those of ``test_numbers_in_sentences``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from specimens import flow, small_cell, specimens

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.format.theorem_table import worded

SENTENCES = Path(__file__).parent / "sentences.txt"
NUMBER = r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?i?(?![\w])"


def test_every_specimen_has_its_sentence():
    """``sentences.txt`` holds name and sentence of each specimen, every number replaced by #."""
    said = "".join(f"{name} | {re.sub(NUMBER, '#', s.claim.statement)}\n" for name, s in sorted(specimens().items()))
    assert said == SENTENCES.read_text(encoding="utf-8")


def test_an_open_claim_names_its_subject_and_inputs():
    whom = "this GRU cell (its stored weights and biases, exact arithmetic) under every input with entries in [-1, 1]"
    assert undecided(small_cell("gru")) == f"Whether trajectories of {whom} approach each other exponentially is open."
    with pytest.raises(ValueError, match="without a proof"):
        worded(flow(), Claim("contraction", "", Verdict.INCONCLUSIVE))
