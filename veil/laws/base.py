"""What every law offers: a density and a draw, both as pure functions of explicit noise."""

import abc

import equinox as eqx

from veil.types import Noise, Scalar, Vector


class Law(eqx.Module):
    """The law of one random vector.

    Randomness is an argument: `sample` maps standard normal noise to a value, so the same noise can
    drive several laws (common random numbers), draws are differentiable, and a replay is exact.
    """

    @property
    @abc.abstractmethod
    def noise_size(self) -> int:
        """How many independent standard normal numbers one draw takes."""

    @abc.abstractmethod
    def sample(self, noise: Noise) -> Vector:
        """The value that this noise stands for."""

    @abc.abstractmethod
    def log_prob(self, value: Vector) -> Scalar:
        """Log density at `value` (log mass where the law is finite), in nats."""

    @abc.abstractmethod
    def log_choice(self, noise: Noise) -> Scalar:
        """Log-probability of the discrete part of the draw `sample(noise)`; zero where there is none.

        A draw has no derivative in the masses that it chooses by; this has, for score-function gradients.
        """
