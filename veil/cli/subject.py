"""What a command line speaks of: a system, of the library or of the user's, and the policy in it."""

import importlib.util
import math
import os
import re
import shlex
import sys
import traceback
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from veil.cli.console import Mistake, known
from veil.cli.parser import Flag, Parameters, flag_words
from veil.registry import LEARNERS, POLICIES, SYSTEMS, PerAxis, fit_folder, system_name

if TYPE_CHECKING:
    from veil.learners.run import Ready, Settings
    from veil.policies.base import Policy
    from veil.results.fit import Individual
    from veil.systems.base import System


RUN = "run.json"  # in the folder of a run

STEPS = 50  # releases per episode, unless said otherwise

OWN = " Or give one of your own, as FILE.py:NAME, or the folder of a `veil fit`."


def check_system(place: str, also: str = OWN) -> None:
    """Refuse what is none of ours and does not say where it is; `build_system` looks there."""
    if not is_own(place) and fit_folder(place) is None:
        known("system", place, SYSTEMS, also)


def build_system(place: str) -> "System":
    """A system with its defaults, one of the user's, or one of these with what a fit found."""
    folder = fit_folder(place)
    if folder is not None:
        return _fitted(place, folder)
    return _load(place) if is_own(place) else SYSTEMS[place]()


def build_for(place: str, individual: str) -> "System":
    """As `build_system`; of a fit with the noise and the estimate of one individual, if it has that one.

    Args:
        place: where the system is.
        individual: name of a recording.
    """
    folder = fit_folder(place)
    return build_system(place) if folder is None else _fitted(place, folder, individual)


def _fitted(place: str, folder: Path, individual: str | None = None) -> "System":
    """The system of a fit. Code is run only if the command line names it, never because a folder does."""
    from veil.fitting.fitted import fitted_system
    from veil.results.fit import Fit
    from veil.results.parts import ResultError

    try:
        found = Fit.load(folder)
        base = place.rpartition("@")[0] or found.system
        if is_own(base) and not place.rpartition("@")[0]:
            raise Mistake(
                f"{folder} is a fit of {base}, which is a file of Python code. Say that it may be run: "
                f"--system {base}@{folder}."
            )
        check_system(base)
        return fitted_system(_load(base) if is_own(base) else SYSTEMS[base](), found, individual)
    except (ResultError, ValueError) as error:
        raise Mistake(f"{error}") from error


def is_own(place: str) -> bool:
    """Whether this says where a system is: FILE.py:NAME, or MODULE:NAME."""
    return ":" in place


def _load(place: str) -> "System":
    """The system, or what a class or function of that name makes without arguments."""
    from veil.systems.base import System

    file, _, attribute = place.rpartition(":")
    module = _module(file)
    own = [one for one, value in vars(module).items() if _made_here(value, module)]
    known(f"system in {file}:", attribute, own)
    found = getattr(module, attribute)
    try:
        made = found if isinstance(found, System) or not callable(found) else found()
    except TypeError as error:
        raise Mistake(f"{place} needs arguments ({error}). Name an instance, or what makes one.") from None
    if not isinstance(made, System):
        raise Mistake(f"{place} is no veil.systems.System. docs/own-system.md has the contract.")
    return made


def _made_here(value: object, module: ModuleType) -> bool:
    """Whether this may be meant: a system, or something that makes one and was not imported."""
    from veil.systems.base import System

    return isinstance(value, System) or (callable(value) and value.__module__ == module.__name__)


def _module(place: str) -> ModuleType:
    """The file or module, run once; an error inside is reported with its line."""
    path = Path(place)
    try:
        if path.suffix != ".py":
            sys.path[:0] = [] if "" in sys.path else [""]
            return importlib.import_module(place)
        if not path.is_file():
            raise Mistake(f"there is no file {place} here. Give the path as seen from this folder.")
        name = f"veil_own_{path.stem}"
        if name not in sys.modules:
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None  # the file is there
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        return sys.modules[name]
    except Mistake:
        raise
    except Exception as error:  # whatever the user's file does
        sys.modules.pop(f"veil_own_{path.stem}", None)
        line = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(line.filename).name}, line {line.lineno}"
        raise Mistake(f"{place} cannot be loaded: {type(error).__name__}: {error} ({where}).") from error


