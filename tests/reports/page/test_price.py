"""What stability costs: every point has its name, and no name lies on a dot, another name or a line of an interval."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from stability.reports.figures.labels import OUTSIDE, box_of
from stability.reports.figures.price import ASIDE, price

Box = tuple[float, float, float, float]


def drawing(count: int, seed: int, spread: float) -> tuple[ET.Element, list[str]]:
    rng = np.random.default_rng(seed)
    names = [f"Recurrent {'net' * (k % 3)} {k}" for k in range(count)]
    models: Any = [SimpleNamespace(name=f"m{k}", title=name, place=k + 1) for k, name in enumerate(names)]
    accuracy = {m.name: (v, v - 0.01, v + 0.01) for m in models for v in [0.95 + 0.01 * spread * rng.random()]}
    halved = {m.name: float(20 * np.exp(spread * rng.random())) for m in models[: max(1, count * 2 // 3)]}
    drawn = price(models, accuracy, halved)
    assert drawn is not None
    return ET.fromstring(drawn), names


def apart(one: Box, two: Box) -> bool:
    return one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("count", "spread"), [(2, 1.0), (12, 1.0), (12, 0.0), (12, 0.1), (40, 0.5), (150, 0.3)])
def test_every_point_has_a_name_that_lies_on_nothing(count: int, spread: float, seed: int) -> None:
    root, names = drawing(count, seed, spread)
    height = float(str(root.get("viewBox")).split()[3])
    words = [e for e in root.iter() if e.tag.endswith("text")]
    said = {str(e.text).split(":")[0]: e for e in words}
    assert set(names) <= set(said)
    boxes: dict[str, Box] = {}
    for e in words:
        if str(e.text).startswith("Recurrent") or e.text == ASIDE:
            x, y = float(str(e.get("x"))), float(str(e.get("y")))
            shift = {"start": 0.0, "middle": 0.5, "end": 1.0}[e.get("text-anchor", "start")]
            left, top, right, bottom = box_of(str(e.text), x, y)
            boxes[str(e.text)] = (left - shift * (right - left), top, right - shift * (right - left), bottom)
    paths = [e for e in root.iter() if e.tag.endswith("path")]
    dots = [
        (float(x), float(y)) for e in paths if e.get("stroke-linecap") == "round"
        for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", str(e.get("d")))
    ]  # fmt: skip
    assert len(dots) >= count
    strokes = [tuple(map(float, re.findall(r"[\d.]+", str(e.get("d"))))) for e in paths if e.get("opacity") == "0.6"]
    assert len(strokes) == count
    for k, (name, box) in enumerate(boxes.items()):
        assert box[0] >= 0
        assert box[2] <= 640
        assert box[3] <= height
        assert all(apart(box, other) for other in list(boxes.values())[k + 1 :]), name
        assert all(apart(box, (x - 3, y - 3, x + 3, y + 3)) for x, y in dots), name
        if name != ASIDE:
            assert all(apart(box, (x, min(a, b), x, max(a, b))) for x, a, _, b in strokes), name
    for e in paths:
        if e.get("class") == "leader":
            a, b, c, d = map(float, re.findall(r"[\d.]+", str(e.get("d"))))
            along = [(a + t * (c - a), b + t * (d - b)) for t in np.linspace(0.0, 1.0, 200)]
            for left, top, right, bottom in boxes.values():
                assert not any(left + 1 < x < right - 1 and top + 1 < y < bottom - 1 for x, y in along)
            assert min(abs(np.hypot(a - x, b - y) - OUTSIDE) for x, y in dots) < 0.2
            name = min(boxes, key=lambda n: max(boxes[n][0] - c, c - boxes[n][2], boxes[n][1] - d, d - boxes[n][3]))
            right = 2.0 * c > boxes[name][0] + boxes[name][2]  # words begin or end where their line does
            assert said[name].get("text-anchor") == ("end" if right else "start")


def test_names_on_the_left_of_their_points_end_there() -> None:
    root, _ = drawing(12, 0, 1.0)
    assert any(e.get("text-anchor") == "end" and str(e.text).startswith("Recurrent") for e in root.iter())


def test_names_without_room_stand_beneath_with_their_numbers() -> None:
    root, _ = drawing(150, 0, 0.3)
    beneath = [str(e.text) for e in root.iter() if e.tag.endswith("text") and ": " in str(e.text)]
    assert len(beneath) > 20
    assert any(re.fullmatch(r"Recurrent \w* ?\d+: 95\.\d %, after [\d.]+ steps", words) for words in beneath)
    assert any(words.endswith(f"%, {ASIDE}") for words in beneath)
    few, _ = drawing(4, 0, 1.0)
    assert not [e for e in few.iter() if e.tag.endswith("text") and ": " in str(e.text)]
