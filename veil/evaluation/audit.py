"""The audit: evaluate a policy, attack its transcripts, and give a verdict.

In a scenario that differs from the model the two-sided bound does not hold. What is measured there comes from
regressions fitted to transcripts of that scenario; a full look adds a trained classifier, and filters that
have the right model of it. All of them give lower bounds.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from veil.attacks.base import Attack
from veil.attacks.guides import filtered_path
from veil.attacks.kalman import GaussianisedPolicy, KalmanBank, MisspecifiedPolicy, Observer
from veil.attacks.learned import train_attack, train_on
from veil.attacks.particle_filter import public_steps
from veil.attacks.rounding import count_digits, fit_regressions
from veil.evaluation.attackers import (
    Attacker,
    attack_result,
    attackers,
    longer,
    run_attack,
    several_episodes,
)
from veil.evaluation.episodes import (
    LONGER,
    TRAINING,
    Progress,
    evaluation_keys,
    has_features,
    in_batches,
    play_episodes,
    replay_batch,
    select_episodes,
    side_by_side,
    silent,
)
from veil.evaluation.evaluate import (
    EPISODE_BLOCK,
    Evaluation,
    episode_count,
    evaluate,
    log_prior_of,
    use_of,
)
from veil.evaluation.fit_test import examine_transcripts
from veil.evaluation.scoring import all_refused, per_component, per_secret, refused, shared_components
from veil.evaluation.utility import table
from veil.evaluation.verdict import with_fit
from veil.executors.base import Chunk, Executor, InProcess, run_chunks
from veil.io import Store
from veil.laws import Law
from veil.policies.base import Policy
from veil.policies.plain import Truth
from veil.policies.twin import twin_of
from veil.results.audit import Audit
from veil.results.parts import AttackResult, Curves, Quantity, ScenarioResult, Verdict
from veil.results.text import secret_text, sensing
from veil.settings import AuditSettings
from veil.stats import stratified_mean
from veil.step import Record, Transcript, release_kind, sees_state
from veil.systems.base import Scenario, System, most_steps
from veil.systems.scenarios import brief_scenarios, nominal, other_scenarios
from veil.systems.variants import name_of, resolution_of
from veil.types import Key, as_float64

Made = TypeVar("Made")

SCENARIO_EPISODES = 1024  # test episodes per scenario

BRIEF_EPISODES, BRIEF_TRANSCRIPTS = 512, 1024  # the same of a brief look, and what its attacker is fitted to

TRANSCRIPTS = 512  # that regressions and counts of digits are fitted to

MOMENTS = 5  # times along the run at which the leakage is bounded


def audit(
    system: System,
    policy: Policy,
    settings: AuditSettings | None = None,
    *,
    records: Record | None = None,
    attacks: Mapping[str, Attack] | None = None,
    progress: Progress = silent,
    store: Store | None = None,
    executor: Executor | None = None,
) -> Audit:
    """Bound the leakage of a policy from both sides, run attacks, and give a verdict.

    The verdict says whether the bounds can be relied on. Everything runs in double precision, whatever the
    precision of the arguments.

    Args:
        system: the model, which is also the plant that is audited.
        policy: any policy.
        settings: how many episodes to play, and what to add.
        records: episodes to audit instead of fresh ones, batched, as `veil.evaluation.load` gives them.
        attacks: further attacks by name, made for this system and policy; they are scored like the others.
        progress: called with the stage, how many episodes are done, and of how many.
        store: keeps finished batches, so that an interrupted audit can go on.
        executor: who computes the batches; this process if not given.
    """
    with jax.enable_x64(True):
        settings = settings or AuditSettings()
        if records is not None:
            settings = replace(settings, steps=records.public.shared.shape[1], episodes=len(records.index))
        system, policy, given, own = as_float64((system, policy, records, dict(attacks or {})))
        job = _Job(system, policy, settings, progress, store or Store(), executor or InProcess())
        return _audit(job, given, own)


@dataclass(frozen=True)
class _Job:
    """What all stages of an audit share, in double precision."""

    system: System
    policy: Policy
    settings: AuditSettings
    progress: Progress
    store: Store
    executor: Executor

    @property
    def law(self) -> Law:
        """The type of the policy's release laws."""
        return release_kind(self.system, self.policy)

    def play(
        self, policy: Policy, scenario: Scenario, numbers: np.ndarray, stage: str, steps: int = 0
    ) -> Record:
        """Play these episodes, of the audit's length if no other is given."""
        key, steps = evaluation_keys(self.settings.seed).episodes, steps or self.settings.steps
        given = {"stage": stage, "progress": self.progress, "executor": self.executor}
        return play_episodes(scenario, policy, steps, numbers, key=key, **given)

    def attack(
        self, attacker: Attacker, records: Record, plant: System | None = None, *, began: float | None = None
    ) -> AttackResult:
        """Let one attacker read these episodes of the system, or of another plant."""
        return run_attack(
            attacker,
            records,
            log_prior_of(plant or self.system),
            key=evaluation_keys(self.settings.seed).filters,
            began=began,
            progress=self.progress,
            store=self.store,
            executor=self.executor,
        )

    def one(self, stage: str, function: Callable[..., Made], *given: object) -> Made:
        """What a function of a module makes of data; a worker's chunk, if there are workers."""
        if not self.executor.remote:
            return function(*given)
        (done,) = run_chunks(self.executor, [Chunk(stage, function, given)])
        return done.value

    def side_by_side(self, *kinds: "list[Stage]") -> list[list[Any]]:
        """The results of stages, kind by kind; one stage compiles while another computes."""

        def job(stage: "Stage") -> Callable[[Progress], Any]:
            return lambda told: stage(replace(self, progress=told))

        jobs = [job(stage) for kind in kinds for stage in kind]
        made = iter(side_by_side(jobs, self.progress, self.executor))
        return [[next(made) for _ in kind] for kind in kinds]


