r"""B7. Oversmoothing: what attention does to the spread of its tokens.

P2 claims: under conditions dense attention smooths more than sparse attention; sinks and diagonals prevent it.

Our statements, for T tokens, P = I - 11^T/T (dispersion = mean squared distance from the mean token):

    (1/T) ||P A||_F^2 = (1/T) sum_i ||a_i||^2 - sum_j (mean of column j)^2; times tr(W_V S W_V^T) this is the
        expected dispersion of the outputs for weights independent of the tokens, not for softmax weights of them
    k equal weights a row, balanced columns: 1/k - 1/T. Unbalanced columns: the claim fails
    residual stream: an exact sink of value 0 keeps the relative dispersion; a diagonal keeps it iff I + W_V is a
        nonzero multiple of an orthogonal matrix; uniform attention with W_V = eta I lowers it for eta > 0 or
        eta < -2 and raises it in between; doubly stochastic attention lowers it for eta > 0; dense but unbalanced
        attention may raise it
    depth: Dobrushin's tau(A A') <= tau(A) tau(A'), and the tokens' diameter obeys r + tau(A) ||W_V|| per layer

Steps of this note follow that order.
"""

# %% [markdown]
# # B7. Oversmoothing
#
# After many layers of averaging all tokens look alike. P2 says that dense attention does this more than
# sparse attention, and that sinks and diagonals are two ways out. Dong, Cordonnier and Loukas (2103.03404)
# showed the collapse with depth; Barbero et al. (2504.02732) read sinks as a guard against it.
#
# **What we measure.** For tokens $X$ (one a row, $T$ of them) let $\mu$ be their mean and
# $P = I - \frac{1}{T} 11^T$, so the rows of $P X$ are $x_i - \mu$. The *dispersion* is
# $\frac{1}{T} \|P X\|_F^2$, the mean squared distance from the mean. The *relative dispersion*
# $\|P X\|_F^2 / \|X\|_F^2$ lies between 0 (all tokens equal) and 1 (mean zero).
#
# In this note the sink is one of the $T$ tokens; its place is written $i_0$ in formulas that run over
# symbolic ranges.

# %%
from sympy import (
    Abs,
    Expr,
    IndexedBase,
    Matrix,
    Min,
    Rational,
    Sum,
    Symbol,
    cancel,
    diff,
    exp,
    eye,
    ones,
    symbols,
)

from derivations.decide import at_most, below, equal_sums
from derivations.notation import W_V, T, a, b, d, delta, e, i, i_0, j, l, m, over, p, r, residual, v, x
from derivations.steps import Step, step
from derivations.summation import RowStochastic, Term

S = IndexedBase("S")
mu = IndexedBase("mu")
y, z = IndexedBase("y"), IndexedBase("z")
eta = Symbol("eta", real=True)
rows_sum_to_one = RowStochastic(a, T, T)


def centred(feature, token: Symbol) -> Expr:
    """(P F)_i = sum_l (delta_il - 1/T) f_l for a token's feature f."""
    return over(l, (delta(token, l) - 1 / T) * feature(l))


def spread(feature) -> Expr:
    """||P F||_F^2 for a feature(token, coordinate) of width d."""
    return over(i, over(p, centred(lambda t: feature(t, p), i) ** 2))


def total(feature) -> Expr:
    """||F||_F^2."""
    return over(i, over(p, feature(i, p) ** 2))


def mean(feature) -> Expr:
    """The plain mean over tokens."""
    return over(m, feature(m)) / T


# %% [markdown]
# ## An identity for the weights
#
# The outputs are $O = A V$, so $P O = P A V$: only $P A$ matters. Its size splits into two terms. The first
# is large when rows are concentrated. The second is large when **columns** are unequal, that is when all
# rows look at the same tokens.


# %%
def row_term() -> Expr:
    """(1/T) sum_i ||a_i||^2."""
    return over(i, over(j, a[i, j] ** 2)) / T


def column_term() -> Expr:
    """sum_j (mean of column j)^2."""
    return over(j, (over(i, a[i, j]) / T) ** 2)


@step("B7.identity")
def dispersion_of_weights() -> Step:
    r"""$\frac{1}{T} \|P A\|_F^2 = \frac{1}{T} \sum_i \|a_i\|^2 - \sum_j \bigl(\frac{1}{T} \sum_i a_{ij}\bigr)^2$"""
    return Step(
        over(i, over(j, centred(lambda t: a[t, j], i) ** 2)) / T,
        row_term() - column_term(),
        because="mean of squares less square of the mean, column by column",
        decide=equal_sums(),
        near_misses={
            "columns forgotten": row_term(),
            "columns taken as balanced": row_term() - 1 / T,
            "column term halved": row_term() - column_term() / 2,
        },
    )


# %% [markdown]
# ## From weights to outputs
#
# Let the tokens be uncorrelated, with a common mean $\mu$ and a common covariance $S$, and let $A$ be
# row-stochastic and **independent of them**. Then
# $\mathbb{E}\, v_l v_m^T = W_V (\mu \mu^T + \delta_{lm} S) W_V^T$. The mean drops out, because the rows of
# $A$ sum to one, and the dispersion factorises.


