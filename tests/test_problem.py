import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special

from tests.beliefs.belief_truths import gain_bank, posterior
from tests.learners.learner_truths import by_rounds, information
from veil.beliefs import KalmanBelief, KalmanSpec, ParticleBelief
from veil.laws import Finite, Kernel
from veil.leakage import kl_chernoff, regime_adaptive
from veil.leakage.per_step import Measure
from veil.policies import GaussianNoise, Transport
from veil.policies.plain import NoiseKernel
from veil.problem import Objective, Outcome, Problem, problem
from veil.systems import Gain, WithNoise, WithPrior, finite_prior
from veil.systems.base import Scenario
from veil.systems.scenarios import nominal

GAINS, MASSES = np.asarray([0.3, 0.6, 0.9]), np.asarray([0.5, 0.3, 0.2])
STEPS, COUNT = 6, 3 * 200
METHODS = ("estimate", "live", "closed_form", "regime_adaptive", "kl_chernoff")


@eqx.filter_jit
def watched(problem, policy, numbers, key):
    """`problem.episodes` step by step: what was charged, and what happened, batched [B, T]."""

    def one(number):
        start_key, run_key = jr.split(jr.fold_in(key, number // problem.secrets))

        def step(play, step_key):
            now = play.situation
            after, stage, outcome = problem.step(policy, play, seed=number, key=step_key)
            world = (now.state[0], now.external[0], stage.shared[0], after.situation.state[0])
            return after, (outcome, world, stage.features)

        first = problem.reset(policy, number, key=start_key)
        return jax.lax.scan(step, first, jr.split(run_key, problem.steps))[1]

    return jax.vmap(one)(numbers)


def numbered(count):
    return jnp.arange(count, dtype=jnp.int32)


def filters(mean, variance, gains, noise, lines, sd, shared, external):
    """Scalar Kalman filters side by side, [B, K]; yields the law of each release and its log density.

    `lines` are intercepts and slopes of the release, each [B, T, K].
    """
    for t in range(shared.shape[1]):
        intercept, slope = lines[0][:, t], lines[1][:, t]
        centre, spread = intercept + slope * mean, slope**2 * variance + sd**2
        miss = shared[:, t, None] - centre
        yield centre, spread, -0.5 * (miss**2 / spread + np.log(2 * np.pi * spread))
        mean = gains * (mean + variance * slope / spread * miss) + external[:, t, None]
        variance = gains**2 * variance * sd**2 / spread + noise**2


def test_stage_leakages_add_up_to_the_leakage_of_the_run(float64):
    """The chain rule, and each stage by itself, against Kalman filters and quadrature in numpy."""
    system = Gain(prior=finite_prior(GAINS, MASSES))
    made, count = Problem(nominal(system), STEPS, leakage_belief=KalmanSpec()), COUNT
    policy = GaussianNoise(system, (0.2,))
    outcome, (_, external, shared, _), _ = watched(made, policy, numbered(count), jr.key(0))
    external, shared, index = np.asarray(external), np.asarray(shared), np.arange(count) % 3
    lines = (np.zeros((count, STEPS, 3)), np.ones((count, STEPS, 3)))
    bank = filters(np.zeros((count, 3)), np.ones((count, 3)), GAINS, 0.3, lines, 0.2, shared, external)
    log_masses, stages = np.broadcast_to(np.log(MASSES), (count, 3)), []
    for centre, spread, logs in bank:
        stages.append(information(np.exp(log_masses), centre, np.sqrt(spread)))
        log_masses = special.log_softmax(log_masses + logs, axis=1)
    hand = posterior(np.log(MASSES), gain_bank(system, 0.2, shared[4, :, None], external[4, :, None]))
    assert np.allclose(log_masses[4], hand[-1])  # two filters by two hands
    leakage, stages = np.asarray(outcome.leakage), np.stack(stages, axis=1)
    assert np.all(leakage > -1e-12) and np.max(leakage[:, 0]) < 1e-9  # all secrets start alike
    for t in range(1, STEPS):
        gap, error = by_rounds(leakage[:, t] - stages[:, t], MASSES)
        assert abs(gap) < 4 * error and error < 0.02 * stages[:, t].mean()
    score = log_masses[np.arange(count), index] - np.log(MASSES)[index]
    mean, error = by_rounds(score - leakage.sum(axis=1), MASSES)
    assert abs(mean) < 4 * error and error < 0.05 < by_rounds(score, MASSES)[0]


def test_a_judge_knows_the_plant_where_the_policy_does_not(float64):
    """Another noise, other secrets, fewer of them: transport leaks there, its own belief is blind."""
    model = Gain()
    plant = WithPrior(WithNoise(model, 3.0), finite_prior([0.4, 0.8], [0.6, 0.4]))
    scenario = Scenario("mistaken", plant, jnp.asarray([[0.9], [0.6]]))  # nobody is taken for the nearest
    made, count = Problem(scenario, 6, leakage_belief=KalmanSpec()), 2 * 250
    outcome, (_, external, shared, _), features = watched(
        made, Transport(model, (0.2,)), numbered(count), jr.key(1)
    )
    external, shared, features = (np.asarray(part) for part in (external, shared, features))
    masses, means, sds = np.exp(features[..., :3]), features[..., 3:6], features[..., 6:]
    assert np.max(np.abs(masses - 1 / 3)) < 1e-6  # by its own belief nothing ever leaked
    slopes = np.mean(sds, axis=-1, keepdims=True) / sds  # the barycentre on a line
    intercepts = np.mean(means, axis=-1, keepdims=True) - slopes * means
    lines = [part[..., [2, 1]] for part in (intercepts, slopes)]  # what the owner takes the secrets for
    gains, prior, index = np.asarray([0.4, 0.8]), np.asarray([0.6, 0.4]), np.arange(count) % 2
    bank = filters(np.zeros((count, 2)), np.ones((count, 2)), gains, 0.9, lines, 0.2, shared, external)
    log_masses = special.log_softmax(np.log(prior) + sum(logs for *_, logs in bank), axis=1)
    score = log_masses[np.arange(count), index] - np.log(prior)[index]
    leakage = np.asarray(outcome.leakage).sum(axis=1)
    gap, error = by_rounds(score - leakage, prior)
    assert abs(gap) < 4 * error and by_rounds(leakage, prior)[0] > max(0.015, 6 * error)


def test_an_episode_charges_what_happened_in_it(float64):
    """Without noise in the world x' = θ x + w and w' = −0.2 y, so all follows by hand from x_1 and y."""
    system = Gain(prior=finite_prior(GAINS, MASSES), sd=0.0, reaction_sd=0.0)
    made, policy = Problem(nominal(system), STEPS, leakage_belief=KalmanSpec()), GaussianNoise(system, (0.7,))
    numbers = numbered(COUNT)  # the same program as above
    charged, (states, external, shared, after), _ = watched(made, policy, numbers, jr.key(2))
    played = eqx.filter_jit(lambda: made.episodes(policy, numbers, key=jr.key(2)))()
    for part in ("leakage", "cost", "distortion", "log_choice"):
        assert np.allclose(getattr(charged, part), getattr(played, part), rtol=1e-9, atol=1e-12)
    x = np.asarray(states[:, 0])
    assert np.all(external[:, 0] == 0.0)
    for t in range(STEPS):
        y = np.asarray(shared[:, t])
        assert np.allclose(states[:, t], x) and np.allclose(played.distortion[:, t], np.abs(x - y))
        x = GAINS[np.arange(COUNT) % 3] * x + np.asarray(external[:, t])  # secrets take turns
        assert np.allclose(after[:, t], x) and np.allclose(played.cost[:, t], x**2)
        assert t == STEPS - 1 or np.allclose(external[:, t + 1], -0.2 * y)
    assert np.all(played.log_choice == 0.0)
    noise = np.asarray(shared - states).reshape(-1, 3, STEPS)
    assert np.allclose(noise, noise[:, :1])  # three secrets, one noise
    assert np.allclose(np.asarray(states[:, 0]).reshape(-1, 3), np.asarray(states[::3, :1]))
    assert len(np.unique(np.round(noise[:, 0], 9))) == noise[:, 0].size
    assert abs(noise[:, 0].std() - 0.7) < 4 * 0.7 / np.sqrt(2 * noise[:, 0].size)


def test_the_objective_weighs_what_was_charged():
    outcome = Outcome(*(jnp.asarray([number]) for number in (0.25, 3.0, 5.0, -9.0)))
    objective = Objective(privacy_weight=8.0, distortion_price=0.5, distortion_limit=4.0)
    assert objective.total(outcome) == 2.0 + 3.0 + 0.5
    assert objective.total(outcome, jnp.asarray(2.0)) == 2.0 + 3.0 + 2.0
    made = problem(Gain(), 7)
    assert made.steps == 7 and made.secrets == 3 and made.leakage_belief is None
    assert [float(made.objective.total(outcome)[0])] == pytest.approx([20.0 + 3.0 + 0.2])


class Coarse(Kernel):
    """Three values, more likely the nearer they are; secrets differ in how near."""

    def __call__(self, secret, state):
        atoms = jnp.asarray([[-1.0], [0.0], [1.0]])
        return Finite(atoms, jax.nn.log_softmax(-secret[0] * (atoms[:, 0] - state[0]) ** 2))


@functools.cache
def beliefs():
    """Beliefs in single precision after two releases: three Kalman filters, and 3 × 20 particles."""
    system = Gain(prior=finite_prior(GAINS, MASSES))
    kernel, made = NoiseKernel(system, (0.4,)), []
    for belief in (KalmanBelief.start(system), ParticleBelief.start(system, 20, key=jr.key(1))):
        for number, shared in enumerate((0.9, 0.7)):
            given = (jnp.zeros(1), jnp.asarray([shared]))
            belief = eqx.filter_jit(belief.update)(system, kernel, *given, key=jr.key(number))[0]
        made.append(belief)
    return system, kernel, made


def mixture_information(components):
    """I(Θ; Y) of labelled Gaussians on a line, on a fine grid."""
    y = np.linspace(-8.0, 8.0, 4001)
    mean, sd = (np.asarray(a, float).ravel() for a in (components.parts.mean, components.parts.scale))
    weights = np.exp(np.asarray(components.log_weights, float))
    parts = weights / sd * np.exp(-0.5 * ((y[:, None] - mean) / sd) ** 2) / np.sqrt(2 * np.pi)
    joint = np.stack([parts[:, np.asarray(components.labels) == k].sum(axis=1) for k in range(3)])
    ratio = joint / joint.sum(axis=0) / joint.sum(axis=1, keepdims=True) / (y[1] - y[0])
    return np.sum(special.xlogy(joint, ratio)) * (y[1] - y[0])


@pytest.mark.parametrize("kind", [0, 1], ids=["kalman", "particles"])
def test_a_measure_is_right_on_average_or_a_bound(kind):
    """Three components are sampled each, sixty by a random choice among them."""
    _, kernel, made = beliefs()
    rigorous = ("closed_form",) if kind == 0 else ()

    @eqx.filter_jit
    def measured(belief, keys):
        """All at once, so that what they have in common is compiled once."""
        components, methods = belief.components(kernel), ("regime_adaptive", "kl_chernoff", *rigorous)
        found = [Measure(method)(belief, kernel, key=keys[0]) for method in methods]  # pyright: ignore[reportArgumentType]
        named = [bound(components) for bound in (regime_adaptive, kl_chernoff)]
        return components, jax.vmap(lambda key: Measure()(belief, kernel, key=key))(keys), found, named

    components, values, found, named = measured(made[kind], jr.split(jr.key(0), 400))
    truth, values = mixture_information(components), np.asarray(values, float)
    error = values.std() / 20
    assert abs(values.mean() - truth) < 4 * error + 1e-6 and error < 0.02 * truth
    assert np.allclose(found[:2], named, rtol=1e-4) and found[0] < found[1]
    assert np.all(np.asarray(found) >= values.mean() - 4 * error)
    assert kind == 1 or np.min(found) == found[-1]  # closed_form is the least bound


def test_a_finite_release_is_measured_exactly_whatever_the_method():
    _, _, (_, belief) = beliefs()
    states, weights = np.asarray(belief.states, float)[..., 0], np.exp(np.asarray(belief.log_weights, float))
    atoms, masses = np.asarray([-1.0, 0.0, 1.0]), np.exp(np.asarray(belief.log_masses, float))
    logs = special.log_softmax(-GAINS[:, None, None] * (atoms - states[..., None]) ** 2, axis=-1)
    likely = np.einsum("km,kmj->kj", weights, np.exp(logs))
    truth = np.sum(masses[:, None] * likely * np.log(likely / (masses @ likely)))
    assert truth > 1e-3
    for method in METHODS:
        found = eqx.filter_jit(Measure(method))(belief, Coarse(), key=jr.key(0))  # pyright: ignore[reportArgumentType]
        assert found == pytest.approx(truth, rel=1e-4)


def test_measures_that_do_not_exist_cannot_be_built():
    with pytest.raises((TypeError, ValueError), match="regime_adaptive"):
        Measure("guess")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="64 is usual"):
        Measure(points=0)
