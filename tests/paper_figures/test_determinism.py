"""The same bytes on every run, whatever the folder, hash seed, threads, time zone and Matplotlib style."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paper_figures import FIGURES
from paper_figures.render import write_whole

ROOT = Path(__file__).parents[2]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def second_run(tmp_path_factory, data_arguments) -> Path:
    """The run of ``quick_run`` again, in another process that differs in all that must not matter."""
    out, elsewhere = tmp_path_factory.mktemp("second") / "deep" / "er", tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "matplotlibrc").write_text("lines.linewidth: 9\nfont.size: 20\n")
    surroundings = {
        "PYTHONHASHSEED": "1",
        "OMP_NUM_THREADS": "2",
        "PYTHONPATH": str(ROOT),
        "TZ": "Asia/Tokyo",
    }
    done = subprocess.run(
        [sys.executable, "-m", "paper_figures", *FIGURES, "--quick", "--out", str(out), *data_arguments],
        cwd=elsewhere,
        env=os.environ | surroundings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return out


@pytest.mark.parametrize("name", FIGURES)
def test_two_runs_give_the_same_bytes(name, quick_run, second_run):
    first, second = contents(quick_run), contents(second_run)
    files = [file for file in first if file.startswith((f"{name}.", f"{name}-"))]
    assert {Path(file).suffix for file in files} == {".png", ".pdf", ".csv"}
    for file in files:
        assert first[file] == second[file], file


def test_manifest_is_the_same_and_nothing_else_is_left(quick_run, second_run):
    assert contents(quick_run) == contents(second_run)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_whole(tmp_path / "kept", b"old")

    def full_disk(self, content):
        with self.open("wb") as file:
            file.write(content[:1])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space left"):
        write_whole(tmp_path / "kept", b"new")
    assert contents(tmp_path) == {"kept": b"old"}
