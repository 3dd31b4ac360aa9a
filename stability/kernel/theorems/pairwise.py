r"""Theorems on networks with an activation on pairs, :math:`F(x) = \sigma(W x + V u + b)`.

``pair_norm``, ``pair_growth``: let :math:`|x|_D^2 = \sum_i d_i |x_i|^2` be a norm over the pairs. Sorting or reflecting
a pair and taking absolute values do not increase the distance of two states in this norm. Neither does modReLU with
:math:`b \le 0`, which is a proximal map on each pair. Therefore :math:`W^T D W < \rho^2 D` makes the network contract
at the rate :math:`\rho` with overshoot :math:`\sqrt{\max d / \min d}`, and with an orthogonal ``W`` no distance
increases.

``pair_isometry``: every activation changes the norm of a vector at most by a constant: :math:`|\sigma(z)| = |z|`, or
:math:`|\sigma(z) - z| \le |b|` for modReLU. If :math:`|W x| \ge |x|`, a trajectory from :math:`x_0` therefore has
:math:`|x_k| \ge |x_0| - c_k`, where :math:`c_k` depends on inputs and biases but not on :math:`x_0`. The trajectory
from zero does not depend on :math:`x_0` either. Therefore its distance is at least
:math:`|x_0| - c'_k > |x_0| / 2` for all :math:`|x_0| > 2 c'_k`, and no bound :math:`C \rho^k |x_0|` with
:math:`\rho < 1` holds.

``pair_linear``: for modReLU the same argument gives :math:`F^k(x_0) = W^k x_0 + O(1)`. Therefore a network that
contracts has :math:`|W^k| \le C \rho^k`, and every eigenvalue of ``W`` lies inside the unit circle.

``pair_jump``: modReLU with a bias :math:`b_i > 0` is not continuous at :math:`z_i = 0`. If the two rows of ``W`` of
that pair are independent, every input has states with :math:`z_i = 0`. Next to each of them there are two states,
arbitrarily close, with :math:`z_i = \pm \varepsilon`, whose images are at least :math:`2 b_i` apart. Therefore no
overshoot is large enough.
"""

from __future__ import annotations

import math

import numpy as np

from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.definiteness import prove_gram
from stability.kernel.arithmetic.eigenpairs import Matrix
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Index, Number, ProofData, require, require_definite
from stability.kernel.format.sentences import (
    NOT_CONTRACTING,
    at_least,
    at_most,
    decays,
    for_every,
    nonexpansion,
    theorem,
)
from stability.kernel.format.theorem_table import certifies, refutes
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.eigenvalue_phrase import Unstable
from stability.kernel.theorems.multiplier_lmi import LARGEST_FACTOR, Contraction, no_decay, overshoot_fits

Array = np.ndarray


def metric(subject: PairwiseSystem, weights: Array) -> Array:
    """Return the diagonal ``(n,)`` of ``D``, the weight of each unit, from the weights ``(n/2,)`` of the pairs."""
    out = np.empty(subject.states)
    out[subject.pairs] = weights[:, None]
    return out


def prove_shrinks(subject: PairwiseSystem, weights: Array, rate: float) -> str:
    """Prove ``W^T D W < rate^2 D``, with all rounding errors included.

    Args:
        subject: the network, with the stored entries of ``W``.
        weights: ``(n/2,)`` positive numbers.
        rate: the factor.

    Returns:
        The proved result in words.

    Raises:
        Refused: the inequality is not proved.
    """
    d = metric(subject, weights)
    require_definite(prove_gram(subject.W, d, rate * rate * d, above=False), "W is not proved to shrink that much")
    return "W shrinks every difference, rounding errors included"


def why_it_stretches(subject: PairwiseSystem) -> str | None:
    """Return the reason why the activation may increase a difference, or ``None``."""
    return "modReLU with a positive bias stretches differences: it jumps at zero" if subject.jumps else None


def _never_shrinks(subject: PairwiseSystem) -> str | None:
    orthogonal = "an orthogonal W shrinks no difference" if subject.orthogonal else None
    return orthogonal or why_it_stretches(subject)


@certifies("pair_norm", subject=PairwiseSystem, claim="contraction", value="rate", unfit=_never_shrinks)
class PairNorm(Contraction):
    """Data: ``weights`` (n/2,), one per pair, ``rate`` and ``overshoot``."""

    weights: AnyArray

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        return self.shrinks(subject)

    def shrinks(self, subject: PairwiseSystem) -> str:
        """Prove contraction at the rate in the norm of the weights.

        Raises:
            Refused: it is not proved.
        """
        require(decays(self.rate, discrete=True), no_decay(self.rate))
        require(self.weights.shape == (len(subject.pairs),), "weights must hold one number per pair")
        require((self.weights > 0.0).all(), "a weight is not positive")
        low, high = float(self.weights.min()), float(self.weights.max())
        fits = overshoot_fits(self.overshoot, low, high) or (low == high and self.overshoot >= 1.0)
        require(fits, f"the overshoot {self.overshoot} is smaller than the root of the ratio of the weights")
        return prove_shrinks(subject, self.weights, self.rate)


