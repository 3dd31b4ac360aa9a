"""Data of one's own from folders, functions and lists; tokens, through the embedding of the network that reads them."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from stability.analysis import norm_drift, pgd, task_from_arrays, train
from stability.analysis.campaign.fitting import joined
from stability.analysis.campaign.inputs import part_range
from stability.analysis.tasks import make_task
from stability.analysis.tasks.own_sources import in_memory, read_source
from stability.certification import certify
from stability.errors import ConfigurationError, FileFormatError, StabilityError, UnsupportedError
from stability.models import ElmanRNN, SequenceModel
from stability.models.embedding import BehindEmbedding

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(20, 6, 3)).astype("f4"), np.arange(20) % 3
LENGTHS = RNG.integers(1, 7, 20)
MASK = np.arange(6) < LENGTHS[:, None]

FUNCTIONS = """
import numpy as np
X, Y = np.load("x0.npy"), np.load("y0.npy")
def pair(): return X, Y
def four(): return X[:15], Y[:15], X[15:], Y[15:]
def mapping(): return {"x": X, "y": Y, "classes": ["a", "b", "c"]}
def other_each_time(): return np.random.default_rng().normal(size=X.shape).astype("f4"), Y
def ragged(): return [row[: 1 + k % 6] for k, row in enumerate(X)], Y
def three(): return X, Y, X
def strange(): return {"x": X, "y": Y, "weights": Y}
def objects(): return {"x": X, "y": [object()] * 20}
def failing(): raise KeyError("gone")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("x0.npy", X)
    np.save("y0.npy", Y)
    Path("givers.py").write_text(FUNCTIONS, encoding="utf-8")
    monkeypatch.delitem(sys.modules, "givers", raising=False)
    Path("folder").mkdir()
    np.save("folder/x.npy", X)
    np.save("folder/y.npy", Y)
    return tmp_path


def test_every_source_gives_the_arrays_that_the_archive_gives(place: Path) -> None:
    np.savez("a.npz", x=X, y=Y)
    want = make_task("data", file="a.npz", seed=3)
    for source in ("folder", "givers:pair", "givers:mapping"):
        task = make_task("data", file=source, seed=3)
        assert torch.equal(task.train[0], want.train[0])
        assert torch.equal(task.train[1], want.train[1])
    assert task.classes == ("a", "b", "c")
    four = make_task("data", file="givers:four")
    assert (len(four.train[0]), len(four.test[0])) == (15, 5)
    Path("parts").mkdir()
    np.savez("parts/train.npz", x=X[:15], y=Y[:15])
    np.savez("parts/test.npz", x=X[15:], y=Y[15:])
    assert torch.equal(make_task("data", file="parts").test[0], four.test[0])


def test_the_digest_of_a_source_is_that_of_its_numbers(place: Path) -> None:
    first = read_source("folder").digest
    assert read_source("folder").digest == first
    changed = X.copy()
    changed[3, 2, 1] += 1e-3
    np.save("folder/x.npy", changed)
    assert read_source("folder").digest != first
    given = read_source("givers:pair")
    text = hashlib.sha256(
        f"x {X.dtype.str} {X.shape}".encode() + X.tobytes() + f"y {Y.dtype.str} {Y.shape}".encode() + Y.tobytes()
    )
    assert given.digest == text.hexdigest()
    with pytest.raises(FileFormatError):
        make_task("data", file="givers:other_each_time", digest=read_source("givers:other_each_time").digest)


@pytest.mark.parametrize(("source", "says"), [
    ("givers:three", "got a tuple"), ("givers:strange", "'weights', which is not read"),
    ("givers:objects", "must hold numbers"), ("givers:failing", "KeyError"), ("givers:missing", "missing"),
    ("empty", "lacks x and y"), ("mixed", "train.npz and test.npz"), ("torn", "truncated|no whole"),
    ("nowhere.npz", "cannot read"),
])  # fmt: skip
def test_what_gives_no_data_is_refused(place: Path, source: str, says: str) -> None:
    for name in ("empty", "mixed", "torn"):
        Path(name).mkdir()
    np.savez("mixed/some.npz", x=X, y=Y)
    Path("torn/x.npy").write_bytes(Path("x0.npy").read_bytes()[:-40])
    np.save("torn/y.npy", Y)
    with pytest.raises(StabilityError, match=says) as caught:
        make_task("data", file=source)
    assert "\n" not in str(caught.value)


def test_masks_lists_and_lengths_say_the_same(place: Path) -> None:
    np.savez("lengths.npz", x=X, y=Y, lengths=LENGTHS)
    np.savez("mask.npz", x=X, y=Y, mask=MASK)
    want, masked = (make_task("data", file=name) for name in ("lengths.npz", "mask.npz"))
    listed = task_from_arrays([row[:n] for row, n in zip(X, LENGTHS)], Y)
    for task in (masked, listed):
        assert torch.equal(task.train[0][:, : LENGTHS.max()], want.train[0][:, : LENGTHS.max()])
        assert torch.equal(task.train[1][:, : LENGTHS.max()], want.train[1][:, : LENGTHS.max()])
    ragged = make_task("data", file="givers:ragged")
    assert ragged.own_steps(ragged.train[1]).sum(1).max() == 6
    for bad in (MASK[:, ::-1], np.zeros((20, 6)), MASK * 2):
        np.savez("bad.npz", x=X, y=Y, mask=bad)
        with pytest.raises(FileFormatError):
            make_task("data", file="bad.npz")
    np.savez("both.npz", x=X, y=Y, mask=MASK, lengths=LENGTHS)
    with pytest.raises(FileFormatError):
        make_task("data", file="both.npz")


