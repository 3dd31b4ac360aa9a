"""Data of one's own: what becomes of arrays, which models fit them, and what the recurrent part reads of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from stability.analysis import lyapunov_exponents, measured_recovery, norm_drift, task_from_arrays
from stability.analysis.campaign.fitting import fitted
from stability.analysis.campaign.inputs import boxed, part_range
from stability.analysis.campaign.performance import performance
from stability.analysis.campaign.plan import Campaign, Given
from stability.analysis.tasks import Task, data_options, identity, make_task
from stability.analysis.unroll import layer_inputs
from stability.errors import ConfigurationError, DimensionError, StabilityError, UnsupportedError
from stability.models import ElmanRNN, SequenceModel


def data(n: int = 20, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 5, 3)), np.arange(n) * 4 // n


def rows(pair: tuple[Tensor, Tensor]) -> set[tuple[float, ...]]:
    x, y = pair
    return {(*x[k].flatten().tolist(), *y[k].flatten().tolist()) for k in range(len(x))}


class TestArrays:
    def test_every_sequence_keeps_its_target_and_serves(self):
        x, y = data()
        task = task_from_arrays(x, y, seed=3)
        expected = rows((torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)))
        assert rows(task.train) == rows(task.test) == expected
        assert task.test[1].tolist() != y.tolist()  # the file is sorted by class, the task is not

    def test_a_share_is_held_out_and_never_trained_on(self):
        x, y = data()
        task = task_from_arrays(x, y, held_out=0.3, seed=1)
        assert (len(task.train[0]), len(task.test[0])) == (14, 6)
        assert not rows(task.train) & rows(task.test)
        again, other = (task_from_arrays(x, y, held_out=0.3, seed=s) for s in (1, 2))
        assert rows(again.test) == rows(task.test)
        assert rows(other.test) != rows(task.test)

    def test_a_test_part_stays_one(self):
        x, y = data()
        more, labels = data(8, seed=2)
        task = task_from_arrays(x, y, x_test=more, y_test=labels)
        assert rows(task.test) == rows((torch.from_numpy(more.astype(np.float32)), torch.from_numpy(labels)))
        assert len(task.train[0]) == 20

    def test_chance_is_that_of_the_best_answer_without_input(self):
        x, y = data()
        y = np.where(y == 3, 0, y)
        assert task_from_arrays(x, y).chance == pytest.approx(max(np.bincount(y)) / 20)
        values = np.random.default_rng(0).normal(size=(20, 2))
        assert task_from_arrays(x, values).chance == pytest.approx(values.var(axis=0).mean(), rel=1e-5)

    @pytest.mark.parametrize(("y", "kind", "reduction", "size"), [
        (np.arange(20) % 7, "classes", "last", 7), (np.arange(20) % 2 == 0, "classes", "last", 2),
        (np.arange(100).reshape(20, 5) % 3, "classes", "all", 3), (np.arange(20.0), "values", "last", 1),
        (np.arange(40.0).reshape(20, 2), "values", "last", 2),
        (np.arange(200.0).reshape(20, 5, 2), "values", "all", 2),
    ])  # fmt: skip
    def test_targets_say_what_kind_of_task_it_is(self, y, kind, reduction, size):
        task = task_from_arrays(data()[0], y)
        assert (task.kind, task.reduction, task.output_size) == (kind, reduction, size)

    def test_the_range_is_that_of_both_parts_unless_stated(self):
        x, y = data()
        low, high = task_from_arrays(x, y, x_test=3 * x, y_test=y).bounds
        assert (low, high) == pytest.approx((3 * x.min(), 3 * x.max()), rel=1e-6)
        assert task_from_arrays(x, y, bounds=(-9, 11)).bounds == (-9.0, 11.0)

    def test_other_byte_orders_and_types_give_the_same_numbers(self):
        x, y = data()
        x = x.astype(np.float16).astype(np.float64)
        first = task_from_arrays(x, y)
        for kind in (">f8", "<f4", "f2"):
            other = task_from_arrays(x.astype(kind), y.astype(">i2"))
            assert torch.equal(first.train[0], other.train[0])
            assert torch.equal(first.train[1], other.train[1])
        assert torch.equal(task_from_arrays(torch.from_numpy(x), torch.from_numpy(y)).train[0], first.train[0])

    def test_a_file_is_known_by_its_digest_wherever_it_lies(self, tmp_path):
        x, y = data()
        np.savez(tmp_path / "a.npz", x=x, y=y)
        task = make_task("data", file=str(tmp_path / "a.npz"))
        assert rows(task.train) == rows(task_from_arrays(x, y).train)
        (tmp_path / "a.npz").rename(tmp_path / "b.npz")
        moved = {**task.options, "file": str(tmp_path / "b.npz")}
        assert identity(("data", moved)) == identity(("data", dict(task.options)))
        assert torch.equal(make_task("data", **moved).train[0], task.train[0])
        np.savez(tmp_path / "b.npz", x=2 * x, y=y)
        with pytest.raises(StabilityError, match="has changed since the run began"):
            make_task("data", **moved)


def test_a_campaign_goes_on_with_the_same_data_alone(tmp_path):
    def plan(options: dict[str, Any]) -> Any:
        given = Given("m", "m", ElmanRNN(3, 2), ("data", options))
        return Campaign(tmp_path, ("m",), (given,), task=("data", options)).plan()

    x, y = data()
    np.savez(tmp_path / "a.npz", x=x, y=y)
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npz").read_bytes())
    np.savez(tmp_path / "c.npz", x=x, y=y[::-1])
    same, moved, other = (plan(data_options(tmp_path / f"{name}.npz")) for name in "abc")
    assert same == moved
    assert same != other


class Net(nn.Module):
    """A network in which the recurrent part does not read the data themselves."""

    def __init__(self, how: str = "plain", outputs: int = 4) -> None:
        super().__init__()
        self.how = how
        self.scale = nn.Linear(3, 2)
        self.rnn = nn.RNNCell(2, 4) if how == "cell" else nn.GRU(2, 4, batch_first=how != "time first")
        self.head = nn.Linear(4, outputs)

    def forward(self, x: Tensor) -> Any:
        u = self.scale(x)
        if self.how == "cell":
            h = u.new_zeros(len(u), 4)
            for step in u.unbind(1):
                h = self.rnn(step, h)
            return self.head(h)
        if self.how == "packed":
            lengths = torch.full((len(u),), u.shape[1])
            u = pack_padded_sequence(u, lengths, batch_first=True)
        elif self.how == "ragged":
            lengths = 1 + torch.arange(len(u)) % u.shape[1]
            u = pack_padded_sequence(u, lengths, batch_first=True, enforce_sorted=False)
        elif self.how == "time first":
            u = u.transpose(0, 1)
        elif self.how == "twice":
            self.rnn(u)
        _, h = self.rnn(u)
        return self.head(h[-1])


HOWS = ["plain", "packed", "time first", "cell"]


class TestParts:
    @pytest.mark.parametrize("how", HOWS)
    def test_a_layer_behind_others_is_measured_on_what_it_reads(self, how):
        torch.manual_seed(1)
        net, x = Net(how), torch.randn(6, 5, 3)
        u = net.scale(x).detach()
        torch.testing.assert_close(layer_inputs(net, x), u)
        exponents = [lyapunov_exponents(*pair, seed=1).exponents for pair in ((net, x), (net.rnn, u))]
        np.testing.assert_allclose(exponents[0], exponents[1], rtol=1e-6)
        norms = [norm_drift(*pair, factor=3).mean for pair in ((net, x), (net.rnn, u))]
        np.testing.assert_allclose(norms[0], norms[1], rtol=1e-6)

    def test_packed_sequences_go_on_with_their_own_last_step(self):
        net, x = Net("ragged"), torch.randn(7, 5, 3)
        u, lengths = net.scale(x).detach(), [1, 2, 3, 4, 5, 1, 2]
        for row, length in zip(u, lengths):
            row[length:] = row[length - 1]
        torch.testing.assert_close(layer_inputs(net, x), u)
        np.testing.assert_allclose(norm_drift(net, x).mean, norm_drift(net.rnn, u).mean, rtol=1e-6)

    def test_of_several_layers_one_is_named(self):
        class Two(Net):
            def __init__(self) -> None:
                super().__init__()
                self.above = nn.RNN(4, 3, batch_first=True)

            def forward(self, x: Tensor) -> Tensor:
                return self.above(self.rnn(self.scale(x))[0])[0][:, -1]

        net, x = Two(), torch.randn(6, 5, 3)
        below = net.scale(x).detach()
        between = net.rnn(below)[0].detach()
        for part, layer, u in (("rnn", net.rnn, below), ("above", net.above, between)):
            torch.testing.assert_close(layer_inputs(net, x, part), u)
            for measure, told in (
                (norm_drift, lambda found: found.mean),
                (lyapunov_exponents, lambda found: found.exponents),
                (measured_recovery, lambda found: found.steps),
            ):
                np.testing.assert_allclose(told(measure(net, x, part=part)), told(measure(layer, u)), rtol=1e-6)
        with pytest.raises(UnsupportedError):
            norm_drift(net, x)
        with pytest.raises(ConfigurationError):
            lyapunov_exponents(net, x, part="head")
        with pytest.raises(ConfigurationError):
            norm_drift(net, x, torch.zeros(6), part="rnn")

    @pytest.mark.parametrize("how", HOWS)
    def test_the_box_of_a_part_is_the_range_of_what_it_reads(self, how):
        torch.manual_seed(1)
        net, task = Net(how), task_from_arrays(*data(), bounds=(-40.0, 40.0))
        u = net.scale(task.train[0]).detach()
        span, path = part_range(net, net, task)
        assert path == "rnn"
        assert span == pytest.approx((float(u.min()), float(u.max())), rel=1e-5)
        if how != "cell":
            subject, box = boxed(net, span)
            assert box == span
            assert subject.input_low.tolist() == [span[0]] * 2

    def test_a_part_that_reads_the_data_gets_their_stated_range(self):
        net = nn.ModuleDict({"rnn": nn.GRU(3, 4, batch_first=True)})
        net.forward = lambda x: net["rnn"](x)[0]
        task = task_from_arrays(*data(), bounds=(-40.0, 40.0))
        assert part_range(net, net, task) == ((-40.0, 40.0), "")
        assert part_range(SequenceModel(ElmanRNN(3, 4), 4), None, task) == ((-40.0, 40.0), "")


class TestFitting:
    def test_targets_take_the_shape_of_the_answers(self):
        x, _ = data()
        y = np.arange(20.0)
        flat = nn.Sequential(nn.Flatten(), nn.Linear(15, 1))
        assert fitted(task_from_arrays(x, y), flat, "m").train[1].shape == (20, 1)
        squeezed = nn.Sequential(flat, nn.Flatten(0))
        task = fitted(task_from_arrays(x, y), squeezed, "m")
        assert task.train[1].shape == (20,)
        out = squeezed(task.test[0]).detach()
        assert float(task.loss(out, task.test[1])) == pytest.approx(float(((out - task.test[1]) ** 2).mean()))
        steps = task_from_arrays(x, np.arange(100.0).reshape(20, 5))
        fit = fitted(steps, SequenceModel(ElmanRNN(3, 2), 1, "all"), "m")
        assert (fit.train[1].shape, fit.reduction) == ((20, 5, 1), "all")
        with pytest.raises(DimensionError):
            fitted(steps, flat, "m")

    def test_data_take_the_type_of_the_model(self):
        task = fitted(task_from_arrays(*data()), Net().double(), "m")
        assert task.test[0].dtype == torch.float64
        built_in = make_task("digits", limit=10, test_limit=10)
        assert fitted(built_in, SequenceModel(ElmanRNN(built_in.input_size, 2), 10).double(), "m").train[0].dtype == (
            torch.float64
        )


def test_performance_is_counted_by_class() -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 2.0, 2.0, 0.0])[:, None, None]
    y = torch.tensor([0, 0, 0, 2, 2, 2])

    class Says(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.one_hot(x[:, 0, 0].long(), 3).float()

    task: Task = fitted(task_from_arrays(x, y, classes=["a", "b", "c"]), Says(), "m")
    found = performance(Says(), task)
    assert found["value"] == pytest.approx(3 / 6)
    assert [(c["name"], c["sequences"], c["accuracy"]) for c in found["by_class"]] == [
        ("a", 3, pytest.approx(1 / 3)),
        ("c", 3, pytest.approx(2 / 3)),
    ]
    assert found["by_class"][1]["taken_for"] == "a"
