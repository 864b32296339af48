"""The contract of an attack: a public transcript in, evidence about the secret out."""

import abc
from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from veil.laws import Law
from veil.policies.base import Policy
from veil.registry import ATTACKS
from veil.step import Record, Transcript
from veil.systems.base import Prior, System
from veil.types import Key, Scalar


class Evidence(eqx.Module):
    """What one transcript tells an adversary about the secret.

    `log_likelihood` is log p(y_1..y_T | θ) per secret, up to a constant. `effective` is the smallest
    effective sample size of the run as a share of the particles (1 where there are none), and `failed`
    says that a number was not finite: such a transcript was not understood, which is not the same as
    private.
    """

    log_likelihood: Float[Array, " K"]
    effective: Scalar
    failed: Bool[Array, ""]

    def log_posterior(self, prior: Prior) -> Float[Array, " K"]:
        """Log posterior masses of the secrets."""
        return jax.nn.log_softmax(prior.log_masses + self.log_likelihood)


class Attack(eqx.Module):
    """Reads one transcript. It knows the system and the policy in force, never the state or the secret.

    Attacks are written for one transcript and batched by `jax.vmap`; all randomness comes from `key`.
    """

    @abc.abstractmethod
    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """The evidence in this transcript."""


class PriorAttack(Attack):
    """Knows the prior and nothing else."""

    prior: Prior

    def __call__(self, transcript: Transcript, *, key: Key) -> Evidence:
        """Zero evidence for every secret."""
        del transcript, key
        zeros = jnp.zeros_like(self.prior.log_masses)
        return Evidence(zeros, jnp.ones_like(zeros[0]), jnp.asarray(False))


@dataclass(frozen=True)
class Attacker:
    """An attack as it stands in the tables of an audit.

    Attributes:
        name: for people and files.
        role: "attack" for one that the threat model grants, "assisted" for one that knows more,
            "mismatched" for one whose model is wrong.
        make: the attack for one episode; only an assisted one looks at the record.
        episodes: that it reads at most.
        note: what else to say about it.
    """

    name: str
    role: str
    make: Callable[[Record], Attack]
    episodes: int = 1 << 30
    note: str = ""


def has_filter(policy: Policy, law: Law) -> bool:
    """Whether a filter can weigh the releases of a policy: they depend on public features and carry noise."""
    return not (policy.has_memory or law.is_point or law.fresh_law().is_point)


@ATTACKS.register("prior")
def prior_attackers(system: System, policy: Policy, law: Law) -> tuple[Attacker, ...]:
    """The prior, and nothing else.

    Every function in `veil.registry.ATTACKS` has these arguments. It gives the attackers that apply; none
    where they do not.

    Args:
        system: the model that the adversary uses.
        policy: the one in force.
        law: the kind of its releases, see `veil.step.release_kind`.
    """
    del policy, law
    return (Attacker("prior", "attack", lambda _: PriorAttack(system.prior)),)
