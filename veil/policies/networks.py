"""The network inside learned policies: from public numbers, a secret and a state to raw outputs."""

import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from veil.policies.encoding import Encoder, Form, MomentEncoder, mgf_encoder
from veil.policies.scaling import Scaling
from veil.systems.base import Prior, System
from veil.types import Features, Key, Secret, State, Vector

Summary = Literal["moments", "mgf"]

MERGED = 16  # width of what is made of the features

_DEEP = 2  # hidden layers of the trunk

_SMALL = 0.05  # size of the raw outputs before training: not zero, or all parts of a mixture would be one


class Context(eqx.Module):
    """What is public in one step: about everything, and about the state given each secret of the prior."""

    public: Float[Array, " C"]
    own: Float[Array, "K D"]


class Network(eqx.Module):
    """Raw outputs V u + V₀ h + c, with u = silu(W x + h) and h a function of the secret and of the public.

    All the work of the trunk goes into h, which does not depend on the state: under `vmap` over the
    particles of a secret it is done once. The state enters by one layer, so what a policy makes of it can
    be limited. Every array in here is trained.
    """

    encoder: Encoder
    merge: eqx.nn.Linear
    trunk: eqx.nn.MLP
    inlet: Float[Array, "H N"]  # W
    bent: Float[Array, "O H"]  # V
    straight: Float[Array, "O H"]  # V₀
    bias: Float[Array, " O"]  # c

    def context(self, features: Features, prior: Prior, public: Float[Array, " A"]) -> Context:
        """What the kernel knows of the belief and of the public inputs."""
        merged = jnp.concatenate([jax.nn.relu(self.merge(features)), public])
        indices = jnp.arange(prior.log_masses.shape[0], dtype=jnp.int32)
        return Context(merged, jax.vmap(self.encoder.own, (None, 0))(features, indices))

    def __call__(
        self, context: Context, index: Int[Array, ""], secret: Secret, state: State
    ) -> Float[Array, " O"]:
        """Raw outputs at a secret and a state in their units; `index` is of the secret in the prior."""
        hidden = self.trunk(jnp.concatenate([context.public, secret, context.own[index]]))
        return self.bent @ jax.nn.silu(self.inlet @ state + hidden) + (self.straight @ hidden + self.bias)


def start_network(
    system: System, scaling: Scaling, encoder: Encoder, bias: Vector, width: int, *, key: Key
) -> Network:
    """A random network whose outputs are nearly the bias, whatever it is asked."""
    if width < 1:
        raise ValueError(f"width must be at least 1, the number of hidden units; got {width}.")
    merge_key, trunk_key, inlet_key, bent_key, straight_key = jr.split(key, 5)
    dtype, states = bias.dtype, len(system.state_fields)
    inputs = MERGED + len(system.external_fields) + 1 + len(system.secret_fields) + encoder.own_size

    def random(rows: int, columns: int, size: float, key: Key) -> Array:
        return size * jr.normal(key, (rows, columns), dtype)

    return Network(
        encoder=encoder,
        merge=eqx.nn.Linear(encoder.size, MERGED, dtype=dtype, key=merge_key),
        trunk=eqx.nn.MLP(inputs, width, width, _DEEP, jax.nn.silu, dtype=dtype, key=trunk_key),
        inlet=random(width, states, 1.0 / math.sqrt(width * states), inlet_key),
        bent=random(bias.shape[0], width, _SMALL / math.sqrt(width), bent_key),
        straight=random(bias.shape[0], width, _SMALL / math.sqrt(width), straight_key),
        bias=bias,
    )


def start_encoder(system: System, scaling: Scaling, summary: Summary, form: Form, *, key: Key) -> Encoder:
    """The encoder of this name; `form` is of use to the moment-generating function only."""
    if summary == "moments":
        return MomentEncoder(system.prior.log_masses.shape[0], len(system.state_fields))
    if summary == "mgf":
        return mgf_encoder(scaling, form=form, key=key)
    raise ValueError(f"encoder must be 'moments' or 'mgf'; got {summary!r}.")
