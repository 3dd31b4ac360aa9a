"""A user's code that fails or ends the program is no answer: exit code 0 says "certified" and nothing else."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest
import torch
from torch import nn

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.kernel.arithmetic.definiteness import flushes_small_numbers
from stability.models.adapters.modules import _ADAPTERS, register_adapter
from stability.models.sources import load_module, load_subject
from stability.reports.cli import run
from stability.systems import LureSystem

CODE = """
import sys
def leave(): sys.exit(0)
def leave_loudly(): sys.exit(77)
def leave_with_words(): sys.exit("bye")
def key(): raise KeyError("weights")
def zero(): 1 / 0
def check(): assert False, "never"
def memory(): raise MemoryError
def stop(): raise StopIteration
def interrupt(): raise KeyboardInterrupt
def flush():
    import torch
    torch.set_flush_denormal(True)
    return torch.nn.GRU(2, 3)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "factories_of_a_user.py").write_text(CODE)
    (tmp_path / "a_script_that_ends.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "a_script_that_divides.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("factories_of_a_user", "a_script_that_ends", "a_script_that_divides"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("factories_of_a_user:leave", r"ended the program \(sys\.exit\(0\)\).*__main__"),
        ("factories_of_a_user:leave_loudly", r"sys\.exit\(77\)"),
        ("factories_of_a_user:leave_with_words", r"sys\.exit\('bye'\)"),
        ("a_script_that_ends:anything", r"sys\.exit\(0\)"),
        ("a_script_that_divides:anything", "ZeroDivisionError: division by zero"),
        ("factories_of_a_user:key", "KeyError: 'weights'"),
        ("factories_of_a_user:zero", "ZeroDivisionError"),
        ("factories_of_a_user:check", "AssertionError: never"),
        ("factories_of_a_user:memory", "MemoryError"),
        ("factories_of_a_user:stop", "StopIteration"),
    ],
)
def test_a_factory_that_gives_no_model(name, text, here, capsys):
    before = list(sys.path)
    for read in (load_subject, load_module):
        with pytest.raises(ConfigurationError, match=f"{name} cannot be used as a factory: .*{text}"):
            read(name)
        sys.modules.pop("a_script_that_ends", None)
    assert sys.path == before
    assert run(["certify", name, "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("stability: error: ")
    told = json.loads(captured.out)
    assert told.keys() == {"error", "exit_code"}
    assert told["exit_code"] == 2
    assert re.search(f"{name} cannot be used as a factory: .*{text}", told["error"])


def test_an_interrupt_is_an_interrupt(here):
    with pytest.raises(KeyboardInterrupt):
        load_subject("factories_of_a_user:interrupt")


class Leaves(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.eye(2))

    def forward(self, x, h):
        sys.exit(0)

    def driven(self):
        sys.exit(0)


def test_a_module_that_ends_the_program():
    with pytest.raises(ConfigurationError, match=r"the system of a Leaves was not given.*sys\.exit\(0\)"):
        as_subject(nn.ModuleDict({"core": Leaves()}))
    try:
        register_adapter(Leaves)(lambda m: sys.exit(0))
        with pytest.raises(ConfigurationError, match=r"sys\.exit\(0\)"):
            as_subject(Leaves())
        register_adapter(Leaves, step=lambda m, x, h: m(x, h), replace=True)(
            lambda m: __import__("stability").systems.DrivenSystem(
                LureSystem(torch.zeros(2, 2), torch.eye(2), m.W.detach(), dt=1.0), "tanh", torch.eye(2)
            )
        )
        with pytest.raises(UnsupportedError, match="cannot be run beside its system: SystemExit"):
            as_subject(Leaves())
    finally:
        _ADAPTERS.pop(Leaves, None)


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="neither a regular file nor a directory"):
        load_subject(tmp_path / "pipe")


def test_small_numbers_are_numbers_again_behind_a_factory(here):
    assert load_subject("factories_of_a_user:flush").subject.kind == "gru"
    try:
        assert not flushes_small_numbers()
    finally:
        torch.set_flush_denormal(False)


def test_a_factory_in_a_file(here, capsys):
    """``FILE.py:factory``, from any folder, is what ``module:factory`` is beside it."""
    folder = here / "nets of mine"
    folder.mkdir()
    (folder / "net_of_a_file.py").write_text("import torch\n\ndef load():\n    return torch.nn.RNN(2, 3)\n")
    before = list(sys.path)
    assert isinstance(load_module("nets of mine/net_of_a_file.py:load"), torch.nn.RNN)
    assert isinstance(load_module(f"{folder}/net_of_a_file.py:load"), torch.nn.RNN)
    assert sys.path == before
    assert run(["certify", f"{folder}/net_of_a_file.py:load", "--json"]) in (0, 1, 3)
    (here / "net_of_a_file.py").write_text("load = None\n")
    with pytest.raises(ConfigurationError, match="a module net_of_a_file of another file is imported already"):
        load_module("net_of_a_file.py:load")
    with pytest.raises(ConfigurationError, match=r"there is no file nowhere\.py"):
        load_module("nowhere.py:load")
    capsys.readouterr()
    assert run(["certify", "nowhere.py:load"]) == 2
    assert capsys.readouterr().err == "stability: error: there is no file nowhere.py\n"
    sys.modules.pop("net_of_a_file", None)


def test_a_link_to_a_file_and_names_that_no_module_has(here):
    for folder in ("own", "links"):
        (here / folder).mkdir()
    (here / "own" / "net_behind_a_link.py").write_text("import torch\n\ndef load():\n    return torch.nn.RNN(2, 3)\n")
    (here / "links" / "linked_net.py").symlink_to(here / "own" / "net_behind_a_link.py")
    (here / "own" / "net.v2.py").write_text("")
    assert isinstance(load_module("links/linked_net.py:load"), torch.nn.RNN)
    with pytest.raises(ConfigurationError, match=r"net\.v2\.py has a dot in its name"):
        load_module("own/net.v2.py:load")
    sys.modules.pop("linked_net", None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NETS_IN_CAPITALS.PY:load", "NETS_IN_CAPITALS.PY cannot be imported, a module's file ends in .py: rename it"),
        ("folder/net_in_a_folder:load", "folder/net_in_a_folder is no name of a module; .* FILE.py:factory of a file"),
        ("net_in_a_folder.py:lod", "net_in_a_folder.py has no lod; net_in_a_folder.py holds 'load', 'other'"),
        ("net_in_a_folder.py:", "lacks the name of a factory behind its colon; .*'load'"),
        ("net_in_a_folder:load.x", "net_in_a_folder has no x"),
        (r"C:\nets.py:load", r"there is no file C:\\nets\.py"),
    ],
)
def test_names_that_lead_to_no_factory(here, name, said):
    (here / "NETS_IN_CAPITALS.PY").write_text("load = None\n")
    (here / "net_in_a_folder.py").write_text("def load(): pass\n\ndef other(): pass\n\n_mine = load\nnumber = 3\n")
    try:
        with pytest.raises(ConfigurationError, match=said):
            load_module(name)
    finally:
        sys.modules.pop("net_in_a_folder", None)


def test_a_colon_in_the_name_of_a_folder(here):
    (here / "a:b").mkdir()
    (here / "a:b" / "net_behind_a_colon.py").write_text("import torch\n\ndef load():\n    return torch.nn.RNN(2, 3)\n")
    assert isinstance(load_module("a:b/net_behind_a_colon.py:load"), torch.nn.RNN)
    sys.modules.pop("net_behind_a_colon", None)
