"""The decision procedures themselves: they say True, False and None where they should."""

import pytest
from sympy import (
    Derivative,
    E,
    Float,
    Function,
    I,
    IndexedBase,
    Integer,
    Matrix,
    Rational,
    S,
    Symbol,
    cos,
    exp,
    pi,
    sqrt,
    symbols,
)

from derivations.decide import at_most, below, contains_float, equal, is_zero_rational
from derivations.notation import delta, i, j, l, m, over

y, z = symbols("y z")
f, v = Function("f"), IndexedBase("v")
negative, odd = Symbol("w", negative=True), Symbol("k", odd=True)
always_zero = (z + 1) ** 2 - z**2 - 2 * z - 1
always_zero_too = exp(y * (z + 1)) - exp(y * z + y)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((y**2 - z**2) / (y - z), y + z),
        (exp(y + z), exp(y) * exp(z)),
        (exp(2 * y) / (1 + exp(y)), exp(y) / (1 + exp(-y))),
        (exp(y / 2) ** 2, exp(y)),
        (E * exp(2), exp(3)),
        (exp(I * y) * (exp(-I * y) + exp(I * z)), 1 + exp(I * (y + z))),
        (1 / (1 + 1 / y), y / (y + 1)),
        (Matrix([y, exp(z) ** 2]), Matrix([y, exp(2 * z)])),
        (S.true, S.true),
    ],
)
def test_equal_is_proven(left, right):
    assert equal(left, right) is True


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (y, z),
        (exp(y + z), exp(y) + exp(z)),
        (Rational(1, 3), Rational(33333333, 100000000)),
        (Matrix([1, 2]), Matrix([1, 3])),
        (Matrix([1, 2]), Matrix([[1, 2]])),
        (Matrix([1]), Integer(1)),
        (v[i], v[j]),
        (over(l, v[l]), 2 * over(m, v[m])),
        (S.true, S.false),
        (Function("f")(y), Function("f")(z)),
        ((exp(I * y) + exp(-I * y)) / 2, (exp(I * y) - exp(-I * y)) / (2 * I)),
        (exp(I * y), exp(-I * y)),
    ],
)
def test_a_wrong_identity_is_refuted(left, right):
    assert equal(left, right) is False


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (delta(i, j) * v[i], delta(i, j) * v[j]),
        (over(l, v[l]), over(m, v[m])),
        (over(l, delta(l, j)), 1),
        (v[i * (i + 1)], v[i**2 + i]),
        (f((y + 1) ** 2), f(y**2 + 2 * y + 1)),
        (f(exp(y) * exp(-y) * z), f(z)),
        (Derivative(f(2 * y), y).doit(), Derivative(f(2 * y), y)),
        (sqrt(4 * negative**2 - 4 * negative + 1), 1 - 2 * negative),
        (cos(pi * (odd + 2)), -cos(pi * (odd + 1))),
    ],
)
def test_what_holds_is_never_refuted(left, right):
    """At a point, what is equal must have one value, and every value must obey its symbol's assumptions."""
    assert equal(left, right) is not False
    assert equal(left, right + 1) is not True


@pytest.mark.parametrize("denominator", [always_zero, always_zero_too])
def test_a_denominator_that_vanishes_proves_nothing(denominator):
    zero = (y + 1) ** 2 - y**2 - 2 * y - 1
    assert equal(zero, 0) is True
    assert equal(zero / denominator, 0) is None
    assert equal(1 / denominator, 2 / denominator) is None


@pytest.mark.parametrize("side", [S.NaN, S.ComplexInfinity])
def test_what_is_no_number_is_not_decided(side):
    assert equal(side, side) is None
    assert equal(side, 1) is None
    with pytest.raises(TypeError, match="no interval rule for"):
        at_most(side, 1)


def test_what_needs_other_algebra_is_undecided_not_wrong():
    assert equal(sqrt(y) * sqrt(z), sqrt(y * z)) is not True
    positive = Symbol("w", positive=True)
    assert equal(sqrt(1 + 2 * positive + positive**2), 1 + positive) is None


def test_exact_comparisons():
    assert at_most(exp(Integer(-2)), Rational(1, 7)) is True
    assert at_most(Rational(1, 7), exp(Integer(-2))) is False
    assert at_most(exp(1) * exp(2), exp(3)) is True
    assert below(exp(1) * exp(2), exp(3)) is False
    assert below(sqrt(2), Rational(142, 100)) is True


def test_comparison_resolves_what_double_precision_cannot():
    tiny = exp(Integer(-90))
    assert below(1, 1 + tiny) is True
    assert at_most(1 + tiny, 1) is False


def test_a_root_of_zero_is_enclosed_or_undecided():
    hidden_zero = (E + exp(2)) ** 2 - exp(2) - 2 * exp(3) - exp(4)
    assert at_most(sqrt(hidden_zero), -1) is not True
    assert below(sqrt((1 + sqrt(2)) ** 2 - 3 - 2 * sqrt(2)), 1) is not False
    assert at_most(sqrt(1 - E), 1) is None


def test_unknown_functions_are_named():
    with pytest.raises(TypeError, match="no interval rule for f"):
        below(Function("f")(Integer(1)), 2)


def test_floats_are_found():
    assert contains_float(y + Float(0.5))
    assert not contains_float(y + Rational(1, 2))


def test_float_zero_is_no_exact_zero():
    assert not is_zero_rational(y * Float(0) + z)
