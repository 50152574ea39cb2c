"""B8 evaluated: every bracket proven again by hand, held against convex programs and heads that do the pattern."""

import re
import warnings
from dataclasses import dataclass
from fractions import Fraction
from math import cos, inf, pi, sqrt
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import numerics
from numerics.b8_pretrained import Pairing, PricedPattern
from numerics.price_program import least_norm_matrix
from numerics.token_clouds import exact_rows
from tests.evidence import agree, at_most, claim, refuted, same_answer
from tests.token_clouds import TokenCloud, build_cloud, clouds

seeds = st.integers(0, 2**16)


def draw_margins(n: int, seed: int) -> NDArray[np.float64]:
    return 0.3 + np.random.default_rng(seed).exponential(size=n)


# --- margins that differ between queries


def program_of_margins(cloud: TokenCloud, margins, query_bias: bool) -> float:
    n = len(cloud.tokens)
    queries = np.hstack([cloud.tokens, np.ones((n, 1))]) if query_bias else cloud.tokens
    rows = np.repeat(queries / margins[:, None], n, axis=0)
    gaps = np.tile(cloud.sink - cloud.tokens, (n, 1))
    exact = lambda: (exact_rows(rows), exact_rows(gaps))  # noqa: E731
    return least_norm_matrix(rows, gaps, margin=1.0, norm="nuclear", exact=exact).value


def check_margins(case, formula=numerics.price_of_margins) -> None:
    cloud, query_bias, seed = case
    margins = draw_margins(len(cloud.tokens), seed)
    value = formula(cloud.tokens, cloud.sink, margins, query_bias=query_bias)
    solved = program_of_margins(cloud, margins, query_bias)
    same_answer(value == inf, solved == inf)
    if value < inf:
        agree(value, solved, tolerance="program")


margin_cases = st.tuples(clouds(kinds=("plain", "shifted"), max_tokens=6, max_width=5), st.booleans(), seeds)


@claim("B8.margins", "property")
@settings(max_examples=40)
@given(margin_cases)
def test_price_of_margins_is_the_program(case):
    check_margins(case)


@claim("B8.margins", "property")
@given(clouds(kinds=("shifted",)), seeds, st.booleans())
def test_a_sink_head_pays_at_least_the_price_of_its_own_margins(cloud, seed, whole):
    """The head's own margins, only of the queries that have a positive one."""
    generator = np.random.default_rng(seed)
    d = cloud.tokens.shape[1]
    mean = cloud.tokens.mean(0)
    B = np.outer(mean, cloud.sink - mean) / np.abs(cloud.tokens).max() ** 2
    B = B + (0.1 if whole else 1.0) * generator.standard_normal((d, d))
    own = numerics.sink_margins(cloud.tokens, cloud.sink, B).min(1)
    at_most(numerics.price_of_margins(cloud.tokens, cloud.sink, own), numerics.matrix_norm(B, "nuclear"))


@claim("B8.margins", "near-miss")
@pytest.mark.parametrize("pick", [np.mean, np.min, np.max])
def test_one_margin_for_all_is_refuted(pick):
    def wrong(tokens, sink, margins, *, query_bias):
        return numerics.sink_price(tokens, sink, margin=float(pick(margins)), query_bias=query_bias).value

    refuted(lambda case: check_margins(case, wrong), margin_cases)


# --- causal sinks


def every_cut(cloud: TokenCloud, margins, late: int = 0) -> float:
    """The best of all cuts: queries t .. n, keys 1 .. t + late."""
    bounds = [
        numerics.hull_distance((cloud.tokens / margins[:, None])[t:]).distance
        * numerics.hull_distance(cloud.tokens[: t + 1 + late], cloud.sink).distance
        for t in range(len(cloud.tokens))
    ]
    return 1 / min(bounds) if min(bounds) > 0 else inf


def check_cut(case, late: int = 0) -> None:
    cloud, seed = case
    n = len(cloud.tokens)
    margins = draw_margins(n, seed)
    found = numerics.causal_sink_bracket(cloud.tokens, cloud.sink, margins=margins)
    own, other = np.nonzero(np.tri(n))
    rows, gaps = (cloud.tokens / margins[:, None])[own], cloud.sink - cloud.tokens[other]
    exact = lambda: (exact_rows(rows), exact_rows(gaps))  # noqa: E731
    solved = least_norm_matrix(rows, gaps, margin=1.0, norm="nuclear", exact=exact)
    same_answer(found.lower == inf, solved.value == inf)
    if solved.value < inf:
        at_most(every_cut(cloud, margins, late), solved.value * (1 + 1e-6))
        agree(found.lower, every_cut(cloud, margins))
        at_most(solved.lower, found.upper)
        agree(found.upper, numerics.price_of_margins(cloud.tokens, cloud.sink, margins))
        pattern = Pattern(cloud.tokens, "sink", cloud.sink, True, margins, None, False, False)
        check_proofs(pattern, found)


