"""B4 evaluated: prices of the family = convex programs, exact thresholds, leakage, value side, trained optimum."""

from functools import partial
from math import exp, inf, log, sqrt

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attention
import numerics
from numerics import SinkFamily
from numerics.b4_sinks_are_cheaper import Keys, TrainedPattern
from numerics.price_program import Norm, least_norm_matrix
from tests.evidence import agree, at_most, claim, refuted

NORMS: tuple[Norm, ...] = ("nuclear", "fro", "spectral")
KEYS: tuple[Keys, ...] = ("with sink", "without sink")

knobs = st.floats(0.0, 4.0).map(lambda value: round(value, 3))


@st.composite
def families(draw, *, max_tokens: int = 5, t=knobs, z=knobs) -> SinkFamily:
    return SinkFamily(draw(st.integers(2, max_tokens)), draw(t), draw(z))


def convex_programs(family: SinkFamily, norm: Norm, keys: Keys) -> tuple[float, float]:
    """Sink and diagonal by the solver, margin 1."""
    sink = numerics.sink_program(family.tokens, family.sink, norm=norm)
    asked = family.sink if keys == "with sink" else None
    return sink.value, numerics.diagonal_price(family.tokens, sink=asked, norm=norm).value


def check_prices(family: SinkFamily, norm: Norm, keys: Keys, formula=None) -> None:
    found = numerics.family_prices(family.n, family.G, norm=norm, keys=keys)
    agree(
        torch.tensor(formula(family.n, family.G) if formula else tuple(found)),
        torch.tensor(convex_programs(family, norm, keys)),
        tolerance="program",
    )


@claim("B4.prices", "property")
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=8)
@given(family=families())
def test_closed_prices_are_the_convex_programs(norm, keys, family):
    check_prices(family, norm, keys)


@claim("B4.prices", "property")
@given(families(max_tokens=12))
def test_the_family_has_the_stated_hull_distances(family):
    tokens, sink = family.tokens, family.sink
    queries, keys = numerics.hull_distance(tokens), numerics.hull_distance(tokens, sink)
    agree(queries.distance * keys.distance, family.G)
    agree(numerics.sink_price(tokens, sink, margin=2.0).value, 2 / family.G)
    products = tokens @ tokens.T
    agree(products, family.t**2 + np.eye(family.n))
    agree(tokens @ sink, np.full(family.n, family.t**2), scale=1.0)


WRONG_PRICES = {
    "sink with the nearest token": lambda n, G: (1 / sqrt(G**2 + 1), n - 1 + 1 / (n * G)),
    "diagonal as without x_0": lambda n, G: (1 / G, n - 1.0),
    "1/G for 1/(nG)": lambda n, G: (1 / G, n - 1 + 1 / G),
    "sink halved": lambda n, G: (0.5 / G, n - 1 + 1 / (n * G)),
}


@claim("B4.prices", "near-miss")
@pytest.mark.parametrize("name", WRONG_PRICES)
def test_a_wrong_price_is_refuted(name):
    refuted(lambda family: check_prices(family, "nuclear", "with sink", WRONG_PRICES[name]), families(), tries=20)


@claim("B4.prices", "near-miss")
def test_a_single_token_is_outside_the_statement():
    # n = 1: both patterns ask for one product of one sign or the other, so they cost the same in every norm.
    token, sink = np.array([[1.0, 0.0, 1.0]]), np.array([1.0, 2.0, 0.0])
    mirrored = numerics.diagonal_price(token, sink=sink, norm="spectral").value
    agree(mirrored, numerics.sink_price(token, sink).value, tolerance="program")
    refuted(lambda price: agree(price, 1.0, tolerance="program"), st.just(mirrored))
    with pytest.raises(ValueError, match="n must be at least 2, got 1"):
        SinkFamily(1)


def check_threshold(n: int, norm: Norm, keys: Keys, threshold=numerics.sink_threshold) -> None:
    """Level on the line; the sink dearer below and cheaper above, by the closed prices."""
    line = threshold(n, norm=norm, keys=keys)
    prices = partial(numerics.family_prices, n, norm=norm, keys=keys)
    agree(prices(line).sink, prices(line).diagonal)
    at_most(1.0, prices(1.01 * line).diagonal / prices(1.01 * line).sink)
    if line / 1.01 >= 1 / n:
        at_most(1.0, prices(line / 1.01).ratio)


