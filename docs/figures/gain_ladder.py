"""Random tanh RNNs with growing gain: certified, then inconclusive, then refuted; as ``gain_ladder.svg`` and ``.csv``.

Run it with ``python docs/figures/gain_ladder.py``; it takes a few minutes. Each network is a ``torch.nn.RNN`` of 10
units whose recurrent matrix is a random one, ``gain / sqrt(10)`` times independent normal numbers; its other weights
are those that torch draws. Only the gain changes along a line.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from stability.certification import certify
from stability.models import as_array, lure_system

UNITS, INPUTS = 10, 2
LOOK = {"certified": ("o", "#1b7f5c"), "inconclusive": ("s", "#b9b9b9"), "refuted": ("X", "#b5332e")}


def network(seed: int, gain: float) -> nn.RNN:
    """One network of a line."""
    torch.manual_seed(seed)
    module = nn.RNN(INPUTS, UNITS).double()
    with torch.no_grad():
        module.weight_hh_l0.copy_(gain / UNITS**0.5 * torch.randn(UNITS, UNITS, dtype=torch.float64))
    return module


def measure(seeds: int, gains: np.ndarray, time_limit: float) -> list[dict[str, object]]:
    """A row for each network."""
    rows = []
    for seed in range(seeds):
        for gain in gains:
            module = network(seed, float(gain))
            found = certify(module, time_limit=time_limit, seed=seed)
            rows.append(
                {
                    "seed": seed,
                    "gain": round(float(gain), 4),
                    "norm": round(float(np.linalg.norm(as_array(module.weight_hh_l0), 2)), 6),
                    "spectral_radius": round(float(np.abs(np.linalg.eigvals(lure_system(module).C)).max()), 6),
                    "verdict": str(found.verdict),
                    "rate": "" if found.rate is None else round(found.rate, 6),
                    "proof": "" if found.proof is None else found.proof.kind,
                }
            )
    return rows


def draw(rows: list[dict[str, object]], path: Path) -> None:
    """One line a seed, one mark a network; where the norm and the spectral radius pass 1 is marked."""
    plt.rcParams.update({"svg.hashsalt": "gain ladder", "font.size": 10})
    figure, axes = plt.subplots(figsize=(7.2, 2.9), layout="constrained")
    for verdict, (marker, colour) in LOOK.items():
        chosen = [r for r in rows if r["verdict"] == verdict]
        axes.scatter(
            [r["gain"] for r in chosen], [r["seed"] for r in chosen], marker=marker, c=colour, s=42, label=verdict
        )
    for key, style in (("norm", ":"), ("spectral_radius", "--")):
        for seed in sorted({r["seed"] for r in rows}):
            line = [r for r in rows if r["seed"] == seed]
            at = 1.0 / np.mean([r[key] / r["gain"] for r in line])
            axes.plot([at, at], [seed - 0.32, seed + 0.32], style, color="black", linewidth=1.3)
    axes.plot([], [], ":", color="black", label=r"$\|W\|_2 = 1$")
    axes.plot([], [], "--", color="black", label=r"$\rho(W) = 1$")
    axes.set(xlabel="gain of the recurrent weights", ylabel="random network", yticks=sorted({r["seed"] for r in rows}))
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, 1.22), ncols=5, frameon=False, handletextpad=0.3, columnspacing=1.2
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Measure, write the table, draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--gains", type=int, default=29)
    parser.add_argument("--time-limit", type=float, default=15.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = measure(options.seeds, np.linspace(0.3, 1.7, options.gains), options.time_limit)
    with (options.out / "gain_ladder.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    draw(rows, options.out / "gain_ladder.svg")


if __name__ == "__main__":
    main()
