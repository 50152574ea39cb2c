"""Sinks as a small byte model learns: what softmax, an extra zero logit and weight decay make of a head's off state.

A byte model (``attention.byte_model``, two layers of two heads) is trained from scratch on text in which a head is
needed at marks alone. B5: a head with softmax must put its weight somewhere when it has nothing to say; with one more
logit, fixed at 0 and of value 0, it can be silent without a sink. Above, against the gradient step: the mass on BOS of
the head that has most of it, in each run at each step (queries that are no marks, so where heads are not needed); with
the extra logit also the largest share of weight left over. Grey: the mass under uniform attention. Below: the sink's
price 1/G in each layer, the least norm of B a nat of margin (B2), on the vectors that enter the scores; a step at which
one seed's layer allows no sink has an infinite price in the table and no point in its line. Lines are means over seeds,
bands Student's 95 % intervals of them, which stop at 0 and, for shares, at 1.
"""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from tqdm import tqdm

from attention.byte_model import ByteSettings, train_byte_model
from numerics import MeanInterval, mean_interval
from paper_figures import style
from paper_figures.settings import Settings
from paper_figures.tables import Table, from_rows

READS_DATA = False

KINDS = {"softmax": "softmax", "extra zero": "softmax with an extra zero logit"}

SHORT = {"softmax": "softmax", "extra zero": "the zero logit"}

DECAYS = (0.0, 1.0)
"""AdamW's weight decay; with 1 an unused weight shrinks to 1/e in 200 steps."""

SEEDS = 4

EMERGED = 0.3
"""A head is called a sink from this mass on: five times the uniform share."""


def compute(settings: Settings) -> dict[str, Table]:
    """Tables ``heads`` (one row a run, step and head) and ``known`` (entropy of the source, uniform mass on BOS)."""
    seeds = range(1 if settings.quick else SEEDS)
    cases = [(kind, decay, seed) for kind in KINDS for decay in DECAYS for seed in seeds]
    rows, known = [], []
    for kind, decay, seed in tqdm(cases, desc="sink_emergence", disable=None):
        steps, every = (20, 10) if settings.quick else (ByteSettings.steps, ByteSettings.every)
        run = train_byte_model(
            ByteSettings(
                extra_zero=kind == "extra zero",
                weight_decay=decay,
                seed=1000 * settings.seed + seed,
                source_seed=settings.seed,
                steps=steps,
                every=every,
            )
        )
        rows += [{"kind": kind, "decay": decay, "seed": seed} | record._asdict() for record in run.records]
        known = [{"entropy": run.floor, "uniform_sink": run.baseline}]
    return {"heads": from_rows(rows), "known": from_rows(known)}


def over_seeds(heads: Table, column: str, kind: str, decay: float, *, layer: int | None = None) -> NDArray[np.float64]:
    """The largest entry over the heads (of a layer), (seeds, steps)."""
    wanted = (heads["kind"] == kind) & (heads["decay"] == decay)
    if layer is not None:
        wanted &= heads["layer"] == layer
    steps, seeds = np.unique(heads["step"]), np.unique(heads["seed"])
    return np.array(
        [
            [heads[column][wanted & (heads["seed"] == seed) & (heads["step"] == step)].max() for step in steps]
            for seed in seeds
        ]
    )


def _interval(runs: NDArray[np.float64]) -> MeanInterval:
    """Mean over seeds and its interval; a single seed has no interval."""
    return mean_interval(runs) if len(runs) > 1 else MeanInterval(runs[0], np.zeros(runs.shape[1]))


def _last(runs: NDArray[np.float64]) -> str:
    found = _interval(runs[:, -1:])
    spread = f" +- {found.half_width[0]:.2f}" if len(runs) > 1 else ""
    return f"{found.mean[0]:.2f}{spread}"


def emerged(heads: Table, kind: str, decay: float) -> NDArray[np.bool_]:
    """Whether each seed's run has a head whose mass on BOS is at least ``EMERGED`` at the end, (seeds,)."""
    return over_seeds(heads, "sink", kind, decay)[:, -1] >= EMERGED


