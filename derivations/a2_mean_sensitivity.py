r"""A2. Mean sensitivity: how large the blocks of the Jacobian can be.

P1 claims: averaged over j the value path is ||W_V||/T and the key path at most C_K/(T sqrt(d_k)); the query path is at
most C_Q/sqrt(d_k); hence off-diagonal blocks are O(1/T) and the diagonal block is O(1). A compact form in circulation
bounds the diagonal block by 1 + a_ii (||W_V|| + (C_K + C_Q)/sqrt(d_k)).

Our statements, for one head, every number of tokens T and all widths (heads add, each with W_O W_V for W_V):

    (a) (1/T) sum_j ||a_ij W_V|| = ||W_V||/T
    (b) (1/T) sum_j ||key_ij|| <= sigma_i(v) ||u_i||/T
    (c) ||query_ii|| <= c sqrt(||Cov_i(v,v)|| ||Cov_i(k,k)||) ||W_Q|| <= c sigma_i(v) sigma_i(k) ||W_Q||
    (d) mean over j != i of ||J_ij|| <= [(1 - a_ii) ||W_V|| + sqrt(1 - a_ii) sigma_i(v) ||u_i||]/(T - 1)
    (e) constants where every ||x_j|| <= R
    (f) if the other tokens are exchangeable, each entry has the rate of (d) in expectation

The compact form fails, and so does "every off-diagonal entry is O(1/T)" uniformly over weights. In a ball, at fixed
weights, every entry is O(1/T) after all.
"""

# %% [markdown]
# # A2. Mean sensitivity
#
# Note A1 found the blocks
# $J_{ij} = r\, \delta_{ij} I + a_{ij} W_V + a_{ij} (v_j - o_i) u_i^T + \delta_{ij}\, c\, \mathrm{Cov}_i(v, k) W_Q$:
# the residual, the value path, the key path and the query path. Here $u_i = c\, W_K^T q_i$ is the slope of the scores
# of row $i$, and $\mathrm{Cov}_i(y, z) = \sum_l a_{il} (y_l - \bar{y}_i)(z_l - \bar{z}_i)^T$.
#
# **The question.** How large are they, and how do they depend on $T$?
#
# **How an inequality is proven here.** As an identity. To see that $L^2 \le R^2$ we write $R^2 - L^2$ as a sum of
# terms that nobody can doubt to be $\ge 0$: squares with nonnegative weights. The identity is what is checked, for
# every $T$, and it also says when the two sides are equal: when each of those terms is zero.
#
# $\|\cdot\|$ is the spectral norm. Masks and biases on the scores are inside the weights: a blocked key has
# $a_{ij} = 0$. Only $a_{ij} \ge 0$ and $\sum_j a_{ij} = 1$ are used, until section (e).

# %%
from sympy import (
    Expr,
    Function,
    IndexedBase,
    Integer,
    Matrix,
    Rational,
    S,
    Sum,
    Symbol,
    cancel,
    diff,
    exp,
    limit,
    log,
    oo,
    sqrt,
    symbols,
)

from derivations.a1_jacobian import covariance, output, without_own_key
from derivations.decide import below, equal_sums
from derivations.notation import W_K, W_Q, T, a, b, c, d_v, delta, e, g, i, j, k, l, m, over, p, r, u, v, x
from derivations.steps import Step, step
from derivations.summation import RowStochastic

rows_sum_to_one = RowStochastic(a, T, T)
n = IndexedBase("n")
"""n_ij = ||v_j - o_i||, the distance of a value from the row's output."""

y, z = IndexedBase("y"), IndexedBase("z")
norm_of_w_v = Symbol("w", nonnegative=True)
half = Rational(1, 2)


# %% [markdown]
# ## (a) The value path: exact
#
# A norm is homogeneous, so $\|a_{ij} W_V\| = a_{ij} \|W_V\|$, and a row's weights sum to one. The mean over the $T$
# keys is $\|W_V\|/T$ whatever the weights are: no attention pattern can make the value path larger or smaller on
# average.


# %%
@step("A2.value")
def value_path_is_homogeneous() -> Step:
    r"""$\|a_{ij} W_V z\|^2 = a_{ij}^2 \|W_V z\|^2$ for every $z$, so $\|a_{ij} W_V\| = a_{ij} \|W_V\|$"""
    w_v = IndexedBase("W_V")
    image = over(b, over(r, w_v[b, r] * z[r]) ** 2)
    return Step(
        over(b, over(r, a[i, j] * w_v[b, r] * z[r]) ** 2),
        a[i, j] ** 2 * image,
        because="a factor leaves every entry",
        decide=equal_sums(),
        near_misses={"not squared": a[i, j] * image},
    )


@step("A2.value")
def mean_of_the_value_path() -> Step:
    r"""$\frac{1}{T} \sum_j \|a_{ij} W_V\| = \|W_V\|/T$"""
    return Step(
        over(j, a[i, j] * norm_of_w_v) / T,
        norm_of_w_v / T,
        because="rows sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"not averaged": norm_of_w_v, "averaged twice": norm_of_w_v / T**2},
    )


# %% [markdown]
# With several heads the blocks add before the norm is taken, so "=" becomes "$\le$", by the triangle inequality. It
# can be strict: two heads, two tokens, $W_V = 1$ in the first and $-1$ in the second, weights $(3/4, 1/4)$ and
# $(1/4, 3/4)$.


# %%
@step("A2.value")
def heads_can_cancel() -> Step:
    r"""Two heads: $\frac{1}{T} \sum_j |a^1_{ij} W^1 + a^2_{ij} W^2| = 1/2$, below $(|W^1| + |W^2|)/T = 1$"""
    first, second = (Rational(3, 4), Rational(1, 4)), (Rational(1, 4), Rational(3, 4))
    summed = sum(abs(one - other) for one, other in zip(first, second, strict=True)) / 2
    return Step(
        summed,
        Rational(2, 2),
        because="heads of opposite sign cancel",
        decide=below,
        relation="<",
        near_misses={"equality": half},
    )


# %% [markdown]
# ## (b) The key path: Cauchy and Schwarz
#
# A block of the key path is $a_{ij}$ times a matrix of rank one, $y u^T$ with $y = v_j - o_i$. Its norm is
# $\|y\| \|u\|$. Why: for every $z$ we have $\|y u^T z\|^2 = \|y\|^2 (u \cdot z)^2$, and Lagrange's identity shows
# that $(u \cdot z)^2 \le \|u\|^2 \|z\|^2$, with equality at $z = u$.


