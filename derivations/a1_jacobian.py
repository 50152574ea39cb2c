r"""A1. The Jacobian of temporal attention.

P1 claims: the Jacobian splits into a value path and a weight path; the weight path splits into a key part and a query
part; the query part lives on i = j only; the residual adds I on i = j.

Our statement, for every number of tokens T and all widths d, d_k, d_v, every mask that leaves each row a key, every
score bias that does not depend on X, and projection biases:

    J_ij = r d_ij I + a_ij W_V + a_ij (v_j - o_i) u_i^T + d_ij c Cov_i(v, k) W_Q

Steps of this note: the softmax, the score, the three paths, their sum, the same by brute force (symbolic sizes, then
two heads written out), the equal forms, the sum rule, the covariance split.
"""

# %% [markdown]
# # A1. The Jacobian of temporal attention
#
# A token $x_i \in \mathbb{R}^d$ asks with its query $q_i = W_Q x_i + b_Q$, offers the key $k_i = W_K x_i + b_K$
# and carries the value $v_i = W_V x_i + b_V$. Its scores are $s_{ij} = c\, q_i \cdot k_j$ with $c =
# 1/\sqrt{d_k}$, its weights $a_i$ are a softmax of them, and its output is $o_i = \sum_j a_{ij} v_j$. With a
# residual the layer returns $h_i = r x_i + o_i$, $r = 1$.
#
# **The question.** How does $h_i$ move when $x_j$ moves? The answer is the block $J_{ij} = \partial h_i /
# \partial x_j$.
#
# **One trick first.** A mask and a bias on the scores are the same thing. A bias multiplies $e^{s_{ij}}$ by a
# positive number, a mask multiplies it by 0. So we give every pair a weight $w_{ij} \ge 0$ and write $a_{ij} =
# w_{ij} e^{s_{ij}} / \sum_l w_{il} e^{s_{il}}$. What is proven for every $w$ is proven for every mask and bias.
#
# Sums run over symbolic ranges: nothing below depends on how many tokens there are.

# %%
from sympy import Expr, IndexedBase, Matrix, Rational, Symbol, diff, exp, eye, log, symbols, zeros

