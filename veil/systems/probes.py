"""Points at which a system is examined, and plain numerical tests of functions there."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.laws import Gaussian
from veil.laws.gaussian import LOG_TWO_PI
from veil.systems.base import System

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
    size, reaction_size, dtype = len(system.state_fields), system.reaction_noise_size, secrets.dtype

    def episode(secret, key):
        start_key, move_key, react_key = jr.split(key, 3)

        def step(carry, noises):
            state, external = carry
            noise, reaction_noise = noises
            shared = system.output(state)
            after = system.transition(secret, state, external).sample(noise)
            probe = Probes(secret, state, external, shared, after, noise, reaction_noise)
            return (after, system.react(external, shared, reaction_noise)), probe

        start = system.initial(secret).sample(jr.normal(start_key, (size,), dtype))
        noises = (
            jr.normal(move_key, (_STEPS, size), dtype),
            jr.normal(react_key, (_STEPS, reaction_size), dtype),
        )
        return jax.lax.scan(step, (start, system.initial_external()), noises)[1]

    keys = jr.split(jr.key(0), secrets.shape[0])
    found = evaluate(jax.vmap(episode), secrets, keys)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf.reshape((-1, leaf.shape[-1]))), found)


def stride(points: Float[Array, "B d"], share: float) -> Float[Array, " d"]:
    """A step per coordinate in its own unit: a share of its spread and size over the points."""
    return share * (jnp.std(points, axis=0) + 0.1 * jnp.mean(jnp.abs(points), axis=0) + 0.02)


def along(function: Callable, probes: Probes, points: Float[Array, "B d"]) -> list:
    """Values of `function(probe, point)` at the points and at one and two wide strides from them."""

    def values(probes, points):
        step = stride(points, 4.0)[None, :]
        return [jax.vmap(function)(probes, points + k * step) for k in (0.0, 1.0, 2.0)]

    return evaluate(values, probes, points)


def bent(near: np.ndarray, middle: np.ndarray, far: np.ndarray) -> bool:
    """Whether three values at equal distances visibly leave a straight line."""
    size = np.max(np.abs(far - near)) + 1e3 * np.finfo(near.dtype).eps * np.max(np.abs(near))
    return bool(np.max(np.abs(far - 2.0 * middle + near)) > 1e-3 * size)


def gradient_fault(function: Callable, probes: Probes, points: Float[Array, "B d"]) -> str | None:
    """What is wrong with the gradient of `function(probe, point)` in the point, if anything.

    Reverse-mode gradients are compared with central differences, on the sum of the outputs with fixed
    unequal weights. A kink at a few points is forgiven; a gradient that is wrong at most of them is not.
    """

    def scalar(probe, point):
        value = jnp.atleast_1d(function(probe, point))
        return value @ (1.0 + jnp.arange(value.shape[0], dtype=value.dtype))

    def measure(probes, points):
        step, call = stride(points, 0.02)[None, :], jax.vmap(scalar)
        slopes = jax.vmap(jax.grad(scalar, argnums=1))(probes, points)
        change = 0.5 * (call(probes, points + step) - call(probes, points - step))
        return (
            slopes,
            slopes @ step[0],
            change,
            call(probes, points),
            call(probes, jnp.roll(points, 1, axis=0)),
        )

    slopes, found, expected, values, elsewhere = evaluate(measure, probes, points)
    if not np.all(np.isfinite(slopes)):
        return "is not finite"
    rounding = 20.0 * np.finfo(values.dtype).eps * (1.0 + np.abs(values))
    if np.all(slopes == 0.0) and np.any(np.abs(elsewhere - values) > rounding):
        return "is zero everywhere although the value changes"
    wrong = np.abs(found - expected) > 0.05 * (np.abs(found) + np.abs(expected)) + rounding
    return "does not match finite differences" if np.mean(wrong) > 0.5 else None


def degenerate(scale: np.ndarray) -> bool:
    """Whether one of these square factors is singular, whatever the units of its rows."""
    length = np.linalg.norm(scale, axis=-1, keepdims=True)
    unit = scale / np.where(length > 0.0, length, 1.0)
    return bool(np.any(length == 0.0) or np.any(np.abs(np.linalg.det(unit)) < 1e-6))


def law_fault(law: Gaussian, noise: Float[Array, "B N"]) -> str | None:
    """What is wrong with these laws, if anything: draw, density and fields must describe one law.

    Density and draw are compared by the change of variables
    log_prob(sample(z)) = log N(z; 0, I) − log|det ∂sample/∂z|.
    """

    def measure(one, z):
        value, centre = one.sample(z), one.sample(jnp.zeros_like(z))
        return jax.jacfwd(one.sample)(z), centre, one.log_prob(value), one.recover(value)

    factors, centre, log_prob, recovered = evaluate(jax.vmap(measure), law, noise)
    if not _near(factors, law.scale) or not _near(centre, law.mean):
        return "`sample` does not return mean + scale @ noise, which beliefs rely on"
    standard = -0.5 * np.sum(np.asarray(noise) ** 2 + LOG_TWO_PI, axis=1)
    if not _near(log_prob, standard - np.linalg.slogdet(factors)[1], 0.02):
        return "`log_prob` is not the density of what `sample` draws; is `scale` lower triangular?"
    return None if _near(recovered, noise, 0.02) else "`recover` does not return the noise that `sample` used"


def _near(left: np.ndarray, right: np.ndarray | Array, slack: float = 1e-4) -> bool:
    """Equal up to rounding; never for NaN."""
    return bool(np.all(np.abs(left - np.asarray(right)) <= slack * (1.0 + np.abs(np.asarray(right)))))
