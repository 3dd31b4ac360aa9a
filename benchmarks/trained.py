"""Trained `nn.RNN`, `nn.GRU` and `nn.LSTM`: how many are certified for inputs in the range of their data.

    python -m benchmarks.trained --seeds 20

The default task (digits, a row of pixels a step), AdamW with weight decay, nothing else that asks for stability: the
module and a linear map of its last output are trained with the cross entropy. ``every_input``: how many are certified
whatever the input; ``box``: under inputs that stay, feature by feature, between the least and the largest of the
training data; ``refuted``: of how many a witness under such inputs is proved, so that no method can certify them. Each
answer is checked again by the verifier. ``rate``: proved, the median of those certified; ``exponent``: the largest
growth factor a step that was seen along test sequences, the median of all.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from stability import Certificate, Verdict, certify, verify
from stability.analysis.tasks import Task, make_task
from stability.conversion.subjects import as_subject

KINDS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
MEDIANS = ("accuracy", "rate", "exponent", "seconds")


class Classifier(nn.Module):
    """A module of torch and a linear map of its last output."""

    def __init__(self, kind: str, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.rnn = KINDS[kind](inputs, hidden, batch_first=True)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits ``(batch, classes)``."""
        return self.head(self.rnn(x)[0][:, -1])


def trained(kind: str, task: Task, seed: int, options: argparse.Namespace) -> tuple[Classifier, float]:
    """A network after its epochs, and its accuracy on the test part."""
    torch.manual_seed(seed)
    (x, y), (x_test, y_test) = task.train, task.test
    model = Classifier(kind, task.input_size, options.hidden, task.output_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=options.decay)
    for _ in range(options.epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    with torch.no_grad():
        return model.eval(), float((model(x_test).argmax(1) == y_test).double().mean())


def seen_exponent(subject: Any, x: np.ndarray) -> float:
    """The largest growth factor a step of a small difference, over runs on sequences ``(k, time, p)`` repeated."""
    rng, size, rounds = np.random.default_rng(0), 1e-6, 20
    state = np.zeros((len(x), subject.states))
    d = rng.normal(size=state.shape)
    d *= size / np.linalg.norm(d, axis=1, keepdims=True)
    total = np.zeros(len(x))
    for k in range(rounds):
        for u in np.swapaxes(x, 0, 1):
            near, state = subject.advance(state + d, u), subject.advance(state, u)
            d = near - state
            grown = np.maximum(np.linalg.norm(d, axis=1), 1e-14)
            total += np.log(grown / size) if k else 0.0  # the first round is for settling
            d *= (size / grown)[:, None]
    return float(np.exp(total.max() / ((rounds - 1) * x.shape[1])))


def is_inside(certificate: Certificate) -> bool:
    """Whether the witness of a refutation has its inputs in the box: always where the claim is about the box alone."""
    known = certificate.meta.get("witness") or {}
    return certificate.subject.input_low is not None or known.get("input_in_data_range") is True


def answer(kind: str, task: Task, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One network: which answers it has, its accuracy, the proved rate and the growth that was seen."""
    x = task.train[0]
    box = (x.amin((0, 1)).double().numpy(), x.amax((0, 1)).double().numpy())
    model, accuracy = trained(kind, task, seed, options)
    certificate = certify(model.rnn, input_box=box, tol=1e-2, time_limit=options.limit)
    if certificate.verdict is not Verdict.INCONCLUSIVE and not verify(certificate).valid:
        raise SystemExit(f"{kind}, seed {seed}: an answer does not verify")
    found = {
        "every_input": certify(model.rnn, rate="any", refute=False).verdict is Verdict.CERTIFIED,
        "box": certificate.verdict is Verdict.CERTIFIED,
        "refuted": certificate.verdict is Verdict.REFUTED and is_inside(certificate),
        "accuracy": accuracy,
        "rate": certificate.rate if certificate.verdict is Verdict.CERTIFIED else None,
        "exponent": seen_exponent(as_subject(model.rnn), task.test[0][:8].double().numpy()),
        "seconds": certificate.meta["seconds"],
    }
    print(kind, seed, json.dumps(found), file=sys.stderr, flush=True)
    return found


def row(kind: str, found: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """Counts and medians of one kind."""
    known = {key: [one[key] for one in found if one[key] is not None] for key in MEDIANS}
    return {
        "kind": kind,
        "hidden": options.hidden,
        "weight_decay": options.decay,
        "epochs": options.epochs,
        "lr": options.lr,
        "seeds": len(found),
        **{key: sum(one[key] for one in found) for key in ("every_input", "box", "refuted")},
        **{key: float(np.median(values)) if values else None for key, values in known.items()},
    }


def main() -> None:
    """Measure, print and keep: rows of other settings stay in the file as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.1, help="of AdamW")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a certificate, by the clock")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "trained.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    task = make_task("digits")
    for kind in options.kinds:
        new = row(kind, [answer(kind, task, seed, options) for seed in range(options.seeds)], options)
        print(json.dumps(new), flush=True)
        kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
        same = ("kind", "hidden", "weight_decay", "epochs", "lr")
        kept = [r for r in kept if any(r[key] != new[key] for key in same)] + [new]
        options.out.write_text(json.dumps({"rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
