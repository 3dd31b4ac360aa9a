"""User arrays as a task, with all checks before any computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.checks import unmasked

from .base import Pair, Task, check_fraction, task_of
from .lengths import check_lengths, cut_to, padded
from .ranges import Range
from .scores import counted

MOST_CLASSES = 100_000  # a larger label is taken for a mistake, not for a class
MOST_TOKENS = 2**24
"""Largest token plus one: integers up to here are exact in float32."""


def task_from_arrays(
    x: Any,
    y: Any,
    *,
    x_test: Any = None,
    y_test: Any = None,
    classes: Sequence[str] | None = None,
    bounds: tuple[Any, Any] | None = None,
    held_out: float | None = None,
    lengths: Any = None,
    lengths_test: Any = None,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    seed: int = 0,
    name: str = "data",
) -> Task:
    """Make a task from user arrays.

    Integer targets are classes (cross entropy, accuracy), floating ones values (mean squared error). The sequences are
    put into an order drawn with ``seed``, since analyzers take the first so many, and files are often sorted by class.

    Args:
        x: ``(n, time, features)`` floating; kept as float32. Integers ``(n, time)`` are tokens: a model is examined
            behind its ``torch.nn.Embedding`` then, on what that gives. A list of sequences of unequal length is padded.
        y: ``(n,)`` integers (or booleans): classes from 0; ``(n, time)`` integers: a class at every step; ``(n,)``,
            ``(n, k)`` or ``(n, time, k)`` floating: values.
        x_test: ``(m, time, features)``, never trained on; comes with ``y_test``.
        y_test: targets of ``x_test``, of the kind of ``y``.
        classes: names of the classes, in the order of their numbers.
        bounds: low and high end that inputs can lie between, numbers or ``(features,)``: no attack leaves them, and
            LSTM and GRU are certified for inputs between them; by default the range of ``x`` over all features.
        held_out: share of the sequences to be held out as test part where there is no ``x_test``; ``None``: all of
            them serve as both parts (to examine a model that exists).
        lengths: ``(n,)`` integers, how many steps of each sequence of ``x`` are its own; ``None``: all. What lies
            behind them is padding: not used, not disturbed, without target. A target of a whole sequence is then asked
            at its own last step, of a model that answers at every step.
        lengths_test: the same for ``x_test``.
        loss: ``loss(outputs, targets) -> scalar`` to train with, and for the curvature, in place of cross entropy or
            mean squared error; accuracy and mean squared error are measured all the same.
        seed: seed of order and split.
        name: name of the task.

    Returns:
        The task.

    Raises:
        ConfigurationError: arrays of a wrong kind, labels that are no classes, bounds that are crossed or not finite,
            ``x`` outside of them.
        DimensionError: shapes that do not fit together.
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> task = task_from_arrays(rng.random((40, 5, 3)), np.arange(40) % 4, held_out=0.25)
        >>> tuple(task.train[0].shape), tuple(task.test[0].shape), task.metric_name, task.chance
        ((30, 5, 3), (10, 5, 3), 'accuracy', 0.4)
    """
    if (x_test is None) != (y_test is None):
        raise ConfigurationError("x_test and y_test must both be given: one of them is missing")
    x, lengths = _ragged("x", x, lengths)
    x_test, lengths_test = _ragged("x_test", x_test, lengths_test)
    tokens = _are_tokens(x)
    if tokens and bounds is not None:
        raise ConfigurationError("bounds apply to real inputs, and the data are tokens: leave them out")
    inputs, targets = _inputs("x", x), _targets("y", y)
    _same_length("x", inputs, "y", targets)
    unequal = lengths is not None or lengths_test is not None
    rng = np.random.default_rng(seed)
    parts = [(inputs, targets)]
    named = {"x": inputs}
    if x_test is not None:
        parts.append((_inputs("x_test", x_test), _targets("y_test", y_test)))
        _same_length("x_test", parts[1][0], "y_test", parts[1][1])
        _same_form(inputs, targets, *parts[1])
        named["x_test"] = parts[1][0]
        origin_of_test = "x_test is held out"
    kind = "values" if targets.dtype.is_floating_point else "classes"
    per_step = targets.dim() == (2 if kind == "classes" else 3)
    if per_step and targets.shape[1] != inputs.shape[1]:
        hint = "a target at every step; one-hot rows are classes after argmax(1)"
        raise DimensionError("y", (len(inputs), inputs.shape[1]), tuple(targets.shape), hint)
    if unequal:
        parts = _cut(parts, lengths, lengths_test)
        per_step, named = True, {name: pair[0] for name, pair in zip(named, parts)}
    parts = [_shuffled(pair, rng) for pair in parts]
    if x_test is None and held_out is None:
        parts = [parts[0], parts[0]]
        origin_of_test = "all sequences serve; whether the model was trained on them is not known"
    elif x_test is None:
        parts = _split(*parts[0], check_fraction("held_out", held_out))
        origin_of_test = f"{len(parts[1][0])} of the sequences, drawn with seed {seed}, are held out"
    names = _class_names(classes, kind)
    if kind == "values" and not per_step and targets.dim() == 1:
        parts = [(p, t[:, None]) for p, t in parts]
    origin = {} if bounds is None else {"bounds": "stated"}
    marks = {"tokens": True} if tokens else {}
    classed = {} if kind == "values" else {"output_size": _classes_of([t for _, t in parts], names)}
    return task_of(
        *parts,
        name=name,
        **classed,
        data={"source": "arrays", "seed": seed, "held_out": origin_of_test, **origin, **marks},
        bounds=_bounds(bounds, named),
        classes=names,
        own_loss=_check_loss(loss),
    )


def _cut(parts: list[Pair], lengths: Any, lengths_test: Any) -> list[Pair]:
    """Return the parts with their padding and with targets at every step."""
    if lengths_test is not None and len(parts) == 1:
        raise ConfigurationError("lengths_test needs x_test, which is missing")
    arguments = (("lengths", lengths), ("lengths_test", lengths_test))
    return [cut_to(check_lengths(name, own, pair[0]), *pair) for pair, (name, own) in zip(parts, arguments)]


def _array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    unmasked(name, value)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ConfigurationError(f"{name} is no array: its rows differ in length") from error
    if array.dtype.kind in "US" and name.startswith("y"):
        raise ConfigurationError(
            f"{name} holds texts (dtype {array.dtype}), classes are integers from 0: "
            f"classes, {name} = numpy.unique({name}, return_inverse=True)"
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ConfigurationError(f"{name} must hold numbers of at most 64 bits, it has dtype {array.dtype}")
    if 0 in array.shape:
        raise ConfigurationError(f"{name} is empty: its shape is {array.shape}")
    return array


def _inputs(name: str, value: Any) -> Tensor:
    array = _array(name, value)
    if array.dtype.kind != "f":
        if array.ndim == 2:
            return _tokens(name, array)
        raise ConfigurationError(f"{name} must be floating, it is {array.dtype}: save {name}.astype('float32')")
    if array.ndim != 3:
        hint = f"one feature is {name}[:, :, None]" if array.ndim == 2 else "sequences, time steps, features"
        raise DimensionError(name, "(n, time, features)", array.shape, hint)
    return _float32(name, array)


def _are_tokens(x: Any) -> bool:
    kind = x.detach().cpu().numpy().dtype.kind if isinstance(x, Tensor) else np.asarray(x).dtype.kind
    return np.ndim(x) == 2 and kind in "iub"


def _tokens(name: str, array: np.ndarray) -> Tensor:
    """Return tokens as sequences with one feature, exact in float32, until the model's embedding is known."""
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= MOST_TOKENS:
        raise ConfigurationError(f"{name} holds integers from {low} to {high}: tokens are numbered from 0")
    return torch.from_numpy(np.array(array, dtype=np.float32, order="C"))[:, :, None]


