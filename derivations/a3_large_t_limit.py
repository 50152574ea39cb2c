r"""A3. What attention tends to when the number of tokens grows.

The statements of this note are ours; P1 speaks of O(1) and O(1/T) only. They say what the constants are.

Full attention, x_i fixed, the other tokens independent draws of one law, kappa(u) = log E exp(u.x) finite near u_i.
Almost surely, as T grows,

    o_i    ->  W_V grad kappa(u_i) + b_V
    J_ii   ->  r I + W_V hess kappa(u_i) B^T
    T a_ij ->  w_ij = exp(u_i.x_j - kappa(u_i)), with T a_ij/w_ij the same number for all j, at every T
    T J_ij ->  w_ij W_V (I + (x_j - grad kappa(u_i)) u_i^T)

Closed forms of grad kappa and hess kappa: Gaussian tokens, tokens on a sphere, random signs, a Gaussian mixture.
The error is O_p(T^(-1/2)) if also E exp(2 u_i.x) ||x||^4 is finite; without that it can be slower.

Steps of this note: the weights at finite T, the law of large numbers, the four limits, the closed forms law by law,
the rate, its price, and a law without a rate.
"""

# %% [markdown]
# # A3. The limit of many tokens
#
# Token $x_i$ stays. The other tokens are drawn independently from one law, and there are more and more of them.
# What does the row $i$ of attention tend to?
#
# Since $x_i$ stays, so does its slope $u_i = c\, W_K^T q_i$. We write $u$ for it. Up to a constant of the row the
# scores are $u \cdot x_j$, so $a_{ij} = e^{u \cdot x_j} / \sum_l e^{u \cdot x_l}$. Attention sees the law only
# through
#
# $$M(u) = \mathbb{E}\, e^{u \cdot x}, \qquad \kappa(u) = \log M(u),$$
#
# the moment generating function and its logarithm, the **cumulant generating function**. One assumption is made:
# $\kappa$ is finite in a neighbourhood of $u$. There is no mask and no bias.
#
# In note A1 the output was the gradient of a log-sum-exp and the query part its Hessian. Here the log-sum-exp
# becomes $\log T + \kappa(u)$, and the limits are the gradient and the Hessian of $\kappa$.

# %%
from itertools import product

from sympy import (
    Add,
    Derivative,
    Expr,
    Function,
    IndexedBase,
    Integer,
    Matrix,
    Poly,
    Rational,
    Symbol,
    diff,
    exp,
    factorial,
    gamma,
    gammasimp,
    integrate,
    limit,
    log,
    oo,
    pi,
    solve,
    sqrt,
    symbols,
)

from derivations.decide import below, equal_sums
from derivations.notation import T, d, delta, e, j, l, m, over, p, r, residual, x
from derivations.steps import Step, step

u = IndexedBase("u")  # the slope u_i of the row; its own index i is left out


def score(token: Symbol) -> Expr:
    """The score u.x of a token, up to a constant of the row."""
    return over(e, u[e] * x[token, e])


# %% [markdown]
# ## The weights, at every T
#
# Let $M_T(u) = \frac{1}{T} \sum_l e^{u \cdot x_l}$ be the empirical counterpart of $M$. Compare $T a_{ij}$ with
# $w_{ij} = e^{u \cdot x_j - \kappa(u)}$. Their ratio is $M(u)/M_T(u)$: it does not depend on $j$. So whatever error
# a weight has, all weights of the row have the same relative error.


# %%
M = Symbol("M", positive=True)  # M(u), the value at the slope


@step("A3.limit")
def weights_share_one_factor() -> Step:
    r"""$T a_{ij} / w_{ij} = M(u) / M_T(u)$ at every $T$, the same for all $j$"""
    empirical = over(m, exp(score(m))) / T
    weight = exp(score(j)) / over(l, exp(score(l)))
    density = exp(score(j)) / M
    return Step(
        T * weight / density,
        M / empirical,
        because="e^{u.x_j} cancels",
        decide=equal_sums(),
        near_misses={"T left out": M / (T * empirical), "depends on j": M * exp(score(j)) / empirical},
    )


# %% [markdown]
# ## The law of large numbers
#
# Everything in row $i$ is made of means $\frac{1}{T} \sum_l f(x_l)$, where $f$ is $e^{u \cdot x}$, or it times one
# or two coordinates of $x$. One term of the sum is the token $x_i$, which is no random draw. The other $T - 1$
# terms are independent with one law, so their mean tends to $\mathbb{E} f(x)$ almost surely, provided that
# $\mathbb{E} |f(x)|$ is finite (Kolmogorov). One term in $T$ cannot disturb that.
#
# Why are the means finite? Because $\kappa$ is finite *around* $u$: by the step below
# $(\epsilon t)^2/2 + 1 \le \cosh(\epsilon t)$, so a squared coordinate times $e^{u \cdot x}$ is at most
# $\frac{2}{\epsilon^2} \cosh(\epsilon x_p)\, e^{u \cdot x}$, a sum of two exponentials with slopes near $u$. The
# same bound allows differentiation under the expectation: the derivatives of $M$ are the means
# $\mathbb{E}\, x_p e^{u \cdot x}$ and $\mathbb{E}\, x_p x_r e^{u \cdot x}$.


# %%
own_f, others_mean = symbols("f_i f_others")


@step("A3.limit")
def own_token_does_not_count() -> Step:
    r"""$\frac{1}{T} f(x_i) + \frac{T - 1}{T} \bar{f} \to \bar{f}$"""
    return Step(
        limit((own_f + (T - 1) * others_mean) / T, T, oo),
        others_mean,
        because="one term out of T",
        near_misses={"own token counted": own_f + others_mean, "own token alone": own_f},
    )


