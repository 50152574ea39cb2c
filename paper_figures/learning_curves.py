"""How the variants learn: training and validation error against epoch, and how far from the optimum they stay.

The synthetic roads, five variants (``trained_variants``). Left: the training MAE of an epoch, with dropout, over all
twelve steps ahead; right: the validation MAE after it. Thin: single seeds; thick: their mean. Two lines are known
exactly on the same windows: the least MAE that any forecast can expect, and the least for one that sees the last step
alone, which is all that a purely diagonal attention leaves to a forecast read off the last token. All in mph.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

import attention
from attention import ForecastWindows, SyntheticRoads
from attention.series import observed
from attention.synthetic_roads import Sees
from numerics import MeanInterval, mean_interval
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows
from paper_figures.trained_variants import BASELINE, NAMES, trained_variants

READS_DATA = False

PARTS = ("training", "validation")

SIGHTS: dict[Sees, str] = {"window": "best possible", "current": "best from the last step alone"}


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``curves`` (one row a run and epoch) and ``known`` (the exact lines of each part)."""
    trained = trained_variants(Settings(quick=settings.quick, seed=settings.seed))
    curves = [
        {"variant": variant, "seed": seed, "epoch": number, "training": epoch.training_mae}
        | {"validation": epoch.validation_mae}
        for (variant, seed), run in trained.runs.items()
        for number, epoch in enumerate(run.history, start=1)
    ]
    if trained.roads is None:
        raise ValueError("the optimum is known on synthetic roads alone")
    stride = next(iter(trained.runs.values())).settings.stride
    windows = {
        "training": attention.forecast_windows(trained.splits.train, stride=stride),
        "validation": attention.forecast_windows(trained.splits.validation),
    }
    known = [
        {"part": part, "sees": sees, "mae": least_error(trained.roads, windows[part], sees)}
        for part in PARTS
        for sees in SIGHTS
    ]
    return {"curves": from_rows(curves), "known": from_rows(known)}


def least_error(roads: SyntheticRoads, windows: ForecastWindows, sees: Sees) -> float:
    """The least MAE that a forecast can expect over all observed targets of the windows, mph."""
    counts = observed(windows.targets).sum(axis=(0, 2))
    errors = roads.known_errors(windows, sees=sees).mae
    return float(errors[counts > 0] @ counts[counts > 0] / counts.sum())


def _known(tables: Mapping[str, Table], part: str, sees: str) -> float:
    known = tables["known"]
    return float(known["mae"][(known["part"] == part) & (known["sees"] == sees)][0])


def _of_seeds(curves: Table, variant: str, part: str) -> NDArray[np.float64]:
    """(seeds, epochs), as many epochs as every seed has."""
    mine = curves["variant"] == variant
    runs = [curves[part][mine & (curves["seed"] == seed)] for seed in np.unique(curves["seed"][mine])]
    return np.stack([run[: min(map(len, runs))] for run in runs])


def _best(curves: Table, variant: str) -> NDArray[np.float64]:
    """The validation error of the best epoch, (seeds,)."""
    mine = curves["variant"] == variant
    return np.array(
        [curves["validation"][mine & (curves["seed"] == seed)].min() for seed in np.unique(curves["seed"][mine])]
    )


def _change(curves: Table, variant: str) -> MeanInterval:
    """Of that error against no regularisation, seed by seed, in per cent."""
    return mean_interval(100 * (_best(curves, variant) / _best(curves, BASELINE) - 1))


def finding(tables: Mapping[str, Table]) -> str:
    """The validation error that each variant comes down to, beside what is possible."""
    curves = tables["curves"]
    best = {variant: mean_interval(_best(curves, variant)) for variant in NAMES}
    said = ", ".join(f"{NAMES[variant]} {one.mean:.2f}" for variant, one in best.items())
    current = _known(tables, "validation", "current")
    below = [NAMES[variant] for variant, one in best.items() if one.upper < current]
    return (
        f"validation MAE of the best epoch, mean over seeds: {said} mph; least possible "
        f"{_known(tables, 'validation', 'window'):.2f}, from the last step alone {current:.2f}; below the latter with "
        f"95 % confidence: {', '.join(below) or 'none'}"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """Training on the left, validation on the right, one scale."""
    curves = tables["curves"]
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.1)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, part in zip(panels, PARTS, strict=True):
        for place, (variant, name) in enumerate(NAMES.items()):
            look, runs = style.series(place), _of_seeds(curves, variant, part)
            epochs = np.arange(1, runs.shape[1] + 1)
            axes.plot(epochs, runs.T, color=look["color"], linewidth=0.4, alpha=0.6)
            axes.plot(epochs, runs.mean(0), **look, label=name)
        for (sees, label), line in zip(SIGHTS.items(), ("-", ":"), strict=True):
            axes.axhline(_known(tables, part, sees), color=style.BLACK, linestyle=line, label=label)
        axes.set(title=f"{part} windows", xlabel="epoch", ylim=(0, None))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set_ylabel("MAE over 12 steps ahead (mph)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    regularised = [_change(curves, variant) for variant in NAMES if variant not in (BASELINE, "no-residual")]
    means = [float(one.mean) for one in regularised]
    told = sum(bool(one.lower > 0 or one.upper < 0) for one in regularised)
    without = _change(curves, "no-residual")
    figure.suptitle(
        "Best validation error against no regularisation:\n"
        f"{min(means):+.1f} to {max(means):+.1f} % with a regulariser ({told or 'none'} of {len(means)} significant), "
        f"{without.mean:+.0f} ± {without.half_width:.0f} % without the residual",
        x=0.01,
        ha="left",
    )
    return figure
