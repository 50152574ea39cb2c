"""The published table supports neither "about 2.5 %" nor "significant" as a whole (A7).

P1's table alone, n = 4 runs: every number drawn is P1's or computed from P1's. Top: relative change of each error
against no regularisation, in per cent (negative: the error falls); the bars are what the rounding to three decimals
leaves open. Dashed: the improvement that summaries of P1 name. Bottom: which cells Welch's two-sided test calls
significant at 5 %, one row a choice: the family that Holm corrects over (none, the variant's own nine cells, all 27)
and the divisor of the printed sds (ddof 1 or 0). Full: for every table that prints alike; half: for some of them;
a dot: for none.
"""

import math
from collections.abc import Mapping
from typing import get_args

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import numerics
from numerics.a7_table_audit import BASELINE, METRICS, PUBLISHED, REGULARISERS, Family
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

CLAIMED = -2.5
"""Per cent; "about 2.5 %" in published summaries of P1."""

FAMILY_NAMES = {"none": "no correction", "variant": "Holm, own 9", "all": "Holm, all 27"}


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``changes`` (27 cells, per cent) and ``choices`` (27 cells for each of six choices)."""
    base = PUBLISHED[BASELINE]
    changes = []
    for variant in REGULARISERS:
        change = numerics.relative_change(PUBLISHED[variant].mean, base.mean)
        changes += [
            {"variant": variant, "metric": metric}
            | {name: 100 * float(bound[place]) for name, bound in change._asdict().items()}
            for place, metric in enumerate(METRICS)
        ]
    choices = []
    for family in get_args(Family):
        for ddof in (1, 0):
            audit = numerics.audit_table(ddof=ddof, family=family)
            for row, variant in enumerate(REGULARISERS):
                for column, metric in enumerate(METRICS):
                    cell = row, column
                    verdict = "always" if audit.surely[cell] else "some" if audit.possibly[cell] else "never"
                    choices.append(
                        {"variant": variant, "metric": metric, "family": family, "ddof": ddof, "significant": verdict}
                        | {f"p_{name}": float(bound[cell]) for name, bound in audit.p._asdict().items()}
                    )
    return {"changes": from_rows(changes), "choices": from_rows(choices)}


def _count(choices: Table, family: str, ddof: int, verdict: str) -> int:
    here = (choices["family"] == family) & (choices["ddof"] == ddof) & (choices["significant"] == verdict)
    return int(here.sum())


def finding(tables: Mapping[str, Table]) -> str:
    """The largest improvement, and how many cells are significant under the choices."""
    changes, choices = tables["changes"], tables["choices"]
    best = int(np.argmin(changes["value"]))
    most = math.ceil(-100 * changes["lower"].min()) / 100  # a bound is rounded up
    return (
        f"the largest improvement is {-changes['value'][best]:.2f} % ({changes['variant'][best]}, "
        f"{changes['metric'][best]}), at most {most:.2f} % with the rounding; significant at 5 %: "
        f"{_count(choices, 'none', 1, 'always')} of {len(changes['value'])} cells without a correction (ddof 1 and 0), "
        f"{_count(choices, 'variant', 1, 'some')} that hang on the rounding with Holm over the variant's nine (ddof 1; "
        f"{_count(choices, 'variant', 0, 'some')} with ddof 0), {_count(choices, 'all', 1, 'some')} over all 27"
    )


def draw(tables: Mapping[str, Table]) -> Figure:
    """A column a regulariser: changes above, verdicts below, metrics along the shared axis."""
    changes, choices = tables["changes"], tables["choices"]
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.4)
    axes = figure.subplots(2, 3, sharex=True, sharey="row", height_ratios=(1.5, 1))
    metrics = list(dict.fromkeys(changes["metric"]))
    rows = list(dict.fromkeys(zip(choices["family"].tolist(), choices["ddof"].tolist(), strict=True)))
    places = np.arange(len(metrics))
    for column, variant in enumerate(dict.fromkeys(changes["variant"])):
        above, below = axes[0, column], axes[1, column]
        look = style.series(column)
        here = changes["variant"] == variant
        value, lower, upper = (changes[name][here] for name in ("value", "lower", "upper"))
        above.axhline(0.0, color=style.BLACK, linewidth=0.6)
        above.axhline(CLAIMED, color=style.GREY, linestyle="--")
        above.errorbar(
            places,
            value,
            yerr=(value - lower, upper - value),
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            markersize=2.5,
            capsize=2.5,
            elinewidth=1.2,
        )
        above.set_title(f"{variant} ({(upper < 0).sum()} of {len(value)} fall)")
        for row, (family, ddof) in enumerate(rows):
            chosen = (choices["variant"] == variant) & (choices["family"] == family) & (choices["ddof"] == ddof)
            for verdict, mark in _MARKS.items():
                found = places[choices["significant"][chosen] == verdict]
                below.plot(found, np.full(len(found), row), color=look["color"], linestyle="none", **mark)
        below.set_xticks(places, metrics, rotation=90)
        below.grid(visible=False)
        below.set_xlabel("error and forecast step")
    axes[0, 0].set(ylabel="change of the error, %", ylim=(-2.8, 0.6))
    axes[0, 0].text(-0.3, CLAIMED + 0.06, '"about 2.5 %"', color=style.GREY, fontsize=7)
    axes[1, 0].set_yticks(range(len(rows)), [f"{FAMILY_NAMES[family]}, ddof {ddof}" for family, ddof in rows])
    axes[1, 0].set_ylim(len(rows) - 0.4, -0.6)
    names = {"always": "significant at 5 %", "some": "hangs on the rounding", "never": "not significant"}
    handles = [
        Line2D([], [], color=style.BLACK, linestyle="none", label=names[verdict], **mark)
        for verdict, mark in _MARKS.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    figure.suptitle(
        f"P1's table, against no regularisation: errors fall by {-changes['value'].min():.1f} % at most, and over all "
        f"{len(changes['value'])} cells none is significant",
        x=0.01,
        ha="left",
    )
    return figure


_MARKS = {
    "always": {"marker": "o", "markersize": 6},
    "some": {"marker": "o", "markersize": 6, "fillstyle": "left", "markerfacecoloralt": "white"},
    "never": {"marker": ".", "markersize": 2},
}
