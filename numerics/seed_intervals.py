"""What a few runs say of the mean over all seeds: Student's t interval.

Errors of n runs that differ in the seed alone are taken as independent draws of one Gaussian. With mean m and standard
deviation s (divisor n - 1) the mean over all seeds lies in m +- t s / sqrt(n), t the quantile of Student's t with n - 1
degrees of freedom, for a share ``level`` of all samples. Two variants that were run with the same seeds are compared by
the interval of their differences seed by seed, in which what a seed does to both cancels.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]


class MeanInterval(NamedTuple):
    """A mean and how far its interval reaches to both sides, arrays of one shape; ``half_width >= 0``."""

    mean: Floats
    half_width: Floats

    @property
    def lower(self) -> Floats:
        """The lower end."""
        return self.mean - self.half_width

    @property
    def upper(self) -> Floats:
        """The upper end."""
        return self.mean + self.half_width


def mean_interval(values: ArrayLike, *, level: float = 0.95) -> MeanInterval:
    """Student's t interval of the mean over seeds (ours).

    Args:
        values: one row a seed, (n, ...), n >= 2, finite.
        level: share of samples whose interval holds the mean, in (0, 1).

    Returns:
        The interval of each column, (...).

    Raises:
        ValueError: fewer than two rows, a value that is not finite, or a level out of its range.
    """
    values = np.asarray(values, dtype=np.float64)
    if not 0 < level < 1:
        raise ValueError(f"level must lie in (0, 1), got {level}")
    if values.ndim < 1 or len(values) < 2:
        raise ValueError(f"values must have at least two rows, one a seed, got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError(f"values must be finite, got {values[~np.isfinite(values)][0]}")
    n = len(values)
    quantile = float(stdtrit(n - 1, (1 + level) / 2))
    return MeanInterval(values.mean(axis=0), quantile * values.std(axis=0, ddof=1) / np.sqrt(n))
