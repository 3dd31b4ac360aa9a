"""Scans against the loop, in both directions, for every kind of length, and their derivatives."""

from __future__ import annotations

import pytest
import torch

from stability.errors import ConfigurationError, DimensionError
from stability.models import associative_scan, diagonal_convolution, diagonal_scan, rotation_scan
from stability.models.scans import kernels

LENGTHS = [1, 2, 3, 8, 97, 499, 1000]
KINDS = [torch.float64, torch.complex128]


def loop(lam, b, initial=None, reverse=False):
    """The recurrence, one step after the other; time is axis 1."""
    state = torch.zeros_like(b[:, 0]) if initial is None else initial
    out = [state] * b.shape[1]
    for t in reversed(range(b.shape[1])) if reverse else range(b.shape[1]):
        state = (lam[:, t] if lam.dim() == b.dim() else lam) * state + b[:, t]
        out[t] = state
    return torch.stack(out, 1)


def factors(shape, kind, low=0.0, high=1.0, seed=1):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(shape, dtype=kind, generator=g)
    size = low + (high - low) * torch.rand(shape, dtype=torch.float64, generator=g)
    return (z / z.abs() * size).to(kind)


def noise(*shape, kind=torch.float64, seed=0):
    return torch.randn(*shape, dtype=kind, generator=torch.Generator().manual_seed(seed))


