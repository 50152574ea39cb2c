"""B7: how attention spreads or smooths its tokens: dispersion, Dobrushin's coefficient, depth.

    (1/T) ||P A||_F^2 = (1/T) sum_i ||a_i||^2 - sum_j (mean of column j)^2,    P = I - 11^T/T

The derivation is in ``derivations.b7_oversmoothing``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from numerics.inputs import check_covariance, check_floating, check_same_kind, check_weights
from numerics.token_clouds import check_count


class DispersionTerms(NamedTuple):
    """The two terms of the dispersion of attention weights, each of shape (...).

    Attributes:
        rows: (1/T) sum_i ||a_i||^2, in [1/T, 1]: 1 where each row looks at one token, 1/T where all rows are uniform.
        columns: sum_j (mean of column j)^2, in [1/T, 1]: 1/T for balanced columns, 1 where all rows look at one token.
    """

    rows: Tensor
    columns: Tensor

    @property
    def dispersion(self) -> Tensor:
        """(1/T) ||P A||_F^2 = rows - columns, in [0, 1 - 1/T]."""
        return self.rows - self.columns


class DepthCurve(NamedTuple):
    """Dispersion after 0, 1, .., L layers, each of shape (..., L + 1).

    Attributes:
        dispersion: (1/T) ||P X||_F^2.
        relative: ||P X||_F^2/||X||_F^2, in [0, 1]; NaN where all tokens are zero.
        diameter: max_{i,j} ||x_i - x_j||.
        diameter_bound: the first diameter times the product over layers of r + tau(A) ||W_V||.
        dispersion_bound: (T - 1)/(2 T) times the square of ``diameter_bound``.
    """

    dispersion: Tensor
    relative: Tensor
    diameter: Tensor
    diameter_bound: Tensor
    dispersion_bound: Tensor


def dispersion(x: Tensor) -> Tensor:
    """(1/T) ||P X||_F^2, the mean squared distance of tokens (or outputs) from their mean (B7; P2).

    Args:
        x: (..., T, d).

    Returns:
        (...), at least 0; 0 iff all rows are equal.

    Raises:
        TypeError, ValueError: not a finite floating tensor of that shape.
    """
    _check_tokens(x)
    return _spread(x) / x.shape[-2]


def relative_dispersion(x: Tensor) -> Tensor:
    """||P X||_F^2/||X||_F^2 (B7; P2).

    Args:
        x: (..., T, d).

    Returns:
        (...), in [0, 1]: 0 iff all rows are equal, 1 iff their mean is zero; NaN where X = 0.

    Raises:
        TypeError, ValueError: not a finite floating tensor of that shape.
    """
    _check_tokens(x)
    scaled = _scaled(x)
    return _spread(scaled) / scaled.square().sum((-2, -1))


def dispersion_terms(weights: Tensor) -> DispersionTerms:
    """The row term and the column term of (1/T) ||P A||_F^2 (B7.identity; ours).

    Args:
        weights: A, (..., T, T), row-stochastic.

    Returns:
        Both terms, each (...).

    Raises:
        TypeError, ValueError: not attention weights.
    """
    check_weights("weights", weights)
    return DispersionTerms(weights.square().sum(-1).mean(-1), weights.mean(-2).square().sum(-1))


def expected_dispersion(weights: Tensor, w_v: Tensor, covariance: Tensor) -> Tensor:
    """E (1/T) ||P O||_F^2 for tokens that are uncorrelated and independent of the weights (B7.expectation; P2).

    Args:
        weights: A, (..., T, T), row-stochastic. They must not be computed from the tokens (B7.same-tokens).
        w_v: W_V, (d_v, d).
        covariance: S, (d, d), of every token; symmetric and positive semidefinite.

    Returns:
        tr(W_V S W_V^T) (rows - columns), (...).

    Raises:
        TypeError, ValueError: shapes that do not fit, or not attention weights.
    """
    of_weights = dispersion_terms(weights).dispersion
    check_floating("w_v", w_v, dims=2)
    check_floating("covariance", covariance, dims=2)
    check_same_kind("weights", weights, "w_v", w_v)
    check_same_kind("weights", weights, "covariance", covariance)
    width = w_v.shape[1]
    check_covariance("covariance", covariance, width)
    return ((w_v @ covariance) * w_v).sum() * of_weights


def uniform_relative_dispersion(x: Tensor, eta: float) -> Tensor:
    """Relative dispersion of H = X + A X W_V^T for uniform A, W_V = eta I, in closed form (B7.residual-uniform; ours).

    Lower than that of X for eta > 0 and eta < -2, higher in between, if neither P X nor the mean token is zero.

    Args:
        x: (..., T, d).
        eta: the factor.

    Returns:
        ||P X||^2/(||P X||^2 + T (1 + eta)^2 ||mu||^2), (...); NaN where H = 0.

    Raises:
        TypeError, ValueError: not a finite floating tensor of that shape, or eta not finite.
    """
    _check_tokens(x)
    if not math.isfinite(eta):
        raise ValueError(f"eta must be finite, got {eta}")
    scaled = _scaled(x)
    spread = _spread(scaled)
    return spread / (spread + x.shape[-2] * (1 + eta) ** 2 * scaled.mean(-2).square().sum(-1))


def dobrushin(weights: Tensor) -> Tensor:
    """Dobrushin's coefficient tau(A) = max_{i,j} ||a_i - a_j||_1/2 (B7.dobrushin; ours).

    Args:
        weights: A, (..., T, T), row-stochastic.

    Returns:
        (...), in [0, 1]: 0 iff all rows are equal, 1 iff two rows share no key. tau(A A') <= tau(A) tau(A').
        Memory: T^2 numbers per matrix.

    Raises:
        TypeError, ValueError: not attention weights.
    """
    check_weights("weights", weights)
    return torch.cdist(weights, weights, p=1).amax((-2, -1)) / 2


def column_floor_bound(weights: Tensor) -> Tensor:
    """1 - sum_l min_i a_il, an upper bound of tau(A) (B7.dobrushin; ours).

    One column that all rows look at makes it small: a sink with a_i0 >= 1 - e gives at most e.

    Args:
        weights: A, (..., T, T), row-stochastic.

    Returns:
        (...), in [0, 1].

    Raises:
        TypeError, ValueError: not attention weights.
    """
    check_weights("weights", weights)
    return 1 - weights.amin(-2).sum(-1)


def balanced_weights(tokens: int, per_row: int, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """A band: row i gives 1/k to each of the tokens i, .., i + k - 1, counted round (B7.sparse).

    Rows and columns sum to one. k = 1 is the diagonal, k = T uniform attention.

    Args:
        tokens: T.
        per_row: k, 1 .. T.
        dtype: of the result.

    Returns:
        (T, T); (1/T) ||P A||_F^2 = 1/k - 1/T.

    Raises:
        TypeError, ValueError: T < 1, k outside 1 .. T, or a dtype that is not floating.
    """
    check_count("tokens", tokens)
    check_count("per_row", per_row)
    _check_dtype(dtype)
    if per_row > tokens:
        raise ValueError(f"per_row must lie in 1 .. tokens = {tokens}, got {per_row}")
    place = torch.arange(tokens)
    return ((place - place.unsqueeze(-1)) % tokens < per_row).to(dtype) / per_row


def sink_weights(tokens: int, leak: float = 0.0, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """Every row gives 1 - e to token 0 and e to itself; row 0 looks at itself only (B7.dobrushin).

    Args:
        tokens: T.
        leak: e, in [0, 1].
        dtype: of the result.

    Returns:
        (T, T); tau = e for T >= 2.

    Raises:
        TypeError, ValueError: T < 1, a leak outside [0, 1], or a dtype that is not floating.
    """
    check_count("tokens", tokens)
    _check_dtype(dtype)
    if not 0 <= leak <= 1:
        raise ValueError(f"leak must lie in [0, 1], got {leak}")
    weights = leak * torch.eye(tokens, dtype=dtype)
    weights[:, 0] += 1 - leak
    return weights


def depth_curve(
    x: Tensor, weights: Sequence[Tensor] | Tensor, w_v: Tensor | None = None, *, residual: bool = False
) -> DepthCurve:
    """Dispersion layer by layer of X -> r X + A X W_V^T, with the bound by Dobrushin's coefficients (B7.depth).

    Args:
        x: first tokens, (..., T, d).
        weights: one A per layer, (L, T, T) or a sequence of (T, T), first layer first.
        w_v: W_V of every layer, (d, d); the identity by default.
        residual: r, whether each layer adds its input.

    Returns:
        The curve, from the first tokens (entry 0) to the last layer's.

    Raises:
        TypeError, ValueError: shapes that do not fit, not attention weights, or no finite tokens.
    """
    _check_tokens(x)
    tokens, width = x.shape[-2:]
    stretch = 1.0
    if w_v is not None:
        check_floating("w_v", w_v, dims=2)
        check_same_kind("x", x, "w_v", w_v)
        if w_v.shape != (width, width):
            raise ValueError(f"w_v must have shape {(width, width)}, got {tuple(w_v.shape)}")
        stretch = float(torch.linalg.matrix_norm(w_v, ord=2))
    streams, factors = [x], [1.0]
    for place, layer in enumerate(weights):
        check_weights(f"weights[{place}]", layer)
        check_same_kind("x", x, f"weights[{place}]", layer)
        if layer.shape != (tokens, tokens):
            raise ValueError(f"weights[{place}] must have shape {(tokens, tokens)}, got {tuple(layer.shape)}")
        attended = layer @ streams[-1]
        if w_v is not None:
            attended = attended @ w_v.T
        streams.append(streams[-1] + attended if residual else attended)
        factors.append(factors[-1] * (residual + float(dobrushin(layer)) * stretch))
    stacked = torch.stack(streams, -3)
    diameter = torch.cdist(stacked, stacked, compute_mode="donot_use_mm_for_euclid_dist").amax((-2, -1))
    bound = diameter[..., :1] * torch.tensor(factors, dtype=x.dtype, device=x.device)
    return DepthCurve(
        dispersion=dispersion(stacked),
        relative=relative_dispersion(stacked),
        diameter=diameter,
        diameter_bound=bound,
        dispersion_bound=(tokens - 1) / (2 * tokens) * bound.square(),
    )


def _spread(x: Tensor) -> Tensor:
    """||P X||_F^2, centred before squared."""
    return (x - x.mean(-2, keepdim=True)).square().sum((-2, -1))


def _scaled(x: Tensor) -> Tensor:
    """X over its largest entry, so that in a ratio of squares tiny or huge tokens do not under- or overflow."""
    largest = x.abs().amax((-2, -1), keepdim=True)
    return x / torch.where(largest > 0, largest, 1.0)


def _check_tokens(x: Tensor) -> None:
    check_floating("x", x)
    if x.dim() < 2 or 0 in x.shape:
        raise ValueError(f"x must have shape (..., T, d) with T, d >= 1, got {tuple(x.shape)}")


def _check_dtype(dtype: torch.dtype) -> None:
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"dtype must be a real floating dtype, got {dtype}")
