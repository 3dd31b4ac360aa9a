"""Certificates for inputs in a box: random networks that no claim about every input covers, and trained ones.

    python -m benchmarks.input_boxes --only echo --sizes 100     # echo state networks, inputs in [-1, 1]
    python -m benchmarks.input_boxes --only narrow --seeds 3     # narrow inputs: by sets alone, and along a run
    python -m benchmarks.input_boxes --only midpoint relu cells  # midpoint maps, ReLU networks, LSTM cells
    python -m benchmarks.input_boxes --only trained              # torch's RNN, GRU and LSTM in the range of their data
    python -m benchmarks.input_boxes --only refuted              # 200 small networks of seven kinds

Echo state networks have n units, 10 % connectivity, normal weights of a given spectral radius, biases +-1 and one input
into 10 % of the units; they count as certified if the proved bound halves a difference within 1,000 steps. Every proof
is verified again. ``rate`` and ``seconds`` (processor time) are medians.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from stability import Verdict, certify, verify
from stability.analysis.tasks import make_task
from stability.kernel.systems.gated_cell import GatedCell
from stability.models import GRU, LSTM, AntisymmetricRNN, ElmanRNN, LipschitzRNN, NeuralODERNN, SequenceModel
from stability.search.criteria.interval import fastest_gated_claim, gated_findings
from stability.search.input_sets import driven as searches
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

from .timing import arguments, keep, processor

Rows = Iterator[dict[str, Any]]
ECHO = ((100, 0.9, 1.0), (100, 1.0, 1.0), (100, 1.1, 1.0), (100, 0.9, 0.3), (500, 0.9, 1.0))
"""Units, spectral radius, leak (1: the state keeps nothing of itself)."""
NARROW = ((200, 0.2), (300, 0.1), (500, 0.1), (500, 0.05))
"""Units, largest absolute input."""
KEY = ("n", "m", "radius", "leak", "reach", "scale", "kind", "layer")
CELLS = ((8, 0.2), (8, 0.25), (8, 0.3), (16, 0.2), (16, 0.25), (16, 0.3), (32, 0.2), (32, 0.3))
"""Units, deviation of the weights."""
LAYERS: dict[str, Callable[[int], Any]] = {
    "elman tanh": lambda n: ElmanRNN(2, n),
    "elman relu": lambda n: ElmanRNN(2, n, activation="relu"),
    "lipschitz": lambda n: LipschitzRNN(2, n, dt=0.1),
    "antisymmetric": lambda n: AntisymmetricRNN(2, n, dt=0.1),
    "neural_ode": lambda n: NeuralODERNN(2, n, dt=0.1),
    "lstm": lambda n: LSTM(2, n),
    "gru": lambda n: GRU(2, n),
}


def echo_network(n: int, radius: float, leak: float, seed: int) -> DrivenSystem:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.1)
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    b, U = rng.choice([-1.0, 1.0], size=n), np.zeros((n, 1))
    entered = rng.choice(n, n // 10, replace=False)
    U[entered, 0] = rng.choice([-1.0, 1.0], size=len(entered))
    return DrivenSystem(LureSystem((1 - leak) * np.eye(n), leak * np.eye(n), W, None, (0.0, 1.0), 1.0), "tanh", U, b)


def relu_network(n: int, radius: float, leak: float, seed: int) -> DrivenSystem:
    """Return a network with mostly negative weights and one input into a fifth of the units."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n)) - 1.5 * np.abs(rng.normal(size=(n, n)))
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    U, b = np.zeros((n, 1)), rng.choice([-1.0, 1.0], size=n)
    U[rng.choice(n, n // 5, replace=False), 0] = 1.0
    return DrivenSystem(LureSystem((1 - leak) * np.eye(n), leak * np.eye(n), W, None, (0.0, 1.0), 1.0), "relu", U, b)


def midpoint_network(kind: str, seed: int) -> DrivenSystem:
    """Return a midpoint map of 2 to 8 units with one input."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    M, W = rng.normal(size=(2, n, n)) / np.sqrt(n)
    leak, gain = (rng.uniform(0.5, 1.2), 1.2) if kind == "antisymmetric" else (1.0, rng.uniform(0.8, 1.6))
    W = gain * (W - W.T) - 0.1 * np.eye(n) if kind == "antisymmetric" else gain * W
    step = LureSystem.recurrent(-leak * np.eye(n) + 0.3 * (M - M.T), W).midpoint(rng.uniform(0.1, 0.8))
    copies = step.channels // n
    E, b = rng.normal(size=(n, 1)), rng.choice([-1.0, 1.0], size=n) * rng.uniform(0.5, 2.0)
    return DrivenSystem(step, "tanh", np.tile(E, (copies, 1)), np.tile(b, copies), np.zeros((n, 1)))


def median(values: list[float]) -> float | None:
    return float(np.median(values)) if values else None


def counted(networks: list[DrivenSystem], reach: float, tol: float = 1e-2, limit: float = 900.0) -> dict[str, Any]:
    """Certify networks for inputs of absolute value at most ``reach``."""
    rates, seconds, checks = [], [], []
    for network in networks:
        asked = {"tol": tol, "time_limit": limit}
        taken, (claim, _) = processor(
            lambda network=network, asked=asked: searches.driven_contraction(network, (-reach, reach), **asked)
        )
        seconds.append(taken)
        if claim.verdict is Verdict.CERTIFIED:
            taken, checked = processor(lambda network=network, claim=claim: verify_claim(network, claim).valid)
            halves = math.log(2 * claim.proof.data["overshoot"]) / -math.log(claim.value)
            if checked and halves <= 1000:
                rates.append(claim.value)
                checks.append(taken)
    row = {"networks": len(networks), "certified": len(rates), "rate": median(rates), "check": median(checks)}
    return {**row, "seconds": median(seconds), "longest": max(seconds)}


def echo(options: Namespace) -> Rows:
    for n, radius, leak in (case for case in ECHO if case[0] in (options.sizes or (100, 500))):
        seeds = range(options.seeds if n <= 100 else max(1, options.seeds // 4))
        row = counted([echo_network(n, radius, leak, seed) for seed in seeds], 1.0, 1e-3)
        yield {"n": n, "radius": radius, "leak": leak, **row}


def narrow(options: Namespace) -> Rows:
    for n, reach in (case for case in NARROW if case[0] in (options.sizes or (200, 300, 500))):
        networks = [echo_network(n, 0.9, 1.0, seed) for seed in range(options.seeds)]
        with mock.patch.object(searches, "contraction_near_run", return_value=None):
            alone = counted(networks, reach, 1e-3)
        yield {"n": n, "reach": reach, "by_sets_alone": alone["certified"], **counted(networks, reach, 1e-3)}


def midpoint(options: Namespace) -> Rows:
    for kind in ("antisymmetric", "any weights"):
        yield {"kind": kind, **counted([midpoint_network(kind, seed) for seed in range(options.seeds)], 0.2)}


def relu(options: Namespace) -> Rows:
    for n, radius, leak in ((16, 1.2, 1.0), (16, 1.2, 0.5), (32, 1.2, 0.5)):
        networks = [relu_network(n, radius, leak, seed) for seed in range(options.seeds)]
        bare = sum(certify(net, rate="any", refute=False).verdict is Verdict.CERTIFIED for net in networks)
        yield {"n": n, "radius": radius, "leak": leak, "every_input": bare, **counted(networks, 0.3)}


def cells(options: Namespace) -> Rows:
    """Certify LSTM cells with two inputs in [-1, 1]; recurrent weights have the deviation over sqrt(units)."""
    for m, scale in CELLS:
        rates, seconds = [], []
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            w_ih, w_hh = scale * rng.normal(size=(4 * m, 2)), scale / np.sqrt(m) * rng.normal(size=(4 * m, m))
            cell = GatedCell("lstm", w_ih, w_hh, scale * rng.normal(size=4 * m), None, -1.0, 1.0)
            taken, found = processor(
                lambda cell=cell: fastest_gated_claim(cell, gated_findings(cell, rate="any", time_limit=60.0))
            )
            seconds.append(taken)
            if found is not None and verify_claim(cell, found[0]).valid:
                rates.append(found[0].value)
        row = {"m": m, "scale": scale, "networks": options.seeds, "certified": len(rates), "rate": median(rates)}
        yield {**row, "seconds": median(seconds)}


class Classifier(nn.Module):
    """A recurrent module of torch and a linear map of its last output."""

    def __init__(self, kind: str, inputs: int, classes: int) -> None:
        super().__init__()
        self.rnn = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](inputs, 16, batch_first=True)
        self.head = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(x)[0][:, -1])


def trained(options: Namespace) -> Rows:
    """Certify modules of 16 units, trained on the digits with a weight decay of 0.1, in the range of their data."""
    task = make_task("digits")
    (x, y), (x_test, y_test) = task.train, task.test
    box = (x.amin((0, 1)).double().numpy(), x.amax((0, 1)).double().numpy())
    for kind, epochs in (("rnn", 5), ("lstm", 5), ("gru", 3)):
        found: Counter[str] = Counter()
        accuracy = []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            model = Classifier(kind, task.input_size, task.output_size)
            optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
            for batch in (part for _ in range(epochs) for part in torch.randperm(len(x)).split(64)):
                step(model, optimizer, x[batch], y[batch])
            accuracy.append(float((model(x_test).argmax(1) == y_test).double().mean()))
            certificate = certify(model.rnn, input_box=box, tol=1e-2, time_limit=60.0)
            assert certificate.verdict is Verdict.INCONCLUSIVE or verify(certificate).valid
            witness = certificate.meta.get("witness") or {}
            inside = certificate.subject.input_low is not None or witness.get("input_in_data_range") is True
            found["certified"] += certificate.verdict is Verdict.CERTIFIED
            found["refuted"] += certificate.verdict is Verdict.REFUTED and inside
        row = {"kind": kind, "epochs": epochs, "networks": options.seeds, "accuracy": median(accuracy)}
        yield {**row, "certified": found["certified"], "refuted": found["refuted"]}


def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    """Take one training step with the gradient clipped to norm 1."""
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def refuted(options: Namespace) -> Rows:
    """Certify small networks after 40 training steps as a report does: with the range and the length of the data."""
    names, sizes, steps = list(LAYERS), (3, 4, 6, 8, 12), np.linspace(2.0, 0.5, 20)[:, None]
    found: dict[str, Counter[str]] = {name: Counter() for name in names}
    for seed in range(10 * options.seeds):
        name, rng = names[seed % len(names)], np.random.default_rng(seed)
        torch.manual_seed(seed)
        inputs = rng.random((256, 20, 2))
        labels = np.einsum("ntf,tf->n", inputs - 0.5, rng.normal(size=(20, 2)) * steps) > 0
        x, y = torch.as_tensor(inputs, dtype=torch.float32), torch.as_tensor(labels, dtype=torch.int64)
        model = SequenceModel(LAYERS[name](sizes[seed % len(sizes)]), 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
        for _ in range(40):
            step(model, optimizer, x, y)
        certificate = certify(model.layer, rate="any", input_range=(0.0, 1.0), horizon=20)
        assert certificate.verdict is Verdict.INCONCLUSIVE or verify(certificate).valid
        witness = certificate.meta.get("witness") or {}
        found[name].update(["networks", str(certificate.verdict)])
        found[name]["input_in_data_range"] += witness.get("input_in_data_range") is True
        found[name][f"states_reachable: {witness.get('states_reachable')}"] += bool(witness)
    for name, counts in found.items():
        yield {"layer": name, **counts}


def main() -> None:
    parts = {part.__name__: part for part in (echo, narrow, midpoint, relu, cells, trained, refuted)}
    parser = arguments(__doc__, "input_boxes", parts)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--sizes", type=int, nargs="+", help="units, of the parts echo and narrow")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for part in options.only:
        for row in parts[part](options):
            keep(options.out, {"part": part, **row}, "part", *KEY)


if __name__ == "__main__":
    main()