@step("A3.limit")
def moments_are_finite() -> Step:
    r"""$\frac{d^2}{dy^2} (\cosh y - 1 - \frac{y^2}{2}) = \frac{1}{2} (e^{y/2} - e^{-y/2})^2 \ge 0$"""
    y = Symbol("y", real=True)
    square = (exp(y / 2) - exp(-y / 2)) ** 2
    return Step(
        diff((exp(y) + exp(-y)) / 2 - 1 - y**2 / 2, y, 2),
        square / 2,
        because="so the function is convex; value and slope are 0 at y = 0, and it is nowhere negative",
        near_misses={"half forgotten": square},
    )


# %% [markdown]
# ## The four limits
#
# Look at one entry of each limit. Let $y_l$ be an entry of $W_V x_l$ and $z_l$ an entry of $B x_l$; both are linear
# in the token. Write $M_y = \mathbb{E}\, y\, e^{u \cdot x}$, and so on. These are derivatives: with
# $M(s, t) = \mathbb{E}\, e^{u \cdot x + s y + t z}$ we have $M_y = \partial_s M$,
# $M_{yz} = \partial_s \partial_t M$ at $s = t = 0$. The entries of $W_V \nabla \kappa$ and
# $W_V \nabla^2 \kappa\, B^T$ are $\partial_s \log M$ and $\partial_s \partial_t \log M$ there. Nothing depends on
# $d$, $d_k$, $d_v$.
#
# In the steps the sums over the random tokens are already replaced by their number times their mean. All
# expressions are continuous functions of those means since $M > 0$, so this does not change the limit.


# %%
M_y, M_z, M_yz = symbols("M_y M_z M_yz")
E_i, E_j = symbols("E_i E_j", positive=True)  # e^{u.x_i} and e^{u.x_j}
y_i, y_j, z_i, W_br, u_r, b_V = symbols("y_i y_j z_i W_br u_r b_V")


def in_moments(expr: Expr, generating, s: Symbol, t: Symbol) -> Expr:
    """Name the derivatives of M(s, t) at s = t = 0."""
    return expr.subs(
        {
            Derivative(generating, s, t): M_yz,
            Derivative(generating, s): M_y,
            Derivative(generating, t): M_z,
            generating: M,
        }
    )


def derivative_of_kappa(*, second: bool) -> Expr:
    """An entry of W_V grad kappa, or of W_V hess kappa B^T, by differentiating log M."""
    s, t = symbols("s t")
    generating = Function("M")(s, t)
    directions = (s, t) if second else (s,)
    return in_moments(diff(log(generating), *directions), generating, s, t)


def attended(own: Expr, mean: Expr) -> Expr:
    """sum_l a_il f_l with f_i = ``own`` and the others at their mean; ``mean`` is E f e^{u.x}."""
    return (E_i * own + (T - 1) * mean) / (E_i + (T - 1) * M)


@step("A3.limit")
def output_limit() -> Step:
    r"""$o_i \to W_V \nabla \kappa(u_i) + b_V$"""
    gradient = derivative_of_kappa(second=False)
    return Step(
        limit(attended(y_i, M_y) + b_V, T, oo),
        gradient + b_V,
        because="a ratio of means tends to M_y/M, the derivative of log M",
        near_misses={"gradient of M": gradient * M + b_V, "plain mean of values": M_y + b_V},
    )


@step("A3.limit")
def weight_limit() -> Step:
    r"""$T a_{ij} \to w_{ij} = e^{u_i \cdot x_j} / M(u_i)$"""
    return Step(
        limit(T * E_j / (E_i + E_j + (T - 2) * M), T, oo),
        E_j / M,
        because="the mean of the exponentials tends to M; the known tokens i and j do not count",
        near_misses={"tilt forgotten": Integer(1), "own exponential in the mean": E_j / (M + E_i)},
    )


@step("A3.limit")
def off_diagonal_limit() -> Step:
    r"""$T J_{ij} \to w_{ij} W_V (I + (x_j - \nabla \kappa(u_i)) u_i^T)$, $j \ne i$"""
    total = E_i + E_j + (T - 2) * M
    output = (E_i * y_i + E_j * y_j + (T - 2) * M_y) / total
    block = E_j / total * (W_br + (y_j - output) * u_r)
    gradient = derivative_of_kappa(second=False)
    return Step(
        limit(T * block, T, oo),
        E_j / M * (W_br + (y_j - gradient) * u_r),
        because="A1's off-diagonal form, with T a_ij and the mean token at their limits",
        near_misses={
            "mean token forgotten": E_j / M * (W_br + y_j * u_r),
            "value path only": E_j / M * W_br,
        },
    )


@step("A3.limit")
def diagonal_limit() -> Step:
    r"""$J_{ii} \to r I + W_V \nabla^2 \kappa(u_i) B^T$"""
    here = symbols("delta_br")
    own = attended(1, 0)
    covariance = attended(y_i * z_i, M_yz) - attended(y_i, M_y) * attended(z_i, M_z)
    block = residual * here + own * W_br + own * (y_i - attended(y_i, M_y)) * u_r + covariance
    hessian = derivative_of_kappa(second=True)
    return Step(
        limit(block, T, oo),
        residual * here + hessian,
        because="a_ii tends to 0 and takes value path and key part along; the covariance stays",
        near_misses={
            "second moment": residual * here + M_yz / M,
            "value path kept": residual * here + hessian + W_br,
        },
    )


# %% [markdown]
# Read the last two together. Off the diagonal a block falls like $1/T$. On the diagonal the value path and the key
# part fall too, but **the query part does not**: the query of $x_i$ reads all tokens at once. It stays at the
# curvature of $\kappa$, which is the covariance of the tokens under the law tilted by $e^{u \cdot x}$.
#
# ## Closed forms: Gaussian tokens
#
# Let $x \sim N(m, S)$. For $N(0, 1)$ in $d = 1$ the integral can be done as it stands.


# %%
@step("A3.closed-forms")
def gaussian_integral() -> Step:
    r"""$N(0, 1)$: $\int e^{u x} \frac{e^{-x^2/2}}{\sqrt{2 \pi}} dx = e^{u^2/2}$"""
    slope, place = symbols("u x", real=True)
    return Step(
        integrate(exp(slope * place) * exp(-(place**2) / 2) / sqrt(2 * pi), (place, -oo, oo)),
        exp(slope**2 / 2),
        because="Gaussian integral",
        near_misses={"half forgotten": exp(slope**2), "sign": exp(-(slope**2) / 2)},
    )


