"""The exact reader of a twin: the likelihood of the owner's noise for every owner.

The reader knows the plant, the self-model of every owner, and the noise ε itself, from which the releases are
computed. With p the law of the readings of owner k in the plant, and q its self-model, the density of ε given
the past and w is φ(ε) · p(r)/q(r), where r is the reading that q makes of ε. What the reader does not know is
the owner's private start: the readings of the pre-roll. It averages over starts that it simulates,

    L_k = mean over starts of Π_t p(r_t | past, w) / q(r_t | past, w),

an unbiased estimate of the likelihood of (ε, w) relative to that of pure noise. With the true start among
the simulated ones it is too large in the sense of `veil.evaluation.bounds`, so that the leakage of (ε, w),
which is at least that of the releases, is bounded from both sides. Along the true start alone, the sum of
log p − log q is the excess log-loss of the self-model, the bound of docs/twin.md.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from veil import linalg
from veil.beliefs.readings import CellFilter
from veil.beliefs.self_model import SelfMemory, SelfModel, Tracked
from veil.laws import to_grid
from veil.policies.base import Policy, sensed
from veil.policies.twin import Twin, plain_self_model, twin_of
from veil.step import Record, begin, first_belief, moves_linearly, proceed, seen, share
from veil.systems.base import System, state_grid
from veil.systems.probes import evaluate
from veil.systems.variants import with_resolution
from veil.types import External, Key, Scalar, Secret, State

UNLIKE = -1e4  # log-likelihood of an owner whose declared-public numbers are others


class TwinReading(eqx.Module):
    """What the exact reader finds in one episode.

    Attributes:
        runs: log L_k of independent runs, each with starts of its own.
        pinned: log L of the true owner with its true start among those of the last run.
        excess: Σ log p − log q of the owner's own readings after the pre-roll: the excess log-loss.
    """

    runs: Float[Array, "R K"]
    pinned: Scalar
    excess: Scalar


class TwinReader(eqx.Module):
    """The exact reader.

    Attributes:
        plant: the true system; its prior lists the owners.
        policy: a twin, perhaps behind a sensor.
        believed: what each owner takes its secret for.
        starts: how many private starts are simulated per owner and run.
    """

    plant: System
    policy: Policy
    believed: Float[Array, "K P"]
    starts: int = eqx.field(static=True, default=8)

    @property
    def twin(self) -> Twin:
        """The policy without its sensor."""
        found = twin_of(self.policy)
        assert found is not None  # whoever made the reader asked
        return found

    @property
    def exact(self) -> bool:
        """Whether the law of the readings in the plant is computed without approximation.

        Exact readings: the coordinates that are not read must move linearly, given those that are, as far as
        they can be. Where the traced program does not show it, as behind limits that are never reached, it is
        looked at step by step (`straight`), and an episode where it is not so has no likelihood. Rounded
        readings: all coordinates must be read.
        """
        if any(state_grid(self.twin.system)):
            whole = all(self.twin.seen) and len(self.plant.state_fields) == len(self.twin.seen)
            return whole and self.twin.envelope is None
        if moves_linearly(self.plant, self.twin.axes):
            return True
        plant, secret = self.plant, self.plant.prior.secrets[0]
        steps = jnp.zeros(len(self.twin.axes), secret.dtype)

        def probe() -> Array:
            model = plain_self_model(plant, secret, self.twin.seen, steps)
            start = plant.initial(secret).mean
            return straight(model, model.begin(start).known, plant.first_external())

        return bool(evaluate(probe))

    def __call__(
        self, record: Record, length: Int[Array, ""] | int, runs: int, *, play_key: Key, key: Key
    ) -> TwinReading:
        """Read one episode.

        Args:
            record: the episode, played by this policy.
            length: how many releases count.
            runs: how many independent runs.
            play_key: the private randomness that the episode was played with.
            key: the reader's randomness.
        """
        plant, external, steps = self.plant, record.public.external, record.public.shared.shape[0]
        noise = self._noise(record, play_key)
        owners = plant.prior.secrets.shape[0]

        def one(index: Int[Array, ""], start_key: Key) -> Scalar:
            """Log-ratio along a simulated start."""
            states = self._simulated(index, external, start_key)
            return self._log_ratio(index, states, noise, external, length, key=jr.fold_in(start_key, 1))

        # A start that is whitened is part of the noise: there is nothing to average over.
        private = self.twin.start_by == "public" or self.twin.envelope is not None
        starts = self.starts if private else 1

        def owner(index: Int[Array, ""], run_key: Key) -> Float[Array, " M"]:
            found = jax.vmap(lambda start: one(index, start))(jr.split(run_key, starts))
            return jnp.where(self._alike(index, record.index), found, UNLIKE)

        indices = jnp.arange(owners, dtype=jnp.int32)
        keys = jr.split(key, (runs, owners))
        ratios = jax.vmap(jax.vmap(owner), (None, 0))(indices, keys)
        whole = record.states[:steps]
        excess = self._log_ratio(record.index, whole, noise, external, length)
        # Where a likelihood is not known, none is: which one it is would tell something.
        ratios = jnp.where(jnp.all(jnp.isfinite(ratios)), ratios, jnp.nan)
        last = ratios[-1, record.index].at[0].set(excess)
        count = jnp.log(float(starts))
        return TwinReading(jax.nn.logsumexp(ratios, axis=2) - count, jax.nn.logsumexp(last) - count, excess)

    def log_score(self, record: Record, length: Int[Array, ""] | int) -> Scalar:
        """Log density of the owner's readings after the pre-roll by its self-model, Σ log q.

        Args:
            record: the episode.
            length: how many readings count.
        """
        twin, external = self.twin, record.public.external
        model = twin.self_model(self.believed[record.index])
        grid, middle = state_grid(twin.system), jnp.full(len(twin.axes), 0.5, record.states.dtype)

        def read(state: State) -> State:
            return twin.own_reading(model, to_grid(seen(self.policy, state), grid))

        readings = jax.vmap(read)(record.states[:-1])
        whitened = model.whiten_first(readings[0], middle)
        public = twin.start_by == "public"
        first = model.begin(readings[0]) if public else whitened.memory

        def step(own: SelfMemory, now: tuple[State, External]) -> tuple[SelfMemory, Scalar]:
            found = model.whiten(own, now[1], now[0], middle)
            return found.memory, found.log_density

        lines = jax.lax.scan(step, first, (readings[1:], external[:-1]))[1]
        place = jnp.arange(1, readings.shape[0], dtype=jnp.int32)
        used = (place < length) & (place > twin.preroll) & ~twin.quiet_steps(external)[1:]
        return jnp.sum(jnp.where(used, lines, 0.0)) + (0.0 if public else whitened.log_density)

    def _alike(self, index: Array, other: Array) -> Array:
        """Whether two owners declare the same numbers public."""
        names = [field.name for field in self.twin.system.secret_fields]
        places = [names.index(name) for name in self.twin.public]
        first, second = (self.believed[one][jnp.asarray(places, jnp.int32)] for one in (index, other))
        return jnp.all(first == second)

    def _noise(self, record: Record, play_key: Key) -> Float[Array, "T Y"]:
        """ε of the readings x_1 to x_T, by playing the episode again."""
        policy, seed = sensed(self.policy), record.public.public_seed
        _, start_key, run_key = jr.split(play_key, 3)
        believed = self.believed[record.index]
        first = begin(self.plant, policy, record.secret, key=start_key, believed=believed)

        def step(carry, step_key: Key):
            belief, situation = carry
            draw_key, world_key = jr.split(step_key)
            after, stage = share(policy, belief, situation, seed=seed, key=draw_key)
            following = proceed(self.plant, policy, situation, stage, key=world_key)
            return (after, following), self.twin.unpack(situation.memory).noise

        start = first_belief(policy, seed), first
        return jax.lax.scan(step, start, jr.split(run_key, record.public.shared.shape[0]))[1]

    def _simulated(self, index: Array, external: Float[Array, "T E"], key: Key) -> Float[Array, "B N"]:
        """States up to the end of the pre-roll of an owner, under the recorded inputs."""
        secret = self.plant.prior.secrets[index]
        first, *rest = jr.split(key, self.twin.preroll + 1)
        law = self.plant.initial(secret)
        state = law.sample(jr.normal(first, (law.noise_size,), law.mean.dtype))
        states = [state[None]]
        if rest:

            def step(state: State, now: tuple[External, Key]) -> tuple[State, State]:
                law = self.plant.transition(secret, state, now[0])
                after = law.sample(jr.normal(now[1], (law.noise_size,), law.mean.dtype))
                return after, after

            states.append(jax.lax.scan(step, state, (external[: len(rest)], jnp.stack(rest)))[1])
        return jnp.concatenate(states)

    def _log_ratio(
        self,
        index: Array,
        states: Float[Array, "B N"],
        noise: Float[Array, "T Y"],
        external: Float[Array, "T E"],
        length: Int[Array, ""] | int,
        *,
        key: Key | None = None,
    ) -> Scalar:
        """Σ log p − log q after the pre-roll, along the readings that an owner's model makes of the noise.

        A reading in a quiet step is not told by the noise: it is drawn from the plant with the key, or is
        that of the states where there is none.
        """
        twin, lead = self.twin, self.twin.preroll + 1
        model = twin.self_model(self.believed[index])
        plant = plant_law(self.plant, self.plant.prior.secrets[index], twin)
        grid, middle = state_grid(twin.system), jnp.full(len(twin.axes), 0.5, noise.dtype)

        def read(state: State) -> State:
            return to_grid(seen(self.policy, state), grid)

        if twin.start_by == "whitened":
            own, own_state = model.invert_first(noise[0])
            reading = twin.common_reading(model, own_state)
            line = model.whiten_first(own_state, middle).log_density
            known, first = plant.first(reading)
            ratio, lead = first - line, 1
        else:
            reading = read(states[0])
            own, known = model.begin(twin.own_reading(model, reading)), plant.begin(reading)
            ratio = jnp.zeros((), noise.dtype)
            for_lead = jax.vmap(read)(states[1:lead])

            def warm(carry, now: tuple[State, External]):
                (own, known), (reading, w) = carry, now
                own = model.whiten(own, w, twin.own_reading(model, reading), middle).memory
                return (own, plant.step(known, w, reading)[0]), None

            (own, known), _ = jax.lax.scan(warm, (own, known), (for_lead, external[: lead - 1]))

        quiet = twin.quiet_steps(external)[lead:]

        def step(carry, now: tuple[External, Array, Array, Array, Array]):
            (own, known, total), (w, epsilon, used, still, aside) = carry, now
            _, made = model.invert(own, w, epsilon)
            if twin.envelope is not None:
                if key is None:
                    unheard = twin.own_reading(model, read(aside))
                else:
                    drawn = plant.draw(known, w, jr.normal(aside, epsilon.shape, epsilon.dtype))
                    unheard = twin.own_reading(model, drawn)
                made = jnp.where(still, unheard, made)
            found = model.whiten(own, w, made, middle)
            known, line = plant.step(known, w, twin.common_reading(model, made))
            gained = jnp.where(used & ~still, line - found.log_density, 0.0)
            return (found.memory, known, total + gained), None

        used = jnp.arange(lead, noise.shape[0], dtype=jnp.int32) < length
        asides = states[lead:] if key is None else jr.split(key, noise.shape[0] - lead)
        rows = external[lead - 1 : -1], noise[lead:], used, quiet, asides
        (_, _, total), _ = jax.lax.scan(step, (own, known, ratio), rows)
        return total


class PlantLaw(NamedTuple):
    """The law of the readings in the plant, step by step.

    Attributes:
        begin: what is known after a first reading.
        first: the same, and the log density of that reading.
        step: the same of the next reading, from what was known, w and the reading.
        draw: the next reading, from what is known, w and standard normal noise.
    """

    begin: Callable[[State], Array]
    first: Callable[[State], tuple[Array, Scalar]]
    step: Callable[[Array, External, State], tuple[Array, Scalar]]
    draw: Callable[[Array, External, Array], State]


def plant_law(plant: System, secret: Secret, twin: Twin) -> PlantLaw:
    """The law of what a twin reads in a plant: by cells where all is read and rounded, else by Kalman filter.

    Args:
        plant: the true system.
        secret: of the owner, in the terms of the plant.
        twin: whose coordinates and resolution count.
    """
    grid = state_grid(twin.system)
    if any(grid) and all(twin.seen) and len(plant.state_fields) == len(grid):
        return _cell_law(plant, secret, grid)
    steps = jnp.asarray([grid[axis] for axis in twin.axes], secret.dtype)
    return _kalman_law(plain_self_model(plant, secret, twin.seen, steps))


FAR = 5.0  # standard deviations of what is not read, within which the plant must be linear: 6e-7 is outside

BENT = 1e-6  # sd of a step's noise by which a prediction may be off there


def straight(model: SelfModel, known: Tracked, external: External) -> Bool[Array, ""]:
    """Whether the next state is affine in what is not known of this one, within five standard deviations.

    Its noise must not depend on it.

    Looked at along the columns of a root of the covariance, √n times as far for n coordinates that are not
    read: a limit that acts on any linear combination within five standard deviations then shows.

    Args:
        model: of the plant.
        known: about the state.
        external: w.
    """
    hidden = jnp.asarray([place for place, flag in enumerate(model.sensor.seen) if not flag])
    size = len(hidden)
    part = known.covariance[hidden[:, None], hidden[None, :]] + 1e-30 * jnp.eye(size, dtype=known.mean.dtype)
    root = jnp.zeros((known.mean.shape[0], size), known.mean.dtype).at[hidden].set(linalg.cholesky(part))
    law = model.system.transition(model.secret, known.mean, external)

    def bend(direction: State) -> State:
        def mean(place: float) -> State:
            state = known.mean + place * FAR * size**0.5 * direction
            return model.system.transition(model.secret, state, external).mean

        def spread(place: float) -> Array:
            state = known.mean + place * FAR * size**0.5 * direction
            return model.system.transition(model.secret, state, external).scale

        slope = jax.jvp(
            lambda x: model.system.transition(model.secret, x, external).mean, (known.mean,), (direction,)
        )[1]
        away = FAR * size**0.5 * slope
        other = jnp.maximum(jnp.abs(spread(1.0) - law.scale), jnp.abs(spread(-1.0) - law.scale))
        moved = jnp.maximum(jnp.abs(mean(1.0) - law.mean - away), jnp.abs(mean(-1.0) - law.mean + away))
        return jnp.maximum(moved, jnp.max(other, axis=1))

    worst = jnp.max(jax.vmap(bend)(root.T), axis=0)
    sd = jnp.sqrt(jnp.diagonal(law.covariance))
    return jnp.all(worst <= BENT * sd + 1e-9)


def _kalman_law(model: SelfModel) -> PlantLaw:
    middle = jnp.full(len(model.sensor.axes), 0.5, model.secret.dtype)

    def whole(reading: State) -> State:
        size = len(model.sensor.seen)
        return jnp.concatenate([reading, jnp.zeros(size, reading.dtype)])[:size]

    def first(reading: State) -> tuple[Array, Scalar]:
        found = model.whiten_first(whole(reading), middle)
        return model.pack(found.memory), found.log_density

    def step(known: Array, external: External, reading: State) -> tuple[Array, Scalar]:
        memory = model.unpack(known)
        found = model.whiten(memory, external, whole(reading), middle)
        line = found.log_density
        if not all(model.sensor.seen):
            line = jnp.where(straight(model, memory.known, external), line, jnp.nan)
        return model.pack(found.memory), line

    def draw(known: Array, external: External, noise: Array) -> State:
        return model.invert(model.unpack(known), external, noise)[1]

    return PlantLaw(lambda reading: model.pack(model.begin(whole(reading))), first, step, draw)


FINER = 2  # times as many points of a cell as the owner of a counterfactual policy uses


def _cell_law(plant: System, secret: Secret, grid: tuple[float, ...]) -> PlantLaw:
    steps = {field.name: step for field, step in zip(plant.state_fields, grid, strict=True)}
    shared = {field.name: field.resolution or 1.0 for field in plant.shared_fields}
    system = with_resolution(plant, shared | steps)
    cells = CellFilter(system, FINER * CellFilter(system).points)
    middle = jnp.full(len(grid), 0.5, secret.dtype)
    width = jnp.sum(jnp.log(jnp.asarray([step for step in grid if step > 0], secret.dtype)))

    def first(reading: State) -> tuple[Array, Scalar]:
        found = cells.whiten(cells.first(secret), reading, middle)
        return jnp.concatenate([reading, found.log_weights]), found.log_mass - width

    def step(known: Array, external: External, reading: State) -> tuple[Array, Scalar]:
        before, weights = known[: len(grid)], known[len(grid) :]
        found = cells.whiten(cells.predict(secret, before, weights, external), reading, middle)
        return jnp.concatenate([reading, found.log_weights]), found.log_mass - width

    def draw(known: Array, external: External, noise: Array) -> State:
        """The last reading: no draw, so that the reader is not exact where it needs one."""
        del external, noise
        return known[: len(grid)]

    return PlantLaw(lambda reading: first(reading)[0], first, step, draw)
