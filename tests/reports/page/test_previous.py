"""What changed since the report before: told once, and told the same when the page is drawn again."""

from __future__ import annotations

import json
from pathlib import Path

from stability.reports.page.previous import PREVIOUS, changes, earlier, essence


def document(rate: float, *names: str, value: float = 0.9) -> dict:
    models = [
        {
            "name": n, "title": n.upper(), "state": "certified", "certificate": {"rate": rate},
            "run": {"result": {"metric": "accuracy", "test_metric": value}},
            "analysis": {"files": {"model.safetensors": f"{n}{rate}"}},
        }
        for n in names
    ]  # fmt: skip
    return {"settings": {"finished": f"at {rate}"}, "models": models}


def written(folder: Path, now: dict) -> list[list[str]]:
    """What drawing does with the folder, and the cells of the table."""
    before = earlier(folder, now)
    if before is not None:
        (folder / PREVIOUS).write_text(json.dumps(before))
    (folder / "report.json").write_text(json.dumps(now))
    return [[cell.text for cell in row] for table in changes(now, before) for row in table.rows]


def test_changes_are_told_and_stay_told(tmp_path: Path) -> None:
    assert written(tmp_path, document(0.5, "a", "b")) == []
    assert written(tmp_path, document(0.5, "a", "b")) == []  # drawn again
    rows = written(tmp_path, document(0.25, "a", "c"))
    assert ["A", "certified rate", "ρ = 0.5 per step", "ρ = 0.25 per step"] in rows
    assert ["A", "weights, SHA-256", "a0.5", "a0.25"] in rows
    assert ["B", "model", "in the report", "not in the report"] in rows
    assert ["C", "model", "not in the report", "in the report"] in rows
    assert len(rows) == 4
    assert written(tmp_path, document(0.25, "a", "c")) == rows  # drawn again: the same report before
    assert json.loads((tmp_path / PREVIOUS).read_text())["finished"] == "at 0.5"


def test_damaged_files_of_before_are_no_report(tmp_path: Path) -> None:
    now = document(0.5, "a")
    for text in ("{", "[]", '{"models": 3}', '{"models": [3, {"name": 1, "run": 7}]}'):
        (tmp_path / "report.json").write_text(text)
        before = earlier(tmp_path, now)
        assert before is None or before["models"] != essence(now)["models"]
        assert isinstance(changes(now, before), tuple)
        (tmp_path / PREVIOUS).write_text('{"format": "stability-previous", "models": {"a": 5}}')
        assert isinstance(changes(now, earlier(tmp_path, now)), tuple)
