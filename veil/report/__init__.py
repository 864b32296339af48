"""Reports: what was trained, audited and shared, as one page that can be read, printed and passed on."""

from veil.report.blocks import ReportError
from veil.report.page import write_report

__all__ = ["ReportError", "write_report"]
