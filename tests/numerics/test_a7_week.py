"""A7, one week again: the note's exact verdicts against SciPy's paired test on the committed runs."""

import csv
from itertools import product
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import derivations.a7_week as note
import numerics
from attention.forecaster import VARIANTS
from derivations.show import cells as note_cells
from paper_figures.error_by_step import RESULTS
from tests.evidence import agree, at_most, claim, refuted, same_answer


def errors():
    """(variant, mode, step, measure) -> (seeds,), read with nothing of the note's."""
    found = {}
    with RESULTS.open(newline="") as file:
        for row in csv.DictReader(file):
            for measure in note.MEASURES if row["variant"] in VARIANTS else ():
                place = row["variant"], row["spatial"], int(row["step"]), measure
                found.setdefault(place, []).append((int(row["seed"]), float(row[measure])))
    return {place: np.array([value for _, value in sorted(pairs)]) for place, pairs in found.items()}


ERRORS = errors()


def changes(variant, mode, step, measure="mae"):
    """Improvement seed by seed: positive where the error falls."""
    return 1 - ERRORS[variant, mode, step, measure] / ERRORS[note.BASELINE, mode, step, measure]


def test_the_committed_runs_are_complete():
    variants = [note.BASELINE, "no-residual", *note.REGULARISERS]
    assert set(ERRORS) == set(product(variants, note.MODES, note.STEPS, note.MEASURES))
    for (*place, measure), values in ERRORS.items():
        assert [float(value) for value in note.errors(measure)[tuple(place)]] == values.tolist()
        assert len(values) == note.SEEDS


# The paired statistic.


@st.composite
def paired_runs(draw):
    """Errors of two variants with the same seeds, (seeds,) each, much of them the seed's own."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    seeds = draw(st.integers(2, 8))
    shared = draw(st.floats(0.5, 3)) * generator.normal(size=seeds)
    return tuple(shared + generator.normal(size=seeds) for _ in range(2))


def check_interval(pair, test=stats.ttest_rel):
    one, other = pair
    found, expected = numerics.mean_interval(one - other), test(one, other).confidence_interval(0.95)
    size = float(np.abs(one).max() + np.abs(other).max())
    agree(np.array([found.lower, found.upper]), np.array([expected.low, expected.high]), scale=size)


@claim("A7.pairing", "property")
@given(paired_runs())
def test_the_interval_of_the_differences_is_scipys_paired_one(pair):
    check_interval(pair)


@claim("A7.pairing", "near-miss")
def test_an_unpaired_interval_is_refuted():
    refuted(lambda pair: check_interval(pair, stats.ttest_ind), paired_runs())


def check_variance(pair, covariances=2):
    one, other = pair
    spread = np.cov(one, other)
    agree(
        float(np.var(one - other, ddof=1)),
        spread[0, 0] + spread[1, 1] - covariances * spread[0, 1],
        scale=float(spread.max()),
    )


@claim("A7.pairing", "property")
@given(paired_runs())
def test_the_variance_of_a_difference_is_less_by_twice_the_covariance(pair):
    check_variance(pair)


@claim("A7.pairing", "near-miss")
@pytest.mark.parametrize("covariances", [0, 1, -2])
def test_another_share_of_the_covariance_is_refuted(covariances):
    refuted(lambda pair: check_variance(pair, covariances), paired_runs())


@claim("A7.pairing", "property")
@given(st.integers(1, 300))
def test_the_notes_tail_and_quantile_are_those_of_student(tenths):
    t = sympy.Rational(tenths, 10)
    agree(float(note.tail(t**2).evalf()), 2 * stats.t.sf(float(t), 3), scale=1.0)
    at_most(stats.t.ppf(0.975, 3), float(note.QUANTILE))


# The verdicts.


def regularised(*measures):
    return [changes(*cell) for cell in product(note.REGULARISERS, note.MODES, note.STEPS, measures or ("mae",))]


def without_residual(*measures):
    return [changes("no-residual", *cell) for cell in product(note.MODES, note.STEPS, measures or ("mae",))]


def between_modes():
    cells = product(note.REGULARISERS, note.STEPS)
    return [changes(variant, "graph", step) - changes(variant, "published", step) for variant, step in cells]


FAMILIES = {
    "A7.week-regularisers": (regularised, note.regularised, 18),
    "A7.week-residual": (without_residual, note.without_residual, 6),
    "A7.messages": (between_modes, note.between_modes, 9),
}


def p_value(cell):
    """Two-sided, against a mean of 0."""
    found: Any = stats.ttest_1samp(cell, 0)
    return float(found.pvalue)


def check_nothing_is_found(cells, family, scatter=1.0):
    """Holm's first step, where runs scatter ``scatter`` times as much about their means."""
    scaled = [cell.mean() + scatter * (cell - cell.mean()) for cell in cells]
    p = np.array([p_value(cell) for cell in scaled])
    assert len(p) == family
    same_answer(bool((p <= 0.05 / family).any()), False)


