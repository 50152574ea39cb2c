"""Which input a deep stack listens to: attention with and without a causal mask, and a causal convolution (A6).

First three panels: the share of every input j in the last output after L layers, T = 24, token 0 the oldest. Lines:
no content (equal scores; a uniform kernel of width 3), the closed forms of A6. Bands: 10 % to 90 % over random stacks
(``random_layer``, d = 16, fresh weights in each layer, scores of N(0, I) tokens; softmaxed N(0, 1) taps). Shares are
products of the layers' averaging matrices, each row divided by its sum: zero padding takes mass from a convolution,
and the column ``kept`` says how much is left before dividing.

Last panel: what the first token still lacks, 1 - its share, against L, with the two rates of A6: i 2^-L and t/L.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor
from tqdm import tqdm

import attention
import numerics
from paper_figures import style
from paper_figures.random_layer import random_layer
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

TOKENS = 24
"""T."""

KERNEL = 3
"""w, taps of the convolution."""

WIDTH = 16
"""d = d_k = d_v of the random attention layers."""

DEPTHS = (1, 4, 16, 64)
"""L of the first three panels."""

ALL_DEPTHS = tuple(2**power for power in range(11))
"""L of the last panel."""

QUANTILES = (0.1, 0.9)

MODELS = {
    "causal attention": "the first token takes all",
    "causal convolution": "only once it is deep enough",
    "bidirectional attention": f"nobody is favoured, 1/{TOKENS} each",
}
"""What is stacked, and what its panel shows."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``shares`` (closed form and band of every input) and ``lacking`` (1 - share of token 0)."""
    generator = settings.generator()
    draws = 8 if settings.quick else 60
    shares, lacking = [], []
    for model, layer in RANDOM_LAYERS.items():
        stacks = torch.stack(
            [random_stack(layer, generator) for _ in tqdm(range(draws), desc=f"first_token, {model}", disable=None)]
        )
        low, high = torch.quantile(stacks, torch.tensor(QUANTILES, dtype=stacks.dtype), dim=0)
        for place, depth in enumerate(DEPTHS):
            row, kept = last_row(model, depth)
            shares += [
                {
                    "model": model,
                    "L": depth,
                    "j": j,
                    "share": row[j].item(),
                    "low": low[place, j].item(),
                    "high": high[place, j].item(),
                    "kept": kept,
                }
                for j in range(TOKENS)
            ]
        lacking += [{"model": model, "L": depth, "lacking": first_lacks(model, depth)} for depth in ALL_DEPTHS]
    return {"shares": from_rows(shares), "lacking": from_rows(lacking)}


def last_row(model: str, depth: int) -> tuple[Tensor, float]:
    """Shares of the last output without content, (T,), and the mass that its row keeps before dividing."""
    if model == "causal attention":
        return numerics.causal_shares(TOKENS, depth)[-1], 1.0
    if model == "bidirectional attention":
        return numerics.bidirectional_shares(TOKENS, depth)[-1], 1.0
    lost = numerics.convolution_lost_mass(TOKENS, KERNEL, depth)[-1]
    return numerics.convolution_shares(TOKENS, KERNEL, depth, normalised=True)[-1], 1 - lost.item()


def first_lacks(model: str, depth: int) -> float:
    """1 - share of token 0 in the last output."""
    if model == "causal attention":
        # Not by subtraction: it is far smaller than a rounding of the share.
        return numerics.first_token_leak(TOKENS, depth).leak[-1].item()
    row, _ = last_row(model, depth)
    return row[1:].sum().item()


def random_attention(generator: torch.Generator, *, causal: bool) -> Tensor:
    """Weights of one random attention layer on N(0, I) tokens, (T, T)."""
    w_q, w_k, _ = random_layer(WIDTH, generator)
    x = torch.randn(TOKENS, WIDTH, generator=generator, dtype=torch.float64)
    blocked = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1) if causal else None
    return attention.attention_weights(x @ w_q.T, x @ w_k.T, blocked=blocked)


