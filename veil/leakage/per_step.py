"""What one release will tell, given a belief and a kernel: the charge of a step."""

from collections.abc import Callable

import equinox as eqx

from veil.beliefs.base import Belief
from veil.beliefs.particles import ParticleBelief
from veil.laws import Kernel
from veil.leakage.finite import finite_information, finite_release
from veil.registry import LEAKAGE
from veil.types import Key, Scalar


class Measure(eqx.Module):
    """A way to measure I(Θ; Y_t | h_t) under a belief, in nats. Differentiable.

    Attributes:
        method: "estimate" is unbiased and vanishes with the leakage; the others are bounds without sampling.
            "live" is the cheapest that is tight: nearly exact for a Kalman belief.
            "regime_adaptive" and "kl_chernoff" are the paper's, and stay positive where nothing leaks.
        points: how many releases the estimate draws, all components together.
        own: a function of your own in place of a method: `own(components, key=key)`, nats out.
    """

    method: str = eqx.field(default="estimate", static=True)
    points: int = eqx.field(default=64, static=True)
    own: Callable[..., Scalar] | None = eqx.field(default=None, static=True)

    def __check_init__(self):
        able = LEAKAGE.able("of_step")
        if self.method not in able:
            raise ValueError(f"method must be one of {', '.join(able)}; got {self.method!r}.")
        if self.points < 1:
            raise ValueError("points counts the draws of the estimate; give at least 1, 64 is usual.")

    def __call__(self, belief: Belief, kernel: Kernel, *, key: Key) -> Scalar:
        """The leakage of the next release. That of a finite one is exact, whatever the method."""
        if isinstance(belief, ParticleBelief) and _finite(belief, kernel):
            return finite_information(belief.log_masses, finite_release(belief, kernel))
        components = belief.components(kernel)
        if self.own is not None:
            return self.own(components, key=key)
        return LEAKAGE[self.method]().of_step(components, self.points, key=key)


def _finite(belief: ParticleBelief, kernel: Kernel) -> bool:
    """Whether releases lie on a grid. Nothing is computed."""
    law = eqx.filter_eval_shape(kernel, belief.secrets[0], belief.states[0, 0])
    return law.is_finite
