r"""B8. What three pretrained transformers do.

P2 claims: real embeddings satisfy the alignment that a sink needs (B1), and real models prefer sinks because sinks are
cheap (B4).

Our statements are about three models on fixed texts: SmolLM2-135M (causal, rotary, 30 layers, weights of 4 bits) and
MiniLM (bidirectional, 6 layers) on 24 texts of 16 to 256 tokens, and the ALBERT of rxnmapper (one layer applied 12
times) on 20 reactions. The sink is the first token. The numbers are in ``results/probe-*.csv``:

    pooled tokens can have a sink in every layer that was decided, where chance gives less than 1e-120
    the sink is nearly always the cheaper pattern: 548 of 564 times it provably is, 3 times the diagonal is
    a cheap sink need not be made: SmolLM2's layers 10 and 11 are cheaper than 3 to 9 and have none
    a dear sink is not made: one word repeated has none until its first token is replaced
    a head pays hundreds of times the price of what it does, or more
    where much weight lies on the sink, its value is small: the silent kind
    attention does not smooth in every layer and text
    trained from scratch with an extra zero logit, fewer models end with a sink: 4 of 24 against 18 of 24

Steps of this note: alignment against chance, sink against diagonal, cheap but unused, dear and missing, price against
mass, what is paid, silence, smoothing, a small model from scratch, and where the papers' claim ends.
"""

# %% [markdown]
# # B8. What three pretrained transformers do
#
# The other note on B8 (`derivations.b8_pretrained`) says what the theory becomes inside a real model: after its
# norms, with its biases, its rotary positions and its causal mask. Here are the numbers. `python -m attention probe`
# reads every layer and head; `python -m attention summarise` keeps small tables. The steps below read these tables
# and decide exact statements about their decimals. How far a number carries beyond these texts is a question of
# intervals: `results/probe-answers.csv` has them, by drawing again whole texts or whole layers, and the last section
# quotes them.

# %%
import csv
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import median

from sympy import Expr, Integer, Matrix, Rational, binomial, sqrt

from derivations.decide import at_most, below
from derivations.steps import Step, step

RESULTS = Path(__file__).parents[1] / "results"
MODELS = ("smollm2", "minilm", "rxnmapper")
"""As the models were published; the tables also hold SmolLM2 with another first token."""

Row = dict[str, str]


@cache
def table(name: str, runs: tuple[str, ...] = MODELS) -> tuple[Row, ...]:
    """The rows of one of the probe's tables, as text."""
    with (RESULTS / f"probe-{name}.csv").open(newline="") as file:
        return tuple(row for row in csv.DictReader(file) if row["run"] in runs)


def number(text: str) -> Rational:
    """The exact decimal."""
    return Rational(Fraction(text))


# %% [markdown]
# ## Can there be a sink at all?
#
# B1: a sink needs that $0$ is not in the hull of the queries and $x_0$ not in that of the keys. For $n \le d$ tokens
# in general position both hold by themselves, and a single text of 128 tokens has far fewer than $d = 576$. So the
# question has content only for **pooled** tokens: the queries of all texts, and the differences $x_0 - x_j$ of each
# text's own tokens, more of them than dimensions. Tokens whose signs are random would then have $0$ outside their
# hull with Wendel's chance $2^{1-n} \sum_{k < d} \binom{n-1}{k}$.
#
# The statement is about vectors without positions: it asks whether content alone allows the sink.


# %%
def pooled() -> list[Row]:
    """The layers with more tokens than dimensions in which the hulls were decided."""
    return [row for row in table("pooled") if row["representable"] and number(row["n"]) > number(row["dimension"])]


@step("B8.aligned")
def every_decided_layer_can_have_a_sink() -> Step:
    r"""some $B$ makes the sink for all pooled tokens, in as many layers as were decided"""
    layers = pooled()
    return Step(
        Matrix([len(layers), sum(int(row["representable"]) for row in layers)]),
        Matrix([47, 47]),
        because="counted; the 48th, SmolLM2's layer 0, was left undecided: its hulls are too near to tell",
        near_misses={"one without": Matrix([47, 46]), "all 48 decided": Matrix([48, 48])},
    )


