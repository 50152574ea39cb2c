r"""B3. What a diagonal costs.

P2 compares sinks with diagonals. This note prices the diagonal, with x_1..x_n as queries and keys, and without x_0.

Our statements, C = sum_i (x_i - mu)(x_i - mu)^T the scatter matrix. A diagonal of margin m asks for
x_i^T B (x_i - x_j) >= m for all j != i:

    it costs at least m(n-1)/lambda_max(C) nuclear, m(n-1)/||C||_F Frobenius, m(n-1)/tr C spectral
    that is the price for orthonormal tokens, (n-1)m, sqrt(n-1) m, m, and for a simplex whose centroid is orthogonal to
    its edges; not in general: tokens 1 and 2 on a line cannot be done at all
    the price is a convex program, and every weighting of the pairs gives a lower bound
    finite for independent tokens and for distinct tokens of equal norm, infinite for repeated tokens
    rank 1 never does it for n >= 3; rank 2 does for orthonormal tokens, at nuclear price m n/(1 - cos(2 pi/n))

Steps of this note follow that order.
"""

# %% [markdown]
# # B3. What a diagonal costs
#
# A head makes a *diagonal* with margin $m > 0$ if every query scores its own key above every other key:
#
# $$x_s^T B\, (x_s - x_t) \ge m \qquad \text{for all } s \ne t \text{ in } 1, \ldots, n.$$
#
# (Here $s$ and $t$ number the tokens. With the sink as one more key to beat there are $n$ more conditions, so
# the price is at least the one of this note.)
#
# **The question.** How small can $B$ be, in the nuclear, Frobenius and spectral norm? For a sink one formula
# answers it for all norms (note B2). The diagonal is different: $B$ must tell all tokens apart, and rank and
# norm matter.
#
# In the code a sum over the tokens counts from 0.

# %%
from itertools import permutations, product

from sympy import (
    Expr,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Matrix,
    Rational,
    Symbol,
    cancel,
    cos,
    eye,
    ones,
    pi,
    sqrt,
    symbols,
    zeros,
)

from derivations.decide import below, equal_sums
from derivations.notation import B, C, d, delta, e, l, n, over, p, r, s, t, x
from derivations.steps import Step, step
from derivations.summation import InnerProduct

margin = Symbol("m", positive=True)
lam = IndexedBase("lambda")
k = Symbol("k", integer=True, nonnegative=True)
"""The token over which a mean runs."""


def own_score(query: Symbol, key: Symbol, matrix=lambda row, column: B[row, column]) -> Expr:
    """x_s^T B (x_s - x_t)."""
    return over(p, over(r, x[query, p] * matrix(p, r) * (x[query, r] - x[key, r])))


def centred(token: Symbol, place: Symbol, vectors: IndexedBase = x) -> Expr:
    """x_s - mu, one entry."""
    return vectors[token, place] - over(k, vectors[k, place], n) / n


def scatter(row: Symbol, column: Symbol, vectors: IndexedBase = x) -> Expr:
    """C = sum_s (x_s - mu)(x_s - mu)^T, one entry."""
    return over(s, centred(s, row, vectors) * centred(s, column, vectors))


# %% [markdown]
# ## Lower bounds: average all constraints
#
# Add up the margins of all pairs. The pairs $s = t$ add 0, so we may include them. What comes out sees the
# tokens through one matrix only, the scatter matrix.


# %%
@step("B3.bounds")
def sum_of_margins() -> Step:
    r"""$\sum_{s, t} x_s^T B (x_s - x_t) = n\, \langle B, C \rangle$, $C = \sum_s (x_s - \mu)(x_s - \mu)^T$"""
    uncentred = over(s, x[s, p] * x[s, r])
    return Step(
        over(s, over(t, own_score(s, t))),
        n * over(p, over(r, B[p, r] * scatter(p, r))),
        because="sum x_s x_s^T = C + n mu mu^T",
        decide=equal_sums(),
        near_misses={
            "not centred": n * over(p, over(r, B[p, r] * uncentred)),
            "factor n forgotten": over(p, over(r, B[p, r] * scatter(p, r))),
        },
    )


@step("B3.bounds")
def number_of_margins() -> Step:
    r"""$\sum_{s, t} (1 - \delta_{st})\, m = n (n - 1)\, m$"""
    return Step(
        over(s, over(t, (1 - delta(s, t)) * margin)),
        n * (n - 1) * margin,
        because="each query has n - 1 other keys",
        decide=equal_sums(),
        near_misses={"own pairs counted": n**2 * margin},
    )


