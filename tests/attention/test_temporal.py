"""The temporal attention layer against PyTorch's, against the closed forms, and in the corners."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call, grad, jacfwd, jacrev

import numerics
from attention import (
    DiagonalDropout,
    DiagonalMask,
    DiagonalPenalty,
    DiagonalWeightDropout,
    TemporalAttention,
    WeightDropout,
)
from tests.evidence import agree

REGULARISERS = [
    None,
    DiagonalMask(),
    DiagonalPenalty(-0.1),
    DiagonalDropout(0.5),
    DiagonalDropout(0.5, shared=True),
    DiagonalWeightDropout(0.5),
]
TAKE_THE_OWN_KEY = [DiagonalMask(), DiagonalDropout(1e-6), DiagonalDropout(0.9, shared=True)]
RETURNS = [False, True, "after dropout"]


def causal(tokens):
    return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)


def builtin_twin(layer):
    """torch.nn.MultiheadAttention with the layer's weights."""
    weight = layer.query.weight
    has_bias = layer.query.bias is not None
    twin = torch.nn.MultiheadAttention(
        layer.d_model, layer.num_heads, bias=has_bias, batch_first=True, dtype=weight.dtype
    )
    projections = layer.projections()
    with torch.no_grad():
        twin.in_proj_weight.copy_(torch.cat([projections[name] for name in ("w_q", "w_k", "w_v")]))
        if has_bias:
            twin.in_proj_bias.copy_(torch.cat([projections[name] for name in ("b_q", "b_k", "b_v")]))
    twin.out_proj.load_state_dict(layer.output.state_dict())
    return twin.train(layer.training)


@st.composite
def drawn_layers(draw, **options):
    """A layer, tokens (2, T, d), a mask that leaves every row another's key where T > 1, and a bias."""
    num_heads = draw(st.integers(1, 3))
    width = num_heads * draw(st.integers(1, 3))
    tokens = draw(st.integers(options.pop("min_tokens", 1), 5))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    layer = TemporalAttention(
        width,
        num_heads,
        residual=draw(st.booleans()),
        bias=draw(st.booleans()),
        dtype=torch.float64,
        **options,
    )
    blocked = torch.rand(num_heads, tokens, tokens) < 0.5
    rows = torch.arange(tokens)
    blocked[:, rows, (rows + 1) % tokens] = False
    bias = torch.randn(num_heads, tokens, tokens, dtype=torch.float64)
    return layer, torch.randn(2, tokens, width, dtype=torch.float64), blocked, bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("with_weights", [True, False])
@given(drawn=drawn_layers())
def test_multihead_attention_takes_the_same_mask(dtype, training, with_weights, drawn):
    layer, x, blocked, bias = drawn
    layer = layer.to(dtype).train(training)
    layer.residual = False
    x, bias = x.to(dtype), bias.to(dtype)
    twin = builtin_twin(layer)
    flat = {"blocked": blocked.repeat(2, 1, 1), "bias": bias.repeat(2, 1, 1)}  # theirs: (N * H, T, T)
    for ours, theirs in (({}, None), ({"blocked": blocked}, flat["blocked"]), ({"bias": bias}, flat["bias"])):
        found = layer(x, **ours, return_weights=with_weights)
        expected, pattern = twin(x, x, x, attn_mask=theirs, need_weights=with_weights, average_attn_weights=False)
        if with_weights:
            agree(found[0], expected)
            agree(found[1], pattern)
        else:
            agree(found, expected)


@given(drawn_layers())
def test_closed_form_is_the_jacobian_of_the_layer(drawn):
    layer, x, blocked, bias = drawn
    closed = numerics.jacobian_blocks(x[0], **layer.projections(), blocked=blocked, bias=bias, residual=layer.residual)
    found = jacrev(lambda x: layer(x, blocked=blocked, bias=bias))(x[0]).movedim(2, 1)
    agree(closed, found)


@pytest.mark.parametrize("diagonal", [DiagonalMask(), DiagonalPenalty(-0.7)])
@given(data=st.data())
def test_closed_form_is_the_jacobian_under_a_regulariser(diagonal, data):
    layer, x, blocked, bias = data.draw(drawn_layers(diagonal=diagonal, min_tokens=2))
    eye = torch.eye(x.shape[1], dtype=torch.bool)
    seen = {"blocked": blocked | eye, "bias": bias}
    if isinstance(diagonal, DiagonalPenalty):
        seen = {"blocked": blocked, "bias": bias + diagonal.b * eye}
    closed = numerics.jacobian_blocks(x[0], **layer.projections(), **seen, residual=layer.residual)
    for transform in (jacrev, jacfwd):
        agree(closed, transform(lambda x: layer(x, blocked=blocked, bias=bias))(x[0]).movedim(2, 1))


