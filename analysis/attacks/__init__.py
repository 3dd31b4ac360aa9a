"""Adversarial attacks and random noise on inputs and parameters."""

from .apgd import apgd
from .deepfool import deepfool
from .gradient import fgsm, pgd
from .masked import MaskedGradientWarning
from .noise import noise_sweep, parameter_noise_sweep
from .scores import ScoreSweep, attack_scores, noise_scores
from .sweep import SweepResult, attack_sweep
from .threat import AttackResult

__all__ = [
    "AttackResult",
    "MaskedGradientWarning",
    "ScoreSweep",
    "SweepResult",
    "apgd",
    "attack_scores",
    "attack_sweep",
    "deepfool",
    "fgsm",
    "noise_scores",
    "noise_sweep",
    "parameter_noise_sweep",
    "pgd",
]
