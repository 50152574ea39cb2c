"""B7 evaluated: dispersion identities against brute force, Dobrushin's inequalities against loops over pairs."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted

KINDS = ("softmax", "causal", "sink", "doubly stochastic")


@dataclass(frozen=True)
class Stream:
    """Tokens, attention matrices and a square W_V, rebuilt from what was drawn."""

    tokens: int
    width: int
    kind: str
    sharpness: float
    layers: int
    seed: int

    def normal(self, *shape: int, salt: int = 0) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed + 1000003 * salt)
        return torch.randn(*shape, generator=generator)

    @property
    def x(self) -> Tensor:
        return self.normal(self.tokens, self.width, salt=1) + self.normal(self.width, salt=2)

    @property
    def w_v(self) -> Tensor:
        return self.normal(self.width, self.width, salt=3)

    @property
    def all_weights(self) -> Tensor:
        """(layers, T, T)."""
        scores = self.sharpness * self.normal(self.layers, self.tokens, self.tokens, salt=4)
        if self.kind == "causal":
            scores = scores.masked_fill(torch.ones(self.tokens, self.tokens, dtype=torch.bool).triu(1), -torch.inf)
        if self.kind == "sink":
            scores[..., 0] += 5.0
        if self.kind == "doubly stochastic":
            # Birkhoff: a convex combination of permutations.
            shares = torch.softmax(self.sharpness * self.normal(self.layers, 4, salt=5), -1)
            orders = [self.normal(self.tokens, salt=n).argsort() for n in range(6, 10)]
            return torch.einsum("lk,kij->lij", shares, torch.eye(self.tokens)[torch.stack(orders)])
        return torch.softmax(scores, -1)

    @property
    def weights(self) -> Tensor:
        return self.all_weights[0]


def streams(
    *,
    tokens: tuple[int, int] = (1, 10),
    width: tuple[int, int] = (1, 5),
    kinds: tuple[str, ...] = KINDS,
    sharpness: tuple[float, ...] = (0.0, 1.0, 5.0, 40.0),
) -> st.SearchStrategy[Stream]:
    return st.builds(
        Stream,
        tokens=st.integers(*tokens),
        width=st.integers(*width),
        kind=st.sampled_from(kinds),
        sharpness=st.sampled_from(sharpness),
        layers=st.integers(1, 5),
        seed=st.integers(0, 2**16),
    )


def projector(tokens: int) -> Tensor:
    """P = I - 11^T/T."""
    return torch.eye(tokens) - torch.ones(tokens, tokens) / tokens


def brute_dispersion(rows: Tensor) -> Tensor:
    """(1/T) ||P M||_F^2 by the matrix P."""
    return torch.linalg.matrix_norm(projector(rows.shape[-2]) @ rows) ** 2 / rows.shape[-2]


def brute_relative(rows: Tensor) -> Tensor:
    """||P X||_F^2/||X||_F^2 by the matrix P."""
    return rows.shape[-2] * brute_dispersion(rows) / torch.linalg.matrix_norm(rows) ** 2


etas = st.floats(-4, 4, allow_subnormal=False)
positive_etas = st.floats(0.01, 4)


def check_identity(stream, formula=lambda terms: terms.dispersion):
    agree(formula(numerics.dispersion_terms(stream.weights)), brute_dispersion(stream.weights), scale=1.0)


@claim("B7.identity", "property")
@given(streams())
def test_dispersion_of_weights_is_rows_less_columns(stream):
    check_identity(stream)


@claim("B7.identity", "property")
@given(streams())
def test_dispersion_of_tokens_is_the_brute_one(stream):
    scale = stream.x.square().sum()
    agree(numerics.dispersion(stream.x), brute_dispersion(stream.x), scale=scale)
    agree(numerics.relative_dispersion(stream.x), brute_relative(stream.x), scale=1.0)


@claim("B7.identity", "near-miss")
@pytest.mark.parametrize(
    "formula",
    [
        lambda terms: terms.rows,
        lambda terms: terms.rows - terms.columns / 2,
        lambda terms: terms.rows + terms.columns,
    ],
)
def test_a_wrong_identity_is_refuted(formula):
    refuted(lambda stream: check_identity(stream, formula), streams())


def sign_patterns(*shape: int) -> Tensor:
    """All arrays of signs of a shape, (2^size, *shape)."""
    return torch.tensor(list(itertools.product([-1.0, 1.0], repeat=math.prod(shape)))).reshape(-1, *shape)


def check_expectation(stream, formula=lambda stream, w_v, cov: numerics.expected_dispersion(stream.weights, w_v, cov)):
    """The exact expectation over tokens mean + root . signs: uncorrelated, with covariance root root^T."""
    root, mean = stream.normal(stream.width, stream.width, salt=6), stream.normal(stream.width, salt=7)
    tokens = mean + sign_patterns(stream.tokens, stream.width) @ root.T
    w_v = stream.normal(3, stream.width, salt=8)
    exact = torch.stack([brute_dispersion(stream.weights @ x @ w_v.T) for x in tokens]).mean()
    agree(formula(stream, w_v, root @ root.T), exact, scale=(tokens @ w_v.T).square().sum((-2, -1)).max())


small_streams = streams(tokens=(1, 3), width=(1, 2))


@claim("B7.expectation", "property")
@given(small_streams)
def test_expected_dispersion_is_the_mean_over_all_signs(stream):
    check_expectation(stream)


@claim("B7.expectation", "near-miss")
def test_expected_dispersion_without_the_column_term_is_refuted():
    def rows_only(stream, w_v, cov):
        return torch.trace(w_v @ cov @ w_v.T) * numerics.dispersion_terms(stream.weights).rows

    refuted(lambda stream: check_expectation(stream, rows_only), small_streams)


def check_same_signs(beta, factor=2.0):
    """Two tokens +-1, B = beta, W_V = 1, through the reference attention: E dispersion against the formula's mean."""
    signs = sign_patterns(2, 1)
    outputs, weights = attention.attend(beta * signs, signs, signs)
    exact = torch.stack([brute_dispersion(o) for o in outputs]).mean()
    formula = numerics.expected_dispersion(weights, torch.eye(1), torch.eye(1)).mean()
    agree(exact, factor * formula, scale=1.0)
    agree(exact, factor * torch.tensor(beta).tanh() ** 2 / 4, scale=1.0)


