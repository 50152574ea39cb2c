"""B5 evaluated: the two sides of the hard switch around the outputs of the reference attention."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted
from tests.strategies import Layer, layers


def with_silent_sink(layer: Layer) -> numerics.Heads:
    """The layer's heads with v_0 = 0."""
    values = layer.heads.values.clone()
    values[..., 0, :] = 0.0
    return replace(layer.heads, values=values, outputs=layer.heads.weights @ values)


def reference_outputs(layer: Layer, heads: numerics.Heads) -> Tensor:
    """o (H, T, d_v) by the reference attention."""
    options = {name: layer.options[name] for name in ("blocked", "bias") if name in layer.options}
    return attention.attend(heads.queries, heads.keys, heads.values, **options)[0]


def sides(layer: Layer, heads: numerics.Heads) -> numerics.HardSwitch:
    return numerics.hard_switch(heads.weights, heads.values, blocked=layer.options.get("blocked"))


def check_sandwich(layer, lower=1.0, upper=1.0):
    heads = with_silent_sink(layer)
    found, lengths = sides(layer, heads), reference_outputs(layer, heads).norm(dim=-1)
    agree(found.output, lengths, scale=heads.values.norm(dim=-1).max())
    at_most(lower * found.lower, found.output, scale=found.upper)
    at_most(found.output, upper * found.upper)


@claim("B5.sandwich", "property")
@given(layers(max_tokens=8))
def test_outputs_lie_between_the_two_sides(layer):
    check_sandwich(layer)


@claim("B5.sandwich", "property")
@given(layers(max_tokens=8))
def test_a_loud_sink_is_taken_out(layer):
    heads = layer.heads
    found = sides(layer, heads)
    outputs = reference_outputs(layer, heads) - heads.weights[..., :1] * heads.values[..., :1, :]
    agree(found.output, outputs.norm(dim=-1), scale=heads.values.norm(dim=-1).max())
    at_most(found.lower, found.output, scale=found.upper)
    at_most(found.output, found.upper)


@claim("B5.sandwich", "property")
@given(layers(max_tokens=8, max_heads=1, max_width=1, output_projection=False))
def test_on_a_line_the_hull_is_an_interval(layer):
    # One-dimensional values: the distance from 0 to [min, max] needs no solver.
    heads = with_silent_sink(layer)
    blocked = layer.options.get("blocked", torch.zeros(heads.weights.shape, dtype=torch.bool)).clone()
    blocked = blocked.expand(heads.weights.shape).clone()
    blocked[..., 0] = True
    cloud = heads.values.squeeze(-1).unsqueeze(-2).expand(heads.weights.shape)
    least = cloud.masked_fill(blocked, torch.inf).amin(-1)
    most = cloud.masked_fill(blocked, -torch.inf).amax(-1)
    expected = torch.where(blocked.all(-1), 0.0, torch.maximum(least, -most).clamp(min=0.0))
    agree(sides(layer, heads).hull_distance, expected)


@claim("B5.sandwich", "near-miss")
@pytest.mark.parametrize("wrong", [{"lower": 2.0}, {"upper": 0.5}])
def test_a_tighter_side_is_refuted(wrong):
    refuted(lambda layer: check_sandwich(layer, **wrong), layers(max_tokens=4, max_width=3, scores=(0.0, 1.0)))


@st.composite
def cancelling_values(draw):
    """Values (2 n + 1, d_v): a sink of value 0 and n pairs +v, -v, in any order."""
    pairs, width, seed = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    half = torch.randn(pairs, width, generator=generator)
    both = torch.cat([half, -half])[torch.randperm(2 * pairs, generator=generator)]
    return torch.cat([torch.zeros(1, width), both])


def check_silence_and_sink(values, sink_weight=None):
    """Uniform attention is silent on cancelling values, with this much weight on the sink."""
    zeros = torch.zeros_like(values)
    outputs, weights = attention.attend(zeros, zeros, values)
    agree(outputs, zeros, scale=values.abs().max())
    expected = 1 / len(values) if sink_weight is None else sink_weight
    agree(weights[:, 0], torch.full((len(values),), expected))
    agree(numerics.hard_switch(weights, values).lower, torch.zeros(len(values)), scale=values.abs().max())


@claim("B5.equivalence", "property")
@given(cancelling_values())
def test_values_that_cancel_are_silent_without_a_sink(values):
    check_silence_and_sink(values)


