"""Convolutions of data that are pooled: derivatives of the chosen places alone are those of the recorded graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from stability.analysis.kernels import patches
from stability.analysis.kernels.swap import written_out

from .test_written_out import Images, Pooled, assert_equal, differentiated, product


class Read(nn.Module):
    """A convolution of data, pooled, and another convolution; with ReLU before the pooling or none."""

    def __init__(self, window: dict, bias: bool, rectify: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1, bias=bias), nn.Conv2d(4, 6, 3, padding=1)
        self.pool, self.rectify = nn.MaxPool2d(**window), rectify

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.first(x[:, None].expand(-1, 2, -1, -1) * torch.tensor([1.0, -0.5], dtype=x.dtype)[:, None, None])
        y = self.pool(torch.relu(z) if self.rectify else z)
        a = nn.functional.max_pool2d(torch.relu(self.second(y)), 2)
        return a.flatten(1)[:, :24].reshape(len(x), 3, -1).square().sum(2)


APART, SHARED = {"kernel_size": 2}, {"kernel_size": 3, "stride": 1, "padding": 1}
SPREAD = {"kernel_size": 2, "stride": 2, "dilation": 2}
KINDS = {
    "apart": lambda: Read(APART, True, True),
    "apart without bias": lambda: Read(APART, False, False),
    "shared": lambda: Read(SHARED, True, True),
    "dilated": lambda: Read(SPREAD, True, False),
    "pooled images": Pooled,
    "images": Images,
}


def problem(kind):
    torch.manual_seed(11)
    return KINDS[kind]().double(), torch.randn(9, 12, 12, dtype=torch.float64), torch.arange(9) % 3


@pytest.fixture
def used(monkeypatch):
    """How often chosen patches gave a product, a few images at a time."""
    counted = []
    own = patches._Chosen.apply
    monkeypatch.setattr(patches._Chosen, "apply", lambda *args: counted.append(1) or own(*args))
    monkeypatch.setattr(patches, "_ROOM", 4 * 12 * 12 * 2)
    return counted


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_products_are_those_of_the_recorded_graph(used, kind, frozen):
    model, x, y = problem(kind)
    if frozen and model.first.bias is not None:
        model.first.bias.requires_grad_(False)
    at = [p for p in model.parameters() if p.requires_grad]
    _, gradient = differentiated(model, x, y, at)
    with written_out(model):
        _, own = differentiated(model, x, y, at)
        plain = torch.autograd.grad(nn.functional.cross_entropy(model(x), y), at)
    assert_equal(own, gradient)
    assert_equal(plain, gradient)
    for _ in range(2):
        directions = [torch.randn_like(p) for p in at]
        assert_equal(product(own, at, directions), product(gradient, at, directions))
    bias = [torch.zeros_like(p) for p in at[1:]]
    assert_equal(product(own, at, [at[0].detach(), *bias]), product(gradient, at, [at[0].detach(), *bias]))
    assert bool(used) == (kind != "images")


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("seed", range(2))
def test_in_single_precision_channels_lie_side_by_side(kind, seed):
    model, x, y = problem(kind)
    torch.manual_seed(seed)
    directions = [torch.randn_like(p) for p in model.parameters()]
    expected = product(differentiated(model, x, y, list(model.parameters()))[1], list(model.parameters()), directions)
    single = copy.deepcopy(model).float()
    at = list(single.parameters())
    with written_out(single):
        _, own = differentiated(single, x.float(), y, at)
    found = product(own, at, [d.float() for d in directions])
    largest = max(float(part.abs().max()) for part in expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=3e-5 * largest)


def test_what_was_written_to_since_is_no_longer_a_convolution(used):
    model, x, y = problem("apart")
    model.first.register_forward_hook(lambda module, given, z: z.mul_(2.0))
    at = list(model.parameters())
    directions = [torch.randn_like(p) for p in at]
    _, gradient = differentiated(model, x, y, at)
    with written_out(model):
        _, own = differentiated(model, x, y, at)
    assert_equal(product(own, at, directions), product(gradient, at, directions))
    assert not used


def test_images_that_are_derived_by_are_no_data(used):
    model, x, y = problem("apart")
    at = [*model.parameters(), x.requires_grad_(True)]
    directions = [torch.randn_like(p) for p in at]
    _, gradient = differentiated(model, x, y, at)
    with written_out(model):
        _, own = differentiated(model, x, y, at)
    assert_equal(product(own, at, directions), product(gradient, at, directions))
    assert not used
