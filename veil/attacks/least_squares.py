"""The textbook attack: it takes the releases for states and fits the secret by least squares."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.attacks.base import Attack, Attacker, Evidence
from veil.laws import Law
from veil.policies.base import Policy
from veil.registry import ATTACKS
from veil.step import Transcript
from veil.systems.base import Prior, System
from veil.types import External, Key, Scalar, Secret, Shared, State

SWEEPS = 2  # the first is weighted by residuals at the prior's mean, the others by those of the last fit


class _Frame(eqx.Module):
    """Coordinates z in which the prior has mean zero and covariance one: θ = origin + axes z.

    Directions in which the secrets do not differ have a zero axis, so nothing is ever divided by zero.
    """

    origin: Secret
    axes: Float[Array, "P P"]
    secrets: Float[Array, "K P"]  # the coordinates of the prior's secrets


class LeastSquares(Attack):
    """Recursive least squares (recursive prediction errors where the secret enters nonlinearly).

    The attack takes a release for the state: x̂_t is the initial mean plus the pseudo-inverse of the output's
    Jacobian times the difference of y_t. The estimate is the secret that best predicts y_{t+1} from (x̂_t,
    w_t), by a recursion without forgetting that starts from the prior's mean and covariance. The recursion
    runs over the transcript twice, because the covariance of the prediction errors must be known to weigh
    them. If a release is not the state, the estimate is biased and too certain. The attack is a baseline, not
    an upper bound.

    Attributes:
        system: the adversary's model.
        trust: how many prediction errors the model's own covariance counts for, beside those observed.
    """

    system: System
    trust: Scalar = eqx.field(default=4.0, converter=jnp.asarray)

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Log-likelihoods of the Gaussian fit, −½ (z_k − ẑ)ᵀ Λ (z_k − ẑ) + ½ z_kᵀ z_k.

        The fit of information Λ holds the prior N(0, I) of z already; the last term takes it out again.
        """
        del key
        frame = _frame(self.system.prior)
        centre, information = self._fit(frame, transcript)
        apart = frame.secrets - centre[None, :]
        squares = jnp.sum(apart * (apart @ information), axis=1) - jnp.sum(frame.secrets**2, axis=1)
        whole = jnp.all(jnp.isfinite(squares))
        return Evidence(jnp.where(whole, -0.5 * squares, 0.0), jnp.ones_like(squares[0]), ~whole)

    def estimate(self, transcript: Transcript) -> Secret:
        """The fitted secret, which need not be one of the prior's."""
        frame = _frame(self.system.prior)
        return frame.origin + frame.axes @ self._fit(frame, transcript)[0]

    def _fit(self, frame: _Frame, transcript: Transcript) -> tuple[Array, Array]:
        """The fitted coordinates and their information."""
        shared = transcript.shared
        centre, information = jnp.zeros_like(frame.origin), jnp.eye(len(frame.origin), dtype=shared.dtype)
        if len(shared) < 2:  # nothing to predict
            return centre, information
        start = _start(self.system)
        states = jax.vmap(_stand_in, (None, None, 0))(self.system, start, shared[:-1])
        steps = states, transcript.external[:-1], shared[1:]

        def miss(place: Array, state: State, external: External, after: Shared) -> Shared:
            secret = frame.origin + frame.axes @ place
            return after - self.system.output(self.system.transition(secret, state, external).mean)

        expected = _expected_covariance(self.system, frame.origin, start, transcript.external[0])
        for _ in range(SWEEPS):
            errors = jax.vmap(miss, (None, 0, 0, 0))(centre, *steps)
            covariance = _covariance(errors, expected, self.trust.astype(shared.dtype), shared)
            centre, information = _sweep(miss, steps, linalg.precision(linalg.cholesky(covariance)), centre)
        return centre, information


def _sweep(
    miss: Callable[..., Shared], steps: tuple[Array, ...], weight: Float[Array, "Y Y"], like: Array
) -> tuple[Array, Array]:
    """One pass of the recursion: the estimate and its information after the last step."""

    def step(carry: tuple[Array, Array], now: tuple[Array, ...]) -> tuple[tuple[Array, Array], None]:
        place, information = carry
        error, slope = miss(place, *now), -jax.jacfwd(miss)(place, *now)
        information = information + slope.T @ weight @ slope
        gain = linalg.precision(linalg.cholesky(information)) @ slope.T @ weight
        return (place + gain @ error, information), None

    start = jnp.zeros_like(like), jnp.eye(len(like), dtype=like.dtype)
    return jax.lax.scan(step, start, steps)[0]


def _frame(prior: Prior) -> _Frame:
    """Principal axes of the prior, each component of the secret measured by its own spread."""
    masses = jnp.exp(jax.nn.log_softmax(prior.log_masses))
    origin = masses @ prior.secrets
    apart = prior.secrets - origin[None, :]
    small = jnp.finfo(apart.dtype).eps * len(apart) * 8.0
    spread = jnp.sqrt(masses @ apart**2)
    spread = jnp.where(spread > small * jnp.max(jnp.abs(prior.secrets), axis=0), spread, 0.0)
    unit = apart / jnp.where(spread > 0.0, spread, jnp.inf)[None, :]
    values, vectors = jnp.linalg.eigh(unit.T @ (masses[:, None] * unit))
    roots = jnp.where(values > small, jnp.sqrt(jnp.maximum(values, small)), 0.0)
    inverses = jnp.where(roots > 0.0, 1.0 / jnp.where(roots > 0.0, roots, 1.0), 0.0)
    axes = spread[:, None] * vectors * roots[None, :]
    return _Frame(origin, axes, unit @ (vectors * inverses[None, :]))


def _start(system: System) -> State:
    """The mean of x_1, over the secrets too."""
    masses = jnp.exp(jax.nn.log_softmax(system.prior.log_masses))
    return masses @ jax.vmap(system.initial)(system.prior.secrets).mean


def _stand_in(system: System, start: State, shared: Shared) -> State:
    """The state as the release shows it; what does not show keeps its initial mean."""
    jacobian = jax.jacfwd(system.output)(start)
    return start + jnp.linalg.pinv(jacobian) @ (shared - system.output(start))


def _expected_covariance(
    system: System, secret: Secret, start: State, external: External
) -> Float[Array, "Y Y"]:
    """Covariance of a prediction error if the releases were the outputs."""
    root = jax.jacfwd(system.output)(start) @ system.transition(secret, start, external).scale
    return root @ root.T


def _covariance(
    errors: Float[Array, "S Y"], expected: Float[Array, "Y Y"], trust: Scalar, shared: Float[Array, "T Y"]
) -> Float[Array, "Y Y"]:
    """The expected covariance and the seen one, by their counts, never below the round-off of the data."""
    pooled = (trust * expected + errors.T @ errors) / (trust + len(errors))
    limits = jnp.finfo(shared.dtype)
    small = 8.0 * limits.eps
    floor = small**2 * jnp.mean(shared**2, axis=0) + small * jnp.trace(pooled) + jnp.sqrt(limits.tiny)
    return pooled + jnp.diag(floor)


@ATTACKS.register("least squares")
def least_squares_attackers(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """A fit of the secret to the releases, whatever the policy."""
    del policy, law
    return (Attacker("least squares", "attack", lambda _: LeastSquares(system)),)
