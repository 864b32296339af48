"""Why the printed learner does not lower the distortion where leakage is free (ρ = 0).

Without a price of leakage the best release is the true output: only the fuel and λ · distortion count. The
printed learner is trained on that, as printed and with one thing changed at a time: the critic also sees w
and t, or nothing is bootstrapped (discount 0). After the training the critic's gradient in the release law is
held against that of λ E[d], which is known.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from paper.reproduction.columns import BY_NAME, settings
from paper.reproduction.tables import markdown
from veil.io import load_arrays
from veil.laws import Gaussian
from veil.learners import training
from veil.learners.critic import Observation, described
from veil.learners.ddpg import Ddpg, Memory
from veil.learners.design import scaling_of
from veil.learners.experience import Step
from veil.learners.run import CHECKPOINT
from veil.problem import Objective, Problem, problem
from veil.registry import LEARNERS
from veil.systems.platoon import Platoon
from veil.types import Key, Scalar, as_float32
from veil.version import __version__

PUBLISHED = Path(__file__).parent / "control.json"

COLUMN = "ddpg_printed_no_privacy"

STEPS, FRESH = 50, 3_000_000  # releases; number of the first episode that policies are measured on

CHANGES: dict[str, tuple[str, Callable[[Ddpg], Ddpg]]] = {
    "printed": ("as printed", lambda learner: learner),
    "seeing": ("the critic also sees w and t", lambda learner: replace(learner, printed=False)),
    "myopic": ("nothing is bootstrapped (discount 0)", lambda learner: replace(learner, discount=0.0)),
}


@dataclass(frozen=True)
class Row:
    """One training.

    Attributes:
        title: what was changed.
        updates: that were made.
        distortion: per step, mean and standard error, before and after, without exploration.
        cost: fuel per step likewise, mL/s.
        value: mean Q of the last hundred updates, mL/s.
        missed: root mean square of what the critic's targets differed from it, over the same updates.
        wandered: standard deviation of λ E[d] under the perturbations that explore, mL/s.
        cosine: mean cosine between the critic's gradient and that of λ E[d], over remembered steps.
        right: share of the steps where both point to the same side.
    """

    title: str
    updates: int
    distortion: tuple[float, float, float, float]
    cost: tuple[float, float, float, float]
    value: float
    missed: float
    wandered: float
    cosine: float
    right: float


def measured(name: str, updates: int, folder: Path) -> Row:
    """Train, or go on, and measure."""
    title, change = CHANGES[name]
    wanted = settings(BY_NAME[COLUMN], STEPS, 1.0, 0)
    options = replace(wanted.training, updates=updates, evaluate_every=updates)
    with jax.enable_x64(False):
        system = as_float32(Platoon())
        made = problem(system, STEPS, Objective(0.0, wanted.objective.distortion_price))
        made = as_float32(made)
        policy = training.untrained(system, options, steps=STEPS, design=wanted.design)
        learner = LEARNERS[options.learner]().build(options)
        assert isinstance(learner, Ddpg)
        learner = as_float32(change(learner))
        trained = training.train_policy((made,), learner, policy, options, folder=folder / name)
        lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        last = [line for line in lines if "actor_loss" in line][-100:]
        progress = replace(learner, warmup=0).begin((made,), policy, key=jr.key(0))
        progress, _ = load_arrays(folder / name / CHECKPOINT, (progress, policy))
        assert trained.last is not None
        before, after = (driven(made, one) for one in (policy, trained.last))
        slopes = compared(learner, made, progress, key=jr.key(1))
    return Row(
        title,
        trained.updates,
        (*before[0], *after[0]),
        (*before[1], *after[1]),
        float(np.mean([line["actor_loss"] for line in last])),
        float(np.sqrt(np.mean([line["critic_loss"] for line in last]))),
        *slopes,
    )


def driven(made: Problem, policy: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Distortion and cost per step on fresh episodes: means and standard errors."""
    numbers = FRESH + jnp.arange(256, dtype=jnp.int32)
    found = eqx.filter_jit(made.episodes)(policy, numbers, key=jr.key(7))

    def mean(values: Any) -> tuple[float, float]:
        episodes = np.asarray(values).mean(axis=1)
        return float(episodes.mean()), float(episodes.std(ddof=1) / np.sqrt(len(episodes)))

    return mean(found.distortion), mean(found.cost)