@claim("B7.same-tokens", "property")
@given(st.floats(-5, 5, allow_subnormal=False))
def test_weights_of_the_same_signs_disperse_twice_the_formula(beta):
    check_same_signs(beta)


@claim("B7.same-tokens", "near-miss")
def test_the_formula_for_weights_of_the_same_signs_is_refuted():
    refuted(lambda beta: check_same_signs(beta, factor=1.0), st.floats(0.5, 5))


@st.composite
def sparse_weights(draw, balanced: bool):
    """(weights, k): k equal weights in each row; columns balanced (a shuffled band) or wherever they fall."""
    tokens = draw(st.integers(1, 9))
    per_row = draw(st.integers(1, tokens))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    if balanced:
        weights = numerics.balanced_weights(tokens, per_row)
        order = [torch.randperm(tokens, generator=generator) for _ in range(2)]
        return weights[order[0]][:, order[1]], per_row
    chosen = torch.rand(tokens, tokens, generator=generator).argsort(-1) < per_row
    return chosen.double() / per_row, per_row


def check_sparse(example, offset=1.0):
    weights, per_row = example
    tokens = weights.shape[0]
    agree(brute_dispersion(weights), torch.tensor(1 / per_row - offset / tokens), scale=1.0)
    agree(numerics.dispersion_terms(weights).dispersion, brute_dispersion(weights), scale=1.0)


@claim("B7.sparse", "property")
@given(sparse_weights(balanced=True))
def test_balanced_sparse_weights_disperse_by_one_over_k(example):
    check_sparse(example)


@claim("B7.sparse", "near-miss")
@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_another_offset_is_refuted(offset):
    refuted(lambda example: check_sparse(example, offset), sparse_weights(balanced=True))


@claim("B7.sparser", "property")
@given(streams(tokens=(3, 10)))
def test_the_sparsest_matrix_may_disperse_least(stream):
    sparse = numerics.sink_weights(stream.tokens) @ stream.x
    dense = numerics.balanced_weights(stream.tokens, 2) @ stream.x
    at_most(brute_dispersion(sparse), brute_dispersion(dense), scale=stream.x.square().sum())
    of_weights = numerics.dispersion_terms(numerics.sink_weights(stream.tokens)).dispersion
    agree(of_weights, torch.tensor(0.0), scale=1.0)


