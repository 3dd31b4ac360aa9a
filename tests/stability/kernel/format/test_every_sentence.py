"""The sentence of every kind of proof, word by word; its numbers are those of ``test_numbers_in_sentences``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from specimens import flow, remade, small_cell, specimens

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.format.theorem_table import RULES, worded

SENTENCES = Path(__file__).parent / "sentences.txt"
NUMBER = r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?i?(?![\w])"


def sentences() -> Iterator[tuple[str, str]]:
    """Name and sentence of each specimen, and of the same claim with and without each optional datum."""
    for name, specimen in sorted(specimens().items()):
        subject, claim = specimen.subject, specimen.claim
        optional, data = RULES[specimen.kind].optional, claim.proof.data
        yield name, claim.statement
        changes = {f"without {key}": {"without": [key]} for key in optional if key in data}
        for key, value in (("bounds", (0.0, 1.0)), ("mask", np.ones((2, 2))), ("tau", np.ones(2))):
            if key in optional and key not in data and "x" in data:
                changes[f"with {key}"] = {"data": {key: value}}
        if {"difference", "eigenvalue"} <= set(data):
            changes["without both"] = {"without": ["difference", "eigenvalue"]}
        if data.get("share") == 0.0:
            changes["with a share"] = {"data": {"share": 0.5, "room": 0.1}}
        for label, change in changes.items():
            if (other := remade(subject, claim, **change).statement) != claim.statement:
                yield f"{name} {label}", other


def test_every_specimen_has_its_sentence():
    """``sentences.txt`` holds name and sentence, every number of the sentence replaced by #."""
    said = "".join(f"{name} | {re.sub(NUMBER, '#', sentence)}\n" for name, sentence in sentences())
    assert said == SENTENCES.read_text(encoding="utf-8")


def test_an_open_claim_names_its_subject_and_inputs():
    sentence = (
        "GRU cell (stored weights and biases, exact arithmetic). Contraction for every input sequence with entries in "
        "[-1, 1] is neither proved nor refuted. Other inputs are not covered."
    )
    assert undecided(small_cell("gru")) == sentence
    assert worded(small_cell("gru"), Claim("contraction", "", Verdict.INCONCLUSIVE)).statement == sentence
    with pytest.raises(KeyError):
        worded(flow(), Claim("equilibrium", "", Verdict.INCONCLUSIVE))
