"""A heated building whose insulation, mass and preferred temperature are secret.

The building shares its indoor temperature with an aggregator of demand response, who answers with a shift of
the set-point. Weather and tariff are public series; how many people are at home only the owner knows.
"""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from veil.laws import Gaussian, diagonal_gaussian
from veil.registry import SYSTEMS
from veil.systems.base import CostPart, Nouns, Prior, Scenario, System, finite_prior
from veil.systems.series import Field, Inputs, Series
from veil.types import Answer, External, Noise, Scalar, Secret, Shared, State, as_number

BUILDINGS = tuple((loss, mass, wish) for loss in (0.1, 0.2) for mass in (6.0, 12.0) for wish in (20.0, 21.5))
"""The eight secrets: heat loss in kW/K, heat capacity in kWh/K, preferred indoor temperature in °C."""

_AIR, _SHELL = Field("indoor", "degC", -10.0, 50.0), Field("envelope", "degC", -30.0, 50.0)

_SUBSTEPS = 4  # of the heat balance per step; the heating power is constant within a step


def winter_month(hours: int = 744, seed: int = 0) -> Series:
    """Outdoor temperature, tariff and people at home for a month of hours, always the same for a seed.

    The outdoor temperature has a mean of 4 °C, a daily wave of ±3 K that is highest at 15 o'clock, and slow
    weather with a standard deviation of 3 K and a memory of two days. The tariff is high from 17 to 21. On
    working days two people are away from 8 to 17. Row 0 is midnight before a Monday.

    Args:
        hours: number of rows.
        seed: of the slow weather.
    """
    clock = np.arange(hours)
    noise, slow, keep = (
        np.random.default_rng(seed).standard_normal(hours),
        np.zeros(hours),
        np.exp(-1.0 / 48.0),
    )
    for row in range(1, hours):
        slow[row] = keep * slow[row - 1] + np.sqrt(1.0 - keep**2) * 3.0 * noise[row]
    hour, weekday = clock % 24, (clock // 24) % 7
    away = (weekday < 5) & (hour >= 8) & (hour < 17)
    return Series(
        {
            "outdoor": np.round(4.0 + 3.0 * np.cos(2.0 * np.pi * (hour - 15) / 24.0) + slow, 1),
            "tariff": np.where((hour >= 17) & (hour < 21), 0.4, 0.25),
            "people": np.where(away, 0.0, 2.0),
        }
    )


class SharesIndoor(System):
    """What buildings have in common that share the temperature of a room, once per hour."""

    shared_fields = (Field("indoor", "degC", -10.0, 50.0),)
    quantity_fields = (
        Field("lowest indoor temperature", "degC"),
        Field("highest indoor temperature", "degC"),
    )
    step_seconds = 3600.0
    reaction_noise_size = 1

    def distortion(self, state: State, shared: Shared) -> Scalar:
        """Error of the shared temperature, K."""
        return jnp.abs(state[0] - shared[0])

    def output(self, state: State) -> Shared:
        """The temperature of the room."""
        return state[:1]

    def quantities(
        self, states: Float[Array, "T_plus_1 N"], external: Float[Array, "T E"], shared: Float[Array, "T Y"]
    ) -> Float[Array, " Q"]:
        """The lowest and the highest temperature of the room."""
        del external, shared
        return jnp.stack([jnp.min(states[:, 0]), jnp.max(states[:, 0])])


@SYSTEMS.register("building", "a heated building whose insulation, mass and preferred temperature are secret")
class Building(SharesIndoor):
    """A grey-box network of two resistances and two capacities; one hour per step.

    With heat loss H, capacity C and set-point S as secrets, and shares a of the capacity and b of the
    resistance in the room:

        a C dTi/dt       = (H / b) (Te − Ti) + Q + g · people + solar gain
        (1 − a) C dTe/dt = (H / b) (Ti − Te) + H / (1 − b) (To − Te)
        Q                = H (S + shift − To) + k (S + shift − Ti), between 0 and the largest power

    The room has the temperature Ti, its envelope Te, which nobody measures. Q is a heating curve that was
    adjusted to the building, and a proportional thermostat. Without an envelope there is one capacity C and
    one resistance 1 / H.

    Attributes:
        prior: secrets (H, C, S), by default eight, equally likely.
        series: outdoor temperature, tariff and people at home, one row per hour.
        envelope: whether there is a hidden envelope (two capacities) or none (one).
        room_capacity: share a of the capacity that is in the room.
        room_resistance: share b of the resistance that is between room and envelope.
        thermostat: k, kW per kelvin below the set-point.
        largest_power: of the heating, kW.
        body_heat: g, kW per person.
        solar: heat through windows at noon on a clear day, kW; the model has none.
        noise_sd: of the room per step, K: draughts, cooking, sun.
        envelope_sd: of the envelope per step, K.
        initial_sd: of both temperatures at the start, K.
        shift_sd: of the aggregator's answers, K.
    """

    prior: Prior = eqx.field(default_factory=lambda: finite_prior(BUILDINGS))
    series: Series = eqx.field(default_factory=winter_month)
    envelope: bool = eqx.field(default=True, static=True)
    room_capacity: Scalar = eqx.field(default=0.25, converter=as_number)
    room_resistance: Scalar = eqx.field(default=0.3, converter=as_number)
    thermostat: Scalar = eqx.field(default=0.5, converter=as_number)
    largest_power: Scalar = eqx.field(default=8.0, converter=as_number)
    body_heat: Scalar = eqx.field(default=0.1, converter=as_number)
    solar: Scalar = eqx.field(default=0.0, converter=as_number)
    noise_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    envelope_sd: Scalar = eqx.field(default=0.03, converter=as_number)
    initial_sd: Scalar = eqx.field(default=0.7, converter=as_number)
    shift_sd: Scalar = eqx.field(default=0.1, converter=as_number)

    secret_fields = (
        Field("heat_loss", "kW/K", 0.0, 2.0),
        Field("capacity", "kWh/K", 0.5, 100.0),
        Field("set_point", "degC", 10.0, 30.0),
    )
    external_fields = (Field("shift", "K", -5.0, 5.0),)
    exogenous_fields = (
        Field("outdoor", "degC", -40.0, 45.0),
        Field("tariff", "EUR/kWh", -1.0, 5.0),
        Field("people", "", 0.0, 50.0, private=True),
    )
    cost_fields = (
        CostPart("heat", "kWh", 0.0),
        CostPart("bill", "EUR", 1.0),
        CostPart("discomfort", "K h", 0.2),
    )
    nouns = Nouns("the household", "the insulation, mass and set-point of the building", "building")

    @property
    def state_fields(self) -> tuple[Field, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The temperature of the room, and of the envelope if there is one."""
        return (_AIR, _SHELL) if self.envelope else (_AIR,)

    def initial(self, secret: Secret) -> Gaussian:
        """A room that is heated, an envelope between it and the winter; the same for every secret."""
        del secret
        mean = jnp.asarray([20.5, 15.0] if self.envelope else [20.5], self.initial_sd.dtype)
        return diagonal_gaussian(mean, jnp.broadcast_to(self.initial_sd, mean.shape))

    def initial_external(self) -> Answer:
        """No shift at first."""
        return jnp.zeros_like(self.shift_sd)[None]

    def heating(self, secret: Secret, state: State, now: Inputs) -> Scalar:
        """The heating power of one step, kW.

        Args:
            secret: heat loss, capacity, set-point.
            state: the temperatures.
            now: the inputs of this step.
        """
        loss, _, wish = secret
        aim = wish + now.shift
        return jnp.clip(
            loss * (aim - now.outdoor) + self.thermostat * (aim - state[0]), 0.0, self.largest_power
        )

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One hour of the heat balance, Gaussian around its mean."""
        now = self.inputs(external)
        loss, capacity, _ = secret
        daylight = jnp.maximum(jnp.sin(jnp.pi * (now.hour - 7.0) / 10.0), 0.0)
        heat = self.heating(secret, state, now) + self.body_heat * now.people + self.solar * daylight
        part = 1.0 / _SUBSTEPS
        if not self.envelope:
            room = state[0]
            for _ in range(_SUBSTEPS):
                room = room + part * (heat - loss * (room - now.outdoor)) / capacity
            return diagonal_gaussian(room[None], self.noise_sd[None])
        room, shell = state
        inner, outer = loss / self.room_resistance, loss / (1.0 - self.room_resistance)
        air, mass = self.room_capacity * capacity, (1.0 - self.room_capacity) * capacity
        for _ in range(_SUBSTEPS):
            through = inner * (room - shell)
            room, shell = (
                room + part * (heat - through) / air,
                shell + part * (through - outer * (shell - now.outdoor)) / mass,
            )
        return diagonal_gaussian(jnp.stack([room, shell]), jnp.stack([self.noise_sd, self.envelope_sd]))

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The aggregator lowers the set-point while energy is dear, and more where it is warm."""
        now = self.inputs(external)
        shift = -5.0 * (now.tariff - 0.28) + self.shift_sd * noise[0]
        if shared is not None:
            shift = shift - 0.3 * (shared[0] - 20.5)
        return jnp.clip(shift, -2.0, 2.0)[None]

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Mapping[str, Scalar]:
        """Heat in kWh, its price in EUR, and how far the room is from what its people want, in K h."""
        del shared
        now = self.inputs(external)
        heat = self.heating(secret, state, now)
        return {"heat": heat, "bill": heat * now.tariff, "discomfort": jnp.abs(after[0] - secret[2])}

    def scenarios(self) -> tuple[Scenario, ...]:
        """Sun through the windows, which the model does not know, and twice the draughts."""
        sunny = eqx.tree_at(lambda one: one.solar, self, self.solar + 1.0)
        draughty = eqx.tree_at(lambda one: one.noise_sd, self, 2.0 * self.noise_sd)
        found = (("sunny rooms", sunny), ("draughts", draughty))
        return tuple(Scenario(name, plant, self.prior.secrets) for name, plant in found)

    def misspecified_models(self) -> Mapping[str, System]:
        """A reader who thinks that the building has one capacity."""
        return {"there is no envelope": _without_envelope(self)} if self.envelope else {}


def _without_envelope(building: Building) -> Building:
    """The same building as a single capacity."""
    return Building(
        building.prior,
        building.series,
        envelope=False,
        thermostat=building.thermostat,
        largest_power=building.largest_power,
        body_heat=building.body_heat,
        solar=building.solar,
        noise_sd=building.noise_sd,
        initial_sd=building.initial_sd,
        shift_sd=building.shift_sd,
    )
