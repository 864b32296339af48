"""What the owner of a fitted self-model declares in public, and what its stream is charged for it.

A fit has errors, and they can be told from the releases: about (P/2)·T/n nats in T releases for P numbers
that were estimated from n steps, and what the best rival predicts better comes on top. A charge by the true
n, P and gain would be a public number that differs from owner to owner. So the owner declares bounds on them,
from a public grid, and the charge is a public function of the declaration. Whether the fit keeps the
declaration is checked in private, before the stream begins.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

from veil.results.fit import Individual

GRID = (1.0, 2.0, 5.0)  # times a power of ten: what may be declared


class DeclarationError(ValueError):
    """A fit that does not keep what is declared, or a declaration that is not on the grid."""


@dataclass(frozen=True)
class Declared:
    """A public statement about a private fit; each number is 1, 2 or 5 times a power of ten.

    Attributes:
        steps: n; the fit was made from at least so many private steps.
        numbers: P; it estimated at most so many numbers.
        rival_gain: r, nats; on steps that were held out, no rival gains more in `horizon` steps.
        horizon: T, steps.
    """

    steps: int
    numbers: int
    rival_gain: float
    horizon: int = 50

    def __post_init__(self) -> None:
        """Refuse what is not on the grid: a finer statement would tell more about the fit."""
        for name, value in asdict(self).items():
            if not on_grid(value):
                raise DeclarationError(
                    f"What is declared about a fit is 1, 2 or 5 times a power of ten, so that many owners "
                    f"declare the same; {name} is {value:g}."
                )

    @property
    def rate(self) -> float:
        """Nats per release: (P/2)/n + r/T."""
        return 0.5 * self.numbers / self.steps + self.rival_gain / self.horizon

    def check(self, fit: Individual) -> None:
        """Raise `DeclarationError` where a fit does not keep this; the text is for the owner alone.

        Args:
            fit: of the owner.
        """
        gain = fit.rival_loss(self.horizon)
        wrong = []
        if not fit.steps >= self.steps:
            wrong.append(f"it was made from {fit.steps} steps, not {self.steps}")
        if not fit.estimated <= self.numbers:
            wrong.append(f"it estimated {fit.estimated} numbers, more than {self.numbers}")
        if not gain <= self.rival_gain:
            wrong.append(
                f"a rival ({fit.rival.name}) gains {gain:.3g} nats in {self.horizon} steps, more than "
                f"{self.rival_gain:g}"
            )
        if wrong:
            raise DeclarationError(
                f"The fit does not keep what is declared: {'; '.join(wrong)}. Nothing was shared. Record "
                "more, or declare less."
            )

    def to_dict(self) -> dict[str, Any]:
        """What the first line of the ledger says."""
        return asdict(self) | {"rate": self.rate}


def on_grid(value: float | int) -> bool:
    """Whether a number is 1, 2 or 5 times a power of ten."""
    if not 0.0 < value < math.inf:
        return False
    power = 10.0 ** math.floor(math.log10(value) + 1e-9)
    return any(math.isclose(value, digit * power, rel_tol=1e-9) for digit in GRID)
