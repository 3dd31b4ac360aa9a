"""One logit gives what two give; padding stays as it is; sizes may be in units of each feature's standard deviation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from stability.analysis import (
    apgd,
    attack_sweep,
    certified_radius,
    fgsm,
    hessian_summary,
    local_radius,
    noise_sweep,
    parameter_noise_sweep,
    pgd,
    task_from_arrays,
)
from stability.analysis.attacks.padding import PaddingWarning, own_steps_of
from stability.analysis.attacks.units import deviations, in_units
from stability.analysis.campaign.fitting import joined
from stability.errors import ConfigurationError
from stability.models.elman import ElmanRNN
from stability.models.gated import GRU
from stability.models.network import SequenceModel
from stability.models.packed import reading
from stability.search.local.largest_radius import ENGINES


class Own(nn.Module):
    """A GRU with a head of one or two logits."""

    def __init__(self, classes: int, flat: bool = False) -> None:
        super().__init__()
        self.rnn, self.head, self.flat = nn.GRU(2, 4, batch_first=True), nn.Linear(4, classes), flat

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.head(self.rnn(x)[0][:, -1])
        return z.squeeze(1) if self.flat else z


def binary(one: nn.Module, two: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Two networks of equal weights, the second with the logits ``(0, z)``."""
    torch.manual_seed(0)
    with torch.no_grad():
        for p in one.parameters():
            p.normal_(0.0, 0.8)
        state = {name: p.clone() for name, p in one.state_dict().items()}
        for name in ("head.weight", "head.bias"):
            state[name] = torch.cat([torch.zeros_like(state[name]), state[name]])
        two.load_state_dict(state)
    return one, two


BINARY = {
    "flat": lambda: binary(Own(1, flat=True), Own(2)),
    "column": lambda: binary(Own(1), Own(2)),
    "sequence model": lambda: binary(SequenceModel(ElmanRNN(2, 4), 1), SequenceModel(ElmanRNN(2, 4), 2)),
}


@pytest.mark.parametrize("kind", BINARY)
def test_one_logit_gives_what_two_give(kind, monkeypatch) -> None:
    for engine in ENGINES:
        monkeypatch.setitem(ENGINES, engine, lambda asked: [None] * len(asked.x))
    one, two = BINARY[kind]()
    x = torch.randn(12, 5, 2)
    y = (two(x).argmax(1) + torch.arange(12).eq(3)) % 2
    for call in (
        lambda m: pgd(m, x, y, epsilon=0.3, bounds=None).adversarial.flatten().tolist(),
        lambda m: attack_sweep(m, x, y, epsilons=[0, 0.2, 0.5], attack="strong", bounds=None).accuracy,
        lambda m: noise_sweep(m, x, y, levels=[0, 1.0]).accuracy,
        lambda m: parameter_noise_sweep(m, x, y, levels=[0.0], draws=1).accuracy,
        lambda m: local_radius(m, x, y, restarts=0).attack_radius.tolist(),
        lambda m: hessian_summary(m, x, y, parameters="recurrent", method="dense").trace,
    ):
        assert call(one) == pytest.approx(call(two), rel=1e-5)
    if kind == "sequence model":
        assert certified_radius(one, x, y).radius == pytest.approx(certified_radius(two, x, y).radius)
    task = task_from_arrays(x, y)
    read, fitted = joined(task, one, "the model")
    again, other = joined(task, two, "the model")
    assert (read(x) == again(x)).all()
    assert fitted.output_size == other.output_size == 2
    assert torch.equal(fitted.loss(read(x), y), other.loss(again(x), y))


class WithLengths(Own):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][-1])


class FromPadding(WithLengths):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        own = (x != 0).any(2).sum(1).clamp(min=1)
        self.seen = [*getattr(self, "seen", []), own]
        return super().forward(x, own)


LENGTHS = torch.tensor([1, 3, 5, 6, 2, 4, 6, 5])


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    x = torch.randn(8, 6, 2) * (torch.arange(6) < LENGTHS[:, None])[:, :, None]
    return x, torch.arange(8) % 2


def test_perturbations_leave_the_padding_that_a_network_reads() -> None:
    x, y = padded()
    model = FromPadding(2).eval()
    model(x)
    for call in (
        lambda: pgd(model, x, y, epsilon=0.5, bounds=None),
        lambda: attack_sweep(model, x, y, epsilons=[0.1, 0.5], attack="strong", bounds=None),
        lambda: noise_sweep(model, x, y, levels=[0.5], kind="salt_pepper", bounds=(-4, 4)),
    ):
        with pytest.warns(PaddingWarning):
            found = call()
        lengthened = [own for own in model.seen if len(own) == len(x) and (own > LENGTHS).any()]
        assert len(lengthened) <= 4  # where it is tried whether the network reads the padding
        model.seen.clear()
        if hasattr(found, "adversarial"):
            assert (found.adversarial[x == 0] == 0).all()
            assert (found.adversarial != x).any()
    everywhere = torch.ones_like(x, dtype=torch.bool)
    assert (pgd(model, x, y, epsilon=0.5, bounds=None, mask=everywhere).adversarial[x == 0] != 0).any()
    assert own_steps_of(Own(2), x) is None  # continuous in its padding, as in every other step


