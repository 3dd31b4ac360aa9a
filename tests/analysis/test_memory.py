"""Tensors that are made again and again are not paid for page by page."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stability.analysis import memory
from stability.analysis.memory import kept_memory

pytestmark = pytest.mark.skipif(memory._allocator() is None, reason="glibc alone")
SIZE = 40 * 2**20
# What is resident of tensors that were made and freed: before, inside, after an inner end, after all, and afterwards.
# In a process of its own, since a heap with holes from other work serves the tensor from a hole.
STAYS = f"""
import json, resource
import torch
from stability.analysis.memory import kept_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

def made(times):
    for _ in range(times):
        torch.zeros({SIZE} // 4).add_(1.0)
    return resident() - start

torch.zeros(2).add_(1.0)
start = resident()
found = [made(1)]
with kept_memory():
    with kept_memory():
        found.append(made(10))
    found.append(made(1))
found += [resident() - start, made(1)]
print(json.dumps(found))
"""


def test_freed_memory_stays_inside_and_goes_back_at_the_end():
    out = subprocess.run([sys.executable, "-c", STAYS], capture_output=True, text=True, check=True).stdout
    before, inside, outer, end, after = json.loads(out)
    assert max(before, end, after) < SIZE / 2
    assert SIZE * 0.9 < inside < SIZE * 3  # of ten, one or two are paid for
    assert SIZE * 0.9 < outer < SIZE * 3  # the inner end does not end the outer one


def test_an_error_ends_it_and_other_systems_do_without(monkeypatch):
    with pytest.raises(ZeroDivisionError), kept_memory():
        1 / 0  # noqa: B018
    assert memory._inside == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with kept_memory():
        assert memory._inside == 0
