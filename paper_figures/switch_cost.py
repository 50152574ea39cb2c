"""What a hard and a soft switch cost: a shared direction and distance make a sink cheap, but hardly a diagonal.

Drawn for the family of B4 (x_i = t f + e_i, x_0 = t f + z e_0): the least norm of B for leakage e, that is the price of
the score margin log(n (1-e)/e), which is enough. Four panels: against e, against the number of tokens n, against t and
against z; the other knobs are at n = 6, t = 0, z = 1, e = 0.1. The sink costs the same in every norm. The diagonal has
x_0 as a key. Lines are the closed forms (B4), marks the convex programs (B2, B3).
"""

from collections.abc import Iterator, Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter
from tqdm import tqdm

import numerics
from numerics.price_program import Norm
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

BASE = {"e": 0.1, "n": 6, "t": 0.0, "z": 1.0}
"""The knobs that a panel does not turn."""

RANGES = {"e": (1e-4, 0.5), "n": (2, 12), "t": (0.0, 3.0), "z": (0.0, 3.0)}

LABELS = {
    "e": "leakage e (no unit)",
    "n": "tokens n beside the sink",
    "t": "shared direction t (token lengths)",
    "z": "distance z of the sink (token lengths)",
}

NORMS: dict[Norm, str] = {"nuclear": "nuclear", "fro": "Frobenius", "spectral": "spectral"}

LINE_POINTS = 61


def points(knob: str, count: int) -> np.ndarray:
    """Values of a knob for one panel; integers for n, evenly spaced logarithms for e."""
    low, high = RANGES[knob]
    if knob == "n":
        return np.unique(np.linspace(low, high, count).round().astype(int))
    return np.geomspace(low, high, count) if knob == "e" else np.linspace(low, high, count)


def _setting(knob: str, value: float) -> tuple[numerics.SinkFamily, float]:
    """The family and the margin at one value of one knob."""
    knobs = BASE | {knob: value}
    family = numerics.SinkFamily(int(knobs["n"]), float(knobs["t"]), float(knobs["z"]))
    return family, numerics.margins_for_leak(knobs["e"], family.n).enough


def _closed(knob: str, value: float) -> Iterator[dict]:
    family, margin = _setting(knob, value)
    for norm in NORMS:
        prices = numerics.family_prices(family.n, family.G, norm=norm, margin=margin)
        yield {"knob": knob, "value": float(value), "norm": norm, **prices._asdict()}


def _solved(knob: str, value: float) -> Iterator[dict]:
    family, margin = _setting(knob, value)
    for norm in NORMS:
        sink = numerics.sink_program(family.tokens, family.sink, margin=margin, norm=norm)
        diagonal = numerics.diagonal_price(family.tokens, sink=family.sink, margin=margin, norm=norm)
        yield {"knob": knob, "value": float(value), "norm": norm, "sink": sink.value, "diagonal": diagonal.value}


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``closed`` (the lines) and ``program`` (the marks): knob, value, norm and the two prices."""
    closed = [row for knob in RANGES for value in points(knob, LINE_POINTS) for row in _closed(knob, value)]
    asked = [(knob, value) for knob in RANGES for value in points(knob, 3 if settings.quick else 6)]
    program = [row for pair in tqdm(asked, desc="switch_cost", disable=None) for row in _solved(*pair)]
    return {"closed": from_rows(closed), "program": from_rows(program)}


def finding(tables: Mapping[str, Table]) -> str:
    """How far programs and closed forms are apart, and what the two knobs do to the sink."""
    gaps = []
    for knob, value, norm, *solved in zip(*tables["program"].values(), strict=True):
        exact = next(row for row in _closed(str(knob), value) if row["norm"] == norm)
        gaps += [abs(solved[0] / exact["sink"] - 1), abs(solved[1] / exact["diagonal"] - 1)]
    ends = []
    for knob in ("t", "z"):
        curve = _curve(tables["closed"], knob, "nuclear")
        ends.append(f"{curve['sink'][0] / curve['sink'][-1]:.1f} for {knob} from 0 to {RANGES[knob][1]:g}")
    return (
        f"{sum(gap <= 1e-5 for gap in gaps)} of {len(gaps)} convex programs agree with the closed forms to 1e-5; "
        f"the sink's price falls by a factor {', '.join(ends)}"
    )


def _curve(table: Table, knob: str, norm: str) -> dict[str, np.ndarray]:
    wanted = (np.asarray(table["knob"]) == knob) & (np.asarray(table["norm"]) == norm)
    return {name: np.asarray(column)[wanted] for name, column in table.items()}


def draw(tables: Mapping[str, Table]) -> Figure:
    """One panel for each knob; one line for the sink, three for the diagonal, marks from the programs."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.4)
    panels = figure.subplots(2, 2, sharey=True).flat
    for axes, knob in zip(panels, RANGES, strict=True):
        # The sink first: where it is level with the diagonal, the broken line on top shows both.
        _draw_price(axes, tables, knob, "nuclear", "sink", 0, "sink, every norm")
        for place, (norm, name) in enumerate(NORMS.items(), start=1):
            _draw_price(axes, tables, knob, norm, "diagonal", place, f"diagonal, {name}")
        axes.set(xlabel=LABELS[knob], yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_locator(NullLocator())
        if knob == "e":
            axes.set(xscale="log")
    figure.axes[0].set_ylabel("price: norm of B (no unit)")
    figure.axes[2].set_ylabel("price: norm of B (no unit)")
    titles = (
        "both grow like log 1/e",
        "orthonormal tokens: level in the Frobenius norm",
        "a shared direction makes the sink cheap",
        "so does a sink far from the rest",
    )
    for axes, title in zip(figure.axes, titles, strict=True):
        axes.set_title(title)
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4)
    figure.suptitle(
        "A shared direction and distance make a sink cheap, not a diagonal (lines: closed forms; marks: programs)",
        x=0.01,
        ha="left",
    )
    return figure


def _draw_price(axes, tables, knob: str, norm: str, pattern: str, place: int, label: str) -> None:
    look = style.series(place)
    line, marks = _curve(tables["closed"], knob, norm), _curve(tables["program"], knob, norm)
    # Lines and marks share a legend entry; the line has no marks of its own.
    axes.plot(line["value"], line[pattern], color=look["color"], linestyle=look["linestyle"])
    axes.plot(marks["value"], marks[pattern], color=look["color"], marker=look["marker"], linestyle="none", mfc="white")
    axes.plot([], [], **look, mfc="white", label=label)
