"""A budget of nats around a policy: every release is charged before it is drawn, and never more than is left.

The decision and the charge are functions of the public history alone, so they tell nothing themselves, and
the leakage of a whole run is at most the sum of the charges (docs/budget.md has the theorem and its proof).
"""

from typing import Literal, NamedTuple, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from veil.beliefs.base import Belief, FilterSpec, Health
from veil.beliefs.observed import ObservedBelief
from veil.laws import Components, Gaussian, Kernel, Law
from veil.leakage.per_step import Measure
from veil.policies.base import Decision, Policy, Time, emitted
from veil.policies.geometry import distortion_metric, output_noise
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Secret, Shared, State


class BlurredKernel(Kernel):
    """Another kernel's release plus independent Gaussian noise, one standard deviation per axis."""

    inner: Kernel
    sd: Float[Array, " Y"]

    def before_rounding(self) -> "BlurredKernel":
        """The same around a kernel that does not round the state."""
        return BlurredKernel(self.inner.before_rounding(), self.sd)

    def cell_spread(self) -> Float[Array, " N"] | None:
        """That of the inner kernel."""
        return self.inner.cell_spread()

    def __call__(self, secret: Secret, state: State) -> Law:
        """The law of the sum."""
        return self.inner(secret, state).blurred(self.sd)


Exhausted = Literal["withhold", "blind", "blur"]

LEVELS = 12  # of the blur, each twice the one before

FINEST = 0.25  # of the unit, the first level


