"""Hessian-vector products, a Hessian's spectrum, and attacks, against PyHessian and Foolbox in the same run.

    OMP_NUM_THREADS=1 python -m benchmarks.curvature --threads 1    # about 5 minutes
    python -m benchmarks.curvature --only products                  # with as many threads as there are cores

Figures are ratios of processor seconds, ours and the peer's in turns, the least of several runs each: the machine is
shared, and noise only ever adds. The recurrent models are those of the report, 64 units on 28 steps of 28 inputs, and
both see the same module, the same 256 images and the same device; the CNN is two 3 x 3 convolutions of 16 and 32
filters with ReLU and max pooling.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.certify import machine
from stability.analysis import apgd, hessian_summary, make_task, pgd, spectral_density
from stability.analysis.curvature.products import hessian_of
from stability.analysis.training.presets import preset_model

PARTS = ("products", "spectrum", "attacks")
MODELS = ("lipschitz", "lstm", "contracting", "cnn")
BATCH = 256


class CNN(nn.Module):
    """Two convolutions and a linear layer on images of 28 x 28."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(1, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        blocks = [layer for conv in (first, second) for layer in (conv, nn.ReLU(), nn.MaxPool2d(2))]
        self.net = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(32 * 49, 10))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.net(x[:, None])


def model_of(name: str, task: Any, steps: int = 0) -> nn.Module:
    """A model from seed 0, after some steps of Adam."""
    torch.manual_seed(0)
    model = CNN() if name == "cnn" else preset_model(name, task)
    optimizer, (x, y) = torch.optim.Adam(model.parameters(), 3e-3), task.train
    for k in range(steps):
        part = slice(128 * k % len(x), 128 * k % len(x) + 128)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[part]), y[part]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def in_turns(ours: Callable[[], Any], theirs: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Least processor seconds of each, after one run of each that does not count."""
    best = [np.inf, np.inf]
    for turn in range(repeats + 1):
        for k, run in enumerate((ours, theirs)):
            start = time.process_time()
            run()
            if turn:
                best[k] = min(best[k], time.process_time() - start)
    return best[0], best[1]


def peer(model: nn.Module, x: Tensor, y: Tensor) -> Any:
    """PyHessian on the same module."""
    from pyhessian import hessian

    return hessian(model, nn.functional.cross_entropy, data=(x, y), cuda=False)


def products(task: Any, repeats: int) -> list[dict]:
    """One Hessian-vector product."""
    from pyhessian.utils import hessian_vector_product

    found = []
    for name in MODELS:
        model, (x, y) = model_of(name, task), (part[:BATCH] for part in task.train)
        other = peer(model, x, y)
        with hessian_of(model, x, y, None, "all", None) as operator:
            v = np.random.default_rng(0).standard_normal(operator.size)
            direction = operator.unflatten(v)
            theirs = torch.cat([p.reshape(-1) for p in hessian_vector_product(other.gradsH, other.params, direction)])
            ours = operator.matvec(v)
            difference = float(np.abs(ours - theirs.numpy()).max() / np.abs(ours).max())
            seconds = in_turns(
                lambda operator=operator, v=v: operator.matvec(v),
                lambda o=other, d=direction: hessian_vector_product(o.gradsH, o.params, d),
                repeats,
            )
        found.append(_row("products", name, seconds, relative_difference=difference))
    return found


def spectrum(task: Any, steps: int = 40, probes: int = 8) -> list[dict]:
    """Both ends, trace and density; PyHessian's power iteration has at most 200 products an end."""
    found = []
    for name in ("lipschitz",):
        model, (x, y) = model_of(name, task, 60), (part[:BATCH] for part in task.train)
        start = time.process_time()
        summary = hessian_summary(model, x, y, trace_samples=probes)
        spectral_density(model, x, y, steps=steps, n_vectors=probes)
        ours = time.process_time() - start
        start = time.process_time()
        other = hessian_summary(model, x, y, method="pyhessian", max_iter=200, trace_samples=probes)
        _density(peer(model, x, y), steps, probes)
        theirs = time.process_time() - start
        residuals = {
            f"{end}_residual": [getattr(s, f"lambda_{end}_residual") for s in (summary, other)]
            for end in ("max", "min")
        }
        ends = {end: [getattr(s, f"lambda_{end}") for s in (summary, other)] for end in ("max", "min")}
        found.append(_row("spectrum", name, (ours, theirs), **ends, **residuals))
    return found


def _density(other: Any, steps: int, probes: int) -> None:
    """PyHessian's density, with the function of torch that it calls put back."""

    def eig(matrix: Tensor, eigenvectors: bool) -> tuple[Tensor, Tensor]:
        values, vectors = torch.linalg.eigh(matrix)
        return torch.stack([values, torch.zeros_like(values)], dim=1), vectors

    before = torch.eig
    torch.eig = eig  # type: ignore[assignment]
    try:
        other.density(iter=steps, n_v=probes)
    finally:
        torch.eig = before


def attacks(task: Any, repeats: int) -> list[dict]:
    """PGD and APGD against Foolbox's PGD, at equal steps."""
    import foolbox

    x, y = (part[:BATCH] for part in task.test)
    found = []
    for name in ("lipschitz", "lstm", "cnn"):
        model = model_of(name, task, 120)
        other = foolbox.PyTorchModel(model, bounds=(0, 1))
        for norm, epsilon, steps in (("linf", 0.02, 7), ("linf", 0.06, 20), ("l2", 0.4, 7)):
            attack = {"l2": foolbox.attacks.L2PGD, "linf": foolbox.attacks.LinfPGD}[norm]
            theirs = attack(steps=steps, rel_stepsize=2.5 / steps)
            fooled = float(theirs(other, x, y, epsilons=epsilon)[2].double().mean())
            for own in (pgd, apgd):
                options: dict[str, Any] = {"epsilon": epsilon, "norm": norm, "steps": steps}
                share = float(own(model, x, y, **options).success.double().mean())
                seconds = in_turns(
                    lambda own=own, m=model, options=options: own(m, x, y, **options),
                    lambda theirs=theirs, o=other, e=epsilon: theirs(o, x, y, epsilons=e),
                    repeats,
                )
                more = {"norm": norm, "epsilon": epsilon, "steps": steps, "success": [share, fooled]}
                found.append(_row(own.__name__, name, seconds, **more))
    return found


def _row(part: str, model: str, seconds: tuple[float, float], **more: Any) -> dict:
    ours, theirs = seconds
    row = {"part": part, "model": model, "ours_s": ours, "peer_s": theirs, "ratio": ours / theirs}
    row.update(more, threads=torch.get_num_threads())
    print(json.dumps(row), flush=True)
    return row


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "curvature.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # PyHessian and Foolbox are no longer maintained
    if options.threads:
        torch.set_num_threads(options.threads)
    task = make_task("digits")
    run = {"products": lambda: products(task, options.repeats), "spectrum": lambda: spectrum(task)}
    run["attacks"] = lambda: attacks(task, options.repeats)
    kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for part in options.only:
        rows = run[part]()
        names = {(row["part"], row["threads"]) for row in rows}
        kept = [row for row in kept if (row["part"], row["threads"]) not in names] + rows
    told = {**machine(), "torch": torch.__version__}
    options.out.write_text(json.dumps({"machine": told, "rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