# %% [markdown]
# In any dimension complete the square. Write $S = A A^T$ and a token as $x = m + S y$. The density's exponent is
# then $-\frac{1}{2} (x - m) \cdot S^{-1} (x - m) = -\frac{1}{2}\, y \cdot S y$. Tilting by $e^{u \cdot x}$ moves
# $y$ by $u$ and leaves a constant:
#
# $$u \cdot x - \tfrac{1}{2}\, y \cdot S y
# = m \cdot u + \tfrac{1}{2}\, u \cdot S u - \tfrac{1}{2} (y - u) \cdot S (y - u).$$
#
# The last term is again the exponent of a Gaussian with covariance $S$, with mean $m + S u$. Its integral does not
# depend on where it is centred. So $\kappa(u) = m \cdot u + \frac{1}{2}\, u \cdot S u$. (A singular $S$ has no
# density; the formula holds by continuity.)


# %%
mu, A, y = IndexedBase("mu"), IndexedBase("A"), IndexedBase("y")
f, h, n = symbols("f h n", integer=True, nonnegative=True)  # coordinates that are summed over


def covariance_entry(first: Symbol, second: Symbol) -> Expr:
    """S = A A^T, one entry."""
    return over(n, A[first, n] * A[second, n], d)


def quadratic(vector) -> Expr:
    """v.S v for a vector given by its entries."""
    return over(f, over(h, vector(f) * covariance_entry(f, h) * vector(h), d), d)


def slope_entry(place: Symbol) -> Expr:
    """The slope u, one entry."""
    return u[place]


def gaussian_kappa(slope) -> Expr:
    """kappa(u) = m.u + u.S u/2."""
    return over(f, mu[f] * slope(f), d) + quadratic(slope) / 2


@step("A3.closed-forms")
def completing_the_square() -> Step:
    r"""$u \cdot (m + S y) - \frac{1}{2} y \cdot S y = \kappa(u) - \frac{1}{2} (y - u) \cdot S (y - u)$, every $d$"""
    aligned = over(f, u[f] * (mu[f] + over(h, covariance_entry(f, h) * y[h], d)), d)
    kappa = gaussian_kappa(slope_entry)
    return Step(
        aligned - quadratic(lambda place: y[place]) / 2,
        kappa - quadratic(lambda place: y[place] - u[place]) / 2,
        because="both sides are expanded; S is symmetric",
        decide=equal_sums(),
        near_misses={
            "not moved": kappa - quadratic(lambda place: y[place]) / 2,
            "moved the other way": kappa - quadratic(lambda place: y[place] + u[place]) / 2,
        },
    )


@step("A3.closed-forms")
def gaussian_gradient() -> Step:
    r"""Gaussian: $\nabla \kappa = m + S u$"""
    pull = over(f, covariance_entry(p, f) * u[f], d)
    return Step(
        diff(gaussian_kappa(slope_entry), u[p]),
        mu[p] + pull,
        because="derivative of a quadratic form with a symmetric S",
        decide=equal_sums(),
        near_misses={"half kept": mu[p] + pull / 2, "tilt forgotten": mu[p]},
    )


@step("A3.closed-forms")
def gaussian_hessian() -> Step:
    r"""Gaussian: $\nabla^2 \kappa = S$, whatever $u$ is"""
    return Step(
        diff(gaussian_kappa(slope_entry), u[p], u[r]),
        covariance_entry(p, r),
        because="second derivative of a quadratic form",
        decide=equal_sums(),
        near_misses={"halved": covariance_entry(p, r) / 2, "transposed root": over(n, A[n, p] * A[n, r], d)},
    )


# %% [markdown]
# ## Closed forms: tokens on a sphere
#
# Let $x$ be uniform on the sphere $\|x\| = \rho$. No integral is needed. First, $M$ obeys a differential equation:
# the Laplacian in $u$ multiplies $e^{u \cdot x}$ by $\|x\|^2$, and that is the constant $\rho^2$. So
# $\Delta M = \rho^2 M$.


# %%
@step("A3.closed-forms")
def laplacian_of_the_exponential() -> Step:
    r"""$\sum_p \partial^2 e^{u \cdot x} / \partial u_p^2 = \|x\|^2 e^{u \cdot x}$, every $d$"""
    token = IndexedBase("x")
    exponential = exp(over(f, u[f] * token[f], d))
    return Step(
        over(p, diff(exponential, u[p], 2)),
        over(p, token[p] ** 2) * exponential,
        because="each derivative brings down a coordinate",
        decide=equal_sums(),
        near_misses={"one derivative": over(p, token[p]) * exponential, "width d": d * exponential},
    )


# %% [markdown]
# Second, the law looks the same from every direction, so $M$ is a function $F(q)$ of $q = \|u\|^2$ alone. Its
# Laplacian is $4 q F'' + 2 d F'$ by the chain rule.


# %%
@step("A3.closed-forms")
def laplacian_of_a_radial_function() -> Step:
    r"""$\Delta F(\|u\|^2) = 4 q F''(q) + 2 d\, F'(q)$ with $q = \|u\|^2$, every $d$"""
    slope, curve = symbols("F_1 F_2")  # F' and F''
    squared_norm = over(f, u[f] ** 2, d)
    by_chain_rule = curve * diff(squared_norm, u[p]) ** 2 + slope * diff(squared_norm, u[p], 2)
    return Step(
        over(p, by_chain_rule),
        4 * squared_norm * curve + 2 * d * slope,
        because="chain rule, summed over the coordinates",
        decide=equal_sums(),
        near_misses={
            "as on a line": 4 * squared_norm * curve + 2 * slope,
            "as in one dimension more": 4 * squared_norm * curve + 2 * (d + 1) * slope,
        },
    )


