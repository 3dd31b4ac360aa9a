"""The command ``fixed-points`` lists the same equilibria as Python, as a table and as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

from stability import fixed_points
from stability.reports import cli


def test_table_and_json_hold_the_equilibria_of_a_saved_network(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    network = nn.RNN(2, 4)
    with torch.no_grad():
        network.weight_hh_l0.copy_(2.0 * torch.eye(4))
    torch.save(network.state_dict(), tmp_path / "rnn.pt")
    command = ["fixed-points", str(tmp_path / "rnn.pt"), "--cell", "rnn_tanh", "--input", "-.1,.2"]
    assert cli.run(command) == 0
    text = capsys.readouterr().out
    assert cli.run([*command, "--json"]) == 0
    answer, expected = json.loads(capsys.readouterr().out), fixed_points(network, [-0.1, 0.2])
    assert answer["complete"] is expected.complete is True
    assert np.allclose([point["state"] for point in answer["points"]], expected.points)
    assert len(expected.points) > 10
    assert sum(f" {kind} " in row for row in text.splitlines() for kind in ("stable", "saddle", "unstable")) >= len(
        expected.points
    )
    assert "no others" in text
    assert cli.run([*command[:-1], "a,b"]) == 2
