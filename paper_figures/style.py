"""One look for all figures: sizes, fonts and colours that survive a printed column and colour blindness.

A figure has one message, and its title states it. Axes carry the quantity and its unit, or say that it has
none. Series differ in colour, marker and line style together, so any one of the three tells them apart.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

COLUMN = 3.4
"""Width of one column, inches."""

DOUBLE_COLUMN = 7.0
"""Width of two columns, inches."""

# Okabe and Ito's palette, the dark colours first; their yellow is too pale for a line on white.
BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK, GREY = "#E69F00", "#56B4E9", "#000000", "#707070"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))

SEQUENTIAL = "viridis"
"""Colour map of maps: perceptually uniform, the same to colour-blind eyes."""

_SETTINGS: dict[Any, Any] = {
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "figure.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "grid.linewidth": 0.3,
    "grid.color": "#D0D0D0",
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "svg.hashsalt": "paper_figures",
}


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's own defaults with this room's settings on top, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_figure(*, width: float = COLUMN, height: float = 2.6) -> Figure:
    """An empty figure of that size in inches, laid out without overlaps, outside pyplot."""
    return Figure(figsize=(width, height), layout="constrained")


def series(place: int) -> dict[str, Any]:
    """Colour, marker and line style of the series number ``place``, for ``Axes.plot``."""
    return {
        "color": PALETTE[place % len(PALETTE)],
        "marker": MARKERS[place % len(MARKERS)],
        "linestyle": LINES[place % len(LINES)],
    }
