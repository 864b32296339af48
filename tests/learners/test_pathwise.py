from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

from tests.learners.learner_truths import LEARNER, by_rounds, dial, halves, information, seen
from veil.learners import Pathwise, train_policy
from veil.learners import training as loop
from veil.learners.base import dual_ascent
from veil.learners.pathwise import emphasised
from veil.problem import Objective, problem
from veil.settings import TrainSettings
from veil.systems import Gain, finite_prior
from veil.types import as_float32

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
    learner, policy, key = Pathwise(episodes=7, learning_rate=2e-3), dial(system), jr.key(3)
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
    outcome = played(rows, jnp.asarray(9, jnp.int32))
    total = 2.0 * outcome.leakage + outcome.cost + PRICE * (outcome.distortion - 0.5)
    values = by_hand(total.sum(axis=2))
    slopes = (values[:6] - values[6:12]) / 2e-5
    assert np.all(np.abs(slopes) > 1e-3) and metrics["gradient"] == pytest.approx(
        np.linalg.norm(slopes), rel=1e-5
    )
    first: Any = progress.memory  # of the optimiser: Adam's mean of the gradients, a tenth of the clipped one
    gradient = 10.0 * np.asarray(jax.tree.leaves(first.inner_state[1][0].mu))
    assert np.allclose(gradient, slopes / max(1.0, np.linalg.norm(slopes)), rtol=1e-4)
    assert metrics["leakage"] == pytest.approx(by_hand(outcome.leakage.sum(axis=2))[12], rel=1e-6)
    assert metrics["cost"] == pytest.approx(by_hand(outcome.cost.sum(axis=2))[12], rel=1e-6)
    distortion = by_hand(outcome.distortion.mean(axis=2))[12]
    assert metrics["distortion"] == pytest.approx(distortion, rel=1e-6)
    # The first step of Adam has the learning rate's size in every knob, against the slope.
    after = np.asarray(jax.tree.leaves(progress.policy.network))
    assert np.allclose(after - NUMBERS, -2e-3 * np.sign(slopes), rtol=1e-3)
    assert progress.price == pytest.approx(max(0.2, PRICE + 0.1 * 0.2 * (distortion / 0.5 - 1.0)))
    assert progress.updates == 2


def by_hand(values):
    """Three rounds of three secrets, each by its mass; what is before the episodes stays."""
    return np.asarray(values).reshape(-1, 3, 3).mean(axis=1) @ MASSES


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
        return float(dual_ascent(jnp.asarray(price), jnp.asarray(distortion), objective, jnp.asarray(rate)))

    assert after(0.3, 6.0) == pytest.approx(0.3 + 0.5 * 0.2 * 0.5)
    assert after(0.3, 3.0) == pytest.approx(0.3 - 0.5 * 0.2 * 0.25)
    assert after(0.3, 4.0) == pytest.approx(0.3) and after(0.3, 6.0, 0.0) == pytest.approx(0.3)
    assert after(0.2, 0.0) == after(0.21, 0.0) == pytest.approx(0.2)
    assert after(0.3, np.nan) == pytest.approx(0.3)  # a step that failed says nothing


def test_a_step_that_is_not_a_number_is_left_out():
    """Distortion is NaN in one update; policy, optimiser and price go on as if it had not been."""
    learner, good, bad, policy = as_float32(
        (LEARNER, halves(), halves(np.nan), dial(halves().scenario.plant))
    )
    update = eqx.filter_jit(learner.update)
    first, _ = update((good,), learner.begin((good,), policy, key=jr.key(0)), key=jr.key(1))
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
    monkeypatch.setattr(loop, "evaluate_family", quick)
    made, lines = halves(), []
    trained = train_policy(
        (made,),
        LEARNER,
        dial(made.scenario.plant),
        TrainSettings(updates=150, episodes=32, evaluate_every=10, evaluation_episodes=256, patience=0),
        report=lines.append,
    )
    parts = [
        play(as_float32(made), trained.policy, numbered(256, 50_000 + 256 * i), jr.key(7)) for i in range(8)
    ]
    fresh = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    distortion, error = by_rounds(fresh.distortion, [0.5, 0.5])
    assert distortion < 0.3 + 3 * error and error < 0.01
    assert max(line["distortion"] for line in lines[1:]) > 0.45  # it was not kept from the start
    assert lines[-1]["price"] > 1.0 and min(line["price"] for line in lines[1:]) >= np.float32(0.2)
    noise = np.exp(float(trained.policy.network.log_sd) + 0.5 * float(trained.policy.network.fear))
    plain = information([0.5, 0.5], [-1.0, 1.0], np.sqrt(1.0 + noise**2) * np.ones(2))
    assert np.mean(fresh.leakage) < plain  # it is not the noise alone that hides
