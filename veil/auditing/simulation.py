"""Episodes to give away: what a policy shares, for attackers outside the library."""

import jax
import jax.random as jr
import numpy as np

from veil.auditing.attackers import array
from veil.auditing.episodes import SIMULATED, Progress, in_batches, play_batch
from veil.auditing.worlds import faithful
from veil.policies import Policy, PrivatePolicy
from veil.precision import doubled
from veil.rollout import Record
from veil.systems.base import System


def simulate(
    system: System,
    policy: Policy | PrivatePolicy,
    *,
    episodes: int,
    steps: int,
    seed: int = 0,
    progress: Progress = lambda stage, done, total: None,
) -> Record:
    """Play episodes that no audit and no training plays, batched [E], in double precision.

    The secrets of the prior take turns. `veil.auditing.save` writes the result.

    Args:
        system: the model, which is also the world.
        policy: any policy.
        episodes: E, how many.
        steps: T, releases per episode.
        seed: of all randomness.
        progress: told the stage, how many episodes are done, and of how many.
    """
    with jax.enable_x64(True):
        world, shared, key = faithful(doubled(system)), doubled(policy), jr.key(seed)

        def run(numbers: np.ndarray) -> Record:
            return play_batch(world, shared, steps, array(numbers), key)

        first = SIMULATED - SIMULATED % len(world.believed)  # so that the first secret begins
        return in_batches("playing", run, np.arange(first, first + episodes), progress)
