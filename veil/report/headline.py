"""The headline numbers of a run: the same ones for the table, for JSON and for CSV. Files speak nats."""

import math
from dataclasses import dataclass

from veil.report import wording as words
from veil.report.audit_reader import Found
from veil.report.source import Source
from veil.results.audit import Quantity
from veil.results.audit_text import percent
from veil.sharing.account import Account
from veil.stats import ERRORS, Mean

TRACKING = "tracking error, "

SAFETY = ("smallest gap", "time to collision")


@dataclass(frozen=True)
class Number:
    """One quantity of one run.

    Attributes:
        name: for programs.
        label: for people.
        value: in its unit; None where only an interval is known.
        low: lower end of its interval, or None.
        high: upper end of its interval, or None.
        unit: of all three.
        text: how people are told.
    """

    name: str
    label: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    text: str


def numbers(source: Source) -> list[Number]:
    """All that is known about a run."""
    found = source.audit
    return [*([] if found is None else _audited(found)), *_charged(source.account)]


def _audited(found: Found) -> list[Number]:
    """What the audit says."""
    low, high = found.interval
    entropy, best = found.leakage.entropy, found.best
    shares = (
        f"{100 * low / entropy:.1f} to {100 * high / entropy:.1f} %" if entropy > 0 else "nothing to tell"
    )
    rows = [
        Number(
            "leakage",
            "Leakage of a run",
            None,
            low,
            high,
            "nats",
            f"{words.ends((low, high), entropy)} nats",
        ),
        Number("leakage_bits", "In bits", None, words.bits(low), words.bits(high), "bits", _bits(found)),
        Number("entropy", "Of what there is to know", entropy, None, None, "nats", shares),
    ]
    if best is not None:
        accuracy = best.accuracy
        text = f"{words.rate(best)}, by chance {percent(found.chance)}"
        rows.append(
            Number(
                "accuracy", "Best guess is right", accuracy.value, accuracy.low, accuracy.high, "share", text
            )
        )
    worst = found.realised.get(0.99, math.nan)
    if math.isfinite(worst) and not found.refused:
        text = f"more than {words.signless(worst, 3)} nats"
        rows.append(Number("worst_per_cent", "One run in a hundred tells", worst, None, None, "nats", text))
    return rows + _used(found)


def _used(found: Found) -> list[Number]:
    """Distortion, what the receiver gets, cost and safety."""
    rows, distortion = [], found.quantity("distortion")
    if distortion is not None:
        rows.append(_with_error("distortion", "Mean distortion per step", distortion.value, "per step", 3))
    for row in found.utility:
        if row.name.startswith(TRACKING):
            axis = row.name.removeprefix(TRACKING)
            rows.append(
                _with_error(f"tracking_{axis}", f"Receiver is off by, {axis}", row.value, row.unit, 3)
            )
    cost = found.quantity("cost")
    if cost is not None and cost.change is not None:
        rows.append(_against("cost_change", "Cost against true data", cost))
    for row in found.utility:
        if row.name in SAFETY and row.change is not None:
            label = f"{row.name.capitalize()} against true data"
            rows.append(_against(row.name.replace(" ", "_") + "_change", label, row))
    return rows


def _charged(account: Account | None) -> list[Number]:
    """What the live stream spent."""
    if account is None:
        return []
    spent, steps = account.total, len(account)
    rows = [
        Number("charged", f"Charged in {steps} live steps", spent, None, None, "nats", words.charged(spent))
    ]
    if math.isfinite(account.budget):
        budget, text = account.budget, f"{account.budget:g} nats"
        rows.append(Number("budget", "Budget of the live stream", budget, None, None, "nats", text))
    return rows


def _with_error(name: str, label: str, value: Mean, unit: str, decimals: int) -> Number:
    text = f"{words.mean(value, decimals)} {'' if unit == 'per step' else unit}".strip()
    return Number(name, label, *_ends(value), unit, text)


def _against(name: str, label: str, row: Quantity) -> Number:
    assert row.change is not None
    return Number(name, label, *_ends(row.change), "%", words.change(row))


def _ends(value: Mean) -> tuple[float | None, float | None, float | None]:
    """Value and interval; what is not finite is unknown."""
    ends = value.value, value.low(ERRORS), value.high(ERRORS)
    first, low, high = (end if math.isfinite(end) else None for end in ends)
    return first, low, high


def _bits(found: Found) -> str:
    low, high, entropy = map(words.bits, (*found.interval, found.leakage.entropy))
    return f"{words.ends((low, high), entropy)} bits"
