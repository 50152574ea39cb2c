r"""B8. What three pretrained transformers do.

P2 claims: real embeddings satisfy the alignment that a sink needs (B1), and real models prefer sinks because sinks are
cheap (B4).

Our statements are about three models on fixed texts: SmolLM2-135M (causal, rotary, 30 layers, weights of 4 bits) and
MiniLM (bidirectional, 6 layers) on 24 texts of 16 to 256 tokens, and the ALBERT of rxnmapper (one layer applied 12
times) on 20 reactions. The sink is the first token. The numbers are in ``results/probe-*.csv``:

    pooled tokens can have a sink in every layer that was decided, where chance gives less than 1e-120
    the sink is nearly always the cheaper pattern: 548 of 564 times it provably is, 3 times the diagonal is
    a cheap sink need not be made: SmolLM2's layers 10 and 11 are cheaper than 3 to 9 and have none
    one word repeated: a dear sink and no weight on it, until its first token is replaced; heads could pay for it
    in the two encoders a head pays 190 times the price of what it does, or more
    much weight on the sink goes with a small value there in SmolLM2 and MiniLM; the ALBERT has three such heads
    attention does not smooth in every layer and text
    trained from scratch with weight decay and an extra zero logit no model of 12 ends with a sink, without it 9 of 12

Steps of this note: alignment against chance, sink against diagonal, cheap but unused, one word repeated, price against
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
# The statement is about vectors without positions: it asks whether content alone allows the sink. MiniLM and the ALBERT
# have a query bias, so for them the condition on the queries drops out (B1) and the null is about the keys alone.


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
# ## One word repeated
#
# One text is a single word repeated. In SmolLM2 all its tokens grow long together, so the first lies nearly in the hull
# of the others. In layers 12 to 28 the lower side of its price is five times the price of the other texts or more, and
# next to no weight lies on it. Replace its **first token alone**: the price falls to that of the other texts, and the
# sink is there.
#
# That fits the theory, but it does not show that the price forbids this sink. Its bracket is wide (4.6 to 13.4 above),
# and every head there has several times the norm that even the upper side asks for a margin of one. So heads could pay.
# Nor is it a rule: a few other texts have a price as far above the rest of their layer, in layers 3 to 9, and weight on
# the sink all the same. Layer 29 is left out: there the price is 2.7 times the others' and the weights differ less.


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


@step("B8.repeated")
def heads_could_pay() -> Step:
    r"""five times the upper side of its price is below the norm of every head, in each of the layers 12 to 28"""
    upper = of_repeated_word("smollm2", "sink_upper")
    least = [
        min(number(row["cost"]) for row in table("heads", ("smollm2",)) if int(row["layer"]) == layer)
        for layer in range(12, 29)
    ]
    return Step(
        Integer(5),
        min(cost / price for cost, price in zip(least, upper, strict=True)),
        because="the tokens that were priced, at margin 1",
        decide=at_most,
        relation="<=",
        near_misses={"fifty times": min(cost / price for cost, price in zip(least, upper, strict=True)) / 10},
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
# because norm is dear, one would expect a ratio of a few. In the two encoders the price is exact and of all tokens. In
# SmolLM2, with its rotary positions, it is of at most 24 tokens, so it is a lower bound for the text, and the ratio is
# overestimated: it is shown below but decides nothing here.


# %%
@step("B8.paid")
def hundreds_of_times() -> Step:
    r"""the least ratio of all heads (geometric mean over texts) is above 190"""
    rows = table("heads", ("minilm", "rxnmapper"))
    ratios = [number(row["overpaid_lower"]) for row in rows if row["overpaid_lower"]]
    return Step(
        Integer(190),
        min(ratios),
        because="every head of MiniLM and the ALBERT that prefers the sink somewhere; the least is MiniLM's",
        decide=at_most,
        relation="<=",
        near_misses={"above 1000": min(ratios) / 6},
    )


# %% [markdown]
# ## Silent sinks
#
# B5: a head that looks at the sink is switched off if the sink's value is small. Call that value small where it is
# shorter than half of the others' mean length, as a mean over texts (after Fesser et al., 2606.08105; the half is
# ours).


# %%
def with_much_on_the_sink(model: str) -> list[Row]:
    """Heads whose mean weight on the sink is above 0.3."""
    return [row for row in table("heads") if row["run"] == model and number(row["sink_mass"]) > Rational(3, 10)]


def has_a_small_value(row: Row) -> bool:
    """The sink's value over the others', mean over texts, is below a half."""
    return bool(number(row["value_ratio"]) < Rational(1, 2))


@step("B8.silent")
def much_weight_little_value() -> Step:
    r"""SmolLM2, MiniLM, ALBERT: heads with more than 0.3 on the sink, and those of them with a small value"""
    rows = [with_much_on_the_sink(model) for model in MODELS]
    return Step(
        Matrix([[len(heads), share(heads, has_a_small_value)] for heads in rows]),
        Matrix([[211, 207], [37, 37], [3, 1]]),
        because="counted",
        near_misses={"all of them": Matrix([[211, 211], [37, 37], [3, 3]])},
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


def fisher(first: tuple[int, int], second: tuple[int, int]) -> Expr:
    """The one-sided chance of a table at least as uneven, given its margins."""
    (a, n), (b, m) = first, second
    total = a + b
    return sum(
        (
            Rational(binomial(n, k) * binomial(m, total - k), binomial(n + m, total))
            for k in range(a, min(n, total) + 1)
        ),
        Integer(0),
    )


def chance(decay: str) -> Expr:
    """Fisher's exact chance, two-sided, of counts as uneven as those of the two kinds of softmax at that decay."""
    return 2 * fisher(*(runs_with_a_sink()[kind, decay] for kind in ("softmax", "extra zero")))


