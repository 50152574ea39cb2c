"""Figure 19: the tables are the runs, and the words follow the tables."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

import attention
from numerics import mean_interval
from paper_figures import sink_emergence, style
from paper_figures.settings import Settings
from paper_figures.sink_emergence import DECAYS, EMERGED, KINDS
from paper_figures.tables import from_csv, from_rows, to_csv


def planted(sinks, silent=0.0, price=(0.05, 0.02)):
    """Three seeds, two steps, two layers of one head; ``sinks[kind, decay]``: the mass at the end by seed."""
    rows = [
        {"kind": kind, "decay": decay, "seed": seed, "step": step, "layer": layer, "head": 0}
        | {"sink": sinks[kind, decay][seed] * step / 10 / (1 + layer), "silent": silent * step / 10}
        | {"price": price[step // 10] / (1 + layer)}
        for kind in KINDS
        for decay in DECAYS
        for seed in range(3)
        for step in (0, 10)
        for layer in (0, 1)
    ]
    return {
        "heads": from_csv(to_csv(from_rows(rows))),
        "known": from_csv(to_csv({"entropy": [1.9], "uniform_sink": [0.06]})),
    }


SINKS = {
    ("softmax", 0.0): (0.9, 0.7, 0.8),
    ("softmax", 1.0): (0.1, 0.5, 0.3),
    ("extra zero", 0.0): (0.1, 0.1, 0.1),
    ("extra zero", 1.0): (0.0, 0.2, 0.1),
}


def drawn(tables):
    with style.look():
        figure = sink_emergence.draw(tables)
        figure.draw_without_rendering()
    return figure


def test_the_finding_says_what_the_tables_hold():
    said = sink_emergence.finding(planted(SINKS, silent=0.6))
    half = mean_interval(np.array(SINKS["softmax", 0.0])).half_width
    assert f"softmax, decay 0: 0.80 +- {half:.2f} (3 of 3 runs a sink)" in said
    assert "(2 of 3 runs a sink)" in said
    assert "extra zero logit, decay 0: 0.10 +- 0.00 (0 of 3 runs a sink), left over 0.60 +- 0.00" in said
    assert "costs 0.40 to 0.40 times its price" in said


def test_other_tables_give_other_words():
    swapped = {
        (kind, decay): SINKS[other, decay]
        for kind, other in zip(KINDS, reversed(KINDS), strict=True)
        for decay in DECAYS
    }
    tables = planted(swapped)
    assert "softmax, decay 0: 0.10 +- 0.00 (0 of 3 runs a sink)" in sink_emergence.finding(tables)
    title = drawn(tables).get_suptitle()
    assert title.startswith("Runs, of 3 without and with weight decay, that end with a sink")
    assert title.endswith(":\n0 and 0 with softmax, 3 and 2 with the zero logit")
    assert drawn(planted(SINKS)).get_suptitle().endswith(":\n3 and 2 with softmax, 0 and 0 with the zero logit")


def test_lines_are_means_over_seeds_and_the_largest_head_counts():
    figure = drawn(planted(SINKS, silent=0.6))
    above = figure.axes[0]
    masses = [line for line in above.lines if to_rgba(line.get_color()) == to_rgba(style.VERMILLION)]
    assert [round(float(np.asarray(line.get_ydata())[-1]), 12) for line in masses] == [0.8, 0.3]
    assert EMERGED <= 0.3
    prices = [np.asarray(line.get_ydata()).round(12).tolist() for line in figure.axes[2].lines]
    assert [0.05, 0.02] in prices
    assert [0.025, 0.01] in prices


def test_a_price_that_is_infinite_is_left_out():
    tables = planted(SINKS, price=(np.inf, 0.02))
    prices = drawn(tables).axes[2].lines
    assert all(np.asarray(line.get_xdata()).tolist() == [10] for line in prices)


@pytest.fixture(scope="module")
def tables():
    return {name: from_csv(to_csv(table)) for name, table in sink_emergence.compute(Settings(quick=True)).items()}


def test_the_tables_hold_the_runs_as_they_are(tables):
    heads = tables["heads"]
    assert set(zip(heads["kind"], heads["decay"], strict=True)) == {(kind, decay) for kind in KINDS for decay in DECAYS}
    settings = attention.ByteSettings(extra_zero=True, weight_decay=DECAYS[1], steps=20, every=10)
    mine = (heads["kind"] == "extra zero") & (heads["decay"] == DECAYS[1])
    records = attention.train_byte_model(settings).records
    for name in attention.HeadRecord._fields:
        assert np.allclose(heads[name][mine], [getattr(record, name) for record in records], rtol=1e-9, atol=0)
    assert "0 of 1 runs" in sink_emergence.finding(tables) or "1 of 1 runs" in sink_emergence.finding(tables)
    assert not (heads["silent"][heads["kind"] == "softmax"] > 0).any()
