"""Gradient descent with weight decay pays exactly the price: it lands on B4's optimum, or stays at 0.

Drawn for the family of B4 with n = 6, t = 0.5, z = 1: one head's W_Q and W_K are trained by plain gradient descent to a
sink and to a diagonal (x_0 no key), cross entropy plus (lambda/2)(||W_Q||_F^2 + ||W_K||_F^2), from several random
starts. Left: lambda sqrt(d_k) = 0.1; right: 2, above the diagonal's threshold 1 but below the sink's. Above the
objective, below the nuclear norm of B, against the step; dashed lines are the optimum in closed form. A dot marks where
a run stopped: no entry of its gradient was larger than 1e-7.
"""

from collections.abc import Mapping
from math import sqrt

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from tqdm import tqdm

import attention
import numerics
from numerics.b4_sinks_are_cheaper import TrainedPattern
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

FAMILY = numerics.SinkFamily(6, 0.5, 1.0)

D_K = 8

DECAYS = (0.1, 2.0)
"""lambda sqrt(d_k), one column each."""

PATTERNS: tuple[TrainedPattern, ...] = ("sink", "diagonal")

STEPS = 600

QUANTITIES = {"objective": "objective (nats)", "nuclear_norm": r"price paid $\|B\|_*$ (no unit)"}


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``runs`` (objective and nuclear norm at steps that are even in the logarithm) and ``optima``."""
    tokens, sink = torch.tensor(FAMILY.tokens), torch.tensor(FAMILY.sink)
    keys = {"sink": torch.vstack([sink, tokens]), "diagonal": tokens}
    targets = {"sink": torch.zeros(FAMILY.n, dtype=torch.int64), "diagonal": torch.arange(FAMILY.n)}
    shown = np.unique(np.geomspace(1, STEPS, 60).round().astype(int)) - 1
    cases = [
        (kappa, pattern, start)
        for kappa in DECAYS
        for pattern in PATTERNS
        for start in range(2 if settings.quick else 6)
    ]
    runs = []
    for kappa, pattern, start in tqdm(cases, desc="training_to_the_price", disable=None):
        run = attention.train_to_pattern(
            tokens,
            keys[pattern],
            targets[pattern],
            weight_decay=kappa / sqrt(D_K),
            d_k=D_K,
            seed=1000 * settings.seed + start,
            steps=STEPS,
        )
        last = len(run.objective) - 1
        for step in [*shown[shown < last].tolist(), last]:
            runs.append(
                {
                    "decay": kappa,
                    "pattern": pattern,
                    "start": start,
                    "step": step + 1,
                    "objective": float(run.objective[step]),
                    "nuclear_norm": float(run.nuclear_norm[step]),
                }
            )
    optima = []
    for kappa in DECAYS:
        for pattern in PATTERNS:
            best = numerics.training_optimum(FAMILY, pattern, weight_decay=kappa / sqrt(D_K), d_k=D_K)
            optima.append(
                {
                    "decay": kappa,
                    "pattern": pattern,
                    "objective": best.objective,
                    "nuclear_norm": best.nuclear_norm,
                    "rank": best.rank,
                }
            )
    return {"runs": from_rows(runs), "optima": from_rows(optima)}


def finding(tables: Mapping[str, Table]) -> str:
    """How many runs end at the optimum, and what strong decay leaves."""
    excess, norms = [], []
    for decay, pattern, objective, norm, _ in zip(*tables["optima"].values(), strict=True):
        run = _runs(tables["runs"], decay, pattern)
        excess += [run["objective"][run["start"] == start][-1] / objective - 1 for start in np.unique(run["start"])]
        if decay == DECAYS[1]:
            norms.append(f"{norm:.2f} ({pattern})")
    return (
        f"{sum(abs(one) <= 1e-6 for one in excess)} of {len(excess)} runs end within 1e-6 of the exact minimum; at "
        f"lambda sqrt(d_k) = {DECAYS[1]:g} it has ||B||_* = {', '.join(norms)}"
    )


def _runs(table: Table, decay: float, pattern: str) -> dict[str, np.ndarray]:
    wanted = (np.asarray(table["decay"]) == decay) & (np.asarray(table["pattern"]) == pattern)
    return {name: np.asarray(column)[wanted] for name, column in table.items()}


def draw(tables: Mapping[str, Table]) -> Figure:
    """Rows: objective and nuclear norm. Columns: the weight decay."""
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.2)
    panels = figure.subplots(len(QUANTITIES), len(DECAYS), sharex=True, sharey="row")
    optima = tables["optima"]
    for row, (quantity, label) in enumerate(QUANTITIES.items()):
        panels[row, 0].set_ylabel(label)
        panels[row, 0].yaxis.set_major_locator(MultipleLocator((2, 5)[row]))
        for column, decay in enumerate(DECAYS):
            axes = panels[row, column]
            for place, pattern in enumerate(PATTERNS):
                look = style.series(place)
                run = _runs(tables["runs"], decay, pattern)
                for start in np.unique(run["start"]):
                    here = run["start"] == start
                    step, value = run["step"][here], run[quantity][here]
                    axes.plot(step, value, color=look["color"], linewidth=0.7)
                    axes.plot(step[-1], value[-1], color=look["color"], marker=look["marker"])
                here = (np.asarray(optima["decay"]) == decay) & (np.asarray(optima["pattern"]) == pattern)
                best = float(np.asarray(optima[quantity])[here][0])
                axes.axhline(best, color=look["color"], linestyle="--")
                axes.plot([], [], color=look["color"], marker=look["marker"], label=pattern)
            axes.set(xscale="log", xlim=(1, STEPS + 1))
    for column, decay in enumerate(DECAYS):
        panels[0, column].set_title(rf"weight decay $\lambda \sqrt{{d_k}}$ = {decay:g}")
        panels[-1, column].set_xlabel("step of gradient descent (start: 1)")
    panels[0, 0].plot([], [], color=style.GREY, linestyle="--", label="optimum, closed form")
    panels[0, 0].legend(loc="upper right")
    figure.suptitle(
        "Gradient descent ends on the closed-form optimum and pays its price; strong decay leaves a sink, no diagonal",
        x=0.01,
        ha="left",
    )
    return figure
