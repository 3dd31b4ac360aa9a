"""Any trained module becomes the system that it runs: compared with the module's own steps in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.certification import certify
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.models.adapters.modules import (
    certify_all,
    lure_system,
    recurrent_parts,
    recurrent_subject,
    register_adapter,
)
from stability.models.adapters.torch_modules import as_array, from_rows
from stability.systems import DrivenSystem, LureSystem

CELLS = [
    lambda: nn.RNNCell(3, 4),
    lambda: nn.RNNCell(3, 4, nonlinearity="relu"),
    lambda: nn.RNNCell(3, 4, bias=False),
    lambda: nn.LSTMCell(3, 4),
    lambda: nn.GRUCell(3, 4),
    lambda: nn.GRUCell(3, 4, bias=False),
]
LAYERS = [
    lambda: nn.RNN(3, 4),
    lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True),
    lambda: nn.RNN(3, 4, 3, bias=False),
    lambda: nn.LSTM(3, 4),
    lambda: nn.LSTM(3, 4, 2),
    lambda: nn.GRU(3, 4),
    lambda: nn.GRU(3, 4, 2, dropout=0.5),
]


@pytest.mark.parametrize("make", CELLS)
def test_a_cell_is_its_subject(make, rng):
    cell = make().double()
    subject = as_subject(cell)
    lstm = isinstance(cell, nn.LSTMCell)
    state, x = rng.normal(size=(5, 8 if lstm else 4)), rng.normal(size=(5, 3))
    with torch.no_grad():
        if lstm:
            out = torch.cat(cell(torch.tensor(x), (torch.tensor(state[:, :4]), torch.tensor(state[:, 4:]))), 1)
        else:
            out = cell(torch.tensor(x), torch.tensor(state))
    np.testing.assert_allclose(subject.advance(state, x), out.numpy(), atol=1e-14)


@pytest.mark.parametrize("make", LAYERS)
def test_layers_are_their_subject(make, rng):
    module = make().double().eval()
    subject = as_subject(module)
    x = rng.normal(size=(6, 3))
    state = np.zeros(subject.states if not isinstance(subject, DrivenSystem) else subject.system.states)
    outputs = []
    for u in x:
        state = subject.advance(state, u)
        last = subject.layers[-1] if isinstance(subject, LayerStack) else subject
        n = last.states if isinstance(last, GatedCell) else last.system.states
        outputs.append((state[-n:])[:4])
    batch = torch.tensor(x)[None] if module.batch_first else torch.tensor(x)[:, None]
    with torch.no_grad():
        expected = module(batch)[0].squeeze()
    np.testing.assert_allclose(np.array(outputs), expected.numpy(), atol=1e-13)


def test_two_directions_are_two_cells_each_in_its_own_time(rng):
    module = nn.GRU(3, 4, 2, bidirectional=True).double()
    stack = as_subject(module)
    assert (stack.levels, stack.directions) == (2, 2)
    signal = rng.normal(size=(5, 3))
    with torch.no_grad():
        expected = module(torch.tensor(signal))[0].numpy()
    for level in range(2):
        runs = []
        for k, order in enumerate((range(5), range(4, -1, -1))):
            state, seen = np.zeros(4), np.zeros((5, 4))
            for t in order:
                state = stack.layers[2 * level + k].advance(state, signal[t])
                seen[t] = state
            runs.append(seen)
        signal = np.concatenate(runs, axis=1)
    np.testing.assert_allclose(signal, expected, atol=1e-13)


def test_several_layers_become_one_system_entry_by_entry(rng):
    def layer(inputs, states, low, high, activation):
        system = LureSystem(
            np.zeros((states, states)), np.eye(states), rng.normal(size=(states, states)), slope=(low, high), dt=1.0
        )
        return DrivenSystem(system, activation, rng.normal(size=(states, inputs)), rng.normal(size=states))

    parts = [layer(2, 3, -0.5, 1.0, "tanh"), layer(3, 2, 0.0, 0.25, "sigmoid"), layer(2, 4, -1.0, 2.0, "relu")]
    joint = lure_system(LayerStack(parts))
    C, D = np.zeros((9, 9)), np.zeros((9, 9))
    C[:3, :3], C[3:5, 3:5], C[5:, 5:] = (part.system.C for part in parts)
    D[3:5, :3], D[5:, 3:5] = parts[1].E, parts[2].E
    np.testing.assert_array_equal(joint.A, np.zeros((9, 9)))
    np.testing.assert_array_equal(joint.B, np.eye(9))
    np.testing.assert_array_equal(joint.C, C)
    np.testing.assert_array_equal(joint.D, D)
    np.testing.assert_array_equal(joint.alpha, [-0.5] * 3 + [0.0] * 2 + [-1.0] * 4)
    np.testing.assert_array_equal(joint.beta, [1.0] * 3 + [0.25] * 2 + [2.0] * 4)
    assert joint.dt == 1.0


def test_only_plain_maps_are_joined(rng):
    plain = LureSystem(np.zeros((2, 2)), np.eye(2), np.eye(2), dt=1.0)
    good = DrivenSystem(plain, "tanh", np.eye(2))
    leaky = LureSystem(0.1 * np.eye(2), np.eye(2), np.eye(2), dt=1.0)
    scaled = LureSystem(np.zeros((2, 2)), 2 * np.eye(2), np.eye(2), dt=1.0)
    nested = LureSystem(np.zeros((2, 2)), np.eye(2), np.eye(2), [[0, 0], [1, 0]], dt=1.0)
    others = [DrivenSystem(system, "tanh", np.eye(2)) for system in (leaky, scaled, nested)]
    for other in (*others, DrivenSystem(plain, "tanh", np.eye(2), None, np.eye(2))):
        for pair in ([good, other], [other, good]):
            with pytest.raises(UnsupportedError):
                lure_system(LayerStack(pair))
    assert lure_system(LayerStack([good, good])).states == 4
    assert lure_system(good) is plain
    assert lure_system(plain) is plain


def test_one_level_of_two_directions_is_block_diagonal():
    module = nn.RNN(3, 4, bidirectional=True)
    system = lure_system(module)
    np.testing.assert_array_equal(system.C[:4, :4], as_array(module.weight_hh_l0))
    np.testing.assert_array_equal(system.C[4:, 4:], as_array(module.weight_hh_l0_reverse))
    assert not system.C[:4, 4:].any()
    assert not system.D.any()
    with pytest.raises(UnsupportedError):
        lure_system(nn.RNN(3, 4, 2, bidirectional=True))


class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.GRU(3, 5, batch_first=True))
        self.blocks = nn.ModuleList([nn.LSTM(5, 5), nn.Linear(2, 2)])
        self.head = nn.Linear(5, 2)


def test_every_recurrent_part_of_a_module_is_found():
    model = Deep()
    parts = recurrent_parts(model)
    assert list(parts) == ["encoder.2", "blocks.0"]
    assert [p.kind for p in parts.values()] == ["gru", "lstm"]
    np.testing.assert_array_equal(parts["encoder.2"].w_hh, as_array(model.get_submodule("encoder.2").weight_hh_l0))
    with pytest.raises(UnsupportedError):
        certify(model)


def test_a_container_with_one_recurrent_part_is_certified_by_it():
    part = nn.RNN(3, 4)
    with torch.no_grad():
        part.weight_hh_l0.mul_(0.1)
    model = nn.Sequential(nn.Linear(2, 3), nn.Sequential(part), nn.Linear(4, 1))
    certificate = certify(model)
    assert str(certificate.verdict) == "certified"
    np.testing.assert_array_equal(certificate.subject.system.C, as_array(part.weight_hh_l0))
    assert list(certify_all(model)) == ["1.0"]


def test_a_part_used_twice_is_reported_once():
    part = nn.GRU(3, 3)
    assert len(recurrent_parts(nn.Sequential(part, nn.Sequential(part)))) == 1


class AuthorsRNN(nn.Module):
    """A Lipschitz RNN in row-vector convention, as its authors wrote it."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(2, 4)
        self.A, self.W = nn.Parameter(torch.randn(4, 4) - 2 * torch.eye(4)), nn.Parameter(torch.randn(4, 4))
        self.eps = 0.1

    def step(self, h, x):
        return h + self.eps * (h @ self.A) + self.eps * torch.tanh(h @ self.W + self.encoder(x))


