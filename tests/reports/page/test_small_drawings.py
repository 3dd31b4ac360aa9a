"""Small drawings: their titles fit, their ticks are told apart, and none stands where there is no scale."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

from stability.reports.figures import crowd
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


def model(name: str, margin: float, place: int) -> Any:
    found = {"criterion": "kyp", "margin": margin}
    one = SimpleNamespace(number=lambda *_: None)
    return SimpleNamespace(name=name, title=name, place=place, certificate={"findings": [found]}, trainings=one)


def test_margins_of_many_models_stand_on_their_side_of_zero_each_in_its_row() -> None:
    margins = {"first": 0.5, "second": -1.0, "third": 0.25}
    drawing = crowd.margin([model(n, v, k) for k, (n, v) in enumerate(margins.items(), 1)], "kyp", "unused")
    assert drawing is not None
    root = ET.fromstring(drawing)
    assert "positive for 2 of 3 models: first, third" in str(root.get("aria-label"))
    rows = {str(t.text): float(str(t.get("y"))) for t in texts(drawing) if t.text in margins}
    (zero,) = [float(str(t.get("x"))) for t in texts(drawing) if t.text == "0"]
    strokes = [e for e in root.iter() if e.tag.endswith("path") and e.get("stroke-linecap") == "round"]
    dots = [tuple(map(float, str(e.get("d"))[1:-2].split())) for e in strokes]
    assert len(dots) == 3
    reach = (dots[0][0] - zero) / 0.5
    for (x, y), (name, value) in zip(dots, margins.items(), strict=True):
        assert abs(x - zero - reach * value) < 0.2
        assert abs(y + 3.4 - rows[name]) < 0.2
    assert crowd.margin([model("a", 1.0, 1)], "circle", "unused") is None


def test_names_of_curves_stand_in_a_row_of_their_own_above_the_axes() -> None:
    plain, named = (Plot("a", Axis(0, 1), Axis(0, 1), 240.0, 150.0, row=row) for row in (False, True))
    named.name("largest", "red", "heuristic", dash="4 2")
    named.name("smallest", "red", "heuristic")
    words = {str(t.text): (float(str(t.get("x"))), float(str(t.get("y")))) for t in texts(named.svg("nothing"))}
    assert words["smallest"][0] > words["largest"][0] + 6.2 * len("largest")
    assert words["a"][1] + 10 < words["largest"][1] < named.at(0.0, 1.0)[1] - 5
    assert named.inner == plain.inner
