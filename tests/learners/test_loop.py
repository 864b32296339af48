import json
import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests.learners.learner_truths import LEARNER, Dial, dial, halves, seen
from veil.io import StoreError, fingerprint, load_arrays
from veil.learners import Learner, Progress, evaluate_family, train_policy
from veil.learners import training as loop
from veil.learners.run import CHECKPOINT, METRICS
from veil.policies import GaussianNoise
from veil.problem import Objective, problem
from veil.settings import TrainSettings
from veil.systems import Gain, finite_prior


class Walk(Learner):
    """Every update moves the knobs at random; its memory is where it has been."""

    def begin(self, family, policy, *, key):
        return Progress(policy, jnp.asarray(1.0), jnp.asarray(0, jnp.int32), {"sum": jnp.zeros(6)})

    def update(self, family, progress: Any, *, key):
        weights, shape = jax.tree.flatten(progress.policy.network)
        moved = jnp.stack(weights) + 0.1 * jr.normal(key, (6,)) - 0.1 * progress.memory["sum"]
        network = jax.tree.unflatten(shape, list(moved))
        policy = eqx.tree_at(lambda whole: whole.network, progress.policy, network)
        memory = {"sum": progress.memory["sum"] + moved}
        metrics = {"first": moved[0], "draw": jr.normal(key)}
        return Progress(policy, 0.9 * progress.price, progress.updates + 1, memory), metrics


def run(monkeypatch, looks, learner=None, *, updates=12, folder=None, seed=0, patience=0, **given):
    """Train with scripted evaluations: a function of the policy, or one result after the other."""
    rest = iter([] if callable(looks) else looks)

    def examined(family, policy, episodes, seed):
        return looks(policy) if callable(looks) else next(rest)

    monkeypatch.setattr(loop, "evaluate_family", examined)
    made = halves()
    options = TrainSettings(updates=updates, evaluate_every=3, patience=patience, seed=seed)
    return train_policy(
        (made,), learner or Walk(), dial(made.scenario.plant), options, folder=folder, **given
    )


def knobs(policy):
    return np.asarray(jax.tree.leaves(policy.network))


def by_offset(policy: Any):
    """A policy is the better the nearer its offset is to 0.3."""
    return seen(abs(float(policy.network.offset) - 0.3))


def lines(folder):
    found = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


def stop_after(update):
    def report(line):
        if line["update"] == update:
            raise KeyboardInterrupt

    return report


@pytest.mark.parametrize("learner", [Walk(), LEARNER], ids=["walk", "pathwise"])
def test_an_interrupted_training_goes_on_with_the_same_bits(monkeypatch, tmp_path, learner):
    """Stopped right after an evaluation and between two; policy, optimiser, price, metrics: all the same."""
    whole = run(monkeypatch, by_offset, learner, updates=8, folder=tmp_path / "whole")
    for update in (3.0, 5.0):
        folder = tmp_path / str(update)
        with pytest.raises(KeyboardInterrupt):
            run(monkeypatch, by_offset, learner, updates=8, folder=folder, report=stop_after(update))
        asked = []
        again = run(monkeypatch, by_offset, learner, updates=8, folder=folder, report=asked.append)
        assert [line["update"] for line in asked] == [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]  # nothing is done twice
        assert np.array_equal(knobs(again.policy), knobs(whole.policy))
        assert (again.updates, again.best, again.score, again.reason) == (
            8,
            whole.best,
            whole.score,
            whole.reason,
        )
        assert lines(folder) == lines(tmp_path / "whole")
        first, second = ((place / CHECKPOINT).read_bytes() for place in (folder, tmp_path / "whole"))
        assert first == second
    assert [line["update"] for line in lines(tmp_path / "whole")] == [float(n) for n in range(9)]
    assert ["total" in line for line in lines(tmp_path / "whole")] == [n in (0, 3, 6, 8) for n in range(9)]


def test_a_training_ends_where_its_rule_finds_a_reason_and_is_evaluated_there(monkeypatch, tmp_path):
    """The rule sees the metrics of all updates, also of those before an interruption."""

    def rule(lines):
        made = [line["draw"] for line in lines if "draw" in line]
        return f"{len(made)} draws" if len(made) == 7 else ""

    whole = run(monkeypatch, by_offset, folder=tmp_path / "whole", ending=rule)
    assert (whole.updates, whole.reason) == (7, "7 draws") and whole.last is not None
    evaluated = [line["update"] for line in lines(tmp_path / "whole") if "total" in line]
    assert evaluated == [0.0, 3.0, 6.0, 7.0]
    folder = tmp_path / "stopped"
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, by_offset, folder=folder, ending=rule, report=stop_after(5.0))
    for _ in range(2):  # it goes on, and once it has ended it stays so
        again = run(monkeypatch, by_offset, folder=folder, ending=rule)
        assert (again.updates, again.best, again.reason) == (7, whole.best, "7 draws")
        assert np.array_equal(knobs(again.last), knobs(whole.last)) and lines(folder) == lines(
            tmp_path / "whole"
        )


