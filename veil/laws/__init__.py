"""Laws of one random vector: Gaussian, mixture of Gaussians, finite, point, held."""

from veil.laws.base import Law
from veil.laws.finite import Finite
from veil.laws.gaussian import Gaussian, bhattacharyya, chernoff, diagonal_gaussian, gaussian, kl, recovered
from veil.laws.held import Held
from veil.laws.mixture import Mixture, match_moments
from veil.laws.point import Point

__all__ = [
    "Finite",
    "Gaussian",
    "Held",
    "Law",
    "Mixture",
    "Point",
    "bhattacharyya",
    "chernoff",
    "diagonal_gaussian",
    "gaussian",
    "kl",
    "match_moments",
    "recovered",
]
