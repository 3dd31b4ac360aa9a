"""What a claim is about: Lur'e systems, networks with inputs, activations, and the door that checks them."""

from stability.systems.checks import as_matrix, as_slope
from stability.systems.driven import DrivenSystem
from stability.systems.libraries import Plant
from stability.systems.lure import Discretisation, LureSystem
from stability.systems.pairwise import PairwiseSystem
from stability.systems.reservoirs import reservoir_system

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
