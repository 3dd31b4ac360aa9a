"""Modules that a command loads before it needs them: nobody waits for a network library who asks about matrices."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

HEAVY = ("torch", "cvxpy", "matplotlib", "pandas", "onnx")
RUN = f"""
import sys
from stability.reports.cli import run
code = run(sys.argv[1:])
print(code, [name for name in {HEAVY} if name in sys.modules], "scipy.optimize" in sys.modules)
"""
SCIPY = RUN.replace('"scipy.optimize" in sys.modules', '"scipy" in sys.modules')


def loaded(*words: str, cwd, program: str = RUN) -> str:
    """Exit code, heavy modules that were loaded, and whether the optimiser was (or what the program asks)."""
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, cwd=cwd
    ).stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("start")
    np.savez(path / "x.npz", A=-np.eye(3), W=0.3 * np.ones((3, 3)))
    return path


def test_matrices_are_certified_and_checked_without_a_network_library(folder):
    assert loaded("certify", "x.npz", "-o", "c.json", cwd=folder).startswith("0 []")
    assert loaded("verify", "c.json", cwd=folder) == "0 [] False"


def test_weights_in_an_archive_still_take_the_way_of_weights(folder):
    rows = {"weight_hh_l0": 0.1 * np.ones((3, 3)), "weight_ih_l0": np.ones((3, 2)), "bias_hh_l0": np.zeros(3)}
    np.savez(folder / "w.npz", **rows, bias_ih_l0=np.zeros(3))
    assert loaded("certify", "w.npz", "--cell", "rnn_tanh", cwd=folder).startswith("0 ['torch'")
