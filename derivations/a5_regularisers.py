r"""A5. What regularising the diagonal does: mask, penalty, and dropout before or after the softmax.

P1 regularises the diagonal of temporal attention in three ways: a full mask (the own score goes to minus infinity), a
penalty b < 0 on the own score, and dropout of own scores (each to minus infinity with probability p, in training). Its
blocks also have the usual dropout after the softmax. P1 claims that a full mask suppresses the query path, and treats
the Jacobian under a regulariser as the old one with the new weights.

Our statements, for every number of tokens T:

    penalty          logit(a'_ii) = logit(a_ii) + b,   a'_ij = a_ij (1 - a'_ii)/(1 - a_ii);   mask: b -> -infinity
    score dropout    E a'_ii = (1-p) a_ii,   E a'_ij = (1-p) a_ij + p a_ij/(1 - a_ii),   E J' = (1-p) J + p J^mask
    after softmax    E a' = a,   Var of a row's sum = p/(1-p) sum_j a_ij^2,   E J' = J, but J' is not A1 with a' for a
    mask and query   Cov'_i = Cov_i/(1 - a_ii) - a_ii/(1 - a_ii)^2 (v_i - o_i)(k_i - kbar_i)^T: part goes, part grows
    order in T       before the softmax: J_ii moves at 1/T, J_ij at 1/T^2; all weights after it: at T^(-1/2) and 1/T

"A full mask suppresses the query path" fails (x = (0, 1, -1)), and so does "A1 with a' for a" after the softmax.
"""

# %% [markdown]
# # A5. Regularising the diagonal
#
# Token $i$ attends to all tokens, to itself too. Its own weight $a_{ii}$ is what P1 wants to hold down. There are
# two places to do it. **Before the softmax**: change the own score $s_{ii}$, and the softmax hands the freed
# weight to the others. **After the softmax**: multiply weights, and nobody gets what is taken away.
#
# **One trick for all that happens before.** Adding $b$ to the own score multiplies $e^{s_{ii}}$ by
# $\theta = e^b$. So everything before the softmax is one number $\theta_i \ge 0$ a row: $\theta = 1$ changes
# nothing, $0 < \theta < 1$ is a penalty, $\theta = 0$ is the mask, and dropout of scores draws
# $\theta_i \in \{0, 1\}$. The penalty is added to the *scaled* score: added before the factor $c = 1/\sqrt{d_k}$
# it would be $c\, b$.

# %%
from itertools import product as choices

from sympy import (
    Expr,
    IndexedBase,
    Matrix,
    Rational,
    S,
    Symbol,
    cancel,
    cosh,
    diff,
    exp,
    limit,
    log,
    oo,
    symbols,
)

from derivations.a1_jacobian import covariance, mean_key, output, softmax_weight
from derivations.decide import below, equal_sums
from derivations.notation import (
    W_K,
    W_Q,
    W_V,
    T,
    a,
    b,
    c,
    d,
    d_k,
    delta,
    e,
    g,
    i,
    j,
    k,
    l,
    m,
    over,
    p,
    r,
    residual,
    u,
    v,
    x,
)
from derivations.steps import Step, step
from derivations.summation import RowStochastic

s = IndexedBase("s")
w = IndexedBase("w")
rows_sum_to_one = RowStochastic(a, T, T)

theta = Symbol("theta", nonnegative=True)  # what the own exponential is multiplied by
penalty = Symbol("b_pen", real=True)  # b in the text: theta = exp(b)
drop = Symbol("p_drop", positive=True)  # p in the text

# %% [markdown]
# ## The penalty
#
# Row $i$ knows its other keys through one number only, the total $Z = \sum_l e^{s_{il}}$. A factor on the own
# exponential changes the total by what it changes one term:


# %%
@step("A5.penalty")
def total_with_own_factor() -> Step:
    r"""$Z' = \sum_l \theta^{\delta_{il}} e^{s_{il}} = Z + (\theta - 1) e^{s_{ii}}$"""
    total, own = over(l, exp(s[i, l])), exp(s[i, i])
    return Step(
        over(l, (delta(i, l) * theta + 1 - delta(i, l)) * exp(s[i, l])),
        total + (theta - 1) * own,
        because="only the term l = i has the factor",
        decide=equal_sums(),
        near_misses={"own term counted twice": total + theta * own, "every term": theta * total},
    )


# %% [markdown]
# Write $E = e^{s_{ii}}$ and $F = e^{s_{ij}}$ for the own exponential and another one. Then $a_{ii} = E/Z$ and
# $a'_{ii} = \theta E / (Z + (\theta - 1) E)$: for any number of tokens, a rational function of three numbers.
#
# The odds of looking at oneself are multiplied by $e^b$, whatever the other scores are. In logarithms: the
# penalty moves the **logit** of the own weight by exactly $b$. So P1's $b = -0.1$ lowers a small $a_{ii}$ by a
# tenth of itself, no more.


# %%
E, F, Z = symbols("E F Z", positive=True)


def own_weight(factor: Expr = S.One) -> Expr:
    """a'_ii, by the softmax with the own exponential multiplied."""
    return factor * E / (Z + (factor - 1) * E)


def other_weight(factor: Expr = S.One) -> Expr:
    """a'_ij for one j != i, by the same softmax."""
    return F / (Z + (factor - 1) * E)


@step("A5.penalty")
def odds_are_multiplied() -> Step:
    r"""$\frac{a'_{ii}}{1 - a'_{ii}} = e^b\, \frac{a_{ii}}{1 - a_{ii}}$: the odds of looking at oneself times $e^b$"""
    new, old = own_weight(exp(penalty)), own_weight()
    return Step(
        new / (1 - new),
        exp(penalty) * old / (1 - old),
        because="the rest of the row, Z - E, is not touched",
        near_misses={
            "the weight itself multiplied": exp(penalty) * old / (1 - exp(penalty) * old),
            "half the penalty": exp(penalty / 2) * old / (1 - old),
        },
    )


@step("A5.penalty")
def logit_moves_with_the_penalty() -> Step:
    r"""$\frac{d}{db} \log \frac{a'_{ii}}{1 - a'_{ii}} = 1$: the logit itself, without exponentiating"""
    new = own_weight(exp(penalty))
    return Step(
        diff(log(new) - log(1 - new), penalty),
        Rational(1),
        because="differentiation; at b = 0 the logit is the old one",
        near_misses={"the softmax's own slope": 1 - new},
    )


@step("A5.penalty")
def others_share_what_is_freed() -> Step:
    r"""$a'_{ij} = a_{ij}\, \frac{1 - a'_{ii}}{1 - a_{ii}}$ for $j \ne i$: all others grow by one factor"""
    new, old = own_weight(exp(penalty)), own_weight()
    return Step(
        other_weight(exp(penalty)),
        other_weight() * (1 - new) / (1 - old),
        because="all other exponentials keep their ratios",
        near_misses={
            "others unchanged": other_weight(),
            "freed weight in equal parts": other_weight() + (old - new) / (T - 1),
        },
    )