def finding(tables: Mapping[str, Table]) -> str:
    """How much sink and silence there is in the end, and what the price did before."""
    heads = tables["heads"]
    said = []
    for kind, name in KINDS.items():
        for decay in DECAYS:
            sinks = emerged(heads, kind, decay)
            mass = _last(over_seeds(heads, "sink", kind, decay))
            left = f", left over {_last(over_seeds(heads, 'silent', kind, decay))}" if kind == "extra zero" else ""
            said.append(f"{name}, decay {decay:g}: {mass} ({sinks.sum()} of {len(sinks)} runs a sink){left}")
    prices = [over_seeds(heads, "price", "softmax", decay) for decay in DECAYS]
    change = np.concatenate([price[:, -1] / price[:, 0] for price in prices])
    return (
        f"largest mass on BOS of a head at the end, uniform {float(tables['known']['uniform_sink'][0]):.2f}: "
        f"{'; '.join(said)}; with softmax the dearer layer's sink costs {change.min():.2f} to {change.max():.2f} times "
        "its price at the start"
    )


def _band(axes: Axes, steps: NDArray, runs: NDArray[np.float64], highest: float | None, **look) -> None:
    usable = np.isfinite(runs).all(0)
    found = _interval(runs[:, usable])
    axes.plot(steps[usable], found.mean, **look)
    color = look["color"]
    axes.fill_between(steps[usable], *np.clip((found.lower, found.upper), 0, highest), color=color, alpha=0.13, lw=0)


def draw(tables: Mapping[str, Table]) -> Figure:
    """Rows: mass and price. Columns: the kind of softmax. Colours: quantity or layer. Dashed: with weight decay."""
    heads = tables["heads"]
    steps = np.unique(heads["step"])
    figure = style.new_figure(width=style.DOUBLE_COLUMN, height=4.4)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    uniform = float(tables["known"]["uniform_sink"][0])
    for column, (kind, name) in enumerate(KINDS.items()):
        above, below = panels[:, column]
        above.set_title(name)
        above.axhline(uniform, color=style.GREY, linewidth=0.8)
        shares = {"sink": ("mass on BOS", style.VERMILLION), "silent": ("left over", style.BLUE)}
        for decay, line in zip(DECAYS, ("-", "--"), strict=True):
            for quantity, (label, color) in shares.items():
                if quantity == "sink" or kind == "extra zero":
                    look = {"color": color, "linestyle": line, "label": f"{label}, decay {decay:g}"}
                    _band(above, steps, over_seeds(heads, quantity, kind, decay), 1.0, **look)
            for layer in np.unique(heads["layer"]):
                color = (style.GREEN, style.PURPLE, style.ORANGE)[layer % 3]
                look = {"color": color, "linestyle": line, "label": f"layer {layer + 1}, decay {decay:g}"}
                _band(below, steps, over_seeds(heads, "price", kind, decay, layer=layer), None, **look)
        below.set_xlabel("gradient step")
    panels[0, 0].set(ylabel="share of a head's weight", ylim=(0, 1))
    panels[1, 0].set(ylabel="sink's price 1/G (per nat)", ylim=(0, None))
    shown = [handle for axes in panels[:, 1] for handle in axes.get_legend_handles_labels()[0]]
    figure.legend(handles=shown, loc="outside lower center", ncols=4)
    counts = {kind: [emerged(heads, kind, decay) for decay in DECAYS] for kind in KINDS}
    said = (f"{' and '.join(str(of.sum()) for of in counts[kind])} with {short}" for kind, short in SHORT.items())
    figure.suptitle(
        f"Runs, of {len(counts['softmax'][0])} without and with weight decay, that end with a sink "
        f"(a head with {EMERGED:g} of its weight on BOS):\n{', '.join(said)}",
        x=0.01,
        ha="left",
    )
    return figure
