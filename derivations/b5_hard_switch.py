r"""B5. The hard switch: when is an attention head silent?

P2 claims: the output of a head is identically 0 if and only if its rows attend to a sink.

Our statements, per head, v_0 = 0, j >= 1 for the tokens other than the sink:

    nu_i (1 - a_i0) <= ||o_i|| <= max_j ||v_j|| (1 - a_i0),   nu_i = dist(0, conv{v_j : j >= 1 seen by i})
    where 0 is in that hull the equivalence fails for one sequence
    with finite scores and a causal mask exact silence needs every value to be 0: a sink is silent in the limit alone
    eps-silence on (x_0, x) and on (x_0, N copies of y, x): weight at most 2 eps/(||v_y|| + eps) on the copies
    at fixed scores no sink is silent at every length
    a diagonal is silent only if v_i is small: a_ii >= 1 - e gives ||o_i|| >= (1 - e) ||v_i|| - e max_{j != i} ||v_j||

Steps of this note follow that order.
"""

# %% [markdown]
# # B5. The hard switch
#
# A head sometimes has nothing to add. It cannot look at nothing: its weights sum to one. P2 says that it
# then looks at a *sink*, a token $x_0$ whose value is zero, and that this is the **only** way: the output
# is identically 0 iff the rows attend to the sink. Ran-Milo (2603.11487) proves for a concrete task that
# silence needs a sink, and that ReLU attention needs none; Fesser et al. (2606.08105) call such sinks
# *silent*.
#
# Our version is quantitative. Throughout $v_0 = 0$, and $j \ge 1$ means: other than the sink. (If
# $v_0 \ne 0$, read $o_i - a_{i0} v_0$ for $o_i$ in the first section.) In formulas with symbolic ranges the
# sink's place is written $i_0$.

# %%
from sympy import Expr, IndexedBase, Matrix, Rational, Symbol, exp, limit, log, oo, sqrt, symbols

from derivations.decide import at_most, below, equal_sums
from derivations.notation import T, a, b, d_v, delta, i, i_0, l, m, over, v
from derivations.steps import Step, step
from derivations.summation import RowStochastic

rows_sum_to_one = RowStochastic(a, T, T)
h = IndexedBase("h")


def others(token: Symbol) -> Expr:
    """1 for every token but the sink."""
    return 1 - delta(token, i_0)


def output(place: Symbol) -> Expr:
    """o_i with v_0 = 0: the sum runs over the other tokens."""
    return over(l, a[i, l] * others(l) * v[l, place])


def inner(first, second) -> Expr:
    """first . second, for vectors given entry by entry."""
    return over(b, first(b) * second(b))


# %% [markdown]
# ## Two sides
#
# Since $v_0 = 0$, the output is $o_i = (1 - a_{i0}) \sum_{j \ge 1} a'_{ij} v_j$ with
# $a'_{ij} = a_{ij} / (1 - a_{i0})$: a point of the convex hull of the values, times the weight that is not
# on the sink. So its length lies between the distance from 0 to the hull and the largest length in the
# hull, which is that of a vertex. The two steps below write this as identities with a sum that is visibly
# not negative.
#
# **From above.** Let $R = \max_j \|v_j\|$. What is missing to $R^2 (1 - a_{i0})^2$ is a sum of non-negative
# terms.


# %%
@step("B5.sandwich")
def from_above() -> Step:
    r"""$(1 - a_{i0})^2 R^2 - \|o_i\|^2 = (1 - a_{i0})\, S + \frac12 D$, both terms $\ge 0$

    $S = \sum_{l \ge 1} a_{il} (R^2 - \|v_l\|^2)$ and $D = \sum_{l, m \ge 1} a_{il} a_{im} \|v_l - v_m\|^2$.
    """
    R = Symbol("R", nonnegative=True)
    away = 1 - a[i, i_0]
    short = over(l, a[i, l] * others(l) * (R**2 - over(b, v[l, b] ** 2)))
    apart = over(l, over(m, a[i, l] * others(l) * a[i, m] * others(m) * over(b, (v[l, b] - v[m, b]) ** 2)))
    return Step(
        away**2 * R**2 - inner(output, output),
        away * short + apart / 2,
        because="the mean of squares less the square of the mean is the variance",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "variance not halved": away * short + apart,
            "without the factor 1 - a_i0": short + apart / 2,
        },
    )


