"""The floor: the distortion at which transport leaks nothing, averaged along its own runs."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil.auditing.episodes import Progress, in_batches
from veil.auditing.statistics import Mean, stratified_mean
from veil.policies import Transport, zero_leakage_distortion
from veil.problem import Play, Problem, problem
from veil.types import Key, Scalar


def zero_leakage_floor(
    policy: Transport,
    steps: int,
    episodes: int,
    *,
    progress: Progress = lambda stage, done, total: None,
    key: Key,
) -> Mean:
    """Mean over steps and episodes of what perfect privacy costs without noise.

    The beliefs are those of this transport, whose releases carry noise, since a belief needs some. The map is
    the best one for squared distances between Gaussian laws: for the distance itself, or for other laws, a
    little less may do.

    Args:
        policy: all the way, with little noise.
        steps: per episode.
        episodes: at least; each secret has as many.
        progress: told how many are done.
        key: of all episodes.
    """
    count = policy.system.prior.secrets.shape[0]
    numbers = np.arange(count * max(2, -(-episodes // count)))
    played = problem(policy.system, steps)

    def run(part: np.ndarray) -> Array:
        return _floors(played, policy, jnp.asarray(part, jnp.int32), key)

    found = np.asarray(in_batches("the floor", run, numbers, progress))
    return stratified_mean(found, numbers % count, np.exp(np.asarray(policy.system.prior.log_masses, float)))


@eqx.filter_jit
def _floors(played: Problem, policy: Transport, numbers: Int[Array, " B"], key: Key) -> Float[Array, " B"]:
    """One mean over the steps per episode."""

    def one(number: Int[Array, ""]) -> Scalar:
        start_key, run_key = jr.split(jr.fold_in(key, number))

        def step(play: Play, step_key: Key) -> tuple[Play, Scalar]:
            least = zero_leakage_distortion(policy.system, play.belief, policy.form)
            return played.step(policy, play, seed=number, key=step_key)[0], least

        first = played.reset(policy, number, key=start_key)
        return jnp.mean(jax.lax.scan(step, first, jr.split(run_key, played.steps))[1])

    return jax.vmap(one)(numbers)
