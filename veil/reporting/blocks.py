"""What a page is made of. Sections say what; the template says how it looks."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: str = "text"


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: tuple[str, ...]
    kind: str = "bullets"


@dataclass(frozen=True)
class Picture:
    """A drawing.

    Attributes:
        svg: its source.
        says: what is in it, for those who cannot see it.
        caption: what to see in it.
    """

    svg: str
    says: str
    caption: str
    kind: str = "picture"


@dataclass(frozen=True)
class Table:
    """Rows under heads; the first column names them.

    Attributes:
        caption: what to see in it.
        heads: one per column.
        rows: cells as text.
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    kind: str = "table"


@dataclass(frozen=True)
class Missing:
    """Something that is not there yet, and the command that makes it."""

    text: str
    command: str = ""
    kind: str = "missing"


Block = Text | Bullets | Picture | Table | Missing


@dataclass(frozen=True)
class Column:
    """What a section says about one run."""

    name: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A heading and what follows.

    Attributes:
        anchor: where links lead.
        title: in plain words.
        lead: the question that is answered.
        blocks: about all runs.
        columns: about each run, side by side where there is room.
    """

    anchor: str
    title: str
    lead: str
    blocks: tuple[Block, ...] = ()
    columns: tuple[Column, ...] = ()
