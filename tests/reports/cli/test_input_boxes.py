"""Boxes of inputs: stated with the data, with ``--input-box``, or the range of the data; the same wherever asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stability.analysis import task_from_arrays
from stability.analysis.campaign.budgets import BUDGETS
from stability.analysis.campaign.inputs import data_range, part_range
from stability.certificate import Certificate
from stability.reports import cli
from stability.reports.boxes import box_note
from stability.verification import verify

from ..own_nets import SMALL, arrays

NETS = """
import torch
from torch import nn


class Bare(nn.Module):
    def __init__(self, flip=False):
        super().__init__()
        self.rnn, self.head, self.flip = nn.LSTM(3, 3, batch_first=True), nn.Linear(3, 3), flip
        with torch.no_grad():
            for p in self.rnn.parameters():
                p.mul_(0.05)

    def forward(self, x):
        return self.head(self.rnn(x.flip(-1) if self.flip else x)[0][:, -1])


def made(cls, *args):
    torch.manual_seed(2)
    return cls(*args)


def lstm():
    return made(Bare)


def flipped():
    return made(Bare, True)


def layer():
    torch.manual_seed(2)
    return nn.LSTM(3, 3, batch_first=True)


def elman():
    torch.manual_seed(2)
    return nn.RNN(3, 4, batch_first=True)


def two():
    torch.manual_seed(2)
    first, second = nn.RNN(3, 4, batch_first=True), nn.LSTM(4, 3, batch_first=True)
    with torch.no_grad():
        for p in (*first.parameters(), *second.parameters()):
            p.mul_(0.2)
    return nn.ModuleDict({"first": first, "second": second})
