"""Leakage of one release, in nats: closed forms, proved bounds, an unbiased estimate, quadrature."""

from veil.leakage.closed_forms import (
    ClosedFormBounds,
    closed_form,
    closed_form_bounds,
    coupled,
    matched,
    reference,
)
from veil.leakage.confidence import upper_confidence
from veil.leakage.entropy import (
    chernoff_entropy,
    kl_entropy,
    likelihood_entropy,
    moment_entropy,
    tilt_entropy,
)
from veil.leakage.estimate import estimate, estimate_per_component, posterior, posterior_information
from veil.leakage.finite import finite_information, finite_release
from veil.leakage.inputs import Nats
from veil.leakage.mutual_information import mixture_kernel_components, mutual_information
from veil.leakage.paper import (
    PaperBounds,
    information_modulus,
    kl_chernoff,
    paper_bounds,
    regime_adaptive,
    tightness,
)
from veil.leakage.quadrature import quadrature
from veil.leakage.reference import reference_entropy

__all__ = [
    "ClosedFormBounds",
    "Nats",
    "PaperBounds",
    "chernoff_entropy",
    "closed_form",
    "closed_form_bounds",
    "coupled",
    "estimate",
    "estimate_per_component",
    "finite_information",
    "finite_release",
    "information_modulus",
    "kl_chernoff",
    "kl_entropy",
    "likelihood_entropy",
    "matched",
    "mixture_kernel_components",
    "moment_entropy",
    "mutual_information",
    "paper_bounds",
    "posterior",
    "posterior_information",
    "quadrature",
    "reference",
    "reference_entropy",
    "regime_adaptive",
    "tightness",
    "tilt_entropy",
    "upper_confidence",
]
