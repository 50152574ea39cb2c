"""A3: what attention tends to when the number of tokens grows.

Token x_i stays, the other tokens are drawn from a law, kappa(u) = log E exp(u.x) is the law's log moment generating
function, and u_i = c W_K^T q_i. Almost surely, as T grows,

    o_i      ->  W_V grad kappa(u_i) + b_V
    J_ii     ->  r I + W_V hess kappa(u_i) B^T
    T a_ij   ->  w_ij = exp(u_i.x_j - kappa(u_i))
    T J_ij   ->  w_ij W_V (I + (x_j - grad kappa(u_i)) u_i^T)

summed over heads with W_O. The derivation is in ``derivations.a3_large_t_limit``; nothing here uses autograd.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from numerics.a1_jacobian import Heads, attention_heads
from numerics.inputs import check_covariance, check_floating, check_same_kind


class TokenLaw(Protocol):
    """A law of tokens in R^d whose log moment generating function kappa has a closed form.

    Arguments ``u`` have shape (..., d); every method works entry by entry over the leading dimensions.
    """

    @property
    def dimension(self) -> int:
        """The width d of a token."""
        ...

    def log_mgf(self, u: Tensor) -> Tensor:
        """kappa(u) = log E exp(u.x), shape (...)."""
        ...

    def gradient(self, u: Tensor) -> Tensor:
        """Grad kappa(u), shape (..., d): the mean of the law tilted by exp(u.x)."""
        ...

    def hessian(self, u: Tensor) -> Tensor:
        """Hess kappa(u), shape (..., d, d): the covariance of the law tilted by exp(u.x)."""
        ...

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Independent tokens, shape (count, d)."""
        ...


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(m, S): kappa(u) = m.u + u.S u/2, grad kappa = m + S u, hess kappa = S. Ours.

    Attributes:
        mean: m, shape (d,).
        covariance: S, shape (d, d), symmetric and positive semidefinite; it may be singular.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that do not fit, values that are not finite, or S not symmetric or not semidefinite.
    """

    mean: Tensor
    covariance: Tensor

    def __post_init__(self):
        check_floating("mean", self.mean, dims=1)
        check_floating("covariance", self.covariance, dims=2)
        check_same_kind("mean", self.mean, "covariance", self.covariance)
        check_covariance("covariance", self.covariance, self.dimension)

    @property
    def dimension(self) -> int:
        return self.mean.shape[0]

    def log_mgf(self, u: Tensor) -> Tensor:
        _check_argument(u, self, self.mean)
        return u @ self.mean + (u * (u @ self.covariance)).sum(-1) / 2

    def gradient(self, u: Tensor) -> Tensor:
        _check_argument(u, self, self.mean)
        return self.mean + u @ self.covariance

    def hessian(self, u: Tensor) -> Tensor:
        _check_argument(u, self, self.mean)
        return self.covariance.expand(*u.shape[:-1], -1, -1)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        normal = torch.randn(count, self.dimension, generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        return self.mean + normal @ _square_root(self.covariance)


@dataclass(frozen=True)
class Sphere:
    """Uniform on the sphere of a radius rho around 0. Ours.

    With z = rho ||u|| and nu = d/2 - 1, kappa = log(Gamma(nu + 1) (2/z)^nu I_nu(z)); grad kappa points along u and has
    length rho I_{nu+1}(z)/I_nu(z). In d = 1 the sphere is {-rho, rho} and the ratio is tanh.

    Attributes:
        dimension: d >= 1.
        radius: rho > 0.

    Raises:
        ValueError: a dimension below 1 or a radius that is not positive and finite.
    """

    dimension: int
    radius: float = 1.0

    def __post_init__(self):
        _check_dimension(self.dimension)
        if not 0 < self.radius < float("inf"):
            raise ValueError(f"radius must be positive and finite, got {self.radius}")

    def log_mgf(self, u: Tensor) -> Tensor:
        _check_argument(u, self)
        order = self.dimension / 2
        y = (self._argument(u) / 2) ** 2
        # E exp(u.x) = sum_k y^k / (k! (d/2)_k): positive terms, the largest near k = z/2.
        largest = float(y.max()) ** 0.5 if y.numel() else 0.0
        k = torch.arange(int(largest + 12 * largest**0.5) + 40, dtype=u.dtype, device=u.device)
        fixed = -torch.lgamma(k + 1) - torch.lgamma(k + order) + torch.lgamma(torch.tensor(order, dtype=u.dtype))
        return torch.logsumexp(torch.xlogy(k, y.unsqueeze(-1)) + fixed, dim=-1)

    def gradient(self, u: Tensor) -> Tensor:
        _check_argument(u, self)
        return self.radius**2 * _ratio_over_argument(self.dimension, self._argument(u)).unsqueeze(-1) * u

    def hessian(self, u: Tensor) -> Tensor:
        _check_argument(u, self)
        z = self._argument(u)
        ratio, next_ratio = (_ratio_over_argument(d, z)[..., None, None] for d in (self.dimension, self.dimension + 2))
        identity = torch.eye(self.dimension, dtype=u.dtype, device=u.device)
        rank_one = u.unsqueeze(-1) * u.unsqueeze(-2)
        return self.radius**2 * ratio * (identity + self.radius**2 * (next_ratio - ratio) * rank_one)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Independent tokens, shape (count, d), float64 on the generator's device."""
        normal = torch.randn(count, self.dimension, generator=generator, dtype=torch.float64, device=generator.device)
        return self.radius * normal / normal.norm(dim=-1, keepdim=True)

    def _argument(self, u: Tensor) -> Tensor:
        return self.radius * u.norm(dim=-1)


