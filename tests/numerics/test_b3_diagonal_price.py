"""B3 evaluated: bounds below the program, closed forms equal to it, certificates checked, price against rank."""

from fractions import Fraction
from math import cos, inf, pi, sqrt
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import numerics
from numerics.price_program import DUAL_NORM, Norm
from tests.evidence import agree, at_most, claim, refuted, same_answer
from tests.token_clouds import TokenCloud, build_cloud, clouds

NORMS: tuple[Norm, ...] = ("nuclear", "fro", "spectral")
small_clouds = clouds(max_tokens=7, max_width=6)


def pair_matrices(cloud: TokenCloud, pairs: NDArray[np.int64], keys: NDArray[np.float64]) -> NDArray[np.float64]:
    """x_s (x_s - x_t)^T for every pair, (K, d, d)."""
    own, other = pairs.T
    return np.einsum("kp,kr->kpr", cloud.tokens[own], cloud.tokens[own] - keys[other])


def is_proven_impossible(price: numerics.DiagonalPrice, tokens, keys) -> bool:
    """The obstruction's weights are convex, and sum weights x_s (x_s - x_t)^T vanishes in exact arithmetic."""
    if price.obstruction is None or min(price.obstruction) < 0 or sum(price.obstruction) != 1:
        return False
    rows = [[Fraction(x) for x in row] for row in np.asarray(tokens).tolist()]
    all_keys = [[Fraction(x) for x in row] for row in np.asarray(keys).tolist()]
    width = range(len(rows[0]))
    total = [[Fraction(0) for _ in width] for _ in width]
    for weight, (own, other) in zip(price.obstruction, price.pairs.tolist(), strict=True):
        for p in width:
            for r in width:
                total[p][r] += weight * rows[own][p] * (rows[own][r] - all_keys[other][r])
    return not any(entry for row in total for entry in row)


def check_bounds(cloud: TokenCloud, factor: float = 1.0) -> None:
    """Each scatter bound, times the factor, is at most the norm of a matrix that makes the diagonal."""
    bounds = numerics.scatter_bounds(cloud.tokens, margin=2.0)
    for norm in NORMS:
        price = numerics.diagonal_price(cloud.tokens, margin=2.0, norm=norm)
        if price.representable:
            at_most(factor * bounds[norm], price.value)
        else:
            same_answer(is_proven_impossible(price, cloud.tokens, cloud.tokens), True)


@claim("B3.bounds", "property")
@settings(max_examples=40)
@given(small_clouds)
def test_scatter_bounds_lie_below_the_program(cloud):
    check_bounds(cloud)


@claim("B3.bounds", "near-miss")
def test_bounds_with_n_for_n_minus_one_are_refuted():
    orthonormal = st.integers(2, 5).map(lambda n: TokenCloud(np.eye(n), np.zeros(n), {}))
    refuted(lambda cloud: check_bounds(cloud, len(cloud.tokens) / (len(cloud.tokens) - 1)), orthonormal)


@st.composite
def simplices(draw, *, shifted: bool = True) -> tuple[TokenCloud, float]:
    """A regular simplex whose centroid is orthogonal to its edges, in a random frame, with its radius."""
    n, extra = draw(st.integers(2, 6)), draw(st.integers(0, 2))
    radius = draw(st.sampled_from([1.0, 0.3, 4.0]))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    frame = np.linalg.qr(generator.standard_normal((n + extra, n + extra)))[0]
    shift = generator.standard_normal() * frame[:n].sum(0) + (generator.standard_normal(extra) @ frame[n:])
    tokens = radius * frame[:n] + (shift if shifted else 0.0)
    return TokenCloud(tokens, np.zeros(n + extra), {"n": n, "extra": extra, "radius": radius}), radius


