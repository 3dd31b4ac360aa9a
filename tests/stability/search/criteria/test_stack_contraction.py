"""Stacks: the composed claim holds in simulation, and nothing but the layers' own proofs carries it."""

from __future__ import annotations

import numpy as np
import pytest

from stability.certification import certify
from stability.errors import ConfigurationError, DimensionError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import worded
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify, verify_claim


def rnn(rng, p, n, norm=0.8, activation="tanh") -> DrivenSystem:
    W = rng.normal(size=(n, n))
    system = LureSystem(np.zeros((n, n)), np.eye(n), norm * W / np.linalg.norm(W, 2), dt=1.0)
    return DrivenSystem(system, activation, rng.normal(size=(n, p)), rng.normal(size=n))


def gru(rng, p, m, scale=0.1, box=None) -> GatedCell:
    w = [scale * rng.normal(size=s) for s in ((3 * m, p), (3 * m, m), 3 * m, 3 * m)]
    return GatedCell("gru", *w, *((None, None) if box is None else (-box, box)))


def lstm(rng, p, m, scale=0.05, box=None) -> GatedCell:
    w = [scale * rng.normal(size=s) for s in ((4 * m, p), (4 * m, m), 4 * m, 4 * m)]
    return GatedCell("lstm", *w, *((None, None) if box is None else (-box, box)))


def flow(rng, p, n) -> DrivenSystem:
    A = rng.normal(size=(n, n))
    A = A - A.T - 2 * np.eye(n)
    W = rng.normal(size=(n, n))
    return DrivenSystem(LureSystem.recurrent(A, W / np.linalg.norm(W, 2)), "tanh", rng.normal(size=(n, p)))


STACKS = {
    "rnn rnn": lambda r: [rnn(r, 2, 3), rnn(r, 3, 4, 0.5), rnn(r, 4, 2, 0.9)],
    "equal rates": lambda r: [rnn(r, 2, 3, 0.8), rnn(r, 3, 3, 0.8)],
    "relu on tanh": lambda r: [rnn(r, 2, 3), rnn(r, 3, 3, 0.7, "relu")],
    "gru on rnn": lambda r: [rnn(r, 2, 3), gru(r, 3, 3)],
    "gru lstm": lambda r: [gru(r, 2, 3, box=1.0), lstm(r, 3, 2)],
}


@pytest.mark.parametrize("name", STACKS)
def test_a_certified_stack_keeps_its_promise_in_simulation(name, rng, tmp_path):
    stack = LayerStack(STACKS[name](rng))
    certificate = certify(stack)
    assert certificate.verdict is Verdict.CERTIFIED, certificate.findings
    for finding in certificate.findings:  # what is left of a rate to one (to zero, in continuous time) is the margin
        assert finding.margin == pytest.approx(1.0 - finding.rate if certificate.subject.is_discrete else finding.rate)
    checked = verify(certificate.save(tmp_path / "c.json"))
    assert checked.valid, checked.reason
    low, high = (np.zeros((200, stack.states)) for _ in range(2))
    at = 0
    for layer, part in zip(stack.layers, certificate.proof.data["layers"]):
        ends = (part["data"]["low"], part["data"]["high"]) if "low" in part["data"] else (-2.0, 2.0)
        low[:, at : at + layer.states], high[:, at : at + layer.states] = ends
        at += layer.states
    x, y = rng.uniform(low, high), rng.uniform(low, high)
    start = np.linalg.norm(x - y, axis=1)
    for k in range(1, 60):
        u = np.sign(rng.normal(size=(200, stack.inputs)))
        x, y = stack.advance(x, u), stack.advance(y, u)
        bound = certificate.overshoot * certificate.rate**k * start
        assert (np.linalg.norm(x - y, axis=1) <= bound * (1 + 1e-9) + 1e-14).all()


def test_the_rate_is_that_of_the_slowest_layer(rng):
    layers = STACKS["rnn rnn"](rng)
    rates = [certify(layer).rate for layer in layers]
    assert certify(LayerStack(layers)).rate == pytest.approx(max(rates), rel=1e-6)
    equal = certify(
        LayerStack([layers[0], rnn(rng, 3, 3, 0.0), layers[0].__class__(layers[0].system, "tanh", np.eye(3))])
    )
    assert rates[0] < equal.rate < rates[0] + 2e-3


