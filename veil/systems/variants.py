"""Any system with one thing changed: its prior, its sensor, its noise, its start."""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import replace

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from veil.laws import Gaussian
from veil.registry import system_name
from veil.systems.base import CostPart, Field, Nouns, Prior, Scenario, System, series_of
from veil.systems.series import Series
from veil.types import Answer, External, Noise, Scalar, Secret, Shared, State

# pyright: reportIncompatibleVariableOverride=false
# A wrapper learns from its inner system what other systems state in their class.


class Variant(System):
    """A system that wraps another one and forwards what it does not change."""

    inner: eqx.AbstractVar[System]

    @property
    def secret_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.secret_fields

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.state_fields

    @property
    def external_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.external_fields

    @property
    def shared_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.shared_fields

    @property
    def reaction_noise_size(self) -> int:
        """As in the inner system."""
        return self.inner.reaction_noise_size

    @property
    def exogenous_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.exogenous_fields

    @property
    def series(self) -> Series | None:
        """As in the inner system."""
        return series_of(self.inner)

    @property
    def timed(self) -> bool:
        """As in the inner system."""
        return self.inner.timed

    @property
    def step_seconds(self) -> Scalar | float | None:
        """As in the inner system."""
        return self.inner.step_seconds

    @property
    def cost_fields(self) -> tuple[CostPart, ...]:
        """As in the inner system."""
        return self.inner.cost_fields

    @property
    def quantity_fields(self) -> tuple[Field, ...]:
        """As in the inner system."""
        return self.inner.quantity_fields

    @property
    def nouns(self) -> Nouns:
        """As in the inner system."""
        return self.inner.nouns

    @property
    def environment_sees_state(self) -> bool:
        """As in the inner system."""
        return self.inner.environment_sees_state

    def initial_external(self) -> Answer:
        """As in the inner system."""
        return self.inner.initial_external()

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """As in the inner system."""
        return self.inner.react(external, shared, noise)

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Scalar | Mapping[str, Scalar]:
        """As in the inner system."""
        return self.inner.cost(secret, state, after, shared, external)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """As in the inner system."""
        return self.inner.distortion(state, shared)

    def output(self, state: State) -> Shared:
        """As in the inner system."""
        return self.inner.output(state)

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """As in the inner system."""
        return self.inner.quantities(states, external, shared)


class WithHidden(Variant):
    """A system with further coordinates of the state, behind those of the inner one; nothing shows them."""

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    @property
    @abc.abstractmethod
    def hidden_fields(self) -> tuple[Field, ...]:
        """The fields of the further coordinates."""

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """The inner fields, then the hidden ones."""
        return (*self.inner.state_fields, *self.hidden_fields)

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Scalar | Mapping[str, Scalar]:
        """The inner cost, which does not see the hidden coordinates."""
        return self.inner.cost(secret, self.shown(state), self.shown(after), shared, external)

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """The inner distortion, which does not see the hidden coordinates."""
        return self.inner.distortion(self.shown(state), shared)

    def output(self, state: State) -> Shared:
        """The inner output, which does not see the hidden coordinates."""
        return self.inner.output(self.shown(state))

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """The inner quantities, which do not see the hidden coordinates."""
        return self.inner.quantities(states[:, : len(self.inner.state_fields)], external, shared)

    def shown(self, state: State) -> Float[Array, " M"]:
        """The inner system's part of the state."""
        return state[: len(self.inner.state_fields)]


def stacked_law(shown: Gaussian, hidden: Gaussian) -> Gaussian:
    """The law of two independent parts of a state, one behind the other."""
    first, second = shown.mean.shape[0], hidden.mean.shape[0]
    scale = jnp.zeros((first + second,) * 2, shown.scale.dtype)
    scale = scale.at[:first, :first].set(shown.scale).at[first:, first:].set(hidden.scale)
    return Gaussian(jnp.concatenate([shown.mean, hidden.mean]), scale)


class WithPrior(Variant):
    """A system with another prior: other secrets, or other masses."""

    inner: System
    prior: Prior

    def __init__(self, inner: System, prior: Prior):
        size, given = len(inner.secret_fields), prior.secrets.shape[1]
        if given != size:
            raise ValueError(f"A secret of this system has {size} numbers; those of the prior have {given}.")
        self.inner = inner
        self.prior = prior

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)


