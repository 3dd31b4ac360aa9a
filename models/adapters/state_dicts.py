"""Recurrent parts of a plain dictionary of tensors.

Names are those of ``torch.nn`` (``encoder.rnn.weight_hh_l0_reverse``); the ratio of the shapes tells an RNN (1), a
GRU (3) and an LSTM (4) apart. The user must choose between tanh and ReLU, which shapes do not determine.

A module that holds more than a plain one of ``torch.nn`` may compute something else: its further weights are refused by
name. Beside the part, the weights of plain layers (a head, an embedding) are taken: then the claim is about the part.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.conversion.parts import subject_as_part
from stability.errors import ConfigurationError, DimensionError, FileFormatError, StabilityError, UnsupportedError
from stability.kernel.checks import as_choice
from stability.storage.limits import NUMBERS

from ..readers.limits import LAYERS
from .cross_check import cross_check
from .torch_modules import as_array
from .weights import WEIGHTS, RecurrentWeights

Subject = Any
CELLS = ("rnn_tanh", "rnn_relu", "lstm", "gru")
_GATES = {1: "rnn", 3: "gru", 4: "lstm"}
_KEY = re.compile(
    r"(?P<path>(?:.*\.)?)(?P<name>weight_ih|weight_hh|weight_hr|bias_ih|bias_hh)"
    r"(?P<layer>_l(?:0|[1-9][0-9]{0,3})(?P<back>_reverse)?)?",
    re.DOTALL,
)
_HIDDEN = re.compile(r"weight_hh(_l\d+)?(_reverse)?(_orig$|_g$|_v$|\.original)")
Parts = dict[str, dict[tuple[int, bool], dict[str, Any]]]


def state_dict_parts(state: Mapping[str, Any]) -> Parts:
    """Group weights by the module's path, then by layer and direction.

    Args:
        state: tensors or arrays by name.

    Returns:
        ``{path: {(layer, backwards): {name: tensor}}}``; empty where nothing recurrent is found.
    """
    parts: Parts = {}
    for key, match in _matches(state):
        if not _is_array(state.get(key)):
            continue
        place = (int((match["layer"] or "_l0").removesuffix("_reverse")[2:]), bool(match["back"]))
        parts.setdefault(match["path"].removesuffix("."), {}).setdefault(place, {})[match["name"]] = state[key]
    parts = {path: keys for path, keys in parts.items() if any("weight_hh" in p for p in keys.values())}
    for path, keys in parts.items():
        single = state.get(f"{path}.bias" if path else "bias")  # one bias for both: the layers of this toolkit
        if set(keys) == {(0, False)} and "bias_ih" not in keys[0, False] and _is_array(single):
            keys[0, False]["bias_ih"] = single
    return parts


def state_dict_subject(
    state: Mapping[str, Any], *, cell: str | None = None, part: str | None = None, where: str = "the state dict"
) -> tuple[Subject, dict[str, Any]]:
    """Return the subject of claims that a state dict describes.

    Args:
        state: tensors or arrays by name.
        cell: ``rnn_tanh``, ``rnn_relu`` (``rnn`` is ``rnn_tanh``), ``lstm`` or ``gru``; needed where the shapes do not
            tell.
        part: the path of the module to take where there are several.
        where: name of the source in error messages.

    Returns:
        The subject and its description: ``cell``, ``part``, ``layers``, ``directions``.

    Raises:
        ConfigurationError: ambiguous: several parts, or an RNN whose activation is not said.
        FileFormatError: nothing recurrent inside, or shapes that do not fit together.
        UnsupportedError: projections, weights stored as parameters of a parametrization, or further weights that may
            change the map.
        DisagreementError: a module of ``torch.nn`` with these weights computes something else.

    Example:
        >>> import torch
        >>> gru = torch.nn.GRU(3, 5)
        >>> state_dict_subject(gru.state_dict())[1]["cell"]
        'gru'
    """  # noqa: DOC501 - made by a function
    cell = "rnn_tanh" if cell == "rnn" else cell
    if cell is not None:
        as_choice("cell", cell, CELLS)
    odd = [k for k, v in state.items() if not isinstance(k, str) or (_KEY.fullmatch(k) and not _is_array(v))]
    if odd:
        raise FileFormatError(f"{where} holds no tensors under the names {quote(odd)}: save model.state_dict()")
    parts = state_dict_parts(state)
    if not parts:
        raise _nothing(state, where)
    path = _choose(parts, part, where)
    keys = parts[path]
    _refuse_further(state, path, part is not None, where)
    directions = 2 if any(back for _, back in keys) else 1
    levels = max(layer for layer, _ in keys) + 1
    if levels * directions > LAYERS:
        raise FileFormatError(f"{where}: the limit is {LAYERS} layers, got {levels}")
    expected = [(layer, back) for layer in range(levels) for back in (False, True)[:directions]]
    if sorted(keys) != expected or not all("weight_hh" in weights for weights in keys.values()):
        raise FileFormatError(f"{where}: layers or directions of {ascii(path)[1:-1] or 'the module'} are missing")
    kind = _kind(keys[0, False], cell, where)
    label = {"rnn_tanh": "RNN", "rnn_relu": "RNN (ReLU)", "lstm": "LSTM", "gru": "GRU"}[kind]
    _check(keys, kind, where, path)
    layers = [
        [None if name not in keys[place] else _array(keys[place][name], name, where) for name in WEIGHTS]
        for place in expected
    ]
    names = [f"{label} l{layer}{'_reverse' if back else ''}" for layer, back in expected]
    cell_kind, _, activation = kind.partition("_")
    weights = RecurrentWeights(cell_kind, layers, names if len(names) > 1 else [label], label, directions, activation)
    try:
        subject = weights.subject()
    except StabilityError as error:
        raise FileFormatError(f"{where}: the layers do not fit together: {error}") from error
    cross_check(weights.module(), subject)
    return subject_as_part(subject, path, "state_dict") if path else subject, {
        "cell": kind,
        "part": path,
        "layers": levels,
        "directions": directions,
        "dtype": ", ".join(sorted({str(v.dtype).removeprefix("torch.") for p in keys.values() for v in p.values()})),
    }


def _refuse_further(state: Mapping[str, Any], path: str, named: bool, where: str) -> None:
    """Raise an error for further weights that may change the computation, listing their names.

    Args:
        state: everything.
        path: path of the part.
        named: whether the user named the part: what stands elsewhere is then none of the claim's business.
        where: name of the source in error messages.

    Raises:
        FileFormatError: weights of a cell and of layers at once.
        UnsupportedError: projections, weights of a parametrization, or others that may change the map.
    """
    prefix, label = f"{path}." if path else "", ascii(path)[1:-1] or "the module"
    own_names = {key: m for key, m in _matches(state) if m["path"] == prefix}
    steps = {match["layer"] is None for match in own_names.values()}
    if len(steps) > 1:
        raise FileFormatError(f"{where}: {label} holds weights of a cell and of layers at once: {quote(own_names)}")
    single = f"{prefix}bias"
    one = {single} if steps == {True} and f"{prefix}bias_ih" not in state else set()
    rest = [key for key in map(str, state) if key not in own_names and key not in one]
    inside = [key for key in rest if key.startswith(prefix)]
    if inside:
        raise UnsupportedError(
            f"{where}: beside the weights of a plain torch.nn module, {label} holds {quote(inside)}, so "
            "that it may run another map than these weights describe: give package.module:factory, with an adapter for "
            "the class (stability.models.register_adapter)"
        )
    strange = [] if named else [key for key in rest if not _plain_layer(key, state, steps == {False})]
    if strange:
        raise UnsupportedError(
            f"{where} holds {quote(strange)} beside {label}, which may change what it computes. For a claim about "
            f"{label} by itself, name it after the file: FILE#{label}"
        )


def _matches(state: Mapping[str, Any]) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the parsed keys of recurrent weights."""
    matches = ((str(key), _KEY.fullmatch(str(key))) for key in state)
    return ((key, match) for key, match in matches if match is not None)


