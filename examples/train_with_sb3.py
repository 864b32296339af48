"""Train a sharing policy with Stable-Baselines3, on the same decision problem as `veil train`.

Needs the extra: `pip install 'veil[sb3]'`. The base install has no torch, and its CPU build is enough here.

    python examples/train_with_sb3.py                      # a minute or two: shows that all works
    python examples/train_with_sb3.py --timesteps 200000   # as long as such learners need
"""

import argparse
from typing import Any

from stable_baselines3 import SAC  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.env_checker import check_env  # pyright: ignore[reportMissingImports]

from veil.environment import Sharing

FRESH = 10_000  # seeds of the episodes that a policy is judged by begin here; training uses none of them


def main() -> None:
    """Check the environment, look at the untrained policy, train, look again."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--system", default="Gain", help="Gain or Platoon (default: Gain)")
    parser.add_argument("--steps", type=int, default=20, help="releases per episode (default: 20)")
    parser.add_argument("--timesteps", type=int, default=3000, help="releases to learn from (default: 3000)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness (default: 0)")
    options = parser.parse_args()

    env = Sharing(options.system, options.steps)  # or one of your own: Sharing(MySystem())
    check_env(env, skip_render_check=True)
    env.reset(seed=options.seed)
    model = SAC("MlpPolicy", env, learning_starts=200, seed=options.seed, device="cpu")
    before = judged(env, model)
    model.learn(options.timesteps)
    after = judged(env, model)
    for name in before:
        print(f"{name:<22} {before[name]:8.3f} before, {after[name]:8.3f} after {options.timesteps} releases")


def judged(env: Sharing, model: Any, episodes: int = 16) -> dict[str, float]:
    """Means over fresh episodes of the policy without exploration, always the same episodes."""
    sums = {"leakage": 0.0, "cost": 0.0, "distortion": 0.0, "objective": 0.0}
    steps = 0
    for episode in range(episodes):
        seen, _ = env.reset(seed=FRESH + episode)
        ended = False
        while not ended:
            seen, reward, ended, _, info = env.step(model.predict(seen, deterministic=True)[0])
            sums = {name: value + info.get(name, -float(reward)) for name, value in sums.items()}
            steps += 1
    return {
        "leakage, nats": sums["leakage"] / episodes,
        "cost per episode": sums["cost"] / episodes,
        "distortion per release": sums["distortion"] / steps,
        "objective per episode": sums["objective"] / episodes,
    }


if __name__ == "__main__":
    main()