# %% [markdown]
# So $4 q F'' + 2 d F' = \rho^2 F$, $F(0) = 1$. A power series $F = \sum_k c_k q^k$ solves it, term by term, and its
# coefficients are
#
# $$c_k(d) = \frac{(\rho^2/4)^k\, \Gamma(d/2)}{k!\; \Gamma(k + d/2)}, \qquad
# F = \Gamma(\nu + 1) \Bigl(\frac{2}{z}\Bigr)^{\nu} I_\nu(z),
# \quad z = \rho \|u\|, \quad \nu = \frac{d}{2} - 1.$$
#
# $M$ is a power series in $q$ too (the law is bounded and symmetric), and the equation has only one, given $F(0)$.


# %%
q, rho = symbols("q rho", positive=True)
k = Symbol("k", integer=True, nonnegative=True)


def coefficient(order: Expr, dimension: Expr) -> Expr:
    """c_k(d), the coefficient of q^k in F."""
    return (rho**2 / 4) ** order * gamma(dimension / 2) / (factorial(order) * gamma(order + dimension / 2))


@step("A3.closed-forms")
def series_solves_the_equation() -> Step:
    r"""$c_{k+1}/c_k$ from $4 q F'' + 2 d F' = \rho^2 F$ is that of the Bessel series, every $k$ and $d$"""
    here, following = symbols("c_k c_next")
    above = following * q ** (k + 1)
    (recursion,) = solve((4 * q * diff(above, q, 2) + 2 * d * diff(above, q)) / q**k - rho**2 * here, following)
    return Step(
        gammasimp((recursion / here).powsimp()),
        gammasimp(coefficient(k + 1, d) / coefficient(k, d)),
        because="the coefficient of q^k on both sides, solved for c_{k+1}",
        near_misses={
            "one dimension more": gammasimp(coefficient(k + 1, d + 1) / coefficient(k, d + 1)),
            "radius doubled": gammasimp(coefficient(k + 1, d) / coefficient(k, d)) * 4,
        },
    )


# %% [markdown]
# Two cases can be seen without the series. In $d = 1$ the sphere is $\{-\rho, \rho\}$, so $M = \cosh z$. In $d = 3$
# a coordinate is uniform on $[-\rho, \rho]$ (Archimedes), so $M = \sinh(z)/z$. Both agree, coefficient by
# coefficient.


# %%
@step("A3.closed-forms")
def sphere_in_one_and_three_dimensions() -> Step:
    r"""$c_k(1)$, $c_k(3)$ are the coefficients of $\cosh z$, $\frac{1}{2} \int_{-1}^{1} e^{z t} dt$, every $k$"""
    t = Symbol("t", positive=True)
    # An even power has the same integral on both halves.
    uniform = integrate(t ** (2 * k), (t, 0, 1)) * rho ** (2 * k) / factorial(2 * k)
    signs = rho ** (2 * k) / factorial(2 * k)

    def relative(dimensions: tuple[int, int]) -> Matrix:
        found = (coefficient(k, Integer(dimension)) for dimension in dimensions)
        return Matrix([gammasimp(c / known).powsimp() for c, known in zip(found, (signs, uniform), strict=True)])

    return Step(
        relative((1, 3)),
        Matrix([1, 1]),
        because="the duplication formula of the Gamma function",
        near_misses={"dimensions exchanged": relative((3, 1)), "half": Matrix([1, Rational(1, 2)])},
    )


# %% [markdown]
# Now differentiate $\kappa = \log F$. Differentiating the series shifts the dimension by two:
# $F_d' = \frac{\rho^2}{2 d} F_{d+2}$, because $(k + 1)\, c_{k+1}(d) = \frac{\rho^2}{2 d}\, c_k(d + 2)$.


# %%
@step("A3.closed-forms")
def derivative_shifts_the_dimension() -> Step:
    r"""$(k + 1)\, c_{k+1}(d) / c_k(d + 2) = \rho^2/(2 d)$, every $k$ and $d$"""
    return Step(
        gammasimp((k + 1) * coefficient(k + 1, d) / coefficient(k, d + 2)),
        rho**2 / (2 * d),
        because="Gamma(y + 1) = y Gamma(y)",
        near_misses={"shift by one": gammasimp((k + 1) * coefficient(k + 1, d) / coefficient(k, d + 1))},
    )


class Series(Function):
    """F_d(q) as a function whose derivative in q is known: F_d' = rho^2/(2d) F_{d+2}."""

    nargs = 2

    def fdiff(self, argindex=2):
        dimension, argument = self.args
        return rho**2 / (2 * dimension) * Series(dimension + 2, argument)


F_0, F_2, F_4 = symbols("F_d F_{d+2} F_{d+4}", positive=True)
u_1, u_2 = symbols("u_1 u_2", real=True)
rest = Symbol("s", positive=True)  # the sum of the squares of the other d - 2 coordinates


def sphere_derivative(*coordinates: Symbol) -> Expr:
    """A derivative of kappa = log F_d(||u||^2), with names for F_d, F_{d+2}, F_{d+4}."""
    squared_norm = u_1**2 + u_2**2 + rest
    derived = diff(log(Series(d, squared_norm)), *coordinates)
    names = {Series(d + 2 * place, squared_norm): name for place, name in enumerate((F_0, F_2, F_4))}
    return derived.xreplace(names)


G, G_next = F_2 / (d * F_0), F_4 / ((d + 2) * F_2)


# %% [markdown]
# Let $G_d = F_{d+2}/(d\, F_d)$. In Bessel functions $G_d = I_{d/2}(z)/(z\, I_{d/2-1}(z))$. The gradient points
# along $u$: $\nabla \kappa = \rho^2 G_d\, u$, of length $\rho\, I_{d/2}(z)/I_{d/2-1}(z)$. The Hessian is a multiple
# of the identity plus a multiple of $u u^T$. An entry of it concerns two coordinates, so we name $u_1$ and $u_2$
# and keep the squares of the others in one symbol.


