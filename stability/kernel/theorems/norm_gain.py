r"""Theorem ``norm_gain``: incremental gain of a network from the norms of its weights.

In :math:`|x|_D^2 = \sum_i d_i |x_i|^2` over the pairs of units no activation of ``stability.kernel.systems.pairwise``
stretches a difference (modReLU with :math:`b \le 0`). So the difference ``d`` of two trajectories whose inputs differ
by ``u`` has

.. math:: [W\;V]^T D\,[W\;V] < \mathrm{diag}(\rho^2 D, g^2 I) \;\Longrightarrow\;
          |d_{t+1}|_D^2 \le \rho^2 |d_t|_D^2 + g^2 |u_t|^2, \qquad
          |d_T|_D^2 \le g^2 \sum_t \rho^{2 (T - 1 - t)} |u_t|^2,

and with :math:`D > H^T H` the same bounds :math:`|H d_T|^2`. With :math:`\rho \le 1` that is a gain over every horizon,
with :math:`\rho < 1` one to the whole sequence as well: the sum over time is at most
:math:`g^2 |u|_2^2 / (1 - \rho^2)`. Weights whose norm exceeds one, by rounding or more, have :math:`\rho > 1` and a
bound that grows with the horizon.

What is proved is proved of the stored weights. Diagonal multipliers of slopes, which prove more of activations that act
on one channel at a time, are invalid here: only weights that are constant on each pair hold.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stability.kernel.arithmetic.definiteness import LARGEST, Definiteness, prove_gram, round_up
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Number, NumberOrNull, ProofData, Text, require, require_definite
from stability.kernel.format.sentences import gain_bound
from stability.kernel.format.theorem_table import BY_CHECK, certifies
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.gain_lmi import bound
from stability.kernel.theorems.pairwise import metric, why_it_stretches

Array = np.ndarray


def sequence_bound(measure: str, gain: float, growth: float, horizon: float | None) -> float:
    """Return the number that the inequality proves, rounded up.

    Args:
        measure: ``final`` (the output at the last step) or ``l2`` (the whole output).
        gain: ``g``.
        growth: ``rho``.
        horizon: steps; ``None`` for every horizon.

    Returns:
        The bound of ``|y| / |u|_2``; infinite where none follows.

    Example:
        >>> sequence_bound("l2", 0.6, 0.8, None) < 1.0000001, sequence_bound("final", 0.6, 1.1, None)
        (True, inf)
    """
    value = bound("terminal", measure, gain, growth, horizon, True)
    if measure == "l2" and growth < 1.0:  # 1 - rho is exact for rho >= 1/2, and both factors to a rounding each
        value = min(value, round_up(gain / math.sqrt((1.0 - growth) * (1.0 + growth)) * (1.0 + 1e-14)))
    return value


def prove_dissipates(subject: PairwiseSystem, weights: Array, growth: float, gain: float) -> Definiteness:
    """Prove ``[W V]^T D [W V] < diag(growth^2 D, gain^2 I)``, every rounding error inside.

    Args:
        subject: the network; of its ``W`` the stored entries.
        weights: ``(n/2,)`` positive numbers.
        growth: factor of the state.
        gain: factor of the input.

    Returns:
        Whether it is proved, and why not.
    """
    K, d = np.hstack([subject.W, subject.V]), metric(subject, weights)
    diagonal = np.concatenate([growth * growth * d, np.full(subject.inputs, gain * gain)])
    return prove_gram(K, d, diagonal, above=False)


def prove_above(d: Array, H: Array) -> Definiteness:
    """Prove ``diag(d) > H^T H``, every rounding error inside."""
    return prove_gram(H, np.ones(len(H)), d, above=False)


def why_no_norm_gain(subject: PairwiseSystem) -> str | None:
    """Return the reason why the theorem does not apply to a network, or ``None``."""
    return "this proof is about W as stored" if subject.orthogonal else why_it_stretches(subject)


def require_span(measure: str, horizon: Any) -> None:
    """Check that an output is measured over all steps or at the last one, and the number of steps, if there is one."""
    require(measure in ("final", "l2"), f"unknown measure {measure[:20]!r}")
    steps = horizon is None or (type(horizon) is int and 0 < horizon < 2**31)
    require(steps, "the horizon must be null or a whole number of steps")


@certifies("norm_gain", subject=PairwiseSystem, claim="gain", value=BY_CHECK, unfit=why_no_norm_gain)
class NormGain(ProofData):
    """Data: ``weights`` (n/2,), one per pair, ``H`` (k, n), ``gain``, ``growth``, ``measure``, ``horizon``."""

    weights: AnyArray
    H: AnyArray
    gain: Number
    growth: Number
    measure: Text
    horizon: NumberOrNull

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        value = float(claim.value if claim.value is not None else math.inf)
        state = self.H.shape == (subject.states,) * 2 and np.array_equal(self.H, np.eye(subject.states))
        output = f"The output is {'the state' if state else 'H x, with H of the proof'}."
        return gain_bound(subject, value, self.measure, self.horizon, output)

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        require_span(self.measure, self.horizon)
        n, pairs = subject.states, len(subject.pairs)
        require(self.weights.shape == (pairs,), "weights must hold one number a pair")
        require((self.weights > 0.0).all(), "a weight is not positive")
        require(self.H.ndim == 2 and self.H.shape[1] == n, "H must have a column for each state")
        require(self.gain > 0.0 and self.growth > 0.0, "gain and growth must be positive")
        entries = (subject.W, subject.V, self.weights, self.H, self.gain, self.growth)
        largest = max(float(np.abs(x).max(initial=0.0)) for x in entries)
        require(largest <= LARGEST**0.125, "an entry is too large for its rounding to be bounded here")
        bounded = prove_dissipates(subject, self.weights, self.growth, self.gain)
        require_definite(bounded, "the weights are not proved to be bounded so")
        above = prove_above(metric(subject, self.weights), self.H)
        require_definite(above, "the weights are not proved to exceed H^T H")
        least = sequence_bound(self.measure, self.gain, self.growth, self.horizon)
        enough = claim.value is not None and claim.value >= least
        require(enough, f"the claim says {claim.value}, the proof supports {least}")
        return "the norms of the weights are bounded, rounding errors included"