def _ragged(name: str, x: Any, lengths: Any) -> tuple[Any, Any]:
    """Pad a list of sequences of unequal length and return their lengths; return anything else unchanged."""
    if not isinstance(x, (list, tuple)) or not all(hasattr(row, "__len__") for row in x):
        return x, lengths
    if len({len(row) for row in x}) < 2 or any(np.ndim(row) not in (1, 2) for row in x):
        return x, lengths
    if lengths is not None:
        raise ConfigurationError(f"{name} is a list of sequences, which has its own lengths: leave lengths out")
    return padded(x)


def _check_loss(loss: Any) -> Any:
    if loss is not None and not callable(loss):
        raise ConfigurationError(f"loss must be a function (outputs, targets) -> number, got {type(loss).__name__}")
    return loss


def _float32(name: str, array: np.ndarray) -> Tensor:
    if not np.isfinite(array).all():
        raise NonFiniteError(name, "clean the data first")
    with np.errstate(over="ignore"):
        out = torch.from_numpy(np.array(array, dtype=np.float32, order="C"))
    if not torch.isfinite(out).all():
        raise ConfigurationError(f"{name} holds numbers beyond float32 (3.4e38): scale the data")
    return out


def _targets(name: str, value: Any) -> Tensor:
    array = _array(name, value)
    if array.ndim not in (1, 2, 3):
        raise DimensionError(name, "(n,), (n, k) or one target a step", array.shape)
    if array.dtype.kind == "f":
        _refuse_one_hot(name, array)
        return _float32(name, array)
    if array.ndim == 2 and array.shape[1] == 1:
        raise DimensionError(name, "(n,)", array.shape, f"a column of classes is {name}[:, 0]")
    if array.ndim == 3:
        raise DimensionError(name, "(n,) or (n, time)", array.shape, "integers are classes: one-hot ones after argmax")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= MOST_CLASSES:
        raise ConfigurationError(
            f"{name} spans {low} to {high}: integers are classes, numbered from 0 (below {MOST_CLASSES}); values are "
            f"floating, {name}.astype('float32')"
        )
    return torch.from_numpy(np.array(array, dtype=np.int64, order="C"))


