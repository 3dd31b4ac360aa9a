"""Ends, trace and density of one Hessian from shared products, against each asked for alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis.curvature.density import spectral_density, spectrum_of
from stability.analysis.curvature.hessian import hessian_summary
from stability.analysis.curvature.products import hessian_of
from stability.models.lipschitz import LipschitzRNN
from stability.models.network import SequenceModel


def test_ends_and_density_together_are_those_of_both_alone_with_fewer_products():
    torch.manual_seed(3)
    model = SequenceModel(LipschitzRNN(2, 5, dt=0.5, init_std=0.5), 3).double()
    x, y = torch.randn(9, 5, 2, dtype=torch.float64), torch.randint(3, (9,))
    with hessian_of(model, x, y, None, "all", None) as operator:
        summary, density = spectrum_of(operator, steps=12, probes=4, seed=5)
    alone = hessian_summary(model, x, y, seed=5, max_iter=12, tol=1e-300, trace_samples=4)
    spread = spectral_density(model, x, y, n_vectors=4, steps=12, seed=5)
    same = ("lambda_max", "lambda_min", "trace", "trace_standard_error", "matvecs", "loss", "n_parameters")
    for name in same:
        assert getattr(summary, name) == pytest.approx(getattr(alone, name), rel=1e-9, abs=1e-12), name
    np.testing.assert_allclose(density.nodes, spread.nodes, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(density.density, spread.density, rtol=1e-9, atol=1e-12)
    assert operator.matvecs == alone.matvecs + spread.matvecs - 12  # the first probe's space is made once
