"""B1: can a cloud of tokens have a sink at all?

Some B has x_i^T B (x_0 - x_j) > 0 for all i, j >= 1 iff 0 is not in conv{x_i} and x_0 is not in conv{x_j}. The
derivation is in ``derivations.b1_representability``. Both answers come with a proof: a rank-1 B, or rational weights.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from numerics.convex_hulls import HullDistance, hull_distance
from numerics.token_clouds import check_sink, check_tokens, exact_row, exact_rows


@dataclass(frozen=True)
class FarkasCertificate:
    """A proof that no B makes the sink: sum_ij alpha_i beta_j x_i (x_0 - x_j)^T = 0, exactly.

    Any B with positive margins would make the sum of alpha_i beta_j x_i^T B (x_0 - x_j) both positive and 0.

    Attributes:
        query_weights: alpha, convex weights on x_1..x_n.
        key_weights: beta, convex weights on x_1..x_n.
        reason: which of the two conditions fails.
    """

    query_weights: tuple[Fraction, ...]
    key_weights: tuple[Fraction, ...]
    reason: str

    def proves(self, tokens: ArrayLike, sink: ArrayLike, *, query_bias: bool = False) -> bool:
        """Whether the weights are convex and the sum vanishes, in exact arithmetic. Arguments as in ``residual``."""
        convex = all(min(w) >= 0 and sum(w) == 1 for w in (self.query_weights, self.key_weights))
        rows = self.residual(tokens, sink, query_bias=query_bias)
        return convex and not any(entry for row in rows for entry in row)

    def residual(self, tokens: ArrayLike, sink: ArrayLike, *, query_bias: bool = False) -> list[list[Fraction]]:
        """The sum that must vanish, in exact arithmetic; a check that knows nothing of how the weights were found.

        Args:
            tokens: (n, d). sink: (d,). query_bias: as in ``representability``.

        Returns:
            d rows (d + 1 with a query bias) of d rationals; all 0 for a valid certificate.
        """
        rows, centre = exact_rows(tokens), exact_row(sink)
        queries = [[*row, Fraction(1)] for row in rows] if query_bias else rows
        mean_query = _weighted(self.query_weights, queries)
        mean_key = _weighted(self.key_weights, rows)
        total = sum(self.key_weights)
        return [[q * (total * x - k) for x, k in zip(centre, mean_key, strict=True)] for q in mean_query]


@dataclass(frozen=True)
class Representability:
    """Whether some B makes the sink, with the proof.

    Attributes:
        representable: the answer; exact for the numbers as given.
        queries: the distance of 0 to conv{x_i} (of the lifted (x_i, 1) with a query bias).
        keys: the distance of x_0 to conv{x_j}.
        certificate: rational proof that no B does it; None where one does.
    """

    representable: bool
    queries: HullDistance
    keys: HullDistance
    certificate: FarkasCertificate | None


def representability(tokens: ArrayLike, sink: ArrayLike, *, query_bias: bool = False) -> Representability:
    """Can some B give every query a positive margin for the sink over every other key (P2; statement ours)?

    Args:
        tokens: x_1..x_n as rows, (n, d), real or rational. Each is a query and a key.
        sink: x_0, (d,).
        query_bias: the query has a bias, so a query is (x_i, 1).

    Returns:
        The answer with its proof. Where it is yes, the rank-1 matrix a b^T has positive margins, a the queries' offset
        and b minus the keys' offset.

    Raises:
        TypeError, ValueError: bad input, named.
        ArithmeticError: a large cloud too degenerate to decide.
    """
    cloud = check_tokens("tokens", tokens)
    check_sink(sink, cloud)
    queries = hull_distance(_lifted(tokens) if query_bias else tokens)
    keys = hull_distance(tokens, sink)
    anywhere = (Fraction(1),) + (Fraction(0),) * (len(cloud) - 1)
    certificate = None
    if queries.inside:
        certificate = FarkasCertificate(queries.exact_weights or (), anywhere, "0 is in the hull of the queries")
    elif keys.inside:
        certificate = FarkasCertificate(anywhere, keys.exact_weights or (), "the sink is in the hull of the keys")
    return Representability(certificate is None, queries, keys, certificate)


def sink_margins(
    tokens: ArrayLike, sink: ArrayLike, matrix: ArrayLike, *, query_bias: ArrayLike | None = None
) -> NDArray[np.float64]:
    """How far each query prefers the sink to each key: (x_i^T B + b^T)(x_0 - x_j).

    Args:
        tokens: (n, d). sink: (d,).
        matrix: B, (d, d).
        query_bias: b = c W_K^T b_Q, (d,).

    Returns:
        (n, n); entry [i, j] is query i's margin over key j. All positive: a sink.

    Raises:
        TypeError, ValueError: bad input, named.
    """
    cloud = check_tokens("tokens", tokens)
    centre = check_sink(sink, cloud)
    weights = check_tokens("matrix", matrix)
    width = cloud.shape[1]
    if weights.shape != (width, width):
        raise ValueError(f"matrix must have shape {(width, width)}, got {weights.shape}")
    slopes = cloud @ weights
    if query_bias is not None:
        slopes = slopes + check_sink(query_bias, cloud, name="query_bias")
    return slopes @ (centre - cloud).T


def wendel_probability(n: int, d: int) -> Fraction:
    """The chance that 0 is not in the hull of n random tokens in R^d (Wendel 1962): the null for B1's first condition.

    For tokens in general position whose law does not change when any of them is turned to its negative.

    Returns:
        2^(1-n) sum_{k<d} C(n-1, k); 1 iff n <= d.

    Raises:
        ValueError: n or d below 1.
    """
    if n < 1 or d < 1:
        raise ValueError(f"n and d must be at least 1, got n = {n}, d = {d}")
    return Fraction(sum(comb(n - 1, k) for k in range(d)), 2 ** (n - 1))


def _weighted(weights: tuple[Fraction, ...], rows: list[list[Fraction]]) -> list[Fraction]:
    return [
        sum((w * x for w, x in zip(weights, column, strict=True)), Fraction(0)) for column in zip(*rows, strict=True)
    ]


def _lifted(tokens: ArrayLike) -> list[list]:
    return [[*row, 1] for row in np.asarray(tokens).tolist()]
