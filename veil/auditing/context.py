"""What all stages of one audit share: the system, the policy, the keys, the store, the clock."""

import time
from collections.abc import Callable
from typing import TypeVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from scipy.special import log_softmax

from veil.auditing.attackers import Attacker, array, attack_batch, judged
from veil.auditing.episodes import Progress, chosen, in_batches, play_batch
from veil.auditing.forecast import Forecast
from veil.auditing.measure import shared_components
from veil.auditing.options import Options
from veil.auditing.reading import sides_batch
from veil.auditing.result import AttackResult
from veil.auditing.rungs import Rung
from veil.auditing.sandwich import Sides
from veil.auditing.store import Store
from veil.auditing.worlds import World
from veil.policies import Policy, PrivatePolicy
from veil.releases import release_kind
from veil.rollout import Record
from veil.systems.base import System

Made = TypeVar("Made")


class Context:
    """One audit on its way."""

    def __init__(
        self,
        system: System,
        policy: Policy | PrivatePolicy,
        options: Options,
        progress: Progress,
        store: Store,
    ):
        self.system, self.policy, self.options = system, policy, options
        self.progress, self.store = progress, store
        self.key, self.own_key, self.train_key = jr.split(jr.key(options.seed), 3)
        # Masses that were given in single precision sum to one only up to 1e-7.
        self.log_prior = log_softmax(np.asarray(system.prior.log_masses))
        self.kind = None if isinstance(policy, PrivatePolicy) else release_kind(system, policy)[0]
        self.apart = shared_components(system)
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def late(self) -> bool:
        """Whether the time for more episodes is over."""
        return time.monotonic() - self.began > self.options.seconds

    def timed(self, stage: str, make: Callable[[], Made]) -> Made:
        """Do it and add up the seconds."""
        began = time.monotonic()
        made = make()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began
        return made

    def play(
        self, policy: Policy | PrivatePolicy, world: World, numbers: np.ndarray, stage: str, steps: int = 0
    ) -> Record:
        """Play these episodes."""
        length = steps or self.options.steps

        def run(part: np.ndarray) -> Record:
            return play_batch(world, policy, length, array(part), self.key)

        return self.timed("playing", lambda: in_batches(stage, run, numbers, self.progress))

    def sides(self, rung: Rung, records: Record, numbers: np.ndarray, length: int, stage: str) -> Sides:
        """Both sides of these episodes, from the store if they were measured before."""
        at = jnp.asarray(length, jnp.int32)

        def run(rows: np.ndarray) -> Sides:
            named = array(numbers[rows])
            return sides_batch(rung, chosen(records, rows), named, at, self.key, self.own_key, self.apart)

        def make() -> dict[str, np.ndarray]:
            return vars(in_batches(stage, run, np.arange(len(numbers)), self.progress))

        name = f"sides-{rung.name}-{rung.particles}-{length}-{numbers[0]}-{len(numbers)}".replace(" ", "-")
        arrays = self.timed("two sides", lambda: self.store.keep(name, make))
        return Sides(**{field: jnp.asarray(values) for field, values in arrays.items()})

    def attack(
        self,
        attacker: Attacker,
        records: Record,
        *,
        began: float | None = None,
        log_prior: np.ndarray | None = None,
    ) -> AttackResult:
        """Let one attacker read the transcripts.

        Args:
            attacker: who.
            records: the episodes; only an assisted attacker sees more than their public side.
            began: when its work began, if before now.
            log_prior: of the secrets in these episodes, if not the system's.
        """
        rows = np.arange(min(attacker.episodes, len(records.index)))
        began = time.monotonic() if began is None else began

        def run(part: np.ndarray) -> object:
            batch = chosen(records, part)
            return attack_batch(attacker.make, batch, array(part), self.own_key).log_likelihood

        def make() -> dict[str, np.ndarray]:
            found = in_batches(f"attack: {attacker.name}", run, rows, self.progress)
            return {"log_likelihood": np.asarray(found), "seconds": np.asarray(time.monotonic() - began)}

        name = f"attack-{attacker.name}-{attacker.key}-{len(rows)}".replace(" ", "-")
        found = self.store.keep(name, make)
        prior = self.log_prior if log_prior is None else log_prior
        forecast = Forecast(found["log_likelihood"], np.asarray(records.index)[rows], prior)
        return judged(attacker.name, attacker.role, forecast, float(found["seconds"]), attacker.note)
