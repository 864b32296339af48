"""Which coordinates of a recording the transition of a system needs, read off the traced program."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veil.laws import Gaussian
from veil.systems.base import System
from veil.traced import dependence


@dataclass(frozen=True)
class Needs:
    """What is used of a system's numbers.

    Attributes:
        state: coordinates of the state that the output shows; the others need not be recorded.
        external: inputs that the law of the next state uses; what the others were does not matter.
        telling: coordinates of the next state whose law uses the secret.
    """

    state: tuple[bool, ...]
    external: tuple[bool, ...]
    telling: tuple[bool, ...]


def needs(system: System) -> Needs:
    """Find out by tracing; nothing is simulated."""
    secret, external = system.prior.secrets[0], system.first_external()
    state = system.initial(secret).mean
    size = state.shape[0]

    def parts(law: Gaussian):
        return law.mean, law.scale

    shown = dependence(system.output, state)
    used = dependence(lambda w: parts(system.transition(secret, state, w)), external)
    by_secret = dependence(lambda theta: parts(system.transition(theta, state, external)), secret)
    by_axis = np.asarray(np.any(by_secret, axis=0))
    telling = by_axis[:size] | np.any(by_axis[size:].reshape(size, size), axis=1)
    return Needs(_flags(np.any(shown, axis=1)), _flags(np.any(used, axis=1)), _flags(telling))


def _flags(found: ArrayLike) -> tuple[bool, ...]:
    return tuple(bool(x) for x in np.asarray(found))
