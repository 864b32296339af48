"""Conditional resampling: the pinned run draws the others as the plain run does when particle 0 stays."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from veil.attacks.particle_filter import Particles, refresh
from veil.laws import Gaussian


@pytest.mark.parametrize("weights", [(0.6, 0.3, 0.1), (0.2, 0.7, 0.1), (0.05, 0.15, 0.8)])
def test_pinned_ancestors_follow_the_plain_law_given_that_slot_0_keeps_particle_0(
    weights, float64, monkeypatch
):
    monkeypatch.setattr("veil.attacks.particle_filter.THRESHOLD", 2.0)  # always resample
    names = jnp.arange(3.0)[:, None]
    swarm = Particles(names, Gaussian(names, jnp.zeros((3, 1, 1))), jnp.log(jnp.asarray(weights)))
    grid = jnp.asarray((np.arange(30_000) + 0.5) / 30_000)

    def ancestors(pinned):
        refreshed = jax.vmap(lambda uniform: refresh(swarm, jnp.zeros(3), uniform, jnp.asarray(pinned)))
        return np.asarray(jax.jit(refreshed)(grid).origins.mean)[:, :, 0].astype(int)

    plain, pinned = ancestors(False), ancestors(True)
    assert np.all(pinned[:, 0] == 0)
    assert np.allclose([np.mean(plain[:, 0] == k) for k in range(3)], weights, atol=1e-3)
    kept = plain[plain[:, 0] == 0]
    wanted, found = (Counter(map(tuple, rows)) for rows in (kept, pinned))
    for outcome in wanted.keys() | found.keys():
        assert abs(wanted[outcome] / len(kept) - found[outcome] / len(pinned)) < 2e-3, outcome
