"""Networks that pack their sequences: the steps that they read, and the classifier over those."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from stability.errors import DisagreementError, StabilityError, UnsupportedError
from stability.kernel.format.serialization import decode, digest_of, encode
from stability.models.embedding import behind_embedding
from stability.models.packed import reading

LENGTHS = [7, 3, 5, 7, 1]


class Packing(nn.Module):
    """Tokens, an embedding, a packed recurrent part and a head, as tutorials write it."""

    def __init__(self, cell=nn.LSTM, read="last", lie=0, sorted_only=False, **options):
        super().__init__()
        torch.manual_seed(3)
        self.embedding, self.rnn = nn.Embedding(11, 3, padding_idx=0), cell(3, 4, batch_first=True, **options)
        self.head, self.read, self.lie = nn.Linear(4 * (2 if options.get("bidirectional") else 1), 3), read, lie
        self.sorted_only = sorted_only

    def forward(self, tokens: Tensor) -> Tensor:
        own = (tokens != 0).sum(1)
        packed = pack_padded_sequence(self.embedding(tokens), own, batch_first=True, enforce_sorted=self.sorted_only)
        outputs, state = self.rnn(packed)
        if self.read == "last":
            return self.head((state[0] if isinstance(state, tuple) else state)[-1])
        outputs, own = pad_packed_sequence(outputs, batch_first=True)
        if self.read == "max":
            return self.head(outputs.amax(1))
        return self.head(outputs.sum(1) / own[:, None]) + self.lie * (own == 5)[:, None]


def tokens() -> Tensor:
    out = torch.randint(1, 9, (5, 7), generator=torch.Generator().manual_seed(0))
    return out.masked_fill(torch.arange(7) >= torch.tensor(LENGTHS)[:, None], 0)


def behind(net: nn.Module, given: Tensor):
    made = behind_embedding(net, given, "net")
    return made, made.embed(given)


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize(("read", "options"), [("last", {}), ("mean", {"num_layers": 2})])
def test_the_steps_that_are_read_and_the_logits_over_them(cell, read, options):
    net, x = behind(Packing(cell, read, **options), tokens())
    found = reading(net, x)
    assert found.lengths.tolist() == LENGTHS
    assert found.agrees.all()
    assert found.subject.reduction == read
    with torch.no_grad():
        expected = net.double()(x.double()).numpy()
    for row, steps in enumerate(LENGTHS):
        np.testing.assert_allclose(found.subject.logits(x[row, :steps].double().numpy()), expected[row], atol=1e-9)
    assert [(rows.tolist(), steps) for rows, steps in found.groups(x)] == [([4], 1), ([1], 3), ([2], 5), ([0, 3], 7)]


def test_claims_say_that_the_number_of_steps_counts_as_given_and_files_keep_it():
    subject = reading(*behind(Packing(), tokens())).subject
    assert "length of each sequence taken as given" in subject.phrase
    again = decode(encode(subject))
    assert again.packed
    assert again.phrase == subject.phrase
    assert digest_of(again) == digest_of(subject)
    plain = encode(subject) | {"packed": "yes"}
    with pytest.raises(StabilityError):
        decode(plain)


@pytest.mark.parametrize("lie", [1, 1e-6])
def test_a_sequence_to_which_the_network_answers_otherwise_is_told_apart(lie):
    found = reading(*behind(Packing(read="mean", lie=lie), tokens()))
    assert not found.agrees[2]  # of five steps, where this network does something else
    assert found.agrees.sum() >= 2
    assert 2 not in np.concatenate([rows for rows, _ in found.groups(tokens())])


def test_agreement_at_one_point_is_not_enough():
    """For growing states the largest output is the last one at the data, but not beside them."""
    net = Packing(nn.RNN, read="max")
    with torch.no_grad():
        for value in net.rnn.parameters():
            value.abs_().mul_(0.5 if value.dim() > 1 else 0.0)
        net.embedding.weight[1:] = 0.1
    made, x = behind(net, tokens()[:4])
    last = net.head(net.rnn(x[:1])[0][:, -1])
    torch.testing.assert_close(made(x[:1]), last)
    with pytest.raises(DisagreementError):
        reading(made, x)


class OfNumbers(nn.Module):
    """Packed sequences of numbers, cut to a range, and a head on the mean of a ReLU network that is off near zero."""

    def __init__(self, most=torch.inf):
        super().__init__()
        torch.manual_seed(0)
        self.rnn, self.head = nn.RNN(2, 3, nonlinearity="relu", batch_first=True), nn.Linear(3, 3)
        nn.init.constant_(self.rnn.bias_ih_l0, -4.0)
        self.most = most

    def forward(self, x):
        own = (x != 0).any(2).sum(1)
        packed = pack_padded_sequence(x.clamp(-self.most, self.most), own, batch_first=True, enforce_sorted=False)
        return self.head(pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0].sum(1) / own[:, None])


def test_far_from_the_data_means_are_no_last_outputs_and_ranges_have_ends():
    x = 0.3 * torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(1))
    found = reading(OfNumbers(), x)
    assert found.subject.reduction == "mean"
    assert found.agrees.all()
    with pytest.raises(DisagreementError):
        reading(OfNumbers(most=20.0), x)


def test_a_network_that_finds_its_ends_by_zeros_is_read_over_its_own_steps():
    """On random sequences, which hold no zero, it looks like one that reads all of every sequence."""

    class ByZeros(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.rnn, self.head = nn.GRU(2, 4, batch_first=True), nn.Linear(4, 3)

        def forward(self, x):
            own = (x != 0).any(2).sum(1)
            return self.head(self.rnn(pack_padded_sequence(x, own, batch_first=True, enforce_sorted=False))[1][-1])

    x = torch.randn(2, 5, 2)
    x[1, 2:] = 0
    assert reading(ByZeros(), x).lengths.tolist() == [5, 2]
    assert reading(ByZeros(), x.numpy()).lengths.tolist() == [5, 2]


@pytest.mark.parametrize(
    ("net", "error"),
    [
        (lambda: Packing(read="max", bidirectional=True), UnsupportedError),
        (lambda: Packing(read="max"), DisagreementError),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(net, error):
    with pytest.raises(error):
        reading(*behind(net(), tokens()[:4]))  # of one step alone, the largest, the mean and the last are one


def test_sorted_batches_alone_are_no_hindrance_to_one_sequence_at_a_time():
    order = torch.tensor(LENGTHS).argsort(descending=True, stable=True)
    net, _ = behind(Packing(sorted_only=True), tokens()[order])
    found = reading(net, net.embed(tokens()))
    assert found.lengths.tolist() == LENGTHS
    assert found.agrees.all()


def test_several_packed_parts_are_refused():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.GRU(2, 2, batch_first=True), nn.GRU(2, 2, batch_first=True), nn.Linear(2, 2)

        def forward(self, x):
            packed = pack_padded_sequence(x, torch.full((len(x),), 2), batch_first=True)
            return self.head(self.b(self.a(packed)[0])[1][-1])

    with pytest.raises(UnsupportedError):
        reading(Two(), torch.randn(2, 3, 2))


def test_logits_that_are_nearly_those_of_the_parts_are_refused():
    class Nearly(Packing):
        def forward(self, x):
            return super().forward(x) * (1.0 + 1e-5)

    with pytest.raises(DisagreementError):
        reading(*behind(Nearly(), tokens()))
