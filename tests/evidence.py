"""How a test becomes evidence for a claim of the ledger.

    @claim("A2.key", "property")          # or "near-miss"
    @given(layers())
    def test_key_bound(layer):
        at_most(left, right)

The checks below count what they decide. A property that decides nothing fails, and so does a near-miss that refutes
nothing: it was vacuous. So does a marked test that is skipped or expected to fail. A claim that the ledger does not
know stops the run.
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
    decided_here: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    searching: bool = False
    """True while a near-miss is looked for: what passes on the way is no evidence."""

    def start(self, claims: tuple[tuple[str, str], ...]) -> None:
        self.current, self.decided_here, self.searching = claims, dict.fromkeys(KINDS, 0), False

    def decided(self, kind: str = "property", tightness: float = 0.0) -> None:
        if self.searching:
            return
        self.decided_here[kind] += 1
        for key in self.current:
            if key[1] == kind:
                tally = self.tallies[key]
                tally.decided += 1
                tally.tightest = max(tally.tightest, tightness)


SESSION = Session()


class DisagreementError(AssertionError):
    """Two sides that can be compared, and do not agree: what alone refutes a near-miss."""


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
    assert actual.numel(), "nothing to compare"
    assert torch.isfinite(torch.as_tensor(scale)).all(), "the scale is not finite"
    assert actual.shape == expected.shape, f"shapes {tuple(actual.shape)} and {tuple(expected.shape)}"
    assert torch.isfinite(actual).all(), "the left side is not finite"
    assert torch.isfinite(expected).all(), "the right side is not finite"
    dtype = torch.promote_types(actual.dtype, expected.dtype)
    allowed = RELATIVE_TOLERANCE[dtype][tolerance] * max(
        float(actual.abs().max()), float(expected.abs().max()), float(scale)
    )
    error = float((actual.to(dtype) - expected.to(dtype)).abs().max())
    if not error <= allowed:
        raise DisagreementError(f"differ by {error:.3e}, allowed {allowed:.3e}")
    SESSION.decided()


def at_most(left: Value, right: Value, *, scale: float | Tensor = 0.0) -> None:
    """``left <= right`` everywhere, both sides finite; records how tight the bound was."""
    left, right = torch.as_tensor(left).detach(), torch.as_tensor(right).detach()
    assert left.numel(), "nothing to compare"
    assert right.numel(), "nothing to compare"
    assert torch.isfinite(torch.as_tensor(scale)).all(), "the scale is not finite"
    assert torch.isfinite(left).all(), "the left side is not finite"
    assert torch.isfinite(right).all(), "the right side is not finite"
    slack = RELATIVE_TOLERANCE[torch.promote_types(left.dtype, right.dtype)]["bound"]
    room = slack * torch.maximum(right.abs(), torch.as_tensor(scale, dtype=right.dtype))
    if not bool((left <= right + room).all()):
        raise DisagreementError(f"exceeds the bound by {float((left - right - room).max()):.3e}")
    # Against the room too: rounding on both sides of a bound that is zero is not a ratio.
    positive = right + room > 0
    ratio = float((left / (right + room))[positive].max()) if bool(positive.any()) else 0.0
    SESSION.decided(tightness=ratio if math.isfinite(ratio) else 0.0)


def same_answer(one: bool, other: bool) -> None:
    """Two yes-or-no answers agree."""
    if one != other:
        raise DisagreementError(f"one side says {one}, the other {other}")
    SESSION.decided()


def refuted(check: Callable[[Any], None], examples, *, tries: int = 300) -> None:
    """The near-miss must fail: among the strategy's examples there is one at which the check says no.

    A NaN, two shapes or any other failed assertion is not a no: it is an error of the test.
    """

    def says_no(example) -> bool:
        try:
            check(example)
        except DisagreementError:
            return True
        return False

    SESSION.searching = True
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
    finally:
        SESSION.searching = False
    SESSION.decided("near-miss")