from derivations.decide import equal_sums
from derivations.notation import (
    W_K,
    W_Q,
    W_V,
    T,
    a,
    b,
    b_K,
    b_Q,
    b_V,
    c,
    d,
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

w = IndexedBase("w")
s = IndexedBase("s")
rows_sum_to_one = RowStochastic(a, T, T)


def softmax_weight(score, query: Symbol, key: Symbol) -> Expr:
    """a_ij with the mask and bias as weights w; ``score(i, j)`` gives s_ij."""
    return w[query, key] * exp(score(query, key)) / over(m, w[query, m] * exp(score(query, m)))


# %% [markdown]
# ## The softmax
#
# Raise one score $s_{ij}$ a little. Its own weight grows, and all weights shrink in proportion to pay for it.


# %%
@step("A1.jacobian")
def softmax_derivative() -> Step:
    r"""$\partial a_{il} / \partial s_{ij} = a_{il} (\delta_{lj} - a_{ij})$"""

    def score(query, key):
        return s[query, key]

    own, moved = softmax_weight(score, i, l), softmax_weight(score, i, j)
    return Step(
        diff(own, s[i, j]),
        own * (delta(l, j) - moved),
        because="quotient rule; the sum over keys contributes only the key j",
        decide=equal_sums(),
        near_misses={"without the competition": own * delta(l, j), "sign": own * (delta(l, j) + moved)},
    )


# %% [markdown]
# ## The score
#
# The score $s_{il}$ hears $x_j$ twice: as a key when $l = j$, with slope $u_i = c\, W_K^T q_i$; and as the query when
# $i = j$, with slope $c\, W_Q^T k_l$.


# %%
def query(token: Symbol, place: Symbol) -> Expr:
    """q = W_Q x + b_Q, one entry."""
    return over(p, W_Q[place, p] * x[token, p]) + b_Q[place]


def key(token: Symbol, place: Symbol) -> Expr:
    """k = W_K x + b_K, one entry."""
    return over(p, W_K[place, p] * x[token, p]) + b_K[place]


def value(token: Symbol, place: Symbol) -> Expr:
    """v = W_V x + b_V, one entry."""
    return over(p, W_V[place, p] * x[token, p]) + b_V[place]


def score(first: Symbol, second: Symbol) -> Expr:
    """s_ij = c q_i . k_j."""
    return c * over(g, query(first, g) * key(second, g))


def slope(token: Symbol, place: Symbol) -> Expr:
    """u_i = c W_K^T q_i, one entry."""
    return c * over(g, W_K[g, place] * query(token, g))


@step("A1.jacobian")
def score_derivative() -> Step:
    r"""$\partial s_{il} / \partial x_j = \delta_{lj} u_i + \delta_{ij}\, c\, W_Q^T k_l$"""
    by_query = delta(i, j) * c * over(g, W_Q[g, r] * key(l, g))
    return Step(
        diff(score(i, l), x[j, r]),
        delta(l, j) * slope(i, r) + by_query,
        because="product rule for q_i . k_l",
        decide=equal_sums(),
        near_misses={
            "query side forgotten": delta(l, j) * slope(i, r),
            "key side halved": delta(l, j) * slope(i, r) / 2 + by_query,
        },
    )


# %% [markdown]
# ## The three paths
#
# The output is a product, weights times values, so its derivative has two parts. From here on $a$, $v$, $k$, $u$ are
# symbols; only $\sum_l a_{il} = 1$ is used.
#
# **Value path.** The weights stand still, the values move.


# %%
@step("A1.jacobian")
def value_path() -> Step:
    r"""$\sum_l a_{il}\, \partial v_l / \partial x_j = a_{ij} W_V$"""
    return Step(
        over(l, a[i, l] * diff(value(l, b), x[j, r])),
        a[i, j] * W_V[b, r],
        because="only v_j contains x_j",
        decide=equal_sums(),
        near_misses={"weights forgotten": W_V[b, r], "transposed weights": a[j, i] * W_V[b, r]},
    )


# %% [markdown]
# **Weight path.** The values stand still, the weights move. By the chain rule its block is $\sum_l \sum_m v_l\,
# (\partial a_{il}/\partial s_{im})\, (\partial s_{im}/\partial x_j)^T$. The score hears $x_j$ in two ways, so the
# path has two parts. The key part first: it pulls the output towards $v_j$, and away from the mean $o_i$.


# %%
def output(token: Symbol, place: Symbol) -> Expr:
    """o_i = sum_l a_il v_l, one entry."""
    return over(l, a[token, l] * v[l, place])


def mean_key(token: Symbol, place: Symbol) -> Expr:
    """kbar_i = sum_l a_il k_l, one entry."""
    return over(l, a[token, l] * k[l, place])


def covariance(first: IndexedBase, second: IndexedBase, row: Symbol, one: Symbol, other: Symbol) -> Expr:
    """Cov_i(y, z) = sum_l a_il (y_l - ybar_i)(z_l - zbar_i)^T, one entry."""
    first_mean = over(m, a[row, m] * first[m, one])
    second_mean = over(m, a[row, m] * second[m, other])
    return over(l, a[row, l] * (first[l, one] - first_mean) * (second[l, other] - second_mean))


def through_softmax(score_slope) -> Expr:
    """sum_l sum_m v_l a_il (delta_lm - a_im) times the slope of s_im."""
    return over(l, over(m, v[l, b] * a[i, l] * (delta(l, m) - a[i, m]) * score_slope(m)))


@step("A1.jacobian")
def key_part() -> Step:
    r"""key part $= a_{ij} (v_j - o_i) u_i^T$"""
    return Step(
        through_softmax(lambda key_index: delta(key_index, j) * u[i, r]),
        a[i, j] * (v[j, b] - output(i, b)) * u[i, r],
        because="the softmax derivative, contracted with delta_mj u_i",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "mean output forgotten": a[i, j] * v[j, b] * u[i, r],
            "sign": a[i, j] * (output(i, b) - v[j, b]) * u[i, r],
        },
    )


