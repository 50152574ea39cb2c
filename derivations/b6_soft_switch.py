r"""B6. The soft switch: how far is an attention head from a token-wise map?

P2 claims: with diagonal patterns attention acts on each token alone, as an MLP does, and a sink then makes a switch.

Our statements:

    a = I (a limit): h_i = (r I + W_O W_V) x_i, token-wise and linear
    self and a sink with v_0 = 0 only: o_i = g_i W_V x_i, g_i = sigmoid(x_i^T B (x_i - x_0)), a gated linear
        unit with one scalar gate of quadratic argument
    in general, with leak l_i = 1 - a_i0 - a_ii and g_i = a_ii/(a_ii + a_i0):
        ||o_i - g_i v_i|| <= l_i (1 + g_i) max_{j >= 1} ||v_j||

Steps of this note follow that order.
"""

# %% [markdown]
# # B6. The soft switch
#
# Attention mixes tokens; an MLP treats each token alone. When a row looks at nothing but itself and the
# sink, no mixing is left, and the head is a token-wise map. P2 sees a *soft switch* in this: the row
# divides its weight between itself (on) and the sink (off). What map is it, and how far is a real head from
# it?
#
# ## The pure diagonal
#
# Let $a_{ij} = \delta_{ij}$. Then the layer returns $h_i = r x_i + W_O v_i = (r I + W_O W_V) x_i$:
# token-wise, and **linear**. It is not an MLP yet: there is no nonlinearity.

# %%
from sympy import Expr, IndexedBase, Matrix, Rational, Symbol, exp, limit, oo, symbols

from derivations.decide import at_most, equal_sums
from derivations.notation import (
    W_K,
    W_Q,
    W_V,
    T,
    a,
    b,
    c,
    delta,
    e,
    g,
    i,
    i_0,
    l,
    m,
    over,
    p,
    r,
    residual,
    v,
    x,
)
from derivations.steps import Step, step
from derivations.summation import RowStochastic

rows_sum_to_one = RowStochastic(a, T, T)
W_O = IndexedBase("W_O")


@step("B6.token-wise")
def diagonal_layer() -> Step:
    r"""$r x_i + W_O \sum_l \delta_{il} W_V x_l = (r I + W_O W_V) x_i$"""
    attended = over(l, delta(i, l) * over(p, W_V[b, p] * x[l, p]))
    product = over(b, W_O[e, b] * W_V[b, p])
    return Step(
        residual * x[i, e] + over(b, W_O[e, b] * attended),
        over(p, (residual * delta(e, p) + product) * x[i, p]),
        because="each row picks its own value",
        decide=equal_sums(),
        near_misses={
            "residual forgotten": over(p, product * x[i, p]),
            "doubled": 2 * over(p, product * x[i, p]),
        },
    )


# %% [markdown]
# $a = I$ is a limit: with finite scores every seen key keeps some weight. If the own score leads all the
# other $n$ by a margin $\lambda$, then $a_{ii} \ge 1/(1 + n e^{-\lambda})$, which tends to 1.


# %%
@step("B6.token-wise")
def diagonal_in_the_limit() -> Step:
    r"""$n$ other keys, each $\lambda$ behind: $a_{ii} = \frac{e^\lambda}{e^\lambda + n} \to 1$"""
    margin, number = symbols("lambda n", positive=True)
    return Step(
        limit(exp(margin) / (exp(margin) + number), margin, oo),
        Rational(1),
        because="the margin outgrows the fixed number of keys",
        near_misses={"half": Rational(1, 2)},
    )


# %% [markdown]
# ## Self and sink
#
# Now the row sees itself and a sink of value 0. Its output is $o_i = a_{ii} v_i$: the own value, **scaled
# by a gate**. A softmax over two scores is a sigmoid of their difference, and the difference is
# $s_{ii} - s_{i0} = x_i^T B (x_i - x_0)$ with $B = c\, W_Q^T W_K$. So
#
# $$o_i = \sigma\bigl(x_i^T B (x_i - x_0)\bigr)\, W_V x_i.$$
#
# This is a gated linear unit, $\sigma(\cdot)$ times a linear map, in the manner of Dauphin et al.
# (1612.08083). Two things differ from a GLU layer of an MLP: one head has **one** gate for all of its
# coordinates, and the gate's argument is **quadratic** in $x_i$. This is a nonlinear token-wise map: the
# sink is what makes the diagonal one.


# %%
def score(row: Symbol, key: Symbol) -> Expr:
    """s_ij = c q_i . k_j without biases."""
    return c * over(g, over(p, W_Q[g, p] * x[row, p]) * over(p, W_K[g, p] * x[key, p]))