def check_simplex(case, prices=lambda n: {"nuclear": n - 1, "fro": sqrt(n - 1), "spectral": 1}, tilt=0.0) -> None:
    """Program = scatter bound = closed form/rho^2, in three norms; ``tilt`` moves the simplex along an edge."""
    cloud, radius = case
    tokens = cloud.tokens + tilt * (cloud.tokens[0] - cloud.tokens[1])
    bounds = numerics.scatter_bounds(tokens)
    for norm, price in prices(len(tokens)).items():
        solved = numerics.diagonal_price(tokens, norm=norm)
        agree(solved.value, price / radius**2, tolerance="program")
        agree(bounds[norm], price / radius**2)


@claim("B3.simplex", "property")
@settings(max_examples=25)
@given(simplices())
def test_bounds_are_the_price_of_a_simplex(case):
    check_simplex(case)


@claim("B3.simplex", "property")
@settings(max_examples=15)
@given(simplices(shifted=False))
def test_bounds_are_the_price_of_orthogonal_tokens(case):
    check_simplex(case)


WRONG_SIMPLEX_PRICES = {
    "n for n - 1": lambda n: {"nuclear": n, "fro": sqrt(n), "spectral": 1},
    "one price for all norms": lambda n: {"nuclear": n - 1, "fro": n - 1, "spectral": n - 1},
}


@claim("B3.simplex", "near-miss")
@pytest.mark.parametrize("name", WRONG_SIMPLEX_PRICES)
def test_a_wrong_price_of_a_simplex_is_refuted(name):
    refuted(lambda case: check_simplex(case, WRONG_SIMPLEX_PRICES[name]), simplices())


@claim("B3.simplex", "near-miss")
def test_a_centroid_along_an_edge_is_refuted():
    refuted(lambda case: check_simplex(case, tilt=0.5), simplices())


@claim("B3.loose", "property")
def test_tokens_on_a_line_cannot_be_done_though_the_bound_is_finite():
    price = numerics.diagonal_price([[1], [2]])
    assert price.value == inf
    assert price.obstruction == (Fraction(2, 3), Fraction(1, 3))
    assert is_proven_impossible(price, [[1], [2]], [[1], [2]])
    for bound in numerics.scatter_bounds([[1], [2]]).values():
        agree(bound, 2.0)


@claim("B3.loose", "property")
@settings(max_examples=30)
@given(clouds(kinds=("plain", "shifted"), scales=(1.0,), min_tokens=2, max_tokens=2, max_width=6))
def test_two_tokens_in_closed_form(cloud):
    """n = 2: m/(||x_1 - x_2|| dist(0, conv{x_1, -x_2})) in every norm; never below the bound."""
    first, second = cloud.tokens
    hull = numerics.hull_distance([first, -second])
    for norm, bound in numerics.scatter_bounds(cloud.tokens).items():
        price = numerics.diagonal_price(cloud.tokens, norm=norm)
        same_answer(price.representable, not hull.inside)
        if price.representable:
            agree(price.value, 1 / (float(np.linalg.norm(first - second)) * hull.distance), tolerance="program")
            at_most(bound, price.value)


@claim("B3.loose", "near-miss")
def test_the_bound_as_a_price_is_refuted():
    def check(cloud):
        price = numerics.diagonal_price(cloud.tokens)
        agree(price.value, numerics.scatter_bounds(cloud.tokens)["nuclear"], tolerance="program")

    refuted(check, clouds(kinds=("plain",), min_tokens=2, max_tokens=4, min_width=4))


