"""The study on planted readings whose answers are known, and on what a probe really writes."""

import csv
import json
import math
import re

import numpy as np
import pytest
from scipy.stats import spearmanr

from attention.__main__ import main
from attention.probe import HeadReading, LayerReading, PooledReading, ProbeResult, Sink
from attention.probe_study import FEWEST, answers, read_study, summarise
from tests.evidence import agree, at_most

TEXTS, DEPTH, HEADS = 4, 6, 3


def planted(
    *,
    sink: Sink = "first",
    price=lambda layer, text: 2.0**-layer,
    mass=lambda layer, head, text: 0.1 * layer + 0.02,
    length=lambda layer: 1.0 + layer % 2,
    texts=TEXTS,
    depth=DEPTH,
    of_layer=HEADS,
):
    """A probe of some texts of 10 tokens; mass and price as given, all the rest the same everywhere."""
    tokens = 10
    heads, layers = [], []
    for text in range(texts):
        for layer in range(depth):
            cost = price(layer, text)
            layers.append(
                LayerReading(
                    text=text,
                    layer=layer,
                    tokens=tokens,
                    dimension=9,
                    g_q=1 / cost,
                    g_k=1.0,
                    representable=layer != 1,
                    wendel=1.0,
                    sink_price=cost,
                    priced=9,
                    sink_lower=0.9 * cost,
                    sink_upper=cost,
                    diagonal_lower=math.nan if text == 0 else 3 * cost if layer else 0.5 * cost,
                    diagonal_upper=math.nan if text == 0 else 4 * cost if layer else 0.8 * cost,
                    ratio_lower=math.nan,
                    ratio_upper=math.nan,
                    sink_length=length(layer),
                    dispersion_before=0.5,
                    dispersion_after=0.4,
                )
            )
            for head in range(of_layer):
                on_sink = mass(layer, head, text)
                heads.append(
                    HeadReading(
                        text=text,
                        layer=layer,
                        head=head,
                        tokens=tokens,
                        sink_mass=on_sink,
                        diagonal_mass=0.1,
                        uniform=0.2,
                        strongest_key=0 if head else tokens - 1,
                        strongest_mass=0.6,
                        cost=8.0,
                        asked=0.75,
                        margins_lower=1.0,
                        margins_upper=1.0,
                        overpaid_lower=math.nan if head == 2 else 4.0 if text % 2 else 16.0,
                        overpaid_upper=math.nan if head == 2 else 16.0,
                        value_ratio=0.1,
                        silent_lower=0.1,
                        silent_output=0.2,
                        silent_upper=0.4,
                        gate=0.3,
                        leak=0.3,
                        leak_share=0.5,
                        rows=0.5,
                        columns=0.4,
                        spread=0.3,
                        kind="switch" if head else "mixer",
                        sink_kind="silent" if text < 3 else "broadcasting",
                    )
                )
    pooled = [
        PooledReading(
            layer=layer,
            n=36,
            dimension=9 if layer else 36,
            g_q=1.0,
            g_k=1.0,
            representable=layer != 1,
            wendel=1e-3,
            sink_price=1.0,
        )
        for layer in range(depth)
    ]
    return ProbeResult("m", "llama", "planted", sink, "fast", 0, tuple(heads), tuple(layers), tuple(pooled))


def studied(tmp_path, **runs):
    for name, result in runs.items():
        result.write(tmp_path / name)
    study = summarise([tmp_path / name for name in runs], tmp_path / "out", draws=20)
    only = next(iter(runs))

    def answer(question, measure, run=only, drawn=None):
        columns = study.answers
        here = (columns["run"] == run) & (columns["question"] == question) & (columns["measure"] == measure)
        if drawn is not None:
            here &= columns["drawn"] == drawn
        assert here.sum() == 1, (question, measure)
        return {name: column[here][0] for name, column in columns.items()}

    return study, answer


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return studied(tmp_path_factory.mktemp("known"), run=planted())


def test_a_planted_relation_across_layers_is_answered(known):
    _, answer = known
    for drawn in ("texts", "layers"):
        price = answer("across layers", "mass, price", drawn=drawn)
        agree(price["value"], -1.0)
        agree(answer("across layers", "mass, layer index", drawn=drawn)["value"], 1.0)
        # Price and layer index say the same, so with one held fixed nothing is left of the other.
        assert math.isnan(answer("across layers", "mass, price | layer index", drawn=drawn)["value"])
    agree(answer("across heads", "mass, price")["value"], -1.0)
    agree(answer("across heads", "share of the mass's variance between layers")["value"], 1.0)
    assert math.isnan(answer("across heads", "mass, cost")["value"])