# %%
@step("A3.closed-forms")
def sphere_gradient() -> Step:
    r"""Sphere: $\nabla \kappa = \rho^2 G_d\, u$, every $d$"""
    return Step(
        sphere_derivative(u_1),
        rho**2 * G * u_1,
        because="chain rule",
        near_misses={"halved": rho**2 * G * u_1 / 2, "next ratio": rho**2 * G_next * u_1},
    )


@step("A3.closed-forms")
def sphere_hessian() -> Step:
    r"""Sphere: $\nabla^2 \kappa = \rho^2 G_d\, (I + \rho^2 (G_{d+2} - G_d)\, u u^T)$, every $d$"""

    def entries(rank_one: Expr) -> Matrix:
        scale = rho**2 * G
        return Matrix([scale * (1 + rho**2 * rank_one * u_1**2), scale * rho**2 * rank_one * u_1 * u_2])

    return Step(
        Matrix([sphere_derivative(u_1, u_1), sphere_derivative(u_1, u_2)]),
        entries(G_next - G),
        because="chain rule; an entry on the diagonal and one off it",
        near_misses={"only identity": entries(Integer(0)), "square forgotten": entries(G_next)},
    )


# %% [markdown]
# One ratio gives the next, by Gauss's continued fraction $1/G_d = d + z^2 G_{d+2}$. It rests on
# $F_d = F_{d+2} + \frac{z^2}{d (d + 2)} F_{d+4}$, which holds coefficient by coefficient (recall $z^2 = \rho^2 q$).
# Numerics uses this form: it has no singularity at $u = 0$, where $\nabla^2 \kappa = \frac{\rho^2}{d} I$, the
# covariance of the law.


# %%
@step("A3.closed-forms")
def continued_fraction() -> Step:
    r"""$[\,c_k(d + 2) + \frac{\rho^2}{d (d + 2)} c_{k-1}(d + 4)\,] / c_k(d) = 1$, every $k \ge 1$ and $d$"""
    later = k + 1  # k >= 1
    first = gammasimp(coefficient(later, d + 2) / coefficient(later, d))
    second = gammasimp(coefficient(later - 1, d + 4) / coefficient(later, d))
    return Step(
        first + rho**2 / (d * (d + 2)) * second,
        Integer(1),
        because="two quotients of Gamma functions add up to one",
        near_misses={"first alone": first},
    )


# %% [markdown]
# The textbook form writes $R = I_{d/2}(z)/I_{d/2-1}(z) = z\, G_d$. Across $u$ the Hessian is $\rho^2 R/z$, along
# $u$ it is $\rho^2 R'$ with $R' = 1 - R^2 - (d - 1) R/z$. For large $z$ it shrinks like $1/z$ across and $1/z^2$
# along: the tilted law sits at one point.


# %%
@step("A3.closed-forms")
def textbook_form_along_the_slope() -> Step:
    r"""$G_d + z^2 G_d (G_{d+2} - G_d) = 1 - R^2 - (d - 1) R/z$ with $R = z\, G_d$, every $d$"""
    ratio, z = symbols("G z", positive=True)
    following = symbols("G_next")
    (following_value,) = solve(1 / ratio - (d + z**2 * following), following)
    radial = 1 - (z * ratio) ** 2
    return Step(
        ratio + z**2 * ratio * (following_value - ratio),
        radial - (d - 1) * ratio,
        because="the continued fraction, solved for the next ratio",
        near_misses={"one dimension more": radial - d * ratio, "no curvature": radial},
    )


# %% [markdown]
# ## Closed forms: random signs
#
# Let the coordinates be independent signs (Rademacher). One sign gives $\mathbb{E}\, e^{u x} = \cosh u$.
# Independence multiplies, so $\kappa(u) = \sum_p \log \cosh u_p$. The first step writes all eight sign vectors out.


# %%
def one_sign(slope: Expr) -> Expr:
    """E e^{ux} = cosh u for one sign."""
    return (exp(slope) + exp(-slope)) / 2


def tanh_of(slope: Expr) -> Expr:
    """The hyperbolic tangent in exponentials."""
    return (exp(slope) - exp(-slope)) / (exp(slope) + exp(-slope))


@step("A3.closed-forms")
def eight_sign_vectors() -> Step:
    r"""$d = 3$: $\frac{1}{8} \sum_{\sigma \in \{-1, 1\}^3} e^{u \cdot \sigma} = \prod_p \cosh u_p$"""
    slopes = symbols("u_1:4", real=True)
    total = Add(*(exp(sum(s * t for s, t in zip(signs, slopes, strict=True))) for signs in product((1, -1), repeat=3)))
    closed = one_sign(slopes[0]) * one_sign(slopes[1]) * one_sign(slopes[2])
    return Step(
        total / 8,
        closed,
        because="expand the product",
        near_misses={"unnormalised": 8 * closed, "one coordinate": one_sign(slopes[0])},
    )


def signs_kappa() -> Expr:
    """kappa(u) = sum_p log cosh u_p, every d."""
    return over(f, log(one_sign(u[f])), d)


@step("A3.closed-forms")
def signs_gradient() -> Step:
    r"""Signs: $\nabla \kappa = \tanh u$, entry by entry, every $d$"""
    return Step(
        diff(signs_kappa(), u[p]),
        tanh_of(u[p]),
        because="only the own coordinate contains u_p",
        decide=equal_sums(),
        near_misses={"sign": -tanh_of(u[p]), "slope doubled": tanh_of(2 * u[p])},
    )


@step("A3.closed-forms")
def signs_hessian() -> Step:
    r"""Signs: $\nabla^2 \kappa = \mathrm{diag}(\mathrm{sech}^2 u)$, every $d$"""
    square = delta(p, r) / one_sign(u[p]) ** 2
    return Step(
        diff(signs_kappa(), u[p], u[r]),
        square,
        because="second derivative of log cosh",
        decide=equal_sums(),
        near_misses={"sech": square * one_sign(u[p]), "full matrix": square / delta(p, r)},
    )


