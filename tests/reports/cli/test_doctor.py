"""The examination of an installation: it says what is there, and notices what is broken."""

from __future__ import annotations

import json
from importlib import metadata

import numpy as np
import pytest

import stability
from stability import Verification
from stability.reports import cli
from stability.reports.cli import doctor


def asked(capsys, *words: str) -> tuple[int, dict]:
    code = cli.run(["doctor", "--json", *words])
    document = json.loads(capsys.readouterr().out)
    return code, {line["name"]: line for line in document["checks"]} | {"ok": document["ok"]}


def test_an_installation_that_works(capsys):
    code, found = asked(capsys)
    assert (code, found["ok"]) == (0, True)
    assert found["numpy"]["found"] == np.__version__
    assert {"clarabel", "scs"} == {word.split()[0] for word in found["solvers"]["found"].split(", ")}
    assert cli.run(["doctor"]) == 0
    assert "Every required part works." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "state", "code", "note"),
    [("cvxpy", "broken", 2, "needed"), ("onnx", "missing", 0, "rnn-stability[onnx]")],
)
def test_a_package_that_is_not_there(monkeypatch, capsys, name, state, code, note):
    there = metadata.version

    def version(package: str) -> str:
        if package == name:
            raise metadata.PackageNotFoundError(package)
        return there(package)

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor, "_works", list)
    got, found = asked(capsys)
    assert (got, found[name]["state"]) == (code, state)
    assert note in found[name]["note"]


def test_a_checker_that_refuses_what_is_true_is_noticed(monkeypatch, capsys):
    monkeypatch.setattr(stability, "verify", lambda certificate: Verification(False, "nothing holds"))
    code, found = asked(capsys)
    assert (code, found["certificates"]["state"]) == (2, "broken")
    assert found["certificates"]["note"].startswith("ArithmeticError")
