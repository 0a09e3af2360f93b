"""What the demo tells: steps, what was seen, and whether each expectation held. Colours only on a terminal."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from agent.cli.tables import TextTable, render

_STYLES = {"step": "\x1b[1;36m", "good": "\x1b[32m", "bad": "\x1b[1;31m", "dim": "\x1b[2m"}
_POLL_S = 0.1


class ExpectationFailed(Exception):
    """Something the demo promises did not happen."""


class Narrator:
    """Writes to a stream and keeps the count."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._out = stream or sys.stdout
        self._began_s = time.monotonic()
        self._colour = self._out.isatty()
        self.held = 0

    def step(self, number: int, title: str) -> None:
        """A new chapter."""
        self._write(f"\n{self._paint('step', f'{number:>2}. {title}')}")

    def say(self, text: str) -> None:
        """Something seen."""
        for line in text.rstrip().splitlines():
            self._write(f"      {line}")

    def dim(self, text: str) -> None:
        """Output of a command, shown as it is."""
        for line in text.rstrip().splitlines():
            self._write(f"      {self._paint('dim', line)}")

    def table(self, title: str, table: TextTable) -> None:
        """A titled table."""
        self._write(f"\n{self._paint('step', title)}")
        for line in render(table).splitlines():
            self._write(f"  {line}")

    def expect(self, what: str, holds: Callable[[], object], within_s: float = 25.0) -> None:
        """Wait until it holds; raises `ExpectationFailed` when it does not in time."""
        began = time.monotonic()
        while True:
            seen = holds()
            if seen:
                break
            if time.monotonic() - began > within_s:
                self._write(f"   {self._paint('bad', 'x')}  {what} (not within {within_s:.0f} s)")
                raise ExpectationFailed(what)
            time.sleep(_POLL_S)
        self.held += 1
        waited = time.monotonic() - began
        note = f"  {self._paint('dim', f'after {waited:.1f} s')}" if waited > 0.5 else ""
        self._write(f"   {self._paint('good', 'v')}  {what}{note}")

    def check(self, what: str, holds: object) -> None:
        """It must hold now."""
        self.expect(what, lambda: holds, within_s=0.0)

    @property
    def elapsed_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began_s

    def _paint(self, style: str, text: str) -> str:
        return f"{_STYLES[style]}{text}\x1b[0m" if self._colour else text

    def _write(self, line: str) -> None:
        self._out.write(line + "\n")
        self._out.flush()
