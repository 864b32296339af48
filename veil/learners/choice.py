"""From the name of a learner to the learner."""

from veil.learners.base import Learner
from veil.learners.ddpg import Ddpg
from veil.learners.families import EMPHASIS
from veil.learners.options import Training
from veil.learners.pathwise import Pathwise


def chosen(training: Training) -> Learner:
    """The learner that these options ask for."""
    pace = training.episodes, training.updates, training.learning_rate
    if training.learner == "pathwise":
        return Pathwise(*pace, emphasis=EMPHASIS)
    printed = training.learner == "ddpg_printed"
    return Ddpg(*pace, direct=not printed, dual_rate=0.0 if printed else 0.1)
