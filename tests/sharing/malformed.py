"""Lines for a `gain` stream that a broken sensor could send, each with what must become of it.

Every value holds the same distinctive digits, which no message may repeat.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

import numpy as np

from veil.sharing.inputs import LONGEST

DIGITS = "7391846520"
# shared; answered from the ledger; withheld and reported; reported, with an answer that has no step; the same
# without a report
Fate = Literal["shared", "again", "withheld", "reported", "nothing"]


class Sent(NamedTuple):
    """A line, what must become of it, and the step and state that it tells."""

    line: bytes
    fate: Fate
    step: int = 0
    state: float = 0.0


# The step is due ($) and can be read; the rest is wrong in one place. # is a number, @ its digits.
WITHHELD = (
    '{"step": $}',
    '{"step": $, "state": {"level": #}}',
    '{"step": $, "external": {"push": #}}',
    '{"step": $, "state": null, "external": {"push": #}}',
    '{"step": $, "state": [#], "external": {"push": #}}',
    '{"step": $, "state": #, "external": {"push": #}}',
    '{"step": $, "state": "#", "external": {"push": #}}',
    '{"step": $, "state": {}, "external": {"push": #}}',
    '{"step": $, "state": {"level": "#"}, "external": {"push": #}}',
    '{"step": $, "state": {"level": [#]}, "external": {"push": #}}',
    '{"step": $, "state": {"level": {"level": #}}, "external": {"push": #}}',
    '{"step": $, "state": {"level": true}, "external": {"push": #}}',
    '{"step": $, "state": {"level": null}, "external": {"push": #}}',
    '{"step": $, "state": {"level": NaN}, "external": {"push": #}}',
    '{"step": $, "state": {"level": -Infinity}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #}, "external": {"push": NaN}}',
    '{"step": $, "state": {"level": #}, "external": {"push": 1e308}}',
    '{"step": $, "state": {"level": #}, "external": {"push": -1e10}}',
    '{"step": $, "state": {"level": 1@e400}, "external": {"push": #}}',
    '{"step": $, "state": {"level": -1@e400}, "external": {"push": #}}',
    f'{{"step": $, "state": {{"level": {DIGITS * 40}}}, "external": {{"push": #}}}}',
    '{"step": $, "state": {"Level": #}, "external": {"push": #}}',
    '{"step": $, "state": {"level ": #}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #, "@": #}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #, "\\ud800": #}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #}, "external": {"push": "#"}}',
    '{"step": $, "state": {"level": #}, "external": {"push": 1@e999}}',
    '{"step": $, "state": {"level": #}, "external": [#]}',
    '{"step": $, "state": {"level": #}, "external": {}}',
    '{"step": $, "state": {"level": #}, "external": {"push": #, "#": #}}',
    '{"step": $, "state": {"level": #}, "external": {"push": #}, "@": #}',
    '{"step": $, "state": {"level": #}, "external": {"push": #}, "secret": #}',
    '{"step": $, "state": {"level": #}, "external": {"push": #}, "\\u0000": "#"}',
)
# Not even the step can be read.
REPORTED = (
    "{}",
    "[]",
    "null",
    "true",
    "#",
    '"#"',
    "[#, #, #]",
    '{"state": {"level": #}, "external": {"push": #}}',
    '{"step": null, "state": {"level": #}, "external": {"push": #}}',
    '{"step": "$", "state": {"level": #}, "external": {"push": #}}',
    '{"step": $.0, "state": {"level": #}, "external": {"push": #}}',
    '{"step": true, "state": {"level": #}, "external": {"push": #}}',
    '{"step": 0, "state": {"level": #}, "external": {"push": #}}',
    '{"step": -$, "state": {"level": #}, "external": {"push": #}}',
    '{"step": [$], "state": {"level": #}, "external": {"push": #}}',
    '{"step": @, "state": {"level": #}, "external": {"push": #}}',
    '{"step": 1@@, "state": {"level": #}, "external": {"push": #}}',
    '{"step": 1$00, "state": {"level": #}, "external": {"push": #}}',
    '{"step": 2147483647, "state": {"level": #}, "external": {"push": #}}',
    '{"step": 1e400, "state": {"level": #}, "external": {"push": #}}',
    '{"step": $, "step": $, "state": {"level": #}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #, "level": #}, "external": {"push": #}}',
    '{"step": $, "state": {"level": 0#}, "external": {"push": #}}',
    '{"step": $, "state": {"level": +#}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #,}, "external": {"push": #}}',
    '{"step": $, "state": {"level": #}, "external": {"push": #}}}',
    '{"step": $, "state": {"level": #}, "external": {"push": #}} {"step": $}',
    "{'step': $, 'state': {'level': #}, 'external': {'push': #}}",
    "{step: $, state: {level: #}, external: {push: #}}",
    "$,#,#",
    f'{{"step": {DIGITS * 500}, "state": {{"level": #}}, "external": {{"push": #}}}}',
    f'{{"step": $, "state": {{"level": {DIGITS * 500}}}, "external": {{"push": #}}}}',
)
VALID = '{"step": $, "state": {"level": #}, "external": {"push": 0.5}}'


def filled(template: str, step: int, number: str = f"1.{DIGITS}") -> bytes:
    """A template with its numbers."""
    return template.replace("$", str(step)).replace("@", DIGITS).replace("#", number).encode()


class Sensor:
    """Sends what it likes; knows which step is due."""

    def __init__(self, seed: int = 0):
        self._chance, self.due = np.random.default_rng(seed), 1

    def send(self, count: int) -> Iterator[Sent]:
        """So many lines."""
        makers = (self.good, self.late, self.withheld, self.reported, self.bytes, self.blank, self.huge)
        for kind in self._chance.choice(len(makers), count, p=(0.05, 0.07, 0.07, 0.48, 0.3, 0.02, 0.01)):
            yield makers[kind]()

    def good(self) -> Sent:
        """The step that is due, or one a little ahead; with either end of line, padded as far as allowed."""
        step = self.due + int(self._chance.choice(4, p=(0.85, 0.05, 0.05, 0.05)))
        sent = self._valid(step)
        room = LONGEST - len(sent.line) if self._chance.random() < 0.05 else 0
        end = b"\r" if self._chance.random() < 0.2 else b""
        self.due = step + 1
        return sent._replace(line=sent.line + b" " * room + end)

    def _valid(self, step: int) -> Sent:
        number = f"{self._chance.integers(-2000, 2000) / 1000:.3f}{DIGITS}"
        return Sent(filled(VALID, step, number), "shared", step, float(number))

    def late(self) -> Sent:
        """A step of before, whatever else is said."""
        if self.due == 1:
            return self.good()
        step = int(self._chance.integers(1, self.due))
        return Sent(filled(str(self._chance.choice((VALID, *WITHHELD))), step), "again", step)

    def withheld(self) -> Sent:
        """The step that is due, with data that cannot be used."""
        self.due += 1
        return Sent(filled(str(self._chance.choice(WITHHELD)), self.due - 1), "withheld", self.due - 1)

    def reported(self) -> Sent:
        """Text without a step."""
        return Sent(filled(str(self._chance.choice(REPORTED)), self.due), "reported")

    def bytes(self) -> Sent:
        """Not even text, or torn."""
        line, noise = self._valid(self.due).line, self._chance.bytes(int(self._chance.integers(1, 300)))
        place = int(self._chance.integers(1, len(line)))
        torn = (
            line[:place],
            line[:place] + b"\xff" + line[place:],
            line[:place] + b"\0" + line[place:],
            line[:place] + b"\xed\xa0\x80" + line[place:],
            b"\xef\xbb\xbf" + line,
            b"\0" + line.decode().encode("utf-16-be").replace(b"\n", b""),
            b"\xc0" + noise.replace(b"\n", b""),
            b"~" + bytes(32 + byte % 95 for byte in noise),
        )
        return Sent(torn[self._chance.integers(len(torn))], "reported")

    def huge(self) -> Sent:
        """Too deep or too long."""
        line = self._valid(self.due).line
        made = (
            b"[" * 60_000,
            b'{"state":' * 7_000,
            b"[" * 100_000 + b"]" * 100_000,
            line + b" " * (LONGEST + 1 - len(line)),
            line + b" " * (LONGEST + 1 - len(line)) + b"\r",
            line + b" " * (1 << 20),
            line[:-1] + b', "more": "' + DIGITS.encode() * 100_000 + b'"}',
        )
        return Sent(made[self._chance.integers(len(made))], "reported")

    def blank(self) -> Sent:
        """Nothing."""
        return Sent((b"", b" ", b"\t  ", b"\r")[self._chance.integers(4)], "nothing")
