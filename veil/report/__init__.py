"""Reports: what was trained, audited and shared, as one page that can be read, printed and passed on."""

from veil.report.blocks import ReportError
from veil.report.gather import gather
from veil.report.page import write

__all__ = ["ReportError", "gather", "write"]
