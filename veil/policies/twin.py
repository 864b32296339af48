"""The twin: a public standard system, driven by the owner's own noise.

The owner has a model of itself: the law of its next reading given its own past and the public input. By this
law it turns every reading into standard normal noise ε. Copies of a standard system, one per secret of the
prior, are driven by ε and w, and the centre of their outputs is released. Where the self-model is right, ε
has one law whatever the owner is, so that releases and inputs tell nothing about it; where it is wrong, they
tell at most the excess log-loss of the self-model (docs/twin.md, with the conditions). No model of other
owners has to be right, and no belief is kept. `Counterfactual` is the case of a self-model that is the system
itself at the owner's secret, with every coordinate of the state read.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, ArrayLike, Bool, DTypeLike, Float

from veil.beliefs.online import learner
from veil.beliefs.readings import own_noise
from veil.beliefs.self_model import SelfMemory, SelfModel, Sensor, white
from veil.laws import Law, MemoryKernel, Point, diagonal_gaussian
from veil.policies.base import Decision, Memory, PlainPolicy, Policy, Sensed, Time, optional, per_axis
from veil.policies.geometry import distortion_metric, expected_start, geometric_median, nearest
from veil.policies.novelty import Envelope, Past, standard_envelope
from veil.registry import POLICIES, PerAxis
from veil.systems.base import Prior, System, state_grid
from veil.systems.probes import evaluate
from veil.traced import dependence
from veil.types import External, Features, Key, Noise, Scalar, Secret, Shared, State

Centre = Literal["median", "mean", "standard"]

Start = Literal["public", "whitened"]

PREROLL = 25  # steps that a fitted self-model reads before the first release

STAIRCASE = 0.01  # nats in `RUN` steps that reading rounded numbers by a density may tell at most

RUN = 50  # steps


class TwinMemory(eqx.Module):
    """What a twin carries from step to step. It is private.

    Attributes:
        age: number of this step, from 1.
        secret: what the owner takes its secret for.
        noise: ε of the last reading.
        own: memory of the self-model.
        copies: memories of the standard system, batched [K].
        calm: steps since the last input that was new; a function of w.
        past: what the envelope remembers of the inputs; a function of w, empty without an envelope.
    """

    age: Scalar
    secret: Secret
    noise: Noise
    own: SelfMemory
    copies: SelfMemory
    calm: Scalar
    past: Float[Array, " U"]


class Twin(PlainPolicy):
    """Share the centre of copies of a standard system that are driven by the owner's own noise.

    Attributes:
        system: the standard system, which is public: it must not be fitted to the owner alone.
        models: self-models, batched by owner; None for the system itself at the owner's secret.
        owners: secret of each of these owners; an owner uses the model of the nearest one.
        sd: standard deviation of additional noise per axis; None for none.
        seen: which coordinates of the state are read: those that the output depends on.
        centre: of the copies: "median", the point of least expected distortion to them, their "mean" by the
            prior, or "standard", a single copy at the mean of the prior.
        start_by: "public", from the expected start of the standard system; or "whitened", where the first
            reading is turned into noise by the initial law of the self-model.
        preroll: steps at the begin that are read but not released, so that the self-model knows its noise.
        public: numbers of the secret that the owner declares public, by their names; copies take them over.
        envelope: of the public inputs. While they are outside, and for some steps after, the copies take
            their steps without noise; None never to do so.
    """

    has_memory: ClassVar[bool] = True
    finest: ClassVar[float] = 1e-6

    system: System
    models: SelfModel | None
    owners: Float[Array, "O P"] | None
    sd: Float[Array, " Y"] | None
    seen: tuple[bool, ...] = eqx.field(static=True)
    centre: Centre = eqx.field(static=True)
    start_by: Start = eqx.field(static=True)
    preroll: int = eqx.field(static=True)
    public: tuple[str, ...] = eqx.field(static=True)
    envelope: Envelope | None

    def __init__(
        self,
        system: System,
        models: SelfModel | Sequence[SelfModel] | None = None,
        owners: ArrayLike | None = None,
        *,
        sd: ArrayLike | Sequence | None = None,
        centre: Centre = "median",
        start: Start | None = None,
        preroll: int | None = None,
        public: Sequence[str] = (),
        envelope: Envelope | None = None,
    ):
        """A twin.

        Args:
            system: the standard system.
            models: the owner's fitted self-model, or one per owner; None for the system at its secret.
            owners: secrets of these owners, one row each; not needed for a single model.
            sd: of additional noise per axis.
            centre: see the class.
            start: see the class; by default "public" for fitted models, else "whitened".
            preroll: see the class; by default 25 for fitted models, else 0.
            public: names of secret fields that the owner declares public.
            envelope: see the class.
        """
        fitted = [models] if isinstance(models, SelfModel) else list(models or ())
        rows = jnp.zeros((1, len(system.secret_fields))) if owners is None else jnp.asarray(owners)
        self.system, self.sd, self.public = system, optional(sd), tuple(public)
        self.seen = read_coordinates(system)
        self.models = stacked_models(fitted) if fitted else None
        self.owners = rows.astype(system.prior.secrets.dtype) if fitted else None
        self.centre, self.envelope = centre, envelope
        self.start_by = start or ("public" if fitted else "whitened")
        self.preroll = preroll if preroll is not None else PREROLL if fitted else 0
        if centre not in get_args(Centre):
            raise ValueError(f"centre must be one of {', '.join(get_args(Centre))}; got {centre!r}.")
        if self.start_by not in get_args(Start):
            raise ValueError(f"start must be one of {', '.join(get_args(Start))}; got {start!r}.")
        if self.preroll < 0 or (self.preroll and self.start_by == "whitened"):
            raise ValueError("A pre-roll is a number of steps, and goes with a public start; leave one out.")
        if fitted and (len(fitted) != len(rows)):
            raise ValueError(f"Give one row of `owners` per self-model: {len(fitted)}, not {len(rows)}.")
        _check_public(system, self.public)
        _check_loop(system)
        _check_noise(system, self.seen)
        for model in fitted:
            _check_sensor(system, self.seen, model)

    @property
    def axes(self) -> tuple[int, ...]:
        """The coordinates of the state that are read."""
        return tuple(place for place, flag in enumerate(self.seen) if flag)

    def too_coarse(self) -> tuple[str, ...]:
        """Names of the fields that are read in steps of more than the noise of one step.

        Up to there the excess log-loss of the filter behind the sensor was found to be below 5e-4 nats in 50
        steps; at twice that noise it is 0.004, at four times 0.05 (docs/twin.md).
        """
        rows = zip(self.system.state_fields, self.seen, own_noise(self.system), strict=True)
        return tuple(field.name for field, flag, sd in rows if flag and field.resolution > sd)

    def self_model(self, secret: Secret) -> SelfModel:
        """The model that an owner has of itself.

        Args:
            secret: what the owner takes its secret for.
        """
        grid = state_grid(self.system)
        steps = jnp.asarray([grid[axis] for axis in self.axes], secret.dtype)
        if self.models is None or self.owners is None:
            return plain_self_model(self.system, secret, self.seen, steps)
        count = self.owners.shape[0]
        alike = Prior(self.owners, jnp.full(count, -jnp.log(float(count)), self.owners.dtype))
        place = nearest(alike, secret)
        found = jax.tree.map(lambda leaf: leaf[place], self.models)
        step = found.sensor.step.at[jnp.asarray(found.sensor.axes)].set(steps)
        return eqx.tree_at(lambda one: one.sensor.step, found, step)

    def own_reading(self, model: SelfModel, state: State) -> State:
        """What is read of a state, in the coordinates of a self-model.

        Args:
            model: of the owner.
            state: in the coordinates of the standard system.
        """
        values = state[jnp.asarray(self.axes)]
        size = len(model.sensor.seen)
        return jnp.zeros(size, state.dtype).at[jnp.asarray(model.sensor.axes)].set(values)

    def common_reading(self, model: SelfModel, reading: State) -> State:
        """The inverse of `own_reading`; coordinates that are not read are zero.

        Args:
            model: of the owner.
            reading: in its coordinates.
        """
        values = reading[jnp.asarray(model.sensor.axes)]
        return jnp.zeros(len(self.seen), reading.dtype).at[jnp.asarray(self.axes)].set(values)

    def init_memory(self, secret: Secret, state: State, *, key: Key) -> Memory:
        """The first reading, and copies at their start."""
        model, standards = self.self_model(secret), self.standards(secret)
        reading = self.own_reading(model, state)
        if self.start_by == "public":
            own, noise = model.begin(reading), jnp.zeros(len(self.axes), state.dtype)
            middle = expected_start(self.system)
            copies = jax.vmap(lambda one: one.begin(middle))(standards)
        else:
            uniform = jr.uniform(key, (len(self.axes),), state.dtype)
            found = model.whiten_first(reading, uniform)
            own, noise = found.memory, found.noise
            copies = jax.vmap(lambda one: one.invert_first(noise)[0])(standards)
        one, calm = jnp.ones((), state.dtype), self._calm(state.dtype)
        return self.pack(TwinMemory(one, secret, noise, own, copies, calm, self._no_input(state.dtype)))

    def update_memory(
        self, memory: Memory, secret: Secret, state: State, external: External, after: State, *, key: Key
    ) -> Memory:
        """The new reading as noise; the copies take the step with it, unless nothing may be used."""
        del secret, state
        now = self.unpack(memory)
        model = self.self_model(now.secret)
        uniform = jr.uniform(key, (len(self.axes),), after.dtype)
        found = model.whiten(now.own, external, self.own_reading(model, after), uniform)
        used = jnp.where(self.follows(now, external), found.noise, 0.0)
        return self._moved(now, external, found.memory, found.noise, used)

    def coast_memory(self, memory: Memory, external: External) -> Memory:
        """The self-model expects the step, and the copies take it without noise."""
        now = self.unpack(memory)
        own = self.self_model(now.secret).skip(now.own, external)
        nothing = jnp.zeros_like(now.noise)
        return self._moved(now, external, own, nothing, nothing)

    def follows(self, memory: TwinMemory, external: External) -> Bool[Array, ""]:
        """Whether the copies take this step with the owner's noise: by the number of the step and w alone.

        Args:
            memory: at the step.
            external: w of the step.
        """
        late = memory.age > self.preroll
        return late if self.envelope is None else late & (self._calmer(memory, external) > self.envelope.hold)

    def quiet(self, memory: TwinMemory) -> Bool[Array, ""]:
        """Whether what is released now does not depend on the last reading, because an input was new."""
        return jnp.asarray(False) if self.envelope is None else memory.calm <= self.envelope.hold

    def quiet_steps(self, external: Float[Array, "T E"]) -> Bool[Array, " T"]:
        """For each step of a run whether it is quiet, from the public inputs.

        Args:
            external: w_1 to w_T.
        """
        if self.envelope is None:
            return jnp.zeros(external.shape[0], bool)
        envelope, kind = self.envelope, external.dtype

        def step(carry: tuple[Scalar, Array], w: External) -> tuple[tuple[Scalar, Array], Array]:
            calm, past = carry
            calm = jnp.where(envelope.is_new(past, w), 0.0, calm + 1.0).astype(kind)
            return (calm, envelope.after(past, w)), calm <= envelope.hold

        start = self._calm(kind), envelope.begin(external[0])
        quiet = jax.lax.scan(step, start, external)[1]
        return jnp.concatenate([jnp.zeros(1, bool), quiet[:-1]])

    def kernel(self, features: Features, external: External, time: Time) -> MemoryKernel:
        """The same kernel at every step."""
        del features, external, time
        return TwinKernel(self)

    def decide(self, features: Features, external: External, time: Time) -> Decision:
        """Withhold in the pre-roll, then release; the releases of a twin are not charged one by one."""
        nothing, kernel = jnp.zeros((), features.dtype), self.kernel(features, external, time)
        if self.preroll == 0:
            return Decision(kernel, nothing, jnp.asarray(True), None, nothing, None)
        early = time <= self.preroll
        value = self.system.output(expected_start(self.system)).astype(features.dtype)
        return Decision(kernel, nothing, ~early, early, nothing, value)

    def carried_memory(self, memory: Memory) -> Memory:
        """The memory for a run that follows at once: what the self-model knows stays, copies start anew.

        No pre-roll is needed then.

        Args:
            memory: at the last step of a run.
        """
        now = self.unpack(memory)
        middle = expected_start(self.system)
        copies = jax.vmap(lambda one: one.begin(middle))(self.standards(now.secret))
        age, nothing = jnp.full_like(now.age, self.preroll + 1.0), jnp.zeros_like(now.noise)
        return self.pack(TwinMemory(age, now.secret, nothing, now.own, copies, now.calm, now.past))

    def pack(self, memory: TwinMemory) -> Memory:
        """A memory as one row of numbers, to be saved."""
        return ravel_pytree(memory)[0]

    def unpack(self, row: Memory) -> TwinMemory:
        """The memory of a row that `pack` made."""
        secret = self.system.prior.secrets[0]
        model, middle = self.self_model(secret), expected_start(self.system)
        own = model.begin(self.own_reading(model, middle))
        copies = jax.vmap(lambda one: one.begin(middle))(self.standards(secret))
        nothing, zero = jnp.zeros(len(self.axes), row.dtype), jnp.zeros((), row.dtype)
        like = TwinMemory(zero, secret, nothing, own, copies, zero, self._no_input(row.dtype))
        return ravel_pytree(like)[1](row)

    def release_centre(self, memory: TwinMemory) -> Shared:
        """The centre of the outputs of the copies."""
        outputs = jax.vmap(self.system.output)(memory.copies.known.mean)
        weights = jnp.exp(self.system.prior.log_masses)
        if self.centre == "standard":
            return outputs[0]
        if self.centre == "mean":
            return weights @ outputs
        return geometric_median(weights, outputs, distortion_metric(self.system))

    def _moved(
        self, now: TwinMemory, external: External, own: SelfMemory, noise: Noise, used: Noise
    ) -> Memory:
        """The memory after a step in which the copies were driven by the noise that is used."""
        standards = self.standards(now.secret)
        copies = jax.vmap(lambda one, memory: one.invert(memory, external, used)[0])(standards, now.copies)
        calm = self._calmer(now, external)
        past = now.past if self.envelope is None else self.envelope.after(self.past(now, external), external)
        return self.pack(TwinMemory(now.age + 1.0, now.secret, noise, own, copies, calm, past))

    def past(self, memory: TwinMemory, external: External) -> Past:
        """What the envelope remembers before this input; the first one has always been there.

        Args:
            memory: at the step.
            external: w of the step.
        """
        if self.envelope is None:
            return memory.past
        begun = self.envelope.begin(external).astype(memory.past.dtype)
        return jnp.where(memory.age > 1.0, memory.past, begun)

    def _calm(self, kind: DTypeLike) -> Scalar:
        """Of a run in which nothing was new yet."""
        return jnp.full((), 0.0 if self.envelope is None else self.envelope.hold + 1.0, kind)

    def _no_input(self, kind: DTypeLike) -> Past:
        return jnp.zeros(0 if self.envelope is None else 2 * self.envelope.size, kind)

    def _calmer(self, now: TwinMemory, external: External) -> Scalar:
        """Steps since the last new input, this one considered."""
        if self.envelope is None:
            return now.calm
        return jnp.where(self.envelope.is_new(self.past(now, external), external), 0.0, now.calm + 1.0)

    def standards(self, secret: Secret) -> SelfModel:
        """The standard system as a predictive law, one per copy; the public numbers are the owner's."""
        prior = self.system.prior
        middle = (jnp.exp(prior.log_masses) @ prior.secrets)[None]
        secrets = middle if self.centre == "standard" else prior.secrets
        kept = jnp.asarray([field.name in self.public for field in self.system.secret_fields])
        secrets = jnp.where(kept[None, :], secret[None, :], secrets)
        exact = jnp.zeros(len(self.axes), secret.dtype)
        return jax.vmap(lambda one: plain_self_model(self.system, one, self.seen, exact))(secrets)


