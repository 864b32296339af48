"""The verdict, in plain words first: one card per run, then the headline numbers beside each other."""

from dataclasses import dataclass

from veil.report import wording as words
from veil.report.blocks import Missing, Table
from veil.report.gather import Material, not_audited
from veil.report.headline import numbers
from veil.report.source import Source


@dataclass(frozen=True)
class Card:
    """What to know about one run if nothing else is read.

    Attributes:
        name: of the run.
        tone: "good", "bad" or "open", for the look.
        pill: the verdict in a word or two.
        headline: how well the best adversary guesses.
        detail: what is proven about the leakage.
        advice: what to do; empty where all is well.
        bar: what leaks for sure and what leaks at most, in per cent of all there is to know; None without.
        scale: what the bar says, in words.
        missing: what to do where there is no audit; None where there is one.
    """

    name: str
    tone: str
    pill: str
    headline: str
    detail: str
    advice: str
    bar: tuple[float, float] | None
    scale: str
    missing: Missing | None = None


def card(source: Source) -> Card:
    """The card of one run."""
    found = source.audit
    if found is None:
        said = "Nobody has tried yet what this way of sharing tells."
        missing = not_audited(source)
        return Card(source.name, "open", "Not audited", said, "", source.note, None, "", missing)
    (low, high), entropy = found.interval, found.leakage.entropy
    bar = None
    if entropy > 0.0:
        bar = round(100.0 * low / entropy, 2), round(100.0 * high / entropy, 2)
    scale = f"{words.ends(found.interval, entropy)} of {entropy:.3f} nats"
    advice = " ".join(filter(None, (source.note, found.advice)))
    headline = words.guessing(found, words.noun(source.system))
    return Card(
        source.name, words.tone(found), words.pill(found), headline, words.learning(found), advice, bar, scale
    )


def cards(material: Material) -> list[Card]:
    """One per run, in their order."""
    return [card(source) for source in material.sources]


def comparison(material: Material) -> str:
    """Two runs in one sentence; nothing for other numbers of them."""
    audits = material.audited
    return words.compared(*audits) if len(audits) == 2 else ""


def headline_table(material: Material) -> Table | None:
    """Headline numbers, one column per run; None where nothing is known yet."""
    found = {source.name: {one.name: one for one in numbers(source)} for source in material.sources}
    labels: dict[str, str] = {}
    for rows in found.values():
        labels |= {name: one.label for name, one in rows.items() if name not in labels}
    lines = tuple(
        (label, *(rows[name].text if name in rows else "" for rows in found.values()))
        for name, label in labels.items()
    )
    return Table("", ("", *found), lines) if lines else None
