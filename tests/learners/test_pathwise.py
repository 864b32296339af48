from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

from tests.learners.learner_truths import Split, by_rounds, dial, folded, information, seen
from veil.beliefs import ParticleTracker
from veil.beliefs.particles import Scheme
from veil.kernel import Kernel
from veil.laws import Finite, Gaussian, Mixture
from veil.learners import Pathwise, Training, loop, train
from veil.learners.multiplier import raised
from veil.learners.pathwise import emphasised, surrogate
from veil.policies import LearnedPolicy
from veil.problem import Objective, problem
from veil.systems import Gain, System, finite_prior

MASSES = np.asarray([0.5, 0.3, 0.2])
NUMBERS = (0.1, -0.05, 0.2, 0.15, -0.7, 0.3)
PRICE = 0.7


def numbered(count, first=0):
    return first + jnp.arange(count, dtype=jnp.int32)


def set_numbers(policy, numbers):
    knobs = jax.tree.unflatten(jax.tree.structure(policy.network), [jnp.asarray(n) for n in numbers])
    return eqx.tree_at(lambda whole: whole.network, policy, knobs)


def test_the_gradient_is_the_slope_of_the_objective_with_the_same_noise(float64):
    """Through the kernel, the belief, the closed loop and the leakage; knob by knob, in a world with a prior.

    The second update is looked at: seven episodes are rounded up to nine, and secrets take turns all along.
    """
    system = Gain(prior=finite_prior([0.3, 0.6, 0.9], MASSES))
    made = problem(system, 3, Objective(privacy_weight=2.0, distortion_price=0.2, distortion_limit=0.5))
    learner, policy, key = Pathwise(episodes=7), dial(system), jr.key(3)
    start = learner.begin((made,), policy, key=key)
    start = eqx.tree_at(
        lambda p: (p.updates, p.price), start, (jnp.asarray(1, jnp.int32), jnp.asarray(PRICE))
    )
    progress, metrics = eqx.filter_jit(learner.update)((made,), start, key=key)

    @eqx.filter_jit
    def played(numbers, first):
        def one(row):
            return made.episodes(set_numbers(policy, row), numbered(9, first), key=key)

        return jax.vmap(one)(numbers)

    step = 1e-5 * np.eye(6)
    rows = jnp.asarray(np.concatenate([NUMBERS + step, NUMBERS - step, [NUMBERS]]))
    slopes = []
    for first in (0, 9):
        outcome = played(rows, jnp.asarray(first, jnp.int32))
        total = 2.0 * outcome.leakage + outcome.cost + PRICE * (outcome.distortion - 0.5)
        values = np.asarray(total).sum(axis=2).reshape(13, 3, 3).mean(axis=1) @ MASSES
        slopes.append((values[:6] - values[6:12]) / 2e-5)
    assert metrics["gradient"] == pytest.approx(np.linalg.norm(slopes[1]), rel=1e-5)
    for name in ("leakage", "cost"):
        found = np.asarray(getattr(outcome, name))[12].sum(axis=1).reshape(3, 3).mean(axis=0) @ MASSES
        assert metrics[name] == pytest.approx(found, rel=1e-6)
    distortion = np.asarray(outcome.distortion)[12].mean(axis=1).reshape(3, 3).mean(axis=0) @ MASSES
    assert metrics["distortion"] == pytest.approx(distortion, rel=1e-6)
    # The first step of Adam has the learning rate's size in every knob, against the slope.
    after = np.asarray(jax.tree.leaves(progress.policy.network))
    assert np.allclose(after - NUMBERS, -2e-3 * np.sign(slopes[1]), rtol=1e-3)
    gradient = jax.jit(jax.grad(loss_of(made, policy, 0, key)))(jnp.asarray(NUMBERS))
    assert np.allclose(gradient, slopes[0], rtol=1e-5, atol=1e-7) and np.all(np.abs(slopes[0]) > 1e-3)
    assert progress.price == pytest.approx(max(0.2, PRICE + 0.1 * 0.2 * (distortion / 0.5 - 1.0)))
    assert progress.updates == 2


def loss_of(made, policy, first, key):
    def loss(numbers):
        outcome = made.episodes(set_numbers(policy, numbers), numbered(9, first), key=key)
        return surrogate(made, outcome, jnp.asarray(PRICE))

    return loss


