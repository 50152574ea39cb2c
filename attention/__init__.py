"""The attention layer with its diagonal regularisers, in PyTorch, and the traffic data it looks at."""

from attention.attend import attend, attention_weights
from attention.regularisers import (
    DiagonalDropout,
    DiagonalMask,
    DiagonalPenalty,
    DiagonalWeightDropout,
    WeightDropout,
)
from attention.temporal import TemporalAttention
from attention.traffic import Speeds, read_speeds, windows

__all__ = [
    "DiagonalDropout",
    "DiagonalMask",
    "DiagonalPenalty",
    "DiagonalWeightDropout",
    "Speeds",
    "TemporalAttention",
    "WeightDropout",
    "attend",
    "attention_weights",
    "read_speeds",
    "windows",
]
