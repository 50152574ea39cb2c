"""A head is as silent as it looks at the sink, unless its values can cancel (B5).

Left and middle: ||o_i|| over max ||v_j|| against 1 - a_i0, for every row of many random heads on the same nine
tokens, v_0 = 0, full attention. Scores are those of a random layer times a random factor of 0.1 to 10; a bias of
-2 to 10 raises the sink's. Left, 0 is outside the hull of the values (the tokens share a direction): the outputs
lie between two lines of slope one. Middle, the same values less their mean: the lower line is gone. The curve is
the smallest case, x = (0, 1, -1), W_V = 1, score b x_i x_j: as b goes to 0 the output vanishes with two thirds of
the weight off the sink.

Right: heads on (x_0, x) and on (x_0, N copies of y, x). eps is the longer of the last row's two outputs; the
weight on the copies stays below 2 eps/(||v_y|| + eps), and some heads reach it. All axes are ratios or weights.
"""

from collections.abc import Mapping
from math import log

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

import numerics
from paper_figures import style
from paper_figures.random_layer import random_layer
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

WIDTH = 4
"""d = d_k = d_v of the random heads."""

OTHERS = 8
"""Tokens besides the sink: more than d, so that 0 can be among their values."""

COPIES = (1, 4, 16, 64)
"""N."""

LEAST = 1e-3
"""1 - a_i0 is drawn from here on."""

DEEPEST = 1e-4
"""Outputs are drawn from here on."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``rows`` and ``sides`` (the slopes of the two lines), ``cancelling``, ``copies`` and ``bound``."""
    generator = settings.generator()
    number = 60 if settings.quick else 150
    tokens_of, w_v = tokens_and_values(generator)
    rows, sides = [], []
    for case, tokens in tokens_of.items():
        for layer in tqdm(range(number), desc=f"hard_switch, {case}", disable=None):
            switch = random_switch(tokens, w_v, generator)
            largest = switch.largest_value
            rows += [
                {"case": case, "layer": layer, "i": i, "open": away, "output": _kept(output)}
                for i, (away, output) in enumerate(
                    zip(switch.open.tolist(), (switch.output / largest).tolist(), strict=True)
                )
                if i > 0 and away >= LEAST
            ]
            if layer == 0:
                sides.append({"case": case, "lower": _kept(switch.hull_distance[0] / largest[0]), "upper": 1.0})
    cancelling = []
    for power in np.linspace(-5, 1, 61).tolist():
        switch = cancelling_switch(10**power)
        cancelling.append({"score": 10**power, "open": switch.open[1].item(), "output": _kept(switch.output[1].item())})
    still = cancelling_switch(0.0)
    cancelling.append({"score": 0.0, "open": still.open[1].item(), "output": still.output[1].item()})
    return {
        "rows": from_rows(rows),
        "sides": from_rows(sides),
        "cancelling": from_rows(cancelling),
        "copies": from_rows(_copies(4 * number, generator)),
        "bound": from_rows(
            [
                {"silence": silence, "weight": numerics.silence_bound(silence, 1.0)}
                for silence in np.logspace(-3, 0, 61).tolist()
            ]
        ),
    }


def _kept(value: float | Tensor) -> float:
    """Eight digits: what is left of a sum that nearly cancels."""
    return float(f"{float(value):.8g}")


def tokens_and_values(generator: torch.Generator) -> tuple[dict[str, Tensor], Tensor]:
    """Tokens (T, d) of each case, x_0 = 0 among them, and one W_V (d, d)."""
    tokens = torch.randn(1 + OTHERS, WIDTH, generator=generator, dtype=torch.float64)
    tokens[:, 0] = 1 + tokens[:, 0].abs()
    centred = tokens - tokens[1:].mean(0)
    tokens[0] = centred[0] = 0
    return {"outside": tokens, "inside": centred}, random_layer(WIDTH, generator).w_v


