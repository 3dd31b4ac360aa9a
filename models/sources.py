"""Loading of models from every form of MODEL on the command line.

The content of a file decides its form, not its suffix. Sizes are checked before memory is allocated. Pickled code is
never run: files are read by ``torch.load`` with ``weights_only=True``, or by an unpickler that creates only tensors.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from zipfile import ZipInfo

import numpy as np
from torch import Tensor, nn

from stability.conversion.subjects import as_subject, register_converter
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.storage.archives import archive_members
from stability.storage.arrays import is_state_dict, npz_subject, read_npz
from stability.storage.documents import read_json
from stability.storage.read_errors import as_file_errors
from stability.user_code import ALLOW, may_run, names_code

from .adapters.modules import recurrent_parts, refuse_altered_layer, with_origin
from .adapters.state_dicts import CELLS, quote, state_dict_subject
from .factories import from_factory, registered_layer, running_user_code
from .files import FORMAT, MODEL_FILE, load
from .readers.checkpoints import Placeholder, read_torch_file
from .readers.matlab import HEADER, read_mat
from .readers.safetensors import read_metadata, read_tensors
from .recurrent import LAYERS

_HOLDERS = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network", "weights", "params")


_KERAS = (
    "save weight_ih_l0 = kernel.T, weight_hh_l0 = recurrent_kernel.T and bias_ih_l0 = bias in a .npz (an LSTM with the "
    "default activations; of a GRU put the gates z, r, h into the order r, z, h, and both rows of its bias apart)"
)


@dataclass(frozen=True, eq=False)
class Source:
    """Model found under a name.

    Attributes:
        subject: the system that claims are about.
        module: the ``torch`` module if the source holds a complete one, else ``None``.
        info: description of the source: ``form``, ``path``, and for weights ``cell``, ``part``, ``layers``, ``dtype``.
    """

    subject: Any
    module: nn.Module | None = None
    info: Mapping[str, Any] = field(default_factory=dict)


register_converter(Source, lambda source: source.subject)


def load_subject(
    spec: str | Path, *, cell: str | None = None, input_box: tuple[Any, Any] | None = None, continuous: bool = False
) -> Source:
    """Read a model from any of its forms.

    A run directory; a ``.safetensors`` file of this toolkit; a state dict of ``torch.nn.RNN``, ``LSTM`` or ``GRU``
    (``.safetensors``, ``.pt``, ``.npz`` or JSON); a ``.npz`` or ``.mat`` with ``A`` and ``W``; an ``.onnx`` file; or
    ``package.module:factory``. ``FILE#path`` (``package.module:factory#path``) takes one recurrent part of several.

    Args:
        spec: the name.
        cell: cell type of a state dict whose weights do not determine it: ``rnn_tanh``, ``rnn_relu``, ``lstm``,
            ``gru``.
        input_box: ``(low, high)``, bounds of the inputs as numbers or vectors; for gated cells.
        continuous: return the differential equation behind a layer instead of the map that runs.

    Returns:
        Subject, module and description.

    Raises:
        FileFormatError: a missing, invalid, truncated or malicious file, or one of an unknown form.
        ConfigurationError: an ambiguous name (the message lists the choices), or a factory that cannot be used.
        UnsupportedError: a model for which there is no criterion.
    """
    source = _find(spec, cell)
    if cell is not None and "cell" not in source.info:
        raise ConfigurationError(f"cell={cell!r} applies to a state dict only, and {spec} is none: leave it out")
    if continuous:
        driven = getattr(source.module, "driven", None)
        if driven is None:
            raise UnsupportedError(f"{spec} has no differential equation behind it: leave continuous out")
        refuse_altered_layer(source.module)
        subject = _subject_of(source, lambda: with_origin(source.module, driven(True)))
    else:
        subject = _subject_of(source, lambda: as_subject(source.subject))
    if input_box is None:
        return replace(source, subject=subject)
    if not isinstance(subject, (GatedCell, LayerStack)):
        raise ConfigurationError("an input box applies to LSTM and GRU only: leave it out")
    low, high = input_box
    return Source(subject.with_inputs(low, high), source.module, {**source.info, "input_box": [low, high]})


def load_module(spec: str | Path) -> nn.Module | None:
    """Load the network of a name as a module that runs on data; it need not have a system.

    An ONNX file has such a network if its recurrent nodes are followed by one linear head; a softmax is left out.

    Args:
        spec: a name, as for ``load_subject``.

    Returns:
        The module; ``None`` if the source holds only recurrent weights or matrices.

    Raises:
        FileFormatError: see ``load_subject``.
        ConfigurationError: see ``load_subject``.
    """
    return _find(spec, None).module


def without_network(spec: str | Path) -> str:
    """Return the specific reason why a source has no network to run; else empty."""
    return str(_find(spec, None).info.get("no_network", ""))


def _find(spec: str | Path, cell: str | None) -> Source:
    """Read a name's model; ``subject`` may still be a module."""
    name = os.fspath(spec)
    if not isinstance(name, str) or not name or "\0" in name:
        raise FileFormatError("the name of a model must be a path or package.module:factory")
    path, _, part = (name, "", "") if os.path.exists(name) else name.rpartition("#") if "#" in name else (name, "", "")
    if os.path.exists(path):
        source = _from_path(Path(path), cell, part or None)
        if part and "part" not in source.info:
            raise ConfigurationError(f"{path} has no separate parts: leave #{quote([part])[1:-1]} out")
        return source
    if part and names_code(path):
        return _part_of_factory(path, part)
    if names_code(name):
        return _source("factory", name, from_factory(name))
    raise FileFormatError(f"there is no file or directory {name} (and it is not package.module:factory)")


