"""What regularising the diagonal does to the weight a_ii and to the Jacobian (A5).

Left: the own weight after each regulariser against the one before, for every layer alike. A penalty b moves the logit
by b; the mask takes all; dropout of own scores has mean (1 - p) a_ii; dropout after the softmax keeps the mean, and its
band is one standard deviation.

Middle: how much J_ii moves, relative to itself, as T grows: spectral norm of the change, for the two dropouts after the
softmax the root mean square in Frobenius norm over the block's. Row 0 of random layers (``random_layer``, d = 16,
residual left out) among N(0, I) tokens; medians over layers. Before the softmax the change falls like 1/T, and so it
does after it if only the diagonal is dropped; dropout of all weights, like T^(-1/2).

Right: what the full mask does to the query path at T = 12, P1's window: the spectral norm of the query part with the
mask over that without, every row of every layer, against a_ii. Line: 1/(1 - a_ii), what a row gains if its token sits
on its mean. Points above 1 refute "a full mask suppresses the query path".
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter
from torch import Tensor
from tqdm import tqdm

import numerics
from paper_figures import style
from paper_figures.random_layer import random_layer
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

WIDTH = 16
"""d = d_k = d_v."""

PENALTIES = (-0.1, -1.0, -3.0)
"""b; P1 uses -0.1 and -0.05."""

SCORE_DROPOUT, WEIGHT_DROPOUT = 0.2, 0.1
"""p of the dropout of own scores, and of the dropouts after the softmax: P1's values."""

LENGTHS = tuple(2**power for power in range(2, 12))
"""T of the middle panel."""

SLOPE_FROM = 256
"""Slopes are fitted at this T and above."""

WINDOW = 12
"""T of the right panel: P1's hour of five-minute steps."""

CHANGES = {
    "mask": "mask",
    f"penalty {PENALTIES[0]:g}": f"penalty {PENALTIES[0]:g}",
    "score dropout": f"score dropout {SCORE_DROPOUT}, mean",
    "weight dropout": f"after softmax {WEIGHT_DROPOUT}, all",
    "diagonal weight dropout": f"after softmax {WEIGHT_DROPOUT}, diagonal",
}
"""Name in the tables -> in the legend."""

LOOKS = {name: style.series(place) for place, name in enumerate([*CHANGES, *(f"penalty {b:g}" for b in PENALTIES[1:])])}
"""One look for a regulariser in every panel."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``weights`` (left), ``changes`` and ``slopes`` (middle), ``query`` (right)."""
    generator = settings.generator()
    changes, query = [], []
    for number in tqdm(range(4 if settings.quick else 40), desc="regularisers", disable=None):
        layer = random_layer(WIDTH, generator)
        tokens = torch.randn(max(LENGTHS), WIDTH, generator=generator, dtype=torch.float64)
        for length in LENGTHS:
            heads = numerics.attention_heads(tokens[:length], *layer)
            changes += [
                {"layer": number, "T": length, "regulariser": name, "change": change}
                for name, change in own_block_changes(heads).items()
            ]
        query += [{"layer": number, "row": row, **values} for row, values in enumerate(masked_query(tokens, layer))]
    return {
        "weights": from_rows(_weights()),
        "changes": from_rows(changes),
        "slopes": from_rows(_slopes(from_rows(changes))),
        "query": from_rows(query),
    }


def _weights() -> list[dict]:
    """The own weight after each regulariser, on a grid of the own weight before."""
    rows = []
    for own in torch.linspace(0.0, 1.0, 101, dtype=torch.float64)[:-1]:
        weights = torch.stack([torch.stack([own, 1 - own]), torch.stack([1 - own, own])])
        after = {f"penalty {b:g}": numerics.penalised_weights(weights, b) for b in PENALTIES}
        after["mask"] = numerics.masked_weights(weights)
        after["score dropout"] = numerics.expected_score_dropout_weights(weights, SCORE_DROPOUT)
        after["weight dropout"] = weights
        spread = numerics.row_sum_variance(weights, WEIGHT_DROPOUT, diagonal_only=True)[0].sqrt()
        for name, matrix in after.items():
            deviation = float(spread) if name == "weight dropout" else 0.0
            rows.append(
                {"regulariser": name, "before": float(own), "mean": float(matrix[0, 0]), "deviation": deviation}
            )
    return rows


def own_block_changes(heads: numerics.Heads) -> dict[str, float]:
    """Relative change of J_00 under each regulariser: of the mean block, or the root mean square after the softmax."""
    block = own_block(heads)
    masked = own_block(numerics.with_weights(heads, numerics.masked_weights(heads.weights)))
    penalised = own_block(numerics.with_weights(heads, numerics.penalised_weights(heads.weights, PENALTIES[0])))
    expected = (1 - SCORE_DROPOUT) * block + SCORE_DROPOUT * masked
    means = {"mask": masked, f"penalty {PENALTIES[0]:g}": penalised, "score dropout": expected}
    changes = {name: spectral(new - block) / spectral(block) for name, new in means.items()}
    for name, diagonal_only in (("weight dropout", False), ("diagonal weight dropout", True)):
        variance = numerics.jacobian_variance_after_weight_dropout(
            heads, WEIGHT_DROPOUT, 0, 0, diagonal_only=diagonal_only
        )
        changes[name] = math.sqrt(float(variance.sum())) / float(torch.linalg.matrix_norm(block))
    return changes


