"""What every evaluation of a policy shares: episodes played in batches and bounded from both sides."""

import time
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.special import log_softmax

from veil.attacks.guides import filtered_path
from veil.attacks.kalman import GaussianisedPolicy, KalmanBank, Observer
from veil.attacks.particle_filter import public_steps
from veil.evaluation.attackers import Attacker, attack_batch, attack_result, episode_numbers
from veil.evaluation.bounds import CoupledBounder, LeakageBounder, TwoSidedBound, bounder_candidates
from veil.evaluation.episodes import PILOT, Progress, in_batches, play_batch, private_key, select_episodes
from veil.evaluation.forecasts import Forecast, calibration, vulnerability
from veil.evaluation.scoring import Scored, failed_share, score, shared_components, unknown
from veil.evaluation.utility import Use, use
from veil.evaluation.verdict import VerdictInputs, reach_verdict, width_limit
from veil.io import Store
from veil.policies.base import Policy
from veil.results.parts import AtStep, AttackResult, Curves, Verdict
from veil.settings import AuditSettings
from veil.step import Record, release_kind
from veil.systems.base import Scenario, System
from veil.systems.scenarios import nominal
from veil.types import Key

TOGETHER = 4  # episodes that a particle filter takes on at once: what fits a processor's cache


@eqx.filter_jit
def bound_batch(
    rung: LeakageBounder,
    records: Record,
    numbers: Int[Array, " B"],
    length: Int[Array, ""],
    play_key: Key,
    key: Key,
    apart: bool,
) -> TwoSidedBound:
    """Both sides of these episodes."""

    def one(both: tuple[Record, Int[Array, ""]]) -> TwoSidedBound:
        record, number = both
        own, mine = private_key(play_key, number), jr.fold_in(key, number)
        return rung.sides(record, length, play_key=own, key=mine, apart=apart)

    return jax.lax.map(one, (records, numbers), batch_size=TOGETHER)


@eqx.filter_jit
def use_batch(system: System, records: Record) -> Use:
    """What these episodes cost and gave."""
    return jax.vmap(lambda record: use(system, record))(records)


class KalmanTrace(eqx.Module):
    """One episode by a Kalman bank: log-masses after each release, and the error of its estimate of x."""

    log_masses: Float[Array, "T K"]
    tracking: Float[Array, " Y"]  # mean square over the run


@eqx.filter_jit
def kalman_trace_batch(system: System, policy: Policy, exact: bool, records: Record, key: Key) -> KalmanTrace:
    """Posterior over time, and how well a receiver knows the output who knows the policy."""

    def one(record: Record) -> KalmanTrace:
        adversary = Observer(system, policy) if exact else KalmanBank(system, policy)
        log_masses = adversary.trail(record.public, key=key).log_masses
        true = jax.vmap(system.output)(record.states[:-1])
        if exact:
            return KalmanTrace(log_masses, jnp.mean((record.public.shared - true) ** 2, axis=0))
        public = public_steps(record.public)
        paths = jax.vmap(lambda secret: filtered_path(system, GaussianisedPolicy(policy), secret, public))
        means = jnp.einsum("tk,ktn->tn", jnp.exp(log_masses), paths(system.prior.secrets))
        error = jax.vmap(system.output)(means) - true
        return KalmanTrace(log_masses, jnp.mean(error**2, axis=0))

    return jax.vmap(one)(records)


def curves(log_masses: np.ndarray, index: np.ndarray, log_prior: np.ndarray) -> Curves:
    """Mean score and mean posterior of the true secret over time."""
    rows = np.arange(len(index))
    true = log_masses[rows, :, index]
    prior = np.exp(log_prior)
    groups = [true[index == secret] for secret in range(len(prior))]
    score = sum(prior[k] * (group.mean(axis=0) - log_prior[k]) for k, group in enumerate(groups))
    masses = [np.exp(group) for group in groups]
    return Curves(
        np.asarray(score),
        np.stack([group.mean(axis=0) for group in masses]),
        np.stack([group.std(axis=0) for group in masses]),
    )