@step("A5.penalty")
def mask_is_the_limit() -> Step:
    r"""$b \to -\infty$: $a'_{ii} \to 0$ and $a'_{ij} \to a_{ij}/(1 - a_{ii})$, the mask"""
    return Step(
        Matrix([limit(f(exp(penalty)), penalty, -oo) for f in (own_weight, other_weight)]),
        Matrix([0, other_weight() / (1 - own_weight())]),
        because="e^b tends to 0",
        near_misses={"others unchanged": Matrix([0, other_weight()])},
    )


# %% [markdown]
# In terms of the old weights alone, for every key:
# $a'_{ij} = \theta^{\delta_{ij}} a_{ij} / (1 + (\theta - 1) a_{ii})$. Rows still sum to one, for the mask
# ($\theta = 0$) as for the penalty; only $a_{ii} < 1$ is needed, some other key to look at.


# %%
def reweighted(row: Symbol, token: Symbol, factor: Expr = theta) -> Expr:
    """a'_ij from the old weights, for any key."""
    return a[row, token] * (1 + (factor - 1) * delta(row, token)) / (1 + (factor - 1) * a[row, row])


@step("A5.penalty")
def rows_still_sum_to_one() -> Step:
    r"""$\sum_j a'_{ij} = 1$ for every $\theta$"""
    return Step(
        over(j, reweighted(i, j)),
        Rational(1),
        because="the denominator is the sum of the numerators",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"nothing handed on": 1 + (theta - 1) * a[i, i]},
    )


@step("A5.penalty")
def four_keys_written_out() -> Step:
    r"""The same with every symbol visible, $T = 4$: the penalised softmax from its scores"""
    scores = symbols("s:4", real=True)
    old = [exp(t) / sum(map(exp, scores)) for t in scores]
    shifted = (scores[0] + penalty, *scores[1:])
    grown = 1 + (exp(penalty) - 1) * old[0]
    return Step(
        Matrix([exp(t) / sum(map(exp, shifted)) for t in shifted]),
        Matrix([exp(penalty) * old[0], *old[1:]]) / grown,
        because="brute force",
        near_misses={"not renormalised": Matrix([exp(penalty) * old[0], *old[1:]])},
    )


# %% [markdown]
# ## Dropout of own scores
#
# P1's diagonal dropout sends each own score to minus infinity with probability $p$, independently, in training.
# Row $i$ is then the masked row with probability $p$ and the old row otherwise. So the expectations are those of
# a two-point law.


# %%
def over_two_draws(expression) -> Expr:
    """E f(theta) for theta = 0 with probability p and 1 otherwise."""
    return (1 - drop) * expression(Rational(1)) + drop * expression(Rational(0))


@step("A5.score-dropout")
def expected_weights() -> Step:
    r"""$E\, a'_{ii} = (1 - p)\, a_{ii}$, $E\, a'_{ij} = (1 - p)\, a_{ij} + p\, \frac{a_{ij}}{1 - a_{ii}}$"""
    own, other = own_weight(), other_weight()
    return Step(
        Matrix([over_two_draws(own_weight), over_two_draws(other_weight)]),
        Matrix([(1 - drop) * own, (1 - drop) * other + drop * other / (1 - own)]),
        because="two-point law",
        near_misses={
            "others unchanged in mean": Matrix([(1 - drop) * own, other]),
            "rescaled by 1/(1-p), as after the softmax": Matrix([own, other]),
        },
    )


@step("A5.score-dropout")
def every_draw_sums_to_one() -> Step:
    r"""$\sum_j a'_{ij} = 1$ in both draws, and so in the mean"""
    return Step(
        over(j, (1 - drop) * reweighted(i, j, Rational(1)) + drop * reweighted(i, j, Rational(0))),
        Rational(1),
        because="each draw is a softmax",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"as after the softmax, without rescaling": 1 - drop * a[i, i]},
    )


# %% [markdown]
# For the Jacobian we need more: the draws of the *other* rows must not matter. They do not. Give every row its
# own factor $\theta_m$ and ask how the output of row $i$ hears it: through $m = i$ only. Since $J'_{ij}$ is the
# derivative of that output in $x_j$, it hears the same draw and no other.


# %%
factors = IndexedBase("theta")


def own_factor_weight(row: Symbol, token: Symbol) -> Expr:
    """The factor of every pair (i, l): theta_i on the own key, 1 elsewhere."""
    return 1 + (factors[row] - 1) * delta(row, token)


@step("A5.score-dropout")
def only_the_own_draw_matters() -> Step:
    r"""$\partial o_i / \partial \theta_m = \delta_{im}\, \frac{e^{s_{ii}}}{Z'_i} (v_i - o'_i)$"""
    total = over(l, own_factor_weight(i, l) * exp(s[i, l]))
    mean = over(l, own_factor_weight(i, l) * exp(s[i, l]) * v[l, b]) / total
    felt = exp(s[i, i]) / total * (v[i, b] - mean)
    return Step(
        diff(mean, factors[m]),
        delta(i, m) * felt,
        because="row i has the factor theta_i and no other",
        decide=equal_sums(),
        near_misses={"every draw matters": felt, "the own value alone": delta(i, m) * exp(s[i, i]) / total * v[i, b]},
    )


# %% [markdown]
# So $J'_{ij} = J_{ij}$ with probability $1 - p$ and $J'_{ij} = J^{\mathrm{mask}}_{ij}$ with probability $p$, and
# $E J' = (1 - p) J + p J^{\mathrm{mask}}$. As a check by brute force: three tokens of width one, all eight draws
# of the three rows, each differentiated on its own and averaged; against A1's formula with the old and with the
# masked weights.


# %%
def scalar_jacobian(weights, row: int, column: int, tokens) -> Expr:
    """A1's block for tokens of width one with W_Q = W_K = W_V = 1: values, keys and slopes are the tokens."""
    mean = sum(n * t for n, t in zip(weights, tokens, strict=True))
    block = weights[column] * (1 + (tokens[column] - mean) * tokens[row])
    if row == column:
        block += sum(n * (t - mean) ** 2 for n, t in zip(weights, tokens, strict=True))
    return block


def scalar_weights(row: int, tokens, factor: Expr) -> list[Expr]:
    """The softmax of one row of the same layer, with a factor on the own exponential."""
    raised = [(factor if n == row else 1) * exp(tokens[row] * t) for n, t in enumerate(tokens)]
    return [entry / sum(raised) for entry in raised]


