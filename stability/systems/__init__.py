"""What a claim is about: Lur'e systems, networks with inputs, activations, and the door that checks them."""

from stability.systems.lure import (
    Discretisation,
    DrivenSystem,
    LureSystem,
    as_matrix,
    as_slope,
)

__all__ = ["Discretisation", "DrivenSystem", "LureSystem", "as_matrix", "as_slope"]
