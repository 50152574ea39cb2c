r"""B1. When a sink can be represented.

P2 claims: a sink needs an alignment between its embedding and all others.

Our statement. x_0 is the sink, x_1..x_n in R^d the other tokens, each a query and a key:

    some B has x_i^T B (x_0 - x_j) > 0 for all i, j >= 1  iff  0 is not in conv{x_i} and x_0 is not in conv{x_j};
    then a B of rank 1 does it, and where none does it, rational weights prove it; the same under the causal mask
    without the own key (j = i) the conditions are not necessary
    a query bias removes the first condition, a key bias changes nothing
    a sink as long as every other token satisfies the second; B = beta I never makes a sink among equal norms
    for n <= d tokens in general position both hold by themselves (Wendel's count as the null for n > d)

Steps of this note follow that order.
"""

# %% [markdown]
# # B1. When a sink can be represented
#
# A head with $B = c\, W_Q^T W_K$ scores key $j$ for query $i$ by $x_i^T B x_j$. It can make $x_0$ a sink if one
# $B$ lets **every** query prefer $x_0$ to **every** other key, its own included:
#
# $$x_i^T B\, (x_0 - x_j) > 0 \qquad \text{for all } i, j = 1, \ldots, n.$$
#
# Then a large multiple of $B$ puts as much weight on $x_0$ as one likes.
#
# **The question.** For which tokens is there such a $B$? P2 says that the sink's embedding must be aligned with
# all others. We make this precise: two convex hulls decide, and nothing else.
#
# In the code a sum over the tokens $x_1, \ldots, x_n$ counts from 0.

# %%
from sympy import Expr, IndexedBase, Integer, Matrix, Rational, Sum, Symbol, binomial, combsimp, diff, symbols, zeros

from derivations.decide import below, equal_sums
from derivations.notation import W_K, B, alpha, beta, c, e, g, i, j, n, over, p, q, r, x, x_0
from derivations.steps import Step, step
from derivations.summation import Distribution

weights_sum_to_one = (Distribution(alpha, n), Distribution(beta, n))
lam = IndexedBase("lambda")
h, k = IndexedBase("h"), IndexedBase("k")
"""h is the point of the queries' hull nearest to 0, k the sink less the point of the keys' hull nearest to it."""


def sink_score(query: Symbol, key: Symbol) -> Expr:
    """x_i^T B (x_0 - x_j)."""
    return over(p, over(r, x[query, p] * B[p, r] * (x_0[r] - x[key, r])))


def mean_query(place: Symbol) -> Expr:
    """sum_i alpha_i x_i, one entry."""
    return over(i, alpha[i] * x[i, place], n)


def mean_gap(place: Symbol) -> Expr:
    """x_0 - sum_j beta_j x_j, one entry."""
    return x_0[place] - over(j, beta[j] * x[j, place], n)


# %% [markdown]
# ## What rules a sink out: Farkas
#
# The conditions are linear in $B$. Farkas' lemma says when such a system has no solution: when some weights
# $\lambda_{ij} \ge 0$, not all zero, make the matrices cancel,
# $\sum_{ij} \lambda_{ij}\, x_i (x_0 - x_j)^T = 0$. That such weights rule every $B$ out is the step below: the
# weighted sum of all margins is a product with that matrix. If it is zero, the margins cannot all be positive.


# %%
@step("B1.sink")
def weights_rule_every_matrix_out() -> Step:
    r"""$\sum_{ij} \lambda_{ij}\, x_i^T B (x_0 - x_j) = \langle B, \sum_{ij} \lambda_{ij} x_i (x_0 - x_j)^T \rangle$"""
    weighted = over(i, over(j, lam[i, j] * x[i, p] * (x_0[r] - x[j, r]), n), n)
    swapped = over(i, over(j, lam[i, j] * x[j, p] * (x_0[r] - x[i, r]), n), n)
    return Step(
        over(i, over(j, lam[i, j] * sink_score(i, j), n), n),
        over(p, over(r, B[p, r] * weighted)),
        because="the margins are linear in B",
        decide=equal_sums(),
        near_misses={"queries and keys exchanged": over(p, over(r, B[p, r] * swapped))},
    )


# %% [markdown]
# The weights that we need have a simple form, $\lambda_{ij} = \alpha_i \beta_j$ with two sets of convex
# weights. Then the matrix is a product of two vectors: a point of the queries' hull, and the way from a point
# of the keys' hull to the sink.


