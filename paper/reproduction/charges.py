"""The paper's bound along a run: what its authors would have charged for every release."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.leakage.per_step import Measure
from veil.policies.base import Policy
from veil.step import Record, Transcript, first_belief, policy_features, public_key, update_belief
from veil.types import Scalar

TOGETHER = 4


class Charges(eqx.Module):
    """Sums over one episode, or many (batched [E]), in nats."""

    bound: Float[Array, "*E"]
    clamped: Float[Array, "*E"]  # every step cut to between 0 and the entropy of the belief then


def chargeable(policy: Policy) -> bool:
    """Whether the policy has a belief of its own to be charged by."""
    return policy.has_belief


def charge(policy: Policy, transcript: Transcript) -> Charges:
    """The regime-adaptive bound on I(Θ; Y_t | h_t) under the policy's own belief, summed over the run.

    That of a release on a grid is exact and no bound.
    """
    seed, measure = transcript.public_seed, Measure("regime_adaptive")
    times = jnp.arange(1, transcript.shared.shape[0] + 1, dtype=jnp.int32)

    def step(belief: Belief, public: tuple[Array, ...]) -> tuple[Belief, tuple[Scalar, Scalar]]:
        time, external, shared = public
        decision = policy.decide(policy_features(policy, belief, external, time), external, time)
        bound = measure(belief, decision, key=jr.key(0))  # nothing is drawn
        most = -jnp.sum(jnp.exp(belief.log_masses) * belief.log_masses)
        after, _ = update_belief(policy, belief, decision, external, shared, key=public_key(seed, time))
        return after, (bound, jnp.clip(bound, 0.0, most))

    start = first_belief(policy, seed)
    _, (bounds, clamped) = jax.lax.scan(step, start, (times, transcript.external, transcript.shared))
    return Charges(jnp.sum(bounds), jnp.sum(clamped))


@eqx.filter_jit
def charge_batch(policy: Policy, records: Record) -> Charges:
    """Charge these episodes."""
    return jax.lax.map(lambda record: charge(policy, record.public), records, batch_size=TOGETHER)