def affine(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks so small that tests cross their borders; the real sizes are tested where lengths are great."""
    monkeypatch.setattr(kernels, "_BLOCK", 8192)
    monkeypatch.setattr(kernels, "_CACHE", 4096)
    monkeypatch.setattr(kernels, "_WIDTH", 8)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("varying", [False, True])
def test_states_and_gradients_are_those_of_the_loop(length, kind, reverse, varying):
    b = noise(3, length, 5, kind=kind).requires_grad_()
    lam = factors((3, length, 5) if varying else (5,), kind).requires_grad_()
    start = noise(3, 5, kind=kind, seed=2).requires_grad_()
    weight = noise(3, length, 5, kind=kind, seed=3)
    found = []
    for states in (
        diagonal_scan(lam, b, initial=start, reverse=reverse),
        loop(lam, b, start, reverse),
    ):
        loss = (states * weight).abs().square().sum()
        found.append((states, *torch.autograd.grad(loss, (lam, b, start))))
    for one, other in zip(*found):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11 * float(other.detach().abs().max()))


@pytest.mark.parametrize("length", [1, 4096, 65536])
@pytest.mark.parametrize("kind", [torch.float32, torch.complex64])
def test_long_sequences_at_the_real_block_sizes(length, kind, monkeypatch):
    """Rounding errors decay like the state: |error| <= a few eps max|x| / (1 - |lam|)."""
    monkeypatch.undo()
    lam = factors((7,), torch.complex128 if kind.is_complex else torch.float64, 0.2, 0.99)
    b = noise(2, length, 7, kind=lam.dtype)
    exact = torch.as_tensor(loop(lam.to(kind).to(lam.dtype), b.to(kind).to(lam.dtype)))
    bound = 8 * torch.finfo(kind).eps * exact.abs().max() / (1 - lam.abs().max())
    assert (diagonal_scan(lam.to(kind), b.to(kind)) - exact).abs().max() <= bound
    assert (loop(lam.to(kind), b.to(kind)) - exact).abs().max() <= bound


@pytest.mark.parametrize("width", [1, 64, 256, 3000])
@pytest.mark.parametrize("batch", [1, 3, 9])
def test_every_plan_of_blocks_gives_the_same(width, batch, monkeypatch):
    monkeypatch.undo()
    lam, b = factors((width,), torch.float64), noise(batch, 131, width)
    torch.testing.assert_close(diagonal_scan(lam, b), loop(lam, b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("varying", [False, True])
def test_first_and_second_derivatives(reverse, varying):
    lam = factors((1, 20, 2) if varying else (2,), torch.complex128, 0.3, 0.9).requires_grad_()
    b = noise(1, 20, 2, kind=torch.complex128).requires_grad_()
    start = noise(1, 2, kind=torch.complex128, seed=5).requires_grad_()

    def run(lam, b, start):
        return diagonal_scan(lam, b, initial=start, reverse=reverse)

    assert torch.autograd.gradcheck(run, (lam, b, start))
    few = (lam[:, :9].detach().requires_grad_() if varying else lam, b[:, :9].detach().requires_grad_(), start)
    assert torch.autograd.gradgradcheck(run, few)


def test_real_factors_of_complex_inputs_and_the_other_way_round():
    real, complex_ = factors((4,), torch.float64), factors((4,), torch.complex128)
    b = noise(2, 30, 4)
    torch.testing.assert_close(diagonal_scan(complex_, b), loop(complex_, b.to(torch.complex128)))
    z = noise(2, 30, 4, kind=torch.complex128)
    torch.testing.assert_close(diagonal_scan(real, z), loop(real.to(torch.complex128), z))


@pytest.mark.parametrize("dim", [0, 1, 2, 3, -1, -2])
def test_any_axis(dim):
    b = noise(3, 17, 4, 6)
    moved = b.movedim(dim, 1)
    lam = factors(b.select(dim, 0).shape, torch.float64)
    full = lam.unsqueeze(dim)
    expected = loop(lam, moved).movedim(1, dim)
    torch.testing.assert_close(diagonal_scan(full.expand(b.shape), b, dim=dim), expected)
    torch.testing.assert_close(diagonal_scan(full, b, dim=dim), expected)
    assert not b.movedim(dim, 0).is_contiguous() or dim == 0


def test_nothing_passes_backwards_in_time():
    """NaN at one step leaves all earlier states alone, though they share its blocks."""
    lam, b = factors((3,), torch.float64), noise(2, 600, 3)
    clean = diagonal_scan(lam, b)
    b[0, 500, 1] = torch.nan
    dirty = diagonal_scan(lam, b)
    assert torch.equal(dirty[:, :500], clean[:, :500])
    assert dirty[0, 500:, 1].isnan().all()
    assert dirty.isnan().sum() == 100


@pytest.mark.parametrize("length", [*LENGTHS, 65536])
def test_any_associative_operator(length):
    x = noise(2, length, 2)
    torch.testing.assert_close(associative_scan(torch.add, x), x.cumsum(1))
    torch.testing.assert_close(associative_scan(torch.maximum, x, reverse=True), x.flip(1).cummax(1)[0].flip(1))
    lam = factors((2,), torch.float64, 0.5, 0.99).expand_as(x)
    decay, states = associative_scan(affine, (lam, x))
    torch.testing.assert_close(states, loop(lam[0, 0], x))
    torch.testing.assert_close(decay, lam.cumprod(1))


@pytest.mark.parametrize("length", [1, 2, 7, 64, 101])
@pytest.mark.parametrize("reverse", [False, True])
def test_an_operator_that_does_not_commute(length, reverse):
    """Products of matrices in the right order, inside a nested structure, with gradients."""
    x = (noise(length, 3, 3, seed=4) / 2).requires_grad_()

    def run(operator):
        return associative_scan(operator, {"a": [x]}, dim=0, reverse=reverse)["a"][0]

    got = run(lambda left, right: {"a": [left["a"][0] @ right["a"][0]]})
    rows = list(x.flip(0) if reverse else x)
    expected, product = [], torch.eye(3, dtype=x.dtype)
    for row in rows:
        product = product @ row
        expected.append(product)
    want = torch.stack(expected[::-1] if reverse else expected)
    torch.testing.assert_close(got, want)
    weight = noise(length, 3, 3, seed=6)
    grads = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (got, want)]
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("d", [1, 2, 5, 6])
@pytest.mark.parametrize("reverse", [False, True])
def test_rotations_are_matrices(d, reverse):
    gamma, theta = torch.tensor([0.9, 0.5]).double(), 3 * noise(2, d // 2)
    x, start = noise(3, 40, 2, d), noise(3, 2, d, seed=8)
    blocks = torch.eye(d, dtype=torch.float64).repeat(2, 1, 1)
    for h in range(2):
        for i in range(d // 2):
            c, s = torch.cos(theta[h, i]), torch.sin(theta[h, i])
            blocks[h, 2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = torch.tensor([[c, -s], [s, c]])
    A = gamma[:, None, None] * blocks
    state, want = start, [start] * 40
    for t in reversed(range(40)) if reverse else range(40):
        state = torch.einsum("hij,bhj->bhi", A, state) + x[:, t]
        want[t] = state
    got = rotation_scan(gamma, theta, x, reverse=reverse, initial=start)
    torch.testing.assert_close(got, torch.stack(want, 1))
    torch.testing.assert_close(
        rotation_scan(gamma, theta, x.movedim(1, 0), dim=0, reverse=reverse, initial=start).movedim(0, 1), got
    )


def test_rotation_gradients():
    gamma, theta = torch.tensor([0.9, 0.5]).double().requires_grad_(), noise(2, 1).requires_grad_()
    x = noise(1, 12, 2, 3).requires_grad_()
    assert torch.autograd.gradcheck(rotation_scan, (gamma, theta, x))


def test_rotations_may_vary_in_time():
    gamma, theta, x = torch.rand(2, 30, 3).double(), noise(2, 30, 3, 2), noise(2, 30, 3, 4)
    got = rotation_scan(gamma, theta, x)
    pieces, state = [], None
    for t in range(30):
        one = rotation_scan(gamma[:, t : t + 1], theta[:, t : t + 1], x[:, t : t + 1], initial=state)
        pieces.append(one)
        state = one[:, -1]
    torch.testing.assert_close(got, torch.cat(pieces, 1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", LENGTHS)
def test_the_convolution_is_the_scan(kind, length):
    lam, b = factors((4,), kind, 0.0, 0.999), noise(2, length, 4, kind=kind)
    scanned = diagonal_scan(lam, b)
    torch.testing.assert_close(diagonal_convolution(lam, b), scanned, rtol=0, atol=1e-12 * float(scanned.abs().max()))


def test_bad_input_gives_typed_errors():
    lam, b = torch.rand(3), torch.rand(2, 5, 3)
    for bad in (
        lambda: diagonal_scan(lam, b.long()),
        lambda: diagonal_scan(lam, b, dim=3),
        lambda: diagonal_scan(lam, None),
    ):
        with pytest.raises(ConfigurationError):
            bad()
    for shape in ((2,), (2, 5, 4), (4, 2, 5, 3)):
        with pytest.raises(DimensionError):
            diagonal_scan(torch.rand(shape), b)
    with pytest.raises(DimensionError):
        diagonal_scan(lam, b[:, :0])
    with pytest.raises(DimensionError):
        diagonal_scan(lam, b, initial=torch.rand(3))
    with pytest.raises(ConfigurationError):
        diagonal_convolution(b, b)
    with pytest.raises(ConfigurationError):
        rotation_scan(torch.rand(5), torch.rand(5, 1), b, dim=1)
    with pytest.raises(DimensionError):
        rotation_scan(torch.rand(5), torch.rand(5, 2), b, dim=0)
    with pytest.raises(ConfigurationError):
        rotation_scan(lam, lam.long(), b)


def test_bad_operators_give_typed_errors():
    x = torch.rand(2, 8)
    for call in (
        lambda: associative_scan(3, x),
        lambda: associative_scan(torch.add, []),
        lambda: associative_scan(torch.add, [1.0]),
        lambda: associative_scan(torch.add, x, dim=2),
        lambda: associative_scan(lambda a, b: (a, b), x),
        lambda: associative_scan(lambda a, b: None, x),
    ):
        with pytest.raises(ConfigurationError):
            call()
    with pytest.raises(DimensionError):
        associative_scan(torch.add, x[:, :0])
    with pytest.raises(DimensionError):
        associative_scan(affine, (x, x[:, :4]))
    with pytest.raises(DimensionError):
        associative_scan(lambda a, b: a.sum() + b.sum(), x)
