"""Sentences of certificates of version 2 are recognized word by word; others are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stability.storage.version_2_sentences import is_sentence

WRITTEN = Path(__file__).with_name("version_2_sentences.txt")  # kind and sentence, as a release of version 2 wrote them
ROWS = [row.split(" | ", 1) for row in WRITTEN.read_text(encoding="utf-8").splitlines()]
PART = "the part `encoder.0` of Model, an LSTM cell (its stored weights and biases, exact arithmetic)"


@pytest.mark.parametrize(("kind", "sentence"), ROWS)
def test_a_sentence_of_version_2_has_its_form_for_its_kind_of_proof(kind, sentence):
    assert is_sentence(kind, sentence)
    assert not is_sentence("open", sentence)
    assert not is_sentence("pair_jump" if kind != "pair_jump" else "box", sentence)


@pytest.mark.parametrize(("kind", "sentence"), [row for row in ROWS if row[0] not in ("cascade_layer", "merged_stack")])
def test_a_sentence_with_a_word_more_is_refused(kind, sentence):
    words = sentence.split(" ")
    first = next(k for k, word in enumerate(words) if word.startswith("arithmetic"))
    for k in range(first + 1, len(words)):
        assert not is_sentence(kind, " ".join([*words[:k], "never", *words[k:]]))
    assert not is_sentence(kind, f"{sentence} This holds for every model.")


def test_an_open_claim_of_version_2():
    for inputs in ("every input", "every input with entry j in [low_j, high_j] of its box (all within [-2, 1])"):
        assert is_sentence(
            "open", f"Whether trajectories of {PART} under {inputs} approach each other exponentially is open."
        )
    assert not is_sentence("open", f"Whether trajectories of this {'(' * 10**6}")
    assert not is_sentence("open", f"Trajectories of {PART} under every input approach each other exponentially.")
