"""Certified and attacked accuracy of trained networks over the radius, as ``sandwich.svg`` and ``sandwich.csv``.

Run it with ``python docs/figures/sandwich.py``; it takes some minutes. The networks are two of the default report,
the inputs the first handwritten digits of its test set, radii Euclidean over the whole sequence of 28 rows. The truth
lies in the shaded strip: below it is proved, above it an attack succeeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from stability.analysis import local_radius, make_task, preset_model, train
from stability.analysis.training.presets import preset_training

MODELS = "contracting,lipschitz"
COLOURS = ("#1f5f99", "#b5532e", "#1b7f5c", "#6a4c93")


def measure(names: list[str], samples: int, epochs: int | None) -> pd.DataFrame:
    """A row for each input of each network."""
    task = make_task("digits")
    parts = []
    for name in names:
        model = preset_model(name, task)
        told = preset_training(name)
        train(model, task, **(told if epochs is None else {**told, "epochs": epochs}))
        found = local_radius(model, *(part[:samples] for part in task.test)).frame()
        parts.append(found[["index", "label", "correct", "radius", "attack_radius"]].assign(model=name))
    return pd.concat(parts, ignore_index=True)


def strip(axes: Axes, frame: pd.DataFrame, colour: str) -> None:
    """One network: two lines of steps and what lies between them."""
    correct, radius, attacked = (frame[key].to_numpy() for key in ("correct", "radius", "attack_radius"))
    attacked = np.where(np.isnan(attacked), np.inf, attacked)
    finite = attacked[np.isfinite(attacked)]
    grid = np.unique([0.0, *radius, *finite, 1.05 * max([*finite, *radius])])
    low = [(correct & (radius > r)).mean() for r in grid]  # until the next point of the grid
    high = [(correct & (attacked > r)).mean() for r in grid]
    axes.fill_between(grid, low, high, step="post", color=colour, alpha=0.25, linewidth=0, label="not known")
    axes.plot(grid, high, "--", drawstyle="steps-post", color=colour, linewidth=1.3, label="left by attacks")
    axes.plot(grid, low, drawstyle="steps-post", color=colour, linewidth=2.2, label="certified")
    both = correct & np.isfinite(attacked)
    ratio = np.median(radius[both] / attacked[both]) if both.any() else float("nan")
    axes.set(title=f"{frame['model'].iloc[0]}: median ratio {ratio:.2f}", xlabel="radius", xlim=(0, grid[-1]))
    axes.spines[["top", "right"]].set_visible(False)


def draw(frame: pd.DataFrame, path: Path) -> None:
    """One panel a network."""
    plt.rcParams.update({"svg.hashsalt": "sandwich", "font.size": 9})
    groups = [group for _, group in frame.groupby("model", sort=False)]
    figure, places = plt.subplots(1, len(groups), figsize=(3.1 * len(groups), 2.7), layout="constrained", squeeze=False)
    for axes, group, colour in zip(places[0], groups, COLOURS):
        strip(axes, group, colour)
        axes.set(ylim=(0, 1.02), yticks=np.linspace(0, 1, 6))
        axes.set_yticklabels([f"{100 * v:.0f} %" for v in axes.get_yticks()])
    places[0][0].set_ylabel("accuracy")
    places[0][0].legend(frameon=False, loc="upper right")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--epochs", type=int)
    options = parser.parse_args()
    frame = measure(options.models.split(","), options.samples, options.epochs)
    frame.round(6).to_csv(options.out / "sandwich.csv", index=False)
    draw(frame, options.out / "sandwich.svg")


if __name__ == "__main__":
    main()
