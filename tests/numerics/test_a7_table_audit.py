"""A7: the audit of the published table against SciPy's tests, brute force, and tables that print alike."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import derivations.a7_table_audit as note
import numerics
from derivations.show import cells as note_cells
from numerics.a7_table_audit import BASELINE, HALF_UNIT, METRICS, PUBLISHED, REGULARISERS, Family
from tests.evidence import agree, at_most, claim, refuted, same_answer

DROPOUT = REGULARISERS.index("diagonal dropout")
FAMILIES: tuple[Family, ...] = ("none", "variant", "all")
STANDING_OUT = {(DROPOUT, METRICS.index("MAE-6")), (DROPOUT, METRICS.index("MAE-12"))}


@dataclass(frozen=True)
class Table:
    """A table: regularisers (3, 9) and baseline (9,), their means and sds."""

    mean: np.ndarray
    sd: np.ndarray
    base_mean: np.ndarray
    base_sd: np.ndarray

    def p(self, ddof):
        """Welch's p-values by SciPy, (3, 9)."""
        scale = ((4 - ddof) / 3) ** 0.5  # SciPy takes sds with ddof 1
        return stats.ttest_ind_from_stats(
            self.mean, self.sd * scale, 4, self.base_mean, self.base_sd * scale, 4, equal_var=False
        ).pvalue


@st.composite
def tables_that_print_alike(draw, half_unit=HALF_UNIT):
    """Tables within the rounding of the published one; often at its corners, where the extremes are."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    offsets = generator.uniform(-1, 1, size=(4, 2, 9))
    if draw(st.booleans()):
        offsets = np.sign(offsets)
    names = (*REGULARISERS, BASELINE)
    rows = np.stack([np.stack(PUBLISHED[name]) for name in names]) + 0.999999 * half_unit * offsets
    return Table(rows[:3, 0], np.maximum(rows[:3, 1], 1e-9), rows[3, 0], np.maximum(rows[3, 1], 1e-9))


def test_note_and_numerics_hold_one_table():
    assert list(note.cells()) == list(PUBLISHED)
    for name, row in PUBLISHED.items():
        for place, metric in enumerate(METRICS):
            mean, sd = note.cells()[name][metric]
            assert (float(mean), float(sd)) == (row.mean[place], row.sd[place])


# About 2.5 %.


def check_improvements(table, most=0.0126):
    change = table.mean / table.base_mean - 1
    at_most(-change, np.full(change.shape, most))
    bounds = numerics.relative_change(
        np.stack([PUBLISHED[name].mean for name in REGULARISERS]), PUBLISHED[BASELINE].mean
    )
    at_most(bounds.lower, change, scale=1.0)
    at_most(change, bounds.upper, scale=1.0)


@claim("A7.improvement", "property")
@given(tables_that_print_alike())
def test_no_table_that_prints_alike_improves_by_more(table):
    check_improvements(table)


@claim("A7.improvement", "property")
@given(st.integers(1000, 9999), st.integers(1000, 9999))
def test_the_range_of_a_change_is_that_of_the_corners(first, second):
    corners = [
        Fraction(2 * first + one, 2 * second + other) - 1 for one, other in product((-1, 0, 1), repeat=2)
    ]  # thousandths, halves of them
    found = numerics.relative_change(first / 1000, second / 1000)
    agree(found.lower, np.array(float(min(corners))), scale=1.0)
    agree(found.upper, np.array(float(max(corners))), scale=1.0)
    agree(found.value, np.array(float(Fraction(first, second) - 1)), scale=1.0)


@claim("A7.improvement", "property")
@given(st.sampled_from(list(PUBLISHED)), st.sampled_from(list(PUBLISHED)))
def test_no_two_rows_differ_by_about_two_and_a_half_per_cent(variant, base):
    change = numerics.relative_change(PUBLISHED[variant].mean, PUBLISHED[base].mean)
    apart = np.maximum(change.lower + 0.025, -0.025 - change.upper)
    at_most(np.full(apart.shape, 0.01), apart)


@claim("A7.improvement", "near-miss")
@pytest.mark.parametrize("most", [0.012, 0.0126 / 2])
def test_a_smaller_improvement_is_refuted(most):
    refuted(lambda table: check_improvements(table, most), tables_that_print_alike())


def check_signs(table, falls=(3, 9, 7)):
    below = (table.mean < table.base_mean).sum(-1)
    for found, expected in zip(below, falls, strict=True):
        same_answer(bool(found == expected), True)


@claim("A7.direction", "property")
@given(tables_that_print_alike())
def test_the_rounding_changes_no_sign(table):
    check_signs(table)


@claim("A7.direction", "near-miss")
def test_with_one_decimal_less_it_does():
    refuted(check_signs, tables_that_print_alike(10 * HALF_UNIT))


@claim("A7.direction", "near-miss")
def test_that_the_mask_lowers_as_many_as_it_raises_is_refuted():
    refuted(lambda table: check_signs(table, falls=(4, 9, 7)), tables_that_print_alike())


# Welch's test.


@st.composite
def samples(draw):
    """Two samples (runs,), 2 to 8 runs, of different spread."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    runs = draw(st.integers(2, 8))
    spread, shift = draw(st.floats(0.05, 20.0)), draw(st.floats(-5, 5))
    return generator.normal(size=runs), shift + spread * generator.normal(size=runs)


