"""A2 evaluated: every bound against blocks from autograd, how tight it is, and what happens outside its domain."""

import math
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import attention
import numerics
from numerics import Bound
from tests.evidence import agree, at_most, claim, refuted
from tests.numerics.test_a1_jacobian import autograd_blocks
from tests.strategies import Layer, build_layer, layers


def spectral(blocks: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(blocks, ord=2)


def path_norms(layer: Layer, path: str) -> Tensor:
    """(T, T): norms of one path's blocks by autograd, the tokens of the other two paths standing still."""
    split, options = layer.options["num_heads"], layer.options

    def output(moving: Tensor) -> Tensor:
        at = {name: moving if name == path else layer.x for name in ("query", "key", "value")}
        q, k, v = (
            torch.nn.functional.linear(at[name], weight, options.get(bias)).unflatten(-1, (split, -1)).transpose(-2, -3)
            for name, weight, bias in zip(at, layer.arguments[1:], ("b_q", "b_k", "b_v"), strict=True)
        )
        heads, _ = attention.attend(q, k, v, blocked=options.get("blocked"), bias=options.get("bias"))
        if "w_o" in options:
            return torch.nn.functional.linear(heads.transpose(-2, -3).flatten(-2), options["w_o"])
        return heads.sum(-3)

    return spectral(torch.func.jacrev(output)(layer.x).movedim(2, 1))


def size_of_terms(layer: Layer) -> Tensor:
    """How large the terms are that a bound adds up: what its rounding is measured against."""
    heads = layer.heads
    w_v = spectral(heads.w_o @ heads.w_v).sum()
    values = (heads.values @ heads.w_o.mT).abs().max()
    slopes = torch.maximum(heads.slopes.abs().max(), heads.scale * heads.keys.abs().max() * heads.w_q.abs().max())
    return w_v + values * slopes * layer.x.shape[1]


def check(bound: Bound, left: Tensor, layer: Layer, *, factor: float = 1.0) -> None:
    """The left side is what autograd says, and stays below ``factor`` times the right side."""
    scale = size_of_terms(layer)
    agree(bound.left, left, scale=scale)
    at_most(left, factor * bound.right, scale=scale)


def off_diagonal_mean(norms: Tensor) -> Tensor:
    """Mean over j != i, (T,)."""
    return (norms.sum(-1) - norms.diagonal()) / (norms.shape[0] - 1)


moderate = layers(scores=(0.0, 1.0, 3.0), equal_tokens=False)
small = layers(min_tokens=2, max_tokens=3, max_width=2, max_heads=2, scores=(0.0, 1.0, 3.0), equal_tokens=False)


# --- (a) value path ----------------------------------------------------------------------------------------------


def check_value(layer: Layer, factor: float = 1.0) -> None:
    check(numerics.value_path_bound(layer.heads), path_norms(layer, "value").mean(-1), layer, factor=factor)


@claim("A2.value", "property")
@given(layers())
def test_value_path_is_at_most_the_sum_over_heads(layer):
    check_value(layer)


@claim("A2.value", "property")
@given(layers(max_heads=1))
def test_value_path_of_one_head_is_exact(layer):
    bound = numerics.value_path_bound(layer.heads)
    agree(path_norms(layer, "value").mean(-1), bound.right)


@claim("A2.value", "near-miss")
@pytest.mark.parametrize("factor", [0.5, 0.99])
def test_a_smaller_value_path_is_refuted(factor):
    refuted(lambda layer: check_value(layer, factor), moderate)


@claim("A2.value", "near-miss")
def test_equality_for_several_heads_is_refuted():
    def equality(layer):
        agree(path_norms(layer, "value").mean(-1), numerics.value_path_bound(layer.heads).right)

    refuted(equality, moderate)


# --- (b) key path ------------------------------------------------------------------------------------------------


def check_key(layer: Layer, factor: float = 1.0) -> None:
    check(numerics.key_path_bound(layer.heads), path_norms(layer, "key").mean(-1), layer, factor=factor)


@claim("A2.key", "property")
@given(layers())
def test_key_path_is_at_most_sigma(layer):
    check_key(layer)


@claim("A2.key", "property")
@given(layers())
def test_sigma_is_never_more_than_the_largest_distance(layer):
    sigma = numerics.key_path_bound(layer.heads)
    largest = numerics.key_path_bound(layer.heads, spread="largest")
    at_most(sigma.right, largest.right, scale=size_of_terms(layer))


@claim("A2.key", "property")
@given(st.integers(1, 6), st.integers(0, 2**16))
def test_key_path_is_exact_where_all_values_are_equally_far(pairs, seed):
    # The asking token 0 sees only pairs +-y of one length with scores that do not tell them apart.
    generator = torch.Generator().manual_seed(seed)
    y = torch.nn.functional.normalize(torch.randn(pairs, 3, generator=generator), dim=-1)
    y = y * torch.tensor([0.0, 1.0, 1.0])
    y = y / y.norm(dim=-1, keepdim=True)
    x = torch.cat([torch.tensor([[2.0, 0.0, 0.0]]), y, -y])
    w_q = torch.tensor([[1.0, 0.0, 0.0]])
    blocked = torch.zeros(len(x), len(x), dtype=torch.bool)
    blocked[0, 0] = True
    heads = numerics.attention_heads(x, w_q, w_q, torch.eye(3), blocked=blocked)
    bound = numerics.key_path_bound(heads, [0])
    assert float(bound.left) > 0
    agree(bound.left, bound.right)


@claim("A2.key", "near-miss")
@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_a_smaller_key_constant_is_refuted(factor):
    refuted(lambda layer: check_key(layer, factor), small)


# --- (c) query path ----------------------------------------------------------------------------------------------


def check_query(layer: Layer, factor: float = 1.0) -> None:
    norms = path_norms(layer, "query")
    agree(norms, torch.diag(norms.diagonal()))
    check(numerics.query_path_bound(layer.heads), norms.diagonal(), layer, factor=factor)


@claim("A2.query", "property")
@given(layers())
def test_query_path_is_at_most_the_root_of_both_covariances(layer):
    check_query(layer)


@claim("A2.query", "property")
@given(layers())
def test_the_sharp_query_bound_is_never_more_than_the_trace_form(layer):
    sharp, trace = (numerics.query_path_bound(layer.heads, sharp=sharp) for sharp in (True, False))
    at_most(sharp.right, trace.right, scale=size_of_terms(layer))


@claim("A2.query", "property")
@given(layers(max_width=1, max_heads=1, scores=(0.0, 1.0, 30.0)))
def test_query_bound_is_exact_in_one_dimension(layer):
    bound = numerics.query_path_bound(layer.heads)
    agree(path_norms(layer, "query").diagonal(), bound.right, scale=size_of_terms(layer))


@claim("A2.query", "near-miss")
@pytest.mark.parametrize("factor", [0.5, 0.99])
def test_a_smaller_query_constant_is_refuted(factor):
    refuted(lambda layer: check_query(layer, factor), small)


# --- (d) mean over the other tokens ------------------------------------------------------------------------------


def check_mean(layer: Layer, factor: float = 1.0) -> None:
    left = off_diagonal_mean(spectral(autograd_blocks(layer)))
    check(numerics.off_diagonal_mean_bound(layer.heads), left, layer, factor=factor)


@claim("A2.mean", "property")
@given(layers(min_tokens=2))
def test_mean_off_diagonal_block(layer):
    check_mean(layer)


@claim("A2.mean", "property")
@given(layers(min_tokens=2, max_heads=1, scores=(0.0,), projection_bias=False))
def test_mean_bound_is_exact_without_slopes(layer):
    bound = numerics.off_diagonal_mean_bound(layer.heads)
    agree(off_diagonal_mean(spectral(autograd_blocks(layer))), bound.right)


@claim("A2.mean", "near-miss")
@pytest.mark.parametrize("factor", [0.5, 0.99])
def test_a_smaller_mean_is_refuted(factor):
    refuted(lambda layer: check_mean(layer, factor), small)


@claim("A2.mean", "near-miss")
def test_key_part_with_the_whole_factor_is_refuted():
    # (1 - a_ii) sigma ||u|| for sqrt(1 - a_ii) sigma ||u||: the root cannot be dropped.
    def stronger(layer):
        heads = layer.heads
        others = 1 - heads.weights.diagonal(dim1=-2, dim2=-1)[0]
        value = spectral(heads.w_o @ heads.w_v)[0]
        key = numerics.key_path_bound(heads).right * layer.x.shape[0]
        left = off_diagonal_mean(spectral(autograd_blocks(layer)))
        at_most(left, others * (value + key) / (layer.x.shape[0] - 1))

    refuted(stronger, layers(min_tokens=2, max_tokens=2, max_width=1, max_heads=1, scores=(1.0, 3.0)), tries=2000)


# --- (e) constants on a ball -------------------------------------------------------------------------------------

in_a_ball = layers(min_tokens=2, projection_bias=False)
small_in_ball = layers(min_tokens=2, max_tokens=3, max_width=2, max_heads=1, projection_bias=False, scores=(0.0, 1.0))


def check_mean_in_ball(layer: Layer, factor: float = 1.0) -> None:
    left = off_diagonal_mean(spectral(autograd_blocks(layer)))
    check(numerics.off_diagonal_mean_ball_bound(*layer.arguments, **layer.options), left, layer, factor=factor)


def check_query_in_ball(layer: Layer, factor: float = 1.0) -> None:
    left = path_norms(layer, "query").diagonal()
    check(numerics.query_path_ball_bound(*layer.arguments, **layer.options), left, layer, factor=factor)


def check_diagonal_in_ball(layer: Layer, *, residual: bool = True, lowered=lambda layer: 0.0) -> None:
    """``lowered`` is what a near-miss takes off the right side."""
    left = spectral(autograd_blocks(layer, residual=residual)).diagonal()
    bound = numerics.diagonal_ball_bound(*layer.arguments, **layer.options, residual=residual)
    check(Bound(bound.left, bound.right - lowered(layer)), left, layer)


@claim("A2.ball", "property")
@given(in_a_ball)
def test_mean_off_diagonal_block_in_a_ball(layer):
    check_mean_in_ball(layer)


@claim("A2.ball", "property")
@given(layers())
def test_query_path_in_a_ball(layer):
    check_query_in_ball(layer)


@claim("A2.ball", "property")
@given(layers(square=True, projection_bias=False), st.booleans())
def test_diagonal_block_in_a_ball(layer, residual):
    check_diagonal_in_ball(layer, residual=residual)


@claim("A2.ball", "property")
@given(layers(square=True), st.booleans())
def test_diagonal_block_by_the_spread_of_its_row(layer, residual):
    left = spectral(autograd_blocks(layer, residual=residual)).diagonal()
    check(numerics.diagonal_bound(layer.heads, residual=residual), left, layer)


def scalar(x: list[float], *, slope: float = 1.0, value: float = 1.0, masked: bool = False) -> Layer:
    """The layer of the note's examples: d = 1, B = ``slope``, W_V = ``value``."""
    options: dict = {"num_heads": 1}
    if masked:
        options["blocked"] = torch.eye(len(x), dtype=torch.bool)
    one = torch.ones(1, 1)
    recipe = {"x": x, "slope": slope, "value": value, "masked": masked}
    return Layer(torch.tensor(x)[:, None], slope * one, one, value * one, options, recipe)


antipodal = st.builds(lambda r, slope: scalar([r, -r], slope=slope), st.floats(0.5, 2.0), st.floats(0.01, 0.3))
masked_antipodal = st.builds(lambda r: scalar([0.0, r, -r], masked=True), st.floats(0.5, 2.0))


@claim("A2.ball", "property")
@given(masked_antipodal)
def test_query_constant_is_attained(layer):
    bound = numerics.query_path_ball_bound(*layer.arguments, **layer.options, rows=[0])
    agree(path_norms(layer, "query").diagonal()[:1], bound.right)


@claim("A2.ball", "property")
@given(antipodal)
def test_diagonal_bounds_of_two_opposite_tokens(layer):
    # With W_V = 1 and R, -R: both key parts are 2 R^2 a (1 - a) B, and the query path is R^2 B at a = 1/2.
    own, radius, slope = layer.heads.weights[0, 0, 0], layer.x[0, 0], layer.w_q[0, 0]
    in_ball = numerics.diagonal_ball_bound(*layer.arguments, rows=[0])
    check_diagonal_in_ball(layer)
    agree(in_ball.right[0], own + (2 * own * (1 - own) + 1) * radius**2 * slope)
    by_spread = numerics.diagonal_bound(layer.heads, [0])
    agree(by_spread.left, by_spread.right)
    reach = 2 * radius**2 * slope
    largest = numerics.largest_block_ball_bound(*layer.arguments, rows=[0])
    agree(largest.right[0], (1 + reach) / (1 + torch.exp(-reach)))


@claim("A2.ball", "property")
@given(layers(min_tokens=2, max_heads=1, scores=(0.0,), projection_bias=False))
def test_mean_bound_in_a_ball_is_exact_without_slopes(layer):
    bound = numerics.off_diagonal_mean_ball_bound(*layer.arguments, **layer.options)
    agree(off_diagonal_mean(spectral(autograd_blocks(layer))), bound.right)


@claim("A2.ball", "property")
@given(layers(min_tokens=2, max_heads=1, scores=(1.0,), projection_bias=False))
def test_mean_bound_in_a_ball_is_the_formula(layer):
    bound = numerics.off_diagonal_mean_ball_bound(*layer.arguments, **layer.options, radius=100.0)
    heads = layer.heads
    others = 1 - heads.weights.diagonal(dim1=-2, dim2=-1)[0]
    bilinear = torch.linalg.svdvals(heads.scale * layer.w_q.mT @ layer.w_k)[0]
    w_v = torch.linalg.svdvals(heads.w_o[0] @ layer.w_v)[0]
    agree(bound.right, w_v * (others + others.abs().sqrt() * 100.0**2 * bilinear) / (layer.x.shape[0] - 1))


@claim("A2.ball", "near-miss")
def test_smaller_ball_constants_are_refuted():
    refuted(lambda layer: check_mean_in_ball(layer, 0.5), small_in_ball)
    refuted(lambda layer: check_query_in_ball(layer, 0.5), masked_antipodal)


def curvature(layer: Layer) -> Tensor:
    """R^2 ||W_V|| ||B||, for the one head of a scalar layer."""
    return layer.x.abs().max() ** 2 * (layer.w_q * layer.w_k * layer.w_v).abs().sum()


def own_share(layer: Layer) -> Tensor:
    own = layer.heads.weights[0].diagonal()
    return own * (1 - own)


@claim("A2.ball", "near-miss")
@pytest.mark.parametrize(
    ("lowered", "examples"),
    [
        (lambda layer: curvature(layer), masked_antipodal),
        (lambda layer: curvature(layer) / 2, masked_antipodal),
        (lambda layer: own_share(layer) * curvature(layer), antipodal),
    ],
    ids=["query path left out", "query constant halved", "1 for the factor 2 of the own key"],
)
def test_a_smaller_diagonal_bound_is_refuted(lowered, examples):
    refuted(lambda layer: check_diagonal_in_ball(layer, lowered=lowered), examples)


@claim("A2.ball", "near-miss")
def test_query_bias_leaves_the_domain():
    # With a query bias u_i is not B^T x_i, and the constant of the unbiased layer is no bound.
    def ignoring_the_bias(layer):
        plain = {name: option for name, option in layer.options.items() if name not in ("b_q", "b_k", "b_v")}
        left = spectral(autograd_blocks(layer)).diagonal()
        at_most(left, numerics.diagonal_ball_bound(*layer.arguments, **plain).right)

    def biased(radius: float, bias: float) -> Layer:
        layer = scalar([radius, -radius], slope=0.1)
        layer.options["b_q"] = torch.tensor([bias])
        return layer

    refuted(ignoring_the_bias, st.builds(biased, st.floats(0.1, 1.0), st.floats(1.0, 3.0)))


@claim("A2.ball", "near-miss")
def test_without_a_ball_the_constant_grows():
    # Tokens (0, s, -s): J_00 = 1/3 + 2 s^2/3, so no constant serves all of R^d.
    def bounded_by_the_unit_ball(s):
        at_most(spectral(autograd_blocks(scalar([0.0, s, -s])))[0, 0], bound_on_the_unit_ball)

    unit = scalar([0.0, 1.0, -1.0])
    bound_on_the_unit_ball = numerics.diagonal_ball_bound(*unit.arguments, rows=[0]).right[0]
    refuted(bounded_by_the_unit_ball, st.floats(2.0, 100.0))
    for s in (1.0, 10.0, 100.0):
        layer = scalar([0.0, s, -s])
        block = spectral(autograd_blocks(layer))[0, 0]
        agree(block, torch.tensor((1 + 2 * s**2) / 3))
        at_most(block, numerics.diagonal_ball_bound(*layer.arguments, rows=[0]).right[0])


# --- (f) exchangeable tokens -------------------------------------------------------------------------------------


def all_orders(layer: Layer) -> Tensor:
    """Every order of the tokens after the first, (P, T, d): averaging over them makes the others exchangeable."""
    orders = [[0, *order] for order in permutations(range(1, layer.x.shape[0]))]
    return layer.x[torch.tensor(orders)]


def check_expected_weight(layer: Layer, *, position_code: float = 0.0, off_by: int = 0) -> None:
    tokens = layer.x.shape[0]
    code = position_code * torch.arange(tokens)[:, None]
    heads = numerics.attention_heads(all_orders(layer) + code, *layer.arguments[1:], **layer.options)
    mean = heads.weights[..., 0, :].mean(0)
    expected = numerics.expected_other_weight(mean[..., 0], tokens + off_by)
    agree(mean[..., 1:], expected[..., None].expand(-1, tokens - 1))


@st.composite
def exchangeable(draw, *, max_tokens: int = 5) -> Layer:
    """Layers without mask or bias, or with a fixed one on the diagonal."""
    plain = layers(min_tokens=2, max_tokens=max_tokens, max_width=4, max_heads=2, masks=("none", "diagonal"))
    layer = draw(plain.filter(lambda layer: "bias" not in layer.options))
    if draw(st.booleans()):
        layer.options["bias"] = draw(st.floats(-2.0, 2.0)) * torch.eye(layer.x.shape[0])
    return layer


@claim("A2.exchangeable", "property")
@given(exchangeable())
def test_expected_weights_of_the_other_tokens_are_equal(layer):
    check_expected_weight(layer)


@claim("A2.exchangeable", "property")
@given(exchangeable(max_tokens=4))
def test_each_entry_has_the_rate_in_expectation(layer):
    orders = all_orders(layer)
    options = layer.options
    norms = torch.stack([spectral(autograd_blocks(replace(layer, x=x)))[0] for x in orders]).mean(0)
    heads = numerics.attention_heads(orders, *layer.arguments[1:], **options)
    expected = numerics.off_diagonal_mean_bound(heads, [0]).right.mean(0)
    scale = size_of_terms(layer)
    agree(norms[1:], norms[1:].mean().expand(len(norms) - 1), scale=scale)
    at_most(norms[1:], expected.expand(len(norms) - 1), scale=scale)


plain_orders = layers(min_tokens=3, max_tokens=4, max_width=2, masks=("none",), score_bias=False, scores=(1.0,))


@claim("A2.exchangeable", "near-miss")
@pytest.mark.parametrize("wrong", [{"position_code": 0.5}, {"off_by": 1}], ids=["position code", "T for T - 1"])
def test_expected_weight_without_its_assumption_is_refuted(wrong):
    refuted(lambda layer: check_expected_weight(layer, **wrong), plain_orders)


@claim("A2.exchangeable", "near-miss")
def test_expected_weight_with_a_bias_off_the_diagonal_is_refuted():
    biased = layers(min_tokens=3, max_tokens=4, max_width=2, masks=("none",), scores=(1.0,))
    refuted(check_expected_weight, biased.filter(lambda layer: "bias" in layer.options))


# --- the compact form --------------------------------------------------------------------------------------------


def check_compact_form(layer: Layer) -> None:
    left = spectral(autograd_blocks(layer, residual=True)).diagonal()
    check(numerics.compact_diagonal_form(layer.heads), left, layer)


@claim("A2.compact", "property")
@given(layers(min_tokens=2, max_tokens=2, square=True, score_bias=True))
def test_compact_form_holds_for_two_tokens(layer):
    check_compact_form(layer)


@claim("A2.compact", "property")
@given(st.floats(0.1, 3.0), st.floats(0.1, 3.0), st.floats(0.1, 3.0))
def test_compact_form_fails_for_three_tokens_and_a_masked_diagonal(size, slope, value):
    # (1, 1, -1) and its scalings: the form says 1, the block is 1 + W_V B Var.
    layer = scalar([size, size, -size], slope=slope, value=value, masked=True)
    form = numerics.compact_diagonal_form(layer.heads, [0])
    block = spectral(autograd_blocks(layer, residual=True))[0, :1]
    agree(form.right, torch.ones(1))
    agree(block, torch.tensor([1 + value * slope * size**2 / math.cosh(slope * size**2) ** 2]))
    assert float(form.right) < float(block)


@claim("A2.compact", "near-miss")
@pytest.mark.parametrize("masks", [("none",), ("diagonal",)])
def test_compact_form_as_a_bound_is_refuted(masks):
    options = {"max_heads": 1, "max_width": 1, "output_projection": False, "square": True}
    refuted(check_compact_form, layers(min_tokens=3, max_tokens=6, masks=masks, scores=(30.0, 3.0), **options))


def test_compact_form_at_the_counterexamples_of_the_note():
    own = scalar([1.0, 9.0, 7.0])
    form = numerics.compact_diagonal_form(own.heads, [0])
    assert float(form.left) > 1.42
    agree(form.right, 1 + own.heads.weights[0, 0, :1] * (1 + 8 + 64))
    assert float(form.right) < 1.03
    agree(form.left, spectral(autograd_blocks(own, residual=True))[0, :1])
    # Two tokens, constants of (b) and (c): 2 < 5/2.
    two = scalar([0.0, 2.0])
    agree(spectral(autograd_blocks(two, residual=True))[0, 0], torch.tensor(2.5))
    agree(numerics.query_path_bound(two.heads, [0]).right, torch.ones(1))
    # Two tokens, constants of (e).
    ball = scalar([1.0, -1.0], slope=-1.0, value=-1.0)
    weight = 1 / (1 + math.exp(2))
    block = spectral(autograd_blocks(ball, residual=True))[0, 0]
    agree(block, torch.tensor(1 - weight + 6 * weight * (1 - weight)))
    assert 1 + 4 * weight < float(block)


# --- entry by entry ----------------------------------------------------------------------------------------------


def sink_layer(tokens: int) -> Layer:
    """Token 0 at 1, the rest at -1, B = -log(T - 1)/2: every other row gives the sink half of its weight."""
    return scalar([1.0] + [-1.0] * (tokens - 1), slope=-math.log(tokens - 1) / 2)


@claim("A2.entrywise", "property")
@given(st.integers(3, 60))
def test_a_sink_keeps_its_weight_and_its_block_for_every_length(tokens):
    layer = sink_layer(tokens)
    agree(layer.heads.weights[0, 1:, 0], torch.full((tokens - 1,), 0.5))
    blocks = spectral(autograd_blocks(layer))[1:, 0]
    agree(blocks, torch.full((tokens - 1,), (1 + math.log(tokens - 1) / 2) / 2))
    at_most(off_diagonal_mean(spectral(autograd_blocks(layer))), numerics.off_diagonal_mean_bound(layer.heads).right)


@claim("A2.entrywise", "near-miss")
def test_one_constant_for_all_weights_is_refuted():
    constant = 5 * spectral(autograd_blocks(sink_layer(5)))[1, 0]

    def of_order_one_over_length(tokens):
        at_most(spectral(autograd_blocks(sink_layer(tokens)))[1, 0], constant / tokens)

    refuted(of_order_one_over_length, st.integers(6, 60))


full = {"masks": ("none",), "score_bias": False, "projection_bias": False}


def weight_cap(layer: Layer, *, gap: float) -> Tensor:
    """The bound written out; ``gap`` 2 is the statement: two tokens of the ball are at most 2 R apart."""
    reach = gap * layer.x.norm(dim=-1).max() * layer.heads.slopes.norm(dim=-1)
    return 1 / (1 + (layer.x.shape[0] - 1) * torch.exp(-reach))


def check_weights_in_ball(layer: Layer, *, gap: float) -> None:
    at_most(layer.heads.weights.amax(-1), weight_cap(layer, gap=gap))


@claim("A2.entrywise-ball", "property")
@given(layers(**full))
def test_every_weight_in_a_ball(layer):
    check_weights_in_ball(layer, gap=2.0)
    bound = numerics.largest_weight_ball_bound(*layer.arguments, num_heads=layer.options["num_heads"])
    agree(bound.left, layer.heads.weights.amax(-1))
    agree(bound.right, weight_cap(layer, gap=2.0))


@claim("A2.entrywise-ball", "property")
@given(layers(min_tokens=2, **full))
def test_every_block_in_a_ball(layer):
    norms = spectral(autograd_blocks(layer)).fill_diagonal_(0.0).amax(-1)
    options = {name: option for name, option in layer.options.items() if name in ("num_heads", "w_o")}
    check(numerics.largest_block_ball_bound(*layer.arguments, **options), norms, layer)


@claim("A2.entrywise-ball", "property")
@given(st.integers(2, 60), st.floats(0.1, 2.0))
def test_weight_bound_is_attained(tokens, radius):
    layer = scalar([radius] + [-radius] * (tokens - 1))
    bound = numerics.largest_weight_ball_bound(*layer.arguments, rows=[0])
    agree(bound.left, bound.right)


@claim("A2.entrywise-ball", "near-miss")
@pytest.mark.parametrize("gap", [1.0, 1.8])
def test_half_the_score_gap_is_refuted(gap):
    narrow = layers(min_tokens=2, max_tokens=2, max_width=1, max_heads=1, scores=(1.0,), **full)
    refuted(lambda layer: check_weights_in_ball(layer, gap=gap), narrow)


@claim("A2.entrywise-ball", "near-miss")
def test_a_mask_leaves_the_domain():
    def ignoring_the_mask(layer):
        bound = numerics.largest_weight_ball_bound(*layer.arguments, num_heads=layer.options["num_heads"])
        at_most(layer.heads.weights.amax(-1), bound.right)

    masked = layers(min_tokens=2, masks=("causal",), score_bias=False, projection_bias=False, scores=(1.0,))
    refuted(ignoring_the_mask, masked)


# --- shapes, rows, batches, bad input ----------------------------------------------------------------------------

PER_PASS = [
    numerics.value_path_bound,
    numerics.key_path_bound,
    numerics.query_path_bound,
    numerics.off_diagonal_mean_bound,
    numerics.diagonal_bound,
    lambda heads, rows=None: numerics.compact_diagonal_form(heads, rows, residual=False),
]
PER_BALL = [
    numerics.off_diagonal_mean_ball_bound,
    numerics.query_path_ball_bound,
    numerics.diagonal_ball_bound,
    numerics.largest_weight_ball_bound,
    numerics.largest_block_ball_bound,
]


@pytest.mark.parametrize("bound", PER_PASS)
def test_some_rows_are_those_rows_of_all(bound):
    layer = build_layer(tokens=6, width=3, num_heads=2, d_k=2, d_v=3, d_out=4, mask="causal", seed=1)
    whole, some = bound(layer.heads), bound(layer.heads, [4, 1])
    agree(some.left, whole.left[[4, 1]])
    agree(some.right, whole.right[[4, 1]])


@pytest.mark.parametrize("bound", PER_BALL)
def test_batches_are_independent_and_each_has_its_radius(bound):
    one, other = (build_layer(tokens=4, width=3, num_heads=2, d_k=2, d_v=3, seed=seed) for seed in (1, 2))
    weights = one.arguments[1:]
    both = bound(torch.stack([one.x, 3 * other.x]), *weights, num_heads=2, rows=[2, 0])
    for place, x in enumerate((one.x, 3 * other.x)):
        single = bound(x, *weights, num_heads=2, rows=[2, 0])
        agree(both.left[place], single.left)
        agree(both.right[place], single.right)
        wider = bound(x, *weights, num_heads=2, rows=[2, 0], radius=100.0)
        at_most(single.right, wider.right)


def test_one_row_of_a_long_sequence():
    layer = build_layer(tokens=1024, width=4, d_k=4, d_v=4, seed=0)
    for bound in (numerics.off_diagonal_mean_bound, numerics.diagonal_bound):
        both = bound(layer.heads, [0])
        assert both.left.shape == both.right.shape == (1,)
        at_most(both.left, both.right)


def test_bad_input_is_named():
    layer = build_layer(tokens=3, width=2, d_k=2, d_v=2, seed=0)
    one = build_layer(tokens=1, width=2, d_k=2, d_v=2, seed=0)
    with pytest.raises(ValueError, match=r"rows must lie in 0 \.\. 2, got 3"):
        numerics.key_path_bound(layer.heads, [3])
    with pytest.raises(ValueError, match="spread must be 'mean' or 'largest', got 'median'"):
        numerics.key_path_bound(layer.heads, spread="median")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"needs T >= 2 tokens, got 1"):
        numerics.off_diagonal_mean_bound(one.heads)
    with pytest.raises(ValueError, match="radius must be finite and at least the largest token's norm"):
        numerics.diagonal_ball_bound(*layer.arguments, radius=1e-3)
    with pytest.raises(ValueError, match="radius must be finite"):
        numerics.diagonal_ball_bound(*layer.arguments, radius=math.nan)
    with pytest.raises(TypeError, match="b_q"):
        numerics.diagonal_ball_bound(*layer.arguments, b_q=torch.zeros(2))  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="tokens must be at least 2"):
        numerics.expected_other_weight(torch.tensor(0.5), 1)
    with pytest.raises(ValueError, match="own must lie between 0 and 1"):
        numerics.expected_other_weight(torch.tensor(1.5), 3)
