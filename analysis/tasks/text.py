"""Prediction of the next character of a text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from stability.errors import FileFormatError

from .base import Pair, Task, check_fraction, check_size, register_task, task_of
from .folders import embedded_data, read_text, single_file
from .scores import METRICS, entropy

MAX_SYMBOLS = 256  # most distinct characters, each of which is one input feature
METRIC = "bits_per_character"


@register_task("characters")
def characters(
    *,
    data_dir: str | Path | None = None,
    seed: int = 0,
    file: str | None = None,
    steps: int = 64,
    ahead: int = 1,
    limit: int = 4000,
    test_limit: int = 1000,
    test_fraction: float = 0.1,
) -> Task:
    """Make the task of predicting, at every step, a text's character ``ahead`` steps later, from one-hot inputs.

    The last ``test_fraction`` of the text is the test part. Both parts are cut into pieces of ``steps`` characters
    that do not overlap; ``limit`` and ``test_limit`` pieces are chosen at random. The alphabet is that of the whole
    file.

    Args:
        data_dir: folder with one ``.txt`` file (UTF-8), or the file itself; ``None``: 120,000 characters of
            Shakespeare that ship with the package.
        seed: seed of the choice of pieces.
        file: name of the file, if the folder has several.
        steps: length of a piece.
        ahead: distance of the target in characters (1 and 5 in the literature).
        limit: largest number of training pieces.
        test_limit: largest number of test pieces.
        test_fraction: share of the text for testing.

    Returns:
        The task: one class per step, measured in bits per character. The chance level is the entropy of the
        characters' frequencies, which is the best value of a guess without the input.

    Raises:
        ConfigurationError: a bad option, or several texts to choose from.
        FileFormatError: no text, not UTF-8, too long, too short, or more than 256 different characters.

    Example:
        >>> task = characters(steps=10, limit=4, test_limit=2)
        >>> tuple(task.train[1].shape), task.metric_name
        ((4, 10), 'bits_per_character')
    """
    for name, value, high in (("steps", steps, 10**7), ("ahead", ahead, 1000), ("limit", limit, 10**7)):
        check_size(name, value, 1, high)
    check_size("test_limit", test_limit)
    check_fraction("test_fraction", test_fraction)
    folder = embedded_data() if data_dir is None else Path(data_dir)
    path = single_file(folder, "*.txt", file, "file")
    text = read_text(path)
    alphabet = sorted(set(text))
    if len(alphabet) > MAX_SYMBOLS:
        raise FileFormatError(f"{path} has {len(alphabet)} different characters; the limit is {MAX_SYMBOLS}")
    code = {symbol: k for k, symbol in enumerate(alphabet)}
    codes = np.fromiter(map(code.__getitem__, text), dtype=np.int64, count=len(text))
    border = len(codes) - int(len(codes) * test_fraction)
    rng = np.random.default_rng(seed)

    def pieces(part: np.ndarray, most: int) -> Pair:
        count = (len(part) - ahead) // steps
        if count < 1:
            sizes = f"a part of it has {len(part)} characters, a piece needs {steps + ahead}"
            raise FileFormatError(f"{path} is too short: {sizes}")
        starts = steps * rng.permutation(count)[:most]
        windows = part[starts[:, None] + np.arange(steps + ahead)]
        x = np.eye(len(alphabet), dtype=np.float32)[windows[:, :steps]]
        return torch.from_numpy(x), torch.from_numpy(windows[:, ahead:].copy())

    train, test = pieces(codes[:border], limit), pieces(codes[border:], test_limit)
    origin = {"source": "embedded"} if data_dir is None else {"source": "folder", "folder": str(folder.resolve())}
    return task_of(
        train,
        test,
        output_size=len(alphabet),
        bounds=(0.0, 1.0),
        measured_by=METRIC,
        chance=METRICS[METRIC].reported(entropy(test[1])),
        data={**origin, "what": path.name, "alphabet": "".join(alphabet), "seed": seed},
    )
