"""Encoders of a belief, and the network inside learned policies.

An encoder sums up a belief in a few public numbers. The network maps these, a secret and a state to raw
outputs.
"""

import abc
import math
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import Array, Float, Int

from veil.beliefs.base import Belief
from veil.laws import Gaussian
from veil.policies.scaling import Scaling
from veil.systems.base import Prior, System
from veil.types import Features, Key, Secret, State, Vector

Form = Literal["relu", "exponential"]


class Encoder(eqx.Module):
    """Sums a belief up. Every array in it is trained."""

    @property
    @abc.abstractmethod
    def size(self) -> int:
        """How many features there are."""

    @property
    @abc.abstractmethod
    def own_size(self) -> int:
        """How many numbers `own` gives."""

    @abc.abstractmethod
    def __call__(self, belief: Belief, scaling: Scaling) -> Features:
        """The features, each of size one in these units."""

    @abc.abstractmethod
    def own(self, features: Features, index: Int[Array, ""]) -> Vector:
        """What the features say about the state given one secret, beside what they say about all."""


class MomentEncoder(Encoder):
    """Masses of the secrets; mean and covariance factor of the state given each. Nothing is learned.

    The factor is given by its lower entries, row i in units of coordinate i.
    """

    secrets: int = eqx.field(static=True)
    states: int = eqx.field(static=True)

    @property
    def size(self) -> int:
        """Number of features, K (1 + N + N(N+1)/2)."""
        return self.secrets * (1 + self.states + self.states * (self.states + 1) // 2)

    @property
    def own_size(self) -> int:
        """Features per secret, N + N(N+1)/2."""
        return self.size // self.secrets - 1

    def own(self, features: Features, index: Int[Array, ""]) -> Vector:
        """The secret's mean, measured from the mean over all secrets, and its factor."""
        masses, means, factors = jnp.split(features, [self.secrets, self.secrets * (1 + self.states)])
        means = means.reshape(self.secrets, -1)
        return jnp.concatenate([means[index] - masses @ means, factors.reshape(self.secrets, -1)[index]])

    def __call__(self, belief: Belief, scaling: Scaling) -> Features:
        """Masses, then means, then factors."""
        laws = _in_units(belief, scaling)
        rows, columns = jnp.tril_indices(self.states)
        factors = laws.scale[:, rows, columns]
        return jnp.concatenate([jnp.exp(belief.log_masses), laws.mean.reshape(-1), factors.reshape(-1)])


class MgfEncoder(Encoder):
    """The mean of (secret, state) and, for every learned point v, an expectation of v · (secret, state).

    The paper's encoder: "exponential" gives the cumulant log E exp(v·p), "relu" gives E max(v·p, 0), which
    tells a law apart as well and does not grow without bounds. Expectations do not know the order of
    particles. A belief without particles is taken as one Gaussian per secret, in closed form.
    """

    points: Float[Array, "F D"]
    form: Form = eqx.field(default="relu", static=True)

    def __check_init__(self):
        if self.form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}; got {self.form!r}.")

    @property
    def size(self) -> int:
        """Size of (secret, state), and one for every point."""
        return sum(self.points.shape)

    @property
    def own_size(self) -> int:
        """Zero: the features speak of all secrets together."""
        return 0

    def own(self, features: Features, index: Int[Array, ""]) -> Vector:
        """An empty row: no features belong to one secret."""
        del index
        return jnp.zeros(0, features.dtype)

    def __call__(self, belief: Belief, scaling: Scaling) -> Features:
        """The mean, then one number per point."""
        cloud = belief.cloud()
        if cloud is None:
            return self._of_gaussians(belief, scaling)
        secrets, states, log_weights = cloud
        return self._of_particles(jax.vmap(scaling.point)(secrets, states), log_weights)

    def _of_particles(self, cloud: Float[Array, "Q D"], log_weights: Float[Array, " Q"]) -> Features:
        """Weighted sums over all particles."""
        weights = jnp.exp(log_weights)
        heights = cloud @ self.points.T
        if self.form == "relu":
            values = weights @ jax.nn.relu(heights)
        else:
            values = logsumexp(log_weights[:, None] + heights, axis=0)
        return jnp.concatenate([weights @ cloud, values])

    def _of_gaussians(self, belief: Belief, scaling: Scaling) -> Features:
        """Given a secret, v · (secret, state) is Gaussian; then mixed over the secrets."""
        laws = _in_units(belief, scaling)
        centres = jnp.concatenate([jax.vmap(scaling.secret)(belief.secrets), laws.mean], axis=1)
        masses = jnp.exp(belief.log_masses)
        means = centres @ self.points.T
        slopes = jnp.einsum("fn,knm->kfm", self.points[:, -laws.mean.shape[1] :], laws.scale)
        variances = jnp.sum(slopes**2, axis=2)
        if self.form == "relu":
            values = masses @ expected_relu(means, variances)
        else:
            values = logsumexp(belief.log_masses[:, None] + means + 0.5 * variances, axis=0)
        return jnp.concatenate([masses @ centres, values])


def mgf_encoder(scaling: Scaling, count: int = 10, form: Form = "relu", *, key: Key) -> MgfEncoder:
    """An encoder with random points v, scaled so that v · (secret, state) is about of size one.

    Args:
        scaling: units of secret and state.
        count: number of points.
        form: the function of v · (secret, state) whose expectation is a feature: "relu" or "exponential".
        key: randomness of the points.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, the number of evaluation points; got {count}.")
    size = scaling.secret.centre.shape[0] + scaling.state.centre.shape[0]
    points = jr.normal(key, (count, size), scaling.state.centre.dtype) / math.sqrt(size)
    return MgfEncoder(points, form)


def expected_relu(mean: Float[Array, "*n"], variance: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """E max(u, 0) for u ~ N(mean, variance): m Φ(m/s) + s φ(m/s).

    The sd is kept from zero by what rounding cannot see, so that a known value has a gradient too.
    """
    sd = jnp.sqrt(variance + jnp.finfo(mean.dtype).eps ** 2)
    ratio = mean / sd
    return mean * ndtr(ratio) + sd * jnp.exp(-0.5 * ratio**2) / math.sqrt(2.0 * math.pi)


def _in_units(belief: Belief, scaling: Scaling) -> Gaussian:
    """Law of the state given each secret, batched [K], in the unit of the state."""
    laws = belief.moments()

    def one(mean: Vector, scale: Float[Array, "N N"]) -> tuple[Vector, Float[Array, "N N"]]:
        return scaling.state(mean), scale / scaling.state.spread[:, None]

    return Gaussian(*jax.vmap(one)(laws.mean, laws.scale))


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
    inputs = MERGED + len(system.input_fields) + 1 + len(system.secret_fields) + encoder.own_size

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
