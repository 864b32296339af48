"""Sharing policies: the contract, and the policies that come with Veil."""

from veil.policies.base import Decision, LearnedPolicy, PlainPolicy, Policy
from veil.policies.budgeted import Budgeted
from veil.policies.counterfactual import Counterfactual
from veil.policies.grid import GridPolicy, discrete_policy, grid_atoms, grid_policy
from veil.policies.learned_twin import LearnedTwin, learned_twin
from veil.policies.networks import Encoder, MgfEncoder, MomentEncoder, mgf_encoder
from veil.policies.neural import NeuralPolicy, neural_policy
from veil.policies.plain import Blind, GaussianNoise, Quantised, Truth
from veil.policies.printed import PrintedPolicy, printed_policy
from veil.policies.residual import ResidualPolicy, residual_policy
from veil.policies.scaling import Limits, Scaling, Unit
from veil.policies.subsampled import Subsampled
from veil.policies.transport import Transport, zero_leakage_distortion
from veil.policies.twin import Twin

__all__ = [
    "Blind",
    "Budgeted",
    "Counterfactual",
    "Decision",
    "Encoder",
    "GaussianNoise",
    "GridPolicy",
    "LearnedPolicy",
    "LearnedTwin",
    "Limits",
    "MgfEncoder",
    "MomentEncoder",
    "NeuralPolicy",
    "PlainPolicy",
    "Policy",
    "PrintedPolicy",
    "Quantised",
    "ResidualPolicy",
    "Scaling",
    "Subsampled",
    "Transport",
    "Truth",
    "Twin",
    "Unit",
    "discrete_policy",
    "grid_atoms",
    "grid_policy",
    "learned_twin",
    "mgf_encoder",
    "neural_policy",
    "printed_policy",
    "residual_policy",
    "zero_leakage_distortion",
]