@step("B6.gate")
def two_scores_make_a_sigmoid() -> Step:
    r"""$a_{ii} = \sigma(s_{ii} - s_{i0})$, and $o_i = a_{ii} v_i + a_{i0} \cdot 0$"""
    own, sink, value = symbols("s_ii s_i0 v_i", real=True)
    output = (exp(own) * value + exp(sink) * 0) / (exp(own) + exp(sink))
    return Step(
        output,
        value / (1 + exp(-(own - sink))),
        because="divide by the larger exponential",
        near_misses={"sign": value / (1 + exp(own - sink)), "own score alone": value / (1 + exp(-own))},
    )


@step("B6.gate")
def argument_is_quadratic() -> Step:
    r"""$s_{ii} - s_{i0} = x_i^T B (x_i - x_0)$, $B = c\, W_Q^T W_K$"""
    bilinear = c * over(g, W_Q[g, p] * W_K[g, r])
    after = over(p, over(r, x[i, p] * bilinear * (x[i, r] - x[i_0, r])))
    return Step(
        score(i, i) - score(i, i_0),
        after,
        because="both scores share the query of x_i",
        decide=equal_sums(),
        near_misses={
            "sink forgotten": over(p, over(r, x[i, p] * bilinear * x[i, r])),
            "B transposed": over(p, over(r, x[i, r] * bilinear * (x[i, p] - x[i_0, p]))),
        },
    )


# %% [markdown]
# ## Leak
#
# A real row also looks at other tokens. Call that weight the *leak*, $l_i = 1 - a_{i0} - a_{ii}$, and read
# the gate off the two weights that matter, $g_i = a_{ii} / (a_{ii} + a_{i0})$. (It is again the sigmoid of
# $s_{ii} - s_{i0}$: a softmax over more keys keeps proportions.) Then $a_{ii} = g_i (1 - l_i)$. Let $o''_i$
# be the mean of the other values under the row's weights. With $v_0 = 0$,
#
# $$o_i - g_i v_i = l_i (o''_i - g_i v_i).$$
#
# The lengths of $o''_i$ and $v_i$ are at most $\max_{j \ge 1} \|v_j\|$. So the head is within
# $l_i (1 + g_i) \max_{j \ge 1} \|v_j\|$ of the gated token-wise map: *how far a head is from an MLP*, as a
# number.

# %%
own, sink = a[i, i], a[i, i_0]
leak, gate = 1 - own - sink, own / (own + sink)


def mixed(token: Symbol) -> Expr:
    """1 for every token but the row's own and the sink (i is not the sink)."""
    return 1 - delta(token, i) - delta(token, i_0)


@step("B6.leak")
def leak_is_the_weight_of_the_others() -> Step:
    r"""$\sum_{l \ne i, 0} a_{il} = l_i$"""
    return Step(
        over(l, a[i, l] * mixed(l)),
        leak,
        because="rows sum to one",
        decide=equal_sums(rows_sum_to_one),
        near_misses={"sink counted": 1 - own},
    )


@step("B6.leak")
def distance_to_the_gated_map() -> Step:
    r"""$o_i - g_i v_i = \sum_{l \ne i, 0} a_{il} v_l - l_i g_i v_i = l_i (o''_i - g_i v_i)$"""
    others = over(l, a[i, l] * mixed(l) * v[l, b])
    output = over(l, a[i, l] * (1 - delta(l, i_0)) * v[l, b])
    return Step(
        output - gate * v[i, b],
        others - leak * gate * v[i, b],
        because="a_ii = g_i (1 - l_i)",
        decide=equal_sums(rows_sum_to_one),
        near_misses={
            "others alone": others,
            "gate forgotten": others - leak * v[i, b],
            "sign": others + leak * gate * v[i, b],
        },
    )


@step("B6.leak")
def gate_is_the_sigmoid() -> Step:
    r"""$a_{ii} / (a_{ii} + a_{i0}) = \sigma(s_{ii} - s_{i0})$ whatever the row's other scores are"""
    s = IndexedBase("s")
    partition = over(m, exp(s[i, m]))
    first, second = exp(s[i, i]) / partition, exp(s[i, i_0]) / partition
    return Step(
        first / (first + second),
        1 / (1 + exp(s[i, i_0] - s[i, i])),
        because="the partition function cancels",
        near_misses={"the own weight": first},
    )


@step("B6.leak")
def leak_bound_is_attained() -> Step:
    r"""values $0, 1, -1$, weights $\frac14, \frac14, \frac12$: $|o_i - g_i v_i| = \frac34 = \frac12 (1 + \frac12)$"""
    weights, values = Matrix([[1, 1, 2]]) / 4, Matrix([0, 1, -1])
    on = weights[1] / (weights[0] + weights[1])
    lost = 1 - weights[0] - weights[1]
    return Step(
        abs((weights * values)[0] - on * values[1]),
        lost * (1 + on) * 1,
        because="the other value points the opposite way",
        decide=at_most,
        relation="<=",
        near_misses={"without 1 + g_i": lost * 1},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b6_soft_switch"))