@step("B8.aligned")
def not_by_chance() -> Step:
    r"""Wendel's chance for 1347 tokens in 256 dimensions, the likeliest of the three models, is below $10^{-120}$"""
    n, width = 1347, 256
    chance = sum((binomial(n - 1, k) for k in range(width)), Integer(0)) / Integer(2) ** (n - 1)
    return Step(
        chance,
        Rational(1, 10**120),
        because="an exact fraction",
        decide=below,
        relation="<",
        near_misses={"below 1e-130": Rational(1, 10**130)},
    )


# %% [markdown]
# ## Sink or diagonal?
#
# Both prices are known from two sides (nuclear norm, margin 1; with rotary positions and the causal mask where the
# model has them). So "the sink is cheaper" is proven where its upper side is below the diagonal's lower side.


# %%
def priced() -> list[Row]:
    """The layers and texts with both prices."""
    return [row for row in table("layers") if row["sink_upper"] and row["diagonal_lower"]]


def share(rows: Iterable[Row], holds: Callable[[Row], bool]) -> int:
    """How many rows have it."""
    return sum(holds(row) for row in rows)


def sink_is_cheaper(row: Row) -> bool:
    """Proven: the sides do not overlap."""
    return bool(number(row["sink_upper"]) < number(row["diagonal_lower"]))


def diagonal_is_cheaper(row: Row) -> bool:
    """Proven: the sides do not overlap."""
    return bool(number(row["diagonal_upper"]) < number(row["sink_lower"]))


@step("B8.sink-cheaper")
def mostly_the_sink() -> Step:
    r"""layers and texts: priced, the sink proven cheaper, the diagonal proven cheaper"""
    return Step(
        Matrix([len(priced()), share(priced(), sink_is_cheaper), share(priced(), diagonal_is_cheaper)]),
        Matrix([564, 548, 3]),
        because="counted; in the other 13 the two sides overlap",
        near_misses={"never the diagonal": Matrix([564, 564, 0])},
    )


@step("B8.sink-cheaper")
def once_the_diagonal() -> Step:
    r"""the clearest exception: an upper side of the diagonal's price below the lower side of the sink's"""
    clearest = max(priced(), key=lambda row: number(row["sink_lower"]) / number(row["diagonal_upper"]))
    return Step(
        number(clearest["diagonal_upper"]),
        number(clearest["sink_lower"]),
        because="SmolLM2 on a text that begins with a token which occurs in it again",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"its lower side half as high": number(clearest["sink_lower"]) / 2},
    )


# %% [markdown]
# ## Cheap, and not made
#
# In SmolLM2 the first token grows long in the residual stream at layers 2 and 3, shrinks back to the length of any
# other at layer 10, and becomes 175 times as long at layer 12. Heads put much weight on it in layers 3 to 9 and from
# 12 on, and next to none in layers 10 and 11. But the sink is **cheaper** in layers 10 and 11 than in any of the
# layers 3 to 9. So a low price alone makes no sink.


# %%
def by_layer(model: str, column: str) -> list[Rational]:
    """A column's median over texts, layer by layer."""
    found: dict[int, list[Rational]] = {}
    for row in table("layers"):
        if row["run"] == model and row[column]:
            found.setdefault(int(row["layer"]), []).append(number(row[column]))
    return [median(found[layer]) for layer in sorted(found)]


@step("B8.price-mass")
def cheaper_layers() -> Step:
    r"""SmolLM2: the upper side of the price in layers 10 and 11 is below the lower side in layers 3 to 9"""
    lower, upper = (by_layer("smollm2", f"sink_{side}") for side in ("lower", "upper"))
    return Step(
        max(upper[10:12]),
        min(lower[3:10]),
        because="medians over texts of proven sides",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"cheaper than layer 12 too": upper[12]},
    )


@step("B8.price-mass")
def with_less_weight() -> Step:
    r"""SmolLM2: the weight on the sink in layers 10 and 11 is less than half of that in any of the layers 3 to 9"""
    mass = by_layer("smollm2", "sink_mass")
    return Step(
        max(mass[10:12]),
        min(mass[3:10]) / 2,
        because="medians over texts of means over heads and queries",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"a tenth": min(mass[3:10]) / 10},
    )


# %% [markdown]
# ## Dear, and not made
#
# The other direction is what the theory proves: a sink that costs too much cannot be there. One text is a single word
# repeated. All its tokens grow long together, so the first lies nearly in the hull of the others, and the price is
# five times that of the other texts or more. In layers 12 to 28 there is no sink. Replace its **first token
# alone**: the price falls to that of the other texts, and the sink is there.


