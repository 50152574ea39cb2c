"""The attention layer with its diagonal regularisers, in PyTorch, and the traffic data it looks at."""

from attention.attend import attend, attention_weights
from attention.baselines import DailyProfile, Persistence
from attention.metrics import REPORTED_STEPS, Errors, PooledErrors, StepErrors, pooled_errors
from attention.pattern_training import PatternTraining, train_to_pattern
from attention.regularisers import (
    DiagonalDropout,
    DiagonalMask,
    DiagonalPenalty,
    DiagonalWeightDropout,
    WeightDropout,
)
from attention.series import (
    ForecastWindows,
    Scaler,
    Speeds,
    Splits,
    forecast_windows,
    observed,
    sensor_means,
    split,
    time_slots,
    windows,
)
from attention.synthetic_roads import (
    BestForecast,
    KnownErrors,
    Link,
    RoadNetwork,
    SyntheticRoads,
    road_network,
    synthetic_roads,
)
from attention.temporal import TemporalAttention
from attention.traffic import join, read_adjacency, read_speeds

__all__ = [
    "REPORTED_STEPS",
    "BestForecast",
    "DailyProfile",
    "DiagonalDropout",
    "DiagonalMask",
    "DiagonalPenalty",
    "DiagonalWeightDropout",
    "Errors",
    "ForecastWindows",
    "KnownErrors",
    "Link",
    "PatternTraining",
    "Persistence",
    "PooledErrors",
    "RoadNetwork",
    "Scaler",
    "Speeds",
    "Splits",
    "StepErrors",
    "SyntheticRoads",
    "TemporalAttention",
    "WeightDropout",
    "attend",
    "attention_weights",
    "forecast_windows",
    "join",
    "observed",
    "pooled_errors",
    "read_adjacency",
    "read_speeds",
    "road_network",
    "sensor_means",
    "split",
    "synthetic_roads",
    "time_slots",
    "train_to_pattern",
    "windows",
]