def _plain_layer(key: str, state: Mapping[str, Any], sequences: bool) -> bool:
    """Return True if a key belongs to a linear map, an embedding or a convolution; or to a norm, beside a part that
    runs whole sequences (``sequences``), so that the norm cannot act between steps.
    """
    module, _, name = key.rpartition(".")
    weight = state.get(f"{module}.weight")
    shape = tuple(getattr(weight, "shape", ()))
    if not module or not isinstance(weight, (Tensor, np.ndarray)):
        return False
    if len(shape) >= 2:
        return name == "weight" or (name == "bias" and getattr(state[key], "ndim", 0) == 1)
    return sequences and name in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def quote(names: Iterable[Any]) -> str:
    """Format names from a file for an error: quoted, printable, the first few."""
    listed = [ascii(str(name)[:60]) for name in names]
    return ", ".join(listed[:6]) + (f" and {len(listed) - 6} more" if len(listed) > 6 else "")


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))


def _array(value: Any, name: str, where: str) -> np.ndarray:
    if isinstance(value, Tensor) and value.layout is not torch.strided:
        raise UnsupportedError(f"{where}: {name} has the layout {value.layout}: save {name}.to_dense()")
    if isinstance(value, Tensor) and value.numel() * value.element_size() > value.untyped_storage().nbytes():
        raise FileFormatError(f"{where}: {name} has shape {tuple(value.shape)}, more entries than the file stores")
    if isinstance(value, np.ndarray) and value.dtype.kind not in "fiu":
        raise FileFormatError(f"{where}: {name} must hold real numbers, got {value.dtype}")
    try:
        return as_array(value, name)
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        if isinstance(error, StabilityError):
            raise
        raise FileFormatError(f"{where}: {name} cannot be read as numbers ({error})") from error


