"""Many models or certificates at once: a line each, the worst exit code, and what is required to pass."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stability.reports import cli


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Systems known by hand: x' = -2 x + phi(x / 2) contracts at 1.5, x' = -x + phi(2 x) does not, an odd one out."""
    monkeypatch.chdir(tmp_path)
    np.savez("good.npz", A=-2.0 * np.eye(2), W=0.5 * np.eye(2))
    np.savez("bad.npz", A=-1.0 * np.eye(2), W=2.0 * np.eye(2))
    np.savez("map.npz", A=0.5 * np.eye(2), W=np.zeros((2, 2)), dt=1.0)
    Path("broken.npz").write_text("x")
    return tmp_path


def rows(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["good.npz", "map.npz"], 0),
        (["bad.npz", "good.npz"], 3),
        (["good.npz", "broken.npz", "bad.npz"], 2),
        (["good.npz", "absent.npz"], 2),
    ],
)
def test_the_worst_exit_code_and_a_line_each(here, capsys, names, code):
    assert cli.run(["certify", *names, "--json"]) == code
    found = rows(capsys)
    assert [row["name"] for row in found] == names
    verdicts = {"good.npz": "certified", "map.npz": "certified", "bad.npz": "refuted"}
    assert [row["verdict"] for row in found] == [verdicts.get(name, "error") for name in names]
    assert all(bool(row["reason"]) is (row["verdict"] == "error") for row in found)


@pytest.mark.parametrize(
    ("names", "options", "code"),
    [
        (["good.npz"], ["--min-rate", "1.4"], 0),  # a flow: at least
        (["good.npz"], ["--min-rate", "1.6"], 1),
        (["map.npz"], ["--min-rate", "0.6"], 0),  # a map: at most
        (["map.npz"], ["--min-rate", "0.4"], 1),
        (["good.npz", "bad.npz"], ["--min-rate", "1.6"], 3),
        (["good.npz"], ["--require", "proved"], 0),
        (["bad.npz"], ["--require", "unrefuted"], 3),
        (["bad.npz"], ["--require", "proved", "--no-refute"], 1),
        (["bad.npz"], ["--require", "unrefuted", "--no-refute"], 0),
        (["good.npz", "good.npz"], ["--rate", "1.7"], 1),
        (["good.npz"], ["--require", "nonsense"], 2),
        (["good.npz"], ["--min-rate", "0"], 2),
        (["good.npz"], ["--require", "unrefuted", "--min-rate", "1"], 2),
        (["good.npz", "map.npz"], ["--cross-check"], 2),
    ],
)
def test_what_is_required_decides(here, capsys, names, options, code):
    assert cli.run(["certify", *names, *options]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == (0 if code == 2 else len(names))
    assert out.count("✓") == (len(names) if code == 0 else 0)


def test_certificates_of_many_are_checked_in_their_folder(here, capsys):
    assert cli.run(["certify", "good.npz", "bad.npz", "good.npz", "-o", "kept", "-q"]) == 3
    kept = sorted(path.name for path in Path("kept").iterdir())
    assert kept == ["000-good.certificate.json", "001-bad.certificate.json", "002-good.certificate.json"]
    Path("kept", "note.json").write_text("{}")
    assert cli.run(["verify", "kept", "--json"]) == 0
    assert [row["verdict"] for row in rows(capsys)] == ["certified", "refuted", "certified"]
    assert cli.run(["verify", "kept", "--require", "proved", "-q"]) == 3
    assert cli.run(["verify", "kept/000-good.certificate.json", "--min-rate", "1.6", "-q"]) == 1
    assert cli.run(["verify", "kept/000-good.certificate.json", "--min-rate", "1.4", "-q"]) == 0
    assert cli.run(["verify", "kept/000-good.certificate.json", "kept/absent.json", "-q"]) == 2
    path = Path("kept", "000-good.certificate.json")
    path.write_text(path.read_text().replace('"rate"', '"Rate"'))
    capsys.readouterr()
    assert cli.run(["verify", "kept", "--json"]) == 1
    assert [row["verdict"] for row in rows(capsys)] == ["invalid", "refuted", "certified"]


def test_a_folder_without_certificates_is_refused(here, capsys):
    Path("empty").mkdir()
    assert cli.run(["verify", "empty"]) == 2
    assert "empty" in capsys.readouterr().err
    assert cli.run(["certify", "good.npz", "map.npz", "-o", "kept", "-q"]) == 0
    assert cli.run(["verify", "empty", "kept"]) == 2  # the others are checked all the same
    assert capsys.readouterr().out.count("✓ proven stable") == 2


@pytest.fixture
def bistable(here: Path) -> Path:
    """h+ = tanh(3 h + u) has two resting states under u = 0 and one under an input near 9."""
    np.savez("bistable.npz", A=np.zeros((1, 1)), B=np.eye(1), W=[[3.0]], dt=1.0, U=np.eye(1), activation="tanh")
    (here / "kept").mkdir()
    assert cli.run(["certify", "bistable.npz", "--input-box", "9", "9.5", "-o", "kept/box.json", "-q"]) == 0
    return here


def test_a_proof_for_a_box_passes_the_gate_by_name_alone(bistable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for asked in (["verify", "kept"], ["certify", "bistable.npz", "--input-box", "9", "9.5"]):
        assert cli.run([*asked, "--require", "proved"]) == 1
        assert cli.run([*asked, "--min-rate", "0.98", "--allow-box"]) == 0
        assert capsys.readouterr().out.count("inputs in [9, 9.5]") == 2
    assert cli.run(["verify", "kept", "--json"]) == 0
    assert rows(capsys)[0]["inputs"] == "[9, 9.5]"


def test_an_open_certificate_is_nothing_to_check(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "kept").mkdir()
    assert cli.run(["certify", "bad.npz", "--no-refute", "-o", "kept/open.json"]) == 1
    assert "stability verify" not in capsys.readouterr().out
    assert cli.run(["verify", "kept/open.json"]) == 1
    assert "INVALID" not in capsys.readouterr().out
    assert cli.run(["verify", "kept", "--json"]) == 1
    assert rows(capsys)[0]["verdict"] == "inconclusive"
    assert cli.run(["verify", "kept", "--require", "unrefuted"]) == 0