@claim("B7.sparser", "near-miss")
def test_the_formula_of_balanced_columns_is_refuted_for_others():
    refuted(check_sparse, sparse_weights(balanced=False))


def add_attention(x: Tensor, weights: Tensor, w_v: Tensor) -> Tensor:
    """H = X + A X W_V^T."""
    return x + weights @ x @ w_v.T


def check_residual_sink(stream, value_counts=True):
    """An exact sink of any value, against the closed form with mu + v_0."""
    x, w_v = stream.x, stream.w_v
    stream_after = add_attention(x, numerics.sink_weights(stream.tokens), w_v)
    mean = x.mean(0) + value_counts * w_v @ x[0]
    spread = stream.tokens * brute_dispersion(x)
    agree(
        numerics.relative_dispersion(stream_after),
        spread / (spread + stream.tokens * mean.square().sum()),
        scale=1.0,
    )


@claim("B7.residual-sink", "property")
@given(streams())
def test_an_exact_sink_shifts_the_mean_only(stream):
    check_residual_sink(stream)


@claim("B7.residual-sink", "property")
@given(streams())
def test_a_sink_without_value_keeps_the_relative_dispersion(stream):
    x = stream.x
    w_v = stream.w_v @ (torch.eye(stream.width) - torch.outer(x[0], x[0]) / x[0].square().sum())
    after = add_attention(x, numerics.sink_weights(stream.tokens), w_v)
    agree(numerics.relative_dispersion(after), brute_relative(x), scale=1.0)


@claim("B7.residual-sink", "near-miss")
def test_a_sink_with_a_value_does_not_keep_it():
    refuted(lambda stream: check_residual_sink(stream, value_counts=False), streams(tokens=(2, 10)))


def check_residual_diagonal(stream, orthogonal=True):
    factor = float(stream.normal(1, salt=9)) + 3.0
    change = torch.linalg.qr(stream.w_v).Q * factor if orthogonal else torch.eye(stream.width) + stream.w_v
    after = add_attention(stream.x, torch.eye(stream.tokens), change - torch.eye(stream.width))
    agree(numerics.relative_dispersion(after), brute_relative(stream.x), scale=1.0)


@claim("B7.residual-diagonal", "property")
@given(streams())
def test_a_diagonal_with_a_multiple_of_an_orthogonal_matrix_keeps_it(stream):
    check_residual_diagonal(stream)


@claim("B7.residual-diagonal", "property")
@given(streams(tokens=(2, 2), width=(2, 5)))
def test_any_other_matrix_changes_it_for_some_tokens(stream):
    # The spread along the most stretched direction, the mean along the least: 1/2 becomes s_1^2/(s_1^2 + s_d^2).
    _, sizes, directions = torch.linalg.svd(torch.eye(stream.width) + stream.w_v)
    x = torch.stack([directions[-1] + directions[0], directions[-1] - directions[0]])
    agree(numerics.relative_dispersion(x), torch.tensor(0.5))
    after = add_attention(x, torch.eye(2), stream.w_v)
    agree(numerics.relative_dispersion(after), sizes[0] ** 2 / (sizes[0] ** 2 + sizes[-1] ** 2))


@claim("B7.residual-diagonal", "near-miss")
def test_a_diagonal_with_another_matrix_is_refuted():
    refuted(lambda stream: check_residual_diagonal(stream, orthogonal=False), streams(tokens=(2, 6), width=(2, 5)))


def check_uniform(example, power=2):
    stream, eta = example
    uniform = numerics.balanced_weights(stream.tokens, stream.tokens)
    after = brute_relative(add_attention(stream.x, uniform, eta * torch.eye(stream.width)))
    spread = stream.tokens * brute_dispersion(stream.x)
    share = stream.tokens * stream.x.mean(0).square().sum()
    agree(spread / (spread + abs(1 + eta) ** power * share), after, scale=1.0)