@step("A5.score-dropout")
def expected_jacobian_over_all_draws() -> Step:
    r"""$E J'_{ij} = (1 - p) J_{ij} + p J^{\mathrm{mask}}_{ij}$ over all draws, $T = 3$"""
    tokens = symbols("x:3", real=True)
    places = [(0, 0), (1, 0)]

    def brute(draw, row, column) -> Expr:
        weights = scalar_weights(row, tokens, Rational(draw[row]))
        return diff(sum(n * t for n, t in zip(weights, tokens, strict=True)), tokens[column])

    def probability(draw) -> Expr:
        return drop ** draw.count(0) * (1 - drop) ** draw.count(1)

    draws = list(choices((0, 1), repeat=3))

    def closed(kept: Expr) -> Matrix:
        one = [scalar_jacobian(scalar_weights(n, tokens, Rational(1)), n, t, tokens) for n, t in places]
        masked = [scalar_jacobian(scalar_weights(n, tokens, Rational(0)), n, t, tokens) for n, t in places]
        return kept * Matrix(one) + (1 - kept) * Matrix(masked)

    return Step(
        Matrix([sum(probability(draw) * brute(draw, *place) for draw in draws) for place in places]),
        closed(1 - drop),
        because="eight draws, differentiated one by one",
        near_misses={"mask and no mask exchanged": closed(drop), "all rows must be kept": closed((1 - drop) ** 3)},
    )


# %% [markdown]
# ## Dropout after the softmax
#
# The usual attention dropout multiplies the weights that the softmax has made: $a'_{ij} = f_{ij} a_{ij}$ with
# $f_{ij} = 0$ with probability $p$ and $1/(1-p)$ otherwise, independently; on all pairs, or on the diagonal only.
# The mean is right by the rescaling, and different keys are independent, so two moments say everything below.


# %%
def over_dropout(expression) -> Expr:
    """E g(f) for one dropout factor."""
    return (1 - drop) * expression(1 / (1 - drop)) + drop * expression(Rational(0))


@step("A5.weight-dropout")
def moments_of_a_factor() -> Step:
    r"""$E f = 1$, $\mathrm{Var} f = \frac{p}{1-p}$, and two keys have covariance 0"""
    mean, square = over_dropout(lambda f: f), over_dropout(lambda f: f**2)
    two_keys = over_dropout(lambda f: over_dropout(lambda h: f * h))
    return Step(
        Matrix([mean, square - mean**2, two_keys - mean**2]),
        Matrix([1, drop / (1 - drop), 0]),
        because="two-point law, four outcomes for two keys",
        near_misses={
            "variance of the Bernoulli itself": Matrix([1, drop * (1 - drop), 0]),
            "without rescaling": Matrix([1 - drop, drop * (1 - drop), 0]),
        },
    )


# %% [markdown]
# So $E a' = a$. But rows no longer sum to one. Their sum $\sum_j f_{ij} a_{ij}$ has mean one and a variance in
# which all cross terms cancel. Below, each product of two factors is replaced by its expectation,
# $E f_{ij} f_{il} = 1 + \delta_{jl}\, p/(1-p)$.


# %%
SPREAD = drop / (1 - drop)  # the variance of one factor


def row_sum_variance(second_moment) -> Expr:
    """E (sum_j f_ij a_ij)^2 - (sum_j a_ij)^2, where ``second_moment(j, l)`` is E f_ij f_il."""
    return over(j, over(l, a[i, j] * a[i, l] * second_moment(j, l))) - over(j, a[i, j]) ** 2


@step("A5.weight-dropout")
def variance_of_a_row_sum() -> Step:
    r"""All weights: $\mathrm{Var} \sum_j a'_{ij} = \frac{p}{1-p} \sum_j a_{ij}^2$"""
    return Step(
        row_sum_variance(lambda one, other: 1 + delta(one, other) * SPREAD),
        SPREAD * over(j, a[i, j] ** 2),
        because="only j = l is left",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"cross terms kept": SPREAD, "without rescaling": drop * (1 - drop) * over(j, a[i, j] ** 2)},
    )


@step("A5.weight-dropout")
def variance_of_a_row_sum_diagonal_only() -> Step:
    r"""Diagonal only: $\mathrm{Var} \sum_j a'_{ij} = \frac{p}{1-p}\, a_{ii}^2$"""
    return Step(
        row_sum_variance(lambda one, other: 1 + delta(i, one) * delta(i, other) * SPREAD),
        SPREAD * a[i, i] ** 2,
        because="only j = l = i is left",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"linear in the weight": SPREAD * a[i, i], "all weights": SPREAD * over(j, a[i, j] ** 2)},
    )


# %% [markdown]
# ## The Jacobian after the softmax
#
# Now the output is $o'_i = \sum_l f_{il} a_{il} v_l$. The factors $f$ are numbers; they do not know the tokens.
# But the softmax underneath still moves with its *old* weights. So $a'$ appears where weights multiply values,
# and $a$ where the softmax is differentiated:
#
# $$J'_{ij} = r\, \delta_{ij} I + a'_{ij} W_V + (a'_{ij} v_j - a_{ij} o'_i) u_i^T
# + \delta_{ij}\, c \left[ \sum_l (a'_{il} v_l - a_{il} o'_i) k_l^T \right] W_Q.$$
#
# The proof is by brute force, as in A1: substitute everything and differentiate once. Projection biases are left
# out here (they only shift queries, keys and values); any mask or bias on the scores sits in weights $w_{ij}$, as
# in A1.


# %%
f = IndexedBase("f")


def projected(matrix: IndexedBase, token: Symbol, place: Symbol) -> Expr:
    """W x, one entry: a query, key or value."""
    return over(p, matrix[place, p] * x[token, p])


def score(row: Symbol, token: Symbol) -> Expr:
    """s_ij = c q_i . k_j."""
    return c * over(g, projected(W_Q, row, g) * projected(W_K, token, g))


def weight(row: Symbol, token: Symbol) -> Expr:
    """a_ij as a function of the tokens."""
    return softmax_weight(score, row, token)


@step("A5.weight-dropout")
def jacobian_after_softmax() -> Step:
    r"""The block above is the derivative of $r x_i + \sum_l f_{il} a_{il} v_l$ in $x_j$"""
    layer = residual * x[i, e] + over(l, f[i, l] * weight(i, l) * projected(W_V, l, e))
    out = over(m, f[i, m] * weight(i, m) * projected(W_V, m, e))
    slope = c * over(g, W_K[g, r] * projected(W_Q, i, g))
    straight = residual * delta(i, j) * delta(e, r) + f[i, j] * weight(i, j) * W_V[e, r]
    pulled = weight(i, j) * (f[i, j] * projected(W_V, j, e) - out) * slope
    spread = over(l, weight(i, l) * (f[i, l] * projected(W_V, l, e) - out) * projected(W_K, l, g))
    asked = delta(i, j) * c * over(g, spread * W_Q[g, r])
    return Step(
        diff(layer, x[j, r]),
        straight + pulled + asked,
        because="one differentiation of the layer, nothing else",
        decide=equal_sums(sizes={T: 2, d: 1, d_k: 1}),
        near_misses={"a' in the key part": straight + f[i, j] * pulled + asked},
    )


