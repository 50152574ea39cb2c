r"""B2. What a sink costs.

P2 asks why models make sinks rather than diagonals, and answers that sinks are cheaper. This note prices the sink.

Our statements. x_0 is the sink, x_1..x_n the other tokens, G = g_q g_k with g_q = dist(0, conv{x_i}) and
g_k = dist(x_0, conv{x_j}):

    the least norm of B with x_i^T B (x_0 - x_j) >= m for all i, j >= 1 is m/G, in every Schatten norm, at rank 1
    under the causal mask, or without the own key, m/G is an upper bound, not the price
    weight decay: min (||W_Q||_F^2 + ||W_K||_F^2)/2 over c W_Q^T W_K = B is ||B||_*/c, for d_k >= rank B
    with a query bias: m/(g_k sqrt(1 + g_q^2)) where the norm counts it, infimum 0 where nothing decays it

Steps of this note follow that order.
"""

# %% [markdown]
# # B2. What a sink costs
#
# The tokens are $x_1, \ldots, x_n \in \mathbb{R}^d$ and the sink $x_0$. A head makes the sink with margin
# $m > 0$ if every query scores the sink above every other key, its own key included:
#
# $$x_i^T B\, (x_0 - x_j) \ge m \qquad \text{for all } i, j = 1, \ldots, n, \qquad B = c\, W_Q^T W_K.$$
#
# **The question.** How small can $B$ be? Two distances answer it: $g_q$, from 0 to the convex hull of the
# queries' tokens, and $g_k$, from the sink to the convex hull of the keys' tokens. (Note B1: a sink can be
# represented iff both are positive. Otherwise no $B$ does it and the price is infinite.)
#
# **In which norm?** In all of them. Let $\|\cdot\|$ be any norm that orthogonal changes of basis do not alter
# and that is 1 on unit matrices of rank 1: nuclear, Frobenius, spectral, every Schatten norm.
#
# In the code a sum over the tokens $x_1, \ldots, x_n$ counts from 0.

# %%
from itertools import product

from sympy import Expr, IndexedBase, Integer, Matrix, Rational, Symbol, diag, diff, limit, sqrt, symbols, zeros

from derivations.decide import at_most, below, equal_sums
from derivations.notation import W_Q, B, alpha, beta, c, d, delta, e, g, i, j, n, over, p, r, x, x_0
from derivations.steps import Step, step
from derivations.summation import Distribution, InnerProduct

weights_sum_to_one = (Distribution(alpha, n), Distribution(beta, n))
margin = Symbol("m", positive=True)
h, k = IndexedBase("h"), IndexedBase("k")
"""h is the hull point nearest to 0, k the sink less the hull point nearest to it."""


def sink_score(query: Symbol, key: Symbol) -> Expr:
    """x_i^T B (x_0 - x_j)."""
    return over(p, over(r, x[query, p] * B[p, r] * (x_0[r] - x[key, r])))


def mean_query(place: Symbol) -> Expr:
    """sum_i alpha_i x_i, one entry."""
    return over(i, alpha[i] * x[i, place], n)


def mean_gap(place: Symbol) -> Expr:
    """x_0 - sum_j beta_j x_j, one entry."""
    return x_0[place] - over(j, beta[j] * x[j, place], n)


def square(vector) -> Expr:
    """||v||^2 of a vector given entry by entry."""
    return over(e, vector(e) ** 2)


# %% [markdown]
# ## The lower bound: average the constraints
#
# Take convex weights $\alpha$ on the queries and $\beta$ on the keys. The weighted mean of all margins is again
# at least $m$, and it sees only two vectors: a point $h = \sum_i \alpha_i x_i$ of the queries' hull, and the
# step $k = x_0 - \sum_j \beta_j x_j$ from a point of the keys' hull to the sink. So $h^T B k \ge m$ for every
# such pair.


