"""Rank correlations against SciPy's, and cluster intervals on planted relations and on planted nulls."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import binom

from numerics import cluster_interval, partial_rank_correlation, rank_correlation, ranks
from tests.evidence import agree

# Few different values: ties are the rule.
TIED = arrays(np.float64, st.tuples(st.integers(4, 30), st.just(4)), elements=st.integers(-3, 3).map(float))
SEEDS = st.integers(0, 2**32 - 1)


@given(TIED)
def test_ranks_with_ties_are_those_of_scipy(table):
    agree(ranks(table[:, 0]), scipy.stats.rankdata(table[:, 0]))


@given(TIED)
def test_the_rank_correlation_is_that_of_scipy(table):
    x, y, *_ = table.T
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        assert math.isnan(rank_correlation(x, y))
        return
    agree(rank_correlation(x, y), np.asarray(scipy.stats.spearmanr(x, y)[0]).item(), scale=1.0)


@given(TIED)
def test_the_partial_correlation_of_one_column_is_the_textbook_formula(table):
    x, y, z, _ = table.T
    assume((np.ptp(table[:, :3], axis=0) > 0).all())
    r = np.asarray(scipy.stats.spearmanr(table[:, :3])[0])
    assume(max(abs(r[0, 2]), abs(r[1, 2])) < 0.99)
    expected = (r[0, 1] - r[0, 2] * r[1, 2]) / math.sqrt((1 - r[0, 2] ** 2) * (1 - r[1, 2] ** 2))
    agree(partial_rank_correlation(x, y, z), float(expected), scale=1.0)


@given(SEEDS)
def test_the_partial_correlation_of_two_columns_is_read_off_the_inverse_matrix(seed):
    table = np.random.default_rng(seed).normal(size=(20, 4))
    precision = np.linalg.inv(np.corrcoef(np.apply_along_axis(scipy.stats.rankdata, 0, table).T))
    expected = -precision[0, 1] / math.sqrt(precision[0, 0] * precision[1, 1])
    agree(partial_rank_correlation(table[:, 0], table[:, 1], table[:, 2:]), float(expected), scale=1.0)


@given(TIED, SEEDS)
def test_correlations_know_only_the_order(table, seed):
    x, y, z, _ = table.T
    shuffled = np.random.default_rng(seed).permutation(len(x))
    before, after = rank_correlation(x, y), rank_correlation(np.exp(x)[shuffled], y[shuffled])
    assume(not math.isnan(before))
    agree(after, before, scale=1.0)
    agree(rank_correlation(-x, y), -before, scale=1.0)
    held = partial_rank_correlation(x, y, z)
    assume(not math.isnan(held))
    agree(partial_rank_correlation(y, x, z**3), held, scale=1.0)


def test_a_planted_monotone_relation_is_found():
    price = np.array([0.1, 0.5, 2.0, 9.0, math.inf])
    agree(rank_correlation(price, 1 / price), -1.0)
    agree(rank_correlation(price, price**3), 1.0)


def test_what_layers_alone_explain_is_gone_once_they_are_held_fixed():
    generator = np.random.default_rng(0)
    layer = np.repeat(np.arange(30), 9)
    price, mass = (layer + generator.normal(size=(2, 270)) * [[3], [4]]).round()
    assert rank_correlation(price, mass) > 0.8
    assert abs(partial_rank_correlation(price, mass, layer)) < 3 / math.sqrt(270)
    assert math.isnan(partial_rank_correlation(price, layer, layer))


def correlation_of(table):
    return lambda rows: rank_correlation(table[rows, 0], table[rows, 1])


def test_the_interval_of_an_effect_of_nothing_covers_zero_as_often_as_it_says():
    """Each text shifts its rows, and the shifts of the two columns know nothing of each other."""
    generator, runs, texts, rows, level = np.random.default_rng(1), 250, 40, 3, 0.9
    covered = 0
    for run in range(runs):
        table = generator.normal(size=(texts, 1, 2)) + 0.5 * generator.normal(size=(texts, rows, 2))
        found = cluster_interval(
            correlation_of(table.reshape(-1, 2)), np.repeat(np.arange(texts), rows), level=level, draws=100, seed=run
        )
        covered += found.lower <= 0 <= found.upper
    # With 99.9 % confidence the true rate is within this of the stated one; the percentile interval's own error with
    # 40 clusters, some per cent, is allowed for.
    low, high = binom.ppf([0.0005, 0.9995], runs, [level - 0.04, level + 0.01])
    assert low <= covered <= high


def test_drawing_rows_instead_of_clusters_would_be_too_sure():
    generator = np.random.default_rng(2)
    table = np.repeat(generator.normal(size=(12, 2)), 20, axis=0)
    by_text = cluster_interval(correlation_of(table), np.repeat(np.arange(12), 20), draws=500)
    by_row = cluster_interval(correlation_of(table), np.arange(240), draws=500)
    assert by_text.value == by_row.value
    assert by_text.upper - by_text.lower > 2.5 * (by_row.upper - by_row.lower)


def test_the_interval_of_a_planted_effect_holds_it_and_not_zero():
    generator = np.random.default_rng(3)
    price = generator.normal(size=200)
    table = np.column_stack([price, -price + generator.normal(size=200)])
    found = cluster_interval(correlation_of(table), np.repeat(np.arange(40), 5), draws=500)
    # Spearman's coefficient of two Gaussians of correlation -1/sqrt(2).
    assert found.lower < -6 / math.pi * math.asin(0.5 / math.sqrt(2)) < found.upper < 0
    assert found.undefined == 0


def test_the_interval_of_a_mean_is_that_of_the_bootstrap_of_scipy():
    sample = np.random.default_rng(4).exponential(size=50)
    found = cluster_interval(lambda rows: float(sample[rows].mean()), np.arange(50), draws=20_000)
    expected = scipy.stats.bootstrap(
        (sample,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(5)
    )
    spread = expected.standard_error
    agree(found.value, sample.mean())
    for mine, other in zip((found.lower, found.upper), expected.confidence_interval, strict=True):
        # A quantile in the tail of 20 000 draws has a standard error of a fiftieth of their spread, both have it.
        assert abs(mine - other) < 5 * math.sqrt(2) * spread / 50


def test_the_interval_is_the_same_each_time_and_says_what_was_not_defined():
    table = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    one, again = (cluster_interval(correlation_of(table), ["a", "b", "c"], draws=300, seed=7) for _ in range(2))
    assert one == again
    # Both columns need both values: rows 1 and 3, which 12 of the 27 draws have.
    assert abs(one.undefined - 15 / 27) < 4 * math.sqrt(15 * 12 / 27**2 / 300)
    constant = cluster_interval(lambda rows: math.nan, ["a", "b"], draws=5)
    assert math.isnan(constant.lower)
    assert constant.undefined == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ranks([[1.0]]), r"values must be one column with at least one row, got shape \(1, 1\)"),
        (lambda: ranks([]), r"values must be one column with at least one row, got shape \(0,\)"),
        (lambda: rank_correlation([1, 2, math.nan], [1, 2, 3]), "x must hold no NaN, got one in row 2"),
        (lambda: rank_correlation([1, 2], [1, 2, 3]), r"one row each, got shapes \(2,\), \(3,\)"),
        (lambda: rank_correlation([1], [1]), "at least two rows, got 1"),
        (lambda: partial_rank_correlation([1, 2], [1, 2], [1]), r"one row each, got shapes \(2,\), \(2,\) and \(1,\)"),
        (lambda: cluster_interval(len, [1, 2, math.nan, 2]), "clusters must hold no NaN, got one in row 2"),
        (
            lambda: cluster_interval(len, np.array(["a", math.nan, "b"], dtype=object)),
            "clusters must hold no NaN, got one in row 1",
        ),
        (lambda: cluster_interval(len, [1, 1]), "at least two different names"),
        (lambda: cluster_interval(len, [1, 2], level=1.0), r"level must lie in \(0, 1\), got 1.0"),
        (lambda: cluster_interval(len, [1, 2], draws=0), "draws must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
