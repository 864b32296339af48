"""The paper's learner: its parts against numpy, and the optimum of a one-step problem."""

import functools
import math
from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from tests.learners.learner_truths import Split, Truth, kernel_of, seen
from veil.io import load_arrays, save_arrays
from veil.laws import Point
from veil.learners import initial_policy, train_policy
from veil.learners import training as loop
from veil.learners.critic import Critic, Observation, described
from veil.learners.ddpg import Charges, Ddpg, joined, moved, one, parted
from veil.learners.experience import MEMORY, Replay, Shifted, explored, wander
from veil.problem import Objective, Problem, problem
from veil.registry import LEARNERS
from veil.settings import PolicyDesign, TrainSettings
from veil.step import first_features
from veil.systems import Gain, finite_prior

SECRETS = [(-1.0, 1.0), (1.0, 1.0)]
FIRST = jnp.asarray(0, jnp.int32)


@functools.cache
def split(encoder: Any = "moments", double=False) -> tuple[Problem, Any]:
    """One release of a `Split` at four units per nat, and a plain policy for it."""
    with jax.enable_x64(double):
        system = Split(finite_prior(SECRETS))
        made = problem(system, 1, Objective(privacy_weight=4.0, distortion_price=1.0, distortion_limit=10.0))
        return made, initial_policy(
            PolicyDesign(start="plain", encoder=encoder, width=16), system, 1, key=jr.key(0)
        )


@eqx.filter_jit
def law_at(policy, features, secret, state):
    """The release law of a policy at the first step."""
    kernel = policy.kernel(features, policy.system.initial_external(), jnp.asarray(1, jnp.int32))
    return kernel(secret, state)


@eqx.filter_jit
def features_of(policy):
    return first_features(policy, FIRST)


def test_the_oldest_episodes_make_room():
    replay, kept = Replay.empty({"n": jnp.zeros((1, 3))}, 4), []
    for round_ in range(5):
        new = np.asarray([[10.0 * (2 * round_ + i) + t for t in range(3)] for i in range(2)], np.float32)
        replay, kept = replay.add({"n": jnp.asarray(new)}), [*kept, *new.tolist()][-4:]
        filled = np.asarray(replay.records["n"])[: min(4, 2 * (round_ + 1))]
        assert sorted(filled.tolist()) == sorted(kept) and int(replay.added) == 2 * (round_ + 1)


def test_steps_are_drawn_alike_with_what_followed_them():
    """Only from what was added; the last step has no follower but itself."""
    records = {"n": jnp.arange(12, dtype=jnp.int32).reshape(4, 3)}
    replay = Replay.empty(records, 8).add(records)
    now, after = replay.draw(6000, key=jr.key(0))
    now, after = np.asarray(now["n"]), np.asarray(after["n"])
    counts = np.bincount(now, minlength=12)
    assert counts.size == 12 and np.all(np.abs(counts - 500) < 5 * np.sqrt(500))
    assert np.array_equal(after, np.where(now % 3 == 2, now, now + 1))


def test_perturbations_wander_with_the_sd_and_the_memory_they_should(float64):
    path = np.asarray(wander(400, (500,), jnp.asarray(0.3), key=jr.key(1)))
    assert path.shape == (400, 500)
    independent = path.size * (1 - MEMORY**2) / (1 + MEMORY**2)  # of the squares of such a process
    assert path.std() == pytest.approx(0.3, abs=5 * 0.3 / np.sqrt(2 * independent))
    assert path[0].std() == pytest.approx(0.3, abs=5 * 0.3 / np.sqrt(2 * 500))  # stationary from the start
    for lag in (1, 3):
        found = np.mean(path[lag:] * path[:-lag]) / 0.09
        assert found == pytest.approx(MEMORY**lag, abs=10 / np.sqrt(independent))