@claim("B4.thresholds", "property")
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("norm", NORMS)
@given(n=st.integers(2, 2000))
def test_thresholds_are_exact(norm, keys, n):
    check_threshold(n, norm, keys)


@claim("B4.thresholds", "property")
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("side", [0.97, 1.0, 1.03])
@settings(max_examples=4)
@given(n=st.integers(2, 5), tilt=st.floats(0.0, 1.0))
def test_the_convex_programs_change_sides_at_the_line(norm, side, n, tilt):
    """Tokens with G at, just below and just above the threshold, shared between t and z."""
    line = numerics.sink_threshold(n, norm=norm)
    G = max(side * line, 1 / n)
    g_q = (1 / sqrt(n)) ** (1 - tilt) * (G * sqrt(n)) ** tilt
    family = SinkFamily(n, sqrt(max(g_q**2 - 1 / n, 0)), sqrt(max((G / g_q) ** 2 - 1 / n, 0)))
    sink, diagonal = convex_programs(family, norm, "with sink")
    if side == 1.0 or line == G:
        agree(sink, diagonal, tolerance="program")
    elif side < 1:
        at_most(diagonal, sink)
    else:
        at_most(sink, diagonal)


@claim("B4.thresholds", "property")
@given(st.integers(2, 500), st.floats(0.0, 1.0))
def test_lines_in_the_knobs(n, part):
    """n t^2 z^2 + t^2 + z^2 = 1 is the Frobenius line; orthonormal tokens lie on it."""
    t = part
    z = sqrt((1 - t**2) / (n * t**2 + 1))
    agree(SinkFamily(n, t, z).G, numerics.sink_threshold(n, norm="fro"))
    agree(SinkFamily(n, 0.0, 1.0).G, numerics.sink_threshold(n, norm="fro"))
    agree(SinkFamily(n, 0.0, 0.0).G, numerics.sink_threshold(n, norm="nuclear"))


WRONG_THRESHOLDS = {
    "1/sqrt(n)": lambda n, norm, keys: 1 / sqrt(n),
    "1 in every norm": lambda n, norm, keys: 1.0,
    "sqrt(n)/n + 1/n": lambda n, norm, keys: (sqrt(n) + 1) / n,
}


@claim("B4.thresholds", "near-miss")
@pytest.mark.parametrize("name", WRONG_THRESHOLDS)
def test_a_wrong_threshold_is_refuted(name):
    refuted(lambda n: check_threshold(n, "fro", "with sink", WRONG_THRESHOLDS[name]), st.integers(2, 50))


def programs_with_all_queries(family: SinkFamily, norm: Norm) -> tuple[float, float]:
    """Sink and diagonal by the solver, margin 1, x_0 a query too."""
    tokens, sink = family.tokens, family.sink
    everyone = np.vstack([sink, tokens])
    own, other = np.divmod(np.arange(len(everyone) * len(tokens)), len(tokens))

    def exact():
        raise AssertionError("no cloud of these tests is degenerate")

    solved = least_norm_matrix(everyone[own], sink - tokens[other], margin=1.0, norm=norm, exact=exact)
    return solved.value, numerics.diagonal_price(everyone, norm=norm).value


def check_all_queries(family: SinkFamily, norm: Norm, formula=None) -> None:
    found = formula(family) if formula else tuple(numerics.all_queries_prices(family, norm=norm))
    agree(torch.tensor(found), torch.tensor(programs_with_all_queries(family, norm)), tolerance="program")


outside = st.floats(0.3, 4.0).map(lambda value: round(value, 3))
beyond = st.floats(1.0, 4.0).map(lambda value: round(value, 3))
all_query_cases = {
    "nuclear": families(max_tokens=4, z=outside),
    "fro": families(max_tokens=4, t=st.just(0.0), z=outside),
    "spectral": families(max_tokens=4, t=st.just(0.0), z=beyond),
}


@claim("B4.all-queries", "property")
@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=8)
@given(data=st.data())
def test_all_queries_are_the_convex_programs(norm, data):
    check_all_queries(data.draw(all_query_cases[norm]), norm)


@claim("B4.all-queries", "property")
@given(st.integers(2, 500), st.floats(0.0, 10.0), st.floats(0.05, 10.0))
def test_with_all_queries_the_nuclear_norm_always_prefers_the_sink(n, t, z):
    prices = numerics.all_queries_prices(SinkFamily(n, t, z), norm="nuclear")
    # The proof leaves this much room where 1/G - R is largest.
    at_most(prices.sink + (n - 1) ** 2 / (2 * n), prices.diagonal)