@claim("A7.week-regularisers", "property")
@claim("A7.week-residual", "property")
@claim("A7.messages", "property")
@pytest.mark.parametrize("name", FAMILIES)
def test_scipys_p_values_give_the_notes_verdict(name):
    cells, exact, family = FAMILIES[name]
    check_nothing_is_found(cells(), family)
    least = min(p_value(cell) for cell in cells())
    agree(float(note.tail(note.most_certain(exact())).evalf()), least, scale=1.0)


@claim("A7.week-regularisers", "property")
@claim("A7.week-residual", "property")
@pytest.mark.parametrize(
    ("cells", "exact", "family"), [(regularised, note.regularised, 54), (without_residual, note.without_residual, 18)]
)
def test_the_three_measures_together_give_the_notes_verdict(cells, exact, family):
    check_nothing_is_found(cells(*note.MEASURES), family)
    least = min(p_value(cell) for cell in cells(*note.MEASURES))
    agree(float(note.tail(note.most_certain(exact(*note.MEASURES))).evalf()), least, scale=1.0)


@claim("A7.week-regularisers", "near-miss")
@claim("A7.week-residual", "near-miss")
def test_that_each_measure_alone_finds_nothing_is_refuted():
    for cells, family in ((regularised, 18), (without_residual, 6)):
        refuted(
            lambda measure, cells=cells, family=family: check_nothing_is_found(cells(measure), family), st.just("rmse")
        )


@claim("A7.week-regularisers", "near-miss")
@claim("A7.week-residual", "near-miss")
@claim("A7.messages", "near-miss")
@pytest.mark.parametrize("name", FAMILIES)
def test_with_a_tenth_of_the_scatter_something_would_be_found(name):
    cells, _, family = FAMILIES[name]
    refuted(lambda scatter: check_nothing_is_found(cells(), family, scatter), st.just(0.1))


def check_size(cells, most=0.025):
    ends = [float(numerics.mean_interval(cell).upper) for cell in cells]
    at_most(max(ends), most)


@claim("A7.week-size", "property")
def test_no_interval_reaches_the_published_improvement():
    check_size(regularised())


@claim("A7.week-size", "near-miss")
def test_that_none_reaches_one_per_cent_is_refuted():
    refuted(lambda most: check_size(regularised(), most), st.just(0.01))


def test_the_notes_summary_shows_the_evaluated_numbers():
    text = "\n".join(cell.text for cell in note_cells("a7_week"))
    names = {
        "no-residual": "no residual",
        "diagonal-mask": "full diagonal mask",
        "diagonal-dropout": "diagonal dropout",
        "diagonal-penalty": "diagonal penalty",
    }
    for (variant, name), mode in product(names.items(), note.MODES):
        intervals = [numerics.mean_interval(-100 * changes(variant, mode, step)) for step in note.STEPS]
        shown = " | ".join(f"{float(found.mean):+.2f} ± {float(found.half_width):.2f}" for found in intervals)
        assert f"| {name} | {mode} | {shown} |" in text


