"""Whether data could come from the model: tests for transcripts of many episodes and for one recording.

The p-values of all tests of some data are taken together by Bonferroni's correction, so that data of the
model itself are rejected about once in a hundred times (`veil.results.parts.LEVEL`).

Transcripts: under the model, the place of each release in its own forecast (the Bayes mixture over all
secrets, given everything before) is uniform and independent of all others, whichever secret is true. Noise
of the wrong size bends the distribution of these places; coloured noise and a wrong law of motion correlate
them.

A recording: under the model, the residuals of the best secret are independent and standard normal. Noise of
another size, or noise that lasts longer than a step, makes a likelihood too sure of itself; how much too sure
is turned into a weight for it.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float
from scipy import optimize, stats

from veil.attacks.kalman import GaussianisedPolicy
from veil.beliefs.base import Belief
from veil.beliefs.kalman import KalmanBelief
from veil.beliefs.observed import ObservedBelief
from veil.policies.base import Policy
from veil.results.parts import Examination, FitTest
from veil.results.recording_fit import FEWEST, LAGS, Axis
from veil.step import Transcript
from veil.systems.base import System


def examine_transcripts(
    system: System, policy: Policy, transcripts: Transcript, *, exact: bool
) -> Examination:
    """Place each release in its forecast and test the places.

    Args:
        system: the model.
        policy: the one in force.
        transcripts: batched [E].
        exact: whether the releases are the states themselves.
    """
    places = np.asarray(release_places(system, policy, transcripts, exact))
    return examine_places(places, [field.name for field in system.shared_fields])


def examine_places(places: Float[np.ndarray, "E T Y"], names: Sequence[str]) -> Examination:
    """Test whether places of releases in their forecasts are uniform and independent.

    Args:
        places: of the releases; those of the first step tell of the start only and are left out.
        names: of the axes.
    """
    placed = places[:, 1:]
    steps = placed.shape[1]
    if not steps:
        return Examination(())
    scores = np.clip(np.asarray(stats.norm.ppf(np.clip(placed, 1e-12, 1 - 1e-12))), -5, 5)
    tests = []
    for axis, name in enumerate(names):
        if np.ptp(placed[:, :, axis]) == 0.0:  # a forecast without noise that came true
            continue
        found = stats.kstest(placed[:, :, axis].ravel(), "uniform")
        finding = f"{name} is spread otherwise than forecast (p = {found.pvalue:.1e})"
        tests.append(FitTest(f"distribution of {name}", float(found.statistic), float(found.pvalue), finding))
        for lag in range(1, min(LAGS, steps - 1) + 1):
            first, second = scores[:, :-lag, axis].ravel(), scores[:, lag:, axis].ravel()
            free = max(first.size - 1, 1)  # by Student: exact for independent pairs, however few
            correlation = float(first @ second / np.sqrt((first @ first) * (second @ second)))
            score = correlation * np.sqrt(free / max(1.0 - correlation**2, 1e-12))
            finding = f"forecast errors of {name} are correlated ({score:+.1f} s.e. at lag {lag})"
            p = float(2.0 * stats.t.sf(abs(score), free))
            tests.append(FitTest(f"correlation of {name} at lag {lag}", float(score), p, finding))
    return Examination(tuple(tests))


@eqx.filter_jit
def release_places(system: System, policy: Policy, public: Transcript, exact: bool) -> Float[Array, "E T Y"]:
    """P(release below the one seen) per axis under the mixture over the secrets.

    Args:
        system: the model.
        policy: the one in force.
        public: the transcripts, batched [E].
        exact: whether the releases are the states themselves.
    """
    smooth = policy if exact else GaussianisedPolicy(policy)

    def one(transcript: Transcript) -> Float[Array, "T Y"]:
        def step(belief: Belief, now: tuple[Array, ...]) -> tuple[Belief, Array]:
            time, external, shared, features = now
            kernel = smooth.kernel(features, external, time)
            parts = belief.components(kernel)
            sd = jnp.sqrt(jnp.sum(parts.parts.scale**2, axis=-1))
            below = ndtr((shared[None, :] - parts.parts.mean) / jnp.where(sd > 0, sd, 1.0))
            place = jnp.sum(jnp.exp(parts.log_weights)[:, None] * below, axis=0)
            after, _ = belief.update(system, kernel, external, shared, key=jr.key(0))
            return after, place

        start = ObservedBelief.start(system) if exact else KalmanBelief.start(system)
        times = jnp.arange(1, transcript.shared.shape[0] + 1, dtype=jnp.int32)
        steps = times, transcript.external, transcript.shared, transcript.features
        return jax.lax.scan(step, start, steps)[1]

    return jax.vmap(one)(public)


def examine_residuals(
    scores: Float[np.ndarray, "n Y"],
    names: tuple[str, ...],
    counts: tuple[bool, ...],
    lengths: Sequence[int] | None = None,
) -> tuple[Axis, ...]:
    """Test the residuals of each axis of a recording, those of all its stretches together.

    Residuals of different stretches are not neighbours: only pairs within one enter the correlations.

    Args:
        scores: whitened residuals of the best secret, one stretch after another.
        names: of the axes.
        counts: which axes take part in the verdict.
        lengths: residuals per stretch; all in one if None.
    """
    ends = np.cumsum(lengths if lengths is not None else [len(scores)])[:-1]
    return tuple(
        _axis(np.split(axis, ends), name, count)
        for axis, name, count in zip(scores.T, names, counts, strict=True)
    )


def free_fit(
    log_likelihood: Callable[[np.ndarray], float],
    secrets: Float[np.ndarray, "K P"],
    best: int,
    bounds: list[tuple[float, float]],
) -> tuple[Float[np.ndarray, " P"], float, float]:
    """The best secret if it may be any, what it gains over the best of the prior, and how likely that is.

    Args:
        log_likelihood: of one secret.
        secrets: of the prior.
        best: the best of them.
        bounds: of the secret's numbers.
    """
    start = secrets[best]
    unit = np.maximum(np.ptp(secrets, axis=0), 0.1 * np.abs(start) + 1e-3)
    limits = [((low - x) / u, (high - x) / u) for (low, high), x, u in zip(bounds, start, unit, strict=True)]

    def loss(step: np.ndarray) -> float:
        value = -float(log_likelihood(start + unit * step))
        return value if np.isfinite(value) else 1e300

    # Steps inwards, so that a start on a bound leaves the simplex some room.
    inwards = np.array([-0.3 if high < 0.3 else 0.3 for _, high in limits])
    simplex = np.concatenate([np.zeros((1, len(start))), np.diag(inwards)])
    options = {"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-4, "maxfev": 200 * len(start)}
    found = optimize.minimize(
        loss, np.zeros(len(start)), method="Nelder-Mead", bounds=limits, options=options
    )
    gain = max(0.0, loss(np.zeros(len(start))) - float(found.fun))
    return start + unit * found.x, gain, float(stats.chi2.sf(2.0 * gain, len(start)))


def _axis(stretches: Sequence[np.ndarray], name: str, counts: bool) -> Axis:
    count, square = sum(map(len, stretches)), float(sum(one @ one for one in stretches))
    if count < FEWEST or square == 0.0:  # too few, or an axis without noise
        std_ratio = float(np.sqrt(square / max(count, 1)))
        return Axis(name, std_ratio if square else 1.0, 1.0, 0.0, 1.0, float(count), counts)
    correlations, pairs = np.zeros(LAGS), np.zeros(LAGS)
    for lag in range(1, LAGS + 1):
        long = [one for one in stretches if len(one) > lag]
        correlations[lag - 1] = sum(float(one[lag:] @ one[:-lag]) for one in long) / square
        pairs[lag - 1] = sum(len(one) - lag for one in long)
    some = pairs > 0  # a lag that no stretch is long enough for says nothing
    ljung_box = count * (count + 2) * float(np.sum(correlations[some] ** 2 / pairs[some]))
    tails = stats.chi2.cdf(square, count), stats.chi2.sf(square, count)
    one = float(np.clip(correlations[0], 0.0, 1.0 - 1.0 / count))
    return Axis(
        name,
        float(np.sqrt(square / count)),
        float(min(1.0, 2.0 * min(tails))),
        float(correlations[0]),
        float(stats.chi2.sf(ljung_box, int(some.sum()))) if np.any(some) else 1.0,
        count * (1.0 - one) / (1.0 + one),
        counts,
    )
