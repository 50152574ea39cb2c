r"""Synthetic roads: seeded traffic of which the best possible forecast is known exactly.

A road is a chain of sensors. Congestion starts at its first sensor and travels along it, from sensor to sensor with
a known delay; at the first sensor it comes back after a known time; side roads join. The reading of sensor s at
step t is

    y_s(t) = profile_s(time of day) + z_s(t),    z_s(t) = (sum over links r -> s of gain z_r(t - delay)) + e_s(t),

e_s(t) Gaussian, independent over steps and sensors, of standard deviation D_s > 0. Outages, independent of the
speeds, write 0 over a reading. With A_l the matrix of the gains of delay l this is a vector autoregression
z(t) = sum_l A_l z(t-l) + e(t), stationary where its companion matrix has spectral radius below 1.

**The best forecast.** Let the window be as long as the longest delay, and observed. Expectations of the recursion,

    E[z(t+h) | past] = sum_{l < h} A_l E[z(t+h-l) | past] + sum_{l >= h} A_l z(t-(l-h)),

make it a linear function of z(t), z(t-1), .. with known weights: a link of delay l asks for lag l - h at step h <= l.
Its error is sum_{j < h} Psi_j e(t+h-j), Psi_0 = I, Psi_j = sum_l A_l Psi_{j-l}, whatever the past was. No forecast
has a smaller mean square error than the conditional mean, and none a smaller mean absolute error than the conditional
median; a Gaussian has both in one place. With v_h(s) = sum_{j < h} (Psi_j D^2 Psi_j^T)_ss the smallest RMSE of
sensor s is therefore sqrt(v_h(s)) and its smallest MAE sqrt(2 v_h(s)/pi) (``RoadNetwork.best_deviation``).

**It needs other tokens than its own.** With diagonal attention (a = I) a token depends on the readings of its own step
alone, however sensors are mixed, and a forecast read off the last token sees z(t) and nothing else. (A forecast read
off all tokens at once mixes steps by itself and needs no attention.) Suppose that the best forecast of sensor s has
a weight at a lag m >= 1 (``RoadNetwork.forecast_weights`` lists them): it is c_0 . z(t) + w, where
w = sum_{m >= 1} c_m . z(t-m) and some c_m is not 0. By the law of total variance the least mean square error given
z(t) is

    v_h(s) + Var(w | z(t)),

and Var(w | z(t)) > 0. For if w were b . z(t) almost surely, then b = 0, since e(t) is a part of z(t) that is
independent of w and has a positive definite covariance. So w = 0 almost surely, and the same argument at t-1, t-2, ..
gives c_1 = 0, c_2 = 0, ..: a contradiction. All is jointly Gaussian, so MAE and RMSE of the best forecast that sees
only the current step are strictly larger, in the same ratio (``RoadNetwork.current_deviation``).

Outages change both errors from window to window; ``SyntheticRoads.best_forecast`` conditions on exactly what was
observed. Where they fall does not depend on the speeds, so their places tell nothing else.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_discrete_lyapunov

from attention.series import ForecastWindows, Speeds, observed, time_slots

STEP_MINUTES = 5.0
STEPS_PER_DAY = 288

Sees = Literal["window", "current", "own sensor", "own reading"]
"""What a forecast may look at: the window, its last step, the target sensor's window, or that sensor's last step."""


class Link(NamedTuple):
    """Congestion at ``source`` reaches ``target`` after ``delay`` steps, multiplied by ``gain``."""

    source: int
    target: int
    delay: int
    gain: float


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """How congestion travels: z(t) = sum_l A_l z(t - l) + e(t).

    Attributes:
        links: at most one for each source, target and delay; delays are at least 1.
        noise: standard deviations of e, (S,), all positive.

    Raises:
        ValueError: a link that names no sensor, a delay below 1, noise that is not positive, or waves that grow.
    """

    links: tuple[Link, ...]
    noise: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.noise.ndim != 1 or not (np.isfinite(self.noise) & (self.noise > 0)).all():
            raise ValueError(f"noise must be one positive number a sensor, got {self.noise}")
        for link in self.links:
            if not {link.source, link.target} <= set(range(len(self.noise))):
                raise ValueError(f"a link must join sensors 0 .. {len(self.noise) - 1}, got {link}")
            if link.delay < 1:
                raise ValueError(f"a link's delay must be at least 1 step, got {link}")
        if not self.links or len({link[:3] for link in self.links}) != len(self.links):
            raise ValueError(f"links must be at least one, each given once, got {len(self.links)}")
        radius = float(np.abs(np.linalg.eigvals(self._companion)).max())
        if not radius < 1:
            raise ValueError(f"waves must fade, got a companion matrix of spectral radius {radius:.3f}")

    @cached_property
    def coefficients(self) -> NDArray[np.float64]:
        """A, (longest delay, S, S); [l - 1, target, source] is the gain of the link of delay l."""
        coefficients = np.zeros((max(link.delay for link in self.links), len(self.noise), len(self.noise)))
        for link in self.links:
            coefficients[link.delay - 1, link.target, link.source] = link.gain
        return coefficients

    @property
    def adjacency(self) -> NDArray[np.float64]:
        """(S, S), [source, target] the sum of the gains' magnitudes, 1 on the diagonal."""
        adjacency = np.abs(self.coefficients).sum(axis=0).T
        np.fill_diagonal(adjacency, 1.0)
        return adjacency

    @property
    def _companion(self) -> NDArray[np.float64]:
        """The recursion of the stacked state z(t), z(t-1), .. as one matrix."""
        delays, sensors, _ = self.coefficients.shape
        companion = np.eye(delays * sensors, k=-sensors)
        companion[:sensors] = np.concatenate(list(self.coefficients), axis=1)
        return companion

    @cached_property
    def stationary(self) -> NDArray[np.float64]:
        """Covariance of the stacked state (z(t), z(t-1), ..), one block a delay, (longest delay * S,) squared."""
        companion = self._companion
        innovation = np.zeros_like(companion)
        np.fill_diagonal(innovation[: len(self.noise), : len(self.noise)], self.noise**2)
        covariance = solve_discrete_lyapunov(companion, innovation)
        return (covariance + covariance.T) / 2

    def _recursion(self, before: list[NDArray[np.float64]]) -> NDArray[np.float64]:
        """sum_l A_l M_{k-l} from M_0, .., M_{k-1}, each (S, S); what lies before M_0 is 0."""
        latest = np.stack(before[::-1][: len(self.coefficients)])
        return np.einsum("lij,ljk->ik", self.coefficients[: len(latest)], latest)

    def autocovariance(self, lags: int) -> NDArray[np.float64]:
        """E z(t + k) z(t)^T for k = 0 .. lags, (lags + 1, S, S)."""
        sensors = len(self.noise)
        known = [self.stationary[:sensors, k * sensors : (k + 1) * sensors] for k in range(len(self.coefficients))]
        while len(known) <= lags:
            known.append(self._recursion(known))
        return np.stack(known[: lags + 1])

    def forecast_weights(self, steps_out: int) -> NDArray[np.float64]:
        """The best forecast: z(t+h) is expected to be sum_m weights[h-1, m] z(t-m).

        Returns:
            (steps_out, longest delay, S, S); [h - 1, m, target, source], m = 0 the current step. Lags m with a weight
            that is not 0 are the tokens that the forecast must look at.
        """
        delays, sensors, _ = self.coefficients.shape
        weights = np.zeros((steps_out, delays, sensors, sensors))
        for h in range(1, steps_out + 1):
            for delay, gains in enumerate(self.coefficients, start=1):
                if delay < h:
                    weights[h - 1] += gains @ weights[h - delay - 1]
                else:
                    weights[h - 1, delay - h] += gains
        return weights

    def best_deviation(self, steps_out: int) -> NDArray[np.float64]:
        """sqrt(v_h), the smallest RMSE, (steps_out, S), given a complete window as long as the longest delay."""
        psi = [np.eye(len(self.noise))]
        while len(psi) < steps_out:
            psi.append(self._recursion(psi))
        variances = np.cumsum([(response * self.noise) ** 2 for response in psi], axis=0).sum(axis=2)
        return np.sqrt(variances)

    def current_deviation(self, steps_out: int) -> NDArray[np.float64]:
        """The smallest RMSE given only the current step's readings of all sensors, (steps_out, S)."""
        covariances = self.autocovariance(steps_out)
        now = cho_factor(covariances[0])
        told = np.stack([np.sum(ahead * cho_solve(now, ahead.T).T, axis=1) for ahead in covariances[1:]])
        return np.sqrt(np.diag(covariances[0]) - told)


