"""B8, the study: does one measured number predict another, and how sure is that?

Spearman's rank correlation, with control for further columns, and intervals for any statistic by resampling whole
clusters: the heads of a layer and the layers of a text are no independent draws, so texts or layers are drawn again,
with all their rows.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


class StudyInterval(NamedTuple):
    """A statistic and its interval, ``lower <= upper``; the value itself may lie outside. NaN where not defined.

    Attributes:
        value: on all rows. lower, upper: quantiles over the resampled rows.
        undefined: share of the resamples on which the statistic was not defined, in [0, 1]; they are left out.
    """

    value: float
    lower: float
    upper: float
    undefined: float


def ranks(values: ArrayLike) -> Floats:
    """Ranks from 1 to n, equal values sharing the mean of theirs, (n,).

    Args:
        values: (n,), n >= 1; infinities have a place, NaN has none.

    Raises:
        ValueError: another shape, or a NaN.
    """
    row = _checked("values", values)
    _, place, count = np.unique(row, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def rank_correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's correlation of the ranks.

    Args:
        x, y: (n,), n >= 2; infinities are the largest or smallest.

    Returns:
        In [-1, 1]: 1 for a rising relation of any shape, -1 for a falling one. Baseline: 0 on average for unrelated
        columns, with standard deviation 1/sqrt(n - 1) for independent rows. NaN where a column has one value.

    Raises:
        ValueError: other shapes, two lengths, fewer than two rows, or a NaN.
    """
    return partial_rank_correlation(x, y, np.empty((len(_checked("x", x)), 0)))


def partial_rank_correlation(x: ArrayLike, y: ArrayLike, given: ArrayLike) -> float:
    """Rank correlation of x and y with the ranks of other columns held fixed.

    The ranks of x and y are regressed on those of the columns (and a constant); what is left is correlated.

    Args:
        x, y: (n,), n >= 2. given: (n,) or (n, k), the columns held fixed.

    Returns:
        In [-1, 1]; 0 where x says no more of y than the columns do. NaN where the columns leave nothing of x or of y.

    Raises:
        ValueError: other shapes, lengths that differ, fewer than two rows, or a NaN.
    """
    one, other = ranks(x), ranks(y)
    columns = np.asarray(given, dtype=np.float64)
    columns = columns[:, None] if columns.ndim == 1 else columns
    if columns.ndim != 2 or not len(one) == len(other) == len(columns):
        raise ValueError(
            f"x, y and given must have one row each, got shapes {np.shape(x)}, {np.shape(y)} and {np.shape(given)}"
        )
    if len(one) < 2:
        raise ValueError(f"a correlation needs at least two rows, got {len(one)}")
    known: list[Floats] = []
    for column in (np.ones(len(one)), *map(ranks, columns.T)):
        rest = _rest(column, known)
        if rest.any():
            known.append(rest / np.linalg.norm(rest))
    left, right = _rest(one, known), _rest(other, known)
    length = np.linalg.norm(left) * np.linalg.norm(right)
    return float(np.clip(left @ right / length, -1, 1)) if length > 0 else float("nan")


def cluster_interval(
    statistic: Callable[[NDArray[np.int64]], float],
    clusters: ArrayLike,
    *,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> StudyInterval:
    """The percentile interval of a statistic when whole clusters of rows are drawn again, with replacement.

    It covers about as often as it says where there are many clusters; with 24 of them some per cent less often.

    Args:
        statistic: takes row numbers, with repetitions, and gives a number; NaN where it is not defined.
        clusters: which cluster each row belongs to, (n,); numbers or names, at least two different ones.
        level: in (0, 1). draws: how many resamples, at least 1. seed: of the draws.

    Raises:
        ValueError: clusters of another shape, fewer than two or NaN, or a level or number of draws out of range.
    """
    names = np.asarray(clusters)
    # NaN alone is not itself, so its rows would be in no cluster.
    (lost,) = np.nonzero(np.ravel(names != names))
    if len(lost):
        raise ValueError(f"clusters must hold no NaN, got one in row {lost[0]}")
    if names.ndim != 1 or len(np.unique(names)) < 2:
        raise ValueError(f"clusters must be one column with at least two different names, got {clusters!r}")
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, got {draws}")
    members = [np.flatnonzero(names == name) for name in np.unique(names)]
    generator = np.random.default_rng(seed)
    found = np.array(
        [
            statistic(np.concatenate([members[place] for place in generator.integers(len(members), size=len(members))]))
            for _ in range(draws)
        ]
    )
    value, defined = float(statistic(np.arange(len(names)))), found[~np.isnan(found)]
    if len(defined) == 0:
        return StudyInterval(value, float("nan"), float("nan"), 1.0)
    lower, upper = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return StudyInterval(value, float(lower), float(upper), 1 - len(defined) / draws)


def _rest(column: Floats, known: list[Floats]) -> Floats:
    """What orthonormal columns leave of a column; exactly 0 where that is rounding alone."""
    rest = column
    for direction in known:
        rest = rest - (direction @ rest) * direction
    return rest if np.linalg.norm(rest) > 1e-9 * np.linalg.norm(column) else np.zeros_like(rest)


def _checked(name: str, values: ArrayLike) -> Floats:
    row = np.asarray(values, dtype=np.float64)
    if row.ndim != 1 or len(row) == 0:
        raise ValueError(f"{name} must be one column with at least one row, got shape {row.shape}")
    if np.isnan(row).any():
        raise ValueError(f"{name} must hold no NaN, got one in row {int(np.flatnonzero(np.isnan(row))[0])}")
    return row
