"""Table 2: both measures of acceleration of every column beside the printed numbers."""

from veil.cli.main import prepare
from veil.cli.reproduce import script

if __name__ == "__main__":
    prepare()
    script("table_2")
