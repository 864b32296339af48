"""The compiled step of a stream, one for policies with a belief and one for those with a private memory.

The same program shares live and replays a ledger, so that both agree to the last bit; it is compiled once, at
start-up, for fixed shapes. The secret is an argument: a constant of the program would end up on disk, in the
cache of compiled programs.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt32

from veil.beliefs.base import Belief
from veil.beliefs.particles import ParticleBelief
from veil.laws import recovered
from veil.policies.budgeted import Budgeted, Spending
from veil.policies.gate import Gate
from veil.policies.private import Memory, PrivatePolicy
from veil.session import Live, Situation, first_belief, share
from veil.systems.base import System
from veil.types import Noise, Secret, State, Vector


class Sight(NamedTuple):
    """What the owner sees at one step, and saw at the one before; arrays of JAX or numpy. Private."""

    state: Any
    external: Any
    missing: Any
    state_before: Any
    external_before: Any
    missing_before: Any


class Public(NamedTuple):
    """What is public about a step before it is shared."""

    time: Any
    seed: Any
    left: Any  # nats
    known: Any  # whether the release is on record
    shared: Any  # that release


class Told(NamedTuple):
    """What a step made public, in one row of numbers; see `told_by`."""

    shared: np.ndarray
    open: bool
    withheld: bool
    blur: float
    charge: float
    effective: float
    log_evidence: float


def told_by(row: np.ndarray) -> Told:
    """The parts of the row that a belief step gives."""
    numbers = [float(number) for number in row[-6:]]
    return Told(row[:-6], bool(numbers[0] > 0.5), bool(numbers[1] > 0.5), *numbers[2:])


def believing(policy: Budgeted):
    """The step of a policy with a public belief, from (belief, secret, ...) to (belief, row, noise)."""

    def step(
        belief: Spending, secret: Secret, sight: Sight, public: Public, coins: UInt32[Array, "2"]
    ) -> tuple[Belief, Float[Array, " R"], Noise]:
        state = clamped(policy.system, sight.state)
        belief = eqx.tree_at(lambda one: one.left, belief, public.left)
        situation = Situation(secret, secret, state, sight.external, public.time, None)
        live = Live(sight.missing, public.known, public.shared)
        key = jr.wrap_key_data(coins)
        after, stage = share(policy, belief, situation, seed=public.seed, key=key, live=live)
        kernel, health = stage.kernel, stage.health
        assert isinstance(kernel, Gate) and health is not None and stage.withheld is not None
        blur = jnp.where(kernel.open, stage.features[-1], 0.0)
        effective = jnp.min(health.effective) / _particles(belief)
        numbers = (kernel.open, stage.withheld, blur, kernel.charge, effective, health.log_evidence)
        row = jnp.concatenate([stage.shared, jnp.stack([jnp.asarray(n, state.dtype) for n in numbers])])
        return after, row, _residual(policy.system, secret, sight)

    return step


def remembering(policy: PrivatePolicy):
    """The step of a policy with private memory, from (memory, ready, secret, ...) to (memory, y, noise).

    `ready` says that the memory is that of this step already.
    """
    system = policy.system

    def step(
        memory: Memory,
        ready: Bool[Array, ""],
        secret: Secret,
        sight: Sight,
        time: Int[Array, ""],
        coins: UInt32[Array, "2"],
    ) -> tuple[Memory, Vector, Noise]:
        state, before = clamped(system, sight.state), clamped(system, sight.state_before)
        first = policy.begin(secret, jnp.where(sight.missing, system.initial(secret).mean, state))
        kept = policy.remember(memory, secret, before, sight.external_before, state)
        coasted = policy.coast(memory, sight.external_before)
        unseen = sight.missing | sight.missing_before
        later = jnp.where(ready, memory, jnp.where(unseen, coasted, kept))
        memory = jnp.where(time == 1, first, later)
        law = policy.law(memory)
        noise = jr.normal(jr.wrap_key_data(coins), (law.noise_size,), state.dtype)
        return memory, law.sample(noise), _residual(system, secret, sight)

    return step


def clamped(system: System, state: State) -> State:
    """The state within the ranges of its fields: refusing it would tell something about it."""
    low = jnp.asarray([field.low for field in system.state_fields], state.dtype)
    high = jnp.asarray([field.high for field in system.state_fields], state.dtype)
    return jnp.clip(state, low, high)


def first(policy: Budgeted, seed: int) -> Belief:
    """The belief at t = 1."""
    return jax.jit(lambda number: first_belief(policy, number))(jnp.asarray(seed, jnp.int32))


def _residual(system: System, secret: Secret, sight: Sight) -> Noise:
    """The noise that the last step took if the model is right; NaN where that is not known. Private."""
    law = system.transition(secret, sight.state_before, sight.external_before)
    noise = recovered(law, sight.state, jnp.full_like(sight.state, jnp.nan))
    return jnp.where(sight.missing | sight.missing_before, jnp.nan, noise)


def _particles(belief: Spending) -> float:
    """How many there are per secret; the effective size of other beliefs is infinite."""
    account = belief.account
    return float(account.log_weights.shape[1]) if isinstance(account, ParticleBelief) else 1.0
