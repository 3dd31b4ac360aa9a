"""Runs of gated linear layers whose rounding errors are the largest of an execution model, in one direction."""

from __future__ import annotations

import numpy as np
from gated_runs import decays, signal_values, states
from scipy.special import expit
from worst_rounding import WorstRun, signs

from stability import systems as s
from stability.kernel.systems.execution import FORMATS

ONE = np.ones(1)


class WorstGatedRun(WorstRun):
    """Run of a layer from zero.

    Args:
        layer: the layer.
        model: the arithmetic.
        way: 1 or -1: direction of the errors of states and addends.
        gates: direction of the errors of decays.
        period: steps after which the residuals of the state change their sign.
    """

    def __init__(self, layer, model, way=1.0, gates=1.0, period=7):
        super().__init__(layer, model, np.full(layer.units, way))
        self.way, self.gates, self.period = way, gates, period

    def value(self, signal, u, t, sign):
        """Return a signal at a step with its errors in the direction of ``sign (size,)``."""
        if t < 0:
            return np.zeros(signal.size)
        if isinstance(signal, s.Affine):
            x = self.value(signal.source, u, t, signs(signal.weight.T @ sign))
            return self.product(sign, (signal.weight, x), (signal.bias[:, None], ONE))
        if isinstance(signal, s.Convolution):
            taps = [
                (np.diag(K), self.value(signal.source, u, t - j, sign * signs(K))) for j, K in enumerate(signal.kernel)
            ]
            return self.product(sign, *taps, (signal.bias[:, None], ONE))
        if isinstance(signal, s.SiLU):
            x = self.value(signal.source, u, t, sign)
            return self.rounded(x * self.function(expit(x), sign), sign)
        return u[t]

    def decay(self, gate, u, t, way):
        """Return the decays of a step, pushed up or down, and the steps ``Delta`` of a softplus gate."""
        sign = np.full(gate.units, way)
        if isinstance(gate, s.SoftplusGate):
            step = self.function(np.logaddexp(0.0, self.value(gate.signal, u, t, -sign)), -sign, times=2.0)
            step = np.clip(step, gate.least, np.inf if gate.most is None else gate.most)
            rate = self.function(np.exp(gate.log_rate), -way)
            return self.function(
                np.exp(-self.rounded((step if rate.ndim == 1 else step[:, None]) * rate, -way)), way
            ), step
        if isinstance(gate, s.RGLRUGate):
            rate = self.function(np.logaddexp(0.0, gate.parameter), -sign, times=2.0)
            return self.function(
                np.exp(-8.0 * self.function(expit(self.value(gate.signal, u, t, -sign)), -sign) * rate), sign
            ), None
        if isinstance(gate, s.RatioGate):
            f = self.function(expit(self.value(gate.forget, u, t, sign)), sign)
            i = self.function(expit(self.value(gate.insert, u, t, -sign)), -sign)
            return self.rounded(f / self.rounded(f + i, -sign), sign), None
        return self.function(expit(self.value(gate.signal, u, t, sign)), sign), None

    def function(self, x, sign=1.0, times=1.0):
        """Return a function's value with the error of the library, ``times`` as large."""
        return self.rounded(x, sign, times=times * self.model.ulps)

    def addend(self, layer, u, t, a, step):
        """Return the addend of a step of a layer with a diagonal transition."""
        b, up = layer.injection, np.full(layer.injection.signals[0].size, self.way)
        x = self.value(b.signals[0], u, t, up)
        if isinstance(b, s.StepInjection):
            x = x.reshape(layer.units, -1)
            keys = self.value(b.keys, u, t, np.full(b.keys.size, self.way)).reshape(b.groups, -1)
            keys = np.repeat(keys, layer.units // b.groups, axis=0)
            found = self.rounded(self.rounded(step[:, None] * x, self.way)[..., None] * keys[:, None], self.way)
            return found[:, 0] if a.ndim == 2 else found
        if isinstance(b, s.ConvexInjection):
            if b.activation == "min_gru":
                x = np.where(x >= 0.0, self.rounded(x + 0.5, self.way), self.function(expit(x), self.way))
            return self.rounded(self.rounded(1.0 - a, self.way) * x, self.way)
        gate = self.function(expit(self.value(b.insert, u, t, up)), self.way)
        root = (
            self.rounded(np.sqrt(self.rounded(1.0 - self.rounded(a * a, -self.way), self.way)), self.way) if t else 1.0
        )
        return self.rounded(self.rounded(root * gate, self.way) * x, self.way)

    def store(self, z, t, towards=None):
        """Round a state: return what is stored and what enters the next step."""
        size = np.broadcast_to(self._quantum(z.ravel()).reshape(z.shape), z.shape)
        turn = self.way * (1.0 if t // self.period % 2 else -1.0)
        residual = size * (turn if towards is None else signs(towards))
        if self.model.rounding in ("nearest", "stochastic"):
            return (z + self.way * size,) * 2
        stored = z - residual
        return stored, self.rounded(z, self.way) if self.model.rounding == "feedback" else (stored, residual)

    def errors(self, u, keys=None):
        """Return the distances ``(time, units, ...)`` of the stored states to those of the exact layer."""
        layer, shaped = self.subject, self.model.rounding == "noise_shaping"
        delta = isinstance(layer.injection, s.DeltaInjection)
        exact = states(layer, u, keys=keys)
        q, f, found, g = np.zeros_like(exact[0]), 0.0, [], np.zeros_like(exact[0])
        if delta:
            heads = layer.injection.rate.size
            a = decays(layer.gate, u).reshape(len(u), heads, -1, 1)
            beta = layer.injection.scale * expit(signal_values(layer.injection.rate, u))[..., None]
            v = signal_values(layer.injection.values, u).reshape(len(u), heads, -1)
        for t in range(len(u)):
            towards = None
            if delta:
                k = keys[t]
                kept = self.rounded(a[t] * q, self.way)
                read = self.rounded(np.einsum("hk,hkv->hv", k, kept), -self.way, times=k.shape[1])
                z = kept + self.rounded(
                    k[..., None] * (beta[t] * self.rounded(v[t] - read, self.way))[:, None], self.way
                )
                M = a[t] * np.eye(k.shape[1]) if layer.units == heads else np.eye(k.shape[1]) * a[t].transpose(0, 2, 1)
                M = (np.eye(k.shape[1]) - beta[t][..., None] * k[..., None] * k[:, None]) @ M
                rest = np.eye(k.shape[1]) - M
                towards = self.way * np.swapaxes(rest, 1, 2) @ (M @ (M @ g + rest @ (f + 0.0 * g))) if shaped else None
            else:
                a, step = self.decay(layer.gate, u, t, self.gates)
                z = self.rounded(a.reshape(a.shape + (1,) * (q.ndim - a.ndim)) * q, self.way) + self.addend(
                    layer, u, t, a, step
                )
            z = self.rounded(self.rounded(z, self.way) + f, self.way)
            stored, q = self.store(z, t, towards)
            q, f = q if shaped else (q, 0.0)
            found.append(np.abs(stored - exact[t]))
            g = stored + f - exact[t]
        return np.stack(found)


__all__ = ["FORMATS", "WorstGatedRun"]
