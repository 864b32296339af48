"""The measurement of a recording: what it reveals as it is or shared by a policy, and whether the model fits.

Read `measure` first. Releases of a policy other than the truth are read by the adversary that fits them:
exactly where they have no noise, by coupling where they depend on a private memory, else by particle filters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import log_softmax

from veil.attacks.particle_filter import ParticleFilter
from veil.beliefs.innovations import Innovation, innovations
from veil.evaluation.episodes import side_by_side
from veil.evaluation.fit_test import examine_residuals, free_fit
from veil.evaluation.verdict import recording_verdict
from veil.executors.base import Chunk, ChunkError, Executor, InProcess, run_chunks
from veil.policies.base import Policy, with_sensor
from veil.policies.plain import Truth
from veil.recordings.bound import Bound, bind
from veil.recordings.posterior import (
    RecordedPath,
    RecordedStart,
    filled,
    fresh_releases,
    guide,
    read_noisy,
    readings,
    releases_on_recording,
    same_whatever_the_secret,
)
from veil.recordings.recording import Recording
from veil.recordings.requirements import dependence, needs
from veil.recordings.tables import RecordingError
from veil.results.measurement import Column, Measurement, entropy
from veil.results.recording_fit import RecordingFit
from veil.results.text import secret_text
from veil.settings import MeasureSettings
from veil.stats import Mean
from veil.step import first_law, release_kind, sees_state
from veil.systems.base import System, state_grid
from veil.systems.variants import name_of, with_resolution
from veil.types import Key, Scalar, Secret, as_float64

Progress = Callable[[str, int, int], None]

Maker = Callable[[System], Policy]


@dataclass(frozen=True)
class Reading:
    """What an adversary got out of the releases.

    Attributes:
        log_likelihood: per draw of the noise, independent filter and secret.
        trail: posterior masses after each release, the mean over the draws.
        method: what it did.
        filtered: whether it needed particles.
    """

    log_likelihood: Float[np.ndarray, "D R K"]
    trail: Float[np.ndarray, "T K"]
    method: str
    filtered: bool


@dataclass(frozen=True)
class Summary:
    """Means over the draws.

    Attributes:
        masses: of the posterior.
        information: KL(posterior ‖ prior).
        drop: of the entropy.
        filter_error: what the filters add to the standard error of `information`.
        disagreement: distance in total variation of a filter's posterior from that of all filters of its
            draw; 1 for a filter that lost the releases under all secrets.
    """

    masses: Float[np.ndarray, " K"]
    information: Mean
    drop: Mean
    filter_error: float
    disagreement: float


def measure(
    system: System,
    recording: Recording,
    make_policy: Maker = Truth,
    settings: MeasureSettings | None = None,
    *,
    progress: Progress = lambda stage, done, total: None,
) -> Measurement:
    """Measure what a recording reveals about the secret of a system, if a policy shares it.

    The external inputs are taken as recorded; a recording does not show how others would have answered other
    releases. The first row is taken as public, so that what it reveals by itself does not count. Everything
    runs in double precision, whatever the precision of the arguments.

    Each stretch of the recording begins anew: its first row is public, what is not recorded has the law that
    it has at the start of the system, and a policy starts afresh. Given the secret, stretches are taken to be
    independent, so that their log-likelihoods add up.

    Args:
        system: the model.
        recording: as `veil.read_recording` returns it.
        make_policy: makes the policy for a model, e.g. `lambda model: GaussianNoise(model, sd)`; its model
            starts at the first row of a stretch. By default the recording is shared as it is.
        settings: the particles and draws of the filters.
        progress: called with the stage, how many draws are done, and of how many.
    """
    with jax.enable_x64(True):
        double = as_float64(system)
        found = _measure(
            double, bind(double, recording), make_policy, settings or MeasureSettings(), progress
        )
        return replace(found, notes=recording.notes)


def measure_all(
    subjects: Sequence[tuple[System, Recording]],
    make_policy: Maker = Truth,
    settings: MeasureSettings | None = None,
    *,
    progress: Progress = lambda stage, done, total: None,
    executor: Executor | None = None,
    failed: Callable[[str, str], None] | None = None,
) -> list[Measurement]:
    """Measure several recordings: one after the other in this process, or each as a chunk by workers.

    Args:
        subjects: each recording with its model.
        make_policy: see `measure`; workers must find it by its name.
        settings: the particles and draws of the filters.
        progress: called with the stage, how far that is, and of how much.
        executor: who measures; this process if not given.
        failed: called with the name of each recording that cannot be measured by a worker, and the reason;
            the others are then returned. Without it a `ChunkError` names them, once the others are measured.
    """
    executor, settings = executor or InProcess(), settings or MeasureSettings()
    count, found, reasons = len(subjects), list[Measurement](), dict[str, str]()
    if not executor.remote:
        for number, (system, log) in enumerate(subjects):
            progress("recordings", number, count)
            found.append(measure(system, log, make_policy, settings, progress=progress))
        progress("recordings", count, count)
        return found

    def job(system: System, log: Recording) -> Callable[[Progress], list[Measurement]]:
        def run(told: Progress) -> list[Measurement]:
            chunk = Chunk(f"recording {log.name}", measure, (system, log, make_policy, settings))
            try:
                (done,) = run_chunks(executor, [chunk])
            except ChunkError as error:
                reasons[log.name] = str(error)
                return []
            finished.append(log.name)
            told("recordings", len(finished), count)
            return [done.value]

        return run

    finished = list[str]()
    parts = side_by_side([job(*one) for one in subjects], progress, executor)
    if reasons and failed is None:
        raise ChunkError(reasons)
    for name, reason in reasons.items():
        assert failed is not None
        failed(name, reason)
    return [one for part in parts for one in part]


def _measure(
    system: System, log: Bound, make_policy: Maker, settings: MeasureSettings, progress: Progress
) -> Measurement:
    models = [as_float64(RecordedStart(system, one.states[0], log.seen)) for one in log.stretches]
    model, paths = models[0], [filled(one) for one in log.stretches]
    policies = [as_float64(make_policy(one)) for one in models]
    policy = policies[0]
    true = policy.shares_truth and not policy.has_belief  # a budget around the truth withholds some
    exact = with_resolution(model, 0.0)
    whole = sees_state(exact, Truth(exact)) and all(log.seen)
    every = (True,) * len(system.shared_fields)
    telling = needs(system).telling if whole else every
    rounded = any(state_grid(model))
    seen = [_as_it_is(*both, whole) for both in zip(models, paths, strict=True)]
    fit = _fit(models, paths, seen, telling if true else every, whole)  # a filter relies on all axes
    believed = _believed(settings, fit, model)
    densities = np.concatenate(
        [np.asarray(one.log_density)[:, : int(path.length)] for one, path in zip(seen, paths, strict=True)],
        axis=1,
    )
    reading = (
        _exactly(densities, model, whole, rounded)
        if true
        else _joined(
            model,
            [
                read_shared(*given, believed, settings, log.seen, progress, part)
                for part, given in enumerate(zip(models, policies, paths, strict=True))
            ],
        )
    )
    # No release carries more information than the recording itself, so none is discounted less.
    weighed = (
        np.einsum("kty,y->k", densities, fit.weights())[None, None]
        if true
        else discounted(reading.log_likelihood, float(fit.weights()[list(telling)].min(initial=1.0)))
    )
    log_prior = log_softmax(np.asarray(model.prior.log_masses))
    found = summary(reading.log_likelihood, log_prior)
    plain, left = summary(densities.sum(axis=(1, 2))[None, None], log_prior), summary(weighed, log_prior)
    most = entropy(np.exp(log_prior))
    secrets = np.asarray(model.prior.secrets)
    names = tuple(secret_text(system.secret_fields, secret) for secret in secrets)
    return Measurement(
        *(
            log.name,
            name_of(system),
            type(policy).__name__,
            reading.method,
            reading.filtered,
        ),
        *(log.steps, settings, secrets, names, log_prior),
        *(found.masses, found.information, found.drop, found.filter_error, found.disagreement),
        *(plain.information.value, left.masses, left.information, reading.trail),
        scores=_scores(seen, paths, fit.best),
        believed=believed,
        fit=fit,
        checked=log.checked,
        stretches=tuple(one.steps for one in log.stretches),
        columns=_columns(model, log, max(paths, key=lambda path: int(path.length)), fit.best, rounded),
        verdict=recording_verdict(
            found.information,
            plain.information.value,
            left.information,
            fit,
            most,
            found.disagreement,
        ),
    )


def _believed(settings: MeasureSettings, fit: RecordingFit, model: System) -> int:
    count = len(model.prior.secrets)
    if settings.secret >= count:
        raise RecordingError(f"the prior has {count} secrets; give an index from 0 to {count - 1}.")
    return fit.best if settings.secret < 0 else settings.secret


def _followed(model: RecordedStart, path: RecordedPath, whole: bool, secret: Secret) -> Innovation:
    """Every release of the true output against its forecast under one secret."""
    if whole and any(state_grid(model)):
        return readings(model, secret, path.states, path.external, path.used)
    shared, cell = jax.vmap(model.output)(path.states), model.cell()
    return innovations(model, secret, shared, path.external, _new(path.used, cell), cell=cell)


def _new(used: Bool[Array, " T"], cell: Float[Array, " N"] | None) -> Bool[Array, " T"]:
    """Which rows are compared with a forecast: a first row that was rounded is where the filter begins."""
    return used if cell is None else used.at[0].set(False)


@eqx.filter_jit
def _as_it_is(model: RecordedStart, path: RecordedPath, whole: bool) -> Innovation:
    """The same under each secret, batched [K, T]."""
    return jax.vmap(lambda secret: _followed(model, path, whole, secret))(model.prior.secrets)


@eqx.filter_jit
def _log_likelihood(model: RecordedStart, path: RecordedPath, whole: bool, secret: Secret) -> Scalar:
    return jnp.sum(_followed(model, path, whole, secret).log_density)


@eqx.filter_jit
def _step_noise(model: System, path: RecordedPath, secret: Secret) -> Float[Array, " N"]:
    """Sd of the model's noise in one step, per coordinate of the state; the median over the recording."""
    scale = jax.vmap(lambda x, w: model.transition(secret, x, w).scale)(path.states, path.external)
    found = jnp.sqrt(jnp.sum(scale**2, axis=2))
    return jnp.nanmedian(jnp.where(path.used[:, None], found, jnp.nan), axis=0)


