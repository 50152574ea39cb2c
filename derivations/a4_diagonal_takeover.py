r"""A4. "The diagonal takes over as T grows": true of the Jacobian, false of the attention weights.

P1 claims: in long sequences the diagonal dominates. The sentence has two readings, and they have different verdicts.

(a) Of the Jacobian: the own block J_ii outgrows the others. Our statement: under the assumptions of A3

    (||J_ii|| / mean_{j != i} ||J_ij||)/T -> ||r I + W_V hess kappa B^T|| / E_w ||W_V (I + (x - grad kappa) u_i^T)||

so it takes over at rate T: with the residual (r = 1) even for B = 0, without it only where W_V hess kappa B^T != 0.

(b) Of the attention weights: a_ii > a_ij, and a_ii grows with T. This **fails**. At fixed weights every new key lowers
a_ii; a_ii >= 1/2 iff s_ii >= log sum_{l != i} exp(s_il); and in a ball it forces T <= 1 + exp(2 R ||u_i||).

Steps of this note: the ratio at finite T and its limit, closed forms for d = 1, the two cases r = 1 and r = 0, a floor
for any tokens in a ball; then the weights.
"""

# %% [markdown]
# # A4. Does the diagonal take over?
#
# Notes A1 to A3 found that the blocks off the diagonal fall like $1/T$ while the diagonal block stays. So the
# diagonal **of the Jacobian** takes over. It is tempting to conclude that tokens come to **attend** to themselves.
# They do not: the same limit says that $a_{ii}$ goes to 0. This note keeps the two apart.
#
# ## Reading (a): the Jacobian, at every T
#
# Let $N_j = \|W_V (I + (x_j - \bar{x}_i) u_i^T)\|$. By A1 the off-diagonal block is
# $J_{ij} = a_{ij} W_V (I + (x_j - \bar{x}_i) u_i^T)$, and $a_{ij} > 0$ comes out of the norm. With
# $a_{ij} = e^{s_{ij}} / \sum_l e^{s_{il}}$ and the empirical mean $M_T = \frac{1}{T} \sum_l e^{s_{il}}$:
#
# $$T \cdot \mathrm{mean}_{j \ne i} \|J_{ij}\| = \frac{1}{M_T} \cdot \frac{1}{T-1} \sum_{j \ne i} e^{s_{ij}} N_j.$$

# %%
from sympy import (
    Expr,
    IndexedBase,
    Integer,
    Matrix,
    Rational,
    Symbol,
    cancel,
    diff,
    erf,
    exp,
    limit,
    log,
    oo,
    pi,
    sqrt,
    symbols,
)

from derivations.decide import below, equal_sums
from derivations.notation import T, delta, i, j, m, over
from derivations.steps import Step, step

s, N = IndexedBase("s"), IndexedBase("N")
M = Symbol("M", positive=True)  # E exp(u.x), the moment generating function at the slope


def softmax(query: Symbol, key: Symbol) -> Expr:
    """a_ij of symbolic scores, full attention."""
    return exp(s[query, key]) / over(m, exp(s[query, m]))


@step("A4.jacobian")
def mean_of_the_row() -> Step:
    r"""$T\, \mathrm{mean}_{j \ne i}\, a_{ij} N_j = M_T^{-1}\, \mathrm{mean}_{j \ne i}\, e^{s_{ij}} N_j$, every $T$"""
    empirical = over(m, exp(s[i, m])) / T
    others = over(j, (1 - delta(i, j)) * exp(s[i, j]) * N[j]) / (T - 1)
    return Step(
        T * over(j, (1 - delta(i, j)) * softmax(i, j) * N[j]) / (T - 1),
        others / empirical,
        because="the softmax written out",
        decide=equal_sums(),
        near_misses={
            "own key counted": over(j, exp(s[i, j]) * N[j]) / (T - 1) / empirical,
            "T left out": others / empirical / T,
        },
    )


