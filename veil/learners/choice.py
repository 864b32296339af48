"""From the name of a learner to the learner."""

from veil.learners.a2c import A2c
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
    if training.learner == "a2c":
        return A2c(*pace)
    if training.learner == "ddpg":
        return Ddpg(*pace)
    return Ddpg(*pace, direct=False, explore=0.3, dual_rate=0.0)
