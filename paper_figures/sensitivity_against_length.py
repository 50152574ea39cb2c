"""As T grows the diagonal block of the Jacobian stays, the mean off-diagonal one falls like 1/T (A1 to A4).

Drawn for one row i: the spectral norm of J_ii, without (r = 0) and with the residual (r = 1), and the
mean over j != i of ||J_ij||, which the residual does not touch. A layer is drawn once (``random_layer``,
d = 16), then N(0, I) tokens; token i stays and T counts how many tokens it sees, so that a layer's
limits are constants (A3). Lines are medians over layers, bands reach from the 10 % to the 90 % quantile.
Dashed: the bounds of A2. Dotted: the limits of A3.
"""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter
from torch import Tensor
from tqdm import tqdm

import numerics
from paper_figures import style
from paper_figures.random_layer import RandomLayer, random_layer
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

WIDTH = 16
"""d = d_k = d_v of every layer."""

SLOPE_FROM = 256
"""Slopes are fitted at this T and above, where the limit has set in."""

LENGTHS = tuple(2**power for power in range(2, 13))
"""T, from 4 to 4096."""

RESIDUALS = (0, 1)
"""r, one panel each."""

LIMIT_SAMPLE = 4096
"""Tokens over which the limit of the mean off-diagonal norm is averaged; others than the layer's own."""

QUANTILES = (0.1, 0.5, 0.9)

MEASURED = {"diagonal": r"$\|J_{ii}\|$", "off_diagonal": r"mean $\|J_{ij}\|$, $j \neq i$"}
"""Column of what is measured -> its symbol; its bound and its limit are in the columns of the same name."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``layers`` (all numbers), ``bands`` (quantiles over layers), ``slopes`` (of the medians)."""
    generator = settings.generator()
    law = numerics.Gaussian(torch.zeros(WIDTH, dtype=torch.float64), torch.eye(WIDTH, dtype=torch.float64))
    layers = []
    for number in tqdm(range(4 if settings.quick else 40), desc="sensitivity_against_length", disable=None):
        layer = random_layer(WIDTH, generator)
        tokens, others = law.sample(max(LENGTHS), generator), law.sample(LIMIT_SAMPLE, generator)
        limits = {residual: row_limits(law, tokens[:1], others, layer, residual) for residual in RESIDUALS}
        for length in LENGTHS:
            heads = numerics.attention_heads(tokens[:length], *layer)
            for residual in RESIDUALS:
                diagonal_limit, off_diagonal_limit = limits[residual]
                diagonal = numerics.diagonal_bound(heads, [0], residual=bool(residual))
                off_diagonal = numerics.off_diagonal_mean_bound(heads, [0])
                layers.append(
                    {
                        "layer": number,
                        "T": length,
                        "r": residual,
                        "diagonal": float(diagonal.left),
                        "diagonal_bound": float(diagonal.right),
                        "diagonal_limit": diagonal_limit,
                        "off_diagonal": float(off_diagonal.left),
                        "off_diagonal_bound": float(off_diagonal.right),
                        "off_diagonal_limit": off_diagonal_limit / length,
                    }
                )
    bands = from_rows(_bands(from_rows(layers)))
    return {"layers": from_rows(layers), "bands": bands, "slopes": from_rows(_slopes(bands))}


def row_limits(
    law: numerics.TokenLaw, token: Tensor, others: Tensor, layer: RandomLayer, residual: int
) -> tuple[float, float]:
    """The limits of ||J_ii|| and of T times the mean of ||J_ij||, the second as a mean over sampled tokens.

    Args:
        law: of the other tokens.
        token: x_i, (1, d).
        others: the sample, (n, d).
        layer: the weights.
        residual: r.
    """
    diagonal = numerics.limit_diagonal_block(law, token, *layer, residual=bool(residual))
    off_diagonal = numerics.limit_off_diagonal_blocks(law, others, token, *layer)
    return (
        float(torch.linalg.matrix_norm(diagonal, ord=2)),
        float(torch.linalg.matrix_norm(off_diagonal, ord=2).mean()),
    )


