"""The contract of an attack: a public transcript in, evidence about the secret out."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.step import Transcript
from veil.systems.base import Prior
from veil.types import Key, Scalar


class Evidence(eqx.Module):
    """What one transcript tells an adversary about the secret.

    `log_likelihood` is log p(y_1..y_T | θ) per secret, up to a constant. `effective` is the smallest
    effective sample size of the run as a share of the particles (1 where there are none), and `failed`
    says that a number was not finite: such a transcript was not understood, which is not the same as
    private.
    """

    log_likelihood: Float[Array, " K"]
    effective: Scalar
    failed: Bool[Array, ""]

    def log_posterior(self, prior: Prior) -> Float[Array, " K"]:
        """Log posterior masses of the secrets."""
        return jax.nn.log_softmax(prior.log_masses + self.log_likelihood)


class Attack(eqx.Module):
    """Reads one transcript. It knows the system and the policy in force, never the state or the secret.

    Attacks are written for one transcript and batched by `jax.vmap`; all randomness comes from `key`.
    """

    @abc.abstractmethod
    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """The evidence in this transcript."""


class PriorAttack(Attack):
    """Knows the prior and nothing else."""

    prior: Prior

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Zero evidence for every secret."""
        del transcript, key
        zeros = jnp.zeros_like(self.prior.log_masses)
        return Evidence(zeros, jnp.ones_like(zeros[0]), jnp.asarray(False))
