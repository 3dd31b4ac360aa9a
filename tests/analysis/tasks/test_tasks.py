"""Tasks: exact targets, honest chance levels, loaders that refuse what is damaged."""

from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from stability.analysis.tasks import make_task, read_idx
from stability.analysis.tasks.images import image_sequences
from stability.errors import DimensionError, FileFormatError, StabilityError


def idx_bytes(array, kind=8):
    header = struct.pack(">HBB", 0, kind, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def folder(tmp_path):
    """A small data set in MNIST's own format: brightness tells the class, some files zipped, some not."""
    rng = np.random.default_rng(3)
    for part, n in (("train", 60), ("t10k", 30)):
        labels = np.arange(n) % 10
        images = (rng.integers(0, 20, (n, 28, 28)) + 20 * labels[:, None, None]).astype(np.uint8)
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    return tmp_path


class TestIdx:
    @pytest.mark.parametrize("shape", [(5,), (2, 3), (3, 4, 5)])
    @pytest.mark.parametrize("zipped", [False, True])
    def test_round_trip(self, tmp_path, rng, shape, zipped):
        array = rng.integers(0, 256, shape).astype(np.uint8)
        data = idx_bytes(array)
        path = tmp_path / "x"
        path.write_bytes(gzip.compress(data) if zipped else data)
        np.testing.assert_array_equal(read_idx(path, axes=len(shape)), array)

    @pytest.mark.parametrize("damage", [
        lambda d: b"", lambda d: d[:3], lambda d: b"\1" + d[1:], lambda d: d[:2] + b"\x0d" + d[3:],
        lambda d: d[:3] + b"\x09" + d[4:], lambda d: d[:9], lambda d: d[:-1], lambda d: d + b"\0",
        lambda d: d[:4] + struct.pack(">I", 0) + d[8:], lambda d: d[:4] + b"\xff\xff\xff\xff" * 3 + d[16:],
        lambda d: d[:4] + struct.pack(">I", 2**27) + struct.pack(">II", 1, 1) + d[16:],
        lambda d: gzip.compress(d)[:-20], lambda d: gzip.compress(d)[:30] + b"xxxx" + gzip.compress(d)[34:],
    ])  # fmt: skip
    def test_damage_is_one_clear_line(self, tmp_path, damage):
        path = tmp_path / "images"
        path.write_bytes(damage(idx_bytes(np.arange(24).reshape(2, 3, 4))))
        with pytest.raises(FileFormatError) as caught:
            read_idx(path, axes=3)
        assert "\n" not in str(caught.value)
        assert str(path) in str(caught.value)

    def test_a_zip_bomb_is_not_unpacked(self, tmp_path):
        path = tmp_path / "bomb"
        path.write_bytes(gzip.compress(idx_bytes(np.zeros((2, 2))) + bytes(200_000_000), 1))
        with pytest.raises(FileFormatError):
            read_idx(path)

    def test_wrong_number_of_axes_and_missing(self, tmp_path):
        (tmp_path / "x").write_bytes(idx_bytes(np.zeros((2, 2))))
        with pytest.raises(FileFormatError):
            read_idx(tmp_path / "x", axes=3)
        with pytest.raises(FileFormatError):
            read_idx(tmp_path / "none")
        with pytest.raises(FileFormatError):
            read_idx(tmp_path)


class TestImages:
    def test_embedded_digits_are_stratified_and_apart(self):
        task = make_task("digits")
        (x, y), (xt, yt) = task.train, task.test
        assert (x.shape, xt.shape) == ((4000, 28, 28), (1000, 28, 28))
        assert torch.bincount(y).tolist() == [400] * 10
        assert torch.bincount(yt).tolist() == [100] * 10
        assert task.chance == 0.1
        assert x.min() == 0
        assert x.max() == 1
        rows = {image.numpy().tobytes() for image in torch.cat([x, xt])}
        assert len(rows) == 5000  # no image twice, none in both parts

    def test_every_layout_holds_the_same_pixels(self):
        rows = make_task("digits", limit=30, test_limit=10).train[0]
        for layout, shape in (("8", (30, 98, 8)), (8, (30, 98, 8)), ("pixels", (30, 784, 1))):
            task = make_task("digits", limit=30, test_limit=10, layout=layout)
            assert task.options["layout"] == str(layout)  # a run made with the number is one made with the name
            x = task.train[0]
            assert tuple(x.shape) == shape
            torch.testing.assert_close(x.reshape(30, 784), rows.reshape(30, 784), rtol=0, atol=0)

    def test_the_permutation_is_fixed_and_inverts(self):
        plain = make_task("digits", limit=20, test_limit=10, layout="8")
        mixed = make_task("digits", limit=20, test_limit=10, layout="8", permuted=True)
        order = mixed.prepare.permutation
        inverse = np.argsort(order)
        for a, b in zip((plain.train, plain.test), (mixed.train, mixed.test)):
            assert torch.equal(a[0].reshape(-1, 784), b[0].reshape(-1, 784)[:, inverse])
            assert not torch.equal(a[0], b[0])
            assert torch.equal(a[1], b[1])
        other = image_sequences("8", permuted=True, permutation_seed=1)
        assert not np.array_equal(other.permutation, order)

    def test_a_folder_of_idx_files(self, folder):
        task = make_task("digits", data_dir=folder)
        labels = np.arange(60) % 10
        assert task.train[1].tolist() == labels.tolist()
        assert torch.equal(task.prepare(np.zeros((1, 28, 28), np.uint8)), torch.zeros(1, 28, 28))
        first = task.train[0][0].mean()
        assert first < task.train[0][9].mean()
        assert task.describe()["data"]["folder"] == str(folder)

    def test_limits_keep_the_classes_balanced(self, folder):
        task = make_task("digits", data_dir=folder, limit=25, test_limit=20, seed=1)
        assert torch.bincount(task.train[1], minlength=10).tolist().count(2) == 5
        assert set(torch.bincount(task.train[1]).tolist()) == {2, 3}
        assert torch.bincount(task.test[1]).tolist() == [2] * 10
        again = make_task("digits", data_dir=folder, limit=25, test_limit=20, seed=1)
        other = make_task("digits", data_dir=folder, limit=25, test_limit=20, seed=2)
        assert torch.equal(task.train[0], again.train[0])
        assert not torch.equal(task.train[0], other.train[0])

    def test_folders_that_do_not_fit(self, folder):
        (folder / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(29)))
        with pytest.raises(FileFormatError):
            make_task("digits", data_dir=folder)
        (folder / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(np.full(30, 11)))
        with pytest.raises(FileFormatError):
            make_task("digits", data_dir=folder)
        (folder / "t10k-labels-idx1-ubyte").unlink()
        with pytest.raises(FileFormatError):
            make_task("digits", data_dir=folder)
        with pytest.raises(FileFormatError):
            make_task("digits", data_dir=folder / "none")

    def test_images_of_another_size_are_refused(self, folder):
        (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(np.zeros((60, 8, 8)))))
        with pytest.raises(FileFormatError):
            make_task("digits", data_dir=folder)


