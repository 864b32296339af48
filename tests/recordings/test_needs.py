"""Which columns a system needs: found by tracing, never too few."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import veil
from veil.recordings.requirements import needs
from veil.systems import IdmPlatoon
from veil.traced import dependence

FUNCTIONS = {
    "picked": lambda x: x[1] + x[2:4],
    "clipped": lambda x: jnp.clip(x[0], 0.0, x[3]),
    "by a condition": lambda x: jnp.where(x[2] > 0.0, x[0], 1.0),
    "sorted": lambda x: jnp.sort(x[:3]),
    "a product": lambda x: x[:2] @ jnp.ones((2, 2)),
    "stacked": lambda x: jnp.stack([x[3], jnp.zeros_like(x[0]), x[0] * x[1]]),
    "unpacked": lambda x: [value * 2.0 for value in x],
    "in a loop": lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * x[1], x[0]),
    "by place": lambda x: x[jnp.array([3, 0])],
    "by a computed place": lambda x: x[jnp.argmax(x[:2])],
    "rolled": lambda x: jnp.roll(x, 1)[:2],
    "not at all": lambda x: jnp.ones(2),
}


def flat(result):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(result)])


def moved(function, argument, place, rng):
    """Which numbers of the result change when one number of the argument takes other values."""
    function = jax.jit(function)
    before = flat(function(argument))
    after = [flat(function(argument.at[place].set(value))) for value in rng.normal(0.0, 3.0, 6)]
    return np.any([row != before for row in after], axis=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_that_changes_a_result_is_named(name):
    rng = np.random.default_rng(0)
    argument = jnp.asarray(rng.normal(0.0, 1.0, 4), jnp.float32)
    found = dependence(FUNCTIONS[name], argument)
    truth = np.stack([moved(FUNCTIONS[name], argument, place, rng) for place in range(4)])
    assert found.shape == truth.shape
    assert not np.any(truth & ~found)
    if name not in ("sorted", "a product", "in a loop", "by a computed place"):  # these are taken to mix
        assert np.array_equal(found, truth) or name in ("clipped", "by a condition")


def test_exact_answers_where_values_only_move():
    found = dependence(FUNCTIONS["stacked"], jnp.ones(4))
    assert found.tolist() == [
        [False, False, True],
        [False, False, True],
        [False, False, False],
        [True, False, False],
    ]


def test_systems_ask_for_no_more_than_they_use():
    platoon = needs(veil.systems.Platoon())
    assert platoon.external == (False, True, False)
    assert (platoon.state, platoon.telling) == ((True, True), (True, False))
    assert needs(veil.systems.ColouredPlatoon()).state == (True, True, False)
    assert needs(IdmPlatoon()).external == (False, True, False)
    assert needs(veil.systems.Gain()).external == (True,)
