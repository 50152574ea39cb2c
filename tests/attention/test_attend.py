"""The reference attention: its derivatives of every order, its masks, and what it refuses."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.func import grad, hessian, jacfwd, jacrev

import numerics
from attention import attend, attention_weights
from tests.evidence import RELATIVE_TOLERANCE, agree
from tests.strategies import layers

SECOND_DERIVATIVES = {
    "forward over reverse": hessian,
    "reverse over reverse": lambda f: jacrev(jacrev(f)),
    "reverse over forward": lambda f: jacrev(jacfwd(f)),
    "forward over forward": lambda f: jacfwd(jacfwd(f)),
}


def self_attention(layer):
    """o(x) of every head of a drawn layer, through ``attend``."""

    def output(x):
        q, k, v = (
            (x @ w.T).unflatten(-1, (layer.options["num_heads"], -1)).transpose(-2, -3)
            for w in (layer.w_q, layer.w_k, layer.w_v)
        )
        return attend(q, k, v, blocked=layer.options.get("blocked"), bias=layer.options.get("bias"))[0]

    return output


plain_layers = layers(max_tokens=5, max_width=4, projection_bias=False, output_projection=False)


@given(plain_layers)
def test_reverse_mode_is_forward_mode(layer):
    f = self_attention(layer)
    agree(jacrev(f)(layer.x), jacfwd(f)(layer.x))


@pytest.mark.parametrize("mode", SECOND_DERIVATIVES)
def test_second_derivative_is_the_third_central_moment(mode):
    # One query of width 1, keys = values: o is the slope of a log-sum-exp, so o'' = sum_l a_l (v_l - o)^3.
    v = torch.tensor([[0.3], [-1.1], [2.0], [0.4]])
    query = torch.tensor([[0.7]])
    output, weights = attend(query, v, v)
    moment = (weights[0] * (v[:, 0] - output[0, 0]) ** 3).sum()
    found = SECOND_DERIVATIVES[mode](lambda q: attend(q, v, v)[0].sum())(query)
    agree(found.squeeze(), moment)


@pytest.mark.parametrize("mode", SECOND_DERIVATIVES)
@given(layer=layers(max_tokens=3, max_width=3, max_heads=2, scores=(0.0, 1.0, 5.0), projection_bias=False))
def test_second_derivative_is_the_slope_of_the_closed_form(mode, layer):
    options = {name: layer.options[name] for name in ("num_heads", "blocked", "bias") if name in layer.options}

    def closed_form(x):
        return numerics.jacobian_blocks(x, layer.w_q, layer.w_k, layer.w_v, **options)

    second = SECOND_DERIVATIVES[mode](lambda x: self_attention(layer)(x).sum(0))(layer.x)  # (T, d_v, T, d, T, d)
    step = 1e-5
    slopes = []
    for place in range(layer.x.numel()):
        shift = torch.zeros(layer.x.numel())
        shift[place] = step
        shift = shift.view_as(layer.x)
        slopes.append((closed_form(layer.x + shift) - closed_form(layer.x - shift)) / (2 * step))
    numeric = torch.stack(slopes, -1).unflatten(-1, layer.x.shape).movedim(2, 1)
    agree(second, numeric, tolerance="differences", scale=closed_form(layer.x).abs().max())


@given(plain_layers)
def test_vmap_over_a_batch_is_the_batch(layer):
    f = self_attention(layer)
    batch = torch.stack([layer.x, 2 * layer.x, -layer.x])
    agree(torch.vmap(f)(batch), torch.stack([f(x) for x in batch]))
    agree(
        torch.vmap(grad(lambda x: f(x).sum()))(batch),
        torch.stack([jacrev(lambda x: f(x).sum())(x) for x in batch]),
    )


def test_vmap_over_masks_and_biases():
    x = torch.randn(3, 4, 2)
    bias = torch.randn(3, 4, 4)
    blocked = (bias > 0.5).index_fill(-1, torch.tensor(0), False)

    def loss(x, bias, blocked):
        return attend(x, x, x, bias=bias, blocked=blocked)[0].square().sum()

    for argnums in (0, 1):
        found = torch.vmap(grad(loss, argnums))(x, bias, blocked)
        agree(found, torch.stack([grad(loss, argnums)(*each) for each in zip(x, bias, blocked, strict=True)]))


def test_checks_hold_under_transforms():
    x = torch.randn(3, 4, 2)
    blocked = torch.zeros(3, 4, 4, dtype=torch.bool)
    blocked[1, 2] = True

    def loss(x, blocked):
        return attend(x, x, x, blocked=blocked)[0].sum()

    for transform in (torch.vmap, lambda f: torch.vmap(grad(f)), lambda f: torch.vmap(hessian(f))):
        with pytest.raises(ValueError, match=r"blocked leaves query 2 no key to look at \(index \(1, 2\)"):
            transform(loss)(x, blocked)
        with pytest.raises(ValueError, match=r"q must be finite, got nan at \(0, 0, 0\)"):
            transform(loss)(x.index_fill(0, torch.tensor(0), torch.nan), blocked & False)
    with pytest.raises(ValueError, match="blocked leaves query 2 no key"):
        jacrev(loss)(x, blocked)


@st.composite
def masked_calls(draw):
    """Queries, keys, values, a mask that leaves every row a key, and a bias."""
    t_q, t_k, d_k, d_v = (draw(st.integers(1, 6)) for _ in range(4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    heads = draw(st.integers(1, 3))

    def normal(*shape):
        return torch.randn(2, heads, *shape, generator=generator, dtype=torch.float64)

    blocked = normal(t_q, t_k) > 0.3
    kept = torch.randint(t_k, (2, heads, t_q, 1), generator=generator)
    return (
        normal(t_q, d_k),
        normal(t_k, d_k),
        normal(t_k, d_v),
        blocked.scatter(-1, kept, False),
        normal(t_q, t_k),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(call=masked_calls())
def test_scaled_dot_product_attention_takes_the_opposite_mask(dtype, call):
    q, k, v, blocked, bias = (t if t.dtype == torch.bool else t.to(dtype) for t in call)
    builtin = torch.nn.functional.scaled_dot_product_attention
    agree(attend(q, k, v)[0], builtin(q, k, v))
    agree(attend(q, k, v, blocked=blocked)[0], builtin(q, k, v, attn_mask=~blocked))
    agree(attend(q, k, v, bias=bias)[0], builtin(q, k, v, attn_mask=bias))
    both = bias.masked_fill(blocked, -torch.inf)
    agree(attend(q, k, v, blocked=blocked, bias=bias)[0], builtin(q, k, v, attn_mask=both))


@given(masked_calls())
def test_weights_are_a_distribution_over_the_keys_that_are_seen(call):
    q, k, v, blocked, bias = call
    output, weights = attend(1e3 * q, 1e3 * k, v, blocked=blocked, bias=bias)
    agree(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert (weights >= 0).all()
    assert (weights[blocked] == 0).all()
    agree(output, weights @ v)


def test_single_precision_is_double_precision_rounded():
    q, k, v = torch.randn(3, 2, 5, 4)
    single = attend(q.float(), k.float(), v.float())[0]
    assert single.dtype == torch.float32
    error = (single.double() - attend(q, k, v)[0]).abs().max()
    assert float(error) <= RELATIVE_TOLERANCE[torch.float32]["exact"] * float(v.abs().max())


@pytest.mark.parametrize("radius", [1.0, 1e2, 1e4])
def test_attention_is_not_globally_lipschitz(radius):
    # x = (0, R, -R), d = 1, all weights 1: row 0 is uniform, J_00 = 1/3 + the query part Var(x) = 2 R^2/3.
    # So no constant bounds the Jacobian on all of R^T; every bound of A2 states its ball.
    x = torch.tensor([[0.0], [radius], [-radius]])
    slope = jacrev(lambda x: attend(x, x, x)[0])(x)[0, 0, 0, 0]
    agree(slope, torch.tensor((1 + 2 * radius**2) / 3))


def test_a_row_without_a_key_is_named():
    x = torch.randn(2, 3, 4)
    blocked = torch.zeros(2, 3, 3, dtype=torch.bool)
    blocked[1, 2] = True
    with pytest.raises(ValueError, match=r"blocked leaves query 2 no key to look at \(index \(1, 2\)"):
        attend(x, x, x, blocked=blocked)
    with pytest.raises(ValueError, match="blocked leaves query 0 no key"):
        attend(x[0, :1], x[0, :1], x[0, :1], blocked=torch.eye(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="blocked leaves query 0 no key"):
        attend(x, x, x, blocked=torch.ones(3, dtype=torch.bool))
    with pytest.raises(ValueError, match="every query needs a key"):
        attend(x, x[:, :0], x[:, :0])


def test_a_mask_of_a_wrong_kind_is_a_type_error():
    x = torch.randn(3, 2)
    eye = torch.eye(3)
    for mask in (eye, eye.int(), eye.tolist()):
        with pytest.raises(TypeError, match=r"blocked must be a boolean tensor \(True = may not look\)"):
            attend(x, x, x, blocked=mask)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"bias must have a real floating dtype, got torch\.bool"):
        attend(x, x, x, bias=eye.bool())
    with pytest.raises(TypeError, match="bias must have the dtype of the scores"):
        attend(x, x, x, bias=eye.float())
    with pytest.raises(TypeError, match=r"bias must have a real floating dtype, got torch\.complex128"):
        attend(x, x, x, bias=eye + 0j)
    with pytest.raises(ValueError, match="blocked must be on the device of the scores, cpu, got meta"):
        attend(x, x, x, blocked=eye.bool().to("meta"))
    with pytest.raises(ValueError, match="bias must be on the device of the scores, cpu, got meta"):
        attend(x, x, x, bias=eye.to("meta"))
    with pytest.raises(ValueError, match="bias must be finite; use blocked"):
        attend(x, x, x, bias=torch.log(1 - eye))
    with pytest.raises(ValueError, match=r"blocked must broadcast to \(3, 3\), got shape \(4, 3\)"):
        attend(x, x, x, blocked=torch.zeros(4, 3, dtype=torch.bool))


def test_bad_input_is_named():
    x = torch.randn(3, 2)
    with pytest.raises(ValueError, match=r"v must be finite, got inf at \(0, 1\)"):
        attend(x, x, x.index_put((torch.tensor(0), torch.tensor(1)), torch.tensor(torch.inf)))
    with pytest.raises(ValueError, match="the scores must be finite, got inf"):
        attend(1e200 * x.abs(), 1e200 * x.abs(), x)
    with pytest.raises(ValueError, match="the scores must be finite, got inf"):
        attend(1e153 * x.abs(), 1e153 * x.abs(), x, bias=torch.full((3, 3), torch.finfo(x.dtype).max))
    with pytest.raises(ValueError, match="q must hold values, got a tensor on the meta device"):
        attend(x.to("meta"), x, x)
    with pytest.raises(TypeError, match=r"q must be a torch\.Tensor, got list"):
        attention_weights([[1.0]], x)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="v must have the dtype of q"):
        attend(x, x, x.float())
    with pytest.raises(ValueError, match="q and k must have one width, got 2 and 1"):
        attend(x, x[:, :1], x)
    with pytest.raises(ValueError, match="k and v must have as many tokens, got 3 and 2"):
        attend(x, x, x[:2])
    with pytest.raises(ValueError, match=r"k must have shape \(\.\.\., T, width\), got \(2,\)"):
        attend(x, x[0], x)
    with pytest.raises(ValueError, match=r"q must have shape \(\.\.\., T, width\), got \(3, 0\)"):
        attend(x[:, :0], x[:, :0], x)
    with pytest.raises(ValueError, match=r"k must have batch dimensions that fit \(2,\), got \(3, 3, 2\)"):
        attend(x.expand(2, 3, 2), x.expand(3, 3, 2), x)


def test_a_sum_that_overflows_is_no_reason_to_refuse():
    large = torch.full((3, 1), 1e308)
    weights = torch.ones(3, 3) / 3
    agree(attend(torch.zeros(3, 1), large, large / 10)[1], weights)
