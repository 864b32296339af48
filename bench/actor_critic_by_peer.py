"""TD3 of Stable-Baselines3 on the Gymnasium form of the problem: the same objective, another learner."""

import time
from typing import Any

import numpy as np
from stable_baselines3 import TD3  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.callbacks import BaseCallback  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.noise import NormalActionNoise  # pyright: ignore[reportMissingImports]

from veil.environment import Sharing

EVERY = 2000  # steps between two looks


class Looking(BaseCallback):
    """Plays fresh episodes from time to time, notes when the goal was reached, and stops at the limit."""

    def __init__(self, steps: int, goal: tuple[float, float], limit: float):
        super().__init__()
        self.fresh, self.goal, self.limit = Sharing(steps=steps), goal, limit
        self.began, self.reached, self.best = time.perf_counter(), float("nan"), (float("inf"),) * 3

    def _on_step(self) -> bool:
        if self.n_calls % EVERY == 0:
            self.look()
        return time.perf_counter() - self.began < self.limit and not self.reached > 0.0

    def look(self) -> None:
        """Mean leakage per episode and mean distortion per step, of the policy without exploration."""
        leakage, distortion, total = played(self.fresh, self.model)
        self.best = min(self.best, (total, leakage, distortion))
        if leakage <= self.goal[0] and distortion <= self.goal[1] and not self.reached > 0.0:
            self.reached = time.perf_counter() - self.began


def played(env: Sharing, model: Any, episodes: int = 32) -> tuple[float, float, float]:
    """Leakage per episode, distortion per step, and minus the reward per episode, on fixed fresh episodes."""
    leakage, distortion, total = 0.0, 0.0, 0.0
    for episode in range(episodes):
        seen, _ = env.reset(seed=10_000 + episode)
        ended = False
        while not ended:
            seen, reward, ended, _, info = env.step(model.predict(seen, deterministic=True)[0])
            leakage, distortion, total = (
                leakage + info["leakage"],
                distortion + info["distortion"],
                total - reward,
            )
    return leakage / episodes, distortion / episodes / env.steps, total / episodes


def reach(steps: int, goal: tuple[float, float], limit: float) -> dict[str, float]:
    """Train until the goal or the limit in seconds; what was reached, and when."""
    env, looking = Sharing(steps=steps), Looking(steps, goal, limit)
    env.reset(seed=0)
    size = env.action_space.shape[0]  # pyright: ignore[reportOptionalSubscript]
    noise = NormalActionNoise(np.zeros(size), 0.1 * np.ones(size))
    model = TD3("MlpPolicy", env, action_noise=noise, learning_starts=500, seed=0, device="cpu")
    model.learn(10_000_000, callback=looking)
    looking.look()
    _, leakage, distortion = looking.best
    return {
        "seconds": looking.reached,
        "whole": time.perf_counter() - looking.began,
        "leakage": leakage,
        "distortion": distortion,
        "updates": float(model.num_timesteps),
    }
