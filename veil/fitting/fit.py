"""`fit`: parameters, noise and a prior from recordings, and what held-out steps say about the model."""

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from veil.fitting.estimate import (
    Likelihood,
    Parameters,
    climb,
    estimate_coloured,
    estimate_white,
    log_scores,
    ravel,
    uncertainty,
)
from veil.fitting.examine import examine, gaussianised, mean_of_blocks, rivals_of
from veil.fitting.population import population
from veil.fitting.predictor import Stretches, stretches_of
from veil.io import Store
from veil.recordings.bound import bind
from veil.recordings.recording import Recording
from veil.recordings.tables import RecordingError
from veil.results.fit import Candidate, Estimate, Family, Fit, Individual, individual_from_dict
from veil.results.parts import Examination
from veil.settings import FitSettings
from veil.systems.base import System
from veil.systems.variants import WithNoise, name_of
from veil.types import as_float64

Progress = Callable[[str, int, int], None]

ORDERS = (0, 1, 2, 3, 4, 6)

FEWEST = 60  # steps that an individual must have

NEAR_LIMIT = 1e-4  # of the prior's spread: an estimate as close to its limit is at it


def fit(
    system: System,
    recordings: Recording | Sequence[Recording],
    settings: FitSettings | None = None,
    *,
    store: Store | None = None,
    progress: Progress = lambda stage, done, total: None,
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
    """
    chosen = settings or FitSettings()
    logs = [recordings] if isinstance(recordings, Recording) else list(recordings)
    if not logs:
        raise RecordingError("there is no recording to fit to.")
    kept = store or Store()
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
        rows = max(one.steps for log in bound for one in log.stretches)
        count = max(len(one.stretches) for one in bound)
        parts = [stretches_of(double, one, rows, count) for one in bound]

    def finished(place: int) -> Individual:
        def make() -> dict[str, np.ndarray]:
            with jax.enable_x64(True):  # a setting of the thread
                return _packed(_individual(double, parts[place], bound[place].name, chosen))

        return _unpacked(kept.keep(f"fit-{place}", make))

    individuals = []
    with ThreadPoolExecutor(min(len(bound), os.cpu_count() or 1)) as pool:
        try:
            for place, one in enumerate(pool.map(finished, range(len(bound)))):
                progress("individuals", place, len(bound))
                individuals.append(one)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    progress("individuals", len(bound), len(bound))
    shared = None
    if len(individuals) > 1:
        shared = population(
            np.array([one.values for one in individuals]),
            np.array([one.covariance for one in individuals]),
            system.secret_fields,
            chosen.candidates,
            chosen.seed,
        )
    fields = [field.name for field, there in zip(system.state_fields, bound[0].seen, strict=True) if there]
    steps = {
        field.name: step for field, step in zip(system.state_fields, bound[0].resolution, strict=True) if step
    }
    return Fit(name_of(system), tuple(individuals), shared, steps, tuple(fields), chosen.horizon)


def _individual(system: System, data: Stretches, name: str, settings: FitSettings) -> Individual:
    """Fit to the first part, choose and examine on the rest, fit again to all."""
    likelihood = Likelihood(system, data)
    used = np.asarray(data.used)
    order = np.cumsum(used.ravel()).reshape(used.shape)
    fitted = round(float((1.0 - settings.held_out) * used.sum()))
    early, late = used & (order <= fitted), used & (order > fitted)
    weights, everything = jnp.asarray(early, float), jnp.asarray(used, float)
    white = estimate_white(likelihood, weights, settings.seed)
    family, parameters, tried = _chosen(likelihood, white, weights, late, fitted)
    score, noise = (np.asarray(part) for part in log_scores(likelihood, parameters))
    flat = gaussianised(noise[used], np.asarray(parameters.law.tail))
    held = late[used]
    inputs = np.concatenate([np.asarray(data.states)[:, :-1], np.asarray(data.external)[:, :-1]], axis=-1)[
        used
    ]
    seconds = None if system.step_seconds is None else float(system.step_seconds)
    rivals = rivals_of(flat, inputs, held, seconds, settings.seed)
    names = [field.name for field, there in zip(system.state_fields, data.seen, strict=True) if there]
    tests = examine(flat[held], fitted, names, seconds, rivals)
    final_white = climb(likelihood, white, likelihood.free(Family(), noise=True), everything)[0]
    final = estimate_coloured(likelihood, final_white, family, everything)
    free = likelihood.free(family, noise=False)
    if family == Family():
        final, free = final_white, likelihood.free(family, noise=True)
    found = uncertainty(likelihood, final, free, everything)
    predicted = np.asarray(data.states)[:, 1:][used][held][:, likelihood.axes]
    guesses = np.asarray(eqx.filter_jit(Likelihood.forecasts)(likelihood, parameters))[used][held]
    return Individual(
        name,
        int(used.sum()),
        int(held.sum()),
        _parameters(likelihood, final, found.covariance),
        _noise(system, data, likelihood, final, found.log_noise),
        tuple(float(x) for x in np.exp(np.asarray(final.log_noise))),
        {key: np.asarray(value).tolist() for key, value in _law(final)},
        family,
        tried,
        float(score[late].mean()),
        rivals,
        Examination(tests),
        _undetermined(system, found.weak),
        found.free,
        found.covariance,
        flat[held],
        np.stack([predicted, guesses], axis=-1),
    )


def _chosen(
    likelihood: Likelihood, white: Parameters, weights: Array, late: np.ndarray, fitted: int
) -> tuple[Family, Parameters, tuple[Candidate, ...]]:
    """The law of the noise with the fewest parameters that does as well as the best.

    It does as well if its log score on held-out steps is within one standard error of the best one's, or if
    its information criterion (Schwarz) on the fitted steps is no worse. The second rule is needed because
    several laws are tried: on white noise one of them is often ahead by a standard error.
    """
    found: dict[Family, tuple[Parameters, np.ndarray]] = {}
    criterion: dict[Family, float] = {}
    early = np.asarray(weights) > 0

    def add(family: Family) -> None:
        if family in found:
            return
        parameters = estimate_coloured(likelihood, white, family, weights)
        if family == Family() and not likelihood.axes.size > 1:
            parameters = white
        line = np.asarray(log_scores(likelihood, parameters)[0])
        count = np.sum(ravel(likelihood.free(family, noise=False)))
        found[family] = parameters, line[late]
        criterion[family] = float(count * np.log(fitted) - 2.0 * line[early].sum())

    def best_of(families: Sequence[Family]) -> Family:
        top = max(families, key=lambda one: found[one][1].mean())
        for one in families:  # the fewest parameters first
            gap, error = mean_of_blocks(found[top][1] - found[one][1])
            if gap <= error or criterion[one] <= criterion[top]:
                return one
        return top

    for order in ORDERS:
        if 10 * order < fitted:
            add(Family(order))
    order = best_of([Family(order) for order in ORDERS if Family(order) in found]).order
    heavy = Family(order, heavy=True)
    add(heavy)
    tails = best_of([Family(order), heavy])
    level = replace(tails, level=True)
    add(level)
    family = best_of([tails, level])
    scores = {one: line.mean() for one, (_, line) in found.items()}
    top = max(scores, key=lambda one: scores[one])
    tried = tuple(
        Candidate(one, float(scores[one]), *mean_of_blocks(found[top][1] - line))
        for one, (_, line) in found.items()
    )
    return family, found[family][0], tried


def _parameters(likelihood: Likelihood, final: Parameters, covariance: np.ndarray) -> tuple[Estimate, ...]:
    values, errors = np.asarray(likelihood.secret(final)), np.sqrt(np.diag(covariance))
    low, high = likelihood.limits(final)
    place = np.asarray(final.secret)
    near = (place - np.asarray(low.secret) < NEAR_LIMIT) | (np.asarray(high.secret) - place < NEAR_LIMIT)
    return tuple(
        Estimate(field.name, float(value), float(error), field.unit, bool(at))
        for field, value, error, at in zip(likelihood.system.secret_fields, values, errors, near, strict=True)
    )


def _noise(
    system: System, data: Stretches, likelihood: Likelihood, final: Parameters, errors: np.ndarray
) -> tuple[Estimate, ...]:
    """Standard deviation of one step's noise at the first reading, per coordinate of the state."""
    plant = WithNoise(system, jnp.exp(final.log_noise))
    law = plant.transition(likelihood.secret(final), data.states[0, 0], data.external[0, 0])
    sizes = np.array(jnp.sqrt(jnp.sum(law.scale**2, axis=1)))
    sizes[likelihood.axes] *= np.exp(np.asarray(final.law.log_size))
    return tuple(
        Estimate(field.name, float(size), float(size * error), field.unit)
        for field, size, error in zip(system.state_fields, sizes, errors, strict=True)
    )


def _law(final: Parameters) -> list[tuple[str, Array]]:
    law = final.law
    return [
        ("memory", law.memory),
        ("log_size", law.log_size),
        ("level", law.level),
        ("mixing", law.mixing),
        ("tail", law.tail),
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


def _packed(one: Individual) -> dict[str, np.ndarray]:
    text = json.dumps(one.to_dict()).encode()
    return {
        "text": np.frombuffer(text, np.uint8),
        "innovations": one.innovations,
        "readings": one.readings,
    }


def _unpacked(arrays: dict[str, np.ndarray]) -> Individual:
    line = json.loads(arrays["text"].tobytes())
    return individual_from_dict(line, arrays["innovations"], arrays["readings"])
