"""Policies with something to learn."""

from typing import Any

import equinox as eqx

from veil.policies.base import Policy


class LearnedPolicy(Policy):
    """A policy whose kernels come out of a network.

    `network` holds all that a learner may change, and nothing else: the model of the system, the units and
    the limits of the kernel are constants.
    """

    network: eqx.AbstractVar[Any]