# %%
@step("B1.sink")
def product_weights() -> Step:
    r"""$\sum_{ij} \alpha_i \beta_j\, x_i (x_0 - x_j)^T = (\sum_i \alpha_i x_i) (x_0 - \sum_j \beta_j x_j)^T$"""
    return Step(
        over(i, over(j, alpha[i] * beta[j] * x[i, p] * (x_0[r] - x[j, r]), n), n),
        mean_query(p) * mean_gap(r),
        because="the key weights sum to one",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"sink forgotten": mean_query(p) * (mean_gap(r) - x_0[r])},
    )


# %% [markdown]
# So: if 0 is in the hull of the queries, choose $\alpha$ with $\sum_i \alpha_i x_i = 0$ and any $\beta$. If
# $x_0$ is in the hull of the keys, choose $\beta$ with $\sum_j \beta_j x_j = x_0$ and any $\alpha$. Either way
# the matrix is zero, and **no $B$ makes the sink**. In words: in the first case the queries pull in directions
# that cancel; in the second the sink is a mixture of the other keys, and a mixture never scores above all of
# its parts.
#
# ## What makes a sink: the nearest points
#
# Now let neither be the case. Let $h$ be the point of the queries' hull nearest to 0. No way into the hull
# leads closer: along $h + \tau (x_i - h)$ the squared length must not fall at $\tau = 0$. The step gives its
# slope. So $h \cdot x_i \ge \|h\|^2 > 0$ for every $i$: the plane through $h$ separates 0 from the hull.


# %%
@step("B1.sink")
def nearest_point_separates() -> Step:
    r"""$\frac{d}{d\tau} \|h + \tau (x_i - h)\|^2$ at $\tau = 0$ is $2 (h \cdot x_i - \|h\|^2)$"""
    tau = Symbol("tau", real=True)
    length = over(e, (h[e] + tau * (x[i, e] - h[e])) ** 2)
    product_with_token = over(e, h[e] * x[i, e])
    return Step(
        diff(length, tau).subs(tau, 0),
        2 * (product_with_token - over(e, h[e] ** 2)),
        because="chain rule",
        decide=equal_sums(),
        near_misses={"length forgotten": 2 * product_with_token},
    )


# %% [markdown]
# In the same way the nearest point of the keys' hull to $x_0$ gives $k$ with
# $k \cdot (x_0 - x_j) \ge \|k\|^2 > 0$ for every $j$. Take $B = h k^T$, of rank 1. Each margin is a product of
# two positive numbers. **So a sink can be represented, and rank 1 is enough.**


# %%
@step("B1.sink")
def rank_one_makes_the_sink() -> Step:
    r"""$x_i^T (h k^T) (x_0 - x_j) = (h \cdot x_i)\, \bigl(k \cdot (x_0 - x_j)\bigr)$"""
    query_side = over(p, h[p] * x[i, p])
    return Step(
        over(p, over(r, x[i, p] * h[p] * k[r] * (x_0[r] - x[j, r]))),
        query_side * over(r, k[r] * (x_0[r] - x[j, r])),
        because="the matrix has rank 1",
        decide=equal_sums(),
        near_misses={"sign of the keys": query_side * over(r, k[r] * (x[j, r] - x_0[r]))},
    )


# %% [markdown]
# **The causal mask.** Query $i$ now sees only keys $j \le i$, so there are fewer conditions. The same two
# remain necessary, because key 1 is seen by every query, and query $n$ sees every key. Average over the column
# of key 1, then over the row of query $n$; either average vanishes if its hull condition fails. (Sufficiency is
# free: the full pattern contains the causal one.)


# %%
@step("B1.sink")
def column_of_the_first_key() -> Step:
    r"""$\sum_i \alpha_i\, x_i^T B (x_0 - x_1) = (\sum_i \alpha_i x_i)^T B (x_0 - x_1)$: 0 if 0 is in the hull"""
    first = Integer(0)
    return Step(
        over(i, alpha[i] * sink_score(i, first), n),
        over(p, over(r, mean_query(p) * B[p, r] * (x_0[r] - x[first, r]))),
        because="one key for all queries",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"sink's score alone": over(p, over(r, mean_query(p) * B[p, r] * x_0[r]))},
    )


