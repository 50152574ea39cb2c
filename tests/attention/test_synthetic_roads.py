"""Synthetic roads: what is said to be the best forecast is the best, and looking at the current step alone is worse."""

from math import pi, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attention import (
    Link,
    RoadNetwork,
    Speeds,
    SyntheticRoads,
    forecast_windows,
    observed,
    pooled_errors,
    road_network,
    split,
    synthetic_roads,
    time_slots,
)
from tests.evidence import agree, at_most

# Sensor 0 is fed by itself after 3 steps, sensor 1 by sensor 0 after 2.
BY_HAND = RoadNetwork((Link(0, 0, 3, 0.5), Link(0, 1, 2, 0.8)), np.array([2.0, 1.0]))


@st.composite
def networks(draw) -> RoadNetwork:
    """Up to four sensors, acyclic but for each sensor's own return, so that all waves fade."""
    sensors = draw(st.integers(1, 4))
    numbers = st.floats(0.2, 0.9)
    links = [Link(0, 0, draw(st.integers(1, 6)), draw(numbers))]
    for target in range(1, sensors):
        source = draw(st.integers(0, target - 1))
        links.append(Link(source, target, draw(st.integers(1, 6)), draw(numbers)))
        if draw(st.booleans()):
            links.append(Link(target, target, draw(st.integers(1, 6)), -draw(numbers)))
    return RoadNetwork(tuple(links), np.array([draw(st.floats(0.3, 3)) for _ in range(sensors)]))


def conditional_deviation(roads: SyntheticRoads, windows, **options):
    return roads.best_forecast(windows, **options).deviation


# The closed form


def test_two_sensors_by_hand():
    """z_0(t+3) = 0.5 z_0(t) + e_0, z_1(t+3) = 0.8 z_0(t+1) + e_1, z_0(t+1) = 0.5 z_0(t-2) + e_0."""
    weights = BY_HAND.forecast_weights(4)
    found = {tuple(int(n) for n in place): float(weights[tuple(place)]) for place in np.argwhere(weights)}
    assert found == pytest.approx(
        {
            (0, 2, 0, 0): 0.5,
            (0, 1, 1, 0): 0.8,
            (1, 1, 0, 0): 0.5,
            (1, 0, 1, 0): 0.8,
            (2, 0, 0, 0): 0.5,
            (2, 2, 1, 0): 0.4,
            (3, 2, 0, 0): 0.25,
            (3, 1, 1, 0): 0.4,
        }
    )
    assert BY_HAND.best_deviation(4) ** 2 == pytest.approx(
        np.array([[4, 1], [4, 1], [4, 0.64 * 4 + 1], [0.25 * 4 + 4, 0.64 * 4 + 1]])
    )
    # Var z_0 = 4/(1 - 1/4) and Var z_1 = 0.64 Var z_0 + 1; z_0(t) and z_1(t) = 0.8 z_0(t-2) + e_1 are uncorrelated.
    var_0 = 16 / 3
    var_1 = 0.64 * var_0 + 1
    # z_0(t+1) = 0.5 z_0(t-2) + e_0 has covariance 0.4 Var z_0 with z_1(t); of z_1(t+1) the current step tells nothing.
    assert BY_HAND.current_deviation(1)[0] ** 2 == pytest.approx([var_0 - (0.4 * var_0) ** 2 / var_1, var_1])
    # z_1(t+2) = 0.8 z_0(t) + e_1 and z_0(t+3) = 0.5 z_0(t) + e_0 ask for the current step alone.
    assert BY_HAND.current_deviation(3)[1, 1] == pytest.approx(1)
    assert BY_HAND.current_deviation(3)[2, 0] == pytest.approx(2)
    assert BY_HAND.adjacency.tolist() == [[1, 0.8], [0, 1]]


@given(networks())
def test_autocovariances_are_sums_over_the_responses(network):
    """Gamma(k) = sum_j Psi_(j+k) D^2 Psi_j^T, cut off where the waves have faded."""
    sensors, delays = len(network.noise), len(network.coefficients)
    psi = np.zeros((1500, sensors, sensors))
    psi[0] = np.eye(sensors)
    for j in range(1, len(psi)):
        for delay in range(1, min(delays, j) + 1):
            psi[j] += network.coefficients[delay - 1] @ psi[j - delay]
    scale = float(network.autocovariance(0).max())
    for k, covariance in enumerate(network.autocovariance(9)):
        summed = np.einsum("jab,b,jcb->ac", psi[k:], network.noise**2, psi[: len(psi) - k])
        agree(covariance, summed, scale=scale)


