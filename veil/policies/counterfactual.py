"""Perfect privacy by counterfactuals: the release is what all secrets would have made of the same noise.

The owner knows its secret and its states, so it can recover the noise of its own system. It runs one copy of
the system per secret of the prior with that noise and the public input, and releases their centre. Releases
and inputs are then functions of noise that is independent of the secret: nothing leaks in closed loop,
without any filter, and a true secret that is not on the prior is protected as well. What is needed: the
owner's own dynamics are right, so that what it recovers is noise; and the environment reacts to y only.

Real sensors round. A rounded state is not a function of the noise alone: read as if it were exact, it would
give noise that only the true secret can explain, and a reader would know the secret after two releases.
Where the fields of the system have a resolution, the noise is therefore recovered by the randomised
probability integral transform of the law of the reading (`veil.beliefs.readings`), and releases go out on the
public grid. Where they have none, the states are taken to be real numbers, which only a simulation has,
and releases go out in steps of 1e-6: the copies are computed from another true secret each time, so that
their last digits differ.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.beliefs.readings import CellFilter, Prediction
from veil.laws import Gaussian, Law, MemoryKernel, Point, diagonal_gaussian, recovered
from veil.policies.base import Memory, PlainPolicy, Policy, Sensed, Time, optional, per_axis
from veil.policies.geometry import distortion_metric, geometric_median
from veil.registry import POLICIES, PerAxis
from veil.systems.base import System, state_grid
from veil.traced import dependence
from veil.types import External, Features, Key, Secret, State

Centre = Literal["mean", "median"]

Copies = Float[Array, "K N"]


class Counterfactual(PlainPolicy):
    """Share the centre of the outputs that all secrets of the prior would have had under the same noise.

    The memory of the policy is the state of one copy of the system per secret. Where the sensor rounds, it
    also holds what the owner knows about its state inside the cell of the last reading.

    Attributes:
        system: the owner's model.
        sd: standard deviation of additional noise per axis; None for none.
        centre: "median", the point of least expected distortion to the copies, or their "mean" by the prior.
    """

    has_memory: ClassVar[bool] = True
    finest: ClassVar[float] = 1e-6

    system: System
    sd: Float[Array, " Y"] | None = eqx.field(default=None, converter=optional)
    centre: Centre = eqx.field(default="median", static=True)

    def __check_init__(self):
        if self.centre not in get_args(Centre):
            raise ValueError(f"centre must be one of {', '.join(get_args(Centre))}; got {self.centre!r}.")

    def init_memory(self, secret: Secret, state: State, *, key: Key) -> Memory:
        """x_1 with its noise passed to each initial law; x_1 itself where they coincide and it is exact."""
        laws = jax.vmap(self.system.initial)(self.system.prior.secrets)
        if not any(state_grid(self.system)):
            return _transfer(self.system.initial(secret), state, laws)
        cells = CellFilter(self.system)
        return self._whitened(cells, cells.first(secret), state, laws, key)

    def kernel(self, features: Features, external: External, time: Time) -> "CentreKernel":
        """The same kernel at every step."""
        del features, external, time
        return CentreKernel(self.system, self.sd, self.centre)

    def update_memory(
        self, memory: Memory, secret: Secret, state: State, external: External, after: State, *, key: Key
    ) -> Memory:
        """Every copy takes the step with the noise that the true state took it with."""
        copies, weights = split_memory(self.system, memory)
        laws = jax.vmap(self.system.transition, (0, 0, None))(self.system.prior.secrets, copies, external)
        if weights is None:
            return _transfer(self.system.transition(secret, state, external), after, laws)
        cells = CellFilter(self.system)
        return self._whitened(cells, cells.predict(secret, state, weights, external), after, laws, key)

    def coast_memory(self, memory: Memory, external: External) -> Memory:
        """Every copy takes the step without noise; where in its cell the state is, is not known any more."""
        copies, weights = split_memory(self.system, memory)
        step = jax.vmap(self.system.transition, (0, 0, None))
        moved = step(self.system.prior.secrets, copies, external).mean
        if weights is None:
            return moved
        return jnp.concatenate([moved.ravel(), CellFilter(self.system).anywhere().astype(moved.dtype)])

    def _whitened(
        self, cells: CellFilter, prediction: Prediction, reading: State, laws: Gaussian, key: Key
    ) -> Memory:
        """The copies moved by the noise of a rounded reading, and the weights of its cell."""
        uniform = jr.uniform(key, (cells.uniform_size,), reading.dtype)
        found = cells.whiten(prediction, reading, uniform)
        copies = jax.vmap(lambda law: law.sample(found.noise))(laws)
        return jnp.concatenate([copies.ravel(), found.log_weights])


RECOVERING = ("init_memory", "update_memory", "coast_memory", "_whitened")
"""The methods that turn readings into noise and pass it to the copies."""


def keeps_copies(policy: Policy) -> bool:
    """Whether the policy is a counterfactual one or made from it, so that a reader may compute its copies."""
    return isinstance(_unwrapped(policy), Counterfactual)


def recovers_noise(policy: Policy) -> bool:
    """Whether releases are a public function of the noise that the owner recovers from its readings.

    The bound by the excess log-loss rests on this (docs/resolution.md, condition 3). It is decided, not
    believed: readings are turned into noise by the methods of `Counterfactual` and no others, and the traced
    law of a release depends on the copies alone, not on the secret, the state or the cell of the reading.
    """
    policy = _unwrapped(policy)
    if not isinstance(policy, Counterfactual):
        return False
    definers = [next(one for one in type(policy).__mro__ if name in vars(one)) for name in RECOVERING]
    if any(one is not Counterfactual for one in definers):
        return False
    system, time = policy.system, jnp.asarray(1, jnp.int32)
    secret, external = system.prior.secrets[0], system.initial_external()
    state = system.initial(secret).mean
    shape = eqx.filter_eval_shape(lambda: policy.init_memory(secret, state, key=jr.key(0)))
    memory = jnp.zeros(shape.shape, shape.dtype)
    copies = system.prior.secrets.shape[0] * state.shape[0]

    def law(secret: Secret, state: State, memory: Memory) -> list[Array]:
        features = policy.features(policy.start(key=jr.key(0)), external, time)
        decided = policy.decide(features, external, time).release_law(secret, state, memory)
        return jax.tree.leaves(eqx.filter(decided, eqx.is_array))

    own = (
        dependence(lambda one: law(one, state, memory), secret),
        dependence(lambda one: law(secret, one, memory), state),
        dependence(lambda one: law(secret, state, one.reshape(memory.shape)), memory.ravel())[copies:],
    )
    return not any(np.any(one) for one in own)


def _unwrapped(policy: Policy) -> Policy:
    """The policy itself, without the sensor before it."""
    return policy.inner if isinstance(policy, Sensed) else policy


def split_memory(system: System, memory: Memory) -> tuple[Copies, Float[Array, " J"] | None]:
    """The copies, and the weights of the cell of the last reading where the system's states are rounded."""
    if memory.ndim == 2:
        return memory, None
    size = (system.prior.secrets.shape[0], len(system.state_fields))
    return memory[: size[0] * size[1]].reshape(size), memory[size[0] * size[1] :]