"""
LOW, HIGH = [-30.0, -40.0, -50.0], [35.0, 45.0, 55.0]


@pytest.fixture
def nets(own_nets: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(BUDGETS, "quick", SMALL)
    (own_nets / "boxnets.py").write_text(NETS)
    bounded: Any = arrays(lower=np.array(LOW), upper=np.array(HIGH))
    np.savez(own_nets / "bounded.npz", **bounded)
    return own_nets


def box(certificate: Certificate) -> list[list[float]]:
    """The box that a certificate is about, out of what it hashes."""
    subject: Any = certificate.subject
    return [subject.input_low.tolist(), subject.input_high.tolist()]


def report(nets: Path, *options: str, drawn: bool = False) -> tuple[Any, str]:
    """Return the analysis of ``boxnets:lstm`` says, the box in its certificate, and the page, or what it would say."""
    with pytest.MonkeyPatch.context() as patch:
        if not drawn:  # drawing takes longer than the rest
            patch.setattr("stability.reports.page.html.render", lambda folder, **_: Path(folder) / "report.html")
        assert cli.run(["report", *options, "--quick", "--processes", "1", "--out", "r", "-q"]) == 0
    folder = nets / "r" / "models" / "boxnets-lstm"
    assert verify(folder / "certificate.json").valid
    analysis = json.loads((folder / "analysis.json").read_text())
    page = (nets / "r" / "report.html").read_text(encoding="utf-8") if drawn else box_note(analysis)
    return {**analysis, "box": box(Certificate.load(folder / "certificate.json"))}, page


def test_bounds_of_features_are_the_box_of_the_certificate_and_the_limits_of_attacks(
    nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, page = report(nets, "boxnets:lstm", "--data", "bounded.npz")
    assert found["box"] == [LOW, HIGH]
    assert (found["input_box"], found["input_from"]) == ([LOW, HIGH], "bounds")
    assert "Inputs in [−30, 35] × [−40, 45] × [−50, 55], the bounds stated with the data." in page
    assert cli.run(["attack", "boxnets:lstm", "--data", "bounded.npz", "--json"]) == 0
    sizes = json.loads(capsys.readouterr().out)["sizes"]
    assert sizes[-1] == pytest.approx(0.1 * 105.0)  # a share of the widest feature
    # a huge radius stops at each feature's own bound
    task = task_from_arrays(**arrays(), bounds=(LOW, HIGH))
    from stability.analysis import pgd
    from stability.models.sources import load_module

    model = load_module("boxnets:lstm")
    assert model is not None
    x, y = task.test
    z = pgd(model, x, y, epsilon=1e4, bounds=task.bounds, steps=3).adversarial
    assert (z >= torch.tensor(LOW)).all()
    assert (z <= torch.tensor(HIGH)).all()
    assert float(z.max()) > 35.0  # beyond what the first feature may reach: each has its own


def test_without_bounds_the_range_of_the_data_is_the_box_and_it_is_said(nets: Path) -> None:
    found, page = report(nets, "boxnets:lstm", "--data", "good.npz")
    x = arrays()["x"]
    assert found["box"] == [[float(x.min())] * 3, [float(x.max())] * 3]
    assert found["input_from"] == "data"
    assert page.endswith("the range of the data.")
    exponents = json.loads((nets / "r" / "models" / "boxnets-lstm" / "exponents.json").read_text())
    assert exponents["bound"] is not None


def test_a_stated_box_takes_the_place_of_the_range_and_data_beyond_it_are_told(nets: Path) -> None:
    found, page = report(nets, "boxnets:lstm", "--data", "good.npz", "--input-box", "-0.5", "0.25", drawn=True)
    assert found["box"] == [[-0.5] * 3, [0.25] * 3]
    assert (found["input_box"], found["input_from"], found["stated_box"]) == ([-0.5, 0.25], "stated", [-0.5, 0.25])
    assert "Inputs in [−0.5, 0.25], as stated with --input-box; on the data they lie in" in page
    exponents = json.loads((nets / "r" / "models" / "boxnets-lstm" / "exponents.json").read_text())
    assert exponents["bound"] is None  # a claim about the box says nothing about exponents on data outside of it
    assert json.loads((nets / "r" / "report.json").read_text())["models"][0]["analysis"]["input_from"] == "stated"


def test_a_box_needs_no_data_and_decides_which_report_it_is(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["boxnets:lstm", "boxnets:elman", "--input-box", "-1", "1"]
    found, said = report(nets, *command)
    assert found["input_box"] == [-1, 1]
    assert said == "Inputs in [−1, 1], as stated with --input-box."
    elman = json.loads((nets / "r" / "models" / "boxnets-elman" / "analysis.json").read_text())
    assert elman["input_box"] is None  # its verdict is about every input, and a further claim about the box
    second = Certificate.load(nets / "r" / "models" / "boxnets-elman" / "certificate.json").meta["like_data"]
    assert (list(second["low"]), list(second["high"]), second["stated"]) == ([-1.0] * 3, [1.0] * 3, True)
    again = ["report", *command[:-1], "2", "--quick", "--processes", "1", "--out", "r"]
    assert cli.run(again) == 2
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ends", "says"),
    [(("2", "1"), "LOW <= HIGH"), (("nan", "1"), "finite"), (("-inf", "inf"), "finite"), (("a", "b"), "valid number")],
)
@pytest.mark.parametrize("command", [["report", "boxnets:lstm"], ["compare", "boxnets:lstm", "boxnets:elman"]])
def test_bad_boxes_are_refused_in_one_line(
    command: list[str], ends: tuple[str, str], says: str, nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*command, "--input-box", *ends]) == 2
    assert says in capsys.readouterr().err
    assert not (nets / "r").exists()


@pytest.mark.parametrize("command", [["report", "linear.npz"], ["report", "--models", "orthogonal,unitary"]])
def test_a_box_that_no_claim_would_be_about_is_refused(
    command: list[str], nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(nets / "linear.npz", A=-np.eye(2), W=np.zeros((2, 2)))
    assert cli.run([*command, "--input-box", "-1", "1", "--out", "r"]) == 2
    assert "--input-box has no effect on these models" in capsys.readouterr().err
    assert not (nets / "r").exists()


def test_comparing_certifies_for_the_inputs_that_the_report_does(
    nets: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", "boxnets:lstm", "boxnets:elman", "--data", "bounded.npz", "--factor", "2", "--samples", "4"]
    for options, told in (((), [[LOW, HIGH], "bounds"]), (("--input-box", "-1", "1"), [[-1, 1], "stated"])):
        assert cli.run([*command, *options, "--json"]) == 0
        rows = {r["model"]: r for r in json.loads(capsys.readouterr().out)["models"]}
        row = rows["boxnets:lstm"]
        assert [row["input_box"], row["input_from"]] == told
        assert row["verdict"] == "certified"  # without a box no criterion holds for an LSTM
        assert "input_box" not in rows["boxnets:elman"]


def test_features_in_another_order_do_not_get_the_bounds_of_the_data(nets: Path) -> None:
    """Found by what each feature holds: the ranges of all features together are those of the data."""
    from stability.models.sources import load_module

    task = task_from_arrays(**arrays(), bounds=(LOW, HIGH))
    straight, flipped = load_module("boxnets:lstm"), load_module("boxnets:flipped")
    assert part_range(straight, straight, task) == ((tuple(LOW), tuple(HIGH)), "")
    x = arrays()["x"]
    assert part_range(flipped, flipped, task) == ((float(x.min()), float(x.max())), "rnn")
    assert data_range(task) == (tuple(LOW), tuple(HIGH))


def certified(nets: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """Exit code and JSON of ``certify``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(nets)
        code = cli.run(["certify", *words, "--json"])
    out = capsys.readouterr().out
    return code, json.loads(out) if out else None


