"""`python -m tests.conformance SUITE PATH... [--emit FILE]`: exit 0 when every case holds."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TextIO

from tests.conformance.cases import Result, Suite, files_below

SUITES = ("kueue", "karpenter", "gangs", "kubernetes", "mig")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite over files; one line a failure, then what the suite has to say, then `N passed, M failed`."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="a case file, or a folder of them")
    parser.add_argument("--emit", type=Path, metavar="FILE", help="also write one line a case: its id and what came")
    options = parser.parse_args(arguments)
    suite: Suite = import_module(f"tests.conformance.{options.suite}").SUITE
    results = suite.run(files_below(options.paths))
    if options.emit is None:
        return _print(suite, results)
    with options.emit.open("w", encoding="utf-8") as sink:
        return _print(suite, _emitting(results, sink))


def _emitting(results: Iterable[Result], sink: TextIO) -> Iterable[Result]:
    for result in results:
        sink.write(json.dumps({"id": result.id, "got": result.got}, sort_keys=True) + "\n")
        yield result


def _print(suite: Suite, results: Iterable[Result]) -> int:
    kept: list[Result] = []
    for result in results:
        kept.append(result)
        if not result.passed:
            print(f"{result.id}: expected {_short(result.expected)}, got {_short(result.got)}{_because(result)}")
    for line in suite.summary(kept):
        print(line)
    failed = sum(not result.passed for result in kept)
    print(f"{len(kept) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _short(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _because(result: Result) -> str:
    return f" ({result.note})" if result.note else ""


if __name__ == "__main__":
    sys.exit(main())
