"""A3 evaluated: kappa against quadrature, the limits against attention over the law, the rate by seeded sampling."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats
from torch import Tensor

import attention
import numerics
from tests.evidence import agree, at_most, claim, refuted
from tests.numerics.test_a1_jacobian import autograd_blocks, layer_output
from tests.strategies import Layer, build_layer, layers

FALSE_ALARM = 1e-6
"""Probability that a sampling test rejects the truth; the seeds are fixed, so it is paid once."""


# Laws, and the same laws as finitely many weighted atoms: an independent way to every expectation.

LAWS = ("gaussian", "sphere", "rademacher", "mixture")


def build_law(kind: str, dimension: int, seed: int) -> numerics.TokenLaw:
    generator = torch.Generator().manual_seed(seed)

    def covariance() -> Tensor:
        root = torch.randn(dimension, dimension, generator=generator)
        return root @ root.T / dimension

    if kind == "sphere":
        return numerics.Sphere(dimension, 0.5 + float(torch.rand((), generator=generator)))
    if kind == "rademacher":
        return numerics.Rademacher(dimension)
    if kind == "gaussian":
        return numerics.Gaussian(torch.randn(dimension, generator=generator), covariance())
    weights = torch.softmax(torch.randn(3, generator=generator), 0)
    means = torch.randn(3, dimension, generator=generator)
    return numerics.GaussianMixture(weights, means, torch.stack([covariance() for _ in range(3)]))


def grid(axis: Tensor, log_weights: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """The product of one rule per coordinate: points (n^d, d) and log weights (n^d,)."""
    points = torch.cartesian_prod(*[axis] * dimension).reshape(-1, dimension)
    return points, torch.cartesian_prod(*[log_weights] * dimension).reshape(-1, dimension).sum(1)


def gaussian_atoms(mean: Tensor, covariance: Tensor, nodes: int = 40) -> tuple[Tensor, Tensor]:
    axis, weights = np.polynomial.hermite_e.hermegauss(nodes)
    log_weights = torch.log(torch.from_numpy(weights / weights.sum()))
    standard, log_weights = grid(torch.from_numpy(axis), log_weights, len(mean))
    root = torch.linalg.cholesky(covariance)
    return mean + standard @ root.T, log_weights


def sphere_atoms(dimension: int, nodes: int = 24) -> tuple[Tensor, Tensor]:
    """The unit sphere, one coordinate at a time: (t, sqrt(1 - t^2) y) with y on the sphere one dimension below."""
    if dimension == 1:
        return torch.tensor([[1.0], [-1.0]]), torch.full((2,), -math.log(2))
    if dimension == 2:
        angle = 2 * math.pi * torch.arange(2 * nodes) / (2 * nodes)
        return torch.stack([angle.cos(), angle.sin()], 1), torch.full((2 * nodes,), -math.log(2 * nodes))
    below, log_below = sphere_atoms(dimension - 1, nodes)
    exponent = (dimension - 3) / 2
    heights, weights = special.roots_jacobi(nodes, exponent, exponent)
    heights, log_weights = torch.from_numpy(heights), torch.log(torch.from_numpy(weights / weights.sum()))
    width = torch.sqrt(1 - heights**2)
    inner = (width[:, None, None] * below).reshape(-1, dimension - 1)
    outer = heights.repeat_interleave(len(below))[:, None]
    return torch.cat([outer, inner], 1), (log_weights[:, None] + log_below).reshape(-1)


def atoms(law) -> tuple[Tensor, Tensor]:
    """Points (n, d) and log weights (n,) that stand for the law: exact for signs, quadrature for the others."""
    if isinstance(law, numerics.Sphere):
        points, log_weights = sphere_atoms(law.dimension)
        return law.radius * points, log_weights
    if isinstance(law, numerics.Rademacher):
        return grid(torch.tensor([1.0, -1.0]), torch.full((2,), -math.log(2)), law.dimension)
    if isinstance(law, numerics.Gaussian):
        return gaussian_atoms(law.mean, law.covariance)
    parts = [gaussian_atoms(*part) for part in zip(law.means, law.covariances, strict=True)]
    return torch.cat([points for points, _ in parts]), torch.cat(
        [log_weights + torch.log(weight) for (_, log_weights), weight in zip(parts, law.weights, strict=True)]
    )


@dataclass(frozen=True)
class Tampered:
    """A law with one method replaced by a wrong one."""

    law: numerics.TokenLaw
    method: str
    wrong: Callable

    def __getattr__(self, name):
        if name == self.method:
            return lambda u: self.wrong(self.law, u)
        return getattr(self.law, name)


def tamper(law: numerics.TokenLaw, wrong: tuple | None) -> numerics.TokenLaw:
    """The law itself, or with (method, wrong function of law and u) put in: every check must notice."""
    return law if wrong is None else cast(numerics.TokenLaw, Tampered(law, *wrong))


@st.composite
def laws_and_slopes(draw, *, kinds=LAWS, sizes=(0.0, 1e-3, 0.5, 2.5)):
    """A law and a slope u of a given length."""
    kind = draw(st.sampled_from(kinds))
    dimension = draw(st.integers(1, {"sphere": 4, "rademacher": 6}.get(kind, 2)))
    seed = draw(st.integers(0, 2**16))
    law = build_law(kind, dimension, seed)
    direction = torch.randn(dimension, generator=torch.Generator().manual_seed(seed + 1))
    return law, draw(st.sampled_from(sizes)) * direction / direction.norm()


# Closed forms.


def check_closed_forms(example, wrong=None):
    """kappa, its gradient and its Hessian against autograd of the log-sum-exp over the atoms."""
    law, u = example
    points, log_weights = atoms(law)

    def kappa(slope: Tensor) -> Tensor:
        return torch.logsumexp(points @ slope + log_weights, 0)

    found = tamper(law, wrong)
    second_moment = torch.softmax(points @ u + log_weights, 0) @ points.square().sum(1)
    agree(found.log_mgf(u), kappa(u), scale=1.0)
    agree(found.gradient(u), torch.func.grad(kappa)(u), scale=second_moment.sqrt())
    agree(found.hessian(u), torch.func.hessian(kappa)(u), scale=second_moment)


@claim("A3.closed-forms", "property")
@given(laws_and_slopes())
def test_closed_forms_are_the_derivatives_of_kappa(example):
    check_closed_forms(example)


def within_components(law, u: Tensor) -> Tensor:
    log_terms = [
        torch.log(weight) + numerics.Gaussian(mean, covariance).log_mgf(u)
        for weight, mean, covariance in zip(law.weights, law.means, law.covariances, strict=True)
    ]
    return torch.einsum("n,nde->de", torch.softmax(torch.stack(log_terms), 0), law.covariances)


WRONG_FORMS = {
    "gaussian: tilt forgotten": ("gaussian", "gradient", lambda law, u: law.mean),
    "gaussian: half the Hessian": ("gaussian", "hessian", lambda law, u: law.covariance / 2),
    "sphere: one dimension more": (
        "sphere",
        "gradient",
        lambda law, u: numerics.Sphere(law.dimension + 1, law.radius).gradient(torch.cat([u, torch.zeros(1)]))[:-1],
    ),
    "sphere: untilted covariance": (
        "sphere",
        "hessian",
        lambda law, u: law.radius**2 / law.dimension * torch.eye(law.dimension),
    ),
    "rademacher: sech, not squared": ("rademacher", "hessian", lambda law, u: torch.diag(1 / torch.cosh(u))),
    "mixture: within only": ("mixture", "hessian", within_components),
}


@claim("A3.closed-forms", "near-miss")
@pytest.mark.parametrize("name", WRONG_FORMS)
def test_a_wrong_closed_form_is_refuted(name):
    kind, method, formula = WRONG_FORMS[name]
    refuted(lambda example: check_closed_forms(example, (method, formula)), laws_and_slopes(kinds=(kind,)))


def check_bessel_ratio(example, shift=0):
    """Sphere against scipy's scaled Bessel functions, from small to very large arguments."""
    dimension, z, radius = example
    law = numerics.Sphere(dimension, radius)
    u = torch.zeros(dimension)
    u[0] = z / radius
    ratio = special.ive(dimension / 2 + shift, z) / special.ive(dimension / 2 - 1 + shift, z)
    agree(law.gradient(u)[0], torch.tensor(radius * ratio))
    along, across = 1 - ratio**2 - (dimension - 1) * ratio / z, ratio / z
    expected = radius**2 * torch.diag(torch.tensor([along] + [across] * (dimension - 1)))
    agree(law.hessian(u), expected, scale=radius**2)
    order = dimension / 2 - 1
    log_mgf = special.gammaln(order + 1) + order * math.log(2 / z) + math.log(special.ive(order, z)) + z
    agree(law.log_mgf(u), torch.tensor(log_mgf), scale=1.0)


