"""Hessian spectra against central differences of gradients in float64, PyHessian, and known matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.curvature.density import spectral_density, spectrum_of
from stability.analysis.curvature.hessian import hessian_summary
from stability.analysis.curvature.lanczos import lanczos, random_direction
from stability.analysis.curvature.opinion import opinion_on
from stability.analysis.curvature.products import hessian_of
from stability.analysis.curvature.pyhessian import Search
from stability.analysis.guard import untouched
from stability.errors import ConfigurationError, DimensionError, NonFiniteError, StabilityError, UnsupportedError
from stability.models.elman import ElmanRNN
from stability.models.gated import LSTM
from stability.models.lipschitz import LipschitzRNN
from stability.models.network import SequenceModel

LAYERS = {
    "lipschitz": lambda: LipschitzRNN(2, 5, gamma=0.1, dt=0.5, init_std=0.5),
    "elman": lambda: ElmanRNN(2, 5),
    "lstm": lambda: LSTM(2, 3),
}


def problem(kind: str = "elman", dtype: torch.dtype = torch.float64):
    torch.manual_seed(3)
    model = SequenceModel(LAYERS[kind](), 3)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1.5)  # away from the start, where the spectrum is nearly flat
    x, y = torch.randn(9, 5, 2, dtype=torch.float64), torch.randint(3, (9,))
    return model.to(dtype), x.to(dtype), y


def slow_hessian(model, x, y, names=None, loss=nn.functional.cross_entropy, h=1e-5) -> np.ndarray:
    """Columns ``(g(theta + h e_i) - g(theta - h e_i)) / 2h`` by ordinary backward passes."""
    params = [p for n, p in model.named_parameters() if names is None or n in names]

    def gradient() -> np.ndarray:
        grads = torch.autograd.grad(loss(model(x), y), params, allow_unused=True)
        parts = [torch.zeros_like(p) if g is None else g for g, p in zip(grads, params)]
        return torch.cat([g.reshape(-1) for g in parts]).numpy()

    columns = []
    for p in params:
        flat = p.data.view(-1)
        for i in range(len(flat)):
            value = flat[i].item()
            flat[i] = value + h
            upper = gradient()
            flat[i] = value - h
            columns.append((upper - gradient()) / (2 * h))
            flat[i] = value
    matrix = np.stack(columns)
    return (matrix + matrix.T) / 2


@pytest.fixture(scope="module", params=sorted(LAYERS))
def known(request):
    model, x, y = problem(request.param)
    return model, x, y, slow_hessian(model, x, y)


@pytest.mark.parametrize("method", ["dense", "lanczos"])
def test_summary_equals_the_slow_hessian(known, method):
    model, x, y, matrix = known
    values = np.linalg.eigvalsh(matrix)
    s = hessian_summary(model, x, y, method=method, tol=1e-9, max_iter=300)
    scale = np.abs(values).max()
    assert s.n_parameters == len(values)
    assert s.lambda_max == pytest.approx(values[-1], abs=1e-7 * scale)
    assert s.lambda_min == pytest.approx(values[0], abs=1e-7 * scale)
    assert s.top_magnitude == pytest.approx(values[np.abs(values).argmax()], abs=1e-7 * scale)
    assert s.trace == pytest.approx(values.sum(), abs=1e-6 * scale + 4 * s.trace_standard_error)
    assert s.condition_number == pytest.approx(abs(values[-1] / values[0]), rel=1e-5)
    assert s.converged
    assert s.loss == pytest.approx(nn.functional.cross_entropy(model(x), y).item(), rel=1e-12)


def test_pyhessian_agrees_at_both_ends_and_in_the_trace(known):
    model, x, y, matrix = known
    values = np.linalg.eigvalsh(matrix)
    s = hessian_summary(model, x, y, method="pyhessian", max_iter=300, trace_samples=100)
    scale = np.abs(values).max()
    assert s.lambda_max == pytest.approx(values[-1], abs=0.02 * scale)
    assert s.lambda_min == pytest.approx(values[0], abs=0.02 * scale)
    for value, residual in ((s.lambda_max, s.lambda_max_residual), (s.lambda_min, s.lambda_min_residual)):
        assert np.abs(values - value).min() <= residual + 1e-6 * scale
    assert s.trace_samples == 100
    assert abs(s.trace - values.sum()) < 4 * s.trace_standard_error
    assert any("copy of the model" in note for note in s.notes)


@pytest.mark.parametrize("method", ["lanczos", "pyhessian", "dense"])
def test_minibatches_and_loader_give_the_hessian_of_the_whole(method):
    model, x, y = problem()
    whole = hessian_summary(model, x, y, method="dense")
    options = {"method": method, "tol": 1e-9, "max_iter": 200}
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)  # 4 + 4 + 1
    rel = 1e-2 if method == "pyhessian" else 1e-8
    for data in ((x, y), (loader,)):
        s = hessian_summary(model, *data, batch_size=4, **options)
        assert s.lambda_max == pytest.approx(whole.lambda_max, rel=rel)
        assert s.lambda_min == pytest.approx(whole.lambda_min, rel=rel)
        assert s.loss == pytest.approx(whole.loss, rel=1e-12)


@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_recurrent_parameters_are_those_of_the_recurrent_matrices(kind):
    model, x, y = problem(kind)
    s = hessian_summary(model, x, y, parameters="recurrent", method="dense")
    size = {"lipschitz": 2 * 25, "elman": 25, "lstm": 4 * 9}[kind]
    assert s.n_parameters == size
    named = model.layer.named_parameters(prefix="layer")
    names = [n for n, p in named if p.shape[1:] == (model.hidden_size,)]
    values = np.linalg.eigvalsh(slow_hessian(model, x, y, names))
    assert s.lambda_max == pytest.approx(values[-1], abs=1e-7)
    assert s.lambda_min == pytest.approx(values[0], abs=1e-7)
    by_name = hessian_summary(model, x, y, parameters=names, method="dense")
    assert (by_name.lambda_max, by_name.parameters) == (s.lambda_max, tuple(names))


@pytest.mark.parametrize("method", ["lanczos", "pyhessian", "dense"])
def test_model_is_left_exactly_as_found(method):
    model, x, y = problem("lstm")
    model = nn.Sequential(model, nn.BatchNorm1d(3), nn.Dropout(0.5)).double().train()
    model[1].eval()
    nn.functional.cross_entropy(model(x), y).backward()
    model[0].head.bias.requires_grad_(False)
    model[0].layer.requires_grad_(True)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    copies = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    grads = [(p.grad, value, p.requires_grad) for p, value in zip(model.parameters(), copies)]
    modes = [m.training for m in model.modules()]
    rng = torch.random.get_rng_state()
    np_rng = np.random.get_state()[1].copy()  # noqa: NPY002
    hessian_summary(model, x, y, method=method, max_iter=5, trace_samples=2)
    spectral_density(model, x, y, n_vectors=2, steps=3)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    for p, (grad, value, needed) in zip(model.parameters(), grads):
        assert p.grad is grad
        assert grad is None or torch.equal(grad, value)
        assert p.requires_grad is needed
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(rng, torch.random.get_rng_state())
    assert (np_rng == np.random.get_state()[1]).all()  # noqa: NPY002


def test_guard_restores_after_an_error_and_undoes_gradients_and_buffers():
    layer = nn.BatchNorm1d(2)
    layer.weight.grad = gradient = torch.ones(2)

    def fail():
        with untouched(layer) as inside:
            inside.running_mean.add_(1.0)
            inside.zero_grad()
            inside.bias.requires_grad_(False)
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        fail()
    assert layer.training
    assert layer.running_mean.eq(0).all()
    assert layer.weight.grad is gradient
    assert layer.bias.requires_grad


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = SequenceModel(ElmanRNN(2, 4), 3).double()

    def forward(self, x):
        return nn.functional.dropout(self.inner(x), 0.5, training=True)


def test_a_model_that_disagrees_with_itself_is_refused():
    _, x, y = problem()
    with pytest.raises(UnsupportedError):
        hessian_summary(Noisy(), x, y)


def test_float32_agrees_with_float64():
    model, x, y = problem()
    exact = hessian_summary(model, x, y, method="dense")
    s = hessian_summary(model.float(), x.float(), y, tol=1e-4)
    assert s.lambda_max == pytest.approx(exact.lambda_max, rel=1e-4)
    assert s.lambda_min == pytest.approx(exact.lambda_min, rel=1e-3)
    assert s.converged


@pytest.mark.parametrize("ratio", [1e-3, 1e-5])
def test_both_eigenvalues_are_right_where_it_says_converged(ratio):
    """A smallest eigenvalue far below the largest one is told apart from its neighbours, or is not called converged."""
    size = 80
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, 1, bias=False)).double()
    values = torch.cat([torch.tensor([-ratio, 1.0]), ratio * torch.linspace(-0.9, 9.0, size - 2)]).double()
    weight = model[1].weight
    quadratic = lambda outputs, targets: 0.5 * (values * weight[0] ** 2).sum() + 0.0 * outputs.sum()  # noqa: E731
    x = torch.zeros(2, 1, size, dtype=torch.float64)
    for steps in (12, 200):
        s = hessian_summary(model, x, torch.zeros(2, dtype=torch.float64), loss=quadratic, max_iter=steps)
        right = abs(s.lambda_min / -ratio - 1) < 0.01
        assert right or not s.converged
    assert s.converged


def test_zero_hessian_has_no_condition_number():
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 2)).double()
    x, y = torch.randn(3, 2, 2).double(), torch.zeros(3)
    for method in ("lanczos", "dense", "pyhessian"):
        s = hessian_summary(model, x, y, loss=lambda o, t: o.mean(), method=method)
        assert (s.lambda_max, s.lambda_min, s.condition_number) == pytest.approx((0.0, 0.0, None), abs=1e-12)


# ------------------------------------------------------------------------------------------ density


def test_quadrature_is_exact_per_probe_and_unbiased_over_probes(known):
    model, x, y, matrix = known
    n = len(matrix)
    d = spectral_density(model, x, y, n_vectors=40, steps=12, seed=5)
    assert d.weights.sum(axis=1) == pytest.approx(np.ones(40), abs=1e-10)
    assert (d.weights >= 0).all()
    assert np.trapezoid(d.density, d.grid) == pytest.approx(1.0, abs=1e-3)
    rng = np.random.default_rng(5)
    v = random_direction(n, rng)  # the first probe
    for k in (1, 2, 5):
        exact = v @ np.linalg.matrix_power(matrix, k) @ v
        assert (d.weights[0] * d.nodes[0] ** k).sum() == pytest.approx(exact, rel=1e-5)
    for k in (1, 2, 3):
        value, error = d.moment(k)
        assert abs(value - np.trace(np.linalg.matrix_power(matrix, k)) / n) < 3.5 * error
    assert abs(d.trace - np.trace(matrix)) < 3.5 * d.trace_standard_error


def test_density_matches_the_smoothed_spectrum():
    model, x, y = problem()
    values = np.linalg.eigvalsh(slow_hessian(model, x, y))
    d = spectral_density(model, x, y, n_vectors=30, steps=len(values), seed=1)
    bumps = np.exp(-0.5 * ((d.grid[:, None] - values) / d.sigma) ** 2) / (d.sigma * np.sqrt(2 * np.pi))
    off = np.abs(d.density - bumps.mean(axis=1))
    assert (off <= 4 * d.density_standard_error + 1e-6 * off.max() + 1e-4 * d.density.max()).mean() > 0.93


# ------------------------------------------------------------------------------------------ other oracles


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("method", ["lanczos", "pyhessian", "dense"])
def test_cuda_gives_the_same_ends(method):
    model, x, y = problem("lstm")
    here = hessian_summary(model, x, y, method="dense")
    there = hessian_summary(model.cuda(), x.cuda(), y.cuda(), method=method, max_iter=300, tol=1e-6)
    assert there.lambda_max == pytest.approx(here.lambda_max, rel=1e-2)
    assert next(model.parameters()).is_cuda


# ------------------------------------------------------------------------------------------ bad input

X, Y = torch.zeros(4, 3, 2, dtype=torch.float64), torch.zeros(4, dtype=torch.long)


@pytest.mark.parametrize(("x", "y", "options", "error"), [
    (X, Y, {"method": "magic"}, ConfigurationError), (X, Y, {"parameters": "some"}, ConfigurationError),
    (X, Y, {"parameters": ["nope"]}, ConfigurationError), (X, Y, {"parameters": []}, ConfigurationError),
    (X, Y, {"seed": -1}, ConfigurationError), (X, Y, {"seed": 2**64}, ConfigurationError),
    (X, Y, {"tol": 10**400}, ConfigurationError), (X, Y, {"seed": True}, ConfigurationError),
    (X, Y, {"max_iter": 1}, ConfigurationError), (X, Y, {"trace_samples": 1}, ConfigurationError),
    (X, Y, {"tol": float("nan")}, ConfigurationError), (X, Y, {"batch_size": 0}, ConfigurationError),
    (X, Y[:2], {}, DimensionError), (X.float(), Y, {}, ConfigurationError), (X[:0], Y[:0], {}, DimensionError),
    (X * float("nan"), Y, {}, NonFiniteError), (X, Y + 9, {}, ConfigurationError),
    (X, Y.double(), {}, ConfigurationError), (X, None, {}, ConfigurationError), ([], None, {}, ConfigurationError),
    (iter([(X, Y)]), None, {}, ConfigurationError), ("x", Y, {}, ConfigurationError),
    (X, Y, {"loss": lambda o, t: o}, ConfigurationError),
    (X, Y, {"loss": lambda o, t: o.detach().mean()}, ConfigurationError),
    (X, Y, {"loss": lambda o, t: o.mean() * float("inf")}, NonFiniteError),
])  # fmt: skip
def test_bad_input_gets_a_typed_error(x, y, options, error):
    model = SequenceModel(ElmanRNN(2, 4), 3).double()
    with pytest.raises(error) as caught:
        hessian_summary(model, x, y, **options)
    assert isinstance(caught.value, StabilityError)


def test_bad_models_get_typed_errors():
    model = SequenceModel(ElmanRNN(2, 4), 3).double()
    with pytest.raises(ConfigurationError):
        hessian_summary(lambda x: x, X, Y)
    with pytest.raises(UnsupportedError):
        hessian_summary(nn.Sequential(nn.Flatten(), nn.Linear(6, 3)).double(), X, Y, parameters="recurrent")
    with pytest.raises(ConfigurationError):
        hessian_summary(nn.Sequential(nn.Flatten(), nn.Linear(6, 3000)).double(), X, Y, method="dense")
    with pytest.raises(ConfigurationError):
        spectral_density(model, X, Y, sigma=1e-9)
    with pytest.raises(ConfigurationError):
        spectral_density(model, X, Y, n_vectors=1)
    model.head.weight.data[0, 0] = float("nan")
    with pytest.raises(NonFiniteError):
        hessian_summary(model, X, Y)


def test_ends_and_density_together_are_those_of_both_alone_with_fewer_products():
    torch.manual_seed(3)
    model = SequenceModel(LipschitzRNN(2, 5, dt=0.5, init_std=0.5), 3).double()
    x, y = torch.randn(9, 5, 2, dtype=torch.float64), torch.randint(3, (9,))
    with hessian_of(model, x, y, None, "all", None) as operator:
        summary, density = spectrum_of(operator, steps=12, probes=4, seed=5)
    alone = hessian_summary(model, x, y, seed=5, max_iter=12, tol=1e-300, trace_samples=4)
    spread = spectral_density(model, x, y, n_vectors=4, steps=12, seed=5)
    same = ("lambda_max", "lambda_min", "trace", "trace_standard_error", "matvecs", "loss", "n_parameters")
    for name in same:
        assert getattr(summary, name) == pytest.approx(getattr(alone, name), rel=1e-9, abs=1e-12), name
    np.testing.assert_allclose(density.nodes, spread.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(density.density, spread.density, rtol=1e-9, atol=1e-12)
    assert operator.matvecs == alone.matvecs + spread.matvecs - 12  # the first probe's space is made once


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_second_opinion_is_about_the_largest_eigenvalue_and_the_same_trace(sign):
    """Also where an eigenvalue of larger magnitude lies at the other end."""
    model, x, y = problem()

    def loss(outputs, targets):
        return sign * nn.functional.cross_entropy(outputs, targets)

    exact = hessian_summary(model, x, y, loss=loss, method="dense")
    assert (abs(exact.lambda_min) > exact.lambda_max) == (sign < 0)
    with hessian_of(model, x, y, loss, "all", None) as operator:
        opinion = opinion_on(exact, operator, Search(400, 0.0, 60, exact.seed))
    assert opinion["lambda_max"] == pytest.approx(exact.lambda_max, rel=1e-2)
    assert opinion["lambda_max_difference"] == pytest.approx(opinion["lambda_max"] / exact.lambda_max - 1, abs=1e-9)
    assert abs(opinion["trace"] - exact.trace) < 2 * opinion["trace_half_width"]
    assert opinion["trace_difference"] == pytest.approx((opinion["trace"] - exact.trace) / abs(exact.trace))
    assert opinion["trace_samples"] == 60


def test_lanczos_has_an_orthonormal_basis_and_no_ghosts(rng):
    values = np.concatenate([np.linspace(-1, 1, 60), [40.0, 41.0]])
    q, _ = np.linalg.qr(rng.standard_normal((62, 62)))
    matrix = q @ np.diag(values) @ q.T
    krylov = lanczos(matrix.dot, random_direction(62, rng), 62)
    assert krylov.basis @ krylov.basis.T == pytest.approx(np.eye(krylov.steps), abs=1e-12)
    assert krylov.ritz()[0] == pytest.approx(values, abs=1e-10)
    few = lanczos(matrix.dot, random_direction(62, rng), 12)
    ritz, vectors = few.ritz()
    for i in range(12):
        v = vectors[:, i] @ few.basis
        assert np.linalg.norm(matrix @ v - ritz[i] * v) == pytest.approx(abs(few.residual * vectors[-1, i]), abs=1e-10)
    early = lanczos(matrix.dot, random_direction(62, rng), 62, tol=1e-3)
    assert early.steps < 62
    assert early.ritz()[0][[0, -1]] == pytest.approx([-1, 41], abs=0.05)


def test_lanczos_stops_in_an_invariant_space(rng):
    v = rng.standard_normal(8)
    matrix = np.outer(v, v)
    krylov = lanczos(matrix.dot, rng.standard_normal(8), 8)
    assert krylov.steps == 2
    assert krylov.residual == 0
    assert krylov.ritz()[0] == pytest.approx([0, v @ v], abs=1e-12)
