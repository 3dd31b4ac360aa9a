"""Command ``stability doctor``: installed packages, working parts and optional extras."""

from __future__ import annotations

import ast
import io
import os
import platform
import tokenize
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import typer

from stability import kernel
from stability.user_code import error_text

from ..formatting import table
from .options import Output

NEEDED = (
    "numpy", "scipy", "threadpoolctl", "torch", "cvxpy", "pyhessian", "matplotlib", "pandas", "safetensors", "jinja2",
    "typer",
)  # fmt: skip
EXTRAS = {
    "python-flint": ("exact", "faster integers for verify --method exact"),
    "onnx": ("onnx", ".onnx models"),
    "distributed": ("cluster", "sweep, report: several processes, or a Dask cluster"),
    "reservoirpy": ("reservoir", "certificates of reservoirs of reservoirpy"),
    "control": ("test", "state spaces of python-control in LureSystem.from_state_space"),
    "foolbox": ("test", "benchmark of the attacks against Foolbox"),
}
"""Optional packages: the extra of this package that installs it, and what it adds."""


@dataclass(frozen=True)
class Checked:
    """One line of the examination.

    Attributes:
        name: name of the package or part.
        state: ``ok``, ``missing`` (not needed) or ``broken``.
        found: version or value.
        note: meaning, or a remedy.
    """

    name: str
    state: str
    found: str
    note: str = ""


def doctor(*, output: Output) -> None:
    """Check the installation with a small certificate.

    Print the versions of packages, the extras and the machine. Exit code: 0 if everything that is required works,
    else 2.
    """
    lines: list[Checked] = []
    for make in (_software, _extras, _machine, _works):
        output.status("checking the installation ...")
        lines += make()
    output.status()
    broken = [line.name for line in lines if line.state == "broken"]
    signs = {"ok": "✓", "missing": "–", "broken": "✗"}
    grid = table(("", "", "found", ""), [(signs[x.state], x.name, x.found, x.note) for x in lines])
    end = f"broken: {', '.join(broken)}" if broken else "Every required part works."
    rows = "\n".join(line.rstrip() for line in grid.splitlines()[1:])
    output.show({"ok": not broken, "checks": [asdict(x) for x in lines]}, f"{rows}\n{end}")
    raise typer.Exit(2 if broken else 0)


def code_lines(source: str) -> int:
    r"""Return the number of lines of Python source that hold code: no docstrings, comments and blank lines.

    Example:
        >>> code_lines("x = 1  # one\n\n# a comment\ny = 2\n")
        2
    """
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            for part in node.body:
                if (
                    isinstance(part, ast.Expr)
                    and isinstance(part.value, ast.Constant)
                    and isinstance(part.value.value, str)
                ):
                    docstrings.update(range(part.lineno, (part.end_lineno or part.lineno) + 1))
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = (t for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type not in layout)
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - docstrings)


def _kernel() -> Checked:
    """Size of the trusted kernel, which every verification rests on."""
    files = sorted(Path(kernel.__path__[0]).rglob("*.py"))
    lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in files)
    return Checked("trusted kernel", "ok", f"{lines:,} lines of code in {len(files)} files")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _software() -> list[Checked]:
    out = [Checked("stability", "ok", _version("rnn-stability") or "not installed, run from a checkout")]
    out += [_kernel(), Checked("python", "ok", platform.python_version())]
    for name in NEEDED:
        version = _version(name)
        out.append(
            Checked(name, "ok", version)
            if version
            else Checked(name, "broken", "", "needed: pip install rnn-stability")
        )
    return out


def _extras() -> list[Checked]:
    out = []
    for name, (extra, adds) in EXTRAS.items():
        version = _version(name)
        note = adds if version else f"not installed; adds {adds} (pip install 'rnn-stability[{extra}]')"
        out.append(Checked(name, "ok" if version else "missing", version or "", note))
    return out


def _machine() -> list[Checked]:
    out = [Checked("system", "ok", f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores")]
    out.append(_tried("memory", _memory))
    out.append(_tried("linear algebra", _blas))
    out.append(_tried("devices", _devices))
    shared = os.access("/dev/shm", os.W_OK) if os.path.isdir("/dev") else True
    note = "" if shared else "no /dev/shm that can be written to: reports of several models need --processes 1"
    out.append(Checked("shared memory", "ok" if shared else "missing", "available" if shared else "", note))
    return out


def _works() -> list[Checked]:
    """Test the toolkit on systems with known answers: re-check a proof, find a counterexample, run a solver."""
    return [_tried("arithmetic", _arithmetic), _tried("certificates", _certificates), _tried("solvers", _solvers)]


def _tried(name: str, look: Callable[[], tuple[str, str]]) -> Checked:
    try:
        version, note = look()
    except Exception as error:  # noqa: BLE001 - whatever is broken about an installation is what is asked
        return Checked(name, "broken", "", error_text(error))
    return Checked(name, "ok", version, note)


def _memory() -> tuple[str, str]:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB", ""


def _blas() -> tuple[str, str]:
    import numpy  # noqa: F401 - its library is what is asked about
    from threadpoolctl import threadpool_info

    libraries = [f"{pool['internal_api']} {pool.get('version') or ''}, threads: {pool['num_threads']}" for pool in
             threadpool_info() if pool["user_api"] == "blas"]  # fmt: skip
    return "; ".join(sorted(set(libraries))) or "unknown", ""


def _devices() -> tuple[str, str]:
    import torch

    names = [torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count())]
    return ", ".join(["cpu", *names]), "" if names else "no CUDA device: trainings and attacks run on the processor"


def _arithmetic() -> tuple[str, str]:
    from stability.errors import ConfigurationError
    from stability.kernel.arithmetic.definiteness import FLUSHED, flushes_small_numbers

    if flushes_small_numbers():
        raise ConfigurationError(FLUSHED)
    return "IEEE 754", "the processor keeps subnormal numbers; the error bounds of proofs need them"


def _certificates() -> tuple[str, str]:
    from stability import LureSystem, certify, refute, verify

    certificate = certify(LureSystem.recurrent([[-2.0]], [[1.0]]))
    result = verify(certificate)
    witness = refute(LureSystem.recurrent([[-1.0]], [[2.0]]))
    if not (result.valid and result.rate is not None and 0.999 < result.rate <= 1.0 and witness.found):
        raise ArithmeticError("certify gave a wrong verdict for one of two systems with known stability")
    return "right", "two systems of known stability: one proof, one counterexample"


def _solvers() -> tuple[str, str]:
    from stability import LureSystem
    from stability.search.criteria.cross_check import cross_check

    opinions = cross_check(LureSystem.recurrent([[-2.0]], [[1.0]])).opinions
    failed = [f"{o.solver} ({o.status})" for o in opinions if not o.verified]
    if failed or not opinions:
        raise ArithmeticError(
            f"a linear matrix inequality with one state was not solved by {', '.join(failed) or 'any solver'}"
        )
    names = sorted({o.solver.lower() for o in opinions})
    return ", ".join(f"{name} {_version(name) or ''}".strip() for name in names), "each solved an inequality"
