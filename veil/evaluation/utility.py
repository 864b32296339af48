"""What a way of sharing costs the owner and gives the receiver, beside what it tells about the secret."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from veil.results.parts import Quantity
from veil.stats import Mean, stratified_mean
from veil.step import Record
from veil.systems.base import System


class Use(eqx.Module):
    """One episode, or many (batched [E]): means over its steps, by name in `names`."""

    distortion: Float[Array, "*E"]
    cost: Float[Array, "*E"]
    parts: Float[Array, "*E C"]  # of the cost, in the order of `System.cost_fields`
    error: Float[Array, "*E Y"]  # mean square of y − output(x) per axis
    roughness: Float[Array, "*E N"]  # mean square of the second difference of each coordinate
    outside: Float[Array, "*E"]  # fraction of releases out of the range of their fields
    quantities: Float[Array, "*E Q"]  # the system's own, see `System.quantities`


def use(system: System, record: Record) -> Use:
    """Measure one episode."""
    states, shared = record.states, record.public.shared
    before, after = states[:-1], states[1:]
    secrets = jnp.broadcast_to(record.secret, (shared.shape[0], *record.secret.shape))
    second = after[1:] - 2.0 * after[:-1] + before[:-1]
    low = jnp.asarray([field.low for field in system.shared_fields], shared.dtype)
    high = jnp.asarray([field.high for field in system.shared_fields], shared.dtype)
    wrong: Bool[Array, " T"] = jnp.any((shared < low[None]) | (shared > high[None]), axis=1)
    steps = secrets, before, after, shared, record.public.external
    return Use(
        jnp.mean(jax.vmap(system.distortion)(before, shared)),
        jnp.mean(jax.vmap(system.total_cost)(*steps)),
        jnp.mean(jax.vmap(system.cost_parts)(*steps), axis=0),
        jnp.mean((shared - jax.vmap(system.output)(before)) ** 2, axis=0),
        jnp.sum(second**2, axis=0) / max(second.shape[0], 1),
        jnp.mean(wrong.astype(shared.dtype)),
        system.quantities(states, record.public.external, shared),
    )


def table(
    system: System,
    found: dict[str, np.ndarray],
    true: dict[str, np.ndarray] | None,
    tracking: np.ndarray | None,
    index: np.ndarray,
    *,
    limit: float = 0.0,
) -> tuple[Quantity, ...]:
    """The lines of the table, paired with sharing true data under the same random numbers.

    Args:
        system: for names and units.
        found: arrays of `Use` by field.
        true: the same for true data, same episodes; None if they cannot be played.
        tracking: (E, Y) mean square error of the receiver's best estimate of the output; None if unknown.
        index: true secrets.
        limit: of the distortion per step; 0 for none.
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
    for j, part in enumerate(system.cost_fields):
        row = paired(part.name, f"{part.unit or 1} per step", "parts", j)
        rows.append(replace(row, own=True, weight=part.weight))
    if limit > 0:
        rows.insert(
            1, Quantity("distortion against its limit", "%", mean(100.0 * found["distortion"] / limit))
        )
    for j, axis in enumerate(system.shared_fields):
        rows.append(root(f"release error, {axis.name}", axis.unit, mean(found["error"][:, j])))
        if tracking is not None:
            rows.append(root(f"tracking error, {axis.name}", axis.unit, mean(tracking[:, j])))
    for j, axis in enumerate(system.state_fields):
        rows.append(paired(f"roughness, {axis.name}", f"({axis.unit or 1} per step²)²", "roughness", j))
    for j, own in enumerate(system.quantity_fields):
        rows.append(replace(paired(own.name, own.unit, "quantities", j), own=True))
    rows.append(Quantity("releases out of range", "fraction", mean(found["outside"])))
    return tuple(rows)


def root(name: str, unit: str, square: Mean) -> Quantity:
    """Root mean square from the mean square, its error by the delta method."""
    value = float(np.sqrt(max(square.value, 0.0)))
    return Quantity(name, unit, Mean(value, square.error / (2.0 * value) if value > 0 else square.error))
