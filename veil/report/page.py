"""The page: one HTML file that needs no network and no script."""

import base64
import csv
import io
import json
import re
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from veil.io import plain, replace_text
from veil.report import cards as verdict
from veil.report import wording as words
from veil.report.blocks import Picture, Section, styled
from veil.report.gather import Material
from veil.report.headline import numbers
from veil.report.sections import (
    attackers,
    beliefs,
    cost,
    frontier,
    glossary,
    ledger,
    scenarios,
    settings,
    threat,
    training,
    usefulness,
)
from veil.report.source import Source
from veil.version import __version__

SECTIONS = (
    *(threat, beliefs, attackers, scenarios, usefulness, cost, ledger, frontier, training, settings),
    glossary,
)


def html(material: Material) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("veil.report"), autoescape=select_autoescape(), trim_blocks=True
    )
    environment.filters["uri"] = uri
    environment.filters["code"] = code
    environment.filters["tight"] = tight
    page = environment.get_template("page.html")
    style = environment.get_template("page.css").render()
    return page.render(
        title=material.title,
        facts=facts(material),
        style=Markup(style),
        cards=verdict.cards(material),
        comparison=verdict.comparison(material),
        headline=verdict.headline_table(material),
        sections=sections(material),
        single=len(material.sources) == 1,
        date=material.date,
        version=__version__,
    )


def sections(material: Material) -> list[Section]:
    """All that have something to say."""
    with styled():
        made = (one.section(material) for one in SECTIONS)
        return [one for one in made if one is not None and (one.blocks or one.columns)]


def facts(material: Material) -> list[str]:
    """What the report is about, in a few words each."""
    first = material.sources[0]
    told = [first.command_system.replace("_", " "), f"{first.horizon} releases per run"]
    for _, found in material.audited[:1]:
        count = len(found.secrets)
        told.append(f"{count} possible {words.noun(first.system)}s" if count > 1 else "one secret")
        told.append(f"{found.leakage.entropy:.3f} nats to know")
    return told


def uri(picture: Picture) -> str:
    """A drawing as an address, so that one file holds everything."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.svg.encode()).decode()


def tight(text: str) -> str:
    """A number stays on one line with its error and its unit."""
    return re.sub(r"(?<=[\d%]) (?=[%±]|\(\d|to \d)|(?<=±) (?=\d)|(?<=to) (?=\d)", "\u00a0", text)


def code(text: str) -> Markup:
    """Escaped text in which `commands` are set as such."""
    parts = re.split(r"`([^`]+)`", text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts)
    )


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
