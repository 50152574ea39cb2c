r"""What a note is made of: steps that can be checked, and near-misses that must not pass.

A note is a module in percent format. Its step functions carry ``@step(CLAIM)`` and return a ``Step``:

    @step("A1.jacobian")
    def softmax_derivative() -> Step:
        '''$a_l' = a_l(\delta_{lj} - a_j)$'''
        return Step(before, after, because="quotient rule", near_misses={"sign dropped": wrong})

Nothing is computed at import. ``check`` decides a step and each of its near-misses by the same procedure.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType

from sympy import Expr

from derivations.decide import Decision, equal
from derivations.ledger import claim as claim_of


@dataclass(frozen=True)
class Step:
    """One checkable step: ``decide(before, after)`` must be True.

    Attributes:
        before: the expression as it arises (a derivative, a limit, a sum), or the left side of an inequality.
        after: the closed form it is said to equal, or the right side.
        because: the reason, in a few words.
        near_misses: name -> a wrong ``after``; the same decision must refute each one.
        decide: the decision procedure (``derivations.decide``); equality of rational functions by default.
        relation: how the sides are printed, "=" or "<=" or "<".
        counterexample: True where the step shows that a published claim fails at this instance.
    """

    before: Expr
    after: Expr
    because: str
    near_misses: Mapping[str, Expr] = field(default_factory=dict)
    decide: Decision = equal
    relation: str = "="
    counterexample: bool = False


@dataclass(frozen=True)
class StepFunction:
    """A step as it stands in its note: not computed yet."""

    claim: str
    name: str
    statement: str
    line: int
    build: Callable[[], Step]


@dataclass(frozen=True)
class Outcome:
    """What checking one step found."""

    where: StepFunction
    step: Step
    verdict: bool | None
    near_misses: Mapping[str, bool | None]

    @property
    def stands(self) -> bool:
        """The step is proven and every near-miss is refuted."""
        return self.verdict is True and all(verdict is False for verdict in self.near_misses.values())


def step(claim: str) -> Callable[[Callable[[], Step]], Callable[[], Step]]:
    """Mark a function of a note as a step of a claim of the ledger.

    Raises:
        ValueError: the ledger has no claim of that id.
    """
    claim_of(claim)

    def mark(build: Callable[[], Step]) -> Callable[[], Step]:
        if not build.__doc__:
            raise ValueError(f"step {build.__name__} needs a docstring: the statement it proves")
        build.claim = claim  # type: ignore[attr-defined]
        return build

    return mark


def notes() -> list[str]:
    """The names of all notes, in reading order."""
    import derivations

    names = (info.name for info in pkgutil.iter_modules(derivations.__path__))
    return sorted(name for name in names if name[0] in "ab" and name[1].isdigit())


def load(note: str) -> ModuleType:
    """The module of a note.

    Raises:
        ValueError: there is no note of that name.
    """
    if note not in notes():
        raise ValueError(f"unknown note {note!r}; the notes are {', '.join(notes())}")
    return importlib.import_module(f"derivations.{note}")


def steps_of(module: ModuleType) -> list[StepFunction]:
    """The steps of a note in the order in which they stand."""
    found = [
        StepFunction(vars(value)["claim"], name, inspect.getdoc(value) or "", value.__code__.co_firstlineno, value)
        for name, value in vars(module).items()
        if inspect.isfunction(value) and hasattr(value, "claim") and value.__module__ == module.__name__
    ]
    return sorted(found, key=lambda where: where.line)


def check(where: StepFunction) -> Outcome:
    """Compute a step and decide it and its near-misses."""
    built = where.build()
    return Outcome(
        where,
        built,
        built.decide(built.before, built.after),
        {name: built.decide(built.before, wrong) for name, wrong in built.near_misses.items()},
    )
