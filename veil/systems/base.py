"""The contract of a system with a secret."""

import abc
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import equinox as eqx

from veil.laws import Gaussian
from veil.systems.prior import Prior
from veil.types import External, Noise, Scalar, Secret, Shared, State

if TYPE_CHECKING:  # to a type checker these are attributes of the class, not arguments of its constructor
    from typing import ClassVar as Described
else:
    from equinox import AbstractVar as Described


@dataclass(frozen=True)
class Field:
    """Name, unit and range of one coordinate, for people and for input checks."""

    name: str
    unit: str = ""
    low: float = -math.inf
    high: float = math.inf


class System(eqx.Module):
    """A dynamical system whose transition depends on a secret θ, in a loop with an environment.

    x_{t+1} ~ p(· | θ, x_t, w_t) is private, y_t is shared, w_{t+1} ~ p(· | w_t, y_t) is public. All
    methods speak of one system, one state, one step; batches are made by `jax.vmap`. Randomness enters as
    standard normal noise, so one noise can drive every secret. `veil.check_system` examines an instance.
    """

    prior: eqx.AbstractVar[Prior]
    secret_fields: Described[tuple[Field, ...]]
    state_fields: Described[tuple[Field, ...]]
    external_fields: Described[tuple[Field, ...]]
    shared_fields: Described[tuple[Field, ...]]
    reaction_noise_size: Described[int]

    @abc.abstractmethod
    def initial(self, secret: Secret) -> Gaussian:
        """Law of x_1. Perfect privacy in closed form needs one that does not depend on the secret."""

    @abc.abstractmethod
    def initial_external(self) -> External:
        """The first external input w_1, public."""

    @abc.abstractmethod
    def transition(self, secret: Secret, state: State, external: External) -> Gaussian:
        """Law of the next state, p(x' | θ, x, w)."""

    @abc.abstractmethod
    def react(self, external: External, shared: Shared | None, noise: Noise) -> External:
        """W' given w and the release y; `shared` is None where the release was withheld."""

    @abc.abstractmethod
    def cost(self, secret: Secret, state: State, after: State, shared: Shared) -> Scalar:
        """r(θ, x, x', y): what one step costs the owner."""

    @abc.abstractmethod
    def distortion(self, state: State, shared: Shared) -> Scalar:
        """d(x, y): how far the release is from the truth."""

    @abc.abstractmethod
    def output(self, state: State) -> Shared:
        """What sharing without protection would release."""