def test_the_belief_knows_the_kernel_that_acted(float64):
    """Masses after a release of a perturbed kernel are by Bayes under that kernel, not under the policy's."""
    made, policy = split(double=True)
    shifts, stretches = jnp.asarray([[0.7], [-0.4]]), jnp.asarray([0.5, -0.2])
    acting = Shifted(policy, shifts, stretches)
    play = eqx.filter_jit(made.reset)(policy, FIRST, key=jr.key(3))
    after, stage, _ = eqx.filter_jit(made.step)(acting, play, seed=FIRST, key=jr.key(4))
    logs = []
    for k, (mean, sd) in enumerate(SECRETS):
        secret, places = jnp.asarray([mean, sd]), (mean, mean + 1e-3)
        at, slope = (law_at(policy, stage.features, secret, jnp.asarray([place])) for place in places)
        gain = float((slope.mean - at.mean)[0]) / 1e-3
        noise = float(at.scale[0, 0]) * np.exp(float(stretches[k]))
        spread = np.sqrt((gain * sd) ** 2 + noise**2)
        apart = (float(stage.shared[0]) - float(at.mean[0]) - float(shifts[k, 0])) / spread
        logs.append(-0.5 * apart**2 - np.log(spread))
    expected = np.exp(logs) / np.sum(np.exp(logs))
    assert np.exp(np.asarray(after.belief.log_masses)) == pytest.approx(expected, abs=2e-3)
    here = play.situation.believed, play.situation.state
    true, own = law_at(acting, stage.features, *here), law_at(policy, stage.features, *here)
    assert float(true.mean[0] - own.mean[0]) == pytest.approx(0.7)
    assert float(true.scale[0, 0] / own.scale[0, 0]) == pytest.approx(np.exp(0.5))


def test_the_critic_is_told_offset_and_factor_in_units(float64):
    _, policy = split(double=True)
    unit = float(policy.scaling.output.spread[0])
    law = law_at(policy, features_of(policy), jnp.asarray(SECRETS[0]), jnp.asarray([0.4]))
    found = np.asarray(described(law, jnp.asarray([0.4]), policy.scaling))
    expected = [(float(law.mean[0]) - 0.4) / unit, np.log(float(law.scale[0, 0]) / unit)]
    assert found == pytest.approx(expected)
    with pytest.raises(TypeError, match="Gaussian releases"):
        described(Point(law.mean), jnp.asarray([0.4]), policy.scaling)


def test_the_printed_critic_is_told_mean_and_factor_as_they_are_and_no_input(float64):
    """Q(θ, s, x, μ, Σ): the same whatever w and t are."""
    _, policy = split(double=True)
    scaling = policy.scaling
    law = law_at(policy, features_of(policy), jnp.asarray(SECRETS[0]), jnp.asarray([0.4]))
    action = described(law, jnp.asarray([0.4]), scaling, printed=True)
    centre, unit = float(scaling.output.centre[0]), float(scaling.output.spread[0])
    assert np.asarray(action) == pytest.approx(
        [(float(law.mean[0]) - centre) / unit, float(law.scale[0, 0]) / unit]
    )
    critic = Critic.start(3, scaling, 4, printed=True, key=jr.key(0))
    seen = [
        Observation(jnp.asarray(SECRETS[0]), jnp.asarray([0.4]), jnp.asarray([w]), jnp.asarray(t, jnp.int32))
        for w, t in ((0.0, 1), (5.0, 9))
    ]
    values = [float(critic(jnp.ones(3), one, action, scaling)) for one in seen]
    assert values[0] == values[1]
    assert critic.layers.layers[0].weight.shape[1] == 3 + 2 + 1 + 2


def test_the_printed_step_sizes_do_not_fall_and_the_printed_gradients_are_not_clipped():
    """Five gradients of a thousand make five full steps of Adam; the repaired learner slows down."""
    learner = LEARNERS["ddpg_printed"]().build(
        TrainSettings(updates=2, learner="ddpg_printed", learning_rate=1e-3)
    )
    repaired = Ddpg(updates=1, learning_rate=1e-3, gradients=5)
    assert learner.printed and not learner.direct and float(learner.dual_rate) == 0.0
    moved = []
    for each in (replace(learner, gradients=5), repaired):
        weights: Any = jnp.asarray(0.0)
        state = each.optimiser.init(weights)
        with jax.numpy_dtype_promotion("standard"):
            for _ in range(5):
                step, state = each.optimiser.update(jnp.asarray(1000.0), state, weights)
                weights = eqx.apply_updates(weights, step)
        moved.append(-float(weights))
    assert moved[0] == pytest.approx(5e-3, rel=1e-3) and moved[1] < 0.75 * moved[0]


