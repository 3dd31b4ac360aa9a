"""The run directory: what was written is read back, and what is damaged is refused in one line."""

from __future__ import annotations

import json
import math

import pytest
import torch

from stability.analysis import SpectrumTracker, evaluate, make_task, read_run, train
from stability.analysis.tables import csv_text, read_csv
from stability.analysis.training.runs import METRIC_COLUMNS
from stability.errors import ConfigurationError, FileFormatError
from stability.models import LipschitzRNN, SequenceModel


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "one"
    task = make_task("digits", size=14, limit=60, test_limit=30, seed=3)
    model = SequenceModel(LipschitzRNN(14, 6, dt=0.1), 10)
    result = train(model, task, epochs=2, out=path, tracker=SpectrumTracker(model, every=1))
    return path, model, task, result


@pytest.fixture
def copied(trained, tmp_path):
    for file in trained[0].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_everything_comes_back(trained):
    path, _, task, result = trained
    run = read_run(path)
    assert run.name == "lipschitz"
    again = run.task()
    assert torch.equal(again.train[0], task.train[0])
    assert again.describe() == task.describe()
    assert evaluate(run.model(), *again.test, again) == (result.test_loss, result.test_metric)
    assert run.result["test_metric"] == result.test_metric
    metrics = run.metrics()
    assert tuple(metrics.columns) == METRIC_COLUMNS
    assert metrics.test_loss.tolist() == [e.test_loss for e in result.history]  # to the last bit
    assert read_run(path / "run.json").path == path


def test_the_document_holds_what_the_format_promises(trained):
    path, _, task, _ = trained
    document = json.loads((path / "run.json").read_text())
    assert (document["format"], document["version"], document["kind"]) == ("stability-run", 1, "train")
    assert set(document["model"]) == {"layer", "config", "output_size", "reduction"}
    assert document["task"]["options"] == dict(task.options)
    fields = {"epochs", "train_loss", "test_loss", "train_metric", "test_metric", "metric", "chance", "seconds"}
    assert fields | {"interrupted"} <= set(document["result"])
    assert {"versions", "seed", "machine", "started", "finished"} <= set(document["environment"])
    assert "continue" not in document
    names = {p.name for p in path.iterdir() if p.name != ".stability.json"}
    tables = {"metrics.csv", "spectra.csv", "eigenvalues.csv"}
    assert names == {"run.json", "model.safetensors", "checkpoint.pt"} | tables


def test_tracked_tables(trained):
    run = read_run(trained[0])
    spectra, eigenvalues = run.spectra(), run.eigenvalues()
    assert sorted(set(spectra.step)) == [0, 1, 2]
    assert sorted(set(spectra.epoch)) == [0, 1, 2]
    assert {"A", "W", "margins"} <= set(spectra.matrix)
    last = eigenvalues[(eigenvalues.step == 2) & (eigenvalues.matrix == "A")]
    A = run.model().layer.matrices()["A"].detach().double()
    expected = torch.linalg.eigvals(A).real.max().item()
    assert last.real.max() == pytest.approx(expected, abs=1e-12)


def test_an_untracked_run_has_empty_tables(tmp_path):
    task = make_task("adding", steps=5, train=8, test=4)
    train(SequenceModel(LipschitzRNN(2, 3), 1), task, epochs=1, out=tmp_path)
    assert read_run(tmp_path).spectra().empty
    assert list(read_run(tmp_path).eigenvalues().columns) == ["step", "epoch", "matrix", "real", "imag"]


def test_damaged_documents(copied):
    document = json.loads((copied / "run.json").read_text())
    broken = ({"format": "x"}, {"version": 2}, {"model": 3}, {"task": None})
    for text in ("{", "[]", *(json.dumps({**document, **change}) for change in broken)):
        (copied / "run.json").write_text(text)
        with pytest.raises(FileFormatError):
            read_run(copied)
    for spec in ({"name": "nothing"}, {}, {"name": "digits", "data": 3}, {"name": "digits", "options": {"a": 1}}):
        (copied / "run.json").write_text(json.dumps({**document, "task": spec}))
        with pytest.raises(FileFormatError):
            read_run(copied).task()


def test_missing_files(copied, tmp_path):
    (copied / "model.safetensors").unlink()
    with pytest.raises(FileFormatError):
        read_run(copied).model()
    (copied / "metrics.csv").unlink()
    with pytest.raises(FileFormatError):
        read_run(copied).metrics()
    with pytest.raises(FileFormatError):
        read_run(tmp_path / "nothing")


class TestTables:
    def test_floats_survive_to_the_last_bit(self, tmp_path):
        values = [0.1, 1 / 3, 1e-300, -0.0, 5e-324, math.pi]
        rows = [(i, v, "a,b") for i, v in enumerate(values)]
        (tmp_path / "x.csv").write_text(csv_text(("i", "v", "s"), rows))
        table = read_csv(tmp_path / "x.csv", ("i", "v", "s"))
        assert [v.hex() for v in table.v] == [v.hex() for v in values]
        assert table.s.tolist() == ["a,b"] * 6
        assert table.i.tolist() == list(range(6))

    def test_not_a_number_is_an_empty_cell(self, tmp_path):
        (tmp_path / "x.csv").write_text(csv_text(("i", "v"), [(0, float("nan")), (1, None), (2, 1.0)]))
        table = read_csv(tmp_path / "x.csv", ("i", "v"))
        assert table.v.isna().tolist() == [True, True, False]

    @pytest.mark.parametrize("text", ["", "a", "a,c\n1,2\n", "a,b\n1,2,3\n"])
    def test_other_tables_are_refused(self, tmp_path, text):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(FileFormatError):
            read_csv(tmp_path / "x.csv", ("a", "b"))


class TestWhoseFiles:
    """A run touches the files that it made, and no other."""

    OTHERS = ("noise.csv", "attacks.csv", "certificate.json", "analysis.json")

    def small(self, path, **options):
        torch.manual_seed(0)
        task = make_task("adding", steps=5, train=8, test=4)
        model = SequenceModel(LipschitzRNN(2, 3), 1)
        return train(model, task, epochs=1, out=path, tracker=SpectrumTracker(model, every=1), **options)

    def test_files_that_are_somebodys_stay(self, tmp_path):
        for name in self.OTHERS:
            (tmp_path / name).write_text("mine")
        self.small(tmp_path)
        self.small(tmp_path, overwrite=True)
        assert {(tmp_path / name).read_text() for name in self.OTHERS} == {"mine"}

    def test_files_in_the_way_are_named_and_kept(self, tmp_path):
        for name in (*self.OTHERS, "metrics.csv", "spectra.csv"):
            (tmp_path / name).write_text("mine")
        with pytest.raises(ConfigurationError):
            self.small(tmp_path)
        assert {p.read_text() for p in tmp_path.iterdir()} == {"mine"}
        self.small(tmp_path, overwrite=True)
        assert {(tmp_path / name).read_text() for name in self.OTHERS} == {"mine"}
        assert len(read_run(tmp_path).metrics()) == 1