class BestForecast(NamedTuple):
    """The law of every target given what was seen: Gaussian.

    Attributes:
        mean: the forecast that nothing beats, in mean square and in mean absolute error, (N, steps_out, S), mph.
        deviation: its RMSE for that target, (N, steps_out, S), mph.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]


class KnownErrors(NamedTuple):
    """Expected errors of the best forecast over the observed targets of the windows, by step, (steps_out,), mph.

    The mean absolute percentage error has no closed form and is left out.
    """

    mae: NDArray[np.float64]
    rmse: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SyntheticRoads:
    """One draw of traffic with all that is known about it.

    Attributes:
        network: how congestion travels.
        profile: mean speed by time of day, (288, S), mph.
        speeds: the readings, 0 in outages.
    """

    network: RoadNetwork
    profile: NDArray[np.float64]
    speeds: Speeds

    def best_forecast(self, windows: ForecastWindows, *, sees: Sees = "window") -> BestForecast:
        """The conditional mean and deviation of every target given the observed readings that the forecast sees.

        Args:
            windows: cut from ``speeds``.
            sees: "window" = all observed readings; "current" = those of the last step, which is all that diagonal
                attention leaves to the last token; "own sensor" = those of the target's sensor, which is all that
                is left where sensors exchange no messages; "own reading" = what both leave.

        Returns:
            The best forecast.

        Raises:
            ValueError: ``sees`` is something else, or windows of another number of sensors.
        """
        if sees not in get_args(Sees):
            raise ValueError(f"sees must be one of {', '.join(get_args(Sees))}, got {sees!r}")
        count, steps_in, sensors = windows.inputs.shape
        if sensors != len(self.network.noise):
            raise ValueError(f"windows must have {len(self.network.noise)} sensors, got {sensors}")
        steps_out = windows.targets.shape[1]
        joint = self._joint_covariance(steps_in + steps_out)
        inside = steps_in * sensors

        seen = observed(windows.inputs)
        if sees in ("current", "own reading"):
            seen = seen & (np.arange(steps_in) == steps_in - 1)[:, None]
        seen = seen.reshape(count, inside)
        deviations = (windows.inputs - self._usual(windows.inputs_time)).reshape(count, inside)
        # Targets that see the same readings: all of them, or a sensor's own.
        place = np.arange(inside + steps_out * sensors)
        groups = [place % sensors == s for s in range(sensors)] if sees.startswith("own") else [place >= 0]

        mean, variance = np.zeros((2, count, steps_out * sensors))
        patterns, which = np.unique(seen, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            rows = np.flatnonzero(which == number)
            for group in groups:
                told, asked = np.flatnonzero(pattern & group[:inside]), inside + np.flatnonzero(group[inside:])
                weights, left = _regression(joint, asked, told)
                mean[np.ix_(rows, asked - inside)] = deviations[np.ix_(rows, told)] @ weights.T
                variance[np.ix_(rows, asked - inside)] = left
        shape = (count, steps_out, sensors)
        return BestForecast(self._usual(windows.targets_time) + mean.reshape(shape), np.sqrt(variance).reshape(shape))

    def known_errors(self, windows: ForecastWindows, *, sees: Sees = "window") -> KnownErrors:
        """The smallest MAE and RMSE that any forecast can expect on these windows, by step.

        Expected over the noise, given where the outages are; those of one draw scatter about them.
        Arguments and errors are those of ``best_forecast``; a step without an observed target gives NaN.
        """
        deviation = self.best_forecast(windows, sees=sees).deviation
        deviation = np.where(observed(windows.targets), deviation, np.nan)
        counts = np.isfinite(deviation).sum(axis=(0, 2))
        absolute, square = (
            np.where(counts > 0, np.nansum(part, axis=(0, 2)), np.nan) / np.maximum(counts, 1)
            for part in (deviation, deviation**2)
        )
        # E|N(0, s^2)| = s sqrt(2/pi).
        return KnownErrors(math.sqrt(2 / math.pi) * absolute, np.sqrt(square))

    def _usual(self, time_of_day: NDArray[np.float64]) -> NDArray[np.float64]:
        return self.profile[time_slots(time_of_day, STEPS_PER_DAY)]

    def _joint_covariance(self, steps: int) -> NDArray[np.float64]:
        """Of z(1), .., z(steps), stacked, (steps * S,) squared."""
        covariances = self.network.autocovariance(steps - 1)
        blocks = [[covariances[i - j] if i >= j else covariances[j - i].T for j in range(steps)] for i in range(steps)]
        return np.block(blocks)


def _regression(
    joint: NDArray[np.float64], asked: NDArray[np.int64], told: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (asked, told) of the conditional mean of Gaussians of mean 0, and the variances left, (asked,)."""
    variances = np.diag(joint)[asked]
    if not len(told):
        return np.zeros((len(asked), 0)), variances
    cross = joint[np.ix_(asked, told)]
    weights = cho_solve(cho_factor(joint[np.ix_(told, told)]), cross.T).T
    return weights, variances - np.sum(weights * cross, axis=1)


