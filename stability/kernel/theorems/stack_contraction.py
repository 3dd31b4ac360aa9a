r"""Theorem ``cascade``: a stack of contracting layers contracts.

Every layer brings its own proof; each is checked by its own rule. With ``V_i`` the norm in which layer ``i``
contracts at rate ``rho_i`` and ``g`` a bound of what a unit of its input adds to it in one step,

.. math:: V_i(t + 1) \le \rho_i V_i(t) + \sum_j g_{ij} V_j(t + 1) .

Where the level below decays like ``S r^t``, the geometric sum gives ``V_i(t) \le R^t (V_i(0) + h S)`` with
``R = max(rho_i, r)`` and ``h = g R / |rho_i - r|``; rates closer than the stated tolerance are kept apart by making
``R`` larger by it. (In continuous time ``h = g / |lambda_i - mu|``.) The same ``h`` bounds the sums of the
two-directional case, where disturbances from both ends of the sequence decay towards its middle.

A gated layer's proof is about inputs in its box: it must hold what the level below is proved to put out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from stability.kernel.arithmetic.balls import system_balls
from stability.kernel.arithmetic.intervals import Interval, euclidean_norms, upper_product
from stability.kernel.checks import levels_of
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import Number, Parts, require, required
from stability.kernel.format.sentences import at_most, decay_bound, decays, for_every, one_equilibrium, theorem
from stability.kernel.format.theorem_table import RULES, certifies
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.multiplier_lmi import Contraction

Array = np.ndarray
CONTRACTING = ("multiplier_lmi", "interval_lmi", "interval_jacobian", "pair_norm")
"""Proofs that state a norm in which a layer contracts."""
GAINS = ("gain_lmi", "norm_gain")
"""Proofs that state a gain."""
BOUNDS = ("driven_bounds", "gated_bounds", "flow_bounds")
"""Proofs that state a layer's final set under inputs in a box; their ``rate`` is the box's diagonal."""
GROW = 1.0 + 1e-9
"""Factor that covers the roundings in the products, sums and roots of an overshoot or a gain, applied once."""


@dataclass(frozen=True)
class Norm:
    """Norm ``V`` of a layer: ``|x|_2 <= out V(x)``, ``V(x) <= into |x|_2``, and the one-step gain from input to ``V``.

    To a few roundings: what is made of these numbers in the end is enlarged by ``GROW``.
    """

    rate: float
    out: float
    into: float
    gain: float


def layer_claim(packed: Any) -> Claim:
    """Return the claim that a packed proof supports, not yet checked by its rule, and without a sentence, which
    unchecked data could not provide.
    """
    name = "gain" if packed["kind"] in GAINS else "bounded_in_box" if packed["kind"] in BOUNDS else "contraction"
    return Claim(name, "", Verdict.CERTIFIED, Proof(packed["kind"], packed["data"]), packed["rate"])


def _cell_action(layer: GatedCell, data: Any) -> Array:
    gates = "ifgo" if layer.kind == "lstm" else "rzn"
    reach = {k: euclidean_norms(layer.gate(k)[0]) for k in gates}
    size = np.maximum(np.abs(data["low"]), np.abs(data["high"]))
    if layer.kind == "lstm":
        cell = 0.25 * size[layer.hidden :] * reach["f"] + 0.25 * reach["i"] + reach["g"]
        return np.concatenate([cell + 0.25 * reach["o"], cell])
    _, recurrent, _, bias = layer.gate("n")
    if layer.reset_after:
        inner = reach["n"] + 0.25 * reach["r"] * (upper_product(np.abs(recurrent), size) + np.abs(bias))
    else:
        inner = reach["n"] + upper_product(np.abs(recurrent), 0.25 * size * reach["r"])
    return inner + 0.25 * (1.0 + size) * reach["z"]


def _network_action(layer: DrivenSystem) -> Array | None:
    system = layer.system
    _, B, _, D = system_balls(system)  # the stored product may have cancelled what the exact one keeps
    entry, feed = B.upper(), D.upper()
    slope = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    levels = levels_of(feed > 0.0)  # (I - |K| |D|)^{-1} ends where no channel feeds another any more
    if levels is None:
        return None
    total = term = slope * euclidean_norms(layer.E)  # the slopes hold those of the activation: nothing underflows
    for _ in levels[1:]:
        term = slope * upper_product(feed, term)
        total = total + term
    return upper_product(entry, total) + euclidean_norms(layer.F)


def _pairs_action(layer: PairwiseSystem) -> Array:
    """Bound the input action with a pairwise activation, which does not increase differences of a pair."""
    out = np.empty(layer.states)
    out[layer.pairs] = euclidean_norms(layer.V[layer.pairs].reshape(len(layer.pairs), -1))[:, None]
    return out


def _input_action(layer: Layer, data: Any) -> Array | None:
    """Bound how far an input difference of norm one moves each entry of the next state (or of its derivative)."""
    if isinstance(layer, GatedCell):
        return _cell_action(layer, data)
    return _network_action(layer) if isinstance(layer, DrivenSystem) else _pairs_action(layer)


def layer_norm(layer: Layer, claim: Claim) -> Norm | str:
    """Return the norm in which a layer's proved claim contracts, or the reason for none."""
    if claim.proof is None:
        return "there is no proof"
    kind, data = claim.proof.kind, claim.proof.data
    action = _input_action(layer, data)
    rate = float(claim.value or 0.0)
    if action is None or not np.isfinite(action).all():
        return "no bound is known for how the input acts on it"
    n = layer.states
    if kind == "interval_jacobian":
        d = data["d"]
        return Norm(rate, math.sqrt(n) * float(d.max()), 1.0 / float(d.min()), float((action / d).max()))
    if kind == "pair_norm":  # in that norm no pair is stretched: the input moves it by |V| at most
        low, high = math.sqrt(float(data["weights"].min())), math.sqrt(float(data["weights"].max()))
        return Norm(rate, 1.0 / low, high, high * float(euclidean_norms(layer.V.ravel())))
    if kind in ("multiplier_lmi", "interval_lmi"):
        low, high = math.sqrt(data["p_min"]), math.sqrt(data["p_max"])
        return Norm(rate, 1.0 / low, high, high * float(euclidean_norms(action)))
    return f"a proof of kind {kind} states no norm that a stack can use"


