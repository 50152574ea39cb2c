"""Checks of what users pass in. A failure is one line: the argument, its value and what was expected."""

import torch
from torch import Tensor

# torch.func has no public way to look at the values that a transform wraps.
from torch._C import _functorch as functorch  # pyright: ignore[reportAttributeAccessIssue]


def check_floating(name: str, value: Tensor, *, dims: int | None = None) -> None:
    """A real floating tensor without NaN or infinity, of ``dims`` dimensions where given.

    Raises:
        TypeError: not a tensor, or not of a real floating dtype.
        ValueError: a wrong number of dimensions, no values (the meta device), or a value that is not finite.
    """
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
    if not value.dtype.is_floating_point:
        raise TypeError(f"{name} must have a real floating dtype, got {value.dtype}")
    if dims is not None and value.dim() != dims:
        raise ValueError(f"{name} must have {dims} dimension(s), got shape {tuple(value.shape)}")
    if value.is_meta:
        raise ValueError(f"{name} must hold values, got a tensor on the meta device")
    values = _plain(value)
    # A finite sum has only finite terms and costs one pass; only where it overflows is every entry looked at.
    if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
        place = tuple(int(n) for n in (~torch.isfinite(values)).nonzero()[0])
        raise ValueError(f"{name} must be finite, got {values[place].item()} at {place}")


def check_same_kind(first_name: str, first: Tensor, name: str, value: Tensor) -> None:
    """Two tensors that can meet in one product: same dtype, same device.

    Raises:
        TypeError: the dtypes differ.
        ValueError: the devices differ.
    """
    if first.dtype != value.dtype:
        raise TypeError(f"{name} must have the dtype of {first_name}, {first.dtype}, got {value.dtype}")
    _check_device(first_name, first, name, value)


def check_blocked(blocked: Tensor | None, scores: Tensor, *, name: str = "blocked") -> None:
    """A boolean mask, True = may not look, that broadcasts to the scores and leaves every row a key.

    ``name`` is what the message calls the mask.

    Raises:
        TypeError: not a boolean tensor (a 0/1 float mask would mask nothing).
        ValueError: is on another device, does not broadcast to the scores, or blocks every key of some row.
    """
    if blocked is None:
        if scores.shape[-1] == 0:
            raise ValueError(f"every query needs a key to look at, got scores of shape {tuple(scores.shape)}")
        return
    if not isinstance(blocked, Tensor) or blocked.dtype != torch.bool:
        kind = blocked.dtype if isinstance(blocked, Tensor) else type(blocked).__name__
        raise TypeError(f"{name} must be a boolean tensor (True = may not look), got {kind}")
    _check_device("the scores", scores, name, blocked)
    _check_broadcasts(name, blocked, scores.shape)
    # Batch dimensions that the mask is only broadcast to cannot change the answer.
    full = _plain(blocked.expand(torch.broadcast_shapes(blocked.shape, scores.shape[-2:])).all(dim=-1))
    if full.any():
        place = tuple(int(n) for n in full.nonzero()[0])
        raise ValueError(
            f"{name} leaves query {place[-1]} no key to look at (index {place} of shape {tuple(full.shape)})"
        )


def check_bias(bias: Tensor | None, scores: Tensor) -> None:
    """A finite additive bias that broadcasts to the scores.

    Raises:
        TypeError: not a floating tensor of the scores' dtype.
        ValueError: on another device, not finite (minus infinity is what ``blocked`` is for), or does not broadcast.
    """
    if bias is None:
        return
    if isinstance(bias, Tensor) and bias.is_floating_point():
        _check_device("the scores", scores, "bias", bias)
        if torch.isneginf(_plain(bias)).any():
            raise ValueError("bias must be finite; use blocked for keys that may not be looked at, not -inf")
    check_floating("bias", bias)
    check_same_kind("the scores", scores, "bias", bias)
    _check_broadcasts("bias", bias, scores.shape)


def check_weights(name: str, weights: Tensor) -> None:
    """Square attention weights (..., T, T), T >= 1: no entry below 0, every row sums to one.

    Raises:
        TypeError: not a real floating tensor.
        ValueError: another shape, an entry below 0 or not finite, or a row with another sum; the message names it.
    """
    check_floating(name, weights)
    if weights.dim() < 2 or weights.shape[-1] != weights.shape[-2] or 0 in weights.shape:
        raise ValueError(f"{name} must have shape (..., T, T) with T >= 1, got {tuple(weights.shape)}")
    values = _plain(weights)
    if (values < 0).any():
        place = tuple(int(n) for n in (values < 0).nonzero()[0])
        raise ValueError(f"{name} must not be negative, got {values[place].item()} at {place}")
    sums = _plain(weights.sum(-1))
    wrong = (sums - 1).abs() > torch.finfo(weights.dtype).eps ** 0.5
    if wrong.any():
        place = tuple(int(n) for n in wrong.nonzero()[0])
        raise ValueError(f"every row of {name} must sum to 1, got {sums[place].item()} in row {place}")


def check_covariance(name: str, covariance: Tensor, dimension: int) -> None:
    """A matrix (d, d), symmetric and positive semidefinite up to rounding.

    Raises:
        ValueError: anything else.
    """
    if dimension < 1 or covariance.shape != (dimension, dimension):
        raise ValueError(f"{name} must have shape ({dimension}, {dimension}), got {tuple(covariance.shape)}")
    slack = 1e3 * torch.finfo(covariance.dtype).eps * float(covariance.abs().max())
    if float((covariance - covariance.T).abs().max()) > slack:
        raise ValueError(f"{name} must be symmetric, got {covariance.tolist()}")
    least = float(torch.linalg.eigvalsh(covariance)[0])
    if least < -slack:
        raise ValueError(f"{name} must be positive semidefinite, got the eigenvalue {least:.3e}")


def lengths(vectors: Tensor) -> Tensor:
    """The norm of every vector (..., d), also where its square would over- or underflow."""
    largest = vectors.abs().amax(-1)
    return largest * (vectors / torch.where(largest > 0, largest, 1.0).unsqueeze(-1)).norm(dim=-1)


def _check_device(first_name: str, first: Tensor, name: str, value: Tensor) -> None:
    if first.device != value.device:
        raise ValueError(f"{name} must be on the device of {first_name}, {first.device}, got {value.device}")


def _check_broadcasts(name: str, value: Tensor, shape: torch.Size) -> None:
    try:
        fits = torch.broadcast_shapes(value.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(f"{name} must broadcast to {tuple(shape)}, got shape {tuple(value.shape)}")


def _plain(value: Tensor) -> Tensor:
    """The values below the transforms of ``torch.func``, which cannot be looked at from inside.

    Under ``torch.vmap`` that is the whole batch, with one more dimension.
    """
    value = value.detach()
    while functorch.is_functorch_wrapped_tensor(value):
        value = functorch.get_unwrapped(value)
    return value
