"""A stream of JSON lines: one line in, one line out, in order; what is wrong is reported beside it.

A line whose step cannot be read is answered with `{"step": null, "shared": null}` and takes no step: if its
data never come, the step is a gap.
"""

import json
import time
from collections.abc import Callable, Iterator
from typing import BinaryIO

from veil.sharing.inputs import LONGEST, Fault, parsed
from veil.sharing.ledger import Release
from veil.sharing.sharer import AlarmStop, Sharer

Tell = Callable[[str], None]

NO_STEP = b'{"step": null, "shared": null}\n'


def serve(sharer: Sharer, source: BinaryIO, sink: BinaryIO, tell: Tell, pace: float = 0.0) -> int:
    """Answer every line of the source; gives the number of faults. In a strict sharer the first one raises.

    Args:
        sharer: shares.
        source: bytes in.
        sink: bytes out, flushed after every line.
        tell: called with faults and alarms, for the owner; never a value.
        pace: seconds; an answer leaves at a multiple of this after its line came, so that the time that it
            took cannot be seen more exactly. 0 answers at once.
    """
    faults, alarm = 0, sharer.alarm
    for number, line in enumerate(lines(source), 1):
        came, said = time.monotonic(), NO_STEP
        try:
            release = answered(sharer, line)
            said = NO_STEP if release is None else outgoing(sharer, release)
        except Fault as fault:
            if sharer.strict:
                raise Fault(f"line {number}: {fault}") from None
            faults, release = faults + 1, None
            tell(f"line {number}: {fault}")
        if release is not None and release.receipt.fault:
            faults += 1
            tell(f"line {number}, step {release.receipt.step}: {release.receipt.fault} Withheld.")
        if pace > 0.0:
            time.sleep(pace - (time.monotonic() - came) % pace)
        sink.write(said)
        sink.flush()
        if sharer.alarm != alarm:
            alarm = sharer.alarm
            tell(sharer.alarm_sentence())
            if sharer.stops:
                raise AlarmStop
    return faults


def answered(sharer: Sharer, line: bytes) -> Release | None:
    """The release that a line asks for; None for an empty line."""
    if not line.strip():
        return None
    return sharer.answer(parsed(line, sharer.system, sharer.optional))


def outgoing(sharer: Sharer, release: Release) -> bytes:
    """The line that goes out: the same bytes whenever the step is asked for."""
    names = [field.name for field in sharer.system.shared_fields]
    values = None if release.shared is None else dict(zip(names, release.shared.tolist(), strict=True))
    content = {"step": release.receipt.step, "shared": values, "head": release.receipt.head}
    return (json.dumps(content) + "\n").encode()


def lines(source: BinaryIO) -> Iterator[bytes]:
    """Lines without their end. Of one that is too long, only so much is kept that this can be seen."""
    while line := source.readline(LONGEST + 2):
        kept = line
        while line and not line.endswith(b"\n") and len(kept) > LONGEST:
            line = source.readline(LONGEST)
        yield kept.rstrip(b"\r\n")
