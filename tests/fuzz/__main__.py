"""`python -m tests.fuzz [NAME ...] [--seconds N]`: all fuzzers, or some, for as long as asked. `make fuzz` is this."""

import argparse
import random
import sys

from agent.logs import configure_logs
from tests.fuzz.registry import FUZZERS
from tests.fuzz.run import FuzzFinding, run


def main() -> int:
    """The exit code: 1 where something was found."""
    names = [fuzzer.name for fuzzer in FUZZERS]
    parser = argparse.ArgumentParser(description="Feed made-up input and see what breaks.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; none = all")
    parser.add_argument("--seconds", type=float, default=600.0, help="for all of them together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--inputs", type=int, default=sys.maxsize, help="most inputs of each")
    asked = parser.parse_args()
    configure_logs("console", level="ERROR")
    if unknown := set(asked.names) - set(names):
        parser.error(f"no fuzzer is called {', '.join(sorted(unknown))}")
    chosen = [fuzzer for fuzzer in FUZZERS if fuzzer.name in (asked.names or names)]
    found = 0
    for fuzzer in chosen:
        try:
            told = run(fuzzer, asked.seconds / len(chosen), seed=asked.seed, first=asked.first, inputs=asked.inputs)
        except FuzzFinding as finding:
            found += 1
            sys.stdout.write(f"{fuzzer.name}: FOUND: {finding}\n")
            if asked.inputs == 1:
                raise
        else:
            sys.stdout.write(f"{told}, seed {asked.seed}\n")
        sys.stdout.flush()
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
