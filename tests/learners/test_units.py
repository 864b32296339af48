import jax.numpy as jnp
import jax.random as jr
import numpy as np

from veil.learners import typical_scaling
from veil.systems import Gain, finite_prior

GAINS, MASSES = np.asarray([0.3, 0.6, 0.9]), np.asarray([0.5, 0.3, 0.2])


def by_hand(replicas, steps, episodes=16):
    """The loop under true data in numpy, x' = θ x + w + 0.3 ε and w' = −0.2 x + 0.5 ε, many times over.

    Means and standard deviations of levels and inputs, per replica of the whole measurement.
    """
    rng = np.random.default_rng(0)
    size = (replicas, 3, episodes)
    x, w, levels, inputs = rng.normal(size=size), np.zeros(size), [], []
    for _ in range(steps):
        levels.append(x)
        inputs.append(w)
        x, w = (
            GAINS[:, None] * x + w + 0.3 * rng.normal(size=size),
            -0.2 * x + 0.5 * rng.normal(size=size),
        )
    rows = [np.stack(part, axis=-1).reshape(replicas, -1) for part in (levels, inputs)]
    return np.stack([number for row in rows for number in (row.mean(axis=1), row.std(axis=1))])


def test_units_are_the_means_and_deviations_under_true_data():
    """Within four standard deviations of the same measurement made in numpy."""
    scaling = typical_scaling(Gain(prior=finite_prior(GAINS, MASSES)), 20, key=jr.key(0))
    hand = by_hand(400, 20)
    found = [scaling.state.centre, scaling.state.spread, scaling.external.centre, scaling.external.spread]
    for number, truth in zip(found, hand, strict=True):
        assert abs(float(number[0]) - truth.mean()) < 4 * truth.std()
        assert truth.std() < 0.1
    assert np.array_equal(scaling.output.centre, scaling.state.centre)  # the output is the level
    assert np.array_equal(scaling.output.spread, scaling.state.spread)
    centre = MASSES @ GAINS
    assert np.allclose(scaling.secret.centre, centre)
    assert np.allclose(scaling.secret.spread, np.sqrt(MASSES @ (GAINS - centre) ** 2))
    assert scaling.steps == 20.0 and all(leaf.dtype == jnp.float32 for leaf in found)


def test_what_never_varies_is_left_in_its_own_unit():
    system = Gain(prior=finite_prior([0.7]), reply=0.0, reaction_sd=0.0)
    scaling = typical_scaling(system, 20, key=jr.key(1))
    assert scaling.secret.spread == 1.0 and np.allclose(scaling.secret.centre, 0.7)
    assert scaling.external.spread == 1.0 and scaling.external.centre == 0.0
    assert np.all(scaling.state.spread < 1.0)
