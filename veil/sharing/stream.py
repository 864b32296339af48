"""A stream of JSON lines: one line in, one line out, in order; what is wrong is reported beside it.

A line whose step cannot be read is reported and takes no step: if its data never come, the step is a gap.
"""

import json
from collections.abc import Callable, Iterator
from typing import BinaryIO

from veil.sharing.inputs import LONGEST, Fault, parsed
from veil.sharing.ledger import Release
from veil.sharing.sharer import Sharer

Tell = Callable[[str], None]


def serve(sharer: Sharer, source: BinaryIO, sink: BinaryIO, tell: Tell) -> int:
    """Answer every line of the source; gives the number of faults. In a strict sharer the first one raises.

    Args:
        sharer: shares.
        source: bytes in.
        sink: bytes out, flushed after every line.
        tell: called with faults and alarms, for the owner; never a value.
    """
    faults, alarm = 0, ""
    for number, line in enumerate(lines(source), 1):
        try:
            release = answered(sharer, line)
        except Fault as fault:
            if sharer.strict:
                raise Fault(f"line {number}: {fault}") from None
            faults += 1
            tell(f"line {number}: {fault}")
            continue
        if release is None:
            continue
        if release.receipt.fault:
            faults += 1
            tell(f"line {number}, step {release.receipt.step}: {release.receipt.fault} Withheld.")
        sink.write(outgoing(sharer, release))
        sink.flush()
        if sharer.alarm != alarm:
            alarm = sharer.alarm
            tell(f"step {release.receipt.step}: the plant is not the model: {alarm}. Audit before you go on.")
    return faults


def answered(sharer: Sharer, line: bytes) -> Release | None:
    """The release that a line asks for; None for an empty line."""
    if not line.strip():
        return None
    return sharer.answer(parsed(line, sharer.system))


def outgoing(sharer: Sharer, release: Release) -> bytes:
    """The line that goes out: the same bytes whenever the step is asked for."""
    names = [field.name for field in sharer.system.shared_fields]
    values = None if release.shared is None else dict(zip(names, release.shared.tolist(), strict=True))
    return (json.dumps({"step": release.receipt.step, "shared": values}) + "\n").encode()


def lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines without their end. Of one that is too long, only so much is kept that this can be seen."""
    while line := source.readline(LONGEST + 2):
        kept = line
        while line and not line.endswith(b"\n") and len(kept) > LONGEST:
            line = source.readline(LONGEST)
        yield kept.rstrip(b"\r\n")
