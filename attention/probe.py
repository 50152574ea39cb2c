"""The probe: what a pretrained model's heads do, and what that costs by the theory of sinks and diagonals (B8).

``read_layer`` reads one layer of one text; ``probe`` reads every layer of every text and pools the tokens of all texts.

What a head is, from B6's gate g_i = a_ii/(a_ii + a_i0) and leak l_i = 1 - a_i0 - a_ii, by their means over the queries:
a *mixer* looks elsewhere than at itself and the sink by more than half (leak above 1/2); else it is a *switch* where it
mostly looks at the sink (gate below 1/2), and a *gated MLP* where it mostly looks at itself.

A sink is *silent* where the length of its value is below half the median length of the other values: then moving
weight to it turns the head down. Else it is *broadcasting*: it writes its own value into every token. The two kinds are
those of Fesser et al. (2606.08105); the half is ours. It lies between their extremes, a value near zero and a value as
long as any other.
"""

import csv
import io
import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from attention.pretrained import LayerView, Pretrained, _numbered
from attention.training import _write_whole
from numerics import (
    PriceBracket,
    causal_sink_bracket,
    dispersion_terms,
    hard_switch,
    head_cost,
    hull_distance,
    pattern_price,
    price_of_margins,
    relative_dispersion,
    soft_switch,
    wendel_probability,
)
from numerics.convex_hulls import EXACT_WORK, nearest_to_origin
from numerics.inputs import check_floating
from numerics.token_clouds import row_lengths

Cloud = NDArray[np.float64]
Sink = Literal["first", "last"]
Prices = Literal["sinks", "fast", "full"]
HeadKind = Literal["switch", "gated MLP", "mixer"]
SinkKind = Literal["silent", "broadcasting"]

PRICED_TOKENS = 24
"""With ``prices="fast"``, so many tokens of a text are priced beside its sink, drawn by the seed."""

PRICED_TEXTS = 6
"""With ``prices="fast"``, the diagonals of rotary models are priced on so many texts, the first ones."""

TOLERANCE: dict[Prices, float] = {"sinks": 0.2, "fast": 0.2, "full": 0.05}
"""How far apart, relatively, the two sides of a diagonal's price may stay."""

SILENT = 0.5
"""A sink whose value is shorter than this share of the others' median length is silent."""

MASS = 0.3
"""The table counts the heads that put more than this on the sink, mean over queries and texts."""

WIDTH = 120
"""Columns of the table at most."""

MARK = "*"
"""Stands behind the price of the sampled tokens where all tokens of a text at once have no sink."""


class _Column(NamedTuple):
    width: int
    meaning: str


_COLUMNS = {
    "layer": _Column(5, "from 0"),
    "sink": _Column(5, "attention on the sink, mean over all other queries, 0 to 1; uniform attention: unif."),
    "diag": _Column(5, "attention on the own token, likewise"),
    "unif.": _Column(5, "what both are where attention is uniform, 1/T to 1/2"),
    "g_q": _Column(
        6, "distance of 0 from the hull of the queries, at least 0; 0: no sink but by positions or causality"
    ),
    "g_k": _Column(6, "distance of the sink from the hull of the other keys, at least 0; 0: likewise"),
    "sink price": _Column(15, "least nuclear norm of a sink, above 0, as the layer must make it; inf: there is none"),
    "diagonal price": _Column(14, "the same for the diagonal, on the same tokens; -: not computed"),
    "ratio": _Column(14, "diagonal price over sink price, above 0; above 1 the sink is the cheaper"),
    "paid/price": _Column(
        10, "what a head spends over the price of its own margins, at most; 1: no more than needed; -: has none"
    ),
    "v0/v": _Column(6, "length of the sink's value over the others' mean length, at least 0; 1: one like them"),
    "switch/MLP/mixer": _Column(16, "heads, times texts, that look mostly at the sink, at themselves, elsewhere"),
}
"""The table's columns: how wide, and what they are."""


