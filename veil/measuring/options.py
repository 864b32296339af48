"""What a measurement is asked to do. Imports nothing heavy, so that the command line can read it at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """The extent of a measurement."""

    particles: int = 324
    """Particles per secret of each filter, where the way of sharing needs filters"""
    draws: int = 8
    """How often the noise of the sharing is drawn; the numbers are means over the draws"""
    secret: int = -1
    """Index in the prior that the owner takes its secret for; -1 for the one that fits the log best"""
    seed: int = 0
    """Seed of all randomness (no unit); the same seed gives the same numbers"""

    def __post_init__(self) -> None:
        """Refuse what cannot be measured."""
        if self.particles < 2 or self.draws < 1 or self.secret < -1 or not 0 <= self.seed < 1 << 32:
            raise ValueError(
                "Give at least 2 particles and 1 draw, a secret from 0 on, and a seed from 0 to 4294967295."
            )
