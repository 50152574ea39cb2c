r"""A6. First-token bias.

P1 claims: causal attention and temporal convolutions favour the first tokens, bidirectional temporal attention does
not.

Our statements (tokens and lags count from 0):

- Uniform causal attention A has spectrum {1, 1/2, .., 1/T} and
  (A^L)_ij = C(i,j) sum_k (-1)^k C(i-j,k)/(j+k+1)^L. Hence 1 - (A^L)_i0 <= i 2^-L: the first token takes all.
- Uniform bidirectional attention is idempotent: every token keeps the share 1/T.
- A causal convolution (uniform kernel of width w, zero padding, L layers) does **not** favour the first token in
  general. For L >= 2 token 0 weighs strictly most in row t exactly when t <= L(w-1)/2.

Neighbour: Marisca, Bamberger, Alippi and Bronstein, *Over-squashing in spatiotemporal GNNs* (2506.15507), who found
that causal convolutions favour the distant past.
"""

# %% [markdown]
# # A6. Which input does a deep stack listen to?
#
# Stack $L$ layers and ask how much of input $j$ is in output $i$: the *share* of $j$. With the scores all equal (no
# content, only structure) a layer of causal attention is the averaging matrix
#
# $$A_{ij} = \frac{1}{i+1} \;\; (j \le i), \qquad A_{ij} = 0 \;\; (j > i),$$
#
# and the shares after $L$ layers are the entries of $A^L$. Every row of $A^L$ sums to one, so the shares compete.
# Tokens are counted from 0: token 0 is the oldest.
#
# **P1's claim**: causal attention and temporal convolutions favour the first tokens, bidirectional attention does
# not. **Our finding**: right for causal attention, and with a rate; right for bidirectional attention; for
# convolutions right only near the start of the sequence, or for very deep stacks.

# %%
from math import comb

from sympy import (
    Expr,
    Integer,
    Matrix,
    Poly,
    Rational,
    Sum,
    Symbol,
    binomial,
    cancel,
    combsimp,
    diff,
    expand,
    expand_func,
    eye,
    integrate,
    limit,
    oo,
    powsimp,
    prod,
    summation,
    symbols,
    zeros,
)

from derivations.decide import at_most, below, equal_sums
from derivations.notation import T, l, over
from derivations.steps import Step, step

i, j, k, n, t = symbols("i j k n t", integer=True, nonnegative=True)
L, w = symbols("L w", integer=True, positive=True)  # layers, width of the kernel
z, x = symbols("z x")
SIZE, DEPTHS = 5, (1, 2, 3, 6)
"""T and the depths L at which matrices are written out."""


def uniform_causal(size: int) -> Matrix:
    """A_ij = 1/(i + 1) for j <= i."""
    return Matrix(size, size, lambda row, token: Rational(1, row + 1) if token <= row else Integer(0))


def side_by_side(matrices) -> Matrix:
    """Several matrices as one, so that one comparison decides them all."""
    return Matrix.hstack(*matrices)


# %% [markdown]
# ## The spectrum
#
# $A$ is triangular, so its eigenvalues are its diagonal, $1, 1/2, \ldots, 1/T$. The eigenvectors are columns of
# Pascal's triangle: $e_n = \big(\tbinom{0}{n}, \tbinom{1}{n}, \tbinom{2}{n}, \ldots\big)^T$. Averaging the first
# $i + 1$ entries of such a column is the hockey-stick identity $\sum_{l \le i} \tbinom{l}{n} = \tbinom{i+1}{n+1}$.
#
# Below, $i \ge n$ are symbols; for $i < n$ both sides are zero. There are $T$ such vectors and together they form a
# triangular matrix with ones on its diagonal, so nothing of the spectrum is missed, whatever $T$ is.


# %%
@step("A6.spectrum")
def eigenvector() -> Step:
    r"""$A e_n = e_n/(n+1)$: $\frac{1}{i+1} \sum_{l \le i} \tbinom{l}{n} = \frac{1}{n+1} \tbinom{i}{n}$"""
    averaged = Sum(binomial(l, n), (l, n, i)).doit() / (i + 1)  # terms below l = n are 0
    return Step(
        combsimp(averaged / binomial(i, n)),
        1 / (n + 1),
        because="hockey-stick identity; both sides divided by C(i, n)",
        near_misses={"1/n": 1 / n, "1/2^n": Rational(1, 2) ** n},
    )