# A stage of an audit that needs nothing of the other stages.
Stage = Callable[[_Job], Any]


def _audit(job: _Job, given: Record | None, own: dict[str, Attack]) -> Audit:
    """The evaluation, then all other stages side by side: none of them needs another."""
    system, policy, settings = job.system, job.policy, job.settings

    def evaluated(progress: Progress) -> Evaluation:
        return evaluate(
            system,
            policy,
            settings=settings,
            # A coupling plays episodes again with their private randomness, which a file does not hold.
            candidates=0 if given is not None and policy.has_memory else None,
            moments=MOMENTS,
            records=given,
            progress=progress,
            store=job.store,
            executor=job.executor,
        )

    def attackers_of(_: Progress) -> tuple[Attacker, ...]:
        return attackers(system, policy, job.law, assisted=settings.assisted)

    both: list[Callable[[Progress], Any]] = [evaluated, attackers_of]
    at_once = None if job.executor.remote else 1
    found, those = side_by_side(both, job.progress, job.executor, at_once=at_once)
    records, scored = found.records, found.scored
    attack_stages = _attack_stages(job, found, those, own)
    (mismatches, trace, truth), scenarios, results = job.side_by_side(
        [
            lambda job: _mismatches(job, records if given is None else given),
            lambda job: _kalman_trace(job, records),
            lambda job: _true_use(job, len(found.index)) if given is None else None,
        ],
        _scenario_stages(job),
        attack_stages,
    )
    attacks = tuple(result for some in results for result in some)
    verdict = found.verdict(attacks, mismatches)
    if given is not None and verdict.name != "replay_mismatch":
        verdict = _fits(job, given, verdict)
    names = [secret_text(system.secret_fields, row) for row in np.asarray(system.prior.secrets)]
    secrets = per_secret(scored, names)
    components = ()
    if found.bound is not None and shared_components(system):
        components = per_component(found.bound, scored, system)
    trusted = not verdict.refused
    return Audit(
        system=name_of(system),
        policy=type(policy).__name__,
        horizon=settings.steps,
        episodes=len(found.index),
        particles=found.particles,
        method=found.method,
        verdict=verdict,
        leakage=found.leakage if trusted else refused(found.leakage),
        chance=float(found.forecast.prior.max()),
        times=found.times if trusted else all_refused(found.times),
        secrets=secrets if trusted else all_refused(secrets),
        components=components if trusted else all_refused(components),
        curves=None if trace is None else curves(trace["log_masses"], found.index, found.forecast.log_prior),
        attacks=attacks,
        realised=found.forecast.scores(),
        posteriors=np.exp(found.forecast.log_posterior()),
        index=found.index,
        utility=_utility(job, found, trace, truth),
        scenarios=tuple(scenarios),
        seeds={"seed": settings.seed},
        seconds=found.seconds,
        nouns=system.nouns,
        resolution=resolution_of(system),
        sensing=sensing(system.state_fields, system.shared_fields),
        step_seconds=None if system.step_seconds is None else round(float(system.step_seconds), 9),
        private=tuple(field.name for field in system.input_fields if field.private),
    )


