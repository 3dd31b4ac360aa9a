"""Options that several commands share, each declared once, in groups that a command takes as one value."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from stability.errors import ConfigurationError
from stability.storage.folder import Folder, claim_folder, refuse_existing_files

from ..names import printable
from . import console


def no_default(help: str, *names: str, **more: Any) -> Any:
    """Return an option that may be omitted and shows no default."""
    return typer.Option(*names, help=help, show_default=False, **more)


def with_default(help: str, default: object, *names: str, **more: Any) -> Any:
    """Return an option that may be omitted and whose default is computed; words describe it."""
    return typer.Option(*names, help=help, show_default=str(default), **more)


def choice(help: str, values: Sequence[str], *names: str, **more: Any) -> Any:
    """Return an option that takes one of a few words, which the help shows and a shell completes."""
    words = list(values)
    return typer.Option(*names, help=help, metavar=f"[{'|'.join(words)}]", autocompletion=lambda: words, **more)


def check_seconds(value: float | None, *, least: str = ">") -> float | None:
    """Check the number of ``--time-limit``; infinity means no limit.

    Args:
        value: number of seconds.
        least: ``">"``, or ``">="`` if a limit of zero is allowed.

    Returns:
        The number, ``None`` for no limit.

    Raises:
        ConfigurationError: a negative number, NaN, or a zero that is not allowed.
    """
    if value is not None and not (value > 0 or (value == 0 and least == ">=")):
        raise ConfigurationError(f"--time-limit must be a number of seconds {least} 0, got {value:g}")
    return None if value is None or math.isinf(value) else value


Seed = Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, metavar="N", help="Seed of all random numbers.")]
Scheduler = Annotated[
    str | None,
    no_default("Dask scheduler whose workers run the jobs, tcp://HOST:PORT.", "--scheduler", metavar="ADDRESS"),
]
Samples = Annotated[int, typer.Option(min=1, help="Number of sequences that are measured.")]
InputBox = Annotated[
    tuple[float, float] | None,
    with_default("Range of the inputs for which claims hold.", "range of the data", "--input-box", metavar="LOW HIGH"),
]
DataFile = Annotated[
    Path | None,
    no_default(
        "Folder or .npz with x (n, time, features), y (n,); or package.module:function.", "--data", metavar="DATA"
    ),
]


@dataclass(frozen=True)
class DataOptions:
    """The data that models are examined on: a task with its options, or a data file."""

    task: Annotated[str | None, with_default("Name of the task.", "the task of the run", "--task")] = None
    settings: Annotated[list[str] | None, no_default("Option of the task; may be repeated.", "--task-set")] = None
    file: DataFile = None


@dataclass(frozen=True)
class Results:
    """The folder of a command's results."""

    out: Annotated[Path | None, no_default("Folder for the results.", "--out", "-o", metavar="FOLDER")] = None
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Permission to replace other files of the same names."),
    ] = False

    def claim(self, context: typer.Context, *names: str) -> Folder | None:
        """Own the folder, where one is named, until the command ends.

        Args:
            context: the command's context.
            *names: files that will be written there.

        Returns:
            The folder.

        Raises:
            ConfigurationError: the folder holds files of these names that this command did not write.
            FolderInUseError: another process writes there.
            FileFormatError: the folder cannot be created or written to.
        """
        if self.out is None:
            return None
        by = str(context.info_name)
        if self.out.is_dir():
            refuse_existing_files(self.out, names, by, self.overwrite)
        folder = context.with_resource(claim_folder(self.out, by))
        folder.reserve(names, by, overwrite=self.overwrite)
        return folder


@dataclass(frozen=True)
class Compute:
    """Folder of the full data, random seed, and device."""

    data_dir: Annotated[
        Path | None, no_default("Folder with the files of the full data set.", "--data-dir", metavar="FOLDER")
    ] = None
    seed: Seed = 0
    device: Annotated[str, typer.Option("--device", help="Device for the computation: cpu, cuda, cuda:1.")] = "cpu"


@dataclass(frozen=True)
class Output:
    """Options of printing an answer."""

    as_json: Annotated[bool, typer.Option("--json", help="One JSON object in place of text.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Errors only, and JSON if requested.")] = False

    def status(self, text: str = "") -> None:
        """Show progress, or clear it, where no JSON is asked for."""
        console.status(text, self.quiet or self.as_json)

    def line(self, text: str) -> None:
        """Print a line of progress on standard error unless that is a terminal: for logs."""
        console.logged(text, self.quiet or self.as_json)

    def note(self, text: str) -> None:
        """Print a permanent line on standard error, on a terminal too: to announce a long computation."""
        if text and not (self.quiet or self.as_json):
            self.status()
            typer.echo(printable(text), err=True)

    def caution(self, text: str) -> None:
        """Print a caution on standard error next to an answer that could be misread; also with ``--json``."""
        if not self.quiet:
            self.status()
            typer.echo(printable(text), err=True)

    def show(self, document: Mapping[str, Any], text: str) -> None:
        """Print the answer as JSON or as text."""
        if self.as_json:
            console.show_json(document)
        else:
            console.say(text, self.quiet)


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group of options by the options of the group, as typer needs it.

    Args:
        command: a function; some of its parameters are annotated with dataclasses of options.

    Returns:
        The same command with one keyword argument per option.

    Example:
        >>> def shout(word: str, output: Output) -> None:
        ...     print(word.upper(), output)
        >>> flat(shout)(word="a", as_json=True, quiet=False)
        A Output(as_json=True, quiet=False)
    """
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            kinds = get_type_hints(groups[name], include_extras=True)
            parts = [(field.name, field.default, kinds[field.name]) for field in fields(groups[name])]
        else:
            parts = [(name, parameter.default, hints[name])]
        parameters += [inspect.Parameter(n, parameter.KEYWORD_ONLY, default=d, annotation=a) for n, d, a in parts]

    @functools.wraps(command)
    def flattened(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    flattened.__annotations__ = {p.name: p.annotation for p in parameters}
    flattened.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return flattened
