"""Networks that pack their sequences: observed lengths, and the classifier over these lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from stability.errors import DisagreementError, UnsupportedError
from stability.kernel.systems.classifier import Classifier

from .adapters.inspection import refuse_dropout, twin
from .classifier import ROUNDING, Run, agree_on, by_parts, classifier
from .classifier_network import ClassifierNetwork
from .gated_linear.block import GatedLinearBlock
from .network import SequenceModel
from .wrapped import MeasuredClassifier, TwoLogits, two_logits

_SCALES = (0.1, 0.3, 1.0, 1.0, 3.0)
"""Scales of random changes, relative to the mean absolute entry of a sequence."""
_LARGE_SCALES = (10.0, 100.0, 1e3, 1e4)
"""Scales of large changes, which activate ReLUs and reveal clipping."""
_CHECKED = 64
"""Number of sequences with large changes; for a network without packing, number of cross-checked sequences."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Network as subject of claims about single inputs, with the number of steps that it reads of each input.

    Attributes:
        subject: the classifier; a ``MeasuredClassifier`` if only attacks are possible.
        lengths: ``(n,)`` number of first steps of each sequence that the network reads; ``None`` for all steps.
        agrees: ``(n,)`` whether the classifier has the network's logits over those steps; ``None`` if the two were
            compared on random sequences instead of these.
    """

    subject: Classifier | MeasuredClassifier
    lengths: NDArray[np.int64] | None = None
    agrees: NDArray[np.bool_] | None = None

    def groups(self, x: Any) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Yield the examined inputs, grouped by their number of steps.

        Args:
            x: ``(n, time, features)``.

        Yields:
            Indices of inputs, and their number of steps.
        """
        if self.lengths is None:
            yield np.arange(len(x)), int(x.shape[1])
            return
        read = np.ones(len(x), bool) if self.agrees is None else self.agrees
        for steps in np.unique(self.lengths[read]):
            yield np.flatnonzero(read & (self.lengths == steps)), int(steps)


def reading(model: Any, x: Any) -> Reading:
    """Return the classifier that a network runs, and the number of steps that it reads of each sequence.

    A network that packs its sequences (``torch.nn.utils.rnn.pack_padded_sequence``) is run in float64 on each sequence
    alone, and the length that its recurrent part receives is recorded. On the sequence cut to this length the
    classifier must have the network's logits, to 1e-8 of the largest, also after random changes of its values of sizes
    up to 1e4. Sequences without agreement are excluded. Lengths count as given, although the network may compute them
    from its inputs (tokens, zeros).

    Args:
        model: see ``stability.models.classifier.classifier``; a ``Reading`` is returned unchanged.
        x: ``(n, time, features)``, a tensor or an array.

    Returns:
        The reading; without packing, all steps of every sequence.

    Raises:
        UnsupportedError: a network that cannot be read as a classifier, that is in training mode with dropout, or whose
            packing is not supported (two directions, a sequence that raises an error).
        DisagreementError: classifier and network have different logits: with packing for most sequences, without
            packing for one sequence, also with random changes.

    Example:
        >>> from torch.nn.utils.rnn import pack_padded_sequence
        >>> class Packing(nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rnn, self.head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)
        ...     def forward(self, x):
        ...         own = (x != 0).any(2).sum(1)
        ...         packed = pack_padded_sequence(x, own, batch_first=True, enforce_sorted=False)
        ...         return self.head(self.rnn(packed)[1][-1])
        >>> x = torch.ones(2, 5, 2)
        >>> x[1, 3:] = 0
        >>> reading(Packing(), x).lengths
        array([5, 3])
    """
    if isinstance(model, Reading):
        return model
    model = model.model if isinstance(model, TwoLogits) else model
    if isinstance(model, nn.Module):
        refuse_dropout(model)
    known = (ClassifierNetwork, SequenceModel)
    recorded = None if isinstance(model, known) or not isinstance(model, nn.Module) else _recorded_runs(model, x)
    if recorded is not None:
        return _packed(model, *recorded)
    if (measured := _measured(model)) is not None:
        return Reading(measured)
    subject = classifier(model)
    source = model.source or model if isinstance(model, ClassifierNetwork) else model
    if not isinstance(model, (Classifier, SequenceModel)):
        _agree_on_data(source, subject, x)
    return Reading(subject)


