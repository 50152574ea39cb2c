"""What a probe's readings say together: tables small enough to keep, and the study's answers from these tables alone.

``summarise`` reads the folders that ``python -m attention probe --out`` made and writes four CSV files:

- ``probe-heads.csv``: one row a run, layer and head, means over texts;
- ``probe-layers.csv``: one row a run, layer and text;
- ``probe-pooled.csv``: one row a run and layer, all texts together;
- ``probe-answers.csv``: one row a run, question and measure: a value, its interval and what was drawn again for it.

The answers are computed from the rounded tables, so that the tables are enough to check them. Intervals are 95 % ones,
by drawing again whole texts ("texts") or whole layers ("layers"); a relation across layers has to survive both. What is
not defined is left empty, and so is the interval of fewer than ``FEWEST`` texts or layers; relations across fewer
layers are left out.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from attention.probe import HeadKind, HeadReading, LayerReading, PooledReading, Sink
from attention.training import _write_whole
from numerics import StudyInterval, cluster_interval, partial_rank_correlation

Floats = NDArray[np.float64]
Columns = dict[str, NDArray]

DIGITS = 4
"""Significant digits of the tables."""

DRAWS = 1000
"""Resamples behind an interval."""

FEWEST = 4
"""Fewer texts or layers than these give no interval when they are drawn again: so few often agree by chance."""

MEANS = (
    "sink_mass",
    "diagonal_mass",
    "uniform",
    "cost",
    "asked",
    "overpaid_lower",
    "overpaid_upper",
    "value_ratio",
    "silent_lower",
    "silent_output",
    "silent_upper",
    "leak",
    "leak_share",
    "rows",
    "spread",
)
"""Columns of a head that are averaged over texts, over those where they are defined; the overpaid ones as logarithms,
since some texts ask for next to nothing."""

KINDS: tuple[HeadKind, ...] = get_args(HeadKind)

LONG = 4.0
"""A token that many times as long as the others in the residual stream, median over texts, is a long one."""

OF_LAYER = (
    "g_q",
    "g_k",
    "representable",
    "sink_lower",
    "sink_upper",
    "diagonal_lower",
    "diagonal_upper",
    "sink_length",
    "dispersion_before",
    "dispersion_after",
)


WORDS = ("run", "question", "measure", "drawn", "kind", "sink_kind")
"""Columns of words; all others hold numbers, True, False or nothing."""

_PROBED = {
    table: tuple(field.name for field in fields(row))
    for table, row in {"heads": HeadReading, "layers": LayerReading, "pooled": PooledReading}.items()
}
_OF_HEAD = ("strongest", "spread_expected", "imbalance", "silent", "silent switch", *KINDS)
_STUDIED = {
    "heads": ("run", "layer", "head", "texts", *MEANS, *_OF_HEAD),
    "layers": ("run", "layer", "text", "tokens", "sink_mass", "diagonal_mass", *OF_LAYER),
    "pooled": ("run", *_PROBED["pooled"]),
    "answers": ("run", "question", "measure", "value", "lower", "upper", "drawn", "rows"),
}


class Study(NamedTuple):
    """The four tables, column by column."""

    heads: Columns
    layers: Columns
    pooled: Columns
    answers: Columns


def summarise(folders: Sequence[str | Path], out: str | Path, *, draws: int = DRAWS, progress: bool = False) -> Study:
    """Read probes, write the four tables.

    Args:
        folders: of ``python -m attention probe --out``; the name of a folder is that of the run.
        out: folder for the tables.
        draws: how often texts or layers are drawn again for an interval.
        progress: show a bar where the output is a terminal.

    Raises:
        OSError: a folder that cannot be read or written to.
        ValueError: tables that are not a probe's, or two folders of one name.
    """
    names = [Path(folder).absolute().name for folder in folders]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the folders must have different names, got {names}")
    heads, layers, pooled = [], [], []
    for name, folder in zip(names, map(Path, folders), strict=True):
        read, sink = _read_probe(folder)
        heads += [{"run": name} | row for row in _head_means(read["heads"], sink)]
        layers += [{"run": name} | row for row in _layer_rows(read["heads"], read["layers"])]
        pooled += [{"run": name} | row for row in _rows(read["pooled"])]
    place = Path(out)
    place.mkdir(parents=True, exist_ok=True)
    for table, rows in {"heads": heads, "layers": layers, "pooled": pooled}.items():
        _write_whole(place / f"probe-{table}.csv", _csv(rows))
    _write_whole(place / "probe-answers.csv", _csv(answers(place, draws=draws, progress=progress)))
    return read_study(place)


def read_study(folder: str | Path) -> Study:
    """The four tables that ``summarise`` wrote.

    Raises:
        OSError, ValueError: a table that cannot be read.
    """
    return Study(*(_read_studied(folder, table) for table in Study._fields))


def answers(folder: str | Path, *, draws: int = DRAWS, progress: bool = False) -> list[dict[str, Any]]:
    """The study's questions, answered from ``probe-heads.csv``, ``probe-layers.csv`` and ``probe-pooled.csv``.

    Args:
        folder: where they are.
        draws: how often texts or layers are drawn again for an interval.
        progress: show a bar where the output is a terminal.

    Returns:
        Rows of run, question, measure, value, lower, upper, drawn ("texts", "layers" or "" for a mere count) and rows,
        how many numbers the value is of.
    """
    heads, layers, pooled = (_read_studied(folder, table) for table in ("heads", "layers", "pooled"))
    found = []
    for run in tqdm(dict.fromkeys(heads["run"].tolist()), unit="run", disable=None if progress else True):
        of_run = _OfRun(draws, *(_where(table, table["run"] == run) for table in (heads, layers, pooled)))
        for question in (
            of_run.across_layers,
            of_run.long_tokens,
            of_run.across_heads,
            of_run.across_texts,
            of_run.sink_or_diagonal,
            of_run.overpaid,
            of_run.alignment,
            of_run.kinds,
            of_run.smoothing,
        ):
            found += _answered(run, question.__name__.replace("_", " "), question())
        base = run.rpartition("-")[0]
        if base in heads["run"]:
            other = _OfRun(draws, *(_where(table, table["run"] == base) for table in (heads, layers, pooled)))
            found += _answered(run, f"compared with {base}", of_run.compared(other))
    return found


def _answered(run: str, question: str, found: "list[Answer]") -> list[dict[str, Any]]:
    return [
        {"run": run, "question": question, "measure": measure, "value": answer.value}
        | {"lower": answer.lower, "upper": answer.upper, "drawn": drawn, "rows": rows}
        for measure, answer, drawn, rows in found
    ]


Answer = tuple[str, StudyInterval, str, int]


class _OfRun:
    """One run's tables, and each question to them."""

    def __init__(self, draws: int, heads: Columns, layers: Columns, pooled: Columns) -> None:
        self.draws, self.heads, self.layers, self.pooled = draws, heads, layers, pooled
        self.texts, self.depth = len(np.unique(layers["text"])), len(np.unique(layers["layer"]))
        order = np.lexsort((layers["text"], layers["layer"]))
        # (L, N): a row a layer, a column a text.
        self.by_text = {
            name: column[order].reshape(self.depth, self.texts)
            for name, column in layers.items()
            if column.dtype.kind != "U"
        }
        with np.errstate(divide="ignore"):
            self.by_text |= {
                "price": np.log(self.by_text["sink_lower"] * self.by_text["sink_upper"]) / 2,
                "price_lower": np.log(self.by_text["sink_lower"]),
                "price_upper": np.log(self.by_text["sink_upper"]),
                "bidirectional_price": -np.log(self.by_text["g_q"] * self.by_text["g_k"]),
                "queries_distance": np.log(self.by_text["g_q"]),
                "sink_distance": np.log(self.by_text["g_k"]),
                "length": np.log(self.by_text["sink_length"]),
            }
            diagonal = np.log(self.by_text["diagonal_lower"] * self.by_text["diagonal_upper"]) / 2
        self.by_text["ratio"] = diagonal - self.by_text["price"]
        self.by_text["index"] = np.repeat(np.arange(self.depth, dtype=float)[:, None], self.texts, axis=1)

    def across_layers(self) -> list[Answer]:
        """Does a layer's price rank the layers by their sink mass, both medians over texts?"""
        predictors = {
            "price": "price",
            "price, lower side": "price_lower",
            "price, upper side": "price_upper",
            "price without positions and causality": "bidirectional_price",
            "diagonal price over sink price": "ratio",
            "distance of the queries": "queries_distance",
            "distance of the sink": "sink_distance",
            "length of the sink": "length",
            "layer index": "index",
        }
        found = []
        for measure, name in predictors.items():
            found += self._of_layers(f"mass, {measure}", lambda means, name=name: _correlation(*means), name)
        fixed = {
            "mass, price | layer index": ("price", "index"),
            "mass, price without positions and causality | layer index": ("bidirectional_price", "index"),
            "mass, price | length of the sink": ("price", "length"),
            "mass, diagonal price over sink price | layer index": ("ratio", "index"),
            "mass, price | layer index, length of the sink": ("price", "index", "length"),
            "mass, length of the sink | price": ("length", "price"),
            "mass, length of the sink | layer index": ("length", "index"),
            "mass, distance of the sink | layer index": ("sink_distance", "index"),
            "mass, distance of the queries | layer index": ("queries_distance", "index"),
        }
        for measure, names in fixed.items():
            found += self._of_layers(measure, lambda means: _correlation(*means), *names)
        steps = self._of_layers(
            "change of mass, change of price", lambda means: _correlation(*np.diff(means, axis=1)), "price"
        )
        # Layers drawn again have no next layer, so only texts are drawn here.
        return [*found, *steps[:1]]

    def long_tokens(self) -> list[Answer]:
        """Is the sink where token 0 is a long one, and does the price say more than that?"""
        long = _typical(self.by_text["length"]) > math.log(LONG)
        if long.all() or not long.any():
            return []
        mass, price = self.by_text["sink_mass"], self.by_text["price"]
        found: list[Answer] = []
        for name, layers in {"long": np.flatnonzero(long), "other": np.flatnonzero(~long)}.items():
            m, p = mass[layers], price[layers]
            measures: dict[str, Callable[[NDArray[np.int64]], float]] = {
                f"mean mass, {name} layers": lambda texts, m=m: _mean(m[:, texts]),
                f"median price, {name} layers": lambda texts, p=p: float(np.exp(_median(p[:, texts]))),
                f"mass, price within {name} layers": lambda texts, m=m, p=p: _correlation(
                    _typical(m[:, texts]), _typical(p[:, texts])
                ),
            }
            found += [
                (measure, self._interval(statistic, np.arange(self.texts)), "texts", len(layers))
                for measure, statistic in measures.items()
            ]
            if len(layers) > 1:
                means = np.stack([_typical(m), _typical(p)])
                by_layer = self._interval(lambda rows, means=means: _correlation(*means[:, rows]), layers)
                found.append((f"mass, price within {name} layers", by_layer, "layers", len(layers)))
        return found

    def compared(self, other: "_OfRun") -> list[Answer]:
        """The same texts told differently: how mass, price and length change, text by text and layer by layer."""
        if self.by_text["price"].shape != other.by_text["price"].shape:
            return []
        change = {name: self.by_text[name] - other.by_text[name] for name in ("sink_mass", "price", "length")}
        measures: dict[str, Callable[[NDArray[np.int64]], float]] = {
            "change of the mass": lambda texts: _mean(change["sink_mass"][:, texts]),
            "largest change of a layer's mass": lambda texts: float(
                np.abs(_typical(change["sink_mass"][:, texts])).max()
            ),
            "price over price": lambda texts: float(np.exp(_median(change["price"][:, texts]))),
            "length over length": lambda texts: float(np.exp(_median(change["length"][:, texts]))),
            "mass, mass": lambda texts: _correlation(
                _typical(self.by_text["sink_mass"][:, texts]), _typical(other.by_text["sink_mass"][:, texts])
            ),
        }
        return [
            (measure, self._interval(statistic, np.arange(self.texts)), "texts", self.depth * self.texts)
            for measure, statistic in measures.items()
        ]

    def across_heads(self) -> list[Answer]:
        """Does the price of its layer, or what its own cost could buy there, rank the heads by their sink mass?"""
        layer = self.heads["layer"]
        price, ratio = (_typical(self.by_text[name])[layer] for name in ("price", "ratio"))
        mass, cost = self.heads["sink_mass"], np.log(self.heads["cost"])
        found = [
            self._of_heads("mass, price", lambda rows: _correlation(mass[rows], price[rows])),
            self._of_heads("mass, cost", lambda rows: _correlation(mass[rows], cost[rows])),
            self._of_heads(
                "mass, margin that the cost could buy", lambda rows: _correlation(mass[rows], (cost - price)[rows])
            ),
            self._of_heads(
                "mass, price | layer index",
                lambda rows: _correlation(mass[rows], price[rows], layer[rows]),
            ),
            self._of_heads(
                "share of the mass's variance between layers", lambda rows: _between(mass[rows], layer[rows])
            ),
        ]
        if not np.isnan(ratio).any():
            measure = "mass, diagonal price over sink price"
            found.append(self._of_heads(measure, lambda rows: _correlation(mass[rows], ratio[rows])))
        within = [_correlation(mass[layer == place], cost[layer == place]) for place in range(self.depth)]
        spread = self._interval(lambda rows: _mean(np.array(within)[rows]), np.arange(self.depth))
        return [*found, ("mass, cost within a layer, mean over layers", spread, "layers", self.depth)]

    def across_texts(self) -> list[Answer]:
        """Within a layer, has a text with a lower price the higher mass? Mean over layers."""
        mass, price, tokens = (self.by_text[name] for name in ("sink_mass", "price", "tokens"))

        def plain(texts: NDArray[np.int64]) -> float:
            return _mean([_correlation(m, p) for m, p in zip(mass[:, texts], price[:, texts], strict=True)])

        def fixed(texts: NDArray[np.int64]) -> float:
            return _mean(
                [
                    _correlation(m, p, t)
                    for m, p, t in zip(mass[:, texts], price[:, texts], tokens[:, texts], strict=True)
                ]
            )

        if self.texts < 2 or np.isnan(price).any():
            return []
        return [
            (measure, self._interval(statistic, np.arange(self.texts)), "texts", mass.size)
            for measure, statistic in {"mass, price": plain, "mass, price | tokens": fixed}.items()
        ]

    def sink_or_diagonal(self) -> list[Answer]:
        """Which is proven to be the cheaper, and by how much?"""
        lower = self.by_text["diagonal_lower"] / self.by_text["sink_upper"]
        upper = self.by_text["diagonal_upper"] / self.by_text["sink_lower"]
        measures = {
            "share with the sink cheaper": lambda texts: _mean(_known(lower > 1, lower)[:, texts]),
            "share with the diagonal cheaper": lambda texts: _mean(_known(upper < 1, upper)[:, texts]),
            "median of diagonal/sink, lower side": lambda texts: _median(lower[:, texts]),
            "median of diagonal/sink, upper side": lambda texts: _median(upper[:, texts]),
            "least diagonal/sink, lower side": lambda texts: float(np.nanmin(lower[:, texts])),
        }
        # Texts whose diagonals were not priced say nothing here.
        priced = np.flatnonzero(~np.isnan(lower).all(0))
        if len(priced) < 2:
            return []
        number = int((~np.isnan(lower)).sum())
        return [
            (
                measure,
                self._interval(lambda rows, statistic=statistic: statistic(priced[rows]), priced),
                "texts",
                number,
            )
            for measure, statistic in measures.items()
        ]

    def overpaid(self) -> list[Answer]:
        """How far above the price of its own margins does a head pay, and how many queries have a margin?"""
        asked = self.heads["asked"]
        found = [self._of_heads("share of queries that prefer the sink", lambda rows: _mean(asked[rows]))]
        for side in ("lower", "upper"):
            paid = self.heads[f"overpaid_{side}"]
            found += [
                self._of_heads(f"median cost/price, {side} side", lambda rows, paid=paid: _median(paid[rows])),
                self._of_heads(
                    f"median cost/price, {side} side, heads with most queries on the sink",
                    lambda rows, paid=paid: _median(paid[rows][asked[rows] > 0.5]),
                ),
            ]
        afford = np.log(self.heads["cost"]) - _typical(self.by_text["price"])[self.heads["layer"]]
        found.append(
            self._of_heads("median margin that the cost could buy", lambda rows: float(np.exp(_median(afford[rows]))))
        )
        known = self.heads["overpaid_lower"][~np.isnan(self.heads["overpaid_lower"])]
        least = float(known.min()) if len(known) else math.nan
        return [*found, ("least cost/price, lower side", _exact(least), "", len(known))]

    def alignment(self) -> list[Answer]:
        """Is B1 satisfied: in each text, and by all texts' tokens together, where it says something?"""
        able = self.by_text["representable"]
        pooled = self.pooled
        told = pooled["n"] > pooled["dimension"]
        found: list[Answer] = [
            (
                "share of layers and texts that can make the sink",
                self._interval(lambda texts: _mean(able[:, texts]), np.arange(self.texts)),
                "texts",
                able.size,
            ),
        ]
        counts = {
            "layers": self.depth,
            "layers with more tokens than dimensions": told.sum(),
            "of these, layers that can make the sink": np.nansum(pooled["representable"][told]),
            "largest Wendel chance among these": pooled["wendel"][told].max(initial=0.0),
            "least tokens over dimension": (pooled["n"] / pooled["dimension"]).min(),
        }
        return found + [(f"pooled: {name}", _exact(float(count)), "", self.depth) for name, count in counts.items()]

    def kinds(self) -> list[Answer]:
        """What the heads are, and of which kind their sinks are where there is one (mass above 1/2)."""
        sinks = self.heads["sink_mass"] > 0.5
        silent = self.heads["silent"]
        ratio = self.heads["silent_output"] / self.heads["silent_upper"]
        measures: dict[str, Callable[[NDArray[np.int64]], float]] = {
            f"share of heads: {kind}": lambda rows, kind=kind: _mean(self.heads[kind][rows]) for kind in KINDS
        }
        measures |= {
            "mean sink mass": lambda rows: _mean(self.heads["sink_mass"][rows]),
            "mean diagonal mass": lambda rows: _mean(self.heads["diagonal_mass"][rows]),
            "mean uniform mass": lambda rows: _mean(self.heads["uniform"][rows]),
            "share of heads with mass above 1/2": lambda rows: _mean(sinks[rows]),
            "share of texts whose strongest key is the sink": lambda rows: _mean(self.heads["strongest"][rows]),
            "silent sinks among heads with mass above 1/2": lambda rows: _mean(silent[rows][sinks[rows]]),
            "silent sinks among the others": lambda rows: _mean(silent[rows][~sinks[rows]]),
            "median value ratio, heads with mass above 1/2": lambda rows: _median(
                self.heads["value_ratio"][rows][sinks[rows]]
            ),
            "median value ratio, the others": lambda rows: _median(self.heads["value_ratio"][rows][~sinks[rows]]),
            "mass, value ratio": lambda rows: _correlation(
                self.heads["sink_mass"][rows], self.heads["value_ratio"][rows]
            ),
            "median B5 output over upper side": lambda rows: _median(ratio[rows]),
            "median B5 lower over upper side": lambda rows: _median(
                (self.heads["silent_lower"] / self.heads["silent_upper"])[rows]
            ),
            "median B6 distance over bound": lambda rows: _median(self.heads["leak_share"][rows]),
            "median leak": lambda rows: _median(self.heads["leak"][rows]),
        }
        return [self._of_heads(measure, statistic) for measure, statistic in measures.items()]

    def smoothing(self) -> list[Answer]:
        """Does a head smooth, is it what B7 expects, and are B7's columns balanced?"""
        heads = self.heads
        change = np.log(self.by_text["dispersion_after"] / self.by_text["dispersion_before"])
        named = {
            "share of heads that smooth": lambda rows: _mean(heads["spread"][rows] < 1),
            "median spread left": lambda rows: _median(heads["spread"][rows]),
            "median spread expected": lambda rows: _median(heads["spread_expected"][rows]),
            "share of heads with more left than expected": lambda rows: _mean(
                heads["spread"][rows] > heads["spread_expected"][rows]
            ),
            "median imbalance of the columns": lambda rows: _median(heads["imbalance"][rows]),
            "spread left, expected": lambda rows: _correlation(heads["spread"][rows], heads["spread_expected"][rows]),
            "spread left, sparsity": lambda rows: _correlation(heads["spread"][rows], heads["rows"][rows]),
            "spread left, sparsity | sink mass": lambda rows: _correlation(
                heads["spread"][rows], heads["rows"][rows], heads["sink_mass"][rows]
            ),
            "spread left, sink mass": lambda rows: _correlation(heads["spread"][rows], heads["sink_mass"][rows]),
            "spread left, diagonal mass": lambda rows: _correlation(
                heads["spread"][rows], heads["diagonal_mass"][rows]
            ),
        }
        found = [self._of_heads(measure, statistic) for measure, statistic in named.items()]
        return [
            *found,
            (
                "share of layers and texts whose residual stream is smoothed",
                self._interval(lambda texts: _mean((change < 0)[:, texts]), np.arange(self.texts)),
                "texts",
                change.size,
            ),
            (
                "median change of the residual stream's dispersion",
                self._interval(lambda texts: float(np.exp(np.median(change[:, texts]))), np.arange(self.texts)),
                "texts",
                change.size,
            ),
        ]

    def _of_layers(self, measure: str, statistic: Callable[[Floats], float], *names: str) -> list[Answer]:
        """A statistic of layers' medians, (1 + len(names), L), the mass first: with texts and with layers drawn again.

        Of the texts for which everything is known in every layer; nothing where there are too few layers.
        """
        tables = np.stack([self.by_text[name] for name in ("sink_mass", *names)])
        tables = tables[:, :, ~np.isnan(tables).any((0, 1))]
        texts = tables.shape[-1]
        if texts < 2 or self.depth < FEWEST:
            return []

        def of_texts(texts: NDArray[np.int64]) -> float:
            return statistic(_typical(tables[:, :, texts]))

        means = _typical(tables)
        by_text = self._interval(of_texts, np.arange(texts))
        by_layer = self._interval(lambda layers: statistic(means[:, layers]), np.arange(self.depth))
        return [(measure, by_text, "texts", self.depth), (measure, by_layer, "layers", self.depth)]

    def _interval(self, statistic: Callable[[NDArray[np.int64]], float], clusters: NDArray) -> StudyInterval:
        if len(np.unique(clusters)) < FEWEST:
            return _exact(statistic(np.arange(len(clusters))))
        found = cluster_interval(statistic, clusters, draws=self.draws)
        return _exact(math.nan) if math.isnan(found.value) else found

    def _of_heads(self, measure: str, statistic: Callable[[NDArray[np.int64]], float]) -> Answer:
        return measure, self._interval(statistic, self.heads["layer"]), "layers", len(self.heads["layer"])