def _fits(job: _Job, given: Record, verdict: Verdict) -> Verdict:
    """Recorded data must be such as the model makes; where they are not, nothing else counts."""
    policy = job.policy
    if policy.has_memory:
        return verdict
    exact = sees_state(job.system, policy)
    if job.law.fresh_law().is_point and not exact:
        return verdict
    return with_fit(verdict, examine_transcripts(job.system, policy, given.public, exact=exact))


def _mismatches(job: _Job, records: Record) -> int:
    """How many transcripts cannot be replayed bit for bit."""
    policy = job.policy
    if policy.has_memory or not has_features(policy):
        return 0

    def own(rows: np.ndarray) -> tuple:
        return (select_episodes(records, rows).public,)

    rows = np.arange(len(records.index))
    found = in_batches(
        "replaying",
        replay_batch,
        (nominal(job.system), policy),
        own,
        rows,
        job.progress,
        executor=job.executor,
    )
    return int(np.sum(np.asarray(found.value)))


def _attack_stages(
    job: _Job, found: Evaluation, those: tuple[Attacker, ...], own: dict[str, Attack]
) -> list[Stage]:
    """All attackers of an audit, in the order of the tables; each stage gives a list of results."""
    bounded, settings, records = found.bounder is not None and not found.coupled, job.settings, found.records
    stages = list[Stage]()
    if bounded:
        note = found.method + ", three runs" * (found.particles > 0)
        seconds = found.seconds.get("two sides", 0.0)
        stages.append(lambda _: [attack_result("Bayes", "attack", found.forecast, seconds, note)])
    for attacker in those:
        stages.append(lambda job, one=attacker: [job.attack(one, records)])
    if bounded and settings.assisted:
        together = several_episodes(found.forecast)
        stages.append(lambda _: [attack_result("four runs of one secret", "assisted", together, 0.0)])
        stages.append(lambda job: _longer(job, len(found.index)))
    stages.append(lambda job: _trained(job, records))
    if settings.learned:
        stages.append(lambda job: [learned_attack(job, nominal(job.system), records)])
    return [*stages, lambda job: _invited(job, own, records)]


