r"""Spectra of the recurrent matrices along training.

For a square matrix ``S`` with eigenvalues ``lambda_i`` and singular values ``s_i`` one row each of

- ``max_real`` (the spectral abscissa), ``min_real``, ``spectral_radius``;
- ``sym_max`` (the numerical abscissa), ``sym_min``: extreme eigenvalues of ``(S + S^T) / 2``;
- ``sigma_max``, ``sigma_min``;
- ``henrici``: departure from normality, :math:`(\|S\|_F^2 - \sum_i |\lambda_i|^2)^{1/2}` (Henrici 1962);
- ``prop1_low``, ``prop1_high`` for symmetric-skew matrices: the interval that holds all real parts (the corrected
  Proposition 1, with the factor of two), and ``prop1_published_low/high``: as printed, for comparison.

Under the matrix name ``margins``: ``theorem1a``, ``theorem1b_published``, ``theorem1b_sound`` and further criteria.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, UnsupportedError
from stability.storage.artifacts import artifact
from stability.storage.folder import claim_folder
from stability.storage.writing import write_text

from ...models.recurrent import RecurrentLayer
from ...models.tensors import to_numpy
from ..drawn import Curve, draw
from ..guard import check_int, check_number
from ..results import ROWS
from ..tables import csv_text
from ..unroll import as_layer, recurrent_layers, recurrent_matrices, step_jacobians
from .logs import Log, numbers_of, verdict_of
from .margins import MARGINS, layer_margins, why_no_margin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SPECTRA_COLUMNS = tuple(artifact("spectra.csv").columns)
EIGENVALUE_COLUMNS = tuple(artifact("eigenvalues.csv").columns)
QUANTITIES = ("max_real", "min_real", "spectral_radius", "sym_max", "sym_min", "sigma_max", "sigma_min", "henrici")
RADII = Curve("step", ("value",), by="matrix", words="spectral radius")
Present = tuple[str, dict[str, float], Iterable[complex]]
"""Name, quantities and eigenvalues of a recorded matrix."""


def matrix_quantities(matrix: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
    """Return this module's quantities for one matrix, and its eigenvalues.

    Args:
        matrix: ``(n, n)``, real or complex.

    Returns:
        Quantities by name, and ``(n,)`` complex eigenvalues. All NaN when the matrix is not finite.

    Example:
        >>> quantities, _ = matrix_quantities(np.array([[0.0, 2.0], [0.0, 0.0]]))
        >>> quantities["spectral_radius"], quantities["sym_max"], quantities["henrici"]
        (0.0, 1.0, 2.0)
    """
    if not np.isfinite(matrix).all():
        return dict.fromkeys(QUANTITIES, float("nan")), np.full(len(matrix), complex("nan"))
    eigenvalues = np.linalg.eigvals(matrix)
    real, modulus = eigenvalues.real, np.abs(eigenvalues)
    symmetric = np.linalg.eigvalsh(0.5 * (matrix + matrix.conj().T))
    singular = np.linalg.svd(matrix, compute_uv=False)
    henrici = np.sqrt(max(float((singular**2).sum() - (modulus**2).sum()), 0.0))
    spectrum, ends = (real.max(), real.min(), modulus.max()), (symmetric[-1], symmetric[0], singular[0], singular[-1])
    return dict(zip(QUANTITIES, map(float, (*spectrum, *ends, henrici)))), eigenvalues.astype(complex)


def _proposition1(layer: nn.Module) -> dict[str, dict[str, float]]:
    """Return the bounds on real parts for the matrices of a layer that provides them, by matrix name."""
    if not isinstance(layer, RecurrentLayer):
        return {}
    out: dict[str, dict[str, float]] = {}
    for kind, published in (("prop1", False), ("prop1_published", True)):
        for name, (low, high) in layer.real_part_bounds(published).items():
            out.setdefault(name, {}).update({f"{kind}_low": low, f"{kind}_high": high})
    return out


def _radius(matrix: np.ndarray) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())


class SpectrumTracker:
    """Recorder of spectra and margins while a model trains, in any training loop.

    A layer without recurrent matrices adds no rows, unless ``probe`` gives its Jacobians.

    Args:
        model: any module with recurrent layers, ``torch.nn``'s included.
        every: number of optimizer steps between records; also recorded: step 0 and the end of `train`.
        probe: ``(batch, time, features)``: sequences along which state Jacobians are taken as well, at three
            times (matrix ``J@t``, the one of the batch with the largest spectral radius), and the mean norm of the
            hidden state (matrix ``h``).
        margins: criteria to record besides the spectra, from ``theorem1``, ``gap``, ``circle``, ``multiplier``; the
            last two cost up to seconds each on large models. ``None``: ``theorem1``, if any layer is such that it
            can be recorded.
        eigenvalues: whether to keep all eigenvalues too.
        out: folder for ``spectra.csv`` and ``eigenvalues.csv``, which are written anew after each record;
            ``None`` keeps them in memory only.
        log: function ``(numbers, step)`` that receives each record as a dictionary of named numbers.
        verdict_every: run ``certify`` every this many steps (a multiple of ``every``) and log the verdict, 1
            certified, 0 inconclusive, -1 refuted, and the rate; ``None``: never.
        verdict_seconds: time limit of each verdict in seconds; ``None``: no limit.

    Attributes:
        epoch: the epoch that records are labelled with; the training loop sets it.
        step: optimizer steps seen.
        seconds: time spent recording.
        verdicts: the verdicts by step, in words.

    Raises:
        ConfigurationError: a bad option.
        UnsupportedError: a model without recurrent layers, or a margin that none of its layers has.

    Example:
        >>> model = nn.RNN(2, 4)
        >>> tracker = SpectrumTracker(model, every=2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> _ = tracker.attach(optimizer)
        >>> for _ in range(4):
        ...     optimizer.step()
        >>> sorted(set(tracker.frame().step))
        [0, 2, 4]
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 50,
        *,
        probe: Tensor | None = None,
        margins: Sequence[str] | None = None,
        eigenvalues: bool = True,
        out: str | Path | None = None,
        log: Log | None = None,
        verdict_every: int | None = None,
        verdict_seconds: float | None = None,
    ) -> None:
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ConfigurationError(f"every must be a positive integer, got {every!r}")
        if margins is not None and (isinstance(margins, str) or any(name not in MARGINS for name in margins)):
            raise ConfigurationError(f"margins must be a list of names from {', '.join(MARGINS)}, got {margins!r}")
        if not isinstance(model, nn.Module):
            raise ConfigurationError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = model
        self.every = every
        self.probe = probe
        self.epoch = 0
        self.step = 0
        self.seconds = 0.0
        self._layers = recurrent_layers(model)
        if not self._layers:
            raise UnsupportedError(
                f"{type(model).__name__} has no recurrent layer, so no recurrent matrices to track: register "
                "a cell of your own with register_cell(...)"
            )
        self.margins = self._recordable(margins)
        self._spectra: list[tuple[Any, ...]] = []
        self._eigenvalues: list[tuple[Any, ...]] | None = [] if eigenvalues else None
        self._out: Path | None = None
        self._handle: Any = None
        if log is not None and not callable(log):
            raise ConfigurationError(f"log must be a function (numbers, step), got {type(log).__name__}")
        self.log = log
        self.verdict_every = None if verdict_every is None else check_int("verdict_every", verdict_every)
        self.verdict_seconds = (
            None if verdict_seconds is None else check_number("verdict_seconds", verdict_seconds, strict=True)
        )
        self.verdicts: dict[int, str] = {}
        if out is not None:
            self.write_to(out)
            self._out = Path(out)

    def _recordable(self, margins: Sequence[str] | None) -> tuple[str, ...]:
        """Return the margins to record; raise an error for a requested margin that no layer has."""
        recordable = []
        for name in ("theorem1",) if margins is None else margins:
            reasons = [why_no_margin(name, layer) for _, layer in self._layers]
            if None in reasons:
                recordable.append(name)
            elif margins is not None:
                raise UnsupportedError(f"the margin {name!r} cannot be recorded: {reasons[0]}")
        return tuple(recordable)

    def options(self) -> dict[str, Any]:
        """Return the options of the tracker for ``run.json``: all that recreates it except the probe.

        Example:
            >>> SpectrumTracker(nn.RNN(2, 3), every=5).options()
            {'every': 5, 'margins': [], 'eigenvalues': True, 'probe': None}
        """
        return {
            "every": self.every,
            "margins": list(self.margins),
            "eigenvalues": self._eigenvalues is not None,
            "probe": None if self.probe is None else list(self.probe.shape),
        }

    def attach(self, optimizer: torch.optim.Optimizer) -> SpectrumTracker:
        """Record now, and after every ``every``-th step of the optimizer from now on.

        Args:
            optimizer: any.

        Returns:
            The tracker itself. ``detach`` undoes it.

        Raises:
            ConfigurationError: when it rides on an optimizer already.
        """
        if self._handle is not None:
            raise ConfigurationError("this tracker is already attached: call detach() first")

        def hook(*_: Any) -> None:
            self.step += 1
            if self.step % self.every == 0:
                self.record()

        self._handle = optimizer.register_step_post_hook(hook)
        if self.step % self.every == 0:
            self.record()
        return self

    def __enter__(self) -> SpectrumTracker:
        return self

    def __exit__(self, *_: Any) -> None:
        """Record the last state and detach from the optimizer."""
        self.record()
        self.detach()

    def reached(self, step: int, epoch: int | None = None) -> None:
        """Record if the step is due, for loops that count steps themselves.

        Args:
            step: optimizer steps so far.
            epoch: the epoch, if there are such.
        """
        if step % self.every == 0:
            self.record(step, epoch)
        else:
            self.step = step

    def detach(self) -> None:
        """Detach from the optimizer; the records stay."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def record(self, step: int | None = None, epoch: int | None = None) -> None:
        """Record the present state of the model; a second record of the same step is left out.

        Args:
            step: the step to label it with; the present one by default.
            epoch: the epoch to label it with; the present one by default.
        """
        start_time = time.perf_counter()
        self.step = self.step if step is None else step
        self.epoch = self.epoch if epoch is None else epoch
        if self._spectra and self.step == self._spectra[-1][0]:
            return
        rows: list[tuple[Any, ...]] = []
        points: list[tuple[Any, ...]] = []
        with torch.no_grad():
            for name, quantities, eigenvalues in itertools.chain(self._present(), self._present_of_the_probe()):
                head = (self.step, self.epoch, name)
                rows += [(*head, key, value) for key, value in quantities.items()]
                points += [(*head, float(z.real), float(z.imag)) for z in eigenvalues]
        self._spectra += rows
        if self._eigenvalues is not None:
            self._eigenvalues += points
        if self._out is not None:
            self.write_to(self._out)
        self._tell(rows)
        self.seconds += time.perf_counter() - start_time

    def _tell(self, rows: list[tuple[Any, ...]]) -> None:
        """Pass a record to the log, with a verdict if one is due."""
        numbers = numbers_of(rows) if self.log is not None else {}
        if self.verdict_every is not None and self.step % self.verdict_every == 0:
            verdict, self.verdicts[self.step] = verdict_of(self.model, self.verdict_seconds)
            numbers |= verdict
        if self.log is not None and numbers:
            self.log(numbers, self.step)

    def _prefix(self, path: str) -> str:
        return f"{path}." if len(self._layers) > 1 else ""

    def _present(self) -> Iterator[Present]:
        """Yield the square matrices of all layers, and their margins."""
        for path, layer in self._layers:
            bounds = _proposition1(layer)
            for name, tensor in recurrent_matrices(layer).items():
                complex_one = tensor.detach().to("cpu", torch.complex128).numpy() if tensor.is_complex() else None
                matrix = to_numpy(tensor) if complex_one is None else complex_one
                if matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]:
                    quantities, eigenvalues = matrix_quantities(matrix)
                    yield self._prefix(path) + name, {**quantities, **bounds.get(name, {})}, eigenvalues
            yield f"{self._prefix(path)}margins", layer_margins(layer, self.margins), ()

    def _present_of_the_probe(self) -> Iterator[Present]:
        """Yield Jacobians along the probe and norms, of the first layer: deeper inputs depend on the model."""
        if self.probe is None or not self._layers:
            return
        path, module = self._layers[0]
        layer, length = as_layer(module), self.probe.shape[1]
        norms = []
        for t, step in enumerate(layer.walk(self.probe)):
            if t in (length // 4, length // 2, length - 1):
                jacobians = step_jacobians(layer, step.drive, step.before, step.prepared)[0]
                matrices = jacobians.double().cpu().numpy()
                finite = [m for m in matrices if np.isfinite(m).all()]
                yield f"{self._prefix(path)}J@{t}", *matrix_quantities(max(finite, key=_radius, default=matrices[0]))
            norms.append(float(layer.hidden(step.after).norm(dim=1).mean()))
        yield f"{self._prefix(path)}h", {"mean_norm": float(np.mean(norms)), "last_norm": norms[-1]}, ()

    def rewind(self, step: int) -> None:
        """Remove the records after a step, and continue from there."""
        self._spectra = [row for row in self._spectra if row[0] <= step]
        if self._eigenvalues is not None:
            self._eigenvalues = [row for row in self._eigenvalues if row[0] <= step]
        self.step = step

    def state(self) -> dict[str, Any]:
        """Return step, records and probe as plain values and tensors, for a checkpoint."""
        return {
            "step": self.step,
            "spectra": list(self._spectra),
            "eigenvalues": list(self._eigenvalues or ()),
            "probe": self.probe,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the step and the records that ``state`` returned; the probe stays."""
        self.step, self._spectra = state["step"], list(state["spectra"])
        if self._eigenvalues is not None:
            self._eigenvalues = list(state["eigenvalues"])

    def frame(self) -> pd.DataFrame:
        """Return all records as a long table with the columns ``step, epoch, matrix, quantity, value``."""
        return pd.DataFrame(self._spectra, columns=list(SPECTRA_COLUMNS))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the spectral radius of every matrix over the recorded steps.

        Args:
            ax: axes to draw on; ``None``: a new figure.

        Returns:
            The axes.
        """
        rows = self.frame()
        return draw("SpectrumTracker", rows.query("quantity == 'spectral_radius'"), RADII, ax)

    def _repr_html_(self) -> str:
        """Return the table that Jupyter shows: the last records."""
        table = self.frame()
        html = table.tail(ROWS).to_html(index=False, border=0, escape=True)
        return f"<div><p>SpectrumTracker: {len(table)} rows, the last ones:</p>{html}</div>"

    def eigenvalues(self) -> pd.DataFrame:
        """Return all eigenvalues: columns ``step, epoch, matrix, real, imag``; empty if they were not kept."""
        return pd.DataFrame(self._eigenvalues or [], columns=list(EIGENVALUE_COLUMNS))

    def write_to(self, out: str | Path) -> None:
        """Write all records into ``spectra.csv`` and ``eigenvalues.csv`` of a folder, which is made when missing.

        Raises:
            ConfigurationError: files of these names that no training made are in the way.
            FileFormatError: a folder that cannot be written to.
            FolderInUseError: another process writes there.
        """
        tables = {"spectra.csv": (SPECTRA_COLUMNS, self._spectra)}
        if self._eigenvalues is not None:
            tables["eigenvalues.csv"] = (EIGENVALUE_COLUMNS, self._eigenvalues)
        with claim_folder(out, "spectra") as folder:
            folder.reserve(list(tables), "train")
            for name, (columns, rows) in tables.items():
                write_text(Path(out) / name, csv_text(columns, rows))