# %% [markdown]
# So $\langle B, C \rangle \ge (n - 1)\, m$ for every $B$ that makes the diagonal. How large can
# $\langle B, C \rangle$ be if $\|B\|$ is given?
#
# **Frobenius.** $\langle B, C \rangle \le \|B\|_F \|C\|_F$, by Lagrange's identity.


# %%
@step("B3.bounds")
def frobenius_pairing() -> Step:
    r"""$\|B\|_F^2 \|C\|_F^2 - \langle B, C \rangle^2 = \frac12 \sum (B_{pr} C_{ef} - B_{ef} C_{pr})^2 \ge 0$"""
    f = Symbol("f", integer=True, nonnegative=True)
    pairing = over(p, over(r, B[p, r] * C[p, r]))
    squares = over(p, over(r, over(e, over(f, (B[p, r] * C[e, f] - B[e, f] * C[p, r]) ** 2, d))))
    return Step(
        over(p, over(r, B[p, r] ** 2)) * over(p, over(r, C[p, r] ** 2)) - pairing**2,
        squares / 2,
        because="Lagrange's identity",
        decide=equal_sums(),
        near_misses={"not halved": squares},
    )


# %% [markdown]
# **Spectral.** With centred tokens $y_s = x_s - \mu$ the pairing is $\sum_s y_s^T B y_s$, and each term is at
# most $\|B\|_2 \|y_s\|^2$. The lengths add up to $\mathrm{tr}\, C$.


# %%
@step("B3.bounds")
def spectral_pairing() -> Step:
    r"""$\langle B, C \rangle = \sum_s y_s^T B y_s$ and $\sum_s \|y_s\|^2 = \mathrm{tr}\, C$, $y_s = x_s - \mu$"""
    first, second = symbols("z_1 z_2")
    quadratic = over(s, over(p, over(r, centred(s, p) * B[p, r] * centred(s, r))))
    lengths = over(s, over(p, centred(s, p) ** 2))
    return Step(
        first * over(p, over(r, B[p, r] * scatter(p, r))) + second * over(p, scatter(p, p)),
        first * quadratic + second * lengths,
        because="sums exchanged; z_1 and z_2 keep the two statements apart",
        decide=equal_sums(),
        near_misses={"tokens not centred": first * quadratic + second * over(s, over(p, x[s, p] ** 2))},
    )


# %% [markdown]
# **Nuclear.** Let $B = \sum_f \sigma_f u_f v_f^T$ with unit vectors. Then
# $\langle B, C \rangle = \sum_f \sigma_f\, u_f^T C v_f$, and each $u^T C v$ is at most the mean of $u^T C u$
# and $v^T C v$, because $C$ is a sum of squares. Both are at most $\lambda_{\max}(C)$. So
# $\langle B, C \rangle \le \|B\|_* \lambda_{\max}(C)$.


# %%
@step("B3.bounds")
def nuclear_pairing() -> Step:
    r"""$\frac12 (u^T C u + v^T C v) - u^T C v = \frac12 \sum_s (y_s \cdot (u - v))^2 \ge 0$"""
    u, v = IndexedBase("u"), IndexedBase("v")

    def form(one: IndexedBase, other: IndexedBase) -> Expr:
        return over(p, over(r, one[p] * scatter(p, r) * other[r]))

    squares = over(s, over(p, centred(s, p) * (u[p] - v[p])) ** 2)
    return Step(
        (form(u, u) + form(v, v)) / 2 - form(u, v),
        squares / 2,
        because="C is positive semidefinite",
        decide=equal_sums(),
        near_misses={"not halved": squares},
    )


# %% [markdown]
# Together, for every $B$ that makes the diagonal with margin $m$:
#
# $$\|B\|_* \ge \frac{m (n-1)}{\lambda_{\max}(C)}, \qquad \|B\|_F \ge \frac{m (n-1)}{\|C\|_F}, \qquad
# \|B\|_2 \ge \frac{m (n-1)}{\mathrm{tr}\, C}.$$
#
# The more the tokens scatter, the cheaper the diagonal can be.
#
# ## Equality: orthonormal tokens
#
# Let the tokens be orthonormal. Then $C$ is a projection ($C^2 = C$) of trace $n - 1$: onto the differences of
# tokens. So $\lambda_{\max}(C) = 1$, $\|C\|_F^2 = n - 1$, and the bounds are $(n-1) m$, $\sqrt{n-1}\, m$ and
# $m$.


