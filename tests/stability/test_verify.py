"""The verifier: accepts what is true, whatever the size of the margin above rounding, and nothing that is altered."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, verify
from stability.errors import ConfigurationError, FileFormatError
from stability.exact_verification import check_exact
from stability.kernel.theorems.multiplier_lmi import check_lmi, lmi_matrix


def _system(rng, n, gain=0.4):
    A = rng.normal(size=(n, n)) / np.sqrt(n)
    return LureSystem.recurrent(A - A.T - np.eye(n), gain * rng.normal(size=(n, n)) / np.sqrt(n))


@pytest.fixture
def certificate(rng):
    out = certify(_system(rng, 5))
    assert out.verdict is Verdict.CERTIFIED
    return out


def _forms(rng):
    n, m = 4, 3
    general = LureSystem(
        0.3 * rng.normal(size=(n, n)),
        rng.normal(size=(n, m)),
        rng.normal(size=(m, n)),
        np.tril(rng.normal(size=(m, m)), -1),
        ([0.0, -0.5, 0.1], [1.0, 0.5, 0.7]),
    )
    discrete = LureSystem(general.A, general.B, general.C, general.D, (general.alpha, general.beta), 1.0)
    base = _system(rng, 4)
    return [general, discrete, base, base.euler(0.1), base.midpoint(0.1), LureSystem.linear(-np.eye(3))]


@pytest.mark.parametrize("index", range(6))
def test_matrix_of_the_inequality_is_the_quadratic_form_it_stands_for(index, rng):
    system = _forms(rng)[index]
    n, m = system.states, system.channels
    P = rng.normal(size=(n, n))
    P = P + P.T
    L, rate = rng.random(m), 0.7
    for _ in range(5):
        d, w = rng.normal(size=n), rng.normal(size=m)
        z = system.C @ d + system.D @ w
        flow = system.A @ d + system.B @ w
        supply = 2.0 * np.sum(L * (w - system.alpha * z) * (system.beta * z - w))
        if system.is_discrete:
            value = flow @ P @ flow - rate**2 * d @ P @ d + supply
        else:
            value = 2.0 * d @ P @ flow + 2.0 * rate * d @ P @ d + supply
        s = np.concatenate([d, w])
        assert s @ lmi_matrix(system, P, L, rate) @ s == pytest.approx(value, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("index", [2, 3, 4])
def test_float_and_exact_verifiers_agree(index, rng):
    certificate = certify(_forms(rng)[index])
    assert verify(certificate).valid
    assert verify(certificate, method="exact").valid


@pytest.mark.parametrize("kind", ["lure", "euler", "midpoint"])
def test_no_float_proof_that_exact_arithmetic_denies(kind, rng):
    """The last rate that the float check accepts for a given ``(P, L)``: exact arithmetic agrees, and denies a rate
    faster by a millionth. In coordinates stretched ten thousandfold the entries cancel, which is where errors show.
    """
    agreed = 0
    for stretch in (1.0, 1e-2, 1e-4) * 5:
        turn = np.linalg.qr(rng.normal(size=(2, 2)))[0] * [1.0, stretch]
        back = np.linalg.inv(turn)
        a = -np.eye(2) + 0.15 * rng.normal(size=(2, 2))
        b, c = 0.2 * rng.normal(size=(2, 2)), 0.2 * rng.normal(size=(2, 2))
        system = LureSystem(turn @ a @ back, turn @ b, c @ back)
        system = system if kind == "lure" else system.discretise(kind, 0.1)
        P, L = back.T @ back, np.ones(system.channels)
        P = 0.5 * (P + P.T)
        yes, no = (0.0, 5.0) if kind == "lure" else (1.0, 0.1)
        if not check_lmi(system, P, L, yes)[0]:
            continue
        while (middle := 0.5 * (yes + no)) not in (yes, no):
            yes, no = (middle, no) if check_lmi(system, P, L, middle)[0] else (yes, middle)
        assert _exactly(system, P, L, yes)[0]
        assert not _exactly(system, P, L, yes * (1 + 1e-6 if kind == "lure" else 1 - 1e-6))[0] or stretch < 1e-3
        agreed += 1
    assert agreed >= 6


def _exactly(system, P, L, rate):
    values = np.linalg.eigvalsh(P)
    low, high = 0.9 * float(values[0]), 1.1 * float(values[-1])
    data = {"P": P, "L": L, "rate": rate, "overshoot": 1.1 * float(np.sqrt(high / low)), "p_min": low, "p_max": high}
    return check_exact(system, data)


@pytest.mark.parametrize("system", [LureSystem.linear([[3.0]], dt=1.0), LureSystem.linear([[1.0]])])
def test_a_negative_p_proves_nothing_about_an_unstable_system(system):
    """With P < 0 the inequality itself holds: positivity is half of the theorem."""
    assert np.linalg.eigvalsh(lmi_matrix(system, -np.eye(1), np.zeros(0), 0.5))[-1] < 0
    assert not check_lmi(system, -np.eye(1), np.zeros(0), 0.5)[0]


def test_any_changed_character_is_noticed(certificate, tmp_path, rng):
    path = certificate.save(tmp_path / "c.json")
    text = path.read_text()
    digits = [i for i, ch in enumerate(text) if ch.isdigit()]
    for i in rng.choice(digits, 60, replace=False):
        changed = text[:i] + str((int(text[i]) + 1) % 10) + text[i + 1 :]
        path.write_text(changed)
        assert not verify(path).valid


def test_nothing_half_written(certificate, tmp_path):
    with pytest.raises(FileFormatError, match="cannot write"):
        certificate.save(tmp_path / "no such folder" / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_unknown_method_is_the_callers_mistake(certificate):
    with pytest.raises(ConfigurationError):
        verify(certificate, method="hope")


def test_the_verifier_loads_no_solver_and_no_torch(certificate, tmp_path):
    path = certificate.save(tmp_path / "c.json")
    code = (
        "import sys; from stability.verification import verify; assert verify(sys.argv[1]).valid; "
        "bad = [m for m in sys.modules if m.split('.')[0] in ('torch', 'cvxpy', 'scs', 'clarabel')]; assert not bad"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True, cwd=tmp_path)