# %% [markdown]
# ## The limit
#
# Now let the other tokens be iid, as in A3. The mean token $\bar{x}_i$ tends to $\nabla \kappa$, and replacing it
# moves each $N_j$ by at most $\|W_V\| \, \|\bar{x}_i - \nabla \kappa\| \, \|u_i\|$: the same small number for all
# $j$. After that every sum is one of iid terms and the law of large numbers applies, with
# $F = \mathbb{E}\, e^{u_i \cdot x} \|W_V (I + (x - \nabla \kappa) u_i^T)\|$ and $M = \mathbb{E}\, e^{u_i \cdot x}$.
# Both are finite where $\kappa$ is finite around $u_i$.
#
# $F/M$ is a mean of norms under the law tilted by $w(x) = e^{u_i \cdot x - \kappa(u_i)}$; we write it $\mathbb{E}_w$.


# %%
E_i, F, D = symbols("E_i F D", positive=True)  # exp(u_i.x_i); the mean above; the limit of ||J_ii||


@step("A4.jacobian")
def limit_of_the_mean() -> Step:
    r"""$T \cdot \mathrm{mean}_{j \ne i} \|J_{ij}\| \to F/M = \mathbb{E}_w \|W_V (I + (x - \nabla \kappa) u_i^T)\|$"""
    return Step(
        limit(F / ((E_i + (T - 1) * M) / T), T, oo),
        F / M,
        because="the token x_i is one of T and does not count",
        near_misses={"untilted mean": F, "own token counted": F / (M + E_i)},
    )


@step("A4.jacobian")
def limit_of_the_ratio() -> Step:
    r"""ratio$/T \to \|r I + W_V \nabla^2 \kappa\, B^T\| / \mathbb{E}_w \|W_V (I + (x - \nabla \kappa) u_i^T)\|$"""
    mean = F / ((E_i + (T - 1) * M) / T) / T
    return Step(
        limit(D / mean / T, T, oo),
        D / (F / M),
        because="numerator from A3, denominator from the step before",
        near_misses={"no growth": Integer(0), "untilted": D / F},
    )


# %% [markdown]
# The denominator is never 0 if $W_V \ne 0$: the tilted mean of $W_V (I + (x - \nabla \kappa) u_i^T)$ is $W_V$ itself,
# so $\mathbb{E}_w \|\ldots\| \ge \|W_V\|$ by Jensen's inequality. So the ratio grows like $T$ **exactly when the
# numerator is not 0**.
#
# ## Closed form: Gaussian tokens on a line
#
# Let $d = 1$ and $x \sim N(m, S)$, $S = \sigma^2$. Tilting moves a Gaussian and does not stretch it: under $w$ the
# token is $N(m + \sigma^2 u, \sigma^2)$, so $x - \nabla \kappa = \sigma Z$ with a standard normal $Z$, and the
# denominator is $|W_V| \, \mathbb{E} |1 + \tau Z|$ with $\tau = \sigma u$.


# %%
sigma, tau = symbols("sigma tau", positive=True)
slope, centre, place = symbols("u m x", real=True)


@step("A4.jacobian")
def tilting_moves_a_gaussian() -> Step:
    r"""exponents: $u x - \kappa(u) - \frac{(x - m)^2}{2 \sigma^2} = -\frac{(x - m - \sigma^2 u)^2}{2 \sigma^2}$

    Here $\kappa(u) = m u + \sigma^2 u^2/2$.
    """

    def exponent(mean: Expr) -> Expr:
        return -((place - mean) ** 2) / (2 * sigma**2)

    kappa = centre * slope + sigma**2 * slope**2 / 2
    return Step(
        slope * place - kappa + exponent(centre),
        exponent(centre + sigma**2 * slope),
        because="completing the square",
        near_misses={"moved by u": exponent(centre + slope), "not moved": exponent(centre)},
    )


def antiderivative(at: Expr) -> Expr:
    """Of (1 + tau z) times the standard normal density."""
    return erf(at / sqrt(2)) / 2 - tau * exp(-(at**2) / 2) / sqrt(2 * pi)


@step("A4.jacobian")
def antiderivative_of_the_stretch() -> Step:
    r"""$\frac{d}{dz} ( \frac{1}{2} \mathrm{erf}\frac{z}{\sqrt{2}} - \tau \varphi(z) ) = (1 + \tau z)\, \varphi(z)$"""
    density = exp(-(place**2) / 2) / sqrt(2 * pi)
    return Step(
        diff(antiderivative(place), place),
        (1 + tau * place) * density,
        because="chain rule",
        near_misses={"sign": (1 - tau * place) * density},
    )