class TwinKernel(MemoryKernel):
    """The centre of the copies' outputs, with noise if there is an `sd`."""

    policy: Twin

    def release_law(self, secret: Secret, state: State, memory: Memory) -> Law:
        """Around the centre of the copies' outputs."""
        del secret, state
        centre = self.policy.release_centre(self.policy.unpack(memory))
        return Point(centre) if self.policy.sd is None else diagonal_gaussian(centre, self.policy.sd)


def stacked_models(models: Sequence[SelfModel]) -> SelfModel:
    """Self-models of the same kind, batched by owner."""
    heavy = any(one.heavy for one in models)
    alike = [dataclasses.replace(one, heavy=heavy) for one in models]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *alike)


def twin_of(policy: Policy) -> Twin | None:
    """The twin behind a sensor, or itself; None for every other policy."""
    found = policy.inner if isinstance(policy, Sensed) else policy
    return found if isinstance(found, Twin) else None


def apart(policy: Policy) -> "tuple[Policy, Own]":
    """A policy without what its owner was fitted to be, and that: what is public, and what is not."""
    twin = twin_of(policy)
    if twin is None or twin.models is None:
        return policy, None
    return _with_own(policy, (None, None)), (twin.models, twin.owners)


def together(policy: Policy, own: "Own") -> Policy:
    """The policy again that `apart` took apart.

    Args:
        policy: its public part.
        own: the rest.
    """
    return policy if own is None else _with_own(policy, own)