@step("A6.spectrum")
def characteristic_polynomial() -> Step:
    r"""$\det(\lambda I - A) = \prod_{i < T} (\lambda - 1/(i+1))$, $T = 5$ written out"""
    shifted = x * eye(SIZE) - uniform_causal(SIZE)
    return Step(
        shifted.det(method="berkowitz"),
        prod(x - Rational(1, row + 1) for row in range(SIZE)),
        because="the determinant of a triangular matrix, computed without using that it is one",
        near_misses={"shifted": prod(x - Rational(1, row + 2) for row in range(SIZE))},
    )


# %% [markdown]
# ## All powers at once
#
# **Claim.** For all $L \ge 0$: $(A^L)_{ij} = \tbinom{i}{j} \sum_k (-1)^k \tbinom{i-j}{k} / (j+k+1)^L$.
#
# Proof by induction on $L$. Put $n = j + k$. Then $\tbinom{i}{j}\tbinom{i-j}{k} = \tbinom{i}{n}\tbinom{n}{j}$, so as
# a function of $i$ the closed form is a combination of the eigenvectors $\tbinom{i}{n}$, and $A$ turns each
# $1/(n+1)^L$ into $1/(n+1)^{L+1}$. The start is $L = 0$, where the sum is $(1 - 1)^{i-j}$: the identity matrix.


# %%
def summand(row: Expr, depth: Expr) -> Expr:
    """The term n = j + k of the closed form, as a function of the row."""
    return (-1) ** (n - j) * binomial(row, n) * binomial(n, j) / (n + 1) ** depth


@step("A6.spectrum")
def regrouped() -> Step:
    r"""$\tbinom{i}{j}\tbinom{i-j}{k} = \tbinom{i}{j+k}\tbinom{j+k}{j}$"""
    return Step(
        combsimp(binomial(i, j) * binomial(i - j, k) / (binomial(i, j + k) * binomial(j + k, j))),
        Integer(1),
        because="choose j, then k of the rest; or choose all j + k, then say which are the j",
        near_misses={
            "C(j+k, j) forgotten": combsimp(1 / binomial(j + k, j)),
            "inverted": combsimp(binomial(i - j, k) / binomial(i, k)),
        },
    )


@step("A6.spectrum")
def induction_step() -> Step:
    r"""$\frac{1}{i+1} \sum_{l \le i}$ of the closed form for $L$ is the closed form for $L + 1$, term by term"""
    one_more = Sum(summand(l, L), (l, n, i)).doit() / (i + 1)  # terms below l = n are 0
    return Step(
        combsimp(one_more / summand(i, 0)),
        (n + 1) ** (-L - 1),
        because="A applied to the closed form: each term is an eigenvector",
        near_misses={"one layer is no step": (n + 1) ** (-L), "eigenvalue 1/(n+2)": (n + 1) ** (-L) / (n + 2)},
    )


@step("A6.spectrum")
def induction_start() -> Step:
    r"""$L = 0$: $\sum_k (-1)^k \tbinom{i-j}{k} = 0$ for $i > j$ (and 1 for $i = j$): the identity matrix"""
    steps_back = Symbol("n", integer=True, positive=True)  # i - j
    chosen = binomial(steps_back, k)
    return Step(
        Sum((-1) ** k * chosen, (k, 0, steps_back)).doit(),
        Integer(0),
        because="(1 - 1)^(i - j), with i - j >= 1",
        near_misses={"signs forgotten": Sum(chosen, (k, 0, steps_back)).doit()},
    )


def closed_form(row: int, token: int, depth: int, *, shift: int = 1, sign: int = -1) -> Expr:
    """(A^L)_ij by the formula; ``shift`` and ``sign`` are there to be got wrong."""
    terms = (
        sign**place * binomial(row - token, place) / Integer(token + place + shift) ** depth
        for place in range(row - token + 1)
    )
    return binomial(row, token) * sum(terms, Integer(0)) if token <= row else Integer(0)


def closed_form_matrix(depth: int, **wrong: int) -> Matrix:
    return Matrix(SIZE, SIZE, lambda row, token: closed_form(row, token, depth, **wrong))