def _columns(model: System, log: Bound, path: RecordedPath, best: int, rounded: bool) -> tuple[Column, ...]:
    """What the columns of the state look like beside the noise of the model."""
    noise = np.asarray(_step_noise(model, path, model.prior.secrets[best]))
    rows = zip(model.state_fields, log.resolution, noise, log.seen, strict=True)
    return tuple(
        Column(field.name, field.unit, step, float(sd), field.resolution if rounded else 0.0)
        for field, step, sd, there in rows
        if there
    )


def _scores(seen: Sequence[Innovation], paths: Sequence[RecordedPath], best: int) -> np.ndarray:
    """The residuals of one secret, stretch after stretch; the first row of each is known beforehand."""
    return np.concatenate(
        [np.asarray(one.scores)[best, 1 : int(path.length)] for one, path in zip(seen, paths, strict=True)]
    )


def _fit(
    models: Sequence[RecordedStart],
    paths: Sequence[RecordedPath],
    seen: Sequence[Innovation],
    counts: tuple[bool, ...],
    whole: bool,
) -> RecordingFit:
    """Examine the residuals of the secret that explains all stretches best."""
    model, secrets = models[0], np.asarray(models[0].prior.secrets)
    total = sum(np.asarray(one.log_density).sum(axis=(1, 2)) for one in seen)
    best = int(np.argmax(np.nan_to_num(total, nan=-np.inf)))
    scores, lengths = _scores(seen, paths, best), [int(path.length) - 1 for path in paths]
    axes = examine_residuals(scores, tuple(field.name for field in model.shared_fields), counts, lengths)

    def log_likelihood(secret: np.ndarray) -> float:
        theta = jnp.asarray(secret)
        return sum(float(_log_likelihood(*both, whole, theta)) for both in zip(models, paths, strict=True))

    bounds = [(field.low, field.high) for field in model.secret_fields]
    return RecordingFit(axes, len(scores), best, *free_fit(log_likelihood, secrets, best, bounds))


