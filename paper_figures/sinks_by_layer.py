"""How much attention the sink gets, and what a sink costs, layer by layer of three pretrained models (B8, B2).

Top: attention on the sink (the first token; of MiniLM and ALBERT it is the tokenizer's [CLS]), mean over queries, heads
and texts; the band holds the middle half of the heads. Dotted: what uniform attention would give. Bottom: the least
nuclear norm of B that makes a sink of margin 1 from the vectors that enter this layer's scores, causal and with rotary
positions where the model has them, of at most 24 tokens a text and the sink: both proven sides, medians over texts. A
triangle marks layers where token 0 has become more than four times as long as the others in the residual stream
(median over texts), a diamond where it no longer is. Layers count from 0. The scale of a layer's tokens is in its
price: of two models, only the course of the prices can be compared. The title counts the models whose rank correlation
of mass and price over layers is below 0 with 95 % confidence, both where texts and where layers are drawn again.

Drawn from ``results/probe-heads.csv``, ``results/probe-layers.csv`` and ``results/probe-answers.csv``, which
``python -m attention probe`` and ``python -m attention summarise`` make.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from attention.probe_study import LONG
from paper_figures import style
from paper_figures.probe_results import names_of, of_models, probe_study
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False
READS_PROBE = True

SIGNS = {"grows": ("^", "token 0 grows long"), "shrinks": ("D", "token 0 is short again")}
"""Markers of the layers where that happens."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``layers`` (one row a model and layer) and ``correlations`` (of mass and price over a model's layers)."""
    study, runs = probe_study(settings)
    rows: list[dict[str, Any]] = []
    for run in runs:
        heads, layers = (
            {name: column[table["run"] == run] for name, column in table.items()}
            for table in (study.heads, study.layers)
        )
        was_long = False
        for layer in np.unique(heads["layer"]).tolist():
            mass = heads["sink_mass"][heads["layer"] == layer]
            here = layers["layer"] == layer
            length = _median(layers["sink_length"][here])
            is_long = length > LONG
            rows.append(
                {"run": run, "layer": layer, "mass": mass.mean()}
                | dict(zip(("quarter", "three_quarters"), np.quantile(mass, [0.25, 0.75]).tolist(), strict=True))
                | {"uniform": heads["uniform"][heads["layer"] == layer].mean()}
                | {f"price_{side}": _median(layers[f"sink_{side}"][here]) for side in ("lower", "upper")}
                | {"length": length, "grows": int(is_long and not was_long), "shrinks": int(was_long and not is_long)}
            )
            was_long = is_long
    answers = study.answers
    asked = (answers["question"] == "across layers") & (answers["measure"] == "mass, price")
    correlations: list[dict[str, Any]] = []
    for run in runs:
        for again in ("texts", "layers"):
            # There is none of a model of few layers.
            here = asked & (answers["run"] == run) & (answers["drawn"] == again)
            found = {name: _median(answers[name][here]) for name in ("value", "lower", "upper")}
            correlations.append({"run": run, "drawn": again} | found)
    return {"layers": from_rows(rows), "correlations": from_rows(correlations)}


def _median(values: np.ndarray) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else float("nan")


def finding(tables: Mapping[str, Table]) -> str:
    """The layer with most attention on the sink and the cheapest one, model by model; where token 0 is massive."""
    said = []
    for run, name in names_of(tables["layers"]).items():
        layers = _of(tables, run)
        most = int(layers["mass"].argmax())
        text = (
            f"{name}: most attention on the sink in layer {layers['layer'][most]} ({layers['mass'][most]:.2f}, uniform "
            f"{layers['uniform'][most]:.3f})"
        )
        priced = np.flatnonzero(np.isfinite(layers["price_upper"]))
        if len(priced):
            text += f", cheapest sink in layer {layers['layer'][priced][layers['price_upper'][priced].argmin()]}"
        long = layers["layer"][layers["length"] > LONG]
        if len(long):
            text += (
                f", token 0 over {LONG:g} times as long as the others in layers {_ranges(long.tolist())} "
                f"(at most {layers['length'].max():.0f} times)"
            )
        said.append(text)
    return "; ".join(said)


def draw(tables: Mapping[str, Table]) -> Figure:
    """Mass above, price below, layers along the shared axis."""
    figure = style.new_figure(width=style.COLUMN, height=3.9)
    above, below = figure.subplots(2, 1, sharex=True)
    for place, (run, name) in enumerate(names_of(tables["layers"]).items()):
        layers, look = _of(tables, run), style.series(place)
        above.fill_between(
            layers["layer"], layers["quarter"], layers["three_quarters"], color=look["color"], alpha=0.15, linewidth=0
        )
        above.plot(layers["layer"], layers["uniform"], color=look["color"], linestyle=":", linewidth=0.8)
        above.plot(layers["layer"], layers["mass"], **look, markersize=2.5, label=name)
        below.fill_between(
            layers["layer"], layers["price_lower"], layers["price_upper"], color=look["color"], alpha=0.3, linewidth=0
        )
        below.plot(
            layers["layer"],
            np.sqrt(layers["price_lower"] * layers["price_upper"]),
            **look,
            markersize=2.5,
            label=name,
        )
        for column, (marker, _) in SIGNS.items():
            for layer in layers["layer"][layers[column] == 1]:
                for axes in (above, below):
                    axes.axvline(layer, color=style.GREY, linewidth=0.6, linestyle=(0, (1, 1)), zorder=0)
                above.plot(layer, 1.0, marker=marker, color=look["color"], markersize=4, clip_on=False, zorder=5)
    above.set(ylim=(0, 1), ylabel="attention on the sink\n(weight)")
    below.set(yscale="log", xlabel="layer", ylabel="price of a sink\n(nuclear norm, margin 1)")
    below.set_xlim(-0.5, np.max(tables["layers"]["layer"]) + 0.5)
    # Whole numbers, even where there is but one.
    below.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 2.5, 5, 10], integer=True, min_n_ticks=1))
    signs = [Line2D([], [], color=style.GREY, linestyle=":", linewidth=0.8, label="uniform attention")]
    for column, (marker, meaning) in SIGNS.items():
        if np.any(tables["layers"][column]):
            signs.append(Line2D([], [], color=style.GREY, marker=marker, markersize=4, linestyle="none", label=meaning))
    below.legend(handles=signs, loc="best", fontsize=6.5)
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower center", ncols=3, columnspacing=0.9)
    models, correlations = names_of(tables["layers"]), tables["correlations"]
    falling = sum(bool(np.all(correlations["upper"][correlations["run"] == run] < 0)) for run in models)
    figure.suptitle(
        "Over layers, more attention where a sink is cheaper:\n"
        f"{of_models(falling, len(models))} (rank correlation, 95 % confidence)",
        x=0.01,
        ha="left",
    )
    return figure


def _ranges(numbers: list[int]) -> str:
    """Whole numbers in order, runs of them as first-last."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)


def _of(tables: Mapping[str, Table], run: str) -> dict[str, np.ndarray]:
    layers = tables["layers"]
    here = np.asarray(layers["run"]) == run
    return {name: np.asarray(column)[here] for name, column in layers.items()}