# %% [markdown]
# The query part: all scores of row $i$ move together, each along its own key. What survives the softmax is a
# covariance of values and keys under the row's weights. It needs $i = j$: no other row asks with $x_i$.


# %%
@step("A1.jacobian")
def query_part() -> Step:
    r"""query part $= \delta_{ij}\, c\, \mathrm{Cov}_i(v, k) W_Q$"""
    after = delta(i, j) * c * over(g, covariance(v, k, i, b, g) * W_Q[g, r])
    second_moment = over(g, over(l, a[i, l] * v[l, b] * k[l, g]) * W_Q[g, r])
    return Step(
        through_softmax(lambda key_index: delta(i, j) * c * over(g, W_Q[g, r] * k[key_index, g])),
        after,
        because="sum_l a_il v_l (k_l - kbar_i) is the covariance, since the rows of a sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"second moment": delta(i, j) * c * second_moment, "on every block": after / delta(i, j)},
    )


# %% [markdown]
# ## The whole block, by brute force
#
# The steps above rest on the chain rule. To be safe, forget them: substitute everything, differentiate once, and
# compare. Symbolic $T$, $d$, $d_k$, $d_v$; mask and bias in $w$; all three projection biases. The residual adds
# $r\, \delta_{ij} I$.


# %%
def weight(row: Symbol, token: Symbol) -> Expr:
    """a_ij written out as a function of the tokens."""
    return softmax_weight(score, row, token)


def mean(row: Symbol, feature) -> Expr:
    """The attention mean of ``feature(l)``, weights written out."""
    return over(l, weight(row, l) * feature(l))


@step("A1.jacobian")
def whole_block() -> Step:
    r"""$J_{ij} = r \delta_{ij} I + a_{ij} W_V + a_{ij} (v_j - o_i) u_i^T + \delta_{ij} c \mathrm{Cov}_i(v, k) W_Q$"""
    layer = residual * x[i, e] + mean(i, lambda t: value(t, e))

    def cov(first, second):
        return mean(i, lambda t: first(t) * second(t)) - mean(i, first) * mean(i, second)

    own_values = delta(i, j) * c * over(g, cov(lambda t: value(t, e), lambda t: key(t, g)) * W_Q[g, r])
    attended = weight(i, j) * W_V[e, r]
    attended += weight(i, j) * (value(j, e) - mean(i, lambda t: value(t, e))) * slope(i, r)
    straight = residual * delta(i, j) * delta(e, r)
    return Step(
        diff(layer, x[j, r]),
        straight + attended + own_values,
        because="one differentiation of the layer, nothing else",
        decide=equal_sums(),
        near_misses={"no query part": straight + attended},
    )


# %% [markdown]
# ## Two heads, written out
#
# The same with every symbol visible: three tokens in the plane, two heads of width one, an output projection
# $W_O$, a causal mask, a bias on the scores, and projection biases. Heads add: $J_{ij} = r\, \delta_{ij} I +
# \sum_h W_O^h [\ldots]^h$.
#
# Each head has a scale of its own, $c = 1/\sqrt{d_k}$ with its own $d_k$ (here 1).


# %%
TOKENS, WIDTH, HEADS = 3, 2, 2


