"""An audit as files: everything as strict JSON, the attacks as CSV. Both speak nats."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from veil.io import plain, replace_text
from veil.results import audit_text as words
from veil.results.audit import AttackResult, Audit, Part, Quantity, ScenarioResult
from veil.stats import ERRORS, Leakage

MODELLED = "as modelled"

QUANTILES = (0.0, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)

COLUMNS = (
    *("scenario", "name", "role", "accuracy", "accuracy_low", "accuracy_high", "chance"),
    *("lower", "lower_error", "upper", "upper_error", "entropy", "raw", "raw_error"),
    *("calibration", "calibration_error", "episodes", "seconds", "note"),
)


def write(audit: Audit, folder: Path) -> list[Path]:
    """Write audit.json and audit.csv; a reader finds the old file or the new one, never half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(content(audit)), indent=2, allow_nan=False, ensure_ascii=False)
    return [
        replace_text(folder / "audit.json", text + "\n"),
        replace_text(folder / "audit.csv", table(audit)),
    ]


def content(audit: Audit) -> dict[str, object]:
    """All fields of audit.json."""
    from veil.version import __version__

    return {
        "verdict": audit.verdict.name,
        "sentence": words.verdict_sentence(audit),
        "reasons": audit.verdict.reasons,
        "advice": words.advice(audit),
        "unit": "nats",
        "system": audit.system,
        "policy": audit.policy,
        "method": audit.method,
        "leakage": leakage(audit.leakage) | {"interval": words.interval(audit)},
        "horizon": audit.horizon,
        "episodes": audit.episodes,
        "particles_per_secret": audit.particles,
        "chance": audit.chance,
        "attacks": [attack(row) for row in audit.attacks],
        "utility": utility(audit.utility),
        "gate": audit.verdict.inputs,
        "times": [{"step": row.step, **leakage(row.leakage)} for row in audit.times],
        "secrets": [part(row) for row in audit.secrets],
        "components": [part(row) for row in audit.components],
        "curves": audit.curves and asdict(audit.curves),
        "realised": realised(audit.realised),
        "scenarios": [scenario(row) for row in audit.scenarios],
        "threat_model": words.threat_model(audit),
        "seeds": audit.seeds,
        "seconds": audit.seconds,
        "version": __version__,
    }


def leakage(found: Leakage) -> dict[str, object]:
    """Both sides; `standard_error` is the larger of the two, `low` and `high` include the errors."""
    return {
        "lower": found.lower.value,
        "upper": found.upper.value,
        "standard_error": max(found.lower.error, found.upper.error),
        "lower_error": found.lower.error,
        "upper_error": found.upper.error,
        "width": found.width,
        "entropy": found.entropy,
        "low": found.low,
        "high": found.high,
        "standard_errors": ERRORS,
    }


def attack(row: AttackResult) -> dict[str, object]:
    """One attacker."""
    return {
        "name": row.name,
        "role": row.role,
        "accuracy": row.accuracy.value,
        "accuracy_low": row.accuracy.low,
        "accuracy_high": row.accuracy.high,
        "lower": row.lower.value,
        "lower_error": row.lower.error,
        "raw": row.raw.value,
        "raw_error": row.raw.error,
        "calibration": row.calibration.value,
        "calibration_error": row.calibration.error,
        "episodes": row.episodes,
        "seconds": row.seconds,
        "note": row.note,
    }


def part(row: Part) -> dict[str, object]:
    """The leakage about one secret or one component."""
    return {"name": row.name, **leakage(row.leakage)}


def utility(rows: tuple[Quantity, ...]) -> dict[str, object]:
    """The headline numbers by name, `tracking` per shared axis; all of them with errors and units below."""
    by_name = {row.name: row for row in rows}
    cost, prefix = by_name.get("cost"), "tracking error, "
    tracking = {row.name.removeprefix(prefix): row.value.value for row in rows if row.name.startswith(prefix)}
    return {
        "distortion": by_name["distortion"].value.value if "distortion" in by_name else None,
        "cost": cost and cost.value.value,
        "cost_true_data": cost and cost.true_data and cost.true_data.value,
        "tracking": tracking or None,
        "quantities": [quantity(row) for row in rows],
    }


def quantity(row: Quantity) -> dict[str, object]:
    """One line of the table of use; `change` is in per cent against true data, paired."""
    line: dict[str, object] = {"name": row.name, "unit": row.unit}
    for name, mean in (("value", row.value), ("true_data", row.true_data), ("change", row.change)):
        line |= {name: mean and mean.value, f"{name}_error": mean and mean.error}
    return line


def realised(values: np.ndarray) -> dict[str, object]:
    """Mean and quantiles over the episodes played, equally many per secret."""
    known = values[np.isfinite(values)]
    quantiles = np.quantile(known, QUANTILES) if len(known) else np.full(len(QUANTILES), np.nan)
    return {
        "mean": float(known.mean()) if len(known) else None,
        "quantiles": [
            {"share": share, "nats": value} for share, value in zip(QUANTILES, quantiles, strict=True)
        ],
        "not_finite": len(values) - len(known),
    }


def scenario(row: ScenarioResult) -> dict[str, object]:
    """The policy in one scenario that differs from the model."""
    return {
        "name": row.name,
        "distortion": row.distortion.value,
        "distortion_error": row.distortion.error,
        "entropy": row.entropy,
        "chance": row.chance,
        "attacks": [attack(line) for line in row.attacks],
    }


def table(audit: Audit) -> str:
    """One row for the leakage, one per attack, and one per attack in each other scenario."""
    found = audit.leakage
    both = {"scenario": MODELLED, "name": "leakage", "role": "leakage", "note": audit.verdict.name}
    both |= {"chance": audit.chance, "episodes": audit.episodes, **leakage(found)}
    rows = [both]
    scenes = [(MODELLED, audit.chance, found.entropy, audit.attacks)]
    scenes += [(row.name, row.chance, row.entropy, row.attacks) for row in audit.scenarios]
    for name, chance, entropy, attacks in scenes:
        known = {"scenario": name, "chance": chance, "entropy": entropy}
        rows += [known | attack(line) for line in attacks]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: plain(value) for name, value in row.items()} for row in rows)
    return text.getvalue()
