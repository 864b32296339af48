"""Figure 2: true speed and spacing, and what a reader of the releases takes them for."""

from paper.reproduction.command import script
from veil.cli.main import prepare

if __name__ == "__main__":
    prepare()
    script("figure_2")
