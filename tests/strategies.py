"""Random attention layers for property tests.

Hypothesis draws the shape, the options and a seed; torch fills the numbers from the seed. A failing example therefore
shrinks to a small shape, and its repr rebuilds it.
"""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

import numerics


@dataclass(frozen=True, repr=False)
class Layer:
    """An attention layer with its tokens; ``arguments`` and ``options`` are what ``numerics.attention_heads`` takes."""

    x: Tensor
    w_q: Tensor
    w_k: Tensor
    w_v: Tensor
    options: dict
    recipe: dict
    """What was drawn: enough to rebuild the layer."""

    def __repr__(self) -> str:
        return f"build_layer({', '.join(f'{name}={value!r}' for name, value in self.recipe.items())})"

    @property
    def arguments(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.x, self.w_q, self.w_k, self.w_v

    @property
    def heads(self) -> numerics.Heads:
        return numerics.attention_heads(*self.arguments, **self.options)


MASKS = ("none", "causal", "diagonal", "random")


@st.composite
def layers(
    draw,
    *,
    min_tokens: int = 1,
    max_tokens: int = 12,
    max_width: int = 8,
    max_heads: int = 4,
    masks: tuple[str, ...] = MASKS,
    scores: tuple[float, ...] = (0.0, 1.0, 30.0, 1000.0),
    projection_bias: bool = True,
    score_bias: bool = True,
    output_projection: bool = True,
    square: bool = False,
    equal_tokens: bool = True,
) -> Layer:
    """Layers of every shape, mask and bias within the limits.

    Args:
        scores: the largest score in size, scaled to exactly; 1000.0 saturates every row.
        square: d_out = d, so that a residual fits.
        equal_tokens: sometimes all tokens are one.
    """
    tokens = draw(st.integers(min_tokens, max_tokens))
    width = draw(st.integers(1, max_width))
    num_heads = draw(st.integers(1, max_heads))
    d_k = draw(st.integers(1, max_width))
    projected = output_projection and draw(st.booleans())
    d_v = draw(st.integers(1, max_width)) if projected or not square else width
    recipe = {
        "tokens": tokens,
        "width": width,
        "num_heads": num_heads,
        "d_k": d_k,
        "d_v": d_v,
        "d_out": (width if square else draw(st.integers(1, max_width))) if projected else None,
        "mask": draw(st.sampled_from([m for m in masks if tokens > 1 or m != "diagonal"])),
        "largest_score": draw(st.sampled_from(scores)),
        "projection_bias": projection_bias and draw(st.booleans()),
        "score_bias": score_bias and draw(st.booleans()),
        "equal_tokens": equal_tokens and draw(st.integers(0, 5)) == 5,
        "seed": draw(st.integers(0, 2**16)),
    }
    return build_layer(**recipe)


def build_layer(
    *,
    tokens: int,
    width: int,
    num_heads: int = 1,
    d_k: int,
    d_v: int,
    d_out: int | None = None,
    mask: str = "none",
    largest_score: float = 1.0,
    projection_bias: bool = False,
    score_bias: bool = False,
    equal_tokens: bool = False,
    seed: int,
) -> Layer:
    """The layer of a recipe. Everything is standard normal, then the queries are scaled to the largest score."""
    recipe = dict(locals())
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(1, width).expand(tokens, width).clone() if equal_tokens else normal(tokens, width)
    w_q, w_k = normal(num_heads * d_k, width), normal(num_heads * d_k, width)
    w_v = normal(num_heads * d_v, width)
    options: dict = {"num_heads": num_heads}
    if d_out is not None:
        options["w_o"] = normal(d_out, num_heads * d_v)
    if projection_bias:
        options |= {"b_q": normal(num_heads * d_k), "b_k": normal(num_heads * d_k), "b_v": normal(num_heads * d_v)}
    if score_bias:
        options["bias"] = normal(num_heads, tokens, tokens)
    blocked = _mask(mask, tokens, num_heads, generator)
    if blocked is not None:
        options["blocked"] = blocked

    unscaled = numerics.attention_heads(x, w_q, w_k, w_v, **{k: v for k, v in options.items() if k != "bias"})
    largest = float((unscaled.scale * unscaled.queries @ unscaled.keys.transpose(-1, -2)).abs().max())
    factor = largest_score / largest if largest > 0 else 1.0
    if "b_q" in options:
        options["b_q"] = options["b_q"] * factor
    return Layer(x, w_q * factor, w_k, w_v, options, recipe)


def _mask(mask: str, tokens: int, num_heads: int, generator: torch.Generator) -> Tensor | None:
    if mask == "none":
        return None
    if mask == "causal":
        return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    if mask == "diagonal":
        return torch.eye(tokens, dtype=torch.bool)
    blocked = torch.rand(num_heads, tokens, tokens, generator=generator) < 0.5
    kept = torch.randint(tokens, (num_heads, tokens, 1), generator=generator)
    return blocked.scatter(-1, kept, False)
