r"""B8. What the theory says about pretrained heads.

P2 claims that real models prefer sinks because sinks are cheap. Notes B1 and B2 price one bidirectional sink without
positions. A pretrained head is causal, rotates its queries and keys by their positions, may have biases, wants a
different margin for each query, and often shares its keys with other heads. This note says what changes.

Our statements. x_0 is the sink at position p_0, x_1..x_n the other tokens, c = 1/sqrt(d_k), m > 0 a margin:

    rotary positions: s_ij = x_i^T B_{p_i - p_j} x_j, each distance has its own B, all from one pair W_Q, W_K
    so B1's two conditions are neither necessary nor enough, a query bias does not remove one, a key bias matters
    every lambda >= 0 on the pairs bounds what a rotary pattern costs; the best bound is a convex program
    a margin m_i for each query: the price is 1/(dist(0, conv{x_i/m_i}) dist(x_0, conv{x_j})) in every norm
    causal: between the best cut and the bidirectional price, and it depends on the norm
    g heads that share their keys: g sinks cost sqrt(g) times one

Steps of this note follow that order, with the biases after the price.
"""

# %% [markdown]
# # B8. What the theory says about pretrained heads
#
# Notes B1 to B4 speak of one matrix $B = c\, W_Q^T W_K$. Which $B$ does a pretrained head have? GPT-2 and BERT
# have one, with biases. Llama and its kin have none: they rotate queries and keys by an angle that grows with
# the position (RoPE; Su et al., *RoFormer*, arXiv 2104.09864). Almost all generate text, so a query sees
# earlier keys only.
#
# **The question.** Does a price still exist, and what is it? Xiao et al. (2309.17453) and Gu et al.
# (2410.10781) measure *where* sinks are, Barbero et al. (2504.02732) say what they are good for, against
# over-mixing, and Fesser et al. (2606.08105) tell silent sinks from broadcasting ones. We ask what a sink needs
# and what it costs in such a head, so that the numbers of a real model can be read against it.
#
# In the code a sum over the tokens $x_1, \ldots, x_n$ counts from 0, and so does one over the planes $r$.

# %%
from collections.abc import Callable, Sequence

from sympy import (
    Expr,
    I,
    IndexedBase,
    Integer,
    Matrix,
    Rational,
    Symbol,
    cos,
    exp,
    eye,
    pi,
    sin,
    sqrt,
    symbols,
    zeros,
)

from derivations.decide import below, equal_sums
from derivations.notation import W_K, W_Q, B, T, alpha, beta, c, d, d_k, e, g, i, j, l, n, over, p, r, x, x_0
from derivations.steps import Step, step
from derivations.summation import Distribution, InnerProduct

planes = Symbol("N_r", integer=True, positive=True)
"""How many planes the coordinates of a query form: d_k/2."""

f = Symbol("f", integer=True, nonnegative=True)
margin = Symbol("m", positive=True)
theta, position, lam = IndexedBase("theta"), IndexedBase("p"), IndexedBase("lambda")
sink_position = Symbol("p_0", real=True)

w_1, w_2, z_1, z_2 = (IndexedBase(name) for name in ("w_1", "w_2", "z_1", "z_2"))
"""The two rows of W_Q, and of W_K, that belong to plane r: w_r = w_1r + i w_2r and z_r = z_1r + i z_2r."""

sizes_small = {T: 2, n: 2, d: 2, d_k: 2, planes: 1}
decide_planes = equal_sums(sizes=sizes_small)

Token = Callable[[Symbol], Expr]
"""A token, entry by entry."""


def token(place: Symbol) -> Token:
    """x_i."""
    return lambda coordinate: x[place, coordinate]


def sink(coordinate: Symbol) -> Expr:
    """x_0."""
    return x_0[coordinate]


def turn(angle: Expr) -> Expr:
    """e^{i angle}."""
    return exp(I * angle)


def cosine(angle: Expr) -> Expr:
    """cos in exponentials, whose algebra is decided."""
    return (turn(angle) + turn(-angle)) / 2


def sine(angle: Expr) -> Expr:
    """sin in exponentials."""
    return (turn(angle) - turn(-angle)) / (2 * I)


# %% [markdown]
# ## Rotary positions: each distance has its own B
#
# The coordinates of a query are paired into planes. In plane $r$ the query of the token at position $p_i$ is
# turned by the angle $\theta_r p_i$, and the key of the token at $p_j$ by $\theta_r p_j$. Let $R(p)$ be the
# matrix that does it in all planes. The score is $c\, (R(p_i) q_i)^T R(p_j) k_j$. (Models differ in which
# coordinates share a plane: neighbours, or one from each half. That is an order of rows, no more.)
#
# **Example.** One plane, $\theta = \pi$: every step turns by half a circle. Then $R(p)$ is $1$ or $-1$, and the
# score of a key changes its sign with every position. To turn the key by $p_j$ and the query by $p_i$ is to
# turn the key by the difference:


# %%
def rotations(place: Expr, angles: Sequence[Expr]) -> Matrix:
    """R(p) for the given theta_r, block by block."""
    matrix = zeros(2 * len(angles), 2 * len(angles))
    for block, angle in enumerate(angles):
        rows = slice(2 * block, 2 * block + 2)
        one, other = cosine(angle * place), sine(angle * place)
        matrix[rows, rows] = Matrix([[one, -other], [other, one]])
    return matrix


@step("B8.rotary")
def rotations_compose() -> Step:
    r"""$R(p_i)^T R(p_j) = R(p_j - p_i)$, here for two planes with any $\theta_1$, $\theta_2$"""
    angles = symbols("theta_1 theta_2", real=True)
    one, other = symbols("p_i p_j", real=True)
    return Step(
        rotations(one, angles).T * rotations(other, angles),
        rotations(other - one, angles),
        because="the sum formulas, plane by plane",
        near_misses={
            "distance reversed": rotations(one - other, angles),
            "angles added": rotations(one + other, angles),
        },
    )


# %% [markdown]
# So $s_{ij} = c\, q_i^T R(p_j - p_i)\, k_j$. Put in the projections:
#
# $$s_{ij} = x_i^T B_{p_i - p_j}\, x_j, \qquad B_\delta = c\, W_Q^T R(-\delta)\, W_K.$$
#
# There is one $B$ for each distance $\delta$, but all of them come from the same pair $W_Q, W_K$. The complex
# numbers make this easy to read (a bar conjugates). Let $w_r$ be the two rows of $W_Q$ of plane $r$ as **one**
# complex row, and $z_r$ the same for $W_K$. A turn is then a factor $e^{i \theta_r p}$. The step holds for every
# number of planes and every width. Its left side turns queries and keys apart, with sines and cosines; its right
# side knows the distance only.


# %%
Pair = tuple[Expr, Expr]
"""The two coordinates of a query or key in plane r."""


def projected(rows: tuple[IndexedBase, IndexedBase], vector: Token) -> Pair:
    """W x in plane r."""
    return over(e, rows[0][r, e] * vector(e)), over(e, rows[1][r, e] * vector(e))


def turned(pair: Pair, place: Expr) -> Pair:
    """The pair after a turn by theta_r p."""
    one, other = cosine(theta[r] * place), sine(theta[r] * place)
    return one * pair[0] - other * pair[1], other * pair[0] + one * pair[1]


def rotary_score(query: Pair, key: Pair, query_at: Expr, key_at: Expr) -> Expr:
    """c (R(p_i) q)^T R(p_j) k, each side turned on its own."""
    (q_1, q_2), (k_1, k_2) = turned(query, query_at), turned(key, key_at)
    return c * over(r, q_1 * k_1 + q_2 * k_2, planes)


def real_part(query: Pair, key: Pair, factor: Expr, conjugate: Expr) -> Expr:
    """Re(factor conj(q) k), from the factor and its conjugate."""
    (q_1, q_2), (k_1, k_2) = query, key
    return (factor * (q_1 - I * q_2) * (k_1 + I * k_2) + conjugate * (q_1 + I * q_2) * (k_1 - I * k_2)) / 2


