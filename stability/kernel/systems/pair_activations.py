r"""Activations on pairs of units: functions and derivatives.

.. math:: \mathrm{OPLU}(s, t) = (\max(s, t), \min(s, t)), \qquad
          \mathrm{modReLU}(z) = \max(|z| + b, 0)\, z / |z|, \quad \mathrm{modReLU}(0) = 0, \qquad
          \sigma_\theta(z) = \begin{cases} z & v^T z \ge 0 \\ z - 2 v v^T z & \text{otherwise} \end{cases},
          \quad v = (\sin \tfrac\theta2, -\cos \tfrac\theta2) .

The Householder activation :math:`\sigma_\theta` reflects one half plane at a line onto the other; with
:math:`\theta = \pi/2` it is OPLU. OPLU, the Householder activation and the absolute value keep the norm of every vector
and do not increase distances.

Sources: A. Chernodub, D. Nowicki, "Norm-preserving orthogonal permutation linear unit activation functions (OPLU)"
(2016); C. Anil, J. Lucas, R. Grosse, "Sorting out Lipschitz function approximation" (ICML 2019), where OPLU is called
MaxMin; S. Singla, S. Singla, S. Feizi, "Improved deterministic l2 robustness on CIFAR-10 and CIFAR-100" (ICLR 2022).
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def modrelu(z: Array, bias: Array) -> Array:
    """Apply modReLU to complex numbers in real form.

    Args:
        z: ``(..., 2k)``, real parts then imaginary parts.
        bias: ``(k,)``.

    Returns:
        ``(..., 2k)``; zero stays zero.

    Example:
        >>> modrelu(np.array([3.0, 4.0]), np.array([-2.5]))
        array([1.5, 2. ])
    """
    real, imaginary = np.split(z, 2, axis=-1)
    size = np.hypot(real, imaginary)
    scale = np.maximum(size + bias, 0.0) / np.where(size > 0.0, size, 1.0)
    return z * np.concatenate([scale, scale], axis=-1)


def oplu(z: Array) -> Array:
    """Sort the neighbors ``2 i`` and ``2 i + 1``, the larger first.

    Args:
        z: ``(..., 2k)``.

    Returns:
        ``(..., 2k)``, of the same norm.

    Example:
        >>> oplu(np.array([1.0, 2.0, 4.0, 3.0]))
        array([2., 1., 4., 3.])
    """
    pairs = z.reshape(*z.shape[:-1], -1, 2)
    return np.stack([pairs.max(axis=-1), pairs.min(axis=-1)], axis=-1).reshape(z.shape)


def householder(z: Array, angles: Array) -> Array:
    """Apply the Householder activation to the neighbors ``2 i`` and ``2 i + 1``.

    Args:
        z: ``(..., 2k)``.
        angles: ``(k,)``, in radians.

    Returns:
        ``(..., 2k)``, of the same norm.

    Example:
        >>> householder(np.array([1.0, 2.0]), np.array([np.pi / 2])).round(12)
        array([2., 1.])
    """
    v, pairs = normals(angles), z.reshape(*z.shape[:-1], -1, 2)
    behind = np.minimum((pairs * v).sum(axis=-1, keepdims=True), 0.0)
    return (pairs - 2.0 * behind * v).reshape(z.shape)


def normals(angles: Array) -> Array:
    """Return ``(k, 2)``: the unit normals of the lines at which the Householder activation reflects."""
    return np.stack([np.sin(0.5 * angles), -np.cos(0.5 * angles)], axis=-1)


def modrelu_slopes(z: Array, bias: Array) -> Array:
    """Return derivatives ``(k, 2, 2)`` of modReLU, pair by pair, at one ``z (2k,)``; zero at a kink."""
    pairs = z.reshape(2, -1).T
    size = np.hypot(*pairs.T)
    safe = np.where(size > 0.0, size, 1.0)
    along = pairs / safe[:, None]
    share = (bias / safe)[:, None, None]
    stays = (1.0 + share) * np.eye(2) - share * along[:, :, None] * along[:, None, :]
    return np.where((size + bias > 0.0)[:, None, None], stays, 0.0)


def oplu_slopes(z: Array) -> Array:
    """Return derivatives ``(k, 2, 2)`` of OPLU at one ``z (2k,)``: the identity, or the exchange of the pair."""
    first, second = z.reshape(-1, 2).T
    return np.where((first < second)[:, None, None], np.eye(2)[::-1], np.eye(2))


def abs_slopes(z: Array) -> Array:
    """Return derivatives ``(k, 2, 2)`` of the absolute value at one ``z (2k,)``: diagonal with entries 1 and -1."""
    return np.where(z < 0.0, -1.0, 1.0).reshape(-1, 2)[:, :, None] * np.eye(2)


def householder_slopes(z: Array, angles: Array) -> Array:
    """Return derivatives ``(k, 2, 2)`` of the Householder activation at ``z (2k,)``: identity or reflection."""
    v = normals(angles)
    behind = (z.reshape(-1, 2) * v).sum(axis=-1) < 0.0
    return np.eye(2) - 2.0 * np.where(behind[:, None, None], v[:, :, None] * v[:, None, :], 0.0)
