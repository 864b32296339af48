"""Whether recorded transcripts can come from the model at all.

Under the model, the place of each release in its own forecast (the Bayes mixture over all secrets, given
everything before) is uniform and independent of all others, whichever secret is true. Noise of the wrong size
bends the distribution of these places; coloured noise and a wrong law of motion make them follow each other.
"""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float
from scipy import stats

from veil.attacks.kalman import GaussianisedPolicy
from veil.beliefs.base import Belief
from veil.beliefs.kalman import KalmanBelief
from veil.beliefs.observed import ObservedBelief
from veil.policies.base import Policy
from veil.step import Transcript
from veil.systems.base import System

LEVEL = 1e-4  # of the whole test, all axes and lags together

LAGS = 5


@dataclass(frozen=True)
class Fit:
    """How well the model explains what was released.

    Attributes:
        uniform: per axis, p-value of the places being uniform.
        follow: (axis, lag) z-score of the correlation of normal scores.
        count: releases looked at.
    """

    uniform: np.ndarray
    follow: np.ndarray
    count: int

    @property
    def p_value(self) -> float:
        """Of all tests together (Bonferroni)."""
        values = np.concatenate([self.uniform, 2.0 * stats.norm.sf(np.abs(self.follow)).ravel()])
        return float(min(1.0, len(values) * np.min(values)))

    @property
    def ok(self) -> bool:
        """Whether the model is not contradicted."""
        return self.p_value >= LEVEL

    def reasons(self, system: System) -> tuple[str, ...]:
        """What contradicts the model, by axis."""
        found = []
        for axis, field in enumerate(system.shared_fields):
            if self.uniform[axis] < LEVEL:
                found.append(f"{field.name} is spread otherwise than forecast (p = {self.uniform[axis]:.1e})")
            lag = int(np.argmax(np.abs(self.follow[axis]))) if self.follow.shape[1] else 0
            if self.follow.shape[1] and 2.0 * stats.norm.sf(abs(self.follow[axis, lag])) < LEVEL:
                score = self.follow[axis, lag]
                found.append(
                    f"forecast errors of {field.name} follow each other ({score:+.1f} s.e. at lag {lag + 1})"
                )
        return tuple(found) or ("the releases as a whole contradict the model",)


def examine_transcripts(system: System, policy: Policy, transcripts: Transcript, *, exact: bool) -> Fit:
    """Place each release in its forecast and test the places.

    Args:
        system: the model.
        policy: the one in force.
        transcripts: batched [E].
        exact: whether the releases are the states themselves.
    """
    placed = np.asarray(_places(system, policy, transcripts, exact))[:, 1:]  # x_1 tells of the start only
    if not placed.shape[1]:
        return Fit(np.ones(placed.shape[2]), np.zeros((placed.shape[2], 0)), 0)
    scores = np.asarray(stats.norm.ppf(np.clip(placed, 1e-12, 1 - 1e-12)))
    episodes, steps, axes = len(placed), placed.shape[1], placed.shape[2]
    uniform = np.array([stats.kstest(placed[:, :, axis].ravel(), "uniform").pvalue for axis in range(axes)])
    lags = min(LAGS, steps - 1)
    follow = np.zeros((axes, max(lags, 0)))
    for lag in range(1, lags + 1):
        products = np.clip(scores[:, lag:], -5, 5) * np.clip(scores[:, :-lag], -5, 5)
        follow[:, lag - 1] = products.sum(axis=(0, 1)) / np.sqrt(episodes * (steps - lag))
    return Fit(uniform, follow, episodes * steps)


@eqx.filter_jit
def _places(system: System, policy: Policy, public: Transcript, exact: bool) -> Float[Array, "E T Y"]:
    """P(release below the one seen) per axis under the mixture over the secrets."""
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
