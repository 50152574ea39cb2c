"""B3: what a diagonal costs.

The least norm of B with x_i^T B (x_i - x_j) >= m for all j != i is a convex program. The derivation, with bounds
from the scatter matrix and with constructions, is in ``derivations.b3_diagonal_price``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import cos, inf, pi
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from numerics.price_program import Norm, Solver, least_norm_matrix, matrix_norm
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


@dataclass(frozen=True)
class DiagonalPrice:
    """The price of a diagonal with its proofs.

    Attributes:
        value: the norm of ``matrix``; within ``gap`` of the price; ``inf`` where no B makes the diagonal.
        lower: what the multipliers prove.
        matrix: a B that keeps every margin, (d, d); None where there is none.
        pairs: the (query, key) pairs that are asked for, (K, 2); key n is the sink.
        multipliers: lambda >= 0 on the pairs, (K,): sum lambda_k x_i (x_i - x_j)^T has dual norm 1, and
            m sum(lambda) is ``lower``; None where no B makes the diagonal.
        obstruction: rational weights on the pairs with sum weights_k x_i (x_i - x_j)^T = 0 exactly, the proof that no B
            makes the diagonal; None where one does.
    """

    value: float
    lower: float
    matrix: NDArray[np.float64] | None
    pairs: NDArray[np.int64]
    multipliers: NDArray[np.float64] | None
    obstruction: tuple[Fraction, ...] | None

    @property
    def representable(self) -> bool:
        """Some B makes the diagonal."""
        return self.obstruction is None

    @property
    def gap(self) -> float:
        """value - lower; 0.0 where both are infinite."""
        return self.value - self.lower if self.representable else 0.0


def diagonal_price(
    tokens: ArrayLike,
    *,
    sink: ArrayLike | None = None,
    margin: float = 1.0,
    norm: Norm = "nuclear",
    solvers: tuple[Solver, ...] = ("CLARABEL", "SCS"),
) -> DiagonalPrice:
    """The least norm of B that makes every query prefer its own key to every other key by the margin.

    Args:
        tokens: x_1..x_n as rows, (n, d), real or rational.
        sink: x_0, (d,): one more key to beat, but no query.
        margin: m > 0.
        norm: "nuclear", "fro" or "spectral".
        solvers: which solvers to ask, in turn.

    Returns:
        The price with matrix, multipliers and both sides. One token and no sink: nothing is asked for, the price is 0.
        Source: P2's question, our answer.

    Raises:
        TypeError, ValueError: bad input, named.
        ArithmeticError: no solver closed the gap to a part in a million.
    """
    cloud = check_tokens("tokens", tokens)
    m = check_margin(margin)
    zero = np.zeros((cloud.shape[1], cloud.shape[1]))
    matrix_norm(zero, norm)
    keys = cloud if sink is None else np.vstack([cloud, check_sink(sink, cloud)])
    pairs = _pairs(len(cloud), len(keys))
    if len(pairs) == 0:
        return DiagonalPrice(0.0, 0.0, zero, pairs, np.zeros(0), None)
    own, other = pairs.T

    def exact() -> tuple[list[list[Fraction]], list[list[Fraction]]]:
        rows = exact_rows(tokens)
        all_keys = rows if sink is None else [*rows, exact_row(sink)]
        gaps = [[x - y for x, y in zip(rows[i], all_keys[j], strict=True)] for i, j in pairs.tolist()]
        return [rows[i] for i in own.tolist()], gaps

    floats = are_floats(tokens) and (sink is None or are_floats(sink))
    differences = cloud[own] - keys[other] if floats else np.array(exact()[1], dtype=np.float64)
    solved = least_norm_matrix(cloud[own], differences, margin=m, norm=norm, exact=exact, solvers=solvers)
    return DiagonalPrice(solved.value, solved.lower, solved.matrix, pairs, solved.multipliers, solved.obstruction)


def diagonal_margins(tokens: ArrayLike, matrix: ArrayLike, *, sink: ArrayLike | None = None) -> NDArray[np.float64]:
    """How far each query prefers its own key: x_i^T B (x_i - x_j), for every pair that is asked for.

    Args:
        tokens: (n, d). matrix: B, (d, d). sink: one more key, (d,).

    Returns:
        (K,), in the order of ``DiagonalPrice.pairs``. All positive: a diagonal.

    Raises:
        TypeError, ValueError: bad input, named.
    """
    cloud, B = check_tokens("tokens", tokens), check_tokens("matrix", matrix)
    if B.shape != (cloud.shape[1], cloud.shape[1]):
        raise ValueError(f"matrix must have shape {(cloud.shape[1], cloud.shape[1])}, got {B.shape}")
    keys = cloud if sink is None else np.vstack([cloud, check_sink(sink, cloud)])
    own, other = _pairs(len(cloud), len(keys)).T
    return np.einsum("kp,pr,kr->k", cloud[own], B, cloud[own] - keys[other])


def scatter_bounds(tokens: ArrayLike, *, margin: float = 1.0) -> dict[Norm, float]:
    """Lower bounds of the diagonal's price (x_0 no key): m(n-1) over a norm of C = sum_i (x_i - mu)(x_i - mu)^T (ours).

    Args:
        tokens: (n, d). margin: m > 0.

    Returns:
        The bound for each norm; ``inf`` where all of two or more tokens are one. Equal to the price for orthonormal
        tokens and for a regular simplex whose centroid is orthogonal to its edges; below it in general.

    Raises:
        TypeError, ValueError: bad input, named.
        ArithmeticError: the bound is out of float64's range, or the tokens differ by less than float64 can tell.
    """
    cloud, m = check_tokens("tokens", tokens), check_margin(margin)
    exact = exact_rows(tokens)
    if all(row == exact[0] for row in exact):
        return dict.fromkeys(get_args(Norm), inf if len(cloud) > 1 else 0.0)
    centred = cloud - cloud.mean(0)
    scale = float(np.abs(centred).max())
    if not 0 < scale < inf:
        raise ArithmeticError(f"the scatter of the tokens is out of float64's range: their largest distance is {scale}")
    spread = np.linalg.svd(centred / scale, compute_uv=False) ** 2  # the eigenvalues of C, at scale 1
    sizes: dict[Norm, float] = {
        "nuclear": float(spread.max()),
        "fro": float(np.linalg.norm(spread)),
        "spectral": float(spread.sum()),
    }
    bounds: dict[Norm, float] = {norm: m / scale * (len(cloud) - 1) / size / scale for norm, size in sizes.items()}
    if max(bounds.values()) == inf:
        raise ArithmeticError(f"the bound is out of float64's range: margin {m}, tokens {scale:.1e} from their mean")
    return bounds


def circle_diagonal(tokens: ArrayLike, *, margin: float = 1.0) -> NDArray[np.float64]:
    """A B of rank at most 2 that makes the diagonal of orthonormal tokens, at nuclear price m n/(1 - cos(2 pi/n)).

    Ours. The tokens are sent to n evenly spaced points of a circle: x_i^T B x_j = kappa cos(2 pi (i - j)/n).

    Args:
        tokens: orthonormal rows, (n, d), n >= 2. margin: m > 0.

    Returns:
        B, (d, d), positive semidefinite.

    Raises:
        TypeError, ValueError: bad input, fewer than two tokens, or tokens that are not orthonormal.
    """
    cloud, m = check_tokens("tokens", tokens), check_margin(margin)
    n = len(cloud)
    if n < 2 or np.abs(cloud @ cloud.T - np.eye(n)).max() > 1e-8:
        raise ValueError("tokens must be two or more orthonormal rows")
    angles = 2 * pi * np.arange(n) / n
    points = np.stack([np.cos(angles), np.sin(angles)])
    embedded = points @ cloud
    return m / (1 - cos(2 * pi / n)) * embedded.T @ embedded


@dataclass(frozen=True)
class RankPrices:
    """What a diagonal costs when the rank of B is limited, in the nuclear norm.

    Attributes:
        ranks: (R,).
        values: the nuclear norm of each matrix, (R,): upper bounds of the price at that rank; ``inf`` where none was
            found, and at rank 1 with three tokens or more, where there is none.
        matrices: a B of at most that rank that keeps every margin, or None.
        lower: the price without a limit of rank, as the multipliers prove it: a lower bound at every rank.
    """

    ranks: tuple[int, ...]
    values: tuple[float, ...]
    matrices: tuple[NDArray[np.float64] | None, ...]
    lower: float


def diagonal_price_by_rank(
    tokens: ArrayLike,
    *,
    sink: ArrayLike | None = None,
    margin: float = 1.0,
    ranks: Sequence[int] | None = None,
    starts: int = 8,
    seed: int = 0,
) -> RankPrices:
    """Price against rank: B = P^T K with P, K of ``rank`` rows, found by descent from random starts.

    Each value is that of a matrix that keeps every margin, so it is a true upper bound; the convex price bounds all
    from below. Where the two meet the price at that rank is known; in between it is open (the problem is not convex).

    Args:
        tokens: (n, d). sink: one more key, (d,). margin: m > 0.
        ranks: 1 .. min(n, d) by default.
        starts: random starts per rank.
        seed: of the starts.

    Returns:
        The two sides for each rank.

    Raises:
        TypeError, ValueError: bad input, or a rank below 1.
        ArithmeticError: the convex price was not proven.
    """
    cloud, m = check_tokens("tokens", tokens), check_margin(margin)
    free = diagonal_price(tokens, sink=sink, margin=m)
    wanted = tuple(range(1, min(cloud.shape) + 1)) if ranks is None else tuple(ranks)
    if not wanted:
        raise ValueError("ranks must name at least one rank, got none")
    for rank in wanted:
        check_count("ranks", rank)
    generator = np.random.default_rng(seed)
    best: dict[int, NDArray[np.float64] | None] = {0: None}
    for rank in range(1, max(wanted) + 1):
        found = [best[rank - 1]]
        if free.matrix is not None and (rank > 1 or len(cloud) < 3):
            found += _descents(cloud, free, sink, m, rank, starts, generator)
        kept = [B for B in found if B is not None]
        best[rank] = min(kept, key=lambda B: matrix_norm(B, "nuclear")) if kept else None
    matrices = tuple(best[rank] for rank in wanted)
    values = tuple(inf if B is None else matrix_norm(B, "nuclear") for B in matrices)
    return RankPrices(wanted, values, matrices, free.lower)


def _descents(
    cloud: Cloud,
    free: DiagonalPrice,
    sink: ArrayLike | None,
    margin: float,
    rank: int,
    starts: int,
    generator: np.random.Generator,
) -> list[NDArray[np.float64]]:
    """Matrices of at most the given rank that keep every margin: local minima of (||P||_F^2 + ||K||_F^2)/2."""
    assert free.matrix is not None
    left, values, right = np.linalg.svd(free.matrix)
    roots = np.sqrt(values[:rank])[:, None]
    width, size = cloud.shape[1], min(rank, cloud.shape[1])
    spread = np.sqrt(values.mean())
    first = np.stack([roots * left[:, :size].T, roots * right[:size]])
    beginnings = [first] + [spread * generator.standard_normal((2, size, width)) for _ in range(starts)]
    keys = cloud if sink is None else np.vstack([cloud, check_sink(sink, cloud)])
    own, other = free.pairs.T
    queries, gaps = cloud[own], cloud[own] - keys[other]

    def slack(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        P, K = flat.reshape(2, size, width)
        return np.einsum("kr,kr->k", queries @ P.T, gaps @ K.T) / margin - 1

    def slack_slope(flat: NDArray[np.float64]) -> NDArray[np.float64]:
        P, K = flat.reshape(2, size, width)
        by_p = np.einsum("kr,kp->krp", gaps @ K.T, queries)
        by_k = np.einsum("kr,kp->krp", queries @ P.T, gaps)
        return np.stack([by_p, by_k], axis=1).reshape(len(queries), -1) / margin

    found = []
    for beginning in beginnings:
        solved = minimize(
            lambda flat: flat @ flat / 2,
            beginning.ravel(),
            jac=lambda flat: flat,
            constraints={"type": "ineq", "fun": slack, "jac": slack_slope},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        P, K = solved.x.reshape(2, size, width)
        B = P.T @ K
        reach = diagonal_margins(cloud, B, sink=sink).min()
        if np.isfinite(B).all() and reach > 0:
            found.append(B * (margin / reach))
    return found


def _pairs(queries: int, keys: int) -> NDArray[np.int64]:
    """Every query with every key but its own, (K, 2)."""
    return np.array([(i, j) for i in range(queries) for j in range(keys) if i != j], dtype=np.int64).reshape(-1, 2)