# %%
def unit_vectors(vectors: IndexedBase) -> InnerProduct:
    """sum_p x_sp x_tp = delta_st; three orthonormal rows of rationals at the size where near-misses are refuted."""
    rows = Matrix([[2, -1, 2], [2, 2, -1], [-1, 2, 2]]) / 3
    entries = {vectors[row, column]: rows[row, column] for row in range(3) for column in range(3)}
    return InnerProduct(vectors, vectors, d, KroneckerDelta, lambda: entries)


IN_SPACE = {n: 3, d: 3}
"""The sizes of that instance."""


@step("B3.simplex")
def orthonormal_scatter_is_a_projection() -> Step:
    r"""$C^2 = C$ for orthonormal tokens"""
    return Step(
        over(e, scatter(p, e) * scatter(e, r)),
        scatter(p, r),
        because="the centred tokens have inner products delta_st - 1/n",
        decide=equal_sums(unit_vectors(x), sizes=IN_SPACE),
        near_misses={"twice": 2 * scatter(p, r), "tokens not centred": over(s, x[s, p] * x[s, r])},
    )


@step("B3.simplex")
def orthonormal_trace() -> Step:
    r"""$\mathrm{tr}\, C = n - 1$ for orthonormal tokens"""
    return Step(
        over(p, scatter(p, p)),
        n - 1,
        because="each of n centred tokens has squared length 1 - 1/n",
        decide=equal_sums(unit_vectors(x), sizes=IN_SPACE),
        near_misses={"n": n},
    )


# %% [markdown]
# The matrix $B = m\, C$ attains all three: every margin is exactly $m$, and its singular values are $m$,
# $n - 1$ times.


# %%
@step("B3.simplex")
def orthonormal_margins() -> Step:
    r"""$x_s^T (m C)(x_s - x_t) = m\, (1 - \delta_{st})$ for orthonormal tokens"""
    return Step(
        own_score(s, t, lambda row, column: margin * over(l, centred(l, row) * centred(l, column), n)),
        margin * (1 - delta(s, t)),
        because="x_s^T C x_t = delta_st - 1/n",
        decide=equal_sums(unit_vectors(x), sizes=IN_SPACE),
        near_misses={"half the margin": margin * (1 - delta(s, t)) / 2},
    )


# %% [markdown]
# ## The same by symmetry
#
# There is a second way to see it, which shows *why* the price has this form. Orthonormal tokens look the same
# after any permutation, and a permutation is an orthogonal matrix. So if $B$ makes the diagonal, then so does
# every permuted copy, at the same norm; and so does their mean, at a norm that is not larger. The mean is
# invariant, and an invariant matrix is $\alpha I + \beta\, 1 1^T$: one number on the diagonal, one off it.
# (Written out for three and four tokens.)


# %%
def permutation_mean(size: int) -> tuple[Matrix, Matrix]:
    """The mean of B over all permutations of rows and columns, and the matrix alpha I + beta 1 1^T it should be."""
    entries = Matrix(size, size, symbols(f"B:{size * size}"))
    group = list(permutations(range(size)))
    mean = sum((entries.extract(list(order), list(order)) for order in group), zeros(size, size)) / len(group)
    on = entries.trace() / size
    off = (sum(entries) - entries.trace()) / (size * (size - 1))
    return mean, (on - off) * eye(size) + off * ones(size, size)


@step("B3.simplex")
def group_mean_of_three() -> Step:
    r"""$n = 3$: the mean over all 6 permutations is $\alpha I + \beta\, 1 1^T$"""
    mean, invariant = permutation_mean(3)
    return Step(
        mean,
        invariant,
        because="alpha + beta is the mean of the diagonal, beta the mean off it",
        near_misses={"multiple of the identity": invariant - invariant[0, 1] * ones(3, 3)},
    )


@step("B3.simplex")
def group_mean_of_four() -> Step:
    r"""$n = 4$: the mean over all 24 permutations is $\alpha I + \beta\, 1 1^T$"""
    mean, invariant = permutation_mean(4)
    return Step(
        mean,
        invariant,
        because="alpha + beta is the mean of the diagonal, beta the mean off it",
        near_misses={"multiple of the identity": invariant - invariant[0, 1] * ones(4, 4)},
    )