def _refuse_one_hot(name: str, array: np.ndarray) -> None:
    """Raise an error for one-hot rows: as values they would be scored by their squared error without a warning."""
    if array.ndim < 2 or array.shape[-1] < 2 or array.size < 2 * array.shape[-1]:
        return
    if ((array == 0) | (array == 1)).all() and (array.sum(-1) == 1).all():
        raise ConfigurationError(f"{name} holds one-hot rows: classes are integers, {name}.argmax(-1)")


def _same_length(one: str, x: Tensor, other: str, y: Tensor) -> None:
    if len(x) != len(y):
        hint = f"one target a sequence of {one}"
        if len(y) == x.shape[1]:
            hint += f", which is (n, time, features): {one}.swapaxes(0, 1) if time comes first in it"
        raise DimensionError(other, f"({len(x)}, ...)", tuple(y.shape), hint)


def _same_form(x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor) -> None:
    if x.shape[1:] != x_test.shape[1:]:
        raise DimensionError("x_test", ("m", *x.shape[1:]), tuple(x_test.shape), "the steps and features of x")
    if y.shape[1:] != y_test.shape[1:] or y.dtype != y_test.dtype:
        raise ConfigurationError(
            f"y_test is {tuple(y_test.shape)} {y_test.dtype}, y is {tuple(y.shape)} {y.dtype}: both are of one kind"
        )


def _shuffled(pair: Pair, rng: np.random.Generator) -> Pair:
    order = torch.from_numpy(rng.permutation(len(pair[0])))
    return pair[0][order], pair[1][order]


def _split(x: Tensor, y: Tensor, share: float) -> list[Pair]:
    if len(x) < 2:
        raise ConfigurationError("one sequence cannot be split into training and test: pass x_test and y_test")
    held = min(len(x) - 1, max(1, round(share * len(x))))
    return [(x[held:], y[held:]), (x[:held], y[:held])]


def _class_names(classes: Any, kind: str) -> tuple[str, ...] | None:
    if classes is None:
        return None
    if kind == "values":
        raise ConfigurationError("classes are named, but y is floating: classes are integers, y.astype('int64')")
    if isinstance(classes, str) or not all(isinstance(n, str) and n for n in classes):
        raise ConfigurationError("classes must be a list of names, one for each class")
    if len(set(classes)) < len(classes):
        raise ConfigurationError("classes holds a name twice")
    return tuple(classes)


def _classes_of(targets: list[Tensor], names: tuple[str, ...] | None) -> int:
    seen = torch.unique(torch.cat([t[counted(t)] for t in targets]))
    if len(seen) < 2:
        raise ConfigurationError(f"y must hold at least two classes, got class {int(seen[0])} only")
    if names is not None and int(seen[-1]) >= len(names):
        raise ConfigurationError(f"y goes up to {int(seen[-1])}, but {len(names)} classes are named")
    return int(seen[-1]) + 1 if names is None else len(names)


def _bounds(bounds: Any, inputs: dict[str, Tensor]) -> Range:
    low, high = min(float(x.min()) for x in inputs.values()), max(float(x.max()) for x in inputs.values())
    if low == high:
        raise ConfigurationError(f"all entries of x equal {low:g}: the sequences do not differ")
    if bounds is None:
        return low, high
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise ConfigurationError(f"bounds must be a pair (lower, upper), got {str(bounds)[:80]}")
    features = int(inputs["x"].shape[2])
    pair = [_end(name, end, features) for name, end in zip(("lower", "upper"), bounds)]
    crossed = np.atleast_1d(pair[0] > pair[1])
    if crossed.any():
        j = int(np.argmax(crossed))
        one, other = (np.broadcast_to(end, (len(crossed),))[j] for end in pair)
        where = f" at feature {j}" if len(crossed) > 1 else ""
        raise ConfigurationError(f"the bounds are crossed: lower {one:g} > upper {other:g}{where}")
    for name, x in inputs.items():
        outside = (x.numpy() < pair[0]) | (x.numpy() > pair[1])
        if outside.any():
            i, t, j = (int(k) for k in np.argwhere(outside)[0])
            one, other = (np.broadcast_to(end, (features,))[j] for end in pair)
            raise ConfigurationError(
                f"{name}[{i}, {t}, {j}] is {float(x[i, t, j]):g}, outside of its bounds [{one:g}, {other:g}]; so are "
                f"{int(outside.sum())} of {outside.size} entries in all"
            )
    return tuple(float(end) if end.ndim == 0 else tuple(end.tolist()) for end in pair)  # type: ignore[return-value]


def _end(name: str, value: Any, features: int) -> np.ndarray:
    """Return one bound as float32, like the inputs: ``()`` or ``(features,)``."""
    array = _array(name, value)
    if array.dtype.kind == "b":
        raise ConfigurationError(f"{name} must hold numbers, it has dtype {array.dtype}")
    if array.shape not in ((), (features,)):
        raise DimensionError(name, f"one number or ({features},), one a feature", array.shape)
    if not np.isfinite(array).all():
        raise NonFiniteError(name, "a bound is a finite number")
    with np.errstate(over="ignore"):
        end = array.astype(np.float32)
    if not np.isfinite(end).all():
        raise ConfigurationError(f"{name} is beyond float32 (3.4e38)")
    return end
