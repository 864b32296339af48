"""Noise-free sharing: the state is public, so that the transition densities are the likelihoods."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from veil.beliefs.base import Belief, FilterSpec, Health, bayes_update, floored, mixture_components, untouched
from veil.beliefs.kalman import move
from veil.laws import LOG_TWO_PI, Components, Gaussian, Kernel
from veil.systems.base import System
from veil.traced import is_identity
from veil.types import External, Key, Scalar, Secret, Shared, State

# A coordinate without noise matches if it is this many units of round-off from its prediction.
ROUND_OFF = 64.0


class ObservedBelief(Belief):
    """The belief when y_t = x_t: given a secret, x_t follows the transition from x_{t−1}.

    A coordinate without noise has no density. If it is not as predicted, its secret is excluded. If it is,
    secrets that predict it with noise are: they give no probability to a single number.
    """

    secrets: Float[Array, "K P"]
    log_masses: Float[Array, " K"]
    states: Gaussian  # batched [K]

    @classmethod
    def start(cls, system: System) -> "ObservedBelief":
        """The belief at t = 1."""
        prior = system.prior
        return cls(prior.secrets, prior.log_masses, jax.vmap(system.initial)(prior.secrets))

    def moments(self) -> Gaussian:
        """The transition laws from the last state seen."""
        return self.states

    def components(self, kernel: Kernel) -> Components:
        """One Gaussian per secret: the release is the state."""
        law = kernel(self.secrets[0], self.states.mean[0])
        if not law.is_point or not is_identity(
            partial(_released, kernel), self.states.mean[0], self.secrets[0]
        ):
            raise TypeError(
                f"ObservedBelief is for sharing the whole state as it is, not a {type(law).__name__} law of "
                "something else. Use ParticleBelief or KalmanBelief for noisy releases."
            )
        return mixture_components(
            self.log_masses[:, None], jax.tree.map(lambda leaf: leaf[:, None], self.states)
        )

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["ObservedBelief", Health]:
        """Weigh by the density of x_t = y_t, then predict from it. Nothing is random.

        From a state that was not seen the prediction is linearised: exact for linear systems only.
        """
        del key
        effective = jnp.full_like(self.log_masses, jnp.inf)
        if shared is None:
            moved = jax.vmap(move, (None, 0, 0, None))(system, self.secrets, self.states, external)
            return type(self)(self.secrets, self.log_masses, moved), untouched(self.log_masses, effective)
        densities, foreseen = jax.vmap(_log_density, (0, None))(self.states, shared)
        most = jnp.max(jnp.where(densities > -jnp.inf, foreseen, 0))
        log_likelihood = floored(jnp.where(foreseen < most, -jnp.inf, densities))
        law = kernel(self.secrets[0], self.states.mean[0])
        log_likelihood = jnp.where(law.is_fresh, log_likelihood, 0.0)  # a repeated value says nothing
        log_masses, log_evidence, depleted = bayes_update(self.log_masses, log_likelihood)
        moved = jax.vmap(system.transition, (0, None, None))(self.secrets, shared, external)
        health = Health(log_evidence, log_likelihood, effective, depleted)
        return type(self)(self.secrets, log_masses, moved), health


def _released(kernel: Kernel, state: State, secret: Secret) -> Shared:
    law = kernel(secret, state)
    return law.sample(jnp.zeros(law.noise_size, state.dtype))


def _log_density(law: Gaussian, value: State) -> tuple[Scalar, Int[Array, ""]]:
    """Log density over the coordinates that have noise, and how many have none.

    −∞ if one without noise is elsewhere.
    """
    noise: list[Array] = []
    total = jnp.zeros_like(value[0])
    for i in range(value.shape[0]):
        known = law.mean[i] + sum((law.scale[i, j] * noise[j] for j in range(i)), jnp.zeros_like(total))
        sd = law.scale[i, i]
        tolerance = ROUND_OFF * jnp.finfo(value.dtype).eps * jnp.maximum(jnp.abs(known), 1.0)
        matches = jnp.abs(value[i] - known) <= tolerance
        safe = jnp.where(sd > 0, sd, 1.0)
        noise.append(jnp.where(sd > 0, (value[i] - known) / safe, 0.0))
        density = -0.5 * (noise[i] ** 2 + LOG_TWO_PI) - jnp.log(safe)
        total = total + jnp.where(sd > 0, density, jnp.where(matches, 0.0, -jnp.inf))
    return total, jnp.sum(jnp.diagonal(law.scale) <= 0.0)


class ObservedSpec(FilterSpec):
    """Transition densities as likelihoods, for sharing the whole state as it is."""

    def start(self, system: System, *, key: Key) -> ObservedBelief:
        """The belief at t = 1; it needs no randomness."""
        del key
        return ObservedBelief.start(system)