@step("B8.zero-logit")
def with_decay() -> Step:
    r"""with weight decay: Fisher's exact chance of so uneven counts is below 0.05"""
    return Step(
        chance("1"),
        Rational(1, 20),
        because="hypergeometric, exact; both kinds have 12 runs, so twice one side is both",
        decide=below,
        relation="<",
        near_misses={"below 1e-5": Rational(1, 10**5)},
    )


@step("B8.zero-logit")
def without_decay() -> Step:
    r"""without weight decay it is above 0.05: not told apart"""
    return Step(
        Rational(1, 20),
        chance("0"),
        because="0.0995",
        decide=below,
        relation="<",
        near_misses={"with decay": chance("1")},
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
# So with weight decay the extra logit takes the sinks away. Without decay 4 of 12 runs still have one, and the two
# kinds are not told apart (0.0995). B5 says that silence then **needs** no sink, not that training avoids one. Decay
# did not make sinks more frequent with softmax (9 of 12 either way), though it would pay for the cheaper pattern. The
# runs of one source (three sources, four seeds each) are counted as independent.

# %% [markdown]
# ## Where the papers' claim ends
#
# Intervals are 95 per cent, by drawing whole layers again (L) or whole texts (T); `results/probe-answers.csv` has all.
#
# **What holds.** Pooled, so that tokens outnumber dimensions, real embeddings are aligned far beyond chance. (For a
# single text B1 holds by itself; the five of SmolLM2's 720 layers and texts where it fails are layer 0 of texts whose
# first token comes again.) On these texts the sink is nearly always cheaper than the diagonal: in all layers and
# texts of the two encoders, by a factor of 15 to 17 in MiniLM and 14 to 16 in the ALBERT (medians of both sides), and
# in 164 of 180 in SmolLM2, by a factor between 1.60 and 1.96. Where much weight lies on the sink its value is small,
# in SmolLM2 and MiniLM. Text by text, with the median for the mean: a SmolLM2 head with more than half of its weight
# on the sink finds a small value there in 95 per cent of the texts [94, 96] (L), the other heads in 68 [48, 87].
#
# **What does not.** Across SmolLM2's 30 layers price and weight have the rank correlation -0.56 [-0.75, -0.22] (L) and
# [-0.62, -0.09] (T). But the layer's index alone has +0.77 [0.58, 0.87], and with the index held fixed the price says
# nothing: -0.02 [-0.36, 0.25]. The same with BOS (-0.07 [-0.38, 0.18]) and with another first token (-0.05 [-0.38,
# 0.18]). The length of token 0 in the residual stream keeps its say with the index held fixed: +0.49 [0.20, 0.77]. With
# both held fixed **dearer** layers have more weight: +0.52 [0.11, 0.78]. At layer 12, where token 0 becomes 175 times
# as long as the others, the median weight on it rises from 0.02 to 0.42 while the median price halves. All heads of a
# layer have one price, and a quarter of the weight's variance lies within layers.
#
# **MiniLM is different.** There the price does say something: across its six layers -0.78 [-1.00, -0.29] (L) with the
# index held fixed, and across texts within a layer -0.57 [-0.74, -0.24] (T) with the length of the text held fixed.
#
# So a low price is **not sufficient**. Whether it is necessary these models cannot say, because no head is pressed by
# it: a head has 354 times the norm that its margins for the sink cost in MiniLM and 971 times in the ALBERT
# (medians), and in SmolLM2 about 2000 times the price of the tokens that were priced. "Cheap" can matter for what
# training finds first, not for what a trained head can afford.
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
