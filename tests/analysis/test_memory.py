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
# What is resident of tensors that were made and freed: before, inside, after an inner end and after all; then whether
# a tensor larger than any hole of the heap has pages of its own. The heap has a hole at the end: `pins` lie above it.
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

def mapped(size):
    large = torch.zeros(size)
    heap = next(line.split()[0] for line in open("/proc/self/maps") if line.rstrip().endswith("[heap]"))
    low, high = (int(end, 16) for end in heap.split("-"))
    return not low <= large.data_ptr() < high

torch.zeros(2).add_(1.0)
start = resident()
found = [made(1)]
with kept_memory():
    with kept_memory():
        found.append(made(10))
    found += [made(1), mapped({SIZE})]
    below = torch.zeros({SIZE} // 4).add_(1.0)
    pins = [torch.zeros(2**14) for _ in range(8)]
    del below
print(json.dumps([*found, resident() - start, mapped(4 * {SIZE})]))
"""


def test_freed_memory_stays_inside_and_goes_back_at_the_end():
    out = subprocess.run([sys.executable, "-c", STAYS], capture_output=True, text=True, check=True).stdout
    before, inside, outer, mapped_inside, end, mapped_after = json.loads(out)
    assert max(before, end) < SIZE / 2
    assert (mapped_inside, mapped_after) == (False, True)
    assert SIZE * 0.9 < inside < SIZE * 3  # of ten, one or two are paid for
    assert SIZE * 0.9 < outer < SIZE * 3  # the inner end does not end the outer one


def test_an_error_ends_it_and_other_systems_do_without(monkeypatch):
    with pytest.raises(ZeroDivisionError), kept_memory():
        1 / 0  # noqa: B018
    assert memory._inside == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with kept_memory():
        assert memory._inside == 0
