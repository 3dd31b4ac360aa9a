"""Parametrisations: from free parameters to constrained matrices and back."""

from __future__ import annotations

from .householder import Householder, make_orthogonal
from .reflections import householder_apply, householder_matrix
from .symmetric_skew import SymmetricSkew, proposition1_bounds, published_proposition1_bounds, symmetric_skew
from .unitary import Unitary, real_form, unitary_matrix

__all__ = [
    "Householder",
    "SymmetricSkew",
    "Unitary",
    "householder_apply",
    "householder_matrix",
    "make_orthogonal",
    "proposition1_bounds",
    "published_proposition1_bounds",
    "real_form",
    "symmetric_skew",
    "unitary_matrix",
]
