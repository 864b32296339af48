"""A policy behind a real sensor: it reads rounded states and emits its releases on a public grid.

`sensed(policy)` is what runs. Every program that plays, replays, follows or shares calls it, so that a policy
is written for numbers as they are and holds for numbers as they are read and sent. Where no field of the
system has a resolution it is the policy itself.
"""

import equinox as eqx

from veil.laws import Grid, Kernel, Law, to_grid
from veil.policies.base import Decision, Memory, Policy, Time, Wrapping
from veil.systems.base import System
from veil.types import External, Features, Key, Secret, Shared, State


def state_grid(system: System) -> Grid:
    """The resolution of each coordinate of the state, 0 where it is continuous."""
    return tuple(field.resolution for field in system.state_fields)


def output_grid(system: System) -> Grid:
    """The step of the public grid per shared axis, 0 where releases are continuous.

    A system whose states are rounded must emit on a grid along every axis: digits beyond the resolution of
    the sensor would tell how the release was computed.
    """
    grid = tuple(field.resolution for field in system.shared_fields)
    if any(state_grid(system)) and not all(grid):
        names = ", ".join(field.name for field in system.shared_fields if field.resolution == 0)
        raise ValueError(
            f"The states of this system have a resolution, but the shared {names} has none. Give it one, for "
            "example that of the sensor."
        )
    return grid


def has_resolution(system: System) -> bool:
    """Whether states are rounded or releases are on a grid."""
    return any(state_grid(system)) or any(output_grid(system))


def emitted(system: System, shared: Shared) -> Shared:
    """A release as it is emitted: the nearest point of the public grid."""
    grid = output_grid(system)
    return to_grid(shared, grid) if any(grid) else shared


def sensed(policy: Policy) -> Policy:
    """The policy as it runs: behind the sensor of its system, and on its public grid.

    Applied twice it is the same. A policy around another one (a budget, a repetition) keeps its place: the
    inner one is put behind the sensor.
    """
    if isinstance(policy, Sensed):
        return policy
    inner = getattr(policy, "inner", None)
    if isinstance(inner, Policy):
        behind = sensed(inner)
        return policy if behind is inner else eqx.tree_at(lambda whole: whole.inner, policy, behind)
    return Sensed(policy) if has_resolution(policy.system) else policy


class Sensed(Wrapping):
    """The inner policy, reading rounded states and emitting on the public grid."""

    inner: Policy

    def __init__(self, inner: Policy):
        self.inner = inner

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
        return SensedKernel(inner, state_grid(self.system), output_grid(self.system))

    def decide(self, features: Features, external: External, time: Time) -> Decision:
        """The inner decision, with its kernel behind the sensor."""
        made = self.inner.decide(features, external, time)
        kernel = SensedKernel(made.opened(), state_grid(self.system), output_grid(self.system))
        value = None if made.value is None else emitted(self.system, made.value)
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
        return to_grid(state, state_grid(self.system))


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

    def _emitted(self, law: Law) -> Law:
        return law.on_grid(self.outputs) if any(self.outputs) else law
