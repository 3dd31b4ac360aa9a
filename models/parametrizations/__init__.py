"""Parametrisations: from free parameters to constrained matrices and back."""

from __future__ import annotations

from .householder import Householder, make_orthogonal
from .planes import Rotation, rotation_generator, rotation_planes
from .reflections import householder_apply, householder_matrix
from .stiefel import Stiefel, make_orthonormal, orthonormal
from .symmetric_skew import SymmetricSkew, proposition1_bounds, published_proposition1_bounds, symmetric_skew
from .unitary import Unitary, real_form, unitary_matrix

__all__ = [
    "Householder",
    "Rotation",
    "Stiefel",
    "SymmetricSkew",
    "Unitary",
    "householder_apply",
    "householder_matrix",
    "make_orthogonal",
    "make_orthonormal",
    "orthonormal",
    "proposition1_bounds",
    "published_proposition1_bounds",
    "real_form",
    "rotation_generator",
    "rotation_planes",
    "symmetric_skew",
    "unitary_matrix",
]