@claim("B7.residual-uniform", "property")
@given(st.tuples(streams(tokens=(2, 10)), etas))
def test_uniform_attention_scales_the_mean(example):
    check_uniform(example)
    stream, eta = example
    uniform = numerics.balanced_weights(stream.tokens, stream.tokens)
    after = brute_relative(add_attention(stream.x, uniform, eta * torch.eye(stream.width)))
    agree(numerics.uniform_relative_dispersion(stream.x, eta), after, scale=1.0)


@claim("B7.residual-uniform", "near-miss")
@pytest.mark.parametrize("power", [0, 1, 4])
def test_another_power_of_one_plus_eta_is_refuted(power):
    refuted(lambda example: check_uniform(example, power), st.tuples(streams(tokens=(2, 10)), etas))


def check_where_it_rises(example, upper=0.0, lower=-2.0):
    """The relative dispersion rises for lower < eta < upper and falls outside."""
    stream, eta = example
    uniform = numerics.balanced_weights(stream.tokens, stream.tokens)
    before = brute_relative(stream.x)
    after = brute_relative(add_attention(stream.x, uniform, eta * torch.eye(stream.width)))
    smaller, larger = (before, after) if lower < eta < upper else (after, before)
    at_most(smaller, larger)


@claim("B7.residual-uniform", "property")
@given(st.tuples(streams(tokens=(2, 10)), etas))
def test_it_rises_between_minus_two_and_zero(example):
    check_where_it_rises(example)


@claim("B7.residual-uniform", "near-miss")
@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 0.0), (-4.0, 0.0), (-2.0, 2.0)])
def test_other_signs_are_refuted(lower, upper):
    refuted(
        lambda example: check_where_it_rises(example, lower=lower, upper=upper),
        st.tuples(streams(tokens=(2, 10)), etas),
    )


def check_lowers(example):
    stream, eta = example
    after = brute_relative(add_attention(stream.x, stream.weights, eta * torch.eye(stream.width)))
    at_most(after, brute_relative(stream.x))


@claim("B7.residual-balanced", "property")
@given(st.tuples(streams(tokens=(2, 10), kinds=("doubly stochastic",)), positive_etas))
def test_doubly_stochastic_attention_lowers_it(example):
    check_lowers(example)
    stream, eta = example
    sigma = torch.linalg.matrix_norm(projector(stream.tokens) @ stream.weights, ord=2)
    at_most(sigma, 1.0)
    spread, share = (
        stream.tokens * brute_dispersion(stream.x),
        stream.tokens * stream.x.mean(0).square().sum(),
    )
    bound = (1 + eta * sigma) ** 2 * spread / ((1 + eta * sigma) ** 2 * spread + (1 + eta) ** 2 * share)
    after = numerics.relative_dispersion(add_attention(stream.x, stream.weights, eta * torch.eye(stream.width)))
    at_most(after, bound)


@claim("B7.residual-balanced", "near-miss")
def test_without_balanced_columns_it_is_refuted():
    refuted(check_lowers, st.tuples(streams(tokens=(2, 10), kinds=("softmax",)), positive_etas))


@claim("B7.residual-balanced", "near-miss")
def test_without_a_positive_eta_it_is_refuted():
    refuted(
        check_lowers,
        st.tuples(streams(tokens=(2, 10), kinds=("doubly stochastic",)), st.floats(-1.9, -0.1)),
    )


@claim("B7.residual-dense", "property")
@given(st.tuples(streams(tokens=(2, 10)), positive_etas))
def test_equal_rows_raise_it_exactly_when_they_shrink_the_mean(example):
    stream, eta = example
    row = stream.weights[-1]
    after = numerics.relative_dispersion(
        add_attention(stream.x, row.expand(stream.tokens, -1), eta * torch.eye(stream.width))
    )
    mean = stream.x.mean(0)
    moved = (mean + eta * row @ stream.x).square().sum()
    smaller, larger = (
        (after, brute_relative(stream.x)) if moved > mean.square().sum() else (brute_relative(stream.x), after)
    )
    at_most(smaller, larger)


@claim("B7.residual-dense", "property")
@pytest.mark.parametrize(
    ("tokens", "row", "expected"),
    [([2.0, -1.0], [0.25, 0.75], 16 / 17), ([1.0, 1.0, 1.0, -1.0], [0.01, 0.01, 0.01, 0.97], 3 / 3.0036)],
)
def test_the_counterexamples(tokens, row, expected):
    x = torch.tensor(tokens).unsqueeze(-1)
    after = add_attention(x, torch.tensor(row).expand(len(tokens), -1), torch.eye(1) / 2)
    agree(numerics.relative_dispersion(after), torch.tensor(expected))
    assert numerics.relative_dispersion(after) > numerics.relative_dispersion(x)


