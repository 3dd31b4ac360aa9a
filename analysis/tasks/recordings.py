"""Recordings as they are distributed: ``.wav`` files (RIFF) and the NIST SPHERE files of TIMIT."""

from __future__ import annotations

import io
import wave
from pathlib import Path

import numpy as np

from stability.errors import FileFormatError

from .folders import read_bytes

_HEADER = 1024


def read_wave(path: Path, rate: int) -> np.ndarray:
    """A ``.wav`` file of one channel of 16 bits.

    Args:
        path: the file.
        rate: samples a second that it must have.

    Returns:
        int16 samples, at least one.

    Raises:
        FileFormatError: unreadable, damaged, or of another kind.
    """
    body = read_bytes(path)
    try:
        with wave.open(io.BytesIO(body), "rb") as file:
            kind = (file.getnchannels(), file.getsampwidth(), file.getframerate())
            raw = file.readframes(file.getnframes()) if kind == (1, 2, rate) else b""
    except (OSError, EOFError, wave.Error, RuntimeError) as error:  # the last for a chunk that is longer than the file
        raise FileFormatError(f"{path} is no readable .wav file: {str(error) or 'it ends early'}") from error
    if kind != (1, 2, rate):
        raise FileFormatError(f"{path} must be one channel of 16 bits at {rate} Hz")
    if len(raw) < 2 or len(raw) % 2:
        raise FileFormatError(f"{path} is empty or truncated")
    return np.frombuffer(raw, dtype="<i2")


def read_sphere(path: Path, rate: int) -> np.ndarray:
    """A NIST SPHERE file of uncompressed 16-bit samples of one channel, as TIMIT's; a RIFF file of the name, too.

    The header is ``NIST_1A``, its own size (1024), lines ``name -type value`` and ``end_head``, in ASCII.

    Args:
        path: the file.
        rate: samples a second that it must have.

    Returns:
        int16 samples, at least one.

    Raises:
        FileFormatError: unreadable, damaged, compressed (shorten), or of another kind.
    """
    body = read_bytes(path)
    if body[:4] == b"RIFF":  # converted copies of the corpus keep the name
        return read_wave(path, rate)
    order, count = _sphere_header(body, path, rate)
    raw = body[_HEADER:]
    if not count.isascii() or not count.isdigit() or len(count) > 9 or 2 * int(count) != len(raw) or not raw:
        raise FileFormatError(f"{path}: the header counts {count[:20] or 'no'} samples, {len(raw)} bytes follow it")
    return np.frombuffer(raw, dtype="<i2" if order == "01" else ">i2").astype(np.int16)


def _sphere_header(body: bytes, path: Path, rate: int) -> tuple[str, str]:
    """The order of the bytes, and how many samples there are said to be."""
    head = body[:_HEADER].split(b"\n")
    if len(body) < _HEADER or head[0] != b"NIST_1A" or head[1].strip() != b"1024":
        raise FileFormatError(f"{path} is no SPHERE file: it must begin with NIST_1A and a header of 1024 bytes")
    if b"end_head" not in head:
        raise FileFormatError(f"{path}: the SPHERE header has no end_head")
    fields = {}
    for line in head[2 : head.index(b"end_head")]:
        parts = line.decode("ascii", "replace").split(" ", 2)
        if len(parts) == 3:
            fields[parts[0]] = parts[2].strip()
    wanted = {"channel_count": "1", "sample_n_bytes": "2", "sample_rate": str(rate)}
    for name, value in wanted.items():
        if fields.get(name, value) != value:
            raise FileFormatError(f"{path}: {name} is {fields[name][:20]}, it must be {value}")
    coding = fields.get("sample_coding", "pcm")
    if coding != "pcm":
        raise FileFormatError(f"{path}: its samples are coded as {coding[:40]}; unpack them to pcm first (sph2pipe -p)")
    order = fields.get("sample_byte_format", "01")
    if order not in ("01", "10"):
        raise FileFormatError(f"{path}: sample_byte_format is {order[:20]}, it must be 01 or 10")
    return order, fields.get("sample_count", "")


def log_spectra(samples: np.ndarray, window: int, hop: int) -> np.ndarray:
    r"""Logarithms of magnitudes of short-time spectra, :math:`\log(|F_k| + 10^{-8})` with a Hann window.

    Args:
        samples: int16, or floats in [-1, 1].
        window: samples of a frame.
        hop: samples between frames.

    Returns:
        ``(frames, window // 2 + 1)`` float32; a recording shorter than a window has one frame, zeros at its end.

    Example:
        >>> log_spectra(np.zeros(512, np.int16), 256, 128).shape
        (3, 129)
    """
    signal = samples.astype(np.float64) / (32768.0 if samples.dtype == np.int16 else 1.0)
    signal = np.pad(signal, (0, max(0, window - len(signal))))
    frames = np.lib.stride_tricks.sliding_window_view(signal, window)[::hop]
    spectra = np.abs(np.fft.rfft(frames * np.hanning(window + 1)[:-1], axis=1))
    return np.log(spectra + 1e-8).astype(np.float32)
