"""A5 evaluated: weights and Jacobians against autograd over every Bernoulli pattern; orders in T on repeated cubes."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted
from tests.strategies import Layer, build_layer, layers

probabilities = st.floats(0.05, 0.9, allow_subnormal=False)
penalties = st.floats(-4.0, -0.05, allow_subnormal=False)
every_layer = layers(min_tokens=2, max_tokens=6, max_width=4, max_heads=3)


def moderate(
    tokens: int, heads: int, *, least: int = 2, scores: tuple[float, ...] = (0.0, 1.0, 5.0), equal_tokens: bool = True
):
    """Layers whose other weights do not underflow, with other keys in every row: the weights stand for the row."""
    return layers(
        min_tokens=least,
        max_tokens=tokens,
        max_width=4,
        max_heads=heads,
        scores=scores,
        masks=("none",),
        equal_tokens=equal_tokens,
    )


generic_layers = moderate(3, 1, scores=(1.0,), equal_tokens=False)


def own_keys(layer: Layer) -> Tensor:
    return torch.eye(layer.x.shape[0], dtype=torch.bool)


def forward(layer: Layer, x: Tensor, *, bias=None, blocked=None, factor=None) -> tuple[Tensor, Tensor]:
    """Output (T, d_out) and weights of a layer through the reference attention.

    Beside the layer's own options: ``bias`` is added to the scores, ``blocked`` takes keys away, and ``factor``
    multiplies the weights.
    """
    options = layer.options
    q, k, v = (
        torch.nn.functional.linear(x, w, options.get(name)).unflatten(-1, (options["num_heads"], -1)).transpose(0, 1)
        for w, name in ((layer.w_q, "b_q"), (layer.w_k, "b_k"), (layer.w_v, "b_v"))
    )
    biases = [one for one in (options.get("bias"), bias) if one is not None]
    masks = [one for one in (options.get("blocked"), blocked) if one is not None]
    weights = attention.attention_weights(
        q,
        k,
        bias=sum(biases[1:], biases[0]) if biases else None,
        blocked=torch.stack(torch.broadcast_tensors(*masks)).any(0) if masks else None,
    )
    used = weights if factor is None else factor * weights
    return torch.einsum("hov,hiv->io", layer.heads.w_o, used @ v), weights


def autograd(layer: Layer, **regulariser) -> Tensor:
    """(T, T, d_out, d) by reverse mode."""
    return torch.func.jacrev(lambda x: forward(layer, x, **regulariser)[0])(layer.x).movedim(2, 1)


def all_rows(heads: numerics.Heads) -> Tensor:
    return numerics.jacobian_rows(heads, range(heads.weights.shape[-1]))


def law_of_draws(count: int, p: float):
    """Every pattern of ``count`` dropped places with its probability."""
    for dropped in product((False, True), repeat=count):
        yield torch.tensor(dropped), math.prod(p if one else 1 - p for one in dropped)


# Penalty and mask


def check_penalty(layer_and_b, formula):
    layer, b = layer_and_b
    _, expected = forward(layer, layer.x, bias=b * own_keys(layer).double())
    agree(formula(layer.heads.weights, b), expected)


@claim("A5.penalty", "property")
@given(st.tuples(every_layer, penalties))
def test_penalised_weights_are_the_softmax_of_penalised_scores(case):
    check_penalty(case, numerics.penalised_weights)


@claim("A5.penalty", "property")
@given(st.tuples(moderate(6, 3), penalties))
def test_penalty_moves_the_logit(case):
    layer, b = case
    _, new = forward(layer, layer.x, bias=b * own_keys(layer).double())
    logits = [torch.logit(w.diagonal(dim1=-2, dim2=-1)) for w in (new, layer.heads.weights)]
    agree(logits[0] - logits[1], torch.full_like(logits[0], b), scale=logits[0].abs().max())


@claim("A5.penalty", "property")
@given(moderate(6, 3))
def test_mask_is_the_limit_of_the_penalty(layer):
    _, masked = forward(layer, layer.x, blocked=own_keys(layer))
    agree(numerics.masked_weights(layer.heads.weights), masked)
    agree(numerics.penalised_weights(layer.heads.weights, -700.0), masked)


WRONG_PENALTIES = {
    "not renormalised": lambda a, b: a * torch.where(torch.eye(a.shape[-1], dtype=torch.bool), math.exp(b), 1.0),
    "half the penalty": lambda a, b: numerics.penalised_weights(a, b / 2),
    "penalty before the scale": lambda a, b: numerics.penalised_weights(a, b * 0.5**0.5),
}


@claim("A5.penalty", "near-miss")
@pytest.mark.parametrize("name", WRONG_PENALTIES)
def test_a_wrong_penalty_is_refuted(name):
    refuted(lambda case: check_penalty(case, WRONG_PENALTIES[name]), st.tuples(generic_layers, penalties))


# Dropout of own scores


def check_expected_weights(layer_and_p, formula):
    layer, p = layer_and_p
    expected = torch.zeros_like(layer.heads.weights)
    for dropped, probability in law_of_draws(layer.x.shape[0], p):
        _, weights = forward(layer, layer.x, blocked=torch.diag(dropped))
        agree(weights.sum(-1), torch.ones(weights.shape[:-1]))
        expected += probability * weights
    agree(formula(layer.heads.weights, p), expected)


@claim("A5.score-dropout", "property")
@given(st.tuples(moderate(4, 2), probabilities))
def test_expected_weights_over_all_draws(case):
    check_expected_weights(case, numerics.expected_score_dropout_weights)


def check_expected_jacobian(layer_and_p, formula):
    layer, p = layer_and_p
    draws = law_of_draws(layer.x.shape[0], p)
    expected = sum(probability * autograd(layer, blocked=torch.diag(dropped)) for dropped, probability in draws)
    agree(formula(layer.heads, p), expected, scale=all_rows(layer.heads).abs().max())


@claim("A5.score-dropout", "property")
@settings(max_examples=25)
@given(st.tuples(moderate(3, 2), probabilities))
def test_expected_jacobian_over_all_draws(case):
    check_expected_jacobian(case, numerics.expected_score_dropout_jacobian)


@claim("A5.score-dropout", "near-miss")
def test_others_unchanged_in_mean_is_refuted():
    def wrong(weights, p):
        return weights * torch.where(torch.eye(weights.shape[-1], dtype=torch.bool), 1 - p, 1.0)

    refuted(lambda case: check_expected_weights(case, wrong), st.tuples(generic_layers, probabilities))


@claim("A5.score-dropout", "near-miss")
def test_jacobian_at_the_expected_weights_is_refuted():
    def wrong(heads, p):
        return all_rows(numerics.with_weights(heads, numerics.expected_score_dropout_weights(heads.weights, p)))

    refuted(lambda case: check_expected_jacobian(case, wrong), st.tuples(generic_layers, probabilities))


# Dropout after the softmax


@st.composite
def dropped_layers(draw, source=every_layer):
    """A layer, a probability, and the factors of one draw for all heads, rows and keys."""
    layer, p = draw(source), draw(probabilities)
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    kept = torch.rand(layer.heads.weights.shape, generator=generator) >= p
    return layer, p, kept.double() / (1 - p)


def check_jacobian_after_dropout(case, formula):
    layer, _, factor = case
    agree(formula(layer.heads, factor), autograd(layer, factor=factor), scale=all_rows(layer.heads).abs().max())


@claim("A5.weight-dropout", "property")
@given(dropped_layers())
def test_jacobian_after_dropout_is_autograd(case):
    check_jacobian_after_dropout(case, numerics.jacobian_after_weight_dropout)


@claim("A5.weight-dropout", "near-miss")
def test_jacobian_with_the_new_weights_in_the_key_part_is_refuted():
    def wrong(heads, factor):
        right = numerics.jacobian_after_weight_dropout(heads, factor)
        outputs = (factor * heads.weights) @ heads.values
        extra = (1 - factor) * heads.weights
        return right + torch.einsum("hij,hov,hiv,hid->ijod", extra, heads.w_o, outputs, heads.slopes)

    refuted(lambda case: check_jacobian_after_dropout(case, wrong), dropped_layers(generic_layers))


def moments_over_all_draws(heads: numerics.Heads, p: float, statistic, *, diagonal_only: bool):
    """Mean and variance of ``statistic(factor)`` over every draw of row 0 of every head; other rows keep factor 1."""
    count, tokens = heads.weights.shape[:2]
    places = 1 if diagonal_only else tokens
    law, values = [], []
    for dropped, probability in law_of_draws(count * places, p):
        factor = torch.ones_like(heads.weights)
        factor[:, 0, :places] = (~dropped).double().view(count, places) / (1 - p)
        law.append(probability)
        values.append(statistic(factor))
    mean, square = (torch.tensordot(torch.tensor(law), torch.stack(values) ** power, dims=1) for power in (1, 2))
    return mean, square - mean**2


@claim("A5.weight-dropout", "property")
@pytest.mark.parametrize("diagonal_only", [False, True])
@given(case=st.tuples(layers(max_tokens=3, max_width=3, max_heads=2), probabilities))
def test_moments_of_a_row_sum_over_all_draws(diagonal_only, case):
    heads, p = case[0].heads, case[1]
    mean, variance = moments_over_all_draws(
        heads, p, lambda f: (f * heads.weights).sum(-1)[:, 0], diagonal_only=diagonal_only
    )
    agree(mean, torch.ones_like(mean))
    found = numerics.row_sum_variance(heads.weights, p, diagonal_only=diagonal_only)[:, 0]
    agree(found, variance, scale=1 / (1 - p))
    mean_weights, _ = moments_over_all_draws(heads, p, lambda f: (f * heads.weights)[:, 0], diagonal_only=diagonal_only)
    agree(mean_weights, heads.weights[:, 0])


def check_moments_of_the_jacobian(case, diagonal_only, variance_formula):
    layer, p = case
    heads = layer.heads
    mean, variance = moments_over_all_draws(
        heads, p, lambda f: autograd(layer, factor=f)[0], diagonal_only=diagonal_only
    )
    scale = all_rows(heads).abs().max()
    agree(mean, all_rows(heads)[0], scale=scale)
    found = torch.stack([variance_formula(heads, p, 0, j) for j in range(layer.x.shape[0])])
    agree(found, variance, scale=(scale / (1 - p)) ** 2)


@claim("A5.weight-dropout", "property")
@settings(max_examples=20)
@pytest.mark.parametrize("diagonal_only", [False, True])
@given(case=st.tuples(layers(max_tokens=3, max_width=3, max_heads=2, scores=(0.0, 1.0, 5.0)), probabilities))
def test_moments_of_the_jacobian_over_all_draws(diagonal_only, case):
    def formula(heads, p, row, column):
        return numerics.jacobian_variance_after_weight_dropout(heads, p, row, column, diagonal_only=diagonal_only)

    check_moments_of_the_jacobian(case, diagonal_only, formula)


@claim("A5.weight-dropout", "near-miss")
def test_variance_without_rescaling_is_refuted():
    def wrong(heads, p, row, column):
        return numerics.jacobian_variance_after_weight_dropout(heads, p, row, column) * (1 - p) ** 2

    def check(case):
        check_moments_of_the_jacobian(case, False, wrong)

    refuted(check, st.tuples(generic_layers, probabilities), tries=60)


# Is J' the old formula with the new weights?


@claim("A5.jacobian", "property")
@given(st.tuples(every_layer, penalties))
def test_before_the_softmax_the_jacobian_has_the_penalised_weights(case):
    layer, b = case
    penalised = numerics.with_weights(layer.heads, numerics.penalised_weights(layer.heads.weights, b))
    agree(all_rows(penalised), autograd(layer, bias=b * own_keys(layer).double()))


@claim("A5.jacobian", "property")
@given(moderate(6, 3))
def test_before_the_softmax_the_jacobian_has_the_masked_weights(layer):
    masked = numerics.with_weights(layer.heads, numerics.masked_weights(layer.heads.weights))
    agree(all_rows(masked), autograd(layer, blocked=own_keys(layer)), scale=all_rows(layer.heads).abs().max())


def substituted(heads: numerics.Heads, factor: Tensor) -> Tensor:
    """A1 with a' for a, after the softmax."""
    return all_rows(numerics.with_weights(heads, factor * heads.weights))