def test_a_users_class_registered_in_five_lines(rng):
    @register_adapter(AuthorsRNN)
    def authors_rnn(m):
        flow = LureSystem.recurrent(from_rows(m.A), from_rows(m.W))
        return DrivenSystem(flow.euler(m.eps), "tanh", as_array(m.encoder.weight), as_array(m.encoder.bias))

    module = AuthorsRNN().double()
    subject = as_subject(module)
    h, x = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    expected = module.step(torch.tensor(h), torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(subject.advance(h, x), expected, atol=1e-14)
    assert lure_system(module).is_discrete
    assert list(recurrent_parts(nn.Sequential(module))) == ["0"]
    assert isinstance(certify(nn.ModuleDict({"a": module}), refute=False).subject, DrivenSystem)


def sparse_cell():
    cell = nn.GRUCell(3, 4)
    cell.weight_hh = nn.Parameter(cell.weight_hh.detach().to_sparse())
    return cell


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: nn.LSTM(3, 4, proj_size=2), UnsupportedError),
        (lambda: nn.Linear(2, 2), UnsupportedError),
        (lambda: nn.Sequential(), UnsupportedError),
        (lambda: nn.RNN(3, 4, device="meta"), ConfigurationError),
        (sparse_cell, ConfigurationError),
        (lambda: nn.GRUCell(3, 4).to(torch.complex64), ConfigurationError),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_cannot_be_certified_is_refused_clearly(make, error):
    with pytest.raises(error):
        as_subject(make())


def test_a_gated_module_has_no_lure_system():
    for module in (nn.LSTM(2, 3), nn.GRU(2, 3, 2)):
        with pytest.raises(UnsupportedError):
            lure_system(module)


@pytest.mark.parametrize("bad", [None, 3, "text", object()])
def test_other_objects(bad):
    with pytest.raises(UnsupportedError):
        recurrent_subject(bad)
    with pytest.raises(ConfigurationError):
        register_adapter(bad)
