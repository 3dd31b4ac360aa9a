"""Loops as control engineers state them: other libraries' systems read rightly, gain margins against the books'."""

from __future__ import annotations

import numpy as np
import pytest

from stability import (
    ConfigurationError,
    DimensionError,
    LureSystem,
    UnsupportedError,
    Verdict,
    certify,
    disk_margin,
    gain_margin,
    hinf_norm,
    nyquist,
    step_margin,
    verify,
)
from stability.disk_margins import certified_sectors
from stability.kernel.systems.plants import as_plant
from stability.scaled_loops import LARGEST

A, B, C, D = [[0.0, 1.0], [-2.0, -3.0]], [[0.0], [1.0]], [[1.0, 0.5]], [[0.25]]


def test_the_books_loop_has_a_minus_sign():
    """u = -phi(y): with phi = k the closed loop is A - B k (1 + D k)^-1 C."""
    loop = LureSystem.from_state_space((A, B, C, D), slope=(0, 1))
    k = 0.5
    closed = np.array(A) - np.array(B) * k / (1 + 0.25 * k) @ np.array(C)
    np.testing.assert_allclose(loop.jacobian(np.array([k])), closed, rtol=1e-14)
    positive = LureSystem.from_state_space((A, B, C, D), slope=(0, 1), sign=1)
    np.testing.assert_array_equal(positive.B, -loop.B)
    np.testing.assert_array_equal(positive.D, -loop.D)


def test_state_spaces_of_both_libraries_read_alike():
    control = pytest.importorskip("control")
    signal = pytest.importorskip("scipy.signal")
    flows = (control.ss(A, B, C, D, dt=0), signal.StateSpace(A, B, C, D), (A, B, C, D))
    maps = (control.ss(A, B, C, D, dt=0.1), signal.StateSpace(A, B, C, D, dt=0.1), (A, B, C, D, 0.1))
    for systems, dt in ((flows, None), (maps, 0.1)):
        for system in systems:
            plant = as_plant(system)
            assert plant.dt == dt
            for got, want in zip((plant.A, plant.B, plant.C, plant.D), (A, B, C, D)):
                np.testing.assert_array_equal(got, want)
    assert as_plant(control.ss(A, B, C, D, dt=True)).dt == as_plant(signal.dlti(A, B, C, D)).dt == 1.0


def test_transfer_functions_have_the_same_poles():
    control = pytest.importorskip("control")
    signal = pytest.importorskip("scipy.signal")
    for system in (control.tf([1.0], [1.0, 3.0, 2.0]), signal.TransferFunction([1.0], [1.0, 3.0, 2.0])):
        assert sorted(np.linalg.eigvals(as_plant(system).A).real) == pytest.approx([-2.0, -1.0])
    assert as_plant(control.tf([1.0], [1.0, 0.5], dt=0.2)).dt == 0.2


def test_a_state_space_alone_is_certified_by_its_slowest_pole():
    control = pytest.importorskip("control")
    certificate = certify(control.ss(A, B, C, D, dt=0))
    assert certificate.verdict is Verdict.CERTIFIED
    assert certificate.rate == pytest.approx(1.0, abs=0.02)  # poles -1 and -2
    assert certify(control.ss([[0.1]], [[1.0]], [[1.0]], [[0.0]], dt=0)).verdict is Verdict.REFUTED


@pytest.mark.parametrize(
    ("plant", "error", "words"),
    [
        (([[-1.0]], [[1.0, 2.0]], [[1.0]], [[0.0, 0.0]]), DimensionError, "as many outputs as inputs"),
        (([[-1.0]], [[1.0]], [[1.0, 2.0]], [[0.0]]), DimensionError, "C"),
        ("plant", UnsupportedError, "state space"),
        (([[-1.0]], [[1.0]]), UnsupportedError, "2 entries"),
        (([[-1.0]], [[1.0]], [[1.0]], [[0.0]], -0.1), ConfigurationError, "dt"),
    ],
)
def test_what_is_no_plant_is_refused(plant, error, words):
    with pytest.raises(error, match=words):
        LureSystem.from_state_space(plant)


