"""Affine forms over many boxes enclose what they stand for, and nothing is cut off at the ends of the boxes."""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.arithmetic.activations import ACTIVATIONS, activation
from stability.kernel.arithmetic.balls import Ball
from stability.search.equilibria.affine_boxes import AffineBoxes

STEP = {name: (lambda boxes, y, name=name: boxes.activation(name, y)) for name in ACTIVATIONS} | {
    "exponential": lambda boxes, y: boxes.one_plus_exponential(y),
    "product": lambda boxes, y: boxes.product(y, boxes.linear(Ball.exact(np.roll(np.eye(3), 1, 0)), y, ZERO)),
    "composed": lambda boxes, y: boxes.product(boxes.activation("sigmoid", y), boxes.activation("tanh", y)),
}
EXACT = {name: activation(name).function for name in ACTIVATIONS} | {
    "exponential": lambda y: 1.0 + np.exp(y),
    "product": lambda y: y * np.roll(y, 1, axis=-1),
    "composed": lambda y: np.tanh(y) / (1.0 + np.exp(-y)),
}
ZERO = Ball.exact(np.zeros(3))


@pytest.mark.parametrize("name", STEP)
def test_forms_enclose_the_values_at_all_points_of_their_boxes(name: str, rng: np.random.Generator) -> None:
    middle, half = rng.normal(size=(40, 3)), 10.0 ** rng.uniform(-3, 0.7, size=(40, 3))
    matrix, radius, offset = rng.normal(size=(3, 3)), 1e-3, rng.normal(size=3)
    boxes = AffineBoxes(middle - half, middle + half)
    inner = boxes.linear(Ball(matrix, np.full((3, 3), radius)), boxes.y, Ball.exact(offset))
    for form, function in (
        (STEP[name](boxes, boxes.y), EXACT[name]),
        (STEP[name](boxes, inner), lambda y: EXACT[name](y @ (matrix + 0.999 * radius).T + offset)),
    ):
        noise = np.abs(form.L[:, :, 3:]).sum(axis=-1) + form.err + 1e-12 * (1.0 + np.abs(form.c))
        for place in (*rng.uniform(-1, 1, size=(60, 3)), *rng.choice([-1.0, 1.0], size=(20, 3))):
            y = middle + half * place
            values, symbols = function(y), ((y - boxes.y.c) / boxes.radius)[..., None]
            assert (np.abs(values - form.c - (form.L[:, :, :3] @ symbols)[..., 0]) <= noise).all()
            slack = 1e-12 * (1.0 + np.abs(values))
            assert ((form.low - slack <= values) & (values <= form.high + slack)).all()
    assert not boxes.empty.any()
