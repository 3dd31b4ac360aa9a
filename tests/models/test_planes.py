"""Rotations and orthonormal frames: the four verbs, at the edges and under training; loaded into RotRNN."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, RankError, UnsupportedError
from stability.models import RotRNN
from stability.models.parametrizations.planes import Rotation, rotation_generator, rotation_planes
from stability.models.parametrizations.rotation import rotation_basis, rotation_matrix
from stability.models.parametrizations.stiefel import Stiefel, make_orthonormal, orthonormal
from stability.models.parametrizations.vectors import orthogonality_error

F64 = torch.float64


def given():
    """Rotations where a logarithm is not unique, or planes coincide, beside random ones."""
    half = torch.diag(torch.tensor([-1.0, -1.0, 1.0, 1.0, -1.0, -1.0], dtype=F64))
    swap = torch.eye(4, dtype=F64)[[1, 0, 3, 2]]
    cycle = torch.eye(5, dtype=F64)[torch.arange(5).roll(1)]
    tiny = rotation_basis(1e-9 * torch.randn(4, 4, dtype=F64, generator=torch.Generator().manual_seed(0)))
    near = rotation_matrix(torch.tensor([math.pi - 1e-9, 1e-9], dtype=F64), 5, Rotation(5).sample(seed=3))
    special = {"half turns": half, "two swaps": swap, "cycle": cycle, "near one": tiny, "near a half turn": near}
    sizes = {f"size {d}": torch.eye(d, dtype=F64) for d in (1, 2, 3)}
    drawn = {f"drawn {d}": Rotation(d).sample(seed=d) for d in (1, 2, 3, 4, 7, 16)}
    return special | sizes | drawn | {"minus one": -torch.eye(4, dtype=F64)}


@pytest.mark.parametrize("name", given())
def test_a_rotation_is_its_planes_and_comes_back_from_its_free_parameters(name):
    A = given()[name]
    d = len(A)
    tolerance = {"rtol": 0, "atol": 100 * d * torch.finfo(F64).eps}
    P, theta = rotation_planes(A)
    torch.testing.assert_close(P.T @ P, torch.eye(d, dtype=F64), **tolerance)
    assert torch.linalg.det(P) > 0
    torch.testing.assert_close(rotation_matrix(theta, d, P), A, **tolerance)
    torch.testing.assert_close(rotation_basis(rotation_generator(A)), A, **tolerance)
    there = Rotation(d)
    torch.testing.assert_close(there(*there.right_inverse(A)), A, **tolerance)
    assert there.in_manifold(A)


def test_what_is_no_rotation():
    mirror = torch.diag(torch.tensor([1.0, 1.0, -1.0], dtype=F64))
    assert not Rotation(3).in_manifold(mirror)
    assert not Rotation(3).in_manifold(2 * torch.eye(3))
    assert not Rotation(3).in_manifold(torch.eye(2))
    for wrong, error in (
        (mirror, UnsupportedError),
        (torch.zeros(3, 3), RankError),
        (torch.full((3, 3), torch.nan), NonFiniteError),
        (torch.eye(2), DimensionError),
        (torch.eye(3, dtype=torch.int64), ConfigurationError),
    ):
        with pytest.raises(error):
            Rotation(3).right_inverse(wrong)
    with pytest.raises(DimensionError):
        Rotation(3)(torch.zeros(2), torch.zeros(3, 3))


def test_a_matrix_near_a_rotation_is_retracted():
    A = Rotation(4).sample(seed=1)
    moved = A + 1e-3 * torch.randn(4, 4, dtype=F64, generator=torch.Generator().manual_seed(2))
    there = Rotation(4)
    back = there(*there.right_inverse(moved))
    assert there.in_manifold(back)
    assert 1e-5 < (back - A).abs().max() < 1e-2


@pytest.mark.parametrize("width", [4, 5])
def test_given_rotations_are_what_rotrnn_runs_then(width):
    """Against the plain recurrence ``x+ = gamma A x + xi B u`` in the coordinates of A."""
    torch.manual_seed(0)
    layer = RotRNN(2, 2 * width, heads=2).double()
    A = torch.stack([Rotation(width).sample(seed=s) for s in (1, 2)])
    assert layer.load_rotations(A) is layer
    x = torch.randn(3, 7, 2, dtype=F64)
    gamma = torch.exp(-torch.exp(layer.gamma_log))
    xi = torch.sqrt((1 - gamma**2) / layer.B.square().sum((1, 2)))
    state, outputs = torch.zeros(3, 2, width, dtype=F64), []
    for t in range(7):
        moved = gamma[:, None] * torch.einsum("hij,bhj->bhi", A, state)
        state = moved + xi[:, None] * torch.einsum("hij,bj->bhi", layer.B, x[:, t])
        outputs.append(state.flatten(1) @ layer.C.T + layer.D * x[:, t])
    torch.testing.assert_close(layer(x)[0], torch.stack(outputs, 1))
    with pytest.raises(DimensionError):
        layer.load_rotations(A[:, :2])


@pytest.mark.parametrize("shape", [(5, 5), (6, 3), (2, 7), (4, 1), (1, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, F64, torch.complex128])
def test_frames_stay_frames_under_training(shape, dtype):
    there = Stiefel(*shape)
    W = there.sample(seed=4, dtype=dtype)
    assert there.in_manifold(W)
    torch.testing.assert_close(there(there.right_inverse(W)), W)
    assert not there.in_manifold(1.01 * W)
    linear = nn.Linear(*shape[::-1], bias=False, dtype=dtype)
    make_orthonormal(linear)
    goal = there.sample(seed=5, dtype=dtype)
    first = (linear.weight - goal).abs().square().sum().detach()
    optimiser = torch.optim.SGD(linear.parameters(), 0.1)
    for _ in range(5):
        optimiser.zero_grad()
        (linear.weight - goal).abs().square().sum().backward()
        optimiser.step()
    assert there.in_manifold(linear.weight)
    assert (linear.weight - goal).abs().square().sum() < first or first < 1e-6


def test_samples_of_frames_are_even():
    """The Haar law of one entry of O(2): the mean of its fourth power is 3/8; without the sign it would lean."""
    entries = torch.stack([Stiefel(2, 2).sample(seed=s)[0, 0] for s in range(400)])
    assert abs(float(entries.mean())) < 0.1
    assert float(entries.pow(4).mean()) == pytest.approx(3 / 8, abs=0.05)
    assert {float(torch.linalg.det(Rotation(3).sample(seed=s)).sign()) for s in range(8)} == {1.0}


def test_the_retraction_is_a_projection_and_refuses_what_has_no_rank():
    X = torch.randn(2, 5, 3, dtype=F64, generator=torch.Generator().manual_seed(6))
    Q = orthonormal(X)
    torch.testing.assert_close(orthonormal(Q), Q)
    assert orthogonality_error(Q[0]) < 1e-14
    with pytest.raises(RankError):
        orthonormal(torch.ones(3, 2))
    with pytest.raises(DimensionError):
        Stiefel(3, 2)(torch.ones(2, 3))
    with pytest.raises(ConfigurationError):
        make_orthonormal(nn.Linear(2, 2), "wait")


def test_parametrised_weights_go_through_torchs_own_door():
    linear = nn.Linear(4, 4, bias=False, dtype=F64)
    with torch.no_grad():
        linear.weight.copy_(Rotation(4).sample(seed=1))
    kept = linear.weight.detach().clone()
    parametrize.register_parametrization(linear, "weight", Rotation(4))
    torch.testing.assert_close(linear.weight, kept)
