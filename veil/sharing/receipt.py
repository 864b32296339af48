"""What the owner is told about each step. Nothing in it is secret: it follows from what was made public."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

Decision = Literal["released", "blurred", "blind", "withheld", "fault", "gap"]


@dataclass(frozen=True)
class Receipt:
    """One step of a stream.

    Attributes:
        step: its number, from 1.
        decision: "released" as the policy intends, "blurred", "blind" (what the public expects anyway),
            "withheld" for want of budget, "fault" (no usable input) or "gap" (no input at all).
        charge: nats charged for this step.
        total: nats charged so far.
        remaining: nats left; infinity without a budget.
        effective: smallest effective sample size over the secrets, as a share of the particles; None where
            the belief has no particles.
        milliseconds: from the input to the durable record, the writing itself left out.
        fault: what was wrong with the input; empty if nothing was.
    """

    step: int
    decision: Decision
    charge: float
    total: float
    remaining: float
    effective: float | None
    milliseconds: float
    fault: str = ""


class Release(NamedTuple):
    """What goes out (None where nothing does) and its receipt."""

    shared: np.ndarray | None
    receipt: Receipt


def release_of(entry: dict[str, Any]) -> Release:
    """A release as the ledger has it."""
    shared = None if entry["shared"] is None else np.asarray(entry["shared"], float)
    left = np.inf if entry["left"] is None else entry["left"]
    receipt = Receipt(
        entry["step"],
        entry["decision"],
        entry["charge"],
        entry["total"],
        max(0.0, left - entry["charge"]),
        entry["effective"],
        entry["milliseconds"],
    )
    return Release(shared, receipt)
