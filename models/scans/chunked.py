r"""Scans of linear recurrences with a matrix state over whole sequences, by matrix products over chunks of time.

The state of a head is :math:`S_t` of shape ``(dk, dv)``: a memory of values ``v`` under keys ``k``, read as
:math:`o_t = S_t^\top q_t`. Inside a chunk the outputs are a masked product as in attention, weighted by the decay
between two steps. Only the state connects two chunks. All operations can be differentiated by autograd any number of
times.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError

from ..options import positive_int
from ..precision import full_precision
from ..tensors import kind_of

CHUNK = 64
"""Steps per chunk: with keys and values of about 64 entries, masked products and states then cost the same."""


@full_precision
def scalar_gated_scan(
    q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, *, initial: Tensor | None = None, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    r"""Compute :math:`S_t = a_t S_{t-1} + k_t v_t^\top` and :math:`o_t = S_t^\top q_t` for all t.

    The result equals that of a loop up to rounding for every decay; :math:`a_t` may underflow to zero or be one.

    Args:
        q: queries ``(batch, time, groups, dk)``; a group serves ``heads / groups`` consecutive heads.
        k: keys, in the shape of ``q``.
        v: values ``(batch, time, heads, dv)``.
        log_decay: :math:`\log a_t`, ``(batch, time, heads)``.
        initial: the state before the first step, ``(batch, heads, dk, dv)``; zero by default.
        chunk: steps of a chunk.

    Returns:
        Outputs ``(batch, time, heads, dv)`` and the last state ``(batch, heads, dk, dv)``.

    Raises:
        ConfigurationError: not real floating-point tensors on one device, or a bad ``chunk``.
        DimensionError: shapes that do not fit, or an empty axis.

    Source:
        T. Dao, A. Gu, "Transformers are SSMs" (2024), section 6.

    Example:
        >>> one = torch.ones(1, 3, 1, 1)
        >>> scalar_gated_scan(one, one, one, torch.full((1, 3, 1), 0.5).log())[0].flatten()
        tensor([1.0000, 1.5000, 1.7500])
    """
    kind = _check(q, k, v, {"log_decay": log_decay}, initial)
    (size, groups), dv = q.shape[1:3], v.shape[-1]
    q, k, v, log_decay = _chunks((q, k, v, log_decay), chunk, kind)
    q, k = q.transpose(2, 3), k.transpose(2, 3)  # (batch, chunks, groups, steps, dk)
    v = v.unflatten(3, (groups, -1)).transpose(2, 3)  # (batch, chunks, groups, steps, each, dv)
    decay = _Decay.of(log_decay.unflatten(3, (groups, -1)).movedim(2, -1))  # (batch, chunks, groups, each, steps)
    from_start, to_end = decay.from_start.mT.unsqueeze(-1), decay.to_end.mT.unsqueeze(-1)
    outputs = (((q @ k.mT).unsqueeze(3) * decay.between) @ v.transpose(3, 4)).transpose(3, 4)
    written = k.mT @ (to_end * v).flatten(-2)  # all heads of a group side by side
    kept = decay.whole.repeat_interleave(dv, -1).unsqueeze(3)
    state = torch.zeros_like(written[:, 0]) if initial is None else _side_by_side(initial.to(written.dtype), groups)
    before = []
    for factor, added in zip(kept.unbind(1), written.unbind(1), strict=True):
        before.append(state)
        state = torch.addcmul(added, factor, state)
    carried = (q @ torch.stack(before, 1)).unflatten(-1, (-1, dv))
    outputs = torch.addcmul(outputs, from_start, carried).transpose(2, 3).flatten(3, 4)
    return _joined(outputs, size, kind), state.unflatten(-1, (-1, dv)).movedim(3, 2).flatten(1, 2).to(kind)


@full_precision
def delta_rule_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    *,
    initial: Tensor | None = None,
    chunk: int = CHUNK,
) -> tuple[Tensor, Tensor]:
    r"""Compute :math:`S_t = \alpha_t (I - \beta_t k_t k_t^\top) S_{t-1} + \beta_t k_t v_t^\top` for all t.

    Outputs are :math:`o_t = S_t^\top q_t`. A step writes :math:`k_t u_t^\top` with
    :math:`u_t = \beta_t (v_t - \alpha_t S_{t-1}^\top k_t)`; the :math:`u` of a chunk solve one unit triangular system.

    Args:
        q: queries ``(batch, time, groups, dk)``; a group serves ``heads / groups`` consecutive heads.
        k: keys, in the shape of ``q``.
        v: values ``(batch, time, heads, dv)``.
        log_decay: :math:`\log \alpha_t`, ``(batch, time, heads)``.
        beta: strength of writing, ``(batch, time, heads)``.
        initial: the state before the first step, ``(batch, heads, dk, dv)``; zero by default.
        chunk: steps of a chunk.

    Returns:
        Outputs ``(batch, time, heads, dv)`` and the last state ``(batch, heads, dk, dv)``.

    Raises:
        ConfigurationError: not real floating-point tensors on one device, or a bad ``chunk``.
        DimensionError: shapes that do not fit, or an empty axis.

    Source:
        S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks: improving Mamba2 with delta rule" (2024), section 3.3.

    Example:
        >>> one, none = torch.ones(1, 2, 1, 1), torch.zeros(1, 2, 1)
        >>> delta_rule_scan(one, one, one, none, torch.full((1, 2, 1), 0.5))[0].flatten()
        tensor([0.5000, 0.7500])
    """
    kind = _check(q, k, v, {"log_decay": log_decay, "beta": beta}, initial)
    heads = v.shape[2]
    q, k = (x.repeat_interleave(heads // x.shape[2], 2) for x in (q, k))
    size, chunks = q.shape[1], _chunks((q, k, v, log_decay, beta), chunk, kind)
    q, k, v, log_decay, beta = (x.transpose(2, 3) for x in chunks)  # (batch, chunks, heads, steps, ...)
    decay, dv = _Decay.of(log_decay), v.shape[-1]
    beta, start = beta.unsqueeze(-1), decay.from_start.unsqueeze(-1)
    system = (beta * (k @ k.mT) * decay.between).tril(-1)
    right = beta * torch.cat([v, start * k], -1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    own, read = solved.split([dv, k.shape[-1]], -1)
    keys = (decay.to_end.unsqueeze(-1) * k).mT
    state = own.new_zeros(len(v), heads, k.shape[-1], dv) if initial is None else initial.to(own.dtype)
    before, written = [], []
    for u, w, key, factor in zip(*(x.unbind(1) for x in (own, read, keys, decay.whole[..., None, None])), strict=True):
        before.append(state)
        written.append(u - w @ state)
        state = torch.addcmul(key @ written[-1], factor, state)
    outputs = (start * q) @ torch.stack(before, 1) + (q @ k.mT * decay.between) @ torch.stack(written, 1)
    return _joined(outputs.transpose(2, 3), size, kind), state.to(kind)


class _Decay(NamedTuple):
    """Products of the decay inside chunks ``(..., steps)``.

    Attributes:
        between: from a step to each later one, ``(..., steps, steps)``, zero above the diagonal.
        from_start: from the state before the chunk to each step, ``(..., steps)``.
        to_end: from each step to the last one, ``(..., steps)``.
        whole: over the whole chunk, ``(...)``.
    """

    between: Tensor
    from_start: Tensor
    to_end: Tensor
    whole: Tensor

    @classmethod
    def of(cls, log_decay: Tensor) -> _Decay:
        """Return the products: differences of summed logarithms, in float64 and masked before the exponential."""
        kind, steps = log_decay.dtype, log_decay.shape[-1]
        tiny = -750.0  # exp is zero below in every format; larger sums would lose digits
        sums = log_decay.double().clamp(min=tiny).cumsum(-1)
        later = torch.ones(steps, steps, dtype=torch.bool, device=sums.device).triu(1)
        between = (sums.unsqueeze(-1) - sums.unsqueeze(-2)).to(kind).masked_fill(later, -torch.inf).exp()
        from_start = sums.to(kind).exp()
        return cls(between, from_start, between[..., -1, :], from_start[..., -1])


def _check(q: Tensor, k: Tensor, v: Tensor, gates: dict[str, Tensor], initial: Tensor | None) -> torch.dtype:
    """Check the arguments of a scan; return the dtype of the result."""
    named = {"q": q, "k": k, "v": v, **gates} | ({} if initial is None else {"initial": initial})
    for name, value in named.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise ConfigurationError(f"{name} must be a real floating-point tensor, got {kind_of(value)}")
        if value.device != q.device:
            raise ConfigurationError(f"{name} is on {value.device} and q is on {q.device}: move one of them")
    for name, value in (("q", q), ("v", v)):
        if value.dim() != 4 or 0 in value.shape:
            raise DimensionError(name, "(batch, time, heads, entries), none of them 0", tuple(value.shape))
    (batch, time, groups, dk), (heads, dv) = q.shape, v.shape[2:]
    if heads % groups:
        raise DimensionError("v", f"a multiple of {groups} heads", tuple(v.shape))
    shapes = {"k": q.shape, "v": (batch, time, heads, dv), "initial": (batch, heads, dk, dv)}
    for name, value in named.items():
        expected = shapes.get(name, q.shape if name == "q" else (batch, time, heads))
        if value.shape != expected:
            raise DimensionError(name, tuple(expected), tuple(value.shape))
    return functools.reduce(torch.promote_types, (value.dtype for value in named.values()))


def _chunks(tensors: Sequence[Tensor], chunk: int, kind: torch.dtype) -> list[Tensor]:
    """Cut axis 1 into chunks in float32 or float64; zeros fill the last chunk, which mean no decay and no input."""
    kind = torch.promote_types(kind, torch.float32)
    size = tensors[0].shape[1]
    chunk = min(positive_int("chunk", chunk), size)
    fill = -size % chunk
    padded = [nn.functional.pad(x, (0, 0) * (x.dim() - 2) + (0, fill)) if fill else x for x in tensors]
    return [x.to(kind).unflatten(1, (-1, chunk)) for x in padded]


def _joined(chunks: Tensor, size: int, kind: torch.dtype) -> Tensor:
    """Invert ``_chunks`` for one tensor ``(batch, chunks, steps, ...)``."""
    whole = chunks.flatten(1, 2).to(kind)
    return whole if whole.shape[1] == size else whole[:, :size]


def _side_by_side(state: Tensor, groups: int) -> Tensor:
    """Join the heads of each group: ``(batch, heads, dk, dv)`` to ``(batch, groups, dk, heads / groups * dv)``."""
    return state.unflatten(1, (groups, -1)).transpose(2, 3).flatten(-2)
