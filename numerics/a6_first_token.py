"""A6: how much of each input is in each output after L layers, for attention and for causal convolutions.

The *share* of input j in output i is entry (i, j) of the product of the layers' averaging matrices. Closed forms for
layers without content (equal scores, uniform kernel); tokens, rows and lags count from 0, token 0 is the oldest.

    causal attention         (A^L)_ij = C(i,j) sum_k (-1)^k C(i-j,k)/(j+k+1)^L
    bidirectional attention  (A^L)_ij = 1/T
    causal convolution       g_L(m) = w^-L sum_k (-1)^k C(L,k) C(m-kw+L-1, L-1),  m = i - j

The derivation is in ``derivations.a6_first_token``. The sums alternate and their terms are huge, so they are taken in
integers and rounded once, at the end.
"""

from math import comb, lcm
from typing import NamedTuple

import torch
from torch import Tensor


class Leak(NamedTuple):
    """What the first token lacks in each row, and its bound; both (T,), float64.

    Attributes:
        leak: 1 - (A^L)_i0, from 0 to 1 - 1/(i + 1).
        bound: i 2^-L, an upper bound of the leak, with equality at i <= 1.
    """

    leak: Tensor
    bound: Tensor


def causal_shares(tokens: int, layers: int) -> Tensor:
    """Shares after L layers of uniform causal attention, A_ij = 1/(i + 1) for j <= i (A6; closed form ours).

    Args:
        tokens: T >= 1. The cost grows like T^3.
        layers: L >= 0.

    Returns:
        (T, T), float64, lower triangular; rows sum to one and fall in j for L >= 1.

    Raises:
        ValueError: a count out of range.
    """
    _check_at_least("tokens", tokens, 1)
    _check_at_least("layers", layers, 0)
    denominator = lcm(*range(1, tokens + 1)) ** layers
    moments = [denominator // (n + 1) ** layers for n in range(tokens)]
    return torch.tensor(
        [
            [
                comb(i, j) * sum((-1) ** k * comb(i - j, k) * moments[j + k] for k in range(i - j + 1)) / denominator
                for j in range(tokens)
            ]
            for i in range(tokens)
        ],
        dtype=torch.float64,
    )


def first_token_leak(tokens: int, layers: int) -> Leak:
    """Both sides of 1 - (A^L)_i0 <= i 2^-L: causal attention hands the first token everything (A6, ours).

    Args:
        tokens: T >= 1.
        layers: L >= 0.

    Returns:
        The leak of every row and its bound.

    Raises:
        ValueError: a count out of range.
    """
    _check_at_least("tokens", tokens, 1)
    _check_at_least("layers", layers, 0)
    denominator = lcm(*range(1, tokens + 1)) ** layers
    # Without its first term, k = 0, the sum is minus the leak: no digits are lost where the leak is tiny.
    leak = [
        -sum((-1) ** k * comb(i, k) * (denominator // (k + 1) ** layers) for k in range(1, i + 1)) / denominator
        for i in range(tokens)
    ]
    bound = torch.arange(tokens, dtype=torch.float64) * 2.0**-layers
    return Leak(torch.tensor(leak, dtype=torch.float64), bound)


def bidirectional_shares(tokens: int, layers: int) -> Tensor:
    """Shares after L layers of uniform bidirectional attention: 1/T each, at every depth (A6, ours).

    Args:
        tokens: T >= 1.
        layers: L >= 0; without a layer every token keeps to itself.

    Returns:
        (T, T), float64, rows sum to one.

    Raises:
        ValueError: a count out of range.
    """
    _check_at_least("tokens", tokens, 1)
    _check_at_least("layers", layers, 0)
    if layers == 0:
        return torch.eye(tokens, dtype=torch.float64)
    return torch.full((tokens, tokens), 1 / tokens, dtype=torch.float64)


def convolution_shares(tokens: int, width: int, layers: int, *, normalised: bool = False) -> Tensor:
    """Shares after L causal convolutions with a uniform kernel and zero padding (A6; closed form ours).

    Args:
        tokens: T >= 1.
        width: w >= 1, taps of the kernel, each 1/w.
        layers: L >= 1.
        normalised: divide every row by its sum, which is below one near the start.

    Returns:
        (T, T), float64: g_L(i - j) at (i, j), lower triangular and constant along diagonals (before normalising).

    Raises:
        ValueError: a count out of range.
    """
    _check_convolution(tokens, width, layers)
    weights = _lag_counts(tokens, width, layers)
    total = width**layers
    kept = _kept_counts(tokens, width, layers)
    return torch.tensor(
        [
            [weights[i - j] / (kept[i] if normalised else total) if j <= i else 0.0 for j in range(tokens)]
            for i in range(tokens)
        ],
        dtype=torch.float64,
    )


def convolution_lost_mass(tokens: int, width: int, layers: int) -> Tensor:
    """What zero padding takes from each row: 1 - w^-L sum_k (-1)^k C(L,k) C(i-kw+L, L) (A6, ours).

    Args:
        tokens, width, layers: as in ``convolution_shares``.

    Returns:
        (T,), float64, from 1 - w^-L in row 0 down to 0 from row L(w-1) on.

    Raises:
        ValueError: a count out of range.
    """
    _check_convolution(tokens, width, layers)
    total = width**layers
    lost = [(total - kept) / total for kept in _kept_counts(tokens, width, layers)]
    return torch.tensor(lost, dtype=torch.float64)


def convolution_favours_first(tokens: int, width: int, layers: int, *, ties: bool = False) -> Tensor:
    """In which rows token 0 outweighs every other token after L causal convolutions (A6, ours).

    For L >= 2: strictly iff i <= L(w-1)/2, and with ties counted in iff i <= ceil(L(w-1)/2). One layer is flat: all
    that it sees tie, so token 0 is strictly first in row 0 only, and ties while i < w.

    Args:
        tokens, width, layers: as in ``convolution_shares``.
        ties: also count rows where another token weighs as much.

    Returns:
        (T,), boolean.

    Raises:
        ValueError: a count out of range.
    """
    _check_convolution(tokens, width, layers)
    rows = torch.arange(tokens)
    if layers == 1:
        return rows < width if ties else rows == 0
    return 2 * rows <= layers * (width - 1) + int(ties)


def _lag_counts(tokens: int, width: int, layers: int) -> list[int]:
    """w^L g_L(m) for the lags m = 0 .. T - 1: in how many ways L dice with faces 0 .. w - 1 show the sum m."""
    return _alternating(tokens, width, layers, layers - 1)


def _kept_counts(tokens: int, width: int, layers: int) -> list[int]:
    """w^L times the sum of row t, for t = 0 .. T - 1: partial sums of the lags raise the second binomial by one."""
    return _alternating(tokens, width, layers, layers)


def _alternating(tokens: int, width: int, layers: int, lower: int) -> list[int]:
    """sum_k (-1)^k C(L,k) C(m - kw + lower, lower) for m = 0 .. T - 1, over the k with kw <= m."""
    return [
        sum(
            (-1) ** k * comb(layers, k) * comb(m - k * width + lower, lower) for k in range(min(layers, m // width) + 1)
        )
        for m in range(tokens)
    ]


def _check_convolution(tokens: int, width: int, layers: int) -> None:
    for name, value in (("tokens", tokens), ("width", width), ("layers", layers)):
        _check_at_least(name, value, 1)


def _check_at_least(name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
