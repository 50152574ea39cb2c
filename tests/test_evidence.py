"""The checks that decide claims must themselves be able to say no."""

import math
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

from tests import conftest
from tests.evidence import KINDS, RELATIVE_TOLERANCE, agree, at_most, claim, refuted

NOT_FINITE = (math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("value", NOT_FINITE)
def test_a_bound_check_refuses_sides_that_are_not_finite(value):
    for left, right in ((value, 1.0), (0.0, value), (value, value)):
        with pytest.raises(AssertionError, match="is not finite"):
            at_most(left, right)
    hidden = torch.ones(2, 3).index_put((torch.tensor(1), torch.tensor(2)), torch.tensor(value))
    with pytest.raises(AssertionError, match="the left side is not finite"):
        at_most(hidden, torch.full((2, 3), 2.0))


@pytest.mark.parametrize("value", NOT_FINITE)
def test_an_equality_check_refuses_sides_that_are_not_finite(value):
    for left, right in ((value, 1.0), (1.0, value), (value, value)):
        with pytest.raises(AssertionError, match="is not finite"):
            agree(torch.tensor(left), torch.tensor(right))


@pytest.mark.parametrize("dtype", RELATIVE_TOLERANCE)
def test_the_table_is_where_checks_turn(dtype):
    one = torch.ones(3, dtype=dtype)
    exact, bound = RELATIVE_TOLERANCE[dtype]["exact"], RELATIVE_TOLERANCE[dtype]["bound"]
    agree(one, one * (1 + exact / 2))
    at_most(one * (1 + bound / 2), one)
    with pytest.raises(AssertionError, match="differ by"):
        agree(one, one * (1 + 2 * exact))
    with pytest.raises(AssertionError, match="exceeds the bound by"):
        at_most(one * (1 + 2 * bound), one)


def test_every_entry_must_hold():
    with pytest.raises(AssertionError, match="exceeds the bound"):
        at_most(torch.tensor([0.0, 2.0, 0.0]), torch.ones(3))
    with pytest.raises(AssertionError, match="differ by"):
        agree(torch.tensor([1.0, 2.0]), torch.ones(2))


@pytest.mark.parametrize("check", [agree, at_most])
def test_nothing_is_no_evidence(check):
    with pytest.raises(AssertionError, match="nothing to compare"):
        check(torch.ones(0), torch.ones(0))


@pytest.mark.parametrize("check", [agree, at_most])
@pytest.mark.parametrize("scale", NOT_FINITE)
def test_the_scale_must_be_finite(check, scale):
    with pytest.raises(AssertionError, match="the scale is not finite"):
        check(2.0, 1.0, scale=scale)
    with pytest.raises(AssertionError, match="the scale is not finite"):
        check(2.0, 1.0, scale=torch.tensor(scale))


def test_one_shape_only():
    with pytest.raises(AssertionError, match="shapes"):
        agree(torch.ones(2, 1), torch.ones(2, 2))


def test_a_near_miss_that_holds_everywhere_is_no_refutation():
    with pytest.raises(AssertionError, match="the near-miss passed every example"):
        refuted(lambda x: at_most(x, x + 1.0), st.floats(0, 1))
    refuted(lambda x: at_most(x, 0.5), st.floats(0, 1))


def test_only_a_failed_check_refutes():
    def broken(x):
        raise ValueError("no such layer")

    with pytest.raises(ValueError, match="no such layer"):
        refuted(broken, st.floats(0, 1))


@pytest.mark.parametrize(
    "wrong",
    [lambda x: agree(x * math.nan, x), lambda x: at_most(math.inf, x), lambda x: agree(torch.ones(2) * x, x)],
)
def test_what_cannot_be_compared_refutes_nothing(wrong):
    with pytest.raises(AssertionError, match=r"is not finite|shapes"):
        refuted(wrong, st.floats(0, 1))


def test_unknown_claims_and_kinds_are_refused():
    with pytest.raises(ValueError, match=r"unknown claim 'A9\.nothing'"):
        claim("A9.nothing", "property")
    with pytest.raises(ValueError, match="kind must be one of"):
        claim("A1.jacobian", "hope")


@pytest.mark.parametrize("arguments", [("A9.nothing", KINDS[0]), ("A1.jacobian", "hope")])
def test_a_mark_that_bypasses_claim_stops_the_run(arguments):
    item = SimpleNamespace(
        nodeid="tests/test_x.py::test_y", iter_markers=lambda name: [SimpleNamespace(args=arguments)]
    )
    with pytest.raises(pytest.UsageError, match=r"tests/test_x\.py::test_y: unknown"):
        conftest.pytest_collection_modifyitems([item])


INNER_RUN = """
from hypothesis import assume, given, strategies as st
from tests.evidence import agree, claim, refuted
import pytest, torch

@claim("A1.jacobian", "property")
def test_decides_nothing():
    assert True

@claim("A1.jacobian", "property")
@given(st.floats(0, 1))
def test_whose_assumption_rarely_holds(x):
    if x > 2:
        agree(torch.ones(()), torch.ones(()))

@claim("A1.jacobian", "near-miss")
def test_refutes_nothing():
    agree(torch.ones(()), torch.ones(()))

@claim("A1.jacobian", "property")
def test_refutes_only():
    refuted(lambda x: agree(x, 1.0), st.floats(0, 1))

@claim("A1.jacobian", "property")
def test_skips():
    pytest.skip("no time")

@pytest.mark.skipif(True, reason="no time")
@claim("A1.jacobian", "property")
def test_is_skipped():
    agree(torch.ones(()), torch.ones(()))

@pytest.mark.xfail
@claim("A1.jacobian", "property")
def test_is_expected_to_fail():
    agree(torch.ones(()), torch.zeros(()))

@pytest.mark.xfail
@claim("A1.jacobian", "property")
def test_passes_unexpectedly():
    agree(torch.ones(()), torch.ones(()))

@claim("A1.jacobian", "property")
@pytest.mark.parametrize("x", [])
def test_has_no_parameters(x):
    agree(x, x)

@claim("A1.jacobian", "property")
def test_decides():
    agree(torch.ones(()), torch.ones(()))

@claim("A1.jacobian", "near-miss")
def test_refutes():
    refuted(lambda x: agree(x, 1.0), st.floats(0, 1))

@pytest.mark.skip(reason="no time")
def test_without_a_claim_may_be_skipped():
    assert True

def test_without_a_claim_may_decide_nothing():
    assert True
"""


def test_a_vacuous_or_skipped_test_fails(tmp_path):
    inner = tmp_path / "test_inner.py"
    inner.write_text(INNER_RUN)
    root = Path(__file__).parents[1]
    options = ["-q", "-c", str(root / "pyproject.toml"), "--rootdir", str(root), "-p", "tests.conftest"]
    options += ["-p", "no:cacheprovider", "-o", "xfail_strict=false"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(inner)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "7 failed, 3 passed, 1 skipped, 2 errors" in done.stdout
    for name in ("decides_nothing", "whose_assumption_rarely_holds", "refutes_nothing", "refutes_only"):
        assert f"test_{name} - Failed: vacuous" in done.stdout
    for name in ("skips", "is_skipped", "is_expected_to_fail", "passes_unexpectedly", "has_no_parameters"):
        assert re.search(rf"test_{name}\S*: evidence may not be skipped or expected to fail", done.stdout), name


def test_hypothesis_has_no_deadline():
    # The first call of an operation is slow, and a deadline would make its test flaky.
    assert settings.default is not None
    assert settings.default.deadline is None
    assert settings().deadline is None
