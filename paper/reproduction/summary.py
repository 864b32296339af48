"""What the tables say about each column: means over episodes with their errors."""

from dataclasses import dataclass

import numpy as np

from paper.reproduction.columns import TRUE, Column
from paper.reproduction.engine import Study, Work
from paper.reproduction.stages import Arrays
from veil.evaluation.scoring import refused
from veil.results.parts import BELIEVED
from veil.stats import Leakage, Mean, stratified_mean

WIDE = 1.96  # standard errors of a 95 % interval


@dataclass(frozen=True)
class Reader:
    """What the reader of the releases knew.

    Attributes:
        posterior: mass on the true secret after the last release, per secret.
        missed: fraction of steps at which the likeliest secret is not the true one, per secret.
        tracking: root mean square error of the mean of (speed, spacing), m/s and m.
        explained: the least fraction of the variance of a true coordinate that the means explain.
    """

    posterior: tuple[Mean, ...]
    missed: tuple[Mean, ...]
    tracking: tuple[float, ...]
    explained: float


@dataclass(frozen=True)
class Drive:
    """How one column drives from equilibrium. Means per true secret, in the order of the paper.

    Attributes:
        column: which.
        fuel: mL/s.
        squared: E[a²].
        change: E[(Δa)²].
        speed: m/s.
        extra: of the fuel against true data under the same random numbers, per cent.
        overall: the same over all secrets.
    """

    column: Column
    fuel: tuple[Mean, ...]
    squared: tuple[Mean, ...]
    change: tuple[Mean, ...]
    speed: tuple[Mean, ...]
    extra: tuple[Mean, ...]
    overall: Mean


@dataclass(frozen=True)
class Summary:
    """All about one column. Means are over all secrets; what is not driving is from a spread start.

    Attributes:
        column: which.
        drive: fuel and accelerations.
        distortion: per step.
        leakage: of the whole run; all of H(q) where no bound from above is believed.
        verdict: of the audit's gate; no attacker was asked.
        reasons: why the bound is not believed.
        method: of the two sides, with its particles per secret.
        attacker: lower bound by a trained attacker where nothing bounds the leakage from above; else None.
        reader: None where a reader has no kernel to weigh by.
        bound: the paper's, summed over the run; None without a belief.
        clamped: the same with every step clamped.
    """

    column: Column
    drive: Drive
    distortion: Mean
    leakage: Leakage
    verdict: str
    reasons: tuple[str, ...]
    method: str
    attacker: Mean | None
    reader: Reader | None
    bound: Mean | None
    clamped: Mean | None

    @property
    def trusted(self) -> bool:
        """Whether the upper side of the leakage may be believed."""
        return self.verdict in BELIEVED


def drives(work: Work) -> dict[str, Drive]:
    """How all columns drive, by name; what is missing is measured now."""
    true = work.study(TRUE).driven
    return {column.name: drive(work.study(column.name), true) for column in work.columns}


def summaries(work: Work) -> dict[str, Summary]:
    """All columns by name; what is missing is measured now."""
    true = work.study(TRUE).driven
    return {column.name: summary(work.study(column.name), true) for column in work.columns}


def drive(study: Study, true: Arrays) -> Drive:
    """One column; `true` is what True Data gave."""
    driven, prior = study.driven, _prior(study)
    extra = paired(driven, true, len(prior))
    names = ("fuel", "squared", "change", "speed")
    return Drive(
        study.column,
        *(per_secret(driven[name], driven["index"]) for name in names),
        extra=per_secret(extra, driven["index"]),
        overall=stratified_mean(extra, driven["index"], prior),
    )


def summary(study: Study, true: Arrays) -> Summary:
    """One column; `true` is what True Data gave from equilibrium."""
    audited, charged, prior = study.audited, study.charged, _prior(study)
    verdict, leakage, particles = str(audited["verdict"]), leakage_of(audited), int(audited["particles"])

    def charge(name: str) -> Mean | None:
        return None if charged is None else stratified_mean(charged[name], charged["index"], prior)

    return Summary(
        column=study.column,
        drive=drive(study, true),
        distortion=stratified_mean(audited["distortion"], audited["index"], prior),
        leakage=leakage if verdict in BELIEVED else refused(leakage),
        verdict=verdict,
        reasons=tuple(map(str, audited["reasons"])),
        method=str(audited["method"]) + (f", {particles} per secret" if particles else ""),
        attacker=None if (found := study.attacked) is None else attacker_of(found, prior),
        reader=None if study.read is None else reader(study.read),
        bound=charge("bound"),
        clamped=charge("clamped"),
    )


def _prior(study: Study) -> np.ndarray:
    return np.exp(np.asarray(study.system.prior.log_masses, float))


def per_secret(values: np.ndarray, index: np.ndarray) -> tuple[Mean, ...]:
    """Mean and standard error over the episodes of each secret."""
    groups = [values[index == secret] for secret in range(int(index.max()) + 1)]
    return tuple(stratified_mean(group, np.zeros(len(group), int), np.ones(1)) for group in groups)


def paired(driven: Arrays, true: Arrays, secrets: int) -> np.ndarray:
    """Per episode: how much more fuel than with true data, in per cent of its secret's mean with them."""
    level = np.array([true["fuel"][true["index"] == secret].mean() for secret in range(secrets)])
    return 100.0 * (driven["fuel"] - true["fuel"]) / level[driven["index"]]


def attacker_of(attacked: Arrays, prior: np.ndarray) -> Mean:
    """Mean score of the trained attacker, in nats."""
    return stratified_mean(attacked["score"], attacked["index"], prior)


def leakage_of(audited: Arrays) -> Leakage:
    """The leakage as it was measured."""
    lower, upper = (Mean(*map(float, audited[side])) for side in ("lower", "upper"))
    return Leakage(lower, upper, float(audited["entropy"]))


def reader(read: Arrays) -> Reader:
    """Statistics of what was read."""
    index, log_masses, true = read["index"], read["log_masses"], read["states"]
    rows = np.arange(len(index))
    last = np.exp(log_masses[rows, -1, index])
    missed = np.mean(np.argmax(log_masses, axis=2) != index[:, None], axis=1)
    square = np.mean((read["means"] - true) ** 2, axis=(0, 1))
    variance = np.var(true, axis=(0, 1))
    return Reader(
        per_secret(last, index),
        per_secret(missed, index),
        tuple(map(float, np.sqrt(square))),
        float(1.0 - np.max(square / variance)),
    )
