"""Reports: one HTML page about what was trained, audited and shared."""

from veil.reports.blocks import ReportError
from veil.reports.page import report

__all__ = ["ReportError", "report"]
