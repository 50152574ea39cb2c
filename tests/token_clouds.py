"""Random token clouds with a sink, for property tests of geometry and prices.

Hypothesis draws the shape, the kind and a seed; NumPy fills the numbers. A failing example shrinks to a small shape,
and its repr rebuilds it.
"""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

KINDS = ("plain", "shifted", "integer", "thin", "collinear", "equal")


@dataclass(frozen=True, repr=False)
class TokenCloud:
    """Tokens x_1..x_n (n, d) and a sink x_0 (d,)."""

    tokens: NDArray[np.float64]
    sink: NDArray[np.float64]
    recipe: dict
    """What was drawn: enough to rebuild the cloud."""

    def __repr__(self) -> str:
        return f"build_cloud({', '.join(f'{name}={value!r}' for name, value in self.recipe.items())})"


@st.composite
def clouds(
    draw,
    *,
    min_tokens: int = 1,
    max_tokens: int = 10,
    min_width: int = 1,
    max_width: int = 8,
    kinds: tuple[str, ...] = KINDS,
    scales: tuple[float, ...] = (1.0, 1e-3, 1e3),
) -> TokenCloud:
    """Clouds of every shape, kind and scale within the limits."""
    return build_cloud(
        n=draw(st.integers(min_tokens, max_tokens)),
        d=draw(st.integers(min_width, max_width)),
        kind=draw(st.sampled_from(kinds)),
        scale=draw(st.sampled_from(scales)),
        seed=draw(st.integers(0, 2**16)),
    )


def build_cloud(*, n: int, d: int, kind: str = "plain", scale: float = 1.0, seed: int) -> TokenCloud:
    """The cloud of a recipe.

    Kinds: "plain" standard normal; "shifted" the same around a common vector, with a sink far away; "integer" entries
    in -2 .. 2, often degenerate; "thin" both hull distances near 1e-3 of the cloud's width; "collinear" on one line,
    the sink perhaps too; "equal" one token n times.
    """
    recipe = dict(locals())
    generator = np.random.default_rng(seed)
    tokens, sink = generator.standard_normal((n, d)), generator.standard_normal(d)
    if kind == "shifted":
        tokens, sink = tokens + 3 * generator.standard_normal(d), 5 * sink
    elif kind == "integer":
        tokens, sink = generator.integers(-2, 3, (n, d)).astype(float), generator.integers(-2, 3, d).astype(float)
    elif kind == "thin":
        tokens[:, 0] = 1e-3 * (1 + generator.random(n))
        sink = tokens.mean(0)
        sink[0] = 3e-3
    elif kind == "collinear":
        steps = generator.integers(-3, 4, n + 1)
        start, direction = generator.integers(-2, 3, d), generator.integers(-2, 3, d)
        line = (start + steps[:, None] * direction).astype(float)
        tokens, sink = line[:-1], line[-1] + generator.integers(0, 2) * sink
    elif kind == "equal":
        tokens = np.repeat(tokens[:1], n, axis=0)
    return TokenCloud(scale * tokens, scale * sink, recipe)
