"""`python -m agent.simulation`."""

import sys

from agent.simulation.command import main

if __name__ == "__main__":
    sys.exit(main())
