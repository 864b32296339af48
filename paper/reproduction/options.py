"""How much of the experiment is done. Imports nothing heavy: the command line reads it at once."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Extent:
    """Sizes of a reproduction.

    Attributes:
        steps: releases per episode.
        table_episodes: episodes per secret behind Tables 1 and 2.
        audit_episodes: episodes of the two-sided measurement, all secrets together.
        read_episodes: episodes per secret behind Figures 1 and 2.
        bound_episodes: episodes per secret on which the paper's bound is summed.
        particles: per secret, of the filter that reads, and of policies that track by particles.
        training_fraction: of each learner's usual number of updates.
        seed: of all randomness.
    """

    steps: int = 50
    table_episodes: int = 64
    audit_episodes: int = 128
    read_episodes: int = 24
    bound_episodes: int = 4
    particles: int = 324
    training_fraction: float = 1.0
    seed: int = 0


DEFAULT = Extent()

FAST = Extent(table_episodes=16, audit_episodes=64, read_episodes=16, particles=81, training_fraction=0.04)