def test_the_best_policy_is_remembered_over_an_interruption(monkeypatch, tmp_path):
    """The evaluation after three updates was the best of all, though later ones are better than the start."""
    before = [seen(5.0), seen(1.0), seen(2.0)]
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, before, folder=tmp_path, report=stop_after(7.0))
    after = [seen(3.0), seen(4.0)]  # after 9 and 12: what was seen before is not evaluated again
    again = run(monkeypatch, after, folder=tmp_path)
    assert again.best == 3 and again.score == before[1]


def test_every_update_has_randomness_of_its_own(monkeypatch):
    """Also across seeds; the same seed gives the same."""
    draws = []
    for seed in (0, 1, 0):
        reported = []
        run(monkeypatch, by_offset, seed=seed, report=reported.append)
        draws.append([line["draw"] for line in reported[1:]])
    assert len(np.unique(draws[:2])) == 24 and draws[0] == draws[2]


def test_a_training_that_was_done_is_not_done_again(monkeypatch, tmp_path):
    first = run(monkeypatch, by_offset, folder=tmp_path)
    asked = []
    again = run(monkeypatch, by_offset, folder=tmp_path, report=asked.append)
    assert len(asked) == 1 and np.array_equal(knobs(first.policy), knobs(again.policy))
    assert (again.best, again.updates) == (first.best, first.updates)


