"""Record the toolkit's answers on fixed subjects, and compare two such records.

    python benchmarks/kept_answers.py --out before.json --models DIR --cases DIR --data-dir MNIST
    python benchmarks/kept_answers.py --compare before.json after.json

Parts: ``models`` (run directories, and the processor time of a report on them), ``random`` (200 generated systems),
``cases`` (every file of a folder), ``published`` (two networks of "Reachability analysis of recurrent neural networks",
2025, in that folder's ``nahs2025``; 3 s an input) and ``reservoirs`` (12 echo state networks with narrow inputs). Only
public names are used. Time limits and seconds are processor time. ``--compare`` exits with 1 if a verdict was lost.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from stability import DrivenSystem, GatedCell, LayerStack, LureSystem, certify, gain_margin, incremental_gain
from stability import models as layers
from stability.analysis import local_radius, make_task

START = "import os, time; os.environ['OMP_NUM_THREADS'] = '1'; time.monotonic = time.perf_counter = time.process_time"
SIZES = (2, 3, 4, 6, 8, 12, 16, 20, 24, 32)
LAYERS = ["RotRNN", "BoundedGainRNN", "ElmanRNN", "HouseholderRNN", "LRU", "ContractingRNN", "UnitaryRNN"]
STABILITY = [sys.executable, "-m", "stability"]
RESERVOIRS = ((200, 0.2), (300, 0.1), (500, 0.1), (500, 0.05))  # units, largest absolute input
PUBLISHED = {"LSTM15": (0.005, 0.01, 0.015, 0.02, 0.025), "GRU30": (0.0025, 0.005, 0.0075, 0.01, 0.0125)}
ANSWERED = ("certified", "refuted")
Row = dict[str, Any]
Rows = Iterator[tuple[str, Row]]


def asked(question: Callable[..., Row], *args: Any, patience: float = 120.0, **options: Any) -> Row:
    """Ask a question for at most ``patience`` processor seconds; an exception is recorded by its type."""
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, patience)
    try:
        row = question(*args, **options)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - KeyboardInterrupt: out of patience
        row = {"verdict": type(error).__name__}
    left, _ = signal.setitimer(signal.ITIMER_PROF, 0.0)
    return {**row, "seconds": round(max(patience - left, 0.0), 3)}


def answer(subject: Any, **options: Any) -> Row:
    """Certify a subject: verdict, rate and claims; claims of the same name are numbered."""
    found = certify(subject, seed=0, **options)
    row: Row = {"verdict": str(found.verdict), "evidence": str(found.evidence), "cut": str(found.meta.get("cut"))}
    row |= {"criterion": found.criterion, "rate": found.rate, "overshoot": found.overshoot, "claims": {}}
    for claim in found.claims:
        number = 1 + sum(name.startswith(f"{claim.name} ") for name in row["claims"])
        entry = {"verdict": str(claim.verdict), "value": claim.value, "proof": claim.proof and claim.proof.kind}
        row["claims"][f"{claim.name} {number}"] = entry
    return row


def model_row(folder: Path, x: Any, y: Any) -> Row:
    """Ask about one run directory: verdicts, gain to the logits, gain margin, certified radii of the inputs ``x``."""
    model = layers.load(folder)
    row = asked(answer, folder) | {"in box": asked(answer, folder, input_box=(0.0, 1.0))}
    told = {"output": model.head.weight.detach().double().numpy(), "horizon": x.shape[1], "pairs": True}
    row["logits"] = asked(lambda: {"gain": incremental_gain(model.layer, **told).value})
    row["loop"] = asked(lambda: {"gain": gain_margin(model.layer, tol=0.05, seed=0).certified})
    for limit, norm in itertools.product((None, 20.0), ("l2", "linf")):
        if limit is None or row[norm]["radius"].get("verdict") == "KeyboardInterrupt":
            told = {"norm": norm, "time_limit": limit}
            found = asked(lambda told: dict(enumerate(local_radius(model, x, y, **told).radius)), told, patience=90.0)
            row[norm] = {"limit": limit, "radius": found}
    return row


def models(options: argparse.Namespace) -> Rows:
    """Ask about every run directory, then time a report on all of them."""
    x, y = (part[:3] for part in make_task("digits").test)
    folders = sorted(f.parent for f in options.models.glob("*/run.json"))
    yield from ((folder.name, model_row(folder, x, y)) for folder in folders)
    with tempfile.TemporaryDirectory() as place:
        begun = sum(os.times()[:4])
        subprocess.run([*STABILITY, "report", *folders, "--out", f"{place}/report", "--quiet"], check=False)
        row: Row = {"seconds": Counter(all=sum(os.times()[:4]) - begun)}
        for file in Path(place).glob("report/models/*/local.json"):
            row[file.parent.name] = {"radius": pd.read_csv(file.with_suffix(".csv"))["radius"].to_dict()}
            for name, step in json.loads(file.with_name("analysis.json").read_text())["steps"].items():
                row["seconds"][name] += step["seconds"]
    yield "report", row


def near(r: np.random.Generator, n: int, low: float, high: float) -> np.ndarray:
    """Return a normal ``(n, n)`` matrix whose spectral radius lies about in ``[low, high]``."""
    return r.uniform(low, high) * r.normal(size=(n, n)) / np.sqrt(n)


def lure(r: np.random.Generator, n: int, dt: float | None) -> LureSystem:
    """Return a Lur'e system with fewer channels than states and a feedthrough."""
    m, A = max(1, n // 2), near(r, n, 0.3, 0.9) - (0 if dt else np.eye(n))
    B, C = r.normal(size=(n, m)) * r.uniform(0.02, 0.5) / np.sqrt(n * m), r.normal(size=(m, n))
    return LureSystem(A, B, C, 0.1 * near(r, m, 0.5, 1.0), (0, 1), dt)


def system(r: np.random.Generator, n: int, dt: float | None, high: float, slope: Any = (0.0, 1.0)) -> LureSystem:
    """Return the map ``phi(W x)``, or the flow ``dx/dt = -x + phi(W x)``."""
    W = near(r, n, 0.5, high) if n != 8 else np.triu(near(r, n, 0.8, 1.6))  # 8 units: triangular
    return LureSystem(np.zeros((n, n)) if dt else -np.eye(n), np.eye(n), W, None, slope, dt)


def driven(r: np.random.Generator, n: int, high: float, dt: float | None = 1.0, phi: str = "tanh") -> DrivenSystem:
    """Return a recurrent network with two inputs and a bias."""
    return DrivenSystem(system(r, n, dt, high), phi, r.normal(size=(n, 2)), r.normal(size=n))


def gated(r: np.random.Generator, n: int, kind: str, p: int = 2) -> GatedCell:
    """Return an LSTM or GRU cell with inputs in [-1, 1], its weights of size 0.03 to 6."""
    gates = 4 if kind == "lstm" else 3
    weights = [r.normal(size=(gates * n, k)) * 10 ** r.uniform(-1.5, 0.8) / np.sqrt(k) for k in (p, n)]
    return GatedCell(kind, *weights, *(0.3 * r.normal(size=(2, gates * n))), input_low=-1.0, input_high=1.0)


FAMILIES: dict[str, Callable[[np.random.Generator, int, float | None], Any]] = {
    "Lur'e": lure,
    "slopes in [0, 1]": lambda r, n, dt: system(r, n, dt, 1.2),
    "slopes of both signs": lambda r, n, dt: system(r, n, dt, 1.2, (-0.5, r.uniform(0.4, 1.2, n))),
    "midpoint": lambda r, n, dt: LureSystem.recurrent(-np.eye(n), near(r, n, 0.5, 1.1)).midpoint(dt or 0.1),
    "linear": lambda r, n, dt: LureSystem.linear(near(r, n, 0.6, 1.1) - (0 if dt else np.eye(n)), dt),
    "tanh": lambda r, n, dt: driven(r, n, 1.3, dt),
    "in a box": lambda r, n, dt: driven(r, min(n, 16), 1.4, dt, "tanh" if n % 8 else "relu"),
    "LSTM or GRU": lambda r, n, dt: gated(r, n, "lstm" if dt else "gru"),
    "stack": lambda r, n, dt: LayerStack([gated(r, 6, "lstm") if dt else driven(r, 6, 0.9), gated(r, n, "gru", 6)]),
    "layer": lambda _, n, dt: getattr(layers, LAYERS[n % 7])(2, n) if dt else torch.nn.RNN(2, n, 2),
}


def random(_: argparse.Namespace) -> Rows:
    """Certify twenty systems of every family, in discrete and in continuous time or of two kinds."""
    for name, n, dt in itertools.product(FAMILIES, SIZES, (1.0, None)):
        torch.manual_seed(n)
        subject = FAMILIES[name](np.random.default_rng((*name.encode(), n, dt is None)), n, dt)
        row = asked(answer, subject, **({"input_box": (-0.5, 0.5)} if name == "in a box" else {}))
        if isinstance(subject, torch.nn.Module):  # its initial weights may differ between versions
            row["weights"] = f"{sum(float(p.detach().abs().sum()) for p in subject.parameters()):.5g}"
        yield f"{name}, {n}, {dt}", row


def cases(options: argparse.Namespace) -> Rows:
    """Certify every file of the folder of cases, for every input and for inputs in [0, 1]."""
    for file in sorted(f for f in options.cases.rglob("*") if f.suffix not in ("", ".py", ".txt", ".md")):
        row = asked(answer, file) | {"in box": asked(answer, file, input_box=(0.0, 1.0))}
        yield str(file.relative_to(options.cases)), row
    told = json.loads((options.cases / "theorem1b-counterexample.json").read_text())
    A, W = (np.array(told[f"{name}_numerators"]) / told[f"{name}_denominator"] for name in "AW")
    yield "theorem 1 (b)", asked(answer, LureSystem.recurrent(A, W))


def published(options: argparse.Namespace) -> Rows:
    """Count the certified among the first 100 correctly classified digits, at most three seconds each."""
    x, y = make_task("digits", data_dir=str(options.data_dir)).test
    pixels = ((x[:120].double() * 255).round() / 255).reshape(120, 2, -1).numpy()
    with tempfile.TemporaryDirectory() as place:
        np.savez(f"{place}/digits.npz", x=pixels, y=y[:120].numpy())
        told = ["--data", f"{place}/digits.npz", "--norm", "linf", "--samples=120", "--time-limit=3", "--json"]
        for name, epsilon in ((name, epsilon) for name, epsilons in PUBLISHED.items() for epsilon in epsilons):
            begun, net = sum(os.times()[:4]), options.cases / "nahs2025" / f"MNIST_{name}net.onnx"
            output = subprocess.check_output([*STABILITY, "radius", net, *told, "--epsilon", str(epsilon)])
            right = [sample for sample in json.loads(output)["samples"] if sample["correct"]][:100]
            count = sum(sample["certified"] for sample in right)
            yield f"{name} {epsilon}", {"count": count, "seconds": sum(os.times()[:4]) - begun}


def reservoirs(_: argparse.Namespace) -> Rows:
    """Certify echo state networks of spectral radius 0.9 without leak for narrow inputs."""
    for (n, reach), seed in ((case, seed) for case in RESERVOIRS for seed in range(3)):
        r = np.random.default_rng(seed)
        W = r.normal(size=(n, n)) * (r.random((n, n)) < 0.1)
        W *= 0.9 / np.abs(np.linalg.eigvals(W)).max()
        b, U, entered = r.choice([-1.0, 1.0], size=n), np.zeros((n, 1)), r.choice(n, n // 10, replace=False)
        U[entered, 0] = r.choice([-1.0, 1.0], size=len(entered))
        network = DrivenSystem(LureSystem(np.zeros((n, n)), np.eye(n), W, None, (0.0, 1.0), 1.0), "tanh", U, b)
        row = asked(answer, network, input_box=(-reach, reach), tol=1e-3, refute=False, patience=900.0)
        yield f"{n} units, inputs within {reach}, seed {seed}", row


def difference(path: str, old: Any, new: Any) -> str:
    """Name the difference of two entries of a record; the empty string if there is none."""
    key = "radius" if "/radius/" in path else path.split("/")[-1]
    if "seconds" in path or str(old) == str(new):
        return ""
    if key == "verdict":
        subject = "claim" if "/claims/" in path else "verdict"
        return f"{subject} {'lost' if old in ANSWERED else 'won' if new in ANSWERED else 'changed'}"
    if not all(isinstance(value, (int, float)) for value in (old, new)):
        return f"{key} changed"
    if key == "radius":
        return "radius fell" if new < 0.98 * old else "radius rose" if 0.98 * new > old else ""
    return "" if np.isclose(old, new, rtol=1e-5, atol=0.0) else f"{key} moved"


def compare(old: dict[str, Row], new: dict[str, Row]) -> int:
    """Print what differs between two records; return 1 if a verdict was lost."""
    lost = False
    for part in (part for part in PARTS if part in old and part in new):
        rows = [pd.json_normalize(record[part]["rows"], sep="/").iloc[0].to_dict() for record in (old, new)]
        pairs = {path: [row.get(path) for row in rows] for path in {**rows[0], **rows[1]}}
        found = {path: kind for path, pair in pairs.items() if (kind := difference(path, *pair))}
        for path, kind in sorted(found.items(), key=lambda item: item[1]):
            print(f"{part:10} {kind:18} {path:50} {' -> '.join(map(str, pairs[path]))}")
        counts = [dict(Counter(row.get("verdict", "") for row in r[part]["rows"].values())) for r in (old, new)]
        print(f"{part:10} {counts[0]} -> {counts[1]}; differences: {dict(Counter(found.values()))}\n")
        lost |= "verdict lost" in found.values()
    return int(lost)


def main() -> int:
    """Write a record, or compare two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count in (("out", None), ("models", None), ("cases", None), ("data-dir", None), ("compare", 2)):
        parser.add_argument(f"--{name}", type=Path, nargs=count)
    parser.add_argument("--parts", default=",".join(PARTS), help="those that are not asked for stay in the record")
    options = parser.parse_args()
    if options.compare is not None:
        return compare(*(json.loads(path.read_text()) for path in options.compare))
    if time.monotonic is not time.process_time:  # begin again, with one thread and clocks of processor time
        with tempfile.TemporaryDirectory() as place:
            (Path(place) / "sitecustomize.py").write_text(START)
            return subprocess.call([sys.executable, *sys.argv], env={**os.environ, "PYTHONPATH": place})
    for part in options.parts.split(","):
        begun, rows = sum(os.times()[:4]), {}
        record = json.loads(options.out.read_text()) if options.out.exists() else {}
        for name, rows[name] in PARTS[part](options):
            print(part, name, json.dumps(rows[name])[:150], flush=True)
            record[part] = {"rows": rows, "seconds": round(sum(os.times()[:4]) - begun)}
            options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


PARTS = {part.__name__: part for part in (models, random, cases, published, reservoirs)}
if __name__ == "__main__":
    raise SystemExit(main())