def _choose(parts: Parts, part: str | None, where: str) -> str:
    if part is not None:
        if part not in parts:
            raise ConfigurationError(f"{where} has no recurrent part {part!r}; it has {quote(parts)}")
        return part
    if len(parts) > 1:
        raise ConfigurationError(
            f"{where} has {len(parts)} recurrent parts: name one of {quote(parts)} after the file, "
            f"as in FILE#{ascii(next(iter(parts)))[1:-1]}"
        )
    return next(iter(parts))


def _kind(weights: Mapping[str, Any], cell: str | None, where: str) -> str:
    shape = tuple(weights["weight_hh"].shape) if "weight_hh" in weights else ()
    if len(shape) != 2 or shape[1] == 0:
        raise FileFormatError(f"{where}: weight_hh must be a matrix, it has shape {shape}")
    kind = _GATES.get(shape[0] // shape[1]) if shape[0] % shape[1] == 0 else None
    if kind is None and "weight_hr" not in weights:
        raise FileFormatError(f"{where}: weight_hh {shape} is none of RNN (n, n), GRU (3n, n), LSTM (4n, n)")
    kind = kind or "lstm"
    if cell is not None and not cell.startswith(kind):
        raise ConfigurationError(f"{where}: weight_hh of shape {shape} is that of a {kind}, not of {cell}")
    if kind == "rnn" and cell is None:
        raise ConfigurationError(
            f"{where} holds a torch.nn.RNN, whose weights do not determine its activation: use --cell rnn_tanh or "
            '--cell rnn_relu (in Python cell="rnn_tanh" of stability.models.sources.load_subject or '
            f"stability.models.adapters.state_dicts.state_dict_subject); the choices are {', '.join(CELLS)}"
        )
    return cell or kind


def _check(layers: Mapping[tuple[int, bool], Mapping[str, Any]], kind: str, where: str, path: str) -> None:
    """Check shapes and sizes before any copy."""
    numbers, gates = 0, {"lstm": 4, "gru": 3}.get(kind, 1)
    for (layer, _), weights in sorted(layers.items()):
        if "weight_hr" in weights:
            raise UnsupportedError(f"{where} holds an LSTM with projections (weight_hr): there is no criterion for it")
        if "weight_ih" not in weights or "weight_hh" not in weights:
            raise FileFormatError(f"{where}, layer {layer}: weight_ih or weight_hh is missing")
        ih, hh = tuple(weights["weight_ih"].shape), tuple(weights["weight_hh"].shape)
        if len(hh) != 2 or hh[0] != gates * hh[1] or len(ih) != 2 or ih[0] != hh[0]:
            raise FileFormatError(f"{where}, layer {layer}: weight_ih {ih} and weight_hh {hh} do not fit a {kind}")
        for name in ("bias_ih", "bias_hh"):
            if name in weights and tuple(weights[name].shape) != hh[:1]:
                raise DimensionError(f"{name} in {where}, layer {layer}", hh[:1], tuple(weights[name].shape))
        numbers += sum(math.prod(value.shape) for value in weights.values())
        if numbers > NUMBERS:
            raise FileFormatError(f"{where}: {ascii(path)[1:-1] or 'the module'} has more than {NUMBERS} numbers")


_LIQUID = {
    ("ff1.weight", "ff2.weight", "time_a.weight", "time_b.weight"): "a CfC cell, where functions of the state multiply",
    ("ff1.weight", "w_tau", "A"): "a CfC cell in mode pure, which is no activation of its units one by one",
    ("gleak", "vleak", "cm", "sigma", "mu", "w", "erev"): "an LTC cell, whose conductances multiply the state",
}
"""Weight names of the liquid cells of the package ncps, and the reason why no criterion applies to them."""


def liquid_cell(names: Iterable[str]) -> str | None:
    """Return the kind of a liquid cell of ``ncps`` and why no criterion applies to it; ``None`` for other weights.

    Example:
        >>> str(liquid_cell(f"rnn_cell.{name}.weight" for name in ("ff1", "ff2", "time_a", "time_b")))[:10]
        'a CfC cell'
        >>> liquid_cell(["weight_hh_l0"]) is None
        True
    """
    listed = list(names)
    for parts, words in _LIQUID.items():
        if all(any(f".{name}".endswith(f".{part}") for name in listed) for part in parts):
            return f"{words}, and which depends on the time between samples: there is no criterion for it here"
    return None


def _nothing(state: Mapping[str, Any], where: str) -> StabilityError:
    liquid = liquid_cell(map(str, state))
    if liquid is not None:
        return UnsupportedError(f"{where} holds {liquid}")
    if any(_HIDDEN.search(str(key)) for key in state):
        return UnsupportedError(
            f"{where} holds a parametrised weight_hh as the parameters behind it, not as the matrix that runs: save it "
            "after torch.nn.utils.parametrize.remove_parametrizations, or give package.module:factory"
        )
    return FileFormatError(f"{where} holds no weight_hh of a torch.nn layer; it holds {quote(state) or 'nothing'}")
