"""The least norm of B under margins <A_k, B> >= m, as a convex program with its own proof.

    primal: min ||B||            over  q_k^T B d_k >= m
    dual:   max m sum(lambda)    over  lambda >= 0, ||sum lambda_k q_k d_k^T||_dual <= 1

A solver's word is not believed. Its B is scaled until every margin is kept, its multipliers are clipped and scaled
until they are dual feasible, and what counts is the gap between the two norms, both by exact singular values, with the
rounding errors of both sides added to it.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from numerics.convex_hulls import nearest_to_origin
from numerics.token_clouds import Cloud, check_tokens, integer_gram, row_lengths

Norm = Literal["nuclear", "fro", "spectral"]
Solver = Literal["CLARABEL", "SCS"]

DUAL_NORM: dict[Norm, Norm] = {"nuclear": "spectral", "fro": "fro", "spectral": "nuclear"}

CERTIFIED = 1e-6
"""The two sides of a price may differ by this much of it; a wider gap is an error, not a result."""

SOLVER_OPTIONS: dict[Solver, dict[str, float]] = {
    "CLARABEL": {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10},
    "SCS": {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 20_000},
}


@dataclass(frozen=True)
class ProgramPrice:
    """The solved program.

    Attributes:
        value: the norm of ``matrix``, an upper bound of the price; ``inf`` where no B keeps the margins.
        lower: what the multipliers prove.
        matrix: a B that keeps every margin, (d_q, d_k); None where there is none.
        multipliers: lambda >= 0, (K,), with ||sum lambda_k q_k d_k^T||_dual = 1; None where there is no B.
        obstruction: rational weights with sum weights_k q_k d_k^T = 0 exactly; None where there is a B.
    """

    value: float
    lower: float
    matrix: NDArray[np.float64] | None
    multipliers: NDArray[np.float64] | None
    obstruction: tuple[Fraction, ...] | None


def matrix_norm(matrix: NDArray[np.float64], norm: Norm) -> float:
    """The nuclear, Frobenius or spectral norm, by exact singular values.

    Raises:
        TypeError, ValueError: an unknown norm, or no finite matrix.
    """
    if norm not in get_args(Norm):
        raise ValueError(f"norm must be one of {', '.join(map(repr, get_args(Norm)))}, got {norm!r}")
    values = np.linalg.svd(check_tokens("matrix", matrix), compute_uv=False)
    return float({"nuclear": values.sum(), "fro": np.linalg.norm(values), "spectral": values.max()}[norm])


def least_norm_matrix(
    queries: Cloud,
    differences: Cloud,
    *,
    margin: float,
    norm: Norm,
    exact: Callable[[], tuple[list[list[Fraction]], list[list[Fraction]]]],
    solvers: tuple[Solver, ...] = ("CLARABEL", "SCS"),
) -> ProgramPrice:
    """Solve the program, with both sides proven.

    Args:
        queries: q_k as rows, (K, d_q), K >= 1.
        differences: d_k as rows, (K, d_k).
        margin: m > 0.
        norm: "nuclear", "fro" or "spectral".
        exact: gives queries and differences as exact rationals; asked for only where floats cannot tell whether any B
            keeps the margins.
        solvers: tried in turn until one closes the gap.

    Returns:
        The price with both proofs.

    Raises:
        ValueError: an unknown solver.
        ArithmeticError: no solver closed the gap to ``CERTIFIED``, feasibility could not be decided, or the price is
            out of range.
    """
    for solver in solvers:
        if solver not in get_args(Solver):
            raise ValueError(f"solvers must be among {', '.join(map(repr, get_args(Solver)))}, got {solver!r}")
    # Powers of two, so that scaling rounds nothing.
    q_scale, d_scale = (2.0 ** int(np.frexp(row_lengths(rows).max())[1] - 1) for rows in (queries, differences))
    queries, differences = queries / q_scale, differences / d_scale
    # Only the spans of queries and differences matter: projecting B onto them never raises a norm.
    query_basis, difference_basis = _basis(queries), _basis(differences)
    Q, D = queries @ query_basis, differences @ difference_basis

    # Some B keeps all margins iff 0 is not in the hull of the matrices q_k d_k^T; the distance is 1/(Frobenius price).
    pairs = np.einsum("kp,kr->kpr", Q, D).reshape(len(Q), -1)
    work = queries.shape[1] + differences.shape[1]
    hull = nearest_to_origin(
        pairs, np.full(len(pairs), 1e-12), lambda places: _gram_of_products(exact(), places), work, gap=1.0
    )
    if hull.inside:
        return ProgramPrice(inf, inf, None, None, hull.exact_weights)

    # At this scale the Frobenius price is 1, whatever the tokens.
    unit = hull.distance
    with np.errstate(divide="ignore", over="ignore"):
        factor = float(np.float64(margin) / q_scale / d_scale)
        price = factor / np.float64(unit)
    if not (np.finfo(float).tiny <= factor and price < inf):
        raise ArithmeticError(
            f"some B keeps the margins, but its price is out of float64's reach: margin {margin}, queries up to "
            f"{q_scale:.1e} and differences up to {d_scale:.1e} long, hull {unit:.1e} from 0 beside them"
        )
    rounding = (queries.shape[1] + differences.shape[1]) * np.finfo(float).eps
    best_gap = inf
    for solver in solvers:
        solved = _solve(Q, D / unit, norm, solver)
        if solved is None:
            continue
        raw, multipliers = solved
        matrix = query_basis @ (raw / unit) @ difference_basis.T
        multipliers = np.maximum(multipliers, 0.0)
        dual = np.einsum("k,kp,kr->pr", multipliers, queries, differences)
        reach = np.einsum("kp,pr,kr->k", queries, matrix, differences).min()
        dual_size = matrix_norm(dual, DUAL_NORM[norm])
        if reach <= 0 or dual_size <= 0:
            continue
        # Beside tokens that nearly coincide the rounding errors of both proofs are not small.
        unsure = np.einsum("kp,pr,kr->k", np.abs(queries), np.abs(matrix), np.abs(differences)).max() / reach
        terms = np.einsum("k,kp,kr->pr", multipliers, np.abs(queries), np.abs(differences))
        unsure += np.sqrt(min(dual.shape)) * np.linalg.norm(terms) / dual_size
        matrix, multipliers = matrix / reach, multipliers / dual_size
        value, lower = matrix_norm(matrix, norm), float(multipliers.sum())
        gap = (value - lower) / value + rounding * unsure
        if gap <= CERTIFIED:
            multipliers = multipliers / q_scale / d_scale
            return ProgramPrice(value * factor, lower * factor, matrix * factor, multipliers, None)
        best_gap = min(best_gap, gap)
    raise ArithmeticError(
        f"no solver proved the {norm} price: the best gap is {best_gap:.1e} of it, {CERTIFIED:.0e} is asked for"
    )


def _basis(rows: Cloud) -> NDArray[np.float64]:
    """An orthonormal basis of the span of the rows, as columns."""
    _, values, right = np.linalg.svd(rows, full_matrices=False)
    rank = int((values > 1e-13 * values[0]).sum()) or 1
    return right[:rank].T


def _gram_of_products(vectors: tuple[list[list[Fraction]], list[list[Fraction]]], places: list[int]) -> list[list[int]]:
    """<q_k d_k^T, q_l d_l^T> = (q_k . q_l)(d_k . d_l), for the given k and l."""
    pairs = zip(*(integer_gram([rows[place] for place in places]) for rows in vectors), strict=True)
    return [[x * y for x, y in zip(one, other, strict=True)] for one, other in pairs]


def _solve(
    queries: Cloud, differences: Cloud, norm: Norm, solver: Solver
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """The solver's B and multipliers for margin 1, whatever its status word says; None where it gives no numbers."""
    # Here, because loading it takes longer than most closed forms of this package.
    import cvxpy as cp
    from cvxpy.error import SolverError

    B = cp.Variable((queries.shape[1], differences.shape[1]))
    size = {"nuclear": cp.normNuc, "fro": cp.norm, "spectral": cp.sigma_max}[norm]
    margins: Any = cp.sum(cp.multiply(queries @ B, differences), axis=1) >= 1
    problem = cp.Problem(cp.Minimize(size(B, "fro") if norm == "fro" else size(B)), [margins])
    with warnings.catch_warnings():
        # "Solution may be inaccurate" is for the certificate to say.
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **SOLVER_OPTIONS[solver])
        except SolverError:
            return None
    if B.value is None or margins.dual_value is None:
        return None
    found = np.asarray(B.value), np.asarray(margins.dual_value).reshape(-1)
    return found if all(np.isfinite(part).all() for part in found) else None
