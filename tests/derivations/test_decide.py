"""The decision procedures themselves: they say True, False and None where they should."""

import pytest
from sympy import E, Float, Function, Integer, Matrix, Rational, S, Symbol, exp, sqrt, symbols

from derivations.decide import at_most, below, contains_float, equal, is_zero_rational

y, z = symbols("y z")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((y**2 - z**2) / (y - z), y + z),
        (exp(y + z), exp(y) * exp(z)),
        (exp(2 * y) / (1 + exp(y)), exp(y) / (1 + exp(-y))),
        (exp(y / 2) ** 2, exp(y)),
        (E * exp(2), exp(3)),
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
        (S.true, S.false),
        (Function("f")(y), Function("f")(z)),
    ],
)
def test_a_wrong_identity_is_refuted(left, right):
    assert equal(left, right) is False


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


def test_unknown_functions_are_named():
    with pytest.raises(TypeError, match="no interval rule for f"):
        below(Function("f")(Integer(1)), 2)


def test_floats_are_found():
    assert contains_float(y + Float(0.5))
    assert not contains_float(y + Rational(1, 2))


def test_float_zero_is_no_exact_zero():
    assert not is_zero_rational(y * Float(0) + z)
