"""Points at which a system is examined, numerical tests of functions there, and its path under true data."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil.laws import LOG_TWO_PI, Gaussian
from veil.systems.base import System, require_rows
from veil.types import External, Key, State

_STEPS = 5

_SECRETS = 4


class Probes(eqx.Module):
    """Points of the closed loop under the truth: θ, x, w, y, x', and the noise that moved x and w."""

    secrets: Float[Array, "*batch P"]
    states: Float[Array, "*batch N"]
    externals: Float[Array, "*batch E"]
    shared: Float[Array, "*batch Y"]
    after: Float[Array, "*batch N"]
    noise: Float[Array, "*batch N"]
    reaction_noise: Float[Array, "*batch R"]


def some_secrets(system: System, most: int) -> Float[Array, "k P"]:
    """At most this many of the prior's secrets, evenly spread over its order."""
    secrets = system.prior.secrets
    picks = np.unique(np.linspace(0, secrets.shape[0] - 1, most).astype(int))
    return secrets[picks]


def evaluate(function: Callable, *arguments):
    """Call a function once, compiled in haste: the examination is over before optimisation would pay off."""
    options: dict[str, bool | str] = {"xla_backend_optimization_level": "0"}
    return jax.device_get(jax.jit(function, compiler_options=options)(*arguments))


def run_probes(system: System) -> Probes:
    """A few steps from the initial law with the true output shared, for a few secrets."""
    secrets = some_secrets(system, _SECRETS)
    count, size, reaction_size = secrets.shape[0], len(system.state_fields), system.reaction_noise_size

    def episode(secret, first, noises):
        def step(carry, noises):
            state, external = carry
            noise, reaction_noise = noises
            shared = system.output(state)
            after = system.transition(secret, state, external).sample(noise)
            probe = Probes(secret, state, external, shared, after, noise, reaction_noise)
            return (after, system.next_external(external, shared, reaction_noise)), probe

        start = system.initial(secret).sample(first)
        return jax.lax.scan(step, (start, system.first_external()), noises)[1]

    numbers = np.random.default_rng(0).standard_normal((count, _STEPS + 1, size + reaction_size))
    numbers = numbers.astype(secrets.dtype)
    noises = numbers[:, 1:, :size], numbers[:, 1:, size:]
    found = evaluate(jax.vmap(episode), secrets, numbers[:, 0, :size], noises)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.reshape((-1, leaf.shape[-1]))), found)


def stride(points: Float[Array, "B d"], fraction: float) -> Float[Array, " d"]:
    """A step per coordinate in its own unit: a fraction of its spread and size over the points."""
    return fraction * (jnp.std(points, axis=0) + 0.1 * jnp.mean(jnp.abs(points), axis=0) + 0.02)


def along(function: Callable, probes: Probes) -> list:
    """Values of `function(probe, state)` at the probes' states and one and two wide strides from them."""

    def values(probes):
        step = stride(probes.states, 4.0)[None, :]
        return [jax.vmap(function)(probes, probes.states + k * step) for k in (0.0, 1.0, 2.0)]

    return evaluate(values, probes)


def bent(near: np.ndarray, middle: np.ndarray, far: np.ndarray) -> bool:
    """Whether three values at equal distances visibly leave a straight line."""
    size = np.max(np.abs(far - near)) + 1e3 * np.finfo(near.dtype).eps * np.max(np.abs(near))
    return bool(np.max(np.abs(far - 2.0 * middle + near)) > 1e-3 * size)


class Slope(eqx.Module):
    """A function at B points: gradients, changes along a small step as they say and as found, values."""

    gradients: Float[Array, "B d"]
    foretold: Float[Array, " B"]
    found: Float[Array, " B"]
    values: Float[Array, " B"]
    shuffled: Float[Array, " B"]

    def fault(self) -> str | None:
        """What is wrong with the gradient, if anything; a kink at a few points is forgiven."""
        if not np.all(np.isfinite(self.gradients)):
            return "is not finite"
        rounding = 20.0 * np.finfo(self.values.dtype).eps * (1.0 + np.abs(self.values))
        if np.all(self.gradients == 0.0) and np.any(np.abs(self.shuffled - self.values) > rounding):
            return "is zero everywhere although the value changes"
        allowed = 0.05 * (np.abs(self.foretold) + np.abs(self.found)) + rounding
        wrong = np.abs(self.foretold - self.found) > allowed
        return "does not match finite differences" if np.mean(wrong) > 0.5 else None