# %% [markdown]
# For every $n$: each diagonal entry of the mean is the mean of the $B_{ss}$, since a permutation takes $s$ to
# every place equally often, and each entry off the diagonal is the mean of all $B_{st}$, since it takes a pair
# to every pair equally often. So $\alpha$ is the mean margin over all pairs, and $\alpha \ge m$.


# %%
@step("B3.simplex")
def alpha_is_the_mean_margin() -> Step:
    r"""the mean of $B_{ss} - B_{st}$ over $s \ne t$ is the mean of $B_{ss}$ less the mean of $B_{st}$, $s \ne t$"""
    on, off = over(s, B[s, s]) / n, over(s, over(t, (1 - delta(s, t)) * B[s, t])) / (n * (n - 1))
    return Step(
        over(s, over(t, B[s, s] - B[s, t])) / (n * (n - 1)),
        on - off,
        because="the pairs s = t add nothing on the left",
        decide=equal_sums(),
        near_misses={"own pairs kept in the mean": on - over(s, over(t, B[s, t])) / n**2},
    )


# %% [markdown]
# The matrix $\alpha I + \beta\, 1 1^T$ multiplies vectors of sum zero by $\alpha$ and the vector of ones by
# $\alpha + n \beta$. So its singular values are $|\alpha|$, $n - 1$ times, and $|\alpha + n \beta|$. No norm is
# hurt by $\beta = -\alpha/n$, which makes the last one zero. What remains is $\alpha \ge m$, $n - 1$ times: the
# same price.


# %%
@step("B3.simplex")
def invariant_matrix_spectrum() -> Step:
    r"""$(\alpha I + \beta\, 1 1^T)\, w = \alpha w + \beta\, (\sum_t w_t)\, 1$"""
    on, off = symbols("alpha beta")
    w = IndexedBase("w")
    return Step(
        over(t, (on * delta(s, t) + off) * w[t]),
        on * w[s] + off * over(t, w[t]),
        because="one sum",
        decide=equal_sums(),
        near_misses={"ones forgotten": on * w[s]},
    )


# %% [markdown]
# ## Equality: a simplex
#
# A regular simplex looks like orthonormal tokens that are moved and scaled: $x_s = f + \rho\, e_s$ with
# orthonormal $e_s$. Let its centroid be orthogonal to its edges; this says that $f \cdot e_s$ is one number
# $\phi$ for all $s$. Then $C$ is $\rho^2$ times the projection $P$ onto the edges, the bounds shrink by
# $\rho^2$, and $B = (m/\rho^2)\, P$ attains them. Moving the simplex along $f$ costs nothing and gains nothing.
# (For the sink it is the shared direction $f$ that makes $g_q$ large: note B4.)


# %%
shift, frame = IndexedBase("f"), IndexedBase("e")
radius, overlap = symbols("rho phi", positive=True)


def simplex(token: Symbol, place: Symbol) -> Expr:
    """x_s = f + rho e_s, one entry."""
    return shift[place] + radius * frame[token, place]


def edges(row: Symbol, column: Symbol) -> Expr:
    """The projection onto the edges, one entry."""
    return over(l, centred(l, row, frame) * centred(l, column, frame), n)


def simplex_rules() -> tuple[InnerProduct, InnerProduct]:
    """e_s . e_t = delta_st and f . e_s = phi; at the small size phi = 1 and f is the sum of the frame."""
    instance = dict(unit_vectors(frame).instance())
    total = {shift[column]: sum(instance[frame[row, column]] for row in range(3)) for column in range(3)}
    to_frame = InnerProduct(shift, frame, d, lambda _token: overlap, lambda: {**total, overlap: Integer(1)})
    return unit_vectors(frame), to_frame


@step("B3.simplex")
def simplex_margins() -> Step:
    r"""$x_s^T\, \frac{m}{\rho^2} P\, (x_s - x_t) = m\, (1 - \delta_{st})$ for the simplex $x_s = f + \rho e_s$"""
    score = over(p, over(r, simplex(s, p) * margin / radius**2 * edges(p, r) * (simplex(s, r) - simplex(t, r))))
    return Step(
        score,
        margin * (1 - delta(s, t)),
        because="P f = 0, and P e_s is e_s less the mean",
        decide=equal_sums(*simplex_rules(), sizes=IN_SPACE),
        near_misses={"radius not squared": radius * margin * (1 - delta(s, t))},
    )