# %%
def squared_norm(vector: IndexedBase, index: Symbol, size: Expr | None = None) -> Sum:
    """||vector||^2, written with the given summation index."""
    return over(index, vector[index] ** 2, size)


@step("A2.key")
def norm_of_a_rank_one_block() -> Step:
    r"""$\|y u^T z\|^2 \le \|y\|^2 \|u\|^2 \|z\|^2$

    The difference is $\|y\|^2\, \frac{1}{2} \sum_p \sum_e (u_p z_e - u_e z_p)^2$.
    """
    slope = IndexedBase("u_i")
    image = over(b, over(p, y[b] * slope[p] * z[p]) ** 2)
    minors = over(p, over(e, (slope[p] * z[e] - slope[e] * z[p]) ** 2))
    return Step(
        squared_norm(y, b) * squared_norm(slope, p) * squared_norm(z, p) - image,
        squared_norm(y, b) * minors / 2,
        because="Lagrange's identity",
        decide=equal_sums(),
        near_misses={"without the half": squared_norm(y, b) * minors, "always equal": Integer(0)},
    )


# %% [markdown]
# So $\sum_j \|\mathrm{key}_{ij}\| = \|u_i\| \sum_j a_{ij} n_{ij}$ with $n_{ij} = \|v_j - o_i\|$: a mean of distances.
# The mean of distances is at most their root mean square, $\sigma_i(v) = (\sum_j a_{ij} n_{ij}^2)^{1/2}$. The
# difference of the squares is their variance.


# %%
def mean_distance(row: Symbol) -> Sum:
    """sum_j a_ij n_ij."""
    return over(j, a[row, j] * n[row, j])


def squared_sigma(row: Symbol) -> Sum:
    """sigma_i(v)^2 = sum_j a_ij n_ij^2."""
    return over(j, a[row, j] * n[row, j] ** 2)


@step("A2.key")
def mean_distance_against_sigma() -> Step:
    r"""$(\sum_j a_{ij} n_{ij})^2 \le \sigma_i(v)^2$

    The difference is $\frac{1}{2} \sum_j \sum_l a_{ij} a_{il} (n_{ij} - n_{il})^2$.
    """
    spread = over(j, over(l, a[i, j] * a[i, l] * (n[i, j] - n[i, l]) ** 2))
    return Step(
        squared_sigma(i) - mean_distance(i) ** 2,
        spread / 2,
        because="Lagrange's identity under the weights, whose sum is one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"without the half": spread, "always equal": Integer(0)},
    )


# %% [markdown]
# Hence $\frac{1}{T} \sum_j \|\mathrm{key}_{ij}\| \le \sigma_i(v) \|u_i\|/T$. The two sides are **equal** in two cases
# only: $u_i = 0$, or every term of the double sum is zero, that is, all keys of positive weight have values equally
# far from $o_i$.
#
# For two keys with weights $\alpha$ and $1 - \alpha$ whose values lie $\Delta$ apart, the distances are
# $(1 - \alpha) \Delta$ and $\alpha \Delta$: equality needs $\alpha = 1/2$ (or $\alpha \in \{0, 1\}$, or
# $\Delta = 0$).


# %%
@step("A2.key")
def equality_for_two_keys() -> Step:
    r"""Two keys: $\sigma_i(v)^2 - (\sum_j a_{ij} n_{ij})^2 = \alpha (1 - \alpha) (1 - 2\alpha)^2 \Delta^2$"""
    alpha, gap = symbols("alpha Delta", positive=True)
    near, far = (1 - alpha) * gap, alpha * gap
    sigma = alpha * near**2 + (1 - alpha) * far**2
    factor = alpha * (1 - alpha) * gap**2
    return Step(
        sigma - (alpha * near + (1 - alpha) * far) ** 2,
        factor * (1 - 2 * alpha) ** 2,
        because="the distances of two values from their mean",
        near_misses={"equal for every alpha": Integer(0), "equal at alpha = 1/3": factor * (1 - 3 * alpha) ** 2},
    )


# %% [markdown]
# A coarser constant is often used, $M = \max_j \|v_j - o_i\|$ over the seen keys. It is never smaller than
# $\sigma_i(v)$.


# %%
@step("A2.key")
def sigma_against_the_largest_distance() -> Step:
    r"""$\sigma_i(v)^2 \le M^2$ where $M \ge n_{ij}$ for every seen key

    The difference is $\sum_j a_{ij} (M^2 - n_{ij}^2)$.
    """
    largest = Symbol("M", nonnegative=True)
    return Step(
        largest**2 - squared_sigma(i),
        over(j, a[i, j] * (largest**2 - n[i, j] ** 2)),
        because="a weighted mean is at most the maximum",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"plain mean": over(j, largest**2 - n[i, j] ** 2) / T},
    )


# %% [markdown]
# ## (c) The query path
#
# The query block is $c\, \mathrm{Cov}_i(v, k) W_Q$. Its norm is at most $c \|\mathrm{Cov}_i(v, k)\| \|W_Q\|$, so the
# covariance is what matters. Look at it from two directions $y$ and $z$: with the projections
# $\alpha_l = y \cdot (v_l - o_i)$ and $\beta_l = z \cdot (k_l - \bar{k}_i)$, it is a weighted sum of products.


# %%
def centred(feature: IndexedBase, direction: IndexedBase, index: Symbol) -> Sum:
    """direction . (feature_l - its mean in row i)."""
    return over(index, direction[index] * (feature[l, index] - over(m, a[i, m] * feature[m, index])))


@step("A2.query")
def covariance_in_two_directions() -> Step:
    r"""$y^T \mathrm{Cov}_i(v, k)\, z = \sum_l a_{il} \alpha_l \beta_l$"""
    raw = over(b, y[b] * v[l, b]) * over(g, z[g] * k[l, g])
    return Step(
        over(b, over(g, y[b] * covariance(v, k, i, b, g) * z[g])),
        over(l, a[i, l] * centred(v, y, b) * centred(k, z, g)),
        because="sums may be exchanged",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"not centred": over(l, a[i, l] * raw)},
    )


# %% [markdown]
# Cauchy and Schwarz again, this time for two different sequences.


