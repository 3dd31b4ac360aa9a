"""Lyapunov exponents: exact for linear systems, equal to slow products, bounded by what is certified."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

from stability import LureSystem, certify
from stability.analysis import contraction_gap, lyapunov_exponents, make_task
from stability.analysis.campaign.budgets import AnalysisSettings
from stability.analysis.campaign.pipeline import STEPS
from stability.analysis.campaign.work import Work
from stability.analysis.dynamics.lyapunov import certified_bound
from stability.analysis.unroll import as_layer, flat_state, step_jacobians
from stability.certificate import Certificate
from stability.errors import ConfigurationError, NonFiniteError, StabilityError, UnsupportedError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.models import GRU, LSTM, AntisymmetricRNN, DeepNetwork, ElmanRNN, LipschitzRNN
from stability.models.tensors import state_leaves


def lipschitz(A, W, **options):
    A, W = torch.as_tensor(A).double(), torch.as_tensor(W).double()
    return LipschitzRNN.from_matrices(A, W, torch.ones(len(A), 1).double(), **options)


def test_a_linear_system_has_the_moduli_of_its_eigenvalues(rng):
    S = rng.standard_normal((5, 5))
    A = np.linalg.solve(S, np.diag([-0.2, -0.5, -1.0, -2.0, -4.0]) @ S)
    layer = lipschitz(A, np.zeros((5, 5)), dt=0.2)
    result = lyapunov_exponents(layer, torch.zeros(2, 800, 1), skip=600)
    exact = np.sort(np.log(np.abs(np.linalg.eigvals(np.eye(5) + 0.2 * A))))[::-1]
    np.testing.assert_allclose(result.exponents, exact, atol=1e-9)
    np.testing.assert_allclose(result.per_time, exact / 0.2, atol=1e-7)
    np.testing.assert_allclose(result.standard_error, 0, atol=1e-9)


def test_a_rotation_neither_grows_nor_shrinks(rng):
    Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    layer = ElmanRNN(1, 4, activation="leaky_relu")
    with torch.no_grad():
        layer.weight_hh.copy_(torch.from_numpy(Q))
        layer.bias.fill_(100.0)  # far on the linear side
        layer.weight_ih.zero_()
    result = lyapunov_exponents(layer, torch.zeros(1, 1, 1), skip=0)
    np.testing.assert_allclose(result.exponents, 0, atol=1e-6)
    assert result.kaplan_yorke in (0.0, 4.0)  # sums of numbers that are zero up to rounding
    assert result.per_time is None
    assert np.isnan(result.standard_error).all()


@pytest.mark.parametrize("make", [ElmanRNN, LSTM, GRU, LipschitzRNN, AntisymmetricRNN])
def test_against_the_singular_values_of_the_whole_product(make):
    """They are its logarithms; from any other frame the sum is log |det| too, and the largest lies below its norm."""
    torch.manual_seed(1)
    layer = make(2, 3)
    x = torch.randn(1, 6, 2).double()
    result = lyapunov_exponents(layer, x, skip=0)
    subject = layer.driven()
    state = np.zeros(result.states)
    product = np.eye(result.states)
    for t in range(6):
        u = x[0, t].numpy()
        product = subject.jacobian(state, u) @ product
        state = subject.advance(state, u)
    exact = np.log(np.linalg.svd(product)[1])
    np.testing.assert_allclose(result.exponents * 6, exact, atol=1e-6)
    np.testing.assert_allclose(lyapunov_exponents(layer, x, k=1, skip=0).exponents * 6, exact[:1], atol=1e-6)
    drawn = lyapunov_exponents(layer, x, skip=0, start="random", seed=3)
    assert drawn.exponents.sum() * 6 == pytest.approx(np.linalg.slogdet(product)[1], rel=1e-5)
    assert drawn.largest * 6 < exact[0] - 1e-6


@pytest.mark.parametrize(("layer", "norm", "mixing"), [("lstm", "batch", "glu"), ("rotrnn", "layer", "gelu")])
def test_of_a_deep_network_they_are_those_of_what_all_its_layers_end_in(layer, norm, mixing):
    """Against the derivative of all final states by all initial ones, of blocks run one after the other."""
    torch.manual_seed(0)
    own = {"heads": 1, "stationary_start": True} if layer == "rotrnn" else {}
    options = {"hidden_size": 2, "width": 3, "norm": norm, "mixing": mixing, "dropout": 0.5}
    network = DeepNetwork(2, 4, layer=layer, options=own, **options).double()
    network(3 * torch.randn(9, 5, 2).double() + 1)  # moves the running statistics
    network.eval()
    x = torch.randn(1, 3, 2).double()

    def run(*leaves):
        signal, ends, given = network.encoder(x), [], list(leaves)
        for block in network.blocks:
            state = (given.pop(0), given.pop(0)) if layer == "lstm" else given.pop(0)
            y, end = block.layer(block.norm(signal.mT).mT if norm == "batch" else block.norm(signal), state)
            ends += state_leaves(end)
            y = block.mix(nn.functional.gelu(y))
            signal = signal + (y[..., :3] * torch.sigmoid(y[..., 3:]) if mixing == "glu" else y)
        return tuple(ends)

    start = tuple(leaf.detach() for leaf in state_leaves(network.recurrence().begin(x)[1]))
    rows = torch.autograd.functional.jacobian(run, start)
    product = torch.cat([torch.cat([part.reshape(2, 2) for part in row], 1) for row in rows])
    n = len(product)
    frame = torch.linalg.qr(torch.randn(1, n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64))[0]
    logs = torch.linalg.qr(product @ frame[0])[1].diagonal().abs().log() / 3
    result = lyapunov_exponents(network.train(), x, skip=0, start="random")
    np.testing.assert_allclose(result.exponents, logs.sort(descending=True)[0], atol=1e-8)
    largest = lyapunov_exponents(network, x, k=1, skip=0).largest
    assert largest == pytest.approx(float(torch.linalg.matrix_norm(product, 2).log()) / 3, abs=1e-8)
    assert result.states == n
    assert network.training


def test_the_bound_of_a_report_is_of_one_layer_alone(tmp_path):
    """A certificate of layers side by side says nothing about what passes from one to the next."""
    torch.manual_seed(0)
    task = make_task("digits", size=7, limit=10, test_limit=4)
    for depth in (1, 2):
        model = DeepNetwork(7, 10, hidden_size=2, width=3, depth=depth, options={"heads": 1}).eval()
        work = Work(tmp_path, model, model, task, AnalysisSettings(), certificate=certify(model), step="lyapunov")
        STEPS["lyapunov"](work)
        found = json.loads((tmp_path / "exponents.json").read_text())
        assert found["largest"] < 0
        assert (found["bound"] is None) is (depth == 2)


@pytest.mark.parametrize("make", [ElmanRNN, LSTM, GRU, LipschitzRNN])
def test_step_jacobians_by_differences_and_closed_form(make):
    torch.manual_seed(2)
    layer = make(2, 3).double()
    x = torch.randn(4, 3, 2).double()
    with torch.no_grad():
        prepared, state = layer.begin(x)
        drives = layer.drive(x, prepared).unbind(1)
        for drive in drives[:2]:
            state = layer.transition(drive, state, prepared)
    jacobians, after = step_jacobians(layer, drives[2], state, prepared)
    flat = flat_state(state).numpy()
    subject = layer.driven()
    for i in range(4):
        u = x[i, 2].numpy()
        np.testing.assert_allclose(jacobians[i], subject.jacobian(flat[i], u), atol=1e-12)
        np.testing.assert_allclose(flat_state(after)[i], subject.advance(flat[i], u), atol=1e-12)
        for j in range(flat.shape[1]):
            bump = 1e-6 * np.eye(flat.shape[1])[j]
            slope = (subject.advance(flat[i] + bump, u) - subject.advance(flat[i] - bump, u)) / 2e-6
            np.testing.assert_allclose(jacobians[i][:, j], slope, atol=1e-8)


def test_the_largest_is_below_what_is_certified(rng):
    for _ in range(5):
        A = 0.15 * rng.standard_normal((6, 6)) - 1.5 * np.eye(6)
        W = 0.3 * rng.standard_normal((6, 6)) / np.sqrt(6)
        layer = lipschitz(A, W, dt=0.1)
        gap = contraction_gap(layer).item()
        assert gap > 0
        x = torch.from_numpy(rng.standard_normal((3, 200, 1)))
        result = lyapunov_exponents(layer, x, k=2)
        assert result.largest <= np.log(1 - 0.1 * gap) + 1e-12


def non_normal():
    """Contracting at .51 a step, with an overshoot of hundreds: over a short time differences grow."""
    layer = ElmanRNN(1, 2).double()
    with torch.no_grad():
        layer.weight_hh.copy_(torch.tensor([[0.5, 8.0], [0.0, 0.5]]))
        layer.weight_ih.zero_()
        layer.bias.zero_()
    return layer


@pytest.mark.parametrize("steps", [2, 5, 28, 300])
def test_an_overshoot_lets_short_runs_exceed_the_rate_and_never_the_bound(steps):
    layer = non_normal()
    certificate = certify(layer)
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.overshoot > 50
    bound = certified_bound(certificate, steps)
    result = lyapunov_exponents(layer, torch.zeros(1, steps, 1), skip=0)
    for seed in range(5):
        drawn = lyapunov_exponents(layer, torch.zeros(1, steps, 1), skip=0, start="random", seed=seed)
        assert drawn.largest <= result.largest + 1e-12 <= bound + 1e-12
    if steps == 28:
        assert result.largest > np.log(certificate.rate) + 0.05  # what one might think, and what is false
    worst = np.log(np.linalg.norm(np.linalg.matrix_power(layer.weight_hh.detach().numpy(), steps), 2)) / steps
    assert worst <= bound  # for every direction, not only those that were drawn
    assert result.largest == pytest.approx(worst, abs=1e-9)


def test_the_bound_is_the_best_of_what_is_certified():
    fast = certify(non_normal())
    pairs = [(fast.rate, fast.overshoot), (0.8, 3.0), (0.99, 1.0)]
    slower = [Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", {"overshoot": c}), r)
              for r, c in pairs[1:]]  # fmt: skip
    open_claim = Claim("contraction", "", Verdict.INCONCLUSIVE, Proof("multiplier_lmi", {"overshoot": 1.0}), 0.1)
    other = Claim("bounded", "", Verdict.CERTIFIED, Proof("ball", {"overshoot": 1.0}), 0.1)
    certificate = Certificate(
        fast.subject, fast.claim, rate=fast.rate, overshoot=fast.overshoot, claims=(*slower, open_claim, other)
    )
    for steps in (1, 4, 10, 100, 10**6):
        each = [np.log(rho) + np.log(C) / steps for rho, C in pairs]
        assert certified_bound(certificate, steps) == pytest.approx(min(each), rel=1e-9)
    assert certified_bound(certificate, 10**9) == pytest.approx(np.log(fast.rate), abs=1e-6)


def test_bounds_of_differential_equations_gated_cells_and_growth():
    flow = certify(LureSystem.recurrent([[-1.0, 20.0], [0.0, -1.0]], np.zeros((2, 2))))
    assert certified_bound(flow, 50) is None  # without a time between the looks
    jordan = np.array([[1.0, 20.0], [0.0, 1.0]])  # exp(A t) = exp(-t) [[1, 20 t], [0, 1]]
    for steps, dt in ((3, 0.1), (50, 0.1), (50, 2.0)):
        jordan[0, 1] = 20 * steps * dt
        exact = -dt + np.log(np.linalg.norm(jordan, 2)) / steps
        bound = certified_bound(flow, steps, dt=dt)
        assert exact <= bound <= -flow.rate * dt + np.log(flow.overshoot) / steps + 1e-9
    assert certified_bound(flow, 10**9, dt=0.5) == pytest.approx(-0.5 * flow.rate, abs=1e-6)
    torch.manual_seed(0)
    layer = GRU(1, 4)
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(0.1)
    box = layer.driven().with_inputs(-1.0, 1.0)
    assert isinstance(box, GatedCell)
    gru = certify(box)
    extra = {"interval_jacobian": np.log(2.0), "interval_lmi": 0.0}[gru.claim.proof.kind]  # log sqrt(4)
    assert certified_bound(gru, 10) == pytest.approx(np.log(gru.rate) + (np.log(gru.overshoot) + extra) / 10)
    x = 2 * torch.rand(3, 10, 1, generator=torch.Generator().manual_seed(0)) - 1
    assert lyapunov_exponents(layer, x, skip=0).largest <= certified_bound(gru, 10)
    claim = Claim("contraction", "", Verdict.CERTIFIED, Proof("interval_jacobian", {"overshoot": 2.0}), 0.5)
    by_hand = certified_bound(Certificate(box, claim, rate=0.5, overshoot=2.0), 10)
    assert by_hand == pytest.approx(np.log(0.5) + np.log(2.0 * 2.0) / 10)
    Q = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    turning = certify(LureSystem(np.zeros((4, 4)), np.eye(4), Q, dt=1.0))
    assert turning.verdict is not Verdict.CERTIFIED
    assert 0 <= certified_bound(turning, 10) < 1e-3
    hopeless = certify(LureSystem(2 * np.eye(2), np.zeros((2, 1)), np.zeros((1, 2)), dt=1.0))
    assert certified_bound(hopeless, 10) is None
    for bad in ((None, 10), (flow, 0), (flow, 2.5)):
        with pytest.raises(ConfigurationError):
            certified_bound(*bad)


def test_the_standard_error_is_that_of_the_mean():
    torch.manual_seed(0)
    layer = ElmanRNN(1, 6)
    x = torch.randn(16, 40, 1, generator=torch.Generator().manual_seed(1))
    result = lyapunov_exponents(layer, x, k=3)
    exact = scipy.stats.sem(result.trajectories, axis=0)
    assert (exact > 0).all()
    np.testing.assert_allclose(result.standard_error, exact, rtol=1e-9)


def test_a_chaotic_network_has_a_positive_exponent_that_equals_its_divergence(rng):
    W = 4 * rng.standard_normal((40, 40)) / np.sqrt(40)
    layer = ElmanRNN(1, 40).double()
    with torch.no_grad():
        layer.weight_hh.copy_(torch.from_numpy(W))
        layer.bias.zero_()
    x = torch.from_numpy(0.1 * rng.standard_normal((4, 1000, 1)))
    result = lyapunov_exponents(layer, x, k=8, skip=200)
    assert result.largest > 0.1
    assert result.kaplan_yorke > 2
    growth = []
    with torch.no_grad():
        h = layer(x[:, :200])[1]
        other = h + 1e-9 * torch.randn_like(h)
        for t in range(200, 1000):  # two neighbours, drawn together again after each step
            d = (other - h).norm(dim=1, keepdim=True)
            other = h + 1e-9 * (other - h) / d
            h, other = layer.step(x[:, t], h)[1], layer.step(x[:, t], other)[1]
            growth.append(torch.log((other - h).norm(dim=1) / 1e-9).mean().item())
    assert result.largest == pytest.approx(np.mean(growth), abs=0.03)


def test_a_dead_direction_is_minus_infinity():
    layer = ElmanRNN(1, 3)
    with torch.no_grad():
        layer.weight_hh.zero_()
    result = lyapunov_exponents(layer, torch.zeros(2, 5, 1))
    assert (result.exponents == -np.inf).all()
    json.dumps(result.to_dict(), allow_nan=False)
    assert result.kaplan_yorke == 0


def test_torch_modules_and_the_model_stays_as_it_was():
    torch.manual_seed(0)
    x = torch.randn(2, 7, 3)
    for module in (nn.RNN(3, 4), nn.LSTM(3, 4, num_layers=2), nn.GRU(3, 4, bias=False), nn.RNNCell(3, 4)):
        before = [p.clone() for p in module.parameters()]
        result = lyapunov_exponents(module, x)
        assert result.states == {"RNN": 4, "RNNCell": 4, "GRU": 4, "LSTM": 16}[type(module).__name__]
        assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(before, module.parameters()))
    rnn = nn.RNN(3, 4, nonlinearity="relu", batch_first=True)
    torch.testing.assert_close(as_layer(rnn)(x)[0], rnn(x)[0])
    gru = nn.GRU(3, 4, num_layers=2, batch_first=True, bias=False)
    torch.testing.assert_close(as_layer(gru)(x)[0], gru(x)[0])


def test_bad_input():
    layer = ElmanRNN(2, 3)
    x = torch.zeros(1, 4, 2)
    bad = [(layer, x[0]), (layer, x[:, :0]), (layer, "x"), (layer, torch.zeros(1, 4, 3)), (layer, None), ("m", x)]
    for model, sequence in bad:
        with pytest.raises(StabilityError):
            lyapunov_exponents(model, sequence)
    for other in (x.to(torch.complex64), x > 0):
        with pytest.raises(ConfigurationError):
            lyapunov_exponents(layer, other)
    for options in ({"start": "first"}, {"k": 0}, {"k": 4}, {"k": True}, {"skip": 4}, {"skip": -1}, {"seed": -1}):
        with pytest.raises(ConfigurationError):
            lyapunov_exponents(layer, x, **options)
    with pytest.raises(NonFiniteError):
        lyapunov_exponents(layer, torch.full((1, 4, 2), float("nan")))
    with pytest.raises(UnsupportedError):
        lyapunov_exponents(nn.Linear(2, 2), x)
    with pytest.raises(UnsupportedError):
        lyapunov_exponents(nn.GRU(2, 3, bidirectional=True), x)
    wild = ElmanRNN(1, 2, activation="relu")
    with torch.no_grad():
        wild.weight_hh.fill_(1e30)
        wild.bias.fill_(1.0)
    with pytest.raises(NonFiniteError):
        lyapunov_exponents(wild, torch.ones(1, 40, 1))
