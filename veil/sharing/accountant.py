"""A budget of nats: what was charged, what is left, and a refusal before it is overspent."""

import math
from collections.abc import Iterable

_ROUNDING = 1e-12  # relative: charges add up to the budget, not beyond it by more than rounding


class BudgetError(ValueError):
    """A charge that the budget does not cover."""


class Accountant:
    """Adds charges up and never lets them exceed the budget.

    The budget holds for the secret, whoever reads. Streams that are independent given the secret add up, so
    they may share one accountant: give the others this one as `shared`.

    Args:
        budget: nats; infinity counts without a limit.
        spent: charges from before, e.g. those of a ledger.
        shared: an accountant that every charge must fit in as well.
    """

    def __init__(
        self, budget: float = math.inf, spent: Iterable[float] = (), shared: "Accountant | None" = None
    ):
        if not budget >= 0.0:
            raise ValueError(f"A budget is a number of nats, 0 or more; got {budget}.")
        self.budget, self.shared = float(budget), shared
        self._spent = self._lost = 0.0
        for charge in spent:
            self.spend(charge)

    def total(self) -> float:
        """Nats charged so far."""
        return self._spent

    def remaining(self) -> float:
        """Nats left, here and in what is shared with others."""
        own = max(0.0, self.budget - self._spent)
        return own if self.shared is None else min(own, self.shared.remaining())

    def check(self, charge: float) -> None:
        """Raise `BudgetError` unless this charge is covered. Nothing is spent."""
        if not 0.0 <= charge < math.inf:
            raise ValueError(f"A charge is a finite number of nats, 0 or more; got {charge}.")
        slack = _ROUNDING * self.budget if math.isfinite(self.budget) else 0.0
        if self._spent + charge > self.budget + slack:
            raise BudgetError(
                f"A charge of {charge:.4g} nats is above the {self.remaining():.4g} nats left of "
                f"{self.budget:.4g}. Withhold the release, share a blind one, or add noise until it fits."
            )
        if self.shared is not None:
            self.shared.check(charge)

    def spend(self, charge: float) -> float:
        """Charge, here and in what is shared; gives the new total. What is not covered changes nothing."""
        self.check(charge)
        if self.shared is not None:
            self.shared.spend(charge)
        added, total = charge - self._lost, self.after(charge)
        self._lost = (total - self._spent) - added
        self._spent = total
        return total

    def after(self, charge: float) -> float:
        """The total that this charge would make; by compensated summation, so that small ones count."""
        return self._spent + (charge - self._lost)
