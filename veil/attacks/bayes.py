"""The Bayes adversary: one particle filter per secret, all driven by the same random numbers."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil.attacks.base import Attack, Evidence
from veil.attacks.guides import Guide, Public
from veil.attacks.potential import Potential
from veil.attacks.smc import Estimate, Filter, public_steps
from veil.policies.base import Policy
from veil.rollout import Transcript
from veil.systems.base import System
from veil.types import Key


class Bayes(Attack):
    """Knows the system and the policy and weighs the secrets by their likelihood.

    Secrets are never resampled against each other, and all filters use the same random numbers, so that
    what they have in common cancels in the posterior.
    """

    filter: Filter

    def __init__(self, system: System, policy: Policy, guide: Guide, particles: int):
        self.filter = Filter(system, policy, guide, particles)

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """One run per secret."""
        public = public_steps(transcript)
        return evidence(runs(self.filter, public, plans(self.filter, public), key=key))


def plans(swarm: Filter, public: Public) -> Potential | None:
    """The plans of all secrets, batched [K]."""
    secrets = swarm.system.prior.secrets
    return jax.vmap(lambda secret: swarm.guide.plan(swarm.system, swarm.policy, secret, public))(secrets)


def runs(swarm: Filter, public: Public, plan: Potential | None, *, key: Key) -> Estimate:
    """One estimate per secret, batched [K]."""
    return jax.vmap(lambda secret, own: swarm(secret, public, own, key=key))(swarm.system.prior.secrets, plan)


def evidence(estimates: Estimate) -> Evidence:
    """What the estimates of all secrets say together."""
    found = estimates.log_likelihood
    failed = ~jnp.all(jnp.isfinite(found))
    shift = jnp.where(jnp.isfinite(jnp.max(found)), jnp.max(found), 0.0)
    return Evidence(floored(found - shift), jnp.min(estimates.effective), failed)


def floored(log_likelihood: Float[Array, " K"]) -> Float[Array, " K"]:
    """Very unlikely in place of impossible or unknown, so that a posterior can be formed."""
    return jnp.maximum(jnp.nan_to_num(log_likelihood, nan=-1e6, neginf=-1e6, posinf=0.0), -1e6)