def score(query: Symbol, key: Symbol, query_at: Expr, key_at: Expr) -> Expr:
    """The rotary score of two tokens."""
    return rotary_score(projected((w_1, w_2), token(query)), projected((z_1, z_2), token(key)), query_at, key_at)


@step("B8.rotary")
def complex_form() -> Step:
    r"""$s_{ij} = c\, \mathrm{Re} \sum_r e^{i \theta_r (p_j - p_i)}\, (\bar{w}_r \cdot x_i)\, (z_r \cdot x_j)$"""
    query, key = projected((w_1, w_2), token(i)), projected((z_1, z_2), token(j))

    def closed(distance: Expr) -> Expr:
        angle = theta[r] * distance
        return c * over(r, real_part(query, key, turn(angle), turn(-angle)), planes)

    return Step(
        score(i, j, position[i], position[j]),
        closed(position[j] - position[i]),
        because="in the complex plane a rotation is a product",
        decide=decide_planes,
        near_misses={
            "distance reversed": closed(position[i] - position[j]),
            "positions forgotten": closed(Integer(0)),
        },
    )


@step("B8.rotary")
def matrix_of_a_distance() -> Step:
    r"""$B_\delta$ in sines and cosines of $\theta_r \delta$, from the rows of $W_Q$ and $W_K$

    $B_\delta = c \sum_r \cos(\theta_r \delta)(w_{1r} z_{1r}^T + w_{2r} z_{2r}^T)
    + \sin(\theta_r \delta)(w_{1r} z_{2r}^T - w_{2r} z_{1r}^T)$
    """

    def bilinear(sign: int) -> Expr:
        angle = theta[r] * (position[i] - position[j])
        same = w_1[r, e] * z_1[r, f] + w_2[r, e] * z_2[r, f]
        crossed = w_1[r, e] * z_2[r, f] - w_2[r, e] * z_1[r, f]
        matrix = c * over(r, cosine(angle) * same + sign * sine(angle) * crossed, planes)
        return over(e, over(f, x[i, e] * matrix * x[j, f], d))

    return Step(
        score(i, j, position[i], position[j]),
        bilinear(1),
        because="the score is linear in the query's token and in the key's",
        decide=decide_planes,
        near_misses={"sine's sign": bilinear(-1)},
    )


@step("B8.rotary")
def shift_changes_nothing() -> Step:
    r"""with every position moved by $a$ each score is the same"""
    moved = Symbol("a", real=True)
    return Step(
        score(i, j, position[i] + moved, position[j] + moved),
        score(i, j, position[i], position[j]),
        because="the distances are the same",
        decide=decide_planes,
        near_misses={"keys alone moved": score(i, j, position[i], position[j] + moved)},
    )


# %% [markdown]
# A plane with $\theta_r = 0$ does not turn, and if all are 0 we are back at B1 and B2. (Models that rotate only
# some coordinates have such planes.) In the others the score of the *same* two tokens changes with their
# distance.
#
# ## B1's conditions are not what a rotary sink needs
#
# B1: without positions a sink can be made iff 0 is not in the hull of the queries' tokens and $x_0$ is not in
# the hull of the keys' tokens. The tempting step is to test these two conditions in a rotary model. It fails in
# both directions, already on a line.
#
# For $d = 1$ and one plane, $B_\delta = a \cos \theta \delta + b \sin \theta \delta$ with any two numbers $a$,
# $b$. The sink stands at position 0, token $x_i$ at position $i$, and a query sees the keys up to its own.


# %%
def margins_on_a_line(
    tokens: Sequence[Expr | int], first: Expr | int, frequency: Expr | int, even: Expr | int, odd: Expr | int = 0
) -> list[Expr]:
    """x_i (B_i x_0 - B_{i-j} x_j) for all 1 <= j <= i, at the frequency theta, from a and b; x_0 comes first."""

    def matrix(distance: int) -> Expr:
        return even * cos(frequency * distance) + odd * sin(frequency * distance)

    return [
        (tokens[query - 1] * (matrix(query) * first - matrix(query - key) * tokens[key - 1]))
        for query in range(1, len(tokens) + 1)
        for key in range(1, query + 1)
    ]


# %% [markdown]
# **A sink although $x_0$ is in the hull.** The smallest case: $x_0 = x_1 = 1$. Without positions a query cannot
# tell the two keys apart: the margin is 0. With $\theta = \pi$ and $B_\delta = -\cos \pi \delta$ it scores the
# sink, one step away, 1 and itself $-1$.


# %%
@step("B8.rotary-alignment")
def sink_equal_to_the_key() -> Step:
    r"""$x_0 = x_1 = 1$, $B_\delta = -\cos \pi \delta$: the margin is 2; at $\theta = 0$ it is 0"""
    return Step(
        Matrix(margins_on_a_line((1,), 1, pi, -1) + margins_on_a_line((1,), 1, 0, -1)),
        Matrix([2, 0]),
        because="-cos(pi) + cos(0) = 2",
        counterexample=True,
        near_misses={"no positions in both": Matrix([0, 0])},
    )


# %% [markdown]
# It is no accident of one token. If **all** tokens are equal, as in a text of one repeated word, $B_\delta =
# -\cos \theta \delta$ makes a sink as long as $\theta n \le \pi$: the farthest key wins. By the step the margin
# is a product of two sines. Both angles lie strictly between 0 and $\pi$, because $1 \le j \le i$ and
# $\theta i \le \pi$.


# %%
@step("B8.rotary-alignment")
def equal_tokens_make_a_sink() -> Step:
    r"""$\cos \theta (i - j) - \cos \theta i = 2 \sin \frac{\theta (2 i - j)}{2} \sin \frac{\theta j}{2}$"""
    query, key, angle = symbols("i j theta", real=True)
    after = 2 * sine(angle * (2 * query - key) / 2) * sine(angle * key / 2)
    return Step(
        cosine(angle * (query - key)) - cosine(angle * query),
        after,
        because="the product formula",
        near_misses={"not doubled": after / 2, "cosines": 2 * cosine(angle * (2 * query - key) / 2)},
    )


# %% [markdown]
# Nor need tokens be equal. Take $x_1 = 1$, $x_2 = 2$ and the sink half way between, $x_0 = \frac32$, with
# $\theta = \pi/2$. And 0 may lie between the queries: $x_1 = 1$, $x_2 = -1$, sink 2, $\theta = \pi$.


# %%
@step("B8.rotary-alignment")
def sink_between_the_keys() -> Step:
    r"""$x = 1, 2$, $x_0 = \frac32$, $B_\delta = -\cos \frac{\pi}{2} \delta$: margins 1, 3, 7"""
    middle = Rational(3, 2)
    return Step(
        Matrix([*margins_on_a_line((1, 2), middle, pi / 2, -1), middle - Rational(1 + 2, 2)]),
        Matrix([1, 3, 7, 0]),
        because="B_0 = -1, B_1 = 0, B_2 = 1; the last entry says that x_0 is the mean of the keys",
        counterexample=True,
        near_misses={"no positions": Matrix([*margins_on_a_line((1, 2), middle, 0, -1), 0])},
    )


@step("B8.rotary-alignment")
def origin_between_the_queries() -> Step:
    r"""$x = 1, -1$, $x_0 = 2$, $B_\delta = -\cos \pi \delta$: all three margins are 3"""
    return Step(
        Matrix([*margins_on_a_line((1, -1), 2, pi, -1), Rational(1 - 1, 2)]),
        Matrix([3, 3, 3, 0]),
        because="the sign of the position undoes the sign of the token; the last entry is the mean of the queries",
        counterexample=True,
        near_misses={"no positions": Matrix([*margins_on_a_line((1, -1), 2, 0, -1), 0])},
    )


# %% [markdown]
# **No sink although both conditions hold.** $x_1 = 1$, $x_0 = -1$: without positions $B = -1$ does it. With the
# single frequency $\theta = \pi$ the turned sink, $e^{i \pi} \cdot (-1) = 1$, *is* the key, and the margin is 0
# for every $a$ and $b$.


