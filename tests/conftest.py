"""One profile for Hypothesis, one dtype, and the bookkeeping of evidence."""

import pytest
import torch
from hypothesis import HealthCheck, settings

from derivations.ledger import claim as claim_of
from tests.evidence import KINDS, SESSION

# The first call of an operation is slow (lazy initialisation), so deadlines would make tests flaky.
settings.register_profile(
    "sinkproof",
    deadline=None,
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("sinkproof")
torch.set_num_threads(1)

EMPTY = {"property": "decided", "near-miss": "refuted"}


@pytest.fixture(autouse=True)
def double_precision():
    """Theorems are checked in float64; a test about float32 says so itself."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def pytest_configure(config):
    config.addinivalue_line("markers", "claim(id, kind): evidence of that kind for that claim of the ledger")


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("claim"):
            id, kind = mark.args
            try:
                claim_of(id)
            except ValueError as error:
                raise pytest.UsageError(f"{item.nodeid}: {error}") from None
            if kind not in KINDS:
                raise pytest.UsageError(f"{item.nodeid}: unknown kind of evidence {kind!r}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    SESSION.start(tuple(mark.args for mark in item.iter_markers("claim")))
    try:
        result = yield
        for id, kind in SESSION.current:
            if SESSION.decided_here[kind] == 0:
                pytest.fail(f"vacuous: marked as {kind} for {id} but {EMPTY[kind]} nothing")
        return result
    finally:
        SESSION.start(())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if item.get_closest_marker("claim") and (report.skipped or hasattr(report, "wasxfail")):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: evidence may not be skipped or expected to fail"
    return report


def pytest_terminal_summary(terminalreporter):
    if not SESSION.tallies:
        return
    terminalreporter.section("evidence")
    for (id, kind), tally in sorted(SESSION.tallies.items()):
        tightness = f", tightest left/right {tally.tightest:.4f}" if tally.tightest else ""
        terminalreporter.line(f"{id:<20} {kind:<10} {tally.decided:>6} decided{tightness}")