Own = tuple[SelfModel, Array | None] | None
"""Fitted self-models and the secrets of their owners; None for a policy without."""


def _with_own(policy: Policy, own: tuple[SelfModel | None, Array | None]) -> Policy:
    def places(one: Policy) -> tuple:
        twin = _twin_in(one)
        return twin.models, twin.owners

    return eqx.tree_at(places, policy, own, is_leaf=lambda one: one is None)


def _twin_in(policy: Policy) -> Twin:
    found = twin_of(policy)
    assert found is not None  # whoever asks looked
    return found


def plain_self_model(
    system: System, secret: Secret, seen: tuple[bool, ...], steps: Float[Array, " Y"]
) -> SelfModel:
    """A system at a secret as the predictive law of what is read of it, with the system's own noise.

    Args:
        system: the model; coordinates beyond those of `seen` are not read.
        secret: of the owner.
        seen: which coordinates are read.
        steps: of the digits of those that are; 0 for exact ones.
    """
    size = len(system.state_fields)
    flags = (*seen, *(False,) * (size - len(seen)))[:size]
    places = jnp.asarray([place for place, flag in enumerate(flags) if flag])
    every = jnp.zeros(size, secret.dtype).at[places].set(steps)
    count = len(places)
    law = jax.tree.map(lambda leaf: leaf.astype(secret.dtype), white(count))
    return SelfModel(
        system,
        secret,
        Sensor(flags, every, False),
        law,
        jnp.zeros(count, secret.dtype),
        jnp.ones(count, secret.dtype),
        heavy=False,
    )


