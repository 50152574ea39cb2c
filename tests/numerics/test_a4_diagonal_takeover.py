"""A4 evaluated: the ratio = autograd's, its limit = long sequences, and what the weights do instead."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted
from tests.numerics.test_a1_jacobian import autograd_blocks
from tests.strategies import build_layer, layers


def brute_ratio(blocks: Tensor) -> Tensor:
    """||J_ii|| / mean_{j != i} ||J_ij|| of all rows, from the blocks (T, T, d_out, d)."""
    norms = torch.linalg.svdvals(blocks)[..., 0]
    tokens = len(norms)
    return torch.stack(
        [norms[i, i] / (norms[i, torch.arange(tokens) != i].sum() / (tokens - 1)) for i in range(tokens)]
    )


def check_ratio(layer, factor=1.0, residual=True):
    found = factor * numerics.takeover_ratio(layer.heads, residual=residual)
    # Mapped into (0, 1): where a row saturates the ratio is huge, and its denominator a rounding.
    agree(1 / (1 + found), 1 / (1 + brute_ratio(autograd_blocks(layer, residual=True))))


ratio_layers = layers(min_tokens=2, max_tokens=8, max_width=4, square=True, scores=(0.0, 1.0, 5.0), masks=("none",))


@claim("A4.jacobian", "property")
@given(ratio_layers)
def test_ratio_is_that_of_autograd(layer):
    check_ratio(layer)


@claim("A4.jacobian", "near-miss")
@pytest.mark.parametrize("wrong", [{"factor": 0.5}, {"residual": False}], ids=["halved", "without the residual"])
def test_a_wrong_ratio_is_refuted(wrong):
    refuted(lambda layer: check_ratio(layer, **wrong), ratio_layers)


def test_chosen_rows_are_those_of_the_whole():
    layer = build_layer(tokens=5, width=3, num_heads=2, d_k=2, d_v=3, mask="causal", seed=3)
    whole = numerics.takeover_ratio(layer.heads, residual=True)
    agree(numerics.takeover_ratio(layer.heads, [3, 1], residual=True), whole[[3, 1]])


sign_layers = layers(
    min_tokens=1,
    max_tokens=1,
    max_width=3,
    max_heads=2,
    scores=(0.0, 0.3, 1.0),
    masks=("none",),
    score_bias=False,
    square=True,
    equal_tokens=False,
)
"""One token x_i and a layer; the other tokens are signs."""


def sign_vectors(width: int) -> Tensor:
    return torch.tensor(list(product((-1.0, 1.0), repeat=width)))


def long_row(layer, copies: int) -> tuple[Tensor, Tensor]:
    """Row of x_i among ``copies`` of every sign vector: blocks (T, d_out, d) by autograd, and weights (H, T)."""
    x = torch.cat([layer.x, sign_vectors(layer.x.shape[1]).repeat(copies, 1)])
    opts = layer.options
    split = opts["num_heads"]

    def project(tokens: Tensor, w: Tensor, name: str) -> Tensor:
        return torch.nn.functional.linear(tokens, w, opts.get(name)).unflatten(-1, (split, -1)).transpose(-2, -3)

    def row(x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (
            project(tokens, w, name)
            for tokens, w, name in ((x[:1], layer.w_q, "b_q"), (x, layer.w_k, "b_k"), (x, layer.w_v, "b_v"))
        )
        heads, weights = attention.attend(q, k, v)
        if "w_o" in opts:
            out = torch.nn.functional.linear(heads.transpose(-2, -3).flatten(-2), opts["w_o"])
        else:
            out = heads.sum(-3)
        return out[0], weights[:, 0]

    blocks, weights = torch.func.jacrev(row, has_aux=True)(x)
    return blocks.movedim(1, 0), weights


def ratio_over_length(layer, copies: int, residual: bool) -> Tensor:
    blocks, _ = long_row(layer, copies)
    identity = torch.eye(layer.x.shape[1]) if residual else 0.0
    norms = torch.linalg.matrix_norm(blocks[1:], ord=2)
    return torch.linalg.matrix_norm(blocks[0] + identity, ord=2) / norms.mean() / len(blocks)


def extrapolated(value_at) -> Tensor:
    """The limit of value_at(n) = limit + c/n + .., from two lengths."""
    return 2 * value_at(2000) - value_at(1000)


def limit_of_ratio(layer, residual: bool) -> Tensor:
    width = layer.x.shape[1]
    law, nodes = numerics.Rademacher(width), sign_vectors(width)
    return numerics.takeover_limit(law, nodes, *layer.arguments, residual=residual, **layer.options)[0]


def untilted_limit(layer, residual: bool) -> Tensor:
    """The wrong limit for one head: a plain mean of the norms over the law instead of the tilted one."""
    width = layer.x.shape[1]
    law, nodes = numerics.Rademacher(width), sign_vectors(width)
    tilted = numerics.limit_off_diagonal_blocks(law, nodes, *layer.arguments, **layer.options)[0]
    norms = torch.linalg.matrix_norm(tilted, ord=2)
    density = numerics.limit_weights(law, nodes, *layer.arguments, **layer.options)[0, 0]
    return limit_of_ratio(layer, residual) * norms.mean() / (norms / density).mean()


def check_limit(case, limit=limit_of_ratio):
    layer, residual = case
    found = extrapolated(lambda copies: ratio_over_length(layer, copies, residual))
    agree(found, limit(layer, residual), tolerance="differences", scale=1.0)


cases = st.tuples(sign_layers, st.booleans())


@claim("A4.jacobian", "property")
@given(cases)
def test_ratio_over_length_tends_to_the_limit(case):
    check_limit(case)


WRONG_LIMITS = {
    "untilted mean": untilted_limit,
    "residual forgotten": lambda layer, residual: limit_of_ratio(layer, False),
    "no growth": lambda layer, residual: torch.tensor(0.0),
}


@claim("A4.jacobian", "near-miss")
@pytest.mark.parametrize("name", WRONG_LIMITS)
def test_a_wrong_limit_is_refuted(name):
    refuted(lambda case: check_limit(case, WRONG_LIMITS[name]), cases, tries=30)


def check_stretch(tau, stretch=numerics.mean_stretch):
    """Against quadrature, split where 1 + tau z changes sign."""

    def integrand(z: float) -> float:
        return abs(1 + tau * z) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    # Beyond 12 the density is below 1e-31.
    zero = max(-12.0, min(12.0, -1 / tau)) if tau else 12.0
    pieces = (quad(integrand, low, high, epsabs=1e-13, epsrel=1e-12)[0] for low, high in ((-12, zero), (zero, 12)))
    agree(stretch(torch.tensor(tau)), torch.tensor(sum(pieces)))


taus = st.floats(-20, 20, allow_subnormal=False)


@claim("A4.jacobian", "property")
@given(taus)
def test_mean_stretch_is_the_integral(tau):
    check_stretch(tau)


@claim("A4.jacobian", "near-miss")
def test_the_mean_without_its_sign_change_is_refuted():
    refuted(lambda tau: check_stretch(tau, stretch=torch.ones_like), taus)


numbers = st.floats(-1.5, 1.5, allow_subnormal=False)
gaussian_cases = st.tuples(
    numbers, st.floats(0.2, 1.5), numbers, numbers, st.floats(0.3, 1.5), st.sampled_from([0.0, 1.0])
)
"""(m, sigma, x_i, B, W_V, r) in d = 1."""


def check_gaussian_limit(case, curvature_factor=1.0):
    """|r + W S B| / (|W| E|1 + sigma u Z|) against the general limit on a fine grid of the law."""
    mean, sigma, own, bilinear, w_v, residual = case
    closed = abs(residual + curvature_factor * w_v * sigma**2 * bilinear) / (
        w_v * numerics.mean_stretch(torch.tensor(sigma * own * bilinear))
    )
    grid = torch.linspace(-14, 14, 60001)
    density = torch.exp(-(grid**2) / 2)
    found = numerics.takeover_limit(
        numerics.Gaussian(torch.tensor([mean]), torch.tensor([[sigma**2]])),
        (mean + sigma * grid)[:, None],
        torch.tensor([[own]]),
        torch.tensor([[bilinear]]),
        torch.ones(1, 1),
        torch.tensor([[w_v]]),
        probabilities=density / density.sum(),
        residual=bool(residual),
    )
    agree(found[0], closed, tolerance="differences", scale=1.0)


@claim("A4.jacobian", "property")
@given(gaussian_cases)
def test_gaussian_closed_form_on_a_line(case):
    check_gaussian_limit(case)


@claim("A4.jacobian", "near-miss")
def test_half_the_curvature_is_refuted():
    refuted(lambda case: check_gaussian_limit(case, curvature_factor=0.5), gaussian_cases)


flat_layers = layers(
    min_tokens=2,
    max_width=4,
    max_heads=1,
    scores=(0.0,),
    masks=("none",),
    projection_bias=False,
    score_bias=False,
    output_projection=False,
    square=True,
)
"""B = 0: attention is a plain average."""


def check_residual_alone(layer, residual=True):
    tokens = len(layer.x)
    ratio = brute_ratio(autograd_blocks(layer, residual=residual))
    size = torch.linalg.svdvals(layer.w_v)[0]
    at_most((ratio / tokens - 1 / size).abs(), torch.full_like(ratio, 1 / tokens), scale=1 / size)


@claim("A4.jacobian", "property")
@given(flat_layers)
def test_residual_alone_takes_over(layer):
    check_residual_alone(layer)


@claim("A4.jacobian", "near-miss")
def test_takeover_of_an_average_without_residual_is_refuted():
    refuted(lambda layer: check_residual_alone(layer, residual=False), flat_layers)


@claim("A4.jacobian", "property")
@given(flat_layers)
def test_average_without_residual_has_ratio_one(layer):
    agree(numerics.takeover_ratio(layer.heads), torch.ones(len(layer.x)))


@claim("A4.jacobian", "property")
@given(st.integers(2, 60), st.integers(0, 2**16))
def test_without_residual_and_query_path_the_ratio_is_that_of_the_weights(tokens, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.zeros(tokens, 2)
    x[:, 0] = 2 * torch.rand(tokens, generator=generator) - 1
    sees_first, reads_second = torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))
    heads = numerics.attention_heads(x, sees_first, sees_first, reads_second)
    own = heads.weights[0].diagonal()
    ratio = numerics.takeover_ratio(heads)
    agree(ratio, own * (tokens - 1) / (1 - own))
    # |x| <= 1: no two scores of a row differ by more than 2 |u|, so the ratio never grows past this.
    at_most(ratio, torch.exp(2 * heads.slopes[0].norm(dim=-1)))


@st.composite
def small_layers(draw):
    """Layers whose residual is large against the query path, often enough."""
    layer = draw(
        layers(min_tokens=2, max_tokens=8, max_width=3, scores=(0.0, 0.1, 1.0), projection_bias=False, square=True)
    )
    return layer, draw(st.sampled_from([0.01, 0.1, 1.0]))


def check_floor(case, factor=1.0):
    layer, size = case
    x, w_q, w_k, w_v = layer.arguments
    left, right = numerics.takeover_floor(x, w_q, w_k, size * w_v, **layer.options)
    finite = torch.isfinite(right)
    if bool(finite.any()):
        at_most(factor * left[finite], right[finite])


@claim("A4.jacobian", "property")
@given(small_layers())
def test_ratio_stays_above_its_floor(case):
    check_floor(case)


@claim("A4.jacobian", "near-miss")
def test_a_higher_floor_is_refuted():
    refuted(lambda case: check_floor(case, factor=1.5), small_layers())


weight_layers = layers(
    min_tokens=2,
    max_heads=2,
    scores=(0.0, 1.0, 5.0, 30.0),
    masks=("none", "causal"),
)


def scaled_scores(layer) -> Tensor:
    heads = layer.heads
    scores = heads.scale * heads.queries @ heads.keys.transpose(-1, -2)
    return scores + layer.options["bias"] if "bias" in layer.options else scores


def check_margin(layer, mean_of_rest=False):
    """a_ii of the reference layer = sigmoid(margin), and a_ii >= 1/2 exactly where the margin is >= 0."""
    # The first causal row has no other key.
    rows = slice(1, None) if "blocked" in layer.options else slice(None)
    blocked = layer.options.get("blocked")
    scores = scaled_scores(layer)
    if blocked is not None:
        scores, blocked = scores.clone(), blocked.clone()
        blocked[0, 1] = False
    margin = numerics.majority_margin(scores, blocked=blocked)[:, rows]
    if mean_of_rest:
        margin = margin + math.log(len(layer.x) - 1)
    own = layer.heads.weights.diagonal(dim1=-2, dim2=-1)[:, rows]
    agree(torch.sigmoid(margin), own, scale=1.0)
    clear = margin.abs() > 1e-9
    assert torch.equal((own >= 0.5)[clear], (margin >= 0)[clear])


@claim("A4.weights", "property")
@given(weight_layers)
def test_majority_is_a_margin_over_all_others_together(layer):
    check_margin(layer)


@claim("A4.weights", "near-miss")
def test_a_margin_over_the_mean_of_the_others_is_refuted():
    refuted(lambda layer: check_margin(layer, mean_of_rest=True), weight_layers)


ball_layers = layers(
    min_tokens=2,
    max_heads=1,
    max_width=3,
    scores=(1.0, 5.0, 20.0),
    masks=("none",),
    score_bias=False,
)


@claim("A4.weights", "property")
@given(ball_layers)
def test_a_majority_in_a_ball_needs_a_short_sequence(layer):
    heads = layer.heads
    bound = numerics.longest_majority(float(layer.x.norm(dim=-1).max()), heads.slopes[0])
    majority = heads.weights[0].diagonal() >= 0.5
    if bool(majority.any()):
        at_most(torch.full_like(bound[majority], len(layer.x)), bound[majority])


opposites = st.tuples(st.integers(2, 200), st.floats(0.1, 5.0), st.floats(0.0, 2.0))
"""(T, R, by how much the slope exceeds what T needs): x_i at R, all others at -R."""


def check_opposites(case, exponent=1.0):
    tokens, radius, more = case
    slope = math.log(tokens - 1) / (2 * radius) + more
    x = torch.full((tokens, 1), -radius)
    x[0] = radius
    _, weights = attention.attend(torch.full((1, 1), slope), x, x)
    at_most(0.5, weights[0, 0])
    bound = numerics.longest_majority(exponent * radius, torch.tensor([slope]))
    at_most(torch.tensor(float(tokens)), bound)
    # The bound is attained: 1/a_ii = 1 + (T - 1)/(bound - 1).
    agree(1 / (1 + (tokens - 1) / (bound - 1)), weights[0, 0])


@claim("A4.weights", "property")
@given(opposites)
def test_the_longest_majority_is_attained(case):
    check_opposites(case)


@claim("A4.weights", "near-miss")
def test_half_the_exponent_is_refuted():
    refuted(lambda case: check_opposites(case, exponent=0.5), opposites)


growing_layers = layers(
    min_tokens=3, scores=(0.0, 1.0, 5.0), masks=("none",), score_bias=False, max_heads=2, max_width=4
)


def check_own_weight_falls(layer, *, grows=False):
    """a_ii of the first tokens, alone and with the rest of the sequence behind them."""
    x, *weights = layer.arguments
    options = layer.options
    short = numerics.attention_heads(x[:2], *weights, **options).weights.diagonal(dim1=-2, dim2=-1)
    long = layer.heads.weights.diagonal(dim1=-2, dim2=-1)[:, :2]
    lower, upper = (short, long) if grows else (long, short)
    at_most(lower, upper)


@claim("A4.weights", "property")
@given(growing_layers)
def test_every_new_key_lowers_the_own_weight(layer):
    check_own_weight_falls(layer)


@claim("A4.weights", "near-miss")
def test_an_own_weight_that_grows_with_length_is_refuted():
    refuted(lambda layer: check_own_weight_falls(layer, grows=True), growing_layers)


@claim("A4.weights", "property")
@given(sign_layers)
def test_length_times_own_weight_tends_to_its_density(layer):
    def value_at(copies: int) -> Tensor:
        _, weights = long_row(layer, copies)
        return weights.shape[-1] * weights[:, 0]

    law = numerics.Rademacher(layer.x.shape[1])
    density = numerics.limit_weights(law, layer.x, *layer.arguments, **layer.options)[:, 0, 0]
    agree(extrapolated(value_at), density, tolerance="differences", scale=1.0)


@claim("A4.weights", "near-miss")
def test_an_own_weight_above_every_other_is_refuted():
    def check(layer):
        weights = layer.heads.weights
        at_most(weights, weights.diagonal(dim1=-2, dim2=-1)[..., None].expand_as(weights))

    refuted(check, growing_layers)


def test_smallest_counterexamples_by_hand():
    one = torch.ones(1, 1)
    two_tokens = numerics.attention_heads(torch.tensor([[1.0], [2.0]]), one, one, one).weights[0]
    agree(two_tokens[0], torch.tensor([1.0, math.e]) / (1 + math.e))
    for tokens in (2, 3):
        equal = numerics.attention_heads(torch.ones(tokens, 1), one, one, one).weights[0]
        agree(equal, torch.full((tokens, tokens), 1 / tokens))


def test_bad_input_is_named():
    one, x = torch.ones(1, 1), torch.ones(2, 1)
    single = numerics.attention_heads(one, one, one, one)
    with pytest.raises(ValueError, match="needs T >= 2 tokens, got 1"):
        numerics.takeover_ratio(single)
    with pytest.raises(ValueError, match=r"rows must lie in 0 \.\. 1, got 2"):
        numerics.takeover_ratio(numerics.attention_heads(x, one, one, one), [2])
    law, nodes = numerics.Rademacher(1), sign_vectors(1)
    with pytest.raises(ValueError, match=r"probabilities must be 2 numbers >= 0 that sum to one, got 2 that sum to 2"):
        numerics.takeover_limit(law, nodes, x, one, one, one, probabilities=torch.ones(2))
    with pytest.raises(ValueError, match="scores must have shape"):
        numerics.majority_margin(torch.ones(2, 3))
    with pytest.raises(ValueError, match="blocked must leave every row its own key"):
        numerics.majority_margin(torch.ones(2, 2), blocked=torch.eye(2, dtype=torch.bool))
    with pytest.raises(ValueError, match="blocked together with the own key leaves query 0 no key"):
        numerics.majority_margin(torch.ones(2, 2), blocked=torch.ones(2, 2, dtype=torch.bool).triu(1))
    with pytest.raises(ValueError, match=r"radius must be finite and not negative, got -1\.0"):
        numerics.longest_majority(-1.0, torch.ones(1))
