"""B4: are sinks cheaper than diagonals? Prices, thresholds, leakage, the value side and the trained optimum.

Most of it is about one family with two knobs: x_i = t f + e_i for i = 1..n and x_0 = t f + z e_0, with f, e_0, .., e_n
orthonormal. The derivation is in ``derivations.b4_sinks_are_cheaper``.
"""

from dataclasses import dataclass
from math import isfinite, log, sqrt
from numbers import Real
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from numerics.price_program import Norm
from numerics.token_clouds import check_count, check_margin, check_sink, check_tokens

Keys = Literal["with sink", "without sink"]
"""Which keys a diagonal must beat: the other tokens and x_0, or the other tokens alone."""

TrainedPattern = Literal["sink", "diagonal"]


@dataclass(frozen=True)
class SinkFamily:
    """The family x_i = t f + e_i, x_0 = t f + z e_0 (ours).

    Attributes:
        n: how many tokens there are besides the sink, n >= 2. (With one, sink and diagonal mirror one another.)
        t: the direction that all tokens share, t >= 0.
        z: how far the sink is from the rest, z >= 0.

    Raises:
        TypeError, ValueError: anything else.
    """

    n: int
    t: float = 0.0
    z: float = 1.0

    def __post_init__(self) -> None:
        check_count("n", self.n, 2)
        for name, value in (("t", self.t), ("z", self.z)):
            if not isinstance(value, Real):
                raise TypeError(f"{name} must be a real number, got {type(value).__name__}")
            if not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be finite and not negative, got {value}")

    @property
    def tokens(self) -> NDArray[np.float64]:
        """x_1..x_n as rows, (n, n + 2); the coordinates are f, e_0, e_1, .., e_n."""
        rows = np.eye(self.n, self.n + 2, 2)
        rows[:, 0] = self.t
        return rows

    @property
    def sink(self) -> NDArray[np.float64]:
        """x_0, (n + 2,)."""
        return np.concatenate([[self.t, self.z], np.zeros(self.n)])

    @property
    def G(self) -> float:
        """g_q g_k = sqrt((t^2 + 1/n)(z^2 + 1/n)), at least 1/n."""
        return sqrt(self.t**2 + 1 / self.n) * sqrt(self.z**2 + 1 / self.n)

    @property
    def G_all_queries(self) -> float:
        """The same with x_0 a query too: sqrt(t^2 (z^2 + 1/n) + z^2/n); 0 where no sink can be represented."""
        return sqrt(self.t**2 * (self.z**2 + 1 / self.n) + self.z**2 / self.n)


class PatternPrices(NamedTuple):
    """What the two patterns cost in one norm; ``sink < diagonal``: the sink is the cheaper."""

    sink: float
    diagonal: float

    @property
    def ratio(self) -> float:
        """sink/diagonal, below 1 where the sink is the cheaper."""
        return self.sink / self.diagonal


def family_prices(n: int, G: float, *, norm: Norm, keys: Keys = "with sink", margin: float = 1.0) -> PatternPrices:
    """The least norms of B that make the sink and the diagonal in the family, on the queries x_1..x_n (ours).

    Args:
        n: tokens besides the sink, at least 2.
        G: g_q g_k = ``SinkFamily.G``, at least 1/n: the prices depend on t and z through G alone.
        norm: "nuclear", "fro" or "spectral".
        keys: what the diagonal must beat. The sink always beats all n tokens.
        margin: m > 0.

    Returns:
        Sink m/G; diagonal m(n - 1 + 1/(nG)), m sqrt(n - 1 + 1/(nG)^2), m; without x_0 m(n-1), m sqrt(n-1), m.

    Raises:
        TypeError, ValueError: bad input, named.
    """
    check_count("n", n, 2)
    m = check_margin(margin)
    _check_choice("norm", norm, Norm)
    _check_choice("keys", keys, Keys)
    if not (isfinite(G) and G * n >= 1 - 1e-12):
        raise ValueError(f"G must be finite and at least 1/n = {1 / n}, got {G}")
    facing = 1 / (n * G) if keys == "with sink" else 0.0
    diagonal = {"nuclear": n - 1 + facing, "fro": sqrt(n - 1 + facing**2), "spectral": 1.0}[norm]
    return PatternPrices(m / G, m * diagonal)