# %%
@step("B8.rotary-alignment")
def turned_sink_equals_the_key() -> Step:
    r"""$x_1 = 1$, $x_0 = -1$, $\theta = \pi$: the margin is 0 for every $a$, $b$"""
    even, odd = symbols("a b", real=True)
    return Step(
        Matrix(margins_on_a_line((1,), -1, pi, even, odd)),
        Matrix([0]),
        because="B_1 = -B_0",
        counterexample=True,
        near_misses={"no positions": Matrix(margins_on_a_line((1,), -1, 0, even, odd))},
    )


# %% [markdown]
# A longer sink does not help. $x_0 = 2$, $x_1 = x_2 = 1$: every query has the same token, the sink is twice as
# long, and B1 is content. With $\theta = \pi$ the two queries' margins against key 1 are opposite.


# %%
@step("B8.rotary-alignment")
def opposite_queries() -> Step:
    r"""$x_0 = 2$, $x_1 = x_2 = 1$, $\theta = \pi$: the margins of the pairs $(1, 1)$ and $(2, 1)$ add up to 0"""
    even, odd = symbols("a b", real=True)

    def total(frequency: Expr | int) -> Expr:
        of_one, of_two, _ = margins_on_a_line((1, 1), 2, frequency, even, odd)
        return of_one + of_two

    return Step(
        total(pi),
        Integer(0),
        because="the second query is the first one, turned by half a circle",
        counterexample=True,
        near_misses={"no positions": total(Integer(0))},
    )


# %% [markdown]
# ## What a rotary sink needs, and what it costs
#
# The right statement uses turned tokens. Let $y_i = e^{i \theta_r p_i} x_i$ in plane $r$. A pattern is a list of
# pairs, each with a margin to keep. Weigh the pairs with $\lambda_{ij} \ge 0$. The sum of all margins sees the
# tokens through one complex matrix for each plane,
#
# $$M_r(\lambda) = \sum_{ij} \lambda_{ij}\, \bar{y}_i\, (y_0 - y_j)^T.$$


# %%
def gap_entry(
    query: Symbol,
    key: Symbol,
    row: Symbol,
    column: Symbol,
    sign: int = 1,
    at: Callable[[Symbol], Expr] = lambda place: position[place],
) -> Expr:
    """conj(y_i) (y_0 - y_j)^T in plane r, one entry; its complex conjugate for sign = -1."""

    def turned_by(place: Expr) -> Expr:
        return turn(sign * theta[r] * place)

    gap = turned_by(sink_position) * x_0[column] - turned_by(at(key)) * x[key, column]
    return turned_by(-at(query)) * x[query, row] * gap


@step("B8.rotary-price")
def sum_of_rotary_margins() -> Step:
    r"""$\sum_{ij} \lambda_{ij} (s_{i0} - s_{ij}) = c\, \mathrm{Re} \sum_r \bar{w}_r^T M_r(\lambda)\, z_r$"""
    query, key = projected((w_1, w_2), token(i)), projected((z_1, z_2), token(j))
    to_sink = rotary_score(query, projected((z_1, z_2), sink), position[i], sink_position)
    to_key = rotary_score(query, key, position[i], position[j])

    def pairing(sign: int) -> Expr:
        def matrix(of: int) -> Expr:
            return over(i, over(j, lam[i, j] * gap_entry(i, j, e, f, of), n), n)

        rows, columns = (w_1[r, e], w_2[r, e]), (z_1[r, f], z_2[r, f])
        summand = real_part(rows, columns, matrix(sign), matrix(-sign))
        return c * over(r, over(e, over(f, summand, d)), planes)

    return Step(
        over(i, over(j, lam[i, j] * (to_sink - to_key), n), n),
        pairing(1),
        because="each margin is linear in the matrix z_r conj(w_r)^T of each plane",
        decide=decide_planes,
        near_misses={"turned the wrong way": pairing(-1)},
    )


# %% [markdown]
# **A certificate (Farkas).** If some $\lambda \ge 0$, not all zero, makes *every* $M_r(\lambda)$ zero, the
# margins cannot all be positive, and no $W_Q$, $W_K$ make the sink. That is what happened above: for
# $x_0 = -x_1$ the matrix of the single pair is zero; for $x_0 = 2$ the weights 1, 1 cancel. Each distance has
# its own alignment, and many planes make cancelling hard: one $\lambda$ must do it in all of them.
#
# **A price.** Let $\mu$ be the largest spectral norm $\|M_r(\lambda)\|$, so that every $N_r = M_r(\lambda)/\mu$
# shortens vectors or keeps their length. The step shows what weight decay pays at least. Its right side has no
# negative term.


# %%
@step("B8.rotary-price")
def weight_decay_pays_the_pairing() -> Step:
    r"""$\frac12 (\|w\|^2 + \|z\|^2) - \mathrm{Re}\, \bar{w}^T N z \ge 0$ where $\|N z\| \le \|z\|$

    The left side is $\frac12 \|w - N z\|^2 + \frac12 (\|z\|^2 - \|N z\|^2)$.
    """
    u_1, u_2, v_1, v_2, N_1, N_2 = (IndexedBase(name) for name in ("w_1", "w_2", "z_1", "z_2", "N_1", "N_2"))
    image = (
        over(f, N_1[e, f] * v_1[f] - N_2[e, f] * v_2[f], d),
        over(f, N_1[e, f] * v_2[f] + N_2[e, f] * v_1[f], d),
    )
    lengths = over(e, u_1[e] ** 2 + u_2[e] ** 2), over(e, v_1[e] ** 2 + v_2[e] ** 2)
    away = over(e, (u_1[e] - image[0]) ** 2 + (u_2[e] - image[1]) ** 2)
    shortened = lengths[1] - over(e, image[0] ** 2 + image[1] ** 2)
    return Step(
        sum(lengths) / 2 - over(e, u_1[e] * image[0] + u_2[e] * image[1]),
        (away + shortened) / 2,
        because="the square is completed",
        decide=equal_sums(),
        near_misses={"lengths kept": away / 2, "not halved": away + shortened},
    )


# %% [markdown]
# Add up the planes: the rows of $W_Q$ are the $w_r$, so $\sum_r \|w_r\|^2 = \|W_Q\|_F^2$. The margins weighted
# with $\lambda$ are at least $m \sum \lambda_{ij}$, and by the two steps they are at most $c\, \mu$ times the
# decay. With $c = 1/\sqrt{d_k}$:
#
# $$\frac12 \bigl(\|W_Q\|_F^2 + \|W_K\|_F^2\bigr) \;\ge\;
# \sqrt{d_k}\; \frac{m \sum_{ij} \lambda_{ij}}{\max_r \|M_r(\lambda)\|} \qquad \text{for every } \lambda \ge 0.$$
#
# The same with $y_i - y_j$ for $y_0 - y_j$ bounds a diagonal, and with $m_i \lambda_{ij}$ in the sum it bounds
# margins that differ.
#
# **Example.** $x_0 = x_1 = 1$ at $\theta = \pi$, one plane, $d_k = 2$. The single pair has
# $M = (-1)(1 - (-1)) = -2$, so the decay is at least $\sqrt2\, m/2$. The rows $w = a$, $z = -a$ give
# the margin $2 c\, a^2$, and cost $a^2$: with margin $m$ exactly $m/\sqrt2$. The bound is the price.


# %%
@step("B8.rotary-price")
def bound_is_met() -> Step:
    r"""$x_0 = x_1 = 1$, $\theta = \pi$, $d_k = 2$: bound and cost are both $m/\sqrt2$"""
    turned_key, scale = cos(pi), 1 / sqrt(2)
    bound = margin / scale / abs(turned_key * (1 - turned_key))
    square = margin / (scale * margins_on_a_line((1,), 1, pi, -1)[0])
    return Step(
        Matrix([bound, (square + square) / 2]),
        Matrix([margin / sqrt(2), margin / sqrt(2)]),
        because="the second entry is (a^2 + a^2)/2 at the a^2 that gives the margin m",
        near_misses={"scale forgotten": Matrix([margin / 2, margin / 2])},
    )


