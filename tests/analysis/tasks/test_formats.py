"""Tasks from files: texts, recordings, time series; pipes and archives that unfold without end are refused."""

from __future__ import annotations

import gzip
import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.tasks import make_task
from stability.analysis.tasks.idx import MAX_ENTRIES, read_idx
from stability.errors import ConfigurationError, FileFormatError, StabilityError


class TestText:
    def test_targets_are_the_next_characters(self, tmp_path):
        (tmp_path / "a.txt").write_text("abcdefgh" * 100)
        task = make_task("characters", data_dir=tmp_path, steps=5, limit=20, test_limit=4)
        x, y = task.train
        assert task.input_size == 8
        assert torch.equal((x.argmax(-1) + 1) % 8, y)
        assert task.data["alphabet"] == "abcdefgh"

    def test_train_and_test_pieces_do_not_overlap(self, tmp_path):
        text = "".join(chr(0x100 + i) for i in range(200))
        (tmp_path / "a.txt").write_text(text)
        task = make_task("characters", data_dir=tmp_path / "a.txt", steps=9, limit=1000)
        seen = set(task.train[0].argmax(-1).flatten().tolist())
        held = set(task.test[0].argmax(-1).flatten().tolist())
        assert not seen & held
        assert max(seen) < 180 <= min(held)

    @pytest.mark.parametrize(("files", "error"), [
        ({}, FileFormatError), ({"a.txt": b"ab", "b.txt": b"ab"}, ConfigurationError),
        ({"a.txt": b"\xff\xfe\xfa"}, FileFormatError), ({"a.txt": b"short"}, FileFormatError),
        ({"a.txt": "".join(map(chr, range(500, 900))).encode()}, FileFormatError),
    ])  # fmt: skip
    def test_bad_texts(self, tmp_path, files, error):
        for name, data in files.items():
            (tmp_path / name).write_bytes(data)
        with pytest.raises(error):
            make_task("characters", data_dir=tmp_path)


