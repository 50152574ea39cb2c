"""Traffic speeds from a file, cut into windows."""

import csv
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Speeds(NamedTuple):
    """Readings of all sensors.

    Attributes:
        values: (steps, sensors), float64, finite, in the file's unit (mph for METR-LA); one row a time step.
        sensor_ids: the sensors' names, in the order of the columns.
    """

    values: NDArray[np.float64]
    sensor_ids: tuple[str, ...]


def read_speeds(path: str | Path) -> Speeds:
    """Read a wide CSV file: a header of sensor ids, then one row a time step, and no time column.

    The layout of ``los_speed.csv``, the week of METR-LA of the T-GCN repository.

    Args:
        path: the file.

    Returns:
        The readings and the sensors' ids.

    Raises:
        OSError: the file is missing or cannot be opened; the message names it.
        ValueError: no text, no rows, a row of a wrong length, or a reading that is not a finite number; the
            message names the file, the line (the header is line 1) and the sensor.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            sensor_ids = _header(path, next(reader, []))
            rows = [_readings(path, reader.line_num, row, sensor_ids) for row in reader]
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV text file: {error}") from None
    if not rows:
        raise ValueError(f"{path} has a header but no readings")
    return Speeds(np.array(rows), sensor_ids)


def _header(path: str | Path, cells: list[str]) -> tuple[str, ...]:
    sensor_ids = tuple(cell.strip() for cell in cells)
    if not any(sensor_ids):
        raise ValueError(f"{path} has no header of sensor ids in line 1")
    for place, sensor in enumerate(sensor_ids):
        if not sensor or sensor in sensor_ids[:place]:
            problem = f"{sensor!r} twice" if sensor else f"no sensor id in column {place + 1}"
            raise ValueError(f"{path}, line 1: the header must hold one id a sensor, got {problem}")
        if _number(sensor) % 1 > 0:
            raise ValueError(f"{path}, line 1: expected the header of sensor ids, got the reading {sensor!r}")
    return sensor_ids


def _readings(path: str | Path, line: int, cells: list[str], sensor_ids: tuple[str, ...]) -> NDArray[np.float64]:
    if len(cells) != len(sensor_ids):
        raise ValueError(f"{path}, line {line}: expected {len(sensor_ids)} readings, one a sensor, got {len(cells)}")
    readings = np.array([_number(cell) for cell in cells])
    if not np.isfinite(readings).all():
        place = int(np.argmin(np.isfinite(readings)))
        raise ValueError(
            f"{path}, line {line}, sensor {sensor_ids[place]}: expected a finite number, got {cells[place]!r}"
        )
    return readings


def _number(cell: str) -> float:
    """The number that a cell holds; NaN where it holds none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


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
