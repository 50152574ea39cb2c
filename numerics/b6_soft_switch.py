"""B6: the soft switch: how far a head is from a gated token-wise map.

    ||o_i - g_i v_i|| <= l_i (1 + g_i) max_{j >= 1} ||v_j||,    g_i = a_ii/(a_ii + a_i0),  l_i = 1 - a_i0 - a_ii

Token 0 is the sink, of value 0. The derivation is in ``derivations.b6_soft_switch``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from numerics.inputs import check_floating, check_same_kind, check_weights, lengths


class SoftSwitch(NamedTuple):
    """A head against the gated map x_i -> g_i v_i, for the rows i = 1 .. T - 1; each (..., T - 1).

    Attributes:
        gate: g_i = a_ii/(a_ii + a_i0), in [0, 1]; NaN where the row looks neither at itself nor at the sink.
        leak: l_i = 1 - a_i0 - a_ii, added up from the other keys, in [0, 1]: 0 where the head is token-wise.
        distance: ||o_i - a_i0 v_0 - g_i v_i||, the sink's own share taken out.
        bound: l_i (1 + g_i) max_{j >= 1} ||v_j|| over the keys that the row gives any weight to, and i itself.
    """

    gate: Tensor
    leak: Tensor
    distance: Tensor
    bound: Tensor


def soft_switch(weights: Tensor, values: Tensor) -> SoftSwitch:
    """How far each row is from the gated token-wise map (B6.leak; ours).

    Args:
        weights: a, (..., T, T), row-stochastic, T >= 2; ``Heads.weights`` will do.
        values: v, (..., T, d_v); ``Heads.values`` will do.

    Returns:
        Gate, leak, distance and its bound.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that do not fit, T < 2, or values that are not finite.
    """
    check_weights("weights", weights)
    check_floating("values", values)
    check_same_kind("weights", weights, "values", values)
    tokens = weights.shape[-1]
    if tokens < 2:
        raise ValueError("a sink and at least one other token are needed, got T = 1")
    if values.dim() != weights.dim() or values.shape[:-1] != weights.shape[:-1] or values.shape[-1] == 0:
        raise ValueError(f"values must have shape {(*weights.shape[:-1], 'd_v')}, got {tuple(values.shape)}")
    rows, own_values = weights[..., 1:, :], values[..., 1:, :]
    self_or_sink = torch.eye(tokens, dtype=torch.bool, device=weights.device)[1:]
    own = rows.diagonal(offset=1, dim1=-2, dim2=-1)
    self_or_sink[:, 0] = True
    others = rows.masked_fill(self_or_sink, 0.0)
    gate = own / (own + rows[..., 0])
    leak = others.sum(-1)
    # l_i (mean of the other values - g_i v_i): no cancellation, and no square of a tiny leak.
    shares = others / torch.where(leak > 0, leak, 1.0).unsqueeze(-1)
    distance = leak * lengths(shares @ values - gate.unsqueeze(-1) * own_values)
    loud = lengths(values)
    heard = torch.where(others > 0, loud.unsqueeze(-2), 0.0).amax(-1)
    bound = leak * (1 + gate) * torch.maximum(heard, loud[..., 1:])
    return SoftSwitch(gate, leak, distance, bound)


def gated_linear_unit(x: Tensor, sink: Tensor, bilinear: Tensor, w_v: Tensor) -> Tensor:
    """g_i W_V x_i, g_i = sigmoid(x_i^T B (x_i - x_0)): self and a silent sink only (B6.gate; P2).

    Args:
        x: tokens, (..., d).
        sink: x_0, (d,).
        bilinear: B = c W_Q^T W_K, (d, d).
        w_v: W_V, (d_v, d).

    Returns:
        (..., d_v): token-wise, so any leading dimensions.

    Raises:
        TypeError, ValueError: shapes or dtypes that do not fit, or values that are not finite.
    """
    check_floating("x", x)
    for name, value, dims in (("sink", sink, 1), ("bilinear", bilinear, 2), ("w_v", w_v, 2)):
        check_floating(name, value, dims=dims)
        check_same_kind("x", x, name, value)
    width = x.shape[-1]
    if sink.shape != (width,) or bilinear.shape != (width, width) or w_v.shape[1] != width:
        raise ValueError(
            f"with tokens of width {width}, sink, bilinear and w_v must have shapes ({width},), {(width, width)} and "
            f"(d_v, {width}), got {tuple(sink.shape)}, {tuple(bilinear.shape)} and {tuple(w_v.shape)}"
        )
    gate = torch.sigmoid(((x @ bilinear) * (x - sink)).sum(-1, keepdim=True))
    return gate * (x @ w_v.T)


def token_wise_layer(x: Tensor, w_v: Tensor, w_o: Tensor | None = None, *, residual: bool = False) -> Tensor:
    """(r I + W_O W_V) x_i, the layer whose attention is the identity (B6.token-wise; P2).

    Args:
        x: tokens, (..., d).
        w_v: W_V, (d_v, d).
        w_o: W_O, (d_out, d_v); the identity by default.
        residual: r; needs outputs as wide as tokens.

    Returns:
        (..., d_out).

    Raises:
        TypeError, ValueError: shapes or dtypes that do not fit, or values that are not finite.
    """
    check_floating("x", x)
    out = x
    for name, weight in (("w_v", w_v), ("w_o", w_o)):
        if weight is None:
            continue
        check_floating(name, weight, dims=2)
        check_same_kind("x", x, name, weight)
        if weight.shape[1] != out.shape[-1]:
            raise ValueError(f"{name} must have {out.shape[-1]} columns, got {tuple(weight.shape)}")
        out = out @ weight.T
    if not residual:
        return out
    if out.shape[-1] != x.shape[-1]:
        raise ValueError(f"a residual needs outputs as wide as tokens, got {out.shape[-1]} and {x.shape[-1]}")
    return x + out
