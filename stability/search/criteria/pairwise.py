"""Criterion for networks with an activation on pairs: a weighted norm of ``W`` below one."""

from __future__ import annotations

import numpy as np

from stability.certificate import Finding
from stability.kernel.format.claims import Claim
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.pairwise import metric
from stability.proposals import accepted_claim

Array = np.ndarray
SHARES = (1e-12, 1e-10, 1e-8, 1e-6)  # relative reductions of a rate for the rounding of its proof, tried in this order
NAME = "pairwise"


def pairwise_criterion(subject: PairwiseSystem) -> Finding:
    r"""Test :math:`|D^{1/2} W D^{-1/2}| < 1` for weights ``D`` of the pairs.

    Two sets of weights are tried: equal ones, and those from the Perron vectors of the matrix of norms of the 2 by 2
    blocks of W, which are optimal for non-negative matrices.

    Args:
        subject: the network.

    Returns:
        The finding; its margin is ``1 - rate``, zero for an orthogonal ``W``, and ``None`` if modReLU jumps.

    Example:
        >>> half = PairwiseSystem(0.5 * np.eye(2), np.eye(2), np.zeros(2), "oplu")
        >>> finding = pairwise_criterion(half)
        >>> finding.holds, round(finding.rate, 6)
        (True, 0.5)
    """
    if subject.jumps:
        count, largest = int((subject.b > 0.0).sum()), float(subject.b.max())
        detail = f"modReLU jumps where its bias is positive: in {count} of {len(subject.b)} pairs, by {2 * largest:.3g}"
        return Finding(NAME, False, None, f"{detail} at most")
    if subject.orthogonal:
        return Finding(NAME, False, 0.0, "no step increases a state difference, and an orthogonal W decreases none")
    rate, weights = min(((_norm(subject, w), w) for w in _candidates(subject)), key=lambda candidate: candidate[0])
    holds = bool(rate < 1.0)
    detail = f"|W| = {rate:.6g} in a norm in which the activation is nonexpansive"
    witness = {"weights": weights} if holds else {}
    return Finding(NAME, holds, 1.0 - rate, detail, rate if holds else None, witness)


def _candidates(subject: PairwiseSystem) -> list[Array]:
    pairs = subject.pairs
    blocks = subject.W[pairs[:, None, :, None], pairs[None, :, None, :]]
    sizes = np.linalg.norm(blocks, ord=2, axis=(2, 3)) + 1e-12 * (1.0 + np.abs(subject.W).max())
    right, left = _perron(sizes), _perron(sizes.T)
    scaled = left / right
    return [np.ones(len(pairs)), np.clip(scaled / np.median(scaled), 1e-6, 1e6)]


def _perron(matrix: Array) -> Array:
    values, vectors = np.linalg.eig(matrix)
    vector = np.abs(np.real(vectors[:, np.argmax(np.abs(values))]))
    return np.maximum(vector, 1e-9 * vector.max())


def _norm(subject: PairwiseSystem, weights: Array) -> float:
    root = np.sqrt(metric(subject, weights))
    return float(np.linalg.norm(root[:, None] * subject.W / root[None, :], 2))


def pairwise_claim(subject: PairwiseSystem, finding: Finding) -> Claim | None:
    """Return the claim of contraction by the finding's weights, at the fastest rate that its rule accepts."""
    if not finding.holds or finding.rate is None:
        return None
    weights = np.ascontiguousarray(finding.witness["weights"])
    overshoot = float(np.sqrt(weights.max() / weights.min())) * (1.0 + 1e-13) if np.ptp(weights) else 1.0
    for share in SHARES:
        rate = finding.rate + share * max(finding.rate, 1e-3)
        data = {"weights": weights, "rate": rate, "overshoot": max(1.0, overshoot)}
        claim = accepted_claim(subject, "pair_norm", data) if rate < 1.0 else None
        if claim is not None:
            return claim
    return None
