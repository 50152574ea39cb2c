"""B1 evaluated: the two hull conditions against a linear program over all B, with exact proofs of both answers."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import numerics
from numerics.convex_hulls import exact_nearest_weights
from numerics.token_clouds import integer_gram
from tests.evidence import agree, at_most, claim, refuted, same_answer
from tests.token_clouds import KINDS, TokenCloud, build_cloud, clouds

UNDECIDED = (1e-9, 1e-7)
"""Best margins of the program in between are left out: its own tolerance is about the lower end."""

decidable = clouds(kinds=tuple(kind for kind in KINDS if kind != "thin"), max_tokens=8, max_width=5, scales=(1.0,))


def some_matrix_works(tokens, sink, *, causal: bool = False, own: bool = True, query_bias: bool = False) -> bool:
    """Independent answer: the largest t with x_i^T B (x_0 - x_j) >= t over all |B_pr| <= 1, by linear programming."""
    n = len(tokens)
    pairs = [(i, j) for i, j in product(range(n), repeat=2) if (own or i != j) and (not causal or j <= i)]
    if not pairs:
        return True
    queries = np.hstack([tokens, np.ones((n, 1))]) if query_bias else tokens
    rows = np.stack([np.outer(queries[i], sink - tokens[j]).ravel() for i, j in pairs])
    size = rows.shape[1]
    solved = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.hstack([-rows, np.ones((len(rows), 1))]),
        b_ub=np.zeros(len(rows)),
        bounds=[(-1, 1)] * size + [(None, 1)],
    )
    assert solved.status == 0, solved.message
    best = -solved.fun
    assume(not UNDECIDED[0] < best < UNDECIDED[1])
    return best >= UNDECIDED[1]


def both_conditions(found: numerics.Representability) -> bool:
    return not found.queries.inside and not found.keys.inside


def check_conditions(cloud: TokenCloud, rule=both_conditions, **pattern) -> None:
    found = numerics.representability(cloud.tokens, cloud.sink)
    same_answer(rule(found), some_matrix_works(cloud.tokens, cloud.sink, **pattern))


@claim("B1.sink", "property")
@pytest.mark.parametrize("causal", [False, True])
@given(cloud=decidable)
def test_two_hulls_decide(causal, cloud):
    check_conditions(cloud, causal=causal)


@claim("B1.sink", "property")
@given(clouds())
def test_the_rank_one_matrix_makes_the_sink(cloud):
    found = numerics.representability(cloud.tokens, cloud.sink)
    same_answer(found.representable, both_conditions(found))
    if found.representable:
        matrix = np.outer(found.queries.offset, -found.keys.offset)
        margins = numerics.sink_margins(cloud.tokens, cloud.sink, matrix)
        # Every margin is at least g_q^2 g_k^2; a hull may be closer than rounding shows.
        least = (found.queries.distance * found.keys.distance) ** 2
        at_most(least, margins.min(), scale=margins.max())


WRONG_RULES = {
    "queries alone": lambda found: not found.queries.inside,
    "keys alone": lambda found: not found.keys.inside,
    "either": lambda found: not found.queries.inside or not found.keys.inside,
}


@claim("B1.sink", "near-miss")
@pytest.mark.parametrize("name", WRONG_RULES)
def test_a_condition_dropped_is_refuted(name):
    refuted(lambda cloud: check_conditions(cloud, WRONG_RULES[name]), clouds(kinds=("plain",), scales=(1.0,)))


@st.composite
def rational_clouds(draw) -> tuple[list, list]:
    """Tokens and sink with small rational entries: boundary cases are common."""
    n, d = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    entry = st.builds(Fraction, st.integers(-3, 3), st.integers(1, 3))
    return [[draw(entry) for _ in range(d)] for _ in range(n)], [draw(entry) for _ in range(d)]


def check_certificate(case, change=lambda certificate: certificate) -> None:
    """Where there is no sink the weights prove it exactly; where there is one, exact margins are positive."""
    tokens, sink = case
    found = numerics.representability(tokens, sink)
    if found.certificate is not None:
        same_answer(change(found.certificate).proves(tokens, sink), True)
        return
    toward_queries = [Fraction(x) for x in found.queries.offset.tolist()]
    toward_sink = [-Fraction(x) for x in found.keys.offset.tolist()]
    query_side = [sum(map(prod, zip(toward_queries, row, strict=True))) for row in tokens]
    key_side = [sum(w * (x - y) for w, x, y in zip(toward_sink, sink, row, strict=True)) for row in tokens]
    same_answer(min(query_side) > 0 and min(key_side) > 0, True)


@claim("B1.certificate", "property")
@settings(max_examples=150)
@given(rational_clouds())
def test_either_answer_is_proven_exactly(case):
    check_certificate(case)


@claim("B1.certificate", "property")
@given(clouds(kinds=("plain", "integer", "collinear", "equal"), max_width=4))
def test_floats_are_decided_exactly_too(cloud):
    check_certificate((cloud.tokens.tolist(), cloud.sink.tolist()))


@claim("B1.certificate", "near-miss")
def test_equal_weights_are_no_certificate():
    def equal_weights(certificate):
        n = len(certificate.query_weights)
        return replace(certificate, query_weights=(Fraction(1, n),) * n, key_weights=(Fraction(1, n),) * n)

    refuted(lambda case: check_certificate(case, equal_weights), rational_clouds())


@claim("B1.certificate", "near-miss")
def test_negative_weights_are_no_certificate():
    certificate = numerics.FarkasCertificate((Fraction(2), Fraction(-1)), (Fraction(1), Fraction(0)), "made up")
    refuted(lambda made_up: same_answer(made_up.proves([[1, 1], [2, 2]], [5, 0]), True), st.just(certificate))
    assert not any(entry for row in certificate.residual([[1, 1], [2, 2]], [5, 0]) for entry in row)


@claim("B1.without-own", "property")
def test_smallest_counterexample_without_the_own_key():
    tokens, sink = np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([0.0, 1.0])
    margins = numerics.sink_margins(tokens, sink, np.eye(2))
    agree(margins, np.array([[-1.0, 1.0], [1.0, -1.0]]))
    found = numerics.representability(tokens, sink)
    same_answer(found.representable, False)
    assert found.certificate is not None
    assert found.certificate.proves(tokens, sink)


@claim("B1.without-own", "property")
@given(decidable)
def test_without_the_own_key_the_conditions_are_enough(cloud):
    if numerics.representability(cloud.tokens, cloud.sink).representable:
        same_answer(some_matrix_works(cloud.tokens, cloud.sink, own=False), True)


@claim("B1.without-own", "near-miss")
def test_without_the_own_key_the_conditions_are_not_necessary():
    few = clouds(kinds=("plain",), scales=(1.0,), min_tokens=2, max_tokens=3, max_width=2)
    refuted(lambda cloud: check_conditions(cloud, own=False), few)


def check_query_bias(cloud: TokenCloud, rule=lambda found: not found.keys.inside) -> None:
    plain = numerics.representability(cloud.tokens, cloud.sink)
    biased = numerics.representability(cloud.tokens, cloud.sink, query_bias=True)
    same_answer(biased.representable, rule(plain))
    same_answer(biased.representable, some_matrix_works(cloud.tokens, cloud.sink, query_bias=True))


@claim("B1.biases", "property")
@given(decidable)
def test_with_a_query_bias_the_keys_decide(cloud):
    check_query_bias(cloud)


@claim("B1.biases", "near-miss")
def test_with_a_query_bias_the_queries_do_not_matter():
    refuted(lambda cloud: check_query_bias(cloud, both_conditions), clouds(kinds=("plain",), scales=(1.0,)))


def check_key_bias(case, bias_of="b_k") -> None:
    """The attention weights with a bias are those without."""
    cloud, seed = case
    generator = torch.Generator().manual_seed(seed)
    x = torch.from_numpy(np.vstack([cloud.sink, cloud.tokens]))
    w_q, w_k = torch.randn(2, 3, x.shape[1], generator=generator)
    bias: dict[str, Any] = {bias_of: torch.randn(3, generator=generator)}
    plain = numerics.attention_heads(x, w_q, w_k, w_k)
    agree(numerics.attention_heads(x, w_q, w_k, w_k, **bias).weights, plain.weights)


key_bias_cases = st.tuples(clouds(kinds=("plain",), scales=(1.0,)), st.integers(0, 2**16))


@claim("B1.biases", "property")
@given(key_bias_cases)
def test_a_key_bias_changes_nothing(case):
    check_key_bias(case)


@claim("B1.biases", "near-miss")
def test_a_query_bias_changes_something():
    refuted(lambda case: check_key_bias(case, "b_q"), key_bias_cases)


def check_longest(case, length: float = 1.0, gain: bool = True) -> None:
    """A sink of ``length`` times the tokens' common norm, then a gain: never in the hull."""
    cloud, seed = case
    generator = np.random.default_rng(seed)
    rows = np.vstack([length * cloud.sink / np.linalg.norm(cloud.sink), cloud.tokens])
    rows[1:] /= np.linalg.norm(rows[1:], axis=1, keepdims=True)
    signs = generator.choice([-1.0, 1.0], rows.shape[1])
    rows = rows * (signs * generator.uniform(0.1, 3.0, rows.shape[1]) if gain else 1.0)
    assume(not (rows[1:] == rows[0]).all(1).any())
    same_answer(numerics.hull_distance(rows[1:], rows[0]).inside, False)


