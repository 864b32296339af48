"""Attacks on what rounding leaves behind, and regressions that are trained on transcripts.

Two attacks speak of a policy that passes its noise on to copies of the system, one per secret. From the
releases a reader computes the paths of all copies. If the noise was recovered from rounded states as if they
were exact, the copy of the true secret stays on the grid of the sensor (`GridMembership`). If uniform noise
was added to the reading first, that copy has the density of a rounded path and the others have not
(`RoundedLikelihood`). Two more are trained on transcripts of the policy, whatever it is: `LowDigits` counts
the last digits of the releases per secret, `RegressionBank` predicts each release from the steps before it.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from veil.attacks.base import Attack, Attacker, Evidence
from veil.beliefs.readings import CellFilter
from veil.laws import Gaussian, Law, to_grid
from veil.policies.base import Policy
from veil.policies.counterfactual import keeps_copies
from veil.registry import ATTACKS
from veil.step import Transcript
from veil.systems.base import System, output_grid, state_grid
from veil.types import Key, Secret, Shared

Paths = Float[Array, "T K N"]

NEWTON = 3  # steps of Newton's method: exact for the mean of copies with constant noise, close for the median


class CopiesReader(Attack):
    """Computes from the releases where the copies of the system are, one per secret of the prior.

    Attributes:
        policy: the one in force, with a memory of copies.
    """

    policy: Policy

    def paths(self, transcript: Transcript) -> Paths:
        """The states of all copies at every step, if the releases are their centre without noise."""
        policy = self.policy
        system = policy.system
        secrets, external = system.prior.secrets, transcript.external
        size = len(system.state_fields)

        def centre(copies: Float[Array, "K N"], now: Array) -> Shared:
            kernel = policy.decide(jnp.zeros(0, now.dtype), now, jnp.asarray(1, jnp.int32)).opened()
            law = kernel.release_law(secrets[0], copies[0], copies)
            return law.sample(jnp.zeros(law.noise_size, now.dtype))

        def moved(laws: Gaussian, now: Array, shared: Shared) -> Float[Array, "K N"]:
            def copies(noise: Array) -> Array:
                return jax.vmap(lambda law: law.sample(noise))(laws)

            def newton(_: Array, noise: Array) -> Array:
                slope = jax.jacfwd(lambda z: centre(copies(z), now))(noise)
                return noise + jnp.linalg.pinv(slope) @ (shared - centre(copies(noise), now))

            return copies(jax.lax.fori_loop(0, NEWTON, newton, jnp.zeros(size, shared.dtype)))

        def step(copies: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            before, external, shared = now
            laws = jax.vmap(system.transition, (0, 0, None))(secrets, copies, before)
            found = moved(laws, external, shared)
            return found, found

        first = moved(jax.vmap(system.initial)(secrets), external[0], transcript.shared[0])
        rows = external[:-1], external[1:], transcript.shared[1:]
        return jnp.concatenate([first[None], jax.lax.scan(step, first, rows)[1]])


MEMBER = 0.95  # probability that a state of the true copy is on the grid, as the attack has it

CLOSE = 0.01  # sd of its distance from the grid, in steps


class GridMembership(CopiesReader):
    """Asks which copy stays on the grid of the sensor: the true one, if states were read as exact."""

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Log odds of "on the grid" against "anywhere", summed over steps and axes."""
        del key
        paths = self.paths(transcript)
        steps = [step if step > 0 else math.inf for step in state_grid(self.policy.system)]
        steps = jnp.broadcast_to(jnp.asarray(steps, paths.dtype), paths.shape)
        count = paths / steps
        apart = jnp.where(jnp.isfinite(steps), count - jnp.round(count), 0.5)
        member = -0.5 * (apart / CLOSE) ** 2 - math.log(CLOSE * math.sqrt(2.0 * math.pi))
        odds = jnp.logaddexp(math.log(MEMBER) + member, math.log1p(-MEMBER))
        return _evidence(jnp.sum(jnp.where(jnp.isfinite(steps), odds, 0.0), axis=(0, 2)))


