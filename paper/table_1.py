"""Table 1: fuel of every column beside the printed numbers."""

from paper.reproduction.command import script
from veil.cli.main import prepare

if __name__ == "__main__":
    prepare()
    script("table_1")
