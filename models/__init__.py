"""Recurrent layers, their parametrizations, and model files."""

from __future__ import annotations

from os import PathLike
from typing import Any

from torch import nn

from stability.conversion.subjects import register_controller

from .adapters.modules import certify_all, lure_system, recurrent_parts, register_adapter
from .adapters.torch_modules import as_array, from_rows
from .antisymmetric import AntisymmetricRNN
from .bounded_gain import BoundedGainRNN
from .cells import register_cell
from .checkpoint_network import load_network
from .contracting import ContractingRNN
from .counting import free_parameters
from .deep import DeepNetwork
from .elman import ElmanRNN
from .factorizations import LQ, QR, PivotedQR, lq, lstsq, pivoted_qr, qr
from .files import build, describe, load, save
from .gated import GRU, LSTM
from .gated_checkpoints import gated_layers
from .gated_linear.mamba import Mamba
from .gated_linear.matrix_state import GatedDeltaNet, Mamba2
from .gated_linear.minimal import MinGRU, MinLSTM
from .gated_linear.rglru import RGLRU
from .gated_linear.state_space import S4D, S5
from .householder import HouseholderRNN
from .linear import LinearLayer
from .lipschitz import LipschitzRNN
from .lru import LRU
from .lure import rnn_subject
from .named import named_subject
from .network import SequenceModel
from .neural_ode import NeuralODERNN
from .onnx.writing import export_onnx
from .parametrizations.householder import Householder, make_orthogonal
from .parametrizations.planes import Rotation
from .parametrizations.reflections import householder_apply, householder_matrix
from .parametrizations.stiefel import Stiefel, make_orthonormal, orthonormal
from .parametrizations.symmetric_skew import (
    SymmetricSkew,
    proposition1_bounds,
    published_proposition1_bounds,
    symmetric_skew,
)
from .parametrizations.unitary import Unitary, real_form, unitary_matrix
from .recurrent import LAYERS, RecurrentLayer, register_layer
from .reservoir import EchoStateRNN
from .rotrnn import RotRNN
from .scans.chunked import delta_rule_scan, scalar_gated_scan
from .scans.linear import diagonal_convolution, diagonal_scan, rotation_scan
from .scans.scan import associative_scan
from .stack import Stack
from .step_layer import StepLayer
from .unitary import UnitaryRNN


def _read_controller(value: Any) -> list[Any]:
    from .adapters.controllers import read_controller  # its imports take a second

    return read_controller(value)


register_controller(lambda v: isinstance(v, (nn.Module, str, PathLike)) or hasattr(v, "Wout"), _read_controller)

__all__ = [
    "GRU",
    "LAYERS",
    "LQ",
    "LRU",
    "LSTM",
    "LinearLayer",
    "QR",
    "RGLRU",
    "S4D",
    "S5",
    "AntisymmetricRNN",
    "BoundedGainRNN",
    "ContractingRNN",
    "DeepNetwork",
    "EchoStateRNN",
    "ElmanRNN",
    "GatedDeltaNet",
    "Householder",
    "HouseholderRNN",
    "LipschitzRNN",
    "Mamba",
    "MinGRU",
    "MinLSTM",
    "Mamba2",
    "NeuralODERNN",
    "PivotedQR",
    "RecurrentLayer",
    "RotRNN",
    "Rotation",
    "SequenceModel",
    "Stack",
    "StepLayer",
    "Stiefel",
    "SymmetricSkew",
    "Unitary",
    "UnitaryRNN",
    "as_array",
    "associative_scan",
    "build",
    "certify_all",
    "delta_rule_scan",
    "describe",
    "diagonal_convolution",
    "diagonal_scan",
    "export_onnx",
    "free_parameters",
    "from_rows",
    "householder_apply",
    "householder_matrix",
    "load",
    "load_network",
    "lq",
    "lstsq",
    "lure_system",
    "make_orthogonal",
    "make_orthonormal",
    "gated_layers",
    "named_subject",
    "orthonormal",
    "pivoted_qr",
    "proposition1_bounds",
    "published_proposition1_bounds",
    "qr",
    "real_form",
    "recurrent_parts",
    "register_adapter",
    "register_cell",
    "register_layer",
    "rnn_subject",
    "rotation_scan",
    "save",
    "scalar_gated_scan",
    "symmetric_skew",
    "unitary_matrix",
]
