"""Sequential Monte Carlo estimates of p(y_1..y_T | θ), and their conditional form.

The plain run gives p̂ with E p̂ = p(y|θ), so E log p̂ ≤ log p. The pinned run keeps the true path as its
particle 0; if that path is a draw from p(x | y, θ), which it is in a simulation, then E[1/p̂] = 1/p and
E log p̂ ≥ log p. Whatever the guide, the two enclose the truth.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from veil.attacks.base import Attack, Attacker, Evidence, has_filter
from veil.attacks.guides import Aimed, Guide, Potential, Public, Unguided
from veil.laws import Gaussian, Law, recovered
from veil.policies.base import Policy
from veil.registry import ATTACKS
from veil.resampling import effective_sample_size, scaled_weights, systematic_at
from veil.step import Transcript
from veil.systems.base import System
from veil.types import Key, Scalar, Secret, State

THRESHOLD = 0.5  # resample where the effective share of particles is below this

BOOTSTRAP = 324  # particles per secret of the filter shown for comparison

FEW = 256  # episodes for what is slow


class Particles(eqx.Module):
    """M particles: where they are, the law each comes from next, and log-weights that are not normalised."""

    states: Float[Array, "M N"]
    origins: Gaussian
    log_weights: Float[Array, " M"]


class Estimate(eqx.Module):
    """What one run found."""

    log_likelihood: Scalar
    effective: Scalar  # smallest effective share of particles after weighing
    particles: Particles  # after the last release


class StepNoise(eqx.Module):
    """The random numbers of one step, or of all (batched [T]).

    Drawn before the run: inside the loop the compiler would draw them again for every secret.
    """

    comb: Float[Array, "*T"]
    moves: Float[Array, "*T M N"]
    defence: Float[Array, "*T M"]
    free: Float[Array, "*T N"]


class ReferencePath(eqx.Module):
    """The path that particle 0 keeps, batched [T]."""

    state: Float[Array, "*T N"]
    on: Bool[Array, "*T"]


def public_steps(transcript: Transcript, length: Int[Array, ""] | int | None = None) -> Public:
    """The steps of a transcript; beyond `length` releases nothing is used."""
    times = jnp.arange(1, transcript.shared.shape[0] + 1, dtype=jnp.int32)
    active = times <= (times.shape[0] if length is None else length)
    return Public(times, transcript.external, transcript.shared, transcript.features, active)


class ParticleFilter(eqx.Module):
    """A particle filter for one secret at a time.

    Attributes:
        system: the adversary's model.
        policy: the policy in force.
        guide: how particles are aimed.
        particles: M.
    """

    system: System
    policy: Policy
    guide: Guide
    particles: int = eqx.field(static=True)

    def __call__(
        self,
        secret: Secret,
        public: Public,
        plan: Potential | None,
        reference: ReferencePath | None = None,
        *,
        key: Key,
    ) -> Estimate:
        """Estimate p(y_1..y_T | θ).

        Args:
            secret: θ.
            public: the transcript, batched [T].
            plan: `guide.plan` for this secret and transcript.
            reference: the true path, for a conditional run.
            key: the adversary's randomness; the same for all secrets (common random numbers).
        """

        def step(before: Particles, now: tuple[Public, Potential | None, ReferencePath | None, StepNoise]):
            particles = self._step(secret, before, *now)
            return particles, effective_sample_size(particles.log_weights)

        start = self._start(secret)
        noise = draw_noise(public.time.shape[0], start, key=key)
        last, effective = jax.lax.scan(step, start, (public, plan, reference, noise))
        return Estimate(logsumexp(last.log_weights), jnp.min(effective) / self.particles, last)

    def _start(self, secret: Secret) -> Particles:
        law = self.system.initial(secret)
        origins = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.particles, *leaf.shape)), law)
        level = jnp.full(self.particles, -math.log(self.particles), law.mean.dtype)
        return Particles(origins.mean, origins, level)

    def _step(
        self,
        secret: Secret,
        before: Particles,
        public: Public,
        plan: Potential | None,
        reference: ReferencePath | None,
        noise: StepNoise,
    ) -> Particles:
        """Keep the promising, draw each where it is aimed at, weigh, and look where it comes from next."""
        kernel = public.kernel(self.policy)

        def aimed(origin: Gaussian) -> Aimed:
            return self.guide.potential(plan, kernel, secret, origin, public).aim(origin)

        def weigh(state: State, correction: Scalar) -> Scalar:
            gain = kernel(secret, state).log_prob(public.shared) + correction
            return jnp.where(public.active, gain, 0.0)

        outlook = jax.vmap(aimed)(before.origins).log_mass
        kept = refresh(before, outlook, noise.comb, None if reference is None else reference.on)
        states, corrections = _propose(kept.origins, jax.vmap(aimed)(kept.origins), reference, noise)
        log_weights = kept.log_weights + jax.vmap(weigh)(states, corrections)
        origins = jax.vmap(self.system.transition, (None, 0, None))(secret, states, public.external)
        return Particles(states, origins, log_weights)


def draw_noise(steps: int, particles: Particles, *, key: Key) -> StepNoise:
    """All random numbers of a run."""
    comb_key, noise_key, defence_key, free_key = jr.split(key, 4)
    (count, size), dtype = particles.states.shape, particles.states.dtype
    noise = StepNoise(
        jr.uniform(comb_key, (steps,), dtype),
        jr.normal(noise_key, (steps, count, size), dtype),
        jr.uniform(defence_key, (steps, count), dtype),
        jr.normal(free_key, (steps, size), dtype),
    )
    return jax.lax.optimization_barrier(noise)


def refresh(
    particles: Particles, outlook: Float[Array, " M"], uniform: Scalar, pinned: Bool[Array, ""] | None
) -> Particles:
    """Resample by weight and outlook where few particles carry them; the sum of the weights stays true.

    Systematic and cyclic: slot i looks at the point (V + i/M) mod 1. Pinned, V is uniform on the share of
    particle 0, which therefore stays in slot 0: this is the law of the others given that it does.

    Args:
        particles: before the release.
        outlook: logarithm of what each is worth at this step.
        uniform: the random number V, on (0, 1).
        pinned: whether particle 0 stays; None where it never does.
    """
    count = outlook.shape[0]
    promise = particles.log_weights + outlook
    weights = scaled_weights(promise)
    keep = jnp.asarray(False) if pinned is None else pinned
    where = jnp.where(keep, uniform * weights[0] / jnp.sum(weights), uniform) * count
    first = jnp.minimum(jnp.floor(where), count - 1)
    comb = systematic_at(promise, where - first)
    slots = jnp.arange(count, dtype=jnp.int32)
    ancestors = comb[(slots + first.astype(jnp.int32)) % count]
    ancestors = jnp.where(keep & (slots == 0), 0, ancestors)
    few = effective_sample_size(promise) < THRESHOLD * count
    ancestors = jnp.where(few, ancestors, slots)
    level = logsumexp(promise) - math.log(count) - outlook[ancestors]
    log_weights = jnp.where(few, level, particles.log_weights)
    return Particles(
        particles.states, jax.tree.map(lambda leaf: leaf[ancestors], particles.origins), log_weights
    )


def _propose(
    origins: Gaussian, aimed: Aimed, reference: ReferencePath | None, noise: StepNoise
) -> tuple[Float[Array, "M N"], Float[Array, " M"]]:
    """New states and log(origin density / proposal density), particle 0 where it is pinned."""
    z = jax.vmap(lambda one, *coins: one.draw(*coins))(aimed, noise.moves, noise.defence)
    if reference is not None:
        origin = jax.tree.map(lambda leaf: leaf[0], origins)
        z = z.at[0].set(jnp.where(reference.on, recovered(origin, reference.state, noise.free), z[0]))
    return jax.vmap(Gaussian.sample)(origins, z), jax.vmap(lambda one, own: one.log_correction(own))(aimed, z)


class Bayes(Attack):
    """Knows the system and the policy and weighs the secrets by their likelihood.

    Secrets are never resampled against each other, and all filters use the same random numbers, so that
    what they have in common cancels in the posterior.
    """

    filter: ParticleFilter

    def __init__(self, system: System, policy: Policy, guide: Guide, particles: int):
        self.filter = ParticleFilter(system, policy, guide, particles)

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """One run per secret."""
        public = public_steps(transcript)
        return evidence(runs(self.filter, public, plans(self.filter, public), key=key))


def plans(particle_filter: ParticleFilter, public: Public) -> Potential | None:
    """The plans of all secrets, batched [K]."""
    secrets = particle_filter.system.prior.secrets
    return jax.vmap(
        lambda secret: particle_filter.guide.plan(
            particle_filter.system, particle_filter.policy, secret, public
        )
    )(secrets)


def runs(particle_filter: ParticleFilter, public: Public, plan: Potential | None, *, key: Key) -> Estimate:
    """One estimate per secret, batched [K]."""
    return jax.vmap(lambda secret, own: particle_filter(secret, public, own, key=key))(
        particle_filter.system.prior.secrets, plan
    )


def evidence(estimates: Estimate) -> Evidence:
    """What the estimates of all secrets say together."""
    found = estimates.log_likelihood
    failed = ~jnp.all(jnp.isfinite(found))
    shift = jnp.where(jnp.isfinite(jnp.max(found)), jnp.max(found), 0.0)
    return Evidence(floored(found - shift), jnp.min(estimates.effective), failed)


def floored(log_likelihood: Float[Array, " K"]) -> Float[Array, " K"]:
    """Very unlikely in place of impossible or unknown, so that a posterior can be formed."""
    return jnp.maximum(jnp.nan_to_num(log_likelihood, nan=-1e6, neginf=-1e6, posinf=0.0), -1e6)


@ATTACKS.register("bootstrap filter")
def bootstrap_filters(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """A particle filter that is not guided by the releases, for comparison."""
    if not has_filter(policy, law):
        return ()
    note = f"{BOOTSTRAP} particles per secret"
    return (
        Attacker(
            "bootstrap filter",
            "attack",
            lambda _: Bayes(system, policy, Unguided(), BOOTSTRAP),
            FEW,
            note,
        ),
    )
