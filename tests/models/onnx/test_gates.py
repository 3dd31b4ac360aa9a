"""Gates that are written out, in Scan, in Loop and as one step: the cell of torch with their weights, or a refusal."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.errors import DisagreementError, StabilityError, UnsupportedError
from stability.models.adapters.modules import recurrent_subject
from stability.models.sources import load_subject

pytest.importorskip("onnx")

from .graphs import N, P, loop, node, scan, step

WIRES = (scan, loop, step)
ONE = {"one": np.ones(1), "two": np.full(1, 2.0), "small": np.full(1, 1e-10), "axis": np.array([1])}
CUTS = {"first": np.array([0]), "third": np.array([2 * N])}


def arrays(cell):
    weights = {name: value.detach().numpy().astype(np.float64) for name, value in cell.named_parameters()}
    w, r, b = weights["weight_ih_l0"], weights["weight_hh_l0"], weights["bias_ih_l0"]
    kept = {"w": w.T.copy(), "r": r.T.copy(), "bw": b, "br": weights["bias_hh_l0"], "both": b + weights["bias_hh_l0"]}
    parts = np.split(np.arange(len(w)), len(w) // N)
    for k, rows in enumerate(parts):
        kept |= {f"w{k}": w[rows].T.copy(), f"r{k}": r[rows].T.copy(), f"b{k}": kept["both"][rows]}
    return {**kept, "joined": np.concatenate([w, r], 1).T.copy(), **ONE, **CUTS}


def lstm(changed=None):
    """Nodes of an LSTM's state update from the arguments zi, zf, zg, zo, some of them replaced by name of output."""
    made = {
        "gi": node("Sigmoid", "zi", "gi"),
        "gf": node("Sigmoid", "zf", "gf"),
        "gg": node("Tanh", "zg", "gg"),
        "go": node("Sigmoid", "zo", "go"),
        "kept": node("Mul", "gf c", "kept"),
        "added": node("Mul", "gi gg", "added"),
        "c_next": node("Add", "kept added", "c_next"),
        "bent": node("Tanh", "c_next", "bent"),
        "next": node("Mul", "go bent", "next"),
    }
    return list((made | {name: node(*rest) for name, rest in (changed or {}).items()}).values())


SPLIT = node("Split", "z", "zi zf zg zo", axis=1)
SUMS = [node("MatMul", "x w", "xw"), node("MatMul", "h r", "hr"), node("Sum", "xw hr both", "z")]
JOINED = [node("Concat", "x h", "xh", axis=-1), node("Gemm", "xh joined both", "z")]
LSTM = {
    "split": [*SUMS, SPLIT, *lstm()],
    "input and state joined": [*JOINED, SPLIT, *lstm()],
    "one product a gate": [
        *(node("Gemm", f"x w{k} b{k}", f"x{c}") for k, c in enumerate("ifgo")),
        *(node("Gemm", f"h r{k} x{c}", f"z{c}") for k, c in enumerate("ifgo")),
        *lstm(),
    ],
    "sigmoid of two gates together": [
        *JOINED,
        SPLIT,
        node("Slice", "z first third axis", "zif"),
        node("Sigmoid", "zif", "gif"),
        node("Split", "gif", "gi gf", axis=1),
        *lstm()[2:],
    ],
}


def gru(update, new=("Mul", "gr nh", "rn")):
    """Nodes of a GRU from the arguments of its gates; ``update`` computes ``next`` from gz, n and h."""
    sums = [node("Gemm", "x w bw", "a"), node("Gemm", "h r br", "q")]
    cut = [node("Split", "a", "ra za na", axis=1), node("Split", "q", "rh zh nh", axis=1)]
    gates = [node("Add", f"{k}a {k}h", f"{k}s") for k in "rz"] + [node("Sigmoid", f"{k}s", f"g{k}") for k in "rz"]
    inner = [node(*new), node("Add", "na rn", "ns"), node("Tanh", "ns", "n")]
    return [*sums, *cut, *gates, *inner, *(node(*each) for each in update)]


