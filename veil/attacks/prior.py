"""The adversary who does not read: the baseline everybody is compared with."""

import jax.numpy as jnp

from veil.attacks.base import Attack, Evidence
from veil.rollout import Transcript
from veil.systems.prior import Prior
from veil.types import Key


class PriorAttack(Attack):
    """Knows the prior and nothing else."""

    prior: Prior

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """No evidence."""
        del transcript, key
        zeros = jnp.zeros_like(self.prior.log_masses)
        return Evidence(zeros, jnp.ones_like(zeros[0]), jnp.asarray(False))
