"""What a kernel on a grid will be charged: this step as the belief expects it, the rest as a critic does."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float, Int

from veil.beliefs.particles import ParticleBelief
from veil.leakage.finite import finite_information
from veil.policies.base import Time
from veil.policies.grid import GridPolicy, TableKernel
from veil.policies.scaling import Scaling
from veil.problem import EpisodeState, Objective
from veil.step import public_key
from veil.types import External, Features, Key, Scalar, Secret, State

Table = Float[Array, "K C J"]


class Critic(eqx.Module):
    """What is still to be charged: a network's guess per step, times the steps that are left.

    It sees what the policy sees: the features, the external input and the time.
    """

    network: eqx.nn.MLP
    steps: int = eqx.field(static=True)

    def __call__(self, features: Features, external: External, time: Time, scaling: Scaling) -> Scalar:
        """The value before the release of step `time`; zero after the last one."""
        guess = self.network(jnp.concatenate([features, scaling.public(external, time)]))
        return jnp.maximum(self.steps + 1 - time, 0).astype(features.dtype) * guess[0]


class Transition(eqx.Module):
    """What was public before a release, and what the particles and the world will do next.

    Attributes:
        belief: before the release.
        after: states of the same particles one step later.
        cells: of the particles.
        paid: cost and priced distortion of each particle, should it share this atom.
        external: before the release.
        time: of the release.
        noise: of the answer to it.
    """

    belief: ParticleBelief
    after: Float[Array, "K M N"]
    cells: Int[Array, "K M"]
    paid: Float[Array, "K M J"]
    external: External
    time: Time
    noise: Float[Array, " n"]


def staged(
    policy: GridPolicy,
    objective: Objective,
    play: EpisodeState,
    kernel: TableKernel,
    *,
    seed: Array,
    key: Key,
) -> Transition:
    """The next step, prepared: particles are moved by the public randomness that the real step will use."""
    belief, situation, system = play.belief, play.situation, policy.system
    assert isinstance(belief, ParticleBelief)
    # A belief that sees no release neither weighs nor resamples: its particles stay who they are.
    after, _ = belief.update(system, kernel, situation.external, None, key=public_key(seed, situation.time))

    def paid(secret: Secret, state: State, later: State) -> Float[Array, " J"]:
        def one(atom: Array) -> Scalar:
            distortion = system.distortion(state, atom) - objective.distortion_limit
            cost = system.total_cost(secret, state, later, atom, situation.external)
            return cost + objective.distortion_price * distortion

        return jax.vmap(one)(kernel.atoms)

    return Transition(
        belief,
        after.states,
        jax.vmap(jax.vmap(kernel.cell))(belief.states),
        jax.vmap(jax.vmap(paid, (None, 0, 0)))(belief.secrets, belief.states, after.states),
        situation.external,
        situation.time,
        jr.normal(key, (system.reaction_noise_size,), situation.external.dtype),
    )


def occupied(transition: Transition, count: int) -> Bool[Array, "K C"]:
    """Which of the cells hold particles, per secret."""
    none = jnp.zeros((transition.cells.shape[0], count), bool)
    return jax.vmap(lambda row, cells: row.at[cells].set(True))(none, transition.cells)


def charged(objective: Objective, transition: Transition, table: Table) -> Scalar:
    """ρ · leakage of a kernel in this step, exact, and what the belief expects it to pay."""
    joint = _joint(transition, jnp.log(jnp.maximum(table, jnp.finfo(table.dtype).tiny)))
    information = finite_information(
        transition.belief.log_masses, logsumexp(joint, axis=1) - transition.belief.log_masses[:, None]
    )
    return objective.privacy_weight * information + jnp.sum(jnp.exp(joint) * transition.paid)


def followed(policy: GridPolicy, critic: Critic, transition: Transition, table: Table) -> Scalar:
    """Σ_y p(y | K) V(next | y): the belief after each value that may be shared, as the critic sees it."""
    joint = _joint(transition, jnp.log(jnp.maximum(table, jnp.finfo(table.dtype).tiny)))
    by_secret = logsumexp(joint, axis=1)
    likely = logsumexp(by_secret, axis=0)
    start = transition.belief

    def value(joint: Array, by_secret: Array, likely: Array, atom: Array) -> Scalar:
        log_masses, log_weights = by_secret - likely, joint - by_secret[:, None]
        belief = ParticleBelief(start.secrets, log_masses, transition.after, log_weights, None, start.scheme)
        answer = policy.system.next_external(transition.external, atom, transition.noise)
        features = policy.features(belief, answer, transition.time + 1)
        return critic(features, answer, transition.time + 1, policy.scaling)

    values = jax.vmap(value, (2, 1, 0, 0))(joint, by_secret, likely, policy.atoms)
    return jnp.exp(likely) @ values


def _joint(transition: Transition, log_table: Table) -> Float[Array, "K M J"]:
    """Log-probability of secret, particle and release."""
    rows = jax.vmap(lambda table, cells: table[cells])(log_table, transition.cells)
    return (transition.belief.log_masses[:, None] + transition.belief.log_weights)[:, :, None] + rows
