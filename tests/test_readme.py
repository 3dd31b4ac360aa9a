"""What the README shows works as shown."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stability.reports.cli import COMMANDS, run

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted((ROOT / "docs").rglob("*.md"))
BLOCKS = re.findall(
    r"```python\n(.*?)```", TEXT + "".join(p.read_text(encoding="utf-8") for p in PAGES), flags=re.DOTALL
)


@pytest.mark.parametrize("code", BLOCKS, ids=lambda code: code.strip().splitlines()[-1][:40])
def test_python_runs_and_prints_what_its_comments_say(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    promised = [c.strip() for c in re.findall(r"^print\(.*\) +# (.*)$", code, flags=re.MULTILINE)]
    assert [line for line in printed if line in promised] == promised


def test_every_command_is_told() -> None:
    section = TEXT[TEXT.index("## Commands") : TEXT.index("## Data")]
    assert {n for n in COMMANDS if f"`stability {n}" not in section and f"`{n}`" not in section} == set()


def test_commands_of_the_start_are_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        shlex.split(line)[1:]
        for line in TEXT.splitlines()
        if line.startswith("    stability ") and "report" not in line
    ]
    assert len(lines) >= 3
    small = ["--task-set", "size=7", "--task-set", "limit=50", "--task-set", "test_limit=20", "--epochs", "1"]
    for line in lines:
        assert run([*line, *(small if line[0] == "train" else []), "--quiet"]) == 0