@step("A6.spectrum")
def powers_written_out() -> Step:
    r"""$A^L$ for $T = 5$, $L = 1, 2, 3, 6$, multiplied out in rationals"""
    return Step(
        side_by_side(uniform_causal(SIZE) ** depth for depth in DEPTHS),
        side_by_side(closed_form_matrix(depth) for depth in DEPTHS),
        because="matrix multiplication, entry by entry",
        near_misses={
            "j + k + 2": side_by_side(closed_form_matrix(depth, shift=2) for depth in DEPTHS),
            "sign dropped": side_by_side(closed_form_matrix(depth, sign=1) for depth in DEPTHS),
            "one layer more": side_by_side(closed_form_matrix(depth + 1) for depth in DEPTHS),
        },
    )


# %% [markdown]
# ## Why: coins whose bias shrinks
#
# Alternating sums hide the size of a number. A second form shows it. Toss $i$ coins, each showing heads with
# probability $p$. The number of heads has the generating polynomial $(1 - p + p z)^i$. Now draw $p$ itself, uniformly
# from $[0, 1]$: every number of heads from 0 to $i$ is equally likely, and that is **row $i$ of $A$**.


# %%
p, q = symbols("p q")


def geometric(last: Symbol) -> Expr:
    """1 + z + .. + z^last, the branch z != 1."""
    return summation(z**j, (j, 0, last)).args[-1][0]


@step("A6.spectrum")
def row_of_coins() -> Step:
    r"""$\int_0^1 (1 - p + p z)^i\, dp = \frac{1}{i+1} \sum_{j \le i} z^j$, for all $i$"""
    return Step(
        integrate((1 - p + p * z) ** i, (p, 0, 1)),
        geometric(i) / (i + 1),
        because="integrate the power; sum the geometric series",
        near_misses={"not normalised": geometric(i)},
    )


# %% [markdown]
# Going through a second layer tosses the heads again, with a fresh bias $q$: a coin counts if it shows heads twice.
# That is one toss with bias $p q$. So $L$ layers are one toss with the bias $X = U_1 U_2 \cdots U_L$, a product of
# $L$ independent uniform variables:
#
# $$(A^L)_{ij} = \tbinom{i}{j}\, \mathbb{E}\, X^j (1 - X)^{i-j}.$$
#
# (A *Hausdorff matrix*.) Its moments are $\mathbb{E} X^n = (n+1)^{-L}$; expanding $(1-X)^{i-j}$ gives the alternating
# sum back.


# %%
@step("A6.spectrum")
def coins_compose() -> Step:
    r"""$1 - p + p\,(1 - q + q z) = 1 - pq + pq\, z$: two layers of bias $p$ and $q$ are one of bias $p q$"""
    one_toss = 1 - x + x * z
    return Step(
        one_toss.subs({x: p}).subs({z: one_toss.subs({x: q})}),
        one_toss.subs({x: p * q}),
        because="the generating polynomial of the second toss put in for z in the first",
        near_misses={"bias p + q": one_toss.subs({x: p + q}), "bias p": one_toss.subs({x: p})},
    )


@step("A6.spectrum")
def moments() -> Step:
    r"""$\mathbb{E} (U_1 \cdots U_L)^n = (n+1)^{-L}$"""
    return Step(
        integrate(p**n, (p, 0, 1)) ** L,
        1 / (n + 1) ** L,
        because="independent factors, each with the moment of a uniform variable",
        near_misses={"n^-L": 1 / n**L, "one factor": 1 / (n + 1)},
    )


# %% [markdown]
# ## The first token takes all
#
# Now the share of token 0 is $(A^L)_{i0} = \mathbb{E}(1 - X)^i$, and $X$ is tiny for large $L$. Bernoulli's
# inequality $1 - (1-X)^i \le i X$ and $\mathbb{E} X = 2^{-L}$ give
#
# $$1 - (A^L)_{i0} \;\le\; i\, 2^{-L}.$$
#
# Bernoulli by telescoping: let $D_i = i x - 1 + (1-x)^i$, so $D_0 = 0$. Each increment
# $D_{i+1} - D_i = x\,(1 - (1-x)^i)$ is manifestly $\ge 0$ on $[0, 1]$, so $D_i \ge 0$.