# %%
@step("B2.price")
def averaged_constraints() -> Step:
    r"""$\sum_{ij} \alpha_i \beta_j \bigl(x_i^T B (x_0 - x_j) - m\bigr) = h^T B k - m$"""
    bilinear = over(p, over(r, mean_query(p) * B[p, r] * mean_gap(r)))
    return Step(
        over(i, over(j, alpha[i] * beta[j] * (sink_score(i, j) - margin), n), n),
        bilinear - margin,
        because="both sets of weights sum to one, and the score is linear in query and key",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={
            "sum of margins, not mean": bilinear - n**2 * margin,
            "keys forgotten": over(p, over(r, mean_query(p) * B[p, r] * x_0[r])) - margin,
        },
    )


# %% [markdown]
# Now $h^T B k \le \|B\|_2 \|h\| \|k\|$; that is what the spectral norm means. The best choice of weights makes
# both vectors as short as possible: $\|h\| = g_q$ and $\|k\| = g_k$. So $\|B\|_2 \ge m/(g_q g_k)$.
#
# For the Frobenius norm the same can be seen without singular values, by Lagrange's identity.


# %%
@step("B2.price")
def frobenius_bound() -> Step:
    r"""$\|B\|_F^2 \|h\|^2 \|k\|^2 - (h^T B k)^2 = \frac12 \sum_{pr, ef} (B_{pr} h_e k_f - B_{ef} h_p k_r)^2 \ge 0$"""
    f = Symbol("f", integer=True, nonnegative=True)
    bilinear = over(p, over(r, h[p] * B[p, r] * k[r]))
    squares = over(p, over(r, over(e, over(f, (B[p, r] * h[e] * k[f] - B[e, f] * h[p] * k[r]) ** 2, d))))
    return Step(
        over(p, over(r, B[p, r] ** 2)) * square(lambda q: h[q]) * square(lambda q: k[q]) - bilinear**2,
        squares / 2,
        because="Lagrange's identity for the vectors B and h k^T of d^2 entries",
        decide=equal_sums(),
        near_misses={"not halved": squares},
    )


# %% [markdown]
# For every other norm of the list it is enough that $\|B\| \ge \|B\|_2$. Write $B = U \Sigma V^T$. To flip the
# sign of a singular value is to multiply by an orthogonal matrix, so it does not change the norm. Average over
# all flips that leave $\sigma_1$ alone: what remains is $\sigma_1$ at rank 1, of norm $\sigma_1$. An average of
# matrices of one norm is at most as large. (The step shows three singular values; with more there are just more
# flips.)


# %%
@step("B2.price")
def every_norm_is_at_least_the_spectral() -> Step:
    r"""the mean of $\mathrm{diag}(\sigma_1, \pm \sigma_2, \pm \sigma_3)$ is $\mathrm{diag}(\sigma_1, 0, 0)$"""
    first, second, third = symbols("sigma_1:4", positive=True)
    flips = [diag(first, one * second, other * third) for one, other in product((1, -1), repeat=2)]
    return Step(
        sum(flips, zeros(3, 3)) / len(flips),
        diag(first, 0, 0),
        because="each sign occurs as often as its opposite",
        near_misses={"second value kept": diag(first, second, 0)},
    )


# %% [markdown]
# ## The bound is attained
#
# Let $h$ be the point of the queries' hull nearest to 0, and $x_0 - k$ the point of the keys' hull nearest to
# $x_0$. Nearest means that no way into the hull leads closer: along $h + \tau (x_i - h)$ the squared length
# must not fall at $\tau = 0$. Its slope there is the step below, so $h \cdot x_i \ge \|h\|^2$ for every $i$. In
# the same way $k \cdot (x_0 - x_j) \ge \|k\|^2$ for every $j$.


# %%
@step("B2.price")
def nearest_point() -> Step:
    r"""$\frac{d}{d\tau} \|h + \tau (x_i - h)\|^2$ at $\tau = 0$ is $2 (h \cdot x_i - \|h\|^2)$"""
    tau = Symbol("tau", real=True)
    length = square(lambda q: h[q] + tau * (x[i, q] - h[q]))
    product_with_token = over(e, h[e] * x[i, e])
    return Step(
        diff(length, tau).subs(tau, 0),
        2 * (product_with_token - square(lambda q: h[q])),
        because="chain rule",
        decide=equal_sums(),
        near_misses={
            "length forgotten": 2 * product_with_token,
            "sign": 2 * (square(lambda q: h[q]) - product_with_token),
        },
    )