def words():
    """The note's text on one line."""
    return " ".join(" ".join(cell.text for cell in note_cells("a7_week")).split())


def per_cent(cell):
    """The interval of a change in per cent; negative is better."""
    return numerics.mean_interval(-100 * cell)


def passes_holm(cells):
    """Which cells Holm rejects at 5 %."""
    p = np.array([p_value(cell) for cell in cells])
    order = np.argsort(p)
    rejected = np.zeros(len(p), dtype=bool)
    for place, cell in enumerate(order):
        if p[cell] > 0.05 / (len(p) - place):
            break
        rejected[cell] = True
    return rejected


def test_the_note_quotes_what_the_other_measures_say():
    text = words()
    passing = {m: passes_holm(regularised(m)).sum() + passes_holm(without_residual(m)).sum() for m in note.MEASURES}
    assert passing == {"mae": 0, "rmse": 4, "mape": 1}
    dropout = changes("diagonal-dropout", "graph", 12, "rmse")
    assert (dropout > 0).all()
    found = per_cent(dropout)
    assert f"by {-found.mean:.2f} ± {found.half_width:.2f} per cent (P1's table: 0.95)" in text
    alone = without_residual("rmse")
    lower = [-100 * float(cell.mean()) for cell, hit in zip(alone, passes_holm(alone), strict=True) if hit]
    assert len(lower) == 3
    assert f"by {-max(lower):.2f} to {-min(lower):.2f}." in text
    mask = per_cent(changes("diagonal-mask", "published", 12, "mape"))
    assert f"({mask.mean:.2f} ± {mask.half_width:.2f})" in text
    furthest = {
        cell: -per_cent(changes(*cell)).lower for cell in product(note.REGULARISERS, note.MODES, note.STEPS, ("mape",))
    }
    assert [cell for cell, end in furthest.items() if end > 2.5] == [("diagonal-mask", "graph", 3, "mape")]
    assert f"an improvement of {max(furthest.values()):.1f} per cent" in text


def test_the_note_quotes_how_much_the_intervals_leave_open():
    text = words()
    open_ends = {step: -per_cent(changes("diagonal-dropout", "published", step)).lower for step in note.STEPS}
    assert f"at most {max(open_ends.values()):.2f} per cent of improvement, and {open_ends[12]:.2f} at step 12" in text
    without = [per_cent(cell) for cell in without_residual()]
    outside = [found for found in without if not found.lower <= 0 <= found.upper]
    assert len(outside) == 1
    assert f"helps, by {-outside[0].upper:.1f} to {-outside[0].lower:.1f} per cent" in text
    shown = []
    for variant in ("diagonal-dropout", "diagonal-penalty"):
        found = per_cent(changes(variant, "graph", 12) - changes(variant, "published", 12))
        shown.append(f"[{found.lower:.2f}, {found.upper:.2f}]")
    assert " and ".join(shown) in text


def test_the_note_compares_with_what_needs_no_training():
    text = words()
    with RESULTS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["seed"]]
    simple = {(row["variant"], int(row["step"]), m): float(row[m]) for row in rows for m in note.MEASURES}

    def gains(measure):
        """In per cent of persistence's error, over all runs and steps."""
        return np.concatenate(
            [
                100 * (1 - values / simple["persistence", step, measure])
                for (_, _, step, of), values in ERRORS.items()
                if of == measure
            ]
        )

    assert f"by {gains('mae').min():.1f} to {gains('mae').max():.1f} per cent only" in text
    assert f"by {-gains('mape').max():.0f} to {-gains('mape').min():.0f}." in text
    last = np.concatenate([values for cell, values in ERRORS.items() if cell[2:] == (12, "mae")])
    profile = simple["daily profile", 12, "mae"]
    assert (last > profile).all()
    assert f"the daily profile ({profile:.2f} mph)" in text
    assert f"({last.min():.2f} to {last.max():.2f})" in text
