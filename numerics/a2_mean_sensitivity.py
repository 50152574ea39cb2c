"""A2: how large the Jacobian's blocks can be, on average over keys and on the diagonal. Both sides of every bound.

The derivations are in ``derivations.a2_mean_sensitivity``. They are for one head; here heads are added, each with its
output projection folded into its values: v -> W_O v and W_V -> W_O W_V, the identity where no W_O was given. By the
triangle inequality every bound for one head becomes "<=" with the sum over heads on the right. All norms are spectral
and exact (singular values).

``rows`` asks for some rows i only: beyond the forward pass, R rows then take memory R T (d_out d + d_k).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from numerics.a1_jacobian import Heads, attention_heads, jacobian_paths, jacobian_rows, query_part

Spread = Literal["mean", "largest"]


class Bound(NamedTuple):
    """Both sides of ``left <= right``, each of shape (..., R): one number for each of the R rows i."""

    left: Tensor
    right: Tensor


class _Row(NamedTuple):
    """What the bounds need of each head in each row; shapes (..., H, R) but where said otherwise."""

    own: Tensor
    """a_ii."""
    others: Tensor
    """1 - a_ii, added up from the other keys: the difference loses its digits where a_ii is nearly 1."""
    sigma: Tensor
    """sigma_i(W_O v)."""
    farthest: Tensor
    """max over seen j of ||W_O (v_j - o_i)||."""
    slope: Tensor
    """||u_i||."""
    w_v: Tensor
    """||W_O W_V||, (H, 1)."""


def value_path_bound(heads: Heads, rows: Sequence[int] | None = None) -> Bound:
    """(1/T) sum_j ||value_ij|| <= sum_h ||W_O W_V||/T, with equality for one head (A2.value; P1).

    Args:
        heads: the pass, T tokens.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., R).

    Raises:
        ValueError: a row out of range.
    """
    rows = _checked_rows(heads, rows)
    row = _row(heads, rows)
    left = _spectral(jacobian_paths(heads, rows).value).mean(-1)
    right = row.w_v.expand_as(row.own).sum(-2) / heads.weights.shape[-1]
    return Bound(left, right)


def key_path_bound(heads: Heads, rows: Sequence[int] | None = None, *, spread: Spread = "mean") -> Bound:
    """(1/T) sum_j ||key_ij|| <= sum_h sigma_i(W_O v) ||u_i||/T (A2.key; P1, the constant is ours).

    Args:
        heads: the pass, T tokens.
        rows: row indices i, R of them; all by default.
        spread: "mean" for sigma_i, the root mean square distance from o_i under the row's weights; "largest" for the
            largest distance of a seen value, which is never smaller.

    Returns:
        Both sides, (..., R). For one head they are equal where u_i = 0 or all keys of positive weight are equally far.

    Raises:
        ValueError: a row out of range, or an unknown ``spread``.
    """
    if spread not in ("mean", "largest"):
        raise ValueError(f"spread must be 'mean' or 'largest', got {spread!r}")
    rows = _checked_rows(heads, rows)
    row = _row(heads, rows)
    left = _spectral(jacobian_paths(heads, rows).key).mean(-1)
    distance = row.sigma if spread == "mean" else row.farthest
    return Bound(left, (distance * row.slope).sum(-2) / heads.weights.shape[-1])


def query_path_bound(heads: Heads, rows: Sequence[int] | None = None, *, sharp: bool = True) -> Bound:
    """||query_ii|| <= sum_h c sqrt(||Cov_i(W_O v, W_O v)|| ||Cov_i(k, k)||) ||W_Q|| (A2.query; P1, constant ours).

    Args:
        heads: the pass.
        rows: row indices i, R of them; all by default.
        sharp: False puts sigma_i(W_O v) sigma_i(k) in place of the root; never smaller.

    Returns:
        Both sides, (..., R).

    Raises:
        ValueError: a row out of range.
    """
    rows = _checked_rows(heads, rows)
    return Bound(_spectral(query_part(heads, rows)), _query_right(heads, rows, sharp=sharp))


def off_diagonal_mean_bound(heads: Heads, rows: Sequence[int] | None = None) -> Bound:
    """Mean over j != i of ||J_ij|| <= sum_h [(1 - a_ii) ||W_O W_V|| + sqrt(1 - a_ii) sigma_i ||u_i||]/(T - 1).

    A2.mean, with sigma_i = sigma_i(W_O v). A blocked key counts as a block of norm 0. A residual changes neither
    side. Source: P1, the constant is ours.

    Args:
        heads: the pass, T >= 2 tokens.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., R).

    Raises:
        ValueError: a row out of range, or T < 2.
    """
    rows = _checked_rows(heads, rows, least_tokens=2)
    row = _row(heads, rows)
    right = (row.others * row.w_v + row.others.sqrt() * row.sigma * row.slope).sum(-2)
    others = heads.weights.shape[-1] - 1
    return Bound(_off_diagonal_norms(heads, rows).sum(-1) / others, right / others)


def diagonal_bound(heads: Heads, rows: Sequence[int] | None = None, *, residual: bool = False) -> Bound:
    """||J_ii|| <= r + sum_h [a_ii ||W_O W_V|| + sqrt(a_ii (1 - a_ii)) sigma_i ||u_i|| + query bound].

    With sigma_i = sigma_i(W_O v); the step before A2.ball's bound of the diagonal, and ours. Needs no ball.

    Args:
        heads: the pass.
        rows: row indices i, R of them; all by default.
        residual: r = 1 instead of 0; needs d_out = d.

    Returns:
        Both sides, (..., R). The last term is the sharp one of ``query_path_bound``.

    Raises:
        ValueError: a row out of range, or a residual between different widths.
    """
    rows = _checked_rows(heads, rows)
    row = _row(heads, rows)
    paths = row.own * row.w_v + (row.own * row.others).sqrt() * row.sigma * row.slope
    right = float(residual) + paths.sum(-2) + _query_right(heads, rows, sharp=True)
    return Bound(_diagonal_norm(heads, rows, residual), right)


def off_diagonal_mean_ball_bound(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    radius: float | None = None,
    rows: Sequence[int] | None = None,
    num_heads: int = 1,
    w_o: Tensor | None = None,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
) -> Bound:
    """Mean over j != i of ||J_ij|| <= sum_h ||W_O W_V|| (1 - a_ii + sqrt(1 - a_ii) R^2 ||B||)/(T - 1) (A2.ball; ours).

    Domain: ||x_j|| <= R for every token, and no projection bias, which is why none can be given. There is no such
    constant for all of R^d.

    Args:
        x: tokens (..., T, d), T >= 2. w_q, w_k, w_v, num_heads, w_o, blocked, bias: as in ``attention_heads``.
        radius: R; the largest norm of a token by default.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., R).

    Raises:
        TypeError: a wrong dtype.
        ValueError: as ``attention_heads``; a token outside the ball, a row out of range, or T < 2.
    """
    heads = attention_heads(x, w_q, w_k, w_v, num_heads=num_heads, w_o=w_o, blocked=blocked, bias=bias)
    rows = _checked_rows(heads, rows, least_tokens=2)
    row = _row(heads, rows)
    curvature = _squared_radius(x, radius) * _bilinear_norm(heads)
    right = (row.w_v * (row.others + row.others.sqrt() * curvature)).sum(-2)
    others = x.shape[-2] - 1
    return Bound(_off_diagonal_norms(heads, rows).sum(-1) / others, right / others)


def query_path_ball_bound(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    radius: float | None = None,
    rows: Sequence[int] | None = None,
    **layer,
) -> Bound:
    """||query_ii|| <= R^2 sum_h ||W_O W_V|| ||B|| where ||x_j|| <= R (A2.ball; ours).

    Args:
        x: tokens (..., T, d). w_q, w_k, w_v, layer: as in ``attention_heads``; biases of any kind change nothing here.
        radius: R; the largest norm of a token by default.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., R).

    Raises:
        TypeError: a wrong dtype.
        ValueError: as ``attention_heads``; a token outside the ball, or a row out of range.
    """
    heads = attention_heads(x, w_q, w_k, w_v, **layer)
    rows = _checked_rows(heads, rows)
    row = _row(heads, rows)
    curvature = _squared_radius(x, radius) * _bilinear_norm(heads)
    return Bound(_spectral(query_part(heads, rows)), (row.w_v * curvature).expand_as(row.own).sum(-2))


def diagonal_ball_bound(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    radius: float | None = None,
    residual: bool = False,
    rows: Sequence[int] | None = None,
    num_heads: int = 1,
    w_o: Tensor | None = None,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
) -> Bound:
    """||J_ii|| <= r + sum_h ||W_O W_V|| (a_ii + (2 a_ii (1 - a_ii) + 1) R^2 ||B||) (A2.ball; ours).

    Domain: ||x_j|| <= R for every token, and no projection bias, which is why none can be given.

    Args:
        x: tokens (..., T, d). w_q, w_k, w_v, num_heads, w_o, blocked, bias: as in ``attention_heads``.
        radius: R; the largest norm of a token by default.
        residual: r = 1 instead of 0; needs d_out = d.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., R).

    Raises:
        TypeError: a wrong dtype.
        ValueError: as ``attention_heads``; a token outside the ball, a row out of range, or a residual between
            different widths.
    """
    heads = attention_heads(x, w_q, w_k, w_v, num_heads=num_heads, w_o=w_o, blocked=blocked, bias=bias)
    rows = _checked_rows(heads, rows)
    row = _row(heads, rows)
    curvature = _squared_radius(x, radius) * _bilinear_norm(heads)
    paths = row.w_v * (row.own + (2 * row.own * row.others + 1) * curvature)
    return Bound(_diagonal_norm(heads, rows, residual), float(residual) + paths.sum(-2))


def largest_weight_ball_bound(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    radius: float | None = None,
    rows: Sequence[int] | None = None,
    num_heads: int = 1,
    b_q: Tensor | None = None,
) -> Bound:
    """Max over j of a_ij <= 1/(1 + (T - 1) exp(-2 R ||u_i||)), head by head (A2.entrywise-ball; ours).

    Domain: ||x_j|| <= R, full attention, no bias on scores: no mask and no bias can be given.

    Args:
        x: tokens (..., T, d). w_q, w_k, w_v, num_heads, b_q: as in ``attention_heads``.
        radius: R; the largest norm of a token by default.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., H, R).

    Raises:
        TypeError: a wrong dtype.
        ValueError: as ``attention_heads``; a token outside the ball, or a row out of range.
    """
    heads = attention_heads(x, w_q, w_k, w_v, num_heads=num_heads, b_q=b_q)
    rows = _checked_rows(heads, rows)
    return Bound(heads.weights[..., rows, :].amax(-1), _weight_ball_right(heads, rows, x, radius))


def largest_block_ball_bound(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    radius: float | None = None,
    rows: Sequence[int] | None = None,
    num_heads: int = 1,
    w_o: Tensor | None = None,
    b_q: Tensor | None = None,
) -> Bound:
    """Max over j != i of ||J_ij|| <= sum_h ||W_O W_V|| (1 + 2 R ||u_i||)/(1 + (T - 1) exp(-2 R ||u_i||)).

    So every entry is O(1/T) at fixed weights in a ball, with a constant exponential in R ||u_i|| (A2.entrywise-ball;
    ours). Domain: as ``largest_weight_ball_bound``.

    Args:
        x: tokens (..., T, d), T >= 2. w_q, w_k, w_v, num_heads, w_o, b_q: as in ``attention_heads``.
        radius: R; the largest norm of a token by default.
        rows: row indices i, R of them; all by default.

    Returns:
        Both sides, (..., R).

    Raises:
        TypeError: a wrong dtype.
        ValueError: as ``attention_heads``; a token outside the ball, a row out of range, or T < 2.
    """
    heads = attention_heads(x, w_q, w_k, w_v, num_heads=num_heads, w_o=w_o, b_q=b_q)
    rows = _checked_rows(heads, rows, least_tokens=2)
    row = _row(heads, rows)
    reach = 2 * _squared_radius(x, radius).sqrt() * row.slope
    right = (row.w_v * (1 + reach) * _weight_ball_right(heads, rows, x, radius)).sum(-2)
    return Bound(_off_diagonal_norms(heads, rows).amax(-1), right)


def compact_diagonal_form(heads: Heads, rows: Sequence[int] | None = None, *, residual: bool = True) -> Bound:
    """Both sides of the compact form r + a_ii (||W_V|| + (C_K + C_Q)/sqrt(d_k)) for ||J_ii||: NOT a bound (A2.compact).

    The form puts a_ii in front of the query term too. The constants here are generous, the diameters of the row's
    values and keys: C_K/sqrt(d_k) = D_v ||u_i|| and C_Q = D_v D_k ||W_Q||, D_y = max over j, l of ||y_j - y_l||. With
    them it holds for T = 2 and fails from T = 3 on.

    Args:
        heads: the pass.
        rows: row indices i, R of them; all by default.
        residual: r = 1 instead of 0; needs d_out = d.

    Returns:
        ||J_ii|| and what circulates as its bound, summed over heads, (..., R).

    Raises:
        ValueError: a row out of range, or a residual between different widths.
    """
    rows = _checked_rows(heads, rows)
    row = _row(heads, rows)
    values, keys = (_diameter(y)[..., None] for y in (_values(heads), heads.keys))
    w_q = heads.scale * _spectral(heads.w_q)[:, None]
    paths = row.own * (row.w_v + values * row.slope + values * keys * w_q)
    return Bound(_diagonal_norm(heads, rows, residual), float(residual) + paths.sum(-2))


def expected_other_weight(own: Tensor, tokens: int) -> Tensor:
    """E a_ij = (1 - E a_ii)/(T - 1) for each j != i, if the other tokens are exchangeable (A2.exchangeable; ours).

    Domain: exchangeable given x_i, no position code, no mask or bias but a fixed one on the diagonal.

    Args:
        own: E a_ii, any shape, between 0 and 1.
        tokens: T >= 2.

    Returns:
        The expected weight of every other key, of the shape of ``own``.

    Raises:
        ValueError: T < 2, or ``own`` outside 0 .. 1.
    """
    if tokens < 2:
        raise ValueError(f"tokens must be at least 2 for another key to exist, got {tokens}")
    if not bool(((own >= 0) & (own <= 1)).all()):
        raise ValueError(f"own must lie between 0 and 1, got {own.min().item()} .. {own.max().item()}")
    return (1 - own) / (tokens - 1)


def _checked_rows(heads: Heads, rows: Sequence[int] | None, *, least_tokens: int = 1) -> list[int]:
    tokens = heads.weights.shape[-1]
    if tokens < least_tokens:
        raise ValueError(f"a mean over j != i needs T >= {least_tokens} tokens, got {tokens}")
    wanted = list(range(tokens)) if rows is None else list(rows)
    for row in wanted:
        if not 0 <= row < tokens:
            raise ValueError(f"rows must lie in 0 .. {tokens - 1}, got {row}")
    return wanted


def _spectral(matrices: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrices, ord=2)


def _values(heads: Heads) -> Tensor:
    """W_O v, (..., H, T, d_out)."""
    return heads.values @ heads.w_o.transpose(-1, -2)


def _row(heads: Heads, rows: list[int]) -> _Row:
    weights = heads.weights[..., rows, :]
    own = _own_key(heads, rows)
    values = _values(heads)
    distances = torch.linalg.vector_norm(values.unsqueeze(-3) - (weights @ values).unsqueeze(-2), dim=-1)
    return _Row(
        own=weights[..., own],
        others=weights.masked_fill(own, 0.0).sum(-1),
        sigma=(weights * distances**2).sum(-1).sqrt(),
        farthest=distances.masked_fill(weights == 0, 0.0).amax(-1),
        slope=torch.linalg.vector_norm(heads.slopes[..., rows, :], dim=-1),
        w_v=_spectral(heads.w_o @ heads.w_v)[:, None],
    )


def _own_key(heads: Heads, rows: list[int]) -> Tensor:
    """(R, T), True on j = i."""
    tokens = heads.weights.shape[-1]
    places = torch.arange(tokens, device=heads.weights.device)
    return places[rows, None] == places


def _query_right(heads: Heads, rows: list[int], *, sharp: bool) -> Tensor:
    some = replace(heads, weights=heads.weights[..., rows, :])
    values, keys = (some.covariance(y, y) for y in (_values(heads), heads.keys))
    size = _spectral if sharp else _trace
    spread = (size(values) * size(keys)).sqrt()
    return (heads.scale * spread * _spectral(heads.w_q)[:, None]).sum(-2)


def _trace(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=-2, dim2=-1).sum(-1)


def _diameter(points: Tensor) -> Tensor:
    """The largest distance of two of the (..., T, m) points."""
    # The quick mode takes differences of squares, which is not exact.
    return torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").amax((-2, -1))


def _off_diagonal_norms(heads: Heads, rows: list[int]) -> Tensor:
    """||J_ij|| with 0 on j = i, (..., R, T)."""
    return _spectral(jacobian_rows(heads, rows)).masked_fill(_own_key(heads, rows), 0.0)


def _diagonal_norm(heads: Heads, rows: list[int], residual: bool) -> Tensor:
    blocks = jacobian_rows(heads, rows, residual=residual)
    return _spectral(blocks[..., range(len(rows)), rows, :, :])


def _bilinear_norm(heads: Heads) -> Tensor:
    """||B|| of every head, (H, 1), B = c W_Q^T W_K."""
    return heads.scale * _spectral(heads.w_q.transpose(-1, -2) @ heads.w_k)[:, None]


def _squared_radius(x: Tensor, radius: float | None) -> Tensor:
    """R^2, (..., 1, 1) for heads and rows."""
    largest = torch.linalg.vector_norm(x, dim=-1).amax(-1)[..., None, None]
    if radius is None:
        return largest**2
    if not float(largest.max()) <= radius < float("inf"):
        raise ValueError(
            f"radius must be finite and at least the largest token's norm {largest.max():.6g}, got {radius}"
        )
    return torch.full_like(largest, radius**2)


def _weight_ball_right(heads: Heads, rows: list[int], x: Tensor, radius: float | None) -> Tensor:
    slope = torch.linalg.vector_norm(heads.slopes[..., rows, :], dim=-1)
    others = x.shape[-2] - 1
    return 1 / (1 + others * torch.exp(-2 * _squared_radius(x, radius).sqrt() * slope))
