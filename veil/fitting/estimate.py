"""Maximum likelihood of parameters and noise by one-step predictions, with standard errors.

The program that computes the likelihood is compiled once per shape of the data: parameters that an order of
the noise does not have are held at zero instead of being left out.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import optimize
from scipy.stats import qmc

from veil.fitting.predictor import Stretches, scores
from veil.fitting.residual_law import LONGEST, ResidualLaw, log_density, white
from veil.results.fit import Family
from veil.systems.base import System
from veil.systems.variants import WithNoise
from veil.types import Secret

WEAK = 3.0  # sd of the log of a noise factor that is assumed where the data say nothing

LARGEST_MEMORY, LONGEST_TAIL = 1.5, 0.45

STARTS, DESCENTS = 64, 3  # points that are tried, and from how many of them the likelihood is climbed


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
    data: Stretches
    centre: Float[Array, " P"]
    spread: Float[Array, " P"]
    mean: Float[Array, " Y"]
    sd: Float[Array, " Y"]

    def __init__(self, system: System, data: Stretches):
        secrets, seen = np.asarray(system.prior.secrets, float), np.flatnonzero(data.seen)
        spread = secrets.std(axis=0)
        usual = np.maximum(np.abs(secrets).mean(axis=0), 1e-3)
        self.system, self.data = system, data
        self.centre = jnp.asarray(secrets.mean(axis=0), float)
        self.spread = jnp.asarray(np.where(spread > 1e-9 * usual, spread, 0.25 * usual), float)
        used = np.asarray(data.used)
        states = np.asarray(data.states)[:, :-1][used][:, seen]
        self.mean, self.sd = jnp.asarray(states.mean(0)), jnp.asarray(np.maximum(states.std(0), 1e-9))

    @property
    def axes(self) -> np.ndarray:
        """The recorded coordinates of the state."""
        return np.flatnonzero(self.data.seen)

    def start(self) -> Parameters:
        """The centre of the prior with the system's own white noise."""
        return Parameters(
            jnp.zeros_like(self.centre),
            jnp.zeros(len(self.data.seen)),
            white(len(self.axes)),
        )

    def secret(self, parameters: Parameters) -> Secret:
        """The system's parameters in their own units."""
        return self.centre + self.spread * parameters.secret

    def by_step(self, parameters: Parameters) -> tuple[Float[Array, "S T"], Float[Array, "S T Y"]]:
        """Log density of every reading given those before it, and the innovations."""
        plant = WithNoise(self.system, jnp.exp(parameters.log_noise))
        found = scores(plant, self.secret(parameters), self.data)
        away = self.data.states[:, :-1][:, :, self.axes] - self.mean[None, None]
        states = away / self.sd[None, None]
        return jax.vmap(lambda one, at: log_density(parameters.law, one, at))(found, states)

    def forecasts(self, parameters: Parameters) -> Float[Array, "S T Y"]:
        """The readings that the system predicts, without the memory of its noise."""
        plant = WithNoise(self.system, jnp.exp(parameters.log_noise))
        return scores(plant, self.secret(parameters), self.data).forecasts

    def objective(self, parameters: Parameters, weights: Float[Array, "S T"]) -> Float[Array, ""]:
        """Mean negative log density of the weighted steps; unknown noise is weakly drawn to the model's."""
        count = jnp.maximum(jnp.sum(weights), 1.0)
        pull = 0.5 * jnp.sum((parameters.log_noise / WEAK) ** 2)
        return (pull - jnp.sum(weights * self.by_step(parameters)[0])) / count

    def limits(self, parameters: Parameters) -> tuple[Parameters, Parameters]:
        """Lowest and highest values."""
        fields = self.system.secret_fields
        low = (jnp.asarray([one.low for one in fields]) - self.centre) / self.spread
        high = (jnp.asarray([one.high for one in fields]) - self.centre) / self.spread
        law = parameters.law
        size, wide = jnp.full_like(law.log_size, 10.0), jnp.full_like(law.mixing, 50.0)
        top = ResidualLaw(
            jnp.full_like(law.memory, LARGEST_MEMORY),
            size,
            jnp.full_like(law.level, 3.0),
            wide,
            jnp.full_like(law.tail, LONGEST_TAIL),
        )
        bottom = jax.tree.map(jnp.negative, top)
        bottom = eqx.tree_at(lambda one: one.tail, bottom, jnp.zeros_like(law.tail))
        noise = jnp.full_like(parameters.log_noise, 12.0)
        margin = 1e-6
        return Parameters(low + margin, -noise, bottom), Parameters(high - margin, noise, top)

    def free(self, family: Family, *, noise: bool) -> Parameters:
        """Which parameters are estimated, as a tree of ones and zeros.

        Args:
            family: of the law of the scores.
            noise: whether the factors on the system's noise are estimated; the sizes of the scores then stay.
        """
        start = self.start()
        law = start.law
        lags = (jnp.arange(LONGEST) < family.order).astype(law.memory.dtype)
        return Parameters(
            jnp.ones_like(start.secret),
            jnp.full_like(start.log_noise, noise),
            ResidualLaw(
                jnp.broadcast_to(lags, law.memory.shape),
                jnp.full_like(law.log_size, not noise),
                jnp.full_like(law.level, family.level),
                jnp.full_like(law.mixing, not noise),
                jnp.full_like(law.tail, family.heavy),
            ),
        )


