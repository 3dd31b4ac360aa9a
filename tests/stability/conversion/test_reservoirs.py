"""Reservoirs by plain matrices and as objects of reservoirpy: the subject's map is the reservoir's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import stability.models  # noqa: F401 - reads read-outs
from stability import certify, feedback
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DimensionError, DisagreementError, FileFormatError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.storage.arrays import npz_system
from stability.systems import reservoir_system

RNG = np.random.default_rng(0)
W, WIN, BIAS = 0.3 * RNG.normal(size=(4, 4)), RNG.normal(size=(4, 2)), RNG.normal(size=4)
U = RNG.normal(size=(30, 2))


class Reservoir:
    """Stand-in with the interface of a reservoirpy reservoir."""

    def __init__(self, **more) -> None:
        self.W, self.Win, self.bias = sparse.csr_array(W), sparse.csr_array(WIN), BIAS[:, None]
        self.lr, self.activation, self.equation, self.initialized = 0.3, np.tanh, "internal", True
        vars(self).update(more)

    def _step(self, state, x):
        wrong = getattr(self, "wrong", 0.0)
        h = state["out"]
        return {"out": (1 - self.lr) * h + self.lr * np.tanh(self.W @ h + self.Win @ x + self.bias.ravel()) + wrong}


class Ridge:
    """Stand-in with the interface of a reservoirpy read-out of two outputs."""

    def __init__(self) -> None:
        self.Wout, self.bias = 0.1 * WIN, np.array([[0.2, -0.3]])


class Model:
    """Stand-in with the interface of a reservoirpy model."""

    def __init__(self, *nodes) -> None:
        self.nodes = list(nodes)


class ES2N(Reservoir):
    """Another node of the library, which has the same matrices and another map."""


for kind in (Reservoir, Ridge, Model, ES2N):
    kind.__module__ = "reservoirpy.nodes.reservoir"


def test_both_equations_step_by_step() -> None:
    for equation in ("internal", "external"):
        network = reservoir_system(W, WIN, BIAS, leak=0.3, equation=equation)
        state, r = np.zeros(4), np.zeros(4)
        own = state if equation == "internal" else r - BIAS
        for u in U:
            if equation == "internal":
                state = 0.7 * state + 0.3 * np.tanh(W @ state + WIN @ u + BIAS)
            else:
                r = 0.7 * r + 0.3 * (W @ np.tanh(r) + WIN @ u + BIAS)
            own = network.advance(own, u)
            assert own == pytest.approx(state if equation == "internal" else r - BIAS, abs=1e-12)


def test_a_file_of_plain_matrices(tmp_path) -> None:
    path = tmp_path / "my_reservoir.npz"
    np.savez(path, W=W, Win=WIN, bias=BIAS, leak=0.3)
    found, wanted = npz_system(path), reservoir_system(W, WIN, BIAS, leak=0.3)
    for u, x in zip(U, RNG.normal(size=(30, 4))):
        assert (found.advance(x, u) == wanted.advance(x, u)).all()
    np.savez(path, W=W, Win=WIN, b=BIAS)
    with pytest.raises(FileFormatError):
        npz_system(path)
    np.savez(path, W=W, Win=WIN[:3])
    with pytest.raises(DimensionError):
        npz_system(path)
    for leak in (0.0, 1.5, np.nan):
        np.savez(path, W=W, Win=WIN, leak=leak)
        with pytest.raises((ConfigurationError, ValueError)):
            npz_system(path)


def test_an_object_of_the_library() -> None:
    wanted, found = reservoir_system(W, WIN, BIAS, leak=0.3), as_subject(Reservoir())
    for u, x in zip(U, RNG.normal(size=(30, 4))):
        assert found.advance(x, u) == pytest.approx(wanted.advance(x, u))
    with pytest.raises(DisagreementError, match=r"difference is 0\.01"):
        as_subject(Reservoir(wrong=0.01))
    with pytest.raises(UnsupportedError, match="ES2N"):
        as_subject(ES2N())
    assert certify(Reservoir(W=0.1 * np.eye(4)), input_box=(-1, 1), rate="any").verdict is Verdict.CERTIFIED


def test_a_model_with_a_read_out_is_the_loop() -> None:
    wanted = reservoir_system(W, WIN, BIAS, leak=0.3)
    free, driven = as_subject(Model(Reservoir(), Ridge())), as_subject(Model(Ridge(), Reservoir(Wfb=W[:, :2])))
    for u, x in zip(U, RNG.normal(size=(30, 4))):
        read = Ridge().Wout.T @ x + Ridge().bias[0]
        for loop, pre in ((free, W @ x + WIN @ read), (driven, W @ x + WIN @ u + W[:, :2] @ read)):
            assert loop.advance(x, u) == pytest.approx(0.7 * x + 0.3 * np.tanh(pre + BIAS))
    controlled = feedback((np.eye(2), 0.1 * np.eye(2), np.eye(2), np.zeros((2, 2)), 1.0), Model(Reservoir(), Ridge()))
    h = wanted.advance(x, u)
    state = controlled.advance(np.concatenate([u, x]), np.zeros(2))
    assert state == pytest.approx(np.concatenate([u - 0.1 * (Ridge().Wout.T @ h + Ridge().bias[0]), h]))
    for nodes in (
        (Reservoir(),),
        (Reservoir(), Reservoir(), Ridge()),
        (Reservoir(Wfb=W, fb_activation=np.sin), Ridge()),
    ):
        with pytest.raises(UnsupportedError):
            as_subject(Model(*nodes))


def test_the_library_itself() -> None:
    nodes = pytest.importorskip("reservoirpy.nodes")
    node = nodes.Reservoir(12, lr=0.3, sr=0.9, seed=1)
    out = node.run(U)
    network, h = as_subject(node), np.zeros(12)
    for u, seen in zip(U, out):
        h = network.advance(h, u)
        assert h == pytest.approx(seen, abs=1e-9)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"initialized": False}, "no weights yet"),
        ({"Wfb": np.ones((4, 1))}, "feedback"),
        ({"noise_rc": 0.1}, "noise"),
        ({"activation": np.sin}, "sin"),
        ({"W": np.zeros}, "no weights yet"),
    ],
)
def test_what_is_no_map_of_ours_is_refused_by_name(more, words) -> None:
    with pytest.raises(UnsupportedError, match=words):
        as_subject(Reservoir(**more))
