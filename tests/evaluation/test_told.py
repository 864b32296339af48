"""The upper side of a reader who is told more: who that may be, what it gains, and when it counts."""

from dataclasses import replace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from exact import Line
from scipy.stats import norm

from tests.hidden_plane import Hidden, hidden
from veil.attacks.guides import Unguided
from veil.attacks.noiseless_filter import NoiselessFilter
from veil.evaluation import bounds as bounds_module
from veil.evaluation import evaluate as evaluate_module
from veil.evaluation.bounds import OTHERWISE, ParticleBounder, told_bounders
from veil.evaluation.evaluate import evaluate
from veil.evaluation.scoring import Told, TwoSidedBound, component_upper, score
from veil.laws import Gaussian, Kernel, Point
from veil.policies import Counterfactual, GaussianNoise, PlainPolicy, Quantised, Subsampled, Transport, Truth
from veil.rollout import rollout
from veil.settings import AuditSettings
from veil.systems import Field, Gain, Platoon, System, finite_prior, with_resolution

# A toy in numpy: X ~ N(θ, 1) is hidden, Y = X + N is released, the secret θ is −1, 0 or 1.

PLACES, NOISE, COUNT = np.array([-1.0, 0.0, 1.0]), 0.7, 30_000


def toy():
    """Exact log-likelihoods of Y and of X, and the transcripts that a filter is said to fail on: |y| > 1."""
    rng, index = np.random.default_rng(3), np.arange(COUNT) % 3
    x = PLACES[index] + rng.standard_normal(COUNT)
    y = x + NOISE * rng.standard_normal(COUNT)
    by_y = norm.logpdf(y[:, None], PLACES, np.hypot(1.0, NOISE))
    by_x = norm.logpdf(x[:, None], PLACES, 1.0)
    failed = np.abs(y) > 1.0
    runs = np.repeat(by_y[:, None], 3, axis=1)
    runs[failed, 0, 0] += 2.0  # two pilots that disagree
    return index, by_y, by_x, failed, sides(runs, by_y, index)


def sides(runs, numbers, index):
    rows = np.arange(len(index))
    parts = runs, numbers[rows, index], np.ones(len(index)), np.full((len(index), 1), 0.5)
    return TwoSidedBound(*(jnp.asarray(part) for part in parts))


def information(sd):
    """Of a Gaussian number around the places, by the trapezoid rule."""
    grid = np.linspace(-12.0, 12.0, 4001)
    laws = norm.pdf(grid[None], PLACES[:, None], sd)
    return np.trapezoid(laws * np.log(laws / laws.mean(axis=0)), grid, axis=1).mean()


def test_failed_episodes_are_charged_what_the_reader_gains_and_no_others(float64):
    index, by_y, by_x, failed, bound = toy()
    log_prior, groups = np.full(3, -np.log(3.0)), np.arange(3)
    told = sides(np.repeat(by_x[:, None], 3, axis=1), by_x, index)
    rows = np.arange(COUNT)

    def gain(log):
        return log[rows, index] - np.logaddexp.reduce(log, axis=1) + np.log(3.0)

    alone = component_upper(bound, index, log_prior, groups)
    assert np.array_equal(alone.bad, failed) and np.all(alone.upper[failed] == np.log(3.0))
    mixed = component_upper(bound, index, log_prior, groups, Told(told))
    assert np.array_equal(mixed.bad, failed)
    np.testing.assert_allclose(mixed.upper, np.where(failed, gain(by_x), gain(by_y)), atol=1e-12)
    everywhere = component_upper(bound, index, log_prior, groups, Told(told, always=True))
    np.testing.assert_allclose(everywhere.upper, gain(by_x), atol=1e-12)
    least, most = information(np.hypot(1.0, NOISE)), information(1.0)
    error = 4.0 * mixed.upper.std() / np.sqrt(COUNT)
    assert least + 0.02 < most, "the reader gains more than the releases tell"
    assert least - error < mixed.upper.mean() < most + error < alone.upper.mean()
    assert abs(everywhere.upper.mean() - most) < error
    found = score(bound, index, log_prior, told=Told(told))
    assert least <= found.leakage.high < score(bound, index, log_prior).leakage.high


def test_a_component_of_the_secret_is_charged_likewise(float64):
    """Whether θ is 0: the reader's posterior of the group, from sums over its secrets."""
    index, _, by_x, failed, bound = toy()
    runs = jnp.concatenate([bound.plain, bound.plain[:, -1:]], axis=1)
    bound = TwoSidedBound(runs, bound.pinned, bound.effective, bound.rank)
    groups, masses = np.array([0, 1, 0]), np.array([2.0, 1.0]) / 3.0
    told = sides(np.repeat(by_x[:, None], 4, axis=1), by_x, index)
    found = component_upper(bound, index, np.full(3, -np.log(3.0)), groups, Told(told))
    likely = np.exp(by_x)
    posterior = np.stack([likely[:, 0] + likely[:, 2], likely[:, 1]], axis=1)
    posterior /= posterior.sum(axis=1, keepdims=True)
    own = groups[index]
    wanted = np.log(posterior[np.arange(COUNT), own] / masses[own])
    np.testing.assert_allclose(found.upper[failed], wanted[failed], atol=1e-12)