# %% [markdown]
# Sort it by factors. $J'$ is a sum over the keys $l$ that are kept, each bringing its own matrix, without the
# residual:
#
# $$J'_{ij} = \sum_l f_{il}\, a_{il}\, C^l_{ij}, \qquad
#   C^l_{ij} = \delta_{lj} W_V + (\delta_{lj} - a_{ij})\, v_l u_i^T + \delta_{ij}\, c\, v_l (k_l - \bar{k}_i)^T W_Q.$$
#
# It is linear in $f$, so its mean has $f = 1$, and that is A1: $E J' = J$. And its variance is $p/(1-p)$ times a
# sum of squares.


# %%
def per_key(row: Symbol, column: Symbol, token: Symbol) -> Expr:
    """C^l_ij, the entry (b, r): what key l brings into J'_ij with weight f_il a_il."""
    asked = c * over(g, v[token, b] * (k[token, g] - mean_key(row, g)) * W_Q[g, r])
    pulled = (delta(token, column) - a[row, column]) * v[token, b] * u[row, r]
    return delta(token, column) * W_V[b, r] + pulled + delta(row, column) * asked


@step("A5.weight-dropout")
def sorted_by_factors() -> Step:
    r"""$J'_{ij} - r \delta_{ij} I = \sum_l f_{il} a_{il} C^l_{ij}$"""
    out = over(m, f[i, m] * a[i, m] * v[m, b])
    pulled = (f[i, j] * a[i, j] * v[j, b] - a[i, j] * out) * u[i, r]
    asked = delta(i, j) * c * over(g, over(l, a[i, l] * (f[i, l] * v[l, b] - out) * k[l, g]) * W_Q[g, r])
    return Step(
        f[i, j] * a[i, j] * W_V[b, r] + pulled + asked,
        over(l, f[i, l] * a[i, l] * per_key(i, j, l)),
        because="every term has exactly one factor f",
        decide=equal_sums(),
        near_misses={"factors forgotten": over(l, a[i, l] * per_key(i, j, l))},
    )


@step("A5.weight-dropout")
def mean_jacobian() -> Step:
    r"""$E J'_{ij} = J_{ij}$: with $E f = 1$ the sum is A1's block"""
    expected_factor = over_dropout(lambda factor: factor)
    block = a[i, j] * W_V[b, r] + a[i, j] * (v[j, b] - output(i, b)) * u[i, r]
    block += delta(i, j) * c * over(g, covariance(v, k, i, b, g) * W_Q[g, r])
    return Step(
        over(l, expected_factor * a[i, l] * per_key(i, j, l)),
        block,
        because="linear in f, and E f = 1",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"without rescaling": (1 - drop) * block},
    )


# %% [markdown]
# The same by brute force: two tokens of width one, the four draws of row 0, each differentiated and averaged.


# %%
def dropped_output(draw, tokens) -> Expr:
    """o'_0 of two tokens of width one, all weights one, with dropout factors after the softmax."""
    weights = scalar_weights(0, tokens, Rational(1))
    return sum(h * n * t for h, n, t in zip(draw, weights, tokens, strict=True))


@step("A5.weight-dropout")
def mean_jacobian_over_all_draws() -> Step:
    r"""$E J'_{00} = J_{00}$ and $E J'_{01} = J_{01}$ over all four draws, $T = 2$"""
    tokens = symbols("x:2", real=True)
    law = {Rational(0): drop, 1 / (1 - drop): 1 - drop}
    mean = [
        sum(law[one] * law[two] * diff(dropped_output((one, two), tokens), t) for one in law for two in law)
        for t in tokens
    ]
    weights = scalar_weights(0, tokens, Rational(1))
    block = Matrix([scalar_jacobian(weights, 0, column, tokens) for column in (0, 1)])
    return Step(
        Matrix(mean),
        block,
        because="four draws, differentiated one by one",
        near_misses={"without rescaling": (1 - drop) * block},
    )


# %% [markdown]
# ## Is J' the old formula with the new weights?
#
# **Before the softmax: yes.** A1 needs two facts about the weights: rows sum to one, and the softmax derivative
# $\partial a_{il}/\partial s_{ij} = a_{il} (\delta_{lj} - a_{ij})$. The first was shown above for every $\theta$.
# The second holds for the weights $a'$, with $a'$ on the right too. So J' is A1 with $a'$ for $a$, for mask
# ($\theta = 0$), penalty ($e^b$) and each draw of score dropout; a factor on the own exponential is just a bias
# on the scores, and A1 holds for every bias.


# %%
@step("A5.jacobian")
def before_the_softmax_a1_holds() -> Step:
    r"""$\partial a'_{il}/\partial s_{ij} = a'_{il} (\delta_{lj} - a'_{ij})$: A1's first step with $a'$ for $a$"""

    def new_weight(token: Symbol) -> Expr:
        def raised(n: Symbol) -> Expr:
            return own_factor_weight(i, n) * exp(s[i, n])

        return raised(token) / over(m, raised(m))

    old_weight = exp(s[i, j]) / over(m, exp(s[i, m]))
    return Step(
        diff(new_weight(l), s[i, j]),
        new_weight(l) * (delta(l, j) - new_weight(j)),
        because="a factor on an exponential is a bias on its score",
        decide=equal_sums(),
        near_misses={"the old weight moves": new_weight(l) * (delta(l, j) - old_weight)},
    )


# %% [markdown]
# **After the softmax: no.** The smallest case with a row that still sums to one: two tokens $x = (0, 1)$ of width
# one, all weight matrices 1, dropout with $p = 1/2$, and row 0 loses its own key. By hand: both scores are 0, so
# $a_0 = (1/2, 1/2)$ and $a'_0 = (0, 1)$. A1 with $a'$ says: no weight on itself, no variance, so $J'_{00} = 0$.
# But the output is $o'_0 = 2 \cdot \frac{e^{x_0}}{e^{x_0^2} + e^{x_0}}$, and its slope at 0 is
# $2 \cdot \frac14 = \frac12$: $x_0$ still asks the question.


# %%
def by_brute_force(draw, tokens) -> Expr:
    """J'_00 by differentiation of the output, at exact tokens."""
    free = symbols(f"x:{len(tokens)}", real=True)
    return diff(dropped_output(draw, free), free[0]).subs(dict(zip(free, tokens, strict=True)))


