"""Every step of every note stands, every near-miss is refuted, and nothing in a derivation is inexact."""

import ast
import inspect
import io

import pytest
from sympy import MatrixBase, Rational, sqrt

from derivations.decide import below, contains_float
from derivations.show import cells, claims_of, render_note, show_note, step_lines, step_page
from derivations.steps import Step, StepFunction, check, load, notes, step, steps_of

STEPS = {f"{note}:{where.name}": where for note in notes() for where in steps_of(load(note))}


# A derivation that runs away is a defect: SymPy's simplifiers can take minutes.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", STEPS)
def test_step_stands(name):
    outcome = check(STEPS[name])
    assert outcome.verdict is True, f"{name} was decided {outcome.verdict}"
    for near_miss, verdict in outcome.near_misses.items():
        assert verdict is False, f"near-miss {near_miss!r} of {name} was decided {verdict}, not refuted"
    for side in (outcome.step.before, outcome.step.after, *outcome.step.near_misses.values()):
        entries = list(side) if isinstance(side, MatrixBase) else [side]
        assert not any(contains_float(entry) for entry in entries), f"{name} contains an inexact number"


@pytest.mark.parametrize("name", notes())
def test_note_reads_from_top_to_bottom(name):
    """A docstring, text before code, and no step outside a cell."""
    module = load(name)
    assert module.__doc__
    assert module.__doc__.strip()
    walked = cells(name)
    assert walked[0].kind == "markdown"
    assert [w.name for cell in walked for w in cell.steps] == [w.name for w in steps_of(module)]


@pytest.mark.parametrize("name", notes())
def test_note_imports_sympy_only(name):
    standard = {
        "collections",
        "csv",
        "dataclasses",
        "fractions",
        "functools",
        "itertools",
        "math",
        "pathlib",
        "statistics",
    }
    allowed = {"sympy", "mpmath", "derivations", *standard}
    tree = ast.parse(inspect.getsource(load(name)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots = {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots = {(node.module or "").split(".")[0]}
        else:
            continue
        assert roots <= allowed, f"{name} imports {roots - allowed}"


@pytest.mark.parametrize("name", notes())
def test_note_renders_to_mathml(name):
    page = render_note(name)
    assert "<math" in page
    assert "UNDECIDED" not in page
    assert "$" not in page.split("</style>")[1].replace("<pre>", "\0").split("\0")[0]


def test_a_step_needs_a_known_claim_and_a_statement():
    with pytest.raises(ValueError, match=r"unknown claim 'A9\.none'"):
        step("A9.none")

    def silent():
        return Step(1, 1, because="")

    with pytest.raises(ValueError, match="needs a docstring"):
        step("A1.sum")(silent)


def test_a_wrong_step_does_not_stand():
    wrong = StepFunction("A1.sum", "wrong", "1 = 2", 1, lambda: Step(1, 2, because="it is not"))
    assert not check(wrong).stands
    passing_near_miss = StepFunction(
        "A1.sum", "loose", "1 = 1", 1, lambda: Step(1, 1, because="", near_misses={"the same": 1})
    )
    assert not check(passing_near_miss).stands


def test_a_claim_is_shown_with_what_it_states():
    out = io.StringIO()
    assert show_note("b8_real_models", out) == 0
    shown = " ".join(out.getvalue().split())
    for entry in claims_of("b8_real_models"):
        assert f"{entry.id}: {entry.verdict}." in shown
        assert entry.statement in shown
        assert entry.says in shown


@pytest.mark.parametrize(
    ("left", "right", "terminal", "page"),
    [
        (Rational(1), Rational(5, 2), "1 < 5/2", "<mn>2</mn></mfrac></math>"),
        (Rational(3437, 1000), Rational(5), "3437/1000 (~ 3.43700) < 5", "≈</mo><mn>3.437"),
        (Rational(1, 10**120), Rational(1), "~ 1.00000e-120 < 1", "<mn>120</mn>"),
        (sqrt(2), Rational(2), "sqrt(2) (~ 1.41421) < 2", "<mn>1.41421</mn>"),
    ],
)
def test_numbers_that_one_does_not_read_at_a_glance_are_shown_with_their_decimals(left, right, terminal, page):
    outcome = check(
        StepFunction("A1.sum", "small", "", 1, lambda: Step(left, right, because="", decide=below, relation="<"))
    )
    assert outcome.stands
    assert f"      {terminal}" in step_lines(outcome)
    assert page in step_page(outcome)


def test_unknown_note_is_named():
    with pytest.raises(ValueError, match="unknown note 'a9_nothing'"):
        load("a9_nothing")
