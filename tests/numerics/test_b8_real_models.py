"""B8 on three real models: the note's exact verdicts against NumPy and SciPy on the committed tables."""

import csv
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import derivations.b8_real_models as note
import numerics
from derivations.show import cells as note_cells
from tests.evidence import agree, at_most, claim, refuted, same_answer

MODELS = ("smollm2", "minilm", "rxnmapper")


def table(name):
    """The columns of one table, NaN where a number is missing; read with nothing of the note's."""
    with (note.RESULTS / f"probe-{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = {}
    for column in rows[0]:
        cells = [row[column] or "nan" for row in rows]
        try:
            columns[column] = np.array([float(cell) for cell in cells])
        except ValueError:
            columns[column] = np.array(cells)
    return columns


HEADS, LAYERS, POOLED = (table(name) for name in ("heads", "layers", "pooled"))
TEXT = " ".join(" ".join(cell.text for cell in note_cells("b8_real_models")).split())
"""The note's words on one line."""


def rows(columns, *runs):
    chosen = np.isin(columns["run"], runs)
    return {name: values[chosen] for name, values in columns.items()}


def by_layer(run, column):
    found = rows(LAYERS, run)
    return np.array([np.nanmedian(found[column][found["layer"] == layer]) for layer in np.unique(found["layer"])])


def spearman(one, other):
    """SciPy's rank correlation."""
    found: Any = stats.spearmanr(one, other)
    return float(found.statistic)


def fisher(counts):
    """SciPy's exact chance, two-sided."""
    found: Any = stats.fisher_exact(counts)
    return float(found.pvalue)


# Alignment.


def check_aligned(case):
    chance, missing = case
    found = rows(POOLED, *MODELS)
    asked = found["n"] > found["dimension"]
    agree(np.array([asked.sum(), found["representable"][asked].sum()], dtype=float), np.array([48.0, 48.0 - missing]))
    one = rows(POOLED, "smollm2")
    for n, width in {(int(n), int(d)) for n, d in zip(one["n"], one["dimension"], strict=True)}:
        at_most(float(numerics.wendel_probability(n, width)), chance)


@claim("B8.aligned", "property")
def test_all_layers_but_one_are_aligned_against_all_chance():
    check_aligned((1e-230, 1))


@claim("B8.aligned", "near-miss")
@pytest.mark.parametrize("case", [(1e-240, 1), (1e-230, 0)])
def test_a_smaller_chance_or_all_layers_is_refuted(case):
    refuted(check_aligned, st.just(case))


def test_the_layer_without_a_sink_is_that_of_texts_whose_first_token_comes_again():
    found = rows(POOLED, *MODELS)
    (row,) = np.flatnonzero(found["representable"] == 0)
    assert (found["run"][row], found["layer"][row]) == ("smollm2", 0)
    texts = rows(LAYERS, *MODELS)
    alone = texts["representable"] == 0
    assert alone.sum() == 5
    assert set(zip(texts["run"][alone], texts["layer"][alone], strict=True)) == {("smollm2", 0.0)}
    assert (texts["g_k"][alone] == 0).all()


# Sink and diagonal.


def check_cheaper(counts):
    found = rows(LAYERS, *MODELS)
    priced = np.isfinite(found["sink_upper"]) & np.isfinite(found["diagonal_lower"])
    sink = found["sink_upper"][priced] < found["diagonal_lower"][priced]
    diagonal = found["diagonal_upper"][priced] < found["sink_lower"][priced]
    agree(np.array([len(sink), sink.sum(), diagonal.sum()], dtype=float), np.array(counts, dtype=float))


@claim("B8.sink-cheaper", "property")
def test_the_proven_sides_are_counted_alike():
    check_cheaper((564, 550, 3))


@claim("B8.sink-cheaper", "near-miss")
@pytest.mark.parametrize("counts", [(564, 564, 0), (564, 550, 0)])
def test_that_the_sink_is_always_cheaper_is_refuted(counts):
    refuted(check_cheaper, st.just(counts))


def test_the_exceptions_are_two_texts():
    found = rows(LAYERS, "smollm2")
    priced = np.isfinite(found["diagonal_lower"])
    cheaper = found["sink_upper"] < found["diagonal_lower"]
    open_ = priced & ~cheaper
    agree(np.array([priced.sum(), open_.sum()], dtype=float), np.array([180.0, 14.0]))
    assert set(found["text"][open_]) == {1, 4}
    middle = (found["layer"] >= 3) & (found["layer"] <= 9) & np.isin(found["text"], [1, 4])
    assert f"it is proven cheaper in {middle.sum() - open_[middle].sum()} of {middle.sum()} cases" in TEXT
    mass = found["sink_mass"][middle]
    assert f"with {mass.min():.2f} to {mass.max():.2f} of their weight" in TEXT
    encoders = rows(LAYERS, "minilm", "rxnmapper")
    assert (encoders["sink_upper"] < encoders["diagonal_lower"]).sum() == 384


def test_the_sides_are_in_order():
    for kind in ("sink", "diagonal"):
        lower, upper = LAYERS[f"{kind}_lower"], LAYERS[f"{kind}_upper"]
        known = np.isfinite(lower)
        assert (lower[known] > 0).all()
        assert (lower[known] <= upper[known]).all()


# Price and mass.


@claim("B8.price-mass", "property")
@given(st.lists(st.integers(0, 5), min_size=3, max_size=12), st.randoms(use_true_random=False))
def test_the_notes_rank_correlation_is_scipys(values, random):
    other = [random.randrange(6) for _ in values]
    if len(set(values)) > 1 and len(set(other)) > 1:
        exact = note.spearman([note.number(str(v)) for v in values], [note.number(str(v)) for v in other])
        agree(float(exact.evalf()), spearman(values, other), scale=1.0)


def ratio(over, under):
    """SmolLM2: a proven side of diagonal price over sink price, median over texts, by layer."""
    found = rows(LAYERS, "smollm2")
    values = found[over] / found[under]
    return np.array([np.nanmedian(values[found["layer"] == layer]) for layer in range(30)])


def check_price_orders_mass(what):
    """A layer of a lower price, or of a dearer diagonal beside it, has more mass: what the claim says."""
    mass = by_layer("smollm2", "sink_mass")
    if what == "price":
        at_most(by_layer("smollm2", "sink_upper")[10:12].max(), by_layer("smollm2", "sink_lower")[3:10].min())
        same_answer(bool(mass[10:12].min() > mass[3:10].max()), True)
    else:
        others = np.arange(30) != 11
        at_most(ratio("diagonal_upper", "sink_lower")[others].max(), ratio("diagonal_lower", "sink_upper")[11])
        same_answer(bool(mass[11] > mass[others].max()), True)


@claim("B8.price-mass", "near-miss")
@pytest.mark.parametrize("what", ["price", "ratio"])
def test_that_the_cheaper_layers_have_more_weight_is_refuted(what):
    refuted(check_price_orders_mass, st.just(what))


def test_layer_11_has_the_least_weight_on_the_sink_and_the_most_on_the_diagonal():
    assert by_layer("smollm2", "sink_mass").argmin() == 11
    assert by_layer("smollm2", "diagonal_mass").argmax() == 11


def test_the_note_quotes_the_layers_with_little_weight():
    mass = by_layer("smollm2", "sink_mass")
    lengths = rows(LAYERS, "smollm2")["tokens"][:24].astype(int)
    uniform = np.median([np.mean(1 / np.arange(2, length + 1)) for length in lengths])
    assert f"({mass[10]:.3f} and {mass[11]:.3f}, where uniform attention gives {uniform:.3f})" in TEXT


@claim("B8.price-mass", "property")
def test_depth_orders_the_layers_better_than_price():
    mass = by_layer("smollm2", "sink_mass")
    price = spearman(by_layer("smollm2", "sink_lower"), mass)
    depth = spearman(np.arange(30), mass)
    at_most(abs(price), depth)
    agree(float(note.spearman(note.by_layer("smollm2", "sink_lower"), note.by_layer("smollm2", "sink_mass"))), price)


# One word repeated.


def check_repeated(run, factor=10.0):
    def of_the_word(which, column):
        found = rows(LAYERS, which)
        chosen = (found["text"] == note.REPEATED) & (found["layer"] >= 12) & (found["layer"] <= 28)
        assert chosen.sum() == 17
        return found[column][chosen]

    at_most(4 * by_layer("smollm2", "sink_upper")[12:29], of_the_word("smollm2", "sink_lower"))
    at_most(factor * of_the_word("smollm2", "sink_mass").max(), of_the_word(run, "sink_mass").min())
    heads = rows(HEADS, "smollm2")
    least = np.array([heads["cost"][heads["layer"] == layer].min() for layer in range(12, 29)])
    at_most(6 * of_the_word("smollm2", "sink_upper"), least)


@claim("B8.repeated", "property")
def test_one_token_makes_the_sink_of_a_repeated_word():
    check_repeated("smollm2-replaced")


@claim("B8.repeated", "near-miss")
@pytest.mark.parametrize("run", ["smollm2", "smollm2-bos"])
def test_without_it_or_with_bos_there_is_none(run):
    refuted(lambda run: check_repeated(run), st.just(run))


def test_the_note_quotes_the_repeated_word():
    found = rows(LAYERS, "smollm2")
    word = found["text"] == note.REPEATED
    deep = (found["layer"] >= 12) & (found["layer"] <= 28)
    bracket = found["sink_upper"] / found["sink_lower"]
    wide = bracket[word & deep]
    assert f"the upper side is {wide.min():.0f} to {wide.max():.0f} times the lower" in TEXT
    mass = found["sink_mass"][word & deep]
    tokens = int(found["tokens"][word][0])
    uniform = np.mean(1 / np.arange(2, tokens + 1))
    assert f"what uniform attention gives ({uniform:.3f})" in TEXT
    assert np.abs(mass / uniform - 1).max() < 0.12
    # Nine tenths of the weight among the sink and 24 others need this margin.
    assert np.log(24 * 9) < 6
    assert f"The other {tokens - 1 - 24} tokens were not priced" in TEXT
    beside = found["sink_lower"] / by_layer("smollm2", "sink_upper")[found["layer"].astype(int)]
    assert word[beside > 5].all()
    middle = ~word & (found["layer"] >= 3) & (found["layer"] <= 9) & (beside > 3)
    assert 3 <= middle.sum() <= 6
    assert beside[middle].max() < 4.5
    assert 0.2 < found["sink_mass"][middle].min() <= found["sink_mass"][middle].max() < 0.45


def test_the_repeated_text_is_one_word():
    (path,) = (note.RESULTS / "texts").glob(f"{note.REPEATED + 1:02d}-*.txt")
    assert len(set(path.read_text().split())) == 1


# What is paid, silence, smoothing.


def check_paid(least):
    paid = rows(HEADS, "minilm", "rxnmapper")["overpaid_lower"]
    at_most(least, float(np.nanmin(paid)))


@claim("B8.paid", "property")
def test_no_head_pays_less_than_the_stated_multiple():
    check_paid(190.0)


@claim("B8.paid", "near-miss")
def test_a_larger_multiple_is_refuted():
    refuted(check_paid, st.just(1000.0))


def check_silent(limit=0.5):
    counts = {"smollm2": (211, 207, 59, 18), "minilm": (37, 37, 35, 33), "rxnmapper": (3, 1, 93, 43)}
    for model, expected in counts.items():
        found = rows(HEADS, model)
        small = found["value_ratio"] < limit
        looking = found["sink_mass"] > 0.3
        actual = [looking.sum(), small[looking].sum(), (~looking).sum(), small[~looking].sum()]
        agree(np.array(actual, dtype=float), np.array(expected, dtype=float))


@claim("B8.silent", "property")
def test_much_weight_goes_with_a_small_value():
    check_silent()


@claim("B8.silent", "near-miss")
def test_a_fifth_of_the_value_is_refuted():
    refuted(check_silent, st.just(0.2))


def check_smoothing(rises):
    found = rows(LAYERS, *MODELS)
    agree(float((found["dispersion_after"] > found["dispersion_before"]).sum()), float(rises))


@claim("B8.smoothing", "property")
def test_the_rises_of_the_dispersion_are_counted_alike():
    check_smoothing(186)


@claim("B8.smoothing", "near-miss")
def test_that_it_never_rises_is_refuted():
    refuted(check_smoothing, st.just(0))


# A small model from scratch.


def sinks_by_run(least):
    """(kind, decay) -> which runs end with a head of at least that mass on the first byte."""
    with (note.RESULTS / "byte-model.csv").open(newline="") as file:
        found = {}
        for row in csv.DictReader(file):
            run = found.setdefault((row["kind"], float(row["decay"])), {}).setdefault((row["source"], row["seed"]), [])
            run.append(float(row["sink"]))
    return {case: np.array([max(masses) >= least for masses in runs.values()]) for case, runs in found.items()}


def check_zero_logit(decay, most=0.05):
    """The two kinds of softmax differ at that decay."""
    sinks = sinks_by_run(0.3)
    counts = [[sinks[kind, decay].sum(), (~sinks[kind, decay]).sum()] for kind in ("softmax", "extra zero")]
    assert np.sum(counts) == 24
    agree(float(note.chance(f"{decay:g}")), fisher(counts))
    at_most(fisher(counts), most)


@claim("B8.zero-logit", "property")
def test_with_decay_no_run_has_a_sink_with_the_extra_logit():
    check_zero_logit(1.0)
    agree(float(sinks_by_run(0.3)["extra zero", 1.0].sum()), 0.0)


@claim("B8.zero-logit", "near-miss")
def test_that_the_kinds_differ_without_decay_is_refuted():
    refuted(check_zero_logit, st.just(0.0))


def test_the_note_says_what_another_cut_gives():
    sinks = sinks_by_run(0.2)
    extra, softmax = (int(sinks[kind, 0.0].sum()) for kind in ("extra zero", "softmax"))
    p = fisher([[softmax, 12 - softmax], [extra, 12 - extra]])
    assert f"at a cut of 0.2 it is ({extra} against {softmax}, {p:.3f})" in TEXT


# What the note quotes.


def answers():
    """(run, question, measure, drawn) -> value, lower and upper end."""
    with (note.RESULTS / "probe-answers.csv").open(newline="") as file:
        return {
            tuple(row[name] for name in ("run", "question", "measure", "drawn")): {
                name: float(row[name] or "nan") for name in ("value", "lower", "upper")
            }
            for row in csv.DictReader(file)
        }


ANSWERS = answers()
INTERVAL = "[{lower:.2f}, {upper:.2f}]"
PLAIN = "{value:.2f} " + INTERVAL
SIGNED = "{value:+.2f} " + INTERVAL


@pytest.mark.parametrize(
    ("run", "question", "measure", "drawn", "style"),
    [
        ("smollm2", "across layers", "mass, price", "layers", f"{PLAIN} (L)"),
        ("smollm2", "across layers", "mass, price", "texts", f"{INTERVAL} (T)"),
        ("smollm2", "across layers", "mass, layer index", "layers", SIGNED),
        ("smollm2", "across layers", "mass, price | layer index", "layers", PLAIN),
        ("smollm2-bos", "across layers", "mass, price | layer index", "layers", f"with BOS {PLAIN}"),
        ("smollm2-replaced", "across layers", "mass, price | layer index", "layers", f"another first token {PLAIN}"),
        ("smollm2", "across layers", "mass, diagonal price over sink price", "layers", f"either: {SIGNED}"),
        ("smollm2", "across layers", "mass, length of the sink | layer index", "layers", SIGNED),
        ("smollm2", "across layers", "mass, price | layer index, length of the sink", "layers", SIGNED),
        ("minilm", "across layers", "mass, price", "layers", f"({PLAIN})"),
        ("minilm", "across texts", "mass, price | tokens", "texts", f"{PLAIN} (T)"),
        ("rxnmapper", "across layers", "mass, price", "layers", f"leave it open: {PLAIN}"),
        ("minilm", "overpaid", "median cost/price, lower side", "layers", "{value:.0f} times"),
        ("rxnmapper", "overpaid", "median cost/price, lower side", "layers", "{value:.0f} times"),
        ("smollm2", "sink or diagonal", "median of diagonal/sink, lower side", "texts", "between {value:.2f} and"),
        ("smollm2", "sink or diagonal", "median of diagonal/sink, upper side", "texts", "and {value:.2f}."),
        ("smollm2", "smoothing", "spread left, sparsity", "layers", f"({PLAIN})"),
        ("smollm2", "smoothing", "spread left, sparsity | sink mass", "layers", SIGNED),
        ("smollm2", "smoothing", "median imbalance of the columns", "layers", "{value:.0f} [{lower:.0f}, {upper:.0f}]"),
        ("minilm", "smoothing", "median imbalance of the columns", "layers", "{value:.1f} [{lower:.1f}, {upper:.1f}]"),
        (
            "rxnmapper",
            "smoothing",
            "median imbalance of the columns",
            "layers",
            "{value:.1f} [{lower:.1f}, {upper:.1f}]",
        ),
        *(
            (run, "smoothing", "median change of the residual stream's dispersion", "texts", "{value:.3f}")
            for run in MODELS
        ),
    ],
)
def test_the_note_quotes_the_answers(run, question, measure, drawn, style):
    shown = style.format(**ANSWERS[run, question, measure, drawn])
    assert shown in TEXT


@pytest.mark.parametrize(
    ("measure", "drawn", "style"),
    [
        ("share with the sink cheaper", "texts", "{value:.0f} per cent [{lower:.0f}, {upper:.0f}] (T)"),
        (
            "silent sinks among heads with mass above 1/2",
            "layers",
            "{value:.0f} per cent of the texts [{lower:.0f}, {upper:.0f}] (L)",
        ),
        ("silent sinks among the others", "layers", "another head in {value:.0f} [{lower:.0f}, {upper:.0f}]"),
    ],
)
def test_the_note_quotes_the_shares(measure, drawn, style):
    (found,) = (row for (run, _, *rest), row in ANSWERS.items() if run == "smollm2" and rest == [measure, drawn])
    assert style.format(**{name: 100 * value for name, value in found.items()}) in TEXT
