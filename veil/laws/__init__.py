"""Laws of one random vector: Gaussian, mixture of Gaussians, finite, point."""

from veil.laws.base import Law
from veil.laws.finite import Finite
from veil.laws.gaussian import Gaussian, bhattacharyya, chernoff, diagonal_gaussian, gaussian, kl
from veil.laws.mixture import Mixture, match_moments
from veil.laws.point import Point

__all__ = [
    "Finite",
    "Gaussian",
    "Law",
    "Mixture",
    "Point",
    "bhattacharyya",
    "chernoff",
    "diagonal_gaussian",
    "gaussian",
    "kl",
    "match_moments",
]
