"""From folders to what a report is made of."""

from collections.abc import Callable, Sequence
from pathlib import Path

from veil.reporting.episode import Episode, play
from veil.reporting.errors import ReportError
from veil.reporting.frontier_file import read_frontier
from veil.reporting.material import Material
from veil.reporting.source import Source, collect, plain_name, told_apart
from veil.reporting.words import noun
from veil.systems.base import System

Build = Callable[[str], System | None]


def gather(
    folders: Sequence[Path],
    *,
    names: Sequence[str] = (),
    frontier: Path | None = None,
    title: str = "",
    build: Build = lambda name: None,
) -> Material:
    """Read all folders; `ReportError` says what is wrong with one of them.

    Args:
        folders: of `veil train` or `veil audit`, in the order of their columns.
        names: what to call them; the names of the folders if not given.
        frontier: folder of `veil frontier`.
        title: of the report.
        build: the system of a name, to play a simulated episode in; None where it is not known.
    """
    if names and len(names) != len(folders):
        raise ReportError(f"{len(folders)} folders need as many names, not {len(names)}.")
    given = [
        collect(folder, name) for folder, name in zip(folders, names or [""] * len(folders), strict=True)
    ]
    sources = told_apart(given)
    known = None if frontier is None else read_frontier(frontier)
    _same_system(sources, "" if known is None else known[0].system, frontier)
    episodes = {source.name: episode for source in sources if (episode := _episode(source, build))}
    said = title or f"What sharing tells about the {noun(sources[0].system)}"
    return Material(said, tuple(sources), episodes, known)


def _same_system(sources: Sequence[Source], other: str, frontier: Path | None) -> None:
    """Numbers of different systems mean nothing beside each other."""
    first = sources[0]
    for source in sources[1:]:
        if source.system != first.system:
            raise ReportError(
                f"{first.folder} is about {first.command_system}, {source.folder} about "
                f"{source.command_system}. Make a report for each."
            )
    if other and plain_name(other) != first.system:
        raise ReportError(f"the frontier in {frontier} is about {other}, not {first.command_system}.")


def _episode(source: Source, build: Build) -> Episode | None:
    """Played where the policy and its system are at hand."""
    system = None if source.run is None else build(source.run.settings.system)
    return None if system is None else play(source.folder, system, source.horizon)