@claim("B7.residual-dense", "near-miss")
def test_that_dense_attention_lowers_it_is_refuted():
    dense = streams(tokens=(2, 10), kinds=("softmax",), sharpness=(0.0, 1.0))
    refuted(check_lowers, st.tuples(dense, positive_etas))


def overlap_form(weights: Tensor) -> Tensor:
    """1 - min over pairs of rows of sum_l min(a_il, a_jl), pair by pair."""
    rows = list(weights)
    return 1 - min(torch.minimum(one, other).sum() for one in rows for other in rows)


@claim("B7.dobrushin", "property")
@given(streams())
def test_dobrushin_is_the_missing_overlap(stream):
    agree(numerics.dobrushin(stream.weights), overlap_form(stream.weights), scale=1.0)
    floor = torch.stack([column.min() for column in stream.weights.T]).sum()
    agree(numerics.column_floor_bound(stream.weights), 1 - floor, scale=1.0)
    at_most(numerics.dobrushin(stream.weights), 1 - floor, scale=1.0)


@claim("B7.dobrushin", "property")
@given(streams())
def test_dobrushin_is_the_largest_shrinkage_of_zero_sum_vectors(stream):
    z = projector(stream.tokens) @ stream.normal(stream.tokens, 20, salt=10)
    shrunk = (stream.weights.T @ z).abs().sum(0)
    at_most(shrunk, numerics.dobrushin(stream.weights) * z.abs().sum(0), scale=1.0)


def check_product(stream, factor=1.0):
    first, second = stream.all_weights[0], Stream(**{**vars(stream), "seed": stream.seed + 1}).all_weights[0]
    bound = factor * numerics.dobrushin(first) * numerics.dobrushin(second)
    at_most(numerics.dobrushin(first @ second), bound, scale=1e-3)


@claim("B7.dobrushin", "property")
@given(streams())
def test_dobrushin_of_a_product(stream):
    check_product(stream)


@claim("B7.dobrushin", "near-miss")
def test_half_the_product_is_refuted():
    refuted(lambda stream: check_product(stream, 0.5), streams(tokens=(2, 4)))


@claim("B7.dobrushin", "near-miss")
def test_the_mean_of_a_column_is_no_floor():
    def check(stream):
        at_most(numerics.dobrushin(stream.weights), 1 - stream.weights.mean(-2).sum(-1), scale=1.0)

    refuted(check, streams(tokens=(2, 4)))


@claim("B7.dobrushin", "property")
@given(st.integers(2, 10), st.floats(0, 1), st.integers(0, 2**16))
def test_a_sink_has_a_small_coefficient(tokens, leak, seed):
    agree(numerics.dobrushin(numerics.sink_weights(tokens, leak)), torch.tensor(leak), scale=1.0)
    rest = torch.softmax(torch.randn(tokens, tokens, generator=torch.Generator().manual_seed(seed)), -1)
    anywhere = leak * rest + (1 - leak) * numerics.sink_weights(tokens)
    at_most(numerics.dobrushin(anywhere), leak, scale=1.0)


def check_depth(example, stretch=1.0, per_pair=1.0):
    stream, residual = example
    curve = numerics.depth_curve(stream.x, stream.all_weights, stream.w_v, residual=residual)
    x, bound = stream.x, torch.pdist(stream.x).max()
    norm = torch.linalg.matrix_norm(stream.w_v, ord=2)
    for place, weights in enumerate(stream.all_weights):
        x = (x if residual else 0) + weights @ x @ stream.w_v.T
        bound = bound * (residual + stretch * overlap_form(weights) * norm)
        scale = x.abs().max()
        agree(curve.relative[place + 1], brute_relative(x), scale=1.0)
        agree(curve.dispersion[place + 1], brute_dispersion(x), scale=x.square().sum())
        at_most(torch.pdist(x).max(), bound, scale=scale)
        at_most(
            brute_dispersion(x),
            per_pair * (stream.tokens - 1) / (2 * stream.tokens) * bound**2,
            scale=scale**2,
        )
        agree(curve.diameter_bound[place + 1], bound, scale=scale)
        at_most(curve.diameter[place + 1], curve.diameter_bound[place + 1], scale=scale)
        at_most(curve.dispersion[place + 1], curve.dispersion_bound[place + 1], scale=scale**2)


