"""The top of a report: one card per run with its verdict, then the headline numbers beside each other.

The same numbers go into the table, the JSON file and the CSV file. Files speak nats.
"""

import math
from dataclasses import dataclass

from veil.reports.blocks import Missing, Table
from veil.reports.sources import Material, Source
from veil.results import Audit
from veil.results import text as words
from veil.results.parts import LITTLE, TRACKING, Quantity
from veil.sharing.account import Account
from veil.stats import CONFIDENCE, ERRORS, Mean
from veil.systems.base import Nouns


@dataclass(frozen=True)
class Card:
    """What to know about one run if nothing else is read.

    Attributes:
        name: of the run.
        tone: "good", "bad" or "open", for the look.
        pill: the verdict in a few words.
        headline: how well the best adversary guesses.
        detail: what is proven about the leakage, the worst scenario and the cost.
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
    audit = source.audit
    if audit is None:
        said = "Nobody has tried yet what this way of sharing tells."
        return Card(source.name, "open", "Not audited", said, "", source.note, None, "", source.not_audited())
    (low, high), entropy = audit.interval, audit.leakage.entropy
    bar = (round(100.0 * low / entropy, 2), round(100.0 * high / entropy, 2)) if entropy > 0.0 else None
    return Card(
        name=source.name,
        tone=tone(audit),
        pill=audit.in_short,
        headline=guessing(audit, source.nouns),
        detail=" ".join([learning(audit), *map(words.sentence, audit.clauses)]),
        advice=" ".join(filter(None, (source.note, audit.advice))),
        bar=bar,
        scale=f"{words.interval_text(audit.interval, entropy)} of {entropy:.3f} nats",
    )


def tone(audit: Audit) -> str:
    """How the verdict looks: "good" if little can leak, "bad" if more is proven to leak, else "open"."""
    (low, high), little = audit.interval, LITTLE * audit.leakage.entropy
    if audit.verdict.certified and high <= little:
        return "good"
    return "bad" if low > little else "open"


def guessing(audit: Audit, nouns: Nouns) -> str:
    """How well the best adversary does."""
    best = audit.best_attack
    if best is None:
        return f"No adversary was asked to guess {nouns.secret}."
    right, chance = words.percent(best.accuracy.value), words.percent(audit.chance)
    return (
        f"An adversary who knows everything but {nouns.secret} names the right {nouns.candidate} {right} of "
        f"the time; {chance} would be chance."
    )


def learning(audit: Audit) -> str:
    """What is proven about the leakage."""
    (low, high), entropy = audit.interval, audit.leakage.entropy
    if entropy <= 0.0:
        return "There is only one secret, so there is nothing to learn."
    over, whole = f"In {audit.horizon} releases", f"of the {entropy:.3f} nats there are to know"
    most = words.at_most(high) if high < entropy else f"{entropy:.3f}"
    least = f"at least {words.at_least(low)}"
    if audit.verdict.certified:
        sides = f"{least} and at most {most}" if low >= 1e-3 else f"at most {most}"
        return f"{over} it learns {sides} {whole}, with {CONFIDENCE} confidence."
    proven = f"{over} it learns {least} {whole}, with {CONFIDENCE} confidence."
    if not audit.verdict.refused:
        return proven
    reasons = "; ".join(audit.verdict.reasons) or audit.verdict.name.replace("_", " ")
    assume = f"Assume that all {entropy:.3f} nats may leak."
    if low >= 1e-3:
        return f"{proven} No upper bound is certified: {reasons}. {assume}"
    return f"Nothing is certified: {reasons}. {assume}"


def comparison(material: Material) -> str:
    """The quietest run against the loudest; nothing where their intervals overlap or one is not believed."""
    audits = material.audited
    if len(audits) < 2:
        return ""
    quiet_name, quiet = min(audits, key=lambda row: row[1].interval[1])
    loud_name, loud = max(audits, key=lambda row: row[1].interval[0])
    if not quiet.verdict.certified or quiet.interval[1] >= loud.interval[0]:
        return ""
    return (
        f"“{quiet_name}” tells at most {words.at_most(quiet.interval[1])} nats where “{loud_name}” tells at "
        f"least {words.at_least(loud.interval[0])}."
    )


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
        text: how it is shown to people.
    """

    name: str
    label: str
    value: float | None
    low: float | None
    high: float | None
    unit: str
    text: str


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