# %%
def centred_weight(row: Symbol, key: Symbol) -> Expr:
    """(P A)_il."""
    return over(j, (delta(row, j) - 1 / T) * a[j, key])


def value_trace() -> Expr:
    """tr(W_V S W_V^T)."""
    return over(b, over(p, over(e, W_V[b, p] * S[p, e] * W_V[b, e])))


@step("B7.expectation")
def expected_dispersion() -> Step:
    r"""$\frac{1}{T} \mathbb{E} \|P O\|_F^2 = \mathrm{tr}(W_V S W_V^T)\, \frac{1}{T} \|P A\|_F^2$"""
    moment = over(p, over(e, W_V[b, p] * W_V[b, e] * (mu[p] * mu[e] + delta(l, m) * S[p, e])))
    after = value_trace() * (row_term() - column_term())
    return Step(
        over(i, over(b, over(l, over(m, centred_weight(i, l) * centred_weight(i, m) * moment)))) / T,
        after,
        because="second moments of the tokens; P A 1 = 0 removes the mean",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "columns forgotten": value_trace() * row_term(),
            "mean kept": after + over(b, over(p, W_V[b, p] * mu[p]) ** 2),
        },
    )


# %% [markdown]
# ## The weights of the same tokens
#
# Softmax weights are **not** independent of the tokens that they average: a token attends to tokens like
# itself. Take the smallest case: two tokens, each $+1$ or $-1$ with a fair coin, $W_V = 1$, $B = \beta$. If
# the signs agree, both outputs are equal. If they differ, $o = \pm\tanh\beta$. So the dispersion is
# $\tanh^2\beta$ half of the time. The formula, with the mean of $\|P A\|_F^2$, gives half of that. Between
# the two lies a factor of two, at every $\beta \ne 0$.


# %%
beta = Symbol("beta", real=True)
SIGNS = [(1, 1), (1, -1), (-1, 1), (-1, -1)]


def sign_weights(tokens: tuple[int, int]) -> Matrix:
    """Softmax weights of two scalar tokens with scores beta x_i x_j."""
    numbers = Matrix(2, 2, lambda row, key: exp(beta * tokens[row] * tokens[key]))
    return Matrix(2, 2, lambda row, key: numbers[row, key] / sum(numbers[row, :]))


def dispersion(rows: Matrix) -> Expr:
    """(1/T) ||P M||_F^2 of a written-out matrix."""
    tokens = rows.rows
    off = (eye(tokens) - ones(tokens, tokens) / tokens) * rows
    return sum(entry**2 for entry in off) / tokens


def average(over_signs) -> Expr:
    """The expectation over fair signs."""
    return cancel(sum(over_signs) / len(SIGNS))


@step("B7.same-tokens")
def softmax_of_the_same_signs() -> Step:
    r"""$T = 2$, $x = \pm 1$: $\mathbb{E}$ dispersion $= 2 \times$ the formula, at every $\beta$"""
    formula = average(dispersion(sign_weights(signs)) for signs in SIGNS)
    return Step(
        average(dispersion(sign_weights(signs) * Matrix(signs)) for signs in SIGNS),
        2 * formula,
        because="all four sign patterns, written out",
        near_misses={"the formula": formula},
        counterexample=True,
    )


@step("B7.same-tokens")
def closed_form_for_signs() -> Step:
    r"""it is $\frac12 \tanh^2 \beta$"""
    tanh = (exp(2 * beta) - 1) / (exp(2 * beta) + 1)
    return Step(
        average(dispersion(sign_weights(signs) * Matrix(signs)) for signs in SIGNS),
        tanh**2 / 2,
        because="o = tanh(beta) and -tanh(beta) where the signs differ, else both equal",
        near_misses={"as independent weights": tanh**2 / 4},
    )


@step("B7.expectation")
def weights_of_other_signs() -> Step:
    r"""with the weights of an independent pair of signs the formula is right again"""
    return Step(
        average(average(dispersion(sign_weights(other) * Matrix(signs)) for signs in SIGNS) for other in SIGNS),
        average(dispersion(sign_weights(other)) for other in SIGNS),
        because="sixteen sign patterns, written out; S = 1",
        near_misses={"twice": 2 * average(dispersion(sign_weights(other)) for other in SIGNS)},
    )


# %% [markdown]
# ## Sparse and balanced
#
# Each row has $k$ equal weights $1/k$, and each token is looked at by $k$ rows: a band, say. Then every row
# has $\|a_i\|^2 = 1/k$ and every column has mean $1/T$. So the dispersion is $1/k - 1/T$: the full matrix
# ($k = T$) makes all outputs equal, the diagonal ($k = 1$) keeps the most.

# %%
k = Symbol("k", integer=True, positive=True)
t = Symbol("t", integer=True, nonnegative=True)


@step("B7.sparse")
def balanced_dispersion() -> Step:
    r"""$k$ equal weights, balanced columns: $\frac{1}{T} \|P A\|_F^2 = \frac{1}{k} - \frac{1}{T}$"""
    rows = over(i, Sum(1 / k**2, (t, 0, k - 1))) / T
    columns = over(j, (Sum(1 / k, (t, 0, k - 1)) / T) ** 2)
    return Step(
        rows - columns,
        1 / k - 1 / T,
        because="the identity with k entries 1/k in each row and in each column",
        decide=equal_sums(sizes={T: 3, k: 2}),
        near_misses={"columns forgotten": 1 / k, "squared": 1 / k**2 - 1 / T},
    )


