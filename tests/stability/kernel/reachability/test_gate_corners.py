"""Relaxations of gates leave out corners that no run reaches; the gradient of a margin is that of its run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from stability.kernel.reachability.affine_forms import AffineArithmetic, Term
from stability.kernel.reachability.classifier_run import margins
from stability.kernel.reachability.gate_units import Parabola, Unit, lower_bound
from stability.kernel.reachability.input_box import evaluate_at, input_box, inputs_of
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.search.local.splitting import margin_gradient

Array = np.ndarray


def network(kind: str, seed: int) -> Classifier:
    rng, gates = np.random.default_rng(seed), 12 if kind == "lstm" else 9
    weights = 1.2 * rng.normal(size=(gates, 8)), rng.normal(size=(gates, 3))
    cell = GatedCell(kind, *weights, 0.3 * rng.normal(size=gates), 0.3 * rng.normal(size=gates))
    return Classifier(cell, 2.0 * rng.normal(size=(3, 3)))


def sample(subject: Classifier, seed: int) -> tuple[Array, int]:
    x = 0.5 * np.random.default_rng(100 + seed).normal(size=(2, 8))
    return x, int(subject.logits(x).argmax())


def test_corners_are_cut_off_where_no_run_gets_and_only_there():
    rng = np.random.default_rng(4)
    tube = AffineArithmetic()
    x = tube.enter(-np.ones(40), np.ones(40))
    a, b = (tube.affine(rng.normal(size=(6, 40)) * 0.1, None, x, rng.normal(size=6)) for _ in range(2))
    term = tube.units(Term(Unit("tanh", gated=True), a, b)) and tube.groups[-1].terms[0]
    box, corners = term.box, term.box.corners
    assert corners is not None
    middle = [0.5 * y.low + 0.5 * y.high for y in (a, b)]
    half = [0.5 * y.high - 0.5 * y.low for y in (a, b)]
    for sign, low, high in (
        (1, corners.sum_low, corners.sum_high),
        (-1, corners.difference_low, corners.difference_high),
    ):
        row = a.L / half[0][:, None] + sign * b.L / half[1][:, None]
        most = (a.c - middle[0]) / half[0] + sign * (b.c - middle[1]) / half[1] + np.abs(row).sum(axis=1)
        assert (high >= most).all()
        assert (high <= most + 1e-9).all()
        assert (low <= 2 * ((a.c - middle[0]) / half[0] + sign * (b.c - middle[1]) / half[1]) - most).all()
    below = Parabola(*(rng.normal(size=6) for _ in range(7)))
    sign = np.where(rng.random(6) < 0.5, 1.0, -1.0)
    tight, loose = (lower_bound(term.unit, sign, below, one) for one in (box, replace(box, corners=None)))
    assert (tight >= loose).all()
    assert (tight > loose + 1e-3).any()
    for _ in range(400):
        v = (
            np.sign(rng.normal(size=40))
            if rng.random() < 0.5
            else np.sign(a.L[rng.integers(6)] + rng.normal() * b.L[rng.integers(6)])
        )
        at_a, at_b = a.c + a.L @ v, b.c + b.L @ v
        da, db = at_a - below.a0, at_b - below.b0
        there = sign * term.unit.value(at_a, at_b) - below.alpha * at_a - below.beta * at_b
        there = there - below.aa * da**2 - 2 * below.ab * da * db - below.bb * db**2
        assert (tight <= there).all()


def test_the_gradient_is_that_of_the_margin():
    subject, rng = network("gru", 1), np.random.default_rng(8)
    x, label = sample(subject, 1)
    tube = AffineArithmetic()
    margin = margins(subject, tube, *input_box(x, 0.1), label)
    point = rng.uniform(-0.9, 0.9, 16)
    met, _ = evaluate_at(subject, tube, point, label)
    slope = margin_gradient(tube, margin, 1, met)[inputs_of(tube)]
    for k in range(16):
        moved = [evaluate_at(subject, tube, point + s * 1e-5 * np.eye(16)[k], label)[1][1] for s in (1, -1)]
        assert abs((moved[0] - moved[1]) / 2e-5 - slope[k]) < 1e-6
