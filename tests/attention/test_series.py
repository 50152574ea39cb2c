"""One series: the mask from raw values, chronological parts, windows within them, the scale of the training rows."""

import numpy as np
import pytest
import torch

from attention import Scaler, Speeds, forecast_windows, observed, sensor_means, split, windows


def series(values, *, step_minutes: float = 5.0, start: float = 0.0) -> Speeds:
    values = np.asarray(values, dtype=float)
    time_of_day = (start + step_minutes * np.arange(len(values))) % 1440 / 1440
    return Speeds(values, time_of_day, tuple(f"s{n}" for n in range(values.shape[1])), step_minutes)


def ramp(steps: int, sensors: int = 2) -> Speeds:
    """Every reading tells its step and its sensor; none is 0."""
    return series(1.0 + np.arange(steps)[:, None] + 1000.0 * np.arange(sensors))


def test_zero_and_nan_are_missing():
    assert observed([[0.0, -0.0, np.nan], [1.0, -2.0, 1e-9]]).tolist() == [[False] * 3, [True] * 3]
    speeds = series([[0.0, 5.0], [7.0, 0.0]])
    assert speeds.observed.tolist() == [[False, True], [True, False]]
    assert sensor_means(speeds).tolist() == [7.0, 5.0]
    with pytest.raises(ValueError, match=r"^sensor s1 must have an observed reading, got none in 2 steps$"):
        sensor_means(series([[1.0, 0.0], [2.0, 0.0]]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"values": np.ones(4)}, r"values must have shape \(steps, sensors\), both >= 1, got \(4,\)"),
        ({"values": np.ones((0, 2))}, r"values must have shape .*, got \(0, 2\)"),
        ({"time_of_day": np.zeros(3)}, r"time_of_day must have shape \(4,\), one a step, got \(3,\)"),
        ({"sensor_ids": ("a",)}, r"sensor_ids must name 2 sensors, got 1"),
        ({"values": np.array([[1, 2]] * 3 + [[3, np.nan]])}, r"finite, got nan of sensor b in row 3"),
        ({"values": np.array([[np.inf, 2]] * 4)}, r"finite, got inf of sensor a in row 0"),
        ({"time_of_day": np.array([0, 0.5, 1.0, 0.2])}, r"time_of_day must lie in \[0, 1\), got 1.0"),
        ({"step_minutes": 7.0}, r"a day must be a whole number of steps .*, got step_minutes = 7.0"),
        ({"step_minutes": 0.0}, r"a day must be a whole number of steps .*, got step_minutes = 0.0"),
        ({"step_minutes": 1e-6}, r"a day must be a whole number of steps .*, got step_minutes = 1e-06"),
    ],
)
def test_what_is_no_series_is_named(change, message):
    fitting = {"values": np.ones((4, 2)), "time_of_day": np.zeros(4), "sensor_ids": ("a", "b"), "step_minutes": 5.0}
    Speeds(**fitting)
    with pytest.raises(ValueError, match=message):
        Speeds(**fitting | change)


def test_parts_are_chronological_and_windows_cross_no_border():
    parts = split(ramp(100), steps_in=3, steps_out=2)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [70, 10, 20]
    rows = [part.values[:, 0].tolist() for part in (parts.train, parts.validation, parts.test)]
    assert [*rows[0], *rows[1], *rows[2]] == list(range(1, 101))
    for part, own in zip((parts.train, parts.validation, parts.test), rows, strict=True):
        cut = forecast_windows(part, steps_in=3, steps_out=2)
        assert len(cut) == len(part) - 4
        assert set(np.unique(cut.inputs[..., 0])) | set(np.unique(cut.targets[..., 0])) == set(own)


def test_a_window_is_followed_by_its_targets():
    speeds = ramp(300)
    cut = forecast_windows(speeds, steps_in=4, steps_out=3, stride=5)
    assert len(cut) == (300 - 7) // 5 + 1
    for k in (0, 7, len(cut) - 1):
        start = 5 * k
        assert np.array_equal(cut.inputs[k], speeds.values[start : start + 4])
        assert np.array_equal(cut.targets[k], speeds.values[start + 4 : start + 7])
        assert np.array_equal(cut.inputs_time[k], speeds.time_of_day[start : start + 4])
        assert np.array_equal(cut.targets_time[k], speeds.time_of_day[start + 4 : start + 7])
    assert np.shares_memory(cut.inputs, speeds.values)


def test_a_part_too_short_for_a_window_is_named():
    split(ramp(240))
    with pytest.raises(
        ValueError, match=r"^the validation rows must hold a window of 12 \+ 12 steps, got 23 of 230 rows$"
    ):
        split(ramp(230))
    with pytest.raises(ValueError, match=r"^the training rows must hold .* got 14 of 20 rows$"):
        split(ramp(20))
    with pytest.raises(ValueError, match="steps_in and steps_out must be at least 1, got 0 and 3"):
        split(ramp(230), steps_in=0, steps_out=3)
    with pytest.raises(ValueError, match="steps_in and steps_out must be at least 1, got 3 and 0"):
        forecast_windows(ramp(20), steps_in=3, steps_out=0)
    with pytest.raises(ValueError, match="windows of 24 steps need as many, got 20"):
        forecast_windows(ramp(20))


def test_a_sensor_that_is_silent_in_training_is_named():
    values = np.ones((100, 2)) + np.arange(100)[:, None]
    values[:70, 1] = 0.0
    with pytest.raises(
        ValueError, match=r"^training rows: sensor s1 must have an observed reading, got none in 70 steps$"
    ):
        split(series(values), steps_in=2, steps_out=2)


def test_the_scale_is_that_of_the_observed_training_readings():
    generator = np.random.default_rng(3)
    values = generator.uniform(20, 70, size=(200, 3))
    values[generator.random(values.shape) < 0.3] = 0.0
    values[140:] *= 100
    parts = split(series(values), steps_in=4, steps_out=4)
    seen = values[:140][values[:140] > 0]
    assert parts.scaler == Scaler(seen.mean(), seen.std())
    scaled = parts.scaler.scale(parts.train.values)
    assert abs(scaled[parts.train.observed].mean()) < 1e-12
    assert abs(scaled[parts.train.observed].std() - 1) < 1e-12
    assert (scaled[~parts.train.observed] == 0).all()
    back = parts.scaler.unscale(scaled)
    assert np.allclose(back[parts.train.observed], parts.train.values[parts.train.observed], rtol=1e-12)
    assert torch.allclose(parts.scaler.unscale(torch.tensor(scaled)), torch.tensor(back))


def test_nothing_to_scale_is_named():
    with pytest.raises(ValueError, match=r"two different observed readings, got only 5\.0"):
        Scaler.fit(series([[5.0], [0.0], [5.0]]))
    with pytest.raises(ValueError, match="two different observed readings, got none"):
        Scaler.fit(series([[0.0], [0.0]]))


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
