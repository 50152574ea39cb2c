"""Tables of numbers and their CSV form, which is all that a plot may read."""

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

Table = Mapping[str, Any]
"""Column name -> its values: numbers or text, one length for all columns."""

SIGNIFICANT_DIGITS = 12
"""Enough for any plot, few enough that the last bits of another processor's sums do not show."""


def from_rows(rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table from its rows.

    Args:
        rows: mappings with one set of keys.

    Raises:
        ValueError: a row has other columns than the first.
    """
    rows = list(rows)
    names = list(rows[0]) if rows else []
    for row in rows:
        if list(row) != names:
            raise ValueError(f"every row must have the columns {names}, got {list(row)}")
    return {name: [row[name] for row in rows] for name in names}


def to_csv(table: Table) -> str:
    """The CSV text: a header, then one line a row, floats with ``SIGNIFICANT_DIGITS`` digits.

    Raises:
        ValueError: columns of different lengths.
    """
    columns = [np.asarray(column).tolist() for column in table.values()]
    if len({len(column) for column in columns}) > 1:
        lengths = dict(zip(table, map(len, columns), strict=True))
        raise ValueError(f"columns must have one length, got {lengths}")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table)
    writer.writerows([_cell(value) for value in row] for row in zip(*columns, strict=True))
    return text.getvalue()


def _cell(value: float | int | str) -> str:
    return f"{value:.{SIGNIFICANT_DIGITS}g}" if isinstance(value, float) else str(value)


def from_csv(text: str) -> dict[str, np.ndarray]:
    """The columns of a CSV text: int where every value is one, else float where every one is, else text."""
    header, *rows = list(csv.reader(io.StringIO(text)))
    return {name: _column([row[place] for row in rows]) for place, name in enumerate(header)}


def _column(cells: list[str]) -> np.ndarray:
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in cells])
        except ValueError:
            continue
    return np.array(cells)
