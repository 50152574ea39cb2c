"""B5: the hard switch: how silent a head is, between two sides that the sink's weight sets.

    nu_i (1 - a_i0) <= ||o_i - a_i0 v_0|| <= max_j ||v_j|| (1 - a_i0),    nu_i = dist(0, conv{v_j : j >= 1 seen by i})

Token 0 is the sink. The derivation is in ``derivations.b5_hard_switch``.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from numerics.convex_hulls import hull_distance
from numerics.inputs import check_blocked, check_floating, check_same_kind, check_weights, lengths
from numerics.token_clouds import check_count


class HardSwitch(NamedTuple):
    """Both sides of the sandwich and what lies between, one number a row; each (..., T).

    Attributes:
        lower: nu_i (1 - a_i0).
        output: ||o_i - a_i0 v_0||, which is ||o_i|| for a sink of value 0.
        upper: max ||v_j|| (1 - a_i0) over the seen j >= 1.
        open: 1 - a_i0, added up from the other keys, in [0, 1]: 0 for a closed switch.
        hull_distance: nu_i; 0 where the seen values can cancel. A proven lower bound, within 1e-10 of the distance.
        largest_value: max ||v_j|| over the seen j >= 1.
    """

    lower: Tensor
    output: Tensor
    upper: Tensor
    open: Tensor
    hull_distance: Tensor
    largest_value: Tensor


def hard_switch(
    weights: Tensor, values: Tensor, *, blocked: Tensor | None = None, distances: Tensor | None = None
) -> HardSwitch:
    """The sandwich of B5, row by row (B5.sandwich; P2).

    Args:
        weights: a, (..., T, T), row-stochastic; ``Heads.weights`` will do.
        values: v, (..., T, d_v); ``Heads.values`` will do.
        blocked: boolean, broadcasts to the weights, True = the row may not look; by default each row sees every key. A
            row that sees no key but the sink has zeros everywhere.
        distances: nu, or lower bounds of it that the caller has proven, broadcasts to (..., T); the lower side is then
            as good as they are. By default they are computed.

    Returns:
        The two sides. The distances to the hulls are computed on the CPU, one convex problem for each set of keys
        that some row sees.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that do not fit, values that are not finite, weights on a blocked key, or a row without a
            key.
        ArithmeticError: many nearly cancelling values, as ``hull_distance``.
    """
    _check(weights, values)
    check_blocked(blocked, weights)
    seen = torch.ones_like(weights, dtype=torch.bool) if blocked is None else ~blocked.expand(weights.shape)
    if bool((weights[~seen] > 0).any()):
        place = tuple(int(n) for n in ((weights > 0) & ~seen).nonzero()[0])
        raise ValueError(f"weights must be 0 on blocked keys, got {weights[place].item()} at {place}")
    others = seen.clone()
    others[..., 0] = False
    away = weights[..., 1:].sum(-1)
    # The weight is taken out first: where it is tiny, the squares in a norm would underflow.
    shares = weights[..., 1:] / torch.where(away > 0, away, 1.0).unsqueeze(-1)
    output = away * lengths(shares @ values[..., 1:, :])
    heard = torch.where(others, lengths(values).unsqueeze(-2).expand(weights.shape), 0.0)
    largest = heard.amax(-1)
    distance = _distances(values, others) if distances is None else distances.to(values).expand(largest.shape)
    return HardSwitch(distance * away, output, largest * away, away, distance, largest)


def _distances(values: Tensor, others: Tensor) -> Tensor:
    """dist(0, conv{v_j : others[.., i, j]}), (..., T); 0 where a row has no other key."""
    flat_values = values.detach().double().cpu().numpy().reshape(-1, *values.shape[-2:])
    flat_others = others.cpu().numpy().reshape(-1, *others.shape[-2:])
    found = np.zeros(flat_others.shape[:-1])
    for batch, (cloud, rows) in enumerate(zip(flat_values, flat_others, strict=True)):
        known: dict[bytes, float] = {}
        for row, chosen in enumerate(rows):
            if chosen.any():
                key = chosen.tobytes()
                if key not in known:
                    known[key] = hull_distance(cloud[chosen]).lower
                found[batch, row] = known[key]
    return torch.from_numpy(found).to(values).reshape(others.shape[:-1])


def silence_bound(eps: float, value_norm: float) -> float:
    """The most weight that an eps-silent head can put on copies of a token y (B5.eps-silence; ours).

    The head's last row is at most eps long on (x_0, x) and on (x_0, N copies of y, x), for any one N; no position code.

    Args:
        eps: at least 0.
        value_norm: ||v_y||, at least 0; one of the two is positive.

    Returns:
        2 eps/(||v_y|| + eps), below 1 iff eps < ||v_y||: else it says nothing.

    Raises:
        ValueError: a negative or infinite argument, or both zero.
    """
    _check_lengths(eps, value_norm)
    return 2 * eps / (value_norm + eps)


def least_lead(copies: int, eps: float, value_norm: float) -> float:
    """The least lead of the scores that lets a head be eps-silent beside N copies of y (B5.length; ours).

    The lead is log(e^{s_0} + e^{s_x}) - s_y: of sink and x together over y. It grows with log N: a sink at fixed
    scores is not silent at every length.

    Args:
        copies: N, at least 1.
        eps: at least 0.
        value_norm: ||v_y||, at least 0; one of the two is positive.

    Returns:
        log N + log((||v_y|| - eps)/(2 eps)); minus infinity where ||v_y|| <= eps (no lead is needed), else infinity
        where eps = 0.

    Raises:
        TypeError, ValueError: as ``silence_bound``; copies that are no integer, or fewer than one.
    """
    _check_lengths(eps, value_norm)
    check_count("copies", copies)
    if value_norm <= eps:
        return -math.inf
    if eps == 0:
        return math.inf
    return math.log(copies) + math.log(value_norm - eps) - math.log(2 * eps)


def diagonal_floor(weights: Tensor, values: Tensor) -> Tensor:
    """a_ii ||v_i|| - (1 - a_ii) max_{j != i} ||v_j||, a lower bound of ||o_i|| (B5.diagonal; P2).

    Args:
        weights: a, (..., T, T), row-stochastic.
        values: v, (..., T, d_v).

    Returns:
        (..., T); where it is positive the row is not silent. At most ||o_i||.

    Raises:
        TypeError, ValueError: as ``hard_switch``.
    """
    _check(weights, values)
    own = torch.eye(weights.shape[-1], dtype=torch.bool, device=weights.device)
    loud = lengths(values)
    loudest = loud.unsqueeze(-2).expand(weights.shape).masked_fill(own, 0.0).amax(-1)
    away = weights.masked_fill(own, 0.0).sum(-1)
    return weights.diagonal(dim1=-2, dim2=-1) * loud - away * loudest


def _check(weights: Tensor, values: Tensor) -> None:
    check_weights("weights", weights)
    check_floating("values", values)
    check_same_kind("weights", weights, "values", values)
    if values.dim() != weights.dim() or values.shape[:-1] != weights.shape[:-1] or values.shape[-1] == 0:
        raise ValueError(f"values must have shape {(*weights.shape[:-1], 'd_v')}, got {tuple(values.shape)}")


def _check_lengths(eps: float, value_norm: float) -> None:
    if not (0 <= eps < math.inf and 0 <= value_norm < math.inf and eps + value_norm > 0):
        raise ValueError(f"eps and value_norm must be finite, not negative and not both 0, got {eps} and {value_norm}")