TOY = Objective(privacy_weight=0.0, distortion_price=1.0, distortion_limit=10.0)


def test_the_printed_learner_learns_where_the_critic_sees_what_is_charged():
    """One release of x ~ N(θ, 1) where leakage is free: an actor that knows nothing learns to share x.

    E|y − x| of one that looks at the secret alone is at least E|x − θ| = 0.80: what is less needs the state.
    """
    system = Split(finite_prior(SECRETS))
    made = problem(system, 1, TOY)
    design = PolicyDesign("printed", "mgf", particles=4, proposal="pooled", width=32)
    policy: Any = initial_policy(design, system, 1, key=jr.key(0))
    plain = {"printed": True, "fade": 1.0, "clip": math.inf, "dual_rate": 0.0}
    learner = Ddpg(
        64, 40, 3e-3, direct=False, explore=0.5, gradients=40, batch=64, width=32, capacity=512, **plain
    )
    progress, update = learner.begin((made,), policy, key=jr.key(1)), eqx.filter_jit(learner.update)
    for i in range(40):
        progress, _ = update((made,), progress, key=jr.key(100 + i))

    @eqx.filter_jit
    def distance(policy):
        return jnp.mean(made.episodes(policy, jnp.arange(2000, dtype=jnp.int32), key=jr.key(5)).distortion)

    before, after = float(distance(policy)), float(distance(progress.policy))
    print(f"E|y − x|: before {before:.3f}, after {after:.3f}")
    assert before > 1.1 and after < 0.55


def test_the_critic_is_taught_what_was_charged_and_what_follows(float64):
    """Each target by hand, from the networks one step at a time; nothing follows the last step."""
    system = Gain()
    made = problem(system, 3, Objective(privacy_weight=5.0, distortion_price=0.3))
    policy: Any = initial_policy(PolicyDesign(start="plain", width=4), system, 3, key=jr.key(0))
    learner = Ddpg(4, 10, width=4, capacity=4)
    memory: Any = learner.begin((made,), policy, key=jr.key(1)).memory
    steps = eqx.filter_jit(learner.play)(made, policy, FIRST, key=jr.key(2))
    now, after = memory.replay.add(steps).draw(12, key=jr.key(5))
    slow = memory.slow_network, memory.slow_critic
    features = eqx.filter_jit(
        lambda one: jax.vmap(policy.features)(one.belief, one.observation.external, one.observation.time)
    )(after)
    critic = eqx.filter_jit(lambda *given: slow[1](*given))
    last = np.asarray(now.observation.time) == 3
    assert np.array_equal(np.asarray(now.last), last) and 0 < last.sum() < 12
    for direct in (True, False):
        charges = Charges(made, policy, jnp.asarray(0.4), 0.9, direct)
        found = np.asarray(eqx.filter_jit(charges.target)(slow, now, after, key=jr.key(6)))
        present, action = eqx.filter_jit(charges.present)(policy.network, after, key=jr.key(6))
        assert bool(jnp.all(present > 0.0)) if direct else bool(jnp.all(present == 0.0))
        for i in range(12):
            then, outcome = (jax.tree.map(lambda leaf, i=i: leaf[i], part) for part in (after, now.outcome))
            value = float(critic(features[i], then.observation, action[i], policy.scaling))
            charged = float(outcome.cost)
            if not direct:
                charged += 5.0 * float(outcome.leakage) + 0.4 * float(outcome.distortion)
            follows = 0.0 if last[i] else 0.9 * (float(present[i]) + value)
            assert found[i] == pytest.approx(charged / 5.0 + follows)


