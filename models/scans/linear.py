r"""Scans of diagonal and rotation recurrences :math:`x_t = \lambda_t x_{t-1} + b_t` over whole sequences.

Time is cut into chunks that advance in parallel; one fused multiply-add advances all chunks by one step. A first pass
computes the end of each chunk from a zero start. The same recurrence over the chunks then gives their initial states,
and a second pass writes all states. This is twice the arithmetic of the plain loop with far fewer tensor operations,
so that memory bandwidth is the limit. Blocks that together exceed the cache are processed one after the other.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError

from ..tensors import kind_of
from .kernels import adjoint_of, states_of


def diagonal_scan(
    lam: Tensor, b: Tensor, *, dim: int = 1, reverse: bool = False, initial: Tensor | None = None
) -> Tensor:
    r"""Compute the recurrence :math:`x_t = \lambda_t x_{t-1} + b_t`, real or complex, for all t.

    The result equals that of a loop up to rounding, and is twice differentiable in ``lam``, ``b`` and ``initial``. The
    backward pass is the same recurrence in the opposite direction.

    Args:
        lam: factors: constant in time with the shape of one state, or anything that broadcasts to ``b``.
        b: addend of each step, for example ``(batch, time, n)``.
        dim: the axis of time.
        reverse: run from the end: :math:`x_t = \lambda_t x_{t+1} + b_t`.
        initial: the state before the first step (after the last, for ``reverse``), shaped like ``b`` without
            ``dim``; zero by default.

    Returns:
        All states, in the shape of ``b``.

    Raises:
        ConfigurationError: integers, a bad ``dim``, or tensors on different devices.
        DimensionError: shapes that do not fit, or an empty axis of time.

    Example:
        >>> diagonal_scan(torch.tensor([0.5]), torch.ones(1, 3, 1)).flatten()
        tensor([1.0000, 1.5000, 1.7500])
    """
    dim = _check(lam, b, dim)
    dtype = torch.promote_types(lam.dtype, b.dtype)
    shape, inner = b.shape, b.shape[dim + 1 :]
    outer, width = math.prod(shape[:dim]), math.prod(inner)
    if initial is not None:
        expected = (*shape[:dim], *inner)
        if not isinstance(initial, Tensor) or initial.shape != expected:
            raise DimensionError("initial", expected, getattr(initial, "shape", type(initial).__name__))
        dtype = torch.promote_types(dtype, initial.dtype)
        initial = initial.to(dtype).reshape(outer, width)
    lam = _without_leading_axes(lam, shape, dim)
    if lam.dim() == len(inner):
        lam = lam.expand(inner).reshape(width)
    else:
        lam = lam.expand(shape).reshape(outer, shape[dim], width)
    x = _DiagonalScan.apply(lam.to(dtype), b.to(dtype).reshape(outer, shape[dim], width), initial, reverse)
    return x.reshape(shape)


def rotation_scan(
    gamma: Tensor, theta: Tensor, x: Tensor, *, dim: int = 1, reverse: bool = False, initial: Tensor | None = None
) -> Tensor:
    r"""Compute damped rotations :math:`z_t = \gamma R(\theta) z_{t-1} + x_t` of each head, in real numbers.

    ``R`` turns the pairs of entries ``(1, 2), (3, 4), ...`` of a head by their angles; with an odd number of
    entries the last one is only damped.

    Args:
        gamma: ``(heads,)`` damping; may have leading axes that broadcast to those of ``x``.
        theta: ``(heads, d // 2)`` angles; may have such axes, too.
        x: ``(..., time, ..., heads, d)``.
        dim: the axis of time, not one of the last two.
        reverse: run from the end.
        initial: the state before the first step, shaped like ``x`` without ``dim``.

    Returns:
        All states, in the shape of ``x``.

    Raises:
        ConfigurationError: not real tensors, or a bad ``dim``.
        DimensionError: shapes that do not fit.

    Source:
        K. Biegun, R. Dolga, J. Cunningham, D. Barber, "RotRNN: modelling long sequences with rotations" (2024),
        section 3.2 and appendix B.1.

    Example:
        >>> quarter = torch.tensor([[math.pi / 2]])
        >>> x = torch.zeros(1, 3, 1, 2); x[0, 0, 0, 0] = 1.0
        >>> rotation_scan(torch.ones(1), quarter, x).round(decimals=6)[0, 1, 0].abs()
        tensor([0., 1.])
    """
    for name, value in (("gamma", gamma), ("theta", theta), ("x", x)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise ConfigurationError(f"{name} must be a real floating-point tensor")
    if isinstance(dim, bool) or not isinstance(dim, int) or x.dim() < 3 or not -x.dim() <= dim < x.dim():
        raise ConfigurationError(f"dim {dim!r} is no axis of time of a tensor of shape {tuple(x.shape)}")
    if dim % x.dim() >= x.dim() - 2:
        raise ConfigurationError("the last two axes are heads and their entries; dim must be another one")
    heads, d = x.shape[-2:]
    if gamma.shape[-1:] != (heads,):
        raise DimensionError("gamma", f"(..., {heads})", tuple(gamma.shape))
    if theta.shape[-2:] != (heads, d // 2):
        raise DimensionError("theta", f"(..., {heads}, {d // 2})", tuple(theta.shape))
    start = None if initial is None else as_pairs(initial)
    z = diagonal_scan(rotations(gamma, theta, d), as_pairs(x), dim=dim, reverse=reverse, initial=start)
    return from_pairs(z, d)


def rotations(gamma: Tensor, theta: Tensor, d: int) -> Tensor:
    """Return damped rotations as complex factors, ``(..., heads, ceil(d / 2))``; an odd last entry is real."""
    if d % 2:
        theta = torch.nn.functional.pad(theta, (0, 1))
    radius = gamma.unsqueeze(-1).expand(*gamma.shape, theta.shape[-1])
    radius, theta = torch.broadcast_tensors(radius, theta)
    return torch.polar(radius.contiguous(), theta.contiguous())


def as_pairs(x: Tensor) -> Tensor:
    """Return neighboring real entries as complex numbers; an odd last one gets an imaginary part of zero."""
    if x.shape[-1] % 2:
        x = torch.nn.functional.pad(x, (0, 1))
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())


def from_pairs(z: Tensor, d: int) -> Tensor:
    """Invert ``as_pairs`` for ``d`` real entries."""
    return torch.view_as_real(z).flatten(-2)[..., :d]


def powers(lam: Tensor, count: int) -> Tensor:
    """Return ``lam ** 0, ..., lam ** (count - 1)`` along a new first axis, by doubling, in double precision."""
    double = lam.to(torch.promote_types(lam.dtype, torch.float64))
    out, factor = torch.ones_like(double).unsqueeze(0), double
    while len(out) < count:
        out = torch.cat([out, out * factor])
        factor = factor * factor
    return out[:count]


def diagonal_convolution(lam: Tensor, b: Tensor, *, dim: int = 1) -> Tensor:
    r"""Compute the states of ``diagonal_scan`` for constant factors as a convolution by FFT.

    :math:`x_t = \sum_{k \le t} \lambda^{t-k} b_k`. Rounding errors are relative to the largest state of a
    sequence, not to each state as in the scan.

    Args:
        lam: factors with the shape of one state.
        b: addend of each step.
        dim: the axis of time.

    Returns:
        All states, in the shape of ``b``.

    Raises:
        ConfigurationError: integers, a bad ``dim``, or factors that vary in time.
        DimensionError: shapes that do not fit.

    Example:
        >>> diagonal_convolution(torch.tensor([0.5]), torch.ones(1, 3, 1)).flatten()
        tensor([1.0000, 1.5000, 1.7500])
    """
    dim = _check(lam, b, dim)
    lam = _without_leading_axes(lam, b.shape, dim)
    if lam.dim() > b.dim() - dim - 1:
        raise ConfigurationError("a convolution needs coefficients that are constant in time")
    dtype, length = torch.promote_types(lam.dtype, b.dtype), b.shape[dim]
    kernel = powers(lam.expand(b.shape[dim + 1 :]), length).to(dtype)
    size = 1 << (2 * length - 1).bit_length()
    fft, inverse = (torch.fft.fft, torch.fft.ifft) if dtype.is_complex else (torch.fft.rfft, torch.fft.irfft)
    spectrum = fft(kernel, size, dim=0) * fft(b.to(dtype), size, dim=dim)
    return inverse(spectrum, size, dim=dim).narrow(dim, 0, length)


def _check(lam: Any, b: Any, dim: Any) -> int:
    """Check the arguments of a recurrence; return ``dim`` counted from the front."""
    for name, value in (("lam", lam), ("b", b)):
        if not isinstance(value, Tensor) or not (value.is_floating_point() or value.is_complex()):
            raise ConfigurationError(f"{name} must be a floating-point or complex tensor, got {kind_of(value)}")
    if isinstance(dim, bool) or not isinstance(dim, int) or not -b.dim() <= dim < b.dim():
        raise ConfigurationError(f"dim {dim!r} does not exist in a tensor of shape {tuple(b.shape)}")
    if lam.device != b.device:
        raise ConfigurationError(f"lam is on {lam.device} and b is on {b.device}: move one of them")
    dim %= b.dim()
    if 0 in b.shape:
        raise DimensionError("b", "no empty axis", tuple(b.shape), "batch and time must not be empty")
    return dim


def _without_leading_axes(lam: Tensor, shape: torch.Size, dim: int) -> Tensor:
    """Return factors constant in time with the shape of one state; return factors that vary in time unchanged.

    Raises:
        DimensionError: ``lam`` does not broadcast to ``shape``.
    """
    try:
        fits = torch.broadcast_shapes(lam.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise DimensionError("lam", f"one that broadcasts to {tuple(shape)}", tuple(lam.shape))
    inner = len(shape) - dim - 1
    extra = lam.dim() - inner
    if extra > 0 and all(size == 1 for size in lam.shape[:extra]):
        return lam.reshape(lam.shape[extra:])
    return lam if extra > 0 else lam.reshape((1,) * -extra + tuple(lam.shape))


def _shifted(x: Tensor, end: Tensor, back: bool) -> Tensor:
    """Shift entries by one step forward (``back``: backward), and fill the free step with ``end``."""
    return torch.cat([x[:, 1:], end] if back else [end, x[:, :-1]], dim=1)


class _DiagonalScan(torch.autograd.Function):
    """Autograd scan of ``lam (n,)`` or ``(m, time, n)``, ``b (m, time, n)``, ``initial (m, n)`` or ``None``."""

    @staticmethod
    def forward(ctx: Any, lam: Tensor, b: Tensor, initial: Tensor | None, reverse: bool) -> Tensor:
        x = states_of(lam, b, initial, reverse)
        ctx.save_for_backward(lam, x, initial)
        ctx.reverse = reverse
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        lam, x, initial = ctx.saved_tensors
        reverse, needs = ctx.reverse, ctx.needs_input_grad
        constant = lam.dim() == 1
        first = -1 if reverse else 0
        again = torch.is_grad_enabled()  # a second derivative is wanted: use differentiable operations
        if constant and needs[0] and not again:
            g, grad_lam = adjoint_of(lam, grad, x, initial, reverse)
            return grad_lam, g if needs[1] else None, g[:, first] * lam.conj() if needs[2] else None, None
        adjoint = lam if constant else _shifted(lam, torch.zeros_like(lam[:, :1]), not reverse)
        run = _DiagonalScan.apply if again else states_of
        g = run(adjoint.conj(), grad, None, not reverse)
        grad_lam = grad_initial = None
        if needs[0]:
            start = torch.zeros_like(x[:, :1]) if initial is None else initial.unsqueeze(1)
            grad_lam = g * _shifted(x, start, reverse).conj()
            grad_lam = grad_lam.sum((0, 1)) if constant else grad_lam
        if needs[2]:
            grad_initial = g[:, first] * (lam if constant else lam[:, first]).conj()
        return grad_lam, g if needs[1] else None, grad_initial, None
