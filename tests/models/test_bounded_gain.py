"""The bounded-gain layer: its bound for any parameters, in every precision, reached on some; copied and trained."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import stability
from stability.analysis import certified_radius, make_task, train
from stability.errors import ConfigurationError, DimensionError, RankError
from stability.models import BoundedGainRNN, SequenceModel, load, orthonormal, save
from stability.models.activations import NORM_PRESERVING, householder
from stability.verification import verify_claim

ACTIVATIONS = ("maxmin", "abs", "householder")


def drawn(seed: int, dtype=torch.float64, sizes: tuple[int, int] | None = None, **options) -> BoundedGainRNN:
    """A layer with parameters far from those it starts with, of options and, unless said, sizes of its own."""
    generator = torch.Generator().manual_seed(seed)
    n, p = 2 * int(torch.randint(1, 5, (), generator=generator)), int(torch.randint(1, 5, (), generator=generator))
    n, p = sizes or (n, p)
    options = {"activation": ACTIVATIONS[seed % 3], "gain": 0.5 + (seed % 4), **options}
    layer = BoundedGainRNN(p, n, **options).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(3.0 * torch.randn(parameter.shape, generator=generator, dtype=dtype))
    return layer


class Together:
    """Layers of one size and activation side by side: what ``layer(x)[1]`` is of each, in one pass."""

    def __init__(self, layers: list[BoundedGainRNN]):
        self.layers, self.activation = layers, layers[0].activation
        weights = [layer.weights() for layer in layers]
        self.W, self.V = (torch.stack([pair[k] for pair in weights]).detach().mT for k in (0, 1))
        self.b = torch.stack([layer.bias.detach() for layer in layers])[:, None]
        if self.activation == "householder":
            self.angles = torch.stack([layer.angles.detach() for layer in layers])[:, None]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """``(layers, batch, time, p)`` to the last states ``(layers, batch, n)``."""
        h = x.new_zeros(*x.shape[:2], self.W.shape[-1])
        for u in x.unbind(2):
            z = torch.baddbmm(self.b + u @ self.V, h, self.W)
            h = householder(z, self.angles) if self.activation == "householder" else NORM_PRESERVING[self.activation](z)
        return h


def largest_ratios(run: Together, x: torch.Tensor, rounds: int, size: float = 1e-3) -> torch.Tensor:
    """``|d_T| / |u|_2`` climbed by gradient from runs ``x (layers, batch, time, p)``; of each layer the largest."""
    with torch.no_grad():
        nominal = run(x)
        for k, layer in enumerate(run.layers):  # it is the layer that is climbed
            torch.testing.assert_close(layer(x[k])[1], nominal[k], rtol=1e-10, atol=1e-10)
    u = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(len(run.layers)))
    best = x.new_zeros(len(x))
    for _ in range(rounds):
        u = (size * u / u.flatten(2).norm(dim=2)[..., None, None]).detach().requires_grad_()
        moved = (run(x + u) - nominal).norm(dim=2)
        best = torch.maximum(best, (moved.detach() / u.detach().flatten(2).norm(dim=2)).amax(dim=1))
        (step,) = torch.autograd.grad(moved.sum(), u)
        u = u.detach() / size + 30.0 * step
    return best


def trials(seeds: range, rounds: int, sizes: tuple[int, int] | None = None) -> torch.Tensor:
    """Return the largest ratio of each layer in 8 runs, in units of its gain."""
    groups: dict[tuple, list[BoundedGainRNN]] = {}
    for seed in seeds:
        layer = drawn(seed, sizes=sizes, rate=None if seed % 5 else 0.9)
        groups.setdefault((layer.activation, layer.hidden_size, layer.input_size), []).append(layer)
    shares = []
    for (_, _, p), layers in groups.items():
        generator = torch.Generator().manual_seed(len(layers))
        x = torch.randn(len(layers), 8, 6, p, dtype=torch.float64, generator=generator)
        gains = torch.tensor([layer.gain for layer in layers], dtype=torch.float64)
        shares.append(largest_ratios(Together(layers), x, rounds) / gains)
    return torch.cat(shares)


def test_no_parameters_exceed_the_gain_and_some_reach_it():
    shares = trials(range(15), 25, sizes=(6, 2))
    assert shares.max() <= 1.0
    assert shares.max() >= 0.95


@pytest.mark.parametrize("rate", [None, 0.8])
def test_its_frame_is_orthonormal_and_the_proofs_reach_what_was_asked_for(rate):
    for seed in range(3):
        layer = drawn(seed, rate=rate)
        K = layer.frame() / (1 - 1e-5)
        torch.testing.assert_close(K @ K.mT, torch.eye(len(K), dtype=K.dtype), atol=1e-13, rtol=0)
        bound = stability.incremental_gain(layer, measure="final")
        assert 0.0 < bound.value <= layer.gain
        whole = stability.incremental_gain(layer)
        decay = 1.0 - 1e-5 if rate is None else rate
        assert whole.value <= layer.gain / math.sqrt(1 - decay**2) * (1 + 1e-5)
        certificate = stability.certify(layer)
        assert certificate.verdict == "certified"
        assert certificate.rate <= decay * (1 + 1e-9)
        assert certificate.overshoot == 1.0
        assert [claim.name for claim in certificate.claims] == ["gain"]
        assert certificate.claims[0].value <= layer.gain
        assert stability.verify(certificate).valid


def test_two_runs_under_one_input_come_nearer_by_the_rate():
    layer = drawn(3, rate=0.7)
    x = torch.randn(5, 20, layer.input_size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    states = [10 * torch.randn(5, layer.hidden_size, dtype=torch.float64) for _ in range(2)]
    start = (states[0] - states[1]).norm(dim=1)
    one, other = (layer(x, state)[1] for state in states)
    assert ((one - other).norm(dim=1) <= 0.7**20 * start).all()


def test_gradients_through_time_keep_their_norms():
    """``K^T`` and the activation's transposed derivative are isometries: what is lost is what goes to the inputs."""
    torch.manual_seed(0)
    layer = BoundedGainRNN(2, 16).double()
    x = torch.randn(3, 40, 2, dtype=torch.float64, requires_grad=True)
    start = torch.randn(3, 16, dtype=torch.float64, requires_grad=True)
    v = torch.randn(3, 16, dtype=torch.float64)
    back = torch.autograd.grad((layer(x, start)[1] * v).sum(), (x, start))
    total = back[0].flatten(1).square().sum(1) + back[1].square().sum(1)
    torch.testing.assert_close(total, v.square().sum(1), rtol=1e-3, atol=0)