@step("B3.simplex")
def simplex_scatter() -> Step:
    r"""$C = \rho^2 P$ for $x_s = f + \rho e_s$"""
    mean = over(l, simplex(l, p), n) / n, over(l, simplex(l, r), n) / n
    return Step(
        over(s, (simplex(s, p) - mean[0]) * (simplex(s, r) - mean[1])),
        radius**2 * edges(p, r),
        because="the shift drops out of every difference",
        decide=equal_sums(*simplex_rules(), sizes=IN_SPACE),
        near_misses={"radius not squared": radius * edges(p, r)},
    )


# %% [markdown]
# ## The bounds are not the price in general
#
# Put two tokens on a line, at 1 and 2. The scatter is $C = \frac12$, so the bounds say $2 m$. But no number $B$
# makes the diagonal: token 1 wants $B < 0$, token 2 wants $B > 0$. The weights $\frac23$ and $\frac13$ on the
# two pairs prove it, since the weighted margins cancel.


# %%
LINE = (Integer(1), Integer(2))


@step("B3.loose")
def tokens_on_a_line_cannot_be_done() -> Step:
    r"""$\frac23 \cdot 1 B (1 - 2) + \frac13 \cdot 2 B (2 - 1) = 0$ for every $B$"""
    matrix = Symbol("B")
    first, second = LINE[0] * matrix * (LINE[0] - LINE[1]), LINE[1] * matrix * (LINE[1] - LINE[0])
    return Step(
        Rational(2, 3) * first + Rational(1, 3) * second,
        Integer(0),
        because="positive weights, so the two margins are not both positive",
        counterexample=True,
        near_misses={"equal weights": (first + second) / 2},
    )


@step("B3.loose")
def bound_on_a_line() -> Step:
    r"""tokens 1 and 2: $C = \frac12$, and the bound is $m (n - 1)/C = 2 m$"""
    mean = sum(LINE) / 2
    return Step(
        margin * (len(LINE) - 1) / sum((token - mean) ** 2 for token in LINE),
        2 * margin,
        because="(1/2)^2 + (1/2)^2 = 1/2",
        near_misses={"half": margin},
    )


# %% [markdown]
# ## The price is a convex program
#
# The set of $B$ that make the diagonal is cut out by linear inequalities, so the least norm is a convex
# program. Every weighting $\lambda_{st} \ge 0$ of the pairs bounds it from below: the weighted sum of the
# margins is a pairing of $B$ with one matrix $A_\lambda$, and a pairing is at most $\|B\|$ times the dual norm.
# (Dual to nuclear is spectral and conversely; Frobenius is its own dual.) So
# $\|B\| \ge m \sum \lambda_{st} / \|A_\lambda\|_{\mathrm{dual}}$.


# %%
@step("B3.program")
def every_weighting_is_a_bound() -> Step:
    r"""$\sum \lambda_{st}\, x_s^T B (x_s - x_t) = \langle B, \sum \lambda_{st}\, x_s (x_s - x_t)^T \rangle$"""
    weighted = over(s, over(t, lam[s, t] * x[s, p] * (x[s, r] - x[t, r])))
    by_key = over(s, over(t, lam[s, t] * x[t, p] * (x[s, r] - x[t, r])))
    return Step(
        over(s, over(t, lam[s, t] * own_score(s, t))),
        over(p, over(r, B[p, r] * weighted)),
        because="linear in B",
        decide=equal_sums(),
        near_misses={"key for query": over(p, over(r, B[p, r] * by_key))},
    )


# %% [markdown]
# The scatter bounds are the equal weights: $A_\lambda = n C$ for $\lambda = 1$. Conversely, **the best
# weighting gives the price**: if some $B$ makes the diagonal, a multiple of it makes all margins strictly
# larger than $m$, so the program has an interior point, and strong duality holds with the best $\lambda$
# attained. If none does, weights with $A_\lambda = 0$ prove it (Farkas), and the bound is infinite. Numerics
# computes both sides and believes only their gap.
#
# **Two tokens in closed form.** For $n = 2$ the matrix $A_\lambda$ has rank 1, so all norms agree, and the
# price is $m/(\|x_1 - x_2\|\, \mathrm{dist}(0, \mathrm{conv}\{x_1, -x_2\}))$: a diagonal of two tokens is a
# sink in disguise. It is infinite iff the tokens are equal, one of them is 0, or both point the same way, as on the
# line above.


