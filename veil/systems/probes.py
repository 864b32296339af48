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
    """B points of the closed loop under the truth: θ, x, w, y, x', and spare noise of the same kinds."""

    secrets: Float[Array, "B P"]
    states: Float[Array, "B N"]
    externals: Float[Array, "B E"]
    shared: Float[Array, "B Y"]
    after: Float[Array, "B N"]
    noise: Float[Array, "B N"]
    reaction_noise: Float[Array, "B R"]


def some_secrets(system: System, most: int) -> Float[Array, "k P"]:
    """At most this many of the prior's secrets, evenly spread over its order."""
    secrets = system.prior.secrets
    picks = np.unique(np.linspace(0, secrets.shape[0] - 1, most).astype(int))
    return secrets[picks]


def run_probes(system: System) -> Probes:
    """A few steps from the initial law with the true output shared, for a few secrets."""
    secrets = some_secrets(system, _SECRETS)
    count, dtype = secrets.shape[0], secrets.dtype
    size, reaction_size = len(system.state_fields), system.reaction_noise_size
    start_key, *step_keys = jr.split(jr.key(0), 1 + _STEPS)
    states = jax.vmap(lambda secret, noise: system.initial(secret).sample(noise))(
        secrets, jr.normal(start_key, (count, size), dtype)
    )
    externals = jnp.tile(system.initial_external()[None, :], (count, 1))
    rows = []
    for key in step_keys:
        move_key, react_key = jr.split(key)
        noise = jr.normal(move_key, (count, size), dtype)
        reaction_noise = jr.normal(react_key, (count, reaction_size), dtype)
        shared = jax.vmap(system.output)(states)
        after = jax.vmap(lambda *where: system.transition(*where[:3]).sample(where[3]))(
            secrets, states, externals, noise
        )
        rows.append(Probes(secrets, states, externals, shared, after, noise, reaction_noise))
        externals = jax.vmap(system.react)(externals, shared, reaction_noise)
        states = after
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *rows)


def stride(points: Float[Array, "B d"], share: float) -> Float[Array, " d"]:
    """A step per coordinate in its own unit: a share of its spread and size over the points."""
    return share * (jnp.std(points, axis=0) + 0.1 * jnp.mean(jnp.abs(points), axis=0) + 0.02)


def varies(function: Callable, probes: Probes, points: Float[Array, "B d"]) -> bool:
    """Whether `function(probe, point)` changes with the point."""
    here, there = (jax.vmap(function)(probes, points + k * stride(points, 4.0)[None, :]) for k in (0.0, 1.0))
    return not _near(there, here, 1e-5)


def bends(function: Callable, probes: Probes, points: Float[Array, "B d"]) -> bool:
    """Whether `function(probe, point)` is visibly not affine in the point, on a wide neighbourhood."""
    step = stride(points, 4.0)[None, :]
    near, middle, far = (jax.vmap(function)(probes, points + k * step) for k in (0.0, 1.0, 2.0))
    size = jnp.max(jnp.abs(far - near)) + jnp.finfo(points.dtype).eps * 1e3 * jnp.max(jnp.abs(near))
    return bool(jnp.max(jnp.abs(far - 2.0 * middle + near)) > 1e-3 * size)


def gradient_fault(function: Callable, probes: Probes, points: Float[Array, "B d"]) -> str | None:
    """What is wrong with the gradient of `function(probe, point)` in the point, if anything.

    Reverse-mode gradients are compared with central differences, on the sum of the outputs with fixed
    unequal weights. A kink at a few points is forgiven; a gradient that is wrong at most of them is not.
    """

    def scalar(probe, point):
        value = jnp.atleast_1d(function(probe, point))
        return value @ (1.0 + jnp.arange(value.shape[0], dtype=value.dtype))

    step = stride(points, 0.02)[None, :]
    slopes = jax.vmap(jax.grad(scalar, argnums=1))(probes, points)
    if not bool(jnp.all(jnp.isfinite(slopes))):
        return "is not finite"
    values = jax.vmap(scalar)(probes, points)
    elsewhere = jax.vmap(scalar)(probes, jnp.roll(points, 1, axis=0))
    rounding = 20.0 * jnp.finfo(points.dtype).eps * (1.0 + jnp.abs(values))
    if bool(jnp.all(slopes == 0.0) & jnp.any(jnp.abs(elsewhere - values) > rounding)):
        return "is zero everywhere although the value changes"
    expected = 0.5 * (jax.vmap(scalar)(probes, points + step) - jax.vmap(scalar)(probes, points - step))
    found = slopes @ step[0]
    wrong = jnp.abs(found - expected) > 0.05 * (jnp.abs(found) + jnp.abs(expected)) + rounding
    return "does not match finite differences" if bool(jnp.mean(wrong) > 0.5) else None


def degenerate(scale: Float[Array, "B N N"]) -> bool:
    """Whether one of these square factors is singular, whatever the units of its rows."""
    length = jnp.linalg.norm(scale, axis=-1, keepdims=True)
    unit = scale / jnp.where(length > 0.0, length, 1.0)
    return bool(jnp.any(length == 0.0) | jnp.any(jnp.abs(jnp.linalg.det(unit)) < 1e-6))


def law_fault(law: Gaussian, noise: Float[Array, "B N"]) -> str | None:
    """What is wrong with these laws, if anything: draw, density and fields must describe one law.

    Density and draw are compared by the change of variables
    log_prob(sample(z)) = log N(z; 0, I) − log|det ∂sample/∂z|.
    """
    values = jax.vmap(lambda one, z: one.sample(z))(law, noise)
    factors = jax.vmap(lambda one, z: jax.jacfwd(one.sample)(z))(law, noise)
    centre = jax.vmap(lambda one, z: one.sample(jnp.zeros_like(z)))(law, noise)
    if not _near(factors, law.scale) or not _near(centre, law.mean):
        return "`sample` does not return mean + scale @ noise, which beliefs rely on"
    log_prob = jax.vmap(lambda one, value: one.log_prob(value))(law, values)
    standard = -0.5 * jnp.sum(noise**2 + LOG_TWO_PI, axis=1)
    if not _near(log_prob, standard - jnp.linalg.slogdet(factors)[1], 0.02):
        return "`log_prob` is not the density of what `sample` draws; is `scale` lower triangular?"
    recovered = jax.vmap(lambda one, value: one.recover(value))(law, values)
    return None if _near(recovered, noise, 0.02) else "`recover` does not return the noise that `sample` used"


def _near(left: Array, right: Array, slack: float = 1e-4) -> bool:
    """Equal up to rounding; never for NaN."""
    return bool(jnp.all(jnp.abs(left - right) <= slack * (1.0 + jnp.abs(right))))
