"""The demo's result in five lines, for a terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.results import Audit
    from veil.sharing.account import Account


MARGIN = 11  # letters of the first word of each line


def lines(true: "Audit", learned: "Audit", account: "Account") -> list[str]:
    """What true data tell, what the policy tells, what it is good for, what it costs, what was spent live."""
    return [
        _line("True data", told(true)),
        _line("Learned", told(learned)),
        _line("Use", usefulness(learned)),
        _line("Cost", cost(learned)),
        _line("Live", spent(account)),
    ]


def told(found: "Audit") -> str:
    """How well the best adversary guesses, and what it learns."""
    from veil.results.text import at_least, interval_text, percent

    (low, _), entropy, best = found.interval, found.leakage.entropy, found.best_attack
    guess = (
        ""
        if best is None
        else f"names the right {found.nouns.candidate} {percent(best.accuracy.value)} of the time "
    )
    guess += f"({percent(found.chance)} by chance)" if best is not None else ""
    if found.verdict.certified:
        amount = f"learns {interval_text(found.interval, entropy)} of {entropy:.3f} nats"
    elif found.verdict.refused:
        amount = "nothing is certified: assume that everything may leak"
    else:
        amount = f"learns at least {at_least(low)} of {entropy:.3f} nats"
    return f"an adversary {guess}; {amount}."


def spent(account: "Account") -> str:
    """What the live stream was charged."""
    from veil.results.text import charged

    return f"{len(account)} releases, {charged(account.total)} charged of a budget of {account.budget:g}."


def usefulness(found: "Audit") -> str:
    """How far off the receiver is."""
    from veil.results.parts import TRACKING

    distortion = found.quantity("distortion")
    errors = [
        f"{row.value.value:.2f} {row.unit} in {row.name.removeprefix(TRACKING)}"
        for row in found.utility
        if row.name.startswith(TRACKING)
    ]
    mean = "" if distortion is None else f" (mean distortion {distortion.value.value:.2f})"
    return f"whoever receives the data is off by {' and '.join(errors)}{mean}."


def cost(found: "Audit") -> str:
    """Fuel against true data."""
    from veil.results.text import change_text

    row = found.quantity("cost")
    return "unknown." if row is None or row.change is None else f"fuel {change_text(row)} against true data."


def _line(word: str, text: str) -> str:
    return f"{word:<{MARGIN}}{text}"