Made = TypeVar("Made")


class Context:
    """One audit on its way."""

    def __init__(
        self,
        system: System,
        policy: Policy,
        options: AuditSettings,
        progress: Progress,
        store: Store,
    ):
        self.system, self.policy, self.options = system, policy, options
        self.progress, self.store = progress, store
        self.key, self.own_key, self.train_key = jr.split(jr.key(options.seed), 3)
        # Masses that were given in single precision sum to one only up to 1e-7.
        self.log_prior = log_softmax(np.asarray(system.prior.log_masses))
        self.kind = release_kind(system, policy)
        self.apart = shared_components(system)
        self.began = time.monotonic()
        self.seconds: dict[str, float] = {}

    @property
    def late(self) -> bool:
        """Whether the time for more episodes is over."""
        return time.monotonic() - self.began > self.options.seconds

    def timed(self, stage: str, make: Callable[[], Made]) -> Made:
        """Do it and add up the seconds."""
        began = time.monotonic()
        made = make()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - began
        return made

    def play(
        self, policy: Policy, scenario: Scenario, numbers: np.ndarray, stage: str, steps: int = 0
    ) -> Record:
        """Play these episodes."""
        length = steps or self.options.steps

        def run(part: np.ndarray) -> Record:
            return play_batch(scenario, policy, length, episode_numbers(part), self.key)

        return self.timed("playing", lambda: in_batches(stage, run, numbers, self.progress))

    def sides(
        self, rung: LeakageBounder, records: Record, numbers: np.ndarray, length: int, stage: str
    ) -> TwoSidedBound:
        """Both sides of these episodes, from the store if they were measured before."""
        at = jnp.asarray(length, jnp.int32)

        def run(rows: np.ndarray) -> TwoSidedBound:
            named = episode_numbers(numbers[rows])
            return bound_batch(
                rung, select_episodes(records, rows), named, at, self.key, self.own_key, self.apart
            )

        def make() -> dict[str, np.ndarray]:
            return vars(in_batches(stage, run, np.arange(len(numbers)), self.progress))

        name = f"sides-{rung.name}-{rung.particles}-{length}-{numbers[0]}-{len(numbers)}".replace(" ", "-")
        arrays = self.timed("two sides", lambda: self.store.keep(name, make))
        return TwoSidedBound(**{field: jnp.asarray(values) for field, values in arrays.items()})

    def attack(
        self,
        attacker: Attacker,
        records: Record,
        *,
        began: float | None = None,
        log_prior: np.ndarray | None = None,
    ) -> AttackResult:
        """Let one attacker read the transcripts.

        Args:
            attacker: who.
            records: the episodes; only an assisted attacker sees more than their public side.
            began: when its work began, if before now.
            log_prior: of the secrets in these episodes, if not the system's.
        """
        rows = np.arange(min(attacker.episodes, len(records.index)))
        began = time.monotonic() if began is None else began

        def run(part: np.ndarray) -> object:
            batch = select_episodes(records, part)
            return attack_batch(attacker.make, batch, episode_numbers(part), self.own_key).log_likelihood

        def make() -> dict[str, np.ndarray]:
            found = in_batches(f"attack: {attacker.name}", run, rows, self.progress)
            return {"log_likelihood": np.asarray(found), "seconds": np.asarray(time.monotonic() - began)}

        name = f"attack-{attacker.name}-{attacker.key}-{len(rows)}".replace(" ", "-")
        found = self.store.keep(name, make)
        prior = self.log_prior if log_prior is None else log_prior
        forecast = Forecast(found["log_likelihood"], np.asarray(records.index)[rows], prior)
        return attack_result(attacker.name, attacker.role, forecast, float(found["seconds"]), attacker.note)


PILOTS = 64  # episodes to choose a rung on

EPISODE_BLOCK = 256  # episodes between two looks at the stopping rule

MOMENTS = 5  # times along the run at which both sides are measured


