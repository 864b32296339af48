"""Systems with a secret parameter: the contract, and the systems that come with Veil."""

from veil.systems.base import Field, Prior, System, finite_prior, quasi_random_prior
from veil.systems.gain import Gain
from veil.systems.idm_platoon import IdmPlatoon
from veil.systems.platoon import (
    AcceleratingLeader,
    ColouredPlatoon,
    Controller,
    IndependentLeader,
    Leader,
    Platoon,
    WanderingLeader,
    fuel_rate,
    optimal_velocity,
)
from veil.systems.variants import KnownStart, WithInitial, WithNoise, WithPrior

__all__ = [
    "AcceleratingLeader",
    "ColouredPlatoon",
    "Controller",
    "Field",
    "Gain",
    "IdmPlatoon",
    "IndependentLeader",
    "KnownStart",
    "Leader",
    "Platoon",
    "Prior",
    "System",
    "WanderingLeader",
    "WithInitial",
    "WithNoise",
    "WithPrior",
    "finite_prior",
    "fuel_rate",
    "optimal_velocity",
    "quasi_random_prior",
]