# %%
REPEATED = 15
"""The text that repeats one word, counted from 0: ``results/texts/16-one-word.txt``."""


def of_repeated_word(run: str, column: str) -> list[Rational]:
    """A column of that text in layers 12 to 28."""
    return [
        number(row[column])
        for row in table("layers", (run,))
        if int(row["text"]) == REPEATED and 12 <= int(row["layer"]) <= 28
    ]


@step("B8.repeated")
def dear_and_missing() -> Step:
    r"""the sink of the repeated word: its least price in layers 12 to 28 against five times the largest elsewhere"""
    others = by_layer("smollm2", "sink_upper")[12:29]
    return Step(
        5 * max(others),
        min(of_repeated_word("smollm2", "sink_lower")),
        because="proven sides; the other texts by their medians",
        decide=below,
        relation="<",
        near_misses={"fifty times": min(of_repeated_word("smollm2", "sink_lower")) / 10},
    )


@step("B8.repeated")
def one_token_makes_it() -> Step:
    r"""the weight on its first token in layers 12 to 28: ten times the largest as it is, the least with another one"""
    return Step(
        10 * max(of_repeated_word("smollm2", "sink_mass")),
        min(of_repeated_word("smollm2-replaced", "sink_mass")),
        because="the same 96 other tokens",
        decide=below,
        relation="<",
        near_misses={"without the replacement": min(of_repeated_word("smollm2", "sink_mass"))},
    )


# %% [markdown]
# ## Does a low price go with much weight?
#
# Across the layers of one model, rank them by the sink's price and by the weight that heads put on it. Spearman's
# correlation is exact: with mean ranks $r_i, r'_i$ for ties,
# $\rho = \sum (r_i - \bar r)(r'_i - \bar r') / \sqrt{\sum (r_i - \bar r)^2 \sum (r'_i - \bar r')^2}$.


# %%
def ranks(values: list[Rational]) -> list[Rational]:
    """From 1; ties share their mean rank."""
    return [
        sum((Integer(bool(other < value)) for other in values), Rational(values.count(value) + 1, 2))
        for value in values
    ]


def spearman(one: list[Rational], other: list[Rational]) -> Expr:
    """The rank correlation, in [-1, 1]."""
    middle = Rational(len(one) + 1, 2)
    x, y = ([rank - middle for rank in ranks(values)] for values in (one, other))
    dot = sum((a * b for a, b in zip(x, y, strict=True)), Integer(0))
    return dot / sqrt(sum(a * a for a in x) * sum(b * b for b in y))


@step("B8.price-mass")
def cheap_goes_with_much() -> Step:
    r"""SmolLM2, 30 layers: $\rho(\text{price}, \text{mass}) < -0.4$"""
    correlation = spearman(by_layer("smollm2", "sink_lower"), by_layer("smollm2", "sink_mass"))
    return Step(
        correlation,
        Rational(-4, 10),
        because="an exact fraction of ranks",
        decide=below,
        relation="<",
        near_misses={"below -0.6": Rational(-6, 10)},
    )


@step("B8.price-mass")
def depth_says_more() -> Step:
    r"""SmolLM2: $|\rho(\text{price}, \text{mass})| < \rho(\text{layer}, \text{mass})$"""
    mass = by_layer("smollm2", "sink_mass")
    layers = [Integer(layer) for layer in range(len(mass))]
    return Step(
        -spearman(by_layer("smollm2", "sink_lower"), mass),
        spearman(layers, mass),
        because="two exact fractions of ranks",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"half of what depth says": spearman(layers, mass) / 2},
    )


# %% [markdown]
# ## What is paid
#
# B8.margins prices exactly what a head does: take the queries that prefer the sink, each with its own margin, and ask
# for the least norm that gives these margins. A head pays its own norm. If sinks were made where they are cheap
# because norm is dear, one would expect a ratio of a few.


# %%
@step("B8.paid")
def hundreds_of_times() -> Step:
    r"""the least ratio of all heads (geometric mean over texts) is above 190"""
    ratios = [number(row["overpaid_lower"]) for row in table("heads") if row["overpaid_lower"]]
    return Step(
        Integer(190),
        min(ratios),
        because="the proven lower side; every head of the three models that prefers the sink somewhere",
        decide=at_most,
        relation="<=",
        near_misses={"above 1000": min(ratios) / 6},
    )


