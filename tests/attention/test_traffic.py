"""Reading traffic speeds and adjacencies: files made by hand, and a week of METR-LA."""

import pickle
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

from attention import Speeds, forecast_windows, join, read_adjacency, read_speeds, windows

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "speeds.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path, read: Callable[[], object] | None = None) -> str:
    """The one line with which a file's content is refused; it names the file."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_speeds(path) if read is None else read()
    message = str(caught.value)
    assert str(path) in message
    assert "\n" not in message
    return message.removeprefix(str(path))


def test_a_small_file(tmp_path):
    speeds = read_speeds(write(tmp_path, "773869,767541\n64.375,67.625\n0,7e1\n"))
    assert speeds.sensor_ids == ("773869", "767541")
    assert speeds.values.dtype == np.float64
    assert speeds.values.tolist() == [[64.375, 67.625], [0.0, 70.0]]


@pytest.mark.parametrize(
    "text", ["a,b\r\n1,2\r\n", "\ufeffa,b\n1,2\n", '"a","b"\n"1","2"', " a , b \n 1 , 2 \n"], ids=repr
)
def test_dialects_that_mean_the_same(tmp_path, text):
    speeds = read_speeds(str(write(tmp_path, text)))
    assert speeds.sensor_ids == ("a", "b")
    assert speeds.values.tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", " has no header of sensor ids in line 1"),
        ("\n1,2\n", " has no header of sensor ids in line 1"),
        ("a,b\n", " has a header but no readings"),
        ("a,,c\n1,2,3\n", ", line 1: the header must hold one id a sensor, got no sensor id in column 2"),
        ("a,b,a\n1,2,3\n", ", line 1: the header must hold one id a sensor, got 'a' twice"),
        ("64.375,67.625\n1,2\n", ", line 1: expected the header of sensor ids, got the reading '64.375'"),
        ("a,b\n1,2\n3\n", ", line 3: expected 2 readings, one a sensor, got 1"),
        ("a,b\n1,2,3\n", ", line 2: expected 2 readings, one a sensor, got 3"),
        ("a,b\n1,2\n\n3,4\n", ", line 3: expected 2 readings, one a sensor, got 0"),
        ("a,b\n1,2\n3,x\n", ", line 3, sensor b: expected a speed from 0 to 1000, got 'x'"),
        ("a,b\n1,none\n", ", line 2, sensor b: expected a speed from 0 to 1000, got 'none'"),
        ("a,b\n1,-inf\n", ", line 2, sensor b: expected a speed from 0 to 1000, got '-inf'"),
        ("a,b\n1,2\n1e30,2\n", ", line 3, sensor a: expected a speed from 0 to 1000, got '1e30'"),
        ("a,b\n1,-7\n", ", line 2, sensor b: expected a speed from 0 to 1000, got '-7'"),
        ("a,b\n1,\n2,nan\n", ": sensor b must have an observed reading, got none in 2 steps"),
        ("time,a\n12:05,1\n", ", line 2: expected a date and time such as 2012-03-01 00:05, got '12:05'"),
        (",a\n0,1\n", ", line 2: expected a date and time such as 2012-03-01 00:05, got '0'"),
        (
            "time,a\n2012-03-01T00:00+01:00,1\n",
            ", line 2: expected a date and time such as 2012-03-01 00:05, got '2012-03-01T00:00+01:00'",
        ),
        ("time\n2012-03-01\n", ", line 1: expected sensor ids after the column of times, got none"),
        ("time,a,\n2012-03-01,1,2\n", ", line 1: the header must hold one id a sensor, got no sensor id in column 3"),
        ("time,a\n2012-03-01,1,2\n", ", line 2: expected 1 readings, one a sensor, got 2"),
        (
            "time,a\n2012-03-01 00:05,1\n2012-03-01 00:00,1\n",
            ": times must increase, got 2012-03-01T00:00:00.000000 after 2012-03-01T00:05:00.000000 in row 1",
        ),
        (
            "time,a\n2012-03-01 00:05,1\n2012-03-01 00:05,1\n",
            ": times must increase, got 2012-03-01T00:05:00.000000 after 2012-03-01T00:05:00.000000 in row 1",
        ),
        (
            "time,a\n2012-03-01 00:00,1\n2012-03-01 00:05,1\n2012-03-01 00:12,1\n2012-03-01 00:17,1\n",
            ": times must lie whole steps of 5 minutes apart, got 2012-03-01T00:12:00.000000 in row 2",
        ),
        (
            "time,a\n2012-03-01 00:00,1\n2012-03-01 00:05,1\n2012-03-01 00:10,1\n2013-03-01 00:00,1\n",
            ": at least half of the times must be there, got 4 of 105121",
        ),
        (
            "time,a\n2012-03-01 00:00,1\n2012-03-01 00:07,1\n",
            ": a day must be a whole number of steps of at least a second, got step_minutes = 7.0",
        ),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_content_that_cannot_be_read_is_named(tmp_path, text, message):
    assert refusal(write(tmp_path, text)) == message


def test_a_file_that_is_no_text_is_named(tmp_path):
    assert refusal(write(tmp_path, b"PK\x03\x04\xbf\xff")).startswith(" is not a CSV text file")


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    missing = tmp_path / "nowhere.csv"
    with pytest.raises(FileNotFoundError, match=r"^cannot read .*nowhere\.csv: No such file"):
        read_speeds(missing)
    with pytest.raises(OSError, match=r"^cannot read "):
        read_speeds(tmp_path)


@pytest.mark.parametrize("header", ["", "timestamp", "Unnamed: 0", "when"], ids=repr)
def test_a_column_of_times(tmp_path, header):
    rows = "2012-03-01 23:50:00,1,2\n2012-03-01T23:55,,4\n2012-03-02 00:05,5,nan\n"
    speeds = read_speeds(write(tmp_path, f"{header},a,b\n{rows}"))
    assert speeds.sensor_ids == ("a", "b")
    # The row of 00:00 is left out in the file, so nothing was read then.
    assert speeds.values.tolist() == [[1, 2], [0, 4], [0, 0], [5, 0]]
    assert speeds.observed.tolist() == [[True, True], [False, True], [False, False], [True, False]]
    assert np.allclose(speeds.time_of_day * 288, [286, 287, 0, 1], rtol=0, atol=1e-9)
    assert speeds.step_minutes == 5.0


def test_without_times_the_caller_says_them(tmp_path):
    path = write(tmp_path, "a\n1\n2\n3\n")
    assert np.allclose(read_speeds(path).time_of_day * 288, [0, 1, 2])
    speeds = read_speeds(path, step_minutes=15, start_minute=1425)
    assert speeds.step_minutes == 15
    assert np.allclose(speeds.time_of_day * 96, [95, 0, 1])


def test_a_suffix_that_says_nothing_is_named(tmp_path):
    for name in ("speeds.pkl", "speeds"):
        path = tmp_path / name
        path.write_bytes(b"")
        with pytest.raises(ValueError, match=r"must be a \.csv, \.h5, \.hdf5 or \.npz file, got"):
            read_speeds(path)


# HDF5 as pandas writes it

START = np.datetime64("2012-03-01T23:50", "ns").astype(np.int64)
FIVE_MINUTES = 5 * 60 * 10**9


def frame_file(
    path: Path,
    values,
    *,
    ids=None,
    group="df",
    text: Callable[[str], object] = np.bytes_,
    times=None,
    kind="datetime64",
    leave_out=(),
):
    """A frame of fixed format; ``text=np.bytes_`` writes the attributes as Python 2 did."""
    values = np.asarray(values, dtype=float)
    ids = np.array(["773869", "767541", "767542"][: values.shape[1]], dtype="S6") if ids is None else ids
    times = START + FIVE_MINUTES * np.arange(len(values)) if times is None else np.asarray(times)
    datasets = {"axis0": ids, "axis1": times, "block0_items": ids, "block0_values": values}
    with h5py.File(path, "w") as file:
        file.attrs["PYTABLES_FORMAT_VERSION"] = text("2.1")
        node = file.create_group(group)
        node.attrs["pandas_type"], node.attrs["pandas_version"] = text("frame"), text("0.15.2")
        node.attrs["nblocks"], node.attrs["ndim"] = 1, 2
        for name, data in datasets.items():
            if name not in leave_out:
                node[name] = data
                # A pickled None, which is what pandas calls an index without a name.
                node[name].attrs["name"] = text("N.")
                node[name].attrs["TITLE"] = h5py.Empty("S1")
                node[name].attrs["kind"] = text("string")
        if "axis1" in node:
            node["axis1"].attrs["kind"] = text(kind)
        if "block0_values" in node:
            node["block0_values"].attrs["transposed"] = np.uint8(1)
    return path


@pytest.mark.parametrize("text", [np.bytes_, str])
@pytest.mark.parametrize("group", ["df", "speed"])
def test_a_frame_of_old_pandas(tmp_path, text, group):
    speeds = read_speeds(
        frame_file(tmp_path / "metr-la.h5", [[64.375, 0.0], [62.5, np.nan], [61.0, 7.0]], group=group, text=text)
    )
    assert speeds.sensor_ids == ("773869", "767541")
    assert speeds.values.tolist() == [[64.375, 0.0], [62.5, 0.0], [61.0, 7.0]]
    assert speeds.observed.tolist() == [[True, False], [True, False], [True, True]]
    assert np.allclose(speeds.time_of_day * 288, [286, 287, 0], rtol=0, atol=1e-9)
    assert speeds.step_minutes == 5.0


def test_ids_that_are_numbers_and_a_square_frame(tmp_path):
    """PEMS-BAY names its sensors by numbers; pandas stores one row a time step."""
    values = [[1.0, 2.0], [3.0, 4.0]]
    speeds = read_speeds(frame_file(tmp_path / "pems-bay.hdf5", values, ids=np.array([400001, 400017]), group="speed"))
    assert speeds.sensor_ids == ("400001", "400017")
    assert speeds.values.tolist() == values


def test_text_ids_and_times_of_another_unit(tmp_path):
    ids = np.array(["a", "b"], dtype=h5py.string_dtype())
    times = np.arange(2) * 300 * 10**6
    speeds = read_speeds(
        frame_file(tmp_path / "new.h5", [[1, 2], [3, 4]], ids=ids, times=times, text=str, kind="datetime64[us]")
    )
    assert speeds.sensor_ids == ("a", "b")
    assert speeds.step_minutes == 5.0


def test_columns_of_two_dtypes_are_put_back_in_order(tmp_path):
    path = frame_file(tmp_path / "mixed.h5", [[1.5, 2.0, 3.5], [4.5, 5.0, 6.5]])
    with h5py.File(path, "a") as file:
        frame = file["df"]
        assert isinstance(frame, h5py.Group)
        for name in ("block0_items", "block0_values"):
            del frame[name]
        frame["block0_items"], frame["block0_values"] = np.array(["767542", "773869"], "S6"), [[3.5, 1.5], [6.5, 4.5]]
        frame["block1_items"], frame["block1_values"] = np.array(["767541"], "S6"), [[2], [5]]
    assert read_speeds(path).values.tolist() == [[1.5, 2.0, 3.5], [4.5, 5.0, 6.5]]


def test_an_hour_that_a_frame_leaves_out_is_missing(tmp_path):
    steps = np.array([0, 1, 2, 3, 5, 6])
    path = frame_file(tmp_path / "gap.h5", np.ones((6, 2)), times=START + FIVE_MINUTES * steps)
    speeds = read_speeds(path)
    assert speeds.observed[:, 0].tolist() == [True, True, True, True, False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leave_out": ("axis1",)}, " must hold one pandas frame of fixed format"),
        ({"times": [1, 2, 3]}, ": block0_values must hold 3 x 2 numbers, got (2, 2) of float64"),
        ({"times": START + np.array([FIVE_MINUTES, 0])}, ": times must increase, got 2012-03-01T23:50"),
        ({"times": np.array([0.0, 1.0])}, ": axis1 must hold times as whole numbers, got 2 of float64"),
        ({"times": [[1, 2]]}, ": axis1 must be an array of 1 dimension(s), got (1, 2)"),
        ({"kind": "integer"}, ": axis1 must hold times, got an index of kind 'integer'"),
        ({"ids": np.array([b"a", b"a"])}, ": axis0 must hold one id a sensor, got 2 with 1 different"),
        ({"values": [[1, 0], [2, 0]]}, ": sensor 767541 must have an observed reading, got none in 2 steps"),
        (
            {"values": [[1, 2], [1e15, 1]]},
            ": readings must be speeds from 0 to 1000, got 1e+15 of sensor 773869 in row 1",
        ),
        ({"values": [[1, 2], [1, -7]]}, ": readings must be speeds from 0 to 1000, got -7 of sensor 767541 in row 1"),
        ({"values": [[1, np.inf], [2, 1]]}, ": readings must be finite, got inf of sensor 767541 in row 0"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_frame_that_does_not_fit_is_named(tmp_path, options, message):
    path = frame_file(tmp_path / "frame.h5", **{"values": [[1, 2], [3, 4]], **options})
    assert refusal(path).startswith(message)


def test_pickled_ids_are_not_loaded(tmp_path):
    path = frame_file(tmp_path / "objects.h5", [[1, 2], [3, 4]], leave_out=("axis0",))
    with h5py.File(path, "a") as file:
        axis = file.create_dataset("df/axis0", (1,), dtype=h5py.vlen_dtype(np.uint8))
        axis[0] = np.frombuffer(pickle.dumps(["a", "b"]), dtype=np.uint8)
    assert refusal(path) == ": axis0 must be a plain array, got pickled objects, which are never loaded"


def test_a_table_of_pandas_and_two_frames_are_named(tmp_path):
    path = frame_file(tmp_path / "two.h5", [[1, 2]])
    with h5py.File(path, "a") as file:
        file.copy("df", "other")
    assert refusal(path).endswith("got 2 in the groups df, other")
    with h5py.File(tmp_path / "table.h5", "w") as file:
        file["df/table"] = np.zeros(3)
    assert refusal(tmp_path / "table.h5").endswith("got 0 in the groups df")


def test_what_is_no_hdf5_is_named(tmp_path):
    path = tmp_path / "speeds.h5"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refusal(path).startswith(" is not an HDF5 file that can be read")


# Windows as DCRNN writes them


def cut_windows(values, steps_in: int, steps_out: int, *, first: int = 280):
    """x and y of shape (N, T, sensors, 2) from readings (steps, sensors), the first at step ``first`` of a day."""
    values = np.asarray(values, dtype=float)
    time_of_day = (first + np.arange(len(values))) % 288 / 288
    both = np.stack([values, np.repeat(time_of_day[:, None], values.shape[1], axis=1)], axis=-1)
    starts = range(len(values) - steps_in - steps_out + 1)
    x = np.stack([both[k : k + steps_in] for k in starts])
    y = np.stack([both[k + steps_in : k + steps_in + steps_out] for k in starts])
    return x, y


def readings(steps: int, sensors: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    return np.where(generator.random((steps, sensors)) < 0.2, 0.0, generator.uniform(5, 70, (steps, sensors)))


@pytest.mark.parametrize(("steps_in", "steps_out"), [(1, 1), (12, 12), (3, 5)])
def test_windows_become_the_series_that_they_were_cut_from(tmp_path, steps_in, steps_out):
    values = readings(40, 3)
    x, y = cut_windows(values, steps_in, steps_out)
    np.savez(tmp_path / "train.npz", x=x, y=y, x_offsets=np.arange(1 - steps_in, 1), y_offsets=1 + np.arange(steps_out))
    speeds = read_speeds(tmp_path / "train.npz")
    assert speeds.sensor_ids == ("0", "1", "2")
    assert speeds.step_minutes == 5.0
    assert np.array_equal(speeds.values, values)
    assert np.allclose(speeds.time_of_day * 288, (280 + np.arange(40)) % 288)
    again = forecast_windows(speeds, steps_in=steps_in, steps_out=steps_out)
    assert np.array_equal(again.inputs, x[..., 0])
    assert np.array_equal(again.targets, y[..., 0])


def test_windows_of_single_precision_with_nan_for_missing(tmp_path):
    values = readings(40, 2).astype(np.float32)
    x, y = (part.astype(np.float32) for part in cut_windows(np.where(values == 0, np.nan, values), 4, 2))
    np.savez_compressed(tmp_path / "train.npz", x=x, y=y)
    speeds = read_speeds(tmp_path / "train.npz")
    assert np.array_equal(speeds.values, values)
    assert speeds.step_minutes == 5.0


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, y: {"x": x}, " must hold the arrays x and y, got x"),
        (lambda x, y: {"x": x[..., 0], "y": y}, ": x must hold numbers of shape (N, T, sensors, 2)"),
        (lambda x, y: {"x": x, "y": y[..., :1]}, ": y must hold numbers of shape (N, T, sensors, 2)"),
        (lambda x, y: {"x": x[:0], "y": y[:0]}, ": x must hold numbers of shape (N, T, sensors, 2)"),
        (lambda x, y: {"x": x, "y": y[1:]}, ": x and y must have as many windows and sensors"),
        (lambda x, y: {"x": x, "y": y[:, :, :1]}, ": x and y must have as many windows and sensors"),
        (lambda x, y: {"x": x[::-1], "y": y[::-1]}, ": windows must follow each other step by step, got x[0] out"),
        (lambda x, y: {"x": x[[0, 2, 1, 3]], "y": y[[0, 2, 1, 3]]}, ": windows must follow each other step by step"),
        (lambda x, y: {"x": x, "y": y[::-1]}, ": windows must follow each other step by step, got y[0] out"),
        (
            lambda x, y: {"x": x * [-1, 1], "y": y * [-1, 1]},
            ": readings must be speeds from 0 to 1000, got -",
        ),
        (lambda x, y: {"x": x * [1, 0.7], "y": y * [1, 0.7]}, ": a day must be a whole number of steps of at least"),
        (lambda x, y: {"x": x * [1, 2], "y": y * [1, 2]}, ": time_of_day must lie in [0, 1), got"),
        (lambda x, y: {"x": x * [1, 0], "y": y * [1, 0]}, ": times of day must increase by equal steps, got 0.0"),
        (
            lambda x, y: {"x": x + np.array([[0, 0], [0, 0.1]]), "y": y},
            ": the time of day must be the same for all sensors in x",
        ),
        (lambda x, y: {"x": np.array([{}]), "y": y}, " is not a file of plain NumPy arrays (a pickle is never loaded)"),
    ],
)
def test_windows_that_do_not_fit_are_named(tmp_path, spoil, message):
    x, y = cut_windows(readings(8, 2) + 1, 3, 2, first=200)
    np.savez(tmp_path / "train.npz", **spoil(x, y))
    assert refusal(tmp_path / "train.npz").startswith(message)


def test_what_is_no_npz_is_named(tmp_path):
    path = tmp_path / "train.npz"
    for content in (b"", b"PK\x03\x04 no zip", pickle.dumps({"x": 1})):
        path.write_bytes(content)
        assert refusal(path).startswith(" is not a file of plain NumPy arrays (a pickle is never loaded)")
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    assert refusal(path) == " must hold the arrays x and y, got one array without a name"


def part(values, first: int) -> Speeds:
    values = np.asarray(values, dtype=float)
    return Speeds(values, (first + np.arange(len(values))) % 288 / 288, ("a", "b"))


@pytest.mark.parametrize("overlap", [0, 1, 23])
def test_parts_are_joined_where_they_overlap(overlap):
    values = readings(600, 2)
    parts = [part(values[:300], 270), part(values[300 - overlap : 420], 570 - overlap), part(values[420:], 690)]
    joined = join(parts)
    assert np.array_equal(joined.values, values)
    assert np.allclose(joined.time_of_day * 288, (270 + np.arange(600)) % 288)
    assert join(parts[:1]) is parts[0]


def test_parts_that_do_not_continue_are_named():
    values = readings(60, 2)
    with pytest.raises(
        ValueError, match="part 1 must continue the one before it, got other readings in 5 steps of both"
    ):
        join([part(values[:30], 0), part(values[30:], 25)])
    with pytest.raises(
        ValueError, match="part 1 must continue the one before it, got other readings in 287 steps of both"
    ):
        join([part(values[:30], 0), part(values[30:], 31)])
    with pytest.raises(ValueError, match="part 1 must have the sensors and the step"):
        join([part(values, 0), Speeds(values, np.zeros(60), ("a", "c"))])
    with pytest.raises(ValueError, match="join needs at least one part, got none"):
        join([])


# Adjacencies


def test_adjacency_of_either_format(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, 0.5], [0, 1]], dtype=np.float32))
    (tmp_path / "a.csv").write_text("1,0.5\n0,1\n")
    for name in ("a.npy", "a.csv"):
        adjacency = read_adjacency(tmp_path / name, 2)
        assert adjacency.dtype == np.float64
        assert adjacency.tolist() == [[1, 0.5], [0, 1]]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "1,0\n0,1\n", " must hold 3 x 3 numbers, one row a sensor, got (2, 2) of float64"),
        ("a.csv", "a,b,c\n1,0,0\n", " must be a CSV of numbers without a header"),
        ("a.csv", "1,0,0\n0,1\n", " must be a CSV of numbers without a header"),
        ("a.csv", "1,0,0\n0,1,0\n0,-2,1\n", ": weights must be finite and not negative, got -2.0 at (2, 1)"),
        ("a.csv", "1,0,0\n0,1,nan\n0,0,1\n", ": weights must be finite and not negative, got nan at (1, 2)"),
        ("a.npy", np.ones((3, 4)), " must hold 3 x 3 numbers, one row a sensor, got (3, 4) of float64"),
        ("a.npy", np.full((3, 3), "x"), " must hold 3 x 3 numbers, one row a sensor, got (3, 3) of <U1"),
        ("a.npy", np.array([[{}]]), " is not a file of plain NumPy arrays (a pickle is never loaded)"),
        ("a.npy", b"", " is not a file of plain NumPy arrays (a pickle is never loaded)"),
        ("a.npy", pickle.dumps([1]), " is not a file of plain NumPy arrays (a pickle is never loaded)"),
        ("a.pkl", pickle.dumps([1]), " must be a .npy or .csv file, got .pkl; a pickle is never loaded"),
    ],
    ids=lambda value: repr(value)[:25],
)
def test_adjacency_that_does_not_fit_is_named(tmp_path, name, content, message):
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    assert refusal(path, lambda: read_adjacency(path, 3)).startswith(message)


def test_adjacency_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^cannot read .*nowhere\.npy: No such file"):
        read_adjacency(tmp_path / "nowhere.npy", 3)


needs_the_week = pytest.mark.skipif(
    not (DATA / "los_speed.csv").exists(), reason="needs ../shared/data, a week of METR-LA, which is not there"
)


@needs_the_week
def test_the_real_week():
    speeds = read_speeds(DATA / "los_speed.csv")
    assert speeds.values.shape == (2016, 207)
    assert speeds.sensor_ids[:2] == ("773869", "767541")
    assert (speeds.values.min(), speeds.values.max()) == (1.0, 70.0)
    assert windows(speeds.values, 12).shape == (2005, 12, 207)
    for name in ("adj_METR-LA.npy", "los_adj.csv"):
        assert (np.diag(read_adjacency(DATA / name, 207)) == 1).all()


@needs_the_week
def test_the_real_windows_are_the_real_week_with_its_outages():
    raw = join([read_speeds(DATA / f"METR-LA_{part}.npz") for part in ("train", "val", "test")])
    week = read_speeds(DATA / "los_speed.csv")
    assert raw.values.shape == (2048, 20)
    assert raw.step_minutes == 5.0
    seen = raw.observed[:2016]
    assert np.allclose(raw.values[:2016][seen], week.values[:, :20][seen], rtol=0, atol=1e-6)
    assert np.allclose(raw.time_of_day[:2016], week.time_of_day, rtol=0, atol=1e-9)
    silent = np.flatnonzero(~seen.any(axis=1))
    assert (len(silent), silent[:3].tolist(), silent[-1]) == (39, [3, 4, 579], 1969)