def test_a_loss_of_ones_own_is_what_training_pushes() -> None:
    x, y = torch.tensor(X), torch.tensor(X[:, -1, :1])
    ends = []
    for loss in (None, lambda outputs, targets: (outputs - 5.0).square().mean()):
        torch.manual_seed(0)
        model = SequenceModel(ElmanRNN(3, 4), 1)
        train(model, task_from_arrays(x, y, loss=loss), epochs=30, lr=0.05)
        ends.append(float(model(x).mean().detach()))
    assert abs(ends[0] - float(y.mean())) < 1 < ends[1]
    with pytest.raises(StabilityError, match="scalar tensor"):
        task_from_arrays(x, y, loss=lambda outputs, targets: outputs - targets).loss(torch.zeros(20, 1), y)
    with in_memory({"x": X, "y": Y, "loss": max}) as where:
        assert read_source(where).loss is max
    with pytest.raises(ConfigurationError):
        make_task("data", file="")


class Words(nn.Module):
    """An embedding, a recurrent part, a head; the mask of its tokens where it is asked for."""

    def __init__(self, masks: bool = False, twice: int = -1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.twice = twice
        self.emb, self.rnn, self.head = nn.Embedding(9, 4), nn.RNN(4, 5, batch_first=True), nn.Linear(5, 2)
        self.masks = masks
        with torch.no_grad():
            self.rnn.weight_hh_l0.mul_(0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.emb(tokens)
        x = x * (tokens > 3)[:, :, None] if self.masks else x
        x = torch.where((tokens == self.twice)[:, :, None], 2 * x, x)
        return self.head(self.rnn(x)[0][:, -1])


def test_tokens_are_examined_behind_the_embedding() -> None:
    tokens, y = RNG.integers(0, 9, (20, 6)), np.arange(20) % 2
    task, net = task_from_arrays(tokens, y, seed=1), Words()
    behind, embedded = joined(task, net, "net")
    assert isinstance(behind, BehindEmbedding)
    assert embedded.input_size == 4
    assert embedded.data["embedded_by"] == "emb"
    x, order = embedded.test[0], task.test[0][:, :, 0].long()
    assert torch.equal(x, net.emb.weight.detach()[order])
    assert torch.allclose(behind(x), net(order))
    assert embedded.bounds == (float(net.emb.weight.detach()[order].min()), float(net.emb.weight.detach()[order].max()))
    perturbed = pgd(behind, x, embedded.test[1], epsilon=0.5, steps=3, bounds=embedded.bounds)
    assert perturbed is not None
    assert certify(behind).subject.part == "rnn of Words"
    assert part_range(behind, behind, embedded) == (embedded.bounds, "")  # the vectors themselves
    assert net.emb._forward_hooks == {}


def test_a_mask_made_of_the_tokens_is_made_of_the_nearest_ones() -> None:
    tokens, y = RNG.integers(0, 9, (20, 6)), np.arange(20) % 2
    net = Words(masks=True)
    behind, embedded = joined(task_from_arrays(tokens, y), net, "net")
    assert isinstance(behind, BehindEmbedding)
    assert behind.nearest
    order = task_from_arrays(tokens, y).test[0][:, :, 0].long()
    assert torch.allclose(behind(embedded.test[0]), net(order))
    moved = embedded.test[0] + 1e-3 * torch.randn_like(embedded.test[0])
    assert torch.allclose(behind(moved), net(order), atol=0.01)


class Packed(Words):
    """Typical text classifier: the padding token 0 tells the lengths, and no length may be 0."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        lengths = (tokens != 0).sum(1).cpu()
        packed = pack_padded_sequence(self.emb(tokens), lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.rnn(packed)[1][-1])


def test_a_network_that_packs_by_its_padding_is_run_as_it_is() -> None:
    tokens, y = RNG.integers(1, 9, (20, 6)), np.arange(20) % 2
    tokens[~MASK] = 0
    task, net = task_from_arrays(tokens, y), Packed()
    behind, embedded = joined(task, net, "net")
    order = task.test[0][:, :, 0].long()
    assert torch.allclose(behind(embedded.test[0]), net(order))
    assert norm_drift(behind, embedded.test[0]).mean.shape == (1, 6)
    with pytest.raises(StabilityError, match="leave lengths"):
        joined(task_from_arrays(tokens, y, lengths=LENGTHS), net, "net")


def test_tokens_that_no_embedding_reads_are_refused() -> None:
    tokens, y = RNG.integers(0, 9, (20, 6)), np.arange(20) % 2
    task = task_from_arrays(tokens, y)
    same = Words(twice=8)  # two tokens of one vector: which one it was cannot be seen from it
    with torch.no_grad():
        same.emb.weight[8] = same.emb.weight[0]
    first, second = np.full((20, 6), 8), np.zeros((20, 6), dtype=np.int64)
    with pytest.raises(UnsupportedError):
        joined(task_from_arrays(np.concatenate([first, second]), np.arange(40) % 2), same, "net")
    with pytest.raises(StabilityError, match=r"0 nn\.Embedding|does not take tokens"):
        joined(task, SequenceModel(ElmanRNN(1, 4), 2), "net")
    with pytest.raises(ConfigurationError):
        joined(task_from_arrays(tokens + 50, y), Words(), "net")
    with pytest.raises(ConfigurationError):
        train(SequenceModel(ElmanRNN(1, 4), 2), task)
    with pytest.raises(ConfigurationError):
        task_from_arrays(tokens, y, bounds=(0, 9))
    with pytest.raises(ConfigurationError):
        task_from_arrays(tokens - 1, y)
