"""A7: an audit of the published table: relative changes, Welch's t and Holm, with the rounding carried through.

P1's table prints the mean and the sd of four runs with three decimals. Each number is known to half a unit of its last
digit, so each statistic is an interval: the numbers that some table could give which prints alike. What is not printed
are choices, always named: the sd's divisor (``ddof``) and Holm's family. The derivation is in
``derivations.a7_table_audit``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr

Floats = NDArray[np.float64]
Family = Literal["none", "variant", "all"]

METRICS = ("MAE-3", "MAE-6", "MAE-12", "RMSE-3", "RMSE-6", "RMSE-12", "MAPE-3", "MAPE-6", "MAPE-12")
"""Errors at the third, sixth and twelfth step: MAE and RMSE in mph, MAPE in per cent."""

RUNS = 4
HALF_UNIT = 0.0005
"""Half a unit of the table's last digit."""

BASELINE = "no regularisation"
REGULARISERS = ("full diagonal mask", "diagonal dropout", "diagonal penalty")

_TABLE = """
no residual        3.165 0.028 3.671 0.064 4.627 0.113 6.190 0.050 7.414 0.144 9.315 0.227 8.705 0.268 10.286 0.202 13.406 0.185
no regularisation  2.966 0.022 3.443 0.006 3.989 0.019 5.881 0.045 7.028 0.054 8.418 0.053 7.836 0.041  9.670 0.082 11.708 0.158
full diagonal mask 2.969 0.019 3.447 0.022 3.997 0.026 5.889 0.015 7.000 0.017 8.431 0.024 7.830 0.060  9.666 0.100 11.734 0.083
diagonal dropout   2.959 0.001 3.415 0.010 3.940 0.011 5.845 0.029 7.006 0.051 8.338 0.041 7.833 0.003  9.616 0.037 11.570 0.047
diagonal penalty   2.969 0.027 3.436 0.037 3.964 0.041 5.859 0.034 6.995 0.054 8.344 0.105 7.842 0.070  9.655 0.120 11.623 0.157
"""  # noqa: E501


class Reported(NamedTuple):
    """One row of the table: means and sds of four runs, each (9,) in the order of ``METRICS``."""

    mean: Floats
    sd: Floats


class Interval(NamedTuple):
    """A statistic at the printed values, and bounds of it over everything that prints alike; arrays of one shape.

    ``lower <= value <= upper``.
    """

    lower: Floats
    value: Floats
    upper: Floats


class Welch(NamedTuple):
    """Welch's two-sided test, arrays of one shape.

    Attributes:
        t: the statistic, positive where the first mean is the larger.
        df: Satterthwaite's degrees of freedom, in [n - 1, 2 (n - 1)].
        p: the two-sided p-value, in [0, 1].
    """

    t: Floats
    df: Floats
    p: Floats


class TableAudit(NamedTuple):
    """The 27 cells under one choice of ddof and family; rows are ``REGULARISERS``, columns ``METRICS``.

    Attributes:
        p: Holm's adjusted p-values (plain ones for the family "none").
        surely: significant for every table that prints alike.
        possibly: significant for some, as far as the bounds can tell.
    """

    p: Interval
    surely: NDArray[np.bool_]
    possibly: NDArray[np.bool_]


def _parsed() -> Mapping[str, Reported]:
    rows = {}
    for line in _TABLE.strip().splitlines():
        words = line.split()
        numbers = np.array(words[-2 * len(METRICS) :], dtype=np.float64)
        numbers.setflags(write=False)
        rows[" ".join(words[: -2 * len(METRICS)])] = Reported(numbers[::2], numbers[1::2])
    return MappingProxyType(rows)


PUBLISHED = _parsed()
"""Variant -> its row of the table (P1, METR-LA, 12 steps in and out, four runs)."""


