"""The particle belief: K secrets × M weighted states, resampled inside each secret only.

The mass of a secret is carried exactly by its evidence estimate, so no secret is lost to resampling.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from veil import linalg
from veil.beliefs.base import (
    Belief,
    Cloud,
    FilterSpec,
    Health,
    bayes_update,
    condition,
    floored,
    mixture_components,
    release_line,
    untouched,
)
from veil.laws import Components, Gaussian, Kernel
from veil.resampling import effective_sample_size, systematic
from veil.systems.base import System
from veil.types import LOG_ZERO, External, Key, Noise, Scalar, Secret, Shared, State


class Particle(eqx.Module):
    """A state and the law that it was drawn from (None where the proposal does not ask for it)."""

    state: Float[Array, "*batch N"]
    origin: Gaussian | None


class Proposal(eqx.Module):
    """A way to choose the state of a particle after a release, with its importance weight."""

    @property
    @abc.abstractmethod
    def needs_origin(self) -> bool:
        """Whether the belief must keep the law that each state was drawn from."""

    @abc.abstractmethod
    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """The state to go on with and its log-weight, whose exponential has mean p(y | origin)."""


class Bootstrap(Proposal):
    """Keep the state of the particle; weigh by the density of the release."""

    @property
    def needs_origin(self) -> bool:
        """False: the state stays where it is."""
        return False

    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """The same state, and log K(y | θ, x)."""
        del noise
        return particle.state, kernel(secret, particle.state).log_prob(shared)


class Guided(Proposal):
    """Draw the state again from its origin given the release, with the kernel linearised there.

    The draw is made in the noise z of x = m + L z, so that degenerate origins need no special case: the
    linearised posterior of z is Gaussian with precision I + AᵀR⁻¹A, A = J L, which is never worse conditioned
    than the prior.
    """

    @property
    def needs_origin(self) -> bool:
        """True: the state is drawn again from its origin."""
        return True

    def __call__(
        self, kernel: Kernel, secret: Secret, particle: Particle, shared: Shared, noise: Noise
    ) -> tuple[State, Scalar]:
        """A fresh state, and log K(y | θ, x) + log N(z; 0, I) − log q(z)."""
        origin = particle.origin
        assert origin is not None  # kept by the belief because of `needs_origin`
        centre, root = condition(release_line(kernel, secret, origin), shared)
        move = centre + jnp.swapaxes(linalg.invert_lower(root), -1, -2) @ noise
        state = origin.sample(move)
        correction = 0.5 * (noise @ noise - move @ move - linalg.log_determinant(root))
        return state, kernel(secret, state).log_prob(shared) + correction


States = Float[Array, "K M N"]

LogWeights = Float[Array, "K M"]


class Scheme(eqx.Module):
    """How particles are carried on.

    `coupled` gives every secret the same random numbers: secrets that behave alike then have identical
    particles, differences between them are less noisy, and fewer numbers are drawn.
    """

    proposal: Proposal = Bootstrap()
    threshold: Float[Array, ""] = eqx.field(default=0.5, converter=jnp.asarray)  # of M, for the ESS
    resample: Callable = eqx.field(default=systematic, static=True)
    coupled: bool = eqx.field(default=True, static=True)


class ParticleBelief(Belief):
    """Weighted states per secret; `log_weights` are normalised within each secret."""

    secrets: Float[Array, "K P"]
    log_masses: Float[Array, " K"]
    states: States
    log_weights: LogWeights
    origin: Gaussian | None  # the law each state was drawn from, if the proposal asks for it
    scheme: Scheme

    def __check_init__(self):
        if self.states.shape[:2] != self.log_weights.shape:
            raise ValueError(
                "Give one log-weight per (secret, particle): expected "
                f"{self.states.shape[:2]}, got {self.log_weights.shape}."
            )

    @classmethod
    def start(
        cls, system: System, particles: int, *, key: Key, scheme: Scheme | None = None
    ) -> "ParticleBelief":
        """The belief at t = 1: `particles` states per secret from the initial law."""
        scheme = Scheme() if scheme is None else scheme
        prior = system.prior
        laws = jax.vmap(system.initial)(prior.secrets)
        noise = _noise(scheme, laws.mean.shape[0], (particles, laws.mean.shape[1]), laws.mean.dtype, key=key)
        states = jax.vmap(lambda law, numbers: jax.vmap(law.sample)(numbers))(laws, noise)
        origin = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], particles, axis=1), laws)
        log_weights = jnp.full(states.shape[:2], -jnp.log(float(particles)), states.dtype)
        kept = origin if scheme.proposal.needs_origin else None
        return cls(prior.secrets, prior.log_masses, states, log_weights, kept, scheme)

    @property
    def particle_count(self) -> int:
        """As many as there are weights."""
        return self.log_weights.shape[1]

    def cloud(self) -> Cloud:
        """All particles, secret by secret."""
        secrets = jnp.repeat(self.secrets, self.particle_count, axis=0)
        joint = (self.log_masses[:, None] + self.log_weights).reshape(-1)
        return secrets, self.states.reshape(-1, self.states.shape[2]), joint

    def moments(self) -> Gaussian:
        """Weighted mean and covariance of the states of each secret."""
        weights = jnp.exp(self.log_weights)
        mean = jnp.einsum("km,kmn->kn", weights, self.states)
        apart = jnp.swapaxes(self.states - mean[:, None, :], 1, 2)
        return Gaussian(mean, jax.vmap(linalg.triangular_root)(apart, weights))

    def components(self, kernel: Kernel) -> Components:
        """One component (or one per part of a mixture law) for each particle."""
        laws = _each(kernel)(self.secrets, self.states)
        return mixture_components(self.log_masses[:, None] + self.log_weights, laws)

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["ParticleBelief", Health]:
        """Weigh, resample the secrets whose effective sample size is low, move."""
        propose_key, resample_key, move_key = jr.split(key, 3)
        if shared is None:
            effective = jax.vmap(effective_sample_size)(self.log_weights)
            belief, health = self, untouched(self.log_masses, effective)
        else:
            belief, health = self._weigh(kernel, shared, key=propose_key)
        low = health.effective < self.scheme.threshold.astype(self.states.dtype) * self.states.shape[1]
        return belief._refresh(low, key=resample_key)._move(system, external, key=move_key), health

    def _weigh(self, kernel: Kernel, shared: Shared, *, key: Key) -> tuple["ParticleBelief", Health]:
        """Propose, multiply by the importance weights, and pass each secret's evidence to its mass."""
        noise = _noise(self.scheme, *_shape(self.states), self.states.dtype, key=key)
        propose = jax.vmap(jax.vmap(self.scheme.proposal, (None, None, 0, None, 0)), (None, 0, 0, None, 0))
        states, gains = propose(kernel, self.secrets, Particle(self.states, self.origin), shared, noise)
        joint = floored(self.log_weights + floored(gains))
        log_likelihood = logsumexp(joint, axis=1)
        log_masses, log_evidence, depleted = bayes_update(self.log_masses, log_likelihood)
        # Where nothing explains the release, the particles go on as equals.
        impossible = log_likelihood < 0.5 * LOG_ZERO
        log_weights = jnp.where(
            impossible[:, None], _uniform(joint), floored(joint - log_likelihood[:, None])
        )
        effective = jnp.where(impossible, 0.0, jax.vmap(effective_sample_size)(log_weights))
        belief = type(self)(self.secrets, log_masses, states, log_weights, None, self.scheme)
        return belief, Health(log_evidence, floored(log_likelihood), effective, depleted)

    def _refresh(self, low: Bool[Array, " K"], *, key: Key) -> "ParticleBelief":
        """Resample the marked secrets; the others keep particles and weights."""
        secrets, count = self.log_weights.shape
        keys = key if self.scheme.coupled else jr.split(key, secrets)
        resample = jax.vmap(
            lambda row, one: self.scheme.resample(row, key=one), (0, None if self.scheme.coupled else 0)
        )
        drawn = resample(jax.lax.stop_gradient(self.log_weights), keys)
        stay = jnp.arange(count, dtype=drawn.dtype)
        ancestors = jnp.where(low[:, None], drawn, stay[None, :])
        axes = [self.states[..., i] for i in range(self.states.shape[2])]
        chosen = [jnp.take_along_axis(axis, ancestors, axis=1, mode="promise_in_bounds") for axis in axes]
        states = linalg.from_columns(chosen)
        log_weights = jnp.where(low[:, None], _uniform(self.log_weights), self.log_weights)
        return type(self)(self.secrets, self.log_masses, states, log_weights, None, self.scheme)

    def _move(self, system: System, external: External, *, key: Key) -> "ParticleBelief":
        """Draw the next states from the transition laws."""
        noise = _noise(self.scheme, *_shape(self.states), self.states.dtype, key=key)

        def one(secret: Secret, state: State, numbers: Noise) -> tuple[list[Scalar], Gaussian]:
            law = system.transition(secret, state, external)
            return list(law.sample(numbers)), law

        coordinates, laws = jax.vmap(jax.vmap(one, (None, 0, 0)))(self.secrets, self.states, noise)
        states = linalg.from_columns(coordinates)
        kept = laws if self.scheme.proposal.needs_origin else None
        return type(self)(self.secrets, self.log_masses, states, self.log_weights, kept, self.scheme)


