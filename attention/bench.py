"""How this project's code compares with what a user would run instead, in one process.

Seconds depend on the machine and on its other work, so only ratios are stated: both sides run in turn, repeat
by repeat, and each repeat gives one ratio.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary
from tqdm import tqdm

import numerics
from attention.regularisers import WeightDropout
from attention.temporal import TemporalAttention

MAP_WIDTH = 8
LAYER_TOKENS, LAYER_WIDTH, LAYER_HEADS, LAYER_DROPOUT = 12, 72, 8, 0.1
"""The shape of P1's public configuration: 12 time steps, width 72, 8 heads, attention dropout 0.1."""


@dataclass(frozen=True)
class Comparison:
    """Two ways to the same thing; ``same`` says whether their results are equal (dropout draws differ)."""

    ours: str
    rival: str
    run_ours: Callable[[], Tensor]
    run_rival: Callable[[], Tensor]
    same: bool = True


@dataclass(frozen=True)
class Measurement:
    """What one comparison took.

    Attributes:
        ours, rival: names.
        seconds: median time of ours and of the rival.
        ratios: rival's time over ours, least, median and greatest over the repeats; above 1, ours is faster.
        peak_bytes: peak memory of ours and of the rival, as ``TensorMemory`` counts it.
    """

    ours: str
    rival: str
    seconds: tuple[float, float]
    ratios: tuple[float, float, float]
    peak_bytes: tuple[int, int]