# %%
@step("A6.first-token")
def bernoulli_increment() -> Step:
    r"""$D_{i+1} - D_i = x\,(1 - (1-x)^i) \ge 0$ for $D_i = i x - 1 + (1-x)^i$, $0 \le x \le 1$"""

    def gap(tosses: Expr) -> Expr:
        return tosses * x - 1 + (1 - x) ** tosses

    return Step(
        gap(i + 1) - gap(i),
        x * (1 - (1 - x) ** i),
        because="collect (1 - x)^i",
        near_misses={"sign": -x * (1 - (1 - x) ** i), "x only": x},
    )


@step("A6.first-token")
def mean_bias() -> Step:
    r"""$\mathbb{E}\, i X = i\, 2^{-L}$"""
    return Step(
        i * integrate(p, (p, 0, 1)) ** L,
        i / 2**L,
        because="the first moment of a product of L uniforms",
        near_misses={"3^-L": i / 3**L, "without i": 1 / 2**L},
    )


@step("A6.first-token")
def bound_at_an_instance() -> Step:
    r"""$1 - (A^3)_{40} \le 4 \cdot 2^{-3}$, from the matrix itself"""
    leak = 1 - (uniform_causal(SIZE) ** 3)[4, 0]
    return Step(
        leak,
        Rational(4, 2**3),
        because="exact rationals",
        decide=at_most,
        relation="<=",
        near_misses={"3^-L": Rational(4, 3**3), "without i": Rational(1, 2**3)},
    )


# %% [markdown]
# The rate is exact. For $i = 1$ the bound is an equality, and for every $i$ the leak
# $1 - (A^L)_{i0} = \sum_{k \ge 1} (-1)^{k+1} \tbinom{i}{k} (k+1)^{-L}$ is led by $k = 1$: $2^L$ times the leak tends
# to $i$. Neither $2$ nor $i$ can be improved.


# %%
@step("A6.first-token")
def rate_is_exact() -> Step:
    r"""$2^L (1 - (A^L)_{i0}) \to i$ for $i = 1, 2, 3$"""
    rows = range(1, 4)
    leaks = [
        -sum((-1) ** place * binomial(row, place) / Integer(place + 1) ** L for place in range(1, row + 1))
        for row in rows
    ]
    return Step(
        Matrix([limit(expand(2**L * leak), L, oo) for leak in leaks]),
        Matrix(list(rows)),
        because="the terms k >= 2 fall like (2/3)^L and faster",
        near_misses={"one for all rows": Matrix([1 for _ in rows])},
    )


# %% [markdown]
# Nor need we wait for large $L$: at **every** depth older tokens weigh at least as much as younger ones. A column of
# $A$ differs from the next one on the diagonal only, so
#
# $$(A^L)_{ij} - (A^L)_{i,j+1} = \frac{(A^{L-1})_{ij}}{j+1} \ge 0,$$
#
# and more than that: for $L \ge 2$ the difference is strictly positive for $j \le i$.


# %%
@step("A6.first-token")
def neighbouring_columns() -> Step:
    r"""$A_{lj} - A_{l,j+1} = \delta_{lj}/(l+1)$: as generating functions, for all $l$"""
    row = geometric(l) / (l + 1)
    return Step(
        row - row / z,
        (z**l - 1 / z) / (l + 1),
        because="shift and subtract: z^l is the jump at j = l, 1/z stands before the first token",
        near_misses={"jump at j = 0": (1 - 1 / z) / (l + 1)},
    )


@step("A6.first-token")
def older_weighs_more() -> Step:
    r"""$(A^L)_{ij} - (A^L)_{i,j+1} = (A^{L-1})_{ij}/(j+1)$ for $T = 5$, $L = 4$"""
    power, shallower = uniform_causal(SIZE) ** 4, uniform_causal(SIZE) ** 3
    shape = (SIZE, SIZE - 1)
    return Step(
        Matrix(*shape, lambda row, token: power[row, token] - power[row, token + 1]),
        Matrix(*shape, lambda row, token: shallower[row, token] / (token + 1)),
        because="the last layer's neighbouring columns, weighted by the layers before",
        near_misses={"depth not lowered": Matrix(*shape, lambda row, token: power[row, token] / (token + 1))},
    )


# %% [markdown]
# ## Bidirectional attention
#
# Let every token see every other: $A_{ij} = 1/T$. Two such layers are one: $A^2 = A$. At every depth every token
# keeps the share $1/T$, the first and the last alike. P1's claim **holds** for uniform attention.
#
# (Unequal scores can favour a token, as a sink does, but not because of its place: without a position code a
# permutation of the tokens permutes the shares. Note A2 makes this precise with exchangeable tokens.)