# %%
@step("A2.query")
def cauchy_schwarz_for_the_covariance() -> Step:
    r"""$(\sum_l a_{il} \alpha_l \beta_l)^2 \le \sum_l a_{il} \alpha_l^2 \sum_l a_{il} \beta_l^2$

    The difference is $\frac{1}{2} \sum_l \sum_m a_{il} a_{im} (\alpha_l \beta_m - \alpha_m \beta_l)^2$.
    """
    one, other = IndexedBase("alpha"), IndexedBase("beta")

    def mean(summand) -> Sum:
        return over(l, a[i, l] * summand)

    minors = over(l, over(m, a[i, l] * a[i, m] * (one[l] * other[m] - one[m] * other[l]) ** 2))
    return Step(
        mean(one[l] ** 2) * mean(other[l] ** 2) - mean(one[l] * other[l]) ** 2,
        minors / 2,
        because="Lagrange's identity under the weights",
        decide=equal_sums(),
        near_misses={"without the half": minors, "sign": -minors / 2},
    )


# %% [markdown]
# By the step before it (with $k = v$),
# $\sum_l a_{il} \alpha_l^2 = y^T \mathrm{Cov}_i(v, v)\, y \le \|\mathrm{Cov}_i(v, v)\| \|y\|^2$, and likewise for the
# keys. The largest value of $|y^T \mathrm{Cov}_i(v, k)\, z|$ over unit vectors is the spectral norm, so
#
# $$\|\mathrm{query}_{ii}\| \le c\, \sqrt{\|\mathrm{Cov}_i(v, v)\|\, \|\mathrm{Cov}_i(k, k)\|}\; \|W_Q\|.$$
#
# The form with $\sigma_i(v) \sigma_i(k)$ is coarser: $\sigma_i(v)^2$ is the trace of $\mathrm{Cov}_i(v, v)$, all its
# eigenvalues added up, not the largest one alone. Write $f_l = v_l - o_i$.


# %%
@step("A2.query")
def trace_against_largest_eigenvalue() -> Step:
    r"""$y^T \mathrm{Cov}_i(v, v)\, y \le \|y\|^2 \sigma_i(v)^2$

    The difference is $\frac{1}{2} \sum_l a_{il} \sum_b \sum_{b'} (y_b f_{lb'} - y_{b'} f_{lb})^2$.
    """
    f = IndexedBase("f")
    other = Symbol("b'", integer=True, nonnegative=True)
    minors = over(b, over(other, (y[b] * f[l, other] - y[other] * f[l, b]) ** 2, d_v))
    sigma = over(l, a[i, l] * over(b, f[l, b] ** 2))
    return Step(
        squared_norm(y, b) * sigma - over(l, a[i, l] * over(b, y[b] * f[l, b]) ** 2),
        over(l, a[i, l] * minors) / 2,
        because="Lagrange's identity for each key",
        decide=equal_sums(),
        near_misses={"without the half": over(l, a[i, l] * minors), "always equal": Integer(0)},
    )


# %% [markdown]
# No $1/T$ anywhere: the query path averages over keys by itself and does not shrink as $T$ grows.
#
# ## (d) The mean over the other tokens
#
# Off the diagonal there are only the value path and the key path. Leave the own key out: the weights of the others
# add up to $1 - a_{ii}$.


# %%
def other_than_own(token: Symbol) -> Expr:
    """1 for every key but the row's own."""
    return 1 - delta(token, i)


@step("A2.mean")
def value_path_of_the_others() -> Step:
    r"""$\sum_{j \ne i} \|a_{ij} W_V\| = (1 - a_{ii}) \|W_V\|$"""
    return Step(
        over(j, other_than_own(j) * a[i, j] * norm_of_w_v),
        (1 - a[i, i]) * norm_of_w_v,
        because="rows sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"own key kept": norm_of_w_v},
    )


# %% [markdown]
# For the key path, Cauchy and Schwarz over $j \ne i$ gives the factor $\sqrt{1 - a_{ii}}$, and the own key's share of
# $\sigma_i(v)^2$ is given away.


# %%
@step("A2.mean")
def key_path_of_the_others() -> Step:
    r"""$(\sum_{j \ne i} a_{ij} n_{ij})^2 \le (1 - a_{ii}) \sigma_i(v)^2$

    The difference is
    $\frac{1}{2} \sum_{j, l \ne i} a_{ij} a_{il} (n_{ij} - n_{il})^2 + (1 - a_{ii}) a_{ii} n_{ii}^2$.
    """
    pairs = other_than_own(j) * other_than_own(l) * a[i, j] * a[i, l] * (n[i, j] - n[i, l]) ** 2
    spread = over(j, over(l, pairs))
    own = (1 - a[i, i]) * a[i, i] * n[i, i] ** 2
    return Step(
        (1 - a[i, i]) * squared_sigma(i) - over(j, other_than_own(j) * a[i, j] * n[i, j]) ** 2,
        spread / 2 + own,
        because="Lagrange's identity over the other keys",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"own key forgotten": spread / 2, "without the half": spread + own},
    )


# %% [markdown]
# Divide the sum of the two by the number of other tokens: the mean over $j \ne i$ of $\|J_{ij}\|$ is at most
# $[(1 - a_{ii}) \|W_V\| + \sqrt{1 - a_{ii}}\, \sigma_i(v) \|u_i\|]/(T - 1)$. At $u_i = 0$ it is an equality.
#
# ## The diagonal block
#
# On the diagonal the key path is $a_{ii} (v_i - o_i) u_i^T$. It vanishes twice: when the own key has no weight, and
# when it has all of it. Primes mark the row without its own key, its other weights divided by $1 - a_{ii}$ (note A1).


# %%
@step("A2.ball")
def own_key_part_against_sigma() -> Step:
    r"""$a_{ii}^2 \|v_i - o_i\|^2 \le a_{ii} (1 - a_{ii}) \sigma_i(v)^2$, coordinate by coordinate

    The difference is $a_{ii} (1 - a_{ii})^2 \sigma'_i(v)^2$.
    """
    own = a[i, i]
    second = over(l, a[i, l] * other_than_own(l) * v[l, b] ** 2) / (1 - own)
    rest = second - without_own_key(v, b) ** 2
    return Step(
        own * (1 - own) * covariance(v, v, i, b, b) - own**2 * (v[i, b] - output(i, b)) ** 2,
        own * (1 - own) ** 2 * rest,
        because="the covariance split of A1",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"1 - a_ii not squared": own * (1 - own) * rest, "always equal": Integer(0)},
    )


