"""A6 evaluated: closed forms = derivatives of stacked layers; who is favoured = exact comparison of all weights."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted

sizes = st.tuples(st.integers(1, 14), st.integers(0, 8))
"""(T, L) of an attention stack."""

stacks = st.tuples(st.integers(1, 14), st.integers(1, 5), st.integers(1, 6))
"""(T, w, L) of a convolution stack."""

deep_stacks = st.tuples(st.integers(1, 14), st.integers(1, 5), st.integers(2, 6))


def attention_stack(tokens: int, layers: int, *, causal: bool) -> Tensor:
    """Derivative of the last layer's outputs in the first layer's inputs, all scores equal: (T, T)."""
    blocked = torch.ones(tokens, tokens, dtype=torch.bool).triu(1) if causal else None
    no_content = torch.zeros(tokens, 1)

    def stack(x: Tensor) -> Tensor:
        for _ in range(layers):
            x, _ = attention.attend(no_content, no_content, x, blocked=blocked)
        return x

    return torch.func.jacrev(stack)(torch.zeros(tokens, 1))[:, 0, :, 0]


def convolution_stack(tokens: int, width: int, layers: int) -> Tensor:
    """Derivative of L causal, zero-padded conv1d layers with a uniform kernel: (T, T)."""
    kernel = torch.full((1, 1, width), 1 / width)

    def stack(x: Tensor) -> Tensor:
        for _ in range(layers):
            padded = torch.nn.functional.pad(x[None, None], (width - 1, 0))
            x = torch.nn.functional.conv1d(padded, kernel)[0, 0]
        return x

    return torch.func.jacrev(stack)(torch.zeros(tokens))


def counted_lags(tokens: int, width: int, layers: int) -> list[int]:
    """w^L g_L(m) for m = 0 .. T - 1, by running sums of integers."""
    counts = [1] + [0] * (tokens - 1)
    for _ in range(layers):
        counts = [sum(counts[max(0, m - width + 1) : m + 1]) for m in range(tokens)]
    return counts


def check_causal_shares(size, shares=numerics.causal_shares):
    agree(shares(*size), attention_stack(*size, causal=True))


@claim("A6.spectrum", "property")
@given(sizes)
def test_powers_are_the_derivative_of_a_causal_stack(size):
    check_causal_shares(size)


WRONG_POWERS = {
    "one layer more": lambda tokens, layers: numerics.causal_shares(tokens, layers + 1),
    "transposed": lambda tokens, layers: numerics.causal_shares(tokens, layers).T,
}


@claim("A6.spectrum", "near-miss")
@pytest.mark.parametrize("name", WRONG_POWERS)
def test_wrong_powers_are_refuted(name):
    refuted(lambda size: check_causal_shares(size, WRONG_POWERS[name]), sizes)


def check_spectrum(tokens, eigenvalue=lambda n: 1 / (n + 1)):
    """Solver's eigenvalues of the stack's Jacobian, sorted."""
    found = torch.linalg.eigvals(attention_stack(tokens, 1, causal=True)).real.sort().values
    agree(found, torch.tensor([eigenvalue(n) for n in range(tokens)]).sort().values)


@claim("A6.spectrum", "property")
@given(st.integers(1, 14))
def test_spectrum_is_the_reciprocals(tokens):
    check_spectrum(tokens)


@claim("A6.spectrum", "near-miss")
def test_a_geometric_spectrum_is_refuted():
    refuted(lambda tokens: check_spectrum(tokens, eigenvalue=lambda n: 2.0**-n), st.integers(1, 14))


def check_leak(size, base=2.0, per_row=True):
    """1 - (A^L)_i0 from autograd against i base^-L."""
    tokens, layers = size
    leak = 1 - attention_stack(tokens, layers, causal=True)[:, 0]
    rows = torch.arange(tokens, dtype=torch.float64) if per_row else torch.ones(tokens)
    at_most(leak, rows * base**-layers, scale=1.0)


@claim("A6.first-token", "property")
@given(sizes)
def test_leak_of_the_first_token_is_bounded(size):
    check_leak(size)


@claim("A6.first-token", "property")
@given(sizes)
def test_leak_and_bound_are_the_stacks(size):
    tokens, layers = size
    leak, bound = numerics.first_token_leak(*size)
    agree(leak, 1 - attention_stack(tokens, layers, causal=True)[:, 0], scale=1.0)
    at_most(leak, bound)


@claim("A6.first-token", "property")
@given(st.integers(2, 40), st.integers(1, 20))
def test_bound_is_an_equality_at_row_one_and_sharp_for_deep_stacks(tokens, layers):
    leak, bound = numerics.first_token_leak(tokens, layers)
    agree(leak[:2], bound[:2])
    # The second term of the alternating sum is C(i,2) 3^-L.
    rows = torch.arange(tokens, dtype=torch.float64)
    at_most(bound - leak, rows * (rows - 1) / 2 * 3.0**-layers, scale=bound.max())


@claim("A6.first-token", "near-miss")
@pytest.mark.parametrize("wrong", [{"base": 3.0}, {"per_row": False}], ids=["3^-L", "without i"])
def test_a_smaller_leak_is_refuted(wrong):
    refuted(lambda size: check_leak(size, **wrong), sizes)


@claim("A6.first-token", "property")
@given(st.tuples(st.integers(2, 14), st.integers(1, 8)))
def test_older_tokens_weigh_at_least_as_much(size):
    shares = attention_stack(*size, causal=True)
    at_most(shares[:, 1:], shares[:, :-1], scale=1.0)


def check_equal_shares(size, causal=False):
    tokens, layers = size
    agree(attention_stack(tokens, layers, causal=causal), numerics.bidirectional_shares(tokens, layers))


@claim("A6.bidirectional", "property")
@given(sizes)
def test_bidirectional_attention_favours_nobody(size):
    check_equal_shares(size)


@claim("A6.bidirectional", "near-miss")
def test_equal_shares_under_a_causal_mask_are_refuted():
    refuted(lambda size: check_equal_shares(size, causal=True), sizes)


def check_convolution_shares(stack, shares=numerics.convolution_shares):
    agree(shares(*stack), convolution_stack(*stack))


@claim("A6.convolution", "property")
@given(stacks)
def test_shares_are_the_derivative_of_stacked_conv1d(stack):
    check_convolution_shares(stack)


@claim("A6.convolution", "property")
@given(stacks)
def test_lost_mass_is_what_rows_lack(stack):
    rows = convolution_stack(*stack).sum(1)
    agree(1 - rows, numerics.convolution_lost_mass(*stack), scale=1.0)


@claim("A6.convolution", "property")
@given(stacks)
def test_normalised_shares_are_the_stacks_rows_over_their_sums(stack):
    derivative = convolution_stack(*stack)
    agree(numerics.convolution_shares(*stack, normalised=True), derivative / derivative.sum(1, keepdim=True))


@claim("A6.convolution", "near-miss")
def test_shares_without_lost_mass_are_refuted():
    refuted(
        lambda stack: check_convolution_shares(stack, lambda *s: numerics.convolution_shares(*s, normalised=True)),
        stacks,
    )


def check_favoured(stack, predicted=numerics.convolution_favours_first, *, ties=False):
    """Row by row, token 0 against all others that the row can see, in integers."""
    counts = counted_lags(*stack)
    others = [max(counts[:row], default=-1) for row in range(stack[0])]
    found = [count >= other if ties else count > other for count, other in zip(counts, others, strict=True)]
    agree(torch.tensor(found).double(), predicted(*stack).double())


@claim("A6.convolution", "property")
@given(stacks)
def test_first_token_is_favoured_exactly_up_to_the_centre(stack):
    check_favoured(stack)


@claim("A6.convolution", "property")
@given(stacks)
def test_with_ties_one_row_more_where_the_centre_is_between_two(stack):
    check_favoured(stack, lambda *s: numerics.convolution_favours_first(*s, ties=True), ties=True)


WRONG_RANGES = {
    "at every t": lambda tokens, width, layers: torch.ones(tokens),
    "while it is seen": lambda tokens, width, layers: torch.arange(tokens) <= layers * (width - 1),
    "up to Lw/2": lambda tokens, width, layers: 2 * torch.arange(tokens) <= layers * width,
    "ties counted in": lambda *stack: numerics.convolution_favours_first(*stack, ties=True),
}


@claim("A6.convolution", "near-miss")
@pytest.mark.parametrize("name", WRONG_RANGES)
def test_a_wider_range_is_refuted(name):
    refuted(lambda stack: check_favoured(stack, WRONG_RANGES[name]), deep_stacks)


@claim("A6.convolution", "near-miss")
def test_the_centre_rule_without_its_exception_for_one_layer_is_refuted():
    def rule(tokens: int, width: int, layers: int) -> Tensor:
        return 2 * torch.arange(tokens) <= layers * (width - 1)

    refuted(lambda stack: check_favoured(stack, rule), stacks)


def test_smallest_counterexample_by_hand():
    shares = numerics.convolution_shares(3, 2, 2)
    agree(shares[2], torch.tensor([0.25, 0.5, 0.25]))
    assert not numerics.convolution_favours_first(3, 2, 2)[2]


rows_and_depths = st.tuples(st.integers(1, 6), st.integers(2, 5), st.integers(1, 20))
"""(t, w, how much deeper than 2 t^2)."""


def check_first_share(case, slope=1):
    """1 - share of token 0 in row t, in exact integers, is t/L to within (t/L)^2."""
    row, width, times = case
    layers = 2 * times * row**2
    counts = counted_lags(row + 1, width, layers)
    missing = 1 - Fraction(counts[row], sum(counts))
    at_most(float(abs(missing - Fraction(slope * row, layers))), float(Fraction(row, layers) ** 2))
    agree(
        numerics.convolution_shares(row + 1, width, layers, normalised=True)[row, 0], torch.tensor(float(1 - missing))
    )


@claim("A6.convolution", "property")
@given(rows_and_depths)
def test_first_share_tends_to_one_like_one_minus_t_over_depth(case):
    check_first_share(case)


@claim("A6.convolution", "property")
@given(st.integers(0, 4), st.integers(1, 60))
def test_first_share_is_depth_over_depth_plus_t_inside_the_kernel(row, layers):
    width = 5
    share = numerics.convolution_shares(row + 1, width, layers, normalised=True)[row, 0]
    agree(share, torch.tensor(layers / (layers + row)))


@claim("A6.convolution", "near-miss")
def test_another_rate_is_refuted():
    refuted(lambda case: check_first_share(case, slope=2), rows_and_depths)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="tokens must be an integer of at least 1, got 0"):
        numerics.causal_shares(0, 1)
    with pytest.raises(ValueError, match="layers must be an integer of at least 0, got -1"):
        numerics.first_token_leak(3, -1)
    with pytest.raises(ValueError, match="tokens must be an integer of at least 1, got -2"):
        numerics.bidirectional_shares(-2, 1)
    with pytest.raises(ValueError, match="layers must be an integer of at least 1, got 0"):
        numerics.convolution_shares(3, 2, 0)
    with pytest.raises(ValueError, match="width must be an integer of at least 1, got 0"):
        numerics.convolution_favours_first(3, 0, 2)
    with pytest.raises(ValueError, match="layers must be an integer of at least 1, got None"):
        numerics.convolution_lost_mass(3, 2, None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="layers must be an integer of at least 1, got None"):
        numerics.convolution_shares(3, 2, None)  # pyright: ignore[reportArgumentType]
