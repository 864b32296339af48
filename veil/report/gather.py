"""From folders to what a report is made of."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from veil.attacks.guides import filtered_path
from veil.attacks.kalman import GaussianisedPolicy, KalmanBank
from veil.attacks.particle_filter import public_steps
from veil.learners.run import load_policy
from veil.policies.base import Policy
from veil.releases import exact_release, release_kind
from veil.report.audit_reader import Found
from veil.report.blocks import Block, Column, Missing, ReportError
from veil.report.frontier_reader import read_frontier
from veil.report.source import Source, collect, plain_name, told_apart
from veil.report.wording import noun
from veil.results.frontier import Frontier
from veil.rollout import rollout
from veil.systems.base import System
from veil.types import Key, as_float64

SEED = 7  # of the simulated world; the same episode whenever a report is made

Path3 = Float[Array, "3 T Y"]


@dataclass(frozen=True)
class Episode:
    """Over time, in the units of the shared axes.

    Attributes:
        names: of the shared axes.
        units: of the shared axes.
        true: (T, Y) what sharing without protection would release.
        shared: (T, Y) what was released.
        estimated: (T, Y) best estimate of the true one by a reader who knows the policy.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    true: np.ndarray
    shared: np.ndarray
    estimated: np.ndarray


def play(folder: Path, system: System, steps: int) -> Episode:
    """Play the policy of a run, in a simulated world whose secret is one of the prior's."""
    with jax.enable_x64(True):
        system = as_float64(system)
        policy = as_float64(load_policy(folder, system))
        true, shared, estimated = np.asarray(_paths(system, policy, steps, jr.key(SEED)))
    fields = system.shared_fields
    names, units = (tuple(getattr(field, kind) for field in fields) for kind in ("name", "unit"))
    return Episode(names, units, true, shared, estimated)


@eqx.filter_jit
def _paths(system: System, policy: Policy, steps: int, key: Key) -> Path3:
    """True, shared and estimated, one above the other."""
    play_key, read_key = jr.split(key)
    seed = jnp.asarray(SEED, jnp.int32)
    record = rollout(system, policy, steps, public_seed=seed, key=play_key)
    outputs = jax.vmap(system.output)
    true, shared = outputs(record.states[:-1]), record.public.shared
    # Where releases carry no noise, no filter reads them better than they are.
    if policy.has_memory or exact_release(release_kind(system, policy)[0]):
        return jnp.stack([true, shared, shared])
    log_masses = KalmanBank(system, policy).trail(record.public, key=read_key).log_masses
    public = public_steps(record.public)
    path = jax.vmap(lambda secret: filtered_path(system, GaussianisedPolicy(policy), secret, public))
    means = jnp.einsum("tk,ktn->tn", jnp.exp(log_masses), path(system.prior.secrets))
    return jnp.stack([true, shared, outputs(means)])


@dataclass(frozen=True)
class Material:
    """What was collected.

    Attributes:
        title: of the report.
        sources: the runs, in the order of their columns.
        episodes: one simulated episode by the name of its run, where the policy is known.
        frontier: and its own words; None where none was given.
        date: of the report, for people; empty if it does not matter.
    """

    title: str
    sources: tuple[Source, ...]
    episodes: dict[str, Episode]
    frontier: tuple[Frontier, str] | None = None
    date: str = ""

    @property
    def audited(self) -> list[tuple[str, Found]]:
        """Names and audits of the runs that have one."""
        return [(source.name, source.audit) for source in self.sources if source.audit is not None]

    def columns(self, make: Callable[[Source], tuple[Block, ...]]) -> tuple[Column, ...]:
        """What a section has to say about each run."""
        return tuple(Column(source.name, make(source)) for source in self.sources)


def not_audited(source: Source) -> Missing:
    """Where an audit would stand."""
    return Missing(f"{source.name} has not been audited yet.", source.audit_command())


def own_columns(material: Material, make: Callable[[Source], tuple[Block, ...]]) -> tuple[Column, ...]:
    """Columns of the runs that something is there of, or could be.

    A way of sharing that was not learned has no training, and often no ledger and no episode. That is said
    where there is nothing else to say, and left out beside runs that have them.
    """
    columns = [column for column in material.columns(make) if column.blocks]
    learned = {source.name for source in material.sources if source.learned}
    kept = [one for one in columns if one.name in learned or not all(x.kind == "missing" for x in one.blocks)]
    return tuple(kept or columns)


Build = Callable[[str], System | None]


def gather(
    folders: Sequence[Path],
    *,
    names: Sequence[str] = (),
    frontier: Path | None = None,
    title: str = "",
    build: Build = lambda name: None,
) -> Material:
    """Read all folders; `ReportError` says what is wrong with one of them.

    Args:
        folders: of `veil train` or `veil audit`, in the order of their columns.
        names: what to call them; the names of the folders if not given.
        frontier: folder of `veil frontier`.
        title: of the report.
        build: the system of a name, to play a simulated episode in; None where it is not known.
    """
    if names and len(names) != len(folders):
        raise ReportError(f"{len(folders)} folders need as many names, not {len(names)}.")
    given = [
        collect(folder, name) for folder, name in zip(folders, names or [""] * len(folders), strict=True)
    ]
    sources = told_apart(given)
    known = None if frontier is None else read_frontier(frontier)
    _same_system(sources, "" if known is None else known[0].system, frontier)
    episodes = {source.name: episode for source in sources if (episode := _episode(source, build))}
    said = title or f"What sharing tells about the {noun(sources[0].system)}"
    return Material(said, tuple(sources), episodes, known)


def _same_system(sources: Sequence[Source], other: str, frontier: Path | None) -> None:
    """Numbers of different systems mean nothing beside each other."""
    first = sources[0]
    for source in sources[1:]:
        if source.system != first.system:
            raise ReportError(
                f"{first.folder} is about {first.command_system}, {source.folder} about "
                f"{source.command_system}. Make a report for each."
            )
    if other and plain_name(other) != first.system:
        raise ReportError(f"the frontier in {frontier} is about {other}, not {first.command_system}.")


def _episode(source: Source, build: Build) -> Episode | None:
    """Played where the policy and its system are at hand."""
    system = None if source.run is None else build(source.run.settings.system)
    return None if system is None else play(source.folder, system, source.horizon)