def numbers(source: Source) -> list[Number]:
    """All that is known about a run."""
    rows = [] if source.audit is None else [*_leaked(source.audit), *_used(source.audit)]
    return rows + _charged(source.account)


def _leaked(audit: Audit) -> list[Number]:
    """What leaks, and how often a guess is right."""
    low, high = audit.interval
    entropy, best = audit.leakage.entropy, audit.best_attack
    shares = words.share_text((low, high), entropy) if entropy > 0 else "nothing to tell"
    interval = f"{words.interval_text((low, high), entropy)} nats"
    ends = words.bits(low), words.bits(high)
    bits = f"{words.interval_text(ends, words.bits(entropy))} bits"
    rows = [
        Number("leakage", "Leakage of a run", None, low, high, "nats", interval),
        Number("leakage_bits", "In bits", None, *ends, "bits", bits),
        Number("entropy", "Of what there is to know", entropy, None, None, "nats", shares),
    ]
    if best is not None:
        rate = best.accuracy
        shown = f"{words.accuracy_text(best)}, by chance {words.percent(audit.chance)}"
        rows.append(
            Number("accuracy", "Best guess is right", rate.value, rate.low, rate.high, "fraction", shown)
        )
    worst = audit.realised_quantile(0.99)
    if math.isfinite(worst) and round(worst, 3) > 0 and not audit.verdict.refused:
        shown = f"more than {words.signed(worst, 3)} nats"
        rows.append(Number("worst_per_cent", "One run in a hundred tells", worst, None, None, "nats", shown))
    return rows


def _used(audit: Audit) -> list[Number]:
    """Distortion, what the receiver gets, cost and safety."""
    rows, distortion = [], audit.quantity("distortion")
    if distortion is not None:
        rows.append(_with_error("distortion", "Mean distortion per step", distortion.value, "per step"))
    for row in audit.utility:
        if row.name.startswith(TRACKING):
            axis = row.name.removeprefix(TRACKING)
            rows.append(_with_error(f"tracking_{axis}", f"Receiver is off by, {axis}", row.value, row.unit))
    cost = audit.quantity("cost")
    if cost is not None and cost.change is not None:
        rows.append(_against("cost_change", "Cost against true data", cost))
    for row in audit.utility:
        if row.own and row.change is not None:
            label = f"{row.name.capitalize()} against true data"
            rows.append(_against(row.name.replace(" ", "_") + "_change", label, row))
    return rows


def _charged(account: Account | None) -> list[Number]:
    """What the live stream spent."""
    if account is None:
        return []
    spent, label = account.total, f"Charged in {len(account)} live steps"
    rows = [Number("charged", label, spent, None, None, "nats", words.charged(spent))]
    if math.isfinite(account.budget):
        budget, shown = account.budget, f"{account.budget:g} nats"
        rows.append(Number("budget", "Budget of the live stream", budget, None, None, "nats", shown))
    return rows


def _with_error(name: str, label: str, value: Mean, unit: str) -> Number:
    shown = f"{words.mean_text(value)} {'' if unit == 'per step' else unit}".strip()
    return Number(name, label, *_ends(value), unit, shown)


def _against(name: str, label: str, row: Quantity) -> Number:
    assert row.change is not None
    return Number(name, label, *_ends(row.change), "%", words.change_text(row))


def _ends(value: Mean) -> tuple[float | None, float | None, float | None]:
    """Value and interval; what is not finite is unknown."""
    ends = value.value, value.low(ERRORS), value.high(ERRORS)
    first, low, high = (end if math.isfinite(end) else None for end in ends)
    return first, low, high
