"""Every example in a docstring is run, in every module of the package."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import numpy as np
import pytest

from tests.test_architecture import FILES, module_of

OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", [module_of(path) for path in FILES if ">>>" in path.read_text(encoding="utf-8")])
def test_examples_of(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with np.printoptions(precision=8, suppress=False, legacy=False):
        result = doctest.testmod(importlib.import_module(name), optionflags=OPTIONS)
    assert result.attempted
    assert not result.failed