def written_out_layer() -> tuple[Matrix, Matrix, list[dict]]:
    """The outputs h (3 x 2), the tokens (3 x 2), and per head its weights and forward pass."""
    tokens = Matrix(TOKENS, WIDTH, symbols(f"x:{TOKENS * WIDTH}"))
    projection = Matrix(WIDTH, HEADS, symbols(f"W_O:{WIDTH * HEADS}"))
    outputs, heads = residual * tokens, []
    for head in range(HEADS):
        w_q, w_k, w_v = (Matrix(1, WIDTH, symbols(f"{name}{head}_:{WIDTH}")) for name in ("W_Q", "W_K", "W_V"))
        q0, k0, v0 = symbols(f"b_Q{head} b_K{head} b_V{head}")
        queries, keys, values = (
            (tokens * w.T).applyfunc(lambda e, b0=b0: e + b0) for w, b0 in ((w_q, q0), (w_k, k0), (w_v, v0))
        )
        bias = Matrix(TOKENS, TOKENS, symbols(f"bias{head}_:{TOKENS**2}"))
        seen = [[exp(queries[t] * keys[n] + bias[t, n]) if n <= t else 0 for n in range(TOKENS)] for t in range(TOKENS)]
        weights = Matrix(TOKENS, TOKENS, lambda t, n, seen=seen: seen[t][n] / sum(seen[t]))
        outputs = outputs + weights * values * projection[:, head].T
        heads.append(
            {
                "a": weights,
                "k": keys,
                "v": values,
                "q": queries,
                "W_Q": w_q,
                "W_K": w_k,
                "W_V": w_v,
                "W_O": projection[:, head],
            }
        )
    return outputs, tokens, heads


def closed_form_block(heads: list[dict], row: int, column: int, *, query_factor: int = 1) -> Matrix:
    """J_ij by the formula, for the written-out layer."""
    block = residual * eye(WIDTH) if row == column else zeros(WIDTH, WIDTH)
    for h in heads:
        own = h["a"][row, :]
        out, mean_of_keys = (own * h["v"])[0], (own * h["k"])[0]
        inner = own[column] * h["W_V"] + own[column] * (h["v"][column] - out) * h["q"][row] * h["W_K"]
        if row == column:
            spread = sum(own[n] * (h["v"][n] - out) * (h["k"][n] - mean_of_keys) for n in range(TOKENS))
            inner += query_factor * spread * h["W_Q"]
        block += h["W_O"] * inner
    return block


def coefficients_of_projection(column: Matrix) -> Matrix:
    """A column is affine in W_O: its value at W_O = 0 and its slope in each entry of W_O say everything."""
    entries = symbols(f"W_O:{WIDTH * HEADS}")
    at_zero = column.xreplace(dict.fromkeys(entries, Rational(0)))
    return Matrix.hstack(at_zero, *(column.diff(entry) for entry in entries))


@step("A1.jacobian")
def two_heads_written_out() -> Step:
    r"""$J_{22}$ and $J_{21}$ of two heads with $W_O$, causal mask, biases: brute differentiation agrees"""
    outputs, tokens, heads = written_out_layer()
    columns = (2, 1)

    def stacked(blocks) -> Matrix:
        # The two coordinates of a token play one role; the first stands for both.
        return Matrix.hstack(*(coefficients_of_projection(block[:, 0]) for block in blocks))

    return Step(
        stacked(outputs[2, :].T.jacobian(tokens[column, :]) for column in columns),
        stacked(closed_form_block(heads, 2, column) for column in columns),
        because="differentiation of every entry, compared coefficient by coefficient of W_O",
        near_misses={
            "query part doubled": stacked(closed_form_block(heads, 2, column, query_factor=2) for column in columns)
        },
    )


# %% [markdown]
# ## Equal forms
#
# Off the diagonal the value path and the key part share the factor $W_V$: since $v_j - o_i = W_V (x_j - \bar{x}_i)$,
# $J_{ij} = a_{ij} W_V (I + (x_j - \bar{x}_i) u_i^T)$. The bias $b_V$ has gone: it moves every value alike.


# %%
def projected(token: Symbol, place: Symbol) -> Expr:
    """v = W_V x + b_V with its own summation index."""
    return over(p, W_V[place, p] * x[token, p]) + b_V[place]


def mean_token(row: Symbol, place: Symbol) -> Expr:
    """xbar_i = sum_l a_il x_l, one entry."""
    return over(l, a[row, l] * x[l, place])


