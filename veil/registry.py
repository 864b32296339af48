"""The things of each kind by name: policies, systems, attacks, leakage methods and learners.

A thing registers its name where it is defined, and nothing else lists it:

    @POLICIES.register("noise")
    @dataclass(frozen=True)
    class NoiseSettings:
        sd: PerAxis

        def build(self, system: System) -> GaussianNoise:
            return GaussianNoise(system, per_axis(self.sd, system))

`POLICIES["noise"]` is then this class. A string below a field says what it is, with its unit. Command line,
run files and documentation ask the registry.

Importing the modules of a kind takes about a second, since they import JAX, while `--help` must answer at
once. Names, sentences and settings are therefore read from the source files, without importing them: see
`Registry.header`.
"""

import ast
import difflib
import functools
import importlib
import importlib.util
import itertools
import pkgutil
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

PerAxis = Annotated[tuple[float, ...], "per axis"]
"""Positive numbers, one per shared field of the system, each in the unit of its field."""

# What a registered class may use outside its methods: these modules are quick to import.
LIGHT = ("dataclasses", "math", "typing", "veil.registry", "veil.settings")

FIT_FILE = "fit.json"  # in the folder of a fit

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Entry:
    """Where a thing is, and what its source says.

    Attributes:
        module: that defines it.
        symbol: its name there.
        about: one sentence, from `register` or from the docstring.
        tree: the source of the module.
        node: the definition in it.
    """

    module: str
    symbol: str
    about: str
    tree: ast.Module
    node: ast.ClassDef | ast.FunctionDef


class Registry(Mapping[str, Any]):
    """All things of one kind, by name. Iterating over names imports nothing, `registry[name]` does.

    Args:
        kind: what these things are called in messages, e.g. "policy".
        package: whose modules define them.
    """

    def __init__(self, kind: str, package: str):
        self.kind, self.package = kind, package
        self._registered, self._headers = dict[str, Any](), dict[str, Any]()

    def register(self, name: str, about: str = "") -> Callable[[Thing], Thing]:
        """Decorate a class or a function to give it a name.

        Args:
            name: for the command line and for files.
            about: one sentence; by default the first line of the docstring.
        """
        del about  # is read from the source

        def keep(thing: Thing) -> Thing:
            self._registered[name] = thing
            return thing

        return keep

    def __getitem__(self, name: str) -> Any:
        """The thing itself; a name that there is not is a `KeyError` with the names that there are."""
        if name not in self._registered:
            entry = self._entry(name)
            self._registered[name] = getattr(importlib.import_module(entry.module), entry.symbol)
        return self._registered[name]

    def __iter__(self) -> Iterator[str]:
        """The names, those of the library first."""
        return iter(dict.fromkeys([*self._entries, *self._registered]))

    def __len__(self) -> int:
        """How many there are."""
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        """Whether there is one of this name; `Mapping` would import it to find out."""
        return name in self._entries or name in self._registered

    def about(self, name: str) -> str:
        """One sentence about a thing."""
        if name in self._entries:
            return self._entries[name].about
        return (self[name].__doc__ or "").strip().partition("\n")[0]

    def name_of(self, thing: object) -> str:
        """The name of a registered class, or of an instance of one."""
        kind = thing if callable(thing) else type(thing)
        place = kind.__module__, kind.__qualname__
        ours = [name for name, one in self._entries.items() if (one.module, one.symbol) == place]
        return next(name for name in (*self._registered, *ours) if self[name] is kind)

    def able(self, capability: str) -> tuple[str, ...]:
        """The names of the things whose class has this method, or has this constant set."""
        return tuple(name for name in self if getattr(self.header(name), capability, False))

    def check(self, name: str) -> None:
        """Refuse a name that there is not, with a guess at what was meant."""
        if name not in self:
            raise ValueError(f"no {self.kind} '{name}'.{guess(name, self)} Choose {', '.join(self)}.")

    def header(self, name: str) -> Any:
        """The class of a thing as far as it can be had without JAX: fields, defaults, checks, constants.

        Its source is executed by itself, together with those imports of its file that are `LIGHT`. A method
        that needs anything else works only in the class itself, which `registry[name]` imports.
        """
        if name in self._registered:
            return self._registered[name]
        if name not in self._headers:
            self._headers[name] = self._read(self._entry(name))
        return self._headers[name]

    def _read(self, entry: Entry) -> Any:
        light = [
            node for node in entry.tree.body if isinstance(node, ast.ImportFrom) and node.module in LIGHT
        ]
        module = ast.Module([*light, _without_signatures(entry.node)], type_ignores=[])
        space: dict[str, Any] = {"__name__": __name__}
        try:
            exec(compile(ast.fix_missing_locations(module), entry.module, "exec"), space)
        except NameError as error:
            raise TypeError(
                f"{entry.module}.{entry.symbol} is read without JAX, for `--help`: outside its methods it "
                f"may use only what is imported from {', '.join(LIGHT)}. {error}."
            ) from error
        made = space[entry.symbol]
        made.__sentences__ = sentences_of(entry.node)
        return made

    def _entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise KeyError(f"no {self.kind} '{name}'.{guess(name, self)} Choose {', '.join(self)}.") from None

    @functools.cached_property
    def _entries(self) -> dict[str, Entry]:
        """What the sources of the package register."""
        found = dict[str, Entry]()
        spec = importlib.util.find_spec(self.package)
        assert spec is not None and spec.submodule_search_locations is not None
        for info in pkgutil.iter_modules(spec.submodule_search_locations):
            source = info.module_finder.find_spec(info.name, None).loader.get_source(info.name)  # pyright: ignore
            if ".register(" not in source:
                continue
            tree = ast.parse(source)
            for node in tree.body:
                if isinstance(node, ast.ClassDef | ast.FunctionDef):
                    for name, about in self._registrations(node):
                        module = f"{self.package}.{info.name}"
                        if name in found:
                            raise TypeError(f"two {self.kind} entries are called '{name}': in {module} too.")
                        found[name] = Entry(module, node.name, about, tree, node)
        return found

    def _registrations(self, node: ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[str, str]]:
        """Name and sentence of each `@REGISTRY.register(...)` of this registry above a definition."""
        for call in filter(_is_registration, node.decorator_list):
            assert isinstance(call, ast.Call)
            if globals().get(ast.unparse(call.func).removesuffix(".register")) is self:
                words = [*call.args, *(keyword.value for keyword in call.keywords)]
                name, about = (*(ast.literal_eval(word) for word in words), "")[:2]
                yield name, about or (ast.get_docstring(node) or "").partition("\n")[0].rstrip(".")


