"""The byte model: its text, its two softmaxes, its training and what is measured on the way."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import attention
from attention.byte_model import BOS, MARK, PRICED_TOKENS, read_heads, uniform_sink, weights_with_zero
from numerics import attention_heads, sink_price
from tests.evidence import agree, at_most

TINY = attention.ByteSettings(width=32, steps=60, every=30, length=32, learning_rate=1e-2)


@pytest.fixture(scope="module")
def source():
    return attention.EchoText.drawn(0)


@pytest.fixture(scope="module")
def run():
    return attention.train_byte_model(TINY)


def random_heads(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [3 * torch.randn(2, 3, 5, 4, generator=generator, dtype=dtype) for _ in range(3)]


# The extra logit


@pytest.mark.parametrize("masked", [False, True])
def test_the_extra_logit_is_a_key_of_zeros_with_a_value_of_zeros(masked):
    q, k, v = (part.requires_grad_() for part in random_heads(1))
    blocked = torch.ones(5, 5, dtype=torch.bool).triu(1) if masked else torch.zeros(5, 5, dtype=torch.bool)
    ours = weights_with_zero(q, k, blocked=blocked)
    zero = torch.zeros(2, 3, 1, 4, dtype=torch.float64)
    more = torch.hstack([blocked, torch.zeros(5, 1, dtype=torch.bool)])
    output, theirs = attention.attend(q, torch.cat([k, zero], -2), torch.cat([v, zero], -2), blocked=more)
    agree(ours, theirs[..., :-1])
    agree(ours @ v, output)
    assert bool((ours.sum(-1) < 1).all())
    for one, other in zip(
        torch.autograd.grad((ours @ v).square().sum(), (q, k, v)),
        torch.autograd.grad(output.square().sum(), (q, k, v)),
        strict=True,
    ):
        agree(one, other)


def test_only_the_extra_logit_lets_a_row_go_silent():
    q = torch.full((3, 4), 30.0, dtype=torch.float64)
    assert float(weights_with_zero(q, -q).max()) == 0.0
    agree(attention.attention_weights(q, -q).sum(-1), torch.ones(3, dtype=torch.float64))


# The text


def test_a_mark_repeats_the_letter_before_it(source):
    texts = source.sample(200, 50, seed=3)
    assert bool((texts[:, 0] == BOS).all())
    rows, places = (texts[:, :-1] == MARK).nonzero(as_tuple=True)
    assert len(rows) > 300
    assert torch.equal(texts[rows, places + 1], texts[rows, places - 1])
    assert bool((places >= 2).all())
    letters = texts[:, 1:][texts[:, 1:] != MARK]
    assert ord("a") <= int(letters.min()) <= int(letters.max()) <= ord("p")
    assert torch.equal(texts, source.sample(200, 50, seed=3))
    assert not torch.equal(texts, source.sample(200, 50, seed=4))


def test_the_chain_is_the_one_that_is_claimed(source):
    texts = source.sample(4000, 20, seed=5).numpy()
    before, after = texts[:, 1:-1], texts[:, 2:]
    for letter in range(3):
        follows = after[before == ord("a") + letter]
        expected = 0.9 * source.transitions[letter]
        found = np.array([(follows == ord("a") + other).mean() for other in range(16)])
        at_most(np.abs(found - expected), np.full(16, 5 * 0.5 / math.sqrt(len(follows))))


def test_entropy_is_the_mean_surprisal(source):
    surprisal = source.surprisal(source.sample(4000, 24, seed=6)).mean(1)
    error = float(surprisal.std() / math.sqrt(len(surprisal)))
    at_most(abs(float(surprisal.mean()) - source.entropy(24)), 5 * error)
    assert 0 < 5 * error < 0.05


def test_surprisal_multiplies_the_rules(source):
    text = torch.tensor([[BOS, *b"ab=bc"]])
    p = source.transitions
    chances = [1 / 16, 0.9 * p[0, 1], 0.1, 1.0, 0.9 * p[1, 2]]
    agree(source.surprisal(text)[0], -torch.tensor(chances, dtype=torch.float64).log())
    assert math.isinf(float(source.surprisal(torch.tensor([[BOS, *b"ab=cc"]])).sum()))


# The model


@pytest.mark.parametrize("extra_zero", [False, True])
def test_a_later_byte_changes_nothing_before_it(extra_zero, source):
    model = attention.ByteModel(replace(TINY, extra_zero=extra_zero))
    texts = source.sample(3, 20, seed=1)
    changed = texts.clone()
    changed[:, 12] = ord("z")
    with torch.no_grad():
        before, after = model(texts), model(changed)
    assert torch.equal(before[:, :12], after[:, :12])
    assert not torch.equal(before[:, 12:], after[:, 12:])
    # BOS sees itself alone, so its vectors are the same in all texts.
    for layer in model.trace(texts)[1]:
        agree(layer.tokens[:, 0], layer.tokens[:1, 0].expand(3, -1))


def test_a_heads_weights_are_those_of_its_matrices(run, source):
    texts = source.sample(2, 16, seed=9)
    layer, block = run.model.trace(texts)[1][1], run.model.matrices[1]
    d_k = 16
    for head in range(2):
        rows = slice(head * d_k, (head + 1) * d_k)
        w_q, w_k = block["w_q"][rows], block["w_k"][rows]
        later = torch.ones(16, 16, dtype=torch.bool).triu(1)
        found = attention_heads(layer.tokens, w_q, w_k, block["w_v"][rows], blocked=later)
        agree(layer.weights[:, head], found.weights.squeeze(1))
        b = (w_q.T @ w_k / 4).detach()
        agree(run.model.nuclear_norms(1)[head], float(torch.linalg.matrix_norm(b, "nuc")), tolerance="differences")


# Training and measurement


def test_training_beats_the_unigram_entropy_and_not_the_source(run, source):
    texts = source.sample(2000, TINY.length, seed=8)[:, 1:]
    shares = torch.bincount(texts.flatten()).double() / texts.numel()
    unigram = float(-torch.special.xlogy(shares, shares).sum())
    first, last = run.records[0].excess + run.floor, run.records[-1].excess + run.floor
    assert first > math.log(16)
    assert run.floor < last < unigram


def test_a_run_repeats_exactly_and_another_seed_differs(run):
    with torch.random.fork_rng():
        torch.manual_seed(123)
        state = torch.get_rng_state()
        again = attention.train_byte_model(TINY)
        assert torch.equal(state, torch.get_rng_state())
    assert again.records == run.records
    other = attention.train_byte_model(replace(TINY, seed=1, steps=2, every=2))
    assert other.records[0] != run.records[0]
    decayed = attention.train_byte_model(replace(TINY, weight_decay=1.0, steps=2, every=2))
    assert decayed.records[0] == run.records[0]
    assert (
        decayed.records[-1].nuclear_norm
        < attention.train_byte_model(replace(TINY, steps=2, every=2)).records[-1].nuclear_norm
    )


@pytest.mark.parametrize("extra_zero", [False, True])
def test_what_is_measured_is_what_is_said(extra_zero, source):
    model = attention.ByteModel(replace(TINY, extra_zero=extra_zero))
    texts = source.sample(64, 32, seed=2)
    records = read_heads(model, source, texts, step=7)
    assert [(r.step, r.layer, r.head) for r in records] == [(7, layer, head) for layer in (0, 1) for head in (0, 1)]
    with torch.no_grad():
        _, traces = model.trace(texts)
    for record in records:
        layer = traces[record.layer]
        weights = layer.weights[:, record.head].double()
        sums = {name: [] for name in ("copying", "sink", "sink_at_marks", "silent", "diagonal")}
        for text, a in zip(texts.tolist(), weights, strict=True):
            for t in range(1, 32):
                sums["diagonal"].append(a[t, t])
                if text[t] == MARK:
                    sums["copying"].append(a[t, t - 1])
                    sums["sink_at_marks"].append(a[t, 0])
                else:
                    sums["sink"].append(a[t, 0])
                    sums["silent"].append(1 - a[t].sum())
        for name, terms in sums.items():
            agree(torch.tensor(getattr(record, name)).float(), torch.stack(terms).mean().float(), scale=1e-2)
        assert (record.silent > 0.01) == extra_zero
        norms = layer.values[:, record.head].norm(dim=-1)
        agree(torch.tensor(record.sink_value).float(), norms[0, 0] / norms[:, 1:].mean())
        cloud = layer.tokens[:, 1:].flatten(0, 1).double().numpy()
        chosen = np.random.default_rng(0).permutation(len(cloud))[:PRICED_TOKENS]
        priced = sink_price(cloud[chosen], layer.tokens[-1, 0].double().numpy())
        agree(record.price, priced.value)
        # Those tokens have to span the space, or a sink is possible whatever they are.
        assert len(chosen) > cloud.shape[1]
    uniform = np.mean([1 / (t + 1) for text in texts.tolist() for t in range(1, 32) if text[t] != MARK])
    agree(uniform_sink(texts), float(uniform))


def test_bad_input_is_named(source):
    with pytest.raises(ValueError, match=r"width must be a multiple of 2 \* heads = 4, got 30"):
        attention.ByteSettings(width=30)
    with pytest.raises(ValueError, match="weight_decay must be finite and at least 0, got -1"):
        attention.ByteSettings(weight_decay=-1)
    with pytest.raises(ValueError, match="learning_rate must be positive and finite, got nan"):
        attention.ByteSettings(learning_rate=float("nan"))
    with pytest.raises(ValueError, match="steps must be at least 1, got 0"):
        attention.ByteSettings(steps=0)
    with pytest.raises(ValueError, match="length must be at least 2, got 1"):
        source.sample(1, 1, seed=0)
    model = attention.ByteModel(TINY)
    with pytest.raises(ValueError, match=r"T in 1 \.\. 32, got torch.int64 \(1, 33\)"):
        model(torch.zeros(1, 33, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"texts must hold bytes, 0 \.\. 255, got 0 \.\. 256"):
        model(torch.tensor([[0, 256]]))
    with pytest.raises(ValueError, match="texts must start with BOS and go on with letters and marks alone"):
        source.surprisal(torch.tensor([[BOS, 200, 97]]))
    with pytest.raises(ValueError, match="texts must have a mark, got none"):
        read_heads(model, source, torch.tensor([[BOS, *b"abc"]]))
