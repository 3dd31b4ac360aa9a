"""A classifier is its network and its head: the same numbers as a loop that says so, and the same after a file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, StabilityError, UnsupportedError
from stability.kernel.format.serialization import decode, digest_of, encode
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem, LureSystem

RNG = np.random.default_rng(3)


def cell(kind: str = "gru", inputs: int = 2, hidden: int = 3) -> GatedCell:
    rows = (4 if kind == "lstm" else 3) * hidden
    return GatedCell(kind, RNG.normal(size=(rows, inputs)), RNG.normal(size=(rows, hidden)), RNG.normal(size=rows))


def network(inputs: int = 2, hidden: int = 3) -> DrivenSystem:
    W = RNG.normal(size=(hidden, hidden))
    flow = LureSystem.recurrent(-np.eye(hidden), W)
    E = RNG.normal(size=(hidden, inputs))
    return DrivenSystem(flow.midpoint(0.1), "tanh", np.vstack([E, E]), RNG.normal(size=2 * hidden))


KINDS = {
    "map": network(),
    "gru": cell(),
    "lstm": cell("lstm"),
    "stack": LayerStack([network(), cell("lstm", 3, 4)]),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("reduction", ["last", "mean"])
def test_logits_are_those_of_the_loop(name, reduction):
    subject = KINDS[name]
    width = subject.outputs if name != "stack" else 4
    made = Classifier(subject, RNG.normal(size=(5, width)), RNG.normal(size=5), reduction)
    x = RNG.normal(size=(4, 6, 2))
    found = made.logits(x)
    for k in range(4):
        state, outputs = np.zeros(subject.states), []
        for u in x[k]:
            state = subject.advance(state, u)
            outputs.append(subject.layers[-1].output(state[-8:]) if name == "stack" else subject.output(state))
        read = outputs[-1] if reduction == "last" else sum(outputs) / 6
        assert np.allclose(found[k], made.weight @ read + made.bias, rtol=1e-12, atol=1e-13)
    again = decode(json.loads(json.dumps(encode(made))))
    assert np.array_equal(again.logits(x), found)
    assert digest_of(again) == digest_of(made)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Classifier(LureSystem([[0.0]], [[1.0]], [[1.0]], dt=1.0), [[1.0], [0.0]]), UnsupportedError),
        (lambda: Classifier(DrivenSystem(LureSystem.recurrent([[-1.0]], [[1.0]]), "tanh", [[1.0]]), [[1.0], [0.0]]),
         UnsupportedError),
        (lambda: Classifier(LayerStack([cell(), cell()], directions=2), np.ones((2, 6))), UnsupportedError),
        (lambda: Classifier(cell().with_inputs(-1.0, 1.0), np.ones((2, 3))), ConfigurationError),
        (lambda: Classifier(cell(), np.ones((2, 4))), DimensionError),
        (lambda: Classifier(cell(), np.ones((1, 3))), DimensionError),
        (lambda: Classifier(cell(), np.ones((2, 3)), np.ones(3)), DimensionError),
        (lambda: Classifier(cell(), np.ones((2, 3)), reduction="all"), ConfigurationError),
        (lambda: Classifier(cell(), np.ones((2, 3))).logits(np.full((1, 2, 2), np.nan)), NonFiniteError),
        (lambda: Classifier(cell(), np.ones((2, 3))).logits(np.ones((1, 0, 2))), DimensionError),
        (lambda: decode({**encode(Classifier(cell(), np.ones((2, 3)))), "recurrent": "gru"}), StabilityError),
    ],
)  # fmt: skip
def test_what_is_no_classifier_is_refused(make, error):
    with pytest.raises(error):
        make()
