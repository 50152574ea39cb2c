"""The reference attention: written out, so that every derivative of every order exists."""

import torch
from torch import Tensor

from numerics import masked_softmax
from numerics.inputs import check_bias, check_floating, check_same_kind


def attention_weights(q: Tensor, k: Tensor, *, blocked: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    """The attention pattern: softmax(q k^T / sqrt(d_k) + bias).

    Args:
        q: queries (..., T_q, d_k).
        k: keys (..., T_k, d_k).
        blocked: boolean, broadcasts to the scores (..., T_q, T_k); True = may not look, the convention of
            ``torch.nn.MultiheadAttention`` and the opposite of ``scaled_dot_product_attention``.
        bias: finite, same dtype, broadcasts to the scores and is added to them after scaling.

    Returns:
        Weights (..., T_q, T_k) between 0 and 1; each row sums to one, blocked keys are exactly 0.

    Raises:
        TypeError: a wrong dtype, such as a float mask given as ``blocked`` or a boolean one as ``bias``.
        ValueError: shapes that do not fit, values or scores that are not finite, or a query with nothing left
            to look at; the message names its row.

    All checks hold under the transforms of ``torch.func`` too; under ``torch.vmap`` the place that a message
    names starts with the mapped dimension.
    """
    _check("q", q, q)
    _check("k", k, q)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must have one width, got {q.shape[-1]} and {k.shape[-1]}")
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    check_bias(bias, scores)
    return masked_softmax(scores if bias is None else scores + bias, blocked)


def attend(
    q: Tensor, k: Tensor, v: Tensor, *, blocked: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention: softmax(q k^T / sqrt(d_k) + bias) v.

    Args:
        q: queries (..., T_q, d_k).
        k: keys (..., T_k, d_k).
        v: values (..., T_k, d_v).
        blocked: as in ``attention_weights``, True = may not look.
        bias: as in ``attention_weights``.

    Returns:
        The output (..., T_q, d_v) and the weights (..., T_q, T_k), whose rows sum to one.

    Raises:
        TypeError, ValueError: as ``attention_weights``.
    """
    weights = attention_weights(q, k, blocked=blocked, bias=bias)
    _check("v", v, weights)
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must have as many tokens, got {k.shape[-2]} and {v.shape[-2]}")
    return weights @ v, weights


def _check(name: str, value: Tensor, other: Tensor) -> None:
    """A (..., T, width) tensor that can be multiplied with ``other``, batch by batch."""
    check_floating(name, value)
    check_same_kind("q", other, name, value)
    if value.dim() < 2 or value.shape[-1] == 0:
        raise ValueError(f"{name} must have shape (..., T, width), got {tuple(value.shape)}")
    try:
        torch.broadcast_shapes(value.shape[:-2], other.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"{name} must have batch dimensions that fit {tuple(other.shape[:-2])}, got {tuple(value.shape)}"
        ) from None
