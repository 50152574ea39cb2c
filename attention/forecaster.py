r"""The forecaster of P1: temporal attention and graph convolution in turn, under a position encoding.

    features -> input projection -> + tAPE -> blocks -> forecast projection

A block is two sublayers, each with a LayerNorm after its residual:

    h = LayerNorm(r x + attention over time(x)),    x' = LayerNorm(h + graph convolution(h)).

The graph convolution learns two adjacencies from two embeddings E, F (sensors, 10),

    A = softmax(relu(E F^T)) (forward),    B = softmax(relu(F E^T)) (backward), each row sums to one,

and projects the concatenation of x, A x, A^2 x, B x, B^2 x. What A x means is the choice of ``spatial``:

* ``"graph"``: (A x)_m = sum_n A_mn x_n. Sensors exchange messages.
* ``"published"``: P1's public code writes the product as ``einsum('nn, btnc -> btnc', A, x)``. An index that occurs
  twice and stays takes the diagonal, so (A x)_m = A_mm x_m: each sensor is scaled by a number of its own and no
  message passes.
* ``"none"``: the second sublayer is left out.

The forecast is read off the last token (``readout="last"``), so that what it knows of earlier steps it has through
attention alone; or (``"all"``, P1's public code) each token is projected to one number and a second projection mixes
the steps, which needs no attention.

P1's public code also drops entries of both sublayers' outputs and adds a projection of the time of day to each; here
the time of day is a part of the input, and the only dropout beside the diagonal's is that of the attention weights.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attention.regularisers import Diagonal, DiagonalDropout, DiagonalMask, DiagonalPenalty, WeightDropout
from attention.series import Scaler, observed
from attention.temporal import TemporalAttention

Spatial = Literal["graph", "published", "none"]
"""How sensors meet: by messages, each scaled by itself as P1's public code does, or not at all."""

Readout = Literal["last", "all"]
"""What the forecast is read off: the last token, or all of them (P1's public code)."""

FEATURES = 4
"""Channels of the input: the scaled reading, whether it was observed, and the time of day on a circle."""

EMBEDDING_WIDTH = 10
"""Columns of the two embeddings that the adjacencies are learned from, as in P1's public code."""

ORDER = 2
"""Highest power of an adjacency."""


@dataclass(frozen=True)
class Size:
    """How large a forecaster is: its blocks, the width d of a token and the heads."""

    blocks: int
    width: int
    heads: int


PRESETS = {"paper": Size(blocks=12, width=72, heads=8), "small": Size(blocks=2, width=24, heads=4)}
"""The sizes of P1's public configuration, and ones that train in minutes on a CPU."""


@dataclass(frozen=True)
class Variant:
    """What P1 compares: what is done to the diagonal of the attention, and whether there is a residual around it."""

    diagonal: Diagonal | None = None
    residual: bool = True


VARIANTS = {
    "no-residual": Variant(residual=False),
    "no-regularisation": Variant(),
    "diagonal-mask": Variant(DiagonalMask()),
    "diagonal-dropout": Variant(DiagonalDropout(0.2)),
    "diagonal-penalty": Variant(DiagonalPenalty(-0.1)),
    "shared-diagonal-dropout": Variant(DiagonalDropout(0.2, shared=True)),
}
"""The five variants of P1's table; the last is the fourth with one draw for all sensors and heads, its public code."""

ATTENTION_DROPOUT = 0.1
"""Dropout of all attention weights, in every variant of P1."""


def input_features(
    inputs: NDArray[np.float64], inputs_time: NDArray[np.float64], scaler: Scaler
) -> NDArray[np.float64]:
    """What the forecaster is told about each reading.

    Args:
        inputs: raw readings (N, T, S), 0 = missing.
        inputs_time: time of day (N, T), in [0, 1).
        scaler: fitted on the training rows.

    Returns:
        (N, S, T, 4): the scaled reading (0 where missing), 1 where observed, sine and cosine of the time of day.
    """
    readings = np.stack([scaler.scale(inputs), observed(inputs).astype(np.float64)], axis=-1).swapaxes(1, 2)
    angle = 2 * np.pi * inputs_time
    circle = np.stack([np.sin(angle), np.cos(angle)], axis=-1)[:, None]
    return np.concatenate([readings, np.broadcast_to(circle, (*readings.shape[:-1], 2))], axis=-1)