# %%
@step("B3.program")
def equal_weights_give_the_scatter() -> Step:
    r"""$\sum_{s, t} x_s (x_s - x_t)^T = n\, C$"""
    return Step(
        over(s, over(t, x[s, p] * (x[s, r] - x[t, r]))),
        n * scatter(p, r),
        because="sum x_s x_s^T = C + n mu mu^T",
        decide=equal_sums(),
        near_misses={"factor n forgotten": scatter(p, r)},
    )


@step("B3.program")
def two_tokens_have_rank_one() -> Step:
    r"""$n = 2$: $\lambda\, x_1 (x_1 - x_2)^T + \kappa\, x_2 (x_2 - x_1)^T = (\lambda x_1 - \kappa x_2)(x_1 - x_2)^T$"""
    first, second = (Matrix(symbols(f"{name}_1:4")) for name in "yz")
    one, other = symbols("lambda kappa", positive=True)
    return Step(
        one * first * (first - second).T + other * second * (second - first).T,
        (one * first - other * second) * (first - second).T,
        because="both keys differ along one line",
        near_misses={"sign": (one * first + other * second) * (first - second).T},
    )


# %% [markdown]
# ## When is the price finite?
#
# **Independent tokens.** There are dual vectors $w_l$ with $w_l \cdot x_s = \delta_{ls}$. They send the tokens
# to orthonormal ones, so $B = m \sum_l w_l w_l^T$ makes the diagonal.


# %%
@step("B3.finite")
def independent_tokens() -> Step:
    r"""$x_s^T \bigl(m \sum_l w_l w_l^T\bigr)(x_s - x_t) = m\, (1 - \delta_{st})$ if $w_l \cdot x_s = \delta_{ls}$"""
    w = IndexedBase("w")
    rows = Matrix([[1, 1, 0], [0, 1, 0], [0, 2, 1]])
    dual = rows.inv().T
    entries = {x[row, column]: rows[row, column] for row in range(3) for column in range(3)}
    entries |= {w[row, column]: dual[row, column] for row in range(3) for column in range(3)}
    to_dual = InnerProduct(w, x, d, KroneckerDelta, lambda: entries)
    return Step(
        own_score(s, t, lambda row, column: margin * over(l, w[l, row] * w[l, column], n)),
        margin * (1 - delta(s, t)),
        because="the dual vectors read off one token each",
        decide=equal_sums(to_dual, sizes=IN_SPACE),
        near_misses={"own pairs too": margin},
    )


# %% [markdown]
# **Equal norms.** If the tokens are distinct and equally long, even $B = \beta I$ does it: a token is most
# similar to itself. (The same fact forbids the sink at $B = \beta I$: note B1.)


# %%
@step("B3.finite")
def equal_norms() -> Step:
    r"""$x_s \cdot (x_s - x_t) = \frac12 \|x_s - x_t\|^2 + \frac12 (\|x_s\|^2 - \|x_t\|^2)$"""
    gap = over(e, (x[s, e] - x[t, e]) ** 2)
    norms = over(e, x[s, e] ** 2) - over(e, x[t, e] ** 2)
    return Step(
        over(e, x[s, e] * (x[s, e] - x[t, e])),
        (gap + norms) / 2,
        because="the polarisation identity",
        decide=equal_sums(),
        near_misses={"whatever the norms": gap / 2},
    )


# %% [markdown]
# **Repeated tokens.** If $x_t = x_s$, the margin of that pair is 0 for every $B$. A head cannot tell twins
# apart, so the price is infinite. (A sink does not mind: the hulls do not change when a token is repeated.)


# %%
@step("B3.finite")
def repeated_tokens() -> Step:
    r"""$x_s^T B (x_s - x_t) = 0$ for every $B$ if $x_t = x_s$"""
    twin = own_score(s, t).xreplace({x[t, r]: x[s, r]})
    return Step(
        twin,
        Integer(0),
        because="the key's difference is 0",
        decide=equal_sums(),
        near_misses={"score of the token": over(p, over(r, x[s, p] * B[p, r] * x[s, r]))},
    )


