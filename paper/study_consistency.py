"""Weak consistency of the particle belief, and convergence of the stage cost, in the number of particles.

On the scalar gain loop the exact belief is a bank of Kalman filters. Along fixed transcripts the study
compares, at the last step, the particle belief with it: masses of the secrets, integrals of a bounded
function tanh(x) given the secret, and the leakage I(Θ; Y_t | h_t) of the next release. The law of large
numbers says errors of order N^(−1/2).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from convergence import arguments, information, line, publish

from veil.beliefs import Belief, KalmanBelief, ParticleBelief, Scheme
from veil.policies import GaussianNoise
from veil.policies.plain import NoiseKernel
from veil.rollout import rollout
from veil.step import Transcript
from veil.systems.gain import Gain

SD = 0.4


def last(system: Gain, belief: Belief, transcript: Transcript, *, key: jax.Array) -> Any:
    """The belief before the release that follows the transcript."""
    kernel = NoiseKernel(system, jnp.asarray([SD]))

    def step(own: Belief, seen):
        external, shared, step_key = seen
        return own.update(system, kernel, external, shared, key=step_key)[0], None

    keys = jr.split(key, transcript.shared.shape[0])
    return jax.lax.scan(step, belief, (transcript.external, transcript.shared, keys))[0]


def exact(system: Gain, transcript: Transcript) -> dict[str, jax.Array]:
    """Masses, E[tanh x | θ] by Gauss-Hermite quadrature, and leakage."""
    belief = last(system, KalmanBelief.start(system), transcript, key=jr.key(0))
    nodes, weights = (jnp.asarray(part) for part in np.polynomial.hermite_e.hermegauss(60))
    points = belief.states.mean + belief.states.scale[:, 0] * nodes[None, :]
    mean = jnp.tanh(points) @ (weights / jnp.sum(weights))
    charge = information(belief.components(NoiseKernel(system, jnp.asarray([SD]))), line(8.0, 0.2))
    return {"masses": jnp.exp(belief.log_masses), "tanh": mean, "leakage": charge[None]}


def estimated(system: Gain, transcript: Transcript, count: int, scheme: Scheme, *, key: jax.Array) -> dict:
    """The same three from particles."""
    start_key, run_key = jr.split(key)
    first = ParticleBelief.start(system, count, key=start_key, scheme=scheme)
    belief = last(system, first, transcript, key=run_key)
    mean = jnp.sum(jnp.exp(belief.log_weights) * jnp.tanh(belief.states[:, :, 0]), axis=1)
    charge = information(belief.components(NoiseKernel(system, jnp.asarray([SD]))), line(8.0, 0.2))
    return {"masses": jnp.exp(belief.log_masses), "tanh": mean, "leakage": charge[None]}


def errors(system: Gain, public: Transcript, truth: dict, count: int, repeats: int, scheme: Scheme) -> dict:
    """Root mean square error of each quantity over transcripts, repeats and secrets."""
    episodes = public.shared.shape[0]
    keys = jr.split(jr.key(count), (episodes, repeats))

    @eqx.filter_jit
    def run(transcripts, all_keys):
        def one(pair):
            return jax.lax.map(lambda key: estimated(system, pair[0], count, scheme, key=key), pair[1])

        return jax.lax.map(one, (transcripts, all_keys))

    got = run(public, keys)
    return {name: float(jnp.sqrt(jnp.mean((got[name] - truth[name][:, None]) ** 2))) for name in truth}


def main() -> None:
    """Run the study."""
    options = arguments("Consistency of the particle belief on the scalar gain loop.")
    counts = [16, 64, 256] if options.fast else [16, 32, 64, 128, 256, 512, 1024, 2048]
    episodes, repeats, steps = (4, 8, 5) if options.fast else (12, 48, 10)
    system = Gain()
    policy = GaussianNoise(system, jnp.asarray([SD]))
    public = jax.vmap(lambda seed, key: rollout(system, policy, steps, public_seed=seed, key=key).public)(
        jnp.arange(episodes), jr.split(jr.key(1), episodes)
    )
    truth = jax.vmap(lambda transcript: exact(system, transcript))(public)
    schemes = (
        {"coupled": Scheme()} if options.fast else {"coupled": Scheme(), "independent": Scheme(coupled=False)}
    )
    curves: dict[str, list[float]] = {}
    for label, scheme in schemes.items():
        for count in counts:
            for name, error in errors(system, public, truth, count, repeats, scheme).items():
                curves.setdefault(f"{name}, {label}", []).append(error)
    extra = {"steps": steps, "episodes": episodes, "repeats": repeats, "noise_sd": SD}
    extra["mean_exact_leakage"] = float(jnp.mean(truth["leakage"]))
    publish("consistency", counts, curves, extra, options.out)


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
