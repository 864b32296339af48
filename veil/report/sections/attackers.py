"""Who tried to find the secret, and how far each one came."""

import numpy as np

from veil.plots import INK
from veil.report import wording as words
from veil.report.audit_reader import Found
from veil.report.blocks import ACCENT, GREY, WARN, Block, Picture, Section, Table, canvas, quiet, svg
from veil.report.gather import Material, not_audited
from veil.report.source import Source
from veil.results.audit import AttackResult
from veil.results.audit_text import percent

LEAD = "Several adversaries read the same releases. The best of those who play by the rules counts."

ROLES = {"attack": "", "assisted": "knows more", "mismatched": "believes something wrong"}

COLOURS = {"attack": ACCENT, "assisted": WARN, "mismatched": GREY}

PLAIN = {
    "Bayes": "the strongest filter there is for this kernel",
    "exact observer": "weighs true states by the model; nothing is better",
    "Kalman bank": "one Kalman filter per secret",
    "prior": "does not read; guesses by the prior",
    "least squares": "fits the secret to the releases as if they were true",
    "takes data for true": "thinks that nothing was changed",
    "bootstrap filter": "the textbook particle filter",
    "learned": "a network trained on transcripts, without a model",
    "knows the first state": "was told where the system started",
    "four runs of one secret": "reads four runs of the same owner",
    "twice the horizon": "reads twice as long",
}


def section(material: Material) -> Section:
    """One table of all runs, one drawing of each."""
    blocks: tuple[Block, ...] = (_table(material),) if material.audited else ()
    return Section("attackers", "Who tried, and how far they came", LEAD, blocks, material.columns(_column))


def _column(source: Source) -> tuple[Block, ...]:
    found = source.audit
    if found is None:
        return (not_audited(source),)
    return (_picture(found),) if found.attacks else ()


def _table(material: Material) -> Table:
    """A row for each attacker of any run; fair ones first."""
    audits = [found for _, found in material.audited]
    rows: dict[str, AttackResult] = {}
    for role in ROLES:
        for found in audits:
            rows |= {row.name: row for row in found.attacks if row.role == role and row.name not in rows}
    heads = ["attacker", "what it does"]
    for name, _ in material.audited:
        own = f", {name}" if len(audits) > 1 else ""
        heads += [f"right guesses{own}", f"learns at least, nats{own}"]
    lines = []
    for name, row in rows.items():
        does = "; ".join(filter(None, (PLAIN.get(name, ""), ROLES[row.role])))
        lines.append((name, does, *(cell for found in audits for cell in _cells(found, name))))
    chance = " and ".join(sorted({percent(found.chance) for found in audits}))
    caption = (
        f"Guessing blindly is right in {chance} of cases. Brackets are 95 % intervals, ± is one standard "
        "error. Whoever knows more than the threat model grants, or believes something wrong, does not "
        "enter the verdict."
    )
    return Table(caption, tuple(heads), tuple(lines))


def _cells(found: Found, name: str) -> tuple[str, str]:
    row = next((one for one in found.attacks if one.name == name), None)
    return ("", "") if row is None else (words.rate(row), words.mean(row.lower))


def _picture(found: Found) -> Picture:
    """Shares of right guesses, the best-behaved attackers on top."""
    order = list(ROLES)
    rows = sorted(found.attacks, key=lambda row: order.index(row.role) if row.role in ROLES else len(order))
    figure = canvas(0.3 * max(len(rows), 3) + 1.15)
    panel = figure.subplots()
    for place, row in enumerate(rows[::-1]):
        panel.barh(place, row.accuracy.value, 0.66, color=COLOURS.get(row.role, GREY), alpha=0.75)
        panel.plot([row.accuracy.low, row.accuracy.high], [place] * 2, color=INK, linewidth=1.6)
    panel.axvline(found.chance, color=INK, linestyle=":", linewidth=1.6)
    panel.set_yticks(np.arange(len(rows)), [row.name for row in rows[::-1]])
    panel.set(xlim=(0.0, 1.02), ylim=(-0.6, max(len(rows), 2) - 0.4))
    panel.set_xlabel("share of right guesses")
    quiet(panel, "x")
    best = found.best
    reach = "" if best is None else f"The best of those who play by the rules is right {words.rate(best)}. "
    caption = (
        f"{reach}Blue bars play by the rules, orange ones know more, grey ones believe something wrong; the "
        f"dotted line is chance, {percent(found.chance)}, the dark lines are 95 % intervals."
    )
    return Picture(svg(figure), f"Share of right guesses of {len(rows)} attackers. {reach}", caption)
