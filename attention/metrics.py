"""Errors of a forecast at single steps, pooled over everything that was forecast.

MAE = sum |e| / n, RMSE = sqrt(sum e^2 / n), MAPE = 100 sum |e/y| / n, the sums over the n observed targets of one step
ahead. Sums and counts are pooled and divided once, so that the errors do not depend on how the windows were batched; a
mean over batches would weigh one with few observed targets like a full one. MAE-3 is the error of the third step alone.
"""

import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attention.series import observed

REPORTED_STEPS = (3, 6, 12)
"""Steps ahead that are reported: 15, 30 and 60 minutes of METR-LA."""


class StepErrors(NamedTuple):
    """Errors at one step ahead; NaN where nothing was observed or a forecast of an observed target was NaN."""

    mae: float
    rmse: float
    mape: float


@dataclass(frozen=True, eq=False)
class Errors:
    """Errors by step ahead, each (steps_out,); [0] is the first step.

    Attributes:
        mae: in the unit of the targets, >= 0. Compare with persistence and the daily profile.
        rmse: in the unit of the targets, >= mae; large misses weigh more.
        mape: per cent of the target, >= 0; misses at low speed weigh more.
        counts: observed targets.
    """

    mae: NDArray[np.float64]
    rmse: NDArray[np.float64]
    mape: NDArray[np.float64]
    counts: NDArray[np.int64]

    def at(self, step: int) -> StepErrors:
        """The errors at one step ahead, counted from 1.

        Raises:
            ValueError: there is no such step.
        """
        if not 1 <= step <= len(self.mae):
            raise ValueError(f"step must be from 1 to {len(self.mae)}, got {step}")
        return StepErrors(*(float(errors[step - 1]) for errors in (self.mae, self.rmse, self.mape)))


class PooledErrors:
    """Sums and counts over batches of forecasts.

    Args:
        steps_out: steps ahead, at least 1.

    Raises:
        ValueError: a number below 1.
    """

    def __init__(self, steps_out: int) -> None:
        if steps_out < 1:
            raise ValueError(f"steps_out must be at least 1, got {steps_out}")
        self._sums = np.zeros((3, steps_out))
        self._counts = np.zeros(steps_out, dtype=np.int64)

    def add(self, forecast: ArrayLike, targets: ArrayLike) -> None:
        """Add one batch.

        Args:
            forecast: (N, steps_out, sensors), in the targets' unit, any float dtype (a tensor: on the CPU, detached).
            targets: raw readings, (N, steps_out, sensors), 0 or NaN = missing; never scaled ones, in which a
                missing reading cannot be told from others.

        Raises:
            ValueError: shapes that do not fit.
        """
        forecast, targets = np.asarray(forecast, dtype=np.float64), np.asarray(targets, dtype=np.float64)
        steps_out = len(self._counts)
        if targets.ndim != 3 or targets.shape[1] != steps_out:
            raise ValueError(f"targets must have shape (N, {steps_out}, sensors), got {targets.shape}")
        if forecast.shape != targets.shape:
            raise ValueError(f"forecast must have the shape of the targets, {targets.shape}, got {forecast.shape}")
        seen = observed(targets)
        # A forecast that is not finite stays so in the sums; what it says where nothing was observed does not count.
        misses = np.where(seen, np.abs(forecast - targets), 0.0)
        relative = misses / np.where(seen, np.abs(targets), 1.0)
        self._sums += [part.sum(axis=(0, 2)) for part in (misses, misses**2, relative)]
        self._counts += seen.sum(axis=(0, 2))

    def errors(self) -> Errors:
        """The errors of all that was added; NaN, with a warning, at steps without an observed target."""
        empty = np.flatnonzero(self._counts == 0) + 1
        if len(empty):
            steps = ", ".join(map(str, empty))
            warnings.warn(f"no target was observed at step {steps}: the errors there are NaN", stacklevel=2)
        absolute, square, relative = np.where(self._counts > 0, self._sums, np.nan) / np.maximum(self._counts, 1)
        return Errors(absolute, np.sqrt(square), 100 * relative, self._counts.copy())


def pooled_errors(forecast: ArrayLike, targets: ArrayLike) -> Errors:
    """The errors of one forecast, (N, steps_out, sensors), as ``PooledErrors`` has them."""
    forecast = np.asarray(forecast)
    if forecast.ndim != 3:
        raise ValueError(f"forecast must have shape (N, steps_out, sensors), got {forecast.shape}")
    pool = PooledErrors(forecast.shape[1])
    pool.add(forecast, targets)
    return pool.errors()
