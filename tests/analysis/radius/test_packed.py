"""Radii of classifiers that pack their sequences, attacked as what they are and checked as files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import local_radius, task_from_arrays
from stability.analysis.campaign import pipeline
from stability.analysis.campaign.budgets import AnalysisSettings, Budget
from stability.analysis.campaign.fitting import joined
from stability.analysis.radius import single
from stability.models.packed import reading
from stability.search.local.proof_folder import NETWORK_FILE, sample_file, verify_folder, write_network, write_sample
from stability.storage.folder import claim_folder

from ...models.test_packed import LENGTHS, Packing, behind, tokens


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
def test_nothing_inside_the_radius_changes_the_answer_of_the_packed_network(cell, tmp_path):
    net, x = behind(Packing(cell), tokens())
    net = net.double()
    x = x.double()
    y = net(x).argmax(1)
    read = reading(net, x)
    with claim_folder(tmp_path / "p", "radius") as folder:
        folder.reserve([NETWORK_FILE, *map(sample_file, range(len(x)))], "radius", overwrite=False)
        digest = write_network(folder, read.subject)
        found = local_radius(net, x, y, time_limit=1.0, keep=lambda k, made: write_sample(folder, digest, k, made))
    assert found.lengths.tolist() == LENGTHS
    assert (found.radius > 0).all()
    assert (found.radius <= found.attack_radius).all()
    assert np.median(found.ratio) > 0.1  # and no empty promise
    checked = verify_folder(tmp_path / "p")
    assert checked.valid, checked.reason
    assert all("length of each sequence taken as given" in s.statement for s in checked.samples)
    assert [s.radius for s in checked.samples] == found.radius.tolist()
    # gradients of the packed network itself, whose tokens (and so its lengths) are held, kept to the ball
    given = tokens()
    hook = net.embedding.register_forward_hook
    for row, (radius, steps) in enumerate(zip(found.radius, LENGTHS)):
        u = 1e-3 * torch.randn(x[row].shape, dtype=x.dtype, generator=torch.Generator().manual_seed(row))
        for _ in range(40):
            u = u.detach().requires_grad_()
            handle = hook(lambda module, args, out, u=u, row=row: (x[row] + u)[None])
            logits = net.model(given[row : row + 1])[0]
            handle.remove()
            assert logits.argmax() == y[row]
            other = logits.masked_fill(torch.arange(3) == y[row], -torch.inf).max()
            (other - logits[y[row]]).backward()
            assert not u.grad[steps:].any()
            u = u.detach() + radius * u.grad / u.grad.norm()
            u[steps:] = 0.0
            u *= min(1.0, radius / float(u.norm()))


def test_a_sequence_that_is_not_read_has_no_radius_and_is_counted():
    net, x = behind(Packing(read="mean", lie=1), tokens())
    x = x[[1, 2, 4]]
    y = net(x).argmax(1)
    found = local_radius(net, x, y, time_limit=1.0, restarts=0)
    assert found.unread == 1
    assert found.claims[1] is None
    assert (found.radius[1], found.correct[1], found.attack_radius[1]) == (0.0, False, np.inf)
    said = found.to_dict()
    assert (said["unread"], said["correct"]) == (1, 2)
    assert [s["agrees"] for s in said["samples"]] == [True, False, True]
    assert [s["steps"] for s in said["samples"]] == [3, 5, 1]
    assert (found.adversarial[0, 3:] == x[0, 3:].double().numpy()).all()  # padding is left alone


def test_masks_and_bounds_are_cut_to_the_own_steps():
    net, x = behind(Packing(nn.RNN), tokens())
    y = net(x).argmax(1)
    mask = torch.zeros(x.shape[1:], dtype=torch.bool)
    mask[0] = True
    bounds = (x.amin((0, 1)).expand(x.shape[1:]), x.amax((0, 1)).expand(x.shape[1:]))
    found = local_radius(net, x, y, norm="linf", bounds=bounds, mask=mask, restarts=0)
    moved = found.adversarial != x.double().numpy()
    assert not moved[:, 1:].any()
    assert (found.radius <= found.attack_radius).all()
    assert (found.radius > 0).all()


def test_a_report_examines_a_packing_network(tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "STEPS", {"local": single.local_step})
    made, task = joined(task_from_arrays(tokens(), torch.arange(5) % 3), Packing(), "net")
    told = {"model": made, "title": "net", "source": "test", "task": task}
    settings = AnalysisSettings(budget=Budget(certified=15, restarts=0))
    document = pipeline.analyse(tmp_path, made, settings, **told)
    assert document["steps"]["local"]["status"] == "done", document["steps"]
    said = json.loads((tmp_path / "local.json").read_text())
    assert (said["longest"], said["unread"]) == (7, 0)
