"""No attack succeeds inside a certified ball: many architectures, both norms, every attack there is."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import pytest
import torch

from stability.analysis import local_radius
from stability.analysis.attacks.apgd import ascend_loss
from stability.analysis.attacks.deepfool import deepfool
from stability.analysis.attacks.gradient import climb
from stability.analysis.attacks.threat import LOSSES, open_threat
from stability.analysis.guard import untouched
from stability.models.antisymmetric import AntisymmetricRNN
from stability.models.classifier import classifier
from stability.models.classifier_network import ClassifierNetwork
from stability.models.contracting import ContractingRNN
from stability.models.elman import ElmanRNN
from stability.models.gated import GRU, LSTM
from stability.models.lipschitz import LipschitzRNN
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.models.neural_ode import NeuralODERNN
from stability.search.solvers import deadline

P, N, K, T = 2, 4, 3, 3
LAYERS = {
    "elman": lambda: ElmanRNN(P, N),
    "relu": lambda: ElmanRNN(P, N, activation="relu"),
    "lipschitz": lambda: LipschitzRNN(P, N, dt=0.3),
    "midpoint": lambda: LipschitzRNN(P, N, dt=0.3, integrator="midpoint"),
    "antisymmetric": lambda: AntisymmetricRNN(P, N, dt=0.3),
    "contracting": lambda: ContractingRNN(P, N),
    "ode": lambda: NeuralODERNN(P, N, dt=0.3),
    "lstm": lambda: LSTM(P, N),
    "gru": lambda: GRU(P, N),
    "lru": lambda: LRU(P, 4),
}
pytestmark = pytest.mark.filterwarnings("ignore::stability.analysis.attacks.masked.MaskedGradientWarning")
"""Units that are off have no gradient by the input."""


def network(name: str, seed: int, reduction: str) -> ClassifierNetwork:
    """A network whose weights were made larger, so that its boundaries bend."""
    torch.manual_seed(seed)
    model = SequenceModel(LAYERS[name](), K, reduction=reduction).double()
    with torch.no_grad():
        for value in model.head.parameters():
            value.mul_(2.0)
        if name not in ("contracting", "lru"):
            for value in model.layer.parameters():
                value.mul_(1.5)
    return ClassifierNetwork(classifier(model))


@pytest.fixture(autouse=True)
def _seconds_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits count this process alone: on a busy machine searches get as far, and balls are as many."""
    monkeypatch.setattr(deadline, "monotonic", time.process_time)


def none_succeeds_inside(name: str, norm: str, seed: int, count: int, restarts: int, reduction: str = "last") -> int:
    """Attack every certified ball; returns how many there were."""
    model = network(name, seed, reduction)
    x = torch.randn(count, T, P, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        y = model(x).argmax(1)
    found = local_radius(model, x, y, norm=norm, restarts=1, seed=seed, time_limit=0.3)
    radii = torch.tensor(found.radius)
    rows = (radii > 0).nonzero()[:, 0]
    if not len(rows):
        return 0
    threat = open_threat(model, x, y, norm=norm, bounds=None, mask=None, seed=seed)
    threat = replace(threat, radii=radii).take(rows)
    generator = torch.Generator().manual_seed(seed)
    with untouched(model):
        for _ in range(restarts):
            for loss in LOSSES:
                steps = 20
                for z, _ in (
                    climb(threat, steps, 2.5 * float(radii[rows].median()) / steps, loss, generator),
                    ascend_loss(threat, steps, LOSSES[loss], generator),
                ):
                    inside = threat.inside(z)
                    assert (threat.geometry.size(inside - threat.x) <= radii[rows]).all()
                    logits, own = model(inside).detach(), y[rows, None]
                    left = logits.gather(1, own) - logits.scatter(1, own, -math.inf).amax(1, keepdim=True)
                    rounding = 1e-14 * (1.0 + logits.abs().max())  # at the edge of an exact ball floats may tie
                    assert (left > -rounding).all(), (name, norm, seed)
    other = deepfool(model, x[rows], y[rows], norm=norm, steps=20, bounds=None)
    smallest = torch.where(other.success, other.norms, math.inf)
    assert (smallest >= radii[rows]).all(), (name, norm, seed)
    return len(rows)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_no_attack_succeeds_inside_a_certified_ball(norm: str) -> None:
    assert none_succeeds_inside("elman", norm, 0, 2, 1) >= 1


def test_a_step_at_which_every_relu_is_off_ends_no_ball() -> None:
    assert none_succeeds_inside("relu", "l2", 10, 7, 1, "mean") == 7


@pytest.mark.slow
@pytest.mark.timeout(3600)  # ten seconds on a core of its own; the suite's limit ended it on a busy machine
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_no_attack_succeeds_inside_a_certified_ball_of_twenty_networks(name: str, norm: str, reduction: str) -> None:
    count = none_succeeds_inside(name, norm, 1 + sorted(LAYERS).index(name), 25, 10, reduction)
    assert count >= 20, f"{count} of 25 inputs have a ball"