def check_program(case, norm: Norm, dual: Norm) -> None:
    """Both sides of the program by hand, and the bound of random weights on the pairs."""
    cloud, with_sink, seed = case
    sink = cloud.sink if with_sink else None
    keys = np.vstack([cloud.tokens, cloud.sink]) if with_sink else cloud.tokens
    price = numerics.diagonal_price(cloud.tokens, sink=sink, margin=2.0, norm=norm)
    if not price.representable:
        same_answer(is_proven_impossible(price, cloud.tokens, keys), True)
        return
    assert price.matrix is not None
    assert price.multipliers is not None
    agree(numerics.matrix_norm(price.matrix, norm), price.value)
    agree(price.lower, price.value, tolerance="program")
    if len(price.pairs) == 0:
        return
    margins = numerics.diagonal_margins(cloud.tokens, price.matrix, sink=sink)
    at_most(2.0, margins.min(), scale=price.value * np.abs(keys).max() ** 2 * keys.shape[1] ** 2)
    matrices = pair_matrices(cloud, price.pairs, keys)
    total = np.einsum("k,kpr->pr", price.multipliers, matrices)
    # What proves the lower side is "at most 1"; how far below, counted rounding decides.
    at_most(numerics.matrix_norm(total, DUAL_NORM[norm]), 1.0)
    agree(numerics.matrix_norm(total, DUAL_NORM[norm]), 1.0, tolerance="program")
    agree(2.0 * price.multipliers.sum(), price.lower)
    generator = np.random.default_rng(seed)
    # Weights near the best ones and far from them.
    for weights in (price.multipliers, generator.exponential(size=len(matrices))):
        size = numerics.matrix_norm(np.einsum("k,kpr->pr", weights, matrices), dual)
        at_most(2.0 * weights.sum() / size, price.value)


program_cases = st.tuples(small_clouds, st.booleans(), st.integers(0, 2**16))


@claim("B3.program", "property")
@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=40)
@given(case=program_cases)
def test_program_is_proven_from_both_sides(norm, case):
    check_program(case, norm, DUAL_NORM[norm])


@claim("B3.program", "near-miss")
def test_a_bound_by_the_norm_itself_is_refuted():
    refuted(lambda case: check_program(case, "spectral", "spectral"), program_cases)


@claim("B3.program", "property")
@settings(max_examples=25)
@given(small_clouds, st.sampled_from(NORMS))
def test_a_second_solver_agrees(cloud, norm):
    one, other = (numerics.diagonal_price(cloud.tokens, norm=norm, solvers=(s,)) for s in ("CLARABEL", "SCS"))
    same_answer(one.value == inf, other.value == inf)
    if one.value < inf:
        agree(one.value, other.value, tolerance="program")


@claim("B3.program", "property")
@settings(max_examples=30)
@given(clouds(min_tokens=2, max_tokens=7, max_width=6))
def test_frobenius_price_is_a_hull_distance(cloud):
    price = numerics.diagonal_price(cloud.tokens, norm="fro")
    matrices = pair_matrices(cloud, price.pairs, cloud.tokens)
    hull = numerics.hull_distance(matrices.reshape(len(matrices), -1))
    if price.representable:
        agree(price.value, 1 / hull.distance, tolerance="program")
    else:
        # The products are rounded here, so the hull is only nearly touched.
        at_most(hull.distance, 1e-12, scale=float(np.abs(matrices).max()))


def check_finite(tokens) -> None:
    """Some B makes the diagonal, and the matrix found does."""
    price = numerics.diagonal_price(tokens, norm="fro")
    same_answer(price.representable, True)
    assert price.matrix is not None
    at_most(0.0, numerics.diagonal_margins(tokens, price.matrix).min())


def on_a_sphere(cloud: TokenCloud) -> NDArray[np.float64]:
    return cloud.tokens / np.linalg.norm(cloud.tokens, axis=1, keepdims=True)


@claim("B3.finite", "property")
@settings(max_examples=30)
@given(clouds(kinds=("plain", "shifted"), min_tokens=2, max_tokens=7, min_width=2))
def test_independent_tokens_have_a_price(cloud):
    check_finite(cloud.tokens[: cloud.tokens.shape[1]])


@claim("B3.finite", "property")
@settings(max_examples=30)
@given(clouds(kinds=("plain", "shifted"), min_tokens=2, min_width=2, max_width=4))
def test_distinct_tokens_of_equal_norm_have_a_price(cloud):
    check_finite(on_a_sphere(cloud))