@step("B7.sparse")
def falling_in_k() -> Step:
    r"""one weight more a row lowers it by $\frac{1}{k (k + 1)}$"""
    here, next_one = 1 / k - 1 / T, 1 / (k + 1) - 1 / T
    return Step(
        here - next_one,
        1 / (k * (k + 1)),
        because="common denominator",
        near_misses={"the same for every k": 1 / T, "square": 1 / (k + 1) ** 2},
    )


def band(tokens: int, width: int) -> Matrix:
    """Row i looks at tokens i, i + 1, .., i + width - 1, counted round."""
    return Matrix(tokens, tokens, lambda row, key: Rational(1, width) if (key - row) % tokens < width else 0)


def all_on_first(tokens: int) -> Matrix:
    """Every row looks at token 0 only."""
    return Matrix(tokens, tokens, lambda row, key: 1 if key == 0 else 0)


@step("B7.sparse")
def bands_written_out() -> Step:
    r"""bands of width $1, .., 5$ among five tokens"""
    widths = range(1, 6)
    return Step(
        Matrix([dispersion(band(5, width)) for width in widths]),
        Matrix([Rational(1, width) - Rational(1, 5) for width in widths]),
        because="P A computed entry by entry",
        near_misses={"no column term": Matrix([Rational(1, width) for width in widths])},
    )


# %% [markdown]
# **Unbalanced columns: the claim fails.** A sink is as sparse as can be: one weight a row. But all rows
# look at the same token, so all outputs are equal. Three tokens: the sink has dispersion 0, two balanced
# weights a row have $\frac12 - \frac13 = \frac16$. Density does not order the outputs; concentration of
# **columns** does.


# %%
@step("B7.sparser")
def sparsest_is_smoothest() -> Step:
    r"""$T = 3$: one weight a row, all on one token, disperses less than two weights a row"""
    return Step(
        dispersion(all_on_first(3)),
        dispersion(band(3, 2)),
        because="0 against 1/6",
        decide=below,
        relation="<",
        near_misses={"than all three": dispersion(band(3, 3))},
        counterexample=True,
    )


@step("B7.sparser")
def sparsest_and_balanced() -> Step:
    r"""the sink's row term is 1 and its column term is 1; balanced, the column term would be $\frac13$"""
    rows = all_on_first(3)
    columns = [sum(rows[:, key]) / 3 for key in range(3)]
    return Step(
        Matrix([sum(entry**2 for entry in rows) / 3, sum(mean_weight**2 for mean_weight in columns)]),
        Matrix([1, 1]),
        because="the two terms of the identity",
        near_misses={"balanced columns": Matrix([1, Rational(1, 3)])},
    )


# %% [markdown]
# ## The residual stream
#
# With a residual, $H = X + A X W_V^T$, nothing is lost at once. The question is how the *relative*
# dispersion moves. It helps to keep two numbers apart: the spread $D = \|P X\|_F^2$ and the mean's share
# $M = T \|\mu\|^2$, for $\|X\|_F^2 = D + M$.
#
# **An exact sink.** Every row receives the same vector $v_0$. The spread stays, the mean moves to
# $\mu + v_0$. So a sink whose value is zero keeps the relative dispersion of the residual stream. (Without
# a residual the same sink is total collapse.)


# %%
def sink_stream(token: Symbol, place: Symbol) -> Expr:
    """h_i = x_i + sum_l delta_{l i_0} v_l: all weight on the sink."""
    return x[token, place] + over(j, delta(j, i_0) * v[j, place])


def token_entry(token: Symbol, place: Symbol) -> Expr:
    """x_i, one entry."""
    return x[token, place]


@step("B7.residual-sink")
def sink_keeps_the_spread() -> Step:
    r"""$\|P H\|_F^2 = \|P X\|_F^2$"""
    return Step(
        spread(sink_stream),
        spread(token_entry),
        because="a constant is gone after centring",
        decide=equal_sums(),
        near_misses={"v_0 spreads": spread(token_entry) + T * over(p, v[i_0, p] ** 2)},
    )


@step("B7.residual-sink")
def sink_moves_the_mean() -> Step:
    r"""$\|H\|_F^2 = \|P X\|_F^2 + T \|\mu + v_0\|^2$"""

    def mean_share(value_factor):
        return T * over(p, (mean(lambda t: x[t, p]) + value_factor * v[i_0, p]) ** 2)

    return Step(
        total(sink_stream),
        spread(token_entry) + mean_share(1),
        because="Pythagoras: spread and mean are orthogonal",
        decide=equal_sums(),
        near_misses={"v_0 forgotten": spread(token_entry) + mean_share(0)},
    )


# %% [markdown]
# **A diagonal.** $A = I$ gives $h_i = M x_i$ with $M = I + W_V$. Say $T \ge 2$. The claim: *the relative
# dispersion of every $X$ is kept iff $M$ is a nonzero multiple of an orthogonal matrix.*
#
# If $M^T M = c^2 I$ with $c \ne 0$, all lengths grow by $|c|$, and the ratio stays. For the other direction
# take tokens on a line, $x_i = \mu + s_i y$ with $\sum_i s_i = 0$. Then spread and total are, with
# $V = \sum_i s_i^2$, $V \|M y\|^2$ and $V \|M y\|^2 + T \|M \mu\|^2$.

