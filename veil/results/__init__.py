"""Results of audits, fits, measurements and frontiers: they print, save, load and plot themselves."""

from veil.results.audit import Audit
from veil.results.fit import Fit
from veil.results.frontier import Frontier
from veil.results.measurement import Measurement

__all__ = ["Audit", "Fit", "Frontier", "Measurement"]