def check_welch(pair, *, ddof=None, equal_var=False):
    """From the samples by SciPy, from means and sds by ours; ``ddof`` is what we are told about the sds."""
    first, second = pair
    expected: Any = stats.ttest_ind(first, second, equal_var=equal_var)
    for formed_with in (0, 1):
        found = numerics.welch(
            first.mean(),
            first.std(ddof=formed_with),
            second.mean(),
            second.std(ddof=formed_with),
            ddof=formed_with if ddof is None else ddof,
            runs=len(first),
        )
        agree(found.t, np.array(expected.statistic))
        agree(found.p, np.array(expected.pvalue))
        agree(found.df, np.array(expected.df))


@claim("A7.welch", "property")
@given(samples())
def test_welch_against_the_samples_themselves(pair):
    check_welch(pair)


@claim("A7.welch", "near-miss")
@pytest.mark.parametrize("wrong", [{"ddof": 0}, {"ddof": 1}, {"equal_var": True}])
def test_the_wrong_ddof_or_equal_variances_are_refuted(wrong):
    refuted(lambda pair: check_welch(pair, **wrong), samples())


@claim("A7.welch", "property")
@given(st.floats(-1, 1), st.floats(1e-3, 1.0), st.floats(1e-3, 1.0))
def test_ddof_shrinks_t_and_keeps_the_degrees_of_freedom(gap, sd, base_sd):
    one, zero = (numerics.welch(gap, sd, 0.0, base_sd, ddof=ddof) for ddof in (1, 0))
    agree(zero.t, one.t * 3**0.5 / 2)
    agree(zero.df, one.df)
    at_most(3.0, float(zero.df))
    at_most(float(zero.df), 6.0)


@claim("A7.welch", "property")
@given(st.sampled_from(note.WHOLE), st.integers(0, 400), st.integers(1, 20))
def test_the_notes_closed_tails_are_students(k, numerator, denominator):
    square = note.Rational(numerator, denominator)
    expected = 2 * stats.t.sf(float(square) ** 0.5, k)
    agree(float(note.tail(k, square).evalf(30)), expected)


# Rounding.


@dataclass(frozen=True)
class Box:
    """Printed mean, sd, mean and sd, half a unit, and points of the box around them (points, 4)."""

    printed: tuple[float, ...]
    half_unit: float
    ddof: int
    points: np.ndarray

    def p(self):
        mean, sd, base_mean, base_sd = self.points.T
        scale = ((4 - self.ddof) / 3) ** 0.5
        return stats.ttest_ind_from_stats(
            mean, sd * scale, 4, base_mean, base_sd * scale, 4, equal_var=False
        ).pvalue  # fmt: skip

    def corners(self):
        signs = np.array(list(product((-1, 1), repeat=4)))
        return Box(self.printed, self.half_unit, self.ddof, np.array(self.printed) + self.half_unit * signs)


