"""Results of audits, measurements and frontiers: they print, save, load and plot themselves."""

from veil.results.audit import Audit
from veil.results.frontier import Frontier
from veil.results.measurement import Measurement

__all__ = ["Audit", "Frontier", "Measurement"]
