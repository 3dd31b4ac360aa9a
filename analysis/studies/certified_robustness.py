"""The price of a proof: clean, attacked and certified accuracy against the radius, by architecture and by loss.

Digits by rows. Ordinary networks (LSTM, Lipschitz RNN, one that contracts by construction) beside networks of bounded
gain, trained by cross entropies of several temperatures and by the loss that aims at a radius. Each is attacked by
projected gradients, and each sequence's radius is certified as ``certified_radius`` does it: from the weights, the
proof that a layer carries, or the gain that it prescribes. Of an LSTM no radius is certified here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from stability.errors import UnsupportedError

from ...models import LSTM, BoundedGainRNN, ContractingRNN, LipschitzRNN, SequenceModel
from ..attacks.sweep import attack_sweep
from ..radius.certified import certified_radius
from ..tasks import Task
from .base import Job, Training, register_study, write_table
from .cases import IMAGES, Case, data_place, mean_of, plan_of, run_cases
from .result import Figure, StudyResult

NAME = "certified-robustness"
TITLE = "Clean, attacked and certified accuracy, by architecture and by loss"
FULL: dict[str, Any] = {
    "hidden": 64, "seeds": 5, "epochs": 10, "batch_size": 128, "attacked": 200, "steps": 20, "options": {},
}  # fmt: skip
QUICK: dict[str, Any] = {
    "hidden": 16, "seeds": 1, "epochs": 6, "batch_size": 16, "attacked": 20, "steps": 5,
    "options": {"limit": 400, "test_limit": 100},
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "hidden": 128, "plain_hidden": 64, "seeds": 5, "epochs": 4, "batch_size": 256, "attacked": 200, "steps": 20,
    "options": {}, "plain": ("LSTM", "Lipschitz RNN"), "losses": ("temperature 5", "radius 0.3", "radius 1"),
    "gains": (),
}  # fmt: skip
"""On a folder with the whole of MNIST, fifteen times the embedded digits: larger networks, fewer epochs and variants.
An ordinary network has half the units, and takes as long."""
RADII = (0.1, 0.3, 0.5, 0.7, 1.0, 1.5)
COMMON: dict[str, Any] = {"lr": 5e-3, "clip": 1.0, "schedule": "cosine", "warm_up": 0.3}
LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LSTM": (LSTM, {}),
    "Lipschitz RNN": (LipschitzRNN, {"gamma": (1.0, 0.001), "dt": 0.2}),
    "contracting RNN": (ContractingRNN, {"rate": 0.98}),
}
LOSSES: dict[str, dict[str, Any]] = {
    "temperature 1": {},
    "temperature 5": {"temperature": 5.0},
    "temperature 20": {"temperature": 20.0},
    "radius 0.3": {"temperature": 5.0, "objective": "certified", "target_radius": 0.3},
    "radius 0.5": {"temperature": 5.0, "objective": "certified", "target_radius": 0.5},
    "radius 1": {"temperature": 5.0, "objective": "certified", "target_radius": 1.0},
}
GAINS = {"gain 0.2, temperature 5": 0.2}
"""Networks of another gain, under the cross entropy at temperature 5."""
BOUNDED = "bounded gain"
DIFFERENCES = (
    "No paper's table: a question of ours. Without a folder with MNIST: 4,000 embedded digits, networks of 64 units.",
    "On the whole of MNIST networks of bounded gain have 128 units and ordinary ones 64: 13,130 parameters, and 10,698 "
    "(Lipschitz RNN) or 24,714 (LSTM); the contracting network is trained on the embedded digits alone.",
    "Attacks are projected gradients from one random start on a part of the test sequences; a stronger attack may find "
    "more, never below the certified accuracy on the same sequences.",
    "Certified is what certified_radius proves without a search around each sequence; such searches certify more of "
    "ordinary networks.",
)


def sizes(quick: bool, whole: bool = False) -> dict[str, Any]:
    """Sizes of the networks and of their training; ``whole``: on the whole of MNIST."""
    return QUICK if quick else WHOLE if whole else FULL


def cases(quick: bool, whole: bool = False) -> list[Case]:
    """Ordinary networks under one loss, networks of bounded gain under several; see ``sizes``."""
    chosen = sizes(quick, whole)

    def plain(kind: str, task: Task) -> SequenceModel:
        layer, options = LAYERS[kind]
        return SequenceModel(layer(task.input_size, few, **options), task.output_size)

    def bounded(gain: float, task: Task) -> SequenceModel:
        return SequenceModel(BoundedGainRNN(task.input_size, chosen["hidden"], gain), task.output_size)

    settings = {**COMMON, "epochs": chosen["epochs"], "batch_size": chosen["batch_size"]}
    few = chosen.get("plain_hidden", chosen["hidden"])
    losses = {name: (1.0, LOSSES[name]) for name in chosen.get("losses", LOSSES)}
    losses |= {name: (GAINS[name], LOSSES["temperature 5"]) for name in chosen.get("gains", GAINS)}

    def case(kind: str, variant: str, units: int, make: Callable[[Task], nn.Module], more: dict[str, Any]) -> Case:
        return Case(
            kind, variant, "digits", chosen["options"], make, {**settings, **more}, size=f"n={units}", reads=IMAGES
        )

    return [
        *(
            case(BOUNDED, name, chosen["hidden"], functools.partial(bounded, gain), more)
            for name, (gain, more) in losses.items()
        ),
        *(case(kind, "temperature 1", few, functools.partial(plain, kind), {}) for kind in chosen.get("plain", LAYERS)),
    ]


def shares(model: nn.Module, task: Task, attacked: int, steps: int) -> dict[str, float]:
    """Accuracies of a trained model: ``clean``, ``certified at R`` and ``attacked at R`` for each radius.

    Args:
        model: trained.
        task: with classes.
        attacked: how many test sequences are attacked.
        steps: of the attack.

    Returns:
        Shares by name; certified ones are over all test sequences, and zero where no radius is proved.
    """
    x, y = task.test
    try:
        radii = certified_radius(model, x, y)
        found = {f"certified at {r}": radii.accuracy_at(r) for r in RADII}
        found["median radius"] = float(sorted(radii.radius)[len(radii.radius) // 2])
    except UnsupportedError:
        found = {**{f"certified at {r}": 0.0 for r in RADII}, "median radius": 0.0}
    bounds = task.bounds or (0.0, 1.0)
    some = x[:attacked], y[:attacked]
    sweep = attack_sweep(model, *some, epsilons=RADII, norm="l2", steps=steps, bounds=bounds)  # type: ignore[arg-type]
    return {**found, **{f"attacked at {r}": value for r, value in zip(RADII, sweep.accuracy, strict=True)}}


def _plan(quick: bool) -> list[Training]:
    return plan_of(cases(quick))


@register_study(NAME, "clean, attacked and certified accuracy against the radius: the price of a proof", _plan)
def run_certified_robustness(job: Job) -> StudyResult:
    """Train every network with every seed, attack it and certify its radii.

    Args:
        job: ``quick``: small networks on few digits; ``data_dir``: folder with MNIST, for which the sizes of ``WHOLE``
            hold. ``curves.csv``: a row a training and radius.

    Returns:
        One row a network, loss and seed.
    """
    whole = data_place(job.data_dir, IMAGES) is not None
    chosen = sizes(job.quick, whole)
    seeds = tuple(range(job.seed, job.seed + chosen["seeds"]))
    measure = functools.partial(shares, attacked=chosen["attacked"], steps=chosen["steps"])
    rows = run_cases(job, cases(job.quick, whole), seeds, measure)
    write_table(job.out / "curves.csv", _curves(rows))
    kept = [{k: v for k, v in row.items() if k not in ("test_loss", "best_test_loss")} for row in rows]
    used = {row["variant"] for row in rows}
    losses, gains = ({k: v for k, v in known.items() if k in used} for known in (LOSSES, GAINS))
    settings = {**chosen, "radii": RADII, "training": COMMON, "losses": losses, "gains": gains}
    return StudyResult(
        NAME, TITLE, job.quick, settings, tuple(kept), conclusion=_conclusion(rows), notes=_notes(rows),
        paper="No paper's: a question of ours.", differences=DIFFERENCES, figures=FIGURES, seeds=seeds,
    )  # fmt: skip


def _curves(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row a training and radius, with both accuracies; the clean one at radius zero."""
    out = []
    for row in rows:
        head = {"model": row["model"], "network": _named(row), "seed": row["seed"]}
        out.append({**head, "radius": 0.0, "certified": row["test_metric"], "attacked": row["test_metric"]})
        out += [
            {**head, "radius": r, "certified": row[f"certified at {r}"], "attacked": row[f"attacked at {r}"]}
            for r in RADII
        ]
    return out


