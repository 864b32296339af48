"""What was run, with which settings, seeds and versions."""

import platform
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

from veil.report import wording as words
from veil.report.blocks import Block, Column, Section, Table
from veil.report.gather import Material
from veil.report.source import Source
from veil.version import __version__

LEAD = "Everything that it takes to do this again."

LIBRARIES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy", "matplotlib")

HEADS = ("setting", "value")


def section(material: Material) -> Section:
    """Settings by run, versions once."""
    rows = (("Python", platform.python_version()), ("veil", __version__), *map(_installed, LIBRARIES))
    caption = "The program that wrote this page."
    return Section(
        "settings",
        "Settings and versions",
        LEAD,
        (),
        (*material.columns(_column), Column("this report", (Table(caption, HEADS, rows),))),
    )


def _installed(name: str) -> tuple[str, str]:
    try:
        return name, version(name)
    except PackageNotFoundError:
        return name, "not installed"


def _column(source: Source) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if source.run is not None:
        rows = tuple(_flat(asdict(source.run.settings)))
        blocks.append(Table("Settings of the run.", HEADS, rows))
    if source.environment:
        rows = tuple(_flat(source.environment))
        blocks.append(Table("Where it was begun.", HEADS, rows))
    found = source.audit
    if found is not None:
        seconds = sum(found.seconds.values())
        rows = (
            ("system", found.system),
            ("policy", found.policy),
            ("method", found.method),
            ("episodes", str(found.episodes)),
            ("releases per episode", str(found.horizon)),
            ("particles per secret", str(found.particles or "none needed")),
            *((name, str(seed)) for name, seed in found.seeds.items()),
            ("time of the measurement", words.clock(seconds)),
            ("veil", found.version),
        )
        blocks.append(Table("Settings of the audit.", HEADS, rows))
    if source.account is not None:
        about = {name: value for name, value in source.account.about.items() if name != "policy"}
        blocks.append(Table("What the ledger says of its stream.", HEADS, tuple(_flat(about))))
    return tuple(blocks)


def _flat(content: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Names and values, those of groups one after the other."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value)
        elif isinstance(value, list | tuple):
            yield name.replace("_", " "), ", ".join(map(str, value)) or "none"
        elif value is None or isinstance(value, bool):
            yield name.replace("_", " "), {True: "yes", False: "no", None: "none"}[value]
        else:
            yield name.replace("_", " "), str(value)
