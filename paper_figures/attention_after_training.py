"""Where attention looks after training, and how much of it stays on the diagonal (P1's Figure 1, A5).

The synthetic roads, T = 12 steps of 5 minutes, five variants of P1's forecaster (``trained_variants``), each trained
from several seeds. Maps: the mean weight a_ij of the first block, over every fourth test window, sensors, heads and
seeds, in evaluation mode, on one colour scale; a row is the token that looks, a column the one looked at; all blocks
are in the table. It is the first block's since there every row is read; of the last block only the last row reaches
the forecast.

Below: the diagonal's mass, the mean of a_ii over the rows that are read, with 95 % t-intervals over seeds; dashed:
1/T, a weight that is the same for all tokens.
"""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

from numerics import MeanInterval, mean_interval
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows
from paper_figures.trained_variants import NAMES, TrainedVariants, features_of, in_float64, rows_read, trained_variants

READS_DATA = False

STRIDE = 4
"""Every which test window is looked at: neighbours share eleven of their twelve steps."""

BATCH = 64
"""Windows at a time."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``matrices`` (mean over seeds) and ``diagonal`` (one mass a run and block)."""
    trained = trained_variants(Settings(quick=settings.quick, seed=settings.seed))
    matrices: dict[tuple[str, int], list[Tensor]] = {}
    diagonal = []
    for variant, seed in trained.runs:
        weights = mean_weights(trained, variant, seed)
        for block, matrix in enumerate(weights, start=1):
            matrices.setdefault((variant, block), []).append(matrix)
            rows = rows_read(block, len(weights), len(matrix))
            mass = float(matrix.diagonal()[rows].mean())
            diagonal.append({"variant": variant, "block": block, "rows": len(rows), "seed": seed, "mass": mass})
    entries = [
        {"variant": variant, "block": block, "i": i, "j": j, "weight": weight}
        for (variant, block), found in matrices.items()
        for i, row in enumerate(torch.stack(found).mean(0).tolist())
        for j, weight in enumerate(row)
    ]
    return {"matrices": from_rows(entries), "diagonal": from_rows(diagonal)}


def mean_weights(trained: TrainedVariants, variant: str, seed: int) -> list[Tensor]:
    """The mean attention matrix of each block, (T, T), over test windows, sensors and heads, in evaluation mode."""
    model, windows = in_float64(trained.runs[variant, seed].model), trained.test_windows
    sums: list[Tensor] = []
    chosen = np.arange(0, len(windows), STRIDE)
    for start in range(0, len(chosen), BATCH):
        features = features_of(windows, trained.splits, chosen[start : start + BATCH])
        # Mean over sensors and heads, sum over windows.
        found = [weights.mean((1, 2)).sum(0) for weights in model.attention_weights(features)]
        sums = [old + new for old, new in zip(sums, found, strict=True)] if sums else found
    return [total / len(chosen) for total in sums]


def _masses(diagonal: Table, block: int) -> dict[str, MeanInterval]:
    return {
        variant: mean_interval(diagonal["mass"][(diagonal["variant"] == variant) & (diagonal["block"] == block)])
        for variant in dict.fromkeys(diagonal["variant"].tolist())
    }


def _tokens(tables: Mapping[str, Table]) -> int:
    return int(tables["matrices"]["i"].max()) + 1


def _above_uniform(tables: Mapping[str, Table]) -> list[str]:
    """Variants whose first block keeps more than 1/T on its diagonal, the interval included."""
    uniform = 1 / _tokens(tables)
    return [NAMES[variant] for variant, mass in _masses(tables["diagonal"], 1).items() if mass.lower > uniform]


def finding(tables: Mapping[str, Table]) -> str:
    """The diagonal's mass of each variant in the first block, and where it is above a uniform weight."""
    masses = _masses(tables["diagonal"], 1)
    said = ", ".join(f"{NAMES[variant]} {mass.mean:.3f}" for variant, mass in masses.items())
    return (
        f"mean a_ii of the first block after training: {said}; uniform weights have {1 / _tokens(tables):.3f}; "
        f"above that with 95 % confidence over seeds: {', '.join(_above_uniform(tables)) or 'none'}"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """Five maps on one scale, and the masses below them."""
    matrices, tokens = tables["matrices"], _tokens(tables)
    masses = {block: _masses(tables["diagonal"], block) for block in np.unique(tables["diagonal"]["block"]).tolist()}
    first = matrices["block"] == 1
    scale = Normalize(0.0, float(matrices["weight"][first].max()))
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.7)
    grid = figure.add_gridspec(2, 1, height_ratios=(1.15, 1))
    above, below = (figure.add_subfigure(cell) for cell in grid)
    maps = above.subplots(1, len(NAMES), sharey=True)
    for axes, (variant, name) in zip(maps, NAMES.items(), strict=True):
        here = first & (matrices["variant"] == variant)
        axes.imshow(
            matrices["weight"][here].reshape(tokens, tokens),
            norm=scale,
            cmap=style.SEQUENTIAL,
            interpolation="nearest",
            extent=(0.5, tokens + 0.5, tokens + 0.5, 0.5),
        )
        axes.set_title(f"{name}\nmean $a_{{ii}}$ = {masses[1][variant].mean:.3f}")
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        axes.set_xticks((1, 4, 8, tokens))
        axes.set_yticks((1, 4, 8, tokens))
        axes.set_xlabel("token looked at j")
    maps[0].set_ylabel("looking token i")
    above.colorbar(
        ScalarMappable(scale, style.SEQUENTIAL), ax=maps, label="mean weight $a_{ij}$\n(block 1, no unit)", aspect=14
    )
    bars = below.subplots()
    places = np.arange(len(NAMES))
    for number, (block, found) in enumerate(masses.items()):
        rows = "last row" if block == max(masses) else "all rows"
        bars.errorbar(
            places + 0.16 * (number - (len(masses) - 1) / 2),
            [one.mean for one in found.values()],
            yerr=[one.half_width for one in found.values()],
            color=style.PALETTE[number],
            marker=style.MARKERS[number],
            linestyle="none",
            capsize=2.5,
            elinewidth=1.0,
            label=f"block {block}, {rows}",
        )
    bars.axhline(1 / tokens, color=style.GREY, linestyle="--", label=f"uniform, 1/T = {1 / tokens:.3f}")
    bars.set_xticks(places, list(NAMES.values()))
    bars.set_xlim(-0.5, len(NAMES) - 0.5)
    # Of few seeds an interval may be far wider than any weight: the means decide what is in sight.
    highest = max(float(one.mean) for found in masses.values() for one in found.values())
    bars.set_ylim(-0.15 / tokens, 1.5 * max(highest, 1 / tokens))
    bars.set_ylabel("mean $a_{ii}$ of rows read\n(no unit)")
    below.legend(loc="outside lower center", ncols=len(masses) + 1)
    figure.suptitle(
        f"After training the first block's diagonal holds more than its uniform share 1/T in "
        f"{len(_above_uniform(tables))} of {len(NAMES)} variants, at most "
        f"{max(one.mean for one in masses[1].values()) * tokens:.2f} times as much",
        x=0.01,
        ha="left",
    )
    return figure