def _part_of_factory(name: str, part: str) -> Source:
    """Return one recurrent part of a factory's model.

    Raises:
        ConfigurationError: no module, or one without such a part.
    """
    produced = from_factory(name)
    with running_user_code(name, "gives a model that cannot be read"):
        parts = recurrent_parts(produced) if isinstance(produced, nn.Module) else {}
    if part not in parts:
        known = "it is one recurrent layer itself" if "" in parts else f"it has {quote(parts) or 'none'}"
        raise ConfigurationError(f"{name} has no part {quote([part])}: {known}")
    return Source(parts[part], None, {"form": "factory", "path": name, "part": part})


def _from_path(path: Path, cell: str | None, part: str | None) -> Source:
    if path.is_dir():
        weights = path / MODEL_FILE
        if not weights.is_file():
            raise FileFormatError(f"{path} is a directory without a {MODEL_FILE}: not a run directory")
        model = _model_record(path)
        if "format" not in read_metadata(weights) and (path / "run.json").is_file():  # a trained user network
            return _own_run(path, model, weights, cell, part)
        if model.get("layer") not in LAYERS and (code := str(model.get("code") or "")):
            if not may_run(code):
                raise FileFormatError(f"{path} {_code_not_run(code)}")
            registered_layer(code)
        return _source("run directory", path, load(path))
    return _reader(path)(path, cell, part)


def _model_record(path: Path) -> dict[str, Any]:
    """Return the model's description in a folder's ``run.json``; empty without one."""
    document = read_json(path / "run.json") if (path / "run.json").is_file() else None
    description = document.get("model") if isinstance(document, dict) else None
    return description if isinstance(description, dict) else {}


def _code_not_run(code: str) -> str:
    """Return the reason why the code of a run directory is not run, and what to do."""
    return (
        f"is made by {quote([code])[1:-1]}, which is not below this folder, or not as you trained with it: run the "
        f"command in the folder of the code, and for code that is new to you read it first and set {ALLOW}=1"
    )


def _own_run(path: Path, record: dict[str, Any], weights: Path, cell: str | None, part: str | None) -> Source:
    """Return a trained user network, made by its factory, or its recurrent part without the factory."""
    code = str(record.get("code") or "")
    if code and cell is None and part is None and may_run(code):
        produced = from_factory(code)
        if not isinstance(produced, nn.Module):
            raise FileFormatError(f"{path} was trained from {code}, which no longer returns a module")
        try:
            produced.load_state_dict(read_tensors(weights))
        except RuntimeError as error:
            raise FileFormatError(f"{path} was trained from {code}, which now returns another network") from error
        return _source("factory", code, produced)
    if cell is None and record.get("cell") in CELLS:
        cell = record["cell"]
    source = _state_dict(read_tensors(weights), weights, cell, part, "run directory")
    name = quote([str(record.get("class"))])[1:-1] if "class" in record else "a network"
    reason = (
        f"it was trained from a network of your own, {name}, whose code is not in it. Name a function that makes the "
        f"network and loads {weights} into it, package.module:function"
    )
    return replace(source, info={**source.info, "no_network": f"it {_code_not_run(code)}" if code else reason})


def _reader(path: Path) -> Callable[[Path, str | None, str | None], Source]:
    """Return the reader of a file by its first bytes."""
    with as_file_errors(path):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait forever
            raise FileFormatError(f"{path} is neither a regular file nor a directory")
        with path.open("rb") as handle:
            head = handle.read(16)
    if status.st_size == 0:
        raise FileFormatError(f"{path} is empty")
    if head.startswith(b"\x93NUMPY"):
        raise FileFormatError(f"{path} holds one bare array; save A and W together with numpy.savez")
    if head[8:9] == b"{":  # tested first: eight bytes of length may look like the start of another format
        return _from_safetensors
    readers = {
        b"PK": _from_zip,
        b"\x80": _from_torch,
        b"{": _from_json,
        HEADER: lambda path, cell, part: _from_arrays(read_mat(path), path, cell, part, "mat"),
    }
    matches = [read for start, read in readers.items() if head.lstrip().startswith(start)]
    if matches:
        return matches[0]
    if head.startswith((b"\x89HDF", b"MATLAB 7.3")):
        raise FileFormatError(f"{path} is an HDF5 file; in MATLAB save with -v7; of a Keras layer {_KERAS}")
    if head.startswith(b"\x08") or path.suffix.lower() == ".onnx":
        return _from_onnx
    known = ".safetensors, .pt, .npz, .mat (of format 5: save -v7), .onnx or JSON file"
    raise FileFormatError(f"{path} ({head[:8]!r}) is no run directory, {known}")


