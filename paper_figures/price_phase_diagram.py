"""Who is cheaper, where: the ratio of the prices of sink and diagonal, with the exact line where they are level (B4).

Drawn for the family of B4, x_0 a key of both patterns, one column for each norm. Above: over G = g_q g_k and the number
n of tokens beside the sink; G < 1/n does not occur (grey). Below: over the shared direction t and the sink's distance z
for n = 8. Colour is sink/diagonal, from 1/8 (sink cheaper) to 8 (diagonal cheaper), logarithmic. Black lines are the
thresholds G = 1/n, sqrt(n+1)/n and 1; below they read n t^2 z^2 + t^2 + z^2 = 1 and (t^2 + 1/n)(z^2 + 1/n) = 1; the
nuclear one is the point t = z = 0. The cross marks orthonormal tokens.
"""

from collections.abc import Mapping
from math import nan, sqrt

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

import numerics
from numerics.price_program import Norm
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

NORMS: dict[Norm, str] = {"nuclear": "nuclear (weight decay)", "fro": "Frobenius", "spectral": "spectral"}

TOKENS = 8
"""n of the lower row."""

G_RANGE, N_RANGE, KNOB_RANGE = (0.02, 10.0), (2, 60), (0.0, 1.6)

LARGEST_RATIO = 8.0

DIVERGING = "RdBu_r"
"""Blue: the sink is cheaper; red: the diagonal is."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``by_tokens`` (G, n, norm, ratio), ``by_knobs`` (t, z, norm, ratio), and ``lines``, the thresholds."""
    size = 21 if settings.quick else 41
    counts = np.unique(np.geomspace(*N_RANGE, size).round().astype(int)).tolist()
    by_tokens, by_knobs = [], []
    for norm in NORMS:
        for n in counts:
            for G in np.geomspace(*G_RANGE, 2 * size - 1).tolist():
                ratio = numerics.family_prices(n, G, norm=norm).ratio if n * G >= 1 else nan
                by_tokens.append({"norm": norm, "n": n, "G": G, "ratio": ratio})
        for z in np.linspace(*KNOB_RANGE, size).tolist():
            for t in np.linspace(*KNOB_RANGE, size).tolist():
                ratio = numerics.family_prices(TOKENS, numerics.SinkFamily(TOKENS, t, z).G, norm=norm).ratio
                by_knobs.append({"norm": norm, "z": z, "t": t, "ratio": ratio})
    return {
        "by_tokens": from_rows(by_tokens),
        "by_knobs": from_rows(by_knobs),
        "lines": from_rows([row for norm in NORMS for row in _lines(norm, counts)]),
    }


def _lines(norm: Norm, counts: list[int]) -> list[dict]:
    """The thresholds: over n as G, and over t as z (with n = TOKENS)."""
    rows = [{"norm": norm, "panel": "tokens", "x": numerics.sink_threshold(n, norm=norm), "y": n} for n in counts]
    level = numerics.sink_threshold(TOKENS, norm=norm) ** 2
    for t in np.linspace(*KNOB_RANGE, 401).tolist():
        z_square = level / (t**2 + 1 / TOKENS) - 1 / TOKENS
        # At the end of the line rounding may leave a hair below 0.
        if z_square >= -1e-12:
            rows.append({"norm": norm, "panel": "knobs", "x": t, "y": sqrt(max(z_square, 0.0))})
    return rows


def finding(tables: Mapping[str, Table]) -> str:
    """The share of the (t, z) square in which the sink is cheaper, in each norm."""
    table = tables["by_knobs"]
    shares = []
    for norm in NORMS:
        ratios = np.asarray(table["ratio"])[np.asarray(table["norm"]) == norm]
        shares.append(f"{100 * (ratios < 1 - 1e-9).mean():.0f} % ({norm})")
    return f"n = {TOKENS}, t and z up to {KNOB_RANGE[1]}: the sink is cheaper on {', '.join(shares)} of the square"


def draw(tables: Mapping[str, Table]) -> Figure:
    """Two rows of maps, one column a norm."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.5)
    panels = figure.subplots(2, len(NORMS), sharey="row")
    scale = LogNorm(1 / LARGEST_RATIO, LARGEST_RATIO)
    for column, (norm, name) in enumerate(NORMS.items()):
        upper, lower = panels[:, column]
        _map(upper, tables["by_tokens"], norm, "G", "n", scale)
        _map(lower, tables["by_knobs"], norm, "t", "z", scale)
        for axes, panel in ((upper, "tokens"), (lower, "knobs")):
            lines = tables["lines"]
            wanted = (np.asarray(lines["norm"]) == norm) & (np.asarray(lines["panel"]) == panel)
            x, y = np.asarray(lines["x"])[wanted], np.asarray(lines["y"])[wanted]
            axes.plot(x, y, color=style.BLACK, marker="o" if len(x) == 1 else None, clip_on=len(x) > 1, zorder=4)
        upper.set(xscale="log", yscale="log", xlabel=r"$G = g_q g_k$ (no unit)", title=name)
        upper.set_facecolor("#C8C8C8")
        upper.set(xlim=G_RANGE, ylim=N_RANGE)
        upper.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        upper.yaxis.set_major_formatter(ScalarFormatter())
        upper.yaxis.set_minor_locator(NullLocator())
        upper.text(0.025, 2.3, "none: G < 1/n", fontsize=7)
        lower.plot(0.0, 1.0, marker="X", color=style.BLACK, mfc="white", markersize=6, clip_on=False, zorder=5)
        lower.set(xlabel="shared direction t", xlim=KNOB_RANGE, ylim=KNOB_RANGE)
    panels[0, 0].set_ylabel("tokens n beside the sink")
    panels[1, 0].set_ylabel(f"distance z of the sink (n = {TOKENS})")
    bar = figure.colorbar(
        ScalarMappable(scale, DIVERGING),
        ax=panels,
        aspect=40,
        extend="both",
        label="price of the sink / price of the diagonal",
    )
    ticks = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
    bar.set_ticks(ticks, labels=["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.ax.minorticks_off()
    figure.suptitle(
        "Whether the sink is the cheaper pattern (blue) depends on the norm; black: exact line, ×: orthonormal tokens",
        x=0.01,
        ha="left",
    )
    return figure


def _map(axes, table: Table, norm: str, x: str, y: str, scale: LogNorm) -> None:
    wanted = np.asarray(table["norm"]) == norm
    columns, rows = np.unique(np.asarray(table[x])[wanted]), np.unique(np.asarray(table[y])[wanted])
    ratios = np.asarray(table["ratio"], dtype=float)[wanted].reshape(len(rows), len(columns))
    axes.pcolormesh(
        columns, rows, np.ma.masked_invalid(ratios), norm=scale, cmap=DIVERGING, shading="nearest", rasterized=True
    )
    axes.grid(visible=False)
