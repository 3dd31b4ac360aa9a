"""Runs in which every operation is off by the largest error that an execution model allows, in the worst direction."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.systems.execution import FORMATS, ExecutionModel
from stability.kernel.systems.gated_cell import GatedCell
from stability.systems import DrivenSystem, PairwiseSystem

Array = np.ndarray


def signs(x: Array) -> Array:
    """Return -1 or 1 for each entry; 1 for zero."""
    return np.where(x < 0.0, -1.0, 1.0)


class WorstRun:
    """Run of a network from zero whose errors push the state in a fixed direction.

    Args:
        subject: the network.
        model: the arithmetic.
        direction: ``(n,)``.
    """

    def __init__(self, subject: Any, model: ExecutionModel, direction: Array) -> None:
        self.subject, self.model, self.direction = subject, model, direction
        self.state, self.stored = np.zeros(subject.states), np.zeros(subject.states)

    def rounded(self, x: Array, sign: Array | float = 1.0, name: str = "", times: float = 1.0) -> Array:
        """Return ``x`` after an operation in a format, with its error in the direction of ``sign``."""
        kind = FORMATS[name or self.model.format]
        return x + sign * times * (kind.unit * np.abs(x) + kind.tiny)

    def function(self, x: Array, sign: Array | float = 1.0) -> Array:
        """Return a value of tanh or of the logistic function with the error of the library."""
        return self.rounded(x, sign, times=self.model.ulps)

    def product(self, sign: Array, *terms: tuple[Array, Array]) -> Array:
        """Return a sum of matrix products: rounded weights, products added in the order of the largest sums."""
        model = self.model
        matrix, x = np.hstack([M for M, _ in terms]), np.concatenate([v for _, v in terms])
        used, way = matrix != 0.0, sign[:, None] * signs(matrix * x)
        largest = np.concatenate([np.full(M.shape[1], np.abs(M).max(initial=0.0)) for M, _ in terms])
        sizes = np.abs(matrix) + way * model.weight_error * largest
        factors = np.broadcast_to(np.abs(x), matrix.shape)
        for name in {model.weights} & set(FORMATS):
            sizes = self.rounded(sizes, way, name)
        for name in {model.factors} & set(FORMATS):
            sizes, factors = self.rounded(sizes, way, name), self.rounded(factors, way, name)
        values = np.where(
            used, self.rounded(signs(matrix * x) * sizes * factors, sign[:, None], model.accumulation), 0.0
        )
        values = np.take_along_axis(values, np.argsort(-values * sign[:, None], axis=1), axis=1)
        total = values[:, 0]
        for k in range(1, values.shape[1]):
            added = self.rounded(total + values[:, k], sign, model.accumulation)
            total = np.where(values[:, k] != 0.0, added, total)
        return total if model.accumulation == model.format else self.rounded(total, sign)

    def step(self, u: Array) -> Array:
        """Advance by one step and return the stored state."""
        way = signs(self.direction)
        run = {DrivenSystem: self._driven, PairwiseSystem: self._pairs, GatedCell: self._cell}[type(self.subject)]
        computed = run(self.state, u, way)
        self.stored = computed + way * self._quantum(computed)
        self.state = computed if self.model.rounding == "feedback" else self.stored
        return self.stored

    def _quantum(self, x: Array) -> Array:
        if self.model.state in FORMATS:
            kind = FORMATS[self.model.state]
            return kind.unit * np.abs(x) + kind.tiny
        bits, _, block = self.model.state.removeprefix("int").partition(":")
        length = int(block) if block else len(x)
        largest = [np.abs(x[k : k + length]).max() for k in range(0, len(x), length)]
        share = 1.0 if self.model.rounding == "stochastic" else 0.5
        return np.repeat(largest, length)[: len(x)] * share / (2 ** (int(bits) - 1) - 1)

    def _channels(self, system: Any, E: Array, b: Array, x: Array, u: Array, way: Array) -> Array:
        phi = activation(self.subject.activation)
        sign = signs(system.B.T @ way)
        w = phi.function(self.product(sign, (system.C, x), (E, u), (b[:, None], np.ones(1))))
        return self.function(w, sign) if phi.width is not None else w

    def _driven(self, x: Array, u: Array, way: Array) -> Array:
        system, E, b = self.subject.system, self.subject.E, self.subject.b
        if system.origin is None:
            w = self._channels(system, E, b, x, u, way) if system.channels else np.zeros(0)
            plain = np.isfinite(self.subject.output_bound) or (
                not system.A.any() and not self.subject.F.any() and np.array_equal(system.B, np.eye(len(x)))
            )
            return w if plain else self.product(way, (system.A, x), (system.B, w), (self.subject.F, u))
        base, dt = system.origin.base, system.origin.dt

        def moved(at: Array, size: float, sign: Array) -> Array:
            w = self._channels(base, E[: base.channels], b[: base.channels], at, u, sign)
            field = self.product(sign, (base.A, at), (base.B, w))
            return self.rounded(x + self.rounded(self.rounded(size, sign) * field, sign), sign)

        if system.origin.method == "euler":
            return moved(x, dt, way)
        inner = signs(base.A.T @ way + base.C.T @ (base.B.T @ way))
        return moved(moved(x, 0.5 * dt, inner), dt, way)

    def _pairs(self, x: Array, u: Array, way: Array) -> Array:
        network = self.subject
        inside = network.activation == "modrelu"
        ones = (np.zeros((len(x), 1)) if inside else network.b[:, None], np.ones(1))
        z = self.product(way, (network.W, x), (network.V, u), ones)
        shifted = PairwiseSystem(
            np.zeros_like(network.W), np.eye(len(x)), np.zeros(len(x)) if not inside else network.b,
            network.activation, angles=network.angles,
        )  # fmt: skip
        y = shifted.advance(x, z)
        return self.rounded(y, way, times=8.0) if network.activation in ("modrelu", "householder") else y

    def _cell(self, x: Array, u: Array, _: Array) -> Array:
        cell, m, one = self.subject, self.subject.hidden, np.ones(1)
        way = np.full(len(cell.w_ih), signs(self.direction)[0])

        def part(W: Array, R: Array, b: Array, r: Array, h: Array) -> tuple[Array, Array]:
            sign = way[: len(W)]
            return self.product(sign, (W, u), (b[:, None], one)), self.product(sign, (R, h), (r[:, None], one))

        drive, recurrent = part(cell.w_ih, cell.w_hh, cell.b_ih, cell.b_hh, x[:m])
        z = self.rounded(drive + recurrent)
        logistic = activation("sigmoid").function
        if cell.kind == "lstm":
            i, f, o = (self.function(logistic(z[k * m : (k + 1) * m])) for k in (0, 1, 3))
            g = self.function(np.tanh(z[2 * m : 3 * m]))
            c = self.rounded(self.rounded(f * x[m:]) + self.rounded(i * g))
            return np.concatenate([self.rounded(o * self.function(np.tanh(c))), c])
        r, update = (self.function(logistic(z[k * m : (k + 1) * m])) for k in (0, 1))
        if cell.reset_after:
            gated = self.rounded(r * recurrent[2 * m :])
        else:
            W, R, b, r0 = cell.gate("n")
            gated = part(W, R, b, r0, self.rounded(r * x[:m]))[1]
        n = self.function(np.tanh(self.rounded(drive[2 * m :] + gated)))
        return self.rounded(n + self.rounded(update * self.rounded(x[:m] - n)))


def largest_distance(subject: Any, model: ExecutionModel, direction: Array, inputs: Array) -> float:
    """Return the largest distance of a worst run to the network in float64, over inputs ``(time, p)``."""
    run, exact, largest = WorstRun(subject, model, direction), np.zeros(subject.states), 0.0
    for u in inputs:
        exact = subject.advance(exact, u)
        largest = max(largest, float(np.linalg.norm(run.step(u) - exact)))
    return largest
