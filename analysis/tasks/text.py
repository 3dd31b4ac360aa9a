"""Prediction of the next symbol of a text: characters of any text file, characters or words of the Penn Treebank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice

from .base import Pair, Task, check_fraction, check_size, register_task, task_of
from .folders import check_numbers, data_folder, read_text
from .scores import METRICS, entropy

MAX_SYMBOLS = 256
UNKNOWN = "<unk>"


@register_task("characters")
def characters(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    file: str | None = None,
    steps: int = 64,
    ahead: int = 1,
    limit: int = 4000,
    test_limit: int = 1000,
    test_fraction: float = 0.1,
) -> Task:
    """Predict the character that comes ``ahead`` steps later, at every step of a text; characters are one-hot.

    The last ``test_fraction`` of the text is the test part; both are cut into pieces of ``steps`` characters
    that do not overlap, of which ``limit`` and ``test_limit`` are chosen at random. The alphabet is that of
    the whole file.

    Args:
        data_dir: folder with one ``.txt`` file (UTF-8), or the file itself.
        seed: of the choice of pieces.
        file: its name, when the folder has several.
        steps: length of a piece.
        ahead: how many characters ahead the target lies (1 and 5 in the literature).
        limit: how many training pieces at most.
        test_limit: how many test pieces at most.
        test_fraction: which share of the text is for testing.

    Returns:
        The task: one class per step, measured in bits per character; chance is the entropy of the characters'
        frequencies, the best that a guess without the input reaches.

    Raises:
        ConfigurationError: a bad option, no folder, or several texts to choose from.
        FileFormatError: no text, not UTF-8, too long, too short, or more than 256 different characters.
    """
    check_size("steps", steps)
    check_size("ahead", ahead, 1, 1000)
    check_size("limit", limit)
    check_size("test_limit", test_limit)
    check_fraction("test_fraction", test_fraction)
    if data_dir is None:
        raise ConfigurationError("task 'characters' needs data_dir, a folder with a .txt file")
    path = _find(Path(data_dir), file)
    text = read_text(path)
    alphabet = _alphabet(path, text)
    codes = _codes(text, alphabet)
    border = len(codes) - int(len(codes) * test_fraction)
    rng = np.random.default_rng(seed)
    train = _pieces(path, codes[:border], steps, limit, len(alphabet), rng, ahead)
    test = _pieces(path, codes[border:], steps, test_limit, len(alphabet), rng, ahead)
    source = {"source": "folder", "folder": str(Path(data_dir).resolve()), "what": path.name}
    return _text_task(train, test, "bits_per_character", {**source, "alphabet": "".join(alphabet), "seed": seed})


@register_task("treebank")
def treebank(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    units: str = "characters",
    vocabulary: int = 1000,
    steps: int = 50,
    ahead: int = 1,
    held: str = "test",
    limit: int = 2000,
    test_limit: int = 500,
) -> Task:
    """The Penn Treebank's text (Marcus et al. 1993, as prepared by Mikolov): the next character or word, at every step.

    Symbols are those of the training file. A line's end is a symbol (a word ``<eos>``); what the training file does not
    have, or not among its most frequent words, is ``<unk>``. Symbols are one-hot.

    Args:
        data_dir: folder with ``ptb.train.txt``, ``ptb.valid.txt`` and ``ptb.test.txt`` (or one with a subfolder
            ``ptb``).
        seed: of the choice of pieces.
        units: ``"characters"`` or ``"words"``.
        vocabulary: how many words at most, the most frequent ones, ``<unk>`` among them.
        steps: length of a piece; pieces do not overlap.
        ahead: how many symbols ahead the target lies.
        held: which file is the test part, ``"test"`` or ``"valid"``; neither is trained on.
        limit: how many training pieces at most.
        test_limit: how many test pieces at most.

    Returns:
        The task: one class per step, measured in bits per character, or by the perplexity of words; chance is that of
        the best guess without the input.

    Raises:
        ConfigurationError: a bad option or no folder.
        FileFormatError: missing or damaged files, or too short ones.
    """
    as_choice("units", units, ("characters", "words"))
    as_choice("held", held, ("test", "valid"))
    for name, value in (("steps", steps), ("limit", limit), ("test_limit", test_limit)):
        check_size(name, value)
    check_size("ahead", ahead, 1, 1000)
    check_size("vocabulary", vocabulary, 2)
    place = data_folder(data_dir, "treebank", "ptb.train.txt, ptb.valid.txt and ptb.test.txt", "ptb")
    paths = [place / f"ptb.{part}.txt" for part in ("train", held)]
    texts = [_symbols(read_text(path), units) for path in paths]
    symbols = _alphabet(paths[0], texts[0]) if units == "characters" else _frequent(texts[0], vocabulary)
    if UNKNOWN not in symbols:
        symbols = [*symbols, UNKNOWN]
    rng = np.random.default_rng(seed)

    def part(path: Path, text: list[str], most: int) -> Pair:
        check_numbers(place, min(most, len(text) // steps), steps, len(symbols))
        return _pieces(path, _codes(text, symbols), steps, most, len(symbols), rng, ahead)

    train, test = part(paths[0], texts[0], limit), part(paths[1], texts[1], test_limit)
    source = {"source": "folder", "folder": str(place.resolve()), "what": f"Penn Treebank, {units}", "seed": seed}
    metric = "perplexity" if units == "words" else "bits_per_character"
    return _text_task(train, test, metric, source, tuple(symbols))


def _text_task(
    train: Pair, test: Pair, metric: str, source: dict[str, Any], names: tuple[str, ...] | None = None
) -> Task:
    return task_of(
        train,
        test,
        output_size=train[0].shape[2],
        bounds=(0.0, 1.0),
        classes=names,
        measured_by=metric,
        chance=METRICS[metric].reported(entropy(test[1])),
        data=source,
    )


def _symbols(text: str, units: str) -> list[str]:
    if units == "characters":
        return list(text)
    return [word for line in text.splitlines() for word in (*line.split(), "<eos>")]


def _frequent(words: Sequence[str], most: int) -> list[str]:
    """The most frequent words, in order; ties by the alphabet."""
    counts = Counter(words)
    counts.pop(UNKNOWN, None)
    return [UNKNOWN, *sorted(counts, key=lambda word: (-counts[word], word))[: most - 1]]


def _alphabet(path: Path, text: Iterable[str]) -> list[str]:
    alphabet = sorted(set(text))
    if len(alphabet) > MAX_SYMBOLS:
        raise FileFormatError(f"{path} has {len(alphabet)} different characters; at most {MAX_SYMBOLS} are handled")
    return alphabet


def _codes(text: Sequence[str], symbols: Sequence[str]) -> np.ndarray:
    code = {symbol: k for k, symbol in enumerate(symbols)}
    other = code.get(UNKNOWN, -1)
    return np.fromiter((code.get(symbol, other) for symbol in text), dtype=np.int64, count=len(text))


def _find(place: Path, file: str | None) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise FileFormatError(f"data_dir {place} is neither a folder nor a file")
    if file is not None:
        return place / file
    found = sorted(place.glob("*.txt"))
    if not found:
        raise FileFormatError(f"{place} has no .txt file")
    if len(found) > 1:
        raise ConfigurationError(
            f"{place} has several texts; choose one with file=: {', '.join(p.name for p in found[:8])}"
        )
    return found[0]


def _pieces(
    path: Path, codes: np.ndarray, steps: int, limit: int, symbols: int, rng: np.random.Generator, ahead: int
) -> Pair:
    count = (len(codes) - ahead) // steps
    if count < 1:
        raise FileFormatError(
            f"{path} is too short: a part of it has {len(codes)} symbols, a piece needs {steps + ahead}"
        )
    starts = steps * rng.permutation(count)[:limit]
    windows = codes[starts[:, None] + np.arange(steps + ahead)]
    x = np.eye(symbols, dtype=np.float32)[windows[:, :steps]]
    return torch.from_numpy(x), torch.from_numpy(windows[:, ahead:].copy())
