"""The live part of the demo: a simulated vehicle, and a table of what is true beside what goes out."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from veil.systems.base import Field, System
from veil.types import External, Secret, Shared, State, as_float64

if TYPE_CHECKING:
    from rich.table import Table

    from veil.sharing.ledger import Release


SHOWN = 12  # steps on the screen

EVERY = 10  # steps between two lines where there is no terminal

Tell = Callable[[np.ndarray, "Release"], None]


@contextmanager
def view(fields: "Sequence[Field]") -> Iterator[Tell]:
    """Shows each step: the true output and the release."""
    if not sys.stderr.isatty():
        yield lambda true, release: _line(fields, true, release)
        return
    from rich.console import Console
    from rich.live import Live

    rows: list[tuple[str, ...]] = []
    with Live(console=Console(stderr=True), refresh_per_second=10) as live:

        def tell(true: np.ndarray, release: "Release") -> None:
            rows.append(row(true, release))
            live.update(table(fields, rows))

        yield tell


def table(fields: "Sequence[Field]", rows: list[tuple[str, ...]]) -> "Table":
    """The last steps as a table."""
    from rich.table import Table

    heads = [f"{kind} {field.name} [{field.unit}]" for field in fields for kind in ("true", "shared")]
    made = Table(title="Live: the vehicle keeps the left value of each pair and shares the right one")
    for head in ("step", *heads, "decision", "nats so far"):
        made.add_column(head.replace(" []", "").replace("[", "\\["), justify="right")
    for line in rows[-SHOWN:]:
        made.add_row(*line)
    return made


def row(true: np.ndarray, release: "Release") -> tuple[str, ...]:
    """The row of one step."""
    receipt = release.receipt
    shared = [np.nan] * len(true) if release.shared is None else release.shared
    pairs = [f"{value:.2f}" for both in zip(true, shared, strict=True) for value in both]
    return (str(receipt.step), *pairs, receipt.decision, f"{receipt.total:.4f}")


def _line(fields: "Sequence[Field]", true: np.ndarray, release: "Release") -> None:
    if release.receipt.step % EVERY != 0:
        return
    step, *values, decision, total = row(true, release)
    pairs = zip(fields, values[::2], values[1::2], strict=True)
    values_text = ", ".join(
        f"{field.name} {kept} shared as {out} {field.unit}".strip() for field, kept, out in pairs
    )
    print(f"step {step}: {values_text}; {decision}, {total} nats so far", file=sys.stderr, flush=True)


class Vehicle:
    """State and surroundings before the release of the next step.

    Args:
        system: the model that it follows, and its surroundings with it.
        index: which secret of the prior is its own.
        seed: of its noise; this is a simulation, so that it may repeat itself.
    """

    def __init__(self, system: System, index: int, seed: int):
        self.numbers = np.random.default_rng(seed)
        with jax.enable_x64(True):
            self.system = as_float64(system)
            self.secret = self.system.prior.secrets[index]
            law = self.system.initial(self.secret)
            self.state = np.asarray(law.sample(self._noise(law.noise_size)))
            self.external = np.asarray(self.system.first_external())

    def go_on(self, shared: np.ndarray | None) -> None:
        """One step: the owner moves by what surrounds it, and that reacts to what was shared."""
        with jax.enable_x64(True):
            noise = self._noise(len(self.state) + self.system.reaction_noise_size)
            seen = None if shared is None else jnp.asarray(shared)
            now = jnp.asarray(self.state), jnp.asarray(self.external), seen
            self.state, self.external = map(np.asarray, _moved(self.system, self.secret, *now, noise))

    def _noise(self, size: int) -> Array:
        return jnp.asarray(self.numbers.standard_normal(size))


@eqx.filter_jit
def _moved(
    system: System,
    secret: Secret,
    state: State,
    external: External,
    shared: Shared | None,
    noise: Float[Array, " S"],
) -> tuple[State, External]:
    """The next state and the next surroundings."""
    law = system.transition(secret, state, external)
    own, others = noise[: law.noise_size], noise[law.noise_size :]
    return law.sample(own), system.next_external(external, shared, others)