@pytest.fixture
def latch(nets: Path) -> str:
    """``x+ = tanh(2 x + u + 2)``: refuted under every input, certified for inputs near zero."""
    one = np.ones((1, 1))
    np.savez(nets / "latch.npz", A=0 * one, W=2 * one, U=one, b=2 * np.ones(1), dt=1.0, activation="tanh")
    return "latch.npz"


@pytest.mark.parametrize(
    "words", [("-0.2", "0.2"), ("-0.2,0.2",), ("=-0.2,0.2",), ("ends.txt",), ("ends.npz",)], ids=" ".join
)
def test_every_form_of_a_box_is_the_same_box(nets, latch, words, capsys):
    (nets / "ends.txt").write_text("-0.2, 0.2\n")
    np.savez(nets / "ends.npz", low=[-0.2], high=[0.2])
    option = ["--input-box" + words[0]] if words[0].startswith("=") else ["--input-box", *words]
    code, found = certified(nets, latch, *option, capsys=capsys)
    assert code == 0
    assert (found["verdict"], found["evidence"], found["criterion"]) == ("certified", "proved", "driven")
    assert "[-0.2, 0.2]" in found["statement"]
    driven = found["driven"]
    assert (driven["low"], driven["high"]) == ([-0.2], [0.2])
    assert driven["since"] == driven["settling"] + 1  # a step for entry, the others for the sets
    assert [c["verdict"] for c in found["claims"] if c["name"] == "contraction"] == ["refuted"]
    assert 0 < found["rate"] < 0.4


def test_the_range_of_the_data_is_that_of_the_data(nets, capsys):
    code, found = certified(nets, "boxnets:lstm", "--input-box", "data", "--data", "bounded.npz", capsys=capsys)
    assert code in (0, 1)
    assert f"all within [{min(LOW):g}, {max(HIGH):g}]" in found["statement"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--input-box", "nowhere"), "there is no file nowhere"),
        (("--input-box", "three.txt"), "two numbers a line"),
        (("--input-box", "words.txt"), "two numbers a line"),
        (("--input-box", "latch.npz"), "low and high"),
        (("--input-box", "1,0"), "LOW <= HIGH"),
        (("--input-box", "nan,0"), "finite"),
        (("--input-box", "two.txt"), "(1,)"),
        (("--input-box", "0", "1", "--input-box", "ends.txt"), "twice"),
        (("--input-box", "0", "1", "--data", "good.npz"), "leave them out"),
        (("--input-box", "data"), "no data are known"),
    ],
)
def test_what_is_no_box_is_said_in_one_line(nets, latch, words, why, capsys):
    (nets / "three.txt").write_text("0 1 2\n")
    (nets / "words.txt").write_text("low high\n")
    (nets / "two.txt").write_text("0 1\n0 1\n")
    (nets / "ends.txt").write_text("0 1\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(nets)
        assert cli.run(["certify", latch, *words]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_the_range_of_data_counts_no_padding_and_keeps_a_feature_that_never_moves():
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.3, 0.3, size=(20, 6, 3)).astype(np.float32)
    x[..., 2] = 0.25
    lengths = np.where(np.arange(20) % 2, 6, 3)
    x[::2, 3:] = 7.0
    low, high = data_range(task_from_arrays(x, np.arange(20) % 2, name="padded", lengths=lengths))
    assert (-0.3 <= low < -0.2, 0.25 <= high <= 0.3) == (True, True)