def _measured(model: Any) -> MeasuredClassifier | None:
    """Return the classifier of a ``SequenceModel`` with gated linear layers and one class per sequence, or ``None``."""
    if not isinstance(model, SequenceModel) or model.reduction == "all":
        return None
    if not any(isinstance(part, GatedLinearBlock) for part in model.modules()):
        return None
    run = twin(model).to("cpu", torch.float64).eval()
    return MeasuredClassifier(TwoLogits(run) if model.output_size == 1 else run, model.input_size)


def _agree_on_data(model: Run, subject: Classifier, x: Any) -> None:
    """Cross-check a network and its classifier on some of the data, also with random changes up to 1e4."""
    x = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
    if x.ndim != 3 or x.dtype.kind != "f" or x.shape[2] != subject.inputs or not x.size or not np.isfinite(x).all():
        return  # the caller reports invalid data
    x, rng = x[:_CHECKED].astype(np.float64), np.random.default_rng(0)
    size = np.abs(x).mean(axis=(1, 2), keepdims=True)
    for change in (0.0, *(scale * size for scale in _SCALES), *_LARGE_SCALES):
        agree_on(model, subject, x + change * rng.normal(size=x.shape))


@dataclass(frozen=True, eq=False)
class _Run:
    """Run of a network on a sequence ``(time, features)``: the number of steps that it read, and its logits.

    The logits are NaN if the recurrent part received other values than the sequence.
    """

    x: NDArray[np.float64]
    steps: int
    logits: NDArray[np.float64]