# %%
M = IndexedBase("M")
s = IndexedBase("s")


def line_token(token: Symbol, place: Symbol) -> Expr:
    """mu + s_i y with the s_i centred."""
    return mu[place] + (s[token] - over(j, s[j]) / T) * y[place]


def mapped(token: Symbol, place: Symbol) -> Expr:
    """M x_i, one entry."""
    return over(r, M[place, r] * line_token(token, r))


def image_square(vector: IndexedBase) -> Expr:
    """||M vector||^2."""
    return over(p, over(r, M[p, r] * vector[r]) ** 2)


variance = over(j, (s[j] - over(l, s[l]) / T) ** 2)


@step("B7.residual-diagonal")
def spread_on_a_line() -> Step:
    r"""$\|P H\|_F^2 = V \|M y\|^2$"""
    return Step(
        spread(mapped),
        variance * image_square(y),
        because="the mean token carries no s",
        decide=equal_sums(),
        near_misses={"V not centred": over(j, s[j] ** 2) * image_square(y)},
    )


@step("B7.residual-diagonal")
def total_on_a_line() -> Step:
    r"""$\|H\|_F^2 = V \|M y\|^2 + T \|M \mu\|^2$"""
    return Step(
        total(mapped),
        variance * image_square(y) + T * image_square(mu),
        because="the mixed terms carry sum_i s_i = 0",
        decide=equal_sums(),
        near_misses={"mean not mapped": variance * image_square(y) + T * over(p, mu[p] ** 2)},
    )


@step("B7.residual-diagonal")
def when_the_ratio_stays() -> Step:
    r"""the ratio is kept iff $\|M y\|^2 \|\mu\|^2 = \|y\|^2 \|M \mu\|^2$"""
    big_v, y2, mu2, my2, mmu2 = symbols("V y2 mu2 My2 Mmu2", positive=True)
    after, before = big_v * my2 / (big_v * my2 + T * mmu2), big_v * y2 / (big_v * y2 + T * mu2)
    denominators = (big_v * my2 + T * mmu2) * (big_v * y2 + T * mu2)
    return Step(
        after - before,
        big_v * T * (my2 * mu2 - y2 * mmu2) / denominators,
        because="difference of the two fractions",
        near_misses={"sign": big_v * T * (y2 * mmu2 - my2 * mu2) / denominators},
    )


# %% [markdown]
# If $M = 0$, then $H = 0$ has no relative dispersion at all. Otherwise fix a $\mu$ with $M \mu \ne 0$ and let $y$ be
# free: $\|M y\|^2 = c^2 \|y\|^2$ for all $y$, with the one number $c^2 = \|M \mu\|^2 / \|\mu\|^2 > 0$. The function
# $\|M y\|^2 - c^2 \|y\|^2$ is zero for all $y$; so is its second derivative, which is $2 (M^T M - c^2 I)$. Hence
# $M^T M = c^2 I$, which was to be shown.


# %%
@step("B7.residual-diagonal")
def second_derivative() -> Step:
    r"""$\nabla^2 (\|M y\|^2 - c^2 \|y\|^2) = 2 (M^T M - c^2 I)$"""
    c = Symbol("c", real=True)
    gram = over(b, M[b, p] * M[b, e], d)
    return Step(
        diff(over(b, over(r, M[b, r] * y[r]) ** 2, d) - c**2 * over(r, y[r] ** 2), y[p], y[e]),
        2 * (gram - c**2 * delta(p, e)),
        because="differentiate twice",
        decide=equal_sums(),
        near_misses={"transposed": 2 * (over(b, M[p, b] * M[e, b], d) - c**2 * delta(p, e))},
    )


@step("B7.residual-diagonal")
def reflections_keep_lengths() -> Step:
    r"""such $M$ exist beside $\pm c I$: $M = \|w\|^2 I - 2 w w^T$ gives $\|M y\|^2 = \|w\|^4 \|y\|^2$"""
    w = IndexedBase("w")
    length = over(e, w[e] ** 2)

    def reflection(factor):
        image = over(r, (length * delta(p, r) - factor * w[p] * w[r]) * y[r])
        return over(p, image**2)

    kept = length**2 * over(p, y[p] ** 2)
    return Step(
        reflection(2),
        kept,
        because="a Householder reflection, times the square of w's length",
        decide=equal_sums(),
        near_misses={"projection instead": reflection(1)},
    )


@step("B7.residual-diagonal")
def stretching_one_axis() -> Step:
    r"""$M = \mathrm{diag}(1, 2)$, tokens $(1, 1)$ and $(1, -1)$: the ratio goes from $\frac12$ to $\frac45$"""
    tokens = Matrix([[1, 1], [1, -1]])
    streams = [tokens, tokens * Matrix.diag(1, 2)]
    return Step(
        Matrix([2 * dispersion(rows) / sum(entry**2 for entry in rows) for rows in streams]),
        Matrix([Rational(1, 2), Rational(4, 5)]),
        because="the spread lies along the stretched axis",
        near_misses={"kept": Matrix([Rational(1, 2), Rational(1, 2)])},
    )


