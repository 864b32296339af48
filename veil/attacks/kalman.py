"""The preview adversary: one extended Kalman filter per secret, a hundred times cheaper than particles."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float

from veil.attacks.base import Attack, Attacker, Evidence, has_filter
from veil.attacks.guides import GaussianisedKernel, Public
from veil.attacks.particle_filter import public_steps
from veil.beliefs.innovations import innovations
from veil.beliefs.kalman import KalmanBelief
from veil.beliefs.observed import ObservedBelief
from veil.laws import Kernel, Law
from veil.policies.base import Policy, Time, Wrapping
from veil.policies.geometry import output_noise
from veil.policies.plain import GaussianNoise
from veil.registry import ATTACKS
from veil.rollout import Trail, follow
from veil.step import Record, Transcript, noiseless_release, sees_state
from veil.systems.base import System
from veil.systems.variants import KnownStart, WithInitial, WithNoise
from veil.types import External, Features, Key, Secret, Shared, State


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

    def log_densities(self, transcript: Transcript) -> Float[Array, "K T"]:
        """Log density of each release given those before, per secret."""
        return self.trail(transcript, key=jr.key(0)).health.log_likelihood.T  # nothing is random


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


class NoiselessBank(Attack):
    """One Gaussian filter per secret for releases without noise: exact if all is linear, else linearised."""

    system: System
    policy: Policy

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Evidence of the whole transcript."""
        del key
        total = jnp.sum(self.log_densities(transcript), axis=1)
        failed = ~jnp.all(jnp.isfinite(total))
        total = jnp.maximum(jnp.nan_to_num(total - jnp.max(total), nan=-1e6), -1e6)
        return Evidence(jax.lax.stop_gradient(total), jnp.ones_like(total[0]), failed)

    def log_densities(self, transcript: Transcript) -> Float[Array, "K T"]:
        """Log density of each release given those before, per secret."""
        steps = public_steps(transcript)

        def one(secret: Secret) -> Float[Array, " T"]:
            def output(state: State, now: Public) -> Shared:
                known = now.features, now.external, now.time
                return noiseless_release(self.policy, secret, state, *known)

            found = innovations(
                self.system, secret, steps.shared, steps.external, steps.active, output, steps
            )
            return jnp.sum(found.log_density, axis=1)

        return jax.vmap(one)(self.system.prior.secrets)


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

    def before_rounding(self) -> "MisspecifiedKernel":
        """The same around a kernel that does not round the state."""
        inner = self.inner.before_rounding()
        return MisspecifiedKernel(inner, self.secrets, self.believed, self.size)

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


@ATTACKS.register("exact observer")
def exact_observers(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """The state itself, where it is shared without noise."""
    if policy.has_memory or not law.is_point or not sees_state(system, policy):
        return ()
    return (Attacker("exact observer", "attack", lambda _: Observer(system, policy)),)


@ATTACKS.register("noise-free Kalman bank")
def noiseless_banks(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """One Gaussian filter per secret where something else than the whole state is shared without noise."""
    held = law.fresh_law() is not law
    if policy.has_memory or held or not law.is_point or sees_state(system, policy):
        return ()
    return (Attacker("noise-free Kalman bank", "attack", lambda _: NoiselessBank(system, policy)),)


@ATTACKS.register("Kalman bank")
def kalman_banks(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """One extended Kalman filter per secret."""
    if not has_filter(policy, law):
        return ()
    return (Attacker("Kalman bank", "attack", lambda _: KalmanBank(system, policy)),)


@ATTACKS.register("takes data for true")
def trusting_banks(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """A reader who takes the releases for the truth, up to a tenth of one step's noise."""
    del policy, law
    spread = output_noise(system)
    believed = GaussianNoise(system, jnp.where(spread > 0, 0.1 * spread, 1e-3))
    return (Attacker("takes data for true", "mismatched", lambda _: KalmanBank(system, believed)),)


@ATTACKS.register("wrong models")
def misspecified_banks(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """Kalman banks whose model of the system is wrong."""
    if not has_filter(policy, law):
        return ()
    models = {"noise is double": WithNoise(system, 2.0), "start is wider": WithInitial(system, spread=2.0)}

    def bank(name: str, model: System) -> Attacker:
        seen = MisspecifiedPolicy(policy, model, policy.system.prior.secrets)
        return Attacker(f"thinks {name}", "mismatched", lambda _: KalmanBank(model, seen))

    return tuple(bank(name, model) for name, model in {**models, **system.misspecified_models()}.items())


class KnowingBank(eqx.Module):
    """Makes a Kalman bank that knows the first state of its episode."""

    system: System
    policy: Policy

    def __call__(self, record: Record) -> KalmanBank:
        """The bank for one episode."""
        return KalmanBank(KnownStart(self.system, record.states[0]), self.policy)


@ATTACKS.register("knows the first state")
def knowing_banks(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """A Kalman bank that knows the first state."""
    if not has_filter(policy, law):
        return ()

    return (Attacker("knows the first state", "assisted", KnowingBank(system, policy)),)
