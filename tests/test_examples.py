"""The examples do what their first lines promise: trained by plain torch, certified or refuted from their files."""

from __future__ import annotations

import ast
import csv
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from stability.certification import certify
from stability.kernel.format.claims import Verdict
from stability.models.sources import load_subject
from stability.reports.cli import run
from stability.verification import verify

EXAMPLES = Path(__file__).parent.parent / "examples"
PLAIN = ("train_plain_torch.py", "export_onnx.py", "remember_a_bit.py")


def play(name: str, folder: Path, monkeypatch, capsys) -> str:
    """Run an example as a user does, in this process."""
    monkeypatch.setattr(sys, "argv", [name, str(folder)])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return capsys.readouterr().out


@pytest.mark.parametrize("name", PLAIN)
def test_the_plain_examples_import_nothing_of_ours(name):
    tree = ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))
    names = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    assert not [n for n in names if n.split(".")[0] == "stability"]


@pytest.mark.slow
def test_a_network_trained_elsewhere_is_certified_from_its_file_and_its_export(tmp_path, monkeypatch, capsys):
    assert "norm of the recurrent matrix 0.95" in play("train_plain_torch.py", tmp_path, monkeypatch, capsys)
    command = [sys.executable, "-m", "stability", "certify", str(tmp_path / "rnn.pt"), "--cell", "rnn_tanh", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "certified"
    assert answer["rate"] <= 0.95 * (1 + 1e-6)
    pytest.importorskip("onnx")
    play("export_onnx.py", tmp_path, monkeypatch, capsys)
    certificate = certify(load_subject(tmp_path / "rnn.onnx").subject)
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.rate == pytest.approx(answer["rate"], rel=1e-6)


def test_a_trained_lstm_that_remembers_is_refuted_with_a_proved_witness(tmp_path, monkeypatch, capsys):
    out = play("remember_a_bit.py", tmp_path, monkeypatch, capsys)
    assert "step 400, 36 steps to remember: right in 100%" in out
    certificate = certify(load_subject(tmp_path / "lstm.pt", input_box=(-1, 1)).subject)
    assert certificate.verdict is Verdict.REFUTED
    checked = verify(certificate.save(tmp_path / "c.json"))
    assert checked.valid, checked.reason
    assert "proved to exist" in checked.reason


@pytest.mark.slow
def test_one_reservoir_is_refuted_and_certified(tmp_path, monkeypatch, capsys):
    out = play("reservoir.py", tmp_path, monkeypatch, capsys).splitlines()
    assert "0.85, nothing known of inputs: refuted True" in out[0]
    assert "inputs in [-1, 1]: certified" in out[1]
    rate, seen = float(out[2].split()[1]), float(out[3].split()[-3])
    assert seen < rate < 0.95
    assert load_subject(tmp_path / "reservoir.npz").subject.states == 100


def test_a_class_of_ones_own_is_certified(tmp_path, monkeypatch, capsys):
    out = play("own_module.py", tmp_path, monkeypatch, capsys)
    assert out.startswith("certified: rate 0.9")
    assert "matrix inequality holds" in out


def test_a_network_and_data_of_ones_own_from_python_and_from_the_file(tmp_path, monkeypatch, capsys):
    out = play("own_data.py", tmp_path, monkeypatch, capsys)
    accuracy = float(out.split()[1].rstrip(","))
    assert accuracy > 0.8
    monkeypatch.chdir(tmp_path)
    command = ["noise", "own_data:load", "--data", "sensor.npz", "--levels", "0", "--json"]
    try:
        assert run(command) == 0
    finally:
        sys.modules.pop("own_data", None)
    answer = json.loads(capsys.readouterr().out)
    assert answer["accuracy"] == [pytest.approx(accuracy, abs=6e-4)]
    assert answer["n"] == 100


@pytest.mark.slow
def test_training_comes_to_the_exponent_that_is_asked_for(tmp_path, monkeypatch, capsys):
    lines = play("lyapunov_target.py", tmp_path, monkeypatch, capsys).splitlines()
    plain, forgets, edge = (float(line.split("exponent ")[1].split()[0]) for line in lines)
    assert abs(forgets + 0.7) < 0.1 < abs(plain + 0.7)
    assert abs(edge) < 0.1
    assert (tmp_path / "edge" / "run.json").is_file()


def test_a_reservoir_recalls_and_is_certified(tmp_path, monkeypatch, capsys):
    out = play("echo_state.py", tmp_path, monkeypatch, capsys)
    left = [float(part.split(": ")[1]) for part in out.splitlines()[1].split(", ")]
    assert left == sorted(left)
    assert left[0] < 0.01
    assert left[-1] < 0.5
    assert "certified: differences shrink at least by the factor 0.97" in out
    certificate = certify(load_subject(tmp_path / "reservoir.safetensors").subject, rate="any")
    assert certificate.verdict is Verdict.CERTIFIED


def test_a_trained_mamba2_has_states_below_its_bounds(tmp_path, monkeypatch, capsys):
    out = play("gated_memory.py", tmp_path, monkeypatch, capsys)
    assert out.count("certified, proofs checked again: True") == 2
    pairs = re.findall(r"head \d: ([\d.]+) \(([\d.]+)\); an input", out)
    assert len(pairs) == 8
    assert all(float(bound) > float(state) > 0.0 for bound, state in pairs)
    losses = re.search(r"text: ([\d.]+) nats, with floors ([\d.]+)", out)
    assert losses
    assert abs(float(losses[1]) - float(losses[2])) < 1e-3
    horizons = re.findall(r"horizon ([\d,]+|inf) steps, with floors ([\d,]+)\n", out)
    assert len(horizons) == 2
    assert all(float(after.replace(",", "")) < 0.5 * float(before.replace(",", "")) for before, after in horizons)


def test_growing_gain_goes_from_certified_to_refuted_in_this_order(tmp_path, monkeypatch):
    script = EXAMPLES.parent / "docs" / "figures" / "gain_ladder.py"
    arguments = ["--out", str(tmp_path), "--seeds", "1", "--gains", "5", "--time-limit", "5"]
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    runpy.run_path(str(script), run_name="__main__")
    with (tmp_path / "gain_ladder.csv").open(newline="") as handle:
        verdicts = [row["verdict"] for row in csv.DictReader(handle)]
    order = ["certified", "inconclusive", "refuted"]
    assert verdicts[0] == "certified"
    assert verdicts[-1] == "refuted"
    assert [order.index(v) for v in verdicts] == sorted(order.index(v) for v in verdicts)
    assert (tmp_path / "gain_ladder.svg").stat().st_size > 1000


@pytest.mark.slow
def test_what_is_robust_by_construction_is_proved_so(tmp_path, monkeypatch, capsys):
    lines = play("robust_by_construction.py", tmp_path, monkeypatch, capsys).splitlines()
    plain, bounded = ([int(share[:-1]) for share in line.split() if share.endswith("%")] for line in lines[:2])
    assert bounded[0] > 75
    assert bounded[0] >= bounded[1] >= bounded[2] > plain[2]
    assert bounded[2] > plain[1]  # proved where attacks succeed on the other
    assert run(["certify", str(tmp_path / "bounded_gain"), "-o", str(tmp_path / "certificate.json"), "--quiet"]) == 0
    assert run(["verify", str(tmp_path / "certificate.json"), "--quiet"]) == 0


def test_a_state_in_int8_stays_within_its_proved_bound(tmp_path, monkeypatch, capsys):
    rows = play("int8_state.py", tmp_path, monkeypatch, capsys).splitlines()[1:]
    numbers = [[float(cell) for cell in row.split()[-3:]] for row in rows]
    assert len(numbers) == 4
    assert all(0.0 < measured <= bound for bound, measured, _ in numbers)
    assert all(accuracy > 0.6 for *_, accuracy in numbers)


def test_a_flip_flop_of_two_bits_has_four_stable_fixed_points_and_no_others(tmp_path, monkeypatch, capsys):
    lines = play("flip_flop.py", tmp_path, monkeypatch, capsys).splitlines()
    assert lines[-11] == "9 fixed points, no others: True"
    remembered = {tuple(round(float(x)) for x in re.findall(r"[+-]\d\.\d+", row)) for row in lines if "stable " in row}
    assert remembered == {(1, 1), (1, -1), (-1, 1), (-1, -1)}
    assert (tmp_path / "fixed_points.png").stat().st_size > 1000


@pytest.mark.slow
def test_the_certified_region_of_the_pendulum_fills_half_of_the_simulated_one(tmp_path, monkeypatch, capsys):
    out = play("pendulum.py", tmp_path, monkeypatch, capsys)
    assert int(re.findall(r"simulated area: (\d+)%", out)[0]) >= 50
    assert (tmp_path / "pendulum.svg").stat().st_size > 1000
