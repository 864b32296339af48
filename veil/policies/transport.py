"""Perfect privacy by transport: whatever the secret, the release has the same law.

If the kernel sends the law of the output given each secret to one common law, the release says nothing about
the secret, the posterior stays where it was, and so a whole run leaks nothing. The least distortion goes with
the barycentre of the laws. All of this holds under the policy's belief, so that must be accurate: where the
system is not linear and Gaussian, an audit with a better filter has the last word.
"""

from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from veil import linalg
from veil.beliefs.base import Belief
from veil.beliefs.trackers import KalmanTracker, Tracker
from veil.distortion import expected_distance_quadrature
from veil.kernel import Kernel
from veil.laws import Gaussian, diagonal_gaussian
from veil.policies.barycentre import bures_barycentre, optimal_map, thickened
from veil.policies.base import Policy, Time
from veil.policies.metric import distortion_metric
from veil.systems.base import System
from veil.systems.prior import Prior
from veil.types import External, Features, Key, Scalar, Secret, State

Form = Literal["affine", "shift"]


class Plan(eqx.Module):
    """Maps output ↦ centre + maps[θ] (output − starts[θ])."""

    starts: Float[Array, "K Y"]
    maps: Float[Array, "K Y Y"]
    centre: Float[Array, " Y"]


class Transport(Policy):
    """Share the output moved to the barycentre of its laws given each secret, plus a floor of noise.

    Attributes:
        system: the owner's model.
        sd: standard deviation of the noise per axis, positive; the same for every secret.
        tracker: the belief that the laws are taken from; its mean and covariance per secret are used.
        form: "affine" matches means and covariances, "shift" the means only.
    """

    system: System
    sd: Float[Array, " Y"] = eqx.field(converter=jnp.asarray)
    tracker: Tracker = KalmanTracker()
    form: Form = eqx.field(default="affine", static=True)

    def __check_init__(self):
        if self.form not in get_args(Form):
            raise ValueError(f"form must be one of {', '.join(get_args(Form))}; got {self.form!r}.")

    def start(self, *, key: Key) -> Belief:
        """As the tracker begins."""
        return self.tracker.start(self.system, key=key)

    def features(self, belief: Belief) -> Features:
        """Log-masses, means and covariance factors of the output given each secret, in one row."""
        laws = output_laws(self.system, belief)
        return jnp.concatenate([belief.log_masses, laws.mean.reshape(-1), laws.scale.reshape(-1)])

    def kernel(self, features: Features, external: External, time: Time) -> "TransportKernel":
        """The plan for these laws."""
        del external, time
        count, size = self.system.prior.log_masses.shape[0], len(self.system.shared_fields)
        log_masses, mean, scale = jnp.split(features, [count, count * (1 + size)])
        laws = Gaussian(mean.reshape(count, size), scale.reshape(count, size, size))
        plan = make_plan(log_masses, laws, distortion_metric(self.system), self.form)
        return TransportKernel(self.system, plan, self.sd)


class TransportKernel(Kernel):
    """Gaussian around the transported output. A secret off the prior is moved like the nearest one on it."""

    system: System
    plan: Plan
    sd: Float[Array, " Y"]

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The law of the release."""
        index = nearest(self.system.prior, secret)
        apart = self.system.output(state) - self.plan.starts[index]
        # Summed entry by entry: a product with a matrix of size two under `vmap` is many times slower.
        moved = jnp.sum(self.plan.maps[index] * apart[None, :], axis=1)
        return diagonal_gaussian(self.plan.centre + moved, self.sd)


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
    if form == "shift":
        unit = jnp.eye(centre.shape[0], dtype=centre.dtype)
        return Plan(laws.mean, jnp.broadcast_to(unit, laws.scale.shape), centre)
    lower = linalg.cholesky(metric)  # lowerᵀ y are coordinates in which the distortion is Euclidean
    roots = lower.T[None] @ laws.scale
    covariances = thickened(roots @ jnp.swapaxes(roots, 1, 2))
    middle = bures_barycentre(weights, covariances)
    maps = jax.vmap(optimal_map, (0, None))(covariances, middle)
    back = linalg.invert_lower(lower).T
    return Plan(laws.mean, back[None] @ maps @ lower.T[None], centre)


def nearest(prior: Prior, secret: Secret) -> Int[Array, ""]:
    """Index of the nearest secret of the prior, each coordinate in units of its standard deviation there."""
    masses = jnp.exp(prior.log_masses)
    variance = masses @ (prior.secrets - (masses @ prior.secrets)[None, :]) ** 2
    unit = jnp.where(variance > 0.0, variance, 1.0)
    return jnp.argmin(jnp.sum((prior.secrets - secret[None, :]) ** 2 / unit[None, :], axis=1))


def zero_leakage_distortion(system: System, belief: Belief, form: Form = "affine") -> Scalar:
    """Σ_θ q(θ) E[d(x, T_θ(x)) | θ] at this belief: what perfect privacy costs in this step, without noise.

    T is the optimal transport to the barycentre for d², with Gaussian laws; that for d itself has no closed
    form and can only be cheaper.
    """
    laws = output_laws(system, belief)
    metric = distortion_metric(system)
    plan = make_plan(belief.log_masses, laws, metric, form)
    lower = linalg.cholesky(metric)

    def one(law: Gaussian, spread: Float[Array, "Y Y"]) -> Scalar:
        offset = lower.T @ (plan.centre - law.mean)
        change = lower.T @ (spread @ law.scale - law.scale)
        return expected_distance_quadrature(jnp.ones_like(offset), offset, change @ change.T)

    return jnp.exp(belief.log_masses) @ jax.vmap(one)(laws, plan.maps)
