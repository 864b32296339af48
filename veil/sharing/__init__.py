"""Live sharing: a stream, the ledger of what was released, and the budget of what may leak."""

from veil.sharing.accountant import Accountant, BudgetError
from veil.sharing.budgeting import budgeted
from veil.sharing.chain import Entry, LedgerError
from veil.sharing.inputs import Fault
from veil.sharing.ledger import Ledger
from veil.sharing.receipt import Receipt, Release
from veil.sharing.sharer import Sharer

__all__ = [
    "Accountant",
    "BudgetError",
    "Entry",
    "Fault",
    "Ledger",
    "LedgerError",
    "Receipt",
    "Release",
    "Sharer",
    "budgeted",
]
