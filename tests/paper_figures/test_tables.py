"""Tables go to CSV and come back as they were."""

import numpy as np
import pytest

from paper_figures.tables import from_csv, from_rows, to_csv


def test_round_trip():
    rows = [{"kind": "a, b", "T": 4, "norm": 1 / 3}, {"kind": "c", "T": 4096, "norm": np.float64("nan")}]
    back = from_csv(to_csv(from_rows(rows)))
    assert back["kind"].tolist() == ["a, b", "c"]
    assert back["T"].dtype == int
    assert back["norm"][0] == pytest.approx(1 / 3, rel=1e-10)
    assert np.isnan(back["norm"][1])
    text = to_csv(back)
    assert to_csv(from_csv(text)) == text


def test_no_rows():
    assert {name: len(column) for name, column in from_csv("a,b\n").items()} == {"a": 0, "b": 0}


def test_rows_and_columns_must_fit():
    with pytest.raises(ValueError, match=r"every row must have the columns \['a'\], got \['b'\]"):
        from_rows([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="columns must have one length"):
        to_csv({"a": [1], "b": [1, 2]})