# %% [markdown]
# **A convex program.** What is the best $\lambda$? Let $Z_r = z_r \bar{w}_r^T$, a matrix of rank 1 with
# nuclear norm $\|w_r\| \|z_r\|$. Every margin is linear in the $Z_r$, and by the step below the decay is at least
# $\sum_r \|Z_r\|_*$, with equality for rows of equal length; to scale $w_r$ up and $z_r$ down by one factor
# makes them equal. So
#
# $$\sqrt{d_k}\; \min \sum_r \|Z_r\|_* \quad \text{over complex matrices } Z_r \text{ that keep all margins}$$
#
# (margins without the factor $c$) is a lower bound on what the pattern costs. It is a convex program: linear
# inequalities and a sum of norms. All distances share the one set of $Z_r$, as they share $W_Q$ and $W_K$. To
# price each $B_\delta$ on its own would be wrong. As in note B3, the best $\lambda$ gives exactly this minimum,
# and is attained: where some $Z_r$ keep the margins, a multiple keeps them strictly.
#
# **When is it the price?** If an optimal $Z_r$ has rank at most 1 in every plane: then it splits into $w_r$ and
# $z_r$. Otherwise a head would need a plane's frequency several times, and the number is a lower bound.


# %%
@step("B8.rotary-price")
def even_rows_are_cheapest() -> Step:
    r"""$\frac12 (\|w\|^2 + \|z\|^2) - \|w\| \|z\| = \frac12 (\|w\| - \|z\|)^2 \ge 0$"""
    u, v = IndexedBase("w"), IndexedBase("z")
    one, other = sqrt(over(e, u[e] ** 2)), sqrt(over(e, v[e] ** 2))
    return Step(
        (over(e, u[e] ** 2) + over(e, v[e] ** 2)) / 2 - one * other,
        (one - other) ** 2 / 2,
        because="the square of a difference",
        near_misses={"not halved": (one - other) ** 2},
    )


# %% [markdown]
# **Equal positions give back B2.** If all positions are equal, or all $\theta_r = 0$, no phase is left. The
# product weights $\lambda_{ij} = \alpha_i \beta_j$ of note B2 give in every plane $M_r = h k^T$, with
# $h = \sum_i \alpha_i x_i$ and $k = x_0 - \sum_j \beta_j x_j$. The bound is $\sqrt{d_k}\, m/(\|h\| \|k\|)$; at
# the nearest points of the hulls that is the price of note B2, attained in one plane at rank 1.


# %%
@step("B8.rotary-price")
def equal_positions_give_the_price_without() -> Step:
    r"""all $p_i = p_0$: $\sum_{ij} \alpha_i \beta_j\, \bar{y}_i (y_0 - y_j)^T = h k^T$, no phase left"""

    def together(at: Callable[[Symbol], Expr]) -> Expr:
        return over(i, over(j, alpha[i] * beta[j] * gap_entry(i, j, e, p, at=at), n), n)

    query = over(i, alpha[i] * x[i, e], n)
    gap = x_0[p] - over(j, beta[j] * x[j, p], n)
    return Step(
        together(lambda place: sink_position),
        query * gap,
        because="every distance is 0, and the weights sum to one",
        decide=equal_sums(Distribution(alpha, n), Distribution(beta, n), sizes=sizes_small),
        near_misses={
            "sink forgotten": query * (gap - x_0[p]),
            "a step apart": together(lambda place: sink_position + 1),
        },
    )


# %% [markdown]
# ## A query bias under rotary positions
#
# Without positions a query bias removes the first condition (note B1): queries $(x_i, 1)$ never average to 0,
# and a bias alone makes a sink if $x_0$ is outside the hull of the keys. With rotary positions the query is
# turned *after* its bias is added. So the longer token $(x_i, 1)$ turns as a whole, to
# $e^{i \theta_r p_i} (x_i, 1)$, its last coordinate too, and such queries **can** average to 0.
#
# The smallest case is the one above: $x_0 = 2$, $x_1 = x_2 = 1$, $\theta = \pi$. The query is $w x_i + b_Q$,
# whatever $w$ and $b_Q$; at positions 1 and 2 it is the same but for the sign, and so is the margin against
# key 1. (With tokens 1, 2, 3, all distinct, the weights 1, 2, 1 do the same.) So "$x_0$ is outside the hull of
# the keys" is not enough.


# %%
def key_one_margins(tokens: Sequence[int], first: int, frequency: Expr | int) -> list[Expr]:
    """s_i0 - s_i1 for every query w x_i + b (complex), without c; the keys are z x_j, z = 1, d = 1."""
    w, w_i, b, b_i = symbols("w_1 w_2 b_1 b_2", real=True)

    def of(query: int) -> Expr:
        q_1, q_2 = w * tokens[query - 1] + b, w_i * tokens[query - 1] + b_i
        to_sink = first * (q_1 * cos(frequency * query) - q_2 * sin(frequency * query))
        to_key = tokens[0] * (q_1 * cos(frequency * (query - 1)) - q_2 * sin(frequency * (query - 1)))
        return to_sink - to_key

    return [of(query) for query in range(1, len(tokens) + 1)]


@step("B8.query-bias")
def turned_queries_cancel() -> Step:
    r"""$x_0 = 2$, $x_1 = x_2 = 1$, $\theta = \pi$, any $W_Q$ and $b_Q$: the margins against key 1 add up to 0"""
    return Step(
        sum(key_one_margins((1, 1), 2, pi)),
        Integer(0),
        because="the bias turns with its query",
        counterexample=True,
        near_misses={"no positions": sum(key_one_margins((1, 1), 2, 0))},
    )


@step("B8.query-bias")
def three_distinct_queries_cancel() -> Step:
    r"""$x_0 = 4$, $x = 1, 2, 3$, $\theta = \pi$: the weights 1, 2, 1 cancel the margins against key 1"""

    def total(frequency: Expr | int) -> Expr:
        one, two, three = key_one_margins((1, 2, 3), 4, frequency)
        return (one + 2 * two + three).expand()

    return Step(
        total(pi),
        Integer(0),
        because="-(1, 1) + 2 (2, 1) - (3, 1) = 0",
        counterexample=True,
        near_misses={"no positions": total(Integer(0))},
    )


# %% [markdown]
# **What holds.** Nothing new is needed for the price: it is the bound above with one more coordinate on the
# query side, if the bias counts in the norm. What can the bias do *alone*, with $W_Q = 0$? Then every query is
# the same, but for its turn. Look at key 1, which every query sees, and weigh the queries.


# %%
@step("B8.query-bias")
def bias_alone() -> Step:
    r"""the margins against key 1, weighted: each plane adds the weighted mean of the queries' turns

    $\sum_i \lambda_i (s_{i0} - s_{i1})
    = c\, \mathrm{Re} \sum_r (\sum_i \lambda_i e^{-i \theta_r p_i})\, \bar{b}_r\, z_r \cdot (y_0 - y_1)$
    """
    weight, b_1, b_2 = IndexedBase("lambda"), IndexedBase("b_1"), IndexedBase("b_2")
    bias, first = (b_1[r], b_2[r]), Integer(0)
    to_sink = rotary_score(bias, projected((z_1, z_2), sink), position[i], sink_position)
    to_key = rotary_score(bias, projected((z_1, z_2), token(first)), position[i], position[first])

    def closed(sign: int) -> Expr:
        def factor(of: int) -> Expr:
            return over(i, weight[i] * turn(-of * sign * theta[r] * position[i]), n)

        def turned_to(place: Expr, vector: Token) -> Expr:
            key = projected((z_1, z_2), vector)
            angle = theta[r] * place
            return real_part(bias, key, factor(1) * turn(angle), factor(-1) * turn(-angle))

        return c * over(r, turned_to(sink_position, sink) - turned_to(position[first], token(first)), planes)

    return Step(
        over(i, weight[i] * (to_sink - to_key), n),
        closed(1),
        because="the bias is the same for every query, its turn is not",
        decide=decide_planes,
        near_misses={"turned the wrong way": closed(-1)},
    )


# %% [markdown]
# Take equal weights on $N$ queries in a row. A geometric sum says how well their turns cancel, with
# $q = e^{-i \theta_r}$: it is $(1 - q^N)/(1 - q)$ times the first turn. The numerator is at most 2, and the
# denominator has length $2 |\sin \frac{\theta_r}{2}|$.


