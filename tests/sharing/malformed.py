"""Lines for a `gain` stream that a broken sensor could send, each with what must become of it.

Every value holds the same distinctive digits, which no message may repeat.
"""

import json
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from veil.sharing.inputs import LONGEST

DIGITS = "7391846520"
# shared; answered from the ledger; withheld and reported; reported only; passed over
Fate = Literal["shared", "again", "withheld", "reported", "nothing"]


class Sent(NamedTuple):
    """A line, what must become of it, and the step and state that it tells."""

    line: bytes
    fate: Fate
    step: int = 0
    state: float = 0.0


# The step is due and can be read; the rest is wrong in one place. N is put where a number belongs.
N = f"1.{DIGITS}"
WITHHELD = (
    '{"step": STEP}',
    '{"step": STEP, "state": {"level": N}}',
    '{"step": STEP, "external": {"push": N}}',
    '{"step": STEP, "state": null, "external": {"push": N}}',
    '{"step": STEP, "state": [N], "external": {"push": N}}',
    '{"step": STEP, "state": N, "external": {"push": N}}',
    '{"step": STEP, "state": "N", "external": {"push": N}}',
    '{"step": STEP, "state": {}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": "N"}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": [N]}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": {"level": N}}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": true}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": null}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": 1DIGITSe400}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": -1DIGITSe400}, "external": {"push": N}}',
    f'{{"step": STEP, "state": {{"level": {DIGITS * 40}}}, "external": {{"push": N}}}}',
    '{"step": STEP, "state": {"Level": N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level ": N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": N, "DIGITS": N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": N, "\\ud800": N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": "N"}}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": 1DIGITSe999}}',
    '{"step": STEP, "state": {"level": N}, "external": [N]}',
    '{"step": STEP, "state": {"level": N}, "external": {}}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": N, "N": N}}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": N}, "DIGITS": N}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": N}, "secret": N}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": N}, "\\u0000": "N"}',
)
# Not even the step can be read.
REPORTED = (
    "{}",
    "[]",
    "null",
    "true",
    "N",
    '"N"',
    "[N, N, N]",
    '{"state": {"level": N}, "external": {"push": N}}',
    '{"step": null, "state": {"level": N}, "external": {"push": N}}',
    '{"step": "STEP", "state": {"level": N}, "external": {"push": N}}',
    '{"step": STEP.0, "state": {"level": N}, "external": {"push": N}}',
    '{"step": true, "state": {"level": N}, "external": {"push": N}}',
    '{"step": 0, "state": {"level": N}, "external": {"push": N}}',
    '{"step": -STEP, "state": {"level": N}, "external": {"push": N}}',
    '{"step": [STEP], "state": {"level": N}, "external": {"push": N}}',
    '{"step": DIGITS, "state": {"level": N}, "external": {"push": N}}',
    '{"step": 1DIGITSDIGITS, "state": {"level": N}, "external": {"push": N}}',
    '{"step": 2147483647, "state": {"level": N}, "external": {"push": N}}',
    '{"step": 1e400, "state": {"level": N}, "external": {"push": N}}',
    '{"step": STEP, "step": STEP, "state": {"level": N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": N, "level": N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": NaN}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": -Infinity}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": 0N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": +N}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": N,}, "external": {"push": N}}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": N}}}',
    '{"step": STEP, "state": {"level": N}, "external": {"push": N}} {"step": STEP}',
    "{'step': STEP, 'state': {'level': N}, 'external': {'push': N}}",
    '{step: STEP, state: {level: N}, external: {push: N}}',
    "STEP,N,N",
    f'{{"step": {DIGITS * 500}, "state": {{"level": N}}, "external": {{"push": N}}}}',
    f'{{"step": STEP, "state": {{"level": {DIGITS * 500}}}, "external": {{"push": N}}}}',
)
VALID = '{"step": STEP, "state": {"level": X}, "external": {"push": 0.5}}'


def filled(text: str, step: int) -> bytes:
    """The template with its numbers."""
    return text.replace("STEP", str(step)).replace("DIGITS", DIGITS).replace("N", N).encode()
