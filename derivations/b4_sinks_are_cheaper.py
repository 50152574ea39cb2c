r"""B4. Are sinks cheaper than diagonals?

P2 claims: sinks are cheaper. It depends on the norm and on the geometry; this note says how.

Our statements, for the family x_i = t f + e_i (i = 1..n), x_0 = t f + z e_0 with f, e_0, .., e_n orthonormal, n >= 2,
G = g_q g_k, g_q^2 = t^2 + 1/n, g_k^2 = z^2 + 1/n, margin m:

    the sink costs m/G in every norm; the diagonal with x_0 a key m(n - 1 + 1/(nG)) in the nuclear norm,
        m sqrt(n - 1 + 1/(nG)^2) in the Frobenius norm, m in the spectral norm; without x_0 (n-1)m, sqrt(n-1) m, m
    the sink is the cheaper iff G > 1/n, G > sqrt(n+1)/n, G > 1
    with x_0 a query too: in the nuclear norm the sink always wins; orthonormal tokens win, draw, lose by sqrt(n)
    outside the family the sink can lose in every norm at once
    value side: making W_V x_0 = 0 costs ||W_V x_0||/||x_0||, or over dist(x_0, span{x_j}) if the rest must stay
    leakage e needs a margin of log((1-e)/e), and log(n(1-e)/e) is enough
    training with weight decay ends at the price: closed minimum, closed minimiser, closed threshold

Steps of this note follow that order.
"""

# %% [markdown]
# # B4. Are sinks cheaper?
#
# An attention head that should not act has two ways to stay out: a *sink*, where every query looks at $x_0$,
# whose value is zero, and a *diagonal*, where every query looks at itself and the tokens are not mixed.
# P2 says that sinks are the cheaper way. Note B2 gives the price of a
# sink, note B3 that of a diagonal, both as the least norm of $B$ that keeps a score margin $m$. Here they
# meet.
#
# The comparison has an answer only once one says **which norm** counts. Weight decay on $W_Q$ and $W_K$ is
# the nuclear norm of $B$ (B2.weight-decay). Decay of $B$ itself would be Frobenius. The spectral norm bounds
# the largest score that unit tokens can have.
#
# **A family with two knobs.** Let $f, e_0, e_1, \dots, e_n$ be orthonormal and
#
# $$x_i = t f + e_i \quad (i = 1, \dots, n), \qquad x_0 = t f + z e_0.$$
#
# The knob $t$ is a direction that all tokens share, such as a bias or a mean makes; the
# knob $z$ says how far the sink is from the rest. Orthonormal tokens are $t = 0$, $z = 1$. The
# number of tokens besides the sink is $n$; in formulas with symbolic ranges it is printed $T$, and these
# tokens are counted from 0.

# %%
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations

from sympy import (
    Add,
    Expr,
    IndexedBase,
    Integer,
    Matrix,
    Rational,
    Symbol,
    diff,
    exp,
    eye,
    log,
    ones,
    sqrt,
)

from derivations.decide import below, equal_sums
from derivations.notation import W_V, T, a, b, delta, i, j, l, over, p, r
from derivations.steps import Step, step
from derivations.summation import RowStochastic

n = T
t, z, G = Symbol("t", nonnegative=True), Symbol("z", nonnegative=True), Symbol("G", positive=True)
margin = Symbol("m", positive=True)
rows_sum_to_one = RowStochastic(a, T, T)
g = IndexedBase("g")


@dataclass(frozen=True)
class Vector:
    """A vector in the basis f, e_0, (e_1 .. e_n): two entries, and the rest as a function of the place."""

    f: Expr
    e0: Expr
    rest: Callable[[Symbol], Expr]

    def __add__(self, other: "Vector") -> "Vector":
        return Vector(self.f + other.f, self.e0 + other.e0, lambda place: self.rest(place) + other.rest(place))

    def __sub__(self, other: "Vector") -> "Vector":
        return self + other.times(Integer(-1))

    def times(self, factor: Expr) -> "Vector":
        """The vector scaled."""
        return Vector(factor * self.f, factor * self.e0, lambda place: factor * self.rest(place))


def dot(one: Vector, other: Vector) -> Expr:
    """The inner product."""
    return one.f * other.f + one.e0 * other.e0 + over(p, one.rest(p) * other.rest(p), n)


def token(place: Symbol) -> Vector:
    """x_i = t f + e_i."""
    return Vector(t, Integer(0), lambda entry: delta(place, entry))


sink = Vector(t, z, lambda entry: Integer(0))
mean_token = Vector(t, Integer(0), lambda entry: 1 / n)  # the mean of x_1 .. x_n
to_sink = sink - mean_token
G_q2, G_k2 = t**2 + 1 / n, z**2 + 1 / n  # g_q^2 and g_k^2


def generic(name: str) -> Vector:
    """A vector of symbols, to write a matrix as its bilinear form."""
    entries = IndexedBase(name)
    return Vector(Symbol(f"{name}_f"), Symbol(f"{name}_0"), lambda entry: entries[entry])


# %% [markdown]
# ## The two hull distances
#
# A point of the hull of the tokens is $\sum_i w_i x_i$ with weights that sum to one. Its square length is
# least for equal weights. So the point of the hull nearest to 0, and also the one nearest to $x_0$, is the
# mean token $\mu = t f + \frac1n \sum_i e_i$, and $g_q^2 = t^2 + \frac1n$, $g_k^2 = z^2 + \frac1n$.


# %%
def mixture(row: Symbol) -> Vector:
    """A point of the hull of x_1 .. x_n; the weights are a row of a."""
    return Vector(t * over(l, a[row, l]), Integer(0), lambda entry: over(l, a[row, l] * delta(l, entry)))


unevenness = over(l, (a[i, l] - 1 / n) ** 2)


@step("B4.prices")
def distance_of_the_queries() -> Step:
    r"""$\|\sum_l w_l x_l\|^2 = t^2 + \frac1n + \sum_l (w_l - \frac1n)^2$, so $g_q^2 = t^2 + \frac1n$"""
    return Step(
        dot(mixture(i), mixture(i)),
        G_q2 + unevenness,
        because="the weights sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"tokens of a simplex without 1/n": t**2 + unevenness, "1/n once more": G_q2 + 1 / n + unevenness},
    )


@step("B4.prices")
def distance_of_the_sink() -> Step:
    r"""$\|x_0 - \sum_l w_l x_l\|^2 = z^2 + \frac1n + \sum_l (w_l - \frac1n)^2$: the shared direction drops out"""
    away = sink - mixture(i)
    return Step(
        dot(away, away),
        G_k2 + unevenness,
        because="x_0 and the tokens have the same part along f",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"with the shared direction": t**2 + G_k2 + unevenness},
    )


# %% [markdown]
# ## The price of the sink
#
# B2 gives $m/(g_q g_k)$. In the family one sees both sides at once. **From above:** the rank-1 matrix
# $B = m\, \mu (x_0 - \mu)^T/G^2$ has norm $m\, g_q g_k/G^2 = m/G$ in every norm that is 1 on unit rank-1
# matrices, and **every** margin is exactly $m$. **From below:** adding all $n^2$ inequalities
# $x_i^T B (x_0 - x_j) \ge m$ gives $n^2 \langle \mu (x_0 - \mu)^T, B \rangle \ge n^2 m$, and the left side is
# at most $n^2 G$ times the norm of $B$, since the dual norm of a rank-1 matrix is the product of its two
# lengths.


