"""The cell against the circuit in numpy, and its joint law against a linear map of independent noise."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from veil.checks.system import check_system
from veil.policies import Truth
from veil.rollout import rollout
from veil.systems import Battery
from veil.systems.battery import CELLS, drive_cycle

SECRET = np.array([30.0, 20.0, 2.0, 4.5])  # mΩ, mΩ, kF, Ah


def ocv(z):
    return 3685.0 - 1031.0 * np.exp(-35.0 * z) + 215.6 * z - 117.8 * z**2 + 320.1 * z**3


def w(limit, demand, row=3):
    return jnp.array([limit, demand, float(row)])


@pytest.mark.parametrize(
    ("limit", "demand", "current"), [(1.0, 10.0, 10.0), (0.6, 10.0, 6.0), (0.6, -3.0, -3.0)]
)
def test_a_step_is_the_circuit(float64, limit, demand, current):
    state = np.array([3700.0, 0.55, 40.0])
    law = Battery().transition(jnp.asarray(SECRET), jnp.asarray(state), w(limit, demand))
    charge = 0.55 - current * 5.0 / (3600.0 * 4.5)
    keep = np.exp(-5.0 / (0.020 * 2000.0))
    polarisation = 40.0 * keep + 20.0 * (1.0 - keep) * current
    np.testing.assert_allclose(
        law.mean, [ocv(charge) - polarisation - 30.0 * current, charge, polarisation], rtol=1e-9
    )


def test_the_noise_of_charge_and_polarisation_moves_the_voltage(float64):
    """Covariance J diag(sd²) Jᵀ with v' = OCV(z') − u' + error, by finite differences of OCV."""
    law = Battery().transition(jnp.asarray(SECRET), jnp.array([3700.0, 0.55, 40.0]), w(1.0, 5.0))
    z = float(law.mean[1])
    slope = (ocv(z + 1e-5) - ocv(z - 1e-5)) / 2e-5
    linear = np.array([[1.0, slope, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    wanted = linear @ np.diag([3.0**2, 2e-4**2, 1.0]) @ linear.T
    np.testing.assert_allclose(law.covariance, wanted, rtol=1e-6, atol=1e-14)
    np.testing.assert_allclose(np.triu(law.scale, 1), 0.0)


def test_a_rested_cell_starts_on_its_curve(float64):
    law = Battery().initial(jnp.asarray(SECRET))
    assert float(law.mean[0]) == pytest.approx(ocv(0.7)) and float(law.mean[2]) == 0.0
    slope = (ocv(0.7001) - ocv(0.6999)) / 2e-4
    covariance = np.asarray(law.covariance)
    assert covariance[1, 1] == pytest.approx(0.05**2) and covariance[0, 1] == pytest.approx(
        slope * 0.05**2, rel=1e-4
    )


def test_costs_are_heat_and_what_the_vehicle_did_not_get(float64):
    state = jnp.array([3700.0, 0.55, 40.0])
    cost = Battery().cost(jnp.asarray(SECRET), state, state, jnp.zeros(2), w(0.6, 10.0))
    heat = 0.030 * 6.0**2 + 0.040**2 / 0.020
    assert float(cost["losses"]) == pytest.approx(heat * 5.0 / 3600.0)
    assert float(cost["unserved"]) == pytest.approx(3.7 * 4.0 * 5.0 / 3600.0)


def test_it_keeps_the_contract():
    report = check_system(Battery())
    assert report.ok and {finding.rule for finding in report.findings} <= {
        "partial-output",
        "nonlinear",
        "noise-varies",
    }, report


def test_a_drive_stays_within_what_cells_do_and_worn_ones_sag_more():
    system, lowest = Battery(), []
    for index in (0, 3):
        record = rollout(
            system,
            Truth(system),
            200,
            public_seed=jnp.asarray(0, jnp.int32),
            key=jr.key(4),
            index=jnp.asarray(index, jnp.int32),
        )
        states = np.asarray(record.states)
        assert states[:, 0].min() > 3000.0 and states[:, 0].max() < 4250.0
        assert 0.3 < states[:, 1].min() < states[:, 1].max() < 0.95
        lowest.append(states[:, 0].min())
    assert lowest[1] < lowest[0] - 50.0
    assert float(np.asarray(drive_cycle().values).mean()) > 1.0 and len(CELLS) == 4