@dataclass(frozen=True)
class HeadReading:
    """One head on one text. Means are over the queries other than the sink; x_0 is the sink, n = tokens - 1.

    Attributes:
        text, layer, head: where, from 0.
        tokens: T.
        sink_mass: mean of a_i0, in [0, 1]. Baseline: ``uniform``.
        diagonal_mass: mean of a_ii, in [0, 1]. Baseline: ``uniform``.
        uniform: mean of 1/(keys that query i sees), in [1/T, 1/2]: what both masses are for uniform attention.
        strongest_key: the token that gets most attention on average, by its place in the text, 0 .. T - 1.
        strongest_mass: that average, in [1/T, 1]; 1/T only for bidirectional heads. The sink's where it is the sink.
        cost: what the head spends, ||c W_Q^T W_K||_* with the query's bias, with rotary positions the sum over planes;
            at least 0, in the unit of the prices.
        asked: share of the queries that prefer the sink to every other key they see, in [0, 1].
        margins_lower, margins_upper: the price of exactly the margins of those queries, at least 0; proven sides. With
            rotary positions only of the tokens that are priced, which bounds the text's price from below. NaN where no
            query is asked.
        overpaid_lower, overpaid_upper: cost over the two sides; the upper one is at least 1, and 1 for a head that
            spends nothing beyond its sink. NaN where no query is asked.
        value_ratio: ||v_0|| over the mean of ||v_j||, at least 0; 1 for a sink like the others.
        silent_lower, silent_output, silent_upper: B5's sandwich nu (1 - a_i0) <= ||o_i - a_i0 v_0|| <=
            max ||v_j|| (1 - a_i0), means, at least 0; nu is a proven lower bound of the distance of 0 to the hull of
            all values but the sink's.
        gate: B6's mean gate, in [0, 1]; 1/2 where sink and diagonal share. NaN where no query looks at either.
        leak: B6's mean leak, in [0, 1]; uniform attention: 1 - 2 ``uniform``.
        leak_share: B6's distance to the gated map over its bound, mean, in [0, 1]; 1 where the bound is attained. NaN
            without any leak.
        rows, columns: B7's terms of the dispersion of the weights, in [1/T, 1]; both 1/T for uniform bidirectional.
        spread: how much of the values' dispersion is left in the outputs, ||P O||_F^2/||P V||_F^2, at least 0; 1 where
            nothing is smoothed. Baseline: (rows - columns) T/(T - 1), what B7 expects of weights that know nothing of
            the values. NaN where all values are one.
        kind, sink_kind: see the module's text.
    """

    text: int
    layer: int
    head: int
    tokens: int
    sink_mass: float
    diagonal_mass: float
    uniform: float
    strongest_key: int
    strongest_mass: float
    cost: float
    asked: float
    margins_lower: float
    margins_upper: float
    overpaid_lower: float
    overpaid_upper: float
    value_ratio: float
    silent_lower: float
    silent_output: float
    silent_upper: float
    gate: float
    leak: float
    leak_share: float
    rows: float
    columns: float
    spread: float
    kind: HeadKind
    sink_kind: SinkKind


@dataclass(frozen=True)
class LayerReading:
    """One layer on one text: its geometry and prices, which are the same for all its heads. Margin 1.

    Attributes:
        text, layer: where, from 0.
        tokens: T; n = T - 1 queries and the sink.
        dimension: of the span of the tokens beside the sink, 0 .. d.
        g_q, g_k: B1's distances of 0 to the hull of the queries and of the sink to the hull of the keys, at least 0.
            With a query bias the queries are (x_i, 1), so g_q is at least 1. NaN where neither floats nor exact
            arithmetic decide.
        representable: some B makes the sink, without positions and causality; None where undecided.
        wendel: Wendel's chance that random tokens of that number and dimension leave 0 outside their hull, in (0, 1]; 1
            where n <= dimension, and then ``representable`` says nothing about the model. With a query bias it is the
            null of the keys' condition alone.
        sink_price: B2's 1/(g_q g_k), infinite where not representable: of all tokens, bidirectional, no positions.
        priced: how many tokens the prices below are for, beside the sink; below n they are lower bounds of the text's.
        sink_lower, sink_upper: proven sides of the price of the sink as this layer must make it: causal, with biases
            and rotary positions where it has them. NaN where not computed.
        diagonal_lower, diagonal_upper: the same for the diagonal, on the same tokens, with the sink as a key.
        ratio_lower, ratio_upper: diagonal price over sink price; above 1 where the sink is the cheaper.
        sink_length: length of the sink in the residual stream over the mean length of the others; 1 for one like them.
        dispersion_before, dispersion_after: relative dispersion of the residual stream, in [0, 1]; lower after
            smoothing.
    """

    text: int
    layer: int
    tokens: int
    dimension: int
    g_q: float
    g_k: float
    representable: bool | None
    wendel: float
    sink_price: float
    priced: int
    sink_lower: float
    sink_upper: float
    diagonal_lower: float
    diagonal_upper: float
    ratio_lower: float
    ratio_upper: float
    sink_length: float
    dispersion_before: float
    dispersion_after: float