def test_shares_and_medians_are_counted_right(known):
    _, answer = known
    for question, measure, expected in (
        ("sink or diagonal", "share with the sink cheaper", 5 / 6),
        ("sink or diagonal", "share with the diagonal cheaper", 1 / 6),
        ("sink or diagonal", "median of diagonal/sink, lower side", 3.0),
        ("sink or diagonal", "median of diagonal/sink, upper side", 4 / 0.9),
        ("sink or diagonal", "least diagonal/sink, lower side", 0.5),
        ("overpaid", "share of queries that prefer the sink", 0.75),
        # The geometric mean of 4 and 16.
        ("overpaid", "median cost/price, lower side", 8.0),
        ("overpaid", "median cost/price, upper side", 16.0),
        ("alignment", "share of layers and texts that can make the sink", 5 / 6),
        ("alignment", "pooled: layers with more tokens than dimensions", 5),
        ("alignment", "pooled: of these, layers that can make the sink", 4),
        ("kinds", "share of heads: switch", 2 / 3),
        ("kinds", "share of heads: mixer", 1 / 3),
        ("kinds", "share of texts whose strongest key is the sink", 2 / 3),
        ("kinds", "share of heads with mass above 1/2", 1 / 6),
        ("kinds", "silent sinks among heads with mass above 1/2", 3 / 4),
        ("kinds", "median B5 output over upper side", 0.5),
        ("smoothing", "median spread left", 0.3),
        ("smoothing", "median spread expected", 0.1 * 10 / 9),
        ("smoothing", "median imbalance of the columns", 4.0),
        ("smoothing", "median change of the residual stream's dispersion", 0.8),
        ("smoothing", "share of layers and texts whose residual stream is smoothed", 1.0),
    ):
        found = answer(question, measure)
        # Tables and answers hold four digits.
        at_most(abs(found["value"] - expected), 1e-3 * expected)
        assert math.isnan(found["lower"]) or found["lower"] <= found["upper"]


def test_across_texts_a_price_is_compared_within_its_layer(tmp_path):
    """The same order of texts in each layer; across layers, price and mass fall together."""
    run = planted(
        price=lambda layer, text: 2.0 ** (text - 10 * layer),
        mass=lambda layer, head, text: 0.9 - 0.1 * layer - 0.02 * text,
    )
    _, answer = studied(tmp_path, run=run)
    agree(answer("across texts", "mass, price")["value"], -1.0)
    agree(answer("across layers", "mass, price", drawn="layers")["value"], 1.0)


def test_heads_that_do_not_follow_the_price_leave_an_interval_that_holds_zero(tmp_path):
    draw = np.random.default_rng(4).uniform(0.1, 0.9, size=(DEPTH, HEADS, TEXTS))
    study, answer = studied(tmp_path, run=planted(mass=lambda layer, head, text: draw[layer, head, text]))
    found = answer("across heads", "mass, price")
    expected = spearmanr(np.repeat(-np.arange(DEPTH), HEADS), draw.mean(-1).ravel())
    at_most(abs(found["value"] - np.asarray(expected[0]).item()), 1e-3)
    assert found["lower"] < 0 < found["upper"]
    assert (found["drawn"], found["rows"]) == ("layers", DEPTH * HEADS)
    assert answer("across heads", "share of the mass's variance between layers")["value"] < 0.6
    # By hand, from the table that is kept.
    agree(study.heads["sink_mass"].mean(), float(draw.mean()), scale=1e9 * 1e-4)


def test_runs_are_told_apart_and_the_last_token_counts_where_it_is_the_sink(tmp_path):
    study, answer = studied(tmp_path, first=planted(), last=planted(sink="last"))
    assert list(dict.fromkeys(study.heads["run"].tolist())) == ["first", "last"]
    measure = "share of texts whose strongest key is the sink"
    at_most(abs(answer("kinds", measure, run="first")["value"] - 2 / 3), 1e-3)
    at_most(abs(answer("kinds", measure, run="last")["value"] - 1 / 3), 1e-3)


def test_layers_with_a_long_token_are_told_apart(tmp_path):
    """In the three layers where token 0 is long the mass is high and follows the price; elsewhere nothing follows."""
    run = planted(
        length=lambda layer: 50.0 if layer > 2 else 1.0,
        mass=lambda layer, head, text: 0.1 * layer + 0.3 if layer > 2 else 0.1 - 0.01 * layer,
    )
    _, answer = studied(tmp_path, run=run)
    at_most(abs(answer("long tokens", "mean mass, long layers")["value"] - 0.7), 1e-3)
    at_most(abs(answer("long tokens", "mean mass, other layers")["value"] - 0.09), 1e-3)
    at_most(abs(answer("long tokens", "median price, long layers")["value"] - 0.9**0.5 * 2**-4), 1e-3)
    for layers, expected in (("long", -1.0), ("other", 1.0)):
        for drawn in ("texts", "layers"):
            agree(answer("long tokens", f"mass, price within {layers} layers", drawn=drawn)["value"], expected)


