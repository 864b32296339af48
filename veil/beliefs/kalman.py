"""One extended Kalman filter per secret: exact when system and kernel are linear and Gaussian."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.beliefs.base import (
    Belief,
    FilterSpec,
    Health,
    bayes_update,
    condition,
    floored,
    mixture_components,
    release_line,
    untouched,
)
from veil.laws import LOG_TWO_PI, Components, Gaussian, Kernel
from veil.systems.base import System
from veil.types import External, Key, Scalar, Secret, Shared


class KalmanBelief(Belief):
    """A Gaussian law of x_t per secret, kept as mean and factor of the covariance.

    Updates act on the noise of that factor, where the prior is N(0, I): nothing is subtracted from a
    covariance, so definiteness cannot be lost, and a degenerate law (a known start) needs no exception.

    Behind a sensor the release is linearised before rounding, since a filter would take the jumps of the
    rounding for information; the variance of a cell is added as noise.
    """

    models_rounding: ClassVar[bool] = False

    secrets: Float[Array, "K P"]
    log_masses: Float[Array, " K"]
    states: Gaussian  # batched [K]

    @classmethod
    def start(cls, system: System) -> "KalmanBelief":
        """The belief at t = 1."""
        prior = system.prior
        return cls(prior.secrets, prior.log_masses, jax.vmap(system.initial)(prior.secrets))

    def moments(self) -> Gaussian:
        """The Gaussians that the filters keep."""
        return self.states

    def components(self, kernel: Kernel) -> Components:
        """One Gaussian per secret, N(μ(m), J P Jᵀ + R)."""
        laws = jax.vmap(_predict, (None, 0, 0))(kernel, self.secrets, self.states)
        parts = jax.tree.map(lambda leaf: leaf[:, None], laws)
        return mixture_components(self.log_masses[:, None], parts)

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["KalmanBelief", Health]:
        """Update by y_t, then predict x_{t+1}. Nothing is random."""
        del key
        effective = jnp.full_like(self.log_masses, jnp.inf)
        states, log_masses, health = self.states, self.log_masses, untouched(self.log_masses, effective)
        if shared is not None:
            states, gains = jax.vmap(update, (None, 0, 0, None))(kernel, self.secrets, states, shared)
            log_masses, log_evidence, depleted = bayes_update(log_masses, floored(gains))
            health = Health(log_evidence, floored(gains), effective, depleted)
        moved = jax.vmap(move, (None, 0, 0, None))(system, self.secrets, states, external)
        return type(self)(self.secrets, log_masses, moved), health


def _predict(kernel: Kernel, secret: Secret, law: Gaussian) -> Gaussian:
    """The law of the release."""
    line = release_line(kernel, secret, law)
    return Gaussian(line.mean, _joined(line.slope, line.scale))


def update(kernel: Kernel, secret: Secret, law: Gaussian, shared: Shared) -> tuple[Gaussian, Scalar]:
    """The law of the state given the release, and the log density of the release.

    With z the posterior mean of the noise, (y − μ)ᵀ S⁻¹ (y − μ) = |R^{−1/2}(y − μ − A z)|² + |z|²: a sum of
    squares where the textbook form is a difference of large numbers.
    """
    line = release_line(kernel, secret, law)
    centre, root = condition(line, shared)
    miss = linalg.solve_lower(line.scale, shared - line.mean - line.slope @ centre)
    log_volume = linalg.log_determinant(line.scale) + linalg.log_determinant(root)
    log_density = -0.5 * (miss @ miss + centre @ centre + log_volume + miss.shape[0] * LOG_TWO_PI)
    # Not lower triangular, but a factor all the same; the next move makes it triangular again.
    return Gaussian(law.sample(centre), law.scale @ linalg.invert_lower(root).T), log_density


def move(system: System, secret: Secret, law: Gaussian, external: External) -> Gaussian:
    """The law of the next state, the transition linearised at the mean."""
    after = system.transition(secret, law.mean, external)
    jacobian = jax.jacfwd(lambda state: system.transition(secret, state, external).mean)(law.mean)
    return Gaussian(after.mean, _joined(jacobian @ law.scale, after.scale))


def _joined(first: Float[Array, "d n"], second: Float[Array, "d d"]) -> Float[Array, "d d"]:
    """Triangular factor of first·firstᵀ + second·secondᵀ."""
    rows = jnp.concatenate([first, second], axis=1)
    return linalg.triangular_root(rows, jnp.ones_like(rows[0]))


class KalmanSpec(FilterSpec):
    """One extended Kalman filter per secret."""

    def start(self, system: System, *, key: Key) -> KalmanBelief:
        """The belief at t = 1; it needs no randomness."""
        del key
        return KalmanBelief.start(system)