@step("B1.sink")
def row_of_the_last_query() -> Step:
    r"""$\sum_j \beta_j\, x_n^T B (x_0 - x_j) = x_n^T B (x_0 - \sum_j \beta_j x_j)$: 0 if $x_0$ is in the hull"""
    last = n - 1
    return Step(
        over(j, beta[j] * sink_score(last, j), n),
        over(p, over(r, x[last, p] * B[p, r] * mean_gap(r))),
        because="one query for all keys; the weights sum to one",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"keys forgotten": over(p, over(r, x[last, p] * B[p, r] * x_0[r]))},
    )


# %% [markdown]
# ## Certificates that one can check
#
# Where no $B$ makes the sink, the weights prove it, and they can be rational: a point of a hull is a mixture of
# affinely independent vertices (Carathéodory), and its weights solve a linear system with the tokens' own
# numbers (Cramer). On a line: two tokens $-a < 0 < b$ mix to 0 with weights $b/(a + b)$ and $a/(a + b)$.


# %%
@step("B1.certificate")
def weights_on_a_line() -> Step:
    r"""$\frac{b}{a+b} (-a) + \frac{a}{a+b}\, b = 0$, and the weights sum to one"""
    low, high = symbols("a b", positive=True)
    first, second = high / (low + high), low / (low + high)
    return Step(
        Matrix([first * (-low) + second * high, first + second]),
        Matrix([0, 1]),
        because="a linear system in two weights",
        near_misses={"weights exchanged": Matrix([(high**2 - low**2) / (low + high), 1])},
    )


# %% [markdown]
# In the plane: tokens $(1, 0)$, $(-1, 1)$, $(-1, -1)$ with any sink. The weights $\frac12, \frac14, \frac14$
# mix them to 0. With any key weights, here all on the first key, the matrices cancel. And tokens $(0, 0)$,
# $(2, 0)$, $(0, 2)$ with the sink $(\frac12, 1)$: the weights $\frac14, \frac14, \frac12$ mix the keys to the
# sink. Numerics finds such weights for any cloud and checks them in exact arithmetic.


# %%
def weighted_matrices(tokens: Matrix, sink: Matrix, query_weights: Matrix, key_weights: Matrix) -> Matrix:
    """sum_ij alpha_i beta_j x_i (x_0 - x_j)^T, term by term."""
    total = zeros(tokens.cols, tokens.cols)
    for row in range(tokens.rows):
        for column in range(tokens.rows):
            weight = query_weights[row] * key_weights[column]
            total += weight * tokens[row, :].T * (sink - tokens[column, :])
    return total


@step("B1.certificate")
def origin_in_the_hull() -> Step:
    r"""tokens $(1, 0), (-1, 1), (-1, -1)$: the weights $\frac12, \frac14, \frac14$ cancel every sink"""
    sink = Matrix([symbols("y z")])
    tokens = Matrix([[1, 0], [-1, 1], [-1, -1]])
    half, quarter = Rational(1, 2), Rational(1, 4)
    thirds = Matrix([Rational(1, 3)] * 3)
    return Step(
        weighted_matrices(tokens, sink, Matrix([half, quarter, quarter]), Matrix([1, 0, 0])),
        zeros(2, 2),
        because="the queries' mean is 0",
        near_misses={"equal weights": weighted_matrices(tokens, sink, thirds, Matrix([1, 0, 0]))},
    )


@step("B1.certificate")
def sink_in_the_hull() -> Step:
    r"""tokens $(0, 0), (2, 0), (0, 2)$, sink $(\frac12, 1)$: key weights $\frac14, \frac14, \frac12$ cancel"""
    tokens, sink = Matrix([[0, 0], [2, 0], [0, 2]]), Matrix([[Rational(1, 2), 1]])
    half, quarter = Rational(1, 2), Rational(1, 4)
    queries = Matrix(symbols("alpha_1:4"))
    return Step(
        weighted_matrices(tokens, sink, queries, Matrix([quarter, quarter, half])),
        zeros(2, 2),
        because="the keys' mean is the sink, whatever the weights on the queries",
        near_misses={"weights exchanged": weighted_matrices(tokens, sink, queries, Matrix([half, quarter, quarter]))},
    )


# %% [markdown]
# ## Without the own key
#
# Does it matter that a query must prefer the sink to **its own** key too? It does. Take $x_1 = e_1$,
# $x_2 = -e_1$, $x_0 = e_2$: 0 lies between the two queries. With $B = I$ each query still prefers the sink to
# the *other* key; only the own key wins. So without $j = i$ the first condition is not necessary.


