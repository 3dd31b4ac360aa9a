"""Weights of recurrent layers of Keras, by the names and in the order that torch has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, FileFormatError, UnsupportedError

_NAME = "recurrent_kernel"
_GATES = {1: (0,), 3: (1, 0, 2), 4: (0, 1, 2, 3)}
"""Order of the gates: Keras has z, r, h where torch has r, z, n; those of an LSTM are in the same order."""


def torch_names(arrays: Mapping[str, Any], cell: str | None, where: str) -> dict[str, Any]:
    """Return a state dict of torch in which ``kernel``, ``recurrent_kernel`` and ``bias`` are those of its layers.

    Args:
        arrays: by name, ``lstm/kernel:0`` or ``kernel``.
        cell: the cell that the user named; weights of Keras do not tell the activations.
        where: what errors call the file.

    Raises:
        ConfigurationError: no cell was named.
        FileFormatError: shapes that do not fit together, or no ``kernel``.
        UnsupportedError: a GRU whose reset gate acts before the recurrent weights (``reset_after=False``).
    """
    out = dict(arrays)
    for key in [name for name in arrays if name.removesuffix(":0").endswith(_NAME)]:
        stem, _, end = key.rpartition(_NAME)
        R, W, b = (out.pop(f"{stem}{name}{end}", None) for name in (_NAME, "kernel", "bias"))
        if W is None or R.ndim != 2 or W.ndim != 2 or R.shape[1] != W.shape[1] or R.shape[1] % max(1, len(R)):
            raise FileFormatError(f"{where}: kernel and {_NAME} do not fit together")
        n, gates = len(R), R.shape[1] // max(1, len(R))
        if gates not in _GATES or (b is not None and b.shape not in ((gates * n,), (2, gates * n))):
            raise FileFormatError(f"{where}: {_NAME} {R.shape} and its bias are those of no SimpleRNN, GRU or LSTM")
        if cell is None:
            raise ConfigurationError(
                f"{where} holds a Keras layer of {gates} gates, whose activations are not in the file: where they are "
                "the defaults (tanh, sigmoid), name the cell, --cell rnn_tanh, gru or lstm"
            )
        if gates == 3 and (b is None or b.ndim == 1):
            raise UnsupportedError(f"{where}: a Keras GRU is read with reset_after=True, whose bias has two rows")
        rows = np.concatenate([np.arange(g * n, (g + 1) * n) for g in _GATES[gates]])
        path = f"{stem.rstrip('/').replace('/', '.')}." if stem.rstrip("/") else ""
        biases = [] if b is None else [*np.atleast_2d(b), np.zeros(gates * n)][:2]
        for name, value in zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), (W.T, R.T, *biases)):
            out[path + name] = value[rows]
    return out
