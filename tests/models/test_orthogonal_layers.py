"""HouseholderRNN and UnitaryRNN: the definition, activations on pairs, systems and claims."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from stability.errors import ConfigurationError, NonFiniteError, RankError, UnsupportedError
from stability.models import HouseholderRNN, UnitaryRNN
from stability.models.activations import expansion_of, modrelu, oplu
from stability.models.parametrizations.vectors import orthogonality_error

F64 = torch.float64
CASES = {
    "few": lambda: HouseholderRNN(3, 8, reflections=2),
    "all": lambda: HouseholderRNN(3, 8, reflections=8, activation="tanh"),
    "relu": lambda: HouseholderRNN(3, 8, reflections=7, activation="relu"),
    "sigmoid": lambda: HouseholderRNN(3, 5, reflections=1, activation="sigmoid"),
    "identity": lambda: HouseholderRNN(3, 6, reflections=3, activation="identity"),
    "oplu": lambda: HouseholderRNN(3, 8, activation="oplu"),
    "modrelu": lambda: HouseholderRNN(3, 8, activation="modrelu"),
    "one unit": lambda: HouseholderRNN(3, 1),
    "two thin factors": lambda: HouseholderRNN(3, 128, reflections=2),
    "unitary": lambda: UnitaryRNN(3, 8),
    "unitary few": lambda: UnitaryRNN(3, 8, reflections=1, activation="tanh"),
    "unitary one": lambda: UnitaryRNN(3, 2),
    "arjovsky": lambda: UnitaryRNN(3, 8, kind="arjovsky"),
    "arjovsky relu": lambda: UnitaryRNN(3, 10, kind="arjovsky", activation="leaky_relu"),
}
SLOPES = {"leaky_relu": (0.1, 1.0), "tanh": (0.0, 1.0), "relu": (0.0, 1.0), "sigmoid": (0.0, 0.25)}


@pytest.fixture(params=list(CASES))
def layer(request):
    built = CASES[request.param]().double()
    if built.activation == "modrelu":
        with torch.no_grad():
            built.b.uniform_(-0.2, 0.0)
    return built


def by_hand(layer, x):
    """The recurrence as its definition says, in numpy and one vector at a time."""
    W, V, b = (t.detach().numpy() for t in (layer.weight(), layer.V, layer.b))
    n = len(W)
    out = np.zeros((len(x), x.shape[1], n))
    for i, sequence in enumerate(x.numpy()):
        h = layer.h0.detach().numpy()
        for t, u in enumerate(sequence):
            z = W @ h + V @ u
            name = layer.activation
            if name == "modrelu":
                c = z[: n // 2] + 1j * z[n // 2 :]
                size = np.abs(c)
                c = np.where(size + b > 0, (size + b) * c / size, 0)
                h = np.concatenate([c.real, c.imag])
            elif name == "oplu":
                z = z + b
                h = np.stack([np.maximum(z[::2], z[1::2]), np.minimum(z[::2], z[1::2])], axis=1).ravel()
            else:
                z = z + b
                h = {
                    "leaky_relu": lambda z: np.maximum(z, z / 10),
                    "tanh": np.tanh,
                    "relu": lambda z: np.maximum(z, 0),
                    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
                    "identity": lambda z: z,
                }[name](z)
            out[i, t] = h
    return out


def test_forward_and_steps_equal_the_definition(layer):
    x = torch.randn(2, 6, 3, dtype=F64)
    expected = by_hand(layer, x)
    outputs, final = layer(x)
    np.testing.assert_allclose(outputs.detach().numpy(), expected, atol=1e-13)
    np.testing.assert_allclose(final.detach().numpy(), expected[:, -1], atol=1e-13)
    state = None
    for t in range(6):
        output, state = layer.step(x[:, t], state)
        np.testing.assert_allclose(output.detach().numpy(), expected[:, t], atol=1e-13)
    half, state = layer(x[:, :3])
    rest, _ = layer(x[:, 3:], state)
    torch.testing.assert_close(torch.cat([half, rest], dim=1), outputs, rtol=0, atol=1e-13)


def test_gradients_against_finite_differences(layer):
    x = torch.randn(2, 3, 3, dtype=F64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().clone().requires_grad_() for p in layer.parameters()]
    masks = {"U": lambda p: p.tril(), "vectors": lambda p: p}

    def run(x, *values):
        parameters = {k: masks.get(k, lambda p: p)(v) for k, v in zip(names, values)}
        return torch.func.functional_call(layer, parameters, (x,))[0]

    assert gradcheck(run, (x, *values), fast_mode=True)


def test_weight_is_orthogonal_in_the_real_form_and_norms_do_not_grow(layer):
    W = layer.weight()
    assert orthogonality_error(W) < 1e-13
    assert torch.equal(layer.matrices()["W"], W)
    if layer.activation == "sigmoid":
        return  # not zero at zero
    with torch.no_grad():
        layer.V.zero_()
        layer.b.zero_()
    outputs, _ = layer(torch.zeros(1, 30, 3, dtype=F64))
    norms = torch.linalg.vector_norm(layer.hidden(outputs), dim=-1)[0].detach()
    assert (norms.diff() < 1e-13).all()
    if layer.activation in ("oplu", "identity", "modrelu"):
        torch.testing.assert_close(norms, norms[0].expand(30), rtol=1e-12, atol=0)


def test_distances_behave_as_expansion_says(layer):
    claim = layer.expansion()
    assert claim.kind == ("contracting" if layer.activation == "sigmoid" else "non-expansive")
    x = torch.randn(1, 3, dtype=F64).expand(400, 3)
    a, b = torch.randn(2, 400, layer.hidden_size, dtype=F64) * 3
    with torch.no_grad():
        gap = torch.linalg.vector_norm(layer.step(x, a)[0] - layer.step(x, b)[0], dim=1)
    assert (gap <= claim.factor * torch.linalg.vector_norm(a - b, dim=1) * (1 + 1e-12)).all()


def test_modrelu_with_a_positive_bias_claims_nothing():
    layer = HouseholderRNN(2, 4, activation="modrelu")
    with torch.no_grad():
        layer.b[0] = 0.1
    assert layer.expansion().kind == "neither"
    assert expansion_of("leaky_relu", 1.5).kind == "neither"
    assert expansion_of("leaky_relu", 0.5).kind == "contracting"


def test_system_is_the_map_that_runs(layer):
    if layer.activation in ("modrelu", "oplu"):
        with pytest.raises(UnsupportedError):
            layer.lure()
        assert layer.driven().orthogonal
    else:
        assert layer.lure().slope == SLOPES.get(layer.activation, (1.0, 1.0))
    if layer.activation == "modrelu":
        with torch.no_grad():
            layer.b.uniform_(-1.0, 1.0)
    driven = layer.driven()
    assert driven.is_discrete
    x = torch.randn(4, 3, dtype=F64)
    h = torch.randn(4, layer.hidden_size, dtype=F64)
    expected = layer.step(x, h)[0].detach().numpy()
    np.testing.assert_allclose(driven.advance(h.numpy(), x.numpy()), expected, atol=1e-13)


def test_vectors_keep_their_zeros_and_their_unit_length_at_the_start():
    layer = HouseholderRNN(2, 9, reflections=5)
    assert torch.equal(layer.U, layer.U.tril())
    torch.testing.assert_close(torch.linalg.vector_norm(layer.U, dim=0), torch.ones(5))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(torch.randn(2, 4, 2))[0].square().mean().backward()
        optimizer.step()
    assert torch.equal(layer.U, layer.U.tril())
    assert orthogonality_error(layer.weight()) < 90 * 1.2e-7


def test_jacobians_by_every_route_agree():
    layer = HouseholderRNN(2, 4, reflections=2, activation="tanh").double()
    x = torch.randn(2, 3, 2, dtype=F64)

    def run(x):
        return layer(x)[0]

    expected = torch.autograd.functional.jacobian(run, x)
    torch.testing.assert_close(torch.func.jacrev(run)(x), expected)
    torch.testing.assert_close(torch.autograd.functional.jacobian(run, x, vectorize=True), expected)
    rows = torch.func.vmap(lambda x: layer(x.unsqueeze(0))[0][0])(x)
    torch.testing.assert_close(rows, run(x))


def test_autocast_lowers_the_loop_and_not_the_matrix(layer):
    layer = layer.float()
    x = torch.randn(2, 4, 3)
    expected, _ = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, _ = layer(x)
        assert orthogonality_error(layer.weight()) < 1e-5
        layer.step(x[:, 0])
        outputs.float().square().sum().backward()
    torch.testing.assert_close(outputs.float(), expected, rtol=0.1, atol=0.1)
    assert all(p.grad is None or torch.isfinite(p.grad).all() for p in layer.parameters())


def test_modrelu_and_oplu():
    z = torch.randn(50, 6, dtype=F64)
    c = torch.complex(z[:, :3], z[:, 3:])
    b = torch.tensor([-0.5, 0.0, 0.3], dtype=F64)
    expected = torch.where(c.abs() + b > 0, (c.abs() + b) * c / c.abs(), 0)
    result = modrelu(z, b)
    torch.testing.assert_close(torch.complex(result[:, :3], result[:, 3:]), expected)
    at_zero = torch.zeros(1, 6, dtype=F64, requires_grad=True)
    (gradient,) = torch.autograd.grad(modrelu(at_zero, b).sum(), at_zero)
    assert torch.isfinite(gradient).all()
    pairs = oplu(z).reshape(50, 3, 2)
    assert torch.equal(pairs, z.reshape(50, 3, 2).sort(dim=-1, descending=True).values)
    torch.testing.assert_close(torch.linalg.vector_norm(oplu(z), dim=1), torch.linalg.vector_norm(z, dim=1))
    assert gradcheck(modrelu, (z[:4].requires_grad_(), b.requires_grad_()))
    assert gradcheck(oplu, (z[:4].requires_grad_(),))


@pytest.mark.parametrize(
    ("kind", "hidden", "options"),
    [
        *((HouseholderRNN, 8, {"reflections": m}) for m in (0, 9, -1, True, 1.0, "all")),
        (HouseholderRNN, 8, {"activation": "softsign"}),
        (HouseholderRNN, 7, {"activation": "oplu"}),
        (HouseholderRNN, 7, {"activation": "modrelu"}),
        (UnitaryRNN, 7, {}),
        (UnitaryRNN, 8, {"kind": "cayley"}),
        (UnitaryRNN, 8, {"kind": "arjovsky", "reflections": 3}),
        (UnitaryRNN, 8, {"reflections": 5}),
    ],
)
def test_bad_options_are_refused(kind, hidden, options):
    with pytest.raises(ConfigurationError):
        kind(2, hidden, **options)


def test_bad_weights_are_refused():
    layer = HouseholderRNN(2, 4, reflections=2)
    with torch.no_grad():
        layer.U[:, 1] = 0.0
    with pytest.raises(RankError):
        layer(torch.zeros(1, 3, 2))
    with torch.no_grad():
        layer.U.fill_(float("nan"))
    for call in (layer.lure, layer.expansion, lambda: layer(torch.zeros(1, 3, 2))):
        with pytest.raises(NonFiniteError):
            call()
