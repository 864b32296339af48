"""An unbiased estimate of I(Θ; Y): the mean of the posterior's divergence from the prior.

I = E_p g(Y) with g(y) = KL(posterior given y ‖ prior). All densities are known, so g is exact; it lies
between zero and log 1/min q, has no variance where nothing leaks, and one value costs N.
Gradients must flow through the points *and* through the densities; dropping either biases them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp, ndtri
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.laws import Components
from veil.leakage.entropy import blocks
from veil.leakage.inputs import Labelled, Nats, padded
from veil.registry import LEAKAGE
from veil.types import LOG_ZERO, Key, Scalar

IntegerArray = TypeVar("IntegerArray")


def hilbert_key(cells: Sequence[IntegerArray], bits: int) -> IntegerArray:
    """Position along the Hilbert curve of each integer cell (Skilling's transform).

    Args:
        cells: one integer array per dimension, values in [0, 2**bits).
        bits: bits per dimension; `len(cells) * bits` must fit the integer type.
    """
    axes: list = list(cells)
    for level in range(bits - 1, 0, -1):  # undo the excess rotations and reflections
        low = (1 << level) - 1
        for i in range(len(axes)):
            bit = (axes[i] >> level) & 1
            swap = (axes[0] ^ axes[i]) & low & (bit - 1)  # bit − 1 is all ones where the bit is clear
            axes[0] = axes[0] ^ (low & -bit) ^ swap
            if i > 0:
                axes[i] = axes[i] ^ swap
    for i in range(1, len(axes)):  # Gray code
        axes[i] = axes[i] ^ axes[i - 1]
    flip = axes[0] & 0
    for level in range(bits - 1, 0, -1):
        flip = flip ^ (((1 << level) - 1) & -((axes[-1] >> level) & 1))
    axes = [axis ^ flip for axis in axes]
    key = axes[0] & 0
    for level in range(bits - 1, -1, -1):  # interleave
        for axis in axes:
            key = (key << 1) | ((axis >> level) & 1)
    return key


def curve_order(points, labels, library):
    """Indices that sort points by label first, then along the curve through their bounding box.

    Args:
        points: (N, d) coordinates.
        labels: (N,) integers; equal labels mean one curve through all points.
        library: the array module, `numpy` or `jax.numpy`.
    """
    dimensions = points.shape[1]
    wide = library.asarray(points).dtype.itemsize == 8
    bits = min(20, (62 if wide else 30) // dimensions)
    low, high = points.min(axis=0)[None, :], points.max(axis=0)[None, :]
    width = library.where(high > low, high - low, library.ones_like(high))
    cells = (((points - low) / width) * (2**bits - 1)).astype(library.int64 if wide else library.int32)
    key = hilbert_key([cells[:, i] for i in range(dimensions)], bits)
    # Coordinates break ties within a cell, so the order does not depend on how the points were listed.
    ties = [points[:, i] for i in range(dimensions)]
    return library.lexsort((*ties, key, labels))


def posterior(components: Components, points: Float[Array, "S d"]) -> Float[Array, "S K"]:
    """π_k(y): the posterior of the secret given each point alone."""
    return posterior_and_ratio(components, components.log_weights, points)[0]


def posterior_and_ratio(
    components: Components, log_proposal: Float[Array, " N"], points: Float[Array, "S d"]
) -> tuple[Float[Array, "S K"], Float[Array, " S"]]:
    """Posterior of the secret at each point, and the density of the mixture over that of a proposal.

    The proposal has the same components with other weights, so that rare secrets can be visited often.
    """
    inverse = linalg.invert_lower(components.parts.scale)
    log_peaks = -0.5 * linalg.log_determinant(components.parts.scale)
    member = components.membership.T.astype(log_peaks.dtype)
    size = points.shape[1]

    def one(point):
        apart = [point[i] - components.parts.mean[:, i] for i in range(size)]
        noise = [sum(inverse[:, i, j] * apart[j] for j in range(i + 1)) for i in range(size)]
        log_densities = log_peaks - 0.5 * sum(value * value for value in noise)
        scores = components.log_weights + log_densities
        top = lax.stop_gradient(jnp.max(scores))
        shares = jnp.exp(scores - top) @ member
        total = jnp.sum(shares)
        return shares / total, jnp.exp(jnp.log(total) + top - logsumexp(log_proposal + log_densities))

    return blocks(one, points, log_peaks.shape[0])


def posterior_information(components: Components, points: Float[Array, "S d"]) -> Float[Array, " S"]:
    """g(y) = Σ_k π_k(y) log(π_k(y)/q_k) at every point, in nats."""
    shares = posterior(components, points)
    present = shares > 0
    ratio = jnp.log(jnp.where(present, shares, 1.0)) - components.log_masses[None, :]
    return jnp.sum(jnp.where(present, shares * ratio, 0.0), axis=1)


def estimate(components: Components, points: int = 1024, *, key: Key) -> Scalar:
    """Unbiased estimate of I(Θ; Y) from quasi-random draws; differentiable in all components.

    The first quasi-random coordinate chooses the component along a Hilbert curve, the others its noise; a
    fresh random shift makes the estimate unbiased. The chosen component enters with the ratio of its weight
    to itself, whose value is one and whose derivative is the missing derivative of the choice.

    Args:
        components: the mixture that Y follows.
        points: number of draws.
        key: randomness of the shift.
    """
    size, dtype = components.parts.mean.shape[1], components.log_weights.dtype
    uniforms = shifted_sobol(points, size + 1, dtype, key=key)
    index, noise = _draw(components, uniforms)
    weights = jnp.exp(components.log_weights - lax.stop_gradient(components.log_weights))[index]
    return jnp.mean(weights * posterior_information(components, _move(components, index, noise)))


def estimate_per_component(components: Components, points: int = 8, *, key: Key) -> Scalar:
    """Unbiased estimate of I(Θ; Y) with draws from every component.

    It has the least variance, and takes N² · points evaluations.

    Args:
        components: the mixture that Y follows.
        points: draws per component.
        key: randomness of the draws.
    """
    count, size = components.parts.mean.shape
    shift_key, base_key = jax.random.split(key)
    base = shifted_sobol(points, size, components.log_weights.dtype, key=base_key)
    shifts = jax.random.uniform(shift_key, (count, 1, size), base.dtype)
    noise = ndtri(_inside((base[None, :, :] + shifts) % 1.0)).reshape(-1, size)
    index = jnp.repeat(jnp.arange(count), points)
    values = posterior_information(components, _move(components, index, noise))
    return jnp.exp(components.log_weights) @ jnp.mean(values.reshape(count, points), axis=1)


def shifted_sobol(points: int, dimensions: int, dtype, *, key: Key) -> Float[Array, "S D"]:
    """Sobol' points with one random shift modulo one, strictly inside the unit cube."""
    from scipy.stats import qmc  # slow to import, and not needed live

    base = qmc.Sobol(dimensions, scramble=False).random_base2(max(points - 1, 0).bit_length())[:points]
    shift = jax.random.uniform(key, (1, dimensions), dtype)
    return _inside((jnp.asarray(base, dtype) + shift) % 1.0)


def _inside(uniforms):
    edge = jnp.finfo(uniforms.dtype).eps
    return jnp.clip(uniforms, edge, 1.0 - edge)


def _draw(
    components: Components, uniforms: Float[Array, "S D"]
) -> tuple[Int[Array, " S"], Float[Array, "S d"]]:
    """Component and noise that quasi-random points stand for."""
    frozen = jax.tree.map(lax.stop_gradient, components)
    order = curve_order(frozen.parts.mean, jnp.zeros_like(frozen.labels), jnp)
    steps = jnp.cumsum(jnp.exp(frozen.log_weights[order]))
    place = jnp.searchsorted(steps, uniforms[:, 0] * steps[-1], side="right")
    return order[jnp.minimum(place, order.shape[0] - 1)], ndtri(uniforms[:, 1:])


def _move(components: Components, index: Int[Array, " S"], noise: Float[Array, "S d"]) -> Float[Array, "S d"]:
    """Points of the chosen components with the given noise."""
    return components.parts.mean[index] + jnp.einsum("sij,sj->si", components.parts.scale[index], noise)


SCRAMBLES = 32  # independent copies of the point set, whose spread gives the standard error

BATCH = 4096  # points per call of the posterior program

FEW = 16  # components up to which every one of them is sampled

_posterior = jax.jit(posterior_and_ratio)


@LEAKAGE.register("estimate")
@dataclass(frozen=True)
class Estimate:
    """An unbiased estimate, which vanishes with the leakage."""

    samples: int = 16384
    """Points of the estimate of a mixture"""
    seed: int = 0
    """Seed of the points (no unit)"""

    def of_step(self, components: Components, points: int, *, key: Key) -> Scalar:
        """The leakage of a release in training, by so many points, all components together."""
        count = components.log_weights.shape[0]
        if count <= FEW:
            return estimate_per_component(components, -(-points // count), key=key)
        return estimate(components, points, key=key)

    def of_mixture(self, mixture: Labelled) -> Nats:
        """Randomised quasi-Monte Carlo mean of the posterior's divergence from the prior.

        Half of the points are drawn as the release is; the others visit every secret and every component
        alike and are weighted down, or a rare secret would be missed and the error with it.
        """
        from scipy.special import ndtri  # slow to import, and not needed live
        from scipy.stats import qmc

        each = 1 << max(0, -(-whole_number(self.samples) // SCRAMBLES) - 1).bit_length()
        even = mixture.weight / mixture.masses[mixture.secret] / len(mixture.masses)
        present = mixture.weight > 0
        proposal = 0.5 * mixture.weight + 0.25 * even + 0.25 * present / present.sum()
        order = curve_order(mixture.mean, np.zeros_like(mixture.secret), np)
        edges = np.cumsum(proposal[order])
        draws = []
        for stream in np.random.default_rng(self.seed).spawn(SCRAMBLES):
            uniforms = qmc.Sobol(mixture.mean.shape[1] + 1, scramble=True, rng=stream).random(each)
            place = np.searchsorted(edges, uniforms[:, 0] * edges[-1], side="right")
            noise = ndtri(np.clip(uniforms[:, 1:], 1e-15, 1.0 - 1e-15))
            draws.append((order[np.minimum(place, len(order) - 1)], noise))
        index, noise = (np.concatenate(parts) for parts in zip(*draws, strict=True))
        shares, ratio = posteriors_at(mixture, index, noise, proposal)
        values = (ratio * divergence_from_prior(mixture, shares)).reshape(SCRAMBLES, each).mean(axis=1)
        error = values.std(ddof=1) / np.sqrt(SCRAMBLES)
        return Nats(values.mean(), standard_error=float(error), samples=SCRAMBLES * each)


def whole_number(samples: int) -> int:
    """A number of samples, refused where it is none."""
    if not isinstance(samples, (int, np.integer)) or samples < 1:
        raise ValueError(f"samples must be a positive whole number, got {samples!r}.")
    return int(samples)


def posteriors_at(mixture: Labelled, index, noise, proposal) -> tuple[np.ndarray, np.ndarray]:
    """Posterior of the secret at draws given by component and noise, and mixture over proposal density."""
    components, spare = padded(mixture)
    scale = np.linalg.cholesky(mixture.covariance)
    points = mixture.mean[index] + np.einsum("nij,nj->ni", scale[index], noise)
    points = np.pad(points, ((0, -len(points) % BATCH), (0, spare)))
    log_proposal = np.full(len(components.labels), LOG_ZERO)
    log_proposal[: len(proposal)][proposal > 0] = np.log(proposal[proposal > 0])
    batches = points.reshape(-1, BATCH, points.shape[1])
    parts = [_posterior(components, log_proposal, batch) for batch in batches]
    shares, ratio = (np.concatenate([np.asarray(part) for part in kind]) for kind in zip(*parts, strict=True))
    return shares[: len(index), : len(mixture.masses)], ratio[: len(index)]


def divergence_from_prior(mixture: Labelled, shares: np.ndarray) -> np.ndarray:
    """g: Kullback-Leibler divergence of posteriors from the prior."""
    return negative_entropies(shares) - shares @ np.log(mixture.masses)


def negative_entropies(shares: np.ndarray) -> np.ndarray:
    """Σ p log p of each row."""
    return (shares * np.log(np.where(shares > 0, shares, 1.0))).sum(axis=1)