cut_cases = st.tuples(clouds(kinds=("shifted", "plain"), max_tokens=6, max_width=5), seeds)


@claim("B8.cut", "property")
@settings(max_examples=40)
@given(cut_cases)
def test_every_cut_is_below_the_causal_price(case):
    check_cut(case)


@claim("B8.cut", "near-miss")
def test_a_key_beyond_the_cut_is_refuted():
    refuted(lambda case: check_cut(case, late=1), cut_cases)


@claim("B8.cut", "near-miss")
@pytest.mark.parametrize("side", ["lower", "upper"])
def test_neither_side_is_the_causal_price(side):
    def check(cloud):
        found = numerics.causal_sink_bracket(cloud.tokens, cloud.sink)
        solved = numerics.sink_program(cloud.tokens, cloud.sink, pattern="causal")
        if solved.value < inf:
            agree(getattr(found, side), solved.value, tolerance="program")

    refuted(check, clouds(kinds=("shifted",), min_tokens=2, max_tokens=6))


# --- grouped keys


@st.composite
def groups(draw):
    """W_Q of g heads (g, d_k, d), their common W_K (d_k, d), and whether they rotate."""
    g, planes, d = draw(st.integers(2, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    generator = np.random.default_rng(draw(seeds))
    return (
        generator.standard_normal((g, 2 * planes, d)),
        generator.standard_normal((2 * planes, d)),
        draw(st.booleans()),
    )


def side_by_side(w_q, w_k, rotary: bool) -> float:
    return numerics.matrix_norm(np.hstack([w.T @ w_k for w in w_q]) / sqrt(len(w_k)), "nuclear")


def check_group(case, cost=lambda w_q, w_k, rotary: numerics.grouped_cost(w_q, w_k, rotary=rotary)) -> None:
    w_q, w_k, rotary = case
    value = cost(w_q, w_k, rotary)
    at_most(value, (np.sum(w_q**2) + np.sum(w_k**2)) / (2 * sqrt(len(w_k))))
    at_most(numerics.grouped_price([numerics.head_cost(w, w_k, rotary=rotary) for w in w_q]), value)
    if not rotary:
        # The cheapest projections behind the stack share their keys.
        stack = np.vstack([w.T @ w_k for w in w_q]) / sqrt(len(w_k))
        agree(value, numerics.cheapest_projections(stack, len(w_k)).value / sqrt(len(w_k)))


@claim("B8.grouped", "property")
@given(groups())
def test_a_group_pays_for_its_stack(case):
    check_group(case)


@claim("B8.grouped", "near-miss")
def test_side_by_side_is_refuted():
    refuted(lambda case: check_group(case, side_by_side), groups())


@claim("B8.grouped", "near-miss")
def test_the_sum_of_the_heads_is_refuted():
    def each(w_q, w_k, rotary):
        return sum(numerics.head_cost(w, w_k, rotary=rotary) for w in w_q)

    refuted(lambda case: check_group(case, each), groups())


@claim("B8.grouped", "property")
@given(clouds(kinds=("shifted",)), st.integers(1, 4), seeds)
def test_sinks_in_a_group_cost_the_root_of_squares_and_no_less(cloud, g, seed):
    heads = [numerics.sink_price(cloud.tokens, cloud.sink, margin=m) for m in draw_margins(g, seed)]
    if heads[0].representable:
        stack = np.vstack([head.matrix for head in heads if head.matrix is not None])
        agree(numerics.matrix_norm(stack, "nuclear"), numerics.grouped_price([head.value for head in heads]))
        agree(numerics.grouped_price([heads[0].value] * g), sqrt(g) * heads[0].value)


# --- rotary positions


@dataclass(frozen=True)
class Head:
    """A rotary head with biases on (T, d) tokens at positions that need not be evenly spaced."""

    tokens: NDArray[np.float64]
    w_q: NDArray[np.float64]
    w_k: NDArray[np.float64]
    b_q: NDArray[np.float64]
    b_k: NDArray[np.float64]
    frequencies: NDArray[np.float64]
    positions: NDArray[np.float64]
    pairing: Pairing

    def scores(self, **changes) -> NDArray[np.float64]:
        options: dict[str, Any] = {"positions": self.positions, "pairing": self.pairing}
        options |= {"b_q": self.b_q, "b_k": self.b_k} | changes
        return numerics.rotary_scores(self.tokens, self.w_q, self.w_k, self.frequencies, **options)

    def rotation(self, position: float) -> NDArray[np.float64]:
        """R(p), (d_k, d_k), coordinate by coordinate."""
        d_k, half = len(self.w_q), len(self.w_q) // 2
        R = np.zeros((d_k, d_k))
        for r, theta in enumerate(self.frequencies):
            a, b = (r, r + half) if self.pairing == "halves" else (2 * r, 2 * r + 1)
            R[a, a] = R[b, b] = cos(theta * position)
            R[b, a] = np.sin(theta * position)
            R[a, b] = -R[b, a]
        return R


@st.composite
def heads(draw, *, min_tokens: int = 2):
    T, d, planes = draw(st.integers(min_tokens, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    generator = np.random.default_rng(draw(seeds))
    return Head(
        generator.standard_normal((T, d)) + draw(st.sampled_from((0.0, 2.0))),
        generator.standard_normal((2 * planes, d)),
        generator.standard_normal((2 * planes, d)),
        generator.standard_normal(2 * planes),
        generator.standard_normal(2 * planes),
        generator.choice([0.05, 0.3, 1.0, pi], planes, replace=False),
        np.cumsum(generator.integers(1, 4, T)).astype(float),
        draw(st.sampled_from(("halves", "neighbours"))),
    )


def check_rotary(head: Head, **changes) -> None:
    """Queries and keys turned one by one."""
    turned = [
        np.stack([head.rotation(p) @ (W @ x + b) for x, p in zip(head.tokens, head.positions, strict=True)])
        for W, b in ((head.w_q, head.b_q), (head.w_k, head.b_k))
    ]
    agree(head.scores(**changes), turned[0] @ turned[1].T / sqrt(len(head.w_q)))


@claim("B8.rotary", "property")
@given(heads())
def test_complex_rows_are_the_rotation(head):
    check_rotary(head)
    shifted = head.positions + 5
    agree(head.scores(positions=shifted), head.scores())


@claim("B8.rotary", "near-miss")
@pytest.mark.parametrize("name", ["other pairing", "turned the other way", "no key bias"])
def test_a_wrong_rotation_is_refuted(name):
    def check(head):
        check_rotary(
            head,
            **{
                "other pairing": {"pairing": "halves" if head.pairing == "neighbours" else "neighbours"},
                "turned the other way": {"positions": -head.positions},
                "no key bias": {"b_k": None},
            }[name],
        )

    refuted(check, heads())


@dataclass(frozen=True)
class Pattern:
    """What is asked for; ``frequencies`` None: no positions."""

    tokens: NDArray[np.float64]
    pattern: PricedPattern
    sink: NDArray[np.float64] | None
    causal: bool
    margins: NDArray[np.float64]
    frequencies: NDArray[np.float64] | None
    query_bias: bool
    key_bias: bool

    def price(self, **options) -> numerics.PriceBracket:
        options = {"tolerance": 0.05, "max_iterations": 200} | options
        return numerics.pattern_price(**vars(self), **options)

    def pairs(self):
        """(query, target key, other key) of everything asked for, by plain loops; key 0 is the sink if there is one."""
        shift = 0 if self.sink is None else 1
        keys = len(self.tokens) + shift
        for i, m in enumerate(self.margins):
            target = 0 if self.pattern == "sink" else i + shift
            for j in range(keys):
                if m > 0 and j != target and not (self.causal and j > i + shift):
                    yield i, target, j

    def forms(self) -> NDArray[np.complex128]:
        """A_k of every asked pair and plane, (K, R, d_q, d_k): a margin is Re sum_r <A_kr, Z_r> without conjugation."""
        queries = np.hstack([self.tokens, np.ones((len(self.tokens), int(self.query_bias)))])
        keys = self.tokens if self.sink is None else np.vstack([self.sink, self.tokens])
        keys = np.hstack([keys, np.ones((len(keys), int(self.key_bias)))])
        shift = len(keys) - len(queries)
        frequencies = np.zeros(1) if self.frequencies is None else self.frequencies
        turn = lambda p: np.exp(1j * frequencies * p)[:, None, None]  # noqa: E731
        return np.stack(
            [
                turn(-i - shift) * np.outer(queries[i], keys[t])[None] * turn(t)
                - turn(-i - shift) * np.outer(queries[i], keys[j])[None] * turn(j)
                for i, t, j in self.pairs()
            ]
        )


@st.composite
def patterns(draw, *, max_tokens: int = 4, max_width: int = 3, rotary: bool = True, kinds=("plain", "shifted")):
    cloud = draw(clouds(kinds=kinds, scales=(1.0,), min_tokens=2, max_tokens=max_tokens, max_width=max_width))
    pattern = draw(st.sampled_from(("sink", "diagonal")))
    seed = draw(seeds)
    generator = np.random.default_rng(seed)
    planes = generator.choice([0.02, 0.3, 1.0, 2.0], draw(st.integers(1, 3)), replace=False)
    return Pattern(
        cloud.tokens,
        pattern,
        cloud.sink if pattern == "sink" or draw(st.booleans()) else None,
        draw(st.booleans()),
        draw_margins(len(cloud.tokens), seed) * (draw(st.booleans()) or generator.integers(0, 2, len(cloud.tokens))),
        planes if rotary else None,
        draw(st.booleans()),
        draw(st.booleans()) and rotary,
    )


def check_proofs(pattern: Pattern, found: numerics.PriceBracket) -> None:
    """Multipliers and matrices by hand: nothing of how they were found."""
    at_most(found.lower, found.upper) if found.upper < inf else None
    pairs = list(pattern.pairs())
    if not pairs:
        same_answer(found.lower == found.upper == 0, True)
        return
    if found.lower == inf:
        return
    forms = pattern.forms()
    own, _, other = np.array(pairs).T
    assert found.multipliers is not None
    asked = np.zeros(found.multipliers.shape, dtype=bool)
    asked[own, other] = True
    same_answer(bool((found.multipliers >= 0).all() and not found.multipliers[~asked].any()), True)
    weights = found.multipliers[own, other]
    size = max(float(np.linalg.norm(form, 2)) for form in np.einsum("k,krpq->rpq", weights, forms))
    # Where the terms cancel, the size is rounding alone.
    at_most(size, 1.0, scale=float(weights.sum() * np.abs(forms).max()))
    agree((weights * pattern.margins[own]).sum(), found.lower)
    if found.matrices is not None:
        planes = list(found.planes)
        leads = np.einsum("krpq,rpq->k", forms[:, planes], found.matrices).real
        terms = np.einsum("krpq,rpq->k", np.abs(forms[:, planes]), np.abs(found.matrices))
        at_most(pattern.margins[own], leads, scale=terms)
        agree(np.linalg.svd(found.matrices, compute_uv=False).sum(), found.upper)


@claim("B8.rotary-price", "property")
@settings(max_examples=60)
@given(patterns(max_tokens=6, max_width=5))
def test_both_sides_are_proven(pattern):
    check_proofs(pattern, pattern.price())


@claim("B8.rotary-price", "property")
@settings(max_examples=30)
@given(patterns(rotary=False, max_tokens=5, max_width=6))
def test_both_sides_are_proven_without_positions(pattern):
    check_proofs(pattern, pattern.price())


def rotary_program(pattern: Pattern) -> float | None:
    """The convex program on real (2 d_q, 2 d_k) forms, whose nuclear norm is twice that of the complex matrix."""
    import cvxpy as cp

    forms = pattern.forms()
    K, R, d_q, d_k = forms.shape
    real, imaginary = ([cp.Variable((d_q, d_k)) for _ in range(R)] for _ in range(2))
    margins: Any = sum(
        forms.real[:, r].reshape(K, -1) @ cp.vec(real[r], order="C")
        - forms.imag[:, r].reshape(K, -1) @ cp.vec(imaginary[r], order="C")
        for r in range(R)
    )
    asked = np.array([pattern.margins[i] for i, _, _ in pattern.pairs()])
    sizes: Any = sum(cp.normNuc(cp.bmat([[A, -B], [B, A]])) for A, B in zip(real, imaginary, strict=True))
    problem = cp.Problem(cp.Minimize(sizes / 2), [margins >= asked])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an inaccurate solution is left out
        problem.solve(solver="CLARABEL")
    return float(cast(Any, problem.value)) if problem.status == "optimal" else None


def check_against_program(pattern: Pattern, factor: float = 1.0) -> None:
    found = pattern.price(tolerance=0.02, max_iterations=300)
    if 0 < found.upper < inf and found.lower < 1e3:
        solved = rotary_program(pattern)
        if solved is not None:
            at_most(found.lower, factor * solved * (1 + 1e-5))
            at_most(factor * solved, found.upper * (1 + 1e-5))


@claim("B8.rotary-price", "property")
@settings(max_examples=15)
@given(patterns())
def test_the_program_lies_between(pattern):
    check_against_program(pattern)


@claim("B8.rotary-price", "near-miss")
@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_wrong_factor_is_refuted(factor):
    refuted(lambda pattern: check_against_program(pattern, factor), patterns())


def test_the_bracket_closes_on_small_patterns():
    for seed in range(4):
        cloud = build_cloud(n=5, d=5, kind="shifted", seed=seed)
        for pattern in ("sink", "diagonal"):
            found = numerics.pattern_price(
                cloud.tokens, pattern=pattern, sink=cloud.sink, causal=True, frequencies=[0.5, 0.1]
            )
            at_most(found.gap, 0.05)


@claim("B8.rotary-price", "property")
@settings(max_examples=20)
@given(clouds(kinds=("shifted", "plain"), scales=(1.0,), min_tokens=2, max_tokens=5, max_width=5), st.booleans())
def test_no_turning_gives_back_the_old_prices(cloud, causal):
    options: dict[str, Any] = {"tolerance": 0.01, "max_iterations": 300, "causal": causal}
    sink = numerics.sink_program(cloud.tokens, cloud.sink, pattern="causal" if causal else "full")
    old = [(sink.value, {"pattern": "sink", "sink": cloud.sink})]
    if not causal:
        # Dependent tokens: the program's own answer may be out of reach.
        independent = len(cloud.tokens) <= cloud.tokens.shape[1]
        old += [(numerics.diagonal_price(cloud.tokens).value, {"pattern": "diagonal"})] if independent else []
    for value, pattern in old:
        for frequencies in (None, [0.0]):
            found = numerics.pattern_price(cloud.tokens, frequencies=frequencies, **pattern, **options)
            if value == inf:
                same_answer(found.upper == inf, True)
            else:
                at_most(found.lower, value * (1 + 1e-6))
                at_most(value, found.upper * (1 + 1e-6))


def check_head(head: Head, cost=numerics.head_cost) -> None:
    """A head that happens to make a causal sink, or a diagonal, on its tokens costs at least the lower side."""
    scores = head.scores(b_q=None, b_k=None, positions=None)
    T = len(scores)
    for pattern in ("sink", "diagonal"):
        own = np.array(
            [np.delete(row[: i + 1], 0 if pattern == "sink" else i).max() for i, row in enumerate(scores) if i]
        )
        reached = scores[1:, 0] if pattern == "sink" else scores.diagonal()[1:]
        margins = reached - own
        found = numerics.pattern_price(
            head.tokens[1:],
            pattern=pattern,
            sink=head.tokens[0],
            causal=True,
            margins=margins,
            frequencies=head.frequencies,
            max_iterations=100,
        )
        assert len(margins) == T - 1
        at_most(found.lower, cost(head.w_q, head.w_k, rotary=True, pairing=head.pairing))


@claim("B8.rotary-price", "property")
@settings(max_examples=60)
@given(heads())
def test_a_head_pays_at_least_the_price_of_what_it_does(head):
    check_head(head)


@claim("B8.rotary-price", "near-miss")
def test_a_tenth_of_a_cheap_head_is_refuted():
    """Heads of one plane on one token: their price can be most of their cost."""

    def tenth(*weights, **options):
        return numerics.head_cost(*weights, **options) / 10

    refuted(lambda head: check_head(head, tenth), heads())


@claim("B8.rotary-price", "property")
@given(heads())
def test_cost_is_below_the_weights(head):
    for rotary in (False, True):
        cost = numerics.head_cost(head.w_q, head.w_k, rotary=rotary, pairing=head.pairing)
        at_most(cost, (np.sum(head.w_q**2) + np.sum(head.w_k**2)) / (2 * sqrt(len(head.w_q))))


# --- what can be made at all


@claim("B8.rotary-alignment", "property")
@given(st.integers(1, 6), st.floats(0.05, 1.0), st.floats(0.5, 3.0))
def test_equal_tokens_have_a_causal_sink_by_position(n, share, token):
    """x_0 is in the hull, and one slow frequency makes the sink: B = -cos."""
    theta = share * pi / n
    tokens, sink = np.full((n, 1), token), np.array([token])
    same_answer(numerics.sink_price(tokens, sink).representable, False)
    found = numerics.pattern_price(tokens, pattern="sink", sink=sink, causal=True, frequencies=[theta])
    same_answer(found.upper < inf, True)
    leads = [cos(theta * (i - j)) - cos(theta * i) for i in range(1, n + 1) for j in range(1, i + 1)]
    at_most(found.lower, 1 / (token**2 * min(leads)))


@claim("B8.rotary-alignment", "property")
@settings(max_examples=30)
@given(st.floats(0.2, 3.0), st.floats(0.2, 3.0))
def test_phases_may_forbid_a_sink(sink, token):
    """x_0, x_1 = x_2, theta = pi: query 1 sees x_0 + x_1 with one sign, query 2 with the other."""
    found = numerics.pattern_price(
        [[token], [token]], pattern="sink", sink=[sink + token], causal=True, frequencies=[pi]
    )
    same_answer(numerics.sink_price([[token], [token]], [sink + token]).representable, True)
    same_answer(found.upper == inf, True)
    at_most(1e9, found.lower)


def one_dimensional():
    return st.tuples(st.integers(-2, 2), st.lists(st.integers(-2, 2), min_size=1, max_size=3)).map(
        lambda case: (np.array([float(case[0])]), np.array(case[1], dtype=float)[:, None])
    )


@claim("B8.rotary-alignment", "near-miss")
def test_the_hulls_alone_do_not_decide():
    def check(case):
        sink, tokens = case
        found = numerics.pattern_price(tokens, pattern="sink", sink=sink, causal=True, frequencies=[pi])
        same_answer(numerics.sink_price(tokens, sink).representable, found.upper < inf)

    refuted(check, one_dimensional())


@claim("B8.query-bias", "property")
@settings(max_examples=30)
@given(clouds(min_tokens=1, max_tokens=1, kinds=("plain",), scales=(1.0,)), seeds)
def test_a_query_bias_does_not_stop_phases_from_cancelling(cloud, seed):
    """Twice the same token at theta = pi, however many planes of that frequency: the two queries are opposite."""
    tokens = np.repeat(cloud.tokens, 2, axis=0)
    planes = [pi] * (1 + seed % 3)
    options: dict[str, Any] = {"pattern": "sink", "sink": cloud.sink, "causal": True, "query_bias": True}
    same_answer(numerics.sink_price(tokens, cloud.sink, query_bias=True).representable, True)
    found = numerics.pattern_price(tokens, frequencies=planes, **options)
    same_answer(found.upper == inf, True)
    at_most(1e9, found.lower)
    same_answer(numerics.pattern_price(tokens, frequencies=[*planes, 0.01], **options).upper < inf, True)


@claim("B8.query-bias", "near-miss")
def test_the_keys_alone_do_not_decide():
    def check(case):
        sink, tokens = case
        found = numerics.pattern_price(
            tokens, pattern="sink", sink=sink, causal=True, query_bias=True, frequencies=[pi]
        )
        same_answer(not numerics.hull_distance(tokens, sink).inside, found.upper < inf)

    refuted(check, one_dimensional())


def check_key_bias(head: Head, gain) -> None:
    """What b_K adds to s_i0 - s_ij."""
    with_bias, without = head.scores(), head.scores(b_k=None)
    leads = with_bias[:, :1] - with_bias - (without[:, :1] - without)
    T = len(leads)
    agree(leads, np.array([[gain(head, i, j) for j in range(T)] for i in range(T)]), scale=np.abs(with_bias).max())


def turned_gain(head: Head, i: int, j: int) -> float:
    query = head.w_q @ head.tokens[i] + head.b_q
    p = head.positions
    turn = head.rotation(p[0] - p[i]) - head.rotation(p[j] - p[i])
    return float(query @ turn @ head.b_k / sqrt(len(query)))


@claim("B8.key-bias", "property")
@given(heads())
def test_a_key_bias_moves_margins_by_the_turn(head):
    check_key_bias(head, turned_gain)


@claim("B8.key-bias", "near-miss")
def test_a_key_bias_without_effect_is_refuted():
    refuted(lambda head: check_key_bias(head, lambda *_: 0.0), heads())


@claim("B8.key-bias", "property")
@given(st.integers(1, 5), st.integers(1, 3), seeds, st.floats(0.1, 1.0))
def test_a_key_bias_alone_makes_a_sink(n, d, seed, share):
    """W_K = 0, b_K = -b_Q, one slow plane: s_ij = -|b|^2 cos(theta (p_j - p_i))/sqrt(2), least for the nearest key."""
    tokens = np.random.default_rng(seed).standard_normal((n + 1, d))
    b = np.array([1.0, 0.0])
    zero = np.zeros((2, d))
    scores = numerics.rotary_scores(tokens, zero, zero, [share * pi / n], b_q=b, b_k=-b)
    leads = np.array([scores[i, 0] - scores[i, j] for i in range(1, n + 1) for j in range(1, i + 1)])
    at_most(0.0, leads.min())
    same_answer(bool(leads.min() > 0), True)


@claim("B8.key-bias", "property")
@settings(max_examples=20)
@given(patterns(rotary=False))
def test_without_positions_a_key_bias_changes_nothing(pattern):
    one, other = (
        numerics.pattern_price(**(vars(pattern) | {"key_bias": bias}), max_iterations=300) for bias in (True, False)
    )
    if other.upper < inf:
        at_most(one.lower, other.upper)
        at_most(other.lower, one.upper)


def test_nothing_asked_costs_nothing():
    tokens, sink = np.eye(3), np.full(3, 2.0)
    for margins in (0.0, [-1.0, 0.0, -2.0]):
        same_answer(numerics.price_of_margins(tokens, sink, margins) == 0, True)
        same_answer(numerics.causal_sink_bracket(tokens, sink, margins=margins).upper == 0, True)
        same_answer(numerics.pattern_price(tokens, pattern="diagonal", margins=margins).upper == 0, True)
    same_answer(numerics.pattern_price([[1.0]], pattern="diagonal").upper == 0, True)


def test_a_query_at_the_origin_has_no_margin():
    found = numerics.pattern_price([[0.0, 0.0], [1.0, 0.0]], pattern="diagonal", frequencies=[0.1])
    same_answer(found.lower == found.upper == inf, True)
    agree(found.gap, 0.0)


PRICED: list[dict[str, Any]] = [
    {"pattern": pattern, "causal": causal, "frequencies": frequencies, "margins": margins}
    for pattern in ("sink", "diagonal")
    for causal in (False, True)
    for frequencies in (None, [0.5, 0.1])
    for margins in (1.0, [1.0, 2.0, 0.0, 0.5])
]


def price_at(scale: float, **options) -> numerics.PriceBracket:
    cloud = build_cloud(n=4, d=4, kind="shifted", seed=3)
    return numerics.pattern_price(scale * cloud.tokens, sink=scale * cloud.sink, max_iterations=40, **options)


@pytest.mark.parametrize("options", PRICED)
def test_a_price_goes_exactly_as_the_inverse_square_of_the_tokens(options):
    plain = price_at(1.0, **options)
    for scale in (2.0**-300, 2.0**-40, 2.0**40, 2.0**300):
        found = price_at(scale, **options)
        for name in ("lower", "upper", "multipliers", "matrices"):
            same_answer(np.array_equal(getattr(found, name) * scale * scale, getattr(plain, name)), True)


@pytest.mark.parametrize("options", PRICED)
@pytest.mark.parametrize(("scale", "named"), [(1e-200, "keys up to 2^-66"), (1e200, "keys up to 2^66")])
def test_a_price_that_float64_does_not_hold_is_refused(options, scale, named):
    with pytest.raises(ArithmeticError, match=rf"out of float64's reach: queries around .*{re.escape(named)}"):
        price_at(scale, **options)


def test_the_prices_in_closed_form_refuse_it_too():
    tokens, sink = np.eye(2), np.full(2, 2.0)
    for scale in (1e-200, 1e200):
        for price in (numerics.price_of_margins, numerics.causal_sink_bracket):
            with pytest.raises(ArithmeticError, match="out of float64's reach"):
                price(scale * tokens, scale * sink, margins=1.0)
    # One query of length 1 and a sink beside the token: the scale is harmless, the distance is not.
    with pytest.raises(ArithmeticError, match=r"out of float64's reach: it is above 2\^1000"):
        numerics.price_of_margins([[1.0, 0.0]], [1.0, 1e-305], 1.0)
    # A query bias has a length of its own.
    agree(numerics.price_of_margins([[1e-200]], [2e-200], 1.0, query_bias=True), 1e200)


def least_lead(pattern: Pattern, found: numerics.PriceBracket) -> Fraction:
    """The least margin that the matrices leave, over the one asked for, in exact arithmetic; without positions."""
    assert found.matrices is not None
    ones = {True: [Fraction(1)], False: []}
    queries = [row + ones[pattern.query_bias] for row in exact_rows(pattern.tokens)]
    keys = exact_rows(pattern.tokens if pattern.sink is None else np.vstack([pattern.sink, pattern.tokens]))
    columns = list(zip(*exact_rows(found.matrices[0]), strict=True))

    def lead(i: int, target: int, other: int) -> Fraction:
        sent = [sum((x * b for x, b in zip(queries[i], column, strict=True)), Fraction(0)) for column in columns]
        gap = zip(sent, keys[target], keys[other], strict=True)
        return sum((b * (x - y) for b, x, y in gap), Fraction(0)) / Fraction(pattern.margins[i])

    return min(lead(*pair) for pair in pattern.pairs())


@claim("B8.rotary-price", "property")
@pytest.mark.parametrize("query_bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_matrices_keep_every_margin_exactly(causal, query_bias):
    """Not up to rounding: what the matrices cost is an upper side only if they are allowed."""
    for n, d, kind, seed in ((2, 2, "shifted", 0), (3, 3, "plain", 2), (3, 4, "shifted", 1), (4, 4, "shifted", 0)):
        cloud = build_cloud(n=n, d=d, kind=kind, seed=seed)
        pattern = Pattern(cloud.tokens, "diagonal", None, causal, np.ones(n), None, query_bias, key_bias=False)
        same_answer(least_lead(pattern, pattern.price()) >= 1, True)


@claim("B8.margins", "property")
@pytest.mark.parametrize("causal", [False, True])
def test_a_sink_beside_a_token_has_matrices_that_keep_the_margins_or_none(causal):
    kept = set()
    for nearness in (1e-4, 1e-8, 1e-12, 1e-14, 1e-16):
        for n, d in ((2, 2), (3, 3), (4, 6)):
            cloud = build_cloud(n=n, d=d, kind="shifted", seed=n)
            generator = np.random.default_rng(n)
            sink = cloud.tokens[0] * (1 + nearness * generator.standard_normal(d))
            margins = np.exp(generator.standard_normal(n))
            pattern = Pattern(cloud.tokens, "sink", sink, causal, margins, None, query_bias=False, key_bias=False)
            found = pattern.price(max_iterations=0)
            if found.matrices is not None:
                same_answer(least_lead(pattern, found) >= 1, True)
                kept.add(nearness)
    same_answer(1e-8 in kept, True)
    same_answer(1e-16 in kept, False)


def test_a_nearest_point_that_is_only_nearly_the_nearest_is_counted_as_such():
    """Here exact arithmetic lets float weights pass whose plane loses 1e-10 of the distance."""
    cloud = build_cloud(n=5, d=3, kind="plain", seed=563)
    margins = np.array(
        [2.4863896915723678, 0.02558013551091754, 13.58613193876837, 15.715392564404501, 0.27585450194627376]
    )
    pattern = Pattern(cloud.tokens, "sink", np.full(3, 10.0), False, margins, None, query_bias=False, key_bias=False)
    same_answer(least_lead(pattern, pattern.price(max_iterations=0)) >= 1, True)


def test_a_sink_too_near_for_any_matrix_is_refused():
    tokens = np.array([[1.0, 1.0], [1.0, 2.0]])
    sink = np.array([np.nextafter(1.0, 2.0), 1.0])
    with pytest.raises(ArithmeticError, match=r"no matrix in float64 keeps the margins: the sink is 2\.2e-16 from"):
        numerics.causal_sink_bracket(tokens, sink)


def test_frequencies_of_llama():
    agree(numerics.rotary_frequencies(4, base=100.0), np.array([1.0, 0.1]))


def test_bad_input_is_named():
    eye = np.eye(2)
    with pytest.raises(ValueError, match="pattern must be one of 'sink', 'diagonal', got 'row'"):
        numerics.pattern_price(eye, pattern=cast(Any, "row"))
    with pytest.raises(ValueError, match="pattern 'sink' needs a sink"):
        numerics.pattern_price(eye, pattern="sink")
    with pytest.raises(ValueError, match=r"margins must have shape \(2,\), got \(3,\)"):
        numerics.price_of_margins(eye, [1, 1], [1, 1, 1])
    with pytest.raises(ValueError, match=r"positions must have shape \(3,\), got \(2,\)"):
        numerics.pattern_price(eye, pattern="sink", sink=[2, 2], frequencies=[1], positions=[0, 1])
    with pytest.raises(ValueError, match="tolerance must be positive and finite, got 0"):
        numerics.pattern_price(eye, pattern="diagonal", tolerance=0)
    with pytest.raises(ValueError, match="weights must have an even number of rows, got 3"):
        numerics.rotary_planes(np.eye(3))
    with pytest.raises(ValueError, match="pairing must be one of 'halves', 'neighbours', got 'rows'"):
        numerics.rotary_planes(eye, pairing=cast(Any, "rows"))
    with pytest.raises(ValueError, match="w_q and w_k must have one shape"):
        numerics.rotary_scores(eye, eye, np.eye(4)[:, :2], [1.0])
    with pytest.raises(ValueError, match=r"w_q must have shape \(g, d_k, d_q\), got \(2, 2\)"):
        numerics.grouped_cost(eye, eye)
    with pytest.raises(ValueError, match="w_k must have 2 rows, as w_q has"):
        numerics.head_cost(eye, np.eye(3))
    with pytest.raises(ValueError, match="prices must be one or more numbers"):
        numerics.grouped_price([])
    with pytest.raises(ValueError, match="d_k must be even"):
        numerics.rotary_frequencies(3)
