"""The command line ``stability``: one module per command, imported when the command is called."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from stability.errors import StabilityError
from stability.user_code import error_text, raise_location

from ..names import cut, printable
from . import console
from .console import Interrupted
from .help import Command, epilog
from .input_boxes import rewrite_box_option
from .options import flat

__all__ = ["app", "main"]

INTERRUPTED = 130
LONGEST = 2000
"""Maximum length of an error message in characters: a message may quote long names from files."""
TRACEBACK = "STABILITY_TRACEBACK"
"""Environment variable; if it is set, an unexpected exception ends with its traceback."""
# typer has its own copy of click, or uses an installed one: look the class up in the bases of typer.BadParameter.
ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

NOTHING_WRITTEN = ("interrupted", "nothing was written", INTERRUPTED)
ENDS: dict[type[BaseException], Callable[[Any], tuple[str, str, int]]] = {
    Interrupted: lambda stop: ("interrupted", str(stop), INTERRUPTED),
    KeyboardInterrupt: lambda stop: NOTHING_WRITTEN,
    typer.Abort: lambda stop: NOTHING_WRITTEN,
    StabilityError: lambda error: ("error", str(error), 2),
    OSError: lambda error: ("error", f"{error.strerror or error}{f' ({error.filename})' * bool(error.filename)}", 2),
    ClickException: lambda error: ("error", error.format_message(), 2),
}
"""Kind, text and exit code for each expected exception. Any other exception is a fault of this program."""

COMMANDS = {
    "report": "report", "train": "train", "certify": "certify", "verify": "verify", "compare": "compare",
    "hessian": "analyzers", "attack": "analyzers", "noise": "analyzers", "radius": "radius", "study": "study",
    "loop": "loop", "fixed-points": "fixed_points", "repair": "repair", "sweep": "sweep", "doctor": "doctor",
}  # fmt: skip
"""Module of each command, in the order of the help."""
SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Loaded(Mapping[str, Any]):
    """Mapping of names to commands; a command's module is imported at the first access."""

    def __getitem__(self, name: str) -> Any:
        module = import_module(f".{COMMANDS[name]}", __package__)
        alone = typer.Typer(**SETTINGS)
        alone.command(name, cls=Command, epilog=epilog(name))(flat(getattr(module, name.replace("-", "_"))))
        return get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class Commands(TyperGroup):
    """Group of all commands; it imports only the command that is called."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands: Any = Loaded()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return list(COMMANDS)


app = typer.Typer(
    cls=Commands,
    help="Prove that recurrent neural networks are stable, or not, and measure their robustness.",
    epilog=(
        "Exit codes. certify: 0 proven stable, 1 undecided, 3 proven not stable. verify: 0 valid, 1 invalid. Other "
        "commands: 0 complete. All: 2 bad input or a missing result, 130 interrupted. Details: docs/gate.md."
    ),
    no_args_is_help=True,
    **dict(SETTINGS, add_completion=True),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"stability {version('rnn-stability')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: command-line words after ``stability``; those of the process by default.

    Returns:
        The exit code. Bad input prints one line on standard error and gives 2. A fault of this program does the same;
        its line names the place in the code.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # no stream, or not a text stream
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # signs outside its encoding
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no messages about its font cache
    console.PRINTED = False
    words = list(sys.argv[1:] if arguments is None else arguments)
    console.ASKED[:] = words
    as_json = "--json" in words
    try:
        rewritten_arguments = rewrite_box_option(words)
        code = app(args=rewritten_arguments, prog_name="stability", standalone_mode=False)
    except tuple(ENDS) as error:
        return _failed(error, as_json)
    except BaseException as error:
        if isinstance(error, SystemExit) and _completes(words):
            return error.code if isinstance(error.code, int) else 0
        if os.environ.get(TRACEBACK) and not isinstance(error, SystemExit):
            raise
        return _failed(error, as_json)
    if code == INTERRUPTED:
        return _complain(*NOTHING_WRITTEN, as_json)
    return code if isinstance(code, int) else 0


def _completes(words: Sequence[str]) -> bool:
    """Return True if a shell asks for completions or for its completion script: this ends the program by itself."""
    return (
        "_STABILITY_COMPLETE" in os.environ or {"--show-completion", "--install-completion"} & set(words[:1]) != set()
    )


def _failed(error: BaseException, as_json: bool = False) -> int:
    """Print the reason why a command failed; return its exit code."""
    if isinstance(error, SystemExit) and isinstance(error.__context__, BrokenPipeError):
        return 2  # the reader of the output ended early, as ``| head`` does
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())  # type: ignore[attr-defined]
        return 2
    kind = next((kind for kind in ENDS if isinstance(error, kind)), None)
    if kind is not None:
        return _complain(*ENDS[kind](error), as_json)
    place = f"at {raise_location(error)}; {TRACEBACK}=1 shows the traceback"
    return _complain("error", f"unexpected {error_text(error)} ({place})", 2, as_json)


def _complain(kind: str, text: str, code: int, as_json: bool = False) -> int:
    """Print one line on standard error, if it is open; return the exit code.

    With ``--json`` and no JSON printed so far, print the same as an object on standard output.
    """
    line = cut(printable(" ".join(cut(text, 10 * LONGEST).split())), LONGEST)
    with contextlib.suppress(OSError, ValueError):
        typer.echo(f"stability: {kind}: {line}", err=True)
    if as_json and not console.PRINTED:
        with contextlib.suppress(OSError, ValueError, StabilityError):
            console.show_json({kind: line, "exit_code": code})
    return code


def main() -> None:
    """Run the command line and exit: entry point of the console script."""
    code = run()
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except OSError:  # full or closed: the interpreter would flush the buffer and fail again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 2
    sys.exit(code)
