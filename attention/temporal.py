"""The temporal attention layer: multi-head self-attention over time, with a regulariser on its diagonal."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from attention.attend import attention_weights
from attention.regularisers import Diagonal, DiagonalDropout, Regulariser, WeightDropout, own_keys
from numerics.inputs import check_bias, check_blocked, check_floating, check_same_kind
from numerics.token_clouds import check_count


class TemporalAttention(nn.Module):
    """Attention over time (P1): h_i = r x_i + W_O o_i + b_O, where o_i stacks the heads' sum_j a_ij v_j.

    Args:
        d_model: d, the width of a token.
        num_heads: H; each head has d_k = d_v = d/H.
        diagonal: what is done to the diagonal: ``DiagonalMask()``, ``DiagonalPenalty(b)``,
            ``DiagonalDropout(p)``, ``DiagonalWeightDropout(p)`` or None.
        dropout: ``WeightDropout(p)``, dropout of all weights after the softmax, beside the diagonal's
            regulariser.
        residual: r, True adds x.
        bias: whether the four projections have biases.
        dtype: of the weights; torch's default dtype if not given.
        device: of the weights.

    Attributes:
        query, key, value, output: the projections, each ``nn.Linear(d, d)``.

    Raises:
        TypeError: ``diagonal`` or ``dropout`` is something else, such as a class or a bare number; ``d_model`` or
            ``num_heads`` is no integer; ``residual`` or ``bias`` is neither True nor False.
        ValueError: ``num_heads`` does not divide ``d_model``, or either is below 1.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        diagonal: Diagonal | None = None,
        dropout: WeightDropout | None = None,
        residual: bool = True,
        bias: bool = True,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        check_count("d_model", d_model)
        check_count("num_heads", num_heads)
        if d_model % num_heads:
            raise ValueError(f"d_model must be a multiple of num_heads, got {d_model} and {num_heads}")
        for name, choice in (("residual", residual), ("bias", bias)):
            if not isinstance(choice, bool):
                raise TypeError(f"{name} must be True or False, got {choice!r}")
        if not isinstance(diagonal, Diagonal | None):
            raise TypeError(
                "diagonal must be DiagonalMask(), DiagonalPenalty(b), DiagonalDropout(p), "
                f"DiagonalWeightDropout(p) or None, got {diagonal!r}"
            )
        if not isinstance(dropout, WeightDropout | None):
            raise TypeError(f"dropout must be WeightDropout(p) or None, got {dropout!r}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.diagonal = diagonal
        self.dropout = dropout
        self.residual = residual
        self.query, self.key, self.value, self.output = (
            nn.Linear(d_model, d_model, bias=bias, dtype=dtype, device=device) for _ in range(4)
        )

    def extra_repr(self) -> str:
        """What distinguishes the layer beside its projections."""
        shown = ("num_heads", "diagonal", "dropout", "residual")
        return ", ".join(f"{name}={getattr(self, name)}" for name in shown)

    def forward(
        self,
        x: Tensor,
        *,
        blocked: Tensor | None = None,
        bias: Tensor | None = None,
        return_weights: bool | Literal["after dropout"] = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend over the second last dimension.

        Args:
            x: tokens (..., T, d), finite, in the dtype of the weights.
            blocked: boolean, broadcasts to (..., H, T, T), True = may not look. Padding of shape (N, T) is
                ``padding[:, None, None, :]``.
            bias: finite, added to the scaled scores, broadcasts like ``blocked``.
            return_weights: True returns also the weights before any dropout, which are those of evaluation,
                whatever is drawn; "after dropout" those that the values were multiplied by.

        Returns:
            h, (..., T, d); with ``return_weights`` also the weights (..., H, T, T).

        Raises:
            TypeError: a wrong dtype.
            ValueError: a wrong shape, values that are not finite, or a row with nothing left to look at. A
                row that sees only its own key is refused wherever the diagonal's regulariser may take that
                key away, in training and in evaluation alike.
        """
        if return_weights not in (False, True, "after dropout"):
            raise ValueError(f"return_weights must be False, True or 'after dropout', got {return_weights!r}")
        self._check(x, blocked, bias)
        q, k, v = (self._split(projection(x)) for projection in (self.query, self.key, self.value))
        pattern = self._pattern(q, k, blocked, bias, training=self.training)
        weights = pattern
        for regulariser in self._regularisers:
            factor = regulariser.factor(weights, training=self.training)
            weights = weights if factor is None else weights * factor
        out = self.output((weights @ v).transpose(-2, -3).flatten(-2))
        h = x + out if self.residual else out
        if return_weights is False:
            return h
        if return_weights == "after dropout":
            return h, weights
        if self.training and isinstance(self.diagonal, DiagonalDropout):
            pattern = self._pattern(q, k, blocked, bias, training=False)
        return h, pattern

    def projections(self) -> dict[str, Any]:
        """The weights under the names that ``numerics.attention_heads`` takes, for exact Jacobians.

        Returns:
            ``w_q``, ``w_k``, ``w_v``, ``w_o``, each (d, d), ``num_heads``, and with biases ``b_q``, ``b_k``,
            ``b_v``. They are the parameters, so gradients flow. b_O is left out: it moves no derivative in x.
        """
        named = {"q": self.query, "k": self.key, "v": self.value}
        weights = {f"w_{letter}": layer.weight for letter, layer in named.items()}
        biases = {f"b_{letter}": layer.bias for letter, layer in named.items() if layer.bias is not None}
        return {"num_heads": self.num_heads, **weights, "w_o": self.output.weight, **biases}

    @property
    def _regularisers(self) -> list[Regulariser]:
        return [regulariser for regulariser in (self.diagonal, self.dropout) if regulariser is not None]

    def _split(self, projected: Tensor) -> Tensor:
        """(..., T, d) to (..., H, T, d/H)."""
        return projected.unflatten(-1, (self.num_heads, -1)).transpose(-2, -3)

    def _pattern(self, q: Tensor, k: Tensor, blocked: Tensor | None, bias: Tensor | None, *, training: bool) -> Tensor:
        """The softmax's weights (..., H, T, T), with what the regularisers do before it."""
        shape = torch.Size((*q.shape[:-1], k.shape[-2]))
        for regulariser in self._regularisers:
            more_blocked = regulariser.blocked(shape, training=training, device=q.device)
            if more_blocked is not None:
                blocked = more_blocked if blocked is None else blocked | more_blocked
            more_bias = regulariser.bias(shape[-1], dtype=q.dtype, device=q.device)
            if more_bias is not None:
                bias = more_bias if bias is None else bias + more_bias
        return attention_weights(q, k, blocked=blocked, bias=bias)

    def _check(self, x: Tensor, blocked: Tensor | None, bias: Tensor | None) -> None:
        check_floating("x", x)
        if x.dim() < 2 or x.shape[-1] != self.d_model or 0 in x.shape:
            raise ValueError(f"x must have shape (..., T, {self.d_model}) with T >= 1, got {tuple(x.shape)}")
        check_same_kind("the layer's weights", self.query.weight, "x", x)
        tokens = x.shape[-2]
        scores = x.new_empty(()).expand(*x.shape[:-2], self.num_heads, tokens, tokens)
        check_bias(bias, scores)
        check_blocked(blocked, scores)
        if self.diagonal is not None and self.diagonal.may_block_own_key:
            # In evaluation too, and whatever is drawn: whether a row is refused must not depend on either.
            own = own_keys(tokens, x.device)
            if blocked is None:
                check_blocked(own, scores, name=f"{self.diagonal}")
            else:
                check_blocked(blocked | own, scores, name=f"blocked with {self.diagonal}")
