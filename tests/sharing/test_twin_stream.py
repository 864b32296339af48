"""A twin live: what need not be given, what is refused, and that it is the simulated policy."""

import jax.numpy as jnp
import numpy as np
import pytest

import veil
from veil.policies import Twin
from veil.policies.twin import plain_self_model
from veil.systems import Building, Gain


def test_a_house_shares_live_without_the_temperature_that_nobody_measures():
    """Readings move the releases: with another reading the next release differs, and a gap is bridged."""

    def run(second):
        shared = []
        with veil.Sharer(Twin(Building()), 1, resolution=0.01, on_alarm="warn") as sharer:
            assert sharer.optional == ("envelope",)
            fields = [field.name for field in sharer.system.external_fields]
            external = dict(zip(fields, np.asarray(sharer.system.initial_external()).tolist(), strict=True))
            for indoor in (20.5, second, None, 20.4):
                state = None if indoor is None else {"indoor": indoor}
                found = sharer.skip(external) if state is None else sharer.share(state, external)
                shared.append(None if found.shared is None else float(found.shared[0]))
        return shared

    low, high = run(20.3), run(20.7)
    assert low[2] is None and low[3] is not None
    assert high[1] - low[1] > 0.3, "the noise of the reading is passed on"


def test_a_coarse_sensor_and_a_fitted_model_are_refused_live():
    with pytest.raises(ValueError, match="too coarse"):
        veil.Sharer(Twin(Gain()), 1, resolution=0.4)
    model = plain_self_model(Gain(), Gain().prior.secrets[0], (True,), jnp.zeros(1))
    with pytest.raises(ValueError, match="charged for the errors of the fit"):
        veil.Sharer(Twin(Gain(), model), 1, resolution=0.1)
