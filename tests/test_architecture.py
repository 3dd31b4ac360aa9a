"""The house keeps its shape: imports point down, one file speaks to the solver, the checker trusts nobody."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("stability", "models", "analysis", "reports")
ENTRANCE = "stability/__main__.py"
SOLVERS = {"cvxpy", "scs", "clarabel", "cvxopt"}
FILES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py") if "__pycache__" not in path.parts)

PUBLIC = {
    "stability": (
        "LureSystem certify verify refute theorem1 Certificate Verdict hinf_norm circle_criterion kyp_lmi "
        "incremental_gain"
    ),
    "stability.models": (
        "LipschitzRNN ContractingRNN NeuralODERNN AntisymmetricRNN ElmanRNN LSTM GRU HouseholderRNN "
        "UnitaryRNN RotRNN LRU "
        "SequenceModel qr lq pivoted_qr associative_scan lure_system load save"
    ),
    "stability.analysis": (
        "train SpectrumTracker hessian_summary spectral_density pgd deepfool attack_sweep "
        "noise_sweep norm_drift "
        "lyapunov_exponents certified_radius"
    ),
    "stability.reports": "render",
}


def dotted(path: Path) -> list[str]:
    """The module's name as the import system sees it, in parts; a package's own name for its __init__."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts if parts[0] == "stability" else ["stability", *parts]
    return parts[:-1] if parts[-1] == "__init__" else parts


def test_every_package_ships():
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted({".".join(dotted(path)) for path in FILES if path.name == "__init__.py"})


def imports(source: str, name: list[str], is_package: bool, *, at_once: bool = False) -> set[str]:
    """Absolute names of all modules that a source file imports; ``at_once``: when it is itself imported."""
    found: set[str] = set()
    tree = ast.parse(source)
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = name if is_package else name[:-1]
                base = base[: len(base) - (node.level - 1)]
                stem = ".".join([*base, *([node.module] if node.module else [])])
            else:
                stem = node.module or ""
            found.add(stem)
            found.update(f"{stem}.{alias.name}" for alias in node.names)
    return found


def floor_of(module: str) -> int | None:
    """0 to 3 for a module of the package, ``None`` for anything else."""
    parts = module.split(".")
    if parts[0] != "stability":
        return None
    return FLOORS.index(parts[1]) if len(parts) > 1 and parts[1] in FLOORS[1:] else 0


def imported(path: Path, *, at_once: bool = False) -> set[str]:
    is_package = path.name == "__init__.py"
    return imports(path.read_text(encoding="utf-8"), dotted(path), is_package, at_once=at_once)


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_file = pytest.mark.parametrize("path", FILES, ids=label)


@each_file
def test_imports_never_point_up(path: Path) -> None:
    if label(path) == ENTRANCE:
        return
    own = FLOORS.index(path.relative_to(ROOT).parts[0])
    up = sorted(m for m in imported(path) if (floor_of(m) or 0) > own)
    assert not up, f"{label(path)} (floor {own}) imports from above: {up}"


@each_file
def test_only_one_file_speaks_to_the_solver(path: Path) -> None:
    solvers = sorted(m for m in imported(path) if m.split(".")[0] in SOLVERS)
    assert not solvers or label(path) == "stability/search/solvers/semidefinite.py", f"{label(path)} imports {solvers}"


@pytest.mark.parametrize("path", [p for p in FILES if p.relative_to(ROOT).parts[0] == "stability"], ids=label)
def test_the_ground_floor_knows_no_torch(path: Path) -> None:
    assert not [m for m in imported(path) if m.split(".")[0] in ("torch", "torchvision")]


def reach(start: str) -> dict[str, str]:
    """Every module that importing ``start`` makes run, and who asks for it, from the sources.

    The package's own ``__init__`` is left out: it gathers names, the checker takes nothing from it.
    """
    asked = {start: ""}
    waiting = [start]
    while waiting:
        name = waiting.pop()
        path = ROOT / Path(*name.split("."))
        file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
        if name == "stability" or not file.is_file():
            continue
        at_once = not name.startswith(("stability.verify", "stability.rules"))  # these are looked at in full
        modules = imported(file, at_once=at_once)
        if (
            name == "stability.kernel.format.theorem_table"
        ):  # which imports whatever lies in its folder, when it is asked
            modules |= {f"stability.rules.{p.stem}" for p in path.parent.glob("*.py")}
        for module in modules - asked.keys():
            asked[module] = name
            waiting.append(module)
    return asked