# %%
@step("B1.without-own")
def own_key_matters() -> Step:
    r"""$x = \pm e_1$, $x_0 = e_2$, $B = I$: both other keys lose by 1, though $\frac12 (x_1 + x_2) = 0$"""
    first, second, sink = Matrix([1, 0]), Matrix([-1, 0]), Matrix([0, 1])
    others = [first.dot(sink - second), second.dot(sink - first)]
    own = [first.dot(sink - first), second.dot(sink - second)]
    middle = list((first + second) / 2)
    return Step(
        Matrix([*others, *middle]),
        Matrix([1, 1, 0, 0]),
        because="each query meets the other key at an obtuse angle",
        counterexample=True,
        near_misses={"own keys": Matrix([*own, *middle])},
    )


# %% [markdown]
# ## Biases
#
# **Query bias.** The query $W_Q x_i + b_Q$ is linear in the longer token $(x_i, 1)$. Its hull never contains 0:
# the last coordinate of every mixture is 1. So the first condition holds by itself, and only
# $x_0 \notin \mathrm{conv}\{x_j\}$ remains.


# %%
@step("B1.biases")
def lifted_hull_misses_the_origin() -> Step:
    r"""$\|\sum_i \alpha_i (x_i, 1)\|^2 = \|\sum_i \alpha_i x_i\|^2 + 1 > 0$"""
    flat = over(p, mean_query(p) ** 2)
    return Step(
        flat + over(i, alpha[i], n) ** 2,
        flat + 1,
        because="the weights sum to one",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"without the bias": flat},
    )


# %% [markdown]
# **Key bias.** A key bias adds $c\, q_i \cdot b_K$ to every score of row $i$. It cancels in every difference,
# and in the softmax.


# %%
@step("B1.biases")
def key_bias_cancels() -> Step:
    r"""$c\, q_i \cdot (W_K x_0 + b_K) - c\, q_i \cdot (W_K x_j + b_K) = c\, q_i \cdot W_K (x_0 - x_j)$"""
    bias = IndexedBase("b_K")

    def score(token) -> Expr:
        return c * over(g, q[i, g] * (over(p, W_K[g, p] * token(p)) + bias[g]))

    difference = c * over(g, q[i, g] * over(p, W_K[g, p] * (x_0[p] - x[j, p])))
    return Step(
        score(lambda place: x_0[place]) - score(lambda place: x[j, place]),
        difference,
        because="the bias is the same for every key",
        decide=equal_sums(),
        near_misses={"bias left over": difference + c * over(g, q[i, g] * bias[g])},
    )


# %% [markdown]
# ## Norms
#
# When is $x_0$ outside the hull of the others? It is enough that it is at least as long as each of them (and is
# none of them). Suppose that $x_0 = \sum_j \beta_j x_j$. Then the right side below is zero, and
# $\sum_j \beta_j \|x_0 - x_j\|^2 = \sum_j \beta_j (\|x_j\|^2 - \|x_0\|^2) \le 0$: every token with weight is
# $x_0$ itself.


# %%
@step("B1.norms")
def longest_token_is_no_mixture() -> Step:
    r"""$\sum_j \beta_j (\|x_0 - x_j\|^2 + \|x_0\|^2 - \|x_j\|^2) = 2 x_0 \cdot (x_0 - \sum_j \beta_j x_j)$"""
    gap = over(e, (x_0[e] - x[j, e]) ** 2) + over(e, x_0[e] ** 2) - over(e, x[j, e] ** 2)
    product_with_sink = over(p, x_0[p] * mean_gap(p))
    return Step(
        over(j, beta[j] * gap, n),
        2 * product_with_sink,
        because="the weights sum to one",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"product counted once": product_with_sink, "zero for every mixture": Integer(0)},
    )


# %% [markdown]
# RMSNorm makes all tokens equally long and then multiplies coordinate $p$ by a gain $\gamma_p$. A gain without
# a zero is an invertible linear map, so it moves hulls but changes no membership: with $x = \gamma y$, $x_0$ is
# a mixture of the $x_j$ iff $y_0$ is the same mixture of the $y_j$. So **after RMSNorm the second condition
# always holds**; only the first has content.