def ravel(tree: Parameters) -> np.ndarray:
    """All numbers in one row."""
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)])


def unravel(like: Parameters, row: Array) -> Parameters:
    """The numbers of a row in the shapes of `like`."""
    leaves, structure = jax.tree.flatten(like)
    found, start = [], 0
    for leaf in leaves:
        found.append(row[start : start + leaf.size].reshape(leaf.shape))
        start += leaf.size
    return jax.tree.unflatten(structure, found)


@eqx.filter_jit
def _slope(likelihood: Likelihood, row: Array, weights: Array) -> tuple[Float[Array, ""], Float[Array, " R"]]:
    like = likelihood.start()
    return jax.value_and_grad(lambda one: likelihood.objective(unravel(like, one), weights))(row)


@eqx.filter_jit
def _profiled(likelihood: Likelihood, points: Float[Array, "C P"], weights: Array) -> Float[Array, " C"]:
    """The objective at many secrets, each with the size of noise that suits it best."""

    def one(point: Array) -> Array:
        at = eqx.tree_at(lambda tree: tree.secret, likelihood.start(), point)
        noise = likelihood.by_step(at)[1]
        square = jnp.sum(weights[..., None] * noise**2, (0, 1)) / jnp.sum(weights)
        return 0.5 * jnp.sum(jnp.log(square))

    return jax.lax.map(one, points)


@eqx.filter_jit
def log_scores(
    likelihood: Likelihood, parameters: Parameters
) -> tuple[Float[Array, "S T"], Float[Array, "S T Y"]]:
    """Log density of every reading given those before it, and the innovations."""
    return likelihood.by_step(parameters)


@eqx.filter_jit
def _curvature(likelihood: Likelihood, row: Array, weights: Array) -> Float[Array, "R R"]:
    like = likelihood.start()
    return jax.hessian(lambda one: likelihood.objective(unravel(like, one), weights))(row)


def climb(
    likelihood: Likelihood, start: Parameters, free: Parameters, weights: Array, iterations: int = 200
) -> tuple[Parameters, float]:
    """The best parameters by L-BFGS-B from one start, and their mean negative log density.

    Args:
        likelihood: of the recording.
        start: where to begin.
        free: which parameters may change.
        weights: of the steps; 0 for those that are held out.
        iterations: at most.
    """
    like, chosen = likelihood.start(), ravel(free).astype(bool)
    low, high = (ravel(one) for one in likelihood.limits(like))
    base = np.clip(ravel(start).astype(float), low, high)

    def value(part: np.ndarray) -> tuple[float, np.ndarray]:
        row = base.copy()
        row[chosen] = part
        found, slope = _slope(likelihood, jnp.asarray(row), weights)
        if not np.isfinite(float(found)) or not np.all(np.isfinite(np.asarray(slope))):
            return 1e10, np.zeros(len(part))
        return float(found), np.asarray(slope, float)[chosen]

    bounds = list(zip(low[chosen], high[chosen], strict=True))
    found = optimize.minimize(
        value,
        base[chosen],
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": iterations, "ftol": 1e-11, "gtol": 1e-7},
    )
    base[chosen] = found.x
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
    low, high = likelihood.limits(likelihood.start())
    return np.clip(points, np.asarray(low.secret) + 1e-3, np.asarray(high.secret) - 1e-3)


def estimate_white(likelihood: Likelihood, weights: Array, seed: int = 0) -> Parameters:
    """Parameters and size of white noise, by climbing from the best of many starts.

    Args:
        likelihood: of the recording.
        weights: of the steps; 0 for those that are held out.
        seed: of the starts.
    """
    points = starting_points(likelihood, seed)
    tried = np.asarray(_profiled(likelihood, jnp.asarray(points), weights))
    order = np.argsort(np.where(np.isfinite(tried), tried, np.inf))
    free = likelihood.free(Family(), noise=True)
    found = []
    for place in order[:DESCENTS]:
        start = eqx.tree_at(lambda one: one.secret, likelihood.start(), jnp.asarray(points[place]))
        noise = np.asarray(log_scores(likelihood, start)[1])
        kept = np.asarray(weights)[..., None] * np.where(np.isfinite(noise), noise, 0.0) ** 2
        rms = np.sqrt(kept.sum((0, 1)) / float(np.sum(np.asarray(weights))))
        log_noise = np.full(len(likelihood.data.seen), float(np.log(np.maximum(rms, 1e-6)).mean()))
        log_noise[likelihood.axes] = np.log(np.maximum(rms, 1e-6))
        start = eqx.tree_at(lambda one: one.log_noise, start, jnp.asarray(log_noise))
        found.append(climb(likelihood, start, free, weights))
    return min(found, key=lambda one: one[1])[0]