@given(networks())
def test_the_recursion_is_the_regression_on_the_window(network):
    """Weights and errors of the best forecast, against the normal equations of the whole window."""
    sensors, delays = len(network.noise), len(network.coefficients)
    steps_in, steps_out = delays + 1, 5
    covariances = network.autocovariance(steps_in + steps_out)

    def between(i: int, j: int):
        return covariances[i - j] if i >= j else covariances[j - i].T

    past = np.block([[between(-m, -n) for n in range(steps_in)] for m in range(steps_in)])
    weights = network.forecast_weights(steps_out)
    for h in range(1, steps_out + 1):
        cross = np.concatenate([between(h, -m) for m in range(steps_in)], axis=1)
        solved = np.linalg.solve(past, cross.T).T
        expected = solved.reshape(sensors, steps_in, sensors).swapaxes(0, 1)
        agree(np.concatenate([weights[h - 1], np.zeros((1, sensors, sensors))]), expected, scale=1.0)
        left = (covariances[0] - solved @ cross.T).diagonal().copy()
        agree(network.best_deviation(steps_out)[h - 1] ** 2, left, scale=float(covariances[0].max()))


@given(networks())
def test_the_current_step_alone_is_worse_exactly_where_another_lag_has_a_weight(network):
    steps_out = 6
    best, current = network.best_deviation(steps_out), network.current_deviation(steps_out)
    at_most(best, current)
    weights = network.forecast_weights(steps_out)
    needs_other_tokens = np.abs(weights[:, 1:]).max(axis=(1, 3), initial=0.0) > 0
    agree(np.where(needs_other_tokens, best, current), best)
    # Strictly, and not by rounding: the smallest weight is 0.2^6 of a wave of at least 0.3 mph.
    assert (current[needs_other_tokens] > best[needs_other_tokens]).all()


@pytest.mark.parametrize("seed", range(5))
def test_the_default_network_needs_other_tokens_at_every_reported_step(seed):
    network = road_network(seed=seed)
    weights, best, current = network.forecast_weights(12), network.best_deviation(12), network.current_deviation(12)
    assert len(network.coefficients) <= 11
    for step in (3, 6, 12):
        assert (np.abs(weights[step - 1, 1:]).max(axis=(0, 2)) > 0).mean() >= 0.75
        assert best[step - 1].mean() < 0.8 * current[step - 1].mean()
    # At step 3 every link is longer than the step: the current readings have no weight at all.
    assert not weights[2, 0].any()


# The draw


def test_the_same_seed_gives_the_same_readings():
    one, again, other = (synthetic_roads(days=2, seed=seed).speeds for seed in (4, 4, 5))
    assert np.array_equal(one.values, again.values)
    assert not np.array_equal(one.values, other.values)
    assert one.values.shape == (576, 6)
    assert (one.step_minutes, one.time_of_day[0], one.steps_per_day) == (5.0, 0.0, 288)


def test_outages_are_zeros_for_the_stated_share_of_the_time():
    roads = synthetic_roads(days=60, outages=0.05, seed=1)
    share = 1 - roads.speeds.observed.mean()
    assert 0.04 < share < 0.07
    all_silent = (~roads.speeds.observed).all(axis=1)
    assert all_silent.any()
    complete = synthetic_roads(days=60, outages=0.0, seed=1)
    assert complete.speeds.observed.all()
    assert complete.speeds.values.min() > 5


def test_there_is_a_daily_rhythm():
    roads = synthetic_roads(days=40, outages=0.0)
    by_time = roads.speeds.values.reshape(40, 288, -1).mean(axis=0)
    deviation = roads.network.autocovariance(0)[0].diagonal().max() ** 0.5
    # Readings a day apart are nearly independent; 3456 means are looked at, so six standard errors.
    assert np.abs(by_time - roads.profile).max() < 6 * deviation / sqrt(40)
    assert (roads.profile[[96, 210]] < 60).all()