# %%
@step("B1.norms")
def gain_keeps_mixtures() -> Step:
    r"""$\gamma_p y_{0,p} - \sum_j \beta_j \gamma_p y_{j,p} = \gamma_p \bigl(y_0 - \sum_j \beta_j y_j\bigr)_p$"""
    gain, y, y_0 = IndexedBase("gamma"), IndexedBase("y"), IndexedBase("y_0")
    inner = y_0[p] - over(j, beta[j] * y[j, p], n)
    return Step(
        gain[p] * y_0[p] - over(j, beta[j] * gain[p] * y[j, p], n),
        gain[p] * inner,
        because="the gain is the same for every token",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"gain forgotten": inner},
    )


# %% [markdown]
# ## Similarity never makes a sink, without a gain
#
# Let the score be a mere similarity, $B = \beta I$ with $\beta > 0$. Look at a query and its own key. By the
# step, $x_i \cdot (x_0 - x_i)$ is half of $\|x_0\|^2 - \|x_i\|^2 - \|x_0 - x_i\|^2$. At equal norms that is not
# positive: a token is most similar to itself. So $B = \beta I$ makes no sink after RMSNorm without a gain.


# %%
@step("B1.similarity")
def own_key_wins_by_similarity() -> Step:
    r"""$x_i \cdot (x_0 - x_i) = \frac12 (\|x_0\|^2 - \|x_i\|^2 - \|x_0 - x_i\|^2)$"""
    norms = over(e, x_0[e] ** 2) - over(e, x[i, e] ** 2)
    gap = over(e, (x_0[e] - x[i, e]) ** 2)
    return Step(
        over(e, x[i, e] * (x_0[e] - x[i, e])),
        (norms - gap) / 2,
        because="the polarisation identity",
        decide=equal_sums(),
        near_misses={"distance forgotten": norms / 2, "not halved": norms - gap},
    )


# %% [markdown]
# **With a gain it can.** The gain makes norms differ again, and a sink may become longer than its rivals. Take
# $d = 2$, gain $(1, 2)$, and before the gain $y_1 = \frac{\sqrt 2}{5} (3, 4)$ and $y_0 = \sqrt 2\, (0, 1)$,
# both of mean square 1. Then $x_1 \cdot (x_0 - x_1) = \frac{14}{25} > 0$: a sink for $n = 1$. So "similarity
# never makes a sink after RMSNorm" needs the words "without a gain".


# %%
def own_margin(gain: Matrix) -> Expr:
    """x_1 . (x_0 - x_1) for the two tokens after the gain; the two factors sqrt(2) make the 2."""
    token, sink = Matrix([3, 4]) / 5, Matrix([0, 1])
    return 2 * gain.multiply_elementwise(token).dot(gain.multiply_elementwise(sink - token))


@step("B1.similarity-gain")
def size_of_the_margin() -> Step:
    r"""$x_1 \cdot (x_0 - x_1) = 2 \cdot (\frac{16}{5} - \frac{73}{25}) = \frac{14}{25}$ with the gain $(1, 2)$"""
    return Step(
        own_margin(Matrix([1, 2])),
        Rational(14, 25),
        because="arithmetic",
        near_misses={"without the gain": own_margin(Matrix([1, 1]))},
    )


@step("B1.similarity-gain")
def gain_makes_a_sink_by_similarity() -> Step:
    r"""gain $(1, 2)$, $y_1 \propto (3, 4)$, $y_0 \propto (0, 1)$: $0 < x_1 \cdot (x_0 - x_1)$"""
    return Step(
        Integer(0),
        own_margin(Matrix([1, 2])),
        because="the gain lengthens the sink more than the token",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={
            "without the gain": own_margin(Matrix([1, 1])),
            "gain on the other side": own_margin(Matrix([2, 1])),
        },
    )


# %% [markdown]
# ## When do the conditions have content?
#
# If the tokens are linearly independent, some $w$ has $w \cdot x_i = 1$ for all $i$. Then
# $w \cdot \sum_i \alpha_i x_i = 1$ for all convex weights, so 0 is not in the hull. If $x_0, \ldots, x_n$ are
# affinely independent, the same argument for the $x_j - x_0$ puts $x_0$ outside. So for $n \le d$ tokens in
# general position **both conditions hold by themselves**. B1 says something about $n > d$ tokens.