@claim("A5.jacobian", "near-miss")
def test_after_the_softmax_the_substitution_is_refuted():
    refuted(lambda case: check_jacobian_after_dropout(case, substituted), dropped_layers(generic_layers))


def unit_layer(*tokens: float) -> Layer:
    """Tokens of width one, all weight matrices 1."""
    one = torch.ones(1, 1)
    return Layer(torch.tensor(tokens)[:, None], one, one, one, {"num_heads": 1}, {})


@claim("A5.jacobian", "property")
@pytest.mark.parametrize(
    ("tokens", "factor", "true", "by_substitution"),
    [
        ((0.0, 1.0), (0.0, 2.0), 1 / 2, 0.0),
        ((0.0, 1.0), (0.0, 1.0), 1 / 4, 1 / 8),
        ((1.0,), (4 / 3,), 4 / 3, 4 / 3 - 8 / 27),
    ],
)
def test_smallest_counterexamples_to_the_substitution(tokens, factor, true, by_substitution):
    layer = unit_layer(*tokens)
    draw = torch.tensor(factor).expand(1, len(tokens), -1)
    for found in (autograd(layer, factor=draw), numerics.jacobian_after_weight_dropout(layer.heads, draw)):
        agree(found[0, 0, 0, 0], torch.tensor(true))
    agree(substituted(layer.heads, draw)[0, 0, 0, 0], torch.tensor(by_substitution), scale=1.0)


