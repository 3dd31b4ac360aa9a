"""So many threads for one job of a process, and one job at a time: sums are in the same order everywhere."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import ThreadpoolController

ONE = threading.RLock()
"""Jobs set the seeds and the threads of their process: threads of one process take turns."""


@functools.cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def with_threads(number: int) -> Iterator[None]:
    """So many threads for torch and BLAS, whatever the process was told.

    Args:
        number: of threads.

    Example:
        >>> with with_threads(1):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        with _controller().limit(limits=number):
            yield
    finally:
        if before != number:
            torch.set_num_threads(before)
