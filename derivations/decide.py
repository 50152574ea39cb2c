"""Decision procedures: each answers True, False, or None for "could not decide".

True is a proof and False is a refutation; a step of a note stands only on True, and a near-miss only on False.

==================== ============================================================== =======================
procedure            True because                                                   False because
==================== ============================================================== =======================
``equal``            the difference cancels as a rational function of symbols and   it is not zero at an
                     exponentials, with a denominator that is not zero              exact rational point
``equal_sums(...)``  the summation normal forms agree, for every size               it is not zero at an
                                                                                    exact small instance
``at_most``          interval arithmetic separates the two exact numbers            the same, the other way
``below``            the same, strictly
==================== ============================================================== =======================
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice, product

from mpmath import iv
from mpmath.libmp import ComplexResult
from sympy import (
    Add,
    Derivative,
    Dummy,
    Expr,
    Float,
    I,
    Integer,
    MatrixBase,
    Rational,
    S,
    Subs,
    Sum,
    Symbol,
    exp,
    fraction,
    lcm,
    preorder_traversal,
    sympify,
    together,
)
from sympy.concrete.expr_with_limits import ExprWithLimits
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
        if getattr(left, "shape", None) != getattr(right, "shape", None):
            return False
        return _all(equal(one, other) for one, other in zip(left, right, strict=True))
    if left in (S.true, S.false) or right in (S.true, S.false):
        return left == right
    difference = left - right
    if difference.has(Sum):
        # A sum counts as a symbol for the proof; a refutation writes it out, so that every index keeps to its range.
        return True if is_zero_rational(difference) else False if _nonzero_instance(difference, (), INSTANCE) else None
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
    whole = expr.xreplace(atoms), {symbol: node for node, symbol in atoms.items()}
    return _numerator_vanishes(*whole) or (bool(atoms) and _numerator_vanishes(*_exponentials_as_symbols(expr)))


def _numerator_vanishes(expr: Expr, meaning: Mapping[Expr, Expr]) -> bool:
    """``meaning`` gives back the exponentials that symbols of the expression stand for."""
    numerator, denominator = fraction(together(expr))
    if numerator.expand() != 0:
        return False
    # 0/0 is no zero: the denominator must be seen to differ from zero somewhere.
    return denominator == 1 or any(_nonzero_at(denominator.xreplace(meaning), seed) for seed in range(3))


def contains_float(expr: Expr) -> bool:
    """Is any number in the expression inexact?"""
    return any(isinstance(node, Float) for node in preorder_traversal(sympify(expr)))


def _all(verdicts) -> bool | None:
    verdicts = list(verdicts)
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True


def _exponentials_as_symbols(expr: Expr) -> tuple[Expr, dict[Expr, Expr]]:
    """Replace exp(r_1 m_1 + r_2 m_2 + ..) by a product of powers of one symbol per monomial m.

    The rational parts r get a common denominator per monomial, so only integer powers remain. The second result says
    what each symbol stands for.
    """
    atoms = {node for node in preorder_traversal(expr) if isinstance(node, exp) or node == S.Exp1}
    parts = {atom: [t.as_coeff_Mul() for t in Add.make_args(expand_mul(atom.as_base_exp()[1]))] for atom in atoms}
    denominators: dict[Expr, Expr] = {}
    for terms in parts.values():
        for rational, monomial in terms:
            denominators[monomial] = lcm(denominators.get(monomial, Integer(1)), Rational(rational).q)
    symbols = {monomial: Dummy(f"E{place}") for place, monomial in enumerate(sorted(denominators, key=str))}
    replaced = {}
    for atom, terms in parts.items():
        value = S.One
        for rational, monomial in terms:
            value *= symbols[monomial] ** (rational * denominators[monomial])
        replaced[atom] = value
    meaning = {symbols[monomial]: exp(monomial / denominators[monomial]) for monomial in symbols}
    return expr.xreplace(replaced), meaning


def _values_for(expr: Expr, seed: int) -> dict[Expr, Expr] | None:
    """Exact values that obey the assumptions on every symbol, entry y[i] and function value f(y) of an expression.

    What is equal at the point gets one value: y[i] and y[j] where i = j, f((y + 1)**2) and f(y**2 + 2 y + 1). None
    where an argument has no exact value, or where no value that was tried obeys.
    """
    stream = rationals(seed + 1)
    named = {
        node: node.indices if isinstance(node, Indexed) else node.args for node in expr.atoms(Indexed, AppliedUndef)
    }
    # Labels of IndexedBase are symbols too, and may share the name of one that needs a value.
    bare = expr.xreplace({node: Dummy(f"{node}") for node in named})
    inside = (argument.free_symbols for arguments in named.values() for argument in arguments)
    values: dict[Expr, Expr] = {}
    for symbol in sorted((bare.free_symbols & expr.free_symbols).union(*inside), key=str):
        value = _draw(symbol, stream)
        if value is None:
            return None
        values[symbol] = value
    drawn: dict[tuple, Expr | None] = {}
    for node in sorted(named, key=str):
        place = tuple(argument.xreplace(values) for argument in named[node])
        if not all(argument.is_Rational for argument in place):
            return None
        key = (node.base if isinstance(node, Indexed) else node.func, place)
        if key not in drawn:
            drawn[key] = _draw(node, stream)
        if drawn[key] is None:
            return None
        values[node] = drawn[key]
    return values


FACTS = ("positive", "negative", "nonnegative", "nonpositive", "zero", "integer", "even", "odd", "prime", "real")


def _draw(node: Expr, stream: Iterator[Rational]) -> Expr | None:
    """A value that obeys the node's assumptions; None where none is found."""
    known = [(f"is_{fact}", truth) for fact in FACTS if (truth := getattr(node, f"is_{fact}")) is not None]
    for value in islice(stream, 20):
        size = Integer(value.p % 5 + 2) if node.is_integer else value
        for candidate in (size, -size):
            if all(getattr(candidate, fact) == truth for fact, truth in known):
                return candidate
    return None