class TestGenerated:
    def test_adding(self):
        task = make_task("adding", steps=17, train=200, test=5000, seed=4)
        x, y = task.train
        assert (x[..., 1].sum(1) == 2).all()
        assert (x[:, :8, 1].sum(1) == 1).all()
        for i in range(0, 200, 17):
            assert float(y[i, 0]) == pytest.approx(sum(float(v) for v, m in x[i] if m == 1), abs=1e-6)
        constant = torch.ones_like(task.test[1])
        assert task.metric(constant, task.test[1]) == pytest.approx(task.chance, rel=0.05)

    def test_copying(self):
        task = make_task("copying", delay=5, length=4, symbols=6, train=50, test=3000)
        x, y = task.train
        assert tuple(x.shape) == (50, 13, 8)
        symbols = x.argmax(-1)
        assert torch.equal(symbols[:, :4], y[:, -4:])
        assert (y[:, :-4] == 6).all()
        assert (symbols == 7).sum(1).tolist() == [1] * 50
        assert (symbols[:, 8] == 7).all()
        perfect = torch.nn.functional.one_hot(y, 7).float()
        assert task.metric(perfect, y) == 1
        perfect[:, :-4] = 0
        assert task.metric(perfect, y) == 1  # only the recall counts
        guess = torch.zeros(3000, 13, 7)
        guess[..., 2] = 1
        assert task.metric(guess, task.test[1]) == pytest.approx(task.chance, rel=0.1)

    def test_pendulum_against_another_integrator(self):
        task = make_task("pendulum", steps=30, dt=0.2, damping=0.3, train=3, test=2, target="trajectory")
        x, y = task.train
        for i in range(3):
            other = solve_ivp(
                lambda _, s: [s[1], -np.sin(s[0]) - 0.3 * s[1]], (0, 6), x[i, 0].double().numpy(), "Radau",
                t_eval=0.2 * np.arange(1, 31), rtol=1e-9, atol=1e-9,
            )  # fmt: skip
            np.testing.assert_allclose(y[i].numpy(), other.y.T, atol=2e-6)
        assert (x == x[:, :1]).all()

    def test_pendulum_chance_is_that_of_its_naive_guess(self):
        nearest = make_task("pendulum", steps=20, train=2, test=20)
        x, y = nearest.test
        assert nearest.metric(x, y) == pytest.approx(nearest.chance)
        whole = make_task("pendulum", steps=20, train=2, test=20, target="trajectory")
        y = whole.test[1]
        assert whole.metric(y.mean((0, 1)).expand_as(y), y) == pytest.approx(whole.chance)

    @pytest.mark.parametrize("name", ["adding", "copying", "pendulum"])
    def test_streams_are_seeded_and_apart(self, name):
        a, b, c = (make_task(name, train=6, test=6, seed=s) for s in (1, 1, 2))
        assert torch.equal(a.train[0], b.train[0])
        assert not torch.equal(a.train[0], c.train[0])
        assert not torch.equal(a.train[0], a.test[0])
        fresh = a.sample(4, 9)
        assert torch.equal(fresh[0], c.sample(4, 9)[0])
        assert len(fresh[0]) == 4
        assert not torch.equal(a.sample(6, 1)[0], a.train[0])