def _from_zip(path: Path, cell: str | None, part: str | None) -> Source:
    members = archive_members(path)
    names = [m.filename for m in members]
    if any(n.endswith(("constants.pkl", "data.pkl")) for n in names):
        return _from_torch(path, cell, part, members)
    if names and all(n.endswith(".npy") for n in names):
        return _from_arrays(read_npz(path), path, cell, part, "npz")
    raise FileFormatError(f"{path} is an archive of another kind: save model.state_dict(); of a Keras layer {_KERAS}")


def _from_arrays(arrays: Mapping[str, Any], path: Path, cell: str | None, part: str | None, form: str) -> Source:
    if "recurrent_kernel" in arrays:
        raise FileFormatError(f"{path} holds the weights of a Keras layer: {_KERAS}")
    if is_state_dict(arrays):
        return _state_dict(arrays, path, cell, part, f"{form} state dict")
    return _source(form, path, npz_subject(arrays, str(path)))


def _from_json(path: Path, cell: str | None, part: str | None) -> Source:
    document = _state(read_json(path), path, "lists of numbers by name (of a certificate: stability verify)")
    with as_file_errors(path, "holds entries that are no arrays of numbers", (ValueError,)):
        arrays = {name: np.array(value) for name, value in document.items()}
    bad = [k for k, v in arrays.items() if v.dtype.kind not in "if" and not (k == "activation" and v.dtype.kind == "U")]
    if bad:
        raise FileFormatError(f"{path}: {quote(bad)} holds no array of numbers")
    arrays = {k: v.astype(np.float64) if v.dtype.kind == "i" else v for k, v in arrays.items()}
    return _from_arrays(arrays, path, cell, part, "JSON")


def _from_torch(path: Path, cell: str | None, part: str | None, members: list[ZipInfo] | None = None) -> Source:
    content = read_torch_file(path, members)
    return _state_dict(_state(content, path, "tensors"), path, cell, part, "torch state dict")


def _state(content: Any, path: Path, expected: str) -> Mapping[str, Any]:
    """Return the dictionary of weights or matrices inside a checkpoint or a document."""
    for _ in range(4):
        if not isinstance(content, Mapping) or is_state_dict(map(str, content)) or not content.keys().isdisjoint("AW"):
            break
        holders = [k for k in _HOLDERS if isinstance(content.get(k), Mapping)]
        if len(holders) > 1:
            raise ConfigurationError(f"{path} holds several models, {quote(holders)}: save the state dict of one alone")
        if not holders:
            break
        content = content[holders[0]]
    kind = "an object, such as a whole module" if isinstance(content, Placeholder) else type(content).__name__
    if isinstance(content, Mapping):
        kind = f"a dictionary of {quote(content)}"
        if is_state_dict(map(str, content)) or any(isinstance(value, (Tensor, list)) for value in content.values()):
            return content
    raise FileFormatError(f"{path} must hold a dictionary of {expected}, it holds {kind}: save model.state_dict()")


def _from_safetensors(path: Path, cell: str | None, part: str | None) -> Source:
    if read_metadata(path).get("format") == FORMAT:
        return _source("model file", path, load(path))
    return _state_dict(read_tensors(path), path, cell, part, "safetensors state dict")


def _from_onnx(path: Path, cell: str | None, part: str | None) -> Source:
    from .onnx.parts import onnx_subject

    subject, info = onnx_subject(path, part)
    network = info.pop("network", None)
    if isinstance(network, nn.Module):
        return replace(_source("onnx", path, subject, **info), module=network)
    return _source("onnx", path, subject, **info, **({"no_network": network} if network else {}))


def _state_dict(state: Mapping[str, Any], path: Path, cell: str | None, part: str | None, form: str) -> Source:
    subject, info = state_dict_subject(state, cell=cell, part=part, where=str(path))
    return _source(form, path, subject, **info)


def _source(form: str, path: str | Path, parts: Any, **info: Any) -> Source:
    return Source(parts, parts if isinstance(parts, nn.Module) else None, {"form": form, "path": str(path), **info})


def _subject_of(source: Source, read: Callable[[], Any]) -> Any:
    """Return the subject; if the model comes from a factory, its code runs inside ``running_user_code``."""
    if source.info.get("form") != "factory":
        return read()
    with running_user_code(str(source.info["path"]), "gives a model that cannot be read"):
        return read()
