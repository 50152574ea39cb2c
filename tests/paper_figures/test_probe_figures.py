"""The figures of the pretrained models: what is drawn is what ``results/`` holds, and findings say what tables hold."""

import csv
import math
from statistics import median

import numpy as np
import pytest
from matplotlib.text import Annotation

from attention.probe_study import KINDS
from paper_figures import head_kinds, price_against_mass, probe_results, sinks_by_layer, style
from paper_figures.probe_results import MODELS, RESULTS
from paper_figures.settings import DataError, Settings
from paper_figures.tables import from_csv, from_rows, to_csv
from tests.evidence import agree
from tests.paper_figures.conftest import fits_the_page

DEPTHS = {"smollm2": 30, "minilm": 6, "rxnmapper": 12}


def read_back(tables):
    return {name: from_csv(to_csv(table)) for name, table in tables.items()}


def drawn(module, tables):
    with style.look():
        figure = module.draw(tables)
        figure.draw_without_rendering()
    return figure


def results(table, **wanted):
    """The rows of a results file that have those values, as text."""
    with open(RESULTS / f"probe-{table}.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if all(row[name] == str(value) for name, value in wanted.items())]


def number(cell):
    return float(cell) if cell else math.nan


def mean(rows, column):
    return float(np.mean([number(row[column]) for row in rows]))


def of(table, run):
    return {name: column[table["run"] == run] for name, column in table.items()}


def test_results_hold_the_whole_study():
    for run, depth in DEPTHS.items():
        heads = results("heads", run=run)
        assert len({row["layer"] for row in heads}) == depth
        assert len(results("layers", run=run)) == depth * int(heads[0]["texts"])
        assert int(heads[0]["texts"]) >= 20
        assert len(results("pooled", run=run)) == depth


# Figure 16


@pytest.fixture(scope="module")
def layers():
    return read_back(sinks_by_layer.compute(Settings()))


@pytest.mark.parametrize(("run", "layer"), [("smollm2", 0), ("smollm2", 12), ("minilm", 5), ("rxnmapper", 7)])
def test_masses_and_prices_are_those_of_the_results(run, layer, layers):
    found = {name: column[layer] for name, column in of(layers["layers"], run).items()}
    heads, texts = results("heads", run=run, layer=layer), results("layers", run=run, layer=layer)
    agree(found["mass"], mean(heads, "sink_mass"))
    agree(found["uniform"], mean(heads, "uniform"))
    for side in ("lower", "upper"):
        agree(found[f"price_{side}"], median(number(row[f"sink_{side}"]) for row in texts))
    assert found["quarter"] <= found["mass"] + 0.1
    assert found["quarter"] <= found["three_quarters"]


def test_lines_are_drawn_at_those_numbers(layers):
    above, below = drawn(sinks_by_layer, layers).axes
    for run, name in MODELS.items():
        expected = of(layers["layers"], run)
        (mass,) = (line for line in above.lines if line.get_label() == name)
        assert np.array_equal(np.asarray(mass.get_xydata()), np.column_stack([expected["layer"], expected["mass"]]))
        (price,) = (line for line in below.lines if line.get_label() == name)
        middle = np.sqrt(expected["price_lower"] * expected["price_upper"])
        agree(np.asarray(price.get_ydata(), dtype=float), middle)


def test_the_title_counts_the_models_where_mass_falls_as_the_price_rises(layers):
    title = drawn(sinks_by_layer, layers).get_suptitle()
    below = 0
    for run in MODELS:
        rows = results("answers", run=run, question="across layers", measure="mass, price")
        assert {row["drawn"] for row in rows} == {"texts", "layers"}
        below += all(float(row["upper"]) < 0 for row in rows)
        for row in rows:
            table = of(layers["correlations"], run)
            for name in ("value", "lower", "upper"):
                agree(table[name][table["drawn"] == row["drawn"]], np.array([float(row[name])]))
    assert 0 < below < 3
    assert title == (
        f"Over layers, more attention where a sink is cheaper:\n{below} of 3 models (rank correlation, 95 % confidence)"
    )


def planted_layers(lengths, *, masses=(0.1, 0.6, 0.3, 0.2)):
    return read_back(
        {
            "layers": from_rows(
                {"run": run, "layer": layer, "mass": mass, "quarter": 0.0, "three_quarters": 1.0, "uniform": 0.04}
                | {"price_lower": 2.0**-layer, "price_upper": 2.0**-layer, "length": length, "grows": 0, "shrinks": 0}
                for run in MODELS
                for layer, (mass, length) in enumerate(zip(masses, lengths, strict=True))
            )
        }
    )


def test_the_finding_names_the_layers():
    said = sinks_by_layer.finding(planted_layers((1.0, 9.0, 2.0, 50.0)))
    assert said.count("most attention on the sink in layer 1 (0.60, uniform 0.040), cheapest sink in layer 3") == 3
    assert said.count("token 0 over 4 times as long as the others in layers 1, 3 (at most 50 times)") == 3
    said = sinks_by_layer.finding(planted_layers((5.0, 9.0, 7.0, 1.0)))
    assert "in layers 0-2 (" in said
    assert "token 0" not in sinks_by_layer.finding(planted_layers((1.0, 1.0, 1.0, 1.0)))


# Figure 17


@pytest.fixture(scope="module")
def points():
    return read_back(price_against_mass.compute(Settings()))


@pytest.mark.parametrize(("run", "layer", "head"), [("smollm2", 20, 3), ("minilm", 0, 11), ("rxnmapper", 11, 0)])
def test_points_are_those_of_the_results(run, layer, head, points):
    table = of(points["heads"], run)
    here = (table["layer"] == layer) & (table["head"] == head)
    (row,) = results("heads", run=run, layer=layer, head=head)
    agree(table["mass"][here], np.array([float(row["sink_mass"])]))
    texts = [row for row in results("layers", run=run, layer=layer) if row["diagonal_lower"]]
    assert len(texts) >= 6
    for side, other in (("lower", "upper"), ("upper", "lower")):
        ratios = [float(row[f"diagonal_{side}"]) / float(row[f"sink_{other}"]) for row in texts]
        agree(table[f"ratio_{side}"][here], np.array([median(ratios)]))


def test_points_are_drawn_there_and_the_panel_says_the_correlation(points):
    axes = [axes for axes in drawn(price_against_mass, points).axes if axes.get_title("left")]
    for panel, (run, name) in zip(axes, MODELS.items(), strict=True):
        expected = of(points["heads"], run)
        offsets = np.asarray(panel.collections[0].get_offsets())
        agree(offsets[:, 0], np.sqrt(expected["ratio_lower"] * expected["ratio_upper"]))
        assert np.array_equal(offsets[:, 1], expected["mass"])
        assert np.array_equal(np.asarray(panel.collections[0].get_array()), expected["layer"])
        title = panel.get_title("left")
        assert title.startswith(name)
        (row,) = results("answers", run=run, question="across heads", measure="mass, price")
        assert f"(price) = {float(row['value']):+.2f} [{float(row['lower']):+.2f}, {float(row['upper']):+.2f}]" in title


def test_the_title_says_over_heads_in_how_many_models_the_interval_is_above_zero(points):
    figure = drawn(price_against_mass, points)
    wanted = {"question": "across heads", "measure": "mass, diagonal price over sink price"}
    lower = [float(row["lower"]) for run in MODELS for row in results("answers", run=run, **wanted)]
    assert len(lower) == 3
    above = sum(end > 0 for end in lower)
    assert 0 < above < 3
    assert figure.get_suptitle().startswith("Over heads, attention on the sink rises with the ratio of the prices in ")
    assert f" in {above} of 3 models (95 % confidence)" in figure.get_suptitle()
    for axes in figure.axes[: len(MODELS)]:
        (label,) = axes.texts
        assert isinstance(label, Annotation)
        assert (label.get_text(), label.xy[0]) == ("equal", 1)


def test_the_finding_says_which_intervals_hold_zero():
    rows = [
        {"run": run, "measure": measure, "value": value, "lower": value - 0.2, "upper": value + 0.2}
        for run in MODELS
        for measure, value in (("ratio", 0.1), ("price", -0.5))
    ]
    said = price_against_mass.finding({"heads": {}, "correlations": from_rows(rows)})
    assert said.count("ratio +0.10 [-0.10, +0.30, holds 0]") == 3
    assert said.count("price -0.50 [-0.70, -0.30]") == 3


# Figure 18


@pytest.fixture(scope="module")
def shares():
    return read_back(head_kinds.compute(Settings()))


@pytest.mark.parametrize(("run", "layer"), [("smollm2", 23), ("minilm", 1), ("rxnmapper", 4)])
def test_shares_are_those_of_the_results_and_sum_to_one(run, layer, shares):
    found = {name: column[layer] for name, column in of(shares["shares"], run).items()}
    heads = results("heads", run=run, layer=layer)
    assert found["heads"] == len(heads)
    for kind in (*KINDS, "silent switch"):
        agree(found[kind], mean(heads, kind), scale=1.0)
    # The shares of a head are kept with four digits.
    assert abs(sum(found[kind] for kind in KINDS) - 1) < 1e-3
    assert found["silent switch"] <= found["switch"]


def test_bars_stand_on_each_other(shares):
    panels = drawn(head_kinds, shares).axes
    for panel, run in zip(panels, MODELS, strict=True):
        expected, bottom = of(shares["shares"], run), 0.0
        for kind, bars in zip(KINDS, panel.containers, strict=False):
            agree(np.array([bar.get_height() for bar in bars]), np.asarray(expected[kind], dtype=float), scale=1.0)
            agree(np.array([bar.get_y() for bar in bars]), np.zeros(len(bars)) + bottom, scale=1.0)
            bottom = bottom + expected[kind]
        hatched = panel.containers[-1]
        agree(
            np.array([bar.get_height() for bar in hatched]),
            np.asarray(expected["silent switch"], dtype=float),
            scale=1.0,
        )


def test_the_finding_counts_the_kinds():
    rows = [
        {"run": run, "layer": layer, "heads": 9, "switch": switch, "gated MLP": 0.1, "mixer": 0.9 - switch}
        | {"silent switch": 0.0}
        for run in MODELS
        for layer, switch in enumerate((0.0, 0.6))
    ]
    said = head_kinds.finding({"shares": from_rows(rows)} | {})
    assert said.count("switch 30 %, gated MLP 10 %, mixer 60 %; most switches in layer 1 (60 %)") == 3


def test_missing_results_are_named_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(probe_results, "RESULTS", tmp_path)
    with pytest.raises(DataError, match=r"the probe's results cannot be read: .*probe-heads.csv") as caught:
        sinks_by_layer.compute(Settings())
    assert "\n" not in str(caught.value)


def summary_of(runs, folder):
    """A summary of models that are not among the project's three, but have MiniLM's numbers."""
    for table in ("heads", "layers", "pooled", "answers"):
        with open(RESULTS / f"probe-{table}.csv", newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row["run"] == "minilm"]
        with open(folder / f"probe-{table}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(row | {"run": run} for run in runs for row in rows)
    return folder


@pytest.fixture
def own_models(tmp_path):
    """A summary of one such model."""
    return summary_of(["mine"], tmp_path)


@pytest.mark.parametrize("module", [sinks_by_layer, price_against_mass, head_kinds])
def test_a_users_own_models_are_drawn_instead(module, own_models):
    tables = read_back(module.compute(Settings(probe=own_models)))
    for table in tables.values():
        assert set(np.asarray(table["run"]).tolist()) == {"mine"}
    assert "mine: " in module.finding(tables)
    assert not any(name in module.finding(tables) for name in MODELS.values())
    assert drawn(module, tables).axes


@pytest.mark.parametrize("depth", [2, 6])
@pytest.mark.parametrize("runs", [["mine"], ["mine", "also mine", "mine as well"]])
@pytest.mark.parametrize("module", [sinks_by_layer, price_against_mass, head_kinds])
def test_a_users_own_models_fit_the_page(module, runs, depth, tmp_path):
    folder = summary_of(runs, tmp_path)
    figure = drawn(
        module, read_back(module.compute(Settings(probe=folder if depth == 6 else few_layers(folder, depth))))
    )
    fits_the_page(figure)
    title = figure.get_suptitle()
    assert title
    if module is not head_kinds:
        assert f" none of {len(runs)} model{'s'[: len(runs) - 1]} (" in title.replace("\n", " ")


def few_layers(folder, depth):
    """The summary of a model of so few layers, all whose heads are mixers."""
    for table in ("heads", "layers", "pooled", "answers"):
        path = folder / f"probe-{table}.csv"
        with open(path, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if int(row.get("layer", 0)) < depth]
        for row in rows:
            row |= {"switch": 0, "mixer": 1, "silent switch": 0} if table == "heads" else {}
            row |= {"lower": "", "upper": ""} if table == "answers" else {}
            if row.get("measure") == "mass, price | layer index":
                row["value"] = ""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return folder


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("module", [sinks_by_layer, price_against_mass, head_kinds])
def test_few_layers_are_drawn_at_whole_numbers_and_nothing_undefined_is_said(module, depth, own_models):
    tables = read_back(module.compute(Settings(probe=few_layers(own_models, depth))))
    figure = drawn(module, tables)
    said = module.finding(tables)
    for text in (said, *(axes.get_title("left") for axes in figure.axes)):
        assert "nan" not in text
    assert "(0 %)" not in said
    if module is price_against_mass:
        title = figure.axes[0].get_title("left")
        assert title.count(", too few layers for an interval") == said.count(", too few layers for an interval") == 2
        assert "(price | layer) is not defined" in title
        assert "price | layer not defined" in said
        # A scale has two numbers at least.
        assert len(figure.axes[0].get_xticks()) >= 2
        return
    if module is head_kinds:
        assert figure.get_suptitle() == "All heads mix: none acts as a switch or a gated MLP"
    for axes in figure.axes:
        low, high = axes.get_xlim()
        assert abs(low + high - (depth - 1)) < 1e-9, "as much room before the first layer as after the last"
        assert [tick for tick in axes.get_xticks() if low <= tick <= high] == list(range(depth))


def test_no_layer_is_the_cheapest_where_no_sink_has_a_price():
    layers = {name: column.copy() for name, column in planted_layers((1.0, 1.0, 1.0, 1.0))["layers"].items()}
    layers["price_upper"][layers["layer"] == 0] = math.nan
    assert sinks_by_layer.finding({"layers": layers}).count("cheapest sink in layer 3") == 3
    layers["price_upper"][:] = math.inf
    assert "cheapest" not in sinks_by_layer.finding({"layers": layers})


@pytest.mark.parametrize(
    ("gated", "title"),
    [
        (0.02, "Heads are switches or mixers: at most 2 % of all heads of a model act"),
        (0.6, "up to 60 % of all heads of a model"),
    ],
)
def test_the_title_of_kinds_holds_for_the_users_models(gated, title):
    row = {"run": "mine", "layer": 0, "heads": 9, "switch": 0.1, "gated MLP": gated, "mixer": 0.9 - gated}
    figure = drawn(head_kinds, {"shares": from_rows([row | {"silent switch": 0.0}])})
    assert title in figure.get_suptitle()
    assert ("switches or mixers" in figure.get_suptitle()) == (gated < 0.1)


def test_models_without_diagonal_prices_are_named(own_models):
    path = own_models / "probe-layers.csv"
    with open(path, newline="", encoding="utf-8") as file:
        rows = [row | {"diagonal_lower": "", "diagonal_upper": ""} for row in csv.DictReader(file)]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(DataError, match="the probe of mine has no diagonal prices in layer 0"):
        price_against_mass.compute(Settings(probe=own_models))
