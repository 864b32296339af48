"""One recording: the states of a system and the inputs that it met, row by row."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


class LogError(ValueError):
    """A file or a table that cannot be taken for a recording of this system; the message says what to do."""


@dataclass(frozen=True)
class Log:
    """A recording, complete where the system needs it.

    Attributes:
        name: what it is called in tables.
        states: x_1..x_T; coordinates that are not recorded hold a stand-in that nothing reads.
        external: w_1..w_T as recorded; inputs that the transition does not use hold their first value.
        seen: which coordinates of the state are recorded.
        checked: whether the times of the rows were compared with the system's step.
    """

    name: str
    states: Float[np.ndarray, "T N"]
    external: Float[np.ndarray, "T E"]
    seen: tuple[bool, ...]
    checked: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no recording."""
        if len(self.states) < 2 or len(self.states) != len(self.external):
            raise LogError(
                f"{self.name}: a recording needs at least two rows, and as many of states as of inputs; got "
                f"{len(self.states)} and {len(self.external)}."
            )

    @property
    def steps(self) -> int:
        """T, the number of releases."""
        return len(self.states)
