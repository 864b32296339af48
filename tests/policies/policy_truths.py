"""Systems and plain numpy that the policy tests compare with."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.laws import Gaussian, diagonal_gaussian, gaussian
from veil.rollout import rollout
from veil.systems import Field, Gain, Prior, System, finite_prior

MASSES = (0.5, 0.3, 0.2)


class Moody(Gain):
    """A gain whose start and whose noise depend on the secret, the noise on the state too."""

    def initial(self, secret):
        return diagonal_gaussian(secret, 0.5 + secret)

    def transition(self, secret, state, external):
        return diagonal_gaussian(secret * state + external, 0.2 * secret * jnp.sqrt(1.0 + state**2))


class Rig(System):
    """Three linear states, an output that mixes them, and a distortion with a slanting metric."""

    prior: Prior = eqx.field(default_factory=lambda: finite_prior([0.2, 0.5, 0.8], MASSES))
    mixing: Any = None
    metric: Any = None

    secret_fields = (Field("pull"),)
    state_fields = (Field("a"), Field("b"), Field("c"))
    external_fields = (Field("push"),)
    reaction_noise_size = 1

    @property
    def shared_fields(self):  # pyright: ignore[reportIncompatibleVariableOverride]
        return (Field("first"), Field("second"), Field("third"))[: self.mixing.shape[0]]

    def initial(self, secret):
        return gaussian(jnp.ones(3), jnp.eye(3) + 0.3 * jnp.ones((3, 3)))

    def initial_external(self):
        return jnp.ones(1)

    def transition(self, secret, state, external):
        moved = jnp.stack([secret[0] * state[0] + external[0], state[1] - secret[0] * state[2], state[0]])
        return Gaussian(0.9 * moved, 0.3 * jnp.tril(jnp.ones((3, 3))))

    def react(self, external, shared, noise):
        return external if shared is None else 0.1 * shared[:1] + noise

    def cost(self, secret, state, after, shared, external):
        return jnp.zeros(())

    def distortion(self, state, shared):
        apart = shared - self.output(state)
        return jnp.sqrt(apart @ self.metric @ apart)

    def output(self, state):
        return self.mixing @ state


def rig(size):
    """A rig with `size` outputs."""
    mixing = jnp.asarray([[1.0, 0.5, 0.0], [0.0, 1.0, -1.0], [0.3, 0.0, 2.0]])[:size]
    metric = jnp.asarray([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]])[:size, :size]
    return Rig(mixing=mixing, metric=metric)


@eqx.filter_jit
def play(world, policy, steps, keys, indices):
    """Episodes side by side, and their distortion step by step."""

    def one(key, index):
        record = rollout(world, policy, steps, public_seed=index, key=key, index=index)
        return record, jax.vmap(world.distortion)(record.states[:-1], record.public.shared)

    return jax.vmap(one)(keys, indices)


def distortion(world, policy, episodes, steps=50):
    """Mean distortion, equally many episodes per secret."""
    indices = jnp.arange(episodes, dtype=jnp.int32) % len(world.prior.log_masses)
    return float(np.mean(play(world, policy, steps, jr.split(jr.key(7), episodes), indices)[1]))


def same_noise(world, policy, steps):
    """One episode per secret of the world, all with the same private key."""
    count = len(world.prior.log_masses)
    keys = jnp.broadcast_to(jr.key(3), (count,))
    return play(world, policy, steps, keys, jnp.arange(count, dtype=jnp.int32))[0]