def test_maxmin_is_the_householder_activation_at_a_right_angle():
    torch.manual_seed(0)
    one, other = BoundedGainRNN(3, 8).double(), BoundedGainRNN(3, 8, activation="householder").double()
    other.load_state_dict({**one.state_dict(), "angles": torch.full((4,), torch.pi / 2, dtype=torch.float64)})
    x = torch.randn(4, 9, 3, dtype=torch.float64)
    torch.testing.assert_close(one(x)[0], other(x)[0])
    alias = BoundedGainRNN(3, 8, activation="oplu").double()
    alias.load_state_dict(one.state_dict())
    assert torch.equal(one(x)[0], alias(x)[0])


@pytest.mark.parametrize("options", [{}, {"gain": 0.3, "rate": 0.9}])
def test_from_matrices_gives_the_weights_back(options):
    generator = torch.Generator().manual_seed(0)
    K = orthonormal(torch.randn(6, 9, dtype=torch.float64, generator=generator))
    g, rho = options.get("gain", 1.0), options.get("rate", 1.0)
    b = torch.arange(6.0, dtype=torch.float64)
    layer = BoundedGainRNN.from_matrices(rho * K[:, :6], g * K[:, 6:], b, **options)
    W, V = layer.weights()
    torch.testing.assert_close(torch.cat([W / rho, V / g], 1), (1 - 1e-5) * K, atol=1e-13, rtol=0)
    assert torch.equal(layer.bias, b)
    near = BoundedGainRNN.from_matrices(torch.eye(6, dtype=torch.float64), K[:, :3])
    retracted = orthonormal(torch.cat([torch.eye(6, dtype=torch.float64), K[:, :3]], 1))
    torch.testing.assert_close(near.frame(), (1 - 1e-5) * retracted, atol=1e-13, rtol=0)