def random_switch(tokens: Tensor, w_v: Tensor, generator: torch.Generator) -> numerics.HardSwitch:
    """The sandwich of one random head: random scores, and a random lead of the sink's."""
    layer = random_layer(WIDTH, generator)
    factor, lead = torch.rand(2, generator=generator, dtype=torch.float64)
    bias = torch.zeros(len(tokens), dtype=torch.float64)
    bias[0] = -2 + 12 * lead
    heads = numerics.attention_heads(tokens, 10 ** (2 * factor - 1) * layer.w_q, layer.w_k, w_v, bias=bias)
    return numerics.hard_switch(heads.weights[0], heads.values[0])


def cancelling_switch(score: float) -> numerics.HardSwitch:
    """x = (0, 1, -1), W_V = 1, scores ``score`` x_i x_j."""
    one = torch.ones(1, 1, dtype=torch.float64)
    tokens = torch.tensor([[0.0], [1.0], [-1.0]], dtype=torch.float64)
    heads = numerics.attention_heads(tokens, score * one, one, one)
    return numerics.hard_switch(heads.weights[0], heads.values[0])


def _copies(number: int, generator: torch.Generator) -> list[dict]:
    """Random heads of the three tokens x_0, x, y; and heads that reach the bound, with v_0 = v_x opposite to v_y."""
    found = []
    for place in tqdm(range(number), desc="hard_switch, copies", disable=None):
        scores = 4 * torch.randn(3, generator=generator, dtype=torch.float64)
        values = torch.randn(3, WIDTH, generator=generator, dtype=torch.float64)
        lengths = torch.ones(3, dtype=torch.float64)
        lengths[:2] = 10 ** (-3 * torch.rand(2, generator=generator, dtype=torch.float64))
        values *= (lengths / values.norm(dim=-1)).unsqueeze(-1)
        found.append(_on_copies("random", scores, values, COPIES[place % len(COPIES)]))
    for place, power in enumerate(np.linspace(-2.75, -0.25, 6).tolist()):
        eps, copies = 10**power, COPIES[place % len(COPIES)]
        share = numerics.silence_bound(eps, 1.0)
        scores = torch.tensor([0.0, 0.0, log(2 * share / (1 - share) / copies)], dtype=torch.float64)
        found.append(_on_copies("opposite", scores, torch.tensor([[-eps], [-eps], [1.0]], dtype=torch.float64), copies))
    return found


def _on_copies(head: str, scores: Tensor, values: Tensor, number: int) -> dict:
    """The last row of (x_0, x) and of (x_0, ``number`` copies of y, x), for orthonormal tokens x_0, x, y.

    Args:
        head: its kind.
        scores: of x with x_0, x and y, (3,).
        values: of x_0, x and y, (3, d_v); ||v_y|| = 1.
        number: N.
    """
    tokens = torch.eye(3, dtype=torch.float64)
    w_k = torch.outer(tokens[1], scores)
    layer = (3**0.5 * tokens, w_k, values.T.contiguous())
    short = numerics.attention_heads(tokens[[0, 1]], *layer)
    long = numerics.attention_heads(tokens[[0, *[2] * number, 1]], *layer)
    silence = max(heads.outputs[0, -1].norm().item() for heads in (short, long))
    weight = long.weights[0, -1, 1:-1].sum().item()
    bound = numerics.silence_bound(silence, 1.0)
    return {"head": head, "N": number, "silence": _kept(silence), "weight": weight, "bound": bound}


def _tightest(tables: Mapping[str, Table], case: str) -> tuple[float, float]:
    """The least and the largest ||o_i||/(max ||v_j|| (1 - a_i0)) of a case."""
    rows = tables["rows"]
    here = rows["case"] == case
    ratios = rows["output"][here] / rows["open"][here]
    return ratios.min(), ratios.max()


def _lower(tables: Mapping[str, Table], case: str) -> float:
    sides = tables["sides"]
    return sides["lower"][sides["case"] == case].item()