# %%
@step("B4.prices")
def sink_margins() -> Step:
    r"""$x_i^T B (x_0 - x_j) = m$ for all $i, j$, where $B = m\, \mu (x_0 - \mu)^T/(g_q^2 g_k^2)$"""
    before = margin / (G_q2 * G_k2) * dot(token(i), mean_token) * dot(to_sink, sink - token(j))
    return Step(
        before,
        margin,
        because="every token meets the mean at g_q^2, every difference meets x_0 - mean at g_k^2",
        decide=equal_sums(),
        near_misses={"own key easier": margin * (1 + delta(i, j)), "halved": margin / 2},
    )


@step("B4.prices")
def sink_multipliers() -> Step:
    r"""$\sum_{ij} x_i (x_0 - x_j)^T = n^2 \mu (x_0 - \mu)^T$, as bilinear forms"""
    left, right = generic("y"), generic("w")
    return Step(
        over(i, over(j, dot(left, token(i)) * dot(sink - token(j), right))),
        n**2 * dot(left, mean_token) * dot(to_sink, right),
        because="the sum of products is the product of the sums",
        decide=equal_sums(),
        near_misses={"n instead of n^2": n * dot(left, mean_token) * dot(to_sink, right)},
    )


# %% [markdown]
# ## The price of the diagonal
#
# **Symmetry first.** Permuting $e_1, \dots, e_n$ permutes the tokens, so it permutes the constraints and
# keeps every norm. The average of $B$ over all permutations is no dearer than $B$ (norms are convex) and
# keeps the margins (they are linear). So it is enough to look at averaged matrices. On $e_1, \dots, e_n$ an
# averaged matrix has one number on its diagonal and one off it: it is a multiple of the projection
# $P = I - \frac1n 11^T$ plus a part that sees only $f$, $e_0$ and $\sum_i e_i$. On three tokens, over all six
# permutations:


# %%
@step("B4.prices")
def averaging_over_permutations() -> Step:
    r"""$n = 3$: the mean of $\Pi B \Pi^T$ is $\frac{\mathrm{tr} PB}{2} P + \frac{s}{9} 11^T$, $s$ the sum of entries"""
    B = Matrix(3, 3, lambda row, column: Symbol(f"B_{row}{column}"))
    total = Matrix.zeros(3, 3)
    for order in permutations(range(3)):
        moved = eye(3).extract(list(order), [0, 1, 2])
        total += moved * B * moved.T
    P = eye(3) - ones(3, 3) / 3
    after = (P * B).trace() / 2 * P + Add(*B) / 9 * ones(3, 3)
    return Step(
        total / 6,
        after,
        because="all diagonal entries become one number, all others another",
        near_misses={"trace of B": B.trace() / 2 * P + Add(*B) / 9 * ones(3, 3)},
    )


# %% [markdown]
# So let $B = \alpha P + \beta\, \mu (\mu - x_0)^T$: a part that tells the tokens apart, and one that keeps
# them from $x_0$. The first gives each query the margin $\alpha$ over the other tokens. Over $x_0$ both work
# together: $\alpha \frac{n-1}{n} + \beta g_q^2 g_k^2$. With $\alpha = m$ and
# $\beta = \frac{m}{n g_q^2 g_k^2}$ all margins are exactly $m$.


# %%
def centred_product(one: Vector, other: Vector) -> Expr:
    """one^T P other, P the projection of e_1 .. e_n onto vectors that sum to zero."""
    return over(p, one.rest(p) * other.rest(p), n) - over(p, one.rest(p), n) * over(p, other.rest(p), n) / n


from_sink = mean_token - sink


def diagonal_form(one: Vector, other: Vector, toward_sink: Expr) -> Expr:
    """one^T (m P + toward_sink mu (mu - x_0)^T) other."""
    return margin * centred_product(one, other) + toward_sink * dot(one, mean_token) * dot(from_sink, other)


share = margin / (n * G_q2 * G_k2)


@step("B4.prices")
def diagonal_margins_over_tokens() -> Step:
    r"""$x_i^T B (x_i - x_j) = m (1 - \delta_{ij})$: the part that faces $x_0$ does not see $x_i - x_j$"""
    return Step(
        diagonal_form(token(i), token(i) - token(j), share),
        margin * (1 - delta(i, j)),
        because="P is the identity on differences of tokens",
        decide=equal_sums(),
        near_misses={"(n-1)/n of it": margin * (1 - delta(i, j)) * (n - 1) / n},
    )


@step("B4.prices")
def diagonal_margins_over_the_sink() -> Step:
    r"""$x_i^T B (x_i - x_0) = m \frac{n-1}{n} + \frac{m}{n} = m$"""
    return Step(
        diagonal_form(token(i), token(i) - sink, share),
        margin,
        because="a token's part outside the mean has square length (n-1)/n",
        decide=equal_sums(),
        near_misses={"without the part that faces x_0": margin * (n - 1) / n},
    )


# %% [markdown]
# The singular values of this $B$ can be read off. $P$ is a projection of rank $n - 1$, and neither $\mu$ nor
# $\mu - x_0$ has a part in its range. So $B$ has the singular value $m$, $n - 1$ times, and
# $\frac{m}{n g_q^2 g_k^2} \cdot g_q g_k = \frac{m}{nG}$ once. Its nuclear norm is $m (n - 1 + \frac{1}{nG})$,
# its Frobenius norm $m \sqrt{n - 1 + \frac{1}{(nG)^2}}$, its spectral norm $m$, because $nG \ge 1$.


# %%
@step("B4.prices")
def projection() -> Step:
    r"""$P^2 = P$"""
    return Step(
        over(l, (delta(i, l) - 1 / n) * (delta(l, j) - 1 / n)),
        delta(i, j) - 1 / n,
        because="1^T 1 = n",
        decide=equal_sums(),
        near_misses={"11^T/n itself": 1 / n},
    )


@step("B4.prices")
def rank_of_the_projection() -> Step:
    r"""$\mathrm{tr} P = n - 1$, the rank of a projection"""
    return Step(
        over(i, delta(i, i) - 1 / n),
        n - 1,
        because="n diagonal entries 1 - 1/n",
        decide=equal_sums(),
        near_misses={"n": n},
    )


@step("B4.prices")
def parts_do_not_meet() -> Step:
    r"""$y^T P \mu = 0$ and $y^T P (\mu - x_0) = 0$ for every $y$"""
    y = generic("y")
    both = centred_product(y, mean_token) ** 2 + centred_product(y, from_sink) ** 2
    return Step(
        both,
        Integer(0),
        because="mu and x_0 have equal entries on e_1 .. e_n",
        decide=equal_sums(),
        near_misses={"a single token": centred_product(y, token(i)) ** 2},
    )


# %% [markdown]
# **From below.** Take multipliers: $\alpha \ge 0$ on each pair of tokens, $\beta \ge 0$ on each pair of a
# token and $x_0$. Their matrix is again of the form above.


# %%
alpha, beta, gamma = Symbol("alpha"), Symbol("beta"), Symbol("gamma")


