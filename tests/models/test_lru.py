"""LRU: the formulas of the paper, its exact rate, and RotRNN as a constrained LRU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from stability import Verdict, certify, verify
from stability.errors import ConfigurationError
from stability.models import LRU, RotRNN
from stability.models.parametrizations.rotation import damping, normaliser, rotation_basis


def make(*sizes, seed=0, **options):
    torch.manual_seed(seed)
    return LRU(*sizes, **options).double()


def noise(*shape, seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("output_size", [None, 2])
def test_scan_step_and_convolution_are_the_formulas(output_size):
    layer, u = make(3, 10, output_size=output_size), noise(4, 19, 3)
    lam = torch.exp(-torch.exp(layer.nu_log) + 1j * torch.exp(layer.theta_log))
    B = torch.complex(layer.B[:, 0], layer.B[:, 1])
    C = torch.complex(layer.C[..., 0], layer.C[..., 1])
    x, want = torch.zeros(4, 5, dtype=torch.complex128), []
    for t in range(19):
        x = lam * x + layer.normaliser * (u[:, t].to(B.dtype) @ B.T)
        skip = layer.D * u[:, t] if output_size is None else u[:, t] @ layer.D.T
        want.append((x @ C.T).real + skip)
    want = torch.stack(want, 1)
    got, last = layer(u)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(layer.convolve(u), want)
    torch.testing.assert_close(layer.hidden(last).norm(dim=1), x.abs().square().sum(1).sqrt())
    state = None
    for t in range(19):
        y, state = layer.step(u[:, t], state)
        torch.testing.assert_close(y, want[:, t])
    torch.testing.assert_close(state, last)


def test_two_entries_a_head_are_an_lru():
    """RotRNN with d = 2: eigenvalues gamma e^{+-i theta}, P from the orthogonal blocks and the eigenvectors of R.

    Each head becomes the two conjugate units of an LRU: with V = P [1 1; -i i]/sqrt(2) unitary, x = V z.
    """
    torch.manual_seed(3)
    heads, p = 4, 3
    rot = RotRNN(p, 2 * heads, heads=heads, norm=1.7, theta_max=3.0).double()
    lru = make(p, 4 * heads)
    _, rest = damping(rot.gamma_log)
    xi = normaliser(rest, rot.B.square().sum((1, 2)), rot.norm)
    plane = torch.tensor([[1.0, 1.0], [-1.0j, 1.0j]], dtype=torch.complex128) / math.sqrt(2)
    V = rotation_basis(rot.M).to(torch.complex128) @ plane
    with torch.no_grad():
        B = (V.mH @ rot.B.to(V.dtype)).flatten(0, 1)
        C = torch.einsum("ohd,hde->ohe", rot.C.unflatten(1, (heads, 2)).to(V.dtype), V).flatten(1)
        angles = torch.stack([rot.theta, 2 * math.pi - rot.theta], -1).flatten()  # conjugate pairs
        lru.nu_log.copy_(rot.gamma_log.repeat_interleave(2))
        lru.theta_log.copy_(torch.log(angles))
        lru.normaliser.copy_(xi.repeat_interleave(2))
        lru.B.copy_(torch.stack([B.real, B.imag], 1))
        lru.C.copy_(torch.stack([C.real, C.imag], -1))
        lru.D.copy_(rot.D)
    lam = lru.eigenvalues()
    torch.testing.assert_close(lam[0::2], lam[1::2].conj().resolve_conj())
    u = noise(2, 50, p)
    torch.testing.assert_close(lru(u)[0], rot(u)[0])
    torch.testing.assert_close(lru.states(u).norm(dim=-1), rot.states(u).norm(dim=-1))
    assert certify(lru).rate == pytest.approx(certify(rot).rate, rel=1e-8)


def test_the_certified_rate_is_the_largest_eigenvalue():
    layer = make(3, 16)
    certificate = certify(layer)
    largest = layer.eigenvalues().abs().max().item()
    assert certificate.verdict is Verdict.CERTIFIED
    assert largest <= certificate.rate <= largest * (1 + 1e-8)
    assert verify(certificate).valid
    np.testing.assert_allclose(
        np.sort(np.abs(np.linalg.eigvals(layer.lure().A))),
        np.sort(np.repeat(layer.eigenvalues().abs().detach().numpy(), 2)),
    )


def test_expected_norms_follow_the_law():
    """The law holds for a trained normaliser; over 4,000 sequences, within 5 standard errors."""
    layer = make(5, 12, r_max=0.95)
    with torch.no_grad():
        layer.normaliser.mul_(torch.rand(6) + 1.0)
        squares = layer.states(noise(4000, 30, 5)).square().sum(-1)
    for t in (1, 2, 10, 30):
        error = float(squares[:, t - 1].std()) / math.sqrt(4000)
        assert float(squares[:, t - 1].mean()) == pytest.approx(layer.expected_norm(t) ** 2, abs=5 * error)


def test_bad_options_give_typed_errors():
    for options in (
        {"r_min": 0.0},
        {"r_max": 1.0},
        {"r_min": 0.9, "r_max": 0.5},
        {"theta_max": 0.0},
        {"output_size": -1},
    ):
        with pytest.raises(ConfigurationError):
            LRU(2, 8, **options)
    with pytest.raises(ConfigurationError):
        LRU(2, 7)
