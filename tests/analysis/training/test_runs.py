"""The run directory: what was written is read back, and what is damaged is refused in one line."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import pandas as pd
import pytest
import torch

from stability.analysis import SpectrumTracker, evaluate, make_task, read_run, resume_run, train
from stability.analysis.tables import CsvLog, check_even, csv_text, read_csv
from stability.analysis.training.runs import (
    METRIC_COLUMNS,
    pack_optimizer,
    read_checkpoint,
    unpack_optimizer,
    write_checkpoint,
)
from stability.analysis.training.spectra import EIGENVALUE_COLUMNS
from stability.errors import ConfigurationError, FileFormatError
from stability.models import ElmanRNN, LipschitzRNN, SequenceModel


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
    fields = {
        "epochs",
        "train_loss",
        "test_loss",
        "train_metric",
        "test_metric",
        "metric",
        "chance",
        "seconds",
    }
    assert fields | {"interrupted"} <= set(document["result"])
    assert {"versions", "seed", "machine", "started", "finished"} <= set(document["environment"])
    assert "continue" not in document
    names = {p.name for p in path.iterdir() if p.name != ".stability.json"}
    tables = {"metrics.csv", "spectra.csv", "eigenvalues.csv"}
    assert names == {"run.json", "model.safetensors", "checkpoint.safetensors"} | tables


def test_the_same_training_writes_the_same_weights_byte_by_byte(tmp_path):
    files = []
    for k in range(3):
        torch.manual_seed(4)
        task = make_task("adding", steps=6, train=40, test=10)
        train(SequenceModel(ElmanRNN(2, 4), 1), task, epochs=2, out=tmp_path / str(k))
        files.append((tmp_path / str(k) / "model.safetensors").read_bytes())
    assert len(set(files)) == 1


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


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: "{", "not a JSON"),
        (lambda d: "[]", "does not describe"),
        (lambda d: json.dumps({**d, "format": "x"}), "does not describe"),
        (lambda d: json.dumps({**d, "version": 2}), "version 2"),
        (lambda d: json.dumps({**d, "model": 3}), "lacks model"),
        (lambda d: json.dumps({k: v for k, v in d.items() if k != "task"}), "lacks task"),
    ],
)
def test_damaged_documents(copied, change, says):
    document = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(change(document))
    with pytest.raises(FileFormatError, match=says):
        read_run(copied)


def test_tasks_that_cannot_be_made_again(copied):
    document = json.loads((copied / "run.json").read_text())
    for spec in (
        {"name": "nothing"},
        {},
        {"name": "digits", "data": 3},
        {"name": "digits", "options": {"a": 1}},
    ):
        (copied / "run.json").write_text(json.dumps({**document, "task": spec}))
        with pytest.raises(FileFormatError, match="no task"):
            read_run(copied).task()


def test_missing_files(copied, tmp_path):
    (copied / "model.safetensors").unlink()
    with pytest.raises(FileFormatError, match="cannot read"):
        read_run(copied).model()
    (copied / "metrics.csv").unlink()
    with pytest.raises(FileFormatError, match="cannot read"):
        read_run(copied).metrics()
    with pytest.raises(FileFormatError, match="cannot read"):
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

    @pytest.mark.parametrize("text", ["", "a,b", "a,c\n1,2\n", "a,b\n1\n", "a,b\n1,2,3\n"])
    def test_other_tables_are_refused(self, tmp_path, text):
        (tmp_path / "x.csv").write_text(text)
        with pytest.raises(FileFormatError):
            read_csv(tmp_path / "x.csv", ("a", "b"))

    def test_bytes_that_are_no_text(self, tmp_path):
        (tmp_path / "x.csv").write_bytes(b"\xff\xfe\xff")
        with pytest.raises(FileFormatError, match="no text"):
            read_csv(tmp_path / "x.csv", ("a",))

    def test_a_log_in_memory_and_on_disk_agree(self, tmp_path):
        log = CsvLog(("step", "v"))
        log.append([(0, 0.5)])
        log.open(tmp_path / "x.csv")
        log.append([(1, 0.25), (1, 0.125)])
        log.append([(2, 1.0)])
        pd.testing.assert_frame_equal(read_csv(tmp_path / "x.csv", log.columns), log.frame())
        log.rewind(1)
        assert log.last == 1
        pd.testing.assert_frame_equal(read_csv(tmp_path / "x.csv", log.columns), log.frame())
        other = CsvLog(("step", "v"))
        other.open(tmp_path / "x.csv", keep_until=0)
        assert other.rows == [(0, 0.5)]

    def test_a_folder_that_vanishes(self, tmp_path):
        log = CsvLog(("step",))
        log.open(tmp_path / "x.csv")
        (tmp_path / "x.csv").unlink()
        with pytest.raises(FileFormatError, match="cannot write"):
            log.append([(1,)])


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop])
def test_an_optimizer_goes_on_where_it_was(make):
    def problem():
        weight = torch.nn.Parameter(torch.arange(4.0))
        return weight, make([weight], lr=0.1)

    def step(weight, optimizer):
        optimizer.zero_grad()
        (weight**2).sum().backward()
        optimizer.step()

    a, optimizer = problem()
    for _ in range(3):
        step(a, optimizer)
    b, other = problem()
    with torch.no_grad():
        b.copy_(a)
    unpack_optimizer(other, pack_optimizer(optimizer))
    for _ in range(3):
        step(a, optimizer)
        step(b, other)
    assert torch.equal(a, b)


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
        with pytest.raises(ConfigurationError, match=r"holds metrics\.csv, spectra\.csv, not made by this command"):
            self.small(tmp_path)
        assert {p.read_text() for p in tmp_path.iterdir()} == {"mine"}
        self.small(tmp_path, overwrite=True)
        assert {(tmp_path / name).read_text() for name in self.OTHERS} == {"mine"}
        assert len(read_run(tmp_path).metrics()) == 1

    def test_a_run_of_an_earlier_release_has_no_list_and_goes_on(self, tmp_path):
        self.small(tmp_path)
        (tmp_path / ".stability.json").unlink()
        (tmp_path / "noise.csv").write_text("mine")
        resume_run(tmp_path, epochs=2)
        assert len(read_run(tmp_path).metrics()) == 2
        assert (tmp_path / "noise.csv").read_text() == "mine"

    def test_only_one_writes(self, tmp_path):
        """Training into a folder that is trained in: refused, and the first one does not notice."""
        seen = []

        def again(news):
            if news.finished is not None and not seen:
                code = (
                    "import sys\nfrom stability.analysis import resume_run\n"
                    "try:\n    resume_run(sys.argv[1])\n"
                    "except Exception as error:\n    print(type(error).__name__, error)"
                )
                done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
                seen.append(done.stdout)

        self.small(tmp_path, progress=again)
        assert len(seen) == 1
        assert seen[0].startswith("FolderInUseError")
        assert f"process {os.getpid()} on" in seen[0]

    def test_rows_that_stand_twice_are_refused(self, tmp_path):
        """As two writers at once left them; also after the checkpoint that knows nothing of its tables."""
        self.small(tmp_path)
        text = (tmp_path / "spectra.csv").read_text()
        (tmp_path / "spectra.csv").write_text(text + "".join(text.splitlines(keepends=True)[-3:]))
        with pytest.raises(FileFormatError, match="counts 3 rows twice"):
            read_run(tmp_path).spectra()
        resume_run(tmp_path, epochs=2)  # what was added after the checkpoint is not its own
        assert (tmp_path / "spectra.csv").read_text().startswith(text)
        read_run(tmp_path).spectra()

    def test_a_table_that_was_changed_is_not_taken_for_the_run_s_own(self, tmp_path):
        self.small(tmp_path)
        for change in (
            lambda t: t[: len(t) // 2],
            lambda t: t.replace("A,max_real,0", "A,max_real,1", 1),
            lambda t: "",
        ):
            text = (tmp_path / "spectra.csv").read_text()
            assert change(text) != text
            (tmp_path / "spectra.csv").write_text(change(text))
            with pytest.raises(FileFormatError, match=r"spectra\.csv was changed"):
                resume_run(tmp_path, epochs=2)
            (tmp_path / "spectra.csv").write_text(text)
        resume_run(tmp_path, epochs=2)

    def test_doubled_rows_of_an_earlier_release_are_refused(self, tmp_path):
        log = CsvLog(("step", "name", "value"), ("step", "name"))
        (tmp_path / "x.csv").write_text(
            csv_text(log.columns, [(0, "a", 1.0), (1, "a", 2.0), (1, "a", 2.0), (2, "a", 0.5)])
        )
        with pytest.raises(FileFormatError, match="counts 1 rows twice"):
            log.open(tmp_path / "x.csv", keep_until=1)
        log.open(tmp_path / "x.csv", keep_until=0)
        assert log.rows == [(0, "a", 1.0)]


class TestDoubledEigenvalues:
    """Rows of equal eigenvalues are nothing wrong; more of them at some steps than at others are two writers' work."""

    @staticmethod
    def rows(steps, values=((1.0, 0.0), (1.0, 0.0), (-0.5, 0.25))):
        return [(step, 0, name, *value) for step in steps for name in ("A", "W") for value in values]

    def test_they_are_refused_where_a_run_is_read_or_gone_on_with(self, tmp_path):
        path = tmp_path / "eigenvalues.csv"
        for steps, twice in (([0, 1, 2], 0), ([0, 1, 1, 2], 6), ([0, 0, 1, 2], 6), ([0, 1, 2, 1, 2], 12)):
            path.write_text(csv_text(EIGENVALUE_COLUMNS, self.rows(steps)))
            log = CsvLog(EIGENVALUE_COLUMNS)
            if not twice:
                log.open(path, keep_until=2)
                assert log.rows == self.rows(steps)
                continue
            with pytest.raises(FileFormatError, match=f"counts {twice} rows twice"):
                log.open(path, keep_until=2)

    def test_a_table_that_was_cut_off_is_read(self, tmp_path):
        table = pd.DataFrame(self.rows([0, 1, 2])[:-2], columns=list(EIGENVALUE_COLUMNS))
        check_even(table, "x.csv")
        check_even(table.iloc[:0], "x.csv")
        check_even(table.iloc[:4], "x.csv")

    def test_a_checkpoint_without_marks_of_its_tables_is_not_gone_on_with(self, tmp_path):
        task = make_task("digits", size=7, limit=20, test_limit=10)
        torch.manual_seed(0)
        model = SequenceModel(ElmanRNN(task.input_size, 3), 10)
        train(model, task, epochs=1, batch_size=10, out=tmp_path, tracker=SpectrumTracker(model, every=1))
        tensors, state = read_checkpoint(tmp_path)
        del state["tables"]
        write_checkpoint(tmp_path, tensors, state)
        with pytest.raises(FileFormatError, match="does not say how far its tables were"):
            resume_run(tmp_path, epochs=2)
