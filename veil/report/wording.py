"""The plain words of a report. What leaks at most is rounded up, what leaks at least is rounded down."""

import math

from veil.report.audit_reader import Found
from veil.results.audit import AttackResult, Quantity
from veil.results.audit_text import percent
from veil.stats import Mean

NOUNS = {"platoon": "driver", "colouredplatoon": "driver", "idmplatoon": "driver", "gain": "gain"}

LITTLE = 0.05  # share of all there is to know up to which a bounded leakage is called little


def at_most(value: float) -> str:
    """Three decimals, rounded up; a hair's breadth of rounding error does not cost a digit."""
    return f"{math.ceil(1e3 * value - 1e-7) / 1e3 + 0.0:.3f}"


def at_least(value: float) -> str:
    """Three decimals, rounded down."""
    return f"{math.floor(1e3 * value + 1e-7) / 1e3 + 0.0:.3f}"


def ends(interval: tuple[float, float], entropy: float) -> str:
    """An interval of nats; its upper end is never said to be more than there is."""
    low, high = interval
    return f"{at_least(low)} to {at_most(high) if high < entropy else f'{entropy:.3f}'}"


def charged(value: float) -> str:
    """Nats of a ledger, rounded up; what is next to nothing is said so."""
    return "less than 0.001 nats" if 0.0 < value < 1e-3 else f"{at_most(value)} nats"


def bits(value: float) -> float:
    """Nats in bits, for people."""
    return value / math.log(2)


def noun(system: str) -> str:
    """What the secret is called in sentences."""
    return NOUNS.get(system, "secret")


def pill(found: Found) -> str:
    """The verdict in a few words."""
    (low, high), entropy = found.interval, found.leakage.entropy
    if found.refused:
        return "Not certified"
    if found.certified:
        return (
            f"At most {100 * high / entropy:.{_digits(high / entropy)}f} % leaks"
            if entropy > 0
            else "No secret"
        )
    return f"At least {math.floor(100 * low / entropy)} % leaks"


def tone(found: Found) -> str:
    """How the verdict looks: "good" if little leaks for sure, "bad" if a leak is proven, else "open"."""
    if found.refused:
        return "open"
    if not found.certified:
        return "bad"
    return "good" if found.interval[1] <= LITTLE * found.leakage.entropy else "open"


def _digits(share: float) -> int:
    """Of a share in per cent: one where it is small."""
    return 1 if share < 0.1 else 0


def guessing(found: Found, secret: str) -> str:
    """How well the best adversary does."""
    best = found.best
    if best is None:
        return f"No adversary was asked to guess the {secret}."
    right, chance = percent(best.accuracy.value), percent(found.chance)
    return (
        f"An adversary who knows everything but the {secret} guesses right {right} of the time; "
        f"{chance} would be chance."
    )


def learning(found: Found) -> str:
    """What is proven about the leakage."""
    (low, high), entropy = found.interval, found.leakage.entropy
    if entropy <= 0.0:
        return "There is only one secret, so there is nothing to learn."
    over, whole = f"In {found.horizon} releases", f"of the {entropy:.3f} nats there are to know"
    if found.certified:
        return (
            f"{over} it learns between {ends((low, high), entropy).replace(' to ', ' and ')} {whole}, three "
            "standard errors included."
        )
    if not found.refused:
        return f"{over} it learns at least {at_least(low)} {whole}, three standard errors included."
    reasons = "; ".join(found.reasons) or found.verdict.replace("_", " ")
    known = f" At least {at_least(low)} nats do leak." if low >= 1e-3 else ""
    return f"Nothing is certified: {reasons}. Assume that all {entropy:.3f} nats may leak.{known}"


def compared(first: tuple[str, Found], second: tuple[str, Found]) -> str:
    """Two runs in one sentence; nothing where their intervals overlap or one is not to be believed."""
    rows = sorted([first, second], key=lambda row: row[1].interval[1])
    (quiet_name, quiet), (loud_name, loud) = rows
    if not quiet.certified or quiet.interval[1] >= loud.interval[0]:
        return ""
    return (
        f"“{quiet_name}” tells at most {at_most(quiet.interval[1])} nats where “{loud_name}” tells at least "
        f"{at_least(loud.interval[0])}."
    )


def mean(value: Mean | None, decimals: int = 3) -> str:
    """A mean and its standard error; nothing where there is none."""
    if value is None:
        return ""
    if not math.isfinite(value.value):
        return "unknown"
    error = f" ± {value.error:.{decimals}f}" if math.isfinite(value.error) else ""
    return f"{signless(value.value, decimals)}{error}"


def signless(value: float, decimals: int) -> str:
    """A number without a minus before zero."""
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0.0 else text.replace("-", "−")


def change(row: Quantity) -> str:
    """Per cent against true data, with sign and standard error."""
    if row.change is None:
        return ""
    if not math.isfinite(row.change.value):
        return "unknown"
    sign = "+" if row.change.value > 0 else ""
    error = f" ± {row.change.error:.2f}" if math.isfinite(row.change.error) else ""
    return f"{sign}{signless(row.change.value, 2)} %{error}"


def rate(row: AttackResult) -> str:
    """How often an attacker is right, with its interval."""
    low, high = (percent(end).removesuffix(" %") for end in (row.accuracy.low, row.accuracy.high))
    return f"{percent(row.accuracy.value)} ({low} to {high})"


def amount(value: float) -> str:
    """A number of any size in four digits."""
    return "unknown" if not math.isfinite(value) else f"{value:.4g}".replace("-", "−")


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds // 60)}:{int(seconds % 60):02d} min"