@dataclass(frozen=True)
class Rademacher:
    """Independent signs, +1 or -1 with probability 1/2 in every coordinate. Ours.

    kappa(u) = sum_p log cosh u_p, grad kappa = tanh u, hess kappa = diag(sech^2 u).

    Attributes:
        dimension: d >= 1.

    Raises:
        ValueError: a dimension below 1.
    """

    dimension: int

    def __post_init__(self):
        _check_dimension(self.dimension)

    def log_mgf(self, u: Tensor) -> Tensor:
        _check_argument(u, self)
        # log cosh without overflow.
        size = u.abs()
        return (size + torch.log1p(torch.exp(-2 * size)) - torch.log(torch.full_like(u, 2.0))).sum(-1)

    def gradient(self, u: Tensor) -> Tensor:
        _check_argument(u, self)
        return torch.tanh(u)

    def hessian(self, u: Tensor) -> Tensor:
        _check_argument(u, self)
        decay = torch.exp(-2 * u.abs())
        return torch.diag_embed(4 * decay / (1 + decay) ** 2)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        """Independent tokens, shape (count, d), float64 on the generator's device."""
        bits = torch.randint(2, (count, self.dimension), generator=generator, device=generator.device)
        return 2.0 * bits.to(torch.float64) - 1.0


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """With probability pi_n the token is N(m_n, S_n). Ours.

    kappa is the log-sum-exp of log pi_n + kappa_n. Tilting moves the probabilities to pi_n(u), their softmax. With
    g_n = m_n + S_n u, grad kappa = sum_n pi_n(u) g_n and
    hess kappa = sum_n pi_n(u) (S_n + (g_n - grad kappa)(g_n - grad kappa)^T).

    Attributes:
        weights: pi, shape (N,), positive, summing to one.
        means: m_n, shape (N, d).
        covariances: S_n, shape (N, d, d), symmetric and positive semidefinite.

    Raises:
        TypeError: a wrong dtype.
        ValueError: shapes that do not fit, values that are not finite, or weights that are no probabilities.
    """

    weights: Tensor
    means: Tensor
    covariances: Tensor

    def __post_init__(self):
        check_floating("weights", self.weights, dims=1)
        check_floating("means", self.means, dims=2)
        check_floating("covariances", self.covariances, dims=3)
        for name in ("weights", "covariances"):
            check_same_kind("means", self.means, name, getattr(self, name))
        count = len(self.weights)
        if len(self.means) != count or len(self.covariances) != count:
            raise ValueError(
                "weights, means and covariances must have one entry per component, "
                f"got {count}, {len(self.means)} and {len(self.covariances)}"
            )
        total = float(self.weights.sum())
        if not bool((self.weights > 0).all()) or abs(total - 1) > 1e-6:
            raise ValueError(f"weights must be positive and sum to one, got {self.weights.tolist()}")
        for number, covariance in enumerate(self.covariances):
            check_covariance(f"covariances[{number}]", covariance, self.dimension)

    @property
    def dimension(self) -> int:
        return self.means.shape[1]

    def log_mgf(self, u: Tensor) -> Tensor:
        return torch.logsumexp(self._log_terms(u), dim=-1)

    def gradient(self, u: Tensor) -> Tensor:
        tilted = torch.softmax(self._log_terms(u), dim=-1)
        return torch.einsum("...n,...nd->...d", tilted, self._component_means(u))

    def hessian(self, u: Tensor) -> Tensor:
        tilted = torch.softmax(self._log_terms(u), dim=-1)
        means = self._component_means(u)
        off = means - torch.einsum("...n,...nd->...d", tilted, means).unsqueeze(-2)
        within = torch.einsum("...n,nde->...de", tilted, self.covariances)
        return within + torch.einsum("...n,...nd,...ne->...de", tilted, off, off)

    def sample(self, count: int, generator: torch.Generator) -> Tensor:
        component = torch.multinomial(self.weights, count, replacement=True, generator=generator)
        normal = torch.randn(
            count, self.dimension, generator=generator, dtype=self.means.dtype, device=self.means.device
        )
        roots = torch.stack([_square_root(covariance) for covariance in self.covariances])
        return self.means[component] + torch.einsum("nd,nde->ne", normal, roots[component])

    def _log_terms(self, u: Tensor) -> Tensor:
        """log pi_n + kappa_n(u), shape (..., N)."""
        _check_argument(u, self, self.means)
        quadratic = torch.einsum("...d,nde,...e->...n", u, self.covariances, u)
        return torch.log(self.weights) + u @ self.means.T + quadratic / 2

    def _component_means(self, u: Tensor) -> Tensor:
        """The tilted mean of every component, shape (..., N, d)."""
        return self.means + torch.einsum("nde,...e->...nd", self.covariances, u)


