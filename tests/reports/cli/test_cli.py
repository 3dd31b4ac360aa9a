"""The command line: exit codes, one line for every mistake, JSON, and a quick start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stability.reports import cli

STABLE = {"A": -2.0 * np.eye(3), "W": 0.5 * np.eye(3)}
UNSTABLE = {"A": -1.0 * np.eye(3), "W": 1.5 * np.eye(3)}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez(tmp_path / "stable.npz", **STABLE)
    np.savez(tmp_path / "unstable.npz", **UNSTABLE)
    return tmp_path


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Runs a command that must end as bad input; returns its one line."""
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("stability: error: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err


def test_certify_then_verify_then_a_changed_digit(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["certify", "stable.npz", "-o", "c.json"]) == 0
    screen = capsys.readouterr().out
    assert screen.count("\n") <= 24 + 4  # 80 columns; 24 lines at 100 columns
    for words in ("PROVEN STABLE", "at most half", "overshoot", "multiplier", "stability verify c.json"):
        assert words in " ".join(screen.split())
    assert cli.run(["verify", "c.json"]) == 0
    assert "valid" in capsys.readouterr().out
    text = Path("c.json").read_text()
    at = text.index('"rate": 1.') + len('"rate": 1.')
    Path("c.json").write_text(text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :])
    assert cli.run(["verify", "c.json"]) == 1
    assert "INVALID" in capsys.readouterr().out


def test_the_gain_margin_of_a_loop_is_the_known_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["certify", "stable.npz", "--gain-margin", "--json"]) == 0
    margin = json.loads(capsys.readouterr().out)["gain_margin"]
    assert 0.99 * 4 < margin["certified"] <= 4 <= margin["destabilizing"] < 1.01 * 4  # x' = -2 x + k / 2 phi(x)
    assert cli.run(["certify", "stable.npz", "unstable.npz", "--gain-margin", "-q"]) == 2
    np.savez("negative.npz", A=-np.eye(2), W=-np.eye(2))
    assert cli.run(["certify", "negative.npz", "--gain-margin"]) == 0
    assert "destabilize" not in capsys.readouterr().out


