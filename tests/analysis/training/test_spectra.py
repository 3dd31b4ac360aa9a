"""Spectra along training: against numpy and by hand, with bounds that must hold at every record."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from stability.analysis import SpectrumTracker, make_task, train
from stability.analysis.training.margins import layer_margins
from stability.analysis.training.spectra import matrix_quantities
from stability.errors import ConfigurationError, FileFormatError, UnsupportedError
from stability.models import LSTM, ElmanRNN, LipschitzRNN, NeuralODERNN, SequenceModel, symmetric_skew


def values(tracker, matrix, step=None):
    table = tracker.frame()
    table = table[table.matrix == matrix]
    table = table[table.step == (table.step.max() if step is None else step)]
    return dict(zip(table.quantity, table.value))


class TestQuantities:
    def test_against_slow_definitions(self, rng):
        S = rng.standard_normal((7, 7))
        found, eigenvalues = matrix_quantities(S)
        roots = np.roots(np.poly(S))
        np.testing.assert_allclose(np.sort_complex(eigenvalues), np.sort_complex(roots), atol=1e-8)
        assert found["max_real"] == pytest.approx(roots.real.max())
        assert found["min_real"] == pytest.approx(roots.real.min())
        assert found["spectral_radius"] == pytest.approx(abs(roots).max())
        gram = np.sqrt(np.roots(np.poly(S.T @ S)).real)
        assert found["sigma_max"] == pytest.approx(gram.max(), rel=1e-6)
        assert found["sigma_min"] == pytest.approx(gram.min(), rel=1e-4)
        angles = np.array([np.linalg.eigvalsh((np.exp(1j * t) * S + np.exp(-1j * t) * S.T) / 2)[-1] for t in (0,)])
        assert found["sym_max"] == pytest.approx(angles[0])
        assert found["henrici"] == pytest.approx(np.sqrt((S**2).sum() - (abs(roots) ** 2).sum()))


class TestTracker:
    def test_bounds_hold_along_training_and_the_printed_ones_do_not(self):
        task = make_task("digits", size=14, limit=200, test_limit=20)
        violated = False
        for beta in (0.5, 0.75, 1.0):
            torch.manual_seed(0)
            model = SequenceModel(LipschitzRNN(14, 16, beta=beta, gamma=0.1, dt=0.1, init_std=0.1), 10)
            tracker = SpectrumTracker(model, every=2)
            train(model, task, epochs=4, batch_size=40, lr=2e-2, tracker=tracker)
            for matrix in ("A", "W"):
                for step in sorted(set(tracker.frame().step)):
                    q = values(tracker, matrix, step)
                    assert q["prop1_low"] - 1e-6 <= q["min_real"]
                    assert q["max_real"] <= q["prop1_high"] + 1e-6
                    violated |= q["max_real"] > q["prop1_published_high"] + 1e-3
        assert violated  # otherwise this test would not tell the two apart

    def test_records_are_of_the_matrices_at_that_step(self):
        task = make_task("adding", steps=6, train=40, test=8)
        model = SequenceModel(LipschitzRNN(2, 5, dt=0.2), 1)
        seen = {0: model.layer.M_A.detach().clone()}
        tracker = SpectrumTracker(model, every=3)

        def remember(news):
            if news.finished is None:
                seen[len(seen)] = model.layer.M_A.detach().clone()

        train(model, task, epochs=2, batch_size=10, tracker=tracker, progress=remember)
        assert sorted(set(tracker.frame().step)) == [0, 3, 6, 8]  # after the last step too
        for step in (0, 3, 6, 8):
            A = symmetric_skew(seen[step].double(), 0.75, 0.001).numpy()
            assert values(tracker, "A", step)["sigma_max"] == pytest.approx(np.linalg.norm(A, 2), rel=1e-5)

    @pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.LSTMCell])
    def test_torch_modules(self, make):
        module = make(3, 4)
        tracker = SpectrumTracker(nn.Sequential(module))
        tracker.record(0)
        gates = {"RNN": 1, "RNNCell": 1, "GRU": 3, "LSTM": 4, "LSTMCell": 4}[make.__name__]
        table = tracker.eigenvalues()
        assert len(set(table.matrix)) == gates
        assert len(table) == 4 * gates
        weight = next(p for n, p in module.named_parameters() if n.startswith("weight_hh")).detach()
        block = weight[-4:].double().numpy()
        last = list(dict.fromkeys(table.matrix))[-1]
        assert values(tracker, last)["sigma_max"] == pytest.approx(np.linalg.norm(block, 2), rel=1e-6)

    def test_any_loop_with_any_optimizer(self):
        layer = ElmanRNN(2, 3)
        optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=2)
        tracker = SpectrumTracker(layer, every=1).attach(optimizer)

        def closure():
            optimizer.zero_grad()
            loss = layer(torch.ones(1, 4, 2))[0].square().sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        tracker.detach()
        optimizer.step(closure)
        assert sorted(set(tracker.frame().step)) == [0, 1, 2, 3]
        with pytest.raises(ConfigurationError):
            tracker.attach(optimizer).attach(optimizer)

    def test_probe_jacobians_equal_closed_form(self):
        layer = LipschitzRNN(2, 4, dt=0.1, init_std=0.5).double()
        x = torch.randn(1, 8, 2).double()
        tracker = SpectrumTracker(layer, probe=x)
        tracker.record(0)
        driven, h = layer.driven(), np.zeros(4)
        for t in range(8):
            J = driven.jacobian(h, x[0, t].numpy())
            if t in (2, 4, 7):
                q = values(tracker, f"J@{t}")
                assert q["spectral_radius"] == pytest.approx(abs(np.linalg.eigvals(J)).max(), rel=1e-9)
                assert q["sigma_max"] == pytest.approx(np.linalg.norm(J, 2), rel=1e-9)
            h = driven.advance(h, x[0, t].numpy())
        assert values(tracker, "h")["last_norm"] == pytest.approx(np.linalg.norm(h))

    def test_the_jacobian_of_a_batch_is_the_one_of_largest_spectral_radius(self):
        torch.manual_seed(3)
        layer = ElmanRNN(2, 4).double()
        with torch.no_grad():
            layer.weight_hh.mul_(3)
        x = 2 * torch.randn(6, 8, 2).double()
        x[4] = 0  # nothing saturates: by far the largest Jacobians
        tracker = SpectrumTracker(layer, probe=x)
        tracker.record(0)
        driven = layer.driven()
        for t in (2, 4, 7):
            radii, norms = [], []
            for sequence in x.numpy():
                h = np.zeros(4)
                for u in sequence[:t]:
                    h = driven.advance(h, u)
                J = driven.jacobian(h, sequence[t])
                radii.append(abs(np.linalg.eigvals(J)).max())
                norms.append(np.linalg.norm(J, 2))
            assert max(radii) > 1.5 * min(radii)
            q = values(tracker, f"J@{t}")
            assert q["spectral_radius"] == pytest.approx(max(radii), rel=1e-9)
            assert q["sigma_max"] == pytest.approx(norms[int(np.argmax(radii))], rel=1e-9)

    @pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5])
    def test_proposition_1_knows_the_factor_of_the_linear_term(self, alpha, rng):
        """Beta .6, gamma .1: the interval of alpha A; for a symmetric M both of its ends are eigenvalues."""
        symmetric = np.diag([3.0, 1.0, -2.0])
        for M in (symmetric, rng.standard_normal((3, 3))):
            layer = LipschitzRNN(2, 3, beta=(0.6, 0.8), gamma=(0.1, 0.2), alpha=alpha).double()
            with torch.no_grad():
                layer.M_A.copy_(torch.from_numpy(M))
            tracker = SpectrumTracker(layer)
            tracker.record(0)
            q = values(tracker, "A")
            ends = np.linalg.eigvalsh((M + M.T) / 2)[[0, -1]]
            assert q["prop1_low"] == pytest.approx(alpha * (2 * 0.4 * ends[0] - 0.1), abs=1e-12)
            assert q["prop1_high"] == pytest.approx(alpha * (2 * 0.4 * ends[1] - 0.1), abs=1e-12)
            assert q["prop1_published_low"] == pytest.approx(alpha * (0.4 * ends[0] - 0.1), abs=1e-12)
            assert q["prop1_published_high"] == pytest.approx(alpha * (0.4 * ends[1] - 0.1), abs=1e-12)
            assert q["prop1_low"] - 1e-9 <= q["min_real"] <= q["max_real"] <= q["prop1_high"] + 1e-9
            if M is symmetric:
                assert q["max_real"] == pytest.approx(q["prop1_high"], abs=1e-9)
                assert q["min_real"] == pytest.approx(q["prop1_low"], abs=1e-9)

    def test_the_probe_works_for_gated_layers_and_changes_nothing(self):
        model = SequenceModel(LSTM(2, 3), 2)
        before = [p.clone() for p in model.parameters()]
        tracker = SpectrumTracker(model, probe=torch.randn(2, 5, 2))
        tracker.record(0)
        assert set(values(tracker, "h")) == {"mean_norm", "last_norm"}
        eigenvalues = tracker.eigenvalues()
        assert (eigenvalues[eigenvalues.matrix == "J@4"].count() == 6).all()  # (h, c)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        assert all(p.grad is None for p in model.parameters())

    def test_files_grow_with_every_record(self, tmp_path):
        layer = LipschitzRNN(2, 3)
        tracker = SpectrumTracker(layer, out=tmp_path)
        sizes = []
        for step in range(3):
            tracker.record(step)
            tracker.record(step)  # the same step again adds nothing
            sizes.append((tmp_path / "spectra.csv").read_text().count("\n"))
        assert sizes[1] - sizes[0] == sizes[2] - sizes[1] == (sizes[0] - 1) > 10
        SpectrumTracker(layer, out=tmp_path / "made").record(0)
        assert (tmp_path / "made" / "spectra.csv").is_file()
        with pytest.raises(FileFormatError):
            SpectrumTracker(layer, out=tmp_path / "spectra.csv")

    def test_bad_options(self):
        layer = LipschitzRNN(2, 3)
        for options in ({"every": 0}, {"every": True}, {"margins": "theorem1"}, {"margins": ("none",)}):
            with pytest.raises(ConfigurationError):
                SpectrumTracker(layer, **options)
        with pytest.raises(UnsupportedError):
            SpectrumTracker(nn.Linear(2, 2))


class TestMargins:
    def test_signs_agree_with_what_they_mean(self):
        eye = torch.eye(3).double()
        calm = LipschitzRNN.from_matrices(-2 * eye, 0.5 * eye, eye, dt=0.1)
        found = layer_margins(calm, ("theorem1", "gap", "small_gain"))
        assert found["theorem1a"] == pytest.approx(1.5)
        assert found["contraction_gap"] == pytest.approx(1.5)
        assert found["small_gain"] > 0
        wild = LipschitzRNN.from_matrices(eye, 0.5 * eye, eye, dt=0.1)
        found = layer_margins(wild, ("theorem1", "gap", "small_gain"))
        assert found["theorem1a"] < 0
        assert found["contraction_gap"] < 0
        assert found["small_gain"] < 0

    def test_a_margin_that_cannot_be_recorded_is_refused_by_name(self):
        for make, name in (
            (LSTM(2, 3), "theorem1"), (nn.GRU(2, 3), "small_gain"), (nn.LSTM(2, 3), "multiplier"),
            (NeuralODERNN(2, 3), "gap"),
        ):  # fmt: skip
            with pytest.raises(UnsupportedError) as caught:
                SpectrumTracker(make, margins=[name])
            assert repr(name) in str(caught.value)
            assert layer_margins(make, [name]) == {}
            assert SpectrumTracker(make).margins == (("theorem1",) if isinstance(make, NeuralODERNN) else ())
        mixed = nn.Sequential(nn.GRU(2, 3), LipschitzRNN(3, 3))
        tracker = SpectrumTracker(mixed, margins=("theorem1", "small_gain"))
        tracker.record(0)
        assert {"theorem1a", "small_gain"} <= set(values(tracker, "1.margins"))
        assert values(tracker, "0.margins") == {}

    def test_margins_of_torch_modules(self, rng):
        torch.manual_seed(0)
        for kind in ("tanh", "relu"):
            rnn = nn.RNN(2, 3, nonlinearity=kind)
            same = ElmanRNN(2, 3, activation=kind)
            with torch.no_grad():
                same.weight_hh.copy_(rnn.weight_hh_l0)
            names = ("gap", "small_gain", "multiplier")
            found, expected = layer_margins(rnn, names), layer_margins(same, names)
            assert set(found) == {"contraction_gap", "small_gain", "multiplier"}
            assert found == pytest.approx(expected, rel=1e-6)

    def test_weights_that_have_diverged_have_no_number(self):
        names = {"theorem1a", "theorem1b_published", "theorem1b_sound", "contraction_gap", "small_gain", "multiplier"}
        for value in (float("nan"), float("inf")):
            layer = LipschitzRNN(2, 3)
            tracker = SpectrumTracker(layer, margins=("theorem1", "gap", "small_gain", "multiplier"))
            with torch.no_grad():
                layer.M_W.fill_(value)
            tracker.record(0)
            found = values(tracker, "margins")
            assert set(found) == names
            assert np.isnan(list(found.values())).all()


def test_a_tracker_draws_its_spectral_radii_and_shows_its_last_records():
    model = SequenceModel(LipschitzRNN(2, 4), 2)
    tracker = SpectrumTracker(model, 1)
    for step in (0, 1):
        tracker.record(step)
    axes = tracker.plot()
    rows = tracker.frame()
    radii = rows[rows["quantity"] == "spectral_radius"]
    assert [line.get_ydata().tolist() for line in axes.get_lines()] == [
        radii[radii["matrix"] == name]["value"].tolist() for name in ("A", "W")
    ]
    assert axes.get_ylabel() == "spectral radius"
    assert axes.figure.axes[0] is tracker.plot(ax=axes)
    assert f"{len(rows)} rows" in tracker._repr_html_()
