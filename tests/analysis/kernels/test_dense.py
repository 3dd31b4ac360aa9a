"""Products by oneDNN are those of float64, in every layout; it gets no layout for which it has no kernel."""

from __future__ import annotations

import pytest
import torch

from stability.analysis.kernels import dense
from stability.analysis.kernels.dense import add_image, image, summed
from stability.analysis.kernels.swap import written_out
from stability.models.gated import LSTM
from stability.models.lipschitz import LipschitzRNN
from stability.models.network import SequenceModel

from .test_written_out import differentiated, product

ROWS, N, M = 300, 70, 60  # more than _LEAST


def laid(shape, layout, seed):
    """Numbers of a shape, laid as named."""
    turned = layout.endswith("turned")
    size = shape[::-1] if turned else shape
    wide = torch.randn(2 * size[0], 2 * size[1], generator=torch.Generator().manual_seed(seed))
    part = wide[: size[0], : size[1]]
    part = part if layout.startswith("part") else part.contiguous()
    return part.mT if turned else part


@pytest.fixture
def calls(monkeypatch):
    """What oneDNN's product was called with, where torch has it; else of a stand-in."""
    own, seen = dense._one_dnn() or (lambda x, W, *_: x @ W.mT), []

    def watched(x, W, *rest):
        seen.append((x, W))
        return own(x, W, *rest)

    monkeypatch.setattr(dense, "_one_dnn", lambda: watched)
    return seen


@torch.no_grad()
@pytest.mark.parametrize("of_x", ["own", "turned", "part", "part turned"])
@pytest.mark.parametrize("of_W", ["own", "turned", "part", "part turned"])
def test_products_in_every_layout(calls, of_x, of_W):
    x, W = laid((ROWS, N), of_x, 0), laid((M, N), of_W, 1)
    found, expected = image(x, W), x.double() @ W.double().mT
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    torch.testing.assert_close(summed(W, x.mT), found.mT, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert len(calls) == 2
    for given, matrix in calls:
        assert given.is_contiguous()
        assert matrix.is_contiguous() or matrix.mT.is_contiguous()


@torch.no_grad()
def test_what_is_small_or_of_other_numbers_is_left_to_torch(calls):
    for x, W in ((torch.ones(3, 2), torch.ones(2, 2)), (torch.ones(ROWS, N).double(), torch.ones(M, N).double())):
        assert torch.equal(image(x, W), x @ W.mT)
    assert not calls


@torch.no_grad()
@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("more", ["none", "another", "one for all", "itself"])
def test_products_that_are_added(calls, few, more):
    x, W_t = laid((3 if few else ROWS, N), "own", 0), laid((N, M), "own", 1)
    out = torch.randn(len(x), 2 * M)[:, M:]  # part of something wider
    other = {"none": None, "another": torch.randn(len(x), M), "one for all": torch.randn(M), "itself": out}[more]
    expected = x.double() @ W_t.double() + (0.0 if other is None else other.double())
    add_image(out, x, W_t, other)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert bool(calls) != few


@pytest.mark.parametrize(("maker", "asked"), [("GenuineIntel", False), ("AuthenticAMD", True), ("", False)])
def test_one_dnn_is_asked_on_processors_of_amd(monkeypatch, maker, asked):
    monkeypatch.setattr(dense, "_maker", lambda: maker)
    found = dense._one_dnn.__wrapped__()
    there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    assert (found is not None) == (asked and there)


@pytest.mark.parametrize("kind", [LipschitzRNN, LSTM])
def test_products_of_single_precision(calls, kind):
    torch.manual_seed(3)
    model = SequenceModel(kind(9, 64), 3)
    x, y = torch.randn(150, 5, 9), torch.arange(150) % 3
    at = list(model.parameters())
    directions = [torch.randn_like(p) for p in at]
    with written_out(model):
        _, own = differentiated(model, x, y, at)
    found = product(own, at, directions)
    assert calls
    model.double()
    at = list(model.parameters())
    _, gradient = differentiated(model, x.double(), y, at)
    expected = product(gradient, at, [d.double() for d in directions])
    largest = max(float(part.abs().max()) for part in expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=0, atol=1e-5 * largest)
