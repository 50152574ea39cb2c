"""Traffic speeds and adjacencies from the files that people have. No pickle is ever loaded, whatever a file holds."""

import csv
import math
import zipfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from attention.series import MINUTES_A_DAY, Speeds, sensor_means, windows

TIME_HEADERS = {"", "time", "timestamp", "date", "datetime", "unnamed: 0"}
"""Headers that announce a column of times, lower case."""

FASTEST = 1000
"""No speed is above that, be it in mph or km/h."""


def read_speeds(path: str | Path, *, step_minutes: float = 5.0, start_minute: float = 0.0) -> Speeds:
    """Read traffic speeds; the file's suffix says how.

    - ``.csv``: a header of sensor ids, then one row a time step; the first column may hold times
      (ISO, such as ``2012-03-01 00:05``). An empty cell or ``nan`` is a missing reading. The week of METR-LA in the
      T-GCN repository, ``los_speed.csv``, has no times.
    - ``.h5``, ``.hdf5``: METR-LA and PEMS-BAY as DCRNN publishes them, a pandas frame of fixed format. Only plain
      arrays are looked at, so it does not matter which pandas wrote them.
    - ``.npz``: DCRNN's windows ``x``, ``y`` of shape (N, T, sensors, 2), channel 1 the time of day. Windows are
      consecutive, so the series is put together again; the sensors are named by their place.

    Where a file has times, rows that it leaves out (PEMS-BAY lacks the hour that summer time skips) become missing
    readings.

    Args:
        path: the file.
        step_minutes: minutes between rows, where the file holds no times.
        start_minute: minutes after midnight of the first row, where the file holds no times.

    Returns:
        The series.

    Raises:
        OSError: the file is missing or cannot be opened; the message names it.
        ValueError: the content is not what is described above, a reading does not lie in [0, ``FASTEST``], times do
            not increase, or a sensor has no reading at all; the message is one line that names the file, the place and
            what was expected.
    """
    path = Path(path)
    _check_opens(path)
    suffix = path.suffix.lower()
    if suffix == ".csv":
        speeds = _read_csv(path, step_minutes, start_minute)
    elif suffix in (".h5", ".hdf5"):
        speeds = _read_h5(path, step_minutes)
    elif suffix == ".npz":
        speeds = _read_npz(path)
    else:
        raise ValueError(f"{path} must be a .csv, .h5, .hdf5 or .npz file, got {path.suffix or 'no suffix'}")
    wrong = (speeds.values < 0) | (speeds.values > FASTEST)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{path}: readings must be speeds from 0 to {FASTEST}, got {speeds.values[row, column]:g} of sensor "
            f"{speeds.sensor_ids[column]} in row {row}"
        )
    try:
        sensor_means(speeds)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return speeds


def _check_opens(path: Path) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise type(error)(f"cannot read {path}: {error.strerror}") from None


