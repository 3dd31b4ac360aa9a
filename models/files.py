"""Model files: ``.safetensors`` with the configuration as JSON in its metadata. Nothing is unpickled.

``describe`` and ``build`` turn a model into a plain dictionary and back:
``{"layer": NAME, "config": {...}, "output_size": 10, "reduction": "last"}``; a bare layer has the first two only.
"""

from __future__ import annotations

import contextlib
import json
import struct
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.modules import module as registration

from stability.errors import ConfigurationError, FileFormatError, NonFiniteError, StabilityError
from stability.kernel.checks import as_choice
from stability.storage.documents import parse_json
from stability.storage.writing import write_bytes

from .deep import DeepNetwork
from .network import SequenceModel
from .options import made_with
from .readers.safetensors import read_metadata, read_tensors
from .recurrent import LAYERS, RecurrentLayer
from .stack import Stack

FORMAT = "stability-model"
VERSION = 1
MODEL_FILE = "model.safetensors"


def describe(model: nn.Module) -> dict[str, Any]:
    """Return the configuration of a ``SequenceModel`` or of a bare layer, as JSON values.

    Args:
        model: a ``SequenceModel``, a stack, a deep network or a registered layer.

    Returns:
        ``layer`` (its registered name) and ``config``; for a ``SequenceModel`` also ``output_size`` and
        ``reduction``. ``build`` builds a new model from them.

    Raises:
        ConfigurationError: for any other module.

    Example:
        >>> from stability.models import ElmanRNN
        >>> describe(ElmanRNN(2, 4))["config"]
        {'input_size': 2, 'hidden_size': 4, 'activation': 'tanh'}
    """
    if isinstance(model, SequenceModel):
        return {**describe(model.layer), "output_size": model.output_size, "reduction": model.reduction}
    if type(model) is DeepNetwork:
        return {"layer": "deep", "config": model.config()}
    if type(model) is Stack:
        return {"layer": "stack", "config": {"layers": [describe(layer) for layer in model.layers]}}
    if not isinstance(model, RecurrentLayer) or LAYERS.get(model.layer_name) is not type(model):
        raise ConfigurationError(f"expected a SequenceModel or a registered layer, got a {type(model).__name__}")
    return {"layer": model.layer_name, "config": model.config()}


def build(description: Mapping[str, Any]) -> nn.Module:
    """Build a freshly initialized model from the result of ``describe``.

    Args:
        description: ``layer``, ``config`` and for a ``SequenceModel`` also ``output_size`` and ``reduction``.

    Returns:
        A ``SequenceModel``, a ``DeepNetwork``, or a bare layer without ``output_size``.

    Raises:
        ConfigurationError: an unknown layer, or options that it does not take.

    Example:
        >>> build({"layer": "elman", "config": {"input_size": 2, "hidden_size": 4}})
        ElmanRNN(input_size=2, hidden_size=4, activation='tanh')
    """
    if not isinstance(description, Mapping) or not isinstance(description.get("config"), Mapping):
        raise ConfigurationError("a model description needs a layer name and a config of keyword arguments")
    unknown = set(description) - {"layer", "config", "output_size", "reduction"}
    if unknown:
        raise ConfigurationError(f"a model description has no field {', '.join(sorted(map(str, unknown)))}")
    if description.get("layer") == "deep":
        config = description["config"]
        if set(description) != {"layer", "config"} or not isinstance(config.get("options", {}), Mapping):
            raise ConfigurationError("a deep network has a config with options of its layers, and nothing beside it")
        return made_with(DeepNetwork, "deep network", config)
    layer = _build_layer(description)
    if description.get("output_size") is None:
        return layer
    return SequenceModel(layer, description["output_size"], description.get("reduction", "last"))


def _build_layer(description: Mapping[str, Any]) -> RecurrentLayer:
    name = description.get("layer")
    if name == "stack":
        parts = description["config"].get("layers")
        if not isinstance(parts, (list, tuple)) or set(description["config"]) != {"layers"}:
            raise ConfigurationError("a stack needs a list of layers, each with a layer name and a config")
        layers = [build(part) for part in parts]
        if not all(isinstance(layer, RecurrentLayer) and not isinstance(layer, Stack) for layer in layers):
            raise ConfigurationError("the layers of a stack must be recurrent layers without a head")
        return Stack(layers)  # type: ignore[arg-type]
    layer = LAYERS[as_choice("layer", name, (*LAYERS, "stack"))]
    return made_with(layer, f"layer {name}", description["config"])