def learning_model(system: System, secret: Secret, seen: tuple[bool, ...]) -> SelfModel:
    """A system at a secret as a self-model that learns on; it may be off by as much as the prior is wide.

    Args:
        system: the model.
        secret: where it begins.
        seen: which coordinates are read.
    """
    weights, count = jnp.exp(system.prior.log_masses), sum(seen)
    middle = weights @ system.prior.secrets
    spread = jnp.sqrt(weights @ (system.prior.secrets - middle[None]) ** 2)
    begin = jax.tree.map(lambda leaf: leaf.astype(secret.dtype), learner(spread, count))
    plain = plain_self_model(system, secret, seen, jnp.zeros(count, secret.dtype))
    return dataclasses.replace(plain, learner=begin)


def read_coordinates(system: System) -> tuple[bool, ...]:
    """Which coordinates of the state its output depends on, by the traced program."""
    start = evaluate(lambda: expected_start(system))
    found = np.any(dependence(system.output, jnp.asarray(start)), axis=1)
    return tuple(bool(flag) for flag in found)


def _check_public(system: System, names: tuple[str, ...]) -> None:
    known = [field.name for field in system.secret_fields]
    for name in names:
        if name not in known:
            raise ValueError(f"There is no number {name!r} in the secret; it has {', '.join(known)}.")


