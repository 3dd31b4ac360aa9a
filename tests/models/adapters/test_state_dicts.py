"""A dictionary of tensors is read to the last bit, and whatever in it may change the map is refused by name."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.errors import (
    ConfigurationError,
    DimensionError,
    DisagreementError,
    FileFormatError,
    UnsupportedError,
)
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.models import ElmanRNN, lure_system
from stability.models.adapters import state_dicts
from stability.models.adapters.state_dicts import state_dict_subject
from stability.models.adapters.weights import RecurrentWeights


def read(state, **options):
    return state_dict_subject(state, **options)[0]


def values(module):
    return {key: value.double().numpy() for key, value in module.state_dict().items()}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "cell"), [("rnn_tanh", "tanh"), ("rnn_relu", "relu")])
def test_a_plain_cell_to_the_last_bit(kind, cell, bias):
    module = nn.RNNCell(3, 4, bias=bias, nonlinearity=cell)
    subject, info = state_dict_subject(module.state_dict(), cell=kind)
    w = values(module)
    np.testing.assert_array_equal(subject.system.C, w["weight_hh"])
    np.testing.assert_array_equal(subject.E, w["weight_ih"])
    np.testing.assert_array_equal(subject.b, w["bias_ih"] + w["bias_hh"] if bias else np.zeros(4))
    assert not subject.system.A.any()
    np.testing.assert_array_equal(subject.system.B, np.eye(4))
    assert (subject.activation, subject.system.dt, subject.part) == (cell, 1.0, "")
    assert subject.name == ("RNN" if cell == "tanh" else "RNN (ReLU)")
    assert info == {"cell": kind, "part": "", "layers": 1, "directions": 1, "dtype": "float32"}


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_stacks_and_directions_to_the_last_bit(make):
    module = make(3, 4, 2, bidirectional=True).half()
    subject, info = state_dict_subject(module.state_dict())
    assert isinstance(subject, LayerStack)
    assert (subject.levels, subject.directions) == (2, 2)
    w = values(module)
    suffixes = ("_l0", "_l0_reverse", "_l1", "_l1_reverse")
    for part, suffix in zip(subject.layers, suffixes):
        assert part.kind == make.__name__.lower()
        assert part.name == f"{make.__name__} {suffix[1:]}"
        for mine, theirs in (("w_ih", "weight_ih"), ("w_hh", "weight_hh"), ("b_ih", "bias_ih"), ("b_hh", "bias_hh")):
            np.testing.assert_array_equal(getattr(part, mine), w[theirs + suffix])
    assert info["cell"] == make.__name__.lower()
    assert (info["layers"], info["directions"], info["dtype"]) == (2, 2, "float16")


def test_one_bias_for_both_is_kept():
    layer = ElmanRNN(2, 3)
    subject = read(layer.state_dict(), cell="rnn_tanh")
    np.testing.assert_array_equal(subject.b, layer.bias.detach().double().numpy())
    assert subject.b.any()
    np.testing.assert_array_equal(subject.system.C, lure_system(layer).C)
    inside = read({f"core.{k}": v for k, v in layer.state_dict().items()}, cell="rnn")
    np.testing.assert_array_equal(inside.b, subject.b)
    assert inside.part == "core of state_dict"


@pytest.mark.parametrize("given", ["bias_ih", "bias_hh"])
def test_a_single_bias_of_a_pair_is_not_lost(given):
    module = nn.RNNCell(2, 3)
    state = {k: v for k, v in module.state_dict().items() if k.startswith("weight") or k == given}
    np.testing.assert_array_equal(read(state, cell="rnn_tanh").b, values(module)[given])


HEADS = {
    "head": lambda: nn.Linear(4, 2),
    "head without bias": lambda: nn.Linear(4, 2, bias=False),
    "embedding": lambda: nn.Embedding(7, 3),
    "convolution": lambda: nn.Conv1d(3, 3, 2),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "layer norm": lambda: nn.LayerNorm(4),
    "two": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
}


@pytest.mark.parametrize("name", HEADS)
def test_plain_layers_beside_the_part_are_taken_and_the_claim_is_about_the_part(name):
    model = nn.ModuleDict({"rnn": nn.GRU(3, 4), "other": HEADS[name]()})
    subject = read(model.state_dict())
    assert subject.part == "rnn of state_dict"
    np.testing.assert_array_equal(subject.w_hh, values(model["rnn"])["weight_hh_l0"])


@pytest.mark.parametrize("name", ["batch norm", "layer norm"])
def test_a_norm_beside_a_cell_may_act_between_its_steps(name):
    model = nn.ModuleDict({"rnn": nn.GRUCell(3, 4), "norm": HEADS[name]()})
    with pytest.raises(UnsupportedError):
        read(model.state_dict())
    assert read(model.state_dict(), part="rnn").part == "rnn of state_dict"
    assert read(nn.ModuleDict({"rnn": nn.GRUCell(3, 4), "head": nn.Linear(4, 2)}).state_dict()).part


@pytest.mark.parametrize(
    ("further", "named"),
    [
        ({"residual_scale": torch.tensor(5.0)}, "residual_scale"),
        ({"residual_scale": 5.0}, "residual_scale"),
        ({"mix.alpha": torch.ones(4)}, r"mix\.alpha"),
        ({"norm.weight": torch.ones(4), "norm.gain": torch.ones(4)}, r"norm\.gain"),
        ({"head.weight": torch.ones(4), "head.scale": torch.ones(())}, r"head\.scale"),
        ({"head.weight": torch.ones(2, 4), "head.bias": torch.ones(2, 2)}, r"head\.bias"),
        ({"head.bias": torch.ones(2)}, r"head\.bias"),
        ({"weight": torch.ones(2, 2)}, "weight"),
        ({"attention.in_proj_weight": torch.ones(4, 4)}, r"attention\.in_proj_weight"),
        ({"other.weight_ih": torch.ones(4, 4)}, r"other\.weight_ih"),
        ({"head.weight": torch.ones(2, 4), "head.bias": 5.0}, r"head\.bias"),
        ({"head.weight": torch.ones(2, 4), "head.bias": torch.tensor(5.0)}, r"head\.bias"),
        ({"bias": torch.ones(12)}, "bias"),
    ],
)
def test_strange_weights_beside_the_part_are_refused_by_name(further, named):
    state = {f"rnn.{k}": v for k, v in nn.GRU(3, 4).state_dict().items()} | further
    with pytest.raises(UnsupportedError):
        read(state)
    assert read(state, part="rnn").part == "rnn of state_dict", "who names the part asks about the part"


@pytest.mark.parametrize(
    "further",
    [
        "residual_scale",
        "layernorm_h.weight",
        "weight_hh_l0_g",
        "head.weight",
        "weight_hh_l00",
        "weight_hh_reverse",
        "bias",
    ],
)
@pytest.mark.parametrize("path", ["", "rnn."])
def test_further_weights_inside_the_module_are_refused_by_name(further, path):
    state = {f"{path}{k}": v for k, v in nn.LSTM(3, 4).state_dict().items()} | {f"{path}{further}": torch.ones(4, 4)}
    for part in (None, path.rstrip(".")):
        with pytest.raises(UnsupportedError):
            read(state, part=part)


@pytest.mark.parametrize("path", ["", "rnn."])
def test_a_third_bias_of_a_cell_is_refused_and_the_only_one_of_layers_too(path):
    """A cell that has its two biases may add a further one; layers have no bias of that name."""
    states = [nn.RNNCell(3, 4).state_dict(), nn.RNN(3, 4, bias=False).state_dict()]
    for plain in states:
        state = {f"{path}{key}": value for key, value in (plain | {"bias": torch.ones(4)}).items()}
        with pytest.raises(UnsupportedError):
            read(state, cell="rnn_tanh")


def test_missing_weights():
    full = nn.GRU(3, 4, 2).state_dict()
    with pytest.raises(FileFormatError):
        read({k: v for k, v in full.items() if "l0" not in k})
    with pytest.raises(FileFormatError):
        read({k: v for k, v in full.items() if k != "weight_hh_l1"})
    with pytest.raises(FileFormatError):
        read({k: v for k, v in full.items() if k != "weight_ih_l1"})
    with pytest.raises(FileFormatError):
        read({k: v for k, v in nn.GRU(3, 4, bidirectional=True).state_dict().items() if "reverse" in k})


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"weight_hh_l0": torch.ones(12)}, FileFormatError),
        ({"weight_hh_l0": torch.ones(12, 0)}, FileFormatError),
        ({"weight_hh_l0": torch.ones(8, 4)}, FileFormatError),
        ({"weight_hh_l0": torch.ones(13, 4)}, FileFormatError),
        ({"weight_ih_l0": torch.ones(11, 3)}, FileFormatError),
        ({"weight_ih_l0": torch.ones(12)}, FileFormatError),
        ({"bias_ih_l0": torch.ones(11)}, DimensionError),
        ({"bias_hh_l0": torch.ones(12, 1)}, DimensionError),
        ({"weight_hh_l0": torch.ones(12, 4).to_sparse()}, UnsupportedError),
        ({"weight_hh_l0": torch.ones(12, 4, dtype=torch.int64)}, ConfigurationError),
        ({"weight_hr_l0": torch.ones(2, 4)}, UnsupportedError),
        ({"weight_hh_l0": torch.ones(10, 4), "weight_hr_l0": torch.ones(2, 4)}, UnsupportedError),
        ({"weight_hh_l0": torch.ones(12, 4).bool()}, ConfigurationError),
        ({"weight_hh_l0": np.ones((12, 4), dtype=bool)}, FileFormatError),
        ({"weight_hh_l0": np.ones((12, 4), dtype=complex)}, FileFormatError),
    ],
)
def test_damaged_weights(change, error):
    with pytest.raises(error):
        read(dict(nn.GRU(3, 4).state_dict()) | change)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "u1", "i8"])
def test_arrays_of_numpy_are_read_whatever_real_numbers_they_hold(dtype):
    state = {"weight_ih": np.ones((4, 3), dtype), "weight_hh": np.eye(4, dtype=dtype)}
    subject, info = state_dict_subject(state, cell="rnn_relu")
    np.testing.assert_array_equal(subject.system.C, np.eye(4))
    assert info["dtype"] == str(np.dtype(dtype))


GRU = nn.GRU(3, 4).state_dict()


def test_a_name_that_is_none_and_a_weight_that_is_none_are_refused():
    for change in ({3: torch.ones(1)}, {"weight_hh_l0": 3.0}, {"bias_hh_l1": None}):
        with pytest.raises(FileFormatError):
            read(GRU | change)


def test_the_limit_of_layers_counts_both_directions(monkeypatch):
    state = nn.GRU(3, 4, 2, bidirectional=True).state_dict()
    monkeypatch.setattr(state_dicts, "LAYERS", 4)
    assert read(state).levels == 2
    monkeypatch.setattr(state_dicts, "LAYERS", 3)
    with pytest.raises(FileFormatError):
        read(state)


def test_the_limit_of_numbers_counts_all_weights_of_all_layers(monkeypatch):
    state = nn.GRU(3, 4, 2).state_dict()
    numbers = sum(value.numel() for value in state.values())
    monkeypatch.setattr(state_dicts, "NUMBERS", numbers)
    assert read(state).levels == 2
    monkeypatch.setattr(state_dicts, "NUMBERS", numbers - 1)
    with pytest.raises(FileFormatError):
        read(state)
    with pytest.raises(FileFormatError):
        read({f"rnn.{key}": value for key, value in state.items()})


def test_layers_that_do_not_fit_together():
    state = dict(nn.GRU(3, 4).state_dict()) | {k.replace("l0", "l1"): v for k, v in nn.GRU(3, 4).state_dict().items()}
    with pytest.raises(FileFormatError):
        read(state)


def test_which_part_and_which_cell():
    two = nn.ModuleDict({"a": nn.GRU(3, 4), "b": nn.RNN(4, 5)}).state_dict()
    with pytest.raises(ConfigurationError):
        read(two)
    with pytest.raises(ConfigurationError):
        read(two, part="c")
    assert isinstance(read(two, part="a"), GatedCell)
    assert read(two, part="b", cell="rnn_relu").activation == "relu"
    with pytest.raises(ConfigurationError):
        read(two, part="b")
    with pytest.raises(ConfigurationError):
        read(two, part="a", cell="lstm")
    with pytest.raises(ConfigurationError):
        read(two, part="a", cell="elman")


def test_weights_behind_a_parametrisation():
    module = nn.RNN(2, 3)
    torch.nn.utils.parametrizations.orthogonal(module, "weight_hh_l0")
    with pytest.raises(UnsupportedError):
        read(module.state_dict(), cell="rnn_tanh")


@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(3, 4, 2), lambda: nn.GRUCell(3, 4), lambda: nn.RNN(3, 4, bidirectional=True)]
)
def test_a_misread_weight_is_noticed_by_its_numbers(make, monkeypatch):
    """The gates of one weight in another order: the module of torch.nn with the same weights disagrees."""
    honest = RecurrentWeights._cell

    def misread(self, w_ih, w_hh, *biases, name):
        return honest(self, w_ih, np.roll(w_hh, 1, axis=0), *biases, name=name)

    monkeypatch.setattr(RecurrentWeights, "_cell", misread)
    with pytest.raises(DisagreementError):
        read(make().state_dict(), cell="rnn_tanh" if isinstance(make(), nn.RNN) else None)
