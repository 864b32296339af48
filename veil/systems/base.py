"""The contract of a system with a secret parameter, and its prior."""

import abc
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from veil.laws import Gaussian, Grid
from veil.systems.series import CLOCK, Field, Inputs, Series, ShortSeriesError
from veil.types import Answer, External, Key, Noise, Scalar, Secret, Shared, State, as_number

Numbers = Sequence | np.ndarray | Array


class Prior(eqx.Module):
    """A finite set of secrets and their probabilities.

    Attributes:
        secrets: one row of P numbers per secret.
        log_masses: logarithms of their probabilities, which sum to one.
    """

    secrets: Float[Array, "K P"] = eqx.field(converter=jnp.asarray)
    log_masses: Float[Array, " K"] = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if self.secrets.ndim != 2 or self.log_masses.shape != self.secrets.shape[:1]:
            raise ValueError(
                f"Give secrets of shape (K, P) and one log-mass each: got {self.secrets.shape} "
                f"and {self.log_masses.shape}."
            )

    @property
    def entropy(self) -> Scalar:
        """H(q) in nats: the largest possible leakage."""
        masses = jnp.exp(self.log_masses)
        return -jnp.sum(jnp.where(masses > 0, masses * self.log_masses, 0.0))


@runtime_checkable
class _Marginal(Protocol):
    """What is asked of a continuous distribution; every frozen scipy.stats distribution has it."""

    def ppf(self, q, /) -> np.ndarray: ...


def finite_prior(secrets: Numbers, masses: Numbers | None = None) -> Prior:
    """Prior over the given secrets, uniform unless `masses` are given.

    Args:
        secrets: (K, P) values, or (K,) for scalar secrets.
        masses: (K,) positive numbers that sum to one (tolerance 1e-6).
    """
    values = np.asarray(secrets, dtype=float)
    values = values[:, None] if values.ndim == 1 else values
    count = values.shape[0]
    weights = np.full(count, 1.0 / count) if masses is None else np.asarray(masses, dtype=float)
    if weights.shape != (count,) or not np.all(weights > 0) or abs(weights.sum() - 1.0) > 1e-6:
        raise ValueError(
            f"masses must be {count} positive numbers that sum to one; got {weights.tolist()}. "
            "Divide them by their sum and leave out secrets without mass."
        )
    return Prior(jnp.asarray(values), jnp.log(jnp.asarray(weights / weights.sum())))


def quasi_random_prior(marginals: Sequence[_Marginal], count: int, *, seed: int = 0) -> Prior:
    """A finite uniform prior in place of a continuous one with independent components.

    The secrets are scrambled Sobol' points, mapped by the inverse distribution functions. Powers of two are
    the best counts.

    Args:
        marginals: one frozen distribution per component, e.g. `scipy.stats.lognorm(1.5, scale=0.12)`.
        count: number of secrets.
        seed: seed of the scrambling.
    """
    from scipy.stats import qmc  # takes a third of a second to import, which a live restart does not have

    sobol = qmc.Sobol(len(marginals), scramble=True, rng=seed)
    points = sobol.random_base2(max(count - 1, 0).bit_length())[:count]
    return finite_prior(np.stack([law.ppf(points[:, i]) for i, law in enumerate(marginals)], axis=1))


if TYPE_CHECKING:  # to a type checker these are attributes of the class, not arguments of its constructor
    from typing import ClassVar as Described
else:
    from equinox import AbstractVar as Described


@dataclass(frozen=True)
class Nouns:
    """What the sentences of a report call a system and its secret.

    Attributes:
        owner: whose secret it is.
        secret: what must not become known.
        candidate: one value that the secret may have, without an article; an "s" makes it plural.
    """

    owner: str = "the system"
    secret: str = "the parameters"
    candidate: str = "secret"


