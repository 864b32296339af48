"""Figure 2: true speed and spacing, and what a reader of the releases takes them for."""

from veil.cli.main import prepare
from veil.cli.reproduce import script

if __name__ == "__main__":
    prepare()
    script("figure_2")
