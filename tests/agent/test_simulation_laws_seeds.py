"""Three hundred fixed histories keep the laws. More of them: `python -m agent.simulation`."""

import subprocess
import sys
from dataclasses import replace

import pytest

from agent.simulation.play import play
from agent.simulation.profiles import PROFILES, drawn_history

A_PROFILE = 60
BLOCK = 10
KNOWN: dict[tuple[str, int], set[str]] = {}
"""Profile and seed -> laws it still breaks: each is a defect of the agent to be mended."""


def blocks() -> list[tuple[str, int]]:
    return [(profile, first) for profile in sorted(PROFILES) for first in range(0, A_PROFILE, BLOCK)]


@pytest.mark.parametrize(("profile", "first"), blocks())
def test_fixed_histories_keep_the_laws(profile: str, first: int) -> None:
    broken = {}
    for seed in range(first, first + BLOCK):
        violations = play(
            replace(drawn_history(seed, profile), foresees=False)
        ).violations  # plans have tests of their own
        new = [it for it in violations if it.law not in KNOWN.get((profile, seed), set())]
        if new:
            broken[seed] = new[:3]
    assert broken == {}


DIGESTS = """
from agent.simulation.play import play
from agent.simulation.profiles import drawn_history
for profile, seed in {histories!r}:
    print(play(drawn_history(seed, profile)).digest)
"""


def digests(histories: list[tuple[str, int]], hash_seed: str) -> list[str]:
    """The hashes of histories played one after the other in one process."""
    ran = subprocess.run(
        [sys.executable, "-c", DIGESTS.format(histories=histories)],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in ran.stdout.splitlines() if len(line) == 32 and " " not in line]


def test_a_history_is_the_same_alone_after_others_and_under_another_hash_seed() -> None:
    histories = [("faults", 3), ("two-agents", 2), ("clocks", 1)]
    after_others = digests(histories, "1")
    assert digests(histories[::-1], "2") == after_others[::-1]
    assert [digests([history], "3")[0] for history in histories] == after_others
