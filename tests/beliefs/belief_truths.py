"""Truths written without the package: Kalman filters, a grid filter, and a system to try them on."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.beliefs import ParticleBelief
from veil.laws import Gaussian, Kernel
from veil.rollout import follow, rollout
from veil.systems.base import Field, Prior, System, finite_prior
from veil.types import External, Noise, Scalar, Secret, Shared, State

TURN = np.array([[0.8, 0.3], [-0.2, 0.9]])
PUSH = np.array([[1.0], [0.4]])
ROOT = np.array([[0.3, 0.0], [0.1, 0.2]])
SIGHT = np.array([[2.0, -1.0], [0.5, 1.0]])
BLUR = np.array([[0.4, 0.0], [0.1, 0.3]])


class Plane(System):
    """Two linear coordinates with correlated noise; the secret scales the rotation."""

    prior: Prior = eqx.field(default_factory=lambda: finite_prior([0.5, 0.9], [0.4, 0.6]))
    start_scale: Float[Array, "2 2"] = eqx.field(
        default_factory=lambda: jnp.asarray([[1.0, 0.0], [0.5, 0.7]])
    )
    secret_fields = (Field("scale"),)
    state_fields = (Field("first"), Field("second"))
    external_fields = (Field("push"),)
    shared_fields = (Field("first"), Field("second"))
    reaction_noise_size = 1

    def initial(self, secret: Secret) -> Gaussian:
        del secret
        return Gaussian(jnp.asarray([1.0, -1.0]), self.start_scale)

    def initial_external(self) -> External:
        return jnp.zeros(1)

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        mean = secret[0] * (jnp.asarray(TURN) @ state) + jnp.asarray(PUSH) @ external
        return Gaussian(mean, jnp.asarray(ROOT))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> External:
        return noise

    def cost(self, secret: Secret, state: State, after: State, shared: Shared, external: External) -> Scalar:
        return after[0]

    def distortion(self, state: State, shared: Shared) -> Scalar:
        return jnp.sum((state - shared) ** 2)

    def output(self, state: State) -> Shared:
        return state


class Sight(Kernel):
    """A linear view with correlated noise."""

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        return Gaussian(jnp.asarray(SIGHT) @ state, jnp.asarray(BLUR))


def kalman_bank(model, shared, external):
    """Log p(y_t | θ, h_t) for one secret. `model`: start mean, start covariance, F, B, Q, H, R."""
    mean, cov, turn, push, noise, sight, blur = (np.asarray(a, float) for a in model)
    out = []
    for y, w in zip(np.asarray(shared, float), np.asarray(external, float), strict=True):
        if not np.any(np.isnan(y)):
            spread = sight @ cov @ sight.T + blur
            miss = y - sight @ mean
            out.append(
                -0.5 * (miss @ np.linalg.solve(spread, miss) + np.linalg.slogdet(2 * np.pi * spread)[1])
            )
            gain = cov @ sight.T @ np.linalg.inv(spread)
            mean = mean + gain @ miss
            cov = cov - gain @ spread @ gain.T
        else:
            out.append(0.0)
        mean = turn @ mean + push @ w
        cov = turn @ cov @ turn.T + noise
    return np.array(out)


def gain_bank(system, sd, shared, external, slope=1.0):
    """Log-likelihoods [T, K] of the scalar gain loop shared as slope·x + sd·ε."""
    columns = []
    for theta in np.asarray(system.prior.secrets)[:, 0]:
        numbers = (system.initial_sd**2, theta, 1.0, system.sd**2, slope, sd**2)
        model = ([0.0], *(np.array([[float(number)]]) for number in numbers))
        columns.append(kalman_bank(model, shared, external))
    return np.stack(columns, axis=1)


def plane_bank(system, shared, external):
    """Log-likelihoods [T, K] of the plane seen through `Sight`."""
    start = np.asarray(system.start_scale, float)
    columns = [
        kalman_bank(
            ([1.0, -1.0], start @ start.T, theta * TURN, PUSH, ROOT @ ROOT.T, SIGHT, BLUR @ BLUR.T),
            shared,
            external,
        )
        for theta in np.asarray(system.prior.secrets)[:, 0]
    ]
    return np.stack(columns, axis=1)


def posterior(log_prior, log_likelihoods):
    """Log posterior [T, K] after each release."""
    total = np.asarray(log_prior, float)[None, :] + np.cumsum(log_likelihoods, axis=0)
    top = total.max(axis=1, keepdims=True)
    return total - top - np.log(np.exp(total - top).sum(axis=1, keepdims=True))


def grid_filter(start, step, view, reach, shared):
    """Log p(y_t | h_t) on a 1-D grid: `start(x)`, `step(after, before, t)`, `view(y, x)` are densities."""
    x = np.linspace(-reach, reach, 1501)
    width = x[1] - x[0]
    belief = start(x)
    out = []
    for t, y in enumerate(shared):
        belief = belief * view(y, x)
        evidence = belief.sum() * width
        out.append(np.log(evidence))
        belief = (step(x[:, None], x[None, :], t) @ (belief / evidence)) * width
    return np.array(out)


@eqx.filter_jit
def advance(belief, system, kernel, external, shared, *, key):
    """`belief.advance`, compiled: eager steps would compile operation by operation."""
    return belief.update(system, kernel, external, shared, key=key)


@eqx.filter_jit
def start(kind, system, particles, *, key, scheme=None):
    """`kind.start`, compiled."""
    return kind.start(system, particles, key=key, scheme=scheme)


@eqx.filter_jit
def moments(belief):
    """`belief.moments`, compiled."""
    return belief.moments()


def records(system, policy, steps, episodes, seed=0):
    """Episodes of a policy that looks at no belief."""

    def play(number, key):
        return rollout(system, policy, steps, public_seed=number, key=key)

    return eqx.filter_jit(jax.vmap(play))(jnp.arange(episodes), jr.split(jr.key(seed), episodes))


def track(system, policy, public, particles, keys, scheme=None, kind: Any = ParticleBelief):
    """Trails [keys] of particle beliefs along one transcript (or one each, if batched)."""

    def one(transcript, key):
        start_key, run_key = jr.split(key)
        belief = kind.start(system, particles, key=start_key, scheme=scheme)
        return follow(system, policy, belief, transcript, key=run_key)

    batched = public.shared.ndim == 3
    return eqx.filter_jit(jax.vmap(one, (0 if batched else None, 0)))(public, keys)
