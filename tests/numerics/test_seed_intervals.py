"""Student's t interval of a mean over seeds, against SciPy's t tests."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from numerics import mean_interval
from tests.evidence import agree

ERRORS = st.integers(2, 8).flatmap(lambda n: arrays(np.float64, (n, 3), elements=st.integers(100, 999)))
"""Errors of n seeds at three steps; digits enough that seldom all seeds agree."""

LEVELS = st.sampled_from([0.5, 0.9, 0.95, 0.99])


@given(ERRORS, LEVELS)
def test_the_interval_is_that_of_a_t_test(errors, level):
    found = mean_interval(errors, level=level)
    for column, (lower, mean, upper) in enumerate(zip(found.lower, found.mean, found.upper, strict=True)):
        sample = errors[:, column]
        agree(mean, sample.mean())
        if np.ptp(sample) == 0:
            assert lower == mean == upper
            continue
        expected = scipy.stats.ttest_1samp(sample, 0).confidence_interval(level)
        agree(lower, expected.low)
        agree(upper, expected.high)


@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_the_interval_of_differences_is_that_of_a_paired_test(n, seed):
    errors, base = np.random.default_rng(seed).normal(3, 1, size=(2, n, 3))
    found = mean_interval(errors - base)
    expected = scipy.stats.ttest_rel(errors, base).confidence_interval(0.95)
    agree(found.lower, np.asarray(expected.low))
    agree(found.upper, np.asarray(expected.high))


def test_the_interval_holds_the_mean_as_often_as_it_says():
    draws = np.random.default_rng(0).normal(3, 2, size=(4, 20_000))
    for level in (0.5, 0.95):
        found = mean_interval(draws, level=level)
        share = ((found.lower <= 3) & (found.upper >= 3)).mean()
        # Five standard errors of the share.
        assert abs(share - level) <= 5 * np.sqrt(level * (1 - level) / 20_000)


@pytest.mark.parametrize(
    ("values", "level", "message"),
    [
        ([1.0], 0.95, r"at least two rows, one a seed, got shape \(1,\)"),
        (3.0, 0.95, r"at least two rows, one a seed, got shape \(\)"),
        ([1.0, float("nan")], 0.95, "values must be finite, got nan"),
        ([1.0, 2.0], 1.0, r"level must lie in \(0, 1\), got 1.0"),
    ],
)
def test_bad_input_is_named(values, level, message):
    with pytest.raises(ValueError, match=message):
        mean_interval(values, level=level)
