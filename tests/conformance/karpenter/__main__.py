"""`python -m tests.conformance.karpenter PATH...`: rows about pods and machines, answered by the agent's deciders."""

import sys

from tests.conformance.karpenter.agent import report

if __name__ == "__main__":
    lines, good = report(sys.argv[1:])
    sys.stdout.write("\n".join(lines) + "\n")
    sys.exit(0 if good else 1)