# %% [markdown]
# So $\|J_{ii}\| \le r + a_{ii} \|W_V\| + \sqrt{a_{ii} (1 - a_{ii})}\, \sigma_i(v) \|u_i\| + \|\mathrm{query}_{ii}\|$:
# bounded, but not small.
#
# ## (e) Constants on a ball
#
# $\sigma_i(v)$ and $u_i$ depend on the tokens. Constants that do not depend on them need a domain. Suppose
# $\|x_j\| \le R$ for every token, and no projection bias. Then the row's spread is at most $R$.


# %%
def mean_token(place: Symbol) -> Sum:
    """xbar_i, one entry."""
    return over(m, a[i, m] * x[m, place])


@step("A2.ball")
def spread_in_a_ball() -> Step:
    r"""$\sigma_i(x)^2 \le R^2$, hence $\|\mathrm{Cov}_i(x, x)\| \le R^2$

    The difference is $\sum_l a_{il} (R^2 - \|x_l\|^2) + \|\bar{x}_i\|^2$.
    """
    radius = Symbol("R", nonnegative=True)
    inside = over(l, a[i, l] * (radius**2 - over(p, x[l, p] ** 2)))
    centre = over(p, mean_token(p) ** 2)
    return Step(
        radius**2 - over(l, a[i, l] * over(p, (x[l, p] - mean_token(p)) ** 2)),
        inside + centre,
        because="a variance is a second moment less the square of the mean",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"centre forgotten": inside, "sign of the centre": inside - centre},
    )


# %% [markdown]
# Without a query bias the slope is linear in the token: $u_i = B^T x_i$ with $B = c\, W_Q^T W_K$, so
# $\|u_i\| \le R \|B\|$.


# %%
@step("A2.ball")
def slope_in_the_token() -> Step:
    r"""$u_i = c\, W_K^T W_Q x_i = B^T x_i$"""

    def bilinear(row: Symbol, column: Symbol) -> Expr:
        return c * over(g, W_Q[g, row] * W_K[g, column])

    return Step(
        c * over(g, W_K[g, r] * over(p, W_Q[g, p] * x[i, p])),
        over(p, bilinear(p, r) * x[i, p]),
        because="sums may be exchanged",
        decide=equal_sums(),
        near_misses={"B not transposed": over(p, bilinear(r, p) * x[i, p])},
    )


# %% [markdown]
# Values inherit the ball: $\sigma_i(v) \le \|W_V\| \sigma_i(x) \le \|W_V\| R$, so
# $\sigma_i(v) \|u_i\| \le R^2 \|W_V\| \|B\|$. Put into (d):
#
# $$\mathrm{mean}_{j \ne i} \|J_{ij}\| \le \|W_V\|\, \frac{1 - a_{ii} + \sqrt{1 - a_{ii}}\, R^2 \|B\|}{T - 1}.$$
#
# The query path is $W_V \mathrm{Cov}_i(x, x) B^T$ (note A1), so $\|\mathrm{query}_{ii}\| \le R^2 \|W_V\| \|B\|$. The
# own key part needs one step more: $x_i - \bar{x}_i$ carries a factor $1 - a_{ii}$, and two points of a ball are at
# most $2R$ apart.


# %%
@step("A2.ball")
def own_token_against_the_mean() -> Step:
    r"""$x_i - \bar{x}_i = (1 - a_{ii}) (x_i - \bar{x}'_i)$"""
    offset = x[i, p] - without_own_key(x, p)
    return Step(
        x[i, p] - mean_token(p),
        (1 - a[i, i]) * offset,
        because="the mean is a mixture of the own token and the rest",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"without the factor": offset, "wrong share": a[i, i] * offset},
    )


@step("A2.ball")
def two_points_of_a_ball() -> Step:
    r"""$\|y - z\|^2 \le 4 R^2$ where $\|y\| \le R$ and $\|z\| \le R$

    The difference is $2 (R^2 - \|y\|^2) + 2 (R^2 - \|z\|^2) + \|y + z\|^2$.
    """
    radius = Symbol("R", nonnegative=True)
    slack = 2 * (radius**2 - squared_norm(y, p)) + 2 * (radius**2 - squared_norm(z, p))
    together = over(p, (y[p] + z[p]) ** 2)
    return Step(
        4 * radius**2 - over(p, (y[p] - z[p]) ** 2),
        slack + together,
        because="the parallelogram law",
        decide=equal_sums(),
        near_misses={"radius for diameter": slack + together - 3 * radius**2, "sum forgotten": slack},
    )


# %% [markdown]
# The mean $\bar{x}'_i$ of tokens in the ball is in the ball (the step on the spread, read for the row without its own
# key: it says $\|\bar{x}\|^2 \le R^2$ as well). So the own key part $a_{ii} W_V (x_i - \bar{x}_i) u_i^T$ is at most
# $2 R^2 a_{ii} (1 - a_{ii}) \|W_V\| \|B\|$: $2R (1 - a_{ii})$ from the distance, $R \|B\|$ from the slope. Together
#
# $$\|J_{ii}\| \le r + a_{ii} \|W_V\| + 2 R^2 a_{ii} (1 - a_{ii}) \|W_V\| \|B\| + R^2 \|W_V\| \|B\|.$$
#
# Neither constant can be lowered. The 2: an own token at $R$, one other at $-R$, in one dimension. The $R^2$ of the
# query path: three tokens $(0, R, -R)$ with the diagonal masked, where the whole block is the query path.


# %%
def scalar_layer(tokens, *, bilinear: Expr = S.One, value: Expr = S.One, masked: bool = False) -> Expr:
    """Row 0 of a layer with d = 1 and no residual: sum_j a_0j value x_j with scores bilinear x_0 x_j."""
    keys = tokens[1:] if masked else tokens
    weight = [exp(bilinear * tokens[0] * key) for key in keys]
    return sum(one * value * key for one, key in zip(weight, keys, strict=True)) / sum(weight)


def own_block(at, **layer) -> Expr:
    """d(row 0)/d(token 0) of the scalar layer, differentiated and then evaluated at the tokens given."""
    tokens = symbols(f"x:{len(at)}")
    return diff(scalar_layer(tokens, **layer), tokens[0]).xreplace(dict(zip(tokens, at, strict=True)))