def test_the_future_is_read_at_what_the_slow_actor_would_do(float64):
    """`present` charges ρ·leakage + λ·distortion of the given network's kernel, per unit of ρ."""
    made, policy = split(double=True)
    step = eqx.filter_jit(explored)(made, policy, FIRST, jnp.asarray(0.0), key=jr.key(1))
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf, 4000, axis=0), step)
    charges = Charges(made, policy, jnp.asarray(1.0), 1.0, True)
    present, _ = eqx.filter_jit(charges.present)(policy.network, many, key=jr.key(2))
    truth = Truth(SECRETS, [0.5, 0.5], 4.0, 0.0)
    leakage, _ = truth.parts(*kernel_of(policy))
    law = law_at(policy, features_of(policy), step.observation.secret[0], step.observation.state[0])
    draws = float(law.mean[0]) + float(law.scale[0, 0]) * np.random.default_rng(0).normal(size=200_000)
    distance = np.mean(np.abs(draws - float(step.observation.state[0, 0])))
    error = float(np.std(np.asarray(present))) / np.sqrt(4000)
    assert float(np.mean(np.asarray(present))) == pytest.approx(leakage + distance / 4.0, abs=5 * error)


def test_targets_follow_slowly_and_an_encoder_comes_apart_from_its_network():
    _, policy = split("mgf")
    actor, encoder = parted(policy.network)
    assert actor.encoder is None and eqx.tree_equal(joined(actor, encoder), policy.network)
    found = moved({"a": jnp.asarray(1.0)}, {"a": jnp.asarray(3.0)}, 0.25)
    assert float(found["a"]) == 1.5


@pytest.mark.study
def test_a_learner_is_saved_whole(tmp_path):
    """Replay, critic, targets and optimisers are arrays that a file holds."""
    made, policy = split("mgf")
    learner = Ddpg(4, 10, direct=False, gradients=2, batch=4, width=4, capacity=4)  # the critic moves all
    progress = learner.begin((made,), policy, key=jr.key(1))
    after, metrics = eqx.filter_jit(learner.update)((made,), progress, key=jr.key(2))
    save_arrays(tmp_path / "file", after)
    assert eqx.tree_equal(load_arrays(tmp_path / "file", progress), after)
    assert {"leakage", "cost", "distortion", "price", "critic_loss", "actor_loss"} == set(metrics)
    pairs = zip(*(jax.tree.leaves(parts(one)) for one in (after, progress)), strict=True)
    assert all(bool(jnp.any(new != old)) for new, old in pairs)


def parts(progress):
    """What one update must move: encoder, first layer of the actor, critic, both targets."""
    network, memory = progress.policy.network, progress.memory
    slow = memory.slow_network.encoder, memory.slow_network.inlet, memory.slow_critic.layers.layers[0].weight
    return network.encoder, network.inlet, memory.critic.layers.layers[0].weight, slow


def test_one_plant_only():
    made, _ = split()
    with pytest.raises(ValueError, match="pathwise"):
        one((made, made))


@pytest.mark.study
def test_the_repaired_learner_finds_the_best_affine_release(monkeypatch):
    """Within 3 % of the optimum by scipy and quadrature, judged on the way by its exact value."""
    made, policy = split()
    floor = float(policy.limits.low) * float(policy.scaling.output.spread[0])
    truth = Truth(SECRETS, [0.5, 0.5], 4.0, floor)
    monkeypatch.setattr(
        loop, "evaluate_family", lambda family, policy, *_: seen(truth.value(*kernel_of(policy)))
    )
    learner = Ddpg(64, 30, 5e-3, gradients=40, batch=64, width=16, capacity=128)
    options = TrainSettings(updates=30, evaluate_every=5, patience=0)
    trained = train_policy((made,), learner, policy, options)
    value, optimum = truth.value(*kernel_of(trained.policy)), truth.best()[0]
    print(f"learned {value:.5f}, optimum {optimum:.5f}, before {truth.value(*kernel_of(policy)):.5f}")
    assert optimum - 1e-6 <= value <= 1.03 * optimum