# %% [markdown]
# ## Closed forms: a mixture
#
# With probability $\pi_n$ the token follows law $n$, with its own $\kappa_n$. Then $M = \sum_n \pi_n e^{\kappa_n}$.
# The tilt prefers some components: $\pi_n(u) = \pi_n e^{\kappa_n(u)}/M(u)$, a softmax. With the component gradients
# $g_n = \nabla \kappa_n$ and Hessians $H_n$,
#
# $$\nabla \kappa = \sum_n \pi_n(u)\, g_n, \qquad
# \nabla^2 \kappa = \sum_n \pi_n(u)\, \bigl(H_n + (g_n - \nabla \kappa)(g_n - \nabla \kappa)^T\bigr).$$
#
# A mixture thus has curvature *between* its components. For two Gaussians $g_n = m_n + S_n u$ and $H_n = S_n$. Seen
# in two coordinates, the others held, a Gaussian $\kappa_n$ is a quadratic polynomial with any coefficients, so the
# steps cover every $d$.


# %%
priors = symbols("pi_1 pi_2", positive=True)


def component(number: int) -> tuple[Expr, Expr, Expr, Expr]:
    """A Gaussian kappa_n in the coordinates u_1, u_2, its claimed gradient entries, and its claimed Hessian entry."""
    rest_value, m_1, m_2, s_11, s_12, s_22 = symbols([f"{name}_{number}" for name in ["a", "b", "c", "A", "B", "C"]])
    kappa = rest_value + m_1 * u_1 + m_2 * u_2 + (s_11 * u_1**2 + 2 * s_12 * u_1 * u_2 + s_22 * u_2**2) / 2
    return kappa, m_1 + s_11 * u_1 + s_12 * u_2, m_2 + s_12 * u_1 + s_22 * u_2, s_12


def mixture() -> tuple[Expr, list[Expr], list[tuple[Expr, Expr, Expr, Expr]]]:
    """M(u), the tilted probabilities, and the components."""
    components = [component(1), component(2)]
    terms = [prior * exp(parts[0]) for prior, parts in zip(priors, components, strict=True)]
    total = Add(*terms)
    return total, [term / total for term in terms], components


def weighted(weights, values) -> Expr:
    """sum_n weights_n values_n."""
    return Add(*(weight * value for weight, value in zip(weights, values, strict=True)))


@step("A3.closed-forms")
def mixture_gradient() -> Step:
    r"""Two Gaussians: $\nabla \kappa = \sum_n \pi_n(u) (m_n + S_n u)$"""
    total, tilted, components = mixture()
    gradients = [parts[1] for parts in components]
    return Step(
        diff(log(total), u_1),
        weighted(tilted, gradients),
        because="derivative of a log-sum-exp",
        near_misses={"untilted weights": weighted(priors, gradients)},
    )


@step("A3.closed-forms")
def mixture_hessian() -> Step:
    r"""Two Gaussians: $\nabla^2 \kappa = \sum_n \pi_n(u) (S_n + (g_n - \nabla \kappa)(g_n - \nabla \kappa)^T)$"""
    total, tilted, components = mixture()
    mean_1, mean_2 = (weighted(tilted, [parts[place] for parts in components]) for place in (1, 2))
    within = weighted(tilted, [parts[3] for parts in components])
    between = weighted(tilted, [(parts[1] - mean_1) * (parts[2] - mean_2) for parts in components])
    return Step(
        diff(log(total), u_1, u_2),
        within + between,
        because="the law of total covariance under the tilt",
        near_misses={"within only": within, "between subtracted": within - between},
    )


# %% [markdown]
# ## The rate
#
# How far is row $i$ from its limit at $T$ tokens? Everything in it is a smooth function of means. A mean of $T$
# independent terms with variance $v$ has variance $v/T$. So the error is of order $T^{-1/2}$ in probability, **if
# the variances are finite**. The terms are $e^{u \cdot x}$ times at most two coordinates; their squares have a mean
# if $\mathbb{E}\, e^{2 u \cdot x} \|x\|^4$ is finite (and $\mathbb{E}\, e^{2 u \cdot x}$, which then follows, since
# the part with $\|x\| \le 1$ is bounded). That is the extra assumption.


# %%
@step("A3.rate")
def variance_of_a_mean() -> Step:
    r"""$\mathrm{Var}(\frac{1}{T} \sum_l f(x_l)) = v/T$ for independent tokens"""
    variance = Symbol("v", positive=True)
    return Step(
        over(l, over(m, delta(l, m) * variance)) / T**2,
        variance / T,
        because="covariances of different tokens are 0",
        decide=equal_sums(),
        near_misses={"not averaged": variance, "averaged twice": variance / T**2},
    )


# %% [markdown]
# What is the constant? Take $d = 1$ and the curvature $\Phi''(u)$, the variance of the tokens under the row's
# weights. With $s_k = \frac{1}{T} \sum_l x_l^k e^{u x_l}$ it is $s_2/s_0 - (s_1/s_0)^2$. To first order its error
# is a mean again, of the **influence** of one token:
#
# $$\psi(x) = \frac{e^{u x}}{M} \bigl((x - \mu)^2 - v\bigr), \qquad \mu = \kappa'(u),\ v = \kappa''(u).$$


# %%
slope, token = symbols("u x", real=True)


def influence_of(token: Expr, weight: Expr, mean: Expr, variance: Expr) -> Expr:
    """psi(x): what one token of that relative weight does to the tilted variance, times T."""
    return weight * ((token - mean) ** 2 - variance)


@step("A3.rate")
def influence_of_one_token() -> Step:
    r"""$\sum_k \frac{\partial}{\partial s_k} (\frac{s_2}{s_0} - \frac{s_1^2}{s_0^2})\, x^k e^{u x} = \psi(x)$"""
    s = symbols("s_0:3")
    curvature = s[2] / s[0] - (s[1] / s[0]) ** 2
    weight, mean = exp(slope * token) / s[0], s[1] / s[0]
    return Step(
        Add(*(diff(curvature, s[power]) * token**power * exp(slope * token) for power in range(3))),
        influence_of(token, weight, mean, curvature),
        because="the delta method: a first-order expansion at the limit",
        near_misses={
            "not centred": influence_of(token, weight, Integer(0), curvature),
            "variance kept": influence_of(token, weight, mean, Integer(0)),
        },
    )