@pytest.mark.parametrize("harm", ["cut", "empty", "other"])
def test_a_checkpoint_that_is_damaged_or_of_another_training_is_not_used(monkeypatch, tmp_path, harm):
    whole = run(monkeypatch, by_offset, folder=tmp_path / "whole")
    folder = tmp_path / "harmed"
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, by_offset, folder=folder, seed=harm == "other", report=stop_after(7.0))
    content = (folder / CHECKPOINT).read_bytes()
    kept = {"cut": content[: len(content) // 2], "empty": b"", "other": content}[harm]
    (folder / CHECKPOINT).write_bytes(kept)
    again = run(monkeypatch, by_offset, folder=folder)
    assert np.array_equal(knobs(again.policy), knobs(whole.policy))
    assert lines(folder) == lines(tmp_path / "whole")


def test_metrics_that_were_cut_short_are_dropped(monkeypatch, tmp_path):
    """A crash in the middle of a line leaves the lines up to the checkpoint, each whole."""
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, by_offset, folder=tmp_path, report=stop_after(8.0))
    path = tmp_path / METRICS
    path.write_text(path.read_text() + '{"update": 9.0, "first": 0.')
    run(monkeypatch, by_offset, folder=tmp_path)
    assert [line["update"] for line in lines(tmp_path)] == [float(n) for n in range(13)]
    with pytest.raises(StoreError, match="another design"):
        load_arrays(tmp_path / CHECKPOINT, {"only": jnp.zeros(3)})


def test_the_best_policy_by_fresh_episodes_is_kept(monkeypatch):
    """First what is above the limit, then the total; what is not a number is worse than anything."""
    nan = float("nan")
    cases = [
        ([seen(5.0), seen(4.0), seen(4.5), seen(3.0), seen(3.5)], 9),
        ([seen(5.0), seen(6.0), seen(7.0), seen(8.0), seen(9.0)], 0),
        ([seen(5.0, 2.0), seen(1.0, 2.5), seen(9.0, 1.5), seen(8.0, 0.9), seen(8.5, 0.1)], 9),
        ([seen(5.0), seen(1.0, 1.1), seen(4.9, 0.99), seen(0.1, 3.0), seen(nan)], 6),
        ([seen(5.0, 2.0), seen(nan, nan), seen(nan, 0.0), seen(float("inf"), 0.5), seen(6.0, 1.9)], 12),
        ([seen(5.0), seen(5.0), seen(5.0), seen(5.0), seen(5.0)], 0),
    ]
    for script, best in cases:
        passed, rest = [], iter(script)  # no evaluation more than these

        def look(policy, passed=passed, rest=rest):
            passed.append(policy)
            return next(rest)

        trained = run(monkeypatch, look)
        assert trained.best == best and trained.updates == 12 and trained.reason == "all updates made"
        chosen = passed[best // 3]  # evaluations come after 0, 3, 6, 9 and 12 updates
        assert np.array_equal(knobs(trained.policy), knobs(chosen))
        assert trained.score is script[best // 3]


def test_a_start_that_training_makes_worse_is_handed_back(monkeypatch):
    start = dial(halves().scenario.plant)
    trained = run(monkeypatch, lambda policy: seen(float(np.sum((knobs(policy) - knobs(start)) ** 2))))
    assert trained.best == 0 and np.array_equal(knobs(trained.policy), knobs(start))
    assert isinstance(trained.policy, Dial) and trained.score.total == 0.0


def test_training_ends_when_nothing_gets_better(monkeypatch, tmp_path):
    script = [seen(5.0), seen(6.0), seen(4.0), seen(4.1), seen(4.0), seen(3.0), seen(2.0)]
    trained = run(monkeypatch, script, updates=60, patience=2, folder=tmp_path)
    assert (trained.updates, trained.best) == (12, 6) and trained.reason == "no better in 2 evaluations"
    again = run(monkeypatch, lambda policy: seen(0.0), updates=60, patience=2, folder=tmp_path)
    assert (again.updates, again.best) == (12, 6)  # also when asked again


def test_training_finds_its_checkpoint_from_another_process():
    """What identifies a training does not depend on where functions happen to lie in memory."""
    program = """
import equinox as eqx, jax, jax.random as jr
from veil.io import fingerprint
from veil.beliefs import ParticleSpec
jax.config.update("jax_disable_most_optimizations", True)  # as the tests have it: bits of drawn weights
net = eqx.nn.MLP(2, 1, 3, 1, jax.nn.silu, key=jr.key(0))
text = fingerprint(net, ParticleSpec(8), 3.5)
"""
    command = [sys.executable, "-c", program + "print(text)"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    space: dict[str, Any] = {}
    exec(program, space)
    assert found.stdout.strip() == space["text"]
    assert fingerprint(space["net"], space["ParticleSpec"](8), 3.25) != space["text"]
    other = eqx.tree_at(lambda net: net.activation, space["net"], jax.nn.relu)
    assert fingerprint(other, space["ParticleSpec"](8), 3.5) != space["text"]


def played_by_hand(gains, sd, steps, episodes):
    """The gain loop in numpy: scores by Kalman filters, distortion per step, cost per episode, all [K, E]."""
    rng, count = np.random.default_rng(0), len(gains)
    x, w = rng.normal(size=(count, episodes)), np.zeros((count, episodes))
    mean, variance = np.zeros((count, count, episodes)), np.ones((count, 1, 1))  # filters first
    logs, cost, distortion = np.zeros_like(mean), np.zeros(x.shape), np.zeros(x.shape)
    for _ in range(steps):
        y = x + sd * rng.normal(size=x.shape)
        spread = variance + sd**2
        logs -= 0.5 * ((y - mean) ** 2 / spread + np.log(spread))
        mean, variance = mean + variance / spread * (y - mean), variance * sd**2 / spread
        mean = gains[:, None, None] * mean + w
        variance = gains[:, None, None] ** 2 * variance + 0.09
        distortion = distortion + np.abs(y - x) / steps
        x = gains[:, None] * x + w + 0.3 * rng.normal(size=x.shape)
        cost, w = cost + x**2, -0.2 * y + 0.5 * rng.normal(size=x.shape)
    return logs, cost, distortion


@pytest.mark.study
def test_an_evaluation_brackets_the_leakage_of_a_kalman_filter():
    """Noise on true data in the gain loop: all that an evaluation says, against a simulation in numpy."""
    gains, masses = np.asarray([0.3, 0.9]), np.asarray([0.7, 0.3])
    system = Gain(prior=finite_prior(gains, masses))
    made = problem(system, 5, Objective(privacy_weight=3.0, distortion_price=0.5, distortion_limit=2.0))
    logs, cost, distortion = played_by_hand(gains, 0.25, 5, 40_000)
    joint = np.log(masses)[:, None, None] + logs
    own = np.stack([logs[k, k] for k in range(2)]) - np.logaddexp(*joint)
    truth, cost, distortion = (masses @ part.mean(axis=1) for part in (own, cost, distortion))
    score = evaluate_family((made,), GaussianNoise(system, (0.25,)), 400, 3)
    assert score.leakage.lower.low() < truth < score.leakage.upper.high()
    assert 0.0 <= score.leakage.width < 0.05 and score.leakage.upper.error < 0.25 * truth
    assert abs(score.distortion.value - 0.25 * np.sqrt(2 / np.pi)) < 4 * score.distortion.error
    assert abs(distortion - 0.25 * np.sqrt(2 / np.pi)) < 1e-3
    assert abs(score.cost.value - cost) < 4 * score.cost.error and score.cost.error < 0.1 * cost
    assert abs(score.leakage_counted - truth) < 4 * score.leakage.upper.error  # scatters less
    parts = 3.0 * score.leakage_counted + score.cost.value + 0.5 * 5 * score.distortion.value
    assert score.total == pytest.approx(parts) and score.limit == 2.0 and score.merit == (0.0, score.total)
    assert score.leakage.entropy == pytest.approx(-masses @ np.log(masses))
