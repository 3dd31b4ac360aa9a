"""Gated linear recurrences: seconds of certificates of checkpoints in the shapes of published models.

    python -m benchmarks.gated_certificates
    python -m benchmarks.gated_certificates --layers 4

Weights are random, in float32 files that are read layer by layer. ``mamba`` has the shape of a Mamba of 130 million
parameters (24 layers of 1,536 channels with 16 states), ``mamba2`` that of a Mamba-2 of 2.7 billion (48 layers of 80
heads of 64 values, 128 states). ``--layers`` shortens both; the time is linear in the number of layers.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch
from safetensors.torch import save_file

import stability.models  # noqa: F401 - registers the readers of checkpoints
from stability import certify, verify

SHAPES = {"mamba": (24, 768, 1536, 16, 48), "mamba2": (48, 2560, 5120, 128, 80)}
"""Layers, width, channels, states, and rank of the step or number of heads."""


def layer(kind: str, index: int, width: int, inner: int, states: int, last: int) -> dict[str, torch.Tensor]:
    """Return random weights of one layer by their names in a checkpoint of transformers."""
    channels = inner if kind == "mamba" else inner + 2 * states
    rows = 2 * inner if kind == "mamba" else inner + channels + last
    weights = {
        "norm.weight": torch.ones(width),
        "mixer.in_proj.weight": torch.randn(rows, width) / width**0.5,
        "mixer.conv1d.weight": torch.randn(channels, 1, 4) / 4,
        "mixer.conv1d.bias": torch.zeros(channels),
    }
    if kind == "mamba":
        weights |= {
            "mixer.A_log": torch.arange(1.0, states + 1).log().repeat(inner, 1),
            "mixer.x_proj.weight": torch.randn(last + 2 * states, inner) / inner**0.5,
            "mixer.dt_proj.weight": torch.randn(inner, last) / last,
            "mixer.dt_proj.bias": torch.full((inner,), -4.6),
        }
    else:
        weights |= {
            "mixer.A_log": torch.rand(last),
            "mixer.dt_bias": torch.full((last,), -4.6),
            "mixer.norm.weight": torch.ones(inner),
        }
    return {f"backbone.layers.{index}.{name}": value for name, value in weights.items()}


def run(kind: str, layers: int | None) -> dict[str, float]:
    """Write a checkpoint, certify it and check the certificate; return sizes and seconds."""
    torch.manual_seed(0)
    count, width, *sizes = SHAPES[kind]
    count = min(count, layers or count)
    with tempfile.TemporaryDirectory() as folder:
        names = {}
        for index in range(count):
            tensors = layer(kind, index, width, *sizes)
            name = f"model-{index:05d}.safetensors"
            save_file(tensors, Path(folder) / name)
            names |= dict.fromkeys(tensors, name)
        Path(folder, "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
        Path(folder, "config.json").write_text(json.dumps({"model_type": kind, "n_groups": 1}))
        started = time.perf_counter()
        certificate = certify(folder)
        certified = time.perf_counter()
        valid = verify(certificate, weights=folder).valid
        ended = time.perf_counter()
    if not valid or str(certificate.verdict) != "certified":
        raise SystemExit(f"{kind}: {certificate.verdict}, valid: {valid}")
    return {"layers": count, "certify": certified - started, "verify": ended - certified}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, help="number of layers; all by default")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in SHAPES:
        print(kind, {key: round(value, 1) for key, value in run(kind, options.layers).items()})
