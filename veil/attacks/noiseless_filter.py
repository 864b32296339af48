"""Particles for releases without noise: what a release leaves open of the state is filtered."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.attacks.guides import (
    Aimed,
    Planned,
    Potential,
    Public,
    Quadratic,
    flat,
    pulled_back,
)
from veil.attacks.particle_filter import ParticleFilter, Particles, ReferencePath, StepNoise, refresh
from veil.beliefs.innovations import compare_along
from veil.beliefs.kalman import move
from veil.laws import Gaussian, recovered
from veil.policies.base import Policy
from veil.step import noiseless_release
from veil.systems.base import System
from veil.types import External, Scalar, Secret, Shared, State


class Matched(eqx.Module):
    """What a release leaves open of a state that comes from a Gaussian law.

    The origin gives the state m + A z. The release tells `axes` · z and nothing else. A repeated release
    tells nothing.
    """

    law: Gaussian  # of the state, given the release; as a function of all of z
    scores: Float[Array, " Y"]
    axes: Float[Array, "Y N"]
    log_density: Scalar


def match(policy: Policy, secret: Secret, origin: Gaussian, public: Public) -> Matched:
    """Compare a release with the law that the state comes from.

    Args:
        policy: the policy in force.
        secret: θ.
        origin: the law of the state before the release.
        public: the step.
    """

    def release(state: State) -> Shared:
        return noiseless_release(policy, secret, state, public.features, public.external, public.time)

    used: Bool[Array, ""] = public.active & public.kernel(policy)(secret, origin.mean).is_fresh
    after, found, axes = compare_along(release, origin, public.shared)
    after = jax.tree.map(lambda new, old: jnp.where(used, new, old), after, origin)
    told = (found.scores, axes, jnp.sum(found.log_density))
    return Matched(after, *(jnp.where(used, one, 0.0) for one in told))


class Ahead(Planned):
    """Particles are aimed at the releases after this one: ψ_t(x) ≈ p(y_{t+1}..y_T | x_t = x, θ).

    Where the system is linear in what the releases leave open, the potentials are exact.
    """

    def filtered(self, system: System, policy: Policy, secret: Secret, public: Public) -> Float[Array, "T N"]:
        """Of the states, given releases without noise."""

        def step(origin: Gaussian, now: Public) -> tuple[Gaussian, State]:
            law = match(policy, secret, origin, now).law
            return move(system, secret, law, now.external), law.mean

        return jax.lax.scan(step, system.initial(secret), public)[1]

    def smoothed(
        self, system: System, policy: Policy, secret: Secret, public: Public, plan: Quadratic
    ) -> Float[Array, "T N"]:
        """Each state from the law that its release leaves."""

        def step(origin: Gaussian, now: tuple[Quadratic, Public]) -> tuple[Gaussian, State]:
            potential, public = now
            law = match(policy, secret, origin, public).law
            state = law.sample(potential.aim(law).mean)
            return system.transition(secret, state, public.external), state

        return jax.lax.scan(step, system.initial(secret), (plan, public))[1]

    def backward(
        self, system: System, policy: Policy, secret: Secret, public: Public, path: Float[Array, "T N"]
    ) -> Quadratic:
        """The density of the next release, and the way to those after it; the last potential is flat."""

        def step(later: Quadratic, now: tuple[External, State, Public]) -> tuple[Quadratic, Quadratic]:
            external, state, following = now
            scale = system.transition(secret, state, external).scale

            def forecast(at: State) -> tuple[State, Array]:
                origin = Gaussian(system.transition(secret, at, external).mean, scale)
                found = match(policy, secret, origin, following)
                return found.law.mean, found.scores

            found = match(policy, secret, system.transition(secret, state, external), following)
            slope, miss = jax.jacfwd(forecast)(state)
            beyond = pulled_back(found.law, slope, state, later)
            precision, pull = miss.T @ miss, -miss.T @ found.scores
            potential = Quadratic(state, precision + beyond.precision, pull + beyond.pull)
            return potential, potential

        last = flat(path[-1])
        later = jax.tree.map(lambda leaf: leaf[1:], public)
        found = jax.lax.scan(step, last, (public.external[:-1], path[:-1], later), reverse=True)[1]
        return jax.tree.map(lambda leaf, end: jnp.concatenate([leaf, end[None]]), found, last)


class NoiselessFilter(ParticleFilter):
    """A particle filter for releases that are affine in the state and have no noise of their own.

    A particle comes from a Gaussian law, its origin. The density of an affine release given the origin is
    known, and so is the law of the state given both. A particle is weighed by the one before anything is
    drawn, and its state is drawn from the other, aimed by the guide. The guide may linearise; the weights do
    not, so that both estimates of `ParticleFilter` are proper: E p̂ = p(y|θ), and E[1/p̂] = 1/p(y|θ) where
    the true path is kept. A repeated release weighs nothing and leaves the whole state open.
    """

    def _step(
        self,
        secret: Secret,
        before: Particles,
        public: Public,
        plan: Potential | None,
        reference: ReferencePath | None,
        noise: StepNoise,
    ) -> Particles:
        """Weigh by the density of the release, keep the promising, and draw what the release leaves open."""
        kernel = public.kernel(self.policy)

        def aimed(origin: Gaussian) -> tuple[Matched, Aimed]:
            found = match(self.policy, secret, origin, public)
            return found, self.guide.potential(plan, kernel, secret, found.law, public).aim(found.law)

        found, aims = jax.vmap(aimed)(before.origins)
        outlook = found.log_density + aims.log_mass
        kept = refresh(before, outlook, noise.comb, None if reference is None else reference.on)
        found, aims = jax.vmap(aimed)(kept.origins)
        z = jax.vmap(lambda one, *coins: one.draw(*coins))(aims, noise.moves, noise.defence)
        if reference is not None:
            origin, axes = jax.tree.map(lambda leaf: leaf[0], (kept.origins, found.axes))
            # What the release tells of z has no part in the law of the state any more: it is free.
            open_ = recovered(origin, reference.state, noise.free) - noise.free
            own = noise.free + open_ - axes.T @ (axes @ open_)
            z = z.at[0].set(jnp.where(reference.on, own, z[0]))
        states = jax.vmap(Gaussian.sample)(found.law, z)
        if reference is not None:
            states = states.at[0].set(jnp.where(reference.on, reference.state, states[0]))
        log_weights = (
            kept.log_weights + found.log_density + jax.vmap(lambda one, own: one.log_correction(own))(aims, z)
        )
        origins = jax.vmap(self.system.transition, (None, 0, None))(secret, states, public.external)
        return Particles(states, origins, log_weights)
