"""State of a network in int8: proved bound of the error, measured error, and accuracy.

Train a contracting network on the embedded digits and run it with its state in int8::

    python examples/int8_state.py

For each format the example prints the proved bound on the distance of the states from those of the exact network, the
largest measured distance, and the accuracy. It stops with an error where a run leaves its bound.
"""

from __future__ import annotations

import torch

from stability import ExecutionModel, certify
from stability.analysis import run_in, train
from stability.analysis.tasks import make_task
from stability.models import ContractingRNN, SequenceModel

FORMATS = {
    "float32": ExecutionModel("float32"),
    "int16 state": ExecutionModel("int16"),
    "int8 state": ExecutionModel("int8"),
    "int8 state, error feedback": ExecutionModel("int8", rounding="feedback"),
}


def main(epochs: int = 4) -> None:
    """Train, certify, run in every format and compare with the bound."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    task = make_task("digits")
    model = SequenceModel(ContractingRNN(28, 32, rate=0.9), 10)
    train(model, task, epochs=epochs, lr=8e-3, seed=0)
    x, y = task.test
    x, y = x[:500], y[:500]
    print("arithmetic                   proved bound   measured   accuracy")
    for name, execution in FORMATS.items():
        certificate = certify(model, input_box=(0.0, 1.0), arithmetic=execution)
        bound = next(claim.value for claim in certificate.claims if claim.name == "as_it_runs")
        run = run_in(model, x, execution)
        accuracy = float((run.outputs.argmax(1) == y).double().mean())
        print(f"{name:<27} {bound:>13.3g} {run.largest:>10.3g} {accuracy:>10.3f}")
        if run.largest > bound:
            raise SystemExit(f"{name}: a run left its proved bound, {run.largest} > {bound}")


if __name__ == "__main__":
    main()
