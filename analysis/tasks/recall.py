"""Tasks about what to keep, from the literature on state-space models: selective copying and associative recall."""

from __future__ import annotations

import numpy as np
import torch

from stability.errors import ConfigurationError

from .base import Pair, Task, check_size, generated_parts, register_task, task_of
from .synthetic import letters_task


@register_task("selective_copying")
def selective_copying(
    *, seed: int = 0, context: int = 100, length: int = 10, symbols: int = 8, train: int = 4000, test: int = 1000
) -> Task:
    """Selective copying: repeat, in order, the letters that were scattered among blanks.

    Unlike in ``copying`` the letters come at random places of the first ``context`` steps, so that their distance to
    their recall varies and no fixed delay solves it. Inputs are one-hot over ``symbols`` letters, a blank and a cue;
    the last ``length`` steps carry the cue. The target is blank before them; the metric counts them only: chance
    ``1 / symbols``.

    Args:
        seed: of the sequences.
        context: steps that the letters are scattered over, at least ``length``.
        length: letters to remember.
        symbols: size of the alphabet.
        train: how many training sequences.
        test: how many test sequences.

    Returns:
        The task: one class per step (letters ``0 .. symbols - 1``, blank ``symbols``).

    Raises:
        ConfigurationError: a bad option.

    Source:
        A. Gu, T. Dao, "Mamba: linear-time sequence modeling with selective state spaces" (2023), section 4.1.1 (there
        ``context=4096, length=16, symbols=16``); L. Jing et al., "Gated orthogonal recurrent units" (2019).

    Example:
        >>> x, y = selective_copying(context=6, length=2, train=1, test=1).train
        >>> letters = x[0].argmax(-1)
        >>> bool(torch.equal(letters[letters < 8], y[0, -2:])), tuple(x.shape)
        (True, (1, 8, 10))
    """
    check_size("context", context)
    check_size("length", length, 1, context)

    def place(inputs: np.ndarray, letters: np.ndarray, rng: np.random.Generator) -> None:
        n = len(letters)
        places = np.sort(rng.random((n, context)).argpartition(length - 1, axis=1)[:, :length], axis=1)
        np.put_along_axis(inputs, places, letters, axis=1)
        inputs[:, context:] = symbols + 1

    steps = context + length
    return letters_task(place, seed, steps, length, symbols, train, test)


@register_task("associative_recall")
def associative_recall(
    *,
    seed: int = 0,
    pairs: int = 8,
    keys: int = 16,
    values: int = 16,
    delay: int = 0,
    train: int = 4000,
    test: int = 1000,
) -> Task:
    """Associative recall: pairs of a key and a value, then one of the keys again; the answer is its value.

    Keys of a sequence differ, values may repeat. Inputs are one-hot over ``keys`` keys, ``values`` values and a blank;
    ``2 pairs + delay + 1`` steps, the blanks before the last one. The chance level is that of a guess that ignores the
    input, ``1 / values``; naming one of the values seen is right at least once in ``pairs`` times.

    Args:
        seed: of the sequences.
        pairs: of a key and a value, at most ``keys``.
        keys: number of keys to choose from.
        values: number of values to choose from.
        delay: blanks between the last pair and the question.
        train: how many training sequences.
        test: how many test sequences.

    Returns:
        The task: one class per sequence.

    Raises:
        ConfigurationError: a bad option.

    Source:
        J. Ba et al., "Using fast weights to attend to the recent past" (2016), section 4.1; D. Fu et al., "Hungry
        hungry hippos: towards language modeling with state space models" (2023), section 3.1.

    Example:
        >>> x, y = associative_recall(pairs=3, train=1, test=1).train
        >>> tokens = x[0].argmax(-1).tolist()
        >>> tokens[tokens.index(tokens[-1]) + 1] - 16 == y.item(), len(tokens)
        (True, 7)
    """
    check_size("keys", keys, 1, 1000)
    check_size("values", values, 2, 1000)
    check_size("pairs", pairs, 1, 1000)
    if pairs > keys:
        raise ConfigurationError(
            f"pairs must be at most keys, since the keys of a sequence differ; got {pairs} > {keys}"
        )
    check_size("delay", delay, 0)
    steps, blank = 2 * pairs + delay + 1, keys + values

    def make(n: int, rng: np.random.Generator) -> Pair:
        inputs = np.full((n, steps), blank)
        known = rng.permuted(np.tile(np.arange(keys), (n, 1)), axis=1)[:, :pairs]
        answers = rng.integers(0, values, (n, pairs))
        inputs[:, 0 : 2 * pairs : 2] = known
        inputs[:, 1 : 2 * pairs : 2] = keys + answers
        asked = rng.integers(0, pairs, n)
        rows = np.arange(n)
        inputs[:, -1] = known[rows, asked]
        x = np.eye(blank + 1, dtype=np.float32)[inputs]
        return torch.from_numpy(x), torch.from_numpy(answers[rows, asked])

    parts = generated_parts(make, seed, train, test, numbers=steps * (blank + 1))
    return task_of(output_size=values, chance=1 / values, bounds=(0.0, 1.0), **parts)
