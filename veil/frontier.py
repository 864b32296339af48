"""The frontier: policies of several families and strengths, trained where needed, measured as in an audit."""

import json
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from veil.evaluation.episodes import Progress, in_batches, side_by_side, silent
from veil.evaluation.evaluate import evaluate
from veil.evaluation.scoring import refused
from veil.evaluation.utility import table
from veil.executors.base import ChunkError, Executor, InProcess
from veil.executors.messages import whole_fingerprint
from veil.io import Store, StoreError, about, fingerprint, load_arrays, save_arrays, write_json
from veil.learners.design import initial_policy
from veil.learners.pathwise import Pathwise
from veil.learners.training import train_policy
from veil.policies.base import LearnedPolicy, Policy
from veil.policies.plain import GaussianNoise, Quantised, Truth
from veil.policies.residual import ResidualPolicy
from veil.policies.transport import Transport, zero_leakage_distortion
from veil.problem import EpisodeState, Objective, Problem, problem
from veil.results.frontier import Frontier
from veil.results.parts import Point, mean_from_dict, mean_to_dict
from veil.settings import (
    LEARNED,
    AuditSettings,
    FamilyName,
    FrontierGoal,
    FrontierSettings,
    PolicyDesign,
    TrainSettings,
)
from veil.stats import Mean, stratified_mean
from veil.systems.base import System
from veil.systems.variants import name_of, resolution_of
from veil.types import Key, Scalar, as_float32, as_float64
from veil.version import __version__


def measured(
    goal: FrontierGoal,
    system: System,
    policy: Policy,
    settings: AuditSettings,
    truth: dict[str, np.ndarray],
    *,
    progress: Progress = silent,
    store: Store | None = None,
    executor: Executor | None = None,
) -> Point:
    """Evaluate the policy of a point.

    Args:
        goal: which point it is.
        system: the model.
        policy: the one of this point.
        settings: of the evaluation, the same for all points.
        truth: use of the same episodes by true data.
        progress: called with the stage, how many episodes are done, and of how many.
        store: keeps finished batches.
        executor: who computes; this process if not given.
    """
    given = {"progress": progress, "store": store, "executor": executor}
    found = evaluate(system, policy, settings=settings, **given)
    verdict = found.verdict()
    quantities = table(system, vars(found.use), truth, None, found.index)
    by_name = {row.name: row for row in quantities}
    cost = by_name["cost"]
    assert cost.change is not None  # true data were given
    trusted = not verdict.refused
    return Point(
        goal,
        found.leakage if trusted else refused(found.leakage),
        verdict.name,
        () if trusted else verdict.reasons,
        by_name["distortion"].value,
        cost.value,
        cost.change,
        found.particles,
        len(found.index),
        round(sum(found.seconds.values()), 1),
    )


POINT, FLOOR = "point.json", "floor.json"


class PointStore:
    """Points by name. One that depends on anything else than the fingerprint says is not read."""

    def __init__(self, folder: Path):
        self.folder = folder / "points"
        self.folder.mkdir(parents=True, exist_ok=True)

    def place(self, goal: FrontierGoal) -> Path:
        """The folder of a point."""
        return self.folder / goal.name

    def point(self, goal: FrontierGoal, fingerprint: str) -> Point | None:
        """As measured before; None if it was not, or if its file is damaged."""
        try:
            found = Point.from_dict(_read(self.place(goal) / POINT, fingerprint))
            return found if found.goal == goal else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, point: Point, fingerprint: str) -> None:
        """Write a point."""
        folder = self.place(point.goal)
        folder.mkdir(exist_ok=True)
        write_json(folder / POINT, point.to_dict() | {"fingerprint": fingerprint})

    def floor(self, fingerprint: str) -> Mean | None:
        """As found before."""
        try:
            return mean_from_dict(_read(self.folder / FLOOR, fingerprint), "distortion")
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_floor(self, floor: Mean, fingerprint: str) -> None:
        """Write the floor."""
        found = mean_to_dict("distortion", floor) | {"fingerprint": fingerprint}
        write_json(self.folder / FLOOR, found)


def _read(path: Path, fingerprint: str) -> dict:
    line = json.loads(path.read_text(encoding="utf-8"))
    if line["fingerprint"] != fingerprint:
        raise ValueError("another point")
    return line