def relative_change(mean: ArrayLike, base: ArrayLike, *, half_unit: float = HALF_UNIT) -> Interval:
    """mean/base - 1, negative where the error falls; exact ends, at two corners of the rounding box (A7.improvement).

    Args:
        mean: printed errors, above ``half_unit``, any shape.
        base: those compared with, above ``half_unit``, broadcasts.
        half_unit: how far the truth may lie from the printed number; 0 for exact numbers.

    Raises:
        ValueError: a number that is not finite or not above ``half_unit``.
    """
    mean, base = _above("mean", mean, half_unit), _above("base", base, half_unit)
    return Interval(
        (mean - half_unit) / (base + half_unit) - 1, mean / base - 1, (mean + half_unit) / (base - half_unit) - 1
    )


def welch(
    mean: ArrayLike, sd: ArrayLike, base_mean: ArrayLike, base_sd: ArrayLike, *, ddof: int, runs: int = RUNS
) -> Welch:
    """Welch's two-sided test from means and sds of two samples of the same size (A7.welch).

    Args:
        mean: of the first sample; all four broadcast.
        sd: its standard deviation, positive.
        base_mean: of the second sample.
        base_sd: its standard deviation, positive.
        ddof: the sds were formed with the divisor ``runs - ddof``: 1 or 0.
        runs: size of each sample, at least 2.

    Raises:
        ValueError: another ddof, too few runs, a mean that is not finite or an sd that is not positive.
    """
    _check_sample(ddof, runs)
    mean, base_mean = _finite("mean", mean), _finite("base_mean", base_mean)
    sd, base_sd = _above("sd", sd, 0.0), _above("base_sd", base_sd, 0.0)
    squares, share = _squares_and_share(sd**2, base_sd**2)
    t = (mean - base_mean) / _standard_error(squares, ddof, runs)
    df = _degrees(share, runs)
    t, df = np.broadcast_arrays(t, df)
    return Welch(t, df, _tail(t, df))


def welch_interval(
    mean: ArrayLike,
    sd: ArrayLike,
    base_mean: ArrayLike,
    base_sd: ArrayLike,
    *,
    ddof: int,
    runs: int = RUNS,
    half_unit: float = HALF_UNIT,
    pieces: int = 256,
) -> Interval:
    """Welch's p-value with bounds over everything that prints alike (A7.welch, A7.rounding).

    p falls in |t| and in the degrees of freedom. |t| rises in the difference, so its ends are corners. In the plane of
    the two sds, along a ray from the origin the degrees of freedom stay and |t| falls: the largest p lies on the far
    edges of the box, the least on the near ones. Along an edge p is not monotone; there each of ``pieces`` gets the
    least |t| and the fewest degrees of freedom of its own (the largest and the most for the lower bound). The bounds
    hold for any number of pieces, but for the rounding of float64, and are tight as it grows.

    Args:
        mean, sd, base_mean, base_sd, ddof, runs: as ``welch``; sds above ``half_unit``.
        half_unit: how far the truth may lie from each printed number.
        pieces: of an edge.

    Raises:
        ValueError: as ``welch``, an sd that may be 0, or fewer than one piece.
    """
    if pieces < 1:
        raise ValueError(f"pieces must be at least 1, got {pieces}")
    value = welch(mean, sd, base_mean, base_sd, ddof=ddof, runs=runs).p
    gap = np.abs(_finite("mean", mean) - _finite("base_mean", base_mean))
    sd, base_sd = np.broadcast_arrays(_above("sd", sd, half_unit), _above("base_sd", base_sd, half_unit))
    steps = np.linspace(-half_unit, half_unit, pieces + 1)
    edges = [(sd[..., None] + steps, base_sd), (base_sd[..., None] + steps, sd)]

    def worst(side: int) -> Floats:
        """Side 1: the largest p, on the far edges. Side -1: the least, on the near ones."""
        largest_gap = np.maximum(gap - side * 2 * half_unit, 0.0)[..., None]
        found = []
        for moving, fixed in edges:
            fixed = fixed[..., None] + side * half_unit
            squares, share = _squares_and_share(moving**2, fixed**2)
            degrees = _degrees(share, runs)
            ends = degrees[..., :-1], degrees[..., 1:]
            if side > 0:
                p = _tail(largest_gap / _standard_error(squares[..., 1:], ddof, runs), np.minimum(*ends))
                found.append(p.max(-1))
            else:
                crosses = (moving[..., :-1] <= fixed) & (fixed <= moving[..., 1:])
                most = np.where(crosses, 2.0 * (runs - 1), np.maximum(*ends))
                p = _tail(largest_gap / _standard_error(squares[..., :-1], ddof, runs), most)
                found.append(p.min(-1))
        return np.maximum(*found) if side > 0 else np.minimum(*found)

    return Interval(worst(-1), value, worst(1))


