"""The ledger is enforced: no claim without evidence, no evidence without a claim."""

import importlib
import pkgutil
from collections import defaultdict
from functools import cache

import pytest

import tests
from derivations.ledger import LEDGER, P1, P2, claim
from derivations.steps import load, notes, steps_of


@cache
def marked_tests() -> dict[tuple[str, str], list[str]]:
    """(claim, kind) -> the tests that carry that mark, over every test module, whatever part of the suite runs."""
    found = defaultdict(list)
    for info in pkgutil.walk_packages(tests.__path__, "tests."):
        if not info.name.rpartition(".")[2].startswith("test_"):
            continue
        try:
            module = importlib.import_module(info.name)
        except pytest.skip.Exception as skipped:
            raise AssertionError(f"{info.name} skips itself, and with it its evidence") from skipped
        for name, value in vars(module).items():
            for mark in getattr(value, "pytestmark", []):
                if name.startswith("test_") and mark.name == "claim":
                    found[mark.args].append(f"{info.name}:{name}")
    return found


@cache
def built_steps() -> dict[str, list]:
    """claim -> its steps, computed."""
    found = defaultdict(list)
    for note in notes():
        for where in steps_of(load(note)):
            found[where.claim].append(where.build())
    return found


@pytest.mark.parametrize("id", [entry.id for entry in LEDGER])
def test_claim_has_all_its_evidence(id):
    steps = built_steps()[id]
    assert steps, f"{id} has no symbolic or certified step in any note"
    assert any(step.near_misses for step in steps), f"no step of {id} has a near-miss"
    assert marked_tests()[(id, "property")], f"{id} has no property test"
    assert marked_tests()[(id, "near-miss")], f"{id} has no test that refutes a near-miss"


@pytest.mark.parametrize("id", [entry.id for entry in LEDGER])
def test_a_claim_fails_exactly_where_a_counterexample_says_so(id):
    has_counterexample = any(step.counterexample for step in built_steps()[id])
    assert has_counterexample == (claim(id).verdict == "fails")


def test_assumptions_are_stated_exactly_where_the_verdict_needs_them():
    for entry in LEDGER:
        assert entry.statement
        assert entry.evidence
        if entry.verdict != "fails":
            assert bool(entry.assumptions) == (entry.verdict == "holds under"), entry.id


def test_what_a_paper_says_is_written_down_exactly_for_its_claims():
    for entry in LEDGER:
        assert bool(entry.says) == (entry.source in (P1, P2)), entry.id


def test_ids_are_unique():
    ids = [entry.id for entry in LEDGER]
    assert len(ids) == len(set(ids))


def test_every_note_speaks_for_its_own_claims():
    for note in notes():
        part = note.split("_")[0].upper()
        for where in steps_of(load(note)):
            assert claim(where.claim).part == part, f"{note}:{where.name} speaks for {where.claim}"


def test_unknown_claim_is_named():
    with pytest.raises(ValueError, match=r"unknown claim 'A1\.nothing'"):
        claim("A1.nothing")