# %%
@step("A6.bidirectional")
def idempotent() -> Step:
    r"""$\sum_l \frac{1}{T} \cdot \frac{1}{T} = \frac{1}{T}$, for every $T$"""
    return Step(
        over(l, (1 / T) * (1 / T)),
        1 / T,
        because="T equal terms",
        decide=equal_sums(),
        near_misses={"shares shrink": 1 / T**2, "shares grow": 2 / T},
    )


@step("A6.bidirectional")
def idempotent_written_out() -> Step:
    r"""$A^6 = A$ for $T = 5$"""
    uniform = Matrix(SIZE, SIZE, lambda row, token: Rational(1, SIZE))
    return Step(
        uniform**6,
        uniform,
        because="multiplied out",
        near_misses={"causal": uniform_causal(SIZE) ** 6},
    )


# %% [markdown]
# ## Causal convolutions
#
# One layer of a causal convolution with a uniform kernel of width $w$ and zero padding returns
# $y_t = \frac{1}{w}(x_t + x_{t-1} + \cdots + x_{t-w+1})$. As a polynomial in the shift $z$ its kernel is
# $\frac{1}{w}(1 + z + \cdots + z^{w-1}) = \frac{1 - z^w}{w (1 - z)}$. Layers multiply, so the weight $g_L(m)$ of the
# input $m$ steps back is the coefficient of $z^m$ in
#
# $$G_L(z) = \left( \frac{1 - z^w}{w (1 - z)} \right)^L.$$
#
# In words: $g_L$ is the law of a sum of $L$ dice with the faces $0, \ldots, w - 1$. Two binomial series,
# $(1 - z^w)^L = \sum_k (-1)^k \tbinom{L}{k} z^{kw}$ and $(1-z)^{-L} = \sum_n \tbinom{n+L-1}{n} z^n$, give
#
# $$g_L(m) = w^{-L} \sum_k (-1)^k \tbinom{L}{k} \tbinom{m - kw + L - 1}{L - 1}, \qquad 0 \le m \le L(w-1).$$
#
# Row $t$ holds the lags $0 \le m \le t$ only, token 0 being lag $t$. Padding does not change their weights: a path
# from $t - m \ge 0$ to $t$ never leaves the sequence.


# %%
@step("A6.convolution")
def negative_binomial_series() -> Step:
    r"""$c_n = \tbinom{n+L-1}{n}$ has $(n+1)\, c_{n+1} = (n + L)\, c_n$, as $(1-z) F' = L F$ asks of $F = (1-z)^{-L}$"""
    coefficient = binomial(n + L - 1, n)
    power = (1 - z) ** (-L)
    return Step(
        Matrix([combsimp(coefficient.subs(n, n + 1) / coefficient), (1 - z) * diff(power, z) / power]),
        Matrix([(n + L) / (n + 1), L]),
        because="ratio of binomials; chain rule",
        near_misses={"L - 1 for L": Matrix([(n + L - 1) / (n + 1), L - 1])},
    )


WIDTHS_AND_DEPTHS = ((2, 1), (2, 3), (2, 4), (3, 3), (4, 2), (4, 3))
"""(w, L) at which convolutions are written out."""


def multiplied_out(width: int, depth: int) -> list[Expr]:
    """g_L(0), .., g_L(L(w-1)), by multiplying the polynomials."""
    kernel = sum(z**m for m in range(width)) / width
    return Poly(kernel**depth, z).all_coeffs()[::-1]


def lag_weight(m: int, width: int, depth: int, *, sign: int = -1, lower: int = 1) -> Expr:
    """g_L(m) by the formula; ``sign`` and ``lower`` are there to be got wrong."""
    terms = (
        sign**fold * comb(depth, fold) * comb(m - fold * width + depth - 1, depth - lower)
        for fold in range(depth + 1)
        if fold * width <= m
    )
    return Rational(sum(terms), width**depth)


def all_lags(formula) -> Matrix:
    """``formula(m, w, L)`` at every lag of every written-out case, as one column."""
    return Matrix(
        [formula(m, width, depth) for width, depth in WIDTHS_AND_DEPTHS for m in range(depth * (width - 1) + 1)]
    )


