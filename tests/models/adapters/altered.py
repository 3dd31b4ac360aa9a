"""Modules that run another map than the weights of their class describe."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.nn.utils import prune

from stability.models import ElmanRNN


class Residual(nn.RNNCell):
    def forward(self, x, h=None):
        return h + super().forward(x, h)


class LoudElman(ElmanRNN):
    def transition(self, drive, state, prepared):
        return 2 * super().transition(drive, state, prepared)


def old_weight_norm(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.utils.weight_norm(module, "weight_hh_l0")
    with torch.no_grad():
        module.weight_hh_l0_g.mul_(5.0)
    return module


def pruned(module):
    prune.l1_unstructured(module, "weight_hh_l0", 0.5)
    with torch.no_grad():
        module.weight_hh_l0_orig.mul_(5.0)
    return module
