"""Live sharing: the ledger of what was released, and the budget of what may leak."""

from veil.sharing.accountant import Accountant, BudgetError
from veil.sharing.ledger import Entry, Ledger, LedgerError

__all__ = ["Accountant", "BudgetError", "Entry", "Ledger", "LedgerError"]
