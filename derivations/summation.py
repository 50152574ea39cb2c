"""A normal form for expressions with sums of symbolic length.

``Sum(a[i, l]*x[l, p], (l, 0, T - 1))`` and the same sum over ``m`` are one object; so are a product of two sums
and the double sum it expands to. SymPy does not decide such identities, and a hopeful ``simplify`` is no proof.
Here an expression becomes a mapping

    structure -> coefficient

where a *structure* is a product of factors under sums, with its summation indices renamed canonically, and a
*coefficient* is an ordinary expression free of summation indices. Two expressions are equal when, structure
by structure, the coefficients are: that last question is one of rational functions (``derivations.decide``).

What the normal form knows: sums are linear, sums may be exchanged, ``sum_l delta_lj f(l) = f(j)``,
``sum_l 1 = T``, ``exp(y + z) = exp(y) exp(z)``, ``exp(y) exp(-y) = 1``; and whatever *rules* a step adds,
``RowStochastic`` above all.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Protocol

from sympy import (
    Add,
    Dummy,
    Expr,
    I,
    IndexedBase,
    Integer,
    KroneckerDelta,
    Mul,
    Pow,
    Rational,
    S,
    Sum,
    Symbol,
    exp,
    sympify,
)
from sympy.core.function import expand_mul
from sympy.tensor.indexed import Indexed

from derivations.notation import INDEX_SIZE


@dataclass(frozen=True)
class Term:
    """``coefficient * sum over the bound indices of the product of factor**power``.

    ``bound`` maps each summation index to the number of values it takes, counted from 0. Powers are numbers: what has
    an index in its exponent is a factor of its own.
    """

    factors: tuple[tuple[Expr, Expr], ...]
    bound: tuple[tuple[Symbol, Expr], ...] = ()

    def free_of(self, index: Symbol) -> bool:
        return not any(factor.has(index) for factor, _ in self.factors)


class Rule(Protocol):
    """A fact about the symbols of one step, such as "every row of a sums to one"."""

    def rewrite(self, term: Term) -> Term | None:
        """The term simplified once, or None where the rule does not apply."""
        ...

    def values(self, sizes: Mapping[Symbol, int], draw) -> dict[Expr, Expr]:
        """Exact values that obey the rule, for an instance of the given sizes; ``draw()`` gives a rational."""
        ...


@dataclass(frozen=True)
class RowStochastic:
    """Every row of the weights sums to one: ``sum_l a[i, l] = 1``, the sum running over all T keys."""

    weights: IndexedBase
    rows: Symbol
    keys: Symbol

    def rewrite(self, term: Term) -> Term | None:
        for index, size in term.bound:
            if size != self.keys:
                continue
            touching = [(factor, power) for factor, power in term.factors if factor.has(index)]
            if len(touching) != 1:
                continue
            ((factor, power),) = touching
            is_row = isinstance(factor, Indexed) and factor.base == self.weights and factor.rank == 2
            if is_row and power == 1 and factor.indices[-1] == index and not factor.indices[0].has(index):
                rest = tuple(pair for pair in term.factors if pair != (factor, power))
                return Term(rest, tuple(pair for pair in term.bound if pair[0] != index))
        return None

    def values(self, sizes, draw):
        weights = {}
        for row in range(sizes[self.rows]):
            positive = [abs(draw()) + 1 for _ in range(sizes[self.keys])]
            for key, value in enumerate(positive):
                weights[self.weights[row, key]] = value / sum(positive)
        return weights


@dataclass(frozen=True)
class Distribution:
    """Weights that sum to one: ``sum_l w[l] = 1``, the sum running over all of them."""

    weights: IndexedBase
    size: Symbol

    def rewrite(self, term: Term) -> Term | None:
        for index, size in term.bound:
            touching = [pair for pair in term.factors if pair[0].has(index)]
            if size == self.size and touching == [(self.weights[index], S.One)]:
                rest = tuple(pair for pair in term.factors if pair != touching[0])
                return Term(rest, tuple(pair for pair in term.bound if pair[0] != index))
        return None

    def values(self, sizes, draw):
        positive = [abs(draw()) + 1 for _ in range(sizes[self.size])]
        return {self.weights[place]: value / sum(positive) for place, value in enumerate(positive)}


@dataclass(frozen=True)
class InnerProduct:
    """A known inner product: ``sum_p y[.., p] z[.., p] = value(.., ..)``, p running over all ``size`` coordinates.

    ``value`` takes the leading indices of y, then those of z, and gives one term (no sum). ``instance`` gives exact
    vectors that obey the rule, for the sizes at which wrong identities are refuted.
    """

    first: IndexedBase
    second: IndexedBase
    size: Symbol
    value: Callable[..., Expr]
    instance: Callable[[], Mapping[Expr, Expr]]

    def rewrite(self, term: Term) -> Term | None:
        for index, size in term.bound:
            touching = [pair for pair in term.factors if pair[0].has(index)]
            if size != self.size or not all(isinstance(f, Indexed) and e in (1, 2) for f, e in touching):
                continue
            vectors = [factor for factor, power in touching for _ in range(int(power))]
            if len(vectors) != 2:
                continue
            if any(v.indices[-1] != index or any(k.has(index) for k in v.indices[:-1]) for v in vectors):
                continue
            for one, other in (vectors, vectors[::-1]):
                if (one.base, other.base) == (self.first, self.second):
                    rest = tuple(pair for pair in term.factors if pair not in touching)
                    bound = tuple(pair for pair in term.bound if pair[0] != index)
                    return Term((*rest, (self.value(*one.indices[:-1], *other.indices[:-1]), S.One)), bound)
        return None

    def values(self, sizes, draw):
        return dict(self.instance())


def normal_form(expr: Expr, rules: tuple[Rule, ...] = ()) -> dict[tuple, Expr]:
    """Structure -> coefficient, as the module's text says. Zero structures may remain with coefficient 0."""
    form: dict[tuple, Expr] = {}
    for term in _terms(sympify(expr)):
        for simplified in _simplify(term, rules):
            structure, coefficient = _canonical(simplified, rules)
            form[structure] = form.get(structure, S.Zero) + coefficient
    return form