# %%
@step("B1.generic")
def independent_tokens_miss_the_origin() -> Step:
    r"""$w \cdot \sum_i \alpha_i x_i = 1 + \sum_i \alpha_i (w \cdot x_i - 1)$"""
    w = IndexedBase("w")
    excess = over(i, alpha[i] * (over(p, w[p] * x[i, p]) - 1), n)
    return Step(
        over(p, w[p] * mean_query(p)),
        1 + excess,
        because="the weights sum to one",
        decide=equal_sums(*weights_sum_to_one),
        near_misses={"one forgotten": excess},
    )


# %% [markdown]
# **A null to compare with.** How often does a random cloud miss 0? Let every token be as likely as its
# negative, and let any $d$ of them be independent. Fix the tokens and count the sign patterns $\pm x_i$ for
# which all tokens lie in one open half-space $u \cdot x > 0$. Each such pattern is one region of the
# arrangement of hyperplanes $\{u : u \cdot x_i = 0\}$. Let $R(n, d)$ be their number. A new hyperplane cuts
# exactly the regions that it meets, and those it meets are the regions of the traces on it, in dimension
# $d - 1$. So
#
# $$R(n + 1, d) = R(n, d) + R(n, d - 1), \qquad R(1, d) = 2, \qquad R(n, 1) = 2.$$
#
# The solution is $R(n, d) = 2 \sum_{k < d} \binom{n-1}{k}$ (Schläfli, Cover), because Pascal's rule holds term
# by term; the first of the two sums on the right runs over $k$, the second over $k - 1$.


# %%
@step("B1.generic")
def pascal_term_by_term() -> Step:
    r"""$\bigl[\binom{n-1}{k} + \binom{n-1}{k-1}\bigr]/\binom{n}{k} = 1$ for symbolic $n$, $k$"""
    rank = Symbol("k", integer=True, positive=True)
    parts = (binomial(n - 1, rank), binomial(n - 1, rank - 1))
    return Step(
        sum(combsimp(part / binomial(n, rank)) for part in parts),
        Integer(1),
        because="the shares are 1 - k/n and k/n",
        near_misses={"first part alone": combsimp(parts[0] / binomial(n, rank))},
    )


def regions(tokens: int, width: int) -> int:
    """R(n, d) by the recursion alone."""
    if tokens == 1 or width == 1:
        return 2
    return regions(tokens - 1, width) + regions(tokens - 1, width - 1)


@step("B1.generic")
def recursion_against_the_sum() -> Step:
    r"""$R(n, d)$ by the recursion is $2 \sum_{k < d} \binom{n-1}{k}$ for $n \le 9$, $d \le 6$"""
    sizes = [(tokens, width) for tokens in range(1, 10) for width in range(1, 7)]

    def closed(tokens: int, width: int, shift: int = 1) -> Expr:
        return 2 * sum(binomial(tokens - shift, rank) for rank in range(width))

    return Step(
        Matrix([regions(*size) for size in sizes]),
        Matrix([closed(*size) for size in sizes]),
        because="Pascal's rule, and both start from 2",
        near_misses={"n for n - 1": Matrix([closed(*size, shift=0) for size in sizes])},
    )


# %% [markdown]
# All $2^n$ patterns are equally likely, so the chance to miss 0 is $2^{1-n} \sum_{k < d} \binom{n-1}{k}$
# (Wendel 1962). For $n \le d$ the sum is complete and the chance is 1. At $n = d + 1$ one term is missing, at
# $n = 2d$ the chance is $\frac12$. Real tokens that miss 0 at $n \gg d$ do so for a reason.


# %%
@step("B1.generic")
def complete_sum() -> Step:
    r"""$2^{1-n} \sum_{k \le n-1} \binom{n-1}{k} = 1$"""
    rank = Symbol("k", integer=True, nonnegative=True)
    return Step(
        (2 ** (1 - n) * Sum(binomial(n - 1, rank), (rank, 0, n - 1)).doit()).simplify(),
        Integer(1),
        because="the binomial theorem",
        near_misses={"half": Rational(1, 2)},
    )


@step("B1.generic")
def half_at_twice_the_width() -> Step:
    r"""$n = 2 d$: the chance is $\frac12$, here for $d = 1, \ldots, 8$"""
    chances = [Rational(regions(2 * width, width), 4**width) for width in range(1, 9)]
    return Step(
        Matrix(chances),
        Matrix([Rational(1, 2)] * 8),
        because="half of an odd row of Pascal's triangle",
        near_misses={"at n = 2 d + 1": Matrix([Rational(regions(2 * w + 1, w), 2 * 4**w) for w in range(1, 9)])},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b1_representability"))
