"""The entry point. Nothing heavy is imported before a command is chosen, so that help is instant."""

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

# Each command has its own file and, in it, a dataclass of its name.
COMMANDS = {
    "demo": "See all of it on the platoon: train a policy, audit it beside true data, share live and report.",
    "systems": "List the systems with a secret, or examine one of them.",
    "audit": "Measure how many nats about the secret a sharing policy leaks, and give a verdict.",
    "fit": "Estimate parameters, noise and a prior from recordings, and examine the model on the rest.",
    "measure": "Measure what a recorded trajectory tells about the secret, as it is or shared by a policy.",
    "train": "Make a policy that shares useful data and tells little about the secret.",
    "simulate": "Play episodes and write what was shared, so that anyone can attack it.",
    "frontier": "Train and measure policies at several privacy weights: leakage against distortion and cost.",
    "share": "Share a live stream within a budget: JSON lines in on stdin, JSON lines out on stdout.",
    "ledger": "Verify a ledger, print its charges and draw them; may run while the stream goes on.",
    "report": "Write a report about one run, or about several side by side: one HTML file, JSON and CSV.",
}

ABOUT = """usage: veil COMMAND [FLAGS]

Share your data, keep your parameters.

{commands}

Example: `veil audit platoon --policy noise --sd 0.25 0.43`
`veil COMMAND --help` tells about one command, `veil --version` prints the version."""


Made = TypeVar("Made")

STOPPED = 130  # exit code after Ctrl-C


@runtime_checkable
class Command(Protocol):
    """A command with its settings."""

    def run(self) -> None:
        """Run the command."""


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run one command; a reader who closes the output early is no error."""
    try:
        run_command(sys.argv[1:] if arguments is None else arguments)
    except BrokenPipeError:
        pass
    except SystemExit as end:
        if (
            arguments is None and end.code == STOPPED
        ):  # threads of XLA may still run: Python would crash as it ends
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(STOPPED)
        raise
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:  # as in `veil --help | head -1`; Python would complain when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(arguments: list[str]) -> None:
    """Help, the version, or the command that the first word names."""
    if arguments in (["--version"], ["-V"]):
        from veil.version import __version__

        print(f"veil {__version__}")
        return
    if not arguments or arguments[0] in ("-h", "--help"):
        print(ABOUT.format(commands="\n".join(f"  {name:<10} {text}" for name, text in COMMANDS.items())))
        return
    name, *rest = arguments
    execute(name, command_class(name), rest)


def command_class(name: str) -> type[Command]:
    """The dataclass of a command by its name; a name that there is not ends the program here."""
    from veil.cli.console import Mistake, complain, known

    try:
        known("command", name, COMMANDS)
    except Mistake as mistake:
        complain("", mistake)
    return getattr(importlib.import_module(f"veil.cli.{name}"), name.capitalize())


def execute(name: str, kind: type[Command], arguments: list[str]) -> None:
    """Parse the arguments of one command and run it.

    Args:
        name: of the command, for messages.
        kind: its dataclass.
        arguments: the words behind its name.
    """
    command = parse_as(name, kind, arguments)
    prepare()
    from veil.cli.console import Mistake, complain

    try:
        command.run()
    except BrokenPipeError:
        raise
    except (Mistake, OSError) as mistake:
        complain(name, mistake)
    except ValueError as error:
        from veil.systems.series import ShortSeriesError

        if not isinstance(error, ShortSeriesError):
            raise
        complain(name, error)
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(STOPPED)


def parse(arguments: list[str]) -> Command:
    """The command that these words describe; help and mistakes end the program here."""
    name, *rest = arguments
    return parse_as(name, command_class(name), rest)


def parse_as(name: str, kind: type[Made], rest: list[str]) -> Made:
    """The command of this kind with the settings that the words behind its name give.

    Args:
        name: of the command, for messages.
        kind: its dataclass.
        rest: the words behind its name.
    """
    from veil.cli import help, parser
    from veil.cli.console import Mistake, complain

    usual = getattr(kind, "usual", lambda given: None)
    own, given = parser.settings(kind), parser.Given()
    if {"-h", "--help"} & set(rest):
        with contextlib.suppress(Mistake):  # what is usual may depend on what was given
            given = parser.read_words(own, [word for word in rest if word not in ("-h", "--help")])
        print(help.page(name, kind, given))
        sys.exit(0)
    try:
        files, rest = parser.files_apart(rest)
        for path in files:
            given |= parser.read_file(path, own)
        given |= parser.read_words(own, rest)
        parser.complete(own, given, f"See `{help.program(name, kind)} --help`.")
        return parser.build(kind, given, usual(given))
    except ValueError as mistake:  # of the words, or of the settings that they make
        complain(name, mistake)


def prepare() -> None:
    """Double precision, programs of one thread, and a cache of them, so that a second run starts at once.

    One thread, because workers have one: bits are then the same wherever a program runs.
    """
    from veil.executors.base import ONE_THREAD

    os.environ.setdefault("XLA_FLAGS", ONE_THREAD)
    import jax

    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("VEIL_CACHE") or Path(home) / "veil" / "jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


if __name__ == "__main__":
    main()
