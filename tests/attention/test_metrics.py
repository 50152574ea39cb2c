"""Errors pooled over everything that was forecast, and the two baselines beside them."""

import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention import (
    REPORTED_STEPS,
    DailyProfile,
    Persistence,
    PooledErrors,
    Scaler,
    Speeds,
    forecast_windows,
    pooled_errors,
    read_speeds,
)

WEEK = Path(__file__).parents[2].parent / "shared" / "data" / "los_speed.csv"


def traffic(windows: int, steps: int, sensors: int, *, missing: float, seed: int = 0):
    """Raw targets with zeros, more of them in the later windows, and a forecast of them."""
    generator = np.random.default_rng(seed)
    targets = generator.uniform(5, 70, (windows, steps, sensors))
    share = missing * np.linspace(0, 2, windows)[:, None, None]
    targets[generator.random(targets.shape) < share] = 0.0
    return targets + generator.normal(0, 4, targets.shape), targets


def written_out(forecast, targets, step: int) -> tuple[float, float, float]:
    """The three errors at one step, reading by reading."""
    pairs = [(f, y) for f, y in zip(forecast[:, step - 1].ravel(), targets[:, step - 1].ravel(), strict=True) if y != 0]
    n = len(pairs)
    return (
        sum(abs(f - y) for f, y in pairs) / n,
        (sum((f - y) ** 2 for f, y in pairs) / n) ** 0.5,
        100 * sum(abs((f - y) / y) for f, y in pairs) / n,
    )


def test_errors_reading_by_reading():
    forecast, targets = traffic(40, 12, 3, missing=0.3)
    errors = pooled_errors(forecast, targets)
    for step in range(1, 13):
        assert errors.at(step) == pytest.approx(written_out(forecast, targets, step), rel=1e-12)
        assert errors.counts[step - 1] == np.count_nonzero(targets[:, step - 1])


# Case 7: errors averaged per batch are not the pooled errors.


@given(st.lists(st.integers(1, 39), max_size=6), st.integers(0, 5))
def test_errors_do_not_depend_on_the_batches(cuts, seed):
    forecast, targets = traffic(40, 4, 3, missing=0.4, seed=seed)
    borders = [0, *sorted(set(cuts)), 40]
    pool = PooledErrors(4)
    for start, stop in pairwise(borders):
        pool.add(forecast[start:stop], targets[start:stop])
    whole, batched = pooled_errors(forecast, targets), pool.errors()
    assert np.array_equal(whole.counts, batched.counts)
    for name in ("mae", "rmse", "mape"):
        assert np.allclose(getattr(batched, name), getattr(whole, name), rtol=1e-12, atol=0)


def test_a_mean_of_batches_is_another_number():
    targets = np.full((4, 1, 1), 50.0)
    targets[1:3] = 0.0
    forecast = targets + np.array([8.0, 1.0, 1.0, 2.0])[:, None, None]
    targets = np.concatenate([targets, targets[-1:], targets[-1:]])
    forecast = np.concatenate([forecast, forecast[-1:], forecast[-1:]])
    batches = [pooled_errors(forecast[k : k + 3], targets[k : k + 3]).mae[0] for k in (0, 3)]
    assert np.mean(batches) == 5.0
    assert pooled_errors(forecast, targets).mae[0] == 3.5


# Case 8: the error of step 3 is not the mean of steps 1 to 3.


def test_a_ramp_tells_a_step_from_the_mean_up_to_it():
    targets = np.full((5, 12, 2), 40.0)
    ramp = np.arange(1.0, 13.0)[:, None]
    errors = pooled_errors(targets + ramp, targets)
    assert [errors.at(step).mae for step in REPORTED_STEPS] == [3.0, 6.0, 12.0]
    assert [errors.at(step).rmse for step in REPORTED_STEPS] == [3.0, 6.0, 12.0]
    assert [errors.at(step).mape for step in REPORTED_STEPS] == [7.5, 15.0, 30.0]
    assert errors.mae[:3].mean() == 2.0


def test_steps_count_from_one():
    errors = pooled_errors(np.ones((1, 3, 1)), np.ones((1, 3, 1)))
    for step in (0, 4, -1):
        with pytest.raises(ValueError, match=f"step must be from 1 to 3, got {step}"):
            errors.at(step)


# Case 9: zeros are missing, and missing is decided from the raw values.


@pytest.mark.parametrize("nothing", [0.0, np.nan])
def test_missing_targets_do_not_count(nothing):
    targets = np.array([10.0, nothing, 20.0])[:, None, None]
    forecast = np.array([12.0, 1e6, 16.0])[:, None, None]
    assert pooled_errors(forecast, targets).at(1) == pytest.approx((3.0, 10**0.5, 20.0))
    forecast[1] = np.nan
    assert pooled_errors(forecast, targets).at(1) == pytest.approx((3.0, 10**0.5, 20.0))


def test_a_mask_from_scaled_values_lets_the_zeros_back_in():
    targets = np.array([60.0, 0.0, 50.0, 40.0])[:, None, None]
    scaler = Scaler(mean=50.0, deviation=10.0)
    scaled = (targets - scaler.mean) / scaler.deviation
    # 50 mph is 0 after scaling, and a missing reading is not.
    assert (scaled != 0).ravel().tolist() == [True, True, False, True]
    forecast = np.full_like(targets, 50.0)
    errors = pooled_errors(forecast, targets)
    assert errors.counts.tolist() == [3]
    assert errors.at(1).mae == pytest.approx(20 / 3)
    assert errors.at(1).mape < 100
    # Back in the raw unit a missing reading is 0 up to rounding, and its percentage error is astronomic.
    leaked = scaler.unscale(scaled) + 1e-9
    assert pooled_errors(forecast, leaked).at(1).mape > 1e6