@claim("B5.equivalence", "near-miss")
def test_that_silence_needs_all_weight_on_the_sink_is_refuted():
    refuted(lambda values: check_silence_and_sink(values, sink_weight=1.0), cancelling_values())


def check_values_from_outputs(layer):
    """Forward substitution through the lower triangle: it inverts the weights iff they are causal."""
    heads = layer.heads
    determinant = heads.weights.diagonal(dim1=-2, dim2=-1).prod(-1)
    agree(torch.linalg.det(heads.weights), determinant, scale=1e-3)
    recovered = torch.linalg.solve_triangular(heads.weights, reference_outputs(layer, heads), upper=False)
    agree(recovered, heads.values, scale=heads.values.abs().max() / determinant.min())


@claim("B5.exact-silence", "property")
@given(layers(max_tokens=6, masks=("causal",), scores=(0.0, 1.0)))
def test_causal_outputs_give_the_values_back(layer):
    check_values_from_outputs(layer)


@claim("B5.exact-silence", "near-miss")
def test_without_the_causal_mask_they_do_not():
    refuted(check_values_from_outputs, layers(min_tokens=2, max_tokens=6, masks=("none",), scores=(0.0, 1.0)))


@dataclass(frozen=True)
class Copies:
    """A head's scores for x_0, x and y in the row of x, and the three values."""

    scores: tuple[float, float, float]
    values: Tensor
    number: int

    def last_row(self, number: int) -> tuple[Tensor, Tensor]:
        """Output and weights of the last row, which sees (x_0, number copies of y, x), by the reference attention."""
        order = [0, *[2] * number, 1]
        keys = torch.tensor(self.scores)[order].unsqueeze(-1)
        outputs, weights = attention.attend(torch.ones(1, 1), keys, self.values[order])
        return outputs[0], weights[0]


@st.composite
def copies(draw, max_width=4):
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    values = torch.randn(3, draw(st.integers(1, max_width)), generator=generator)
    values[:2] *= draw(st.sampled_from([0.01, 0.1, 1.0]))
    scores = tuple(draw(st.floats(-4, 4)) for _ in range(3))
    return Copies(scores, values, draw(st.integers(1, 40)))


def check_weight_on_copies(head, factor=1.0):
    short, _ = head.last_row(0)
    out, weights = head.last_row(head.number)
    share = weights[1:-1].sum()
    agree(out, share * head.values[2] + (1 - share) * short, scale=head.values.abs().max())
    eps = float(torch.maximum(short.norm(), out.norm()))
    at_most(share, factor * numerics.silence_bound(eps, float(head.values[2].norm())))


@claim("B5.eps-silence", "property")
@given(copies())
def test_an_eps_silent_head_hardly_reads_copies(head):
    check_weight_on_copies(head)


@claim("B5.eps-silence", "near-miss")
@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_a_smaller_constant_is_refuted(factor):
    refuted(lambda head: check_weight_on_copies(head, factor), copies(max_width=1), tries=1000)


leads = st.tuples(st.integers(1, 60), st.floats(0.01, 0.9), st.floats(1.0, 10.0), st.floats(-3, 3))


def check_lead(example, counted=True):
    """With v_0 = v_x = -eps the least lead makes the output exactly eps long, and less lead makes it longer."""
    number, eps, length, score_y = example
    lead = numerics.least_lead(number if counted else 1, eps, length)
    half = lead + score_y - math.log(2)
    head = Copies((half, half, score_y), torch.tensor([[-eps], [-eps], [length]]), number)
    out, _ = head.last_row(number)
    agree(out, torch.tensor([eps]), scale=length)
    less, _ = replace(head, scores=(half - 0.1, half - 0.1, score_y)).last_row(number)
    at_most(out.abs(), less.abs())


@claim("B5.length", "property")
@given(leads)
def test_the_lead_that_silence_needs_grows_with_the_length(example):
    check_lead(example)


@claim("B5.length", "property")
@given(copies())
def test_at_fixed_scores_the_output_becomes_the_value_of_the_copies(head):
    # (1 - pi)(||v_y|| + ||z||) bounds what is left, and pi >= N w/(1 + N w) with w the copy's odds.
    number = 3000
    short, _ = head.last_row(0)
    out, _ = head.last_row(number)
    odds = math.exp(head.scores[2]) / (math.exp(head.scores[0]) + math.exp(head.scores[1]))
    left = (head.values[2].norm() + short.norm()) / (1 + number * odds)
    at_most((out - head.values[2]).norm(), left, scale=head.values.abs().max())


