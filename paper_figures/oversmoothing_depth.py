"""Sparse attention smooths less than dense, but a sink collapses first; with the residual a silent sink keeps (B7).

Relative dispersion ||P X||_F^2/||X||_F^2 after each layer of X -> r X + A X W_V^T, W_V = I/2, on T = 32 tokens of
N(m, I), d = 16, m = 1/2 in each entry. Weights are drawn anew for every layer, apart from the tokens: dense, the
softmax of N(0, 1) scores; k-sparse, the same softmax over a band of k = 4 keys, i to i + 3 counted round; diagonal and
sink, 0.9 on the token itself or on token 0, the rest as the dense one. Token 0 looks at itself only in the sink
pattern. The sink broadcasts where x_0 is a token like the others; it is silent, v_0 = 0, where x_0 = 0. Lines are
medians over draws, bands reach from the 10 % to the 90 % quantile.

Left r = 0. (The silent sink is left out: all its outputs are nearly 0.) Dashed: the bound of the dispersion by the
product of Dobrushin's coefficients tau(A), over the measured mean square of a token. The band's tau is 1 and the
diagonal's near 1, so their bounds say nothing and are not drawn. Right r = 1: here a layer's factor 1 + tau/2 is
above 1, and the bound says nothing for any pattern. Curves end where rounding errors begin to show.
"""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from torch import Tensor
from tqdm import tqdm

import numerics
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

TOKENS, WIDTH, DEPTH = 32, 16, 12
"""T, d and the number of layers."""

PER_ROW = 4
"""k."""

LEAK = 0.1
"""The weight that diagonal and sink leave to the rest."""

ETA = 0.5
"""W_V is this times the identity, so that an exact diagonal keeps the relative dispersion."""

FLOOR = 1e-12
"""A relative dispersion below is not drawn: float64 knows it to ten digits here, and to none at 1e-32."""

QUANTILES = (0.1, 0.5, 0.9)

PATTERNS = {
    "dense": "dense",
    "sparse": f"{PER_ROW}-sparse, balanced",
    "diagonal": f"diagonal, weight {1 - LEAK:g}",
    "broadcasting": f"broadcasting sink, weight {1 - LEAK:g}",
    "silent": rf"silent sink ($v_0 = 0$), weight {1 - LEAK:g}",
}
"""Pattern -> its name in the legend."""

BOUNDED = ("dense", "broadcasting")
"""Patterns whose coefficient is well below 1."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``draws`` (the curves), ``bands`` (quantiles over draws) and ``coefficients`` (tau of a layer)."""
    generator = settings.generator()
    draws, coefficients = [], []
    for draw in tqdm(range(8 if settings.quick else 60), desc="oversmoothing_depth", disable=None):
        tokens = 0.5 + torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64)
        for pattern, weights in layers(generator).items():
            coefficients.append({"draw": draw, "pattern": pattern, "tau": float(numerics.dobrushin(weights).mean())})
            for residual in (0, 1):
                curve = depth_curve(tokens, pattern, weights, residual)
                # What turns a dispersion into a relative one: the mean square of a token.
                bound = curve.dispersion_bound * (curve.relative / curve.dispersion)
                draws += [
                    {
                        "draw": draw,
                        "pattern": pattern,
                        "r": residual,
                        "layer": layer,
                        "relative": six_digits(value),
                        "bound": six_digits(most),
                    }
                    for layer, (value, most) in enumerate(zip(curve.relative.tolist(), bound.tolist(), strict=True))
                    if value >= FLOOR
                ]
    bands = _bands({name: np.asarray(column) for name, column in from_rows(draws).items()})
    return {"draws": from_rows(draws), "bands": from_rows(bands), "coefficients": from_rows(coefficients)}


def six_digits(value: float) -> float:
    """What is surely left of the ten digits at ``FLOOR``."""
    return float(f"{value:.6g}")


def layers(generator: torch.Generator) -> dict[str, Tensor]:
    """Random weights of every pattern, each (L, T, T), from one draw of scores."""
    scores = torch.randn(DEPTH, TOKENS, TOKENS, generator=generator, dtype=torch.float64)
    dense = numerics.masked_softmax(scores)
    diagonal, sink = numerics.balanced_weights(TOKENS, 1), numerics.sink_weights(TOKENS)
    leaky_sink = (1 - LEAK) * sink + LEAK * dense
    leaky_sink[:, 0] = sink[0]
    return {
        "dense": dense,
        "sparse": numerics.masked_softmax(scores, numerics.balanced_weights(TOKENS, PER_ROW) == 0),
        "diagonal": (1 - LEAK) * diagonal + LEAK * dense,
        "broadcasting": leaky_sink,
        "silent": leaky_sink,
    }