def own_block(heads: numerics.Heads) -> Tensor:
    """J_00 without the residual, (d, d)."""
    return numerics.jacobian_rows(heads, [0])[0, 0]


def spectral(matrix: Tensor) -> float:
    """Largest singular value."""
    return float(torch.linalg.matrix_norm(matrix, ord=2))


def masked_query(tokens: Tensor, layer) -> list[dict[str, float]]:
    """For every row of a window: a_ii, and the query part's norm with the mask over that without."""
    heads = numerics.attention_heads(tokens[:WINDOW], *layer)
    parts = numerics.masked_query_part(heads)
    before = torch.linalg.matrix_norm(numerics.query_part(heads), ord=2)
    after = torch.linalg.matrix_norm(parts.grown - parts.removed, ord=2)
    own = heads.weights[0].diagonal()
    return [{"own": float(a), "ratio": float(ratio)} for a, ratio in zip(own, after / before, strict=True)]


def _slopes(changes: Table) -> list[dict]:
    """Least-squares slope of log median change against log T, from ``SLOPE_FROM`` on."""
    columns = {name: np.asarray(values) for name, values in changes.items()}
    slopes = []
    for name in CHANGES:
        lengths, medians = _median_curve(columns, name)
        late = lengths >= SLOPE_FROM
        slope = np.polyfit(np.log(lengths[late]), np.log(medians[late]), 1)[0]
        slopes.append({"regulariser": name, "slope": float(slope)})
    return slopes


def _median_curve(changes: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.unique(changes["T"])
    of_name = changes["regulariser"] == name
    medians = [np.median(changes["change"][of_name & (changes["T"] == length)]) for length in lengths]
    return lengths, np.array(medians)


def finding(tables: Mapping[str, Table]) -> str:
    """Slopes of the changes, and how often the mask raises the query path."""
    slopes = dict(zip(*tables["slopes"].values(), strict=True))
    raised = np.mean(tables["query"]["ratio"] > 1)
    return (
        f"relative change of J_ii against T (log-log slope, T >= {SLOPE_FROM}): "
        + ", ".join(f"{name}: {slope:+.2f}" for name, slope in slopes.items())
        + f"; at T = {WINDOW} the full mask raises the query path in {raised:.0%} of rows"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """Three panels: the own weight, the own block against T, the query path under the mask."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.1)
    left, middle, right = figure.subplots(1, 3)
    _draw_weights(left, tables["weights"])
    _draw_changes(middle, tables["changes"], dict(zip(*tables["slopes"].values(), strict=True)))
    _draw_query(right, tables["query"])
    figure.suptitle(
        r"Mask, penalty and score dropout move $J_{ii}$ by a relative 1/T; the mask can raise the query path",
        x=0.01,
        ha="left",
    )
    return figure


def _draw_weights(axes: Axes, weights: Mapping[str, np.ndarray]) -> None:
    names = {f"penalty {b:g}": f"penalty {b:g}" for b in PENALTIES} | {
        "mask": "mask",
        "score dropout": f"score dropout {SCORE_DROPOUT}, mean",
        "weight dropout": f"after softmax {WEIGHT_DROPOUT}, mean ± sd",
    }
    for name, label in names.items():
        here = weights["regulariser"] == name
        before, mean, deviation = (weights[column][here] for column in ("before", "mean", "deviation"))
        look = LOOKS[name]
        axes.plot(before, mean, color=look["color"], linestyle=look["linestyle"], label=label)
        if deviation.any():
            axes.fill_between(before, mean - deviation, mean + deviation, color=look["color"], alpha=0.15, linewidth=0)
    axes.set(xlabel=r"own weight $a_{ii}$ before", ylabel=r"own weight $a'_{ii}$ after", title="Own weight")
    _legend_below(axes)


def _draw_changes(axes: Axes, changes: Mapping[str, np.ndarray], slopes: Mapping[str, float]) -> None:
    for name, label in CHANGES.items():
        lengths, medians = _median_curve(changes, name)
        axes.plot(lengths, medians, **LOOKS[name], label=f"{label}: slope {slopes[name]:+.2f}")
    axes.set(xscale="log", yscale="log", xlabel="tokens T", title=r"Own block $J_{ii}$")
    axes.set_ylabel("norm of change / norm of block")
    axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
    _legend_below(axes)


def _draw_query(axes: Axes, query: Mapping[str, np.ndarray]) -> None:
    raised = np.mean(query["ratio"] > 1)
    rows = f"a row of a layer: {raised:.0%} raised"
    axes.plot(query["own"], query["ratio"], "o", color=style.BLUE, markersize=2, alpha=0.6, label=rows)
    own = np.linspace(0, query["own"].max(), 200)
    growth = r"token on its mean: $1/(1 - a_{ii})$"
    axes.plot(own, 1 / (1 - own), color=style.VERMILLION, linestyle="--", label=growth)
    axes.axhline(1, color=style.GREY, linewidth=0.8)
    axes.set(xlabel=r"own weight $a_{ii}$ before", ylabel="norm with mask / without")
    axes.set_title(f"Query path, T = {WINDOW}")
    _legend_below(axes)


def _legend_below(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(-0.3, -0.19), borderaxespad=0)
