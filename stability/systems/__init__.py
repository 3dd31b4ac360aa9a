"""Public names of the subjects of claims: Lur'e systems, networks with inputs, reservoirs."""

from stability.conversion.reservoirs import reservoir_system
from stability.kernel.checks import as_matrix, as_slope
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import Discretisation, LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.plants import Plant

__all__ = [
    "Discretisation",
    "DrivenSystem",
    "LureSystem",
    "PairwiseSystem",
    "Plant",
    "as_matrix",
    "as_slope",
    "reservoir_system",
]
