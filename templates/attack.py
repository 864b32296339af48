"""Template of an attack: copy, rename, replace the evidence. `python attack.py` checks it."""

import jax
import jax.numpy as jnp

from veil.attacks import Attack, Evidence
from veil.checks.attack import check_attack
from veil.policies import Policy
from veil.systems import System


class OneStep(Attack):
    """Takes releases for states and weighs every secret by how well it predicts the next one."""

    system: System
    policy: Policy  # known to the adversary; this one does not need it

    def __call__(self, transcript, *, key) -> Evidence:
        """Log-likelihood per secret of one transcript; all randomness comes from the key."""
        states, inputs, after = transcript.shared[:-1], transcript.external[:-1], transcript.shared[1:]

        def fits(secret):
            def step(state, external, following):
                return self.system.transition(secret, state, external).log_prob(following)

            return jnp.sum(jax.vmap(step)(states, inputs, after))

        found = jax.vmap(fits)(self.system.prior.secrets)
        failed = ~jnp.all(jnp.isfinite(found))
        return Evidence(jnp.where(failed, 0.0, found), jnp.ones_like(found[0]), failed)


example = OneStep

if __name__ == "__main__":
    print(check_attack(example))