@step("A6.convolution")
def lag_weights_written_out() -> Step:
    r"""$g_L(m) = w^{-L} \sum_k (-1)^k \tbinom{L}{k} \tbinom{m-kw+L-1}{L-1}$: every lag, six pairs $(w, L)$"""
    return Step(
        Matrix([weight for case in WIDTHS_AND_DEPTHS for weight in multiplied_out(*case)]),
        all_lags(lag_weight),
        because="polynomials multiplied out",
        near_misses={
            "sign dropped": all_lags(lambda *case: lag_weight(*case, sign=1)),
            "L for L - 1": all_lags(lambda *case: lag_weight(*case, lower=0)),
        },
    )


# %% [markdown]
# ## Where is the heaviest lag?
#
# **The weights are symmetric** about the centre $L(w-1)/2$: read the kernel backwards and it is the same.


# %%
def kernel(variable: Expr) -> Expr:
    """(1 - z^w)/(w (1 - z)), symbolic w."""
    return (1 - variable**w) / (w * (1 - variable))


@step("A6.convolution")
def mirror() -> Step:
    r"""$z^{w-1} G_1(1/z) = G_1(z)$, so $g_L(m) = g_L(L(w-1) - m)$, for every $w$"""
    return Step(
        powsimp(cancel(expand(z ** (w - 1) * (1 - z ** (-w))) / (w * (1 - 1 / z)))),
        kernel(z),
        because="multiply both ends out",
        near_misses={"off by one": z * kernel(z)},
    )


# %% [markdown]
# **They rise strictly up to the centre** as soon as $L \ge 2$. By induction on $L$. Let $c_L = L(w-1)/2$. One more
# layer gives $(1-z) G_{L+1} = G_L (1 - z^w)/w$, that is
#
# $$g_{L+1}(m) - g_{L+1}(m-1) = \tfrac{1}{w} \big( g_L(m) - g_L(m-w) \big).$$
#
# For $m \le c_{L+1}$ the lag $m$ lies strictly nearer to the centre $c_L$ than $m - w$ does: the squared distances
# differ by $w\,(1 + 2(c_{L+1} - m)) > 0$. And $m$ lies inside the support of $g_L$. If $m - w$ lies outside, its
# weight is 0, and $g_L(m) > 0$; this is all that $L = 1$ needs, since there $m \le w - 1$. If it lies inside,
# $g_L(m) > g_L(m-w)$ because $g_L$, $L \ge 2$, is symmetric and rises strictly up to its centre. So the difference is
# positive.


# %%
@step("A6.convolution")
def one_more_layer() -> Step:
    r"""$(1 - z)\, G_1(z) = (1 - z^w)/w$: the increments of $g_{L+1}$ are differences of $g_L$"""
    return Step(
        (1 - z) * kernel(z),
        (1 - z**w) / w,
        because="the geometric series",
        near_misses={"width w - 1": (1 - z ** (w - 1)) / w, "not averaged": 1 - z**w},
    )


@step("A6.convolution")
def nearer_to_the_centre() -> Step:
    r"""$(m - w - c_L)^2 - (m - c_L)^2 = w\,(1 + 2(c_{L+1} - m))$ for $c_L = L(w-1)/2$"""
    m = Symbol("m", integer=True, nonnegative=True)

    def centre(depth: Expr) -> Expr:
        return depth * (w - 1) / 2

    after = w * (1 + 2 * (centre(L + 1) - m))
    return Step(
        (m - w - centre(L)) ** 2 - (m - centre(L)) ** 2,
        after,
        because="difference of squares; c_{L+1} = c_L + (w - 1)/2",
        near_misses={"without the 1": after - w, "sign": -after},
    )


# %% [markdown]
# **So, for $L \ge 2$ and every $w$:** in row $t$ token 0 (lag $t$) weighs strictly more than every other token
# **exactly when $t \le L(w-1)/2$**. Beyond the centre the mirror image of lag $t$ is a shorter lag that weighs the
# same. If $L(w-1)$ is odd, two lags share the maximum, and in row $t = (L(w-1)+1)/2$ token 0 ties with token 1 for it.
# After that token 0 falls behind, and from $t > L(w-1)$ on it is not seen at all.
#
# One layer is flat: all inputs that a row sees weigh $1/w$, so token 0 ties with the others while it is seen,
# $t \le w - 1$, and beats them only in the row $t = 0$, where it is alone.