# %% [markdown]
# **From below.** Let $h$ be the point of the hull nearest to 0, so $\|h\| = \nu_i$. Nearest means: the
# whole hull lies beyond the plane through $h$, that is $h \cdot v_j \ge \|h\|^2$ for every $j$. So
# $h \cdot o_i \ge (1 - a_{i0}) \|h\|^2$, and since $h \cdot o_i \le \|h\| \|o_i\|$, the bound follows. (If
# $h = 0$ there is nothing to show.)
#
# Together: where 0 is outside the hull, an output of length $\epsilon$ means
# $1 - a_{i0} \le \epsilon / \nu_i$, and a sink with $1 - a_{i0} \le \epsilon / R$ makes the output at most
# $\epsilon$ long. There P2's equivalence holds, with numbers.


# %%
@step("B5.sandwich")
def from_below() -> Step:
    r"""$h \cdot o_i - (1 - a_{i0}) \|h\|^2 = \sum_{l \ge 1} a_{il} (h \cdot v_l - \|h\|^2)$, each term $\ge 0$"""
    square = over(b, h[b] ** 2)
    return Step(
        inner(lambda q: h[q], output) - (1 - a[i, i_0]) * square,
        over(l, a[i, l] * others(l) * (over(b, h[b] * v[l, b]) - square)),
        because="the weights of the other tokens sum to 1 - a_i0",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"sink included": over(l, a[i, l] * (over(b, h[b] * v[l, b]) - square))},
    )


@step("B5.sandwich")
def both_sides_on_numbers() -> Step:
    r"""values $(1, 1)$ and $(1, -1)$, weights $\frac12, \frac13, \frac16$: $\frac12 \cdot 1 \le \|o\|$"""
    values, weights = Matrix([[1, 1], [1, -1]]), Matrix([[Rational(1, 3), Rational(1, 6)]])
    out = weights * values
    return Step(
        Rational(1, 2),
        sqrt(sum(entry**2 for entry in out)),
        because="the hull's nearest point to 0 is (1, 0)",
        decide=at_most,
        relation="<=",
        near_misses={"a quarter of it": sqrt(sum(entry**2 for entry in out)) / 4},
    )


# %% [markdown]
# ## Where the equivalence fails
#
# The left side says nothing where $\nu_i = 0$, that is where 0 is a mixture of the values. There a head can
# be silent without a sink: its values cancel. Three tokens, $x_0 = 0$, $x_1 = 1$, $x_2 = -1$, $W_V = 1$ and
# $B = 0$: all weights are $\frac13$, all outputs are 0, and only a third of the weight is on the sink. So
# for **one** sequence "silent" does not imply "sink".


# %%
def cancelling() -> tuple[Matrix, Matrix]:
    """Weights and outputs of x = (0, 1, -1), B = 0, W_V = 1."""
    tokens = Matrix([0, 1, -1])
    numbers = (0 * tokens * tokens.T).applyfunc(exp)
    weights = Matrix(3, 3, lambda row, key: numbers[row, key] / sum(numbers[row, :]))
    return weights, weights * tokens


@step("B5.equivalence")
def silent_without_a_sink() -> Step:
    r"""$x = (0, 1, -1)$, $B = 0$: all outputs are 0, the weight on the sink is $\frac13$"""
    weights, outputs = cancelling()
    return Step(
        Matrix.hstack(outputs, weights[:, 0]),
        Matrix([[0, Rational(1, 3)]] * 3),
        because="the two values cancel in every row",
        near_misses={"all weight on the sink": Matrix([[0, 1]] * 3)},
        counterexample=True,
    )


