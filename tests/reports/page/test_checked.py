"""The page refuses certificates that are not true, and results of another model."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from stability.certification import certify
from stability.kernel.format.claims import Verdict
from stability.reports import cli, render
from stability.reports.stored.collect import collect
from stability.systems import LureSystem
from stability.verification import verify

from ..conftest import certificate, make_report_dir, seal


def model(folder: Path, name: str = "contracting") -> Path:
    return folder / "models" / name


def page(folder: Path) -> str:
    return render(folder).read_text(encoding="utf-8")


def cards(text: str) -> str:
    return text[text.index('<section id="models"') : text.index("</section>", text.index('<section id="models"'))]


def test_a_changed_verdict_is_not_shown(report_dir: Path) -> None:
    """The refuted model's file says certified, without and with a digest that fits."""
    file = model(report_dir, "lstm") / "certificate.json"
    document = json.loads(file.read_text())
    document["claim"] |= {"verdict": "certified", "value": 0.5}
    document |= {"criterion": "multiplier", "rate": 0.5}
    file.write_text(json.dumps(document))
    for _ in range(2):
        assert not verify(file).valid
        text = page(report_dir)
        assert text.count('<details class="card certified"') == 1
        assert '<details class="card invalid"' in text
        assert "1 has a certificate that does not verify" in text
        assert "Does not verify" in cards(text)
        stored = json.loads((report_dir / "report.json").read_text())["models"][2]
        assert stored["verdict"] is stored["evidence"] is stored["certificate"] is None
        assert stored["state"] == "invalid"
        loaded = certificate(Verdict.REFUTED)
        claim = dataclasses.replace(loaded.claim, verdict=Verdict.CERTIFIED, value=0.5)
        dataclasses.replace(loaded, claim=claim, rate=0.5, overshoot=1.0).save(file)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\xfe no", b'{"format": "stability-certificate", "version": 1}'])
def test_a_file_that_cannot_be_read_is_told_on_its_card(small_dir: Path, damage: bytes) -> None:
    (model(small_dir) / "certificate.json").write_bytes(damage)
    text = page(small_dir)
    assert '<details class="card invalid"' in text
    assert "Proven stable" not in cards(text)


def test_every_answer_of_the_page_is_the_checkers(report_dir: Path) -> None:
    for record in collect(report_dir).models:
        found = verify(record.folder / "certificate.json")
        assert (record.checked, record.subject) == (found.reason, found.subject)


def test_a_valid_certificate_of_another_model_is_not_shown(report_dir: Path) -> None:
    folder = model(report_dir)
    name = "certificate.json"
    seal(folder)
    assert collect(report_dir).models[0].state == "certified"
    other = LureSystem([[0.1]], [[1.0]], [[0.1]], dt=1.0)
    certify(other).save(folder / name)
    record = collect(report_dir).models[0]
    assert record.state == "invalid"
    assert "not the certificate that the analysis" in record.refused


def test_a_certificate_belongs_to_the_weights_beside_it(small_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The digest of the certificate's file in ``analysis.json`` may be edited along with the certificate."""
    folder = model(small_dir)
    (folder / "model.safetensors").write_bytes(b"the weights")
    own = certificate(Verdict.CERTIFIED)
    for weights, state in ((b"the weights", "certified"), (b"others", "invalid"), (None, "invalid")):
        meta = {} if weights is None else {"model": hashlib.sha256(weights).hexdigest()}
        dataclasses.replace(own, meta=meta).save(folder / "certificate.json")
        seal(folder)
        assert collect(small_dir).models[0].state == state
    assert cli.run(["report", "--redraw", str(small_dir)]) == 2
    assert "another model" in capsys.readouterr().err


def test_a_report_of_an_open_question_alone_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model came with data, but could not be run: the page has no empty section, and the command says why."""
    report = make_report_dir(tmp_path / "report", ("lipschitz",))
    folder = model(report, "lipschitz")
    assert cli.run(["report", "--redraw", str(report)]) == 0
    assert collect(report).models[0].state == "inconclusive"
    analysis = json.loads((folder / "analysis.json").read_text())
    steps = {
        s: {"status": "unavailable", "reason": "no network to run"} for s in ("noise", "attacks", "norms", "local")
    }
    steps["certificate"] = {"status": "done"}
    (folder / "analysis.json").write_text(json.dumps({**analysis, "steps": steps, "task": {"name": "data"}}))
    for path in folder.iterdir():
        if path.name not in ("analysis.json", "certificate.json"):
            path.unlink()
    seal(folder)
    capsys.readouterr()
    assert cli.run(["report", "--redraw", str(report)]) == 2
    assert "no network to run" in capsys.readouterr().err
    text = page(report)
    assert 'id="figures"' not in text
    assert "no network to run" in text


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["model.safetensors", "run.json"])
def test_results_of_other_weights_are_not_shown(small_dir: Path, name: str) -> None:
    """The run directory was trained further, the analysis was not done again."""
    folder = model(small_dir)
    (folder / "model.safetensors").write_bytes(b"the weights")
    meta = {"model": digest(folder / "model.safetensors")}
    dataclasses.replace(certificate(Verdict.CERTIFIED), meta=meta).save(folder / "certificate.json")
    seal(folder)
    assert collect(small_dir).models[0].state == "certified"
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    record = collect(small_dir).models[0]
    assert (record.state, record.certificate, dict(record.frames)) == ("stale", None, {})
    text = page(small_dir)
    assert '<details class="card stale"' in text
    assert "run the report again" in text
    assert "<svg" not in text


def test_a_table_that_was_changed_is_left_out_and_named(small_dir: Path) -> None:
    folder = model(small_dir)
    seal(folder)
    lines = (folder / "attacks.csv").read_text().splitlines(keepends=True)
    (folder / "attacks.csv").write_text("".join(lines[: len(lines) // 2]))
    record = collect(small_dir).models[0]
    assert record.changed == ("attacks.csv",)
    assert "attacks" not in record.frames
    assert "noise" in record.frames
    text = page(small_dir)
    assert "Changed after the analysis wrote it, or removed, and not shown: attacks.csv" in cards(text)
    assert "attacked" not in cards(text)
    assert 'href="models/contracting/noise.csv"' in text
    assert 'href="models/contracting/attacks.csv"' not in text


@pytest.mark.parametrize("name", ["analysis.json", "run.json"])
def test_without_recorded_digests_no_result_is_shown(small_dir: Path, name: str) -> None:
    """A person who deletes the digests switches no check off, with a run beside the results or without."""
    folder = model(small_dir)
    path = folder / "analysis.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "files"}))
    if name == "run.json":
        (folder / name).unlink()
    record = collect(small_dir).models[0]
    assert record.certificate is None
    assert not record.frames
    assert "no digests" in record.refused
    assert '<details class="card stale"' in page(small_dir)


@pytest.mark.parametrize("name", ["noise.csv", "attacks.csv", "hessian.json"])
def test_a_removed_result_is_named_as_changed(small_dir: Path, name: str) -> None:
    folder = model(small_dir)
    seal(folder)
    assert collect(small_dir).models[0].changed == ()
    (folder / name).unlink()
    assert collect(small_dir).models[0].changed == (name,)
