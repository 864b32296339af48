"""The rules of the house that a program can check."""

import ast
import importlib
import inspect
import re
import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "veil"
LAYERS = (
    *(
        "version",
        "types",
        "linalg",
        "traced",
        "stats",
        "io",
        "executors",
        "registry",
        "settings",
        "plots",
        "laws",
        "systems",
    ),
    *("resampling", "beliefs", "distortion", "leakage", "policies", "step", "rollout", "attacks"),
    *("results", "evaluation", "problem", "learners", "checks", "environment", "recordings", "fitting"),
    *("sharing", "frontier", "reports", "cli", "__main__"),
)
FILES = sorted(PACKAGE.rglob("*.py"))
FEWEST_TESTS = 840
LONGEST_CHAIN = 15  # modules
# Written in pieces, so that this file does not contain what it looks for.
FORBIDDEN = [
    *("/" + "home/", "/" + "root/", "/" + "work/", "/" + "tmp/"),
    *("index" + "-url", "find" + "-links", "trusted" + "-host", "pypi." + "org"),
]


def name(path):
    return str(path.relative_to(ROOT))


def layer(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree):
    """Modules of the package that a file imports, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "veil":
            yield from (f"veil.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def tracked():
    """The files of the project that are text; what git ignores is left out."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # an unpacked archive
        return [*FILES, *ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/*.md"), *ROOT.glob("*.*")]
    return [ROOT / line for line in listing.splitlines()]


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_module_imports_only_from_layers_before_its_own(path):
    own = layer(path)
    if own == "__init__":
        return  # names everything, imports nothing until asked
    assert own in LAYERS, f"give '{own}' a place in LAYERS"
    for module in imported(ast.parse(path.read_text(encoding="utf-8"))):
        parts = module.split(".")
        if parts[0] == "veil" and len(parts) > 1:
            assert LAYERS.index(parts[1]) <= LAYERS.index(own), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_the_engine_knows_no_particular_system(path):
    """What is special about the platoon is asked of it; only commands build one by its name."""
    if layer(path) in ("systems", "cli", "__init__"):
        return
    wanted = set(imported(ast.parse(path.read_text(encoding="utf-8"))))
    assert "veil.systems.platoon" not in wanted, name(path)


def modules_of(folder):
    """Import graph inside one layer."""
    graph = {}
    for path in folder.glob("*.py"):
        if path.stem != "__init__":
            wanted = imported(ast.parse(path.read_text(encoding="utf-8")))
            inside = (module.removeprefix(f"veil.{folder.name}.") for module in wanted)
            graph[path.stem] = {module for module in inside if (folder / f"{module}.py").exists()}
    return graph


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES} - {PACKAGE}), ids=name)
def test_inside_a_layer_no_two_modules_import_each_other(folder):
    graph = modules_of(folder)
    while graph:
        free = [module for module, wanted in graph.items() if not wanted & graph.keys()]
        assert free, f"a circle among {sorted(graph)}"
        graph = {module: wanted for module, wanted in graph.items() if module not in free}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_everything_public_has_a_docstring(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "a module says what it is for"
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]
    owned = [node for owner in (tree, *classes) for node in owner.body if isinstance(node, ast.FunctionDef)]
    for node in (*classes, *owned):
        if not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{name(path)}: {node.name}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_docstring_is_a_sentence(path):
    """One or two words say nothing that the name does not say."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            assert text is None or len(text.split()) >= 3, f"{name(path)}: {node.name}: {text}"


def public_functions():
    """Functions that the public modules export, and methods of the classes that they export."""
    made = runpy.run_path(str(ROOT / "docs" / "make_reference.py"))
    for title in ["veil", *made["modules"]()]:
        module = importlib.import_module(title)
        for public in made["names"](module):
            value = getattr(module, public)
            if inspect.isfunction(value):
                yield f"{title}.{public}", value, ()
            elif inspect.isclass(value):
                for method, function in vars(value).items():
                    if inspect.isfunction(function) and not method.startswith("_"):
                        yield f"{title}.{public}.{method}", function, value.__mro__[1:]


def test_public_functions_with_three_or_more_arguments_document_them():
    """A method that implements one of a base class is documented there."""
    missing = []
    for title, function, bases in public_functions():
        inherited = any(function.__name__ in vars(base) for base in bases)
        arguments = [one for one in inspect.signature(function).parameters if one != "self"]
        if len(arguments) >= 3 and not inherited and "Args:" not in (inspect.getdoc(function) or ""):
            missing.append(title)
    assert not missing


def test_no_file_speaks_of_one_machine():
    wrong = []
    for path in tracked():
        if path.is_file() and path.suffix not in {".png", ".npz", ".safetensors"}:
            text = path.read_text(encoding="utf-8", errors="ignore")
            wrong += [f"{name(path)}: {word}" for word in FORBIDDEN if word in text]
    assert not wrong


def test_tests_do_not_get_lost():
    """A floor under the number of test functions: raise it as the suite grows."""
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert sum(len(re.findall(r"^def test_", text, re.MULTILINE)) for text in texts) >= FEWEST_TESTS


def test_pages_link_to_what_exists():
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"


def test_the_counter_of_the_house_finds_chains_cycles_and_siblings(tmp_path):
    house = runpy.run_path(str(ROOT / "tools" / "house.py"))
    package = tmp_path / "veil"
    package.mkdir()
    texts = {
        "a": "import veil.b",
        "b": "def f():\n    from veil.c import g",
        "c": "",
        "d": "import veil.e",
        "e": "",
    }
    for stem, text in (*texts.items(), ("e", "from veil import d")):
        (package / f"{stem}.py").write_text(text)
    found = house["count"](tmp_path)
    assert found["files"] == 5 and found["chain"] == ["veil.a", "veil.b", "veil.c"]
    assert found["cycles"] == [["veil.d", "veil.e"]]
    assert found["one importer, a sibling"] == ["veil.b", "veil.c", "veil.d", "veil.e"]


def test_imports_have_no_cycle_and_no_long_chain():
    """Imports inside functions count; `make house` shows the chain."""
    found = runpy.run_path(str(ROOT / "tools" / "house.py"))["count"](ROOT)
    assert not found["cycles"]
    assert len(found["chain"]) <= LONGEST_CHAIN, " > ".join(found["chain"])


def test_the_walks_of_the_house_know_their_entry_points():
    walks, house = (runpy.run_path(str(ROOT / "tools" / name)) for name in ("walks_now.py", "house.py"))
    assert all(callable(walks[name]) for name in house["WALKS"].values())
