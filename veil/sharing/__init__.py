"""Live sharing: a stream, the ledger of what was released, and the budget of what may leak."""

from veil.sharing.account import Accountant, BudgetError
from veil.sharing.budget import budgeted
from veil.sharing.declared import Declared
from veil.sharing.inputs import Fault
from veil.sharing.ledger import Entry, Ledger, LedgerError, Receipt, Release
from veil.sharing.sharer import Sharer

__all__ = [
    "Accountant",
    "BudgetError",
    "Declared",
    "Entry",
    "Fault",
    "Ledger",
    "LedgerError",
    "Receipt",
    "Release",
    "Sharer",
    "budgeted",
]
