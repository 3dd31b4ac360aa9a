"""Inverted pendulum with a recurrent controller and a limited torque: proved region of attraction, and its picture.

Train a controller of four tanh units, which reads the angle alone, prove from which states the loop returns to the
upright position, and compare with simulations::

    python examples/pendulum.py FOLDER

The pendulum is nonlinear (sine of the angle) and moves by Euler steps of 0.02 s; its numbers are those of Yin, Seiler
and Arcak, "Stability analysis using quadratic constraints for systems with neural network controllers" (2022). The
simulations start on a grid of angles and speeds, with the controller at rest. They cover angles up to pi and speeds up
to those of a fall without friction. The example stops with an error where a certified start does not return.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

import stability.models  # noqa: F401 - reads torch modules
from stability import Claim, feedback, regional
from stability.systems import ControlLoop

GRAVITY, LENGTH, MASS, FRICTION, TORQUE, STEP = 9.81, 0.5, 0.15, 0.5, 0.7, 0.02  # SI units
INERTIA = MASS * LENGTH**2
A = np.array([[1.0, STEP], [0.0, 1.0 - STEP * FRICTION / INERTIA]])  # angle and speed, without gravity and torque
PULL, PUSH = np.array([[0.0], [STEP * GRAVITY / LENGTH]]), np.array([[0.0], [STEP / INERTIA]])
FASTEST = 2.0 * math.sqrt(GRAVITY / LENGTH)  # rad/s, at the bottom of a fall from the upright position


def train(seed: int = 0, steps: int = 200) -> nn.Sequential:
    """Train a controller on simulated pendulums; small weights keep its units in their nearly linear range."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    rnn, readout = nn.RNN(1, 4, bias=False).double(), nn.Linear(4, 1, bias=False).double()
    optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=3e-2)
    move, pull, push = (torch.tensor(matrix.T) for matrix in (A, PULL, PUSH))
    for _ in range(steps):
        state = (2.0 * torch.rand(64, 2).double() - 1.0) * torch.tensor([0.6, 2.5])
        hidden, cost = torch.zeros(64, 4).double(), torch.zeros(()).double()
        for _ in range(75):
            hidden = torch.tanh(hidden @ rnn.weight_hh_l0.T + state[:, :1] @ rnn.weight_ih_l0.T)
            torque = readout(hidden) / TORQUE
            torque = 0.98 * torque.clamp(-1.0, 1.0) + 0.02 * torque  # a saturated torque has a gradient, too
            state = state @ move + torch.sin(state[:, :1]) @ pull + TORQUE * torque @ push
            cost = cost + (torch.tanh(state**2) @ torch.tensor([1.0, 0.02]).double()).mean() / 75
        size = sum((weight**2).sum() for weight in rnn.parameters())
        optimizer.zero_grad()
        (cost + 3e-2 * size).backward()
        nn.utils.clip_grad_norm_([*rnn.parameters(), *readout.parameters()], 1.0)
        optimizer.step()
    return nn.Sequential(rnn, readout)


def closed_loop(controller: nn.Sequential) -> ControlLoop:
    """Return pendulum, controller and actuator as one system with the states angle, speed and hidden state."""
    pendulum = ControlLoop(A, PULL, [[1.0, 0.0]], slope="sin", dt=STEP)
    return feedback((pendulum, PUSH, [[1.0, 0.0]]), controller, sign=1, saturation=TORQUE)


def inside(claim: Claim, starts: np.ndarray) -> np.ndarray:
    """Return which starts ``(k, 2)``, with the controller at rest, lie in the certified ellipsoid."""
    data = claim.proof.data  # pyright: ignore[reportOptionalMemberAccess]
    return np.einsum("ki,ij,kj->k", starts, data["P"][:2, :2], starts) <= data["level"]


def returns(loop: ControlLoop, starts: np.ndarray, seconds: float = 20.0) -> np.ndarray:
    """Return which starts ``(k, 2)`` come to the upright position, by simulation."""
    state = np.hstack([starts, np.zeros((len(starts), loop.states - 2))])
    for _ in range(round(seconds / STEP)):
        state = np.clip(loop.advance(state), -1e3, 1e3)
    return (np.abs(state) < 1e-3).all(axis=1)


def grid(count: int = 101) -> np.ndarray:
    """Return ``(count^2, 2)`` angles and speeds."""
    axes = np.linspace(-math.pi, math.pi, count), np.linspace(-FASTEST, FASTEST, count)
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)


def draw(claim: Claim, starts: np.ndarray, simulated: np.ndarray, path: Path) -> None:
    """Draw the simulated region, the ellipsoid's section and the box."""
    figure = Figure(figsize=(6.0, 4.5), layout="constrained")
    axes, side = figure.subplots(), math.isqrt(len(starts))
    angle, speed = (starts[:, k].reshape(side, side) for k in (0, 1))
    axes.contourf(angle, speed, simulated.reshape(side, side), levels=[0.5, 1.5], colors=["0.85"])
    data = claim.proof.data  # pyright: ignore[reportOptionalMemberAccess]
    circle = 2.0 * np.pi * np.linspace(0.0, 1.0, 200)
    root = np.linalg.cholesky(np.linalg.inv(data["P"][:2, :2]) * data["level"])
    axes.plot(*(root @ [np.cos(circle), np.sin(circle)]), label="certified ellipsoid")
    a, b = data["box"][:2]
    axes.plot([-a, a, a, -a, -a], [-b, -b, b, b, -b], label="certified box")
    axes.set(xlim=(-math.pi, math.pi), ylim=(-FASTEST, FASTEST), xlabel="angle (rad)", ylabel="speed (rad/s)")
    axes.set_title("gray: simulated region of attraction")
    axes.legend()
    figure.savefig(path)


def main(folder: str = ".") -> None:
    """Train, prove, simulate, compare, draw."""
    loop = closed_loop(train())
    claim = regional(loop, box=[1.0, 4.0, *[0.0] * (loop.states - 2)])
    print(claim.statement)
    if claim.proof is None:
        raise SystemExit("no region of attraction was proved")
    starts = grid()
    certified, simulated = inside(claim, starts), returns(loop, starts)
    if (certified & ~simulated).any():
        raise SystemExit(f"a certified start does not return: {starts[certified & ~simulated][0]}")
    angle, speed = claim.proof.data["box"][:2]
    print(f"box of initial states: angle up to {angle:.2f} rad, speed up to {speed:.2f} rad/s, controller at rest")
    print(f"certified area over simulated area: {certified.sum() / simulated.sum():.0%}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    draw(claim, starts, simulated, Path(folder) / "pendulum.svg")


if __name__ == "__main__":
    main(*sys.argv[1:2])
