"""Claims about runs in finite precision: runs outside of the bound, bound over error, time beside the certificate.

    python -m benchmarks.arithmetic
    python -m benchmarks.arithmetic --only ratio --steps 100000
    python -m benchmarks.arithmetic --only report --report runs/report

``outside``: networks of every kind, in several formats, run with the largest errors that the execution model allows,
all in one direction, under constant, switching and random inputs of the box.
``ratio``: 64 units, weights of norm 0.9, runs in torch; the inputs are random for one half of the steps, and switch
between corners of [-1, 1] every 50 steps in the other.
``running``: the bound of one run over its largest error, for networks that contract and for others. The error is at
least the distance to a run in float64, less the proved error of that run.
``time``: the claim beside the certificate that it rests on, with 256 units.
``report``: the bounds of the certified networks of a stored report, over their largest state in 10^5 measured steps.
``gated``: int8 states of Mamba-2 and gated DeltaNet layers of width 64, trained on characters, on 2,000 characters of
text: the bound of the run over its largest error, median over heads, and the claim for every input of the norm, and for
inputs in the range of the text, over the largest error of the whole state.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability import ExecutionModel, certify
from stability.analysis import gated_run, run_in
from stability.certificate import Certificate
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.models import GRU, LSTM, ElmanRNN
from stability.models.gated_linear.block import GatedLinearBlock
from stability.search.as_it_runs import certify_run
from stability.search.gated_runs import gated_run_claim
from stability.systems import DrivenSystem, InputBox, LureSystem, PairwiseSystem
from tests.stability.worst_rounding import largest_distance

from .gated_bounds import network as trained
from .gated_bounds import text
from .timing import arguments, keep, processor

Array = np.ndarray
MODELS = {
    "float32": ExecutionModel("float32"),
    "bfloat16": ExecutionModel("bfloat16"),
    "float16": ExecutionModel("float16"),
    "tf32 factors": ExecutionModel("float32", factors="tf32", weight_error=1e-6),
    "bfloat16 state": ExecutionModel("float32", "bfloat16"),
    "float8 state": ExecutionModel("float32", "float8_e4m3"),
    "int8 state": ExecutionModel("int8"),
    "int8:4 state, stochastic": ExecutionModel("int8:4", rounding="stochastic"),
    "int8 state, feedback": ExecutionModel("int8", rounding="feedback"),
}
LIMITS = {"nearest": None, "feedback": 5.0, "noise_shaping": 5.0}
KINDS = ("tanh", "relu", "euler", "midpoint", "linear", "oplu", "householder", "modrelu", "lstm", "gru")


def shrinking(rng: np.random.Generator, n: int, norm: float) -> Array:
    """Draw a matrix ``(n, n)`` of a spectral norm."""
    W = rng.normal(size=(n, n))
    return W * (norm / np.linalg.norm(W, 2))


def network(kind: str, rng: np.random.Generator, n: int) -> Any:
    """Draw a network that contracts."""
    E, b = rng.normal(size=(n, 2)), 0.3 * rng.normal(size=n)
    if kind in ("tanh", "relu"):
        return DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), shrinking(rng, n, 0.9), dt=1.0), kind, E, b)
    if kind in ("euler", "midpoint"):
        system = LureSystem.recurrent(-np.eye(n), shrinking(rng, n, 0.7)).discretise(kind, 0.5)
        stages = 2 if kind == "midpoint" else 1
        return DrivenSystem(system, "tanh", np.tile(E, (stages, 1)), np.tile(b, stages))
    if kind == "linear":
        return DrivenSystem(LureSystem.linear(shrinking(rng, n, 0.95), dt=1.0), "identity", np.zeros((0, 2)), None, E)
    if kind in ("lstm", "gru"):
        gates = 4 if kind == "lstm" else 3
        weights = [0.15 * rng.normal(size=shape) for shape in ((gates * n, 2), (gates * n, n), gates * n, gates * n)]
        return GatedCell(kind, *weights, input_low=-1.0, input_high=1.0, reset_after=bool(rng.integers(2)))
    n += n % 2
    bias = -0.1 * rng.random(n // 2) if kind == "modrelu" else 0.3 * rng.normal(size=n)
    angles = rng.uniform(0.0, 6.0, n // 2) if kind == "householder" else None
    return PairwiseSystem(shrinking(rng, n, 0.9), rng.normal(size=(n, 2)), bias, kind, angles=angles)


def inputs_of(rng: np.random.Generator, steps: int) -> Iterator[Array]:
    """Yield constant, switching and random inputs ``(steps, 2)`` of [-1, 1]."""
    yield np.tile(rng.choice([-1.0, 1.0], 2), (steps, 1))
    yield np.where(np.arange(steps)[:, None] < steps // 2, 1.0, rng.choice([-1.0, 1.0], (steps, 2)))
    yield rng.uniform(-1.0, 1.0, (steps, 2))


def outside(out: Any, count: int, steps: int) -> None:
    """Count runs outside of the bound, over networks and formats."""
    rng, rows = np.random.default_rng(0), {name: [] for name in MODELS}
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        subject = network(kind, rng, int(rng.integers(1, 9)))
        certificate = certify(subject, refute=False, rate="any")
        box = None if isinstance(subject, GatedCell) else (-np.ones(2), np.ones(2))
        for name, model in MODELS.items():
            claim = certify_run(certificate, model, box)
            if not isinstance(claim, str):
                for inputs in inputs_of(rng, steps):
                    direction = rng.choice([-1.0, 1.0], subject.states)
                    rows[name].append(largest_distance(subject, model, direction, inputs) / float(claim.value or 0.0))
    for name, ratios in rows.items():
        kept = np.array(ratios)
        row = {"case": "runs outside of the bound", "format": name, "networks": count, "steps": steps}
        keep(out, {**row, "runs": len(kept), "outside": int((kept > 1.0).sum()), "must": 0,
                   "largest_share": float(kept.max(initial=0.0))}, "case", "format")  # fmt: skip


def hardware_run(W: Array, E: Array, inputs: Array, model: ExecutionModel) -> Array:
    """Return states ``(time, n)`` of ``x+ = tanh(W x + E u)`` in torch, with the rounded state between two steps."""
    dtype = getattr(torch, model.format)
    weights, drive = (torch.tensor(M, dtype=torch.float32).to(dtype) for M in (W, E))
    driven = torch.tensor(inputs, dtype=torch.float32).to(dtype) @ drive.T
    x, states = torch.zeros(len(W), dtype=dtype), []
    for part in driven:
        x = torch.tanh(torch.addmv(part, weights, x))
        if model.state == "int8":
            scale = x.abs().max() / 127.0
            x = torch.round(x / scale) * scale
        elif model.state != model.format:
            x = x.to(getattr(torch, model.state)).to(dtype)
        states.append(x)
    return torch.stack(states).double().numpy()


def long_inputs(rng: np.random.Generator, steps: int) -> Array:
    """Return inputs ``(steps, 2)`` in float32: random, then corners of [-1, 1] of 50 steps each."""
    inputs = rng.uniform(-1.0, 1.0, (steps, 2)).astype(np.float32).astype(float)
    inputs[steps // 2 :] = np.repeat(rng.choice([-1.0, 1.0], (steps, 2)), 50, axis=0)[: steps - steps // 2]
    return inputs


def ratio(out: Any, count: int, steps: int) -> None:
    """Measure the bound over the largest error of long runs with 64 units."""
    n = 64
    limits = {"int8 state": 20, "bfloat16 state": 20, "float32": 1000}
    found: dict[str, list[float]] = {name: [] for name in limits}
    for seed in range(count):
        rng = np.random.default_rng(seed)
        W, E = (M.astype(np.float32).astype(float) for M in (shrinking(rng, n, 0.9), rng.normal(size=(n, 2))))
        subject = DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0), "tanh", E)
        certificate = certify(subject, refute=False)
        inputs = long_inputs(rng, steps)
        x, exact = np.zeros(n), np.empty((steps, n))
        for k, u in enumerate(inputs @ E.T):
            exact[k] = x = np.tanh(W @ x + u)
        for name in limits:
            claim = certify_run(certificate, MODELS[name], (-np.ones(2), np.ones(2)))
            assert not isinstance(claim, str), claim
            error = np.linalg.norm(hardware_run(W, E, inputs, MODELS[name]) - exact, axis=1).max()
            found[name].append(float(claim.value or 0.0) / float(error))
    for name, must in limits.items():
        row = {"case": "bound over largest error", "format": name, "units": n, "steps": steps, "networks": count}
        reached = {"reached": float(np.median(found[name])), "least": min(found[name])}
        keep(out, {**row, "must": must, **reached}, "case", "format")


def running(out: Any, count: int, steps: int) -> None:
    """Measure the bound of one run over its largest error, with 64 units."""
    limits = {"int8 state": 20, "bfloat16 state": 20, "float32": 1000}
    kinds = {"rate 0.9": (ElmanRNN, 0.9, steps), "gain 1.5": (ElmanRNN, 1.5, steps // 10)}
    kinds |= {"LSTM": (LSTM, None, steps // 10), "GRU": (GRU, None, steps // 10)}
    for kind, (layer_class, norm, length) in kinds.items():
        found: dict[str, list[float]] = {name: [] for name in (*limits, "float64", "seconds")}
        for seed in range(count):
            torch.manual_seed(seed)
            rng, layer = np.random.default_rng(seed), layer_class(2, 64)
            if norm is not None:
                layer.weight_hh.data = torch.tensor(shrinking(rng, 64, norm), dtype=torch.float32)
                layer.weight_ih.data.normal_()
            x = torch.tensor(long_inputs(rng, length)[None], dtype=torch.float32)
            used, accuracy = processor(lambda layer=layer, x=x: run_in(layer, x, "float64").proved)
            found["float64"].append(accuracy)
            found["seconds"].append(used / length * 1000)
            for name in limits:
                run = run_in(layer, x, MODELS[name])
                bound = float((run.distance + accuracy).max())
                found[name].append(bound / (run.largest - accuracy))
        for name, must in limits.items():
            row = {"case": "bound of one run over its error", "network": kind, "format": name, "steps": length}
            medians = {"float64": float(np.median(found["float64"])), "seconds": float(np.median(found["seconds"]))}
            reached = {"must": must, "reached": float(np.median(found[name])), "most": max(found[name])}
            keep(out, {**row, "units": 64, "networks": count, **reached, **medians}, "case", "network", "format")


def seconds(out: Any, n: int) -> None:
    """Measure the time of the claim beside that of the certificate."""
    rng = np.random.default_rng(0)
    W, E = shrinking(rng, n, 0.9), rng.normal(size=(n, 2))
    subject = DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0), "tanh", E)
    own, certificate = processor(lambda: certify(subject, refute=False))
    for name in ("float32", "int8 state"):
        added, claim = processor(lambda name=name: certify_run(certificate, MODELS[name], (-np.ones(2), np.ones(2))))
        assert not isinstance(claim, str), claim
        row = {"case": "time of the claim beside the certificate", "format": name, "units": n, "certificate": own}
        keep(out, {**row, "claim": added, "must": 1.0, "reached": added / own}, "case", "format")


def stored(out: Any, folder: Path) -> None:
    """Keep the bounds of the certified networks in a report, their largest states and measured distances."""
    for path in sorted(folder.glob("models/*/certificate.json")):
        certificate = Certificate.load(path)
        measured = certificate.meta.get("rounding") or {}
        if certificate.verdict is Verdict.CERTIFIED and measured:
            claim = next((claim for claim in certificate.claims if claim.name == "as_it_runs"), None)
            row = {"case": "float32 in the report", "format": path.parent.name, "must": 1e-3}
            row |= {"state": measured["size"], "measured": measured["largest"]}
            bound = None if claim is None else claim.value
            kept = {"bound": bound, "reached": None if bound is None else bound / measured["size"]}
            keep(out, {**row, **kept, "why": certificate.meta.get("as_it_runs")}, "case", "format")


def gated(out: Any, steps: int) -> None:
    """Measure bounds over the largest errors of runs of gated linear layers with an int8 state."""
    for kind, name in (("mamba2", "Mamba-2"), ("gated_deltanet", "gated DeltaNet")):
        found: dict[str, list[tuple[float, ...]]] = {rounding: [] for rounding in LIMITS}
        blocks = [part for part in trained(kind).modules() if isinstance(part, GatedLinearBlock)]
        with torch.no_grad():
            x = text(steps)
            for block in blocks:
                u = block.norm(block.encoder(x))[0].numpy()
                box = InputBox(*(np.nextafter(np.float32(end), np.float32(to)).astype(float) for end, to in
                                 ((u.min(axis=0), -np.inf), (u.max(axis=0), np.inf))))  # fmt: skip
                state = block.gated_linear().unit_states
                for rounding, kept in found.items():
                    model = ExecutionModel("float32", f"int8:{state}", rounding=rounding)
                    run = gated_run(block.float(), x[0].float(), model)
                    assert (run.distance <= run.bound).all()
                    error = float(np.linalg.norm(run.distance, axis=1).max())
                    claims = (gated_run_claim(block.gated_linear(inputs), model) for inputs in (None, box))
                    shares = (np.inf if isinstance(c, str) else float(c.value or 0.0) / error for c in claims)
                    heads = run.bound.max(axis=0) / run.distance.max(axis=0)
                    kept += [(float(head), *before, run.relative) for before in [tuple(shares)] for head in heads]
                x = block.double()(x)[0]
        for rounding, rows in found.items():
            medians = np.median(rows, axis=0)
            names = ("reached", "claim_norm", "claim_range_of_text", "error_over_state")
            row = {"case": "int8 state of gated linear layers", "format": f"{name}, {rounding}", "steps": steps}
            row |= {"heads": len(rows), "must": LIMITS[rounding]}
            keep(out, row | {key: float(x) if x < np.inf else None for key, x in zip(names, medians)}, "case", "format")


def main() -> None:
    """Run the chosen parts."""
    parser = arguments(__doc__, "arithmetic", ("outside", "ratio", "running", "time", "report", "gated"))
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--worst-steps", type=int, default=60, help="steps of a run with the worst rounding")
    parser.add_argument("--steps", type=int, default=100_000, help="steps of a run in torch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--report", type=Path, default=Path("runs/report"), help="folder of a report")
    parser.add_argument("--characters", type=int, default=2000, help="steps of a run of gated linear layers")
    options = parser.parse_args()
    if "report" in options.only:
        stored(options.out, options.report)
    torch.set_num_threads(1)
    if "time" in options.only:
        seconds(options.out, 256)
    if "ratio" in options.only:
        ratio(options.out, options.repeats, options.steps)
    if "running" in options.only:
        running(options.out, options.repeats, options.steps)
    if "gated" in options.only:
        gated(options.out, options.characters)
    if "outside" in options.only:
        outside(options.out, options.networks, options.worst_steps)


if __name__ == "__main__":
    main()
