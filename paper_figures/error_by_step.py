"""Whether the regularisers help: error by step ahead, P1's reported numbers and ours apart (A7).

Columns: what P1 reports (METR-LA, four months, four runs; its sds taken with the divisor n - 1); ours on one week of
METR-LA, once with sensors that exchange messages and once with P1's public code's scaling instead, from the committed
results/los_speed.csv (left out where there is no such file); ours on the synthetic roads, trained here
(``trained_variants``). Top: MAE in mph, means over seeds with 95 % t-intervals. On the synthetic roads also the least
error that any forecast can expect, and everywhere where it was measured persistence, which repeats the last reading.

Bottom: the change of the MAE against no regularisation, in per cent (negative: the error falls), with 95 %
t-intervals: ours of the changes seed by seed; P1's runs cannot be paired, so Welch's interval of the difference over
the baseline's mean. Every interval stands alone, without a correction for their number. The variant without residual
is in the table; the lower row is about the regularisers.
"""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import stdtrit

import attention
import numerics
from attention.baselines import Persistence
from numerics.a7_table_audit import METRICS, PUBLISHED, RUNS
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows
from paper_figures.trained_variants import BASELINE, NAMES, trained_variants

READS_DATA = False

RESULTS = Path(__file__).parents[1] / "results" / "los_speed.csv"
"""What ``python -m attention sweep`` found on one week of METR-LA."""

SOURCES = {
    "P1": "reported by P1\nMETR-LA, 4 months",
    "week, graph": "ours: METR-LA, 1 week\nspatial: graph",
    "week, published": "ours: METR-LA, 1 week\nspatial: published",
    "roads": "ours: synthetic roads\nspatial: graph",
}
"""Where errors come from, and the head of the column."""

STEPS = attention.REPORTED_STEPS
"""Of the changes that are drawn and counted."""

REGULARISERS = ("diagonal-mask", "diagonal-dropout", "diagonal-penalty")

REFERENCES = {"persistence": "--", "best possible": "-"}


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``runs`` (each error of ours), ``references``, ``means`` and ``changes`` (MAE, with intervals)."""
    week, week_references = committed_runs(RESULTS)
    roads, roads_references = roads_runs(settings)
    runs = from_rows([*week, *roads])
    ours = {name: np.asarray(column) for name, column in runs.items()}
    means, changes = reported()
    for source in dict.fromkeys(ours["source"].tolist()):
        errors = {variant: _by_seed(ours, source, variant) for variant in NAMES}
        for variant, of_step in errors.items():
            for step, by_seed in of_step.items():
                place = {"source": source, "variant": variant, "step": step}
                means.append(place | _ends(numerics.mean_interval(list(by_seed.values()))))
                if variant != BASELINE:
                    base = errors[BASELINE][step]
                    percent = [100 * (mae / base[seed] - 1) for seed, mae in by_seed.items()]
                    changes.append(place | _ends(numerics.mean_interval(percent)))
    return {
        "runs": runs,
        "references": from_rows([*week_references, *roads_references]),
        "means": from_rows(means),
        "changes": from_rows(changes),
    }


def committed_runs(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of a sweep's CSV as those of ``runs`` and of ``references``; none where there is no file."""
    runs, references = [], []
    if not path.exists():
        return runs, references
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["steps_out"]) != max(STEPS):
                continue
            place, mae = {"step": int(row["step"])}, float(row["mae"])
            if row["variant"] in NAMES and f"week, {row['spatial']}" in SOURCES:
                source = {"source": f"week, {row['spatial']}", "variant": row["variant"], "seed": int(row["seed"])}
                runs.append(source | place | {"mae": mae, "rmse": float(row["rmse"]), "mape": float(row["mape"])})
            elif row["variant"] in REFERENCES:
                references += [
                    {"source": source, "forecast": row["variant"]} | place | {"mae": mae}
                    for source in SOURCES
                    if source.startswith("week")
                ]
    return runs, references