# %% [markdown]
# ## Rank 1 is not enough
#
# Let $B = u v^T$, and write $a_s = u \cdot x_s$ and $b_s = v \cdot x_s$. The margin of a pair is
# $a_s (b_s - b_t)$. So a token with $a_s > 0$ must have the largest $b$, and one with $a_s < 0$ the smallest;
# $a_s = 0$ will not do. Two tokens whose $a$ have the same sign contradict each other: weight the two margins
# with the other's $|a|$, and they cancel.


# %%
@step("B3.rank-one")
def equal_signs_contradict() -> Step:
    r"""$a_t \cdot a_s (b_s - b_t) + a_s \cdot a_t (b_t - b_s) = 0$"""
    a_s, a_t, b_s, b_t = symbols("a_s a_t b_s b_t", real=True)
    one, other = a_s * (b_s - b_t), a_t * (b_t - b_s)
    return Step(
        a_t * one + a_s * other,
        Integer(0),
        because="the two margins pull b_s - b_t in opposite directions",
        near_misses={"own weights": a_s * one + a_t * other},
    )


# %% [markdown]
# So among the tokens each sign occurs at most once, and zero never. Go through all sign patterns: for two
# tokens two patterns survive, $(+, -)$ and $(-, +)$; for three tokens none does, and so none for more (they
# contain three). **Rank 1 never makes a diagonal of three tokens.** A sink, if it can be represented at all,
# needs only rank 1 and pays its full price there (note B2).


# %%
def surviving_patterns(tokens: int) -> Integer:
    """How many patterns of signs of a_1 .. a_n contain no zero and no sign twice."""
    patterns = product((-1, 0, 1), repeat=tokens)
    return Integer(sum(0 not in pattern and len(set(pattern)) == tokens for pattern in patterns))


@step("B3.rank-one")
def no_pattern_survives() -> Step:
    r"""of the 27 sign patterns of three tokens none survives; of the 9 of two tokens two do"""
    return Step(
        Matrix([surviving_patterns(3), surviving_patterns(2)]),
        Matrix([0, 2]),
        because="three tokens, two signs",
        near_misses={"two tokens fail as well": Matrix([0, 0])},
    )


@step("B3.rank-one")
def two_tokens_at_rank_one() -> Step:
    r"""orthonormal $x_1, x_2$ and $B = \frac{m}{2} (x_1 - x_2)(x_1 - x_2)^T$: both margins are $m$, at rank 1"""
    tokens = eye(2)
    edge = tokens[0, :] - tokens[1, :]
    scores = tokens * (margin / 2 * edge.T * edge) * tokens.T
    return Step(
        Matrix([scores[0, 0] - scores[0, 1], scores[1, 1] - scores[1, 0]]),
        Matrix([margin, margin]),
        because="a_1 = 1, a_2 = -1",
        near_misses={"half the margin": Matrix([margin, margin]) / 2},
    )


# %% [markdown]
# ## Rank 2 can be enough: the circle
#
# Send $n$ orthonormal tokens to $n$ evenly spaced points of a circle, and let the score be the inner product
# there: $x_s^T B x_t = \kappa \cos(\theta_s - \theta_t)$ with $\theta_s = 2 \pi s/n$. This $B$ has rank at most
# 2 and is positive semidefinite. The margin of a pair is $\kappa\, (1 - \cos(\theta_s - \theta_t))$.
#
# Trigonometry is decided by rational functions: with $\tan(\theta/2)$ for $\theta$, cosine and sine are
# rational.


# %%
kappa = Symbol("kappa", positive=True)


def point(half_tangent: Symbol) -> tuple[Expr, Expr]:
    """(cos theta, sin theta) from tan(theta/2)."""
    scale = 1 + half_tangent**2
    return (1 - half_tangent**2) / scale, 2 * half_tangent / scale


@step("B3.rank-two")
def margins_on_the_circle() -> Step:
    r"""$\kappa\, z_s \cdot (z_s - z_t) = \kappa\, (1 - \cos(\theta_s - \theta_t))$, $z = (\cos \theta, \sin \theta)$"""
    one, other = symbols("tau_s tau_t", real=True)
    first, second = Matrix(point(one)), Matrix(point(other))
    half_difference = cancel((one - other) / (1 + one * other))
    after = kappa * (1 - point(half_difference)[0])
    return Step(
        kappa * first.dot(first - second),
        after,
        because="the cosine of a difference; tan of half of it is (tau_s - tau_t)/(1 + tau_s tau_t)",
        near_misses={"sine": kappa * (1 - point(half_difference)[1]), "halved": after / 2},
    )