def norms_of(layers: Sequence[Layer], claims: list[Claim]) -> list[Norm] | str:
    """Return the norms in which layers contract, or the reason for a missing one."""
    found: list[Norm] = []
    for k, (layer, claim) in enumerate(zip(layers, claims)):
        norm = layer_norm(layer, claim)
        if isinstance(norm, str):
            return f"layer {k}: {norm}"
        found.append(norm)
    return found


def _merge(own: float, below: float, tolerance: float, discrete: bool) -> tuple[float, float]:
    """Return the rate of a layer on top of a level, and ``h / g``."""
    if discrete:
        slow = max(own, below)
        gap = abs(own - below)
        if gap < tolerance * (1.0 - slow):
            slow = slow + tolerance * (1.0 - slow)
            gap = slow - max(own, below)
        return slow, slow / gap if gap > 0 else math.inf
    slow, gap = min(own, below), abs(own - below)
    if gap < tolerance * slow:
        slow = slow - tolerance * slow
        gap = min(own, below) - slow
    return slow, 1.0 / gap if gap > 0 else math.inf


def compose(stack: LayerStack, claims: list[Claim], tolerance: float) -> tuple[float, float] | str:
    """Return rate and overshoot of the stack from the layers' proved claims, or the reason for none.

    Args:
        stack: the stack.
        claims: one a layer, each accepted by its rule.
        tolerance: in (0, 1); how much of ``1 - rho`` (of ``lambda``) is given up where two rates are equal.

    Returns:
        ``(rate, overshoot)``, the overshoot rounded up.
    """
    norms = norms_of(stack.layers, claims)
    if isinstance(norms, str):
        return norms
    wide, rate = stack.directions, 0.0
    # spread[i, j]: factor from |d_j(0)| to the bound of V_i, on the level at hand
    spread = np.zeros((wide, len(norms)))
    rows: list[Array] = []
    for level in range(stack.levels):
        index = range(level * wide, (level + 1) * wide)
        merged = [
            _merge(norms[i].rate, rate, tolerance, stack.is_discrete) if level else (norms[i].rate, 0.0) for i in index
        ]
        new = np.zeros_like(spread)
        for row, (i, (_, factor)) in enumerate(zip(index, merged)):
            parts: list[Any] = [norms[int(j)].out * spread[below] for below, j in enumerate(stack.layers_read_by(i))]
            new[row] = norms[i].gain * factor * sum(parts)
            new[row, i] = norms[i].into
            rows.append(norms[i].out * new[row])
        spread = new
        rates = [r for r, _ in merged]
        rate = max(rates) if stack.is_discrete else min(rates)
    overshoot = float(np.linalg.norm(np.array(rows))) * GROW
    if not (np.isfinite(overshoot) and (0.0 < rate < 1.0 if stack.is_discrete else rate > 0.0)):
        return "the layers' bounds do not give a finite overshoot and a rate"
    return rate, max(overshoot, 1.0)


