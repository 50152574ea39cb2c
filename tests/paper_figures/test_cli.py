"""The command: what it prints, and exit code 2 with one clear line for bad input."""

import json
import subprocess
import sys

import pytest

from paper_figures import FIGURES
from paper_figures.__main__ import main
from paper_figures.settings import DataError


def refused(capsys, *arguments) -> str:
    """The one line on stderr of a call that must end with exit code 2 before anything is drawn."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_help_has_examples_and_names_every_figure(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "python -m paper_figures --quick" in text
    for name in FIGURES:
        assert name in text


def test_module_runs_and_help_loads_no_torch():
    code = "import runpy, sys; sys.argv = ['x', '--help']\ntry: runpy.run_module('paper_figures')\n"
    code = code.replace("run_module('paper_figures')", "run_module('paper_figures', run_name='__main__')")
    code += "except SystemExit as stop: assert stop.code == 0\nassert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "examples:" in done.stdout


def test_unknown_figure(capsys, tmp_path):
    line = refused(capsys, "sensitivity_map", "--out", tmp_path / "out")
    assert "unknown figure 'sensitivity_map'" in line
    assert "sensitivity_maps" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("arguments", [["--seed", "two"], ["--seed", "-1"], ["--fast"]])
def test_bad_option(capsys, arguments):
    assert arguments[0] in refused(capsys, *arguments)


def test_missing_data_file(capsys, tmp_path):
    line = refused(capsys, "--out", tmp_path / "out", "--data", tmp_path / "speeds.csv")
    assert "speeds.csv" in line
    assert not (tmp_path / "out").exists()


def test_out_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert f"cannot write to {out}" in refused(capsys, "--out", out)
    assert (tmp_path / "file").read_text() == ""


def test_foreign_manifest_is_kept(capsys, tmp_path):
    for text in ("not JSON", "[]", '{"name": "app"}'):
        (tmp_path / "manifest.json").write_text(text)
        assert "is not a manifest of figures" in refused(capsys, "--out", tmp_path)
        assert (tmp_path / "manifest.json").read_text() == text


@pytest.mark.parametrize("text", ["", "a,b\n1,x\n", "a,b\n" + "60,61\n" * 20])
def test_data_that_is_no_table_of_speeds_or_too_short(capsys, tmp_path, text):
    data, out = tmp_path / "speeds.csv", tmp_path / "out"
    data.write_text(text)
    assert "--data: " in refused(capsys, "sensitivity_maps", "--quick", "--out", out, "--data", data)
    assert not list(tmp_path.glob("out/*"))


def test_data_and_probe_are_read_before_the_first_figure(capsys, tmp_path, tiny):
    words, out = tmp_path / "words.csv", tmp_path / "out"
    words.write_text("a,b\n1,x\n")
    tiny.READS_DATA = False
    assert "--data: " in refused(capsys, "tiny", "sensitivity_maps", "--out", out, "--data", words)
    line = refused(capsys, "tiny", "head_kinds", "--out", out, "--probe", tmp_path)
    assert "--probe: the probe's results cannot be read: " in line
    assert "probe-heads.csv" in line
    assert not out.exists()


def test_data_and_probe_that_no_figure_reads_are_refused(capsys, tmp_path, tiny):
    tiny.READS_DATA = False
    for option, given, reader in (("--data", __file__, "sensitivity_maps"), ("--probe", tmp_path, "head_kinds")):
        line = refused(capsys, "tiny", "--out", tmp_path / "out", option, given)
        assert f"{option}: no figure asked for reads it; " in line
        assert reader in line


@pytest.mark.parametrize("option", ["--out", "--data", "--probe"])
def test_an_empty_path_is_not_taken_for_this_folder(capsys, option, tiny):
    assert f"{option}: must name a file or folder, got ''" in refused(capsys, "tiny", option, "")


def test_ctrl_c_is_one_line_and_exit_code_130(capsys, tmp_path, tiny, monkeypatch):
    def compute(settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(tiny, "compute", compute)
    # Uncaught, it would stop the tests themselves.
    with pytest.raises((SystemExit, KeyboardInterrupt)) as stopped:
        main(["tiny", "--out", str(tmp_path)])
    assert getattr(stopped.value, "code", None) == 130
    assert capsys.readouterr().err == "python -m paper_figures: stopped\n"


def test_figure_that_refuses_the_data(capsys, tmp_path, tiny, monkeypatch):
    def compute(settings):
        raise DataError("too short")

    monkeypatch.setattr(tiny, "compute", compute)
    assert refused(capsys, "tiny", "--out", tmp_path).endswith("tiny: too short")


def test_prints_the_finding_and_plain_lines(capsys, tmp_path, tiny):
    main(["tiny", "tiny", "--seed", "3", "--out", str(tmp_path)])
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == ["[1/1] tiny", "    y ends at 3"]
    assert "\r" not in out + err
    assert "\x1b" not in out + err


def test_drawing_one_figure_keeps_the_others_entries(tmp_path, tiny):
    main(["tiny", "--out", str(tmp_path)])
    path = tmp_path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["figures"]["other"] = {"seed": 7}
    path.write_text(json.dumps(manifest))
    main(["tiny", "--seed", "5", "--out", str(tmp_path)])
    figures = json.loads(path.read_text())["figures"]
    assert figures["other"] == {"seed": 7}
    assert figures["tiny"]["seed"] == 5
