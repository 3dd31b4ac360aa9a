"""A part of something bigger remembers where it stood, in memory and in its file, and nothing can be smuggled in."""

from __future__ import annotations

import numpy as np
import pytest

from stability.conversion.parts import subject_as_part
from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.format.serialization import decode, encode
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.parts import as_part, part_phrase
from stability.systems import DrivenSystem, LureSystem


def subjects():
    flow = LureSystem.recurrent([[-2.0]], [[1.0]])
    driven = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]], name="net")
    cell = GatedCell("gru", np.ones((3, 1)), np.ones((3, 1)), name="cell")
    return {
        "lure": flow,
        "euler": flow.euler(0.1),
        "midpoint": flow.midpoint(0.1),
        "driven": driven,
        "gated": cell,
        "cascade": LayerStack([driven, cell], name="both"),
    }


@pytest.mark.parametrize("kind", list(subjects()))
def test_a_part_is_the_same_subject_with_a_place(kind):
    subject = subjects()[kind]
    part = subject_as_part(subject, "encoder.0", "Residual")
    assert subject.part == ""
    assert part_phrase(subject) == ""
    assert part.part == "encoder.0 of Residual"
    assert part_phrase(part) == "part `encoder.0` of Residual"
    plain, named = encode(subject), encode(part)
    assert "part" not in plain
    again = decode(named)
    assert again.part == part.part
    assert type(again) is type(subject)
    assert encode(again) == named
    named = named.get("base", named)
    assert {k: v for k, v in named.items() if k != "part"} == plain.get("base", plain)
    assert decode(plain).part == ""


@pytest.mark.parametrize(
    "bad",
    ["cell", "cell of ", " of Net", "a of B of C", "a b of C", "x: all is stable of C", "a` of B", None, 3, "é of B"],
)
def test_no_sentence_fits_into_a_place(bad):
    with pytest.raises(ConfigurationError, match="PATH of WHOLE"):
        as_part(bad)
    for subject in subjects().values():
        document = encode(subject_as_part(subject, "a", "B"))
        document.get("base", document)["part"] = bad
        with pytest.raises(FileFormatError, match="PATH of WHOLE"):
            decode(document)
