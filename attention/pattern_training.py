"""Train one attention head's W_Q and W_K to a pattern, by gradient descent with weight decay.

    sum_i -log a_{i, target(i)} + (lambda/2)(||W_Q||_F^2 + ||W_K||_F^2)

Where it must end is B4's question: ``numerics.training_optimum`` has the answer for the family of B4, and
``derivations.b4_sinks_are_cheaper`` its derivation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, sqrt

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from numerics.inputs import check_floating, check_same_kind
from numerics.token_clouds import check_count

START_SCALE = 0.1
"""Standard deviation of the entries of W_Q and W_K at the start."""


@dataclass(frozen=True)
class PatternTraining:
    """One run of gradient descent.

    Attributes:
        objective: cross entropy (summed over the queries) plus weight decay at the start and after each of the S
            steps, (S + 1,).
        nuclear_norm: of B = W_Q^T W_K/sqrt(d_k), (S + 1,).
        w_q, w_k: the weights at the end, (d_k, d).
        gradient: the largest entry of the objective's gradient at the end.
    """

    objective: Tensor
    nuclear_norm: Tensor
    w_q: Tensor
    w_k: Tensor
    gradient: float

    @property
    def matrix(self) -> Tensor:
        """B at the end, (d, d)."""
        return self.w_q.T @ self.w_k / sqrt(self.w_q.shape[0])


def train_to_pattern(
    queries: Tensor,
    keys: Tensor,
    targets: Tensor,
    *,
    weight_decay: float,
    d_k: int,
    seed: int = 0,
    steps: int = 2000,
    learning_rate: float = 1.0,
    tolerance: float = 1e-7,
) -> PatternTraining:
    """Plain full-batch gradient descent from a random start.

    Each step is that of ``torch.optim.SGD`` with its ``weight_decay``: no momentum, no schedule. A step that would
    raise the objective is taken back and the learning rate halved, so the objective never rises by more than rounding.

    Args:
        queries: tokens that ask, (n, d).
        keys: tokens that answer, (N, d).
        targets: for each query the key that it should look at, (n,), int64.
        weight_decay: lambda >= 0.
        d_k: width of queries and keys, at least 1.
        seed: of the start.
        steps: at most so many.
        learning_rate: of the first step, positive.
        tolerance: stop where no entry of the gradient is larger.

    Returns:
        The run.

    Raises:
        TypeError, ValueError: bad input, named, or an objective or gradient that is not finite at the start.
    """
    check_floating("queries", queries, dims=2)
    check_floating("keys", keys, dims=2)
    check_same_kind("queries", queries, "keys", keys)
    if queries.shape[1] != keys.shape[1]:
        raise ValueError(f"queries and keys must have one width, got {queries.shape[1]} and {keys.shape[1]}")
    if not isinstance(targets, Tensor):
        raise TypeError(f"targets must be a torch.Tensor, got {type(targets).__name__}")
    if targets.shape != queries.shape[:1] or targets.dtype != torch.int64:
        raise ValueError(f"targets must be {len(queries)} int64 indices, got {targets.dtype} {tuple(targets.shape)}")
    if ((targets < 0) | (targets >= len(keys))).any():
        raise ValueError(f"targets must lie in 0 .. {len(keys) - 1}, got {targets.tolist()}")
    check_count("d_k", d_k)
    check_count("steps", steps)
    if not 0 <= weight_decay < inf:
        raise ValueError(f"weight_decay must be finite and at least 0, got {weight_decay}")
    if not 0 < learning_rate < inf:
        raise ValueError(f"learning_rate must be positive and finite, got {learning_rate}")

    generator = torch.Generator().manual_seed(seed)
    start = START_SCALE * torch.randn(2, d_k, queries.shape[1], generator=generator, dtype=torch.float64)
    weights = start.to(queries)

    def objective(weights: Tensor) -> Tensor:
        scores = (queries @ weights[0].T) @ (keys @ weights[1].T).T / sqrt(d_k)
        return cross_entropy(scores, targets, reduction="sum") + weight_decay / 2 * weights.square().sum()

    # Near the optimum a step changes the objective by less than its last digits can show.
    rounding = 4 * torch.finfo(queries.dtype).eps
    current, slope = _value_and_slope(objective, weights)
    check_floating("the objective at the start", current)
    check_floating("the gradient at the start", slope)
    values, norms = [current], [_nuclear_norm(weights)]
    for _ in range(steps):
        if slope.abs().max() <= tolerance:
            break
        ahead = weights - learning_rate * slope
        reached, next_slope = _value_and_slope(objective, ahead)
        while not reached <= current + rounding * current.abs():
            learning_rate /= 2
            ahead = weights - learning_rate * slope
            reached, next_slope = _value_and_slope(objective, ahead)
        weights, current, slope = ahead, reached, next_slope
        values.append(current)
        norms.append(_nuclear_norm(weights))
    return PatternTraining(torch.stack(values), torch.stack(norms), weights[0], weights[1], float(slope.abs().max()))


def _value_and_slope(objective: Callable[[Tensor], Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    weights = weights.detach().requires_grad_()
    value = objective(weights)
    (slope,) = torch.autograd.grad(value, weights)
    return value.detach(), slope


def _nuclear_norm(weights: Tensor) -> Tensor:
    """||W_Q^T W_K||_*/sqrt(d_k): the singular values of a product are those of the product of two small factors."""
    left, right = (torch.linalg.qr(weight.T, mode="r").R for weight in weights)
    return torch.linalg.svdvals(left @ right.T).sum() / sqrt(weights.shape[1])
