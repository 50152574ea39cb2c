"""A1 evaluated: closed form = reverse mode = forward mode = central differences, on random layers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, claim, refuted
from tests.strategies import Layer, build_layer, layers


def layer_output(layer: Layer, x: Tensor, *, residual: bool = False) -> Tensor:
    """h(x) of a layer through the reference attention: the function whose Jacobian is claimed."""
    opts = layer.options
    split = opts["num_heads"]

    def project(w: Tensor, name: str) -> Tensor:
        flat = torch.nn.functional.linear(x, w, opts.get(name))
        return flat.unflatten(-1, (split, -1)).transpose(-2, -3)

    heads, _ = attention.attend(
        project(layer.w_q, "b_q"),
        project(layer.w_k, "b_k"),
        project(layer.w_v, "b_v"),
        blocked=opts.get("blocked"),
        bias=opts.get("bias"),
    )
    if "w_o" in opts:
        out = torch.nn.functional.linear(heads.transpose(-2, -3).flatten(-2), opts["w_o"])
    else:
        out = heads.sum(-3)
    return out + x if residual else out


def autograd_blocks(layer: Layer, *, residual: bool = False, transform=torch.func.jacrev) -> Tensor:
    """(T, T, d_out, d) by automatic differentiation."""
    return transform(lambda x: layer_output(layer, x, residual=residual))(layer.x).movedim(2, 1)


def closed_form(layer: Layer, **kwargs) -> Tensor:
    return numerics.jacobian_blocks(*layer.arguments, **layer.options, **kwargs)


@claim("A1.jacobian", "property")
@given(layers())
def test_closed_form_is_reverse_mode(layer):
    agree(closed_form(layer), autograd_blocks(layer))


@claim("A1.jacobian", "property")
@given(layers())
def test_closed_form_is_forward_mode(layer):
    agree(closed_form(layer), autograd_blocks(layer, transform=torch.func.jacfwd))


@claim("A1.jacobian", "property")
@given(layers(square=True))
def test_residual_adds_the_identity(layer):
    agree(closed_form(layer, residual=True), autograd_blocks(layer, residual=True))


@claim("A1.jacobian", "property")
@given(layers(max_tokens=5, max_width=3, scores=(0.0, 1.0, 5.0)))
def test_closed_form_is_the_central_difference(layer):
    step = 1e-5
    tokens, width = layer.x.shape
    slopes = []
    for place in range(tokens * width):
        shift = torch.zeros(tokens * width)
        shift[place] = step
        shift = shift.reshape(tokens, width)
        slopes.append((layer_output(layer, layer.x + shift) - layer_output(layer, layer.x - shift)) / (2 * step))
    numeric = torch.stack(slopes, -1).unflatten(-1, (tokens, width)).movedim(2, 1)
    agree(closed_form(layer), numeric, tolerance="differences")


@claim("A1.jacobian", "property")
@given(layers(square=True, min_tokens=2, max_tokens=6))
def test_paths_add_up_and_query_part_stays_on_the_diagonal(layer):
    paths = numerics.jacobian_paths(layer.heads)
    whole = closed_form(layer)
    tokens = layer.x.shape[0]
    total = paths.value + paths.key
    agree(total[~torch.eye(tokens, dtype=torch.bool)], whole[~torch.eye(tokens, dtype=torch.bool)])
    diagonal = torch.arange(tokens)
    agree(total[diagonal, diagonal] + paths.query, whole[diagonal, diagonal])


def on_the_diagonal(query: Tensor) -> Tensor:
    """(T, d_out, d) -> (T, T, d_out, d), zero off the diagonal."""
    return torch.diag_embed(query.movedim(0, -1)).movedim((-2, -1), (0, 1))


WRONG_JACOBIANS = {
    "key part's sign flipped": lambda p: p.value - p.key + on_the_diagonal(p.query),
    "query part halved": lambda p: p.value + p.key + on_the_diagonal(p.query) / 2,
    "query part left out": lambda p: p.value + p.key,
}


@claim("A1.jacobian", "near-miss")
@pytest.mark.parametrize("name", WRONG_JACOBIANS)
def test_a_wrong_jacobian_is_refuted(name):
    def check(layer):
        agree(WRONG_JACOBIANS[name](numerics.jacobian_paths(layer.heads)), autograd_blocks(layer))

    refuted(check, layers(scores=(1.0,), equal_tokens=False))


def off_diagonal_form(heads: numerics.Heads, x: Tensor, *, slope_sign: float = 1.0) -> Tensor:
    """sum_h a_ij W_O W_V (I + (x_j - xbar_i) u_i^T): equal to J_ij wherever i != j."""
    offsets = x - (heads.weights @ x).unsqueeze(-2)
    identity = torch.eye(x.shape[-1])
    inner = identity + slope_sign * torch.einsum("hijp,hir->hijpr", offsets, heads.slopes)
    return torch.einsum("hij,hov,hvp,hijpr->ijor", heads.weights, heads.w_o, heads.w_v, inner)


def check_off_diagonal(layer, slope_sign=1.0):
    off = ~torch.eye(layer.x.shape[0], dtype=torch.bool)
    scale = closed_form(layer).abs().max()
    agree(off_diagonal_form(layer.heads, layer.x, slope_sign=slope_sign)[off], autograd_blocks(layer)[off], scale=scale)


@claim("A1.forms", "property")
@given(layers(min_tokens=2))
def test_off_diagonal_form(layer):
    check_off_diagonal(layer)


@claim("A1.forms", "near-miss")
def test_off_diagonal_form_with_a_wrong_sign_is_refuted():
    refuted(lambda layer: check_off_diagonal(layer, slope_sign=-1.0), layers(min_tokens=2, scores=(1.0,)))


def log_sum_exp_hessian(layer: Layer, row: int, head: int) -> Tensor:
    """Hessian in u of log sum over seen keys of exp(u.x_j + bias_ij), by autograd, at u = u_i."""
    heads = layer.heads
    tokens = layer.x.shape[0]
    seen = torch.ones(tokens, dtype=torch.bool)
    if "blocked" in layer.options:
        seen = ~layer.options["blocked"].expand(heads.weights.shape)[head, row]
    bias = layer.options["bias"][head, row] if "bias" in layer.options else torch.zeros(tokens)
    return torch.func.hessian(lambda u: torch.logsumexp((layer.x @ u + bias)[seen], 0))(heads.slopes[head, row])


def check_query_part_is_hessian_form(layer, factor=1.0):
    """Query part = sum_h W_O W_V (hess Phi_i) B^T with B^T = c W_K^T W_Q."""
    heads = layer.heads
    count, tokens = heads.weights.shape[:2]
    hessians = torch.stack(
        [torch.stack([log_sum_exp_hessian(layer, i, h) for i in range(tokens)]) for h in range(count)]
    )
    bilinear = heads.scale * heads.w_k.transpose(-1, -2) @ heads.w_q  # B^T
    parts = torch.einsum("hov,hvp,hipr,hre->ioe", heads.w_o, heads.w_v, hessians, bilinear)
    agree(factor * parts, numerics.query_part(heads), scale=closed_form(layer).abs().max())


@claim("A1.forms", "property")
@given(layers(max_tokens=5, max_width=4, max_heads=2, scores=(0.0, 1.0, 30.0)))
def test_query_part_is_the_hessian_of_log_sum_exp(layer):
    check_query_part_is_hessian_form(layer)


@claim("A1.forms", "near-miss")
def test_half_the_hessian_is_refuted():
    refuted(
        lambda layer: check_query_part_is_hessian_form(layer, factor=0.5),
        layers(min_tokens=2, max_tokens=4, max_width=3, max_heads=2, scores=(1.0,), equal_tokens=False),
    )


def check_sum_rule(layer, with_covariance=True):
    """sum_j J_ij from autograd = r I + sum_h W_O W_V (I + Cov_i(x, x) B^T)."""
    heads = layer.heads
    tokens, width = layer.x.shape
    copies = layer.x.expand(heads.weights.shape[0], tokens, width)
    bilinear = heads.scale * heads.w_k.transpose(-1, -2) @ heads.w_q
    inner = torch.eye(width) + with_covariance * heads.covariance(copies, copies) @ bilinear.unsqueeze(1)
    expected = torch.eye(width) + torch.einsum("hov,hvp,hipr->ior", heads.w_o, heads.w_v, inner)
    blocks = autograd_blocks(layer, residual=True)
    agree(blocks.sum(1), expected, scale=blocks.abs().max())


@claim("A1.sum", "property")
@given(layers(square=True))
def test_rows_of_the_jacobian_sum_by_the_rule(layer):
    check_sum_rule(layer)


@claim("A1.sum", "near-miss")
def test_sum_rule_without_the_covariance_is_refuted():
    refuted(
        lambda layer: check_sum_rule(layer, with_covariance=False), layers(square=True, min_tokens=2, scores=(1.0,))
    )


def check_covariance_split(layer, cross=True):
    """Cov_i against the split into the row without its own key and one rank-1 term."""
    heads = layer.heads
    own = heads.weights.diagonal(dim1=-2, dim2=-1)[..., None]
    eye = torch.eye(layer.x.shape[0], dtype=torch.bool)
    masked = replace(heads, weights=heads.weights.masked_fill(eye, 0.0) / (1 - own))
    v_off = heads.values - masked.weights @ heads.values
    k_off = heads.keys - masked.weights @ heads.keys
    split = (1 - own)[..., None] * masked.covariance(heads.values, heads.keys)
    if cross:
        split = split + (own * (1 - own))[..., None] * torch.einsum("hiv,hik->hivk", v_off, k_off)
    whole = heads.covariance(heads.values, heads.keys)
    agree(split, whole, scale=heads.values.abs().max() * heads.keys.abs().max())


split_layers = layers(min_tokens=2, scores=(0.0, 1.0, 5.0), masks=("none", "diagonal"))


@claim("A1.split", "property")
@given(split_layers)
def test_covariance_splits_off_the_own_key(layer):
    check_covariance_split(layer)


@claim("A1.split", "near-miss")
def test_split_without_the_rank_one_term_is_refuted():
    refuted(lambda layer: check_covariance_split(layer, cross=False), split_layers)


@pytest.mark.parametrize("norm", ["fro", "spectral"])
@given(layer=layers(max_tokens=6, max_width=4, square=True))
def test_sensitivity_map_is_the_norm_of_the_blocks_for_every_chunk(norm, layer):
    blocks = closed_form(layer, residual=True)
    expected = torch.linalg.matrix_norm(blocks, ord=2 if norm == "spectral" else "fro")
    for chunk in (None, 1, 2, 5):
        found = numerics.sensitivity_map(*layer.arguments, **layer.options, norm=norm, residual=True, chunk=chunk)
        agree(found, expected)
    agree(numerics.sensitivity_map(*layer.arguments, **layer.options, norm=norm, residual=True, rows=[0]), expected[:1])


def test_batches_are_independent():
    one, other = (build_layer(tokens=4, width=3, d_k=2, d_v=3, seed=seed) for seed in (1, 2))
    weights = one.arguments[1:]
    both = numerics.jacobian_blocks(torch.stack([one.x, other.x]), *weights, residual=True)
    agree(both[0], numerics.jacobian_blocks(one.x, *weights, residual=True))
    agree(both[1], numerics.jacobian_blocks(other.x, *weights, residual=True))


def test_exact_spectral_norm_where_power_iteration_is_short():
    # One token: J = W_V, so the map's entry is the spectral norm of a 50 x 50 matrix.
    generator = torch.Generator().manual_seed(0)
    w_v = torch.randn(50, 50, generator=generator)
    one = torch.ones(1, 50)
    found = numerics.sensitivity_map(one, torch.zeros(1, 50), torch.zeros(1, 50), w_v, norm="spectral")
    agree(found[0, 0], torch.linalg.svdvals(w_v)[0])
    guess = torch.ones(50)
    for _ in range(5):
        guess = w_v.T @ (w_v @ guess)
        guess = guess / guess.norm()
    assert float((w_v @ guess).norm()) < float(found[0, 0])


def test_bad_input_is_named():
    x, w = torch.randn(3, 2), torch.randn(2, 2)
    nan = x.clone()
    nan[1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"x must be finite, got nan at \(1, 0\)"):
        numerics.jacobian_blocks(nan, w, w, w)
    with pytest.raises(ValueError, match="w_q must have 2 columns"):
        numerics.jacobian_blocks(x, torch.randn(2, 3), w, w)
    with pytest.raises(ValueError, match="x must have shape"):
        numerics.jacobian_blocks(torch.empty(0, 2), w, w, w)
    with pytest.raises(TypeError, match="x must have a real floating dtype"):
        numerics.jacobian_blocks(torch.ones(3, 2, dtype=torch.int64), w, w, w)
    with pytest.raises(TypeError, match=r"w_v must have the dtype of x"):
        numerics.jacobian_blocks(x, w, w, w.float())
    with pytest.raises(TypeError, match="blocked must be a boolean tensor"):
        numerics.jacobian_blocks(x, w, w, w, blocked=torch.eye(3))
    with pytest.raises(ValueError, match="blocked leaves query 0 no key"):
        numerics.jacobian_blocks(x[:1], w, w, w, blocked=torch.eye(1, dtype=torch.bool))
    with pytest.raises(ValueError, match="a residual needs outputs as wide as tokens"):
        numerics.jacobian_blocks(x, w, w, torch.randn(3, 2), residual=True)
    with pytest.raises(ValueError, match="norm must be 'fro' or 'spectral'"):
        numerics.sensitivity_map(x, w, w, w, norm="nuclear")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="the scores must be finite, got"):
        numerics.sensitivity_map(1e100 * x, 1e100 * w, 1e100 * w, w)
    with pytest.raises(ValueError, match="the values must be finite, got"):
        numerics.jacobian_blocks(1e200 * x, 0 * w, 0 * w, 1e200 * w)
    with pytest.raises(ValueError, match="w_k must hold values, got a tensor on the meta device"):
        numerics.jacobian_blocks(x, w, w.to("meta"), w)
    with pytest.raises(ValueError, match=r"rows must lie in 0 \.\. 2, got -1"):
        numerics.sensitivity_map(x, w, w, w, rows=[-1])
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        numerics.sensitivity_map(x, w, w, w, chunk=0)
    with pytest.raises(ValueError, match="rows must name at least one row"):
        numerics.sensitivity_map(x, w, w, w, rows=[])
    with pytest.raises(ValueError, match=r"rows must lie in 0 \.\. 2, got 3"):
        numerics.sensitivity_map(x, w, w, w, rows=[3])


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"w_k": torch.ones(3, 2)}, ValueError, r"w_q and w_k must have one shape, got \(2, 2\) and \(3, 2\)"),
        ({"num_heads": 3}, ValueError, "w_q must have a multiple of num_heads = 3 rows"),
        ({"w_o": torch.ones(2, 3)}, ValueError, "w_o must have 2 columns, one per row of w_v"),
        ({"w_o": torch.ones(2)}, ValueError, r"w_o must have 2 dimension\(s\)"),
        ({"w_o": torch.ones(2, 2, dtype=torch.float32)}, TypeError, "w_o must have the dtype of x"),
        ({"b_q": torch.ones(3)}, ValueError, r"b_q must have 2 entries, got \(3,\)"),
        ({"b_k": torch.ones(2, 1)}, ValueError, r"b_k must have 1 dimension\(s\)"),
        ({"b_v": torch.ones(2, dtype=torch.float32)}, TypeError, "b_v must have the dtype of x"),
        ({"bias": torch.eye(3, dtype=torch.bool)}, TypeError, "bias must have a real floating dtype"),
        ({"bias": -torch.inf * torch.ones(3, 3)}, ValueError, "bias must be finite; use blocked"),
        ({"bias": torch.ones(2, 3)}, ValueError, r"bias must broadcast to \(1, 3, 3\)"),
    ],
)
def test_a_bad_option_is_named(wrong, error, message):
    w = torch.ones(2, 2, dtype=torch.float64)
    wrong = {k: v.double() if isinstance(v, torch.Tensor) and error is ValueError else v for k, v in wrong.items()}
    layer: dict[str, Any] = {"w_q": w, "w_k": w, "w_v": w} | wrong
    with pytest.raises(error, match=message):
        numerics.jacobian_blocks(torch.ones(3, 2), **layer)


@pytest.mark.parametrize("keys", [1, 2, 12, 15, 16, 40])
def test_short_rows_of_float32_have_the_weights_and_derivatives_of_long_ones(keys):
    scores = 3 * torch.randn(5, 4, keys, dtype=torch.float32)
    blocked = torch.rand(5, 4, keys) < 0.4
    blocked[..., 0] = False
    slope = torch.randn(5, 4, keys, dtype=torch.float32)

    def both(softmax):
        def value(scores):
            return (softmax(scores) * slope).square().sum()

        first = torch.func.grad(value)
        second = torch.func.jvp(first, (scores,), (slope,))[1]
        return softmax(scores), first(scores), second

    ours = both(lambda scores: numerics.masked_softmax(scores, blocked))
    usual = both(lambda scores: torch.softmax(scores.masked_fill(blocked, -torch.inf), dim=-1))
    for found, wanted in zip(ours, usual, strict=True):
        agree(found, wanted)
    assert (ours[0][blocked] == 0).all()


def test_scores_at_the_edge_of_float32_do_not_overflow():
    scores = torch.tensor([[3e38, 3e38, -3e38]], dtype=torch.float32)
    assert numerics.masked_softmax(scores).tolist() == [[0.5, 0.5, 0.0]]