# %%
@step("B8.query-bias")
def geometric_sum() -> Step:
    r"""$(1 - q^N) + q^N (1 - q) = 1 - q^{N+1}$: the induction for $(1 - q) \sum_{p < N} q^p = 1 - q^N$"""
    ratio, length = Symbol("q"), Symbol("N", integer=True, positive=True)
    return Step(
        (1 - ratio**length) + ratio**length * (1 - ratio),
        1 - ratio ** (length + 1),
        because="one more term",
        near_misses={"no new term": 1 - ratio**length},
    )


@step("B8.query-bias")
def length_of_the_denominator() -> Step:
    r"""$(1 - e^{i \theta})(1 - e^{-i \theta}) = 4 \sin^2 \frac{\theta}{2}$"""
    angle = Symbol("theta", real=True)
    return Step(
        (1 - turn(angle)) * (1 - turn(-angle)),
        4 * sine(angle / 2) ** 2,
        because="2 - 2 cos(theta)",
        near_misses={"angle not halved": 4 * sine(angle) ** 2},
    )


# %% [markdown]
# So the mean of $N$ turns is at most $1/(N |\sin \frac{\theta_r}{2}|)$, and by the bound of the price a bias
# alone costs
#
# $$\frac12 \bigl(\|b_Q\|^2 + \|W_K\|_F^2\bigr) \ge
# \sqrt{d_k}\, m\, N\, \frac{\min_r |\sin \frac{\theta_r}{2}|}{\|x_0\| + \|x_1\|}.$$
#
# It grows with the length. In a fast plane a bias alone cannot point at one key over a long text. A plane whose
# whole turn $N \theta_r$ stays small hardly turns at all, and there the bias works as in note B1. Models have
# such planes: with base $10^4$ and $d_k = 64$ the slowest turns by about $10^{-4}$ a token.
#
# ## A key bias under rotary positions
#
# Without positions a key bias adds the same number to every score of a row (note B1): no effect at all. With
# rotary positions the bias is turned with its key, by a different angle for each key. It adds to the margin


# %%
@step("B8.key-bias")
def gain_of_a_key_bias() -> Step:
    r"""$c\, \mathrm{Re} \sum_r (e^{i \theta_r (p_0 - p_i)} - e^{i \theta_r (p_j - p_i)})\, \bar{q}_{ir}\, b_r$

    That is $c\, q_i^T (R(p_0 - p_i) - R(p_j - p_i))\, b_K$, with query and bias as complex numbers in plane $r$.
    """
    b_1, b_2, q_1, q_2 = (IndexedBase(name) for name in ("b_1", "b_2", "q_1", "q_2"))
    query = q_1[r], q_2[r]
    sink_key, token_key = (tuple(IndexedBase(f"k_{place}{half}")[r] for half in (1, 2)) for place in "0j")

    def biased(key: Pair, size: int) -> Pair:
        return key[0] + size * b_1[r], key[1] + size * b_2[r]

    def margin_with(size: int) -> Expr:
        to_sink = rotary_score(query, biased(sink_key, size), position[i], sink_position)
        return to_sink - rotary_score(query, biased(token_key, size), position[i], position[j])

    def closed(sink_at: Expr) -> Expr:
        def phase(sign: int) -> Expr:
            return turn(sign * theta[r] * (sink_at - position[i])) - turn(sign * theta[r] * (position[j] - position[i]))

        return c * over(r, real_part(query, (b_1[r], b_2[r]), phase(1), phase(-1)), planes)

    return Step(
        margin_with(1) - margin_with(0),
        closed(sink_position),
        because="the score is linear in the key",
        decide=decide_planes,
        near_misses={"no effect": Integer(0), "sink at the query's place": closed(position[i])},
    )


# %% [markdown]
# **The smallest counterexample.** One plane, $\theta = \pi$, a query $q_1 = 1$ one step after the sink, and
# $b_K = -1$. The gain on its own key is $c\, (e^{-i \pi} - 1) \cdot (-1) = 2 c$. Without positions it is 0.


# %%
def bias_gain(frequency: Expr | int, query: int = 1, key: int = 1) -> Expr:
    """The gain of q_i = 1, b_K = -1, without c."""
    return -(cos(frequency * query) - cos(frequency * (query - key)))


@step("B8.key-bias")
def key_bias_changes_the_margin() -> Step:
    r"""$q_1 = 1$, $b_K = -1$: the gain is $2 c$ at $\theta = \pi$, $c$ at $\theta = \frac{\pi}{2}$, 0 without turns"""
    return Step(
        Matrix([c * bias_gain(pi), c * bias_gain(pi / 2), c * bias_gain(0)]),
        Matrix([2 * c, c, 0]),
        because="-(cos(theta) - 1)",
        counterexample=True,
        near_misses={"no effect": zeros(3, 1)},
    )


# %% [markdown]
# It can make the whole sink. Let $W_K = 0$, so that keys do not depend on their tokens, and let the query be the
# same for all, by a query bias. The gain is now the margin, the product of two sines of above:
# positive for all $1 \le j \le i \le n$ if $\theta n \le \pi$. **Two biases alone make a sink of the first
# position, for every text.** In the step the gain is written in exponentials.


# %%
@step("B8.key-bias")
def key_bias_alone_makes_a_sink() -> Step:
    r"""$q_i = 1$, $b_K = -1$: $s_{i0} - s_{ij} = 2 c \sin \frac{\theta (2 i - j)}{2} \sin \frac{\theta j}{2}$"""
    query, key, angle = symbols("i j theta", real=True)

    def scored(place: Expr) -> Expr:
        (q_1, q_2), (k_1, k_2) = (
            (size * cosine(angle * at), size * sine(angle * at)) for size, at in ((1, query), (-1, place))
        )
        return c * (q_1 * k_1 + q_2 * k_2)

    after = 2 * c * sine(angle * (2 * query - key) / 2) * sine(angle * key / 2)
    return Step(
        scored(Integer(0)) - scored(key),
        after,
        because="the product formula",
        near_misses={"sign of the bias": -after, "cosines": 2 * c * cosine(angle * key / 2) ** 2},
    )


# %% [markdown]
# Gu et al. (2410.10781) find that a sink *acts like* a bias on one key. In a rotary head the ordinary key bias,
# shared by all keys, can be one.
#
# ## A margin for each query: the price of what a head does
#
# A real head does not give every query the same margin. Let query $i$ have the least margin $m_i > 0$ over its
# keys. What is the least norm that does as much?
#
# **Example.** Tokens 1 and 3, sink 5, margins 2 and 1, on a line. Query 1 wants $B \cdot 1 \cdot (5 - x_j) \ge 2$,
# so $B \ge 1$; query 2 wants $B \ge \frac16$. The price is 1. The formula: $x_i/m_i$ is $\frac12$ and 3, at
# distance $\frac12$ from 0; the sink's distance is 2; and $1/(\frac12 \cdot 2) = 1$. With the mean margin
# $\frac32$ in the formula of note B2 one would get $\frac34$.


# %%
@step("B8.margins")
def two_margins_on_a_line() -> Step:
    r"""tokens 1, 3, sink 5, margins 2, 1: the dearest pair costs 1, and so does the formula"""
    tokens, first, asked = (1, 3), 5, (2, 1)
    queries = list(zip(tokens, asked, strict=True))
    dearest = max(Rational(least, query * (first - key)) for query, least in queries for key in tokens)
    scaled = min(Rational(query, least) for query, least in queries)
    distance = min(first - key for key in tokens)
    return Step(
        Matrix([dearest, 1 / (scaled * distance)]),
        Matrix([1, 1]),
        because="on a line a distance to a hull is a distance to its end",
        near_misses={"mean margin": Matrix([Rational(3, 4), Rational(3, 4)])},
    )


# %% [markdown]
# In general, divide a query's token by its margin: the margins are all 1 again.


# %%
wanted = IndexedBase("m")
nearest_query, nearest_gap = IndexedBase("h"), IndexedBase("k")
"""h is the point of conv{x_i/m_i} nearest to 0, k the sink less the point of conv{x_j} nearest to it."""


