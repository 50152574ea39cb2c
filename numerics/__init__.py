"""The theory evaluated: closed forms, bounds and prices as numbers.

Attention is in torch (any device, float64 unless asked otherwise); geometry, prices and statistics are in NumPy.
File names are those of the notes: ``numerics.a1_jacobian`` evaluates ``derivations.a1_jacobian``.
"""

from numerics.a1_jacobian import (
    Heads,
    JacobianPaths,
    attention_heads,
    jacobian_blocks,
    jacobian_paths,
    jacobian_rows,
    masked_softmax,
    query_part,
    sensitivity_map,
)
from numerics.a2_mean_sensitivity import (
    Bound,
    compact_diagonal_form,
    diagonal_ball_bound,
    diagonal_bound,
    expected_other_weight,
    key_path_bound,
    largest_block_ball_bound,
    largest_weight_ball_bound,
    off_diagonal_mean_ball_bound,
    off_diagonal_mean_bound,
    query_path_ball_bound,
    query_path_bound,
    value_path_bound,
)
from numerics.a3_large_t_limit import (
    Gaussian,
    GaussianMixture,
    Rademacher,
    Sphere,
    TokenLaw,
    curvature_variance,
    limit_diagonal_block,
    limit_off_diagonal_blocks,
    limit_output,
    limit_weights,
)

__all__ = [
    "Bound",
    "Gaussian",
    "GaussianMixture",
    "Heads",
    "JacobianPaths",
    "Rademacher",
    "Sphere",
    "TokenLaw",
    "attention_heads",
    "compact_diagonal_form",
    "curvature_variance",
    "diagonal_ball_bound",
    "diagonal_bound",
    "expected_other_weight",
    "jacobian_blocks",
    "jacobian_paths",
    "jacobian_rows",
    "key_path_bound",
    "largest_block_ball_bound",
    "largest_weight_ball_bound",
    "limit_diagonal_block",
    "limit_off_diagonal_blocks",
    "limit_output",
    "limit_weights",
    "masked_softmax",
    "off_diagonal_mean_ball_bound",
    "off_diagonal_mean_bound",
    "query_part",
    "query_path_ball_bound",
    "query_path_bound",
    "sensitivity_map",
    "value_path_bound",
]
