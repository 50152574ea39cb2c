"""Random pairs of expressions: what a decision says against both sides evaluated entry by entry.

The second side comes from the first by a rewriting step that may be right or wrong: a sum renamed, contracted, taken
apart, its weights set to one. The evaluation below shares no code with the decision procedures.
"""

from collections import Counter
from random import Random
from typing import Any

import mpmath
import pytest
from sympy import (
    Expr,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Mul,
    Rational,
    Sum,
    Symbol,
    Tuple,
    exp,
    expand,
    log,
    preorder_traversal,
    zoo,
)
from sympy.tensor.indexed import Indexed

from derivations.decide import equal, equal_sums
from derivations.notation import INDEX_SIZE, T, a, d, d_k, d_v, i, j, l, m, n, p, r, s, t, v, x
from derivations.summation import Distribution, RowStochastic

INDICES = [i, j, l, m, s, t, p, r]
Z = Symbol("Z", positive=True)
DECISIONS = {
    "equal": (equal, None),
    "equal_sums": (equal_sums(), None),
    "row-stochastic": (equal_sums(RowStochastic(a, T, T)), "a"),
    "distribution": (equal_sums(Distribution(v, T)), "v"),
}


def atom(random: Random) -> Expr:
    one, other = random.choice(INDICES), random.choice(INDICES)
    makers = [
        lambda: v[one],
        lambda: x[one, other],
        lambda: a[one, other],
        lambda: KroneckerDelta(one, other),
        lambda: exp(v[one]),
        lambda: random.choice([Z, one, T, Integer(2), Integer(-1)]),
        lambda: v[one] ** random.choice([-1, 2, -2, Rational(1, 2)]),
        lambda: Z**one,
    ]
    return random.choice(makers)()


def expression(random: Random, depth: int) -> Expr:
    if depth == 0:
        return atom(random)
    one, other = expression(random, depth - 1), expression(random, depth - 1)
    index = random.choice(INDICES)
    size = INDEX_SIZE[index] if random.random() < 0.9 else random.choice([T, n, d])
    kinds = [Sum(one, (index, 0, size - 1)), Sum(one, (index, 0, size - 1)), one * other, one + other]
    return random.choice([*kinds, one ** random.choice([2, -1, -2]), exp(one), log(one)])


def rewritten(random: Random, expr: Expr) -> Any:
    """One node replaced by what it may or may not equal."""
    parts = [part for part in preorder_traversal(expr) if part.args and not isinstance(part, IndexedBase | Tuple)]
    node = random.choice(parts or [expr])
    sums = sorted(expr.atoms(Sum), key=str)
    new = random.choice([expand(node), 2 * node, node])
    if sums and random.random() < 0.8:
        node = random.choice(sums)
        ((index, lower, upper), *outer), summand, other = node.limits, node.function, random.choice(INDICES)
        free, bound = summand.as_independent(index, as_Add=False)
        weights = [f for f in Mul.make_args(summand) if isinstance(f, Indexed) and f.indices[-1] == index]
        picks = [f for f in Mul.make_args(summand) if isinstance(f, KroneckerDelta) and index in f.args]
        candidates = [
            Sum(summand.xreplace({index: other}), (other, lower, upper)),
            Sum(summand * KroneckerDelta(index, other), (index, lower, upper)),
            free * Sum(bound, (index, lower, upper)),
            (upper + 1) * summand,
            *(summand / f for f in weights),
            *((summand / f).xreplace({index: k}) for f in picks for k in f.args if k != index),
        ]
        new = random.choice(candidates)
        new = Sum(new, *outer) if outer else new
    return expr.xreplace({node: new})


class UndefinedError(Exception):
    """Division by zero, or the logarithm of zero."""


