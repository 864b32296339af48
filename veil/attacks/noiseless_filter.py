"""Particles for releases without noise: what a release leaves open of the state is filtered."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from veil.attacks.guides import Potential, Public
from veil.attacks.particle_filter import ParticleFilter, Particles, ReferencePath, StepNoise, refresh
from veil.beliefs.innovations import compare
from veil.laws import Gaussian
from veil.step import noiseless_release
from veil.types import Scalar, Secret, Shared, State


class NoiselessFilter(ParticleFilter):
    """A particle filter for releases that are affine in the state and have no noise of their own.

    A particle comes from a Gaussian law, its origin. The density of an affine release given the origin is
    known, and so is the law of the state given both. A particle is weighed by the one before anything is
    drawn, and its state is drawn from the other. Nothing is linearised, so that both estimates of
    `ParticleFilter` are proper: E p̂ = p(y|θ), and E[1/p̂] = 1/p(y|θ) where the true path is kept.
    A repeated release weighs nothing and leaves the whole state open. The guide is not used.
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
        del plan
        known = public.features, public.external, public.time
        law = public.kernel(self.policy)(secret, before.states[0])
        used: Bool[Array, ""] = public.active & law.is_fresh

        def release(state: State) -> Shared:
            return noiseless_release(self.policy, secret, state, *known)

        def matched(origin: Gaussian) -> tuple[Gaussian, Scalar]:
            after, found = compare(release, origin, public.shared)
            after = jax.tree.map(lambda new, old: jnp.where(used, new, old), after, origin)
            return after, jnp.where(used, jnp.sum(found.log_density), 0.0)

        outlook = jax.vmap(matched)(before.origins)[1]
        kept = refresh(before, outlook, noise.comb, None if reference is None else reference.on)
        laws, densities = jax.vmap(matched)(kept.origins)
        states = jax.vmap(Gaussian.sample)(laws, noise.moves)
        if reference is not None:
            states = states.at[0].set(jnp.where(reference.on, reference.state, states[0]))
        origins = jax.vmap(self.system.transition, (None, 0, None))(secret, states, public.external)
        return Particles(states, origins, kept.log_weights + densities)
