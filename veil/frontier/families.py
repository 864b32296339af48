"""The policies of a frontier: built where they are known, trained where they are learned."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import jax.random as jr

import veil
from veil.auditing.store import fingerprint
from veil.frontier.options import LEARNED, Extent, Goal, Kind
from veil.learners import Design, Pathwise, StoreError, Training, designed, load_arrays, save_arrays, train
from veil.learners.store import about
from veil.policies import GaussianNoise, LearnedPolicy, Policy, Quantised, ResidualPolicy, Transport
from veil.precision import single
from veil.problem import Objective, problem
from veil.systems.base import System

POLICY, TRAINING = "policy.safetensors", "training"
_DESIGN = 0xF207  # keeps the keys of designs apart from those of audits with the same seed
Report = Callable[[str, int, int], None]
Place = Callable[[Goal], Path]


class Policies:
    """Hands out the policy of each point, and says what it depends on before anything is computed.

    Args:
        system: in double precision.
        extent: of the frontier.
        place: the folder of a point; learned policies are kept there.
        progress: told how many updates are made.
    """

    def __init__(self, system: System, extent: Extent, place: Place, progress: Report):
        self.system, self.extent, self.place, self.progress = system, extent, place, progress
        self.training = Training(updates=extent.updates, seed=extent.seed)
        self._fresh: dict[Kind, LearnedPolicy] = {}

    def fingerprint(self, goal: Goal) -> str:
        """Changes with anything that the policy of a point depends on."""
        extent, common = self.extent, (goal, self.system, Design(), veil.__version__)
        learned = (extent.updates, extent.price) if goal.kind in LEARNED else ()
        return fingerprint(common, extent.steps, extent.seed, *learned)

    def policy(self, goal: Goal) -> Policy:
        """The policy of a point."""
        if goal.kind in LEARNED:
            return self.learned(goal)
        if goal.kind == "displacement":
            return self.transport(goal.value)
        spread = goal.value * self.spread
        noise = goal.kind == "noise"
        return GaussianNoise(self.system, spread) if noise else Quantised(self.system, spread)

    def transport(self, share: float = 1.0) -> Transport:
        """With the least noise that learned policies may have."""
        return Transport(self.system, Design().floor * self.spread, share=share)

    def learned(self, goal: Goal) -> LearnedPolicy:
        """As trained before, or trained now from its neighbour."""
        path, mark = self.place(goal) / POLICY, self.fingerprint(goal)
        fresh = single(self.fresh(goal.kind))
        try:
            if about(path).get("fingerprint") == mark:
                return load_arrays(path, fresh)
        except StoreError:  # none, or not whole: train again
            pass
        start = fresh if goal.previous is None else self.learned(goal.previous)
        trained = train(
            (problem(self.system, self.extent.steps, Objective(goal.value, self.extent.price)),),
            Pathwise(self.training.episodes, self.training.updates, self.training.learning_rate),
            start,
            self.training,
            report=lambda line: self.progress("training", int(line["update"]), self.training.updates),
            folder=path.parent / TRAINING,
        )
        words = {"fingerprint": mark, "updates": trained.updates, "best": trained.best}
        save_arrays(path, trained.policy, words | {"reason": trained.reason})
        return trained.policy

    def fresh(self, kind: Kind) -> LearnedPolicy:
        """Before training. Designs of all kinds share their units."""
        if kind not in self._fresh:
            key = jr.fold_in(jr.key(self.extent.seed), _DESIGN)
            design = Design(start="plain" if kind == "plain" else "transport")
            self._fresh[kind] = designed(design, self.system, self.extent.steps, key=key)
        return self._fresh[kind]

    @cached_property
    def spread(self):
        """Usual spread of the output, as learned policies know it."""
        fresh = self.fresh("transport")
        assert isinstance(fresh, ResidualPolicy)  # by its design
        return fresh.scaling.output.spread
