"""The platoon's driver for the package `particles`: as its tutorial would write it, and by hand in numpy."""

import numpy as np
import particles  # pyright: ignore[reportMissingImports]
from particles import distributions as laws  # pyright: ignore[reportMissingImports]
from particles import state_space_models as models  # pyright: ignore[reportMissingImports]

DT, TOP, STOP, GO = 0.2, 30.0, 5.0, 35.0
START, START_SD, MOVE_SD = np.array([15.0, 20.0]), np.array([0.5, 1.0]), np.array([0.02, 0.1])
LOG_TWO_PI = np.log(2.0 * np.pi)


def next_mean(secret, state, ahead) -> tuple[np.ndarray, np.ndarray]:
    """Mean speed and spacing after one step of the full velocity difference model."""
    speed, spacing = state[:, 0], state[:, 1]
    share = np.clip((spacing - STOP) / (GO - STOP), 0.0, 1.0)
    wanted = 0.5 * TOP * (1.0 - np.cos(np.pi * share))
    push = np.clip(secret[0] * (wanted - speed) + secret[1] * (ahead - speed), -5.0, 5.0)
    return np.clip(speed + DT * push, 0.0, TOP), spacing + DT * (ahead - speed)


def normals(means, sds):
    """Independent normal coordinates."""
    return laws.IndepProd(*(laws.Normal(loc=mean, scale=sd) for mean, sd in zip(means, sds, strict=True)))


class Driver(models.StateSpaceModel):
    """Parameters: secret, external (T, 3), noise (2,)."""

    secret: np.ndarray
    external: np.ndarray
    noise: np.ndarray

    def PX0(self):
        """Law of the first state."""
        return normals(START, START_SD)

    def PX(self, t, xp):
        """Law of the state at t given the one before."""
        return normals(next_mean(self.secret, xp, self.external[t - 1, 1]), MOVE_SD)

    def PY(self, t, xp, x):
        """Law of the release."""
        return normals(x.T, self.noise)


def bootstrap(secret, external, shared, noise):
    """The bootstrap filter of a `Driver`."""
    return models.Bootstrap(ssm=Driver(secret=secret, external=external, noise=noise), data=shared)


class HandWritten(particles.FeynmanKac):
    """The same filter without the package's distributions, which cost more than the arithmetic."""

    def __init__(self, secret, external, shared, noise):
        self.T = len(shared)
        self.secret, self.external, self.shared, self.noise = secret, external, shared, noise
        self.constant = -np.log(noise).sum() - LOG_TWO_PI

    def M0(self, N):
        """First states."""
        return START + START_SD * np.random.standard_normal((N, 2))

    def M(self, t, xp):
        """Next states."""
        states = MOVE_SD * np.random.standard_normal(xp.shape)
        speed, spacing = next_mean(self.secret, xp, self.external[t - 1, 1])
        states[:, 0] += speed
        states[:, 1] += spacing
        return states

    def logG(self, t, xp, x):
        """Log density of the release."""
        miss = (self.shared[t] - x) / self.noise
        return self.constant - 0.5 * (miss[:, 0] ** 2 + miss[:, 1] ** 2)
