"""Certified radii: sound against attacks and random directions, exact where the answer is known by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis.attacks.deepfool import deepfool
from stability.analysis.attacks.gradient import pgd
from stability.analysis.dynamics.stepbound import horizon_gain, step_bound
from stability.analysis.radius.certified import certified_radius
from stability.certificate import Certificate
from stability.certification import certify
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.models.contracting import ContractingRNN
from stability.models.deep import DeepNetwork
from stability.models.elman import ElmanRNN
from stability.models.gated import LSTM
from stability.models.householder import HouseholderRNN
from stability.models.lipschitz import LipschitzRNN
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.models.rotrnn import RotRNN
from stability.models.unitary import UnitaryRNN
from stability.search.gains.lure import incremental_gain
from stability.systems import DrivenSystem, LureSystem

T, F, C = 6, 2, 3

STIR = 0.5  # of the noise on the parameters


def stirred_contracting():
    """Away from its nearly linear start."""
    layer = ContractingRNN(F, 6)
    with torch.no_grad():
        for value in layer.parameters():
            value.add_(STIR * torch.randn_like(value))
    return layer


LAYERS = {
    "elman": lambda: ElmanRNN(F, 6),
    "lipschitz": lambda: LipschitzRNN(F, 6, gamma=1.0, dt=0.2, init_std=0.3),
    "midpoint": lambda: LipschitzRNN(F, 6, gamma=1.0, dt=0.2, integrator="midpoint", init_std=0.3),
    "contracting": stirred_contracting,
    "oplu": lambda: HouseholderRNN(F, 6, activation="oplu"),
    "unitary": lambda: UnitaryRNN(F, 6),
    "rotrnn": lambda: RotRNN(F, 6, heads=2),
    "lru": lambda: LRU(F, 6),
}


def network(kind, reduction="last"):
    torch.manual_seed(1)
    model = SequenceModel(LAYERS[kind](), C, reduction).double()
    x = torch.rand(30, T, F, dtype=torch.float64)
    with torch.no_grad():
        y = model(x).argmax(dim=1)
        y[:3] = (y[:3] + 1) % C
    return model, x, y


def slow_gain(model, x, directions=400, seed=0):
    """Largest ``|change of logits| / |change of input|`` seen over random pairs and over Jacobians."""
    generator = torch.Generator().manual_seed(seed)
    best = 0.0
    with torch.no_grad():
        for size in (1e-3, 0.3, 3.0):
            u = size * torch.randn(directions, *x.shape[1:], generator=generator, dtype=x.dtype)
            base = x[torch.randint(len(x), (directions,), generator=generator)]
            change = (model(base + u) - model(base)).norm(dim=1) / u.flatten(1).norm(dim=1)
            best = max(best, change.max().item())
    for k in range(10):
        J = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], x[k])
        best = max(best, torch.linalg.matrix_norm(J.reshape(C, -1), 2).item())
    return best


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_gain_bounds_every_gain_that_is_seen(kind, reduction):
    model, x, y = network(kind, reduction)
    result = certified_radius(model, x, y)
    seen = slow_gain(model, x)
    assert seen <= result.gain
    assert result.gain < 1e4 * seen  # a bound of these small networks that says something
    assert result.radius_linf == pytest.approx(result.radius / math.sqrt(T * F))


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("kind", sorted(LAYERS))
def test_no_attack_gets_below_the_certified_radius(kind, reduction):
    model, x, y = network(kind, reduction)
    result = certified_radius(model, x, y)
    right = torch.from_numpy(result.margin > 0)
    assert torch.equal(right, model(x).argmax(dim=1) == y)
    assert (result.radius[:3] == 0).all()
    assert (result.radius[right] > 0).all()
    for norm, radius in (("l2", result.radius), ("linf", result.radius_linf)):
        found = deepfool(model, x, y, norm=norm, steps=30, bounds=None)
        assert found.success.double().mean() > 0.5
        assert (found.norms.numpy()[found.success] >= radius[found.success]).all()
        for epsilon in np.quantile(radius[right], [0.2, 0.8]):
            attacked = pgd(model, x, y, norm=norm, epsilon=float(epsilon), bounds=None, steps=20)
            assert (
                result.accuracy_at(float(epsilon), norm) <= attacked.robust_accuracy + 1e-12
            )  # shares, counted two ways


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_radius_of_a_linear_recurrence_is_the_distance_to_the_boundary(bidirectional):
    """The nearest boundary by hand: the change of input along the difference of two rows, just across it."""
    _, x, _ = network("rotrnn")
    model = SequenceModel(RotRNN(F, 6, heads=2, bidirectional=bidirectional), C, "mean").double()
    y = model(x).argmax(dim=1)
    result = certified_radius(model, x, y)
    assert result.method == "the affine map itself"
    J = torch.autograd.functional.jacobian(lambda z: model(z[None])[0], x[5]).reshape(C, -1)
    logits = model(x[5:6])[0].detach()
    ways = [((logits[y[5]] - logits[k]) / (J[y[5]] - J[k]).norm(), k) for k in range(C) if k != y[5]]
    distance, k = min((float(d), k) for d, k in ways)
    assert result.radius[5] == pytest.approx(distance, rel=1e-6)
    move = (J[k] - J[y[5]]).reshape(T, F) / (J[k] - J[y[5]]).norm()
    for factor, same in ((0.999, True), (1.001, False)):
        assert (model((x[5] + factor * distance * move)[None]).argmax() == y[5]) == same


def test_a_jump_has_no_gain():
    model, x, y = network("unitary")
    with torch.no_grad():
        model.layer.b[0] = 1e-3
    with pytest.raises(UnsupportedError):
        certified_radius(model, x, y)


def test_gain_is_exact_without_memory():
    """``h+ = u``, logits ``H h``: the gain is the norm of ``H``."""
    system = LureSystem(np.zeros((2, 2)), np.zeros((2, 0)), np.zeros((0, 2)), dt=1.0)
    bound = step_bound(DrivenSystem(system, "tanh", np.zeros((0, 2)), np.zeros(0), F=np.eye(2)))
    H = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert (bound.rate, bound.drive) == (0.0, 1.0)
    assert horizon_gain(bound, H, 5) == pytest.approx(5.0)
    assert horizon_gain(bound, H, 5, mean=True) == pytest.approx(5.0 / math.sqrt(5))  # mean of five inputs


def test_scalar_network_has_the_geometric_gain():
    """``h+ = a h + b tanh(u)``, worst slope 1: ``|h_T| <= b sqrt(sum a^{2k}) |u|``, tight for small u."""
    a, b, horizon = 0.8, 0.5, 12
    system = LureSystem([[a]], [[b]], [[0.0]], dt=1.0)
    bound = step_bound(DrivenSystem(system, "tanh", [[1.0]]))
    exact = b * math.sqrt(sum(a ** (2 * k) for k in range(horizon)))
    assert horizon_gain(bound, np.eye(1), horizon) == pytest.approx(exact, rel=1e-6)
    running = np.cumsum([a**k for k in range(horizon)]) / horizon
    of_mean = horizon_gain(bound, np.eye(1), horizon, mean=True)
    assert of_mean == pytest.approx(b * np.linalg.norm(running), rel=1e-6)


@pytest.mark.parametrize("slope", [(0.0, 1.0), (-1.0, 1.0), (0.1, 0.7)])
@pytest.mark.parametrize("feedthrough", [False, True])
def test_step_bound_holds_at_every_corner_of_the_slopes(rng, slope, feedthrough):
    for _ in range(10):
        A, B, C_ = rng.standard_normal((3, 3)) / 2, rng.standard_normal((3, 4)), rng.standard_normal((4, 3))
        D = np.tril(rng.standard_normal((4, 4)), -1) if feedthrough else np.zeros((4, 4))
        E, G = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
        system = LureSystem(A, B, C_, D, slope=slope, dt=1.0)
        network = DrivenSystem(LureSystem(A, B, C_, D, slope=(-1.0, 1.0), dt=1.0), "tanh", E, F=G)
        object.__setattr__(network, "system", system)  # slopes that tanh does not have
        bound = step_bound(network)
        for corner in itertools.product(slope, repeat=4):
            K = np.diag(corner)
            w = np.linalg.solve(np.eye(4) - K @ D, K)
            assert np.linalg.norm(A + B @ w @ C_, 2) <= bound.rate * (1 + 1e-12)
            assert np.linalg.norm(B @ w @ E + G, 2) <= bound.drive * (1 + 1e-12)


def test_step_bound_holds_along_pairs_of_trajectories(rng):
    for kind in ("midpoint", "contracting", "lipschitz"):
        model, _, _ = network(kind)
        subject = model.layer.driven()
        witness = model.layer.witness()
        bounds = [step_bound(subject), *([] if witness is None else [step_bound(subject, witness)])]
        assert kind != "contracting" or len(bounds) == 2
        h, g = (rng.standard_normal((200, subject.system.states)) for _ in range(2))
        u, v = (rng.standard_normal((200, F)) for _ in range(2))
        after = subject.advance(h, u) - subject.advance(g, v)
        for bound in bounds:
            left = np.linalg.norm(after @ bound.root.T, axis=1)
            right = bound.rate * np.linalg.norm((h - g) @ bound.root.T, axis=1)
            assert (left <= right + bound.drive * np.linalg.norm(u - v, axis=1) + 1e-9).all()


def test_proof_of_contraction_keeps_the_radius_over_long_sequences():
    model, _, _ = network("contracting")
    witness = model.layer.witness()
    x = torch.rand(3, 400, F, dtype=torch.float64)
    y = model(x).argmax(dim=1)
    with_proof = certified_radius(model, x, y)
    assert with_proof.method == "certified contraction"
    head = model.head.weight.detach().numpy()
    limit = horizon_gain(step_bound(model.layer.driven(), witness), head, 10**6)
    assert with_proof.gain <= limit < math.inf
    by_norms = step_bound(model.layer.driven())
    assert horizon_gain(by_norms, head, 400) > 10 * with_proof.gain


def certificate_of(model, witness, verdict=Verdict.CERTIFIED, kind="multiplier_lmi"):
    proof = None if witness is None else Proof(kind, witness)
    return Certificate(model.layer.driven(), Claim("contraction", "it contracts", verdict, proof))


def test_certificates_of_the_ladder_are_taken():
    model, x, y = network("lipschitz")
    certificate = certify(model)
    assert certificate.verdict is Verdict.CERTIFIED
    result = certified_radius(model, x, y, certificate=certificate)
    assert slow_gain(model, x) <= result.gain <= certified_radius(model, x, y).gain


def test_certificate_is_checked_again_and_must_be_of_this_model():
    model, x, y = network("contracting")
    witness = model.layer.witness()
    result = certified_radius(model, x, y, certificate=certificate_of(model, witness))
    assert result.gain == certified_radius(model, x, y).gain
    nothing = certificate_of(model, None, Verdict.INCONCLUSIVE)
    assert certified_radius(model, x, y, certificate=nothing).method == "norms of the weights"
    with pytest.raises(ConfigurationError):
        certified_radius(model, x, y, certificate=certificate_of(model, {**witness, "rate": 0.01}))
    small = {"P": np.eye(2), "L": np.ones(2), "rate": 0.5}
    with pytest.raises(DimensionError):
        certified_radius(model, x, y, certificate=certificate_of(model, small))
    other = certified_radius(model, x, y, certificate=certificate_of(model, {}, kind="comparison"))
    assert other.radius.tolist() == result.radius.tolist()  # no quadratic norm in it: the proof that the layer carries
    with pytest.raises(ConfigurationError):
        certified_radius(model, x, y, certificate="c.json")


def test_the_radius_is_rounded_down():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False)).double()
    model[1].weight.data[:] = torch.tensor([[1.0], [-1.0]])
    x = torch.tensor([0.75, 1.0, 3.0], dtype=torch.float64)
    result = certified_radius(model, x[:, None, None], torch.zeros(3, dtype=torch.long), gain=1.0)
    exact = math.sqrt(2) * x.numpy()  # logits (x, -x) are 2 x apart
    assert (result.radius < exact * (1 - 1e-10)).all()
    assert result.radius == pytest.approx(exact, rel=1e-8)


def test_given_gain_is_margin_over_root_two():
    model, x, y = network("elman")

    class Gain:
        value = 2.0

    for gain in (2.0, Gain()):
        result = certified_radius(model, x, y, gain=gain)
        assert result.radius == pytest.approx(result.margin / (math.sqrt(2) * 2.0), rel=1e-8)
        assert result.method == "given gain"
    ours = certified_radius(model, x, y)
    weaker = certified_radius(model, x, y, gain=ours.gain)
    assert (ours.radius >= weaker.radius * (1 - 1e-9)).all()  # pairs of classes are never worse
    logits = model(x).detach()
    top = logits.topk(2, dim=1).values
    assert ours.margin[3:] == pytest.approx((top[:, 0] - top[:, 1])[3:].numpy(), abs=1e-12)
    any_model = nn.Sequential(nn.Flatten(), nn.Linear(T * F, C)).double()
    assert certified_radius(any_model, x, y, gain=1.0).gain == 1.0


@pytest.mark.parametrize("kind", ["elman", "contracting", "midpoint"])
def test_proved_gain_is_sound_for_pairs_of_classes_and_better(kind):
    model, x, y = network(kind)
    head = model.head.weight.detach().numpy()
    gain = incremental_gain(model.layer.driven(), output=head, horizon=T)
    result = certified_radius(model, x, y, gain=gain)
    assert result.method == "proved gain"
    assert result.gain == gain.value
    assert slow_gain(model, x) <= gain.value <= certified_radius(model, x, y).gain
    assert (result.radius >= [gain.radius(m) * (1 - 1e-6) for m in result.margin]).all()
    found = deepfool(model, x, y, steps=30, bounds=None)
    assert (found.norms.numpy()[found.success] >= result.radius[found.success]).all()
    by_value = certified_radius(model, x, y, gain=gain.value)
    assert result.radius.sum() > by_value.radius.sum()


def test_two_proofs_give_each_sequence_the_larger_radius():
    """Pairs of classes are bounded differently by the two, so that neither wins everywhere."""
    winners = set()
    for seed in range(3):
        torch.manual_seed(seed)
        model = SequenceModel(stirred_contracting(), C).double()
        x = torch.rand(30, T, F, dtype=torch.float64)
        y = model(x).argmax(dim=1)
        certificate = certify(model)
        if certificate.verdict is not Verdict.CERTIFIED:
            continue
        gain = incremental_gain(model.layer.driven(), output=model.head.weight.detach().numpy(), horizon=T)
        one = certified_radius(model, x, y, gain=gain)
        two = certified_radius(model, x, y, certificate=certificate)
        both = certified_radius(model, x, y, gain=gain, certificate=certificate)
        assert both.radius.tolist() == np.maximum(one.radius, two.radius).tolist()
        assert both.radius_linf == pytest.approx(both.radius / math.sqrt(T * F))
        assert both.gain == min(one.gain, two.gain)
        assert one.method in both.method
        assert two.method in both.method
        winners |= set(np.sign(one.radius - two.radius).tolist())
        fixed = certified_radius(model, x, y, gain=1e-6, certificate=certificate)  # a gain taken on trust
        assert (fixed.radius > two.radius).all()
    assert winners


def test_a_tie_within_rounding_has_no_radius():
    """Logits of 1e6 that differ by 1e-8: their own rounding may decide."""
    x, y = torch.zeros(1, T, F, dtype=torch.float64), torch.tensor([0])
    tie = nn.Sequential(nn.Flatten(), nn.Linear(T * F, 2)).double()
    with torch.no_grad():
        tie[1].bias.copy_(torch.tensor([1e6 + 1e-8, 1e6], dtype=torch.float64))
    result = certified_radius(tie, x, y, gain=1.0)
    assert 0 < result.margin[0] < 1e-6
    assert result.radius[0] == 0


def test_gain_must_be_of_this_model_output_and_length():
    model, x, y = network("elman")
    head, subject = model.head.weight.detach().numpy(), model.layer.driven()
    gain = incremental_gain(subject, output=head, horizon=T, solver="riccati")
    other, _, _ = network("contracting")
    broken = dataclasses.replace(gain, value=gain.value / 3)
    foreign = incremental_gain(other.layer.driven(), output=head, horizon=T, solver="riccati")
    for odd, data in (
        (foreign, x), (incremental_gain(subject, horizon=T, solver="riccati"), x), (gain, torch.cat([x, x], dim=1)),
        (broken, x),
    ):  # fmt: skip
        with pytest.raises(ConfigurationError):
            certified_radius(model, data, y, gain=odd)
    nothing = dataclasses.replace(gain, value=math.inf, proof=None)
    assert (certified_radius(model, x, y, gain=nothing).radius == 0).all()


def test_gain_that_overflows_gives_radius_zero():
    model, _, _ = network("elman")
    model.layer.requires_grad_(False)
    for p in model.layer.parameters():
        p.mul_(50.0)
    x = torch.rand(2, 500, F, dtype=torch.float64)
    result = certified_radius(model, x, model(x).argmax(dim=1))
    assert result.gain == math.inf
    assert (result.radius == 0).all()
    assert result.to_dict()["gain"] is None


def test_questions_without_an_answer_and_bad_input():
    model, x, y = network("elman")
    with pytest.raises(UnsupportedError):
        certified_radius(nn.Sequential(nn.Flatten(), nn.Linear(T * F, C)).double(), x, y)
    with pytest.raises(UnsupportedError):
        certified_radius(SequenceModel(LSTM(F, 4), C).double(), x, y)
    for mixing in ("glu", "gelu"):
        with pytest.raises(UnsupportedError):
            certified_radius(DeepNetwork(F, C, hidden_size=8, width=4, mixing=mixing).double(), x, y)
    with pytest.raises(UnsupportedError):
        certified_radius(SequenceModel([ElmanRNN(F, 4), ElmanRNN(4, 4)], C).double(), x, y)
    with pytest.raises(UnsupportedError):
        certified_radius(SequenceModel(ElmanRNN(F, 4), C, "all").double(), x, y)
    with pytest.raises(UnsupportedError):
        step_bound(LipschitzRNN(F, 4).driven(continuous=True))
    for options in ({"gain": 0.0}, {"gain": float("nan")}, {"gain": "big"}):
        with pytest.raises(ConfigurationError):
            certified_radius(model, x, y, **options)
    with pytest.raises(DimensionError):
        certified_radius(model, x, y[:4])
    result = certified_radius(model, x, y)
    with pytest.raises(ConfigurationError):
        result.accuracy_at(0.1, "l1")
    with pytest.raises(ConfigurationError):
        result.accuracy_at(-0.1)
