"""A model of a campaign on another machine: its files go there with the job, and come back with the answer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stability.storage.artifacts import ANALYSIS_FILE
from stability.storage.folder import claim_folder, listed_files
from stability.storage.writing import make_folder, write_bytes

from ..running.pool import Tell
from ..threads import ONE, with_threads
from .each import RunJob, examine_one

Files = Mapping[str, tuple[str, bytes]]
"""Of every file that work of ours made in a folder, which work that was, and its content."""


@dataclass(frozen=True)
class Errand:
    """A job with what is there of its files already.

    Attributes:
        job: of one model.
        files: of its folder: a training that was broken off goes on, steps that are done are kept.
    """

    job: RunJob
    files: Files


def run_errand(errand: Errand, tell: Tell) -> Files:
    """Do a job in a folder of its own, with one thread; nothing of it stays on this machine.

    Args:
        errand: what to do.
        tell: gets its news.

    Returns:
        The files of the model's folder.

    Raises:
        StabilityError: as the work does; files that the job reads by their paths, and that are not here.
    """
    with ONE, with_threads(1), tempfile.TemporaryDirectory(prefix="stability-report-") as folder:
        job = errand.job.in_folder(Path(folder))
        put_files(errand.files, job.folder)
        examine_one(job, tell)
        return files_in(job.folder)


def files_in(folder: Path) -> dict[str, tuple[str, bytes]]:
    """What our work made in a folder.

    Args:
        folder: of a model; it need not exist.

    Raises:
        FileFormatError: its list of files cannot be read.
    """
    known = listed_files(folder) if folder.is_dir() else {}
    return {name: (by, (folder / name).read_bytes()) for name, by in known.items() if (folder / name).is_file()}


def put_files(files: Files, folder: Path, *, overwrite: bool = False) -> None:
    """Make a folder what another one was; the document that says that all is there comes last.

    Args:
        files: of ``files_in``.
        folder: made where it is missing; files that are not ours stay.
        overwrite: whether files in the way may be replaced.

    Raises:
        ConfigurationError: a file stands in the way, or a name leads out of the folder.
        FileFormatError: the folder cannot be written to.

    Example:
        >>> with tempfile.TemporaryDirectory() as place:
        ...     put_files({"run.json": ("train", b"{}")}, Path(place) / "a")
        ...     files_in(Path(place) / "a")
        {'run.json': ('train', b'{}')}
    """
    make_folder(folder)
    if not files:
        return
    with claim_folder(folder, "report") as own:
        for work in sorted({by for by, _ in files.values()}):
            own.reserve([name for name, (by, _) in files.items() if by == work], work, overwrite=overwrite)
        own.remove([name for name in own.files if name not in files])
        for name in sorted(files, key=lambda name: name == ANALYSIS_FILE):
            place = folder / name
            make_folder(place.parent)
            write_bytes(place, files[name][1])
