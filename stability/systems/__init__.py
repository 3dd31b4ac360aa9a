"""Public names of the subjects of claims: Lur'e systems, networks with inputs, gated linear layers, reservoirs."""

from stability.conversion.reservoirs import reservoir_system
from stability.kernel.checks import as_matrix, as_slope
from stability.kernel.systems.decay_gates import ConstantGate, RatioGate, RGLRUGate, SigmoidGate, SoftplusGate
from stability.kernel.systems.derived_signals import Affine, Convolution, Normalized, SiLU, Tanh
from stability.kernel.systems.driven import ControlLoop, DrivenSystem
from stability.kernel.systems.gated_linear import (
    ConvexInjection,
    DeltaInjection,
    GatedLinearLayer,
    LinearInjection,
    OuterInjection,
    RootInjection,
    StepInjection,
)
from stability.kernel.systems.input_sets import InputBox, NormBall, Vocabulary
from stability.kernel.systems.lure import Discretisation, LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.plants import Plant
from stability.kernel.systems.rwkv import RWKVGate, RWKVInjection

__all__ = [
    "Affine",
    "ConstantGate",
    "ControlLoop",
    "ConvexInjection",
    "Convolution",
    "DeltaInjection",
    "Discretisation",
    "DrivenSystem",
    "GatedLinearLayer",
    "InputBox",
    "LinearInjection",
    "LureSystem",
    "NormBall",
    "Normalized",
    "OuterInjection",
    "PairwiseSystem",
    "Plant",
    "RGLRUGate",
    "RWKVGate",
    "RWKVInjection",
    "RatioGate",
    "RootInjection",
    "SiLU",
    "SigmoidGate",
    "SoftplusGate",
    "StepInjection",
    "Tanh",
    "Vocabulary",
    "as_matrix",
    "as_slope",
    "reservoir_system",
]
