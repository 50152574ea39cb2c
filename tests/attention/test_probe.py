"""The probe on layers that were built by hand, where every reading is known, and on a tiny model."""

import csv
import json
import math
from dataclasses import asdict, fields, replace
from importlib import import_module

import numpy as np
import pytest
import torch

from attention import HeadReading, LayerReading, LayerView, PooledReading, ProbeResult, read_layer
from attention.__main__ import main
from attention.pretrained import Pretrained, Rotation, load
from attention.probe import PRICED_TOKENS, WIDTH, head_costs, head_kind, probe, sink_kind
from numerics import pattern_price
from tests.evidence import agree, at_most

T = 15
N = T - 1
STRONG = 24.0
Z = 2.0


def planted(layer: int, order: tuple[str, ...], *, causal: bool = True) -> LayerView:
    """A layer with one head of each kind, in the given order, on x_0 = f + 2 e_0 and x_i = f + e_i.

    Coordinates: f, e_0, .., e_N. "sink": every query's f meets the key's e_0; its values leave e_0 out, so the sink's
    is zero. "diagonal": e_i meets e_i. "cancelling": all keys alike; values +-1 in turn, so that 0 is in their hull.
    """
    width = T + 1
    x = torch.eye(width)[1:] + torch.eye(width)[0]
    x[0, 1] = Z
    zero = torch.zeros(width, width)
    only = {0: torch.diag(torch.eye(width)[0]), 1: torch.diag(torch.eye(width)[1])}
    others = torch.diag(torch.tensor([0.0, 0.0] + [1.0] * N))
    toward_sink = zero.clone()
    toward_sink[0, 1] = 1.0
    turns = zero.clone()
    turns[0, 2:] = torch.tensor([1.0, -1.0] * (N // 2))
    w = {
        "sink": (only[0] * STRONG, toward_sink, others),
        "diagonal": (STRONG * (others + only[1]), others + only[1], others + only[1]),
        "cancelling": (zero, zero, turns),
    }
    w_q, w_k, w_v = (torch.stack([w[name][part] for name in order]) for part in range(3))
    scale = 0.5
    blocked = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else torch.zeros(T, T, dtype=torch.bool)
    scores = scale * (x @ w_q.mT) @ (x @ w_k.mT).mT
    weights = torch.softmax(scores.masked_fill(blocked, -math.inf), -1)
    w_o = torch.eye(width).expand(3, width, width)
    return LayerView(
        layer=layer,
        x=x[None],
        w_q=w_q,
        w_k=w_k,
        w_v=w_v,
        w_o=w_o,
        shared=torch.arange(3),
        real=torch.ones(1, T, dtype=torch.bool),
        causal=causal,
        scale=scale,
        before=x[None],
        update=(weights @ (x @ w_v.mT)).sum(0)[None],
        weights=weights[None],
    )


ORDERS = (("sink", "diagonal", "cancelling"), ("cancelling", "sink", "diagonal"))


@pytest.fixture(scope="module", params=[True, False], ids=["causal", "bidirectional"])
def readings(request):
    """Both layers of the hand-built model: its layer's reading, and its heads' by kind."""
    torch.set_default_dtype(torch.float64)
    found = []
    for layer, order in enumerate(ORDERS):
        of_layer, heads = read_layer(planted(layer, order, causal=request.param), prices="full")
        assert [head.head for head in heads] == [0, 1, 2]
        found.append((of_layer, dict(zip(order, heads, strict=True))))
    return request.param, found


def test_the_planted_sink_is_read(readings):
    for layer, heads in readings[1]:
        sink = heads["sink"]
        assert sink.sink_mass > 0.99
        agree(sink.strongest_mass, sink.sink_mass)
        assert (sink.strongest_key, sink.kind, sink.sink_kind) == (0, "switch", "silent")
        assert sink.asked == 1
        assert sink.value_ratio == 0
        assert sink.silent_upper < 0.01
        # B = scale STRONG f e_0^T, whose margins are all the same.
        agree(sink.cost, 0.5 * STRONG)
        agree(sink.margins_upper, layer.sink_upper * 0.5 * STRONG * Z, tolerance="program")
        at_most(1.0, sink.overpaid_upper)


def test_the_planted_diagonal_is_read(readings):
    for _, heads in readings[1]:
        own = heads["diagonal"]
        assert own.diagonal_mass > 0.98
        assert (own.kind, own.sink_kind, own.asked) == ("gated MLP", "broadcasting", 0)
        assert own.strongest_mass < 0.25
        # It is not silent: B5's lower side says so by itself.
        agree(own.silent_lower, (1 - own.sink_mass) / math.sqrt(N), tolerance="program")
        agree(own.value_ratio, Z)
        agree(own.cost, 0.5 * STRONG * T)
        assert math.isnan(own.margins_lower)
        assert math.isnan(own.overpaid_upper)


def test_the_cancelling_head_is_silent_without_a_sink(readings):
    causal, found = readings
    for _, heads in found:
        head = heads["cancelling"]
        agree(head.sink_mass, head.uniform)
        agree(head.diagonal_mass, head.uniform)
        agree(head.strongest_mass, head.uniform)
        agree(head.uniform, float(np.mean([1 / (i + 1) for i in range(1, T)])) if causal else 1 / T)
        assert head.kind == "mixer"
        assert head.silent_lower == 0
        # Every second query has seen as many values of either sign, without a mask every query has.
        agree(head.silent_output, float(np.mean([1 / (i + 1) * (i % 2) for i in range(1, T)])) if causal else 0.0)
        assert head.silent_upper > 0.5
        agree(head.rows, float(np.mean([1 / (i + 1) for i in range(T)])) if causal else 1 / T)
        assert head.cost == 0


def test_the_geometry_and_the_prices_of_the_family_are_read(readings):
    """B4's family with t = 1: g_q^2 = 1 + 1/n, g_k^2 = z^2 + 1/n, and both prices from G = g_q g_k."""
    causal, found = readings
    for layer, _ in found:
        G = math.sqrt((1 + 1 / N) * (Z**2 + 1 / N))
        agree(layer.g_q**2, 1 + 1 / N)
        agree(layer.g_k**2, Z**2 + 1 / N)
        agree(layer.sink_price, 1 / G)
        at_most(layer.sink_lower, 1 / G)
        at_most(layer.diagonal_lower, N - 1 + 1 / (N * G))
        if not causal:
            agree(layer.sink_upper, 1 / G)
            at_most(N - 1 + 1 / (N * G), layer.diagonal_upper)
        assert layer.ratio_lower > 1
        assert (layer.representable, layer.dimension, layer.wendel, layer.priced) == (True, N, 1.0, N)


def test_the_spread_of_outputs_is_what_the_weights_leave_of_the_values(readings):
    causal, found = readings
    for _, heads in found:
        # Almost all weight on x_0, whose value is zero: nothing is left. Almost all on the own key: almost everything.
        assert heads["sink"].spread < 1e-3
        assert 0.9 < heads["diagonal"].spread < 1
    # Uniform causal weights on values that cancel: the outputs are their running means.
    values = np.array([0.0] + [1.0, -1.0] * (N // 2))
    outputs = np.cumsum(values) / np.arange(1, T + 1) if causal else np.full(T, values.mean())
    agree(found[0][1]["cancelling"].spread, float(outputs.var() / values.var()), scale=1.0)


def test_dispersion_is_that_of_the_stream(readings):
    for layer, order in enumerate(ORDERS):
        view = planted(layer, order, causal=readings[0])
        for stream, read in (
            (view.before[0], readings[1][layer][0].dispersion_before),
            ((view.before + view.update)[0], readings[1][layer][0].dispersion_after),
        ):
            agree(read, float((stream - stream.mean(0)).square().sum() / stream.square().sum()))


def test_a_wrong_view_is_read_differently():
    """The planted readings are those of this layer: heads that look elsewhere are not taken for its sink."""
    view = planted(0, ORDERS[0], causal=False)
    turned = replace(view, weights=view.weights.roll(1, -1))
    heads = read_layer(turned, prices="full")[1]
    assert heads[0].strongest_key == 1
    assert heads[0].kind == "mixer"
    assert heads[1].diagonal_mass < 0.02


def test_the_order_of_heads_changes_nothing_but_their_numbers(tiny):
    for view in tiny.layers([list(range(9))]):
        order = torch.tensor([2, 0, 3, 1])
        turned = replace(
            view,
            w_q=view.w_q[order],
            w_o=view.w_o[order],
            b_q=view.b_q[order],
            shared=view.shared[order],
            weights=view.weights[:, order],
        )
        (layer, heads), (same, others) = read_layer(view), read_layer(turned)
        assert layer == same
        for new, old in enumerate(order.tolist()):
            alike(others[new], replace(heads[old], head=new), 1e-9)


def test_batching_and_padding_change_nothing(tiny):
    texts = [list(range(9)), [3, 1, 4], [9, 8, 7, 6, 5, 4]]
    together = list(tiny.layers(texts))
    for place, text in enumerate(texts):
        for view, alone in zip(together, tiny.layers([text]), strict=True):
            (layer, heads), (same, others) = read_layer(view.text(place)), read_layer(alone)
            alike(layer, same, 1e-3)
            for head, other in zip(heads, others, strict=True):
                alike(head, other, 1e-3)
    with pytest.raises(ValueError, match="one text at a time can be read, got 3"):
        read_layer(together[0])


def alike(one, other, tolerance):
    for name, value in asdict(one).items():
        if isinstance(value, float):
            assert value == pytest.approx(getattr(other, name), rel=tolerance, abs=tolerance, nan_ok=True), name
        else:
            assert value == getattr(other, name), name


def test_no_head_spends_less_than_the_price_of_what_it_does(tiny, bidirectional):
    """The certificate: the cost of any head is at least the lower side of the price of its own margins."""
    decided = 0
    for model in (tiny, bidirectional):
        result = probe(model, [list(range(2, 14)), [5, 9, 2, 2]], prices="full")
        for head in result.heads:
            if head.asked > 0:
                at_most(head.margins_lower, head.margins_upper)
                at_most(1.0, head.overpaid_upper)
                decided += 1
            at_most(head.silent_lower, head.silent_output)
            at_most(head.silent_output, head.silent_upper)
    assert decided > 5


def test_a_head_cost_follows_scale_and_factor():
    view = planted(0, ORDERS[0])
    plain = head_costs(view)
    doubled = head_costs(replace(view, scale=2 * view.scale))
    agree(np.array(doubled), 2 * np.array(plain))
    turns = Rotation(torch.zeros(4), torch.arange(T))
    rotated = head_costs(replace(view, rotation=turns))
    stretched = head_costs(replace(view, rotation=turns._replace(factor=3.0)))
    agree(np.array(stretched), 9 * np.array(rotated))


def test_the_last_token_can_be_the_sink(bidirectional, tiny):
    view = next(bidirectional.layers([[4, 7, 1, 9]]))
    layer, heads = read_layer(view, sink="last")
    weights = view.weights[0].double()
    for head, read in enumerate(heads):
        agree(read.sink_mass, float(weights[head, :3, 3].mean()), tolerance="program")
        agree(read.diagonal_mass, float(weights[head].diagonal()[:3].mean()), tolerance="program")
        assert read.strongest_key == int(weights[head, :3].mean(0).argmax())
    x = view.x[0].double()
    agree(
        layer.sink_length, float(view.before[0, 3].norm() / view.before[0, :3].norm(dim=-1).mean()), tolerance="program"
    )
    assert layer.tokens == len(x)
    with pytest.raises(ValueError, match="is causal: its last token"):
        probe(tiny, [[1, 2, 3]], sink="last")


def test_kinds_of_heads_and_sinks():
    assert head_kind(0.9, 0.6) == head_kind(math.nan, 1.0) == "mixer"
    assert head_kind(0.4, 0.4) == "switch"
    assert head_kind(0.6, 0.4) == "gated MLP"
    assert sink_kind(0.4, 1.0) == "silent"
    assert sink_kind(0.6, 1.0) == "broadcasting"


def test_pooled_tokens_are_asked_of_all_texts(bidirectional):
    """Three texts of five tokens in a width of 8: n > d, and each text's sink keeps its own keys."""
    texts = [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12, 13, 14, 15]]
    result = probe(bidirectional, texts)
    views = [list(bidirectional.layers([text])) for text in texts]
    for pooled in result.pooled:
        x = [of_text[pooled.layer].x[0].double().numpy() for of_text in views]
        gaps = np.concatenate([cloud[0] - cloud[1:] for cloud in x])
        assert (pooled.n, gaps.shape) == (12, (12, 8))
        assert pooled.dimension == np.linalg.matrix_rank(np.concatenate([cloud[1:] for cloud in x]))
        assert 0 < pooled.wendel < 1
        for text in range(3):
            single = next(row for row in result.layers if (row.text, row.layer) == (text, pooled.layer))
            at_most(single.sink_price, pooled.sink_price)
            at_most(pooled.g_k, single.g_k)


def test_what_is_written_is_what_was_read(tiny, tmp_path):
    result = probe(tiny, [[1, 2, 3, 4], [5, 6, 7]])
    result.write(tmp_path / "made" / "here")
    folder = tmp_path / "made" / "here"
    assert sorted(path.name for path in folder.iterdir()) == ["heads.csv", "layers.csv", "pooled.csv", "probe.json"]
    with open(folder / "heads.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [field.name for field in fields(HeadReading)]
    assert len(rows) == len(result.heads) == 2 * 2 * 4
    assert [float(row["sink_mass"]) for row in rows] == [head.sink_mass for head in result.heads]
    whole = json.loads((folder / "probe.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert (whole["kind"], len(whole["layers"]), len(whole["pooled"])) == ("llama", 4, 2)


def test_json_has_words_for_what_is_not_a_number(tmp_path):
    layer, heads = read_layer(planted(0, ORDERS[0]))
    odd = replace(layer, sink_price=math.inf, representable=None, ratio_lower=math.nan)
    result = ProbeResult("m", "k", "n", "first", "fast", 0, tuple(heads), (odd,), ())
    result.write(tmp_path)
    row = json.loads((tmp_path / "probe.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)["layers"][0]
    assert (row["sink_price"], row["representable"], row["ratio_lower"]) == ("inf", None, None)
    with open(tmp_path / "layers.csv", encoding="utf-8", newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["sink_price"], row["representable"], row["ratio_lower"]) == ("inf", "", "nan")
    assert list(row) == [field.name for field in fields(LayerReading)]


def test_the_table_is_readable_in_120_columns(tiny):
    result = replace(probe(tiny, [[1, 2, 3, 4], [5, 6, 7]]), note="words " * 30)
    lines = result.table().splitlines()
    assert max(map(len, lines)) <= WIDTH == 120
    (header,) = (place for place, line in enumerate(lines) if line.split()[:2] == ["layer", "sink"])
    assert [line.split()[0] for line in lines[header + 1 : header + 3]] == ["0", "1"]
    # One line of the legend a column, in their order.
    legend = lines[header + 3 :]
    assert " ".join(line[:16].strip() for line in legend).split() == lines[header].split()
    assert all(line[17:].strip() for line in legend)


def test_no_number_is_too_wide_for_the_table():
    layer, heads = read_layer(planted(0, ORDERS[0]))
    low, high = 1.234e-3, 9.876e3
    sides = {
        f"{price}_{side}": value
        for price in ("sink", "diagonal", "ratio")
        for side, value in (("lower", low), ("upper", high))
    }
    layers = [replace(layer, **sides, g_q=low, g_k=high)]
    heads = [replace(head, overpaid_upper=high, value_ratio=low) for head in heads]
    pooled = (PooledReading(0, N, N, 1.0, 1.0, True, 1.0, 1.0),)
    lines = ProbeResult("m", "k", "n", "first", "fast", 0, tuple(heads), tuple(layers), pooled).table().splitlines()
    header, row = lines[3:5]
    assert len(row) == len(header) <= WIDTH
    assert "0.0012..9876" in row


def test_the_table_says_where_the_sinks_are(tiny):
    whole = probe(tiny, [[1, 2, 3, 4], [5, 6, 7]])

    def said(masses, result=whole):
        """The verdict where those heads (layer, head) have that mean mass, half as much more on the first text."""
        heads = tuple(
            replace(head, sink_mass=masses.get((head.layer, head.head), 0.1) * (0.5 if head.text else 1.5))
            for head in result.heads
        )
        return replace(result, heads=heads).table().splitlines()[2]

    assert said({}) == "0 of 8 heads put > 0.3 on the first token; summarise says if the price orders them"
    assert said({(1, 0): 0.31, (1, 3): 0.31, (0, 1): 0.4}).startswith(
        "3 of 8 heads put > 0.3 on the first token, most in layer 1 (2);"
    )
    assert "1 of 8 heads" in said({(0, 0): 0.31, (0, 1): 0.29})
    assert "most in layers 0, 1 (1 each);" in said({(0, 0): 0.9, (1, 1): 0.9})
    alone = probe(tiny, [[1, 2, 3, 4]])
    assert alone.table().splitlines()[2].endswith("; one text cannot say if the price orders them")


def test_a_price_of_some_tokens_only_is_marked(tiny):
    """All 60 tokens in a width of 12 have no sink; the 24 that are priced have one."""
    text = np.random.default_rng(5).integers(0, 16, 60).tolist()
    result = probe(tiny, [text])
    able = replace(result, layers=tuple(replace(row, representable=True) for row in result.layers))
    none = replace(result, layers=tuple(replace(row, sink_lower=math.inf, sink_upper=math.inf) for row in able.layers))
    assert [row.representable for row in result.layers].count(False) == result.table().count("* ") - 1 > 0
    assert "of the sampled tokens only" in result.table()
    for other in (able, none, probe(tiny, [text[:12]])):
        assert "*" not in other.table()


def test_the_seed_decides_which_tokens_are_priced(tiny):
    text = [n % 16 for n in range(40)]
    once, again, other = (probe(tiny, [text], seed=seed) for seed in (0, 0, 1))
    assert repr(once) == repr(again)
    assert [row.priced for row in once.layers] == [24, 24]
    assert once.layers[1].sink_upper != other.layers[1].sink_upper
    assert once.layers[1].g_k == other.layers[1].g_k


def test_a_rotary_price_is_of_the_chosen_tokens_where_they_stand_and_of_their_own_margins(tiny):
    """Against ``pattern_price`` on places drawn here, with margins read off the weights: log a_i0 - max log a_ij."""
    ids = np.random.default_rng(5).integers(0, 16, 40).tolist()
    *_, view = tiny.layers([ids])
    layer, heads = read_layer(view, prices="fast", seed=3, diagonal=False)
    places = np.sort(np.random.default_rng([3, 40]).choice(np.arange(1, 40), PRICED_TOKENS, replace=False))
    x = view.x[0].double().numpy()
    logs = view.weights[0].double().log().numpy()

    def price(positions, margins):
        return pattern_price(
            x[places],
            pattern="sink",
            sink=x[0],
            causal=True,
            margins=margins,
            query_bias=view.b_q is not None,
            key_bias=view.b_k is not None,
            frequencies=view.rotation.frequencies.double().numpy(),
            positions=np.asarray(positions, dtype=float),
        )

    even = np.ones(len(places))
    found = price([0, *places], even)
    agree(np.array([layer.sink_lower, layer.sink_upper]), np.array([found.lower, found.upper]), tolerance="program")
    elsewhere = price(range(len(places) + 1), even)
    assert abs(elsewhere.lower / layer.sink_lower - 1) > 1e-3, "positions must matter here"
    priced = [head for head in heads if not math.isnan(head.margins_lower)]
    assert priced
    for head in priced:
        lead = logs[head.head, 1:, 0] - logs[head.head, 1:, 1:].max(-1)
        found, shifted = (price([0, *places], lead[places - back]) for back in (1, 2))
        # The weights are float32.
        sides = torch.tensor([head.margins_lower, head.margins_upper], dtype=torch.float32)
        agree(sides, torch.tensor([found.lower, found.upper], dtype=torch.float32))
        assert abs(shifted.lower / found.lower - 1) > 1e-3, "margins must differ from token to token"


probe_module = import_module("attention.probe")


def test_keys_alone_can_forbid_a_sink_where_queries_were_left_undecided(monkeypatch):
    """One of the keys is the sink itself."""
    generator = np.random.default_rng(0)
    queries, gaps = generator.normal(size=(2, 6, 4)) + 2
    gaps[3] = 0.0
    decided = probe_module._geometry(queries, gaps, False)
    assert (decided.representable, decided.g_k, decided.sink_price) == (False, 0.0, math.inf)
    assert decided.g_q > 0
    solver = probe_module.hull_distance

    def undecided(points):
        if points.shape[1] == 5:
            raise ArithmeticError("too large")
        return solver(points)

    monkeypatch.setattr(probe_module, "hull_distance", undecided)
    open_queries = probe_module._geometry(queries, gaps, True)
    assert math.isnan(open_queries.g_q)
    assert (open_queries.representable, open_queries.g_k, open_queries.sink_price) == (False, 0.0, math.inf)
    assert probe_module._geometry(queries, gaps[:3], True).representable is None


def test_the_prices_of_sinks_alone_are_those_of_the_whole(tiny):
    whole, sinks = (probe(tiny, [[1, 2, 3, 4, 5, 6]], prices=prices) for prices in ("fast", "sinks"))
    for one, other in zip(whole.layers, sinks.layers, strict=True):
        assert math.isnan(other.diagonal_lower)
        assert not math.isnan(one.diagonal_lower)
        assert (one.sink_lower, one.sink_upper, one.g_k) == (other.sink_lower, other.sink_upper, other.g_k)
    assert all(math.isnan(head.margins_lower) for head in sinks.heads)
    assert any(not math.isnan(head.margins_lower) for head in whole.heads)
    assert [head.sink_mass for head in whole.heads] == [head.sink_mass for head in sinks.heads]


def test_values_that_are_not_finite_are_named():
    view = planted(0, ORDERS[0])
    for part in ("weights", "x", "before"):
        value = getattr(view, part).clone()
        value[..., 2, 1] = math.nan
        with pytest.raises(ValueError, match="finite") as caught:
            read_layer(replace(view, **{part: value}))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ([], {}, "at least one text"),
        ([[1, 2], [3]], {}, "text 1: a sink and another token are needed, got 1 token"),
        ([[]], {}, "text 0: a sink and another token are needed, got 0 token"),
        ([[1, 2]], {"sink": "middle"}, "sink must be one of 'first', 'last', got 'middle'"),
        ([[1, 2]], {"prices": "free"}, "prices must be one of 'sinks', 'fast', 'full', got 'free'"),
        ("CCO", {}, "texts must be a list of at least one text, got 'CCO'"),
        ([[1, 2]], {"seed": -1}, "seed must be at least 0, got -1"),
        ([[1, 2], [3, 16]], {}, "text 1 must hold token ids below 16, got 3 to 16"),
        ([[1, 2], [3, -1]], {}, "text 1 must hold token ids below 16, got -1 to 3"),
        ([[1, 2], [3, 2.5]], {}, r"text 1 must hold whole numbers as token ids, got 2\.5"),
        ([[1, 2], None], {}, "text 1 must be a string or a list of token ids, got None"),
    ],
)
def test_bad_input_is_one_line(tiny, monkeypatch, texts, options, message):
    # Before anything is read.
    monkeypatch.setattr(Pretrained, "layers", pytest.fail)
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        probe(tiny, texts, **options)
    assert "\n" not in str(caught.value)


def test_ids_may_be_numbers_of_numpy_or_torch(tiny):
    ids = [1, 2, 3]
    for same in (np.array(ids), torch.tensor(ids)):
        assert repr(probe(tiny, [same])) == repr(probe(tiny, [ids]))  # pyright: ignore[reportArgumentType]


def test_one_token_cannot_be_read():
    view = planted(0, ORDERS[0])
    real = torch.zeros(1, T, dtype=torch.bool)
    real[0, 0] = True
    with pytest.raises(ValueError, match="a sink and another token"):
        read_layer(replace(view, real=real))


transformers = pytest.importorskip("transformers", reason="the probe needs transformers: pip install sinkproof[probe]")
TINY = {
    "llama": transformers.LlamaConfig(
        vocab_size=16,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        intermediate_size=8,
        attention_bias=True,
        max_position_embeddings=64,
    ),
    "bert": transformers.BertConfig(
        vocab_size=16,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=32,
    ),
}


def made(folder, name) -> Pretrained:
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(3)
    model = transformers.AutoModel.from_config(TINY[name])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.5)
    model.save_pretrained(folder)
    return load(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return made(tmp_path_factory.mktemp("tiny"), "llama")


@pytest.fixture(scope="module")
def bidirectional(tmp_path_factory):
    return made(tmp_path_factory.mktemp("bidirectional"), "bert")


def test_command_prints_a_table_and_writes(tmp_path, capsys):
    (tmp_path / "text.smi").write_text("CC(=O)O.OCC>>CC(=O)OCC", encoding="utf-8")
    out = tmp_path / "out"
    assert main(["probe", "rxnmapper", "--text", str(tmp_path / "text.smi"), "--out", str(out), "--no-bos"]) == 0
    printed = capsys.readouterr().out
    assert "rxnmapper (albert)" in printed
    lines = printed.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.split()[0].isdecimal() and line.split()[-1].count("/") == 2 for line in lines) == 12
    assert (out / "probe.json").is_file()
    rows = json.loads((out / "probe.json").read_text(encoding="utf-8"))["layers"]
    assert rows[0]["tokens"] == 22


def test_the_first_token_can_be_replaced_by_a_words():
    rxn = load("rxnmapper")
    replaced = probe(rxn, ["CCO"], bos=False, first="NCl")
    for one, other in zip(replaced.layers, probe(rxn, ["NCO"], bos=False).layers, strict=True):
        assert one == other
    # With a CLS in front, that is what the word replaces; ids as they are can be replaced, too.
    start = rxn.tokenize("N", bos=False)[0]
    for one, other in zip(
        probe(rxn, ["CCO"], first="N").layers, probe(rxn, [[start, *rxn.tokenize("CCO")[1:]]]).layers, strict=True
    ):
        assert one == other


def test_command_reads_several_texts_at_once(tmp_path, capsys):
    for name in "ab":
        (tmp_path / name).write_text("CCO>>CC=O", encoding="utf-8")
    assert main(["probe", "rxnmapper", "--text", str(tmp_path / "a"), str(tmp_path / "b"), "--first", "N"]) == 0
    assert "2 text(s)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b"\xff\xfeab", [], "is not a text in UTF-8"),
        (b"", [], "is empty"),
        (b" \n ", [], "is empty"),
        (b"C", ["--max-tokens", "1"], "expected a whole number from 2"),
        (None, [], "text cannot be read: No such file or directory; --text needs a file of text in UTF-8"),
    ],
)
def test_command_names_a_bad_text_in_one_line(tmp_path, capsys, content, options, message):
    path = tmp_path / "text"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit) as caught:
        main(["probe", "rxnmapper", "--text", str(path), *options])
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "Errno" not in printed
    assert message in printed


def test_command_names_the_file_of_a_bad_text(tmp_path, monkeypatch, capsys):
    # Of one token a letter.
    monkeypatch.setattr(Pretrained, "tokenize", lambda _, text, **__: [1] * len(text))
    paths = [tmp_path / "good.txt", tmp_path / "short.txt"]
    for path, text in zip(paths, ("CCO", "C"), strict=True):
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["probe", "rxnmapper", "--text", *map(str, paths)])
    message = f"{paths[1]}: a sink and another token are needed, got 1 token(s)"
    assert capsys.readouterr().err == f"python -m attention probe: {message}\n"


def test_ids_that_a_model_does_not_know_are_named_by_file(tiny):
    with pytest.raises(ValueError, match=r"^b\.txt must hold token ids below 16, got 3 to 16"):
        probe(tiny, [[1, 2], [3, 16]], names=["a.txt", "b.txt"])


@pytest.mark.parametrize("bos", [None, True])
def test_what_the_model_lacks_is_no_texts_fault(tiny, bos):
    with pytest.raises(ValueError, match="holds no tokenizer") as caught:
        probe(tiny, ["CCO"], bos=bos)
    assert "text 0" not in str(caught.value)


def test_a_tokenizer_that_begins_no_text_is_no_texts_fault(monkeypatch):
    monkeypatch.setattr(Pretrained, "start", None)
    with pytest.raises(ValueError, match=r"^the tokenizer of rxnmapper has no token that begins a text"):
        probe(load("rxnmapper"), ["CCO"], bos=True)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("zebra", "first must be a word that the tokenizer of rxnmapper knows, got 'zebra'"),
        (" ", "first must be a word"),
    ],
)
def test_a_first_word_that_is_none_is_refused(monkeypatch, word, message):
    rxn = load("rxnmapper")
    monkeypatch.setattr(Pretrained, "layers", pytest.fail)
    with pytest.raises(ValueError, match=message):
        probe(rxn, ["CCO"], first=word)


def test_the_unknown_token_itself_may_be_asked_for():
    rxn = load("rxnmapper")
    replaced = [rxn.tokenizer.unk_token_id, *rxn.tokenize("CCO")[1:]]
    assert repr(probe(rxn, ["CCO"], first="[UNK]", prices="sinks")) == repr(probe(rxn, [replaced], prices="sinks"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["probe", ""], "argument MODEL: must name a file or folder, got ''"),
        (["probe", "rxnmapper", "--out", ""], "argument --out: must name a file or folder, got ''"),
        (["probe", "rxnmapper", "--text", "a", ""], "argument --text: must name a file or folder, got ''"),
        (["probe", "rxnmapper", "--first", ""], "argument --first: must be a word, got ''"),
        (["summarise", "a", "--out", ""], "argument --out: must name a file or folder, got ''"),
        (["summarise", "", "--out", "a"], "argument DIR: must name a file or folder, got ''"),
    ],
)
def test_command_refuses_an_empty_name(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err == f"python -m attention {arguments[0]}: {message}\n"


def test_command_names_a_bad_model_in_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["probe", str(tmp_path)])
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "config.json" in printed
