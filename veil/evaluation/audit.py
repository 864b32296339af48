"""The audit: play episodes, bound the leakage from both sides, attack, and give a verdict.

In a scenario that differs from the model the two-sided bound does not hold. What is measured there comes from
a classifier trained on transcripts of that scenario, and from a Kalman bank that has the right model of it.
"""

import time
from collections.abc import Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from veil.attacks.base import Attack
from veil.attacks.kalman import KalmanBank, MisspecifiedPolicy
from veil.attacks.learned import train_attack
from veil.evaluation import evaluate as reading
from veil.evaluation.attackers import Attacker, attack_result, attackers, longer, several_episodes
from veil.evaluation.bounds import CoupledBounder, LeakageBounder, TwoSidedBound
from veil.evaluation.episodes import (
    LONGER,
    TRAINING,
    Progress,
    has_features,
    in_batches,
    replay_batch,
    select_episodes,
)
from veil.evaluation.evaluate import (
    EPISODE_BLOCK,
    Context,
    bound_leakage,
    choose_bounder,
    leakage_over_time,
    use_batch,
)
from veil.evaluation.fit_test import LEVEL, examine_transcripts
from veil.evaluation.forecasts import calibration, vulnerability
from veil.evaluation.scoring import Scored, all_refused, failed_share, per_component, per_secret, refused
from veil.evaluation.utility import Use, table
from veil.evaluation.verdict import VerdictInputs, reach_verdict
from veil.io import Store, fingerprint
from veil.policies.base import Policy
from veil.policies.plain import Truth
from veil.registry import system_name
from veil.results.audit import Audit
from veil.results.parts import AttackResult, Quantity, ScenarioResult, Verdict
from veil.results.text import secret_text
from veil.settings import AuditSettings
from veil.stats import stratified_mean
from veil.step import Record, Transcript, sees_state
from veil.systems.base import Scenario, System
from veil.systems.scenarios import nominal, other_scenarios
from veil.types import as_float64

SCENARIO_EPISODES = 1024  # test episodes per scenario


