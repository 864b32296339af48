"""Old charges computed again by a stronger method, from what the ledger says and nothing else.

A live charge is an upper bound that must be quick. Afterwards there is time: the public history is replayed,
and the leakage of every release under the same public belief is integrated on a fine grid, or estimated from
many draws where a grid would be too large.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np

from veil.beliefs.base import Belief
from veil.io import fingerprint
from veil.laws import Components
from veil.leakage.mutual_information import mutual_information
from veil.policies.base import Policy, sensed, with_sensor
from veil.policies.budgeted import Budgeted, Exhausted
from veil.sharing.account import Account
from veil.sharing.budget import budgeted
from veil.sharing.ledger import MISSING, Entry, LedgerError
from veil.sharing.step_program import PublicInput, initial_belief
from veil.step import policy_features, public_key, release_kind, update_belief
from veil.types import External, Scalar, as_float64

Method = Literal["quadrature", "estimate", "live", "nothing"]

FEW = 64  # components up to which a grid is used

ERRORS = 5.0  # standard errors by which an estimate may be above a charge

CLOSE = 1e-9  # of a replayed charge to that on record, and of a charge to the value of a grid

OPEN = ("released", "blurred")


class RecomputedCharges(NamedTuple):
    """One step, charged again.

    Attributes:
        step: its number.
        charged: nats on record.
        value: nats by the stronger method.
        error: of the value: what a coarser grid gives differently, or the standard error of an estimate.
        method: "live" where there is no stronger one, "nothing" where nothing was released.
    """

    step: int
    charged: float
    value: float
    error: float
    method: Method

    @property
    def short(self) -> float:
        """Nats by which the charge was too low, numerical error granted; zero or less where it was not."""
        slack = ERRORS * self.error if self.method == "estimate" else self.error
        return self.value - self.charged - slack - CLOSE


def rebuilt(
    policy: Policy, account: Account, *, exhausted: Exhausted = "blind", steps: int = 50, particles: int = 0
) -> Budgeted:
    """The policy as the ledger was written by; `LedgerError` where it is another one.

    Args:
        policy: without a budget, as a `Sharer` is given it; that of the ledger is put around it.
        account: the ledger.
        exhausted: as the sharer was given it; so are `steps` and `particles`.
        steps: over which a blurring policy divides its budget.
        particles: per secret, to charge by particles.
    """
    steps_read = account.about.get("resolution") or {}
    if steps_read:
        policy = with_sensor(policy, steps_read)
    with jax.enable_x64(True):
        made = budgeted(as_float64(policy), account.budget, exhausted, steps=steps, particles=particles)
        if fingerprint(made) != account.about["policy"]:
            raise LedgerError(
                f"{account.path} was written by another policy, or by another version of it (veil "
                f"{account.about.get('veil')}). Give the policy and the flags that the stream was begun with."
            )
    behind = sensed(made)
    assert isinstance(behind, Budgeted)  # the sensor is inside the budget
    return behind


def recompute_charges(
    policy: Budgeted, account: Account, progress: Callable[[int, int], None] = lambda done, total: None
) -> list[RecomputedCharges]:
    """All steps of a ledger, charged again; `LedgerError` where a replay does not find what is on record.

    Args:
        policy: that of the ledger, see `rebuilt`.
        account: the ledger.
        progress: called with how many steps are done, and of how many.
    """
    found: list[RecomputedCharges] = []
    with jax.enable_x64(True):
        program, seed = jax.jit(_replaying(policy)), account.about["seed"]
        belief, size = initial_belief(policy, seed), len(policy.system.shared_fields)
        for entry in account.entries():
            belief, charge, components = program(belief, *_public(entry, seed, size))
            _same(float(charge), entry)
            found.append(_charged(entry, components))
            progress(len(found), len(account))
    return found


def totals(found: Sequence[RecomputedCharges]) -> tuple[float, float]:
    """Nats of all steps by the stronger method, and the error of that sum."""
    drawn = math.sqrt(math.fsum(one.error**2 for one in found if one.method == "estimate"))
    grids = math.fsum(one.error for one in found if one.method != "estimate")
    return math.fsum(one.value for one in found), drawn + grids


def stronger(components: Components, seed: int = 0) -> tuple[float, float, Method] | None:
    """I(Θ; Y) of a labelled mixture, its error, and how it was found; None where it cannot be.

    Args:
        components: the mixture.
        seed: of the draws, where a grid would be too large; one per step makes their errors independent.
    """
    weight, labels = np.exp(np.asarray(components.log_weights)), np.asarray(components.labels)
    kept = np.bincount(labels, weight)[labels] > 0.0  # a secret that was excluded tells nothing more
    scale = np.asarray(components.parts.scale)[kept]
    mixture = (
        labels[kept],
        weight[kept] / weight[kept].sum(),
        np.asarray(components.parts.mean)[kept],
        scale @ scale.swapaxes(1, 2),
    )
    if np.count_nonzero(kept) <= FEW:
        try:
            grid = mutual_information(*mixture, method="quadrature")
            return max(0.0, float(grid)), float(grid.error or 0.0), "quadrature"
        except ValueError:  # three dimensions or more, or too narrow for a grid
            pass
    try:
        drawn = mutual_information(*mixture, method="estimate", seed=seed)
    except ValueError:  # a release without noise in some direction has no density
        return None
    return max(0.0, float(drawn)), float(drawn.standard_error or 0.0), "estimate"


def _charged(entry: Entry, components: Components | None) -> RecomputedCharges:
    step, charge = entry["step"], entry["charge"]
    if entry["decision"] not in OPEN:
        return RecomputedCharges(step, charge, 0.0, 0.0, "nothing")
    better = None if components is None else stronger(components, step)
    return RecomputedCharges(step, charge, *(better or (charge, 0.0, "live")))


def _same(charge: float, entry: Entry) -> None:
    if not abs(charge - entry["charge"]) <= CLOSE * (1.0 + entry["charge"]):
        raise LedgerError(
            f"Step {entry['step']} was charged {entry['charge']:.6g} nats, but its public history gives "
            f"{charge:.6g}: it was written by another version or on another kind of machine."
        )


def _public(entry: Entry, seed: int, size: int) -> tuple[PublicInput, np.ndarray]:
    """What the ledger says of a step: all that a replay needs, and nothing secret."""
    # Where nothing went out the gate is shut and this is not looked at.
    shared = np.zeros(size) if entry["shared"] is None else np.asarray(entry["shared"], float)
    left = np.inf if entry["left"] is None else entry["left"]
    missing = np.bool_(entry["decision"] in MISSING)
    public = PublicInput(
        np.int32(entry["step"]), np.int32(seed), np.float64(left), missing, np.bool_(True), shared
    )
    return public, np.asarray(entry["external"], float)


def _replaying(policy: Budgeted):
    """The public half of a sharer's step: (belief, public, w_t) -> (belief, charge, components)."""
    finite = release_kind(policy.system, policy).fresh_law().is_finite  # its charge is exact already

    def step(
        belief: Belief, public: PublicInput, external: External
    ) -> tuple[Belief, Scalar, Components | None]:
        belief = policy.fund(belief, public.left)
        features = policy_features(policy, belief, external, public.time)
        decision = policy.decide(features, external, public.time).shut_if(public.missing)
        key = public_key(public.seed, public.time)
        after, _ = update_belief(policy, belief, decision, external, public.shared, key=key)
        return after, decision.charge, None if finite else belief.components(decision)

    return step