def finding(tables: Mapping[str, Table]) -> str:
    """Where the outputs lie, the counterexample, and the copies."""
    low, high = _tightest(tables, "outside")
    rows, copies, smallest = tables["rows"], tables["copies"], tables["cancelling"]
    still = smallest["score"] == 0
    return (
        f"0 outside the hull of the values: ||o_i|| is {low:.2f} to {high:.2f} times max ||v_j|| (1 - a_i0) in "
        f"{(rows['case'] == 'outside').sum()} rows, between {_lower(tables, 'outside'):.2f} and 1; 0 in the hull: down "
        f"to {_tightest(tables, 'inside')[0]:.4f} times, and 0 at 1 - a_i0 = {smallest['open'][still].item():.3f} for "
        f"x = (0, 1, -1); the weight on copies is at most {(copies['weight'] / copies['bound']).max():.2f} of its bound"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """The two cases, and the copies."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.1)
    outside, inside, copies = figure.subplots(1, 3)
    for axes, case in ((outside, "outside"), (inside, "inside")):
        _sandwich(axes, tables, case)
    outside.set_title("0 outside the hull of the values")
    outside.set_ylabel(r"$\|o_i\| \,/\, \max \|v_j\|$ (no unit)")
    inside.set_title("0 in the hull: values can cancel")
    smallest, colour = tables["cancelling"], style.ORANGE
    still = smallest["score"] == 0
    inside.plot(smallest["open"][~still], smallest["output"][~still], color=colour, linewidth=2, label="x = (0, 1, −1)")
    end = smallest["open"][still].item(), DEEPEST
    inside.plot(*end, color=colour, marker="v", markersize=8, linestyle="none", clip_on=False, zorder=3)
    words = rf"$o_i = 0$ at {end[0]:.2f}"
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    inside.annotate(words, end, (-8, 6), textcoords="offset points", ha="right", fontsize=7, bbox=box)
    for axes in (outside, inside):
        axes.legend(loc="upper left", handlelength=1.5)

    measured, bound = tables["copies"], tables["bound"]
    copies.plot(bound["silence"], bound["weight"], color=style.VERMILLION, label=r"$2\epsilon/(\|v_y\| + \epsilon)$")
    for head, look, name in (("random", _dots(), "random heads"), ("opposite", _rings(), r"$v_0 = v_x = -\epsilon$")):
        here = measured["head"] == head
        copies.plot(measured["silence"][here], measured["weight"][here], **look, label=name)
    copies.set(
        xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-4, 4), xlabel=r"silence $\epsilon / \|v_y\|$ (no unit)"
    )
    copies.set(title="silent with and without y", ylabel="weight on the copies of y (no unit)")
    copies.legend(loc="upper left", handlelength=1.5)
    figure.suptitle(
        "A head is silent just as far as it looks at the sink, to within a factor "
        f"{1 / _lower(tables, 'outside'):.1f} here; values that cancel break this",
        x=0.01,
        ha="left",
    )
    return figure


def _dots() -> dict:
    return {"color": style.BLUE, "marker": "o", "markersize": 1.8, "markeredgewidth": 0, "linestyle": "none"}


def _rings() -> dict:
    return {"color": style.BLACK, "marker": "o", "markersize": 5, "markerfacecolor": "none", "linestyle": "none"}


def _sandwich(axes: Axes, tables: Mapping[str, Table], case: str) -> None:
    """Rows of one case between their two lines."""
    rows, ends = tables["rows"], np.array([LEAST, 1.0])
    here = rows["case"] == case
    lower = _lower(tables, case)
    axes.plot(ends, ends, color=style.VERMILLION, linestyle="-", label=r"$\max \|v_j\| (1 - a_{i0})$")
    if lower > 0:
        axes.plot(ends, lower * ends, color=style.GREEN, linestyle="--", label=r"$\nu\, (1 - a_{i0})$")
    axes.plot(rows["open"][here], rows["output"][here], **_dots(), label=f"{here.sum()} rows")
    axes.set(xscale="log", yscale="log", xlim=(LEAST, 1), ylim=(DEEPEST, 4), xlabel=r"$1 - a_{i0}$ (no unit)")
