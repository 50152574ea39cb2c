"""B6 evaluated: token-wise layers and gates against the reference attention, the leak as their distance."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted
from tests.strategies import Layer, layers

plain = {"masks": ("none",), "max_heads": 1, "projection_bias": False, "score_bias": False}


def through_attention(
    layer: Layer, values: Tensor, *, seen: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """o (T, d_v) of the layer's only head by the reference attention, with these values."""
    heads = layer.heads
    blocked = None if seen is None else ~seen
    return attention.attend(heads.queries[0], heads.keys[0], values, blocked=blocked, bias=bias)[0]


def projected(outputs: Tensor, layer: Layer) -> Tensor:
    return outputs @ layer.options["w_o"].T if "w_o" in layer.options else outputs


def check_token_wise(layer, residual=True):
    x, w_v, w_o = layer.x, layer.w_v, layer.options.get("w_o")
    eye = torch.eye(len(x), dtype=torch.bool)
    expected = numerics.token_wise_layer(x, w_v, w_o, residual=residual)
    agree(x + projected(through_attention(layer, x @ w_v.T, seen=eye), layer), expected)
    # The same in the limit: the own score leads by 60, so e^-60 of the weight is elsewhere.
    leading = through_attention(layer, x @ w_v.T, bias=60 * eye.double())
    agree(x + projected(leading, layer), expected)


@claim("B6.token-wise", "property")
@given(layers(**plain, square=True, scores=(0.0, 1.0)))
def test_a_diagonal_layer_is_linear_and_token_wise(layer):
    check_token_wise(layer)


@claim("B6.token-wise", "near-miss")
def test_without_the_residual_it_is_refuted():
    refuted(lambda layer: check_token_wise(layer, residual=False), layers(**plain, square=True, scores=(0.0, 1.0)))


def check_gate(layer, reference=1.0, transposed=False):
    """Self and a sink of value 0 only, against the gated linear unit; ``reference`` scales x_0 in the argument."""
    heads, x = layer.heads, layer.x
    values = x @ layer.w_v.T
    values[0] = 0.0
    seen = torch.eye(len(x), dtype=torch.bool)
    seen[:, 0] = True
    outputs = through_attention(layer, values, seen=seen)[1:]
    bilinear = heads.scale * layer.w_q.T @ layer.w_k
    if transposed:
        bilinear = bilinear.T
    agree(
        numerics.gated_linear_unit(x[1:], reference * x[0], bilinear, layer.w_v),
        outputs,
        scale=values.abs().max(),
    )


gate_layers = layers(**plain, min_tokens=2, output_projection=False, scores=(0.0, 1.0, 30.0, 1000.0))


@claim("B6.gate", "property")
@given(gate_layers)
def test_self_and_sink_make_a_gated_linear_unit(layer):
    check_gate(layer)


@claim("B6.gate", "near-miss")
@pytest.mark.parametrize("wrong", [{"reference": 0.0}, {"reference": -1.0}, {"transposed": True}])
def test_another_gate_is_refuted(wrong):
    refuted(lambda layer: check_gate(layer, **wrong), gate_layers)


def check_leak(layer, gate_counts=1.0):
    """The distance from every row i >= 1 to the gated map, computed from the reference attention's outputs."""
    values = layer.heads.values.clone()
    values[..., 0, :] = 0.0
    heads = replace(layer.heads, values=values)
    options = {name: layer.options[name] for name in ("blocked", "bias") if name in layer.options}
    outputs, weights = attention.attend(heads.queries, heads.keys, values, **options)
    scores = heads.scale * heads.queries @ heads.keys.transpose(-1, -2)
    if "bias" in options:
        scores = scores + options["bias"]
    gate = torch.sigmoid(scores.diagonal(dim1=-2, dim2=-1) - scores[..., 0])[..., 1:]
    distance = (outputs[..., 1:, :] - gate.unsqueeze(-1) * values[..., 1:, :]).norm(dim=-1)

    found = numerics.soft_switch(weights, values)
    lengths = values.norm(dim=-1)
    own = weights.diagonal(dim1=-2, dim2=-1)
    leak = (1 - weights[..., 0] - own)[..., 1:]
    agree(found.gate, gate, scale=1.0)
    agree(found.leak, leak, scale=1.0)
    agree(found.distance, distance, scale=lengths.max())
    at_most(found.bound, leak * (1 + gate) * lengths.amax(-1, keepdim=True), scale=lengths.max())
    at_most(distance, found.leak * (1 + gate_counts * gate) * lengths.amax(-1, keepdim=True), scale=lengths.max())
    at_most(distance, found.bound, scale=lengths.max())


leak_layers = {"min_tokens": 2, "masks": ("none", "causal"), "scores": (0.0, 1.0, 5.0, 30.0)}


@claim("B6.leak", "property")
@given(layers(**leak_layers))
def test_the_leak_bounds_the_distance_to_the_gated_map(layer):
    check_leak(layer)


@claim("B6.leak", "near-miss")
@pytest.mark.parametrize("gate_counts", [0.0, 0.5])
def test_a_bound_that_forgets_the_gate_is_refuted(gate_counts):
    refuted(
        lambda layer: check_leak(layer, gate_counts),
        layers(min_tokens=3, max_tokens=4, max_width=1, masks=("none",), scores=(0.0, 1.0)),
        tries=2000,
    )


@claim("B6.leak", "property")
@given(layers(**plain, min_tokens=2, max_tokens=2))
def test_two_tokens_leak_nothing(layer):
    values = layer.heads.values.clone()
    values[..., 0, :] = 0.0
    found = numerics.soft_switch(layer.heads.weights, values)
    agree(torch.stack([found.leak, found.distance, found.bound]), torch.zeros(3, *found.leak.shape), scale=1.0)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_tiny_and_huge_values_keep_their_lengths(scale):
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    values = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, -4.0]])
    one, scaled = numerics.soft_switch(weights, values), numerics.soft_switch(weights, scale * values)
    agree(torch.stack([scaled.distance, scaled.bound]) / scale, torch.stack([one.distance, one.bound]))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="at least one other token are needed, got T = 1"):
        numerics.soft_switch(torch.ones(1, 1), torch.ones(1, 2))
    with pytest.raises(ValueError, match=r"values must have shape \(2, 'd_v'\), got \(2,\)"):
        numerics.soft_switch(torch.eye(2), torch.ones(2))
    with pytest.raises(ValueError, match=r"with tokens of width 2, sink, bilinear and w_v must have shapes"):
        numerics.gated_linear_unit(torch.ones(3, 2), torch.ones(3), torch.eye(2), torch.eye(2))
    with pytest.raises(ValueError, match="w_o must have 3 columns"):
        numerics.token_wise_layer(torch.ones(4, 2), torch.ones(3, 2), torch.ones(2, 2))
    with pytest.raises(ValueError, match="a residual needs outputs as wide as tokens, got 3 and 2"):
        numerics.token_wise_layer(torch.ones(4, 2), torch.ones(3, 2), residual=True)