@pytest.mark.parametrize(("n", "p"), [(6, 1), (6, 2), (4, 7)])
def test_a_delay_line_holds_the_last_inputs_and_is_saved(tmp_path, n, p):
    layer = BoundedGainRNN(p, n, activation="abs", start="delay_line")
    x = torch.rand(3, 9, p, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(layer(x)[1], x.flatten(1)[:, -n:], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(BoundedGainRNN(p, n, activation="tanh", start="delay_line")(x[:, :1])[1][:, -1:],
                               torch.tanh(x[:, 0, -1:]), rtol=1e-4, atol=1e-6)  # fmt: skip
    again = load(save(layer, tmp_path / "layer.safetensors"))
    assert torch.equal(again(x)[1], layer(x)[1])
    assert again.start == "delay_line"
    with pytest.raises(ConfigurationError):
        BoundedGainRNN(p, n, start="shift")


def test_what_is_no_such_layer_is_refused():
    for options in ({"gain": 0.0}, {"gain": -1.0}, {"gain": math.inf}, {"rate": 0.0}, {"rate": 1.5}, {"rate": True},
                    {"activation": "gelu"}, {"activation": None}):  # fmt: skip
        with pytest.raises(ConfigurationError):
            BoundedGainRNN(2, 4, **options)
    with pytest.raises(ConfigurationError):
        BoundedGainRNN(2, 5)
    eye = torch.eye(4)
    for bad in ((eye[:3], eye), (eye, eye[:3]), (eye, eye, torch.zeros(3))):
        with pytest.raises(DimensionError):
            BoundedGainRNN.from_matrices(*bad)
    with pytest.raises(RankError):
        BoundedGainRNN.from_matrices(torch.ones(4, 4), torch.ones(4, 2))


@pytest.mark.parametrize(
    "how",
    [
        "float32",
        "autocast",
        "deepcopy",
        pytest.param("compiled", marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore")]),  # of torch's compiler
    ],
)
def test_the_bound_survives(how):
    """Differences far above the rounding of the arithmetic: what runs keeps the bound, or refuses to run."""
    torch.manual_seed(0)
    layer = BoundedGainRNN(4, 32, gain=2.0)
    x = torch.randn(16, 20, 4)
    layer = copy.deepcopy(layer) if how == "deepcopy" else layer
    run = torch.compile(layer, backend="aot_eager") if how == "compiled" else layer
    u = torch.randn(x.shape)
    u /= u.flatten(1).norm(dim=1)[:, None, None]
    with torch.no_grad():
        exact = copy.deepcopy(layer).double()(x.double())[0].float()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            torch.testing.assert_close(run(x)[0], exact, rtol=1e-4, atol=1e-4)  # bfloat16 is a hundredfold further off
    for size in (1e-1, 1.0, 100.0):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"), torch.no_grad():
            moved = (run(x + size * u)[1] - run(x)[1]).double().norm(dim=1)
        assert (moved <= 2.0 * size).all()
        assert moved.max() > 0.1 * size
    torch.testing.assert_close(run(x)[0], layer(x)[0])
    W, V = (weight.detach().double() for weight in layer.weights())
    assert torch.linalg.matrix_norm(torch.cat([W, V / 2.0], 1), 2) < 1.0
    with pytest.raises(ConfigurationError):
        layer.half()(x.half())


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    task = make_task("digits", limit=380, test_limit=100)
    model = SequenceModel(BoundedGainRNN(task.input_size, 16, gain=1.0), task.output_size)
    before = copy.deepcopy(model)
    proved = []

    def check(*_):
        bound = stability.incremental_gain(model.layer, measure="final")
        proved.append(bound.value if verify_claim(bound.subject, bound.claim).valid else math.inf)

    handle = register_optimizer_step_post_hook(check)
    try:
        result = train(model, task, epochs=2, lr=0.03, batch_size=64)
    finally:
        handle.remove()
    return before, model, task, result, proved


def test_the_proof_verifies_after_every_step_of_training(trained):
    before, model, _, result, proved = trained
    assert len(proved) == 2 * 6
    assert max(proved) <= 1.0
    assert not torch.equal(before.layer.U, model.layer.U)
    assert result.test_metric > 0.25


def test_certified_radii_are_margins_over_the_distances_of_rows_and_no_attack_beats_them(trained):
    _, model, task, _, _ = trained
    x, y = (value[:60] for value in task.test)
    radii = certified_radius(model, x, y)
    head = model.head.weight.detach().double()
    logits = copy.deepcopy(model).double()(x.double()).detach()
    apart = (head[y][:, None] - head[None]).norm(dim=2)
    gaps = logits.gather(1, y[:, None]) - logits
    gaps[apart == 0] = math.inf
    expected = (gaps / apart.clamp(min=1e-300)).amin(dim=1).clamp(min=0.0)
    bound = stability.incremental_gain(model.layer, measure="final").value
    torch.testing.assert_close(torch.from_numpy(radii.radius), expected / bound, rtol=1e-6, atol=1e-9)
    right = radii.radius > 0
    for _ in range(5):
        u = torch.randn(x.shape)
        u *= torch.from_numpy(0.999 * radii.radius / u.flatten(1).norm(dim=1).numpy())[:, None, None]
        assert (model(x + u.float()).argmax(1) == y)[right].all()


def test_a_mean_head_keeps_the_bound():
    torch.manual_seed(0)
    for rate in (None, 0.8):
        layer = BoundedGainRNN(3, 8, rate=rate)
        last, mean = (SequenceModel(copy.deepcopy(layer), 4, kind).double() for kind in ("last", "mean"))
        mean.load_state_dict(last.state_dict())
        x, y = torch.randn(6, 30, 3, dtype=torch.float64), torch.zeros(6, dtype=torch.long)
        gains = [certified_radius(model, x, y).gain for model in (last, mean)]
        assert gains[1] <= gains[0] * (1 + 1e-6)
        if rate is not None:  # a difference that fades is small in most of the states
            assert gains[1] < 0.5 * gains[0]
        jacobian = torch.autograd.functional.jacobian(lambda v, run=mean: run(v[None])[0], x[0]).flatten(1)
        assert torch.linalg.matrix_norm(jacobian, 2) <= gains[1]
