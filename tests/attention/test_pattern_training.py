"""Gradient descent with weight decay lands on the exact optimum of B4."""

from math import sqrt

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attention
import numerics
from numerics import SinkFamily
from numerics.b4_sinks_are_cheaper import TrainedPattern
from tests.evidence import agree, at_most, claim, refuted

PATTERNS: tuple[TrainedPattern, ...] = ("sink", "diagonal")


def tokens_of(family: SinkFamily, pattern: TrainedPattern):
    """Queries, keys and targets of the pattern."""
    tokens, sink = torch.tensor(family.tokens), torch.tensor(family.sink)
    if pattern == "diagonal":
        return tokens, tokens, torch.arange(family.n)
    return tokens, torch.vstack([sink, tokens]), torch.zeros(family.n, dtype=torch.long)


def check_landing(family: SinkFamily, pattern: TrainedPattern, share: float, seed: int, d_k: int, wrong=None) -> None:
    """Where the training ends is the optimum: objective, nuclear norm, rank, B itself. Much closer than 1 %.

    ``share`` is the weight decay over the one at which the weights stay 0.
    """
    decay = share * numerics.decay_threshold(family, pattern, d_k=d_k)
    run = attention.train_to_pattern(*tokens_of(family, pattern), weight_decay=decay, d_k=d_k, seed=seed, steps=4000)
    claimed = numerics.training_optimum(wrong or family, pattern, weight_decay=decay, d_k=d_k)
    agree(run.objective[-1], claimed.objective, tolerance="program")
    agree(run.nuclear_norm[-1], claimed.nuclear_norm, tolerance="program", scale=1.0)
    agree(run.matrix, torch.tensor(claimed.matrix), tolerance="program", scale=1.0)
    assert torch.linalg.matrix_rank(run.matrix, atol=1e-4) == claimed.rank


@st.composite
def runs(draw, *, shares=(0.05, 0.3, 0.7)):
    family = SinkFamily(draw(st.integers(2, 4)), draw(st.sampled_from((0.0, 0.5, 1.0))), draw(st.floats(0.5, 2.0)))
    pattern = draw(st.sampled_from(PATTERNS))
    spare = draw(st.integers(0, 4))
    d_k = spare + (1 if pattern == "sink" else family.n - 1)
    return family, pattern, draw(st.sampled_from(shares)), draw(st.integers(0, 2**16)), d_k


@claim("B4.training", "property")
@settings(max_examples=20)
@given(runs())
def test_training_lands_on_the_optimum(run):
    check_landing(*run)


@claim("B4.training", "property")
@settings(max_examples=6)
@given(runs(shares=(1.1, 1.5)))
def test_above_the_threshold_the_weights_return_to_zero(run):
    check_landing(*run)


@claim("B4.training", "property")
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("share", [0.95, 1.05])
def test_the_threshold_is_where_learning_starts(pattern, share):
    check_landing(SinkFamily(3, 0.5, 1.5), pattern, share, seed=1, d_k=5)


@claim("B4.training", "property")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_seed_lands(pattern):
    for seed in range(8):
        check_landing(SinkFamily(4), pattern, 0.1, seed, d_k=6)


@claim("B4.training", "near-miss")
def test_the_optimum_of_other_tokens_is_refuted():
    def check(run):
        family = run[0]
        check_landing(*run, wrong=SinkFamily(family.n, family.t, 1.01 * family.z))

    refuted(check, runs().filter(lambda run: run[1] == "sink"), tries=10)


@claim("B4.leakage", "property")
@settings(max_examples=8)
@given(runs())
def test_the_trained_head_leaks_what_its_margin_says(run):
    """Equal margins: the trained attention has the leak at which ``enough`` is the optimum's margin."""
    family, pattern, share, seed, d_k = run
    decay = share * numerics.decay_threshold(family, pattern, d_k=d_k)
    queries, keys, targets = tokens_of(family, pattern)
    trained = attention.train_to_pattern(queries, keys, targets, weight_decay=decay, d_k=d_k, seed=seed, steps=4000)
    weights = attention.attention_weights(queries @ trained.w_q.T, keys @ trained.w_k.T)
    leaks = 1 - weights.gather(1, targets[:, None])
    margin = numerics.training_optimum(family, pattern, weight_decay=decay, d_k=d_k).margin
    for leak in leaks.flatten().tolist():
        agree(numerics.margins_for_leak(leak, len(keys) - 1).enough, margin, tolerance="program", scale=1.0)


