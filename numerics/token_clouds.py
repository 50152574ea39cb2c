"""Checks of token clouds, and the exact rational numbers behind them.

A cloud is n tokens in R^d, one a row. Floats are rationals, so every cloud has an exact meaning; geometry that floating
point cannot decide is decided there.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

Cloud = NDArray[np.float64]


def check_tokens(name: str, value: ArrayLike) -> Cloud:
    """Tokens as a float64 array (n, d), n, d >= 1. Rational entries (``fractions.Fraction``) are welcome.

    Raises:
        TypeError: entries that are not real numbers.
        ValueError: another shape, or an entry that is not finite.
    """
    return _check_array(name, value, dims=2, shape="(n, d) with n, d >= 1")


def check_sink(sink: ArrayLike, tokens: Cloud, *, name: str = "sink") -> Cloud:
    """The sink's embedding as a float64 array (d,), as wide as the tokens. ``name`` is what the message calls it.

    Raises:
        TypeError: entries that are not real numbers.
        ValueError: another shape, or an entry that is not finite.
    """
    checked = _check_array(name, sink, dims=1, shape="(d,)")
    if checked.shape[0] != tokens.shape[1]:
        raise ValueError(f"{name} must have {tokens.shape[1]} entries, as the tokens have, got shape {checked.shape}")
    return checked


def check_margin(margin: float) -> float:
    """A positive finite margin.

    Raises:
        TypeError: not a real number.
        ValueError: zero, negative or not finite.
    """
    if not isinstance(margin, Real):
        raise TypeError(f"margin must be a real number, got {type(margin).__name__}")
    try:
        checked = float(margin)
    except OverflowError:
        raise ValueError("margin must fit into float64") from None
    if not 0 < checked < float("inf"):
        raise ValueError(f"margin must be positive and finite, got {margin}")
    return checked


def check_count(name: str, value: int, least: int = 1) -> None:
    """An integer of at least ``least``.

    Raises:
        TypeError: not an integer.
        ValueError: below ``least``.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {type(value).__name__} {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def _check_array(name: str, value: ArrayLike, *, dims: int, shape: str) -> Cloud:
    try:
        raw = np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:  # rows of unequal length; a tensor that NumPy cannot read
        raise TypeError(f"{name} must be an array of real numbers: {error}") from None
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must not have masked entries")
    mixed = raw.dtype == object and all(isinstance(entry, Real) for entry in raw.flat)
    if raw.dtype.kind not in "iuf" and not mixed:
        raise TypeError(f"{name} must hold real numbers, got dtype {raw.dtype}")
    if raw.ndim != dims or 0 in raw.shape:
        raise ValueError(f"{name} must have shape {shape}, got {raw.shape}")
    try:
        checked = raw.astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name} must fit into float64") from None
    if not np.isfinite(checked).all():
        place = tuple(int(axis) for axis in np.argwhere(~np.isfinite(checked))[0])
        raise ValueError(f"{name} must be finite, got {checked[place]} at {place}")
    return checked


def row_lengths(rows: Cloud) -> Cloud:
    """The norm of every row, also where its square would over- or underflow."""
    largest = np.abs(rows).max(1)
    return largest * np.linalg.norm(rows / np.where(largest > 0, largest, 1.0)[:, None], axis=1)


def exact_rows(rows: ArrayLike) -> list[list[Fraction]]:
    """The rows as exact rationals; floats are taken at their word."""
    values = np.asarray(rows)
    if values.dtype.kind == "f":
        # Narrower floats are exact in float64, which Fraction understands.
        values = values.astype(np.float64)
    return [[Fraction(entry) for entry in row] for row in values.tolist()]


def are_floats(*values: ArrayLike) -> bool:
    """Whether float64 arithmetic starts from the values themselves.

    Rationals and long integers are rounded first, and a difference of two rounded numbers may have no right digit.
    """
    arrays = [np.asarray(value) for value in values]
    return all(
        array.dtype.kind == "f" or (array.dtype.kind in "iu" and np.abs(array.astype(np.float64)).max() < 2**53)
        for array in arrays
    )


def exact_row(row: ArrayLike) -> list[Fraction]:
    """One vector as exact rationals."""
    return exact_rows(np.asarray(row)[None])[0]


def integer_gram(rows: Sequence[Sequence[Fraction]]) -> list[list[int]]:
    """The inner products of rational rows, all multiplied by one positive number that makes them integers."""
    scale = lcm(*(entry.denominator for row in rows for entry in row))
    whole = [[int(entry * scale) for entry in row] for row in rows]
    return [[sum(x * y for x, y in zip(one, other, strict=True)) for other in whole] for one in whole]
