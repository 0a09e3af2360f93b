"""`python -m agent.simulation`."""

import sys

from agent.simulation.command import main
from providers.kube.memory import settle_heap

if __name__ == "__main__":
    settle_heap()
    sys.exit(main())