class Instance:
    """Sizes, and a value for every entry that obeys the rule about the weights named ``stochastic``."""

    def __init__(self, seed: int, stochastic: str | None):
        self.seed, self.stochastic = seed, stochastic
        random = Random(seed)
        self.sizes = {
            T: random.choice([1, 2, 3]),
            n: random.choice([1, 2, 4]),
            d: random.choice([1, 2]),
            d_k: 2,
            d_v: 2,
        }
        self.places = {index: random.randrange(self.sizes[INDEX_SIZE[index]]) for index in INDICES}

    def entry(self, name: str, *place: int):
        def draw(*key):
            return mpmath.mpf(Random(f"{self.seed} {name} {key}").uniform(0.1, 2))

        if name == self.stochastic and place[-1] < self.sizes[T]:
            return draw(*place) / sum(draw(*place[:-1], key) for key in range(self.sizes[T]))
        return draw(*place)

    def value(self, expr: Expr, places: dict):
        inner = [self.value(argument, places) for argument in expr.args] if not isinstance(expr, Sum | Indexed) else []
        if isinstance(expr, Sum):
            (*inside, (index, _, upper)), total = expr.limits, mpmath.mpf(0)
            summand = Sum(expr.function, *inside) if inside else expr.function
            for place in range(int(mpmath.re(self.value(upper, places))) + 1):
                total += self.value(summand, places | {index: place})
            return total
        if isinstance(expr, Indexed):
            place = [int(mpmath.re(self.value(index, places))) for index in expr.indices]
            return self.entry(str(expr.base.label), *place)
        if isinstance(expr, KroneckerDelta):
            return mpmath.mpf(inner[0] == inner[1])
        if expr.is_Symbol:
            return mpmath.mpf({**self.sizes, **places}[expr]) if expr != Z else self.entry("Z")
        if expr.is_Rational:
            return mpmath.mpf(int(expr.p)) / int(expr.q)
        if expr.is_Add:
            return mpmath.fsum(inner)
        if expr.is_Mul:
            return mpmath.fprod(inner)
        if isinstance(expr, exp):
            if abs(inner[0]) > 1e3:
                raise UndefinedError
            return mpmath.exp(inner[0])
        if expr.is_Pow:
            if abs(inner[0]) < 1e-20 and mpmath.re(inner[1]) < 0:
                raise UndefinedError
            return mpmath.power(*inner)
        if isinstance(expr, log):
            if abs(inner[0]) < 1e-20:
                raise UndefinedError
            return mpmath.log(inner[0])
        return mpmath.mpmathify(expr.evalf(40))

    def agree(self, left: Expr, right: Expr) -> bool | None:
        """Do the two sides agree here? None where one is not defined."""
        try:
            one, other = self.value(left, self.places), self.value(right, self.places)
        except UndefinedError:
            return None
        return abs(one - other) <= mpmath.mpf(10) ** -18 * (1 + abs(one) + abs(other))


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_is_what_the_entries_say(name):
    decide, stochastic = DECISIONS[name]
    said = Counter()
    for seed in range(150):
        random = Random(f"{name} {seed}")
        left = expression(random, random.choice([1, 2]))
        right = rewritten(random, left)
        if random.random() < 0.3:  # under one sum both sides share its index
            index = random.choice(INDICES)
            left, right = Sum(left - right, (index, 0, INDEX_SIZE[index] - 1)), Integer(0)
        if left == right or (left - right).has(zoo):
            continue
        try:
            verdict = decide(left, right)
        except ValueError:  # refused: a sum over a triangle, an index that has no size
            continue
        said[verdict] += 1
        if verdict is None:
            continue
        with mpmath.workdps(30):
            found = [Instance(1000 * seed + draw, stochastic).agree(left, right) for draw in range(40)]
        if verdict:
            assert False not in found, f"{left} = {right} was called proven"
        else:
            assert False in found, f"{left} = {right} was called refuted"
    # ``equal`` proves little about sums, which are symbols to it.
    assert said[False] >= 10, f"too few refutations to mean anything: {said}"
    assert said[True] >= (0 if decide is equal else 10), f"too few proofs to mean anything: {said}"
