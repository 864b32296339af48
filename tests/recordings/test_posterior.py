"""The posterior of a recording against likelihoods worked out by hand."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import veil
from tests.recordings import simulated as made
from veil import policies
from veil.beliefs import ObservedSpec
from veil.laws import diagonal_gaussian
from veil.recordings import RecordingError, read_recordings
from veil.recordings.measure import measure
from veil.recordings.posterior import as_other_secrets
from veil.settings import MeasureSettings
from veil.systems import Field

QUICK = MeasureSettings(filter_particles=64, draws=2)


def loop_log(gain=0.6, steps=40, seed=0):
    return made.recorded(veil.systems.Gain(), *made.loop(gain, steps, np.random.default_rng(seed)))


def test_shared_as_it_is_the_posterior_is_that_of_the_transition_densities(tmp_path, float64):
    states, ahead = made.drive(made.DRIVERS[1], 120, np.random.default_rng(1))
    path = made.write_drive(tmp_path / "drive.csv", states, ahead)
    (log,) = read_recordings(path, veil.systems.Platoon(), made.COLUMNS)
    found = measure(veil.systems.Platoon(), log)
    steps = np.cumsum(made.drive_log_likelihoods(states, ahead), axis=0)
    masses = np.array([made.softmax(row) for row in steps])
    np.testing.assert_allclose(found.masses, masses[-1], atol=1e-9)
    np.testing.assert_allclose(found.trail[1:], masses, atol=1e-9)
    np.testing.assert_allclose(found.trail[0], 0.25, atol=1e-12)
    entropy = -np.sum(masses[-1] * np.log(np.maximum(masses[-1], 1e-300)))
    assert found.drop.value == pytest.approx(np.log(4) - entropy, abs=1e-9)
    assert found.information.value == pytest.approx(found.drop.value, abs=1e-9)  # the prior is uniform
    assert (found.verdict.name, found.likeliest, found.information.error) == ("leak", 1, 0.0)


def test_a_state_that_is_recorded_in_part_has_the_likelihood_of_its_joint_gaussian_law(float64):
    """Speed residuals of the coloured platoon are dt (error + white noise): a Gaussian vector."""
    rng, steps, keep = np.random.default_rng(2), 90, np.exp(-0.2 / 3.0)
    states, ahead = made.drive(made.DRIVERS[0], steps, rng, coloured=0.1, keep=keep, speed_sd=0.2 * 0.02)
    external = np.stack([np.full(steps, 15.0), ahead, np.full(steps, 20.0)], axis=1)
    hidden = np.concatenate([states, np.zeros((steps, 1))], axis=1)
    system = veil.systems.ColouredPlatoon()
    found = measure(system, made.recorded(system, hidden, external, (True, True, False)))
    assert found.fit.ok
    for seen in (2, 5, 9, 14):
        apart = np.abs(np.subtract.outer(np.arange(seen), np.arange(seen)))
        covariance = 0.2**2 * (0.1**2 * keep**apart + 0.02**2 * np.eye(seen))
        law = stats.multivariate_normal(np.zeros(seen), covariance)
        means = [
            made.driver(theta, states[:seen, 0], states[:seen, 1], ahead[:seen])[:, 0]
            for theta in made.DRIVERS
        ]
        expected = made.softmax(np.array([law.logpdf(states[1 : seen + 1, 0] - mean) for mean in means]))
        np.testing.assert_allclose(found.trail[seen], expected, atol=1e-9)
        assert seen > 5 or expected.max() < 0.99


def test_sub_sampled_true_data_have_the_likelihood_of_several_steps_at_once():
    """Between fresh releases of the loop, x' = g^n x + Σ g^(n−1−i) w_i + noise of known variance."""
    log, every = loop_log(steps=37), 4
    found = measure(veil.systems.Gain(), log, lambda model: policies.Subsampled(policies.Truth(model), every))
    level, push = log["level"], log["push"]
    total = np.zeros(3)
    for k, gain in enumerate(made.GAINS):
        powers = gain ** np.arange(every - 1, -1, -1)
        for t in range(0, len(level) - every, every):
            mean = gain**every * level[t] + powers @ push[t : t + every]
            total[k] += stats.norm.logpdf(level[t + every], mean, 0.3 * np.sqrt(np.sum(powers**2)))
    np.testing.assert_allclose(found.masses, made.softmax(total), atol=1e-6)
    assert not found.filtered