# What the mask does to the query path


def masked_query(layer: Layer) -> Tensor:
    """The query part under the mask by autograd: with a_ii = 0 it is all of J_ii."""
    blocks = autograd(layer, blocked=own_keys(layer))
    rows = range(layer.x.shape[0])
    return blocks[rows, rows]


def check_masked_query_part(layer, combine):
    parts = numerics.masked_query_part(layer.heads)
    scale = max(float(entries.abs().max()) for entries in (*parts, all_rows(layer.heads)))
    agree(combine(layer.heads, parts), masked_query(layer), scale=scale)


@claim("A5.mask-query", "property")
@given(moderate(6, 3))
def test_masked_query_part_is_what_grew_less_what_went(layer):
    check_masked_query_part(layer, lambda _, parts: parts.grown - parts.removed)


WRONG_MASKED_QUERY_PARTS = {
    "nothing grows": lambda heads, parts: numerics.query_part(heads) - parts.removed,
    "nothing goes": lambda heads, parts: parts.grown,
}


@claim("A5.mask-query", "near-miss")
@pytest.mark.parametrize("name", WRONG_MASKED_QUERY_PARTS)
def test_a_wrong_masked_query_part_is_refuted(name):
    refuted(lambda layer: check_masked_query_part(layer, WRONG_MASKED_QUERY_PARTS[name]), generic_layers)


