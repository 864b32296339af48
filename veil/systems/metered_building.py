"""A building that is heated and cooled by a service which reads its temperature; its construction is secret.

The service meters the power that it delivers, so that heating and cooling are inputs and not guesses of a
model. This is the system for recordings that hold the heating power.
"""

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from veil.laws import Gaussian, diagonal_gaussian
from veil.registry import SYSTEMS
from veil.systems.base import CostPart, Nouns, Prior, Scenario, finite_prior
from veil.systems.building import SharesIndoor, winter_month
from veil.systems.series import Field, Series
from veil.types import Answer, External, Noise, Scalar, Secret, Shared, State, as_number

BUILDINGS = tuple(
    (loss, mass, 0.25, 0.3, lag, 2.0) for loss in (0.1, 0.2) for mass in (6.0, 12.0) for lag in (0.3, 1.5)
)
"""Eight secrets: heat loss, capacity, the room's shares of both, lag of the emitters, area of the windows."""

_PARTS = 2  # of an hour, in which the power of the emitters is constant


def winter_sun(hours: int = 744) -> Series:
    """Outdoor temperature, sun and people at home for a month of hours, always the same.

    Weather and people are those of `veil.systems.building.winter_month`. The sun shines from 8 to 16 o'clock,
    with at most 250 W/m² on a vertical window, and half of it on every third day.

    Args:
        hours: number of rows.
    """
    clock = np.arange(hours)
    wave = np.maximum(np.sin(np.pi * (clock % 24 - 8) / 8.0), 0.0) * ((clock % 24 > 8) & (clock % 24 < 16))
    clouds = np.where((clock // 24) % 3 == 2, 0.5, 1.0)
    known = winter_month(hours)
    outdoor, _, people = np.asarray(known.values, float).T
    return Series({"outdoor": outdoor, "sun": np.round(250.0 * wave * clouds, 1), "people": people})


@SYSTEMS.register(
    "metered_building", "a building whose heating power a service sets and meters; its construction is secret"
)
class MeteredBuilding(SharesIndoor):
    """Two resistances, two capacities and emitters with a lag; one hour per step.

    With heat loss H, capacity C, shares a of the capacity and b of the resistance in the room, lag τ of the
    emitters and window area A as secrets:

        τ dP/dt          = heat − P
        a C dTi/dt       = (H / b) (Te − Ti) + P − cooling + g · people + A · sun
        (1 − a) C dTe/dt = (H / b) (Ti − Te) + H / (1 − b) (To − Te)

    Only the temperature Ti of the room is read. The temperature Te of the envelope and the power P that the
    emitters give to the room are hidden. The solution is exact but for P, which the room gets as its average
    over each half hour; so it is stable however light the room is.

    Attributes:
        prior: secrets (H, C, a, b, τ, A), by default eight, equally likely.
        series: outdoor temperature, sun and people at home, one row per hour.
        comfort: temperature that the service aims at, degC.
        largest_power: of heating and of cooling, kW.
        body_heat: g, kW per person.
        noise_sd: of the room per step, K.
        envelope_sd: of the envelope per step, K.
        emitter_sd: of the emitters' power per step, kW.
        initial_sd: of both temperatures at the start, K.
        order_sd: of the service's orders, kW.
    """

    prior: Prior = eqx.field(default_factory=lambda: finite_prior(BUILDINGS))
    series: Series = eqx.field(default_factory=winter_sun)
    comfort: Scalar = eqx.field(default=20.5, converter=as_number)
    largest_power: Scalar = eqx.field(default=8.0, converter=as_number)
    body_heat: Scalar = eqx.field(default=0.1, converter=as_number)
    noise_sd: Scalar = eqx.field(default=0.1, converter=as_number)
    envelope_sd: Scalar = eqx.field(default=0.03, converter=as_number)
    emitter_sd: Scalar = eqx.field(default=0.05, converter=as_number)
    initial_sd: Scalar = eqx.field(default=0.7, converter=as_number)
    order_sd: Scalar = eqx.field(default=0.3, converter=as_number)

    secret_fields = (
        Field("heat_loss", "kW/K", 1e-3, 20.0),
        Field("capacity", "kWh/K", 0.1, 1000.0),
        Field("room_capacity", "", 0.01, 0.95),
        Field("room_resistance", "", 0.02, 0.95),
        Field("emitter_lag", "h", 0.02, 24.0),
        Field("window_area", "m2", 0.0, 500.0),
    )
    state_fields = (
        Field("indoor", "degC", -10.0, 50.0),
        Field("envelope", "degC", -30.0, 50.0),
        Field("emitter_power", "kW", -50.0, 500.0),
    )
    external_fields = (Field("heat", "kW", 0.0, 500.0), Field("cooling", "kW", 0.0, 500.0))
    exogenous_fields = (
        Field("outdoor", "degC", -40.0, 45.0),
        Field("sun", "W/m2", 0.0, 1400.0),
        Field("people", "", 0.0, 50.0, private=True),
    )
    cost_fields = (CostPart("energy", "kWh", 0.2), CostPart("discomfort", "K h", 0.2))
    nouns = Nouns("the household", "the insulation, mass and heating of the building", "building")

    def initial(self, secret: Secret) -> Gaussian:
        """A room that is heated, an envelope between it and the winter; the same for every secret."""
        del secret
        mean = jnp.asarray([20.5, 15.0, 2.0], self.initial_sd.dtype)
        return diagonal_gaussian(mean, jnp.broadcast_to(self.initial_sd, mean.shape))

    def initial_external(self) -> Answer:
        """A power that is usual in winter."""
        return jnp.stack([2.0 * jnp.ones_like(self.comfort), jnp.zeros_like(self.comfort)])

    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """One hour of the heat balance, Gaussian around its mean."""
        now = self.inputs(external)
        loss, capacity, room_share, resistance, lag, windows = secret
        room, shell, power = state
        part = 1.0 / _PARTS
        keep = jnp.exp(-part / lag)
        gains = self.body_heat * now.people + windows * now.sun / 1000.0 - now.cooling
        inner, outer = loss / resistance, loss / (1.0 - resistance)
        # d(T − T∞)/dt = M (T − T∞), M = [[−quick, quick], [slow, −slow − out]]; exp(M) in closed form
        air, mass = room_share * capacity, (1.0 - room_share) * capacity
        quick, slow, out = inner / air, inner / mass, outer / mass
        middle, tilt = -0.5 * (quick + slow + out), 0.5 * (slow + out - quick)
        root = jnp.sqrt(tilt**2 + quick * slow)
        late, early = jnp.exp(part * (middle + root)), jnp.exp(part * (middle - root))
        same, cross = 0.5 * (late + early), 0.5 * (late - early) / root
        for _ in range(_PARTS):
            given = now.heat + (power - now.heat) * lag * (1.0 - keep) / part
            power = now.heat + (power - now.heat) * keep
            shell_end = now.outdoor + (given + gains) / outer
            room_end = shell_end + (given + gains) / inner
            warm, deep = room - room_end, shell - shell_end
            room, shell = (
                room_end + (same + cross * tilt) * warm + cross * quick * deep,
                shell_end + cross * slow * warm + (same - cross * tilt) * deep,
            )
        sds = jnp.stack([self.noise_sd, self.envelope_sd, self.emitter_sd])
        return diagonal_gaussian(jnp.stack([room, shell, power]), sds)

    def react(self, external: External, shared: Shared | None, noise: Noise) -> Answer:
        """The service heats by the weather and by the temperature that it is told."""
        now = self.inputs(external)
        order = 0.15 * (self.comfort - now.outdoor) + self.order_sd * noise[0]
        if shared is not None:
            order = order + 0.8 * (self.comfort - shared[0])
        heat, cooling = jnp.maximum(order, 0.0), jnp.maximum(-order, 0.0)
        return jnp.minimum(jnp.stack([heat, cooling]), self.largest_power)

    def cost(
        self, secret: Secret, state: State, after: State, shared: Shared, external: External
    ) -> Mapping[str, Scalar]:
        """Energy in kWh, and how far the room is from comfort, in K h."""
        del secret, state, shared
        now = self.inputs(external)
        return {"energy": now.heat + now.cooling, "discomfort": jnp.abs(after[0] - self.comfort)}

    def scenarios(self) -> tuple[Scenario, ...]:
        """Twice the draughts."""
        draughty = eqx.tree_at(lambda one: one.noise_sd, self, 2.0 * self.noise_sd)
        return (Scenario("draughts", draughty, self.prior.secrets),)