# %% [markdown]
# **Uniform attention.** $A = \frac1T 11^T$ and $W_V = \eta I$ give $h_i = x_i + \eta \mu$. The spread stays
# and the mean is scaled by $1 + \eta$. So everything depends on whether $|1 + \eta|$ is above or below 1:
# the relative dispersion falls for $\eta > 0$ or $\eta < -2$, stays at $\eta = 0$ and $\eta = -2$, and
# **rises** in between. At $\eta = -1$ the mean is gone.


# %%
def uniform_stream(token: Symbol, place: Symbol) -> Expr:
    """h_i = x_i + eta mu."""
    return x[token, place] + eta * over(m, x[m, place] / T)


@step("B7.residual-uniform")
def uniform_keeps_the_spread() -> Step:
    r"""$\|P H\|_F^2 = \|P X\|_F^2$"""
    return Step(
        spread(uniform_stream),
        spread(token_entry),
        because="the mean token is the same for every row",
        decide=equal_sums(),
        near_misses={"scaled": (1 + eta) ** 2 * spread(token_entry)},
    )


@step("B7.residual-uniform")
def uniform_scales_the_mean() -> Step:
    r"""$\|H\|_F^2 = \|P X\|_F^2 + T (1 + \eta)^2 \|\mu\|^2$"""
    share = T * over(p, mean(lambda t: x[t, p]) ** 2)
    return Step(
        total(uniform_stream),
        spread(token_entry) + (1 + eta) ** 2 * share,
        because="Pythagoras: spread and mean are orthogonal",
        decide=equal_sums(),
        near_misses={"without the square": spread(token_entry) + (1 + eta) * share},
    )


@step("B7.residual-uniform")
def where_the_sign_changes() -> Step:
    r"""the ratio changes by $-D M \eta (\eta + 2) / [(D + (1 + \eta)^2 M)(D + M)]$"""
    big_d, big_m = symbols("D M", positive=True)
    after, before = big_d / (big_d + big_m * (1 + eta) ** 2), big_d / (big_d + big_m)
    denominators = (big_d + big_m * (1 + eta) ** 2) * (big_d + big_m)
    return Step(
        after - before,
        -big_d * big_m * eta * (eta + 2) / denominators,
        because="(1 + eta)^2 - 1 = eta (eta + 2): it changes sign at 0 and at -2 only",
        near_misses={
            "sign change at 2": -big_d * big_m * eta * (eta - 2) / denominators,
            "at 0 only": -big_d * big_m * eta / denominators,
        },
    )


# %% [markdown]
# **Doubly stochastic attention.** Rows and columns sum to one. Then averaging and attending commute,
# $P A = A P$, and the mean of $A X$ is $\mu$. So the mean token is scaled by $1 + \eta$, while the spread
# $P H = P X + \eta A P X$ grows by at most $1 + \eta \|P A\|$. With $\|P A\| < 1$ and $\eta > 0$ the mean
# wins, and the relative dispersion falls.


# %%
class DoublyStochastic(RowStochastic):
    """Every row and every column of the weights sums to one."""

    def rewrite(self, term: Term) -> Term | None:
        by_row = super().rewrite(term)
        if by_row is not None:
            return by_row
        for index, size in term.bound:
            touching = [pair for pair in term.factors if pair[0].has(index)]
            if size != self.rows or len(touching) != 1:
                continue
            ((factor, power),) = touching
            is_column = getattr(factor, "base", None) == self.weights and power == 1
            if is_column and factor.indices[0] == index and not factor.indices[1].has(index):
                rest = tuple(pair for pair in term.factors if pair != (factor, power))
                return Term(rest, tuple(pair for pair in term.bound if pair[0] != index))
        return None

    def values(self, sizes, draw):
        size = sizes[self.rows]
        shares = [abs(draw()) + 1 for _ in range(size)]
        return {
            self.weights[row, key]: shares[(key - row) % size] / sum(shares)
            for row in range(size)
            for key in range(size)
        }


doubly = DoublyStochastic(a, T, T)


@step("B7.residual-balanced")
def averaging_commutes() -> Step:
    r"""$P A = A P$"""
    return Step(
        over(l, (delta(i, l) - 1 / T) * a[l, j]),
        over(l, a[i, l] * (delta(l, j) - 1 / T)),
        because="1^T A = 1^T and A 1 = 1",
        decide=equal_sums(doubly),
        near_misses={"P A = A": a[i, j]},
    )


@step("B7.residual-balanced")
def mean_is_kept() -> Step:
    r"""the mean of $A X$ is $\mu$"""
    return Step(
        over(i, over(l, a[i, l] * x[l, p])) / T,
        over(l, x[l, p]) / T,
        because="columns sum to one",
        decide=equal_sums(doubly),
        near_misses={"the sum": over(l, x[l, p])},
    )


