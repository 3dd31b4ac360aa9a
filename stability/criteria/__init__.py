"""Criteria for stability: what each proves stands in its file, with its source."""

from stability.criteria.circle import bounded_real_lmi, circle_criterion
from stability.criteria.kyp import kyp_criterion, kyp_lmi
from stability.criteria.linear import linear_criterion
from stability.criteria.multiplier import multiplier_criterion
from stability.criteria.schur import schur_criterion
from stability.criteria.theorem1 import Theorem1, theorem1, theorem1_system

__all__ = [
    "Theorem1",
    "bounded_real_lmi",
    "circle_criterion",
    "kyp_criterion",
    "kyp_lmi",
    "linear_criterion",
    "multiplier_criterion",
    "schur_criterion",
    "theorem1",
    "theorem1_system",
]