def _joined(model: System, readings: Sequence[Reading]) -> Reading:
    """All stretches together: given the secret they are independent, so that logarithms add up."""
    first = readings[0]
    if len(readings) == 1:
        return first
    log_prior = log_softmax(np.asarray(model.prior.log_masses))
    before, trails = np.zeros_like(log_prior), list[np.ndarray]()
    for one in readings:
        gains = np.log(np.maximum(one.trail, 1e-300)) - log_prior  # log-likelihoods, up to a constant
        trails.append(np.exp(log_softmax(log_prior + before + gains, axis=1)))
        before = before + gains[-1]
    total = np.sum([one.log_likelihood for one in readings], axis=0)
    return Reading(total, np.concatenate(trails), first.method, any(one.filtered for one in readings))


def _exactly(densities: Float[np.ndarray, "K T Y"], model: System, whole: bool, rounded: bool) -> Reading:
    gains = densities.sum(axis=2)
    trail = np.exp(log_softmax(np.asarray(model.prior.log_masses)[None] + np.cumsum(gains, axis=1).T, axis=1))
    method = "probabilities of rounded readings" if rounded else "transition densities"
    method = method if whole else filter_method(rounded)
    return Reading(gains.sum(axis=1)[None, None], trail, method, False)


def filter_method(rounded: bool) -> str:
    """What is done where only a part of the state is known."""
    own = "one linearised Gaussian filter per secret"
    return f"{own}, readings with the spread of their cells" if rounded else own