def test_a_stack_of_flows_in_continuous_time(rng):
    stack = LayerStack([flow(rng, 2, 3), flow(rng, 3, 2)])
    certificate = certify(stack)
    assert certificate.verdict is Verdict.CERTIFIED
    assert verify(certificate).valid
    first, second = stack.layers
    n, dt = 3, 1e-3
    x, y = rng.normal(size=(50, 5)), rng.normal(size=(50, 5))
    start = np.linalg.norm(x - y, axis=1)
    for k in range(1, 4001):
        u = np.sin(0.01 * k) * np.ones((50, 2))

        def rate_of(s, u=u):
            return np.concatenate([first.advance(s[:, :n], u), second.advance(s[:, n:], s[:, :n])], axis=1)

        x, y = x + dt * rate_of(x), y + dt * rate_of(y)
        bound = certificate.overshoot * np.exp(-certificate.rate * k * dt) * start
        assert (np.linalg.norm(x - y, axis=1) <= bound * 1.05).all()


def test_two_directions_disturbances_die_out_from_both_ends(rng):
    stack = LayerStack([rnn(rng, 2, 3), rnn(rng, 2, 3, 0.6), rnn(rng, 6, 3), rnn(rng, 6, 3, 0.7)], directions=2)
    certificate = certify(stack)
    assert certificate.verdict is Verdict.CERTIFIED
    assert "both directions" in certificate.claim.statement
    T, u = 30, rng.normal(size=(30, 2))

    def run(starts):
        signal, everything = u, []
        for level in range(2):
            outs = []
            for k, order in enumerate((range(T), range(T - 1, -1, -1))):
                state, seen = starts[2 * level + k], np.zeros((T, 3))
                for t in order:
                    state = stack.layers[2 * level + k].advance(state, signal[t])
                    seen[t] = state
                outs.append(seen)
            signal = np.concatenate(outs, axis=1)
            everything.append(signal)
        return np.concatenate(everything, axis=1)

    for _ in range(20):
        a, b = rng.normal(size=(2, 4, 3))
        start = np.linalg.norm(a - b)
        gap = np.linalg.norm(run(a) - run(b), axis=1)
        k = np.arange(1, T + 1)
        decay = certificate.rate**k + certificate.rate ** (T + 1 - k)
        assert (gap <= certificate.overshoot * decay * start).all()


def test_an_open_layer_leaves_the_stack_open(rng):
    stack = LayerStack([rnn(rng, 2, 3), gru(rng, 3, 3, scale=1.0)])
    certificate = certify(stack)
    assert certificate.verdict is Verdict.INCONCLUSIVE
    assert not certificate.findings[1].holds


def test_a_refuted_lowest_layer_refutes_the_stack(rng):
    bad = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[3.0]], dt=1.0), "tanh", [[1.0]])
    certificate = certify(LayerStack([bad, rnn(rng, 1, 2)]))
    assert certificate.verdict is Verdict.REFUTED
    assert verify(certificate).valid
    in_use = certify(LayerStack([bad, rnn(rng, 1, 2)]), input_range=(-0.1, 0.1))
    assert in_use.meta["witness"]["input_in_data_range"] is True
    far = DrivenSystem(bad.system, "tanh", [[1.0]], [9.0])
    above = certify(LayerStack([rnn(rng, 1, 1, 0.1), far]))
    assert above.verdict is Verdict.INCONCLUSIVE  # the layer below may never produce the input that refutes it
    data = dict(certificate.proof.data)
    draft = Claim("contraction", "", Verdict.REFUTED, Proof("cascade_layer", {**data, "layer": 1}))
    bent = worded(above.subject, draft)
    assert "lowest level" in verify_claim(above.subject, bent).reason


def test_boxes_reach_the_gated_layers_above(rng):
    stack = LayerStack([gru(rng, 2, 3, box=1.0), lstm(rng, 3, 2), gru(rng, 2, 2)])
    for layer in stack.layers[1:]:
        assert np.abs(layer.input_high).max() < 1.0
    wide = stack.with_inputs(-5.0, 5.0)
    assert (wide.layers[1].input_high >= stack.layers[1].input_high).all()
    assert LayerStack([rnn(rng, 2, 3, activation="relu"), gru(rng, 3, 2)]).layers[1].input_low is None
    np.testing.assert_array_equal(LayerStack([rnn(rng, 2, 3), gru(rng, 3, 2)]).layers[1].input_high, np.ones(3))


def test_bad_stacks_are_refused(rng):
    layer = rnn(rng, 2, 3)
    for bad, error in [
        ([], ConfigurationError),
        ([layer, layer], DimensionError),
        ([layer, flow(rng, 3, 2)], ConfigurationError),
        ([layer.system], ConfigurationError),
        ([None], ConfigurationError),
    ]:
        with pytest.raises(error):
            LayerStack(bad)
    with pytest.raises(ConfigurationError):
        LayerStack([layer], directions=2)
    with pytest.raises(ConfigurationError):
        LayerStack([layer], directions=3)
    with pytest.raises(ConfigurationError):
        LayerStack([layer, layer], directions=2).advance(np.zeros(6), np.zeros(2))
