"""Several parts of a page drawn at a time."""

from __future__ import annotations

import contextlib
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

_shared: list[tuple[Sequence[Callable[[Any], Any]], Any]] = []
"""What is being drawn: processes are forked from this one, so that nothing has to travel to them."""


def _built(index: int) -> Any:
    builders, subject = _shared[-1]
    return builders[index](subject)


def abreast(builders: Sequence[Callable[[Any], Any]], subject: Any, processes: int = 1) -> list[Any]:
    """What each builder makes of a subject, in their order, ``processes`` of them at a time.

    Args:
        builders: called with the subject; they change nothing, and their results can be pickled.
        subject: anything.
        processes: at most so many at a time. Processes are forked, on Linux only; elsewhere, and where the system has
            no room for them (no ``/dev/shm`` that can be written to, say), this one does it all. It does what is left
            where one of them was killed, as happens for want of memory.

    Returns:
        The results: the same ones for any number of processes.

    Raises:
        Exception: the first that a builder raised.

    Example:
        >>> abreast([min, max, sum], (3, 1, 2))
        [1, 3, 6]
    """
    processes = min(processes, len(builders))
    if processes < 2 or sys.platform != "linux":
        return [build(subject) for build in builders]
    _shared.append((builders, subject))
    try:
        with contextlib.ExitStack() as stack:
            try:
                pool = stack.enter_context(
                    ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("fork"))
                )
                begun = [pool.submit(_built, index) for index in range(len(builders))]
            except (OSError, BrokenProcessPool):  # broken: killed before everything was handed over
                return [build(subject) for build in builders]
            return [_result(one, index) for index, one in enumerate(begun)]
    finally:
        _shared.pop()


def _result(begun: Future[Any], index: int) -> Any:
    try:
        return begun.result()
    except BrokenProcessPool:
        return _built(index)
