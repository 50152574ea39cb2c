"""A4: does the diagonal take over as T grows? Of the Jacobian yes, of the attention weights no.

    (||J_ii|| / mean_{j != i} ||J_ij||)/T  ->  ||r I + W_V hess kappa B^T|| / E_w ||W_V (I + (x - grad kappa) u_i^T)||
    a_ii >= 1/2  iff  s_ii >= log sum_{l != i} exp(s_il); with ||x_j|| <= R only while T <= 1 + exp(2 R ||u_i||)

The derivation is in ``derivations.a4_diagonal_takeover``; nothing here uses autograd.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from numerics.a1_jacobian import Heads, attention_heads, jacobian_rows
from numerics.a2_mean_sensitivity import Bound, diagonal_ball_bound, off_diagonal_mean_ball_bound
from numerics.a3_large_t_limit import TokenLaw, limit_diagonal_block, limit_off_diagonal_blocks
from numerics.inputs import check_blocked, check_floating, check_same_kind


def takeover_ratio(heads: Heads, rows: Sequence[int] | None = None, *, residual: bool = False) -> Tensor:
    """||J_ii|| / mean over j != i of ||J_ij||, spectral norms (A4.jacobian; P1's claim read of the Jacobian).

    Above 1 where the own input moves the output more than an average other input. Blocked keys count as 0.

    Args:
        heads: the pass, with T >= 2 tokens.
        rows: row indices i, R of them; all by default.
        residual: add the identity on i = j; needs d_out = d.

    Returns:
        (..., R), not negative; infinite where all other blocks are 0, NaN where all blocks are.

    Raises:
        ValueError: a single token, a row out of range, or a residual where the widths differ.
    """
    tokens = heads.weights.shape[-1]
    if tokens < 2:
        raise ValueError(f"a mean over j != i needs T >= 2 tokens, got {tokens}")
    wanted = list(range(tokens)) if rows is None else list(rows)
    for row in wanted:
        if not 0 <= row < tokens:
            raise ValueError(f"rows must lie in 0 .. {tokens - 1}, got {row}")
    norms = torch.linalg.matrix_norm(jacobian_rows(heads, wanted, residual=residual), ord=2)
    own = norms[..., range(len(wanted)), wanted]
    others = torch.ones(len(wanted), tokens, dtype=torch.bool, device=norms.device)
    others[range(len(wanted)), wanted] = False
    return own / (norms.where(others, 0.0).sum(-1) / (tokens - 1))


def takeover_limit(
    law: TokenLaw,
    nodes: Tensor,
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    probabilities: Tensor | None = None,
    residual: bool = False,
    **layer,
) -> Tensor:
    """The limit of ``takeover_ratio`` / T as T grows, x_i fixed and the other tokens iid (A4.jacobian, ours).

    Args:
        law: the law of the other tokens.
        nodes: where the mean under the law is taken, (n, d): its support, nodes of a quadrature, or a sample of it.
        x: the tokens x_i that stay, (..., R, d). w_q, w_k, w_v, layer: as in ``limit_output``.
        probabilities: of the nodes, (n,), not negative and summing to one; equal by default, as a sample needs.
        residual: add the identity to J_ii; needs d_out = d.

    Returns:
        (..., R); 0 where r I + W_V hess kappa B^T = 0, that is where the ratio grows more slowly than T.

    Raises:
        TypeError: a wrong dtype, or an option that the limit does not know.
        ValueError: shapes that do not fit, values that are not finite, or probabilities that are none.
    """
    blocks = limit_off_diagonal_blocks(law, nodes, x, w_q, w_k, w_v, **layer)
    norms = torch.linalg.matrix_norm(blocks, ord=2)
    if probabilities is None:
        mean = norms.mean(-1)
    else:
        check_floating("probabilities", probabilities, dims=1)
        check_same_kind("nodes", nodes, "probabilities", probabilities)
        total = float(probabilities.sum())
        if probabilities.shape[0] != nodes.shape[0] or bool((probabilities < 0).any()) or abs(total - 1) > 1e-6:
            raise ValueError(
                f"probabilities must be {nodes.shape[0]} numbers >= 0 that sum to one, "
                f"got {probabilities.shape[0]} that sum to {total:.6g}"
            )
        mean = norms @ probabilities
    own = torch.linalg.matrix_norm(limit_diagonal_block(law, x, w_q, w_k, w_v, residual=residual, **layer), ord=2)
    return own / mean


def mean_stretch(tau: Tensor) -> Tensor:
    """E|1 + tau Z| of a standard normal Z: erf(1/(sqrt(2)|tau|)) + |tau| sqrt(2/pi) exp(-1/(2 tau^2)) (A4, ours).

    For N(m, sigma^2) tokens in d = 1 the limit's denominator is |W_V| ``mean_stretch(sigma u_i)``.

    Args:
        tau: (...), finite.

    Returns:
        (...), between 1 (at tau = 0) and sqrt(1 + tau^2).

    Raises:
        TypeError, ValueError: ``tau`` is not a finite floating tensor.
    """
    check_floating("tau", tau)
    size = tau.abs()
    # At 0 the reciprocal is infinite and both functions take their limits, 1 and 0.
    return torch.erf(1 / (math.sqrt(2) * size)) + size * math.sqrt(2 / math.pi) * torch.exp(-1 / (2 * size**2))


def takeover_floor(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    radius: float | None = None,
    rows: Sequence[int] | None = None,
    **layer,
) -> Bound:
    """(T - 1) P/Q <= ``takeover_ratio`` with the residual, for any tokens in a ball (A4.jacobian, ours).

    P is 1 less the bound of ||J_ii|| without the residual, Q/(T - 1) the bound of the off-diagonal mean (A2.ball).
    With one head it grows like T where R^2 ||W_V|| ||B|| < 1 and a_ii vanishes. Where P <= 0 it says nothing and the
    floor is 0.

    Args:
        x: tokens (..., T, d), T >= 2. w_q, w_k, w_v: as in ``attention_heads``, with outputs as wide as tokens.
        radius: R; the largest norm of a token by default.
        rows: row indices i, R of them; all by default.
        **layer: ``num_heads``, ``w_o``, ``blocked``, ``bias`` as in ``attention_heads``; no projection bias.

    Returns:
        Both sides, (..., R): the floor and the ratio.

    Raises:
        TypeError: a wrong dtype, or a projection bias.
        ValueError: as ``attention_heads`` and ``takeover_ratio``; a token outside the ball.
    """
    ball = {"radius": radius, "rows": rows} | layer
    mean = off_diagonal_mean_ball_bound(x, w_q, w_k, w_v, **ball).right
    rest_of_diagonal = diagonal_ball_bound(x, w_q, w_k, w_v, residual=False, **ball).right
    ratio = takeover_ratio(attention_heads(x, w_q, w_k, w_v, **layer), rows, residual=True)
    kept = 1 - rest_of_diagonal
    return Bound(torch.where(kept > 0, kept / mean, 0.0), ratio)


def majority_margin(scores: Tensor, *, blocked: Tensor | None = None) -> Tensor:
    """s_ii - log sum over seen l != i of exp(s_il): the logit of a_ii (A4.weights, ours).

    A row gives its own key the majority, a_ii >= 1/2, iff its margin is >= 0. With equal scores it is -log(T - 1).

    Args:
        scores: scaled scores with any bias added, (..., T, T), T >= 2, finite.
        blocked: boolean, True = may not look, broadcasts to the scores; every row keeps its own key and another.

    Returns:
        (..., T).

    Raises:
        TypeError: a wrong dtype.
        ValueError: scores that are not square or not finite, a single token, or a row without its own key or another.
    """
    check_floating("scores", scores)
    tokens = scores.shape[-1]
    if scores.dim() < 2 or scores.shape[-2] != tokens or tokens < 2:
        raise ValueError(f"scores must have shape (..., T, T) with T >= 2, got {tuple(scores.shape)}")
    not_rest = torch.eye(tokens, dtype=torch.bool, device=scores.device)
    if blocked is not None:
        check_blocked(blocked, scores)
        if bool((blocked & not_rest).any()):
            raise ValueError("blocked must leave every row its own key")
        not_rest = not_rest | blocked
        check_blocked(not_rest, scores, name="blocked together with the own key")
    rest = scores.masked_fill(not_rest, -torch.inf).logsumexp(-1)
    return scores.diagonal(dim1=-2, dim2=-1) - rest


def longest_majority(radius: float, slopes: Tensor) -> Tensor:
    """1 + exp(2 R ||u_i||): no longer sequence in a ball has a_ii >= 1/2 (A4.weights, ours).

    Full attention, no bias on scores. Attained: x_i at R along u_i, all others opposite.

    Args:
        radius: R >= 0, at least every ||x_j||.
        slopes: u_i, (..., d).

    Returns:
        (...), at least 2, not rounded; infinite where the exponential overflows.

    Raises:
        TypeError: ``slopes`` is not a floating tensor.
        ValueError: ``radius`` is negative or not finite, or a slope is not finite.
    """
    if not 0 <= radius < math.inf:
        raise ValueError(f"radius must be finite and not negative, got {radius}")
    check_floating("slopes", slopes)
    return 1 + torch.exp(2 * radius * torch.linalg.vector_norm(slopes, dim=-1))
