"""`fit`: parameters, noise and a prior from recordings, and what held-out steps say about the model."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from veil.executors.base import Chunk, Executor, InProcess, run_chunks
from veil.fitting.estimate import (
    Likelihood,
    Parameters,
    Uncertainty,
    estimate_coloured,
    estimate_white,
    log_scores,
    ravel,
    score_towards,
    uncertainty,
    unravel,
)
from veil.fitting.examine import examine, gaussianised, mean_and_error, rival_of, rivals_of, with_rival
from veil.fitting.population import population
from veil.fitting.predictor import Rows, is_coarse, padded_length, rows_of
from veil.io import Store
from veil.recordings.bound import Bound, bind
from veil.recordings.recording import Recording
from veil.recordings.tables import RecordingError
from veil.results.fit import Candidate, Estimate, Family, Fit, Individual, Rival, individual_from_dict
from veil.results.parts import Examination
from veil.settings import FitSettings
from veil.systems.base import System
from veil.systems.variants import WithNoise, name_of
from veil.types import as_float64

Progress = Callable[[str, int, int], None]

ORDERS = (0, 1, 2, 3, 4, 6)

PATIENCE = 2  # orders that are tried after the one with the best information criterion

FEWEST = 60  # steps that an individual must have


def fit(
    system: System,
    recordings: Recording | Sequence[Recording],
    settings: FitSettings | None = None,
    *,
    store: Store | None = None,
    progress: Progress = lambda stage, done, total: None,
    executor: Executor | None = None,
) -> Fit:
    """Estimate the parameters of a system and its noise from recordings, and examine the result.

    Parameters maximise the likelihood of one-step predictions, from several starts. The order of the noise,
    heavy tails and a size that depends on the state are chosen by the log score of held-out steps, with a
    preference for fewer parameters. The estimates that are returned use all steps; scores, tests and rivals
    use the fit to the first part, on the rest.

    Args:
        system: the model; its prior tells where to look for parameters.
        recordings: one recording, or one per individual, as `veil.read_recording` returns them.
        settings: how much is held out, and seeds.
        store: keeps finished individuals, so that an interrupted fit goes on.
        progress: called with the stage, how many individuals are done, and of how many.
        executor: who fits the individuals; this process if not given. The result is the same.
    """
    chosen = settings or FitSettings()
    logs = [recordings] if isinstance(recordings, Recording) else list(recordings)
    if not logs:
        raise RecordingError("there is no recording to fit to.")
    with jax.enable_x64(True):
        double = as_float64(system)
        bound = [bind(double, one) for one in logs]
        for one in bound:
            if one.steps - len(one.stretches) < FEWEST:
                raise RecordingError(
                    f"{one.name} has {one.steps - len(one.stretches)} steps; a fit needs at least {FEWEST}. "
                    "Give a longer recording, or leave this individual out with --where."
                )
        if len({one.seen for one in bound}) > 1:
            raise RecordingError("the recordings have different columns; fit them one by one.")
        length = max(padded_length(one.steps - 1) for one in bound)
        rounded = any(is_coarse(double, one) for one in bound)  # alike, so that all share their programs
        parts = [rows_of(double, one, length, rounded=rounded) for one in bound]
        laws = [_other_laws(double, *both, length, rounded) for both in zip(bound, logs, strict=True)]
    shared_by_all = double, chosen
    chunks = [
        Chunk(f"the fit of {one.name}", fitted_part, shared_by_all, partial(tuple, (part, others, one.name)))
        for one, part, others in zip(bound, parts, laws, strict=True)
    ]
    done = run_chunks(
        executor or InProcess(),
        chunks,
        kept=Packed,
        store=store,
        progress=lambda count: progress("individuals", count, len(chunks)),
    )
    found = [_unpacked(one.value) for one in done]
    individuals, shared = [one.individual for one in found], None
    if len(found) > 1:
        with jax.enable_x64(True):
            individuals = _against_population(double, parts, found, chosen)
        shared = population(
            np.array([one.values for one in individuals]),
            np.array([one.covariance for one in individuals]),
            system.secret_fields,
            chosen.candidates,
            chosen.seed,
        )
    fields = _recorded(system, bound[0].seen)
    steps = {
        field.name: step for field, step in zip(system.state_fields, bound[0].resolution, strict=True) if step
    }
    return Fit(name_of(system), tuple(individuals), shared, steps, tuple(fields), chosen.horizon)


@dataclass(frozen=True)
class Part:
    """An individual, and what was estimated from the steps that are not held out.

    Attributes:
        individual: its fit.
        row: all parameters of the first part.
        covariance: of the system's parameters among them, in their own units.
    """

    individual: Individual
    row: Float[np.ndarray, " R"]
    covariance: Float[np.ndarray, "P P"]


def _other_laws(
    system: System, log: Bound, recording: Recording, length: int, rounded: bool
) -> dict[str, tuple[System, Rows]]:
    """Other laws of motion that the system names, with the rows of the recording in their terms."""
    found = {}
    for name, other in system.misspecified_models().items():
        double = as_float64(other)
        try:
            rows = bind(double, recording)
        except RecordingError:
            continue
        if _recorded(double, rows.seen) == _recorded(system, log.seen):
            found[name] = double, rows_of(double, rows, length, rounded=rounded)
    return found


def _recorded(system: System, seen: Sequence[bool]) -> list[str]:
    return [field.name for field, there in zip(system.state_fields, seen, strict=True) if there]


def _individual(
    system: System,
    data: Rows,
    others: Mapping[str, tuple[System, Rows]],
    name: str,
    settings: FitSettings,
) -> Part:
    """Fit to the first part, choose and examine on the rest, fit again to all."""
    likelihood = Likelihood(system, data)
    used = np.asarray(data.used)
    early, late = _split(used, settings.held_out)
    fitted = int(early.sum())
    weights, everything = jnp.asarray(early, float), jnp.asarray(used, float)
    white = estimate_white(likelihood, weights, settings.seed)
    family, parameters, tried = _chosen(likelihood, white, weights, late)
    score, noise, half, guesses = (np.asarray(part) for part in log_scores(likelihood, parameters))
    flat = gaussianised(noise[used], half[used], np.asarray(parameters.law.tail), settings.seed)
    held = late[used]
    seconds = None if system.step_seconds is None else float(system.step_seconds)
    rivals = rivals_of(flat, _known(system, data)[used], held, seconds, settings.seed)
    free = likelihood.free(family)
    first = uncertainty(likelihood, parameters, free, weights, profiles=False)
    final = estimate_coloured(likelihood, parameters, family, everything)
    found = uncertainty(likelihood, final, free, everything)
    _, last, cells, _ = (np.asarray(part) for part in log_scores(likelihood, final))
    errors = np.zeros_like(last)
    errors[used] = gaussianised(last[used], cells[used], np.asarray(final.law.tail), settings.seed)
    for law, (model, rows) in others.items():
        other = Likelihood(model, rows)
        rivals = (*rivals, _other_law(law, other, likelihood, final, free, errors, score, settings))
    tests = examine(flat[held], fitted, _recorded(system, data.sensor.seen), seconds, rivals)
    predicted = np.asarray(data.states)[1:][used][held][:, likelihood.axes]
    individual = Individual(
        name,
        int(used.sum()),
        int(held.sum()),
        _parameters(likelihood, final, found),
        _noise(system, data, likelihood, final, found.log_noise),
        tuple(float(x) for x in np.exp(np.asarray(final.log_noise))),
        {key: np.asarray(value).tolist() for key, value in _law(likelihood, final)},
        family,
        tried,
        float(score[late].mean()),
        rivals,
        Examination(tests),
        _undetermined(system, found.weak),
        found.free,
        found.covariance,
        flat[held],
        np.stack([predicted, guesses[used][held]], axis=-1),
    )
    return Part(individual, ravel(parameters), first.covariance)


EARLIER = (0.2, 0.3, 0.5)  # parts of the recording from which another law of motion predicts the next one

ENOUGH = 200  # steps that such a part must have


HOPELESS = 50.0  # nats: a law of motion that is farther behind on the fitted steps is climbed no further


def _other_law(
    name: str,
    rival: Likelihood,
    likelihood: Likelihood,
    parameters: Parameters,
    free: np.ndarray,
    flat: Float[np.ndarray, "T Y"],
    scores: Float[np.ndarray, " T"],
    settings: FitSettings,
) -> Rival:
    """Another law of motion: what it gains on held-out steps, and whether errors go where it expects them.

    It is fitted to the first part of the recording and predicts the steps up to the next part, and so on. So
    more steps of a long recording are looked at than are held out: a law that is a little better is found.

    Args:
        name: of the other law.
        rival: the other law, of which the noise is white.
        likelihood: of the model.
        parameters: of the model, fitted to all steps.
        free: which of them were estimated.
        flat: errors of the model with these parameters, standard normal.
        scores: log scores of the model that was fitted to all steps that are not held out.
        settings: how many steps are held out, and seeds.
    """
    used = np.asarray(likelihood.data.used)
    parts = [part for part in EARLIER if part < 1.0 - settings.held_out and part * used.sum() >= ENOUGH]
    ends, others = [*parts, 1.0 - settings.held_out, 1.0], []
    early, late = _split(used, settings.held_out)
    hopeless = float((HOPELESS - scores[early].sum()) / early.sum())
    last = estimate_white(rival, jnp.asarray(early, float), settings.seed, hopeless)
    for end, until in pairwise(ends):
        before, after = _split(used, 1.0 - end)
        there = after & ~_split(used, 1.0 - until)[1]
        own = end == 1.0 - settings.held_out
        weights = jnp.asarray(before, float)
        others.append((rival, last if own else estimate_coloured(rival, last, Family(), weights), there))
    gains = (np.asarray(log_scores(rival, last)[0]) - scores)[late]
    return rival_of(name, gains, score_towards(likelihood, parameters, free, flat, others))


def _split(used: np.ndarray, held_out: float) -> tuple[np.ndarray, np.ndarray]:
    """Which steps are fitted to, and which are held out: the last ones."""
    order = np.cumsum(used)
    fitted = round(float((1.0 - held_out) * used.sum()))
    return used & (order <= fitted), used & (order > fitted)


def _known(system: System, data: Rows) -> np.ndarray:
    """What was known when each step began: the readings and the inputs, without the number of the step."""
    external = np.asarray(data.external)[:-1, : -1 if system.has_clock else None]
    return np.concatenate([np.asarray(data.states)[:-1][:, np.array(data.sensor.axes)], external], axis=1)


def _chosen(
    likelihood: Likelihood, white: Parameters, weights: Array, late: np.ndarray
) -> tuple[Family, Parameters, tuple[Candidate, ...]]:
    """The law of the noise with the fewest parameters that does as well as the best.

    It does as well if its log score on held-out steps is within one standard error of the best one's, or if
    its information criterion (Schwarz) on the fitted steps is no worse. The second rule is needed because
    several laws are tried: on white noise one of them is often ahead by a standard error.
    """
    found: dict[Family, tuple[Parameters, np.ndarray]] = {}
    criterion: dict[Family, float] = {}
    early = np.asarray(weights) > 0
    fitted = int(early.sum())

    def add(family: Family, start: Parameters) -> None:
        parameters = white if family == Family() else estimate_coloured(likelihood, start, family, weights)
        line = np.asarray(log_scores(likelihood, parameters)[0])
        found[family] = parameters, line[late]
        criterion[family] = float(likelihood.free(family).sum() * np.log(fitted) - 2.0 * line[early].sum())

    def best_of(families: Sequence[Family]) -> Family:
        top = max(families, key=lambda one: found[one][1].mean())
        for one in families:  # the fewest parameters first
            gap, error = mean_and_error(found[top][1] - found[one][1])
            if gap <= error or criterion[one] <= criterion[top]:
                return one
        return top

    start = white
    for place, order in enumerate(ORDERS):
        if 10 * order < fitted:
            add(Family(order), start)
            start = found[Family(order)][0]
        least = min(criterion, key=lambda one: criterion[one])
        if place >= ORDERS.index(least.order) + PATIENCE:
            break
    order = best_of([Family(order) for order in ORDERS if Family(order) in found]).order
    heavy = Family(order, heavy=True)
    add(heavy, found[Family(order)][0])
    tails = best_of([Family(order), heavy])
    level = replace(tails, level=True)
    add(level, found[tails][0])
    family = best_of([tails, level])
    scores = {one: line.mean() for one, (_, line) in found.items()}
    top = max(scores, key=lambda one: scores[one])
    tried = tuple(
        Candidate(one, float(scores[one]), *mean_and_error(found[top][1] - line))
        for one, (_, line) in found.items()
    )
    return family, found[family][0], tried


def _against_population(
    system: System, data: Sequence[Rows], found: Sequence[Part], settings: FitSettings
) -> list[Individual]:
    """Individuals with one more rival: their parameters, drawn to those of the population.

    The law of the population comes from the first parts of all recordings; the rival is scored on held-out
    steps, as all are.
    """
    likelihoods = [Likelihood(system, one) for one in data]
    size = len(system.secret_fields)
    estimates = [
        unravel(one.start(), jnp.asarray(part.row)) for one, part in zip(likelihoods, found, strict=True)
    ]
    values = np.array(
        [np.asarray(one.secret(each)) for one, each in zip(likelihoods, estimates, strict=True)]
    )
    law = population(
        values,
        np.array([one.covariance for one in found]),
        system.secret_fields,
        settings.candidates,
        settings.seed,
    )
    individuals = []
    for likelihood, part, shrunk in zip(likelihoods, found, law.shrunk, strict=True):
        late = _split(np.asarray(likelihood.data.used), settings.held_out)[1]
        row = part.row.copy()
        low, high = likelihood.limits()
        row[:size] = (shrunk - np.asarray(likelihood.centre)) / np.asarray(likelihood.spread)
        row = np.clip(row, low, high)
        lines = [
            np.asarray(log_scores(likelihood, unravel(likelihood.start(), jnp.asarray(one)))[0])[late]
            for one in (row, part.row)
        ]
        rival = rival_of("parameters drawn to the population", lines[0] - lines[1])
        individuals.append(with_rival(part.individual, rival))
    return individuals


def _parameters(likelihood: Likelihood, final: Parameters, found: Uncertainty) -> tuple[Estimate, ...]:
    values, errors = np.asarray(likelihood.secret(final)), np.sqrt(np.diag(found.covariance))
    return tuple(
        Estimate(
            field.name, float(value), float(error), field.unit, bool(at), (float(both[0]), float(both[1]))
        )
        for field, value, error, at, both in zip(
            likelihood.system.secret_fields, values, errors, found.at_limit, found.interval, strict=True
        )
    )


def _noise(
    system: System, data: Rows, likelihood: Likelihood, final: Parameters, errors: np.ndarray
) -> tuple[Estimate, ...]:
    """Standard deviation of one step's noise at the first reading, per coordinate of the state."""
    plant = WithNoise(system, jnp.exp(final.log_noise))
    law = plant.transition(likelihood.secret(final), data.states[0], data.external[0])
    sizes = np.array(jnp.sqrt(jnp.sum(law.scale**2, axis=1)))
    return tuple(
        Estimate(field.name, float(size), float(size * error), field.unit)
        for field, size, error in zip(system.state_fields, sizes, errors, strict=True)
    )