def _trained(job: _Job, records: Record) -> list[AttackResult]:
    """Attackers that are fitted to transcripts in closed form: regressions, and counts of last digits."""
    began, secrets = time.monotonic(), len(job.system.prior.secrets)
    numbers = TRAINING + np.arange(secrets * -(-TRANSCRIPTS // secrets))
    made = job.play(job.policy, nominal(job.system), numbers, "playing to train")
    index, note = np.asarray(made.index), f"{len(numbers)} transcripts"
    found = [Attacker("last digits", "attack", lambda _: digits, note=note)]
    digits = job.one("counting digits", count_digits, job.system, made.public, index, secrets)
    found += _regressions(job, made, secrets, "fitting regressions")
    return [job.attack(attacker, records, began=began) for attacker in found]


def _invited(job: _Job, own: dict[str, Attack], records: Record) -> list[AttackResult]:
    """Let the attackers that the caller brought along read these episodes."""
    return [
        job.attack(Attacker(name, "attack", lambda _, it=attack: it), records) for name, attack in own.items()
    ]


def _longer(job: _Job, episodes: int) -> list[AttackResult]:
    """Let an attacker read runs of twice the length."""
    if job.policy.has_memory or job.law.fresh_law().is_point:
        return []
    numbers = np.arange(LONGER, LONGER + min(4 * EPISODE_BLOCK, episodes))
    twice = 2 * job.settings.steps
    if twice > most_steps(job.system):
        return []
    records = job.play(job.policy, nominal(job.system), numbers, "playing twice as long", twice)
    return [job.attack(longer(job.system, job.policy), records)]


def learned_attack(job: _Job, scenario: Scenario, records: Record) -> AttackResult:
    """Train a classifier on fresh transcripts of a scenario and let it read the given ones.

    Args:
        job: the audit.
        scenario: whose transcripts.
        records: other episodes of it, to be read.
    """
    began, size = time.monotonic(), job.settings.training

    def played(numbers: Int[Array, " B"]) -> tuple[Int[Array, " B"], Transcript]:
        made = job.play(job.policy, scenario, np.asarray(numbers) + TRAINING, "playing to train")
        return jnp.asarray(made.index), made.public

    prior, validation = scenario.plant.prior, max(64, size // 8)
    key, stage = evaluation_keys(job.settings.seed).training, "training an attacker"
    if job.executor.remote:
        made = (*played(jnp.arange(size + validation)), prior, size, validation, key)
        attack, training = job.one(stage, train_on, *made)
    else:
        attack, training = train_attack(
            played,
            prior,
            episodes=size,
            validation=validation,
            key=key,
            progress=lambda done, total: job.progress(stage, done, total),
        )
    note = f"{size} transcripts, validation {training.best:+.3f} nats"
    attacker = Attacker("learned", "attack", lambda _: attack, note=note)
    return job.attack(attacker, records, scenario.plant, began=began)


def try_scenarios(
    system: System,
    policy: Policy | Callable[[Scenario], Policy],
    settings: AuditSettings | None = None,
    *,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> tuple[ScenarioResult, ...]:
    """Attack a policy where the plant is not the model, and nothing else of an audit.

    Args:
        system: the model.
        policy: any policy; or a function that gives the one of a scenario, for owners who adapt to where they
            live, as by a fit to their own history.
        settings: which scenarios, how many steps, the seed.
        progress: called with the stage, how many episodes are done, and of how many.
        executor: who computes the batches; this process if not given.
    """
    with jax.enable_x64(True):
        settings = settings or AuditSettings()
        system, scenarios = as_float64(system), _scenarios(as_float64(system), settings)
        chosen = (lambda _: policy) if isinstance(policy, Policy) else policy

        def stage(one: Scenario) -> Callable[[Progress], ScenarioResult]:
            def run(told: Progress) -> ScenarioResult:
                own = as_float64(chosen(one))
                who = executor or InProcess()
                return _attack_scenario(_Job(system, own, settings, told, Store(), who), one)

            return run

        return tuple(side_by_side([stage(one) for one in scenarios], progress, executor))


def _scenario_stages(job: _Job) -> "list[Stage]":
    """One for each scenario; each needs the settings and the scenario alone."""
    return [lambda job, one=one: _attack_scenario(job, one) for one in _scenarios(job.system, job.settings)]


def _attack_scenario(job: _Job, scenario: Scenario) -> ScenarioResult:
    """Briefly or in full, as the settings say."""
    return (attack_in_full if job.settings.scenarios == "full" else attack_briefly)(job, scenario)


def _scenarios(system: System, settings: AuditSettings) -> tuple[Scenario, ...]:
    """Where else than in the model to audit; nowhere if there is only one secret."""
    if settings.scenarios == "none" or len(system.prior.secrets) < 2:
        return ()
    choose = brief_scenarios if settings.scenarios == "brief" else other_scenarios
    found = [as_float64(one) for one in choose(system, settings.steps)]
    return tuple(one for one in found if most_steps(one.plant) >= settings.steps)


def attack_briefly(job: _Job, scenario: Scenario) -> ScenarioResult:
    """Fit regressions to fresh transcripts of a scenario, and let them read others of it.

    Args:
        job: the audit.
        scenario: where to play.
    """
    plant, began = scenario.plant, time.monotonic()
    secrets = len(plant.prior.secrets)
    numbers = np.arange(episode_count(BRIEF_EPISODES, secrets))
    some = TRAINING + np.arange(episode_count(BRIEF_TRANSCRIPTS, secrets))
    played = job.play(job.policy, scenario, np.concatenate([some, numbers]), f"playing: {scenario.name}")
    made = select_episodes(played, np.arange(len(some)))
    records = select_episodes(played, np.arange(len(some), len(some) + len(numbers)))
    regressions = _regressions(job, made, secrets, f"fitting regressions: {scenario.name}")
    results = [job.attack(one, records, plant, began=began) for one in regressions]
    true = job.one(f"measuring distortion: {scenario.name}", distortions, plant, records)
    prior = np.exp(log_prior_of(plant))
    return _scenario_result(scenario, np.asarray(true), np.asarray(records.index), prior, results)


@eqx.filter_jit
def distortions(plant: System, records: Record) -> Float[Array, " E"]:
    """The mean distortion of each episode.

    Args:
        plant: where they were played.
        records: the episodes.
    """
    return jax.vmap(lambda one: jnp.mean(jax.vmap(plant.distortion)(one.states[:-1], one.public.shared)))(
        records
    )


def _regressions(job: _Job, made: Record, secrets: int, stage: str) -> list[Attacker]:
    """Regressions fitted to these transcripts; nobody where a run has one step."""
    if made.public.shared.shape[1] < 2:
        return []
    bank = job.one(stage, fit_regressions, made.public, np.asarray(made.index), secrets)
    note = f"{len(made.index)} transcripts"
    return [Attacker("regression bank", "attack", lambda _: bank, note=note)]


def attack_in_full(job: _Job, scenario: Scenario) -> ScenarioResult:
    """Let a trained classifier, regressions, and filters that have the right model attack a scenario.

    Args:
        job: the audit.
        scenario: where to play.
    """
    policy, plant = job.policy, scenario.plant
    secrets = len(plant.prior.secrets)

    def progress(stage: str, done: int, total: int) -> None:
        job.progress(f"playing: {scenario.name}" if stage == "playing" else stage, done, total)

    settings = replace(job.settings, episodes=SCENARIO_EPISODES)
    # The reader of a twin knows every scenario but what a sensor rounds.
    known = 1 if twin_of(policy) is not None and not scenario.coarse else 0
    given = {"candidates": known, "progress": progress, "executor": job.executor}
    found = evaluate(job.system, policy, scenario, settings, **given)
    results = [learned_attack(job, scenario, found.records)]
    some, began = TRAINING + np.arange(episode_count(BRIEF_TRANSCRIPTS, secrets)), time.monotonic()
    made = job.play(policy, scenario, some, "playing to train")
    regressions = _regressions(job, made, secrets, f"fitting regressions: {scenario.name}")
    results += [job.attack(one, found.records, plant, began=began) for one in regressions]
    if found.bounder is not None and not found.coupled:
        seconds = found.seconds.get("two sides", 0.0)
        results.append(attack_result("exact reader", "attack", found.forecast, seconds, found.method))
    if not (policy.has_memory or job.law.fresh_law().is_point or scenario.coarse):
        bank = KalmanBank(plant, MisspecifiedPolicy(policy, plant, scenario.believed))
        right = Attacker("Kalman bank, right model", "attack", lambda _: bank)
        results.append(job.attack(right, found.records, plant))
    return _scenario_result(
        scenario, np.asarray(found.use.distortion), found.index, found.forecast.prior, results
    )


def _scenario_result(
    scenario: Scenario,
    distortion: np.ndarray,
    index: np.ndarray,
    prior: np.ndarray,
    results: list[AttackResult],
) -> ScenarioResult:
    return ScenarioResult(
        scenario.name,
        stratified_mean(distortion, index, prior),
        tuple(results),
        float(-prior @ np.log(prior)),
        float(prior.max()),
    )


def _true_use(job: _Job, episodes: int) -> dict[str, np.ndarray]:
    """What sharing true data costs and gives under the same random numbers."""
    rows = np.arange(episodes)
    records = job.play(Truth(job.system), nominal(job.system), rows, "playing true data")
    return vars(use_of(job.system, records, job.progress, job.executor))


def _utility(
    job: _Job, found: Evaluation, trace: dict[str, np.ndarray] | None, truth: dict[str, np.ndarray] | None
) -> tuple[Quantity, ...]:
    """What the sharing costs and gives, beside sharing true data if that was played too."""
    ours = vars(found.use)
    tracking = ours["error"] if trace is None else trace["tracking"]
    limit = job.settings.distortion_limit
    return table(job.system, ours, truth, tracking, found.index, limit=limit)


class KalmanTrace(eqx.Module):
    """One episode by a Kalman bank: log-masses after each release, and the error of its estimate of x."""

    log_masses: Float[Array, "T K"]
    tracking: Float[Array, " Y"]  # mean square over the run


def _kalman_trace(job: _Job, records: Record) -> dict[str, np.ndarray] | None:
    """The posterior over time by Kalman filters; None where these have nothing to weigh by."""
    system, policy = job.system, job.policy
    if policy.has_memory:
        return None
    exact = sees_state(system, policy)
    if job.law.fresh_law().is_point and not exact:
        return None
    key = evaluation_keys(job.settings.seed).filters

    def own(rows: np.ndarray) -> tuple:
        return (select_episodes(records, rows), key)

    rows, shared = np.arange(len(records.index)), (system, policy, exact)
    who = job.executor
    found = in_batches("over time", kalman_trace_batch, shared, own, rows, job.progress, executor=who)
    return vars(found.value)


@eqx.filter_jit
def kalman_trace_batch(system: System, policy: Policy, exact: bool, records: Record, key: Key) -> KalmanTrace:
    """Posterior over time, and how well a receiver knows the output who knows the policy.

    Args:
        system: the model.
        policy: the one in force.
        exact: whether the releases are the states themselves.
        records: the episodes of one batch.
        key: of the filters.
    """

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
    """Mean score and mean posterior of the true secret over time.

    Args:
        log_masses: (E, T, K) of the posterior.
        index: (E,) true secrets.
        log_prior: (K,).
    """
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
