"""Torch files that hold more than tensors: their tensors are read, and no code of theirs is run."""

from __future__ import annotations

import os
import pickle
import warnings
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn

from stability.errors import FileFormatError, StabilityError
from stability.models.sources import load_subject


class Hostile:
    """Attacker's pickle that runs a command when it is read."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.system, (f"touch {self.target}",))


@pytest.mark.parametrize("form", ["pickle", "torch", "legacy", "inside a state dict"])
def test_a_hostile_pickle_is_refused_and_writes_nothing(form, tmp_path):
    target, path = tmp_path / "written", tmp_path / "model.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if form == "pickle":
            path.write_bytes(pickle.dumps(Hostile(target)))
        elif form == "inside a state dict":
            torch.save(OrderedDict(nn.GRU(2, 3).state_dict(), extra=Hostile(target)), path)
        else:
            torch.save(Hostile(target), path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(StabilityError) as caught:
        load_subject(path)
    assert not target.exists()
    assert "\n" not in str(caught.value)
    assert any(
        words in str(caught.value) for words in ("not executed", "damaged", "must hold a dictionary", "holds 'extra'")
    )


class Settings:
    """Stands for the hyper-parameters that a training framework pickles beside the weights."""

    def __init__(self):
        self.layers, self.names = [3, 4], {"a": self}


@pytest.mark.parametrize("extra", [Settings(), np.float64(0.5), {1, 2}, [print], torch.nn.functional.relu])
def test_a_checkpoint_with_more_than_tensors_gives_its_tensors(extra, tmp_path):
    torch.manual_seed(0)
    state = nn.GRU(3, 4).state_dict()
    torch.save(state, tmp_path / "plain.pt")
    torch.save({"state_dict": state, "hyper_parameters": extra, "callbacks": {Settings: 1}}, tmp_path / "m.ckpt")
    expected, found = (load_subject(tmp_path / name).subject for name in ("plain.pt", "m.ckpt"))
    assert np.array_equal(found.w_hh, expected.w_hh)


def test_an_object_in_the_place_of_a_weight_is_refused(tmp_path):
    torch.save({**nn.GRU(3, 4).state_dict(), "weight_hh_l0": Settings()}, tmp_path / "m.pt")
    with pytest.raises(FileFormatError):
        load_subject(tmp_path / "m.pt")


def test_a_pickle_cannot_change_the_functions_that_it_names(tmp_path):
    """BUILD sets attributes of what was named: of a copy, never of torch's own function."""
    data = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}X\x06\x00\x00\x00poisonK\x01sb."
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", data)
        archive.writestr("m/version", b"3\n")
    with pytest.raises(FileFormatError):
        load_subject(tmp_path / "m.pt")
    assert not hasattr(torch._utils._rebuild_tensor_v2, "poison")
