"""Where the Jacobian is large: the norm of every block J_ij, on random and on real tokens (A1, A2).

One random layer (``random_layer``, d = 16) without residual, full attention, spectral norms. A row of
the map is one output i, a column one input j. "share" is the mean over i of ||J_ii|| / sum_j ||J_ij||;
it is 1/T where the diagonal is like the rest.

Random tokens are N(0, I). Real tokens are windows of METR-LA: one sensor's speeds, 5 minutes a step,
standardised by the file's mean and standard deviation and embedded by one seeded linear layer, x_j = w
s_j + b with N(0, 1/2) entries (speed is all that a token knows: no position code). Of the windows drawn
at random the one whose last hour varies most is mapped, at the three T its last 12, 36 and 96 steps; the
table has the shares of all windows, the panels their median. What is to be seen: the diagonal's own part
is the query path W_V Cov_i(x, x) B^T, so it stands out only as far as the tokens vary. A calm road has
no diagonal but the residual's.

Without a data file the real row is left out.
"""

from collections.abc import Mapping

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor
from tqdm import tqdm

import numerics
from attention.series import observed
from paper_figures import style
from paper_figures.random_layer import random_layer
from paper_figures.settings import DataError, Settings
from paper_figures.tables import Table, from_rows

READS_DATA = True

LENGTHS = (12, 36, 96)
"""T: an hour, three hours and eight hours of METR-LA."""

WIDTH = 16
"""d = d_k = d_v."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``blocks``, the norms of the mapped windows, and ``shares``, the diagonal's in every window."""
    generator = settings.generator()
    layer = random_layer(WIDTH, generator)
    number = 3 if settings.quick else 48
    samples = [("random", torch.randn(number, max(LENGTHS), WIDTH, generator=generator, dtype=torch.float64))]
    speeds = settings.speeds()
    if speeds is not None:
        samples.append(("METR-LA", metr_la_tokens(speeds, number, generator)))

    blocks, shares = [], []
    for source, windows in samples:
        for number, window in enumerate(tqdm(windows, desc=f"sensitivity_maps, {source}", disable=None)):
            for length in LENGTHS:
                x = window[-length:]
                plain = numerics.sensitivity_map(x, *layer, norm="spectral")
                residual = numerics.sensitivity_map(x, *layer, norm="spectral", residual=True)
                shares.append(
                    {
                        "tokens": source,
                        "window": number,
                        "T": length,
                        "share": diagonal_share(plain),
                        "share_with_residual": diagonal_share(residual),
                    }
                )
                if number == 0:
                    blocks += [
                        {"tokens": source, "T": length, "i": i, "j": j, "norm": norm}
                        for i, row in enumerate(plain.tolist())
                        for j, norm in enumerate(row)
                    ]
    return {"blocks": from_rows(blocks), "shares": from_rows(shares)}


def diagonal_share(norms: Tensor) -> float:
    """Mean over rows of ||J_ii|| / sum_j ||J_ij|| of a (T, T) map: 0 to 1, and 1/T where all are equal."""
    return float((norms.diagonal() / norms.sum(-1)).mean())


def metr_la_tokens(speeds: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Seeded windows of one sensor each, embedded; the one whose last hour varies most comes first.

    Args:
        speeds: (steps, sensors), mph.
        number: of windows.
        generator: the seeded source.

    Returns:
        (number, 96, d).

    Raises:
        DataError: fewer steps than a window, or a missing reading in every window.
    """
    longest = max(LENGTHS)
    if len(speeds) < longest:
        raise DataError(f"the data file must have at least {longest} steps, got {len(speeds)}")
    seen = torch.from_numpy(observed(speeds.numpy()))
    # A missing reading is stored as 0; as a token it would be a standstill that never was.
    whole = seen.unfold(0, longest, 1).all(-1).nonzero()
    if len(whole) == 0:
        raise DataError(f"the data file has no {longest} steps of one sensor without a missing reading")
    standardised = (speeds - speeds[seen].mean()) / speeds[seen].std()
    starts, sensors = whole[torch.randint(len(whole), (number,), generator=generator)].T
    drawn = standardised.unfold(0, longest, 1)[starts, sensors]
    drawn = drawn[drawn[:, -min(LENGTHS) :].std(-1).argsort(descending=True, stable=True)]
    weight, bias = torch.randn(2, WIDTH, generator=generator, dtype=torch.float64) / 2**0.5
    return drawn.unsqueeze(-1) * weight + bias


def finding(tables: Mapping[str, Table]) -> str:
    """The diagonal's median share at each T."""
    at = f"at T = {', '.join(map(str, LENGTHS))}"
    return "; ".join(
        f"{source} tokens: the diagonal holds {_percent(shares, 'share')} of a row {at}"
        f" (with the residual {_percent(shares, 'share_with_residual')})"
        for source, shares in _by_source(tables["shares"]).items()
    )


def _by_source(table: Table) -> dict[str, dict[str, np.ndarray]]:
    """The rows of each kind of token, in order of appearance."""
    return {
        source: {name: column[table["tokens"] == source] for name, column in table.items()}
        for source in dict.fromkeys(table["tokens"].tolist())
    }


def _percent(shares: Mapping[str, np.ndarray], column: str) -> str:
    return ", ".join(f"{100 * np.median(shares[column][shares['T'] == length]):.0f} %" for length in LENGTHS)


def draw(tables: Mapping[str, Table]) -> Figure:
    """A row of maps for each kind of token, one colour scale for all."""
    blocks, shares = _by_source(tables["blocks"]), _by_source(tables["shares"])
    largest = tables["blocks"]["norm"].max()
    scale = LogNorm(vmin=largest * 1e-3, vmax=largest)
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=0.45 + 2.35 * len(blocks))
    panels = figure.subplots(len(blocks), len(LENGTHS), squeeze=False)
    for row, source in zip(panels, blocks, strict=True):
        for axes, length in zip(row, LENGTHS, strict=True):
            here = blocks[source]["T"] == length
            norms = blocks[source]["norm"][here].reshape(length, length)
            axes.imshow(norms, norm=scale, cmap=style.SEQUENTIAL, interpolation="nearest")
            share = shares[source]["share"][shares[source]["T"] == length]
            axes.set_title(
                f"T = {length}: share {100 * share[0]:.0f} % (1/T = {100 / length:.0f} %)\n"
                f"median of {len(share)} draws: {100 * np.median(share):.0f} %"
            )
            axes.grid(visible=False)
            axes.spines[:].set_visible(False)
            axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            axes.set_xlabel("input token j")
        row[0].set_ylabel(f"{source} tokens\noutput token i")
    figure.colorbar(
        ScalarMappable(scale, style.SEQUENTIAL),
        ax=panels,
        extend="min",
        label=r"spectral norm of $J_{ij}$ (no unit)",
        aspect=12 * len(blocks),
    )
    message = (
        "Without the residual the diagonal stands out as far as the tokens vary: the query path is their covariance"
    )
    if "METR-LA" not in blocks:
        message += "\n(real tokens left out: no data file was given)"
    figure.suptitle(message, x=0.01, ha="left")
    return figure
