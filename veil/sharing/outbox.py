"""The ledger as an outbox: how far it was published, what is due, and which inputs may be acknowledged."""

import json
import os
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from veil.sharing.chain import CHAIN
from veil.sharing.ledger import Ledger

AGAIN = 64  # releases published again on connecting, since a broker that crashed may forget what it took


class Mark:
    """The file beside a ledger that says how far its releases were acknowledged, and by whom.

    Losing it costs repeats and nothing else, so it is replaced as a whole and not waited for. It names the
    entry by its digest: a mark of another ledger counts for nothing.
    """

    def __init__(self, ledger: Ledger, to: str):
        self.path = ledger.path.with_name(ledger.path.name + ".published")
        self._ledger, self._to = ledger, to

    def read(self) -> int:
        """The last step that was acknowledged, all before it included; 0 if none is known."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            known = content["to"] == self._to and self._ledger[content["step"]][CHAIN] == content[CHAIN]
            return content["step"] if known else 0
        except (OSError, ValueError, KeyError, TypeError):
            return 0

    def write(self, step: int) -> None:
        """All up to this step was acknowledged."""
        content = {"step": step, CHAIN: self._ledger[step][CHAIN], "to": self._to}
        partial = self.path.with_name(self.path.name + ".partial")
        partial.write_text(json.dumps(content), encoding="utf-8")
        os.replace(partial, self.path)


class Input(NamedTuple):
    """An input that waits for us: its message, and the step that must be safe first; 0 for none."""

    message: int
    step: int


class Outbox:
    """What is to be published next, and which inputs may be acknowledged. One connection's view."""

    def __init__(self, acknowledged: int):
        self.acknowledged = acknowledged  # the last step, all before it included
        self.flight = dict[int, int]()  # message -> step
        self._sent = max(0, acknowledged - AGAIN)
        self._inputs = deque[Input]()
        self._asked = deque[int]()  # steps that an input asks for again
        self._repeats = dict[int, int]()  # those in flight, message -> step

    def received(self, message: int, step: int) -> None:
        """An input whose step is in the ledger now, or which has none."""
        self._inputs.append(Input(message, step))
        if 0 < step <= self.acknowledged:
            self._asked.append(step)

    def due(self, last: int) -> int | None:
        """The step to publish next, of a ledger that goes up to `last`; None if all are under way."""
        if self._asked:
            return self._asked[0]
        return self._sent + 1 if self._sent < last else None

    def publishing(self, message: int) -> None:
        """What was due is under way."""
        if self._asked:
            self._repeats[message] = self._asked.popleft()
        else:
            self._sent += 1
            self.flight[message] = self._sent

    def published(self, message: int) -> None:
        """The broker has it."""
        self._repeats.pop(message, None)
        self.flight.pop(message, None)
        self.acknowledged = max(self.acknowledged, min(self.flight.values(), default=self._sent + 1) - 1)

    @property
    def waiting(self) -> int:
        """Messages under way."""
        return len(self.flight) + len(self._repeats)

    def settled(self) -> Iterator[int]:
        """Inputs to acknowledge now, in the order in which they came, as the protocol wants it."""
        unsafe = {*self._asked, *self._repeats.values()}
        while self._inputs and self._inputs[0].step <= self.acknowledged:
            if self._inputs[0].step in unsafe:
                return
            yield self._inputs.popleft().message