norm_cases = st.tuples(clouds(kinds=("plain", "shifted"), scales=(1.0,), min_width=2), st.integers(0, 2**16))


@claim("B1.norms", "property")
@given(norm_cases)
def test_after_rms_norm_with_a_gain_no_token_is_a_mixture_of_others(case):
    check_longest(case)


@claim("B1.norms", "property")
@given(norm_cases, st.floats(1.001, 10.0))
def test_a_longer_token_is_no_mixture(case, length):
    check_longest(case, length, gain=False)


@claim("B1.norms", "near-miss")
def test_a_shorter_sink_may_be_a_mixture():
    refuted(lambda case: check_longest(case, 0.3), norm_cases)


def rms_norm(cloud: TokenCloud, gain) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and sink after RMSNorm with a gain."""
    rows = np.vstack([cloud.sink, cloud.tokens])
    rows = gain * rows / np.sqrt((rows**2).mean(1, keepdims=True))
    return rows[1:], rows[0]


def check_similarity(cloud: TokenCloud, gain: float | np.ndarray = 1.0) -> None:
    """With B = I after RMSNorm no query's margin over its own key is positive."""
    tokens, sink = rms_norm(cloud, gain)
    own = numerics.sink_margins(tokens, sink, np.eye(len(sink))).diagonal().copy()
    at_most(own.max(), 0.0, scale=float((tokens**2).sum(1).max()))


