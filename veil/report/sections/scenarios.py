"""What happens where the plant is not the model."""

from veil.report import wording as words
from veil.report.blocks import Block, Missing, Section, Table, Text
from veil.report.gather import Material, not_audited, own_columns
from veil.report.source import Source
from veil.results.audit import AttackResult, ScenarioResult
from veil.results.audit_text import percent

LEAD = "All numbers above hold if the system behaves as its model says. Real systems do not, quite."

HEADS = ("scenario", "best attacker", "right guesses", "chance", "learns at least, nats", "distortion")


def section(material: Material) -> Section:
    """One column per run."""
    return Section("scenarios", "When the plant is not the model", LEAD, (), own_columns(material, _column))


def _column(source: Source) -> tuple[Block, ...]:
    found = source.audit
    if found is None:
        return (not_audited(source),)
    if not found.scenarios:
        return (
            Missing(
                "This was not tried. Other drivers, coloured noise, a misjudged secret and more take several "
                "minutes:",
                source.audit_command("--scenarios"),
            ),
        )
    tried = [(scenario, _best(scenario)) for scenario in found.scenarios]
    rows = tuple(_row(scenario, best) for scenario, best in tried if best is not None)
    caption = (
        "In each of these scenarios, the attacker who learned most. They have no upper bound: more may leak."
    )
    worst = max(
        (both for both in tried if both[1] is not None), key=lambda both: _gain(both[1]), default=None
    )
    said = ()
    if worst is not None and worst[1] is not None:
        said = (
            Text(
                f"The worst of them is “{worst[0].name}”: {worst[1].name} learns at least "
                f"{words.mean(worst[1].lower)} of {worst[0].entropy:.3f} nats."
            ),
        )
    return (*said, Table(caption, HEADS, rows))


def _best(scenario: ScenarioResult) -> AttackResult | None:
    return max(scenario.attacks, key=_gain, default=None)


def _gain(row: AttackResult | None) -> float:
    """Unknown counts as nothing."""
    return -1e9 if row is None or row.lower.value != row.lower.value else row.lower.value


def _row(scenario: ScenarioResult, best: AttackResult) -> tuple[str, ...]:
    told = words.rate(best), percent(scenario.chance), words.mean(best.lower), words.mean(scenario.distortion)
    return (scenario.name, best.name, *told)
