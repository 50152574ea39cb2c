"""What training does to the Jacobian of temporal attention: the diagonal's blocks beside the others (A1, A4, A5).

Five variants (``trained_variants``), before the first step of training and after it. With a data file the forecasters
are trained on its speeds and the windows are real; else on the synthetic roads. A layer's tokens are the hidden states
that reach it on test windows: embedded features with positions, all earlier blocks applied. Exact Frobenius norms of
every block J_ij in float64, in evaluation mode: a mask and a penalty act, dropout does not.

Top: the mean of ||J_ii|| and of ||J_ij||, j != i, over windows, sensors and the rows that reach the forecast (all of
the first block, the last of the last). Bottom: their ratio; dashed: 1, a diagonal like the rest. "With the residual":
the block is J_ii + I, as the layer with its residual has; it is not drawn where the layer has none. Hollow: before;
filled: after. 95 % t-intervals over seeds, of the logarithm: means are geometric.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor
from tqdm import tqdm

import numerics
from attention import TemporalAttention
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows
from paper_figures.trained_variants import (
    NAMES,
    TrainedVariants,
    attention_layers,
    features_of,
    hidden_states,
    in_float64,
    rows_read,
    trained_variants,
    untrained,
)

READS_DATA = True

TIMES = ("before", "after")

QUANTITIES = {
    "diagonal": "diagonal",
    "off_diagonal": "off the diagonal",
    "with_residual": "diagonal, with the residual",
}

RATIOS = ("diagonal", "with_residual")
"""What is divided by the mean norm off the diagonal."""


def compute(settings: Settings) -> dict[str, Table]:
    """Table ``norms``: the mean norms of each run, block and time."""
    trained = trained_variants(settings)
    features = window_features(trained, 4 if settings.quick else 16)
    source = "synthetic roads" if trained.roads is not None else "the data file"
    rows = []
    for (variant, seed), run in tqdm(trained.runs.items(), desc="sensitivity_after_training", disable=None):
        for time, model in (("before", untrained(run)), ("after", run.model)):
            layers = attention_layers(in_float64(model))
            states = hidden_states(model, features)
            for block, (layer, x) in enumerate(zip(layers, states, strict=True), start=1):
                norms = mean_norms(layer, x, rows_read(block, len(layers), x.shape[-2]))
                rows.append(
                    {"source": source, "variant": variant, "seed": seed, "time": time, "block": block}
                    | {"residual": int(layer.residual)}
                    | norms
                )
    return {"norms": from_rows(rows)}


def window_features(trained: TrainedVariants, number: int) -> Tensor:
    """Test windows at equal distances, (N, S, T, 4)."""
    windows = trained.test_windows
    chosen = np.unique(np.linspace(0, len(windows) - 1, number).round().astype(np.int64))
    return features_of(windows, trained.splits, chosen)


def mean_norms(layer: TemporalAttention, x: Tensor, rows: list[int]) -> dict[str, float]:
    """Means over tokens' sequences and rows of ||J_ii||, of ||J_ij||, j != i, and of ||J_ii + I||.

    Args:
        layer: in evaluation mode, float64.
        x: tokens, (..., T, d).
        rows: the rows i.
    """
    tokens = x.shape[-2]
    blocked = bias = None
    if layer.diagonal is not None:
        shape = torch.Size((tokens, tokens))
        blocked = layer.diagonal.blocked(shape, training=False, device=x.device)
        bias = layer.diagonal.bias(tokens, dtype=x.dtype, device=x.device)
    pattern = {"blocked": blocked, "bias": bias, "rows": rows}
    plain, with_residual = (
        numerics.sensitivity_map(x, **layer.projections(), **pattern, residual=residual) for residual in (False, True)
    )
    own = torch.zeros(len(rows), tokens, dtype=torch.bool)
    own[range(len(rows)), rows] = True
    return {
        "diagonal": float(plain[..., own].mean()),
        "off_diagonal": float(plain[..., ~own].mean()),
        "with_residual": float(with_residual[..., own].mean()),
    }


class _Interval(NamedTuple):
    """The geometric mean over seeds, and the ends of the interval."""

    mean: float
    lower: float
    upper: float


def _interval(norms: Table, variant: str, block: int, time: str, quantity: str, by: str | None = None) -> _Interval:
    """Over seeds, of a quantity or of its ratio to another."""
    here = (norms["variant"] == variant) & (norms["block"] == block) & (norms["time"] == time)
    values = norms[quantity][here]
    found = numerics.mean_interval(np.log(values if by is None else values / norms[by][here]))
    return _Interval(*(math.exp(end) for end in (found.mean, found.lower, found.upper)))


def _has_residual(norms: Table, variant: str) -> bool:
    return bool(norms["residual"][norms["variant"] == variant].all())


def finding(tables: Mapping[str, Table]) -> str:
    """The ratio of the first block in each variant, after training, without and with the residual."""
    norms = tables["norms"]
    alone = []
    for variant, name in NAMES.items():
        before, after = (_interval(norms, variant, 1, time, "diagonal", "off_diagonal").mean for time in TIMES)
        alone.append(f"{name} {before:.2g} -> {after:.2g}")
    return (
        f"||J_ii|| / ||J_ij|| of the first block before -> after training on {norms['source'][0]}, the residual left "
        f"out: {', '.join(alone)}; with the residual {_range(norms, 'after', 'with_residual')} after"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """Norms above, ratios below; a column a block."""
    norms = tables["norms"]
    blocks = np.unique(norms["block"]).tolist()
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.6)
    panels = figure.subplots(2, len(blocks), sharex=True, sharey="row")
    for column, block in enumerate(blocks):
        above, below = panels[:, column]
        for place, quantity in enumerate(QUANTITIES):
            _marks(above, norms, block, place, quantity, None)
            if quantity in RATIOS:
                _marks(below, norms, block, place, quantity, "off_diagonal")
        rows = "the last row, which is read" if block == blocks[-1] else "all rows"
        above.set(yscale="log", title=f"block {block}: {rows}")
        below.axhline(1.0, color=style.GREY, linestyle="--")
        below.set(yscale="log", xlim=(-0.5, len(NAMES) - 0.5))
        below.set_xticks(range(len(NAMES)), [_two_lines(name) for name in NAMES.values()])
        below.set_xlabel("variant")
    _in_sight(panels[0, 0], [norms[quantity] for quantity in QUANTITIES])
    _in_sight(panels[1, 0], [norms[quantity] / norms["off_diagonal"] for quantity in RATIOS])
    panels[0, 0].set_ylabel("mean Frobenius norm\nof a block (no unit)")
    panels[1, 0].set_ylabel("ratio to the mean off\nthe diagonal (no unit)")
    looks = [
        Line2D([], [], color=style.PALETTE[place], marker=style.MARKERS[place], linestyle="none", label=label)
        for place, label in enumerate(QUANTITIES.values())
    ]
    times = [
        Line2D([], [], color=style.GREY, marker="o", linestyle="none", label=f"{time} training", markerfacecolor=face)
        for time, face in (("before", "white"), ("after", style.GREY))
    ]
    figure.legend(handles=[*looks, *times], loc="outside lower center", ncols=5, columnspacing=1.2)
    figure.suptitle(_title(norms), x=0.01, ha="left")
    return figure


def _marks(axes: Axes, norms: Table, block: int, place: int, quantity: str, by: str | None) -> None:
    """One quantity of all variants: hollow before, filled after, with intervals."""
    color, marker = style.PALETTE[place], style.MARKERS[place]
    for number, (time, face) in enumerate(zip(TIMES, ("white", color), strict=True)):
        for spot, variant in enumerate(NAMES):
            if quantity == "with_residual" and not _has_residual(norms, variant):
                continue
            mean, lower, upper = _interval(norms, variant, block, time, quantity, by)
            axes.errorbar(
                spot + 0.24 * (place - 1) + 0.11 * (number - 0.5),
                mean,
                yerr=[[mean - lower], [upper - mean]],
                color=color,
                marker=marker,
                markerfacecolor=face,
                linestyle="none",
                capsize=1.5,
                elinewidth=0.9,
            )


def _in_sight(axes: Axes, values: list[np.ndarray]) -> None:
    """Limits from the runs: of few seeds an interval may span decades."""
    together = np.concatenate(values)
    axes.set_ylim(min(together.min(), 1.0) / 1.5, together.max() * 1.5)


def _two_lines(name: str) -> str:
    first, _, last = name.rpartition(" ")
    return f"{first}\n{last}"


def _range(norms: Table, time: str, quantity: str) -> str:
    """Over variants, of the first block's ratio."""
    found = [
        _interval(norms, variant, 1, time, quantity, "off_diagonal").mean
        for variant in NAMES
        if quantity != "with_residual" or _has_residual(norms, variant)
    ]
    return f"{min(found):.2g} to {max(found):.2g}"


def _title(norms: Table) -> str:
    ratios = {(time, quantity): _range(norms, time, quantity) for time in TIMES for quantity in RATIOS}
    return (
        f"First block's diagonal against the rest, {norms['source'][0]}: {ratios['before', 'diagonal']} times as large "
        f"before training, {ratios['after', 'diagonal']} times after;\nthe residual makes that "
        f"{ratios['before', 'with_residual']} times before and {ratios['after', 'with_residual']} times after"
    )