def by_substitution(draw, tokens) -> Expr:
    """J'_00 by A1 with a' for a."""
    weights = scalar_weights(0, tokens, Rational(1))
    return scalar_jacobian([h * n for h, n in zip(draw, weights, strict=True)], 0, 0, tokens)


@step("A5.jacobian")
def two_tokens_refute_the_substitution() -> Step:
    r"""$x = (0, 1)$, $f = (0, 2)$: $J'_{00} = \frac12$, while A1 with $a'$ gives 0"""
    draw, tokens = (Rational(0), Rational(2)), (Rational(0), Rational(1))
    return Step(
        by_brute_force(draw, tokens),
        Rational(1, 2),
        because="the softmax underneath still moves with its old weights",
        near_misses={"A1 with a' for a": by_substitution(draw, tokens)},
        counterexample=True,
    )


@step("A5.jacobian")
def diagonal_dropout_refutes_it_too() -> Step:
    r"""Diagonal only, $x = (0, 1)$, $f = (0, 1)$: $J'_{00} = \frac14$, while A1 with $a'$ gives $\frac18$"""
    draw, tokens = (Rational(0), Rational(1)), (Rational(0), Rational(1))
    return Step(
        by_brute_force(draw, tokens),
        Rational(1, 4),
        because="half of the first case: the kept weight is not doubled",
        near_misses={"A1 with a' for a": by_substitution(draw, tokens)},
        counterexample=True,
    )


# %% [markdown]
# Even one token will do, if the row's sum may differ from one: $x = 1$, $p = 1/4$, the key is kept, $f = 4/3$.
# The softmax of one score is 1 whatever the score, so $o' = \frac43 x$ and $J' = \frac43$. A1 with $a' = \frac43$
# adds a key part $\frac43 (1 - \frac43)$ and a "variance" $\frac43 (1 - \frac43)^2$ that do not exist:
# $\frac43 - \frac{8}{27}$.


# %%
@step("A5.jacobian")
def one_token_refutes_the_substitution() -> Step:
    r"""$x = 1$, $f = \frac43$: $J' = \frac43$, while A1 with $a'$ gives $\frac43 - \frac{8}{27}$"""
    draw, tokens = (Rational(4, 3),), (Rational(1),)
    return Step(
        by_brute_force(draw, tokens),
        Rational(4, 3),
        because="a softmax of one score does not move",
        near_misses={"A1 with a' for a": by_substitution(draw, tokens)},
        counterexample=True,
    )


# %% [markdown]
# ## Does the mask suppress the query path?
#
# P1 says so of the full mask. The query part of row $i$ is $c\, \mathrm{Cov}_i(v, k) W_Q$, a covariance. A1's
# split says what a mask does to it. Solved for the masked row, in the old row's own terms:
#
# $$\mathrm{Cov}'_i = \underbrace{\frac{\mathrm{Cov}_i}{1 - a_{ii}}}_{\text{grows}}
#   - \underbrace{\frac{a_{ii}}{(1 - a_{ii})^2} (v_i - o_i)(k_i - \bar{k}_i)^T}_{\text{goes}}.$$
#
# What goes has rank one: the own key's distance from the mean. Everything else *grows* by $1/(1 - a_{ii})$.


# %%
def own_jump(place: Symbol = b, other: Symbol = g) -> Expr:
    """(v_i - o_i)(k_i - kbar_i)^T, one entry."""
    return (v[i, place] - output(i, place)) * (k[i, other] - mean_key(i, other))


def masked_covariance() -> Expr:
    """Cov'_i(v, k), one entry, from the masked weights."""

    def mean(feature) -> Expr:
        return over(l, reweighted(i, l, Rational(0)) * feature(l))

    return mean(lambda n: v[n, b] * k[n, g]) - mean(lambda n: v[n, b]) * mean(lambda n: k[n, g])


@step("A5.mask-query")
def what_goes_and_what_grows() -> Step:
    r"""$\mathrm{Cov}'_i = \mathrm{Cov}_i/(1 - a_{ii}) - a_{ii}/(1 - a_{ii})^2\, (v_i - o_i)(k_i - \bar{k}_i)^T$"""
    own, whole = a[i, i], covariance(v, k, i, b, g)
    return Step(
        masked_covariance(),
        whole / (1 - own) - own / (1 - own) ** 2 * own_jump(),
        because="the covariance split, solved for the row without its own key",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "nothing grows": whole - own / (1 - own) ** 2 * own_jump(),
            "nothing goes": whole / (1 - own),
            "the split's own factor": whole / (1 - own) - own * (1 - own) * own_jump(),
        },
    )


# %% [markdown]
# **When does it suppress?** Subtract the old covariance. The sign is decided by comparing the own key's jump with
# what there was. In one dimension with values and keys proportional to tokens: the mask lowers the query part
# **exactly when** $(x_i - \bar{x}_i)^2 > (1 - a_{ii})\, \mathrm{Var}_i(x)$, when the token is about a standard
# deviation or more from the mean that it sees. It raises the query part for every token nearer to the mean.


# %%
@step("A5.mask-query")
def when_the_mask_suppresses() -> Step:
    r"""$\mathrm{Cov}'_i - \mathrm{Cov}_i$ is $\frac{a_{ii}}{(1 - a_{ii})^2}$ times what decides its sign:

    $(1 - a_{ii})\, \mathrm{Cov}_i - (v_i - o_i)(k_i - \bar{k}_i)^T$
    """
    own, whole = a[i, i], covariance(v, k, i, b, g)
    return Step(
        masked_covariance() - whole,
        own / (1 - own) ** 2 * ((1 - own) * whole - own_jump()),
        because="what grows minus what goes",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"threshold Cov_i": own / (1 - own) ** 2 * (whole - own_jump())},
    )


# %% [markdown]
# **The counterexample**, by hand: $x = (0, 1, -1)$, width one, all weight matrices 1, row 0. Its query is 0, so
# all scores are 0 and $a_0 = (\frac13, \frac13, \frac13)$. The query part is the variance of $\{0, 1, -1\}$:
# $\frac23$. With the mask it is the variance of $\{1, -1\}$: $1$. The own token sits on the mean, so nothing
# goes, and everything grows by $1/(1 - a_{00}) = \frac32$.
#
# Below the query part is not taken from the formula. The query is a variable of its own, and the output is
# differentiated in it.


# %%
def query_derivative(tokens, factor: Expr) -> Expr:
    """d o_0 / d q_0 at q_0 = x_0, for tokens of width one and W_Q = W_K = W_V = 1: the query part of J_00."""
    asked = Symbol("q", real=True)
    raised = [(factor if n == 0 else 1) * exp(asked * t) for n, t in enumerate(tokens)]
    mean = sum(z * t for z, t in zip(raised, tokens, strict=True)) / sum(raised)
    return diff(mean, asked).subs(asked, tokens[0])