@dataclass(frozen=True)
class PooledReading:
    """One layer on all texts: can one B make every text's own first (or last) token its sink?

    A query of any text is asked to prefer every text's sink to that text's tokens. That is more than any text asks, so
    "representable" here holds for each text, while "not representable" is about the pooled question only.

    Attributes:
        layer: from 0.
        n: how many tokens, sinks not counted.
        dimension, g_q, g_k, representable, wendel: as in ``LayerReading``; the keys' hull is that of all x_0 - x_j,
            each within its text.
        sink_price: 1/(g_q g_k): an upper bound of what a sink in any one text costs.
    """

    layer: int
    n: int
    dimension: int
    g_q: float
    g_k: float
    representable: bool | None
    wendel: float
    sink_price: float


@dataclass(frozen=True)
class ProbeResult:
    """All readings.

    Attributes:
        model, kind, note: of ``Pretrained``.
        sink: which token was taken for the sink.
        prices, seed: how the tokens for the convex programs were chosen.
        heads, layers, pooled: the readings, by text, layer, head.
    """

    model: str
    kind: str
    note: str
    sink: Sink
    prices: Prices
    seed: int
    heads: tuple[HeadReading, ...]
    layers: tuple[LayerReading, ...]
    pooled: tuple[PooledReading, ...]

    def table(self) -> str:
        """Where the sinks are, one line a layer, and what each column is; at most ``WIDTH`` columns.

        Numbers are medians over texts (and heads), brackets are lower..upper.
        """
        texts = 1 + max(row.text for row in self.layers)
        told = [
            f"{self.model} ({self.kind}): {self.note}",
            f"{texts} text(s), sink: the {self.sink} token; medians over texts and heads; prices at margin 1, of "
            f"{max(row.priced for row in self.layers)} tokens a text at most",
            f"{self._verdict()}; {'one text cannot say' if texts == 1 else 'summarise says'} if the price orders them",
        ]
        rows = [self._row(pooled.layer) for pooled in self.pooled]
        lines = [" ".join(f"{cell:>{_COLUMNS[name].width}}" for name, cell in row.items()) for row in rows]
        header = " ".join(f"{name:>{column.width}}" for name, column in _COLUMNS.items())
        legend = {name: column.meaning for name, column in _COLUMNS.items()}
        if any(MARK in row["sink price"] for row in rows):
            legend[MARK] = (
                "of the sampled tokens only; all tokens of some text have g_q or g_k 0: their price may be inf"
            )
        told = [part for line in told for part in textwrap.wrap(line, WIDTH)]
        return "\n".join([*told, header, *lines, *(f"{name:<16} {meaning}" for name, meaning in legend.items())])

    def _verdict(self) -> str:
        masses: dict[tuple[int, int], list[float]] = {}
        for row in self.heads:
            masses.setdefault((row.layer, row.head), []).append(row.sink_mass)
        found = Counter(layer for (layer, _), mass in masses.items() if fmean(mass) > MASS)
        there = f"{found.total()} of {len(masses)} heads put > {MASS:g} on the {self.sink} token"
        if not found:
            return there
        most = max(found.values())
        layers = sorted(layer for layer, count in found.items() if count == most)
        more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
        named = f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers[:3]))}{more}"
        return f"{there}, most in {named} ({most}{' each' * (len(layers) > 1)})"

    def _row(self, layer: int) -> dict[str, str]:
        heads = [row for row in self.heads if row.layer == layer]
        layers = [row for row in self.layers if row.layer == layer]
        price = _bracket(layers, "sink")
        sampled = any(row.representable is False and row.priced < row.tokens - 1 for row in layers)
        return {
            "layer": str(layer),
            "sink": f"{_median(heads, 'sink_mass'):.2f}",
            "diag": f"{_median(heads, 'diagonal_mass'):.2f}",
            "unif.": f"{_median(heads, 'uniform'):.2f}",
            "g_q": _short(_median(layers, "g_q")),
            "g_k": _short(_median(layers, "g_k")),
            "sink price": price + MARK * (sampled and price not in ("inf", "-")),
            "diagonal price": _bracket(layers, "diagonal"),
            "ratio": _bracket(layers, "ratio"),
            "paid/price": _short(_median(heads, "overpaid_upper")),
            "v0/v": _short(_median(heads, "value_ratio")),
            "switch/MLP/mixer": "/".join(str(sum(row.kind == kind for row in heads)) for kind in get_args(HeadKind)),
        }

    def write(self, folder: str | Path) -> None:
        """heads.csv, layers.csv, pooled.csv and probe.json, each whole or not at all.

        JSON has no infinity and no NaN: an infinite price is "inf" there, what was not computed or is not defined null.

        Raises:
            OSError: the folder cannot be made or written to.
        """
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        tables = {
            "heads": (HeadReading, self.heads),
            "layers": (LayerReading, self.layers),
            "pooled": (PooledReading, self.pooled),
        }
        for name, (row, readings) in tables.items():
            _write_whole(place / f"{name}.csv", _csv([field.name for field in fields(row)], readings))
        whole: dict[str, Any] = {
            name: getattr(self, name) for name in ("model", "kind", "note", "sink", "prices", "seed")
        }
        for name, (_, readings) in tables.items():
            whole[name] = [{key: _plain(value) for key, value in asdict(row).items()} for row in readings]
        _write_whole(place / "probe.json", json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n")


def probe(
    pretrained: Pretrained,
    texts: Sequence[str | Sequence[int]],
    *,
    sink: Sink = "first",
    bos: bool | None = None,
    first: str | None = None,
    most: int | None = None,
    prices: Prices = "fast",
    seed: int = 0,
    progress: bool = False,
    names: Sequence[str] | None = None,
) -> ProbeResult:
    """Read every layer and head of a model on some texts.

    Args:
        pretrained: the model.
        texts: strings, or token ids as they are.
        sink: which token is taken for the sink; "last" for models that see both ways only.
        bos: whether strings begin with the tokenizer's BOS (or CLS); by default as the tokenizer does it.
        first: a word; its first token, which must be known, takes the place of each text's own first one, be it a BOS.
        most: tokens of a text at most.
        prices: "fast": of ``PRICED_TOKENS`` tokens a text, and with rotary positions diagonals of ``PRICED_TEXTS``
            texts; "sinks": as fast, without diagonals and heads' margins; "full": of everything, to a smaller
            tolerance.
        seed: of the choice of tokens.
        progress: show a bar where the output is a terminal.
        names: what messages call the texts, such as their files; by default "text 0", "text 1" and so on.

    Returns:
        The readings.

    Raises:
        TypeError: a text that is neither a string nor whole numbers.
        ValueError: no text, one without two tokens, unknown ids, or options that do not fit the model; one line.
    """
    _check_choice("sink", sink, Sink)
    _check_choice("prices", prices, Prices)
    if sink == "last" and pretrained.causal:
        raise ValueError(f"{pretrained.name} is causal: its last token is seen by no other and cannot be a sink")
    if isinstance(texts, str) or not texts:
        raise ValueError(f"texts must be a list of at least one text, got {texts!r}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    if any(isinstance(text, str) for text in texts):
        # What the model lacks is no text's fault.
        pretrained.check_tokenizer(bos)
    start = [] if first is None else _first_token(pretrained, first)
    names = _numbered(texts) if names is None else names
    ids = []
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, Iterable):
            raise TypeError(f"{name} must be a string or a list of token ids, got {text!r}")
        try:
            tokens = pretrained.tokenize(text, bos=bos, most=most) if isinstance(text, str) else list(text)[:most]
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if len(tokens) < 2:
            raise ValueError(f"{name}: a sink and another token are needed, got {len(tokens)} token(s)")
        ids.append([*start, *tokens[len(start) :]])
    # All of them before the long work, which takes one by one.
    pretrained._batch(ids, names)
    heads: list[HeadReading] = []
    layers: list[LayerReading] = []
    pools: list[_Pool] = []
    bar = tqdm(total=len(ids), unit="text", disable=None if progress else True)
    with bar:
        for place, tokens in enumerate(ids):
            for view in pretrained.layers([tokens]):
                if place == 0:
                    pools.append(_Pool(view.layer, view.b_q is not None, head_costs(view)))
                pool = pools[view.layer]
                diagonal = prices == "full" or view.rotation is None or place < PRICED_TEXTS
                layer, of_heads = read_layer(
                    view, text=place, sink=sink, prices=prices, seed=seed, costs=pool.costs, diagonal=diagonal
                )
                layers.append(layer)
                heads += of_heads
                pool.add(view, sink)
            bar.update()
    return ProbeResult(
        model=pretrained.name,
        kind=pretrained.kind,
        note=pretrained.note,
        sink=sink,
        prices=prices,
        seed=seed,
        heads=tuple(heads),
        layers=tuple(layers),
        pooled=tuple(pool.read() for pool in pools),
    )


def _first_token(pretrained: Pretrained, word: str) -> list[int]:
    if not word.strip():
        raise ValueError(f"first must be a word, got {word!r}")
    token = pretrained.tokenize(word, bos=None if pretrained.start is None else False)[:1]
    tokenizer = pretrained.tokenizer
    if token == [tokenizer.unk_token_id] and not word.startswith(tokenizer.unk_token):
        raise ValueError(f"first must be a word that the tokenizer of {pretrained.name} knows, got {word!r}")
    return token


def head_costs(view: LayerView) -> tuple[float, ...]:
    """What each head spends, in the unit of the prices (``HeadReading.cost``), (H,)."""
    stretch = view.scale * view.w_q.shape[1] ** 0.5
    if view.rotation is not None:
        stretch *= view.rotation.factor**2
    costs = []
    for head, keys in enumerate(view.shared.tolist()):
        w_q, w_k = _with_bias(view.w_q, view.b_q, head), _with_bias(view.w_k, None, keys)
        if view.rotation is not None:
            w_k = _with_bias(view.w_k, view.b_k, keys)
        # Without rotation a key bias moves all scores of a query alike.
        costs.append(head_cost(stretch * w_q, w_k, rotary=view.rotation is not None))
    return tuple(costs)


def read_layer(
    view: LayerView,
    *,
    text: int = 0,
    sink: Sink = "first",
    prices: Prices = "fast",
    seed: int = 0,
    costs: Sequence[float] | None = None,
    diagonal: bool = True,
) -> tuple[LayerReading, list[HeadReading]]:
    """Read one layer on one text.

    Args:
        view: of one text, N = 1; padding is left out.
        text: its number, for the reading.
        sink, prices, seed: as in ``probe``.
        costs: ``head_costs(view)``, if it is known already.
        diagonal: whether to price the diagonal, the dearest of all to compute; NaN without.

    Returns:
        The layer's reading and one for each head.

    Raises:
        ValueError: more than one text, fewer than two tokens, or values that are not finite.
    """
    if view.x.shape[0] != 1:
        raise ValueError(f"one text at a time can be read, got {view.x.shape[0]}")
    view = view.text(0).to(torch.float64)
    tokens = view.x.shape[1]
    if tokens < 2:
        raise ValueError("a sink and another token are needed, got one token")
    for name in ("x", "before", "update", "weights"):
        check_floating(name, getattr(view, name))
    places = torch.arange(tokens)
    if sink == "last":
        places = torch.cat([places[-1:], places[:-1]])
        view = view.reordered(places)
    x = view.x[0].numpy()
    geometry = _geometry(x[1:], x[:1] - x[1:], view.b_q is not None)
    pricer = _Pricer(view, _subsample(tokens, prices, seed))
    of_sink = pricer.sink()
    of_diagonal = pricer.diagonal(TOLERANCE[prices]) if diagonal and prices != "sinks" else UNKNOWN
    stream = view.before[0]
    lengths = stream.norm(dim=-1)
    layer = LayerReading(
        text=text,
        layer=view.layer,
        tokens=tokens,
        **geometry._asdict(),
        priced=len(pricer.chosen),
        sink_lower=of_sink.lower,
        sink_upper=of_sink.upper,
        diagonal_lower=of_diagonal.lower,
        diagonal_upper=of_diagonal.upper,
        ratio_lower=_quotient(of_diagonal.lower, of_sink.upper),
        ratio_upper=_quotient(of_diagonal.upper, of_sink.lower),
        sink_length=float(lengths[0] / lengths[1:].mean()),
        dispersion_before=float(relative_dispersion(stream)),
        dispersion_after=float(relative_dispersion(view.after[0])),
    )
    return layer, list(_read_heads(view, text, places, costs or head_costs(view), pricer, prices != "sinks"))


def _read_heads(
    view: LayerView, text: int, places: Tensor, costs: Sequence[float], pricer: "_Pricer", margins_priced: bool
) -> Iterator[HeadReading]:
    weights = view.weights[0]
    # Float32 rows sum to one up to 1e-7, which float64 code calls wrong.
    weights = weights / weights.sum(-1, keepdim=True)
    values = view.values()[0]
    floors = torch.tensor([_distance_floor(cloud[1:].numpy()) for cloud in values])[view.shared]
    values = values[view.shared]
    blocked = view.blocked[0, 0]
    hard = hard_switch(weights, values, blocked=blocked, distances=floors.unsqueeze(-1))
    soft = soft_switch(weights, values)
    terms = dispersion_terms(weights)
    lengths = values.norm(dim=-1)
    spreads, own_spreads = _spread(weights @ values), _spread(values)
    received = weights[:, 1:].mean(1)
    uniform = float((1 / (~blocked).sum(-1)[1:]).mean())
    margins = pricer.margins()
    for head in range(view.heads):
        lead = margins[head]
        sides = pricer.paid(lead) if margins_priced else UNKNOWN
        gate, leak = float(soft.gate[head].nanmean()), float(soft.leak[head].mean())
        share = (soft.distance[head] / soft.bound[head])[soft.bound[head] > 0]
        strongest = int(received[head].argmax())
        yield HeadReading(
            text=text,
            layer=view.layer,
            head=head,
            tokens=weights.shape[-1],
            sink_mass=float(weights[head, 1:, 0].mean()),
            diagonal_mass=float(weights[head].diagonal()[1:].mean()),
            uniform=uniform,
            strongest_key=int(places[strongest]),
            strongest_mass=float(received[head, strongest]),
            cost=costs[head],
            asked=float((lead > 0).mean()),
            margins_lower=sides.lower,
            margins_upper=sides.upper,
            overpaid_lower=_quotient(costs[head], sides.upper),
            overpaid_upper=_quotient(costs[head], sides.lower),
            value_ratio=_quotient(float(lengths[head, 0]), float(lengths[head, 1:].mean())),
            silent_lower=float(hard.lower[head, 1:].mean()),
            silent_output=float(hard.output[head, 1:].mean()),
            silent_upper=float(hard.upper[head, 1:].mean()),
            gate=gate,
            leak=leak,
            leak_share=float(share.mean()),
            rows=float(terms.rows[head]),
            columns=float(terms.columns[head]),
            spread=_quotient(float(spreads[head]), float(own_spreads[head])),
            kind=head_kind(gate, leak),
            sink_kind=sink_kind(float(lengths[head, 0]), float(lengths[head, 1:].median())),
        )


def head_kind(gate: float, leak: float) -> HeadKind:
    """What a head is, from its mean gate and leak; see the module's text."""
    if leak > 0.5:
        return "mixer"
    return "switch" if gate < 0.5 else "gated MLP"


def sink_kind(length: float, median_length: float) -> SinkKind:
    """Silent or broadcasting, from the length of the sink's value and the median of the others'."""
    return "silent" if length < SILENT * median_length else "broadcasting"


class _Sides(NamedTuple):
    lower: float
    upper: float


UNKNOWN = _Sides(math.nan, math.nan)


class _Pricer:
    """The prices of one layer on one text, as its own masks, biases and positions make them."""

    def __init__(self, view: LayerView, chosen: NDArray[np.int64]) -> None:
        self.view, self.chosen = view, chosen
        self.x = view.x[0].numpy()

    def sink(self) -> _Sides:
        return self._sink(self.chosen, np.ones(len(self.chosen)))

    def paid(self, margins: Cloud) -> _Sides:
        """The price of a sink with the margins that a head has, (n,); NaN where no query has one.

        Where it takes a convex program (rotary positions), of the chosen tokens.
        """
        places = np.arange(1, len(self.x)) if self.view.rotation is None else self.chosen
        return self._sink(places, margins[places - 1])

    def diagonal(self, tolerance: float) -> _Sides:
        options = self._options(self.chosen)
        return _sides(lambda: pattern_price(self.x[self.chosen], pattern="diagonal", tolerance=tolerance, **options))

    def _sink(self, places: NDArray[np.int64], margins: Cloud) -> _Sides:
        if not (margins > 0).any():
            return UNKNOWN
        tokens, sink, bias = self.x[places], self.x[0], self.view.b_q is not None
        if self.view.rotation is not None:
            return _sides(lambda: pattern_price(tokens, pattern="sink", margins=margins, **self._options(places)))
        if self.view.causal:
            return _sides(lambda: causal_sink_bracket(tokens, sink, margins=margins, query_bias=bias))
        try:
            price = price_of_margins(tokens, sink, margins, query_bias=bias)
        except ArithmeticError:
            return UNKNOWN
        return _Sides(price, price)

    def _options(self, places: NDArray[np.int64]) -> dict[str, Any]:
        view, rotation = self.view, self.view.rotation
        options: dict[str, Any] = {"sink": self.x[0], "causal": view.causal, "query_bias": view.b_q is not None}
        if rotation is None:
            return options
        return options | {
            "key_bias": view.b_k is not None,
            "frequencies": rotation.frequencies.double().numpy(),
            "positions": rotation.positions.double().numpy()[np.concatenate([[0], places])],
        }

    def margins(self) -> Cloud:
        """How far each query's score of the sink is above its largest other score, (H, n)."""
        scores = self.view.scores()[0].masked_fill(self.view.blocked[0], -math.inf)
        return (scores[:, 1:, 0] - scores[:, 1:, 1:].amax(-1)).numpy()


def _sides(solve: Callable[[], PriceBracket]) -> _Sides:
    """The two sides of a price; not known where neither floats nor exact arithmetic decide."""
    try:
        found = solve()
    except ArithmeticError:
        return UNKNOWN
    return _Sides(found.lower, found.upper)


class _Geometry(NamedTuple):
    dimension: int
    g_q: float
    g_k: float
    representable: bool | None
    wendel: float
    sink_price: float


def _geometry(queries: Cloud, gaps: Cloud, query_bias: bool) -> _Geometry:
    """B1 and B2 of queries x_i and gaps x_0 - x_j; the distance of x_0 to the keys is that of 0 to the gaps."""
    dimension = int(np.linalg.matrix_rank(queries))
    null = float(wendel_probability(len(queries), max(dimension, 1)))
    asked = np.hstack([queries, np.ones((len(queries), 1))]) if query_bias else queries
    g_q, g_k = _hull_distance(asked), _hull_distance(gaps)
    if g_q == 0 or g_k == 0:  # Either alone forbids the sink, whether or not the other could be told.
        return _Geometry(dimension, g_q, g_k, False, null, math.inf)
    if math.isnan(g_q * g_k):
        return _Geometry(dimension, g_q, g_k, None, null, math.nan)
    return _Geometry(dimension, g_q, g_k, True, null, 1 / (g_q * g_k))


def _hull_distance(points: Cloud) -> float:
    """The distance of 0 to the hull: 0.0 where it is proven inside, NaN where that was left undecided."""
    try:
        found = hull_distance(points)
    except ArithmeticError:
        return math.nan
    return 0.0 if found.inside else found.distance


class _Pool:
    """The tokens of one layer, text by text."""

    def __init__(self, layer: int, query_bias: bool, costs: tuple[float, ...]) -> None:
        self.layer, self.query_bias, self.costs = layer, query_bias, costs
        self.queries: list[NDArray[np.float32]] = []
        self.gaps: list[Cloud] = []

    def add(self, view: LayerView, sink: Sink) -> None:
        x = view.x[0].numpy()
        own, others = (x[0], x[1:]) if sink == "first" else (x[-1], x[:-1])
        self.queries.append(others)
        self.gaps.append(own.astype(np.float64) - others)

    def read(self) -> PooledReading:
        queries = np.concatenate(self.queries).astype(np.float64)
        geometry = _geometry(queries, np.concatenate(self.gaps), self.query_bias)
        return PooledReading(self.layer, len(queries), **geometry._asdict())


def _subsample(tokens: int, prices: Prices, seed: int) -> NDArray[np.int64]:
    """Places of the tokens beside the sink that are priced, in order."""
    others = np.arange(1, tokens)
    if prices == "full" or len(others) <= PRICED_TOKENS:
        return others
    return np.sort(np.random.default_rng([seed, tokens]).choice(others, PRICED_TOKENS, replace=False))


def _distance_floor(values: Cloud) -> float:
    """A proven lower bound of the distance of 0 to the hull of values, from floats alone; 0.0 where they prove nothing.

    It holds for the values that any query sees, too. Exact arithmetic would take seconds for each of hundreds of heads.
    """

    def refuse(_: list[int]) -> list[list[int]]:
        raise AssertionError("the width given forbids exact arithmetic")

    rounding = 8 * np.finfo(float).eps * row_lengths(values)
    try:
        return nearest_to_origin(values, rounding, refuse, EXACT_WORK + 1).lower
    except ArithmeticError:
        return 0.0


def _spread(vectors: Tensor) -> Tensor:
    """||P X||_F^2 of each (T, d), P taking the mean away."""
    return (vectors - vectors.mean(-2, keepdim=True)).square().sum((-2, -1))


def _with_bias(weights: Tensor, bias: Tensor | None, place: int) -> Cloud:
    """A projection with its bias as one more column, (d_k, d) or (d_k, d + 1)."""
    rows = weights[place].double().numpy()
    return rows if bias is None else np.hstack([rows, bias[place].double().numpy()[:, None]])


def _quotient(upper: float, lower: float) -> float:
    """upper/lower, infinite over 0; NaN for 0/0, for two infinities and where one is not known."""
    if lower == 0:
        return math.inf if upper > 0 else math.nan
    return upper / lower


def _median(rows: Sequence[Any], name: str) -> float:
    known = [value for row in rows if not math.isnan(value := getattr(row, name))]
    return median(known) if known else math.nan


def _bracket(rows: Sequence[Any], name: str) -> str:
    lower, upper = (_short(_median(rows, f"{name}_{side}")) for side in ("lower", "upper"))
    return lower if lower == upper else f"{lower}..{upper}"


def _short(value: float) -> str:
    """Three digits (two below 0.01) in at most six characters; - where not known."""
    if math.isnan(value):
        return "-"
    if not 1e-3 <= abs(value) < 1e4 and value != 0:
        return f"{value:.0e}"
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.{3 if abs(value) >= 0.01 else 2}g}"


def _csv(names: Sequence[str], readings: Sequence[Any]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([["" if value is None else value for value in asdict(row).values()] for row in readings])
    return text.getvalue().encode()


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else "inf"
    return value


def _check_choice(name: str, value: str, known: Any) -> None:
    if value not in get_args(known):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(known)))}, got {value!r}")
