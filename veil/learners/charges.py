"""What a critic is taught, and what an actor minimises."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.learners.critic import Critic, Sight, described
from veil.learners.experience import Step
from veil.learners.units import units_of
from veil.policies.encoding import Encoder
from veil.policies.learned import LearnedPolicy
from veil.policies.networks import Network
from veil.problem import Problem
from veil.types import Key, Scalar, Vector


class Charges(eqx.Module):
    """What releases charge, in units of the privacy weight, so that all numbers are of size one."""

    problem: Problem
    policy: LearnedPolicy
    price: Scalar
    discount: float = eqx.field(static=True)
    direct: bool = eqx.field(static=True)

    @property
    def unit(self) -> Scalar:
        """Cost units per nat, or one where leakage has no price."""
        weight = self.problem.objective.privacy_weight
        return jnp.where(weight > 0.0, weight, 1.0)

    def value(
        self, critic: Critic, encoder: Encoder, now: Step, action: Float[Array, "B A"]
    ) -> Float[Array, " B"]:
        """What the critic says, batched."""
        scaling = units_of(self.policy)

        def one(belief: Belief, sight: Sight, action: Vector) -> Scalar:
            return critic(encoder(belief, scaling), sight, action, scaling)

        return jax.vmap(one)(now.belief, now.sight, action)

    def present(
        self, network: Network, now: Step, *, key: Key
    ) -> tuple[Float[Array, " B"], Float[Array, "B A"]]:
        """What the present release charges and is differentiated, under this network, and its law."""
        policy = eqx.tree_at(lambda one: one.network, self.policy, network)
        system, scaling, objective = policy.system, units_of(policy), self.problem.objective

        def one(belief: Belief, sight: Sight, key: Key) -> tuple[Scalar, Vector]:
            features = policy.features(belief, sight.external, sight.time)
            kernel = policy.kernel(features, sight.external, sight.time)
            law, output = kernel(sight.secret, sight.state), system.output(sight.state)
            action = described(law, output, scaling)
            if not self.direct:
                return jnp.zeros_like(self.price), action
            measure_key, draw_key = jr.split(key)
            leakage = self.problem.measure(belief, kernel, key=measure_key)
            shared = law.sample(jr.normal(draw_key, (law.noise_size,), output.dtype))
            paid = self.price * system.distortion(sight.state, shared)
            return (objective.privacy_weight * leakage + paid) / self.unit, action

        return jax.vmap(one)(now.belief, now.sight, jr.split(key, now.weight.shape[0]))

    def target(self, slow: tuple[Network, Critic], now: Step, after: Step, *, key: Key) -> Float[Array, " B"]:
        """What the critic should have said: what was charged, and what is to come by the slow networks."""
        objective, outcome, (network, critic) = self.problem.objective, now.outcome, slow
        charged = outcome.cost
        if not self.direct:
            charged += objective.privacy_weight * outcome.leakage + self.price * outcome.distortion
        present, action = self.present(network, after, key=key)
        later = present + self.value(critic, network.encoder, after, action)
        return charged / self.unit + self.discount * (1.0 - now.last) * later