@step("A4.jacobian")
def mean_stretch() -> Step:
    r"""$\mathbb{E} |1 + \tau Z| = \mathrm{erf}\frac{1}{\sqrt{2} \tau} + \tau \sqrt{2/\pi}\, e^{-1/(2 \tau^2)}$"""
    at_minus_infinity, at_infinity = (limit(antiderivative(place), place, end) for end in (-oo, oo))
    tail = tau * sqrt(2 / pi) * exp(-1 / (2 * tau**2))
    return Step(
        at_infinity + at_minus_infinity - 2 * antiderivative(-1 / tau),
        erf(1 / (sqrt(2) * tau)) + tail,
        because="1 + tau z changes sign at z = -1/tau; there its integral is counted back",
        near_misses={
            "sign change ignored": at_infinity - at_minus_infinity,
            "tail halved": erf(1 / (sqrt(2) * tau)) + tail / 2,
        },
    )


# %% [markdown]
# So for Gaussian tokens on a line the limit of ratio$/T$ is
# $|r + W_V \sigma^2 B| \, / \, (|W_V| \, \mathbb{E} |1 + \sigma u_i Z|)$.
#
# ## From the exact ratio to its limit: signs
#
# Here is one sequence for which everything can be written out at each $T$. Tokens $\pm 1$ on a line, $W_V = B = 1$.
# Row $i$ has $x_i = 1$, so $u_i = 1$. Beside it stand $n$ tokens $+1$ and $n$ tokens $-1$, so $T = 2n + 1$. The law
# is the fair sign, $\kappa = \log \cosh$, $\nabla \kappa = \tanh 1$, $\nabla^2 \kappa = 1/\cosh^2 1$.


# %%
n = Symbol("n", integer=True, positive=True)
cosh, tanh = (exp(1) + exp(-1)) / 2, (exp(1) - exp(-1)) / (exp(1) + exp(-1))


def sign_ratio(residual: int) -> Expr:
    """||J_ii|| / mean_{j != i} ||J_ij|| of that sequence by A1, with T = 2 n + 1; all absolute values resolved."""
    total = (n + 1) * exp(1) + n * exp(-1)
    own = exp(1) / total
    mean_token = ((n + 1) * exp(1) - n * exp(-1)) / total  # between 0 and 1
    diagonal = residual + own * (1 + (1 - mean_token)) + (1 - mean_token**2)  # variance of signs
    # 1 + (x_j - mean) is 2 - mean > 0 at x_j = 1 and -mean < 0 at x_j = -1.
    others = n * exp(1) / total * (2 - mean_token) + n * exp(-1) / total * mean_token
    return diagonal / (others / (2 * n))


def sign_limit(residual: int) -> Expr:
    """The limit by the formula: E_w is the mean over signs with the weights exp(+-1)/(2 cosh 1)."""
    denominator = (exp(1) * (2 - tanh) + exp(-1) * tanh) / (2 * cosh)
    return (residual + 1 / cosh**2) / denominator


@step("A4.jacobian")
def signs_written_out() -> Step:
    r"""exact ratio$/T \to (r + \cosh^{-2} 1) / \mathbb{E}_w |1 + (x - \tanh 1)|$, for $r = 0$ and $r = 1$"""
    untilted = Matrix([(r + 1 / cosh**2) / ((2 - tanh) / 2 + tanh / 2) for r in (0, 1)])
    return Step(
        Matrix([limit(cancel(sign_ratio(r) / (2 * n + 1)), n, oo) for r in (0, 1)]),
        Matrix([sign_limit(r) for r in (0, 1)]),
        because="limit of a rational function of n",
        near_misses={
            "untilted mean": untilted,
            "second moment for variance": Matrix([sign_limit(r) * (r + 1) / (r + 1 / cosh**2) for r in (0, 1)]),
        },
    )