def test_the_checker_imports_no_solver_no_torch_no_prover() -> None:
    asked = reach("stability.verify")
    provers = (
        "stability.solve",
        "stability.criteria",
        "stability.certify",
        "stability.refute",
        "scipy.optimize",
    )
    bad = {m: by for m, by in asked.items() if m.startswith(provers) or m.split(".")[0] in {"torch", *SOLVERS}}
    assert not bad
    assert {
        "stability.kernel.theorems.multiplier_lmi",
        "stability.kernel.arithmetic.definiteness",
        "numpy",
    } <= asked.keys()


def test_checking_loads_neither_torch_nor_a_solver() -> None:
    code = "import sys, stability.verify; print([m for m in ('torch', 'cvxpy', 'scs', 'clarabel') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted((ROOT / "stability" / "rules").glob("*.py")), ids=label)
def test_rules_trust_no_prover(path: Path) -> None:
    bad = {
        m
        for m in imported(path)
        if m.startswith(("stability.solve", "stability.criteria", "stability.certify", "scipy.optimize"))
    }
    assert not bad, f"{label(path)} re-proves with what it should check: {sorted(bad)}"


@pytest.mark.parametrize(
    "path",
    sorted(p for d in (*FLOORS, "tests", "benchmarks", "examples") for p in (ROOT / d).rglob("*.py")),
    ids=label,
)
def test_files_stay_short(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= 400, f"{label(path)} has {lines} lines: split it by idea"


@pytest.mark.parametrize(("module", "name"), [(m, n) for m, names in PUBLIC.items() for n in names.split()])
def test_promised_names_are_there(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name, None) is not None


def defined(tree: ast.Module) -> set[str]:
    """Names that a module binds at its top other than by importing them."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.If, ast.Try)):
            found.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return found


def test_a_name_is_imported_from_where_it_is_defined() -> None:
    """Only a package passes on names of others, and lists them; what begins with an underscore stays in its file."""
    trees = {".".join(dotted(path)): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
    packages = {".".join(dotted(path)) for path in FILES if path.name == "__init__.py"}
    offered = {name: defined(tree) for name, tree in trees.items()}
    wrong = [f"{name} has a list __all__" for name in trees.keys() - packages if "__all__" in offered[name]]
    seen = 0
    for path in FILES:
        name = dotted(path)
        for node in ast.walk(trees[".".join(name)]):
            if not isinstance(node, ast.ImportFrom):
                continue
            base = name if path.name == "__init__.py" else name[:-1]
            stem = base[: len(base) - node.level + 1] if node.level else []
            source = ".".join([*stem, *([node.module] if node.module else [])])
            for alias in node.names if source in trees else ():
                seen += 1
                if alias.name.startswith("_") or (source not in packages and alias.name not in offered[source]):
                    wrong.append(f"{label(path)} imports {alias.name} from {source}")
    assert not wrong
    assert seen > 1000


@pytest.mark.parametrize("module", PUBLIC)
def test_all_lists_what_exists(module: str) -> None:
    package = importlib.import_module(module)
    missing = [n for n in package.__all__ if not hasattr(package, n)]
    assert not missing
    assert set(PUBLIC[module].split()) <= set(package.__all__)


@pytest.mark.parametrize(
    ("statement", "inside", "expected"),
    [
        ("from ..reports import render", "stability.models.x", 3),
        ("from ...analysis import tasks", "stability.models.parametrizations.x", 2),
        ("import stability.reports.cli", "stability.models.x", 3),
        ("from stability import analysis", "stability.models.x", 2),
        ("def f():\n    from ..models import load", "stability.analysis.x", 1),
        ("from .systems import LureSystem", "stability.x", 0),
    ],
)
def test_the_reader_of_imports_sees_them(statement: str, inside: str, expected: int) -> None:
    found = imports(statement, inside.split("."), is_package=False)
    assert max(floor_of(m) or 0 for m in found) == expected
