"""A5 across the rooms: the layer under each regulariser has the weights and Jacobian of ``numerics``, draw by draw."""

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.func import jacrev

import numerics
from attention import (
    DiagonalDropout,
    DiagonalMask,
    DiagonalPenalty,
    DiagonalWeightDropout,
    TemporalAttention,
    WeightDropout,
)
from tests.evidence import agree, claim, refuted

BEFORE_SOFTMAX: dict[str, dict[str, Any]] = {
    "penalty": {"diagonal": DiagonalPenalty(-0.7)},
    "mask": {"diagonal": DiagonalMask()},
    "score dropout": {"diagonal": DiagonalDropout(0.4)},
    "shared score dropout": {"diagonal": DiagonalDropout(0.4, shared=True)},
}
AFTER_SOFTMAX: dict[str, dict[str, Any]] = {
    "all weights": {"dropout": WeightDropout(0.4)},
    "diagonal only": {"diagonal": DiagonalWeightDropout(0.4)},
    "score dropout, then all weights": {"diagonal": DiagonalDropout(0.3), "dropout": WeightDropout(0.2)},
}


class Case(NamedTuple):
    """Shape and seed of a layer with its tokens; the seed also fixes the draw of the dropouts."""

    tokens: int
    heads: int
    width: int
    bias: bool
    seed: int

    def layer(self, **options) -> TemporalAttention:
        torch.manual_seed(self.seed)
        layer = TemporalAttention(self.heads * self.width, self.heads, bias=self.bias, **options)
        return layer.requires_grad_(requires_grad=False)

    def x(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return 2 * torch.randn(self.tokens, self.heads * self.width, generator=generator)

    def pass_without(self) -> numerics.Heads:
        """The forward pass of the same weights without a regulariser."""
        return numerics.attention_heads(self.x(), **self.layer().projections())

    def weights(self, **options) -> Tensor:
        """The weights that the values were multiplied by, under the case's draw."""
        layer = self.layer(**options)
        torch.manual_seed(self.seed + 1)
        return layer(self.x(), return_weights="after dropout")[1]

    def jacobian(self, **options) -> Tensor:
        """(T, T, d, d) of the layer without residual, under the same draw."""
        layer = self.layer(residual=False, **options)
        torch.manual_seed(self.seed + 1)
        return jacrev(layer)(self.x()).movedim(2, 1)


cases = st.builds(
    Case,
    tokens=st.integers(2, 5),
    heads=st.integers(1, 3),
    width=st.integers(1, 3),
    bias=st.booleans(),
    seed=st.integers(0, 2**16),
)


def expected_weights(name: str, case: Case) -> Tensor:
    """The weights under a regulariser before the softmax, by ``numerics``; which scores were dropped is read off."""
    before = case.pass_without().weights
    if name == "penalty":
        return numerics.penalised_weights(before, -0.7)
    masked = numerics.masked_weights(before)
    if name == "mask":
        return masked
    dropped = case.weights(**BEFORE_SOFTMAX[name]).diagonal(dim1=-2, dim2=-1) == 0
    return torch.where(dropped.unsqueeze(-1), masked, before)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("penalty", marks=claim("A5.penalty", "property")),
        pytest.param("mask", marks=claim("A5.penalty", "property")),
        pytest.param("score dropout", marks=claim("A5.score-dropout", "property")),
        pytest.param("shared score dropout", marks=claim("A5.score-dropout", "property")),
    ],
)
@settings(max_examples=25)
@given(case=cases)
def test_weights_before_the_softmax_are_those_of_the_formula(name, case):
    agree(case.weights(**BEFORE_SOFTMAX[name]), expected_weights(name, case))


@claim("A5.jacobian", "property")
@pytest.mark.parametrize("name", BEFORE_SOFTMAX)
@settings(max_examples=25)
@given(case=cases)
def test_jacobian_before_the_softmax_has_the_new_weights(name, case):
    changed = numerics.with_weights(case.pass_without(), expected_weights(name, case))
    agree(numerics.jacobian_rows(changed, range(case.tokens)), case.jacobian(**BEFORE_SOFTMAX[name]))


def softmax_and_factor(case: Case, options: dict[str, Any]) -> tuple[numerics.Heads, Tensor]:
    """The pass as the softmax left it, and the factors after it, read off the weights."""
    heads = case.pass_without()
    used = case.weights(**options)
    if isinstance(options.get("diagonal"), DiagonalDropout):
        # Own scores are drawn first, so the same seed drops the same scores without the second dropout.
        heads = numerics.with_weights(heads, case.weights(diagonal=options["diagonal"]))
    return heads, torch.where(heads.weights > 0, used / heads.weights, 1.0)


def check_jacobian_after_softmax(case: Case, options: dict[str, Any], formula):
    heads, factor = softmax_and_factor(case, options)
    found = formula(heads, factor)
    agree(found, case.jacobian(**options), scale=numerics.jacobian_rows(heads, range(case.tokens)).abs().max())


@claim("A5.weight-dropout", "property")
@pytest.mark.parametrize("name", AFTER_SOFTMAX)
@settings(max_examples=25)
@given(case=cases)
def test_jacobian_after_the_softmax_is_the_formula_for_the_draw(name, case):
    check_jacobian_after_softmax(case, AFTER_SOFTMAX[name], numerics.jacobian_after_weight_dropout)


@claim("A5.jacobian", "near-miss")
@pytest.mark.parametrize("name", ["all weights", "diagonal only"])
def test_the_new_weights_in_the_old_formula_are_refuted_after_the_softmax(name):
    def substituted(heads, factor):
        changed = numerics.with_weights(heads, factor * heads.weights)
        return numerics.jacobian_rows(changed, range(heads.weights.shape[-1]))

    refuted(lambda case: check_jacobian_after_softmax(case, AFTER_SOFTMAX[name], substituted), cases)