def diagonal_multipliers(left: Vector, right: Vector) -> Expr:
    """y^T [sum_ij alpha x_i (x_i - x_j)^T + sum_i beta x_i (x_i - x_0)^T] w."""
    pairs = over(i, over(j, dot(left, token(i)) * dot(token(i) - token(j), right)))
    return alpha * pairs + beta * over(i, dot(left, token(i)) * dot(token(i) - sink, right))


@step("B4.prices")
def diagonal_multipliers_matrix() -> Step:
    r"""the multipliers' matrix $\sum_{ij} \alpha\, x_i (x_i - x_j)^T + \sum_i \beta\, x_i (x_i - x_0)^T$

    It is $(n\alpha + \beta) P + n\beta\, \mu (\mu - x_0)^T$.
    """
    y, w = generic("y"), generic("w")
    rank_one = dot(y, mean_token) * dot(from_sink, w)
    return Step(
        diagonal_multipliers(y, w),
        (n * alpha + beta) * centred_product(y, w) + n * beta * rank_one,
        because="split each token into the mean and the rest",
        decide=equal_sums(),
        near_misses={"beta not in front of P": n * alpha * centred_product(y, w) + n * beta * rank_one},
    )


# %% [markdown]
# Its singular values are $u = n\alpha + \beta$ ($n - 1$ times) and $w = n\beta G$. The multipliers prove the
# price $m (n(n-1)\alpha + n\beta)$ over the dual norm of that matrix (B3.program). In terms of $u$ and $w$
# their sum is $(n-1) u + \frac{w}{nG}$, and one chooses the best:
#
# * nuclear price (dual norm: the larger of $u$ and $w$): $u = w = 1$;
# * Frobenius price: $u$ and $w$ in proportion $1 : \frac{1}{nG}$, which is where Cauchy's inequality is tight;
# * spectral price (dual norm: $(n-1) u + w$): $w = 0$.
#
# In each case $\beta = \frac{w}{nG} \le u$, so $\alpha \ge 0$, because $nG \ge 1$. Each bound equals the norm
# of $B$ above: the prices are proven.


# %%
def multipliers_value(u: Expr, w: Expr) -> Expr:
    """The sum of all multipliers, those with singular values u and w."""
    on_sink = w / (n * G)
    on_tokens = (u - on_sink) / n
    return n * (n - 1) * on_tokens + n * on_sink


@step("B4.prices")
def nuclear_price() -> Step:
    r"""$u = w = 1$: the multipliers sum to $n - 1 + \frac{1}{nG}$"""
    return Step(
        multipliers_value(Integer(1), Integer(1)),
        n - 1 + 1 / (n * G),
        because="alpha = (u - beta)/n, beta = w/(nG)",
        near_misses={"1/G": n - 1 + 1 / G, "n": n + 1 / (n * G)},
    )


@step("B4.prices")
def frobenius_price() -> Step:
    r"""$w = \frac{u}{nG}$: (sum of multipliers)$^2$ over the square Frobenius norm is $n - 1 + \frac{1}{(nG)^2}$"""
    u, w = Integer(1), 1 / (n * G)
    return Step(
        multipliers_value(u, w) ** 2 / ((n - 1) * u**2 + w**2),
        n - 1 + 1 / (n * G) ** 2,
        because="equality in Cauchy's inequality",
        near_misses={"nuclear price": n - 1 + 1 / (n * G), "with 1/G^2": n - 1 + 1 / G**2},
    )


@step("B4.prices")
def spectral_price() -> Step:
    r"""$w = 0$: the sum of multipliers over $(n - 1) u + w$ is 1"""
    u = Symbol("u", positive=True)
    return Step(
        multipliers_value(u, Integer(0)) / ((n - 1) * u),
        Integer(1),
        because="only pairs of tokens carry weight",
        near_misses={"n - 1": n - 1},
    )


@step("B4.prices")
def distances_are_at_least_those_of_the_simplex() -> Step:
    r"""$(nG)^2 - 1 = n^2 t^2 z^2 + n t^2 + n z^2 \ge 0$, with equality iff $t = z = 0$"""
    return Step(
        n**2 * G_q2 * G_k2 - 1,
        n**2 * t**2 * z**2 + n * t**2 + n * z**2,
        because="multiply out",
        near_misses={"product term dropped": n * t**2 + n * z**2},
    )


# %% [markdown]
# **Without $x_0$ as a key** only the multipliers on pairs of tokens exist, $\beta = 0$, and $B = m P$ keeps
# all margins: the prices are $(n-1) m$, $\sqrt{n-1}\, m$, $m$, whatever $t$ is. These are B3.simplex, since
# the scatter matrix of the family is $P$.


# %%
@step("B4.prices")
def without_the_sink_as_a_key() -> Step:
    r"""$\sum_i (x_i - \mu)(x_i - \mu)^T = P$: B3's bounds are $(n-1)m/1$, $(n-1)m/\sqrt{n-1}$, $(n-1)m/(n-1)$"""
    y, w = generic("y"), generic("w")
    return Step(
        over(i, dot(y, token(i) - mean_token) * dot(token(i) - mean_token, w)),
        centred_product(y, w),
        because="x_i - mu = P e_i",
        decide=equal_sums(),
        near_misses={"over n": centred_product(y, w) / n},
    )


# %% [markdown]
# ## Who is cheaper, where
#
# Subtract the prices. Each difference has one factor that decides its sign ($n \ge 2$; for a single token
# besides the sink the two patterns mirror one another and cost the same).


# %%
sink_unit = 1 / G


@step("B4.thresholds")
def nuclear_threshold() -> Step:
    r"""nuclear: diagonal $-$ sink $= \frac{n-1}{nG} (nG - 1)$, positive unless $t = z = 0$"""
    return Step(
        multipliers_value(Integer(1), Integer(1)) - sink_unit,
        (n - 1) / (n * G) * (n * G - 1),
        because="take out the factor n - 1",
        near_misses={"threshold 1": (n - 1) / (n * G) * (G - 1), "n for n - 1": (n * G - 1) / G},
    )


@step("B4.thresholds")
def frobenius_threshold() -> Step:
    r"""Frobenius: diagonal$^2 -$ sink$^2 = \frac{n-1}{(nG)^2} \left(n^2 G^2 - (n+1)\right)$"""
    diagonal = multipliers_value(Integer(1), 1 / (n * G)) ** 2 / (n - 1 + 1 / (n * G) ** 2)
    return Step(
        diagonal - sink_unit**2,
        (n - 1) / (n * G) ** 2 * (n**2 * G**2 - (n + 1)),
        because="1 - 1/n^2 = (n-1)(n+1)/n^2",
        near_misses={"n for n + 1": (n - 1) / (n * G) ** 2 * (n**2 * G**2 - n)},
    )


@step("B4.thresholds")
def frobenius_line_in_the_knobs() -> Step:
    r"""the Frobenius line is $n t^2 z^2 + t^2 + z^2 = 1$"""
    return Step(
        n**2 * G_q2 * G_k2 - (n + 1),
        n * (n * t**2 * z**2 + t**2 + z**2 - 1),
        because="multiply out",
        near_misses={"circle": n * (t**2 + z**2 - 1)},
    )


@step("B4.thresholds")
def orthonormal_tokens_are_level() -> Step:
    r"""$t = 0$, $z = 1$: $G^2 = \frac{n+1}{n^2}$, exactly on the Frobenius line"""
    return Step(
        (G_q2 * G_k2).subs({t: 0, z: 1}),
        (n + 1) / n**2,
        because="g_q^2 = 1/n, g_k^2 = 1 + 1/n",
        near_misses={"1/n": 1 / n},
    )


