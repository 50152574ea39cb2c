"""Reading traffic speeds and cutting windows: files made by hand, and a week of METR-LA."""

from pathlib import Path

import numpy as np
import pytest
import torch

from attention import read_speeds, windows

REAL = Path(__file__).parents[2].parent / "shared" / "data" / "los_speed.csv"


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "speeds.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refusal(path: Path) -> str:
    """The one line with which a file's content is refused; it names the file."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_speeds(path)
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
        ("a,b\n1,2\n3,x\n", ", line 3, sensor b: expected a finite number, got 'x'"),
        ("a,b\n1,\n", ", line 2, sensor b: expected a finite number, got ''"),
        ("a,b\nnan,1\n", ", line 2, sensor a: expected a finite number, got 'nan'"),
        ("a,b\n1,-inf\n", ", line 2, sensor b: expected a finite number, got '-inf'"),
        ("time,a\n12:05,1\n", ", line 2, sensor time: expected a finite number, got '12:05'"),
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


def test_windows_are_consecutive_steps():
    values = np.arange(14.0).reshape(7, 2)
    for length, stride in ((1, 1), (3, 1), (3, 2), (7, 5)):
        cut = windows(values, length, stride=stride)
        starts = range(0, 7 - length + 1, stride)
        assert cut.shape == (len(starts), length, 2)
        for window, start in zip(cut, starts, strict=True):
            assert np.array_equal(window, values[start : start + length])


def test_windows_share_memory_and_cannot_be_written():
    values = np.zeros((5, 2))
    cut = windows(values, 2)
    assert np.shares_memory(cut, values)
    with pytest.raises(ValueError, match="read-only"):
        cut[0] = 1.0
    assert torch.tensor(cut).shape == (4, 2, 2)


def test_windows_refuse_what_does_not_fit():
    values = np.zeros((5, 2))
    with pytest.raises(ValueError, match="windows of 6 steps need as many, got 5"):
        windows(values, 6)
    with pytest.raises(ValueError, match="got length = 0, stride = 1"):
        windows(values, 0)
    with pytest.raises(ValueError, match="got length = 2, stride = 0"):
        windows(values, 2, stride=0)
    with pytest.raises(ValueError, match=r"values must have shape \(steps, sensors\), got \(5,\)"):
        windows(values[:, 0], 2)


@pytest.mark.skipif(not REAL.exists(), reason="needs ../shared/data/los_speed.csv, a week of METR-LA")
def test_the_real_week():
    speeds = read_speeds(REAL)
    assert speeds.values.shape == (2016, 207)
    assert speeds.sensor_ids[:2] == ("773869", "767541")
    assert (speeds.values.min(), speeds.values.max()) == (1.0, 70.0)
    assert windows(speeds.values, 12).shape == (2005, 12, 207)
