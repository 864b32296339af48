"""What sharing this way costs the owner, beside sharing true data."""

from veil.report import wording as words
from veil.report.blocks import Section, Text
from veil.report.gather import Material
from veil.report.sections.usefulness import Cells, combined
from veil.results.audit import Quantity

LEAD = "What is shared comes back: others react to it, and the owner lives with the reaction."

CAPTION = (
    "Each number, and in brackets its change against sharing true data under the same random numbers (± one "
    "standard error of the change). A change within two or three standard errors of zero is none."
)

UNPAIRED = "No audit here could be compared with sharing true data."


def section(material: Material) -> Section | None:
    """One table of all runs; None before anything was audited, which other sections say."""
    if not material.audited:
        return None
    table = combined(material, _rows, CAPTION)
    blocks = (Text(UNPAIRED),) if table is None else (table,)
    return Section("cost", "What it costs, and whether it is safe", LEAD, blocks)


def _rows(rows: tuple[Quantity, ...]) -> Cells:
    """Everything that has a counterpart with true data."""
    picked = {}
    for row in rows:
        if row.true_data is not None and row.change is not None:
            picked[row.name] = (row.unit, f"{words.amount(row.value.value)} ({words.change(row)})")
    return picked
