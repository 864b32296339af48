"""The contract of a belief, and the arithmetic that all beliefs share.

A belief at time t is the distribution of the secret and x_t given w_1..w_t and y_1..y_{t−1}. It does not yet
include y_t: the leakage of y_t is computed from it. `update` then includes y_t.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from veil import linalg
from veil.laws import Components, Gaussian, Kernel, Law, grouped
from veil.systems.base import System
from veil.types import LOG_ZERO, External, Key, Noise, Scalar, Secret, Shared

Masses = Float[Array, " K"]

Cloud = tuple[Float[Array, "Q P"], Float[Array, "Q N"], Float[Array, " Q"]]


class Health(eqx.Module):
    """How one update went. Compiled code cannot raise, so that problems are reported as data.

    `depleted` marks the secrets under which the release was impossible for every particle. Such a secret
    keeps no mass. If all secrets are marked, the masses stay as they were.
    """

    log_evidence: Scalar  # log p(y_t | h_t)
    log_likelihood: Float[Array, " K"]  # log p(y_t | θ, h_t)
    effective: Float[Array, " K"]  # effective sample size after weighing, before resampling
    depleted: Bool[Array, " K"]


class Belief(eqx.Module):
    """The distribution of (Θ, X_t) given the public history before y_t.

    Attributes:
        secrets: of the prior.
        log_masses: of each secret.
        models_rounding: whether releases are predicted from the rounded states that a policy reads. Where
            rounding is taken for Gaussian noise, charges by this belief are for fine sensors only.
    """

    models_rounding: ClassVar[bool] = True

    secrets: eqx.AbstractVar[Float[Array, "K P"]]
    log_masses: eqx.AbstractVar[Float[Array, " K"]]

    @property
    def particle_count(self) -> int:
        """Particles per secret; 0 where the belief has none."""
        return 0

    def cloud(self) -> Cloud | None:
        """Secrets and states of all particles with their joint log-weights; None where there are none."""
        return None

    @abc.abstractmethod
    def moments(self) -> Gaussian:
        """Mean and covariance of x_t given each secret, batched [K]; the scale may have zero columns."""

    @abc.abstractmethod
    def components(self, kernel: Kernel) -> Components:
        """The Gaussian mixture that y_t follows under this belief, each component labelled by its secret."""

    @abc.abstractmethod
    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["Belief", Health]:
        """Weigh by y_t, refresh, move by w_t: the belief before y_{t+1}.

        Args:
            system: whose transition moves the states.
            kernel: the one that y_t was drawn from.
            external: w_t.
            shared: y_t, or None if it was withheld: nothing is weighed then.
            key: public randomness of this step.
        """


def mixture_components(log_weights: Float[Array, "K M"], law: Law) -> Components:
    """Components of Gaussian or mixture release laws batched [K, M], with joint log-weights."""
    own, parts = law.gaussian_parts()
    secrets = log_weights.shape[0]
    joint = (log_weights[:, :, None] + own).reshape(secrets, -1)
    mean = parts.mean.reshape(secrets, joint.shape[1], -1)
    return grouped(joint, Gaussian(mean, parts.scale.reshape(*mean.shape, mean.shape[-1])))


def floored(log_values: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """LOG_ZERO in place of −∞ and of values that are not numbers."""
    return jnp.where(log_values > LOG_ZERO, log_values, LOG_ZERO)


def bayes_update(log_masses: Masses, log_likelihood: Masses) -> tuple[Masses, Scalar, Bool[Array, " K"]]:
    """Bayes' rule over the secrets: new log-masses, log p(y_t | h_t), and which secrets were impossible."""
    depleted = log_likelihood < 0.5 * LOG_ZERO
    joint = floored(log_masses + log_likelihood)
    log_evidence = logsumexp(joint)
    unexplained = log_evidence < 0.5 * LOG_ZERO
    posterior = jnp.where(unexplained, log_masses, floored(joint - log_evidence))
    return posterior, floored(log_evidence), depleted | unexplained


def untouched(log_masses: Masses, effective: Masses) -> Health:
    """Health of a step in which nothing was released."""
    zeros = jnp.zeros_like(log_masses)
    return Health(zeros[0], zeros, effective, jnp.zeros(zeros.shape, bool))


class PriorBelief(Belief):
    """The prior at every step, and no knowledge of the state; it costs no computation."""

    secrets: Float[Array, "K P"]
    log_masses: Float[Array, " K"]

    @classmethod
    def start(cls, system: System) -> "PriorBelief":
        """The prior of the system."""
        return cls(system.prior.secrets, system.prior.log_masses)

    def moments(self) -> Gaussian:
        """Raise an error: this belief has no distribution of the state."""
        raise TypeError("A PriorBelief knows nothing about the state. Use ParticleBelief or KalmanBelief.")

    def components(self, kernel: Kernel) -> Components:
        """Raise an error: this belief cannot predict a release."""
        raise TypeError("A PriorBelief cannot predict a release. Use ParticleBelief or KalmanBelief.")

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["PriorBelief", Health]:
        """Return the belief unchanged."""
        del system, kernel, external, shared, key
        return self, untouched(self.log_masses, jnp.full_like(self.log_masses, jnp.inf))


class FilterSpec(eqx.Module):
    """A choice of filter, from which the belief of a system is started."""

    @abc.abstractmethod
    def start(self, system: System, *, key: Key) -> Belief:
        """The belief about this system at t = 1."""


class Line(eqx.Module):
    """y ≈ mean + slope z + scale ε: a release as a linear function of the noise z of the state."""

    mean: Float[Array, " Y"]
    slope: Float[Array, "Y N"]
    scale: Float[Array, "Y Y"]


def release_line(kernel: Kernel, secret: Secret, origin: Gaussian) -> Line:
    """The release linearised at the mean of the state's law, the kernel's covariance taken there.

    Behind a sensor it is linearised before rounding, and the reading differs from the state by independent
    noise with the variance of a cell.
    """
    cell, kernel = kernel.cell_spread(), kernel.before_rounding()
    law = kernel(secret, origin.mean).as_gaussian()
    jacobian = jax.jacfwd(lambda state: kernel(secret, state).as_gaussian().mean)(origin.mean)
    scale = law.scale
    if cell is not None:
        rows = jnp.concatenate([law.scale, jacobian * cell.astype(scale.dtype)[None, :]], axis=1)
        scale = linalg.triangular_root(rows, jnp.ones_like(rows[0]))
    return Line(law.mean, jacobian @ origin.scale, scale)


def condition(line: Line, shared: Shared) -> tuple[Noise, Float[Array, "N N"]]:
    """Posterior of z ~ N(0, I) given the release: its mean, and the Cholesky factor of its precision."""
    whitener = linalg.invert_lower(line.scale)
    slope = whitener @ line.slope
    pull = slope.T @ (whitener @ (shared - line.mean))
    root = linalg.cholesky(jnp.eye(slope.shape[1], dtype=slope.dtype) + slope.T @ slope)
    return linalg.invert_lower(root).T @ linalg.solve_lower(root, pull), root