@pytest.mark.parametrize("diagonal", REGULARISERS, ids=str)
def test_it_is_twice_differentiable_in_tokens_and_weights(diagonal):
    layer = TemporalAttention(4, 2, diagonal=diagonal, dropout=WeightDropout(0.1)).eval()
    x = torch.randn(3, 4)
    parameters = dict(layer.named_parameters())

    def loss(x, parameters):
        return functional_call(layer, parameters, (x,)).square().sum()

    agree(jacrev(jacrev(loss))(x, parameters), jacfwd(jacrev(loss))(x, parameters))
    by_weights = jacrev(jacrev(loss, argnums=1), argnums=1)(x, parameters)["key.weight"]["query.weight"]
    agree(by_weights, jacfwd(jacrev(loss, argnums=1), argnums=1)(x, parameters)["key.weight"]["query.weight"])


@pytest.mark.parametrize("diagonal", REGULARISERS, ids=str)
def test_gradients_in_training_are_finite(diagonal):
    layer = TemporalAttention(4, 2, diagonal=diagonal, dropout=WeightDropout(0.3))
    x = (100 * torch.randn(5, 6, 4)).requires_grad_()
    for blocked in (None, causal(6).index_put((torch.tensor(0), torch.tensor(1)), torch.tensor(False))):
        found = torch.autograd.grad(layer(x, blocked=blocked).square().sum(), [x, *layer.parameters()])
        assert all(torch.isfinite(slope).all() for slope in found)


def test_gradients_of_single_examples_by_vmap():
    layer = TemporalAttention(4, 2, diagonal=DiagonalDropout(0.2), dropout=WeightDropout(0.1))
    parameters = dict(layer.named_parameters())
    x = torch.randn(3, 5, 4)

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,)).square().sum()

    torch.vmap(grad(loss), in_dims=(None, 0), randomness="different")(parameters, x)  # in training: draws
    layer.eval()
    found = torch.vmap(grad(loss), in_dims=(None, 0))(parameters, x)["query.weight"]
    agree(found, torch.stack([grad(loss)(parameters, each)["query.weight"] for each in x]))


@pytest.mark.parametrize("diagonal", REGULARISERS, ids=str)
def test_leading_dimensions_are_independent(diagonal):
    layer = TemporalAttention(6, 3, diagonal=diagonal).eval()
    x = torch.randn(2, 3, 4, 6)
    h, weights = layer(x, return_weights=True)
    assert weights.shape == (2, 3, 3, 4, 4)
    agree(h[1, 2], layer(x[1, 2]))
    padding = torch.tensor([[False, False, False, True], [False] * 4])[:, None, None, None, :]
    agree(layer(x, blocked=padding)[0, 1], layer(x[0, 1], blocked=padding[0, 0]))


@pytest.mark.parametrize("diagonal", REGULARISERS, ids=str)
def test_returned_weights_are_those_before_dropout(diagonal):
    layer = TemporalAttention(6, 3, diagonal=diagonal, dropout=WeightDropout(0.5), residual=False)
    x = torch.randn(2, 4, 6)
    evaluated = copy.deepcopy(layer).eval()(x, return_weights=True)[1]
    torch.manual_seed(1)
    h, before = layer(x, return_weights=True)
    agree(before, evaluated)
    torch.manual_seed(1)
    agree(layer(x), h)
    torch.manual_seed(1)
    again, after = layer(x, return_weights="after dropout")
    agree(again, h)
    values = (x @ layer.value.weight.T + layer.value.bias).unflatten(-1, (3, 2)).transpose(-2, -3)
    agree(layer.output((after @ values).transpose(-2, -3).flatten(-2)), h)
    assert not torch.equal(before, after)


