"""Hessian-vector products and attacks against PyHessian and Foolbox in the same run.

    OMP_NUM_THREADS=1 python -m benchmarks.curvature --threads 1    # about 5 minutes
    python -m benchmarks.curvature --only products                  # with as many threads as there are cores

The recurrent models are those of the report, 64 units on 28 steps of 28 inputs; both sides get the same module and the
same 256 images. The CNN is two 3 x 3 convolutions of 16 and 32 filters with ReLU and max pooling.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.analysis import apgd, make_task, pgd
from stability.analysis.curvature.products import hessian_of
from stability.analysis.training.presets import preset_model

from .timing import arguments, in_turns, keep

Rows = Iterator[dict[str, Any]]
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
    """Return a model from seed 0 after some steps of Adam."""
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


def compared(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the least seconds of both calls and their ratio."""
    ours, theirs = (min(times) for times in in_turns(calls, rounds).values())
    return {"ours_s": ours, "peer_s": theirs, "ratio": ours / theirs}


def products(task: Any, rounds: int) -> Rows:
    """Compare one Hessian-vector product with PyHessian's."""
    from pyhessian import hessian
    from pyhessian.utils import hessian_vector_product

    for name in MODELS:
        model, (x, y) = model_of(name, task), (part[:BATCH] for part in task.train)
        peer = hessian(model, nn.functional.cross_entropy, data=(x, y), cuda=False)
        with hessian_of(model, x, y, None, "all", None) as operator:
            v = np.random.default_rng(0).standard_normal(operator.size)
            d = operator.unflatten(v)
            calls = {
                "ours": lambda o=operator, v=v: o.matvec(v),
                "peer": lambda p=peer, d=d: hessian_vector_product(p.gradsH, p.params, d),
            }
            ours, theirs = calls["ours"](), torch.cat([p.reshape(-1) for p in calls["peer"]()]).numpy()
            difference = float(np.abs(ours - theirs).max() / np.abs(ours).max())
            yield {"model": name, **compared(calls, rounds), "relative_difference": difference}


def attacks(task: Any, rounds: int) -> Rows:
    """Compare PGD and APGD with Foolbox's PGD at equal steps."""
    import foolbox

    x, y = (part[:BATCH] for part in task.test)
    for name in ("lipschitz", "lstm", "cnn"):
        model = model_of(name, task, 120)
        other = foolbox.PyTorchModel(model, bounds=(0, 1))
        for norm, epsilon, steps in (("linf", 0.02, 7), ("linf", 0.06, 20), ("l2", 0.4, 7)):
            attack = {"l2": foolbox.attacks.L2PGD, "linf": foolbox.attacks.LinfPGD}[norm]
            peer = attack(steps=steps, rel_stepsize=2.5 / steps)
            fooled = float(peer(other, x, y, epsilons=epsilon)[2].double().mean())
            for own in (pgd, apgd):
                asked: dict[str, Any] = {"epsilon": epsilon, "norm": norm, "steps": steps}
                share = float(own(model, x, y, **asked).success.double().mean())
                calls = {
                    "ours": lambda own=own, m=model, asked=asked: own(m, x, y, **asked),
                    "peer": lambda peer=peer, o=other, e=epsilon: peer(o, x, y, epsilons=e),
                }
                row = {"attack": own.__name__, "model": name, **asked, **compared(calls, rounds)}
                yield {**row, "success": [share, fooled]}


def main() -> None:
    parts = {"products": products, "attacks": attacks}
    parser = arguments(__doc__, "curvature", parts)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # PyHessian and Foolbox are no longer maintained
    if options.threads:
        torch.set_num_threads(options.threads)
    task = make_task("digits")
    for part in options.only:
        for row in parts[part](task, options.repeats):
            threads = torch.get_num_threads()
            key = ("part", "model", "threads", "attack", "norm", "steps")
            keep(options.out, {"part": part, **row, "threads": threads}, *key)


if __name__ == "__main__":
    main()
