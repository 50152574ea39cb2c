"""The normal form of sums against sums written out at explicit sizes."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import IndexedBase, Integer, Rational, Sum, Symbol, exp, log

from derivations.decide import equal_sums, is_zero_rational
from derivations.notation import INDEX_SIZE, T, a, d, d_k, d_v, delta, i, j, l, m, n, over, p, r, s, t, x
from derivations.summation import Distribution, InnerProduct, RowStochastic, as_expression, explicit, normal_form

y, z = IndexedBase("y"), IndexedBase("z")
w = Symbol("w", positive=True)
same = equal_sums()
stochastic = equal_sums(RowStochastic(a, T, T))

IDENTITIES = {
    "renamed index": (over(l, y[l]), over(m, y[m])),
    "product of sums": (over(l, y[l]) * over(m, z[m]), over(m, over(l, y[m] * z[l]))),
    "square of a sum": (over(l, y[l]) ** 2, over(l, over(m, y[l] * y[m]))),
    "delta picks": (over(l, delta(l, j) * y[l]), y[j]),
    "delta squared": (over(l, delta(l, j) ** 2 * y[l]), y[j]),
    "free delta renames": (delta(i, j) * y[j], delta(i, j) * y[i]),
    "constant summand": (over(l, z[i]), T * z[i]),
    "exchange": (Sum(a[i, l] * x[l, p], (l, 0, T - 1), (p, 0, d - 1)), over(l, over(p, a[i, l] * x[l, p]))),
    "exponential of a sum": (
        over(l, exp(over(p, y[p] * x[l, p]) + z[l])),
        over(m, exp(z[m]) * exp(over(p, x[m, p] * y[p]))),
    ),
    "Lagrange": (
        over(l, y[l] ** 2) * over(l, z[l] ** 2) - over(l, y[l] * z[l]) ** 2,
        Rational(1, 2) * over(l, over(m, (y[l] * z[m] - y[m] * z[l]) ** 2)),
    ),
    "an inner sum that reuses the outer name": (over(l, y[l] / over(l, z[l])), over(m, y[m]) / over(l, z[l])),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_of_symbolic_length(name):
    left, right = IDENTITIES[name]
    assert same(left, right) is True
    assert same(left, 2 * right) is False


def test_rows_sum_to_one_only_under_the_rule():
    assert stochastic(over(l, a[i, l]), 1) is True
    assert same(over(l, a[i, l]), 1) is False
    assert stochastic(over(i, a[i, j]), 1) is False


def test_the_rule_needs_the_factor_alone():
    assert stochastic(over(l, a[i, l] ** 2), 1) is False
    assert stochastic(over(l, a[i, l] * y[l]), over(l, y[l])) is False


def test_weights_sum_to_one_only_under_the_rule():
    one = equal_sums(Distribution(y, n))
    assert one(over(l, y[l] * (x[j, p] - z[p]), n), x[j, p] - z[p]) is True
    assert same(over(l, y[l], n), 1) is False
    assert one(over(l, y[l] ** 2, n), 1) is False
    assert one(over(l, y[l] * z[l], n), over(l, z[l], n)) is False
    # Another range is another sum.
    assert one(over(l, y[l], T), 1) is not True


def test_inner_products_are_known_only_under_the_rule():
    entries = {a[row, column]: Integer(int(row == column)) for row in range(3) for column in range(3)}
    orthonormal = equal_sums(InnerProduct(a, a, d, delta, lambda: entries), sizes={n: 3, d: 3})
    assert orthonormal(over(p, a[s, p] * a[t, p]), delta(s, t)) is True
    assert orthonormal(over(t, over(p, a[s, p] * a[t, p])), 1) is True
    assert orthonormal(over(p, a[s, p] ** 2), 1) is True
    assert orthonormal(over(p, a[s, p] * a[t, p] * z[p]), delta(s, t)) is False
    assert orthonormal(over(s, a[s, p] * a[s, r]), delta(p, r)) is not True


def test_an_index_without_a_size_is_refused():
    stray = IndexedBase("y")[i + l.func("stray", integer=True)]
    with pytest.raises(ValueError, match="indices without a size"):
        same(stray, 0)


def test_sums_must_start_at_zero():
    with pytest.raises(ValueError, match="sums run from 0"):
        normal_form(Sum(y[l], (l, 1, T)))


@pytest.mark.parametrize(
    "triangle",
    [
        Sum(y[m], (m, 0, l), (l, 0, T - 1)),
        Sum(Sum(y[m], (m, 0, l)), (l, 0, T - 1)),
        1 / Sum(y[m], (m, 0, l), (l, 0, T - 1)),
    ],
)
def test_a_sum_over_a_triangle_is_refused(triangle):
    with pytest.raises(ValueError, match="may not depend on another sum's index"):
        normal_form(triangle)


def test_an_index_in_an_exponent_is_an_index():
    mean = over(l, w**l) / T
    assert same(over(l, delta(l, j) * w**l), mean) is False
    assert same(over(l, delta(l, j) * w**l), w**j) is True
    assert same(over(l, w**l), over(m, w**m)) is True
    # One sum on one side, so that both terms share their index.
    assert stochastic(over(l, a[i, l] * w**l - w**l / T), 0) is False


def test_an_exponential_and_its_inverse_cancel():
    assert same(over(l, exp(y[l] * (w + 2)) * exp(-2 * y[l])), over(m, exp(w * y[m]))) is True
    assert same(over(l, over(p, exp(y[l] + z[p]) * exp(-z[p]))), d * over(l, exp(y[l]))) is True
    assert same(over(l, exp(y[l] * (w + 2)) * exp(2 * y[l])), over(m, exp(w * y[m]))) is False


def test_the_rules_apply_to_nothing_else():
    orthogonal = equal_sums(InnerProduct(y, z, d, lambda: Integer(0), lambda: {y[0]: 1, y[1]: 1, z[0]: 1, z[1]: -1}))
    assert orthogonal(over(p, y[p] * z[p]), 0) is True
    assert orthogonal(over(p, y[p] * z[p] / x[i, p]), 0) is False
    assert orthogonal(over(p, y[p] * z[p] * x[i, p] ** Rational(1, 2)), 0) is not True
    assert stochastic(over(l, a[i, l, l]), 1) is False


def test_division_by_zero_is_no_identity():
    assert same(over(l, y[l] / delta(l, j)), y[j]) is not True
    assert same(over(l, delta(l, j) / (y[l] - y[j])), 0) is not True


def test_sums_inside_functions_are_compared():
    for outer in (log, lambda value: w**value):
        assert same(outer(over(l, y[l])), outer(over(m, y[m]))) is True
        assert same(outer(over(l, y[l])), outer(over(m, z[m]))) is False


token = st.sampled_from([i, j, l, m])
factors = st.lists(
    st.one_of(
        st.builds(lambda one: y[one], token),
        st.builds(lambda one: z[one], token),
        st.builds(lambda one, other: a[one, other], token, token),
        st.builds(delta, token, token),
    ),
    min_size=1,
    max_size=4,
)


@given(factors, st.integers(1, 2))
def test_normal_form_keeps_the_value(chosen, power):
    """Whatever is summed, the normal form written out at T = 2 has the value of the sum written out."""
    summand = Integer(1)
    for factor in chosen:
        summand *= factor
    expr = over(l, over(m, summand)) ** power
    sizes = {T: 2, d: 2, d_k: 2, d_v: 2}
    for first, second in product(range(2), repeat=2):
        place = {i: Integer(first), j: Integer(second)}
        before = explicit(expr, sizes).xreplace(place)
        after = explicit(as_expression(normal_form(expr)), sizes).xreplace(place)
        assert is_zero_rational(before - after)


def test_every_shared_index_has_a_size():
    assert set(INDEX_SIZE.values()) == {T, n, d, d_k, d_v}