@step("B7.residual-balanced")
def spread_grows_less() -> Step:
    r"""$(1 + \eta \sigma)^2 \|Y\|^2 - \|Y + \eta Z\|^2 = \frac{\eta}{\sigma} E + (\frac{\eta}{\sigma} + \eta^2) G$

    with $Y = P X$, $Z = A P X$, $\sigma = \|P A\|$, $E = \|\sigma Y - Z\|^2$, $G = \sigma^2 \|Y\|^2 - \|Z\|^2$. Since
    $Z = P A Y$, $G \ge 0$, and so is the right side. (Where $\sigma = 0$, $Z = 0$ and there is nothing to show.)
    """
    sigma = Symbol("sigma", positive=True)

    def square(entry):
        return over(i, over(p, entry**2))

    gap = sigma**2 * square(y[i, p]) - square(z[i, p])
    after = eta / sigma * square(sigma * y[i, p] - z[i, p]) + (eta / sigma + eta**2) * gap
    return Step(
        (1 + eta * sigma) ** 2 * square(y[i, p]) - square(y[i, p] + eta * z[i, p]),
        after,
        because="expand both sides",
        decide=equal_sums(),
        near_misses={"square dropped": (eta / sigma + eta**2) * gap},
    )


@step("B7.residual-balanced")
def balanced_lowers() -> Step:
    r"""the ratio falls by at least $D M \eta (1 - \sigma)(2 + \eta (1 + \sigma)) / [\ldots] > 0$"""
    big_d, big_m, sigma = symbols("D M sigma", positive=True)
    largest_spread, mean_share = (1 + eta * sigma) ** 2 * big_d, (1 + eta) ** 2 * big_m
    denominators = (big_d + big_m) * (largest_spread + mean_share)
    return Step(
        big_d / (big_d + big_m) - largest_spread / (largest_spread + mean_share),
        big_d * big_m * eta * (1 - sigma) * (2 + eta * (1 + sigma)) / denominators,
        because="(1 + eta)^2 - (1 + eta sigma)^2 is a difference of squares",
        near_misses={"also at sigma = 1": big_d * big_m * eta * (2 + eta * (1 + sigma)) / denominators},
    )


# %% [markdown]
# **Dense but unbalanced: it may rise.** Let both rows look mostly at the last token. With $X = (2, -1)$ the
# mean is $\frac12$ and the attention pulls towards $-\frac14$: it shrinks the mean and leaves the spread.
# The relative dispersion goes from $\frac{9}{10}$ to $\frac{16}{17}$, with all weights positive and
# $\eta > 0$. Another such case has four tokens: $X = (1, 1, 1, -1)$, weight .97 on the last.


# %%
def relative_dispersion(rows: Matrix) -> Expr:
    """||P X||_F^2 / ||X||_F^2 of a written-out matrix."""
    return rows.rows * dispersion(rows) / sum(entry**2 for entry in rows)


def residual_ratios(tokens: list, last_weight: Rational) -> tuple[Expr, Expr]:
    """Relative dispersion before and after, eta = 1/2; every row gives the last token that weight, the rest share."""
    rest = (1 - last_weight) / (len(tokens) - 1)
    row = Matrix([[rest] * (len(tokens) - 1) + [last_weight]])
    stream = Matrix(tokens)
    return relative_dispersion(stream), relative_dispersion(stream + ones(len(tokens), 1) * row * stream / 2)


@step("B7.residual-dense")
def dense_may_raise() -> Step:
    r"""$X = (2, -1)$, weight $\frac34$ on the last, $\eta = \frac12$: it rises"""
    before, after = residual_ratios([2, -1], Rational(3, 4))
    balanced = residual_ratios([2, -1], Rational(1, 2))[1]
    return Step(
        before,
        after,
        because="9/10 against 16/17",
        decide=below,
        relation="<",
        near_misses={"balanced weights": balanced},
        counterexample=True,
    )


@step("B7.residual-dense")
def dense_may_raise_at_four() -> Step:
    r"""$X = (1, 1, 1, -1)$, weight $.97$ on the last, $\eta = \frac12$: it rises"""
    before, after = residual_ratios([1, 1, 1, -1], Rational(97, 100))
    return Step(
        before,
        after,
        because="3/4 against 30000/30036",
        decide=below,
        relation="<",
        near_misses={"balanced weights": residual_ratios([1, 1, 1, -1], Rational(1, 4))[1]},
        counterexample=True,
    )


# %% [markdown]
# ## Depth: Dobrushin's coefficient
#
# How fast do products of attention matrices forget their input? Dobrushin's coefficient of a row-stochastic
# $A$ is $\tau(A) = \frac12 \max_{i,j} \|a_i - a_j\|_1$: the largest total variation between two rows. It is
# 0 when all rows are equal and 1 when two rows share no key.
#
# **It counts overlap.** For two numbers
# $\min(\alpha, \beta) = \frac12 (\alpha + \beta - |\alpha - \beta|)$. Summed over a row:
# $\frac12 \|a_i - a_j\|_1 = 1 - \sum_l \min(a_{il}, a_{jl})$.


# %%
def smaller(first: Expr, second: Expr) -> Expr:
    """min(first, second), written with an absolute value."""
    return (first + second - Abs(first - second)) / 2


