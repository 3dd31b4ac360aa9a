"""So many threads for one job of a process, one job at a time, and one thread for models of small matrices.

Sums are in the same order everywhere then. BLAS is limited by what ``stability.threads`` knows of it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from stability.threads import limited_threads

ONE = threading.RLock()
"""Jobs set the seeds and the threads of their process: threads of one process take turns."""

_SHARED = 1 << 18
"""Numbers in a matrix from which on its products are shared among threads."""


@contextmanager
def threads_fitting(model: nn.Module) -> Iterator[None]:
    """One thread for torch where every parameter is small, whatever the environment says.

    A recurrence is a chain of small products: threads that share one wait for each other longer than they compute,
    and where other work keeps the cores busy the wait at each step is many times the step. A model on a GPU, or with
    a parameter of more than 2^18 numbers, keeps the threads that there are.

    Args:
        model: any module.

    Example:
        >>> with threads_fitting(nn.LSTM(8, 64)):
        ...     torch.get_num_threads()
        1
    """
    made = [p for p in model.parameters() if not hasattr(p, "materialize")]  # lazy ones have no size yet
    small = all(p.numel() <= _SHARED and p.device.type == "cpu" for p in made)
    with _torch_on(1 if small else torch.get_num_threads()):
        yield


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
    with _torch_on(number), limited_threads(number, None):
        yield


@contextmanager
def _torch_on(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)