def _series(
    path: Path, values: NDArray[np.float64], time_of_day: NDArray, sensor_ids: Sequence[str], step_minutes: float
) -> Speeds:
    """The series of raw readings, NaN = missing; what is wrong with them is said of the file."""
    try:
        return Speeds(_zero_for_nan(values), time_of_day, tuple(sensor_ids), step_minutes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _zero_for_nan(values: NDArray) -> NDArray:
    return np.where(np.isnan(values), 0.0, values)


def _timed_series(
    path: Path, values: NDArray[np.float64], times: NDArray[np.datetime64], sensor_ids: Sequence[str], if_one_row: float
) -> Speeds:
    """The series of rows at given times; rows left out become missing readings."""
    nanoseconds = times.astype("datetime64[ns]").astype(np.int64)
    gaps = np.diff(nanoseconds)
    if (gaps <= 0).any():
        row = int(np.argmax(gaps <= 0))
        raise ValueError(f"{path}: times must increase, got {times[row + 1]} after {times[row]} in row {row + 1}")
    step = int(np.sort(gaps)[(len(gaps) - 1) // 2]) if len(gaps) else round(if_one_row * 60e9)
    places, off = np.divmod(nanoseconds - nanoseconds[0], step)
    if off.any():
        row = int(np.argmax(off > 0))
        raise ValueError(
            f"{path}: times must lie whole steps of {step / 60e9:g} minutes apart, got {times[row]} in row {row}"
        )
    steps = int(places[-1]) + 1
    if steps > 2 * len(times):
        raise ValueError(f"{path}: at least half of the times must be there, got {len(times)} of {steps}")
    filled = np.zeros((steps, values.shape[1]))
    filled[places] = values
    day = round(MINUTES_A_DAY * 60e9)
    time_of_day = (nanoseconds[0] + step * np.arange(steps)) % day / day
    return _series(path, filled, time_of_day, sensor_ids, step / 60e9)


def _read_csv(path: Path, step_minutes: float, start_minute: float) -> Speeds:
    times: list[datetime] = []
    rows: list[NDArray[np.float64]] = []
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = [cell.strip() for cell in next(reader, [])]
            if not any(header):
                raise ValueError(f"{path} has no header of sensor ids in line 1")
            cells = next(reader, None)
            timed = _has_times(header, cells)
            sensor_ids = _sensor_ids(path, header, timed)
            while cells is not None:
                if len(cells) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: expected {len(sensor_ids)} readings, one a sensor, "
                        f"got {max(len(cells) - timed, 0)}"
                    )
                if timed:
                    times.append(_time(path, reader.line_num, cells[0]))
                rows.append(_readings(path, reader.line_num, cells[timed:], sensor_ids))
                cells = next(reader, None)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is not a CSV text file: {error}") from None
    if not rows:
        raise ValueError(f"{path} has a header but no readings")
    values = np.array(rows)
    if timed:
        return _timed_series(path, values, np.array(times, dtype="datetime64[us]"), sensor_ids, step_minutes)
    minutes = start_minute + step_minutes * np.arange(len(rows))
    return _series(path, values, minutes % MINUTES_A_DAY / MINUTES_A_DAY, sensor_ids, step_minutes)


def _has_times(header: list[str], first: list[str] | None) -> bool:
    """Whether the first column holds times: its header says so, or its first cell is one and no number."""
    if header[0].lower() in TIME_HEADERS:
        return True
    return bool(first) and math.isnan(_number(first[0])) and _moment(first[0]) is not None


def _sensor_ids(path: Path, header: list[str], timed: bool) -> tuple[str, ...]:
    sensor_ids = tuple(header[timed:])
    if not sensor_ids:
        raise ValueError(f"{path}, line 1: expected sensor ids after the column of times, got none")
    for place, sensor in enumerate(sensor_ids):
        if not sensor or sensor in sensor_ids[:place]:
            problem = f"{sensor!r} twice" if sensor else f"no sensor id in column {place + timed + 1}"
            raise ValueError(f"{path}, line 1: the header must hold one id a sensor, got {problem}")
        if _number(sensor) % 1 > 0:
            raise ValueError(f"{path}, line 1: expected the header of sensor ids, got the reading {sensor!r}")
    return sensor_ids


def _readings(path: Path, line: int, cells: list[str], sensor_ids: tuple[str, ...]) -> NDArray[np.float64]:
    readings = np.array([_number(cell) for cell in cells])
    for place in np.flatnonzero(~((readings >= 0) & (readings <= FASTEST))):
        if cells[place].strip().lower() not in ("", "nan"):
            raise ValueError(
                f"{path}, line {line}, sensor {sensor_ids[place]}: expected a speed from 0 to {FASTEST}, "
                f"got {cells[place]!r}"
            )
    return readings


def _number(cell: str) -> float:
    """The number that a cell holds; NaN where it holds none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _moment(cell: str) -> datetime | None:
    """The date and time that a cell holds, without a zone; None where it holds none."""
    try:
        moment = datetime.fromisoformat(cell.strip())
    except ValueError:
        return None
    return moment if moment.tzinfo is None else None


def _time(path: Path, line: int, cell: str) -> datetime:
    moment = _moment(cell)
    if moment is None:
        raise ValueError(f"{path}, line {line}: expected a date and time such as 2012-03-01 00:05, got {cell!r}")
    return moment


def _read_h5(path: Path, if_one_row: float) -> Speeds:
    try:
        with h5py.File(path, "r") as file:
            frame = _frame(path, file)
            kind = _text(frame["axis1"].attrs.get("kind", "datetime64"))
            if not kind.startswith("datetime64"):
                raise ValueError(f"{path}: axis1 must hold times, got an index of kind {kind!r}")
            counts = _array(path, frame, "axis1", 1)
            columns = [_text(name) for name in _array(path, frame, "axis0", 1)]
            values = _blocks(path, frame, len(counts), columns)
    except OSError as error:
        raise ValueError(f"{path} is not an HDF5 file that can be read: {str(error).splitlines()[0]}") from None
    if counts.dtype.kind not in "iu" or not len(counts):
        raise ValueError(f"{path}: axis1 must hold times as whole numbers, got {len(counts)} of {counts.dtype}")
    # Old pandas writes "datetime64" and means nanoseconds; newer ones name the unit, "datetime64[us]".
    unit = kind.removeprefix("datetime64").strip("[]").split(",")[0] or "ns"
    return _timed_series(path, values, counts.astype(np.int64).astype(f"datetime64[{unit}]"), columns, if_one_row)


def _frame(path: Path, file: h5py.File) -> h5py.Group:
    """The one pandas frame in the file: ``df`` in METR-LA, ``speed`` in PEMS-BAY."""
    groups = {name: node for name, node in file.items() if isinstance(node, h5py.Group)}
    frames = [node for node in groups.values() if {"axis0", "axis1", "block0_items", "block0_values"} <= set(node)]
    if len(frames) != 1:
        raise ValueError(
            f"{path} must hold one pandas frame of fixed format (axis0, axis1, block0_items, block0_values in a group "
            f"such as df), got {len(frames)} in the groups {', '.join(groups) or 'none'}"
        )
    return frames[0]


def _blocks(path: Path, frame: h5py.Group, steps: int, columns: list[str]) -> NDArray[np.float64]:
    """The readings in the order of the columns; pandas keeps columns of one dtype together in a block."""
    places = {name: place for place, name in enumerate(columns)}
    if len(places) != len(columns):
        raise ValueError(f"{path}: axis0 must hold one id a sensor, got {len(columns)} with {len(places)} different")
    values = np.full((steps, len(columns)), np.nan)
    missing = set(columns)
    for number in range(len(frame)):
        if f"block{number}_values" not in frame:
            break
        items = [_text(name) for name in _array(path, frame, f"block{number}_items", 1)]
        block = _array(path, frame, f"block{number}_values", 2)
        if block.shape != (steps, len(items)) or block.dtype.kind not in "fiu":
            raise ValueError(
                f"{path}: block{number}_values must hold {steps} x {len(items)} numbers, "
                f"got {block.shape} of {block.dtype}"
            )
        if not missing.issuperset(items):
            raise ValueError(f"{path}: block{number}_items must be ids of axis0, each once, got {items[0]!r}, ..")
        missing -= set(items)
        values[:, [places[name] for name in items]] = block
    if missing:
        raise ValueError(f"{path}: every id of axis0 must be in a block, got none with {min(missing)!r}")
    return values


def _array(path: Path, frame: h5py.Group, name: str, dims: int) -> NDArray:
    node = frame.get(name)
    if not isinstance(node, h5py.Dataset) or node.ndim != dims:
        shape = node.shape if isinstance(node, h5py.Dataset) else "no data"
        raise ValueError(f"{path}: {name} must be an array of {dims} dimension(s), got {shape}")
    # pandas pickles columns of mixed objects into bytes of varying length.
    if h5py.check_vlen_dtype(node.dtype) not in (None, str, bytes):
        raise ValueError(f"{path}: {name} must be a plain array, got pickled objects, which are never loaded")
    return node[()]


def _text(value: object) -> str:
    """Python 2 wrote attributes and column names as bytes, Python 3 writes text."""
    return value.decode() if isinstance(value, bytes) else str(value)


def _read_npz(path: Path) -> Speeds:
    arrays = _load(path)
    if not isinstance(arrays, dict) or not {"x", "y"} <= set(arrays):
        got = (", ".join(arrays) or "none") if isinstance(arrays, dict) else "one array without a name"
        raise ValueError(f"{path} must hold the arrays x and y, got {got}")
    x, y = arrays["x"], arrays["y"]
    for name, value in (("x", x), ("y", y)):
        if value.ndim != 4 or value.shape[3] < 2 or 0 in value.shape or value.dtype.kind not in "fiu":
            raise ValueError(
                f"{path}: {name} must hold numbers of shape (N, T, sensors, 2), channel 1 the time of day, "
                f"got {value.shape} of {value.dtype}"
            )
    if len(x) != len(y) or x.shape[2] != y.shape[2]:
        raise ValueError(f"{path}: x and y must have as many windows and sensors, got {x.shape} and {y.shape}")
    for name, value in (("x", x), ("y", y)):
        if not (value[..., 1] == value[:, :, :1, 1]).all():
            raise ValueError(f"{path}: the time of day must be the same for all sensors in {name}")
    values = _rejoined(path, _zero_for_nan(x[..., 0]), _zero_for_nan(y[..., 0]))
    time_of_day = _rejoined(path, x[:, :, :1, 1], y[:, :, :1, 1])[:, 0]
    # Midnight is a step like the others.
    steps = np.diff(time_of_day) % 1.0
    step = float(np.median(steps))
    if not (step > 0 and (np.abs(steps - step) < 0.01 * step).all()):
        row = int(np.argmax(np.abs(steps - step)))
        raise ValueError(
            f"{path}: times of day must increase by equal steps, got {time_of_day[row + 1]} after {time_of_day[row]}"
        )
    sensor_ids = [str(place) for place in range(values.shape[1])]
    # A step that single precision has rounded.
    a_day = round(1 / step)
    step_minutes = MINUTES_A_DAY / a_day if math.isclose(1 / step, a_day, rel_tol=1e-4) else MINUTES_A_DAY * step
    return _series(path, values, time_of_day, sensor_ids, step_minutes)


def _rejoined(path: Path, x: NDArray, y: NDArray) -> NDArray[np.float64]:
    """The series (N + T_in + T_out - 1, sensors) that was cut into windows, every one of them compared with it."""
    count, steps_in = x.shape[:2]
    series = np.concatenate([x[:, 0], x[-1, 1:], y[-1]]).astype(np.float64)
    for name, cut, first in (("x", x, 0), ("y", y, steps_in)):
        same = (windows(series, cut.shape[1])[first : first + count] == cut).all(axis=(1, 2))
        if not same.all():
            raise ValueError(
                f"{path}: windows must follow each other step by step, got {name}[{int(np.argmin(same))}] out of place"
            )
    return series


def _load(path: Path) -> NDArray | dict[str, NDArray]:
    """The arrays of a ``.npy`` or ``.npz`` file."""
    try:
        # Opened here: NumPy leaves the file open where it turns out to be no archive.
        with open(path, "rb") as file:
            content = np.load(file, allow_pickle=False)
            return content if isinstance(content, np.ndarray) else {name: content[name] for name in content.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path} is not a file of plain NumPy arrays (a pickle is never loaded): {reason}") from None


def join(parts: Sequence[Speeds]) -> Speeds:
    """One series from consecutive ones, such as DCRNN's ``train.npz``, ``val.npz`` and ``test.npz``.

    Windows that were cut before they were shared out overlap; the time of day says by how much, and the readings must
    then agree.

    Args:
        parts: at least one, in the order of time, of the same sensors and step; each begins less than a day before
            the end of the one before it, or exactly one step after.

    Returns:
        The series.

    Raises:
        ValueError: no part, other sensors or another step, or a part that does not continue the one before.
    """
    if not parts:
        raise ValueError("join needs at least one part, got none")
    joined = parts[0]
    for number, part in enumerate(parts[1:], start=1):
        if (part.sensor_ids, part.step_minutes) != (joined.sensor_ids, joined.step_minutes):
            raise ValueError(f"part {number} must have the sensors and the step of the parts before it")
        a_day = joined.steps_per_day
        overlap = round((float(joined.time_of_day[-1] - part.time_of_day[0]) % 1.0) * a_day + 1) % a_day
        common = min(overlap, len(joined), len(part))
        if common < overlap or not np.array_equal(joined.values[len(joined) - overlap :], part.values[:overlap]):
            raise ValueError(
                f"part {number} must continue the one before it, got other readings in {overlap} steps of both"
            )
        joined = Speeds(
            np.concatenate([joined.values, part.values[overlap:]]),
            np.concatenate([joined.time_of_day, part.time_of_day[overlap:]]),
            joined.sensor_ids,
            joined.step_minutes,
        )
    return joined


def read_adjacency(path: str | Path, sensors: int) -> NDArray[np.float64]:
    """Read which sensors are neighbours: a ``.npy`` array, or a ``.csv`` of numbers without a header.

    Args:
        path: the file.
        sensors: how many sensors the speeds have.

    Returns:
        (sensors, sensors), float64, finite, no entry below 0, in the file's order.

    Raises:
        OSError: the file is missing or cannot be opened; the message names it.
        ValueError: another size, another format, or an entry that is no weight.
    """
    path = Path(path)
    _check_opens(path)
    if path.suffix.lower() == ".npy":
        content = _load(path)
    elif path.suffix.lower() == ".csv":
        try:
            content = np.loadtxt(path, delimiter=",", ndmin=2, encoding="utf-8-sig")
        except ValueError as error:
            raise ValueError(
                f"{path} must be a CSV of numbers without a header: {str(error).splitlines()[0]}"
            ) from None
    else:
        raise ValueError(
            f"{path} must be a .npy or .csv file, got {path.suffix or 'no suffix'}; a pickle is never loaded"
        )
    if not isinstance(content, np.ndarray) or content.shape != (sensors, sensors) or content.dtype.kind not in "fiub":
        got = f"{content.shape} of {content.dtype}" if isinstance(content, np.ndarray) else "several arrays"
        raise ValueError(f"{path} must hold {sensors} x {sensors} numbers, one row a sensor, got {got}")
    adjacency = content.astype(np.float64)
    wrong = ~(np.isfinite(adjacency) & (adjacency >= 0))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{path}: weights must be finite and not negative, got {adjacency[row, column]} at ({row}, {column})"
        )
    return adjacency
