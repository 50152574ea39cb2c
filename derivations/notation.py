"""The symbols that every note of Part A shares, named as in the papers.

Sizes are symbols, so a derivation holds for every number of tokens and every width.
Tokens are counted from 0 to T - 1.

========== ==================================== =======================
symbol     meaning                              where it runs
========== ==================================== =======================
i, j, l, m token (query, key, key, key)         0 .. T - 1
i_0        token: the sink (Part B)             0 .. T - 1
s, t       token other than the sink (Part B)   0 .. n - 1
p, r, e    coordinate of a token                0 .. d - 1
g          coordinate of a query or key         0 .. d_k - 1
b          coordinate of a value                0 .. d_v - 1
========== ==================================== =======================
"""

from sympy import Expr, IndexedBase, KroneckerDelta, Sum, Symbol

T = Symbol("T", integer=True, positive=True)
d = Symbol("d", integer=True, positive=True)
d_k = Symbol("d_k", integer=True, positive=True)
d_v = Symbol("d_v", integer=True, positive=True)

i, j, l, m = (Symbol(name, integer=True, nonnegative=True) for name in "ijlm")
p, r, e = (Symbol(name, integer=True, nonnegative=True) for name in "pre")
g = Symbol("g", integer=True, nonnegative=True)
b = Symbol("b", integer=True, nonnegative=True)
i_0 = Symbol("i_0", integer=True, nonnegative=True)
"""The sink's place among the tokens (Part B)."""

n = Symbol("n", integer=True, positive=True)
"""How many tokens there are beside the sink (Part B); a sum over them counts from 0, the text from 1."""

s, t = (Symbol(name, integer=True, nonnegative=True) for name in "st")

INDEX_SIZE = {i: T, j: T, l: T, m: T, i_0: T, s: n, t: n, p: d, r: d, e: d, g: d_k, b: d_v}
"""How many values each free index takes; the decision procedures draw instances from it."""

c = Symbol("c", positive=True)
"""The scale 1/sqrt(d_k) of the scores. Nothing in A1 needs its value."""

residual = Symbol("r_res", real=True)
"""1 with a residual connection, 0 without (r in the notes' text)."""

x = IndexedBase("x")
W_Q, W_K, W_V = IndexedBase("W_Q"), IndexedBase("W_K"), IndexedBase("W_V")
b_Q, b_K, b_V = IndexedBase("b_Q"), IndexedBase("b_K"), IndexedBase("b_V")
a = IndexedBase("a")
q, k, v, o = IndexedBase("q"), IndexedBase("k"), IndexedBase("v"), IndexedBase("o")
u = IndexedBase("u")

B, C, x_0 = IndexedBase("B"), IndexedBase("C"), IndexedBase("x_0")
"""Part B: B = c W_Q^T W_K, the scatter matrix of x_1..x_n, and the sink's token."""

alpha, beta = IndexedBase("alpha"), IndexedBase("beta")
"""Part B: convex weights on the queries and on the keys x_1..x_n."""


def over(index: Symbol, summand: Expr, size: Expr | None = None) -> Sum:
    """Sum of ``summand`` over all values of ``index`` (``size`` of them; its own size by default)."""
    return Sum(summand, (index, 0, (INDEX_SIZE[index] if size is None else size) - 1))


def delta(first: Symbol, second: Symbol) -> KroneckerDelta:
    """1 where the two indices agree, 0 elsewhere."""
    return KroneckerDelta(first, second)
