"""The command ``loop``: known numbers of textbook loops, units of time, and advice that works."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.signal import cont2discrete

from stability import hinf_norm, verify
from stability.reports import cli

LAG = {"A": np.array([[-3.0, -3, -1], [1, 0, 0], [0, 1, 0]]), "B": np.eye(3)[:, :1], "C": np.eye(3)[2:]}
INTEGRATOR = {"A": np.array([[0.0, 1, 0], [0, 0, 1], [0, -2, -3]]), "B": np.eye(3)[:, 2:], "C": 2 * np.eye(3)[:1]}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("lag.npz", **LAG)
    np.savez("integrator.npz", **INTEGRATOR)


def answer(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    assert cli.run(["loop", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_loop_has_the_margins_of_textbooks_and_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    """1 / (s + 1)^3: circle criterion 4, Nyquist 8, dominant pole of 1 + 3 s + 3 s^2 + s^3 = -1 at real part -1/2."""
    found = answer(capsys, 0, "lag.npz", "--sign", "-1", "--out", "page")
    nominal = found["nominal"]
    assert found["gain_margin"]["certified"] == pytest.approx(4.0, rel=2e-3)
    assert nominal["gain_margin"]["certified"] == pytest.approx(8.0, rel=2e-3)
    assert nominal["decay_per_unit_of_time"] == pytest.approx(0.5, rel=1e-2)
    assert nominal["half_life"] == pytest.approx(2 * math.log(2), rel=1e-2)
    assert found["settling_time"] == pytest.approx(math.log(found["overshoot"] / 0.02) / found["rate"], rel=1e-2)
    A, B, C = LAG.values()
    exact = 1.0 / hinf_norm(A - B @ C, B, -C, [[0.5]])
    assert 0.998 * exact < nominal["disk_margin"]["alpha"] <= exact
    assert verify("page/certificate.json").valid
    assert json.loads(Path("page/loop.json").read_text())["nominal"] == nominal
    assert "control loop" in Path("page/loop.html").read_text()


def test_rates_of_a_sampled_loop_are_per_unit_of_time(capsys: pytest.CaptureFixture[str]) -> None:
    A, B, C, D, dt = cont2discrete((*LAG.values(), np.zeros((1, 1))), 0.01)
    np.savez("sampled.npz", A=A, B=-B, C=C, D=-D, dt=dt, slope=[1.0, 1.0])
    found = answer(capsys, 0, "sampled.npz")
    assert found["decay_per_unit_of_time"] == pytest.approx(0.5, rel=2e-2)
    assert found["nominal"]["disk_margin"]["frequency"] == pytest.approx(1.05, rel=2e-2)
    assert found["largest_euler_step"] is None


def test_the_advice_for_an_integrator_is_a_sector_with_a_proof(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, 3, "integrator.npz", "--sign", "-1")
    advice = found["notes"][0]
    assert "slope 0 the loop has an eigenvalue on the imaginary axis" in advice
    answer(capsys, 0, "integrator.npz", "--sign", "-1", "--slope", *advice.partition("--slope ")[2].rstrip(".").split())
    assert cli.run(["loop", "integrator.npz"]) == 3
    assert "--sign -1" in capsys.readouterr().out


def test_a_factory_may_return_a_plant(capsys: pytest.CaptureFixture[str]) -> None:
    Path("plants.py").write_text("def load():\n    return [[1.0]], [[1.0]], [[1.0]], [[0.0]]\n")
    found = answer(capsys, 0, "plants.py:load", "--slope", "2", "3")
    assert found["gain_margin"]["certified_low"] == pytest.approx(0.5, rel=2e-3)
    for wrong in (["--slope", "3", "2"], ["--sign", "2"]):
        assert cli.run(["loop", "lag.npz", *wrong]) == 2


def test_loops_without_slopes_say_how_to_get_margins(capsys: pytest.CaptureFixture[str]) -> None:
    """A linear loop needs a slope; a plant with more zeros than poles is refused; a region is offered for a limit."""
    Path("loops.py").write_text(
        "from scipy.signal import TransferFunction\nfrom stability import feedback\n"
        "P = [[1.0]], [[1.0]], [[1.0]], [[0.0]]\n"
        "def linear():\n    return feedback(P, 2.0)\n"
        "def one():\n    return feedback(P, 2.0, slope=(1, 1))\n"
        "def limited():\n    return feedback(P, 2.0, saturation=1.0)\n"
        "def improper():\n    return TransferFunction([1, 0, 0], [1, 1])\n"
    )
    assert "slope=(1, 1)" in answer(capsys, 2, "loops.py:linear")["error"]
    assert "poles" in answer(capsys, 2, "loops.py:improper")["error"]
    assert answer(capsys, 0, "loops.py:one")["nominal"]["gain_margin"]["certified_low"] == pytest.approx(0.5, rel=2e-3)
    notes = " ".join(answer(capsys, 3, "loops.py:limited")["notes"])
    assert "regional" in notes
    assert "--slope" not in notes  # the command refuses slopes of a known nonlinearity
