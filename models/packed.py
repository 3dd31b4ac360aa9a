"""Networks that pack their sequences: lengths read from the run, and the classifier over these lengths."""

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
"""Scales of random changes, relative to the mean size of a sequence's own entries."""
_FAR = (10.0, 100.0, 1e3, 1e4)
"""Scales of further changes, at which ReLUs are active and clipped inputs are clipped."""
_MOST = 64
"""Number of sequences with far changes; for a network that packs nothing, number of cross-checked sequences."""


@dataclass(frozen=True, eq=False)
class Reading:
    """Network as subject of claims about single inputs, with the number of steps that it reads of each input.

    Attributes:
        subject: the classifier; a ``MeasuredClassifier`` where attacks alone are possible.
        lengths: ``(n,)`` the first steps of each sequence, which the network reads; ``None``: all of every one.
        agrees: ``(n,)`` whether the classifier gives the network's own logits over those steps; ``None``: the network
            was run beside it on random sequences instead, whatever the data.
    """

    subject: Classifier | MeasuredClassifier
    lengths: NDArray[np.int64] | None = None
    agrees: NDArray[np.bool_] | None = None

    def groups(self, x: Any) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Yield the examined inputs, grouped by their number of steps.

        Args:
            x: ``(n, time, features)``.

        Yields:
            Which inputs, and their number of steps.
        """
        if self.lengths is None:
            yield np.arange(len(x)), int(x.shape[1])
            return
        read = np.ones(len(x), bool) if self.agrees is None else self.agrees
        for steps in np.unique(self.lengths[read]):
            yield np.flatnonzero(read & (self.lengths == steps)), int(steps)


def reading(model: Any, x: Any) -> Reading:
    """Return the classifier that a network runs, and the number of steps that it reads of each sequence.

    A network that packs its sequences (``torch.nn.utils.rnn.pack_padded_sequence``) is watched while it runs on each of
    them by itself, in float64: the number of steps is the one that its recurrent part gets. Cut to these steps the
    classifier must give the network's own logits, to 1e-8 of the largest, and again where the values of these steps are
    changed at random, a little and up to 1e4; where it does not, nothing is said of that sequence. What the network
    makes its numbers of steps of (tokens, zeros) is left aside: they count as given.

    Args:
        model: see ``stability.models.classifier.classifier``; a ``Reading`` is itself.
        x: ``(n, time, features)``, a tensor or an array.

    Returns:
        The reading; of a network that does not pack, all steps of every sequence.

    Raises:
        UnsupportedError: a network that is no classifier here, that is in training mode with dropout, or that packs in
            a way that is not followed (two directions, a step that raises).
        DisagreementError: the classifier gives other logits than the network, for most of the sequences; where it
            does not pack, for one of them, or for one that is changed at random.

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
    watched = None if isinstance(model, known) or not isinstance(model, nn.Module) else _watched(model, x)
    if watched is not None:
        return _packed(model, *watched)
    if (measured := _measured(model)) is not None:
        return Reading(measured)
    subject = classifier(model)
    source = model.source or model if isinstance(model, ClassifierNetwork) else model
    if not isinstance(model, (Classifier, SequenceModel)):
        _agree_on_data(source, subject, x)
    return Reading(subject)


def _measured(model: Any) -> MeasuredClassifier | None:
    """Return the classifier of a ``SequenceModel`` with gated linear layers and one class a sequence; else ``None``."""
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
        return  # who reads the data says so
    x, rng = x[:_MOST].astype(np.float64), np.random.default_rng(0)
    size = np.abs(x).mean(axis=(1, 2), keepdims=True)
    for change in (0.0, *(scale * size for scale in _SCALES), *_FAR):
        agree_on(model, subject, x + change * rng.normal(size=x.shape))


@dataclass(frozen=True, eq=False)
class _Run:
    """Run of a network on a sequence ``(time, features)``: the steps that it read, and its logits.

    They are NaN where its recurrent part got something else than the sequence.
    """

    x: NDArray[np.float64]
    steps: int
    logits: NDArray[np.float64]