def random_convolution(generator: torch.Generator) -> Tensor:
    """A causal convolution with random positive taps that sum to one, as a matrix (T, T)."""
    taps = torch.randn(KERNEL, generator=generator, dtype=torch.float64).softmax(0)
    matrix = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
    for lag, tap in enumerate(taps):
        matrix.diagonal(-lag).fill_(tap)
    return matrix


RANDOM_LAYERS: dict[str, Callable[[torch.Generator], Tensor]] = {
    "causal attention": lambda generator: random_attention(generator, causal=True),
    "causal convolution": random_convolution,
    "bidirectional attention": lambda generator: random_attention(generator, causal=False),
}


def random_stack(layer: Callable[[torch.Generator], Tensor], generator: torch.Generator) -> Tensor:
    """Shares of the last output after each of ``DEPTHS`` fresh layers, (depths, T); rows sum to one."""
    row = torch.zeros(TOKENS, dtype=torch.float64)
    row[-1] = 1.0
    rows = []
    for _ in range(max(DEPTHS)):
        row = row @ layer(generator)
        row = row / row.sum()  # a constant of the row: dividing now or at the end is the same
        rows.append(row)
    return torch.stack([rows[depth - 1] for depth in DEPTHS])


def finding(tables: Mapping[str, Table]) -> str:
    """The first token's share at the greatest depth of the panels."""
    shares = tables["shares"]
    first = {
        model: share
        for model, depth, j, share in zip(shares["model"], shares["L"], shares["j"], shares["share"], strict=True)
        if depth == max(DEPTHS) and j == 0
    }
    return f"share of the first of {TOKENS} tokens after {max(DEPTHS)} layers: " + ", ".join(
        f"{100 * share:.0f} % ({model})" for model, share in first.items()
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """One panel a model, and one for what the first token lacks."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.8)
    panels = figure.subplots(2, 2).ravel()
    for axes, model in zip(panels, MODELS, strict=False):
        _draw_shares(axes, tables["shares"], model)
    panels[0].legend(loc="upper right", title="lines: no content\nbands: random stacks", title_fontsize=7)
    _draw_lacking(panels[3], tables["lacking"])
    figure.suptitle(
        "Deep causal attention listens to the first token alone; a causal convolution only comes near it, slowly",
        x=0.01,
        ha="left",
    )
    return figure


def _draw_shares(axes: Axes, shares: Mapping[str, np.ndarray], model: str) -> None:
    for place, depth in enumerate(DEPTHS):
        here = (shares["model"] == model) & (shares["L"] == depth)
        look = style.series(place)
        axes.fill_between(
            shares["j"][here], shares["low"][here], shares["high"][here], color=look["color"], alpha=0.25, linewidth=0
        )
        axes.plot(shares["j"][here], shares["share"][here], **look, label=f"L = {depth}")
    axes.set(ylim=(-0.03, 1.03), xlabel="input token j (0 is the oldest)", ylabel="share in the last output (no unit)")
    axes.set_title(f"{model}: {MODELS[model]}")


def _draw_lacking(axes: Axes, lacking: Mapping[str, np.ndarray]) -> None:
    for place, model in enumerate(MODELS):
        here = lacking["model"] == model
        axes.plot(lacking["L"][here], lacking["lacking"][here], **style.series(place), label=model)
    depths = np.geomspace(1, max(ALL_DEPTHS), 200)
    last = TOKENS - 1
    axes.plot(depths, last * 2.0**-depths, color=style.GREY, linestyle=":", label=r"rates of A6: $i\,2^{-L}$, $t/L$")
    axes.plot(depths, last / depths, color=style.GREY, linestyle=":")
    axes.set(xscale="log", yscale="log", xlim=(0.9, max(ALL_DEPTHS) * 1.1), ylim=(1e-4, 2))
    axes.set(xlabel="layers L", ylabel="1 - share of token 0 (no unit)")
    axes.set_title("what the first token still lacks")
    axes.legend(loc="lower right")