def limit_output(law: TokenLaw, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, **layer) -> Tensor:
    """The limit of the attention output o_i as T grows: sum_h W_O (W_V grad kappa(u_i) + b_V) (A3, ours).

    Args:
        law: the law of the other tokens.
        x: the tokens x_i that stay, (..., R, d): one row of attention each.
        w_q: (d_k, d). w_k: (d_k, d). w_v: (d_v, d).
        **layer: ``num_heads``, ``w_o``, ``b_q``, ``b_k``, ``b_v`` as in ``attention_heads``. No mask and no bias: the
            limit is that of full attention.

    Returns:
        (..., R, d_out), without the residual.

    Raises:
        TypeError: a wrong dtype, or an option that the limit does not know (``blocked``, ``bias``).
        ValueError: shapes that do not fit, or values that are not finite.
    """
    heads = _full_attention(law, x, w_q, w_k, w_v, layer)
    # W_V grad kappa + b_V = v_i + W_V (grad kappa - x_i).
    moved = law.gradient(heads.slopes) - x.unsqueeze(-3)
    values = heads.values + torch.einsum("hvd,...hid->...hiv", heads.w_v, moved)
    return torch.einsum("hov,...hiv->...io", heads.w_o, values)


def limit_diagonal_block(
    law: TokenLaw, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, *, residual: bool = False, **layer
) -> Tensor:
    """The limit of J_ii as T grows: r I + sum_h W_O W_V hess kappa(u_i) B^T, B = c W_Q^T W_K (A3, ours).

    Args:
        law, x, w_q, w_k, w_v, layer: as in ``limit_output``.
        residual: add the identity; needs d_out = d.

    Returns:
        (..., R, d_out, d), one block for each of the R tokens x_i.

    Raises:
        TypeError, ValueError: as ``limit_output``; a residual where the widths differ.
    """
    heads = _full_attention(law, x, w_q, w_k, w_v, layer)
    curvature = law.hessian(heads.slopes)
    blocks = heads.scale * torch.einsum(
        "hov,hvp,...hipr,hgr,hgd->...iod", heads.w_o, heads.w_v, curvature, heads.w_k, heads.w_q
    )
    if not residual:
        return blocks
    width_out, width_in = blocks.shape[-2:]
    if width_out != width_in:
        raise ValueError(f"a residual needs outputs as wide as tokens, got {width_out} and {width_in}")
    return blocks + torch.eye(width_in, dtype=x.dtype, device=x.device)


def limit_weights(law: TokenLaw, others: Tensor, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, **layer) -> Tensor:
    """The limit of T a_ij as T grows: w_ij = exp(u_i.x_j - kappa(u_i)), of mean 1 under the law (A3, ours).

    Args:
        law: the law of the other tokens.
        others: the tokens x_j, (..., n, d).
        x, w_q, w_k, w_v, layer: as in ``limit_output``.

    Returns:
        (..., H, R, n), positive, for H heads and R tokens x_i.

    Raises:
        TypeError, ValueError: as ``limit_output``.
    """
    heads = _full_attention(law, x, w_q, w_k, w_v, layer)
    return _density(law, others, heads)