# %% [markdown]
# By the central limit theorem $\sqrt{T}\, (\Phi'' - v)$ tends in law to a Gaussian of variance
# $\mathbb{E}\, \psi(x)^2$. For Gaussian tokens its variance tends to that too: its fourth moment stays bounded. Where
# $s_0 \ge M/2$ the error is at most a polynomial in the errors of the three means, without a constant term, and
# those have all moments. The event $s_0 < M/2$ is exponentially rare, as for every mean of positive terms
# (Chernoff), and there $\Phi'' \le \max_l x_l^2$. So $T\, \mathrm{Var}(\Phi'') \to \mathbb{E}\, \psi(x)^2$.
# For $N(0, 1)$ tokens $M = e^{u^2/2}$, $\mu = u$, $v = 1$, and $\mathbb{E}\, \psi^2$ needs the moments
# $\mathbb{E}\, x^k e^{2 u x}$: the derivatives of $e^{t^2/2}$ at $t = 2 u$.


# %%
@step("A3.rate")
def constant_for_standard_normal_tokens() -> Step:
    r"""$N(0, 1)$, $d = 1$: $\mathbb{E}\, \psi(x)^2 = e^{u^2} (u^4 + 4 u^2 + 2)$"""
    t = Symbol("t", real=True)
    # psi^2 without its factor e^{2ux}, as a polynomial in x.
    squared = Poly(influence_of(token, exp(-(slope**2) / 2), slope, Integer(1)) ** 2, token)
    moments = [diff(exp(t**2 / 2), t, power).subs(t, 2 * slope) for power in range(5)]
    return Step(
        Add(*(factor * moments[power] for (power,), factor in squared.terms())),
        exp(slope**2) * (slope**4 + 4 * slope**2 + 2),
        because="Gaussian moments under the tilt 2u",
        near_misses={
            "exponent halved": exp(slope**2 / 2) * (slope**4 + 4 * slope**2 + 2),
            "cross term halved": exp(slope**2) * (slope**4 + 2 * slope**2 + 2),
            "untilted moments": 2 * exp(slope**2),
        },
    )


# %% [markdown]
# In any dimension, for $N(m, S)$, entry $(p, r)$ has $\psi(x) = \frac{e^{u \cdot x}}{M} (Y_p Y_r - S_{pr})$,
# $Y = x - m - S u$. Squaring doubles the tilt. The doubled tilt costs a factor
# $e^{\kappa(2u) - 2 \kappa(u)} = e^{u \cdot S u}$, and under it $Y$ is Gaussian with covariance $S$ and mean
# $y = S u$.


# %%
@step("A3.rate")
def price_of_the_tilt() -> Step:
    r"""Gaussian: $\kappa(2 u) - 2 \kappa(u) = u \cdot S u$, every $d$"""
    return Step(
        gaussian_kappa(lambda place: 2 * u[place]) - 2 * gaussian_kappa(slope_entry),
        quadratic(slope_entry),
        because="the linear part cancels, the quadratic part is doubled",
        decide=equal_sums(),
        near_misses={"halved": quadratic(slope_entry) / 2, "doubled": 2 * quadratic(slope_entry)},
    )


@step("A3.rate")
def constant_for_gaussian_tokens() -> Step:
    r"""$\mathbb{E} (Y_p Y_r - S_{pr})^2$ for $Y \sim N(y, S)$, every entry

    It is $y_p^2 y_r^2 + y_p^2 S_{rr} + y_r^2 S_{pp} + 2 y_p y_r S_{pr} + S_{pp} S_{rr} + S_{pr}^2$.
    """
    t_p, t_r, y_p, y_r, s_pp, s_pr, s_rr = symbols("t_p t_r y_p y_r S_pp S_pr S_rr")
    generating = exp(y_p * t_p + y_r * t_r + (s_pp * t_p**2 + 2 * s_pr * t_p * t_r + s_rr * t_r**2) / 2)
    at_zero = {t_p: 0, t_r: 0}
    second = diff(generating, t_p, t_r).subs(at_zero)
    fourth = diff(generating, t_p, 2, t_r, 2).subs(at_zero)
    squares = y_p**2 * s_rr + y_r**2 * s_pp
    closed = (y_p * y_r) ** 2 + squares + 2 * y_p * y_r * s_pr + s_pp * s_rr + s_pr**2
    return Step(
        fourth - 2 * s_pr * second + s_pr**2,
        closed,
        because="moments are derivatives of the generating function",
        near_misses={
            "cross term doubled": closed + 2 * y_p * y_r * s_pr,
            "no tilt": s_pp * s_rr + s_pr**2,
            "squares forgotten": closed - squares,
        },
    )


# %% [markdown]
# ## The price of the rate
#
# The constant is exponential in $u^2$. At $u = 0$ it is 2. At $u = 3$ it is $119\, e^9$, almost a million. For an
# error of $1/10$ one needs about $100 \cdot 119\, e^9$ tokens, 96 million. With fewer, a handful of tokens carries
# the row, and the limit is out of sight. An experiment must keep $|u| \le 1/2$ or so, or use bounded tokens.


# %%
@step("A3.rate")
def tokens_needed_at_slope_three() -> Step:
    r"""$N(0, 1)$, $u = 3$: $96 \cdot 10^6 < 100\, e^{u^2} (u^4 + 4 u^2 + 2)$"""
    constant = exp(slope**2) * (slope**4 + 4 * slope**2 + 2)
    return Step(
        Integer(96) * 10**6,
        100 * constant.subs(slope, 3),
        because="exact number, by interval arithmetic",
        decide=below,
        relation="<",
        near_misses={"at u = 1/2": 100 * constant.subs(slope, Rational(1, 2))},
    )