@claim("B4.all-queries", "property")
@given(st.integers(2, 100))
def test_orthonormal_tokens_win_draw_and_lose_by_the_same_factor(n):
    ratios = [numerics.all_queries_prices(SinkFamily(n), norm=norm).ratio for norm in NORMS]
    agree(torch.tensor(ratios), torch.tensor([1 / sqrt(n), 1.0, sqrt(n)]))


@claim("B4.all-queries", "property")
@given(st.integers(2, 100), beyond)
def test_with_all_queries_the_lines_are_z_1_and_z_root_n(n, z):
    family = SinkFamily(n, 0.0, z)
    fro, spectral = (numerics.all_queries_prices(family, norm=norm) for norm in ("fro", "spectral"))
    at_most(fro.sink, fro.diagonal)
    if z >= sqrt(n):
        at_most(spectral.sink, spectral.diagonal)
    else:
        at_most(spectral.diagonal, spectral.sink)
    agree(numerics.all_queries_prices(SinkFamily(n), norm="fro").ratio, 1.0)
    agree(numerics.all_queries_prices(SinkFamily(n, 0.0, sqrt(n)), norm="spectral").ratio, 1.0)


@claim("B4.all-queries", "near-miss")
def test_the_prices_of_fewer_queries_are_refuted():
    def fewer(family):
        return tuple(numerics.family_prices(family.n, family.G, norm="nuclear"))

    refuted(lambda family: check_all_queries(family, "nuclear", fewer), all_query_cases["nuclear"], tries=20)


# Two tokens in the plane, both patterns finite.
CLOSE_TOKENS, CLOSE_SINK = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([1.5, 0.0])


@claim("B4.cheaper", "property")
@pytest.mark.parametrize("norm", NORMS)
def test_smallest_counterexample(norm):
    diagonal = numerics.diagonal_price(CLOSE_TOKENS, sink=CLOSE_SINK, norm=norm)
    agree(numerics.sink_price(CLOSE_TOKENS, CLOSE_SINK).value, 2.0)
    agree(numerics.sink_program(CLOSE_TOKENS, CLOSE_SINK, norm=norm).value, 2.0, tolerance="program")
    by_hand = np.diag([0.0, 1.0])
    at_most(1.0, numerics.diagonal_margins(CLOSE_TOKENS, by_hand, sink=CLOSE_SINK).min())
    at_most(diagonal.lower, numerics.matrix_norm(by_hand, norm))
    at_most(diagonal.value, 2.0)


@claim("B4.cheaper", "property")
def test_no_sink_on_two_sides_of_the_origin():
    assert numerics.sink_price([[1], [-1]], [0]).value == inf
    agree(numerics.diagonal_price([[1], [-1]], sink=[0]).value, 1.0, tolerance="program")


@claim("B4.cheaper", "near-miss")
def test_the_broad_claim_is_refuted_around_the_counterexample():
    def check(sink_at):
        sink = np.array([sink_at, 0.0])
        diagonal = numerics.diagonal_price(CLOSE_TOKENS, sink=sink)
        at_most(numerics.sink_price(CLOSE_TOKENS, sink).value, diagonal.value)

    refuted(check, st.floats(1.2, 3.0), tries=20)


def check_leak(scores: torch.Tensor, lower=lambda n: 1, upper=lambda n: n) -> None:
    """Key 0 is the target; its least margin against the two logarithms."""
    weights = attention.attention_weights(scores[None], torch.eye(len(scores)) * sqrt(len(scores)))
    leak = float(weights[..., 1:].sum())
    margin = float((scores[0] - scores[1:]).min())
    found = numerics.margins_for_leak(leak, len(scores) - 1)
    n, scale = len(scores) - 1, float(scores.abs().max()) + 1
    at_most(found.necessary + log(lower(n)), margin, scale=scale)
    at_most(margin, found.enough - log(n) + log(upper(n)), scale=scale)


score_rows = st.lists(st.floats(-6.0, 6.0), min_size=2, max_size=9).map(torch.tensor)


@claim("B4.leakage", "property")
@given(score_rows)
def test_margins_lie_between_the_two(scores):
    check_leak(scores)