def zero_leakage_floor(
    policy: Transport,
    steps: int,
    episodes: int,
    *,
    progress: Progress = silent,
    executor: Executor | None = None,
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
        progress: called with the stage, how many are done, and of how many.
        executor: who computes; this process if not given.
        key: of all episodes.
    """
    count = policy.system.prior.secrets.shape[0]
    numbers = np.arange(count * max(2, -(-episodes // count)))
    played = problem(policy.system, steps)

    def own(part: np.ndarray) -> tuple:
        return (jnp.asarray(part, jnp.int32), key)

    shared = (played, policy)
    found = in_batches("the floor", _floors, shared, own, numbers, progress, executor=executor).value
    return stratified_mean(
        np.asarray(found), numbers % count, np.exp(np.asarray(policy.system.prior.log_masses, float))
    )


@eqx.filter_jit
def _floors(played: Problem, policy: Transport, numbers: Int[Array, " B"], key: Key) -> Float[Array, " B"]:
    """One mean over the steps per episode."""

    def one(number: Int[Array, ""]) -> Scalar:
        start_key, run_key = jr.split(jr.fold_in(key, number))

        def step(play: EpisodeState, step_key: Key) -> tuple[EpisodeState, Scalar]:
            least = zero_leakage_distortion(policy.system, play.belief, policy.form)
            return played.step(policy, play, seed=number, key=step_key)[0], least

        first = played.reset(policy, number, key=start_key)
        return jnp.mean(jax.lax.scan(step, first, jr.split(run_key, played.steps))[1])

    return jax.vmap(one)(numbers)


POLICY, TRAINING = "policy.safetensors", "training"

_DESIGN = 0xF207  # keeps the keys of designs apart from those of audits with the same seed

Place = Callable[[FrontierGoal], Path]


class Policies:
    """Hands out the policy of each point, and says what it depends on before anything is computed.

    Args:
        system: in double precision.
        extent: of the frontier.
        place: the folder of a point; learned policies are kept there.
        executor: whose workers train; this process if not given.
    """

    def __init__(
        self, system: System, extent: FrontierSettings, place: Place, executor: Executor | None = None
    ):
        self.system, self.extent, self.place, self.executor = system, extent, place, executor
        self._turn = threading.RLock()
        self.training = TrainSettings(updates=extent.updates, seed=extent.seed)
        self._fresh: dict[FamilyName, LearnedPolicy] = {}

    def fingerprint(self, goal: FrontierGoal) -> str:
        """Changes with anything that the policy of a point depends on."""
        extent, common = self.extent, (goal, self.system, PolicyDesign(), __version__)
        learned = (extent.updates, extent.price) if goal.kind in LEARNED else ()
        return whole_fingerprint(common, extent.steps, extent.seed, *learned)

    def policy(self, goal: FrontierGoal, progress: Progress) -> Policy:
        """The policy of a point; where it is trained, `progress` is told how many updates are made."""
        if goal.kind in LEARNED:
            return self.learned(goal, progress)
        if goal.kind == "displacement":
            return self.transport(goal.value)
        spread = goal.value * self.spread
        noise = goal.kind == "noise"
        return GaussianNoise(self.system, spread) if noise else Quantised(self.system, spread)

    def transport(self, displacement: float = 1.0) -> Transport:
        """With the least noise that learned policies may have."""
        return Transport(self.system, PolicyDesign().floor * self.spread, displacement=displacement)

    def learned(self, goal: FrontierGoal, progress: Progress) -> LearnedPolicy:
        """As trained before, or trained now from its neighbour."""
        path, mark = self.place(goal) / POLICY, self.fingerprint(goal)
        fresh = as_float32(self.fresh(goal.kind))
        try:
            if about(path).get("fingerprint") == mark:
                return load_arrays(path, fresh)
        except StoreError:  # none, or not whole: train again
            pass
        start = fresh if goal.previous is None else self.learned(goal.previous, progress)
        trained = train_policy(
            (problem(self.system, self.extent.steps, Objective(goal.value, self.extent.price)),),
            Pathwise(self.training.episodes, self.training.updates, self.training.learning_rate),
            start,
            self.training,
            report=lambda line: progress("training", int(line["update"]), self.training.updates),
            folder=path.parent / TRAINING,
            executor=self.executor,
        )
        words = {"fingerprint": mark, "updates": trained.updates, "best": trained.best}
        save_arrays(path, trained.policy, words | {"reason": trained.reason})
        return trained.policy

    def fresh(self, kind: FamilyName) -> LearnedPolicy:
        """Before training. Designs of all kinds share their units."""
        with self._turn:
            if kind not in self._fresh:
                key = jr.fold_in(jr.key(self.extent.seed), _DESIGN)
                design = PolicyDesign(start="plain" if kind == "plain" else "transport")
                self._fresh[kind] = initial_policy(design, self.system, self.extent.steps, key=key)
            return self._fresh[kind]

    @property
    def spread(self):
        """Usual spread of the output, as learned policies know it."""
        fresh = self.fresh("transport")
        assert isinstance(fresh, ResidualPolicy)  # by its design
        return fresh.scaling.output.spread


Report = Callable[[str, str, int, int], None]

_FLOOR = 0xF100  # keeps the keys of the floor apart from those of audits with the same seed


def trace_frontier(
    system: System,
    extent: FrontierSettings | None = None,
    *,
    folder: Path,
    report: Report = lambda point, stage, done, total: None,
    executor: Executor | None = None,
    failed: Callable[[str, str], None] | None = None,
) -> Frontier:
    """Measure all points, except those that the folder has already.

    Args:
        system: whose; everything is measured in double precision.
        extent: which points.
        folder: where every point is kept as soon as it is measured.
        report: called with the point, what is done about it, how far that is, and of how much.
        executor: who computes; this process if not given. With workers, points are measured side by side.
        failed: called with each point that cannot be measured and the reason; the frontier is then that of
            the others. Without it, a `ChunkError` names them once the others are kept.
    """
    with jax.enable_x64(True):
        given = executor or InProcess()
        return _Run(as_float64(system), extent or FrontierSettings(), folder, report, given).all(failed)


class _Run:
    """One frontier on its way."""

    def __init__(
        self, system: System, extent: FrontierSettings, folder: Path, report: Report, executor: Executor
    ):
        self.system, self.extent, self.report, self.executor = system, extent, report, executor
        self.shelf, self._turn = PointStore(folder), threading.Lock()
        self._truth = dict[str, np.ndarray]()
        self.options = AuditSettings(steps=extent.steps, episodes=extent.episodes, seed=extent.seed)
        self.policies = Policies(system, extent, self.shelf.place, executor)

    def all(self, failed: Callable[[str, str], None] | None) -> Frontier:
        """The points, then the floor: in turn, or all families side by side where there are workers."""
        goals, extent, reasons = self.extent.goals, self.extent, dict[str, str]()
        points, floors = dict[str, Point](), list[Mean]()

        def measure(some: Sequence[FrontierGoal]) -> Callable[[Report], None]:
            def job(report: Report) -> None:
                for goal in some:
                    now = f"{goals.index(goal) + 1}/{len(goals)} {goal.kind} {goal.value:g}"
                    try:
                        points[goal.name] = self.point(goal, partial(report, now))
                    except ChunkError as error:
                        reasons[now] = str(error)

            return job

        def floor(report: Report) -> None:
            floors.append(self.floor(partial(report, "floor")))

        # A learned policy starts from its neighbour's, so that its family is one job; these take longest.
        chains = [[goal for goal in goals if goal.kind == kind] for kind in LEARNED]
        apart = [[goal] for goal in goals if goal.kind not in LEARNED]
        remote = self.executor.remote
        jobs = [measure(some) for some in (*chains, *apart) if some] if remote else [measure(goals)]
        side_by_side([*jobs, floor], self.report, self.executor, at_once=None if remote else 1)
        if reasons and failed is None:
            raise ChunkError(reasons)
        for now, reason in reasons.items():
            assert failed is not None
            failed(now, reason)
        return Frontier(
            name_of(self.system),
            extent.steps,
            floors[0],
            tuple(points[goal.name] for goal in goals if goal.name in points),
            extent.seed,
            extent.price,
            extent.updates,
            resolution_of(self.system),
        )

    def point(self, goal: FrontierGoal, progress: Progress) -> Point:
        """From the shelf, or measured now."""
        mark = fingerprint(self.policies.fingerprint(goal), self.options)
        found = self.shelf.point(goal, mark)
        if found is None:
            progress("begins", 0, 1)
            policy = as_float64(self.policies.policy(goal, progress))
            store = Store(self.shelf.place(goal), mark)
            given = {"progress": progress, "store": store, "executor": self.executor}
            found = measured(goal, self.system, policy, self.options, self.truth(progress), **given)
            self.shelf.keep(found, mark)
        return found

    def floor(self, progress: Progress) -> Mean:
        """From the shelf, or found now."""
        whole = FrontierGoal("displacement", 1.0)
        mark = fingerprint(self.policies.fingerprint(whole), self.options, "floor")
        found = self.shelf.floor(mark)
        if found is None:
            extent, key = self.extent, jr.fold_in(jr.key(self.extent.seed), _FLOOR)
            policy = as_float64(self.policies.transport())
            given = {"progress": progress, "executor": self.executor, "key": key}
            found = zero_leakage_floor(policy, extent.steps, extent.episodes, **given)
            self.shelf.keep_floor(found, mark)
        return found

    def truth(self, progress: Progress) -> dict[str, np.ndarray]:
        """The use of true data, once for all points."""
        with self._turn:
            if not self._truth:
                given = {"candidates": 0, "progress": progress, "executor": self.executor}
                found = evaluate(self.system, Truth(self.system), settings=self.options, **given)
                self._truth |= vars(found.use)
            return self._truth