# Who may be told what.


class Three(Hidden):
    """x' = a x + sin(2 h) + g, h' = b h, g' = 0.5 g + h: g is linear, h is bent."""

    state_fields = (Field("x"), Field("bent"), Field("straight"))

    def initial(self, secret) -> Gaussian:
        return Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([0.8, 0.5, 0.5])))

    def transition(self, secret, state, external) -> Gaussian:
        x, bent, straight = state
        moved = [
            secret[0] * x + self.bend(state) + straight + external[0],
            secret[1] * bent,
            0.5 * straight + bent,
        ]
        return Gaussian(jnp.stack(moved), jnp.diag(jnp.asarray([0.3, 0.2, 0.25])))

    def bend(self, state):
        return jnp.sin(2.0 * state[1])


class OneBent(Hidden):
    def transition(self, secret, state, external) -> Gaussian:
        law = super().transition(secret, state, external)
        return Gaussian(law.mean + jnp.sin(2.0 * state[1]), law.scale)


class BothBent(Three):
    def bend(self, state):
        return jnp.sin(2.0 * state[1] + state[2])


class Teller(PlainPolicy):
    """Shares |x| and, in the tenth digit, the secret."""

    system: System

    def kernel(self, features, external, time) -> Kernel:
        return TellerKernel()


class TellerKernel(Kernel):
    def __call__(self, secret, state):
        return Point(jnp.abs(state[:1]) + 1e-10 * secret[0])


class Folded(Hidden):
    def output(self, state):
        return jnp.abs(state[:1])


def who(system, policy):
    return [(one.more, one.reads.name) for one in told_bounders(system, policy)]


def test_a_reader_is_told_as_little_as_makes_it_exact():
    """What leaves the rest linear; besides, whoever has one coordinate left."""
    kalman, exact = "exact Kalman filters", "exact transition densities"
    grid = "conditional particles, aimed by quadrature"
    one, both, folded = hidden(Three), hidden(BothBent), hidden(Folded)
    assert who(one, Truth(one)) == [("bent as well", kalman), ("straight as well", grid)]
    assert who(both, Truth(both)) == [
        ("bent as well", grid),
        ("straight as well", grid),
        ("bent and straight as well", exact),
    ]
    alone = hidden(OneBent)
    assert who(alone, Truth(alone)) == [("hidden as well", exact)], "to be told nothing is no reader"
    before = "the state before it is rounded or blurred"
    assert who(folded, Truth(folded)) == [(before, kalman)], "|x| is a function of x, the rest is linear"
    now_and_then = [more for more, _ in who(one, Subsampled(Truth(one), 2))]
    assert now_and_then == ["bent as well", "straight as well"], "two bent ones are too many for a filter"
    rounded = with_resolution(Platoon(), 0.01)
    assert who(rounded, Truth(rounded)) == [(before, exact)]
    assert who(rounded, Quantised(rounded, [0.5, 0.5])) == [(before, exact)]
    noisy = GaussianNoise(Platoon(), [0.1, 0.1])
    assert who(Platoon(), noisy) == [(before, exact)]


def test_nobody_is_told_where_the_release_reads_the_secret():
    """Then the releases are not noise added to the state."""
    gain = Gain()
    for policy in (Transport(gain, jnp.asarray([0.1])), Teller(gain), Counterfactual(gain)):
        assert not told_bounders(gain, policy)


# What a reader gains.


def test_the_whole_state_has_its_transition_densities(float64):
    system = hidden(BothBent)
    record = rollout(system, Truth(system), 6, public_seed=jnp.asarray(0), key=jr.key(3))
    reader = told_bounders(system, Truth(system))[-1]
    found = reader.bound(record, jnp.asarray(5, jnp.int32), play_key=jr.key(0), key=jr.key(1), apart=False)
    states, external = np.asarray(record.states), np.asarray(record.public.external)
    for k, secret in enumerate(np.asarray(system.prior.secrets)):
        wanted = norm.logpdf(states[0], 0.0, [0.8, 0.5, 0.5]).sum()
        for t in range(4):
            x, bent, straight = states[t]
            mean = [secret[0] * x + np.sin(2.0 * bent + straight) + straight + external[t, 0]]
            mean += [secret[1] * bent, 0.5 * straight + bent]
            wanted += norm.logpdf(states[t + 1], mean, [0.3, 0.2, 0.25]).sum()
        assert np.asarray(found.plain)[:, k] == pytest.approx(wanted, abs=1e-9)
    assert float(found.pinned) == pytest.approx(float(found.plain[0, int(record.index)]))


