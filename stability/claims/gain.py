"""The gain that the norms of the weights give a network, as a claim beside that of contraction."""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.rules.registry import propose
from stability.systems.pairwise import PairwiseSystem


def norm_gain(subject: PairwiseSystem) -> Claim | None:
    """From the input sequence to the state at any time, where the norms of the weights bound it over every horizon.

    Args:
        subject: a network with an activation on pairs.

    Returns:
        The certified claim ``gain`` with the bound as its value, or ``None``.

    Example:
        >>> half = PairwiseSystem(0.6 * np.eye(2), 0.8 * np.eye(2), np.zeros(2), "oplu")
        >>> round(norm_gain(half).value, 9)
        1.0
    """
    from stability.gains.pairwise import pairwise_proof  # with the rules of gains; for such networks alone

    found = pairwise_proof(subject, np.eye(subject.states), "final", None)
    return None if isinstance(found, str) else propose(subject, "norm_gain", found[1].data, value=found[0])