@pytest.mark.parametrize(("nats", "releases"), [(0.0, 1), (100.0, 37)])
def test_a_budget_around_the_truth_is_measured_by_the_releases_that_it_lets_pass(nats, releases, float64):
    """Without budget only the first row passes, which is public; with plenty every row does."""
    log = loop_log(steps=37)
    tracker = ObservedSpec()
    found = measure(
        veil.systems.Gain(),
        log,
        lambda model: policies.Budgeted(policies.Truth(model), nats, tracker=tracker),
    )
    before, after, push = log["level"][: releases - 1], log["level"][1:releases], log["push"]
    means = [gain * before + push[: releases - 1] for gain in made.GAINS]
    total = np.array([stats.norm.logpdf(after, mean, 0.3).sum() for mean in means])
    np.testing.assert_allclose(found.masses, made.softmax(total), atol=1e-9)


def _noise(model):
    return policies.GaussianNoise(model, jnp.array([0.3]))


def test_particles_agree_with_the_exact_posterior_within_their_stated_interval():
    """Noise on the linear loop: one Kalman filter per secret is exact, for each draw by itself."""
    log, options = loop_log(gain=0.9, steps=60, seed=3), MeasureSettings(filter_particles=32, draws=4, seed=5)
    found = measure(veil.systems.Gain(), log, _noise, options)
    assert found.filtered and 0.0 < found.filter_error < 0.05
    # The curve ends in the mean of the exact posteriors of the same four draws.
    np.testing.assert_allclose(found.masses, found.trail[-1], atol=5.0 * found.filter_error + 1e-3)
    assert found.filter_error <= found.information.error
    assert 0.0 < found.information.value < measure(veil.systems.Gain(), log).information.value
    assert (
        measure(veil.systems.Gain(), log, _noise, options).information == found.information
    )  # one seed, one answer


@pytest.mark.study
def test_few_and_many_particles_agree_within_their_stated_interval():
    """81 and 1296 particles per secret on a platoon with noise, the same draws."""
    rng = np.random.default_rng(12)
    for secret in made.DRIVERS[:2]:
        states, ahead = made.drive(secret, 120, rng)
        external = np.stack([np.full(120, 15.0), ahead, np.full(120, 20.0)], axis=1)
        log = made.recorded(veil.systems.Platoon(), states, external)
        few, many = (
            measure(
                veil.systems.Platoon(),
                log,
                lambda model: policies.GaussianNoise(model, jnp.array([0.25, 0.43])),
                MeasureSettings(filter_particles=count),
            )
            for count in (81, 1296)
        )
        assert many.filter_error < few.filter_error < 0.05
        assert abs(few.information.value - many.information.value) <= 3.0 * np.hypot(
            few.filter_error, many.filter_error
        )


def rounded_likelihoods(shared, push, step):
    """Log-likelihood of rounded levels of the loop per gain, by a filter on a fine grid of states."""
    grid = np.arange(-4.0, 4.0, 0.01)
    found = []
    for gain in made.GAINS:
        mass, total = np.full(len(grid), 0.0), 0.0
        mass[np.argmin(np.abs(grid - 1.0))] = 1.0  # the first level is known
        for t in range(1, len(shared)):
            moved = stats.norm.pdf(grid[:, None], gain * grid[None, :] + push[t - 1], 0.3) @ mass * 0.01
            inside = np.round(grid / step) * step
            mass = np.where(np.abs(inside - shared[t]) < 1e-9, moved, 0.0)
            total += np.log(mass.sum())
            mass /= mass.sum()
        found.append(total)
    return np.array(found)


def test_rounded_data_have_the_likelihood_of_their_cells():
    log = loop_log(steps=30, seed=4)
    found = measure(
        veil.systems.Gain(), log, lambda model: policies.Quantised(model, jnp.array([0.5])), QUICK
    )
    shared = np.round(log["level"] / 0.5) * 0.5
    expected = made.softmax(rounded_likelihoods(shared, log["push"], 0.5))
    np.testing.assert_allclose(found.masses, expected, atol=4.0 * found.filter_error + 2e-3)
    assert 0.0 < found.filter_error < 0.05


def test_transport_and_counterfactual_sharing_tell_nothing():
    log = loop_log(steps=60, seed=6)
    moved = measure(
        veil.systems.Gain(), log, lambda model: policies.Transport(model, jnp.array([0.1])), QUICK
    )
    assert moved.as_it_is > 0.5
    assert moved.information.value < 0.01 + 3.0 * moved.information.error
    copied = measure(veil.systems.Gain(), log, veil.policies.Counterfactual)
    assert (copied.information.value, copied.method) == (0.0, "coupling of all secrets")
    assert copied.verdict.name == "no_leak"