def depth_curve(tokens: Tensor, pattern: str, weights: Tensor, residual: int) -> numerics.DepthCurve:
    """The curve of one draw; a silent sink's x_0 is 0."""
    if pattern == "silent":
        tokens = tokens.clone()
        tokens[0] = 0
    w_v = ETA * torch.eye(WIDTH, dtype=torch.float64)
    return numerics.depth_curve(tokens, weights, w_v, residual=bool(residual))


def _bands(draws: Mapping[str, np.ndarray]) -> list[dict]:
    """Quantiles over draws, for every pattern, r and layer that all draws reach."""
    number = draws["draw"].max() + 1
    bands = []
    for pattern in PATTERNS:
        for residual in (0, 1):
            for layer in range(DEPTH + 1):
                here = (draws["pattern"] == pattern) & (draws["r"] == residual) & (draws["layer"] == layer)
                if here.sum() == number:
                    values = np.quantile(draws["relative"][here], QUANTILES).tolist()
                    bands.append(
                        {"pattern": pattern, "r": residual, "layer": layer}
                        | dict(zip(("low", "median", "high"), values, strict=True))
                        | {"bound": float(np.median(draws["bound"][here]))}
                    )
    return bands


def _curve(tables: Mapping[str, Table], pattern: str, residual: int) -> dict[str, np.ndarray]:
    bands = tables["bands"]
    here = (bands["pattern"] == pattern) & (bands["r"] == residual)
    return {name: column[here] for name, column in bands.items()}


def _kept(tables: Mapping[str, Table], pattern: str, residual: int) -> float:
    """The share of the first relative dispersion that the last layer drawn still has."""
    median = _curve(tables, pattern, residual)["median"]
    return median[-1] / median[0]


def finding(tables: Mapping[str, Table]) -> str:
    """What is left of the dispersion."""
    tau, last = tables["coefficients"], {}
    for pattern in BOUNDED:
        gone = _curve(tables, pattern, 0)["layer"][-1] + 1
        last[pattern] = f"layer {gone} (mean tau {tau['tau'][tau['pattern'] == pattern].mean():.2f})"
    left = ", ".join(f"{pattern} {100 * _kept(tables, pattern, 1):.2g} %" for pattern in PATTERNS)
    return (
        f"without the residual the relative dispersion is below {FLOOR:g} from {last['broadcasting']} on for the sink, "
        f"from {last['dense']} on for dense attention, and {PER_ROW}-sparse keeps "
        f"{100 * _kept(tables, 'sparse', 0):.0f} % over {DEPTH} layers; with the residual is left: {left}"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """Left without the residual, with the bound; right with it."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.6)
    panels = figure.subplots(1, 2)
    for axes, residual in zip(panels, (0, 1), strict=True):
        for place, (pattern, name) in enumerate(PATTERNS.items()):
            if pattern == "silent" and not residual:
                continue
            look, curve = style.series(place), _curve(tables, pattern, residual)
            axes.fill_between(curve["layer"], curve["low"], curve["high"], color=look["color"], alpha=0.2, linewidth=0)
            axes.plot(curve["layer"], curve["median"], **look | {"linestyle": "-"}, label=name)
            if pattern in BOUNDED and not residual:
                axes.plot(curve["layer"], curve["bound"], color=look["color"], linestyle="--")
        axes.set(yscale="log", xlabel="layers", xlim=(0, DEPTH))
        axes.xaxis.set_major_locator(MultipleLocator(2))
    panels[1].plot([], [], color=style.GREY, linestyle="--", label=r"bound by $\tau$ (dense, sink)")
    panels[0].set(ylim=(FLOOR, 10), title="without the residual (r = 0)")
    panels[0].set_ylabel(r"relative dispersion $\|PX\|_F^2 / \|X\|_F^2$ (no unit)")
    panels[1].set(title="with the residual (r = 1)")
    lines = {line.get_label(): line for axes in panels for line in axes.lines if line.get_label()[0] != "_"}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    figure.suptitle(
        f"A sink smooths more than dense attention, unless it is silent and there is a residual:\n"
        f"then it keeps {100 * _kept(tables, 'silent', 1):.0f} % of the relative dispersion over {DEPTH} layers, "
        f"dense attention {100 * _kept(tables, 'dense', 1):.2f} %",
        x=0.01,
        ha="left",
    )
    return figure
