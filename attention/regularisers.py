"""The regularisers of temporal attention's diagonal (P1), and dropout after the softmax.

Each says what it does in three places, and leaves the others alone:

* ``blocked``: the keys that it takes away before the softmax,
* ``bias``: what it adds to the scaled scores,
* ``factor``: what it multiplies the weights by after the softmax.

What each does to the weights and to the Jacobian is A5 (``derivations.a5_regularisers``).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


class Regulariser:
    """Leaves attention as it is; a regulariser overrides what it changes.

    The scores have shape (..., H, T, T), or any shape with two equal last dimensions.
    """

    @property
    def may_block_own_key(self) -> bool:
        """Can a row lose its own key? Then each row needs another one, whatever is drawn."""
        return False

    def blocked(self, shape: torch.Size, *, training: bool, device: torch.device) -> Tensor | None:
        """Boolean, broadcasts to the scores' ``shape``; True = may not look. None: nothing is taken away."""

    def bias(self, tokens: int, *, dtype: torch.dtype, device: torch.device) -> Tensor | None:
        """Added to the scaled scores, (T, T). None where nothing is added."""

    def factor(self, weights: Tensor, *, training: bool) -> Tensor | None:
        """Multiplies the weights after the softmax, same shape. None where nothing changes."""


@dataclass(frozen=True)
class DiagonalMask(Regulariser):
    """No token looks at itself: s_ii -> -inf, in training and in evaluation (P1's full mask)."""

    @property
    def may_block_own_key(self) -> bool:
        return True

    def blocked(self, shape: torch.Size, *, training: bool, device: torch.device) -> Tensor:
        return own_keys(shape[-1], device)


@dataclass(frozen=True)
class DiagonalPenalty(Regulariser):
    """Adds b < 0 to each scaled diagonal score, in training and in evaluation, as P1's public code does.

    logit(a'_ii) = logit(a_ii) + b. P1 uses -0.1 and -0.05.

    Raises:
        TypeError: b is not a real number.
        ValueError: b is not finite and below 0.
    """

    b: float

    def __post_init__(self) -> None:
        _check_number("b", self.b)
        if not (math.isfinite(self.b) and self.b < 0):
            raise ValueError(f"b must be finite and below 0 (DiagonalMask is the limit -inf), got {self.b}")

    def bias(self, tokens: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return self.b * torch.eye(tokens, dtype=dtype, device=device)


@dataclass(frozen=True)
class DiagonalDropout(Regulariser):
    """Each diagonal score goes to -inf with probability p, in training only (P1); rows still sum to one.

    Attributes:
        p: in [0, 1). P1 uses 0.2.
        shared: one draw of T Bernoullis a forward pass, for all batches, sensors and heads: P1's public code.
            Otherwise every row of every head draws for itself.

    Raises:
        TypeError: p is not a real number, or ``shared`` not a bool.
        ValueError: p is outside [0, 1).
    """

    p: float
    shared: bool = False

    def __post_init__(self) -> None:
        _check_probability(self.p)
        if not isinstance(self.shared, bool):
            raise TypeError(f"shared must be True or False, got {self.shared!r}")

    @property
    def may_block_own_key(self) -> bool:
        return self.p > 0

    def blocked(self, shape: torch.Size, *, training: bool, device: torch.device) -> Tensor | None:
        if not training or self.p == 0:
            return None
        return torch.diag_embed(bernoulli(self.p, shape[-1:] if self.shared else shape[:-1], device))


@dataclass(frozen=True)
class DiagonalWeightDropout(Regulariser):
    """Dropout after the softmax on the diagonal alone: a_ii -> 0 or a_ii/(1-p), in training only.

    E a' = a, but rows do not sum to one: their variance is p/(1-p) a_ii^2.

    Raises:
        TypeError: p is not a real number.
        ValueError: p is outside [0, 1).
    """

    p: float

    def __post_init__(self) -> None:
        _check_probability(self.p)

    def factor(self, weights: Tensor, *, training: bool) -> Tensor | None:
        if not training or self.p == 0:
            return None
        kept = bernoulli(1 - self.p, weights.shape[:-1], weights.device).to(weights.dtype) / (1 - self.p)
        return torch.where(own_keys(weights.shape[-1], weights.device), kept.unsqueeze(-1), kept.new_ones(()))


@dataclass(frozen=True)
class WeightDropout(Regulariser):
    """Dropout after the softmax on every weight: a_ij -> 0 or a_ij/(1-p), in training only.

    The usual attention dropout, as in ``torch.nn.MultiheadAttention``; P1 has it at 0.1 in every variant,
    beside the diagonal's regulariser. E a' = a, but rows do not sum to one: their variance is
    p/(1-p) sum_j a_ij^2.

    Raises:
        TypeError: p is not a real number.
        ValueError: p is outside [0, 1).
    """

    p: float

    def __post_init__(self) -> None:
        _check_probability(self.p)

    def factor(self, weights: Tensor, *, training: bool) -> Tensor | None:
        if not training or self.p == 0:
            return None
        return bernoulli(1 - self.p, weights.shape, weights.device).to(weights.dtype) / (1 - self.p)


Diagonal = DiagonalMask | DiagonalPenalty | DiagonalDropout | DiagonalWeightDropout
"""What ``TemporalAttention`` takes as ``diagonal``."""


def own_keys(tokens: int, device: torch.device | None = None) -> Tensor:
    """(T, T), True where a row looks at its own key."""
    return torch.eye(tokens, dtype=torch.bool, device=device)


def bernoulli(p: float, shape: torch.Size, device: torch.device) -> Tensor:
    """Independent booleans, True with probability p to 32 bits: the only randomness of this module.

    One 64-bit draw decides two of them, at half the time of a uniform number each.
    """
    entries = math.prod(shape)
    draws = torch.randint(-(2**63), 2**63 - 1, (-(-entries // 2),), device=device)
    return draws.view(torch.int32)[:entries].view(shape) < min(round(p * 2**32) - 2**31, 2**31 - 1)


def _check_number(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a real number, got {value!r}")


def _check_probability(p: float) -> None:
    _check_number("p", p)
    if not 0 <= p < 1:
        raise ValueError(f"p must lie in [0, 1), got {p}")
