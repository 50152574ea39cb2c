"""B2: what a sink costs.

The least norm of B with x_i^T B (x_0 - x_j) >= m for all i, j >= 1 is m/(g_q g_k), in every Schatten norm at once. The
derivation is in ``derivations.b2_sink_price``.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import hypot, inf, sqrt
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from numerics.b1_representability import Representability, representability
from numerics.price_program import CERTIFIED, Norm, ProgramPrice, Solver, least_norm_matrix, matrix_norm
from numerics.token_clouds import (
    Cloud,
    are_floats,
    check_count,
    check_margin,
    check_sink,
    check_tokens,
    exact_row,
    exact_rows,
)

Pattern = Literal["full", "causal", "others"]


@dataclass(frozen=True)
class SinkPrice:
    """The price of a sink with its proofs.

    Attributes:
        value: m/(g_q g_k); ``inf`` where no B makes the sink.
        matrix: a B of rank 1 whose every margin is at least m, (d, d) or (d + 1, d) with a query bias; None where
            there is none.
        multipliers: lambda, (n, n): sum_ij lambda_ij x_i (x_0 - x_j)^T has norm 1 and m sum(lambda) is ``lower``; None
            where there is no sink.
        lower: what the multipliers prove. upper: the norm of ``matrix``. The true price lies between them, in every
            unitarily invariant norm that is 1 on unit rank-1 matrices.
        representability: the hull distances, and the rational certificate where no B makes the sink.
    """

    value: float
    matrix: NDArray[np.float64] | None
    multipliers: NDArray[np.float64] | None
    lower: float
    upper: float
    representability: Representability

    @property
    def representable(self) -> bool:
        """Some B makes the sink."""
        return self.representability.representable

    @property
    def gap(self) -> float:
        """upper - lower; 0.0 where both are infinite."""
        return self.upper - self.lower if self.representable else 0.0


def sink_price(tokens: ArrayLike, sink: ArrayLike, *, margin: float = 1.0, query_bias: bool = False) -> SinkPrice:
    """The least norm of B that gives every query the margin for the sink over every other key, its own included.

    Args:
        tokens: x_1..x_n as rows, (n, d), real or rational.
        sink: x_0, (d,).
        margin: m > 0.
        query_bias: B has one more row, the query bias, and its norm counts it: m/(g_k sqrt(1 + g_q^2)).

    Returns:
        The price with matrix, multipliers and both sides. Source: P2's question, our answer.

    Raises:
        TypeError, ValueError: bad input, named.
        ArithmeticError: the sink exists, but in float64 no matrix shows its price to a part in a million (hull
            distances of about 1e-10 of the tokens' length), or the price is out of range.
    """
    cloud = check_tokens("tokens", tokens)
    centre = check_sink(sink, cloud)
    m = check_margin(margin)
    found = representability(tokens, sink, query_bias=query_bias)
    if not found.representable:
        return SinkPrice(inf, None, None, inf, inf, found)

    g_q, g_k = found.queries.distance, found.keys.distance
    with np.errstate(over="ignore", under="ignore"):
        value = m / g_q / g_k
    if not 0 < value < inf:
        raise ArithmeticError(f"the price is out of float64's range: margin {m}, hull distances {g_q} and {g_k}")
    queries = np.hstack([cloud, np.ones((len(cloud), 1))]) if query_bias else cloud
    toward_queries, toward_sink = found.queries.offset / g_q, -found.keys.offset / g_k
    # Both sides are measured on unit vectors, where nothing overflows, and count their own rounding errors.
    query_reach = _least_product(queries, np.abs(queries), toward_queries)
    sink_reach = _least_product(centre - cloud, np.abs(centre) + np.abs(cloud), toward_sink)
    if query_reach > 0 and sink_reach > 0:
        matrix = m / query_reach / sink_reach * np.outer(toward_queries, toward_sink)
        upper = m / query_reach / sink_reach
        mean_query, mean_key = found.queries.weights @ queries, found.keys.weights @ (centre - cloud)
        lower = m / hypot(*mean_query) / hypot(*mean_key)
        if upper - lower <= CERTIFIED * value:
            multipliers = np.outer(found.queries.weights, found.keys.weights) * (lower / m)
            return SinkPrice(float(value), matrix, multipliers, float(lower), float(upper), found)
    raise ArithmeticError(
        f"the sink's price is about {value:.3e}, but the hull distances {g_q:.1e} and {g_k:.1e} are too small beside "
        "the tokens for a float64 matrix to show it"
    )


def _least_product(rows: Cloud, sizes: Cloud, direction: Cloud) -> float:
    """A lower bound of the least inner product of rows with a direction; the rows' errors are relative to sizes."""
    error = (rows.shape[1] + 2) * np.finfo(float).eps * (sizes @ np.abs(direction))
    return float((rows @ direction - error).min())


def sink_program(
    tokens: ArrayLike,
    sink: ArrayLike,
    *,
    margin: float = 1.0,
    norm: Norm = "nuclear",
    pattern: Pattern = "full",
    query_bias: bool = False,
    solvers: tuple[Solver, ...] = ("CLARABEL", "SCS"),
) -> ProgramPrice:
    """The price of a sink by the convex program: for the patterns that have no closed form, and as a check of the one.

    Args:
        tokens: x_1..x_n as rows, (n, d), real or rational.
        sink: x_0, (d,).
        margin: m > 0.
        norm: "nuclear", "fro" or "spectral".
        pattern: which keys j query i must like less than the sink: "full" all, "causal" j <= i, "others" j != i.
        query_bias: as in ``sink_price``.
        solvers: which solvers to ask, in turn.

    Returns:
        The program's price with both proofs; the pairs are in row order. No pair at all ("others", n = 1): 0.

    Raises:
        TypeError, ValueError: bad input, named.
        ArithmeticError: no solver closed the gap to a part in a million.
    """
    cloud = check_tokens("tokens", tokens)
    centre = check_sink(sink, cloud)
    m = check_margin(margin)
    if pattern not in get_args(Pattern):
        raise ValueError(f"pattern must be one of {', '.join(map(repr, get_args(Pattern)))}, got {pattern!r}")
    n, width = cloud.shape
    asked = {"full": np.ones((n, n)), "causal": np.tri(n), "others": 1 - np.eye(n)}[pattern]
    own, other = np.nonzero(asked)
    empty = np.zeros((width + query_bias, width))
    matrix_norm(empty, norm)
    if len(own) == 0:
        return ProgramPrice(0.0, 0.0, empty, np.zeros(0), None)

    def exact() -> tuple[list[list[Fraction]], list[list[Fraction]]]:
        rows, exact_sink = exact_rows(tokens), exact_row(sink)
        gaps = [[x - y for x, y in zip(exact_sink, rows[j], strict=True)] for j in other.tolist()]
        return [rows[i] + [Fraction(1)] * query_bias for i in own.tolist()], gaps

    queries = np.hstack([cloud, np.ones((n, int(query_bias)))])
    gaps = centre - cloud[other] if are_floats(tokens, sink) else np.array(exact()[1], dtype=np.float64)
    return least_norm_matrix(queries[own], gaps, margin=m, norm=norm, exact=exact, solvers=solvers)


@dataclass(frozen=True)
class WeightDecay:
    """The cheapest projections behind a given B.

    Attributes:
        value: min (||W_Q||_F^2 + ||W_K||_F^2)/2 = sqrt(d_k) ||B||_*.
        w_q: (d_k, d_q), and w_k: (d_k, d): W_Q^T W_K / sqrt(d_k) = B, and they cost ``value``.
    """

    value: float
    w_q: NDArray[np.float64]
    w_k: NDArray[np.float64]


def cheapest_projections(matrix: ArrayLike, d_k: int) -> WeightDecay:
    """The least weight decay among all W_Q, W_K with W_Q^T W_K / sqrt(d_k) = B (ours).

    Args:
        matrix: B, (d_q, d); d_q = d, or d + 1 with a query bias.
        d_k: width of queries and keys, at least the rank of B.

    Returns:
        The least value and projections that attain it.

    Raises:
        TypeError, ValueError: bad input, or d_k below the numerical rank of B.
    """
    B = check_tokens("matrix", matrix)
    check_count("d_k", d_k)
    left, values, right = np.linalg.svd(B, full_matrices=False)
    rank = int((values > max(B.shape) * np.finfo(float).eps * values[0]).sum())
    if d_k < rank:
        raise ValueError(f"d_k must be at least the rank of the matrix, {rank}, got {d_k}")
    kept = min(d_k, len(values))
    roots = np.sqrt(sqrt(d_k) * values[:kept])
    w_q, w_k = np.zeros((d_k, B.shape[0])), np.zeros((d_k, B.shape[1]))
    w_q[:kept], w_k[:kept] = roots[:, None] * left[:, :kept].T, roots[:, None] * right[:kept]
    return WeightDecay(float(sqrt(d_k) * values.sum()), w_q, w_k)