def test_lengths_of_the_data_are_handed_over(monkeypatch) -> None:
    for engine in ENGINES:
        monkeypatch.setitem(ENGINES, engine, lambda asked: [None] * len(asked.x))
    x, y = padded()
    x[2, 4] = 0  # an own step that looks like padding
    model = WithLengths(2).eval()
    task = task_from_arrays(x, y, lengths=LENGTHS)
    read, fitted = joined(task, model, "the model")
    z, labels = fitted.test
    order = [int((x[:, 0] == row).all(1).nonzero()[0, 0]) for row in z[:, 0]]
    torch.testing.assert_close(read(z), model(x[order], LENGTHS[order]))
    assert labels.tolist() == y[order].tolist()
    assert own_steps_of(read, z).sum(1).tolist() == LENGTHS[order].tolist()
    assert local_radius(read, z, labels, restarts=0).lengths.tolist() == LENGTHS[order].tolist()
    moved = pgd(read, z, labels, epsilon=0.3, bounds=None).adversarial
    assert ((moved != z).any(2).sum(1) <= LENGTHS[order]).all()
    with pytest.raises(ConfigurationError):
        joined(task_from_arrays(x, y), model, "the model")


SCALE = torch.tensor([1.0, 1000.0])


class Rescaled(nn.Module):
    """A network on data whose second feature is a thousand times as large."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x / SCALE)


def test_one_size_for_each_feature_is_one_size_of_scaled_features() -> None:
    model, _ = BINARY["column"]()
    x = torch.randn(40, 5, 2)
    y = (model(x)[:, 0] > 0).long()
    wide, far = Rescaled(model), x * SCALE
    told = {"bounds": (x.amin((0, 1)), x.amax((0, 1)))}
    ends = {"bounds": tuple(end * SCALE for end in told["bounds"])}
    vectors = [e * SCALE for e in (0.1, 0.3)]
    wanted = attack_sweep(model, x, y, epsilons=[0, 0.1, 0.3], **told).accuracy
    assert wanted[-1] < 0.9
    found = attack_sweep(wide, far, y, epsilons=[0, *vectors], **ends)
    assert found.accuracy == pytest.approx(wanted, abs=0.03)
    assert found.sizes == pytest.approx((0, 1, 3))
    for attack in (pgd, apgd, fgsm):
        moved = attack(wide, far, y, epsilon=vectors[1], **ends)
        assert moved.robust_accuracy <= 0.9
        assert ((moved.adversarial - far).abs() <= vectors[1] * 1.0001).all()
        assert (wide(moved.adversarial)[:, 0] > 0).ne(y.bool()).float().mean() > 0.1
    frozen = pgd(wide, far, y, epsilon=torch.tensor([0.0, 300.0]), bounds=None).adversarial
    assert (frozen[..., 0] == far[..., 0]).all()
    with pytest.raises(ConfigurationError):
        attack_sweep(wide, far, y, epsilons=[torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])], **ends)


def test_units_are_the_deviations_of_own_steps_and_constant_features_stay() -> None:
    x, _ = padded()
    x = torch.cat([x, torch.ones(8, 6, 1) * (x != 0).any(2, keepdim=True)], 2)
    own = torch.arange(6) < LENGTHS[:, None]
    scale = deviations(nn.Identity(), x, own)
    assert scale[:2].tolist() == pytest.approx(x[own][:, :2].std(0, correction=0).tolist())
    assert scale[2] == 0
    _, _, _, mask = in_units(nn.Flatten(), x, scale)
    assert not mask.broadcast_to(x.shape)[..., 2].any()


@pytest.mark.parametrize("kind", ["gru", "elman", "stack"])
def test_a_classifier_in_units_gives_the_same_logits(kind) -> None:
    layer = {"gru": GRU(2, 3), "elman": ElmanRNN(2, 3), "stack": [GRU(2, 3), ElmanRNN(3, 3)]}[kind]
    x = torch.randn(4, 5, 2, dtype=torch.float64)
    read = reading(SequenceModel(layer, 3).double(), x)
    other, z, _, mask = in_units(read, x, [2.5, 0.3])
    assert mask is None
    np.testing.assert_allclose(other.subject.logits(z.numpy()), read.subject.logits(x.numpy()))
