"""What the heads of three pretrained models are, layer by layer: switch, gated MLP or mixer (B6, B8).

By the mean gate g = a_ii/(a_ii + a_i0) and the mean leak 1 - a_ii - a_i0 of a head on a text: a mixer leaks more than
half; else it is a switch below g = 1/2 and a gated MLP above. Bars: the share of each kind among the layer's heads on
all texts. Hatched: switches whose sink is silent, its value shorter than half the others' median. Layers count from 0.

Drawn from ``results/probe-heads.csv``, which ``python -m attention probe`` and ``python -m attention summarise`` make.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from attention.probe_study import KINDS
from paper_figures import style
from paper_figures.probe_results import names_of, probe_study
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False
READS_PROBE = True

FEW = 0.1
"""Below this share of gated MLPs the title calls heads switches or mixers."""

COLOURS = dict(zip(KINDS, (style.BLUE, style.ORANGE, "#D8D8D8"), strict=True))


def compute(settings: Settings) -> dict[str, Table]:
    """Table ``shares``: one row a model and layer, the three shares sum to 1."""
    study, runs = probe_study(settings)
    heads = study.heads
    rows: list[dict[str, Any]] = []
    for run in runs:
        for layer in np.unique(heads["layer"][heads["run"] == run]).tolist():
            here = (heads["run"] == run) & (heads["layer"] == layer)
            row: dict[str, Any] = {"run": run, "layer": layer, "heads": int(here.sum())}
            rows.append(row | {kind: float(heads[kind][here].mean()) for kind in (*KINDS, "silent switch")})
    return {"shares": from_rows(rows)}


def finding(tables: Mapping[str, Table]) -> str:
    """The shares over all layers, and the layer with most switches where there are any."""
    said = []
    for run, name in names_of(tables["shares"]).items():
        shares = _of(tables, run)
        most = int(shares["switch"].argmax())
        parts = ", ".join(f"{kind} {100 * shares[kind].mean():.0f} %" for kind in KINDS)
        said.append(f"{name}: {parts}")
        if shares["switch"][most] >= 0.005:
            said[-1] += f"; most switches in layer {shares['layer'][most]} ({100 * shares['switch'][most]:.0f} %)"
    return f"what heads are: {'. '.join(said)}"


def draw(tables: Mapping[str, Table]) -> Figure:
    """One panel a model, as wide as it has layers; bars from the bottom: switch, gated MLP, mixer."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=2.3)
    models = names_of(tables["shares"])
    depths = [len(_of(tables, run)["layer"]) for run in models]
    widths = [max(depth, 9) for depth in depths]
    panels = figure.subplots(1, len(models), sharey=True, squeeze=False, width_ratios=widths)[0]
    for axes, (run, name) in zip(panels, models.items(), strict=True):
        shares = _of(tables, run)
        bottom = np.zeros(len(shares["layer"]))
        for kind in KINDS:
            axes.bar(shares["layer"], shares[kind], bottom=bottom, width=0.85, color=COLOURS[kind], linewidth=0)
            bottom = bottom + shares[kind]
        axes.bar(
            shares["layer"],
            shares["silent switch"],
            width=0.85,
            facecolor="none",
            edgecolor="white",
            hatch="////",
            linewidth=0,
        )
        axes.set(title=name, xlabel="layer", xlim=(-0.7, len(shares["layer"]) - 0.3), ylim=(0, 1))
        axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
        axes.grid(visible=False)
    figure.get_layout_engine().set(w_pad=0.06)  # pyright: ignore[reportOptionalMemberAccess, reportCallIssue]
    panels[0].set_ylabel("share of heads")
    handles = [Patch(facecolor=COLOURS[kind], label=kind) for kind in KINDS]
    handles.insert(
        1, Patch(facecolor=style.BLUE, edgecolor="white", hatch="////", linewidth=0, label="with a silent sink")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=4)
    gated = max(float(np.mean(_of(tables, run)["gated MLP"])) for run in models)
    claim = "Heads are switches or mixers: at most" if gated < FEW else "What heads are: up to"
    title = f"{claim} {100 * gated:.0f} % of all heads of a model act as a gated MLP"
    if not np.any([tables["shares"][kind] for kind in ("switch", "gated MLP")]):
        title = "All heads mix: none acts as a switch or a gated MLP"
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _of(tables: Mapping[str, Table], run: str) -> dict[str, np.ndarray]:
    shares = tables["shares"]
    here = np.asarray(shares["run"]) == run
    return {name: np.asarray(column)[here] for name, column in shares.items()}