@claim("B3.finite", "property")
@settings(max_examples=30)
@given(clouds(kinds=("plain", "integer"), min_tokens=1, max_tokens=6))
def test_repeated_tokens_have_none(cloud):
    tokens = np.vstack([cloud.tokens, cloud.tokens[:1]])
    price = numerics.diagonal_price(tokens)
    same_answer(price.representable, False)
    assert is_proven_impossible(price, tokens, tokens)


@claim("B3.finite", "near-miss")
def test_distinct_tokens_alone_are_not_enough():
    refuted(lambda cloud: check_finite(cloud.tokens), clouds(kinds=("plain",), min_tokens=4, max_width=2))


@claim("B3.finite", "near-miss")
def test_equal_norms_alone_are_not_enough():
    equal = clouds(kinds=("equal",), min_tokens=2, min_width=2)
    refuted(lambda cloud: check_finite(on_a_sphere(cloud)), equal)


@st.composite
def low_rank_matrices(draw, *, min_tokens: int = 3, rank: int = 1):
    """Random tokens and a random B of the given rank; sometimes B is fitted to the tokens."""
    cloud = draw(clouds(kinds=("plain", "shifted"), scales=(1.0,), min_tokens=min_tokens, max_tokens=6, min_width=2))
    generator = np.random.default_rng(draw(st.integers(0, 2**16)))
    n, d = cloud.tokens.shape
    if draw(st.booleans()) and n <= d:
        # Any rank-`rank` table of scores between independent tokens can be had.
        left, right = generator.standard_normal((2, rank, n))
        inverse = np.linalg.pinv(cloud.tokens)
        return cloud, inverse @ left.T @ (left if draw(st.booleans()) else right) @ inverse.T
    return cloud, generator.standard_normal((d, rank)) @ generator.standard_normal((rank, d))


def check_no_diagonal(case) -> None:
    """The least margin is not positive."""
    cloud, matrix = case
    margins = numerics.diagonal_margins(cloud.tokens, matrix)
    at_most(margins.min(), 0.0, scale=float(np.abs(margins).max()))


@claim("B3.rank-one", "property")
@settings(max_examples=200)
@given(low_rank_matrices())
def test_rank_one_never_makes_a_diagonal_of_three(case):
    check_no_diagonal(case)


@claim("B3.rank-one", "near-miss")
def test_rank_two_may():
    refuted(check_no_diagonal, low_rank_matrices(rank=2))


@claim("B3.rank-one", "near-miss")
def test_rank_one_may_make_a_diagonal_of_two():
    refuted(check_no_diagonal, low_rank_matrices(min_tokens=2))


def check_circle(case, angle=lambda n: 2 * pi / n) -> None:
    """The circle's matrix: rank at most 2, every margin kept, nuclear norm m n/(1 - cos(angle))."""
    cloud, _ = case
    n = len(cloud.tokens)
    B = numerics.circle_diagonal(cloud.tokens, margin=2.0)
    margins = numerics.diagonal_margins(cloud.tokens, B)
    at_most(2.0, margins.min())
    agree(margins.min(), 2.0)
    singular = np.linalg.svd(B, compute_uv=False)
    at_most(singular[2:].sum(), 0.0, scale=n * singular[0])
    agree(numerics.matrix_norm(B, "nuclear"), 2.0 * n / (1 - cos(angle(n))))
    free = numerics.diagonal_price(cloud.tokens, margin=2.0)
    at_most(free.lower, numerics.matrix_norm(B, "nuclear"))
    if n <= 3:
        agree(numerics.matrix_norm(B, "nuclear"), free.value, tolerance="program")


def unit_simplices():
    return simplices(shifted=False).filter(lambda case: case[1] == 1.0)


@claim("B3.rank-two", "property")
@settings(max_examples=25)
@given(unit_simplices())
def test_the_circle_makes_the_diagonal_at_its_price(case):
    check_circle(case)


