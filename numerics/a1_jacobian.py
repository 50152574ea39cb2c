"""A1: the Jacobian of temporal attention, block by block, in closed form.

    J_ij = r d_ij I + sum_h W_O^h [ a_ij W_V + a_ij (v_j - o_i) u_i^T + d_ij c Cov_i(v, k) W_Q ]^h

The derivation is in ``derivations.a1_jacobian``; nothing here uses autograd.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from numerics.inputs import check_bias, check_blocked, check_floating, check_same_kind

Norm = Literal["fro", "spectral"]

CHUNK_ELEMENTS = 2**22
"""At most about this many entries of J are held at once by ``sensitivity_map`` (32 MiB in float64)."""


@dataclass(frozen=True)
class Heads:
    """One forward pass of attention, head by head: what every closed form is built from.

    H heads, T tokens; leading batch dimensions stand before the shapes given.

    Attributes:
        weights: a, (H, T, T), rows sum to one, blocked keys are 0.
        queries: q, (H, T, d_k).
        keys: k, (H, T, d_k).
        values: v, (H, T, d_v).
        outputs: o, (H, T, d_v).
        slopes: u_i = c W_K^T q_i, (H, T, d): the gradient of the scores of row i in the key's token.
        w_q: (H, d_k, d). w_k: (H, d_k, d). w_v: (H, d_v, d).
        w_o: (H, d_out, d_v); the identity, once per head, where no output projection was given.
        scale: c = 1/sqrt(d_k).
    """

    weights: Tensor
    queries: Tensor
    keys: Tensor
    values: Tensor
    outputs: Tensor
    slopes: Tensor
    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    w_o: Tensor
    scale: float

    def covariance(self, first: Tensor, second: Tensor) -> Tensor:
        """Cov_i(y, z) = sum_l a_il (y_l - ybar_i)(z_l - zbar_i)^T of token features (..., H, T, m) and (..., H, T, n).

        Returns:
            (..., H, T, m, n), one covariance a row.
        """
        # Centred before multiplied: with saturated weights the uncentred difference loses every digit.
        first_off = first.unsqueeze(-3) - (self.weights @ first).unsqueeze(-2)
        second_off = second.unsqueeze(-3) - (self.weights @ second).unsqueeze(-2)
        return torch.einsum("...il,...ilm,...iln->...imn", self.weights, first_off, second_off)


class JacobianPaths(NamedTuple):
    """The parts of every block J_ij, each of shape (..., T, T, d_out, d) but the query's, (..., T, d_out, d).

    value + key + query (on i = j) + residual (on i = j) is the Jacobian.
    """

    value: Tensor
    key: Tensor
    query: Tensor


_VECTOR = 16
"""Entries of float32 in the widest vector register."""


def masked_softmax(scores: Tensor, blocked: Tensor | None = None) -> Tensor:
    """Softmax over the last dimension; blocked entries are exactly 0.

    Args:
        scores: (..., T_q, T_k), finite.
        blocked: boolean, broadcasts to the scores, True = may not look.

    Returns:
        Weights of the shape of the scores; each row sums to one.

    Raises:
        TypeError: ``blocked`` is not boolean.
        ValueError: a score is not finite, or a row has nothing left to look at; the message names it.
    """
    check_floating("the scores", scores)
    check_blocked(blocked, scores)
    if blocked is not None:
        scores = scores.masked_fill(blocked, -torch.inf)
    if scores.device.type == "cpu" and scores.dtype == torch.float32 and scores.shape[-1] < _VECTOR:
        # Written out: torch's own goes entry by entry through a row that fills no vector register, at twice the time.
        # The shift changes no weight and so no derivative.
        terms = torch.exp(scores - scores.detach().amax(dim=-1, keepdim=True))
        return terms * terms.sum(dim=-1, keepdim=True).reciprocal()
    return torch.softmax(scores, dim=-1)


def attention_heads(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    num_heads: int = 1,
    w_o: Tensor | None = None,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
) -> Heads:
    """Run the attention layer and keep everything that the closed forms need.

    Args:
        x: tokens (..., T, d).
        w_q: (num_heads * d_k, d), as in ``torch.nn.Linear``. w_k: the same shape.
        w_v: (num_heads * d_v, d).
        num_heads: how many heads the rows of the three weights are split into.
        w_o: output projection (d_out, num_heads * d_v). Without it the heads' outputs are added.
        b_q: projection bias (num_heads * d_k,). b_k: the same. b_v: (num_heads * d_v,).
        blocked: boolean, True = may not look; broadcasts to (..., num_heads, T, T).
        bias: added to the scaled scores; broadcasts like ``blocked``; must not depend on x.

    Returns:
        The pass, head by head.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that do not fit, values or scores that are not finite, or a row without a key.
    """
    check_floating("x", x)
    if x.dim() < 2 or 0 in x.shape:
        raise ValueError(f"x must have shape (..., T, d) with T, d >= 1, got {tuple(x.shape)}")
    for name, weight in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        check_floating(name, weight, dims=2)
        check_same_kind("x", x, name, weight)
        if weight.shape[1] != x.shape[-1]:
            raise ValueError(
                f"{name} must have {x.shape[-1]} columns, one per entry of a token, got {tuple(weight.shape)}"
            )
        if num_heads < 1 or weight.shape[0] == 0 or weight.shape[0] % num_heads:
            raise ValueError(f"{name} must have a multiple of num_heads = {num_heads} rows, got {tuple(weight.shape)}")
    if w_q.shape != w_k.shape:
        raise ValueError(f"w_q and w_k must have one shape, got {tuple(w_q.shape)} and {tuple(w_k.shape)}")
    q_heads, k_heads, v_heads = (w.unflatten(0, (num_heads, -1)) for w in (w_q, w_k, w_v))
    if w_o is None:
        o_heads = torch.eye(v_heads.shape[1], dtype=x.dtype, device=x.device).expand(num_heads, -1, -1)
    else:
        check_floating("w_o", w_o, dims=2)
        check_same_kind("x", x, "w_o", w_o)
        if w_o.shape[1] != w_v.shape[0]:
            raise ValueError(f"w_o must have {w_v.shape[0]} columns, one per row of w_v, got {tuple(w_o.shape)}")
        o_heads = w_o.unflatten(1, (num_heads, -1)).movedim(1, 0)

    queries = _project("b_q", x, q_heads, b_q)
    keys = _project("b_k", x, k_heads, b_k)
    values = _project("b_v", x, v_heads, b_v)
    check_floating("the values", values)
    scale = q_heads.shape[1] ** -0.5
    scores = scale * queries @ keys.transpose(-1, -2)
    check_bias(bias, scores)
    weights = masked_softmax(scores if bias is None else scores + bias, blocked)
    return Heads(
        weights=weights,
        queries=queries,
        keys=keys,
        values=values,
        outputs=weights @ values,
        slopes=scale * queries @ k_heads,
        w_q=q_heads,
        w_k=k_heads,
        w_v=v_heads,
        w_o=o_heads,
        scale=scale,
    )


def _project(bias_name: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """(..., T, d) through (H, m, d) to (..., H, T, m)."""
    projected = x.unsqueeze(-3) @ weight.transpose(-1, -2)
    if bias is None:
        return projected
    check_floating(bias_name, bias, dims=1)
    check_same_kind("x", x, bias_name, bias)
    if bias.shape[0] != weight.shape[0] * weight.shape[1]:
        raise ValueError(f"{bias_name} must have {weight.shape[0] * weight.shape[1]} entries, got {tuple(bias.shape)}")
    return projected + bias.unflatten(0, (weight.shape[0], 1, weight.shape[1]))


def query_part(heads: Heads, rows: Sequence[int] | None = None) -> Tensor:
    """c W_O Cov_i(v, k) W_Q, summed over heads: what a token adds through its own query.

    Returns:
        (..., R, d_out, d), for the R given rows i; for all T rows by default.
    """
    if rows is not None:
        heads = replace(heads, weights=heads.weights[..., rows, :])
    per_head = heads.covariance(heads.values, heads.keys) @ heads.w_q.unsqueeze(-3)
    return torch.einsum("hov,...hivd->...iod", heads.w_o, heads.scale * per_head)


def jacobian_paths(heads: Heads, rows: Sequence[int] | None = None) -> JacobianPaths:
    """The value path, the key part and the query part, apart (A1). Shapes in ``JacobianPaths``.

    With ``rows`` given, only those R rows i: R stands for the first T.
    """
    some = slice(None) if rows is None else rows
    return JacobianPaths(_value_rows(heads, some), _key_rows(heads, some), query_part(heads, rows))


def _value_rows(heads: Heads, rows: slice | Sequence[int]) -> Tensor:
    return torch.einsum("...hij,hov,hvd->...ijod", heads.weights[..., rows, :], heads.w_o, heads.w_v)


def _key_rows(heads: Heads, rows: slice | Sequence[int]) -> Tensor:
    weights, outputs = heads.weights[..., rows, :], heads.outputs[..., rows, :]
    offsets = heads.values.unsqueeze(-3) - outputs.unsqueeze(-2)
    projected = torch.einsum("hov,...hijv->...hijo", heads.w_o, offsets)
    return torch.einsum("...hij,...hijo,...hid->...ijod", weights, projected, heads.slopes[..., rows, :])


def jacobian_rows(heads: Heads, rows: Sequence[int], *, residual: bool = False) -> Tensor:
    """The blocks J_ij of some rows i and all j.

    Args:
        heads: the pass.
        rows: row indices i, R of them.
        residual: add the identity on i = j; needs d_out = d.

    Returns:
        (..., R, T, d_out, d).

    Raises:
        ValueError: a residual where the widths differ.
    """
    rows = list(rows)
    blocks = _value_rows(heads, rows) + _key_rows(heads, rows)
    place = range(len(rows))
    blocks[..., place, rows, :, :] += query_part(heads, rows)
    if residual:
        blocks[..., place, rows, :, :] += _identity(heads)
    return blocks


def _identity(heads: Heads) -> Tensor:
    width_out, width_in = heads.w_o.shape[1], heads.w_v.shape[2]
    if width_out != width_in:
        raise ValueError(f"a residual needs outputs as wide as tokens, got {width_out} and {width_in}")
    return torch.eye(width_in, dtype=heads.weights.dtype, device=heads.weights.device)


def jacobian_blocks(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
    residual: bool = False,
    **layer,
) -> Tensor:
    """Every block J_ij = dh_i/dx_j of an attention layer, in closed form (A1; P1 and ours).

    Args:
        x: tokens (..., T, d).
        w_q: (d_k, d). w_k: (d_k, d). w_v: (d_v, d).
        blocked: boolean (T, T) or broadcasting to the scores, True = may not look.
        bias: finite, added to the scaled scores, not a function of x.
        residual: add x_i to the output of row i; needs matching widths.
        **layer: ``num_heads``, ``w_o``, ``b_q``, ``b_k``, ``b_v`` as in ``attention_heads``.

    Returns:
        (..., T, T, d_out, d); entry [i, j] is J_ij, d_out = d_v without ``w_o``. Memory: T^2 d_out d numbers;
        use ``sensitivity_map`` where only norms are wanted.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that do not fit, values that are not finite, a row without a key, or a residual between
            different widths.
    """
    heads = attention_heads(x, w_q, w_k, w_v, blocked=blocked, bias=bias, **layer)
    return jacobian_rows(heads, range(x.shape[-2]), residual=residual)


def sensitivity_map(
    x: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    *,
    norm: Norm = "fro",
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
    residual: bool = False,
    rows: Sequence[int] | None = None,
    chunk: int | None = None,
    **layer,
) -> Tensor:
    """The norm of every Jacobian block, without ever holding all blocks.

    Args:
        x: tokens (..., T, d). w_q, w_k, w_v, blocked, bias, residual: as in ``jacobian_blocks``.
        **layer: ``num_heads``, ``w_o``, ``b_q``, ``b_k``, ``b_v`` as in ``attention_heads``.
        norm: "fro" or "spectral" (exact, by singular values).
        rows: only these rows i; all by default.
        chunk: rows computed at once; by default as many as keep about 2^22 entries of J. Any value gives one result.

    Returns:
        (..., R, T) with R rows; entry [i, j] is ||J_ij||.

    Raises:
        TypeError, ValueError: as ``jacobian_blocks``; an unknown norm, no row, a row out of range, or ``chunk`` < 1.
    """
    if norm not in ("fro", "spectral"):
        raise ValueError(f"norm must be 'fro' or 'spectral', got {norm!r}")
    heads = attention_heads(x, w_q, w_k, w_v, blocked=blocked, bias=bias, **layer)
    tokens = x.shape[-2]
    wanted = range(tokens) if rows is None else list(rows)
    if not wanted:
        raise ValueError("rows must name at least one row, got none")
    for row in wanted:
        if not 0 <= row < tokens:
            raise ValueError(f"rows must lie in 0 .. {tokens - 1}, got {row}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    per_row = x[..., 0].numel() * heads.w_o.shape[1] * x.shape[-1]
    size = chunk or max(1, CHUNK_ELEMENTS // per_row)
    order = 2 if norm == "spectral" else "fro"
    norms = [
        torch.linalg.matrix_norm(jacobian_rows(heads, some, residual=residual), ord=order)
        for some in _chunks(wanted, size)
    ]
    return torch.cat(norms, dim=-2)


def _chunks(rows: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
