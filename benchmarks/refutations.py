"""How often is a network refuted by a proof, and how often only seen not to contract?

    python -m benchmarks.refutations                  # 200 trained networks, about ten minutes on one core
    python -m benchmarks.refutations --networks 20

Small recurrent networks of several architectures, sizes and activations are trained for a few dozen steps, each on a
task of its own: to tell sequences of noise in [0, 1] by a feature of them that needs memory. Then ``certify`` is asked
as a report asks it: with the range of the data and the length of the sequences. Counted are the verdicts, what stands
behind them, the kinds of proof, and whether a witness's input lies in the data's range and its states are known to be
reachable. Every proof is checked again by ``verify``; one that fails ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability import Verdict, __version__, certify, verify
from stability.models import GRU, LSTM, AntisymmetricRNN, ElmanRNN, LipschitzRNN, NeuralODERNN, SequenceModel

LENGTH, FEATURES = 20, 2
LAYERS: dict[str, Any] = {
    "elman tanh": lambda n: ElmanRNN(FEATURES, n),
    "elman relu": lambda n: ElmanRNN(FEATURES, n, activation="relu"),
    "lipschitz": lambda n: LipschitzRNN(FEATURES, n, dt=0.1),
    "antisymmetric": lambda n: AntisymmetricRNN(FEATURES, n, dt=0.1),
    "neural_ode": lambda n: NeuralODERNN(FEATURES, n, dt=0.1),
    "lstm": lambda n: LSTM(FEATURES, n),
    "gru": lambda n: GRU(FEATURES, n),
}
SIZES = (3, 4, 6, 8, 12)


def task(rng: np.random.Generator, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences ``(count, LENGTH, FEATURES)`` in [0, 1], and the sign of a weighted sum over time that leans on the
    beginning.
    """
    x = rng.random((count, LENGTH, FEATURES))
    weights = rng.normal(size=(LENGTH, FEATURES)) * np.linspace(2.0, 0.5, LENGTH)[:, None]
    score = np.einsum("ntf,tf->n", x - 0.5, weights)
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(score > 0, dtype=torch.int64)


def trained(name: str, size: int, seed: int, steps: int) -> SequenceModel:
    """A network after ``steps`` steps of Adam."""
    torch.manual_seed(seed)
    x, y = task(np.random.default_rng(seed), 256)
    model = SequenceModel(LAYERS[name](size), 2)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    return model


def judge(name: str, seed: int, steps: int) -> dict[str, Any]:
    """One network: its verdict, what stands behind it, and the check of it."""
    size = SIZES[seed % len(SIZES)]
    layer = trained(name, size, seed, steps).layer
    start = time.perf_counter()
    certificate = certify(layer, rate="any", input_range=(0.0, 1.0), horizon=LENGTH)
    seconds = time.perf_counter() - start
    proof = certificate.proof
    return {
        "layer": name,
        "hidden": size,
        "seed": seed,
        "verdict": str(certificate.verdict),
        "evidence": str(certificate.evidence),
        "kind": proof.kind if proof is not None else None,
        **certificate.meta.get("witness", {}),
        "checked": certificate.verdict is Verdict.INCONCLUSIVE or verify(certificate).valid,
        "seconds": round(seconds, 3),
    }


def share(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Count the verdicts, the kinds of proof, and where the counter-examples lie."""
    refuted = [r for r in rows if r["verdict"] == "refuted"]
    return {
        "networks": len(rows),
        "verdicts": dict(Counter(r["verdict"] for r in rows)),
        "kinds": dict(Counter(r["kind"] for r in refuted)),
        "input_in_data_range": sum(r.get("input_in_data_range") is True for r in refuted),
        "states_reachable": sum(r.get("states_reachable") is True for r in refuted),
        "states_out_of_reach": sum(r.get("states_reachable") is False for r in refuted),
        "unverified": sum(not r["checked"] for r in rows),
        "seconds": round(sum(r["seconds"] for r in rows), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=200)
    parser.add_argument("--steps", type=int, default=40, help="training steps of each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "refutations.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names, rows = list(LAYERS), []
    for i in range(options.networks):
        rows.append(judge(names[i % len(names)], options.seed + i, options.steps))
        print(json.dumps(rows[-1]), flush=True)
    report = {
        "machine": {"python": platform.python_version(), "torch": torch.__version__, "stability": __version__},
        "all": share(rows),
        "by_layer": {name: share([r for r in rows if r["layer"] == name]) for name in names},
        "networks": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["all"], indent=1))
    raise SystemExit(1 if report["all"]["unverified"] else 0)


if __name__ == "__main__":
    main()