COUNTEREXAMPLE = (Rational(0), Rational(1), Rational(-1))


@step("A5.mask-query")
def mask_enlarges_the_query_part() -> Step:
    r"""$x = (0, 1, -1)$: without the mask $\frac23$, with it more"""
    unmasked = query_derivative(COUNTEREXAMPLE, Rational(1))
    masked = query_derivative(COUNTEREXAMPLE, Rational(0))
    return Step(
        unmasked,
        masked,
        because="the own token sits on the mean: it was the only one without variance",
        near_misses={"shrinks by 1 - a_ii": unmasked * Rational(2, 3), "stays": unmasked},
        decide=below,
        relation="<",
        counterexample=True,
    )


@step("A5.mask-query")
def growth_at_the_counterexample() -> Step:
    r"""$x = (0, 1, -1)$: the query part grows from $\frac23$ to $1$, by $\frac{1}{1 - a_{00}} = \frac32$"""
    unmasked = query_derivative(COUNTEREXAMPLE, Rational(1))
    return Step(
        Matrix([unmasked, query_derivative(COUNTEREXAMPLE, Rational(0))]),
        Matrix([Rational(2, 3), 1]),
        because="variances of {0, 1, -1} and of {1, -1}",
        near_misses={"the mask halves it": Matrix([Rational(2, 3), Rational(1, 3)])},
        counterexample=True,
    )


# %% [markdown]
# Three tokens are needed. With two, a masked row sees a single key, the covariance is 0 and the query path is
# silent.


# %%
@step("A5.mask-query")
def two_tokens_are_silenced() -> Step:
    r"""$T = 2$: with the mask the query part is 0, whatever the tokens"""
    tokens = symbols("x:2", real=True)
    return Step(
        query_derivative(tokens, Rational(0)),
        Rational(0),
        because="one key has no variance",
        near_misses={"as without the mask": query_derivative(tokens, Rational(1))},
    )


# %% [markdown]
# And there is no bound on the growth. Take tokens $(t, 0)$, $(0, 1)$, $(0, -1)$ in the plane, $c B = I$, and
# values that read the second coordinate only. Row 0 looks at itself with weight $e^{t^2}/(e^{t^2} + 2)$, but its
# own value is 0, the mean. The mask multiplies the query part by $1 + e^{t^2}/2$: the more the diagonal is a
# sink, the more the mask *adds*. (SparseBERT, Shi et al., 2102.12871, found that the diagonal can be masked
# without loss; it does not say what that does to the query path.)


# %%
@step("A5.mask-query")
def growth_without_bound() -> Step:
    r"""$x = (t, 0), (0, 1), (0, -1)$: the mask multiplies the query part by $1 + \frac12 e^{t^2}$"""
    reach, first, second = symbols("t q_1 q_2", real=True)
    tokens = [(reach, 0), (0, 1), (0, -1)]

    def part(factor: int) -> Expr:
        raised = [(factor if n == 0 else 1) * exp(first * y + second * z) for n, (y, z) in enumerate(tokens)]
        mean = sum(n * z for n, (_, z) in zip(raised, tokens, strict=True)) / sum(raised)
        return diff(mean, second).subs({first: reach, second: 0})

    return Step(
        part(0) / part(1),
        1 + exp(reach**2) / 2,
        because="1/(1 - a_00) with a_00 = e^{t^2}/(e^{t^2} + 2)",
        near_misses={"bounded by the three tokens' 3/2": Rational(3, 2)},
    )


# %% [markdown]
# ## How much does it matter as T grows?
#
# Under A3 (full attention, $x_i$ fixed, the other tokens iid) a weight is about $a_{ij} \approx w_{ij}/T$. First
# the exact effect of a factor $\theta$ on the own exponential, for every $T$. Write
# $\eta = (\theta - 1)\, a_{ii}$, which is of order $1/T$. The mean and the covariance of the row move by


# %%
ETA = (theta - 1) * a[i, i]


@step("A5.order")
def shift_of_the_output() -> Step:
    r"""$o'_i - o_i = \frac{\eta}{1 + \eta} (v_i - o_i)$, $\eta = (\theta - 1) a_{ii}$"""
    moved = v[i, b] - output(i, b)
    return Step(
        over(l, reweighted(i, l) * v[l, b]) - output(i, b),
        ETA / (1 + ETA) * moved,
        because="one weight changes, all are renormalised",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"not renormalised": ETA * moved},
    )


@step("A5.order")
def shift_of_the_covariance() -> Step:
    r"""$\mathrm{Cov}'_i = \mathrm{Cov}_i/(1 + \eta) + \eta/(1 + \eta)^2\, (v_i - o_i)(k_i - \bar{k}_i)^T$"""

    def mean(feature) -> Expr:
        return over(l, reweighted(i, l) * feature(l))

    whole = covariance(v, k, i, b, g)
    return Step(
        mean(lambda n: v[n, b] * k[n, g]) - mean(lambda n: v[n, b]) * mean(lambda n: k[n, g]),
        whole / (1 + ETA) + ETA / (1 + ETA) ** 2 * own_jump(),
        because="second moment minus product of means, both with the new weights",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"jump unscaled": whole / (1 + ETA) + ETA * own_jump()},
    )


# %% [markdown]
# Now let $T$ grow. A3 gives $a_{ij} = \rho\, w_{ij}/T$ with one number $\rho \to 1$ for all $j$, and $o_i$,
# $\mathrm{Cov}_i$ converge. Blocks are matrices; the steps below are about one entry, with scalars named as what
# they are an entry of:
#
# | symbol | entry of |
# |---|---|
# | $V$ | $W_V$ |
# | $y_i$, $y_j$ | $v_i - o_i$, $v_j - o_i$ |
# | $\upsilon$ | $u_i$ |
# | $K$ | $c\, \mathrm{Cov}_i(v, k) W_Q$ |
# | $D$ | $c\, (v_i - o_i)(k_i - \bar{k}_i)^T W_Q$ |


# %%
V, y_i, y_j, tilt, K, D = symbols("V y_i y_j upsilon K D", real=True)
w_i, w_j, rho = symbols("w_ii w_ij rho", positive=True)
OWN, OTHER = rho * w_i / T, rho * w_j / T  # a_ii and a_ij


def off_diagonal_entry(factor: Expr) -> Expr:
    """J'_ij for j != i, from the exact new weight and the exact shift of the output."""
    eta = (factor - 1) * OWN
    return OTHER / (1 + eta) * (V + (y_j - eta / (1 + eta) * y_i) * tilt)