@dataclass(frozen=True)
class PolicyChoice:
    """The sharing policy."""

    policy: Annotated[str, Flag(names=POLICIES)] = "truth"
    """{names}, or a folder of `veil train`"""
    parameters: Annotated[Mapping[str, Any], Parameters(POLICIES)] = field(default_factory=dict)
    """Settings of the policy"""

    @property
    def run(self) -> Path | None:
        """The folder of a trained policy, if that is what was asked for; a name comes first."""
        folder = Path(self.policy)
        return folder if self.policy not in POLICIES and (folder / RUN).exists() else None

    def check(self, system: str = "") -> None:
        """Refuse what cannot be built, as far as is known without building it.

        Args:
            system: where it is, for an example that fits; may be empty.
        """
        if self.run is None:
            _check_policy(self.policy)
        takes = {} if self.run else {one.name: one for one in fields(POLICIES.header(self.policy))}
        for name in [name for name in self.parameters if name not in takes]:
            users = ", ".join(one for one in POLICIES if name in _names(one))
            hint = " The number of releases per episode is --steps." if name == "step" else ""
            raise Mistake(f"--policy {self.policy} takes no {_flag(name)}; that is for {users}.{hint}")
        for name, one in takes.items():
            if one.default is MISSING and one.default_factory is MISSING and name not in self.parameters:
                raise Mistake(f"--policy {self.policy} needs {_flag(name)}. {self._example(name, system)}")
        if self.run is None:
            self._check_axes(None)
            try:
                POLICIES.header(self.policy)(**self.parameters)
            except ValueError as error:
                raise Mistake(f"--policy {self.policy}: {error}") from error

    def settings(self, system: "System | None" = None) -> Any:
        """The settings of the policy as Python has them; a system tells whether there is one per axis."""
        self._check_axes(system)
        return POLICIES[self.policy](**self.parameters)

    def build(self, system: "System", place: str = "") -> "Policy":
        """The policy for a system.

        Args:
            system: that it shares in.
            place: what the command line calls the system, to tell whether a trained policy was made for it.
        """
        self.check()
        return load_policy(self.run, system, place) if self.run else self.settings(system).build(system)

    def words(self) -> list[str]:
        """The flags that make this choice."""
        found = ["--policy", self.policy]
        for name, value in self.parameters.items():
            if isinstance(value, bool):
                found += [_flag(name) if value else f"--no-{_flag(name)[2:]}"]
            else:
                found += [_flag(name), *map(str, value if isinstance(value, tuple) else (value,))]
        return found

    def _check_axes(self, system: "System | None") -> None:
        """Refuse numbers per shared axis that are not positive, or not as many as the system has axes."""
        for name in _per_axis(self.policy):
            values = self.parameters.get(name)
            if values is None:
                continue
            if not values or not all(0.0 < value < float("inf") for value in values):
                raise Mistake(f"{_flag(name)} takes positive, finite numbers; got {_plain(values)}.")
            if system is not None and len(values) != len(system.shared_fields):
                raise Mistake(
                    f"{_flag(name)} needs one number per shared axis: {axes(system)}. It got {len(values)}."
                )

    def _example(self, name: str, place: str) -> str:
        """How to give a parameter, for the system at hand."""
        if name not in _per_axis(self.policy):
            return f"Try {_flag(name)} 5."
        try:
            system = build_system(place)
        except (Mistake, KeyError):
            return f"Try {_flag(name)} 0.1, one number per shared axis."
        numbers = " ".join(["0.1"] * len(system.shared_fields))
        return f"Try {_flag(name)} {numbers}, in the units of {axes(system)}."


