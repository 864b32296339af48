import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import special, stats

from tests.policies.round_units import gain_units, platoon_units
from veil.policies import discrete_policy
from veil.policies.grid import Exploring, dirichlet_draw, dirichlet_log_density
from veil.step import first_features
from veil.systems import Gain, Platoon

PARAMETERS = np.asarray([[0.05, 0.4, 1.0, 7.0], [30.0, 2.0, 0.3, 120.0]])


def test_log_density_is_that_of_scipy(float64):
    rng = np.random.default_rng(0)
    values = rng.dirichlet(np.ones(4), size=2)
    found = dirichlet_log_density(jnp.log(values), jnp.asarray(PARAMETERS))
    truth = [stats.dirichlet.logpdf(*pair) for pair in zip(values, PARAMETERS, strict=True)]
    assert np.allclose(found, truth, rtol=1e-9)


def test_draws_have_the_means_variances_and_marginals_of_a_dirichlet(float64):
    """Entries below one too, where a draw may be as small as 1e-100: E log is ψ(α) − ψ(total)."""
    count = 20_000
    wide = jnp.broadcast_to(jnp.asarray(PARAMETERS), (count, 2, 4))
    logs = np.asarray(jax.jit(dirichlet_draw)(wide, key=jr.key(0)))
    total = PARAMETERS.sum(axis=1, keepdims=True)
    mean = PARAMETERS / total
    for drawn, truth in (
        (np.exp(logs), mean),
        ((np.exp(logs) - mean) ** 2, mean * (1 - mean) / (1 + total)),
        (logs, special.digamma(PARAMETERS) - special.digamma(total)),
    ):
        error = drawn.std(axis=0, ddof=1) / np.sqrt(count)
        assert np.all(np.abs(drawn.mean(axis=0) - truth) < 4 * error)
    for row, entry in np.ndindex(2, 4):
        own, rest = PARAMETERS[row, entry], total[row, 0] - PARAMETERS[row, entry]
        assert stats.kstest(np.exp(logs[:, row, entry]), stats.beta(own, rest).cdf).pvalue > 1e-4


@pytest.mark.study
def test_kernels_drawn_in_the_open_have_the_policys_kernel_as_their_mean():
    """And vary by m (1 − m) / (1 + total), independently at every step and in every row."""
    policy = discrete_policy(Gain(), gain_units(), counts=3, particles=4, width=4, sd=3.0, key=jr.key(0))
    features = first_features(policy)
    external, times = policy.system.initial_external(), jnp.asarray([1, 2], jnp.int32)
    total = jnp.asarray(5.0)

    @jax.jit
    @jax.vmap
    def drawn(coins):
        actor = Exploring(policy, total, coins)
        return jax.vmap(lambda time: actor.kernel(features, external, time).log_rows)(times)

    rows = np.exp(np.asarray(drawn(jr.split(jr.key(1), 4000)), float))
    middle = np.stack([np.exp(policy.table(features, external, time).log_rows) for time in times])
    assert middle.shape == (2, 3, 3, 3) and np.allclose(rows.sum(axis=-1), 1.0, atol=1e-5)
    for power, truth in ((1, 0.0 * middle), (2, middle * (1 - middle) / 6.0)):
        found = (rows - middle) ** power
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        assert np.all(np.abs(found.mean(axis=0) - truth) < 4.5 * error + 1e-6)
    apart = (rows - middle)[:, :, :, :, 0].reshape(len(rows), -1)
    correlation = np.corrcoef(apart.T) - np.eye(apart.shape[1])
    assert np.max(np.abs(correlation)) < 5 / np.sqrt(len(rows))


def test_the_benchmark_has_grids_of_so_many_spreads_and_an_mgf_encoder():
    policy = discrete_policy(
        Platoon(), platoon_units(), counts=(5, 3), half_width=2.0, particles=9, width=4, key=jr.key(0)
    )
    speeds, spacings = 15.0 + 0.5 * np.linspace(-2, 2, 5), 20.0 + 2.0 * np.linspace(-2, 2, 3)
    truth = np.stack(np.meshgrid(speeds, spacings, indexing="ij"), axis=-1).reshape(-1, 2)
    assert policy.cells is not None and np.allclose(policy.cells, truth) and np.allclose(policy.atoms, truth)
    assert policy.start(key=jr.key(0)).log_masses.shape == (4,) and first_features(policy).shape == (4 + 10,)
    with pytest.raises(ValueError, match="coordinates"):
        discrete_policy(Platoon(), gain_units(), key=jr.key(0))
