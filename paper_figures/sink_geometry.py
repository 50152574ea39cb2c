"""A sink exists where 0 and x_0 are both outside the hull of the tokens; the two distances are its price (B1, B2).

Fifteen tokens in the plane, each a query and a key, and a sink x_0. Left: g_q is the distance from 0 to the hull,
g_k the one from x_0. The arrows are their directions a and b; B = m a b^T/(g_q g_k) has margin m for every query
over every key and the least norm of all that do, in every Schatten norm. The dashed lines show why: the whole hull
lies beyond both. Right: the same tokens and sink less their mean token. Now 0 is in the hull; the weights on three
tokens that mix to 0 prove that no B makes the sink (checked in exact fractions), although g_k is what it was.

Coordinates are rounded to hundredths, so the certificate is short; lengths have no unit.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import hypot, nan

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.spatial import ConvexHull

import numerics
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

Point = tuple[float, float]

TOKENS = 15

CENTRE = (1.7, 0.8)
"""Of the disc of radius 1 in which the tokens lie: 0 is outside of it."""

SINK = (-0.35, 1.65)
"""x_0 less the disc's centre: outside of it too."""

DIGITS = 9
"""Geometry is exact far beyond this; kept so that the last bits of another processor do not show."""

ATTAINING = r"cheapest: $B = m\, a b^T / (g_q\, g_k)$" + "\na, b: unit vectors along the arrows"


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``points`` (tokens and sink, with the certificate's weights), ``corners`` of the hull, ``facts``."""
    drawn = torch.rand(2, TOKENS, generator=settings.generator(), dtype=torch.float64)
    radius, angle = drawn[0].sqrt(), 2 * torch.pi * drawn[1]
    disc = torch.stack([radius * angle.cos(), radius * angle.sin()], -1) + torch.tensor(CENTRE, dtype=torch.float64)
    given = _hundredths(disc.numpy())
    given_sink = _hundredths(np.add(CENTRE, SINK))

    points, corners, facts = [], [], []
    for panel, shift in (("as given", 0), ("centred", given.sum(0) / TOKENS)):
        tokens, sink = given - shift, given_sink - shift
        price = numerics.sink_price(tokens, sink)
        found, certificate = price.representability, price.representability.certificate
        cloud, centre = tokens.astype(float), sink.astype(float)
        weights = np.zeros(TOKENS) if certificate is None else np.array(certificate.query_weights, dtype=float)
        points += [
            {"panel": panel, "token": token, "x": _kept(x), "y": _kept(y), "zero_weight": _kept(weight)}
            for token, (x, y), weight in zip([*range(1, TOKENS + 1), 0], [*cloud, centre], [*weights, 0.0], strict=True)
        ]
        corners += [{"panel": panel, "token": int(corner) + 1} for corner in ConvexHull(cloud).vertices]
        nearest_zero, nearest_sink = found.queries.offset, centre + found.keys.offset
        facts.append(
            {
                "panel": panel,
                "g_q": _kept(found.queries.distance),
                "g_k": _kept(found.keys.distance),
                "price": _kept(price.value),
                "least_margin": nan
                if price.matrix is None
                else _kept(numerics.sink_margins(cloud, centre, price.matrix).min()),
                "proven": int(certificate is not None and certificate.proves(tokens, sink)),
            }
            | dict(
                zip(("zero_x", "zero_y", "sink_x", "sink_y"), map(_kept, [*nearest_zero, *nearest_sink]), strict=True)
            )
        )
    return {"points": from_rows(points), "corners": from_rows(corners), "facts": from_rows(facts)}


def _hundredths(values: np.ndarray) -> np.ndarray:
    """The nearest whole hundredths, as exact fractions."""
    return np.vectorize(lambda value: Fraction(round(100 * value), 100), otypes=[object])(values)


def _kept(value: float) -> float:
    return round(float(value), DIGITS) + 0.0


def _fact(tables: Mapping[str, Table], panel: str) -> dict[str, float]:
    facts = tables["facts"]
    here = facts["panel"] == panel
    return {name: column[here].item() for name, column in facts.items()}


def finding(tables: Mapping[str, Table]) -> str:
    """Distances and price, before and after centring."""
    given, centred = _fact(tables, "as given"), _fact(tables, "centred")
    return (
        f"as given g_q = {given['g_q']:.2f}, g_k = {given['g_k']:.2f}: the sink costs {given['price']:.2f} per margin, "
        f"at rank 1 and in every Schatten norm; less the mean token g_q = {centred['g_q']:.0f}, g_k still "
        f"{centred['g_k']:.2f}: no B makes the sink, proven in exact fractions"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """The two clouds in one window."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=3.95)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for axes, panel in zip(panels, ("as given", "centred"), strict=True):
        fact = _fact(tables, panel)
        _cloud(axes, tables, panel)
        to_zero, to_sink = (fact["zero_x"], fact["zero_y"]), (fact["sink_x"], fact["sink_y"])
        x, y = _places(tables, panel, [0])[0].tolist()
        if fact["g_q"] > 0:
            _distance(axes, (0.0, 0.0), to_zero, hull_end=to_zero, name="g_q", place=1)
        _distance(axes, to_sink, (x, y), hull_end=to_sink, name="g_k", place=0)
        axes.set(xlabel="first coordinate (no unit)", aspect="equal")
    price = _fact(tables, "as given")["price"]
    panels[0].set_title(f"as given: the sink costs {price:.2f} m")
    panels[1].set_title(r"less the mean token: $g_q = 0$, no B makes the sink")
    panels[0].set_ylabel("second coordinate (no unit)")
    panels[0].text(0.03, 0.03, ATTAINING, transform=panels[0].transAxes, va="bottom", fontsize=7)
    panels[1].legend(loc="upper right", handlelength=1.6)
    for name, set_limits in (("x", panels[0].set_xlim), ("y", panels[0].set_ylim)):
        column = tables["points"][name]
        set_limits(column.min() - 0.45, column.max() + 0.25)
    figure.suptitle(
        r"A sink exists where 0 and $x_0$ are both outside the hull of the tokens; its price is $m/(g_q\, g_k)$",
        x=0.01,
        ha="left",
    )
    return figure


def _places(tables: Mapping[str, Table], panel: str, tokens: Iterable[int]) -> np.ndarray:
    """Coordinates of some tokens, in the order asked for; 0 is the sink."""
    points = tables["points"]
    here = points["panel"] == panel
    place = {token: (x, y) for token, x, y in zip(*(points[name][here] for name in ("token", "x", "y")), strict=True)}
    return np.array([place[token] for token in tokens])


def _cloud(axes: Axes, tables: Mapping[str, Table], panel: str) -> None:
    """Hull, tokens, sink, zero, and the certificate where there is one."""
    points, corners = tables["points"], tables["corners"]
    hull = _places(tables, panel, corners["token"][corners["panel"] == panel])
    axes.fill(*hull.T, facecolor="#D6EAF6", edgecolor=style.BLUE, linewidth=0.8, label="hull of the tokens")
    cloud = _places(tables, panel, range(1, TOKENS + 1))
    axes.plot(*cloud.T, color=style.BLUE, marker="o", linestyle="none", label="tokens, each query and key")
    star = {"color": style.VERMILLION, "marker": "*", "markersize": 10, "linestyle": "none"}
    axes.plot(*_places(tables, panel, [0]).T, **star, label=r"sink $x_0$", zorder=3)
    axes.plot([0], [0], color=style.BLACK, marker="P", markersize=6, linestyle="none", label="0", zorder=3)
    carrying = (points["panel"] == panel) & (points["zero_weight"] > 0)
    if carrying.any():
        mixed = _places(tables, panel, points["token"][carrying])
        axes.fill(*mixed.T, facecolor="none", edgecolor=style.BLACK, linestyle=":", label="tokens that mix to 0")
        for (x, y), weight in zip(mixed.tolist(), points["zero_weight"][carrying], strict=True):
            aside = (11 * x / hypot(x, y), 11 * y / hypot(x, y))
            centred = {"textcoords": "offset points", "ha": "center", "va": "center", "fontsize": 7}
            axes.annotate(f"{weight:.2f}", (x, y), aside, **centred)


def _distance(axes: Axes, start: Point, end: Point, *, hull_end: Point, name: str, place: int) -> None:
    """An arrow from start to end with its name and length, and the line beyond which the hull lies."""
    look = style.series(1 + place)
    arrow = {"arrowstyle": "-|>", "color": look["color"], "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops=arrow)
    along, up = end[0] - start[0], end[1] - start[1]
    length = hypot(along, up)
    across = (hull_end[0] - up, hull_end[1] + along)
    axes.axline(hull_end, across, color=look["color"], linestyle="--", linewidth=0.8)
    middle, aside = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2), (26 * up / length, -12 * along / length)
    words = {"textcoords": "offset points", "color": look["color"], "ha": "center", "va": "center"}
    axes.annotate(rf"${name}$ = {length:.2f}", middle, aside, **words)
