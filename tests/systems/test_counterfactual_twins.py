"""With the same noise, every secret releases the same by the counterfactual policy: nothing leaks at all."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.policies import Counterfactual
from veil.rollout import rollout
from veil.systems import Battery, Building, Driver, IdmDriver


@pytest.mark.parametrize("system", [Battery, Building, Driver, IdmDriver])
def test_all_secrets_release_the_same(system, float64):
    world = system()
    policy, seed = Counterfactual(world), jnp.asarray(0, jnp.int32)

    def played(index):
        return rollout(world, policy, 12, public_seed=seed, key=jr.key(3), index=index)

    found = jax.jit(jax.vmap(played))(jnp.arange(len(world.prior.secrets), dtype=jnp.int32))
    shared, states = np.asarray(found.public.shared), np.asarray(found.states)
    scale = np.abs(shared).max(axis=(0, 1))
    np.testing.assert_allclose(shared / scale, np.broadcast_to(shared[:1], shared.shape) / scale, atol=1e-9)
    assert np.all(np.ptp(states[:, -1], axis=0)[: shared.shape[2]] > 1e-3 * scale), (
        "the plants themselves differ"
    )
