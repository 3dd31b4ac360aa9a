"""Loops of plant and controller: eigenvalues against matrices by hand, runs against both side by side."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import block_diag, expm, solve_discrete_are

from stability import DrivenSystem, GatedCell, LureSystem, certify, feedback, verify
from stability.conversion.feedback import Component
from stability.errors import ConfigurationError, DimensionError, IllPosedError, StabilityError, UnsupportedError
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import ControlLoop

A = np.array([[-1.2, -0.2], [1.0, 0.0]])
B, C, D = np.array([[1.0], [0.0]]), np.array([[0.0, 1.0]]), np.zeros((1, 1))
PLANT = (A, B, C, D)
DT = 0.1
SAMPLED = expm(DT * np.block([[A, B], [np.zeros((1, 3))]]))
AD, BD = SAMPLED[:2, :2], SAMPLED[:2, 2:]
W, E = np.array([[0.5, 0.2], [-0.3, 0.4]]), np.array([[0.5], [1.0]])
TANH = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), W, dt=1.0), "tanh", E, [0.1, -0.2])
READ = np.array([[0.3, -0.4]])


def eigenvalues(matrix) -> np.ndarray:
    return np.sort_complex(np.linalg.eigvals(matrix))


def random_plant(rng, states, inputs, outputs, dt=None):
    shapes = ((states, states), (states, inputs), (outputs, states), (outputs, inputs))
    return (*(0.5 * rng.normal(size=shape) for shape in shapes), *(() if dt is None else (dt,)))


@pytest.mark.parametrize("dt", [None, 0.2])
@pytest.mark.parametrize("sign", [-1, 1])
def test_linear_loops_are_those_of_python_control(dt, sign, rng) -> None:
    control = pytest.importorskip("control")
    for states in (0, 1, 3):
        plant, controller = random_plant(rng, 3, 2, 4, dt), random_plant(rng, states, 4, 2, dt)
        loop = feedback(plant, controller, sign=sign, external="disturbance")
        wanted = control.feedback(control.ss(*plant[:4], dt or 0), control.ss(*controller[:4], dt or 0), sign)
        np.testing.assert_allclose(eigenvalues(loop.system.A), eigenvalues(wanted.A), rtol=1e-9, atol=1e-9)
        s = np.exp(0.3j) if dt else 0.3j  # the answer of the plant's states, from which its outputs follow
        states_of = np.linalg.solve(s * np.eye(3 + states) - loop.system.A, loop.F)
        K = controller[2] @ states_of[3:] if states else 0.0
        # y = C x + D (d + sign (C_c x_c + D_c y))
        y = np.linalg.solve(
            np.eye(4) - sign * plant[3] @ controller[3], plant[2] @ states_of[:3] + plant[3] @ (np.eye(2) + sign * K)
        )
        np.testing.assert_allclose(y, wanted(s), rtol=1e-7, atol=1e-9)


def test_loops_of_other_kinds_have_the_eigenvalues_of_matrices_by_hand() -> None:
    K = np.array([[0.7]])
    assert feedback(PLANT, 0.7).system.A.tolist() == feedback(PLANT, K).system.A.tolist()
    np.testing.assert_allclose(feedback(PLANT, K, external=None).advance(np.eye(2)), (A - B @ K @ C).T)
    assert eigenvalues(feedback(PLANT, K).system.A) == pytest.approx(eigenvalues(A - B @ K @ C))
    assert eigenvalues(feedback(PLANT, K, dt=DT).system.A) == pytest.approx(eigenvalues(AD - BD @ K @ C))
    rest = [[-K @ C, np.zeros((1, 2))], [np.zeros((1, 2)), np.array([[1.0, 0.0]])]]
    delayed = np.block([[AD, np.hstack([np.zeros((2, 1)), BD])], *rest])
    assert eigenvalues(feedback(PLANT, K, dt=DT, delay=2).system.A) == pytest.approx(eigenvalues(delayed))
    sector = feedback(PLANT, (*(0.5 * np.eye(1) for _ in range(4)), DT), dt=DT, slope=(0.0, 2.0))
    k = np.array([1.5])
    dynamic = np.block([[AD - BD * 0.75 @ C, -BD * 0.75], [0.5 * C, 0.5 * np.eye(1)]])
    assert isinstance(sector, LureSystem)
    assert eigenvalues(sector.jacobian(k)) == pytest.approx(eigenvalues(dynamic))
    pendulum = LureSystem([[0.0, 1.0], [0.0, -0.1]], [[0.0], [1.0]], [[1.0, 0.0]], slope=(-0.2, 1.0))
    loop = feedback((pendulum, [[0.0], [1.0]], np.eye(2)), np.array([[3.0, 1.0]]))
    by_hand = np.array([[0.0, 1.0], [0.4 - 3.0, -0.1 - 1.0]])
    assert eigenvalues(loop.jacobian(np.array([0.4]))) == pytest.approx(eigenvalues(by_hand))


def test_a_regulator_with_an_observer_has_separate_poles() -> None:
    cost = solve_discrete_are(AD, BD, np.eye(2), np.eye(1))
    K = np.linalg.solve(np.eye(1) + BD.T @ cost @ BD, BD.T @ cost @ AD)
    noise = solve_discrete_are(AD.T, C.T, np.eye(2), 0.1 * np.eye(1))
    L = AD @ noise @ C.T @ np.linalg.inv(C @ noise @ C.T + 0.1 * np.eye(1))
    loop = feedback(PLANT, (AD - BD @ K - L @ C, L, K, D, DT), dt=DT)
    separate = block_diag(AD - BD @ K, AD - L @ C)
    assert eigenvalues(loop.system.A) == pytest.approx(eigenvalues(separate))
    assert certify(loop).verdict == "certified"


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("saturation", [None, 0.05, (-0.02, 0.1)])
@pytest.mark.parametrize("kind", ["tanh", "linear", "gru", "lstm"])
def test_runs_are_those_of_plant_and_controller_side_by_side(delay, saturation, kind, rng) -> None:
    gates = {"gru": 3, "lstm": 4}.get(kind, 0)
    weights = [rng.normal(size=(2 * gates, size)) for size in (1, 2)]
    layer = GatedCell(kind, *weights, rng.normal(size=2 * gates)) if gates else TANH
    if kind == "linear":
        layer = (W, E, np.eye(2), np.zeros((2, 1)), DT)
    loop = feedback(PLANT, [layer, READ], dt=DT, delay=delay, saturation=saturation)
    known = kind != "tanh" or saturation is None
    assert isinstance(loop, LureSystem) is not known  # two kinds of nonlinearities: the slopes alone are kept
    if not known:
        assert loop.slope == (0.0, 1.0)
        assert loop.channels == 3
        return
    low, high = saturation if isinstance(saturation, tuple) else (-saturation, saturation) if saturation else (-9, 9)
    x, h, waiting = np.array([1.0, -2.0]), np.zeros(loop.states - 2 - delay), [0.0] * delay
    state = np.concatenate([x, h, waiting])
    for r in rng.normal(size=(40, 1)):
        y = C @ x + r
        if kind == "linear":
            u, h = READ @ h, W @ h + E @ y
        else:
            h = layer.advance(h, y)
            u = READ @ h[:2]
        waiting.append(-u.item())
        x = AD @ x + BD @ np.clip([waiting.pop(0)], low, high)
        state = loop.advance(state, r)
        np.testing.assert_allclose(state[:2], x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state[2 : 2 + len(h)], h, rtol=1e-9, atol=1e-12)


def test_a_bias_of_the_read_out_moves_the_equilibrium_and_nothing_else() -> None:
    read = 0.2 * READ
    biased = Component({"yu": read, "y1": np.array([[0.7]])})
    plain, moved = (feedback(PLANT, [TANH, each], dt=DT) for each in (read, biased))
    x, r = np.array([0.3, -0.1, 0.5, 0.2]), np.array([0.4])
    np.testing.assert_allclose(moved.advance(x, r)[:2], plain.advance(x, r)[:2] - 0.7 * BD[:, 0], rtol=1e-12)
    np.testing.assert_allclose(moved.jacobian(x, r), plain.jacobian(x, r), rtol=1e-12)
    assert certify(moved).rate == pytest.approx(certify(plain).rate, rel=1e-4)


def test_a_stack_is_its_layers_in_series() -> None:
    above = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), W.T, dt=1.0), "tanh", np.eye(2))
    stack, layers = (feedback(PLANT, [each, READ], dt=DT) for each in (LayerStack([TANH, above]), [TANH, above]))
    x = np.arange(6.0)
    np.testing.assert_array_equal(stack.advance(x, [1.0]), layers.advance(x, [1.0]))
    np.testing.assert_allclose(
        stack.advance(x, [1.0])[2:], LayerStack([TANH, above]).advance(x[2:], [C @ x[:2] + 1.0])[0]
    )


def test_the_linearization_of_a_gated_loop_refutes_it_where_it_is_unstable(rng) -> None:
    cell = GatedCell("gru", rng.normal(size=(6, 1)), rng.normal(size=(6, 2)), rng.normal(size=6))
    loop = feedback(PLANT, [cell, 0.1 * READ], dt=DT)
    pendulum = ControlLoop(AD, BD, C, slope="sin", dt=DT), BD, C
    deep = feedback(pendulum, [cell, READ, cell, READ, "tanh"], saturation=5.0)
    x, r, step = rng.normal(size=deep.states), np.array([0.3]), 1e-6
    moved = [(deep.advance(x + d, r) - deep.advance(x - d, r)) / (2 * step) for d in step * np.eye(len(x))]
    np.testing.assert_allclose(deep.jacobian(x, r), np.transpose(moved), atol=1e-8)
    assert certify(loop).verdict == "inconclusive"
    unstable = feedback(PLANT, [cell, 60.0 * READ], dt=DT, delay=3)
    certificate = certify(unstable)
    assert certificate.verdict == "refuted"
    assert certificate.meta["part"] == "linearization of loop"  # the claim is about the linear system, and says so
    assert verify(certificate).valid
    x = unstable.equilibrium()
    np.testing.assert_allclose(unstable.advance(x, np.zeros(1)), x, atol=1e-9)
    y = x + 1e-6
    for _ in range(300):
        y = unstable.advance(y, np.zeros(1))
    assert np.abs(y - x).max() > 1e-3


FLOW = LureSystem([[-1.0]], [[1.0]], [[1.0]])
CELL = GatedCell("gru", np.ones((3, 1)), np.ones((3, 1)))
WITH_D = (A, B, C, np.ones((1, 1)))


@pytest.mark.parametrize(
    ("plant", "controller", "options", "error"),
    [
        (PLANT, TANH, {}, ConfigurationError),  # a continuous plant, a discrete controller
        (PLANT, (*PLANT, 0.2), {"dt": 0.1}, ConfigurationError),
        ((*PLANT, 0.1), PLANT, {}, ConfigurationError),
        ((*PLANT, 0.1), READ[:, :1], {"dt": 0.2}, ConfigurationError),
        (PLANT, READ[:, :1], {"delay": 1}, ConfigurationError),
        (PLANT, READ[:, :1], {"dt": 0.1, "delay": 1.5}, ConfigurationError),
        (PLANT, READ[:, :1], {"sign": 0}, ConfigurationError),
        (PLANT, READ[:, :1], {"external": "noise"}, ConfigurationError),
        (PLANT, READ[:, :1], {"saturation": -1.0}, ConfigurationError),
        (PLANT, READ[:, :1], {"saturation": (1.0, 0.0)}, ConfigurationError),
        (PLANT, READ[:, :1], {"saturation": 1.0, "slope": (0, 1)}, ConfigurationError),
        (PLANT, READ, {}, DimensionError),
        (WITH_D, -np.eye(1), {}, IllPosedError),
        (WITH_D, [TANH, 9 * READ], {"dt": 0.1}, IllPosedError),
        (WITH_D, CELL, {"dt": 0.1}, IllPosedError),
        (FLOW, np.eye(1), {"dt": 0.1}, UnsupportedError),
        (PLANT, CELL, {"dt": 0.1, "slope": (0, 1)}, UnsupportedError),
        (CELL, np.eye(1), {}, UnsupportedError),
        (PLANT, "no such thing", {}, StabilityError),
        (PLANT, [[1.0]], {}, StabilityError),
    ],
)
def test_loops_that_are_none_are_refused(plant, controller, options, error) -> None:
    with pytest.raises(error):
        feedback(plant, controller, **options)