def learned_attack(context: Context, scenario: Scenario, records: Record) -> AttackResult:
    """Train a classifier on fresh transcripts of a scenario and let it read the given ones."""
    began = time.monotonic()

    def played(numbers: Int[Array, " B"]) -> tuple[Int[Array, " B"], Transcript]:
        batch = np.asarray(numbers) + TRAINING
        made = context.play(context.policy, scenario, batch, "playing to train")
        return jnp.asarray(made.index), made.public

    def progress(done: int, total: int) -> None:
        context.progress("training an attacker", done, total)

    size = context.options.training
    attack, training = train_attack(
        played,
        scenario.plant.prior,
        episodes=size,
        validation=max(64, size // 8),
        key=context.train_key,
        progress=progress,
    )
    note = f"{size} transcripts, validation {training.best:+.3f} nats"
    attacker = Attacker("learned", "attack", lambda _: attack, note=note, key=scenario.name)
    prior = np.asarray(scenario.plant.prior.log_masses)
    return context.attack(attacker, records, began=began, log_prior=prior)


def audit_scenarios(context: Context) -> tuple[ScenarioResult, ...]:
    """The policy in every scenario that differs from its model."""
    return tuple(_audit_scenario(context, scenario) for scenario in other_scenarios(context.system))


def _audit_scenario(context: Context, scenario: Scenario) -> ScenarioResult:
    prior = np.exp(np.asarray(scenario.plant.prior.log_masses))
    numbers = np.arange(-(-SCENARIO_EPISODES // len(prior)) * len(prior))
    records = context.play(context.policy, scenario, numbers, f"playing: {scenario.name}")
    found = [learned_attack(context, scenario, records)]
    policy = context.policy
    if not policy.has_memory and not context.kind.fresh_law().is_point:
        seen = MisspecifiedPolicy(policy, scenario.plant, scenario.believed)
        right = Attacker(
            "Kalman bank, right model",
            "attack",
            lambda _: KalmanBank(scenario.plant, seen),
            key=scenario.name,
        )
        found.append(context.attack(right, records, log_prior=np.log(prior)))
    used = in_batches(
        "measuring use",
        lambda rows: use_batch(scenario.plant, select_episodes(records, rows)),
        numbers,
        context.progress,
    )
    return ScenarioResult(
        scenario.name,
        stratified_mean(np.asarray(used.distortion), np.asarray(records.index), prior),
        tuple(found),
        float(-prior @ np.log(prior)),
        float(prior.max()),
    )


REFUSALS = (
    *("replay_mismatch", "no_upper_bound", "not_enough_particles", "filter_inconsistent"),
    "model_does_not_fit",
)


def audit(
    system: System,
    policy: Policy,
    options: AuditSettings | None = None,
    *,
    records: Record | None = None,
    attacks: Mapping[str, Attack] | None = None,
    progress: Progress = lambda stage, done, total: None,
    store: Store | None = None,
) -> Audit:
    """Measure what a policy tells about the secret of a system, and judge whether that can be believed.

    Everything runs in double precision, whatever the precision of what is given.

    Args:
        system: the model, which is also the plant that is audited.
        policy: any policy.
        options: the extent of the audit.
        records: episodes to audit instead of fresh ones, batched, as `veil.evaluation.load` gives them.
        attacks: more adversaries by name, made for this system and policy; held against the bound like ours.
        progress: told the stage, how many episodes are done, and of how many.
        store: keeps finished stages, so that an interrupted audit can go on.
    """
    with jax.enable_x64(True):
        given = as_float64(system), as_float64(policy)
        options = options or AuditSettings()
        if records is not None:
            options = replace(options, steps=records.public.shared.shape[1], episodes=len(records.index))
        own = as_float64(dict(attacks or {}))
        return _run(Context(*given, options, progress, store or Store()), as_float64(records), own)


def _run(context: Context, given: Record | None, own: dict[str, Attack]) -> Audit:
    """All stages in turn."""
    records = given or _play(context)
    mismatch = _replay(context, records)
    # A coupling plays episodes again with their private randomness, which a file does not hold.
    rung = choose_bounder(context) if given is None or not context.policy.has_memory else None
    sides, scored = bound_leakage(context, rung, records)
    records = select_episodes(records, np.arange(len(scored.forecast.index)))
    attacks = (*_attacks(context, rung, scored, records), *_invited(context, own, records))
    found = _measured(rung, sides, scored, attacks, mismatch)
    chance = float(np.exp(context.log_prior).max())
    verdict = _fits(context, given, reach_verdict(found, chance))
    index, followed = np.asarray(records.index), _follow(context, records)
    curves = None if followed is None else reading.curves(followed["log_masses"], index, context.log_prior)
    trusted = verdict.name not in REFUSALS
    times, secrets = (
        leakage_over_time(context, rung, records, scored),
        per_secret(scored, _names(context.system)),
    )
    components = per_component(sides, scored, context.system) if sides is not None and context.apart else ()
    return Audit(
        system=system_name(type(context.system).__name__),
        policy=type(context.policy).__name__,
        horizon=context.options.steps,
        episodes=len(index),
        particles=0 if rung is None else rung.particles,
        method="no method applies" if rung is None else rung.name,
        verdict=verdict,
        leakage=scored.leakage if trusted else refused(scored.leakage),
        chance=chance,
        times=times if trusted else all_refused(times),
        secrets=secrets if trusted else all_refused(secrets),
        components=components if trusted else all_refused(components),
        curves=curves,
        attacks=attacks,
        realised=scored.forecast.scores(),
        posteriors=np.exp(scored.forecast.log_posterior()),
        index=index,
        utility=_use(context, records, followed, paired=given is None),
        scenarios=audit_scenarios(context) if context.options.scenarios else (),
        seeds={"seed": context.options.seed},
        seconds=context.seconds,
        nouns=context.system.nouns,
    )


def _play(context: Context) -> Record:
    """Equally many episodes per secret."""
    count = len(context.log_prior)
    episodes = count * max(2, -(-context.options.episodes // count))
    return context.play(context.policy, nominal(context.system), np.arange(episodes), "playing")


def _names(system: System) -> list[str]:
    rows = np.asarray(system.prior.secrets)
    return [secret_text(system.secret_fields, row) for row in rows]


def _measured(
    rung: LeakageBounder | None,
    sides: TwoSidedBound | None,
    scored: Scored,
    attacks: tuple[AttackResult, ...],
    mismatch: int,
) -> VerdictInputs:
    """What the gate looks at."""
    return VerdictInputs(
        leakage=scored.leakage,
        bad=0.0 if rung is None else float(scored.bad.mean()),
        calibration=calibration(scored.forecast),
        vulnerability=vulnerability(scored.forecast),
        ranks=None if sides is None or rung is None or rung.particles == 0 else np.asarray(sides.rank),
        attacks=attacks,
        mismatch=mismatch,
        failed=0.0 if sides is None else failed_share(sides),
        applicable=rung is not None,
    )


def _fits(context: Context, given: Record | None, verdict: Verdict) -> Verdict:
    """Recorded data must be such as the model makes; where they are not, nothing else counts."""
    policy = context.policy
    if given is None or policy.has_memory or verdict.name == "replay_mismatch":
        return verdict
    exact = sees_state(context.system, policy)
    if context.kind.fresh_law().is_point and not exact:
        return verdict
    found = examine_transcripts(context.system, policy, given.public, exact=exact)
    inputs = {**verdict.inputs, "fit_p": found.p_value, "fit_limit": LEVEL}
    if found.ok:
        return Verdict(verdict.name, verdict.reasons, inputs)
    return Verdict("model_does_not_fit", found.reasons(context.system), inputs)


def _replay(context: Context, records: Record) -> int:
    """How many transcripts cannot be replayed bit for bit."""
    policy = context.policy
    if not has_features(policy):
        return 0

    def run(rows: np.ndarray) -> jax.Array:
        return replay_batch(policy, select_episodes(records, rows).public)

    rows = np.arange(len(records.index))
    return int(np.sum(in_batches("replaying", run, rows, context.progress)))


def _attacks(
    context: Context, rung: LeakageBounder | None, scored: Scored, records: Record
) -> tuple[AttackResult, ...]:
    """Everybody."""
    found: list[AttackResult] = []
    bounded = rung is not None and not isinstance(rung, CoupledBounder)
    if rung is not None and bounded:
        note = rung.name + ", three runs" * (rung.particles > 0)
        found.append(
            attack_result("Bayes", "attack", scored.forecast, context.seconds.get("two sides", 0.0), note)
        )
    assisted = context.options.assisted
    for attacker in attackers(context.system, context.policy, context.kind, assisted=assisted):
        found.append(context.attack(attacker, records))
    if bounded and assisted:
        found.append(
            attack_result("four runs of one secret", "assisted", several_episodes(scored.forecast), 0.0)
        )
        found.extend(_longer(context, len(records.index)))
    if context.options.learned:
        found.append(learned_attack(context, nominal(context.system), records))
    return tuple(found)


def _invited(context: Context, own: dict[str, Attack], records: Record) -> list[AttackResult]:
    """Those that the caller brought along."""
    return [
        context.attack(Attacker(name, "attack", lambda _, it=attack: it, key=fingerprint(attack)), records)
        for name, attack in own.items()
    ]


def _longer(context: Context, episodes: int) -> list[AttackResult]:
    """Who sees runs of twice the length."""
    policy = context.policy
    if policy.has_memory or context.kind.fresh_law().is_point:
        return []
    numbers = np.arange(LONGER, LONGER + min(4 * EPISODE_BLOCK, episodes))
    scenario, twice = nominal(context.system), 2 * context.options.steps
    records = context.play(policy, scenario, numbers, "playing twice as long", twice)
    return [context.attack(longer(context.system, policy), records)]


def _follow(context: Context, records: Record) -> dict[str, np.ndarray] | None:
    """The Kalman preview over time; None where a bank of filters has nothing to weigh by."""
    policy = context.policy
    if policy.has_memory:
        return None
    exact = sees_state(context.system, policy)
    if context.kind.fresh_law().is_point and not exact:
        return None

    def run(rows: np.ndarray) -> reading.KalmanTrace:
        return reading.kalman_trace_batch(
            context.system, policy, exact, select_episodes(records, rows), context.own_key
        )

    return vars(in_batches("over time", run, np.arange(len(records.index)), context.progress))


def _use(
    context: Context, records: Record, followed: dict[str, np.ndarray] | None, *, paired: bool
) -> tuple[Quantity, ...]:
    """What the sharing costs and gives, beside sharing true data under the same random numbers."""
    rows = np.arange(len(records.index))

    def used(played: Record) -> dict[str, np.ndarray]:
        def run(part: np.ndarray) -> Use:
            return reading.use_batch(context.system, select_episodes(played, part))

        return vars(in_batches("measuring use", run, rows, context.progress))

    ours, truth = used(records), None
    if paired:
        scenario = nominal(context.system)
        truth = used(context.play(Truth(context.system), scenario, rows, "playing true data"))
    tracking = ours["error"] if followed is None else followed["tracking"]
    limit = context.options.distortion_limit
    return table(context.system, ours, truth, tracking, np.asarray(records.index), limit=limit)