# %%
def is_favoured(t: int, weights: list[Expr], *, strictly: bool) -> Integer:
    """1 where lag t weighs more than (or at least as much as) all shorter lags, by comparing them."""
    padded = [*weights, *[Integer(0)] * t]
    if strictly:
        return Integer(all(padded[t] > other for other in padded[:t]))
    return Integer(all(padded[t] >= other for other in padded[:t]))


def predicted(rule) -> Matrix:
    """``rule(t, w, L)`` as 0 or 1, in the order of ``compared``."""
    return Matrix(
        [
            Integer(rule(t, width, depth))
            for width, depth in WIDTHS_AND_DEPTHS
            if depth > 1
            for t in range(depth * (width - 1) + 2)
        ]
    )


def compared(*, strictly: bool) -> Matrix:
    """Is token 0 favoured in row t? Every row up to one past the support, L >= 2."""
    return Matrix(
        [
            is_favoured(t, multiplied_out(width, depth), strictly=strictly)
            for width, depth in WIDTHS_AND_DEPTHS
            if depth > 1
            for t in range(depth * (width - 1) + 2)
        ]
    )


@step("A6.convolution")
def favoured_exactly() -> Step:
    r"""token 0 weighs strictly most in row $t$ iff $t \le L(w-1)/2$ ($L \ge 2$), every row of five cases"""
    return Step(
        compared(strictly=True),
        predicted(lambda t, width, depth: 2 * t <= depth * (width - 1)),
        because="all weights multiplied out and compared",
        near_misses={
            "as long as token 0 is seen": predicted(lambda t, width, depth: t <= depth * (width - 1)),
            "kernel counted as w wide": predicted(lambda t, width, depth: 2 * t <= depth * width),
            "ties counted in": compared(strictly=False),
        },
    )


@step("A6.convolution")
def favoured_with_ties() -> Step:
    r"""token 0 weighs at least as much as any other iff $t \le \lceil L(w-1)/2 \rceil$ ($L \ge 2$)"""
    return Step(
        compared(strictly=False),
        predicted(lambda t, width, depth: 2 * t <= depth * (width - 1) + 1),
        because="the tie is the mirror image of the lag before it",
        near_misses={
            "ties left out": predicted(lambda t, width, depth: 2 * t <= depth * (width - 1)),
            "one row more": predicted(lambda t, width, depth: 2 * t <= depth * (width - 1) + 2),
        },
    )


@step("A6.convolution")
def one_layer_favours_nobody() -> Step:
    r"""$L = 1$: $g_1(t) = g_1(0) = 1/w$ for all $t \le w - 1$ ($w = 4$)"""
    return Step(
        Matrix(multiplied_out(4, 1)),
        Matrix([Rational(1, 4)] * 4),
        because="the kernel itself",
        near_misses={"rising": Matrix([Rational(1, 10), Rational(2, 10), Rational(3, 10), Rational(4, 10)])},
    )


# %% [markdown]
# **The broad claim fails.** Two layers of width two, by hand: $(1 + z)^2/4$, so the row $t = 2$ weighs its inputs
# $x_2, x_1, x_0$ with $1/4$, $1/2$, $1/4$. Token 0 weighs half of token 1. (One layer of width two is smaller still:
# in row $t = 2$ it does not see token 0.)


# %%
@step("A6.convolution")
def middle_beats_first() -> Step:
    r"""$w = 2$, $L = 2$, $t = 2$: token 0 weighs $1/4$, token 1 weighs $1/2$"""
    weights = multiplied_out(2, 2)
    return Step(
        weights[2],
        weights[1],
        because="(1 + z)^2 = 1 + 2z + z^2",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"token 2": weights[0]},
    )


# %% [markdown]
# ## Near the start, mass is lost
#
# Zero padding throws away whatever would come from before token 0. A row $t < L(w-1)$ therefore sums to less than
# one. For $t < w$ only $k = 0$ occurs in the formula, and the hockey stick sums it:
#
# $$\sum_{m \le t} g_L(m) = w^{-L} \tbinom{t+L}{L} \quad (t < w), \qquad
#   \text{lost: } 1 - w^{-L} \sum_k (-1)^k \tbinom{L}{k} \tbinom{t - kw + L}{L} \quad (\text{every } t).$$
#
# Row 0 keeps only $w^{-L}$.