def sink_threshold(n: int, *, norm: Norm, keys: Keys = "with sink") -> float:
    """The G above which the sink is the cheaper: the two prices are equal there and nowhere else (ours).

    Args:
        n: tokens besides the sink, at least 2.
        norm: "nuclear", "fro" or "spectral".
        keys: what the diagonal must beat, as in ``family_prices``.

    Returns:
        1/n, sqrt(n+1)/n, 1 with x_0 a key of the diagonal; 1/(n-1), 1/sqrt(n-1), 1 without.

    Raises:
        TypeError, ValueError: bad input, named.
    """
    check_count("n", n, 2)
    _check_choice("norm", norm, Norm)
    _check_choice("keys", keys, Keys)
    with_sink = {"nuclear": 1 / n, "fro": sqrt(n + 1) / n, "spectral": 1.0}
    without_sink = {"nuclear": 1 / (n - 1), "fro": 1 / sqrt(n - 1), "spectral": 1.0}
    return (with_sink if keys == "with sink" else without_sink)[norm]


def all_queries_prices(family: SinkFamily, *, norm: Norm, margin: float = 1.0) -> PatternPrices:
    """The least norms of B with all n + 1 tokens as queries and as keys (ours).

    Args:
        family: t and z not both 0.
        norm: "nuclear"; "fro" where t = 0; "spectral" where t = 0 and z >= 1. Elsewhere there is no closed form.
        margin: m > 0.

    Returns:
        Sink m/G, G = ``SinkFamily.G_all_queries``; diagonal m(n - 1 + R), m sqrt(n - 1 + R^2), m, where
        R^2 = (t^2 (1 + 1/n)^2 + z^2/n^2 + 1/n)/(G^2 (z^2 + 1/n)).

    Raises:
        TypeError, ValueError: bad input, or no closed form.
    """
    m = check_margin(margin)
    _check_choice("norm", norm, Norm)
    n, t, z, G = family.n, family.t, family.z, family.G_all_queries
    if G == 0:
        raise ValueError("t and z must not both be 0: 0 is one of the queries then, and no query 0 prefers any key")
    if norm != "nuclear" and t != 0:
        raise ValueError(f"the {norm} price has a closed form at t = 0 only, got t = {t}")
    if norm == "spectral" and z < 1:
        raise ValueError(f"the spectral price has a closed form for z >= 1 only, got z = {z}")
    R = sqrt((t * (1 + 1 / n)) ** 2 + (z / n) ** 2 + 1 / n) / (G * sqrt(z**2 + 1 / n))
    diagonal = {"nuclear": n - 1 + R, "fro": sqrt(n - 1 + R**2), "spectral": 1.0}[norm]
    return PatternPrices(m / G, m * diagonal)


class LeakMargins(NamedTuple):
    """The least margin of a row of given leak lies between the two; with equal margins it is ``enough``."""

    necessary: float
    enough: float


def margins_for_leak(leak: float, others: int) -> LeakMargins:
    """From leakage to margin: log((1-e)/e) is necessary, log(n(1-e)/e) is enough (ours).

    Args:
        leak: e = 1 - (weight on the target), 0 < e < 1.
        others: n >= 1, how many other keys the row sees.

    Returns:
        Both sides, for the least score margin of the target over the other keys.

    Raises:
        TypeError, ValueError: out of range, or not an integer.
    """
    if not 0 < leak < 1:
        raise ValueError(f"leak must lie between 0 and 1, got {leak}")
    check_count("others", others)
    odds = log((1 - leak) / leak)
    return LeakMargins(odds, odds + log(others))


@dataclass(frozen=True)
class ValueChange:
    """The least change of W_V after which the sink's value is 0.

    Attributes:
        norm: of the change, in every norm that is 1 on unit rank-1 matrices.
        change: Delta, (d_v, d), of rank at most 1: (W_V + Delta) x_0 = 0.
    """

    norm: float
    change: NDArray[np.float64]


def least_value_change(w_v: ArrayLike, sink: ArrayLike, *, keep: ArrayLike | None = None) -> ValueChange:
    """What it costs to make the sink's value 0: ||W_V x_0||/||x_0|| (ours).

    Args:
        w_v: W_V, (d_v, d).
        sink: x_0, (d,).
        keep: tokens x_1..x_n, (n, d), whose values must not change: then it is ||W_V x_0||/dist(x_0, span{x_j}).

    Returns:
        The least change and its norm.

    Raises:
        TypeError, ValueError: bad input, or a sink that is 0 or (to rounding) in the span of the kept tokens.
    """
    weights = check_tokens("w_v", w_v)
    centre = check_sink(sink, weights)
    free = centre
    if keep is not None:
        kept = check_tokens("keep", keep)
        check_sink(sink, kept)
        free = centre - kept.T @ np.linalg.lstsq(kept.T, centre, rcond=None)[0]
    length = float(np.linalg.norm(free))
    if length <= 1e-12 * float(np.linalg.norm(centre)):
        raise ValueError("the sink must not be 0 or in the span of the tokens whose values are kept")
    value = weights @ centre
    return ValueChange(float(np.linalg.norm(value)) / length, -np.outer(value, free) / length**2)


