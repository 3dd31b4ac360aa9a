"""Soundness of certificates of gated linear layers: attacked layers, and forged files.

    python -m benchmarks.gated_soundness                       # everything
    python -m benchmarks.gated_soundness --only attacks --count 24

* ``attacks``: certified layers of all kinds, random ones over every input set, some with extreme weights, and trained
  ones. Gradient ascent through norm and convolution looks for a decay, a state, a difference of states or a horizon
  beyond the certified number: from the zero state, and from states of the certified size in the middle of a sequence.
* ``forgeries``: sealed files with a changed number, name, unit, digest, input set, type, theorem, layer or claim, most
  of them with a sentence that fits. None may be accepted and false. What is true is decided by the attacks above
  and by plain formulas.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

import stability.models  # noqa: F401 - registers the readers of checkpoints
from stability import verify
from stability.analysis import make_task, train
from stability.checkpoint_certificate import CheckpointCertificate, checkpoint_layers
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.serialization import encode, seal
from stability.kernel.format.theorem_table import worded
from stability.kernel.theorems.gated_linear_bounds import horizons
from stability.models import LAYERS, SequenceModel, save
from stability.search.gated_linear import certify_checkpoint, layer_claims
from stability.systems import Affine, ConstantGate, DeltaInjection, GatedLinearLayer, LinearInjection, RWKVInjection
from tests.stability import gated_runs

from .gated_ascent import ascend, inputs, log_decays, run, sizes, tensor
from .gated_forgeries import forged_file
from .timing import arguments, keep

KINDS = ("mingru", "minlstm", "rglru", "s4d", "s5", "mamba", "mamba2", "gated_deltanet")
SLACK = 1e-9
"""Relative rounding error of a run in float64."""
STEPS, ITERATIONS = 12, 40
BATCH = 32
"""Sequences of one attack, which are shared by the units; of more units, as many are drawn."""
Bounds = dict[str, np.ndarray]


def drawn_layers(count: int) -> Iterator[tuple[str, GatedLinearLayer]]:
    """Yield random layers of all kinds over all input sets; every third one has extreme weights."""
    for k in range(count):
        rng = np.random.default_rng(k)
        sets = gated_runs.input_sets(rng)
        name = list(sets)[k % len(sets)]
        drawn = gated_runs.layers(rng, sets[name], (0.3, 1.0, 10.0)[k % 3])
        kind = list(drawn)[k // len(sets) % len(drawn)]
        layer = drawn[kind]
        signal = getattr(layer.gate, "signal", None)
        if k % 3 == 2 and isinstance(signal, Affine):
            shifted = Affine(signal.weight, signal.source, signal.bias + rng.choice([-12.0, 12.0], signal.size))
            layer = GatedLinearLayer(replace(layer.gate, signal=shifted), layer.injection, layer.name)
        yield f"{kind}, {name}", layer


def trained_layers(epochs: int = 2) -> Iterator[tuple[str, GatedLinearLayer]]:
    """Yield both layers of networks of every kind, trained on the characters of the embedded text."""
    task = make_task("characters", steps=128, limit=200, test_limit=10)
    for kind in KINDS:
        torch.manual_seed(0)
        layers = [LAYERS[kind](task.input_size, 16), LAYERS[kind](16, 16)]
        model = SequenceModel(layers, task.output_size, "all")
        train(model, task, epochs=epochs, batch_size=8, lr=3e-3)
        for one in checkpoint_layers(model):
            yield f"trained {kind}", one.build("norm")


def stated(layer: GatedLinearLayer) -> Bounds:
    """Return the certified numbers of every unit; ``decay`` is ``ln a``."""
    proofs = {
        claim.name: claim.proof.data
        for claim in layer_claims(layer)
        if claim.proof and claim.verdict is Verdict.CERTIFIED
    }
    found = {name: data["log_decay" if name == "decay" else "bounds"] for name, data in proofs.items()}
    if "decay" in found:
        found["horizon"] = horizons(found["decay"], proofs["decay"]["tol"], layer.taps)
    return found


def reached(layer: GatedLinearLayer, bounds: Bounds, seed: int = 0) -> tuple[Bounds, int]:
    """Attack every certified number; return the largest values found and the number of sequences tried."""
    generator, units, tries = torch.Generator().manual_seed(seed), len(bounds["state_bound"]), 0
    rows, batch = torch.arange(BATCH), BATCH
    chosen = torch.randperm(units, generator=generator)[rows % units]
    key_shape = (layer.units, 1)
    if isinstance(layer.injection, DeltaInjection):
        key_shape = (len(layer.injection.rate.bounds[0]), layer.injection.key_size)

    def free(length: int) -> list[Tensor]:
        return [
            torch.randn(batch, length, *shape, dtype=torch.float64, generator=generator)
            for shape in ((layer.inputs,), key_shape)
        ]

    def climb(objective: Callable[..., Tensor], start: list[Tensor]) -> np.ndarray:
        nonlocal tries
        tries += batch * ITERATIONS
        values, kept[:] = ascend(objective, start, ITERATIONS)
        best = np.full(units, -np.inf)  # of units that were not drawn
        np.maximum.at(best, chosen.numpy(), values.numpy())
        return best

    def slowest(x: Tensor, _: Tensor) -> Tensor:
        log = log_decays(layer.gate, inputs(layer.input_set, x))[:, -1]
        return log.reshape(batch, units, -1).amax(-1)[rows, chosen]

    def largest(x: Tensor, keys: Tensor, start: Tensor | None = None) -> Tensor:
        h = run(layer, inputs(layer.input_set, x), keys, start)
        return sizes(layer, h, units).amax(1)[rows, chosen]

    def later(x: Tensor, keys: Tensor, direction: Tensor) -> Tensor:
        parts = direction.flatten(1).unflatten(1, (units, -1))
        limit = tensor(bounds["state_bound"])[:, None]
        if layer.transition == "diagonal":
            start = torch.tanh(parts) * limit
        elif layer.transition == "constant complex":
            start = torch.polar(limit.expand_as(parts).contiguous(), parts)
        else:
            start = parts / parts.flatten(2).norm(dim=-1, keepdim=True) * limit
            if isinstance(layer.injection, RWKVInjection):  # the bound holds in a weighted norm
                p = tensor(sum(expit(x) for x in layer.injection.rate.bounds)).reshape(units, -1)
                start = start * (p.amin(1) / p.amax(1)).sqrt()[:, None]
        return largest(x, keys, start.reshape(shape))

    def moved(x: Tensor, keys: Tensor, y: Tensor) -> Tensor:
        u, v = inputs(layer.input_set, x), inputs(layer.input_set, y)
        change = (u - v).norm(dim=-1).amax(1).clamp(min=1e-12)
        difference = run(layer, u, keys) - run(layer, v, keys)
        return sizes(layer, difference, units).amax(1)[rows, chosen] / change

    kept: list[Tensor] = []
    found: Bounds = {}
    if "decay" in bounds:
        found["decay"] = climb(slowest, free(layer.taps))
        with np.errstate(divide="ignore"):
            found["horizon"] = np.ceil(math.log(0.01) / found["decay"] * (1 - SLACK)) + layer.taps - 1
    found["state_bound"] = climb(largest, free(STEPS))
    agree(layer, *(x[:1] for x in kept))
    shape = run(layer, *free(1))[:, 0].shape
    direction = torch.randn(shape, dtype=torch.float64, generator=generator)
    found["started"] = climb(later, [*free(STEPS), direction])
    if "state_gain" in bounds:
        x, keys = free(STEPS)
        distance = torch.where(rows % 2 == 0, 1.0, 1e-3)[:, None, None]
        y = x + distance * torch.randn(x.shape, dtype=torch.float64, generator=generator)
        found["state_gain"] = climb(moved, [x, keys, y])
    return found, tries


def agree(layer: GatedLinearLayer, x: Tensor, keys: Tensor) -> None:
    """Compare the differentiable run with the plain one of the tests.

    Raises:
        SystemExit: they differ.
    """
    with torch.no_grad():
        u = inputs(layer.input_set, x)
        own = run(layer, u, keys)[0].numpy()
    options: dict[str, Any] = {}
    if isinstance(layer.injection, LinearInjection):
        options["frequency"] = keys[0, 0, :, 0].numpy() / np.exp(layer.gate.log_step)  # pyright: ignore
    elif isinstance(layer.injection, DeltaInjection):
        options["keys"] = (keys / (keys.square().sum(-1, keepdim=True) + 1e-6).sqrt())[0].numpy()
    plain = gated_runs.states(layer, u[0].numpy(), **options)
    if not np.allclose(own, plain, rtol=1e-8, atol=1e-8 * np.abs(plain).max()):
        raise SystemExit(f"the two evaluators of {layer.name} differ by {np.abs(own - plain).max()}")


def attacks(count: int) -> dict[str, Any]:
    """Attack layers until ``count`` certified ones are done; return ratios and the number of violations."""
    tally: Counter[str] = Counter()
    shares: dict[str, list[float]] = {}
    sources = [*trained_layers(), *drawn_layers(3 * count)]
    for name, layer in sources:
        bounds = stated(layer)
        if "state_bound" not in bounds or tally["layers"] == count:
            tally["not certified"] += tally["layers"] < count
            continue
        found, tries = reached(layer, bounds, tally["layers"])
        tally += Counter({"layers": 1, "trained": name.startswith("trained"), "sequences": tries})
        for what, values in found.items():
            limit = bounds["state_bound" if what == "started" else what]
            limit = np.where(limit < 0.0, np.inf, limit) if what == "horizon" else limit
            wrong = values > limit + SLACK * (1e-3 + np.abs(limit))
            attacked = values > -np.inf
            tally["numbers"] += int(attacked.sum())
            if wrong.any():
                tally["violations"] += int(wrong.sum())
                print("VIOLATION", name, what, values[wrong], limit[wrong], flush=True)
            if what != "decay":
                known = attacked & np.isfinite(limit) & (limit > 0.0)
                shares.setdefault(what, []).extend((values[known] / limit[known]).tolist())
    share = {what: {"median": np.median(x), "largest": max(x)} for what, x in shares.items()}
    return {"case": "attacks", "violations": 0, **tally, "share_of_the_bound_reached": share}


def networks(folder: Path) -> dict[Path, dict[int, GatedLinearLayer]]:
    """Save small networks of all kinds, one whose modes never forget and one whose modes grow; return their layers."""
    torch.manual_seed(0)
    models = {kind: [LAYERS[kind](3, 4), LAYERS[kind](4, 4)] for kind in KINDS}
    models["slow"], models["growing"] = [LAYERS["s4d"](3, 4), LAYERS["mingru"](4, 4)], [LAYERS["s5"](3, 4)]
    with torch.no_grad():
        models["slow"][0].mixer.kernel.log_A_real[:2] = -40.0
        models["growing"][0].mixer.Lambda_re[:2] = 0.25
    out = {}
    for name, layers in models.items():
        path = Path(save(SequenceModel(layers, 2), folder / f"{name}.safetensors"))
        out[path] = {one.index: one.build("norm") for one in checkpoint_layers(path)}
    return out


def true_claim(layer: GatedLinearLayer, claim: Claim, attacked: Bounds) -> bool:
    """Return True if nothing that is known of a layer contradicts a claim, by attacks and plain formulas."""
    if claim.proof is None:
        return claim.verdict is Verdict.INCONCLUSIVE
    data, kind = claim.proof.data, claim.proof.kind
    if claim.statement != worded(layer, claim).statement:
        return False
    log = log_decays(layer.gate, torch.zeros(1, 1, layer.inputs, dtype=torch.float64))[0, 0].numpy()
    if kind in ("expanding_unit", "accumulator"):  # in the networks here only of constant gates
        if not isinstance(layer.gate, ConstantGate):
            return False
        if kind == "expanding_unit":
            return claim.name == "state_bound" and 0 < data["log_growth"] <= log[int(data["unit"])] * (1 + 1e-12)
        return claim.name == "forgetting" and bool((-np.expm1(log[data["units"].astype(int)]) <= 2.0**-25).all())
    if kind == "gate_extremes":
        least = attacked["decay"] if attacked else log
        above = bool((data["log_decay"] >= least - SLACK).all()) and 0 < data["tol"] < 1
        return above and claim.name == "decay" and claim.value == data["decay"] >= math.exp(data["log_decay"].max())
    if claim.name != ("state_bound" if kind.endswith("_bound") else "state_gain"):
        return False
    above = bool((data["bounds"] * (1 + SLACK) >= attacked[claim.name]).all())
    return above and claim.value == data["most"] >= data["bounds"].max()


def forgeries(count: int) -> dict[str, Any]:
    """Write forged files and check them; return how many were refused, and how many accepted and true or false."""
    tally: Counter[str] = Counter()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        known = networks(folder)
        honest = {path: certify_checkpoint(path) for path in known}
        saved = {path: one.save(path.with_suffix(".json")) for path, one in honest.items()}
        originals = {path: json.loads(file.read_text())["layers"] for path, file in saved.items()}
        attacked = {
            (path, i): reached(layer, bounds)[0]
            for path, layers in known.items()
            for i, layer in layers.items()
            if "state_bound" in (bounds := stated(layer))
        }
        file = folder / "forged.json"
        if not all(verify(file, weights=path).valid for path, file in saved.items()):
            raise SystemExit("an honest file is refused")
        while tally["files"] < count:
            path = rng.choice(list(known))
            foreign = [one for other in known if other != path for one in honest[other].layers]
            document = forged_file(honest[path], known[path], foreign, rng)
            file.write_text(seal(encode(document)), encoding="utf-8")
            if json.loads(file.read_text())["layers"] == originals[path]:
                continue
            tally["files"] += 1
            if not verify(file, weights=path).valid:
                tally["refused"] += 1
                continue
            read = CheckpointCertificate.load(file)
            true = all(
                (one.type, one.digest, one.taps)
                == next((x.type, x.digest, x.taps) for x in honest[path].layers if x.layer == one.layer)
                and all(true_claim(known[path][one.layer], c, attacked.get((path, one.layer), {})) for c in one.claims)
                for one in read.layers
            )
            tally["accepted and true" if true else "accepted and false"] += 1
            tally["accepted with another verdict"] += read.verdict is not honest[path].verdict
            if not true:
                print("ACCEPTED AND FALSE", path.stem, json.dumps(document)[:2000], flush=True)
    return {"case": "forgeries", "accepted and false": 0, **tally}


PARTS = {"attacks": (attacks, 200), "forgeries": (forgeries, 10_000)}


def main() -> None:
    parser = arguments(__doc__, "gated_soundness", PARTS)
    parser.add_argument("--count", type=int, help="layers or files; 200 and 10,000 by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.only:
        part, count = PARTS[name]
        row = part(options.count or count)
        keep(options.out, row, "case")
        if row.get("violations") or row.get("accepted and false"):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