def test_the_noise_of_a_path_gives_that_path_back_under_its_own_secret(float64):
    states, external = (jnp.asarray(x) for x in made.loop(0.6, 20, np.random.default_rng(7)))
    gain = veil.systems.Gain(veil.systems.finite_prior(made.GAINS))
    paths = as_other_secrets(gain, gain.prior.secrets[1], states, external)
    np.testing.assert_allclose(paths[1], states, atol=1e-12)
    noise = states[1:, 0] - 0.6 * states[:-1, 0] - external[:-1, 0]
    again = [states[0, 0]]
    for t in range(19):
        again.append(0.9 * again[-1] + external[t, 0] + noise[t])
    np.testing.assert_allclose(paths[2][:, 0], again, atol=1e-12)


def test_the_owner_may_name_its_secret_and_must_record_what_its_policy_looks_at():
    log = loop_log()
    assert measure(veil.systems.Gain(), log, settings=MeasureSettings(secret=2)).believed == 2
    with pytest.raises(RecordingError, match="index from 0 to 2"):
        measure(veil.systems.Gain(), log, settings=MeasureSettings(secret=3))
    fifteen = np.full((30, 3), 15.0)
    coloured = made.recorded(veil.systems.ColouredPlatoon(), fifteen, fifteen, (True, True, False))
    with pytest.raises(RecordingError, match="acceleration_error, which is not recorded"):
        measure(veil.systems.ColouredPlatoon(), coloured, veil.policies.Counterfactual)


class Lag(veil.systems.System):
    """x' = x / 2 + θ w + noise: a system of a user's own, whose input nobody answers."""

    prior: veil.systems.Prior = eqx.field(default_factory=lambda: veil.systems.finite_prior([0.2, 0.5, 0.8]))

    secret_fields = (Field("effect"),)
    state_fields = (Field("level"),)
    external_fields = (Field("weather"), Field("push"))
    shared_fields = (Field("level"),)
    reaction_noise_size = 2

    def initial(self, secret):
        return diagonal_gaussian(jnp.zeros(1), jnp.ones(1))

    def initial_external(self):
        return jnp.zeros(2)

    def transition(self, secret, state, external):
        return diagonal_gaussian(0.5 * state + secret * external[1:], jnp.full(1, 0.5))

    def react(self, external, shared, noise):
        return noise

    def cost(self, secret, state, after, shared, external):
        return after[0] ** 2

    def distortion(self, state, shared):
        return jnp.abs(state[0] - shared[0])

    def output(self, state):
        return state


def lag_log(rng, keep, steps=100, secret=None):
    """A recording of `Lag` with noise that keeps this share of itself from step to step."""
    index = int(rng.integers(3)) if secret is None else secret
    push, noise = 0.25 * made.ar1(steps, 0.9, rng), 0.5 * made.ar1(steps, keep, rng)
    level = [0.0]
    for t in range(steps - 1):
        level.append(0.5 * level[-1] + (0.2, 0.5, 0.8)[index] * push[t] + noise[t])
    external = np.stack([np.zeros(steps), push], axis=1)
    return index, made.recorded(Lag(), np.array(level)[:, None], external)


def surplus(found, masses):
    """Claimed minus actual number of right guesses, in standard errors of the claim."""
    best = [
        (float(mass.max()), int(mass.argmax()) == index)
        for (index, _), mass in zip(found, masses, strict=True)
    ]
    claims, hits = np.array(best, dtype=float).T
    return (claims.sum() - hits.sum()) / np.sqrt(np.sum(claims * (1.0 - claims)))


def test_the_posterior_means_what_it_says_for_data_of_the_model():
    rng = np.random.default_rng(8)
    found = [(index, measure(Lag(), log)) for index, log in (lag_log(rng, 0.0) for _ in range(60))]
    assert abs(surplus(found, [one.masses for _, one in found])) < 3.0
    rejected = sum(one.verdict.name == "model_does_not_fit" for _, one in found)
    assert rejected <= stats.binom.isf(1e-4, 60, 0.01)


def test_under_coloured_noise_the_white_posterior_is_too_sure_and_the_discounted_one_is_not():
    rng = np.random.default_rng(9)
    found = [(index, measure(Lag(), log)) for index, log in (lag_log(rng, 0.9) for _ in range(60))]
    assert surplus(found, [one.masses for _, one in found]) > 3.0
    assert surplus(found, [one.discounted_masses for _, one in found]) < 2.0
    assert all(one.verdict.name == "model_does_not_fit" for _, one in found)
