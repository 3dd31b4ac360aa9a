"""Help and examples of the commands: examples that work, choices that exist, colours where they are wanted, JSON."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from stability.analysis.attacks.gradient import ATTACKS
from stability.analysis.curvature.hessian import METHODS
from stability.certification import CRITERIA
from stability.reports import cli
from stability.reports.cli import COMMANDS, Loaded, certify, console
from stability.reports.cli.help import EXAMPLES, ORDER


def command(name: str):
    return Loaded()[name]


def metavars(name: str) -> dict[str, list[str]]:
    """The choices that a command's help shows, by option."""
    found = {p.name: str(p.metavar or "") for p in command(name).params}
    return {key: text[1:-1].split("|") for key, text in found.items() if text.startswith("[") and "|" in text}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_examples_that_the_command_reads(name: str) -> None:
    assert EXAMPLES[name]
    assert EXAMPLES[name][0] in command(name).epilog
    for line in EXAMPLES[name]:
        program, word, *rest = shlex.split(line)
        assert (program, word) == ("stability", name)
        command(name).make_context(name, cli.rewrite_box_option(rest))  # an unknown option or a missing argument raises


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_sixty_lines_and_groups_every_option(name: str) -> None:
    page = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "80", "TERM": "dumb"}).output
    lines = page.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines if re.fullmatch(r"[A-Z]\w+:", line)]
    assert headings == [f"{heading}:" for heading in ORDER if f"{heading}:" in lines]
    for option in (option for p in command(name).params if not getattr(p, "hidden", False) for option in p.opts):
        assert option in page or not option.startswith("-")


def test_choices_are_those_that_exist() -> None:
    assert set(certify.CRITERION) == set(CRITERIA) - {"theorem1b_sound", "cascade"}
    assert set(metavars("attack")["attack"]) == set(ATTACKS)
    assert set(metavars("hessian")["method"]) == set(METHODS)
    assert set(metavars("radius")["norm"]) == set(metavars("attack")["norm"]) == {"l2", "linf"}
    assert metavars("verify")["method"] == ["float", "exact"]


def test_an_error_is_an_object_where_json_is_asked_for_and_the_line_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["certify", "gone.npz"], ["verify", "gone.json", "--method", "odd"], ["noise", "--wrong"]):
        assert cli.run([*arguments, "--json"]) == 2
        out, err = capsys.readouterr()
        said = json.loads(out)
        assert said == {"error": err.strip().removeprefix("stability: error: "), "exit_code": 2}
        assert cli.run(arguments) == 2
        assert capsys.readouterr() == ("", err)


def test_one_object_is_one_object_when_the_end_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    console.PRINTED = False
    assert cli._complain("error", "first", 2, True) == 2
    assert cli._complain("error", "second", 2, True) == 2
    out, err = capsys.readouterr()
    assert json.loads(out)["error"] == "first"
    assert err.count("\n") == 2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_verdicts_have_a_colour_on_a_terminal_unless_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("good.npz", A=-2 * np.eye(2), W=0.5 * np.eye(2))
    np.savez("bad.npz", A=-np.eye(2), W=3 * np.eye(2))
    shown = {}
    for name, env in (("plain", {"NO_COLOR": "1"}), ("dumb", {"TERM": "dumb"}), ("coloured", {"TERM": "xterm"})):
        monkeypatch.delenv("NO_COLOR", raising=False)
        for key, value in env.items():
            monkeypatch.setenv(key, value)
        monkeypatch.setattr(sys, "stdout", Terminal())
        assert cli.run(["certify", "good.npz"]) == 0
        assert cli.run(["certify", "bad.npz"]) == 3
        assert cli.run(["certify", "good.npz", "bad.npz"]) == 3
        shown[name] = sys.stdout.getvalue()
    assert "\x1b" not in shown["plain"] + shown["dumb"]
    assert "good.npz: \x1b[1;32mPROVEN STABLE\x1b[0m" in shown["coloured"]
    assert "bad.npz: \x1b[1;31mPROVEN NOT STABLE\x1b[0m" in shown["coloured"]
    assert "\x1b[1;32mproven stable\x1b[0m" in shown["coloured"]
    assert re.sub("\x1b\\[[0-9;]*m", "", shown["coloured"]) == shown["plain"]