# %% [markdown]
# Bounded tokens, $\|x\| \le R$, pay too, but a bounded price. Take the weights alone: $T a_{ij}/w_{ij} = M/M_T$,
# and $M_T/M$ is a mean of $w = e^{u \cdot x}/M$, so the price is $\mathbb{E}\, w^2$. Let $a = e^{-R \|u\|}$ and
# $b = e^{R \|u\|}$. Every $t = e^{u \cdot x}$ lies between them, so $(t - a)(b - t) \ge 0$ and
# $\mathbb{E}\, t^2 \le (a + b) M - a b$. The step below makes that
# $\mathbb{E}\, w^2 \le (a + b)^2/(4 a b) = \cosh^2(R \|u\|)$ (Kantorovich's inequality). The next one names a law
# that attains it: two tokens $\pm R u/\|u\|$, the far one with probability $1/(1 + e^{2 R \|u\|})$.
#
# So the price is exponential in the radius, and this cannot be improved. Bohbot, Letrouit, Peyre and Vialard,
# *Token sample complexity of attention*, prove the rate $n^{-1/2}$ uniformly on a ball, also with a constant
# exponential in the radius.


# %%
@step("A3.rate")
def price_in_a_ball() -> Step:
    r"""$\frac{(a + b)^2}{4 a b} - \frac{(a + b) M - a b}{M^2} = \frac{((a + b) M - 2 a b)^2}{4 a b M^2} \ge 0$"""
    low, high = symbols("a b", positive=True)
    gap = ((low + high) * M - 2 * low * high) ** 2
    return Step(
        (low + high) ** 2 / (4 * low * high) - ((low + high) * M - low * high) / M**2,
        gap / (4 * low * high * M**2),
        because="a manifest square",
        near_misses={"half the constant": (gap - 2 * low * high * (low + high) ** 2) / (4 * low * high * M**2)},
    )


@step("A3.rate")
def price_is_attained() -> Step:
    r"""$\mathbb{E}\, w^2 = \cosh^2(R \|u\|)$ for the two-point law"""
    size = Symbol("s", positive=True)  # R ||u||
    far = 1 / (1 + exp(2 * size))
    first = far * exp(size) + (1 - far) * exp(-size)
    second = far * exp(2 * size) + (1 - far) * exp(-2 * size)
    return Step(
        second / first**2,
        one_sign(size) ** 2,
        because="exact computation",
        near_misses={"cosh": one_sign(size), "even signs": one_sign(2 * size) / one_sign(size) ** 2},
    )


# %% [markdown]
# ## Without the moment there is no such rate
#
# Let $d = 1$, $x \sim \mathrm{Exp}(1)$ and $u = 7/10$. Then $\kappa$ is finite around $u$ and all limits hold:
# $M(u) = 1/(1 - u) = 10/3$. But $\mathbb{E}\, e^{2 u x}$ is infinite. Cut off at $A$, it grows beyond every bound.


# %%
HEAVY = Rational(7, 10)


@step("A3.rate")
def generating_function_is_finite() -> Step:
    r"""$x \sim \mathrm{Exp}(1)$, $u = 7/10$: $\int_0^\infty e^{u x} e^{-x} dx = 10/3$"""
    place = Symbol("x", positive=True)
    return Step(
        integrate(exp(HEAVY * place) * exp(-place), (place, 0, oo)),
        Rational(10, 3),
        because="1/(1 - u)",
        near_misses={"sign of u": 1 / (1 + HEAVY)},
    )


@step("A3.rate")
def second_moment_is_infinite() -> Step:
    r"""$1 \big/ \int_0^A e^{2 u x} e^{-x} dx \to 0$ as $A \to \infty$"""
    place, cut = symbols("x A", positive=True)
    truncated = integrate(exp(2 * HEAVY * place) * exp(-place), (place, 0, cut))
    return Step(
        limit(1 / truncated, cut, oo),
        Integer(0),
        because="the integrand is exp(2x/5)",
        near_misses={"1/(1 - 2u) used past its range": 1 - 2 * HEAVY},
    )


# %% [markdown]
# How slow is it? Among $T$ tokens the largest exceeds $\log T$ with a probability that tends to $1 - 1/e$. It alone
# adds $e^{u \log T}/T = T^{u - 1}$ to the mean $M_T$. That is $T^{-3/10}$, and $\sqrt{T}$ times it grows without
# bound, like $T^{1/5}$. If the errors of $M_T$ were of order $T^{-1/2}$, single terms could be at most of that
# order too (Lévy's inequality for the differences of two independent copies). They are not. So the factor $M/M_T$
# that all weights share does not have the rate $T^{-1/2}$.


# %%
@step("A3.rate")
def largest_token_exceeds_log_t() -> Step:
    r"""$\mathbb{P}(\max_{l} x_l > \log T) = 1 - (1 - 1/T)^T \to 1 - 1/e$"""
    place, level = symbols("x A", positive=True)
    one_exceeds = integrate(exp(-place), (place, level, oo)).subs(level, log(T))
    return Step(
        limit(1 - (1 - one_exceeds) ** T, T, oo),
        1 - exp(-1),
        because="T independent chances of 1/T each",
        near_misses={"never": Integer(0), "surely": Integer(1)},
    )


@step("A3.rate")
def largest_token_breaks_the_rate() -> Step:
    r"""$\bigl(\sqrt{T} \cdot e^{u \log T}/T\bigr)^{-1} \to 0$ at $u = 7/10$"""
    return Step(
        limit(T / (sqrt(T) * exp(HEAVY * log(T))), T, oo),
        Integer(0),
        because="T^(1/2 - u) falls for u > 1/2",
        near_misses={"as at u = 1/2": limit(T / (sqrt(T) * exp(log(T) / 2)), T, oo)},
    )


# %%
if __name__ == "__main__":
    from derivations.show import show_note

    raise SystemExit(show_note("a3_large_t_limit"))
