"""`python -m paper.reproduction`."""

import sys

from paper.reproduction.command import main

if __name__ == "__main__":
    main(sys.argv[1:])