def bilinear(left: Token, right: Token) -> Expr:
    """left^T B right."""
    return over(p, over(e, left(p) * B[p, e] * right(e)))


def square(vector: IndexedBase) -> Expr:
    """||v||^2."""
    return over(e, vector[e] ** 2)


def dot(vector: IndexedBase, other: Token) -> Expr:
    """v . other."""
    return over(e, vector[e] * other(e))


def key_gap(key: Symbol) -> Token:
    """x_0 - x_j."""
    return lambda coordinate: x_0[coordinate] - x[key, coordinate]


@step("B8.margins")
def margins_scale_the_queries() -> Step:
    r"""$x_i^T B (x_0 - x_j) - m_i = m_i \bigl((x_i/m_i)^T B (x_0 - x_j) - 1\bigr)$"""
    scaled = bilinear(lambda coordinate: x[i, coordinate] / wanted[i], key_gap(j))
    return Step(
        bilinear(token(i), key_gap(j)) - wanted[i],
        wanted[i] * (scaled - 1),
        because="the score is linear in the query",
        decide=equal_sums(),
        near_misses={"query multiplied": wanted[i] * (bilinear(token(i), key_gap(j)) * wanted[i] - 1)},
    )


# %% [markdown]
# Note B2 prices margins of 1, and its two sides go through: it never used that queries and keys are the same
# tokens. **The lower side:** convex weights $\alpha$ on the scaled queries and $\beta$ on the keys give
# $h^T B k \ge 1$ for every point $h$ of $\mathrm{conv}\{x_i/m_i\}$ and $x_0 - k$ of $\mathrm{conv}\{x_j\}$, so
# $\|B\| \ge 1/(\|h\| \|k\|)$ in every norm.


# %%
@step("B8.margins")
def averaged_scaled_constraints() -> Step:
    r"""$\sum_{ij} \alpha_i \beta_j \bigl((x_i/m_i)^T B (x_0 - x_j) - 1\bigr) = h^T B k - 1$"""

    def query(coordinate: Symbol) -> Expr:
        return over(i, alpha[i] * x[i, coordinate] / wanted[i], n)

    def gap(coordinate: Symbol) -> Expr:
        return x_0[coordinate] - over(j, beta[j] * x[j, coordinate], n)

    after = bilinear(query, gap) - 1
    constraint = bilinear(lambda coordinate: x[i, coordinate] / wanted[i], key_gap(j)) - 1
    return Step(
        over(i, over(j, alpha[i] * beta[j] * constraint, n), n),
        after,
        because="both sets of weights sum to one",
        decide=equal_sums(Distribution(alpha, n), Distribution(beta, n)),
        near_misses={"mean margin": after + 1 - over(i, alpha[i] * wanted[i], n)},
    )


# %% [markdown]
# **The upper side:** let $h$ and $k$ be the shortest. Nearest points separate (note B2):
# $h \cdot x_i/m_i = \|h\|^2 (1 + \eta_i)$ and $k \cdot (x_0 - x_j) = \|k\|^2 (1 + \zeta_j)$ with
# $\eta_i, \zeta_j \ge 0$. So $B = h k^T/(\|h\|^2 \|k\|^2)$, with the one singular value $1/(\|h\| \|k\|)$,
# keeps every margin.


# %%
@step("B8.margins")
def attained_scaled_margins() -> Step:
    r"""$x_i^T \frac{h k^T}{\|h\|^2 \|k\|^2} (x_0 - x_j) - m_i = m_i (\eta_i + \zeta_j + \eta_i \zeta_j) \ge 0$"""
    eta = dot(nearest_query, token(i)) / (wanted[i] * square(nearest_query)) - 1
    zeta = dot(nearest_gap, key_gap(j)) / square(nearest_gap) - 1
    scale = square(nearest_query) * square(nearest_gap)
    made = over(p, over(r, x[i, p] * nearest_query[p] * nearest_gap[r] * (x_0[r] - x[j, r]))) / scale
    return Step(
        made - wanted[i],
        wanted[i] * (eta + zeta + eta * zeta),
        because="a product (1 + eta)(1 + zeta), less 1",
        decide=equal_sums(),
        near_misses={"product forgotten": wanted[i] * (eta + zeta), "margin forgotten": eta + zeta + eta * zeta},
    )


# %% [markdown]
# A query whose margin is not positive is left out: what remains is a smaller pattern, and its price a lower
# bound. With $m_i$ read off a head, the price is what the head's own behaviour costs at least, and the head's
# own $\|B\|_*$ is never below it.
#
# ## The causal mask: cuts
#
# Under the causal mask query $i$ asks for the keys $j \le i$ only. The set of pairs is a triangle, not a
# product, and the argument of note B2 stops. But a triangle contains products. For every cut $t$ the queries
# $i \ge t$ all see the keys $j \le t$:


# %%
@step("B8.cut")
def a_cut_is_causal() -> Step:
    r"""for $n = 6$: of the pairs $i \ge t \ge j \ge 1$ the mask keeps all $t\, (n - t + 1)$, for $t = 1, \ldots, 6$"""
    size = 6
    cuts = range(1, size + 1)

    def kept(cut: int) -> int:
        return sum(query >= cut >= key and key <= query for query in range(1, size + 1) for key in range(1, size + 1))

    return Step(
        Matrix([kept(cut) for cut in cuts]),
        Matrix([cut * (size - cut + 1) for cut in cuts]),
        because="j <= t <= i",
        near_misses={"queries from t - 1 on": Matrix([cut * (size - cut + 2) for cut in cuts])},
    )


# %% [markdown]
# So average over a cut: $\alpha$ on its queries and $\beta$ on its keys. Every pair with weight is one that the
# mask keeps, and $h^T B k \ge m$ follows as in note B2, now for the hulls of the cut. In every norm
#
# $$\max_t \frac{m}{\mathrm{dist}(0, \mathrm{conv}\{x_i : i \ge t\})\,
# \mathrm{dist}(x_0, \mathrm{conv}\{x_j : j \le t\})}
# \;\le\; \text{causal price} \;\le\; \frac{m}{g_q g_k}.$$
#
# The right side keeps more pairs than it must. In the step there are $t$ keys and $n'$ queries; the first query
# of the cut is token $t$, in the code the one with number $t - 1$.


# %%
cut, tail = symbols("t n'", integer=True, positive=True)


@step("B8.cut")
def averaged_cut() -> Step:
    r"""$\sum_{i \ge t} \sum_{j \le t} \alpha_i \beta_j \bigl(x_i^T B (x_0 - x_j) - m\bigr) = h^T B k - m$"""

    def late(coordinate: Symbol) -> Expr:
        return x[cut - 1 + i, coordinate]

    def query(coordinate: Symbol) -> Expr:
        return over(i, alpha[i] * x[i + cut - 1, coordinate], tail)

    def gap(coordinate: Symbol) -> Expr:
        return x_0[coordinate] - over(j, beta[j] * x[j, coordinate], cut)

    def first_queries(coordinate: Symbol) -> Expr:
        return over(i, alpha[i] * x[i, coordinate], tail)

    constraint = bilinear(late, key_gap(j)) - margin
    return Step(
        over(i, over(j, alpha[i] * beta[j] * constraint, cut), tail),
        bilinear(query, gap) - margin,
        because="both sets of weights sum to one",
        decide=equal_sums(Distribution(alpha, tail), Distribution(beta, cut), sizes={cut: 2, tail: 2, d: 2}),
        near_misses={"the first queries": bilinear(first_queries, gap) - margin},
    )


# %% [markdown]
# **A cut that is attained.** On a line, with all tokens on one side of 0 and the sink on one side of all tokens,
# the price is that of the dearest pair, and a pair $(i, j)$ with $j \le i$ lies in the cut $t = j$. So the best
# cut *is* the price. Tokens 1, 2 and sink 3: both cuts say $\frac12$, and so does $B = \frac12$; all pairs would
# cost 1 (note B2).


