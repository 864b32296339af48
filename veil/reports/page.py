"""The page: one HTML file that needs no network and no script."""

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from veil.io import csv_text, replace_text, write_json
from veil.reports import leakage_sections as leaks
from veil.reports import run_sections as runs
from veil.reports import use_sections as uses
from veil.reports.blocks import Picture, ReportError, Section, styled
from veil.reports.headline import card, comparison, headline_table, numbers
from veil.reports.sources import Build, Material, Source, gather
from veil.results.parts import mean_to_dict
from veil.version import __version__

SECTIONS = (
    *(leaks.threat_section, leaks.beliefs_section, leaks.attackers_section, leaks.scenarios_section),
    *(runs.model_section, uses.use_section, uses.cost_section, runs.ledger_section, uses.frontier_section),
    *(runs.training_section, runs.settings_section, runs.glossary_section),
)

COLUMNS = ("run", "name", "value", "low", "high", "unit")


def report(
    folders: Sequence[Path | str],
    out: Path | str = "report.html",
    *,
    names: Sequence[str] = (),
    frontier: Path | str | None = None,
    title: str = "",
    date: str = "",
    build: Build = lambda name: None,
) -> list[Path]:
    """Write one HTML page about what was trained, audited and shared, and its numbers as JSON and CSV.

    If a folder cannot be used, a `ReportError` says what to do. Each file is replaced at once, so that
    readers never see half of one.

    Args:
        folders: of `veil train` or `veil audit`, all about one system, one column each.
        out: the page, with the ending .html.
        names: what to call the runs; the names of the folders by default.
        frontier: folder of `veil frontier`, to show the runs beside it.
        title: of the page.
        date: of the page; left out if empty.
        build: returns the system of a name, to simulate an episode, or None if the system is not known.
    """
    given = [Path(folder) for folder in folders]
    place = None if frontier is None else Path(frontier)
    material = gather(given, names=names, frontier=place, title=title, date=date, build=build)
    return write(material, Path(out))


def write(material: Material, path: Path) -> list[Path]:
    """Write the page, the JSON and the CSV of what was gathered."""
    refuse_other_files(path)
    page = html(material)
    path.parent.mkdir(parents=True, exist_ok=True)
    return [
        replace_text(path, page),
        write_json(path.with_suffix(".json"), content(material)),
        replace_text(path.with_suffix(".csv"), table(material)),
    ]


def refuse_other_files(path: Path) -> None:
    """Raise where a file beside a page would replace one of another kind, such as a secret or a recording."""
    for place, ours in ((path.with_suffix(".json"), _is_numbers), (path.with_suffix(".csv"), _is_table)):
        if place.exists() and not ours(place):
            raise ReportError(
                f"{place} is not of a report, and the numbers of this one would replace it. Give another "
                "--out, or move that file."
            )


def _is_numbers(place: Path) -> bool:
    try:
        found = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"title", "runs", "frontier", "version"} <= found.keys()


def _is_table(place: Path) -> bool:
    try:
        with place.open(encoding="utf-8") as file:
            return file.readline().strip() == ",".join(COLUMNS)
    except (OSError, ValueError):
        return False


def html(material: Material) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("veil.reports"), autoescape=select_autoescape(), trim_blocks=True
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
        cards=[card(source) for source in material.sources],
        comparison=comparison(material),
        headline=headline_table(material),
        sections=sections(material),
        single=len(material.sources) == 1,
        date=material.date,
        version=__version__,
    )


def sections(material: Material) -> list[Section]:
    """All that have something to say."""
    with styled():
        made = (section(material) for section in SECTIONS)
        return [one for one in made if one is not None and (one.blocks or one.columns)]


def facts(material: Material) -> list[str]:
    """What the report is about, in a few words each."""
    first = material.sources[0]
    facts = [first.system.replace("_", " "), f"{first.horizon} releases per run"]
    for _, audit in material.audited[:1]:
        count = len(audit.secrets)
        facts.append(f"{count} possible {first.nouns.candidate}s" if count > 1 else "one secret")
        facts.append(f"{audit.leakage.entropy:.3f} nats to know")
    return facts


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


def content(material: Material) -> dict[str, object]:
    """All fields of the JSON file."""
    frontier = None
    if material.frontier is not None:
        found = material.frontier
        frontier = mean_to_dict("floor", found.floor) | {"sentence": found.sentence}
    return {
        "title": material.title,
        "unit": "nats",
        "runs": [_run(source) for source in material.sources],
        "frontier": frontier,
        "version": __version__,
    }


def _run(source: Source) -> dict[str, object]:
    audit, run = source.audit, source.run
    content: dict[str, object] = {"name": source.name, "system": source.system, "note": source.note}
    content |= {"verdict": None, "sentence": None, "threat_model": None, "attacks": []}
    if audit is not None:
        content |= {"verdict": audit.verdict.name, "sentence": audit.sentence}
        content |= {"threat_model": audit.threat_model, "attacks": [asdict(row) for row in audit.attacks]}
    content["numbers"] = {
        one.name: {"value": one.value, "low": one.low, "high": one.high, "unit": one.unit}
        for one in numbers(source)
    }
    content["training"] = None if run is None or run.result is None else asdict(run.result)
    return content


def table(material: Material) -> str:
    """The content of the CSV file: one row per run and number."""
    rows = ({"run": source.name} | asdict(one) for source in material.sources for one in numbers(source))
    return csv_text(COLUMNS, rows)