def as_expression(form: Mapping[tuple, Expr]) -> Expr:
    """The normal form written as one expression again, with canonical names for its summation indices."""
    total = S.Zero
    for (factors, sizes), coefficient in form.items():
        summand = Mul(*(factor**power for factor, power in factors))
        height = _nesting(summand)
        limits = [(_canonical_index(height, place), 0, size - 1) for place, size in enumerate(sizes)]
        total += coefficient * (Sum(summand, *limits) if limits else summand)
    return total


def _canonical_index(height: int, place: int) -> Symbol:
    """Names differ by how many sums lie inside, so an outer index never captures an inner one."""
    return Symbol(f"_{height}_{place}", integer=True, nonnegative=True)


def _nesting(expr: Expr) -> int:
    """How many sums lie inside one another."""
    below = max((_nesting(argument) for argument in expr.args), default=0)
    return below + isinstance(expr, Sum)


def _bind_apart(expr: Expr) -> Expr:
    """Give every sum inside an atom indices of its own: renaming an outer index then never touches them."""
    if not expr.has(Sum):
        return expr
    rebuilt = expr.func(*(_bind_apart(argument) for argument in expr.args))
    if not isinstance(rebuilt, Sum):
        return rebuilt
    fresh = {index: Dummy(index.name, integer=True, nonnegative=True) for index, *_ in rebuilt.limits}
    limits = [(fresh[index], lower, upper.xreplace(fresh)) for index, lower, upper in rebuilt.limits]
    return Sum(rebuilt.function.xreplace(fresh), *limits)