@step("A2.ball")
def own_key_constant_is_attained() -> Step:
    r"""Own token $R$, the other $-R$: own key part $= 2 R^2 a_{ii} (1 - a_{ii}) W_V B$"""
    own, radius, value, bilinear = symbols("a_ii R W_V B", positive=True)
    mean = own * radius - (1 - own) * radius
    reached = 2 * radius**2 * own * (1 - own) * value * bilinear
    return Step(
        own * value * (radius - mean) * bilinear * radius,
        reached,
        because="the two tokens are a diameter apart",
        near_misses={"halved": reached / 2},
    )


@step("A2.ball")
def query_constant_is_attained() -> Step:
    r"""Tokens $(0, R, -R)$, diagonal masked: $J_{00} = R^2 W_V B$"""
    radius, value, bilinear = symbols("R W_V B", positive=True)
    reached = radius**2 * value * bilinear
    return Step(
        own_block((Integer(0), radius, -radius), bilinear=bilinear, value=value, masked=True),
        reached,
        because="two keys of weight 1/2 at the ends of a diameter",
        near_misses={"halved": reached / 2},
    )


# %% [markdown]
# **The domain matters.** Without a ball there is no constant at all: dot-product attention is not Lipschitz on all of
# $\mathbb{R}^d$ (Kim, Papamakarios and Mnih, 2006.04710; Castin, Ablin and Peyre, 2312.14820, give its growth with
# $R$). Three tokens show it: at $(0, s, -s)$ the block grows like $s^2$.


# %%
@step("A2.ball")
def no_constant_without_a_ball() -> Step:
    r"""Tokens $(0, s, -s)$, no mask, $W_V = B = 1$: $J_{00} = \frac{1}{3} + \frac{2}{3} s^2$, unbounded"""
    s = Symbol("s", positive=True)
    return Step(
        own_block((Integer(0), s, -s)),
        Rational(1, 3) + Rational(2, 3) * s**2,
        because="uniform weights; the covariance of (0, s, -s) is 2 s^2/3",
        near_misses={"bounded": Rational(1, 3), "linear": Rational(1, 3) + Rational(2, 3) * s},
    )


# %% [markdown]
# ## (f) Each entry in expectation
#
# (d) is about the mean over $j$. One entry can be large. But if the other tokens are **exchangeable** given $x_i$
# (iid tokens are), no position code tells them apart, and no bias but a fixed one on the diagonal acts, then the
# entries of a row are alike in expectation: swap two tokens, and the two weights swap. Let $D$ hold the own key and
# all keys other than $j$ and $l$, and $s(x)$ be the score of row $i$ as a function of the key's token.


# %%
@step("A2.exchangeable")
def swapping_tokens_swaps_weights() -> Step:
    r"""$a_{ij}(x_j \leftrightarrow x_l) = a_{il}$"""
    score, elsewhere = Function("s"), Function("t")
    one, other = symbols("x_j x_l", real=True)
    rest = Symbol("D", positive=True)

    def weight_of(first: Expr, second: Expr) -> Expr:
        return exp(first) / (rest + exp(first) + exp(second))

    swapped = weight_of(score(one), score(other)).xreplace({one: other, other: one})
    return Step(
        swapped,
        weight_of(score(other), score(one)),
        because="the denominator does not see the swap",
        near_misses={
            "weights stay": weight_of(score(one), score(other)),
            "scores with a position code": weight_of(elsewhere(other), score(one)),
        },
    )


# %% [markdown]
# Exchangeable tokens have one law before and after the swap, so $E a_{ij} = E a_{il}$. All the other weights share
# $1 - E a_{ii}$ evenly. Write $A = E a_{ii}$; the one value that makes the expected row sum to one is
# $(1 - A)/(T - 1)$.


# %%
@step("A2.exchangeable")
def expected_weight() -> Step:
    r"""$E a_{ij} = \frac{1 - A}{T - 1}$ for every $j \ne i$

    If all others have the value $w$, the row sum misses one by $(T - 1) (w - \frac{1 - A}{T - 1})$.
    """
    own, other = symbols("A w", positive=True)
    return Step(
        over(j, delta(j, i) * own + other_than_own(j) * other) - 1,
        (T - 1) * (other - (1 - own) / (T - 1)),
        because="one own key, T - 1 others of equal expectation",
        decide=equal_sums(),
        near_misses={"T for T - 1": (T - 1) * (other - (1 - own) / T), "own key kept": (T - 1) * (other - 1 / (T - 1))},
    )


# %% [markdown]
# The blocks swap with the tokens too. Three tokens, $d = 1$, every symbol visible: differentiate row 0 by token 1,
# swap tokens 1 and 2, and the derivative by token 2 comes out.


# %%
@step("A2.exchangeable")
def swapping_tokens_swaps_blocks() -> Step:
    r"""$J_{01}(x_1 \leftrightarrow x_2) = J_{02}$, by brute differentiation"""
    first, second, third = tokens = symbols("x:3")
    value, bilinear = symbols("W_V B", positive=True)
    layer = scalar_layer(tokens, bilinear=bilinear, value=value)
    return Step(
        diff(layer, second).xreplace({second: third, third: second}),
        diff(layer, third),
        because="row 0 is a symmetric function of the other tokens",
        near_misses={"blocks stay": diff(layer, second), "own block": diff(layer, first)},
    )