@pytest.mark.parametrize(
    ("plant", "certified", "destabilising"),
    [
        (([[-3.0, -3.0, -1.0], [1, 0, 0], [0, 1, 0]], [[1.0], [0], [0]], [[0, 0, 1.0]], [[0.0]]), 4.0, 8.0),
        (([[0.5]], [[1.0]], [[1.0]], [[0.0]], 1.0), 1.5, 1.5),  # x+ = .5 x - k x
    ],
)
def test_the_two_margins_are_the_circle_and_the_nyquist_one(plant, certified, destabilising):
    """For 1 / (s + 1)^3: Re G >= -1/4 (circle criterion, slopes up to 4) and -1/8 at the crossing (Nyquist, 8)."""
    margin = gain_margin(LureSystem.from_state_space(plant))
    assert certified * (1 - 3e-3) < margin.certified <= certified
    assert destabilising <= margin.destabilising < destabilising * (1 + 3e-3)
    assert margin.undecided == pytest.approx(destabilising / certified, rel=6e-3)
    for kept, factor in ((margin.certificate, margin.certified), (margin.refutation, margin.destabilising)):
        assert verify(kept).valid
        assert kept.subject.beta[0] == factor


def test_a_discretised_loop_keeps_its_origin_and_its_slopes_scale():
    flow = LureSystem.recurrent([[-2.0]], [[-1.0]], slope=(0.0, 0.5))
    margin = gain_margin(flow.euler(0.5))  # 1 + dt (-2 - k / 2) > -1 for k / 2 < 2
    assert margin.certified == pytest.approx(4.0, rel=2e-3)
    assert margin.certificate.subject.origin.dt == 0.5
    assert margin.slope == (0.0, 0.5)


def test_the_margin_of_a_step_is_where_euler_leaves_the_unit_circle():
    flow = LureSystem.recurrent([[-2.0]], [[0.5]])  # 1 + dt (-2 + s / 2) > -1 for every s in [0, 1]: dt < 1
    margin = step_margin(flow.euler(0.1))
    assert margin.certified == pytest.approx(10.0, rel=2e-3)
    assert margin.destabilising == pytest.approx(10.0, rel=6e-3)
    for kept, factor in ((margin.certificate, margin.certified), (margin.refutation, margin.destabilising)):
        assert verify(kept).valid
        assert kept.subject.origin.dt == factor * 0.1
    with pytest.raises(UnsupportedError, match="integrator"):
        step_margin(flow)


def test_no_margin_where_the_plant_is_unstable_and_no_end_where_nothing_breaks_it():
    unstable = gain_margin(LureSystem.recurrent([[0.5]], [[0.0]]))
    assert unstable.certified == 0.0
    assert unstable.certificate is None
    endless = gain_margin(LureSystem.recurrent([[-1.0]], [[-1.0]]))
    assert endless.certified > 1e6
    assert endless.destabilising == float("inf")