# %% [markdown]
# ## With the residual: B = 0 is enough
#
# Let $B = 0$. All scores are equal, every weight is $1/T$, no query is read, and attention is a plain average. Yet
# the diagonal takes over, because of the residual alone: $J_{ij} = W_V/T$ for $j \ne i$ and $J_{ii} = r I + W_V/T$.
# In $d = 1$, with $W_V = W > 0$, the ratio is $1 + T r/W$, at every $T$. In any dimension the triangle inequality
# gives
#
# $$\left| \frac{\text{ratio}}{T} - \frac{r}{\|W_V\|} \right| \le \frac{1}{T}.$$
#
# So the takeover of the Jacobian's diagonal need not have anything to do with attention. Without the residual the
# same layer has ratio 1, at every $T$.


# %%
W, r = symbols("W r", positive=True)


@step("A4.jacobian")
def residual_alone() -> Step:
    r"""$B = 0$, $d = 1$: ratio $= 1 + T r/W$ at every $T$"""
    weight = 1 / over(m, Integer(1)).doit()  # the softmax of T scores that are all 0
    return Step(
        (r + weight * W) / (weight * W),
        1 + T * r / W,
        because="equal scores: every weight is 1/T, and u_i = 0 leaves the value path alone",
        near_misses={"no growth": 1 + r / W, "without the residual": Integer(1)},
    )


# %% [markdown]
# ## Without the residual: the query path must be there
#
# With $r = 0$ growth like $T$ needs $W_V \nabla^2 \kappa\, B^T \ne 0$: the values must vary in a direction that the
# scores see. Example without it: in the plane let all tokens lie on the first axis, $x = (\pm 1, 0)$ as above,
# $B = e_1 e_1^T$, and let $W_V = e_2 e_2^T$ read the second axis. Values are all 0, so $J_{ij} = a_{ij} W_V$ for all
# $j$, $i$ included. The ratio is that of the weights, and it tends to $w_{ii} = e/\cosh 1$.
#
# (If the values vary but are uncorrelated with what the scores see, $W_V \nabla^2 \kappa\, B^T = 0$ only in the
# limit. At finite $T$ the covariance is of order $T^{-1/2}$, so the ratio may still grow, but like $\sqrt{T}$.)


# %%
@step("A4.jacobian")
def without_residual_and_query_path() -> Step:
    r"""$r = 0$, $W_V \nabla^2 \kappa\, B^T = 0$: ratio $\to w_{ii} = e/\cosh 1$, it does not grow"""
    total = (n + 1) * exp(1) + n * exp(-1)
    own = exp(1) / total
    return Step(
        limit(own / ((1 - own) / (2 * n)), n, oo),
        exp(1) / cosh,
        because="the blocks are the weights times one matrix",
        near_misses={"level": Integer(1), "grows": (2 * n + 1) * exp(1) / cosh},
    )


# %% [markdown]
# ## Any tokens in a ball: a floor at every T
#
# No law is needed where the query path is small against the residual. Let $\|x_j\| \le R$, $r = 1$, no projection
# bias. By A2,
#
# $$\|J_{ii}\| \ge P = 1 - a_{ii} \|W_V\| (1 + 2 R^2 (1 - a_{ii}) \|B\|) - R^2 \|W_V\| \|B\|,$$
#
# $$\mathrm{mean}_{j \ne i} \|J_{ij}\| \le Q/(T - 1), \qquad Q = \|W_V\| (1 - a_{ii} + \sqrt{1 - a_{ii}}\, R^2 \|B\|).$$
#
# Where $P \ge 0$ the ratio is at least $(T - 1) P/Q$, for every choice of tokens. If $R^2 \|W_V\| \|B\| < 1$ this
# grows like $T$, because $a_{ii} \le 1/(1 + (T-1) e^{-2 R \|u_i\|})$ goes to 0.
#
# With $\|J_{ii}\| = P + y$ and mean $= (Q - z)/(T - 1)$, slacks $y, z \ge 0$, the difference is manifestly $\ge 0$:


# %%
@step("A4.jacobian")
def floor_in_a_ball() -> Step:
    r"""ratio $- (T - 1) P/Q = (T - 1) (Q y + P z) / (Q (Q - z)) \ge 0$"""
    P, Q, y, z = symbols("P Q y z", nonnegative=True)
    gap = (T - 1) * (Q * y + P * z) / (Q * (Q - z))
    return Step(
        (P + y) / ((Q - z) / (T - 1)) - (T - 1) * P / Q,
        gap,
        because="a larger numerator over a smaller denominator",
        near_misses={"T for T - 1": gap * T / (T - 1), "slack of the mean forgotten": (T - 1) * y / Q},
    )