@claim("A5.mask-query", "near-miss")
def test_the_mask_suppresses_the_query_path_is_refuted():
    def check(layer):
        at_most(*(torch.linalg.matrix_norm(n, ord=2) for n in (masked_query(layer), numerics.query_part(layer.heads))))

    refuted(check, moderate(4, 1, least=3))


@claim("A5.mask-query", "property")
def test_counterexample_to_suppression():
    layer = unit_layer(0.0, 1.0, -1.0)
    agree(numerics.query_part(layer.heads)[0, 0, 0], torch.tensor(2 / 3))
    agree(masked_query(layer)[0, 0, 0], torch.tensor(1.0))


@claim("A5.mask-query", "property")
@given(moderate(2, 3))
def test_with_two_tokens_the_mask_silences_the_query_path(layer):
    found = masked_query(layer)
    agree(found, torch.zeros_like(found), scale=all_rows(layer.heads).abs().max())


@claim("A5.mask-query", "property")
@given(st.lists(st.floats(-2, 2, allow_subnormal=False), min_size=3, max_size=8))
def test_the_mask_suppresses_exactly_the_tokens_far_from_their_mean(tokens):
    layer = unit_layer(*tokens)
    heads = layer.heads
    own = heads.weights[0].diagonal()
    distance = (layer.x - heads.outputs[0]).square()[:, 0]
    threshold = (1 - own) * heads.covariance(heads.values, heads.values)[0, :, 0, 0]
    change = masked_query(layer)[:, 0, 0] - numerics.query_part(heads)[:, 0, 0]
    # The identity gives the size of the change, so its sign follows even where both sides nearly tie.
    agree(change * (1 - own).square() / own, threshold - distance, scale=4.0)