def _named(row: Mapping[str, Any]) -> str:
    return row["variant"] if row["model"] == BOUNDED else row["model"]


def _means(rows: Sequence[Mapping[str, Any]], column: str) -> dict[str, float]:
    """By network, the mean over seeds."""
    keys = {(row["model"], row["variant"]): _named(row) for row in rows}
    return {name: mean_of(rows, column, model=m, variant=v) or 0.0 for (m, v), name in keys.items()}


def _conclusion(rows: Sequence[Mapping[str, Any]]) -> str:
    clean, at, hit = (_means(rows, name) for name in ("test_metric", "certified at 0.5", "attacked at 0.5"))
    ordinary = [name for name in clean if name in LAYERS]
    best = max((name for name in at if name not in LAYERS), key=lambda name: at[name])
    strongest, proved = (max(ordinary, key=lambda name: column[name]) for column in (hit, at))
    above = "more" if at[best] > hit[strongest] else "not more"
    return (
        f"At l2 radius 0.5 the network of bounded gain trained with {best} is certified on {at[best]:.1%} of the "
        f"sequences, at {clean[best]:.1%} clean accuracy: {above} than attacks leave of any ordinary network "
        f"({strongest}: {hit[strongest]:.1%} of {clean[strongest]:.1%}), of which at most {at[proved]:.1%} are "
        f"certified ({proved})."
    )


def _notes(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    clean, *at = (_means(rows, column) for column in ("test_metric", *(f"certified at {r}" for r in (0.3, 0.5, 1.0))))
    return tuple(
        f"{name}: {clean[name]:.1%} clean, {at[0][name]:.1%} certified at 0.3, {at[1][name]:.1%} at 0.5, "
        f"{at[2][name]:.1%} at 1."
        for name in clean
    )


FIGURES = (
    Figure("lines", "Certified accuracy", "radius", "certified", "network", percent=True, xlabel="l2 radius",
           caption="Bands from the least to the largest seed; at zero the clean accuracy."),
    Figure("lines", "Accuracy under attack", "radius", "attacked", "network", percent=True, xlabel="l2 radius",
           caption="Projected gradients; a proof lies below every attack on the same sequences."),
)  # fmt: skip