@step("B5.equivalence")
def sink_weight_below_one() -> Step:
    r"""so silence does not force $a_{i0} = 1$"""
    weights, _ = cancelling()
    return Step(
        weights[1, 0],
        Rational(1),
        because="1/3 < 1",
        decide=below,
        relation="<",
        near_misses={"a quarter": Rational(1, 4)},
        counterexample=True,
    )


# %% [markdown]
# ## Exact silence does not exist
#
# Softmax weights of finite scores are positive. Take a causal mask and let every output be 0. Row 0 sees
# only itself, so $o_0 = v_0 = 0$. Suppose $v_0 = \cdots = v_{i-1} = 0$. Then $o_i = a_{ii} v_i$, and
# $a_{ii} > 0$, so $v_i = 0$. All values are zero: the head is not switched off, it is dead.
#
# In matrix words: a causal $A$ is triangular with a positive diagonal, hence invertible, and $A V = 0$
# forces $V = 0$.


# %%
@step("B5.exact-silence")
def induction_step() -> Step:
    r"""$o_i - \sum_{l \ne i} a_{il} v_l = a_{ii} v_i$: where the earlier values are 0, $o_i = a_{ii} v_i$"""
    return Step(
        over(l, a[i, l] * v[l, b]) - over(l, a[i, l] * (1 - delta(l, i)) * v[l, b]),
        a[i, i] * v[i, b],
        because="the sum's own term is what is left",
        decide=equal_sums(),
        near_misses={"weight forgotten": v[i, b]},
    )


@step("B5.exact-silence")
def causal_weights_are_invertible() -> Step:
    r"""$T = 4$, causal softmax of free scores: $\det A = a_{00} a_{11} a_{22} a_{33}$, a product of positive numbers"""
    tokens = 4
    scores = Matrix(tokens, tokens, lambda row, key: symbols(f"s_{row}{key}", real=True))
    numbers = Matrix(tokens, tokens, lambda row, key: exp(scores[row, key]) if key <= row else 0)
    weights = Matrix(tokens, tokens, lambda row, key: numbers[row, key] / sum(numbers[row, :]))
    product = weights[0, 0] * weights[1, 1] * weights[2, 2] * weights[3, 3]
    return Step(
        weights.det(method="berkowitz"),
        product,
        because="triangular",
        near_misses={"zero": Rational(0), "last row left out": product / weights[3, 3]},
    )


# %% [markdown]
# ## Silence up to eps
#
# So the claim has to be about outputs of length at most $\epsilon$, on **many** sequences. Let $x$ be a
# token of interest and $y$ one that the head must not read. No position codes, so a score depends on the
# two tokens alone.
#
# On $(x_0, x)$ the last row gives $z = (1 - \alpha) v_0 + \alpha v_x$, with $\|z\| \le \epsilon$. On
# $(x_0, y, .., y, x)$, $N$ copies, the last row's scores for $x_0$ and $x$ are what they were, so their
# weights keep their proportion: with weight $\pi$ on the copies together, the output is
# $\pi v_y + (1 - \pi) z$. This is also at most $\epsilon$ long. Hence
# $\pi \|v_y\| \le \epsilon + (1 - \pi) \epsilon$, and so $\pi \le 2 \epsilon / (\|v_y\| + \epsilon)$.
#
# The sink's own value may be anything small here, and only the last row counts. (P2's setting is causal:
# then a head that is $\epsilon$-silent on $(x_0, x)$ is so on $(x_0)$ too. The proof does not need it.)


# %%
copies = Symbol("N", integer=True, positive=True)
score_0, score_x, score_y = symbols("s_0 s_x s_y", real=True)
v_0, v_x, v_y = symbols("v_0 v_x v_y", real=True)
eps = Symbol("epsilon", positive=True)


def weight_on_copies() -> Expr:
    """pi: softmax weight of N copies of y beside x_0 and x."""
    return copies * exp(score_y) / (exp(score_0) + exp(score_x) + copies * exp(score_y))