def _output_box(layer: Layer, claim: Claim) -> tuple[Array, Array]:
    """Return a box of a layer's outputs, from its claim's proof."""
    if layer.rests_on_boxes:
        assert claim.proof is not None
        return layer.output(claim.proof.data["low"]), layer.output(claim.proof.data["high"])
    return layer.output_box()


def boxes_fit(stack: LayerStack, claims: list[Claim]) -> str | None:
    """Return why some gated layer may read values outside the box of its proof, or ``None``."""
    for k, layer in enumerate(stack.layers):
        if not stack.layers_read_by(k) or layer.input_low is None:
            continue
        below: range = stack.layers_read_by(k)
        boxes: list[tuple[Array, Array]] = [_output_box(stack.layers[j], claims[j]) for j in below]
        low, high = (np.concatenate(ends) for ends in zip(*boxes))
        if not Interval(layer.input_low, layer.input_high).contains(Interval(low, high)):
            return f"layer {k} may read values outside its input box"
    return None


def start_of_layers(stack: LayerStack) -> str:
    """Describe the initial states of claims about a stack: those of gated layers lie in ``[-1, 1]``."""
    gated = any(layer.rests_on_boxes for layer in stack.layers)
    return " whose gated layers start with |h_i(0)| <= 1" if gated else ""


@certifies("cascade", subject=LayerStack, claim="contraction", value="rate")
class StackContraction(Contraction):
    """Data: ``layers``, kind, data and rate of each layer's proof."""

    layers: Parts
    tolerance: Number

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        gated = any(layer.rests_on_boxes for layer in subject.layers)
        pairs = f"any two trajectories x, y{' that start in the invariant boxes of the proof' if gated else ''} satisfy"
        if subject.directions == 1:
            bound = decay_bound(self.overshoot, self.rate, subject.is_discrete)
            return theorem(subject, f"{for_every(subject)}, {pairs} {bound}.")
        slow = at_most(self.rate, near=1.0)
        bound = f"|x(k) - y(k)|_2 <= {at_most(self.overshoot)} * ({slow}^k + {slow}^(T-k)) d at every step k of T steps"
        first = "Here d is the norm of the difference of their initial states in both directions."
        return theorem(subject, f"{for_every(subject)}, {pairs} {bound}.", first)

    def check(self, subject: LayerStack, claim: Claim) -> str:
        rate, overshoot, tolerance = self.rate, self.overshoot, self.tolerance
        require_parts(self.layers, subject.layers)
        inside = 0.0 < tolerance < 1.0 and decays(rate, subject.is_discrete)
        require(inside, "the tolerance must lie in (0, 1), and the rate be one of exponential decay")
        claims = proved_stack(subject, self.layers, CONTRACTING, "layer is proved to contract")
        slowest, least = required(compose(subject, claims, tolerance))
        enough = rate >= slowest if subject.is_discrete else rate <= slowest
        require(enough, f"the layers give the rate {slowest}, not {rate}")
        require(overshoot >= least, f"the layers give the overshoot {least}, more than {overshoot}")
        return f"all {len(subject.layers)} layers are proved to contract, and so does the stack"


