import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from veil.checks.system import check_system
from veil.laws import Gaussian
from veil.systems import (
    ColouredPlatoon,
    Gain,
    KnownStart,
    Platoon,
    WithInitial,
    WithNoise,
    WithPrior,
    finite_prior,
)

OTHER = finite_prior([[0.5, 0.6], [0.9, 0.9]], [0.25, 0.75])
START = jnp.array([14.0, 23.0])
FIELDS = ("secret_fields", "state_fields", "external_fields", "shared_fields", "reaction_noise_size")


@eqx.filter_jit
def values(system):
    """Everything a system says at one point, by name."""
    secret, state, external = jnp.array([0.7, 0.9]), jnp.array([14.0, 18.0]), jnp.array([15.0, 14.5, 21.0])
    shared, after, noise = jnp.array([14.4, 17.0]), jnp.array([14.2, 18.1]), jnp.array([0.4, -1.3])
    return {
        "prior": system.prior,
        "initial": system.initial(secret),
        "initial_external": system.initial_external(),
        "transition": system.transition(secret, state, external),
        "react": system.react(external, shared, noise),
        "withheld": system.react(external, None, noise),
        "cost": system.cost(secret, state, after, shared, external),
        "distortion": system.distortion(state, shared),
        "output": system.output(state),
    }


@pytest.mark.parametrize(
    ("variant", "changed"),
    [
        (lambda inner: WithPrior(inner, OTHER), "prior"),
        (lambda inner: WithNoise(inner, 1.5), "transition"),
        (lambda inner: WithInitial(inner, slope=[[1.0, 0.0], [0.0, 2.0]], spread=3.0), "initial"),
        (lambda inner: KnownStart(inner, START), "initial"),
    ],
    ids=["prior", "noise", "initial", "known"],
)
def test_a_variant_changes_one_thing_and_keeps_the_rest(variant, changed):
    inner = Platoon(controller="B", acceleration_sd=0.3, initial_sd=(0.4, 0.8))
    system = variant(inner)
    before, after = values(inner), values(system)
    assert [name for name in before if not eqx.tree_equal(before[name], after[name])] == [changed]
    assert all(getattr(system, name) == getattr(inner, name) for name in FIELDS)


def test_another_prior_is_taken_as_given():
    assert WithPrior(Platoon(), OTHER).prior is OTHER


def test_more_noise_leaves_the_mean_and_multiplies_the_scale():
    inner, arguments = ColouredPlatoon(), (jnp.array([0.7, 0.8]), jnp.array([15.0, 20.0, 0.1]), jnp.ones(3))
    law, noisier = inner.transition(*arguments), WithNoise(inner, 2).transition(*arguments)
    np.testing.assert_array_equal(noisier.mean, law.mean)
    np.testing.assert_allclose(noisier.scale, 2.0 * law.scale)


def test_a_start_with_a_slope_depends_on_the_secret_around_the_mean_of_the_prior():
    # the mean of the prior is 0.25·(0.5, 0.6) + 0.75·(0.9, 0.9) = (0.8, 0.825)
    system = WithInitial(Platoon(prior=OTHER), slope=[[2.0, 0.0], [1.0, -4.0]])
    law = system.initial(jnp.array([0.9, 1.025]))
    np.testing.assert_allclose(law.mean, [15.0 + 0.2, 20.0 + 0.1 - 0.8], rtol=1e-6)
    np.testing.assert_allclose(law.scale, jnp.diag(jnp.array([0.5, 1.0])))
    middle = OTHER.secrets.T @ jnp.exp(OTHER.log_masses)
    np.testing.assert_allclose(system.initial(middle).mean, [15.0, 20.0], rtol=1e-6)


def test_a_wrong_start_is_the_same_for_every_secret():
    system = WithInitial(Gain(), shift=0.7, spread=0.5)
    for secret in system.prior.secrets:
        law = system.initial(secret)
        np.testing.assert_allclose(law.mean, [0.7], rtol=1e-6)
        np.testing.assert_allclose(law.scale, [[0.5]])


def test_a_known_start_has_no_randomness():
    law = KnownStart(Platoon(), START).initial(jnp.array([0.4, 0.5]))
    assert isinstance(law, Gaussian)
    np.testing.assert_array_equal(law.sample(jnp.array([5.0, -7.0])), START)


def test_variants_can_be_stacked_and_are_found_ready_to_use():
    system = WithInitial(WithNoise(Gain(), 2.0), slope=1.0)
    report = check_system(system)
    assert report.ok and [finding.rule for finding in report.findings] == ["initial-secret"]
    law = eqx.filter_jit(system.transition)(jnp.array([0.6]), jnp.array([1.0]), jnp.array([0.5]))
    np.testing.assert_allclose([law.mean[0], law.scale[0, 0]], [1.1, 0.6], rtol=1e-6)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="2 numbers"):
        WithPrior(Platoon(), finite_prior([0.1, 0.2]))
    with pytest.raises(ValueError, match="3 numbers"):
        KnownStart(ColouredPlatoon(), START)


def test_tuning_a_number_does_not_compile_again():
    traces = []

    @eqx.filter_jit
    def start(system):
        traces.append(0)
        return system.initial(jnp.array([0.4]))

    for shift in (0.1, 0.2, 1):
        start(WithInitial(WithNoise(Gain(), shift), shift=shift))
    assert len(traces) == 1
