"""Systems with a secret."""

from veil.systems.base import Field, System
from veil.systems.check import check_system
from veil.systems.fuel import fuel_rate
from veil.systems.gain import Gain
from veil.systems.idm import IdmPlatoon
from veil.systems.platoon import ColouredPlatoon, Platoon
from veil.systems.prior import Prior, finite_prior, quasi_random_prior
from veil.systems.report import SystemReport
from veil.systems.traffic import (
    AcceleratingLeader,
    Controller,
    IndependentLeader,
    Leader,
    WanderingLeader,
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
    "SystemReport",
    "WanderingLeader",
    "WithInitial",
    "WithNoise",
    "WithPrior",
    "check_system",
    "finite_prior",
    "fuel_rate",
    "optimal_velocity",
    "quasi_random_prior",
]