bessel_arguments = st.tuples(st.integers(1, 32), st.sampled_from([0.1, 1.0, 30.0, 1e3, 1e5]), st.floats(0.2, 5.0))


@claim("A3.closed-forms", "property")
@given(bessel_arguments)
def test_sphere_is_the_bessel_ratio(example):
    check_bessel_ratio(example)


@claim("A3.closed-forms", "near-miss")
def test_the_next_bessel_ratio_is_refuted():
    refuted(lambda example: check_bessel_ratio(example, shift=1), bessel_arguments)


@given(laws_and_slopes())
def test_closed_forms_work_on_batches(example):
    law, u = example
    batch = torch.stack([u, 2 * u, 0 * u]).reshape(3, 1, -1)
    for method in ("log_mgf", "gradient", "hessian"):
        one_by_one = torch.stack([getattr(law, method)(row) for row in batch[:, 0]])
        agree(getattr(law, method)(batch)[:, 0], one_by_one, scale=1.0)


def test_random_signs_do_not_overflow():
    law, u = numerics.Rademacher(2), torch.tensor([1e4, -1e4])
    agree(law.log_mgf(u), torch.tensor(2e4 - 2 * math.log(2)))
    agree(law.gradient(u), torch.tensor([1.0, -1.0]))
    assert torch.equal(law.hessian(u), torch.zeros(2, 2))


