"""What travels between processes: settings, arrays and names, never code, except files that the user named.

Objects are pickled by the standard library, which sends a class or a function as the name of its module and
its own name. What has no such name does not travel: a lambda, or a class of the script that runs. A system of
the user's own, FILE.py:NAME, lives in a module `veil_own_...` that the command line made of the file: its
text travels along, and the worker makes the same module of it.
"""

import hashlib
import importlib
import importlib.util
import io
import os
import pickle
import platform
import sys
import types
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import FunctionType
from typing import Any

import equinox as eqx

from veil.io import fingerprint
from veil.version import __version__

OWN = "veil_own_"  # modules that the command line made of files of the user

TEXT = "__veil_text__"  # what was in the file of a module that came from another process

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "numpy", "scipy")

Sources = dict[str, tuple[str, bytes]]
"""Of each module of the user's: its file, and the text in it."""


class UnsendableError(TypeError):
    """Something that has no name elsewhere; the text says what to do."""


UNSENDABLE = (UnsendableError, pickle.PicklingError, TypeError, AttributeError)  # what `pack` may raise


class _Pickler(pickle.Pickler):
    """Names instead of code; notes whose."""

    def __init__(self, stream: io.BytesIO):
        super().__init__(stream, protocol=5)
        self.modules = set[str]()

    def reducer_override(self, obj: Any) -> Any:
        """Whatever has a name is sent by it, compiled functions too."""
        module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
        unnamed = isinstance(obj, eqx.Module) or not callable(obj)
        if unnamed or not isinstance(module, str) or not isinstance(name, str):
            return NotImplemented
        self.modules.add(module)
        if _found(module, name) is obj:
            return NotImplemented if isinstance(obj, type | FunctionType) else (named, (module, name))
        others = [other for other, value in vars(sys.modules.get(module, types)).items() if value is obj]
        if others and module != "__main__":  # a lambda with a name
            return named, (module, others[0])
        if isinstance(obj, type | FunctionType):
            raise UnsendableError(
                f"{name} is part of the script that runs, or of a function in it, so no worker can find it. "
                "Put it into a file of its own and import it, or name it as FILE.py:NAME."
            )
        return NotImplemented


def _found(module: str, name: str) -> Any:
    """What has this name in a module of this process; None where nothing has."""
    try:
        return None if module == "__main__" else named(module, name)
    except (ImportError, AttributeError):
        return None


def named(module: str, name: str) -> Any:
    """What has this name in that module."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def pack(thing: object) -> tuple[bytes, Sources]:
    """An object as bytes, and the user's files that it needs."""
    stream = io.BytesIO()
    pickler = _Pickler(stream)
    pickler.dump(thing)
    return stream.getvalue(), _sources(pickler.modules)


def unpack(content: bytes, sources: Sources) -> Any:
    """The object again; call it with double precision enabled, or its arrays lose theirs."""
    for name, (file, text) in sources.items():
        if getattr(sys.modules.get(name), TEXT, b"") != text:
            _install(name, file, text)
    return pickle.loads(content)


def sources_of(thing: object) -> list[tuple[str, str]]:
    """The user's modules that an object needs, with digests of their text; all where it cannot travel."""
    try:
        found = pack(thing)[1]
    except UNSENDABLE:
        found = _sources({name for name in sys.modules if _is_there(name)})
    return sorted((name, hashlib.sha256(text).hexdigest()) for name, (_, text) in found.items())


def whole_fingerprint(*things: object) -> str:
    """As `veil.io.fingerprint`; it also changes with the text of the user's files that the objects need."""
    return fingerprint(*things, *sources_of(things))


def _is_there(name: str) -> bool:
    """Whether a module of the user's still has its text."""
    module = sys.modules[name]
    return name.startswith(OWN) and (hasattr(module, TEXT) or Path(str(module.__file__)).exists())


def _sources(modules: set[str]) -> Sources:
    found = Sources()
    for name in modules:
        if name.startswith(OWN):
            module = sys.modules[name]
            path = Path(str(module.__file__))
            text = getattr(module, TEXT, None)  # the file may be on another machine
            found[name] = (str(path.resolve()), path.read_bytes() if text is None else text)
    return found


def _install(name: str, file: str, text: bytes) -> None:
    """A module of this text, as if its file were here."""
    spec = importlib.util.spec_from_loader(name, loader=None, origin=file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__dict__.update({"__file__": file, TEXT: text})
    sys.modules[name] = module
    try:
        exec(compile(text, file, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise


@cache
def versions() -> dict[str, str]:
    """What must be the same in the process that asks and in the one that computes."""
    found = {"python": ".".join(platform.python_version_tuple()[:2]), "veil": __version__}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    digest, package = hashlib.sha256(), Path(__file__).parents[1]
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + path.read_bytes())
    return found | {"sources of veil": digest.hexdigest()[:12]}


def disagreement(ours: dict[str, str], theirs: dict[str, str]) -> str:
    """What a worker has another version of, as a sentence; empty where all agree."""
    different = [
        f"{name} {ours[name]} here and {theirs.get(name)} there"
        for name in ours
        if ours[name] != theirs.get(name)
    ]
    if not different:
        return ""
    return f"A worker has other versions: {', '.join(different)}. Install the same ones on all machines."


@cache
def processor() -> str:
    """The kind of processor: programs are compiled for it, and the last bits may depend on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        flags = next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        flags = platform.processor()
    return f"{platform.machine()} {hashlib.sha256(flags.encode()).hexdigest()[:8]}"


def process_name() -> str:
    """Machine and process, for people."""
    return f"{platform.node()}:{os.getpid()}"