def _head_means(heads: Columns, sink: str) -> list[dict[str, Any]]:
    """One row a layer and head; ``sink`` is the probe's."""
    tokens = heads["tokens"]
    texts = len(np.unique(heads["text"]))
    derived = {
        "strongest": heads["strongest_key"] == (tokens - 1 if sink == "last" else 0),
        "spread_expected": (heads["rows"] - heads["columns"]) * tokens / (tokens - 1),
        "imbalance": heads["columns"] * tokens,
        "silent": heads["sink_kind"] == "silent",
        "silent switch": (heads["sink_kind"] == "silent") & (heads["kind"] == "switch"),
        **{kind: heads["kind"] == kind for kind in KINDS},
    }
    found = []
    for layer in np.unique(heads["layer"]):
        for head in np.unique(heads["head"]):
            here = (heads["layer"] == layer) & (heads["head"] == head)
            row: dict[str, Any] = {"layer": int(layer), "head": int(head), "texts": texts}
            for name in MEANS:
                values = heads[name][here]
                row[name] = _geometric(values) if name.startswith("overpaid") else _mean(values)
            row |= {name: _mean(values[here]) for name, values in derived.items()}
            found.append(row)
    return found


def _layer_rows(heads: Columns, layers: Columns) -> list[dict[str, Any]]:
    """One row a layer and text, the masses as means over heads."""
    found = []
    for place in np.lexsort((layers["text"], layers["layer"])):
        here = (heads["layer"] == layers["layer"][place]) & (heads["text"] == layers["text"][place])
        row = {name: int(layers[name][place]) for name in ("layer", "text", "tokens")}
        row |= {name: _mean(heads[name][here]) for name in ("sink_mass", "diagonal_mass")}
        row |= {name: layers[name][place].item() for name in OF_LAYER}
        found.append(row)
    return found