def _is_registration(node: ast.expr) -> bool:
    """Whether a decorator is a call of `NAME.register`."""
    return isinstance(node, ast.Call) and re.fullmatch(r"\w+\.register", ast.unparse(node.func)) is not None


def _without_signatures(node: ast.ClassDef | ast.FunctionDef) -> ast.stmt:
    """A copy that neither registers nor evaluates the types of its methods."""
    (copy,) = ast.parse(ast.unparse(node)).body
    assert isinstance(copy, ast.ClassDef | ast.FunctionDef)
    copy.decorator_list = [one for one in copy.decorator_list if not _is_registration(one)]
    for inner in ast.walk(copy):
        if isinstance(inner, ast.FunctionDef):
            inner.returns = None
        if isinstance(inner, ast.arg):
            inner.annotation = None
    return copy


def sentences_of(node: ast.ClassDef | ast.FunctionDef) -> dict[str, str]:
    """The sentence that stands below each field of a class in the source."""
    found = dict[str, str]()
    for field, below in itertools.pairwise(node.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            name, text = field.target, below.value
            if isinstance(name, ast.Name) and isinstance(text, ast.Constant) and isinstance(text.value, str):
                found[name.id] = " ".join(text.value.split())
    return found


def guess(name: str, names: Collection[str]) -> str:
    """The sentence about the name that was probably meant, after a space; empty if none is near."""
    close = difflib.get_close_matches(name, list(names), 1, 0.4)
    return f" Did you mean {close[0]}?" if close else ""


POLICIES = Registry("policy", "veil.policies")
"""Policies that need no training: frozen dataclasses with `build(system) -> Policy`."""

SYSTEMS = Registry("system", "veil.systems")
"""Systems with a secret: classes that need no arguments."""

ATTACKS = Registry("attack", "veil.attacks")
"""Attacks that every audit makes: functions that give attackers, see `veil.attacks.base.prior_attackers`."""

LEAKAGE = Registry("leakage method", "veil.leakage")
"""Ways to compute leakage: frozen dataclasses whose fields are options; with `of_mixture` or `of_step`."""

LEARNERS = Registry("learner", "veil.learners")
"""Learners with what is usual for each: see `veil.settings.Preset`."""


def system_name(place: str) -> str:
    """The one name of a system in folders, tables, files and reports: in snake case, without the place.

    Args:
        place: where the command line finds it, e.g. `platoon` or `models/house.py:MyHouse`, or its class.
    """
    name = place.rpartition(":")[2].partition("@")[0].rstrip("/").rpartition("/")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def fit_folder(place: str) -> Path | None:
    """The folder of a fit, if that is meant: FOLDER, or FILE.py:NAME@FOLDER for a system of one's own."""
    folder = Path(place.rpartition("@")[2])
    return folder if place and place not in SYSTEMS and (folder / FIT_FILE).exists() else None
