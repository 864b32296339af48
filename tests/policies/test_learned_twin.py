"""The learned twin: whatever its network, a release is a public function of (ε, w)."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from tests.policies.round_units import gain_units, wild
from tests.policies.test_twin import told
from veil.evaluation.evaluate import evaluate
from veil.policies import LearnedTwin, Twin, learned_twin
from veil.policies.twin import plain_self_model
from veil.problem import Objective, problem
from veil.settings import AuditSettings, PolicyDesign
from veil.systems import Gain, finite_prior
from veil.systems.variants import WithNoise
from veil.types import as_float64

OWNERS = [0.3, 0.6, 0.9]
INPUTS = np.random.default_rng(1).normal(size=(8, 1))
NOISE = np.random.default_rng(2).normal(size=(8, 1))


def fresh(base):
    return as_float64(learned_twin(base, as_float64(gain_units()), width=8, key=jr.key(0)))


def model():
    return as_float64(Gain(prior=finite_prior(OWNERS)))


@eqx.filter_jit
def followed(policy, secret, noise):
    """Releases and offsets of an owner who meets these inputs, and whose readings are this noise to it."""
    own = policy.self_model(secret)
    first = own.invert_first(noise[0])[1] if policy.start_by == "whitened" else noise[0]

    def step(now, given):
        (memory, state), (time, w, later) = now, given
        kernel, centre = policy.kernel(jnp.zeros(0), w, time), policy.release_centre(policy.unpack(memory))
        shared = kernel.release_law(secret, state, memory).value
        reading = own.invert(policy.unpack(memory).own, w, later)[1]
        memory = policy.update_memory(memory, secret, state, w, reading, key=jr.key(1))
        return (memory, reading), (shared, shared - centre)

    times = jnp.arange(1, len(INPUTS) + 1, dtype=jnp.int32)
    start = policy.init_memory(secret, first, key=jr.key(0)), first
    return jax.lax.scan(step, start, (times, jnp.asarray(INPUTS), jnp.roll(noise, -1, axis=0)))[1]


def test_a_fresh_one_is_the_twin_that_it_starts_from(float64):
    base = Twin(model())
    secret = base.system.prior.secrets[1]
    found, known = (followed(one, secret, jnp.asarray(NOISE))[0] for one in (fresh(base), base))
    assert np.array_equal(found, known) and np.std(found) > 0.1


@pytest.mark.parametrize("start", ["whitened", "public"])
def test_owners_with_the_same_noise_and_inputs_release_the_same_whatever_the_network(float64, start):
    """Condition 3 of docs/twin.md. Their states differ by far more than the releases."""
    policy = wild(fresh(Twin(model(), start=start)), 0.7)
    found = [followed(policy, secret, jnp.asarray(NOISE)) for secret in policy.system.prior.secrets]
    assert np.max(np.abs(found[0][1])) > 0.3, "the network moves the releases"
    for shared, _ in found[1:]:
        assert np.allclose(shared, found[0][0], atol=1e-9)
    storm = followed(wild(policy, 100.0), policy.system.prior.secrets[0], jnp.asarray(NOISE))[1]
    reach = float(policy.limits.offset * policy.scaling.output.spread[0])
    assert 0.9 * reach < np.max(np.abs(storm)) < 1.001 * reach


def test_the_releases_of_a_pre_roll_do_not_depend_on_what_was_read(float64):
    """The exact reader does not count the readings of a pre-roll."""
    policy = wild(fresh(Twin(model(), start="public", preroll=4)), 0.7)
    other = np.random.default_rng(3).normal(size=NOISE.shape)
    secret = policy.system.prior.secrets[0]
    ours, theirs = (followed(policy, secret, jnp.asarray(noise))[0] for noise in (NOISE, other))
    assert np.array_equal(ours[:5], theirs[:5]) and not np.allclose(ours[5:], theirs[5:], atol=1e-2)


def test_the_exact_reader_finds_what_the_noise_tells_whatever_the_network(float64):
    """Owners take their noise for 0.8 and 1.2 times what it is: of seven ε, the sum of squares tells all."""
    plant, factors = as_float64(Gain(prior=finite_prior([0.3, 0.8]))), (0.8, 1.2)
    models = [
        plain_self_model(WithNoise(plant, factor), secret, (True,), jnp.zeros(1))
        for factor, secret in zip(factors, plant.prior.secrets, strict=True)
    ]
    policy = wild(fresh(Twin(plant, models, plant.prior.secrets, preroll=0)), 0.7)
    found = evaluate(plant, policy, settings=AuditSettings(steps=8, episodes=1024, seed=3), candidates=1)
    truth = told([lambda s, c=factor: c**2 * stats.chi2.pdf(s * c**2, 7) for factor in factors], 0.0, 200.0)
    assert found.method == "exact reader of the owner's noise" and truth > 0.1
    for side in (found.leakage.lower, found.leakage.upper):
        assert abs(side.value - truth) < 4 * side.error


def test_the_gradient_of_the_objective_is_that_of_differences(float64):
    """Through the release, the environment, the state and the copies; leakage is charged nothing."""
    system = model()
    policy = wild(fresh(Twin(system)), 0.3)
    task = as_float64(problem(system, 6, Objective(distortion_price=0.7)))
    numbers = jnp.arange(6, dtype=jnp.int32)

    def bias(one):
        return one.network.layers[-1].bias

    @eqx.filter_jit
    def total(policy, at):
        outcome = task.episodes(eqx.tree_at(bias, policy, at), numbers, key=jr.key(3))
        return jnp.sum(task.objective.total(outcome)), jnp.sum(outcome.leakage)

    both = eqx.filter_jit(jax.value_and_grad(lambda at: total(policy, at), has_aux=True))
    (_, leakage), slope = both(bias(policy))
    sides = [both(bias(policy) + step)[0][0] for step in (1e-2, -1e-2)]
    assert leakage == 0.0 and np.isclose((sides[0] - sides[1]) / 2e-2, slope[0], rtol=2e-3)


def test_a_design_of_a_twin_takes_nothing_that_speaks_of_a_belief():
    assert PolicyDesign(start="twin").width == 64
    wrong = (
        lambda: PolicyDesign(start="twin", parts=2),
        lambda: PolicyDesign(start="twin", encoder="mgf"),
        lambda: PolicyDesign(start="twin", particles=64),
    )
    for one in wrong:
        with pytest.raises(ValueError, match="a twin keeps no belief"):
            one()
    assert issubclass(LearnedTwin, Twin)