class TestSpoken:
    @staticmethod
    def bundle(path, **changes):
        rng = np.random.default_rng(0)
        sizes = rng.integers(5, 40, 20)
        arrays = {
            "samples": rng.integers(-(2**15), 2**15, sizes.sum()).astype(np.int16),
            "offsets": np.concatenate([[0], sizes.cumsum()]),
            "digit": np.arange(20) % 10,
            "take": np.repeat([0, 7], 10),
        }
        arrays.update(changes)
        np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
        return arrays

    def test_bundle(self, tmp_path):
        arrays = self.bundle(tmp_path / "x.npz")
        task = make_task("spoken", data_dir=tmp_path, length=20, frame=4)
        assert tuple(task.train[0].shape) == (10, 5, 4)
        a, b = arrays["offsets"][10:12]
        piece = arrays["samples"][a:b][:20] / 32768
        expected = np.zeros(20)
        expected[20 - len(piece) :] = piece
        np.testing.assert_allclose(task.train[0][0].flatten(), expected, atol=1e-7)
        assert task.test[1].tolist() == list(range(10))

    def test_wave_files_give_the_same(self, tmp_path):
        bundle_folder, wave_folder = tmp_path / "bundle", tmp_path / "waves"
        bundle_folder.mkdir()
        wave_folder.mkdir()
        arrays = self.bundle(bundle_folder / "x.npz")
        for i in range(20):
            name = f"{arrays['digit'][i]}_someone_{arrays['take'][i]}.wav"
            with wave.open(str(wave_folder / name), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                a, b = arrays["offsets"][i : i + 2]
                file.writeframes(arrays["samples"][a:b].astype("<i2").tobytes())
        waves = make_task("spoken", data_dir=wave_folder, length=16)
        bundle = make_task("spoken", data_dir=bundle_folder, length=16)
        for a, b in zip((*waves.train, *waves.test), (*bundle.train, *bundle.test)):
            assert torch.equal(a, b)
        (wave_folder / "3_someone_9.wav").write_bytes(b"RIFFnothing")
        with pytest.raises(FileFormatError):
            make_task("spoken", data_dir=wave_folder)

    @pytest.mark.parametrize("changes", [
        {"take": None}, {"samples": np.zeros(5)}, {"offsets": np.arange(21)[::-1]}, {"offsets": np.arange(3)},
        {"offsets": np.arange(21) * 10**6}, {"digit": np.full(20, 12)}, {"take": np.zeros(20, int)},
        {"digit": np.array([object()] * 20)},
    ])  # fmt: skip
    def test_bad_bundles(self, tmp_path, changes):
        self.bundle(tmp_path / "x.npz", **changes)
        with pytest.raises(FileFormatError):
            make_task("spoken", data_dir=tmp_path)

    def test_no_zip_at_all(self, tmp_path):
        (tmp_path / "x.npz").write_bytes(b"PK nothing")
        with pytest.raises(FileFormatError):
            make_task("spoken", data_dir=tmp_path)


UNIVARIATE = """#A remark
@problemName Two
@timeStamps false
@univariate true
@classLabel true b a
@data
1.0,2.0,3.0:b
4.0,-5.5,6e0:a
"""
UNEQUAL = "@univariate false\n@classLabel true x y\n@data\n1,2,3:4,5,6:x\n7,8:9,10:y\n"


def series(folder, text, **options):
    (folder / "P_TRAIN.ts").write_text(text)
    (folder / "P_TEST.ts").write_text(text)
    return make_task("ucr", data_dir=folder, **options)


class TestSeries:
    def test_one_feature(self, tmp_path):
        task = series(tmp_path, UNIVARIATE, scale=False)
        found = sorted((x.flatten().tolist(), int(y)) for x, y in zip(*task.train))
        assert found == [([1.0, 2.0, 3.0], 0), ([4.0, -5.5, 6.0], 1)]
        assert (task.classes, task.reduction, task.steps) == (("b", "a"), "last", 3)
        x = make_task("ucr", data_dir=tmp_path).train[0].double()
        assert float(x.mean()) == pytest.approx(0, abs=1e-7)
        assert float(x.std(correction=0)) == pytest.approx(1, abs=1e-6)

    def test_several_features_and_lengths(self, tmp_path):
        task = series(tmp_path, UNEQUAL, scale=False)
        assert (task.input_size, task.steps, task.reduction) == (2, 3, "all")
        x, y = task.train
        short = int(torch.nonzero(y[:, 1] == 1))
        assert y[short].tolist() == [-100, 1, -100]
        assert x[short, :2].tolist() == [[7.0, 9.0], [8.0, 10.0]]

    def test_values(self, tmp_path):
        text = (
            UNIVARIATE.replace("@classLabel true b a", "@targetLabel true").replace(":b", ":0.5").replace(":a", ":-2")
        )
        task = series(tmp_path, text)
        assert (task.kind, sorted(task.train[1].flatten().tolist())) == ("values", [-2.0, 0.5])

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("-5.5", "?"), ("-5.5", "NaN"), ("-5.5", "five"), ("-5.5", "1e999"), (":a", ":c"), (":a", ":1,2,3:a"),
            ("@timeStamps false", "@timeStamps true"), ("@data", "@dat"), ("true b a", "true b"), ("-5.5,", ""),
        ],
    )  # fmt: skip
    def test_damaged_files_are_refused(self, tmp_path, old, new):
        text = UNIVARIATE.replace(old, new)
        if (old, new) == ("-5.5,", ""):
            text = UNEQUAL.replace("9,10", "9,10,11")
        with pytest.raises(FileFormatError):
            series(tmp_path, text)

    def test_missing_files_are_refused(self, tmp_path):
        for place in (tmp_path / "gone", tmp_path):
            with pytest.raises(FileFormatError):
                make_task("ucr", data_dir=place)


@pytest.mark.parametrize(
    ("task", "name", "options"),
    [("characters", "a.txt", {"file": "a.txt"}), ("spoken", "0_a_1.wav", {}), ("spoken", "a.npz", {})],
)
def test_pipes_are_refused(task: str, name: str, options: dict, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)  # to read from it would wait forever
    with pytest.raises(StabilityError):
        make_task(task, data_dir=tmp_path, **options)
    with pytest.raises(FileFormatError):
        read_idx(tmp_path / name)


def test_an_idx_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", MAX_ENTRIES + 1)))
    with pytest.raises(FileFormatError):
        read_idx(path)
