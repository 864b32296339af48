"""What is discrete in a release: its score makes the gradient whole."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

from tests.learners.learner_truths import Split, folded
from veil.beliefs import ParticleSpec
from veil.beliefs.particles import Scheme
from veil.laws import Finite, Gaussian, Kernel, Mixture
from veil.learners.pathwise import surrogate
from veil.policies import LearnedPolicy
from veil.problem import Objective, problem
from veil.systems import Gain, System, finite_prior

PRICE = 0.7


def numbered(count):
    return jnp.arange(count, dtype=jnp.int32)


class Coin(LearnedPolicy):
    """Shares −1 or 2; the odds depend on the secret and, by two more numbers, on the external input."""

    system: System
    network: Any
    tracker: ParticleSpec = ParticleSpec(1, Scheme())

    def start(self, *, key):
        return self.tracker.start(self.system, key=key)

    def features(self, belief, external, time):
        return belief.log_masses

    def kernel(self, features, external, time):
        return CoinKernel(self.system, self.network, external)


ATOMS = np.asarray([-1.0, 2.0])


class CoinKernel(Kernel):
    system: System
    odds: Any
    external: Any

    def __call__(self, secret, state):
        index = jnp.argmin(jnp.abs(self.system.prior.secrets[:, 0] - secret[0]))
        odds = self.odds[index] + self.odds[2 + index] * self.external[0]
        return Finite(jnp.asarray(ATOMS)[:, None], jax.nn.log_sigmoid(jnp.stack([-odds, odds])))


def enumerated(odds, gains, masses, steps):
    """ρ · leakage and what is paid, over all sequences: x_1 = 0, x' = θ x + w, w' = y; ρ = 3, D̂ = 0.5."""

    def following(mass, x, w, left):
        """What is still to be charged, times the mass of the path so far; mass and x per secret."""
        if left == 0:
            return np.zeros(2)
        up = special.expit(odds[:2] + odds[2:] * w)
        likely, joint = np.stack([1 - up, up], axis=1), mass / mass.sum()
        information = np.sum(joint[:, None] * likely * np.log(likely / (joint @ likely)))
        total, after = np.asarray([3.0 * mass.sum() * information, 0.0]), gains * x + w
        for y, chosen in zip(ATOMS, likely.T, strict=True):
            charged = after**2 + PRICE * (np.abs(x - y) - 0.5)
            total[1] += (mass * chosen) @ charged
            total += following(mass * chosen, after, y, left - 1)
        return total

    return following(np.asarray(masses), np.zeros(2), 0.0, steps)


# After a 2 the odds lie further apart than after a −1: the leakage depends on what was chosen before.
ODDS, GAINS, SHARES = np.asarray([1.2, -0.8, 0.8, -0.9]), np.asarray([0.3, 0.9]), np.asarray([0.6, 0.4])


def coin_gradients(rounds, keys):
    """Gradients of both parts in the odds, one per key [keys, 2, 4], and the true ones by enumeration."""
    system = Gain(prior=finite_prior(GAINS, SHARES), sd=0.0, initial_sd=0.0, reply=1.0, reaction_sd=0.0)
    made = problem(system, 3, Objective(privacy_weight=3.0, distortion_price=0.2, distortion_limit=0.5))

    @jax.jit
    def gradients(keys):
        def losses(odds, key):
            outcome = made.episodes(Coin(system, odds), numbered(2 * rounds), key=key)
            none = jnp.zeros_like(outcome.cost)
            leaking = eqx.tree_at(lambda o: (o.cost, o.distortion), outcome, (none, none + 0.5))
            paid = eqx.tree_at(lambda o: o.leakage, outcome, none)
            price = jnp.asarray(PRICE)
            both = jnp.stack([surrogate(made, leaking, price), surrogate(made, paid, price)])
            return both, both

        return jax.lax.map(
            lambda key: jax.jacrev(losses, has_aux=True)(jnp.asarray(ODDS), key), keys, batch_size=64
        )

    step = 1e-5 * np.eye(4)
    ends = [[enumerated(ODDS + sign * row, GAINS, SHARES, 3) for row in step] for sign in (1, -1)]
    truth = (np.asarray(ends[0]) - np.asarray(ends[1])).T / 2e-5
    found, values = gradients(jr.split(jr.key(0), keys))
    return np.asarray(found), truth, np.asarray(values)


def agrees(found, truth, share):
    """Within four standard errors, themselves small for the largest entry of each part."""
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    assert np.all(error < share * np.abs(truth).max(axis=-1, keepdims=True))
    return np.all(np.abs(found.mean(axis=0) - truth) < 4 * error)


def test_choices_count_by_their_score_in_everything_that_follows_from_them(float64):
    """Two atoms, three steps, two secrets: the mean gradient is that of the enumerated objective.

    Without the score only the direct dependence of the leakage on the odds would be left: distortion and cost
    are constants of a chosen atom, so the gradient would not know of them at all.
    Two rounds only: a baseline that looked at an episode's own fate would halve the score's part.
    """
    found, truth, values = coin_gradients(2, 2048)
    assert agrees(found, truth, 0.06)
    assert agrees(values, enumerated(ODDS, GAINS, SHARES, 3), 0.06)


class Pair(LearnedPolicy):
    """y = x + one of two offsets + noise, by learned odds: (odds, first offset, second offset, log sd)."""

    system: System
    network: Any
    tracker: ParticleSpec = ParticleSpec(1, Scheme())

    def start(self, *, key):
        return self.tracker.start(self.system, key=key)

    def features(self, belief, external, time):
        return belief.log_masses

    def kernel(self, features, external, time):
        return PairKernel(self.network)


class PairKernel(Kernel):
    numbers: Any

    def __call__(self, secret, state):
        odds, *offsets, log_sd = self.numbers
        weights = jax.nn.log_sigmoid(jnp.stack([-odds, odds]))
        means = state[None, :] + jnp.stack(offsets)[:, None]
        return Mixture(weights, Gaussian(means, jnp.broadcast_to(jnp.exp(log_sd), (2, 1, 1))))


@pytest.mark.study
def test_a_mixture_is_learned_by_paths_and_by_scores(float64):
    """E|y − x| in closed form: the odds have a score only, offsets and noise a path only."""
    system = Split(finite_prior([(-1.0, 1.0), (1.0, 1.0)]))
    made = problem(system, 1, Objective(privacy_weight=0.0, distortion_price=1.0, distortion_limit=1.0))
    numbers = np.asarray([0.4, 0.3, -1.2, -0.7])

    @jax.jit
    def gradients(keys):
        def loss(numbers, key):
            return surrogate(
                made, made.episodes(Pair(system, numbers), numbered(64), key=key), jnp.asarray(1.0)
            )

        return jax.vmap(lambda key: jax.grad(loss)(jnp.asarray(numbers), key))(keys)

    def expected(numbers):
        up = special.expit(numbers[0])
        return np.asarray([1 - up, up]) @ folded(numbers[1:3], np.exp(numbers[3]))

    step = 1e-5 * np.eye(4)
    truth = np.asarray([(expected(numbers + row) - expected(numbers - row)) / 2e-5 for row in step])
    found = np.asarray(gradients(jr.split(jr.key(0), 96)))
    error = found.std(axis=0, ddof=1) / np.sqrt(96)
    assert np.all(np.abs(found.mean(axis=0) - truth) < 4 * error) and np.all(
        error < 0.1 * np.abs(truth).max()
    )
