"""Number of BLAS threads: one for small matrices.

A BLAS that shares a small product among threads waits longer for them than it computes, several times longer on busy
cores. With one thread sums also have a fixed order, so that results do not depend on the number of cores.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from threadpoolctl import ThreadpoolController

_SMALL = 256  # rows up to which one thread is faster


_CARRIERS = ("scipy.linalg", "torch", "slycot")
"""Packages with a BLAS of their own beside numpy's: a controller knows those loaded before it was made."""


@functools.cache
def _controller(loaded: tuple[str, ...]) -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def threads_for(states: int) -> Iterator[None]:
    """Run the block on one BLAS thread for matrices of at most 256 rows, else on the present number.

    Args:
        states: number of rows.

    Example:
        >>> with threads_for(8):
        ...     pass
    """
    with nullcontext() if states > _SMALL else limited_threads(1):
        yield


@contextmanager
def limited_threads(number: int, user_api: str | None = "blas") -> Iterator[None]:
    """Limit the threads of the loaded libraries for the block.

    Args:
        number: number of threads.
        user_api: kind of libraries, as in ``threadpoolctl``; ``None``: all.

    Example:
        >>> with limited_threads(1):
        ...     pass
    """
    loaded = tuple(name for name in _CARRIERS if name in sys.modules)
    try:
        inside: AbstractContextManager[object] = _controller(loaded).limit(limits=number, user_api=user_api)
    except Exception:  # noqa: BLE001 - what lists the libraries of this process is out of order
        inside = nullcontext()
    with inside:
        yield
