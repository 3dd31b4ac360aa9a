"""Thread counts of torch and BLAS, and the lock that lets jobs of one process take turns.

With a fixed count, sums have the same order on every machine. ``stability.threads`` limits BLAS.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from stability.threads import limited_threads

ONE = threading.RLock()
"""Lock of the process: jobs set seeds and thread counts of the whole process, so they take turns."""

_SHARED = 1 << 18
"""Entries of a matrix from which on its products use several threads."""


@contextmanager
def threads_fitting(model: nn.Module) -> Iterator[None]:
    """Limit torch to one thread for a model with small parameters only.

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
    parameters = [p for p in model.parameters() if not hasattr(p, "materialize")]  # lazy ones have no size yet
    small = all(p.numel() <= _SHARED and p.device.type == "cpu" for p in parameters)
    with _torch_on(1 if small else torch.get_num_threads()):
        yield


@contextmanager
def with_threads(number: int) -> Iterator[None]:
    """Set the number of threads of torch and BLAS for a block.

    Args:
        number: number of threads.

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