def read_shared(
    model: RecordedStart,
    policy: Policy,
    path: RecordedPath,
    believed: int,
    options: MeasureSettings,
    seen: tuple[bool, ...],
    progress: Progress,
    part: int = 0,
) -> Reading:
    """Share along the path and read.

    Args:
        model: the reader's, which starts where the recording does.
        policy: made for it.
        path: the recording.
        believed: index of what the owner takes its secret for.
        options: the extent.
        seen: which coordinates of the state are recorded.
        progress: called with the stage, how many draws are done, and of how many.
        part: number of the stretch; each has randomness of its own.
    """
    _recorded_enough(model, policy, seen)
    steps, secret = int(path.length), model.prior.secrets[believed]
    key = jr.fold_in(jr.key(options.seed), part)
    if policy.has_memory:
        return _coupled(model, policy, path, secret, key)
    plain = policy if model.cell() is None else with_sensor(policy, 0.0)
    if release_kind(model, plain).fresh_law().is_point:
        gains, true = _held(model, plain, path, secret, key)
        if not bool(true):
            raise RecordingError(
                f"{type(policy).__name__} releases without noise something other than the output, for which "
                "there is no adversary here; give it a floor of noise."
            )
        found = np.asarray(gains)[:, :steps]
        trail = _masses(model, np.cumsum(found, axis=1).T)
        method = filter_method(model.cell() is not None)
        return Reading(found.sum(axis=1)[None, None], trail, method, False)
    swarm = ParticleFilter(model, policy, guide(policy), options.filter_particles)
    draws, trails = [], []
    for number, one in enumerate(jr.split(key, options.draws)):
        progress("filters", number, options.draws)
        noisy = read_noisy(swarm, secret, path.states, path.external, path.length, one)
        draws.append(np.asarray(noisy.log_likelihood))
        trails.append(np.exp(np.asarray(noisy.trail)[:steps]))
    progress("filters", options.draws, options.draws)
    return Reading(np.stack(draws), np.mean(trails, axis=0), "particle filters", True)


def summary(log_likelihood: Float[np.ndarray, "D R K"], log_prior: Float[np.ndarray, " K"]) -> Summary:
    """Bayes' rule per draw, the filters of a draw averaged; then means over the draws.

    The error is that over the draws, or that of the filters if it is larger or there is one draw.
    """
    draws, filters, _ = log_likelihood.shape
    pooled = posterior(log_prior, _averaged(log_likelihood))
    apart = posterior(log_prior, log_likelihood)
    before = entropy(np.exp(log_prior))

    def mean(of: Callable[[np.ndarray], float]) -> tuple[Mean, float]:
        values = np.array([of(one) for one in pooled])
        each = np.array([[of(one) for one in row] for row in apart])
        variance = each.var(axis=1, ddof=1) / filters if filters > 1 else np.zeros(draws)
        filter_error = float(np.sqrt(variance.sum())) / draws
        error = float(values.std(ddof=1) / np.sqrt(draws)) if draws > 1 else 0.0
        return Mean(float(values.mean()), max(error, filter_error)), filter_error

    gained, filter_error = mean(lambda one: information_gain(one, log_prior))
    drop, _ = mean(lambda one: before - entropy(np.exp(one)))
    distances = 0.5 * np.abs(np.exp(apart) - np.exp(pooled)[:, None]).sum(axis=2)
    lost = np.isnan(log_likelihood).any(axis=2) | ~np.isfinite(log_likelihood).any(axis=2)
    disagreement = float(np.where(lost, 1.0, distances).mean())
    return Summary(np.exp(pooled).mean(axis=0), gained, drop, filter_error, disagreement)


