"""Particles for releases without noise: what a release leaves open of the state is filtered."""

import jax
import jax.numpy as jnp

from veil.attacks.ahead import Matched, match
from veil.attacks.guides import Aimed, Potential, Public
from veil.attacks.particle_filter import ParticleFilter, Particles, ReferencePath, StepNoise, refresh
from veil.laws import Gaussian, recovered
from veil.types import Secret


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