def diagonal_entry(factor: Expr) -> Expr:
    """J'_ii without the residual, from the exact new weight, output and covariance."""
    eta = (factor - 1) * OWN
    seen = factor * OWN / (1 + eta) * (V + (y_i - eta / (1 + eta) * y_i) * tilt)
    return seen + K / (1 + eta) + eta / (1 + eta) ** 2 * D


def at_the_limit(expression: Expr) -> Expr:
    """T to infinity in a rational function of T: its value at 1/T = 0; then rho = 1, its own limit."""
    inverse = Symbol("1/T", positive=True)
    return cancel(expression.subs(T, 1 / inverse)).subs(inverse, 0).subs(rho, 1)


@step("A5.order")
def diagonal_block_moves_at_one_over_t() -> Step:
    r"""$T\, (J'_{ii} - J_{ii}) \to (\theta - 1)\, w_{ii}\, M_{ii}$ with

    $M_{ii} = W_V + (v_i - o_i) u_i^T + c\, ((v_i - o_i)(k_i - \bar{k}_i)^T - \mathrm{Cov}_i)\, W_Q$
    """
    change = (theta - 1) * w_i
    return Step(
        at_the_limit(T * (diagonal_entry(theta) - diagonal_entry(Rational(1)))),
        change * (V + y_i * tilt + D - K),
        because="all terms have the factor a_ii once",
        near_misses={
            "without the query part": change * (V + y_i * tilt),
            "growth of the rest forgotten": change * (V + y_i * tilt + D),
        },
    )


@step("A5.order")
def off_diagonal_blocks_move_at_one_over_t_squared() -> Step:
    r"""$T^2 (J'_{ij} - J_{ij}) \to (1 - \theta)\, w_{ii} w_{ij}\, M_{ij}$ for $j \ne i$, with

    $M_{ij} = W_V + (v_j - o_i) u_i^T + (v_i - o_i) u_i^T$
    """
    change = (1 - theta) * w_i * w_j
    return Step(
        at_the_limit(T**2 * (off_diagonal_entry(theta) - off_diagonal_entry(Rational(1)))),
        change * (V + (y_j + y_i) * tilt),
        because="the freed weight is of order 1/T, and each of the others gets its share of it",
        near_misses={
            "only the weight changes": change * (V + y_j * tilt),
            "sign": -change * (V + (y_j + y_i) * tilt),
        },
    )


# %% [markdown]
# Mask: $\theta = 0$. Penalty: $\theta = e^b$, so P1's $b = -0.1$ has about a tenth of the mask's effect. Score
# dropout: each draw is the old layer or the masked one, and its mean effect is $p$ times the mask's, at every $T$
# and so in the limit:


# %%
@step("A5.order")
def score_dropout_moves_p_times_as_much() -> Step:
    r"""Score dropout: $T\, (E J'_{ii} - J_{ii})$ and $T^2 (E J'_{ij} - J_{ij})$ tend to $p$ times the mask's limits"""
    mean_change = [
        at_the_limit(power * (over_two_draws(entry) - entry(Rational(1))))
        for power, entry in ((T, diagonal_entry), (T**2, off_diagonal_entry))
    ]
    masks = Matrix([-w_i * (V + y_i * tilt + D - K), w_i * w_j * (V + (y_j + y_i) * tilt)])
    return Step(
        Matrix(mean_change),
        drop * masks,
        because="two-point law",
        near_misses={"as much as the mask": masks, "with 1 - p": (1 - drop) * masks},
    )


# %% [markdown]
# The orders are exact wherever the bracket is not 0; for instance with $W_K = 0$, where $w = 1$, $u_i = 0$ and
# both brackets are $W_V$. Since $J_{ii}$ tends to a constant and $J_{ij}$ falls like $1/T$, each of the three
# changes every block by a *relative* $1/T$: whatever they do for short windows (P1 has $T = 12$), they do less
# and less of it for long ones.
#
# **Dropout after the softmax is different.** It touches all keys. We have
# $J'_{ij} - J_{ij} = \sum_l (f_{il} - 1)\, a_{il}\, C^l_{ij}$ with mean 0, so its mean square is
# $p/(1-p) \sum_l a_{il}^2 (C^l_{ij})^2$, entry by entry. Off the diagonal one key stands out, $l = j$:


# %%
def mean_square(row: Symbol, column: Symbol) -> Expr:
    """sum_l a_il^2 (C^l_ij)^2: the mean square of one entry of J' - J, over p/(1-p)."""
    return over(l, a[row, l] ** 2 * per_key(row, column, l) ** 2)


@step("A5.order")
def mean_square_off_the_diagonal() -> Step:
    r"""$\sum_l a_{il}^2 (C^l_{ij})^2$ for $j \ne i$ is $a_{ij}^2$ times

    $(V + v_j \upsilon)^2 - 2 a_{ij} (V + v_j \upsilon)\, v_j \upsilon + \upsilon^2 \sum_l a_{il}^2 v_l^2$
    """
    apart = 1 - delta(i, j)  # the statement is about j != i
    whole, pulled = W_V[b, r] + v[j, b] * u[i, r], v[j, b] * u[i, r]
    squares = over(l, a[i, l] ** 2 * v[l, b] ** 2)
    inner = whole**2 - 2 * a[i, j] * whole * pulled + u[i, r] ** 2 * squares
    return Step(
        apart * mean_square(i, j),
        apart * a[i, j] ** 2 * inner,
        because="square out; delta_lj picks one key",
        decide=equal_sums(),
        near_misses={"one key alone": apart * a[i, j] ** 2 * whole**2},
    )


# %% [markdown]
# Sums of squared weights are of order $1/T$. For any feature $\phi$ of a token, with $e_l = \exp(u_i \cdot x_l)$:


# %%
raised, feature = IndexedBase("e"), IndexedBase("phi")


@step("A5.order")
def squared_weights_are_a_ratio_of_means() -> Step:
    r"""$T \sum_l a_{il}^2 \phi_l = \frac{\frac1T \sum_l e_l^2 \phi_l}{\left( \frac1T \sum_l e_l \right)^2}$"""
    total = over(m, raised[m])
    normalised = over(l, (raised[l] / total) ** 2 * feature[l])
    plain_mean = over(l, raised[l] ** 2 * feature[l]) / T
    return Step(
        T * normalised,
        plain_mean * (T / total) ** 2,
        because="numerator and denominator are plain means over tokens",
        decide=equal_sums(),
        near_misses={"first power below": plain_mean * T / total},
    )


# %% [markdown]
# By the law of large numbers this tends to $E[w^2 \phi]$, $w = \exp(u_i \cdot x - \kappa(u_i))$, if
# $E\, e^{2 u_i \cdot x} \phi$ is finite. That is one assumption more than A3's, the same as for A3's rate. Its
# price: $E[w^2] = e^{\kappa(2 u_i) - 2 \kappa(u_i)}$, exponential in the scores. For Rademacher tokens of width
# one, one half each of $+1$ and $-1$:


