"""The theory as executable notes, and the ledger of claims.

Each note ``a1_jacobian`` .. states claims, derives them in SymPy and checks every step where it stands.
``python -m derivations`` prints the ledger, ``python -m derivations show A1`` one note with its checks.

Importing this package loads neither SymPy nor torch: the ledger is plain data.
"""

from derivations.ledger import LEDGER, Claim, claim

__all__ = ["LEDGER", "Claim", "claim"]
