"""The ladder: ways to bound the leakage of a policy from both sides, from the cheapest upwards."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from veil.attacks.guides import Local, Twisted, Unguided
from veil.attacks.kalman import Observer
from veil.attacks.smc import Filter
from veil.auditing.sandwich import APART, Sides, both_sides
from veil.laws import Gaussian, Held, Mixture
from veil.policies import GaussianNoise, Policy, PrivatePolicy
from veil.policies.metric import output_noise
from veil.releases import exact_release, release_kind, sees_state
from veil.rollout import Record, rollout
from veil.systems.base import System
from veil.types import Key, Scalar

AGREE = 1e-7  # releases this close, relative to their size, are the same release up to round-off


class Rung(eqx.Module):
    """One way to bound the leakage of an episode from both sides."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it does, in a few words."""

    @property
    @abc.abstractmethod
    def particles(self) -> int:
        """Per secret; 0 where the answer is exact."""

    @abc.abstractmethod
    def sides(self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool) -> Sides:
        """Both sides of the first `length` releases.

        Args:
            record: the episode.
            length: how many releases count.
            play_key: the private randomness that the episode was played with.
            key: the auditor's randomness.
            apart: whether components of the secret will be asked for.
        """


class ParticleRung(Rung):
    """One particle filter per secret, and one that keeps the true path."""

    label: str = eqx.field(static=True)
    filter: Filter

    @property
    def name(self) -> str:
        """The kind of guide."""
        return self.label

    @property
    def particles(self) -> int:
        """Per secret."""
        return self.filter.particles

    def sides(self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool) -> Sides:
        """By `both_sides`."""
        del play_key
        return both_sides(self.filter, record, length, key=key, apart=apart)


class ObservedRung(Rung):
    """Noise-free sharing of the whole state: the transition densities are the likelihood, exactly."""

    system: System
    policy: Policy

    @property
    def name(self) -> str:
        """Exact."""
        return "exact transition densities"

    @property
    def particles(self) -> int:
        """None."""
        return 0

    def sides(self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool) -> Sides:
        """The two sides are one."""
        del play_key
        trail = Observer(self.system, self.policy).trail(record.public, key=key)
        steps = trail.health.log_likelihood
        used = (jnp.arange(steps.shape[0], dtype=jnp.int32) < length)[:, None]
        exact = jnp.sum(jnp.where(used, steps, 0.0), axis=0)
        return _exact_sides(exact, exact[record.index], record, apart)


class CoupledRung(Rung):
    """A policy with private memory that releases the same under every secret, given the same noise.

    The episode is played again under each secret with the same private randomness. Let D say that all these
    transcripts agree; D is a function of noise and hence independent of the secret, so
    I ≤ P(D) · 0 + P(not D) · H(q): an episode that agrees tells nothing, any other may tell all.
    """

    system: System
    policy: PrivatePolicy

    @property
    def name(self) -> str:
        """By construction."""
        return "coupling of all secrets"

    @property
    def particles(self) -> int:
        """None."""
        return 0

    def sides(self, record: Record, length: Int[Array, ""], *, play_key: Key, key: Key, apart: bool) -> Sides:
        """Zero where all transcripts agree, unknown elsewhere."""
        del key
        steps, secrets = record.public.shared.shape[0], self.system.prior.secrets

        def again(index: Int[Array, ""]):
            seed = record.public.public_seed
            return rollout(
                self.system, self.policy, steps, public_seed=seed, key=play_key, index=index
            ).public

        found = jax.vmap(again)(jnp.arange(secrets.shape[0], dtype=jnp.int32))
        gaps = _gap(found.shared, record.public.shared) + _gap(found.external, record.public.external)
        used = jnp.arange(steps, dtype=jnp.int32) < length
        agree = jnp.all(jnp.where(used, gaps, 0.0) <= AGREE)
        zeros = jnp.zeros_like(self.system.prior.log_masses)
        return _exact_sides(zeros, jnp.where(agree, 0.0, jnp.nan), record, apart)


def ladder(system: System, policy: Policy | PrivatePolicy) -> tuple[Rung, ...]:
    """The ways that apply to this policy, best first; none where nothing bounds it from above."""
    if isinstance(policy, PrivatePolicy):
        return (CoupledRung(system, policy),)
    law, on_grid = release_kind(system, policy)
    if exact_release(law):
        return (ObservedRung(system, policy),) if sees_state(system, policy) else ()
    inner = law.inner if isinstance(law, Held) else law
    if isinstance(inner, Gaussian | Mixture) or on_grid:
        return (
            ParticleRung("twisted particles", Filter(system, policy, Twisted(), 128)),
            ParticleRung("twisted particles", Filter(system, policy, Twisted(), 512)),
            ParticleRung("guided particles", Filter(system, policy, Local(), 512)),
        )
    return (
        ParticleRung("bootstrap particles", Filter(system, policy, Unguided(), 128)),
        ParticleRung("bootstrap particles", Filter(system, policy, Unguided(), 1296)),
    )


def believes_data(system: System) -> GaussianNoise:
    """What a reader assumes who takes the releases for the truth, up to a tenth of one step's noise."""
    spread = output_noise(system)
    return GaussianNoise(system, jnp.where(spread > 0, 0.1 * spread, 1e-3))


def _gap(found: Array, given: Array) -> Array:
    """Largest relative difference over secrets and coordinates, per step."""
    apart = jnp.abs(found - given[None]) / (1.0 + jnp.abs(given[None]))
    return jnp.max(jnp.nan_to_num(apart, nan=jnp.inf), axis=(0, 2))


def _exact_sides(likelihood: Array, pinned: Scalar, record: Record, apart: bool) -> Sides:
    runs = jnp.broadcast_to(likelihood, (APART + apart, *likelihood.shape))
    return Sides(runs, pinned, jnp.ones_like(pinned), jnp.full(record.states.shape[1:], 0.5, pinned.dtype))