# %%
@step("A6.convolution")
def hockey_stick() -> Step:
    r"""$\sum_{m \le t} \tbinom{m+L-1}{L-1} = \tbinom{t+L}{L}$, for all $t$ and $L$"""
    m = Symbol("m", integer=True, nonnegative=True)
    return Step(
        combsimp(Sum(binomial(m + L - 1, L - 1), (m, 0, t)).doit() / binomial(t + L, L)),
        Integer(1),
        because="multiplying by 1/(1 - z) raises L by one",
        near_misses={"L - 1": combsimp(binomial(t + L - 1, L - 1) / binomial(t + L, L))},
    )


@step("A6.convolution")
def kept_mass_written_out() -> Step:
    r"""$\sum_{m \le t} g_L(m) = w^{-L} \sum_k (-1)^k \tbinom{L}{k} \tbinom{t-kw+L}{L}$: every row of six cases"""
    kept = []
    for case in WIDTHS_AND_DEPTHS:
        weights = multiplied_out(*case)
        kept += [sum(weights[: row + 1]) for row in range(len(weights))]
    return Step(
        Matrix(kept),
        # The formula with one L more in the second binomial is the partial sum.
        all_lags(
            lambda m, width, depth: sum(
                Rational((-1) ** fold * comb(depth, fold) * comb(m - fold * width + depth, depth), width**depth)
                for fold in range(depth + 1)
                if fold * width <= m
            )
        ),
        because="partial sums of the multiplied-out weights",
        near_misses={"nothing lost": all_lags(lambda *case: Integer(1)), "one lag": all_lags(lag_weight)},
    )


# %% [markdown]
# ## Deep stacks do favour the first token
#
# Divide each row by its sum, as a normalising layer would. For $t < w$ the first token's share is
#
# $$\frac{\tbinom{t+L-1}{t}}{\tbinom{t+L}{t}} = \frac{L}{L + t} = 1 - \frac{t}{L} + O(L^{-2}).$$
#
# It tends to 1, but like $1 - O(1/L)$: slowly, where causal attention is exponentially fast. The constant is $t$ for
# every width $w \ge 2$ and every row: $w^L g_L(m)$ is a polynomial in $L$ of degree $m$ with leading coefficient
# $1/m!$ (the term $k$ has degree $m - k(w-1)$), so $g_L(t-1)/g_L(t) \approx t/L$, and all older ratios are of order
# $L^{-2}$.
#
# In this sense Marisca et al. (2506.15507) are right that convolutions favour the past: at a **fixed** $t$, for deep
# stacks. At a fixed depth and growing $t$ the first token is out of sight.


# %%
@step("A6.convolution")
def first_share() -> Step:
    r"""$\tbinom{t+L-1}{t} / \tbinom{t+L}{t} = L/(L+t)$, for all $t < w$ and $L$"""
    return Step(
        combsimp(binomial(t + L - 1, t) / binomial(t + L, t)),
        L / (L + t),
        because="ratio of binomials",
        near_misses={"t counted from 1": L / (L + t + 1), "1 - t/L exactly": 1 - t / L},
    )


def unnormalised_weight(m: int, width: int) -> Expr:
    """w^L g_L(m) as a polynomial in L."""
    terms = (
        (-1) ** fold * expand_func(binomial(L, fold)) * _rising(m - fold * width) for fold in range(m // width + 1)
    )
    return sum(terms, Integer(0))


def _rising(lag: int) -> Expr:
    """C(lag + L - 1, lag) as a polynomial in L."""
    return prod((L + place) / (place + 1) for place in range(lag))


@step("A6.convolution")
def rate_of_the_share() -> Step:
    r"""$L\,(1 - \text{share of token 0}) \to t$ for $w = 2, 3$ and $t = 1, \ldots, 4$"""
    found = zeros(2, 4)
    for place, width in enumerate((2, 3)):
        for row in range(1, 5):
            weights = [unnormalised_weight(m, width) for m in range(row + 1)]
            found[place, row - 1] = limit(L * sum(weights[:-1]) / sum(weights), L, oo)
    return Step(
        found,
        Matrix(2, 4, lambda place, row: row + 1),
        because="ratio of polynomials in L",
        near_misses={
            "constant 1": Matrix(2, 4, lambda place, row: 1),
            "depends on w": Matrix(2, 4, lambda place, row: (row + 1) * (place + 1)),
        },
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("a6_first_token"))
