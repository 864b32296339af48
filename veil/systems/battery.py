"""A battery cell whose resistances, polarisation capacity and charge capacity are secret.

Together the four numbers tell the state of health. The cell shares its terminal voltage and its state of
charge with the operator of a fleet, who answers with a limit on the current. The current that the vehicle
asks for is a drive cycle: a public series.
"""

from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from veil import linalg
from veil.laws import Gaussian
from veil.registry import SYSTEMS
from veil.systems.base import CostPart, Nouns, Prior, Scenario, System, finite_prior
from veil.systems.series import Field, Inputs, Series
from veil.systems.vehicles import Pair, pair
from veil.types import Answer, External, Noise, Scalar, Secret, Shared, State, as_number

CELLS = ((24.0, 14.0, 2.2, 5.0), (29.0, 17.0, 2.0, 4.7), (36.0, 22.0, 1.8, 4.3), (46.0, 30.0, 1.5, 3.8))
"""Four cells from new to worn: R0 and R1 in mΩ, C1 in kF, capacity in Ah."""

_HOUR = 3600.0  # s


def open_circuit_voltage(charge: Scalar) -> Scalar:
    """Voltage at rest in V at a state of charge from 0 to 1, after Chen and Rincón-Mora (2006)."""
    return 3.685 - 1.031 * jnp.exp(-35.0 * charge) + 0.2156 * charge - 0.1178 * charge**2 + 0.3201 * charge**3


def drive_cycle(steps: int = 720, seed: int = 0) -> Series:
    """The current that a vehicle asks of one cell, in A per step of 5 s; always the same for a seed.

    Blocks of 15 to 60 s in which the vehicle accelerates (8 to 12 A), cruises (2 to 5 A), stands (0.2 A) or
    brakes (−4 to −1 A, which charges).

    Args:
        steps: number of rows.
        seed: of the blocks.
    """
    numbers, rows = np.random.default_rng(seed), np.zeros(0)
    kinds = ((8.0, 12.0), (2.0, 5.0), (2.0, 5.0), (0.2, 0.2), (-4.0, -1.0))
    while len(rows) < steps:
        low, high = kinds[numbers.integers(len(kinds))]
        rows = np.append(rows, np.full(numbers.integers(3, 13), numbers.uniform(low, high)))
    return Series({"demand": np.round(rows[:steps], 2)})