@claim("B3.rank-two", "near-miss")
def test_half_the_angle_is_refuted():
    refuted(lambda case: check_circle(case, lambda n: pi / n), unit_simplices())


def test_price_against_rank_lies_between_the_two_sides():
    for n in (2, 3, 4, 5):
        found = numerics.diagonal_price_by_rank(np.eye(n), starts=4)
        assert found.ranks == tuple(range(1, n + 1))
        assert (found.values[0] == inf) == (n >= 3)
        assert all(low >= high for low, high in zip(found.values, found.values[1:], strict=False))
        for rank, value, matrix in zip(found.ranks, found.values, found.matrices, strict=True):
            if matrix is None:
                continue
            at_most(found.lower, value)
            at_most(1.0, numerics.diagonal_margins(np.eye(n), matrix).min())
            assert np.linalg.matrix_rank(matrix, tol=1e-9) <= rank
        at_most(found.values[1], n / (1 - cos(2 * pi / n)) * (1 + 1e-6))
        agree(found.values[-1], n - 1.0, tolerance="program")


def test_price_against_rank_with_the_sink_as_a_key():
    cloud = build_cloud(n=4, d=5, kind="shifted", seed=2)
    found = numerics.diagonal_price_by_rank(cloud.tokens, sink=cloud.sink, margin=2.0, ranks=(2, 4), starts=3)
    assert found.ranks == (2, 4)
    for value, matrix in zip(found.values, found.matrices, strict=True):
        assert matrix is not None
        at_most(found.lower, value)
        at_most(2.0, numerics.diagonal_margins(cloud.tokens, matrix, sink=cloud.sink).min())


def test_the_sink_as_a_key_never_lowers_the_price():
    for seed in range(5):
        cloud = build_cloud(n=4, d=5, seed=seed)
        without = numerics.diagonal_price(cloud.tokens)
        at_most(without.lower, numerics.diagonal_price(cloud.tokens, sink=cloud.sink).value)


def test_degenerate_clouds_are_named_never_priced():
    cases = {
        "repeated": [[1, 0], [1, 0], [0, 1]],
        "a token at the origin": [[0, 0], [1, 0]],
        "collinear through the origin": [[1, 1], [2, 2]],
        "a token in the middle of two": [[1, 0], [3, 0], [2, 0]],
        "all at the origin": [[0.0], [0.0]],
        "thirds": [[Fraction(1, 3)], [Fraction(2, 3)]],
    }
    for name, tokens in cases.items():
        price = numerics.diagonal_price(tokens)
        assert price.value == inf, name
        assert price.matrix is None, name
        assert is_proven_impossible(price, tokens, tokens), name
    assert numerics.scatter_bounds([[1, 2], [1, 2]]) == dict.fromkeys(NORMS, inf)


def test_one_token_asks_for_nothing_and_a_sink_on_it_for_too_much():
    alone = numerics.diagonal_price([[3.0, 4.0]])
    assert alone.value == alone.gap == 0.0
    assert alone.representable
    assert numerics.scatter_bounds([[3.0, 4.0]]) == dict.fromkeys(NORMS, 0.0)
    agree(numerics.diagonal_price([[3.0, 4.0]], sink=[0.0, 0.0]).value, 1 / 25, tolerance="program")
    assert numerics.diagonal_price([[3.0, 4.0]], sink=[3.0, 4.0]).value == inf


def test_prices_of_wide_tokens_need_only_their_span():
    tokens = np.random.default_rng(0).standard_normal((4, 300))
    narrow = np.linalg.qr(tokens.T)[1].T
    agree(numerics.diagonal_price(tokens).value, numerics.diagonal_price(narrow).value, tolerance="program")


