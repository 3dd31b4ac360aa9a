"""Results at a prompt and in a notebook, and arrays of numpy in place of tensors: the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability import analysis as an
from stability.analysis.dynamics.growth import local_growth
from stability.analysis.dynamics.pairs import pair_distances
from stability.models import ContractingRNN, SequenceModel

MEASURES = {
    "noise": lambda m, x, y: an.noise_sweep(m, x, y, levels=[0, 1]),
    "attack": lambda m, x, y: an.attack_sweep(m, x, y, epsilons=[0, 0.1], bounds=None),
    "radius": an.certified_radius,
    "curvature": an.hessian_summary,
    "density": an.spectral_density,
    "norms": lambda m, x, y: an.norm_drift(m, x),
    "exponents": lambda m, x, y: an.lyapunov_exponents(m, x),
    "recovery": lambda m, x, y: an.measured_recovery(m, x),
}


DRAWN = {
    "local": lambda m, x, y: an.local_radius(m, x[:3], y[:3]),
    "pgd": lambda m, x, y: an.pgd(m, x, y, epsilon=0.5, bounds=None),
    "growth": lambda m, x, y: local_growth(m, x),
    "pairs": lambda m, x, y: pair_distances(m, x, steps=8),
    "rounding": lambda m, x, y: an.rounding_distance(m, x),
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


def test_the_figure_of_a_result_is_its_curve() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    torch.manual_seed(0)
    model, x = SequenceModel(ContractingRNN(2, 4), 3), torch.randn(25, 6, 2)
    y = model(x).argmax(1)
    for name, measure in {**MEASURES, **DRAWN}.items():
        found = measure(model, x, y)
        _, own = pyplot.subplots()
        assert found.plot(ax=own) is own
        if type(found).curve is None:
            texts = {cell.get_text().get_text() for cell in own.tables[0].get_celld().values()}
            assert {"lambda_max", f"{found.lambda_max:.4g}"} <= texts
            continue
        curves, curve = found.curves(), type(found).curve
        lines = own.get_lines()
        assert lines, name
        first = curves if not curve.by else curves[curves[curve.by] == curves[curve.by].iloc[0]]
        np.testing.assert_array_equal(lines[0].get_xdata(), first[curve.x])
        np.testing.assert_array_equal(lines[0].get_ydata(), first[curve.y[0]])
        assert own.get_title() == type(found).__name__
        assert found.plot().get_figure() is not own.get_figure()
        pyplot.close("all")
    pyplot.close("all")
