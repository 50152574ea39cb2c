"""The two forecasts that need no training to speak of: what was last seen, and what is usual at this time of day."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attention.series import ForecastWindows, Speeds, observed, sensor_means, time_slots


@dataclass(frozen=True, eq=False)
class Persistence:
    """Every step ahead is the sensor's latest observed reading in the window.

    Attributes:
        fallback: (sensors,), said where the window holds no observed reading of the sensor.
    """

    fallback: NDArray[np.float64]

    @classmethod
    def fit(cls, train: Speeds) -> "Persistence":
        """With the means of the observed training readings to fall back on.

        Raises:
            ValueError: a sensor without any.
        """
        return cls(sensor_means(train))

    def forecast(self, windows: ForecastWindows) -> NDArray[np.float64]:
        """The forecast, (N, steps_out, sensors), in the raw unit."""
        seen = observed(windows.inputs)
        latest = seen.shape[1] - 1 - np.argmax(seen[:, ::-1], axis=1, keepdims=True)
        reading = np.take_along_axis(windows.inputs, latest, axis=1)
        reading = np.where(seen.any(axis=1, keepdims=True), reading, self.fallback)
        return np.repeat(reading, windows.targets.shape[1], axis=1)


@dataclass(frozen=True, eq=False)
class DailyProfile:
    """Every step ahead is the sensor's mean at that time of day.

    Attributes:
        means: (steps a day, sensors).
    """

    means: NDArray[np.float64]

    @classmethod
    def fit(cls, train: Speeds) -> "DailyProfile":
        """Means of the observed training readings by time of day; the sensor's mean where there are none.

        Raises:
            ValueError: a sensor without any observed reading.
        """
        sums = np.zeros((train.steps_per_day, train.values.shape[1]))
        counts = np.zeros_like(sums)
        slots = time_slots(train.time_of_day, train.steps_per_day)
        np.add.at(sums, slots, train.values)
        np.add.at(counts, slots, train.observed)
        return cls(np.where(counts > 0, sums / np.maximum(counts, 1), sensor_means(train)))

    def forecast(self, windows: ForecastWindows) -> NDArray[np.float64]:
        """The forecast, (N, steps_out, sensors), in the raw unit."""
        return self.means[time_slots(windows.targets_time, len(self.means))]
