"""A spectrum tracker in training loops: records, verdicts and the log."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from stability.analysis import SpectrumTracker
from stability.errors import ConfigurationError

RADIUS = "stability/weight_hh_l0/spectral_radius"


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(24, 5, 2, generator=generator)
    return TensorDataset(x, (x.sum((1, 2)) > 0).long())


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = nn.RNN(2, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def radius(net: Net) -> float:
    return float(torch.linalg.eigvals(net.rnn.weight_hh_l0.detach().double()).abs().max())


def trained(net: Net, tracker: SpectrumTracker, steps: int = 5) -> dict[int, float]:
    """A plain loop; the spectral radius after every step, by torch."""
    optimizer, seen = torch.optim.SGD(net.parameters(), lr=0.5), {0: radius(net)}
    x, y = data().tensors
    with tracker.attach(optimizer):
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()
            seen[step] = radius(net)
    return seen


def test_a_plain_loop_in_a_context_logs_every_record_and_the_last_state() -> None:
    net, kept = Net(), {}
    tracker = SpectrumTracker(net, every=2, log=lambda numbers, step: kept.update({step: dict(numbers)}))
    seen = trained(net, tracker)
    assert sorted(kept) == [0, 2, 4, 5]
    assert {step: numbers[RADIUS] for step, numbers in kept.items()} == pytest.approx({k: seen[k] for k in kept})
    frame = tracker.frame()
    row = frame[(frame.step == 4) & (frame.quantity == "sigma_max")]
    assert kept[4]["stability/weight_hh_l0/sigma_max"] == float(row.value.iloc[0])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    optimizer.step()
    assert tracker.step == 5  # it rides on none any more


def test_verdicts_are_logged_beside_the_spectra_and_the_mode_is_put_back() -> None:
    net, kept = Net().train(), {}
    tracker = SpectrumTracker(
        net, every=1, verdict_every=2, log=lambda numbers, step: kept.update({step: dict(numbers)})
    )
    with torch.no_grad():
        net.rnn.weight_hh_l0.copy_(0.5 * torch.eye(4))
    tracker.record(0)
    with torch.no_grad():
        net.rnn.weight_hh_l0.copy_(3 * torch.eye(4))
    tracker.record(1)
    tracker.record(2)
    assert net.training
    assert tracker.verdicts == {0: "certified", 2: "refuted"}
    assert [kept[step].get("stability/verdict") for step in (0, 1, 2)] == [1.0, None, -1.0]
    assert kept[0]["stability/rate"] == pytest.approx(0.5, abs=1e-4)


def test_a_loop_that_counts_its_steps_records_those_that_are_due() -> None:
    kept: list[int] = []
    tracker = SpectrumTracker(Net(), every=3, log=lambda numbers, step: kept.append(step))
    for step in (0, 1, 2, 3, 3, 4, 6):
        tracker.reached(step, epoch=step // 4)
    assert kept == [0, 3, 6]
    frame = tracker.frame()
    assert dict(zip(frame.step, frame.epoch)) == {0: 0, 3: 0, 6: 1}


def test_options_that_do_not_fit_are_refused() -> None:
    for options in ({"log": 3}, {"verdict_every": 0}):
        with pytest.raises(ConfigurationError):
            SpectrumTracker(Net(), **options)


def test_what_diverged_is_not_logged_as_a_number() -> None:
    net, kept = Net(), {}
    with torch.no_grad():
        net.rnn.weight_hh_l0.fill_(math.nan)
    SpectrumTracker(net, log=lambda numbers, step: kept.update(numbers)).record()
    assert not kept
