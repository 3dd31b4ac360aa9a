"""A claim of every theorem on gated linear layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from gated_runs import layers, rwkv7

from stability.kernel.format.claims import Claim
from stability.kernel.systems.execution import ExecutionModel
from stability.search.gated_linear import layer_claims
from stability.search.gated_runs import gated_run_claim
from stability.systems import (
    Affine,
    ConvexInjection,
    GatedLinearLayer,
    NormBall,
    SigmoidGate,
    SoftplusGate,
    StepInjection,
)


def gated_linear_claims() -> dict[str, tuple[Any, Claim]]:
    """Return a claim of every theorem on gated linear layers."""
    out: dict[str, tuple[Any, Claim]] = {}
    rng = np.random.default_rng(0)
    ball = NormBall(np.ones(6))
    for kind, layer in layers(rng, ball, 0.3).items():
        if kind in ("mamba2", "mingru", "rg_lru", "gated_deltanet", "rwkv7", "lru"):
            out.update({f"{kind}, {claim.name}": (layer, claim) for claim in layer_claims(layer)})
            run = gated_run_claim(layer, ExecutionModel("int8", rounding="noise_shaping"))
            out.update({} if isinstance(run, str) else {f"{kind}, {run.name}": (layer, run)})
    values = Affine(np.ones((2, 6)), ball)
    slow = GatedLinearLayer(SigmoidGate(Affine(np.zeros((2, 6)), ball, [0.0, 25.0])), ConvexInjection(values), "minGRU")
    out["accumulator"] = slow, layer_claims(slow)[0]
    steady = Affine(np.zeros((2, 6)), ball, [1.0, 2.0])
    fast = GatedLinearLayer(SoftplusGate(np.zeros(2), steady, growing=True), StepInjection(values, values), "Mamba-3")
    out["expanding unit"] = fast, layer_claims(fast)[0]
    grows = rwkv7(rng, ball, 1.0)
    out["periodic growth"] = grows, layer_claims(grows)[0]
    return out
