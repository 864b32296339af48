"""A sensor too coarse for charges that leave rounding out is refused, or the ledger says so."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import veil
from tests.hidden_plane import Hidden, hidden
from tests.rounded_gain import Solver
from veil.beliefs.readings import own_noise
from veil.cli.ledger import sums as ledger_sums
from veil.cli.share import sums as share_sums
from veil.evaluation.episodes import play_episodes
from veil.laws import Gaussian
from veil.policies import Counterfactual, GaussianNoise, Transport
from veil.policies.base import sensed, with_sensor
from veil.sharing.account import read_account
from veil.sharing.budget import budgeted, coarse_fields
from veil.systems import Gain, Platoon, nominal, with_resolution
from veil.types import as_float64

COARSE, FINE = 0.2, 0.15  # the noise of one step of `gain` is 0.3


def transport():
    return Transport(Gain(), jnp.asarray([0.2]))


@pytest.mark.parametrize("policy", [transport(), GaussianNoise(Gain(), [0.3])])
def test_a_sensor_coarser_than_half_the_noise_of_a_step_is_refused(policy):
    with pytest.raises(ValueError, match=r"reads level in steps of 0.2 \(one step's noise is 0.3\)") as told:
        veil.Sharer(policy, 1, resolution=COARSE)
    said = str(told.value)
    for way in ("counterfactual", "0.15 for level", "--charge-particles", "--accept-unproved-charges"):
        assert way in said
    with veil.Sharer(policy, 1, resolution=FINE) as sharer:
        assert not sharer.unproved and "unproved" not in sharer.ledger.about


def test_each_field_is_held_against_its_own_noise(float64):
    """Speeds have a noise of 0.02 m/s, spacings of 0.1 m."""
    policy = Transport(Platoon(), jnp.asarray([0.06, 0.1]))
    with pytest.raises(
        ValueError, match=r"reads speed in steps of 0.1 m/s \(one step's noise is 0.02 m/s\),"
    ):
        veil.Sharer(policy, 0, resolution={"speed": 0.1, "spacing": 0.05})
    fine = with_sensor(as_float64(policy), {"speed": 0.01, "spacing": 0.05})
    assert not coarse_fields(budgeted(fine))


@pytest.mark.parametrize(
    ("policy", "more"),
    [(transport(), {"particles": 81}), (Counterfactual(Gain()), {})],
    ids=["particles", "copies"],
)
def test_what_models_the_rounding_is_not_refused(policy, more):
    with veil.Sharer(policy, 1, resolution=COARSE, **more) as sharer:
        assert sharer.share([0.4], [0.0]).shared is not None and not sharer.unproved


def test_accepted_all_the_same_the_ledger_and_its_totals_say_so(tmp_path):
    path = tmp_path / "ledger.jsonl"
    given = {"ledger": path, "resolution": COARSE, "budget": 0.1}
    with veil.Sharer(transport(), 1, accept_unproved_charges=True, **given) as sharer:
        sharer.share([0.4], [0.0])
        assert sharer.unproved == ("level",) and "not proved" in share_sums(sharer)
    assert json.loads(path.read_text().splitlines()[0])["about"]["unproved"] == ["level"]
    assert any("not proved: the sensor reads level" in line for line in ledger_sums(read_account(path)))
    with pytest.raises(ValueError, match="not proved for steps so coarse"):
        veil.Sharer(transport(), 1, **given)
    with veil.Sharer(transport(), 1, accept_unproved_charges=True, **given) as sharer:
        assert sharer.next_step == 2
    with veil.Sharer(transport(), 1, accept_unproved_charges=True, resolution=FINE) as sharer:
        assert not sharer.unproved, "nothing to accept"


class Correlated(Hidden):
    """The same plane with noise of this factor."""

    factor = np.eye(2)

    def transition(self, secret, state, external):
        law = super().transition(secret, state, external)
        return Gaussian(law.mean, jnp.asarray(self.factor, law.mean.dtype))


def correlated(factor):
    return hidden(type("Other", (Correlated,), {"factor": np.asarray(factor)}))


def test_the_noise_of_a_field_is_what_the_others_do_not_tell(float64):
    factor = np.array([[0.3, 0.1], [0.25, 0.2]])
    wanted = 1.0 / np.sqrt(np.diag(np.linalg.inv(factor @ factor.T)))
    np.testing.assert_allclose(own_noise(correlated(factor)), wanted, rtol=1e-9)
    one_source = np.array([[0.3, 0.0], [0.6, 0.0]])  # singular: each coordinate tells the other
    np.testing.assert_allclose(own_noise(correlated(one_source)), 0.0, atol=1e-12)
    np.testing.assert_allclose(own_noise(correlated(np.diag([0.3, 0.0]))), [0.3, 0.0], atol=1e-12)
    np.testing.assert_allclose(own_noise(as_float64(Platoon())), [0.02, 0.1], rtol=1e-6)


def test_a_field_without_noise_of_its_own_is_refused_however_fine(float64):
    system = correlated([[0.3, 0.0], [0.6, 0.0]])
    with pytest.raises(ValueError, match=r"reads x in steps of 0.001 \(no noise of its own\)"):
        veil.Sharer(GaussianNoise(system, [0.3]), 1, resolution=0.001)


def test_a_field_that_no_release_depends_on_does_not_count(float64):
    """Only x is shared; how coarsely the other coordinate is read makes no difference."""
    policy = GaussianNoise(with_resolution(hidden(), {"x": 0.1, "hidden": 5.0}), [0.3])
    assert not coarse_fields(budgeted(policy))
    policy = GaussianNoise(with_resolution(hidden(), {"x": 0.5, "hidden": 0.01}), [0.3])
    assert [one.field.name for one in coarse_fields(budgeted(policy))] == ["x"]


def charged_and_true(step, particles=0, episodes=18, steps=12):
    """Mean sums of the charges and of the exact information of each release, over episodes, and the s.e."""
    with jax.enable_x64(True):
        system = with_resolution(as_float64(Gain()), step)
        policy = Transport(system, jnp.asarray([0.2]))
        made = as_float64(budgeted(policy, particles=particles))
        records = play_episodes(nominal(system), made, steps, np.arange(episodes), key=jr.key(5))
        solve, public = Solver(system, sensed(policy)), records.public
        charges = np.asarray(public.features)[:, :, -3].sum(axis=1)
        inner = eqx.tree_at(lambda one: one.features, public, public.features[:, :, : -3 - 1])
        rows = [jax.tree.map(lambda leaf, e=e: jnp.asarray(leaf[e]), inner) for e in range(episodes)]
        truth = np.array([solve(row).information.sum() for row in rows])
        return charges, truth


def test_charges_of_kalman_filters_hold_at_half_the_noise_and_fall_short_beyond():
    """By exact sums: up to half the noise rounding is Gaussian noise, at four times the noise it is not."""
    charges, truth = charged_and_true(FINE)
    assert 1e-6 < truth.mean() < 1e-5 and charges.mean() == pytest.approx(truth.mean(), rel=0.05)
    charges, truth = charged_and_true(1.2)
    assert truth.mean() - 4.0 * truth.std() / np.sqrt(len(truth)) > 2.0 * charges.mean() > 0.0


def test_charges_by_particles_cover_what_leaks_at_a_coarse_resolution():
    charges, truth = charged_and_true(1.2, particles=162)
    assert charges.mean() > truth.mean()
