"""The point of a convex hull nearest to a target, with a proof either way.

Floating point finds the nearest point (non-negative least squares) and proves what it can with its own rounding errors
counted. What it cannot decide - the target in the hull or a hair outside - is decided in exact rational arithmetic by
Wolfe's algorithm, since floats are rationals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import hypot

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from numerics.token_clouds import Cloud, check_sink, check_tokens, exact_row, exact_rows, integer_gram, row_lengths

GAP = 1e-10
"""The two sides of a distance may differ by this much of it before exact arithmetic takes over."""

EXACT_WORK = 4_000_000
"""Products that an exact Gram matrix may cost at most; above, an undecided case is an error."""

EXACT_BITS = 4_000_000_000
"""The same for Wolfe's algorithm: (points in the support)^4 times the bits of an inner product, a few seconds."""


@dataclass(frozen=True)
class HullDistance:
    """The distance from a target to the convex hull of n points.

    Attributes:
        distance: the distance; 0.0 iff ``inside``.
        weights: convex weights of the nearest point, (n,).
        offset: nearest point - target, (d,); its inner product with every point - target is at least distance^2.
        lower: a lower bound of the distance, from the plane through the nearest point; 0.0 where inside.
        inside: the target is in the hull; proven, never guessed.
        exact_weights: the weights as rationals, where exact arithmetic found them; always where inside, and then
            sum weights_i point_i = target exactly.
    """

    distance: float
    weights: NDArray[np.float64]
    offset: NDArray[np.float64]
    lower: float
    inside: bool
    exact_weights: tuple[Fraction, ...] | None


def hull_distance(points: ArrayLike, target: ArrayLike | None = None) -> HullDistance:
    """The distance from a target to the convex hull of points.

    Args:
        points: (n, d), real or rational.
        target: (d,); the origin by default.

    Returns:
        The distance with both proofs.

    Raises:
        TypeError, ValueError: bad input, named.
        ArithmeticError: the cloud is too large to decide exactly and too degenerate for floating point.
    """
    cloud = check_tokens("points", points)
    origin = np.zeros(cloud.shape[1]) if target is None else check_sink(target, cloud, name="target")
    rounding = 8 * np.finfo(float).eps * (row_lengths(cloud) + hypot(*origin))

    def exact_differences(places: list[int]) -> list[list[Fraction]]:
        centre = exact_row(origin if target is None else target)
        chosen = exact_rows(np.asarray(points)[places])
        return [[x - t for x, t in zip(row, centre, strict=True)] for row in chosen]

    found = nearest_to_origin(
        cloud - origin, rounding, lambda places: integer_gram(exact_differences(places)), cloud.shape[1]
    )
    if found.inside or found.exact_weights is None:
        return found
    # Here the offset is tiny beside the points: only the exact sum has its digits.
    columns = zip(*exact_differences(list(range(len(cloud)))), strict=True)
    offset = [float(sum(w * x for w, x in zip(found.exact_weights, column, strict=True))) for column in columns]
    distance = hypot(*offset)
    # Float weights that exact arithmetic let pass are not the very best.
    share = found.lower / found.distance if found.distance else 1 - GAP
    return replace(found, distance=distance, offset=np.array(offset), lower=share * distance)


def nearest_to_origin(
    points: Cloud,
    rounding: NDArray[np.float64],
    exact_gram: Callable[[list[int]], list[list[int]]],
    exact_width: int,
    *,
    gap: float = GAP,
) -> HullDistance:
    """The point of conv{points} nearest to 0, for points known up to rounding.

    Args:
        points: (n, d), each within ``rounding`` (n,) of the point that is meant.
        rounding: bounds on the length of each point's error.
        exact_gram: the inner products of the given points as they are meant, times a positive number; asked for only if
            needed.
        exact_width: how many products one of those inner products costs.
        gap: how far apart, relatively, the two sides of the distance may be before exact arithmetic takes over.

    Raises:
        ArithmeticError: neither floating point nor exact arithmetic within ``EXACT_WORK`` can decide.
    """
    scale = float(np.abs(points).max()) or 1.0
    scaled, room = points / scale, rounding / scale
    weights = _float_weights(scaled)
    offset = weights @ scaled
    upper = float(np.linalg.norm(offset))
    inner = scaled @ offset
    error = (points.shape[1] + 2) * np.finfo(float).eps * (np.abs(scaled) @ np.abs(offset)) + room * upper
    lower = float((inner - error).min()) / upper if upper > 0 else 0.0
    if lower > 0 and upper - lower <= gap * upper:
        return HullDistance(upper * scale, weights, offset * scale, lower * scale, False, None)

    shortest = int(np.abs(points).max(axis=1).argmin())
    if exact_width <= EXACT_WORK and not points[shortest].any() and not exact_gram([shortest])[0][0]:
        # The target is one of the points: no cloud is too large to see that.
        alone = np.eye(1, len(points), shortest)[0]
        return HullDistance(0.0, alone, np.zeros(points.shape[1]), 0.0, True, tuple(Fraction(int(w)) for w in alone))
    whole = len(points) ** 2 * exact_width <= EXACT_WORK
    if not whole and lower > 0:
        return HullDistance(upper * scale, weights, offset * scale, lower * scale, False, None)
    # Of a large cloud only the points that carry weight: enough to prove that the target is inside, not that it is not.
    places = list(range(len(points))) if whole else np.flatnonzero(weights).tolist()
    gram = exact_gram(places) if len(places) ** 2 * exact_width <= EXACT_WORK else None
    if gram is None:
        raise _undecided(len(points), upper * scale)
    exact = [Fraction(weight) for weight in weights[places].tolist()]
    exact = [weight / sum(exact) for weight in exact]
    # The float weights, taken at their word, often prove what rounding errors hid.
    if not (whole and 1 - gap <= _proven_share(gram, exact) > 0):
        size = sum(weight > 0 for weight in exact)
        bits = max(gram[place][place].bit_length() for place in range(len(gram)))
        if size**4 * bits > EXACT_BITS:
            raise _undecided(len(points), upper * scale)
        exact = exact_nearest_weights(gram, exact)
    share = _proven_share(gram, exact)
    full = [Fraction(0)] * len(points)
    for place, weight in zip(places, exact, strict=True):
        full[place] = weight
    weights = np.array([float(weight) for weight in full])
    if share == 0:
        return HullDistance(0.0, weights, np.zeros(points.shape[1]), 0.0, True, tuple(full))
    if not whole:
        raise _undecided(len(points), upper * scale)
    offset = weights @ points
    distance = hypot(*offset)
    return HullDistance(distance, weights, offset, float(share) * distance, False, tuple(full))


