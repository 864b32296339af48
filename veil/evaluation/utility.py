"""What a way of sharing costs the owner and gives the receiver, beside what it tells about the secret."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from veil.results.audit import Quantity
from veil.stats import Mean, stratified_mean
from veil.step import Record
from veil.systems.base import System
from veil.systems.platoon import Platoon
from veil.types import Scalar


class Use(eqx.Module):
    """One episode, or many (batched [E]): means over its steps, by name in `names`."""

    distortion: Float[Array, "*E"]
    cost: Float[Array, "*E"]
    error: Float[Array, "*E Y"]  # mean square of y − output(x) per axis
    roughness: Float[Array, "*E N"]  # mean square of the second difference of each coordinate
    outside: Float[Array, "*E"]  # share of releases out of the range of their fields
    traffic: Float[Array, "*E I"]


TRAFFIC = (("E[a²]", "m²/s⁴"), ("E[(Δa)²]", "m²/s⁴"), ("smallest gap", "m"), ("time to collision", "s"))

NEVER = 100.0  # time to collision where nobody closes in, s


def use(system: System, record: Record) -> Use:
    """Measure one episode."""
    states, shared = record.states, record.public.shared
    before, after = states[:-1], states[1:]
    secrets = jnp.broadcast_to(record.secret, (shared.shape[0], *record.secret.shape))
    second = after[1:] - 2.0 * after[:-1] + before[:-1]
    low = jnp.asarray([field.low for field in system.shared_fields], shared.dtype)
    high = jnp.asarray([field.high for field in system.shared_fields], shared.dtype)
    wrong: Bool[Array, " T"] = jnp.any((shared < low[None]) | (shared > high[None]), axis=1)
    return Use(
        jnp.mean(jax.vmap(system.distortion)(before, shared)),
        jnp.mean(jax.vmap(system.cost)(secrets, before, after, shared)),
        jnp.mean((shared - jax.vmap(system.output)(before)) ** 2, axis=0),
        jnp.sum(second**2, axis=0) / max(second.shape[0], 1),
        jnp.mean(wrong.astype(shared.dtype)),
        jnp.stack(_traffic(system, record)) if platoon_of(system) is not None else jnp.zeros(0, shared.dtype),
    )


def platoon_of(system: System) -> Platoon | None:
    """The platoon inside a system of vehicles, or None."""
    inner = system
    while not isinstance(inner, Platoon):
        inner = getattr(inner, "inner", None)
        if not isinstance(inner, System):
            return None
    return inner


def _traffic(system: System, record: Record) -> list[Scalar]:
    """Mean squared acceleration and its change, smallest gap, shortest time to collision."""
    platoon = platoon_of(system)
    assert platoon is not None
    speed, gap = record.states[:, 0], record.states[:, 1]
    acceleration = (speed[1:] - speed[:-1]) / platoon.dt
    change = acceleration[1:] - acceleration[:-1]
    closing = speed[:-1] - record.public.external[:, 1]
    time = jnp.where(closing > 0, gap[:-1] / jnp.where(closing > 0, closing, 1.0), NEVER)
    return [
        jnp.mean(acceleration**2),
        jnp.sum(change**2) / max(change.shape[0], 1),
        jnp.min(gap),
        jnp.minimum(jnp.min(time), NEVER),
    ]


def table(
    system: System,
    found: dict[str, np.ndarray],
    true: dict[str, np.ndarray] | None,
    tracking: np.ndarray | None,
    index: np.ndarray,
    *,
    budget: float = 0.0,
) -> tuple[Quantity, ...]:
    """The lines of the table, paired with sharing true data under the same random numbers.

    Args:
        system: for names and units.
        found: arrays of `Use` by field.
        true: the same for true data, same episodes; None if they cannot be played.
        tracking: (E, Y) mean square error of the receiver's best estimate of the output; None if unknown.
        index: true secrets.
        budget: of the distortion per step; 0 for none.
    """
    prior = np.exp(np.asarray(system.prior.log_masses))

    def mean(values: np.ndarray) -> Mean:
        return stratified_mean(values, index, prior)

    def paired(name: str, unit: str, field: str, column: int | None = None) -> Quantity:
        pick = slice(None) if column is None else (slice(None), column)
        ours = found[field][pick]
        if true is None:
            return Quantity(name, unit, mean(ours))
        theirs = true[field][pick]
        base = mean(theirs)
        level = base.value if base.value else 1.0
        return Quantity(name, unit, mean(ours), base, mean(100.0 * (ours - theirs) / level))

    rows = [
        Quantity("distortion", "per step", mean(found["distortion"])),
        paired("cost", "per step", "cost"),
    ]
    if budget > 0:
        rows.insert(1, Quantity("share of its budget", "%", mean(100.0 * found["distortion"] / budget)))
    for j, axis in enumerate(system.shared_fields):
        rows.append(root(f"release error, {axis.name}", axis.unit, mean(found["error"][:, j])))
        if tracking is not None:
            rows.append(root(f"tracking error, {axis.name}", axis.unit, mean(tracking[:, j])))
    for j, axis in enumerate(system.state_fields):
        rows.append(paired(f"roughness, {axis.name}", f"{axis.unit}² per step²", "roughness", j))
    if found["traffic"].shape[1]:
        for j, (name, unit) in enumerate(TRAFFIC):
            rows.append(paired(name, unit, "traffic", j))
    rows.append(Quantity("releases out of range", "share", mean(found["outside"])))
    return tuple(rows)


def root(name: str, unit: str, square: Mean) -> Quantity:
    """Root mean square from the mean square, its error by the delta method."""
    value = float(np.sqrt(max(square.value, 0.0)))
    return Quantity(name, unit, Mean(value, square.error / (2.0 * value) if value > 0 else square.error))