# %%
@step("B8.cut")
def cut_on_a_line() -> Step:
    r"""tokens 1, 2, sink 3, $m = 1$: dearest causal pair, cut 1 and cut 2 all say $\frac12$"""
    tokens, first = (1, 2), 3
    pairs = [Rational(1, tokens[query] * (first - tokens[key])) for query in range(2) for key in range(query + 1)]
    cuts = [1 / Rational(min(tokens[place:]) * min(first - key for key in tokens[: place + 1])) for place in range(2)]
    return Step(
        Matrix([max(pairs), *cuts]),
        Matrix([Rational(1, 2)] * 3),
        because="1 times 2, and 2 times 1",
        near_misses={"all pairs": Matrix([1, 1, 1])},
    )


# %% [markdown]
# **A price between.** In the plane something new happens. Take $x_1 = (1, 0)$, $x_2 = (0, 2)$ and the sink
# $(1, 2)$, with $m = 1$. The steps to the sink are $x_0 - x_1 = (0, 2)$ and $x_0 - x_2 = (1, 0)$. The mask asks
# for three pairs, and each fixes one entry of $B$. The fourth pair, query 1 against key 2, is not asked for: it
# is the entry $a$, and we may choose it.


# %%
PLANE_TOKENS = (Matrix([1, 0]), Matrix([0, 2]))
PLANE_SINK = Matrix([1, 2])
CAUSAL_PAIRS = ((0, 0), (1, 0), (1, 1))


def with_entry(entry: Expr) -> Matrix:
    """B with the free entry a."""
    return Matrix([[entry, Rational(1, 2)], [Rational(1, 2), Rational(1, 4)]])


def plane_gap(key: int) -> Matrix:
    """x_0 - x_j."""
    return PLANE_SINK - PLANE_TOKENS[key]


def weighted_gaps(weights: Sequence[Expr]) -> Matrix:
    """sum lambda_ij x_i (x_0 - x_j)^T over the causal pairs (1, 1), (2, 1), (2, 2)."""
    terms = (
        weight * PLANE_TOKENS[query] * plane_gap(key).T
        for weight, (query, key) in zip(weights, CAUSAL_PAIRS, strict=True)
    )
    return sum(terms, zeros(2, 2))


@step("B8.cut")
def one_free_entry() -> Step:
    r"""$B = \begin{pmatrix} a & 1/2 \\ 1/2 & 1/4 \end{pmatrix}$: the three causal margins are 1, the fourth is $a$"""
    entry = Symbol("a", real=True)
    pairs = (*CAUSAL_PAIRS, (0, 1))
    return Step(
        Matrix([(PLANE_TOKENS[query].T * with_entry(entry) * plane_gap(key))[0] for query, key in pairs]),
        Matrix([1, 1, 1, entry]),
        because="each pair reads one entry",
        near_misses={"all four": Matrix([1, 1, 1, 1])},
    )


# %% [markdown]
# Which $a$ is best depends on the norm.
#
# - **Spectral:** $a = -\frac14$ makes $B$ a multiple of an orthogonal matrix, of norm $\frac{\sqrt5}{4}$. Both
#   cuts say $\frac{\sqrt5}{4}$ too: attained.
# - **Frobenius:** $a = 0$, norm $\frac34$. The weights $\frac14, \frac1{16}, \frac14$ give $M(\lambda) = B$, so
#   $\langle B', B \rangle \ge \frac{9}{16}$ for every other $B'$: no smaller one.
# - **Nuclear:** $a = \frac14$, singular values $\frac34$ and $\frac14$, norm 1. The weights $\frac12, 0, \frac12$
#   give an orthogonal $M(\lambda)$, of spectral norm 1: no smaller one.
# - **All four pairs** ask for $a \ge 1$: rank 1 and norm $\frac54 = 1/G$.


# %%
def squared_distance(first: Matrix, second: Matrix) -> Expr:
    """From 0 to the segment between two points at a right angle: the height on the hypotenuse."""
    return first.dot(first) * second.dot(second) / (first - second).dot(first - second)


@step("B8.cut")
def spectral_price_is_the_cut() -> Step:
    r"""$a = -\frac14$: $B^T B = \frac{5}{16} I$, and $\frac{5}{16}$ is the square of both cuts"""
    made = with_entry(-Rational(1, 4))
    first_cut = 1 / (squared_distance(*PLANE_TOKENS) * plane_gap(0).dot(plane_gap(0)))
    second_cut = 1 / (PLANE_TOKENS[1].dot(PLANE_TOKENS[1]) * squared_distance(plane_gap(0), plane_gap(1)))
    return Step(
        Matrix([*(made.T * made), first_cut, second_cut]),
        Rational(5, 16) * Matrix([*eye(2), 1, 1]),
        because="dist(0, [x_1, x_2])^2 = dist(0, [k_1, k_2])^2 = 4/5",
        near_misses={"all pairs": Rational(25, 16) * Matrix([*eye(2), 1, 1])},
    )


@step("B8.cut")
def frobenius_price() -> Step:
    r"""$a = 0$: $M(\frac14, \frac1{16}, \frac14) = B$, and $\sum \lambda = \|B\|_F^2 = \frac{9}{16}$"""
    weights = (Rational(1, 4), Rational(1, 16), Rational(1, 4))
    made = with_entry(Integer(0))
    return Step(
        Matrix([*weighted_gaps(weights), sum(weights), (made.T * made).trace()]),
        Matrix([*made, Rational(9, 16), Rational(9, 16)]),
        because="the weights are complementary: every pair that they use has margin 1",
        near_misses={"squared cut": Matrix([*made, Rational(5, 16), Rational(5, 16)])},
    )


@step("B8.cut")
def nuclear_price() -> Step:
    r"""$a = \frac14$: eigenvalues $\frac34$, $-\frac14$; $M(\frac12, 0, \frac12)$ is orthogonal, $\sum \lambda = 1$"""
    weights = (Rational(1, 2), Integer(0), Rational(1, 2))
    made, dual = with_entry(Rational(1, 4)), weighted_gaps(weights)
    return Step(
        Matrix([made.trace(), made.det(), *(dual.T * dual), sum(weights)]),
        Matrix([Rational(3, 4) - Rational(1, 4), -Rational(3, 4) * Rational(1, 4), *eye(2), 1]),
        because="a symmetric matrix: its singular values are the sizes of its eigenvalues",
        near_misses={"eigenvalues of one sign": Matrix([1, Rational(3, 16), *eye(2), 1])},
    )


@step("B8.cut")
def all_pairs_price() -> Step:
    r"""$a = 1$: rank 1 and $\|B\|_F^2 = \frac{25}{16} = 1/(g_q g_k)^2$"""
    made = with_entry(Integer(1))
    full = 1 / (squared_distance(*PLANE_TOKENS) * squared_distance(plane_gap(0), plane_gap(1)))
    return Step(
        Matrix([made.det(), (made.T * made).trace(), full]),
        Matrix([0, Rational(25, 16), Rational(25, 16)]),
        because="1 + 1/4 + 1/4 + 1/16",
        near_misses={"price of the mask": Matrix([0, 1, 1])},
    )


@step("B8.cut")
def cut_is_below_the_others() -> Step:
    r"""$\frac{\sqrt5}{4} < \frac34$, and $\frac34 < 1 < \frac54$"""
    return Step(
        sqrt(5) / 4,
        Rational(3, 4),
        because="5 < 9",
        decide=below,
        relation="<",
        near_misses={"half": Rational(1, 2)},
    )


# %% [markdown]
# So under the mask the sink of this example costs $\frac{\sqrt5}{4}$, $\frac34$ or $1$: **a causal sink has no
# price of its own, only a price in a norm**, and rank 1 is no longer the cheapest. Weight decay measures the
# nuclear one.
#
# ## Heads that share their keys
#
# In grouped-query attention $g$ query heads share one key projection. Head $l$ has $B_l = c\, W_{Q,l}^T W_K$.
# Write the $B_l$ on top of each other: they are $c\, (W_{Q,1}, \ldots, W_{Q,g})^T W_K$, one product of two
# matrices. So note B2 applies to the stack. As there, let $Y_1, \ldots, Y_g$ on top of each other be a matrix
# that lengthens no vector; the best one pairs with the stack to its nuclear norm.


# %%
heads = Symbol("g", integer=True, positive=True)