def road_network(*, roads: int = 2, sensors_per_road: int = 3, seed: int = 0) -> RoadNetwork:
    """Roads whose waves take 4 to 8 steps from sensor to sensor and come back to the first one after 9 to 11.

    The second sensor of each road feeds the last one of the next road too, as a side road does.

    Args:
        roads: at least 1.
        sensors_per_road: at least 2.
        seed: of delays and gains.

    Returns:
        The network, S = roads * sensors_per_road; the sensors of a road follow each other. Its longest delay is at
        most 11, so a window of 12 steps holds all that the best forecast needs.

    Raises:
        ValueError: a number too small.
    """
    if roads < 1 or sensors_per_road < 2:
        raise ValueError(f"roads must be at least 1 and sensors_per_road 2, got {roads} and {sensors_per_road}")
    generator = np.random.default_rng(seed)
    links = []
    for road in range(roads):
        first, last = road * sensors_per_road, (road + 1) * sensors_per_road - 1
        links.append(Link(first, first, int(generator.integers(9, 12)), float(generator.uniform(0.85, 0.92))))
        for sensor in range(first, last):
            gain = float(generator.uniform(0.8, 0.95))
            links.append(Link(sensor, sensor + 1, int(generator.integers(4, 9)), gain))
        if roads > 1:
            side = ((road - 1) % roads) * sensors_per_road + 1
            links.append(Link(side, last, int(generator.integers(4, 9)), float(generator.uniform(0.3, 0.5))))
    # Congestion is made at the first sensor; the others add a little of their own.
    noise = np.where(np.arange(roads * sensors_per_road) % sensors_per_road == 0, 2.5, 1.5)
    return RoadNetwork(tuple(links), noise)