@step("A1.forms")
def off_diagonal_form() -> Step:
    r"""$a_{ij} W_V + a_{ij} (v_j - o_i) u_i^T = a_{ij} W_V (I + (x_j - \bar{x}_i) u_i^T)$"""
    mean_value = over(l, a[i, l] * projected(l, b))
    inner = over(p, W_V[b, p] * (x[j, p] - mean_token(i, p)))
    return Step(
        a[i, j] * W_V[b, r] + a[i, j] * (projected(j, b) - mean_value) * u[i, r],
        a[i, j] * (W_V[b, r] + inner * u[i, r]),
        because="values are affine in tokens and rows sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "plain token": a[i, j] * (W_V[b, r] + over(p, W_V[b, p] * x[j, p]) * u[i, r]),
            "sign": a[i, j] * (W_V[b, r] - inner * u[i, r]),
        },
    )


# %% [markdown]
# The query part has a form in tokens alone. With $B = c\, W_Q^T W_K$ it is $W_V\, \mathrm{Cov}_i(x, x)\, B^T$.


# %%
@step("A1.forms")
def query_part_in_tokens() -> Step:
    r"""$c\, \mathrm{Cov}_i(v, k) W_Q = W_V\, \mathrm{Cov}_i(x, x)\, B^T$, $B = c\, W_Q^T W_K$"""

    def centred(feature):
        return lambda t: feature(t) - over(m, a[i, m] * feature(m))

    value_off, key_off = centred(lambda t: value(t, b)), centred(lambda t: key(t, g))
    one, other = symbols("p_1 p_2", integer=True, nonnegative=True)
    bilinear = c * over(g, W_Q[g, r] * W_K[g, other])
    in_tokens = over(one, over(other, W_V[b, one] * covariance(x, x, i, one, other) * bilinear, d), d)
    return Step(
        c * over(g, over(l, a[i, l] * value_off(l) * key_off(l)) * W_Q[g, r]),
        in_tokens,
        because="values and keys are affine in tokens",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"halved": in_tokens / 2},
    )


# %% [markdown]
# And $\mathrm{Cov}_i(x, x)$ is a Hessian. Let $\Phi_i(u) = \log \sum_j w_{ij} e^{u \cdot x_j}$, the log-sum-exp
# of the row as a function of its slope. Its gradient is the mean token, its Hessian the covariance. So the output
# is $o_i = W_V \nabla \Phi_i(u_i) + b_V$ and the query part $W_V \nabla^2 \Phi_i(u_i) B^T$: attention is the
# gradient of a convex function, and the query part its curvature. (Kim, Papamakarios and Mnih, 2006.04710, bound
# this curvature on a ball.)


# %%
z = IndexedBase("z")  # the argument u of Phi


def linear_weight(token: Symbol) -> Expr:
    """w_ij exp(u . x_j): the unnormalised weight as a function of the slope."""
    return w[i, token] * exp(over(p, z[p] * x[token, p]))


def tilted_mean(feature) -> Expr:
    """The mean of ``feature(l)`` under the weights of slope z."""
    return over(l, linear_weight(l) * feature(l)) / over(l, linear_weight(l))


@step("A1.forms")
def gradient_of_log_sum_exp() -> Step:
    r"""$\nabla \Phi_i(u) = \bar{x}_i$, so $o_i = W_V \nabla \Phi_i(u_i) + b_V$"""
    return Step(
        diff(log(over(l, linear_weight(l))), z[r]),
        tilted_mean(lambda t: x[t, r]),
        because="chain rule for the logarithm",
        decide=equal_sums(),
        near_misses={"unnormalised": over(l, linear_weight(l) * x[l, r])},
    )


