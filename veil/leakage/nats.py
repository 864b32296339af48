"""A number of nats that remembers how it was obtained."""

import math


class Nats(float):
    """A float in nats. What does not apply is None.

    Attributes:
        standard_error: standard error of an estimate.
        samples: random points used.
        delta: probability that an upper confidence bound is below the truth.
        error: estimated numerical error of a quadrature.
    """

    standard_error: float | None
    samples: int | None
    delta: float | None
    error: float | None

    def __new__(cls, value, *, standard_error=None, samples=None, delta=None, error=None):
        """Wrap a number."""
        nats = super().__new__(cls, value)
        nats.standard_error, nats.samples, nats.delta, nats.error = standard_error, samples, delta, error
        return nats

    @property
    def bits(self) -> float:
        """The same in bits, for people."""
        return float(self) / math.log(2.0)
