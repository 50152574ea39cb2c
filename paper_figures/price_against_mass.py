"""Does the price say which heads have a sink? Every head of three pretrained models (B8, B4).

Across: how much dearer the diagonal is than the sink in the head's layer, diagonal price over sink price at equal
margins, the middle of the proven bracket, median over texts; a ratio has no unit, and the scale of the tokens cancels.
Dashed: equal prices. All heads of a layer see the same vectors, so they share one price and stand in one column. Up:
attention on the sink, mean over queries and texts. Colour: the layer. rho: Spearman's rank correlation over heads with
a 95 % interval, whole layers drawn again; below it, the price of the sink alone instead of the ratio (where a low price
makes a sink, it is negative), and that with the layer's index held fixed.

Drawn from ``results/probe-heads.csv``, ``results/probe-layers.csv`` and ``results/probe-answers.csv``, which
``python -m attention probe`` and ``python -m attention summarise`` make.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paper_figures import style
from paper_figures.probe_results import names_of, of_models, probe_study
from paper_figures.settings import DataError, Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False
READS_PROBE = True

MEASURES = {
    "mass, diagonal price over sink price": "ratio",
    "mass, price": "price",
    "mass, price | layer index": "price | layer",
}
"""A measure of the study across heads, and what the panel calls it."""


TICKS = (0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200)


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``heads`` and ``correlations``."""
    study, runs = probe_study(settings)
    heads: list[dict[str, Any]] = []
    for run in runs:
        layers = {name: column[study.layers["run"] == run] for name, column in study.layers.items()}
        of_layer = {}
        for layer in np.unique(layers["layer"]).tolist():
            priced = (layers["layer"] == layer) & ~np.isnan(layers["diagonal_lower"] * layers["sink_lower"])
            if not priced.any():
                raise DataError(f"the probe of {run} has no diagonal prices in layer {layer}: probe with --prices fast")
            lower = layers["diagonal_lower"][priced] / layers["sink_upper"][priced]
            upper = layers["diagonal_upper"][priced] / layers["sink_lower"][priced]
            of_layer[layer] = {
                "ratio_lower": float(np.median(lower)),
                "ratio_upper": float(np.median(upper)),
            }
        here = study.heads["run"] == run
        columns = (study.heads[name][here].tolist() for name in ("layer", "head", "sink_mass"))
        heads += [
            {"run": run, "layer": layer, "head": head, "mass": mass} | of_layer[layer]
            for layer, head, mass in zip(*columns, strict=True)
        ]
    answers = study.answers
    correlations: list[dict[str, Any]] = []
    for run in runs:
        for measure, short in MEASURES.items():
            here = (answers["run"] == run) & (answers["question"] == "across heads") & (answers["measure"] == measure)
            correlations += [
                {"run": run, "measure": short, "value": value, "lower": lower, "upper": upper}
                for value, lower, upper in zip(
                    *(answers[name][here].tolist() for name in ("value", "lower", "upper")), strict=True
                )
            ]
    return {"heads": from_rows(heads), "correlations": from_rows(correlations)}


def finding(tables: Mapping[str, Table]) -> str:
    """The rank correlations of each model, and whether their intervals exclude 0."""
    said = []
    for run, name in names_of(tables["correlations"]).items():
        parts = []
        for row in _correlations(tables, run):
            doubt = ", holds 0" if row["lower"] <= 0 <= row["upper"] else ""
            parts.append(f"{row['measure']} {_told(row, doubt)}")
        said.append(f"{name}: {'; '.join(parts)}")
    return f"rank correlation over heads of the attention on the sink with its layer's prices: {'. '.join(said)}"


def draw(tables: Mapping[str, Table]) -> Figure:
    """One panel a model, one scale of mass."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=2.8)
    models = names_of(tables["heads"])
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    heads = tables["heads"]
    for axes, (run, name) in zip(panels, models.items(), strict=True):
        here = np.asarray(heads["run"]) == run
        ratio = np.sqrt(np.asarray(heads["ratio_lower"]) * np.asarray(heads["ratio_upper"]))[here]
        layer = np.asarray(heads["layer"])[here]
        points = axes.scatter(
            ratio, np.asarray(heads["mass"])[here], c=layer, cmap=style.SEQUENTIAL, s=9, linewidths=0.2, edgecolors="k"
        )
        figure.colorbar(points, ax=axes, label="layer", pad=0.02, aspect=30, ticks=_ticks(int(layer.max())))
        axes.axvline(1, color=style.GREY, linewidth=0.8, linestyle="--")
        axes.annotate(
            "equal",
            (1, 1),
            (1.5, -1),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90,
            va="top",
            color=style.GREY,
            fontsize=6,
        )
        axes.set(xscale="log", xlabel="diagonal price / sink price")
        axes.set_title(_title(name, _correlations(tables, run)), fontsize=6.5)
        axes.set_ylim(-0.02, 1.02)
        low, high = axes.get_xlim()
        ticks = [tick for tick in TICKS if low <= tick <= high and (tick != 1.5 or high < 5)]
        if len(ticks) < 2:
            ticks = [tick for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
        axes.set_xticks(ticks, minor=False)
        axes.set_xticks([], minor=True)
        axes.xaxis.set_major_formatter("{x:g}")
    figure.get_layout_engine().set(w_pad=0.06)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    panels[0].set_ylabel("attention on the sink (weight)")
    rising = sum(row["measure"] == "ratio" and row["lower"] > 0 for run in models for row in _correlations(tables, run))
    figure.suptitle(
        f"Over heads, attention on the sink rises with the ratio of the prices in {of_models(rising, len(models))} "
        "(95 % confidence)",
        x=0.01,
        ha="left",
    )
    return figure


def _title(name: str, correlations: list[dict[str, Any]]) -> str:
    lines = [
        rf"$\rho$({row['measure']}) {'is' if np.isnan(row['value']) else '='} {_told(row)}" for row in correlations
    ]
    return "\n".join([name, *lines])


def _told(row: Mapping[str, Any], doubt: str = "") -> str:
    if np.isnan(row["value"]):
        return "not defined"
    if np.isnan(row["lower"]):
        return f"{row['value']:+.2f}, too few layers for an interval"
    return f"{row['value']:+.2f} [{row['lower']:+.2f}, {row['upper']:+.2f}{doubt}]"


def _ticks(last: int) -> list[int]:
    return list(range(0, last + 1, max(1, last // 5)))


def _correlations(tables: Mapping[str, Table], run: str) -> list[dict[str, Any]]:
    table = tables["correlations"]
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return [row for row in rows if row["run"] == run]