@step("A1.forms")
def hessian_of_log_sum_exp() -> Step:
    r"""$\nabla^2 \Phi_i(u) = \mathrm{Cov}_i(x, x)$: the log-sum-exp form equals the covariance form"""
    second = tilted_mean(lambda t: x[t, e] * x[t, r])
    return Step(
        diff(log(over(l, linear_weight(l))), z[e], z[r]),
        second - tilted_mean(lambda t: x[t, e]) * tilted_mean(lambda t: x[t, r]),
        because="quotient rule",
        decide=equal_sums(),
        near_misses={"second moment": second},
    )


# %% [markdown]
# ## The sum rule
#
# Move all tokens together. The key parts cancel: if every key moves by the same amount, a softmax does not notice. So
# $\sum_j J_{ij} = r I + W_V (I + \mathrm{Cov}_i(x, x) B^T)$.


# %%
@step("A1.sum")
def key_parts_cancel() -> Step:
    r"""$\sum_j a_{ij} (v_j - o_i) u_i^T = 0$"""
    return Step(
        over(j, a[i, j] * (v[j, b] - output(i, b)) * u[i, r]),
        Rational(0),
        because="deviations from a mean average to zero",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"without the centring": output(i, b) * u[i, r]},
    )


@step("A1.sum")
def row_sum() -> Step:
    r"""$\sum_j J_{ij} = r I + W_V (I + \mathrm{Cov}_i(x, x) B^T)$"""
    one, other = symbols("p_1 p_2", integer=True, nonnegative=True)
    block = residual * delta(i, j) * delta(e, r) + a[i, j] * W_V[e, r]
    block += a[i, j] * (v[j, e] - output(i, e)) * u[i, r]
    curvature = over(
        one,
        over(other, W_V[e, one] * covariance(x, x, i, one, other) * c * over(g, W_Q[g, r] * W_K[g, other]), d),
        d,
    )
    after = residual * delta(e, r) + W_V[e, r] + curvature
    return Step(
        over(j, block + delta(i, j) * curvature),
        after,
        because="rows sum to one, key parts cancel, the query part and the residual occur once",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"query part on every block": after + (T - 1) * curvature},
    )


# %% [markdown]
# ## The covariance split
#
# How much of the query part is the row's own doing? Write $o'_i$, $\bar{k}'_i$, $\mathrm{Cov}'_i$ for the same
# row with its own key taken out and the rest rescaled: $a'_{ij} = a_{ij}/(1 - a_{ii})$ for $j \ne i$. Then
#
# $$\mathrm{Cov}_i = (1 - a_{ii}) \mathrm{Cov}'_i + a_{ii}(1 - a_{ii}) (v_i - o'_i)(k_i - \bar{k}'_i)^T.$$
#
# A mask on the diagonal removes the second term, which has rank one, **and enlarges the first** by $1/(1 -
# a_{ii})$. Note A5 uses this to settle what a diagonal mask does.


# %%
def without_own_key(feature: IndexedBase, place: Symbol) -> Expr:
    """The row's mean of a feature with the own key taken out."""
    return over(l, a[i, l] * (1 - delta(l, i)) * feature[l, place]) / (1 - a[i, i])


@step("A1.split")
def covariance_split() -> Step:
    r"""$\mathrm{Cov}_i = (1 - a_{ii})\, \mathrm{Cov}'_i + a_{ii} (1 - a_{ii}) (v_i - o'_i)(k_i - \bar{k}'_i)^T$"""
    own = a[i, i]
    mean_v, mean_k = without_own_key(v, b), without_own_key(k, g)
    product_mean = over(l, a[i, l] * (1 - delta(l, i)) * v[l, b] * k[l, g]) / (1 - own)
    rest = product_mean - mean_v * mean_k
    jump = (v[i, b] - mean_v) * (k[i, g] - mean_k)
    return Step(
        covariance(v, k, i, b, g),
        (1 - own) * rest + own * (1 - own) * jump,
        because="the law of total covariance for two groups: the own key, and the rest",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "jump without 1 - a_ii": (1 - own) * rest + own * jump,
            "rest unscaled": rest + own * (1 - own) * jump,
        },
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("a1_jacobian"))