def test_a_run_named_after_another_is_compared_with_it(tmp_path):
    changed = planted(
        price=lambda layer, text: 3 * 2.0**-layer,
        mass=lambda layer, head, text: 0.1 * layer + (0.32 if layer == 4 else 0.02),
        length=lambda layer: 5.0 + 5 * (layer % 2),
    )
    _, answer = studied(tmp_path, **{"run": planted(), "run-bos": changed})
    for measure, expected in (
        ("change of the mass", 0.05),
        ("largest change of a layer's mass", 0.3),
        ("price over price", 3.0),
        ("length over length", 5.0),
        ("mass, mass", float(np.asarray(spearmanr(range(6), [0, 1, 2, 3, 5, 4])[0]).item())),
    ):
        at_most(abs(answer("compared with run", measure, run="run-bos")["value"] - expected), 1e-3 * expected)


def test_the_answers_are_those_of_the_tables_that_are_kept(known, tmp_path_factory):
    study, _ = known
    place = tmp_path_factory.mktemp("again")
    for table in ("heads", "layers", "pooled"):
        columns = getattr(study, table)
        with open(place / f"probe-{table}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    again = answers(place, draws=1)
    assert [row["measure"] for row in again] == study.answers["measure"].tolist()
    for row, value in zip(again, study.answers["value"].tolist(), strict=True):
        assert math.isnan(row["value"]) == math.isnan(value)
        assert math.isnan(value) or abs(row["value"] - value) <= 1e-3 * abs(value)


def test_command_summarises_what_the_probe_wrote(tmp_path, capsys):
    pytest.importorskip("transformers", reason="the probe needs transformers: pip install sinkproof[probe]")
    for name in "ab":
        (tmp_path / f"{name}.smi").write_text("CCO.CC(=O)O>>CCOC(C)=O" + "C" * (name == "b"), encoding="utf-8")
    texts = [str(tmp_path / f"{name}.smi") for name in "ab"]
    assert main(["probe", "rxnmapper", "--text", *texts, "--out", str(tmp_path / "albert")]) == 0
    assert main(["summarise", str(tmp_path / "albert"), "--out", str(tmp_path / "out"), "--draws", "10"]) == 0
    printed = capsys.readouterr().out
    assert "across layers" in printed
    study = read_study(tmp_path / "out")
    assert (len(study.heads["run"]), len(study.layers["run"]), len(study.pooled["run"])) == (12 * 8, 12 * 2, 12)
    whole = json.loads((tmp_path / "albert" / "probe.json").read_text(encoding="utf-8"))
    own = float(np.mean([row["sink_mass"] for row in whole["heads"] if (row["layer"], row["head"]) == (3, 5)]))
    at_most(abs(study.heads["sink_mass"][3 * 8 + 5] - own), 1e-3 * own)


@pytest.mark.parametrize(
    ("folders", "message"), [(["nowhere"], "nowhere"), (["run", "x/run"], r"different names, got \['run', 'run'\]")]
)
def test_command_names_bad_folders_in_one_line(tmp_path, capsys, folders, message):
    with pytest.raises(SystemExit) as caught:
        main(["summarise", *(str(tmp_path / name) for name in folders), "--out", str(tmp_path / "out")])
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert re.search(message, printed)


def one_line(capsys, *arguments):
    """What a refused command says."""
    with pytest.raises(SystemExit) as caught:
        main(list(map(str, arguments)))
    assert caught.value.code == 2
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "Errno" not in printed
    return printed


def cut_column(text):
    return "\n".join(line.rpartition(",")[0] for line in text.splitlines())


BROKEN = {
    "missing": ("heads.csv", None, "no such file or directory; expected a file of `python -m attention probe --out`"),
    "empty": ("layers.csv", lambda _: "", "layers.csv has no column 'text'; expected a table of"),
    "header only": ("layers.csv", lambda text: text.splitlines()[0], "layers.csv has no row; expected a table of"),
    "column": ("heads.csv", cut_column, "heads.csv has no column 'sink_kind'; expected a table of"),
    "word": ("heads.csv", lambda text: text.replace("0.75", "three"), "column 'asked' must hold numbers, got 'three'"),
    "cell": ("pooled.csv", lambda text: text.rstrip().rpartition(",")[0], "pooled.csv must have 8 cells in every row"),
    "row": ("layers.csv", lambda text: text.rstrip().rpartition("\n")[0], "each layer and text: expected 24, got 23"),
    "bytes": ("heads.csv", lambda _: b"\xff\xfe", "heads.csv is not text in UTF-8; expected"),
    "json": (
        "probe.json",
        lambda _: "{",
        'probe.json must be what `python -m attention probe --out` wrote, with its "s',
    ),
    "sink": ("probe.json", lambda text: text.replace("first", "middle"), 'with its "sink", first or last'),
}


@pytest.mark.parametrize(("file", "change", "message"), BROKEN.values(), ids=BROKEN)
def test_command_names_a_broken_table_in_one_line(tmp_path, capsys, file, change, message):
    planted().write(tmp_path / "run")
    path = tmp_path / "run" / file
    if change is None:
        path.unlink()
    else:
        changed = change(path.read_text(encoding="utf-8"))
        path.write_bytes(changed if isinstance(changed, bytes) else changed.encode())
    printed = one_line(capsys, "summarise", tmp_path / "run", "--out", tmp_path / "out")
    assert str(path) in printed
    assert message.lower() in printed.lower()


def test_a_summary_that_is_none_is_named_in_one_line(tmp_path):
    with pytest.raises(OSError, match=r"probe-heads.csv: No such file.*; expected a file of `.* summarise`"):
        read_study(tmp_path)
    (tmp_path / "probe-heads.csv").write_text("run,layer\nm,0\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"probe-heads.csv has no column 'head'; expected a table of `.* summarise`"):
        read_study(tmp_path)


@pytest.mark.parametrize("command", ["probe", "train", "summarise"])
def test_a_file_is_no_folder_to_write_to(tmp_path, capsys, monkeypatch, command):
    planted().write(tmp_path / "run")
    (tmp_path / "file").write_text("kept", encoding="utf-8")
    given = {"probe": ["rxnmapper"], "train": [], "summarise": [tmp_path / "run"]}[command]
    # Before anything is worked out for nothing.
    monkeypatch.setattr("attention.__main__.load", pytest.fail)
    monkeypatch.setattr("attention.__main__.train", pytest.fail)
    for path, reason in (("file", "it is a file"), ("file/below", "Not a directory")):
        printed = one_line(capsys, command, *given, "--out", tmp_path / path)
        assert f"--out {tmp_path / path} must be a folder that is there or can be made: {reason}" in printed
    assert (tmp_path / "file").read_text(encoding="utf-8") == "kept"


def test_a_run_may_be_named_by_a_number(tmp_path):
    study, _ = studied(tmp_path, **{"12": planted()})
    assert set(study.heads["run"].tolist()) == {"12"}


@pytest.mark.parametrize("texts", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("of_layer", [1, 3])
def test_few_layers_and_texts_are_not_taken_for_certain(tmp_path, capsys, texts, depth, of_layer):
    planted(texts=texts, depth=depth, of_layer=of_layer).write(tmp_path / "run")
    assert main(["summarise", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--draws", "20"]) == 0
    printed = capsys.readouterr().out
    assert "nan" not in printed
    assert f"fewer than {FEWEST} texts or layers" in printed.splitlines()[-1]
    assert "nan" not in (tmp_path / "out" / "probe-answers.csv").read_text(encoding="utf-8")
    found = read_study(tmp_path / "out").answers
    assert "across layers" not in found["question"].tolist()
    assert np.isnan(found["lower"][found["drawn"] == "layers"]).all()
    assert np.isnan(found["lower"][found["drawn"] == "texts"]).all() == (texts < FEWEST)
    if depth * of_layer < 3:
        # Two numbers would correlate with two others by 1 or -1.
        assert np.isnan(found["value"][np.char.startswith(found["measure"], "mass, ")]).all()


def test_a_single_text_is_summarised_without_intervals_by_texts(tmp_path):
    pytest.importorskip("transformers", reason="the probe needs transformers: pip install sinkproof[probe]")
    text = tmp_path / "one.smi"
    text.write_text("CCO.CC(=O)O>>CCOC(C)=O", encoding="utf-8")
    assert main(["probe", "rxnmapper", "--text", str(text), "--out", str(tmp_path / "albert")]) == 0
    assert main(["summarise", str(tmp_path / "albert"), "--out", str(tmp_path / "out"), "--draws", "10"]) == 0
    answers = read_study(tmp_path / "out").answers
    by_texts = answers["drawn"] == "texts"
    assert by_texts.any()
    assert np.isnan(np.asarray(answers["lower"], dtype=float)[by_texts]).all()
    assert "across texts" not in answers["question"].tolist()