@pytest.mark.parametrize(
    ("plant", "slope", "low", "high"),
    [
        (([[0, 1, 0], [0, 0, 1], [0, -2, -3.0]], [[0], [0], [1.0]], [[2.0, 0, 0]], [[0]]), (1, 1), 0.0, 3.0),
        (([[0, 1, 0], [0, 0, 1], [0, 0, 0.0]], [[0], [0], [1.0]], [[0.05, 0.5, 1]], [[0]]), (1, 1), 0.1, np.inf),
        (([[1.0]], [[1.0]], [[1.0]], [[0]]), (2, 3), 0.5, np.inf),
        (([[1.0]], [[-1.0]], [[1.0]], [[0]]), (-3, -2), 0.5, np.inf),
        (([[1.2]], [[1.0]], [[1.0]], [[0]], 1.0), (1, 1.1), 0.2, 2.0),  # |1.2 - k s| < 1
        (([[1.0]], [[1.0]], [[1.0]], [[0]]), (0.25, 0.25), 4.0, np.inf),  # factor 1 does not stabilize
    ],
)
def test_factors_of_slopes_without_0_form_an_interval_that_sectors_cover(plant, slope, low, high):
    """Integrator, conditionally stable, unstable and discrete plants: ends against Routh's and Jury's."""
    loop = LureSystem.from_state_space(plant, slope=slope)
    margin = gain_margin(loop)
    assert low <= margin.certified_low < low * (1 + 3e-3) + 1e-6
    assert margin.destabilising_low == pytest.approx(low, rel=3e-3)
    assert margin.certified == LARGEST if np.isinf(high) else high * (1 - 3e-3) < margin.certified <= high
    assert margin.destabilising == pytest.approx(high, rel=6e-3)
    assert all(verify(piece).valid for piece in (*margin.cover, margin.certificate))
    factors = np.geomspace(max(margin.certified_low, 1e-9), margin.certified, 1000)
    sectors = np.array([sorted((*p.subject.alpha, *p.subject.beta)) for p in margin.cover])
    inside = [((sectors[:, 0] <= a) & (b <= sectors[:, 1])).any() for a, b in np.sort(factors[:, None] * slope)[1:-1]]
    assert all(inside)
    for refutation in filter(None, (margin.refutation, margin.refutation_low)):
        assert verify(refutation).valid


@pytest.mark.parametrize("skew", [0.0, 1.0, -1.0])
def test_a_disk_margin_is_the_inverse_norm_of_the_sensitivity_and_its_disk_leaves_the_loop_stable(skew):
    rng = np.random.default_rng(1)
    for m, dt in ((1, None), (1, 0.1), (2, None), (2, 1.0)):
        A = rng.normal(size=(3, 3))
        A = A - (np.linalg.eigvals(A).real.max() + 0.3) * np.eye(3) if dt is None else 0.4 * A
        B, C, D = rng.normal(size=(3, m)), rng.normal(size=(m, 3)), 0.02 * np.eye(m)
        loop = LureSystem(A, -0.3 * B, C, -D, (0.5, 1.0), dt)
        margin = disk_margin(loop, skew=skew)
        K = np.linalg.inv(np.eye(m) + D)
        S = A - 0.3 * B @ K @ C, 0.3 * B @ K, -K @ C, K + 0.5 * (skew - 1.0) * np.eye(m)
        exact = 1.0 / hinf_norm(*S, dt)
        assert verify(margin.certificate).valid
        assert margin.alpha <= exact if m == 1 else margin.alpha > 0.9 * exact
        assert m > 1 or margin.alpha > 0.997 * exact
        delta = margin.alpha * np.exp(2j * np.pi * rng.random((2000, m)))
        f = (1 + 0.5 * (1 - skew) * delta) / (1 - 0.5 * (1 + skew) * delta)
        closed = np.stack([A - 0.3 * B @ np.linalg.inv(np.diag(1 / k) + D) @ C for k in f])
        values = np.linalg.eigvals(closed)
        assert (values.real if dt is None else np.abs(values) - 1.0).max() < 0.0
        phase = np.abs(np.angle(f[np.abs(np.abs(f) - 1.0) < 1e-2], deg=True))
        assert m > 1 or phase.size == 0 or abs(phase.max() - margin.phase_margin) < 2.0
        assert margin.gain_margin == pytest.approx(
            (np.abs(f).min(), np.abs(f).max()), rel=0.1 if margin.alpha < 1 else 9
        )


