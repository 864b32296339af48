"""The preview adversary: one extended Kalman filter per secret, a hundred times cheaper than particles."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.attacks.base import Attack, Evidence
from veil.attacks.guides import GaussianisedKernel
from veil.beliefs.kalman import KalmanBelief
from veil.beliefs.observed import ObservedBelief
from veil.laws import Kernel, Law
from veil.policies.base import Policy, Time, Wrapping
from veil.rollout import Trail, follow
from veil.step import Transcript
from veil.systems.base import System
from veil.types import External, Features, Key, Secret, State


class KalmanBank(Attack):
    """Exact where system and kernel are linear and Gaussian; elsewhere never a bound from above."""

    system: System
    policy: Policy

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Evidence of the whole transcript."""
        return _summed(self.trail(transcript, key=key))

    def trail(self, transcript: Transcript, *, key: Key) -> Trail:
        """The posterior after each release."""
        return follow(
            self.system, GaussianisedPolicy(self.policy), KalmanBelief.start(self.system), transcript, key=key
        )


class Observer(Attack):
    """Sees the state itself and weighs it by the transition densities: exact for noise-free sharing."""

    system: System
    policy: Policy

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Evidence of the whole transcript."""
        return _summed(self.trail(transcript, key=key))

    def trail(self, transcript: Transcript, *, key: Key) -> Trail:
        """The posterior after each release."""
        return follow(self.system, self.policy, ObservedBelief.start(self.system), transcript, key=key)


class GaussianisedPolicy(Wrapping):
    """A policy whose kernels are replaced by smooth ones, for filters that linearise."""

    inner: Policy

    def __init__(self, inner: Policy):
        self.inner = inner

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The inner kernel, made Gaussian."""
        return GaussianisedKernel(self.inner.kernel(features, external, time))


class MisspecifiedPolicy(Wrapping):
    """A policy as seen by an adversary whose model is another one than the owner's.

    The adversary's secret k is what the owner takes for `believed[k]`, and the owner sees the leading
    coordinates of the adversary's state.
    """

    inner: Policy
    model: System
    believed: Float[Array, "K P"]

    def __init__(self, inner: Policy, model: System, believed: Float[Array, "K P"]):
        self.inner, self.model, self.believed = inner, model, believed

    @property
    def system(self) -> System:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The model that the adversary uses."""
        return self.model

    def kernel(self, features: Features, external: External, time: Time) -> "MisspecifiedKernel":
        """The owner's kernel in the terms of the adversary."""
        inner = self.inner.kernel(features, external, time)
        size = len(self.inner.system.state_fields)
        return MisspecifiedKernel(inner, self.system.prior.secrets, self.believed, size)


class MisspecifiedKernel(Kernel):
    """The inner kernel at the owner's secret and the owner's part of the state."""

    inner: Kernel
    secrets: Float[Array, "K Q"]
    believed: Float[Array, "K P"]
    size: int = eqx.field(static=True)

    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the release."""
        index = jnp.argmin(jnp.sum((self.secrets - secret[None, :]) ** 2, axis=1))
        return self.inner(self.believed[index], state[: self.size])


def _summed(trail: Trail) -> Evidence:
    """Evidence of all steps together."""
    steps = trail.health.log_likelihood
    lost: Bool[Array, " K"] = jnp.any(trail.health.depleted, axis=0)
    total = jnp.where(lost, -1e6, jnp.sum(jnp.where(trail.health.depleted, 0.0, steps), axis=0))
    failed = ~jnp.all(jnp.isfinite(total)) | jnp.all(lost)
    total = jax.lax.stop_gradient(jnp.maximum(total - jnp.max(total), -1e6))
    return Evidence(jnp.nan_to_num(total, nan=-1e6), jnp.ones_like(total[0]), failed)
