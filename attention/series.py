"""One series of traffic speeds: what was observed, chronological parts, windows, and the scale.

A reading of 0 is a missing reading; so is NaN. Which readings were observed is decided from the raw values alone, never
after scaling: a scaled zero looks like any other speed. ``attention.traffic`` reads such series from files.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

TRAIN_SHARE, TEST_SHARE = 0.7, 0.2
"""Shares of the rows, first and last; the validation part lies between them (DCRNN, P1)."""

MINUTES_A_DAY = 24 * 60


def observed(values: ArrayLike) -> NDArray[np.bool_]:
    """Which raw readings are readings at all: neither 0 nor NaN.

    Args:
        values: raw readings in the file's unit, any shape.

    Returns:
        The same shape, True = observed.
    """
    values = np.asarray(values)
    return (values != 0) & ~np.isnan(values)


@dataclass(frozen=True, eq=False)
class Speeds:
    """Readings of all sensors at equal steps of time.

    Attributes:
        values: (steps, sensors), float64, finite, raw in the file's unit (mph for METR-LA), 0 = missing.
        time_of_day: (steps,), share of the day gone by, in [0, 1).
        sensor_ids: the sensors' names, in the order of the columns.
        step_minutes: minutes from one row to the next; a day is a whole number of steps.

    Raises:
        ValueError: shapes that do not fit each other, a value that is not finite, or another step.
    """

    values: NDArray[np.float64]
    time_of_day: NDArray[np.float64]
    sensor_ids: tuple[str, ...]
    step_minutes: float = 5.0

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or 0 in self.values.shape:
            raise ValueError(f"values must have shape (steps, sensors), both >= 1, got {self.values.shape}")
        steps, sensors = self.values.shape
        if self.time_of_day.shape != (steps,):
            raise ValueError(f"time_of_day must have shape ({steps},), one a step, got {self.time_of_day.shape}")
        if len(self.sensor_ids) != sensors:
            raise ValueError(f"sensor_ids must name {sensors} sensors, got {len(self.sensor_ids)}")
        if not np.isfinite(self.values).all():
            row, column = np.argwhere(~np.isfinite(self.values))[0]
            got, sensor = self.values[row, column], self.sensor_ids[column]
            raise ValueError(f"readings must be finite, got {got} of sensor {sensor} in row {row}")
        wrong = ~((self.time_of_day >= 0) & (self.time_of_day < 1))
        if wrong.any():
            raise ValueError(f"time_of_day must lie in [0, 1), got {self.time_of_day[wrong][0]}")
        a_day = MINUTES_A_DAY / self.step_minutes if self.step_minutes > 0 else 0
        if not (1 <= a_day <= 86_400 and math.isclose(a_day, round(a_day), rel_tol=1e-9)):
            raise ValueError(
                f"a day must be a whole number of steps of at least a second, got step_minutes = {self.step_minutes}"
            )

    @cached_property
    def observed(self) -> NDArray[np.bool_]:
        """(steps, sensors), True = observed."""
        return observed(self.values)

    @property
    def steps_per_day(self) -> int:
        """288 for steps of 5 minutes."""
        return round(MINUTES_A_DAY / self.step_minutes)

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, start: int, stop: int) -> "Speeds":
        """The rows from ``start`` up to ``stop``, without copying."""
        return Speeds(self.values[start:stop], self.time_of_day[start:stop], self.sensor_ids, self.step_minutes)


def time_slots(time_of_day: NDArray[np.float64], steps_per_day: int) -> NDArray[np.int64]:
    """Which step of the day each time lies in, from 0; any shape."""
    # The small shift keeps a time that was rounded down in its own step.
    return (time_of_day * steps_per_day + 1e-3).astype(np.int64) % steps_per_day


def sensor_means(speeds: Speeds) -> NDArray[np.float64]:
    """Mean of each sensor's observed readings.

    Returns:
        (sensors,).

    Raises:
        ValueError: a sensor without any observed reading.
    """
    counts = speeds.observed.sum(axis=0)
    if not counts.all():
        sensor = speeds.sensor_ids[int(np.argmin(counts))]
        raise ValueError(f"sensor {sensor} must have an observed reading, got none in {len(speeds)} steps")
    return speeds.values.sum(axis=0) / counts


@dataclass(frozen=True)
class Scaler:
    """One shift and one scale for all sensors.

    Attributes:
        mean, deviation: of the observed readings that it was fitted on, in their unit.
    """

    mean: float
    deviation: float

    @classmethod
    def fit(cls, speeds: Speeds) -> "Scaler":
        """Mean and standard deviation of the observed readings.

        Raises:
            ValueError: no observed reading, or all of them equal.
        """
        readings = speeds.values[speeds.observed]
        if not len(readings) or readings.min() == readings.max():
            got = f"only {readings[0]}" if len(readings) else "none"
            raise ValueError(f"a scale needs two different observed readings, got {got}")
        return cls(float(readings.mean()), float(readings.std()))

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Raw readings of any shape in units of the deviation; a missing one becomes 0, the mean."""
        return np.where(observed(values), (values - self.mean) / self.deviation, 0.0)

    def unscale(self, scaled):
        """Back to the raw unit; arrays and tensors alike."""
        return scaled * self.deviation + self.mean


