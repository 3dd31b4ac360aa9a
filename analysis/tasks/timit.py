"""TIMIT: read sentences with a phone at every moment, from the folders of its distribution."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from stability.errors import FileFormatError
from stability.kernel.checks import as_choice

from .base import Pair, Task, check_size, majority, register_task, task_of
from .folders import check_numbers, chosen, data_folder, read_text
from .recordings import log_spectra, read_sphere
from .scores import IGNORED, padded

RATE = 16_000
_39 = "iy ih eh ae ah uw uh aa ey ay oy aw ow er l r w y m n ng dx v f dh th z s sh ch jh b p d t g k hh sil"
PHONES = tuple(_39.split())
"""The 39 classes to which Lee and Hon (1989) fold the 61 phones; the glottal stop ``q`` is none of them."""
_FOLDED = {
    "ix": "ih", "ax": "ah", "ax-h": "ah", "ux": "uw", "ao": "aa", "axr": "er", "el": "l", "em": "m", "en": "n",
    "nx": "n", "eng": "ng", "hv": "hh", "zh": "sh",
    **dict.fromkeys(("pcl", "tcl", "kcl", "bcl", "dcl", "gcl", "h#", "pau", "epi", "sil"), "sil"),
}  # fmt: skip
TARGETS = ("phones", "next")


@register_task("timit")
def timit(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    target: str = "phones",
    window: int = 512,
    hop: int = 256,
    length: int = 500,
    limit: int | None = None,
    test_limit: int | None = None,
) -> Task:
    """TIMIT as sequences of short-time spectra: the phone at every frame, or the next frame.

    Log-magnitudes under a Hann window (512 samples at 16 kHz are the 256 at 8 kHz of scoRNN and its successors, 257
    features in place of 129). Sentences ``SA1`` and ``SA2``, which every speaker reads, are left out, as usual. They
    have their own lengths: padding has no target.

    Args:
        data_dir: folder with ``TRAIN`` and ``TEST`` (or one with a subfolder ``TIMIT``), each with dialects, speakers,
            and ``.WAV`` (SPHERE) beside ``.PHN``; upper or lower case.
        seed: of the choice under the limits.
        target: ``"phones"`` (39 of Lee and Hon 1989, the one in the middle of the frame) or ``"next"`` (the next
            frame, mean squared error).
        window: samples of a frame.
        hop: samples between frames.
        length: frames of a sentence at most; the end of a longer one is cut.
        limit: how many training sentences at most.
        test_limit: how many test sentences at most.

    Returns:
        The task: a class, or the values of the next frame, at every step.

    Raises:
        ConfigurationError: a bad option or no folder.
        FileFormatError: missing or damaged data.
    """
    as_choice("target", target, TARGETS)
    for name, value, most in (("window", window, 2**16), ("hop", hop, 2**16), ("length", length, 10**6)):
        check_size(name, value, 2 if name == "length" else 1, most)
    place = data_folder(data_dir, "timit", "the folders TRAIN and TEST of the corpus", "TIMIT", "timit")
    rng = np.random.default_rng(seed)
    parts: list[Pair] = []
    for folder, name, most in (("train", "limit", limit), ("test", "test_limit", test_limit)):
        files = _sentences(place, folder)
        rows = chosen(len(files), most, name, rng)
        check_numbers(place, len(rows), length, window // 2 + 1)
        read = [_sentence(files[row], window, hop, length, target) for row in rows]
        x = padded([frames for frames, _ in read], length - (target == "next"))
        parts.append((x, _targets([y for _, y in read], x.shape[1])))
    source = {"source": "folder", "folder": str(place.resolve()), "what": f"TIMIT, {target}", "seed": seed}
    if target == "next":
        return task_of(*parts, data=source)
    return task_of(*parts, output_size=len(PHONES), classes=PHONES, data=source, chance=majority(parts[1][1]))


def _sentences(place: Path, part: str) -> list[Path]:
    """Recordings of a part, without the sentences that all speakers read."""
    found = [p for p in place.iterdir() if p.is_dir() and p.name.lower() == part]
    if not found:
        raise FileFormatError(f"{place} has no folder {part.upper()}")
    files = [p for p in sorted(found[0].rglob("*")) if p.suffix.lower() == ".wav" and p.stem[:2].lower() != "sa"]
    if not files:
        raise FileFormatError(f"{found[0]} holds no .WAV files beside those of SA1 and SA2")
    return files


def _sentence(path: Path, window: int, hop: int, length: int, target: str) -> tuple[np.ndarray, np.ndarray]:
    """Frames and targets of a sentence, at most ``length`` of them."""
    samples = read_sphere(path, RATE)
    frames = log_spectra(samples, window, hop)[:length]
    if target == "next":
        if len(frames) < 2:
            raise FileFormatError(f"{path} has one frame of {window} samples, and so no next one")
        return frames[:-1], frames[1:]
    centres = hop * np.arange(len(frames)) + window // 2
    return frames, _phones(path, np.minimum(centres, len(samples) - 1))


def _phones(path: Path, at: np.ndarray) -> np.ndarray:
    """The phones at these samples, from lines ``begin end phone`` of the file beside the recording."""
    beside = [p for p in (path.with_suffix(".PHN"), path.with_suffix(".phn")) if p.is_file()]
    if not beside:
        raise FileFormatError(f"{path} has no .PHN file beside it")
    begins, ends, names = [], [], []
    for number, line in enumerate(read_text(beside[0]).splitlines(), start=1):
        parts = line.split()
        good = len(parts) == 3 and all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts[:2])
        phone = _FOLDED.get(parts[2], parts[2]) if good else ""
        if not good or int(parts[0]) >= int(parts[1]) or (phone not in PHONES and phone != "q"):
            raise FileFormatError(f"{beside[0]}: line {number} is no 'begin end phone' of TIMIT: {line[:40]!r}")
        if ends and int(parts[0]) < ends[-1]:
            raise FileFormatError(f"{beside[0]}: line {number} begins before the one above it ends")
        begins.append(int(parts[0]))
        ends.append(int(parts[1]))
        names.append(phone)
    if not names:
        raise FileFormatError(f"{beside[0]} is empty")
    code = {p: k for k, p in enumerate(PHONES)}
    rows = np.clip(np.searchsorted(begins, at, side="right") - 1, 0, None)
    inside = (at >= np.array(begins)[rows]) & (at < np.array(ends)[rows])
    found = np.array([code.get(n, IGNORED) for n in names])[rows]
    return np.where(inside, found, IGNORED)


def _targets(targets: list[np.ndarray], length: int) -> torch.Tensor:
    """Targets of sentences in one batch; padding has none."""
    if targets[0].ndim == 1:
        out = torch.full((len(targets), length), IGNORED)
    else:
        out = torch.full((len(targets), length, targets[0].shape[1]), float("nan"))
    for row, own in zip(out, targets):
        row[: len(own)] = torch.from_numpy(own)
    return out
