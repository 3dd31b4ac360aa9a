"""Early end of a training, and the random seed of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stop(Exception):
    """Early end of a training.

    Args:
        stopped: reason code, a value of ``TrainResult.stopped``.
        detail: reason as a sentence.
    """

    def __init__(self, stopped: str, detail: str) -> None:
        super().__init__(detail)
        self.stopped, self.detail = stopped, detail


@contextmanager
def stopping(words: str, *errors: type[Exception]) -> Iterator[None]:
    """Convert exceptions within a block to ``Stop`` with the reason ``diverged``.

    Args:
        words: explanation in the message.
        *errors: exception types to convert.

    Raises:
        Stop: the block raised one of these exceptions.
    """
    try:
        yield
    except errors as error:
        raise Stop("diverged", f"{words}: {error}") from error


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch for a block; the caller's random state is restored afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
