"""What a probe's readings say together: tables small enough to keep, and the study's answers from these tables alone.

``summarise`` reads the folders that ``python -m attention probe --out`` made and writes four CSV files:

- ``probe-heads.csv``: one row a run, layer and head, means over texts;
- ``probe-layers.csv``: one row a run, layer and text;
- ``probe-pooled.csv``: one row a run and layer, all texts together;
- ``probe-answers.csv``: one row a run, question and measure: a value, its interval and what was drawn again for it.

The answers are computed from the rounded tables, so that the tables are enough to check them. Intervals are 95 % ones,
by drawing again whole texts ("texts") or whole layers ("layers"); a relation across layers has to survive both.
"""

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from attention.training import _write_whole
from numerics import StudyInterval, cluster_interval, partial_rank_correlation, rank_correlation

Floats = NDArray[np.float64]
Columns = dict[str, NDArray]

DIGITS = 4
"""Significant digits of the tables."""

DRAWS = 1000
"""Resamples behind an interval."""

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

KINDS = ("switch", "gated MLP", "mixer")

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
        ValueError: a folder without a probe's tables, or two of one name.
    """
    names = [Path(folder).name for folder in folders]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the folders must have different names, got {names}")
    heads, layers, pooled = [], [], []
    for name, folder in zip(names, map(Path, folders), strict=True):
        read = {table: _read(folder / f"{table}.csv") for table in ("heads", "layers", "pooled")}
        sink = json.loads((folder / "probe.json").read_text(encoding="utf-8"))["sink"]
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
    return Study(*(_read(Path(folder) / f"probe-{table}.csv") for table in Study._fields))


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
    heads, layers, pooled = (_read(Path(folder) / f"probe-{table}.csv") for table in ("heads", "layers", "pooled"))
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
            found += self._of_layers(f"mass, {measure}", lambda means, name=name: rank_correlation(*means), name)
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
            found += self._of_layers(
                measure, lambda means: partial_rank_correlation(means[0], means[1], np.array(means[2:]).T), *names
            )
        steps = self._of_layers(
            "change of mass, change of price", lambda means: rank_correlation(*np.diff(means, axis=1)), "price"
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
                f"mass, price within {name} layers": lambda texts, m=m, p=p: (
                    rank_correlation(_typical(m[:, texts]), _typical(p[:, texts])) if len(m) > 1 else math.nan
                ),
            }
            found += [
                (measure, self._interval(statistic, np.arange(self.texts)), "texts", len(layers))
                for measure, statistic in measures.items()
            ]
            if len(layers) > 1:
                means = np.stack([_typical(m), _typical(p)])
                by_layer = self._interval(lambda rows, means=means: rank_correlation(*means[:, rows]), layers)
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
            "mass, mass": lambda texts: rank_correlation(
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
            self._of_heads("mass, price", lambda rows: rank_correlation(mass[rows], price[rows])),
            self._of_heads("mass, cost", lambda rows: rank_correlation(mass[rows], cost[rows])),
            self._of_heads(
                "mass, margin that the cost could buy", lambda rows: rank_correlation(mass[rows], (cost - price)[rows])
            ),
            self._of_heads(
                "mass, price | layer index",
                lambda rows: partial_rank_correlation(mass[rows], price[rows], layer[rows]),
            ),
            self._of_heads(
                "share of the mass's variance between layers", lambda rows: _between(mass[rows], layer[rows])
            ),
        ]
        if not np.isnan(ratio).any():
            measure = "mass, diagonal price over sink price"
            found.append(self._of_heads(measure, lambda rows: rank_correlation(mass[rows], ratio[rows])))
        within = [rank_correlation(mass[layer == place], cost[layer == place]) for place in range(self.depth)]
        spread = self._interval(lambda rows: _mean(np.array(within)[rows]), np.arange(self.depth))
        return [*found, ("mass, cost within a layer, mean over layers", spread, "layers", self.depth)]

    def across_texts(self) -> list[Answer]:
        """Within a layer, has a text with a lower price the higher mass? Mean over layers."""
        mass, price, tokens = (self.by_text[name] for name in ("sink_mass", "price", "tokens"))

        def plain(texts: NDArray[np.int64]) -> float:
            return _mean([rank_correlation(m, p) for m, p in zip(mass[:, texts], price[:, texts], strict=True)])

        def fixed(texts: NDArray[np.int64]) -> float:
            return _mean(
                [
                    partial_rank_correlation(m, p, t)
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
            "mass, value ratio": lambda rows: rank_correlation(
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
            "spread left, expected": lambda rows: rank_correlation(
                heads["spread"][rows], heads["spread_expected"][rows]
            ),
            "spread left, sparsity": lambda rows: rank_correlation(heads["spread"][rows], heads["rows"][rows]),
            "spread left, sparsity | sink mass": lambda rows: partial_rank_correlation(
                heads["spread"][rows], heads["rows"][rows], heads["sink_mass"][rows]
            ),
            "spread left, sink mass": lambda rows: rank_correlation(heads["spread"][rows], heads["sink_mass"][rows]),
            "spread left, diagonal mass": lambda rows: rank_correlation(
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

        Of the texts for which everything is known in every layer.
        """
        tables = np.stack([self.by_text[name] for name in ("sink_mass", *names)])
        tables = tables[:, :, ~np.isnan(tables).any((0, 1))]
        texts = tables.shape[-1]
        if texts < 2:
            return []

        def of_texts(texts: NDArray[np.int64]) -> float:
            return statistic(_typical(tables[:, :, texts]))

        means = _typical(tables)
        by_text = self._interval(of_texts, np.arange(texts))
        by_layer = self._interval(lambda layers: statistic(means[:, layers]), np.arange(self.depth))
        return [(measure, by_text, "texts", self.depth), (measure, by_layer, "layers", self.depth)]

    def _interval(self, statistic: Callable[[NDArray[np.int64]], float], clusters: NDArray) -> StudyInterval:
        if len(np.unique(clusters)) < 2:
            # Of one text, or one layer, nothing can be drawn again.
            return _exact(statistic(np.arange(len(clusters))))
        return cluster_interval(statistic, clusters, draws=self.draws)

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
    """Share of the variance that lies between groups, in [0, 1]."""
    _, place = np.unique(groups, return_inverse=True)
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


def _read(path: Path) -> Columns:
    """The columns of a CSV file: numbers where every cell is one, True and False as 1 and 0, nothing as NaN."""
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = list(csv.reader(file))
    return {name: _column([row[place] for row in rows]) for place, name in enumerate(header)}


_WORDS = {"True": "1", "False": "0", "": "nan"}


def _column(cells: list[str]) -> NDArray:
    try:
        numbers = np.array([float(_WORDS.get(cell, cell)) for cell in cells])
    except ValueError:
        return np.array(cells)
    return numbers.astype(int) if all(cell.lstrip("-").isdigit() for cell in cells) else numbers


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    lines = [",".join(rows[0])]
    lines += [",".join(map(_cell, row.values())) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.{DIGITS}g}"
    return f'"{value}"' if "," in str(value) else str(value)
