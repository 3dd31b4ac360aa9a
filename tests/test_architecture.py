"""Architecture laws: imports point down, the kernel trusts nobody, no circles, sizes within the budget."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from stability.reports.cli.doctor import code_lines

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("stability", "models", "analysis", "reports")
SOLVERS = {"cvxpy", "scs", "clarabel", "cvxopt"}
FILES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py") if "__pycache__" not in path.parts)
BUDGET = {"stability": 25_500, "stability/kernel": 11_200, "models": 9_100, "analysis": 12_215, "reports": 8_172}
"""Most lines of code without docstrings, comments and blanks. A change of a number needs a reason in its commit."""
WITHOUT_CIRCLES = LAYERS
"""Layers in which no files and no folders import each other in a circle."""

PUBLIC = {
    "stability": (
        "LureSystem certify verify refute theorem1 Certificate Verdict hinf_norm circle_criterion kyp_lmi "
        "incremental_gain"
    ),
    "stability.models": (
        "LipschitzRNN ContractingRNN NeuralODERNN AntisymmetricRNN ElmanRNN LSTM GRU HouseholderRNN "
        "UnitaryRNN RotRNN LRU BoundedGainRNN "
        "SequenceModel qr lq pivoted_qr associative_scan lure_system load save"
    ),
    "stability.analysis": (
        "train SpectrumTracker hessian_summary spectral_density pgd deepfool attack_sweep "
        "noise_sweep norm_drift local_radius "
        "lyapunov_exponents certified_radius"
    ),
    "stability.reports": "render",
}


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    """The name as the import system sees it; a package's own name for its ``__init__``."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts if parts[0] == "stability" else ["stability", *parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


MODULES = {module_of(path): path for path in FILES}


def roots_imported(tree: ast.Module) -> set[str]:
    """Top-level packages that a file imports by absolute names."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and not n.level}
    return {name.split(".")[0] for name in names}


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """Nodes below ``if TYPE_CHECKING``."""
    blocks = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


def imported_names(path: Path) -> Iterator[tuple[str, str]]:
    """``(module, name)`` of every import of a file, also inside functions; the name is empty for ``import module``."""
    tree = tree_of(path)
    skipped = for_types_only(tree)
    base = module_of(path).split(".")
    base = base if path.name == "__init__.py" else base[:-1]
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            stem = base[: len(base) - node.level + 1] if node.level else []
            source = ".".join([*stem, *([node.module] if node.module else [])])
            yield from ((source, alias.name) for alias in node.names)


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules that a file imports; of this package those that exist as files."""
    found = set()
    for source, name in imported_names(path):
        inner = f"{source}.{name}"
        found.add(inner if inner in MODULES else source)
    return frozenset(found - {module_of(path)})


def layer_of(module: str) -> int | None:
    parts = module.split(".")
    if parts[0] != "stability":
        return None
    return LAYERS.index(parts[1]) if len(parts) > 1 and parts[1] in LAYERS[1:] else 0


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other, by removing what has no predecessor or no successor left."""
    left = {node: {m for m in graph[node] if m in graph and m != node} for node in graph}
    while True:
        targets = set().union(*left.values()) if left else set()
        loose = [node for node in left if not left[node] or node not in targets]
        if not loose:
            return [sorted(left)] if left else []
        for node in loose:
            del left[node]
        for successors in left.values():
            successors.difference_update(loose)


def test_every_package_ships() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(module_of(path) for path in FILES if path.name == "__init__.py")


def test_imports_never_point_up() -> None:
    up = [
        f"{label(path)} imports {module}"
        for path in FILES
        for module in imported(path)
        if label(path) != "stability/__main__.py"
        and (layer_of(module) or 0) > LAYERS.index(path.relative_to(ROOT).parts[0])
    ]
    assert not up


def test_one_file_imports_cvxpy_and_the_lowest_layer_no_torch() -> None:
    for path in FILES:
        roots = {module.split(".")[0] for module in imported(path)}
        assert not roots & SOLVERS or label(path) == "stability/search/solvers/semidefinite.py", label(path)
        assert "torch" not in roots or label(path).partition("/")[0] != "stability", label(path)


def test_the_kernel_imports_numpy_the_standard_library_and_itself() -> None:
    allowed = {*sys.stdlib_module_names, "numpy"}
    foreign = [
        f"{label(path)} imports {module}"
        for path in FILES
        if label(path).startswith("stability/kernel/")
        for module in imported(path)
        if module.split(".")[0] not in allowed
        and module != "stability.errors"
        and not module.startswith("stability.kernel")
    ]
    assert not foreign


def test_checking_imports_no_search() -> None:
    code = (
        "import sys, stability.verification; from stability.kernel.format.theorem_table import RULES; list(RULES);"
        "print([m for m in sys.modules if m.startswith(('stability.search', 'torch', 'cvxpy', 'scipy.optimize'))])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("layer", WITHOUT_CIRCLES)
def test_neither_files_nor_folders_import_each_other_in_a_circle(layer: str) -> None:
    files = {module_of(p): set(imported(p)) for p in FILES if label(p).startswith(f"{layer}/")}
    assert not circles(files)
    top = "stability" if layer == "stability" else f"stability.{layer}"
    folders: dict[str, set[str]] = {}
    for module, others in files.items():
        folder = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
        inside = {o if MODULES[o].name == "__init__.py" else o.rpartition(".")[0] for o in others if o in files}
        if folder != top:
            folders.setdefault(folder, set()).update(inside - {folder, top})
    assert not circles(folders)


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert not circles({"a": {"b"}, "b": {"c"}, "c": set()})


def test_no_test_imports_benchmarks() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if "benchmarks" in roots_imported(tree_of(path))]
    assert not tests


def test_sizes_stay_within_the_budget() -> None:
    lines = {label(path): code_lines(path.read_text(encoding="utf-8")) for path in FILES}
    for folder, most in BUDGET.items():
        total = sum(count for name, count in lines.items() if name.startswith(f"{folder}/"))
        assert total <= most, f"{folder} has {total} lines of code, the budget is {most}"
    sources = (path for top in (*LAYERS, "tests", "benchmarks", "examples") for path in (ROOT / top).rglob("*.py"))
    long = [label(path) for path in sources if path.read_text(encoding="utf-8").count("\n") > 400]
    assert not long, "split these by idea: a file has at most 400 lines"


@pytest.mark.parametrize("module", PUBLIC)
def test_promised_names_exist_and_are_listed(module: str) -> None:
    package = importlib.import_module(module)
    assert set(PUBLIC[module].split()) <= set(package.__all__)
    assert not [name for name in package.__all__ if getattr(package, name, None) is None]
    names = {each.name for each in pkgutil.iter_modules(package.__path__)}
    assert not names & {*package.__all__}, "an imported module hides the public name"