def roads_runs(settings: Settings) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Errors on the synthetic roads' test windows: of every run, and of what they are compared with."""
    trained = trained_variants(Settings(quick=settings.quick, seed=settings.seed))
    if trained.roads is None:
        raise ValueError("the optimum is known on synthetic roads alone")
    windows = trained.test_windows
    runs = []
    for (variant, seed), run in trained.runs.items():
        errors = attention.pooled_errors(run.forecast(windows), windows.targets)
        runs += [
            {"source": "roads", "variant": variant, "seed": seed, "step": step}
            | {"mae": float(mae), "rmse": float(rmse), "mape": float(mape)}
            for step, (mae, rmse, mape) in enumerate(zip(errors.mae, errors.rmse, errors.mape, strict=True), start=1)
        ]
    repeated = Persistence.fit(trained.splits.train).forecast(windows)
    references = {
        "persistence": attention.pooled_errors(repeated, windows.targets).mae,
        "best possible": trained.roads.known_errors(windows).mae,
    }
    return runs, [
        {"source": "roads", "forecast": name, "step": step, "mae": mae}
        for name, errors in references.items()
        for step, mae in enumerate(errors.tolist(), start=1)
    ]


def reported() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """P1's MAE as rows of ``means`` and of ``changes``."""
    means, changes = [], []
    base = PUBLISHED[NAMES[BASELINE]]
    for variant, name in NAMES.items():
        row = PUBLISHED[name]
        welch = numerics.welch(row.mean, row.sd, base.mean, base.sd, ddof=1)
        quantile = np.array([stdtrit(RUNS - 1, 0.975), *stdtrit(welch.df, 0.975)])
        for step in STEPS:
            cell = METRICS.index(f"MAE-{step}")
            place = {"source": "P1", "variant": variant, "step": step}
            half = quantile[0] * row.sd[cell] / RUNS**0.5
            means.append(place | _ends(numerics.MeanInterval(row.mean[cell], half)))
            if variant != BASELINE:
                half = quantile[1 + cell] * np.hypot(row.sd[cell], base.sd[cell]) / RUNS**0.5
                percent = numerics.MeanInterval(row.mean[cell] - base.mean[cell], half)
                changes.append(place | {key: 100 * end / base.mean[cell] for key, end in _ends(percent).items()})
    return means, changes


def _ends(interval: numerics.MeanInterval) -> dict[str, float]:
    return {"mean": float(interval.mean), "lower": float(interval.lower), "upper": float(interval.upper)}


def _by_seed(runs: Table, source: str, variant: str) -> dict[int, dict[int, float]]:
    """Step -> seed -> MAE."""
    found: dict[int, dict[int, float]] = {}
    here = (runs["source"] == source) & (runs["variant"] == variant)
    for step, seed, mae in zip(*(runs[name][here].tolist() for name in ("step", "seed", "mae")), strict=True):
        found.setdefault(step, {})[seed] = mae
    return found


def _drawn_changes(tables: Mapping[str, Table], source: str) -> dict[str, np.ndarray]:
    """The regularisers' changes at the reported steps."""
    changes = tables["changes"]
    here = (changes["source"] == source) & np.isin(changes["variant"], REGULARISERS) & np.isin(changes["step"], STEPS)
    return {name: column[here] for name, column in changes.items()}


def _sources(tables: Mapping[str, Table]) -> list[str]:
    return [source for source in SOURCES if source in set(tables["changes"]["source"].tolist())]


def _verdict(tables: Mapping[str, Table], source: str) -> tuple[int, int, int]:
    """How many of the drawn changes fall and rise, the interval included, and how many there are."""
    changes = _drawn_changes(tables, source)
    return int((changes["upper"] < 0).sum()), int((changes["lower"] > 0).sum()), len(changes["mean"])