# %% [markdown]
# Hence $E \|J_{ij}\|$ is the same for every $j \ne i$, and equals the expectation of their mean: (d)'s rate holds for
# each entry in expectation,
# $E \|J_{ij}\| \le E[(1 - a_{ii}) \|W_V\| + \sqrt{1 - a_{ii}}\, \sigma_i(v) \|u_i\|]/(T - 1)$.
#
# ## The compact form in circulation fails
#
# It says $\|J_{ii}\| \le 1 + a_{ii} (\|W_V\| + (C_K + C_Q)/\sqrt{d_k})$ for a layer with residual. The trouble:
# $a_{ii}$ stands in front of the query term as well, but the query path has no factor $a_{ii}$. It is a covariance
# over **all** keys.
#
# We do not have the papers' constants, so we try every sensible reading:
#
# - **spread**: those of (b) and (c), $C_K = \sqrt{d_k}\, \sigma_i(v) \|u_i\|$,
#   $C_Q = \sigma_i(v) \sigma_i(k) \|W_Q\|$;
# - **ball**: those of (e), $C_K = \sqrt{d_k}\, 2 R^2 \|W_V\| \|B\|$, $C_Q = \sqrt{d_k}\, R^2 \|W_V\| \|B\|$;
# - **diameter**, the most generous that depends on the row: $C_K = \sqrt{d_k}\, D_v \|u_i\|$,
#   $C_Q = D_v D_k \|W_Q\|$, where $D_v$ and $D_k$ are the largest distances of two values and of two keys;
# - **any number** that does not depend on $T$.
#
# **Three tokens, diagonal masked**, $d = 1$, all weights 1, $x = (1, 1, -1)$. Row 0 sees the keys $1$ and $-1$ with
# scores $1$ and $-1$. Now $a_{00} = 0$, so the form says $\|J_{00}\| \le 1$ *whatever the constants are*. But the
# query path is the variance of $\pm 1$ under the weights $e/(e + e^{-1})$ and $e^{-1}/(e + e^{-1})$, which is
# $4/(e + e^{-1})^2 \approx 0.42$. The sign matters: here the query path adds to the residual; with $W_V B < 0$ it
# would be taken off. Without a residual the form says 0, and a query path of either sign refutes it.


# %%
def compact_form(own: Expr, value: Expr, key_constant: Expr, query_constant: Expr) -> Expr:
    """1 + a_ii (||W_V|| + (C_K + C_Q)/sqrt(d_k)) with d_k = 1."""
    return 1 + own * (value + key_constant + query_constant)


@step("A2.compact")
def query_path_of_the_masked_row() -> Step:
    r"""$x = (1, 1, -1)$, diagonal masked: $J_{00} = 1 + 4/(e + e^{-1})^2$"""
    query = 4 / (exp(1) + exp(-1)) ** 2
    return Step(
        1 + own_block((1, 1, -1), masked=True),
        1 + query,
        because="differentiation; the variance of two points",
        near_misses={"no query path": Integer(1), "halved": 1 + query / 2},
    )


@step("A2.compact")
def masked_diagonal_refutes_every_constant() -> Step:
    r"""$x = (1, 1, -1)$, diagonal masked: the form says $1 + 0 \cdot (\ldots) = 1$, but $1 < J_{00} \approx 1.42$"""
    return Step(
        compact_form(Integer(0), Integer(1), Integer(2), Integer(4)),
        1 + own_block((1, 1, -1), masked=True),
        because="a_ii = 0 removes the constants, the query path stays",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"J_00 without its query path": Integer(1)},
    )


# %% [markdown]
# **Three tokens, no mask**, $x = (1, 9, 7)$, all weights 1. Row 0 has scores $1, 9, 7$: its own key gets
# $a_{00} \approx 0.0003$, and the two large keys share the rest. Their variance, about $0.42$ again, is the query
# path; the form allows $a_{00} \cdot 73 \approx 0.02$ with diameters ($D = 8$, $u_0 = 1$), and even with the diameter
# of the ball ($R = 9$: $C_K = 2R \cdot R = 162$, $C_Q = (2R)^2 = 324$) it allows no more than $0.15$.


# %%
def own_weight(at, *, bilinear: int = 1) -> Expr:
    """a_00 of the scalar layer."""
    return exp(bilinear * at[0] ** 2) / sum(exp(bilinear * at[0] * key) for key in at)


@step("A2.compact")
def three_tokens_without_a_mask() -> Step:
    r"""$x = (1, 9, 7)$: $1 + a_{00} (1 + 162 + 324) < J_{00}$"""
    at = (1, 9, 7)
    radius = max(at)
    allowed = compact_form(own_weight(at), Integer(1), Integer(2 * radius**2), Integer((2 * radius) ** 2))
    return Step(
        allowed,
        1 + own_block(at),
        because="interval arithmetic on exponentials of integers",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"J_00 with a_00 in front of the query path": 1 + own_weight(at) * own_block(at)},
    )


# %% [markdown]
# **Could a larger constant save it?** Not one that is the same for all $T$, even in the unit ball. Take an own token
# $1$ with $N$ others at $1$ and $N$ at $-1$, so $T = 2N + 1$, no mask, all weights 1. The ratio of query path to
# $a_{ii}$ exceeds $4N/(e^2 + 1)$.


# %%
def balanced_crowd(copies: Symbol) -> tuple[Expr, Expr]:
    """a_ii and the query path of the own token 1 among N copies of 1 and N of -1."""
    total = (copies + 1) * exp(1) + copies * exp(-1)
    mean = ((copies + 1) * exp(1) - copies * exp(-1)) / total
    return exp(1) / total, 1 - mean**2


@step("A2.compact")
def no_constant_for_every_length() -> Step:
    r"""$\mathrm{query}_{ii}/a_{ii} = \frac{4N}{e^2 + 1} (1 + \frac{1}{(N + 1) e^2 + N})$: no bound over $N$"""
    copies = Symbol("N", integer=True, positive=True)
    own, query = balanced_crowd(copies)
    slope = 4 * copies / (exp(2) + 1)
    return Step(
        query / own,
        slope * (1 + 1 / ((copies + 1) * exp(2) + copies)),
        because="the variance of +-1 is 1 - mean^2",
        counterexample=True,
        near_misses={"bounded": slope / copies, "slope alone": slope},
    )


# %% [markdown]
# The residual, the value path and the key part are all $\ge 0$ here, so $J_{ii} \ge 1 + \mathrm{query}_{ii}$. It
# tends to $1 + 4e^2/(e^2 + 1)^2 \approx 1.42$, while $a_{ii} \to 0$ and with it all that the form allows beyond 1.


# %%
@step("A2.compact")
def query_path_of_a_long_row() -> Step:
    r"""$\mathrm{query}_{ii} \to 4e^2/(e^2 + 1)^2$ while $a_{ii} \to 0$, as $N \to \infty$"""
    copies = Symbol("N", integer=True, positive=True)
    own, query = balanced_crowd(copies)
    level = 4 * exp(2) / (exp(2) + 1) ** 2
    return Step(
        Matrix([limit(cancel(query), copies, oo), limit(cancel(own), copies, oo)]),
        Matrix([level, 0]),
        because="the own key becomes one of many",
        near_misses={"the query path vanishes with a_ii": Matrix([0, 0])},
    )


# %% [markdown]
# **Is $T = 2$ ever a counterexample?** With the diagonal masked there is a single key left: the covariance is zero,
# $J_{ii} = r$, and the form holds with equality.


