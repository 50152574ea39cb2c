"""Decision procedures: each answers True, False, or None for "could not decide".

True is a proof and False is a refutation; a step of a note stands only on True, and a near-miss only on False.

==================== ============================================================== =======================
procedure            True because                                                   False because
==================== ============================================================== =======================
``equal``            the difference cancels as a rational function of symbols and   it is not zero at an
                     exponentials                                                   exact rational point
``equal_sums(...)``  the summation normal forms agree, for every size               it is not zero at an
                                                                                    exact small instance
``at_most``          interval arithmetic separates the two exact numbers            the same, the other way
``below``            the same, strictly
==================== ============================================================== =======================
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import islice, product

from mpmath import iv
from sympy import (
    Add,
    Dummy,
    Expr,
    Float,
    Integer,
    MatrixBase,
    Rational,
    S,
    Symbol,
    exp,
    fraction,
    lcm,
    preorder_traversal,
    sympify,
    together,
)
from sympy.core.function import AppliedUndef, expand_mul
from sympy.tensor.indexed import Indexed

from derivations.notation import INDEX_SIZE, T, d, d_k, d_v, n
from derivations.summation import Rule, explicit, normal_form, rationals

Decision = Callable[[Expr, Expr], bool | None]

INSTANCE = {T: 3, n: 3, d: 2, d_k: 2, d_v: 2}
"""Sizes at which a wrong identity of symbolic size is refuted."""

DIGITS = 40
"""Working precision of refutations, in decimal digits."""


def equal(left: Expr, right: Expr) -> bool | None:
    """Are the two sides the same rational function of their symbols and exponentials?

    Matrices are compared entry by entry. Roots and special functions count as symbols of their own, so an identity
    that needs their algebra is undecided here (None) rather than wrong.
    """
    left, right = sympify(left), sympify(right)
    if isinstance(left, MatrixBase) or isinstance(right, MatrixBase):
        if left.shape != right.shape:
            return False
        return _all(equal(one, other) for one, other in zip(left, right, strict=True))
    if left in (S.true, S.false) or right in (S.true, S.false):
        return left == right
    difference = left - right
    # One exact point refutes most wrong identities in no time; the proof is asked for only where it does not.
    if _nonzero_at(difference, 0):
        return False
    if is_zero_rational(difference):
        return True
    return False if any(_nonzero_at(difference, seed) for seed in (1, 2)) else None


def equal_sums(*rules: Rule, sizes: Mapping[Symbol, int] | None = None) -> Decision:
    """Equality of expressions with sums of symbolic length, under the given rules.

    Args:
        rules: facts about the symbols, such as ``RowStochastic(a, T, T)``.
        sizes: the instance at which a wrong identity is refuted; ``INSTANCE`` by default.
    """
    chosen = dict(INSTANCE if sizes is None else sizes)

    def decide(left: Expr, right: Expr) -> bool | None:
        difference = sympify(left) - sympify(right)
        if all(is_zero_rational(value) for value in normal_form(difference, rules).values()):
            return True
        return False if _nonzero_instance(difference, rules, chosen) else None

    return decide


def at_most(left: Expr, right: Expr) -> bool | None:
    """Is left <= right, for exact numbers? Equality that intervals cannot see is left to ``equal``."""
    if equal(left, right):
        return True
    return _sign_is_positive(sympify(right) - sympify(left))


def below(left: Expr, right: Expr) -> bool | None:
    """Is left < right, for exact numbers?"""
    if equal(left, right):
        return False
    return _sign_is_positive(sympify(right) - sympify(left))


def is_zero_rational(expr: Expr) -> bool:
    """Is the expression zero as a rational function of its symbols and exponentials?

    Whole exponentials are taken as symbols first, which is quick and often enough; then they are split into products
    of powers, so that exp(y + z) and exp(y) exp(z) meet.
    """
    expr = sympify(expr)
    if expr == 0:
        return True
    atoms = {node: Dummy() for node in preorder_traversal(expr) if isinstance(node, exp)}
    return _numerator_vanishes(expr.xreplace(atoms)) or (
        bool(atoms) and _numerator_vanishes(_exponentials_as_symbols(expr))
    )


def _numerator_vanishes(expr: Expr) -> bool:
    numerator, _ = fraction(together(expr))
    return numerator.expand() == 0


def contains_float(expr: Expr) -> bool:
    """Is any number in the expression inexact?"""
    return any(isinstance(node, Float) for node in preorder_traversal(sympify(expr)))


def _all(verdicts) -> bool | None:
    verdicts = list(verdicts)
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True


def _exponentials_as_symbols(expr: Expr) -> Expr:
    """Replace exp(r_1 m_1 + r_2 m_2 + ..) by a product of powers of one symbol per monomial m.

    The rational parts r get a common denominator per monomial, so only integer powers remain.
    """
    atoms = {node for node in preorder_traversal(expr) if isinstance(node, exp) or node == S.Exp1}
    if not atoms:
        return expr
    parts = {atom: [t.as_coeff_Mul() for t in Add.make_args(expand_mul(atom.as_base_exp()[1]))] for atom in atoms}
    denominators: dict[Expr, Expr] = {}
    for terms in parts.values():
        for rational, monomial in terms:
            denominators[monomial] = lcm(denominators.get(monomial, Integer(1)), Rational(rational).q)
    symbols = {monomial: Symbol(f"_E{place}") for place, monomial in enumerate(sorted(denominators, key=str))}
    replaced = {}
    for atom, terms in parts.items():
        value = S.One
        for rational, monomial in terms:
            value *= symbols[monomial] ** (rational * denominators[monomial])
        replaced[atom] = value
    return expr.xreplace(replaced)


def _values_for(expr: Expr, seed: int) -> dict[Expr, Expr]:
    stream = rationals(seed + 1)
    atoms = sorted(expr.atoms(Indexed, AppliedUndef), key=str)
    values = {atom: next(stream) for atom in atoms}
    bare = expr.xreplace(values)
    for symbol in sorted(bare.free_symbols, key=str):
        value = next(stream)
        if symbol.is_integer:
            value = Integer(value.p % 5 + 2)
        values[symbol] = abs(value) if symbol.is_nonnegative else value
    return values


def _nonzero_at(expr: Expr, seed: int) -> bool:
    value = expr.xreplace(_values_for(expr, seed))
    if value.has(S.NaN, S.ComplexInfinity, S.Infinity, S.NegativeInfinity):
        return False
    # evalf raises its working precision until the digits it returns are right, or gives up with precision 1.
    number = value.evalf(DIGITS)
    return bool(number.is_number and number.is_comparable and abs(number) > Rational(1, 10**20))


def _nonzero_instance(expr: Expr, rules: Sequence[Rule], sizes: Mapping[Symbol, int]) -> bool:
    written = explicit(expr, sizes)
    unsized = {s for node in written.atoms(Indexed) for s in node.free_symbols if s.is_integer} - set(INDEX_SIZE)
    if unsized:
        raise ValueError(f"indices without a size in derivations.notation: {sorted(map(str, unsized))}")
    free = sorted((s for s in written.free_symbols if s in INDEX_SIZE), key=str)
    ranges = [range(sizes[INDEX_SIZE[index]]) for index in free]
    stream = rationals(7)
    fixed: dict[Expr, Expr] = {}
    for rule in rules:
        fixed |= rule.values(sizes, lambda: next(stream))
    for choice in islice(product(*ranges), 64):
        placed = written.xreplace({index: Integer(value) for index, value in zip(free, choice, strict=True)})
        if _nonzero_at(placed.xreplace(fixed), 0):
            return True
    return False


def _sign_is_positive(number: Expr) -> bool | None:
    """The sign of an exact number by interval arithmetic, tried at growing precision."""
    for digits in (15, 40, 120):
        iv.dps = digits
        enclosure = _enclose(number)
        if enclosure.a > 0:
            return True
        if enclosure.b < 0:
            return False
    return None


def _enclose(number: Expr):
    """An interval that is sure to contain the number: sums, products, powers, exp and log of rationals."""
    if number.is_Rational:
        return iv.mpf(Fraction(number.p, number.q).numerator) / iv.mpf(number.q)
    if number.is_Add:
        return sum((_enclose(argument) for argument in number.args), iv.mpf(0))
    if number.is_Mul:
        value = iv.mpf(1)
        for argument in number.args:
            value *= _enclose(argument)
        return value
    if number.is_Pow and number.exp.is_Integer:
        return _enclose(number.base) ** int(number.exp)
    if number.is_Pow and number.exp == Rational(1, 2):
        return iv.sqrt(_enclose(number.base))
    if number.is_Pow and number.exp == Rational(-1, 2):
        return 1 / iv.sqrt(_enclose(number.base))
    if number == S.Exp1:
        return iv.e
    if number == S.Pi:
        return iv.pi
    functions = {"exp": iv.exp, "log": iv.log, "cos": iv.cos, "sin": iv.sin}
    name = type(number).__name__
    if name in functions:
        return functions[name](_enclose(number.args[0]))
    if name == "Abs":
        return abs(_enclose(number.args[0]))
    if name in ("Max", "Min"):
        raise ValueError(f"write the maximum out before deciding: {number}")
    raise TypeError(f"no interval rule for {type(number).__name__} in {number}")


__all__ = [
    "DIGITS",
    "INSTANCE",
    "Decision",
    "at_most",
    "below",
    "contains_float",
    "equal",
    "equal_sums",
    "is_zero_rational",
]
