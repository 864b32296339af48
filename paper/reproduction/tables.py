"""The tables of a reproduction as Markdown: printed rows above ours."""

from collections.abc import Iterable, Sequence

from paper.reproduction.printed import PRINTED, What
from paper.reproduction.summary import WIDE, Drive, Summary
from veil.stats import Mean

HEADS: dict[What, str] = {"fuel": "fuel, mL/s", "squared": "E[a²], m²/s⁴", "change": "E[(Δa)²], m²/s⁴"}


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the first column is to the left."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def ranged(mean: Mean | None, digits: int = 3) -> str:
    """A mean with half of its 95 % interval."""
    return "–" if mean is None else f"{mean.value:.{digits}f} ± {WIDE * mean.error:.{digits}f}"


def table_1(found: dict[str, Drive]) -> str:
    """Fuel, and how it changes against true data under the same random numbers."""
    secrets = range(1, 1 + len(next(iter(found.values())).fuel))
    heads = ["fuel, mL/s", *(f"θ{n}" for n in secrets), "against True Data, %", "mean speed, m/s"]
    rows = []
    for one in found.values():
        rows += _printed(one, "fuel", len(heads))
        speed = sum(mean.value for mean in one.speed) / len(one.speed)
        changes = "–" if one.column.printed == "true" else ranged(one.overall, 2)
        rows.append([one.column.title, *map(ranged, one.fuel), changes, f"{speed:.3f}"])
    return markdown(heads, rows)


def table_2(found: dict[str, Drive]) -> str:
    """Both measures of acceleration."""
    return "\n".join(_acceleration(found, what) for what in ("squared", "change"))


def _acceleration(found: dict[str, Drive], what: What) -> str:
    secrets = range(1, 1 + len(next(iter(found.values())).fuel))
    heads = [HEADS[what], *(f"θ{n}" for n in secrets)]
    rows = []
    for one in found.values():
        rows += _printed(one, what, len(heads))
        rows.append([one.column.title, *map(ranged, getattr(one, what))])
    return markdown(heads, rows)


def _printed(one: Drive, what: What, width: int) -> list[list[str]]:
    """The row of the paper that this column stands beside, if any."""
    if one.column.printed is None:
        return []
    values = [f"{value:.2f}" for value in PRINTED[what][one.column.printed]]
    title = f"*{one.column.printed} in the paper*"
    return [[title, *values, *[""] * (width - 1 - len(values))]]


def table_3(found: dict[str, Summary]) -> str:
    """Privacy and what is left of the data."""
    heads = (
        *("", "leakage, nats", "s.e.", "distortion per step", "posterior on θ* at the end, θ1 to θ4"),
        *("tracking, m/s and m", "variance explained", "the paper's bound, summed", "clamped per step"),
    )
    return markdown(heads, [_privacy(one) for one in found.values()])


def _privacy(one: Summary) -> list[str]:
    reader = one.reader
    posterior = "–" if reader is None else ", ".join(f"{mean.value:.2f}" for mean in reader.posterior)
    tracking = "–" if reader is None else ", ".join(f"{error:.3f}" for error in reader.tracking)
    explained = "–" if reader is None else f"{reader.explained:.0%}"
    error = max(one.leakage.lower.error, one.leakage.upper.error if one.trusted else 0.0)
    if not one.trusted and one.attacker is not None and one.attacker.value > one.leakage.lower.value:
        error = one.attacker.error
    return [
        *(one.column.title, leakage_text(one), f"{error:.3f}", ranged(one.distortion), posterior, tracking),
        *(explained, ranged(one.bound, 2), ranged(one.clamped, 2)),
    ]


def leakage_text(one: Summary) -> str:
    """The leakage from both sides; only from below where no bound from above is believed."""
    lower = max(one.leakage.lower.value, 0.0)
    if not one.trusted:
        if one.attacker is not None and one.attacker.value > lower:
            return f"at least {one.attacker.value:.3f} by a trained attacker, no bound from above"
        return f"at least {lower:.3f}, no bound from above"
    return f"{lower:.3f} to {one.leakage.upper.value:.3f}"