class SamePlant(Variant):
    """A system that moves as another one does, under another sensor or with other series."""

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)

    def scenarios(self) -> tuple[Scenario, ...]:
        """Those of the inner system."""
        return self.inner.scenarios()

    def misspecified_models(self) -> Mapping[str, System]:
        """Those of the inner system."""
        return self.inner.misspecified_models()


class WithResolution(SamePlant):
    """A system whose sensor rounds, and whose releases are emitted on a public grid.

    The states themselves stay real numbers; what the owner reads is rounded.

    Attributes:
        inner: the system.
        states: resolution of each coordinate of the state, in its unit.
        outputs: step of the public grid of each shared coordinate, in its unit.
    """

    inner: System
    states: tuple[float, ...] = eqx.field(static=True)
    outputs: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, inner: System, states: Sequence[float], outputs: Sequence[float]):
        self.inner, self.states, self.outputs = inner, tuple(states), tuple(outputs)

    @property
    def state_fields(self) -> tuple[Field, ...]:
        """Those of the inner system, each with its resolution."""
        pairs = zip(self.inner.state_fields, self.states, strict=True)
        return tuple(replace(field, resolution=step) for field, step in pairs)

    @property
    def shared_fields(self) -> tuple[Field, ...]:
        """Those of the inner system, each with the step of its grid."""
        pairs = zip(self.inner.shared_fields, self.outputs, strict=True)
        return tuple(replace(field, resolution=step) for field, step in pairs)


class WithSeries(SamePlant):
    """A system with other exogenous series: another week, another tariff, or another first row.

    Attributes:
        inner: the system.
        given: its series here, with the names of its `exogenous_fields`.
    """

    inner: System
    given: Series

    def __init__(self, inner: System, given: Series):
        self.inner, self.given = inner, given

    @property
    def series(self) -> Series:
        """The series given."""
        return self.given


def with_resolution(system: System, resolution: float | Mapping[str, float]) -> System:
    """The same system with a sensor that rounds, and releases on a public grid.

    Args:
        system: any system.
        resolution: step of the sensor for every coordinate of the state, or by the names of the fields. A
            shared field of the same name is emitted in the same steps. A name that only a shared field has
            sets the grid of that field.

    Raises:
        ValueError: for a name that no field has, and for a state or shared field that is left out.
    """
    names = [field.name for field in (*system.state_fields, *system.shared_fields)]
    steps = dict.fromkeys(names, resolution) if not isinstance(resolution, Mapping) else dict(resolution)
    unknown, missing = sorted(set(steps) - set(names)), [name for name in names if name not in steps]
    if unknown or missing:
        wrong = f"there is no field {unknown[0]}" if unknown else f"the one of {missing[0]} is missing"
        raise ValueError(
            f"Give a resolution for each of {', '.join(dict.fromkeys(names))}: {wrong}. Example: "
            + ",".join(f"{name}=0.01" for name in dict.fromkeys(names))
            + "."
        )
    if isinstance(system, WithResolution):
        system = system.inner
    states, outputs = (
        tuple(float(steps[field.name]) for field in fields)
        for fields in (system.state_fields, system.shared_fields)
    )
    continuous = not any(field.resolution for field in (*system.state_fields, *system.shared_fields))
    if continuous and not any((*states, *outputs)):
        return system
    return WithResolution(system, states, outputs)


def without_sensor(system: System) -> System:
    """The system itself, without the sensor that `with_resolution` put before it."""
    return without_sensor(system.inner) if isinstance(system, WithResolution) else system


def name_of(system: System) -> str:
    """The name of a system in tables, files and reports; a sensor or other series do not change it."""
    while isinstance(system, SamePlant):
        system = system.inner
    return system_name(type(system).__name__)