def test_a_sector_keeps_one_end_of_a_loop_without_a_proof():
    """1 / (s + 1)^3 with slopes [0, 5]: the circle criterion allows [0, 4]."""
    plant = ([[-3.0, -3.0, -1.0], [1, 0, 0], [0, 1, 0]], [[1.0], [0], [0]], [[0, 0, 1.0]], [[0.0]])
    (low, five, _), (zero, high, certificate) = certified_sectors(LureSystem.from_state_space(plant, slope=(0, 5)))
    assert (zero, five) == (0.0, 5.0)
    assert 3.98 < high <= 4.0
    assert verify(certificate).valid
    assert nyquist(LureSystem.from_state_space(plant, slope=(low * 1.01, 5))).holds
    assert not nyquist(LureSystem.from_state_space(plant, slope=(low * 0.97, 5))).holds


def test_a_companion_form_of_many_states_is_certified_in_its_own_coordinates():
    """Eight lags of ratio 2: the states of the companion form span eight decades."""
    signal = pytest.importorskip("scipy.signal")
    plant = signal.tf2ss([2.0**28], np.poly(-(2.0 ** np.arange(8))))
    for slope in ((1.0, 1.0), (0.5, 1.0)):
        loop = LureSystem.from_state_space(plant, slope=slope)
        certificate = certify(loop)
        assert certificate.verdict is Verdict.CERTIFIED
        assert verify(certificate).valid
    assert gain_margin(loop, tol=0.05, refute=False).certified == pytest.approx(4.32, rel=0.06)


def test_the_nyquist_curve_touches_the_half_plane_at_the_books_gain():
    """1 / (s + 1)^3: the circle criterion's largest slope is 4, where the curve's least real part is -1/4."""
    plant = ([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0], [0.0, 0.0, -1.0]], [[0.0], [0.0], [1.0]], [[1.0, 0.0, 0.0]], [[0.0]])
    at = {k: nyquist(LureSystem.from_state_space(plant, slope=("saturation", k))) for k in (3.0, 4.0, 5.0)}
    assert at[4.0].clearance == pytest.approx(0.0, abs=1e-4)
    assert [at[k].holds for k in (3.0, 5.0)] == [True, False]
    assert at[3.0].clearance == pytest.approx(1 / 3 - 1 / 4, abs=1e-4)
    omega = np.array([0.0, 0.7])
    np.testing.assert_allclose(nyquist(LureSystem.from_state_space(plant), omega).values, 1 / (1 + 1j * omega) ** 3)
    disc = nyquist(LureSystem.from_state_space(plant, slope=(-0.5, 0.5)))  # inside |s| < 2
    assert disc.clearance == pytest.approx(1.0, abs=1e-6)
    outside = nyquist(LureSystem.from_state_space(plant, slope=(1.0, 2.0)))  # around -3/4, radius 1/4
    curve = 1 / (1 + 1j * np.linspace(0, 20, 200001)) ** 3
    assert outside.clearance == pytest.approx(float(np.abs(curve + 0.75).min()) - 0.25, abs=1e-4)
    axes = at[4.0].plot()
    assert "does not hold" in at[5.0].plot().get_title()
    assert len(axes.patches) == 1
    with pytest.raises(UnsupportedError, match="one channel"):
        nyquist(LureSystem.recurrent(-np.eye(2), np.eye(2)))


def test_a_nonlinearity_by_its_name_has_its_slopes():
    assert LureSystem.from_state_space((A, B, C, D), slope="deadzone").slope == (0.0, 1.0)
    assert LureSystem.from_state_space((A, B, C, D), slope=("saturation", 0.5)).slope == (0.0, 0.5)
    assert LureSystem.from_state_space((A, B, C, D), slope="leaky_relu").slope == (0.1, 1.0)
    for wrong in ("relay", ("saturation", -1.0)):
        with pytest.raises(ConfigurationError):
            LureSystem.from_state_space((A, B, C, D), slope=wrong)


def test_criteria_answer_to_the_names_of_books():
    loop = LureSystem.from_state_space((A, B, C, D), slope=(0, 1))
    for book, ours in (("kyp", "circle"), ("positive_real", "circle")):
        assert (
            certify(loop, criterion=book, refute=False).findings == certify(loop, criterion=ours, refute=False).findings
        )
