"""Sequence generation: encode an audio-like excerpt in the weights of a network that gets no signal.

Koutnik, Greff, Gomez, Schmidhuber, "A clockwork RNN" (ICML 2014), and section 5.1 of Mhammedi, Hellicar,
Rahman, Bailey (ICML 2017): five consecutive excerpts of 800 samples of a recording at 44.1 kHz. The recording
here is made, not recorded: plucked notes with decaying harmonics.
"""

from __future__ import annotations

import numpy as np
import torch

from .base import Task, check_size, register_task, task_of

EXCERPTS = 5
RATE = 44_100


def plucked_notes(seed: int, samples: int, rate: int = RATE) -> np.ndarray:
    r"""A mono signal of plucked notes, each a sum of decaying harmonics.

    .. math:: s(t) = \sum_{\text{notes}} \sum_{k=1}^{8} \frac{a}{k^{p}}
              e^{-d k (t - t_0)} \sin(2 \pi f_k (t - t_0) + \varphi_k), \qquad
              f_k = k f \sqrt{1 + \beta k^2} .

    Several notes sound from the beginning and more are plucked on the way; ``beta`` is the inharmonicity of a
    stiff string.

    Args:
        seed: of pitches, onsets, strengths and phases.
        samples: length.
        rate: samples a second.

    Returns:
        ``(samples,)`` float64, not normalised.
    """
    rng = np.random.default_rng([3, seed])
    t = np.arange(samples) / rate
    earlier, later = -rng.uniform(0.0, 0.05, 4), rng.uniform(0.0, samples / rate, 1 + samples // 800)
    onsets = np.concatenate([earlier, later])
    signal = np.zeros(samples)
    for onset in onsets:
        pitch = 110.0 * 2.0 ** (rng.integers(0, 37) / 12.0)  # three octaves of equal temperament
        strength, fall, damping = rng.uniform(0.5, 1.0), rng.uniform(0.8, 1.6), rng.uniform(2.0, 12.0)
        age = np.where(t >= onset, t - onset, 0.0)
        for k in range(1, 9):
            frequency = k * pitch * np.sqrt(1.0 + 3e-4 * k * k)
            if frequency < 0.45 * rate:
                wave = np.sin(2 * np.pi * frequency * age + rng.uniform(0, 2 * np.pi) * (onset < 0))
                signal += strength / k**fall * np.exp(-damping * k * age) * wave * (t >= onset)
    return signal


@register_task("generation")
def generation(*, seed: int = 0, steps: int = 800, excerpt: int | None = None) -> Task:
    """Generate an excerpt, step by step, from a constant input that only says which one.

    Each excerpt is scaled to mean 0 and variance 1, so the mean squared error is the normalised one (NMSE)
    and always answering the mean has the error 1. There is nothing to generalise to: the test part is the
    training part.

    Args:
        seed: of the recording.
        steps: samples of an excerpt.
        excerpt: which of the five, from 0, as in the papers, one network each; ``None``: all five at once,
            told apart by a one-hot input.

    Returns:
        The task: one value at every step.

    Raises:
        ConfigurationError: a bad option.

    Example:
        >>> task = generation(steps=100, excerpt=2)
        >>> x, y = task.train
        >>> tuple(x.shape), tuple(y.shape), round(float(y.square().mean()), 4)
        ((1, 100, 1), (1, 100, 1), 1.0)
    """
    check_size("steps", steps, 8, 10**6)
    signal = plucked_notes(seed, EXCERPTS * steps).reshape(EXCERPTS, steps)
    signal = (signal - signal.mean(axis=1, keepdims=True)) / signal.std(axis=1, keepdims=True)
    y = torch.from_numpy(signal.astype(np.float32)).unsqueeze(2)
    if excerpt is None:
        x = torch.eye(EXCERPTS).unsqueeze(1).expand(-1, steps, -1).contiguous()
    else:
        check_size("excerpt", excerpt, 0, EXCERPTS - 1)
        y = y[excerpt : excerpt + 1]
        x = torch.ones(1, steps, 1)
    data = {"source": "generated", "seed": seed, "rate": RATE}
    return task_of((x, y), (x, y), chance=1.0, data=data)
