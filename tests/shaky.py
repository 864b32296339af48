"""An executor that shuffles its chunks, loses some and lets some fail; and functions for chunks."""

import random

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.executors.base import Done, Executor, Failed, Lost
from veil.executors.messages import pack, unpack

CALLS = []


class Sums(eqx.Module):
    """A result that can be kept."""

    total: Float[Array, ""]
    draw: Float[Array, ""]


@eqx.filter_jit
def noisy_sum(scale, numbers, key) -> Sums:
    draws = eqx.filter_vmap(lambda number: jr.normal(jr.fold_in(key, number)))(numbers)
    return Sums(jnp.sum(scale * draws), draws[0])


def counted_sum(scale, numbers, key) -> Sums:
    CALLS.append(int(numbers[0]))
    return noisy_sum(scale, numbers, key)


def fails_on_three(number):
    if int(number) == 3:
        raise ValueError("three is too many")
    return np.asarray(number) * 2


class Shaky(Executor):
    """Packs what it computes as if it were sent, in any order.

    Args:
        seed: of the order and of what is lost.
        loses: fraction of tries that are lost.
        doomed: chunks whose labels contain this are lost every time.
    """

    def __init__(self, seed=0, loses=0.0, doomed="\0", workers=2):
        super().__init__()
        self.random, self.loses, self.doomed, self.count = random.Random(seed), loses, doomed, workers

    @property
    def workers(self):
        return self.count

    def outcomes(self, chunks):
        order = list(range(len(chunks)))
        self.random.shuffle(order)
        for place in order:
            self.check()
            chunk = chunks[place]
            if self.doomed in chunk.label or self.random.random() < self.loses:
                yield place, Lost("its worker ended")
                continue
            shared, own = (unpack(*pack(part)) for part in (chunk.shared, chunk.own()))
            sent = type(chunk)(chunk.label, chunk.function, shared, lambda own=own: own)
            try:
                yield place, Done(unpack(*pack(sent.compute())), 0.01)
            except Exception as error:
                yield place, Failed(f"{type(error).__name__}: {error}", error)
