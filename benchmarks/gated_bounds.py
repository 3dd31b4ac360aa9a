"""Tightness of certificates of gated linear layers, trained on the characters of the embedded text.

    python -m benchmarks.gated_bounds
    python -m benchmarks.gated_bounds --only gain

Networks have two layers of width 64. They train for 10 epochs of 102,400 characters, about half a minute; ``horizon``
and ``floors`` also train longer, since gates become sharper in training.

* ``state``: certified state bound of each head of Mamba-2 over the largest state that gradient ascent through norm
  and convolution reaches.
* ``horizon``: certified memory horizon of each channel of an RG-LRU, with four blocks in its gates, over the largest
  one on 12,000 characters of text.
* ``gain``: gain of each head of Mamba-2, which holds at every length, against 6,000 times the largest Jacobian of a
  state by an input, the bound of 6,000 steps by the triangle inequality; gradient ascent finds the Jacobian.
* ``floors``: certified memory horizon of each head of Mamba-2 over the largest one on 12,000 characters of text, after
  floors at the 1 % quantile of the head's steps on the training text; change of the loss on 10,240 held-out characters.
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.analysis import Task, make_task, measure_layers, set_floors, train
from stability.checkpoint_certificate import checkpoint_layers
from stability.kernel.theorems.gated_linear_bounds import TOLERANCE, horizons
from stability.models import LAYERS, SequenceModel
from stability.search.gated_linear import certify_checkpoint

from .gated_ascent import ascend, inputs, run, sizes
from .timing import arguments, keep

WIDTH, EPOCHS, LONGER = 64, 10, 25
TEST_STEPS, GAIN_STEPS = 11_999, 6_000
CHANGE = 1e-5
"""Size of the change of an input in difference quotients."""
MUST = {"state": 10.0, "horizon": 5.0, "gain": 30.0, "floors": 10.0}
LOSS_MUST = 1e-4
"""Largest change of the loss by floors, in nats a character."""


def text(steps: int) -> Tensor:
    """Return the first ``steps`` characters of the test part as one sequence."""
    return make_task("characters", steps=steps, limit=1, test_limit=1).test[0][:1].double()


@cache
def characters() -> Task:
    """Return sequences of 256 characters: 400 for training, 40 others."""
    return make_task("characters", steps=256, limit=400, test_limit=40)


@cache
def network(kind: str, epochs: int = EPOCHS) -> SequenceModel:
    """Return a network in float64, trained on 102,400 characters of the embedded text."""
    task = characters()
    torch.manual_seed(0)
    layers = [LAYERS[kind](size, WIDTH, heads=4) for size in (task.input_size, WIDTH)]
    model = SequenceModel(layers, task.output_size, "all")
    done = train(model, task, epochs=epochs, batch_size=8, lr=1e-3, schedule="cosine")
    print(f"{kind}: {done.seconds:.0f} s of training, test loss {done.history[-1].test_loss:.3f} nats", flush=True)
    return model.eval().double()


def quotients(case: str, values: Any, **more: Any) -> dict[str, Any]:
    ratios = np.concatenate(values)
    quartiles = dict(zip(("lower_quartile", "median", "upper_quartile"), np.quantile(ratios, (0.25, 0.5, 0.75))))
    return {"case": case, **more, "units": len(ratios), **quartiles, "must": MUST[case]}


def state(lengths: tuple[int, ...] = (8, 64), restarts: int = 8, iterations: int = 150) -> list[dict[str, Any]]:
    model, values = network("mamba2"), []
    for claims, one in zip(certify_checkpoint(model).layers, checkpoint_layers(model)):
        layer, bounds = one.build("norm"), claims.units("state_bound")
        chosen = torch.arange(layer.units * restarts) % layer.units
        best = np.zeros(layer.units)

        def largest(x: Tensor, layer=layer, chosen=chosen) -> Tensor:
            h = run(layer, inputs(layer.input_set, x), x)
            return sizes(layer, h, layer.units).amax(1)[torch.arange(len(chosen)), chosen]

        for steps in lengths:
            torch.manual_seed(steps)
            start = torch.randn(len(chosen), steps, layer.inputs, dtype=torch.float64)
            np.maximum.at(best, chosen.numpy(), ascend(largest, [start], iterations)[0].numpy())
        values.append(bounds / best)
    return [quotients("state", values, sequences=2 * len(lengths) * len(chosen) * iterations)]


def horizon() -> list[dict[str, Any]]:
    rows = []
    for epochs in (EPOCHS, LONGER):
        model = network("rglru", epochs)
        pairs = list(zip(certify_checkpoint(model).layers, measure_layers(model, [text(TEST_STEPS)])))
        row = quotients("horizon", [claims.horizons() / own.horizon for claims, own in pairs], epochs=epochs)
        constant = [claims.horizons() / horizons(np.log(own.decay), TOLERANCE, claims.taps) for claims, own in pairs]
        rows.append({**row, "median_at_the_largest_decay_on_text": np.median(np.concatenate(constant))})
    return rows


def floors() -> list[dict[str, Any]]:
    rows, task = [], characters()
    (x, _), (held_out, targets) = task.train, task.test
    for epochs in (EPOCHS, LONGER):
        model = deepcopy(network("mamba2", epochs))
        unlimited = measure_layers(model, [text(TEST_STEPS)])
        done = set_floors(model, x.double().split(8), lambda own: float(task.loss(own(held_out.double()), targets)))
        pairs = list(zip(done.layers, measure_layers(model, [text(TEST_STEPS)])))
        row = quotients("floors", [own.horizons_after / found.horizon for own, found in pairs], epochs=epochs)
        without = np.concatenate([own.horizons_before / found.horizon for own, found in zip(done.layers, unlimited)])
        losses = {"loss": done.loss_before, "loss_change": done.loss_after - done.loss_before, "loss_must": LOSS_MUST}
        rows.append({**row, "median_without_floors": np.median(without), **losses})
    return rows


def gain(length: int = 12, restarts: int = 2, iterations: int = 150) -> list[dict[str, Any]]:
    model, values = network("mamba2"), []
    for claims, one in zip(certify_checkpoint(model).layers, checkpoint_layers(model)):
        layer = one.build("norm")
        torch.manual_seed(0)
        rows = torch.arange(layer.units * layer.taps * restarts)
        chosen, moved = rows % layer.units, length - 1 - rows // layer.units % layer.taps  # head; step of the change

        def slope(x: Tensor, direction: Tensor, layer=layer, rows=rows, chosen=chosen, moved=moved) -> Tensor:
            u, change = inputs(layer.input_set, x), torch.zeros_like(x)
            change[rows, moved] = CHANGE * direction / direction.norm(dim=-1, keepdim=True)
            difference = run(layer, u + change, x) - run(layer, u, x)
            return sizes(layer, difference, layer.units)[rows, -1, chosen] / CHANGE

        start = torch.randn(len(rows), length, layer.inputs, dtype=torch.float64)
        best, largest = ascend(slope, [start, torch.randn_like(start[:, 0])], iterations)[0], np.zeros(layer.units)
        np.maximum.at(largest, chosen.numpy(), best.numpy())
        values.append(GAIN_STEPS * largest / claims.units("state_gain"))
    return [quotients("gain", values, steps=GAIN_STEPS)]


PARTS = {"state": state, "horizon": horizon, "gain": gain, "floors": floors}
NAMES = {
    "state": "certified state bound of a head of Mamba-2 over the largest state reached",
    "horizon": "certified horizon of a channel of an RG-LRU over the largest one on text",
    "gain": "6,000 times the largest Jacobian over the gain of a head of Mamba-2",
    "floors": "certified horizon of a head of Mamba-2 with floors over the largest one on text",
}


def main() -> None:
    parser = arguments(__doc__, "gated_bounds", PARTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in options.only for row in PARTS[name]()]
    for row in rows:
        keep(options.out, row, "case", "epochs")
    print(f"\n{'figure (median)':78}{'must':>12}{'reached':>12}")
    for row in rows:
        name = NAMES[row["case"]] + (f", {row['epochs']} epochs" if "epochs" in row else "")
        print(f"{name:78}{'>' if row['case'] == 'gain' else '<':>6}{row['must']:6.0f}{row['median']:12.4g}")
        if "loss_change" in row:
            print(f"{'change of the loss, nats':78}{'<':>6}{row['loss_must']:6.0e}{abs(row['loss_change']):12.4g}")


if __name__ == "__main__":
    main()