class Coin(LearnedPolicy):
    """Shares −1 or 2; the odds depend on the secret and, by two more numbers, on the external input."""

    system: System
    network: Any
    tracker: ParticleTracker = ParticleTracker(1, Scheme())

    def start(self, *, key):
        return self.tracker.start(self.system, key=key)

    def features(self, belief):
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
    """The objective over all sequences of releases: x_1 = 0, x' = θ x + w, w' = y; ρ = 3, λ = 0.7, D̂ = 0.5."""

    def following(mass, x, w, left):
        """What is still to be charged, times the mass of the path so far; mass and x per secret."""
        if left == 0:
            return 0.0
        up = special.expit(odds[:2] + odds[2:] * w)
        likely, joint = np.stack([1 - up, up], axis=1), mass / mass.sum()
        told = np.sum(joint[:, None] * likely * np.log(likely / (joint @ likely)))
        total, after = 3.0 * mass.sum() * told, gains * x + w
        for y, chosen in zip(ATOMS, likely.T, strict=True):
            charged = after**2 + PRICE * (np.abs(x - y) - 0.5)
            total += (mass * chosen) @ charged + following(mass * chosen, after, y, left - 1)
        return total

    return following(np.asarray(masses), np.zeros(2), 0.0, steps)


ODDS, GAINS, SHARES = np.asarray([0.4, -0.6, 0.3, 0.5]), np.asarray([0.3, 0.9]), np.asarray([0.6, 0.4])


def coin_gradients(rounds, keys, score=True):
    """Gradients in the odds, one per key, and the true one by enumeration."""
    system = Gain(prior=finite_prior(GAINS, SHARES), sd=0.0, initial_sd=0.0, reply=1.0, reaction_sd=0.0)
    made = problem(system, 3, Objective(privacy_weight=3.0, distortion_price=0.2, distortion_limit=0.5))

    @jax.jit
    def gradients(keys):
        def loss(odds, key):
            outcome = made.episodes(Coin(system, odds), numbered(2 * rounds), key=key)
            return surrogate(made, outcome, jnp.asarray(PRICE)), outcome

        odds = jnp.asarray(ODDS)
        return jax.lax.map(lambda key: jax.grad(loss, has_aux=True)(odds, key), keys, batch_size=64)

    step = 1e-5 * np.eye(4)
    truth = [
        (enumerated(ODDS + row, GAINS, SHARES, 3) - enumerated(ODDS - row, GAINS, SHARES, 3)) / 2e-5
        for row in step
    ]
    found, outcome = gradients(jr.split(jr.key(0), keys))
    return np.asarray(found), np.asarray(truth), outcome, made


def test_choices_count_by_their_score_in_everything_that_follows_from_them(float64):
    """Two atoms, three steps, two secrets: the mean gradient is that of the enumerated objective.

    Without the score only the direct dependence of the leakage on the odds would be left: distortion and cost
    are constants of a chosen atom, so the gradient would not know of them at all.
    """
    found, truth, outcome, made = coin_gradients(64, 48)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(48)
    assert np.all(np.abs(mean - truth) < 4 * error) and np.all(error < 0.06 * np.abs(truth).max())
    value = 3.0 * outcome.leakage + outcome.cost + PRICE * (outcome.distortion - 0.5)
    rounds = np.asarray(value).sum(axis=2).reshape(-1, 2) @ SHARES
    exact = enumerated(ODDS, GAINS, SHARES, 3)
    assert abs(rounds.mean() - exact) < 4 * rounds.std() / np.sqrt(len(rounds))


@pytest.mark.xfail(strict=True, reason="the baseline is the mean over all episodes, an episode's own round too")
def test_few_episodes_give_the_same_gradient_on_average(float64):
    """Two rounds: a baseline that looks at an episode's own fate would halve the score's part."""
    found, truth, _, _ = coin_gradients(2, 1536)
    mean, error = found.mean(axis=0), found.std(axis=0, ddof=1) / np.sqrt(1536)
    assert np.all(np.abs(mean - truth) < 4 * error) and np.all(error < 0.06 * np.abs(truth).max())


class Pair(LearnedPolicy):
    """y = x + one of two offsets + noise, by learned odds: (odds, first offset, second offset, log sd)."""

    system: System
    network: Any
    tracker: ParticleTracker = ParticleTracker(1, Scheme())

    def start(self, *, key):
        return self.tracker.start(self.system, key=key)

    def features(self, belief):
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


def test_emphasis_runs_from_the_mean_to_the_worst(float64):
    losses = jnp.asarray([1.0, 3.0, 2.5])

    def value(emphasis):
        return jax.value_and_grad(emphasised)(losses, jnp.asarray(emphasis))

    assert np.allclose(value(0.0)[0], np.mean(losses)) and np.allclose(value(0.0)[1], 1 / 3)
    for emphasis in (1e-3, 0.7, 4.0):
        number, slopes = value(emphasis)
        truth = np.log(np.mean(np.exp(emphasis * np.asarray(losses)))) / emphasis
        assert np.allclose(number, truth) and np.mean(losses) <= number <= 3.0
        assert np.allclose(slopes, special.softmax(emphasis * np.asarray(losses)))
    assert abs(value(1e3)[0] - 3.0) < 2e-3 and np.allclose(value(1e3)[1], [0.0, 1.0, 0.0])
    assert emphasised(losses[:1], jnp.asarray(5.0)) == 1.0


