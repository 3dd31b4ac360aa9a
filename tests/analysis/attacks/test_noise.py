"""Noise sweeps against the accuracy that probability theory predicts for a threshold classifier."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm as normal
from torch import nn

from stability.analysis.attacks.noise import noise_sweep, parameter_noise_sweep
from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.models.elman import ElmanRNN
from stability.models.network import SequenceModel


class Threshold(nn.Module):
    """Class 1 where the last entry exceeds one half."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        z = self.scale * (x[:, -1, -1] - 0.5)
        return torch.stack([-z, z], dim=1)


N = 4000
X = torch.full((N, 2, 2), 0.75)
Y = torch.ones(N, dtype=torch.long)


def test_white_noise_has_the_stated_standard_deviation():
    levels = [0.0, 0.1, 0.25, 0.5]
    sweep = noise_sweep(Threshold(), X, Y, kind="white", levels=levels, draws=3)
    expected = [1.0] + [normal.cdf(0.25 / s) for s in levels[1:]]
    assert sweep.accuracy == pytest.approx(expected, abs=4 * math.sqrt(0.25 / (3 * N)))
    assert all(low <= p <= high for low, p, high in zip(sweep.ci_low, sweep.accuracy, sweep.ci_high))
    table = sweep.frame()
    columns = ["noise", "level", "accuracy", "ci_low", "ci_high", "n", "draws", "spread", "seed"]
    assert list(table.columns) == columns
    assert table.spread[0] == 0
    assert 0 < table.spread[1] < 0.03


def test_clipped_noise_stays_in_the_bounds():
    class Spy(Threshold):
        seen = (math.inf, -math.inf)

        def forward(self, x):
            Spy.seen = (min(Spy.seen[0], float(x.min())), max(Spy.seen[1], float(x.max())))
            return super().forward(x)

    noise_sweep(Spy(), X[:200], Y[:200], levels=[2.0], clip=True, bounds=(0.25, torch.tensor([1.0, 2.0])))
    assert Spy.seen == (0.25, 2.0)


def test_salt_and_pepper_hits_the_stated_share_half_low_half_high():
    levels = [0.0, 0.2, 0.6, 1.0]
    sweep = noise_sweep(Threshold(), X, Y, kind="salt_pepper", levels=levels, draws=3)
    expected = [1 - share / 2 for share in levels]  # salt (1) is right, pepper (0) is wrong
    assert sweep.accuracy == pytest.approx(expected, abs=4 * math.sqrt(0.25 / (3 * N)))
    per_feature = (torch.tensor([0.0, 0.6]), torch.ones(2))  # pepper at .6 stays right
    sweep = noise_sweep(Threshold(), X, Y, kind="salt_pepper", levels=[1.0], bounds=per_feature)
    assert sweep.accuracy == (1.0,)


def test_mask_keeps_noise_away():
    mask = torch.ones(2, 2, dtype=torch.bool)
    mask[-1, -1] = False
    for kind in ("white", "salt_pepper"):
        sweep = noise_sweep(Threshold(), X, Y, kind=kind, levels=[1.0], mask=mask)
        assert sweep.accuracy == (1.0,)
        assert noise_sweep(Threshold(), X, Y, kind=kind, levels=[1.0]).accuracy[0] < 0.9


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), SequenceModel(ElmanRNN(2, 6), 3)).train()
    model[1].eval()
    return model, torch.rand(30, 4, 2), torch.randint(3, (30,))


def run_noise(model, x, y, seed=0):
    return noise_sweep(model, x, y, levels=[0, 0.3], seed=seed)


def run_parameters(model, x, y, seed=0):
    return parameter_noise_sweep(model, x, y, levels=[0, 0.3], seed=seed)


