"""Differentiable runs of gated linear layers in float64, and gradient ascent over sequences in their input sets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from stability import systems as s
from stability.kernel.systems.input_sets import InputSet

EPS = 1e-6
"""Number that the norm in front of a layer adds to the mean square, so that the inside of the ball is reached too."""


def tensor(value: Any) -> Tensor:
    return torch.as_tensor(np.asarray(value), dtype=torch.float64)


def inputs(source: s.NormBall | s.InputBox | s.Vocabulary, x: Tensor) -> Tensor:
    """Map free numbers ``x (..., d)`` into an input set; a token is a choice with a straight-through gradient."""
    if isinstance(source, s.InputBox):
        low, high = tensor(source.low), tensor(source.high)
        return low + (high - low) * torch.sigmoid(x)
    if isinstance(source, s.Vocabulary):
        vectors = tensor(source.vectors)
        soft = torch.softmax(x @ vectors.T, dim=-1)
        hard = F.one_hot(soft.argmax(-1), len(vectors)).double()
        return (hard + soft - soft.detach()) @ vectors
    z = x - x.mean(-1, keepdim=True) if source.centered else x
    return z * torch.rsqrt(z.square().mean(-1, keepdim=True) + EPS) * tensor(source.factor) + tensor(source.bias)


def values(signal: Any, u: Tensor) -> Tensor:
    """Return the values ``(batch, time, size)`` of a signal for inputs ``u``."""
    if isinstance(signal, InputSet):
        return u
    x = values(signal.source, u)
    if isinstance(signal, s.Affine):
        return x @ tensor(signal.weight).T + tensor(signal.bias)
    if isinstance(signal, s.Convolution):
        taps = tensor(signal.kernel)
        past = F.pad(x, (0, 0, len(taps) - 1, 0))
        shifted = (taps[j] * past[:, len(taps) - 1 - j :][:, : x.shape[1]] for j in range(len(taps)))
        return sum(shifted, tensor(signal.bias))
    if isinstance(signal, (s.SiLU, s.Tanh)):
        return F.silu(x) if isinstance(signal, s.SiLU) else torch.tanh(x)
    assert isinstance(signal, s.Normalized), type(signal)
    return tensor(signal.weight) * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + signal.eps)


def steps(gate: s.SoftplusGate, u: Tensor) -> Tensor:
    most = math.inf if gate.most is None else gate.most
    return F.softplus(values(gate.signal, u), threshold=700.0).maximum(tensor(gate.least)).clamp(max=most)


def log_decays(gate: Any, u: Tensor) -> Tensor:
    """Return ``ln a (batch, time, units)``, or ``(batch, time, units, k)``; of constant gates ``ln |a|``."""
    if isinstance(gate, s.SoftplusGate):
        step = steps(gate, u) if np.ndim(gate.log_rate) == 1 else steps(gate, u).unsqueeze(-1)
        return (1.0 if gate.growing else -1.0) * tensor(gate.log_rate).exp() * step
    if isinstance(gate, s.RWKVGate):
        return -math.exp(-0.5) * torch.sigmoid(values(gate.signal, u))
    if isinstance(gate, s.RGLRUGate):
        return -8.0 * torch.sigmoid(values(gate.signal, u)) * F.softplus(tensor(gate.parameter), threshold=700.0)
    if isinstance(gate, s.RatioGate):
        forget, insert = (F.logsigmoid(values(x, u)) for x in (gate.forget, gate.insert))
        return -F.softplus(insert - forget, threshold=700.0)
    if isinstance(gate, s.SigmoidGate):
        p = values(gate.signal, u)
        log = F.logsigmoid(p if gate.cap is None else gate.cap * torch.tanh(p / gate.cap)) / gate.root
        floor = tensor(gate.floor)
        return torch.log1p((1.0 - floor) * torch.expm1(log)) if floor.any() else log
    assert isinstance(gate, s.ConstantGate), type(gate)
    rate = tensor(gate.rate) if gate.rate is not None else -tensor(gate.log_rate).exp()
    return (rate * tensor(gate.log_step).exp()).expand(*u.shape[:2], -1)


def run(layer: s.GatedLinearLayer, u: Tensor, keys: Tensor, start: Tensor | None = None) -> Tensor:
    """Return the states ``(batch, time, ...)`` from zero, or those after the window of ``u`` filled from ``start``.

    Values of RWKV-7 are those of the layer itself, without a share of the first layer's.

    Args:
        layer: the layer.
        u: inputs ``(batch, time, d)``.
        keys: free numbers ``(batch, time, heads, k)``: keys of a delta rule, which a layer does not store; angles of
            the eigenvalues of a constant transition, ``(batch, time, units, 1)``, of which the first is used.
        start: state in the middle of a sequence.
    """
    b, log = layer.injection, log_decays(layer.gate, u)
    a, found = log.exp(), [values(signal, u) for signal in b.signals]
    k, v, beta, removed = keys / (keys.square().sum(-1, keepdim=True) + 1e-6).sqrt(), None, None, None
    if isinstance(b, s.StepInjection):
        dt = steps(layer.gate, u)  # pyright: ignore[reportArgumentType]
        if a.ndim == 4:
            added = dt.unsqueeze(-1) * found[0].unsqueeze(-1) * found[1].unsqueeze(-2)
        else:
            heads = [x.unflatten(-1, (n, -1)) for x, n in zip(found, (layer.units, b.groups))]
            repeated = heads[1].repeat_interleave(layer.units // b.groups, 2)
            added = dt[..., None, None] * heads[0].unsqueeze(-1) * repeated.unsqueeze(-2)
    elif isinstance(b, s.ConvexInjection):
        x = found[0]
        x = {"identity": x, "silu": F.silu(x), "min_gru": torch.where(x >= 0, x + 0.5, torch.sigmoid(x))}[b.activation]
        added = -torch.expm1(log) * x
    elif isinstance(b, s.RootInjection):
        root = torch.sqrt(-torch.expm1(2.0 * log) + 1e-300)
        if start is None:
            root = torch.cat([torch.ones_like(root[:, :1]), root[:, 1:]], 1)
        added = root * torch.sigmoid(found[1]) * found[0]
    elif isinstance(b, s.OuterInjection):
        value, key = (x.unflatten(-1, (b.heads, -1)) for x in found[:2])
        added = key.unsqueeze(-1) * value.unsqueeze(-2)
        if b.insert is not None:
            q = found[2] if b.cap is None else b.cap * torch.tanh(found[2] / b.cap)
            added = q.exp()[..., None, None] * added
        a = a.unflatten(-1, (b.heads, -1)) if layer.units != b.heads else a
    elif isinstance(b, s.RWKVInjection):
        value, key, rate = (x.unflatten(-1, (b.heads, -1)) for x in found)
        removal, replacement = (tensor(x).unflatten(-1, (b.heads, -1)) for x in (b.removal, b.replacement))
        k, rate = F.normalize(removal * key, dim=-1).unsqueeze(-1), torch.sigmoid(rate)
        added = value.unsqueeze(-1) * (key * (1.0 + (rate - 1.0) * replacement)).unsqueeze(-2)
        a, removed = a.unflatten(-1, (b.heads, 1, -1)), (rate * k.squeeze(-1)).unsqueeze(-2)
    elif isinstance(b, s.LinearInjection):
        rows, angle = u @ tensor(b.weight).T, keys[:, :1, :, 0]
        exponent = torch.complex(log[:, :1], angle)  # Lambda Delta
        scale, a = tensor(b.log_scale).exp(), exponent.exp().expand(-1, u.shape[1], -1)
        if b.hold:
            scale = scale * tensor(layer.gate.log_step).exp() * (a - 1.0) / exponent  # pyright: ignore
        added = scale * torch.complex(rows[..., ::2], rows[..., 1::2])
    else:
        assert isinstance(b, s.DeltaInjection), type(b)
        heads = np.size(b.rate.bounds[0])
        v, beta = found[0].unflatten(-1, (heads, -1)), b.scale * torch.sigmoid(found[1])
        a, added = a.unflatten(-1, (heads, -1)), torch.zeros(*u.shape[:2], heads, b.key_size, v.shape[-1])
    first = 0 if start is None else layer.taps - 1
    h, out = torch.zeros_like(added[:, 0]) if start is None else start, []
    for t in range(first, u.shape[1]):
        erased = 0.0 if removed is None else (h @ k[:, t]) * removed[:, t]
        h = a[:, t].reshape(a[:, t].shape + (1,) * (h.ndim - a.ndim + 1)) * h - erased
        if v is not None and beta is not None:
            write = v[:, t] - torch.einsum("bhk,bhkv->bhv", k[:, t], h)
            h = h + (beta[:, t, :, None] * k[:, t]).unsqueeze(-1) * write.unsqueeze(-2)
        else:
            h = h + added[:, t]
        out.append(h)
    return torch.stack(out, 1)


def sizes(layer: s.GatedLinearLayer, h: Tensor, count: int) -> Tensor:
    """Return the size of the state of each unit, ``(..., count)``: largest entry of a channel, or Frobenius norm."""
    parts = h.flatten(2).unflatten(2, (count, -1))
    return parts.abs().amax(-1) if layer.transition in ("diagonal", "constant complex") else parts.norm(dim=-1)


def ascend(
    objective: Callable[..., Tensor], start: list[Tensor], iterations: int, rate: float = 0.1
) -> tuple[Tensor, list[Tensor]]:
    """Maximize every entry of ``objective(*variables) (batch,)`` by Adam; return best values and their variables."""
    free = [x.clone().requires_grad_() for x in start]
    optimizer = torch.optim.Adam(free, lr=rate)
    best, kept = torch.full((len(free[0]),), -math.inf, dtype=torch.float64), [x.clone() for x in start]
    for _ in range(iterations):
        found = objective(*free)
        better = found.detach() > best
        best = torch.where(better, found.detach(), best)
        for own, x in zip(kept, free):
            own[better] = x.detach()[better]
        if not found.requires_grad:  # a constant
            break
        optimizer.zero_grad()
        (-(found / found.detach().abs().clamp(min=1e-200)).sum()).backward()
        for x in free:
            x.grad = None if x.grad is None else torch.nan_to_num(x.grad, posinf=0.0, neginf=0.0)
        optimizer.step()
    return best, kept
