"""Which code a result was computed with: the release, a digest of the sources that compute, the libraries below."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from stability.errors import ConfigurationError

FLOORS = ("stability", "stability.models", "stability.analysis")
_KEEPERS = ("folder", "index", "locking", "places", "results", "sources", "store", "writing")
ASIDE = (
    *(f"stability.storage.{name}" for name in _KEEPERS), "stability.reports", "stability.analysis.studies",
    "stability.analysis.sweep.running",
)  # fmt: skip
"""What decides no result: how files are written, shown and spread over processes; papers rerun by other commands."""
LIBRARIES = ("torch", "numpy", "scipy", "cvxpy", "scs", "clarabel")


@functools.cache
def code_version() -> str:
    """The release, twelve digits of a digest of the sources, and the libraries whose arithmetic is used.

    Example:
        >>> code_version().split()[0].count("+")
        1
    """
    digest = hashlib.sha256()
    for name, path in sorted(_sources()):
        digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return f"{_version('rnn-stability')}+{digest.hexdigest()[:12]} " + " ".join(
        f"{name}-{_version(name)}" for name in LIBRARIES
    )


@functools.cache
def module_version(name: str) -> str:
    """A digest of the file of a user's own module.

    Args:
        name: of the module, importable from here.

    Raises:
        ConfigurationError: there is none, or it has no file.
    """
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigurationError(f"there is no module {name} here: is its folder in the path of Python?")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:12]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _sources() -> Iterator[tuple[str, Path]]:
    """Every source file of the floors that compute, by its dotted name."""
    for floor in FLOORS:
        spec = find_spec(floor)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            root = Path(place)
            for path in root.rglob("*.py"):
                parts = path.relative_to(root).with_suffix("").parts
                name = ".".join((floor, *parts))
                nested = parts[0] in ("models", "analysis", "reports") and floor == "stability"  # a flat installation
                if not nested and not any(name == aside or name.startswith(f"{aside}.") for aside in ASIDE):
                    yield name, path
