"""`python -m tests.conformance.karpenter PATH...`: the rows about pods and machines, answered by the agent's deciders."""

import sys

from tests.conformance.karpenter.agent import report

if __name__ == "__main__":
    lines, good = report(sys.argv[1:])
    print("\n".join(lines))
    sys.exit(0 if good else 1)