def _bands(layers: Table) -> list[dict]:
    """Quantiles over layers, for every r, T and quantity."""
    tokens, residuals = np.asarray(layers["T"]), np.asarray(layers["r"])
    quantities = [name for name in layers if name not in ("layer", "T", "r")]
    return [
        {"r": residual, "T": length, "quantity": quantity}
        | dict(zip(("low", "median", "high"), np.quantile(values, QUANTILES).tolist(), strict=True))
        for quantity in quantities
        for residual in RESIDUALS
        for length in LENGTHS
        for values in [np.asarray(layers[quantity])[(tokens == length) & (residuals == residual)]]
    ]


def _slopes(bands: Table) -> list[dict]:
    """Least-squares slope of log median against log T, from ``SLOPE_FROM`` on."""
    slopes = []
    for quantity in MEASURED:
        for residual in RESIDUALS:
            curve = _curve({name: np.asarray(column) for name, column in bands.items()}, quantity, residual)
            late = curve["T"] >= SLOPE_FROM
            slope = np.polyfit(np.log(curve["T"][late]), np.log(curve["median"][late]), 1)[0]
            slopes.append({"quantity": quantity, "r": residual, "slope": float(slope)})
    return slopes


def _curve(bands: Mapping[str, np.ndarray], quantity: str, residual: int) -> dict[str, np.ndarray]:
    wanted = (bands["quantity"] == quantity) & (bands["r"] == residual)
    return {name: column[wanted] for name, column in bands.items()}


def finding(tables: Mapping[str, Table]) -> str:
    """The slopes of the medians."""
    slope = {(quantity, r): value for quantity, r, value in zip(*tables["slopes"].values(), strict=True)}
    return (
        f"slopes against T (log-log, T >= {SLOPE_FROM}): mean off-diagonal {slope['off_diagonal', 0]:+.2f}, "
        f"diagonal {slope['diagonal', 0]:+.2f} without and {slope['diagonal', 1]:+.2f} with the residual"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """One panel for each r; measured band and median, bound and limit of both quantities."""
    slopes = {(quantity, r): value for quantity, r, value in zip(*tables["slopes"].values(), strict=True)}
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.0)
    panels = figure.subplots(1, len(RESIDUALS), sharey=True)
    for axes, residual in zip(panels, RESIDUALS, strict=True):
        for place, (quantity, name) in enumerate(MEASURED.items()):
            look = style.series(place)
            measured = _curve(tables["bands"], quantity, residual)
            axes.fill_between(
                measured["T"], measured["low"], measured["high"], color=look["color"], alpha=0.25, linewidth=0
            )
            label = f"{name}: slope {slopes[quantity, residual]:+.2f}"
            axes.plot(measured["T"], measured["median"], **look | {"linestyle": "-"}, label=label)
            bound = _curve(tables["bands"], f"{quantity}_bound", residual)
            axes.plot(bound["T"], bound["median"], color=look["color"], linestyle="--")
            limit = _curve(tables["bands"], f"{quantity}_limit", residual)
            axes.plot(limit["T"], limit["median"], color=style.BLACK, linestyle=":", zorder=3)
        axes.set(xscale="log", yscale="log", xlabel=f"tokens T (slopes fitted for T ≥ {SLOPE_FROM})")
        axes.set_title("with the residual (r = 1)" if residual else "without the residual (r = 0)")
        axes.xaxis.set_major_locator(LogLocator(base=4, numticks=20))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_locator(NullLocator())
    panels[0].set_ylabel("spectral norm of a block (no unit)")
    for line, colour, name in (
        ("-", style.GREY, "measured: median, 10 % to 90 %"),
        ("--", style.GREY, "bound (A2)"),
        (":", style.BLACK, "limit (A3)"),
    ):
        panels[0].plot([], [], color=colour, linestyle=line, label=name)
    for axes in panels:
        axes.legend(loc="lower left")
    figure.suptitle(
        "The diagonal block stays as T grows, the mean off-diagonal block falls like 1/T, residual or not",
        x=0.01,
        ha="left",
    )
    return figure