class _Recorder:
    """Float64 copy of a network that records the inputs of its recurrent parts, one sequence at a time."""

    def __init__(self, model: nn.Module) -> None:
        self.name, self.runs = type(model).__name__, twin(model).to(device="cpu", dtype=torch.float64).eval()
        self.received: list[tuple[str, Any]] = []
        self.change: torch.Tensor | None = None
        self.paths: set[str] = set()
        for path, part in self.runs.named_modules():
            if isinstance(part, nn.RNNBase):
                part.register_forward_pre_hook(self._hook_at(path), with_kwargs=True)

    def _hook_at(self, path: str) -> Any:
        def hook(part: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            value = args[0] if args else named.get("input")
            if isinstance(value, PackedSequence) and self.change is not None:
                value = value._replace(data=value.data + self.change[: len(value.data)])
                args, named = ((value, *args[1:]), named) if args else (args, {**named, "input": value})
            self.received.append((path, value))
            return args, named

        return hook

    def run(self, x: NDArray[np.float64], change: NDArray[np.float64] | None = None) -> _Run | None:
        """Run one sequence; ``None`` if nothing is packed. Errors of the network are passed on.

        Args:
            x: ``(time, features)``.
            change: added to the recurrent part's input, after the network has computed the number of steps.

        Raises:
            UnsupportedError: several packed runs, or no row of logits.
        """
        self.received.clear()
        self.change = None if change is None else torch.tensor(change)
        with torch.no_grad():
            out = two_logits(self.runs(torch.tensor(x)[None]), 1)
        packed = [(path, value) for path, value in self.received if isinstance(value, PackedSequence)]
        if not packed:
            return None
        self.paths.update(path for path, _ in packed)
        if len(packed) != 1 or len(self.paths) != 1 or not isinstance(out, torch.Tensor) or out.shape[:-1] != (1,):
            received = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
            runs = f"{len(packed)} runs of {', '.join(sorted(self.paths))}"
            raise UnsupportedError(
                f"{self.name} must return one row of logits for one packed sequence, it returns {received} for {runs}"
            )
        steps, read = len(packed[0][1].batch_sizes), packed[0][1].data.numpy()
        x = x if change is None else x + change
        same = read.shape == x[:steps].shape and np.allclose(read, x[:steps], rtol=ROUNDING, atol=ROUNDING)
        return _Run(x, steps, out[0].numpy() if same else np.full(out.shape[1], np.nan))


def _recorded_runs(model: nn.Module, x: Any) -> tuple[str, list[list[_Run]]] | None:
    """Return the path of the packing part, and runs on every sequence, unchanged and with changes of its steps.

    ``None`` if the network does not pack, or if its first run fails; a later call then reports the error.

    Raises:
        UnsupportedError: the network does not accept a single sequence; see also ``_Recorder.run``.
    """
    x = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
    if x.ndim != 3 or not len(x) or x.dtype.kind != "f" or not any(isinstance(p, nn.RNNBase) for p in model.modules()):
        return None
    recorder, rng, out = _Recorder(model), np.random.default_rng(0), []
    for k, row in enumerate(x.astype(np.float64)):
        try:
            first = recorder.run(row)
        except UnsupportedError:
            raise
        except (Exception, SystemExit) as error:  # a user's network may raise anything
            if k == 0:
                return None
            line = " ".join(str(error).split())[:160]
            raise UnsupportedError(f"{recorder.name} does not take row {k}: {type(error).__name__}: {line}") from error
        if first is None:
            return None
        size = float(np.abs(row[: first.steps]).mean()) or 1.0
        sizes = (*(scale * size for scale in _SCALES), *(_LARGE_SCALES if k < _CHECKED else ()))
        out.append([first, *_changed(recorder, first, sizes, rng)])
    return recorder.paths.pop(), out


def _changed(recorder: _Recorder, first: _Run, sizes: Sequence[float], rng: np.random.Generator) -> Iterator[_Run]:
    """Yield runs with random changes of a sequence's values, so that agreement by chance is unlikely.

    Each change is applied at the recurrent part, which keeps the number of steps, and at the network's input.

    Yields:
        The runs that raise no error.
    """
    valid = np.arange(len(first.x))[:, None] < first.steps
    for size in sizes:
        change = np.where(valid, size * rng.normal(size=first.x.shape), 0.0)
        outputs = [recorder.run(first.x, change)]
        with suppress(Exception, SystemExit):  # for example if the changed sequence seems to have no steps
            outputs.append(recorder.run(first.x + change))
        yield from filter(None, outputs)


def _packed(model: nn.Module, path: str, runs: list[list[_Run]]) -> Reading:
    """Return the classifier with a packing network's logits over the steps that it reads."""
    name = type(model).__name__
    if getattr(model.get_submodule(path), "bidirectional", False):
        raise UnsupportedError(f"{path} of this {name} is bidirectional: local certificates need one direction")
    candidates = [replace(reading, packed=True) for reading in by_parts(model)]
    errors = np.array([[_largest_error(reading, each) for each in runs] for reading in candidates])
    best = int(np.argmax((errors <= ROUNDING).sum(axis=1)))
    agrees = errors[best] <= ROUNDING
    if 2 * agrees.sum() < len(agrees):  # if most sequences disagree, the others may agree by chance
        raise DisagreementError(
            f"the logits of this {name} are not those of {path} with a head on the last packed step or on the mean "
            f"of all ({agrees.sum()} of {len(agrees)} agree; the first has a relative difference of "
            f"{errors[best][0]:.1e})"
        )
    return Reading(candidates[best], np.array([each[0].steps for each in runs]), agrees)


def _largest_error(subject: Classifier, runs: list[_Run]) -> float:
    """Return the largest relative difference of the logits of two networks; infinite without a changed run."""
    most = 0.0 if len(runs) > 1 else np.inf
    for run in runs:
        if run.logits.shape != (subject.classes,) or run.x.shape[1] != subject.inputs or run.steps > len(run.x):
            return np.inf
        expected = subject.logits(run.x[: run.steps])
        error = float(np.abs(run.logits - expected).max() / (1.0 + np.abs(expected).max()))
        most = max(most, error) if error <= np.inf else np.inf  # NaN is no agreement
    return most