def two_ways(subject: LayerStack) -> str | None:
    """Return the reason why a theorem about stacks with one direction does not cover a stack, or ``None``."""
    return None if subject.directions == 1 else "this proof is about stacks with one direction"


@certifies("cascade_equilibrium", subject=LayerStack, claim=("equilibrium", "equilibrium_in_box"), unfit=two_ways)
class StackEquilibrium(StackContraction):
    """Data of ``cascade``.

    Under a constant input a run and the same a moment later are two runs: what is summable between them ends in a fixed
    point, and two of these would be two runs that stay apart. Runs from ``|h| <= 1`` enter the invariant boxes of gated
    layers level by level, and an equilibrium of such a layer has ``|h| < 1``.
    """

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return one_equilibrium(subject, start_of_layers(subject))

    def check(self, subject: LayerStack, claim: Claim) -> str:
        named = "equilibrium" if subject.layers[0].input_low is None else "equilibrium_in_box"
        require(claim.name == named, f"about this stack and its inputs the claim is {named}")
        return super().check(subject, claim)


def require_parts(parts: Sequence[Any], layers: Sequence[Any]) -> None:
    """Require as many parts as layers."""
    count = len(layers)
    require(len(parts) == count, f"the proof must hold one part for each of the {count} layers")


def proved_layers(
    layers: Sequence[Any], parts: Sequence[Any], kinds: tuple[str, ...], nothing: str, first: int = 0
) -> list[Claim]:
    """Return the layers' claims, each proved by its own rule.

    Args:
        layers: layers of a stack, or between the blocks of a residual network.
        parts: one packed proof a layer.
        kinds: admitted kinds of proofs.
        nothing: property that no other kind of proof shows: ``layer is proved to contract``.
        first: the number of the first of these layers.

    Raises:
        Refused: another number of parts than of layers, or one that is no such proof.
    """
    require_parts(parts, layers)
    claims: list[Claim] = []
    for k, (layer, part) in enumerate(zip(layers, parts), first):
        whole = isinstance(part, Mapping) and set(cast(Mapping[str, Any], part)) == {"kind", "data", "rate"}
        require(whole, f"layer {k}: a part of a proof holds kind, data and rate, and nothing else")
        typed = isinstance(part["kind"], str) and isinstance(part["data"], Mapping) and isinstance(part["rate"], float)
        require(typed, f"layer {k}: kind must be a string, data a mapping and rate a floating-point number")
        require(part["kind"] in kinds, f"layer {k}: no {nothing} by a {part['kind'][:60]}")
        claims.append(layer_claim(part))
        valid, reason = RULES[part["kind"]](layer, claims[-1])
        require(valid, f"layer {k}: {reason}")
    return claims


def proved_stack(stack: LayerStack, parts: Sequence[Any], kinds: tuple[str, ...], nothing: str) -> list[Claim]:
    """Run ``proved_layers`` on a stack, for inputs within the outputs of the level below.

    Raises:
        Refused: a part is no such proof, or is about other inputs.
    """
    claims = proved_layers(stack.layers, parts, kinds, nothing)
    misfit = boxes_fit(stack, claims)
    require(misfit is None, str(misfit))
    return claims