class BudgetedBelief(Belief):
    """The belief of a budgeted policy.

    Attributes:
        inner: that of the policy inside.
        charging: the one that charges are computed by; None where it is the inner one.
        left: nats, as far as this belief knows; `Budgeted.fund` tells it what an accountant knows.
        stopped: whether a release of the state itself was refused: none is shared after that.
    """

    inner: Belief
    charging: Belief | None
    left: Scalar
    stopped: Bool[Array, ""]

    def __init__(self, inner: Belief, charging: Belief | None, left: Scalar, stopped: Bool[Array, ""]):
        self.inner, self.charging, self.left, self.stopped = inner, charging, left, stopped

    @property
    def account(self) -> Belief:
        """What charges are computed by."""
        return self.inner if self.charging is None else self.charging

    @property
    def secrets(self) -> Float[Array, "K P"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the account."""
        return self.account.secrets

    @property
    def log_masses(self) -> Float[Array, " K"]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the account."""
        return self.account.log_masses

    @property
    def models_rounding(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the account."""
        return self.account.models_rounding

    @property
    def particle_count(self) -> int:
        """Those of the account."""
        return self.account.particle_count

    def moments(self) -> Gaussian:
        """Those of the account."""
        return self.account.moments()

    def components(self, kernel: Kernel) -> Components:
        """Those of the account, for an open release."""
        return self.account.components(kernel.opened())

    def update(
        self, system: System, kernel: Kernel, external: External, shared: Shared | None, *, key: Key
    ) -> tuple["BudgetedBelief", Health]:
        """Pay, and take in what was open; to the beliefs, anything else was withheld."""
        assert isinstance(kernel, Decision)  # made by `Budgeted.decide`

        def take(seen: Shared | None) -> tuple[tuple[Belief, Belief | None], Health]:
            given = (system, kernel.opened(), external, seen)
            inner, health = self.inner.update(*given, key=key)
            if self.charging is None:
                return (inner, None), health
            charging, health = self.charging.update(*given, key=jr.fold_in(key, 1))
            return (inner, charging), health

        if shared is None:
            (inner, charging), health = take(None)
            return type(self)(inner, charging, self.left, self.stopped), health
        (inner, charging), health = jax.lax.cond(kernel.open, lambda: take(shared), lambda: take(None))
        left = jnp.maximum(self.left - kernel.charge, 0.0)
        return type(self)(inner, charging, left, self.stopped | ~kernel.open), health


class ChargedKernel(NamedTuple):
    """A kernel at some level of blur, and what it would be charged."""

    level: Int[Array, ""]
    charge: Scalar


class Budgeted(Policy):
    """Another policy that never spends more than its budget.

    Attributes:
        inner: the policy; it decides the kernels.
        budget: nats for the whole run; infinity only counts.
        exhausted: what happens to a release that would overspend. "withhold": nothing is shared. "blind":
            the output that the public expects is. "blur": noise is added until the charge fits an even share
            of what is left over the steps to come, and where no noise is enough the release is blind.
        steps: over which a blurring policy divides its budget.
        tracker: the belief that charges are computed by; None for that of the policy.
        measure: how a release is charged.
        unit: of the blur, a standard deviation per axis. By default the noise of one step in the axis where
            the distortion feels it least, and as much distortion in the others.
    """

    inner: Policy
    budget: Scalar
    exhausted: Exhausted = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    tracker: FilterSpec | None
    measure: Measure
    unit: Float[Array, " Y"]

    def __init__(
        self,
        inner: Policy,
        budget: ArrayLike,
        exhausted: Exhausted = "blind",
        *,
        steps: int = 50,
        tracker: FilterSpec | None = None,
        measure: Measure | None = None,
        unit: Float[Array, " Y"] | None = None,
    ):
        if exhausted not in get_args(Exhausted):
            raise ValueError(f"exhausted must be one of {', '.join(get_args(Exhausted))}; got {exhausted!r}.")
        self.inner, self.exhausted, self.steps, self.tracker = inner, exhausted, steps, tracker
        self.measure = Measure("live") if measure is None else measure
        usual = _usual_unit if exhausted == "blur" else _no_unit
        self.unit = usual(inner.system) if unit is None else jnp.asarray(unit)
        self.budget = jnp.asarray(budget, self.unit.dtype)

    @property
    def system(self) -> System:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner policy's model."""
        return self.inner.system

    @property
    def shares_truth(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the inner policy."""
        return self.inner.shares_truth

    def start(self, *, key: Key) -> BudgetedBelief:
        """The whole budget, and the beliefs at t = 1."""
        inner = self.inner.start(key=key)
        charging = None if self.tracker is None else self.tracker.start(self.system, key=jr.fold_in(key, 1))
        return BudgetedBelief(inner, charging, self.budget.astype(inner.log_masses.dtype), jnp.asarray(False))

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The inner features, the public expectation of the output, blur, charge, and whether it is open."""
        assert isinstance(belief, BudgetedBelief)  # given by `start`
        inner = self.inner.features(belief.inner, external, time)
        kernel, account = self.inner.kernel(inner, external, time), belief.account
        offer, fits = self._offer(account, kernel, self._allowance(belief.left, time))
        if isinstance(account, ObservedBelief):  # exact only as long as every state was seen
            fits = fits & ~belief.stopped
        outputs = jax.vmap(self.system.output)(account.moments().mean)
        expected = jnp.exp(account.log_masses) @ outputs
        terms = [jnp.where(fits, offer.charge, 0.0), fits, jnp.where(fits, self._sd(offer.level), 0.0)]
        return jnp.concatenate([inner, expected, jnp.stack([jnp.asarray(n, inner.dtype) for n in terms])])

    def kernel(self, features: Features, external: External, time: Time) -> Decision:
        """The decision itself, which is the kernel of what the public sees."""
        return self.decide(features, external, time)

    def decide(self, features: Features, external: External, time: Time) -> Decision:
        """The inner kernel, perhaps blurred, if it fits; its terms are the last of the features."""
        size = len(self.system.shared_fields)
        inner, expected, (charge, fits, sd) = jnp.split(
            features, [features.shape[0] - size - 3, features.shape[0] - 3]
        )
        kernel = self.inner.kernel(inner, external, time)
        if self.exhausted == "blur":
            kernel = BlurredKernel(kernel, sd * self.unit)
        open_, withheld = fits > 0.5, jnp.asarray(self.exhausted == "withhold")
        return Decision(kernel, charge, open_, withheld & ~open_, sd, emitted(self, expected))

    def fund(self, belief: Belief, left: Scalar) -> Belief:
        """What is left is what the accountant says."""
        assert isinstance(belief, BudgetedBelief)  # given by `start`
        return eqx.tree_at(lambda one: one.left, belief, left)

    def _allowance(self, left: Scalar, time: Time) -> Scalar:
        if self.exhausted != "blur":
            return left
        return left / jnp.maximum(self.steps - time + 1, 1).astype(left.dtype)

    def _sd(self, level: Int[Array, ""]) -> Scalar:
        """In units: zero, then doubling."""
        dtype = self.unit.dtype
        return jnp.where(level > 0, FINEST * jnp.exp2((level - 1).astype(dtype)), jnp.zeros((), dtype))

    def _offer(
        self, account: Belief, kernel: Kernel, allowance: Scalar
    ) -> tuple[ChargedKernel, Bool[Array, ""]]:
        """The least blur that fits, or the most there is; without blurring, the kernel as it is."""

        def charged(level: Int[Array, ""]) -> ChargedKernel:
            made = BlurredKernel(kernel, self._sd(level) * self.unit) if self.exhausted == "blur" else kernel
            return ChargedKernel(level, self.measure(account, made, key=jr.key(0)))  # nothing is drawn

        def too_much(offer: ChargedKernel) -> Bool[Array, ""]:
            return ~(offer.charge <= allowance)  # also where it is not a number

        offer = charged(jnp.asarray(0, jnp.int32))
        if self.exhausted == "blur":
            offer = jax.lax.while_loop(
                lambda offer: too_much(offer) & (offer.level < LEVELS),
                lambda offer: charged(offer.level + 1),
                offer,
            )
        return offer, ~too_much(offer)


def _no_unit(system: System) -> Float[Array, " Y"]:
    """Zeros: nothing is blurred."""
    return jnp.zeros(len(system.shared_fields), system.prior.log_masses.dtype)


@eqx.filter_jit
def _usual_unit(system: System) -> Float[Array, " Y"]:
    length = jnp.sqrt(jnp.diagonal(distortion_metric(system)))
    felt = output_noise(system) * length
    return jnp.min(jnp.where(felt > 0, felt, jnp.max(felt))) / length