def slope(function: Callable, probes: Probes, points: Float[Array, "B d"]) -> Slope:
    """Reverse-mode gradients of `function(probe, point)` in the point next to central differences.

    Of several outputs it is the sum with fixed unequal weights. The last values are at other probes' points.
    """

    def scalar(probe, point):
        value = jnp.atleast_1d(function(probe, point))
        return value @ (1.0 + jnp.arange(value.shape[0], dtype=value.dtype))

    step, call = stride(points, 0.02)[None, :], jax.vmap(scalar)
    gradients = jax.vmap(jax.grad(scalar, argnums=1))(probes, points)
    change = 0.5 * (call(probes, points + step) - call(probes, points - step))
    shuffled = call(probes, jnp.roll(points, 1, axis=0))
    return Slope(gradients, gradients @ step[0], change, call(probes, points), shuffled)


def degenerate(scale: np.ndarray) -> bool:
    """Whether one of these square factors is singular, whatever the units of its rows."""
    length = np.linalg.norm(scale, axis=-1, keepdims=True)
    unit = scale / np.where(length > 0.0, length, 1.0)
    return bool(np.any(length == 0.0) or np.any(np.abs(np.linalg.det(unit)) < 1e-6))


@jax.jit
@jax.vmap
def _measure_laws(law: Gaussian, noise: Float[Array, " N"]):
    """Derivative of the draw in the noise, draw of zero noise, density and recovered noise of a draw."""
    value, centre = law.sample(noise), law.sample(jnp.zeros_like(noise))
    return jax.jacfwd(law.sample)(noise), centre, law.log_prob(value), law.recover(value)


def law_fault(law: Gaussian, noise: Float[Array, "B N"]) -> str | None:
    """What is wrong with these laws, if anything: draw, density and fields must describe one law.

    Density and draw are compared by the change of variables
    log_prob(sample(z)) = log N(z; 0, I) − log|det ∂sample/∂z|.
    """
    factors, centre, log_prob, recovered = jax.device_get(_measure_laws(law, noise))
    if not _near(factors, law.scale) or not _near(centre, law.mean):
        return "`sample` does not return mean + scale @ noise, which beliefs rely on"
    standard = -0.5 * np.sum(np.asarray(noise) ** 2 + LOG_TWO_PI, axis=1)
    if not _near(log_prob, standard - np.linalg.slogdet(factors)[1], 0.02):
        return "`log_prob` is not the density of what `sample` draws; is `scale` lower triangular?"
    return None if _near(recovered, noise, 0.02) else "`recover` does not return the noise that `sample` used"


def _near(left: np.ndarray, right: np.ndarray | Array, slack: float = 1e-4) -> bool:
    """Equal up to rounding; never for NaN."""
    return bool(np.all(np.abs(left - np.asarray(right)) <= slack * (1.0 + np.abs(np.asarray(right)))))


def true_data_path(
    system: System, steps: int, *, number: Int[Array, ""], key: Key
) -> tuple[Float[Array, "T_plus_1 N"], Float[Array, "T E"]]:
    """States and external inputs of an episode in which the true output is shared.

    The random numbers are those of `veil.rollout.play` with the same number and key.

    Args:
        system: the plant; its secrets take turns.
        steps: T, the number of releases.
        number: of the episode.
        key: of the whole set of episodes.
    """
    require_rows(system, steps)
    _, episode_key = jr.split(jr.fold_in(key, number))
    _, start_key, run_key = jr.split(episode_key, 3)
    secret = system.prior.secrets[number % system.prior.secrets.shape[0]]

    def step(
        now: tuple[State, External], step_key: Key
    ) -> tuple[tuple[State, External], tuple[Array, Array]]:
        state, external = now
        _, plant_key = jr.split(step_key)
        move_key, reply_key = jr.split(plant_key)
        law = system.transition(secret, state, external)
        after = law.sample(jr.normal(move_key, (law.noise_size,), law.mean.dtype))
        noise = jr.normal(reply_key, (system.reaction_noise_size,), external.dtype)
        return (after, system.next_external(external, system.output(state), noise)), (state, external)

    law = system.initial(secret)
    first = law.sample(jr.normal(start_key, (law.noise_size,), law.mean.dtype))
    start = (first, system.first_external())
    (last, _), (states, external) = jax.lax.scan(step, start, jr.split(run_key, steps))
    return jnp.concatenate([states, last[None]]), external