@claim("B5.length", "near-miss")
def test_a_lead_that_forgets_the_length_is_refuted():
    refuted(lambda example: check_lead(example, counted=False), leads)


def check_diagonal(layer, others=1.0):
    heads = layer.heads
    lengths = heads.values.norm(dim=-1)
    own = heads.weights.diagonal(dim1=-2, dim2=-1)
    eye = torch.eye(layer.x.shape[0], dtype=torch.bool)
    loudest = lengths.unsqueeze(-2).expand(heads.weights.shape).masked_fill(eye, 0.0).amax(-1)
    outputs = reference_outputs(layer, heads).norm(dim=-1)
    floor = own * lengths - others * (1 - own) * loudest
    at_most(floor, outputs, scale=lengths.max())
    # a_ii >= 1 - e for an e above 1 - a_ii bounds less, but bounds.
    leak = (1 - own) + 0.1 * own
    at_most((1 - leak) * lengths - others * leak * loudest, outputs, scale=lengths.max())


@claim("B5.diagonal", "property")
@given(layers())
def test_a_diagonal_is_as_loud_as_its_value(layer):
    check_diagonal(layer)
    heads = layer.heads
    rows = []
    for weights, values in zip(heads.weights, heads.values, strict=True):
        for i, row in enumerate(weights):
            loudest = max((float(v.norm()) for j, v in enumerate(values) if j != i), default=0.0)
            rows.append(row[i] * values[i].norm() - (1 - row[i]) * loudest)
    floor = numerics.diagonal_floor(heads.weights, heads.values)
    agree(floor.flatten(), torch.stack(rows), scale=heads.values.norm(dim=-1).max())


@claim("B5.diagonal", "near-miss")
@pytest.mark.parametrize("others", [0.0, 0.5])
def test_a_higher_floor_is_refuted(others):
    refuted(lambda layer: check_diagonal(layer, others), layers(min_tokens=2, max_width=2, scores=(0.0, 1.0)))


def test_degenerate_heads_have_a_sandwich():
    alone = numerics.hard_switch(torch.ones(1, 1), torch.zeros(1, 2))
    assert [float(side) for side in (alone.lower, alone.output, alone.upper)] == [0.0, 0.0, 0.0]
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.4, 0.4]])
    blocked = torch.ones(3, 3, dtype=torch.bool).triu(1)
    equal = numerics.hard_switch(weights, torch.tensor([[0.0], [2.0], [2.0]]), blocked=blocked)
    agree(equal.lower, equal.upper)
    agree(equal.output, torch.tensor([0.0, 1.0, 1.6]))
    assert numerics.least_lead(5, 1.0, 0.5) == -math.inf
    assert numerics.least_lead(5, 0.0, 0.5) == math.inf


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_tiny_and_huge_values_keep_their_lengths(scale):
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25], [0.2, 0.4, 0.4]])
    values = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, -4.0]])
    one, scaled = numerics.hard_switch(weights, values), numerics.hard_switch(weights, scale * values)
    for name in ("lower", "output", "upper"):
        agree(getattr(scaled, name) / scale, getattr(one, name))
    agree(numerics.diagonal_floor(weights, scale * values) / scale, numerics.diagonal_floor(weights, values))


def test_bad_input_is_named():
    weights, values = torch.eye(2), torch.ones(2, 1)
    with pytest.raises(ValueError, match=r"values must have shape \(2, 'd_v'\), got \(3, 1\)"):
        numerics.hard_switch(weights, torch.ones(3, 1))
    with pytest.raises(ValueError, match=r"weights must be 0 on blocked keys, got 1.0 at \(1, 1\)"):
        numerics.hard_switch(weights, values, blocked=torch.tensor([[False, True], [False, True]]))
    with pytest.raises(ValueError, match="every row of weights must sum to 1"):
        numerics.diagonal_floor(2 * weights, values)
    with pytest.raises(TypeError, match="values must have the dtype of weights"):
        numerics.hard_switch(weights, values.float())
    with pytest.raises(ValueError, match="not both 0, got 0 and 0"):
        numerics.silence_bound(0, 0)
    with pytest.raises(ValueError, match="got -1 and 1"):
        numerics.silence_bound(-1, 1)
    with pytest.raises(ValueError, match="copies must be at least 1, got 0"):
        numerics.least_lead(0, 0.1, 1.0)
    with pytest.raises(TypeError, match="copies must be an integer, got float"):
        numerics.least_lead(float("nan"), 0.1, 1.0)  # pyright: ignore[reportArgumentType]
