"""A report as files: the page, and its headline numbers as strict JSON and as CSV. Both speak nats."""

import csv
import io
import json
from dataclasses import asdict
from pathlib import Path

from veil import __version__
from veil.auditing.files import plain, replace_text
from veil.reporting.headline import numbers
from veil.reporting.material import Material
from veil.reporting.page import html
from veil.reporting.source import Source

COLUMNS = ("run", "name", "value", "low", "high", "unit")


def write(material: Material, path: Path) -> list[Path]:
    """Write the page and, beside it, JSON and CSV; readers find old files or new ones, never half of one."""
    page = html(material)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(content(material)), indent=2, allow_nan=False, ensure_ascii=False)
    return [
        replace_text(path, page),
        replace_text(path.with_suffix(".json"), text + "\n"),
        replace_text(path.with_suffix(".csv"), table(material)),
    ]


def content(material: Material) -> dict[str, object]:
    """All fields of the JSON file."""
    frontier = None
    if material.frontier is not None:
        found, said = material.frontier
        frontier = {"floor": found.floor.value, "floor_error": found.floor.error, "sentence": said}
    return {
        "title": material.title,
        "unit": "nats",
        "runs": [_run(source) for source in material.sources],
        "frontier": frontier,
        "version": __version__,
    }


def _run(source: Source) -> dict[str, object]:
    found, run = source.audit, source.run
    told: dict[str, object] = {"name": source.name, "system": source.command_system, "note": source.note}
    told |= {"verdict": None, "sentence": None, "threat_model": None, "attacks": []}
    if found is not None:
        told |= {"verdict": found.verdict, "sentence": found.sentence, "threat_model": found.threat_model}
        told["attacks"] = [asdict(row) for row in found.attacks]
    told["numbers"] = {one.name: _number(asdict(one)) for one in numbers(source)}
    told["training"] = None if run is None or run.result is None else asdict(run.result)
    return told


def _number(one: dict[str, object]) -> dict[str, object]:
    return {name: one[name] for name in ("value", "low", "high", "unit")}


def table(material: Material) -> str:
    """One row per run and number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for source in material.sources:
        rows = ({"run": source.name} | asdict(one) for one in numbers(source))
        writer.writerows([row[name] for name in COLUMNS] for row in rows)
    return text.getvalue()