depth_examples = st.tuples(streams(tokens=(2, 8), sharpness=(0.0, 1.0, 5.0)), st.booleans())


@claim("B7.depth", "property")
@given(depth_examples)
def test_depth_curves_stay_below_their_bound(example):
    check_depth(example)


@claim("B7.depth", "near-miss")
@pytest.mark.parametrize("wrong", [{"stretch": 0.5}, {"per_pair": 0.5}])
def test_a_smaller_depth_bound_is_refuted(wrong):
    refuted(
        lambda example: check_depth(example, **wrong),
        st.tuples(streams(tokens=(2, 2), width=(1, 1), sharpness=(1.0, 5.0)), st.booleans()),
    )


@claim("B7.depth", "property")
@given(st.integers(2, 8), st.integers(1, 6))
def test_a_simplex_is_the_widest_cloud_of_its_diameter(tokens, layers):
    # Diagonal attention changes nothing, so the bound on dispersion is met at every depth.
    curve = numerics.depth_curve(torch.eye(tokens), torch.eye(tokens).expand(layers, -1, -1))
    agree(curve.dispersion, curve.dispersion_bound)


def test_depth_curves_for_a_batch_are_those_of_its_members():
    both = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    weights = numerics.balanced_weights(5, 2).expand(4, -1, -1)
    curve = numerics.depth_curve(both, weights, residual=True)
    agree(curve.relative[1], numerics.depth_curve(both[1], weights, residual=True).relative)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_relative_dispersion_does_not_depend_on_the_scale(scale):
    x = torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 0.0]])
    agree(numerics.relative_dispersion(scale * x), numerics.relative_dispersion(x))
    agree(numerics.uniform_relative_dispersion(scale * x, 0.5), numerics.uniform_relative_dispersion(x, 0.5))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"every row of weights must sum to 1, got 2.0 in row \(1,\)"):
        numerics.dobrushin(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    with pytest.raises(ValueError, match=r"weights must not be negative, got -1.0 at \(0, 1\)"):
        numerics.dispersion_terms(torch.tensor([[2.0, -1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"weights must have shape \(..., T, T\)"):
        numerics.column_floor_bound(torch.ones(2, 3) / 3)
    with pytest.raises(ValueError, match="x must have shape"):
        numerics.dispersion(torch.ones(3))
    with pytest.raises(ValueError, match=r"per_row must lie in 1 \.\. tokens = 3, got 4"):
        numerics.balanced_weights(3, 4)
    with pytest.raises(ValueError, match=r"leak must lie in \[0, 1\], got 2"):
        numerics.sink_weights(3, 2.0)
    with pytest.raises(ValueError, match="tokens must be at least 1, got 0"):
        numerics.sink_weights(0)
    with pytest.raises(ValueError, match=r"covariance must have shape \(2, 2\)"):
        numerics.expected_dispersion(torch.eye(2), torch.ones(1, 2), torch.eye(3))
    with pytest.raises(ValueError, match=r"weights\[1\] must have shape \(3, 3\)"):
        numerics.depth_curve(torch.ones(3, 2), [torch.eye(3), torch.eye(2)])
    with pytest.raises(ValueError, match=r"w_v must have shape \(2, 2\)"):
        numerics.depth_curve(torch.ones(3, 2), [torch.eye(3)], torch.ones(3, 2))
    with pytest.raises(ValueError, match="eta must be finite, got nan"):
        numerics.uniform_relative_dispersion(torch.ones(2, 1), float("nan"))
    with pytest.raises(TypeError, match="per_row must be an integer, got float"):
        numerics.balanced_weights(3, 1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"dtype must be a real floating dtype, got torch\.int64"):
        numerics.sink_weights(3, 0.2, dtype=torch.int64)
    with pytest.raises(ValueError, match="covariance must be positive semidefinite"):
        numerics.expected_dispersion(torch.eye(2), torch.eye(1), -torch.eye(1))