EXACT = "default: that of the run or system, else 0"


@dataclass(frozen=True)
class SensorChoice:
    """The sensor that states are read by."""

    resolution: Annotated[str, Flag("STEP", default=EXACT)] = ""
    """Step that states are read and releases emitted in, in the unit of the field: one number for every
    field, or e.g. speed=0.01,spacing=0.1; 0 for real numbers"""

    def __post_init__(self) -> None:
        """Refuse what is no step; names are looked up where the system is known."""
        self.steps()

    def steps(self) -> float | dict[str, float] | None:
        """One number, or one per field; None where nothing was said."""
        found = dict[str, float]()
        for word in re.split(r"[\s,]+", self.resolution.strip(", ")):
            name, equals, value = word.rpartition("=")
            try:
                step = float(value) if bool(name) == bool(equals) else math.nan
            except ValueError:
                step = math.nan
            if not word:
                return None
            if not 0.0 <= step < math.inf or name in found:
                raise Mistake(
                    f"--resolution takes steps in the units of the fields, e.g. --resolution 0.01 or "
                    f"--resolution speed=0.01,spacing=0.1; got '{self.resolution}'."
                )
            found[name] = step
        if "" not in found:
            return found
        if len(found) > 1:
            raise Mistake(f"--resolution is one number or one per field; got '{self.resolution}'.")
        return found[""]

    def wrap(self, system: "System", run: Path | None = None) -> "System":
        """The system behind this sensor; if none was said, behind that of a run.

        Args:
            system: any system.
            run: folder of a trained policy, which says what it was trained with.
        """
        steps = self.steps()
        if steps is None and run is not None:
            steps = run_settings(run).resolution or None
        if steps is None:
            return system
        from veil.systems.variants import with_resolution

        try:
            return with_resolution(system, steps)
        except ValueError as error:
            raise Mistake(f"--resolution: {error}") from error

    def recorded(self, system: "System") -> dict[str, float]:
        """What a run keeps: the step of every state and shared field; empty where nothing was said."""
        if self.steps() is None:
            return {}
        made = self.wrap(system)
        return {field.name: field.resolution for field in (*made.state_fields, *made.shared_fields)}

    def words(self) -> list[str]:
        """The flags that make this choice."""
        return ["--resolution", self.resolution] if self.resolution else []


def resolution_words(steps: Mapping[str, float]) -> list[str]:
    """The flag that gives these steps; none where there are none."""
    each = ",".join(f"{name}={step:.15g}" for name, step in steps.items())
    same = f"{next(iter(steps.values())):.15g}" if len(set(steps.values())) == 1 else each
    return ["--resolution", same] if steps else []


def axes(system: "System") -> str:
    """The shared axes with their units."""
    return ", ".join(f"{axis.name} [{axis.unit}]".replace(" []", "") for axis in system.shared_fields)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _plain(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values) or "none"


def _names(policy: str) -> list[str]:
    return [one.name for one in fields(POLICIES.header(policy))]


def _per_axis(policy: str) -> list[str]:
    """Which parameters of a policy are one number per shared axis."""
    hints = get_type_hints(POLICIES.header(policy), include_extras=True) if policy in POLICIES else {}
    return [name for name, hint in hints.items() if hint == PerAxis]


def _check_policy(policy: str) -> None:
    if policy not in POLICIES and Path(policy).exists():
        raise Mistake(
            f"{policy} is not the folder of a trained policy: no {RUN} in it. `veil train` makes one."
        )
    known("policy", policy, POLICIES, " Or give the folder of a `veil train`.")


def run_folder(run_or_system: str) -> Path | None:
    """The folder of a run, if that is what was given; the name of a system comes first."""
    folder = Path(run_or_system)
    return folder if run_or_system not in SYSTEMS and (folder / RUN).exists() else None