def resolution_of(system: System) -> dict[str, float]:
    """The resolution of each field that has one, by its name; empty where everything is continuous.

    A shared field that is emitted in other steps than the state of the same name stands by itself, as
    "shared NAME".
    """
    found = {field.name: field.resolution for field in system.state_fields}
    for field in system.shared_fields:
        same = found.get(field.name, field.resolution) == field.resolution
        found[field.name if same else f"shared {field.name}"] = field.resolution
    return {name: step for name, step in found.items() if step > 0}


class WithNoise(Variant):
    """A system whose transition has `factor` times the noise: one number, or one per coordinate of x."""

    inner: System
    factor: Float[Array, "*N"]

    def __init__(self, inner: System, factor: ArrayLike):
        self.inner = inner
        self.factor = jnp.asarray(factor, inner.prior.secrets.dtype)

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner system's mean, a multiple of its scale."""
        law = self.inner.transition(secret, state, external)
        return Gaussian(law.mean, self.factor.reshape(-1, 1) * law.scale)


class WithNoiseBySecret(Variant):
    """A system whose noise depends on the secret: for secret k it has `factors[k]` times the noise.

    Attributes:
        inner: the system.
        factors: one per secret of the prior, in its order; all of them 1 for the inner system itself.
    """

    inner: System
    factors: Float[Array, " K"]

    def __init__(self, inner: System, factors: ArrayLike | Sequence):
        secrets, given = inner.prior.secrets, jnp.asarray(factors, inner.prior.secrets.dtype)
        if given.shape != secrets.shape[:1]:
            raise ValueError(f"Give one factor per secret, {secrets.shape[0]}; got the shape {given.shape}.")
        self.inner, self.factors = inner, given

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """As in the inner system."""
        return self.inner.initial(secret)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """The inner system's mean, and its scale times the factor of this secret."""
        own = jnp.argmin(jnp.sum((self.prior.secrets - secret[None, :]) ** 2, axis=1))
        law = self.inner.transition(secret, state, external)
        return Gaussian(law.mean, self.factors[own] * law.scale)


class WithInitial(Variant):
    """A system with another first state, of mean: inner mean + shift + slope @ (θ − mean of the prior).

    With a slope, the first state reveals something about the secret. With a shift or a spread alone, the
    model is wrong about the start in the same way for all secrets.

    Attributes:
        inner: the system.
        shift: displacement of the mean for every secret, in the units of the state.
        slope: displacement of the mean per unit of the secret.
        spread: factor of the scale.
    """

    inner: System
    shift: Float[Array, " N"]
    slope: Float[Array, "N P"]
    spread: Scalar

    def __init__(
        self,
        inner: System,
        *,
        shift: ArrayLike | Sequence = 0.0,
        slope: ArrayLike | Sequence = 0.0,
        spread: ArrayLike = 1.0,
    ):
        dtype, size = inner.prior.secrets.dtype, len(inner.state_fields)
        self.inner = inner
        self.shift = jnp.broadcast_to(jnp.asarray(shift, dtype), (size,))
        self.slope = jnp.broadcast_to(jnp.asarray(slope, dtype), (size, len(inner.secret_fields)))
        self.spread = jnp.asarray(spread, dtype)

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """The inner system's law, moved and stretched."""
        law = self.inner.initial(secret)
        middle = jnp.exp(self.prior.log_masses) @ self.prior.secrets
        return Gaussian(law.mean + self.shift + self.slope @ (secret - middle), self.spread * law.scale)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)


class KnownStart(Variant):
    """A system whose first state is known, as for an adversary who saw x_1."""

    inner: System
    state: State

    def __init__(self, inner: System, state: ArrayLike | Sequence):
        size, given = len(inner.state_fields), jnp.asarray(state, inner.prior.secrets.dtype)
        if given.shape != (size,):
            raise ValueError(f"A state of this system has {size} numbers; got the shape {given.shape}.")
        self.inner = inner
        self.state = given

    @property
    def prior(self) -> Prior:
        """As in the inner system."""
        return self.inner.prior

    def initial(self, secret: Secret) -> Gaussian:
        """All mass on the known state, for every secret."""
        del secret
        return Gaussian(self.state, jnp.zeros((self.state.shape[0],) * 2, self.state.dtype))

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """As in the inner system."""
        return self.inner.transition(secret, state, external)