def limit_off_diagonal_blocks(
    law: TokenLaw, others: Tensor, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, **layer
) -> Tensor:
    """The limit of T J_ij, j != i, as T grows: sum_h W_O w_ij W_V (I + (x_j - grad kappa(u_i)) u_i^T) (A3, ours).

    Args:
        law, others, x, w_q, w_k, w_v, layer: as in ``limit_weights``.

    Returns:
        (..., R, n, d_out, d): R tokens x_i, n tokens x_j.

    Raises:
        TypeError, ValueError: as ``limit_output``.
    """
    heads = _full_attention(law, x, w_q, w_k, w_v, layer)
    density = _density(law, others, heads)
    offsets = others[..., None, None, :, :] - law.gradient(heads.slopes).unsqueeze(-2)
    projected = torch.einsum("hov,hvd,...hijd->...hijo", heads.w_o, heads.w_v, offsets)
    straight = torch.einsum("...hij,hov,hvd->...ijod", density, heads.w_o, heads.w_v)
    return straight + torch.einsum("...hij,...hijo,...hid->...ijod", density, projected, heads.slopes)


def curvature_variance(law: Gaussian, u: Tensor) -> Tensor:
    """The limit of T Var(hess Phi(u)) for Gaussian tokens, entry by entry: the constant of A3's rate (ours).

    hess Phi(u) is the covariance of T tokens under weights softmax(u.x), and tends to hess kappa = S. With y = S u,
    entry (p, r) has T times variance

        exp(u.S u) (y_p^2 y_r^2 + y_p^2 S_rr + y_r^2 S_pp + 2 y_p y_r S_pr + S_pp S_rr + S_pr^2),

    exponential in u^2. For N(0, 1) in d = 1 it is exp(u^2) (u^4 + 4 u^2 + 2).

    Args:
        law: the law of all tokens.
        u: (..., d).

    Returns:
        (..., d, d), positive.

    Raises:
        TypeError, ValueError: ``u`` does not fit the law.
    """
    _check_argument(u, law, law.mean)
    s = law.covariance
    y = u @ s
    squares, variances = y**2, s.diagonal()
    cross = squares.unsqueeze(-1) * variances + variances.unsqueeze(-1) * squares.unsqueeze(-2)
    products = y.unsqueeze(-1) * y.unsqueeze(-2)
    moments = products**2 + cross + 2 * products * s + variances.unsqueeze(-1) * variances + s**2
    return torch.exp((u * y).sum(-1))[..., None, None] * moments


def _full_attention(law: TokenLaw, x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, layer: dict) -> Heads:
    """The projections of the tokens that stay; of the pass only what does not depend on other tokens is used."""
    for name in ("blocked", "bias"):
        if layer.get(name) is not None:
            raise TypeError(f"the limit is that of full attention, {name} cannot be given")
    heads = attention_heads(x, w_q, w_k, w_v, **layer)
    if x.shape[-1] != law.dimension:
        raise ValueError(f"x must have the law's {law.dimension} entries a token, got {x.shape[-1]}")
    return heads


def _density(law: TokenLaw, others: Tensor, heads: Heads) -> Tensor:
    """w_ij = exp(u_i.x_j - kappa(u_i)), shape (..., H, R, n)."""
    check_floating("others", others)
    check_same_kind("x", heads.slopes, "others", others)
    if others.dim() < 2 or others.shape[-1] != law.dimension:
        raise ValueError(f"others must have shape (..., n, {law.dimension}), got {tuple(others.shape)}")
    scores = heads.slopes @ others.unsqueeze(-3).transpose(-1, -2)
    return torch.exp(scores - law.log_mgf(heads.slopes).unsqueeze(-1))


def _ratio_over_argument(dimension: int, z: Tensor) -> Tensor:
    """G = I_{d/2}(z) / (z I_{d/2-1}(z)) for z >= 0, by Gauss's continued fraction G_d = 1/(d + z^2 G_{d+2}).

    Smooth at z = 0, where it is 1/d; free of overflow; every term is positive, so no digits cancel.
    """
    square = z**2
    # The start is forgotten like exp(-steps^2/z), and faster once steps > z.
    steps = int(8 * float(z.max()) ** 0.5) + 30 if z.numel() else 0
    ratio = torch.zeros_like(z)
    for step in range(steps, -1, -1):
        ratio = 1 / (dimension + 2 * step + square * ratio)
    return ratio


def _square_root(covariance: Tensor) -> Tensor:
    """The symmetric square root, defined for singular covariances too."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt() @ vectors.T


def _check_argument(u: Tensor, law: TokenLaw, parameter: Tensor | None = None) -> None:
    check_floating("u", u)
    if parameter is not None:
        check_same_kind("the law", parameter, "u", u)
    if u.dim() < 1 or u.shape[-1] != law.dimension:
        raise ValueError(f"u must have shape (..., {law.dimension}), got {tuple(u.shape)}")


def _check_dimension(dimension: int) -> None:
    if not isinstance(dimension, int) or dimension < 1:
        raise ValueError(f"dimension must be an integer of at least 1, got {dimension!r}")
