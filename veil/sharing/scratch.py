"""A ledger that is not kept."""

from collections.abc import Iterator, Mapping
from typing import Any

from veil.sharing.chain import Entry


class Scratch:
    """The entries of a stream in memory, as a `Ledger` has them on disk."""

    def __init__(self, about: Mapping[str, Any]):
        self.about, self.note = dict(about), ""
        self._entries = dict[int, Entry]()
        self.charges, self.beliefs = (), {}

    def append(self, entry: Mapping[str, Any]) -> None:
        """Remember an entry."""
        self._entries[entry["step"]] = dict(entry)

    def __contains__(self, step: int) -> bool:
        """Whether this step was decided already."""
        return step in self._entries

    def __len__(self) -> int:
        """Entries."""
        return len(self._entries)

    def __getitem__(self, step: int) -> Entry:
        """The entry of a step."""
        return self._entries[step]

    def __iter__(self) -> Iterator[Entry]:
        """All entries in their order."""
        yield from self._entries.values()

    def close(self) -> None:
        """Nothing to do."""