@st.composite
def boxes(draw, gaps=(0.0, 0.3, 3.0, 30.0)):
    """From boxes as narrow as the table's to such that reach almost to an sd of 0."""
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    sd, base_sd = draw(st.floats(0.05, 1.0)), draw(st.floats(0.05, 1.0))
    half_unit = min(sd, base_sd) * draw(st.sampled_from([0.01, 0.3, 0.95]))
    printed = (draw(st.sampled_from(gaps)), sd, 0.0, base_sd)
    offsets = generator.uniform(-1, 1, size=(200, 4))
    offsets[:150, 0] = np.sign(offsets[:150, 0])
    offsets[:150, 2] = -offsets[:150, 0]
    offsets[:100, 3] = np.sign(offsets[:100, 3])
    return Box(printed, half_unit, draw(st.sampled_from([0, 1])), np.array(printed) + half_unit * offsets)


def check_inside(box, corners_only=False):
    found = numerics.welch_interval(*box.printed, ddof=box.ddof, half_unit=box.half_unit)
    p = box.p()
    lower, upper = (box.corners().p().min(), box.corners().p().max()) if corners_only else (found.lower, found.upper)
    at_most(np.full(p.shape, lower), p)
    at_most(p, np.full(p.shape, upper))
    at_most(found.lower, found.value)
    at_most(found.value, found.upper)


@claim("A7.rounding", "property")
@given(boxes())
def test_every_point_of_the_rounding_box_is_within_the_bounds(box):
    check_inside(box)


@claim("A7.rounding", "property")
@given(boxes())
def test_more_pieces_bound_more_tightly_and_reach_what_is_attained(box):
    coarse, fine = (
        numerics.welch_interval(*box.printed, ddof=box.ddof, half_unit=box.half_unit, pieces=pieces)
        for pieces in (32, 64)
    )
    at_most(coarse.lower, fine.lower)
    at_most(fine.upper, coarse.upper)
    exact = numerics.welch_interval(*box.printed, ddof=box.ddof, half_unit=0.0)
    agree(exact.lower, exact.value)
    agree(exact.upper, exact.value)


@claim("A7.welch", "near-miss")
@claim("A7.rounding", "near-miss")
def test_that_the_corners_bound_p_is_refuted():
    # At a large gap: where the means may be equal, p = 1 is at no corner for a simpler reason.
    refuted(lambda box: check_inside(box, corners_only=True), boxes(gaps=(30.0,)), tries=1000)


@claim("A7.improvement", "property")
@claim("A7.significance", "property")
@pytest.mark.parametrize("variant", REGULARISERS)
@pytest.mark.parametrize("ddof", [0, 1])
def test_the_notes_exact_ranges_are_those_of_all_corners(variant, ddof):
    for place, metric in enumerate(METRICS):
        printed = [float(number[place]) for row in (PUBLISHED[variant], PUBLISHED[BASELINE]) for number in row]
        mean, sd, base_mean, base_sd = Box(tuple(printed), HALF_UNIT, ddof, np.empty((0, 4))).corners().points.T
        fall = 1 - mean / base_mean
        agree(_floats(note.improvement(variant, BASELINE, metric)), np.array([fall.min(), fall.max()]), scale=1.0)
        found = numerics.welch(mean, sd, base_mean, base_sd, ddof=ddof)
        # No printed pair of means is so close that the rounding could make them equal.
        expected = np.array([(found.t**2).min(), (found.t**2).max()])
        agree(_floats(note.square_range(variant, metric, ddof)), expected)
        agree(float(note.least_degrees(variant, metric)), float(found.df.min()))


def _floats(pair):
    return np.array([float(number) for number in pair])