def save(model: nn.Module, path: str | Path, weights: Mapping[str, Tensor] | None = None) -> Path:
    """Write a model atomically: the file is complete, or the previous file remains.

    Args:
        model: a ``SequenceModel`` or a layer.
        path: a ``.safetensors`` file, or an existing directory, which gets a ``model.safetensors``.
        weights: weights to save in place of the model's present ones.

    Returns:
        The file written.

    Raises:
        ConfigurationError: another module.
        FileFormatError: the file cannot be written.

    Example:
        >>> import tempfile
        >>> from stability.models import ElmanRNN
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = save(ElmanRNN(2, 4), folder)
        ...     path.name, load(path).config()["hidden_size"]
        ('model.safetensors', 4)
    """
    metadata = {"format": FORMAT, "version": str(VERSION), "model": json.dumps(describe(model), allow_nan=False)}
    path = Path(path)
    path = path / MODEL_FILE if path.is_dir() else path
    write_tensors(path, model.state_dict() if weights is None else weights, metadata)
    return path


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file atomically; equal content gives equal bytes.

    Args:
        path: the file.
        tensors: tensors by name; they may share memory, since copies are saved.
        metadata: texts by name, written in the order of their names.

    Raises:
        FileFormatError: the file cannot be written.
    """
    copies = {name: value.detach().to("cpu").clone().contiguous() for name, value in tensors.items()}
    try:
        raw = memoryview(safetensors.torch.save(copies, dict(metadata) or None))
    except safetensors.SafetensorError as error:
        raise FileFormatError(f"cannot write {path}: {error}") from error
    (size,) = struct.unpack("<Q", raw[:8])  # the library's order of metadata changes from call to call
    header = json.loads(bytes(raw[8 : 8 + size]))
    if metadata:
        header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the numbers stay aligned
    write_bytes(path, struct.pack("<Q", len(text)) + text, raw[8 + size :])


def load(path: str | Path) -> nn.Module:
    """Read a model that ``save`` wrote.

    Args:
        path: the file, or a run directory that holds a ``model.safetensors``.

    Returns:
        The model, on the CPU and in its saved dtype. Only a description and numbers are read; no code in the file runs.

    Raises:
        FileFormatError: a missing, unreadable, truncated or foreign file, an unknown layer, wrong names or shapes.
        NonFiniteError: NaN or infinite weights.

    Example:
        >>> import tempfile
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> model = SequenceModel(ElmanRNN(2, 4), output_size=3)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = load(save(model, folder))
        >>> torch.equal(again.layer.weight_hh, model.layer.weight_hh)
        True
    """
    path = Path(path)
    path = path / MODEL_FILE if path.is_dir() else path
    metadata = read_metadata(path)
    if metadata.get("format") != FORMAT:
        raise FileFormatError(f"{path} is a safetensors file without a model description of this toolkit")
    if metadata.get("version") != str(VERSION):
        raise FileFormatError(f"{path} has format version {metadata.get('version')!r}; this release reads {VERSION}")
    unknown = sorted(set(metadata) - {"format", "version", "model"})
    if unknown:
        raise FileFormatError(f"{path} has unknown metadata: {', '.join(map(ascii, unknown[:3]))}")
    description = parse_json(metadata.get("model", "").encode(), path, "a model description that is not JSON")
    return _fill(path, description, read_tensors(path))


def _fill(path: Path, description: Any, tensors: dict[str, Tensor]) -> nn.Module:
    """Build the described model and set its weights, after a check of every name, shape and value."""
    numbers = sum(t.numel() for t in tensors.values())
    if any(value > max(numbers, 64) for value in _integers(description)):
        raise FileFormatError(f"{path} describes a model larger than the {numbers} numbers that it holds")
    try:
        with torch.device("meta"), _at_most(len(tensors), path):  # sizes first: a description must not cost memory
            expected = {name: tuple(value.shape) for name, value in build(description).state_dict().items()}
        _check_shapes(path, expected, tensors)
        with torch.random.fork_rng(devices=[]):  # loading must not move the caller's random state
            model = build(description)
    except FileFormatError:
        raise
    except StabilityError as error:
        raise FileFormatError(f"{path} describes a model that cannot be built: {error}") from error
    except (MemoryError, RuntimeError, OverflowError, TypeError, ArithmeticError, LookupError) as error:
        raise FileFormatError(f"{path} describes a model that cannot be built") from error
    for name, value in tensors.items():
        if not torch.isfinite(value).all():
            raise NonFiniteError(f"{name} in {path}")
    floating = next((t.dtype for t in tensors.values() if t.is_floating_point()), torch.get_default_dtype())
    model = model.to(floating)
    for name, value in model.state_dict().items():
        if value.dtype != tensors[name].dtype:
            raise FileFormatError(f"{path}: {name} has dtype {tensors[name].dtype}, the model needs {value.dtype}")
    model.load_state_dict(tensors, strict=True)
    return model


@contextlib.contextmanager
def _at_most(tensors: int, path: Path) -> Iterator[None]:
    """Raise an error once a model built in this thread has more tensors or modules than its file can fill."""
    remaining, me = {"tensors": 2 * tensors + 16, "modules": 4 * tensors + 100}, threading.get_ident()

    def count(kind: str) -> None:
        if threading.get_ident() == me:
            remaining[kind] -= 1
            if remaining[kind] < 0:
                raise FileFormatError(f"{path} describes more parts than its {tensors} tensors")

    hooks = [
        registration.register_module_parameter_registration_hook(
            lambda _, name, value: count("modules" if value is None else "tensors")
        ),
        registration.register_module_module_registration_hook(lambda *_: count("modules")),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _check_shapes(path: Path, expected: dict[str, tuple[int, ...]], tensors: dict[str, Tensor]) -> None:
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or extra:
        text = "; ".join(
            f"{word} {', '.join(names[:3])}" for word, names in (("missing", missing), ("unknown", extra)) if names
        )
        raise FileFormatError(f"{path} does not fit its own description: {text}")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise FileFormatError(f"{path}: {name} must have shape {shape}, got {tuple(tensors[name].shape)}")


def _integers(value: Any) -> Iterator[int]:
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _integers(item)
    elif isinstance(value, int):
        yield value
