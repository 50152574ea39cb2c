"""``python -m derivations``: the table, one note, the pages, and what bad input says."""

import html
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from derivations.__main__ import LEDGER_END, LEDGER_START, main, markdown_table, notes_of, with_ledger
from derivations.ledger import LEDGER
from derivations.show import claims_of

ROOT = Path(__file__).parents[2]


def test_show_prints_every_step_checked(capsys):
    assert main(["show", "A1.split"]) == 0
    printed = capsys.readouterr().out
    assert "[proven] A1.split, step covariance_split" in printed
    assert "near-miss [refuted]: rest unscaled" in printed
    assert "steps stand" in printed


@pytest.mark.parametrize("name", ["A99", "A1.nothing", "utils"])
def test_unknown_name_is_one_line_and_exit_code_2(name, capsys):
    assert main(["show", name]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"unknown claim or note {name!r}" in error


@pytest.mark.parametrize("arguments", [["prove"], ["show"], ["render", "a", "b"]])
def test_a_mistyped_command_is_one_line_and_exit_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_ledger_is_decided_and_every_claim_is_listed():
    run = subprocess.run([sys.executable, "-m", "derivations"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "UNDECIDED" not in run.stdout
    for entry in LEDGER:
        assert f"{entry.id} " in run.stdout


def test_importing_the_notes_package_loads_neither_torch_nor_sympy():
    code = "import sys, derivations; sys.exit(bool({'torch', 'sympy', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_render_writes_pages_that_need_nothing_else(tmp_path):
    from derivations.show import render_all

    assert list(render_all(tmp_path / "pages", ["a1_jacobian"])) == ["a1_jacobian"]
    page = (tmp_path / "pages" / "a1_jacobian.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "<script" not in page
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["a1_jacobian.html", "index.html"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("render {0}/file", "render {0}/file: must be a folder that is there or can be made: it is a file"),
        ("render {0}/file/below", "render {0}/file/below: must be a folder that is there or can be made: Not a dir"),
        ("table --write {0}/none.md", "--write {0}/none.md: must be a page that can be read and written: No such file"),
        ("table --write {0}", "--write {0}: must be a page that can be read and written: Is a directory"),
        ("table --write {0}/latin", "--write {0}/latin: must be a page that can be read and written: it is not in UTF"),
    ],
)
def test_a_bad_path_is_named_in_one_line_and_exit_code_2(arguments, expected, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "latin").write_bytes(b"\xe9")
    assert main(arguments.format(tmp_path).split(" ")) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith(f"python -m derivations: {expected.format(tmp_path)}")


@pytest.mark.parametrize("arguments", [["render", ""], ["table", "--write", ""]])
def test_an_empty_path_is_not_taken_for_this_folder(arguments, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert capsys.readouterr().err.endswith(": must name a file or folder, got ''\n")
    assert not list(tmp_path.iterdir())


def endless(note):
    """In the place of ``decide_note``."""
    os.write(1, b"begun\n")  # whole, whoever else writes
    time.sleep(600)


def test_ctrl_c_is_one_line_and_exit_code_130():
    code = "import sys, derivations.__main__ as command\nfrom tests.derivations.test_command import endless\n"
    code += "command.decide_note = endless\nsys.exit(command.main([]))"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "begun\n"
        # As a terminal does it: to the whole group.
        os.killpg(run.pid, signal.SIGINT)
        try:
            _, error = run.communicate(timeout=60)
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert error == "python -m derivations: stopped\n"
    assert run.returncode == 130


def test_readme_has_the_ledger_as_it_is_now():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    assert page == with_ledger(page), "stale; run: python -m derivations table --write README.md"


def test_table_is_written_between_its_marks(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{LEDGER_START}\nold\n{LEDGER_END}\nafter\n")
    assert main(["table", "--write", str(page)]) == 0
    assert page.read_text() == f"before\n{LEDGER_START}\n\n{markdown_table()}\n\n{LEDGER_END}\nafter\n"
    page.write_text("no marks")
    assert main(["table", "--write", str(page)]) == 2
    assert "needs the marks" in capsys.readouterr().err


def test_table_has_one_row_a_claim_under_its_verdict():
    sections = markdown_table().split("<summary>")[1:]
    assert [section.split("<")[0] for section in sections] == ["fails", "holds under", "holds"]
    for section in sections:
        verdict = section.split("<")[0]
        listed = re.findall(r"^\| ([AB]\d\S*) \|", section, flags=re.MULTILINE)
        assert listed == [entry.id for entry in LEDGER if entry.verdict == verdict]


def test_table_shows_every_statement_as_it_is_written():
    from markdown_it import MarkdownIt

    page = MarkdownIt("commonmark").enable("table").render(markdown_table())
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    for entry in LEDGER:
        assert entry.statement in text, entry.id


@pytest.mark.parametrize("id", [entry.id for entry in LEDGER])
def test_the_notes_of_a_claim_speak_for_it(id):
    found = notes_of(id)
    assert found
    for note in found:
        assert id in {entry.id for entry in claims_of(note)}


def test_all_notes_of_a_part_are_shown():
    assert notes_of("A7") == ["a7_table_audit", "a7_week"]
    assert notes_of("b8") == ["b8_pretrained", "b8_real_models"]
    assert notes_of("A7.week-size") == ["a7_week"]
    assert notes_of("a7_week") == ["a7_week"]
    with pytest.raises(ValueError, match=r"unknown claim or note 'A7\.nothing'; the claims are A1, .* the notes a1_"):
        notes_of("A7.nothing")
