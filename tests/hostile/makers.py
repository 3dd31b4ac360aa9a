"""Hostile inputs by seed: a valid input whose truth is known, with one or several changes.

``truth`` is ``stable`` (contracting: must not be refuted), ``unstable`` (has an unstable equilibrium: must not be
certified), ``refused`` (unreadable: exit code 2), ``invalid`` (must not verify) or empty (anything but a fault).
"""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

Rng = np.random.Generator
WORDS = [None, True, -1, 0, 2**63, 10**400, 1e308, 5e-324, "", "x", "\x1b]0;owned\x07", "\udcff", [], {}, "ä" * 300]
"""JSON values that stand where others are expected."""


@dataclass(frozen=True)
class Case:
    """A command line, what is known of its answer, and the size of its input."""

    arguments: list[str]
    truth: str = ""
    what: str = ""


def flip(data: bytes, rng: Rng, most: int = 6) -> bytes:
    """Change some bytes, cut off the end, or duplicate or insert some."""
    out = bytearray(data)
    way = int(rng.integers(5))
    at = int(rng.integers(max(len(out), 1)))
    if way == 0:
        return bytes(out[:at])
    if way == 1:
        return bytes(out[:at] + rng.bytes(int(rng.integers(1, 40))) + out[at:])
    if way == 2:
        return bytes(out[:at] + out[at // 2 : at] + out[at:])
    for _ in range(int(rng.integers(1, most + 1)) if way == 3 else 1):
        if out:
            out[int(rng.integers(len(out)))] = int(rng.integers(256))
    return bytes(out)


def _system(rng: Rng, stable: bool) -> dict[str, Any]:
    n = int(rng.integers(1, 5))
    W = rng.normal(size=(n, n))
    W *= 0.8 / max(float(np.linalg.norm(W, 2)), 1e-9)
    A = -np.eye(n) if stable else np.eye(n) * 0.5
    return {"A": A, "W": W}


def npz_bytes(arrays: dict[str, Any], twice: str | None = None) -> bytes:
    target = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in [*arrays, *([twice] if twice else [])]:
            inner = io.BytesIO()
            np.lib.format.write_array(inner, np.asarray(arrays[name]), allow_pickle=True)
            archive.writestr(f"{name}.npy", inner.getvalue())
    return target.getvalue()


def npz(rng: Rng, folder: Path) -> Case:
    """Matrices of a system with one of forty things wrong."""
    stable = bool(rng.integers(2))
    arrays, truth = _system(rng, stable), "stable" if stable else "unstable"
    n, name, twice, raw = len(arrays["A"]), str(rng.choice(["A", "W"])), None, b""
    bad = [np.nan, np.inf, -np.inf]
    ways: list[tuple[str, Callable[[], Any]]] = [
        ("valid", lambda: arrays[name]),
        ("not finite", lambda: np.where(np.eye(n), rng.choice(bad), arrays[name])),
        ("complex", lambda: arrays[name] + 1j),
        ("text", lambda: np.full((n, n), "a")),
        ("object", lambda: np.full((n, n), None, dtype=object)),
        ("dates", lambda: np.full((n, n), np.datetime64("2020-01-01"))),
        ("records", lambda: np.zeros((n, n), dtype=[("a", float)])),
        ("empty", lambda: np.zeros((0, 0))),
        ("one axis", lambda: arrays[name].ravel()),
        ("three axes", lambda: arrays[name][None]),
        ("a number", lambda: np.float64(3.0)),
        ("other size", lambda: np.eye(n + 1)),
    ]
    same = [("big endian", ">f8"), ("long double", "longdouble"), ("columns", "F")]
    kind = int(rng.integers(8))
    if kind <= 2:
        what, make = ways[int(rng.integers(len(ways)))]
        truth = truth if what == "valid" else "" if what == "a number" or n == 1 else "refused"
        arrays[name] = make()
    elif kind == 3:
        what, dtype = same[int(rng.integers(len(same)))]
        arrays[name] = np.asfortranarray(arrays[name]) if dtype == "F" else arrays[name].astype(dtype)
    elif kind == 4:
        what, truth = "an entry more", "refused"
        arrays[str(rng.choice(["Q", "weights", "a\x1b[31m", "../x", "é" * 50, "A "]))] = np.eye(n)
    elif kind == 5:
        what, twice, truth = "twice", name, "refused"
    elif kind == 6:
        what, truth = "scaled", ""
        scale = 10.0 ** float(rng.choice([-323.0, -300, -160, -20, 20, 150, 300, 308]))
        arrays = {key: value * scale for key, value in arrays.items()}
    else:
        what, truth, raw = "bytes", "", flip(npz_bytes(arrays), rng)
    path = folder / f"system{rng.integers(10)}.npz"
    path.write_bytes(raw or npz_bytes(arrays, twice))
    return Case(["certify", path.name, "--time-limit", "2"], truth, what)


def _weights(rng: Rng, stable: bool) -> tuple[str, dict[str, torch.Tensor]]:
    torch.manual_seed(int(rng.integers(2**31)))
    net = torch.nn.RNN(int(rng.integers(1, 4)), int(rng.integers(1, 5)))
    with torch.no_grad():
        torch.nn.init.orthogonal_(net.weight_hh_l0).mul_(0.5 if stable else 3.0)
        net.bias_hh_l0.zero_(), net.bias_ih_l0.zero_()
    return "rnn_tanh", dict(net.state_dict())


def _spoil(state: dict[str, Any], rng: Rng, truth: str) -> tuple[str, str]:
    """One thing wrong with a state dict; returns what, and the truth."""
    key = str(rng.choice(list(state)))
    t = state[key]
    ways: list[tuple[str, str, Callable[[], Any]]] = [
        ("valid", truth, lambda: state),
        ("half", "", lambda: state.update({k: v.half() for k, v in state.items()})),
        ("nan", "refused", lambda: state.update({key: t * np.nan})),
        ("complex", "refused", lambda: state.update({key: t + 1j})),
        ("integers", "", lambda: state.update({key: t.long()})),
        ("booleans", "", lambda: state.update({key: t > 0})),
        ("an axis more", "refused", lambda: state.update({key: t[None]})),
        ("longer", "refused", lambda: state.update({key: torch.cat([t, t])})),
        ("empty", "refused", lambda: state.update({key: t[:0]})),
        ("far layer", "refused", lambda: state.update({f"weight_hh_l{10 ** int(rng.integers(1, 30))}": t})),
        ("another key", "refused", lambda: state.update({"weight_hh_l0_extra": t})),
        ("steering", "", lambda: state.update({"\x1b]0;owned\x07weight": t})),
        ("missing", "", lambda: state.pop(key)),
        ("huge", "", lambda: state.update({key: t * 1e38})),
        ("tiny", "", lambda: state.update({key: t * 1e-45})),
    ]
    what, truth, change = ways[int(rng.integers(len(ways)))]
    change()
    return what, truth


def pt(rng: Rng, folder: Path) -> Case:
    """A state dict saved by torch."""
    stable = bool(rng.integers(2))
    cell, state = _weights(rng, stable)
    what, truth = _spoil(state, rng, "stable" if stable else "unstable")
    content: Any = state
    extra = int(rng.integers(8))
    if extra == 0:
        content = {"model": {"state_dict": state}, "epoch": 3, "note": "\x1b[31m"}
    elif extra == 1:
        content, what, truth = [state], f"list of {what}", "refused"
    elif extra == 2:
        content, what, truth = {k: v.to_sparse() for k, v in state.items() if v.ndim}, f"sparse {what}", ""
    elif extra == 3:
        content, what, truth = {"state_dict": {}}, "nothing", "refused"
    path = folder / f"weights{rng.integers(10)}.pt"
    torch.save(content, path, _use_new_zipfile_serialization=bool(rng.integers(4)))
    if extra == 4:
        path.write_bytes(flip(path.read_bytes(), rng))
        what, truth = "bytes", ""
    return Case(["certify", path.name, "--cell", cell, "--time-limit", "2"], truth, what)


def edited(value: Any, rng: Rng, depth: int = 0) -> Any:
    """A JSON value with something in it replaced, taken away or added."""
    if isinstance(value, dict) and value and (depth == 0 or rng.random() < 0.8):
        key = str(rng.choice(list(value)))
        way = int(rng.integers(6))
        if way == 0:
            return {k: v for k, v in value.items() if k != key}
        if way == 1:
            return {**value, str(rng.choice(["", "more", "\x1b[31m", key.upper()])): value[key]}
        return {**value, key: edited(value[key], rng, depth + 1)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        k = int(rng.integers(len(value)))
        way = int(rng.integers(5))
        if way == 0:
            return value[:k] + value[k + 1 :]
        if way == 1:
            return value[: k + 1] * 2
        return [*value[:k], edited(value[k], rng, depth + 1), *value[k + 1 :]]
    if isinstance(value, float) and rng.random() < 0.5:
        return value * float(rng.choice([-1.0, 0.0, 1.0 + 1e-9, 2.0, 1e300]))
    if isinstance(value, str) and rng.random() < 0.3:
        return value[: int(rng.integers(len(value) + 1))] + "\u202e"
    return WORDS[int(rng.integers(len(WORDS)))]


def written(value: Any, rng: Rng) -> bytes:
    """JSON as text, sometimes with a key twice, a huge integer, deep, or damaged."""
    text = json.dumps(value).replace(repr(10**400), "9" * 400)
    way = int(rng.integers(12))
    if way == 0 and text.startswith("{") and len(text) > 2:
        return (text[:-1] + ", " + text[1:]).encode()
    if way == 1:
        return text.replace("1", "1" * int(rng.choice([5, 5000, 10**6])), 1).encode()
    if way == 2:
        deep = int(rng.choice([60, 2000, 200_000]))
        return ("[" * deep + text + "]" * deep).encode()
    if way == 3:
        return flip(text.encode(), rng)
    if way == 4:
        return text.encode("utf-16")
    return text.encode()