@step("B7.dobrushin")
def minimum_by_absolute_value() -> Step:
    r"""$\min(\alpha, \beta) = \frac12 (\alpha + \beta - |\alpha - \beta|)$, in either order"""
    alpha, more = symbols("alpha t", positive=True)
    pairs = [(alpha, alpha + more), (alpha + more, alpha)]
    return Step(
        Matrix([Min(*pair) for pair in pairs]),
        Matrix([smaller(*pair) for pair in pairs]),
        because="one of the two is the other plus a positive number",
        near_misses={"maximum": Matrix([alpha + more, alpha + more])},
    )


@step("B7.dobrushin")
def half_distance_is_missing_overlap() -> Step:
    r"""$\frac12 \sum_l |a_{il} - a_{jl}| = 1 - \sum_l \min(a_{il}, a_{jl})$"""
    overlap = over(l, smaller(a[i, l], a[j, l]))
    return Step(
        over(l, Abs(a[i, l] - a[j, l])) / 2,
        1 - overlap,
        because="the formula for the minimum, with rows that sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"product for minimum": 1 - over(l, a[i, l] * a[j, l]), "doubled": 2 - 2 * overlap},
    )


# %% [markdown]
# **The column floor.** Let $m_l = \min_i a_{il}$ be the least weight that token $l$ gets from any row. Then
# $\sum_l \min(a_{il}, a_{jl}) \ge \sum_l m_l$ for every pair, so $\tau(A) \le 1 - \sum_l m_l$. One column
# that every row looks at is enough: a sink with $a_{i0} \ge 1 - \epsilon$ has $\tau \le \epsilon$. What
# follows is the same as an identity. The parts above the floor, $a_{il} - m_l \ge 0$, are all that two rows
# can differ by, and each row's sum to $1 - \sum_l m_l$.


# %%
@step("B7.dobrushin")
def above_the_floor() -> Step:
    r"""$\frac12 \sum_l (a_{il} - m_l) + \frac12 \sum_l (a_{jl} - m_l) = 1 - \sum_l m_l$"""
    floor = IndexedBase("m")
    return Step(
        over(l, a[i, l] - floor[l]) / 2 + over(l, a[j, l] - floor[l]) / 2,
        1 - over(l, floor[l]),
        because="rows sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"floor halved": 1 - over(l, floor[l]) / 2},
    )


# %% [markdown]
# **The product rule** $\tau(A A') \le \tau(A)\, \tau(A')$. Take two rows of $A A'$. Their difference is
# $z^T A'$ with $z = a_i - a_j$. The entries of $z$ sum to zero, so its positive and its negative part have
# the same sum, $s = \frac12 \|z\|_1 \le \tau(A)$. Write $z = s (p - q)$ with probability vectors $p$, $q$.
# (If $s = 0$ the rows agree.) Move mass from $q$ to $p$, pair by pair:
# $z^T A' = s \sum_{k, l} p_k q_l\, (a'_k - a'_l)$. Each pair of rows of $A'$ is at most $2 \tau(A')$ apart.
# So $\|z^T A'\|_1 \le s \cdot 2 \tau(A')$, and half of it is at most $\tau(A)\, \tau(A')$.

# %%
w, a2 = IndexedBase("w"), IndexedBase("a'")
plans_sum_to_one = RowStochastic(w, T, T)


@step("B7.dobrushin")
def moving_mass_pair_by_pair() -> Step:
    r"""$\sum_k (p_k - q_k)\, a'_{km} = \sum_{k,l} p_k q_l\, (a'_{km} - a'_{lm})$; $p$, $q$ are two rows of a $w$"""
    return Step(
        over(l, (w[i, l] - w[j, l]) * a2[l, m]),
        over(p, over(l, w[i, p] * w[j, l] * (a2[p, m] - a2[l, m]), T), T),
        because="the other vector's weights sum to one",
        decide=equal_sums(plans_sum_to_one),
        near_misses={"one row alone": over(p, over(l, w[i, p] * w[j, l] * a2[p, m], T), T)},
    )


@step("B7.dobrushin")
def average_below_largest() -> Step:
    r"""$2 \tau' - \sum_{k,l} p_k q_l D_{kl} = \sum_{k,l} p_k q_l\, (2 \tau' - D_{kl})$

    Not negative where $D_{kl} = \|a'_k - a'_l\|_1 \le 2 \tau'$ for every pair.
    """
    tau, distance = Symbol("tau'", nonnegative=True), IndexedBase("D")

    def averaged(entry):
        return over(p, over(l, w[i, p] * w[j, l] * entry, T), T)

    return Step(
        2 * tau - averaged(distance[p, l]),
        averaged(2 * tau - distance[p, l]),
        because="the weights p_k q_l sum to one",
        decide=equal_sums(plans_sum_to_one),
        near_misses={"half": averaged(tau - distance[p, l])},
    )


def dobrushin(weights: Matrix) -> Expr:
    """tau of a written-out matrix with rational entries."""
    pairs = [(one, other) for one in range(weights.rows) for other in range(weights.rows)]
    keys = range(weights.cols)
    return max(sum(abs(weights[one, key] - weights[other, key]) for key in keys) / 2 for one, other in pairs)


FIRST = Matrix([[6, 3, 1], [2, 2, 6], [1, 8, 1]]) / 10
SECOND = Matrix([[5, 5, 0], [1, 6, 3], [4, 4, 2]]) / 10