@pytest.mark.parametrize("return_weights", RETURNS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("diagonal", TAKE_THE_OWN_KEY, ids=str)
def test_a_row_that_may_lose_its_only_key_is_refused(diagonal, training, return_weights):
    layer = TemporalAttention(4, 2, diagonal=diagonal).train(training)
    before = torch.get_rng_state()
    with pytest.raises(ValueError, match=r"^Diagonal\w+\(.*\) leaves query 0 no key to look at"):
        layer(torch.randn(3, 1, 4, generator=torch.Generator()), return_weights=return_weights)
    with pytest.raises(ValueError, match=r"^blocked with Diagonal\w+\(.*\) leaves query 0 no key to look at"):
        layer(torch.zeros(3, 5, 4), blocked=causal(5), return_weights=return_weights)
    padding = torch.zeros(3, 1, 1, 5, dtype=torch.bool)
    padding[2, ..., [0, 1, 2, 4]] = True
    with pytest.raises(ValueError, match=r"leaves query 3 no key to look at \(index \(2, 0, 3\)"):
        layer(torch.zeros(3, 5, 4), blocked=padding, return_weights=return_weights)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("return_weights", RETURNS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("diagonal", REGULARISERS, ids=str)
def test_a_row_without_a_key_is_named(diagonal, training, return_weights):
    layer = TemporalAttention(4, 2, diagonal=diagonal).train(training)
    blocked = torch.zeros(3, 3, dtype=torch.bool)
    blocked[1] = True
    with pytest.raises(ValueError, match=r"^blocked leaves query 1 no key to look at"):
        layer(torch.randn(2, 3, 4), blocked=blocked, return_weights=return_weights)


def test_one_token_looks_at_itself_where_it_may():
    for diagonal in (None, DiagonalPenalty(-5.0), DiagonalDropout(0.0), DiagonalWeightDropout(0.5)):
        h, weights = TemporalAttention(4, 2, diagonal=diagonal)(torch.randn(1, 4), return_weights=True)
        agree(weights, torch.ones(2, 1, 1))
        assert torch.isfinite(h).all()


def test_width_and_heads_must_fit():
    with pytest.raises(ValueError, match="d_model must be a multiple of num_heads, got 6 and 4"):
        TemporalAttention(6, 4)
    for name, d_model, num_heads in (("d_model", 0, 1), ("num_heads", 4, 0), ("d_model", -4, 2)):
        with pytest.raises(ValueError, match=rf"{name} must be at least 1, got (0|-4)"):
            TemporalAttention(d_model, num_heads)
    for name, d_model, num_heads, got in (("num_heads", 4, 2.0, "float 2.0"), ("d_model", True, 1, "bool True")):
        with pytest.raises(TypeError, match=f"{name} must be an integer, got {got}"):
            TemporalAttention(d_model, num_heads)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("name", ["residual", "bias"])
def test_switches_are_true_or_false(name):
    for value in ("no", 1, None):
        with pytest.raises(TypeError, match=f"{name} must be True or False, got {value!r}"):
            TemporalAttention(4, 2, **{name: value})  # pyright: ignore[reportArgumentType]


def test_unknown_regularisers_are_type_errors():
    for diagonal in ("mask", DiagonalMask, 0.2, WeightDropout(0.1)):
        with pytest.raises(TypeError, match=r"diagonal must be DiagonalMask\(\), .* or None, got"):
            TemporalAttention(4, 2, diagonal=diagonal)  # pyright: ignore[reportArgumentType]
    for dropout in (0.1, WeightDropout, DiagonalDropout(0.1)):
        with pytest.raises(TypeError, match=r"dropout must be WeightDropout\(p\) or None, got"):
            TemporalAttention(4, 2, dropout=dropout)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("diagonal", REGULARISERS, ids=str)
def test_bad_tokens_masks_and_biases_are_named(diagonal, training):
    layer = TemporalAttention(4, 2, diagonal=diagonal).train(training)
    x = torch.randn(2, 3, 4)
    eye = torch.eye(3)
    for shape in ((2, 3, 5), (4,), (2, 0, 4), (0, 3, 4)):
        with pytest.raises(ValueError, match=r"x must have shape \(\.\.\., T, 4\) with T >= 1, got"):
            layer(torch.zeros(shape))
    with pytest.raises(TypeError, match=r"x must have the dtype of the layer's weights, torch\.float64"):
        layer(x.float())
    with pytest.raises(TypeError, match=r"x must have a real floating dtype, got torch\.int64"):
        layer(torch.ones(3, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"x must be a torch\.Tensor, got ndarray"):
        layer(x.numpy())
    with pytest.raises(ValueError, match=r"x must be finite, got nan at \(1, 2, 3\)"):
        layer(x.index_put((torch.tensor(1), torch.tensor(2), torch.tensor(3)), torch.tensor(torch.nan)))
    for mask in (eye, eye.int()):
        with pytest.raises(TypeError, match="blocked must be a boolean tensor"):
            layer(x, blocked=mask)
    with pytest.raises(ValueError, match="blocked must broadcast to"):
        layer(x, blocked=torch.zeros(4, 3, dtype=torch.bool))
    for bias in (eye.bool(), eye.float()):
        with pytest.raises(TypeError, match="bias must have"):
            layer(x, bias=bias)
    with pytest.raises(ValueError, match="bias must be finite"):
        layer(x, bias=torch.log(1 - eye))
    with pytest.raises(ValueError, match="return_weights must be False, True or 'after dropout', got 'before'"):
        layer(x, return_weights="before")


def test_weights_that_diverged_are_named():
    layer = TemporalAttention(4, 2)
    torch.nn.init.constant_(layer.key.weight, torch.nan)
    with pytest.raises(ValueError, match="k must be finite, got nan"):
        layer(torch.randn(3, 4))


def test_dtype_is_the_default_unless_given():
    assert TemporalAttention(4, 2).query.weight.dtype == torch.float64
    layer = TemporalAttention(4, 2, diagonal=DiagonalPenalty(-0.1), dropout=WeightDropout(0.5), dtype=torch.float32)
    h, weights = layer(torch.randn(3, 4, dtype=torch.float32), return_weights="after dropout")
    assert h.dtype == weights.dtype == torch.float32


def test_it_says_what_it_is():
    assert "num_heads=2, diagonal=DiagonalMask(), dropout=None, residual=True" in repr(
        TemporalAttention(4, 2, diagonal=DiagonalMask())
    )