def time_absolute_positions(tokens: int, width: int) -> Tensor:
    """ConvTran's time absolute position encoding (tAPE), which stretches the usual one to the series' length.

    p_i[2k] = sin(w_k i), p_i[2k+1] = cos(w_k i), w_k = 10000^(-2k/d) d/T.

    Source: Foumani, Tan, Webb, Salehi, *Improving position encoding of transformers for multivariate time series
    classification* (2305.16642); in P1's public code.

    Args:
        tokens: T >= 1.
        width: d, even.

    Returns:
        (T, d), float64.

    Raises:
        ValueError: an odd width, or a number below 1.
    """
    if tokens < 1 or width < 2 or width % 2:
        raise ValueError(f"positions need at least one token and an even width, got {tokens} and {width}")
    frequencies = torch.exp(-math.log(10_000) / width * torch.arange(0, width, 2, dtype=torch.float64)) * width / tokens
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] * frequencies
    return torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1).flatten(-2)


class GraphConvolution(nn.Module):
    """Projects x, A x, A^2 x, B x, B^2 x, side by side, back to the width of x.

    Args:
        sensors: S.
        width: d.
        spatial: "graph" or "published".
        dtype: of the weights; torch's default dtype if not given.

    Attributes:
        source, target: the embeddings E and F, (S, 10).
        projection: ``nn.Linear(5 d, d)``.
    """

    def __init__(
        self, sensors: int, width: int, *, spatial: Literal["graph", "published"], dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.spatial = spatial
        self.source, self.target = (nn.Parameter(torch.randn(sensors, EMBEDDING_WIDTH, dtype=dtype)) for _ in range(2))
        self.projection = nn.Linear((2 * ORDER + 1) * width, width, dtype=dtype)

    def adjacencies(self) -> tuple[Tensor, Tensor]:
        """A and B, each (S, S), rows sum to one; [m, n] is what sensor m takes from sensor n."""
        scores = self.source @ self.target.T
        return torch.softmax(torch.relu(scores), dim=-1), torch.softmax(torch.relu(scores.T), dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """(..., S, T, d) to the same shape."""
        parts = [x]
        if self.spatial == "published":
            for adjacency in self.adjacencies():
                scale = adjacency.diagonal()[:, None, None]
                parts += [scale**power * x for power in range(1, ORDER + 1)]
        else:
            powers = [torch.linalg.matrix_power(a, power) for a in self.adjacencies() for power in range(1, ORDER + 1)]
            # Expanded by hand: matmul would copy x into the other order to save the batch dimension.
            mixed = torch.cat(powers).expand(*x.shape[:-3], -1, -1) @ x.flatten(-2)
            parts += mixed.unflatten(-2, (len(powers), -1)).unflatten(-1, x.shape[-2:]).unbind(-4)
        return self.projection(torch.cat(parts, dim=-1))


class Block(nn.Module):
    """Attention over time, then a graph convolution over sensors, a LayerNorm after each residual."""

    def __init__(
        self,
        sensors: int,
        size: Size,
        variant: Variant,
        spatial: Spatial,
        *,
        attention_dropout: float,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.attention = TemporalAttention(
            size.width,
            size.heads,
            diagonal=variant.diagonal,
            dropout=WeightDropout(attention_dropout) if attention_dropout else None,
            residual=variant.residual,
            dtype=dtype,
        )
        self.attention_norm = nn.LayerNorm(size.width, dtype=dtype)
        self.graph = None if spatial == "none" else GraphConvolution(sensors, size.width, spatial=spatial, dtype=dtype)
        self.graph_norm = None if spatial == "none" else nn.LayerNorm(size.width, dtype=dtype)

    def forward(self, x: Tensor, *, last_alone: bool = False) -> Tensor:
        """(..., S, T, d) to the same shape, or to the last token alone, (..., S, 1, d)."""
        x = self.attention_norm(self.attention(x))
        if last_alone:
            x = x[..., -1:, :]
        if self.graph is not None and self.graph_norm is not None:
            x = self.graph_norm(x + self.graph(x))
        return x


class Forecaster(nn.Module):
    """Speeds of all sensors at the next steps, in units of the scale that the features were scaled by.

    Args:
        sensors: S.
        size: ``PRESETS["small"]`` if not given.
        variant: one of ``VARIANTS``, or another; no regularisation if not given.
        spatial: "graph", "published" or "none".
        readout: "last" or "all".
        steps_in: T, tokens.
        steps_out: steps ahead.
        attention_dropout: in [0, 1), of all attention weights.
        dtype: of the weights; torch's default dtype if not given.

    Attributes:
        blocks: the blocks; their ``attention`` is the ``TemporalAttention``, their ``graph`` the graph convolution.

    Raises:
        ValueError: a number below 1, a width that is odd or no multiple of the heads, a mask on one single step, or an
            unknown ``spatial`` or ``readout``.
    """

    positions: Tensor

    def __init__(
        self,
        sensors: int,
        *,
        size: Size = PRESETS["small"],
        variant: Variant = VARIANTS["no-regularisation"],
        spatial: Spatial = "graph",
        readout: Readout = "last",
        steps_in: int = 12,
        steps_out: int = 12,
        attention_dropout: float = ATTENTION_DROPOUT,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("sensors", sensors), ("blocks", size.blocks), ("steps_out", steps_out)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name, value, known in (("spatial", spatial, get_args(Spatial)), ("readout", readout, get_args(Readout))):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")
        dtype = torch.get_default_dtype() if dtype is None else dtype
        self.readout = readout
        self.register_buffer("positions", time_absolute_positions(steps_in, size.width).to(dtype), persistent=False)
        self.input = nn.Linear(FEATURES, size.width, dtype=dtype)
        self.blocks = nn.ModuleList(
            Block(sensors, size, variant, spatial, attention_dropout=attention_dropout, dtype=dtype)
            for _ in range(size.blocks)
        )
        if readout == "last":
            self.forecast: nn.Module = nn.Linear(size.width, steps_out, dtype=dtype)
        else:
            self.forecast = nn.Sequential(
                nn.Linear(size.width, 1, dtype=dtype), nn.Flatten(-2), nn.Linear(steps_in, steps_out, dtype=dtype)
            )

    def forward(self, features: Tensor) -> Tensor:
        """Forecast.

        Args:
            features: (..., S, T, 4), see ``input_features``.

        Returns:
            (..., steps_out, S), scaled.
        """
        x = self._embed(features)
        last = self.readout == "last"
        for number, block in enumerate(self.blocks, start=1):
            # The graph convolution keeps steps apart, so what is not read off need not go through the last one.
            x = block(x, last_alone=last and number == len(self.blocks))
        return self.forecast(x[..., -1, :] if last else x).transpose(-1, -2)

    def attention_weights(self, features: Tensor) -> list[Tensor]:
        """Each block's attention weights before any dropout, (..., S, H, T, T); meant for evaluation mode."""
        x = self._embed(features)
        weights = []
        for block in self.blocks:
            weights.append(block.get_submodule("attention")(x, return_weights=True)[1])
            x = block(x)
        return weights

    def _embed(self, features: Tensor) -> Tensor:
        tokens = len(self.positions)
        if features.dim() < 3 or features.shape[-2:] != (tokens, FEATURES):
            raise ValueError(f"features must have shape (..., S, {tokens}, {FEATURES}), got {tuple(features.shape)}")
        return self.input(features) + self.positions