@pytest.mark.parametrize("run", [run_noise, run_parameters])
def test_model_is_bit_identical_afterwards_and_the_seed_decides(run):
    model, x, y = network()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    rng = torch.random.get_rng_state()
    first, again, other = run(model, x, y), run(model, x, y), run(model, x, y, seed=1)
    assert first.frame().equals(again.frame())
    assert first.accuracy[0] == other.accuracy[0]
    assert (first.accuracy, first.spread) != (other.accuracy, other.spread)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert model.training
    assert not model[1].training
    assert torch.equal(rng, torch.random.get_rng_state())
    assert all(p.grad is None for p in model.parameters())
    with torch.no_grad():
        clean = (model[1](x).argmax(dim=1) == y).double().mean().item()
    assert first.accuracy[0] == pytest.approx(clean)


def test_parameter_noise_has_the_stated_size():
    """With ``scale + level * s * N(0, 1)`` the answer flips when the scale turns negative."""
    model = Threshold()
    for scale, relative, level in ((1.0, True, 1.0), (3.0, True, 0.7), (3.0, False, 2.0)):
        model.scale.data.fill_(scale)
        sweep = parameter_noise_sweep(model, X[:5], Y[:5], levels=[level], relative=relative, draws=1500)
        expected = normal.cdf(1 / level if relative else scale / level)
        assert sweep.accuracy[0] == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 1500))
    all_or_nothing = np.sqrt(expected * (1 - expected))
    assert sweep.spread[0] == pytest.approx(all_or_nothing, abs=0.05)


def test_answers_of_a_network_that_noise_makes_diverge_are_wrong():
    """``1e38 (1 + z / 2) x`` leaves float32 for ``x = 3`` where ``z > 0.27``, and changes its sign where ``z < -2``."""

    class Steep(Threshold):
        def forward(self, x):
            z = 1e38 * self.scale * x[:, 0]
            return torch.cat([z, -z], 1)

    x, y = torch.tensor([3.0, 1e-3]).reshape(2, 1, 1), torch.zeros(2, dtype=torch.long)
    with pytest.raises(NonFiniteError):
        parameter_noise_sweep(Steep(), 2 * x, y, levels=[0])
    sweep = parameter_noise_sweep(Steep(), x, y, levels=[0, 0.5], draws=400)
    expected = (normal.cdf(0.27) - normal.cdf(-2) + normal.cdf(2)) / 2
    assert sweep.accuracy == (1.0, pytest.approx(expected, abs=0.06))


def test_parameter_noise_on_named_and_recurrent_parameters():
    model, x, y = network()
    for chosen in ("recurrent", ["1.head.weight"]):
        assert parameter_noise_sweep(model, x, y, levels=[0, 5.0], parameters=chosen).n == 30


@pytest.mark.parametrize(("options", "error"), [
    ({"kind": "pink"}, ConfigurationError), ({"levels": [-0.1]}, ConfigurationError),
    ({"levels": []}, ConfigurationError), ({"levels": [float("inf")]}, ConfigurationError),
    ({"levels": ["a"]}, ConfigurationError), ({"kind": "salt_pepper", "levels": [1.5]}, ConfigurationError),
    ({"kind": "salt_pepper", "bounds": None}, ConfigurationError),
    ({"clip": True, "bounds": (0, 0.5)}, ConfigurationError), ({"draws": 0}, ConfigurationError),
    ({"seed": -3}, ConfigurationError), ({"confidence": 0}, ConfigurationError),
    ({"mask": torch.ones(9, dtype=torch.bool)}, DimensionError), ({"x": X[:4] * float("nan")}, NonFiniteError),
    ({"y": Y[:3]}, DimensionError), ({"y": Y[:4] + 5}, ConfigurationError),
])  # fmt: skip
def test_bad_input_gets_a_typed_error(options, error):
    arguments = {"x": X[:4], "y": Y[:4], "levels": [0.1], **options}
    with pytest.raises(error):
        noise_sweep(Threshold(), arguments.pop("x"), arguments.pop("y"), **arguments)


def test_diverging_models_are_told():
    model = Threshold()
    model.scale.data.fill_(float("nan"))
    with pytest.raises(NonFiniteError):
        parameter_noise_sweep(model, X[:4], Y[:4], levels=[0.1])
    with pytest.raises(ConfigurationError):
        parameter_noise_sweep(Threshold(), X[:4], Y[:4], levels=[0.1], parameters=["no"])