@step("B4.thresholds")
def spectral_line_in_the_knobs() -> Step:
    r"""spectral: the sink wins iff $G^2 > 1$, that is $(t^2 + \frac1n)(z^2 + \frac1n) > 1$"""
    return Step(
        n**2 * (G_q2 * G_k2 - 1),
        n**2 * t**2 * z**2 + n * (t**2 + z**2) + 1 - n**2,
        because="the diagonal costs m, the sink m/G",
        near_misses={"Frobenius line": n**2 * G_q2 * G_k2 - (n + 1)},
    )


@step("B4.thresholds")
def orthonormal_sink_is_dearer_in_the_spectral_norm() -> Step:
    r"""$n = 2$, orthonormal: diagonal $1 <$ sink $\frac{2}{\sqrt 3}$ in the spectral norm"""
    return Step(
        Integer(1),
        1 / sqrt((G_q2 * G_k2).subs({t: 0, z: 1, n: 2})),
        because="G = sqrt(3)/2",
        decide=below,
        relation="<",
        near_misses={"sink 3/4": sqrt(3) / 2},
    )


@step("B4.thresholds")
def thresholds_without_the_sink_as_a_key() -> Step:
    r"""against $(n-1)$, $\sqrt{n-1}$: differences $\frac{(n-1)G - 1}{G}$, and of squares $\frac{(n-1)G^2 - 1}{G^2}$"""
    return Step(
        Matrix([(n - 1) - sink_unit, (n - 1) - sink_unit**2]),
        Matrix([((n - 1) * G - 1) / G, ((n - 1) * G**2 - 1) / G**2]),
        because="common denominator",
        near_misses={"n for n - 1": Matrix([(n * G - 1) / G, (n * G**2 - 1) / G**2])},
    )


# %% [markdown]
# What makes sinks cheap is a shared direction ($t$) and a sink far from the rest ($z$): both raise $G$, and
# the diagonal hardly profits. Scaling **all** tokens by $s$ scales every score by $s^2$, so both prices fall
# by $s^2$ and nothing changes between them.
#
# ## The sink token as a query
#
# So far only $x_1, \dots, x_n$ ask. Let $x_0$ ask too. The sink pattern gets $n$ more constraints,
# $x_0^T B (x_0 - x_j) \ge m$. B2's argument goes through with the hull of all $n + 1$ queries, and its
# distance from 0 is smaller. Let $w_0$ be the weight of $x_0$ and $(1 - w_0) w_l$ the others.


# %%
@step("B4.all-queries")
def distance_of_all_queries() -> Step:
    r"""$\|w_0 x_0 + (1 - w_0) \sum_l w_l x_l\|^2 - t^2 - \frac{z^2}{1 + n z^2}$ is a sum of squares"""
    w0 = Symbol("w_0", real=True)
    mixed = sink.times(w0) + mixture(i).times(1 - w0)
    least = t**2 + z**2 / (1 + n * z**2)
    excess = G_k2 * (w0 - 1 / (1 + n * z**2)) ** 2 + (1 - w0) ** 2 * unevenness
    return Step(
        dot(mixed, mixed),
        least + excess,
        because="complete the square in w_0",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"distance without x_0": G_q2 + excess},
    )


all_G2 = t**2 * G_k2 + z**2 / n  # G^2 with x_0 a query
all_sink = sqrt(all_G2)


@step("B4.all-queries")
def product_of_distances() -> Step:
    r"""$G^2 = (t^2 + \frac{z^2}{1 + n z^2})(z^2 + \frac1n) = t^2 (z^2 + \frac1n) + \frac{z^2}{n}$"""
    return Step(
        (t**2 + z**2 / (1 + n * z**2)) * G_k2,
        all_G2,
        because="1 + n z^2 = n (z^2 + 1/n)",
        near_misses={"G without x_0 a query": G_q2 * G_k2},
    )


# %% [markdown]
# The diagonal gets the constraints $x_0^T B (x_0 - x_j) \ge m$ as well. Now
# $B = m P + m\, u (\mu - x_0)^T/g_k^2$ with $u = \lambda \mu - \nu x_0$ chosen so that
# $u \cdot x_i = \frac1n$ and $u \cdot x_0 = -1$:
#
# $$\lambda = \frac{t^2 + (t^2 + z^2)/n}{G^2}, \qquad \nu = \frac{t^2 + 1/n + t^2/n}{G^2}.$$


# %%
lam = ((t**2 + z**2) / n + t**2) / all_G2
nu = (t**2 + 1 / n + t**2 / n) / all_G2
facing = mean_token.times(lam) - sink.times(nu)  # the vector u


def all_queries_form(one: Vector, other: Vector) -> Expr:
    """one^T (P + u (mu - x_0)^T/g_k^2) other: the attaining matrix for margin 1."""
    return centred_product(one, other) + dot(one, facing) * dot(from_sink, other) / G_k2


@step("B4.all-queries")
def token_margins_over_the_sink() -> Step:
    r"""$x_i^T B (x_i - x_0) = m$ for each token"""
    return Step(
        all_queries_form(token(i), token(i) - sink),
        Integer(1),
        because="u . x_i = 1/n",
        decide=equal_sums(),
        near_misses={"without P": Integer(1) / n},
    )


@step("B4.all-queries")
def sink_margins_over_tokens() -> Step:
    r"""$x_0^T B (x_0 - x_j) = m$ for each token $j$"""
    return Step(
        all_queries_form(sink, sink - token(j)),
        Integer(1),
        because="u . x_0 = -1, and P does not see x_0",
        decide=equal_sums(),
        near_misses={"sign": Integer(-1)},
    )


@step("B4.all-queries")
def multipliers_of_all_queries() -> Step:
    r"""the multipliers' matrix is $(n\alpha + \beta) P + n (\beta \mu - \gamma x_0)(\mu - x_0)^T$

    Here $\gamma$ is the multiplier of each $x_0 (x_0 - x_j)^T$.
    """
    y, w = generic("y"), generic("w")
    asked = over(j, dot(y, sink) * dot(sink - token(j), w))
    facing_part = beta * dot(y, mean_token) - gamma * dot(y, sink)
    return Step(
        diagonal_multipliers(y, w) + gamma * asked,
        (n * alpha + beta) * centred_product(y, w) + n * facing_part * dot(from_sink, w),
        because="the differences x_0 - x_j add up to n (x_0 - mu)",
        decide=equal_sums(),
        near_misses={
            "gamma in front of P": (n * alpha + gamma) * centred_product(y, w) + n * facing_part * dot(from_sink, w)
        },
    )


# %% [markdown]
# Let $R = \|u\|/g_k$; it is the one singular value of $B/m$ besides the $n - 1$ ones. **Nuclear price.**
# Choose $n\alpha + \beta = 1$, $\beta = \frac{\lambda}{n \|u\| g_k}$, $\gamma = \frac{\nu}{n \|u\| g_k}$: the
# matrix becomes $P + \hat u \widehat{(\mu - x_0)}^T$ with unit vectors, of spectral norm 1, and the
# multipliers sum to
#
# $$n (n-1) \alpha + n \beta + n \gamma = (n - 1) + \beta + n \gamma
# = n - 1 + \frac{\lambda/n + \nu}{\|u\| g_k} = n - 1 + R,$$
#
# because $\lambda/n + \nu = u \cdot u$. And $\alpha \ge 0$, as $\beta \le 1$: the next step shows
# $\lambda^2 \le n \|u\|^2 \le n^2 \|u\|^2 g_k^2$. So with $x_0$ a query the nuclear price of the diagonal is
# $m (n - 1 + R)$ for all $t$ and $z$.