@certifies("pair_growth", subject=PairwiseSystem, claim="nonexpansive", value="factor", unfit=why_it_stretches)
class PairGrowth(ProofData):
    """Data: ``factor``, which is one for an orthogonal W and slightly larger otherwise."""

    factor: Number

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        return nonexpansion(subject, self.factor)

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        words = f"the factor must lie in [1, {LARGEST_FACTOR!r}]: beyond it distances grow"
        require(1.0 <= self.factor <= LARGEST_FACTOR, words)
        if subject.orthogonal:
            return "W is orthogonal, and the activation never stretches a difference"
        return prove_shrinks(subject, np.ones(len(subject.pairs)), self.factor)


@refutes("pair_isometry", subject=PairwiseSystem)
class PairIsometry(ProofData):
    """Data: none; the subject determines everything."""

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        apart = "|x(k) - y(k)|_2 > |x(0) - y(0)|_2 / 2"
        far = f"all trajectories x, y with x(0) = 0 and |y(0)|_2 large enough for k satisfy {apart}"
        return theorem(subject, NOT_CONTRACTING, f"{for_every(subject)} and every k >= 0, {far}.")

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        bias = math.sqrt(float(subject.b @ subject.b))
        kept = f"the bias changes its norm by {at_most(bias)} a step, at most"
        return f"W shrinks no state{'' if subject.orthogonal else f' ({_prove_expands(subject)})'}, and {kept}"


def _prove_expands(subject: PairwiseSystem) -> str:
    """Prove ``W^T W > I``, with all rounding errors included."""
    ones = np.ones(subject.states)
    outcome = prove_gram(subject.W, ones, ones, above=True)
    require_definite(outcome, "W is not proved to shrink no state")
    return f"rounding errors of {outcome.shift:.1e} included"


def _no_modrelu(subject: PairwiseSystem) -> str | None:
    return None if subject.activation == "modrelu" else "this proof covers modReLU only"


def _not_nearly_linear(subject: PairwiseSystem) -> str | None:
    orthogonal = "this proof covers W as stored, not the nearest orthogonal matrix" if subject.orthogonal else None
    return _no_modrelu(subject) or orthogonal


@refutes("pair_linear", subject=PairwiseSystem, unfit=_not_nearly_linear)
class PairLinear(Unstable):
    """Data: none, except ``eigenvalue`` if the sentence names it."""

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        return theorem(
            subject,
            NOT_CONTRACTING,
            f"W has {self.phrase(True, strict=False)}, and modReLU changes a vector by at most its bias far from zero.",
            f"{for_every(subject)}, two trajectories that start far enough apart follow the powers of W arbitrarily "
            "long.",
        )

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        mass: Array = np.ones(len(subject.W), dtype=np.float64)
        matrix = Matrix(Ball.exact(subject.W), mass)
        return self.outside(matrix, True, strict=False)


@refutes("pair_jump", subject=PairwiseSystem, unfit=_no_modrelu)
class PairJump(ProofData):
    """Data: the index ``pair`` of a pair with positive bias."""

    pair: Index

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        gap = at_least(2.0 * subject.b[self.pair]) if self.pair < len(subject.b) else "0"
        return theorem(
            subject,
            NOT_CONTRACTING,
            f"{for_every(subject)}, some states arbitrarily close to each other are at least {gap} apart one step "
            "later.",
            "The reason is that modReLU jumps where its bias is positive.",
        )

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        require(self.pair < len(subject.b), f"there are {len(subject.b)} pairs")
        bias = float(subject.b[self.pair])
        require(bias > 0.0, "the bias of that pair is not positive")
        if not subject.orthogonal:  # rows of an orthogonal matrix are independent
            _prove_independent(subject.W[subject.pairs[self.pair]])
        return f"modReLU jumps by {2.0 * bias:.3g} at zero, which every input can reach"


def _prove_independent(rows: Array) -> None:
    """Prove that two rows are linearly independent: their Gram matrix is positive definite."""
    outcome = prove_gram(rows.T, np.ones(int(rows.shape[1])), np.zeros(len(rows)), above=True)
    require_definite(outcome, "the two rows of W are not proved independent")
