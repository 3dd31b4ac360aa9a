"""The recurrence in each of its forms, held against a loop that is recorded."""

from __future__ import annotations

import itertools

import pytest
import torch

from stability.analysis.kernels.back import Map
from stability.analysis.kernels.lure import lure_states
from stability.analysis.kernels.prefixes import Prefixes, apart
from stability.models.options import TORCH_ACTIVATIONS

from .test_written_out import assert_equal

TREE = Prefixes((2, 3, 3, 4), (torch.tensor([0, 0]), torch.tensor([0, 0, 1]), None, torch.tensor([0, 1, 1, 2])))
FORMS = [
    form
    for form in itertools.product((True, False), (True, False), (0, 1), (True, False), ("drive", "input", "tree"))
    if not (form[3] and form[4] == "tree" and form[0])  # one of both starts is enough there
]


def parts(with_A, with_B, start, source):
    """Matrices, a start and what drives, in float64: three states, four channels where B makes them differ."""
    torch.manual_seed(8)
    n, m, p = 3, 4 if with_B else 3, 2
    rows, begin = (sum(TREE.sizes), 1) if source == "tree" else (5 * 4, 5)
    sizes = {"W": (m, n), "drive": (m, p) if source != "drive" else (rows, m)}
    sizes |= {"A": (n, n)} if with_A else {}
    sizes |= {"B": (n, m)} if with_B else {}
    sizes |= {"h0": (begin, n)} if start else {}
    given = torch.randn(rows, p, dtype=torch.float64)
    return {
        name: (0.6 * torch.randn(*size, dtype=torch.float64)).requires_grad_(True) for name, size in sizes.items()
    }, given


def recorded(kind, tree, given, drive, W, h0=None, A=None, B=None):
    d = tree.cut(drive if given is None else given @ drive.mT)
    h, states = torch.zeros(1 if h0 is None else len(h0), W.shape[1], dtype=W.dtype) if h0 is None else h0, []
    if h0 is None and tree.parents[0] is None:
        h = h.expand(tree.sizes[0], -1)
    for t, d_t in enumerate(d):
        h = h if tree.parents[t] is None else h[tree.parents[t]]
        c = TORCH_ACTIVATIONS[kind.activation](h @ W.mT + d_t)
        step = kind.length * c if B is None else c @ B.mT
        h = kind.keep * h + step + (0.0 if A is None else h @ A.mT)
        states.append(h)
    return torch.cat(states), h


def derived(states, last, at, read):
    loss = (states.sin().square().sum() if read != "last" else 0.0) + (
        (last * last).cos().sum() if read != "all" else 0.0
    )
    return torch.autograd.grad(loss, at, create_graph=True, materialize_grads=True)


@pytest.mark.parametrize(("with_A", "with_B", "keep", "start", "source"), FORMS)
@pytest.mark.parametrize("activation", ["tanh", "relu", "sigmoid"])
def test_gradients_and_products_are_those_of_the_loop(with_A, with_B, keep, start, source, activation):
    free, given = parts(with_A, with_B, start, source)
    kind, tree = Map(activation, keep, 0.3), TREE if source == "tree" else apart(4, 5)
    at = list(free.values())
    own = {name: free.get(name) for name in ("h0", "W", "A", "B")}
    drive = free["drive"] if source == "drive" else (given, free["drive"])
    for read in ("all", "last", "both"):
        expected = derived(*recorded(kind, tree, None if source == "drive" else given, **free), at, read)
        found = derived(*lure_states(kind, drive, *own.values(), tree), at, read)
        assert_equal(found, expected)
        ways = [tuple(torch.randn_like(part) for part in at) for _ in range(2)]
        ways.append(tuple(part if k else torch.zeros_like(part) for k, part in enumerate(ways[0])))
        products = [torch.autograd.grad(expected, at, way, retain_graph=True, materialize_grads=True) for way in ways]
        live = [k for k, part in enumerate(found) if part.requires_grad]

        def along(*way, found=found, live=live):
            given = [found[k] for k in live]
            return torch.autograd.grad(given, at, [way[k] for k in live], retain_graph=True, materialize_grads=True)

        for way, product in zip(ways, products, strict=True):
            assert_equal(along(*way), product)
        together = torch.vmap(along)(*(torch.stack(part) for part in zip(*ways, strict=True)))
        for k, product in enumerate(products):
            assert_equal([part[k] for part in together], product)
        ones = [g[live[0]].sum() for g in (found, expected)]  # a change of one part alone
        assert_equal(*(torch.autograd.grad(g, at, retain_graph=True, materialize_grads=True) for g in ones))
