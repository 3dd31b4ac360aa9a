"""Kernels of the diagonal recurrence: cache-sized blocks of rows and times, without graph and checks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_CACHE = 393216
"""Bytes of an operand in one operation: enough to hide the overhead, few enough to stay in the cache."""
_SHORTEST = 5
"""Steps of a chunk if the number of chunks is free: few operations on long operands, level upon level."""
_WIDTH = 2048
"""Most entries of one time step in one block."""
_BLOCK = 1 << 22
"""Bytes of one operand of one block."""


def _plan(width: int, length: int, size: int, device: torch.device) -> tuple[int, int]:
    """Return the number of chunks and their odd length: chunks a power of two apart would share cache lines."""
    limit = 1 << 22 if device.type == "cuda" else _CACHE // (size * width)
    if min(limit, length // _SHORTEST) < 8:
        return 1, length
    steps = max(_SHORTEST, length // limit | 1)
    steps = min(range(steps, steps + 8, 2), key=lambda c: (length % c, c))
    return (length // steps, steps) if length // steps >= 8 else (1, length)


def _blocks(shape: torch.Size, size: int, device: torch.device, reverse: bool) -> tuple[list[slice], list[slice]]:
    """Return the rows and times of each block, so that its second pass finds it in the cache."""
    m, length, n = shape
    if device.type == "cuda":
        return [slice(0, m)], [slice(0, length)]
    rows = min(m, max(1, _WIDTH // n))
    span = max(64, _BLOCK // (size * rows * n))
    times = [slice(t, min(t + span, length)) for t in range(0, length, span)]
    return [slice(k, k + rows) for k in range(0, m, rows)], times[::-1] if reverse else times


def states_of(lam: Tensor, b: Tensor, initial: Tensor | None, reverse: bool) -> Tensor:
    """Return all states, ``(m, time, n)``, without a graph."""
    x = torch.empty(b.shape, dtype=b.dtype, device=b.device)
    for _ in _walk(lam, b, x, initial, reverse):
        pass
    return x


def adjoint_of(lam: Tensor, grad: Tensor, x: Tensor, initial: Tensor | None, reverse: bool) -> tuple[Tensor, Tensor]:
    """Return ``g``, the reversed recurrence of ``grad`` for constant factors, and ``sum g_t conj(x_{t-1}) (n,)``."""
    g = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    total = g.new_zeros(g.shape[2])
    length = g.shape[1]
    for row, time, block in _walk(
        lam.conj(), grad, g, None, not reverse
    ):  # each block is used while it is in the cache
        first, last = (time.start, min(time.stop, length - 1)) if reverse else (max(time.start, 1), time.stop)
        if first < last:
            shift = 1 if reverse else -1
            segment = block[:, first - time.start : last - time.start]
            total += _slab_sum(segment, x[row, first + shift : last + shift])
    if initial is not None:
        total += (g[:, -1 if reverse else 0] * initial.conj()).sum(0)
    return g, total


def _walk(
    lam: Tensor, b: Tensor, x: Tensor, initial: Tensor | None, reverse: bool
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Write the states into ``x`` block by block; yield rows, times and states of each."""
    lam, b = lam.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg()
    start = b.new_zeros(b.shape[0], b.shape[2]) if initial is None else initial
    rows, times = _blocks(b.shape, b.element_size(), b.device, reverse)
    space = b.new_empty(0)
    for row in rows:
        state = start[row]
        for time in times:
            factor, block, out = lam if lam.dim() == 1 else lam[row, time], b[row, time], x[row, time]
            if len(rows) * len(times) == 1:
                _block(factor, block, out, state, reverse)
                yield row, time, out
                continue
            # steps and chunks are far apart in memory: read and write in order, jump about within the cache
            if space.shape != block.shape:
                space = torch.empty(block.shape, dtype=b.dtype, device=b.device)
            state = _block(factor, space.copy_(block), space, state, reverse).clone()
            out.copy_(space)
            yield row, time, space


def _block(lam: Tensor, b: Tensor, x: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """Write the states of one block into ``x``; return the initial state of the next block."""
    m, length, n = b.shape
    chunks, steps = _plan(m * n, length, b.element_size(), b.device)
    if chunks == 1:
        return _sweep(lam, b, x, start, 1, reverse)
    whole = chunks * steps
    body, rest = slice(0, whole), slice(whole, length)
    if reverse:
        body, rest = slice(length - whole, length), slice(0, length - whole)
    parts = [t if t.dim() == 1 else t[:, body].unflatten(1, (chunks, steps)) for t in (lam, b, x)]
    starts = _carries(parts[0], parts[1], start, reverse)
    _sweep(parts[0], parts[1], parts[2], starts, 2, reverse)
    last = x[:, body.start] if reverse else x[:, whole - 1]
    if whole == length:
        return last
    return _sweep(lam if lam.dim() == 1 else lam[:, rest], b[:, rest], x[:, rest], last, 1, reverse)


def _slices(t: Tensor, dim: int, reverse: bool, constant: bool = False) -> Any:
    """Return the steps of a tensor in the order of the recurrence; a constant factor is repeated."""
    if constant:
        return itertools.repeat(t)
    views = t.unbind(dim)
    return reversed(views) if reverse else views


def _sweep(lam: Tensor, b: Tensor, x: Tensor, state: Tensor, dim: int, reverse: bool) -> Tensor:
    """Run the loop, written into ``x``; return the last state."""
    for factor, drive, out in zip(
        _slices(lam, dim, reverse, lam.dim() == 1), _slices(b, dim, reverse), _slices(x, dim, reverse)
    ):
        state = torch.addcmul(drive, factor, state, out=out)
    return state


def _carries(lam: Tensor, b: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """Return the state before the first step of each chunk, ``(m, chunks, n)``."""
    m, chunks, steps, n = b.shape
    constant = lam.dim() == 1
    keep = slice(1, chunks) if reverse else slice(0, chunks - 1)
    final_states = b.new_zeros(m, chunks - 1, n)
    decay = None if constant else torch.ones_like(final_states)
    factors = lam if constant else lam[:, keep]
    for factor, drive in zip(_slices(factors, 2, reverse, constant), _slices(b[:, keep], 2, reverse)):
        torch.addcmul(drive, factor, final_states, out=final_states)
        if decay is not None:
            decay.mul_(factor)
    starts = torch.empty((m, chunks, n), dtype=b.dtype, device=b.device)
    starts[:, -1 if reverse else 0] = start
    targets = starts[:, :-1] if reverse else starts[:, 1:]
    _block(_power(lam, steps) if decay is None else decay, final_states, targets, start, reverse)
    return starts


def _power(lam: Tensor, exponent: int) -> Tensor:
    """Return ``lam ** exponent`` by squaring."""
    out = torch.ones_like(lam)
    while exponent:
        if exponent & 1:
            out = out * lam
        lam, exponent = lam * lam, exponent >> 1
    return out


def _slab_sum(g: Tensor, x: Tensor) -> Tensor:
    """Return ``sum g conj(x)`` over the first two axes."""
    m, length, n = x.shape
    count = min(length, max(1, _CACHE // (g.element_size() * m * n)))
    sums, space = g.new_zeros(m, count, n), g.new_empty(m, count, n)
    for a, b in zip(g.split(count, 1), x.split(count, 1)):
        if b.is_complex():
            b = torch.conj_physical(b, out=space[:, : b.shape[1]])
        sums[:, : a.shape[1]].addcmul_(a, b)
    return sums.sum((0, 1))
