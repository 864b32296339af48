"""Models from recordings: parameters, noise and a prior, and how well they predict."""

from veil.fitting.fit import fit as fit