def _between(values: Floats, groups: NDArray) -> float:
    """Share of the variance that lies between groups, in [0, 1]; NaN of one group, and where nothing varies."""
    names, place = np.unique(groups, return_inverse=True)
    if len(names) < 2 or np.ptp(values) == 0:
        return math.nan
    means = (np.bincount(place, values) / np.bincount(place))[place]
    return float(((means - values.mean()) ** 2).sum() / ((values - values.mean()) ** 2).sum())


def _exact(value: float) -> StudyInterval:
    return StudyInterval(float(value), math.nan, math.nan, 0.0)


def _known(values: NDArray[np.bool_], where: Floats) -> Floats:
    return np.where(np.isnan(where), np.nan, values)


def _mean(values: Any) -> float:
    """The mean of what is known; NaN where nothing is."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else math.nan


def _typical(columns: Floats) -> Floats:
    """The median of what is known along the last axis, so that a text which cannot make a sink does not decide it."""
    known = ~np.isnan(columns).all(-1)
    found = np.full(columns.shape[:-1], math.nan)
    found[known] = np.nanmedian(columns[known], axis=-1)
    return found


def _median(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else math.nan


def _geometric(values: Floats) -> float:
    with np.errstate(divide="ignore"):
        return float(np.exp(_mean(np.log(values))))


def _where(columns: Columns, here: NDArray[np.bool_]) -> Columns:
    return {name: column[here] for name, column in columns.items()}


def _rows(columns: Columns) -> list[dict[str, Any]]:
    return [
        dict(zip(columns, (value.item() for value in row), strict=True)) for row in zip(*columns.values(), strict=True)
    ]


def _read_probe(folder: Path) -> tuple[dict[str, Columns], Sink]:
    """The tables of ``python -m attention probe --out``, and which token it took for the sink."""
    read = {table: _read(folder / f"{table}.csv", columns, "probe --out") for table, columns in _PROBED.items()}
    for table, axes in (("heads", ("layer", "head", "text")), ("layers", ("layer", "text")), ("pooled", ("layer",))):
        wanted = math.prod(len(np.unique(read[table][axis])) for axis in axes)
        if len(read[table]["layer"]) != wanted:
            raise ValueError(
                f"{folder / table}.csv must have one row for each {' and '.join(axes)}: expected {wanted}, got "
                f"{len(read[table]['layer'])}"
            )
    path = folder / "probe.json"
    try:
        sink = json.loads(_text(path, "probe --out"))["sink"]
        if sink not in get_args(Sink):
            raise KeyError(sink)
    except (ValueError, TypeError, KeyError):
        message = f'{path} must be what `python -m attention probe --out` wrote, with its "sink", first or last'
        raise ValueError(message) from None
    return read, sink


def _read_studied(folder: str | Path, table: str) -> Columns:
    return _read(Path(folder) / f"probe-{table}.csv", _STUDIED[table], "summarise")


def _read(path: Path, columns: Sequence[str], maker: str) -> Columns:
    """These columns of a CSV file: words, and numbers with True and False as 1 and 0, nothing as NaN.

    Raises:
        OSError, ValueError: another file than that command writes; one line.
    """
    header, *rows = [row for row in csv.reader(io.StringIO(_text(path, maker))) if row] or [[]]
    lacking = [name for name in columns if name not in header]
    if lacking or not rows:
        found = f"no column {lacking[0]!r}" if lacking else "no row"
        raise ValueError(f"{path} has {found}; expected a table of `python -m attention {maker}`")
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"{path} must have {len(header)} cells in every row, got {len(row)} in {','.join(row)!r}")
    cells = dict(zip(header, zip(*rows, strict=True), strict=True))
    return {name: np.array(cells[name]) if name in WORDS else _numbers(path, name, cells[name]) for name in columns}


def _text(path: Path, maker: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OSError(f"{path}: {error.strerror}; expected a file of `python -m attention {maker}`") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8; expected a file of `python -m attention {maker}`") from None


_AS_NUMBERS = {"True": "1", "False": "0", "": "nan"}


def _numbers(path: Path, name: str, cells: Sequence[str]) -> NDArray:
    numbers = []
    for cell in cells:
        try:
            numbers.append(float(_AS_NUMBERS.get(cell, cell)))
        except ValueError:
            raise ValueError(f"{path}: column {name!r} must hold numbers, got {cell!r}") from None
    return np.array(numbers, dtype=int if all(cell.lstrip("-").isdecimal() for cell in cells) else float)


def _correlation(x: Floats, y: Floats, *given: Floats) -> float:
    """Their rank correlation, other columns held fixed.

    NaN where something is not known, and of two rows, which correlate by 1 or -1 whatever they are.
    """
    columns = np.array([x, y, *given], dtype=float)
    if len(x) < 3 or np.isnan(columns).any():
        return math.nan
    return partial_rank_correlation(x, y, columns[2:].T)


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    lines = [",".join(rows[0])]
    lines += [",".join(map(_cell, row.values())) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{DIGITS}g}"
    return f'"{value}"' if "," in str(value) else str(value)
