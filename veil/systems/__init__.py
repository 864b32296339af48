"""Systems with a secret parameter: the contract, and the systems that come with Veil."""

from veil.systems.base import CostPart, Nouns, Prior, Scenario, System, finite_prior, quasi_random_prior
from veil.systems.battery import Battery
from veil.systems.building import Building
from veil.systems.coloured import WithColouredNoise
from veil.systems.disturbed import WithDrift, WithHeavyTails
from veil.systems.driver import Driver, IdmDriver
from veil.systems.gain import Gain
from veil.systems.metered_building import MeteredBuilding
from veil.systems.platoon import ColouredPlatoon, IdmPlatoon, Platoon
from veil.systems.scenarios import brief_scenarios, nominal, other_scenarios
from veil.systems.series import Field, Series
from veil.systems.variants import (
    KnownStart,
    WithInitial,
    WithNoise,
    WithNoiseBySecret,
    WithPrior,
    WithResolution,
    WithSeries,
    name_of,
    resolution_of,
    with_resolution,
    without_sensor,
)
from veil.systems.vehicles import (
    AcceleratingLeader,
    Controller,
    IndependentLeader,
    Leader,
    WanderingLeader,
    fuel_rate,
    optimal_velocity,
)

__all__ = [
    "AcceleratingLeader",
    "Battery",
    "Building",
    "ColouredPlatoon",
    "Controller",
    "CostPart",
    "Driver",
    "Field",
    "Gain",
    "IdmDriver",
    "IdmPlatoon",
    "IndependentLeader",
    "KnownStart",
    "Leader",
    "MeteredBuilding",
    "Nouns",
    "Platoon",
    "Prior",
    "Scenario",
    "Series",
    "System",
    "WanderingLeader",
    "WithColouredNoise",
    "WithDrift",
    "WithHeavyTails",
    "WithInitial",
    "WithNoise",
    "WithNoiseBySecret",
    "WithPrior",
    "WithResolution",
    "WithSeries",
    "brief_scenarios",
    "finite_prior",
    "fuel_rate",
    "name_of",
    "nominal",
    "optimal_velocity",
    "other_scenarios",
    "quasi_random_prior",
    "resolution_of",
    "with_resolution",
    "without_sensor",
]
