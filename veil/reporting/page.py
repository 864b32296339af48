"""The page: one HTML file that needs no network and no script."""

import base64
import re

from jinja2 import Environment, PackageLoader, select_autoescape
from markupsafe import Markup

from veil import __version__
from veil.reporting import verdict, words
from veil.reporting.blocks import Picture, Section
from veil.reporting.drawing import styled
from veil.reporting.material import Material
from veil.reporting.sections import (
    attackers,
    beliefs,
    cost,
    elsewhere,
    frontier,
    glossary,
    ledger,
    settings,
    threat,
    training,
    usefulness,
)

SECTIONS = (
    *(threat, beliefs, attackers, elsewhere, usefulness, cost, ledger, frontier, training, settings),
    glossary,
)


def html(material: Material) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("veil.reporting"), autoescape=select_autoescape(), trim_blocks=True
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
