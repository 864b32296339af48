"""The tables of an audit: leakage over time, attackers, use, scenarios, and what the verdict is based on."""

import math

from veil.results.audit import Audit
from veil.results.parts import AttackResult, ScenarioResult
from veil.results.text import Table, bits, mean_text
from veil.stats import Leakage, Rate

ROLES = {"attack": "", "assisted": "knows more", "mismatched": "wrong model"}

LEAKAGE = ("releases", "lower ± s.e.", "upper ± s.e.", "interval, nats", "interval, bits", "of H(q)")

ATTACKS = ("attacker", "knows", "accuracy [95 %]", "lower ± s.e.", "raw", "calibration", "episodes", "note")

USE = ("use", "value ± s.e.", "unit", "with true data", "change, %")

SCENARIOS = ("scenario", "attacker", "accuracy [95 %]", "chance", "lower ± s.e.", "H(q)", "distortion")

PARTS = ("about", *LEAKAGE[1:-1], "of the most")

GATE = ("input", "value")


def audit_tables(audit: Audit, *, explain: bool) -> list[Table]:
    """All tables that `veil audit` prints; some may have no rows. `print(audit)` shows the main numbers.

    Args:
        audit: the audit.
        explain: whether the leakage by secret and the inputs of the verdict are added.
    """
    measured = f"{audit.policy} on {audit.system}, {audit.episodes} episodes of {audit.horizon} releases"
    by = f"{audit.method}, {audit.particles} particles per secret" if audit.particles else audit.method
    scenarios = [line for row in audit.scenarios for line in _scenario_rows(row)]
    tables = [
        Table(f"Leakage: {measured}, by {by}", LEAKAGE, _leakage_rows(audit)),
        Table(f"Attackers (chance {audit.chance:.3f})", ATTACKS, [_attack_row(row) for row in audit.attacks]),
        Table("Use", USE, _use_rows(audit)),
        Table("Scenarios that differ from the model", SCENARIOS, scenarios),
    ]
    if explain:
        parts = [(row.name, *_sides(row.leakage)) for row in (*audit.secrets, *audit.components)]
        gate = [(name.replace("_", " "), _value(x)) for name, x in audit.verdict.inputs.items()]
        tables += [Table("By secret and by component", PARTS, parts)]
        tables += [Table("What the verdict is based on", GATE, gate)]
    return tables


def _leakage_rows(audit: Audit) -> list[tuple[str, ...]]:
    """The leakage at a few times and at the end."""
    rows = [(str(row.step), *_sides(row.leakage)) for row in audit.times if row.step != audit.horizon]
    # At the end the interval of the verdict, which uses what attackers prove as well.
    return [*rows, (str(audit.horizon), *_sides(audit.leakage, audit.interval))]


def _sides(leakage: Leakage, interval: tuple[float, float] | None = None) -> tuple[str, ...]:
    """Both sides, and the interval with its errors in nats, in bits and as a fraction of H(q)."""
    (low, high), entropy = interval or (leakage.low, leakage.high), leakage.entropy
    return (
        mean_text(leakage.lower),
        mean_text(leakage.upper),
        f"[{low:.3f}, {high:.3f}]",
        f"[{bits(low):.3f}, {bits(high):.3f}]",
        f"{low / entropy:.0%} to {high / entropy:.0%}" if entropy > 0 else "",
    )


def _attack_row(row: AttackResult) -> tuple[str, ...]:
    return (
        row.name,
        ROLES.get(row.role, row.role),
        _rate(row.accuracy),
        mean_text(row.lower),
        _value(row.raw.value),
        mean_text(row.calibration),
        str(row.episodes),
        row.note,
    )


def _use_rows(audit: Audit) -> list[tuple[str, ...]]:
    return [
        (row.name, mean_text(row.value), row.unit, mean_text(row.true_data), mean_text(row.change, 1))
        for row in audit.utility
    ]


def _scenario_rows(row: ScenarioResult) -> list[tuple[str, ...]]:
    """One line per attacker; what they have in common is in the first line only."""
    common = (f"{row.chance:.3f}", f"{row.entropy:.3f}", mean_text(row.distortion))
    lines = []
    for place, line in enumerate(row.attacks):
        chance, entropy, distortion = common if place == 0 else ("", "", "")
        name = row.name if place == 0 else ""
        lines.append(
            (name, line.name, _rate(line.accuracy), chance, mean_text(line.lower), entropy, distortion)
        )
    return lines


def _rate(rate: Rate) -> str:
    return f"{rate.value:.3f} [{rate.low:.3f}, {rate.high:.3f}]"


def _value(x: float | str | bool) -> str:
    if isinstance(x, bool | str):
        return str(x)
    return f"{x:.4g}" if math.isfinite(x) else "unknown"
