"""Template of a learner: copy, rename, replace the update. `python learner.py` checks it."""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr

from veil.checks.learner import check_learner
from veil.learners import Learner, Progress


class HillClimber(Learner):
    """Tries several random changes of the network on the same episodes and keeps the best one."""

    episodes: int = eqx.field(default=24, static=True)
    tries: int = eqx.field(default=8, static=True)
    size: float = eqx.field(default=0.3, static=True)

    def begin(self, family, policy, *, key) -> Progress:
        """Before the first update; `memory` holds whatever else must survive an interruption."""
        price = family[0].objective.distortion_price
        return Progress(policy, price, jnp.asarray(0, jnp.int32), memory=())

    def update(self, family, progress, *, key):
        """One improvement, and numbers for the log."""
        change_key, play_key = jr.split(key)
        weights, rest = eqx.partition(progress.policy.network, eqx.is_inexact_array)
        flat, unflatten = jax.flatten_util.ravel_pytree(weights)
        changes = self.size * jr.normal(change_key, (self.tries, flat.shape[0]), flat.dtype)
        changes = changes.at[0].set(0.0)  # so that it never gets worse on these episodes
        numbers = jnp.arange(self.episodes, dtype=jnp.int32)

        def total(change):
            network = eqx.combine(unflatten(flat + change), rest)
            policy = eqx.tree_at(lambda one: one.network, progress.policy, network)
            played = [task.episodes(policy, numbers, key=play_key) for task in family]
            totals = [
                task.objective.total(outcome, progress.price)
                for task, outcome in zip(family, played, strict=True)
            ]
            return sum(jnp.mean(jnp.sum(rows, axis=1)) for rows in totals)

        totals = jax.lax.map(total, changes)
        best = jnp.argmin(totals)
        network = eqx.combine(unflatten(flat + changes[best]), rest)
        policy = eqx.tree_at(lambda one: one.network, progress.policy, network)
        return Progress(policy, progress.price, progress.updates + 1, ()), {"objective": totals[best]}


example = HillClimber()

if __name__ == "__main__":
    print(check_learner(example))