def last_output(number: Expr) -> Expr:
    """The last row's output on (x_0, y, .., y, x), one entry."""
    above = exp(score_0) * v_0 + exp(score_x) * v_x + number * exp(score_y) * v_y
    return above / (exp(score_0) + exp(score_x) + number * exp(score_y))


@step("B5.eps-silence")
def copies_dilute_the_rest() -> Step:
    r"""the last output is $\pi v_y + (1 - \pi) z$, $z$ the output on $(x_0, x)$"""
    share = weight_on_copies()
    short = last_output(Rational(0))
    return Step(
        last_output(copies),
        share * v_y + (1 - share) * short,
        because="softmax keeps the proportion of the weights of x_0 and x",
        near_misses={"not diluted": share * v_y + short, "one copy": last_output(Rational(1))},
    )


@step("B5.eps-silence")
def most_weight_on_copies() -> Step:
    r"""$\epsilon + (1 - \pi) \epsilon - \pi \|v_y\| = (\|v_y\| + \epsilon) (\pi_{\max} - \pi)$

    with $\pi_{\max} = 2 \epsilon / (\|v_y\| + \epsilon)$.
    """
    share, length = symbols("pi v_y", nonnegative=True)
    return Step(
        eps + (1 - share) * eps - share * length,
        (length + eps) * (2 * eps / (length + eps) - share),
        because="solved for pi",
        near_misses={
            "half": (length + eps) * (eps / (length + eps) - share),
            "2 eps over the length": (length + eps) * (2 * eps / length - share),
        },
    )


@step("B5.eps-silence")
def bound_is_attained() -> Step:
    r"""$v_0 = v_x = -\epsilon$ and $\pi = \frac{2 \epsilon}{v_y + \epsilon}$: the output is exactly $\epsilon$"""
    length = Symbol("v_y", positive=True)
    share = 2 * eps / (length + eps)
    return Step(
        share * length + (1 - share) * -eps,
        eps,
        because="the two outputs point opposite ways, each eps long",
        near_misses={"zero": Rational(0)},
    )


# %% [markdown]
# ## Length
#
# Fix the scores and let $N$ grow. The copies take all the weight, and the output tends to $v_y$. A head
# that is $\epsilon$-silent at every length thus needs $\|v_y\| \le \epsilon$: the switch is only as good as
# the sequence is short. To keep the copies' weight below $\pi$ the sink's score must lead by
# $\log N + \log \frac{1 - \pi}{\pi}$, if $x$'s own weight is small: it must grow with the length.


# %%
@step("B5.length")
def copies_take_over() -> Step:
    r"""$\lim_{N \to \infty} o = v_y$"""
    number = Symbol("N", positive=True)
    return Step(
        limit(last_output(number), number, oo),
        v_y,
        because="N e^{s_y} outgrows every fixed score",
        near_misses={"silence": Rational(0), "the short output": last_output(Rational(0))},
    )


@step("B5.length")
def a_sink_drowned() -> Step:
    r"""weights $98 : 1 : N$, values $0, 0, 1$: output $\frac{1}{100}$ at $N = 1$, $\frac{99}{100}$ at $N = 9801$"""
    at = {score_0: log(98), score_x: Rational(0), score_y: Rational(0), v_0: 0, v_x: 0, v_y: 1}
    return Step(
        Matrix([last_output(Rational(number)).xreplace(at) for number in (1, 9801)]),
        Matrix([Rational(1, 100), Rational(99, 100)]),
        because="1/(98 + 1 + 1) and 9801/(98 + 1 + 9801)",
        near_misses={"still silent": Matrix([Rational(1, 100), Rational(1, 100)])},
        counterexample=True,
    )


@step("B5.length")
def lead_that_length_asks_for() -> Step:
    r"""$s_0 - s_y = \log N + \log \frac{1 - \pi}{\pi}$ gives the copies exactly $\pi$ beside the sink alone"""
    share = Symbol("pi", positive=True)
    lead = copies * (1 - share) / share
    return Step(
        copies / (exp(log(lead)) + copies),
        share,
        because="solve N/(e^{lead} + N) = pi",
        near_misses={"half": share / 2},
    )


