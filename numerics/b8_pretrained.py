"""B8: prices in pretrained heads: causal masks, margins that differ between queries, grouped keys, rotary positions.

What B1, B2 and B3 become there. The derivation is in ``derivations.b8_pretrained``. A general pattern has no closed
form; its price is bracketed by the alternating direction method of multipliers, and only what is proven is returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, sqrt
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from numerics.convex_hulls import HullDistance, hull_distance
from numerics.price_program import matrix_norm
from numerics.token_clouds import Cloud, check_count, check_sink, check_tokens, row_lengths

PricedPattern = Literal["sink", "diagonal"]
Pairing = Literal["halves", "neighbours"]

SETTLED = 300
"""Iterations after which the penalties stay as they are; changed for ever, they often stall the two sides."""

REACH = 1000
"""Prices and multipliers stay between 2^-1000 and 2^1000, so that no digit of them is lost at the ends of float64."""


@dataclass(frozen=True)
class PriceBracket:
    """Two proven sides of a price: lower <= price <= upper.

    Attributes:
        lower: what the multipliers prove. upper: the sum of the nuclear norms of ``matrices``; ``inf`` where none were
            found. Both ``inf``: proven that no matrices make the pattern. Both 0: nothing is asked for.
        multipliers: lambda >= 0, (n, N): M_r = sum_ij lambda_ij conj(q_ir) (k_target(i)r - k_jr)^T, with the tokens
            turned to their positions, has spectral norm at most 1 in every plane r, and sum_ij m_i lambda_ij is
            ``lower``. Columns are the keys, the sink first where one is given. None where ``lower`` is infinite.
        matrices: Z_r of some planes, (R', d_q, d_k), real without positions: they keep every margin; None where there
            are none.
        planes: which frequencies the matrices belong to, (R',).
    """

    lower: float
    upper: float
    multipliers: NDArray[np.float64] | None
    matrices: NDArray | None
    planes: tuple[int, ...] = ()

    @property
    def gap(self) -> float:
        """upper/lower - 1; 0.0 where both sides are equal."""
        return 0.0 if self.upper == self.lower else inf if self.lower == 0 else self.upper / self.lower - 1


def price_of_margins(tokens: ArrayLike, sink: ArrayLike, margins: ArrayLike, *, query_bias: bool = False) -> float:
    """The price of a bidirectional sink with a margin for each query (B8.margins): exact, without positions.

    Args:
        tokens: x_1..x_n, (n, d). sink: x_0, (d,).
        margins: m_i, (n,) or one number; a query whose margin is not positive is not asked.
        query_bias: a query is (x_i, 1).

    Returns:
        1/(dist(0, conv{x_i/m_i}) dist(x_0, conv{x_j})), the least nuclear (or Schatten) norm of B; ``inf`` where no B
        does it; 0.0 where no query is asked.

    Raises:
        ArithmeticError: undecided, or the price is out of float64's reach; it goes as m/|x|^2.
    """
    cloud = check_tokens("tokens", tokens)
    centre = check_sink(sink, cloud)
    m = _check_margins(margins, len(cloud))
    if not (m > 0).any():
        return 0.0
    _check_scale(_with_ones(cloud, query_bias), np.vstack([centre, cloud]), m)
    queries, keys = _query_hull(cloud, m, query_bias), hull_distance(tokens, centre)
    return inf if queries.inside or keys.inside else _check_price(float(1 / queries.distance / keys.distance))


def causal_sink_bracket(
    tokens: ArrayLike, sink: ArrayLike, *, margins: ArrayLike = 1.0, query_bias: bool = False
) -> PriceBracket:
    """The price of a causal sink between the best cut and the bidirectional price (B8.cut). No solver, no positions.

    Query i must prefer the sink to the keys j <= i. Arguments as in ``price_of_margins``.

    Raises:
        ArithmeticError: as there, or the sink is so near to a token that no matrix in float64 keeps the margins.
    """
    cloud = check_tokens("tokens", tokens)
    centre = check_sink(sink, cloud)
    m = _check_margins(margins, len(cloud))
    n, width = cloud.shape
    asked = np.flatnonzero(m > 0)
    if len(asked) == 0:
        return PriceBracket(0.0, 0.0, np.zeros((n, n + 1)), np.zeros((1, width + query_bias, width)), (0,))
    _check_scale(_with_ones(cloud, query_bias), np.vstack([centre, cloud]), m)
    # Only cuts at an asked query count: up to the next one, a later cut adds keys and loses no query.
    queries: dict[int, HullDistance] = {}
    keys: dict[int, HullDistance] = {}

    def query_hull(place: int) -> HullDistance:
        if place not in queries:
            queries[place] = _query_hull(cloud, np.where(np.arange(n) >= asked[place], m, 0.0), query_bias)
        return queries[place]

    def key_hull(place: int) -> HullDistance:
        if place not in keys:
            keys[place] = hull_distance(cloud[: asked[place] + 1], centre)
        return keys[place]

    first, last = 0, len(asked) - 1
    if query_hull(first).inside or key_hull(last).inside:
        # The cuts at the two ends say so: all queries with key 1, and the last query with all keys.
        return PriceBracket(inf, inf, None, None)

    def bound(start: int, end: int) -> float:
        return 1 / query_hull(start).distance / key_hull(end).distance

    best = max((first, last), key=lambda place: bound(place, place))
    ranges = [(first, last)]
    while ranges:
        # Later cuts have fewer queries and more keys, so no cut in the range beats its first queries and last keys.
        start, end = ranges.pop()
        if end - start > 1 and bound(start, end) > bound(best, best):
            middle = (start + end) // 2
            best = max((best, middle), key=lambda place: bound(place, place))
            ranges += [(start, middle), (middle, end)]

    return _product_bracket(
        cloud, centre, m, query_bias, (query_hull(best), key_hull(best)), (query_hull(first), key_hull(last))
    )


def pattern_price(
    tokens: ArrayLike,
    *,
    pattern: PricedPattern,
    sink: ArrayLike | None = None,
    causal: bool = False,
    margins: ArrayLike = 1.0,
    query_bias: bool = False,
    key_bias: bool = False,
    frequencies: ArrayLike | None = None,
    positions: ArrayLike | None = None,
    tolerance: float = 0.05,
    max_iterations: int = 1000,
) -> PriceBracket:
    """The least sum of nuclear norms that makes the pattern, between two proven sides (B8.rotary-price).

    Multiply by sqrt(d_k): no W_Q, W_K that make the pattern have (||W_Q||_F^2 + ||W_K||_F^2)/2 below it.

    Args:
        tokens: x_1..x_n, (n, d): queries and keys.
        pattern: "sink": query i prefers key 0, the sink, to the keys 1..n. "diagonal": query i prefers its own key to
            every other key, the sink too where one is given.
        sink: x_0, (d,), a key in front of the tokens, no query. Needed for "sink".
        causal: only the keys that do not come after the query count.
        margins: m_i, (n,) or one number; a query whose margin is not positive is not asked.
        query_bias: a query is (x_i, 1). key_bias: a key is (x_j, 1); without positions that changes nothing.
        frequencies: theta_r, (R,), radians a position; by default there is no rotation: one real matrix.
        positions: p, of the keys in order, (n + 1,) with a sink, (n,) without; 0, 1, 2, ... by default.
        tolerance: stop at upper/lower - 1 <= tolerance. max_iterations: stop there in any case.

    Returns:
        The bracket, proven however the iterations went, its rounding errors counted. A sink without positions that
        nothing makes has ``inf`` on both sides; for other patterns an enormous ``lower`` says almost the same.

    Raises:
        ArithmeticError: the price is out of float64's reach; it goes as m/|x|^2.
    """
    if pattern not in get_args(PricedPattern):
        raise ValueError(f"pattern must be one of 'sink', 'diagonal', got {pattern!r}")
    if pattern == "sink" and sink is None:
        raise ValueError("pattern 'sink' needs a sink, got None")
    check_count("max_iterations", max_iterations, least=0)
    if not 0 < tolerance < inf:
        raise ValueError(f"tolerance must be positive and finite, got {tolerance}")
    cloud = check_tokens("tokens", tokens)
    m = _check_margins(margins, len(cloud))
    keys = cloud if sink is None else np.vstack([check_sink(sink, cloud), cloud])
    n, N = len(cloud), len(keys)
    own = np.arange(n) + (N - n)
    target = np.zeros(n, dtype=int) if pattern == "sink" else own
    wanted = np.ones((n, N), dtype=bool) if not causal else np.arange(N) <= own[:, None]
    wanted[np.arange(n), target] = False
    wanted[m <= 0] = False
    asked = wanted.any(1)
    planes = None if frequencies is None else _check_vector("frequencies", frequencies)
    places = np.arange(N, dtype=float) if positions is None else _check_vector("positions", positions, N)
    queries, keys = _with_ones(cloud, query_bias), _with_ones(keys, key_bias)
    if not asked.any():
        return PriceBracket(0.0, 0.0, np.zeros((n, N)), np.zeros((1, queries.shape[1], keys.shape[1])), (0,))
    if not queries[asked].any(1).all():
        return PriceBracket(inf, inf, None, None)  # a query 0 has no margin
    _check_scale(queries[asked], keys if planes is not None else keys[:, : cloud.shape[1]], m[asked])

    start = _sink_bracket(tokens, cast(ArrayLike, sink), m, causal, query_bias) if pattern == "sink" else None
    if start is not None and start.matrices is not None and key_bias:
        start = replace(start, matrices=np.pad(start.matrices, ((0, 0), (0, 0), (0, 1))))
    if start is not None and planes is None and start.gap <= tolerance:
        return start
    game = _Game(queries[asked], keys, target[asked], wanted[asked], m[asked], planes, places[own[asked]], places)
    found = game.solve(start, np.flatnonzero(asked), tolerance, max_iterations)
    multipliers = np.zeros((n, N))
    multipliers[asked] = found.multipliers
    return replace(found, multipliers=multipliers)


def rotary_frequencies(d_k: int, base: float = 10_000.0) -> NDArray[np.float64]:
    """theta_r = base^(-2 r/d_k), r = 0 .. d_k/2 - 1 (Su et al. 2021), (d_k/2,)."""
    check_count("d_k", d_k, least=2)
    if d_k % 2 or not 0 < base < inf:
        raise ValueError(f"d_k must be even and base positive and finite, got {d_k} and {base}")
    return base ** (-2 * np.arange(d_k // 2) / d_k)


def rotary_planes(weights: ArrayLike, *, pairing: Pairing = "halves") -> NDArray[np.complex128]:
    """The rows of a projection as complex rows, one for each plane: (d_k, d) -> (d_k/2, d).

    Args:
        weights: W_Q or W_K, (d_k, d), or a bias (d_k, 1).
        pairing: which rows share a plane: "halves" r and r + d_k/2 (Llama's code), "neighbours" 2r and 2r + 1.
    """
    rows = check_tokens("weights", weights)
    if len(rows) % 2:
        raise ValueError(f"weights must have an even number of rows, got {len(rows)}")
    if pairing not in get_args(Pairing):
        raise ValueError(f"pairing must be one of 'halves', 'neighbours', got {pairing!r}")
    half = len(rows) // 2
    real, imaginary = (rows[:half], rows[half:]) if pairing == "halves" else (rows[::2], rows[1::2])
    return real + 1j * imaginary


def rotary_scores(
    tokens: ArrayLike,
    w_q: ArrayLike,
    w_k: ArrayLike,
    frequencies: ArrayLike,
    *,
    positions: ArrayLike | None = None,
    pairing: Pairing = "halves",
    b_q: ArrayLike | None = None,
    b_k: ArrayLike | None = None,
) -> NDArray[np.float64]:
    """s_ij = c Re sum_r e^{i theta_r (p_j - p_i)} conj(w_r . x_i) (z_r . x_j), c = 1/sqrt(d_k) (B8.rotary).

    Args:
        tokens: (T, d), all of them, the sink too where there is one.
        w_q, w_k: (d_k, d). frequencies: (d_k/2,). positions: (T,), 0, 1, 2, ... by default.
        pairing: as in ``rotary_planes``. b_q, b_k: (d_k,), added before the rotation.

    Returns:
        (T, T).
    """
    cloud = check_tokens("tokens", tokens)
    w, z = (rotary_planes(weights, pairing=pairing) for weights in (w_q, w_k))
    if w.shape != z.shape or w.shape[1] != cloud.shape[1]:
        raise ValueError(
            f"w_q and w_k must have one shape (d_k, {cloud.shape[1]}), got {np.shape(w_q)} and {np.shape(w_k)}"
        )
    angles = _check_vector("frequencies", frequencies, len(w))
    places = (
        np.arange(len(cloud), dtype=float) if positions is None else _check_vector("positions", positions, len(cloud))
    )
    queries, keys = cloud @ w.T, cloud @ z.T
    if b_q is not None:
        queries = queries + rotary_planes(_check_vector("b_q", b_q, 2 * len(w))[:, None], pairing=pairing)[:, 0]
    if b_k is not None:
        keys = keys + rotary_planes(_check_vector("b_k", b_k, 2 * len(w))[:, None], pairing=pairing)[:, 0]
    turns = np.exp(1j * np.outer(places, angles))
    return ((queries * turns).conj() @ (keys * turns).T).real / sqrt(2 * len(w))


def head_cost(w_q: ArrayLike, w_k: ArrayLike, *, rotary: bool = False, pairing: Pairing = "halves") -> float:
    """What a head spends, in the unit of the prices: at most (||W_Q||_F^2 + ||W_K||_F^2)/(2 sqrt(d_k)).

    Args:
        w_q: (d_k, d_q), w_k: (d_k, d); a bias counts as one more column.
        rotary: the head rotates queries and keys. pairing: as in ``rotary_planes``.

    Returns:
        ||c W_Q^T W_K||_* without rotation; c sum_r |w_r| |z_r| with it. At least the price of whatever the head does.
    """
    return grouped_cost(check_tokens("w_q", w_q)[None], w_k, rotary=rotary, pairing=pairing)


def grouped_cost(w_q: ArrayLike, w_k: ArrayLike, *, rotary: bool = False, pairing: Pairing = "halves") -> float:
    """What g heads that share their keys spend: at most (sum_h ||W_Q,h||_F^2 + ||W_K||_F^2)/(2 sqrt(d_k)) (B8.grouped).

    Args:
        w_q: (g, d_k, d_q). w_k: (d_k, d). rotary, pairing: as in ``head_cost``.

    Returns:
        The nuclear norm of the B_h = c W_Q,h^T W_K on top of each other, (g d_q, d), without rotation;
        c sum_r sqrt(sum_h |w_hr|^2) |z_r| with it.
    """
    heads = np.asarray(w_q, dtype=np.float64)
    if heads.ndim != 3 or 0 in heads.shape:
        raise ValueError(f"w_q must have shape (g, d_k, d_q), got {heads.shape}")
    flat, keys = check_tokens("w_q", heads.reshape(len(heads), -1)), check_tokens("w_k", w_k)
    d_k = heads.shape[1]
    if len(keys) != d_k:
        raise ValueError(f"w_k must have {d_k} rows, as w_q has, got shape {keys.shape}")
    if rotary:
        w = np.stack([rotary_planes(head.reshape(d_k, -1), pairing=pairing) for head in flat])
        sizes = np.linalg.norm(w, axis=(0, 2)) * np.linalg.norm(rotary_planes(keys, pairing=pairing), axis=1)
        return float(sizes.sum() / sqrt(d_k))
    # ||Q^T K||_* of two tall factors: their triangles have the same product up to rotations.
    stacked = heads.transpose(1, 0, 2).reshape(d_k, -1)
    left, right = np.linalg.qr(stacked.T).R, np.linalg.qr(keys.T).R
    return matrix_norm(left @ right.T, "nuclear") / sqrt(d_k)


def grouped_price(prices: Sequence[float]) -> float:
    """What g patterns cost at least in heads that share their keys: sqrt(sum_h price_h^2) (B8.grouped).

    Args:
        prices: of each head's own pattern, or lower bounds of them.

    Returns:
        A lower bound of ``grouped_cost``; the price itself for bidirectional sinks without positions.
    """
    sizes = np.asarray(prices, dtype=np.float64)
    if sizes.ndim != 1 or len(sizes) == 0 or not (sizes >= 0).all():
        raise ValueError(f"prices must be one or more numbers, none negative, got {prices}")
    return float(np.sqrt((sizes**2).sum()))


class _Game:
    """One pattern to price: min sum_r ||Z_r||_* over Re sum_r q_i^T conj(e_ir) Z_r e_jr (k_target(i) - k_j) >= m_i.

    Everything happens in the spans of the queries and of the keys, Q = U_q diag(s_q) V_q^T and K alike, where the map
    from Z_r to scores is a product of entries. Rows are scaled to unit queries, margins to at most 1.
    """

    def __init__(
        self,
        queries: Cloud,
        keys: Cloud,
        target: NDArray[np.int64],
        wanted: NDArray[np.bool_],
        margins: NDArray[np.float64],
        frequencies: NDArray[np.float64] | None,
        query_places: NDArray[np.float64],
        key_places: NDArray[np.float64],
    ):
        self.rows, self.target, self.wanted = np.arange(len(queries)), target, wanted
        self.lengths = row_lengths(queries)
        scaled = margins / self.lengths
        largest = scaled.max()
        self.margins = scaled / largest
        if frequencies is None:
            # Margins see differences of keys only: the common part of the keys would only spoil the conditioning.
            moved, self.turns = keys - keys.mean(0), None
        else:
            moved = keys
            self.turns = tuple(np.exp(1j * np.outer(frequencies, places)) for places in (query_places, key_places))
        self.number = 1 if frequencies is None else len(frequencies)
        self.U_q, self.s_q, self.V_q = np.linalg.svd(queries / self.lengths[:, None], full_matrices=False)
        size = row_lengths(keys).max() or 1.0
        self.U_k, s_k, self.V_k = np.linalg.svd(moved / size, full_matrices=False)
        self.s_k = s_k / (s_k[0] or 1.0)
        self.map = np.outer(self.s_q, self.s_k)
        self.key_size = float(size * (s_k[0] or 1.0))
        self.factor = float(largest / self.key_size)  # a true price over the price in the scaled game
        self.slowest = 0 if frequencies is None else int(np.abs(frequencies).argmin())
        self.rounding = 16 * (sum(queries.shape) + sum(keys.shape)) * np.finfo(float).eps / (s_k[0] or 1.0)

    def turned(self, tables: NDArray, planes: list[int], *, back: bool = False) -> NDArray:
        """Tables over (query, key) with every plane's rotation put on, or taken off."""
        if self.turns is None:
            return tables
        on_queries, on_keys = (turn[planes] for turn in self.turns)
        if back:
            return on_queries[:, :, None] * tables * on_keys.conj()[:, None, :]
        return on_queries.conj()[:, :, None] * tables * on_keys[:, None, :]

    def reduced(self, tables: NDArray) -> NDArray:
        """U_q^T S U_k."""
        return self.U_q.T @ tables @ self.U_k

    def scores(self, matrices: NDArray, planes: list[int]) -> NDArray[np.float64]:
        """Re sum_r of the rotated U_q (map * Z_r) U_k^T, (n, N)."""
        return np.real(self.turned(self.U_q @ (self.map * matrices) @ self.U_k.T, planes)).sum(0)

    def lower(self, multipliers: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], float]:
        """What multipliers prove: the bound, ||M_r|| for every plane, and the size that makes the bound safe."""
        table = -multipliers
        table[self.rows, self.target] += multipliers.sum(1)
        planes = list(range(self.number))
        forms = self.map * self.reduced(self.turned(table[None], planes))
        norms = np.linalg.norm(forms, 2, axis=(1, 2))
        size = float(norms.max() + self.rounding * 2 * multipliers.sum())
        total = float((multipliers.sum(1) * self.margins).sum())
        return (0.0 if total == 0 else total / size), norms, size

    def upper(self, matrices: NDArray, planes: list[int]) -> tuple[float, float]:
        """What matrices prove: the bound (``inf`` where a margin is not positive), and what to divide them by."""
        values = np.linalg.svd(matrices, compute_uv=False).sum()
        scores = self.scores(matrices, planes)
        leads = scores[self.rows, self.target][:, None] - scores - 2 * self.rounding * values
        reach = float(np.where(self.wanted, leads / self.margins[:, None], inf).min())
        return (float(values / reach), reach) if reach > 0 else (inf, 0.0)

    def project(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The nearest scores that keep every margin, and the multipliers: how far each key was pushed down."""
        pushed = np.where(self.wanted, scores + self.margins[:, None], -inf)
        falling = -np.sort(-pushed, axis=1)
        sums = np.cumsum(np.where(np.isfinite(falling), falling, 0.0), axis=1)
        own = scores[self.rows, self.target][:, None]
        levels = (own + np.hstack([np.zeros_like(own), sums])) / np.arange(1, sums.shape[1] + 2)
        count = (falling > levels[:, :-1]).sum(1)
        multipliers = np.maximum(pushed - levels[self.rows, count][:, None], 0.0)
        nearest = scores - multipliers
        nearest[self.rows, self.target] += multipliers.sum(1)
        return nearest, multipliers

    def solve(
        self, start: "PriceBracket | None", asked: NDArray[np.int64], tolerance: float, iterations: int
    ) -> PriceBracket:
        """Boyd et al. 2011: prices and margins on one copy of (Z, S), S = the scores of Z on the other."""
        best = _Best(self)
        if start is not None and start.multipliers is not None:
            best.try_multipliers(start.multipliers[asked] * self.lengths[:, None])
        if start is not None and start.matrices is not None:
            best.try_matrices(self.V_q @ start.matrices @ self.V_k.T, [self.slowest])
        best.try_multipliers(self.wanted.astype(float))
        if self.map.max() > 0 and best.upper > (1 + tolerance) * best.lower:
            self.iterate(best, tolerance, iterations)
        return best.bracket()

    def iterate(self, best: "_Best", tolerance: float, iterations: int) -> None:
        """Alternate until the sides meet. Planes join when their ||M_r|| is the largest: they would be of use."""
        planes = [int(np.argmax(best.norms))]
        kind = float if self.turns is None else complex
        on_matrices = 1.0  # the two penalties
        on_scores = 9.0 / (_typical(self.s_q) * _typical(self.s_k))
        Z = np.zeros((1, *self.map.shape), dtype=kind)
        S = np.zeros((1, *self.wanted.shape), dtype=kind)
        u, v = Z.copy(), S.copy()  # scaled multipliers of the copies
        for step in range(1, iterations + 1):
            cheap = _shrink(Z - u, 1 / on_matrices)
            aim = S - v
            total = np.real(self.turned(aim, planes)).sum(0)
            kept, multipliers = self.project(total)
            kept = aim + self.turned((kept - total)[None] / len(planes), planes, back=True)
            # Over-relaxed by 1.6, as is usual.
            near_Z, near_S = 1.6 * cheap - 0.6 * Z + u, 1.6 * kept - 0.6 * S + v
            old_Z, old_S = Z, S
            Z = (on_matrices * near_Z + on_scores * self.map * self.reduced(near_S)) / (
                on_matrices + on_scores * self.map**2
            )
            S = self.U_q @ (self.map * Z) @ self.U_k.T
            u, v = near_Z - Z, near_S - S
            if step % 10 and step != iterations:
                continue
            norms = best.try_multipliers(multipliers)
            best.try_matrices(cheap, planes)
            best.try_matrices(Z, planes)
            # Near 1/rounding the multipliers cancel: nothing makes the pattern, as far as float64 can tell.
            if best.upper <= (1 + tolerance) * best.lower or best.lower * self.rounding > 0.01:
                return
            apart = on_matrices * _square(cheap - Z) + on_scores * _square(kept - S)
            moved = on_matrices * _square(Z - old_Z) + on_scores * _square(S - old_S)
            change = float(np.clip((apart / max(moved, 1e-300)) ** 0.25, 0.5, 2.0))
            # Convergence is proven for fixed penalties only, so they settle.
            if step <= SETTLED and not 1 / 1.2 < change < 1.2:
                on_matrices, on_scores, u, v = on_matrices * change, on_scores * change, u / change, v / change
            worst = int(np.argmax(norms))
            if worst not in planes and norms[worst] > (1 + tolerance / 4) * norms[planes].max():
                common = np.real(self.turned(v[:1], planes[:1]))
                joined = self.turned(common, [worst], back=True)
                Z, S = (np.concatenate([part, np.zeros_like(part[:1])]) for part in (Z, S))
                v = np.concatenate([v, joined])
                u = np.concatenate([u, -on_scores / on_matrices * self.map * self.reduced(joined)])
                planes.append(worst)


class _Best:
    """The best proofs so far, in the units of the scaled game."""

    def __init__(self, game: _Game):
        self.game = game
        self.lower, self.upper = 0.0, inf
        self.multipliers = np.zeros(game.wanted.shape)
        self.matrices: NDArray | None = None
        self.planes: list[int] = []
        self.norms = np.zeros(game.number)

    def try_multipliers(self, multipliers: NDArray[np.float64]) -> NDArray[np.float64]:
        total = multipliers.sum()
        if total == 0:
            return self.norms
        bound, norms, size = self.game.lower(multipliers / total)
        if bound > self.lower:
            self.lower, self.multipliers, self.norms = bound, multipliers / total / size, norms
        return norms

    def try_matrices(self, matrices: NDArray, planes: list[int]) -> None:
        bound, reach = self.game.upper(matrices, planes)
        if bound < self.upper:
            self.upper, self.matrices, self.planes = bound, matrices / reach, list(planes)

    def bracket(self) -> PriceBracket:
        game = self.game
        _check_price((self.lower if self.upper == inf else self.upper) * game.factor)
        matrices = None if self.matrices is None else game.factor * (game.V_q.T @ self.matrices @ game.V_k)
        multipliers = self.multipliers / (game.lengths[:, None] * game.key_size)
        return PriceBracket(
            self.lower * game.factor, self.upper * game.factor, multipliers, matrices, tuple(self.planes)
        )


def _shrink(matrices: NDArray, threshold: float) -> NDArray:
    """Every singular value less the threshold, or 0: the proximal map of the nuclear norm."""
    tall = matrices.shape[1] >= matrices.shape[2]
    adjoint = matrices.conj().swapaxes(1, 2)
    squares, vectors = np.linalg.eigh(adjoint @ matrices if tall else matrices @ adjoint)
    values = np.sqrt(np.maximum(squares, 0.0))
    shares = 1 - np.divide(threshold, values, out=np.ones_like(values), where=values > threshold)
    map_ = (vectors * shares[:, None, :]) @ vectors.conj().swapaxes(1, 2)
    return matrices @ map_ if tall else map_ @ matrices


def _typical(values: NDArray[np.float64]) -> float:
    """The geometric mean of the singular values that are not rounding errors."""
    return float(np.exp(np.log(values[values > 1e-9 * values[0]]).mean()))


def _square(tables: NDArray) -> float:
    return float(np.linalg.norm(tables) ** 2)


def _sink_bracket(
    tokens: ArrayLike, sink: ArrayLike, margins: NDArray[np.float64], causal: bool, query_bias: bool
) -> PriceBracket | None:
    """A sink's bracket without positions and without iterations; None where floats cannot tell."""
    try:
        if causal:
            return causal_sink_bracket(tokens, sink, margins=margins, query_bias=query_bias)
        cloud = check_tokens("tokens", tokens)
        hulls = _query_hull(cloud, margins, query_bias), hull_distance(tokens, sink)
        if any(hull.inside for hull in hulls):
            return PriceBracket(inf, inf, None, None)
        return _product_bracket(cloud, check_sink(sink, cloud), margins, query_bias, hulls, hulls)
    except ArithmeticError:
        return None


def _product_bracket(
    cloud: Cloud,
    sink: Cloud,
    margins: NDArray[np.float64],
    query_bias: bool,
    asked: tuple[HullDistance, HullDistance],
    enough: tuple[HullDistance, HullDistance],
) -> PriceBracket:
    """The rank-1 proofs of two hull distances: multipliers from pairs that are asked, a matrix for all that may be.

    Args:
        asked: the hulls of the last queries that are asked and of the first keys; every such pair is asked for.
        enough: the hulls of all asked queries and all their keys.
    """
    alpha, beta = (hull.weights for hull in asked)
    every = np.flatnonzero(margins > 0)
    chosen = every[-len(alpha) :]
    points = _with_ones(cloud, query_bias)[every] / margins[every, None]
    gaps = sink - cloud[: len(enough[1].weights)]
    best = _check_price(1 / enough[0].lower / enough[1].lower)
    # Each entry of the matrix is rounded by a part of itself, which long queries and keys feel where hulls are near.
    longest = row_lengths(points).max() * row_lengths(gaps).max()
    rounding = 4 * np.finfo(float).eps * (points.shape[1] + cloud.shape[1] + longest * best)
    if rounding > 0.5:
        raise ArithmeticError(
            f"no matrix in float64 keeps the margins: the sink is {enough[1].distance:.1e} from the hull of the keys, "
            f"the queries {enough[0].distance:.1e} from that of 0 beside margins of 1"
        )
    upper = best / (1 - rounding)
    lower = 1 / hypot(*(alpha @ points[-len(alpha) :])) / hypot(*(beta @ gaps[: len(beta)]))
    multipliers = np.zeros((len(cloud), len(cloud) + 1))
    multipliers[chosen, 1 : len(beta) + 1] = lower * np.outer(alpha / margins[chosen], beta)
    toward_queries, toward_sink = enough[0].offset / enough[0].distance, -enough[1].offset / enough[1].distance
    return PriceBracket(
        float(lower), float(upper), multipliers, upper * np.outer(toward_queries, toward_sink)[None], (0,)
    )


def _with_ones(rows: Cloud, lifted: bool) -> Cloud:
    return np.hstack([rows, np.ones((len(rows), 1))]) if lifted else rows


def _query_hull(cloud: Cloud, margins: NDArray[np.float64], query_bias: bool) -> HullDistance:
    """The distance of 0 to the asked x_i/m_i. Whether 0 is inside does not depend on the margins: x_i decides it."""
    asked = margins > 0
    queries = _with_ones(cloud, query_bias)[asked]
    found = hull_distance(queries / margins[asked, None])
    if found.inside and not hull_distance(queries).inside:
        raise ArithmeticError("the hull of the queries is nearer to 0 than the rounding of x_i/m_i")
    return found


def _check_scale(queries: Cloud, keys: Cloud, margins: NDArray[np.float64]) -> None:
    """A price goes as m/(|q| |k|), its multipliers as 1/(|q| |k|).

    Raises:
        ArithmeticError: one of them is not within ``REACH``.
    """
    asked = margins > 0
    q, k, m = (np.frexp(sizes)[1] for sizes in (np.abs(queries[asked]).max(1), np.abs(keys).max(), margins[asked]))
    if max(np.abs(q + k).max(), np.abs(m - q - k).max()) > REACH:
        raise ArithmeticError(
            f"the price is out of float64's reach: queries around 2^{q.min()} to 2^{q.max()}, keys up to 2^{k}, "
            f"margins around 2^{m.min()} to 2^{m.max()}; it goes as margins/(queries keys)"
        )


def _check_price(price: float) -> float:
    """A price that is within ``REACH``."""
    if price > 2.0**REACH:
        raise ArithmeticError(f"the price is out of float64's reach: it is above 2^{REACH}")
    return price


def _check_margins(margins: ArrayLike, n: int) -> NDArray[np.float64]:
    given = np.asarray(margins)
    return np.broadcast_to(_check_vector("margins", given if given.ndim else np.full(n, given), n), n)


def _check_vector(name: str, value: ArrayLike, length: int | None = None) -> NDArray[np.float64]:
    checked = check_tokens(name, np.asarray(value)[None])[0] if np.ndim(value) == 1 else None
    if checked is None or length not in (None, len(checked)):
        raise ValueError(f"{name} must have shape ({length or 'R'},), got {np.shape(value)}")
    return checked