@dataclass(frozen=True, eq=False)
class Splits:
    """Chronological parts of one series, and the scale of the first.

    Attributes:
        train: the first 70 % of the rows.
        validation: the rows between.
        test: the last 20 %.
        scaler: fitted on the observed readings of ``train`` alone.
    """

    train: Speeds
    validation: Speeds
    test: Speeds
    scaler: Scaler


def split(speeds: Speeds, *, steps_in: int = 12, steps_out: int = 12) -> Splits:
    """Cut a series into training, validation and test rows, 70/10/20, in the order of time.

    Args:
        speeds: the series.
        steps_in: steps that a forecast looks back, at least 1.
        steps_out: steps that it looks ahead, at least 1.

    Returns:
        The parts; windows are cut within each, so that none crosses a border.

    Raises:
        ValueError: a part that is too short for one window, a sensor without any observed reading in the training
            rows, or a number below 1.
    """
    if steps_in < 1 or steps_out < 1:
        raise ValueError(f"steps_in and steps_out must be at least 1, got {steps_in} and {steps_out}")
    steps = len(speeds)
    train, test = round(TRAIN_SHARE * steps), round(TEST_SHARE * steps)
    borders = {"training": (0, train), "validation": (train, steps - test), "test": (steps - test, steps)}
    for name, (start, stop) in borders.items():
        if stop - start < steps_in + steps_out:
            raise ValueError(
                f"the {name} rows must hold a window of {steps_in} + {steps_out} steps, "
                f"got {stop - start} of {steps} rows"
            )
    parts = [speeds.rows(start, stop) for start, stop in borders.values()]
    try:
        sensor_means(parts[0])
    except ValueError as error:
        raise ValueError(f"training rows: {error}") from None
    return Splits(*parts, scaler=Scaler.fit(parts[0]))


@dataclass(frozen=True, eq=False)
class ForecastWindows:
    """What a forecast sees and what it is to say; raw readings, 0 = missing, read-only views without a copy.

    Attributes:
        inputs: (N, steps_in, sensors).
        inputs_time: time of day, (N, steps_in).
        targets: (N, steps_out, sensors), the steps that follow.
        targets_time: (N, steps_out).
    """

    inputs: NDArray[np.float64]
    inputs_time: NDArray[np.float64]
    targets: NDArray[np.float64]
    targets_time: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.inputs)


def forecast_windows(speeds: Speeds, *, steps_in: int = 12, steps_out: int = 12, stride: int = 1) -> ForecastWindows:
    """Every stretch of ``steps_in`` steps with the ``steps_out`` that follow it.

    Args:
        speeds: one part of a series.
        steps_in: at least 1.
        steps_out: at least 1.
        stride: steps between the starts of two windows, at least 1.

    Returns:
        The windows, N = (steps - steps_in - steps_out) // stride + 1.

    Raises:
        ValueError: too few steps, or a number below 1.
    """
    if steps_in < 1 or steps_out < 1:
        raise ValueError(f"steps_in and steps_out must be at least 1, got {steps_in} and {steps_out}")
    values = windows(speeds.values, steps_in + steps_out, stride=stride)
    times = windows(speeds.time_of_day[:, None], steps_in + steps_out, stride=stride)[..., 0]
    return ForecastWindows(values[:, :steps_in], times[:, :steps_in], values[:, steps_in:], times[:, steps_in:])


def windows(values: NDArray[np.float64], length: int, *, stride: int = 1) -> NDArray[np.float64]:
    """Every stretch of consecutive time steps.

    Args:
        values: (steps, sensors).
        length: time steps a window, at least 1.
        stride: time steps between the starts of two windows, at least 1.

    Returns:
        (n, length, sensors), n = (steps - length) // stride + 1; window k starts at step k * stride. It is a
        read-only view of ``values`` and costs no memory; copy before writing.

    Raises:
        ValueError: ``values`` is not two-dimensional, has fewer steps than ``length``, or a number below 1.
    """
    if values.ndim != 2:
        raise ValueError(f"values must have shape (steps, sensors), got {values.shape}")
    if length < 1 or stride < 1:
        raise ValueError(f"length and stride must be at least 1, got length = {length}, stride = {stride}")
    if values.shape[0] < length:
        raise ValueError(f"windows of {length} steps need as many, got {values.shape[0]}")
    return np.lib.stride_tricks.sliding_window_view(values, length, axis=0)[::stride].swapaxes(1, 2)
