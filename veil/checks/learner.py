"""The check of a learner: does it improve a policy, and can its training be continued bit for bit?"""

import tempfile
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.beliefs.base import Belief
from veil.beliefs.kalman import KalmanBelief
from veil.checks.findings import ContractReport, Rule, Support, examined
from veil.io import load_arrays, save_arrays
from veil.laws import Gaussian, Kernel, diagonal_gaussian
from veil.learners.base import Family, Learner, Metrics, Progress
from veil.policies.base import LearnedPolicy, Time
from veil.problem import Objective, problem
from veil.stats import ERRORS
from veil.systems.base import System
from veil.systems.gain import Gain
from veil.types import External, Features, Key, Scalar, Secret, Shared, State, as_float32


class Knobs(eqx.Module):
    """What is learnt: how far the release goes from the truth to what the public expects, and its noise."""

    share: Scalar = eqx.field(default=-2.0, converter=jnp.asarray)  # a logit
    log_sd: Scalar = eqx.field(default=-2.0, converter=jnp.asarray)


class Dial(LearnedPolicy):
    """Between true data and what the public expects anyway; the network is two knobs."""

    system: System
    network: Knobs = eqx.field(default_factory=Knobs)

    def start(self, *, key: Key) -> Belief:
        """One Kalman filter per secret."""
        del key
        return KalmanBelief.start(self.system)

    def features(self, belief: Belief, external: External, time: Time) -> Features:
        """The output that the public expects."""
        del external, time
        return self.system.output(jnp.exp(belief.log_masses) @ belief.moments().mean)

    def kernel(self, features: Features, external: External, time: Time) -> Kernel:
        """The kernel of the knobs as they stand."""
        del external, time
        return DialKernel(self.system, features, self.network)


class DialKernel(Kernel):
    """Gaussian around a point between the output and what is expected of it."""

    system: System
    expected: Shared
    knobs: Knobs

    def __call__(self, secret: Secret, state: State) -> Gaussian:
        """The same for every secret."""
        del secret
        output = self.system.output(state)
        centre = output + jax.nn.sigmoid(self.knobs.share) * (self.expected - output)
        sd: Float[Array, " Y"] = jnp.broadcast_to(jnp.exp(self.knobs.log_sd), output.shape)
        return diagonal_gaussian(centre, sd)


STEPS = 3  # releases per episode

ROUNDS = 128  # fresh episodes per secret, to see what was learnt

BROKEN = 2  # updates before the interruption


class _Lesson:
    """A learner on its way; its update is compiled once."""

    def __init__(self, learner: Learner, policy: LearnedPolicy, updates: int):
        self.learner, self.updates = learner, updates
        objective = Objective(privacy_weight=20.0, distortion_price=0.2, distortion_limit=4.0)
        self.family: Family = as_float32((problem(policy.system, STEPS, objective),))
        self.begun = learner.begin(self.family, policy, key=jr.key(1))
        self._update = eqx.filter_jit(learner.update)
        self._after: dict[tuple[int, int], tuple[Progress, Metrics]] = {}

    def update(self, progress: Progress, seed: int = 0) -> tuple[Progress, Metrics]:
        """One update, with the key that belongs to it."""
        key = jr.fold_in(jr.key(seed), progress.updates)
        return self._update(self.family, progress, key=key)

    def after(self, updates: int, seed: int = 0) -> tuple[Progress, Metrics]:
        """Where the learner stands after so many updates, and its last metrics; remembered."""
        if (updates, seed) not in self._after:
            before = self.begun if updates == 1 else self.after(updates - 1, seed)[0]
            self._after[updates, seed] = self.update(before, seed)
        return self._after[updates, seed]


def check_learner(
    learner: Learner | object, policy: LearnedPolicy | None = None, *, updates: int = 30
) -> ContractReport:
    """Check a learner on three releases of the gain loop, in single precision, as in training.

    The check never raises; it reports faults as findings.

    Args:
        learner: the learner.
        policy: where it starts, for the gain loop; by default one with two trainable numbers.
        updates: number of updates after which the objective must have fallen.
    """
    name = type(learner).__name__
    with jax.enable_x64(False):
        if not isinstance(learner, Learner):
            wrong = Support(False, f"{name} is not a learner; subclass veil.learners.Learner.")
            return examined(name, "learner", {"kind": Rule(lambda: wrong)})
        made = as_float32(Dial(Gain()) if policy is None else policy)
        try:
            lesson = _Lesson(as_float32(learner), made, updates)
        except Exception as error:
            reason = f"`begin` raised {type(error).__name__}: {error}"
            verdict = Support(False, reason)
            return examined(name, "learner", {"begin": Rule(lambda: verdict)})
        return examined(name, "learner", _rules(lesson))