# Limits. Attention over all sign vectors is attention over the law, at a finite T: every limit is an equality there.


def check_sign_cube(layer: Layer, wrong=None):
    """T a_ij = w_ij, o_i = its limit, J_ij = [i = j] limit of J_ii + (limit of T J_ij)/T, exactly."""
    width = layer.x.shape[1]
    cube = atoms(numerics.Rademacher(width))[0]
    layer = replace(layer, x=cube)
    law = tamper(numerics.Rademacher(width), wrong)
    count = len(cube)
    agree(count * layer.heads.weights, numerics.limit_weights(law, cube, *layer.arguments, **layer.options))
    scale = layer.heads.values.abs().max()
    agree(numerics.limit_output(law, *layer.arguments, **layer.options), layer_output(layer, cube), scale=scale)
    blocks = numerics.limit_off_diagonal_blocks(law, cube, *layer.arguments, **layer.options) / count
    own = range(count)
    blocks[own, own] += numerics.limit_diagonal_block(law, *layer.arguments, residual=True, **layer.options)
    agree(blocks, autograd_blocks(layer, residual=True))


cube_layers = layers(max_width=4, masks=("none",), score_bias=False, scores=(0.0, 1.0, 5.0), square=True)


@claim("A3.limit", "property")
@given(cube_layers)
def test_attention_over_all_sign_vectors_is_at_its_limit(layer):
    check_sign_cube(layer)


WRONG_LIMITS = {
    "half the Hessian": ("hessian", lambda law, u: law.hessian(u) / 2),
    "plain mean of the tokens": ("gradient", lambda law, u: torch.zeros_like(u)),
    "weights not normalised": ("log_mgf", lambda law, u: torch.zeros(u.shape[:-1])),
}


@claim("A3.limit", "near-miss")
@pytest.mark.parametrize("name", WRONG_LIMITS)
def test_a_wrong_limit_is_refuted_on_the_sign_cube(name):
    refuted(lambda layer: check_sign_cube(layer, WRONG_LIMITS[name]), cube_layers)


# The same for every law: one query that attends to the atoms of the law, with their log weights as a bias.