def test_the_price_rises_above_the_limit_and_never_falls_under_the_floor():
    objective = Objective(distortion_price=0.2, distortion_limit=4.0)

    def after(price, distortion, rate=0.5):
        return float(raised(jnp.asarray(price), jnp.asarray(distortion), objective, jnp.asarray(rate)))

    assert after(0.3, 6.0) == pytest.approx(0.3 + 0.5 * 0.2 * 0.5)
    assert after(0.3, 3.0) == pytest.approx(0.3 - 0.5 * 0.2 * 0.25)
    assert after(0.3, 4.0) == pytest.approx(0.3) and after(0.3, 6.0, 0.0) == pytest.approx(0.3)
    assert after(0.2, 0.0) == after(0.21, 0.0) == pytest.approx(0.2)
    assert after(0.3, np.nan) == pytest.approx(0.3)  # a step that failed says nothing


def halves(unit=1.0):
    """Two secrets one step apart, in single precision."""
    system = Split(finite_prior([(-1.0, 1.0), (1.0, 1.0)]), unit)
    return problem(system, 1, Objective(privacy_weight=8.0, distortion_price=0.2, distortion_limit=0.3))


LEARNER = Pathwise(episodes=32, updates=150, learning_rate=0.05, dual_rate=4.0)


def test_a_step_that_is_not_a_number_is_left_out():
    """Distortion is NaN in one update; the policy, the optimiser and the price go on as if it had not been."""
    good, bad = halves(), halves(np.nan)
    update = eqx.filter_jit(LEARNER.update)
    first, _ = update((good,), LEARNER.begin((good,), dial(good.world.plant), key=jr.key(0)), key=jr.key(1))
    stuck, metrics = update((bad,), first, key=jr.key(2))
    assert np.isnan(metrics["gradient"]) and stuck.updates == 2
    for kept, given in zip(
        jax.tree.leaves((stuck.policy, stuck.price)),
        jax.tree.leaves((first.policy, first.price)),
        strict=True,
    ):
        assert np.array_equal(kept, given)
    third, metrics = update((good,), stuck, key=jr.key(3))
    other, _ = update((good,), eqx.tree_at(lambda p: p.updates, first, stuck.updates), key=jr.key(3))
    moved = (
        np.asarray(jax.tree.leaves(third.policy.network)),
        np.asarray(jax.tree.leaves(other.policy.network)),
    )
    assert np.all(np.isfinite(moved[0])) and np.isfinite(metrics["gradient"]) and np.isfinite(third.price)
    assert np.array_equal(*moved) and not np.array_equal(
        moved[0], np.asarray(jax.tree.leaves(first.policy.network))
    )


@eqx.filter_jit
def play(made, policy, numbers, key):
    return made.episodes(policy, numbers, key=key)


def quick(family, policy, episodes, seed):
    """A look by the problem's own measure, which is exact here: one step, Gaussian."""
    outcome = play(family[0], policy, numbered(256, 10_000), jr.key(seed + 99))
    leakage, distortion = (float(jnp.mean(part)) for part in (outcome.leakage, outcome.distortion))
    return seen(8.0 * leakage + 0.2 * distortion, distortion, 0.3)


def test_a_tight_limit_is_kept_on_fresh_episodes(monkeypatch):
    """At the floor of the price the best policy is far above the limit; the price rises until it is kept."""
    monkeypatch.setattr(loop, "examine", quick)
    made, lines = halves(), []
    trained = train(
        (made,),
        LEARNER,
        dial(made.world.plant),
        Training(updates=150, episodes=32, look=10, looked=256, patience=0),
        report=lines.append,
    )
    fresh = play(made, trained.policy, numbered(2000, 50_000), jr.key(7))
    distortion, error = by_rounds(fresh.distortion, [0.5, 0.5])
    assert distortion < 0.3 + 3 * error and error < 0.01
    assert max(line["distortion"] for line in lines[1:]) > 0.45  # it was not kept from the start
    assert lines[-1]["price"] > 1.0 and min(line["price"] for line in lines[1:]) >= np.float32(0.2)
    noise = np.exp(float(trained.policy.network.log_sd) + 0.5 * float(trained.policy.network.fear))
    plain = information([0.5, 0.5], [-1.0, 1.0], np.sqrt(1.0 + noise**2) * np.ones(2))
    assert float(jnp.mean(fresh.leakage)) < plain  # it is not the noise alone that hides
