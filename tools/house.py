"""`make house`: how far apart things are in the code, before and after.

    python tools/house.py                          # this tree beside version 0.1
    python tools/house.py --root PATH --walks 0.1  # another tree, whose entry points are those of version 0.1

The numbers are signs, not aims. Imports inside functions count, so that hiding an import changes nothing;
imports that only a package's `__init__` makes for type checkers do not, since they never run. A *walk* is one
action of a user, run on the `gain` loop with small sizes in a process of its own: every function of the
package that Python enters is counted once, functions that JAX calls to compile a program included.
"""

import argparse
import ast
import inspect
import json
import runpy
import statistics
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType

HERE = Path(__file__).resolve().parent
BEFORE = HERE / "house_0.1.json"
WALKS = {
    "reading to release": "live",
    "one update": "update",
    "one audited episode": "episode",
    "a CSV": "csv",
}

Graph = dict[str, set[str]]


# ---------------------------------------------------------------------------------------------- the files


def modules(root: Path) -> dict[str, Path]:
    """The modules of the package by dotted name."""
    found = {}
    for path in sorted((root / "veil").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def statements(node: ast.AST, types: bool) -> Iterator[ast.AST]:
    """Everything in a tree, also inside functions; blocks under `if TYPE_CHECKING` only if asked for."""
    for child in ast.iter_child_nodes(node):
        hidden = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        if types or not hidden:
            yield child
            yield from statements(child, types)


def import_graph(found: dict[str, Path]) -> Graph:
    """Which module imports which."""
    graph: Graph = {}
    for name, path in found.items():
        wanted = set()
        for node in statements(ast.parse(path.read_text("utf-8")), types=path.name != "__init__.py"):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                wanted |= {f"{node.module}.{alias.name}" for alias in node.names} & found.keys()
                if any(f"{node.module}.{alias.name}" not in found for alias in node.names):
                    wanted.add(node.module)
            elif isinstance(node, ast.Import):
                wanted |= {alias.name for alias in node.names}
        graph[name] = (wanted & found.keys()) - {name}
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """Groups of modules that import each other, by taking away what imports nothing or is not imported."""
    left = dict(graph)
    while True:
        used = set().union(*left.values()) if left else set()
        kept = {
            name: wanted & left.keys()
            for name, wanted in left.items()
            if wanted & left.keys() and name in used
        }
        if kept.keys() == left.keys():
            break
        left = kept

    def reached(name: str) -> set[str]:
        seen, todo = set(), [name]
        while todo:
            for other in left[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    reach = {name: reached(name) for name in left}
    groups = {frozenset(b for b in reach[a] if a in reach[b]) for a in left if a in reach[a]}
    return sorted(sorted(group) for group in groups)


def chains(graph: Graph) -> dict[str, tuple[str, ...]]:
    """The longest chain of imports that starts at each module; members of a cycle are passed once."""
    inside = {name for group in cycles(graph) for name in group}

    @cache
    def chain(name: str) -> tuple[str, ...]:
        wanted = graph[name] - inside if name in inside else graph[name]
        return (name, *max((chain(other) for other in sorted(wanted)), key=len, default=()))

    return {name: chain(name) for name in graph}


def single_importers(graph: Graph) -> list[str]:
    """Modules that one module imports, a sibling: candidates for moving into it."""
    importers = defaultdict(set)
    for name, wanted in graph.items():
        for other in wanted:
            importers[other].add(name)
    parents = {name: [one.rpartition(".")[0] for one in importers[name]] for name in graph}
    return [name for name in graph if parents[name] == [name.rpartition(".")[0]]]


def short_bodies(paths: list[Path]) -> tuple[int, int]:
    """How many functions have a body of three lines or fewer, docstring apart; and how many there are."""
    lengths = []
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                lengths.append(body[-1].end_lineno - body[0].lineno + 1 if body else 0)  # pyright: ignore
    return sum(length <= 3 for length in lengths), len(lengths)


def count(root: Path) -> dict[str, object]:
    """Everything that can be counted without running anything."""
    found = modules(root)
    graph = import_graph(found)
    lines = sorted(len(path.read_text("utf-8").splitlines()) for path in found.values())
    names = Counter(path.name for path in found.values() if path.name != "__init__.py")
    short, functions = short_bodies(list(found.values()))
    return {
        "files": len(found),
        "median lines": int(statistics.median(lines)),
        "most lines": lines[-1],
        "files under 50 lines": sum(length < 50 for length in lines),
        "chain": list(max(chains(graph).values(), key=len)),
        "cycles": cycles(graph),
        "one importer, a sibling": single_importers(graph),
        "recurring file names": {name: times for name, times in names.most_common() if times > 1},
        "functions": functions,
        "bodies of 3 lines or fewer": short,
    }


# ---------------------------------------------------------------------------------------------- the walks


class Trace:
    """Collects the functions of the package that are entered while it is on, as (file, function).

    With `compiled=True` only those count that JAX calls, that is, those inside a compiled program.
    """

    def __init__(self, root: Path, folder: Path):
        self.prefix, self.folder = str(root / "veil") + "/", folder  # a walk writes its files into the folder
        self.seen, self._compiled = set[tuple[str, str]](), False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """The hook of `sys.setprofile`."""
        code = frame.f_code
        named = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
        if event != "call" or not named or not code.co_filename.startswith(self.prefix):
            return
        if not self._compiled or _called_by_jax(frame):
            self.seen.add((code.co_filename.removeprefix(self.prefix), code.co_qualname))

    def run(self, action, *, compiled: bool = False):
        """Run an action and watch it."""
        self._compiled = compiled
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            return action()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # pyright: ignore[reportArgumentType]


def _called_by_jax(frame: FrameType) -> bool:
    before = frame.f_back
    while before is not None:
        if "/jax/" in before.f_code.co_filename:
            return True
        before = before.f_back
    return False


def walk(root: Path, scripts: Path, name: str) -> dict[str, object]:
    """Run one walk in a fresh process, so that nothing is compiled or imported beforehand."""
    command = [sys.executable, __file__, "--root", str(root), "--walks", str(scripts), "--walk", name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the walk '{name}' failed:\n{done.stderr}")
    seen = json.loads(done.stdout.splitlines()[-1])
    files = sorted({file for file, _ in seen})
    return {"functions": len(seen), "files": len(files), "in": files}


# ---------------------------------------------------------------------------------------------- print, draw


def table(before: dict, now: dict) -> str:
    """Both trees side by side."""
    rows = [("", "version 0.1", "this tree")]

    def row(title: str, show) -> None:
        rows.append((title, str(show(before)), str(show(now))))

    row("files; median / most lines", lambda it: f"{it['files']}; {it['median lines']} / {it['most lines']}")
    row("files under 50 lines", lambda it: it["files under 50 lines"])
    row("longest import chain", lambda it: len(it["chain"]))
    row("import cycles", lambda it: len(it["cycles"]))
    row("modules with one importer, a sibling", lambda it: len(it["one importer, a sibling"]))
    row("file names that recur", lambda it: len(it["recurring file names"]))
    row(
        "functions of 3 lines or fewer",
        lambda it: f"{it['bodies of 3 lines or fewer']} of {it['functions']}",
    )
    for title in WALKS:
        row(
            f"{title}: functions / files",
            lambda it, title=title: f"{it['walks'][title]['functions']} / {it['walks'][title]['files']}",
        )
    widths = [max(len(one[column]) for one in rows) for column in range(3)]
    lines = ["  ".join([one[0].ljust(widths[0]), *(one[c].rjust(widths[c]) for c in (1, 2))]) for one in rows]
    return "\n".join(lines)


def details(found: dict) -> str:
    """What the numbers of one tree consist of."""
    short = [name.removeprefix("veil.") for name in found["chain"]]
    lines = ["Longest import chain: " + " > ".join(short)]
    lines += [f"Cycle: {', '.join(group)}" for group in found["cycles"]]
    recurring = (f"{name} x{times}" for name, times in found["recurring file names"].items())
    lines += ["File names that recur: " + ", ".join(recurring)]
    lines += ["One importer, a sibling: " + ", ".join(found["one importer, a sibling"])]
    lines += [f"{title}: {', '.join(it['in'])}" for title, it in found["walks"].items()]
    return "\n".join(lines)


def draw(root: Path, path: Path) -> None:
    """The import graph: one band per package, and modules further right the longer their chain of imports."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    graph = import_graph(modules(root))
    depth = {name: len(chain) for name, chain in chains(graph).items()}
    bands = defaultdict(list)
    for name in graph:
        parts = name.split(".")
        bands[parts[1] if (root / "veil" / parts[-1 if len(parts) < 2 else 1]).is_dir() else ""].append(name)
    place, height, shades = {}, 0, []
    for band in sorted(bands, key=lambda band: statistics.mean(depth[name] for name in bands[band])):
        cells = defaultdict(list)
        for name in sorted(bands[band]):
            cells[depth[name]].append(name)
        for column, members in cells.items():
            for number, name in enumerate(members):
                place[name] = column, height + number
        shades.append((band, height - 0.7, height + max(map(len, cells.values())) - 0.3))
        height += max(map(len, cells.values())) + 1
    longest = max(depth.values())
    figure, axes = plt.subplots(figsize=(1.15 * longest + 2.0, 0.2 * height), layout="constrained")
    for number, (band, low, high) in enumerate(shades):
        axes.axhspan(low, high, color="0.93" if number % 2 else "0.97", zorder=0)
        axes.text(0.3, (low + high) / 2, band, fontsize=10, ha="right", va="center")
    for name, wanted in graph.items():
        for x, y in (place[other] for other in wanted):
            axes.plot([place[name][0], x], [place[name][1], y], color="tab:blue", linewidth=0.4, alpha=0.25)
    on_chain = set(max(chains(graph).values(), key=len))
    for name, (x, y) in place.items():
        box = {
            "boxstyle": "round,pad=0.15",
            "facecolor": "orange" if name in on_chain else "white",
            "lw": 0.3,
        }
        axes.text(x, y, name.rpartition(".")[2], fontsize=7, ha="center", va="center", bbox=box)
    axes.set(xlim=(-1.0, longest + 0.7), ylim=(height, -1), yticks=[], xticks=range(1, longest + 1))
    axes.set_xlabel("modules in the longest chain of imports below; orange: the longest chain of all")
    axes.set_frame_on(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Count, trace, draw and print; or run one walk, as a child of this script."""
    parser = argparse.ArgumentParser(description="How far apart things are in the code.")
    parser.add_argument("--root", type=Path, default=HERE.parent, help="the tree (default: this one)")
    parser.add_argument("--walks", default="now", help="entry points of the tree: now or 0.1")
    parser.add_argument("--out", type=Path, default=HERE.parent / "build" / "house", help="folder")
    parser.add_argument("--save", type=Path, help="write the numbers to this file as well")
    parser.add_argument("--walk", help=argparse.SUPPRESS)
    given = parser.parse_args()
    root, scripts = given.root.resolve(), HERE / f"walks_{given.walks.replace('.', '_')}.py"
    if given.walk:
        sys.path.insert(0, str(root))
        with tempfile.TemporaryDirectory() as folder:
            trace = Trace(root, Path(folder))
            runpy.run_path(given.walks)[given.walk](trace)
        print(json.dumps(sorted(trace.seen)))
        return
    found = count(root) | {"walks": {title: walk(root, scripts, name) for title, name in WALKS.items()}}
    given.out.mkdir(parents=True, exist_ok=True)
    draw(root, given.out / "imports.png")
    before = json.loads(BEFORE.read_text("utf-8")) if BEFORE.exists() else found
    text = f"{table(before, found)}\n\n{details(found)}\n"
    (given.out / "house.txt").write_text(text, encoding="utf-8")
    numbers = json.dumps(found, indent=1)
    (given.out / "house.json").write_text(numbers + "\n", encoding="utf-8")
    if given.save:
        given.save.write_text(numbers + "\n", encoding="utf-8")
    print(text + f"\nThe picture: {given.out / 'imports.png'}")


if __name__ == "__main__":
    main()
