from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.checks.system import check_system
from veil.policies import Truth
from veil.rollout import rollout
from veil.systems import IdmPlatoon, Platoon, finite_prior


def transcribed(secret, state, ahead, standing, gap, top=30.0):
    """The acceleration, written down once more with plain numbers."""
    (a, b), (v, s) = secret, state
    wanted = standing + max(0.0, v * gap + v * (v - ahead) / (2.0 * np.sqrt(a * b)))
    return a * (1.0 - (v / top) ** 4 - (wanted / s) ** 2)


@pytest.mark.parametrize(("equilibrium", "standing"), [((15.0, 20.0), 2.0), ((22.0, 31.0), 3.5)])
def test_the_equilibrium_of_the_platoon_is_one_for_every_driver(float64, equilibrium, standing):
    system = IdmPlatoon(Platoon(equilibrium=equilibrium), standing_spacing=standing)
    rest = jnp.array(equilibrium)
    for secret in system.prior.secrets:
        assert abs(float(system.push(secret, rest, rest[0]))) < 1e-12
        law = system.transition(secret, rest, system.initial_external())
        np.testing.assert_allclose(law.mean, equilibrium, rtol=0, atol=1e-12)


def test_the_time_gap_is_what_pencil_and_paper_give():
    # 20 sqrt(15/16) = 19.36492, less 2, over 15
    np.testing.assert_allclose(IdmPlatoon().time_gap, 1.157661, rtol=1e-6)


def test_accelerations_are_those_of_a_plain_transcription(float64):
    system = IdmPlatoon(standing_spacing=1.5)
    gap, draw = float(system.time_gap), np.random.default_rng(0)
    secrets = draw.uniform([0.3, 0.5], [3.0, 4.0], (400, 2))
    states = draw.uniform([0.0, 3.0], [30.0, 60.0], (400, 2))
    aheads = draw.uniform(0.0, 30.0, 400)
    found = jax.jit(jax.vmap(system.push))(jnp.array(secrets), jnp.array(states), jnp.array(aheads))
    rows = zip(secrets, states, aheads, strict=True)
    expected = [transcribed(*row, standing=1.5, gap=gap) for row in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    far_ahead = states[:, 0] * gap + states[:, 0] * (states[:, 0] - aheads) / (2 * np.sqrt(secrets.prod(1)))
    assert 20 < np.sum(far_ahead < 0) < 380  # both sides of max(0, ·) were seen


def test_a_step_by_hand():
    # s* = 2 + 10·1.157661 + 10·(10 − 12)/(2 sqrt(1.5)) = 5.411642; a = 1 − (1/3)⁴ − (s*/16)² = 0.8732564
    law = IdmPlatoon().transition(
        jnp.array([1.0, 1.5]), jnp.array([10.0, 16.0]), jnp.array([30.0, 12.0, 3.0])
    )
    np.testing.assert_allclose(law.mean, [10.0 + 0.2 * 0.8732564, 16.4], rtol=1e-6)
    np.testing.assert_allclose(jnp.diagonal(law.scale), [0.02, 0.1], rtol=1e-6)


def test_who_closes_in_brakes_and_limits_hold():
    system, secret = IdmPlatoon(), jnp.array([1.0, 1.5])
    calm, closing = (system.push(secret, jnp.array([15.0, 20.0]), jnp.array(ahead)) for ahead in (16.0, 14.0))
    assert closing < 0 < calm

    def speed(state):
        return system.transition(secret, state, jnp.array([15.0, 0.0, 20.0])).mean[0]

    for spacing in (0.0, -3.0):  # a collision: full braking, no infinity
        value, slope = jax.jit(jax.value_and_grad(speed))(jnp.array([15.0, spacing]))
        np.testing.assert_allclose(value, 15.0 - 0.2 * 5.0)
        assert bool(jnp.all(jnp.isfinite(slope)))


@partial(jax.jit, compiler_options={"xla_backend_optimization_level": "0"})
def long_runs(system, keys):
    seed = jnp.asarray(0, jnp.int32)

    def run(index, key):
        return rollout(system, Truth(system), 500, public_seed=seed, key=key, index=index)

    indices = jnp.arange(len(system.prior.secrets), dtype=jnp.int32)
    return jax.vmap(jax.vmap(run, (None, 0)), (0, None))(indices, keys)


def test_the_loop_stays_in_the_physical_range_for_long():
    records = long_runs(IdmPlatoon(), jr.split(jr.key(0), 16))
    speed, spacing = np.moveaxis(np.asarray(records.states), -1, 0)
    assert speed.min() > 10.0 and speed.max() < 20.0
    assert spacing.min() > 10.0 and spacing.max() < 35.0
    late = np.s_[:, :, 100:]  # every driver keeps to the equilibrium in the mean
    np.testing.assert_allclose(speed[late].mean(axis=(1, 2)), 15.0, atol=0.1)
    np.testing.assert_allclose(spacing[late].mean(axis=(1, 2)), 20.0, atol=1.0)


def test_all_but_the_driver_is_the_inner_platoons():
    inner = Platoon(controller="B", initial_sd=(0.3, 0.7), automated_spacing_sd=0.2)
    system = IdmPlatoon(inner)
    secret, state, after = jnp.array([1.7, 2.0]), jnp.array([14.0, 18.0]), jnp.array([14.3, 18.2])
    external, shared, noise = jnp.array([15.0, 14.5, 21.0]), jnp.array([14.4, 17.0]), jnp.array([0.5, -1.0])
    for found, expected in (
        (system.initial(secret), inner.initial(secret)),
        (system.initial_external(), inner.initial_external()),
        (system.react(external, shared, noise), inner.react(external, shared, noise)),
        (system.react(external, None, noise), inner.react(external, None, noise)),
        (
            system.cost(secret, state, after, shared, external),
            inner.cost(secret, state, after, shared, external),
        ),
        (system.distortion(state, shared), inner.distortion(state, shared)),
        (system.output(state), inner.output(state)),
        (system.transition(secret, state, external).scale, inner.transition(secret, state, external).scale),
        (system.transition(secret, state, external).mean[1], state[1] + 0.2 * (external[1] - state[0])),
    ):
        assert eqx.tree_equal(found, expected, rtol=1e-6)


def test_the_prior_is_its_own():
    np.testing.assert_allclose(IdmPlatoon().prior.secrets, [[0.5, 1], [1, 1.5], [1.7, 2], [2.6, 3]])
    two = finite_prior([[1.0, 1.0], [2.0, 2.0]])
    assert IdmPlatoon(prior=two).prior is two


def test_the_library_finds_it_ready_to_use():
    report = check_system(IdmPlatoon())
    assert report.ok and report.supports["counterfactual"] and report.supports["pathwise learning"]
    assert not [finding for finding in report.findings if finding.level != "note"]