def test_one_step_is_that_of_sgd_with_weight_decay():
    queries, keys, targets = tokens_of(SinkFamily(3, 0.5, 1.5), "sink")
    options = {"weight_decay": 0.3, "d_k": 4, "seed": 5, "learning_rate": 0.01}
    one, two = (attention.train_to_pattern(queries, keys, targets, steps=steps, **options) for steps in (1, 2))
    weights = [one.w_q.clone().requires_grad_(), one.w_k.clone().requires_grad_()]
    optimiser = torch.optim.SGD(weights, lr=0.01, weight_decay=0.3)
    a = attention.attention_weights(queries @ weights[0].T, keys @ weights[1].T)
    (-a[:, 0].log().sum()).backward()
    optimiser.step()
    agree(two.w_q, weights[0])
    agree(two.w_k, weights[1])


def test_objective_and_norm_are_what_they_say_and_the_run_repeats():
    queries, keys, targets = tokens_of(SinkFamily(3), "diagonal")
    run, again = (
        attention.train_to_pattern(queries, keys, targets, weight_decay=0.1, d_k=3, seed=2, steps=50) for _ in range(2)
    )
    assert torch.equal(run.objective, again.objective)
    assert torch.equal(run.w_q, again.w_q)
    weights = attention.attention_weights(queries @ run.w_q.T, keys @ run.w_k.T)
    written = -weights.diagonal().log().sum() + 0.05 * (run.w_q.square().sum() + run.w_k.square().sum())
    agree(run.objective[-1], written)
    agree(run.nuclear_norm[-1], torch.linalg.svdvals(run.w_q.T @ run.w_k).sum() / sqrt(3))
    at_most(run.objective[1:], run.objective[:-1])


def test_bad_input_is_named():
    queries, keys, targets = tokens_of(SinkFamily(3), "sink")
    train = attention.train_to_pattern
    with pytest.raises(ValueError, match="queries and keys must have one width, got 5 and 4"):
        train(queries, keys[:, 1:], targets, weight_decay=0.1, d_k=2)
    with pytest.raises(ValueError, match=r"targets must be 3 int64 indices, got torch.float64 \(3,\)"):
        train(queries, keys, targets.double(), weight_decay=0.1, d_k=2)
    with pytest.raises(ValueError, match=r"targets must lie in 0 \.\. 3, got \[4, 0, 0\]"):
        train(queries, keys, torch.tensor([4, 0, 0]), weight_decay=0.1, d_k=2)
    with pytest.raises(ValueError, match="weight_decay must be finite and at least 0, got nan"):
        train(queries, keys, targets, weight_decay=float("nan"), d_k=2)
    with pytest.raises(ValueError, match="d_k must be at least 1, got 0"):
        train(queries, keys, targets, weight_decay=0.1, d_k=0)
    with pytest.raises(ValueError, match="learning_rate must be positive and finite, got 0"):
        train(queries, keys, targets, weight_decay=0.1, d_k=2, learning_rate=0)
    with pytest.raises(ValueError, match="the objective at the start must be finite"):
        train(1e200 * queries, 1e200 * keys, targets, weight_decay=0.1, d_k=2)
    with pytest.raises(TypeError, match=r"queries must be a torch\.Tensor, got list"):
        train([[1.0]], keys, targets, weight_decay=0.1, d_k=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="learning_rate must be positive and finite, got inf"):
        train(queries, keys, targets, weight_decay=0.1, d_k=2, learning_rate=float("inf"))
    with pytest.raises(TypeError, match="d_k must be an integer, got float"):
        train(queries, keys, targets, weight_decay=0.1, d_k=1.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"targets must be a torch\.Tensor, got list"):
        train(queries, keys, [0, 0, 0], weight_decay=0.1, d_k=2)  # pyright: ignore[reportArgumentType]
