"""One quick run of every figure, shared by the tests of its files; and a figure that costs nothing."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from matplotlib.figure import Figure

import paper_figures
from paper_figures import style
from paper_figures.__main__ import main

SPEEDS = Path(__file__).parents[2].parent / "shared" / "data" / "los_speed.csv"


def fits_the_page(figure: Figure) -> None:
    """Of one or two columns' width, and nothing cut off."""
    assert figure.get_figwidth() in (style.COLUMN, style.DOUBLE_COLUMN)
    used, hair = figure.get_tightbbox(), 0.01
    assert min(used.x0, used.y0) >= -hair, "cut off on the left or at the bottom"
    assert used.x1 <= figure.get_figwidth() + hair, "cut off on the right"
    assert used.y1 <= figure.get_figheight() + hair, "cut off at the top"


@pytest.fixture(scope="session")
def data_arguments() -> list[str]:
    """``--data`` with the real speeds where they are; else the figures leave the real tokens out."""
    return ["--data", str(SPEEDS)] if SPEEDS.exists() else []


@pytest.fixture(scope="session")
def quick_run(tmp_path_factory, data_arguments) -> Path:
    """The folder of ``python -m paper_figures --quick``."""
    out = tmp_path_factory.mktemp("quick")
    main(["--quick", "--out", str(out), *data_arguments])
    return out


@pytest.fixture
def tiny(monkeypatch) -> ModuleType:
    """A registered figure of two points, ``tiny``, so that the command can be tried in no time."""
    module: Any = ModuleType("paper_figures.tiny")
    module.READS_DATA = True
    module.compute = lambda settings: {"points": {"x": [0, 1], "y": [0.1, float(settings.seed)]}}
    module.finding = lambda tables: f"y ends at {tables['points']['y'][-1]:g}"

    def draw(tables):
        figure = Figure()
        figure.subplots().plot(tables["points"]["x"], tables["points"]["y"])
        return figure

    module.draw = draw
    monkeypatch.setitem(sys.modules, "paper_figures.tiny", module)
    monkeypatch.setitem(paper_figures.FIGURES, "tiny", "two points")
    return module