class CentreKernel(MemoryKernel):
    """The centre of the copies' outputs, with noise if there is an `sd`."""

    system: System
    sd: Float[Array, " Y"] | None
    centre: Centre = eqx.field(static=True)

    def release_law(self, secret: Secret, state: State, memory: Memory) -> Law:
        """Around the centre of the copies' outputs."""
        del secret, state
        outputs = jax.vmap(self.system.output)(split_memory(self.system, memory)[0])
        weights = jnp.exp(self.system.prior.log_masses)
        if self.centre == "mean":
            centre = weights @ outputs
        else:
            centre = geometric_median(weights, outputs, distortion_metric(self.system))
        return Point(centre) if self.sd is None else diagonal_gaussian(centre, self.sd)


def _transfer(own: Gaussian, value: State, laws: Gaussian) -> Copies:
    """What each of the laws makes of the noise that `own` made the value of.

    Written as the value plus the differences between the laws: nothing is rounded where they coincide, and
    what the owner's law does not explain is passed on as noise.
    """
    noise = recovered(own, value, jnp.zeros_like(value))
    return value[None, :] + (laws.mean - own.mean[None, :]) + (laws.scale - own.scale[None]) @ noise


@POLICIES.register("counterfactual")
@dataclass(frozen=True)
class CounterfactualSettings:
    """Share what all secrets would have made of the same noise."""

    sd: PerAxis = ()
    """Sd of the noise per shared axis, in its unit; none by default"""

    def build(self, system: System) -> Counterfactual:
        """The policy for a system."""
        return Counterfactual(system, per_axis(self.sd, system) if self.sd else None)