def compared(learner: Ddpg, made: Problem, progress: Any, *, key: Key) -> tuple[float, float, float]:
    """Spread of λ E[d] under exploration, mean cosine of both gradients, share of steps on the same side.

    A release law is moved by two numbers for its mean, in spreads of the output, and one for the logarithm of
    its noise.
    """
    policy, memory = progress.policy, progress.memory
    assert isinstance(memory, Memory)
    scaling, unit = scaling_of(policy), scaling_of(policy).output.spread
    now, _ = memory.replay.draw(1024, key=key)
    draws = jr.normal(jr.fold_in(key, 1), (128, unit.shape[0]), unit.dtype)
    wander = jr.normal(jr.fold_in(key, 2), (16, 3), unit.dtype) * jnp.array([1.0, 1.0, 0.5], unit.dtype)
    wander = wander * learner.explore

    def one(step: Step) -> tuple[Any, Any, Scalar]:
        observed: Observation = step.observation
        features = policy.features(step.belief, observed.external, observed.time)
        law = policy.kernel(features, observed.external, observed.time)(observed.secret, observed.state)
        output = policy.system.output(observed.state)

        def moved(shift: Any) -> Gaussian:
            return Gaussian(law.mean + unit * shift[:2], law.scale * jnp.exp(shift[2]))

        def said(shift: Any) -> Scalar:
            action = described(moved(shift), output, scaling, learner.printed)
            return memory.critic(features, observed, action, scaling)

        def true(shift: Any) -> Scalar:
            there = jax.vmap(moved(shift).sample)(draws)
            far = jax.vmap(policy.system.distortion, (None, 0))(observed.state, there)
            return made.objective.distortion_price * jnp.mean(far)

        nothing = jnp.zeros(3, unit.dtype)
        return jax.grad(said)(nothing), jax.grad(true)(nothing), jnp.std(jax.vmap(true)(wander))

    said, true, spread = (np.asarray(part) for part in eqx.filter_jit(jax.vmap(one))(now))
    products = np.sum(said * true, axis=1)
    lengths = np.linalg.norm(said, axis=1) * np.linalg.norm(true, axis=1)
    cosines = products / np.maximum(lengths, 1e-30)
    return float(spread.mean()), float(cosines.mean()), float(np.mean(products > 0.0))


def read(path: Path = PUBLISHED) -> dict[str, Row]:
    """The rows of a file; none where there is none."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {name: _row(**row) for name, row in rows.items()}


def _row(distortion: list[float], cost: list[float], **rest: Any) -> Row:
    before, error, after, last = distortion
    return Row(distortion=(before, error, after, last), cost=(cost[0], cost[1], cost[2], cost[3]), **rest)


def table(rows: dict[str, Row]) -> str:
    """As in paper/deviations.md."""
    heads = (
        *("learner", "updates", "distortion before", "after", "fuel before, mL/s", "after", "mean Q"),
        *("its targets miss it by", "exploration moves λ E[d] by", "cosine of the gradients", "same side"),
    )
    lines = [
        (
            *(row.title, f"{row.updates}"),
            *(
                f"{values[i]:.3f} ± {values[i + 1]:.3f}"
                for values in (row.distortion, row.cost)
                for i in (0, 2)
            ),
            *(f"{row.value:.2f}", f"{row.missed:.2f}", f"{row.wandered:.4f}"),
            *(f"{row.cosine:.2f}", f"{row.right:.0%}"),
        )
        for row in rows.values()
    ]
    return markdown(heads, lines)


def main() -> None:
    """Do what is missing."""
    parser = argparse.ArgumentParser(
        description="The control with ρ = 0, as printed and with one thing changed."
    )
    parser.add_argument(
        "--out", type=Path, default=PUBLISHED, help="file to write; rows that it has are kept"
    )
    parser.add_argument("--folder", type=Path, default=Path("build/control"), help="of the trainings")
    parser.add_argument("--updates", type=int, default=1000, help="of each training")
    options = parser.parse_args()
    done = read(options.out)
    for name in CHANGES:
        if name not in done:
            done[name] = measured(name, options.updates, options.folder)
            rows = {key: asdict(row) for key, row in done.items()}
            content = {"version": __version__, "rows": rows}
            options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(table(done))


if __name__ == "__main__":
    main()