def choose_bounder(context: Context, most: int | None = None) -> LeakageBounder | None:
    """The first rung that is narrow enough on pilot episodes, else the narrowest; None if none applies.

    Args:
        context: of the audit.
        most: how many rungs to try; those above take several times as long.
    """
    rungs = bounder_candidates(context.system, context.policy)[:most]
    if len(rungs) < 2:
        return rungs[0] if rungs else None
    numbers = np.arange(PILOT, PILOT + PILOTS)
    records = context.play(context.policy, nominal(context.system), numbers, "playing pilots")
    entropy = -float(np.exp(context.log_prior) @ context.log_prior)
    best = (np.inf, rungs[0])
    for rung in rungs:
        stage = f"pilot: {rung.name}, {rung.particles}"
        sides = context.sides(rung, records, numbers, context.options.steps, stage)
        scored = score(sides, np.asarray(records.index), context.log_prior)
        width = float(np.nan_to_num(scored.leakage.width, nan=np.inf) + scored.bad.mean())
        if width < 0.5 * width_limit(entropy):
            return rung
        best = min(best, (width, rung), key=lambda pair: pair[0])
    return best[1]


def bound_leakage(
    context: Context, rung: LeakageBounder | None, records: Record
) -> tuple[TwoSidedBound | None, Scored]:
    """Both sides, a block of episodes at a time until the interval or the time is reached."""
    index = np.asarray(records.index)
    if rung is None:
        return None, unknown(index, context.log_prior)
    blocks: list[TwoSidedBound] = []
    while True:
        first = EPISODE_BLOCK * len(blocks)
        rows = np.arange(first, min(first + EPISODE_BLOCK, len(index)))
        stage = f"{rung.name}, {first + len(rows)} of {len(index)}"
        blocks.append(context.sides(rung, select_episodes(records, rows), rows, context.options.steps, stage))
        sides = jax.tree.map(lambda *leaves: np.concatenate(leaves), *blocks)
        seen = index[: rows[-1] + 1]
        scored = score(sides, seen, context.log_prior, coupled=isinstance(rung, CoupledBounder))
        leakage = scored.leakage
        narrow = leakage.high - leakage.low <= context.options.interval
        if narrow or context.late or len(seen) == len(index):
            return sides, scored


def leakage_over_time(
    context: Context, rung: LeakageBounder | None, records: Record, scored: Scored
) -> tuple[AtStep, ...]:
    """Both sides at a few times along the run."""
    steps = context.options.steps
    last = AtStep(steps, scored.leakage)
    if rung is None:
        return (last,)
    rows = np.arange(min(EPISODE_BLOCK, len(records.index)))
    some, found = select_episodes(records, rows), []
    for length in sorted({-(-steps * part // MOMENTS) for part in range(1, MOMENTS)} - {steps}):
        sides = context.sides(rung, some, rows, length, f"first {length} releases")
        coupled = isinstance(rung, CoupledBounder)
        at = score(sides, np.asarray(some.index), context.log_prior, coupled=coupled)
        found.append(AtStep(length, at.leakage))
    return (*found, last)


def verdict_without_attacks(
    context: Context, rung: LeakageBounder | None, sides: TwoSidedBound | None, scored: Scored
) -> Verdict:
    """The gate, without attackers and without a replay."""
    found = VerdictInputs(
        leakage=scored.leakage,
        bad=0.0 if rung is None else float(scored.bad.mean()),
        calibration=calibration(scored.forecast),
        vulnerability=vulnerability(scored.forecast),
        ranks=None if sides is None or rung is None or rung.particles == 0 else np.asarray(sides.rank),
        attacks=(),
        mismatch=0,
        failed=0.0 if sides is None else failed_share(sides),
        applicable=rung is not None,
    )
    return reach_verdict(found, float(np.exp(context.log_prior).max()))


def utility_of(context: Context, records: Record) -> Use:
    """What these episodes cost and gave."""

    def run(part: np.ndarray) -> Use:
        return use_batch(context.system, select_episodes(records, part))

    return in_batches("measuring use", run, np.arange(len(records.index)), context.progress)