def check_subject(run_or_system: str, sharing: PolicyChoice, trust: bool = False) -> None:
    """Refuse what is neither a run nor a system, and a policy beside the one of a run.

    Args:
        run_or_system: folder of a run, name of a system, or FILE.py:NAME.
        sharing: the policy that was asked for.
        trust: whether the code that a folder names may run.
    """
    folder = run_folder(run_or_system)
    if folder:
        if sharing != PolicyChoice():
            raise Mistake(f"{run_or_system} has its own policy; leave out --policy and its flags.")
        check_code(folder, trust)
        return
    named = is_own(run_or_system) or fit_folder(run_or_system) is not None
    if not named and (os.sep in run_or_system or Path(run_or_system).exists()):
        raise Mistake(f"{run_or_system} is not the folder of a run: no {RUN} in it. `veil train` makes one.")
    check_system(run_or_system, " Or give the folder of a `veil train`, or your own system as FILE.py:NAME.")
    sharing.check(run_or_system)


def check_code(folder: Path, trust: bool) -> None:
    """Refuse a folder whose system is a Python file, unless the user says that it may run.

    A folder may come from elsewhere, and is data. Code runs only where the user named it.

    Args:
        folder: of a run.
        trust: whether the user said so.
    """
    try:
        place = run_settings(folder).system
    except Mistake:
        return  # what cannot be read names nothing; whoever loads the run says what is wrong with it
    if is_own(place) and not trust:
        raise Mistake(
            f"{folder} names Python code as its system, {place}, which is not run unasked. Name it yourself, "
            f"as {shlex.quote(place)} --policy {shlex.quote(str(folder))}, or add --trust-code."
        )


def subject(
    run_or_system: str, sharing: PolicyChoice, sensor: SensorChoice, trust: bool = False
) -> "tuple[str, System, Policy]":
    """Where the system is, the system and the policy: those of a run, or those that were named.

    Args:
        run_or_system: folder of a run, name of a system, or FILE.py:NAME.
        sharing: the policy that was asked for.
        sensor: what the states are read by; it wins over that of a run.
        trust: whether the code that a folder names may run.
    """
    folder = run_folder(run_or_system)
    if folder is None:
        system = sensor.wrap(build_system(run_or_system), sharing.run)
        policy = sharing.build(system, run_or_system)
        fitted = fit_folder(run_or_system)
        return run_or_system, system, policy if fitted is None else _as_well_known(policy, fitted, sharing)
    check_code(folder, trust)
    place = run_system(folder)
    system = sensor.wrap(build_system(place), folder)
    return place, system, load_policy(folder, system, place)


def _as_well_known(policy: "Policy", folder: Path, sharing: PolicyChoice) -> "Policy":
    """A twin knows itself only as well as the fit does; other policies stay as they are."""
    from veil.fitting.fitted import as_well_known
    from veil.policies.twin import TwinSettings, twin_of
    from veil.results.fit import Fit

    twin = twin_of(policy)
    if twin is None:
        return policy
    settings = sharing.settings(twin.system)
    learn = isinstance(settings, TwinSettings) and settings.learn
    return as_well_known(twin, Fit.load(folder), learn=learn)


