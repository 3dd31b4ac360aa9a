"""Expected norms where theory speaks, and bounds of the norm that no sequence exceeds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import certify
from stability.analysis import norm_drift
from stability.analysis.dynamics.envelope import expected_rms, norm_bound, why_not_white
from stability.errors import ConfigurationError
from stability.kernel.format.claims import Verdict
from stability.kernel.format.sentences import at_most
from stability.models import LRU, ContractingRNN, ElmanRNN, HouseholderRNN, LipschitzRNN, RotRNN, UnitaryRNN


def noise(batch, steps, features, seed=0):
    return torch.randn(batch, steps, features, generator=torch.Generator().manual_seed(seed))


def inputs(features):
    """Sequences of several kinds: noise, constant, silent after a while, growing."""
    u = noise(6, 60, features)
    u[1] = 2.0
    u[2, 20:] = 0
    u[3] *= torch.linspace(0, 20, 60)[:, None]
    u[4] = torch.sin(torch.arange(60.0))[:, None]
    return u


BOUNDED = {
    "contracting": lambda: ContractingRNN(2, 8, rate=0.95),
    "contracting relu": lambda: ContractingRNN(2, 8, rate=0.9, activation="relu"),
    "contracting flow": lambda: ContractingRNN(2, 8, rate=0.5, time="continuous", dt=0.05),
    "householder": lambda: HouseholderRNN(2, 8),
    "householder oplu": lambda: HouseholderRNN(2, 8, activation="oplu"),
    "unitary": lambda: UnitaryRNN(2, 8),
    "rotrnn": lambda: RotRNN(2, 8, heads=2),
    "rotrnn stationary": lambda: RotRNN(2, 8, heads=2, stationary_start=True),
    "lru": lambda: LRU(2, 8),
}


@pytest.mark.parametrize("name", BOUNDED)
@pytest.mark.parametrize("seed", [0, 1])
def test_no_sequence_exceeds_the_bound(name, seed):
    torch.manual_seed(seed)
    layer = BOUNDED[name]().double()
    with torch.no_grad():
        for parameter_name, p in layer.named_parameters():
            if parameter_name in ("h0", "bias"):
                p.normal_()
            if name == "unitary" and parameter_name == "b":
                p.fill_(-0.1)  # at most zero: non-expansive
    x = inputs(2).double()
    bound, source = norm_bound(layer, x)
    assert bound is not None, source
    with torch.no_grad():
        prepared, state = layer.begin(x)
        norms = []
        for drive in layer.drive(x, prepared).unbind(1):
            state = layer.transition(drive, state, prepared)
            norms.append(layer.hidden(state).norm(dim=1).numpy())
    norms = np.array(norms)
    assert (norms <= bound[:, None]).all()
    for i in range(len(x)):  # one sequence at a time the bound is its own
        assert (norms[:, i] <= norm_bound(layer, x[i : i + 1])[0]).all()
    assert bound.max() < 1e4
    assert norm_drift(layer, x, gradients=False).envelope.tolist() == bound.tolist()


def test_constant_input_gives_the_certified_decay_to_the_equilibrium():
    """``|h_t| <= |h*| + C rho^t |h_0 - h*|``; the bound at hand is no worse."""
    torch.manual_seed(2)
    layer = ContractingRNN(1, 6, rate=0.8).double()
    with torch.no_grad():
        layer.bias.normal_()
    u = np.array([0.7])
    subject, h = layer.driven(), np.zeros(6)
    for _ in range(5000):
        h = subject.advance(h, u)
    certificate = certify(layer)
    x = torch.full((1, 80, 1), 0.7).double()
    bound, source = norm_bound(layer, x, certificate)
    assert at_most(certificate.rate, near=1.0) in source
    decay = np.linalg.norm(h) * (1 + certificate.overshoot * certificate.rate ** np.arange(1, 81.0))
    assert (bound <= decay * (1 + 1e-6)).all()
    assert bound[-1] == pytest.approx(np.linalg.norm(h), rel=1e-3)


def test_a_norm_that_is_kept_has_a_bound_that_is_exact():
    torch.manual_seed(0)
    layer = HouseholderRNN(1, 6, activation="oplu").double()
    with torch.no_grad():
        layer.h0.normal_()
        layer.b.zero_()
    x = torch.zeros(1, 40, 1).double()
    bound, _ = norm_bound(layer, x)
    np.testing.assert_allclose(bound, float(layer.h0.detach().norm()), rtol=1e-6)
    rotation = RotRNN(1, 6, heads=1).double()
    with torch.no_grad():
        rotation.gamma_log.fill_(np.log(-np.log(0.9)))
    pulse = torch.zeros(1, 40, 1).double()
    pulse[:, 0] = 1
    result = norm_drift(rotation, pulse, gradients=False)
    np.testing.assert_allclose(result.envelope, result.mean[0], rtol=1e-6)


def test_a_certificate_bounds_other_layers():
    eye = torch.eye(4).double()
    W = torch.from_numpy(0.8 * np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0])
    layer = LipschitzRNN.from_matrices(-1.5 * eye, W, torch.ones(4, 1).double(), dt=0.1)
    x = noise(5, 50, 1).double()
    assert norm_drift(layer, x).envelope is None
    certificate = certify(layer)
    assert certificate.verdict is Verdict.CERTIFIED
    result = norm_drift(layer, x, certificate=certificate, factor=2)
    assert "certified contraction" in result.sources["envelope"]
    assert (layer(x.repeat(1, 2, 1))[0].norm(dim=2).detach().numpy() <= result.envelope).all()
    other = LipschitzRNN.from_matrices(0.5 * eye, W, torch.ones(4, 1).double(), dt=0.1)
    with pytest.raises(ConfigurationError):
        norm_drift(other, x, certificate=certificate)
    with pytest.raises(ConfigurationError):
        norm_drift(layer, x, certificate="yes")


def test_a_positive_bias_of_modrelu_has_no_bound():
    layer = UnitaryRNN(2, 8)
    with torch.no_grad():
        layer.b.fill_(0.1)
    assert norm_bound(layer, noise(3, 5, 2))[0] is None


class Expecting(ElmanRNN):
    def expected_norm(self, t):
        return 2.0 - 0.5**t


def test_the_law_is_scaled_with_the_input_and_ends_where_it_is_not_white():
    x = 3 * noise(500, 4, 2)
    size = float(x.double().square().mean().sqrt())
    law = size * (2 - 0.5 ** np.arange(1, 13.0))
    layer = Expecting(2, 3)
    np.testing.assert_allclose(norm_drift(layer, x, gradients=False).expected, law[:4])
    np.testing.assert_allclose(norm_drift(layer, x, factor=3, extension="noise", gradients=False).expected, law)
    for how in ("repeat", "zero", "hold"):
        expected = norm_drift(layer, x, factor=3, extension=how, gradients=False).expected
        np.testing.assert_allclose(expected[:4], law[:4])
        assert np.isnan(expected[4:]).all()
    assert norm_drift(ElmanRNN(2, 3), x).expected is None


def test_what_is_white():
    white = noise(200, 30, 3)
    t = torch.arange(30.0)[:, None]
    accepted = [white, 1e-3 * white, torch.sign(white), (torch.rand_like(white) - 0.5), white[:2], white[:, :1]]
    refused = {
        "mean": [white + 0.3, torch.rand_like(white)],
        "power": [white * torch.tensor([1.0, 1.0, 1.5]), white * (1 + 0.05 * t)],
        "features are correlated": [torch.cat([white[..., :1], white[..., :1], white[..., 1:2]], dim=2)],
        "1 step apart": [(white[:, 1:] + white[:, :-1]) / 2],
        "5 steps apart": [white[:, :5].repeat(1, 6, 1)],
        "zero": [torch.zeros(3, 4, 2)],
    }
    for x in accepted:
        assert why_not_white(x) is None
    for words, cases in refused.items():
        for x in cases:
            assert words in (why_not_white(x) or "")
    for seed in range(200):  # chance alone does not refuse it
        assert why_not_white(noise(20, 15, 2, seed)) is None
    assert expected_rms(ElmanRNN(3, 4), white, 30, "noise")[0] is None