def estimate_coloured(
    likelihood: Likelihood, white_noise: Parameters, family: Family, weights: Array
) -> Parameters:
    """Parameters and the law of the scores together, from the estimate with white noise.

    The factors on the system's noise stay as they were estimated; the sizes of the scores take their place.

    Args:
        likelihood: of the recording.
        white_noise: as `estimate_white` found them.
        family: of the law of the scores.
        weights: of the steps; 0 for those that are held out.
    """
    noise, used = np.asarray(log_scores(likelihood, white_noise)[1]), np.asarray(weights)
    memory = np.zeros((noise.shape[-1], LONGEST))
    if family.order:
        for axis in range(noise.shape[-1]):
            memory[axis, : family.order] = _regressed(noise[..., axis], used, family.order)
    tail = jnp.full(noise.shape[-1], 0.1 if family.heavy else 0.0)
    start = eqx.tree_at(lambda one: (one.law.memory, one.law.tail), white_noise, (jnp.asarray(memory), tail))
    return climb(likelihood, start, likelihood.free(family, noise=False), weights)[0]


def _regressed(values: np.ndarray, used: np.ndarray, order: int) -> np.ndarray:
    """Least-squares coefficients of a value on its `order` predecessors, over all stretches."""
    rows, targets = [], []
    for line, counts in zip(values, used, strict=True):
        for t in np.flatnonzero(counts):
            if t >= order:
                rows.append(line[t - order : t][::-1])
                targets.append(line[t])
    if len(rows) < 5 * order:
        return np.zeros(order)
    ridge = 1e-3 * len(rows) * np.eye(order)
    table, goal = np.asarray(rows), np.asarray(targets)
    found = np.linalg.solve(table.T @ table + ridge, table.T @ goal)
    return np.clip(found, -1.4, 1.4)


@dataclass(frozen=True)
class Uncertainty:
    """What the data say about the parameters, from the curvature of the likelihood.

    Attributes:
        covariance: of the system's parameters, in their own units.
        weak: combinations of parameters that the data do not determine: standard deviation in units of the
            prior's spread, and weights by parameter.
        free: number of parameters that were estimated, with those of the noise.
        log_noise: standard error of the logarithm of the size of the noise, per coordinate of the state; NaN
            where it was not estimated.
    """

    covariance: Float[np.ndarray, "P P"]
    weak: tuple[tuple[float, Float[np.ndarray, " P"]], ...]
    free: int
    log_noise: Float[np.ndarray, " N"]


def uncertainty(
    likelihood: Likelihood, parameters: Parameters, free: Parameters, weights: Array
) -> Uncertainty:
    """Standard errors from the curvature at the estimate.

    Directions without curvature get the prior's spread times 1,000 instead of infinity. A parameter at its
    limit has the curvature of the others.

    Args:
        likelihood: of the recording.
        parameters: the estimate.
        free: which were estimated.
        weights: of the steps that were used.
    """
    chosen = ravel(free).astype(bool)
    count = float(np.sum(np.asarray(weights)))
    hessian = count * np.asarray(_curvature(likelihood, jnp.asarray(ravel(parameters)), weights))
    hessian = hessian[np.ix_(chosen, chosen)]
    values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T))
    inverse = (vectors / np.maximum(values, 1e-6)) @ vectors.T
    size = likelihood.centre.shape[0]
    covariance = inverse[:size, :size]
    variances, directions = np.linalg.eigh(covariance)
    weak = tuple(
        (float(np.sqrt(variance)), directions[:, place])
        for place, variance in enumerate(variances)
        if variance > 1.0
    )
    errors = np.full(len(chosen), np.nan)
    errors[chosen] = np.sqrt(np.diag(inverse))
    each = unravel(parameters, jnp.asarray(errors))
    log_noise, sizes = np.array(each.log_noise), np.asarray(each.law.log_size)
    log_noise[likelihood.axes] = np.where(np.isnan(sizes), log_noise[likelihood.axes], sizes)
    spread = np.asarray(likelihood.spread)
    return Uncertainty(covariance * np.outer(spread, spread), weak, int(chosen.sum()), log_noise)
