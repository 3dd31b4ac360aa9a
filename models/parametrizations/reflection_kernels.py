"""Autograd functions behind ``reflections``, for checked arguments.

Formulas, Algorithm 1 and Theorem 2 are those of the paper cited in that module. Each function takes ``p`` reflection
vectors ``(n, p)`` without zero columns; it saves no other tensor of this size for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..derivatives import SavedFunction, copyltu
from ..precision import full_precision

BLOCK = 48  # reflections in one WY block of the full matrix: the fastest size in measurements


class _Matrix(SavedFunction):
    """Autograd function of ``W``, in blocks of reflections: each block in WY form acts on the result of the later ones.

    Block by block ``W <- (I - V X) W`` on the trailing rows and columns, ``4/3 n^3`` operations for ``m = n``
    instead of the ``5 n^3`` of one WY form. On the way back each block is undone, so no copy of W is kept.
    """

    @staticmethod
    def forward(U: Tensor) -> Tensor:
        n, p = U.shape
        V, _ = scaled(U)
        W = torch.eye(n, dtype=U.dtype, device=U.device)
        for k in reversed(range(0, p, BLOCK)):
            v, size = V[k:, k : k + BLOCK], min(BLOCK, p - k)
            x = torch.linalg.solve_triangular(triangle(v), v.mH, upper=True)
            if k + size < p:  # W is the identity in the rows and columns of this block
                x = torch.cat([x[:, :size], x[:, size:] @ W[k + size :, k + size :]], dim=1)
            W[k:, k:].addmm_(v, x, alpha=-1.0)
        return W

    @staticmethod
    @full_precision
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        U, W = ctx.saved_tensors
        p = U.shape[1]
        if torch.is_grad_enabled():  # a derivative of this derivative is wanted
            return _matrix_rule(U, grads[0])
        V, scale = scaled(U)
        W, G = (W.clone(), grads[0].clone()) if p > BLOCK else (W, grads[0])
        dV = torch.zeros_like(V)
        for k in range(0, p, BLOCK):
            v, w, g = V[k:, k : k + BLOCK], W[k:, k:], G[k:, k:]
            T = triangle(v)
            ct = torch.linalg.solve_triangular(T.mH, v.mH @ g, upper=False)
            if k + BLOCK < p:
                ht = -torch.linalg.solve_triangular(T.mH, v.mH @ w, upper=False)  # T + T^H = V^H V
                w.addmm_(v, ht)  # undo the block
                right = w @ ct.mH
            else:
                ht = torch.linalg.solve_triangular(T, v.mH, upper=True)
                right = ct.mH
            dV[k:, k : k + BLOCK] = v @ copyltu(ht @ ct.mH) - g @ ht.mH - right
            if k + BLOCK < p:
                g.addmm_(v, ct, alpha=-1.0)
        return dV.tril_() / scale


class _Reflections(SavedFunction):
    """Autograd function of Algorithm 1, ``W h`` for rows, reflection by reflection; second derivative by Theorem 2."""

    @staticmethod
    def forward(U: Tensor, h: Tensor) -> Tensor:
        V, _ = scaled(U)
        H = h.clone()
        for k in reversed(range(V.shape[1])):
            u = V[k:, k]
            ht = H[:, k:] @ (u.conj() * _twice_inverse_square(u))
            H[:, k:].addr_(ht, u, alpha=-1.0)
        return H

    @staticmethod
    @full_precision
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        U, h, C = ctx.saved_tensors
        if torch.is_grad_enabled():  # a derivative of this derivative is wanted
            return _theorem2(U, h, grads[0])
        V, scale = scaled(U)
        H, g, G = C.clone(), grads[0].clone(), torch.zeros_like(V)
        for k in range(V.shape[1]):
            u = V[k:, k]
            weights = u.conj() * _twice_inverse_square(u)
            ct = g[:, k:] @ weights
            ht = -(H[:, k:] @ weights)  # a reflection changes the sign of the component along u
            H[:, k:].addr_(ht, u)  # back to H_{k+1}
            g[:, k:].addr_(ct, u, alpha=-1.0)
            G[k:, k] = -(g[:, k:].mT @ ht.conj() + H[:, k:].mT @ ct.conj())
            if V.is_complex():  # the derivative of |u|^2 is real: remove the imaginary part of ht^* ct
                G[k:, k] -= 1j * torch.vdot(ht, ct).imag * u
        return G / scale, g


def _theorem2(U: Tensor, h: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradients of ``C = W h`` for rows ``h`` and ``g = dL/dC``, both ``(b, n)``."""
    V, scale = scaled(U)
    T = triangle(V)
    ht = torch.linalg.solve_triangular(T.mT, h @ V.conj(), upper=False, left=False)
    ct = torch.linalg.solve_triangular(T.conj(), g @ V.conj(), upper=True, left=False)
    dV = V @ copyltu(ht.mT @ ct.conj()) - g.mT @ ht.conj() - h.mT @ ct.conj()
    return dV.tril() / scale, g - ct @ V.mT


def _matrix_rule(U: Tensor, g: Tensor) -> Tensor:
    """Return the gradient by the vectors from one WY form, Theorem 2 with ``h = I``, in differentiable operations."""
    V, scale = scaled(U)
    T = triangle(V)
    ht = torch.linalg.solve_triangular(T, V.mH, upper=True)
    ct = torch.linalg.solve_triangular(T.mH, V.mH @ g, upper=False)
    return (V @ copyltu(ht @ ct.mH) - g @ ht.mH - ct.mH).tril() / scale


def scaled(U: Tensor) -> tuple[Tensor, Tensor]:
    """Return the vectors divided by their largest entries, and these entries as constants.

    ``W`` does not depend on the lengths of the vectors. Scaling leaves ``W`` unchanged and divides its gradient by the
    same factors, and squares of scaled vectors neither overflow nor underflow.
    """
    V = U.tril()
    scale = V.detach().abs().amax(dim=0)
    return V / scale, scale


def triangle(V: Tensor) -> Tensor:
    """Return ``T``, the strictly upper triangle of ``V^H V`` plus half its diagonal."""
    T = (V.mH @ V).triu()
    T.diagonal().mul_(0.5)
    return T


def _twice_inverse_square(u: Tensor) -> Tensor:
    return 2.0 / torch.vdot(u, u).real if u.is_complex() else 2.0 / torch.dot(u, u)


reflection_matrix = _Matrix.apply
apply_reflections = _Reflections.apply
