"""Generated tasks with exact targets; training and test sequences come from separate random streams."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from stability.errors import ConfigurationError

from .base import Pair, Task, check_size, generated_parts, register_task, task_of


@register_task("adding")
def adding(*, seed: int = 0, steps: int = 100, train: int = 4000, test: int = 1000) -> Task:
    """Make the adding problem (Hochreiter and Schmidhuber 1997): the sum of the two marked numbers.

    Feature 0 is uniform in [0, 1]; feature 1 marks one step in each half with a 1. The chance level is the
    variance of the target, 1/6: the error of always answering 1.

    Args:
        seed: seed of the sequences.
        steps: length, at least 2.
        train: number of training sequences.
        test: number of test sequences.

    Returns:
        The task: one value per sequence.

    Raises:
        ConfigurationError: a bad option.

    Example:
        >>> x, y = adding(steps=10, train=3, test=1).train
        >>> bool(torch.equal((x[..., 0] * x[..., 1]).sum(1, keepdim=True), y))
        True
    """
    check_size("steps", steps, 2)

    def make(n: int, rng: np.random.Generator) -> Pair:
        values = rng.random((n, steps), dtype=np.float32)
        half = steps // 2
        marks = np.zeros((n, steps), dtype=np.float32)
        rows = np.arange(n)
        marks[rows, rng.integers(0, half, n)] = 1.0
        marks[rows, rng.integers(half, steps, n)] = 1.0
        x = torch.from_numpy(np.stack([values, marks], axis=2))
        return x, (x[..., 0] * x[..., 1]).sum(1, keepdim=True)

    parts = generated_parts(make, seed, train, test, numbers=2 * steps)
    return task_of(chance=1 / 6, bounds=(0.0, 1.0), **parts)


@register_task("copying")
def copying(
    *, seed: int = 0, delay: int = 50, length: int = 10, symbols: int = 8, train: int = 4000, test: int = 1000
) -> Task:
    """Make the copying problem: repeat ``length`` symbols after ``delay`` blanks, when the cue comes.

    Inputs are one-hot over ``symbols`` letters, a blank and a cue; ``delay + 2 length`` steps. The target is
    blank until the cue has come, then the letters in order. The metric counts the last ``length`` steps only:
    chance ``1 / symbols``.

    Args:
        seed: seed of the sequences.
        delay: steps between the letters and their recall, at least 1 (the last one carries the cue).
        length: letters to remember.
        symbols: size of the alphabet.
        train: number of training sequences.
        test: number of test sequences.

    Returns:
        The task: one class per step (letters ``0 .. symbols - 1``, blank ``symbols``).

    Raises:
        ConfigurationError: a bad option.

    Example:
        >>> task = copying(delay=3, length=2, train=1, test=1)
        >>> x, y = task.train
        >>> bool(torch.equal(x[:, :2].argmax(-1), y[:, -2:])), task.steps
        (True, 7)
    """
    check_size("delay", delay)
    check_size("length", length)

    check_size("symbols", symbols, 2, 1000)
    steps = delay + 2 * length

    def make(n: int, rng: np.random.Generator) -> Pair:
        letters = rng.integers(0, symbols, (n, length))
        inputs, targets = np.full((n, steps), symbols), np.full((n, steps), symbols)
        inputs[:, :length], inputs[:, length + delay - 1] = letters, symbols + 1
        targets[:, -length:] = letters
        return torch.from_numpy(np.eye(symbols + 2, dtype=np.float32)[inputs]), torch.from_numpy(targets)

    scored = torch.zeros(steps, dtype=torch.bool)
    scored[-length:] = True
    parts = generated_parts(make, seed, train, test, numbers=steps * (symbols + 2))
    return task_of(output_size=symbols + 1, chance=1 / symbols, scored=scored, bounds=(0.0, 1.0), **parts)


def pendulum_flow(start: np.ndarray, times: np.ndarray, damping: float) -> np.ndarray:
    r"""Solve the damped pendulum :math:`\ddot\theta = -\sin\theta - c\,\dot\theta` (DOP853, tolerance 1e-10).

    Args:
        start: ``(n, 2)`` angles and angular velocities at time 0.
        times: ``(k,)`` increasing times, the first 0.
        damping: ``c``.

    Returns:
        ``(n, k, 2)`` states.
    """
    n = len(start)

    def field(_: float, state: np.ndarray) -> np.ndarray:
        angle, velocity = state[:n], state[n:]
        return np.concatenate([velocity, -np.sin(angle) - damping * velocity])

    span = (float(times[0]), float(times[-1]))
    solution = solve_ivp(field, span, start.T.ravel(), method="DOP853", t_eval=times, rtol=1e-10, atol=1e-10)
    return solution.y.reshape(2, n, len(times)).transpose(1, 2, 0)


@register_task("pendulum")
def pendulum(
    *,
    seed: int = 0,
    steps: int = 100,
    dt: float = 0.1,
    damping: float = 0.2,
    target: str = "next",
    train: int = 500,
    test: int = 200,
) -> Task:
    """Make the task of a damped pendulum with random initial states ``(angle, angular velocity)``.

    Args:
        seed: seed of the initial states: angles uniform within 0.75 pi of rest, velocities within 0.75,
            so that it never swings over the top.
        steps: time steps of a trajectory.
        dt: time between two samples.
        damping: friction, >= 0.
        target: ``"next"``: from the states so far, the next state (chance: the error of repeating the present
            one); ``"trajectory"``: from the initial state, held as a constant input, the whole trajectory
            (chance: the variance).
        train: number of training trajectories.
        test: number of test trajectories.

    Returns:
        The task: two values per step.

    Raises:
        ConfigurationError: a bad option.

    Example:
        >>> x, y = pendulum(steps=20, train=2, test=1).train
        >>> bool(torch.equal(x[:, 1:], y[:, :-1]))
        True
    """
    check_size("steps", steps, 2)
    if target not in ("next", "trajectory"):
        raise ConfigurationError(f"target must be 'next' or 'trajectory', got {target!r}")
    for name, value, low in (("dt", dt, 1e-6), ("damping", damping, 0.0)):
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not (real and math.isfinite(value) and value >= low):
            raise ConfigurationError(f"{name} must be a finite number >= {low}, got {value!r}")

    def make(n: int, rng: np.random.Generator) -> Pair:
        start = np.column_stack([rng.uniform(-0.75, 0.75, n) * math.pi, rng.uniform(-0.75, 0.75, n)])
        states = pendulum_flow(start, dt * np.arange(steps + 1), damping)
        future = torch.from_numpy(states[:, 1:].astype(np.float32).copy())
        if target == "trajectory":
            x = torch.from_numpy(start.astype(np.float32))
            return x.unsqueeze(1).repeat(1, steps, 1), future
        return torch.from_numpy(states[:, :-1].astype(np.float32).copy()), future

    parts = generated_parts(make, seed, train, test, numbers=2 * steps)
    return task_of(chance=_pendulum_chance(parts["test"], target), **parts)


def _pendulum_chance(pair: tuple[Tensor, Tensor], target: str) -> float:
    x, y = pair
    guess = x if target == "next" else y.mean((0, 1))
    return float((y - guess).double().square().mean())
