"""Small drawings: their titles fit, their ticks are told apart, and none stands where there is no scale."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

from stability.reports.figures.price import price
from stability.reports.figures.small import Axis, Plot
from stability.reports.formatting import number


def texts(drawing: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(drawing).iter() if element.tag.endswith("text")]


def test_a_long_title_is_shortened_to_the_width_and_kept_whole_for_the_pointer() -> None:
    title = "Lipschitz RNN, margin penalty: Re λ(W)"
    head = texts(Plot(title, Axis(0, 1), Axis(0, 1), 240.0, 150.0).svg("nothing"))[0]
    assert len(str(head.text)) * 6.9 <= 240 - 12  # units of a bold letter of this size
    assert str(head.text).startswith("Lipschitz")
    assert str(head.text).endswith("(W)")
    assert [whole.text for whole in head if whole.tag.endswith("title")] == [title]


def test_ticks_of_a_narrow_axis_are_told_apart() -> None:
    drawn = texts(Plot("a", Axis(0, 1), Axis(0.9995, 1.0005)).svg("nothing"))
    words = [str(element.text) for element in drawn if element.get("text-anchor") == "end"]
    assert len(words) > 1
    assert len(set(words)) == len(words)


def test_the_column_of_models_without_a_proof_has_no_ticks() -> None:
    models: Any = [SimpleNamespace(name=n, title=n, place=k + 1) for k, n in enumerate(("a", "b", "c"))]
    accuracy = {m.name: (0.9, 0.88, 0.92) for m in models}
    drawing = price(models, accuracy, {"a": 10.0, "b": 50_000.0})
    assert drawing is not None
    words = [str(element.text) for element in texts(drawing)]
    assert number(10_000.0) in words
    assert number(1e6) not in words  # where the third model stands
