"""What a live charge costs and says beside the paper's bound, on particle beliefs along one run."""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bench import report
from bench.live import Plant, made
from veil.beliefs import ParticleSpec
from veil.leakage.per_step import Measure
from veil.policies import Budgeted, Transport
from veil.step import public_key

METHODS = {
    "estimate": Measure("estimate", points=4096),
    "live": Measure("live"),
    "regime_adaptive": Measure("regime_adaptive"),
}


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Charge the same releases by both bounds and by an estimate; print, and return what to record."""
    del folder
    particles, steps = (16, 3) if fast else (81, 50)
    with jax.enable_x64(True):
        rows = {name: _charges(name, particles, steps) for name in ("noise", "transport")}
    report.table(
        f"Charge of one release by {particles} particles per secret, mean over {steps} steps",
        ["policy", "estimate", "live bound", "paper's bound", "paper / live", "live ms", "paper's ms"],
        [
            [
                name,
                *(f"{row[key]:.4f}" for key in METHODS),
                f"{row['regime_adaptive'] / max(row['live'], 1e-12):.1f}",
                *(f"{row[key]:.2f}" for key in ("live_ms", "regime_adaptive_ms")),
            ]
            for name, row in rows.items()
        ],
        "Nats. All three speak of the particle model; the paper's bound does not vanish where nothing leaks.",
    )
    return {"charges": rows, "particles": particles, "steps": steps}


def _charges(name: str, particles: int, steps: int) -> dict[str, float]:
    """Means over the steps of one stream."""
    inner, tracker = made(name), ParticleSpec(particles)
    system = inner.system
    if isinstance(inner, Transport):
        inner = Transport(system, inner.sd, tracker)
    policy = Budgeted(inner, jnp.inf, tracker=None if isinstance(inner, Transport) else tracker)
    ask = {key: jax.jit(lambda b, k, m=m: m(b, k, key=jax.random.key(0))) for key, m in METHODS.items()}
    plant, seed = Plant(system), jnp.asarray(0, jnp.int32)
    belief, sums = (
        policy.start(key=public_key(seed, 0)),
        dict.fromkeys((*ask, "live_ms", "regime_adaptive_ms"), 0.0),
    )

    @jax.jit
    def forward(belief, state, external, step, noise):
        kernel = policy.kernel(policy.features(belief, external, step), external, step)
        shared = kernel(system.prior.secrets[1], state).sample(noise)
        after, _ = belief.update(system, kernel, external, shared, key=public_key(seed, step))
        return kernel.opened(), shared, after

    for step in range(1, steps + 1):
        noise, now = jnp.asarray(plant.numbers.normal(size=2)), jnp.asarray(step, jnp.int32)
        kernel, shared, after = forward(belief, plant.state, plant.external, now, noise)
        for key, function in ask.items():
            value = jax.block_until_ready(function(belief.account, kernel))
            began = time.perf_counter()
            jax.block_until_ready(function(belief.account, kernel))
            sums[key] += float(value) / steps
            if key != "estimate":
                sums[f"{key}_ms"] += 1e3 * (time.perf_counter() - began) / steps
        plant.step(np.asarray(shared))
        belief = after
    return sums