def finding(tables: Mapping[str, Table]) -> str:
    """The range of the changes in each column, and how many of them have a sign."""
    said = []
    for source in _sources(tables):
        fall, rise, number = _verdict(tables, source)
        mean = _drawn_changes(tables, source)["mean"]
        said.append(
            f"{SOURCES[source].replace(_BREAK, ', ')}: {mean.min():+.1f} to {mean.max():+.1f} %, "
            f"{fall} of {number} fall and {rise} rise"
        )
    steps = ", ".join(map(str, STEPS))
    return (
        f"MAE with a regulariser against none at steps {steps} (rise and fall: with 95 % confidence): {'; '.join(said)}"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """A column a source: errors above, changes below; steps along the shared axis."""
    sources = _sources(tables)
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.4)
    panels = figure.subplots(2, len(sources), sharex=True, sharey="row", squeeze=False)
    for column, source in enumerate(sources):
        above, below = panels[:, column]
        _draw_means(above, tables, source)
        above.set_title(SOURCES[source])
        changes = _drawn_changes(tables, source)
        below.axhline(0.0, color=style.BLACK, linewidth=0.6)
        for place, variant in enumerate(REGULARISERS):
            here = changes["variant"] == variant
            mean, lower, upper = (changes[name][here] for name in ("mean", "lower", "upper"))
            below.errorbar(
                changes["step"][here] + 0.8 * (place - 1),
                mean,
                yerr=(mean - lower, upper - mean),
                linestyle="none",
                capsize=2,
                elinewidth=1.0,
                **_look(variant),
            )
        fall, rise, number = _verdict(tables, source)
        below.set_title(f"{fall} fall, {rise} rise, {number - fall - rise} undecided")
        below.set_xlabel("steps ahead (5 min)")
        below.set_xticks((1, *STEPS))
    panels[0, 0].set_ylabel("MAE (mph)")
    panels[1, 0].set_ylabel("change against\nno regularisation (%)")
    panels[0, 0].set_ylim(0, 1.1 * max(tables[table][column].max() for table, column in _HEIGHTS.items()))
    shown = [_drawn_changes(tables, source) for source in sources]
    largest, widest = (
        max(float(np.abs(changes[name]).max()) for changes in shown for name in names)
        for names in (("mean",), ("lower", "upper"))
    )
    # Of two seeds an interval may be far wider than any change, so it may be cut off.
    reach = 1.1 * min(widest, 4 * max(largest, 1.0))
    panels[1, 0].set_ylim(-reach, reach)
    for axes in panels[:, sources.index("P1")]:
        axes.set_facecolor(_REPORTED)
    handles, labels = panels[0, -1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    theirs = _verdict(tables, "P1")
    fall, rise, number = np.sum([_verdict(tables, source) for source in sources if source != "P1"], axis=0)
    figure.suptitle(
        f"With a regulariser the MAE falls with 95 % confidence in {theirs[0]} of the {theirs[2]} comparisons that P1 "
        f"reports,\nand in {fall} of our {number}; it rises in {rise} of ours",
        x=0.01,
        ha="left",
    )
    return figure


_BREAK = "\n"

_HEIGHTS = {"means": "mean", "references": "mae"}

_REPORTED = "#F0F0F0"
"""Behind what is not ours."""


def _look(variant: str) -> dict[str, Any]:
    look = style.series(list(NAMES).index(variant))
    return {"color": look["color"], "marker": look["marker"]}


def _draw_means(axes: Axes, tables: Mapping[str, Table], source: str) -> None:
    means, references = tables["means"], tables["references"]
    for place, (variant, name) in enumerate(NAMES.items()):
        here = (means["source"] == source) & (means["variant"] == variant)
        mean, lower, upper = (means[column][here] for column in ("mean", "lower", "upper"))
        axes.errorbar(
            means["step"][here],
            mean,
            yerr=(mean - lower, upper - mean),
            label=name,
            elinewidth=0.7,
            markersize=2.5,
            linewidth=0.8,
            **{"linestyle": style.series(place)["linestyle"], **_look(variant)},
        )
    for forecast, line in REFERENCES.items():
        here = (references["source"] == source) & (references["forecast"] == forecast)
        if here.any():
            axes.plot(
                references["step"][here], references["mae"][here], color=style.BLACK, linestyle=line, label=forecast
            )
