"""The box that inputs stay in, in all forms of ``--input-box``: two numbers, the range of the data, a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stability.errors import ConfigurationError, DimensionError, FileFormatError

if TYPE_CHECKING:
    import numpy as np

OPTION, SOURCE = "--input-box", "--input-box-from"
DATA = "data"


def rewrite_box_option(arguments: Sequence[str]) -> list[str]:
    """Rewrite ``--input-box WORD`` as ``--input-box-from WORD``, so that ``--input-box`` always takes two numbers.

    An option takes a fixed number of arguments, but ``LOW,HIGH``, ``data`` and a file name are one argument each. Only
    ``certify`` accepts ``data`` and a file name: reports and comparisons use the range of the data by default.

    Example:
        >>> rewrite_box_option(["report", "m.pt", "--input-box", "0,1"])
        ['report', 'm.pt', '--input-box', '0', '1']
        >>> rewrite_box_option(["certify", "--input-box=data"])
        ['certify', '--input-box-from', 'data']
        >>> rewrite_box_option(["--input-box", "-1", "1"])
        ['--input-box', '-1', '1']
    """
    out: list[str] = []
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*out, word, *words]
        value = word.partition("=")[2] if word.startswith(f"{OPTION}=") else None
        if word == OPTION and words and not _is_number(words[0]):
            value = words.pop(0)
        if value is None:
            out.append(word)
            continue
        parts = value.split(",")
        numbers = len(parts) == 2 and all(_is_number(end) for end in parts)
        if numbers:
            out += [OPTION, *(end.strip() for end in parts)]
        else:
            out += [SOURCE, value] if "certify" in out[:1] else [OPTION, value]
    return out


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def box_of(stated_box: tuple[float, float] | None, source: str | None, model: str, data: Any, seen: Any) -> Any:
    """Return the input box that a command line states.

    Args:
        stated_box: two numbers, of all inputs.
        source: ``data``, or the name of a file with a box for each input.
        model: the model's name.
        data: ``DataOptions``, for ``data``.
        seen: ``(model, data) -> (low, high)``, the range of a model's data.

    Returns:
        ``(low, high)``, or ``None`` where nothing is stated.

    Raises:
        ConfigurationError: two boxes, ends that are crossed or not finite, or data that are not asked for.
        FileFormatError: a file without a box.
    """
    asked = data.task is not None or data.file is not None or bool(data.settings)
    if stated_box is not None and source is not None:
        raise ConfigurationError("--input-box is given twice: leave one of them out")
    if asked and source != DATA:
        raise ConfigurationError(
            "--task and --data have no effect without --input-box data: add --input-box data, or leave them out"
        )
    if source == DATA:
        return seen(model, data)
    if source is not None:
        return read_box(source)
    if stated_box is None:
        return None
    return checked(*stated_box)


def checked(low: Any, high: Any) -> tuple[Any, Any]:
    """Both ends, finite and in order.

    Raises:
        ConfigurationError: where they are not.
    """
    import numpy as np  # loaded where a box is stated

    least, most = np.asarray(low, dtype=float), np.asarray(high, dtype=float)
    good = np.isfinite(least) & np.isfinite(most) & (least <= most)
    if not good.all():
        row = int(np.argmin(good))
        description = f"{low:g} {high:g}" if least.ndim == 0 else f"{least[row]:g} {most[row]:g} of input {row + 1}"
        raise ConfigurationError(f"an input box needs finite LOW <= HIGH, got {description}")
    return (float(low), float(high)) if least.ndim == 0 else (least, most)


def read_box(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Read bounds for each input from a ``.npz`` with ``low`` and ``high``, or from lines of two numbers.

    Raises:
        FileFormatError: missing, unreadable, or of another form.
        ConfigurationError: ends that are crossed or not finite.
    """
    import numpy as np

    from stability.storage.arrays import read_npz
    from stability.storage.read_errors import as_file_errors

    path = Path(name)
    if not path.is_file():
        raise FileFormatError(
            f"--input-box takes LOW HIGH, LOW,HIGH, data, or a file with a box; there is no file {name}"
        )
    if path.stat().st_size > 2**24:
        raise FileFormatError(f"{name} has {path.stat().st_size} bytes; a box of inputs has at most {2**24}")
    with as_file_errors(path, "holds no box of inputs: two numbers a line, low and high", (ValueError, UnicodeError)):
        with path.open("rb") as handle:
            start = handle.read(6)
        if not start.startswith(b"PK"):
            rows = [line.replace(",", " ").split() for line in path.read_text("utf-8").splitlines() if line.strip()]
            if not rows or any(len(row) != 2 for row in rows):
                raise ValueError("not two numbers a line")
            table = np.array([[float(word) for word in row] for row in rows])
            low, high = checked(table[:, 0], table[:, 1])
            return low, high
    arrays = read_npz(path)
    if set(arrays) != {"low", "high"} or any(a.dtype.kind not in "fiu" for a in arrays.values()):
        raise FileFormatError(f"{name} must hold arrays low and high, one number for each input")
    low, high = (np.asarray(arrays[key], dtype=float).reshape(-1) for key in ("low", "high"))
    if low.shape != high.shape:
        raise DimensionError("high", low.shape, high.shape, "one entry for each entry of low")
    return checked(low, high)


def words_of(box: Any, source: str | None) -> list[str]:
    """Return the input box as an option for another command."""
    if box is None:
        return []
    if source is not None:
        return [OPTION, source]
    low, high = box
    return [OPTION, *(repr(float(end)).removesuffix(".0") for end in (low, high))]
