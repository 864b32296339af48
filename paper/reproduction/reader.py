"""What a reader of the releases knows: the posterior of the secret, and the mean of the state.

The reader is the same for every column: one particle filter per secret that knows the policy and weighs by
the kernels that were published, as the paper's does. Where the state is shared as it is, the transition
densities are the likelihood and no particle is needed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from paper.reproduction.adapt import at_rest
from veil.attacks.kalman import Observer
from veil.beliefs.particles import Guided, ParticleBelief, Scheme
from veil.policies.base import Policy
from veil.step import Record, Transcript, release_kind
from veil.systems.platoon import Platoon
from veil.types import Key

TOGETHER = 4  # episodes that particles take on at once: what fits a processor's cache


class Reading(eqx.Module):
    """After each release of one episode, or of many (batched [E])."""

    log_masses: Float[Array, "*E T K"]
    means: Float[Array, "*E T N"]  # E[x_t | y_1..y_t]


class Reader(eqx.Module):
    """Particles per secret, guided where the release laws are smooth."""

    system: Platoon
    policy: Policy
    particles: int = eqx.field(static=True)
    finite: bool = eqx.field(static=True)

    def __init__(self, system: Platoon, policy: Policy, particles: int):
        self.system = system
        self.policy = policy
        self.particles = particles
        self.finite = release_kind(system, policy).is_finite

    def __call__(self, transcript: Transcript, *, key: Key) -> Reading:
        """Read one transcript."""
        if self.policy.shares_truth:
            trail = Observer(self.system, self.policy).trail(transcript, key=key)
            return Reading(trail.log_masses, transcript.shared)
        start_key, run_key = jr.split(key)
        scheme = Scheme() if self.finite else Scheme(proposal=Guided())
        first = ParticleBelief.start(self.system, self.particles, key=start_key, scheme=scheme)
        times = jnp.arange(1, transcript.shared.shape[0] + 1, dtype=jnp.int32)
        public = (times, transcript.external, transcript.shared, transcript.features)
        still = at_rest(self.system)

        def step(belief: ParticleBelief, now: tuple[tuple[Array, ...], Key]):
            (time, external, shared, features), own_key = now
            weigh_key, move_key = jr.split(own_key)
            kernel = self.policy.kernel(features, external, time)
            # In two halves, because the mean of x_t is wanted between weighing and moving.
            informed, _ = belief.update(still, kernel, external, shared, key=weigh_key)
            mean = jnp.exp(informed.log_masses) @ informed.moments().mean
            moved, _ = informed.update(self.system, kernel, external, None, key=move_key)
            return moved, (informed.log_masses, mean)

        keys = jr.split(run_key, times.shape[0])
        return Reading(*jax.lax.scan(step, first, (public, keys))[1])


@eqx.filter_jit
def read_batch(reader: Reader, records: Record, numbers: Int[Array, " B"], key: Key) -> Reading:
    """Read these transcripts."""

    def one(both: tuple[Record, Int[Array, ""]]) -> Reading:
        record, number = both
        return reader(record.public, key=jr.fold_in(key, number))

    return jax.lax.map(one, (records, numbers), batch_size=TOGETHER)
