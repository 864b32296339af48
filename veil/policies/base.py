"""The contract of a sharing policy: from public knowledge to the kernel of a release."""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from veil.beliefs.base import Belief, PriorBelief
from veil.beliefs.self_model import SelfModel
from veil.laws import Grid, Kernel, Law, SwitchedLaw, to_grid
from veil.systems.base import System, output_grid, state_grid
from veil.systems.variants import with_resolution
from veil.types import External, Features, Key, Scalar, Secret, Shared, State

Time = Int[Array, ""]

Memory = Float[Array, "..."]


class Decision(Kernel):
    """What a policy decides about the release of one step, from public knowledge alone.

    As a kernel it gives the law of what the public sees: that of `kernel` where the release is open, all mass
    on `value` elsewhere.

    Attributes:
        kernel: of an open release; None in a decision that left the compiled step, where it is not kept.
        charge: of the release, in nats.
        open: whether `kernel` acts.
        withheld: whether nothing at all is released, so that the environment gets None. For a reader, `value`
            stands in for the missing release. None where the policy never withholds.
        blur: noise that was added to reduce the charge, in units of the policy that adds it.
        value: what is released where `kernel` does not act; None where the policy is always open.
    """

    kernel: Kernel | None
    charge: Scalar
    open: Bool[Array, ""]
    withheld: Bool[Array, ""] | None
    blur: Scalar
    value: Shared | None

    def opened(self) -> Kernel:
        """The kernel of an open release."""
        assert self.kernel is not None  # inside the compiled step
        return self.kernel

    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the kernel, or the public value."""
        return self._switched(self.opened()(secret, state))

    def release_law(self, secret: Secret, state: State, memory: Memory) -> Law:
        """The same, for a kernel that reads the owner's memory."""
        return self._switched(self.opened().release_law(secret, state, memory))

    def before_rounding(self) -> "Decision":
        """The same, with a kernel that does not round the state."""
        kernel = None if self.kernel is None else self.kernel.before_rounding()
        return eqx.tree_at(lambda one: one.kernel, self, kernel, is_leaf=lambda one: one is None)

    def cell_spread(self) -> Float[Array, " N"] | None:
        """That of the kernel."""
        return None if self.kernel is None else self.kernel.cell_spread()

    def numbers(self) -> "Decision":
        """The same without kernel and value, small enough to leave the compiled step."""
        return Decision(None, self.charge, self.open, self.withheld, self.blur, None)

    def _switched(self, law: Law) -> Law:
        return law if self.value is None else SwitchedLaw(self.open, self.value, law)

    def shut_if(self, missing: Bool[Array, ""]) -> "Decision":
        """The same, but nothing is released and charged where there is nothing to release."""
        withheld = missing if self.withheld is None else self.withheld | missing
        charge, blur = (jnp.where(missing, 0.0, number) for number in (self.charge, self.blur))
        return Decision(self.kernel, charge, self.open & ~missing, withheld, blur, self.value)