@claim("A5.mask-query", "property")
@pytest.mark.parametrize("reach", [0.0, 1.0, 2.0, 3.0])
def test_growth_without_bound(reach):
    x = torch.tensor([[reach, 0.0], [0.0, 1.0], [0.0, -1.0]])
    eye = torch.eye(2)
    # c = 1/sqrt(2) is undone in W_Q, so that cB = I.
    layer = Layer(x, 2**0.5 * eye, eye, eye[1:], {"num_heads": 1}, {})
    unmasked = numerics.query_part(layer.heads)[0]
    agree(masked_query(layer)[0], (1 + math.exp(reach**2) / 2) * unmasked)


# Orders in T


CUBE = torch.tensor(list(product((-1.0, 1.0), repeat=2)), dtype=torch.float64)
"""All tokens of two signs: repeated n times they have A3's law exactly, and everything is rational in 1/T."""

REPEATS = (16, 32, 64, 128, 256)


@st.composite
def cube_layers(draw):
    """One head of width two for the row token 0 among repeated cubes, scores of order one."""
    layer = build_layer(tokens=1, width=2, d_k=draw(st.integers(1, 3)), d_v=2, seed=draw(st.integers(0, 2**16)))
    size = draw(st.sampled_from([0.0, 0.3, 0.6]))
    w_q, w_k = size * layer.w_q / layer.w_q.norm(), layer.w_k / layer.w_k.norm()
    return Layer(layer.x, w_q, w_k, layer.w_v, layer.options, {})


def among_cubes(layer: Layer, repeats: int) -> Layer:
    """Token 0, then the cube repeated; tokens 1 to 4 are its four corners."""
    return Layer(torch.cat([layer.x, CUBE.repeat(repeats, 1)]), *layer.arguments[1:], layer.options, {})


def first_row(layer: Layer, *, bias: float = 0.0, masked: bool = False) -> Tensor:
    """J_0j by autograd for j = 0 (the own token) and j = 1..4 (the corners), (5, d_v, d)."""

    def output(x):
        q, k, v = x[:1] @ layer.w_q.T, x @ layer.w_k.T, x @ layer.w_v.T
        own = torch.zeros(1, len(x)).index_fill(1, torch.tensor(0), 1.0)
        return attention.attend(q, k, v, bias=bias * own, blocked=own.bool() if masked else None)[0][0]

    return torch.func.jacrev(output)(layer.x)[:, :5].movedim(1, 0)


