"""The rooms and their doors: paper_figures -> attention -> numerics; derivations stands alone; only tests open all."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("derivations", "numerics", "attention", "paper_figures")
MAY_IMPORT = {
    "derivations": {"derivations"},
    "numerics": {"numerics"},
    "attention": {"attention", "numerics"},
    "paper_figures": {"paper_figures", "attention", "numerics"},
}
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Full names of the modules that a file imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_keeps_to_its_doors(path):
    room = path.relative_to(ROOT).parts[0]
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots & {*ROOMS, "tests"} <= MAY_IMPORT[room]
    if room == "derivations":
        assert not roots & {"torch", "numpy", "scipy", "matplotlib"}


def test_no_circles_between_modules():
    graph = {".".join(path.relative_to(ROOT).with_suffix("").parts): imported(path) for path in MODULES}
    graph = {name.removesuffix(".__init__"): edges for name, edges in graph.items()}
    done, open_ = set(), []

    def visit(name: str) -> None:
        assert name not in open_, f"circle: {' -> '.join([*open_, name])}"
        if name in done:
            return
        open_.append(name)
        for target in sorted(graph[name] & graph.keys()):
            # A package's __init__ gathers what its modules define; modules name each other in full.
            if target not in ROOMS or name.split(".")[0] != target:
                visit(target)
        open_.pop()
        done.add(name)

    for name in graph:
        visit(name)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_numeric_code_is_generated_from_formulas(path):
    """Generated torch code can detach from autograd without a word, so numerics are written and then compared."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names |= {getattr(node, field, None) for field in ("id", "attr", "name")}
    assert not names & {"lambdify", "autowrap", "ufuncify", "codegen"}


def test_no_room_for_odds_and_ends():
    for path in MODULES:
        assert path.stem not in {"utils", "common", "helpers", "misc"}


def test_the_doors_test_sees_a_forbidden_import(tmp_path):
    module = tmp_path / "note.py"
    module.write_text("def f():\n    import torch.nn\n")
    assert {name.split(".")[0] for name in imported(module)} == {"torch"}