def discounted(log_likelihood: Float[np.ndarray, "D R K"], weight: float) -> Float[np.ndarray, "D 1 K"]:
    """The likelihood to a power, after averaging the filters."""
    return weight * _averaged(log_likelihood)[:, None]


def _averaged(log_likelihood: Float[np.ndarray, "D R K"]) -> Float[np.ndarray, "D K"]:
    """Log of the sum over the filters of a draw: their mean, up to a constant that no posterior sees."""
    return np.logaddexp.reduce(np.nan_to_num(log_likelihood, nan=-1e9, neginf=-1e9), axis=1)


def _recorded_enough(model: System, policy: Policy, seen: tuple[bool, ...]) -> None:
    """Refuse a policy that looks at a part of the state which is not recorded."""
    if all(seen):
        return
    used = np.ones(len(seen), bool)
    if not policy.has_memory:
        secret = model.prior.secrets[0]

        def law(state: Array) -> list[Array]:
            return jax.tree.leaves(eqx.filter(first_law(policy, secret, state), eqx.is_inexact_array))

        used = np.asarray(np.any(dependence(law, model.initial(secret).mean), axis=1))
    missing = [
        field.name for field, there, uses in zip(model.state_fields, seen, used, strict=True) if uses > there
    ]
    if missing:
        raise RecordingError(
            f"{type(policy).__name__} looks at {', '.join(missing)}, which is not recorded; give the column, "
            "or share the truth, with noise, quantised or sub-sampled."
        )


def _coupled(model: System, policy: Policy, path: RecordedPath, secret: Secret, key: Key) -> Reading:
    """A policy whose releases are the same whatever the secret tells nothing."""
    seed, steps = jnp.asarray(0, jnp.int32), int(path.length)
    check = eqx.filter_jit(same_whatever_the_secret)
    if not np.asarray(check(policy, secret, path.states, path.external, seed=seed, key=key))[:steps].all():
        raise RecordingError(
            f"the releases of {type(policy).__name__} along this recording would differ between secrets, and "
            "there is no adversary for them here."
        )
    nothing = np.zeros((1, 1, len(model.prior.secrets)))
    return Reading(
        nothing, _masses(model, np.zeros((steps, nothing.shape[2]))), "coupling of all secrets", False
    )


@eqx.filter_jit
def _held(
    model: RecordedStart, policy: Policy, path: RecordedPath, secret: Secret, key: Key
) -> tuple[Float[Array, "K T"], Array]:
    """Gains in log-likelihood per secret and release, and whether fresh releases are the output."""
    public = releases_on_recording(
        policy, secret, path.states, path.external, seed=jnp.asarray(0, jnp.int32), key=key
    )
    fresh = fresh_releases(policy, public)
    true = jnp.all((public.shared == jax.vmap(model.output)(path.states)) | ~fresh[:, None])
    cell = model.cell()
    use = _new(fresh & path.used, cell)

    def one(theta: Secret) -> Array:
        found = innovations(model, theta, public.shared, path.external, use, cell=cell)
        return jnp.sum(found.log_density, axis=1)

    return jax.vmap(one)(model.prior.secrets), true


def _masses(model: System, log_likelihood: Float[np.ndarray, "T K"]) -> Float[np.ndarray, "T K"]:
    return np.exp(log_softmax(np.asarray(model.prior.log_masses)[None] + log_likelihood, axis=1))


def information_gain(log_masses: Float[np.ndarray, " K"], log_prior: Float[np.ndarray, " K"]) -> float:
    """KL(posterior ‖ prior)."""
    masses = np.exp(log_masses)
    return float(np.sum(np.where(masses > 0.0, masses * (log_masses - log_prior), 0.0)))


def posterior(
    log_prior: Float[np.ndarray, " K"], log_likelihood: Float[np.ndarray, "*B K"]
) -> Float[np.ndarray, "*B K"]:
    """Log posterior masses; a likelihood that is not a number counts as very unlikely."""
    known = np.nan_to_num(log_likelihood, nan=-1e9, neginf=-1e9, posinf=1e9)
    return log_softmax(log_prior + known, axis=-1)
