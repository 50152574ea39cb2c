"""A5: what regularising the diagonal does to the weights and to the Jacobian, in closed form.

Before the softmax everything is one factor theta on the own exponential: exp(b) for a penalty b, 0 for the mask, 0 or 1
for dropout of own scores. Rows still sum to one, and the Jacobian is A1 with the new weights (``with_weights``). After
the softmax weights are multiplied by factors f, rows need not sum to one, and the Jacobian is another
(``jacobian_after_weight_dropout``).

The derivation is in ``derivations.a5_regularisers``; nothing here uses autograd, and nothing is random.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from numerics.a1_jacobian import Heads, attention_heads, jacobian_rows
from numerics.a3_large_t_limit import TokenLaw, limit_weights
from numerics.inputs import check_floating, check_same_kind, check_weights


class MaskedQueryPart(NamedTuple):
    """The query part of a row whose own key is masked, as what grew less what went (A5, ours).

    ``grown - removed`` is the masked query part; both have shape (..., T, d_out, d).

    Attributes:
        grown: sum_h of the old query part over 1 - a_ii.
        removed: sum_h W_O c a_ii/(1 - a_ii)^2 (v_i - o_i)(k_i - kbar_i)^T W_Q, of rank one for each head.
    """

    grown: Tensor
    removed: Tensor


def penalised_weights(weights: Tensor, b: float) -> Tensor:
    """The weights after b is added to each scaled diagonal score: logit(a'_ii) = logit(a_ii) + b (P1).

    Args:
        weights: a, (..., T, T), nonnegative, rows sum to one.
        b: finite, any sign; P1's are below 0.

    Returns:
        a', (..., T, T), rows sum to one; a'_ij = a_ij (1 - a'_ii)/(1 - a_ii) for j != i.

    Raises:
        TypeError: weights of a wrong dtype.
        ValueError: weights that are not square, not finite or negative, rows of another sum; b not finite.
    """
    if not math.isfinite(b):
        raise ValueError(f"b must be finite (masked_weights is the limit -inf), got {b}")
    check_weights("weights", weights)
    # Whichever of the two grows is kept, so that no exponential overflows.
    return _reweighted(weights, own=math.exp(min(b, 0.0)), others=math.exp(min(-b, 0.0)))


def masked_weights(weights: Tensor) -> Tensor:
    """The weights with the diagonal masked: a_ij/(1 - a_ii) for j != i, and 0 on the diagonal (P1).

    Args:
        weights: a, (..., T, T), nonnegative, rows sum to one.

    Returns:
        a', (..., T, T), rows sum to one.

    Raises:
        TypeError: weights of a wrong dtype.
        ValueError: weights that are not square, not finite or negative, rows of another sum, or a row that looks at
            itself alone. Such a row may have other keys whose weights have underflowed: then mask the scores instead.
    """
    check_weights("weights", weights)
    _check_rest(_rest(weights))
    return _reweighted(weights, own=0.0, others=1.0)


def expected_score_dropout_weights(weights: Tensor, p: float) -> Tensor:
    """E a' when each own score is dropped to -inf with probability p: (1-p) a + p a^mask (P1).

    Args:
        weights: a, (..., T, T), nonnegative, rows sum to one.
        p: in [0, 1).

    Returns:
        (..., T, T), rows sum to one; the diagonal is (1-p) a_ii.

    Raises:
        TypeError, ValueError: as ``masked_weights``; p outside [0, 1).
    """
    _check_probability(p)
    masked = masked_weights(weights)
    return (1 - p) * weights + p * masked


def with_weights(heads: Heads, weights: Tensor) -> Heads:
    """The same pass with other weights made before the softmax: every closed form of A1 then holds for it (ours).

    Not for weights multiplied after the softmax: see ``jacobian_after_weight_dropout``.

    Args:
        heads: the pass.
        weights: a', (..., H, T, T), rows sum to one.

    Raises:
        TypeError, ValueError: weights of another shape or dtype, not finite or negative.
    """
    _check_weights(weights)
    if weights.shape != heads.weights.shape:
        raise ValueError(f"weights must have shape {tuple(heads.weights.shape)}, got {tuple(weights.shape)}")
    check_same_kind("the pass", heads.weights, "weights", weights)
    return replace(heads, weights=weights, outputs=weights @ heads.values)


def expected_score_dropout_jacobian(heads: Heads, p: float, *, residual: bool = False) -> Tensor:
    """E J' under dropout of own scores: (1-p) J + p J^mask (P1's regulariser, our statement).

    Args:
        heads: the pass without dropout.
        p: in [0, 1).
        residual: add the identity on i = j; needs d_out = d.

    Returns:
        (..., T, T, d_out, d).

    Raises:
        ValueError: p outside [0, 1), a row that looks at itself alone, or a residual between different widths.
    """
    _check_probability(p)
    rows = range(heads.weights.shape[-1])
    masked = with_weights(heads, masked_weights(heads.weights))
    kept, dropped = (jacobian_rows(one, rows, residual=residual) for one in (heads, masked))
    return (1 - p) * kept + p * dropped


def row_sum_variance(weights: Tensor, p: float, *, diagonal_only: bool = False) -> Tensor:
    """The variance of sum_j a'_ij under dropout after the softmax: p/(1-p) sum_j a_ij^2, or p/(1-p) a_ii^2 (ours).

    Args:
        weights: a, (..., T, T), nonnegative.
        p: in [0, 1); kept weights are multiplied by 1/(1-p).
        diagonal_only: only diagonal weights are dropped.

    Returns:
        (..., T), one variance a row; the mean of the sum is one.

    Raises:
        TypeError, ValueError: weights or p that do not fit.
    """
    _check_weights(weights)
    squares = weights.square()
    return _spread(p) * (squares.diagonal(dim1=-2, dim2=-1) if diagonal_only else squares.sum(-1))


def jacobian_after_weight_dropout(heads: Heads, factor: Tensor) -> Tensor:
    """J' for one draw of dropout after the softmax, a'_ij = f_ij a_ij, o'_i = sum_l a'_il v_l (ours).

        J'_ij = sum_h W_O [ a'_ij W_V + (a'_ij v_j - a_ij o'_i) u_i^T + d_ij c sum_l (a'_il v_l - a_il o'_i) k_l^T W_Q ]

    It is not A1 with a' for a: the softmax underneath moves with its old weights. The residual, which no regulariser
    touches, is left out.

    Args:
        heads: the pass without dropout.
        factor: f, broadcasts to the weights (..., H, T, T), finite; 0 or 1/(1-p) in dropout.

    Returns:
        (..., T, T, d_out, d).

    Raises:
        TypeError: a wrong dtype.
        ValueError: a factor that does not broadcast to the weights or is not finite.
    """
    check_floating("factor", factor)
    check_same_kind("the pass", heads.weights, "factor", factor)
    if not _fits(factor.shape, heads.weights.shape):
        raise ValueError(f"factor must broadcast to {tuple(heads.weights.shape)}, got {tuple(factor.shape)}")
    weights = factor * heads.weights
    outputs = weights @ heads.values
    w_o, w_v = heads.w_o, heads.w_v
    pulled = torch.einsum("...hij,hov,...hjv->...hijo", weights, w_o, heads.values)
    pulled = pulled - torch.einsum("...hij,hov,...hiv->...hijo", heads.weights, w_o, outputs)
    blocks = torch.einsum("...hij,hov,hvd->...ijod", weights, w_o, w_v)
    blocks = blocks + torch.einsum("...hijo,...hid->...ijod", pulled, heads.slopes)
    # sum_l a_il o'_i k_l = sum_l a'_il v_l kbar_i: centred keys lose fewer digits.
    asked = torch.einsum("...hil,...hlv,...hilg->...hivg", weights, heads.values, _centred_keys(heads))
    query = heads.scale * torch.einsum("hov,...hivg,hgd->...iod", w_o, asked, heads.w_q)
    blocks.diagonal(dim1=-4, dim2=-3).add_(query.movedim(-3, -1))
    return blocks


def jacobian_variance_after_weight_dropout(
    heads: Heads, p: float, row: int, column: int, *, diagonal_only: bool = False
) -> Tensor:
    """The variance of every entry of J'_ij under dropout after the softmax, independent in every head (ours).

    J' is linear in the factors, J'_ij = sum_l f_il a_il C^l_ij, so it is p/(1-p) sum_l (a_il C^l_ij)^2, where
    C^l_ij = d_lj W_V + (d_lj - a_ij) v_l u_i^T + d_ij c v_l (k_l - kbar_i)^T W_Q; the mean of J' is J.

    Args:
        heads: the pass without dropout.
        p: in [0, 1).
        row: i. column: j.
        diagonal_only: only diagonal weights are dropped: of the sum, l = i alone.

    Returns:
        (..., d_out, d).

    Raises:
        ValueError: p outside [0, 1), or an index out of range.
    """
    tokens = heads.weights.shape[-1]
    for name, place in (("row", row), ("column", column)):
        if not 0 <= place < tokens:
            raise ValueError(f"{name} must lie in 0 .. {tokens - 1}, got {place}")
    own = heads.weights[..., row, :]  # (..., H, T)
    moved = -own[..., column, None].expand_as(own).clone()
    moved[..., column] += 1
    direction = torch.einsum("...hl,...hd->...hld", moved, heads.slopes[..., row, :])
    if row == column:
        keys = heads.keys - (own.unsqueeze(-2) @ heads.keys)
        direction = direction + heads.scale * keys @ heads.w_q
    per_key = torch.einsum("hov,...hlv,...hld->...hlod", heads.w_o, heads.values, direction)
    per_key[..., column, :, :] += heads.w_o @ heads.w_v
    squares = (own[..., None, None] * per_key).square()
    chosen = squares[..., row, :, :] if diagonal_only else squares.sum(-3)
    return _spread(p) * chosen.sum(-3)


def masked_query_part(heads: Heads) -> MaskedQueryPart:
    """The query part after the diagonal is masked, in terms of the pass without the mask (P1's mask, our statement).

    Cov'_i = Cov_i/(1 - a_ii) - a_ii/(1 - a_ii)^2 (v_i - o_i)(k_i - kbar_i)^T: the mask takes one term of rank one away
    and enlarges the rest. A row whose token sits on its mean only grows.

    Args:
        heads: the pass without the mask.

    Returns:
        What grew and what went; each (..., T, d_out, d).

    Raises:
        ValueError: a row that looks at itself alone.
    """
    own = heads.weights.diagonal(dim1=-2, dim2=-1)
    rest = _rest(heads.weights)
    _check_rest(rest)
    values = heads.values - heads.outputs
    keys = heads.keys - heads.weights @ heads.keys
    covariance = heads.covariance(heads.values, heads.keys) / rest[..., None, None]
    jump = torch.einsum("...hi,...hiv,...hig->...hivg", own / rest.square(), values, keys)
    grown, removed = (
        heads.scale * torch.einsum("hov,...hivg,hgd->...iod", heads.w_o, part, heads.w_q) for part in (covariance, jump)
    )
    return MaskedQueryPart(grown, removed)


def limit_diagonal_change(
    law: TokenLaw, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, *, factor: float, **layer
) -> Tensor:
    """The limit of T (J'_ii - J_ii) as T grows under A3, for a factor on the own exponential (A5, ours).

    (theta - 1) sum_h w_ii W_O W_V [I + y u_i^T + (y y^T - hess kappa(u_i)) B^T], with y = x_i - grad kappa(u_i).

    Args:
        law: the law of the other tokens.
        x: the tokens x_i that stay, (..., R, d).
        w_q: (d_k, d). w_k: (d_k, d). w_v: (d_v, d).
        factor: theta >= 0: 0 for the mask, exp(b) for a penalty. Dropout of own scores has p times the mask's in mean.
        **layer: ``num_heads``, ``w_o``, ``b_q``, ``b_k``, ``b_v`` as in ``attention_heads``.

    Returns:
        (..., R, d_out, d).

    Raises:
        TypeError, ValueError: as ``limit_weights``; a factor that is negative or not finite.
    """
    _check_factor(factor)
    own = _own_limit_weights(law, x, w_q, w_k, w_v, layer)
    heads = attention_heads(x, w_q, w_k, w_v, **layer)
    off = x.unsqueeze(-3) - law.gradient(heads.slopes)
    spread = off.unsqueeze(-1) * off.unsqueeze(-2) - law.hessian(heads.slopes)
    bilinear = heads.scale * heads.w_k.transpose(-1, -2) @ heads.w_q
    inner = _identity(x) + off.unsqueeze(-1) * heads.slopes.unsqueeze(-2) + spread @ bilinear.unsqueeze(-3)
    return (factor - 1) * torch.einsum("...hi,hov,hvp,...hipd->...iod", own, heads.w_o, heads.w_v, inner)


def limit_off_diagonal_change(
    law: TokenLaw, others: Tensor, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, *, factor: float, **layer
) -> Tensor:
    """The limit of T^2 (J'_ij - J_ij), j != i, as T grows under A3, for a factor on the own exponential (A5, ours).

    (1 - theta) sum_h w_ii w_ij W_O W_V [I + (x_j + x_i - 2 grad kappa(u_i)) u_i^T].

    Args:
        law: the law of the other tokens.
        others: the tokens x_j, (..., n, d).
        x, w_q, w_k, w_v, factor, layer: as in ``limit_diagonal_change``.

    Returns:
        (..., R, n, d_out, d): R tokens x_i, n tokens x_j.

    Raises:
        TypeError, ValueError: as ``limit_weights``; a factor that is negative or not finite.
    """
    _check_factor(factor)
    own = _own_limit_weights(law, x, w_q, w_k, w_v, layer)
    other = limit_weights(law, others, x, w_q, w_k, w_v, **layer)
    heads = attention_heads(x, w_q, w_k, w_v, **layer)
    own_off = x.unsqueeze(-3) - 2 * law.gradient(heads.slopes)
    off = others[..., None, None, :, :] + own_off.unsqueeze(-2)
    inner = _identity(x) + torch.einsum("...hijp,...hid->...hijpd", off, heads.slopes)
    change = torch.einsum("...hi,...hij,hov,hvp,...hijpd->...ijod", own, other, heads.w_o, heads.w_v, inner)
    return (1 - factor) * change


def _own_limit_weights(law: TokenLaw, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, layer: dict) -> Tensor:
    """w_ii = exp(u_i.x_i - kappa(u_i)), (..., H, R)."""
    return limit_weights(law, x, x, w_q, w_k, w_v, **layer).diagonal(dim1=-2, dim2=-1)


def _identity(x: Tensor) -> Tensor:
    return torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def _centred_keys(heads: Heads) -> Tensor:
    """k_l - kbar_i, (..., H, T, T, d_k): row i, key l."""
    return heads.keys.unsqueeze(-3) - (heads.weights @ heads.keys).unsqueeze(-2)


def _reweighted(weights: Tensor, *, own: float, others: float) -> Tensor:
    """The weights times one factor on the diagonal and another off it, over the new total."""
    raised = weights * others
    raised.diagonal(dim1=-2, dim2=-1).copy_(weights.diagonal(dim1=-2, dim2=-1) * own)
    # The sum of the parts: 1 + (theta - 1) a_ii would cancel where a_ii is near one.
    total = raised.diagonal(dim1=-2, dim2=-1) + _rest(raised)
    # Nothing left: the row's whole weight is on one side, and a factor moves none of it to the other.
    return torch.where((total > 0).unsqueeze(-1), raised / total.unsqueeze(-1), weights)


def _rest(weights: Tensor) -> Tensor:
    """1 - a_ii as the sum of the other weights, (..., T)."""
    own = torch.eye(weights.shape[-1], dtype=torch.bool, device=weights.device)
    return weights.masked_fill(own, 0.0).sum(-1)


def _check_rest(rest: Tensor) -> None:
    if bool((rest == 0).any()):
        place = tuple((rest == 0).nonzero()[0].tolist())
        raise ValueError(f"row {place[-1]} looks at itself alone (index {place}): the mask leaves it no key")


def _check_weights(weights: Tensor) -> None:
    check_floating("weights", weights)
    if weights.dim() < 2 or weights.shape[-1] != weights.shape[-2] or 0 in weights.shape:
        raise ValueError(f"weights must have shape (..., T, T) with T >= 1, got {tuple(weights.shape)}")
    if bool((weights < 0).any()):
        raise ValueError(f"weights must not be negative, got {float(weights.min())}")


def _fits(shape: torch.Size, target: torch.Size) -> bool:
    try:
        return torch.broadcast_shapes(shape, target) == target
    except RuntimeError:
        return False


def _check_probability(p: float) -> None:
    if not 0 <= p < 1:
        raise ValueError(f"p must lie in [0, 1), got {p}")


def _check_factor(factor: float) -> None:
    if not 0 <= factor < math.inf:
        raise ValueError(f"factor must be finite and not negative, got {factor}")


def _spread(p: float) -> float:
    """The variance of one dropout factor, p/(1-p)."""
    _check_probability(p)
    return p / (1 - p)