@pytest.mark.parametrize(("name", "options"), [
    ("nothing", {}), (None, {}), ("digits", {"seed": -1}), ("digits", {"seed": True}), ("digits", {"colour": 1}),
    ("digits", {"layout": "columns"}), ("digits", {"layout": 7}), ("digits", {"layout": "8", "size": 14}),
    ("digits", {"size": 5}), ("digits", {"permuted": "yes"}), ("digits", {"limit": 0}), ("digits", {"limit": True}),
    ("ucr", {}), ("listops", {"min_length": 50, "max_length": 40}), ("listops", {"max_args": 1}),
    ("listops", {"max_length": 2049}), ("listops", {"max_length": 1, "min_length": 1, "train": 300}),
    ("spoken", {"length": 10, "frame": 3}), ("adding", {"steps": 1}), ("adding", {"train": 0}),
    ("adding", {"data_dir": "/"}), ("copying", {"symbols": 1}), ("pendulum", {"dt": float("nan")}),
    ("pendulum", {"damping": -1}), ("pendulum", {"target": "previous"}), ("characters", {"test_fraction": 1.0}),
])  # fmt: skip
def test_bad_requests(name, options):
    with pytest.raises(StabilityError):
        make_task(name, **options)


def test_outputs_of_another_shape_are_refused():
    task = make_task("digits", limit=10, test_limit=10)
    for shape in ((10, 9), (10, 28, 10), (9, 10)):
        with pytest.raises(DimensionError):
            task.loss(torch.zeros(shape), task.test[1])