def test_prices_out_of_range_are_errors_never_numbers():
    tokens = np.array([[1.0, 0.0], [0.0, 1.0]])
    for scale in (1e-100, 1e100):
        agree(numerics.diagonal_price(scale * tokens, norm="fro").value * scale**2, 1.0, tolerance="program")
        agree(numerics.scatter_bounds(scale * tokens)["fro"] * scale**2, 1.0)
    with pytest.raises(ArithmeticError, match="out of float64's reach"):
        numerics.diagonal_price(1e-200 * tokens)
    with pytest.raises(ArithmeticError, match="the bound is out of float64's range"):
        numerics.scatter_bounds(1e-200 * tokens)
    assert numerics.scatter_bounds(1e200 * tokens)["fro"] == 0.0
    # Apart by less than float64 can tell: not the same, so not infinite, but nothing to compute with.
    with pytest.raises(ArithmeticError, match="their largest distance is 0"):
        numerics.scatter_bounds([[2**62 + 1, 1], [2**62, 1]])
    # Collinear but for the rounding of the entries: a diagonal exists, at a price that no float64 matrix shows.
    direction = np.random.default_rng(11).standard_normal(3)
    almost = np.outer([-1.0, 2.0, 3.0], direction)
    almost[2, 0] = np.nextafter(almost[2, 0], np.inf)
    with pytest.raises(ArithmeticError):
        numerics.diagonal_price(almost)


@settings(max_examples=15)
@given(st.sampled_from(NORMS), st.sampled_from((1e-4, 1e-6, 1e-8, 1e-9, 1e-10)), st.integers(0, 2**16))
def test_what_is_proven_holds_in_exact_arithmetic(norm, width, seed):
    """Nearly equal tokens: every margin of the matrix in rationals, or an error, never a smaller one."""
    generator = np.random.default_rng(seed)
    tokens = generator.standard_normal(3) + width * generator.standard_normal((3, 3))
    try:
        found = numerics.diagonal_price(tokens, norm=norm)
    except ArithmeticError:
        return
    assert found.matrix is not None
    rows, B = [[[Fraction(entry) for entry in row] for row in part.tolist()] for part in (tokens, found.matrix)]
    for own, other in found.pairs.tolist():
        scores = [sum(x * b for x, b in zip(rows[own], column, strict=True)) for column in zip(*B, strict=True)]
        gap = [x - y for x, y in zip(rows[own], rows[other], strict=True)]
        at_most(1 - 1e-6, float(sum(s * g for s, g in zip(scores, gap, strict=True))))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="norm must be one of 'nuclear', 'fro', 'spectral', got 'l1'"):
        numerics.diagonal_price(np.eye(2), norm=cast(Any, "l1"))
    with pytest.raises(ValueError, match=r"tokens must be finite, got nan at \(0, 1\)"):
        numerics.diagonal_price([[0.0, np.nan]])
    with pytest.raises(ValueError, match="margin must be positive and finite, got -1"):
        numerics.diagonal_price(np.eye(2), margin=-1)
    with pytest.raises(ValueError, match="sink must have 2 entries"):
        numerics.diagonal_price(np.eye(2), sink=[1, 2, 3])
    with pytest.raises(ValueError, match=r"matrix must have shape \(2, 2\), got \(1, 2\)"):
        numerics.diagonal_margins(np.eye(2), [[1, 2]])
    with pytest.raises(ValueError, match="tokens must be two or more orthonormal rows"):
        numerics.circle_diagonal(2 * np.eye(3))
    with pytest.raises(ValueError, match="ranks must be at least 1, got 0"):
        numerics.diagonal_price_by_rank(np.eye(2), ranks=(0, 1))
    with pytest.raises(TypeError, match="ranks must be an integer, got float"):
        numerics.diagonal_price_by_rank(np.eye(2), ranks=cast(Any, (1.5,)))
    with pytest.raises(ValueError, match="ranks must name at least one rank, got none"):
        numerics.diagonal_price_by_rank(np.eye(2), ranks=())
    with pytest.raises(ValueError, match=r"matrix must be finite, got nan at \(0, 0\)"):
        numerics.matrix_norm(np.array([[np.nan]]), "fro")
