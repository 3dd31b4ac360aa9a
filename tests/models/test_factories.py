"""User-supplied factories: a failing one ends in one line with its exception, file and line, and exit code 2."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest
import torch

from stability.errors import ConfigurationError, FileFormatError
from stability.models.sources import load_module, load_subject
from stability.reports.cli import run

CODE = """
import sys
def leave(): sys.exit(0)
def key(): raise KeyError("weights")
def inside(): return torch.nn.RNN(0, 0)
def interrupt(): raise KeyboardInterrupt
def nothing(): return None
def prints():
    print("loading")
    net = torch.nn.RNN(2, 3)
    torch.nn.init.zeros_(net.weight_hh_l0)
    return net
import torch
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    before = set(sys.modules)
    (tmp_path / "factories_of_a_user.py").write_text(CODE)
    (tmp_path / "a_script_that_divides.py").write_text("1 / 0\n")
    (tmp_path / "a_file_that_is_cut_off.py").write_text("def load(\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("factories_of_a_user:leave", r"SystemExit: 0 \(at \S+/factories_of_a_user.py:3\)"),
        ("factories_of_a_user:key", r"KeyError: 'weights' \(at \S+/factories_of_a_user.py:4\)"),
        ("factories_of_a_user:inside", r"ValueError: .*\(at \S+/factories_of_a_user.py:5\)"),
        ("factories_of_a_user:lod", "AttributeError: .*has no attribute 'lod'$"),
        ("a_script_that_divides:anything", r"ZeroDivisionError: .*\(at \S+/a_script_that_divides.py:1\)"),
        ("a_file_that_is_cut_off.py:load", r"SyntaxError: .*a_file_that_is_cut_off.py, line 1"),
        ("no_such_module_of_a_user:load", "ModuleNotFoundError: No module named 'no_such_module_of_a_user'"),
    ],
)
def test_a_factory_that_fails(name, text, here, capsys):
    before = list(sys.path)
    for read in (load_subject, load_module):
        with pytest.raises(ConfigurationError):
            read(name)
    assert sys.path == before
    assert run(["certify", name, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("stability: error: ")
    assert captured.err.count("\n") == 1
    told = json.loads(captured.out)
    assert told["exit_code"] == 2
    assert re.search(text, told["error"])


def test_a_factory_that_gives_no_model(here):
    assert run(["certify", "factories_of_a_user:nothing"]) == 2


def test_what_a_factory_prints_is_no_result(here, capsys):
    assert run(["certify", "factories_of_a_user:prints", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["verdict"] == "certified"
    assert captured.err == "loading\n"


def test_an_interrupt_is_an_interrupt(here):
    with pytest.raises(KeyboardInterrupt):
        load_subject("factories_of_a_user:interrupt")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError):
        load_subject(tmp_path / "pipe")


@pytest.mark.parametrize("folder", ["nets of mine", "a:b"])
def test_a_factory_in_a_file(folder, here, capsys):
    """``FILE.py:factory``, from any folder, is what ``module:factory`` is beside it."""
    (here / folder).mkdir()
    (here / folder / "net_of_a_file.py").write_text("import torch\n\ndef load():\n    return torch.nn.RNN(2, 3)\n")
    before = list(sys.path)
    assert isinstance(load_module(f"{folder}/net_of_a_file.py:load"), torch.nn.RNN)
    assert isinstance(load_module(f"{here}/{folder}/net_of_a_file.py:load"), torch.nn.RNN)
    assert sys.path == before
    (here / "net_of_a_file.py").write_text("load = None\n")
    with pytest.raises(ConfigurationError):
        load_module("net_of_a_file.py:load")
    assert run(["certify", "nowhere.py:load"]) == 2
    assert capsys.readouterr().err == "stability: error: there is no file nowhere.py\n"


def test_a_link_to_a_file_keeps_its_own_name(here):
    for folder in ("own", "links"):
        (here / folder).mkdir()
    (here / "own" / "net_behind_a_link.py").write_text("import torch\n\ndef load():\n    return torch.nn.RNN(2, 3)\n")
    (here / "links" / "linked_net.py").symlink_to(here / "own" / "net_behind_a_link.py")
    assert isinstance(load_module("links/linked_net.py:load"), torch.nn.RNN)
