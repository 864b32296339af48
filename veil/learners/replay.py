"""What a learner has lived through: whole episodes in a ring, and transitions drawn from it."""

from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int

from veil.types import Key

Record = TypeVar("Record")


class Replay(eqx.Module, Generic[Record]):
    """Records of steps, batched [C, T], of the last C episodes.

    Attributes:
        records: any arrays, batched [C, T].
        added: episodes that were ever added.
    """

    records: Record
    added: Int[Array, ""]

    @classmethod
    def empty(cls, like: Record, capacity: int) -> "Replay[Record]":
        """Room for so many episodes; `like` is a batch of them [B, T], of which only the shapes count."""
        records = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape[1:]), leaf.dtype), like)
        return cls(records, jnp.asarray(0, jnp.int32))

    @property
    def capacity(self) -> int:
        """How many episodes there is room for."""
        return jax.tree.leaves(self.records)[0].shape[0]

    def add(self, episodes: Record) -> "Replay[Record]":
        """With these episodes [B, T] in the place of the oldest ones."""
        count = jax.tree.leaves(episodes)[0].shape[0]
        rows = (self.added + jnp.arange(count, dtype=jnp.int32)) % self.capacity
        records = jax.tree.map(lambda kept, new: kept.at[rows].set(new), self.records, episodes)
        return Replay(records, self.added + count)

    def draw(self, count: int, *, key: Key) -> tuple[Record, Record]:
        """Steps drawn with the same probability each, and the steps that followed them, batched [count].

        The last step of an episode is followed by itself: nothing follows it.
        """
        steps = jax.tree.leaves(self.records)[0].shape[1]
        row_key, step_key = jr.split(key)
        row = jr.randint(row_key, (count,), 0, jnp.minimum(self.added, self.capacity))
        step = jr.randint(step_key, (count,), 0, steps)
        after = jnp.minimum(step + 1, steps - 1)

        def taken(at: Int[Array, " B"]) -> Record:
            return jax.tree.map(lambda leaf: leaf[row, at], self.records)

        return taken(step), taken(after)
