"""Runs fuzzers: one input after the other until the time is over, each with a deadline, and memory has a bound."""

import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from random import Random
from types import FrameType

from tests.fuzz.registry import Attack, Fuzzer

WARM_UP = 50
"""Inputs after which memory is measured: imports and caches are filled by then."""


class TookTooLong(BaseException):
    """The deadline of an input has passed. No `Exception`, so that nothing that is attacked takes it for its own."""


class FuzzFinding(AssertionError):
    """An input that was answered wrongly, and how to make it again."""


@dataclass(frozen=True, slots=True)
class FuzzRun:
    """What a run did."""

    name: str
    inputs: int
    seconds: float
    slowest_seconds: float
    growth_mib: int

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.inputs} inputs in {self.seconds:.0f} s, the slowest {self.slowest_seconds:.2f} s, "
            f"memory grew by {self.growth_mib} MiB"
        )


def run(fuzzer: Fuzzer, seconds: float, *, seed: int = 0, first: int = 0, inputs: int = sys.maxsize) -> FuzzRun:
    """Feeds inputs `first`, `first + 1`, ... until so many seconds or inputs are over.

    Raises `FuzzFinding` for the first that goes wrong.
    """
    began, slowest, done, warm_mib = time.monotonic(), 0.0, 0, 0
    with fuzzer.start() as attack:
        for number in count(first):
            started = time.monotonic()
            if started - began >= seconds or done >= inputs:
                break
            _one(fuzzer, attack, seed, number)
            slowest, done = max(slowest, time.monotonic() - started), done + 1
            if done == WARM_UP:
                warm_mib = peak_mib()
            elif done > WARM_UP and (grown := peak_mib() - warm_mib) > fuzzer.most_growth_mib:
                raise FuzzFinding(f"{_again(fuzzer, seed, number)}: memory has grown by {grown} MiB")
    growth = peak_mib() - warm_mib if done >= WARM_UP else 0
    return FuzzRun(fuzzer.name, done, time.monotonic() - began, slowest, growth)


def _one(fuzzer: Fuzzer, attack: Attack, seed: int, number: int) -> None:
    try:
        with deadline(fuzzer.most_seconds):
            attack(Random(f"{fuzzer.name}:{seed}:{number}"))
    except TookTooLong:
        raise FuzzFinding(f"{_again(fuzzer, seed, number)}: took more than {fuzzer.most_seconds} s") from None
    except Exception as error:
        raise FuzzFinding(f"{_again(fuzzer, seed, number)}: {type(error).__name__}: {error}") from error


def _again(fuzzer: Fuzzer, seed: int, number: int) -> str:
    return f"python -m tests.fuzz {fuzzer.name} --seed {seed} --first {number} --inputs 1"


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raises `TookTooLong` in the main thread after so many seconds of work, or ten times as many of waiting.

    Machines are shared: how long work takes is counted in the time of the processor.
    """

    def over(_signal: int, _frame: FrameType | None) -> None:
        raise TookTooLong

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 10 * seconds))
    before = [signal.signal(number, over) for _, number, _ in timers]
    for timer, _, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for timer, _, _ in timers:
            signal.setitimer(timer, 0)
        for (_, number, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


def peak_mib() -> int:
    """The most memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
