"""A diagonal pays for low rank, a sink is rank 1 at its full price (B2, B3).

Nuclear norm of B for margin m = 1 on n orthonormal tokens; the sink's x_0 is orthonormal to them. Left, for one
n: the cheapest B found at each rank, by descent from random starts. Each is a matrix that keeps every margin,
so a mark is a true upper bound; dashed is the convex price, which no rank can beat. Rank 1 can make no diagonal
of three tokens or more. Right: the two ends of the curve against n. Lines are closed forms: the construction on
a circle at rank 2, n/(1 - cos(2 pi/n)), and the price without a limit, n - 1. Marks are searches and programs.

The sink is no key of the diagonal here; as one more key it would raise the diagonal's price. The sink's price is
the same in every Schatten norm, the diagonal's is not: the nuclear norm is what weight decay charges (B2).
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FormatStrFormatter, MultipleLocator
from tqdm import tqdm

import numerics
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

LARGEST = 12
"""Closed forms are drawn for n = 3 up to here."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``ranks`` (one n, every rank), ``searched`` (rank 2 and no limit, against n), ``closed`` (their lines).

    Found prices are kept to the six digits that their certificates promise.
    """
    starts = 2 if settings.quick else 8
    shown = 6 if settings.quick else 8
    by_rank = numerics.diagonal_price_by_rank(np.eye(shown), starts=starts, seed=settings.seed)
    ranks = [
        {"n": shown, "rank": rank, "price": _six_digits(price), "least": _six_digits(by_rank.lower)}
        for rank, price in zip(by_rank.ranks, by_rank.values, strict=True)
    ]
    sizes = (3, 4, 6) if settings.quick else (3, 4, 5, 6, 8, 10, LARGEST)
    searched = []
    for n in tqdm(sizes, desc="price_against_rank", disable=None):
        low = numerics.diagonal_price_by_rank(np.eye(n), starts=2, ranks=(2,), seed=settings.seed)
        sink = _sink(n)
        assert sink.matrix is not None, "an orthonormal sink is outside the hull, and so is 0"
        searched.append(
            {
                "n": n,
                "rank_2": _six_digits(low.values[0]),
                "any_rank": _six_digits(low.lower),
                "sink": _six_digits(sink.upper),
                "sink_rank": int(np.linalg.matrix_rank(sink.matrix)),
            }
        )
    closed = [
        {
            "n": n,
            "circle": numerics.matrix_norm(numerics.circle_diagonal(np.eye(n)), "nuclear"),
            "scatter_bound": numerics.scatter_bounds(np.eye(n))["nuclear"],
            "sink": _sink(n).value,
        }
        for n in range(3, LARGEST + 1)
    ]
    return {"ranks": from_rows(ranks), "searched": from_rows(searched), "closed": from_rows(closed)}


def _sink(n: int) -> numerics.SinkPrice:
    tokens = np.eye(n + 1)
    return numerics.sink_price(tokens[1:], tokens[0])


def _six_digits(price: float) -> float:
    return float(f"{price:.6g}")


def _ends(tables: Mapping[str, Table]) -> dict[str, float]:
    """The prices of the left panel that are named in words."""
    ranks, closed = tables["ranks"], tables["closed"]
    n, least = ranks["n"][0], ranks["least"][0]
    here = closed["n"] == n
    return {
        "n": n,
        "circle": closed["circle"][here].item(),
        "least": least,
        "enough": int(ranks["rank"][ranks["price"] <= least * (1 + 1e-5)].min()),
        "sink": closed["sink"][here].item(),
    }


def finding(tables: Mapping[str, Table]) -> str:
    """The prices at both ends, and the sink's."""
    ends = _ends(tables)
    return (
        f"n = {ends['n']} orthonormal tokens, nuclear norm at margin 1: the diagonal has no B of rank 1, costs "
        f"{ends['circle']:.2f} at rank 2 and its least, {ends['least']:.2f}, from rank {ends['enough']} on; "
        f"the sink costs {ends['sink']:.2f} at rank 1"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """Left every rank at one n, right both ends against n."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.1)
    left, right = figure.subplots(1, 2, sharey=True)
    ranks, searched, closed = tables["ranks"], tables["searched"], tables["closed"]
    ends = _ends(tables)
    diagonal, least = style.series(0), style.series(2) | {"linestyle": "--"}
    sink = style.series(1) | {"marker": "*", "markersize": 9, "linestyle": "-"}
    ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "linestyle": "none", "color": style.BLACK}

    found = np.isfinite(ranks["price"])
    left.axvspan(0.5, 1.5, color="#E4E4E4", linewidth=0)
    left.text(1, 40, "no diagonal", ha="center", va="center", rotation=90, fontsize=7)
    left.plot(ranks["rank"][found], ranks["price"][found], **diagonal, label="diagonal: cheapest B found")
    left.plot([2], [ends["circle"]], **ring, label="diagonal: circle construction")
    left.axhline(ends["least"], color=least["color"], linestyle="--", label="diagonal: convex price, any rank")
    left.plot([1], [ends["sink"]], **sink | {"linestyle": "none"}, label="sink: its full price")
    for rank, price in zip(ranks["rank"][found], ranks["price"][found], strict=True):
        left.annotate(f"{price:.3g}", (rank, price), (4, 4), textcoords="offset points", fontsize=7)
    below = {"xytext": (0, -12), "textcoords": "offset points", "ha": "center", "fontsize": 7}
    left.annotate(f"{ends['sink']:.3g}", (1, ends["sink"]), **below)
    left.set(
        xlabel="rank of B (no unit)", ylabel="nuclear norm of B (no unit)", xlim=(0.5, ends["n"] + 0.7), yscale="log"
    )
    left.set_title(f"n = {ends['n']} orthonormal tokens, margin 1")
    left.legend(loc="upper right")
    left.xaxis.set_major_locator(MultipleLocator(1))

    for column, line, look, name in (
        ("rank_2", "circle", diagonal, "diagonal, rank 2"),
        ("any_rank", "scatter_bound", least, "diagonal, any rank"),
        ("sink", "sink", sink, "sink, rank 1"),
    ):
        right.plot(closed["n"], closed[line], color=look["color"], linestyle=look["linestyle"])
        right.plot(searched["n"], searched[column], **look | {"linestyle": "none"})
        right.plot([], [], **look, label=name)
    right.set(xlabel="tokens n", title="both ends against n: lines closed form, marks found", ylim=(1, 200))
    right.legend(loc="upper left")
    right.yaxis.set_major_formatter(FormatStrFormatter("%g"))
    right.xaxis.set_major_locator(MultipleLocator(2))
    figure.suptitle(
        f"A diagonal pays for low rank: {ends['circle']:.1f} at rank 2, {ends['least']:.0f} from rank "
        f"{ends['enough']} on; a sink is rank 1 at its full price, {ends['sink']:.2f}",
        x=0.01,
        ha="left",
    )
    return figure