@step("B8.grouped")
def decay_of_a_group() -> Step:
    r"""$\frac12 (\sum_l \|W_{Q,l}\|_F^2 + \|W_K\|_F^2) - \frac1c \sum_l \langle Y_l, B_l \rangle \ge 0$

    The left side is $\frac12 \|W_K - U\|_F^2 + \frac12 (\sum_l \|W_{Q,l}\|_F^2 - \|U\|_F^2)$ with
    $U = \sum_l W_{Q,l} Y_l$, the stack of the $W_{Q,l}$ times that of the $Y_l$.
    """
    Y = IndexedBase("Y")

    def head(row: Symbol, column: Symbol) -> Expr:
        return c * over(g, W_Q[l, g, row] * W_K[g, column])

    mixed = over(l, over(p, W_Q[l, g, p] * Y[l, p, e]), heads)
    queries = over(l, over(g, over(p, W_Q[l, g, p] ** 2)), heads)
    keys = over(g, over(e, W_K[g, e] ** 2))
    away = over(g, over(e, (W_K[g, e] - mixed) ** 2))
    shortened = queries - over(g, over(e, mixed**2))
    return Step(
        (queries + keys) / 2 - over(l, over(p, over(e, Y[l, p, e] * head(p, e))), heads) / c,
        (away + shortened) / 2,
        because="the square is completed",
        decide=equal_sums(sizes={heads: 2, d: 2, d_k: 2}),
        near_misses={"not halved": away + shortened, "lengths kept": away / 2},
    )


# %% [markdown]
# Nothing on the right is negative, so
# $\frac12 (\sum_l \|W_{Q,l}\|_F^2 + \|W_K\|_F^2) \ge \sqrt{d_k}\, \|[B_1; \ldots; B_g]\|_*$.
#
# What if only a price is known for each head, $\|B_l\|_* \ge P_l$? One head pays
# $c\, \|W_{Q,l}\|_F \|W_K\|_F \ge \|B_l\|_*$ (note B2, with $W_Q$ scaled up and $W_K$ down until both are
# equally long). Let $b = \|W_K\|_F$. Then $\|W_{Q,l}\|_F \ge P_l/(c\, b)$ for every $l$, and the group pays at
# least $\sqrt{d_k} \sqrt{\sum_l P_l^2}$, whatever $b$ is. The same proof serves rotary heads and diagonals.


# %%
@step("B8.grouped")
def prices_add_in_squares() -> Step:
    r"""$\frac12 (\sum_l \frac{P_l^2}{c^2 b^2} + b^2) - \frac{S}{c} = \frac12 (\frac{S}{c\, b} - b)^2$

    Here $S^2 = \sum_l P_l^2$, and $b = \|W_K\|_F$ is free.
    """
    price, key_length, root = IndexedBase("P"), Symbol("b", positive=True), Symbol("S", positive=True)
    squares = InnerProduct(
        price, price, heads, lambda: root**2, lambda: {price[0]: Integer(3), price[1]: Integer(4), root: Integer(5)}
    )
    after = (root / (c * key_length) - key_length) ** 2 / 2
    return Step(
        (over(l, (price[l] / (c * key_length)) ** 2, heads) + key_length**2) / 2 - root / c,
        after,
        because="the square is completed",
        decide=equal_sums(squares, sizes={heads: 2}),
        near_misses={"not halved": 2 * after, "always equal": Integer(0)},
    )


# %% [markdown]
# **Example.** Two heads make the same sink, $B_1 = B_2 = \sigma u v^T$ with unit vectors. On its own each pays
# $\sigma/c$, together $2 \sigma/c$. With shared keys: $W_{Q,l}$ has the one row $a\, u^T$ and $W_K$ the one row
# $b\, v^T$. This makes the sinks if $c\, a b = \sigma$. The decay $\frac12 (g a^2 + b^2)$ is least at
# $b = \sqrt g\, a$, and the least is $\sqrt g\, \sigma/c$: for two heads $\sqrt 2\, \sigma/c$. That meets the
# bound.


# %%
@step("B8.grouped")
def best_split_of_a_group() -> Step:
    r"""$\frac12 (g a^2 + b^2) - \sqrt g\, a b = \frac12 (\sqrt g\, a - b)^2$"""
    one, other = symbols("a b", positive=True)
    after = (sqrt(heads) * one - other) ** 2 / 2
    return Step(
        (heads * one**2 + other**2) / 2 - sqrt(heads) * one * other,
        after,
        because="the square of a difference",
        near_misses={"equal lengths are best": (one - other) ** 2 / 2, "not halved": 2 * after},
    )


@step("B8.grouped")
def equal_sinks_of_a_group() -> Step:
    r"""$c\, W_{Q,l}^T W_K = \sigma u v^T$ at the decay $\sqrt g\, \sigma/c$

    Here $a^2 = \sigma/(c \sqrt g)$ and $b = \sqrt g\, a$.
    """
    u, v = IndexedBase("u"), IndexedBase("v")
    value = Symbol("sigma", positive=True)
    mark_matrix, mark_cost = symbols("y_1 y_2")
    one = sqrt(value / (c * sqrt(heads)))
    other = sqrt(heads) * one
    entry, cost = c * (one * u[p]) * (other * v[e]), (over(l, one**2, heads) + other**2) / 2
    return Step(
        mark_matrix * entry + mark_cost * cost,
        mark_matrix * value * u[p] * v[e] + mark_cost * sqrt(heads) * value / c,
        because="g a^2 = b^2; y_1 and y_2 keep the two statements apart",
        decide=equal_sums(sizes={heads: 3, d: 2}),
        near_misses={
            "heads on their own": mark_matrix * value * u[p] * v[e] + mark_cost * heads * value / c,
            "one head's price": mark_matrix * value * u[p] * v[e] + mark_cost * value / c,
        },
    )


# %% [markdown]
# With $\sigma = m/G$ and $P_l = m/G$ both sides agree: $g$ sinks of margin $m$ cost $\sqrt{g\, d_k}\, m/G$, and
# per head $1/\sqrt g$ of what a head with its own keys pays. **Shared keys make sinks cheaper**, because all
# heads of the group want the same key direction. Different margins: $\sqrt{\sum_l m_l^2}$ for $\sqrt g\, m$.
# Diagonals gain the same factor at most, so a sink that is the cheaper stays the cheaper.
#
# ## How to read a pretrained model with this
#
# A probe of a real model puts these numbers beside every head.
#
# - **The two distances** $g_q$ and $g_k$, of the vectors that enter the projections, are B1's conditions. With
#   $n > d$ tokens they have content; with $n \le d$ they hold by themselves, and Wendel's count is the null
#   (note B1). For heads without positions both must be positive, and with a query bias only $g_k$. For rotary heads
#   they decide nothing (B8.rotary-alignment): there only the program speaks.
# - **The sink's price** is a bracket. Without positions its lower side is the best cut, its upper side $m/G$
#   (B8.cut); the program closes the gap in the nuclear norm. With rotary positions both sides come from the
#   program (B8.rotary-price): multipliers below, matrices $Z_r$ above. The upper side is a price only if every
#   $Z_r$ has rank 1 or less; the lower side is always true.
# - **The diagonal's price** is the same program with the other pairs. The ratio of the two is B4's question, for
#   this layer's tokens.
# - **What a head does** has its own margins $m_i$, read off its scores. Their price (B8.margins, in the program
#   for rotary and causal heads) is the least that any head must spend to do as much on this text.
# - **What a head spends** is $\|B\|_*$, and for a rotary head $c \sum_r \|w_r\| \|z_r\|$. Spent over price is
#   never below 1; a large ratio says that the head does other things with its weights, or that the text asks for
#   less than it can do. For a group the spent side is the stack's norm and the price side $\sqrt{\sum_l P_l^2}$
#   (B8.grouped).
# - **Biases.** A query bias is one more coordinate of the queries' tokens. A key bias is one of the keys' tokens:
#   without positions it drops out, with rotary positions it must be kept (B8.key-bias).
# - **Silent or broadcasting** (Fesser et al.) is not a question of scores, so no statement of this note bears on
#   it: the sink's value norm and the two sides of note B5 answer it.

# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("b8_pretrained"))
