"""Lines that a broken or hostile sensor could send to any system, and a system without ranges."""

import io
import json
from collections.abc import Callable, Iterator

import numpy as np

from veil.laws import diagonal_gaussian
from veil.systems import Gain
from veil.systems.base import Field

ODD: tuple[object, ...] = (
    *(1e308, -1e308, 1.8e308, 1e18, -1e12, 1e9, 5e-324, float("nan"), float("inf"), float("-inf")),
    *(10**400, -(10**30), True, False, None, "1", "", [], {}, [1.0], {"level": 1.0}),
)


class File(io.BytesIO):
    """Bytes with all that a file has."""

    name = "stream"

    @property
    def mode(self):
        return "rb"


class Source(File):
    """Lines that are made when they are read."""

    def __init__(self, makers: list[Callable[[], bytes]]):
        super().__init__()
        self._makers, self._rest = iter(makers), b""

    def readline(self, size: int | None = -1, /) -> bytes:
        """The next line, or the part of it that fits."""
        self._rest = self._rest or next((make() + b"\n" for make in self._makers), b"")
        end = len(self._rest) if size is None or size < 0 else size
        part, self._rest = self._rest[:end], self._rest[end:]
        return part


class NoRanges(Gain):
    """Two coupled levels without any range, the second nearly unstable."""

    secret_fields = (Field("gain"),)
    state_fields = (Field("level"), Field("slow"))
    external_fields = (Field("push"),)
    shared_fields = (Field("level"), Field("slow"))

    def initial(self, secret):
        """Around zero."""
        del secret
        return diagonal_gaussian(self.initial_sd * np.zeros(2), self.initial_sd * np.ones(2))

    def transition(self, secret, state, external):
        """The first as in the gain loop; the second follows it."""
        mean = [secret[0] * state[0] + external[0], 0.99 * state[1] + 0.1 * state[0]]
        return diagonal_gaussian(_stack(mean), self.sd * np.ones(2))

    def react(self, external, shared, noise):
        """An answer to the first level alone."""
        answer = 0.0 * external if shared is None else self.reply * shared[:1]
        return answer + self.reaction_sd * noise

    def distortion(self, state, shared):
        """Euclidean distance, by parts."""
        return abs(state[0] - shared[0]) + abs(state[1] - shared[1])


def _stack(parts):
    import jax.numpy as jnp

    return jnp.stack(parts)


def fuzzed_lines(system, count: int, due: Callable[[], int], seed: int = 0) -> Iterator[Callable[[], bytes]]:
    """So many lines, each made when it is sent, since it names the step that is due then.

    Args:
        system: whose fields are filled.
        count: how many.
        due: gives the next step.
        seed: of the choices.
    """
    chance = np.random.default_rng(seed)
    states, inputs = (
        [field.name for field in fields] for fields in (system.state_fields, system.external_fields)
    )

    def line(kind: int, numbers: np.random.Generator) -> bytes:
        step: object = due()
        values = {name: float(numbers.normal(15.0, 3.0)) for name in (*states, *inputs)}
        if kind < 4:  # one odd value
            values[str(numbers.choice([*values]))] = ODD[int(numbers.integers(len(ODD)))]  # pyright: ignore[reportArgumentType]
        if kind == 4:
            step = [0, -1, 10**12, 2**31 - 1, due() + 101, due() + 10_000, "1", None, True, 1.5][
                numbers.integers(10)
            ]
        if kind == 5:
            step = due() + int(numbers.integers(1, 4))
        content: dict[str, object] = {
            "step": step,
            "state": {name: values[name] for name in states},
            "external": {name: values[name] for name in inputs},
        }
        if kind == 6:
            content.pop(str(numbers.choice([*content])))
        text = json.dumps(content).encode()
        if kind == 7:
            place = int(numbers.integers(len(text)))
            text = text[:place] + numbers.bytes(3).replace(b"\n", b"") + text[place:]
        if kind == 8:
            text = [b"", b"[" * 50_000, b"x" * 70_000, text[: len(text) // 2], b"null"][numbers.integers(5)]
        return text

    for _ in range(count):
        kind, numbers = int(chance.integers(0, 12)), np.random.default_rng(chance.integers(2**32))
        yield lambda kind=kind, numbers=numbers: line(kind, numbers)
