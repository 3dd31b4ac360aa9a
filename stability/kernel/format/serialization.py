"""Serialization of claims and subjects: JSON with bit-exact arrays and a digest.

An array is ``{"array": BASE64, "shape": [...]}``: little-endian IEEE-754 binary64, row-major. A subject is
``{"type": NAME, ...}``. ``docs/certificate-format.md`` describes the format for writers of other checkers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stability.errors import FileFormatError, StabilityError
from stability.kernel.format.lazy_table import Table

SUBJECTS: Table[type] = Table(
    {
        "lure": "stability.kernel.systems.lure",
        "loop": "stability.kernel.systems.driven",
        "driven": "stability.kernel.systems.driven",
        "pairwise": "stability.kernel.systems.pairwise",
        "gated": "stability.kernel.systems.gated_cell",
        "cascade": "stability.kernel.systems.layer_stack",
        "residual": "stability.kernel.systems.residual_stack",
        "classifier": "stability.kernel.systems.classifier",
        "opaque": "stability.kernel.systems.opaque",
        **dict.fromkeys(("norm_ball", "input_box", "vocabulary"), "stability.kernel.systems.input_sets"),
        **dict.fromkeys(
            ("affine_signal", "convolution_signal", "silu_signal", "tanh_signal", "normalized_signal"),
            "stability.kernel.systems.derived_signals",
        ),
        **dict.fromkeys(
            ("softplus_gate", "sigmoid_gate", "ratio_gate", "rg_lru_gate", "constant_gate"),
            "stability.kernel.systems.decay_gates",
        ),
        **dict.fromkeys(("rwkv_gate", "rwkv_injection"), "stability.kernel.systems.rwkv"),
        **dict.fromkeys(
            ("gated_linear", *(f"{k}_injection" for k in ("step", "convex", "root", "outer", "delta", "linear"))),
            "stability.kernel.systems.gated_linear",
        ),
    }
)
"""Types of subjects by their names in files."""
BLANK = "0" * 64


def subject(name: str) -> Any:
    """Decorate a subject type with ``payload() -> dict`` and ``from_payload(dict)`` to register it as ``name``."""

    def register(cls: type) -> type:
        SUBJECTS[name] = cls
        cls.wire_name = name  # type: ignore[attr-defined]
        return cls

    return register


def is_subject(value: Any) -> bool:
    """Return True for a subject itself, neither a subclass nor a convertible object."""
    return "wire_name" in vars(type(value))


def encode(value: Any) -> Any:
    """Turn numbers, strings, arrays, mappings, sequences and subjects into JSON values.

    Raises:
        FileFormatError: for a value the format has no place for, or a number that is not finite.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise FileFormatError("a certificate cannot hold NaN or infinite numbers")
        return float(value)
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value, dtype="<f8")
        if not np.isfinite(data).all():
            raise FileFormatError("a certificate cannot hold NaN or infinite entries")
        return {"array": base64.b64encode(data.tobytes()).decode("ascii"), "shape": list(value.shape)}
    if hasattr(type(value), "wire_name"):
        return {"type": type(value).wire_name, **{k: encode(v) for k, v in value.payload().items()}}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [encode(v) for v in value]
    raise FileFormatError(f"a certificate cannot hold a {type(value).__name__}")


def _array(value: Mapping[str, Any]) -> np.ndarray:
    shape = value["shape"]
    good = isinstance(shape, list) and len(shape) <= 3 and all(type(s) is int and 0 <= s < 2**31 for s in shape)
    if not good or not isinstance(value["array"], str):
        raise FileFormatError(f"an array has the bad shape {str(shape)[:60]}")
    try:
        raw = base64.b64decode(value["array"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise FileFormatError("an array is not valid base64") from error
    if len(raw) != 8 * math.prod(shape):
        raise FileFormatError(f"an array of shape {shape} needs {8 * math.prod(shape)} bytes, the file has {len(raw)}")
    if base64.b64encode(raw).decode("ascii") != value["array"]:
        raise FileFormatError("an array is not in the one base64 form of its bytes")
    out = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(out).all():
        raise FileFormatError("an array holds NaN or infinite entries")
    out.setflags(write=False)
    return out


def decode(value: Any) -> Any:
    """Invert ``encode``.

    Raises:
        FileFormatError: for anything that ``encode`` does not write.
    """
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"array", "shape"}:
        return _array(value)
    if "type" in value:
        cls = SUBJECTS.get(value["type"]) if isinstance(value["type"], str) else None
        if cls is None:
            raise FileFormatError(f"unknown subject type {str(value['type'])[:60]!r}; known: {', '.join(SUBJECTS)}")
        try:
            made = cls.from_payload({k: decode(v) for k, v in value.items() if k != "type"})  # type: ignore[attr-defined]
            strange = _difference(value, encode(made))
            if strange is not None:
                raise FileFormatError(f"a subject of type {value['type']} is not as this format writes it: {strange}")
            return made
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise FileFormatError(f"a subject of type {value['type']} is incomplete: {error}") from error
        except FileFormatError:
            raise
        except StabilityError as error:
            raise FileFormatError(f"a subject of type {value['type']} is invalid: {error}") from error
    return {k: decode(v) for k, v in value.items()}


def _difference(given: Any, canonical: Any) -> str | None:
    """Return the position where a JSON value differs from the re-encoded result of reading it, or ``None``.

    So nothing in a subject goes unread: no key that means nothing, no other spelling of an array, no ``true`` for one.
    """
    if isinstance(given, dict) and isinstance(canonical, dict):
        for key in (*given, *canonical):
            if key not in canonical or key not in given:
                return f"the key {str(key)[:60]!r} is {'unknown' if key not in canonical else 'missing'}"
            inner = _difference(given[key], canonical[key])
            if inner is not None:
                return inner if isinstance(given[key], dict) else f"{str(key)[:60]}: {inner}"
        return None
    if isinstance(given, list) and isinstance(canonical, list) and len(given) == len(canonical):
        return next((d for a, b in zip(given, canonical) if (d := _difference(a, b)) is not None), None)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (given, canonical))
    if (numbers or type(given) is type(canonical)) and given == canonical:
        return None
    return f"{str(given)[:60]} stands for {str(canonical)[:60]}"


def digest_of(value: Any) -> str:
    """Return the SHA-256 of a value's encoding, 64 hexadecimal digits: the identity of a subject.

    Raises:
        FileFormatError: for a value that the format has no place for.
    """
    return _hash(json.dumps(encode(value), ensure_ascii=False, allow_nan=False, sort_keys=True))


def seal(document: Mapping[str, Any]) -> str:
    """Return the document as text whose ``digest`` is the SHA-256 of the text with that digest set to zeros.

    So every changed character is noticed, those in the last digit of a number that still reads as the same float too.

    Raises:
        ValueError: when the document holds NaN or infinities (``encode`` lets none through).
    """
    text = json.dumps({**document, "digest": BLANK}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.replace(f'"digest": "{BLANK}"', f'"digest": "{_hash(text)}"')


def is_sealed(text: str, document: Mapping[str, Any]) -> bool:
    """Return True if ``seal`` returned this text."""
    claimed = document.get("digest")
    if not isinstance(claimed, str) or len(claimed) != len(BLANK) or text.count(f'"{claimed}"') != 1:
        return False
    return _hash(text.replace(f'"{claimed}"', f'"{BLANK}"')) == claimed


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()