def test_waves_are_stationary_from_the_first_step():
    drawn = [synthetic_roads(network=BY_HAND, days=1, outages=0, seed=seed) for seed in range(400)]
    draws = np.stack([roads.speeds.values[:4] for roads in drawn])
    profiles = np.stack([roads.profile[:4] for roads in drawn])
    variance = (draws - profiles).var(axis=0)
    # A sample variance of 400 draws has relative standard error sqrt(2/400) = 0.07.
    assert np.abs(variance / BY_HAND.autocovariance(0)[0].diagonal() - 1).max() < 5 * 0.071


# The best forecast, outages and all


def test_with_a_complete_window_it_is_the_closed_form():
    roads = synthetic_roads(days=1, outages=0.0)
    windows = forecast_windows(roads.speeds, stride=24)
    forecast = roads.best_forecast(windows)
    agree(forecast.deviation, np.broadcast_to(roads.network.best_deviation(12), forecast.deviation.shape).copy())
    agree(
        conditional_deviation(roads, windows, sees="current"),
        np.broadcast_to(roads.network.current_deviation(12), forecast.deviation.shape).copy(),
    )
    weights = roads.network.forecast_weights(12)
    slots = time_slots(windows.inputs_time, 288)
    deviations = (windows.inputs - roads.profile[slots])[:, ::-1]
    expected = np.einsum("hmsr,nmr->nhs", weights, deviations[:, : weights.shape[1]])
    slots = time_slots(windows.targets_time, 288)
    agree(forecast.mean, roads.profile[slots] + expected)
    known = roads.known_errors(windows)
    agree(known.mae, sqrt(2 / pi) * roads.network.best_deviation(12).mean(axis=1))
    agree(known.rmse, np.sqrt((roads.network.best_deviation(12) ** 2).mean(axis=1)))


@pytest.mark.parametrize("sees", ["window", "current", "own sensor", "own reading"])
def test_with_outages_it_conditions_on_what_was_observed(sees):
    """Against the precision matrix of what is seen and the target together."""
    roads = synthetic_roads(network=BY_HAND, days=3, outages=0.4, seed=2)
    windows = forecast_windows(roads.speeds, steps_in=4, steps_out=3, stride=40)
    forecast = roads.best_forecast(windows, sees=sees)
    covariances = BY_HAND.autocovariance(7)
    slots = time_slots(windows.inputs_time, 288)
    deviations = windows.inputs - roads.profile[slots]
    for n in range(len(windows)):
        for h in range(3):
            for sensor in range(2):
                seen = [
                    (t, s)
                    for t in range(4)
                    for s in range(2)
                    if windows.inputs[n, t, s] != 0
                    and (t == 3 or sees in ("window", "own sensor"))
                    and (s == sensor or sees in ("window", "current"))
                ]
                places = [(4 + h, sensor), *seen]
                joint = np.array(
                    [
                        [covariances[t - u][s, r] if t >= u else covariances[u - t][r, s] for u, r in places]
                        for t, s in places
                    ]
                )
                precision = np.linalg.inv(joint)
                agree(forecast.deviation[n, h, sensor], 1 / sqrt(precision[0, 0]))
                mean = -sum(p * deviations[n, t, s] for p, (t, s) in zip(precision[0, 1:], seen, strict=True))
                slot = round(windows.targets_time[n, h] * 288) % 288
                agree(forecast.mean[n, h, sensor], roads.profile[slot, sensor] + mean / precision[0, 0])


@pytest.mark.parametrize("sees", ["window", "current", "own sensor", "own reading"])
def test_errors_of_the_draw_scatter_about_the_known_ones(sees):
    roads = synthetic_roads(days=20, seed=3)
    windows = forecast_windows(roads.speeds, stride=12)
    known = roads.known_errors(windows, sees=sees)
    forecast = roads.best_forecast(windows, sees=sees)
    errors = pooled_errors(forecast.mean, windows.targets)
    # 480 windows of 12 sensors: about 5700 misses a step. Were they independent, the standard error would be 1 % of
    # either error; neighbouring sensors are related, so eight of them, and half as much for all steps together.
    assert np.abs(errors.mae / known.mae - 1).max() < 0.08
    assert np.abs(errors.rmse / known.rmse - 1).max() < 0.08
    scaled = ((forecast.mean - windows.targets) / forecast.deviation)[observed(windows.targets)]
    assert abs((scaled**2).mean() - 1) < 0.04
    assert abs(np.abs(scaled).mean() / sqrt(2 / pi) - 1) < 0.04


