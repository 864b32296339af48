"""Fresh releases now and then, the last one repeated in between."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.beliefs.base import Belief, Health
from veil.laws import Components, Gaussian, Kernel, SwitchedLaw
from veil.policies.base import Policy, Time, per_axis
from veil.policies.plain import GaussianNoise, Truth
from veil.registry import POLICIES, PerAxis
from veil.systems.base import System
from veil.types import External, Features, Key, Secret, Shared, State


class HeldKernel(Kernel):
    """`inner` if fresh, otherwise the last release again."""

    fresh: Bool[Array, ""]
    last: Shared
    inner: Kernel

    def before_rounding(self) -> "HeldKernel":
        """The same around a kernel that does not round the state."""
        return HeldKernel(self.fresh, self.last, self.inner.before_rounding())

    def cell_spread(self) -> Float[Array, " N"] | None:
        """That of the inner kernel."""
        return self.inner.cell_spread()

    def __call__(self, secret: Secret, state: State) -> SwitchedLaw:
        """The inner law, held or not."""
        return SwitchedLaw(self.fresh, self.last, self.inner(secret, state))


class Remembering(Belief):
    """A belief that also knows the last release, and learns from fresh releases only."""

    inner: Belief
    last: Shared

    def __init__(self, inner: Belief, last: Shared):
        self.inner = inner
        self.last = last

    @property
    def secrets(self) -> Float[Array, "K P"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the inner belief."""
        return self.inner.secrets

    @property
    def log_masses(self) -> Float[Array, " K"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the inner belief."""
        return self.inner.log_masses

    @property
    def models_rounding(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the inner belief."""
        return self.inner.models_rounding

    @property
    def particle_count(self) -> int:
        """Those of the inner belief."""
        return self.inner.particle_count

    def moments(self) -> Gaussian:
        """Those of the inner belief."""
        return self.inner.moments()

    def components(self, kernel: Kernel) -> Components:
        """Those of the inner belief; where held, all the same, so that nothing leaks."""
        held = _held(kernel)
        made = self.inner.components(held.inner)
        unit = jnp.eye(self.last.shape[0], dtype=self.last.dtype)
        mean = jnp.where(held.fresh, made.parts.mean, jnp.broadcast_to(self.last, made.parts.mean.shape))
        scale = jnp.where(held.fresh, made.parts.scale, jnp.broadcast_to(unit, made.parts.scale.shape))
        return eqx.tree_at(lambda whole: whole.parts, made, Gaussian(mean, scale))

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["Remembering", Health]:
        """The inner belief takes in a fresh release; to it, a repeated one was withheld."""
        held = _held(kernel)

        def take(seen: Shared | None) -> tuple[Belief, Health]:
            return self.inner.update(system, held.inner, external, seen, key=key)

        if shared is None:
            inner, health = take(None)
            return type(self)(inner, self.last), health
        inner, health = jax.lax.cond(held.fresh, lambda: take(shared), lambda: take(None))
        return type(self)(inner, shared), health


class Subsampled(Policy):
    """Passes a release of `inner` at t = 1, 1 + every, ...; in between the last one is repeated."""

    inner: Policy
    every: int = eqx.field(static=True)

    def __init__(self, inner: Policy, every: int):
        if inner.has_memory:
            raise TypeError(
                f"A {type(inner).__name__} releases from private memory and has no kernel to hold. "
                "Subsample a policy that maps a public belief to a kernel."
            )
        if every < 1:
            raise ValueError(f"every must be at least 1, the number of steps per fresh release; got {every}.")
        self.inner = inner
        self.every = every

    @property
    def system(self) -> System:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner policy's model."""
        return self.inner.system

    @property
    def has_belief(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the inner policy."""
        return self.inner.has_belief

    def start(self, *, key: Key) -> Remembering:
        """The inner belief; the first release is fresh, so what comes before it does not matter."""
        belief = self.inner.start(key=key)
        return Remembering(belief, jnp.zeros(len(self.system.shared_fields), belief.log_masses.dtype))

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The inner features, then the last release."""
        assert isinstance(belief, Remembering)  # given by `start`
        return jnp.concatenate([self.inner.features(belief.inner, external, time), belief.last])

    def kernel(self, features: Features, external: External, time: Time) -> HeldKernel:
        """Fresh at every `every`-th step, counted from the first."""
        split = features.shape[0] - len(self.system.shared_fields)
        inner = self.inner.decide(features[:split], external, time)
        return HeldKernel((time - 1) % self.every == 0, features[split:], inner)


def _held(kernel: Kernel) -> HeldKernel:
    held = kernel.opened()
    if not isinstance(held, HeldKernel):
        raise TypeError(
            "Remembering is the belief of a Subsampled policy, whose kernels say what is fresh; got a "
            f"{type(kernel).__name__}. Use the inner belief with other kernels."
        )
    return held


@POLICIES.register("subsampled")
@dataclass(frozen=True)
class SubsampledSettings:
    """Share the output now and then, and repeat it in between."""

    every: int
    """Steps per fresh release"""
    sd: PerAxis = ()
    """Sd of the noise per shared axis, in its unit; none by default"""

    def __post_init__(self) -> None:
        """Refuse what is no number of steps."""
        if self.every < 1:
            raise ValueError("every is a number of steps, at least 1, e.g. 5.")

    def build(self, system: System) -> Subsampled:
        """The policy for a system."""
        inner = GaussianNoise(system, per_axis(self.sd, system)) if self.sd else Truth(system)
        return Subsampled(inner, self.every)