# %% [markdown]
# So take $B = m\, h k^T/(\|h\|^2 \|k\|^2)$, of rank 1. Write $\|h\|^2 (1 + y_i)$ for $h \cdot x_i$ and
# $\|k\|^2 (1 + z_j)$ for $k \cdot (x_0 - x_j)$; then $y_i, z_j \ge 0$ by the step above. Every margin is $m$ or
# more.


# %%
def attaining(row: Symbol, column: Symbol) -> Expr:
    """B = m h k^T/(||h||^2 ||k||^2), one entry."""
    return margin * h[row] * k[column] / (square(lambda q: h[q]) * square(lambda q: k[q]))


@step("B2.price")
def attained_margins() -> Step:
    r"""$x_i^T B (x_0 - x_j) - m = m\, (y_i + z_j + y_i z_j) \ge 0$"""
    y = over(e, h[e] * x[i, e]) / square(lambda q: h[q]) - 1
    z = over(e, k[e] * (x_0[e] - x[j, e])) / square(lambda q: k[q]) - 1
    return Step(
        over(p, over(r, x[i, p] * attaining(p, r) * (x_0[r] - x[j, r]))) - margin,
        margin * (y + z + y * z),
        because="a product (1 + y)(1 + z), less 1",
        decide=equal_sums(),
        near_misses={"product forgotten": margin * (y + z), "queries alone": margin * y},
    )


# %% [markdown]
# What does it cost? Let $A = h k^T$. Then $A^T A$ stretches $k$ by $\|h\|^2 \|k\|^2$ and kills everything
# orthogonal to it. So $A$ has a single singular value, $\|h\| \|k\|$, and $B = m A/(\|h\|^2 \|k\|^2)$ has the
# single one $m/(\|h\| \|k\|)$. All norms of the list agree on it: $m/(g_q g_k)$. That is the lower bound.


# %%
@step("B2.price")
def one_singular_value() -> Step:
    r"""$A^T A\, y = \|h\|^2\, (k \cdot y)\, k$ for every $y$, $A = h k^T$"""
    y = IndexedBase("y")
    after = square(lambda q: h[q]) * k[p] * over(r, k[r] * y[r])
    return Step(
        over(e, over(r, (h[e] * k[p]) * (h[e] * k[r]) * y[r])),
        after,
        because="h^T h stands in the middle",
        decide=equal_sums(),
        near_misses={"along y": square(lambda q: h[q]) * square(lambda q: k[q]) * y[p], "halved": after / 2},
    )


# %% [markdown]
# **An example by hand.** Tokens $(2, 1)$ and $(2, -1)$, sink $(5, 0)$. The hull is the segment between the
# tokens; nearest to 0 and to the sink is $(2, 0)$, so $g_q = 2$, $g_k = 3$, and the price is $m/6$. Here
# $B = \frac{m}{6} e_1 e_1^T$, and every margin is exactly $m$. To halve $B$ would halve every margin.


# %%
@step("B2.price")
def example_by_hand() -> Step:
    r"""tokens $(2, \pm 1)$, sink $(5, 0)$, $B = \frac{m}{6} e_1 e_1^T$: all four margins are $m$"""
    tokens, sink = Matrix([[2, 1], [2, -1]]), Matrix([[5, 0]])
    gaps = Matrix.vstack(*(sink - tokens[row, :] for row in range(2)))
    matrix = Matrix([[margin / 6, 0], [0, 0]])
    ones = Matrix([[1, 1], [1, 1]])
    return Step(
        tokens * matrix * gaps.T,
        margin * ones,
        because="2 times 3 times m/6",
        near_misses={"half the margin": margin * ones / 2},
    )