# %%
@step("A2.compact")
def two_tokens_masked() -> Step:
    r"""$T = 2$, diagonal masked: $\partial o_0/\partial x_0 = 0$, so $J_{00} = r$ and the form is an equality"""
    own, other, bilinear, value = symbols("x_0 x_1 B W_V", real=True)
    return Step(
        own_block((own, other), bilinear=bilinear, value=value, masked=True),
        Integer(0),
        because="a softmax over one key is constant",
        near_misses={"a query path is left": value * bilinear},
    )


# %% [markdown]
# Without a mask, the two keys have weights $\alpha = a_{ii}$ and $1 - \alpha$, and now the covariance **does** carry
# a factor $a_{ii}$. For all widths:


# %%
@step("A2.compact")
def two_tokens_without_a_mask() -> Step:
    r"""$T = 2$: the key and the query path both carry $a_{ii} (1 - a_{ii})$

    Together they are $a_{ii} (1 - a_{ii}) [(v_i - v_j) u_i^T + c\, (v_i - v_j)(k_i - k_j)^T W_Q]$.
    """
    own = Symbol("alpha", positive=True)
    share = {0: own, 1: 1 - own}

    def mean(feature: IndexedBase, place: Symbol) -> Expr:
        return sum(share[token] * feature[token, place] for token in share)

    def off(feature: IndexedBase, token: int, place: Symbol) -> Expr:
        return feature[token, place] - mean(feature, place)

    spread = sum(share[token] * off(v, token, b) * off(k, token, g) for token in share)
    apart = v[0, b] - v[1, b]
    key, query = apart * u[i, r], c * over(g, apart * (k[0, g] - k[1, g]) * W_Q[g, r])
    return Step(
        own * off(v, 0, b) * u[i, r] + c * over(g, spread * W_Q[g, r]),
        own * (1 - own) * (key + query),
        because="two values lie (1 - alpha) and alpha of their distance from the mean",
        decide=equal_sums(),
        near_misses={"1 - a_ii forgotten": own * (key + query), "a_ii squared": own**2 * (1 - own) * (key + query)},
    )


# %% [markdown]
# Since $0 \le 1 - a_{ii} \le 1$, the triangle inequality gives
# $\|J_{ii}\| \le r + a_{ii} (\|W_V\| + D_v \|u_i\| + c D_v D_k \|W_Q\|)$: **with diameters the form holds at $T = 2$,
# always**, and three tokens are the smallest counterexample. With the tighter readings two tokens are enough. Spread:
# $x = (0, 2)$, all weights 1. Row 0 has uniform weights, $u_0 = 0$, $\sigma = 1$ for values and keys. The form says
# $1 + \frac{1}{2} (1 + 0 + 1) = 2$; the block is $1 + \frac{1}{2} + 1$.


# %%
@step("A2.compact")
def two_tokens_with_spreads() -> Step:
    r"""$x = (0, 2)$, constants of (b) and (c): $2 < J_{00} = 5/2$"""
    at = (Integer(0), Integer(2))
    mean = sum(at) / 2
    variance = sum((token - mean) ** 2 for token in at) / 2
    return Step(
        compact_form(half, Integer(1), sqrt(variance) * at[0], variance),
        1 + own_block(at),
        because="differentiation at two tokens",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"without the query path": Rational(3, 2)},
    )


# %% [markdown]
# Ball: $x = (1, -1)$, $R = 1$, $W_V = -1$, $B = -1$. Here $a_{00} = 1/(1 + e^2)$, and the block is
# $1 - a_{00} + 6 a_{00} (1 - a_{00})$, above $1 + a_{00} (1 + 2 + 1)$.


# %%
@step("A2.compact")
def two_tokens_in_a_ball() -> Step:
    r"""$x = (1, -1)$, $W_V = B = -1$, constants of (e): $1 + 4 a_{00} < J_{00}$"""
    at, minus = (1, -1), Integer(-1)
    own = own_weight(at, bilinear=-1)
    return Step(
        compact_form(own, Integer(1), Integer(2), Integer(1)),
        1 + own_block(at, bilinear=minus, value=minus),
        because="interval arithmetic on exponentials of integers",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"W_V = 1": 1 + own_block(at, bilinear=minus)},
    )


# %% [markdown]
# ## "Every off-diagonal entry is O(1/T)": not uniformly
#
# (d) is a statement about the mean. Can every single entry be bounded by $C/T$ with one $C$ for all weights? No: a
# **sink**, a token that all rows look at. Token 0 is $1$, the other $T - 1$ tokens are $-1$, $d = 1$, $W_V = 1$, and
# the weights grow with $T$: $B = -\beta$ with $\beta = \frac{1}{2} \log(T - 1)$. A row $i \ge 1$ gives the sink the
# score $\beta$ and every other token the score $-\beta$: a gap of $\log(T - 1)$, no more. Then the sink keeps half of
# the weight for every $T$.


# %%
def sink_gap(tokens: Expr) -> Expr:
    """beta = log(T - 1)/2, half the score gap."""
    return log(tokens - 1) / 2


@step("A2.entrywise")
def sink_keeps_half() -> Step:
    r"""$a_{i0} = \frac{e^\beta}{e^\beta + \sum_{j \ge 1} e^{-\beta}} = \frac{1}{2}$ for every $T \ge 2$"""
    tokens = Symbol("T", integer=True, positive=True)
    place = Symbol("j", integer=True)
    beta = Symbol("beta", positive=True)
    others = Sum(exp(-beta), (place, 1, tokens - 1)).doit()
    return Step(
        (exp(beta) / (exp(beta) + others)).xreplace({beta: sink_gap(tokens)}),
        half,
        because="e^(2 beta) = T - 1 balances the number of the others",
        counterexample=True,
        near_misses={"1/T": 1 / tokens, "1/(T - 1)": 1 / (tokens - 1)},
    )


# %% [markdown]
# The block $J_{i0} = a_{i0} (1 + (x_0 - \bar{x}_i) u_i)$ does not decay either. Here $\bar{x}_i = 0$ and
# $u_i = \beta$, so it is $\frac{1}{2} (1 + \beta)$: it even grows. By hand at $T = 5$ (where $e^\beta = 2$) and
# $T = 17$ (where $e^\beta = 4$): the constant $C$ that fits at $T = 5$ is exceeded at $T = 17$.