def _check_loop(system: System) -> None:
    """Refuse a loop whose environment sees the true state: a twin would hand over its input."""
    if system.environment_sees_state:
        raise ValueError(
            "The environment of this system sees the true state by other means than the releases, and a twin "
            "would tell it the noise that made that state. Share by noise, or keep the state from the "
            "environment."
        )


def _check_noise(system: System, seen: tuple[bool, ...]) -> None:
    """Refuse a coordinate that is read and has no noise of its own: it cannot be turned into noise."""
    still = [
        field.name
        for field, flag, sd in zip(system.state_fields, seen, own_noise(system), strict=True)
        if flag and not sd > 0.0
    ]
    if still:
        raise ValueError(
            f"A twin turns what is read into noise, and {', '.join(still)} has none of its own: a step of it "
            "follows from what is known. Share something else, or model the noise that it has."
        )


def _check_sensor(system: System, seen: tuple[bool, ...], model: SelfModel) -> None:
    """Refuse to read the rounded numbers that a self-model was fitted to as if they were exact."""
    axes = [place for place, flag in enumerate(seen) if flag]
    own = model.sensor.axes
    if len(own) != len(axes):
        names = ", ".join(system.state_fields[axis].name for axis in axes)
        raise ValueError(
            f"The self-model reads {len(own)} coordinates, and the output of this system depends on {names}. "
            "Fit to a recording of these."
        )
    grid, start = state_grid(system), model.system.initial(model.secret).mean
    law = model.system.transition(model.secret, start, system.first_external())
    told = [
        float(model.sensor.step[mine]) ** 2 / (24.0 * float(law.covariance[mine, mine]))
        for axis, mine in zip(axes, own, strict=True)
        if grid[axis] == 0
    ]
    if RUN * sum(told) > STAIRCASE:
        steps = ",".join(
            f"{system.state_fields[axis].name}={float(model.sensor.step[mine]):g}"
            for axis, mine in zip(axes, own, strict=True)
        )
        raise ValueError(
            f"The self-model was fitted to rounded readings. Taken for exact ones they would tell about "
            f"{RUN * sum(told):.2g} nats in {RUN} steps. State the resolution: --resolution {steps}, or "
            "`with_resolution`."
        )