def _law(likelihood: Likelihood, final: Parameters) -> list[tuple[str, Array]]:
    law = final.law
    return [
        ("memory", law.memory),
        ("level", law.level),
        ("mixing", law.mixing),
        ("tail", law.tail),
        ("state_mean", likelihood.mean),
        ("state_sd", likelihood.sd),
    ]


def _undetermined(system: System, weak: Sequence[tuple[float, np.ndarray]]) -> tuple[str, ...]:
    found = []
    for size, direction in weak:
        parts = [
            f"{weight:+.2f} {field.name}"
            for weight, field in zip(direction, system.secret_fields, strict=True)
            if abs(weight) > 0.15
        ]
        found.append(
            f"the recording does not determine {' '.join(parts)} (in units of the prior's spread): its "
            f"standard error is {min(size, 999.0):.3g} times that spread"
        )
    return tuple(found)


@dataclass
class Packed:
    """A `Part` as arrays.

    Attributes:
        text: its individual, as JSON in UTF-8.
        innovations: of the individual.
        readings: of the individual.
        row: of the part.
        covariance: of the part.
    """

    text: np.ndarray
    innovations: np.ndarray
    readings: np.ndarray
    row: np.ndarray
    covariance: np.ndarray


def fitted_part(
    system: System,
    settings: FitSettings,
    data: Rows,
    others: Mapping[str, tuple[System, Rows]],
    name: str,
) -> Packed:
    """The fit of one individual, as workers compute it.

    Args:
        system: the model.
        settings: how much is held out, and seeds.
        data: the recording.
        others: other laws of motion, with the recording in their terms.
        name: of the individual.
    """
    part = _individual(system, data, others, name, settings)
    one = part.individual
    text = np.frombuffer(json.dumps(one.to_dict()).encode(), np.uint8)
    return Packed(text, one.innovations, one.readings, part.row, part.covariance)


def _unpacked(packed: Packed) -> Part:
    line = json.loads(packed.text.tobytes())
    individual = individual_from_dict(line, packed.innovations, packed.readings)
    return Part(individual, packed.row, packed.covariance)