def printed_like(number, ddof):
    """The p-values (9,) of dropout in the note's table 1 or 2, by SciPy."""
    rows = {name: [column.copy() for column in PUBLISHED[name]] for name in (REGULARISERS[DROPOUT], BASELINE)}
    values = {name: float(value) for name, value in note.alike(number).items()}
    place = METRICS.index("MAE-6")
    (rows[REGULARISERS[DROPOUT]][0][place], rows[REGULARISERS[DROPOUT]][1][place]) = values["m"], values["s"]
    (rows[BASELINE][0][place], rows[BASELINE][1][place]) = values["m_0"], values["s_0"]
    for name, columns in rows.items():
        for column, printed in zip(columns, PUBLISHED[name], strict=True):
            assert [f"{value:.3f}" for value in column] == [f"{value:.3f}" for value in printed]
    mean, sd = rows[REGULARISERS[DROPOUT]]
    return Table(mean, sd, *rows[BASELINE]).p(ddof)


@claim("A7.rounding", "property")
@pytest.mark.parametrize(("number", "significant"), [(1, True), (2, False)])
def test_two_tables_that_print_alike_are_decided_differently(number, significant):
    same_answer(bool((closed_testing(printed_like(number, 1)) <= 0.05).any()), significant)


# Families.


def closed_testing(p):
    """Holm by its definition as a closed test: the largest |I| min p over all families I that hold the cell."""
    cells = range(len(p))
    families = chain.from_iterable(combinations(cells, size) for size in range(1, len(p) + 1))
    adjusted = np.zeros(len(p))
    for family in families:
        joint = min(1.0, len(family) * min(p[place] for place in family))
        for place in family:
            adjusted[place] = max(adjusted[place], joint)
    return adjusted


p_values = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=9)


def check_holm(p, adjusted=numerics.holm):
    agree(adjusted(p), closed_testing(p))


@claim("A7.choices", "property")
@given(p_values)
def test_holm_is_the_closed_test(p):
    check_holm(p)


@claim("A7.choices", "near-miss")
def test_bonferroni_and_steps_that_fall_again_are_refuted():
    def bonferroni(p):
        return np.minimum(1.0, len(p) * np.asarray(p))

    def without_the_running_maximum(p):
        ranks = np.argsort(np.argsort(p, kind="stable"), kind="stable")
        return np.minimum(1.0, np.asarray(p) * (len(p) - ranks))

    for wrong in (bonferroni, without_the_running_maximum):
        refuted(lambda p, wrong=wrong: check_holm(p, wrong), p_values)


def check_no_cell(table, *, ddofs=(0, 1), family=27):
    """The first step of Holm: nothing is rejected iff N min p exceeds the level."""
    for ddof in ddofs:
        p = table.p(ddof) if family == 27 else table.p(ddof)[DROPOUT]
        at_most(0.05, float(family * p.min()))


@claim("A7.significance", "property")
@given(tables_that_print_alike())
def test_nothing_is_significant_after_holm_over_all_cells(table):
    check_no_cell(table)


@claim("A7.significance", "property")
@given(tables_that_print_alike(), st.sampled_from([0, 1]), st.sampled_from(FAMILIES))
def test_the_audit_bounds_every_table_that_prints_alike(table, ddof, family):
    found = numerics.audit_table(ddof=ddof, family=family)
    p = table.p(ddof)
    if family == "all":
        # Brute force over 2^27 families is too much: Holm as nested rejections, by its thresholds.
        p = np.array([adjusted_by_thresholds(p.ravel(), place) for place in range(27)]).reshape(3, 9)
    elif family == "variant":
        p = np.stack([closed_testing(row) for row in p])
    at_most(found.p.lower, p)
    at_most(p, found.p.upper)
    significant = p <= 0.05
    assert (significant | ~found.surely).all()
    assert (found.possibly | ~significant).all()
    if family == "all":
        assert not found.possibly.any()


def adjusted_by_thresholds(p, place):
    """The least level at which Holm's thresholds level/N, level/(N-1), .. are all kept up to this p-value."""
    order = sorted(p)
    rank = order.index(p[place])
    return min(1.0, max(value * (len(p) - step) for step, value in enumerate(order[: rank + 1])))


@claim("A7.significance", "near-miss")
def test_for_dropout_alone_it_is_refuted():
    refuted(lambda table: check_no_cell(table, family=9), tables_that_print_alike())