@SYSTEMS.register("battery", "a battery cell whose state of health is secret: resistances and capacities")
class Battery(System):
    """The Thevenin circuit with one RC pair; 5 s per step, current i = limit · demand, positive to discharge.

    With the secrets R0, R1, C1 and the capacity Q, state of charge z and polarisation u:

        z' = z − i dt / Q
        u' = r u + R1 (1 − r) i        with r = exp(−dt / (R1 C1))
        v' = OCV(z') − u' − R0 i

    The terminal voltage v is read at the end of the step, under the current that has just flowed. Each of
    the three has a little noise: the current is not known exactly, the circuit is not the chemistry, and the
    meter has an error. The law of v' is linearised in the noise of z'.

    Attributes:
        prior: secrets (R0, R1, C1, Q) in mΩ, mΩ, kF and Ah, by default four, equally likely.
        series: the current that the vehicle asks for, A.
        dt: length of a step, s.
        initial_charge: mean and sd of the state of charge at the start.
        charge_sd: noise of the state of charge per step.
        polarisation_sd: noise of the polarisation per step, mV.
        voltage_sd: error of the volt meter, mV.
        limit_sd: noise of the operator's limit.
        distortion_weights: weights of the squared errors of (voltage, charge), in mV and per mille.
        open_circuit: voltage at rest in V as a function of the state of charge, which is public.
    """

    prior: Prior = eqx.field(default_factory=lambda: finite_prior(CELLS))
    series: Series = eqx.field(default_factory=drive_cycle)
    dt: Scalar = eqx.field(default=5.0, converter=as_number)
    initial_charge: Pair = eqx.field(default=(0.7, 0.05), converter=pair)
    charge_sd: Scalar = eqx.field(default=2e-4, converter=as_number)
    polarisation_sd: Scalar = eqx.field(default=1.0, converter=as_number)
    voltage_sd: Scalar = eqx.field(default=3.0, converter=as_number)
    limit_sd: Scalar = eqx.field(default=0.02, converter=as_number)
    distortion_weights: Pair = eqx.field(default=(1.0, 1.0), converter=pair)
    open_circuit: Callable[[Scalar], Scalar] = eqx.field(
        static=True, default_factory=lambda: open_circuit_voltage
    )

    secret_fields = (
        Field("R0", "mOhm", 0.0, 1000.0),
        Field("R1", "mOhm", 0.01, 1000.0),
        Field("C1", "kF", 0.01, 100.0),
        Field("capacity", "Ah", 0.1, 1000.0),
    )
    state_fields = (
        Field("voltage", "mV", 0.0, 6000.0),
        Field("charge", "", -0.1, 1.1),
        Field("polarisation", "mV", -2000.0, 2000.0),
    )
    external_fields = (Field("limit", "", 0.0, 1.0),)
    exogenous_fields = (Field("demand", "A", -500.0, 500.0),)
    shared_fields = (Field("voltage", "mV", 0.0, 6000.0), Field("charge", "", -0.1, 1.1))
    cost_fields = (CostPart("losses", "Wh", 1.0), CostPart("unserved", "Wh", 1.0))
    quantity_fields = (Field("lowest voltage", "mV"), Field("charge drawn", "%"))
    reaction_noise_size = 1
    nouns = Nouns("the owner of the vehicle", "the state of health of the battery", "cell")

    @property
    def step_seconds(self) -> Scalar:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The length of a step."""
        return self.dt

    def initial(self, secret: Secret) -> Gaussian:
        """A rested cell at an uncertain state of charge, the same for every secret."""
        del secret
        charge, spread = self.initial_charge
        slope = 1e3 * jax.grad(self.open_circuit)(charge)
        mean = jnp.stack([1e3 * self.open_circuit(charge), charge, jnp.zeros_like(charge)])
        factor = jnp.zeros((3, 3), mean.dtype)
        factor = factor.at[0, 0].set(jnp.sqrt((slope * spread) ** 2 + 4.0 * self.voltage_sd**2))
        share = slope * spread / factor[0, 0]  # correlation of voltage and charge
        factor = factor.at[1, 0].set(spread * share).at[1, 1].set(spread * jnp.sqrt(1.0 - share**2))
        return Gaussian(mean, factor.at[2, 2].set(2.0 * self.polarisation_sd))

    def initial_external(self) -> Answer:
        """No limit at first."""
        return jnp.ones_like(self.limit_sd)[None]

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One step of the circuit."""
        series, inner, storage, capacity = secret  # mΩ, mΩ, kF, Ah
        current = _current(self.inputs(external))
        charge = state[1] - current * self.dt / (_HOUR * capacity)
        keep = jnp.exp(-self.dt / (inner * storage))  # mΩ · kF = s
        polarisation = keep * state[2] + inner * (1.0 - keep) * current
        voltage = 1e3 * self.open_circuit(charge) - polarisation - series * current
        slope = 1e3 * jax.grad(self.open_circuit)(charge)
        # Noise of charge and polarisation moves the voltage as well: C = J diag(sd²) Jᵀ, factored.
        voltage_sd = jnp.sqrt(self.voltage_sd**2 + (slope * self.charge_sd) ** 2 + self.polarisation_sd**2)
        mean = jnp.stack([voltage, charge, polarisation])
        variances = jnp.stack([voltage_sd**2, self.charge_sd**2, self.polarisation_sd**2])
        covariance = jnp.diag(variances)
        with_charge, with_polarisation = slope * self.charge_sd**2, -(self.polarisation_sd**2)
        covariance = covariance.at[0, 1].set(with_charge).at[1, 0].set(with_charge)
        covariance = covariance.at[0, 2].set(with_polarisation).at[2, 0].set(with_polarisation)
        scale = jnp.stack([voltage_sd, self.charge_sd, self.polarisation_sd])
        unit = jnp.linalg.cholesky(covariance / (scale[:, None] * scale[None, :]))
        return Gaussian(mean, scale[:, None] * unit)

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The operator lowers the limit where the shared voltage falls below 3.6 V, as in a worn cell."""
        del external
        limit = 1.0 + self.limit_sd * noise[0]
        if shared is not None:
            limit = limit - jnp.clip((3600.0 - shared[0]) / 400.0, 0.0, 0.5)
        return jnp.clip(limit, 0.3, 1.0)[None]

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Mapping[str, Scalar]:
        """Heat in the two resistances, and energy that the limit kept from the vehicle, both in Wh."""
        del shared, after
        now = self.inputs(external)
        current, hours = _current(now), self.dt / _HOUR
        heat = 1e-3 * secret[0] * current**2 + 1e-3 * state[2] ** 2 / secret[1]  # W; mV²/mΩ = mW
        missing = 1e-3 * state[0] * (now.demand - current)
        return {"losses": heat * hours, "unserved": missing * hours}

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """Weighted Euclidean distance in mV and per mille; its gradient at distance zero is set to zero."""
        apart = jnp.stack([shared[0] - state[0], 1e3 * (shared[1] - state[1])])
        return linalg.weighted_distance(self.distortion_weights, apart)

    def output(self, state: State) -> Shared:
        """Terminal voltage and state of charge; the polarisation is not measured."""
        return state[:2]

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """The lowest voltage, and how much charge was drawn in per cent of the capacity."""
        del external, shared
        return jnp.stack([jnp.min(states[:, 0]), 100.0 * (states[0, 1] - states[-1, 1])])

    def scenarios(self) -> tuple[Scenario, ...]:
        """A cold pack with larger resistances, and a rough meter."""
        colder = np.asarray(self.prior.secrets) * np.asarray([1.4, 1.6, 0.9, 0.97])
        cold = eqx.tree_at(lambda one: one.prior.secrets, self, jnp.asarray(colder, self.prior.secrets.dtype))
        rough = eqx.tree_at(lambda one: one.voltage_sd, self, 2.0 * self.voltage_sd)
        found = (("cold pack", cold), ("rough meter", rough))
        return tuple(Scenario(name, plant, self.prior.secrets) for name, plant in found)


def _current(now: Inputs) -> Scalar:
    """The current that flows, A; braking charges without a limit."""
    return jnp.where(now.demand > 0.0, now.limit * now.demand, now.demand)