@dataclass(frozen=True)
class CostPart:
    """One part of the cost of a step, in its own unit; tables and reports speak of it by name.

    Attributes:
        name: by which `System.cost` returns it.
        unit: such as "kWh"; of one step, so that an episode adds them up.
        weight: what one unit of it counts in the sum that training minimises.
    """

    name: str
    unit: str = ""
    weight: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a weight that is none."""
        if not math.isfinite(self.weight):
            raise ValueError(f"The weight of {self.name} must be a finite number.")


class System(eqx.Module):
    """A dynamical system whose transition depends on a secret θ, in a loop with an environment.

    The state x_{t+1} ~ p(· | θ, x_t, w_t) is private, the release y_t is shared, and the external input
    w_{t+1} ~ p(· | w_t, y_t) is public. Every method describes one system, one state and one step; Veil
    batches them with `jax.vmap`. Randomness enters as standard normal noise, so that the same noise can drive
    every secret. `veil.check_system` examines an instance.

    A system may have exogenous inputs: series over time that no release changes, such as weather, a tariff or
    a drive cycle. They are part of w: behind the numbers that `react` returns, w holds the row of the series
    and the number of that row, the clock. `inputs` reads w by name.

    Attributes:
        prior: the possible secrets and their masses.
        secret_fields: name, unit and range of each number of the secret.
        state_fields: the same of the state x.
        external_fields: the same of that part of w which `initial_external` and `react` return.
        shared_fields: the same of a release y.
        reaction_noise_size: how many standard normal numbers `react` is given.
        exogenous_fields: name, unit and range of each series; a field may be private.
        series: the series themselves, by the names of `exogenous_fields`; a field of the instance.
        timed: whether w has a clock although there is no series.
        step_seconds: length of a step; None where a step has no length in time.
        cost_fields: name, unit and weight of each part that `cost` returns by name; none for a plain number.
        quantity_fields: name and unit of each number of `quantities`.
        nouns: what reports call the system and its secret.
        environment_sees_state: whether w depends on the true state by other means than the releases, a radar
            or a meter for example. `react` cannot say it, because it is given the release only. Policies that
            pass the owner's noise on are refused then.
    """

    prior: eqx.AbstractVar[Prior]
    secret_fields: Described[tuple[Field, ...]]
    state_fields: Described[tuple[Field, ...]]
    external_fields: Described[tuple[Field, ...]]
    shared_fields: Described[tuple[Field, ...]]
    reaction_noise_size: Described[int]
    exogenous_fields: ClassVar[tuple[Field, ...]] = ()
    timed: ClassVar[bool] = False
    step_seconds: ClassVar[Scalar | float | None] = None
    cost_fields: ClassVar[tuple[CostPart, ...]] = ()
    quantity_fields: ClassVar[tuple[Field, ...]] = ()
    nouns: ClassVar[Nouns] = Nouns()
    environment_sees_state: ClassVar[bool] = False

    def __check_init__(self):
        """Refuse series that are not those that the fields name."""
        named, given = [field.name for field in self.exogenous_fields], series_of(self)
        if given is None and not named:
            return
        have = () if given is None else given.names
        if sorted(have) != sorted(named):
            example = ", ".join(f"'{name}': ..." for name in named)
            raise ValueError(
                f"The series of this system are {', '.join(named) or 'none'}, as its exogenous_fields say; "
                f"given are {', '.join(have) or 'none'}. Write `series: Series` among the fields of the "
                f"class and give Series({{{example}}})."
            )
        rows, step = None if given is None else given.seconds, self.step_seconds
        if rows is None or step is None or isinstance(step, Tracer):
            return
        if abs(rows - float(step)) > 1e-3 * rows:
            raise ValueError(
                f"The series ({', '.join(named)}) have a row every {rows:g} s, and a step of this system "
                f"takes {float(step):g} s. Resample them, or state another step_seconds."
            )

    @abc.abstractmethod
    def initial(self, secret: Secret) -> Gaussian:
        """Distribution of x_1. Perfect privacy in closed form requires the same one for every secret."""

    @abc.abstractmethod
    def initial_external(self) -> Answer:
        """The first external input w_1, which is public; without exogenous series and clock."""

    @abc.abstractmethod
    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """Distribution of the next state, p(x' | θ, x, w).

        Args:
            secret: θ.
            state: x_t.
            external: w_t.
        """

    @abc.abstractmethod
    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The next external input: how the environment answers a release.

        Exogenous series and clock are left out of what is returned; Veil adds them.

        Args:
            external: w_t, all of it.
            shared: the release y_t, or None where it was withheld.
            noise: `reaction_noise_size` standard normal numbers.
        """

    @abc.abstractmethod
    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Scalar | Mapping[str, Scalar]:
        """r(θ, x, x', y, w, t): the owner's cost of one step.

        A system with `cost_fields` returns its parts by name, each in its unit; others return one number.

        Args:
            secret: θ.
            state: x_t.
            after: x_{t+1}.
            shared: the release y_t.
            external: w_t; it tells the time where the system has a clock.
        """

    @abc.abstractmethod
    def distortion(self, state: State, shared: Shared) -> Scalar:
        """d(x, y): the distance of the release from the true output."""

    @abc.abstractmethod
    def output(self, state: State) -> Shared:
        """The value that is shared without protection."""

    @property
    def has_clock(self) -> bool:
        """Whether the last number of w is the clock."""
        return self.timed or bool(self.exogenous_fields)

    @property
    def input_fields(self) -> tuple[Field, ...]:
        """The fields of all of w: what the environment answers, the exogenous series, the clock."""
        return (*self.external_fields, *self.exogenous_fields, *((CLOCK,) if self.has_clock else ()))

    def inputs(self, external: Float[Array, "*batch E"]) -> Inputs:
        """The numbers of w by name, e.g. `inputs.outdoor`; with a clock also `inputs.hour` of the day."""
        series = series_of(self)
        hour = 0.0 if series is None else series.hour
        return Inputs(self.input_fields, external, hour, self.step_seconds)

    def first_external(self) -> External:
        """All of w_1: `initial_external`, the exogenous series and the clock."""
        own, series = self.initial_external(), series_of(self)
        return self._with_exogenous(own, jnp.asarray(0 if series is None else series.start, own.dtype))

    def next_external(self, external: External, shared: Shared | None, noise: Noise) -> External:
        """All of w_{t+1}: the answer of `react`, the exogenous series and the clock.

        Args:
            external: w_t.
            shared: the release y_t, or None where it was withheld.
            noise: `reaction_noise_size` standard normal numbers.
        """
        answer = self.react(external, shared, noise)
        return self._with_exogenous(answer, external[-1] + 1.0) if self.has_clock else answer

    def held_external(self, external: External) -> External:
        """All of w_{t+1} if the environment does not move: only series and clock go on."""
        if not self.has_clock:
            return external
        return self._with_exogenous(external[: len(self.external_fields)], external[-1] + 1.0)

    def _with_exogenous(self, own: Answer, clock: Scalar) -> External:
        """The environment's part of w, then the row of the series, then the clock."""
        if not self.has_clock:
            return own
        series, names = series_of(self), [field.name for field in self.exogenous_fields]
        row = jnp.zeros(0, own.dtype) if series is None or not names else series.at(clock, names)
        return jnp.concatenate([own, row.astype(own.dtype), clock[None]])

    def cost_parts(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Float[Array, " C"]:
        """The parts of the cost in the order of `cost_fields`; the cost itself where there are none.

        Args:
            secret: θ.
            state: x_t.
            after: x_{t+1}.
            shared: the release y_t.
            external: w_t.
        """
        found, names = self.cost(secret, state, after, shared, external), [p.name for p in self.cost_fields]
        if not names and not isinstance(found, Mapping):
            return jnp.asarray(found)[None]
        if not isinstance(found, Mapping) or sorted(found) != sorted(names):
            got = ", ".join(found) if isinstance(found, Mapping) else "a number"
            raise ValueError(
                f"`cost` must return a dict with one number for each of cost_fields, {', '.join(names)}; "
                f"got {got}."
            )
        return jnp.stack([jnp.asarray(found[name]) for name in names])

    def total_cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Scalar:
        """The cost of one step as the objective counts it: the parts, weighted and added up.

        Args:
            secret: θ.
            state: x_t.
            after: x_{t+1}.
            shared: the release y_t.
            external: w_t.
        """
        parts = self.cost_parts(secret, state, after, shared, external)
        if not self.cost_fields:
            return parts[0]
        return parts @ jnp.asarray([part.weight for part in self.cost_fields], parts.dtype)

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """Numbers of one episode that an audit reports beside its cost; by default none.

        Args:
            states: x_1 to x_{T+1}.
            external: w_1 to w_T.
            shared: the releases y_1 to y_T.

        Returns:
            One number for each of `quantity_fields`.
        """
        del external, shared
        return jnp.zeros(0, states.dtype)

    def scenarios(self) -> "tuple[Scenario, ...]":
        """Other laws of motion that the plant may follow; by default none.

        An audit plays them beside those that apply to every system (`veil.systems.scenarios`).
        """
        return ()

    def misspecified_models(self) -> "Mapping[str, System]":
        """Models with as many secrets that a reader may take this system for, by what such a reader thinks.

        An audit reports how much a reader with such a model learns; by default there are none.
        """
        return {}


def series_of(system: System) -> Series | None:
    """The exogenous series of a system, if it has any.

    The base class has no attribute `series`: it would be a default for the field of a subclass.
    """
    return getattr(system, "series", None)


def most_steps(system: System) -> int:
    """How many steps an episode may have: as many as the exogenous series have rows from its start on."""
    series = series_of(system)
    return sys.maxsize if series is None or not series.names else series.rows - series.start


def require_rows(system: System, steps: int) -> None:
    """Refuse an episode that is longer than the exogenous series."""
    series, most = series_of(system), most_steps(system)
    if series is not None and steps > most:
        raise ShortSeriesError(
            f"The series of this system ({', '.join(series.names)}) have {series.rows} rows and begin at row "
            f"{series.start}, enough for {most} steps; asked for are {steps}. Take at most {most} steps "
            "(--steps), give longer series, or begin at an earlier row."
        )


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


class Scenario(eqx.Module):
    """Where a policy is played, and what the owner takes its secret for there.

    Attributes:
        name: a short name for tables.
        plant: the true system; its prior lists the true secrets, in the order of the classes.
        believed: per true secret, what the owner takes it for in the terms of its own model.
        error: relative sd of the owner's error; each episode and number of a secret has its own.
        push: what an active adversary adds to the public input after each release, one row per step and one
            number per field of w but the clock; w stays in the ranges of its fields. None for nobody.
        coarse: steps that the sensor really rounds to, one per coordinate of the owner's state, where they
            are not those of the model; empty for a sensor as modelled.
    """

    name: str = eqx.field(static=True)
    plant: System
    believed: Float[Array, "K P"]
    error: Scalar = eqx.field(default=0.0, converter=as_number)
    push: Float[Array, "S E"] | None = None
    coarse: Grid = eqx.field(static=True, default=())

    def __check_init__(self):
        if self.believed.shape[0] != self.plant.prior.secrets.shape[0]:
            raise ValueError(
                f"Give one believed secret per secret of the plant: {self.plant.prior.secrets.shape[0]}, "
                f"not {self.believed.shape[0]}."
            )

    def pushed(self, external: External, time: Int[Array, ""]) -> External:
        """The input after the active adversary has added its part, which is known to everybody.

        Args:
            external: w, as the environment answers.
            time: number of the step that it belongs to, from 1.
        """
        if self.push is None:
            return external
        fields = self.plant.input_fields[: self.push.shape[1]]
        low, high = (
            jnp.asarray([getattr(one, end) for one in fields], external.dtype) for end in ("low", "high")
        )
        row = self.push[jnp.clip(time - 1, 0, self.push.shape[0] - 1)].astype(external.dtype)
        own = external[: len(fields)]
        moved = jnp.where(row == 0.0, own, jnp.clip(own + row, low, high))
        return jnp.concatenate([moved, external[len(fields) :]])

    def taken_for(self, index: Int[Array, ""], *, key: Key) -> Secret:
        """What the owner of secret `index` takes it for in one episode."""
        secret = self.believed[index]
        return secret * (1.0 + self.error * jr.normal(key, secret.shape, secret.dtype))
