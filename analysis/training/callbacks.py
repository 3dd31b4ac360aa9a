"""A tracker in the loops of Lightning and of Hugging Face's Trainer.

Each library is imported by who asks for its callback; neither is needed otherwise.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from stability.errors import UnsupportedError

from .logs import as_log
from .spectra import SpectrumTracker


def _library(*names: str) -> Any:
    for name in names:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise UnsupportedError(f"this callback is one of {names[0]}'s, which is not installed: pip install {names[0]}")


def lightning_callback(tracker: SpectrumTracker) -> Any:
    """A tracker as a callback of Lightning's ``Trainer``.

    It records at every ``tracker.every``-th optimizer step, names the epoch, and, where the tracker has no ``log`` of
    its own, writes to the trainer's loggers.

    Args:
        tracker: of the module that is trained, or of a part of it.

    Returns:
        ``Trainer(callbacks=[lightning_callback(tracker)])``.

    Raises:
        UnsupportedError: neither ``lightning`` nor ``pytorch_lightning`` is installed.

    Example:
        >>> import torch
        >>> try:
        ...     callback = lightning_callback(SpectrumTracker(torch.nn.RNN(2, 3)))
        ... except UnsupportedError as error:
        ...     print("lightning" in str(error))
        ... else:
        ...     print(hasattr(callback, "on_train_batch_end"))
        True
    """
    base = _library("lightning", "pytorch_lightning")
    kind = import_module(f"{base.__name__}.pytorch" if base.__name__ == "lightning" else base.__name__).Callback

    class Spectra(kind):  # type: ignore[misc, valid-type]
        """Records as the trainer goes."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            """The state before the first step."""
            if tracker.log is None and trainer.loggers:
                tracker.log = as_log(list(trainer.loggers))
            tracker.reached(trainer.global_step, trainer.current_epoch)

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any, **more: Any) -> None:
            """After a batch; batches whose gradients are gathered share a step, which is recorded once."""
            tracker.reached(trainer.global_step, trainer.current_epoch)

    return Spectra()


def transformers_callback(tracker: SpectrumTracker) -> Any:
    """A tracker as a callback of Hugging Face's ``Trainer``.

    Args:
        tracker: of the model that is trained, or of a part of it.

    Returns:
        ``Trainer(..., callbacks=[transformers_callback(tracker)])``.

    Raises:
        UnsupportedError: ``transformers`` is not installed.

    Example:
        >>> import torch
        >>> try:
        ...     callback = transformers_callback(SpectrumTracker(torch.nn.RNN(2, 3)))
        ... except UnsupportedError as error:
        ...     print("transformers" in str(error))
        ... else:
        ...     print(hasattr(callback, "on_step_end"))
        True
    """
    kind = _library("transformers").TrainerCallback

    class Spectra(kind):  # type: ignore[misc, valid-type]
        """Records as the trainer goes."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """The state before the first step."""
            tracker.reached(state.global_step, int(state.epoch or 0))

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            """After an optimizer step."""
            tracker.reached(state.global_step, int(state.epoch or 0))

    return Spectra()