# %% [markdown]
# ## Silent sinks
#
# B5: a head that looks at the sink is switched off if the sink's value is small. Call a head's sink silent where
# that value is shorter than half of the others' median (after Fesser et al., 2606.08105; the half is ours).


# %%
def with_much_on_the_sink(model: str) -> list[Row]:
    """Heads whose mean weight on the sink is above 0.3."""
    return [row for row in table("heads") if row["run"] == model and number(row["sink_mass"]) > Rational(3, 10)]


def has_a_small_value(row: Row) -> bool:
    """The sink's value over the others', mean over texts, is below a half."""
    return bool(number(row["value_ratio"]) < Rational(1, 2))


@step("B8.silent")
def much_weight_little_value() -> Step:
    r"""SmolLM2 and MiniLM: heads with more than 0.3 on the sink, and those of them with a small value"""
    rows = [with_much_on_the_sink(model) for model in ("smollm2", "minilm")]
    return Step(
        Matrix([[len(heads), share(heads, has_a_small_value)] for heads in rows]),
        Matrix([[211, 207], [37, 37]]),
        because="counted",
        near_misses={"all of them": Matrix([[211, 211], [37, 37]])},
    )


# %% [markdown]
# ## Does attention smooth?
#
# B7 has conditions under which a layer lowers the relative dispersion of the residual stream. Measure it before and
# after each attention sublayer.


# %%
@step("B8.smoothing")
def not_always() -> Step:
    r"""layers and texts: measured, and those in which the relative dispersion rises"""
    rows = table("layers")
    rises = share(rows, lambda row: bool(number(row["dispersion_after"]) > number(row["dispersion_before"])))
    return Step(
        Matrix([len(rows), rises]),
        Matrix([1104, 186]),
        because="counted; in SmolLM2 142 of 720, in the ALBERT 44 of 240, in MiniLM none of 144",
        counterexample=True,
        near_misses={"it never rises": Matrix([1104, 0])},
    )


# %% [markdown]
# ## A small model from scratch
#
# Do sinks come because a head has to put its weight somewhere? B5 says what silence needs: with softmax a place for the
# weight, with one more logit, fixed at 0 and of value 0, nothing. So train a byte model of two layers with either, on
# text in which a head is needed at marks alone (`attention.byte_model`). The design was found in trial runs; the counts
# below are of **fresh** seeds and sources: 24 runs of each kind, half of them with weight decay. A run has a sink if at
# its end some head has 0.3 or more of its weight on the first byte (uniform: 0.06). `results/byte-model.csv` is the
# last step of figure `sink_emergence` with `--seed 100`, `200` and `300`.


# %%
SINK = Rational(3, 10)