# %%
@step("B4.all-queries")
def length_of_u() -> Step:
    r"""$\|u\|^2 = \frac{\lambda}{n} + \nu$"""
    return Step(
        dot(facing, facing),
        lam / n + nu,
        because="u . u = lambda u . mu - nu u . x_0",
        decide=equal_sums(),
        near_misses={"lambda + nu": lam + nu},
    )


@step("B4.all-queries")
def multipliers_stay_nonnegative() -> Step:
    r"""$n \|u\|^2 - \lambda^2 = n (\lambda - \nu)^2 t^2 + n \nu^2 z^2 \ge 0$"""
    return Step(
        n * dot(facing, facing) - lam**2,
        n * (lam - nu) ** 2 * t**2 + n * nu**2 * z**2,
        because="the entries of u on f, e_0 and the rest",
        decide=equal_sums(),
        near_misses={"e_0 left out": n * (lam - nu) ** 2 * t**2},
    )


@step("B4.all-queries")
def orthonormal_tokens() -> Step:
    r"""$t = 0$, $z = 1$: $G^2 = \frac1n$ and $R^2 = 1$: sink $\sqrt n\, m$; diagonal $n m$, $\sqrt n\, m$, $m$"""
    square = (lam / n + nu) / G_k2
    return Step(
        Matrix([all_G2, square]).subs({t: 0, z: 1}),
        Matrix([1 / n, 1]),
        because="n + 1 orthonormal tokens: the diagonal's B is the projection of rank n",
        near_misses={"G^2 of the other variant": Matrix([(n + 1) / n**2, 1])},
    )


# %% [markdown]
# So $n + 1$ orthonormal tokens, each asking and each answering: a win of the sink by $\sqrt n$ in the nuclear
# norm, a draw in the Frobenius norm, a loss by $\sqrt n$ in the spectral norm.
#
# **In the nuclear norm the sink wins everywhere.** We need $\frac1G - R < n - 1$. Now $\|u\|^2 G^2 = N$ with
# $N = t^2 (1 + \frac1n)^2 + \frac{z^2}{n^2} + \frac1n$, so $\frac1G - R = \frac{g_k - \sqrt N}{g_k G}$. Where
# $N \ge g_k^2$ this is not positive. Elsewhere it is at most $\frac{g_k^2 - N}{g_k^2 G}$; the numerator is at
# most $(1 - \frac{1}{n^2}) z^2$, the denominator at least $\frac{2 z^2}{n}$, so the quotient is at most
# $\frac{n^2 - 1}{2n}$, which is below $n - 1$ for $n \ge 2$. Three identities:


# %%
N = t**2 * (1 + 1 / n) ** 2 + z**2 / n**2 + 1 / n


@step("B4.all-queries")
def square_of_u_cleared() -> Step:
    r"""$G^2 \|u\|^2 = N$, and $g_k^2 - N = (1 - \frac{1}{n^2}) z^2 - (1 + \frac1n)^2 t^2$"""
    return Step(
        Matrix([all_G2 * (lam / n + nu), G_k2 - N]),
        Matrix([N, (1 - 1 / n**2) * z**2 - (1 + 1 / n) ** 2 * t**2]),
        because="multiply out",
        near_misses={"1 - 1/n": Matrix([N, (1 - 1 / n) * z**2 - (1 + 1 / n) ** 2 * t**2])},
    )


@step("B4.all-queries")
def denominator_from_below() -> Step:
    r"""$g_k^4 G^2 - \frac{4 z^4}{n^2} = g_k^6 t^2 + \frac{z^2}{n} \left(z^2 - \frac1n\right)^2 \ge 0$"""
    return Step(
        G_k2**2 * all_G2 - 4 * z**4 / n**2,
        G_k2**3 * t**2 + z**2 / n * (z**2 - 1 / n) ** 2,
        because="(z^2 + 1/n)^2 - 4 z^2/n = (z^2 - 1/n)^2",
        near_misses={"with a plus": G_k2**3 * t**2 + z**2 / n * (z**2 + 1 / n) ** 2},
    )


@step("B4.all-queries")
def quotient_below_n_minus_one() -> Step:
    r"""$(n - 1) - (1 - \frac{1}{n^2}) \frac{n}{2} = \frac{(n-1)^2}{2n} > 0$"""
    return Step(
        (n - 1) - (1 - 1 / n**2) * n / 2,
        (n - 1) ** 2 / (2 * n),
        because="common denominator",
        near_misses={"n + 1": (n + 1) ** 2 / (2 * n)},
    )


# %% [markdown]
# **The other two norms, at $t = 0$.** There $G^2 = \frac{z^2}{n}$, $\lambda = 1$ and
# $R^2 = \frac{z^2 + n}{z^2 (n z^2 + 1)}$. The Frobenius price is $m \sqrt{n - 1 + R^2}$: the multipliers in
# proportion to $B$ itself are non-negative, as $\lambda \le n g_k^2$. It exceeds the sink's price exactly for
# $z > 1$. In the spectral norm no $B$ costs less than $m$; for $z \ge 1$ also $R \le 1$, so the price is $m$,
# and the sink wins iff $G > 1$, that is $z > \sqrt n$. For $z < 1$ the price is at most $m \max(1, R)$, which
# is below the sink's.


# %%
r_square_at_zero = ((lam / n + nu) / G_k2).subs(t, 0)


@step("B4.all-queries")
def frobenius_with_all_queries() -> Step:
    r"""$t = 0$: diagonal$^2 -$ sink$^2 = \frac{n (n-1)(z^2 - 1)}{n z^2 + 1}$ in the Frobenius norm"""
    return Step(
        n - 1 + r_square_at_zero - 1 / all_G2.subs(t, 0),
        n * (n - 1) * (z**2 - 1) / (n * z**2 + 1),
        because="common denominator z^2 (n z^2 + 1)",
        near_misses={"threshold z^2 = n": n * (n - 1) * (z**2 - n) / (n * z**2 + 1)},
    )


@step("B4.all-queries")
def spectral_with_all_queries() -> Step:
    r"""at $t = 0$: $1 - R^2 = \frac{n (z^4 - 1)}{z^2 (n z^2 + 1)}$

    And $\frac{1}{G^2} - R^2 = \frac{n^2 - 1}{n z^2 + 1} > 0$.
    """
    return Step(
        Matrix([1 - r_square_at_zero, 1 / all_G2.subs(t, 0) - r_square_at_zero]),
        Matrix([n * (z**4 - 1) / (z**2 * (n * z**2 + 1)), (n**2 - 1) / (n * z**2 + 1)]),
        because="common denominator z^2 (n z^2 + 1)",
        near_misses={"z^2 - 1": Matrix([n * (z**2 - 1) / (z**2 * (n * z**2 + 1)), (n**2 - 1) / (n * z**2 + 1)])},
    )


