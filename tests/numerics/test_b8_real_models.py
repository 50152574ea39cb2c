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


def check_aligned(chance):
    found = rows(POOLED, *MODELS)
    asked = (found["n"] > found["dimension"]) & np.isfinite(found["representable"])
    agree(found["representable"][asked].sum(), float(asked.sum()))
    for n, width in {(int(n), int(d)) for n, d in zip(found["n"], found["dimension"], strict=True)}:
        at_most(float(numerics.wendel_probability(n, width)), chance)


@claim("B8.aligned", "property")
def test_all_decided_layers_are_aligned_against_all_chance():
    check_aligned(1e-120)


@claim("B8.aligned", "near-miss")
def test_a_smaller_chance_is_refuted():
    refuted(check_aligned, st.just(1e-130))


# Sink and diagonal.


def check_cheaper(counts):
    found = rows(LAYERS, *MODELS)
    priced = np.isfinite(found["sink_upper"]) & np.isfinite(found["diagonal_lower"])
    sink = found["sink_upper"][priced] < found["diagonal_lower"][priced]
    diagonal = found["diagonal_upper"][priced] < found["sink_lower"][priced]
    agree(np.array([len(sink), sink.sum(), diagonal.sum()], dtype=float), np.array(counts, dtype=float))


@claim("B8.sink-cheaper", "property")
def test_the_proven_sides_are_counted_alike():
    check_cheaper((564, 548, 3))


@claim("B8.sink-cheaper", "near-miss")
@pytest.mark.parametrize("counts", [(564, 564, 0), (564, 548, 0)])
def test_that_the_sink_is_always_cheaper_is_refuted(counts):
    refuted(check_cheaper, st.just(counts))


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


def check_price_orders_mass(model="smollm2"):
    """A layer of a lower price has more mass: what the claim says, for the two groups of layers."""
    price, mass = by_layer(model, "sink_upper"), by_layer(model, "sink_mass")
    at_most(price[10:12].max(), by_layer(model, "sink_lower")[3:10].min())
    same_answer(bool(mass[10:12].min() > mass[3:10].max()), True)


@claim("B8.price-mass", "near-miss")
def test_that_the_cheaper_layers_have_more_weight_is_refuted():
    refuted(check_price_orders_mass, st.just("smollm2"))


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

    at_most(5 * by_layer("smollm2", "sink_upper")[12:29].max(), of_the_word("smollm2", "sink_lower").min())
    at_most(factor * of_the_word("smollm2", "sink_mass").max(), of_the_word(run, "sink_mass").min())
    heads = rows(HEADS, "smollm2")
    least = np.array([heads["cost"][heads["layer"] == layer].min() for layer in range(12, 29)])
    at_most(5 * of_the_word("smollm2", "sink_upper"), least)


@claim("B8.repeated", "property")
def test_one_token_makes_the_sink_of_a_repeated_word():
    check_repeated("smollm2-replaced")


@claim("B8.repeated", "near-miss")
@pytest.mark.parametrize("run", ["smollm2", "smollm2-bos"])
def test_without_it_or_with_bos_there_is_none(run):
    refuted(lambda run: check_repeated(run), st.just(run))


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
    for model, (many, silent) in {"smollm2": (211, 207), "minilm": (37, 37), "rxnmapper": (3, 1)}.items():
        found = rows(HEADS, model)
        ratios = found["value_ratio"][found["sink_mass"] > 0.3]
        agree(np.array([len(ratios), (ratios < limit).sum()], dtype=float), np.array([many, silent], dtype=float))


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


# What the note quotes.


def test_the_note_quotes_the_answers():
    text = " ".join(cell.text for cell in note_cells("b8_real_models"))
    with (note.RESULTS / "probe-answers.csv").open(newline="") as file:
        answers = {
            tuple(row[name] for name in ("run", "question", "measure", "drawn")): row for row in csv.DictReader(file)
        }
    quoted = {
        "mass, price": "{value:.2f} [{lower:.2f}, {upper:.2f}] (L)",
        "mass, layer index": "{value:+.2f} [{lower:.2f}, {upper:.2f}]",
        "mass, price | layer index": "{value:.2f} [{lower:.2f}, {upper:.2f}]",
        "mass, length of the sink | layer index": "{value:+.2f} [{lower:.2f}, {upper:.2f}]",
        "mass, price | layer index, length of the sink": "{value:+.2f} [{lower:.2f}, {upper:.2f}]",
    }
    for measure, style in quoted.items():
        row = answers["smollm2", "across layers", measure, "layers"]
        shown = style.format(**{name: float(row[name]) for name in ("value", "lower", "upper")})
        assert shown in " ".join(text.split()), f"{measure}: {shown}"
    for run in ("smollm2-bos", "smollm2-replaced"):
        row = answers[run, "across layers", "mass, price | layer index", "layers"]
        shown = "{value:.2f} [{lower:.2f}, {upper:.2f}]".format(
            **{n: float(row[n]) for n in ("value", "lower", "upper")}
        )
        assert shown in " ".join(text.split()), f"{run}: {shown}"
    for run, question, measure, drawn, style in (
        ("smollm2", "across layers", "mass, price", "texts", "[{lower:.2f}, {upper:.2f}] (T)"),
        (
            "minilm",
            "across layers",
            "mass, price | layer index",
            "layers",
            "{value:.2f} [{lower:.2f}, {upper:.2f}] (L)",
        ),
        ("minilm", "across texts", "mass, price | tokens", "texts", "{value:.2f} [{lower:.2f}, {upper:.2f}] (T)"),
        ("minilm", "overpaid", "median cost/price, lower side", "layers", "{value:.0f} times"),
        ("rxnmapper", "overpaid", "median cost/price, lower side", "layers", "{value:.0f} times"),
    ):
        row = answers[run, question, measure, drawn]
        shown = style.format(**{name: float(row[name]) for name in ("value", "lower", "upper")})
        assert shown in " ".join(text.split()), f"{run}, {measure}: {shown}"
