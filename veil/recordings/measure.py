"""The measurement: the information of a recording as it is, whether the model fits, and after sharing it."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax

from veil.evaluation.fit_test import examine_residuals, free_fit
from veil.evaluation.verdict import recording_verdict
from veil.policies.base import Policy
from veil.policies.plain import Truth
from veil.recordings.posterior import Innovation, RecordedPath, RecordedStart, filled, innovations
from veil.recordings.reader import Log, LogError
from veil.recordings.requirements import needs
from veil.recordings.sharing import Progress, Reading, discounted, read_shared, summary
from veil.registry import system_name
from veil.results.measurement import Measurement, RecordingFit, entropy
from veil.results.text import secret_text
from veil.settings import MeasureSettings
from veil.step import sees_state
from veil.systems.base import System
from veil.types import Scalar, Secret, as_float64

Maker = Callable[[System], Policy]


def measure(
    system: System,
    log: Log,
    make_policy: Maker = Truth,
    settings: MeasureSettings | None = None,
    *,
    progress: Progress = lambda stage, done, total: None,
) -> Measurement:
    """Measure what a recording reveals about the secret of a system, if a policy shares it.

    The external inputs are taken as recorded; a recording does not show how others would have answered other
    releases. The first row is taken as public, so that what it reveals by itself does not count. Everything
    runs in double precision, whatever the precision of the arguments.

    Args:
        system: the model.
        log: the recording, as `veil.recordings.read_recordings` returns it.
        make_policy: makes the policy for a model, e.g. `lambda model: GaussianNoise(model, sd)`; its model
            starts at the first row of the recording. By default the recording is shared as it is.
        settings: the particles and draws of the filters.
        progress: called with the stage, how many draws are done, and of how many.
    """
    with jax.enable_x64(True):
        return _measure(as_float64(system), log, make_policy, settings or MeasureSettings(), progress)


def _measure(
    system: System, log: Log, make_policy: Maker, settings: MeasureSettings, progress: Progress
) -> Measurement:
    model = as_float64(RecordedStart(system, log.states[0], log.seen))
    policy, path = as_float64(make_policy(model)), filled(log)
    true = policy.shares_truth and not policy.has_belief  # a budget around the truth withholds some
    whole = sees_state(model, Truth(model)) and all(log.seen)
    every = (True,) * len(system.shared_fields)
    telling = needs(system).telling if whole else every
    seen = _as_it_is(model, path)
    fit = _fit(model, path, seen, telling if true else every)  # a filter relies on all axes
    believed = _believed(settings, fit, model)
    reading = (
        _exactly(seen, log.steps, model, whole)
        if true
        else read_shared(model, policy, path, believed, settings, log.seen, progress)
    )
    densities = np.asarray(seen.log_density)[:, : log.steps]
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
            system_name(type(system).__name__),
            type(policy).__name__,
            reading.method,
            reading.filtered,
        ),
        *(log.steps, settings, secrets, names, log_prior),
        *(found.masses, found.information, found.drop, found.filter_error, found.disagreement),
        *(plain.information.value, left.masses, left.information, reading.trail),
        scores=np.asarray(seen.scores)[fit.best, 1 : log.steps],
        believed=believed,
        fit=fit,
        checked=log.checked,
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
        raise LogError(f"the prior has {count} secrets; give an index from 0 to {count - 1}.")
    return fit.best if settings.secret < 0 else settings.secret


@eqx.filter_jit
def _as_it_is(model: System, path: RecordedPath) -> Innovation:
    """Every release of the true output against its forecast under each secret, batched [K, T]."""
    shared = jax.vmap(model.output)(path.states)
    return jax.vmap(lambda secret: innovations(model, secret, shared, path.external, path.used))(
        model.prior.secrets
    )


@eqx.filter_jit
def _log_likelihood(model: System, path: RecordedPath, secret: Secret) -> Scalar:
    shared = jax.vmap(model.output)(path.states)
    return jnp.sum(innovations(model, secret, shared, path.external, path.used).log_density)


def _fit(model: System, path: RecordedPath, seen: Innovation, counts: tuple[bool, ...]) -> RecordingFit:
    """Examine the residuals of the secret that explains the recording best."""
    steps, secrets = int(path.length), np.asarray(model.prior.secrets)
    best = int(np.argmax(np.nan_to_num(np.asarray(seen.log_density).sum(axis=(1, 2)), nan=-np.inf)))
    scores = np.asarray(seen.scores)[best, 1:steps]  # the first row is known beforehand
    axes = examine_residuals(scores, tuple(field.name for field in model.shared_fields), counts)
    free = free_fit(
        lambda secret: float(_log_likelihood(model, path, jnp.asarray(secret))),
        secrets,
        best,
        [(field.low, field.high) for field in model.secret_fields],
    )
    return RecordingFit(axes, len(scores), best, *free)


def _exactly(seen: Innovation, steps: int, model: System, whole: bool) -> Reading:
    gains = np.asarray(seen.log_density)[:, :steps].sum(axis=2)
    trail = np.exp(log_softmax(np.asarray(model.prior.log_masses)[None] + np.cumsum(gains, axis=1).T, axis=1))
    method = "transition densities" if whole else "one linearised Gaussian filter per secret"
    return Reading(gains.sum(axis=1)[None, None], trail, method, False)
