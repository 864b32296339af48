"""A stream from a sensor that rounds: it must be declared, releases are decimals, restarts agree."""

import numpy as np
import pytest

import veil
from veil.policies import Counterfactual, GaussianNoise, Truth
from veil.sharing.step_program import in_decimals
from veil.systems import Gain, Platoon

STEP = 0.01


def released(release):
    """The one number of a release."""
    assert release.shared is not None
    return float(release.shared[0])


def stream(sharer, steps, seed=0):
    """Share a simulated level in steps of a hundredth, in closed loop; what was released."""
    rng, level, push, found = np.random.default_rng(seed), 0.4, 0.0, []
    for _ in range(steps):
        release = sharer.share({"level": round(level, 2)}, {"push": push})
        found.append(released(release))
        level = 0.6 * level + push + 0.3 * rng.normal()
        push = -0.2 * found[-1] + 0.5 * rng.normal()
    return found


@pytest.mark.parametrize("policy", [GaussianNoise(Gain(), [0.3]), Counterfactual(Gain())])
def test_a_stream_says_the_resolution_of_its_sensor(policy):
    with pytest.raises(ValueError, match="in which steps the sensor reads level"):
        veil.Sharer(policy, 1)
    with veil.Sharer(Truth(Gain()), 1) as sharer:  # what is true needs no protection
        assert sharer.share([0.4], [0.0]).shared is not None


@pytest.mark.parametrize("policy", [GaussianNoise(Gain(), [0.3]), Counterfactual(Gain())])
def test_releases_are_decimals_and_a_restart_goes_on(tmp_path, policy):
    files = {"ledger": tmp_path / "ledger.jsonl", "memory": tmp_path / "memory"}
    with veil.Sharer(policy, 1, resolution=STEP, **files) as sharer:
        first = stream(sharer, 8)
    assert all(value == round(value, 2) for value in first)
    with veil.Sharer(policy, 1, resolution=STEP, **files) as sharer:
        assert sharer.next_step == 9
        assert [released(sharer.share([0.0], [0.0], step=step)) for step in range(1, 9)] == first
        assert stream(sharer, 4, seed=1)
    with pytest.raises(ValueError, match="another stream"):
        veil.Sharer(policy, 1, resolution=0.1, **files)


def test_a_sensor_too_coarse_for_the_noise_is_refused():
    """Nothing would be proved: the points of a cell do not resolve the noise."""
    with pytest.raises(ValueError, match="level in steps too coarse"):
        veil.Sharer(Counterfactual(Gain()), 1, resolution=5.0)
    with pytest.raises(ValueError, match="speed in steps too coarse"):
        veil.Sharer(Counterfactual(Platoon()), 1, resolution={"speed": 0.2, "spacing": 0.1})


def test_the_alarm_stays_silent_at_a_coarse_resolution():
    """Readings in steps of four sd of the noise are what the model says; taken as exact they are not."""
    rng, level, push = np.random.default_rng(3), 0.0, 0.0
    with veil.Sharer(Counterfactual(Gain()), 1, resolution=1.2) as sharer:
        for _ in range(300):
            release = sharer.share([1.2 * round(level / 1.2)], [push])
            level = 0.6 * level + push + 0.3 * rng.normal()
            push = -0.2 * released(release) + 0.5 * rng.normal()
        assert not sharer.alarmed
    with veil.Sharer(Counterfactual(Gain()), 1, resolution=1e-6) as sharer:
        for _ in range(300):
            release = sharer.share([1.2 * round(level / 1.2)], [push])
            if sharer.alarmed:
                break
            level = 0.6 * level + push + 0.3 * rng.normal()
            push = -0.2 * released(release) + 0.5 * rng.normal()
        assert sharer.alarmed  # a resolution that is not true is noticed


def test_grid_points_are_written_as_their_digits():
    values = np.asarray([1437 * 0.01, 0.30000000000000004, 1.25, 7.0])
    assert in_decimals(values, (0.01, 0.1, 0.25, 0.0)).tolist() == [14.37, 0.3, 1.25, 7.0]
