"""Lur'e systems: shapes and slopes at the door, and the discrete maps against a step written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stability.errors import ConfigurationError, DimensionError, IllPosedError, NonFiniteError, StabilityError
from stability.systems import DrivenSystem, LureSystem


def _random(rng, n, m):
    return LureSystem(rng.normal(size=(n, n)), rng.normal(size=(n, m)), rng.normal(size=(m, n)))


def _network(system, rng, inputs=2):
    return DrivenSystem(system, "tanh", rng.normal(size=(system.channels, inputs)), rng.normal(size=system.channels))


@given(n=st.integers(1, 6), m=st.integers(1, 6), seed=st.integers(0, 1000), dt=st.floats(0.001, 1.0))
def test_euler_is_one_explicit_step(n, m, seed, dt):
    rng = np.random.default_rng(seed)
    ode = _network(_random(rng, n, m), rng)
    step = DrivenSystem(ode.system.euler(dt), "tanh", ode.E, ode.b)
    x, u = rng.normal(size=n), rng.normal(size=2)
    np.testing.assert_allclose(step.advance(x, u), x + dt * ode.advance(x, u), rtol=1e-12, atol=1e-12)


@given(n=st.integers(1, 6), m=st.integers(1, 6), seed=st.integers(0, 1000), dt=st.floats(0.001, 0.5))
def test_midpoint_is_runge_kutta_of_order_two(n, m, seed, dt):
    rng = np.random.default_rng(seed)
    ode = _network(_random(rng, n, m), rng)
    step = DrivenSystem(ode.system.midpoint(dt), "tanh", np.vstack([ode.E, ode.E]), np.tile(ode.b, 2))
    x, u = rng.normal(size=n), rng.normal(size=2)
    half = x + 0.5 * dt * ode.advance(x, u)
    np.testing.assert_allclose(step.advance(x, u), x + dt * ode.advance(half, u), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", ["continuous", "euler", "midpoint"])
def test_jacobian_matches_finite_differences(method, rng):
    ode = _network(_random(rng, 4, 3), rng)
    if method == "continuous":
        driven = ode
    else:
        copies = 2 if method == "midpoint" else 1
        driven = DrivenSystem(
            ode.system.discretise(method, 0.1), "tanh", np.tile(ode.E, (copies, 1)), np.tile(ode.b, copies)
        )
    x, u, h = rng.normal(size=4), rng.normal(size=2), 1e-6
    slow = np.column_stack([(driven.advance(x + h * e, u) - driven.advance(x - h * e, u)) / (2 * h) for e in np.eye(4)])
    np.testing.assert_allclose(driven.jacobian(x, u), slow, atol=1e-8)


def test_channels_with_direct_terms_are_solved_exactly(rng):
    D = np.tril(rng.normal(size=(4, 4)), -1)
    order = rng.permutation(4)
    D = D[np.ix_(order, order)]  # acyclic in another order
    system = LureSystem(rng.normal(size=(3, 3)), rng.normal(size=(3, 4)), rng.normal(size=(4, 3)), D)
    driven = _network(system, rng)
    x, u = rng.normal(size=3), rng.normal(size=2)
    z = driven.channel(x, u)
    np.testing.assert_allclose(z, system.C @ x + D @ np.tanh(z) + driven.E @ u + driven.b, rtol=0, atol=1e-14)


BAD = [
    (lambda: LureSystem(np.ones((2, 3)), np.eye(2), np.eye(2)), DimensionError),
    (lambda: LureSystem(np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0))), DimensionError),
    (lambda: LureSystem(np.eye(2), np.eye(3), np.eye(2)), DimensionError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(3)), DimensionError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), np.eye(3)), DimensionError),
    (lambda: LureSystem(np.full((2, 2), np.nan), np.eye(2), np.eye(2)), NonFiniteError),
    (lambda: LureSystem(np.eye(2), np.full((2, 2), np.inf), np.eye(2)), NonFiniteError),
    (lambda: LureSystem(np.eye(2) * 1j, np.eye(2), np.eye(2)), ConfigurationError),
    (lambda: LureSystem("nonsense", np.eye(2), np.eye(2)), ConfigurationError),
    (lambda: LureSystem([[1.0], [2.0, 3.0]], np.eye(2), np.eye(2)), ConfigurationError),
    (lambda: LureSystem(None, None, None), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), slope=(1.0, 0.0)), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), slope=(0.0, np.nan)), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), slope=3.0), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), slope=([0.0] * 3, 1.0)), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), dt=0.0), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), dt=-1.0), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), dt="now"), ConfigurationError),
    (lambda: LureSystem(np.eye(2), np.eye(2), np.eye(2), np.eye(2)), IllPosedError),
    (lambda: LureSystem.recurrent(np.eye(2), np.eye(3)), DimensionError),
    (lambda: LureSystem.recurrent(-np.eye(2), np.eye(2)).euler(0.0), ConfigurationError),
    (lambda: LureSystem.recurrent(-np.eye(2), np.eye(2)).euler(0.1).euler(0.1), ConfigurationError),
    (lambda: LureSystem.recurrent(-np.eye(2), np.eye(2)).discretise("leapfrog", 0.1), ConfigurationError),
    (lambda: DrivenSystem(LureSystem.recurrent(-np.eye(2), np.eye(2)), "swish", np.eye(2)), ConfigurationError),
    (lambda: DrivenSystem(LureSystem.recurrent(-np.eye(2), np.eye(2)), "identity", np.eye(3)), DimensionError),
    (
        lambda: DrivenSystem(LureSystem.recurrent(-np.eye(2), np.eye(2), (0, 0.5)), "tanh", np.eye(2)),
        ConfigurationError,
    ),
]


@pytest.mark.parametrize(("make", "error"), BAD)
def test_bad_input_is_a_typed_error(make, error):
    with pytest.raises(error) as caught:
        make()
    assert isinstance(caught.value, StabilityError)
    assert len(str(caught.value)) > 15


def test_a_small_cyclic_direct_term_is_well_posed_and_a_large_one_is_not():
    eye = np.eye(2)
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert LureSystem(eye, eye, eye, 0.9 * swap).channels == 2
    with pytest.raises(IllPosedError):
        LureSystem(eye, eye, eye, 1.1 * swap)


def test_matrices_are_copies_that_cannot_be_changed(rng):
    A = rng.normal(size=(2, 2))
    system = LureSystem.recurrent(A, A)
    A[0, 0] = 99.0
    assert system.A[0, 0] != 99.0
    with pytest.raises(ValueError, match="read-only"):
        system.A[0, 0] = 1.0


@pytest.mark.parametrize("method", ["euler", "midpoint"])
def test_a_map_beyond_float64_is_refused_without_a_warning(method):
    flow = LureSystem.recurrent(np.diag([-1e200, -1.0]), np.eye(2))
    with pytest.raises(NonFiniteError):
        flow.discretise(method, 1e200)


def test_an_integrator_that_nobody_knows_is_refused_by_all_who_would_form_it():
    from stability import certify
    from stability.errors import StabilityError
    from stability.exact_verification import check_exact
    from stability.kernel.arithmetic.balls import system_balls
    from stability.kernel.theorems.multiplier_lmi import majorant
    from stability.systems import Discretisation

    flow = LureSystem.recurrent([[-2.0]], [[1.0]])
    with pytest.raises(StabilityError, match="heun"):
        Discretisation(flow, "heun", 0.1)
    step = flow.euler(0.1)
    data = certify(step, refute=False).proof.data
    object.__setattr__(step.origin, "method", "heun")  # as a third integrator would be that a reader forgot
    for reader in (system_balls, majorant, lambda s: check_exact(s, data)):
        with pytest.raises(StabilityError, match="heun"):
            reader(step)


def test_numbers_that_float64_does_not_hold_are_refused():
    most, third = 2**53, np.longdouble(1) / 3
    assert LureSystem.linear(np.array([[-most]])).A[0, 0] == -float(most)
    assert LureSystem.linear(np.array([[-np.longdouble(0.5)]])).A[0, 0] == -0.5
    for entry in (np.array([[-most - 1]]), np.array([[2**64 - 1]], dtype=np.uint64), np.array([[-third]])):
        with pytest.raises(ConfigurationError, match="float64 cannot represent"):
            LureSystem.linear(entry)
    for options in ({"slope": (0.0, third)}, {"slope": (0.0, [10**400])}, {"dt": third}, {"dt": 10**400}):
        with pytest.raises(ConfigurationError):
            LureSystem(-np.eye(1), np.eye(1), np.eye(1), **options)