def at_infinite_length(layer: Layer, curve) -> Tensor:
    """The value of ``curve(layer among cubes, T)`` at 1/T = 0, by polynomial extrapolation (Neville)."""
    places, values = [], []
    for repeats in REPEATS:
        longer = among_cubes(layer, repeats)
        places.append(1 / len(longer.x))
        values.append(curve(longer, len(longer.x)))
    for order in range(1, len(values)):
        for n in range(len(values) - order):
            near, far = places[n + order], places[n]
            values[n] = (far * values[n + 1] - near * values[n]) / (far - near)
    return values[0]


BEFORE_SOFTMAX = {
    "mask": (1.0, 0.0, {"masked": True}),
    "penalty": (1.0, math.exp(-0.7), {"bias": -0.7}),
    "score dropout": (0.2, 0.0, {"masked": True}),
}
"""Name -> how often it acts, the factor on the own exponential when it does, and what ``first_row`` does then."""


def check_orders(layer, share, factor, regulariser, *, powers=(1, 2), diagonal=1.0, off_diagonal=1.0):
    """T (E J'_ii - J_ii) and T^2 (E J'_ij - J_ij) at infinite T against the closed-form constants."""
    law = numerics.Rademacher(2)
    constants = diagonal * numerics.limit_diagonal_change(law, *layer.arguments, factor=factor)
    others = off_diagonal * numerics.limit_off_diagonal_change(law, CUBE, *layer.arguments, factor=factor)

    def change(longer, tokens):
        plain = first_row(longer)
        raw = share * first_row(longer, **regulariser) + (1 - share) * plain - plain
        return torch.cat([tokens ** powers[0] * raw[:1], tokens ** powers[1] * raw[1:]])

    agree(at_infinite_length(layer, change), share * torch.cat([constants, others[0]]), tolerance="differences")


@claim("A5.order", "property")
@settings(max_examples=30)
@pytest.mark.parametrize("name", BEFORE_SOFTMAX)
@given(layer=cube_layers())
def test_before_the_softmax_blocks_move_at_one_over_t_and_its_square(name, layer):
    check_orders(layer, *BEFORE_SOFTMAX[name])


WRONG_ORDERS = {
    "diagonal constant halved": {"diagonal": 0.5},
    "off-diagonal sign": {"off_diagonal": -1.0},
    "off the diagonal at 1/T": {"powers": (1, 1)},
    "on the diagonal at T^(-1/2)": {"powers": (0.5, 2)},
}


@claim("A5.order", "near-miss")
@pytest.mark.parametrize("name", WRONG_ORDERS)
def test_a_wrong_order_is_refuted(name):
    refuted(lambda layer: check_orders(layer, *BEFORE_SOFTMAX["mask"], **WRONG_ORDERS[name]), cube_layers(), tries=20)


def dropout_constants(layer: Layer, p: float) -> Tensor:
    """Limits of T Var J'_ii and T^2 Var J'_ij under dropout of all weights, entry by entry, from the law's corners."""
    law, heads = numerics.Rademacher(2), layer.heads
    density = numerics.limit_weights(law, CUBE, *layer.arguments)[0, 0]
    slope = heads.slopes[0, 0]
    values = CUBE @ layer.w_v.T
    asked = heads.scale * (CUBE - law.gradient(slope)) @ layer.w_k.T @ layer.w_q
    on = torch.einsum("l,lv,ld->vd", density.square(), values.square(), asked.square()) / len(CUBE)
    off = density[:, None, None] * (layer.w_v + values[:, :, None] * slope)
    return p / (1 - p) * torch.cat([on[None], off.square()])


def check_orders_after_softmax(case, *, powers=(1, 2), factor=1.0):
    layer, p = case

    def variance(longer, tokens):
        heads = longer.heads
        blocks = [numerics.jacobian_variance_after_weight_dropout(heads, p, 0, j) for j in range(5)]
        return torch.stack([tokens ** powers[j > 0] * block for j, block in enumerate(blocks)])

    agree(at_infinite_length(layer, variance), factor * dropout_constants(layer, p), tolerance="differences")


