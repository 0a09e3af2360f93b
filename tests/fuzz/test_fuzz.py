"""Every fuzzer for a while, and the runner itself: what it must find."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from structlog.testing import capture_logs

from tests.fuzz.registry import FUZZERS, Attack, Fuzzer
from tests.fuzz.run import FuzzFinding, run

ROOT = Path(__file__).resolve().parents[2]
SECONDS = float(os.environ.get("FUZZ_TEST_SECONDS", "20"))


@pytest.mark.parametrize("fuzzer", FUZZERS, ids=lambda fuzzer: fuzzer.name)
def test_a_while_of_made_up_input(fuzzer: Fuzzer) -> None:
    """In a process of its own: what other tests have left in this one would count as growth."""
    command = [sys.executable, "-m", "tests.fuzz", fuzzer.name, "--seconds", str(SECONDS), "--seed", "0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20 * SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r": (\d+) inputs in ", done.stdout)
    assert told is not None, done.stdout
    assert int(told[1]) > 0


def test_nobody_is_evicted_in_the_cycle_that_admits_it() -> None:
    """Found by the fuzzer: a gang that had lost its place to one admitted a moment ago took that one for a victim."""
    [plan] = [fuzzer for fuzzer in FUZZERS if fuzzer.name == "plan"]
    with capture_logs() as lines:
        run(plan, 60.0, seed=146775, first=1, inputs=1)
    assert [line for line in lines if line["event"] == "decision_failed"] == []


def test_names_are_unique() -> None:
    names = [fuzzer.name for fuzzer in FUZZERS]
    assert len(set(names)) == len(names)


class _Broken:
    name = "broken"
    most_growth_mib = 64

    def __init__(self, what: str) -> None:
        self.what = what
        self.most_seconds = 0.05 if what in {"hangs", "waits"} else 60.0
        self.drawn: list[float] = []
        self.closed = False
        self.kept: list[bytes] = []

    @contextmanager
    def start(self) -> Iterator[Attack]:
        yield self.attack
        self.closed = True

    def attack(self, rng: Random) -> None:
        self.drawn.append(rng.random())
        if self.what == "raises" and len(self.drawn) == 3:
            raise KeyError("x")
        while self.what == "hangs":
            try:
                sum(range(1000))
            except Exception:  # noqa: BLE001  what a server's fence does
                continue
        if self.what == "waits":
            threading.Event().wait(60)
        if self.what == "grows":
            self.kept.append(os.urandom(4 * 1024**2))


def test_what_raises_is_told_with_its_number() -> None:
    with pytest.raises(FuzzFinding, match=r"broken --seed 7 --first 2 --inputs 1: KeyError"):
        run(_Broken("raises"), 10.0, seed=7)


@pytest.mark.parametrize("how", ["hangs", "waits"])
def test_what_hangs_is_found_whatever_it_catches(how: str) -> None:
    with pytest.raises(FuzzFinding, match="took more than"):
        run(_Broken(how), 10.0)


def test_what_grows_is_found() -> None:
    with pytest.raises(FuzzFinding, match="memory has grown"):
        run(_Broken("grows"), 30.0, inputs=200)


def test_the_same_number_is_the_same_input() -> None:
    one, other = _Broken("works"), _Broken("works")
    assert run(one, 10.0, seed=3, inputs=5).inputs == 5
    run(other, 10.0, seed=3, first=4, inputs=1)
    assert other.drawn == one.drawn[4:]
    assert one.closed
