"""Tensors that are made again and again are not paid for page by page."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from stability.analysis import memory
from stability.analysis.memory import kept_memory

pytestmark = pytest.mark.skipif(memory._allocator() is None, reason="glibc alone")
MANY = 40 * 2**20 // resource.getpagesize() // 2


def faults() -> int:
    """Pages that three tensors of 40 MB cost, one after the other."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        torch.zeros(10 * 2**20).add_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def test_freed_memory_stays_inside_and_goes_back_at_the_end():
    assert faults() > MANY
    with kept_memory():
        with kept_memory():
            torch.zeros(10 * 2**20)
        faults()
        assert faults() < MANY  # the inner end does not end the outer one
    assert faults() > MANY
    assert memory._inside == 0


def test_an_error_ends_it_and_other_systems_do_without(monkeypatch):
    with pytest.raises(ZeroDivisionError), kept_memory():
        1 / 0  # noqa: B018
    assert memory._inside == 0
    monkeypatch.setattr(sys, "platform", "darwin")
    with kept_memory():
        assert memory._inside == 0
