"""Perfect privacy by transport: whatever the secret, the release has the same law.

If the kernel sends the law of the output given each secret to one common law, the release says nothing about
the secret, the posterior stays where it was, and so a whole run leaks nothing. The least distortion goes with
the barycentre of the laws. All of this holds under the policy's belief, so that must be accurate: where the
system is not linear and Gaussian, an audit with a better filter has the last word.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from veil import linalg
from veil.beliefs.base import Belief, FilterSpec
from veil.beliefs.kalman import KalmanSpec
from veil.beliefs.particles import ParticleSpec
from veil.distortion import expected_distance_quadrature
from veil.laws import Gaussian
from veil.policies.base import Policy, Time, per_axis
from veil.policies.geometry import AffineKernel, Plan, distortion_metric
from veil.registry import POLICIES, PerAxis
from veil.systems.base import System
from veil.types import External, Features, Key, Scalar, Shared

Matrix = Float[Array, "d d"]

Matrices = Float[Array, "K d d"]

_ROUNDS = 12


def optimal_map(source: Matrix, target: Matrix) -> Matrix:
    """The symmetric A with A · source · A = target: source⁻¹ # target, a geometric mean.

    For 2×2, with s² = det(source), t² = det(target) and M = adj(source)/s + target/t, it is
    sqrt(t/s) M / sqrt(det M): exactly the identity where the two agree, however thin they are.
    """
    if source.shape[0] == 1:
        return jnp.sqrt(target / source)
    if source.shape[0] == 2:
        small, large = jnp.sqrt(_determinant(source)), jnp.sqrt(_determinant(target))
        swapped = jnp.trace(source) * jnp.eye(2, dtype=source.dtype) - source
        mixed = swapped / small + target / large
        return jnp.sqrt(large / small) * mixed / jnp.sqrt(_determinant(mixed))
    root = symmetric_root(source)
    inverse = linalg.precision(linalg.cholesky(root))
    return inverse @ symmetric_root(root @ target @ root) @ inverse


def bures_barycentre(weights: Float[Array, " K"], covariances: Matrices) -> Matrix:
    """The covariance nearest to all: the fixed point of Σ̄ <- B Σ̄ B, B = Σ weight · optimal_map(Σ̄, Σ_θ).

    The weights sum to one. A fixed number of rounds; one is enough where the covariances commute.
    """

    def step(_, middle: Matrix) -> Matrix:
        maps = jax.vmap(optimal_map, (None, 0))(middle, covariances)
        mixed = jnp.tensordot(weights, maps, axes=1)
        return _even(mixed @ middle @ mixed)

    return jax.lax.fori_loop(0, _ROUNDS, step, jnp.tensordot(weights, covariances, axes=1))


def thickened(covariances: Matrices) -> Matrices:
    """The covariances plus what rounding cannot see, so that none is singular; all zero become all equal."""
    size, dtype = covariances.shape[-1], covariances.dtype
    limits = jnp.finfo(dtype)
    largest = jnp.max(jnp.trace(covariances, axis1=1, axis2=2))
    relative = 64.0 * limits.eps if size <= 2 else limits.eps**0.5
    jitter = jax.lax.stop_gradient(relative * largest + limits.tiny**0.4)
    return covariances + jitter * jnp.eye(size, dtype=dtype)[None]


@jax.custom_jvp
def symmetric_root(matrix: Matrix) -> Matrix:
    """The symmetric square root of a positive definite matrix.

    Differentiated by S dS + dS S = dM, not through the eigenvectors: those have no derivative where two
    eigenvalues meet, and the root does.
    """
    roots, vectors = _root_spectrum(matrix)
    return (vectors * roots[None, :]) @ vectors.T


@symmetric_root.defjvp
def _root_tangent(primals: tuple[Matrix], tangents: tuple[Matrix]) -> tuple[Matrix, Matrix]:
    roots, vectors = _root_spectrum(primals[0])
    turned = vectors.T @ _even(tangents[0]) @ vectors
    tangent = vectors @ (turned / (roots[:, None] + roots[None, :])) @ vectors.T
    return (vectors * roots[None, :]) @ vectors.T, tangent


def _root_spectrum(matrix: Matrix) -> tuple[Float[Array, " d"], Matrix]:
    """Roots of the eigenvalues, those lost to rounding replaced by what rounding leaves; eigenvectors."""
    values, vectors = jnp.linalg.eigh(matrix)
    return jnp.sqrt(jnp.maximum(values, 4.0 * jnp.finfo(values.dtype).eps * values[-1])), vectors


def _determinant(matrix: Matrix) -> Array:
    """Determinant of a 2×2 positive definite matrix, kept positive against rounding."""
    floor = jnp.finfo(matrix.dtype).eps * matrix[0, 0] * matrix[1, 1]
    return jnp.maximum(matrix[0, 0] * matrix[1, 1] - matrix[0, 1] * matrix[1, 0], floor)


def _even(matrix: Matrix) -> Matrix:
    return 0.5 * (matrix + matrix.T)


Form = Literal["affine", "shift"]


class Transport(Policy):
    """Share the output moved to the barycentre of its laws given each secret, plus a floor of noise.

    With a `displacement` below one it goes only that part of the way (displacement interpolation): less
    distortion, and some leakage; at zero it is the output with noise.

    Attributes:
        system: the owner's model.
        sd: standard deviation of the noise per axis, positive; the same for every secret.
        tracker: the belief that the laws are taken from; its mean and covariance per secret are used.
        form: "affine" matches means and covariances, "shift" the means only.
        displacement: how far the output is moved, 1 for all the way.
    """

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)
    tracker: FilterSpec = KalmanSpec()
    form: Form = eqx.field(default="affine", static=True)
    displacement: Scalar = eqx.field(default=1.0, converter=jnp.asarray)

    def __check_init__(self):
        if self.form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}; got {self.form!r}.")

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """Log-masses, means and covariance factors of the output given each secret, in one row."""
        del external, time
        laws = output_laws(self.system, belief)
        return jnp.concatenate([belief.log_masses, laws.mean.reshape(-1), laws.scale.reshape(-1)])

    def kernel(self, features: Features, external: External, time: Time) -> AffineKernel:
        """The plan for these laws."""
        del external, time
        log_masses, laws = self.split(features)
        plan = self.plan(log_masses, laws).partly(jnp.broadcast_to(self.displacement, log_masses.shape))
        noise = jnp.broadcast_to(jnp.diag(self.sd), plan.maps.shape)
        return AffineKernel(self.system, plan, noise)

    def split(self, features: Features) -> tuple[Float[Array, " K"], Gaussian]:
        """The log-masses and the laws of the output that the features stand for."""
        count, size = self.system.prior.log_masses.shape[0], len(self.system.shared_fields)
        log_masses, mean, scale = jnp.split(features, [count, count * (1 + size)])
        return log_masses, Gaussian(mean.reshape(count, size), scale.reshape(count, size, size))

    def plan(self, log_masses: Float[Array, " K"], laws: Gaussian) -> Plan:
        """The complete transport, to the barycentre."""
        return make_plan(log_masses, laws, distortion_metric(self.system), self.form)


@POLICIES.register("transport")
@dataclass(frozen=True)
class TransportSettings:
    """Share the output moved to the barycentre of its laws."""

    sd: PerAxis = ()
    """Sd of the noise per shared axis, in its unit; 0.05 each by default"""
    particles: int = 0
    """Particles per secret; 0 for Kalman filters"""
    displacement: float = 1.0
    """Part of the way to the barycentre, from 0 to 1"""

    def __post_init__(self) -> None:
        """Refuse what has no meaning."""
        if self.particles < 0:
            raise ValueError("particles is a count; give a positive number, or 0 for Kalman filters.")
        if not 0.0 <= self.displacement <= 1.0:
            raise ValueError("displacement is between 0 and 1, e.g. 0.8 for most of the way.")

    def build(self, system: System) -> Transport:
        """The policy for a system."""
        tracker = ParticleSpec(self.particles) if self.particles else KalmanSpec()
        displacement = jnp.asarray(self.displacement, float)
        return Transport(system, per_axis(self.sd, system), tracker, displacement=displacement)


def output_laws(system: System, belief: Belief) -> Gaussian:
    """Law of output(x_t) given each secret, batched [K], the output linearised at the mean."""

    def one(law: Gaussian) -> Gaussian:
        rows = jax.jacfwd(system.output)(law.mean) @ law.scale
        return Gaussian(system.output(law.mean), linalg.triangular_root(rows, jnp.ones_like(rows[0])))

    return jax.vmap(one)(belief.moments())


def make_plan(
    log_masses: Float[Array, " K"], laws: Gaussian, metric: Float[Array, "Y Y"], form: Form = "affine"
) -> Plan:
    """Optimal transport from each law to the barycentre of all.

    Args:
        log_masses: log-weights of the laws in the barycentre.
        laws: batched [K].
        metric: Ω of the distortion, d² = uᵀ Ω u.
        form: "shift" moves the means and leaves the rest.
    """
    weights = jnp.exp(log_masses)
    centre = weights @ laws.mean
    centres = jnp.broadcast_to(centre, laws.mean.shape)
    if form == "shift":
        unit = jnp.eye(centre.shape[0], dtype=centre.dtype)
        return Plan(laws.mean, jnp.broadcast_to(unit, laws.scale.shape), centres)
    lower = linalg.cholesky(metric)  # lowerᵀ y are coordinates in which the distortion is Euclidean
    roots = lower.T[None] @ laws.scale
    covariances = thickened(roots @ jnp.swapaxes(roots, 1, 2))
    middle = bures_barycentre(weights, covariances)
    maps = jax.vmap(optimal_map, (0, None))(covariances, middle)
    back = linalg.invert_lower(lower).T
    return Plan(laws.mean, back[None] @ maps @ lower.T[None], centres)


def zero_leakage_distortion(system: System, belief: Belief, form: Form = "affine") -> Scalar:
    """Expected distortion of perfect privacy in one step, without noise: Σ_θ q(θ) E[d(x, T_θ(x)) | θ].

    T is the optimal transport to the barycentre for d², with Gaussian laws. The optimal transport for d
    itself has no closed form; it can only have a smaller distortion.

    Args:
        system: the model.
        belief: before the release.
        form: "affine", or "shift" to move the means only.
    """
    laws = output_laws(system, belief)
    metric = distortion_metric(system)
    plan = make_plan(belief.log_masses, laws, metric, form)
    lower = linalg.cholesky(metric)

    def one(law: Gaussian, centre: Shared, spread: Float[Array, "Y Y"]) -> Scalar:
        offset = lower.T @ (centre - law.mean)
        change = lower.T @ (spread @ law.scale - law.scale)
        return expected_distance_quadrature(jnp.ones_like(offset), offset, change @ change.T)

    return jnp.exp(belief.log_masses) @ jax.vmap(one)(laws, plan.centres, plan.maps)
