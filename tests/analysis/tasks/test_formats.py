"""The data sets of the papers in the formats that they are distributed in, written here in small, and hostile ones."""

from __future__ import annotations

import math
import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from stability.analysis.tasks import Task, make_task
from stability.analysis.tasks.recordings import log_spectra, read_sphere
from stability.analysis.tasks.scores import IGNORED
from stability.analysis.tasks.timeseries import read_ts
from stability.errors import ConfigurationError, FileFormatError

RNG = np.random.default_rng(1)


def rows_of(task: Task) -> list[tuple[list[float], int]]:
    """Inputs and label of each training sequence without its padding, in a fixed order."""
    x, y = task.train
    own = task.own_steps(y)
    keep = torch.ones(x.shape[:2], dtype=torch.bool) if own is None else own
    labels = y if y.dim() == 1 else torch.stack([row[row != IGNORED][0] for row in y])
    return sorted((x[i][keep[i]].flatten().tolist(), int(labels[i])) for i in range(len(x)))


# Speech Commands


def write_wave(path: Path, samples: np.ndarray, rate: int = 16_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(samples.astype("<i2").tobytes())


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    for k, word in enumerate(("yes", "no")):
        for take, count in enumerate((16_000, 12_000, 16_000, 16_000)):
            write_wave(tmp_path / word / f"{take}.wav", np.full(count, 100 * (4 * k + take + 1)))
    write_wave(tmp_path / "_background_noise_" / "hum.wav", np.ones(10))
    (tmp_path / "testing_list.txt").write_text("yes/2.wav\nno/2.wav\n")
    (tmp_path / "validation_list.txt").write_text("yes/3.wav\nno/3.wav\n")
    return tmp_path


def test_speech_commands_keep_their_lists_apart_and_their_lengths(commands: Path) -> None:
    task = make_task("speech_commands", data_dir=commands, frame=4000)
    assert task.classes == ("no", "yes")
    found = [(round(32768 * row[0]), len(row) // 4000, label) for row, label in rows_of(task)]
    assert sorted(found) == [(100, 4, 1), (200, 3, 1), (500, 4, 0), (600, 3, 0)]
    for held, take in (("test", 3), ("validation", 4)):
        x = make_task("speech_commands", data_dir=commands, frame=4000, held=held).test[0]
        assert sorted((32768 * x[:, 0, 0]).round().tolist()) == [100 * take, 100 * (take + 4)]


def test_speech_commands_that_are_wrong_are_refused(commands: Path) -> None:
    with pytest.raises(ConfigurationError, match="no folder 'maybe'"):
        make_task("speech_commands", data_dir=commands, words="yes,maybe")
    (commands / "testing_list.txt").write_text("yes/9.wav\n")
    with pytest.raises(FileFormatError, match=r"yes/9\.wav.*not there"):
        make_task("speech_commands", data_dir=commands)
    (commands / "testing_list.txt").write_text("yes/../yes/2.wav\n")
    with pytest.raises(FileFormatError, match="word/file"):
        make_task("speech_commands", data_dir=commands)
    (commands / "testing_list.txt").write_text("yes/2.wav\nno/2.wav\n")
    write_wave(commands / "no" / "0.wav", np.ones(10), rate=8000)
    with pytest.raises(FileFormatError, match="16000 Hz"):
        make_task("speech_commands", data_dir=commands)


def test_a_chunk_longer_than_its_file_is_refused(commands: Path) -> None:
    path = commands / "no" / "0.wav"
    body = path.read_bytes()
    path.write_bytes(body[:12] + b"LIST" + struct.pack("<I", 10**6) + body[12:])
    with pytest.raises(FileFormatError, match=r"0\.wav is no readable"):
        make_task("speech_commands", data_dir=commands)


# TIMIT


def sphere(samples: np.ndarray, order: str = "01", **changes: str) -> bytes:
    said = {
        "channel_count": "-i 1", "sample_count": f"-i {len(samples)}", "sample_rate": "-i 16000",
        "sample_n_bytes": "-i 2", "sample_byte_format": f"-s2 {order}", "sample_coding": "-s3 pcm", **changes,
    }  # fmt: skip
    head = "\n".join(["NIST_1A", "   1024", *(f"{k} {v}" for k, v in said.items()), "end_head", ""])
    return head.encode().ljust(1024) + samples.astype("<i2" if order == "01" else ">i2").tobytes()


@pytest.fixture
def timit(tmp_path: Path) -> Path:
    for part in ("TRAIN", "TEST"):
        folder = tmp_path / part / "DR1" / "FCJF0"
        folder.mkdir(parents=True)
        for name, count in (("SA1", 2048), ("SI1", 2048), ("SX2", 1280)):
            (folder / f"{name}.WAV").write_bytes(sphere(RNG.integers(-900, 900, count)))
            middle = f"700 {count - 200} ix\n" if name == "SI1" else f"700 {count - 200} q\n"
            (folder / f"{name}.PHN").write_text(f"0 700 h#\n{middle}{count - 200} {count} ux\n")
    return tmp_path


def test_timit_has_a_phone_at_every_frame_and_none_in_the_padding(timit: Path) -> None:
    task = make_task("timit", data_dir=timit, length=10)
    assert (task.output_size, task.input_size, len(task.train[0])) == (39, 257, 2)
    assert task.classes is not None
    found = {
        tuple("-" if k == IGNORED else task.classes[k] for k in row) for row in task.train[1].tolist()
    }  # frames of 512 every 256: their middles are 256, 512, 768, ...
    assert found == {
        ("sil", "sil", *["ih"] * 5, *"---"),  # the last middle is 1792, the last phone begins at 1848
        ("sil", "sil", *["-"] * 8),  # q is none of the 39
    }
    own = task.own_steps(task.train[1])
    assert own is not None
    assert sorted(own.sum(1).tolist()) == [2, 7]


def test_timit_predicts_the_next_frame(timit: Path) -> None:
    task = make_task("timit", data_dir=timit, length=10, target="next")
    x, y = task.train
    own = task.own_steps(y)
    assert own is not None
    assert sorted(own.sum(1).tolist()) == [3, 6]
    for k in range(2):
        n = int(own[k].sum())
        assert torch.equal(y[k, : n - 1], x[k, 1:n])
        assert y[k, n:].isnan().all()
        assert torch.equal(x[k, n:], x[k, n - 1].expand_as(x[k, n:]))  # padding makes up no new inputs
    guess = torch.zeros_like(y)
    kept = y[~y.isnan()].double()
    assert task.metric(guess, y) == pytest.approx(float(kept.square().mean()))
    assert float(task.loss(guess, y)) == pytest.approx(task.metric(guess, y), rel=1e-5)


def test_both_orders_of_bytes_and_riff_give_the_samples(tmp_path: Path) -> None:
    samples = RNG.integers(-30_000, 30_000, 50)
    for name, body in (("a.wav", sphere(samples)), ("b.wav", sphere(samples, "10"))):
        (tmp_path / name).write_bytes(body)
        assert read_sphere(tmp_path / name, 16_000).tolist() == samples.tolist()
    write_wave(tmp_path / "c.wav", samples)
    assert read_sphere(tmp_path / "c.wav", 16_000).tolist() == samples.tolist()


SPHERES = {
    "compressed": (sphere(np.ones(9), sample_coding="-s26 pcm,embedded-shorten-v2.00"), "sph2pipe"),
    "another rate": (sphere(np.ones(9), sample_rate="-i 8000"), "sample_rate is 8000"),
    "cut": (sphere(np.ones(9))[:-2], "counts 9 samples, 16 bytes"),
    "a count without end": (sphere(np.ones(9), sample_count="-i 99999999999999"), "samples"),
    "no end of the header": (sphere(np.ones(9)).replace(b"end_head", b"end_hand"), "end_head"),
    "short": (b"NIST_1A\n", "SPHERE"),
    "another file": (b"\x7fELF" * 500, "SPHERE"),
}


@pytest.mark.parametrize("why", SPHERES)
def test_a_recording_that_is_none_is_refused(why: str, timit: Path) -> None:
    body, words = SPHERES[why]
    (timit / "TRAIN" / "DR1" / "FCJF0" / "SI1.WAV").write_bytes(body)
    with pytest.raises(FileFormatError, match=words):
        make_task("timit", data_dir=timit)


@pytest.mark.parametrize(
    "text", ["", "0 700\n", "0 700 xx\n", "700 0 h#\n", "0 700 h#\n600 900 ix\n", "0 99999999999 h#\n", "-1 5 h#\n"]
)
def test_phones_that_are_none_are_refused(text: str, timit: Path) -> None:
    (timit / "TEST" / "DR1" / "FCJF0" / "SX2.PHN").write_text(text)
    with pytest.raises(FileFormatError, match=r"SX2\.PHN"):
        make_task("timit", data_dir=timit)


def test_spectra_of_a_tone_peak_at_its_frequency() -> None:
    tone = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    spectra = log_spectra(tone, 512, 256)
    assert spectra.shape == (61, 257)
    assert (spectra.argmax(1) == 32).all()  # 1000 Hz of bins of 31.25 Hz
    assert spectra[5, 32] == pytest.approx(math.log(512 / 4), abs=1e-6)  # half the sum of a Hann window


# Penn Treebank


@pytest.fixture
def treebank(tmp_path: Path) -> Path:
    (tmp_path / "ptb.train.txt").write_text(" the cat sat \n the <unk> sat \n" * 4)
    (tmp_path / "ptb.valid.txt").write_text(" the cat \n" * 4)
    (tmp_path / "ptb.test.txt").write_text(" the dog sat \n" * 4)
    return tmp_path


def test_words_of_the_treebank(treebank: Path) -> None:
    task = make_task("treebank", data_dir=treebank, units="words", steps=3, vocabulary=4)
    assert task.classes == ("<unk>", "<eos>", "sat", "the")  # by frequency, ties by the alphabet
    x, y = task.test
    text = ["the", "<unk>", "sat", "<eos>"] * 4  # dog and cat are none of the four
    starts = {i: [task.classes.index(w) for w in text[i : i + 4]] for i in range(0, 15, 3)}
    pieces = {(*row.argmax(-1).tolist(), int(t[-1])) for row, t in zip(x, y)}
    assert pieces == set(map(tuple, starts.values()))
    assert task.metric_name == "perplexity"
    certain = torch.nn.functional.one_hot(y, 4).float() * 50
    assert task.metric(certain, y) == pytest.approx(1.0)
    assert task.metric(torch.zeros_like(certain), y) == pytest.approx(4.0)


def test_characters_of_the_treebank_and_steps_ahead(treebank: Path) -> None:
    for ahead in (1, 5):
        task = make_task("treebank", data_dir=treebank, steps=7, ahead=ahead, held="valid")
        x, y = task.test
        assert task.classes is not None
        text = " the cat \n" * 4
        for row, targets in zip(x.argmax(-1), y):
            read = "".join(task.classes[k] for k in row)
            at = next(i for i in range(0, len(text), 7) if text[i : i + 7] == read)
            assert "".join(task.classes[k] for k in targets) == text[at + ahead : at + ahead + 7]
    counts = torch.bincount(y.flatten()).double() / y.numel()
    bits = -float((counts[counts > 0] * counts[counts > 0].log2()).sum())
    assert (task.metric_name, task.chance) == ("bits_per_character", pytest.approx(bits))
    logits = counts.clamp(min=1e-9).log().expand(*y.shape, -1)
    logits = torch.nn.functional.pad(logits, (0, task.output_size - logits.shape[-1]), value=-50.0)
    assert task.metric(logits, y) == pytest.approx(bits, abs=1e-6)  # the best guess without the input


def test_characters_ahead_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("".join(chr(97 + k % 26) for k in range(2000)))
    for ahead in (1, 5):
        x, y = make_task("characters", data_dir=tmp_path, steps=10, ahead=ahead).train
        assert torch.equal(y, (x.argmax(-1) + ahead) % 26)


# UCR and UEA

UNIVARIATE = """#A remark
@problemName Two
@timeStamps false
@missing false
@univariate true
@equalLength true
@seriesLength 3
@classLabel true b a
@data
1.0,2.0,3.0:b
4.0,-5.5,6e0:a
"""
UNEQUAL = """@problemName Un
@timestamps false
@univariate false
@dimensions 2
@equalLength false
@classLabel true x y
@data
1,2,3:4,5,6:x
7,8:9,10:y
"""


def archive(folder: Path, train: str, test: str | None = None) -> Path:
    (folder / "P_TRAIN.ts").write_text(train)
    (folder / "P_TEST.ts").write_text(train if test is None else test)
    return folder


def test_series_of_one_feature(tmp_path: Path) -> None:
    task = make_task("ucr", data_dir=archive(tmp_path, UNIVARIATE), scale="none")
    assert rows_of(task) == [([1.0, 2.0, 3.0], 0), ([4.0, -5.5, 6.0], 1)]
    assert (task.classes, task.reduction, task.steps) == (("b", "a"), "last", 3)
    x = make_task("ucr", data_dir=tmp_path).train[0].double()
    assert float(x.mean()) == pytest.approx(0, abs=1e-7)
    assert float(x.std(correction=0)) == pytest.approx(1, abs=1e-6)


def test_series_of_several_features_and_lengths(tmp_path: Path) -> None:
    task = make_task("ucr", data_dir=archive(tmp_path, UNEQUAL), scale="none")
    assert (task.input_size, task.steps, task.reduction) == (2, 3, "all")
    assert rows_of(task) == [([1.0, 4.0, 2.0, 5.0, 3.0, 6.0], 0), ([7.0, 9.0, 8.0, 10.0], 1)]


def test_values_of_series(tmp_path: Path) -> None:
    text = UNIVARIATE.replace("@classLabel true b a", "@targetLabel true").replace(":b", ":0.5").replace(":a", ":-2")
    task = make_task("ucr", data_dir=archive(tmp_path, text))
    assert (task.kind, sorted(task.train[1].flatten().tolist())) == ("values", [-2.0, 0.5])


WRONG = {
    "missing": (UNIVARIATE.replace("-5.5", "?"), "line 11 has missing values"),
    "NaN": (UNIVARIATE.replace("-5.5", "NaN"), "missing values"),
    "time stamps": (UNIVARIATE.replace("@timeStamps false", "@timeStamps true"), "time stamps"),
    "a text": (UNIVARIATE.replace("-5.5", "five"), "no number"),
    "infinite": (UNIVARIATE.replace("-5.5", "1e999"), "infinite"),
    "a class": (UNIVARIATE.replace(":a", ":c"), "'c', which the header does not name"),
    "one class": (UNIVARIATE.replace("true b a", "true b"), "two classes"),
    "no data": (UNIVARIATE.partition("@data")[0], "no line @data"),
    "nothing": (UNIVARIATE.partition("1.0")[0], "no sequence"),
    "a length": (UNIVARIATE.replace("@seriesLength 3", "@seriesLength 4"), "serieslength 4"),
    "unequal": (UNIVARIATE.replace(",6e0", ""), "equalLength"),
    "features": (UNIVARIATE.replace(":a", ":1,2,3:a"), "features"),
    "lengths of features": (UNEQUAL.replace("9,10", "9,10,11"), "differ in length"),
    "dimensions": (UNEQUAL.replace("@dimensions 2", "@dimensions 3"), "dimensions 3"),
    "no header": (UNIVARIATE.replace("@problemName", "problem"), "begin with @"),
}


@pytest.mark.parametrize("why", WRONG)
def test_series_that_are_wrong_are_refused(why: str, tmp_path: Path) -> None:
    text, words = WRONG[why]
    with pytest.raises(FileFormatError, match=words):
        read_ts(archive(tmp_path, text) / "P_TRAIN.ts")


@pytest.mark.parametrize("task", ["cifar10", "speech_commands", "timit", "treebank", "ucr"])
def test_a_folder_without_the_data_is_refused(task: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="needs data_dir"):
        make_task(task)
    with pytest.raises(FileFormatError, match="is no folder"):
        make_task(task, data_dir=tmp_path / "gone")
    with pytest.raises(FileFormatError, match=str(tmp_path)):
        make_task(task, data_dir=tmp_path)