# %% [markdown]
# ## Where the broad claim fails
#
# Inside the family the nuclear norm, that of weight decay, never prefers the diagonal. Outside it does.
# First, a sink may not exist at any price: $x = (1, -1)$ on a line with $x_0 = 0$ has 0 in the hull of its
# queries (B1.sink), while $B = 1$ makes the diagonal. But also where both exist. On a line that is
# impossible: with two tokens of one sign no diagonal exists, with two signs no sink. In the plane two tokens
# are enough:
#
# $$x_1 = (1, 1), \quad x_2 = (1, -1), \quad x_0 = (\tfrac32, 0), \qquad m = 1.$$
#
# By hand: $g_q = 1$ and $g_k = \frac12$, so the sink costs $2$. The matrix $B = \mathrm{diag}(0, 1)$ has rank
# 1, so it costs 1 in every norm, and its margins are 2 over the other token and 1 over the sink.


# %%
close_tokens = (Matrix([1, 1]), Matrix([1, -1]))
close_sink = Matrix([Rational(3, 2), 0])
second_entry_only = Matrix([[0, 0], [0, 1]])


@step("B4.cheaper")
def margins_of_the_cheap_diagonal() -> Step:
    r"""$B = \mathrm{diag}(0, 1)$ makes the diagonal: margins 2 over the other token, 1 over $x_0$, for both queries"""
    first, second = close_tokens
    asked = [(first, second), (first, close_sink), (second, first), (second, close_sink)]
    return Step(
        Matrix([(one.T * second_entry_only * (one - key))[0] for one, key in asked]),
        Matrix([2, 1, 2, 1]),
        because="multiply out",
        near_misses={"margin 2 over x_0 too": Matrix([2, 2, 2, 2])},
    )


@step("B4.cheaper")
def the_diagonal_is_cheaper() -> Step:
    r"""diagonal $\le \|B\|_* = 1 < 2 =$ sink, from the mean of the four inequalities $x_i^T B (x_0 - x_j) \ge 1$"""
    mean_of_products = Matrix.zeros(2, 2)
    for one in close_tokens:
        for key in close_tokens:
            mean_of_products += one * (close_sink - key).T / 4
    diagonal = Add(*second_entry_only.singular_values())
    # Rank one, so its spectral norm, the dual of the nuclear norm, is its Frobenius norm.
    sink_lower_bound = 1 / sqrt(Add(*(entry**2 for entry in mean_of_products)))
    return Step(
        diagonal,
        sink_lower_bound,
        because="the mean of x_i (x_0 - x_j)^T is (1, 0) (1/2, 0)^T",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"distance 2 to the keys": sink_lower_bound / 4},
    )


@step("B4.cheaper")
def no_sink_at_any_price() -> Step:
    r"""$x = (1, -1)$, $x_0 = 0$: the products $x_i (x_0 - x_j)$ sum to 0, so no $B$ makes a sink; $B = 1$ a diagonal"""
    tokens = (Integer(1), Integer(-1))
    total = Add(*(one * (0 - key) for one in tokens for key in tokens))
    worst = min(min(one * (one - other), one * (one - 0)) for one, other in (tokens, tokens[::-1]))
    return Step(
        Matrix([total, worst]),
        Matrix([0, 1]),
        because="0 is the mean of the queries",
        counterexample=True,
        near_misses={"a sink of margin 1": Matrix([4, 1])},
    )


# %% [markdown]
# ## The value side
#
# A sink switches a head off only if its value is zero (note B5). What does it cost to make it so? Let
# $\Delta$ be the change of $W_V$, so $(W_V + \Delta) x_0 = 0$. Then
# $\|W_V x_0\| = \|\Delta x_0\| \le \|\Delta\| \|x_0\|$, and the rank-1 matrix
# $\Delta = -W_V x_0 x_0^T/\|x_0\|^2$ attains it, in every norm that is 1 on unit rank-1 matrices. The bound
# for the Frobenius norm is Lagrange's identity; $x$ stands for $x_0$, of any width.


# %%
x0, D, y0 = IndexedBase("x_0"), IndexedBase("Delta"), IndexedBase("y_0")


def image(matrix: IndexedBase, vector: IndexedBase, place: Symbol) -> Expr:
    """An entry of matrix times vector."""
    return over(p, matrix[place, p] * vector[p])


@step("B4.value-side")
def change_from_below() -> Step:
    r"""$\|\Delta\|_F^2 \|x_0\|^2 - \|\Delta x_0\|^2$ is a sum of squares

    It is $\frac12 \sum_{bpr} (\Delta_{bp} x_{0r} - \Delta_{br} x_{0p})^2 \ge 0$.
    """
    size = over(b, over(p, D[b, p] ** 2)) * over(r, x0[r] ** 2)
    crossed = over(b, over(p, over(r, (D[b, p] * x0[r] - D[b, r] * x0[p]) ** 2)))
    return Step(
        size - over(b, image(D, x0, b) ** 2),
        crossed / 2,
        because="Lagrange's identity, row by row",
        decide=equal_sums(),
        near_misses={"not halved": crossed},
    )


@step("B4.value-side")
def change_attained() -> Step:
    r"""$\Delta = -W_V x_0 x_0^T/\|x_0\|^2$ gives $\|x_0\|^2 (W_V + \Delta) x_0 = 0$"""
    square = over(r, x0[r] ** 2)
    changed = over(p, (W_V[b, p] * square - over(r, W_V[b, r] * x0[r]) * x0[p]) * x0[p])
    return Step(
        changed,
        Integer(0),
        because="x_0^T x_0 = ||x_0||^2",
        decide=equal_sums(),
        near_misses={"unchanged": square * image(W_V, x0, b)},
    )


# %% [markdown]
# If the other values must stay, $\Delta x_j = 0$ for $j \ge 1$. Let $h$ be the point of
# $\mathrm{span}\{x_j\}$ nearest to $x_0$ and $y = x_0 - h$. Then $\Delta x_0 = \Delta y$, so the same
# argument with $y$ for $x_0$ gives $\|W_V x_0\|/\|y\|$, and $\Delta = -W_V x_0 y^T/\|y\|^2$ attains it:
# $y \cdot x_j = 0$ and $y \cdot x_0 = \|y\|^2$. In the family $\|x_0\|^2 = t^2 + z^2$ but
# $\|y\|^2 = z^2 + \frac{t^2}{1 + n t^2}$, at most $z^2 + \frac1n$: the shared direction that makes the
# attention cheap does not help the value.


# %%
across = sink - mean_token.times(t**2 / G_q2)


@step("B4.value-side")
def orthogonal_part_of_the_sink() -> Step:
    r"""$y = x_0 - \frac{t^2}{t^2 + 1/n} \mu$ is orthogonal to every $x_j$"""
    return Step(
        dot(across, token(j)),
        Integer(0),
        because="x_0 . x_j = t^2 and mu . x_j = t^2 + 1/n",
        decide=equal_sums(),
        near_misses={"x_0 - mu": dot(to_sink, token(j))},
    )


@step("B4.value-side")
def distance_of_the_sink_from_the_span() -> Step:
    r"""$\|y\|^2 = z^2 + \frac{t^2}{1 + n t^2}$"""
    return Step(
        dot(across, across),
        z**2 + t**2 / (1 + n * t**2),
        because="y is orthogonal to the span",
        decide=equal_sums(),
        near_misses={"||x_0||": z**2 + t**2},
    )