# %%
def sink_block(tokens: int) -> Expr:
    """dh_1/dx_0 for the sink row, differentiated; the diagonal is not masked."""
    sink = Symbol("x_0")
    asking = Integer(-1)
    beta = sink_gap(Integer(tokens))
    weights = [exp(-beta * asking * sink)] + [exp(-beta * asking * asking)] * (tokens - 1)
    row = [sink] + [asking] * (tokens - 1)
    mean = sum(one * token for one, token in zip(weights, row, strict=True)) / sum(weights)
    return diff(mean, sink).xreplace({sink: Integer(1)})


@step("A2.entrywise")
def block_of_the_sink() -> Step:
    r"""$T = 17$: $J_{i0} = \frac{1}{2} (1 + \log 4)$, by differentiation"""
    return Step(
        sink_block(17),
        (1 + log(4)) / 2,
        because="the sink is as far from the mean as one weight of 1/2 leaves it",
        near_misses={"value path alone": half},
    )


@step("A2.entrywise")
def no_constant_over_length_fits() -> Step:
    r"""With $C = 5 \|J_{i0}\|$ at $T = 5$: $C/17 < \|J_{i0}\|$ at $T = 17$"""
    fitted = 5 * sink_block(5) / 17
    return Step(
        fitted,
        sink_block(17),
        because="the entry grows from 0.85 to 1.19 while C/T falls",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"decays like 1/T": fitted},
    )


# %% [markdown]
# ## Every entry, in a ball
#
# At **fixed** weights, with $\|x_j\| \le R$, full attention and no bias on scores, a sink runs out of room. For row
# $i$ write $s_l = u_i \cdot x_l$ for the scores up to a constant of the row. First, no score gap exceeds
# $2 R \|u_i\|$. The step on two points of a ball bounds $\|x_l - x_j\|$ by $2R$; and


# %%
@step("A2.entrywise-ball")
def score_gap_in_a_ball() -> Step:
    r"""$(s_l - s_j)^2 \le \|u_i\|^2 \|x_l - x_j\|^2$

    The difference is $\frac{1}{2} \sum_p \sum_e (u_p y_e - u_e y_p)^2$ with $y = x_l - x_j$ and $u = u_i$.
    """
    slope = IndexedBase("u_i")

    def gap(place: Symbol) -> Expr:
        return x[l, place] - x[j, place]

    scores = [over(p, slope[p] * x[token, p]) for token in (l, j)]
    minors = over(p, over(e, (slope[p] * gap(e) - slope[e] * gap(p)) ** 2))
    return Step(
        squared_norm(slope, p) * over(p, gap(p) ** 2) - (scores[0] - scores[1]) ** 2,
        minors / 2,
        because="Lagrange's identity",
        decide=equal_sums(),
        near_misses={"without the half": minors},
    )


# %% [markdown]
# So $s_l - s_j \ge -\kappa$ with $\kappa = 2 R \|u_i\|$. Now $1/a_{ij} = \sum_l e^{s_l - s_j}$, where the term
# $l = j$ is 1, and every other term is at least $e^{-\kappa}$, because the exponential is increasing. As an identity:


# %%
@step("A2.entrywise-ball")
def weight_in_a_ball() -> Step:
    r"""$1/a_{ij} \ge 1 + (T - 1) e^{-\kappa}$

    The difference is $\sum_{l \ne j} (e^{s_l - s_j} - e^{-\kappa})$.
    """
    s, kappa = IndexedBase("s"), Symbol("kappa", nonnegative=True)
    excess = over(l, (1 - delta(l, j)) * (exp(s[i, l] - s[i, j]) - exp(-kappa)))
    weight = exp(s[i, j]) / over(l, exp(s[i, l]))
    return Step(
        1 / weight - (1 + (T - 1) * exp(-kappa)),
        excess,
        because="the softmax, divided by its own numerator",
        decide=equal_sums(),
        near_misses={"T for T - 1": excess + exp(-kappa), "own key forgotten": excess + 1},
    )


# %% [markdown]
# Hence $a_{ij} \le 1/(1 + (T - 1) e^{-2 R \|u_i\|})$. It is attained: token $j$ at $R$ in the direction of $u_i$, all
# others at $-R$.


# %%
@step("A2.entrywise-ball")
def weight_bound_is_attained() -> Step:
    r"""$x_j = R$, all others $-R$, $u > 0$: $a_{ij} = 1/(1 + (T - 1) e^{-2Ru})$"""
    radius, slope = symbols("R u", positive=True)
    place = Symbol("l", integer=True)
    others = Sum(exp(-slope * radius), (place, 1, T - 1)).doit()
    return Step(
        exp(slope * radius) / (exp(slope * radius) + others),
        1 / (1 + (T - 1) * exp(-2 * radius * slope)),
        because="the softmax of two levels",
        near_misses={
            "half the gap": 1 / (1 + (T - 1) * exp(-radius * slope)),
            "T for T - 1": 1 / (1 + T * exp(-2 * radius * slope)),
        },
    )


# %% [markdown]
# In powers of $T$: the bound is at most $e^\kappa/T$, so every weight is $O(1/T)$, at the price of a constant that is
# **exponential** in $R \|u_i\|$. Off the diagonal
# $\|J_{ij}\| = \|a_{ij} W_V (I + (x_j - \bar{x}_i) u_i^T)\| \le a_{ij} \|W_V\| (1 + 2 R \|u_i\|)$, so every block is
# too. The same price appears in *Token sample complexity of attention* (Bohbot, Letrouit, Peyre, Vialard). And it is
# what the sink above used: a gap of $\log(T - 1)$ is all it takes to undo the $1/T$.


# %%
@step("A2.entrywise-ball")
def weight_bound_is_of_order_one_over_length() -> Step:
    r"""$\frac{1}{1 + (T - 1) e^{-\kappa}} \le \frac{e^\kappa}{T}$

    The difference is $\frac{e^\kappa - 1}{T (1 + (T - 1) e^{-\kappa})}$.
    """
    kappa = Symbol("kappa", nonnegative=True)
    level = 1 + (T - 1) * exp(-kappa)
    return Step(
        exp(kappa) / T - 1 / level,
        (exp(kappa) - 1) / (T * level),
        because="common denominator",
        near_misses={"always equal": Integer(0), "without the 1": exp(kappa) / (T * level)},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("a2_mean_sensitivity"))
