"""A plant to share from, written in numpy: the owner's side of the `gain` loop."""

import jax
import jax.numpy as jnp
import numpy as np

from veil.policies import Counterfactual, GaussianNoise
from veil.systems import Gain

SECRET = 1  # index in the prior
NOISE = 0.3


class Plant:
    """x' = θ x + w + 0.3 ε and w' = −0.2 y + 0.5 ε, with its own random numbers."""

    def __init__(self, seed=0, gain=0.6, sd=0.3):
        self.numbers, self.gain, self.sd = np.random.default_rng(seed), gain, sd
        self.state, self.external = self.numbers.normal(), 0.0

    def step(self, shared):
        """One step; `shared` is None where nothing was."""
        self.state = self.gain * self.state + self.external + self.sd * self.numbers.normal()
        self.external = (0.0 if shared is None else -0.2 * shared) + 0.5 * self.numbers.normal()


def noise_policy():
    with jax.enable_x64(True):
        return GaussianNoise(Gain(), jnp.asarray([NOISE]))


def private_policy():
    with jax.enable_x64(True):
        return Counterfactual(Gain())


def value(release):
    """The one number that was shared."""
    assert release.shared is not None
    return release.shared[0]


def run(sharer, plant, steps):
    """Share this many steps; the releases."""
    made = []
    for _ in range(steps):
        made.append(sharer.share([plant.state], [plant.external]))
        plant.step(None if made[-1].shared is None else made[-1].shared[0])
    return made


def kalman_charges(rows, opened, noise=NOISE):
    """I(Θ; Y_t | h_t) of every step by a scalar Kalman filter and a fine grid; rows are (w, y)."""
    secrets, masses = np.array([0.3, 0.6, 0.9]), np.full(3, 1 / 3)
    mean, spread, charges = np.zeros(3), np.ones(3), []
    for (w, y), passed in zip(rows, opened, strict=True):
        total = spread + noise**2
        grid = np.linspace((mean - 9 * np.sqrt(total)).min(), (mean + 9 * np.sqrt(total)).max(), 20001)
        laws = np.exp(-0.5 * (grid[None] - mean[:, None]) ** 2 / total[:, None]) / np.sqrt(
            2 * np.pi * total[:, None]
        )
        marginal = masses @ laws
        ratio = np.where(laws > 0, np.log(np.maximum(laws, 1e-300) / np.maximum(marginal, 1e-300)), 0.0)
        charges.append(float(np.sum(masses @ (laws * ratio)) * (grid[1] - grid[0])))
        if passed:
            masses = masses * np.exp(-0.5 * (y - mean) ** 2 / total) / np.sqrt(total)
            masses = masses / masses.sum()
            gain = spread / total
            mean, spread = mean + gain * (y - mean), spread * (1 - gain)
        mean, spread = secrets * mean + w, secrets**2 * spread + 0.3**2
    return np.array(charges)