# %% [markdown]
# ## From leakage to margin
#
# Finite scores leak: $e = 1 - a_{i0} > 0$. Let $g_j = s_{i0} - s_{ij}$ be the gaps of one row over the $n$
# other keys and $m$ the least of them. Then $\frac{e}{1-e} = \sum_j e^{-g_j}$, and this sum lies between its
# largest term, $e^{-m}$, and $n e^{-m}$. So $m \ge \log\frac{1-e}{e}$ is necessary,
# $m \ge \log \frac{n(1-e)}{e}$ is enough, and where all gaps are equal, as in the family,
# $m = \log\frac{n(1-e)}{e}$. The price of a leak thus grows only like $\log \frac1e$. For a diagonal read
# $e = 1 - a_{ii}$, with as many other keys as there are.


# %%
def leak_odds() -> Expr:
    """e/(1 - e) as it arises: the weights of the other keys, scores s_0 - g_j, over that of the target, score s_0."""
    s_0 = Symbol("s_0", real=True)
    normaliser = exp(s_0) + over(l, exp(s_0 - g[l]))
    return over(j, (exp(s_0 - g[j]) / normaliser) / (exp(s_0) / normaliser))


@step("B4.leakage")
def odds_of_the_leak() -> Step:
    r"""$\frac{e}{1-e} = \sum_j e^{-g_j}$"""
    return Step(
        leak_odds(),
        over(j, exp(-g[j])),
        because="the normaliser cancels",
        decide=equal_sums(),
        near_misses={"with the target": 1 + over(j, exp(-g[j]))},
    )


@step("B4.leakage")
def enough_margin() -> Step:
    r"""$n e^{-m} - \frac{e}{1-e} = \sum_j (e^{-m} - e^{-g_j})$, no term negative as $g_j \ge m$"""
    least = Symbol("m_0", real=True)
    return Step(
        n * exp(-least) - leak_odds(),
        over(j, exp(-least) - exp(-g[j])),
        because="n equal terms",
        decide=equal_sums(),
        near_misses={"one term": exp(-least) - over(j, exp(-g[j]))},
    )


@step("B4.leakage")
def equal_margins() -> Step:
    r"""all gaps $m = \log\frac{n(1-e)}{e}$ give the leak $e$ exactly"""
    leak = Symbol("e", positive=True)
    weight = exp(-log(n * (1 - leak) / leak))
    return Step(
        n * weight / (1 + n * weight),
        leak,
        because="n exp(-m) = e/(1 - e)",
        near_misses={"without n in the margin": n * (leak / (1 - leak)) / (1 + n * leak / (1 - leak))},
    )


@step("B4.leakage")
def necessary_margin() -> Step:
    r"""$\frac{e}{1-e} - e^{-g_i} = \sum_{j \ne i} e^{-g_j} > 0$ for every key $i$, the one of the least gap too"""
    others = over(j, (1 - delta(j, i)) * exp(-g[j]))
    return Step(
        leak_odds() - exp(-g[i]),
        others,
        because="one of positive terms is at most their sum",
        decide=equal_sums(),
        near_misses={"n times the term is at most the sum": others - (n - 1) * exp(-g[i])},
    )


# %% [markdown]
# Equal margins are also the cheapest way to a small leak, for patterns whose price comes from the **mean** margin.
# Let $\bar g$ be the mean gap of a row. Then $\sum_j e^{-g_j} \ge n e^{-\bar g}$, so a leak of at most $e$ needs
# $\bar g \ge \log\frac{n(1-e)}{e}$. The sink's lower bound above used nothing but the mean of all margins. So in the
# family a sink of leak **at most** $e$ costs exactly $\frac1G \log\frac{n(1-e)}{e}$, in every norm, as long as that is
# positive; in the same way a diagonal without $x_0$ costs $\log\frac{(n-1)(1-e)}{e}$ times its price at margin 1. Where
# the logarithm is not positive the price is 0: with $B = 0$ all scores are equal, and $n$ other keys get
# $\frac{n}{n+1} \le e$ of the weight by themselves.


# %%
@step("B4.leakage")
def mean_margin() -> Step:
    r"""$\frac{e}{1-e} - n e^{-\bar g} = e^{-\bar g} \sum_j (e^{y_j} - 1 - y_j) \ge 0$ with $y_j = \bar g - g_j$

    No term is negative, since $e^y \ge 1 + y$.
    """
    mean_gap = over(l, g[l]) / n
    return Step(
        leak_odds() - n * exp(-mean_gap),
        over(j, exp(-g[j]) - exp(-mean_gap) * (1 + mean_gap - g[j])),
        because="the deviations from the mean gap sum to 0",
        decide=equal_sums(),
        near_misses={"deviations from 0": over(j, exp(-g[j]) - exp(-mean_gap) * (1 - g[j]))},
    )


# %% [markdown]
# ## Training to the price
#
# Train $W_Q$ and $W_K$ by cross entropy to a pattern, with weight decay:
#
# $$\sum_i -\log a_{i,\mathrm{target}(i)} + \frac{\lambda}{2}\left(\|W_Q\|_F^2 + \|W_K\|_F^2\right).$$
#
# With $d_k$ at least the rank, minimising the decay at fixed $B$ gives $\lambda \sqrt{d_k} \|B\|_*$
# (B2.weight-decay). Write $\kappa = \lambda \sqrt{d_k}$ for the nuclear norm's weight. What is left,
# $L(B) + \kappa \|B\|_*$, is convex, so a matrix is optimal iff $-\nabla L(B)$ is $\kappa$ times a
# subgradient of the nuclear norm: on the singular vectors of $B$ it must be $\kappa$ times the product of
# left and right ones, and elsewhere have spectral norm at most $\kappa$.
#
# If all margins are one number $m$, the gradient is $-\frac{e^{-m}}{1 + n e^{-m}}$ times the sum of all products
# of a query and its differences ($n - 1$ for $n$ in the diagonal without $x_0$, which has one key less). For the
# sink that sum is $n^2 \mu (x_0 - \mu)^T$: rank 1, along the attaining matrix of the price. For the diagonal
# without $x_0$ it is $n P$. So the prices' matrices are the trained ones, and one number is left to find. (The
# products of tokens and differences are independent here, so the optimal $B$ is the only one.)


# %%
h = IndexedBase("h")


def row_slope(asked: Expr) -> Expr:
    """d/ds at s = 0 of a row's loss log(1 + sum_j asked_ij exp(-(m + s h_ij)))."""
    s = Symbol("s", real=True)
    return diff(log(1 + over(j, asked * exp(-(margin + s * h[i, j])))), s).subs(s, 0)


@step("B4.training")
def gradient_at_equal_margins() -> Step:
    r"""along a change $h_{ij}$ of its gaps row $i$'s loss changes by $-\frac{e^{-m}}{1 + n e^{-m}} \sum_j h_{ij}$"""
    weight = exp(-margin) / (1 + n * exp(-margin))
    return Step(
        row_slope(Integer(1)),
        -weight * over(j, h[i, j]),
        because="every other key has the same weight",
        decide=equal_sums(),
        near_misses={"unnormalised": -exp(-margin) * over(j, h[i, j])},
    )