class RoundedLikelihood(CopiesReader):
    """Asks which copy has the likelihood of a rounded path: the true one, if uniform noise was added."""

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Log-probability of each copy's readings, less the log density of its noise."""
        del key
        system = self.policy.system
        cells, grid = CellFilter(system), state_grid(system)
        paths, external = self.paths(transcript), transcript.external

        def one(secret: Secret, path: Float[Array, "T N"]) -> Array:
            readings = jax.vmap(lambda state: to_grid(state, grid))(path)
            laws = jax.vmap(system.transition, (None, 0, 0))(secret, path[:-1], external[:-1])
            smooth = jax.vmap(lambda law, after: law.log_prob(after))(laws, path[1:])
            rounded = cells.log_masses(secret, readings, external)
            return jnp.sum(rounded[1:] - smooth)

        return _evidence(jax.vmap(one, (0, 1))(system.prior.secrets, paths))


def _evidence(log_likelihood: Float[Array, " K"]) -> Evidence:
    whole = jnp.all(jnp.isfinite(log_likelihood))
    return Evidence(
        jnp.where(whole, log_likelihood - jnp.max(log_likelihood), 0.0),
        jnp.ones_like(log_likelihood[0]),
        ~whole,
    )


@ATTACKS.register("rounding of copies")
def copies_readers(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """Readers of the copies, where the sensor rounds and the policy keeps copies."""
    del system, law
    inner = getattr(policy, "inner", policy)
    if not keeps_copies(inner) or not any(state_grid(policy.system)):
        return ()
    return (
        Attacker("grid membership", "attack", lambda _: GridMembership(inner)),
        Attacker("rounded likelihood", "attack", lambda _: RoundedLikelihood(inner)),
    )


DIGITS = 8  # last digits are counted to this base


class LowDigits(Attack):
    """How often each last digit, and each change of it, occurs per secret.

    On a public grid the digit is the number of the grid point to the base 8; elsewhere it is the last three
    bits of the floating-point number.

    Attributes:
        grid: of the releases.
        log_digits: log-frequencies of a digit, per secret and axis.
        log_changes: the same of the difference of two digits in turn.
    """

    grid: tuple[float, ...] = eqx.field(static=True)
    log_digits: Float[Array, "K Y D"]
    log_changes: Float[Array, "K Y D"]

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Sum of the log-frequencies."""
        del key
        digits = low_digits(transcript.shared, self.grid)
        changes = (digits[1:] - digits[:-1]) % DIGITS
        axes = jnp.arange(digits.shape[1])[None, :]
        found = jnp.sum(self.log_digits[:, axes, digits], axis=(1, 2))
        return _evidence(found + jnp.sum(self.log_changes[:, axes, changes], axis=(1, 2)))


def low_digits(shared: Float[Array, "T Y"], grid: tuple[float, ...]) -> Array:
    """The last digit of every number, to the base 8."""
    bits = jax.lax.bitcast_convert_type(shared, jnp.int64 if shared.dtype == jnp.float64 else jnp.int32)
    if not any(grid):
        return (bits & (DIGITS - 1)).astype(jnp.int32)
    steps = jnp.asarray([step if step > 0 else 1.0 for step in grid], shared.dtype)
    count = jnp.mod(jnp.round(shared / steps[None, :]), DIGITS).astype(jnp.int32)
    on_grid = jnp.broadcast_to(jnp.asarray(grid) > 0, shared.shape)
    return jnp.where(on_grid, count, (bits & (DIGITS - 1)).astype(jnp.int32))


def count_digits(system: System, transcripts: Transcript, index: np.ndarray, secrets: int) -> LowDigits:
    """Train `LowDigits` on transcripts of known secrets.

    Args:
        system: whose public grid the releases are on.
        transcripts: batched [E].
        index: (E,) their secrets.
        secrets: how many there are.
    """
    grid = output_grid(system)
    digits = np.asarray(jax.vmap(lambda one: low_digits(one, grid))(transcripts.shared))
    changes = (digits[:, 1:] - digits[:, :-1]) % DIGITS

    def log_frequencies(values: np.ndarray) -> Array:
        tables = np.ones((secrets, values.shape[2], DIGITS))
        for secret in range(secrets):
            for axis in range(values.shape[2]):
                tables[secret, axis] += np.bincount(
                    values[index == secret, :, axis].ravel(), minlength=DIGITS
                )
        return jnp.log(jnp.asarray(tables / tables.sum(axis=2, keepdims=True)))

    return LowDigits(grid, log_frequencies(digits), log_frequencies(changes))


LAGS = 3  # steps that a regression looks back

RIDGE = 1e-6  # of the mean square of the regressors


class RegressionBank(Attack):
    """One linear regression per secret: each release from the releases and inputs of the last steps.

    Attributes:
        centre: subtracted from the columns of a step.
        weights: of the regressors.
        precision_roots: Cholesky factors of the inverse covariances of the prediction errors.
    """

    centre: Float[Array, " C"]
    weights: Float[Array, "K R Y"]
    precision_roots: Float[Array, "K Y Y"]

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Gaussian log-likelihood of the prediction errors."""
        del key
        rows, target = regressors(transcript, self.centre)
        errors = target[None] - rows[None] @ self.weights
        whitened = errors @ self.precision_roots
        scale = jnp.sum(jnp.log(jnp.abs(jnp.diagonal(self.precision_roots, axis1=1, axis2=2))), axis=1)
        return _evidence(target.shape[0] * scale - 0.5 * jnp.sum(whitened**2, axis=(1, 2)))


def regressors(transcript: Transcript, centre: Float[Array, " C"]) -> tuple[Array, Array]:
    """Rows of regressors, and the releases that they predict."""
    shown = jnp.concatenate([transcript.shared, transcript.external], axis=1) - centre[None, :]
    steps, size = shown.shape[0], transcript.shared.shape[1]
    lags = min(LAGS, steps - 1)
    back = [shown[lags - lag : steps - lag] for lag in range(1, lags + 1)]
    ones = jnp.ones((steps - lags, 1), shown.dtype)
    return jnp.concatenate([ones, shown[lags:, size:], *back], axis=1), shown[lags:, :size]


def fit_regressions(transcripts: Transcript, index: np.ndarray, secrets: int) -> RegressionBank:
    """Train a `RegressionBank` on transcripts of known secrets, by least squares.

    Args:
        transcripts: batched [E]; of at least two steps.
        index: (E,) their secrets.
        secrets: how many there are.
    """
    shown = np.concatenate([np.asarray(transcripts.shared), np.asarray(transcripts.external)], axis=2)
    centre = jnp.asarray(shown.mean(axis=(0, 1)))
    rows, target = jax.vmap(lambda one: regressors(one, centre))(transcripts)
    rows, target = np.asarray(rows), np.asarray(target)
    weights, roots = [], []
    for secret in range(secrets):
        x = rows[index == secret].reshape(-1, rows.shape[2])
        y = target[index == secret].reshape(-1, target.shape[2])
        gram = x.T @ x
        ridge = RIDGE * np.trace(gram) / len(gram)
        found = np.linalg.solve(gram + ridge * np.eye(len(gram)), x.T @ y)
        errors = y - x @ found
        covariance = errors.T @ errors / max(len(errors) - x.shape[1], 1)
        covariance += 1e-12 * (np.trace(covariance) + 1e-12) * np.eye(len(covariance))
        weights.append(found)
        roots.append(np.linalg.cholesky(np.linalg.inv(covariance)))
    return RegressionBank(centre, jnp.asarray(np.stack(weights)), jnp.asarray(np.stack(roots)))
