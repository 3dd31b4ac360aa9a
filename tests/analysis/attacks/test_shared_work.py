"""What a search does not do twice: directions at bounds, entries that are held, points known to be misclassified."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from stability.analysis.attacks.deepfool import draw_back
from stability.analysis.attacks.projections import Box
from stability.analysis.attacks.strong import strong
from stability.analysis.attacks.threat import LOSSES, Threat, open_threat
from stability.models.elman import ElmanRNN
from stability.models.network import SequenceModel


def test_directions_lose_what_points_out_of_a_face():
    generator = torch.Generator().manual_seed(0)
    lower, upper = torch.zeros(40, 3, 2), torch.ones(40, 3, 2)
    upper[::4] = lower[::4]  # held
    z = torch.minimum(torch.randint(0, 3, lower.shape, generator=generator) / 2.0, upper)
    ways = torch.randn(40, 5, 3, 2, generator=generator)
    found = Box(lower, upper).turned(z, ways)
    for way in range(5):
        d = ways[:, way]
        out = ((d > 0) & (z >= upper)) | ((d < 0) & (z <= lower)) | (lower >= upper)
        assert torch.equal(found[:, way], torch.where(out, 0.0, d))


@pytest.mark.parametrize("held", [False, True])
def test_held_entries_have_no_gradient(held):
    torch.manual_seed(0)
    model, x, y = SequenceModel(ElmanRNN(2, 4), 3), torch.rand(5, 6, 2), torch.arange(5) % 3
    mask = torch.ones_like(x, dtype=torch.bool)
    mask[:, 2] = not held
    threat = open_threat(model, x, y, norm="linf", bounds=(0, 1), mask=mask if held else None, seed=0, epsilon=0.1)
    assert threat.frozen is held
    gradient = threat.ascend(x, LOSSES["margin"])[1]
    assert bool((gradient[:, 2] == 0).all()) is held
    assert (gradient[:, 1] != 0).all()


def test_points_that_are_known_to_be_misclassified_are_drawn_back_alike(monkeypatch):
    torch.manual_seed(0)
    model, x = SequenceModel(ElmanRNN(2, 8), 3), torch.rand(30, 6, 2)
    y = model(x).argmax(dim=1)
    threat = open_threat(model, x, y, norm="l2", bounds=(0, 1), mask=None, seed=0, epsilon=None)
    far = torch.rand(30, 6, 2).round()
    rows = threat.wrong(far).nonzero()[:, 0]
    assert len(rows) > 5
    part, z = threat.take(rows), far[rows]
    expected = draw_back(part, z, 8)
    assert (expected - part.x).norm() < (z - part.x).norm()
    asked = []
    wrong = Threat.wrong
    monkeypatch.setattr(Threat, "wrong", lambda self, points: asked.append(len(points)) or wrong(self, points))
    assert torch.equal(draw_back(part, z, 8, fooled=True), expected)
    assert len(asked) == 9  # eight middles, and the model itself once


def test_what_is_found_on_kernels_is_judged_by_the_model_itself():
    torch.manual_seed(0)
    model, x = SequenceModel(ElmanRNN(2, 8), 3), torch.rand(20, 6, 2)
    y = model(x).argmax(dim=1)
    found = strong(model, x, y, epsilon=[0.05, 0.2, 0.8], norm="linf")
    with torch.no_grad():
        assert torch.equal(model(found.adversarial).argmax(dim=1) != y, found.success)
    assert found.success.any()


@pytest.mark.parametrize("radii", [None, torch.linspace(0.0, 2.0, 5, dtype=torch.float64)])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_points_on_the_way_are_in_their_balls_to_rounding(norm, radii):
    torch.manual_seed(0)
    model, x, y = SequenceModel(ElmanRNN(2, 4), 3), torch.rand(5, 6, 2), torch.arange(5) % 3
    threat = open_threat(model, x, y, norm=norm, bounds=(0, 1), mask=None, seed=0, epsilon=0.3)
    threat = replace(threat, radii=radii).limited()
    z = x + torch.randn_like(x)
    z[4] = x[4]
    found, exact = threat.nearly_inside(z.clone()), threat.inside(z)
    torch.testing.assert_close(found, exact, rtol=0, atol=4e-7)
    assert (threat.geometry.size(found.double() - x.double()) <= (threat.reach + 1e-6)).all()
    assert bool((found != x).flatten(1).any(1)[1:4].all())
