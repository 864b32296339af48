"""Whether the density of a release law is that of its draws."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from veil.laws import Finite, Gaussian, Held, Law, Mixture
from veil.systems.probes import degenerate, law_fault
from veil.systems.report import Support


def density(laws: Law) -> Support:
    """Compare draw and density of these laws, batched: filters weigh releases by `log_prob`."""
    laws = laws.inner if isinstance(laws, Held) else laws
    if isinstance(laws, Gaussian):
        return _gaussian(laws)
    if isinstance(laws, Finite):
        total = np.asarray(logsumexp(np.asarray(laws.log_masses, float), axis=-1))
        return _told(np.all(np.abs(total) < 1e-6), "The masses of a finite law must sum to one.")
    if isinstance(laws, Mixture):
        return _mixture(laws)
    return Support(True, f"A {type(laws).__name__} law has no density to compare.")


def _told(right: bool | np.bool, fault: str) -> Support:
    return Support(bool(right), "Draws and densities belong together." if right else fault)


def _gaussian(laws: Gaussian) -> Support:
    if degenerate(np.asarray(laws.scale)):
        return Support(False, "A Gaussian release without noise has no density; use Point or add noise.")
    noise = np.random.default_rng(1).standard_normal(laws.mean.shape)
    fault = law_fault(laws, jnp.asarray(noise, laws.mean.dtype))
    return _told(fault is None, f"{fault}.")


def _mixture(laws: Mixture) -> Support:
    """By the formula of a mixture, in scipy."""
    points = jnp.mean(laws.parts.mean, axis=-2) + 0.3
    found = np.asarray(jax.vmap(lambda law, point: law.log_prob(point))(laws, points))
    means, covariances = np.asarray(laws.parts.mean), np.asarray(laws.parts.covariance)
    wanted = [
        np.logaddexp.reduce([w + multivariate_normal(m, c).logpdf(y) for w, m, c in zip(*own, strict=True)])
        for y, own in zip(
            np.asarray(points),
            zip(np.asarray(laws.log_weights), means, covariances, strict=True),
            strict=True,
        )
    ]
    return _told(np.allclose(found, wanted, rtol=1e-6, atol=1e-6), "Weights must sum to one per release.")
