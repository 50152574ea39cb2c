"""The random attention layer that the figures speak of when they say "a random layer"."""

from typing import NamedTuple

import torch
from torch import Tensor


class RandomLayer(NamedTuple):
    """Weights of one head with d = d_k = d_v, float64, in the order in which ``numerics`` takes them."""

    w_q: Tensor
    w_k: Tensor
    w_v: Tensor


def random_layer(width: int, generator: torch.Generator) -> RandomLayer:
    """Independent N(0, 1/d) entries: on N(0, I) tokens queries and keys have variance one, so scores do too.

    Args:
        width: d.
        generator: the seeded source; advanced by 3 d^2 draws.

    Returns:
        ``w_q``, ``w_k``, ``w_v``, each (d, d).
    """
    draw = torch.randn(3, width, width, generator=generator, dtype=torch.float64)
    return RandomLayer(*(draw / width**0.5))