def _undecided(number: int, distance: float) -> ArithmeticError:
    return ArithmeticError(
        f"cannot tell whether the target is in the hull of {number} points: it is within {distance:.1e} of it, and the "
        "cloud is too large for exact arithmetic"
    )


def _proven_share(gram: list[list[int]], weights: Sequence[Fraction]) -> Fraction:
    """The share of ||y||^2, y = sum weights_i p_i, that y . p_j keeps for every j; 1 at the nearest point, 0 for y = 0.

    Where it is positive, the plane orthogonal to y separates 0 from the hull.
    """
    carried = [(place, weight) for place, weight in enumerate(weights) if weight]
    inner = [sum(weight * gram[place][j] for place, weight in carried) for j in range(len(gram))]
    square = sum(weight * inner[place] for place, weight in carried)
    return min(inner) / square if square else Fraction(0)


def _float_weights(points: Cloud) -> NDArray[np.float64]:
    """Convex weights of the nearest point: least squares on the points lifted by a coordinate 1, rescaled."""
    lifted = np.vstack([points.T, np.ones(len(points))])
    target = np.append(np.zeros(points.shape[1]), 1.0)
    try:
        solution, _ = nnls(lifted, target)
    except RuntimeError:  # the iteration limit: any start will do, the proof decides
        solution = np.ones(len(points))
    return solution / solution.sum()


def exact_nearest_weights(gram: list[list[int]], start: Sequence[Fraction]) -> list[Fraction]:
    """Wolfe's algorithm (1976) on an exact Gram matrix: the convex weights of the point nearest to 0.

    It walks from one affinely independent support to the next, each nearer to 0, and stops by itself: no tolerance.
    Good convex weights as a start save most of the way.
    """
    support = [place for place, weight in enumerate(start) if weight > 0]
    weights = [start[place] for place in support]
    while (aim := _affine_weights(gram, support)) is None:
        # The start's support is affinely dependent: go on without its lightest point.
        lightest = min(range(len(support)), key=weights.__getitem__)
        del support[lightest], weights[lightest]
    total = sum(weights)
    weights = [weight / total for weight in weights]
    while True:
        while min(aim) <= 0:
            share = min(w / (w - a) for w, a in zip(weights, aim, strict=True) if a <= 0)
            moved = [w + share * (a - w) for w, a in zip(weights, aim, strict=True)]
            kept = [place for place, weight in enumerate(moved) if weight > 0]
            support, weights = [support[place] for place in kept], [moved[place] for place in kept]
            aim = _independent_weights(gram, support)
        weights = aim
        inner = [sum(w * gram[s][place] for w, s in zip(weights, support, strict=True)) for place in range(len(gram))]
        best = min(range(len(gram)), key=inner.__getitem__)
        if inner[best] >= sum(w * inner[s] for w, s in zip(weights, support, strict=True)):
            break
        support.append(best)
        weights.append(Fraction(0))
        aim = _independent_weights(gram, support)
    full = [Fraction(0)] * len(gram)
    for weight, place in zip(weights, support, strict=True):
        full[place] = weight
    return full


def _independent_weights(gram: list[list[int]], support: Sequence[int]) -> list[Fraction]:
    weights = _affine_weights(gram, support)
    assert weights is not None, "Wolfe's algorithm keeps its support affinely independent"
    return weights


def _affine_weights(gram: list[list[int]], support: Sequence[int]) -> list[Fraction] | None:
    """Weights (summing to 1) of the point of the affine hull nearest to 0; None where the support is dependent.

    They are proportional to the solution of (G + 1 1^T) u = 1. Fraction-free Gauss-Jordan keeps integers short; the
    matrix is positive definite iff the points are affinely independent, so no pivoting is needed.
    """
    size = len(support)
    rows = [[gram[one][other] + 1 for other in support] + [1] for one in support]
    previous = 1
    for k in range(size):
        pivot = rows[k][k]
        if pivot <= 0:
            return None
        for i in range(size):
            if i != k:
                factor = rows[i][k]
                rows[i] = [(pivot * x - factor * y) // previous for x, y in zip(rows[i], rows[k], strict=True)]
        previous = pivot
    # Every diagonal entry is now the determinant, so the last column is the solution up to one factor.
    total = sum(row[-1] for row in rows)
    return [Fraction(row[-1], total) for row in rows]
