"""Reports: what was trained, audited and shared, as one page that can be read, printed and passed on."""

from veil.report.gather import gather
from veil.report.page import write
from veil.report.source import ReportError

__all__ = ["ReportError", "gather", "write"]
