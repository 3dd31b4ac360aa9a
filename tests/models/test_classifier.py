"""The classifier behind a network: the same logits, or a refusal that says what is in the way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import local_radius
from stability.errors import DisagreementError, UnsupportedError
from stability.kernel.format.serialization import decode, encode
from stability.models.bounded_gain import BoundedGainRNN
from stability.models.classifier import classifier
from stability.models.classifier_network import ClassifierNetwork
from stability.models.elman import ElmanRNN
from stability.models.gated import GRU, LSTM
from stability.models.householder import HouseholderRNN
from stability.models.lipschitz import LipschitzRNN
from stability.models.lru import LRU
from stability.models.network import SequenceModel
from stability.models.rotrnn import RotRNN
from stability.models.stack import Stack

LAYERS = {
    "elman": lambda: ElmanRNN(2, 4, activation="relu"),
    "midpoint": lambda: LipschitzRNN(2, 4, integrator="midpoint", dt=0.3),
    "lstm": lambda: LSTM(2, 4, num_layers=2),
    "gru": lambda: GRU(2, 4),
    "lru": lambda: LRU(2, 4),
    "linear stack": lambda: [LRU(2, 4, output_size=3), RotRNN(3, 8)],
    "stack": lambda: [ElmanRNN(2, 3), GRU(3, 4)],
}


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("kind", LAYERS)
def test_the_logits_are_those_of_the_model_and_of_the_module_made_of_it(kind, reduction):
    model = SequenceModel(LAYERS[kind](), 3, reduction=reduction).double()
    found = classifier(model)
    x = torch.randn(4, 6, 2, dtype=torch.float64)
    with torch.no_grad():
        expected = model(x).numpy()
        again = ClassifierNetwork(found)(x).numpy()
    np.testing.assert_allclose(found.logits(x.numpy()), expected, atol=1e-9)
    np.testing.assert_allclose(again, expected, atol=1e-9)
    assert classifier(ClassifierNetwork(found)) is found
    assert classifier(found) is found


class Own(nn.Module):
    """A network as people write it."""

    def __init__(self, read=lambda outputs: outputs[:, -1], between=lambda h: h, wide=False):
        super().__init__()
        self.rnn, self.out = nn.LSTM(2, 4, batch_first=True), nn.Linear(4, 3)
        self.more = nn.Linear(2, 2) if wide else nn.Identity()
        self.read, self.between = read, between

    def forward(self, x):
        return self.out(self.between(self.read(self.rnn(self.more(x))[0])))


def test_a_module_of_ones_own_is_read_with_what_its_head_reads():
    assert classifier(Own()).reduction == "last"
    assert classifier(Own(lambda outputs: outputs.mean(1))).reduction == "mean"


@pytest.mark.parametrize("reduction", ["last", "mean"])
def test_where_no_unit_is_on_near_zero_what_the_head_reads_is_found_far_from_it(reduction):
    """Means and last outputs are the same there."""

    class Asleep(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.rnn, self.out = nn.RNN(2, 3, nonlinearity="relu", batch_first=True), nn.Linear(3, 3)
            nn.init.constant_(self.rnn.bias_ih_l0, -8.0)

        def forward(self, x):
            outputs = self.rnn(x)[0]
            return self.out(outputs[:, -1] if reduction == "last" else outputs.mean(1))

    assert classifier(Asleep()).reduction == reduction


@pytest.mark.parametrize(
    "net",
    [
        Own(between=torch.relu),
        Own(lambda outputs: outputs[:, -2 if outputs.shape[1] > 1 else 0]),
        Own(between=torch.neg),
    ],
)
def test_a_head_that_reads_something_else_is_found_out(net):
    with pytest.raises(DisagreementError):
        classifier(net)


def reads_initial_state():
    layer = ElmanRNN(2, 4)
    layer.initial_state = lambda x, prepared: torch.ones(len(x), 4, dtype=x.dtype)
    return SequenceModel(layer, 3)


@pytest.mark.parametrize(
    "net",
    [
        lambda: SequenceModel(GRU(2, 4), 3, reduction="all"),
        lambda: SequenceModel(HouseholderRNN(2, 4, activation="modrelu"), 3),
        reads_initial_state,
        lambda: SequenceModel(LRU(2, 4), 3).layer,
        lambda: Own(between=torch.relu, wide=True),
        lambda: nn.Linear(2, 3),
        lambda: 3,
    ],
)
def test_what_is_not_known_is_refused_by_name(net):
    made = net()
    with pytest.raises(UnsupportedError):
        classifier(made)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: HouseholderRNN(2, 4),
        lambda: BoundedGainRNN(2, 4, activation="abs"),
        lambda: BoundedGainRNN(2, 4),
        lambda: BoundedGainRNN(2, 4, activation="householder", rate=0.9),
        lambda: Stack([HouseholderRNN(2, 4, activation="oplu"), GRU(4, 3)]),
    ],
)
def test_initial_states_and_activations_on_pairs_are_followed(layer):
    torch.manual_seed(1)
    net = SequenceModel(layer(), 3).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    made, x = classifier(net), torch.randn(2, 3, 2, dtype=torch.float64)
    expected = net(x)
    assert torch.tensor(made.logits(x.numpy())) == pytest.approx(expected.detach(), abs=1e-9)
    assert ClassifierNetwork(made)(x).detach() == pytest.approx(expected.detach(), abs=1e-9)
    has_own = any(name.endswith("h0") for name, _ in net.named_parameters())
    assert bool(made.start.any()) == has_own
    again = decode(encode(made))
    assert again.logits(x.numpy()) == pytest.approx(made.logits(x.numpy()), abs=0)
    given = x.clone()
    found = local_radius(net, x, expected.argmax(1), restarts=1)
    assert torch.equal(x, given)
    assert bool((found.radius > 0).all())
    assert bool((found.radius <= found.attack_radius).all())