class TensorMemory(TorchDispatchMode):
    """Counts the bytes of the tensors that are alive, but not of those that were there before.

    Every operator's results are seen, those of the backward pass and below ``torch.func``'s transforms too.
    Scratch space inside one operator is not.

    Attributes:
        peak: most bytes alive at once.
        largest: bytes of the largest tensor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak = 0
        self.largest = 0
        self._alive: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._old: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        for storage in _storages((args, kwargs)):
            if storage not in self._alive:
                self._old[storage] = True
        result = func(*args, **(kwargs or {}))
        for storage in _storages(result):
            if storage not in self._old and storage not in self._alive:
                self._alive[storage] = storage.nbytes()
                self.largest = max(self.largest, storage.nbytes())
                self.peak = max(self.peak, sum(self._alive.values()))
        return result


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def jacobian_comparisons(tokens: int, seed: int) -> list[Comparison]:
    """The closed forms of one head against automatic differentiation of its textbook code, float64.

    Args:
        tokens: T.
        seed: of the tokens and weights.

    Returns:
        All blocks, and the map of their Frobenius norms.
    """
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, MAP_WIDTH, generator=generator, dtype=torch.float64)
    w_q, w_k, w_v = torch.randn(3, MAP_WIDTH, MAP_WIDTH, generator=generator, dtype=torch.float64)

    def textbook(x: Tensor) -> Tensor:
        scores = (x @ w_q.T) @ (x @ w_k.T).T / MAP_WIDTH**0.5
        return torch.softmax(scores, dim=-1) @ (x @ w_v.T)

    def jacrev_blocks() -> Tensor:
        return torch.func.jacrev(textbook)(x).movedim(2, 1)

    shape = f"T = {tokens}, d = {MAP_WIDTH}"
    return [
        Comparison(
            f"jacobian_blocks, {shape}",
            "torch.func.jacrev",
            lambda: numerics.jacobian_blocks(x, w_q, w_k, w_v),
            jacrev_blocks,
        ),
        Comparison(
            f"sensitivity_map, {shape}",
            "torch.func.jacrev, then norms",
            lambda: numerics.sensitivity_map(x, w_q, w_k, w_v),
            lambda: torch.linalg.matrix_norm(jacrev_blocks()),
        ),
    ]


def layer_comparisons(sequences: int, seed: int) -> list[Comparison]:
    """One training step (forward and backward, float32) of the layer against ``torch.nn.MultiheadAttention``.

    Args:
        sequences: how many sequences of 12 steps at once; P1 has 16 windows of 207 sensors.
        seed: of the tokens and weights.

    Returns:
        Against MultiheadAttention with every head's weights, and without weights; then what no layer with these
        projections can beat, the one that makes queries, keys and values and the one of the output, without attention
        between them.
    """
    torch.manual_seed(seed)
    ours = TemporalAttention(LAYER_WIDTH, LAYER_HEADS, dropout=WeightDropout(LAYER_DROPOUT), dtype=torch.float32)
    rival = nn.MultiheadAttention(
        LAYER_WIDTH, LAYER_HEADS, dropout=LAYER_DROPOUT, batch_first=True, dtype=torch.float32
    )
    x = torch.randn(sequences, LAYER_TOKENS, LAYER_WIDTH, dtype=torch.float32, requires_grad=True)
    projections = nn.ModuleList(
        nn.Linear(LAYER_WIDTH, width, dtype=torch.float32) for width in (3 * LAYER_WIDTH, LAYER_WIDTH)
    )
    slopes = [torch.ones_like(layer(x.detach())) for layer in projections]

    def projections_alone() -> Tensor:
        # Each from x and to a given slope, so that nothing is timed but the two products and their derivatives.
        return torch.autograd.grad([layer(x) for layer in projections], [x, *projections.parameters()], slopes)[0]

    def step(layer: nn.Module, output: Tensor) -> Tensor:
        return torch.autograd.grad(output.square().mean(), [x, *layer.parameters()])[0]

    shape = f"{sequences} x T = {LAYER_TOKENS}, d = {LAYER_WIDTH}, {LAYER_HEADS} heads"
    return [
        Comparison(
            f"TemporalAttention and its weights, {shape}",
            "nn.MultiheadAttention, need_weights=True",
            lambda: step(ours, ours(x, return_weights=True)[0]),
            lambda: step(rival, x + rival(x, x, x, average_attn_weights=False)[0]),
            same=False,
        ),
        Comparison(
            f"TemporalAttention, {shape}",
            "nn.MultiheadAttention, need_weights=False",
            lambda: step(ours, ours(x)),
            lambda: step(rival, x + rival(x, x, x, need_weights=False)[0]),
            same=False,
        ),
        Comparison(
            f"the limit: the two projections alone, {shape}",
            "nn.MultiheadAttention, need_weights=True",
            projections_alone,
            lambda: step(rival, x + rival(x, x, x, average_attn_weights=False)[0]),
            same=False,
        ),
    ]


def measure(comparison: Comparison, *, repeats: int, bar: tqdm) -> Measurement:
    """Run both sides in turn, after one run each in which memory is counted.

    Args:
        comparison: what to run.
        repeats: timed runs of each side, at least 1.
        bar: moves by one a repeat.

    Returns:
        Times, ratios and peaks.

    Raises:
        RuntimeError: the two sides should give the same result and do not.
    """
    sides = (comparison.run_ours, comparison.run_rival)
    peaks, results = [], []
    for run in sides:
        with TensorMemory() as memory:
            results.append(run())
        peaks.append(memory.peak)
    if comparison.same and not torch.allclose(*results):
        raise RuntimeError(f"{comparison.ours} and {comparison.rival} differ: their times cannot be compared")
    del results
    times: list[tuple[float, float]] = []
    for _ in range(repeats):
        times.append((_seconds(sides[0]), _seconds(sides[1])))
        bar.update()
    ratios = [rival / ours for ours, rival in times]
    ours, rival = zip(*times, strict=True)
    return Measurement(
        comparison.ours,
        comparison.rival,
        (statistics.median(ours), statistics.median(rival)),
        (min(ratios), statistics.median(ratios), max(ratios)),
        (peaks[0], peaks[1]),
    )


def _seconds(run: Callable[[], Tensor]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def bench(
    *, tokens: Sequence[int] = (16, 64, 128), sequences: int = 3312, repeats: int = 7, seed: int = 0
) -> list[Measurement]:
    """Measure everything; a progress bar where the standard error is a terminal.

    Args:
        tokens: T of the Jacobians.
        sequences: batch times sensors of the layer.
        repeats: timed runs of each side.
        seed: of all tokens and weights.

    Returns:
        One measurement a comparison.
    """
    comparisons = [c for T in tokens for c in jacobian_comparisons(T, seed)]
    comparisons += layer_comparisons(sequences, seed)
    with tqdm(total=repeats * len(comparisons), disable=None, leave=False) as bar:
        return [measure(comparison, repeats=repeats, bar=bar) for comparison in comparisons]


def report(measurements: Sequence[Measurement]) -> str:
    """The measurements as plain text, one a line under a legend."""
    head = ("ours", "instead of", "ratio (least, greatest)", "ms, ours : other", "MiB, ours : other")
    rows = [head] + [
        (
            m.ours,
            m.rival,
            f"{m.ratios[1]:.3g} ({m.ratios[0]:.3g}, {m.ratios[2]:.3g})",
            " : ".join(f"{1e3 * seconds:.4g}" for seconds in m.seconds),
            " : ".join(f"{peak / 2**20:.3g}" for peak in m.peak_bytes),
        )
        for m in measurements
    ]
    widths = [max(len(row[place]) for row in rows) for place in range(len(head))]
    lines = [
        f"torch {torch.__version__}, {torch.get_num_threads()} threads.",
        "Ratio: time of the other over ours, median of interleaved repeats; above 1, ours is faster.",
        "Memory: most bytes of tensors alive at once beyond the inputs, without operators' scratch space.",
        "",
    ]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(lines)
