"""Numbers as text: what a reader takes from the text must be true of the number."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stability.reports import formatting as f

RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹−", "-0123456789-")


def parse(text: str) -> float:
    """Reads what ``number`` writes, by the rules of mathematics rather than of the formatter."""
    mantissa, _, power = text.partition("×10")
    return float(mantissa.translate(RAISED)) * 10.0 ** int(power.translate(RAISED) or 0)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
def test_number_is_right_to_its_digits(x: float) -> None:
    shown = parse(f.number(x, 4))
    assert shown == pytest.approx(x, rel=5.01e-4, abs=1e-320)


@given(st.floats(min_value=0, max_value=1))
def test_percent_never_rounds_to_nothing_or_to_all(x: float) -> None:
    text = f.percent(x)
    assert (text == "0 %") == (x == 0)
    assert (text == "100 %") == (x == 1)
    if text[0] not in "<>":
        assert float(text.removesuffix(" %")) == pytest.approx(100 * x, abs=0.0501)
    elif text[0] == "<":
        assert 0 < x < 0.001
    else:
        assert 0.999 < x < 1


@pytest.mark.parametrize("missing", [None, math.nan, "text", True])
def test_what_is_no_number_is_a_dash(missing: object) -> None:
    assert f.number(missing) == f.percent(missing) == f.duration(missing) == f.count(missing) == "–"


@pytest.mark.parametrize(("x", "text"), [(math.inf, "∞"), (-math.inf, "−∞"), (0.0, "0"), (-0.0, "0")])
def test_ends_of_the_line(x: float, text: str) -> None:
    assert f.number(x) == text


def test_signed_says_the_sign() -> None:
    assert [f.signed(v)[0] for v in (2.0, -2.0, 0.0)] == ["+", "−", "0"]


@given(st.floats(min_value=0, max_value=1e6))
def test_durations_are_right_to_half_a_unit(seconds: float) -> None:
    units = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
    words = f.duration(seconds).removeprefix("< ").split()
    shown = sum(float(n) * units[u] for n, u in zip(words[::2], words[1::2]))
    smallest = units[words[-1]] * (0.1 if "." in words[-2] else 1)
    assert abs(shown - seconds) <= 0.51 * smallest + 1e-9 or shown == smallest == 1e-3


def test_minutes_carry_over() -> None:
    assert f.duration(119.7) == "2 min 0 s"
    assert f.duration(3599.9) == "1 h 0 min"


@given(st.floats(min_value=0.01, max_value=0.999))
def test_half_life_halves(rho: float) -> None:
    assert rho ** f.half_life(rho, True) == pytest.approx(0.5)
    assert math.exp(-rho * f.half_life(rho, False)) == pytest.approx(0.5)


def test_half_life_of_what_does_not_contract_is_endless() -> None:
    assert f.half_life(1.0, True) == f.half_life(0.0, False) == math.inf
    assert f.half_life(0.0, True) == 0.0
    assert f.half_life(None, True) is None


def test_columns_of_a_table_line_up() -> None:
    lines = f.table(("a", "long name"), (("x", "1"), ("yyyy", "22")), right=(1,)).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [line.rindex(c) for line, c in zip(lines, ("e", "1", "2"))] == [len(lines[0]) - 1] * 3


@pytest.mark.parametrize(("name", "text"), [("accuracy", "25.0 %"), ("mse", "0.25")])
def test_a_metric_is_shown_in_its_own_kind(name: str, text: str) -> None:
    assert f.metric(0.25, name) == text


@given(st.floats(1e-6, 1e6), st.booleans())
def test_a_proved_bound_is_never_rounded_to_more_than_was_proved(value: float, up: bool) -> None:
    shown = parse(f.bound(value, 4, up=up))
    slack = 1e-12 * value
    assert (shown >= value - slack) if up else (shown <= value + slack)
    assert abs(shown - value) <= 1e-3 * value + slack
    rho = parse(f.rate(value, True).split()[2])
    assert rho >= value - slack
    assert parse(f.rate(value, False).split()[2]) <= value + slack


def test_a_rate_below_one_is_shown_below_one() -> None:
    assert f.rate(0.99999001, True) == "ρ = 0.99999001 per step"
    assert f.rate(1.0, True) == "ρ = 1 per step"
    assert parse(f.rate(1.0 - 1e-12, True).split()[2]) < 1.0