# %% [markdown]
# ## Fewer constraints: an upper bound, no more
#
# Under the causal mask query $i$ sees only keys $j \le i$; and one may ask that the sink beats every key but
# the query's own. Then some constraints are gone, so $m/G$ is still enough. It is **not** the price. The
# smallest examples lie on a line, where $B$ is a number and the price is the largest $m/|x_i (x_0 - x_j)|$ over
# the pairs that are asked for (all products have one sign).
#
# Tokens 1 and 2, sink 3: the dearest pair is query 1 against key 2, which the causal mask removes. Tokens 1 and
# 2, sink $-1$: the dearest pair is token 1 with its own key.


# %%
def price_on_a_line(tokens: tuple[int, ...], sink: int, pairs) -> Expr:
    """The least |B| with margin 1 over the given (query, key) pairs, places counted from 0; all of one sign."""
    scores = [Integer(tokens[query] * (sink - tokens[key])) for query, key in pairs]
    return max(1 / abs(score) for score in scores)


ALL_PAIRS = tuple(product(range(2), repeat=2))


@step("B2.partial")
def causal_is_cheaper() -> Step:
    r"""tokens 1, 2 and sink 3, causal: price $\frac12 m$, but $m/G = m$"""
    return Step(
        price_on_a_line((1, 2), 3, [(query, key) for query, key in ALL_PAIRS if key <= query]),
        price_on_a_line((1, 2), 3, ALL_PAIRS),
        because="the pair (query 1, key 2) is not asked for",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"a lower price": Rational(1, 2), "half the price": price_on_a_line((1, 2), 3, ALL_PAIRS) / 2},
    )


@step("B2.partial")
def without_own_key_is_cheaper() -> Step:
    r"""tokens 1, 2 and sink $-1$, without own keys: price $\frac13 m$, but $m/G = \frac12 m$"""
    return Step(
        price_on_a_line((1, 2), -1, [(query, key) for query, key in ALL_PAIRS if key != query]),
        price_on_a_line((1, 2), -1, ALL_PAIRS),
        because="the pair (query 1, key 1) is not asked for",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"a lower price": Rational(1, 3)},
    )


@step("B2.partial")
def full_pattern_on_a_line() -> Step:
    r"""with all pairs the price on the line is $m/G$: $1/(1 \cdot 1)$ and $1/(1 \cdot 2)$"""
    return Step(
        Matrix([price_on_a_line((1, 2), 3, ALL_PAIRS), price_on_a_line((1, 2), -1, ALL_PAIRS)]),
        Matrix([1, Rational(1, 2)]),
        because="g_q = 1 in both; g_k = 1 and 2",
        near_misses={"distances of the means": Matrix([Rational(4, 9), Rational(4, 15)])},
    )


# %% [markdown]
# ## What training pays: weight decay
#
# Training never sees $B$. It sees $W_Q$ and $W_K$, with $B = c\, W_Q^T W_K$, and weight decay charges
# $\frac12 (\|W_Q\|_F^2 + \|W_K\|_F^2)$. Many pairs give one $B$; which is the cheapest?
#
# Let $B = U \Sigma V^T$ with orthogonal $U$, $V$. Rotate both projections: $P = W_Q U$, $K = W_K V$. A rotation
# costs nothing, and the sum of the singular values can be read off:
# $c\, \mathrm{tr}(P^T K) = \mathrm{tr}(U^T B V) = \|B\|_*$.


# %%
U, V, sigma = IndexedBase("U"), IndexedBase("V"), IndexedBase("sigma")


def rational_rotation(matrix: IndexedBase) -> dict[Expr, Expr]:
    """The rotation by the angle of the triangle 3, 4, 5."""
    values = ((Rational(3, 5), Rational(4, 5)), (-Rational(4, 5), Rational(3, 5)))
    return {matrix[row, column]: values[row][column] for row in range(2) for column in range(2)}


def orthogonal_rows(matrix: IndexedBase) -> InnerProduct:
    """sum_r U_pr U_er = delta_pe."""
    return InnerProduct(matrix, matrix, d, delta, lambda: rational_rotation(matrix))