def _rules(lesson: _Lesson) -> dict[str, Rule]:
    return {
        "progress": Rule(lambda: _progress(lesson)),
        "limits": Rule(lambda: _limits(lesson)),
        "seeds": Rule(lambda: _seeds(lesson)),
        "resumes": Rule(lambda: _resumes(lesson)),
        "learns": Rule(lambda: _learns(lesson), "warning"),
    }


def _arrays(tree: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_array))]


def _same(one: object, other: object) -> bool:
    pairs = zip(_arrays(one), _arrays(other), strict=True)
    return all(np.array_equal(left, right, equal_nan=True) for left, right in pairs)


def _progress(lesson: _Lesson) -> Support:
    """An update returns the same kind of progress, one update further, and numbers to log."""
    after, metrics = lesson.after(1)
    old, new = (jax.tree.structure(eqx.filter(one, eqx.is_array)) for one in (lesson.begun, after))
    shapes = [[(leaf.shape, leaf.dtype) for leaf in _arrays(one)] for one in (lesson.begun, after)]
    if old != new or shapes[0] != shapes[1]:
        return Support(False, "An update must keep structure, shapes and types of `Progress`, to be resumed.")
    if int(after.updates) != int(lesson.begun.updates) + 1:
        return Support(False, "An update must add one to `updates`.")
    if not all(np.shape(value) == () and np.isfinite(value) for value in metrics.values()):
        return Support(False, "Metrics are finite numbers by name.")
    return Support(True, f"Metrics: {', '.join(metrics) or 'none'}.")


def _limits(lesson: _Lesson) -> Support:
    """Only the network is learnt: model, units and limits of the kernel are constants."""
    begun, after = lesson.begun.policy, lesson.after(BROKEN)[0].policy
    put = eqx.tree_at(lambda one: one.network, after, begun.network)
    if not _same(put, begun):
        return Support(False, "Something besides `policy.network` was changed.")
    return Support(True, "Only the network changes.")


def _seeds(lesson: _Lesson) -> Support:
    """The same key gives the same update."""
    again = lesson.update(lesson.begun)
    if not _same(again, lesson.after(1)):
        return Support(False, "Two updates with the same key differ; all randomness must come from `key`.")
    return Support(True, "The same key gives the same update.")


def _resumes(lesson: _Lesson) -> Support:
    """Saved, read and gone on with, as if nothing had happened."""
    before, wanted = lesson.after(BROKEN)[0], lesson.after(BROKEN + 1)[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "progress.safetensors"
        save_arrays(path, before)
        found = lesson.update(load_arrays(path, lesson.begun))[0]
    if not _same(found, wanted):
        return Support(False, "After saving and reading it goes on differently; keep all state in `memory`.")
    return Support(True, "Saved and read, it goes on with the same bits.")


def _learns(lesson: _Lesson) -> Support:
    """The objective of fresh episodes is less than that of the policy it began with."""
    task = lesson.family[0]
    numbers = 1_000_000 + jnp.arange(ROUNDS * task.secrets, dtype=jnp.int32)

    @eqx.filter_jit
    def totals(policy: LearnedPolicy) -> jax.Array:
        outcome = task.episodes(policy, numbers, key=jr.key(7))
        return jnp.sum(task.objective.total(outcome), axis=1)

    began, ended = (
        np.asarray(totals(policy), float).reshape(ROUNDS, -1).mean(axis=1)
        for policy in (lesson.begun.policy, lesson.after(lesson.updates)[0].policy)
    )
    gained = began - ended
    error = gained.std(ddof=1) / np.sqrt(ROUNDS)
    course = f"objective {began.mean():.2f} before, {ended.mean():.2f} after {lesson.updates} updates"
    if not gained.mean() > ERRORS * error:
        return Support(False, f"Nothing was learnt: {course}.")
    return Support(True, f"{course[0].upper()}{course[1:]}.")