@POLICIES.register("twin")
@dataclass(frozen=True)
class TwinSettings:
    """Share what a standard system makes of your own noise."""

    sd: PerAxis = ()
    """Sd of the noise per shared axis, in its unit; none by default"""
    preroll: int = 0
    """First steps that are read but not released"""
    public: str = ""
    """Numbers of the secret that are public, by name: a,b"""
    envelope: bool = False
    """Take no noise while the public inputs are new"""
    learn: bool = False
    """Go on learning your own parameters along the stream"""

    def __post_init__(self) -> None:
        """Refuse what is no number of steps."""
        if not 0 <= self.preroll <= 100_000:
            raise ValueError("a pre-roll is a number of steps, 0 or more, e.g. --preroll 25.")

    def build(self, system: System) -> Twin:
        """The policy for a system: its self-model is the system at the owner's secret."""
        secrets, seen = system.prior.secrets, read_coordinates(system)
        models = [learning_model(system, one, seen) for one in secrets] if self.learn else None
        return Twin(
            system,
            models,
            secrets if self.learn else None,
            sd=per_axis(self.sd, system) if self.sd else None,
            start="public" if self.preroll or self.learn else "whitened",
            preroll=self.preroll or (PREROLL if self.learn else 0),
            public=self.names(),
            envelope=standard_envelope(system) if self.envelope else None,
        )

    def names(self) -> tuple[str, ...]:
        """The declared-public numbers."""
        return tuple(name.strip() for name in self.public.split(",") if name.strip())
