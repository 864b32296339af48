"""What audits, measurements and frontiers found."""

from veil.results.audit import Audit
from veil.results.frontier import Frontier
from veil.results.measurement import Measurement

__all__ = ["Audit", "Frontier", "Measurement"]