def _each(function: Callable) -> Callable:
    """`function(secret, state)` over [K] secrets and [K, M] states."""
    return jax.vmap(jax.vmap(function, (None, 0)))


def _shape(states: States) -> tuple[int, tuple[int, int]]:
    """Secrets, and (particles, size of a state)."""
    return states.shape[0], (states.shape[1], states.shape[2])


def _uniform(log_weights: LogWeights) -> LogWeights:
    """Equal normalised log-weights of the same shape."""
    return jnp.full_like(log_weights, -jnp.log(float(log_weights.shape[1])))


def _noise(scheme: Scheme, secrets: int, shape: tuple[int, int], dtype: jnp.dtype, *, key: Key) -> States:
    """Standard normal numbers per secret and particle, the same for all secrets if coupled."""
    if scheme.coupled:
        return jnp.broadcast_to(jr.normal(key, shape, dtype), (secrets, *shape))
    return jr.normal(key, (secrets, *shape), dtype)


class ParticleSpec(FilterSpec):
    """`count` particles per secret, by default guided: a bootstrap filter is poor where noise is small."""

    count: int = eqx.field(static=True)
    scheme: Scheme = eqx.field(default_factory=lambda: Scheme(proposal=Guided()))

    def start(self, system: System, *, key: Key) -> ParticleBelief:
        """Particles from the initial law."""
        return ParticleBelief.start(system, self.count, key=key, scheme=self.scheme)
