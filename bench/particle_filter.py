"""Bootstrap particle filter on the platoon: ours against the package `particles`, on the same transcripts."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from bench import report
from bench.timing import Job, Timed, race
from veil.beliefs import ParticleBelief, Scheme
from veil.policies.plain import GaussianNoise
from veil.rollout import follow, rollout
from veil.step import Transcript
from veil.systems.platoon import Platoon

NOISE = (0.5, 0.5)  # sd of the release, m/s and m
OURS, INDEPENDENT = "Veil", "Veil, own noise per secret"
TEXTBOOK, BY_HAND = "particles, state-space model", "particles, hand-written"
ASKED = {TEXTBOOK: 8.5, BY_HAND: 4.2}  # times the peer's rate, with common random numbers


@dataclass(frozen=True)
class Size:
    """How much there is to filter."""

    episodes: int
    particles: int
    """per secret"""
    steps: int

    @property
    def particle_steps(self) -> int:
        """Over all four secrets."""
        return 4 * self.particles * self.steps * self.episodes


def transcripts(size: Size) -> Transcript:
    """Episodes of the platoon sharing with Gaussian noise, batched; the secrets take turns."""
    system = Platoon()
    policy = GaussianNoise(system, NOISE)

    def play(episode):
        record = rollout(
            system,
            policy,
            size.steps,
            public_seed=jnp.zeros((), jnp.uint32),
            key=jr.fold_in(jr.key(1), episode),
            index=episode % 4,
        )
        return record.public

    return jax.jit(jax.vmap(play))(jnp.arange(size.episodes, dtype=jnp.int32))


# ---- contestants: each returns log p(y_1..y_T | θ), (episodes, secrets), with fresh randomness per call ----


def ours(size: Size, public: Transcript, *, coupled: bool) -> Job:
    """`follow` with a bootstrap ParticleBelief, one compiled program for all episodes."""
    system = Platoon()
    policy, scheme = GaussianNoise(system, NOISE), Scheme(coupled=coupled)

    def one(transcript, key):
        start_key, run_key = jr.split(key)
        belief = ParticleBelief.start(system, size.particles, key=start_key, scheme=scheme)
        return jnp.sum(follow(system, policy, belief, transcript, key=run_key).health.log_likelihood, axis=0)

    together = jax.jit(lambda public, key: jax.vmap(one)(public, jr.split(key, size.episodes)))
    calls = iter(range(1 << 30))
    return lambda: together(public, jr.key(next(calls)))


def by_particles(size: Size, public: Transcript, *, textbook: bool) -> Job:
    """One SMC run of `particles` per episode and secret."""
    import particles  # pyright: ignore[reportMissingImports]

    from bench.platoon_by_particles import HandWritten, bootstrap

    external, shared = np.asarray(public.external, float), np.asarray(public.shared, float)
    secrets = np.asarray(Platoon().prior.secrets, float)
    build = bootstrap if textbook else HandWritten

    def run(secret, episode) -> float:
        model = build(secret, external[episode], shared[episode], np.array(NOISE))
        filtered = particles.SMC(
            fk=model, N=size.particles, resampling="systematic", ESSrmin=0.5, collect="off"
        )
        filtered.run()
        return filtered.logLt

    return lambda: np.array(
        [[run(secret, episode) for secret in secrets] for episode in range(size.episodes)]
    )


# ---- the comparison ----


def run(folder: Path, *, fast: bool) -> dict[str, object]:
    """Race, compare the evidence, print, and return what to record."""
    del folder
    size = Size(4, 256, 20) if fast else Size(16, 1296, 50)
    public = transcripts(size)
    jobs = {name: ours(size, public, coupled=name == OURS) for name in (OURS, INDEPENDENT)}
    if not report.missing("particles"):
        jobs |= {name: by_particles(size, public, textbook=name == TEXTBOOK) for name in (TEXTBOOK, BY_HAND)}
    timed = race(jobs, rounds=2 if fast else 6, patience=20.0)
    _print_speed(size, timed)
    agreement = {name: _agreement(jobs, name, 4 if fast else 8) for name in jobs if name not in (OURS,)}
    _print_agreement(agreement)
    rates = {name: size.particle_steps / entry.seconds for name, entry in timed.items()}
    pairs = {
        f"{name} / {peer}": (name, peer)
        for name in (OURS, INDEPENDENT)
        for peer in (TEXTBOOK, BY_HAND)
        if peer in rates
    }
    return {
        "particle_steps_per_second": rates,
        "ratios": {title: rates[name] / rates[peer] for title, (name, peer) in pairs.items()},
        "noise": {title: timed[name].noise + timed[peer].noise for title, (name, peer) in pairs.items()},
        "asked": ASKED,
        "agreement": agreement,
        "size": vars(size),
    }


def _agreement(jobs: dict[str, Job], name: str, runs: int) -> dict[str, float]:
    """How the log-evidence of another filter differs from ours, in standard errors of the difference.

    Log-evidence is heavy-tailed for secrets that explain the data badly, so the median of |z| is shown too.
    """
    both = [np.stack([np.asarray(jobs[one](), float) for _ in range(runs)]) for one in (OURS, name)]
    first, second = both
    apart = second.mean(axis=0) - first.mean(axis=0)
    error = np.sqrt((first.var(axis=0, ddof=1) + second.var(axis=0, ddof=1)) / runs)
    scores = np.abs(apart / error)
    return {
        "mean_ours": float(first.mean()),
        "mean_other": float(second.mean()),
        "difference": float(apart.mean()),
        "standard_error": float(
            np.sqrt(sum(runs_of.mean(axis=(1, 2)).var(ddof=1) for runs_of in both) / runs)
        ),
        "median_score": float(np.median(scores)),
        "largest_score": float(scores.max()),
        "runs": runs,
    }


def _print_speed(size: Size, timed: dict[str, Timed]) -> None:
    rates = {name: size.particle_steps / entry.seconds / 1e6 for name, entry in timed.items()}
    peers = [name for name in (TEXTBOOK, BY_HAND) if name in rates]
    rows = []
    for name, rate in sorted(rates.items(), key=lambda item: -item[1]):
        entry = timed[name]
        row = [name, report.duration(entry.seconds), f"{entry.cores:.1f}", f"{rate:.2f}"]
        for peer in peers if name.startswith("Veil") else []:
            ratio = rate / rates[peer]
            row.append(f"{ratio:.1f} {report.verdict(ratio, at_least=ASKED[peer])}")
        rows.append(row)
    work = f"4 × {size.particles} particles, {size.steps} steps, {size.episodes} episodes"
    short = {TEXTBOOK: "state-space model", BY_HAND: "hand-written"}
    asked = [f"times {short[peer]}, asked ≥ {ASKED[peer]:g}" for peer in peers]
    columns = ["", "time", "cores", "M particle-steps/s", *asked]
    note = "Systematic resampling where the effective sample size is below one half. Same transcripts."
    report.table(f"Bootstrap particle filter, {work}", columns, rows, note)


def _print_agreement(agreement: dict[str, dict[str, float]]) -> None:
    rows = []
    for name, found in agreement.items():
        means = [f"{found['mean_ours']:.3f}", f"{found['mean_other']:.3f}"]
        apart = f"{found['difference']:+.3f} ± {found['standard_error']:.3f}"
        scores = [f"{found['median_score']:.1f}", f"{found['largest_score']:.1f}"]
        rows.append([name, *means, apart, *scores])
    columns = ["", "Veil", "this one", "difference", "median |z|", "largest |z|"]
    note = "log p(y_1..y_T | θ), mean over episodes, secrets and runs; z per episode and secret."
    report.table("Same log-evidence per secret?", columns, rows, note)
