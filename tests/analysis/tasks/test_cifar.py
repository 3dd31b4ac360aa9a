"""CIFAR-10 in both versions of its files, written here in small, and batches that are none."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

from stability.analysis.tasks import make_task
from stability.errors import ConfigurationError, FileFormatError

RNG = np.random.default_rng(1)
IMAGES = RNG.integers(0, 256, (6, 3072), dtype=np.uint8)
LABELS = [3, 0, 9, 1, 1, 7]
BATCHES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def cifar(folder: Path, version: str, protocol: int = 2) -> Path:
    for k, name in enumerate(BATCHES):
        if version == "bin":
            (folder / f"{name}.bin").write_bytes(bytes([LABELS[k]]) + IMAGES[k].tobytes())
        else:
            batch = {b"batch_label": b"x", b"data": IMAGES[k : k + 1], b"labels": [LABELS[k]], b"filenames": [b"a.png"]}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=protocol))
    return folder


@pytest.mark.parametrize(("version", "protocol"), [("bin", 2), ("py", 2), ("py", 4)])
def test_both_versions_of_cifar_give_the_same_sequences(version: str, protocol: int, tmp_path: Path) -> None:
    task = make_task("cifar10", data_dir=cifar(tmp_path, version, protocol))
    found = {(*(255 * x).round().int().flatten().tolist(), int(y)) for x, y in zip(*task.train)}
    assert found == {(*image.reshape(3, 1024).T.ravel().tolist(), y) for image, y in zip(IMAGES[:5], LABELS)}
    np.testing.assert_array_equal(
        task.test[0][0, 2, 3:6].numpy(), IMAGES[5].reshape(3, 32, 32)[:, 2, 1].astype(np.float32) / np.float32(255)
    )
    assert (task.input_size, task.steps, task.test[1].tolist()) == (96, 32, [7])
    assert task.classes is not None
    assert task.classes[7] == "horse"
    grey = make_task("cifar10", data_dir=tmp_path, layout="pixels", grey=True)
    assert (grey.input_size, grey.steps) == (1, 1024)
    r, g, b = IMAGES[5].reshape(3, 1024)[:, 40] / 255
    assert float(grey.test[0][0, 40, 0]) == pytest.approx(0.299 * r + 0.587 * g + 0.114 * b)


def test_noise_behind_the_image(tmp_path: Path) -> None:
    """The image first, then Gaussian noise of its own for every sequence, the same for the same seed."""
    asked = {"data_dir": cifar(tmp_path, "bin"), "padded_to": 1000}
    task, again = make_task("cifar10", **asked), make_task("cifar10", **asked)
    plain = make_task("cifar10", data_dir=tmp_path)
    x = task.train[0]
    assert (task.steps, task.input_size, task.bounds, plain.bounds) == (1000, 96, None, (0.0, 1.0))
    assert x[:, :32].equal(plain.train[0])
    assert x.equal(again.train[0])
    noise = x[:, 32:].flatten(1)
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.01)
    assert float(noise.std()) == pytest.approx(1.0, abs=0.01)
    assert float(np.abs(np.corrcoef(noise.numpy()) - np.eye(5)).max()) < 0.02
    digits = make_task("digits", size=7, limit=4, test_limit=2, padded_to=9)
    assert digits.train[0][:, :7].equal(make_task("digits", size=7, limit=4, test_limit=2).train[0])
    for steps in (32, 0, True):
        with pytest.raises(ConfigurationError, match="padded_to"):
            make_task("cifar10", data_dir=tmp_path, padded_to=steps)
    with pytest.raises(ConfigurationError, match="take fewer"):
        make_task("digits", padded_to=2**20)


class Evil:
    def __reduce__(self):
        return os.system, ("touch cifar-was-here",)


GOOD = {b"data": IMAGES[:1], b"labels": [3]}
HOSTILE = {
    "calls a program": pickle.dumps({**GOOD, b"filenames": Evil()}, 2),
    "calls a builtin": b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
    "calls numpy": b"\x80\x02cnumpy\nzeros\nJ\xff\xff\xff\x7f\x85R.",
    "a place in the memo far away": b"\x80\x02}r\xff\xff\xff\x7f.",
    "a byte array of a size of its own": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "changes a stand-in": b"\x80\x02c_codecs\nencode\nN}X\x01\x00\x00\x00aK\x01s\x86b.",
    "no pickle": b"hello",
    "cut": pickle.dumps(GOOD, 2)[:-900],
    "empty": b"",
    "no dictionary": pickle.dumps([1, 2], 2),
    "floats": pickle.dumps({**GOOD, b"data": np.zeros((1, 3072))}, 2),
    "another shape": pickle.dumps({**GOOD, b"data": IMAGES[:2]}, 2),
    "a label beyond": pickle.dumps({**GOOD, b"labels": [10]}, 2),
    "a text for a label": pickle.dumps({**GOOD, b"labels": ["3"]}, 2),
}


@pytest.mark.parametrize("why", HOSTILE)
def test_a_pickle_that_is_no_batch_is_refused_and_calls_nothing(why: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    cifar(tmp_path, "py")
    (tmp_path / "data_batch_3").write_bytes(HOSTILE[why])
    with pytest.raises(FileFormatError, match="data_batch_3"):
        make_task("cifar10", data_dir=tmp_path)
    assert not (tmp_path / "cifar-was-here").exists()


@pytest.mark.parametrize("body", [b"", b"\x00" * 3072, b"\x0a" + bytes(3072)], ids=["empty", "cut", "a label beyond"])
def test_a_binary_batch_that_is_none_is_refused(body: bytes, tmp_path: Path) -> None:
    (cifar(tmp_path, "bin") / "data_batch_2.bin").write_bytes(body)
    with pytest.raises(FileFormatError, match="data_batch_2"):
        make_task("cifar10", data_dir=tmp_path)