@step("B4.training")
def diagonal_gradient_at_equal_margins() -> Step:
    r"""the same for the diagonal without $x_0$: $-\frac{e^{-m}}{1 + (n-1) e^{-m}} \sum_{j \ne i} h_{ij}$"""
    other = 1 - delta(i, j)
    changes = over(j, other * h[i, j])
    return Step(
        row_slope(other),
        -exp(-margin) / (1 + (n - 1) * exp(-margin)) * changes,
        because="n - 1 other keys",
        decide=equal_sums(),
        near_misses={"n other keys": -exp(-margin) / (1 + n * exp(-margin)) * changes},
    )


@step("B4.training")
def diagonal_gradient_matrix() -> Step:
    r"""$\sum_{ij} x_i (x_i - x_j)^T = n P$"""
    y, w = generic("y"), generic("w")
    return Step(
        over(i, over(j, dot(y, token(i)) * dot(token(i) - token(j), w))),
        n * centred_product(y, w),
        because="the differences from x_i add up to n (x_i - mu)",
        decide=equal_sums(),
        near_misses={"n - 1": (n - 1) * centred_product(y, w)},
    )


# %% [markdown]
# Spectral norms: $n^2 G \frac{e^{-m}}{1 + n e^{-m}} = \kappa$ for the sink,
# $n \frac{e^{-m}}{1 + (n-1) e^{-m}} = \kappa$ for the diagonal. These are also the stationary points of the
# two functions of one margin,
#
# $$n \log(1 + n e^{-m}) + \frac{\kappa m}{G}, \qquad n \log(1 + (n-1) e^{-m}) + \kappa (n-1) m.$$
#
# Both have the form $n \log(1 + K e^{-m}) + \pi m$, with $K$ other keys and price $\pi$ of a unit of margin.
# Its minimiser is $m^* = \log\frac{K(n - \pi)}{\pi}$, and the least value is
# $n \log\frac{n}{n - \pi} + \pi \log\frac{K(n-\pi)}{\pi}$.


# %%
K, price = Symbol("K", positive=True), Symbol("pi_m", positive=True)


def objective(at: Expr) -> Expr:
    """n log(1 + K exp(-m)) + price m."""
    return n * log(1 + K * exp(-at)) + price * at


@step("B4.training")
def stationary_margin() -> Step:
    r"""at $e^{m^*} = \frac{K (n - \pi)}{\pi}$ the derivative of $n \log(1 + K e^{-m}) + \pi m$ is 0"""
    slope = diff(objective(margin), margin)
    best = log(K * (n - price) / price)
    return Step(
        slope.subs(margin, best),
        Integer(0),
        because="n K exp(-m)/(1 + K exp(-m)) = price",
        near_misses={
            "n + price": slope.subs(margin, log(K * (n + price) / price)),
            "without K": slope.subs(margin, log((n - price) / price)),
        },
    )


@step("B4.training")
def convex_in_the_margin() -> Step:
    r"""the second derivative is $\frac{n K e^{-m}}{(1 + K e^{-m})^2} > 0$: the stationary point is the minimum"""
    return Step(
        diff(objective(margin), margin, 2),
        n * K * exp(-margin) / (1 + K * exp(-margin)) ** 2,
        because="derivative of a sigmoid",
        near_misses={"unsquared": n * K * exp(-margin) / (1 + K * exp(-margin))},
    )


@step("B4.training")
def least_objective() -> Step:
    r"""the cross entropy per row at $m^*$ is $\log \frac{n}{n - \pi}$: $1 + K e^{-m^*} = \frac{n}{n - \pi}$"""
    best = log(K * (n - price) / price)
    return Step(
        (1 + K * exp(-best)),
        n / (n - price),
        because="K exp(-m*) = price/(n - price)",
        near_misses={"inverse": (n - price) / n},
    )


@step("B4.training")
def sink_stationarity_is_the_gradient_condition() -> Step:
    r"""$\pi = \kappa/G$, $K = n$: at $m^*$ the gradient has norm $n^2 G \frac{e^{-m}}{1 + n e^{-m}} = \kappa$"""
    kappa = Symbol("kappa", positive=True)
    best = log(n * (n - kappa / G) / (kappa / G))
    return Step(
        n**2 * G * exp(-best) / (1 + n * exp(-best)),
        kappa,
        because="the price of a unit of margin is 1/G",
        near_misses={"kappa/G": kappa / G},
    )


@step("B4.training")
def diagonal_stationarity_is_the_gradient_condition() -> Step:
    r"""$\pi = \kappa (n-1)$, $K = n - 1$: the gradient has norm $\frac{n e^{-m}}{1 + (n-1) e^{-m}} = \kappa$"""
    kappa = Symbol("kappa", positive=True)
    best = log((n - 1) * (n - kappa * (n - 1)) / (kappa * (n - 1)))
    return Step(
        n * exp(-best) / (1 + (n - 1) * exp(-best)),
        kappa,
        because="the price of a unit of margin is n - 1",
        near_misses={"(n-1) kappa": (n - 1) * kappa},
    )


# %% [markdown]
# **When the weights stay 0.** $B = 0$ is optimal iff the gradient there has spectral norm at most $\kappa$,
# which is where $m^*$ reaches 0. For the sink this is $\kappa \ge \frac{n^2 G}{n+1}$, for the diagonal
# without $x_0$ $\kappa \ge 1$. With $x_0$ a key the softmax has one more entry, and the gradient at 0 is
# $-\left(P + \frac{n}{n+1} \mu (\mu - x_0)^T\right)$, by the matrix of multipliers with
# $\alpha = \beta = \frac{1}{n+1}$: the threshold is $\max(1, \frac{nG}{n+1})$. So the sink survives a
# stronger weight decay than either diagonal iff $G > \frac{n+1}{n^2}$, a fourth line, between the nuclear and
# the Frobenius one.


# %%
@step("B4.training")
def threshold_of_the_sink() -> Step:
    r"""$m^* = 0$ at $\kappa = \frac{n^2 G}{n+1}$"""
    kappa = n**2 * G / (n + 1)
    return Step(
        n * (n - kappa / G) / (kappa / G),
        Integer(1),
        because="exp(m*) = n (n - kappa/G)/(kappa/G)",
        near_misses={"threshold n G": n * (n - n) / n},
    )


@step("B4.training")
def threshold_of_the_diagonal() -> Step:
    r"""$m^* = 0$ at $\kappa = 1$"""
    kappa = Integer(1)
    return Step(
        (n - 1) * (n - kappa * (n - 1)) / (kappa * (n - 1)),
        Integer(1),
        because="exp(m*) = (n - 1)(n - pi)/pi, pi = kappa (n-1)",
        near_misses={"threshold n/(n-1)": (n - 1) * (n - n) / n},
    )


@step("B4.training")
def gradient_at_zero_with_the_sink_as_a_key() -> Step:
    r"""at $B = 0$ with $x_0$ a key the gradient is $-\left(P + \frac{n}{n+1} \mu (\mu - x_0)^T\right)$"""
    y, w = generic("y"), generic("w")
    before = diagonal_multipliers(y, w).subs({alpha: 1 / (n + 1), beta: 1 / (n + 1)})
    rank_one = dot(y, mean_token) * dot(from_sink, w)
    return Step(
        before,
        centred_product(y, w) + n / (n + 1) * rank_one,
        because="every weight is 1/(n+1)",
        decide=equal_sums(),
        near_misses={"n/(n+1) in front of P": n / (n + 1) * (centred_product(y, w) + rank_one)},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b4_sinks_are_cheaper"))
