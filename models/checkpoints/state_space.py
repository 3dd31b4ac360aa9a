"""Layouts of Mamba, Mamba-2 and of the linear time-invariant layers S4D, S5 and LRU."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import FileFormatError, UnsupportedError
from stability.systems import Affine, ConstantGate, LinearInjection, Normalized, SoftplusGate, StepInjection

from .layer_weights import MOST_ENTRIES, InputSet, LayerWeights, Signal, as_number

Parts = tuple[Any, Any]
CLIPPED = -1e-4
"""Largest real part of S5's eigenvalues with ``clip_eigs``."""


def mamba(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of Mamba, FalconMamba and Jamba; rows of ``x_proj`` are step, B and C.

    FalconMamba normalizes step, B and C without weights; Jamba and mamba.py with weights.
    """
    log_rate = layer.array("A_log", None, None)
    channels, states = log_rate.shape
    values = layer.activated("conv1d", layer.affine("in_proj", u, slice(channels)))
    rank = layer.array("dt_proj.weight", channels, None).shape[1]
    projection = layer.array("x_proj.weight", rank + 2 * states, channels)
    step, keys = Affine(projection[:rank], values), Affine(projection[rank : rank + states], values)
    if layer.model_type == "falcon_mamba":
        eps = layer.number("mixer_rms_eps", default=1e-6)
        step, keys = (Normalized(np.ones(signal.size), signal, eps) for signal in (step, keys))
    elif layer.has("dt_layernorm.weight"):
        lower = layer.has("b_layernorm.weight")
        eps = layer.number("rms_norm_eps", default=1e-6 if lower else 1e-5)
        step = Normalized(layer.array("dt_layernorm.weight", rank), step, eps)
        keys = Normalized(layer.array(f"{'b' if lower else 'B'}_layernorm.weight", states), keys, eps)
    return SoftplusGate(log_rate, layer.affine("dt_proj", step)), StepInjection(values, keys)


def mamba2(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of Mamba-2; the last rows of ``in_proj`` are [x | B | C | step]."""
    log_rate = layer.array("A_log", None)
    heads, channels = len(log_rate), len(layer.array("conv1d.weight", None, 1, None))
    if layer.has("norm.weight"):
        size = len(layer.array("norm.weight", None))
    else:  # of 2 m + size + channels + heads rows, m + size values go to out_proj: m of them around the recurrence
        rows = len(layer.array("in_proj.weight", None, u.size)) - channels - heads
        size = 2 * layer.array("out_proj.weight", None, None).shape[1] - rows
    names = ("n_groups", "mamba_n_groups", "mamba_ngroups", "ngroups")
    groups = layer.count(*names, default=1) if "d_model" in layer.config else layer.count(*names)  # mamba_ssm: 1
    keys = (channels - size) // 2
    if size < 1 or size % heads or keys < 1 or size + 2 * keys != channels or keys % groups or heads % groups:
        raise FileFormatError(f"{layer.prefix}: the sizes of in_proj, conv1d, norm and A_log do not fit together")
    projection = layer.affine("in_proj", u, slice(-channels - heads, None))
    weight, bias = projection.weight, projection.bias
    if layer.model_type == "falcon_h1":
        factors = _multipliers(layer, [size, keys, keys, heads])
        weight = weight * (factors * layer.number("ssm_in_multiplier", default=1.0))[:, None]
        bias = bias * factors

    def signal(rows: slice) -> Signal:
        return layer.activated("conv1d", Affine(weight[rows], u, bias[rows]), rows)

    step = Affine(weight[-heads:], u, bias[-heads:] + layer.array("dt_bias", heads))
    least, most = _step_limits(layer) if layer.step_limits else (0.0, np.inf)
    gate = SoftplusGate(log_rate, step, np.full(heads, least), None if most == np.inf else most)
    return gate, StepInjection(signal(slice(size)), signal(slice(size, size + keys)), groups)


def _multipliers(layer: LayerWeights, counts: list[int]) -> np.ndarray:
    """Return Falcon-H1's factors of the rows of ``in_proj`` for x, B, C and the step."""
    factors = layer.setting("ssm_multipliers", default=[1.0] * 5)
    if not isinstance(factors, list) or len(factors) != 5:
        raise FileFormatError("ssm_multipliers must be five numbers: of z, x, B, C and the step")
    return np.repeat([as_number(factor, "ssm_multipliers") for factor in factors[1:]], counts)


def _step_limits(layer: LayerWeights) -> tuple[float, float]:
    """Return the limits of the step when a whole sequence is read at once; the decoding of one token has none."""
    if layer.model_type in ("zamba2", "nemotron_h"):
        return layer.number("time_step_min", default=0.001), np.inf
    limits = layer.setting("time_step_limit", "dt_limit", default=[0.0, np.inf])
    if not isinstance(limits, list) or len(limits) != 2:
        raise FileFormatError(f"time_step_limit must be two numbers, got {limits!r:.40}")
    least, most = (as_number(limit, "time_step_limit") for limit in limits)
    return least, most


def s4d(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of S4D: every feature has its own modes."""
    log_rate = layer.array("kernel.log_A_real", None, None)
    features, modes = log_rate.shape
    if features * modes * 2 * features > MOST_ENTRIES:
        raise UnsupportedError(f"{layer.prefix}: {features} features with {modes} modes each are too many")
    weight = np.zeros((features, modes, 2, features))
    weight[np.arange(features), :, 0, np.arange(features)] = 1.0
    step = np.repeat(layer.array("kernel.log_dt", features), modes)
    gate = ConstantGate(u, log_rate=log_rate.reshape(-1), log_step=step)
    return gate, LinearInjection(weight.reshape(-1, features), hold=True)


def s5(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of S5; real parts of eigenvalues are as stored, unless ``clip_eigs`` is set."""
    if layer.has("C2") or layer.flag("bidirectional", default=False):
        raise UnsupportedError(f"{layer.prefix}: a bidirectional S5 is no causal recurrence")
    rate = layer.vector("Lambda_re")
    rate = np.minimum(rate, CLIPPED) if layer.flag("clip_eigs", default=False) else rate
    weight = layer.array("B", len(rate), u.size, 2)
    log_step = layer.vector("log_step", len(rate))
    log_step = log_step + np.log(layer.number("step_rescale", default=1.0))
    method = layer.setting("discretization")
    if method == "zoh":
        rows = weight.transpose(0, 2, 1).reshape(-1, u.size)
        return ConstantGate(u, rate=rate, log_step=log_step), LinearInjection(rows, hold=True)
    if method != "bilinear":
        raise UnsupportedError(f"{layer.prefix}: the discretization must be zoh or bilinear, got {method!r:.40}")
    half = 0.5 * np.exp(log_step) * (rate + 1j * layer.vector("Lambda_im", len(rate)))
    b = (weight[..., 0] + 1j * weight[..., 1]) * (np.exp(log_step) / (1.0 - half))[:, None]
    gate = ConstantGate(u, rate=np.log(np.abs((1.0 + half) / (1.0 - half))))
    return gate, LinearInjection(_rows(b))


def lru(layer: LayerWeights, u: InputSet) -> Parts:
    """Return gate and injection of the LRU: ``B`` is complex, or stored as two real matrices."""
    log_rate = layer.vector("nu_log")
    if layer.has("B_re"):
        b = layer.array("B_re", len(log_rate), u.size) + 1j * layer.array("B_im", len(log_rate), u.size)
    else:
        b = layer.array("B", len(log_rate), u.size)
    return ConstantGate(u, log_rate=log_rate), LinearInjection(_rows(b), layer.vector("gamma_log", len(log_rate)))


def _rows(b: np.ndarray) -> np.ndarray:
    """Return real and imaginary rows of a complex matrix in turns."""
    return np.stack([np.real(b), np.imag(b)], axis=1).reshape(-1, b.shape[1])