def synthetic_roads(
    *, network: RoadNetwork | None = None, days: int = 14, outages: float = 0.02, seed: int = 0
) -> SyntheticRoads:
    """Draw traffic on a road network, 5 minutes a step, from midnight.

    Args:
        network: ``road_network(seed=seed)`` if not given.
        days: at least 1.
        outages: share of the time that a sensor is silent, in [0, 0.5), half an hour at a time on average; a tenth of
            it is added for outages of all sensors at once. 0 = none.
        seed: of profile, noise and outages; the same seed gives the same readings.

    Returns:
        The traffic and what is known about it.

    Raises:
        ValueError: a number out of its range.
    """
    if days < 1:
        raise ValueError(f"days must be at least 1, got {days}")
    if not 0 <= outages < 0.5:
        raise ValueError(f"outages must lie in [0, 0.5), got {outages}")
    network = road_network(seed=seed) if network is None else network
    generator = np.random.default_rng([seed, 1])
    sensors, steps = len(network.noise), days * STEPS_PER_DAY
    profile = _daily_profile(generator, sensors)
    time_of_day = np.arange(steps) % STEPS_PER_DAY / STEPS_PER_DAY
    values = np.tile(profile, (days, 1)) + _waves(network, generator, steps)
    silent = _silences(generator, steps, sensors, outages, mean_length=6)
    silent |= _silences(generator, steps, 1, outages / 10, mean_length=3)
    speeds = Speeds(np.where(silent, 0.0, values), time_of_day, tuple(f"s{n}" for n in range(sensors)), STEP_MINUTES)
    return SyntheticRoads(network, profile, speeds)


def _daily_profile(generator: np.random.Generator, sensors: int) -> NDArray[np.float64]:
    """Free flow with a slow morning and a slow evening, (288, S), mph."""
    hours = np.arange(STEPS_PER_DAY)[:, None] * 24 / STEPS_PER_DAY
    profile = np.full((STEPS_PER_DAY, sensors), 64.0)
    for rush_hour, width in ((8.0, 1.2), (17.5, 1.8)):
        depth = generator.uniform(5, 20, size=sensors)
        profile -= depth * np.exp(-(((hours - rush_hour) / width) ** 2) / 2)
    return profile


def _waves(network: RoadNetwork, generator: np.random.Generator, steps: int) -> NDArray[np.float64]:
    """z, (steps, S), stationary from the first step on."""
    delays, sensors, _ = network.coefficients.shape
    root = np.linalg.cholesky(network.stationary)
    # The stacked state has the latest step first.
    before = (root @ generator.standard_normal(delays * sensors)).reshape(delays, sensors)[::-1]
    waves = np.concatenate([before, network.noise * generator.standard_normal((steps, sensors))])
    for t in range(delays, len(waves)):
        waves[t] += np.einsum("lsr,lr->s", network.coefficients, waves[t - delays : t][::-1])
    return waves[delays:]


def _silences(
    generator: np.random.Generator, steps: int, sensors: int, share: float, *, mean_length: float
) -> NDArray[np.bool_]:
    """Independent outages of geometric length, (steps, sensors), True = silent for that share of the time."""
    begins, ends = share / (1 - share) / mean_length, 1 / mean_length
    draws = generator.random((steps + 1, sensors))
    silent = np.zeros((steps, sensors), dtype=bool)
    now = draws[0] < share
    for t in range(steps):
        now = np.where(now, draws[t + 1] >= ends, draws[t + 1] < begins)
        silent[t] = now
    return silent
