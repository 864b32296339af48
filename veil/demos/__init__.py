"""Jobs that show what the library is for."""

from veil.demos.adversaries import Adversary, KalmanBank, Observer, Swarm
from veil.demos.measurement import Measurement, compare, measure
from veil.demos.ways import Way, ways

__all__ = ["Adversary", "KalmanBank", "Measurement", "Observer", "Swarm", "Way", "compare", "measure", "ways"]
