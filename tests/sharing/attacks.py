"""What somebody with a keyboard may do to the files of a stream that is not running."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from veil.sharing.ledger import chained

ENDS = ("chain", "mac", "sum")


@dataclass
class Files:
    """The files of a stream by what they are, older copies of them, and those of another stream."""

    ledger: Path
    account: Path
    snapshot: Path
    memory: Path
    old: dict[str, bytes] = field(default_factory=dict)
    other: dict[str, bytes] = field(default_factory=dict)

    def read(self) -> dict[str, bytes]:
        """What there is now."""
        paths = {name: getattr(self, name) for name in ("ledger", "account", "snapshot", "memory")}
        return {name: path.read_bytes() for name, path in paths.items() if path.exists()}

    def write(self, content: dict[str, bytes]) -> None:
        """Put these back, and take the others away."""
        for name in ("ledger", "account", "snapshot", "memory"):
            path = getattr(self, name)
            path.unlink(missing_ok=True)
            if name in content:
                path.touch(0o600)
                path.write_bytes(content[name])

    def put(self, name: str, content: bytes) -> None:
        """Change one file in place."""
        getattr(self, name).write_bytes(content)


Attack = Callable[[Files, np.random.Generator], None]


def lines(files: Files) -> list[bytes]:
    """Of the ledger."""
    return files.ledger.read_bytes().rstrip(b"\0").splitlines(keepends=True)


def _cut(files: Files, chance: np.random.Generator) -> None:
    kept = lines(files)
    files.put("ledger", b"".join(kept[: -int(chance.integers(1, min(21, len(kept))))]))


def _delete(name: str) -> Attack:
    return lambda files, chance: getattr(files, name).unlink()


def _older(*names: str) -> Attack:
    def attack(files: Files, chance: np.random.Generator) -> None:
        for name in names:
            files.put(name, files.old[name])

    return attack


def _other(name: str) -> Attack:
    return lambda files, chance: files.put(name, files.other[name])


def _nul(files: Files, chance: np.random.Generator) -> None:
    *kept, last = lines(files)
    place = int(chance.integers(1, len(last) - 1))
    files.put("ledger", b"".join(kept) + last[:place] + b"\0" + last[place + 1 :])


def _no_end(files: Files, chance: np.random.Generator) -> None:
    *kept, last = lines(files)
    files.put("ledger", b"".join(kept) + last[: int(chance.integers(1, len(last)))] + bytes(100))


def _rechained(change: Callable[[list[dict[str, Any]], np.random.Generator], list[dict[str, Any]]]) -> Attack:
    """Edit what the ledger says and compute its public chain again."""

    def attack(files: Files, chance: np.random.Generator) -> None:
        entries = [json.loads(line) for line in lines(files)]
        first, *rest = [{name: one[name] for name in one if name not in ENDS} for one in entries]
        before, content = "0" * 64, b""
        for entry in (first, *change(rest, chance)):
            before, line = chained(entry, before)
            content += line
        files.put("ledger", content)

    return attack


def _free(entries: list[dict[str, Any]], chance: np.random.Generator) -> list[dict[str, Any]]:
    """All charges but the last few are taken away, as before a snapshot."""
    total, found = 0.0, []
    for entry in entries:
        charge = 0.0 if entry["step"] < len(entries) - 3 else entry["charge"]
        total += charge
        found.append({**entry, "charge": charge, "total": total})
    return found


def _one_more(entries: list[dict[str, Any]], chance: np.random.Generator) -> list[dict[str, Any]]:
    return [*entries, {**entries[-1], "step": len(entries) + 1, "shared": [float(chance.normal())]}]


def _other_value(entries: list[dict[str, Any]], chance: np.random.Generator) -> list[dict[str, Any]]:
    place = int(chance.integers(len(entries)))
    return [
        {**entry, "shared": [float(chance.normal())]} if k == place else entry
        for k, entry in enumerate(entries)
    ]


def _moved(files: Files, chance: np.random.Generator) -> None:
    kept = lines(files)
    k = int(chance.integers(1, len(kept) - 1))
    kept[k], kept[k + 1] = kept[k + 1], kept[k]
    files.put("ledger", b"".join(kept))


def _taken_out(files: Files, chance: np.random.Generator) -> None:
    kept = lines(files)
    del kept[int(chance.integers(1, len(kept)))]
    files.put("ledger", b"".join(kept))


def _twice(files: Files, chance: np.random.Generator) -> None:
    kept = lines(files)
    files.put("ledger", b"".join([*kept, kept[-1]]))


def _flipped(name: str, first: int = 0) -> Attack:
    """Some bytes are changed, anywhere from `first` on where there is something."""

    def attack(files: Files, chance: np.random.Generator) -> None:
        content = bytearray(getattr(files, name).read_bytes())
        full = [k for k in range(first, len(content)) if content[k]]
        for k in chance.choice(full, 3, replace=False):
            content[k] ^= int(chance.integers(1, 256))
        files.put(name, bytes(content))

    return attack


def _header(files: Files, chance: np.random.Generator) -> None:
    content = bytearray(files.account.read_bytes())
    content[int(chance.integers(0, 112))] ^= 1
    files.put("account", bytes(content))


def _emptied_marks(files: Files, chance: np.random.Generator) -> None:
    files.put("account", files.account.read_bytes()[:4096])


def _newest_mark(files: Files) -> tuple[int, bytearray]:
    """Where the newest mark of the first stream is, and the file; its number follows name and place."""
    content = bytearray(files.account.read_bytes())
    numbers = [int.from_bytes(content[k + 48 : k + 56], "little") for k in (8192, 12288)]
    return 8192 if numbers[0] > numbers[1] else 12288, content


def _mark_and_line(files: Files, chance: np.random.Generator) -> None:
    """The newest mark is spoiled and the last line cut, as if a crash had come before both."""
    place, content = _newest_mark(files)
    content[place + 60] ^= 255
    files.put("account", bytes(content))
    files.put("ledger", b"".join(lines(files)[:-1]))


def _both_marks(files: Files, chance: np.random.Generator) -> None:
    content = bytearray(files.account.read_bytes())
    for place in (8192, 12288):
        content[place + int(chance.integers(0, 180))] ^= 255
    files.put("account", bytes(content))


# What must be refused.
REFUSED: dict[str, Attack] = {
    "ledger cut": _cut,
    "ledger emptied": lambda files, chance: files.put("ledger", b""),
    "ledger deleted": _delete("ledger"),
    "older ledger": _older("ledger"),
    "zero byte in the last line": _nul,
    "last line without its end": _no_end,
    "charges zeroed": _rechained(_free),
    "line forged": _rechained(_one_more),
    "value changed": _rechained(_other_value),
    "lines exchanged": _moved,
    "line taken out": _taken_out,
    "line twice": _twice,
    "ledger of another stream": _other("ledger"),
    "not a ledger": lambda files, chance: files.put("ledger", b"2"),
    "account deleted": _delete("account"),
    "older account": _older("account"),
    "account of another secret": _other("account"),
    "head of the account changed": _header,
    "marks taken out": _emptied_marks,
    "both marks changed": _both_marks,
    "mark spoiled and line cut": _mark_and_line,
}

# With a private memory: an older ledger and account that fit together are betrayed by it.
REFUSED_BY_MEMORY: dict[str, Attack] = {"older ledger and account": _older("ledger", "account")}

# What changes nothing: the files are not needed, and are not believed.
HARMLESS: dict[str, Attack] = {
    "snapshot changed": _flipped("snapshot"),
    "snapshot deleted": _delete("snapshot"),
    "older snapshot": _older("snapshot"),
    "snapshot of another stream": _other("snapshot"),
}

HARMLESS_TO_MEMORY: dict[str, Attack] = {
    "memory changed": _flipped("memory"),
    "memory deleted": _delete("memory"),
    "older memory": _older("memory"),
}