def test_the_screen_says_that_a_rate_is_slow_and_names_criteria_that_do_not_apply_once(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for decay, slow in ((0.9999, True), (0.5, False)):
        np.savez("decay.npz", A=decay * np.eye(2), W=np.zeros((2, 2)), dt=1.0)
        assert cli.run(["certify", "decay.npz"]) == 0
        screen = capsys.readouterr().out
        assert ("slow" in screen) == slow
        assert screen.count("does not apply") == 1


def test_exit_codes_of_certify(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["certify", "unstable.npz", "--quiet"]) == 3
    assert cli.run(["certify", "unstable.npz", "--no-refute", "--quiet"]) == 1
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_json_is_one_object(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["certify", "stable.npz", "--json", "-o", "c.json"])
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "certified"
    assert document["rate"] * document["half_life"] == pytest.approx(np.log(2))
    cli.run(["verify", "c.json", "--json"])
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_rates_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["certify", "stable.npz", "--rate", "1.2", "--quiet"]) == 0
    capsys.readouterr()
    assert cli.run(["certify", "stable.npz", "--rate", "5", "--no-refute", "-o", "c.json"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "Certified stable, but not at the rate 5: best proved λ = 1.499" in said
    assert "UNDECIDED" not in said
    assert cli.run(["verify", "c.json"]) == 0
    said = capsys.readouterr().out
    for words in ("valid (proven stable)", "claim", "sha256", "overshoot", "proved", "|x(t) - y(t)|_2 <="):
        assert words in said
    assert "--rate" in fails(capsys, "certify", "stable.npz", "--rate", "soon")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["certify", "missing.npz"], "missing.npz"),
        (["certify", "."], "directory"),
        (["certify", "stable.npz", "--criterion", "magic"], "theorem1a"),
        (["certify", "stable.npz", "--solver", "magic"], "magic"),
        (["certify", "stable.npz", "-o", "no/such/place.json"], "no/such"),
        (["certify", "stable.npz", "-o", "."], "directory"),
        (["verify", "missing.json"], "missing.json"),
        (["train", "--model", "transformer"], "lipschitz"),
        (["train", "--task", "imagenet"], "digits"),
        (["train", "--set", "beta"], "NAME=VALUE"),
        (["train", "--set", "magic=1"], "magic"),
        (["train", "--device", "abacus"], "abacus"),
        (["train", "--epochs", "0"], "epochs"),
        (["train", "--set", "activation=relu", "--set", "activation=tanh"], "activation twice"),
        (["train", "--task-set", "seed=3"], "--seed"),
        (["train", "--task-set", "data_dir=x"], "--data-dir"),
        (["train", "--seed", str(2**64)], "--seed"),
        (["compare", "stable.npz", "stable.npz", "--seed", str(2**63)], "--seed"),
        (["train", "--lr", "1e300"], "lr must be at most 1e+30"),
        (["train", "--set", "lyapunov_weight=2"], "lyapunov_target"),
        (["train", "--model", "elman", "--hidden", "100000000"], "10000003900000010 parameters"),
        (["certify", "stable.npz", "--cell", "gru"], "state dict only"),
        (["train", "--resume", "nowhere"], "nowhere"),
        (["report", "--models", "transformer"], "lipschitz"),
        (["report", "missing.safetensors"], "missing.safetensors"),
        (["report", "--redraw", "."], "report-settings.json"),
        (["hessian", "missing"], "missing"),
        (["noise", "stable.npz"], "stable.npz"),
        (["study", "magic"], "magic"),
        (["certify"], "MODEL"),
        (["certify", "stable.npz", "--frobnicate"], "--frobnicate"),
        (["frobnicate"], "frobnicate"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_bad_input_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    before = sorted(p.name for p in here.iterdir())
    assert words in fails(capsys, *arguments)
    assert sorted(p.name for p in here.iterdir()) == before


@pytest.mark.parametrize(
    "arrays",
    [
        {"A": np.eye(3)[:2], "W": np.eye(3)},
        {"A": np.eye(3) * np.nan, "W": np.eye(3)},
        {"A": np.eye(3), "W": np.eye(2)},
        {"W": np.eye(3)},
        {"A": np.eye(3), "W": np.eye(3), "Q": np.eye(3)},
        {"A": np.eye(3) * 1j, "W": np.eye(3)},
        {"A": np.eye(3), "W": np.eye(3), "dt": -1.0},
        {"A": np.eye(3), "W": np.eye(3), "dt": np.ones(3)},
        {"A": np.eye(3), "W": np.eye(3), "slope": [1.0, 0.0]},
        {"A": np.zeros((0, 0)), "W": np.zeros((0, 0))},
        {"A": np.array("text"), "W": np.eye(3)},
    ],
    ids=str,
)
def test_bad_matrices_are_one_line(here: Path, capsys: pytest.CaptureFixture[str], arrays: dict) -> None:
    np.savez("bad.npz", **arrays)
    fails(capsys, "certify", "bad.npz")


def test_a_wrong_shape_is_told_by_the_name_in_the_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("bad.npz", A=-np.eye(2), W=np.ones((3, 2)))
    assert "W must have shape (2, 2), got (3, 2)" in fails(capsys, "certify", "bad.npz")
    np.savez("bad.npz", A=-np.eye(2), B=np.ones((2, 4)), W=np.ones((3, 2)))
    assert "W must have shape (4, 2), got (3, 2)" in fails(capsys, "certify", "bad.npz")
    np.savez("bad.npz", A=-np.eye(2), B=np.ones((2, 3)), C=np.ones((2, 2)))
    assert "C must have shape (3, 2), got (2, 2)" in fails(capsys, "certify", "bad.npz")


def test_pickles_are_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("bad.npz", A=np.array([object()], dtype=object), W=np.eye(1))
    assert "pickled" in fails(capsys, "certify", "bad.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut off", b"\x00" * 64])
def test_damaged_files_are_one_line(here: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
    Path("bad.npz").write_bytes(content)
    fails(capsys, "certify", "bad.npz")


def test_a_discrete_system_with_all_its_matrices(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("d.npz", A=[[0.5]], B=[[0.25, 0.0]], C=[[1.0], [1.0]], D=[[0, 0], [0.1, 0]], slope=[0.0, 1.0], dt=1.0)
    assert cli.run(["certify", "d.npz", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["discrete"] is True
    assert 0.75 <= document["rate"] < 1


def test_unexpected_errors_are_not_hidden(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(sys.modules["stability.certification"], "certify", broken)
    with pytest.raises(RuntimeError, match="a defect of ours"):
        cli.run(["certify", "stable.npz"])


def test_an_interruption_is_said_with_its_exit_code(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["stability.certification"], "certify", interrupted)
    assert cli.run(["certify", "stable.npz"]) == 130
    assert capsys.readouterr().err.startswith("stability: interrupted: ")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("stability 0.")
    assert cli.run(["--help"]) == 0
    text = capsys.readouterr().out
    for command in ("report", "train", "certify", "verify", "compare", "hessian", "attack", "noise", "study"):
        assert command in text


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["certify", "--help"], 0),
        (["verify", "c.json"], 0),
        (["certify", "nowhere.npz"], 2),
        (["certify", "stable.npz", "-o", "no/such/place.json"], 2),
        (["verify", "nowhere.json"], 2),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_light_commands_load_no_heavy_library(here: Path, arguments: list[str], code: int) -> None:
    cli.run(["certify", "stable.npz", "-o", "c.json", "--quiet"])
    program = (
        "import sys; from stability.reports.cli import run; code = run(sys.argv[1:]); "
        "heavy = [m for m in ('torch', 'cvxpy', 'matplotlib', 'pandas') if m in sys.modules]; "
        "sys.stdout.write('heavy: ' + ' '.join(heavy)); "
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stdout.endswith("heavy: ")


def test_module_and_script_are_the_same_door(here: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "stability", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("stability ")


@pytest.mark.parametrize("dt", [None, 1.0])
def test_a_rate_is_asked_of_a_network_with_its_own_activation(
    here: Path, capsys: pytest.CaptureFixture[str], dt: float | None
) -> None:
    arrays = {"A": np.eye(2) * (-2.0 if dt is None else 0.0), "W": 0.5 * np.eye(2), "U": np.ones((2, 1))}
    np.savez(here / "net.npz", **arrays, **({} if dt is None else {"dt": dt}))
    assert cli.run(["certify", "net.npz", "--rate", "0.75", "--quiet"]) == 0
    wanted = "in (0, 1] per step" if dt else ">= 0 per unit of time"
    for rate in ("-1", "nan", "1e400"):
        assert wanted in fails(capsys, "certify", "net.npz", f"--rate={rate}")
    (here / "net.npz").unlink()
