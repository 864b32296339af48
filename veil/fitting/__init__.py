"""Models from recordings: parameters, noise and a prior, and how well they predict."""

from veil.fitting.fit import fit
from veil.fitting.fitted import fitted_system, self_model

__all__ = ["fit", "fitted_system", "self_model"]