def live_twin(
    place: str, sharing: PolicyChoice, sensor: SensorChoice, name: str
) -> "tuple[str, Policy, Individual]":
    """The twin of one who was fitted, for a live stream: name of the system, policy, fit.

    The standard system is public: that of the library or of the command line, and of a fit to several
    individuals the one with their common prior and the median of their noise. With one individual the fit
    says nothing about it.

    Args:
        place: of the fit.
        sharing: the settings of the twin.
        sensor: that reads the states.
        name: of the individual; the only one if empty.
    """
    import jax

    from veil.fitting.fitted import fitted_system, self_model
    from veil.policies.novelty import standard_envelope
    from veil.policies.twin import PREROLL, Twin, TwinSettings
    from veil.results.fit import Fit
    from veil.types import as_float64

    folder = fit_folder(place)
    assert folder is not None  # whoever asks looked
    fit = Fit.load(folder)
    base = place.rpartition("@")[0] or fit.system
    build_system(place)  # says what is wrong with the folder
    with jax.enable_x64(True):
        system = as_float64(_load(base) if is_own(base) else SYSTEMS[base]())
        standard = sensor.wrap(system if len(fit.individuals) == 1 else fitted_system(system, fit))
        settings = sharing.settings(standard)
        assert isinstance(settings, TwinSettings)
        model = self_model(system, fit, name or None, learn=settings.learn)
        names = [one.name for one in fit.individuals]
        one = fit.individuals[names.index(name) if name else 0]
        twin = Twin(
            standard,
            model,
            sd=settings.sd or None,
            preroll=settings.preroll or PREROLL,
            public=settings.names(),
            envelope=standard_envelope(standard),
        )
    return system_name(base), twin, one


def run_settings(folder: Path) -> "Settings | Ready":
    """What a run was made with, as its file says."""
    from veil.io import StoreError
    from veil.learners import run as runs

    try:
        return runs.Run.load(folder).settings
    except StoreError as error:
        raise Mistake(str(error)) from error


def usual_steps(run: Path | None) -> int:
    """Releases per episode of a run, if it says so; else the usual number."""
    from veil.learners.run import Settings

    settings = None if run is None else run_settings(run)
    return settings.steps if isinstance(settings, Settings) else STEPS


def trust_words(folder: Path) -> list[str]:
    """The flag that a command needs to run the system of this run, if it is Python code."""
    return ["--trust-code"] if is_own(run_settings(folder).system) else []


def run_system(folder: Path) -> str:
    """Where the system of a run is, as its file says."""
    place = run_settings(folder).system
    check_system(place)
    return place


def load_policy(folder: Path, system: "System", place: str) -> "Policy":
    """The policy of a finished run.

    Args:
        folder: of the run.
        system: that it shares in.
        place: what the command line calls the system; the run must have been made for it.
    """
    from veil.io import StoreError
    from veil.learners import run as runs

    try:
        run = runs.Run.load(folder)
        made_for = run.settings.system
        if system_name(made_for) != system_name(place):
            raise Mistake(f"{folder} was trained for another system; name that one: {made_for}.")
        if not run.finished:
            raise Mistake(
                f"the run in {folder} is not finished. Go on with {train_command(run.settings, folder)}"
            )
        return runs.load_policy(folder, system)
    except StoreError as error:
        raise Mistake(str(error)) from error


def train_command(settings: "Settings | Ready", folder: Path) -> str:
    """The command line that makes a run; flags that say what is usual are left out.

    Args:
        settings: of the run.
        folder: where it is kept.
    """
    from veil.learners.run import Ready

    words = ["veil", "train", settings.system]
    words += _ready_words(settings) if isinstance(settings, Ready) else _learned_words(settings)
    words += resolution_words(settings.resolution)
    return shlex.join([*words, "--out", str(folder)])


def _ready_words(settings: "Ready") -> list[str]:
    return ["--policy", POLICIES.name_of(settings.sharing), *flag_words(settings.sharing)]


def _learned_words(settings: "Settings") -> list[str]:
    from veil.settings import ObjectiveWeights

    policy = settings.training.learner
    usual = LEARNERS.header(policy)()
    words = [] if policy == "pathwise" else ["--policy", policy]
    words += [] if settings.steps == STEPS else ["--steps", str(settings.steps)]
    words += [] if settings.leakage == usual.leakage else ["--leakage", settings.leakage]
    words += flag_words(settings.objective, ObjectiveWeights())
    return [
        *words,
        *flag_words(settings.training, usual.training),
        *flag_words(settings.design, usual.design),
    ]