def _terms(expr: Expr) -> Iterator[Term]:
    """Expand into terms; every sum met gets fresh indices, so that products never capture."""
    if isinstance(expr, Add):
        for argument in expr.args:
            yield from _terms(argument)
    elif isinstance(expr, Mul):
        for choice in product(*(list(_terms(argument)) for argument in expr.args)):
            yield Term(
                tuple(pair for term in choice for pair in term.factors),
                tuple(pair for term in choice for pair in term.bound),
            )
    elif isinstance(expr, Pow) and expr.exp.is_Integer and expr.exp > 0 and expr.base.has(Add, Sum, Mul, exp):
        # A fresh expansion per factor keeps the summation indices of (sum ...)**2 apart.
        for choice in product(*(list(_terms(expr.base)) for _ in range(int(expr.exp)))):
            yield Term(
                tuple(pair for term in choice for pair in term.factors),
                tuple(pair for term in choice for pair in term.bound),
            )
    elif isinstance(expr, Sum):
        yield from _sum_terms(expr)
    elif isinstance(expr, exp):
        yield Term(tuple(_exponential_factors(expr.args[0])))
    elif isinstance(expr, Pow) and isinstance(expr.base, exp) and not expr.base.has(I):
        yield Term(tuple(_exponential_factors(expr.base.args[0] * expr.exp)))
    elif isinstance(expr, Pow) and expr.exp.is_Number and not isinstance(expr.base, KroneckerDelta):
        yield Term(((_bind_apart(expr.base), expr.exp),))
    else:
        yield Term(((_bind_apart(expr), S.One),))


def _sum_terms(expr: Sum) -> Iterator[Term]:
    renamed, bound = expr.function, []
    for index, lower, upper in expr.limits:
        if lower != 0:
            raise ValueError(f"sums run from 0, this one from {lower}: {expr}")
        if upper.has(Dummy, *(other for other, *_ in expr.limits)):
            raise ValueError(f"a sum's length may not depend on another sum's index: {expr}")
        fresh = Dummy(index.name, integer=True, nonnegative=True)
        renamed = renamed.xreplace({index: fresh})
        bound.append((fresh, upper + 1))
    for term in _terms(renamed):
        yield Term(term.factors, (*term.bound, *bound))


def _exponential_factors(exponent: Expr) -> Iterator[tuple[Expr, Expr]]:
    """exp(2 y + z) as the factors (exp(y), 2), (exp(z), 1), so that like exponentials meet."""
    for part in Add.make_args(expand_mul(_normal_atom(exponent, ()))):
        rational, rest = part.as_coeff_Mul()
        yield exp(rest), rational


def _simplify(term: Term, rules: tuple[Rule, ...]) -> Iterator[Term]:
    """Contract deltas, apply the rules, drop idle indices, until nothing changes."""
    while True:
        if any(factor == 0 and power.is_positive for factor, power in term.factors):
            return
        changed = _contract(term) or _cancel(term) or _drop_idle(term)
        if changed is None:
            for rule in rules:
                changed = rule.rewrite(term)
                if changed is not None:
                    break
        if changed is None:
            yield term
            return
        term = changed


def _contract(term: Term) -> Term | None:
    sizes = dict(term.bound)
    for place, (factor, _) in enumerate(term.factors):
        if not isinstance(factor, KroneckerDelta):
            continue
        first, second = factor.args
        for index, other in ((first, second), (second, first)):
            # delta_lj picks l = j only where j lies inside the range of l.
            if index in sizes and (sizes.get(other) or INDEX_SIZE.get(other)) == sizes[index]:
                rest = term.factors[:place] + term.factors[place + 1 :]
                return Term(
                    tuple((f.xreplace({index: other}), e) for f, e in rest),
                    tuple(pair for pair in term.bound if pair[0] != index),
                )
        if first not in sizes and second not in sizes:
            # delta_ij f(j) = delta_ij f(i): one name for both.
            rest = term.factors[:place] + term.factors[place + 1 :]
            if any(f.has(second) for f, _ in rest):
                return Term(((factor, S.One), *((f.xreplace({second: first}), e) for f, e in rest)), term.bound)
    return None


def _cancel(term: Term) -> Term | None:
    """exp(y) exp(-y) = 1."""
    powers: dict[Expr, Expr] = {}
    for factor, power in term.factors:
        if isinstance(factor, exp):
            powers[factor] = powers.get(factor, S.Zero) + power
    gone = {factor for factor, power in powers.items() if power == 0}
    return Term(tuple(pair for pair in term.factors if pair[0] not in gone), term.bound) if gone else None