class Policy(eqx.Module):
    """Maps public knowledge, (belief_t, w_t, t), to the kernel that y_t is drawn from.

    It does so in two steps. First it computes the features: a few numbers that summarise the belief, and that
    are published with the transcript. Then it computes the kernel from the features. The first step is
    expensive; an adversary needs only the second. The belief belongs to the policy, with its kind and size.
    Everybody can compute it again from the transcript and the public seed.

    A policy may also keep a memory. The memory is a function of the secret and the states, so that it is
    private and only the owner can compute it. Kernels of such a policy are `veil.laws.MemoryKernel`, and no
    belief can predict its releases.

    Attributes:
        system: the owner's model, which is public.
        has_belief: whether the policy keeps a belief that includes the releases, from which they can be
            charged.
        has_memory: whether the releases depend on a private memory.
        shares_truth: whether every release is the output itself, or a repetition.
        finest: step of the public grid that releases are emitted on along axes whose field has no resolution,
            in the unit of the field; 0 emits them as computed. A policy whose releases are equal for all
            secrets only up to round-off needs a step: the last digits would tell the secret.
    """

    system: eqx.AbstractVar[System]
    has_belief: ClassVar[bool] = True
    has_memory: ClassVar[bool] = False
    shares_truth: ClassVar[bool] = False
    finest: ClassVar[float] = 0.0

    @abc.abstractmethod
    def start(self, *, key: Key) -> Belief:
        """The policy's belief before the first release; `key` is public."""

    @abc.abstractmethod
    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The features: all that the kernel may use of the belief.

        Args:
            belief: of the policy, before y_t.
            external: w_t.
            time: t, counted from 1.
        """

    @abc.abstractmethod
    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The kernel of one step.

        Args:
            features: of this step.
            external: w_t.
            time: t, counted from 1.
        """

    def decide(self, features: Features, external: External, time: Time) -> Decision:
        """The kernel of one step and its charge; by default always open, with charge zero.

        Args:
            features: of this step.
            external: w_t.
            time: t, counted from 1.
        """
        nothing = jnp.zeros((), features.dtype)
        kernel = self.kernel(features, external, time)
        return Decision(kernel, nothing, jnp.asarray(True), None, nothing, None)

    def fund(self, belief: Belief, left: Scalar) -> Belief:
        """The belief with the rest of a budget in nats written into it; by default there is no budget."""
        del left
        return belief

    def init_memory(self, secret: Secret, state: State, *, key: Key) -> Memory:
        """The memory at t = 1; empty by default.

        Args:
            secret: the owner's.
            state: x_1.
            key: private randomness.
        """
        del secret, key
        return jnp.zeros(0, state.dtype)

    def update_memory(
        self, memory: Memory, secret: Secret, state: State, external: External, after: State, *, key: Key
    ) -> Memory:
        """The memory at t + 1, from the step (x_t, w_t) -> x_{t+1}.

        Args:
            memory: that at t.
            secret: the owner's.
            state: x_t.
            external: w_t.
            after: x_{t+1}.
            key: private randomness.
        """
        del secret, state, external, after, key
        return memory

    def coast_memory(self, memory: Memory, external: External) -> Memory:
        """The memory at t + 1 where the owner did not see the step, from what is public alone."""
        del external
        return memory


class PlainPolicy(Policy):
    """A policy that uses no belief."""

    has_belief: ClassVar[bool] = False

    def start(self, *, key: Key) -> PriorBelief:
        """The prior, which is not updated."""
        del key
        return PriorBelief.start(self.system)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """No features: an empty row."""
        del external, time
        return jnp.zeros(0, belief.log_masses.dtype)


