"""Plain layers before and behind a recurrent part: read as layers without memory, or refused by what stands between."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import local_radius
from stability.errors import DisagreementError, UnsupportedError
from stability.models.classifier import classifier
from stability.verification import verify_claim


def last(y):
    return y[:, -1]


def mean(y):
    return y.mean(1)


class Own(nn.Module):
    """An embedding of the features, a recurrent part, a hidden layer of the head."""

    def __init__(
        self, kind=nn.GRU, *, into=torch.relu, behind=torch.tanh, read=last, late=False, first=True, hidden=True
    ):
        super().__init__()
        self.embed = nn.Linear(2, 3) if first else None
        self.rnn = kind(3 if first else 2, 4, batch_first=True)
        self.hidden = nn.Linear(4, 5, bias=False) if hidden else None
        self.out, self.drop = nn.Linear(5 if hidden else 4, 3), nn.Dropout(0.5)
        self.into, self.behind, self.read, self.late = into, behind, read, late

    def forward(self, x):
        x = x if self.embed is None else self.drop(self.into(self.embed(x)))
        y = self.rnn(x)[0]
        y = y if self.late else self.read(y)
        y = y if self.hidden is None else self.behind(self.hidden(y))
        y = self.out(y)
        return self.read(y) if self.late else y


@pytest.mark.parametrize(
    ("net", "levels", "reduction"),
    [
        (lambda: Own(), 3, "last"),
        (lambda: Own(nn.LSTM, into=torch.sigmoid), 3, "last"),
        (lambda: Own(nn.RNN, into=lambda z: z, behind=lambda z: z), 3, "last"),
        (lambda: Own(hidden=False, read=mean), 2, "mean"),
        (lambda: Own(first=False), 2, "last"),
        (lambda: Own(read=mean, late=True), 3, "mean"),
        (lambda: Own(late=True), 3, "last"),
        (lambda: Turned(), 3, "last"),
    ],
)
def test_the_logits_are_those_of_the_module(net, levels, reduction):
    torch.manual_seed(0)
    model = net().double().eval()
    found, x = classifier(model), torch.randn(4, 6, 2, dtype=torch.float64)
    assert (found.recurrent.levels, found.reduction) == (levels, reduction)
    np.testing.assert_allclose(found.logits(x.numpy()), model(x).detach().numpy(), atol=1e-10)


class Turned(nn.Module):
    """Time first inside."""

    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Linear(2, 3), nn.RNN(3, 4, num_layers=2), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.rnn(self.embed(x).relu().transpose(0, 1))[1][-1])


@pytest.mark.parametrize(
    "net",
    [
        lambda: Own(into=nn.functional.gelu),
        lambda: Own(into=lambda z: 2 * z),
        lambda: Own(read=lambda y: y.amax(1)),
        lambda: Own(read=mean),
        lambda: Own(read=lambda y: y[:, 0]),
        lambda: Twice(),
    ],
)
def test_what_stands_between_is_named(net):
    made = net()
    with pytest.raises(UnsupportedError):
        classifier(made)


class Twice(Own):
    def __init__(self):
        super().__init__(hidden=False)
        self.embed = nn.Linear(2, 2)
        self.rnn = nn.GRU(2, 4, batch_first=True)

    def forward(self, x):
        return self.out(self.rnn(self.embed(self.embed(x)))[0][:, -1])


class Sneaky(Own):
    """Something else than its first run shows."""

    def forward(self, x):
        return super().forward(x) * (1.0 + (x.shape[1] == 4))


def test_a_module_that_does_something_else_elsewhere_is_found_out():
    made = Sneaky()
    with pytest.raises(DisagreementError):
        classifier(made)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_radius_of_such_a_network_is_proved_and_not_crossed(norm):
    torch.manual_seed(3)
    model = Own(nn.RNN, hidden=False).eval()
    x = torch.randn(2, 3, 2)
    found = local_radius(model, x, model(x).argmax(1), norm=norm, time_limit=2.0)
    assert (found.radius > 0).all()
    assert (found.radius <= found.attack_radius).all()
    subject, rng = classifier(model), np.random.default_rng(0)
    for k, claim in enumerate(found.claims):
        assert verify_claim(subject, claim).valid
        step = rng.normal(size=(2000, 3, 2))
        size = np.abs(step).max((1, 2)) if norm == "linf" else np.sqrt((step**2).sum((1, 2)))
        near = x[k].numpy() + found.radius[k] * step / size[:, None, None]
        assert (subject.logits(near).argmax(1) == int(subject.logits(x[k : k + 1].numpy()).argmax())).all()


def unscaled(into):
    """Weights for data of hundreds: near zero the bias keeps all units on one side of the kink."""
    made = Own(into=into)
    with torch.no_grad():
        made.embed.weight.mul_(0.01)
        made.embed.bias.fill_(3.0)
    return made


def test_a_kink_that_small_inputs_do_not_reach_is_found():
    torch.manual_seed(0)
    made = unscaled(torch.relu).double().eval()
    found, x = classifier(made), 3e3 * torch.randn(4, 6, 2, dtype=torch.float64)
    assert found.recurrent.layers[0].activation == "relu"
    np.testing.assert_allclose(found.logits(x.numpy()), made(x).detach().numpy(), atol=1e-9)


class Around(Own):
    """Something before the network, or behind it."""

    def __init__(self, before=lambda x: x, behind=lambda y, x: y, **more):
        super().__init__(**more)
        self.before, self.after = before, behind

    def forward(self, x):
        return self.after(super().forward(self.before(x)), x)


FAR = {
    "relu6": lambda: Own(into=nn.functional.relu6),
    "elu, bias": lambda: unscaled(nn.functional.elu),
    "leaky, bias": lambda: unscaled(nn.functional.leaky_relu),
    "clipped": lambda: Around(lambda x: x.clamp(-300, 300)),
    "clipped, one head": lambda: Around(lambda x: x.clamp(-20, 20), first=False, hidden=False),
    "first steps": lambda: Around(lambda x: x[:, :20]),
    "last steps": lambda: Around(lambda x: x[:, -10:]),
    "one alone": lambda: Around(behind=lambda y, x: y if len(y) > 1 else 1.5 * y),
}


@pytest.mark.parametrize("name", FAR)
def test_what_a_module_does_with_large_inputs_or_long_ones_is_looked_at(name):
    torch.manual_seed(0)
    with pytest.raises((UnsupportedError, DisagreementError)):
        classifier(FAR[name]().double())


def test_a_module_is_run_on_the_data_too():
    torch.manual_seed(0)
    made = Around(lambda x: x.clamp(-1e6, 1e6), first=False, hidden=False).double().eval()
    classifier(made)
    x = torch.randn(3, 4, 2, dtype=torch.float64)
    assert len(local_radius(made, x, made(x).argmax(1), restarts=1).radius) == 3
    for far in (1e7 * x, torch.cat([x[:2], 1e7 * x[:1]])):
        with pytest.raises(DisagreementError):
            local_radius(made, far, made(far).argmax(1), restarts=1)