def test_the_less_a_forecast_sees_the_worse_it_is():
    roads = synthetic_roads(days=2)
    windows = forecast_windows(roads.speeds, stride=10)
    seen = {
        s: conditional_deviation(roads, windows, sees=s) for s in ("window", "current", "own sensor", "own reading")
    }
    for less, more in (("current", "window"), ("own sensor", "window"), ("own reading", "current")):
        at_most(seen[more], seen[less])
    at_most(seen["own sensor"], seen["own reading"])
    known = {s: roads.known_errors(windows, sees=s).mae for s in ("window", "current")}
    for step in (3, 6, 12):
        assert known["window"][step - 1] < 0.8 * known["current"][step - 1]


def test_least_squares_on_the_windows_comes_close_and_not_below():
    """An independent way to the optimum: fit the window's 72 readings on training rows, forecast the test rows."""
    roads = synthetic_roads(days=60, outages=0.0, seed=6)
    parts = split(roads.speeds)

    def deviations(windows):
        slots = [time_slots(time, 288) for time in (windows.inputs_time, windows.targets_time)]
        return windows.inputs - roads.profile[slots[0]], windows.targets - roads.profile[slots[1]]

    inputs, targets = deviations(forecast_windows(parts.train))
    x, y = inputs.reshape(len(inputs), -1), targets[:, [2, 5, 11]].reshape(len(inputs), -1)
    fitted = np.linalg.lstsq(x, y, rcond=None)[0]
    windows = forecast_windows(parts.test)
    inputs, targets = deviations(windows)
    miss = (inputs.reshape(len(inputs), -1) @ fitted).reshape(-1, 3, 6) - targets[:, [2, 5, 11]]
    found = np.abs(miss).mean(axis=(0, 2))
    best = pooled_errors(roads.best_forecast(windows).mean, windows.targets).mae[[2, 5, 11]]
    current = roads.known_errors(windows, sees="current").mae[[2, 5, 11]]
    assert (found > best).all()
    assert (found < 1.05 * best).all()
    assert (found < current).all()


def test_a_step_without_targets_has_no_known_error():
    roads = synthetic_roads(network=BY_HAND, days=1, outages=0.0)
    values = roads.speeds.values.copy()
    values[5] = 0.0
    speeds = Speeds(values, roads.speeds.time_of_day, roads.speeds.sensor_ids)
    windows = forecast_windows(speeds.rows(0, 8), steps_in=4, steps_out=4)
    assert np.isnan(roads.known_errors(windows).mae).tolist() == [False, True, False, False]


# Bad input


@pytest.mark.parametrize(
    ("links", "noise", "message"),
    [
        ((Link(0, 2, 1, 0.5),), [1.0, 1.0], r"a link must join sensors 0 \.\. 1, got Link\(source=0, target=2"),
        ((Link(-1, 0, 1, 0.5),), [1.0, 1.0], r"a link must join sensors 0 \.\. 1"),
        ((Link(0, 1, 0, 0.5),), [1.0, 1.0], "a link's delay must be at least 1 step, got Link"),
        ((Link(0, 1, 1, 0.5),), [1.0, 0.0], "noise must be one positive number a sensor"),
        ((Link(0, 1, 1, 0.5),) * 2, [1.0, 1.0], "links must be at least one, each given once, got 2"),
        ((), [1.0], "links must be at least one, each given once, got 0"),
        ((Link(0, 0, 2, 1.0),), [1.0], r"waves must fade, got a companion matrix of spectral radius 1\.000"),
    ],
)
def test_a_network_that_cannot_be_is_named(links, noise, message):
    with pytest.raises(ValueError, match=message):
        RoadNetwork(links, np.array(noise))


def test_numbers_out_of_range_are_named():
    with pytest.raises(ValueError, match="days must be at least 1, got 0"):
        synthetic_roads(days=0)
    with pytest.raises(ValueError, match=r"outages must lie in \[0, 0\.5\), got 0\.5"):
        synthetic_roads(outages=0.5)
    with pytest.raises(ValueError, match="roads must be at least 1 and sensors_per_road 2, got 0 and 3"):
        road_network(roads=0)
    roads = synthetic_roads(network=BY_HAND, days=1)
    windows = forecast_windows(roads.speeds, steps_in=4, steps_out=3)
    with pytest.raises(ValueError, match="sees must be one of window, current, own sensor, own reading, got 'all'"):
        roads.best_forecast(windows, sees="all")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="windows must have 6 sensors, got 2"):
        synthetic_roads(days=1).best_forecast(windows)