class FoldedLine(Line):
    def output(self, state):
        return jnp.abs(state)


GAINS = (-0.9, 0.3, 0.9)


def test_what_no_filter_reads_is_bounded_by_the_state(float64):
    """x' = a x + 0.3 ε shares |x|, without noise: at most I(Θ; x_1, x_2), which a grid gives."""
    secrets = [(gain, 0.0, 0.3) for gain in GAINS]
    system = FoldedLine(finite_prior(secrets), jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(0.0))
    found = evaluate(system, Truth(system), settings=AuditSettings(steps=2, episodes=768))
    verdict = found.verdict()
    assert verdict.name == "certifiable" and found.coupled
    assert verdict.inputs["told"] == "the state before it is rounded or blurred"
    assert verdict.inputs["told_fraction"] == 1.0
    grid = np.arange(-4.995, 5.0, 0.01)
    first, second = np.meshgrid(grid, grid, indexing="ij")
    laws = np.stack([norm.pdf(first) * norm.pdf(second, a * first, 0.3) for a in GAINS])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.nan_to_num(laws * np.log(laws / laws.mean(axis=0)))
    state = terms.sum(axis=(1, 2)).mean() * 1e-4
    folded = laws + laws[:, ::-1, ::-1] + laws[:, ::-1] + laws[:, :, ::-1]  # |x| has both signs
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.nan_to_num(folded * np.log(folded / folded.mean(axis=0)))
    truth = 0.25 * terms.sum(axis=(1, 2)).mean() * 1e-4
    upper = found.leakage.upper
    assert truth + 0.05 < state, "the signs tell something"
    assert abs(upper.value - state) < 4.0 * upper.error and truth < found.leakage.high < np.log(3.0)


class Valve(Hidden):
    """A valve that is shut or wide open reads two hidden temperatures, which drift with what it does."""

    state_fields = (Field("x"), Field("h"), Field("g"))

    def initial(self, secret) -> Gaussian:
        return Gaussian(jnp.zeros(3), jnp.diag(jnp.asarray([0.5, 0.7, 0.7])))

    def transition(self, secret, state, external) -> Gaussian:
        x, h, g = state
        heat = jnp.clip(-5.0 * (h + g), 0.0, 2.0) - 1.0
        moved = [x + 0.5 * heat + secret[0] * (h - x) + 0.2 * external[0]]
        moved += [h + secret[1] * (x - h) + 0.1 * (g - h), g + 0.2 * (h - g) + 0.1 * heat]
        return Gaussian(jnp.stack(moved), jnp.diag(jnp.asarray([0.1, 0.03, 0.03])))


def test_a_filter_that_fails_is_not_refused(float64, monkeypatch):
    """Few particles that nobody aims, and a reader who is told both hidden coordinates."""

    def few(system, policy, believed=None):
        return (ParticleBounder("few particles", NoiselessFilter(system, policy, Unguided(), 64)),)

    monkeypatch.setattr(bounds_module, "MOST_HIDDEN", 1)
    monkeypatch.setattr(evaluate_module, "bounder_candidates", few)
    system = Valve(finite_prior([(loss, 0.1) for loss in (0.2, 0.3, 0.4)]), jnp.asarray(1e6))
    found = evaluate(system, Truth(system), settings=AuditSettings(steps=8, episodes=48))
    bad, verdict = found.scored.bad, found.verdict()
    assert 0.1 < bad.mean() < 0.9
    assert verdict.name == "certifiable" and verdict.inputs["told"] == "h and g as well"
    assert verdict.inputs["told_fraction"] == bad.mean()
    assert found.method == (
        "few particles; from above, where they fail, a reader who is told h and g as well "
        "(exact transition densities)"
    )
    assert found.bound is not None
    alone = score(found.bound, found.index, np.log(found.forecast.prior))
    assert found.leakage.lower == alone.leakage.lower
    assert np.all(found.scored.upper[bad] < alone.upper[bad]) and np.all(alone.upper[bad] == np.log(3.0))
    np.testing.assert_array_equal(found.scored.upper[~bad], alone.upper[~bad])
    assert found.leakage.lower.value < found.leakage.upper.value < alone.leakage.upper.value
    refused = replace(found, reader=None, scored=alone).verdict()
    assert refused.name == "not_enough_particles", "and without the reader it is"


def test_what_chooses_episodes_and_what_reads_them_share_no_randomness():
    """Keys of the filter's runs are split from the episode's; the reader's is folded with another number."""
    key = jr.key(7)
    own = jr.key_data(jr.fold_in(key, OTHERWISE))
    assert not any(np.array_equal(own, jr.key_data(one)) for one in jr.split(key, 8))