@dataclass(frozen=True)
class TrainingOptimum:
    """Where training with weight decay must end, in the family.

    Attributes:
        objective: the least cross entropy (summed over the n queries) plus weight decay.
        margin: m*, the margin of every query over every other key; 0 where the weights stay 0.
        nuclear_norm: ||B||_*, B = W_Q^T W_K/sqrt(d_k).
        rank: of B: 1 for the sink, n - 1 for the diagonal, 0 where the weights stay 0.
        matrix: B, (n + 2, n + 2), the only optimum.
        threshold: the weights stay 0 unless the weight decay is below this.
    """

    objective: float
    margin: float
    nuclear_norm: float
    rank: int
    matrix: NDArray[np.float64]
    threshold: float


def training_optimum(family: SinkFamily, pattern: TrainedPattern, *, weight_decay: float, d_k: int) -> TrainingOptimum:
    """The least of cross entropy + (lambda/2)(||W_Q||_F^2 + ||W_K||_F^2) over all W_Q, W_K (ours).

    With kappa = lambda sqrt(d_k) it is the least over m of n log(1 + K exp(-m)) + pi m: for the sink (keys x_0..x_n,
    target x_0) K = n and pi = kappa/G, for the diagonal without x_0 (keys x_1..x_n, own target) K = n - 1 and
    pi = kappa (n - 1).

    Args:
        family: the tokens.
        pattern: "sink" or "diagonal".
        weight_decay: lambda > 0.
        d_k: width of queries and keys, at least the optimum's rank.

    Returns:
        The optimum.

    Raises:
        TypeError, ValueError: bad input, named.
    """
    _check_choice("pattern", pattern, TrainedPattern)
    if not (isfinite(weight_decay) and weight_decay > 0):
        raise ValueError(f"weight_decay must be positive and finite, got {weight_decay}")
    n, tokens, sink = family.n, family.tokens, family.sink
    rank = 1 if pattern == "sink" else n - 1
    check_count("d_k", d_k)
    if d_k < rank:
        raise ValueError(f"d_k must be at least the rank of the optimum, {rank}, got {d_k}")
    mean = tokens.mean(0)
    if pattern == "sink":
        others, cost, unit = n, 1 / family.G, np.outer(mean, sink - mean) / family.G**2
    else:
        others, cost, unit = n - 1, n - 1.0, (tokens - mean).T @ (tokens - mean)
    price = weight_decay * sqrt(d_k) * cost
    threshold = decay_threshold(family, pattern, d_k=d_k)
    if weight_decay >= threshold:
        return TrainingOptimum(n * log(1 + others), 0.0, 0.0, 0, np.zeros_like(unit), threshold)
    margin = log(others * (n - price) / price)
    objective = n * log(n / (n - price)) + price * margin
    return TrainingOptimum(objective, margin, margin * cost, rank, margin * unit, threshold)


def decay_threshold(family: SinkFamily, pattern: TrainedPattern, *, d_k: int, keys: Keys = "without sink") -> float:
    """The weight decay from which on W_Q = W_K = 0 is the optimum: the gradient's size at B = 0 over sqrt(d_k) (ours).

    Args:
        family: the tokens.
        pattern: "sink" or "diagonal".
        d_k: width of queries and keys, at least 1.
        keys: of the diagonal, as in ``family_prices``.

    Returns:
        n^2 G/(n+1) for the sink, 1 for the diagonal without x_0, max(1, nG/(n+1)) with x_0 a key; over sqrt(d_k).

    Raises:
        TypeError, ValueError: bad input, named.
    """
    _check_choice("pattern", pattern, TrainedPattern)
    _check_choice("keys", keys, Keys)
    check_count("d_k", d_k)
    facing = family.n * family.G / (family.n + 1)
    if pattern == "sink":
        return family.n * facing / sqrt(d_k)
    return (max(1.0, facing) if keys == "with sink" else 1.0) / sqrt(d_k)


def _check_choice(name: str, value: str, choices: object) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}")