# %% [markdown]
# ## Reading (b): the attention weights
#
# Now the weights themselves. Let $y = e^{s_{ii}}$ and let $R = \sum_{l \ne i} e^{s_{il}}$ be the rest, for any number
# of keys. Then $a_{ii} = y/(y + R)$.
#
# **Every new key lowers $a_{ii}$.** At fixed weights a longer sequence adds terms to the rest and changes nothing
# else. So $a_{ii}$ falls strictly in $T$, for every set of weights and every sequence.


# %%
own_key, rest, new = symbols("y R z", positive=True)  # e^{s_ii}, the rest, a new key's e^{s}


def own_weight(others: Expr) -> Expr:
    """a_ii, given the sum of exponentials over the other keys."""
    return own_key / (own_key + others)


@step("A4.weights")
def new_key_lowers_the_diagonal() -> Step:
    r"""$\frac{y}{y + R} - \frac{y}{y + R + z} = \frac{y z}{(y + R)(y + R + z)} > 0$"""
    fall = own_key * new / ((own_key + rest) * (own_key + rest + new))
    return Step(
        own_weight(rest) - own_weight(rest + new),
        fall,
        because="common denominator",
        near_misses={"grows": -fall, "own key forgotten": own_key * new / (rest * (rest + new))},
    )


# %% [markdown]
# **How far does it fall?** To 0, like $1/T$. By A3 $T a_{ii} \to w_{ii} = e^{u_i \cdot x_i - \kappa(u_i)}$. The sign
# sequence shows it, now with any slope $u$:


# %%
def own_weight_of_signs() -> Expr:
    """a_ii for x_i = 1 among n signs +1 and n signs -1, slope u."""
    return own_weight(n * exp(slope) + n * exp(-slope)).subs(own_key, exp(slope))


@step("A4.weights")
def diagonal_vanishes() -> Step:
    r"""signs: $a_{ii} \to 0$ and $T a_{ii} \to w_{ii} = e^u/\cosh u$"""
    cosh_of_slope = (exp(slope) + exp(-slope)) / 2
    return Step(
        Matrix([limit(own_weight_of_signs(), n, oo), limit((2 * n + 1) * own_weight_of_signs(), n, oo)]),
        Matrix([Integer(0), exp(slope) / cosh_of_slope]),
        because="limit of a rational function of n",
        near_misses={
            "untilted": Matrix([Integer(0), Integer(1)]),
            "stays": Matrix([exp(slope) / cosh_of_slope, oo]),
        },
    )


# %% [markdown]
# **What would a majority take?** $a_{ii} \ge \frac{1}{2}$ means that the own key outweighs all others together:
# $s_{ii} \ge \log \sum_{l \ne i} e^{s_{il}}$. With the log-mean-exp of the rest,
# $\mathrm{lme} = \log \frac{R}{T - 1}$, this is $s_{ii} \ge \mathrm{lme} + \log(T - 1)$: the bar rises with $T$.


# %%
@step("A4.weights")
def majority() -> Step:
    r"""$a_{ii} - \frac{1}{2} = \frac{y - R}{2 (y + R)}$: a majority iff $y \ge R$, every $T$"""
    return Step(
        own_weight(rest) - Rational(1, 2),
        (own_key - rest) / (2 * (own_key + rest)),
        because="the sign is that of y - R",
        near_misses={"a third": (own_key - rest) / (3 * (own_key + rest)), "sign": own_weight(rest) / 2},
    )


@step("A4.weights")
def bar_rises_with_length() -> Step:
    r"""$a_{ii} - \frac{1}{2} = \frac{e^g - 1}{2 (e^g + 1)}$ for the score $s_{ii} = \mathrm{lme} + \log(T-1) + g$"""
    log_mean, excess = symbols("lme g", real=True)
    others = (T - 1) * exp(log_mean)
    own = exp(log_mean) * (T - 1) * exp(excess)  # exp(lme + log(T - 1) + g)
    half = (exp(excess) - 1) / (2 * (exp(excess) + 1))
    return Step(
        own_weight(others).subs(own_key, own) - Rational(1, 2),
        half,
        because="T drops out once the bar log(T - 1) is cleared",
        near_misses={"bar log T": half * T / (T - 1), "no bar": (exp(excess) - T) / (2 * (exp(excess) + T))},
    )


