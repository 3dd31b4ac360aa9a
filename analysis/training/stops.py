"""What ends a training before its last epoch, and the random numbers of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stop(Exception):
    """Training ends here.

    Args:
        stopped: why, as ``TrainResult.stopped`` has it.
        detail: the same in a sentence.
    """

    def __init__(self, stopped: str, detail: str) -> None:
        super().__init__(detail)
        self.stopped, self.detail = stopped, detail


@contextmanager
def stopping(words: str, *errors: type[Exception]) -> Iterator[None]:
    """Training has diverged where one of these errors comes.

    Args:
        words: what it is a sign of.
        errors: their types.

    Raises:
        Stop: one came.
    """
    try:
        yield
    except errors as error:
        raise Stop("diverged", f"{words}: {error}") from error


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout and the like depend on the seed alone; the caller's random state stays as it is."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
