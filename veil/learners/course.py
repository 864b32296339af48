"""Where a training stands: all that an interrupted one needs to go on with the same bits."""

from dataclasses import dataclass, replace

from veil.learners.base import Progress
from veil.learners.looks import Look
from veil.policies.learned import LearnedPolicy


@dataclass(frozen=True)
class Course:
    """Where a training stands: the learner, and the best policy so far with what was seen of it.

    Attributes:
        progress: of the learner.
        best: the best policy so far.
        look: what was seen of it.
        best_at: after how many updates it was found.
        waited: looks since then.
    """

    progress: Progress
    best: LearnedPolicy
    look: Look
    best_at: int = 0
    waited: int = 0

    @property
    def updates(self) -> int:
        """How many were made."""
        return int(self.progress.updates)

    def judged(self, look: Look) -> "Course":
        """After a look at the present policy: better than the best, or one look waited."""
        if look.merit < self.look.merit:
            return replace(self, best=self.progress.policy, look=look, best_at=self.updates, waited=0)
        return replace(self, waited=self.waited + 1)