# %% [markdown]
# **In a ball the bar is out of reach.** If $\|x_j\| \le R$, no score of the row exceeds another by more than
# $\kappa = 2 R \|u_i\|$, so $1/a_{ii} = 1 + (T - 1) e^{-\kappa} + \text{slack}$, slack $\ge 0$ (A2). A majority,
# $1/a_{ii} \le 2$, needs $T \le 1 + e^{2 R \|u_i\|}$: by the identity below, $T - 1 - e^\kappa$ has the sign of
# $1/a_{ii} - 2 - \text{slack} \le 0$.


# %%
@step("A4.weights")
def longest_majority_in_a_ball() -> Step:
    r"""$T - 1 - e^\kappa = e^\kappa (1/a_{ii} - 2 - \text{slack})$ with $\kappa = 2 R \|u_i\|$"""
    spread, slack = symbols("kappa slack", nonnegative=True)
    weight = 1 / (1 + (T - 1) * exp(-spread) + slack)
    return Step(
        exp(spread) * (1 / weight - 2 - slack),
        T - 1 - exp(spread),
        because="A2's bound on a weight, solved for T",
        near_misses={"T for T - 1": T - exp(spread), "half the spread": T - 1 - exp(spread / 2)},
    )


@step("A4.weights")
def longest_majority_is_attained() -> Step:
    r"""$R = 1$, $u = \frac{1}{2} \log 3$, $x_i = 1$, others $-1$: $a_{ii} = \frac{1}{2}$ at $T = 4 = 1 + e^{2u}$"""
    u = log(3) / 2

    def own(tokens: int) -> Expr:
        return 1 / (1 + (tokens - 1) * exp(-2 * u))

    return Step(
        own(4),
        Rational(1, 2),
        because="exp(2u) = 3",
        near_misses={"one token less": own(3), "one token more": own(5)},
    )


# %% [markdown]
# ## The counterexamples
#
# **$a_{ii} > a_{ij}$ fails** already for two tokens: $x = (1, 2)$ on a line, $B = 1$. Row 0 has the scores
# $1 \cdot 1 = 1$ and $1 \cdot 2 = 2$, so $a_{00} = \frac{1}{1 + e}$ and $a_{01} = \frac{e}{1 + e}$. The larger token
# wins, not the own one.
#
# **$a_{ii}$ grows with $T$ fails** for any sequence, by the step above. The smallest case: equal tokens,
# $a_{ii} = 1/T$, so $1/2$ at $T = 2$ and $1/3$ at $T = 3$.


# %%
def weights_of_row(scores: list[int]) -> list[Expr]:
    """Softmax of integer scores, exact."""
    total = sum(exp(score) for score in scores)
    return [exp(score) / total for score in scores]


@step("A4.weights")
def own_key_loses() -> Step:
    r"""$T = 2$, $x = (1, 2)$, $B = 1$: $a_{00} = \frac{1}{1+e} < \frac{e}{1+e} = a_{01}$"""
    own, other = weights_of_row([1, 2])
    return Step(
        own,
        other,
        because="1 < e",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"row 1, whose own key wins": weights_of_row([4, 2])[1]},
    )


@step("A4.weights")
def diagonal_shrinks() -> Step:
    r"""equal tokens: $a_{00} = \frac{1}{3}$ at $T = 3$ is less than $\frac{1}{2}$ at $T = 2$"""
    return Step(
        weights_of_row([0, 0, 0])[0],
        weights_of_row([0, 0])[0],
        because="1/T falls",
        decide=below,
        relation="<",
        counterexample=True,
        near_misses={"T = 4": weights_of_row([0, 0, 0, 0])[0]},
    )


# %% [markdown]
# So P1's sentence is right about **sensitivity** and wrong about **attention**. A penalty or a mask on the diagonal
# score acts on $a_{ii}$, which vanishes by itself as $T$ grows. What it can change of $J_{ii}$ is settled in note A5.

# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("a4_diagonal_takeover"))
