"""Gaussian components labelled by secret: the common tongue of beliefs and leakage.

Under a belief and a kernel, the next release is a mixture of Gaussians whose components each belong to
one secret. Leakage asks how much the release tells about the label.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from veil.laws import Gaussian
from veil.types import LOG_ZERO, Scalar


class Components(eqx.Module):
    """N Gaussian components with joint log-weights (they sum to one over all N) and a secret each.

    `stride` is the number of components per secret if they are stored as K equal consecutive blocks, as
    beliefs do: sums within a secret then cost N·stride pairs. Without it (ragged groups) they are taken
    with a mask over all N² pairs. A component without weight has log-weight `LOG_ZERO`.
    """

    labels: Int[Array, " N"]
    log_weights: Float[Array, " N"]
    parts: Gaussian
    secrets: int = eqx.field(static=True)
    stride: int | None = eqx.field(static=True, default=None)

    @property
    def membership(self) -> Bool[Array, "K N"]:
        """Which component belongs to which secret."""
        return self.labels[None, :] == jnp.arange(self.secrets, dtype=self.labels.dtype)[:, None]

    @property
    def log_masses(self) -> Float[Array, " K"]:
        """Log q_k, the posterior mass of each secret."""
        return logsumexp(jnp.where(self.membership, self.log_weights[None, :], LOG_ZERO), axis=1)

    @property
    def entropy(self) -> Scalar:
        """H(q) in nats: no release can tell more."""
        return -jnp.sum(jnp.exp(self.log_masses) * self.log_masses)

    @property
    def log_conditional(self) -> Float[Array, " N"]:
        """Log of weight within the secret, w̄_i = w_i / q_k."""
        return self.log_weights - self.log_masses[self.labels]


def grouped(log_weights: Float[Array, "K M"], parts: Gaussian) -> Components:
    """Components from the [secrets, particles] layout of a belief."""
    secrets, stride = log_weights.shape
    flat = jax.tree.map(lambda leaf: leaf.reshape((secrets * stride, *leaf.shape[2:])), parts)
    labels = jnp.repeat(jnp.arange(secrets), stride)
    log_weights = jnp.maximum(log_weights.reshape(-1), LOG_ZERO)
    return Components(labels, log_weights, flat, secrets, stride)