@step("B2.weight-decay")
def rotation_costs_nothing() -> Step:
    r"""$\|W_Q U\|_F^2 = \|W_Q\|_F^2$ for orthogonal $U$"""
    rotated = over(g, over(r, over(p, W_Q[g, p] * U[p, r]) ** 2))
    return Step(
        rotated,
        over(g, over(p, W_Q[g, p] ** 2)),
        because="U U^T = I",
        decide=equal_sums(orthogonal_rows(U)),
        near_misses={"halved": over(g, over(p, W_Q[g, p] ** 2)) / 2},
    )


@step("B2.weight-decay")
def trace_is_the_nuclear_norm() -> Step:
    r"""$\mathrm{tr}(U^T B V) = \sum_r \sigma_r$ for $B = U \Sigma V^T$

    Written with the transposes of $U$ and $V$, so that the sums over coordinates run over their last index.
    """
    f = Symbol("f", integer=True, nonnegative=True)
    decomposed = over(f, U[f, p] * sigma[f] * V[f, e], d)
    return Step(
        over(r, over(p, over(e, U[r, p] * decomposed * V[r, e]))),
        over(r, sigma[r]),
        because="U^T U = I and V^T V = I",
        decide=equal_sums(orthogonal_rows(U), orthogonal_rows(V)),
        near_misses={"Frobenius": over(r, sigma[r] ** 2)},
    )


# %% [markdown]
# Two numbers' mean square is at least their product, entry by entry. So the cost is at least
# $\mathrm{tr}(P^T K)$, which is $\|B\|_*/c$.


# %%
@step("B2.weight-decay")
def mean_square_over_product() -> Step:
    r"""$\frac12 (\|P\|_F^2 + \|K\|_F^2) - \mathrm{tr}(P^T K) = \frac12 \|P - K\|_F^2 \ge 0$"""
    P, K = IndexedBase("P"), IndexedBase("K")
    return Step(
        over(g, over(r, P[g, r] ** 2 + K[g, r] ** 2)) / 2 - over(g, over(r, P[g, r] * K[g, r])),
        over(g, over(r, (P[g, r] - K[g, r]) ** 2)) / 2,
        because="the square of a difference",
        decide=equal_sums(),
        near_misses={"not halved": over(g, over(r, (P[g, r] - K[g, r]) ** 2))},
    )


# %% [markdown]
# Equality needs $P = K$. So split every singular value evenly: row $g$ of $W_Q$ is $\sqrt{\sigma_g/c}$ times
# column $g$ of $U$, row $g$ of $W_K$ is $\sqrt{\sigma_g/c}$ times column $g$ of $V$, and the remaining rows are
# zero. This needs a row for every nonzero singular value: $d_k \ge \mathrm{rank}\, B$. Both parts of the
# statement: they make $B$, and they cost $\sum_r \sigma_r/c$. With $c = 1/\sqrt{d_k}$ that is
# $\sqrt{d_k}\, \|B\|_*$.


# %%
def even_split(side: IndexedBase, row: Symbol, column: Symbol) -> Expr:
    """sqrt(sigma_g/c) times column g of U (or V); ``side`` is its transpose."""
    return sqrt(sigma[row] / c) * side[row, column]


@step("B2.weight-decay")
def even_split_makes_the_matrix() -> Step:
    r"""$c\, W_Q^T W_K = U \Sigma V^T$"""
    made = over(r, sigma[r] * U[r, p] * V[r, e])
    return Step(
        c * over(r, even_split(U, r, p) * even_split(V, r, e)),
        made,
        because="the two roots multiply to sigma_g/c",
        decide=equal_sums(),
        near_misses={"scale forgotten": made / c},
    )


@step("B2.weight-decay")
def even_split_costs_the_nuclear_norm() -> Step:
    r"""$\frac12 (\|W_Q\|_F^2 + \|W_K\|_F^2) = \frac1c \sum_r \sigma_r = \|B\|_*/c$"""
    decay = over(r, over(p, even_split(U, r, p) ** 2 + even_split(V, r, p) ** 2)) / 2
    return Step(
        decay,
        over(r, sigma[r]) / c,
        because="columns of U and V have length 1",
        decide=equal_sums(orthogonal_rows(U), orthogonal_rows(V)),
        near_misses={
            "both sides paid in full": 2 * over(r, sigma[r]) / c,
            "scale on the wrong side": c * over(r, sigma[r]),
        },
    )


