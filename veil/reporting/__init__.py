"""Reports: what was trained, audited and shared, as one page that can be read, printed and passed on."""

from veil.reporting.errors import ReportError
from veil.reporting.files import write
from veil.reporting.gather import gather

__all__ = ["ReportError", "gather", "write"]