# %%
@step("A5.order")
def squared_weights_of_rademacher_tokens() -> Step:
    r"""Tokens $\pm 1$, half each: $T \sum_l a_{il}^2 = e^{\kappa(2u) - 2\kappa(u)} = \frac{\cosh 2u}{\cosh^2 u}$"""
    z = Symbol("u", real=True)
    total = T / 2 * (exp(z) + exp(-z))
    price = cosh(2 * z) / cosh(z) ** 2
    return Step(
        T * (T / 2 * (exp(z) / total) ** 2 + T / 2 * (exp(-z) / total) ** 2),
        price.rewrite(exp),
        because="kappa(u) = log cosh u",
        near_misses={"uniform weights": Rational(1), "u for 2u": (cosh(z) / cosh(z) ** 2).rewrite(exp)},
    )


# %% [markdown]
# With $\sum_l a_{il}^2 v_l^2 = \sigma_{vv}/T$ and so on, $\sigma$ convergent, take the limits. Off the diagonal
# the mean square falls like $1/T^2$, as the block itself squared: **dropout after the softmax changes $J_{ij}$ by
# its own order, $1/T$**. The kept key gains, the dropped one loses all.


# %%
s_vv, s_vz, s_zz, v_j, z_i, v_i = symbols("sigma_vv sigma_vz sigma_zz v_j z_i v_i", real=True)


@step("A5.order")
def after_softmax_off_the_diagonal() -> Step:
    r"""$T^2\, E (J'_{ij} - J_{ij})^2 \to \frac{p}{1-p}\, w_{ij}^2\, (W_V + v_j u_i^T)^2$, entry by entry, $j \ne i$"""
    inner = (V + v_j * tilt) ** 2 - 2 * OTHER * (V + v_j * tilt) * v_j * tilt + tilt**2 * s_vv / T
    return Step(
        at_the_limit(T**2 * SPREAD * OTHER**2 * inner),
        SPREAD * w_j**2 * (V + v_j * tilt) ** 2,
        because="all other keys together are of lower order",
        near_misses={
            "A1's block for the key's own": SPREAD * w_j**2 * (V + y_j * tilt) ** 2,
            "order 1/T^2, as before the softmax": Rational(0),
        },
    )


# %% [markdown]
# On the diagonal all keys count. Write $z_l$ for an entry of $c\, W_Q^T (k_l - \bar{k}_i)$. Key $l$ brings
# $C^l_{ii} = v_l (z_l - a_{ii} \upsilon)$ and the own key $V + v_i \upsilon$ more. The sum over keys is of order
# $1/T$, so **$J_{ii}$ changes at $T^{-1/2}$**, far more than under any of P1's three.


# %%
z = IndexedBase("z")


@step("A5.order")
def what_each_key_brings_on_the_diagonal() -> Step:
    r"""$C^l_{ii} = v_l (z_l - a_{ii} \upsilon) + \delta_{li} (V + v_i \upsilon)$, one entry"""
    asked = c * over(g, (k[l, g] - mean_key(i, g)) * W_Q[g, r])
    all_keys = v[l, b] * (asked - a[i, i] * u[i, r])
    return Step(
        per_key(i, i, l),
        all_keys + delta(l, i) * (W_V[b, r] + v[i, b] * u[i, r]),
        because="C from above with j = i",
        decide=equal_sums(),
        near_misses={"own key like all others": all_keys},
    )


@step("A5.order")
def mean_square_on_the_diagonal() -> Step:
    r"""$\sum_l a_{il}^2 (C^l_{ii})^2$, squared out"""
    own, up = a[i, i], u[i, r]
    kept = W_V[b, r] + v[i, b] * up

    def weighted(power_of_z: int) -> Expr:
        return over(l, a[i, l] ** 2 * v[l, b] ** 2 * z[l, r] ** power_of_z)

    keys = weighted(2) - 2 * own * up * weighted(1) + own**2 * up**2 * weighted(0)
    per_own_key = v[l, b] * (z[l, r] - own * up) + delta(l, i) * kept
    return Step(
        over(l, a[i, l] ** 2 * per_own_key**2),
        keys + own**2 * (kept**2 + 2 * kept * v[i, b] * (z[i, r] - own * up)),
        because="square out; delta_li picks the own key",
        decide=equal_sums(),
        near_misses={"keys alone": keys, "own key alone": own**2 * kept**2},
    )


@step("A5.order")
def after_softmax_on_the_diagonal() -> Step:
    r"""$T\, E (J'_{ii} - J_{ii})^2 \to \frac{p}{1-p}\, E[w^2 v^2 z^2]$ with $z = c\, W_Q^T (k - \bar{k}_i)$"""
    kept = V + v_i * tilt
    keys = (s_zz - 2 * OWN * tilt * s_vz + OWN**2 * tilt**2 * s_vv) / T
    whole = keys + OWN**2 * (kept**2 + 2 * kept * v_i * (z_i - OWN * tilt))
    return Step(
        at_the_limit(T * SPREAD * whole),
        SPREAD * s_zz,
        because="only the keys' common query counts; the own key is one of T",
        near_misses={"own key too": SPREAD * (s_zz + w_i**2 * kept**2), "order 1/T": Rational(0)},
    )


# %% [markdown]
# Diagonal-only dropout after the softmax keeps one key of that sum, $l = i$. Its effect has P1's orders again:
# $1/T$ on $J_{ii}$ and $1/T^2$ elsewhere.


# %%
@step("A5.order")
def diagonal_only_after_softmax() -> Step:
    r"""Diagonal only: $T^2\, E (J'_{ii} - J_{ii})^2 \to \frac{p}{1-p}\, w_{ii}^2 (V + v_i (\upsilon + z_i))^2$ and

    $T^4\, E (J'_{ij} - J_{ij})^2 \to \frac{p}{1-p}\, w_{ii}^2 w_{ij}^2 v_i^2 \upsilon^2$ for $j \ne i$
    """
    on = OWN * (V + (1 - OWN) * v_i * tilt + v_i * z_i)
    off = -OWN * OTHER * v_i * tilt
    limits = [SPREAD * w_i**2 * (V + v_i * (tilt + z_i)) ** 2, SPREAD * (w_i * w_j * v_i * tilt) ** 2]
    return Step(
        Matrix([at_the_limit(T**2 * SPREAD * on**2), at_the_limit(T**4 * SPREAD * off**2)]),
        Matrix(limits),
        because="one key, a_ii C^i_ij",
        near_misses={"as all weights": Matrix([limits[0], SPREAD * w_j**2 * (V + v_j * tilt) ** 2])},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("a5_regularisers"))