# %% [markdown]
# Which pair has the least margin? Neighbours. With $y = \pi/n$ and $z = \pi k/n$ for a pair $k$ places apart,
# $\cos 2y - \cos 2z = 2 \sin(z + y) \sin(z - y)$. For $1 \le k \le n - 1$ both arguments lie between 0 and
# $\pi$, so this is not negative. So $\kappa = m/(1 - \cos(2 \pi/n))$ makes every margin at least $m$.


# %%
@step("B3.rank-two")
def neighbours_are_closest() -> Step:
    r"""$\cos 2y - \cos 2z = 2 \sin(z + y) \sin(z - y)$"""
    (cos_y, sin_y), (cos_z, sin_z) = (point(symbol) for symbol in symbols("tau_y tau_z", real=True))
    plus, minus = sin_z * cos_y + cos_z * sin_y, sin_z * cos_y - cos_z * sin_y
    return Step(
        (cos_y**2 - sin_y**2) - (cos_z**2 - sin_z**2),
        2 * plus * minus,
        because="the sum formulas",
        near_misses={"not doubled": plus * minus},
    )


# %% [markdown]
# What does it cost? $B$ is positive semidefinite, so its nuclear norm is its trace: $\kappa$ for each token.


# %%
@step("B3.rank-two")
def nuclear_norm_of_the_circle() -> Step:
    r"""$\mathrm{tr}\, B = \kappa \sum_s (\cos^2 \theta_s + \sin^2 \theta_s) = m\, n/(1 - \cos(2 \pi/n))$"""
    half_tangent = IndexedBase("tau")
    length = sum(entry**2 for entry in point(half_tangent[s]))
    price = margin / (1 - cos(2 * pi / n))
    return Step(
        over(s, price * cancel(length)),
        n * price,
        because="each point of the circle has length 1",
        decide=equal_sums(),
        near_misses={"n - 1 tokens": (n - 1) * price},
    )


# %% [markdown]
# At $n = 3$ this is $2 m$, the least price of all, $(n-1) m$: nothing is lost. (At $n = 2$ too: the circle is
# then a line.) From $n = 4$ on it costs more: there $\cos(2 \pi/n) \ge 0$, so the price is at least $m n$. At $n = 4$
# it is $4 m$ against $3 m$, and for large $n$ about $m n^3/(2 \pi^2)$ against $m n$. Nothing of rank below $n - 1$
# has the least price: equality in the nuclear bound makes $B$
# symmetric and every margin $m$, so $B_{st} = B_{ss} - m$ in the tokens' basis, which is $m I + \beta\, 1 1^T$.
# **A diagonal of orthonormal tokens can be made at rank 2, but it pays for it.** Numerics draws price against
# rank.


# %%
def circle_price(tokens: int) -> Expr:
    """n/(1 - cos(2 pi/n)), for margin 1."""
    return Integer(tokens) / (1 - cos(2 * pi / tokens))


@step("B3.rank-two")
def tight_at_three() -> Step:
    r"""$n/(1 - \cos(2 \pi/n)) = n - 1$ at $n = 2$ and $n = 3$"""
    return Step(
        Matrix([circle_price(2), circle_price(3)]),
        Matrix([1, 2]),
        because="cos(pi) = -1 and cos(2 pi/3) = -1/2",
        near_misses={"angle halved": Matrix([2 / (1 - cos(pi / 2)), 3 / (1 - cos(pi / 3))])},
    )


@step("B3.rank-two")
def dearer_from_four_on() -> Step:
    r"""at $n = 4$ the circle costs 4, more than $n - 1 = 3$"""
    return Step(
        Integer(3),
        circle_price(4),
        because="cos(pi/2) = 0",
        decide=below,
        relation="<",
        near_misses={"price of the full rank": Integer(3), "angle of three": circle_price(3)},
    )


@step("B3.rank-two")
def circle_of_five() -> Step:
    r"""at $n = 5$ the circle costs $5 + \sqrt5$"""
    return Step(
        circle_price(5),
        5 + sqrt(5),
        because="cos(2 pi/5) = (sqrt(5) - 1)/4",
        near_misses={"n - 1": Integer(4)},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b3_diagonal_price"))
