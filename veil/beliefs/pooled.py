"""The paper's pooled resampling: one flat cloud of (secret, state) particles.

Resampling over all particles together moves mass between secrets by chance, and a secret that loses its
last particle is gone for good, however likely it becomes later. `ParticleBelief` has neither fault; this
variant is here for comparison with the paper.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.beliefs.base import Belief, Cloud, FilterSpec, Health, floored, untouched
from veil.beliefs.particles import ParticleBelief, Scheme
from veil.laws import Components, Gaussian, Kernel
from veil.resampling import effective_sample_size
from veil.systems.base import System
from veil.types import LOG_ZERO, External, Key, Shared


class PooledBelief(Belief):
    """Weighted pairs of secret and state; `log_weights` are normalised over all of them."""

    secrets: Float[Array, "K P"]
    log_masses: Float[Array, " K"]  # of the summed weights of each secret; log 0 for one that died out
    labels: Int[Array, " Q"]
    states: Float[Array, "Q N"]
    log_weights: Float[Array, " Q"]
    scheme: Scheme

    @classmethod
    def start(
        cls, system: System, particles: int, *, key: Key, scheme: Scheme | None = None
    ) -> "PooledBelief":
        """The belief at t = 1, with `particles` states for each secret to begin with."""
        first = ParticleBelief.start(system, particles, key=key, scheme=scheme)
        secrets, _, size = first.states.shape
        if first.scheme.proposal.needs_origin:
            raise ValueError(
                "PooledBelief moves particles by the bootstrap proposal only; use ParticleBelief."
            )
        labels = jnp.repeat(jnp.arange(secrets, dtype=jnp.int32), particles)
        joint = (first.log_masses[:, None] + first.log_weights).reshape(-1)
        return cls(
            first.secrets, first.log_masses, labels, first.states.reshape(-1, size), joint, first.scheme
        )

    @property
    def particle_count(self) -> int:
        """On average over the secrets."""
        return self.states.shape[0] // self.secrets.shape[0]

    def cloud(self) -> Cloud:
        """All particles, in no order of secrets."""
        return self.secrets[self.labels], self.states, self.log_weights

    def moments(self) -> Gaussian:
        """Weighted mean and covariance per secret; those of the whole cloud for a secret that died out."""
        dead = self.log_masses < 0.5 * LOG_ZERO
        own = jnp.exp(self._own(self.log_weights) - jnp.where(dead, 0.0, self.log_masses)[:, None])
        weights = jnp.where(dead[:, None], jnp.exp(self.log_weights)[None, :], own)
        mean = weights @ self.states
        apart = jnp.swapaxes(self.states[None] - mean[:, None, :], 1, 2)
        return Gaussian(mean, jax.vmap(linalg.triangular_root)(apart, weights))

    def components(self, kernel: Kernel) -> Components:
        """One component (or one per part of a mixture law) for each particle, in no order of secrets."""
        own, parts = jax.vmap(kernel)(self.secrets[self.labels], self.states).gaussian_parts()
        joint, count = floored(self.log_weights[:, None] + own), own.shape[1]
        flat = jax.tree.map(lambda leaf: leaf.reshape((joint.size, *leaf.shape[2:])), parts)
        labels = jnp.repeat(self.labels, count)
        return Components(labels, joint.reshape(-1), flat, self.secrets.shape[0])

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["PooledBelief", Health]:
        """Weigh, resample over all particles if the effective sample size is low, move."""
        resample_key, move_key = jr.split(key)
        effective = self._effective(self.log_weights)
        log_weights, health = self.log_weights, untouched(self.log_masses, effective)
        if shared is not None:
            log_weights, health = self._weigh(kernel, shared)
        count = self.labels.shape[0]
        low = effective_sample_size(log_weights) < self.scheme.threshold.astype(self.states.dtype) * count
        drawn = self.scheme.resample(jax.lax.stop_gradient(log_weights), key=resample_key)
        ancestors = jnp.where(low, drawn, jnp.arange(count, dtype=drawn.dtype))
        labels = self.labels[ancestors]
        laws = jax.vmap(system.transition, (0, 0, None))(
            self.secrets[labels], self.states[ancestors], external
        )
        noise = jr.normal(move_key, self.states.shape, self.states.dtype)
        states = jax.vmap(lambda law, numbers: law.sample(numbers))(laws, noise)
        log_weights = jnp.where(low, -jnp.log(float(count)), log_weights)
        log_masses = floored(logsumexp(_within(len(self.secrets), labels, log_weights), axis=1))
        return type(self)(self.secrets, log_masses, labels, states, log_weights, self.scheme), health

    def _weigh(self, kernel: Kernel, shared: Shared) -> tuple[Float[Array, " Q"], Health]:
        """Multiply by the density of the release; equal weights if no particle explains it."""
        laws = jax.vmap(kernel)(self.secrets[self.labels], self.states)
        gains = jax.vmap(lambda law: law.log_prob(shared))(laws)
        joint = floored(self.log_weights + floored(gains))
        per_secret = logsumexp(self._own(joint), axis=1)
        log_evidence = logsumexp(joint)
        unexplained = log_evidence < 0.5 * LOG_ZERO
        log_weights = jnp.where(unexplained, self.log_weights, floored(joint - log_evidence))
        depleted = (per_secret < 0.5 * LOG_ZERO) | unexplained
        log_likelihood = jnp.where(depleted, LOG_ZERO, per_secret - self.log_masses)
        health = Health(floored(log_evidence), log_likelihood, self._effective(log_weights), depleted)
        return log_weights, health

    def _own(self, log_values: Float[Array, " Q"]) -> Float[Array, "K Q"]:
        """The values of each secret's own particles, log 0 elsewhere."""
        return _within(len(self.secrets), self.labels, log_values)

    def _effective(self, log_weights: Float[Array, " Q"]) -> Float[Array, " K"]:
        """Effective sample size of each secret's own particles, zero if it has none."""
        own = self._own(log_weights)
        alive = jnp.max(own, axis=1) > 0.5 * LOG_ZERO
        return jnp.where(alive, jax.vmap(effective_sample_size)(own), 0.0)


def _within(secrets: int, labels: Int[Array, " Q"], log_values: Float[Array, " Q"]) -> Float[Array, "K Q"]:
    """The values of each secret's own particles, log 0 elsewhere."""
    member = labels[None, :] == jnp.arange(secrets, dtype=labels.dtype)[:, None]
    return jnp.where(member, log_values[None, :], LOG_ZERO)


class PooledSpec(FilterSpec):
    """`count` bootstrap particles per secret to begin with, of independent noise, resampled together."""

    count: int = eqx.field(static=True)
    scheme: Scheme = eqx.field(default_factory=lambda: Scheme(coupled=False))

    def start(self, system: System, *, key: Key) -> PooledBelief:
        """Particles from the initial law."""
        return PooledBelief.start(system, self.count, key=key, scheme=self.scheme)