# %% [markdown]
# ## A diagonal is no switch
#
# Let row $i$ look at itself with weight $a_{ii} \ge 1 - e$, and let $R = \max_{j \ne i} \|v_j\|$. The
# output is $a_{ii} v_i + (1 - a_{ii}) o'$ with $o'$ in the hull of the other values, $\|o'\| \le R$. By the
# triangle inequality $\|o_i\| \ge a_{ii} \|v_i\| - (1 - a_{ii}) R$, and this grows with $a_{ii}$. So a
# silent diagonal has small values: it is dead weight, not a switch.


# %%
@step("B5.diagonal")
def own_and_other() -> Step:
    r"""$\|o_i\|^2 - (\alpha \|v_i\| - (1 - \alpha) \|o'\|)^2 = 2 \alpha (1 - \alpha) (\|v_i\| \|o'\| + v_i \cdot o')$

    The bracket is not negative, by the Cauchy-Schwarz inequality.
    """
    own = Symbol("alpha", positive=True)
    length, other_length = symbols("|v_i| |o'|", nonnegative=True)
    rest = IndexedBase("o'")
    product = over(b, v[i, b] * rest[b])
    # ||own v_i + (1 - own) o'||^2 with the two squared lengths written as squares.
    mixed = over(b, (own * v[i, b] + (1 - own) * rest[b]) ** 2)
    squares = own**2 * over(b, v[i, b] ** 2) + (1 - own) ** 2 * over(b, rest[b] ** 2)
    lengths = own**2 * length**2 + (1 - own) ** 2 * other_length**2
    return Step(
        mixed - squares + lengths - (own * length - (1 - own) * other_length) ** 2,
        2 * own * (1 - own) * (length * other_length + product),
        because="expand both squares",
        decide=equal_sums(sizes={T: 3, d_v: 2}),
        near_misses={"difference": 2 * own * (1 - own) * (length * other_length - product)},
    )


@step("B5.diagonal")
def cauchy_schwarz() -> Step:
    r"""$\|y\|^2 \|z\|^2 - (y \cdot z)^2 = \frac12 \sum_{p, r} (y_p z_r - y_r z_p)^2$ (Lagrange)"""
    y, z = IndexedBase("y"), IndexedBase("z")
    pairs = over(l, over(m, (y[l] * z[m] - y[m] * z[l]) ** 2, d_v), d_v)
    return Step(
        over(b, y[b] ** 2) * over(b, z[b] ** 2) - over(b, y[b] * z[b]) ** 2,
        pairs / 2,
        because="expand the square",
        decide=equal_sums(),
        near_misses={"each pair twice": pairs},
    )


@step("B5.diagonal")
def more_weight_is_louder() -> Step:
    r"""$\alpha \|v_i\| - (1 - \alpha) R - [(1 - e) \|v_i\| - e R] = (\alpha - (1 - e)) (\|v_i\| + R) \ge 0$"""
    own, leak = symbols("alpha e", positive=True)
    length, largest = symbols("|v_i| R", nonnegative=True)
    floor = (1 - leak) * length - leak * largest
    return Step(
        own * length - (1 - own) * largest - floor,
        (own - (1 - leak)) * (length + largest),
        because="linear in alpha, with slope |v_i| + R",
        near_misses={"slope |v_i|": (own - (1 - leak)) * length},
    )


@step("B5.diagonal")
def diagonal_bound_is_attained() -> Step:
    r"""values $2$ and $-1$, weights $\frac34$ and $\frac14$: $|o_i| = \frac54$, the bound with $e = \frac14$"""
    weights, values = Matrix([[3, 1]]) / 4, Matrix([2, -1])
    leak = 1 - weights[0]
    return Step(
        abs((weights * values)[0]),
        (1 - leak) * abs(values[0]) - leak * abs(values[1]),
        because="the other value points the opposite way",
        near_misses={"without the others": (1 - leak) * abs(values[0])},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b5_hard_switch"))
