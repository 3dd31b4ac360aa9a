"""Speech Commands: one-second recordings of single words, from the folders of its distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.checks import as_choice

from .base import Task, check_size, register_task, task_of
from .folders import MAX_FILES, chosen, data_folder, labelled, one_form, read_text
from .recordings import read_wave

RATE = 16_000
_LISTS = {"test": "testing_list.txt", "validation": "validation_list.txt"}


@register_task("speech_commands")
def speech_commands(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    words: str = "",
    frame: int = 1,
    held: str = "test",
    limit: int | None = None,
    test_limit: int | None = None,
) -> Task:
    """Speech Commands (Warden 2018): raw samples in [-1, 1], at most one second at 16 kHz.

    A folder a word, with ``.wav`` files; ``validation_list.txt`` and ``testing_list.txt`` name those that are not for
    training, as ``word/file.wav``. Folders that begin with ``_`` (background noise) are no words. Recordings that are
    shorter than a second keep their length: they are padded, and read out at their own last step.

    Args:
        data_dir: the folder (or one with a subfolder ``speech_commands``).
        seed: of the choice under the limits.
        words: which words, with commas between them; empty for all.
        frame: samples that one time step sees (1: as raw as can be); 16,000 must be a multiple of it.
        held: which list is the test part, ``"test"`` or ``"validation"``; neither is trained on.
        limit: how many training recordings at most.
        test_limit: how many test recordings at most.

    Returns:
        The task: one class per sequence.

    Raises:
        ConfigurationError: a bad option or no folder.
        FileFormatError: missing or damaged data, or a list that names what is not there.
    """
    as_choice("held", held, _LISTS)
    if RATE % check_size("frame", frame):
        raise ConfigurationError(f"frame must divide {RATE}, got {frame}")
    place = data_folder(data_dir, "speech_commands", "a folder of .wav files for each word", "speech_commands")
    named = _words(place, words)
    files = [path for word in named for path in sorted((place / word).glob("*.wav"))]
    if not files:
        raise FileFormatError(f"{place}: the folders {', '.join(named[:8])} hold no .wav file")
    if len(files) > MAX_FILES:
        raise FileFormatError(f"{place} has {len(files)} recordings; at most {MAX_FILES} are read")
    lists = {part: _listed(place, name, set(named)) for part, name in _LISTS.items()}
    apart = lists["test"] | lists["validation"]
    of = {path: f"{path.parent.name}/{path.name}" for path in files}
    rng = np.random.default_rng(seed)
    parts = []
    for name, most, part in (
        ("limit", limit, [p for p in files if of[p] not in apart]),
        ("test_limit", test_limit, [p for p in files if of[p] in lists[held]]),
    ):
        if not part:
            raise FileFormatError(f"{place} has no recordings for {'training' if name == 'limit' else held}")
        rows = chosen(len(part), most, name, rng)
        sequences = [_frames(part[row], frame) for row in rows]
        labels = np.array([named.index(part[row].parent.name) for row in rows])
        parts.append(labelled(place, sequences, labels, RATE // frame))
    source = {"source": "folder", "folder": str(place.resolve()), "what": "Speech Commands", "seed": seed}
    return task_of(*one_form(*parts), output_size=len(named), bounds=(-1.0, 1.0), classes=tuple(named), data=source)


def _words(place: Path, words: str) -> list[str]:
    there = sorted(p.name for p in place.iterdir() if p.is_dir() and not p.name.startswith(("_", ".")))
    asked = [word.strip() for word in str(words).split(",") if word.strip()]
    missing = [word for word in asked if word not in there]
    if missing:
        raise ConfigurationError(f"{place} has no folder {missing[0]!r}; it has {', '.join(there[:40]) or 'none'}")
    named = sorted(set(asked)) or there
    if len(named) < 2:
        raise FileFormatError(f"{place} needs folders of two words or more, it has {len(named)}")
    return named


def _listed(place: Path, name: str, words: set[str]) -> set[str]:
    """The recordings of these words that a list names; each must be there."""
    lines = {line.strip() for line in read_text(place / name).splitlines() if line.strip()}
    own = {line for line in lines if line.partition("/")[0] in words}
    odd = next((line for line in sorted(own) if line.count("/") != 1 or ".." in line), None)
    if odd is not None or (lines and not any("/" in line for line in lines)):
        raise FileFormatError(f"{place / name} must name recordings as word/file.wav, it has {str(odd)[:60]!r}")
    gone = next((line for line in sorted(own) if not (place / line).is_file()), None)
    if gone is not None:
        raise FileFormatError(f"{place / name} names {gone[:80]}, which is not there")
    return own


def _frames(path: Path, frame: int) -> np.ndarray:
    """Whole frames of the first second, ``(time, frame)`` in [-1, 1]; one at least, zeros at its end."""
    samples = read_wave(path, RATE)[:RATE].astype(np.float32) / np.float32(32768)
    samples = np.pad(samples, (0, max(0, frame - len(samples))))
    return samples[: len(samples) // frame * frame].reshape(-1, frame)