# %% [markdown]
# For the sink $\|B\|_* = m/G$, so weight decay charges $\sqrt{d_k}\, m/G$. A wide head pays more: with
# $c = 1/\sqrt{d_k}$ its scores are scaled down, and the weights must make up for it.
#
# ## A query bias
#
# With $b_Q$ the query is $W_Q x_i + b_Q$: a linear map of $(x_i, 1)$. So nothing new is needed. The queries'
# tokens are now $(x_i, 1)$, one coordinate longer, and $B$ has one more row. If that row counts in the norm
# (weight decay on biases too), the price is the one above with the distance from 0 to the hull of the longer
# tokens.


# %%
@step("B2.query-bias")
def lifted_distance() -> Step:
    r"""$\|\sum_i \alpha_i (x_i, 1)\|^2 = \|\sum_i \alpha_i x_i\|^2 + 1$, so the distance is $\sqrt{g_q^2 + 1}$"""
    flat = over(p, mean_query(p) ** 2)
    return Step(
        flat + over(i, alpha[i], n) ** 2,
        flat + 1,
        because="the weights sum to one in the extra coordinate, whatever they are",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"distances added": flat + 1 + 2 * over(i, alpha[i], n), "extra coordinate forgotten": flat},
    )


# %% [markdown]
# The same weights $\alpha$ are best in both, so the price is $m/(g_k \sqrt{1 + g_q^2})$. A bias always helps,
# and it turns the first condition of B1 off: the price is finite even where 0 is in the hull of the queries.
#
# If nothing decays $b_Q$, a sink is almost free. Let $W_Q = 0$, so every query is $b_Q$. One dimension is
# enough: $W_K$ is the row $\epsilon\, k^T$ and $b_Q = m/(c\, \epsilon \|k\|^2)$. The margin does not depend on
# $\epsilon$, and the decay tends to 0. It is an infimum: at $W_K = 0$ there is no margin at all.


# %%
@step("B2.query-bias")
def bias_margin() -> Step:
    r"""$c\, b_Q W_K (x_0 - x_j) = m\, k \cdot (x_0 - x_j)/\|k\|^2 \ge m$ for every $\epsilon$"""
    epsilon = Symbol("epsilon", positive=True)
    bias = margin / (c * epsilon * square(lambda q: k[q]))
    after = margin * over(p, k[p] * (x_0[p] - x[j, p])) / square(lambda q: k[q])
    return Step(
        c * bias * over(p, epsilon * k[p] * (x_0[p] - x[j, p])),
        after,
        because="epsilon and c cancel",
        decide=equal_sums(),
        near_misses={"scale forgotten": c * after},
    )


@step("B2.query-bias")
def bias_decay() -> Step:
    r"""$\frac12 \|W_K\|_F^2 = \frac12 \epsilon^2 \|k\|^2 \to 0$ as $\epsilon \to 0$"""
    epsilon, length = symbols("epsilon ell", positive=True)
    return Step(
        limit((epsilon * length) ** 2 / 2, epsilon, 0, "+"),
        Integer(0),
        because="the key weights may be as small as one likes",
        near_misses={"a price of its own": length**2 / 2},
    )


# %% [markdown]
# In numbers, for $g_q = 1/2$ and $g_k = 1$: without a bias the price is $2 m$, with a counted bias
# $2m/\sqrt{5}$.


# %%
@step("B2.query-bias")
def bias_example() -> Step:
    r"""$\frac{1}{\sqrt{1 + 1/4}} \le \frac{1}{1/2}$: the bias more than halves the price"""
    with_bias = 1 / sqrt(1 + Rational(1, 4))
    return Step(
        2 * with_bias,
        1 / Rational(1, 2),
        because="2/sqrt(5) is below 1",
        decide=at_most,
        relation="<=",
        near_misses={"a third": Rational(3, 2)},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b2_sink_price"))