class Wrapping(Policy):
    """Model, belief and features of `inner`; what differs is the kernel."""

    inner: eqx.AbstractVar[Policy]

    @property
    def system(self) -> System:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner policy's model."""
        return self.inner.system

    @property
    def finest(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the inner policy."""
        return self.inner.finest

    def start(self, *, key: Key) -> Belief:
        """The inner policy's belief."""
        return self.inner.start(key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The inner policy's features."""
        return self.inner.features(belief, external, time)


def has_resolution(system: System) -> bool:
    """Whether states are rounded or releases are on a grid."""
    return any((*output_grid(system), *state_grid(system)))


def emission_grid(policy: Policy) -> Grid:
    """The step of the public grid per shared axis: that of the field, else the policy's finest, else 0."""
    return tuple(step or policy.finest for step in output_grid(policy.system))


def emitted(policy: Policy, shared: Shared) -> Shared:
    """A release as it is emitted: the nearest point of the public grid."""
    grid = emission_grid(policy)
    return to_grid(shared, grid) if any(grid) else shared


def sensed(policy: Policy, coarse: Grid = ()) -> Policy:
    """The policy as it runs: it reads rounded states, and emits its releases on a public grid.

    Every program that plays, replays, follows or shares calls this, so that a policy is written for numbers
    as they are and holds for numbers as they are read and sent. Where no field of the system has a resolution
    it is the policy itself. Applied twice it is the same. Of a policy around another one (a budget, a
    repetition), the inner one is put behind the sensor.

    Args:
        policy: any policy.
        coarse: steps that the sensor really rounds to, which the policy does not know; by default those of
            its system.
    """
    if isinstance(policy, Sensed):
        return Sensed(policy.inner, coarse) if coarse else policy
    inner = getattr(policy, "inner", None)
    if isinstance(inner, Policy):
        behind = sensed(inner, coarse)
        return policy if behind is inner else eqx.tree_at(lambda whole: whole.inner, policy, behind)
    return Sensed(policy, coarse) if coarse or has_resolution(policy.system) else policy


def with_sensor(policy: Policy, resolution: float | Mapping[str, float]) -> Policy:
    """The same policy for the same system with a resolution, see `veil.systems.with_resolution`.

    Args:
        policy: any policy.
        resolution: step of the sensor for every field of the state, or by their names.
    """

    def is_system(node: object) -> bool:
        return isinstance(node, System | SelfModel)  # a self-model keeps the sensor that it was fitted to

    def sensor(node: object) -> object:
        return with_resolution(node, resolution) if isinstance(node, System) else node

    return jax.tree.map(sensor, policy, is_leaf=is_system)


class Sensed(Wrapping):
    """The inner policy, reading rounded states and emitting on the public grid.

    Attributes:
        inner: the policy.
        coarse: steps that states are rounded to instead of those of its system; empty for those.
    """

    inner: Policy
    coarse: Grid = eqx.field(static=True)

    def __init__(self, inner: Policy, coarse: Grid = ()):
        self.inner, self.coarse = inner, coarse

    @property
    def states(self) -> Grid:
        """The steps that states are rounded to."""
        return self.coarse or state_grid(self.system)

    @property
    def has_belief(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the inner policy."""
        return self.inner.has_belief

    @property
    def has_memory(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the inner policy."""
        return self.inner.has_memory

    @property
    def shares_truth(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Only where states and releases are continuous: a rounded state is not the state."""
        return False

    def kernel(self, features: Features, external: External, time: Time) -> "SensedKernel":
        """The inner kernel behind the sensor."""
        inner = self.inner.kernel(features, external, time)
        return SensedKernel(inner, self.states, output_grid(self.system))

    def decide(self, features: Features, external: External, time: Time) -> Decision:
        """The inner decision, with its kernel behind the sensor."""
        made = self.inner.decide(features, external, time)
        kernel = SensedKernel(made.opened(), self.states, output_grid(self.system))
        value = None if made.value is None else emitted(self, made.value)
        return Decision(kernel, made.charge, made.open, made.withheld, made.blur, value)

    def init_memory(self, secret: Secret, state: State, *, key: Key) -> Memory:
        """From the reading of x_1."""
        return self.inner.init_memory(secret, self._read(state), key=key)

    def update_memory(
        self, memory: Memory, secret: Secret, state: State, external: External, after: State, *, key: Key
    ) -> Memory:
        """From the readings of x_t and x_{t+1}."""
        step = self._read(state), external, self._read(after)
        return self.inner.update_memory(memory, secret, *step, key=key)

    def coast_memory(self, memory: Memory, external: External) -> Memory:
        """As the inner policy."""
        return self.inner.coast_memory(memory, external)

    def _read(self, state: State) -> State:
        return to_grid(state, self.states)


class SensedKernel(Kernel):
    """The law of what is emitted, given the state that the sensor rounds."""

    inner: Kernel
    states: Grid = eqx.field(static=True)
    outputs: Grid = eqx.field(static=True)

    def __call__(self, secret: Secret, state: State) -> Law:
        """The inner law at the reading, on the public grid."""
        return self._emitted(self.inner(secret, to_grid(state, self.states)))

    def release_law(self, secret: Secret, state: State, memory: Memory) -> Law:
        """The same, for a kernel that reads the owner's memory."""
        return self._emitted(self.inner.release_law(secret, to_grid(state, self.states), memory))

    def before_rounding(self) -> "SensedKernel":
        """The same at the state itself: to a filter that linearises, the jumps would be information."""
        return SensedKernel(self.inner.before_rounding(), (0.0,) * len(self.states), self.outputs)

    def cell_spread(self) -> Float[Array, " N"] | None:
        """Uniform noise as wide as a step has this sd."""
        return jnp.asarray(self.states, float) / math.sqrt(12.0) if any(self.states) else None

    def _emitted(self, law: Law) -> Law:
        return law.on_grid(self.outputs) if any(self.outputs) else law


class LearnedPolicy(Policy):
    """A policy whose kernels come out of a network.

    `network` holds all that a learner may change, and nothing else: the model of the system, the units and
    the limits of the kernel are constants.
    """

    network: eqx.AbstractVar[Any]


FLOOR = 0.05  # sd per axis where a policy needs some noise and none was given


def per_axis(values: tuple[float, ...], system: System) -> Float[Array, " Y"]:
    """The numbers of a setting as an array, `FLOOR` for every shared axis where there are none.

    The precision is the one that JAX is set to, so that a float64 system meets a float64 policy.
    """
    return jnp.asarray(values or (FLOOR,) * len(system.shared_fields), float)


def optional(value: ArrayLike | Sequence | None) -> Array | None:
    """A tunable value that may be left out."""
    return None if value is None else jnp.asarray(value)
