"""Results at a prompt and in a notebook, and arrays of numpy in place of tensors: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis import (
    SpectrumTracker,
    attack_sweep,
    certified_radius,
    hessian_summary,
    lyapunov_exponents,
    measured_recovery,
    noise_sweep,
    norm_drift,
    spectral_density,
)
from stability.errors import ConfigurationError
from stability.models import ContractingRNN, SequenceModel

MEASURES = {
    "noise": lambda m, x, y: noise_sweep(m, x, y, levels=[0, 1]),
    "attack": lambda m, x, y: attack_sweep(m, x, y, epsilons=[0, 0.1], bounds=None),
    "radius": certified_radius,
    "curvature": hessian_summary,
    "density": spectral_density,
    "norms": lambda m, x, y: norm_drift(m, x),
    "exponents": lambda m, x, y: lyapunov_exponents(m, x),
    "recovery": lambda m, x, y: measured_recovery(m, x),
}


@pytest.mark.parametrize("name", MEASURES)
def test_arrays_give_what_tensors_give_and_results_are_short(name: str) -> None:
    torch.manual_seed(0)
    model, x = SequenceModel(ContractingRNN(2, 4), 3), torch.randn(25, 6, 2)
    y = model(x).argmax(1)
    measure = MEASURES[name]
    found, again = measure(model, x, y), measure(model, x.double().numpy(), y.numpy())
    for column, values in found.frame().select_dtypes("number").items():
        np.testing.assert_allclose(again.frame()[column], values, rtol=1e-6, err_msg=str(column))
    assert repr(found).startswith(f"<{type(found).__name__}: ")
    assert len(repr(found)) < 500
    page = found._repr_html_()
    assert page.count("<tr") <= 22
    assert (" more rows in .frame()" in page) is (len(found.frame()) > 20)
    assert type(found).__name__ in page


def test_what_is_no_module_is_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"must be a torch\.nn\.Module, got list"):
        SpectrumTracker([ContractingRNN(2, 4)])  # type: ignore[arg-type]
