"""The entry point. Nothing heavy is imported before a command is chosen, so that help is instant."""

import os
import sys
from pathlib import Path
from typing import Annotated

from veil.cli.audit import Audit
from veil.cli.demo import Demo
from veil.cli.frontier import Frontier
from veil.cli.ledger import Ledger
from veil.cli.reproduce import Reproduce
from veil.cli.share import Share
from veil.cli.systems import Systems
from veil.cli.train import Train


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line and run one command."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments in (["--version"], ["-V"]):
        import veil

        print(f"veil {veil.__version__}")
        return
    command = parse(arguments or ["--help"])
    prepare()
    try:
        command.run()
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(130)


def parse(arguments: list[str]) -> Audit | Demo | Frontier | Ledger | Reproduce | Share | Systems | Train:
    """The command that the arguments describe; help and mistakes end the program here."""
    import tyro

    command = (
        Annotated[Audit, tyro.conf.subcommand("audit")]
        | Annotated[Demo, tyro.conf.subcommand("demo")]
        | Annotated[Frontier, tyro.conf.subcommand("frontier")]
        | Annotated[Ledger, tyro.conf.subcommand("ledger")]
        | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
        | Annotated[Share, tyro.conf.subcommand("share")]
        | Annotated[Systems, tyro.conf.subcommand("systems")]
        | Annotated[Train, tyro.conf.subcommand("train", default=Train.usual(arguments))]
    )
    return tyro.cli(
        command,
        prog="veil",
        description="Share your data, keep your parameters. `veil --version` prints the version.",
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )


def prepare() -> None:
    """Double precision, and a cache of compiled programs, so that a second run starts at once."""
    import jax

    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("VEIL_CACHE") or Path(home) / "veil" / "jax")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


if __name__ == "__main__":
    main()