@cache
def runs_with_a_sink() -> dict[tuple[str, str], tuple[int, int]]:
    """(kind of softmax, decay) -> how many runs end with a sink, and how many there are."""
    largest: dict[tuple[str, str, str, str], Rational] = {}
    with (RESULTS / "byte-model.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            run = row["kind"], row["decay"], row["source"], row["seed"]
            largest[run] = max(largest.get(run, Integer(0)), number(row["sink"]))
    found: dict[tuple[str, str], tuple[int, int]] = {}
    for (kind, decay, _, _), mass in largest.items():
        sinks, runs = found.get((kind, decay), (0, 0))
        found[kind, decay] = (sinks + bool(mass >= SINK), runs + 1)
    return found


def of_kind(kind: str) -> tuple[int, int]:
    """Runs with a sink and all runs, both decays together."""
    sinks, runs = zip(*(counts for (name, _), counts in runs_with_a_sink().items() if name == kind), strict=True)
    return sum(sinks), sum(runs)


def fisher(first: tuple[int, int], second: tuple[int, int]) -> Expr:
    """The one-sided chance of a table at least as uneven, given its margins: twice it bounds the two-sided one here."""
    (a, n), (b, m) = first, second
    total = a + b
    return sum(
        (
            Rational(binomial(n, k) * binomial(m, total - k), binomial(n + m, total))
            for k in range(a, min(n, total) + 1)
        ),
        Integer(0),
    )


@step("B8.zero-logit")
def fewer_sinks() -> Step:
    r"""Fisher's exact chance of so uneven counts, doubled, is below 0.05"""
    softmax, extra = of_kind("softmax"), of_kind("extra zero")
    return Step(
        2 * fisher(softmax, extra),
        Rational(1, 20),
        because="hypergeometric, exact",
        decide=below,
        relation="<",
        near_misses={"below 1e-6": Rational(1, 10**6)},
    )


@step("B8.zero-logit")
def counts_by_decay() -> Step:
    r"""runs with a sink of 12: softmax without and with decay, the extra zero logit without and with decay"""
    cases = [(kind, decay) for kind in ("softmax", "extra zero") for decay in ("0", "1")]
    return Step(
        Matrix([list(runs_with_a_sink()[case]) for case in cases]),
        Matrix([[9, 12], [9, 12], [4, 12], [0, 12]]),
        because="counted",
        near_misses={"no sink with the extra logit at all": Matrix([[9, 12], [9, 12], [0, 12], [0, 12]])},
    )


# %% [markdown]
# So the extra logit takes most sinks away but not all: without weight decay 4 of 12 runs still have one. B5 says that
# silence then **needs** no sink, not that training avoids one. And decay did not make sinks more frequent with softmax
# (9 of 12 either way), though it would pay for the cheaper pattern. The price did not fall before a sink appeared: it
# rose while the first layers learned.

# %% [markdown]
# ## Where the papers' claim ends
#
# Intervals are 95 per cent, by drawing whole layers again (L) or whole texts (T); `results/probe-answers.csv` has all.
#
# **What holds.** Real embeddings are aligned far beyond chance (715 of 720 layers and texts in SmolLM2; the five
# others are layer 0 of texts whose first token comes again). The sink is nearly always cheaper than the diagonal: by
# a factor between 1.60 and 1.96 in SmolLM2 (medians of both sides), 15 and 17 in MiniLM, 14 and 16 in the ALBERT.
# Where it is dear there is none. Sinks are of the silent kind: among SmolLM2's heads with more than half of their
# weight on the sink 95 per cent [94, 96] (L) have one of small value. So they are switches, as B5 has it.
#
# **What does not.** Across SmolLM2's 30 layers price and weight have the rank correlation -0.56 [-0.75, -0.22] (L).
# But the layer's index alone has +0.77 [0.58, 0.87], and with the index held fixed the price says nothing: -0.02
# [-0.36, 0.25]. The same with BOS (-0.07 [-0.38, 0.18]) and with another first token (-0.05 [-0.38, 0.18]). The
# length of token 0 in the residual stream keeps its say with the index held fixed: +0.49 [0.20, 0.77]. At layer 12,
# where token 0 becomes 175 times as long as the others, the weight on it rises fifteen-fold while the price only
# halves. All heads of a layer have one price, and a quarter of the weight's variance lies within layers. In MiniLM
# the price does say something, across texts within a layer: -0.57 [-0.74, -0.24] (T) with the length of the text held
# fixed.
#
# So a low price is **necessary and not sufficient**. And no head is pressed by it: those that mostly look at the sink
# have 1760 to 2040 times the norm that their margins cost in SmolLM2, 317 in MiniLM, 963 in the ALBERT (medians).
# "Cheap" can matter for what training finds first, not for what a trained head can afford.
#
# **B7 in practice.** Its balanced columns are not there: the columns are 32 times as uneven as balanced ones in SmolLM2
# [23, 40] (L), where 1 is balanced. Every head of the three models brings values together; but a sink of small value
# writes next to nothing, so the stream keeps its dispersion: it falls to 0.998 of itself in SmolLM2 (median), to 0.925
# in MiniLM. That denser heads smooth more holds in the two encoders and fails in SmolLM2, whose sparse heads are sinks.
#
# **Limits.** One decoder of 135 million parameters with 4-bit weights and two small encoders. Prices are of 24 tokens
# a text beside its sink, so they are lower bounds for the whole text; SmolLM2's diagonals are priced on six texts. In
# layers 3 to 9 of SmolLM2 other tokens ("the", a blank) grow as long as token 0 and draw as much weight: a sink of a
# kind of token. They are mostly not among the 24. Layers are no independent draws, and about ten correlations a model
# were looked at.

# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b8_real_models"))