similar = clouds(kinds=("plain", "shifted"), min_width=2)


@claim("B1.similarity", "property")
@given(similar)
def test_similarity_prefers_the_own_key(cloud):
    check_similarity(cloud)


@claim("B1.similarity", "near-miss")
def test_similarity_with_a_gain_is_another_matter():
    refuted(lambda cloud: check_similarity(cloud, np.arange(1.0, cloud.sink.size + 1)), similar)


def check_own_margin(cloud: TokenCloud, distance_factor: float = 1.0) -> None:
    """x_i . (x_0 - x_i) = (||x_0||^2 - ||x_i||^2 - ||x_0 - x_i||^2)/2, with any gain."""
    tokens, sink = rms_norm(cloud, np.arange(1.0, cloud.sink.size + 1))
    own = numerics.sink_margins(tokens, sink, np.eye(len(sink))).diagonal().copy()
    squares = (tokens**2).sum(1)
    formula = ((sink**2).sum() - squares - distance_factor * ((sink - tokens) ** 2).sum(1)) / 2
    agree(own, formula, scale=float(squares.max() + (sink**2).sum()))


@claim("B1.similarity-gain", "property")
@given(similar)
def test_own_margin_by_norms(cloud):
    check_own_margin(cloud)


@claim("B1.similarity-gain", "near-miss")
def test_own_margin_by_norms_alone_is_refuted():
    refuted(lambda cloud: check_own_margin(cloud, distance_factor=0.0), similar)


@claim("B1.similarity-gain", "property")
def test_smallest_counterexample_with_a_gain():
    cloud = TokenCloud(np.array([[3.0, 4.0]]), np.array([0.0, 1.0]), {})
    tokens, sink = rms_norm(cloud, np.array([1.0, 2.0]))
    agree(numerics.sink_margins(tokens, sink, np.eye(2)), np.array([[14 / 25]]))


@claim("B1.generic", "property")
@given(clouds(kinds=("plain",), scales=(1.0,), max_tokens=8))
def test_few_tokens_always_have_a_sink(cloud):
    n, d = cloud.tokens.shape
    if n <= d:
        same_answer(numerics.representability(cloud.tokens, cloud.sink).representable, True)
    else:
        assert numerics.wendel_probability(n, d) < 1


def check_wendel(cloud: TokenCloud, probability=numerics.wendel_probability) -> None:
    """Over all 2^n sign patterns of one cloud, the share that misses 0 - counted, not sampled."""
    n, d = cloud.tokens.shape
    patterns = list(product((1.0, -1.0), repeat=n))
    missed = sum(not numerics.hull_distance(np.array(p)[:, None] * cloud.tokens).inside for p in patterns)
    agree(missed / len(patterns), float(probability(n, d)))


sign_clouds = clouds(kinds=("plain",), scales=(1.0,), max_tokens=6, max_width=4)


@claim("B1.generic", "property")
@settings(max_examples=25)
@given(sign_clouds)
def test_wendel_counts_the_sign_patterns(cloud):
    check_wendel(cloud)