@claim("B4.leakage", "property")
@given(st.floats(1e-6, 0.999), st.integers(1, 50))
def test_equal_margins_leak_exactly_that(leak, n):
    margin = numerics.margins_for_leak(leak, n).enough
    weights = torch.softmax(torch.tensor([margin] + [0.0] * n), 0)
    agree(weights[1:].sum(), leak)


@claim("B4.leakage", "near-miss")
def test_n_is_not_necessary_and_one_is_not_enough():
    refuted(lambda scores: check_leak(scores, lower=lambda n: n), score_rows)
    refuted(lambda scores: check_leak(scores, upper=lambda n: 1), score_rows)


def least_value(objective, constraints=()) -> float:
    """The least value of a convex objective, by a solver that knows exponential cones."""
    problem = cp.Problem(cp.Minimize(objective), list(constraints))
    problem.solve(solver="CLARABEL", tol_gap_rel=1e-9, tol_gap_abs=1e-9, tol_feas=1e-9)
    assert isinstance(problem.value, float)
    return problem.value


@claim("B4.leakage", "property")
@settings(max_examples=6)
@given(families(max_tokens=3), st.floats(0.001, 0.95), st.sampled_from(["sink", "diagonal"]))
def test_price_of_a_leak_is_a_convex_program(family, leak, pattern):
    """Least nuclear norm with every row's leak at most e, solved with the exponential cone."""
    tokens, sink = family.tokens, family.sink
    B = cp.Variable((family.n + 2, family.n + 2))
    others = family.n - (pattern == "diagonal")
    rows = []
    for place, query in enumerate(tokens):
        beaten = tokens if pattern == "sink" else np.delete(tokens, place, axis=0)
        target = sink if pattern == "sink" else query
        rows.append(cp.log_sum_exp((beaten - target) @ (B.T @ query)) <= log(leak / (1 - leak)))
    solved = least_value(cp.normNuc(B), rows)
    margin = numerics.margins_for_leak(leak, others).enough
    unit = numerics.family_prices(family.n, family.G, norm="nuclear", keys="without sink")
    # Where the leak of the zero matrix is small enough, nothing has to be paid.
    price = max(margin, 0.0) * (unit.sink if pattern == "sink" else unit.diagonal)
    agree(solved, price, tolerance="program", scale=unit.sink)


