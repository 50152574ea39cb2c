"""The five variants of P1, trained once for all the figures that show what training makes of them.

The forecaster is the small preset, two blocks with ``spatial="graph"``, read off the last token: what it knows of
earlier steps it knows through attention alone. Rows of attention that nothing reads are therefore no result: in the
last block only the last token's row reaches the forecast (``rows_read``), in the others all rows do.

Data: the synthetic roads of ``attention train``, whose best forecast is known exactly; or, where a data file is asked
for, the six sensors of that file with the fewest missing readings. Training is in float32 on one thread: on one machine
the same bytes on every run, on another the last digits may differ.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

import attention
from attention import Forecaster, ForecastWindows, Speeds, Splits, SyntheticRoads, TemporalAttention, Training
from paper_figures.settings import DataError, Settings

NAMES = {
    "no-residual": "no residual",
    "no-regularisation": "no regularisation",
    "diagonal-mask": "full diagonal mask",
    "diagonal-dropout": "diagonal dropout",
    "diagonal-penalty": "diagonal penalty",
}
"""P1's five variants, in the order of its table: the key in ``attention.VARIANTS`` and the name in the table."""

BASELINE = "no-regularisation"

SENSORS = 6
"""How many are taken of a data file: as many as the synthetic roads have."""


@dataclass(frozen=True, eq=False)
class TrainedVariants:
    """All runs on one series.

    Attributes:
        splits: the series in its parts.
        roads: what is known about it where it is synthetic.
        runs: (variant, seed) -> run, variants in the order of ``NAMES``.
    """

    splits: Splits
    roads: SyntheticRoads | None
    runs: Mapping[tuple[str, int], Training]

    @property
    def test_windows(self) -> ForecastWindows:
        """Every window of the test rows."""
        return attention.forecast_windows(self.splits.test)


@cache
def trained_variants(settings: Settings) -> TrainedVariants:
    """Train each variant from each seed; the second call with the same settings only looks up.

    Args:
        settings: with a data file for a run on real speeds.

    Raises:
        DataError: the data file is too short, or no table of speeds.
    """
    roads = None
    try:
        series = settings.series()
        if series is None:
            roads = attention.synthetic_roads(days=4 if settings.quick else 14, seed=settings.seed)
            series = roads.speeds
        splits = attention.split(best_observed(series, SENSORS))
    except ValueError as error:
        raise DataError(str(error)) from error
    epochs, stride = (2, 8) if settings.quick else (8, 3)
    base = attention.Settings(epochs=epochs, stride=stride, batch_size=8, learning_rate=1e-2)
    seeds = range(settings.seed, settings.seed + (2 if settings.quick else 4))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        runs = {
            (variant, seed): attention.train(splits, replace(base, variant=variant, seed=seed))
            for variant, seed in tqdm(list(product(NAMES, seeds)), desc="training the variants", disable=None)
        }
    finally:
        torch.set_num_threads(threads)
    return TrainedVariants(splits, roads, runs)


def best_observed(series: Speeds, number: int) -> Speeds:
    """The sensors with the fewest missing readings, in the order of the file; all where there are not more."""
    missing = (~series.observed).sum(axis=0)
    chosen = np.sort(np.argsort(missing, kind="stable")[:number])
    names = tuple(series.sensor_ids[sensor] for sensor in chosen)
    return Speeds(series.values[:, chosen], series.time_of_day, names, series.step_minutes)


def untrained(training: Training) -> Forecaster:
    """The forecaster as the run's seed made it, before the first step, in evaluation mode."""
    settings = training.settings
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return Forecaster(
            _sensors(training.model),
            size=attention.PRESETS[settings.preset],
            variant=attention.VARIANTS[settings.variant],
            spatial=settings.spatial,
            readout=settings.readout,
            steps_in=settings.steps_in,
            steps_out=settings.steps_out,
            dtype=torch.float32,
        ).eval()


def _sensors(model: Forecaster) -> int:
    return len(model.get_parameter("blocks.0.graph.source"))


def attention_layers(model: Forecaster) -> list[TemporalAttention]:
    """The temporal attention of each block, first to last."""
    return [module for module in model.modules() if isinstance(module, TemporalAttention)]


def rows_read(block: int, blocks: int, tokens: int) -> list[int]:
    """The rows i of a block's attention that reach a forecast read off the last token.

    Args:
        block: from 1.
        blocks: how many there are.
        tokens: T.
    """
    return [tokens - 1] if block == blocks else list(range(tokens))


def hidden_states(model: Forecaster, features: Tensor) -> list[Tensor]:
    """What each temporal attention layer is given, (..., S, T, d) a block, in float64.

    Args:
        model: in evaluation mode.
        features: (..., S, T, 4), float64.
    """
    model = in_float64(model)
    given: list[Tensor] = []

    def keep(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        given.append(arguments[0])

    for layer in attention_layers(model):
        layer.register_forward_pre_hook(keep)
    with torch.no_grad():
        model(features)
    return given


def in_float64(model: Forecaster) -> Forecaster:
    """A copy whose weights are float64, without a gradient."""
    return copy.deepcopy(model).double().requires_grad_(False)


def features_of(windows: ForecastWindows, splits: Splits, chosen: slice | NDArray[np.int64]) -> Tensor:
    """What the forecaster is told of some windows, (N, S, T, 4), float64."""
    return torch.from_numpy(
        attention.input_features(windows.inputs[chosen], windows.inputs_time[chosen], splits.scaler)
    )
