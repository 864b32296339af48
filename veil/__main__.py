"""`python -m veil`: the same as the command `veil`."""

from veil.cli.main import main

main()
