"""How a test becomes evidence for a claim of the ledger.

    @claim("A2.key", "property")          # or "near-miss"
    @given(layers())
    def test_key_bound(layer):
        at_most(left, right)

The checks below count what they decide. A test marked with a claim that decides nothing fails: it was vacuous.
A claim that the ledger does not know stops the run.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis.errors import NoSuchExample
from numpy.typing import NDArray
from torch import Tensor

from derivations.ledger import claim as claim_of

Value = Tensor | NDArray[np.float64] | float

KINDS = ("property", "near-miss")

RELATIVE_TOLERANCE = {
    # closed form against autograd; slack of a bound; closed form against central differences or a convex program
    torch.float64: {"exact": 1e-10, "bound": 1e-11, "differences": 1e-5, "program": 1e-5},
    torch.float32: {"exact": 2e-4, "bound": 1e-5, "differences": 5e-2},
}
"""The one table of tolerances, relative to the largest entry of either side."""


@dataclass
class Tally:
    """What the tests of one claim decided."""

    decided: int = 0
    tightest: float = 0.0


@dataclass
class Session:
    """The tallies of the run, and the claims of the test that is running."""

    tallies: dict[tuple[str, str], Tally] = field(default_factory=lambda: defaultdict(Tally))
    current: tuple[tuple[str, str], ...] = ()
    decided_here: int = 0

    def decided(self, tightness: float = 0.0) -> None:
        self.decided_here += 1
        for key in self.current:
            tally = self.tallies[key]
            tally.decided += 1
            tally.tightest = max(tally.tightest, tightness)


SESSION = Session()


def claim(id: str, kind: str):
    """Mark a test as evidence of that kind for that claim of the ledger."""
    claim_of(id)
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {KINDS}, got {kind!r}")
    return pytest.mark.claim(id, kind)


def agree(actual: Value, expected: Value, *, tolerance: str = "exact", scale: float | Tensor = 0.0) -> None:
    """Both sides finite, of one shape, and equal up to the table's tolerance.

    The tolerance is relative to the largest entry of either side, or to ``scale`` where that is larger (a sum of large
    terms that cancel is only as exact as its terms).
    """
    actual, expected = torch.as_tensor(actual).detach(), torch.as_tensor(expected).detach()
    assert actual.shape == expected.shape, f"shapes {tuple(actual.shape)} and {tuple(expected.shape)}"
    assert torch.isfinite(actual).all(), "the left side is not finite"
    assert torch.isfinite(expected).all(), "the right side is not finite"
    dtype = torch.promote_types(actual.dtype, expected.dtype)
    allowed = RELATIVE_TOLERANCE[dtype][tolerance] * max(
        float(actual.abs().max()), float(expected.abs().max()), float(scale)
    )
    error = float((actual.to(dtype) - expected.to(dtype)).abs().max())
    assert error <= allowed, f"differ by {error:.3e}, allowed {allowed:.3e}"
    SESSION.decided()


def at_most(left: Value, right: Value, *, scale: float | Tensor = 0.0) -> None:
    """``left <= right`` everywhere, both sides finite; records how tight the bound was."""
    left, right = torch.as_tensor(left).detach(), torch.as_tensor(right).detach()
    assert torch.isfinite(left).all(), "the left side is not finite"
    assert torch.isfinite(right).all(), "the right side is not finite"
    slack = RELATIVE_TOLERANCE[torch.promote_types(left.dtype, right.dtype)]["bound"]
    room = slack * torch.maximum(right.abs(), torch.as_tensor(scale, dtype=right.dtype))
    worst = float((left - right - room).max())
    assert bool((left <= right + room).all()), f"exceeds the bound by {worst:.3e}"
    # Against the room too: rounding on both sides of a bound that is zero is not a ratio.
    positive = right + room > 0
    ratio = float((left / (right + room))[positive].max()) if bool(positive.any()) else 0.0
    SESSION.decided(ratio if math.isfinite(ratio) else 0.0)


def same_answer(one: bool, other: bool) -> None:
    """Two yes-or-no answers agree."""
    assert one == other, f"one side says {one}, the other {other}"
    SESSION.decided()


def refuted(check: Callable[[Any], None], examples, *, tries: int = 300) -> None:
    """The near-miss must fail: among the strategy's examples there is one at which the check says no."""

    def says_no(example) -> bool:
        try:
            check(example)
        except AssertionError:
            return True
        return False

    try:
        find(
            examples,
            says_no,
            settings=settings(
                max_examples=tries,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            ),
        )
    except NoSuchExample:
        raise AssertionError("the near-miss passed every example: the check cannot tell it from the truth") from None
    SESSION.decided()