@claim("A5.order", "property")
@given(st.tuples(cube_layers(), probabilities))
def test_after_the_softmax_blocks_move_at_the_root_of_one_over_t_and_at_one_over_t(case):
    check_orders_after_softmax(case)


@claim("A5.order", "near-miss")
@pytest.mark.parametrize("wrong", [{"powers": (2, 2)}, {"powers": (1, 3)}, {"factor": 0.5}], ids=str)
def test_a_wrong_order_after_the_softmax_is_refuted(wrong):
    refuted(lambda case: check_orders_after_softmax(case, **wrong), st.tuples(cube_layers(), probabilities), tries=20)


# What is refused


def test_a_large_penalty_of_either_sign_has_its_limit():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.25, 0.75, 0.0], [0.5, 0.5, 0.0]])
    agree(numerics.penalised_weights(weights, 1e4), torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [0.5, 0.5, 0]]))
    # A row that sees one key keeps it, whatever the penalty on it.
    agree(numerics.penalised_weights(weights, -1e4), torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0.5, 0.5, 0]]))


def test_bad_input_is_named():
    heads = unit_layer(0.0, 1.0, -1.0).heads
    alone = torch.eye(2)
    with pytest.raises(ValueError, match=r"row 0 looks at itself alone \(index \(0,\)\): the mask leaves it no key"):
        numerics.masked_weights(alone)
    with pytest.raises(ValueError, match="b must be finite"):
        numerics.penalised_weights(alone, -math.inf)
    with pytest.raises(ValueError, match="weights must not be negative, got -1"):
        numerics.penalised_weights(-alone, -1.0)
    with pytest.raises(ValueError, match=r"weights must have shape \(\.\.\., T, T\)"):
        numerics.masked_weights(torch.ones(2, 3))
    with pytest.raises(TypeError, match="weights must have a real floating dtype"):
        numerics.row_sum_variance(torch.eye(2, dtype=torch.bool), 0.1)
    for p in (-0.1, 1.0, math.nan):
        with pytest.raises(ValueError, match=r"p must lie in \[0, 1\)"):
            numerics.expected_score_dropout_jacobian(heads, p)
        with pytest.raises(ValueError, match=r"p must lie in \[0, 1\)"):
            numerics.jacobian_variance_after_weight_dropout(heads, p, 0, 0)
    with pytest.raises(ValueError, match=r"factor must broadcast to \(1, 3, 3\), got \(2, 3\)"):
        numerics.jacobian_after_weight_dropout(heads, torch.ones(2, 3))
    with pytest.raises(ValueError, match=r"column must lie in 0 \.\. 2, got 3"):
        numerics.jacobian_variance_after_weight_dropout(heads, 0.1, 0, 3)
    with pytest.raises(ValueError, match=r"weights must have shape \(1, 3, 3\), got \(3, 3\)"):
        numerics.with_weights(heads, torch.eye(3))
    with pytest.raises(ValueError, match="factor must be finite and not negative, got -1"):
        numerics.limit_diagonal_change(numerics.Rademacher(1), torch.ones(1, 1), *[torch.ones(1, 1)] * 3, factor=-1.0)
    with pytest.raises(TypeError, match="the limit is that of full attention, blocked cannot be given"):
        numerics.limit_diagonal_change(
            numerics.Rademacher(1),
            torch.ones(2, 1),
            *[torch.ones(1, 1)] * 3,
            factor=0.0,
            blocked=torch.eye(2, dtype=torch.bool),
        )
    with pytest.raises(ValueError, match="every row of weights must sum to 1, got 2"):
        numerics.expected_score_dropout_weights(torch.ones(2, 2), 0.2)