def test_all_missing_is_nan_with_a_warning():
    forecast, targets = np.ones((3, 4, 2)), np.ones((3, 4, 2))
    targets[:, [1, 3]] = 0.0
    with pytest.warns(UserWarning, match="no target was observed at step 2, 4: the errors there are NaN"):
        errors = pooled_errors(forecast, targets)
    for values in (errors.mae, errors.rmse, errors.mape):
        assert np.isnan(values).tolist() == [False, True, False, True]
    assert errors.counts.tolist() == [6, 0, 6, 0]
    with pytest.warns(UserWarning, match="at step 1: the errors"):
        assert np.isnan(PooledErrors(1).errors().mae).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_forecast_that_is_not_finite_is_never_a_small_error(bad):
    forecast, targets = traffic(10, 3, 2, missing=0.2)
    forecast[4, 1, 0], targets[4, 1, 0] = bad, 30.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        errors = pooled_errors(forecast, targets)
    for values in (errors.mae, errors.rmse, errors.mape):
        assert np.isfinite(values).tolist() == [True, False, True]


def test_tensors_of_single_precision_are_summed_in_double():
    forecast, targets = (torch.tensor(part, dtype=torch.float32) for part in traffic(50, 2, 3, missing=0.1))
    errors = pooled_errors(forecast, targets)
    assert errors.mae.dtype == np.float64
    assert errors.at(1) == pytest.approx(written_out(forecast.double().numpy(), targets.double().numpy(), 1), rel=1e-12)


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"forecast must have the shape of the targets, \(2, 3, 4\), got \(2, 3, 1\)"):
        pooled_errors(np.ones((2, 3, 1)), np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match=r"forecast must have shape \(N, steps_out, sensors\), got \(3, 4\)"):
        pooled_errors(np.ones((3, 4)), np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"targets must have shape \(N, 5, sensors\), got \(2, 3, 4\)"):
        PooledErrors(5).add(np.ones((2, 3, 4)), np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="steps_out must be at least 1, got 0"):
        PooledErrors(0)


# Baselines


def series(values, *, first: int = 0) -> Speeds:
    values = np.asarray(values, dtype=float)
    ids = tuple(f"s{n}" for n in range(values.shape[1]))
    return Speeds(values, (first + np.arange(len(values))) % 288 / 288, ids)


def test_persistence_says_the_latest_observed_reading():
    speeds = series([[1, 10], [2, 0], [0, 0], [4, 40], [5, 50], [0, 60]])
    windows = forecast_windows(speeds, steps_in=3, steps_out=2)
    forecast = Persistence(fallback=np.array([-1.0, -2.0])).forecast(windows)
    assert forecast.tolist() == [[[2, 10]] * 2, [[4, 40]] * 2]
    windows = forecast_windows(speeds, steps_in=1, steps_out=1)
    forecast = Persistence(fallback=np.array([-1.0, -2.0])).forecast(windows)
    assert forecast[:, 0].tolist() == [[1, 10], [2, -2], [-1, -2], [4, 40], [5, 50]]
    assert Persistence.fit(speeds).fallback.tolist() == [3, 40]


def test_the_daily_profile_is_the_mean_at_that_time_of_day():
    days = np.arange(1, 4)[:, None, None] * 100.0 + np.arange(288)[:, None] + np.array([0.0, 0.25])
    days[1, 5, 0] = 0.0
    days[:, 7, 1] = 0.0
    train = series(days.reshape(-1, 2))
    profile = DailyProfile.fit(train)
    assert profile.means.shape == (288, 2)
    assert profile.means[4].tolist() == [204, 204.25]
    assert profile.means[5].tolist() == [(105 + 305) / 2, 205.25]
    # Never observed at that time: the sensor's mean over the rest of the day.
    assert profile.means[7, 1] == pytest.approx(np.delete(200.25 + np.arange(288), 7).mean())
    test = series(np.ones((20, 2)), first=280)
    forecast = profile.forecast(forecast_windows(test, steps_in=4, steps_out=3))
    assert np.array_equal(forecast[0], profile.means[[284, 285, 286]])
    assert np.array_equal(forecast[3], profile.means[[287, 0, 1]])


def test_the_baselines_learn_from_training_rows_alone():
    generator = np.random.default_rng(1)
    values = generator.uniform(20, 70, (1000, 2))
    other = values.copy()
    other[700:] += 100
    one, two = (DailyProfile.fit(series(v).rows(0, 700)) for v in (values, other))
    assert np.array_equal(one.means, two.means)


def test_a_silent_sensor_is_named():
    with pytest.raises(ValueError, match="sensor s1 must have an observed reading"):
        DailyProfile.fit(series([[1, 0], [2, 0]]))
    with pytest.raises(ValueError, match="sensor s1 must have an observed reading"):
        Persistence.fit(series([[1, 0], [2, 0]]))


@pytest.mark.skipif(
    not WEEK.exists(), reason="needs ../shared/data/los_speed.csv, a week of METR-LA, which is not there"
)
def test_persistence_on_the_real_week():
    """The numbers that the data's description gives: every pair of readings so far apart in the last 20 % of rows."""
    speeds = read_speeds(WEEK)
    test = speeds.rows(len(speeds) - round(0.2 * len(speeds)), len(speeds))
    for step, mae, rmse in ((3, 3.54, 6.40), (6, 4.34, 8.17), (12, 5.77, 10.86)):
        windows = forecast_windows(test, steps_in=1, steps_out=step)
        errors = pooled_errors(Persistence.fit(test).forecast(windows), windows.targets).at(step)
        assert (round(errors.mae, 2), round(errors.rmse, 2)) == (mae, rmse)