def _drop_idle(term: Term) -> Term | None:
    for index, size in term.bound:
        if term.free_of(index):
            bound = tuple(pair for pair in term.bound if pair[0] != index)
            return Term((*term.factors, (size, S.One)), bound)
    return None


def _canonical(term: Term, rules: tuple[Rule, ...]) -> tuple[tuple, Expr]:
    """The term with its indices named canonically, split into structure and coefficient."""
    powers: dict[Expr, Expr] = {}
    for factor, power in term.factors:
        if isinstance(factor, KroneckerDelta):
            power = S.One  # delta**2 = delta
        powers[factor] = S.One if isinstance(factor, KroneckerDelta) else powers.get(factor, S.Zero) + power
    indices = [index for index, _ in term.bound]
    coefficient = Mul(
        *(_normal_atom(f, rules) ** e for f, e in powers.items() if not f.has(*indices))
        if indices
        else (_normal_atom(f, rules) ** e for f, e in powers.items())
    )
    inner = [(f, e) for f, e in powers.items() if indices and f.has(*indices)]
    if not inner:
        return ((), ()), coefficient
    best = min(_namings(inner, term.bound, rules), key=lambda candidate: candidate[0])
    return best[1], coefficient


def _namings(inner, bound, rules) -> Iterator[tuple[str, tuple]]:
    """Every way to name the indices that could come first; ties are broken by trying all."""
    height = max(_nesting(factor) for factor, _ in inner)
    profile = {index: (str(size), _profile(index, inner)) for index, size in bound}
    groups: dict[tuple, list] = {}
    for index, size in bound:
        groups.setdefault(profile[index], []).append((index, size))
    ordered = [groups[key] for key in sorted(groups)]
    for choice in product(*(permutations(group) for group in ordered)):
        flat = [pair for group in choice for pair in group]
        names = {index: _canonical_index(height, place) for place, (index, _) in enumerate(flat)}
        factors = sorted(((_normal_atom(f.xreplace(names), rules), e) for f, e in inner), key=lambda pair: str(pair))
        structure = (tuple(factors), tuple(size for _, size in flat))
        yield str(structure), structure


def _profile(index: Symbol, inner) -> str:
    """How an index occurs, blind to the names of all summation indices."""
    mark = Symbol("_here")
    blind = Symbol("_other")
    seen = []
    for factor, power in inner:
        if factor.has(index):
            others = {s: blind for s in factor.free_symbols if isinstance(s, Dummy) and s != index}
            seen.append(str((factor.xreplace({index: mark, **others}), power)))
    return "|".join(sorted(seen))


@lru_cache(maxsize=4096)
def _normal_atom(factor: Expr, rules: tuple[Rule, ...]) -> Expr:
    """Atoms that hide sums (the base of 1/Z, the exponent of exp) get their own normal form inside."""
    if isinstance(factor, exp):
        return exp(as_expression(normal_form(factor.args[0], rules)))
    if not factor.has(Sum):
        return factor
    if isinstance(factor, Add | Mul | Sum) or (isinstance(factor, Pow) and factor.exp.is_Number):
        return as_expression(normal_form(factor, rules))
    return factor.func(*(_normal_atom(argument, rules) for argument in factor.args))


def explicit(expr: Expr, sizes: Mapping[Symbol, int]) -> Expr:
    """Write every sum out for the given sizes: no Sum is left."""
    sized = sympify(expr).xreplace({symbol: Integer(size) for symbol, size in sizes.items()})
    return sized.replace(lambda node: isinstance(node, Sum), _write_out, simultaneous=False)


def _write_out(node: Sum) -> Expr:
    values = [
        [(index, Integer(value)) for value in range(int(lower), int(upper) + 1)] for index, lower, upper in node.limits
    ]
    return Add(*(node.function.xreplace(dict(choice)) for choice in product(*values)))


def rationals(seed: int) -> Iterator[Rational]:
    """A fixed stream of non-zero rationals below 1 in size, so that exponentials of their products stay moderate."""
    state = 2 * seed + 1
    while True:
        state = (state * 48271) % 2147483647
        yield Rational(state % 6 + 1, (state // 6) % 5 + 7) * (1 if (state // 30) % 2 else -1)