class _Watch:
    """Float64 copy of a network that records the inputs of its recurrent parts, one sequence at a time."""

    def __init__(self, model: nn.Module) -> None:
        self.name, self.runs = type(model).__name__, twin(model).to(device="cpu", dtype=torch.float64).eval()
        self.given: list[tuple[str, Any]] = []
        self.change: torch.Tensor | None = None
        self.paths: set[str] = set()
        for path, part in self.runs.named_modules():
            if isinstance(part, nn.RNNBase):
                part.register_forward_pre_hook(self._seen_at(path), with_kwargs=True)

    def _seen_at(self, path: str) -> Any:
        def seen(part: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            value = args[0] if args else named.get("input")
            if isinstance(value, PackedSequence) and self.change is not None:
                value = value._replace(data=value.data + self.change[: len(value.data)])
                args, named = ((value, *args[1:]), named) if args else (args, {**named, "input": value})
            self.given.append((path, value))
            return args, named

        return seen

    def run(self, x: NDArray[np.float64], change: NDArray[np.float64] | None = None) -> _Run | None:
        """Run one sequence; ``None`` if nothing is packed. Errors of the network are passed on.

        Args:
            x: ``(time, features)``.
            change: change of the recurrent part's input, invisible to the code that determines the number of steps.

        Raises:
            UnsupportedError: several packed runs, or no row of logits.
        """
        self.given.clear()
        self.change = None if change is None else torch.tensor(change)
        with torch.no_grad():
            out = two_logits(self.runs(torch.tensor(x)[None]), 1)
        packed = [(path, value) for path, value in self.given if isinstance(value, PackedSequence)]
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


def _watched(model: nn.Module, x: Any) -> tuple[str, list[list[_Run]]] | None:
    """Return the path of the packing part, and runs on every sequence, unchanged and changed in its own steps.

    ``None`` if it does not pack, or does not run at all; a later call reports the error.

    Raises:
        UnsupportedError: a sequence that it does not take by itself, or see ``_Watch.run``.
    """
    x = np.asarray(x.detach().cpu() if isinstance(x, torch.Tensor) else x)
    if x.ndim != 3 or not len(x) or x.dtype.kind != "f" or not any(isinstance(p, nn.RNNBase) for p in model.modules()):
        return None
    watch, rng, out = _Watch(model), np.random.default_rng(0), []
    for k, row in enumerate(x.astype(np.float64)):
        try:
            first = watch.run(row)
        except UnsupportedError:
            raise
        except (Exception, SystemExit) as error:  # a network of the user's own may raise anything
            if k == 0:
                return None
            line = " ".join(str(error).split())[:160]
            raise UnsupportedError(f"{watch.name} does not take row {k}: {type(error).__name__}: {line}") from error
        if first is None:
            return None
        size = float(np.abs(row[: first.steps]).mean()) or 1.0
        sizes = (*(scale * size for scale in _SCALES), *(_FAR if k < _MOST else ()))
        out.append([first, *_changed(watch, first, sizes, rng)])
    return watch.paths.pop(), out


def _changed(watch: _Watch, first: _Run, sizes: Sequence[float], rng: np.random.Generator) -> Iterator[_Run]:
    """Yield runs on the same sequence with other values in its own steps, against chance agreement.

    The values are changed where they come in, and once more where the recurrent part reads them, with the number of
    steps as it is.

    Yields:
        The runs that came to an end.
    """
    valid = np.arange(len(first.x))[:, None] < first.steps
    for size in sizes:
        change = np.where(valid, size * rng.normal(size=first.x.shape), 0.0)
        outputs = [watch.run(first.x, change)]
        with suppress(Exception, SystemExit):  # as where no step is left to a network that looks for its end
            outputs.append(watch.run(first.x + change))
        yield from filter(None, outputs)


def _packed(model: nn.Module, path: str, runs: list[list[_Run]]) -> Reading:
    """Return the classifier with a packing network's logits over the steps that it reads."""
    name = type(model).__name__
    if getattr(model.get_submodule(path), "bidirectional", False):
        raise UnsupportedError(f"{path} of this {name} is bidirectional: local certificates are for one direction")
    candidates = [replace(reading, packed=True) for reading in by_parts(model)]
    apart = np.array([[_apart(reading, each) for each in runs] for reading in candidates])
    best = int(np.argmax((apart <= ROUNDING).sum(axis=1)))
    agrees = apart[best] <= ROUNDING
    if 2 * agrees.sum() < len(agrees):  # where most answers come from elsewhere, the others may agree by chance
        raise DisagreementError(
            f"the logits of this {name} are not those of {path} with a head on the last packed step or on the mean "
            f"of all ({agrees.sum()} of {len(agrees)} agree, the first is apart by {apart[best][0]:.1e})"
        )
    return Reading(candidates[best], np.array([each[0].steps for each in runs]), agrees)


def _apart(subject: Classifier, runs: list[_Run]) -> float:
    """Return the largest distance of a classifier's logits from the network's; infinite without comparison."""
    most = 0.0 if len(runs) > 1 else np.inf
    for run in runs:
        if run.logits.shape != (subject.classes,) or run.x.shape[1] != subject.inputs or run.steps > len(run.x):
            return np.inf
        expected = subject.logits(run.x[: run.steps])
        off = float(np.abs(run.logits - expected).max() / (1.0 + np.abs(expected).max()))
        most = max(most, off) if off <= np.inf else np.inf  # NaN is no agreement
    return most
