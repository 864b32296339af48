"""Everything that a report is made of."""

from collections.abc import Callable
from dataclasses import dataclass

from veil.frontier.point import Frontier
from veil.reporting.audit_file import Found
from veil.reporting.blocks import Block, Column, Missing
from veil.reporting.episode import Episode
from veil.reporting.source import Source


@dataclass(frozen=True)
class Material:
    """What was collected.

    Attributes:
        title: of the report.
        sources: the runs, in the order of their columns.
        episodes: one simulated episode by the name of its run, where the policy is known.
        frontier: and its own words; None where none was given.
        date: of the report, for people; empty if it does not matter.
    """

    title: str
    sources: tuple[Source, ...]
    episodes: dict[str, Episode]
    frontier: tuple[Frontier, str] | None = None
    date: str = ""

    @property
    def audited(self) -> list[tuple[str, Found]]:
        """Names and audits of the runs that have one."""
        return [(source.name, source.audit) for source in self.sources if source.audit is not None]

    def columns(self, make: Callable[[Source], tuple[Block, ...]]) -> tuple[Column, ...]:
        """What a section has to say about each run."""
        return tuple(Column(source.name, make(source)) for source in self.sources)


def not_audited(source: Source) -> Missing:
    """Where an audit would stand."""
    return Missing(f"{source.name} has not been audited yet.", source.audit_command())


def own_columns(material: Material, make: Callable[[Source], tuple[Block, ...]]) -> tuple[Column, ...]:
    """Columns of the runs that something is there of, or could be.

    A way of sharing that was not learned has no training, and often no ledger and no episode. That is said
    where there is nothing else to say, and left out beside runs that have them.
    """
    columns = [column for column in material.columns(make) if column.blocks]
    learned = {source.name for source in material.sources if source.learned}
    kept = [one for one in columns if one.name in learned or not all(x.kind == "missing" for x in one.blocks)]
    return tuple(kept or columns)
