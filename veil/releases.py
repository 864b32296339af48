"""What kind of releases a policy makes, found without computing any."""

import equinox as eqx
import jax.numpy as jnp

from veil.laws import Law, Point, SwitchedLaw
from veil.policies.base import Policy
from veil.policies.budgeted import Budgeted
from veil.policies.plain import GridKernel, Truth
from veil.step import first_features
from veil.systems.base import System


def release_kind(system: System, policy: Policy) -> tuple[Law, bool]:
    """The type of the release laws, and whether they come from a quantiser. Nothing is computed."""
    grid = []

    def probe() -> Law:
        start = system.initial(system.prior.secrets[0]).mean
        time = jnp.asarray(1, jnp.int32)
        kernel = policy.kernel(first_features(policy), system.initial_external(), time)
        grid.append(isinstance(kernel, GridKernel))
        return kernel(policy.system.prior.secrets[0], start[: len(policy.system.state_fields)])

    return eqx.filter_eval_shape(probe), grid[-1]


def exact_release(law: Law | None) -> bool:
    """Whether releases carry no noise, fresh or held, so that no filter has a density to weigh by."""
    return isinstance(law.inner if isinstance(law, SwitchedLaw) else law, Point)


def sees_state(system: System, policy: Policy) -> bool:
    """Whether the releases are the whole state as it is."""
    start = system.initial(system.prior.secrets[0]).mean + 1.25
    whole = len(system.shared_fields) == len(system.state_fields)
    inner = policy.inner if isinstance(policy, Budgeted) else policy
    return isinstance(inner, Truth) and whole and bool(jnp.allclose(system.output(start), start))