def holm(p: ArrayLike) -> Floats:
    """Holm's adjusted p-values of one family: reject those at most alpha. Valid under any dependence.

    Args:
        p: (N,), N >= 1, each in [0, 1].

    Returns:
        (N,), in [0, 1]; each is non-decreasing in every entry of ``p``, so bounds of p give bounds of these.

    Raises:
        ValueError: another shape, or a value outside [0, 1].
    """
    values = np.asarray(p, dtype=np.float64)
    if values.ndim != 1 or values.size == 0:
        raise ValueError(f"p must have shape (N,) with N >= 1, got {values.shape}")
    if not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"p must lie in [0, 1], got {values[~((values >= 0) & (values <= 1))][0]}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    steps = values[order] * np.arange(values.size, 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted


def audit_table(*, ddof: int, family: Family, alpha: float = 0.05, half_unit: float = HALF_UNIT) -> TableAudit:
    """The table's 27 cells against no regularisation, under one named choice (A7.significance, A7.choices; P1's table).

    The adjusted bounds treat the cells' rounding as free of each other. The three regularisers share their baseline's,
    so over the family "all" the true ranges may be narrower: ``surely`` is sure, ``possibly`` may be too generous.

    Args:
        ddof: reading of the printed sds, 1 or 0.
        family: Holm over "all" 27 cells, over each "variant"'s nine, or "none".
        alpha: level, in (0, 1).
        half_unit: how far the truth may lie from each printed number.

    Raises:
        ValueError: another choice, or a level outside (0, 1).
    """
    if family not in get_args(Family):
        raise ValueError(f"family must be one of {', '.join(get_args(Family))}, got {family!r}")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie in (0, 1), got {alpha}")
    base = PUBLISHED[BASELINE]
    mean, sd = (np.stack([PUBLISHED[name][place] for name in REGULARISERS]) for place in (0, 1))
    p = welch_interval(mean, sd, base.mean, base.sd, ddof=ddof, half_unit=half_unit)
    if family == "all":
        p = Interval(*(holm(bound.ravel()).reshape(bound.shape) for bound in p))
    elif family == "variant":
        p = Interval(*(np.stack([holm(row) for row in bound]) for bound in p))
    return TableAudit(p, p.upper <= alpha, p.lower <= alpha)


def _squares_and_share(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """The sum of two variances and the first one's share of it."""
    total = first + second
    return total, first / total


def _standard_error(squares: Floats, ddof: int, runs: int) -> Floats:
    """Of the difference of two means, from the sum of the squared sds."""
    unbiased = squares * (runs - ddof) / (runs - 1)
    return np.sqrt(unbiased / runs)


def _degrees(share: Floats, runs: int) -> Floats:
    return (runs - 1) / (share**2 + (1 - share) ** 2)


def _tail(t: Floats, df: Floats) -> Floats:
    """P(|T| > |t|), from the lower tail, where no digits cancel."""
    return 2 * stdtr(df, -np.abs(t))


def _check_sample(ddof: int, runs: int) -> None:
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 or 1, got {ddof}")
    if runs < 2:
        raise ValueError(f"runs must be at least 2, got {runs}")


def _finite(name: str, values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _above(name: str, values: ArrayLike, floor: float) -> Floats:
    array = _finite(name, values)
    if not (array > floor).all():
        raise ValueError(f"{name} must be above {floor:g}, got {array[~(array > floor)][0]:g}")
    return array