def _nonzero_at(expr: Expr, seed: int) -> bool:
    # A bound variable (of a sum, an integral, a derivative) has a range or a meaning that one value would not keep.
    values = None if expr.has(ExprWithLimits, Derivative, Subs) else _values_for(expr, seed)
    if values is None:
        return False
    value = expr.xreplace(values)
    if value.has(S.NaN, S.ComplexInfinity, S.Infinity, S.NegativeInfinity):
        return False
    # evalf raises its working precision until the digits it returns are right, or gives up with precision 1.
    number = value.evalf(DIGITS)
    # What is real may be written with I, and then keeps a rounded zero beside it.
    parts = number.as_real_imag() if number.is_number and number.has(I) else (number,)
    return any(part.is_number and part.is_comparable and abs(part) > Rational(1, 10**20) for part in parts)


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
        try:
            enclosure = _enclose(number)
        except ComplexResult:
            # The interval reaches below zero under a root or a logarithm; the number itself may not.
            continue
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
    if number.is_Pow and number.exp.is_Rational and number.exp.q == 2:
        return iv.sqrt(_enclose(number.base)) ** int(number.exp.p)
    if number == S.Exp1:
        return iv.e
    if number == S.Pi:
        return iv.pi
    functions = {"exp": iv.exp, "log": iv.log, "cos": iv.cos, "sin": iv.sin, "atan": _arctangent}
    name = type(number).__name__
    if name in functions:
        return functions[name](_enclose(number.args[0]))
    if name == "Abs":
        return abs(_enclose(number.args[0]))
    if name in ("Max", "Min"):
        raise ValueError(f"write the maximum out before deciding: {number}")
    raise TypeError(f"no interval rule for {type(number).__name__} in {number}")


def _arctangent(value):
    """The interval context has the two-argument form only."""
    return iv.atan2(value, iv.mpf(1))


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