def draw_values(seed: int, kept: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    generator = np.random.default_rng(seed)
    w_v, sink = generator.standard_normal((4, 6)), generator.standard_normal(6)
    return w_v, sink, generator.standard_normal((kept, 6)) if kept else None


def check_value_change(seed: int, kept: int, factor: float = 1.0, *, ignore_kept: bool = False) -> None:
    """Against the minimum-norm solution of the linear equations Delta x_0 = -W_V x_0, Delta x_j = 0."""
    w_v, sink, keep = draw_values(seed, kept)
    found = numerics.least_value_change(w_v, sink, keep=None if ignore_kept else keep)
    equations = sink[None] if keep is None else np.vstack([sink, keep])
    wanted = np.zeros((len(equations), 4))
    wanted[0] = -w_v @ sink
    independent = (np.linalg.pinv(equations) @ wanted).T
    agree(found.norm * factor, float(np.linalg.norm(independent)))
    agree(found.change, independent)


@claim("B4.value-side", "property")
@given(st.integers(0, 2**16), st.integers(0, 4))
def test_change_is_the_minimum_norm_solution(seed, kept):
    check_value_change(seed, kept)
    w_v, sink, keep = draw_values(seed, kept)
    found = numerics.least_value_change(w_v, sink, keep=keep)
    agree((w_v + found.change) @ sink, np.zeros(4), scale=found.norm)
    for norm in NORMS:
        agree(numerics.matrix_norm(found.change, norm), found.norm)


@claim("B4.value-side", "property")
@given(st.integers(0, 2**16), st.integers(0, 4))
def test_no_other_change_is_smaller(seed, kept):
    w_v, sink, keep = draw_values(seed, kept)
    found = numerics.least_value_change(w_v, sink, keep=keep)
    equations = sink[None] if keep is None else np.vstack([sink, keep])
    allowed = np.eye(6) - np.linalg.pinv(equations) @ equations
    other = found.change + np.random.default_rng(seed + 1).standard_normal((4, 6)) @ allowed
    for norm in NORMS:
        at_most(found.norm, numerics.matrix_norm(other, norm))


@claim("B4.value-side", "property")
@given(families(max_tokens=8, z=outside))
def test_in_the_family_the_shared_direction_does_not_help(family):
    w_v = np.random.default_rng(family.n).standard_normal((3, family.n + 2))
    n, t, z = family.n, family.t, family.z
    length = np.linalg.norm(w_v @ family.sink)
    alone = numerics.least_value_change(w_v, family.sink).norm
    kept = numerics.least_value_change(w_v, family.sink, keep=family.tokens).norm
    agree(torch.tensor([alone, kept]), length / np.sqrt([t**2 + z**2, z**2 + t**2 / (1 + n * t**2)]))


@claim("B4.value-side", "near-miss")
def test_wrong_changes_are_refuted():
    refuted(lambda seed: check_value_change(seed, 0, factor=2.0), st.integers(0, 20))
    refuted(lambda seed: check_value_change(seed, 3, ignore_kept=True), st.integers(0, 20))


D_K = 4


def cross_entropy_of(family: SinkFamily, pattern: TrainedPattern, B: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the pattern, by the written-out softmax."""
    tokens, sink = torch.tensor(family.tokens), torch.tensor(family.sink)
    keys = tokens if pattern == "diagonal" else torch.vstack([sink, tokens])
    targets = torch.arange(family.n) if pattern == "diagonal" else torch.zeros(family.n, dtype=torch.long)
    return torch.nn.functional.cross_entropy(tokens @ B @ keys.T, targets, reduction="sum")


def check_optimum(family: SinkFamily, pattern: TrainedPattern, share: float, factor: float = 1.0) -> None:
    """Weight decay at that share of the threshold; the solver knows the objective only."""
    threshold = numerics.decay_threshold(family, pattern, d_k=D_K)
    decay = share * threshold
    found = numerics.training_optimum(family, pattern, weight_decay=decay, d_k=D_K)
    tokens, sink = family.tokens, family.sink
    B = cp.Variable((family.n + 2, family.n + 2))
    loss = 0
    for query in tokens:
        keys, target = (tokens, query) if pattern == "diagonal" else (np.vstack([sink, tokens]), sink)
        loss += cp.log_sum_exp((keys - target) @ (B.T @ query))
    solved = least_value(loss + decay * sqrt(D_K) * cp.normNuc(B))
    agree(found.objective * factor, solved, tolerance="program")
    matrix = torch.tensor(found.matrix)
    written = cross_entropy_of(family, pattern, matrix) + decay * sqrt(D_K) * found.nuclear_norm
    agree(found.objective * factor, written)
    assert np.linalg.matrix_rank(found.matrix, tol=1e-9) == found.rank
    if found.rank:
        agree(numerics.matrix_norm(found.matrix, "nuclear"), found.nuclear_norm)


training_cases = (families(max_tokens=3), st.sampled_from(["sink", "diagonal"]), st.floats(0.05, 1.3))


@claim("B4.training", "property")
@settings(max_examples=8)
@given(*training_cases)
def test_optimum_is_the_convex_program(family, pattern, share):
    check_optimum(family, pattern, share)


def check_decay_threshold(family, pattern, keys, formula=numerics.decay_threshold) -> None:
    """The spectral norm of the cross entropy's gradient at B = 0."""
    tokens, sink = torch.tensor(family.tokens), torch.tensor(family.sink)
    asked = torch.vstack([tokens, sink]) if pattern == "sink" or keys == "with sink" else tokens
    targets = torch.full((family.n,), family.n) if pattern == "sink" else torch.arange(family.n)

    def loss(B):
        return torch.nn.functional.cross_entropy(tokens @ B @ asked.T, targets, reduction="sum")

    slope = torch.func.grad(loss)(torch.zeros(family.n + 2, family.n + 2))
    agree(formula(family, pattern, d_k=9, keys=keys) * 3, torch.linalg.matrix_norm(slope, ord=2))


@claim("B4.training", "property")
@given(families(max_tokens=9), st.sampled_from(["sink", "diagonal"]), st.sampled_from(KEYS))
def test_threshold_is_the_gradient_at_zero(family, pattern, keys):
    check_decay_threshold(family, pattern, keys)


@claim("B4.training", "property")
@given(families(max_tokens=9), st.sampled_from(["sink", "diagonal"]), st.floats(0.01, 0.99))
def test_optimum_is_stationary(family, pattern, share):
    """-gradient = kappa U V^T + (something orthogonal of spectral norm at most kappa)."""
    decay = share * numerics.decay_threshold(family, pattern, d_k=D_K)
    d_k = max(D_K, family.n)
    decay *= sqrt(D_K / d_k)
    found = numerics.training_optimum(family, pattern, weight_decay=decay, d_k=d_k)
    matrix = torch.tensor(found.matrix)
    slope = torch.func.grad(lambda B: cross_entropy_of(family, pattern, B))(matrix)
    kappa = decay * sqrt(d_k)
    agree(torch.linalg.matrix_norm(slope, ord=2), kappa)
    agree(-(slope * matrix).sum(), kappa * found.nuclear_norm, scale=kappa)


@claim("B4.training", "near-miss")
def test_wrong_optima_and_thresholds_are_refuted():
    refuted(lambda family: check_optimum(family, "sink", 0.5, factor=1.001), families(max_tokens=2), tries=5)

    def without_n(family, pattern, *, d_k, keys):
        return family.n * family.G / (family.n + 1) / sqrt(d_k)

    refuted(lambda family: check_decay_threshold(family, "sink", "with sink", without_n), families())
    refuted(
        lambda family: check_decay_threshold(family, "diagonal", "with sink", lambda *a, d_k, keys: 1 / sqrt(d_k)),
        families(),
    )


def test_the_margin_grows_as_the_decay_falls():
    margins = [
        numerics.training_optimum(SinkFamily(4), "sink", weight_decay=decay, d_k=2).margin
        for decay in (10.0, 0.5, 0.1, 1e-3, 1e-6)
    ]
    assert margins == sorted(margins)
    assert margins[0] == 0
    assert exp(-margins[-1]) < 1e-5


def test_bad_input_is_named():
    with pytest.raises(TypeError, match="n must be an integer, got float"):
        SinkFamily(2.0)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="t must be a real number, got str"):
        SinkFamily(2, "1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="z must be finite and not negative, got nan"):
        SinkFamily(2, 0.0, float("nan"))
    with pytest.raises(ValueError, match=r"G must be finite and at least 1/n = 0.5, got 0.4"):
        numerics.family_prices(2, 0.4, norm="fro")
    with pytest.raises(ValueError, match="norm must be one of 'nuclear', 'fro', 'spectral', got 'max'"):
        numerics.sink_threshold(2, norm="max")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="keys must be one of 'with sink', 'without sink', got 'all'"):
        numerics.sink_threshold(2, norm="fro", keys="all")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="t and z must not both be 0"):
        numerics.all_queries_prices(SinkFamily(2, 0.0, 0.0), norm="nuclear")
    with pytest.raises(ValueError, match=r"closed form at t = 0 only, got t = 1\.0"):
        numerics.all_queries_prices(SinkFamily(2, 1.0, 1.0), norm="fro")
    with pytest.raises(ValueError, match=r"closed form for z >= 1 only, got z = 0\.5"):
        numerics.all_queries_prices(SinkFamily(2, 0.0, 0.5), norm="spectral")
    with pytest.raises(ValueError, match="leak must lie between 0 and 1, got 1"):
        numerics.margins_for_leak(1, 3)
    with pytest.raises(ValueError, match="others must be at least 1, got 0"):
        numerics.margins_for_leak(0.1, 0)
    with pytest.raises(ValueError, match="the sink must not be 0 or in the span"):
        numerics.least_value_change(np.eye(2), [1, 1], keep=[[2, 2]])
    with pytest.raises(ValueError, match="d_k must be at least the rank of the optimum, 3, got 2"):
        numerics.training_optimum(SinkFamily(4), "diagonal", weight_decay=0.1, d_k=2)
    with pytest.raises(ValueError, match="weight_decay must be positive and finite, got 0"):
        numerics.training_optimum(SinkFamily(4), "sink", weight_decay=0, d_k=2)
    with pytest.raises(ValueError, match="pattern must be one of 'sink', 'diagonal', got 'band'"):
        numerics.decay_threshold(SinkFamily(4), "band", d_k=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="others must be an integer, got float"):
        numerics.margins_for_leak(0.1, float("nan"))  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="d_k must be an integer, got float"):
        numerics.training_optimum(SinkFamily(4), "sink", weight_decay=0.1, d_k=1.5)  # pyright: ignore[reportArgumentType]
