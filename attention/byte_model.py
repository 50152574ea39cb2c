"""A small causal byte model, trained from scratch on text that says when a head should be silent; sinks as they emerge.

The text is a Markov chain of letters in which "=" repeats: ``ab=bc`` goes on after the mark with the letter before it.
A head that copies is needed at marks only and has to be silent elsewhere; Guo et al., "Active-Dormant Attention Heads"
(arXiv:2410.13835), saw sinks emerge on a task of this kind. The source is known, so the least possible loss is too.

Choices that keep the price theory exact: scores are x_i^T B x_j with x_i the vector that enters the head, so positions
are added to the embeddings (sinusoids: one B can look one byte back from everywhere, which a table of learned positions
has to learn 64 times) and RMSNorm has no gain (it belongs to W_Q and W_K; every token has norm sqrt(d), so prices of
different steps compare). Attention and MLP stand side by side in a block, as in GPT-J: what a head says in the last
block reaches the logits. The first design had the MLP behind the attention, where it can learn to ignore needless
copies; in single trial runs the largest sinks there had about half of a head's weight. In every layer the vector of
the first byte depends on that byte alone, so it is the same in all texts.

With ``extra_zero`` the softmax has one more logit, fixed at 0, whose value is 0: rows may sum to less than one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from attention.attend import attention_weights
from numerics import sink_price
from numerics.inputs import check_floating
from numerics.token_clouds import check_count

BOS = 2
"""The byte that starts each text (ASCII's STX)."""

MARK = ord("=")
"""The byte after which the byte before it is repeated."""

FIRST_LETTER, LETTERS = ord("a"), 16

MARK_RATE = 0.1
"""How often a letter is followed by a mark."""

PRICED_TOKENS = 192
"""Tokens of the held-out texts that a layer's price is computed from: more than the width, as B1 asks for."""

HELD_OUT = 64


@dataclass(frozen=True, eq=False)
class EchoText:
    """The source: a Markov chain of letters with marks that repeat a letter.

    A text starts with ``BOS`` and a uniform letter. A letter is followed by ``MARK`` with probability ``MARK_RATE``,
    else by a letter of the chain; a mark by the letter before it.

    Attributes:
        transitions: of the chain, (LETTERS, LETTERS), rows sum to one.
    """

    transitions: NDArray[np.float64]

    @classmethod
    def drawn(cls, seed: int) -> "EchoText":
        """A chain whose rows are drawn from a Dirichlet law with parameter 0.3: few likely followers each."""
        generator = np.random.default_rng([seed, 0])
        return cls(generator.dirichlet(np.full(LETTERS, 0.3), size=LETTERS))

    def sample(self, texts: int, length: int, *, seed: int) -> Tensor:
        """Texts as bytes, (texts, length), int64."""
        check_count("texts", texts)
        check_count("length", length, least=2)
        generator = np.random.default_rng([seed, 1])
        found = np.full((texts, length), BOS)
        found[:, 1] = FIRST_LETTER + generator.integers(LETTERS, size=texts)
        reached = self.transitions.cumsum(1)
        reached[:, -1] = 1.0
        for place in range(2, length):
            before = found[:, place - 1]
            rows = reached[np.where(before == MARK, 0, before - FIRST_LETTER)]
            letter = FIRST_LETTER + (generator.random((texts, 1)) >= rows).sum(1)
            spoken = np.where(generator.random(texts) < MARK_RATE, MARK, letter)
            found[:, place] = np.where(before == MARK, found[:, place - 2], spoken)
        return torch.from_numpy(found)

    def surprisal(self, texts: Tensor) -> Tensor:
        """-log of each byte's true probability after the bytes before it, nats, (texts, length - 1), float64.

        Its mean is the loss of a perfect model on these texts; infinite where a text is not of this source.
        """
        probability = np.zeros((LETTERS + 1, LETTERS + 1))
        probability[:LETTERS, :LETTERS] = (1 - MARK_RATE) * self.transitions
        probability[:LETTERS, LETTERS] = MARK_RATE
        byte = texts.numpy()
        symbol = np.where(byte == MARK, LETTERS, byte - FIRST_LETTER)
        known = ((symbol >= 0) & (symbol <= LETTERS))[:, 1:].all() and (byte[:, 0] == BOS).all()
        if not known:
            raise ValueError("texts must start with BOS and go on with letters and marks alone")
        chances = probability[symbol[:, 1:-1], symbol[:, 2:]]
        repeats = (byte[:, 2:] == byte[:, :-2]).astype(float)
        chances = np.where(byte[:, 1:-1] == MARK, repeats, chances)
        first = np.where(byte[:, 1:2] == MARK, 0.0, 1 / LETTERS)
        with np.errstate(divide="ignore"):
            return torch.from_numpy(-np.log(np.hstack([first, chances])))

    def entropy(self, length: int) -> float:
        """The mean of ``surprisal`` over all texts of that length, exactly: no model has a lower expected loss."""
        rows = self.transitions
        with np.errstate(divide="ignore", invalid="ignore"):
            of_rows = -np.where(rows > 0, rows * np.log(rows), 0.0).sum(1)
        of_mark = -MARK_RATE * math.log(MARK_RATE) - (1 - MARK_RATE) * math.log(1 - MARK_RATE)
        letters, marks = np.full(LETTERS, 1 / LETTERS), np.zeros(LETTERS)
        total = math.log(LETTERS)
        for _ in range(2, length):
            total += float(letters @ (of_mark + (1 - MARK_RATE) * of_rows))
            letters, marks = (1 - MARK_RATE) * letters @ rows + marks, MARK_RATE * letters
        return total / (length - 1)


class LayerTrace(NamedTuple):
    """What a layer's heads saw and did.

    Attributes:
        tokens: x, the vectors that enter the scores, (texts, T, d), each of norm sqrt(d).
        weights: (texts, heads, T, T); rows sum to one, or less with the extra zero logit.
        values: (texts, heads, T, d_k).
    """

    tokens: Tensor
    weights: Tensor
    values: Tensor


@dataclass(frozen=True)
class ByteSettings:
    """All that a run depends on.

    Attributes:
        extra_zero: the softmax has one more logit, 0, with value 0.
        weight_decay: AdamW's, on every weight (there are matrices only); 1/(learning_rate weight_decay) steps shrink
            an unused weight to 1/e.
        seed: of the weights and the training texts.
        source_seed: of the chain and the held-out texts.
        steps, every: gradient steps, and after how many of them the heads are read.
        width, heads, layers: of the model.
        length, batch: bytes a text, BOS included, and texts a step.
        learning_rate: after a straight rise over the first tenth of the steps.

    Raises:
        TypeError, ValueError: a value out of its range.
    """

    extra_zero: bool = False
    weight_decay: float = 0.0
    seed: int = 0
    source_seed: int = 0
    steps: int = 320
    every: int = 20
    width: int = 96
    heads: int = 2
    layers: int = 2
    length: int = 64
    batch: int = 16
    learning_rate: float = 5e-3

    def __post_init__(self) -> None:
        for name in ("steps", "every", "width", "heads", "layers", "batch"):
            check_count(name, getattr(self, name))
        check_count("length", self.length, least=4)
        for name in ("seed", "source_seed"):
            check_count(name, getattr(self, name), least=0)
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of 2 * heads = {2 * self.heads}, got {self.width}")
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be finite and at least 0, got {self.weight_decay}")
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be positive and finite, got {self.learning_rate}")


def weights_with_zero(q: Tensor, k: Tensor, *, blocked: Tensor | None = None) -> Tensor:
    """Softmax over the keys and one more logit fixed at 0, whose weight is left out.

    The softmax over the keys times sigmoid(log sum_j exp s_j): closed where all scores are very negative.

    Args:
        q, k, blocked: as in ``attention_weights``.

    Returns:
        Weights (..., T_q, T_k), at least 0; each row sums to less than one.

    Raises:
        TypeError, ValueError: as ``attention_weights``.
    """
    weights = attention_weights(q, k, blocked=blocked)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if blocked is not None:
        scores = scores.masked_fill(blocked, -torch.inf)
    return weights * torch.sigmoid(torch.logsumexp(scores, -1, keepdim=True))


class ByteModel(nn.Module):
    """Pre-norm causal transformer over bytes, untied output; float32.

    Args:
        settings: sizes, kind of softmax and the seed of the weights.
    """

    positions: Tensor
    blocked: Tensor

    def __init__(self, settings: ByteSettings) -> None:
        super().__init__()
        self.heads, self.extra_zero = settings.heads, settings.extra_zero
        d, generator = settings.width, torch.Generator().manual_seed(settings.seed)

        def matrix(rows: int, columns: int, scale: float) -> nn.Parameter:
            return nn.Parameter(scale * torch.randn(rows, columns, generator=generator, dtype=torch.float32))

        self.embedding = matrix(256, d, _EMBEDDING_SCALE)
        self.output = matrix(256, d, 1 / d)
        self.blocks = nn.ModuleList()
        for _ in range(settings.layers):
            block = nn.ParameterDict({name: matrix(d, d, d**-0.5) for name in ("w_q", "w_k", "w_v")})
            block["w_o"] = matrix(d, d, d**-0.5 / 2)
            block["w_in"] = matrix(2 * d, d, d**-0.5)
            block["w_out"] = matrix(d, 2 * d, (2 * d) ** -0.5 / 2)
            self.blocks.append(block)
        turns = torch.arange(settings.length, dtype=torch.float64)[:, None] * 1000.0 ** (
            -torch.arange(0, d, 2, dtype=torch.float64) / d
        )
        waves = _EMBEDDING_SCALE * math.sqrt(2) * torch.hstack([turns.sin(), turns.cos()])
        self.register_buffer("positions", waves.to(torch.float32), persistent=False)
        later = torch.ones(settings.length, settings.length, dtype=torch.bool).triu(1)
        self.register_buffer("blocked", later, persistent=False)

    @property
    def matrices(self) -> list[nn.ParameterDict]:
        """The weights of each layer: w_q, w_k, w_v, w_o (d, d), heads one below the other, and the MLP's."""
        return [cast(nn.ParameterDict, block) for block in self.blocks]

    def forward(self, texts: Tensor) -> Tensor:
        """Logits of the next byte after each byte.

        Args:
            texts: bytes, (texts, T), int64, T at most the settings' length.

        Returns:
            (texts, T, 256).

        Raises:
            ValueError: another shape or dtype, or no byte.
        """
        logits, _ = self.trace(texts)
        return logits

    def trace(self, texts: Tensor) -> tuple[Tensor, list[LayerTrace]]:
        """The logits, and what each layer saw and did on the way. Arguments as ``forward``."""
        longest = len(self.positions)
        if texts.dim() != 2 or texts.dtype != torch.int64 or not 1 <= texts.shape[1] <= longest:
            raise ValueError(
                f"texts must be int64 of shape (texts, T), T in 1 .. {longest}, got {texts.dtype} {tuple(texts.shape)}"
            )
        if ((texts < 0) | (texts > 255)).any():
            raise ValueError(f"texts must hold bytes, 0 .. 255, got {int(texts.min())} .. {int(texts.max())}")
        size = texts.shape[1]
        blocked = self.blocked[:size, :size]
        weigh = weights_with_zero if self.extra_zero else attention_weights
        stream, traces = self.embedding[texts] + self.positions[:size], []
        for block in self.matrices:
            x = _rms_norm(stream)
            q, k, v = (self._split(x @ block[name].T) for name in ("w_q", "w_k", "w_v"))
            weights = weigh(q, k, blocked=blocked)
            traces.append(LayerTrace(x, weights, v))
            mixed = (weights @ v).transpose(1, 2).reshape(x.shape)
            stream = stream + mixed @ block["w_o"].T + gelu(x @ block["w_in"].T) @ block["w_out"].T
        return _rms_norm(stream) @ self.output.T, traces

    def nuclear_norms(self, layer: int) -> list[float]:
        """||B||_* of each head of a layer, B = W_Q^T W_K / sqrt(d_k)."""
        block = self.matrices[layer]
        d_k = block["w_q"].shape[0] // self.heads
        pairs = zip(block["w_q"].detach().double().split(d_k), block["w_k"].detach().double().split(d_k), strict=True)
        return [float(torch.linalg.svdvals(w_q.T @ w_k).sum() / math.sqrt(d_k)) for w_q, w_k in pairs]

    def _split(self, x: Tensor) -> Tensor:
        """(texts, T, d) to (texts, heads, T, d_k)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


_EMBEDDING_SCALE = 0.2


def _rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class HeadRecord(NamedTuple):
    """One head at one step, on the held-out texts. Queries at BOS are left out everywhere: they see nothing else.

    Attributes:
        step: gradient steps so far.
        layer, head: from 0.
        excess: held-out loss minus that of the true source on the same texts, nats a byte; near 0 for a perfect model.
        copying: mean weight of a mark's query on the byte before the mark, in [0, 1]: what the head is there for.
        sink: mean weight on BOS of the other queries, in [0, 1]; ``uniform_sink`` for uniform attention.
        sink_at_marks: the same for the queries at marks.
        silent: mean of 1 - sum of the weights over the other queries, in [0, 1]; 0 without the extra logit.
        diagonal: mean weight of all queries on themselves, in [0, 1]; the same uniform baseline.
        price: 1/G of the layer (``numerics.sink_price``, margin 1): norm of B a nat of margin; ``inf`` if impossible.
        nuclear_norm: the head's own ||B||_*.
        sink_value: norm of the value of BOS over the mean norm of the others; 1 if it is like them, 0 if drained.
    """

    step: int
    layer: int
    head: int
    excess: float
    copying: float
    sink: float
    sink_at_marks: float
    silent: float
    diagonal: float
    price: float
    nuclear_norm: float
    sink_value: float


def uniform_sink(texts: Tensor) -> float:
    """The ``sink`` of a head that attends uniformly, on these texts: the mean of 1/(t + 1), t = 1, 2, .. no mark."""
    shares = 1 / torch.arange(2, texts.shape[1] + 1, dtype=torch.float64)
    return float(shares.expand(len(texts), -1)[texts[:, 1:] != MARK].mean())


@torch.no_grad()
def read_heads(model: ByteModel, source: EchoText, texts: Tensor, *, step: int = 0) -> list[HeadRecord]:
    """Every head's record on these texts.

    Args:
        model: of any step.
        source: of the texts.
        texts: (texts, T), with at least one mark.
        step: what the records say.

    Returns:
        One record a head, layer by layer.

    Raises:
        ValueError: texts that are not of the source, or have no mark.
    """
    marks = texts == MARK
    if not marks[:, 1:].any():
        raise ValueError("texts must have a mark, got none")
    others = ~marks
    others[:, 0] = False
    floor = float(source.surprisal(texts).mean())
    logits, traces = model.trace(texts)
    excess = float(_loss(logits, texts)) - floor
    chosen = np.random.default_rng(0).permutation(texts[:, 1:].numel())[:PRICED_TOKENS]
    records = []
    for layer, (tokens, weights, values) in enumerate(traces):
        cloud = tokens[:, 1:].flatten(0, 1)[torch.from_numpy(chosen)].double().numpy()
        price = sink_price(cloud, tokens[0, 0].double().numpy()).value
        norms = model.nuclear_norms(layer)
        lengths = values.norm(dim=-1)
        for head, a in enumerate(weights.unbind(1)):
            to_sink, left = a[:, :, 0], (1 - a.sum(-1)).clamp(min=0)
            back = torch.zeros_like(to_sink)
            back[:, 1:] = a.diagonal(offset=-1, dim1=-2, dim2=-1)
            records.append(
                HeadRecord(
                    step,
                    layer,
                    head,
                    excess,
                    copying=float(back[marks].mean()),
                    sink=float(to_sink[others].mean()),
                    sink_at_marks=float(to_sink[marks].mean()),
                    silent=float(left[others].mean()) if model.extra_zero else 0.0,
                    diagonal=float(a.diagonal(dim1=-2, dim2=-1)[:, 1:].mean()),
                    price=price,
                    nuclear_norm=norms[head],
                    sink_value=float(lengths[0, head, 0] / lengths[:, head, 1:].mean()),
                )
            )
    return records


@dataclass(frozen=True, eq=False)
class ByteTraining:
    """A finished run.

    Attributes:
        model: with the weights of the last step.
        settings: of the run.
        records: of every head at step 0, after each ``every`` steps and after the last.
        floor: the source's exact entropy, nats a byte: no model has a lower expected loss.
        baseline: ``uniform_sink`` of the held-out texts.
    """

    model: ByteModel
    settings: ByteSettings
    records: tuple[HeadRecord, ...]
    floor: float
    baseline: float


def train_byte_model(settings: ByteSettings) -> ByteTraining:
    """Train by AdamW on fresh texts and read the heads on the way; a function of the settings on one thread of a CPU.

    Raises:
        ValueError: the loss is not finite; the message names the step.
    """
    source = EchoText.drawn(settings.source_seed)
    held_out = source.sample(HELD_OUT, settings.length, seed=settings.source_seed)
    model = ByteModel(settings)
    optimiser = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=settings.weight_decay)
    records = read_heads(model, source, held_out)
    for step, texts in enumerate(_batches(source, settings), start=1):
        optimiser.param_groups[0]["lr"] = settings.learning_rate * min(1.0, 10 * step / settings.steps)
        loss = _loss(model(texts), texts)
        check_floating(f"the loss at step {step}", loss)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % settings.every == 0 or step == settings.steps:
            records += read_heads(model, source, held_out, step=step)
    return ByteTraining(model, settings, tuple(records), source.entropy(settings.length), uniform_sink(held_out))


def _batches(source: EchoText, settings: ByteSettings) -> Iterator[Tensor]:
    # The held-out texts are drawn with the source's seed, so training must not draw with it.
    seed = settings.seed + 1_000_003 * (settings.source_seed + 1)
    texts = source.sample(settings.steps * settings.batch, settings.length, seed=seed)
    yield from texts.split(settings.batch)


def _loss(logits: Tensor, texts: Tensor) -> Tensor:
    """Mean cross entropy of the next byte, nats."""
    return cross_entropy(logits[:, :-1].flatten(0, 1), texts[:, 1:].flatten())