@claim("B1.generic", "near-miss")
def test_wendel_with_one_token_more_is_refuted():
    refuted(lambda cloud: check_wendel(cloud, lambda n, d: numerics.wendel_probability(n + 1, d)), sign_clouds)


def test_hull_distance_against_brute_force_on_a_segment():
    shares = np.linspace(0, 1, 100_001)[:, None]
    for seed in range(5):
        first, second, target = np.random.default_rng(seed).standard_normal((3, 4))
        nearest = np.linalg.norm(shares * first + (1 - shares) * second - target, axis=1).min()
        agree(numerics.hull_distance([first, second], target).distance, nearest, tolerance="program")


@given(clouds())
def test_hull_distance_is_proven_from_both_sides(cloud):
    found = numerics.hull_distance(cloud.tokens, cloud.sink)
    same_answer(found.inside, found.exact_weights is not None and found.distance == 0)
    agree(found.weights.sum(), 1.0)
    at_most(0.0, found.weights.min())
    agree(found.lower, found.distance)


@given(rational_clouds(), st.integers(0, 2**16))
def test_exact_weights_are_optimal_from_any_start(case, seed):
    """The nearest point y has y . p_j >= ||y||^2 for every j, exactly, whatever convex weights one starts from."""
    gram = integer_gram(case[0])
    drawn = [Fraction(int(w)) for w in np.random.default_rng(seed).integers(0, 4, len(gram))]
    start = [weight / sum(drawn) for weight in drawn] if any(drawn) else [Fraction(1, len(gram))] * len(gram)
    weights = exact_nearest_weights(gram, start)
    assert min(weights) >= 0
    assert sum(weights) == 1
    inner = [sum(w * g for w, g in zip(weights, row, strict=True)) for row in gram]
    assert min(inner) >= sum(w * x for w, x in zip(weights, inner, strict=True))


def test_a_hair_off_the_hull_is_off_it():
    off = numerics.hull_distance([[0.5, np.nextafter(1.0, 2.0)], [-0.5, -1.0]])
    assert not off.inside
    # The line through the points passes 0 at |det|/length = (half of one unit in the last place)/length.
    agree(off.distance, 2.0**-53 / np.hypot(1.0, 2.0))
    assert numerics.hull_distance([[0.5, 1.0], [-0.5, -1.0]]).inside


def test_certificates_of_many_tokens_stay_quick_and_exact():
    cloud = build_cloud(n=60, d=8, seed=1)
    found = numerics.representability(cloud.tokens, cloud.sink)
    assert found.certificate is not None
    assert found.certificate.proves(cloud.tokens, cloud.sink)


def test_an_undecidable_large_cloud_is_an_error():
    cloud = build_cloud(n=400, d=60, seed=1)
    a_hair_off = cloud.tokens.copy()
    a_hair_off[:, 0] = 1e-17
    with pytest.raises(ArithmeticError, match="too large for exact arithmetic"):
        numerics.hull_distance(a_hair_off)


def test_a_large_cloud_that_holds_the_target_is_decided():
    points = build_cloud(n=400, d=60, seed=1).tokens.copy()
    points[:, 0] = 1e-17
    points[[5, 7]] = 0
    found = numerics.hull_distance(points)
    assert (found.inside, found.distance) == (True, 0.0)
    assert found.exact_weights is not None
    assert [place for place, weight in enumerate(found.exact_weights) if weight] == [5]


def test_a_large_cloud_around_the_target_is_decided_by_the_points_that_carry_weight():
    cloud = build_cloud(n=800, d=12, seed=1)
    found = numerics.representability(cloud.tokens, 100 * cloud.sink)
    assert found.certificate is not None
    assert found.certificate.proves(cloud.tokens, 100 * cloud.sink)


def test_bad_input_is_named():
    tokens = np.ones((3, 2))
    with pytest.raises(ValueError, match=r"matrix must have shape \(2, 2\), got \(3, 3\)"):
        numerics.sink_margins(tokens, [0, 0], np.eye(3))
    with pytest.raises(ValueError, match="sink must be finite, got inf"):
        numerics.representability(tokens, [np.inf, 0])
    with pytest.raises(TypeError, match="tokens must hold real numbers, got dtype"):
        numerics.representability([["a", "b"]], [0, 0])
    with pytest.raises(ValueError, match="n and d must be at least 1, got n = 0, d = 3"):
        numerics.wendel_probability(0, 3)
    with pytest.raises(ValueError, match="points must have shape"):
        numerics.hull_distance([1.0, 2.0])
    with pytest.raises(ValueError, match="target must have 2 entries"):
        numerics.hull_distance(tokens, [1.0])
    with pytest.raises(ValueError, match="query_bias must be finite"):
        numerics.sink_margins(tokens, [0, 0], np.eye(2), query_bias=[np.nan, 0])