def check_uncorrected(table, cells=STANDING_OUT):
    for ddof in (0, 1):
        found = {(int(row), int(column)) for row, column in np.argwhere(table.p(ddof) <= 0.05)}
        same_answer(found == cells, True)


@claim("A7.choices", "property")
@given(tables_that_print_alike())
def test_two_cells_are_significant_without_a_correction(table):
    check_uncorrected(table)
    check_no_cell(table, ddofs=(0,), family=9)


@claim("A7.choices", "near-miss")
def test_a_third_cell_and_the_other_ddof_are_refuted():
    third = STANDING_OUT | {(DROPOUT, METRICS.index("RMSE-12"))}
    refuted(lambda table: check_uncorrected(table, third), tables_that_print_alike())
    refuted(lambda table: check_no_cell(table, ddofs=(1,), family=9), tables_that_print_alike())


@claim("A7.choices", "property")
@pytest.mark.parametrize(("ddof", "family", "significant"), [(1, 9, True), (0, 9, False), (1, 27, False)])
def test_one_table_is_decided_by_the_choices(ddof, family, significant):
    p = printed_like(1, ddof)
    same_answer(bool(family * p.min() <= 0.05), significant)


def test_the_notes_summary_shows_the_evaluated_numbers():
    summary = next(cell.text for cell in note_cells("a7_table_audit") if "What the table supports" in cell.text)
    for metric, ddof in product(("MAE-6", "MAE-12"), (1, 0)):
        cell = DROPOUT, METRICS.index(metric)
        entries = []
        for family, digits in zip(FAMILIES, (4, 3, 3), strict=True):
            bounds = [float(bound[cell]) for bound in numerics.audit_table(ddof=ddof, family=family).p]
            lower, value, upper = (f"{bound:.{digits}f}" for bound in bounds)
            entries.append(f"{value} [{lower}, {upper}]")
        assert f"| {metric}, {ddof} | {' | '.join(entries)} |" in summary


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"ddof must be 0 or 1, got 2"):
        numerics.welch(1.0, 0.1, 1.0, 0.1, ddof=2)
    with pytest.raises(ValueError, match=r"runs must be at least 2, got 1"):
        numerics.welch(1.0, 0.1, 1.0, 0.1, ddof=1, runs=1)
    with pytest.raises(ValueError, match=r"sd must be above 0, got 0"):
        numerics.welch(1.0, 0.0, 1.0, 0.1, ddof=1)
    with pytest.raises(ValueError, match=r"mean must be finite, got nan"):
        numerics.welch([1.0, np.nan], 0.1, 1.0, 0.1, ddof=1)
    with pytest.raises(ValueError, match=r"base_sd must be above 0.0005, got 0.0005"):
        numerics.welch_interval(1.0, 0.1, 1.0, 0.0005, ddof=1)
    with pytest.raises(ValueError, match=r"pieces must be at least 1, got 0"):
        numerics.welch_interval(1.0, 0.1, 1.0, 0.1, ddof=1, pieces=0)
    with pytest.raises(ValueError, match=r"base must be above 0.0005, got 0"):
        numerics.relative_change(1.0, 0.0)
    with pytest.raises(ValueError, match=r"p must lie in \[0, 1\], got nan"):
        numerics.holm([0.1, np.nan])
    with pytest.raises(ValueError, match=r"p must have shape \(N,\) with N >= 1, got \(0,\)"):
        numerics.holm([])
    with pytest.raises(ValueError, match="family must be one of none, variant, all, got 'nine'"):
        numerics.audit_table(ddof=1, family="nine")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"alpha must lie in \(0, 1\), got 5"):
        numerics.audit_table(ddof=1, family="all", alpha=5)


def test_published_rows_cannot_be_replaced():
    with pytest.raises(TypeError):
        PUBLISHED["ours"] = PUBLISHED[BASELINE]  # pyright: ignore[reportIndexIssue]
    with pytest.raises(ValueError, match="read-only"):
        PUBLISHED[BASELINE].mean[0] = 0.0
