"""An audit as tables for people: ruled on a terminal, plain elsewhere."""

import math
import sys
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from veil.results.audit import Audit
    from veil.results.parts import AttackResult, ScenarioResult
    from veil.stats import Leakage, Mean, Rate


WIDTH = 100  # of paragraphs

Rows = list[tuple[str, ...]]

ROLES = {"attack": "", "assisted": "knows more", "mismatched": "wrong model"}


def show(audit: "Audit", *, explain: bool) -> None:
    """Print all tables that have something to say."""
    measured = f"{audit.policy} on {audit.system}, {audit.episodes} episodes of {audit.horizon} releases"
    by = f"{audit.method}, {audit.particles} particles per secret" if audit.particles else audit.method
    grid(f"Leakage: {measured}, by {by}", LEAKAGE, leakage_rows(audit))
    grid(f"Attackers (chance {audit.chance:.3f})", ATTACKS, [attack_row(row) for row in audit.attacks])
    grid("Use", USE, use_rows(audit))
    grid(
        "Scenarios that differ from the model",
        SCENARIOS,
        [line for row in audit.scenarios for line in scenario_rows(row)],
    )
    if explain:
        parts = [*audit.secrets, *audit.components]
        grid("By secret and by component", PARTS, [(row.name, *sides(row.leakage)) for row in parts])
        grid("What the verdict is based on", GATE, [(name, value(x)) for name, x in gate(audit).items()])


LEAKAGE = ("releases", "lower ± s.e.", "upper ± s.e.", "interval, nats", "interval, bits", "of H(q)")

ATTACKS = ("attacker", "knows", "accuracy [95 %]", "lower ± s.e.", "raw", "calibration", "episodes", "note")

USE = ("use", "value ± s.e.", "unit", "with true data", "change, %")

SCENARIOS = ("scenario", "attacker", "accuracy [95 %]", "chance", "lower ± s.e.", "H(q)", "distortion")

PARTS = ("about", *LEAKAGE[1:-1], "of the most")

GATE = ("input", "value")


def leakage_rows(audit: "Audit") -> Rows:
    """The leakage at a few times and at the end."""
    rows = [(str(row.step), *sides(row.leakage)) for row in audit.times if row.step != audit.horizon]
    return [*rows, (str(audit.horizon), *sides(audit.leakage))]


def sides(leakage: "Leakage") -> tuple[str, ...]:
    """Both sides, and the interval with its errors in nats, in bits and as a share of all there is."""
    low, high, entropy = leakage.low, leakage.high, leakage.entropy
    share = f"{low / entropy:.0%} to {high / entropy:.0%}" if entropy > 0 else ""
    return (
        number(leakage.lower),
        number(leakage.upper),
        f"[{low:.3f}, {high:.3f}]",
        f"[{low / math.log(2):.3f}, {high / math.log(2):.3f}]",
        share,
    )


def attack_row(row: "AttackResult") -> tuple[str, ...]:
    """One attacker."""
    return (
        row.name,
        ROLES.get(row.role, row.role),
        rate(row.accuracy),
        number(row.lower),
        value(row.raw.value),
        number(row.calibration),
        str(row.episodes),
        row.note,
    )


def use_rows(audit: "Audit") -> Rows:
    """What sharing this way costs and gives."""
    return [
        (
            row.name,
            number(row.value),
            row.unit,
            number(row.true_data) if row.true_data else "",
            number(row.change, 1) if row.change else "",
        )
        for row in audit.utility
    ]


def scenario_rows(row: "ScenarioResult") -> Rows:
    """One line per attacker of a scenario; what is common is said once."""
    common = (f"{row.chance:.3f}", f"{row.entropy:.3f}", number(row.distortion))
    lines = []
    for place, line in enumerate(row.attacks):
        chance, entropy, distortion = common if place == 0 else ("", "", "")
        name = row.name if place == 0 else ""
        lines.append((name, line.name, rate(line.accuracy), chance, number(line.lower), entropy, distortion))
    return lines


def gate(audit: "Audit") -> "dict[str, float | str | bool]":
    """The gate's inputs by readable names."""
    return {name.replace("_", " "): x for name, x in audit.verdict.inputs.items()}


def number(mean: "Mean", decimals: int = 3) -> str:
    """A mean and its standard error."""
    if not math.isfinite(mean.value):
        return "unknown"
    error = f"{mean.error:.{decimals}f}" if math.isfinite(mean.error) else "unknown"
    return f"{mean.value:.{decimals}f} ± {error}"


def rate(share: "Rate") -> str:
    """A share and its interval."""
    return f"{share.value:.3f} [{share.low:.3f}, {share.high:.3f}]"


def value(x: "float | str | bool") -> str:
    """One number, or a word."""
    if isinstance(x, bool | str):
        return str(x)
    return f"{x:.4g}" if math.isfinite(x) else "unknown"


def grid(title: str, heads: tuple[str, ...], rows: Rows) -> None:
    """Print one table; nothing where there are no rows. Columns without a word are left out."""
    if not rows:
        return
    if sys.stdout.isatty():
        kept = [place for place in range(len(heads)) if any(row[place] for row in rows)]
        heads, rows = pick(heads, kept), [pick(row, kept) for row in rows]
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        ruled = Table(*heads, title=Text(title), title_justify="left")
        for row in rows:
            ruled.add_row(*map(Text, row))
        Console().print(ruled)
        return
    from veil.results.text import text_table

    print(f"{title}\n{text_table(heads, rows)}\n")


def pick(row: tuple[str, ...], places: list[int]) -> tuple[str, ...]:
    """Some cells of a row."""
    return tuple(row[place] for place in places)


def paragraphs(text: str) -> None:
    """Print lines of prose, each filled to a readable width."""
    for line in text.splitlines():
        print(textwrap.fill(line, WIDTH))
