"""The first part of an examination: prior, shapes, types, names. Nothing is computed yet."""

from collections.abc import Iterator

import jax
import numpy as np

from veil.laws import Gaussian, diagonal_gaussian
from veil.systems.base import System
from veil.systems.report import Finding, guarded


def check_prior(system: System) -> Iterator[Finding]:
    """Masses sum to one, secrets are finite and distinct."""
    secrets, log_masses = np.asarray(system.prior.secrets), np.asarray(system.prior.log_masses)
    if not np.all(np.isfinite(secrets)) or not np.all(np.isfinite(log_masses)):
        yield Finding(
            "error", "prior", "The prior has NaN or infinite entries; leave out secrets without mass."
        )
        return
    total = float(np.exp(log_masses.astype(float)).sum())
    if abs(total - 1.0) > 1e-4:
        message = f"The prior's masses sum to {total:.6g}, not to one; divide by the sum or use finite_prior."
        yield Finding("error", "prior", message)
    if len(np.unique(secrets, axis=0)) < len(secrets):
        yield Finding("error", "prior", "The prior lists a secret twice; merge the two and add their masses.")
    if len(secrets) < 2:
        yield Finding("warning", "nothing-to-hide", "The prior has one secret only; give at least two.")


def check_shapes(system: System) -> Iterator[Finding]:
    """Every method, traced without values, returns what the fields promise."""
    secret = jax.ShapeDtypeStruct(system.prior.secrets.shape[1:], system.prior.secrets.dtype)

    def vector(size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((size,), secret.dtype)

    state, external = vector(len(system.state_fields)), vector(len(system.external_fields))
    shared, noise = vector(len(system.shared_fields)), vector(system.reaction_noise_size)
    scalar, law = jax.ShapeDtypeStruct((), secret.dtype), jax.eval_shape(diagonal_gaussian, state, state)
    calls = (
        ("initial", system.initial, (secret,), law),
        ("initial_external", system.initial_external, (), external),
        ("output", system.output, (state,), shared),
        ("transition", system.transition, (secret, state, external), law),
        ("react", system.react, (external, shared, noise), external),
        ("react without a release", lambda w, z: system.react(w, None, z), (external, noise), external),
        ("cost", system.cost, (secret, state, state, shared), scalar),
        ("distortion", system.distortion, (state, shared), scalar),
    )
    for name, method, arguments, wanted in calls:
        yield from guarded(
            name, lambda m=method, a=arguments, n=name, w=wanted: _compare(n, jax.eval_shape(m, *a), w)
        )


def _compare(name: str, found: object, wanted: object) -> Iterator[Finding]:
    """Whether what a method returns has the shape and the type of what it should."""
    if isinstance(wanted, Gaussian):
        if not isinstance(found, Gaussian):
            yield Finding("error", name, f"`{name}` must return a Gaussian; got {type(found).__name__}.")
            return
        yield from _compare(f"{name}.mean", found.mean, wanted.mean)
        yield from _compare(f"{name}.scale", found.scale, wanted.scale)
    elif not isinstance(found, jax.ShapeDtypeStruct) or not isinstance(wanted, jax.ShapeDtypeStruct):
        yield Finding("error", name, f"`{name}` must return one array; got {type(found).__name__}.")
    elif found.shape != wanted.shape:
        advice = "Mend the method, or the tuple of fields that states its size."
        yield Finding("error", name, f"`{name}` has shape {found.shape} instead of {wanted.shape}. {advice}")
    elif found.dtype != wanted.dtype:
        advice = f"Return the prior's type everywhere: `jnp.asarray(value, {wanted.dtype})`."
        yield Finding("error", name, f"`{name}` has type {found.dtype} instead of {wanted.dtype}. {advice}")


def check_fields(system: System) -> Iterator[Finding]:
    """One field per number of a secret, no name twice."""
    size = system.prior.secrets.shape[1]
    if len(system.secret_fields) != size:
        message = (
            f"secret_fields names {len(system.secret_fields)} numbers, but the prior's secrets have {size}."
        )
        yield Finding("error", "fields", f"{message} Give one Field each.")
    for kind in ("secret", "state", "external", "shared"):
        names = [field.name for field in getattr(system, f"{kind}_fields")]
        if len(set(names)) < len(names):
            yield Finding(
                "error", "fields", f"{kind}_fields uses a name twice; streams look values up by name."
            )