@st.composite
def laws_and_layers(draw, *, sizes=(0.0, 0.5, 2.0)):
    """A law, and a layer with one token x_i whose slopes have a given length in the longest head."""
    law, _ = draw(laws_and_slopes())
    width = law.dimension
    layer = build_layer(
        tokens=1,
        width=width,
        num_heads=draw(st.integers(1, 3)),
        d_k=draw(st.integers(1, 3)),
        d_v=draw(st.integers(1, 3)),
        d_out=width,
        projection_bias=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
    factor = draw(st.sampled_from(sizes)) / float(layer.heads.slopes.norm(dim=-1).max())
    options = layer.options | {name: factor * layer.options[name] for name in ("b_q",) if name in layer.options}
    return law, replace(layer, w_q=factor * layer.w_q, options=options)


def row_output(layer: Layer, own: Tensor, keys: Tensor, bias: Tensor | None = None) -> Tensor:
    """The attention output of the one query token ``own`` (d,) over keys (..., n, d), shape (..., d_out)."""
    opts = layer.options

    def project(x: Tensor, w: Tensor, name: str) -> Tensor:
        flat = torch.nn.functional.linear(x, w, opts.get(name))
        return flat.unflatten(-1, (opts["num_heads"], -1)).transpose(-2, -3)

    out, _ = attention.attend(
        project(own[None], layer.w_q, "b_q"),
        project(keys, layer.w_k, "b_k"),
        project(keys, layer.w_v, "b_v"),
        bias=bias,
    )
    return torch.nn.functional.linear(out.squeeze(-2).flatten(-2), opts["w_o"])


def check_attention_over_the_law(example, wrong=None):
    law, layer = example
    points, log_weights = atoms(law)
    found = tamper(law, wrong)

    def output(own: Tensor) -> Tensor:
        return row_output(layer, own, points, log_weights)

    own = layer.x[0]
    size = layer.heads.values.abs().max() + points.abs().max()
    agree(numerics.limit_output(found, *layer.arguments, **layer.options)[0], output(own), scale=size)
    limit = numerics.limit_diagonal_block(found, *layer.arguments, residual=True, **layer.options)[0]
    agree(limit, torch.func.jacrev(output)(own) + torch.eye(len(own)))


@claim("A3.limit", "property")
@given(laws_and_layers())
def test_limits_are_attention_over_the_law(example):
    check_attention_over_the_law(example)


@claim("A3.limit", "near-miss")
@pytest.mark.parametrize("name", ["half the Hessian", "plain mean of the tokens"])
def test_a_wrong_limit_is_refuted_for_general_laws(name):
    refuted(lambda example: check_attention_over_the_law(example, WRONG_LIMITS[name]), laws_and_layers(sizes=(2.0,)))


def check_convergence(example, wrong=None):
    """From 100 to 1600 random tokens the mean squared errors fall (16 times if the limit is right; 4 is asked).

    The errors of o_i, and of J_ii times one direction. 64 repetitions: at normal errors the chance that a true limit
    fails is that of F(64, 64) < 1/4, below 1e-6.
    """
    law, layer = example
    found = tamper(law, wrong)
    generator = torch.Generator().manual_seed(0)
    own = layer.x[0]
    direction = torch.randn(len(own), generator=generator)
    output = numerics.limit_output(found, *layer.arguments, **layer.options)[0]
    block = numerics.limit_diagonal_block(found, *layer.arguments, **layer.options)[0]
    errors = []
    for tokens in (100, 1600):
        others = law.sample(64 * (tokens - 1), generator).reshape(64, tokens - 1, -1)

        def rows(x: Tensor, others: Tensor = others) -> Tensor:
            return row_output(layer, x, torch.cat([x.expand(64, 1, -1), others], 1))

        outputs, moved = torch.func.jvp(rows, (own,), (direction,))[:2]
        errors.append(torch.stack([(outputs - output).square().mean(), (moved - block @ direction).square().mean()]))
    at_most(4 * errors[1], errors[0])


@claim("A3.limit", "property")
@settings(max_examples=20)
@given(laws_and_layers(sizes=(0.5,)))
def test_random_tokens_approach_the_limit(example):
    check_convergence(example)


@claim("A3.limit", "near-miss")
@pytest.mark.parametrize("name", ["half the Hessian", "plain mean of the tokens"])
def test_random_tokens_do_not_approach_a_wrong_limit(name):
    refuted(lambda example: check_convergence(example, WRONG_LIMITS[name]), laws_and_layers(sizes=(0.5,)), tries=12)


@given(laws_and_slopes(sizes=(0.5,)))
@settings(max_examples=20)
def test_samples_follow_their_law(example):
    """The mean of w = exp(u.x - kappa(u)) is 1 within its interval; its variance is exp(kappa(2u) - 2 kappa(u)) - 1."""
    law, u = example
    sample = law.sample(20_000, torch.Generator().manual_seed(0))
    assert sample.shape == (20_000, law.dimension)
    density = torch.exp(sample @ u - law.log_mgf(u))
    variance = torch.expm1(law.log_mgf(2 * u) - 2 * law.log_mgf(u))
    reach = stats.norm.isf(FALSE_ALARM / 2) * torch.sqrt(variance / len(sample))
    at_most((density.mean() - 1).abs(), reach)


# The rate.


def check_curvature_variance(example, factor=lambda law, u: 1.0):
    """The constant against E psi^2 over the atoms, psi = w ((x - grad kappa)(x - grad kappa)^T - hess kappa)."""
    law, u = example
    points, log_weights = atoms(law)
    relative = torch.exp(log_weights + 2 * (points @ u - law.log_mgf(u)))
    off = points - law.gradient(u)
    influence = off.unsqueeze(-1) * off.unsqueeze(-2) - law.hessian(u)
    expected = torch.einsum("n,nde->de", relative, influence**2)
    agree(factor(law, u) * numerics.curvature_variance(law, u), expected)


gaussians_and_slopes = laws_and_slopes(kinds=("gaussian",), sizes=(0.0, 0.2, 0.5))


@claim("A3.rate", "property")
@given(gaussians_and_slopes)
def test_curvature_variance_is_the_mean_squared_influence(example):
    check_curvature_variance(example)


@claim("A3.rate", "near-miss")
def test_half_the_exponent_is_refuted():
    def factor(law, u):
        return torch.exp(-(u @ law.covariance @ u) / 2)

    refuted(lambda example: check_curvature_variance(example, factor), gaussians_and_slopes)


@lru_cache
def variance_over_rows(u: float, *, tokens: int, repetitions: int) -> float:
    """T times the sample variance of the curvature of rows of N(0, 1) tokens at the slope u."""
    x = torch.randn(repetitions, tokens, generator=torch.Generator().manual_seed(1))
    weights = torch.softmax(u * x, dim=1)
    curvature = (weights * (x - (weights * x).sum(1, keepdim=True)) ** 2).sum(1)
    return tokens * float(curvature.var())


def check_rate(u: float, formula):
    """The formula lies in the chi-square interval of the sampled T Var(Phi''), at the stated false alarm rate."""
    repetitions = 6000
    sampled = variance_over_rows(u, tokens=2000, repetitions=repetitions) * (repetitions - 1)
    predicted = formula(u)
    at_most(sampled / stats.chi2.isf(FALSE_ALARM / 2, repetitions - 1), predicted)
    at_most(predicted, sampled / stats.chi2.ppf(FALSE_ALARM / 2, repetitions - 1))


def standard_normal_constant(u: float) -> float:
    law = numerics.Gaussian(torch.zeros(1), torch.eye(1))
    return float(numerics.curvature_variance(law, torch.tensor([u])))


@claim("A3.rate", "property")
@pytest.mark.parametrize("u", [-0.5, 0.0, 0.3, 0.5])
def test_sampled_curvature_has_the_variance_of_the_rate(u):
    agree(torch.tensor(standard_normal_constant(u)), torch.tensor(math.exp(u**2) * (u**4 + 4 * u**2 + 2)))
    check_rate(u, standard_normal_constant)


WRONG_CONSTANTS = {
    "exponent halved": lambda u: math.exp(u**2 / 2) * (u**4 + 4 * u**2 + 2),
    "cross term halved": lambda u: math.exp(u**2) * (u**4 + 2 * u**2 + 2),
    "constant halved": lambda u: math.exp(u**2) * (u**4 + 4 * u**2 + 2) / 2,
}


@claim("A3.rate", "near-miss")
@pytest.mark.parametrize("name", WRONG_CONSTANTS)
def test_a_wrong_constant_is_refuted_by_sampling(name):
    refuted(lambda u: check_rate(u, WRONG_CONSTANTS[name]), st.sampled_from([0.5, -0.5]))


@claim("A3.rate", "property")
def test_at_slope_three_the_rate_is_out_of_sight():
    """2000 tokens see less than a hundredth of the limiting constant 119 e^9: the limit is far away."""
    repetitions = 2000
    sampled = variance_over_rows(3.0, tokens=2000, repetitions=repetitions)
    at_most(100 * sampled, standard_normal_constant(3.0))


def median_interval(error: Tensor) -> tuple[float, float]:
    """Order statistics that hold the true median between them but for the stated false alarm rate."""
    ranked = error.sort().values
    low = int(stats.binom.ppf(FALSE_ALARM / 2, len(error), 0.5))
    return float(ranked[low - 1]), float(ranked[len(error) - low])


def check_square_root_rate(u: float):
    """From T = 100 to 5000, sqrt(T) times the median error of M_T/M, x ~ Exp(1), grows by less than half."""
    generator = torch.Generator().manual_seed(2)
    intervals = []
    for tokens in (100, 5000):
        x = torch.empty(3000, tokens).exponential_(generator=generator)
        error = ((1 - u) * torch.exp(u * x).mean(1) - 1).abs()
        intervals.append(median_interval(tokens**0.5 * error))
    (first_low, _), (_, second_high) = intervals
    at_most(second_high, 1.5 * first_low)


@claim("A3.rate", "property")
def test_with_the_moment_the_rate_is_the_square_root():
    check_square_root_rate(0.3)


@claim("A3.rate", "near-miss")
def test_without_the_moment_the_rate_is_slower():
    refuted(check_square_root_rate, st.just(0.7))


def two_points(radius: float, probability: float) -> numerics.GaussianMixture:
    """The law on {radius, -radius}, as a mixture without spread."""
    return numerics.GaussianMixture(
        torch.tensor([probability, 1 - probability]), torch.tensor([[radius], [-radius]]), torch.zeros(2, 1, 1)
    )


def check_price_in_a_ball(example, bound=lambda s: math.cosh(s) ** 2):
    """E w^2 = exp(kappa(2u) - 2 kappa(u)) <= cosh^2(R ||u||) for laws in a ball of radius R."""
    kind, dimension, size, odds = example
    if kind == "two points":
        law, radius = two_points(1.5, 1 / (1 + math.exp(2 * size * odds))), 1.5
    elif kind == "sphere":
        law, radius = numerics.Sphere(dimension, 1.5), 1.5
    else:
        law, radius = numerics.Rademacher(dimension), dimension**0.5
    u = torch.full((law.dimension,), size / radius / law.dimension**0.5)
    price = torch.exp(law.log_mgf(2 * u) - 2 * law.log_mgf(u))
    at_most(price, bound(size))


ball_examples = st.tuples(
    st.sampled_from(["two points", "sphere", "rademacher"]),
    st.integers(1, 4),
    st.floats(0.1, 4.0),
    st.sampled_from([-1.0, 0.0, 0.5, 1.0]),
)


@claim("A3.rate", "property")
@given(ball_examples)
def test_in_a_ball_the_price_is_at_most_cosh_squared(example):
    check_price_in_a_ball(example)


@claim("A3.rate", "near-miss")
def test_cosh_without_the_square_is_refuted():
    refuted(lambda example: check_price_in_a_ball(example, math.cosh), ball_examples)


def test_bad_input_is_named():
    law = numerics.Rademacher(2)
    x, w = torch.randn(1, 2), torch.randn(2, 2)
    with pytest.raises(ValueError, match=r"u must have shape \(..., 2\), got \(3,\)"):
        law.gradient(torch.zeros(3))
    with pytest.raises(ValueError, match="dimension must be an integer of at least 1, got 0"):
        numerics.Sphere(0)
    with pytest.raises(ValueError, match=r"radius must be positive and finite, got -1\.0"):
        numerics.Sphere(2, -1.0)
    with pytest.raises(ValueError, match="covariance must be symmetric"):
        numerics.Gaussian(torch.zeros(2), torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="covariance must be positive semidefinite"):
        numerics.Gaussian(torch.zeros(1), -torch.eye(1))
    with pytest.raises(ValueError, match=r"covariance must have shape \(2, 2\)"):
        numerics.Gaussian(torch.zeros(2), torch.eye(3))
    with pytest.raises(ValueError, match="weights must be positive and sum to one"):
        numerics.GaussianMixture(torch.tensor([0.5, 0.6]), torch.zeros(2, 1), torch.ones(2, 1, 1))
    with pytest.raises(ValueError, match="one entry per component, got 2, 3 and 2"):
        numerics.GaussianMixture(torch.tensor([0.5, 0.5]), torch.zeros(3, 1), torch.ones(2, 1, 1))
    with pytest.raises(ValueError, match="x must have the law's 2 entries a token, got 3"):
        numerics.limit_output(law, torch.randn(1, 3), torch.randn(2, 3), torch.randn(2, 3), torch.randn(2, 3))
    with pytest.raises(TypeError, match="the limit is that of full attention, bias cannot be given"):
        numerics.limit_output(law, x, w, w, w, bias=torch.zeros(1, 1))
    with pytest.raises(ValueError, match="a residual needs outputs as wide as tokens, got 3 and 2"):
        numerics.limit_diagonal_block(law, x, w, w, torch.randn(3, 2), residual=True)
    with pytest.raises(ValueError, match=r"others must have shape \(..., n, 2\), got \(4, 3\)"):
        numerics.limit_weights(law, torch.randn(4, 3), x, w, w, w)
    with pytest.raises(TypeError, match="u must have the dtype of the law"):
        numerics.Gaussian(torch.zeros(2), torch.eye(2)).gradient(torch.zeros(2, dtype=torch.float32))