LESS = ("Sub", "one gz", "less")
CONVEX = [LESS, ("Mul", "less n", "p"), ("Mul", "gz h", "q2"), ("Add", "p q2", "next")]
GRU = {
    "convex sum": gru(CONVEX),
    "difference": gru([("Sub", "h n", "d"), ("Mul", "gz d", "p"), ("Add", "n p", "next")]),
    "difference from the old state": gru([LESS, ("Sub", "n h", "d"), ("Mul", "less d", "p"), ("Add", "h p", "next")]),
}


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", [*LSTM, *GRU])
def test_gates_are_the_cell_of_torch(name, wire, tmp_path) -> None:
    cell, nodes = (nn.LSTM(P, N), LSTM[name]) if name in LSTM else (nn.GRU(P, N), GRU[name])
    extra = ("c",) if name in LSTM else ()
    found = load_subject(wire(tmp_path / "m.onnx", nodes, extra=extra, **arrays(cell))).subject
    expected, x, u = recurrent_subject(cell), torch.randn(9, found.states).numpy(), torch.randn(9, P).numpy()
    np.testing.assert_allclose(found.advance(x, u), expected.advance(x, u), atol=1e-12)


def test_a_reset_before_the_product_is_read_as_such(tmp_path) -> None:
    before = [
        *(node("Gemm", f"x w{k} b{k}", f"a{k}") for k in range(3)),
        *(node("Gemm", f"h r{k} a{k}", f"s{k}") for k in range(2)),
        *(node("Sigmoid", f"s{k}", f"g{k}") for k in range(2)),
        node("Mul", "g0 h", "rh"),
        node("Gemm", "rh r2 a2", "s2"),
        node("Tanh", "s2", "n"),
        *(node(*each) for each in (("Sub", "h n", "d"), ("Mul", "g1 d", "p"), ("Add", "n p", "next"))),
    ]
    cell = nn.GRU(P, N)
    found = load_subject(step(tmp_path / "m.onnx", before, **arrays(cell))).subject
    assert not found.reset_after
    np.testing.assert_allclose(found.w_hh, cell.weight_hh_l0.detach().double())


def test_an_input_gate_that_is_one_less_the_forget_gate_has_its_weights_with_the_other_sign(tmp_path) -> None:
    first, forget, *rest = lstm({"gi": ("Sub", "one gf", "gi")})
    nodes = [*SUMS, SPLIT, forget, first, *rest]
    found = load_subject(step(tmp_path / "m.onnx", nodes, extra=("c",), **arrays(nn.LSTM(P, N)))).subject
    np.testing.assert_allclose(found.w_hh[:N], -found.w_hh[N : 2 * N])


def times(gate):
    return [("Mul", f"{gate} n", "p"), ("Mul", "gz h", "q2"), ("Add", "p q2", "next")]


OTHER = {
    "the output of an old state": (lstm({"bent": ("Tanh", "kept", "bent")}), ("c",)),
    "no gate": (lstm({"kept": ("Mul", "h c", "kept")}), ("c",)),
    "another activation": (lstm({"go": ("Relu", "zo", "go")}), ("c",)),
    "peephole": ([node("Add", "zf c", "zp"), *lstm({"gf": ("Sigmoid", "zp", "gf")})], ("c",)),
    "a ten thousand millionth more": (lstm({"c_next": ("Sum", "kept added more", "c_next")}), ("c",)),
    "no tanh": (lstm({"next": ("Mul", "go c_next", "next")}), ("c",)),
    "a difference": (lstm({"c_next": ("Sub", "kept added", "c_next")}), ("c",)),
    "no convex sum": (gru(times("gz")), ()),
    "two gates in one sum": (gru(times("gr")), ()),
    "twice the next state": (gru([*CONVEX[:3], ("Add", "p q2", "y"), ("Mul", "y two", "next")]), ()),
    "reset of the input": (gru(CONVEX, ("Mul", "gr na", "rn")), ()),
}


@pytest.mark.parametrize("name", OTHER)
def test_other_products_are_refused(name, tmp_path) -> None:
    nodes, extra = OTHER[name]
    cell = nn.LSTM(P, N) if extra else nn.GRU(P, N)
    first = [*SUMS, SPLIT, node("Mul", "c small", "more")] if extra else []
    with pytest.raises((UnsupportedError, DisagreementError)):
        load_subject(step(tmp_path / "m.onnx", [*first, *nodes], extra=extra, **arrays(cell)))


def test_the_states_of_a_step_can_be_named(tmp_path) -> None:
    path = step(tmp_path / "m.onnx", LSTM["split"], extra=("c",), **arrays(nn.LSTM(P, N)))
    assert np.array_equal(load_subject(f"{path}#h=next,c=c_next").subject.w_hh, load_subject(path).subject.w_hh)
    with pytest.raises(StabilityError):
        load_subject(f"{path}#h=c_next,c=next")
