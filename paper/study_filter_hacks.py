"""Policies made to break filters, and what the audit says of them.

Two by hand: a mean that folds with tiny noise, and one that jumps. One trained to lower the final
log-posterior that a bootstrap filter has of the true secret: it learns to break the filter, not to hide.
None of them may come out as private: either the audit refuses, or a lower bound shows the leak.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
import tyro
from jaxtyping import Array, Float

from veil.beliefs import ParticleBelief
from veil.evaluation.audit import audit
from veil.laws import Gaussian, Kernel, diagonal_gaussian
from veil.policies import PlainPolicy, Policy
from veil.rollout import follow, rollout
from veil.settings import AuditSettings
from veil.systems import Platoon, System

UNIT = (0.5, 1.0)  # m/s, m: the spread of the platoon around its equilibrium


class Folding(PlainPolicy):
    """y = equilibrium + sin(frequency(θ) · deviation), with noise of sd 0.02."""

    system: System
    strength: Float[Array, ""] = eqx.field(default=3.0, converter=jnp.asarray)

    def kernel(self, features, external, time) -> Kernel:
        """The same at every step."""
        return FoldingKernel(self.strength.astype(external.dtype))


class FoldingKernel(Kernel):
    """See `Folding`."""

    strength: Float[Array, ""]

    def __call__(self, secret, state) -> Gaussian:
        """Gaussian around the folded state."""
        middle, unit = jnp.asarray([15.0, 20.0], state.dtype), jnp.asarray(UNIT, state.dtype)
        folded = jnp.sin(self.strength * (0.5 + secret[0]) * (state - middle) / unit)
        return diagonal_gaussian(middle + unit * folded, jnp.full_like(state, 0.02))


class Jumping(PlainPolicy):
    """y = x plus one unit up or down, by the sign of a fast wave in x whose phase is the secret's."""

    system: System

    def kernel(self, features, external, time) -> Kernel:
        """The same at every step."""
        return JumpingKernel()


class JumpingKernel(Kernel):
    """See `Jumping`."""

    def __call__(self, secret, state) -> Gaussian:
        """Gaussian around the state after the jump."""
        unit = jnp.asarray(UNIT, state.dtype)
        wave = jnp.sin(6.0 * (state - jnp.asarray([15.0, 20.0], state.dtype)) / unit + 2.0 * secret[0])
        return diagonal_gaussian(state + unit * jnp.tanh(40.0 * wave), jnp.full_like(state, 0.02))


class Trained(PlainPolicy):
    """y = x + a network's offset, with a network's noise between 0.02 and 2."""

    system: System
    network: eqx.nn.MLP

    def kernel(self, features, external, time) -> Kernel:
        """The same at every step."""
        return TrainedKernel(self.network)


class TrainedKernel(Kernel):
    """See `Trained`."""

    network: eqx.nn.MLP

    def __call__(self, secret, state) -> Gaussian:
        """Gaussian around the moved state."""
        deviation = (state - jnp.asarray([15.0, 20.0], state.dtype)) / jnp.asarray(UNIT, state.dtype)
        made = self.network(jnp.concatenate([secret, deviation]))
        sd = 0.02 * jnp.exp(4.6 * jax.nn.sigmoid(made[2:]))
        return diagonal_gaussian(state + 10.0 * made[:2], sd)


def train(system: Platoon, updates: int, particles: int, *, key: jax.Array) -> Trained:
    """Lower the mean final log-posterior that a bootstrap filter has of the true secret."""
    network = eqx.nn.MLP(4, 4, 32, 2, activation=jnp.tanh, key=key)
    policy = Trained(system, network)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))

    def loss(network: eqx.nn.MLP, key: jax.Array) -> Array:
        tried = Trained(system, network)

        def one(number, key):
            play_key, start_key, read_key = jr.split(key, 3)
            record = rollout(system, tried, 20, public_seed=number, key=play_key, index=number % 4)
            belief = ParticleBelief.start(system, particles, key=start_key)
            trail = follow(system, tried, belief, record.public, key=read_key)
            return jnp.maximum(trail.log_masses[-1, record.index], -40.0)

        return jnp.mean(jax.vmap(one)(jnp.arange(16, dtype=jnp.int32), jr.split(key, 16)))

    @eqx.filter_jit
    def step(network, state, key):
        value, gradient = eqx.filter_value_and_grad(loss)(network, key)
        gradient = jax.tree.map(lambda leaf: jnp.nan_to_num(leaf), gradient)
        change, state = optimiser.update(gradient, state)
        return eqx.apply_updates(network, change), state, value

    state = optimiser.init(eqx.filter(network, eqx.is_array))
    for number in range(updates):
        network, state, value = step(network, state, jr.fold_in(key, number))
        if number % 25 == 0 or number == updates - 1:
            print(
                f"  update {number}: the filter's log-posterior of the true secret {float(value):.2f}",
                flush=True,
            )
    return eqx.tree_at(lambda it: it.network, policy, network)


@dataclass(frozen=True)
class Study:
    """Audit three policies that break filters."""

    out: Path = Path("build/studies")
    """folder for the result"""
    fast: bool = False
    """few episodes and updates: shows that everything runs"""

    def run(self) -> None:
        """Print what the audit says and write it as JSON."""
        system = Platoon()
        updates = 5 if self.fast else 300
        policies: dict[str, Policy] = {"folding": Folding(system), "jumping": Jumping(system)}
        print("training a policy on a filter's log-posterior ...")
        policies["trained on a filter"] = train(system, updates, 16 if self.fast else 81, key=jr.key(1))
        options = AuditSettings(
            steps=10 if self.fast else 50,
            episodes=16 if self.fast else 512,
            learned=True,
            assisted=False,
            training=128 if self.fast else 8192,
            scenarios="none",
        )
        results = {}
        for name, policy in policies.items():
            found = audit(system, policy, options)
            best = max(found.attacks, key=lambda row: row.lower.value if row.role == "attack" else -1.0)
            print(f"{name}: {found.verdict.name}; {found.sentence}")
            print(f"  best attacker {best.name}: {best.lower.value:.3f} ± {best.lower.error:.3f} nats")
            results[name] = {
                "verdict": found.verdict.name,
                "high": found.leakage.high,
                "attacks": {
                    row.name: [row.lower.value, row.raw.value, row.accuracy.value] for row in found.attacks
                },
                "inputs": found.verdict.inputs,
            }
            assert found.leakage.high > 0.9 * found.leakage.entropy or self.fast, "called private"
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "filter_hacks.json").write_text(json.dumps(results, indent=1, default=str))


if __name__ == "__main__":
    tyro.cli(Study).run()
