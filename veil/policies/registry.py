"""Policies that need no training, by name and numbers: what a command line or a file can say of one."""

from dataclasses import dataclass

import jax.numpy as jnp
from jaxtyping import Array

from veil.beliefs.kalman import KalmanSpec
from veil.beliefs.particles import ParticleSpec
from veil.policies.base import Policy
from veil.policies.counterfactual import Counterfactual
from veil.policies.plain import Blind, GaussianNoise, Quantised, Truth
from veil.policies.subsampled import Subsampled
from veil.policies.transport import Transport
from veil.systems.base import System

FLOOR = 0.05  # sd per axis where a policy needs some noise and none was given


@dataclass(frozen=True)
class Named:
    """A policy that needs no training.

    Attributes:
        name: truth, noise, quantised, subsampled, blind, transport or counterfactual.
        sd: of its noise, one per shared axis in its unit; none where it is empty.
        step: cell of the quantiser, one per shared axis in its unit.
        every: steps per fresh release of the subsampled policy.
        particles: per secret in the belief of the transport policy; 0 for Kalman filters.
        share: how far the transport policy moves the output, from 0 to 1.
    """

    name: str
    sd: tuple[float, ...] = ()
    step: tuple[float, ...] = ()
    every: int = 0
    particles: int = 0
    share: float = 1.0

    def build(self, system: System) -> Policy:
        """The policy for a system."""
        floor = self.sd or (FLOOR,) * len(system.shared_fields)
        tracker = ParticleSpec(self.particles) if self.particles else KalmanSpec()
        plain = GaussianNoise(system, _array(self.sd)) if self.sd else Truth(system)
        makers = {
            "truth": lambda: plain,
            "noise": lambda: plain,
            "quantised": lambda: Quantised(system, _array(self.step)),
            "subsampled": lambda: Subsampled(plain, self.every),
            "blind": lambda: Blind(system, _array(floor)),
            "transport": lambda: Transport(system, _array(floor), tracker, share=_array(self.share)),
            "counterfactual": lambda: Counterfactual(system, _array(self.sd) if self.sd else None),
        }
        if self.name not in makers:
            raise ValueError(f"there is no policy '{self.name}'; choose {', '.join(makers)}.")
        return makers[self.name]()


def _array(values: float | tuple[float, ...]) -> Array:
    """In the precision that JAX is set to, so that a float64 system meets a float64 policy."""
    return jnp.asarray(values, float)
