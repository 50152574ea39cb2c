"""The figure of the audit: its tables hold every cell under every choice, and its words are those of the numbers."""

import numpy as np
import pytest
from scipy import stats

from numerics.a7_table_audit import BASELINE, METRICS, PUBLISHED, REGULARISERS
from paper_figures import table_audit
from paper_figures.settings import Settings
from paper_figures.tables import from_csv, to_csv
from tests.evidence import agree


@pytest.fixture(scope="module")
def tables() -> dict[str, dict[str, np.ndarray]]:
    return {name: from_csv(to_csv(table)) for name, table in table_audit.compute(Settings(quick=True)).items()}


def test_every_cell_is_drawn_once_per_choice(tables):
    changes, choices = tables["changes"], tables["choices"]
    assert len(set(zip(changes["variant"], changes["metric"], strict=True))) == len(changes["value"]) == 27
    names = ("variant", "metric", "family", "ddof")
    assert len(set(zip(*(choices[name] for name in names), strict=True))) == len(choices["ddof"]) == 6 * 27


@pytest.mark.parametrize("ddof", [1, 0])
def test_uncorrected_p_values_are_scipys(tables, ddof):
    choices, scale = tables["choices"], ((4 - ddof) / 3) ** 0.5
    here = (choices["family"] == "none") & (choices["ddof"] == ddof)
    base = PUBLISHED[BASELINE]
    expected = [
        stats.ttest_ind_from_stats(
            row.mean[place], scale * row.sd[place], 4, base.mean[place], scale * base.sd[place], 4, equal_var=False
        ).pvalue
        for row in (PUBLISHED[name] for name in REGULARISERS)
        for place in range(len(METRICS))
    ]
    agree(choices["p_value"][here], np.array(expected))


def test_the_finding_counts_what_is_drawn(tables):
    said = table_audit.finding(tables)
    assert "1.23 % (diagonal dropout, MAE-12), at most 1.26 %" in said
    assert "2 of 27 cells without a correction" in said
    significant = tables["choices"]["significant"]
    assert {verdict: int((significant == verdict).sum()) for verdict in ("always", "some")} == {"always": 4, "some": 2}
