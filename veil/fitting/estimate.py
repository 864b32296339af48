"""Maximum likelihood of parameters and noise by one-step predictions, with standard errors.

SciPy's trust-region method climbs. It gets the gradient and a Gauss-Newton curvature, in which predictions
are linear in the parameters and the law of the noise is not, so that some ten evaluations are enough. Limits
of parameters are kept by smooth maps. The program that computes all this is compiled once per shape of the
data: parameters that an order of the noise does not have are held at zero instead of being left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy import optimize
from scipy.special import expit
from scipy.stats import qmc

from veil.beliefs.self_model import LONGEST, Forecasts, ResidualLaw, white
from veil.fitting.examine import towards
from veil.fitting.predictor import Rows, forecasts
from veil.fitting.residual_law import entry_log_density, innovations, log_density
from veil.results.fit import Family
from veil.systems.base import System
from veil.systems.variants import WithNoise
from veil.types import Scalar, Secret

WEAK = 3.0  # sd of the log of a noise factor that is assumed where the data say nothing

LARGEST_MEMORY, LONGEST_TAIL = 1.5, 0.45

STARTS, DESCENTS = 64, 3  # points that are tried, and from how many of them the likelihood is climbed

FEW, NEGLIGIBLE = 3, 0.01  # a climb ends when this many steps gain less than this many nats together

HUGE = 1e30  # a likelihood that is larger is taken as failed, since the solver would square it

FIRST_CLIMB = 12  # iterations of each of these climbs; the best one goes on


class Parameters(eqx.Module):
    """Everything that is estimated, in units in which 1 is a usual change.

    Attributes:
        secret: the system's parameters, from the centre of the prior in units of its spread.
        log_noise: logarithm of the factor on the system's noise, per coordinate of the state.
        law: of the scores.
    """

    secret: Float[Array, " P"]
    log_noise: Float[Array, " N"]
    law: ResidualLaw


class Likelihood(eqx.Module):
    """The log density of a recording as a function of the parameters.

    Attributes:
        system: the model.
        data: the recording.
        centre: of the prior's secrets.
        spread: their standard deviation, positive.
        mean: of the recorded states.
        sd: of the recorded states.
    """

    system: System
    data: Rows
    centre: Float[Array, " P"]
    spread: Float[Array, " P"]
    mean: Float[Array, " Y"]
    sd: Float[Array, " Y"]

    def __init__(self, system: System, data: Rows):
        secrets, seen = np.asarray(system.prior.secrets, float), np.array(data.sensor.axes)
        spread = secrets.std(axis=0)
        usual = np.maximum(np.abs(secrets).mean(axis=0), 1e-3)
        self.system, self.data = system, data
        self.centre = jnp.asarray(secrets.mean(axis=0), float)
        self.spread = jnp.asarray(np.where(spread > 1e-9 * usual, spread, 0.25 * usual), float)
        states = np.asarray(data.states)[:-1][np.asarray(data.used)][:, seen]
        self.mean, self.sd = jnp.asarray(states.mean(0)), jnp.asarray(np.maximum(states.std(0), 1e-9))

    @property
    def axes(self) -> np.ndarray:
        """The recorded coordinates of the state."""
        return np.array(self.data.sensor.axes)

    def start(self) -> Parameters:
        """The centre of the prior with the system's own white noise."""
        return Parameters(
            jnp.zeros_like(self.centre),
            jnp.zeros(len(self.data.sensor.seen)),
            white(len(self.axes)),
        )

    def until(self, weights: Array) -> "Likelihood":
        """This one without the steps after the last that has a weight, which then take no time.

        Args:
            weights: of the steps.
        """
        last = np.flatnonzero(np.asarray(weights) > 0)[-1] + 1
        return eqx.tree_at(lambda one: one.data.last, self, jnp.asarray(last, self.data.last.dtype))

    def secret(self, parameters: Parameters) -> Secret:
        """The system's parameters in their own units."""
        return self.centre + self.spread * parameters.secret

    def forecasts(self, secret: Float[Array, " P"], log_noise: Float[Array, " N"]) -> Forecasts:
        """What the system expects of every reading, without the memory of its noise.

        Args:
            secret: in units of the prior's spread.
            log_noise: logarithm of the factors on the system's noise.
        """
        plant = WithNoise(self.system, jnp.exp(log_noise))
        return forecasts(plant, self.centre + self.spread * secret, self.data)

    def by_step(
        self, found: Forecasts, law: ResidualLaw
    ) -> tuple[Float[Array, " T"], Float[Array, "T Y"], Float[Array, "T Y"]]:
        """Log density of every reading given those before it, innovations, and half cells of the sensor.

        Args:
            found: what the system expects.
            law: of what it leaves.
        """
        return log_density(law, found, self.states(), self.data.age, self.steps_of_digits())

    def states(self) -> Float[Array, "T Y"]:
        """The recorded states before each reading, in standard units."""
        return (self.data.states[:-1][:, self.axes] - self.mean[None]) / self.sd[None]

    def steps_of_digits(self) -> Float[Array, " Y"] | None:
        """Of the recorded coordinates; None where likelihoods take them as exact."""
        return self.data.sensor.step[self.axes] if self.data.sensor.rounded else None

    def log_size(self, law: ResidualLaw) -> Float[Array, "T Y"]:
        """Logarithm of the size of the errors at every reading, by the state before it.

        Args:
            law: of the scores.
        """
        return self.states() @ law.level.T

    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest values of all parameters, as rows."""
        fields, like = self.system.secret_fields, self.start()
        low = (jnp.asarray([one.low for one in fields]) - self.centre) / self.spread
        high = (jnp.asarray([one.high for one in fields]) - self.centre) / self.spread
        law = like.law
        top = ResidualLaw(
            jnp.full_like(law.memory, LARGEST_MEMORY),
            jnp.full_like(law.level, 3.0),
            jnp.full_like(law.mixing, 50.0),
            jnp.full_like(law.tail, LONGEST_TAIL),
        )
        bottom = jax.tree.map(jnp.negative, top)
        bottom = eqx.tree_at(lambda one: one.tail, bottom, jnp.zeros_like(law.tail))
        noise = jnp.full_like(like.log_noise, 12.0)
        return ravel(Parameters(low, -noise, bottom)), ravel(Parameters(high, noise, top))

    def free(self, family: Family) -> np.ndarray:
        """Which parameters are estimated, as a row of flags.

        Args:
            family: of the law of the scores.
        """
        start = self.start()
        law = start.law
        lags = jnp.arange(LONGEST) < family.order
        chosen = Parameters(
            jnp.ones_like(start.secret),
            jnp.ones_like(start.log_noise),
            ResidualLaw(
                jnp.broadcast_to(lags, law.memory.shape).astype(law.memory.dtype),
                jnp.full_like(law.level, family.level),
                jnp.ones_like(law.mixing),
                jnp.full_like(law.tail, family.heavy),
            ),
        )
        return ravel(chosen).astype(bool)


def ravel(tree: Parameters) -> np.ndarray:
    """All numbers in one row."""
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]).astype(float)


def unravel(like: Parameters, row: Array) -> Parameters:
    """The numbers of a row in the shapes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    found, start = [], 0
    for leaf in leaves:
        found.append(row[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(structure, found)


def _objective(
    lines: Float[Array, " T"], log_noise: Float[Array, " N"], weights: Float[Array, " T"]
) -> Scalar:
    """Mean negative log density of the weighted steps; unknown noise is weakly drawn to the model's."""
    total = jnp.sum(jnp.where(weights > 0, weights * lines, 0.0))
    return (_pull(log_noise) - total) / jnp.maximum(jnp.sum(weights), 1.0)


def _pull(log_noise: Float[Array, " N"]) -> Scalar:
    """Of unknown noise to the model's."""
    return 0.5 * jnp.sum((log_noise / WEAK) ** 2)


BLOCK = 64  # steps whose derivatives are computed together


class _Linear(eqx.Module):
    """Forecasts as a linear function of the parameters; everything has a row per step.

    Attributes:
        base: forecasts where the derivatives were taken.
        by_secret: derivatives by the system's parameters.
        by_noise: derivatives by the logarithms of the noise factors.
    """

    base: Forecasts
    by_secret: Forecasts
    by_noise: Forecasts

    def __call__(self, secret: Float[Array, " P"], log_noise: Float[Array, " N"]) -> Forecasts:
        """Forecasts elsewhere.

        Args:
            secret: how far the parameters are from where the derivatives were taken.
            log_noise: how far the noise factors are.
        """
        return jax.tree.map(
            lambda base, one, other: base + one @ secret + other @ log_noise,
            self.base,
            self.by_secret,
            self.by_noise,
        )


def _linearised(likelihood: Likelihood, here: Parameters) -> _Linear:
    """Forecasts around some parameters."""

    def expected(secret: Array, log_noise: Array) -> tuple[Forecasts, Forecasts]:
        found = likelihood.forecasts(secret, log_noise)
        return found, found

    slopes, base = jax.jacfwd(expected, (0, 1), has_aux=True)(here.secret, here.log_noise)
    return _Linear(
        base,
        *(
            Forecasts(*(part[place] for part in (slopes.miss, slopes.log_sd, slopes.mean)))
            for place in (0, 1)
        ),
    )


class _Steps(eqx.Module):
    """What the likelihood of some steps is made of.

    Attributes:
        forecasts: of the system.
        states: that each prediction started from, in standard units.
        age: number of transitions before each in its stretch.
        weights: of the steps.
    """

    forecasts: _Linear
    states: Float[Array, "T Y"]
    age: Int[Array, " T"]
    weights: Float[Array, " T"]


@eqx.filter_jit
def _local(
    likelihood: Likelihood, row: Array, weights: Float[Array, " T"]
) -> tuple[Float[Array, ""], Float[Array, " R"], Float[Array, "R R"]]:
    """The objective, its gradient and its Gauss-Newton curvature.

    It runs over blocks of the steps that there are, so that rows which pad a recording cost nothing.
    """
    here, data = unravel(likelihood.start(), row), likelihood.data
    all_ = _Steps(_linearised(likelihood, here), likelihood.states(), data.age, weights)
    count, length = -(-data.last // BLOCK), len(weights)

    def padded(values: Array) -> Array:
        kept = jnp.where(data.used.reshape(length, *(1,) * (values.ndim - 1)), values, 0)
        return jnp.pad(kept, [(LONGEST, -length % BLOCK), *((0, 0),) * (values.ndim - 1)])

    table, own = jax.tree.map(padded, all_), jnp.arange(LONGEST + BLOCK) >= LONGEST

    def add(place: Int[Array, ""], sums: tuple[Array, Array, Array]) -> tuple[Array, ...]:
        part = jax.tree.map(
            lambda one: jax.lax.dynamic_slice_in_dim(one, place * BLOCK, LONGEST + BLOCK), table
        )
        part = eqx.tree_at(lambda one: one.weights, part, jnp.where(own, part.weights, 0.0))
        more = _derivatives(likelihood, row, part)
        return tuple(one + other for one, other in zip(sums, more, strict=True))

    nothing = jnp.zeros((), row.dtype), jnp.zeros_like(row), jnp.zeros((len(row), len(row)), row.dtype)
    total, slope, curve = jax.lax.fori_loop(0, count, add, nothing)

    def pull(one: Array) -> Array:
        return _pull(unravel(likelihood.start(), one).log_noise)

    most = jnp.maximum(jnp.sum(weights), 1.0)
    return (
        (pull(row) - total) / most,
        (jax.grad(pull)(row) - slope) / most,
        (jax.hessian(pull)(row) - curve) / most,
    )


def _derivatives(likelihood: Likelihood, row: Array, steps: _Steps) -> tuple[Array, Array, Array]:
    """The weighted log density of some steps with its first and second derivatives by all parameters.

    Every reading contributes a function of three numbers: its innovation, the logarithm of its scale, and the
    heaviness of its tail. Their derivatives by the parameters give the rest by the chain rule. The first rows
    are there for the memory of the others, and have no weight.
    """
    like = likelihood.start()
    here = unravel(like, row)

    def numbers(one: Array) -> tuple[Array, Array, Array]:
        there = unravel(like, one)
        expected = steps.forecasts(there.secret - here.secret, there.log_noise - here.log_noise)
        scores = expected.miss * jnp.exp(-expected.log_sd)
        found, log_size = innovations(there.law, scores, steps.states, steps.age)
        return found, log_size + expected.log_sd, jnp.broadcast_to(there.law.tail, found.shape)

    found, log_scale, _ = numbers(row)
    step = likelihood.steps_of_digits()

    def density(by: Array) -> Array:
        return entry_log_density(found + by[0], log_scale + by[1], here.law.tail + by[2], step)[0]

    def weighted(values: Array) -> Array:
        counted = steps.weights.reshape(-1, *(1,) * (values.ndim - 1))
        return jnp.where(counted > 0, counted * values, 0.0)

    still = jnp.zeros(3, row.dtype)
    slope = jax.jacfwd(density)
    first, second = weighted(slope(still)), weighted(jax.jacfwd(slope)(still))
    turns = jnp.stack(jax.jacfwd(numbers)(row), axis=2)
    turns = jnp.where(steps.weights[:, None, None, None] > 0, turns, 0.0)
    bend = jax.hessian(lambda one: jnp.sum(first[..., 0] * numbers(one)[0]))(row)  # the others are linear
    flat = turns.reshape(-1, len(row))
    bent = jnp.einsum("tyab,tybr->tyar", second, turns).reshape(flat.shape)
    return jnp.sum(weighted(density(still))), first.reshape(-1) @ flat, flat.T @ bent + bend


@eqx.filter_jit
def _steps(
    likelihood: Likelihood, parameters: Parameters
) -> tuple[Float[Array, "T Y"], Float[Array, "T Y R"]]:
    """Standard deviation of each reading given those before it, and derivatives of its mean in this unit."""
    near = _linearised(likelihood, parameters)

    def predicted(row: Array) -> tuple[Array, Array]:
        there = unravel(likelihood.start(), row)
        found = near(there.secret - parameters.secret, there.log_noise - parameters.log_noise)
        lines = likelihood.by_step(found, there.law)
        return lines[1], likelihood.log_size(there.law) + found.log_sd

    row = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(parameters)])
    noise, log_sd = predicted(row)
    away, wider = jax.jacfwd(predicted)(row)
    return jnp.exp(log_sd), -(away + noise[..., None] * wider)


@eqx.filter_jit
def _profiled(likelihood: Likelihood, points: Float[Array, "C P"], weights: Array) -> Float[Array, " C"]:
    """The objective at many secrets, each with the size of noise that suits it best."""
    start = likelihood.start()

    def one(point: Array) -> Array:
        found = likelihood.forecasts(point, start.log_noise)
        squares = jnp.where(weights[:, None] > 0, (found.miss * jnp.exp(-found.log_sd)) ** 2, 0.0)
        return jnp.sum(jnp.log(jnp.sum(weights[:, None] * squares, axis=0) / jnp.sum(weights)))

    return jax.lax.map(one, points)


@eqx.filter_jit
def _misses(likelihood: Likelihood, parameters: Parameters) -> Float[Array, "T Y"]:
    return likelihood.forecasts(parameters.secret, parameters.log_noise).miss


def score_towards(
    likelihood: Likelihood,
    parameters: Parameters,
    free: np.ndarray,
    noise: Float[np.ndarray, "T Y"],
    others: Sequence[tuple[Likelihood, Parameters, np.ndarray]],
) -> float:
    """How far errors of a model go where another law of motion expects them, in standard errors.

    Args:
        likelihood: of the model.
        parameters: of the model, estimated from all steps.
        free: which of them were estimated.
        noise: the model's errors, standard normal.
        others: the other law with parameters that were estimated from earlier steps, and the steps that it
            predicts by them.
    """
    used = np.asarray(likelihood.data.used)
    sd, slopes = (np.asarray(part) for part in _steps(likelihood, parameters))
    exact = np.asarray(log_scores(likelihood, parameters)[1])
    apart = np.zeros_like(exact)
    for rival, estimate, there in others:
        apart[there] = (exact - np.asarray(_misses(rival, estimate)) / sd)[there]
    weights = jnp.asarray(used, float)
    curvature = used.sum() * np.asarray(_local(likelihood, jnp.asarray(ravel(parameters)), weights)[2])
    return towards(noise[used], apart[used], slopes[used][..., free], curvature[np.ix_(free, free)])


@eqx.filter_jit
def log_scores(
    likelihood: Likelihood, parameters: Parameters
) -> tuple[Float[Array, " T"], Float[Array, "T Y"], Float[Array, "T Y"], Float[Array, "T Y"]]:
    """Log density of every reading given those before it, innovations, half cells, and predictions."""
    found = likelihood.forecasts(parameters.secret, parameters.log_noise)
    return *likelihood.by_step(found, parameters.law), found.mean


class _Map:
    """A smooth map between the line and the range of each parameter."""

    def __init__(self, low: np.ndarray, high: np.ndarray):
        self.low, self.high = low, high
        self.both = np.isfinite(low) & np.isfinite(high)
        self.below = np.isfinite(low) & ~self.both
        self.above = np.isfinite(high) & ~self.both

    def inside(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values and their first and second derivatives."""
        value, first, second = u.copy(), np.ones_like(u), np.zeros_like(u)
        s = expit(u)
        b, d, a = self.both, self.below, self.above
        width = self.high[b] - self.low[b]
        value[b] = self.low[b] + width * s[b]
        first[b] = width * s[b] * (1.0 - s[b])
        second[b] = first[b] * (1.0 - 2.0 * s[b])
        value[d], first[d] = self.low[d] + np.logaddexp(0.0, u[d]), s[d]
        value[a], first[a] = self.high[a] - np.logaddexp(0.0, -u[a]), 1.0 - s[a]
        curved = s * (1.0 - s)
        second[d], second[a] = curved[d], -curved[a]
        return value, first, second

    def line(self, value: np.ndarray) -> np.ndarray:
        """The inverse; values at a limit are taken a little inside."""
        u = value.copy()
        b, d, a = self.both, self.below, self.above
        share = np.clip((value[b] - self.low[b]) / (self.high[b] - self.low[b]), 1e-6, 1.0 - 1e-6)
        u[b] = np.log(share) - np.log1p(-share)
        over, under = np.maximum(value[d] - self.low[d], 1e-6), np.maximum(self.high[a] - value[a], 1e-6)
        u[d], u[a] = over + np.log(-np.expm1(-over)), -(under + np.log(-np.expm1(-under)))
        return u


def climb(
    likelihood: Likelihood, start: Parameters, free: np.ndarray, weights: Array, iterations: int = 60
) -> tuple[Parameters, float]:
    """The best parameters from one start, and their mean negative log density.

    Args:
        likelihood: of the recording.
        start: where to begin.
        free: which parameters may change.
        weights: of the steps; 0 for those that are held out.
        iterations: at most.
    """
    likelihood = likelihood.until(weights)
    like, (low, high) = likelihood.start(), likelihood.limits()
    range_, base = _Map(low[free], high[free]), ravel(start)
    known: dict[bytes, tuple[float, np.ndarray, np.ndarray]] = {}

    def local(u: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        mark = u.tobytes()
        if mark not in known:
            row = base.copy()
            row[free], first, second = range_.inside(u)
            value, slope, curve = (np.asarray(one) for one in _local(likelihood, jnp.asarray(row), weights))
            slope, curve = slope[free], curve[np.ix_(free, free)]
            if not all(np.all(np.abs(part) < HUGE) for part in (value, slope, curve)):  # nor NaN
                known[mark] = 1e10, np.zeros(len(u)), np.eye(len(u))
            else:
                bent = first[:, None] * curve * first[None, :] + np.diag(slope * second)
                known[mark] = float(value), slope * first, bent
        return known[mark]

    count, heights = float(np.sum(np.asarray(weights))), list[float]()

    def enough(intermediate_result: optimize.OptimizeResult) -> None:
        """Stop when several steps together gain less than what the data can tell."""
        heights.append(count * float(intermediate_result.fun))
        if len(heights) > FEW and heights[-1 - FEW] - heights[-1] < NEGLIGIBLE:
            raise StopIteration

    found = optimize.minimize(
        lambda u: local(u)[0],
        range_.line(base[free]),
        jac=lambda u: local(u)[1],
        hess=lambda u: local(u)[2],
        method="trust-exact",
        callback=enough,
        options={"maxiter": iterations, "gtol": 1e-6},
    )
    base[free] = range_.inside(np.asarray(found.x))[0]
    return unravel(like, jnp.asarray(base)), float(found.fun)


def starting_points(likelihood: Likelihood, seed: int, count: int = STARTS) -> np.ndarray:
    """Scrambled Sobol' points over twice the range of the prior's secrets, its centre first."""
    size = likelihood.centre.shape[0]
    secrets = (np.asarray(likelihood.system.prior.secrets) - np.asarray(likelihood.centre)) / np.asarray(
        likelihood.spread
    )
    width = np.maximum(secrets.max(0) - secrets.min(0), 2.0)
    points = (qmc.Sobol(size, scramble=True, rng=seed).random(count) - 0.5) * 2.0 * width
    points[0] = 0.0
    low, high = likelihood.limits()
    return np.clip(points, low[:size] + 1e-3, high[:size] - 1e-3)


def estimate_white(
    likelihood: Likelihood, weights: Array, seed: int = 0, hopeless: float = np.inf
) -> Parameters:
    """Parameters and size of white noise, by climbing from the best of many starts.

    Args:
        likelihood: of the recording.
        weights: of the steps; 0 for those that are held out.
        seed: of the starts.
        hopeless: mean negative log density of a start's first climb that is not worth going on from.
    """
    points = starting_points(likelihood, seed)
    tried = np.asarray(_profiled(likelihood.until(weights), jnp.asarray(points), weights))
    order = np.argsort(np.where(np.isfinite(tried), tried, np.inf))
    free = likelihood.free(Family())
    found = []
    for place in order[:DESCENTS]:
        start = eqx.tree_at(lambda one: one.secret, likelihood.start(), jnp.asarray(points[place]))
        noise = np.asarray(log_scores(likelihood, start)[1])
        kept = np.where((np.asarray(weights)[:, None] > 0) & np.isfinite(noise), noise, 0.0) ** 2
        rms = np.sqrt(kept.sum(0) / float(np.sum(np.asarray(weights))))
        log_noise = np.full(len(likelihood.data.sensor.seen), float(np.log(np.maximum(rms, 1e-6)).mean()))
        log_noise[likelihood.axes] = np.log(np.maximum(rms, 1e-6))
        start = eqx.tree_at(lambda one: one.log_noise, start, jnp.asarray(log_noise))
        found.append(climb(likelihood, start, free, weights, FIRST_CLIMB))
    best, height = min(found, key=lambda one: one[1])
    return best if height > hopeless else climb(likelihood, best, free, weights)[0]


def estimate_coloured(
    likelihood: Likelihood, start: Parameters, family: Family, weights: Array
) -> Parameters:
    """Parameters, size of the noise and the law of the scores together.

    Args:
        likelihood: of the recording.
        start: an estimate for a simpler law, or for other steps.
        family: of the law of the scores.
        weights: of the steps; 0 for those that are held out.
    """
    if family.heavy:
        tail = jnp.maximum(start.law.tail, 0.05)
        start = eqx.tree_at(lambda one: one.law.tail, start, tail)
    return climb(likelihood, start, likelihood.free(family), weights)[0]


@dataclass(frozen=True)
class Uncertainty:
    """What the data say about the parameters, from the curvature of the likelihood.

    Attributes:
        covariance: of the system's parameters, in their own units.
        interval: of 95 %, lowest and highest value of each, in their own units.
        weak: combinations of parameters that the data do not determine: standard deviation in units of the
            prior's spread, and weights by parameter.
        free: number of parameters that were estimated, with those of the noise.
        log_noise: standard error of the logarithm of the size of the noise, per coordinate of the state.
        at_limit: which of the system's parameters are at a limit.
    """

    covariance: Float[np.ndarray, "P P"]
    interval: Float[np.ndarray, "P 2"]
    weak: tuple[tuple[float, Float[np.ndarray, " P"]], ...]
    free: int
    log_noise: Float[np.ndarray, " N"]
    at_limit: np.ndarray


SHOWN = 1.96  # standard errors of an interval of 95 %

FALL = 0.5 * SHOWN**2  # nats by which a profile likelihood has fallen at the ends of such an interval

PROFILE_STEPS = 10  # values on each side that are tried at most, each twice as far away

LOOKED_AT = 6.0  # nats: a side is left when the profile likelihood has fallen by that

PROFILE_CLIMB = 12  # iterations for the other parameters at each value

NEAR_LIMIT = 1e-3  # of the prior's spread: an estimate as close to its limit is at it


def _profile_interval(
    likelihood: Likelihood,
    row: np.ndarray,
    free: np.ndarray,
    weights: Array,
    place: int,
    ridge: Float[np.ndarray, " R"],
) -> tuple[tuple[float, float], list[tuple[float, np.ndarray]]]:
    """The values of a parameter that a likelihood ratio test at 5 % does not reject: the first and the last.

    Also returns the best parameters for every value between them that was tried, and how many nats they are
    behind the best.

    The other parameters are estimated anew for each value that is tried.

    Args:
        likelihood: of the recording.
        row: the estimate.
        free: which parameters were estimated.
        weights: of the steps that were used.
        place: of the parameter in the row.
        ridge: how all parameters change with this one by the curvature, for one standard error of it.
    """
    like, (low, high) = likelihood.start(), likelihood.limits()
    count = float(np.sum(np.asarray(weights)))
    others = free.copy()
    others[place] = False

    def best(start: np.ndarray, value: float) -> tuple[float, float, np.ndarray]:
        moved = np.clip(start, low + 1e-6, high - 1e-6)
        moved[place] = np.clip(value, low[place] + 1e-6, high[place] - 1e-6)
        there, height = climb(likelihood, unravel(like, jnp.asarray(moved)), others, weights, PROFILE_CLIMB)
        return float(moved[place]), count * height, ravel(there)

    here = float(row[place]), count * float(_local(likelihood, jnp.asarray(row), weights)[0]), row
    sides = []
    for side in (-1.0, 1.0):
        line, away = [here, best(row + side * 2.0 * ridge, here[0] + side * 2.0 * ridge[place])], 2.0
        while len(line) <= PROFILE_STEPS and line[-1][1] - here[1] < LOOKED_AT:
            away *= 2.0
            (before, _, first), (now, _, last) = line[-2:]
            value = here[0] + side * away * ridge[place]
            if abs(now - here[0]) < 0.999 * 0.5 * away * ridge[place]:
                break  # at a limit
            line.append(best(last + (last - first) * (value - now) / (now - before), value))
        sides.append(line)
    least = min(point[1] for line in sides for point in line)
    ends, path = [], list[tuple[float, np.ndarray]]()
    for line in sides:
        inside = max(at for at, point in enumerate(line) if point[1] - least < FALL or at == 0)
        path += [(point[1] - least, point[2]) for point in line[: inside + 1]]
        if inside + 1 == len(line):
            ends.append(line[inside][0])
            continue
        near, far = line[inside], line[inside + 1]
        for _ in range(2):
            middle = best(near[2], _between(near, far, least))
            near, far = (middle, far) if middle[1] - least < FALL else (near, middle)
        path.append((near[1] - least, near[2]))
        ends.append(_between(near, far, least))
    return (ends[0], ends[1]), path


def _between(
    near: tuple[float, float, np.ndarray], far: tuple[float, float, np.ndarray], least: float
) -> float:
    """Where a likelihood has fallen by `FALL`: the root of the fall is taken as linear between two values."""
    first, last = (np.sqrt(max(point[1] - least, 0.0)) for point in (near, far))
    share = (np.sqrt(FALL) - first) / max(last - first, 1e-9)
    return near[0] + float(np.clip(share, 0.05, 0.95)) * (far[0] - near[0])


def _not_parabolas(
    likelihood: Likelihood, row: np.ndarray, free: np.ndarray, weights: Array, inverse: np.ndarray
) -> list[int]:
    """Parameters along whose ridge the likelihood does not fall like a parabola.

    That would be by 2 at two standard errors and by 12.5 at five.

    Args:
        likelihood: of the recording.
        row: the estimate.
        free: which parameters were estimated.
        weights: of the steps that were used.
        inverse: of the curvature.
    """
    low, high = likelihood.limits()
    count = float(np.sum(np.asarray(weights)))

    def height(moved: np.ndarray) -> float:
        there = unravel(likelihood.start(), jnp.asarray(moved))
        return -count * float(_objective(log_scores(likelihood, there)[0], there.log_noise, weights))

    top, found = height(row), []
    for place in range(likelihood.centre.shape[0]):
        ridge = inverse[place] / np.sqrt(inverse[place, place])
        for away, least, most in ((-2.0, 1.0, 4.0), (2.0, 1.0, 4.0), (-5.0, 5.0, np.inf), (5.0, 5.0, np.inf)):
            moved = row.copy()
            moved[free] += away * ridge
            limited = np.clip(moved, low, high)
            if abs(away) > 2.0 and np.any(limited != moved):
                continue  # nearer than that
            if not least <= top - height(limited) <= most:
                found.append(place)
                break
    return found


def _profiles(
    likelihood: Likelihood, row: np.ndarray, free: np.ndarray, weights: Array, inverse: np.ndarray
) -> dict[int, tuple[float, float]]:
    """Intervals of parameters where the likelihood is not a parabola, by number; none where it is one.

    Another parameter has, beside each value of one with a profile, the interval of a parabola that begins as
    far below the best.

    Args:
        likelihood: of the recording.
        row: the estimate.
        free: which parameters were estimated.
        weights: of the steps that were used.
        inverse: of the curvature.
    """
    ends, size = dict[int, tuple[float, float]](), likelihood.centre.shape[0]
    beside = np.repeat(row[:size, None], 2, axis=1)
    for place in _not_parabolas(likelihood, row, free, weights, inverse):
        ridge = np.zeros_like(row)
        ridge[free] = inverse[place] / np.sqrt(inverse[place, place])
        ends[place], path = _profile_interval(likelihood, row, free, weights, place, ridge)
        rest = np.diag(inverse)[:size] - inverse[place, :size] ** 2 / inverse[place, place]
        for fall, there in path:
            away = np.sqrt(2.0 * max(FALL - fall, 0.0) * np.maximum(rest, 0.0))
            beside[:, 0] = np.minimum(beside[:, 0], there[:size] - away)
            beside[:, 1] = np.maximum(beside[:, 1], there[:size] + away)
    if ends:
        for place in set(range(size)) - set(ends):
            half = SHOWN * np.sqrt(inverse[place, place])
            low, high = min(beside[place, 0], row[place] - half), max(beside[place, 1], row[place] + half)
            ends[place] = float(low), float(high)
    return ends


def uncertainty(
    likelihood: Likelihood, parameters: Parameters, free: np.ndarray, weights: Array, *, profiles: bool = True
) -> Uncertainty:
    """Standard errors from the curvature at the estimate, and from the likelihood beside it.

    Limits of the system (a heater that is off, a brake) can put a kink at the estimate, where the curvature
    says nothing about the flat side. So the likelihood is also evaluated two and five standard errors away
    from the estimate. Where it does not fall like a parabola, the interval is that of the profile likelihood,
    and the standard error is its length / 3.92. Directions without curvature get the prior's spread times
    1,000 instead of infinity.

    Args:
        likelihood: of the recording.
        parameters: the estimate.
        free: which were estimated.
        weights: of the steps that were used.
        profiles: whether profile likelihoods may be computed, which takes time.
    """
    count, row = float(np.sum(np.asarray(weights))), ravel(parameters)
    hessian = count * np.asarray(_local(likelihood, jnp.asarray(row), weights)[2])
    hessian = hessian[np.ix_(free, free)]
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    inverse = (vectors / np.maximum(values, 1e-6)) @ vectors.T
    size, errors = likelihood.centre.shape[0], np.sqrt(np.diag(inverse))
    wider, ends = (
        np.ones(len(inverse)),
        _profiles(likelihood, row, free, weights, inverse) if profiles else {},
    )
    for place, (first, last) in ends.items():
        wider[place] = max((last - first) / (2.0 * SHOWN * errors[place]), 1.0)
    few = count / max(count - free.sum(), 1.0)  # the size of the noise was estimated as well
    inverse = inverse * np.outer(wider, wider) * few
    covariance = inverse[:size, :size]
    variances, directions = np.linalg.eigh(covariance)
    weak = tuple(
        (float(np.sqrt(variance)), directions[:, place])
        for place, variance in enumerate(variances)
        if variance > 1.0
    )
    each = np.full(len(free), np.nan)
    each[free] = np.sqrt(np.diag(inverse))
    log_noise = np.asarray(unravel(parameters, jnp.asarray(each)).log_noise)
    low, high = likelihood.limits()
    near = (row - low < NEAR_LIMIT) | (high - row < NEAR_LIMIT)
    interval = row[:size, None] + SHOWN * np.sqrt(np.diag(covariance))[:, None] * np.array([-1.0, 1.0])
    for place, both in ends.items():
        interval[place] = row[place] + np.sqrt(few) * (np.array(both) - row[place])
    interval = np.clip(interval, low[:size, None], high[:size, None])
    spread, centre = np.asarray(likelihood.spread), np.asarray(likelihood.centre)
    return Uncertainty(
        covariance * np.outer(spread, spread),
        centre[:, None] + spread[:, None] * interval,
        weak,
        int(free.sum()),
        log_noise,
        near[:size],
    )
