"""Models given as a name, a path or a state dict in Python calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stability.conversion.subjects import register_converter

from .adapters.state_dicts import state_dict_subject


def named_subject(spec: str | Path) -> Any:
    """Return the subject of claims about a name or path, as on the command line, or a state dict.

    Args:
        spec: a run directory, a file of weights (``.pt``, ``.safetensors``, ``.npz``, ``.onnx``), or
            ``package.module:factory``, whose code then runs; ``#part`` behind it takes one recurrent part of several.

    Returns:
        What ``certify`` asks about.

    Raises:
        FileFormatError: missing, unreadable, hostile, or of no known form.
        ConfigurationError: ambiguous.
        UnsupportedError: a model for which there is no criterion.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from stability import certify
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/loop.npz", A=[[-2.0]], W=[[1.0]])
        ...     str(certify(f"{folder}/loop.npz").verdict)
        'certified'
    """
    from .sources import load_subject

    return load_subject(spec).subject


register_converter(lambda value: isinstance(value, (str, Path)), named_subject)
register_converter(lambda value: isinstance(value, Mapping), lambda state: state_dict_subject(state)[0])