@step("B7.dobrushin")
def product_rule_on_numbers() -> Step:
    r"""two $3 \times 3$ matrices: $\tau(A A') = \frac{5}{25} \le \frac{6}{25}$"""
    return Step(
        dobrushin(FIRST * SECOND),
        dobrushin(FIRST) * dobrushin(SECOND),
        because="exact fractions",
        decide=at_most,
        relation="<=",
        near_misses={"half": dobrushin(FIRST) * dobrushin(SECOND) / 2},
    )


@step("B7.dobrushin")
def two_tokens_are_the_sharp_case() -> Step:
    r"""$T = 2$: the row difference of $A A'$ is $(p - q)(p' - q')$, so the product rule is an equality"""
    p1, q1, p2, q2 = symbols("p q p' q'", positive=True)
    product = Matrix([[p1, 1 - p1], [q1, 1 - q1]]) * Matrix([[p2, 1 - p2], [q2, 1 - q2]])
    return Step(
        product[0, 0] - product[1, 0],
        (p1 - q1) * (p2 - q2),
        because="a 2 x 2 stochastic matrix has tau = |p - q| = |det|",
        near_misses={"half": (p1 - q1) * (p2 - q2) / 2},
    )


@step("B7.dobrushin")
def sink_forgets() -> Step:
    r"""rows $(.9, .1, 0)$, $(.9, 0, .1)$ and $(1, 0, 0)$: $\tau = \epsilon = \frac{1}{10}$"""
    leak = Rational(1, 10)
    weights = Matrix([[1 - leak, leak, 0], [1 - leak, 0, leak], [1, 0, 0]])
    return Step(
        dobrushin(weights),
        leak,
        because="every row looks at token 0 with weight 9/10 or more",
        decide=at_most,
        relation="<=",
        near_misses={"half": leak / 2},
    )


# %% [markdown]
# ## Depth: the tokens
#
# What does it mean for tokens? Let $\Delta(X) = \max_{i,j} \|x_i - x_j\|$. The difference of two rows of
# $A X$ is a mean over pairs of tokens, times $s \le \tau(A)$: the same identity with $x_k$ for $a'_k$. So
# $\Delta(A X) \le \tau(A)\, \Delta(X)$. A linear map $W_V$ stretches distances by at most its norm, a
# residual adds the old difference:
#
# $$\Delta(r X + A X W_V^T) \le (r + \tau(A) \|W_V\|)\, \Delta(X).$$
#
# Without a residual and with $\|W_V\| \le 1$ the tokens collapse as soon as the product of the $\tau$ tends
# to zero. A sink does this in one layer. With a residual the bound never goes below 1: what falls is the
# *relative* dispersion, when the mean token grows faster. The diameter bounds the dispersion: no token pair
# is farther apart.


# %%
@step("B7.depth")
def rows_of_tokens() -> Step:
    r"""$\sum_k (p_k - q_k)\, x_k = \sum_{k,l} p_k q_l\, (x_k - x_l)$"""
    return Step(
        over(l, (w[i, l] - w[j, l]) * x[l, p]),
        over(m, over(l, w[i, m] * w[j, l] * (x[m, p] - x[l, p]))),
        because="the other vector's weights sum to one",
        decide=equal_sums(plans_sum_to_one),
        near_misses={"sign": over(m, over(l, w[i, m] * w[j, l] * (x[l, p] - x[m, p])))},
    )


@step("B7.depth")
def two_tokens_meet_the_bound() -> Step:
    r"""$T = 2$, $W_V = \eta I$: $h_1 - h_2 = (r + \eta\, (p - q))(x_1 - x_2)$, equality where $\eta (p - q) \ge 0$"""
    p1, q1, x1, x2 = symbols("p q x_1 x_2", real=True)
    tokens = Matrix([x1, x2])
    stream = residual * tokens + eta * Matrix([[p1, 1 - p1], [q1, 1 - q1]]) * tokens
    return Step(
        stream[0] - stream[1],
        (residual + eta * (p1 - q1)) * (x1 - x2),
        because="rows sum to one",
        near_misses={"without tau": (residual + eta) * (x1 - x2)},
    )


@step("B7.depth")
def dispersion_by_pairs() -> Step:
    r"""$\|P X\|_F^2 = \frac{1}{2 T} \sum_{i,j} \|x_i - x_j\|^2$"""
    pairs = over(i, over(j, over(p, (x[i, p] - x[j, p]) ** 2)))
    return Step(
        spread(token_entry),
        pairs / (2 * T),
        because="expand both sides",
        decide=equal_sums(),
        near_misses={"each pair twice": pairs / T},
    )


@step("B7.depth")
def pairs_below_the_diameter() -> Step:
    r"""if all pairs $i \ne j$ are $\Delta$ apart, $\|P X\|_F^2 = \frac{T - 1}{2} \Delta^2$: the largest value"""
    diameter = Symbol("Delta", nonnegative=True)
    return Step(
        over(i, over(j, (1 - delta(i, j)) * diameter**2)) / (2 * T),
        (T - 1) / 2 * diameter**2,
        because="T (T - 1) pairs",
        decide=equal_sums(),
        near_misses={"own pair counted": T / 2 * diameter**2, "half": (T - 1) / 4 * diameter**2},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b7_oversmoothing"))
